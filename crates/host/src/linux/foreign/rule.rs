//! A rule of nf_tables as the kernel has it: expressions that load something into registers and compare it
//! (`nft --debug=netlink` prints them).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_netlink::{attribute, attributes, text_of};

use super::Names;
use super::sets::Lookup;
use crate::condition::Condition;
use crate::linux::nftables::{
    ACCEPT, CT_STATE, CT_STATUS, DROP, META_IIF, META_IIFNAME, META_L4PROTO, META_MARK, META_NFPROTO, META_OIF,
    META_OIFNAME, NETWORK_HEADER, NFPROTO_IPV4, NFPROTO_IPV6, NFTA_DATA_VALUE, NFTA_DATA_VERDICT, NFTA_EXPR_DATA,
    NFTA_EXPR_NAME, NFTA_LIST_ELEM, NFTA_VERDICT_CODE, TRANSPORT_HEADER,
};
use crate::spec::AddressRange;
use crate::state::{Change, Exception, ForeignRule, ForeignVerdict, NamePattern};
use crate::step::AddressFamily;
use crate::verdict::{TCP, UDP};

const NFTA_VERDICT_CHAIN: u16 = 2;

// linux/netfilter/nf_tables.h
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;

const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;

/// A rule whose sets are not read yet.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) rule: ForeignRule,
    /// What is looked up in sets and maps.
    pub(super) lookups: Vec<Lookup>,
    /// Conditions on links by their indices, inverted or not.
    pub(super) indices: Vec<(Field, u32, bool)>,
    pub(super) comment: Option<String>,
    /// It is for packets to a port in one of these ranges; empty for any.
    ports: Vec<(u16, u16)>,
    registers: BTreeMap<u32, Loaded>,
    /// The numbers that registers were set to.
    constants: BTreeMap<u32, u32>,
}

/// What a register holds, and the mask of it.
#[derive(Clone)]
struct Loaded {
    field: Field,
    mask: Option<Vec<u8>>,
}

/// What of a packet a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Incoming,
    Outgoing,
    IncomingIndex,
    OutgoingIndex,
    Family,
    Protocol,
    SourcePort,
    Port,
    /// The source port and the destination port.
    BothPorts,
    State,
    Status,
    Mark,
    /// The type of an ICMP message.
    Icmp,
    /// The interface that the route to the source leads over, by its name or index.
    SourceRoute,
    SourceRouteIndex,
    /// That interface if it is the one that the packet came in by.
    RouteBack,
    /// So many bytes of the source address, from its beginning on.
    Source(AddressFamily, usize),
    Destination(AddressFamily, usize),
    Other,
}

impl Field {
    /// Its length in a key, in bytes.
    pub(super) fn length(self) -> Option<usize> {
        Some(match self {
            Self::Incoming | Self::Outgoing => 16,
            Self::IncomingIndex | Self::OutgoingIndex | Self::State | Self::Mark => 4,
            Self::Family | Self::Protocol | Self::Icmp => 1,
            Self::Port | Self::SourcePort => 2,
            Self::Source(family, length) | Self::Destination(family, length) if length == octets(family) => length,
            Self::BothPorts
            | Self::Status
            | Self::SourceRoute
            | Self::SourceRouteIndex
            | Self::RouteBack
            | Self::Other
            | Self::Source(..)
            | Self::Destination(..) => return None,
        })
    }
}

fn octets(family: AddressFamily) -> usize {
    if family == AddressFamily::V4 { 4 } else { 16 }
}

impl Parsed {
    /// Reads the expressions of a rule in a table of this family.
    pub(super) fn read(family: u8, comment: Option<String>, expressions: &[u8]) -> Option<Self> {
        let mut parsed = Self { comment, ..Self::default() };
        parsed.rule.family = family_of(family);
        for (_, expression) in attributes(expressions).filter(|(kind, _)| *kind == NFTA_LIST_ELEM) {
            let name = attribute(expression, NFTA_EXPR_NAME).and_then(text_of)?;
            parsed.take(&name, attribute(expression, NFTA_EXPR_DATA).unwrap_or_default());
        }
        Some(parsed)
    }

