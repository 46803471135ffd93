//! Finds traffic that bypasses the tunnel: through holes in the kill switch, by more specific routes, and DNS queries.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_host::ranges::is_local;
use linerate_host::verdict::{TCP, UDP};

use super::{PORT, Passage, forwards, internet, is_gone, links, mend, passes};
use crate::evidence::{Evidence, RoutePast, Way};
use crate::firewall::{Packet, Ruleset};
use crate::{Finding, Severity};

/// The most holes, and the most routes, that are listed.
const LISTED: usize = 8;

/// The setting that keeps routes from bypassing the tunnel.
const CLOSE: &str = "`#! KillSwitch = true` in the tunnel's file";

pub(super) fn examine(evidence: &Evidence) -> Vec<Finding> {
    let mut findings: Vec<Finding> = table_gone(evidence).collect();
    findings.extend(kill_switch(evidence));
    findings.extend(names(evidence));
    findings.extend(routes_past(evidence));
    findings
}

/// Reports the tunnel's tables that are missing or empty.
fn table_gone(evidence: &Evidence) -> impl Iterator<Item = Finding> {
    evidence.tunnel.protection.tables.iter().filter_map(|table| {
        let how = is_gone(evidence, table)?;
        Some(Finding::new(
            "protection-missing",
            &evidence.tunnel.name,
            format!("table {table}, which protects the tunnel's addresses, {how}"),
            "without it neighbours reach the tunnel's addresses, and strict reverse path filters drop its packets",
            mend(evidence, table),
        ))
    })
}

/// Reports a missing kill switch table, or else the holes in it.
fn kill_switch(evidence: &Evidence) -> Vec<Finding> {
    let Some(table) = &evidence.tunnel.protection.kill_switch else { return Vec::new() };
    match (is_gone(evidence, table), &evidence.host.ruleset) {
        (Some(how), _) => vec![Finding::new(
            "kill-switch-hole",
            &evidence.tunnel.name,
            format!("the kill switch is not in force: its table {table} {how}"),
            "the tunnel's file has KillSwitch, and nothing keeps packets from leaving outside the tunnel",
            mend(evidence, table),
        )],
        (None, Some(ruleset)) => holes(evidence, ruleset, table),
        (None, None) => Vec::new(),
    }
}

/// Finds packets that the kill switch lets pass though neither ExcludedIPs nor ExcludeLAN names them.
fn holes(evidence: &Evidence, ruleset: &Ruleset, table: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for is_v6 in [false, true] {
        for packet in leaving(evidence, is_v6) {
            let mut others = ruleset.accepted_by(table, &packet);
            // The most general hole is tried first: if it is certain, narrower ones are not listed.
            others.insert(0, packet.clone());
            // Rules that match other interfaces accept a different packet; the loop tries that one by itself.
            others.retain(|other| other.outgoing == packet.outgoing && other.incoming == packet.incoming);
            for other in others.iter().filter(|packet| !is_meant(evidence, packet)) {
                if let Some(finding) = hole(evidence, ruleset, table, other)
                    && findings.iter().all(|known| known.what != finding.what)
                {
                    findings.push(finding);
                }
                if other == &packet && passes(ruleset, other) == Some(Passage::Certain) {
                    break;
                }
            }
        }
    }
    findings.truncate(LISTED);
    findings
}

/// Returns new connections to the Internet outside the tunnel: the host's own, and those that it forwards.
fn leaving<'a>(evidence: &'a Evidence, is_v6: bool) -> Vec<Packet<'a>> {
    let Some(destination) = internet(is_v6, &evidence.tunnel.protection.excluded) else { return Vec::new() };
    let has_address = |link: &str| {
        let link = evidence.host.link(link);
        link.is_some_and(|link| link.addresses.iter().any(|address| address.addr().is_ipv6() == is_v6))
    };
    let names = || links(evidence).map(|link| &*link.name).filter(|link| has_address(link));
    let packet = |hook: &'a str, incoming: &'a str, outgoing: &'a str| Packet {
        hook,
        incoming,
        outgoing,
        protocol: TCP,
        destination: Some(destination),
        source_port: Some(PORT),
        port: Some(PORT),
        is_v6,
        ..Packet::default()
    };
    let mut packets = Vec::new();
    for outgoing in names() {
        packets.push(packet("output", "", outgoing));
        let from = names().filter(|from| *from != outgoing && forwards(evidence, from, is_v6));
        packets.extend(from.map(|from| packet("forward", from, outgoing)));
    }
    packets
}

