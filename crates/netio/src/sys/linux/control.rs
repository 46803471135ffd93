//! The control messages of Linux: what is sent and received with a datagram.

use std::mem::{align_of, offset_of, size_of};
use std::net::IpAddr;

use super::super::control::{
    ControlData, Layout, int, local_v4, local_v6, pktinfo_v4, pktinfo_v6, space, tos, traffic_class,
};
use crate::datagram::Transmit;

const WORD: usize = size_of::<usize>();

const _: () = {
    // CMSG_ALIGN of the kernel rounds to a long, and cmsg_len is a size_t (include/linux/socket.h).
    assert!(size_of::<libc::cmsghdr>() == WORD + 8);
    assert!(offset_of!(libc::cmsghdr, cmsg_len) == 0);
    assert!(offset_of!(libc::cmsghdr, cmsg_level) == WORD);
    assert!(offset_of!(libc::cmsghdr, cmsg_type) == WORD + 4);
    assert!(size_of::<libc::in_pktinfo>() == 12);
    assert!(offset_of!(libc::in_pktinfo, ipi_spec_dst) == 4);
    assert!(offset_of!(libc::in_pktinfo, ipi_addr) == 8);
    assert!(size_of::<libc::in6_pktinfo>() == 20);
    assert!(offset_of!(libc::in6_pktinfo, ipi6_addr) == 0);
    assert!(align_of::<libc::cmsghdr>() <= 8);
};

/// The size of the largest set of entries to send: IPv6 source, traffic class, segment size.
pub(in crate::sys) const SEND_ROOM: usize = space::<Format>(20) + space::<Format>(4) + space::<Format>(2);
/// The size of the largest set of received entries: IPv6 destination, traffic class, segment size.
pub(in crate::sys) const RECV_ROOM: usize = space::<Format>(20) + space::<Format>(4) + space::<Format>(4);

/// Linux's.
pub(in crate::sys) struct Format;

impl Layout for Format {
    const LENGTH: usize = WORD;
    const ALIGN: usize = WORD;

    fn describe(message: &Transmit<'_>, mut add: impl FnMut(i32, i32, &[u8])) {
        match message.from {
            Some(IpAddr::V4(from)) => add(libc::IPPROTO_IP, libc::IP_PKTINFO, &pktinfo_v4(from)),
            Some(IpAddr::V6(from)) => add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &pktinfo_v6(from)),
            None => {}
        }
        if message.tos != 0 {
            let (level, kind) = match message.to.is_ipv4() {
                true => (libc::IPPROTO_IP, libc::IP_TOS),
                false => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            add(level, kind, &i32::from(message.tos).to_ne_bytes());
        }
        if let Some(segment) = message.segment {
            add(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
    }

    fn note(control: &mut ControlData, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => control.local = local_v4(data),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => control.local = local_v6(data),
            // One byte for IP_TOS and an int for IPV6_TCLASS (ip_cmsg_recv_tos, ip6_datagram_recv_common_ctl).
            (libc::IPPROTO_IP, libc::IP_TOS) => control.tos = tos(data),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => control.tos = traffic_class(data),
            (libc::SOL_UDP, libc::UDP_GRO) => control.segment = int(data).and_then(|int| usize::try_from(int).ok()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::control::SendControl;
    use super::*;

    #[test]
    fn the_largest_set_fills_the_outgoing_room_exactly() {
        let to = "[2001:db8::1]:1".parse().unwrap();
        let from = Some("2001:db8::2".parse().unwrap());
        let message = Transmit { to, from, tos: 0x88, segment: Some(1400), contents: &[] };
        assert_eq!(SendControl::new(&message).len(), SEND_ROOM);
    }

    #[test]
    fn a_segment_size_is_an_int_that_is_not_below_zero() {
        for (data, segment) in [(&1400i32.to_ne_bytes()[..], Some(1400)), (&(-1i32).to_ne_bytes(), None), (&[], None)] {
            let mut control = ControlData::default();
            Format::note(&mut control, libc::SOL_UDP, libc::UDP_GRO, data);
            assert_eq!(control.segment, segment, "{data:?}");
        }
    }
}