    fn take(&mut self, name: &str, data: &[u8]) {
        let code = |kind: u16| attribute(data, kind).and_then(number);
        let bytes = |kind: u16| attribute(data, kind).and_then(|data| attribute(data, NFTA_DATA_VALUE));
        match name {
            "log" | "last" | "notrack" => {}
            "counter" => {
                let packets = attribute(data, 2).and_then(|packets| packets.try_into().ok());
                self.rule.packets = packets.map(u64::from_be_bytes);
            }
            "limit" => self.rule.is_limited = true,
            // Too many connections, or those that used up what they may.
            "quota" | "connlimit" => self.rule.is_for_some = true,
            "fib" => self.load(code(1), route(code(2), code(3))),
            "masq" => self.rule.changes.push(Change::Source),
            // NFTA_NAT_TYPE with NFT_NAT_SNAT
            "nat" if code(1) == Some(0) => self.rule.changes.push(Change::Source),
            "nat" | "redir" => self.rule.verdict = ForeignVerdict::Accept,
            // NFTA_EXTHDR_TYPE, _OP with NFT_EXTHDR_OP_TCPOPT, _SREG
            "exthdr" if code(7).is_some() => {
                let is_size = attribute(data, 2) == Some(&[MAXIMUM_SEGMENT_SIZE]) && code(6) == Some(1);
                self.rule.changes.extend(is_size.then_some(Change::SegmentSize));
            }
            // NFTA_META_KEY, _SREG
            "meta" if code(3).is_some() => {
                if code(2) == Some(META_MARK) {
                    let mark = code(3).and_then(|register| self.constants.get(&slot(register)));
                    self.rule.changes.push(Change::Mark(mark.copied()));
                }
            }
            "synproxy" | "tproxy" | "fwd" => {
                self.rule.has_others = true;
                self.rule.verdict = ForeignVerdict::Unknown;
            }
            "meta" => self.load(
                code(1),
                match code(2) {
                    Some(META_IIFNAME) => Field::Incoming,
                    Some(META_OIFNAME) => Field::Outgoing,
                    Some(META_IIF) => Field::IncomingIndex,
                    Some(META_OIF) => Field::OutgoingIndex,
                    Some(META_NFPROTO) => Field::Family,
                    Some(META_L4PROTO) => Field::Protocol,
                    Some(META_MARK) => Field::Mark,
                    _ => Field::Other,
                },
            ),
            "payload" => self.load(code(1), self.payload([2, 3, 4].map(code))),
            "ct" => self.load(
                code(1),
                match code(2) {
                    Some(CT_STATE) => Field::State,
                    Some(CT_STATUS) => Field::Status,
                    _ => Field::Other,
                },
            ),
            "bitwise" => {
                let field = self.loaded(code(1)).map_or(Field::Other, |loaded| loaded.field);
                self.load(code(2), field);
                if let Some(loaded) = code(2).and_then(|register| self.registers.get_mut(&slot(register))) {
                    loaded.mask = Some(bytes(4).unwrap_or_default().to_vec());
                }
            }
            "cmp" => {
                let loaded = self.loaded(code(1)).unwrap_or(Loaded { field: Field::Other, mask: None });
                let value = bytes(3).unwrap_or_default();
                if !self.compare(&loaded, code(2), value) {
                    // With a mask, or if it is not to be zero, it is mostly a flag or a mark, which is to be set.
                    let is_set = loaded.mask.is_some() || value.iter().all(|byte| *byte == 0);
                    unread(&mut self.rule, code(2) == Some(NOT_EQUAL) && !is_set);
                }
            }
            "range" => {
                let loaded = self.loaded(code(1)).unwrap_or(Loaded { field: Field::Other, mask: None });
                let (first, last) = (bytes(3).unwrap_or_default(), bytes(4).unwrap_or_default());
                let inverted = code(2) == Some(NOT_EQUAL);
                if loaded.mask.is_some() || !restrict(&mut self.rule, loaded.field, first, last, inverted) {
                    unread(&mut self.rule, inverted && loaded.mask.is_none());
                }
            }
            "lookup" => {
                let set = attribute(data, 1).and_then(text_of).unwrap_or_default();
                // NFTA_LOOKUP_SREG, _DREG, _FLAGS with NFT_LOOKUP_F_INV
                let first = code(2).map_or(0, slot);
                let fields = self.fields(first);
                self.lookups.push(Lookup { set, fields, to: code(3), inverted: code(5) == Some(1) });
            }
            "match" => {
                let info = attribute(data, 3).unwrap_or_default();
                self.iptables_match(attribute(data, 1).and_then(text_of).as_deref().unwrap_or_default(), info);
            }
            "target" => match attribute(data, 1).and_then(text_of).as_deref() {
                Some("REJECT") => self.rule.verdict = ForeignVerdict::Drop,
                Some("MASQUERADE" | "SNAT") => self.rule.changes.push(Change::Source),
                Some("TCPMSS") => self.rule.changes.push(Change::SegmentSize),
                Some("MARK" | "CONNMARK") => self.rule.changes.push(Change::Mark(None)),
                Some("NFQUEUE") => self.rule.verdict = ForeignVerdict::Unknown,
                _ => {}
            },
            "queue" => self.rule.verdict = ForeignVerdict::Unknown,
            "reject" => self.rule.verdict = ForeignVerdict::Drop,
            "immediate" => {
                if let Some(verdict) = attribute(data, 2).and_then(|data| attribute(data, NFTA_DATA_VERDICT)) {
                    self.rule.verdict = verdict_of(verdict);
                } else if let (Some(register), Some(Ok(number))) = (code(1), bytes(2).map(<[u8; 4]>::try_from)) {
                    self.constants.insert(slot(register), u32::from_ne_bytes(number));
                }
            }
            _ => self.rule.has_others = true,
        }
    }

    /// Loads something into a register; without one it is stored, and no condition.
    fn load(&mut self, register: Option<u32>, field: Field) {
        if let Some(register) = register {
            self.registers.insert(slot(register), Loaded { field, mask: None });
            self.constants.remove(&slot(register));
        }
    }

    fn loaded(&self, register: Option<u32>) -> Option<Loaded> {
        self.registers.get(&slot(register?)).cloned()
    }

