//! Packets for which the conditions of a rule hold.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_host::condition::{Condition, Truth};
use linerate_host::spec::AddressRange;
use linerate_host::state::{ForeignRule, NamePattern};
use linerate_host::verdict::NEW;

use super::Packet;

/// Returns variants of the packet that the rule is for, or may be for.
pub(super) fn of<'a>(rule: &'a ForeignRule, packet: &Packet<'a>) -> Vec<Packet<'a>> {
    let mut like = packet.clone();
    let fit = |name: &'a str, patterns: &'a [NamePattern]| match patterns.iter().find(|pattern| !pattern.fits(name)) {
        Some(pattern) if !pattern.inverted => pattern.name.trim_end_matches('*'),
        _ => name,
    };
    let within = |range: Option<AddressRange>, address: Option<IpAddr>| match (range, address) {
        (Some(range), Some(address)) if (range.first..=range.last).contains(&address) => Some(address),
        (Some(range), _) => Some(range.first),
        (None, address) => address,
    };
    like.incoming = fit(like.incoming, &rule.incoming);
    like.outgoing = fit(like.outgoing, &rule.outgoing);
    like.protocol = rule.protocol.unwrap_or(like.protocol);
    if rule.states.is_some_and(|states| states & packet.asked().state == 0) {
        like.is_known = !packet.is_known;
    }
    let has_port = |(first, last): (u16, u16)| like.port.is_some_and(|port| (first..=last).contains(&port));
    if let Some(ports) = rule.ports.filter(|ports| !has_port(*ports)) {
        like.port = Some(ports.0);
    }
    like.source = within(rule.source, like.source);
    like.destination = within(rule.destination, like.destination);
    let mut packets = for_which_hold(&rule.conditions, &like);
    packets.retain(|packet| rule.may_be_for(&packet.asked(), packet.mark));
    packets
}

fn for_which_hold<'a>(conditions: &'a [Condition], packet: &Packet<'a>) -> Vec<Packet<'a>> {
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
