//! What macOS has of its own. Files are those of XNU.

pub(in crate::sys) mod control;
pub(crate) mod utun;

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, Protocol, SocketType};

use crate::sys::checked;
use crate::sys::option::IntOption;

// What bsd_decisions/route_message.rs reads by its offsets (bsd/net/route.h, bsd/net/if.h).
const _: () = {
    assert!(size_of::<libc::rt_msghdr>() == 92 && offset_of!(libc::rt_msghdr, rtm_index) == 4);
    assert!(offset_of!(libc::rt_msghdr, rtm_addrs) == 12 && offset_of!(libc::rt_msghdr, rtm_pid) == 16);
    assert!(offset_of!(libc::rt_msghdr, rtm_seq) == 20);
    assert!(offset_of!(libc::if_msghdr, ifm_index) == 12 && offset_of!(libc::ifa_msghdr, ifam_index) == 12);
};

/// A timer of kqueue(2) counts milliseconds unless it is told otherwise, and so also while the machine sleeps
/// (bsd/sys/event.h).
pub(super) const TIMER: u32 = libc::NOTE_MACH_CONTINUOUS_TIME;

/// With these, IPv4 datagrams are received with their destination address and the interface.
pub(crate) const DESTINATION_V4: &[IntOption] = &[IntOption::new(libc::IPPROTO_IP, libc::IP_PKTINFO)];

/// A socket that programs that this process starts do not inherit.
pub(crate) fn socket(domain: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    socket_of(domain, kind, None)
}

fn socket_of(domain: AddressFamily, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(domain, kind, protocol)?;
    // There is no SOCK_CLOEXEC.
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// Sockets have no mark here: only 0, none, is accepted.
pub(crate) fn set_mark(_fd: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    if mark == 0 { Ok(()) } else { Err(Errno::OPNOTSUPP.into()) }
}

/// LOCAL_PEERPID: the process that used the other end last.
pub(super) fn peer(fd: BorrowedFd<'_>, level: libc::c_int) -> io::Result<libc::pid_t> {
    let mut pid: libc::pid_t = 0;
    let mut len = size_of::<libc::pid_t>() as libc::socklen_t;
    // SAFETY: the pointers are to a process id and to its length, which live past the call; the kernel writes no more
    // than that length.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, libc::LOCAL_PEERPID, (&raw mut pid).cast(), &raw mut len)
    })?;
    Ok(pid)
}

/// The time of a clock in nanoseconds. rustix has fewer clocks here.
pub(crate) fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to room for a time, which lives past the call. It fails for unknown clocks alone.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // tv_nsec is below a second, and the clocks that are asked for are never negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