    /// What the registers from one on hold, as far as the length of each is known; with a mask it is something else.
    fn fields(&self, first: u32) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut at = first;
        while let Some(loaded) = self.registers.get(&at).filter(|loaded| loaded.mask.is_none()) {
            fields.push(loaded.field);
            let Some(length) = loaded.field.length().and_then(|length| u32::try_from(length.div_ceil(4)).ok()) else {
                break;
            };
            at += length;
        }
        fields
    }

    /// Bytes of the packet: the header, the first of them, and how many.
    fn payload(&self, place: [Option<u32>; 3]) -> Field {
        let [Some(header), Some(offset), Some(length)] = place else { return Field::Other };
        let Ok(size) = usize::try_from(length) else { return Field::Other };
        match (header, self.rule.family, offset) {
            (TRANSPORT_HEADER, _, 0) if length == 1 => Field::Icmp,
            (TRANSPORT_HEADER, _, 0) if length == 2 => Field::SourcePort,
            (TRANSPORT_HEADER, _, 2) if length == 2 => Field::Port,
            (TRANSPORT_HEADER, _, 0) if length == 4 => Field::BothPorts,
            (NETWORK_HEADER, Some(AddressFamily::V4), 9) if length == 1 => Field::Protocol,
            (NETWORK_HEADER, Some(AddressFamily::V6), 6) if length == 1 => Field::Protocol,
            (NETWORK_HEADER, Some(AddressFamily::V4), 12) if size <= 4 => Field::Source(AddressFamily::V4, size),
            (NETWORK_HEADER, Some(AddressFamily::V4), 16) if size <= 4 => Field::Destination(AddressFamily::V4, size),
            (NETWORK_HEADER, Some(AddressFamily::V6), 8) if size <= 16 => Field::Source(AddressFamily::V6, size),
            (NETWORK_HEADER, Some(AddressFamily::V6), 24) if size <= 16 => Field::Destination(AddressFamily::V6, size),
            _ => Field::Other,
        }
    }

    /// Adds a comparison to the conditions. False if it is not one that is read.
    fn compare(&mut self, loaded: &Loaded, operator: Option<u32>, value: &[u8]) -> bool {
        let ends = || {
            let least = vec![0; value.len()];
            let most = vec![0xff; value.len()];
            if operator == Some(AT_LEAST) { (value.to_vec(), most) } else { (least, value.to_vec()) }
        };
        if let (Some(AT_MOST | AT_LEAST), None) = (operator, &loaded.mask) {
            let (first, last) = ends();
            return bound(&mut self.rule, loaded.field, &first, &last);
        }
        let inverted = match operator {
            Some(EQUAL) => false,
            Some(NOT_EQUAL) => true,
            _ => return false,
        };
        match (loaded.field, &loaded.mask) {
            (Field::BothPorts, None) if !inverted => match value.split_at_checked(2) {
                Some((from, to)) => {
                    restrict(&mut self.rule, Field::SourcePort, from, from, false)
                        && restrict(&mut self.rule, Field::Port, to, to, false)
                }
                None => false,
            },
            (Field::Incoming | Field::Outgoing, None) => {
                names(&mut self.rule, loaded.field).push(NamePattern { name: pattern(value), inverted });
                true
            }
            (field @ (Field::IncomingIndex | Field::OutgoingIndex | Field::SourceRouteIndex), None) => {
                match value.try_into() {
                    Ok(index) => {
                        self.indices.push((field, u32::from_ne_bytes(index), inverted));
                        true
                    }
                    Err(_) => false,
                }
            }
            (Field::State, Some(mask)) => {
                let Ok(mask) = mask[..].try_into().map(u32::from_ne_bytes) else { return false };
                if value.iter().any(|byte| *byte != 0) {
                    return false;
                }
                self.rule.states = Some(if inverted { mask } else { !mask });
                true
            }
            // A status that a connection has or not, such as a translated destination: that of some.
            (Field::Status, Some(mask)) if inverted && value.iter().all(|byte| *byte == 0) => {
                let mask = mask[..].try_into().map(u32::from_ne_bytes);
                if mask.is_ok_and(|mask| mask & !TRANSLATED == 0) {
                    self.rule.conditions.push(Condition::Translated(true));
                } else {
                    self.rule.is_for_some = true;
                }
                true
            }
            (Field::SourceRoute, None) => {
                self.rule.conditions.push(Condition::SourceRoute(!inverted, vec![pattern(value)]));
                true
            }
            // None, or whether there is one.
            (Field::RouteBack, None) => {
                let is_missing = value.iter().all(|byte| *byte == 0);
                self.rule.conditions.push(Condition::Backwards(is_missing != inverted));
                true
            }
            (Field::Source(family, _) | Field::Destination(family, _), mask) => {
                let Some((first, last)) = masked(value, mask.as_deref(), octets(family)) else { return false };
                restrict(&mut self.rule, full(loaded.field), &first, &last, inverted)
            }
            (field, None) => restrict(&mut self.rule, field, value, value, inverted),
            _ => false,
        }
    }

    /// What iptables matches by itself.
    fn iptables_match(&mut self, name: &str, info: &[u8]) {
        let read = match name {
            "comment" => {
                let end = info.iter().position(|byte| *byte == 0).unwrap_or(info.len());
                self.comment = Some(String::from_utf8_lossy(&info[..end]).into_owned());
                true
            }
            "limit" => {
                self.rule.is_limited = true;
                true
            }
            // linux/netfilter/xt_tcpudp.h: ports as below, then an option and flags, of which some packets have each.
            "tcp" => {
                self.rule.protocol = Some(TCP);
                let any = [0, 0, 0xff, 0xff];
                let is_plain = info.get(..4) == Some(&any[..]) && info.get(8..12).is_some_and(|rest| rest == [0; 4]);
                self.rule.ports = info.get(4..8).filter(|range| **range != any).and_then(ports);
                self.rule.is_for_some |= !is_plain;
                true
            }
            "multiport" => multiport(info).is_some_and(|(is_inverted, ports)| {
                if is_inverted {
                    self.rule.exceptions.extend(ports.into_iter().map(|(first, last)| Exception::Ports(first, last)));
                } else {
                    self.ports = ports;
                }
                true
            }),
            "addrtype" => for_host(info).is_some_and(|for_host| {
                self.rule.is_for_host = Some(for_host);
                true
            }),
            "icmp" | "icmp6" => {
                self.rule.is_for_some = true;
                true
            }
            // linux/netfilter/xt_tcpudp.h: two ranges of ports, in the host's byte order, and which are inverted.
            "udp" => {
                self.rule.protocol = Some(UDP);
                let from = info.get(..4).and_then(ports);
                match (info.get(4..8).and_then(ports), info.get(8)) {
                    (Some(ports), Some(0)) => self.rule.ports = Some(ports),
                    (Some((first, last)), Some(2)) => self.rule.exceptions.push(Exception::Ports(first, last)),
                    _ => self.rule.has_others = true,
                }
                match from {
                    Some(from) => self.rule.conditions.push(Condition::SourcePort(true, vec![from])),
                    None => self.rule.has_others = true,
                }
                true
            }
            "conntrack" => match conntrack_states(info) {
                Some(states) => {
                    self.rule.states = Some(states);
                    true
                }
                None => false,
            },
            "state" => match info.try_into().map(u32::from_ne_bytes) {
                Ok(states) => {
                    self.rule.states = Some(states);
                    true
                }
                Err(_) => false,
            },
            _ => false,
        };
        if !read {
            unread(&mut self.rule, is_for_most(name, info));
        }
    }

    /// The rules that this one stands for, but for its look-ups, with the names of links in the place of their indices.
    pub(super) fn named(&mut self, links: &Names) -> Vec<ForeignRule> {
        for (field, index, inverted) in self.indices.drain(..) {
            link_is(&mut self.rule, field, index, inverted, links);
        }
        if self.ports.is_empty() {
            return vec![self.rule.clone()];
        }
        self.ports.iter().map(|ports| ForeignRule { ports: Some(*ports), ..self.rule.clone() }).collect()
    }
}

