//! The process at the other end of a unix socket, and whose process this is.

use std::io;
use std::os::fd::BorrowedFd;

use super::super::checked;
use super::os;

/// SOL_LOCAL of sys/un.h.
const SOL_LOCAL: libc::c_int = 0;

/// The process at the other end; 0 if the kernel does not tell.
pub(crate) fn peer(fd: BorrowedFd<'_>) -> io::Result<libc::pid_t> {
    os::peer(fd, SOL_LOCAL)
}

/// setgroups(2), setgid(2) and setuid(2), in this order: the last one takes the right to the others. Of a process of
/// root's they set the real, the effective and the saved one (sys/kern/kern_prot.c; XNU: bsd/kern/kern_prot.c).
pub(crate) fn set(uid: libc::uid_t, gid: libc::gid_t) -> io::Result<()> {
    // SAFETY: the pointer is to one group, which lives past the call; the first is the effective one.
    checked(unsafe { libc::setgroups(1, &raw const gid) })?;
    // SAFETY: numbers by value.
    checked(unsafe { libc::setgid(gid) })?;
    // SAFETY: numbers by value.
    checked(unsafe { libc::setuid(uid) })?;
    Ok(())
}
