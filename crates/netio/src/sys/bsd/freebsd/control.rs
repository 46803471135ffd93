//! The control messages of FreeBSD. Tested on every system, so that the constants are its own; on FreeBSD they are
//! compared with libc's.

use std::net::IpAddr;

use crate::datagram::{PacketInfo, Transmit};
use crate::sys::control::{ControlData, Layout, local_v6, pktinfo_v6, space, tos, traffic_class};

const IPPROTO_IP: i32 = 0;
const IPPROTO_IPV6: i32 = 41;
const IP_TOS: i32 = 3;
/// IP_RECVDSTADDR, and IP_SENDSRCADDR to send: an in_addr.
const IP_ADDRESS: i32 = 7;
/// A sockaddr_dl, whose index is at 2. It follows the address (sys/netinet/ip_input.c, ip_savecontrol).
const IP_RECVIF: i32 = 20;
/// The TOS of a received datagram has the option's number for its type (the same).
const IP_RECVTOS: i32 = 68;
const IPV6_PKTINFO: i32 = 46;
const IPV6_TCLASS: i32 = 61;

#[cfg(target_os = "freebsd")]
const _: () = {
    assert!(libc::IP_TOS == IP_TOS && libc::IP_RECVDSTADDR == IP_ADDRESS && libc::IP_SENDSRCADDR == IP_ADDRESS);
    assert!(libc::IP_RECVIF == IP_RECVIF && libc::IP_RECVTOS == IP_RECVTOS);
    assert!(libc::IPV6_PKTINFO == IPV6_PKTINFO && libc::IPV6_TCLASS == IPV6_TCLASS);
    assert!(libc::IPPROTO_IP == IPPROTO_IP && libc::IPPROTO_IPV6 == IPPROTO_IPV6);
    assert!(std::mem::size_of::<libc::cmsghdr>() == 12);
    assert!(std::mem::size_of::<libc::in6_pktinfo>() == 20);
    assert!(std::mem::size_of::<libc::sockaddr_dl>() == SOCKADDR_DL);
};

const SOCKADDR_DL: usize = 54;
/// The most that the kernel writes of an interface: with a long name or link-layer address it is longer than the
/// structure (sys/netinet/ip_input.c, ip_savecontrol, sdlbuf).
const SOCKADDR_DL_MAX: usize = SOCKADDR_DL + 32;
/// The largest set to send: IPv6 source and traffic class.
pub(in crate::sys) const SEND_ROOM: usize = space::<Format>(20) + space::<Format>(4);
/// The largest set that is received: IPv4 destination, interface and TOS.
pub(in crate::sys) const RECV_ROOM: usize = space::<Format>(4) + space::<Format>(SOCKADDR_DL_MAX) + space::<Format>(1);

/// FreeBSD's.
pub(in crate::sys) struct Format;

impl Layout for Format {
    // struct cmsghdr begins with a socklen_t.
    const LENGTH: usize = 4;
    // _ALIGN of amd64 and arm64.
    const ALIGN: usize = 8;

    fn describe(message: &Transmit<'_>, mut add: impl FnMut(i32, i32, &[u8])) {
        match message.from {
            Some(IpAddr::V4(from)) => add(IPPROTO_IP, IP_ADDRESS, &from.octets()),
            Some(IpAddr::V6(from)) => add(IPPROTO_IPV6, IPV6_PKTINFO, &pktinfo_v6(from)),
            None => {}
        }
        match message.tos {
            0 => {}
            // One byte: another length is EINVAL (sys/netinet/udp_usrreq.c, udp_send).
            tos if message.to.is_ipv4() => add(IPPROTO_IP, IP_TOS, &[tos]),
            tos => add(IPPROTO_IPV6, IPV6_TCLASS, &i32::from(tos).to_ne_bytes()),
        }
    }

    fn note(control: &mut ControlData, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (IPPROTO_IP, IP_ADDRESS) => {
                let addr = data.first_chunk::<4>().map(|&ip| IpAddr::from(ip));
                control.local = addr.map(|addr| PacketInfo { addr, ifindex: 0 });
            }
            (IPPROTO_IP, IP_RECVIF) => {
                let index = data.get(2..).and_then(|data| data.first_chunk());
                if let (Some(local), Some(index)) = (&mut control.local, index) {
                    local.ifindex = u16::from_ne_bytes(*index).into();
                }
            }
            (IPPROTO_IPV6, IPV6_PKTINFO) => control.local = local_v6(data),
            (IPPROTO_IP, IP_RECVTOS) => control.tos = tos(data),
            (IPPROTO_IPV6, IPV6_TCLASS) => control.tos = traffic_class(data),
            _ => {}
        }
    }
}
