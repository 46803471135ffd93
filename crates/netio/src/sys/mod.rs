//! Raw system calls that neither std nor rustix has, each behind a safe function.
//!
//! One folder for each system, in it one file per kind of call with its numbers and layouts, whose sizes are asserted.
//! Socket addresses and control messages are built and parsed as plain bytes, in `address` and `control`, without
//! unsafe, so that hostile bytes can be tested. Policy is in the modules above; these only make the calls.

mod address;
pub(crate) mod background;
mod control;
pub(crate) mod heap;
pub(crate) mod inherited;
pub(crate) mod message;
pub(crate) mod option;
mod signal_mask;
#[cfg_attr(any(target_os = "linux", target_os = "android"), path = "linux/mod.rs")]
#[cfg_attr(any(target_os = "freebsd", target_os = "macos"), path = "bsd/mod.rs")]
mod system;

// What is only bytes is tested on every system.
#[cfg(test)]
#[path = "bsd/freebsd/control.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "used on FreeBSD")]
mod freebsd_control;
#[cfg(test)]
#[path = "bsd/macos/control.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "used on macOS")]
mod macos_control;

pub(crate) use system::*;

use std::io;

/// The result of a system call that returns -1 on failure.
fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The result of a system call that returns a count, or -1 on failure.
fn counted(answer: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}
