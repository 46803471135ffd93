//! What a daemon needs of its process and std does not offer: signals on a descriptor, and
//! descriptors by the number they were inherited under.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use crate::sys::{inherited, signal};

/// Takes the descriptor `number` that this process was started with (`WG_TUN_FD`, `WG_UAPI_FD`),
/// once; it will not pass to processes that this one starts.
///
/// # Errors
///
/// When no such descriptor is open (EBADF), when it is standard input, output or error
/// (InvalidInput), and when it is close-on-exec (PermissionDenied), which means that it was taken
/// before or that this process opened it itself.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    inherited::take(number)
}

/// A request from outside to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// SIGINT and SIGTERM, taken from a descriptor rather than by interruption.
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Takes both signals over. To be called before any thread is started: a thread that exists
    /// already would still be interrupted, and the process ended, by them. Processes that this
    /// one starts inherit the signals blocked.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: signal::open(&[libc::SIGINT, libc::SIGTERM])? })
    }

    /// The next signal that came; `None` when there is none yet.
    pub fn take(&self) -> Option<Signal> {
        let mut record = [0u8; signal::RECORD];
        let count = rustix::io::read(&self.fd, &mut record).ok()?;
        let number = u32::from_ne_bytes(*record[..count].first_chunk()?);
        match number.cast_signed() {
            libc::SIGINT => Some(Signal::Interrupt),
            libc::SIGTERM => Some(Signal::Terminate),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn a_descriptor_of_our_own_is_not_an_inherited_one() {
        let ours = std::fs::File::open("/dev/null").unwrap();
        let error = take_inherited(ours.as_raw_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_descriptor_that_came_through_exec_is_taken_once() {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let number = file.into_raw_fd();
        let taken = take_inherited(number).unwrap();
        assert_eq!(taken.as_raw_fd(), number);
        assert!(take_inherited(number).is_err());
    }

    #[test]
    fn the_standard_streams_and_closed_descriptors_are_refused() {
        for number in [-1, 0, 1, 2] {
            let error = take_inherited(number).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let error = take_inherited(RawFd::MAX).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