/// Whether the packet may leave outside the tunnel: the tunnel's own datagrams, what the file excludes, and DHCP.
fn is_meant(evidence: &Evidence, packet: &Packet<'_>) -> bool {
    let tunnel = &evidence.tunnel;
    let is_own = tunnel.fwmark != 0 && packet.mark == tunnel.fwmark;
    let is_dhcp = packet.protocol == UDP
        && matches!((packet.source_port, packet.port), (Some(68), Some(67)) | (Some(546), Some(547)));
    let is_excluded = packet.destination.is_some_and(|to| {
        tunnel.protection.excluded.iter().any(|net| net.contains(&to))
            || (tunnel.protection.exclude_lan && (is_local(&to.into()) || to.is_multicast()))
    });
    is_own || is_dhcp || is_excluded
}

fn hole(evidence: &Evidence, ruleset: &Ruleset, table: &str, packet: &Packet<'_>) -> Option<Finding> {
    let passage = passes(ruleset, packet)?;
    let everything = internet(packet.is_v6, &evidence.tunnel.protection.excluded);
    let to = match packet.destination {
        Some(to) if packet.destination != everything => to.to_string(),
        _ if packet.is_v6 => "any IPv6 address".to_owned(),
        _ => "any IPv4 address".to_owned(),
    };
    let which = match (packet.hook, packet.is_known) {
        ("forward", _) => "forwarded packets",
        (_, true) => "packets of existing connections",
        _ => "packets of this host",
    };
    let port = packet.port.filter(|port| *port != PORT).map_or_else(String::new, |port| format!(" to port {port}"));
    let mark = if packet.mark == 0 { String::new() } else { format!(" with the mark {:#x}", packet.mark) };
    let finding = Finding::new(
        "kill-switch-hole",
        &evidence.tunnel.name,
        format!("the kill switch has a hole: {which} to {to} {} outside the tunnel", passage.verb("leave")),
        format!(
            "no chain drops {}{port}{mark} to {to} over {}, which neither ExcludedIPs nor ExcludeLAN names{}",
            packet.protocol_name(),
            packet.outgoing,
            passage.doubt()
        ),
        mend(evidence, table),
    );
    Some(finding.with(passage.limits(Severity::Error)))
}

/// Whether this is a full tunnel for a version of IP, and the kernel's routes agree.
fn is_full(evidence: &Evidence, is_v6: bool) -> bool {
    let own = Way::Device(evidence.tunnel.name.clone());
    let ways = evidence.tunnel.peers.iter().flat_map(|peer| &peer.ways);
    let nets = ways.filter(|(net, way)| *way == own && net.prefix_len() <= 1 && net.addr().is_ipv6() == is_v6);
    let nets: Vec<IpNet> = nets.map(|(net, _)| *net).collect();
    IpNet::aggregate(&nets).iter().any(|net| net.prefix_len() == 0)
}

/// Reports the first name server that is queried outside a full tunnel, or that the firewall blocks all of them.
fn names(evidence: &Evidence) -> Option<Finding> {
    let (tunnel, host) = (&evidence.tunnel, &evidence.host);
    if !is_full(evidence, false) && !is_full(evidence, true) {
        return None;
    }
    let question = |server: IpAddr, outgoing| Packet {
        hook: "output",
        outgoing,
        protocol: UDP,
        destination: Some(server),
        source_port: Some(PORT),
        port: Some(53),
        is_v6: server.is_ipv6(),
        ..Packet::default()
    };
    let beside = |way: &Option<Way>| match way {
        Some(Way::Device(device)) => links(evidence).map(|link| link.name.as_str()).find(|link| link == device),
        _ => None,
    };
    let servers: Vec<_> = host.name_servers.iter().filter_map(|(server, way)| Some((server, beside(way)?))).collect();
    let passage = |packet| host.ruleset.as_ref().map_or(Some(Passage::Certain), |ruleset| passes(ruleset, &packet));
    let asked =
        servers.iter().find_map(|(server, device)| Some((server, device, passage(question(**server, device))?)));
    let is_beside = |server: &IpAddr| servers.iter().any(|(beside, _)| *beside == server);
    let behind = tunnel.protection.name_servers.iter().find(|server| !is_beside(server));
    let name = &tunnel.name;
    let remedy = match behind {
        Some(_) => format!("`linerate down {name}`, then `linerate up {name}`, which sets the file's DNS again"),
        None => format!(
            "`DNS = ADDRESS` of a server behind the tunnel, in the tunnel's file, then `linerate reload {name}`"
        ),
    };
    let Some((server, device, passage)) = asked else {
        let (server, device) = servers.first().filter(|_| servers.len() == host.name_servers.len())?;
        return Some(Finding::new(
            "names-blocked",
            &tunnel.name,
            format!("names do not resolve: the firewall drops queries to the name server {server}"),
            format!("the route to {server} leads over {device}, outside the tunnel, and no other server is reachable"),
            remedy,
        ));
    };
    let finding = Finding::new(
        "names-in-the-clear",
        &tunnel.name,
        format!("DNS queries {} the tunnel, in the clear: the name server is {server}", passage.verb("bypass")),
        format!("this is a full tunnel, but the route to {server} leads over {device}{}", passage.doubt()),
        remedy,
    );
    let is_excluded = tunnel.protection.excluded.iter().any(|net| net.contains(*server));
    let is_asked_for = is_excluded || tunnel.protection.name_servers.contains(server);
    Some(if is_asked_for { finding.with(Severity::Note) } else { finding })
}

