//! What FreeBSD has of its own.

pub(in crate::sys) mod control;
pub(crate) mod tun;

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys::checked;
use crate::sys::option::IntOption;

/// Milliseconds, as a timer of kqueue(2) counts.
pub(super) const TIMER: u32 = libc::NOTE_MSECONDS;

/// With these, IPv4 datagrams are received with their destination address and the interface.
pub(crate) const DESTINATION_V4: &[IntOption] =
    &[IntOption::new(libc::IPPROTO_IP, libc::IP_RECVDSTADDR), IntOption::new(libc::IPPROTO_IP, libc::IP_RECVIF)];

/// A socket that programs that this process starts do not inherit.
pub(crate) fn socket(domain: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    Ok(socket_with(domain, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sets the cookie of sent datagrams (SO_USER_COOKIE), a number that ipfw can match; 0 for none.
pub(crate) fn set_mark(fd: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    IntOption::new(libc::SOL_SOCKET, libc::SO_USER_COOKIE).set(fd, mark.cast_signed())
}

const _: () = assert!(size_of::<libc::xucred>() == 88);

/// LOCAL_PEERCRED: 0 if the kernel does not tell.
pub(super) fn peer(fd: BorrowedFd<'_>, level: libc::c_int) -> io::Result<libc::pid_t> {
    let mut peer = MaybeUninit::<libc::xucred>::zeroed();
    let mut len = size_of::<libc::xucred>() as libc::socklen_t;
    // SAFETY: the pointers are to an xucred and to its length, which live past the call; the kernel writes no more than
    // that length.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, libc::LOCAL_PEERCRED, peer.as_mut_ptr().cast(), &raw mut len)
    })?;
    // SAFETY: it was zeroed, and any bytes are an xucred.
    let peer = unsafe { peer.assume_init() };
    // SAFETY: the union is of a process id and a pointer, whose bytes were all written.
    Ok(unsafe { peer.cr_pid__c_anonymous_union.cr_pid })
}
