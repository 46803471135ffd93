//! Interfaces, addresses and routes, by netlink (rtnetlink(7)).
//!
//! Everything is keyed by the interface's index, because its name may change under us. For the slow
//! path only: each question opens a socket, allocates, and waits for the kernel's answer.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use super::netlink::{self, BUFFER, Message, Request, Socket, address, attributes, octets, u16_at, u32_at};

/// Whether an error says that there is no such interface, and not that the question could not be asked.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

/// Whether an error says nothing of what was asked: there was no descriptor or no memory for the question, or the list
/// changed faster than it could be read.
pub fn is_unanswered(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}

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

/// Limits how many segments the super-packets that an interface hands out may have, so that each
/// fits in one train.
pub fn set_gso_max_segments(ifindex: u32, segments: u32) -> io::Result<()> {
    set(ifindex, IFLA_GSO_MAX_SEGS, segments)
}

/// Sets how many packets may wait in an interface's transmit queue.
pub fn set_tx_queue_len(ifindex: u32, packets: u32) -> io::Result<()> {
    set(ifindex, IFLA_TXQLEN, packets)
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
    let request = Request::new(RTM_GETLINK, &ifinfomsg(0))
        .attribute(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
        .attribute(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    Ok(described(request)?.ifindex)
}

/// The name of an interface.
///
/// # Errors
///
/// ENODEV when it is gone.
pub fn name_of(ifindex: u32) -> io::Result<String> {
    Ok(by_index(ifindex)?.name)
}

/// Whether `address` is one of this host's, so that datagrams may be sent from it.
pub fn holds_address(address: IpAddr) -> io::Result<bool> {
    match address {
        IpAddr::V4(_) => {
            let request = Request::new(RTM_GETROUTE, &rtmsg(address, 32)).attribute(RTA_DST, &octets(address));
            match request.ask() {
                Ok(route) => Ok(route.payload.get(7) == Some(&RTN_LOCAL)),
                Err(error) if is_no_route(&error) => Ok(false),
                Err(error) => Err(error),
            }
        }
        // A route would not tell an address that still waits for its duplicate detection.
        IpAddr::V6(_) => Ok(addresses_v6()?.contains(&address)),
    }
}

/// The IPv6 addresses of this host that datagrams may be sent from.
pub fn addresses_v6() -> io::Result<HashSet<IpAddr>> {
    let list = Request::new(RTM_GETADDR, &ifaddrmsg(AF_INET6)).list()?;
    Ok(list.iter().filter_map(|reply| usable_address(&reply.payload)).collect())
}

/// The interface that the kernel would send by to `to`, from the address `from` (unspecified: any)
/// and with the firewall mark `mark` (0: none). A link-local `to` has no scope here, so that the
/// answer for one is the kernel's guess.
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
    let mut sources = Vec::new();
    if !from.is_unspecified() {
        // The kernel checks an IPv4 source by itself, an IPv6 one it takes as it is.
        if from.is_ipv6() && !holds_address(from)? {
            return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        }
        fixed[2] = full;
        sources = octets(from);
    }
    let mut request = Request::new(RTM_GETROUTE, &fixed).attribute(RTA_DST, &octets(to));
    if !sources.is_empty() {
        request = request.attribute(RTA_SRC, &sources);
    }
    if mark != 0 {
        request = request.attribute(RTA_MARK, &mark.to_ne_bytes());
    }
    let route = request.ask()?;
    output(&route.payload).ok_or_else(|| io::Error::from_raw_os_error(libc::ENETUNREACH))
}

/// The routes over an interface that have an MTU of their own, of every table and both families:
/// destination, prefix length in bits, MTU in bytes.
pub fn route_mtus(ifindex: u32) -> io::Result<Vec<(IpAddr, u8, u32)>> {
    let mut found = Vec::new();
    for any in [IpAddr::V4([0; 4].into()), IpAddr::V6([0; 16].into())] {
        // A router has a million others.
        let over = Request::new(RTM_GETROUTE, &rtmsg(any, 0)).attribute(RTA_OIF, &ifindex.to_ne_bytes());
        let routes = match over.list() {
            // A kernel without the family answers with another's routes or with none of it.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => continue,
            routes => routes?,
        };
        let routes = routes.iter().filter(|reply| reply.kind == RTM_NEWROUTE);
        found.extend(routes.filter_map(|reply| route_mtu(&reply.payload, any, ifindex)));
    }
    Ok(found)
}

/// A change to the host's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An interface is new or was changed.
    Link {
        /// Its index.
        ifindex: u32,
        /// Whether it is up, as the user set it (IFF_UP).
        up: bool,
        /// Its MTU in bytes.
        mtu: u32,
        /// Its name.
        name: String,
    },
    /// An interface left this network namespace: it was deleted, or moved to another namespace.
    /// For a TUN interface, [`TunDevice::name`](crate::tun::TunDevice::name) fails only after the former.
    LinkGone {
        /// Its index.
        ifindex: u32,
    },
    /// An address, a route or a routing rule was added, changed or deleted.
    Routing {
        /// The index of the interface that it is about, where it is about one.
        ifindex: Option<u32>,
    },
    /// Changes came faster than they were read and some are lost: read everything again.
    Lost,
}

