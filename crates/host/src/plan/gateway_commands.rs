//! The table of a gateway as the `nft` commands that make it.

use std::net::IpAddr;

use ipnet::IpNet;

use super::gateway::{IPV4_AND_TCP, IPV6_AND_TCP, IPV6_MIN_MTU, merged, named_services};
use crate::ranges::MACHINE_SERVICES;
use crate::spec::{AddressRange, Inbound, Restriction};
use crate::step::GatewayTable;

/// How many elements of a set are named; a comment says how many more there are.
const SHOWN: usize = 64;

/// The commands, each a line for a shell.
pub fn nft_commands(table: &GatewayTable) -> Vec<String> {
    let mut lines = vec![format!("add table {}\0", table.nft_name())];
    let name = table.nft_name();
    let interface = format!("\"{}\"", table.interface);
    let mut set = |set: &str, kind: &str, elements: &[String]| {
        let shown = elements.len().min(SHOWN);
        let more =
            if elements.len() > shown { format!(" # and {} more", elements.len() - shown) } else { String::new() };
        let listed = elements[..shown].join(", ");
        let listed = if listed.is_empty() { listed } else { format!(" elements = {{ {listed} }};") };
        lines.push(format!("add set {name} {set} {{ type {kind};{listed} }}\0{more}"));
    };
    let named = named_services(&table.restrictions);
    for (family, kind, is_v4) in [("4", "ipv4_addr", true), ("6", "ipv6_addr", false)] {
        let (sources, pairs) = restricted(&table.restrictions, is_v4);
        if !sources.is_empty() {
            set(&format!("restricted{family}"), &format!("{kind}; flags interval"), &sources);
            set(&format!("destinations{family}"), &format!("{kind} . {kind}; flags interval"), &pairs);
        }
    }
    if let Some(open) = &table.gateway {
        let families = [("4", "ipv4_addr", true), ("6", "ipv6_addr", false)];
        for (family, kind, is_v4) in families {
            set(&format!("services{family}"), &format!("{kind}; flags interval"), &of_family(&MACHINE_SERVICES, is_v4));
            let (_, pairs) = restricted(&named, is_v4);
            if !pairs.is_empty() {
                set(&format!("named_services{family}"), &format!("{kind} . {kind}; flags interval"), &pairs);
            }
        }
        let networks = |name: &str, nets: &[IpNet], (family, kind, is_v4): (&str, &str, bool)| {
            let networks = of_family(nets, is_v4);
            let is_needed = !networks.is_empty();
            is_needed.then(|| (format!("{name}{family}"), format!("{kind}; flags interval"), networks))
        };
        let of_sources = families.map(|family| {
            [networks("clients", &open.clients, family), networks("behind_peers", &open.behind_peers, family)]
        });
        of_sources.iter().flatten().flatten().for_each(|(name, kind, networks)| set(name, kind, networks));
        let devices: Vec<String> = open.devices.iter().map(|device| format!("\"{device}\"")).collect();
        set("gateways", "ifname", &devices);
        let masqueraded = families.map(|family| networks("masqueraded", &open.masqueraded, family));
        masqueraded.iter().flatten().for_each(|(name, kind, networks)| set(name, kind, networks));
    }
    let mut chain = |chain: &str, kind: &str, hook: &str| {
        lines.push(format!("add chain {name} {chain} {{ type {kind} hook {hook}; policy accept; }}\0"));
    };
    chain("forward", "filter", "forward priority filter");
    if let Some(open) = &table.gateway {
        chain("sources", "filter", "prerouting priority raw");
        chain("segments", "filter", "forward priority mangle");
        if !open.masqueraded.is_empty() {
            chain("nat", "nat", "postrouting priority srcnat");
        }
    }
    let mut rule = |chain: &str, rule: String| lines.push(format!("add rule {name} {chain} {rule}\0"));
    for (ip, family, is_v4) in [("ip", "4", true), ("ip6", "6", false)] {
        if !restricted(&table.restrictions, is_v4).0.is_empty() {
            rule(
                "forward",
                format!(
                    "iifname {interface} {ip} saddr @restricted{family} {ip} saddr . {ip} daddr != @destinations{family} counter drop"
                ),
            );
        }
    }
    for (ip, family, is_v4) in [("ip", "4", true), ("ip6", "6", false)].into_iter().filter(|_| table.gateway.is_some())
    {
        let unnamed = match restricted(&named, is_v4).1.is_empty() {
            true => String::new(),
            false => format!(" {ip} saddr . {ip} daddr != @named_services{family}"),
        };
        rule("forward", format!("iifname {interface} {ip} daddr @services{family}{unnamed} counter drop"));
    }
    if table.isolated {
        rule("forward", format!("iifname {interface} oifname {interface} counter drop"));
    }
    if let Some(open) = &table.gateway {
        if !table.isolated {
            rule("forward", format!("iifname {interface} oifname {interface} accept"));
        }
        rule("sources", "iifname \"lo\" accept".to_owned());
        rule("sources", format!("iifname {interface} accept"));
        for (ip, family, is_v4) in [("ip", "4", true), ("ip6", "6", false)] {
            let routed = format!(" fib saddr oifname {interface}");
            for (name, nets, routed) in [("clients", &open.clients, ""), ("behind_peers", &open.behind_peers, &*routed)]
            {
                if !of_family(nets, is_v4).is_empty() {
                    rule("sources", format!("{ip} saddr @{name}{family}{routed} counter drop"));
                }
            }
        }
        rule("forward", format!("iifname {interface} oifname @gateways accept"));
        rule("forward", format!("iifname {interface} ct status dnat accept"));
        rule("forward", format!("iifname {interface} counter drop"));
        rule("forward", format!("oifname {interface} ct status dnat ct state established,related accept"));
        let known = if open.inbound == Inbound::Replies { " ct state established,related" } else { "" };
        rule("forward", format!("oifname {interface} iifname @gateways{known} accept"));
        rule("forward", format!("oifname {interface} counter drop"));
        let opens = "tcp flags & (syn | rst) == syn tcp option maxseg size set";
        rule("segments", format!("oifname {interface} {opens} rt mtu"));
        for (version, headers, least) in [("ipv4", IPV4_AND_TCP, 0), ("ipv6", IPV6_AND_TCP, IPV6_MIN_MTU)] {
            if open.mtu >= least {
                let size = open.mtu.saturating_sub(headers);
                rule("segments", format!("iifname {interface} meta nfproto {version} {opens} {size}"));
            }
        }
        for (ip, family, is_v4) in [("ip", "4", true), ("ip6", "6", false)] {
            if !of_family(&open.masqueraded, is_v4).is_empty() {
                rule("nat", format!("oifname @gateways {ip} saddr @masqueraded{family} masquerade"));
            }
        }
    }
    lines.iter().map(|line| quoted(line)).collect()
}

