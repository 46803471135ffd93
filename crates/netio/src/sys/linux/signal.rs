//! Signals read from a descriptor.

use std::io;
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};

use super::super::{checked, signal_mask};

/// The length in bytes of the record for each signal, which starts with the signal's number as a u32 (signalfd(2)).
pub(crate) const RECORD: usize = size_of::<libc::signalfd_siginfo>();
const _: () = assert!(RECORD == 128);

/// Blocks `signals` in the calling thread and in threads that it starts later, and opens a non-blocking descriptor to
/// read them from.
pub(crate) fn open(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    let set = signal_mask::block(signals)?;
    // SAFETY: `set` was initialised; -1 asks for a new descriptor.
    let fd = checked(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })?;
    // SAFETY: the kernel has just made this descriptor for us, so that nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
