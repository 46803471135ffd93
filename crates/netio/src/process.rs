//! What a daemon needs of its process and std does not offer: signals on a descriptor, descriptors by
//! the number they were inherited under, and an answer to system calls that a filter traps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use crate::sys::{heap, inherited, option, signal, trap};

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

/// The process at the other end of a connected unix socket: to a client the one that listened
/// (SO_PEERCRED, unix(7)). `None` where it cannot be seen from our process namespace.
///
/// # Errors
///
/// Those of getsockopt(2): ENOTSOCK, ENOTCONN.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let pid = option::peer(socket)?;
    Ok(u32::try_from(pid).ok().filter(|pid| *pid > 0))
}

/// Has all threads allocate from one heap, so that the C library opens no file later (glibc looks into /proc when
/// another heap shrinks). To be called before any thread is started.
pub fn share_heap() {
    heap::share();
}

/// Has every system call that a seccomp filter traps (SECCOMP_RET_TRAP) fail with EPERM, in all
/// threads, and counts them: see [`trapped_calls`]. A call that is trapped while its thread blocks
/// SIGSYS ends the process.
///
/// # Errors
///
/// None that is known: a kernel without SIGSYS has no filters either.
pub fn refuse_trapped_calls() -> io::Result<()> {
    trap::answer()
}

/// How many system calls were trapped and refused, and which came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrappedCalls {
    /// How many.
    pub count: u64,
    /// The number of the last one, as this processor's kernel counts them; of no meaning while
    /// there is none.
    pub last: u64,
}

/// The system calls of this process that were trapped since it started.
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
