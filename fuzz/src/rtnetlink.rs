//! Links, addresses and routes from the kernel parse correctly; any bytes parse as an answer or a notification in
//! order, up to the first wrong length, and round-trip.

use std::net::IpAddr;

use linerate_netlink::{HEADER, Message, Reply, attributes, octets};

use super::bytes::Bytes;
use super::link::{LinkEvent, egress_ifindex, link_event, route_mtu, usable_address};

pub fn check(input: &[u8]) {
    any_datagram(input);
    let mut bytes = Bytes(input);
    let damage = bytes.take(12);
    let (errno, interrupted) = (*bytes.pick(&[0, 0, 19, 95]), bytes.flag());
    let count = bytes.below(9);
    let more = bytes.take(count);
    let mut sent = Vec::new();
    for _ in 0..bytes.below(6) {
        sent.push(match bytes.below(3) {
            0 => link(&mut bytes, more),
            1 => address(&mut bytes, more),
            _ => route(&mut bytes, more),
        });
    }
    let mut datagram = list(&sent, errno, interrupted);
    let mut replies = Vec::new();
    let end = Reply::to(0).take(&datagram, |message| replies.push((message.kind, message.payload.to_vec())));
    let end = end.expect("there is a last message").map_err(|refused| refused.error.raw_os_error());
    let refused = if errno != 0 { Some(errno) } else { interrupted.then_some(EINTR) };
    assert_eq!(end, refused.map_or(Ok(()), |errno| Err(Some(errno))));
    assert_eq!(replies, sent);

    for edit in damage.chunks_exact(3) {
        let offset = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % datagram.len();
        datagram[offset] = edit[2];
    }
    any_datagram(&datagram);
}

/// Any datagram.
fn any_datagram(datagram: &[u8]) {
    let (all, end) = messages(datagram);
    for cut in [datagram.len() / 2, datagram.len().saturating_sub(1)] {
        let short = messages(&datagram[..cut]).0;
        assert!(
            short.iter().map(parts).eq(all.iter().take(short.len()).map(parts)),
            "only cut-off messages are missing"
        );
    }
    let ours: Vec<_> = all.iter().filter(|message| message.sequence == 0).collect();
    let last = ours.iter().position(|message| matches!(message.kind, ERROR | DONE));
    let mut replies = Vec::new();
    let ended = Reply::to(0).take(datagram, |message| replies.push((message.kind, message.payload.to_vec()))).is_some();
    assert_eq!(ended, last.is_some() || end < datagram.len(), "reading goes on only while nothing is missing");
    let reported = ours[..last.unwrap_or(ours.len())].iter().filter(|message| message.kind >= NEWLINK);
    assert!(reported.map(|message| parts(message)).eq(replies.iter().map(|(kind, payload)| (*kind, &payload[..]))));

    for Message { kind, payload, .. } in all {
        any_attributes(payload);
        any_change(kind, payload);
        any_address(payload);
        any_route(payload);
    }
}

fn parts<'a>(message: &Message<'a>) -> (u16, &'a [u8]) {
    (message.kind, message.payload)
}

/// The consecutive messages of a datagram, and where parsing ends.
fn messages(datagram: &[u8]) -> (Vec<Message<'_>>, usize) {
    let mut rest = linerate_netlink::messages(datagram);
    let (mut all, mut end) = (Vec::new(), 0);
    while let Some(message) = rest.next() {
        let length = HEADER + message.payload.len();
        assert_eq!(message.payload, &datagram[end + HEADER..end + length]);
        end = (end + length.next_multiple_of(4)).min(datagram.len());
        assert_eq!(rest.rest().len(), datagram.len() - end, "the next message follows");
        all.push(message);
    }
    (all, end)
}

fn any_attributes(part: &[u8]) {
    let all: Vec<_> = attributes(part).collect();
    assert!(all.iter().map(|(_, data)| 4 + data.len()).sum::<usize>() <= part.len());
    for cut in [part.len() / 2, part.len().saturating_sub(1)] {
        assert!(all.iter().copied().take(attributes(&part[..cut]).count()).eq(attributes(&part[..cut])));
    }
}

