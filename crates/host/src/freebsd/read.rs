//! What ifconfig(8) and netstat(1) print, as the state of a host.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde::Deserialize;

use crate::plan::one_table;
use crate::state::{HostState, Link};
use crate::step::{AddressFamily, MAIN, Route, Rule};

/// The links of `ifconfig -a` (sbin/ifconfig/ifconfig.c, status; af_inet.c and af_inet6.c). What is not understood is left
/// out.
pub(super) fn links(text: &str) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after =
            |word: &str| words.iter().position(|other| *other == word).and_then(|at| words.get(at + 1)).copied();
        if !line.starts_with(char::is_whitespace) {
            let Some((name, rest)) = line.split_once(": flags=") else { continue };
            let flags = rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(flags, _)| flags);
            links.push(Link {
                name: name.to_owned(),
                index: links.len() as u32 + 1,
                mtu: after("mtu").and_then(|mtu| mtu.parse().ok()).unwrap_or(0),
                up: flags.split(',').any(|flag| flag == "UP"),
                ..Link::default()
            });
            continue;
        }
        let Some(link) = links.last_mut() else { continue };
        match words[..] {
            ["inet", address, ..] => {
                let mask = after("netmask").and_then(|mask| u32::from_str_radix(mask.strip_prefix("0x")?, 16).ok());
                let prefix = mask.and_then(|mask| ipnet::ipv4_mask_to_prefix(Ipv4Addr::from_bits(mask)).ok());
                link.addresses.extend(with_prefix(address, prefix));
            }
            ["inet6", address, ..] => {
                let prefix = after("prefixlen").and_then(|prefix| prefix.parse().ok());
                link.addresses.extend(with_prefix(address, prefix));
            }
            ["groups:", ref groups @ ..] => {
                (link.tun, link.wireguard) = (groups.contains(&"tun"), groups.contains(&"wg"))
            }
            _ => {}
        }
    }
    links
}

fn with_prefix(address: &str, prefix: Option<u8>) -> Option<IpNet> {
    IpNet::new(without_zone(address)?, prefix?).ok()
}

/// An address, which may have the interface that it is valid on after a `%`.
fn without_zone(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

#[derive(Deserialize)]
struct Printed {
    statistics: Statistics,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Statistics {
    route_information: RouteInformation,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RouteInformation {
    route_table: RouteTable,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RouteTable {
    #[serde(default)]
    rt_family: Vec<Family>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Family {
    address_family: String,
    #[serde(default)]
    rt_entry: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Entry {
    destination: String,
    gateway: String,
    flags: String,
    #[serde(default)]
    mtu: serde_json::Value,
    interface_name: String,
}

/// The routes of `netstat --libxo json -rnW` for one family (usr.bin/netstat/route.c, p_rtable_sysctl and p_rtentry_sysctl;
/// route_netlink.c has the same names). Without `-W` names of interfaces are cut.
///
/// # Errors
/// It is something else.
pub(super) fn routes(text: &str) -> io::Result<Vec<Route>> {
    // Nothing is printed of a family that the kernel does not have.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let printed: Printed = serde_json::from_str(text)
        .map_err(|error| io::Error::other(format!("netstat prints something else than expected: {error}")))?;
    let families = printed.statistics.route_information.route_table.rt_family;
    let all =
        families.iter().flat_map(|family| family.rt_entry.iter().map(|entry| (family.address_family.as_str(), entry)));
    Ok(all.filter_map(|(family, entry)| route(family, entry)).collect())
}

fn route(family: &str, entry: &Entry) -> Option<Route> {
    let to = match (entry.destination.as_str(), family) {
        ("default", "Internet6") => "::/0".parse().ok()?,
        ("default", _) => "0.0.0.0/0".parse().ok()?,
        (host, _) if !host.contains('/') => IpNet::from(without_zone(host)?),
        // The zone is before the length.
        (net, _) => {
            let (address, length) = net.split_once('/')?;
            IpNet::new(without_zone(address)?, length.parse().ok()?).ok()?
        }
    };
    // The letters of RTF_GATEWAY, without which it is the link itself, RTF_BLACKHOLE and RTF_REJECT.
    let has = |flags: &[char]| entry.flags.contains(flags);
    let is_unreachable = has(&['B', 'R']);
    let via = if has(&['G']) && !is_unreachable { Some(without_zone(&entry.gateway)?) } else { None };
    let device = Some(entry.interface_name.as_str()).filter(|_| !is_unreachable);
    let mut route = one_table::static_route(to, device, via);
    // A number, whatever its quotes.
    route.mtu = entry.mtu.to_string().trim_matches('"').trim().parse().unwrap_or(0);
    if !entry.flags.contains('S') {
        route.protocol = PROTOCOL_KERNEL;
    }
    Some(route)
}

/// That of routes which the kernel adds, as on Linux (rtnetlink.h, `RTPROT_KERNEL`).
const PROTOCOL_KERNEL: u8 = 2;

/// The state of a host with one routing table, and no firewall of ours.
pub(super) fn host_state(links: Vec<Link>, mut routes: Vec<Route>, has_ipv6: bool) -> HostState {
    // Every route is printed with an MTU, mostly that of its link.
    for route in &mut routes {
        let link = links.iter().find(|link| route.device.as_ref() == Some(&link.name));
        if link.is_none_or(|link| link.mtu == route.mtu) {
            route.mtu = 0;
        }
    }
    let rule = |family| Rule {
        family,
        priority: u32::MAX,
        not: false,
        fwmark: None,
        to: None,
        table: MAIN,
        suppress_prefixlength: None,
        protocol: 0,
    };
    let rules = [AddressFamily::V4, AddressFamily::V6].map(rule).to_vec();
    let disabled_families = if has_ipv6 { Vec::new() } else { vec![AddressFamily::V6] };
    HostState { links, routes, rules, disabled_families, one_table: true, ..HostState::default() }
}
