//! Settings that contradict each other or the host.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::Finding;
use crate::evidence::Evidence;
use crate::traffic::is_gateway;

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
    let shared =
        others.clone().find_map(|link| Some((link, link.addresses.iter().find(|address| own(&address.addr()))?)));
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
        let is_host = net.prefix_len() == net.max_prefix_len();
        is_host
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

fn two_tunnels(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    evidence.others.iter().find_map(|other| {
        let all = tunnel.peers.iter().flat_map(|peer| &peer.allowed_ips);
        let shared = all.clone().find(|net| other.allowed_ips.contains(net))?;
        let count = all.filter(|net| other.allowed_ips.contains(net)).count();
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
        format!("the file gives {first} to two peers, and only the last of them has it"),
        format!("{} allowed IPs are in more than one [Peer]", tunnel.allowed_ips_twice.len()),
        format!("leave it to one of them in the file, then `linerate reload {}`", tunnel.name),
    ))
}

fn ipv6_disabled(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let name = format!("net.ipv6.conf.{}.disable_ipv6", tunnel.name);
    let is_off = |name: &str| evidence.host.sysctl(name) == Some("1");
    let off = [name.as_str(), "net.ipv6.conf.all.disable_ipv6"].into_iter().find(|name| is_off(name))?;
    let net = tunnel.peers.iter().flat_map(|peer| &peer.allowed_ips).find(|net| net.addr().is_ipv6())?;
    Some(Finding::new(
        "ipv6-disabled",
        &tunnel.name,
        "peers have IPv6 addresses, and IPv6 is disabled on this host",
        format!("{off} is 1, and {net} is an allowed IP"),
        format!("`sysctl -w {off}=0`, or no IPv6 addresses in the file"),
    ))
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
    (is_gateway(evidence, false) && has_v6 && all_local && !translated).then(|| {
        Finding::new(
            "ipv6-without-nat",
            &tunnel.name,
            "IPv6 of clients reaches nothing outside: their addresses are local and not translated",
            format!(
                "{} is unique local, IPv4 is translated, IPv6 is not",
                own().next().map(ToString::to_string).unwrap_or_default()
            ),
            "Masquerade = auto in the tunnel's file (Gateway), or a rule that masquerades IPv6, or a public prefix",
        )
    })
}