/// Has a rule be for packets from or to a link, or any other, by its index.
pub(super) fn link_is(rule: &mut ForeignRule, field: Field, index: u32, inverted: bool, links: &Names) {
    // No link has an empty name: one that is gone fits nothing.
    let name = links.get(&index).cloned().unwrap_or_default();
    if field == Field::SourceRouteIndex {
        rule.conditions.push(Condition::SourceRoute(!inverted, vec![name]));
        return;
    }
    names(rule, field).push(NamePattern { name, inverted });
}

/// The patterns of a rule for the interface that a field is about.
fn names(rule: &mut ForeignRule, field: Field) -> &mut Vec<NamePattern> {
    match field {
        Field::Incoming | Field::IncomingIndex => &mut rule.incoming,
        _ => &mut rule.outgoing,
    }
}

/// Gives a rule a condition that is not read: that packets are something, or that they are not.
pub(super) fn unread(rule: &mut ForeignRule, inverted: bool) {
    if inverted {
        rule.exceptions.push(Exception::Unread);
    } else {
        rule.has_others = true;
    }
}

/// Restricts a rule to packets in which a field is in a range with one end.
fn bound(rule: &mut ForeignRule, field: Field, first: &[u8], last: &[u8]) -> bool {
    match field {
        Field::Port => match (port(first).zip(port(last)), &mut rule.ports) {
            (Some((first, last)), Some(ports)) => *ports = (ports.0.max(first), ports.1.min(last)),
            (ports, unset) => *unset = ports,
        },
        Field::Source(..) | Field::Destination(..) => {
            let range = if matches!(field, Field::Source(..)) { &mut rule.source } else { &mut rule.destination };
            match (addresses(first, last), range) {
                (Some(other), Some(range)) => {
                    *range = AddressRange { first: range.first.max(other.first), last: range.last.min(other.last) };
                }
                (other, unset) => *unset = other,
            }
        }
        Field::SourcePort => return restrict(rule, field, first, last, false),
        _ => return false,
    }
    true
}

