//! Signals that do not interrupt.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::checked;

/// Blocks no signal any more in the calling thread. Safe between fork and exec.
pub(super) fn unblock_all() -> io::Result<()> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is to room for a set.
    checked(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: sigemptyset has just initialised it; a null old set is allowed.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Blocks `signals` in the calling thread and in threads that it starts later; answers their set.
pub(super) fn block(signals: &[libc::c_int]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is to room for a set.
    checked(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: sigemptyset has just initialised it.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: `set` is initialised; a number that is no signal is refused with EINVAL.
        checked(unsafe { libc::sigaddset(&raw mut set, signal) })?;
    }
    // SAFETY: `set` was initialised; a null old set is allowed.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } {
        0 => Ok(set),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
