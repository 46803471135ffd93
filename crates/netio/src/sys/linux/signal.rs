//! Signals read from a descriptor.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use super::super::checked;

/// The length in bytes of the record for each signal, which starts with the signal's number as a u32 (signalfd(2)).
pub(crate) const RECORD: usize = size_of::<libc::signalfd_siginfo>();
const _: () = assert!(RECORD == 128);

/// Blocks `signals` in the calling thread and in threads that it starts later, and opens a non-blocking descriptor to
/// read them from.
pub(crate) fn open(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    let set = set(signals)?;
    // SAFETY: `set` was initialised; a null old set is allowed.
    let answer = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
    if answer != 0 {
        return Err(io::Error::from_raw_os_error(answer));
    }
    // SAFETY: `set` was initialised; -1 asks for a new descriptor.
    let fd = checked(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })?;
    // SAFETY: the kernel has just made this descriptor for us, so that nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set(signals: &[libc::c_int]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is to room for a set.
    checked(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: sigemptyset has just initialised it.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: `set` is initialised; a number that is no signal is refused with EINVAL.
        checked(unsafe { libc::sigaddset(&raw mut set, signal) })?;
    }
    Ok(set)
}
