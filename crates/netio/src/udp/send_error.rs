//! Why sending failed. What to do about it, the engine decides.

use std::io;

use crate::system::udp::NO_ROUTE;

/// The cause of a failed send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The route cannot take this GSO batch, only its datagrams one by one: the segment size exceeds the route's MTU,
    /// or the link cannot compute checksums.
    SegmentationRefused,
    /// The source address is no longer ours, or not usable for this destination. Or something else is wrong: only a
    /// send without the source address shows what.
    SourceGone,
    /// A queue is full.
    Busy,
    /// A firewall refused it, possibly only this datagram.
    Denied,
    /// There is no route to the destination, or an ICMP error for an earlier datagram was waiting on the socket, in
    /// which case a second send succeeds. (Linux keeps ICMP errors from a socket that is not connected, as ours are;
    /// other systems do not.)
    Unreachable,
    /// The datagram is too large to be sent at all.
    TooBig,
    /// Anything else.
    Other,
}

/// Classifies a failed send by its error and by whether the first message had a segment size or a source address.
/// EINVAL may mean either: a retry without the source tells them apart, and keeps the GSO batch.
pub fn send_error(error: &io::Error, had_segment: bool, had_source: bool) -> SendError {
    let Some(errno) = error.raw_os_error() else {
        return match error.kind() {
            io::ErrorKind::WouldBlock => SendError::Busy,
            _ => SendError::Other,
        };
    };
    match errno {
        // For an IPv4 source that is not ours the kernel returns EINVAL, or on Linux 6.18
        // ENETUNREACH, as without a route: a retry without the source tells them apart.
        libc::EINVAL | libc::ENETUNREACH | libc::EADDRNOTAVAIL | libc::ENODEV if had_source => SendError::SourceGone,
        // EIO: no checksum offload on the way out, or a transform. EINVAL until Linux 6.13 and
        // EMSGSIZE from 6.14 (235174b): the segment size exceeds the route's MTU.
        libc::EIO | libc::EINVAL | libc::EMSGSIZE if had_segment => SendError::SegmentationRefused,
        libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => SendError::Busy,
        libc::EPERM | libc::EACCES => SendError::Denied,
        libc::EMSGSIZE => SendError::TooBig,
        libc::ECONNREFUSED
        | libc::EHOSTUNREACH
        | libc::EHOSTDOWN
        | libc::ENETUNREACH
        | libc::ENETDOWN
        | libc::ENOPROTOOPT
        | libc::EOPNOTSUPP
        | libc::EPROTO
        | libc::EADDRNOTAVAIL
        | libc::EAFNOSUPPORT
        | libc::ENODEV => SendError::Unreachable,
        _ if NO_ROUTE.contains(&errno) => SendError::Unreachable,
        _ => SendError::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_error_is_classified_by_segment_size_and_source() {
        use SendError::*;
        for (errno, had_segment, had_source, meaning) in [
            (libc::EIO, true, false, SegmentationRefused),
            (libc::EINVAL, true, true, SourceGone),
            (libc::EINVAL, true, false, SegmentationRefused),
            (libc::EIO, true, true, SegmentationRefused),
            (libc::EMSGSIZE, true, false, SegmentationRefused),
            (libc::EIO, false, false, Other),
            (libc::EINVAL, false, true, SourceGone),
            (libc::EADDRNOTAVAIL, true, true, SourceGone),
            (libc::EADDRNOTAVAIL, false, false, Unreachable),
            (libc::EINVAL, false, false, Other),
            (libc::EMSGSIZE, false, true, TooBig),
            (libc::EAGAIN, true, true, Busy),
            (libc::ENOBUFS, false, false, Busy),
            (libc::EPERM, true, true, Denied),
            (libc::ECONNREFUSED, true, true, Unreachable),
            (libc::EHOSTUNREACH, false, false, Unreachable),
            (libc::ENETUNREACH, false, true, SourceGone),
            (libc::ENETUNREACH, true, false, Unreachable),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(send_error(&error, had_segment, had_source), meaning, "{error}");
        }
    }
}
