//! tun(4): one queue, one packet for each call, and before each packet its address family.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::decisions::family_header;
pub use super::decisions::interface::TunError;
use super::decisions::interface::{Calls, Interface};
use super::namespace::NetworkNamespace;
use crate::sys::interface::{self, TunFile};
use crate::tun::{Tun, TunOffloads};

/// The calls, made.
pub(super) struct Kernel;

impl Calls for Kernel {
    type File = TunFile;

    fn open(&self) -> io::Result<TunFile> {
        TunFile::open()
    }

    fn made_name(&self, file: &TunFile) -> io::Result<String> {
        file.name()
    }

    fn make_transient(&self, file: &TunFile) -> io::Result<()> {
        file.make_transient()
    }

    fn with_family_header(&self, file: &TunFile) -> io::Result<()> {
        file.with_family_header()
    }

    fn with_broadcast(&self, file: &TunFile) -> io::Result<()> {
        file.with_broadcast()
    }

    fn own(&self, file: &TunFile) -> io::Result<()> {
        file.own()
    }

    fn without_link_local(&self, name: &str) -> io::Result<()> {
        interface::without_link_local(name)
    }

    fn rename(&self, name: &str, to: &str) -> io::Result<()> {
        interface::rename(name, to)
    }

    fn index_of(&self, name: &str) -> io::Result<u32> {
        interface::index_of(name)
    }

    fn name_of(&self, ifindex: u32) -> io::Result<String> {
        interface::name_of(ifindex)
    }

    fn groups(&self, name: &str, names: &mut [u8]) -> io::Result<()> {
        interface::groups(name, names)
    }

    fn destroy(&self, name: &str) -> io::Result<()> {
        interface::destroy(name)
    }
}

/// A TUN interface of the kernel. It is deleted with this value.
pub struct TunDevice(Interface<Kernel>);

impl TunDevice {
    /// Creates the interface `name`, with one queue and without offloads.
    pub fn create(name: &str, _queues: usize, _wanted: TunOffloads) -> Result<Self, TunError> {
        Interface::create(Kernel, name).map(Self)
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
        Err(TunError::Inherited)
    }

    /// See [`from_fd`](Self::from_fd).
    ///
    /// # Errors
    ///
    /// Always.
    pub fn handed_over(_fd: OwnedFd) -> Result<Self, TunError> {
        Err(TunError::Inherited)
    }

    /// See [`from_fd`](Self::from_fd).
    ///
    /// # Errors
    ///
    /// Always.
    pub fn replace(&self, _fd: OwnedFd) -> Result<(), TunError> {
        Err(TunError::Inherited)
    }

    /// The interface's name, which may change at any time.
    ///
    /// # Errors
    ///
    /// ENXIO once the interface was deleted, or somebody waits for its device to be closed to do so.
    pub fn name(&self) -> io::Result<String> {
        self.0.name()
    }

    /// # Errors
    ///
    /// Always: an interface that was moved to a vnet jail cannot be followed.
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
        family_header::write(pieces, |packet| Ok(rustix::io::writev(self.0.file(), packet)?))
    }

    fn offloads(&self) -> TunOffloads {
        TunOffloads { vnet_hdr: false, tso: false, uso: false }
    }
}
