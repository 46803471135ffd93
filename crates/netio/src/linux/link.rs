//! rtnetlink(7): requests, each with a socket of its own, and the monitor.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linerate_netlink::rtnetlink::*;
use linerate_netlink::{
    AF_INET, AF_INET6, AF_UNSPEC, Attributes, Message, RECEIVE_BUFFER, address_of, attribute, attributes, messages,
    u16_at, u32_at,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use super::netlink::{NetlinkSocket, dump, request};
pub(super) use crate::link::LinkEvent;

/// Of IFLA_INET6_ADDR_GEN_MODE (include/uapi/linux/if_link.h).
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;

/// The error for an interface that does not exist.
pub(crate) const GONE: i32 = libc::ENODEV;

/// The MTU of an interface, in bytes.
///
/// # Errors
///
/// ENODEV when it is gone.
pub fn mtu(ifindex: u32) -> io::Result<u32> {
    Ok(by_index(ifindex)?.mtu)
}

/// Sets the MTU of an interface, in bytes.
pub fn set_mtu(ifindex: u32, mtu: u32) -> io::Result<()> {
    set(ifindex, IFLA_MTU, mtu)
}

/// Limits the number of segments of the GSO packets that an interface hands out, so that each fits in one GSO batch.
pub fn set_gso_max_segments(ifindex: u32, segments: u32) -> io::Result<()> {
    set(ifindex, IFLA_GSO_MAX_SEGS, segments)
}

/// Sets how many packets may wait in an interface's transmit queue.
pub fn set_tx_queue_len(ifindex: u32, packets: u32) -> io::Result<()> {
    set(ifindex, IFLA_TXQLEN, packets)
}

/// Has the kernel make no link-local address when the interface comes up.
///
/// # Errors
/// Among others when the interface has no IPv6.
pub fn set_no_link_local_address(ifindex: u32) -> io::Result<()> {
    let mode = Attributes::default().with(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
    let families = Attributes::default().with_nest(u16::from(AF_INET6), mode);
    let attributes = Attributes::default().with_nest(IFLA_AF_SPEC, families);
    request(RTM_NEWLINK, &ifinfomsg(ifindex), attributes).map(drop)
}

/// What whoever may attach to a TUN interface of several queues can change of it for good, as far as the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TunState {
    /// ARPHRD_.
    pub(super) kind: u16,
    pub(super) owner: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) persistent: bool,
    /// How many files are attached, those included whose queue is switched off.
    pub(super) files: u32,
}

/// The state of a TUN interface of several queues, at one moment. `None` if the kernel does not tell.
///
/// # Errors
///
/// ENODEV when it is gone.
pub(super) fn tun_state(ifindex: u32) -> io::Result<Option<TunState>> {
    let attributes = Attributes::default().with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    let reply = request(RTM_GETLINK, &ifinfomsg(ifindex), attributes)?;
    let state = || {
        let tun = attribute(attribute(reply.get(IFINFOMSG..)?, IFLA_LINKINFO)?, IFLA_INFO_DATA)?;
        let number = |kind| u32_at(attribute(tun, kind)?, 0);
        Some(TunState {
            kind: u16_at(&reply, 2)?,
            owner: number(IFLA_TUN_OWNER),
            group: number(IFLA_TUN_GROUP),
            persistent: *attribute(tun, IFLA_TUN_PERSIST)?.first()? != 0,
            files: number(IFLA_TUN_NUM_QUEUES)?.checked_add(number(IFLA_TUN_NUM_DISABLED_QUEUES)?)?,
        })
    };
    Ok(state())
}

/// Deletes an interface.
pub(super) fn delete(ifindex: u32) -> io::Result<()> {
    request(RTM_DELLINK, &ifinfomsg(ifindex), Attributes::default()).map(drop)
}

/// Whether an interface is up, as the user set it (IFF_UP).
///
/// # Errors
///
/// ENODEV when it is gone.
pub fn is_up(ifindex: u32) -> io::Result<bool> {
    Ok(by_index(ifindex)?.up)
}

/// The index of the interface `name`.
///
/// # Errors
///
/// ENODEV when there is none.
pub fn index_of(name: &str) -> io::Result<u32> {
    Ok(described(0, Attributes::default().with_text(IFLA_IFNAME, name))?.ifindex)
}

/// The name of an interface.
///
/// # Errors
///
/// ENODEV when it is gone.
pub fn name_of(ifindex: u32) -> io::Result<String> {
    Ok(by_index(ifindex)?.name)
}

