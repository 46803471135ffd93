//! Checks that the protection of a tunnel and its host is in force, by the firewall, routes and sysctls in use rather
//! than by the tunnel's file.
//!
//! `gateway` checks what the host forwards, `client` what bypasses the tunnel. Both evaluate sample packets with
//! [`Ruleset::fate`](crate::firewall::Ruleset::fate). Where a rule is not understood, a finding says "may".

mod client;
mod gateway;

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_host::ranges::is_link_local;
use linerate_host::verdict::TCP;

use crate::evidence::{Evidence, Link};
use crate::firewall::{Fate, Packet, Ruleset};
use crate::{Finding, Severity};

pub(crate) fn examine(evidence: &Evidence) -> Vec<Finding> {
    if evidence.tunnel.link_down || evidence.tunnel.is_dead {
        return Vec::new();
    }
    let mut findings = gateway::examine(evidence);
    findings.extend(client::examine(evidence));
    findings
}

/// The port of sample packets: one that no common service uses, so that rules about services do not match.
const PORT: u16 = 50_123;

/// Sample addresses that stand for the whole Internet; several, since the file may exclude some.
const INTERNET: [&str; 6] =
    ["1.1.1.1", "8.8.8.8", "9.9.9.9", "2606:4700:4700::1111", "2001:4860:4860::8888", "2620:fe::fe"];

/// Whether this is an address of this version of IP, and not link-local.
pub(crate) fn is_routed(address: &IpNet, is_v6: bool) -> bool {
    address.addr().is_ipv6() == is_v6 && !is_link_local(address)
}

/// Picks an address of the Internet that is in none of these networks.
fn internet(is_v6: bool, outside: &[IpNet]) -> Option<IpAddr> {
    let mut addresses = INTERNET.iter().filter_map(|address| address.parse::<IpAddr>().ok());
    addresses.find(|address| address.is_ipv6() == is_v6 && !outside.iter().any(|net| net.contains(address)))
}

/// Links that are up, except for tunnels and loopback.
fn links(evidence: &Evidence) -> impl Iterator<Item = &Link> {
    let name = &evidence.tunnel.name;
    evidence.host.links.iter().filter(move |link| link.up && !link.is_tunnel && link.name != "lo" && link.name != *name)
}

/// Whether a link has an address of the family that is not link-local.
fn has_family(link: &Link, is_v6: bool) -> bool {
    link.addresses.iter().any(|address| is_routed(address, is_v6))
}

/// Whether the kernel forwards packets that come in by an interface. IPv6 has a sysctl for each interface since Linux
/// 6.17 (`ip6_forward` in net/ipv6/ip6_output.c).
fn forwards(evidence: &Evidence, interface: &str, is_v6: bool) -> bool {
    let is_on = |name: &str| evidence.host.sysctl(name) == Some("1");
    match is_v6 {
        false => is_on(&format!("net.ipv4.conf.{interface}.forwarding")),
        true => is_on("net.ipv6.conf.all.forwarding") || is_on(&format!("net.ipv6.conf.{interface}.force_forwarding")),
    }
}

/// Makes the first packet of a forwarded TCP connection.
fn connection<'a>(incoming: &'a str, outgoing: &'a str, source: Option<IpAddr>, is_v6: bool) -> Packet<'a> {
    Packet {
        hook: "forward",
        incoming,
        outgoing,
        protocol: TCP,
        source,
        source_port: Some(PORT),
        port: Some(PORT),
        is_v6,
        ..Packet::default()
    }
}

/// How certainly the packet passes; `None` if it is dropped.
fn passes(ruleset: &Ruleset, packet: &Packet<'_>) -> Option<Passage> {
    match ruleset.fate(packet) {
        Fate::Passes => Some(Passage::Certain),
        Fate::MayPass(drop) => Some(Passage::Perhaps(drop.place())),
        Fate::Dropped(_) => None,
    }
}

/// How certain it is that packets pass.
#[derive(Clone, PartialEq, Eq)]
enum Passage {
    Certain,
    /// The packets pass only if a condition that is not understood spares them from this drop.
    Perhaps(String),
}

impl Passage {
    /// Returns `VERB` or `may VERB`, for a plural subject.
    fn verb(&self, verb: &str) -> String {
        match self {
            Self::Certain => verb.to_owned(),
            Self::Perhaps(_) => format!("may {verb}"),
        }
    }

    /// Returns a clause that explains the uncertainty, or an empty one where the finding is certain.
    fn doubt(&self) -> String {
        match self {
            Self::Certain => String::new(),
            Self::Perhaps(place) => {
                format!("; this is uncertain: {place}, unless a condition that linerate cannot read lets them pass")
            }
        }
    }

    /// Lowers an error that is not certain to a warning.
    fn limits(&self, severity: Severity) -> Severity {
        match self {
            Self::Certain => severity,
            Self::Perhaps(_) => severity.max(Severity::Warning),
        }
    }
}

/// Returns the commands that restore a table of the tunnel.
fn mend(evidence: &Evidence, table: &str) -> String {
    let name = &evidence.tunnel.name;
    let is_there = evidence.host.tables.as_ref().is_none_or(|tables| tables.iter().any(|there| there == table));
    if !evidence.tunnel.protection.is_ours {
        format!("take {name} down with the tool that brought it up, then `linerate up {name}`")
    } else if is_there {
        format!("`nft delete table {table}`, then `linerate reload {name}`")
    } else {
        format!("`linerate reload {name}`")
    }
}

/// Says how a table is missing: it is gone, or it has no rules. `None` if it is in force.
fn is_gone(evidence: &Evidence, table: &str) -> Option<&'static str> {
    let is_there = evidence.host.tables.as_ref()?.iter().any(|there| there == table);
    let has_rules = || evidence.host.ruleset.as_ref().is_none_or(|ruleset| ruleset.has_rules(table));
    match is_there {
        false => Some("is gone"),
        true if !has_rules() => Some("has no rules"),
        true => None,
    }
}
