//! Finds packets that a gateway must not forward: those between its other networks, those with a forged client address,
//! those to metadata services, and those that the tunnel's file forbids.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_host::plan::forwarding_guard::ForwardingGuard;

use super::{Passage, connection, forwards, has_family, internet, is_gone, is_routed, links, mend, passes};
use crate::evidence::{Evidence, Link, Peer, Way};
use crate::firewall::{Packet, Ruleset};
use crate::traffic::{in_sysctl, is_gateway};
use crate::{Finding, Severity};

/// The most clients whose `Destinations` are checked, and the most addresses that are tried for one client.
const ASKED: usize = 4;

/// The most pairs of interfaces, and the most kinds of packets, that a finding names.
const NAMED: usize = 6;

pub(super) fn examine(evidence: &Evidence) -> Vec<Finding> {
    let tunnel = &evidence.tunnel;
    if let Some(table) = &tunnel.protection.gateway_table
        && let Some(how) = is_gone(evidence, table)
    {
        return vec![Finding::new(
            "protection-missing",
            &tunnel.name,
            format!("table {table}, which restricts what is forwarded for the tunnel, {how}"),
            "Gateway, ClientIsolation and Destinations in the tunnel's file need its rules",
            mend(evidence, table),
        )];
    }
    let Some(ruleset) = &evidence.host.ruleset else { return Vec::new() };
    let mut findings = Vec::new();
    for is_v6 in [false, true] {
        let family = Family { evidence, ruleset, is_v6 };
        findings.extend(family.protection_missing());
        if !is_gateway(evidence, is_v6) {
            continue;
        }
        findings.extend(family.forwards_between_others());
        findings.extend(family.pool_spoofable());
        findings.extend(family.metadata_reachable());
    }
    findings
}

/// The gateway for one version of IP.
struct Family<'a> {
    evidence: &'a Evidence,
    ruleset: &'a Ruleset,
    is_v6: bool,
}

