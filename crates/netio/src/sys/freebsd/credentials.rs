//! The process at the other end of a unix socket, and whose process this is.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::super::checked;

const _: () = assert!(size_of::<libc::xucred>() == 88);

/// SOL_LOCAL of sys/un.h.
const SOL_LOCAL: libc::c_int = 0;

/// LOCAL_PEERCRED: 0 if the kernel does not tell.
pub(crate) fn peer(fd: BorrowedFd<'_>) -> io::Result<libc::pid_t> {
    let mut peer = MaybeUninit::<libc::xucred>::zeroed();
    let mut len = size_of::<libc::xucred>() as libc::socklen_t;
    // SAFETY: the pointers are to an xucred and to its length, which live past the call; the kernel writes no more than
    // that length.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), SOL_LOCAL, libc::LOCAL_PEERCRED, peer.as_mut_ptr().cast(), &raw mut len)
    })?;
    // SAFETY: it was zeroed, and any bytes are an xucred.
    let peer = unsafe { peer.assume_init() };
    // SAFETY: the union is of a process id and a pointer, whose bytes were all written.
    Ok(unsafe { peer.cr_pid__c_anonymous_union.cr_pid })
}

/// setgroups(2), setresgid(2) and setresuid(2), in this order: the last one takes the right to the others.
pub(crate) fn set(uid: libc::uid_t, gid: libc::gid_t) -> io::Result<()> {
    // SAFETY: the pointer is to one group, which lives past the call; the first is the effective one.
    checked(unsafe { libc::setgroups(1, &raw const gid) })?;
    // SAFETY: numbers by value.
    checked(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: numbers by value.
    checked(unsafe { libc::setresuid(uid, uid, uid) })?;
    Ok(())
}