/// A change parses the same without unknown attributes.
fn any_change(kind: u16, payload: &[u8]) {
    let Some(found) = changed(kind, payload) else { return };
    let (kind, again) = match &found {
        LinkEvent::Link { ifindex, up, mtu, name } => {
            let named = put(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
            (NEWLINK, [header(0, *ifindex, u32::from(*up)), named, put(IFLA_MTU, &mtu.to_ne_bytes())].concat())
        }
        LinkEvent::LinkGone { ifindex } => (DELLINK, header(0, *ifindex, 0)),
        LinkEvent::Routing { ifindex } => {
            let over = ifindex.map(|ifindex| put(RTA_OIF, &ifindex.to_ne_bytes())).unwrap_or_default();
            (NEWROUTE, [vec![0; 12], over].concat())
        }
        LinkEvent::Lost => panic!("no message reports a loss"),
    };
    assert_eq!(changed(kind, &again), Some(found));
}

fn any_address(payload: &[u8]) {
    let Some(address) = usable_address(payload) else { return };
    let again = |flags| [vec![0, 0, flags, 0, 0, 0, 0, 0], put(IFA_LOCAL, &octets(address))].concat();
    assert_eq!(usable_address(&again(0)), Some(address));
    assert_eq!(usable_address(&again(TENTATIVE)), None);
}

fn any_route(payload: &[u8]) {
    let ifindex = egress_ifindex(payload).unwrap_or(7);
    for any in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
        let Some((to, bits, mtu)) = route_mtu(payload, any, ifindex) else { continue };
        assert_eq!(to.is_ipv4(), any.is_ipv4());
        assert!(usize::from(bits) <= octets(any).len() * 8);
        let metrics = put(RTA_METRICS, &put(RTAX_MTU, &mtu.to_ne_bytes()));
        let again = [rtmsg(any, bits, 0), put(RTA_DST, &octets(to)), put(RTA_OIF, &ifindex.to_ne_bytes()), metrics];
        assert_eq!(route_mtu(&again.concat(), any, ifindex), Some((to, bits, mtu)));
    }
}

/// A link as rtnl_fill_ifinfo writes it (net/core/rtnetlink.c): a change, unless it is a bridge port.
fn link(bytes: &mut Bytes<'_>, more: &[u8]) -> (u16, Vec<u8>) {
    let (ifindex, up, mtu) = (u32::from(bytes.short()), bytes.flag(), u32::from(bytes.short()));
    let (bridge, gone, flags) = (bytes.below(4) == 1, bytes.below(4) == 1, u32::from(bytes.short()) << 1);
    let count = bytes.below(16);
    let name: String = bytes.take(count).iter().map(|byte| char::from(byte % 94 + 33)).collect();
    let attributes = [
        put(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat()),
        put(61, more),
        put(IFLA_MTU, &mtu.to_ne_bytes()),
        put(18 | NESTED, &put(1, b"tun\0")),
    ];
    let payload = [header(if bridge { 7 } else { 0 }, ifindex, u32::from(up) | flags), attributes.concat()].concat();
    let news = if gone { LinkEvent::LinkGone { ifindex } } else { LinkEvent::Link { ifindex, up, mtu, name } };
    let kind = if gone { DELLINK } else { NEWLINK };
    assert_eq!(changed(kind, &payload), Some(news).filter(|_| !bridge));
    (kind, payload)
}

/// An address as inet_fill_ifaddr and inet6_fill_ifaddr write it: usable as a source once duplicate address detection
/// is done.
fn address(bytes: &mut Bytes<'_>, more: &[u8]) -> (u16, Vec<u8>) {
    let (ifindex, flags) = (u32::from(bytes.byte()), bytes.byte());
    let [own, peer] = [(); 2].map(|()| ip(bytes));
    let (with_peer, v4) = (bytes.flag(), own.is_ipv4());
    let mut payload = vec![family(own), 24, flags, 0];
    payload.extend(ifindex.to_ne_bytes());
    payload.extend(put(29, more));
    payload.extend(put(IFA_ADDRESS, &octets(if with_peer { peer } else { own })));
    if with_peer || v4 {
        payload.extend(put(IFA_LOCAL, &octets(own)));
    }
    // The flags in the header have eight bits.
    payload.extend(put(IFA_FLAGS, &(u32::from(flags) | 0x300).to_ne_bytes()));
    let usable = flags & TENTATIVE == 0 || flags & OPTIMISTIC != 0;
    assert_eq!(usable_address(&payload), Some(own).filter(|_| usable));
    assert_eq!(changed(NEWADDR, &payload), Some(LinkEvent::Routing { ifindex: Some(ifindex) }));
    (NEWADDR, payload)
}

