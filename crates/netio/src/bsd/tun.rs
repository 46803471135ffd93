//! A TUN interface: one queue, one packet for each call, and before each packet its address family.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::namespace::NetworkNamespace;
use super::os;
use crate::bsd_decisions::family_header;
use crate::tun::{Tun, TunError, TunOffloads};

/// A TUN interface of the kernel. It is deleted with this value.
pub struct TunDevice(os::Interface);

impl TunDevice {
    /// Creates the interface `name`, with one queue and without offloads.
    pub fn create(name: &str, _queues: usize, _wanted: TunOffloads) -> Result<Self, TunError> {
        os::create(name).map(Self)
    }

    /// It cannot be called: there is no other network.
    pub fn create_in(
        network: &NetworkNamespace,
        _name: &str,
        _queues: usize,
        _wanted: TunOffloads,
    ) -> Result<Self, TunError> {
        match *network {}
    }

    /// Whether it was made in another network: there is none.
    pub fn is_elsewhere(&self) -> bool {
        false
    }

    /// There are no devices that were opened elsewhere: nothing tells whether packets have the family before them.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn from_fd(_fd: OwnedFd, _wanted: TunOffloads) -> Result<Self, TunError> {
        Err(refuse_inherited())
    }

    /// See [`from_fd`](Self::from_fd).
    ///
    /// # Errors
    ///
    /// Always.
    pub fn handed_over(_fd: OwnedFd) -> Result<Self, TunError> {
        Err(refuse_inherited())
    }

    /// See [`from_fd`](Self::from_fd).
    ///
    /// # Errors
    ///
    /// Always.
    pub fn replace(&self, _fd: OwnedFd) -> Result<(), TunError> {
        Err(refuse_inherited())
    }

    /// The interface's name, which may change at any time.
    ///
    /// # Errors
    ///
    /// ENXIO once the interface was deleted, or, on FreeBSD, somebody waits for its device to be closed to do so.
    pub fn name(&self) -> io::Result<String> {
        self.0.name()
    }

    /// # Errors
    ///
    /// Always: there is no network to follow it to.
    pub fn network(&self) -> io::Result<NetworkNamespace> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The interface's index, which never changes, even if it is renamed.
    pub fn ifindex(&self) -> Option<u32> {
        Some(self.0.ifindex())
    }

    /// The descriptor to wait for: readable when the queue may have a packet.
    pub fn queue_fd(&self, _queue: usize) -> BorrowedFd<'_> {
        self.0.file().as_fd()
    }
}

impl Tun for TunDevice {
    fn queues(&self) -> usize {
        1
    }

    fn read(&self, _queue: usize, buf: &mut [u8]) -> io::Result<usize> {
        family_header::read(buf, |room| Ok(rustix::io::read(self.0.file(), room)?))
    }

    fn write(&self, _queue: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        family_header::write(pieces, libc::AF_INET6, |packet| Ok(rustix::io::writev(self.0.file(), packet)?))
    }

    fn offloads(&self) -> TunOffloads {
        TunOffloads { vnet_hdr: false, tso: false, uso: false }
    }
}

fn refuse_inherited() -> TunError {
    let text = "a TUN device that was opened elsewhere cannot be used on this system";
    TunError::Refused(io::ErrorKind::Unsupported, text.to_owned())
}
