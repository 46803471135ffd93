//! What a daemon needs from its process beyond std: signals on a descriptor, inherited descriptors by number, and a
//! handler for system calls that a seccomp filter traps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use crate::sys::{heap, inherited, option, signal, trap};

/// Takes the descriptor `number` that this process inherited (`WG_TUN_FD`, `WG_UAPI_FD`), once. Child processes do not
/// inherit it.
///
/// # Errors
///
/// When no such descriptor is open (EBADF), when it is standard input, output or error
/// (InvalidInput), and when it is close-on-exec (PermissionDenied), which means that it was taken
/// before or that this process opened it itself.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    inherited::take(number)
}

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// SIGINT and SIGTERM, read from a descriptor.
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks both signals and opens the descriptor. Call it before any thread is started: in an existing thread they
    /// would still end the process. Child processes inherit the blocked signals.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: signal::open(&[libc::SIGINT, libc::SIGTERM])? })
    }

    /// The next signal; `None` when there is none yet.
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

/// The process at the other end of a connected unix socket; for a client, the process that called listen(2)
/// (SO_PEERCRED, unix(7)). `None` if our process namespace does not contain it.
///
/// # Errors
///
/// Those of getsockopt(2): ENOTSOCK, ENOTCONN.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let pid = option::peer(socket)?;
    Ok(u32::try_from(pid).ok().filter(|pid| *pid > 0))
}

/// Makes all threads allocate from one heap, so that the C library opens no file later (glibc reads /proc when
/// another heap shrinks). Call it before any thread is started.
pub fn share_heap() {
    heap::share();
}

/// Makes every system call that a seccomp filter traps (SECCOMP_RET_TRAP) fail with EPERM, in all threads, and counts
/// it: see [`trapped_calls`]. A trapped call in a thread that blocks SIGSYS ends the process.
///
/// # Errors
///
/// sigaction(2) failed.
pub fn refuse_trapped_calls() -> io::Result<()> {
    trap::install_handler()
}

/// How many system calls were trapped and refused, and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrappedCalls {
    /// How many.
    pub count: u64,
    /// The number of the last one, for this architecture; meaningless while `count` is 0.
    pub last: u64,
}

/// The system calls that were trapped since this process started.
pub fn trapped_calls() -> TrappedCalls {
    let (count, last) = trap::trapped();
    TrappedCalls { count, last }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn the_process_at_the_other_end_of_a_socket_is_known() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer(one.as_fd()).unwrap(), Some(std::process::id()));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer(null.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }

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
