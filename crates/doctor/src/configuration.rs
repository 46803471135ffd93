//! Settings that contradict each other or the host.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::evidence::{Evidence, Peer};
use crate::traffic::is_gateway;
use crate::{Finding, Severity};

pub(crate) fn examine(evidence: &Evidence) -> Vec<Finding> {
    if evidence.tunnel.is_dead {
        return Vec::new();
    }
    let rules: [fn(&Evidence) -> Option<Finding>; 6] =
        [address_conflict, two_tunnels, two_peers, ipv6_disabled, ipv6_hardly_used, ipv6_without_nat];
    rules.iter().filter_map(|rule| rule(evidence)).collect()
}

fn address_conflict(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let others = evidence.host.links.iter().filter(|link| link.name != tunnel.name);
    let own = |address: &IpAddr| tunnel.addresses.iter().any(|own| own.addr() == *address);
    // Interfaces without a network of their own may share an address, and those of a link need not be unique.
    let is_host = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
    let conflicts = |address: &&IpNet| {
        let mut same = tunnel.addresses.iter().filter(|own| own.addr() == address.addr());
        !same.all(|own| is_link_local(own) || is_host(own) && is_host(address))
    };
    let shared = others.clone().find_map(|link| Some((link, link.addresses.iter().find(conflicts)?)));
    if let Some((link, address)) = shared {
        return Some(Finding::new(
            "address-conflict",
            &tunnel.name,
            format!("{} has the address {} as well", link.name, address.addr()),
            format!("{} and {} both have it, so answers may leave by the wrong one", tunnel.name, link.name),
            format!("another Address in the tunnel's file, then `linerate reload {}`", tunnel.name),
        ));
    }
    let local = |net: &IpNet| {
        is_host(net)
            && (own(&net.addr()) || others.clone().flat_map(|link| &link.addresses).any(|own| own.addr() == net.addr()))
    };
    tunnel.peers.iter().find_map(|peer| {
        let net = peer.allowed_ips.iter().find(|net| local(net))?;
        Some(
            Finding::new(
                "address-conflict",
                &tunnel.name,
                format!("the peer's address {} is one of this host's own", net.addr()),
                "it is among the peer's allowed IPs, and packets to it never leave this host",
                "give one of the two another address",
            )
            .of_peer(&peer.label),
        )
    })
}

fn is_link_local(net: &IpNet) -> bool {
    match net.addr() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Of networks to which the kernel makes no choice between tunnels, nothing is said: those of a link, groups, and
/// what is routed by hand.
fn two_tunnels(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    if tunnel.table_off {
        return None;
    }
    let is_chosen = |peer: &Peer, net: &IpNet| {
        let is_routed = || peer.ways.iter().any(|(way, _)| way == net);
        !is_link_local(net) && !net.addr().is_multicast() && (net.prefix_len() > 1 || is_routed())
    };
    let all = || {
        let of = |peer| move |net: &&IpNet| is_chosen(peer, net);
        tunnel.peers.iter().flat_map(move |peer| peer.allowed_ips.iter().filter(of(peer)))
    };
    evidence.others.iter().find_map(|other| {
        let theirs: HashSet<&IpNet> = other.allowed_ips.iter().collect();
        let shared = all().find(|net| theirs.contains(net))?;
        let count = all().filter(|net| theirs.contains(net)).count();
        Some(Finding::new(
            "allowed-ips-in-two-tunnels",
            &tunnel.name,
            format!("{shared} is among the allowed IPs of the tunnel {} as well", other.name),
            format!("{count} allowed IPs are in both; the route to each leads into one of the tunnels only"),
            format!("leave it to one of {} and {}", tunnel.name, other.name),
        ))
    })
}

fn two_peers(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let first = tunnel.allowed_ips_twice.first()?;
    Some(Finding::new(
        "allowed-ips-in-two-peers",
        &tunnel.name,
        format!("more than one peer has {first} among its allowed IPs in the file; only the last of them gets it"),
        match tunnel.allowed_ips_twice.len() {
            1 => "an allowed IP belongs to one peer, and the file has this one in two sections [Peer]".to_owned(),
            count => format!("an allowed IP belongs to one peer; {count} of the file's are in two sections [Peer]"),
        },
        format!("delete it in the other sections, then `linerate reload {}`", tunnel.name),
    ))
}

fn ipv6_disabled(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let name = &tunnel.name;
    // The value for all interfaces is copied to each when it is set, and counts for none.
    let off = format!("net.ipv6.conf.{name}.disable_ipv6");
    if evidence.host.sysctl(&off) != Some("1") {
        return None;
    }
    let nets = || tunnel.peers.iter().flat_map(|peer| &peer.allowed_ips).filter(|net| net.addr().is_ipv6());
    let net = nets().find(|net| net.prefix_len() > 1).or_else(|| nets().next())?;
    let finding = Finding::new(
        "ipv6-disabled",
        name,
        "peers have IPv6 addresses, and IPv6 is disabled on this interface",
        format!("{off} is 1, and {net} is an allowed IP"),
        format!(
            "`sysctl -w net.ipv6.conf.default.disable_ipv6=0`, then `linerate down {name}` and `linerate up {name}`; \
             or no IPv6 addresses in the file"
        ),
    );
    // Where everything is to go into the tunnel, that nothing goes as IPv6 is no loss.
    Some(if net.prefix_len() > 1 { finding } else { finding.with(Severity::Note) })
}

fn v6_addresses(evidence: &Evidence) -> (bool, bool) {
    let v6 = || {
        evidence.tunnel.addresses.iter().filter_map(|address| match address.addr() {
            IpAddr::V6(address) if !address.is_unicast_link_local() => Some(address),
            _ => None,
        })
    };
    (v6().next().is_some(), v6().all(|address| address.is_unique_local()))
}

fn ipv6_hardly_used(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let has_default = |is_v6| {
        let mut nets = tunnel.peers.iter().flat_map(|peer| &peer.allowed_ips);
        nets.any(|net| net.addr().is_ipv6() == is_v6 && net.prefix_len() <= 1)
    };
    let (has_v6, all_local) = v6_addresses(evidence);
    (has_v6 && all_local && has_default(true) && has_default(false)).then(|| {
        Finding::new(
            "ipv6-hardly-used",
            &tunnel.name,
            "IPv6 goes through the tunnel but programs will hardly use it",
            "its IPv6 addresses are all unique local (fc00::/7), before which programs prefer IPv4 (RFC 6724)",
            "nothing to do if IPv4 is enough; otherwise the server has to give out addresses of a public prefix",
        )
    })
}

fn ipv6_without_nat(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let (has_v6, all_local) = v6_addresses(evidence);
    let ruleset = evidence.host.ruleset.as_ref()?;
    let own = || tunnel.addresses.iter().filter(|address| address.addr().is_ipv6());
    let translated = own().any(|address| ruleset.translates(&address.trunc()));
    let severity = if evidence.host.reaches_ipv6 { Severity::Warning } else { Severity::Note };
    let is_known = !evidence.host.has_legacy_rules;
    (is_gateway(evidence, false) && has_v6 && all_local && !translated && is_known).then(|| {
        let finding = Finding::new(
            "ipv6-without-nat",
            &tunnel.name,
            "IPv6 of clients reaches nothing outside: their addresses are local and not translated",
            format!(
                "{} is unique local, IPv4 is translated, IPv6 is not",
                own().next().map(ToString::to_string).unwrap_or_default()
            ),
            "Masquerade = auto in the tunnel's file (Gateway), or a rule that masquerades IPv6, or a public prefix",
        );
        finding.with(severity)
    })
}
