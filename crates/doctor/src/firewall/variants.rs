//! Packets for which the conditions of a rule hold.

use ipnet::IpNet;
use linerate_host::condition::{Condition, Truth};
use linerate_host::verdict::NEW;

use super::Packet;

/// The ICMPv6 types of neighbour discovery.
const NEIGHBOURS: [&str; 5] =
    ["nd-router-solicit", "nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert", "nd-redirect"];

/// Returns variants of the packet for which all conditions hold or may hold; none if they cannot hold.
pub(super) fn for_which_hold<'a>(conditions: &'a [Condition], packet: &Packet<'a>) -> Vec<Packet<'a>> {
    conditions.iter().fold(vec![packet.clone()], |packets, condition| {
        packets.iter().flat_map(|packet| fitting(condition, packet)).collect()
    })
}

fn fitting<'a>(condition: &'a Condition, packet: &Packet<'a>) -> Vec<Packet<'a>> {
    let like = || packet.clone();
    let holds = condition.holds(&packet.asked(), Some(packet.mark));
    let name = |name: &'a String| name.trim_end_matches('*');
    let of_family = |net: &&IpNet| net.addr().is_ipv6() == packet.is_v6;
    match condition {
        _ if holds == Truth::Yes => vec![like()],
        Condition::Incoming(true, names) => {
            names.iter().map(|incoming| Packet { incoming: name(incoming), ..like() }).collect()
        }
        Condition::Outgoing(true, names) => {
            names.iter().map(|outgoing| Packet { outgoing: name(outgoing), ..like() }).collect()
        }
        Condition::Protocol(true, protocols) => {
            protocols.iter().map(|protocol| Packet { protocol: *protocol, ..like() }).collect()
        }
        Condition::Echo(true, names) if names.iter().all(|name| NEIGHBOURS.contains(&&**name)) => Vec::new(),
        Condition::SourcePort(true, ranges) => {
            ranges.iter().map(|(first, _)| Packet { source_port: Some(*first), ..like() }).collect()
        }
        Condition::Port(true, ranges) => {
            ranges.iter().map(|(first, _)| Packet { port: Some(*first), ..like() }).collect()
        }
        Condition::Source(true, nets) => {
            nets.iter().filter(of_family).map(|net| Packet { source: Some(net.network()), ..like() }).collect()
        }
        Condition::Destination(true, nets) => {
            let to = |net: &IpNet| Packet {
                destination: packet.destination.filter(|to| net.contains(to)).or(Some(net.network())),
                ..like()
            };
            nets.iter().filter(of_family).map(to).collect()
        }
        Condition::States(true, states) => vec![Packet { is_known: states & NEW == 0, ..like() }],
        Condition::Mark(true, marks) => marks.iter().map(|mark| Packet { mark: *mark, ..like() }).collect(),
        Condition::AnyOf(true, elements) => {
            elements.iter().flat_map(|element| for_which_hold(element, packet)).collect()
        }
        _ if holds == Truth::No => Vec::new(),
        _ => vec![like()],
    }
}
