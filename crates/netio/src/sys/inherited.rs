//! Descriptors that the process inherited.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use super::checked;

/// Only one thread at a time may test and set the flag that marks a descriptor as taken.
static TAKING: Mutex<()> = Mutex::new(());

/// Takes the descriptor `number` that came through exec, once.
pub(crate) fn take(number: RawFd) -> io::Result<OwnedFd> {
    // Standard input, output and error belong to std.
    if number <= libc::STDERR_FILENO {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: F_GETFD only reads the flags of a descriptor, or fails if there is none.
    let flags = checked(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: F_SETFD only changes the flags of a descriptor; this one stays what it is.
    checked(unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open and had no FD_CLOEXEC. Whatever std and this project open
    // has it from birth, so that this one came through exec and nothing in this process owns it;
    // it has the flag from here on, so that it is not taken twice, which TAKING keeps so among
    // threads.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