/// A line for a shell: what is before the NUL in quotes, what is after it as it is.
fn quoted(line: &str) -> String {
    let (command, comment) = line.split_once('\0').unwrap_or((line, ""));
    format!("nft '{command}'{comment}")
}

/// The restricted addresses of a family, and the pairs of them with their destinations.
fn restricted(restrictions: &[Restriction], is_v4: bool) -> (Vec<String>, Vec<String>) {
    let (mut addresses, mut pairs) = (Vec::new(), Vec::new());
    for Restriction { sources, destinations } in restrictions {
        for source in sources.iter().filter(|source| source.first.is_ipv4() == is_v4) {
            let from = range(source);
            for to in destinations.iter().filter(|to| to.addr().is_ipv4() == is_v4) {
                pairs.push(format!("{from} . {}", net(to)));
            }
            addresses.push(*source);
        }
    }
    (merged(addresses).iter().map(range).collect(), pairs)
}

fn of_family(nets: &[IpNet], is_v4: bool) -> Vec<String> {
    nets.iter().filter(|net| net.addr().is_ipv4() == is_v4).map(net).collect()
}

fn range(range: &AddressRange) -> String {
    let AddressRange { first, last } = range;
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

fn net(net: &IpNet) -> String {
    match net.addr() {
        IpAddr::V4(address) if net.prefix_len() == 32 => address.to_string(),
        IpAddr::V6(address) if net.prefix_len() == 128 => address.to_string(),
        _ => net.to_string(),
    }
}
