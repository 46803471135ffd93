//! What a daemon needs from its process beyond std: signals on a descriptor, inherited descriptors by number, and a
//! handler for system calls that a seccomp filter traps.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use crate::sys::{heap, inherited};
pub use crate::system::process::*;

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

/// Makes all threads allocate from one heap, so that the C library opens no file later (glibc reads /proc when
/// another heap shrinks). Call it before any thread is started.
pub fn share_heap() {
    heap::share();
}

/// Makes every allocation of `bytes` and more a mapping of its own, so that zeroed memory is provided page by page as it
/// is touched, and goes back when it is freed. Call it before any thread is started.
pub fn map_allocations_from(bytes: i32) {
    heap::map_from(bytes);
}

/// How many system calls were trapped and refused, and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrappedCalls {
    /// How many.
    pub count: u64,
    /// The number of the last one, for this architecture; meaningless while `count` is 0.
    pub last: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

    #[test]
    fn the_process_at_the_other_end_of_a_socket_is_known() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer(one.as_fd()).unwrap(), Some(std::process::id()));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer(null.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }

    #[test]
    fn the_end_of_a_child_is_readable_and_stays_so_until_it_is_waited_for() {
        use std::process::{Command, Stdio};
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let end = end_of(&child).unwrap();
        let readable = || {
            let mut ready = [rustix::event::PollFd::new(&end, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, Some(&rustix::event::Timespec::default())).unwrap() > 0
        };
        assert!(!readable());
        drop(child.stdin.take());
        crate::wait::wait(&[end.as_fd()]).unwrap();
        assert!(readable());
        assert!(child.wait().unwrap().success());
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
