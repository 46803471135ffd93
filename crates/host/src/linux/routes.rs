//! Routes (include/uapi/linux/rtnetlink.h; net/ipv4/fib_frontend.c, net/ipv6/route.c).

use std::collections::HashMap;
use std::net::IpAddr;

use super::prefix::{family_of, prefix_of};
use crate::step::{MAIN, Route};
use linerate_netlink::rtnetlink::*;
use linerate_netlink::{
    Attributes, Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Request, address_of, attribute, u32_at,
    u32_of,
};

/// `ip route add`; a route without a device is `unreachable`.
pub(super) fn add(route: &Route, index: Option<u32>) -> Request {
    let kind = if index.is_none() && route.via.is_none() { RTN_UNREACHABLE } else { RTN_UNICAST };
    message(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, kind, route, index)
}

/// `ip route delete`, for exactly this route, whatever its type.
pub(super) fn delete(route: &Route, index: Option<u32>) -> Request {
    message(RTM_DELROUTE, NLM_F_ACK, RTN_UNSPEC, route, index)
}

fn message(request: u16, flags: u16, kind: u8, route: &Route, index: Option<u32>) -> Request {
    let mut attributes = Attributes::default().with_u32(RTA_TABLE, route.table);
    if route.to.prefix_len() > 0 {
        attributes = attributes.with_address(RTA_DST, route.to.network());
    }
    if let Some(index) = index {
        attributes = attributes.with_u32(RTA_OIF, index);
    }
    match route.via {
        Some(via) if via.is_ipv4() == route.to.addr().is_ipv4() => {
            attributes = attributes.with_address(RTA_GATEWAY, via);
        }
        Some(via) => attributes = attributes.with(RTA_VIA, &rtvia(via)),
        None => {}
    }
    if route.metric != 0 {
        attributes = attributes.with_u32(RTA_PRIORITY, route.metric);
    }
    if let Some(source) = route.source {
        attributes = attributes.with_address(RTA_PREFSRC, source);
    }
    if route.mtu != 0 {
        attributes = attributes.with_nest(RTA_METRICS, Attributes::default().with_u32(RTAX_MTU, route.mtu));
    }
    // Table numbers above 255 are only in RTA_TABLE, which the kernel prefers.
    let table = u8::try_from(route.table).unwrap_or(0);
    let (family, length) = (family_of(route.to.addr()), route.to.prefix_len());
    let mut rtmsg = vec![family, length, 0, 0, table, route.protocol, route.scope, kind];
    rtmsg.extend(if route.onlink { RTNH_F_ONLINK } else { 0 }.to_ne_bytes());
    Request::new(request, flags, &rtmsg, attributes)
}

/// Requests all routes of both families.
pub(super) fn list() -> Request {
    Request::new(RTM_GETROUTE, NLM_F_DUMP, &[0; RTMSG], Attributes::default())
}

/// The route in a message of the list, unless it is in the table `local` or its link is gone. Of several next hops, the
/// first is taken.
pub(super) fn read(message: &Message<'_>, names: &HashMap<u32, String>) -> Option<Route> {
    let body = message.payload.get(RTMSG..).filter(|_| message.kind == RTM_NEWROUTE)?;
    let &[family, length, _, _, table, protocol, scope, kind] = message.payload.first_chunk()?;
    let number = |kind| attribute(body, kind).and_then(u32_of);
    let table = number(RTA_TABLE).unwrap_or(u32::from(table));
    let flags = u32_at(message.payload, 8)?;
    if table == RT_TABLE_LOCAL || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let hop = Hop::of(body, flags);
    let device = match (kind, hop.index) {
        // For IPv6 they are on `lo`.
        (RTN_BLACKHOLE..=RTN_THROW, _) | (_, None) => None,
        (_, Some(index)) => Some(names.get(&index)?.clone()),
    };
    let metrics = attribute(body, RTA_METRICS).unwrap_or_default();
    Some(Route {
        to: prefix_of(family, attribute(body, RTA_DST), length)?.trunc(),
        device,
        via: hop.via,
        table,
        metric: number(RTA_PRIORITY).unwrap_or(0),
        protocol,
        scope,
        source: attribute(body, RTA_PREFSRC).and_then(address_of),
        mtu: attribute(metrics, RTAX_MTU).and_then(u32_of).unwrap_or(0),
        onlink: hop.flags & RTNH_F_ONLINK != 0,
    })
}