/// A route as fib_dump_info and rt6_fill_node write it: its MTU applies to the interface of each next hop.
fn route(bytes: &mut Bytes<'_>, more: &[u8]) -> (u16, Vec<u8>) {
    let to = ip(bytes);
    let bits = if bytes.flag() { (bytes.below(octets(to).len() * 8) + 1) as u8 } else { 0 };
    let (cloned, mtu) = (bytes.below(4) == 1, bytes.flag().then(|| u32::from(bytes.short())));
    let hops: Vec<u32> = (0..=bytes.below(4)).map(|_| u32::from(bytes.byte())).collect();
    let mut payload = rtmsg(to, bits, if cloned { CLONED } else { 0 });
    if bits > 0 {
        payload.extend(put(RTA_DST, &octets(to)));
    }
    payload.extend(put(29, more));
    let mut metrics = put(8, &[1; 4]);
    metrics.extend(mtu.map(|mtu| put(RTAX_MTU, &mtu.to_ne_bytes())).unwrap_or_default());
    payload.extend(put(RTA_METRICS, &metrics));
    payload.extend(match hops[..] {
        [only] => put(RTA_OIF, &only.to_ne_bytes()),
        _ => put(RTA_MULTIPATH, &hops.iter().flat_map(|hop| nexthop(*hop, more)).collect::<Vec<_>>()),
    });
    let over = Some(hops[0]).filter(|_| hops.len() == 1);
    assert_eq!(egress_ifindex(&payload), over);
    assert_eq!(changed(NEWROUTE, &payload), Some(LinkEvent::Routing { ifindex: over }).filter(|_| !cloned));
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let other = if to.is_ipv4() { IpAddr::from([0; 16]) } else { IpAddr::from([0; 4]) };
    for ifindex in [hops[0], hops[hops.len() - 1], u32::from(bytes.byte())] {
        let destination = if bits > 0 { to } else { any };
        let expected = mtu.filter(|_| !cloned && hops.contains(&ifindex)).map(|mtu| (destination, bits, mtu));
        assert_eq!(route_mtu(&payload, any, ifindex), expected);
        assert_eq!(route_mtu(&payload, other, ifindex), None);
    }
    (NEWROUTE, payload)
}

/// `struct rtnexthop`, some with a gateway and unknown attributes.
fn nexthop(ifindex: u32, more: &[u8]) -> Vec<u8> {
    let gateway = ifindex.is_multiple_of(2);
    let attributes = if gateway { [put(5, &[192, 0, 2, 1]), put(29, more)].concat() } else { Vec::new() };
    let length = u16::try_from(8 + attributes.len()).expect("it is short");
    [&length.to_ne_bytes()[..], &[0; 2], &ifindex.to_ne_bytes(), &attributes].concat()
}

fn ip(bytes: &mut Bytes<'_>) -> IpAddr {
    if bytes.flag() { bytes.array::<4>().into() } else { bytes.array::<16>().into() }
}

/// A list and its end in one datagram.
fn list(replies: &[(u16, Vec<u8>)], errno: i32, interrupted: bool) -> Vec<u8> {
    let flags = if interrupted { 0x12 } else { 2 };
    let mut datagram: Vec<u8> = replies.iter().flat_map(|(kind, payload)| message(*kind, flags, payload)).collect();
    datagram.extend(message(DONE, flags, &(-errno).to_ne_bytes()));
    datagram
}

fn changed(kind: u16, payload: &[u8]) -> Option<LinkEvent> {
    link_event(&Message { kind, flags: 0, sequence: 0, payload })
}

fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + payload.len()).expect("messages are short");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend([kind, flags].map(u16::to_ne_bytes).concat());
    bytes.extend([0; 8]);
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn put(kind: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + data.len()).expect("an attribute is shorter than a message");
    let mut bytes = [length, kind].map(u16::to_ne_bytes).concat();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `struct ifinfomsg`.
fn header(family: u8, ifindex: u32, flags: u32) -> Vec<u8> {
    [&[family, 0, 0, 0], &ifindex.to_ne_bytes()[..], &flags.to_ne_bytes(), &[0; 4]].concat()
}

/// `struct rtmsg` of the family of `to`.
fn rtmsg(to: IpAddr, bits: u8, flags: u32) -> Vec<u8> {
    [&[family(to), bits, 0, 0, 254, 4, 0, 1][..], &flags.to_ne_bytes()].concat()
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

const ERROR: u16 = 2;
const DONE: u16 = 3;
const EINTR: i32 = 4;
const NESTED: u16 = 0x8000;
const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
const NEWADDR: u16 = 20;
const NEWROUTE: u16 = 24;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const OPTIMISTIC: u8 = 4;
const TENTATIVE: u8 = 0x40;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTAX_MTU: u16 = 2;
const CLONED: u32 = 0x200;
