//! close_range(2).

use std::io;

use crate::sys::checked;

/// CLOSE_RANGE_CLOEXEC (linux/close_range.h), which libc does not have for each system.
const MARK: libc::c_uint = 1 << 2;

/// Has all descriptors from 3 on closed when a program is executed. Kernels before 5.11 cannot, and old filters of
/// containers refuse it.
pub(crate) fn close_all_on_exec() -> io::Result<()> {
    // SAFETY: with this flag nothing is closed: the call only marks descriptors.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, MARK) };
    checked(if answer < 0 { -1 } else { 0 }).map(drop)
}
