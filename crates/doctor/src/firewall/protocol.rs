//! Protocols above IP: their names in `nft`, and their numbers.

use linerate_host::verdict::{TCP, UDP};

/// IPPROTO_ICMP.
pub(crate) const ICMP: u8 = 1;
/// IPPROTO_ICMPV6.
pub(crate) const ICMPV6: u8 = 58;

const NAMES: [(&str, u8); 12] = [
    ("icmp", ICMP),
    ("igmp", 2),
    ("tcp", TCP),
    ("udp", UDP),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", ICMPV6),
    ("ipv6-icmp", ICMPV6),
    ("sctp", 132),
    ("udplite", 136),
];

pub(super) fn number(name: &str) -> Option<u8> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number).or_else(|| name.parse().ok())
}

pub(super) fn name(number: u8) -> String {
    let known = NAMES.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| format!("protocol {number}"), |(name, _)| (*name).to_owned())
}