/// Hears of changes to links, addresses, routes and rules, of both families, from when it was made.
/// Its descriptor is readable when there are any.
pub struct Monitor {
    socket: Socket,
    buf: Vec<u8>,
    /// What of `buf` is still to be looked at.
    unread: std::ops::Range<usize>,
}

impl Monitor {
    /// Begins to listen.
    pub fn new() -> io::Result<Self> {
        // RTNLGRP_LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE.
        let groups = [1, 5, 7, 8, 9, 11, 19].iter().fold(0, |mask, group| mask | 1 << (group - 1));
        let socket = Socket::open(groups, false)?;
        Ok(Self { socket, buf: vec![0; BUFFER], unread: 0..0 })
    }

    /// The next change; `None` when there is none yet. Not an iterator: more may come after `None`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Change> {
        loop {
            while let Some(change) = self.take_buffered() {
                if let Some(change) = change {
                    return Some(change);
                }
            }
            match self.socket.receive(&mut self.buf) {
                Ok(len) => self.unread = 0..len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => {
                    self.empty_queue();
                    return Some(Change::Lost);
                }
            }
        }
    }

    /// Throws away what waits. Once messages were lost, the kernel goes on losing them without
    /// another word until the queue was empty once (netlink_overrun, NETLINK_S_CONGESTED): what
    /// is read again before that could miss a change.
    fn empty_queue(&mut self) {
        loop {
            match self.socket.receive(&mut self.buf) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => return,
            }
        }
    }

    /// Takes the next buffered message: `Some(None)` for one that is no change.
    fn take_buffered(&mut self) -> Option<Option<Change>> {
        let mut rest = &self.buf[self.unread.clone()];
        let message = netlink::take_message(&mut rest);
        let change = message.map(|message| change(&message));
        self.unread.start = self.unread.end - if change.is_some() { rest.len() } else { 0 };
        change
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What is asked of a link.
struct Description {
    ifindex: u32,
    up: bool,
    mtu: u32,
    name: String,
}

fn by_index(ifindex: u32) -> io::Result<Description> {
    let mask = RTEXT_FILTER_SKIP_STATS.to_ne_bytes();
    described(Request::new(RTM_GETLINK, &ifinfomsg(ifindex)).attribute(IFLA_EXT_MASK, &mask))
}

fn described(request: Request) -> io::Result<Description> {
    let reply = request.ask()?;
    describe(&reply.payload).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

fn set(ifindex: u32, attribute: u16, value: u32) -> io::Result<()> {
    let request = Request::new(RTM_NEWLINK, &ifinfomsg(ifindex));
    request.attribute(attribute, &value.to_ne_bytes()).ask()?;
    Ok(())
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

pub(super) fn change(message: &Message<'_>) -> Option<Change> {
    let payload = message.payload;
    match message.kind {
        // A message of the family AF_BRIDGE is about a port of a bridge: its RTM_DELLINK means
        // that the interface left the bridge.
        RTM_NEWLINK | RTM_DELLINK if payload.first() != Some(&AF_UNSPEC) => None,
        RTM_NEWLINK => {
            let Description { ifindex, up, mtu, name } = describe(payload)?;
            Some(Change::Link { ifindex, up, mtu, name })
        }
        RTM_DELLINK => Some(Change::LinkGone { ifindex: u32_at(payload, 4)? }),
        // A cached clone of a route is no change of the routing.
        RTM_NEWROUTE | RTM_DELROUTE if u32_at(payload, 8)? & RTM_F_CLONED != 0 => None,
        RTM_NEWROUTE | RTM_DELROUTE => Some(Change::Routing { ifindex: output(payload) }),
        RTM_NEWADDR | RTM_DELADDR => Some(Change::Routing { ifindex: u32_at(payload, 4) }),
        RTM_NEWRULE | RTM_DELRULE => Some(Change::Routing { ifindex: None }),
        _ => None,
    }
}

/// The interface that the route of a message goes over, if it is one.
pub(super) fn output(payload: &[u8]) -> Option<u32> {
    let oif = attributes(payload.get(RTMSG..)?).find(|(kind, _)| *kind == RTA_OIF);
    oif.and_then(|(_, data)| u32_at(data, 0))
}

/// The address that a message of RTM_GETADDR is about, if datagrams may be sent from it.
pub(super) fn usable_address(payload: &[u8]) -> Option<IpAddr> {
    let part = payload.get(IFADDRMSG..)?;
    let flags = attributes(part)
        .find(|(kind, _)| *kind == IFA_FLAGS)
        .map_or(payload.get(2).copied().map(u32::from), |(_, data)| u32_at(data, 0))?;
    if flags & IFA_F_TENTATIVE != 0 && flags & IFA_F_OPTIMISTIC == 0 {
        return None;
    }
    // With a peer's address (point to point) IFA_LOCAL is ours and IFA_ADDRESS the peer's.
    let find = |wanted| attributes(part).find(|(kind, _)| *kind == wanted);
    find(IFA_LOCAL).or_else(|| find(IFA_ADDRESS)).and_then(|(_, data)| address(data))
}

/// The destination, prefix length and MTU of a message of RTM_GETROUTE, if the route has an MTU and
/// goes over `ifindex`. `any` is the family's address of a default route.
pub(super) fn route_mtu(payload: &[u8], any: IpAddr, ifindex: u32) -> Option<(IpAddr, u8, u32)> {
    let family = if any.is_ipv4() { AF_INET } else { AF_INET6 };
    if payload.first() != Some(&family) || u32_at(payload, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let (mut destination, mut mtu, mut over) = (any, None, false);
    for (kind, data) in attributes(payload.get(RTMSG..)?) {
        match kind {
            RTA_DST => destination = address(data).filter(|to| to.is_ipv4() == any.is_ipv4())?,
            RTA_OIF => over |= u32_at(data, 0) == Some(ifindex),
            RTA_MULTIPATH => over |= goes_over(data, ifindex),
            RTA_METRICS => {
                let metric = attributes(data).find(|(metric, _)| *metric == RTAX_MTU);
                mtu = metric.and_then(|(_, data)| u32_at(data, 0));
            }
            _ => {}
        }
    }
    let longest = if any.is_ipv4() { 32 } else { 128 };
    (over && payload[1] <= longest).then_some((destination, payload[1], mtu?))
}

/// Whether one of the hops of RTA_MULTIPATH goes over `ifindex`.
fn goes_over(mut hops: &[u8], ifindex: u32) -> bool {
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
    // The last two are what a prohibit and a blackhole route answer.
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

// include/uapi/linux/{rtnetlink,if_link,if_addr}.h
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = libc::AF_INET as u8;
const AF_INET6: u8 = libc::AF_INET6 as u8;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const IFINFOMSG: usize = 16;
const IFF_UP: u32 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
const IFADDRMSG: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_OPTIMISTIC: u32 = 0x04;
const IFA_F_TENTATIVE: u32 = 0x40;
const RTMSG: usize = 12;
const RTM_F_CLONED: u32 = 0x200;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_MARK: u16 = 16;
const RTAX_MTU: u16 = 2;

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
            for message in netlink::tests::messages(&bytes) {
                let _ = change(&message);
            }
            let _ = usable_address(&payload);
            let _ = goes_over(&payload, 1);
            for any in [IpAddr::V4([0; 4].into()), IpAddr::V6([0; 16].into())] {
                let _ = route_mtu(&payload, any, 1);
            }
        }
    }

    #[test]
    fn a_route_whose_destination_cannot_be_has_no_mtu() {
        let any = IpAddr::from([0; 4]);
        let route = |bits, to: IpAddr| {
            let mtu = [&8u16.to_ne_bytes()[..], &RTAX_MTU.to_ne_bytes(), &1400u32.to_ne_bytes()].concat();
            let request = Request::new(RTM_NEWROUTE, &rtmsg(any, bits))
                .attribute(RTA_DST, &octets(to))
                .attribute(RTA_OIF, &7u32.to_ne_bytes())
                .attribute(RTA_METRICS, &mtu);
            route_mtu(request.payload(), any, 7)
        };
        assert_eq!(route(24, [192, 0, 2, 0].into()), Some(([192, 0, 2, 0].into(), 24, 1400)));
        assert_eq!(route(33, [192, 0, 2, 0].into()), None);
        assert_eq!(route(24, [0xfd; 16].into()), None);
    }

    #[test]
    fn every_hop_of_a_multipath_route_is_looked_at() {
        let mut hops = Vec::new();
        for ifindex in [3u32, 4, 5] {
            hops.extend([8, 0, 0, 0]);
            hops.extend(ifindex.to_ne_bytes());
        }
        assert!(goes_over(&hops, 5));
        assert!(!goes_over(&hops, 6));
        assert!(!goes_over(&[0; 7], 0));
    }
}
