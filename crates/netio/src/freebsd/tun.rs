//! tun(4): one queue, one packet for each call, and before each packet its address family.
//!
//! The steps and their order are those of wireguard-go (tun/tun_freebsd.go).

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::decisions::family_header;
use super::link;
use super::namespace::NetworkNamespace;
use crate::sys::interface::{self, NAME_MAX, PATH, TunFile};
use crate::tun::{HEADER, PIECES_MAX, Tun, TunOffloads, without_header};

/// A TUN interface of the kernel. It is deleted with this value.
pub struct TunDevice {
    /// `None` while it is dropped.
    file: Option<TunFile>,
    ifindex: u32,
    /// It does not go with its file.
    is_lasting: bool,
    /// It can be seen whether somebody is deleting it.
    shows_end: bool,
}

impl TunDevice {
    /// Creates the interface `name`, with one queue and without offloads.
    pub fn create(name: &str, _queues: usize, _wanted: TunOffloads) -> Result<Self, TunError> {
        let bad = |byte: u8| byte.is_ascii_whitespace() || byte == b'/' || byte == 0;
        if name.is_empty() || name.len() > NAME_MAX || name.bytes().any(bad) {
            return Err(TunError::Name(name.to_owned()));
        }
        let file = TunFile::open().map_err(refuse_open)?;
        let made = file.name().map_err(|error| failed("TUNGIFNAME", error))?;
        let ifindex = link::index_of(&made).map_err(|error| failed("finding its index", error))?;
        // From here on an error deletes it.
        let mut device = Self { file: Some(file), ifindex, is_lasting: true, shows_end: false };
        let file = device.file();
        // ENOTTY where it is unknown, in some of 14.
        let is_transient = file.make_transient().is_ok();
        file.with_family_header().map_err(|error| failed("TUNSIFHEAD", error))?;
        file.with_broadcast().map_err(|error| failed("TUNSIFMODE", error))?;
        file.own().map_err(|error| failed("TUNSIFPID", error))?;
        // A kernel without IPv6 has none of it.
        let _ = interface::without_link_local(&made);
        interface::rename(&made, name).map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) => TunError::Exists(name.to_owned()),
            _ => failed("SIOCSIFNAME", error),
        })?;
        device.is_lasting = !is_transient;
        device.shows_end = link::is_alive(name);
        Ok(device)
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
        let name = link::name_of(self.ifindex)?;
        let is_ending = self.shows_end && !link::is_alive(&name);
        if is_ending { Err(io::Error::from_raw_os_error(link::GONE)) } else { Ok(name) }
    }

    /// # Errors
    ///
    /// Always: an interface that was moved to a vnet jail cannot be followed.
    pub fn network(&self) -> io::Result<NetworkNamespace> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The interface's index, which never changes, even if it is renamed.
    pub fn ifindex(&self) -> Option<u32> {
        Some(self.ifindex)
    }

    /// The descriptor to wait for: readable when the queue may have a packet.
    pub fn queue_fd(&self, _queue: usize) -> BorrowedFd<'_> {
        self.file().as_fd()
    }

    fn file(&self) -> &TunFile {
        self.file.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for TunDevice {
    fn drop(&mut self) {
        // If somebody else is deleting it, that ends when the file is closed.
        let name = self.name();
        // The kernel waits for the file to be closed before it deletes the interface.
        self.file = None;
        if let (true, Ok(name)) = (self.is_lasting, name) {
            let _ = interface::destroy(&name);
        }
    }
}

impl Tun for TunDevice {
    fn queues(&self) -> usize {
        1
    }

    fn read(&self, _queue: usize, buf: &mut [u8]) -> io::Result<usize> {
        // The family lies in the last bytes of the virtio header, where it is overwritten: no copy.
        const BEFORE: usize = HEADER - family_header::LEN;
        let room = buf.get_mut(BEFORE..).ok_or(io::ErrorKind::InvalidInput)?;
        let len = match rustix::io::read(self.file(), room) {
            // The interface is not up yet.
            Err(rustix::io::Errno::HOSTDOWN) => return Err(io::ErrorKind::WouldBlock.into()),
            read => BEFORE + read?,
        };
        if len < HEADER {
            return Err(io::ErrorKind::InvalidData.into());
        }
        buf[..HEADER].fill(0);
        Ok(len)
    }

    fn write(&self, _queue: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut stripped = [IoSlice::new(&[]); PIECES_MAX];
        let packet = without_header(pieces, &mut stripped)?;
        let family = family_header::of(packet).ok_or(io::ErrorKind::InvalidInput)?;
        let mut all = [IoSlice::new(&family); PIECES_MAX + 1];
        all[1..=packet.len()].copy_from_slice(packet);
        // 0 while the interface is not up, which drops it (tunwrite): all of it was taken.
        rustix::io::writev(self.file(), &all[..=packet.len()])?;
        Ok(pieces.iter().map(|piece| piece.len()).sum())
    }

    fn offloads(&self) -> TunOffloads {
        TunOffloads { vnet_hdr: false, tso: false, uso: false }
    }
}

/// Why there is no TUN device, in one sentence with what to do.
#[derive(Debug)]
pub enum TunError {
    /// The kernel does not accept this name.
    Name(String),
    /// There is no TUN driver.
    NoDriver,
    /// No permission to open the TUN driver.
    NotOpened,
    /// There is an interface of that name.
    Exists(String),
    /// A descriptor that was opened elsewhere cannot be used.
    Inherited,
    /// This step failed for an unexpected reason.
    Failed(&'static str, io::Error),
}

impl fmt::Display for TunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(
                    f,
                    "{name:?} cannot be an interface name: choose 1 to {NAME_MAX} characters without spaces or '/'"
                )
            }
            Self::NoDriver => {
                write!(
                    f,
                    "{PATH} does not exist: run `kldload if_tuntap`; in a jail, on its host, with a devfs rule for tun*"
                )
            }
            Self::NotOpened => write!(f, "cannot open {PATH}: permission denied; run as root"),
            Self::Exists(name) => write!(
                f,
                "interface {name} exists: choose another name or, if it is left over, delete it with \
                 `ifconfig {name} destroy`"
            ),
            Self::Inherited => f.write_str("a TUN device that was opened elsewhere cannot be used on this system"),
            Self::Failed(step, error) => write!(f, "the TUN device failed at {step}: {error}"),
        }
    }
}

impl std::error::Error for TunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<TunError> for io::Error {
    fn from(refusal: TunError) -> Self {
        let kind = match &refusal {
            TunError::Name(_) => io::ErrorKind::InvalidInput,
            TunError::NoDriver => io::ErrorKind::NotFound,
            TunError::NotOpened => io::ErrorKind::PermissionDenied,
            TunError::Exists(_) => io::ErrorKind::AlreadyExists,
            TunError::Inherited => io::ErrorKind::Unsupported,
            TunError::Failed(_, error) => error.kind(),
        };
        Self::new(kind, refusal)
    }
}

fn refuse_open(error: io::Error) -> TunError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO) => TunError::NoDriver,
        Some(libc::EPERM | libc::EACCES) => TunError::NotOpened,
        _ => failed("open", error),
    }
}

fn failed(step: &'static str, error: io::Error) -> TunError {
    TunError::Failed(step, error)
}