/// What a look-up of a route gives (NFTA_FIB_RESULT, NFTA_FIB_FLAGS).
fn route(result: Option<u32>, flags: Option<u32>) -> Field {
    const INDEX: u32 = 1;
    const NAME: u32 = 2;
    const OF_SOURCE: u32 = 1;
    const OF_MARK: u32 = 4;
    const BY_ITS_INTERFACE: u32 = 8;
    const IS_THERE: u32 = 32;
    let flags = flags.unwrap_or_default() & !OF_MARK;
    match result {
        Some(INDEX | NAME) if flags & !IS_THERE == OF_SOURCE | BY_ITS_INTERFACE => Field::RouteBack,
        Some(INDEX) if flags == OF_SOURCE => Field::SourceRouteIndex,
        Some(NAME) if flags == OF_SOURCE => Field::SourceRoute,
        _ => Field::Other,
    }
}

/// `TCPOPT_MAXSEG`.
const MAXIMUM_SEGMENT_SIZE: u8 = 2;

/// `IPS_NAT_MASK` of linux/netfilter/nf_conntrack_common.h.
const TRANSLATED: u32 = 0x30;

/// Has a rule be for packets only in which a field is from `first` to `last`, or is not. False if that is not read.
pub(super) fn restrict(rule: &mut ForeignRule, field: Field, first: &[u8], last: &[u8], inverted: bool) -> bool {
    let is_one = first == last;
    if let Some(exception) = exception(field, first, last).filter(|_| inverted) {
        rule.exceptions.push(exception);
        return true;
    }
    match (field, first) {
        (Field::Incoming | Field::Outgoing, _) => match name_range(first, last) {
            Some(name) => names(rule, field).push(NamePattern { name, inverted }),
            None => return false,
        },
        (Field::Family, [family, ..]) if is_one => {
            let other = |family| if family == AddressFamily::V4 { AddressFamily::V6 } else { AddressFamily::V4 };
            let family = family_of(*family).map(|family| if inverted { other(family) } else { family });
            match (family, rule.family) {
                (Some(family), None) => rule.family = Some(family),
                (family, had) => return family == had,
            }
        }
        (Field::Protocol, [protocol, ..]) if is_one && !inverted => rule.protocol = Some(*protocol),
        (Field::SourcePort, _) => match port(first).zip(port(last)) {
            Some(ports) => rule.conditions.push(Condition::SourcePort(!inverted, vec![ports])),
            None => return false,
        },
        (Field::Icmp, &[kind]) if is_one => rule.conditions.push(Condition::Icmp(!inverted, vec![kind])),
        (Field::Mark, &[a, b, c, d]) if is_one => {
            rule.conditions.push(Condition::Mark(!inverted, vec![u32::from_ne_bytes([a, b, c, d])]));
        }
        (Field::Port, _) if !inverted && rule.ports.is_none() => match port(first).zip(port(last)) {
            Some(ports) => rule.ports = Some(ports),
            None => return false,
        },
        (Field::State, &[a, b, c, d]) if is_one => {
            let state = u32::from_ne_bytes([a, b, c, d]);
            let states = if inverted { !state } else { state };
            rule.states = Some(rule.states.map_or(states, |before| before & states));
        }
        (Field::Source(..), _) if !inverted && rule.source.is_none() => match addresses(first, last) {
            Some(range) => rule.source = Some(range),
            None => return false,
        },
        (Field::Destination(..), _) if !inverted && rule.destination.is_none() => match addresses(first, last) {
            Some(range) => rule.destination = Some(range),
            None => return false,
        },
        _ => return false,
    }
    true
}

/// The condition that a field is in one of these ranges, or in none; none if that is not read.
pub(super) fn condition(
    field: Field,
    ranges: &[(Vec<u8>, Vec<u8>)],
    expected: bool,
    links: &Names,
) -> Option<Condition> {
    let names = || ranges.iter().map(|(first, last)| name_range(first, last)).collect::<Option<Vec<_>>>();
    let ones = || {
        let one = |(first, last): &(Vec<u8>, Vec<u8>)| if first == last { first.first().copied() } else { None };
        ranges.iter().map(one).collect::<Option<Vec<_>>>()
    };
    let numbers = || {
        let one = |(first, last): &(Vec<u8>, Vec<u8>)| {
            <[u8; 4]>::try_from(&first[..]).ok().filter(|_| first == last).map(u32::from_ne_bytes)
        };
        ranges.iter().map(one).collect::<Option<Vec<_>>>()
    };
    let links = || {
        let name = |index: u32| links.get(&index).cloned().unwrap_or_default();
        Some(numbers()?.into_iter().map(name).collect::<Vec<_>>())
    };
    let ports = || ranges.iter().map(|(first, last)| port(first).zip(port(last))).collect::<Option<Vec<_>>>();
    let nets = || {
        let nets = |(first, last): &(Vec<u8>, Vec<u8>)| addresses(first, last).map(|range| range.subnets());
        Some(ranges.iter().map(nets).collect::<Option<Vec<_>>>()?.concat())
    };
    Some(match field {
        Field::Incoming => Condition::Incoming(expected, names()?),
        Field::Outgoing => Condition::Outgoing(expected, names()?),
        Field::IncomingIndex => Condition::Incoming(expected, links()?),
        Field::OutgoingIndex => Condition::Outgoing(expected, links()?),
        Field::Family => Condition::Family(expected, ones()?.into_iter().filter_map(family_of).collect()),
        Field::Protocol => Condition::Protocol(expected, ones()?),
        Field::Icmp => Condition::Icmp(expected, ones()?),
        Field::SourcePort => Condition::SourcePort(expected, ports()?),
        Field::Port => Condition::Port(expected, ports()?),
        Field::State => Condition::States(expected, numbers()?.into_iter().fold(0, |all, state| all | state)),
        Field::Mark => Condition::Mark(expected, numbers()?),
        Field::Source(..) => Condition::Source(expected, nets()?),
        Field::Destination(..) => Condition::Destination(expected, nets()?),
        _ => return None,
    })
}