/// Reports more specific routes that bypass the tunnel. Any host on the link can set them by DHCP or router
/// advertisements (TunnelVision, CVE-2024-3661).
fn routes_past(evidence: &Evidence) -> Vec<Finding> {
    let tunnel = &evidence.tunnel;
    let is_any_full = is_full(evidence, false) || is_full(evidence, true);
    if !is_any_full || tunnel.protection.kill_switch.is_some() {
        return Vec::new();
    }
    let is_excluded = |route: &&RoutePast| tunnel.protection.excluded.iter().any(|net| net.contains(&route.to));
    let past = evidence.host.routes_past.iter().filter(|route| is_full(evidence, route.to.addr().is_ipv6()));
    let public: Vec<&RoutePast> =
        past.filter(|route| !is_local(&route.to) && !route.to.addr().is_multicast() && !is_excluded(route)).collect();
    let (own, others): (Vec<&RoutePast>, Vec<&RoutePast>) =
        public.into_iter().partition(|route| is_own_network(evidence, route));
    let remedy = format!(
        "{CLOSE}, then `linerate reload {}`; list networks to reach outside the tunnel in ExcludedIPs",
        tunnel.name
    );
    let finding =
        |what: &str, why: String| Finding::new("routes-past-the-tunnel", &tunnel.name, what, why, remedy.clone());
    let mut findings = Vec::new();
    if !others.is_empty() {
        findings.push(finding("more specific routes bypass this full tunnel", list(&others)));
    }
    let open = "the local network can set routes that bypass the tunnel (DHCP, router advertisements)";
    let why = match own.is_empty() {
        true => "more specific routes win over the tunnel's; none to a public network is set now".to_owned(),
        false => format!(
            "more specific routes win over the tunnel's; those to public networks are of the links themselves: {}",
            list(&own)
        ),
    };
    findings.push(finding(open, why).with(Severity::Note));
    findings
}

/// Whether the route is to a link's own network: the link's address is in it, and its prefix is long enough.
fn is_own_network(evidence: &Evidence, route: &RoutePast) -> bool {
    let shortest = if route.to.addr().is_ipv4() { 16 } else { 64 };
    let link = evidence.host.link(&route.device);
    let is_there = link.is_some_and(|link| link.addresses.iter().any(|address| route.to.contains(&address.addr())));
    route.via.is_none() && route.to.prefix_len() >= shortest && is_there
}

fn list(routes: &[&RoutePast]) -> String {
    let one = |route: &&RoutePast| format!("{} over {} ({})", route.to, route.device, protocol(route.protocol));
    let named: Vec<String> = routes.iter().take(LISTED).map(one).collect();
    let more = if routes.len() > LISTED { format!(" and {} more", routes.len() - LISTED) } else { String::new() };
    named.join(", ") + &more
}

/// What added a route, as `ip route` names it (rtnetlink.h, `RTPROT_*`).
fn protocol(number: u8) -> String {
    let name = match number {
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        12 => "bird",
        16 => "dhcp",
        186 => "bgp",
        188 => "ospf",
        number => return format!("proto {number}"),
    };
    format!("proto {name}")
}
