//! The socket options that FreeBSD and macOS share.

use std::io;
use std::os::fd::BorrowedFd;

use super::super::option::IntOption;

impl IntOption {
    /// Whether IPv6 datagrams are received with their destination address.
    pub(crate) const PKTINFO_V6: Self = Self::new(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO);
}

/// # Errors
///
/// Always: what TCP counts is laid out in other ways here, without the times that are asked for.
pub(crate) fn tcp_info(_fd: BorrowedFd<'_>, _info: &mut [u8; 256]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
