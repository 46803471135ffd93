//! Socket options with an int value that rustix does not have. Which there are, each system's `options` says.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::checked;

/// A socket option whose value is an int.
#[derive(Clone, Copy)]
pub(crate) struct IntOption {
    pub(super) level: libc::c_int,
    pub(super) name: libc::c_int,
}

impl IntOption {
    pub(super) const fn new(level: libc::c_int, name: libc::c_int) -> Self {
        Self { level, name }
    }

    /// Sets the option of the socket `fd`.
    pub(crate) fn set(self, fd: BorrowedFd<'_>, value: i32) -> io::Result<()> {
        // SAFETY: the pointer is to an int that lives past the call, and the length is an int's.
        checked(unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                self.level,
                self.name,
                (&raw const value).cast(),
                size_of::<i32>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }
}