/// The index of the interface that a zone names, without netlink, which an app may not use.
///
/// # Errors
///
/// ENODEV when there is none.
pub fn zone_index(name: &str) -> io::Result<u32> {
    Ok(netdevice::name_to_index(any_socket()?, name)?)
}

/// The name of a zone by the index of its interface, without netlink.
///
/// # Errors
///
/// ENODEV when it is gone.
pub fn zone_name(ifindex: u32) -> io::Result<String> {
    Ok(netdevice::index_to_name(any_socket()?, ifindex)?)
}

/// A socket for SIOCGIFINDEX and SIOCGIFNAME, of a kind that a daemon may open after it has dropped its privileges.
fn any_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Whether `address` is one of this host's, so that datagrams may be sent from it.
pub fn is_local_address(address: IpAddr) -> io::Result<bool> {
    match address {
        IpAddr::V4(_) => {
            match request(RTM_GETROUTE, &rtmsg(address, 32), Attributes::default().with_address(RTA_DST, address)) {
                Ok(route) => Ok(route.get(7) == Some(&RTN_LOCAL)),
                Err(error) if is_no_route(&error) => Ok(false),
                Err(error) => Err(error),
            }
        }
        // A route lookup would also accept an address that is still in duplicate address detection.
        IpAddr::V6(_) => Ok(addresses_v6()?.contains(&address)),
    }
}

/// The IPv6 addresses of this host that datagrams may be sent from.
pub fn addresses_v6() -> io::Result<HashSet<IpAddr>> {
    let list = dump(RTM_GETADDR, &ifaddrmsg(AF_INET6), Attributes::default())?;
    Ok(list.iter().filter_map(|(_, payload)| usable_address(payload)).collect())
}

/// The interface that the kernel would use to send to `to`, from the address `from` (unspecified: any) with the
/// firewall mark `mark` (0: none). A link-local `to` has no scope here; the kernel guesses.
///
/// # Errors
///
/// When there is no route (ENETUNREACH and the like), or `from` is not this host's.
pub fn egress(to: IpAddr, from: IpAddr, mark: u32) -> io::Result<u32> {
    if to.is_ipv4() != from.is_ipv4() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let full = if to.is_ipv4() { 32 } else { 128 };
    let mut fixed = rtmsg(to, full);
    let mut attributes = Attributes::default().with_address(RTA_DST, to);
    if !from.is_unspecified() {
        // The kernel checks an IPv4 source itself and accepts any IPv6 source.
        if from.is_ipv6() && !is_local_address(from)? {
            return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        }
        fixed[2] = full;
        attributes = attributes.with_address(RTA_SRC, from);
    }
    if mark != 0 {
        attributes = attributes.with_u32(RTA_MARK, mark);
    }
    let route = request(RTM_GETROUTE, &fixed, attributes)?;
    egress_ifindex(&route).ok_or_else(|| io::Error::from_raw_os_error(libc::ENETUNREACH))
}

/// The routes over an interface that have an MTU of their own, of every table and both families:
/// destination, prefix length in bits, MTU in bytes.
pub fn route_mtus(ifindex: u32) -> io::Result<Vec<(IpAddr, u8, u32)>> {
    let mut found = Vec::new();
    for any in [IpAddr::V4([0; 4].into()), IpAddr::V6([0; 16].into())] {
        // Filtered by the kernel: a router may have a million routes over other interfaces.
        let over = Attributes::default().with_u32(RTA_OIF, ifindex);
        let routes = match dump(RTM_GETROUTE, &rtmsg(any, 0), over) {
            // A kernel without the family refuses, or sends the routes of another family.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => continue,
            routes => routes?,
        };
        let routes = routes.iter().filter(|(kind, _)| *kind == RTM_NEWROUTE);
        found.extend(routes.filter_map(|(_, payload)| route_mtu(payload, any, ifindex)));
    }
    Ok(found)
}

/// Receives changes of links, addresses, routes and rules of both families, from its creation on. Its descriptor is
/// readable when there are any.
pub struct Monitor {
    socket: NetlinkSocket,
    buf: Vec<u8>,
    /// The part of `buf` that has not been read yet.
    unread: std::ops::Range<usize>,
}

impl Monitor {
    /// Starts to listen.
    pub fn new() -> io::Result<Self> {
        // RTNLGRP_LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE.
        let groups = [1, 5, 7, 8, 9, 11, 19].iter().fold(0, |mask, group| mask | 1 << (group - 1));
        let socket = NetlinkSocket::open(groups, false)?;
        Ok(Self { socket, buf: vec![0; RECEIVE_BUFFER], unread: 0..0 })
    }

