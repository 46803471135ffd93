//! The control messages of macOS. Tested on every system, so that the constants are its own; on macOS they are compared
//! with libc's.

use std::net::IpAddr;

use crate::datagram::Transmit;
use crate::sys::control::{ControlData, Layout, local_v4, local_v6, pktinfo_v4, pktinfo_v6, space, tos, traffic_class};

const IPPROTO_IP: i32 = 0;
const IPPROTO_IPV6: i32 = 41;
const IP_TOS: i32 = 3;
/// Without an interface its specific destination is the source (bsd/netinet/udp_usrreq.c, udp_check_pktinfo).
const IP_PKTINFO: i32 = 26;
/// The TOS of a received datagram has the option's number for its type (bsd/netinet/ip_input.c, ip_savecontrol).
const IP_RECVTOS: i32 = 27;
// As RFC 3542 has them (bsd/netinet6/in6.h, __APPLE_USE_RFC_3542).
const IPV6_PKTINFO: i32 = 46;
const IPV6_TCLASS: i32 = 36;

#[cfg(target_os = "macos")]
const _: () = {
    assert!(libc::IP_TOS == IP_TOS && libc::IP_PKTINFO == IP_PKTINFO && libc::IP_RECVTOS == IP_RECVTOS);
    assert!(libc::IPV6_PKTINFO == IPV6_PKTINFO && libc::IPV6_TCLASS == IPV6_TCLASS);
    assert!(libc::IPPROTO_IP == IPPROTO_IP && libc::IPPROTO_IPV6 == IPPROTO_IPV6);
    assert!(std::mem::size_of::<libc::cmsghdr>() == 12);
    assert!(std::mem::size_of::<libc::in_pktinfo>() == 12 && std::mem::size_of::<libc::in6_pktinfo>() == 20);
};

/// The largest set to send: IPv6 source and traffic class.
pub(in crate::sys) const SEND_ROOM: usize = space::<Format>(20) + space::<Format>(4);
/// The largest set that is received: IPv6 destination and traffic class.
pub(in crate::sys) const RECV_ROOM: usize = SEND_ROOM;

/// macOS's.
pub(in crate::sys) struct Format;

impl Layout for Format {
    // struct cmsghdr begins with a socklen_t.
    const LENGTH: usize = 4;
    // __DARWIN_ALIGN32 (bsd/sys/socket.h, CMSG_SPACE).
    const ALIGN: usize = 4;

    fn describe(message: &Transmit<'_>, mut add: impl FnMut(i32, i32, &[u8])) {
        match message.from {
            Some(IpAddr::V4(from)) => add(IPPROTO_IP, IP_PKTINFO, &pktinfo_v4(from)),
            Some(IpAddr::V6(from)) => add(IPPROTO_IPV6, IPV6_PKTINFO, &pktinfo_v6(from)),
            None => {}
        }
        if message.tos != 0 {
            // Both are ints (bsd/netinet/in_tclass.c, so_tos_from_control).
            let (level, kind) = if message.to.is_ipv4() { (IPPROTO_IP, IP_TOS) } else { (IPPROTO_IPV6, IPV6_TCLASS) };
            add(level, kind, &i32::from(message.tos).to_ne_bytes());
        }
    }

    fn note(control: &mut ControlData, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (IPPROTO_IP, IP_PKTINFO) => control.local = local_v4(data),
            (IPPROTO_IPV6, IPV6_PKTINFO) => control.local = local_v6(data),
            (IPPROTO_IP, IP_RECVTOS) => control.tos = tos(data),
            (IPPROTO_IPV6, IPV6_TCLASS) => control.tos = traffic_class(data),
            _ => {}
        }
    }
}