/// The packets in which a field is from `first` to `last`, as those that a rule is not for.
fn exception(field: Field, first: &[u8], last: &[u8]) -> Option<Exception> {
    match (field, first) {
        (Field::Protocol, &[protocol]) if first == last => Some(Exception::Protocol(protocol)),
        (Field::Port, _) => Some(Exception::Ports(port(first)?, port(last)?)),
        (Field::Source(..), _) => addresses(first, last).map(Exception::From),
        (Field::Destination(..), _) => addresses(first, last).map(Exception::To),
        _ => None,
    }
}

fn port(bytes: &[u8]) -> Option<u16> {
    bytes.try_into().ok().map(u16::from_be_bytes)
}

fn addresses(first: &[u8], last: &[u8]) -> Option<AddressRange> {
    Some(AddressRange { first: address(first)?, last: address(last)? })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|octets| Ipv4Addr::from(octets).into()),
        _ => <[u8; 16]>::try_from(bytes).ok().map(|octets| Ipv6Addr::from(octets).into()),
    }
}

/// The field for a whole address.
fn full(field: Field) -> Field {
    match field {
        Field::Source(family, _) => Field::Source(family, octets(family)),
        Field::Destination(family, _) => Field::Destination(family, octets(family)),
        field => field,
    }
}

/// The addresses, from the first to the last, whose first bits are those of `value`: as many bytes as are compared, or
/// the bits of a mask that is that of a prefix.
fn masked(value: &[u8], mask: Option<&[u8]>, length: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut mask = mask.map_or_else(|| vec![0xff; value.len()], <[u8]>::to_vec);
    if mask.len() != value.len() || mask.len() > length {
        return None;
    }
    let ones = mask.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let is_one = |bit: usize| mask[bit / 8] & (0x80 >> (bit % 8)) != 0;
    if !(0..ones as usize).all(is_one) {
        return None;
    }
    let mut first = value.to_vec();
    first.resize(length, 0);
    mask.resize(length, 0);
    let last = first.iter().zip(&mask).map(|(byte, mask)| byte | !mask).collect();
    Some((first, last))
}

/// What a verdict decides.
pub(super) fn verdict_of(verdict: &[u8]) -> ForeignVerdict {
    let Some(code) = attribute(verdict, NFTA_VERDICT_CODE).and_then(number) else { return ForeignVerdict::Continue };
    let chain = attribute(verdict, NFTA_VERDICT_CHAIN).and_then(text_of);
    match (code, code.cast_signed(), chain) {
        (ACCEPT, ..) => ForeignVerdict::Accept,
        (DROP, ..) => ForeignVerdict::Drop,
        (_, RETURN, _) => ForeignVerdict::Return,
        (_, JUMP, Some(chain)) => ForeignVerdict::Jump(chain),
        (_, GOTO, Some(chain)) => ForeignVerdict::Goto(chain),
        _ => ForeignVerdict::Continue,
    }
}

fn family_of(number: u8) -> Option<AddressFamily> {
    match number {
        NFPROTO_IPV4 => Some(AddressFamily::V4),
        NFPROTO_IPV6 => Some(AddressFamily::V6),
        _ => None,
    }
}

/// The place of a register: there are four of 16 bytes, and the same as sixteen of four (`NFT_REG_1`, `NFT_REG32_00`).
fn slot(register: u32) -> u32 {
    match register {
        1..=4 => (register - 1) * 4,
        8..=23 => register - 8,
        // That of verdicts, or none.
        _ => u32::MAX,
    }
}

/// The names from one to another, if that is one name, or all that begin with the same.
fn name_range(first: &[u8], last: &[u8]) -> Option<String> {
    if first == last {
        return Some(pattern(first));
    }
    let length = first.iter().rposition(|byte| *byte != 0)? + 1;
    let is_prefix = first.len() == last.len()
        && first[..length] == last[..length]
        && last[length..].iter().all(|byte| *byte == 0xff);
    is_prefix.then(|| pattern(&first[..length]))
}

/// The states that a match of the kind `conntrack` is for, if it is for nothing else (linux/netfilter/xt_conntrack.h,
/// `struct xt_conntrack_mtinfo3`: flags and inverted flags after eight addresses and four ports, then the states).
fn conntrack_states(info: &[u8]) -> Option<u32> {
    const STATE: u16 = 1;
    let field = |at: usize| info.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    let (flags, inverted, states) = (field(146)?, field(148)?, u32::from(field(150)?));
    (flags == STATE).then_some(if inverted & STATE == 0 { states } else { !states })
}

