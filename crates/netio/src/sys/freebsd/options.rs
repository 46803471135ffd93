//! The socket options of FreeBSD.

use std::io;
use std::os::fd::BorrowedFd;

use super::super::option::IntOption;

impl IntOption {
    /// Whether IPv4 datagrams are received with their destination address.
    pub(crate) const DESTINATION_V4: Self = Self::new(libc::IPPROTO_IP, libc::IP_RECVDSTADDR);
    /// Whether IPv4 datagrams are received with the interface.
    pub(crate) const INTERFACE_V4: Self = Self::new(libc::IPPROTO_IP, libc::IP_RECVIF);
    /// Whether IPv6 datagrams are received with their destination address.
    pub(crate) const PKTINFO_V6: Self = Self::new(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO);
    /// A number that ipfw can match.
    pub(crate) const MARK: Self = Self::new(libc::SOL_SOCKET, libc::SO_USER_COOKIE);
}

/// # Errors
///
/// Always: struct tcp_info has other fields here, without the times that are asked for.
pub(crate) fn tcp_info(_fd: BorrowedFd<'_>, _info: &mut [u8; 256]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