    /// Also notices that a TUN interface of this process is about to be deleted: nothing to do here, where it is
    /// deleted at once.
    pub fn watch(&mut self, _ifindex: u32) -> io::Result<()> {
        Ok(())
    }

    /// The next event; `None` when there is none yet. Not an iterator: more may follow `None`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<LinkEvent> {
        loop {
            while let Some(event) = self.take_buffered() {
                if let Some(event) = event {
                    return Some(event);
                }
            }
            match self.socket.receive(&mut self.buf) {
                Ok(len) => self.unread = 0..len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => {
                    self.empty_queue();
                    return Some(LinkEvent::Lost);
                }
            }
        }
    }

    /// Discards queued messages. After an overrun the kernel silently drops further messages until the queue has been
    /// empty (netlink_overrun, NETLINK_S_CONGESTED): a state that is read before then could miss a change.
    fn empty_queue(&mut self) {
        loop {
            match self.socket.receive(&mut self.buf) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => return,
            }
        }
    }

    /// Takes the next buffered message: `Some(None)` for one that is no event.
    fn take_buffered(&mut self) -> Option<Option<LinkEvent>> {
        let mut messages = messages(&self.buf[self.unread.clone()]);
        let event = messages.next().map(|message| link_event(&message));
        self.unread.start = self.unread.end - if event.is_some() { messages.rest().len() } else { 0 };
        event
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a request for a link returns.
struct Description {
    ifindex: u32,
    up: bool,
    mtu: u32,
    name: String,
}

fn by_index(ifindex: u32) -> io::Result<Description> {
    described(ifindex, Attributes::default())
}

fn described(ifindex: u32, attributes: Attributes) -> io::Result<Description> {
    let attributes = attributes.with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    describe(&request(RTM_GETLINK, &ifinfomsg(ifindex), attributes)?)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

fn set(ifindex: u32, attribute: u16, value: u32) -> io::Result<()> {
    request(RTM_NEWLINK, &ifinfomsg(ifindex), Attributes::default().with_u32(attribute, value)).map(drop)
}

fn describe(payload: &[u8]) -> Option<Description> {
    let ifindex = u32_at(payload, 4)?;
    let up = u32_at(payload, 8)? & IFF_UP != 0;
    let mut description = Description { ifindex, up, mtu: 0, name: String::new() };
    for (kind, data) in attributes(payload.get(IFINFOMSG..)?) {
        match kind {
            IFLA_MTU => description.mtu = u32_at(data, 0)?,
            IFLA_IFNAME => {
                let name = data.strip_suffix(&[0]).unwrap_or(data);
                description.name = String::from_utf8_lossy(name).into_owned();
            }
            _ => {}
        }
    }
    Some(description)
}

pub(super) fn link_event(message: &Message<'_>) -> Option<LinkEvent> {
    let payload = message.payload;
    match message.kind {
        // A message with family AF_BRIDGE is about a bridge port: its RTM_DELLINK means that the interface left the
        // bridge.
        RTM_NEWLINK | RTM_DELLINK if payload.first() != Some(&AF_UNSPEC) => None,
        RTM_NEWLINK => {
            let Description { ifindex, up, mtu, name } = describe(payload)?;
            Some(LinkEvent::Link { ifindex, up, mtu, name })
        }
        RTM_DELLINK => Some(LinkEvent::LinkGone { ifindex: u32_at(payload, 4)? }),
        // A cached clone of a route is not a change.
        RTM_NEWROUTE | RTM_DELROUTE if u32_at(payload, 8)? & RTM_F_CLONED != 0 => None,
        RTM_NEWROUTE | RTM_DELROUTE => Some(LinkEvent::Routing { ifindex: egress_ifindex(payload) }),
        RTM_NEWADDR | RTM_DELADDR => Some(LinkEvent::Routing { ifindex: u32_at(payload, 4) }),
        RTM_NEWRULE | RTM_DELRULE => Some(LinkEvent::Routing { ifindex: None }),
        _ => None,
    }
}

/// The outgoing interface of a route message, if there is exactly one.
pub(super) fn egress_ifindex(payload: &[u8]) -> Option<u32> {
    u32_at(attribute(payload.get(RTMSG..)?, RTA_OIF)?, 0)
}

/// The address in a reply to RTM_GETADDR, if datagrams may be sent from it.
pub(super) fn usable_address(payload: &[u8]) -> Option<IpAddr> {
    let part = payload.get(IFADDRMSG..)?;
    let flags = attribute(part, IFA_FLAGS).map_or(payload.get(2).copied().map(u32::from), |value| u32_at(value, 0))?;
    if flags & IFA_F_TENTATIVE != 0 && flags & IFA_F_OPTIMISTIC == 0 {
        return None;
    }
    // With a peer's address (point to point) IFA_LOCAL is ours and IFA_ADDRESS the peer's.
    attribute(part, IFA_LOCAL).or_else(|| attribute(part, IFA_ADDRESS)).and_then(address_of)
}

/// The destination, prefix length and MTU in a reply to RTM_GETROUTE, if the route has an MTU and uses `ifindex`.
/// `any` is the destination of a default route of the family.
pub(super) fn route_mtu(payload: &[u8], any: IpAddr, ifindex: u32) -> Option<(IpAddr, u8, u32)> {
    let family = if any.is_ipv4() { AF_INET } else { AF_INET6 };
    if payload.first() != Some(&family) || u32_at(payload, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let (mut destination, mut mtu, mut over) = (any, None, false);
    for (kind, data) in attributes(payload.get(RTMSG..)?) {
        match kind {
            RTA_DST => destination = address_of(data).filter(|to| to.is_ipv4() == any.is_ipv4())?,
            RTA_OIF => over |= u32_at(data, 0) == Some(ifindex),
            RTA_MULTIPATH => over |= has_next_hop_via(data, ifindex),
            RTA_METRICS => mtu = attribute(data, RTAX_MTU).and_then(|value| u32_at(value, 0)),
            _ => {}
        }
    }
    let longest = if any.is_ipv4() { 32 } else { 128 };
    (over && payload[1] <= longest).then_some((destination, payload[1], mtu?))
}

/// Whether one of the next hops of RTA_MULTIPATH uses `ifindex`.
fn has_next_hop_via(mut hops: &[u8], ifindex: u32) -> bool {
    while let (Some(len), Some(hop)) = (u16_at(hops, 0), u32_at(hops, 4)) {
        if hop == ifindex {
            return true;
        }
        // A hop is at least its fixed part of 8 bytes; less would never end.
        hops = hops.get(usize::from(len).next_multiple_of(4).max(8)..).unwrap_or_default();
    }
    false
}

fn is_no_route(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    // The last two are the errors of prohibit and blackhole routes.
    matches!(errno, Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL))
}

fn ifinfomsg(ifindex: u32) -> [u8; IFINFOMSG] {
    let mut fixed = [0; IFINFOMSG];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed
}

fn ifaddrmsg(family: u8) -> [u8; IFADDRMSG] {
    [family, 0, 0, 0, 0, 0, 0, 0]
}

fn rtmsg(destination: IpAddr, prefix: u8) -> [u8; RTMSG] {
    let mut fixed = [0; RTMSG];
    fixed[0] = if destination.is_ipv4() { AF_INET } else { AF_INET6 };
    fixed[1] = prefix;
    fixed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_message_makes_the_readers_panic(
            kind in 16u16..34,
            payload in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            let mut bytes = vec![0; 16];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend(&payload);
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            for message in messages(&bytes) {
                let _ = link_event(&message);
            }
            let _ = usable_address(&payload);
            let _ = has_next_hop_via(&payload, 1);
            for any in [IpAddr::V4([0; 4].into()), IpAddr::V6([0; 16].into())] {
                let _ = route_mtu(&payload, any, 1);
            }
        }
    }

    #[test]
    fn a_route_with_an_impossible_destination_is_skipped() {
        let any = IpAddr::from([0; 4]);
        let route = |bits, to: IpAddr| {
            let attributes = Attributes::default()
                .with_address(RTA_DST, to)
                .with_u32(RTA_OIF, 7)
                .with_nest(RTA_METRICS, Attributes::default().with_u32(RTAX_MTU, 1400));
            route_mtu(&[&rtmsg(any, bits)[..], attributes.bytes()].concat(), any, 7)
        };
        assert_eq!(route(24, [192, 0, 2, 0].into()), Some(([192, 0, 2, 0].into(), 24, 1400)));
        assert_eq!(route(33, [192, 0, 2, 0].into()), None);
        assert_eq!(route(24, [0xfd; 16].into()), None);
    }

    #[test]
    fn every_hop_of_a_multipath_route_is_checked() {
        let mut hops = Vec::new();
        for ifindex in [3u32, 4, 5] {
            hops.extend([8, 0, 0, 0]);
            hops.extend(ifindex.to_ne_bytes());
        }
        assert!(has_next_hop_via(&hops, 5));
        assert!(!has_next_hop_via(&hops, 6));
        assert!(!has_next_hop_via(&[0; 7], 0));
    }
}
