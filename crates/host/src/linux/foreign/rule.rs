//! A rule of nf_tables as the kernel has it: expressions that load something into registers and compare it
//! (`nft --debug=netlink` prints them).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_netlink::{attribute, attributes, text_of};

use super::Names;
use super::sets::Lookup;
use crate::linux::nftables::{
    ACCEPT, CT_STATE, CT_STATUS, DROP, META_IIF, META_IIFNAME, META_L4PROTO, META_NFPROTO, META_OIF, META_OIFNAME,
    NETWORK_HEADER, NFPROTO_IPV4, NFPROTO_IPV6, NFTA_DATA_VALUE, NFTA_DATA_VERDICT, NFTA_EXPR_DATA, NFTA_EXPR_NAME,
    NFTA_LIST_ELEM, NFTA_VERDICT_CODE, TRANSPORT_HEADER,
};
use crate::spec::AddressRange;
use crate::state::{Exception, ForeignRule, ForeignVerdict, NamePattern};
use crate::step::AddressFamily;

const NFTA_VERDICT_CHAIN: u16 = 2;

// linux/netfilter/nf_tables.h
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;

const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;
const UDP: u8 = 17;

/// A rule whose sets are not read yet.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) rule: ForeignRule,
    /// What is looked up in sets and maps.
    pub(super) lookups: Vec<Lookup>,
    /// Conditions on links by their indices, inverted or not.
    pub(super) indices: Vec<(Field, u32, bool)>,
    pub(super) comment: Option<String>,
    registers: BTreeMap<u32, Loaded>,
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
    Port,
    State,
    Status,
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
            Self::IncomingIndex | Self::OutgoingIndex | Self::State => 4,
            Self::Family | Self::Protocol => 1,
            Self::Port => 2,
            Self::Source(family, length) | Self::Destination(family, length) if length == octets(family) => length,
            Self::Status | Self::Other | Self::Source(..) | Self::Destination(..) => return None,
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
            "counter" | "log" | "last" => {}
            "limit" | "quota" | "connlimit" => self.rule.is_for_some = true,
            "meta" => self.load(
                code(1),
                match code(2) {
                    Some(META_IIFNAME) => Field::Incoming,
                    Some(META_OIFNAME) => Field::Outgoing,
                    Some(META_IIF) => Field::IncomingIndex,
                    Some(META_OIF) => Field::OutgoingIndex,
                    Some(META_NFPROTO) => Field::Family,
                    Some(META_L4PROTO) => Field::Protocol,
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
            "target" => {
                if attribute(data, 1).and_then(text_of).is_some_and(|target| target == "REJECT") {
                    self.rule.verdict = ForeignVerdict::Drop;
                }
            }
            "reject" => self.rule.verdict = ForeignVerdict::Drop,
            "immediate" => {
                if let Some(verdict) = attribute(data, 2).and_then(|data| attribute(data, NFTA_DATA_VERDICT)) {
                    self.rule.verdict = verdict_of(verdict);
                }
            }
            _ => self.rule.has_others = true,
        }
    }

    /// Loads something into a register; without one it is stored, and no condition.
    fn load(&mut self, register: Option<u32>, field: Field) {
        if let Some(register) = register {
            self.registers.insert(slot(register), Loaded { field, mask: None });
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
            (TRANSPORT_HEADER, _, 2) if length == 2 => Field::Port,
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
        if let (Field::Port, &[high, low]) = (loaded.field, value)
            && let Some(AT_MOST | AT_LEAST) = operator
        {
            let port = u16::from_be_bytes([high, low]);
            let (first, last) = self.rule.ports.get_or_insert((0, u16::MAX));
            *(if operator == Some(AT_LEAST) { first } else { last }) = port;
            return true;
        }
        let inverted = match operator {
            Some(EQUAL) => false,
            Some(NOT_EQUAL) => true,
            _ => return false,
        };
        match (loaded.field, &loaded.mask) {
            (Field::Incoming | Field::Outgoing, None) => {
                names(&mut self.rule, loaded.field).push(NamePattern { name: pattern(value), inverted });
                true
            }
            (field @ (Field::IncomingIndex | Field::OutgoingIndex), None) => match value.try_into() {
                Ok(index) => {
                    self.indices.push((field, u32::from_ne_bytes(index), inverted));
                    true
                }
                Err(_) => false,
            },
            (Field::State, Some(mask)) => {
                let Ok(mask) = mask[..].try_into().map(u32::from_ne_bytes) else { return false };
                if value.iter().any(|byte| *byte != 0) {
                    return false;
                }
                self.rule.states = Some(if inverted { mask } else { !mask });
                true
            }
            // A status that a connection has or not, such as a translated destination: that of some.
            (Field::Status, Some(_)) if inverted && value.iter().all(|byte| *byte == 0) => {
                self.rule.is_for_some = true;
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
                self.rule.is_for_some = true;
                true
            }
            // linux/netfilter/xt_tcpudp.h: two ranges of ports, in the host's byte order, and which are inverted.
            "udp" => {
                self.rule.protocol = Some(UDP);
                let from_any = info.get(..4).is_some_and(|from| from == [0, 0, 0xff, 0xff]);
                match (info.get(4..8).and_then(ports), info.get(8)) {
                    (Some(ports), Some(0)) => self.rule.ports = Some(ports),
                    (Some((first, last)), Some(2)) => self.rule.exceptions.push(Exception::Ports(first, last)),
                    _ => self.rule.has_others = true,
                }
                from_any
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
        self.rule.has_others |= !read;
    }

    /// The rule with the names of links in the place of their indices.
    pub(super) fn named(&mut self, links: &Names) {
        for (field, index, inverted) in self.indices.drain(..) {
            link_is(&mut self.rule, field, index, inverted, links);
        }
    }
}

/// Has a rule be for packets from or to a link, or any other, by its index.
pub(super) fn link_is(rule: &mut ForeignRule, field: Field, index: u32, inverted: bool, links: &Names) {
    // No link has an empty name: one that is gone fits nothing.
    let name = links.get(&index).cloned().unwrap_or_default();
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
            for name in ["comment", "udp", "conntrack", "state"] {
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