/// The devices of all next hops of a default route in the main table that has several.
pub(super) fn hops_of_default(message: &Message<'_>, names: &HashMap<u32, String>) -> Vec<String> {
    let body = message.payload.get(RTMSG..).unwrap_or_default();
    // The length of the destination, and the table: as of `struct rtmsg`.
    let is_default =
        message.payload.get(1) == Some(&0) && message.payload.get(4).is_some_and(|&table| u32::from(table) == MAIN);
    let mut hops = attribute(body, RTA_MULTIPATH).filter(|_| is_default).unwrap_or_default();
    let mut devices = Vec::new();
    while let (Some(index), Some(length)) = (u32_at(hops, 4), hops.first_chunk().map(|two| u16::from_ne_bytes(*two))) {
        devices.extend(names.get(&index).cloned());
        // Each begins at a multiple of four (`RTNH_ALIGN`); one that is shorter than its header ends the list.
        let next = usize::from(length).next_multiple_of(4);
        hops = hops.get(next..).filter(|_| next >= RTNEXTHOP).unwrap_or_default();
    }
    devices
}

/// The next hop of a route.
struct Hop {
    index: Option<u32>,
    via: Option<IpAddr>,
    flags: u32,
}

impl Hop {
    fn of(body: &[u8], flags: u32) -> Self {
        // `struct rtnexthop`: length, flags, hops, index; attributes of its own follow, and the next one.
        let several = attribute(body, RTA_MULTIPATH)
            .and_then(|hops| Some((hops, usize::from(u16::from_ne_bytes(*hops.first_chunk()?)))));
        if let Some((hops, length)) = several {
            let body = hops.get(RTNEXTHOP..length).unwrap_or_default();
            let flags = hops.get(2).copied().map_or(0, u32::from);
            return Self { index: u32_at(hops, 4), via: via(body), flags };
        }
        Self { index: attribute(body, RTA_OIF).and_then(u32_of), via: via(body), flags }
    }
}

/// The address of the next hop, which for an IPv4 route may be an IPv6 address (`struct rtvia`: family, address).
fn via(body: &[u8]) -> Option<IpAddr> {
    let gateway = attribute(body, RTA_GATEWAY).and_then(address_of);
    gateway.or_else(|| address_of(attribute(body, RTA_VIA)?.get(2..)?))
}

fn rtvia(address: IpAddr) -> Vec<u8> {
    let family = u16::from(family_of(address)).to_ne_bytes();
    match address {
        IpAddr::V4(address) => [&family[..], &address.octets()].concat(),
        IpAddr::V6(address) => [&family[..], &address.octets()].concat(),
    }
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::super::hostile::{hostile_attributes, read_back};
    use super::*;

    prop_compose! {
        fn routes()(
            (to, via, source) in any::<bool>().prop_flat_map(|v4| (prefix(v4), prop::option::of(address(v4)), prop::option::of(address(v4)))),
            refuses: bool, table in 1u32..100_000, metric: u32, protocol: u8, scope: u8, mtu: u32, onlink: bool,
        ) -> Route {
            let (device, via) = if refuses { (None, None) } else { (Some("wg0".to_owned()), via) };
            let table = if table == RT_TABLE_LOCAL { 1 } else { table };
            Route { to, device, via, table, metric, protocol, scope, source, mtu, onlink }
        }
    }

    fn address(v4: bool) -> impl Strategy<Value = IpAddr> {
        any::<u128>().prop_map(move |bits| if v4 { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) })
    }

    fn prefix(v4: bool) -> impl Strategy<Value = IpNet> {
        let longest = if v4 { 32 } else { 128 };
        (address(v4), 0u8..=longest).prop_map(|(address, length)| IpNet::new(address, length).unwrap().trunc())
    }

    proptest! {
        #[test]
        fn a_route_is_read_as_it_is_added(route in routes()) {
            let index = route.device.as_ref().map(|_| 5);
            let names = HashMap::from([(5, "wg0".to_owned())]);
            read_back(add(&route, index), |message| assert_eq!(read(message, &names), Some(route.clone())));
            read_back(add(&route, index.map(|_| 6)), |message| assert_eq!(read(message, &names).is_some(), index.is_none()));
            read_back(add(&Route { table: RT_TABLE_LOCAL, ..route.clone() }, index), |message| assert_eq!(read(message, &names), None));
        }

        #[test]
        fn no_message_makes_it_panic(fixed in prop::collection::vec(any::<u8>(), 0..=RTMSG), odd in hostile_attributes()) {
            let names = HashMap::from([(0, "wg0".to_owned())]);
            let payload = [fixed, odd].concat();
            let message = Message { kind: RTM_NEWROUTE, flags: 0, sequence: 0, payload: &payload };
            let _ = (read(&message, &names), hops_of_default(&message, &names));
        }
    }
}
