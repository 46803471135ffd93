//! A condition of a rule: a field of the packet, and the values that it may have.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::step::AddressFamily;
use crate::verdict::{ESTABLISHED, Packet};

/// A field and its values. With `false` all other values are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// The interface that the packet comes in by.
    Incoming(bool, Vec<String>),
    /// The interface that it leaves by.
    Outgoing(bool, Vec<String>),
    /// The protocol above IP.
    Protocol(bool, Vec<u8>),
    /// The type of an ICMP message: that of an echo request, or of its answer.
    Icmp(bool, Vec<u8>),
    /// The version of IP.
    Family(bool, Vec<AddressFamily>),
    /// The source port.
    SourcePort(bool, Vec<(u16, u16)>),
    /// The destination port.
    Port(bool, Vec<(u16, u16)>),
    /// The source address.
    Source(bool, Vec<IpNet>),
    /// The destination address.
    Destination(bool, Vec<IpNet>),
    /// The state of its connection (`NF_CT_STATE_BIT` of the kernel).
    States(bool, u32),
    /// Its mark.
    Mark(bool, Vec<u32>),
    /// NAT translates an address of its connection (`ct status`).
    Translated(bool),
    /// The route to its source leads over one of these interfaces (`fib saddr oif`).
    SourceRoute(bool, Vec<String>),
    /// The route to its source does not lead over the interface that it came in by (`fib saddr . iif oif missing`).
    Backwards(bool),
    /// All fields of one of these elements (a concatenation).
    AnyOf(bool, Vec<Vec<Condition>>),
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds.
    Yes,
    /// It does not.
    No,
    /// The field or the condition is not known.
    Perhaps,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

impl Truth {
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Yes, _) | (_, Self::Yes) => Self::Yes,
            (Self::No, Self::No) => Self::No,
            _ => Self::Perhaps,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Perhaps,
        }
    }
}

impl Condition {
    /// Whether it holds for a packet with this mark.
    pub fn holds(&self, packet: &Packet<'_>, mark: Option<u32>) -> Truth {
        let is_known = packet.state & ESTABLISHED != 0;
        let source_route = packet.sample.as_ref().and_then(|sample| sample.source_route);
        let (expected, truth) = match self {
            Self::Incoming(expected, names) => (expected, is_named(names, packet.from)),
            Self::Outgoing(expected, names) => (expected, is_named(names, packet.to.unwrap_or_default())),
            Self::Protocol(expected, protocols) => (expected, protocols.contains(&packet.protocol).into()),
            Self::Icmp(expected, kinds) => {
                let kind = match (packet.family, is_known) {
                    (AddressFamily::V4, known) => 8 * u8::from(!known),
                    (AddressFamily::V6, known) => 128 + u8::from(known),
                };
                (expected, kinds.contains(&kind).into())
            }
            Self::Family(expected, families) => (expected, families.contains(&packet.family).into()),
            Self::SourcePort(expected, ranges) => {
                (expected, is_port(ranges, packet.sample.as_ref().and_then(|sample| sample.source_port)))
            }
            Self::Port(expected, ranges) => (expected, is_port(ranges, packet.port)),
            Self::Source(expected, nets) => (expected, is_in(nets, packet.source.as_deref())),
            Self::Destination(expected, nets) => (expected, is_in(nets, packet.destination.as_deref())),
            Self::States(expected, states) => (expected, (states & packet.state != 0).into()),
            Self::Mark(expected, marks) => (expected, mark.map_or(Truth::Perhaps, |mark| marks.contains(&mark).into())),
            Self::Translated(expected) => (expected, if is_known { Truth::Perhaps } else { Truth::No }),
            Self::SourceRoute(expected, names) => {
                (expected, source_route.map_or(Truth::Perhaps, |route| is_named(names, route)))
            }
            Self::Backwards(expected) => {
                (expected, source_route.map_or(Truth::Perhaps, |route| (route != packet.from).into()))
            }
            Self::AnyOf(expected, elements) => {
                let fits = |element: &Vec<Self>| {
                    element.iter().map(|field| field.holds(packet, mark)).fold(Truth::Yes, Truth::and)
                };
                (expected, elements.iter().map(fits).fold(Truth::No, Truth::or))
            }
        };
        match (truth, expected) {
            (truth, true) => truth,
            (Truth::Yes, false) => Truth::No,
            (Truth::No, false) => Truth::Yes,
            (Truth::Perhaps, false) => Truth::Perhaps,
        }
    }
}

fn is_named(names: &[String], value: &str) -> Truth {
    let fits = |name: &String| match name.strip_suffix('*') {
        Some(start) => value.starts_with(start),
        None => name == value,
    };
    names.iter().any(fits).into()
}

fn is_port(ranges: &[(u16, u16)], port: Option<u16>) -> Truth {
    port.map_or(Truth::Perhaps, |port| ranges.iter().any(|(first, last)| (*first..=*last).contains(&port)).into())
}

/// Whether addresses, all of which may be meant, are in these networks.
fn is_in(nets: &[IpNet], addresses: Option<&[IpNet]>) -> Truth {
    let touches = |address: &IpNet| nets.iter().any(|net| net.contains(address) || address.contains(net));
    match addresses {
        Some(addresses) if addresses.iter().all(|address| nets.iter().any(|net| net.contains(address))) => Truth::Yes,
        Some(addresses) if !addresses.iter().any(touches) => Truth::No,
        _ => Truth::Perhaps,
    }
}