/// The destination ports of a match of the kind `multiport`, and whether all others are meant
/// (linux/netfilter/xt_multiport.h, `struct xt_multiport_v1`); none if it is about source ports.
fn multiport(info: &[u8]) -> Option<(bool, Vec<(u16, u16)>)> {
    const DESTINATION: u8 = 1;
    const MOST: usize = 15;
    let (kind, count, inverted) = (*info.first()?, usize::from(*info.get(1)?), *info.get(47)?);
    let port = |index: usize| info.get(2 + 2 * index..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes));
    let mut ranges = Vec::new();
    let mut index = 0;
    while index < count.min(MOST) {
        let first = port(index)?;
        // With a flag, the next port is the last one of the range.
        let is_range = *info.get(32 + index)? != 0;
        index += usize::from(is_range);
        ranges.push((first, port(index)?));
        index += 1;
    }
    (kind == DESTINATION && !ranges.is_empty()).then_some((inverted != 0, ranges))
}

/// Whether a match of the kind `addrtype` is for packets to the host alone, or for none of them (xt_addrtype.h,
/// `struct xt_addrtype_info_v1`: types of the source, of the destination, flags); none if it is for anything else.
fn for_host(info: &[u8]) -> Option<bool> {
    const LOCAL: u16 = 1 << 2;
    const INVERTED_DESTINATION: u32 = 2;
    let (source, destination) = (info.first_chunk()?, info.get(2..)?.first_chunk()?);
    let flags = u32::from_ne_bytes(*info.get(4..)?.first_chunk()?);
    let is_inverted = flags == INVERTED_DESTINATION;
    let is_read = u16::from_ne_bytes(*source) == 0 && u16::from_ne_bytes(*destination) == LOCAL;
    (is_read && (flags == 0 || is_inverted)).then_some(!is_inverted)
}

/// Whether a match that is not read may be for most packets. Those are for few that name what is unusual, or a list.
fn is_for_most(name: &str, info: &[u8]) -> bool {
    match name {
        // linux/netfilter/xt_set.h: the index of the set, its dimension, flags with IPSET_INV_MATCH.
        "set" => info.get(3).is_some_and(|flags| flags & 4 != 0),
        // xt_mark.h: the mark, its mask, whether it is inverted.
        "mark" | "connmark" => info.get(8) == Some(&1),
        // xt_mac.h: an address, and after a gap an int.
        "mac" => info.get(8..12).is_some_and(|inverted| inverted != [0; 4]),
        name => !FOR_FEW.contains(&name),
    }
}

/// Matches of iptables that are for few packets.
pub(super) const FOR_FEW: [&str; 22] = [
    "connlimit",
    "connbytes",
    "dscp",
    "ecn",
    "frag",
    "hashlimit",
    "helper",
    "hl",
    "ipv6header",
    "length",
    "physdev",
    "quota",
    "realm",
    "recent",
    "rpfilter",
    "rt",
    "socket",
    "statistic",
    "string",
    "tcpmss",
    "tos",
    "ttl",
];

/// The name of an interface; without a NUL at its end, `*` stands for what follows.
fn pattern(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    let name = String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned();
    if end.is_none() { name + "*" } else { name }
}

fn ports(range: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *range else { return None };
    Some((u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])))
}

