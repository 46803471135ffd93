//! The raw system calls that neither std nor rustix offers, each behind a safe function.
//!
//! One file per kind of call. Layouts that the kernel reads are built and taken apart as plain
//! bytes in [`address`] and [`control`], without unsafe, so that hostile bytes can be tried on
//! them; [`message`], [`option`], [`steering`], [`interface`], [`signal`], [`trap`], [`heap`] and [`inherited`] hold the
//! calls themselves. Nothing here decides anything: that is for the modules above.

mod address;
#[cfg(feature = "attempts")]
pub(crate) mod attempt;
mod control;
pub(crate) mod heap;
pub(crate) mod inherited;
pub(crate) mod interface;
pub(crate) mod message;
pub(crate) mod option;
pub(crate) mod signal;
pub(crate) mod steering;
pub(crate) mod trap;

use std::io;

/// What a system call that answers -1 on failure answered.
fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// What a system call that answers a count, or -1 on failure, answered.
fn counted(answer: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}