impl<'a> Family<'a> {
    fn name(&self) -> &'static str {
        if self.is_v6 { "IPv6" } else { "IPv4" }
    }

    fn tunnel(&self) -> &'a str {
        &self.evidence.tunnel.name
    }

    /// Links, other than tunnels, that have an address of the family.
    fn links(&self) -> impl Iterator<Item = &'a Link> {
        let is_v6 = self.is_v6;
        links(self.evidence).filter(move |link| has_family(link, is_v6))
    }

    fn forwards(&self, interface: &str) -> bool {
        forwards(self.evidence, interface, self.is_v6)
    }

    /// Peers, each with an address that it may send from.
    fn clients(&self) -> impl Iterator<Item = (IpAddr, &'a Peer)> {
        let is_v6 = self.is_v6;
        let address = move |peer: &Peer| {
            let is_usable = |net: &&IpNet| is_routed(net, is_v6) && net.prefix_len() > 1;
            let mut nets = peer.allowed_ips.iter().filter(is_usable);
            nets.find_map(|net| net.hosts().take(ASKED).find(|address| self.is_alone(net, address)))
        };
        self.evidence.tunnel.peers.iter().filter_map(move |peer| Some((address(peer)?, peer)))
    }

    /// Whether the address belongs to this prefix's peer: no other peer has a longer prefix that contains it.
    fn is_alone(&self, net: &IpNet, address: &IpAddr) -> bool {
        let all = || self.evidence.tunnel.peers.iter().flat_map(|peer| &peer.allowed_ips);
        let is_longer = |other: &IpNet| other.prefix_len() > net.prefix_len() && other.contains(address);
        net.prefix_len() == net.max_prefix_len() || !all().any(is_longer)
    }

    /// Whether this tunnel switched on forwarding for the link.
    fn is_opened_by_us(&self, link: &str) -> bool {
        let set = &self.evidence.tunnel.protection.sysctls;
        let link = in_sysctl(link);
        match self.is_v6 {
            false => set.contains(&format!("net.ipv4.conf.{link}.forwarding")),
            true => {
                set.contains("net.ipv6.conf.all.forwarding")
                    || set.contains(&format!("net.ipv6.conf.{link}.force_forwarding"))
            }
        }
    }

    /// The remedy: restore the gateway's rules, or have linerate make them.
    fn mend(&self) -> String {
        let table = self.evidence.tunnel.protection.gateway_table.as_ref();
        table.map_or_else(
            || {
                "set `#! Gateway = auto` in the tunnel's file, or drop such packets in the host's own firewall"
                    .to_owned()
            },
            |table| mend(self.evidence, table),
        )
    }

    /// Reports packets that the file forbids and the rules let pass.
    fn protection_missing(&self) -> Vec<Finding> {
        let protection = &self.evidence.tunnel.protection;
        if protection.gateway_table.is_none() {
            return Vec::new();
        }
        let finding = |what: String, why: String, severity: Severity| {
            Finding::new("protection-missing", self.tunnel(), what, why, self.mend()).with(severity)
        };
        let mut findings = Vec::new();
        let passing = self.forbidden().into_iter();
        let passing = passing.filter_map(|(setting, who, packet)| Some((setting, who, passes(self.ruleset, &packet)?)));
        let (certain, perhaps): (Vec<_>, Vec<_>) = passing.partition(|(.., passage)| *passage == Passage::Certain);
        for all in [certain, perhaps] {
            let Some((.., passage)) = all.first() else { continue };
            let mut settings: Vec<&str> = all.iter().map(|(setting, ..)| *setting).collect();
            settings.dedup();
            let who: Vec<&str> = all.iter().map(|(_, who, _)| who.as_str()).collect();
            findings.push(finding(
                format!(
                    "{} not in force for {}: {} {}",
                    are(&settings),
                    self.name(),
                    listed(&who),
                    passage.verb("pass")
                ),
                format!("the tunnel's file forbids them, and no chain drops them{}", passage.doubt()),
                passage.limits(Severity::Error),
            ));
        }
        let own = self.evidence.tunnel.addresses.iter().map(IpNet::trunc);
        let own = own.filter(|net| is_routed(net, self.is_v6));
        let untranslated = own.into_iter().find(|net| !self.ruleset.translates(net));
        if let Some(net) =
            untranslated.filter(|_| protection.is_gateway && protection.masquerade[usize::from(self.is_v6)])
        {
            findings.push(finding(
                format!("Masquerade is not in force for {}", self.name()),
                format!("no rule translates addresses of {net}"),
                Severity::Error,
            ));
        }
        findings
    }

    /// Returns packets that the file forbids, each with the setting that forbids it and a description.
    fn forbidden(&self) -> Vec<(&'static str, String, Packet<'a>)> {
        let tunnel = &self.evidence.tunnel;
        let protection = &tunnel.protection;
        let name = self.tunnel();
        let mut clients = self.clients();
        let Some((client, _)) = clients.next() else { return Vec::new() };
        let mut forbidden = Vec::new();
        if self.forwards(name) {
            let other = clients.next().map(|(other, _)| other);
            let to = |packet: Packet<'a>, destination| Packet { destination, ..packet };
            let from = |outgoing, client| connection(name, outgoing, Some(client), self.is_v6);
            if protection.isolated {
                forbidden.push((
                    "ClientIsolation",
                    "packets of one client to another".to_owned(),
                    to(from(name, client), other),
                ));
            }
            for link in self.links().filter(|link| protection.is_gateway && !tunnel.gateway.contains(&link.name)) {
                let who = format!("packets of clients to {}", link.name);
                forbidden.push(("Gateway", who, to(from(&link.name, client), neighbour(link, self.is_v6))));
            }
            let devices = self.links().filter(|link| tunnel.gateway.is_empty() || tunnel.gateway.contains(&link.name));
            let outgoing = devices.map(|link| &*link.name).next();
            let restricted = self.clients().filter(|(_, peer)| !peer.destinations.is_empty()).take(ASKED);
            for (client, peer) in restricted {
                let Some(outgoing) = outgoing else { continue };
                let Some(elsewhere) = internet(self.is_v6, &peer.destinations) else { continue };
                let who = format!("packets of {} to addresses that its Destinations do not list", peer.label);
                forbidden.push(("Destinations", who, to(from(outgoing, client), Some(elsewhere))));
            }
        }
        for link in self.links().filter(|link| protection.is_gateway && self.forwards(&link.name)) {
            if protection.replies_only || !tunnel.gateway.contains(&link.name) {
                let setting = if protection.replies_only { "Inbound = replies" } else { "Gateway" };
                let packet = connection(&link.name, name, neighbour(link, self.is_v6), self.is_v6);
                let who = format!("new connections from {} to clients", link.name);
                forbidden.push((setting, who, Packet { destination: Some(client), ..packet }));
            }
        }
        forbidden
    }

    /// Reports forwarding from one of the host's networks to another, neither of which is the tunnel.
    fn forwards_between_others(&self) -> Vec<Finding> {
        let mut passing: Vec<(&Link, &Link, Passage, Severity)> = Vec::new();
        for from in self.links().filter(|link| self.forwards(&link.name)) {
            let by_us = self.is_opened_by_us(&from.name);
            for to in self.links().filter(|to| to.name != from.name) {
                let packet = connection(&from.name, &to.name, neighbour(from, self.is_v6), self.is_v6);
                let packet = Packet { destination: neighbour(to, self.is_v6), ..packet };
                if let Some(passage) = passes(self.ruleset, &packet) {
                    // Forwarding that the administrator or another program switched on is theirs to restrict.
                    let severity = if by_us { passage.limits(Severity::Error) } else { Severity::Note };
                    passing.push((from, to, passage, severity));
                }
            }
        }
        let mut findings = Vec::new();
        for severity in [Severity::Error, Severity::Warning, Severity::Note] {
            let all: Vec<_> = passing.iter().filter(|pair| pair.3 == severity).collect();
            let Some((_, _, passage, _)) = all.first() else { continue };
            let pairs: Vec<String> = all.iter().map(|(from, to, ..)| format!("{} to {}", from.name, to.name)).collect();
            let by = match severity {
                Severity::Note => "linerate did not switch on forwarding there",
                _ => "linerate switched on forwarding there for the tunnel",
            };
            let remedy = match severity {
                Severity::Note => "drop unwanted packets in the host's own firewall".to_owned(),
                _ => mend(self.evidence, ForwardingGuard::NFT_NAME),
            };
            findings.push(
                Finding::new(
                    "forwards-between-others",
                    self.tunnel(),
                    format!(
                        "this host forwards {} between networks other than the tunnel: packets {} from {}",
                        self.name(),
                        passage.verb("pass"),
                        listed(&pairs),
                    ),
                    format!("{by}, and no chain drops such packets{}", passage.doubt()),
                    remedy,
                )
                .with(severity),
            );
        }
        findings
    }

    /// Reports that packets from outside the tunnel with a client's source address reach this host or are forwarded.
    fn pool_spoofable(&self) -> Option<Finding> {
        let (client, _) = self.clients().next()?;
        let mut links = self.links().filter(|from| !self.is_filtered(from));
        let (from, to, passage) = links.find_map(|from| {
            let pretended = |hook, to, destination| {
                let packet = connection(&from.name, to, Some(client), self.is_v6);
                Packet { hook, destination, source_route: Some(self.tunnel()), ..packet }
            };
            let own = from.addresses.iter().find(|own| is_routed(own, self.is_v6)).map(IpNet::addr);
            let to_host = ("this host", pretended("input", "", own));
            let forwarded = self.links().filter(|_| self.forwards(&from.name)).map(|to| {
                let is_same = to.name == from.name;
                let destination = if is_same { internet(self.is_v6, &[]) } else { neighbour(to, self.is_v6) };
                (to.name.as_str(), pretended("forward", &to.name, destination))
            });
            let mut all = forwarded.chain([to_host]);
            all.find_map(|(to, packet)| Some((from, to, passes(self.ruleset, &packet)?)))
        })?;
        let finding = Finding::new(
            "pool-spoofable",
            self.tunnel(),
            format!("a host outside the tunnel can forge a client's address ({})", self.name()),
            format!(
                "packets that come in by {} from {client}, an address of a client, {} to {to}{}",
                from.name,
                passage.verb("pass"),
                passage.doubt()
            ),
            self.mend(),
        );
        Some(finding.with(self.severity(Severity::Warning)))
    }

    /// Whether strict reverse path filtering drops packets on this link whose source is routed elsewhere. IPv4 only.
    fn is_filtered(&self, link: &Link) -> bool {
        let value = |of: &str| {
            let value = self.evidence.host.sysctl(&format!("net.ipv4.conf.{of}.rp_filter"));
            value.and_then(|value| value.parse::<u8>().ok())
        };
        !self.is_v6 && value("all").max(value(&link.name)) == Some(1)
    }

    /// Reports the first metadata service that a client reaches though its `Destinations` do not name it.
    fn metadata_reachable(&self) -> Option<Finding> {
        if !self.forwards(self.tunnel()) {
            return None;
        }
        let services = self.evidence.host.metadata.iter().filter(|(address, _)| address.is_ipv6() == self.is_v6);
        let beside = |way: &'a Way| match way {
            Way::Device(device) if device != self.tunnel() && device != "lo" => Some(device.as_str()),
            _ => None,
        };
        let (address, device, passage) = services.into_iter().find_map(|(address, way)| {
            let device = beside(way)?;
            let is_asked_for = |peer: &Peer| peer.destinations.iter().any(|net| net.contains(address));
            let clients = self.clients().filter(|(_, peer)| !is_asked_for(peer));
            // A client without `Destinations` is the likeliest to get through.
            let (client, _) = clients.min_by_key(|(_, peer)| !peer.destinations.is_empty())?;
            let packet = connection(self.tunnel(), device, Some(client), self.is_v6);
            let packet = Packet { destination: Some(*address), port: Some(80), ..packet };
            Some((address, device, passes(self.ruleset, &packet)?))
        })?;
        let finding = Finding::new(
            "metadata-reachable",
            self.tunnel(),
            format!("clients {} the metadata service of this host's cloud provider", passage.verb("reach")),
            format!(
                "clients' packets to {address} leave by {device}, and the answers contain this host's secrets{}",
                passage.doubt()
            ),
            self.mend(),
        );
        Some(finding.with(self.severity(Severity::Warning)))
    }

    /// Lowers a finding to a note where the administrator made the gateway by hand.
    fn severity(&self, severity: Severity) -> Severity {
        if self.evidence.tunnel.protection.is_gateway { severity } else { Severity::Note }
    }
}

/// Joins the settings with their verb: `A is`, `A, B are`.
fn are(settings: &[&str]) -> String {
    format!("{} {}", settings.join(", "), if settings.len() == 1 { "is" } else { "are" })
}

/// Joins the first [`NAMED`], and counts the rest.
fn listed<T: AsRef<str>>(all: &[T]) -> String {
    let named: Vec<&str> = all.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = if all.len() > NAMED { format!(" and {} more", all.len() - NAMED) } else { String::new() };
    named.join(", ") + &more
}

/// Picks an address in the link's network that is not the host's own.
fn neighbour(link: &Link, is_v6: bool) -> Option<IpAddr> {
    let mut networks = link.addresses.iter().filter(|net| is_routed(net, is_v6));
    let own = |address: &IpAddr| link.addresses.iter().any(|net| net.addr() == *address);
    let before = |address: IpAddr, count: u8| match address {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits().saturating_sub(count.into())).into()),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits().saturating_sub(count.into())).into()),
    };
    networks.find_map(|net| {
        let mut last = (1..=3).map(|count| before(net.broadcast(), count));
        last.find(|address| net.contains(address) && *address != net.network() && !own(address))
    })
}