pub(super) fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::linux::hostile::hostile_attributes;

    #[test]
    fn a_name_without_an_end_is_a_pattern() {
        assert_eq!(pattern(b"wg0\0\0\0"), "wg0");
        assert_eq!(pattern(b"wg"), "wg*");
        assert_eq!(pattern(b""), "*");
    }

    #[test]
    fn a_match_of_states_and_something_else_is_not_read() {
        let mut info = [0; 160];
        info[146..152].copy_from_slice(&[1, 0, 0, 0, 6, 0]);
        assert_eq!(conntrack_states(&info), Some(6));
        info[148] = 1;
        assert_eq!(conntrack_states(&info), Some(!6));
        info[146] = 3;
        assert_eq!(conntrack_states(&info), None);
        assert_eq!(conntrack_states(&info[..151]), None);
    }

    #[test]
    fn a_range_of_names_is_one_or_those_with_the_same_beginning() {
        let name = |text: &[u8], fill: u8| [text, &vec![fill; 16 - text.len()]].concat();
        assert_eq!(name_range(&name(b"eth0", 0), &name(b"eth0", 0)).as_deref(), Some("eth0"));
        assert_eq!(name_range(&name(b"wg", 0), &name(b"wg", 0xff)).as_deref(), Some("wg*"));
        assert_eq!(name_range(&name(b"a", 0), &name(b"b", 0xff)), None);
        assert_eq!(name_range(&[0; 16], &[0xff; 16]), None);
    }

    #[test]
    fn what_a_field_is_not_is_an_exception() {
        let read = |field, first: &[u8], last: &[u8]| {
            let mut rule = ForeignRule::default();
            restrict(&mut rule, field, first, last, true).then_some(rule.exceptions)
        };
        assert_eq!(read(Field::Protocol, &[6], &[6]), Some(vec![Exception::Protocol(6)]));
        assert_eq!(read(Field::Port, &[0, 53], &[1, 0]), Some(vec![Exception::Ports(53, 256)]));
        let range = addresses(&[10, 0, 0, 0], &[10, 0, 0, 255]).unwrap();
        let source = Field::Source(AddressFamily::V4, 4);
        assert_eq!(read(source, &[10, 0, 0, 0], &[10, 0, 0, 255]), Some(vec![Exception::From(range)]));
        let destination = Field::Destination(AddressFamily::V4, 4);
        assert_eq!(read(destination, &[10, 0, 0, 0], &[10, 0, 0, 255]), Some(vec![Exception::To(range)]));
        assert_eq!(read(Field::Status, &[0; 4], &[0; 4]), None);
        assert_eq!(read(Field::Port, &[0], &[1, 0]), None);
    }

    #[test]
    fn a_match_of_ports_may_be_inverted() {
        let read = |inverted| {
            let mut parsed = Parsed::default();
            let ports = [53_u16, 60].map(u16::to_ne_bytes).concat();
            parsed.iptables_match("udp", &[&[0, 0, 0xff, 0xff][..], &ports, &[inverted]].concat());
            parsed.rule
        };
        assert_eq!((read(0).ports, read(0).has_others), (Some((53, 60)), false));
        assert_eq!((read(2).ports, read(2).exceptions), (None, vec![Exception::Ports(53, 60)]));
        assert!(!read(2).has_others && read(1).has_others);
    }

    #[test]
    fn several_ports_are_several_rules() {
        let read = |kind: u8, inverted: u8| {
            // 80, 443:500
            let mut info = vec![kind, 3];
            info.extend([80_u16, 443, 500].into_iter().chain([0; 12]).flat_map(u16::to_ne_bytes));
            info.extend([0, 1, 0].into_iter().chain([0; 12]));
            info.push(inverted);
            let mut parsed = Parsed::default();
            parsed.iptables_match("multiport", &info);
            parsed.named(&Names::new())
        };
        let [one, range] = &read(1, 0)[..] else { panic!("{:?}", read(1, 0)) };
        assert_eq!((one.ports, range.ports), (Some((80, 80)), Some((443, 500))));
        assert_eq!(read(1, 1)[0].exceptions, [Exception::Ports(80, 80), Exception::Ports(443, 500)]);
        assert!(read(0, 0)[0].exceptions == [Exception::Unread] || read(0, 0)[0].has_others, "source ports");
    }

    #[test]
    fn a_list_that_is_inverted_is_for_most() {
        let read = |name: &str, info: &[u8]| {
            let mut parsed = Parsed::default();
            parsed.iptables_match(name, info);
            (parsed.rule.has_others, parsed.rule.exceptions)
        };
        let (few, most) = ((true, vec![]), (false, vec![Exception::Unread]));
        assert_eq!(read("set", &[1, 0, 1, 1]), few);
        assert_eq!(read("set", &[1, 0, 1, 5]), most);
        assert_eq!(read("recent", &[]), few);
        assert_eq!(read("geoip", &[]), most, "what is not known may be anything");
    }

    #[test]
    fn a_destination_of_the_host_is_read() {
        let info =
            |destination: u16, flags: u32| [&[0; 2][..], &destination.to_ne_bytes(), &flags.to_ne_bytes()].concat();
        assert_eq!(for_host(&info(4, 0)), Some(true));
        assert_eq!(for_host(&info(4, 2)), Some(false));
        assert_eq!(for_host(&info(8, 0)), None, "broadcast");
        assert_eq!(for_host(&info(4, 4)), None, "of the interface");
    }

    #[test]
    fn a_prefix_is_a_range_of_addresses() {
        let range = |value: &[u8], mask: Option<&[u8]>| {
            let (first, last) = masked(value, mask, 4)?;
            addresses(&first, &last).map(|range| (range.first.to_string(), range.last.to_string()))
        };
        let of = |first: &str, last: &str| Some((first.to_owned(), last.to_owned()));
        assert_eq!(range(&[10, 8, 0], None), of("10.8.0.0", "10.8.0.255"));
        assert_eq!(range(&[10, 8, 0, 0], Some(&[255, 255, 240, 0])), of("10.8.0.0", "10.8.15.255"));
        assert_eq!(range(&[10, 8, 0, 1], None), of("10.8.0.1", "10.8.0.1"));
        for mask in [[0, 0, 0, 255], [0xf0, 0x80, 0, 0]] {
            assert_eq!(range(&[0, 0, 0, 1], Some(&mask)), None, "that is no prefix");
        }
    }

    proptest! {
        #[test]
        fn no_expression_makes_it_panic(odd in hostile_attributes()) {
            let mut parsed = Parsed::default();
            for name in ["comment", "udp", "tcp", "multiport", "addrtype", "set", "mark", "mac", "conntrack", "state"] {
                parsed.iptables_match(name, &odd);
            }
            for name in ["meta", "payload", "ct", "bitwise", "cmp", "range", "lookup", "match", "target", "immediate"] {
                parsed.take(name, &odd);
            }
            for field in [Field::Incoming, Field::Family, Field::Port, Field::State, Field::Source(AddressFamily::V4, 3)] {
                for inverted in [false, true] {
                    let _ = restrict(&mut ForeignRule::default(), field, &odd, &odd, inverted);
                }
            }
        }
    }
}
