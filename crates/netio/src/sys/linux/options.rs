//! The socket options of Linux; the process at the other end of a unix socket; what TCP counts.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::super::checked;
use super::super::option::IntOption;

impl IntOption {
    /// Whether IPv4 datagrams are received with their destination address.
    pub(crate) const PKTINFO_V4: Self = Self::new(libc::IPPROTO_IP, libc::IP_PKTINFO);
    /// Whether IPv6 datagrams are received with their destination address.
    pub(crate) const PKTINFO_V6: Self = Self::new(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO);
    /// Whether datagrams of one flow may be received as one message.
    pub(crate) const GRO: Self = Self::new(libc::SOL_UDP, libc::UDP_GRO);
    /// The segment size of messages without one of their own.
    pub(crate) const SEGMENT: Self = Self::new(libc::SOL_UDP, libc::UDP_SEGMENT);
    /// Whether the kernel checks all of a netlink request.
    pub(crate) const STRICT_CHECK: Self = Self::new(libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK);
    /// The firewall mark of sent datagrams.
    pub(crate) const MARK: Self = Self::new(libc::SOL_SOCKET, libc::SO_MARK);

    /// Reads the option of the socket `fd`.
    pub(crate) fn get(self, fd: BorrowedFd<'_>) -> io::Result<i32> {
        let mut value = 0i32;
        let mut len = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the pointers are to an int and to its length, which live past the call; the
        // kernel writes no more than that length.
        checked(unsafe {
            libc::getsockopt(fd.as_raw_fd(), self.level, self.name, (&raw mut value).cast(), &raw mut len)
        })?;
        Ok(value)
    }
}

/// The process at the other end of a connected unix socket; 0 if our process namespace does not contain it, which
/// rustix's type for process ids cannot express.
pub(crate) fn peer(fd: BorrowedFd<'_>) -> io::Result<libc::pid_t> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to a ucred and to its length, which live past the call; the kernel writes no more than
    // that length, and any bytes are a ucred.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len)
    })?;
    Ok(peer.pid)
}

/// What TCP counts of the connection `fd` (struct tcp_info, linux/tcp.h), as far as this kernel has it: how many bytes
/// of `info` it wrote.
pub(crate) fn tcp_info(fd: BorrowedFd<'_>, info: &mut [u8; 256]) -> io::Result<usize> {
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the pointers are to the bytes and to their number, which live past the call; the kernel writes no more
    // than that many.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    })?;
    Ok(len as usize)
}
