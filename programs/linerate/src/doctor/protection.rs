//! Reads from a tunnel's file and ledger what its host has to enforce, and from the kernel which routes bypass the
//! tunnel.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use ipnet::IpNet;
use linerate_control::tunnel_file::{ExcludeLan, Gateway, Inbound, NameServer};
use linerate_doctor::evidence::{Protection, RoutePast, Tunnel, Way};
use linerate_host::plan::gateway::bare_table;
use linerate_host::ranges::MACHINE_SERVICES;
use linerate_host::state::HostState;
use linerate_host::step::{Firewall, MAIN, Route, Step};
use linerate_tunnel::ConfigFile;
use linerate_tunnel::ledger::{self, Ledger};

use super::gather::{LOOKED_UP, inside, own_addresses};
use super::network;

/// Returns the settings that the firewall has to enforce, and the tables and sysctls that were made for them. Without a
/// file, the settings are those with which the tunnel came up.
pub(super) fn protection(name: &str, file: Option<&ConfigFile>) -> Protection {
    let ledger = name.parse().ok().and_then(|name| ledger::read(Path::new(ledger::DIRECTORY), &name).ok().flatten());
    let (switches, tables) = ledger.as_ref().map(tables).unwrap_or_default();
    let switch = || switches.into_iter().next().unwrap_or_else(|| format!("inet linerate-{name}"));
    let made = Protection {
        is_ours: ledger.is_some(),
        tables,
        sysctls: ledger.iter().flat_map(Ledger::held_sysctls).map(|(name, _)| name).collect(),
        ..Protection::default()
    };
    let gateway_table = |restricts: bool| restricts.then(|| bare_table(name).nft_name());
    if let Some(file) = file.map(|file| &file.contents) {
        let is_gateway = file.gateway != Gateway::Off;
        let has_destinations = file.peers.iter().any(|peer| !peer.destinations.is_empty());
        return Protection {
            gateway_table: gateway_table(is_gateway || file.client_isolation || has_destinations),
            is_gateway,
            isolated: file.client_isolation,
            replies_only: file.inbound == Inbound::Replies,
            masquerade: [file.masquerade.ipv4, file.masquerade.ipv6],
            kill_switch: file.kill_switch.then(switch),
            excluded: file.excluded_ips.clone(),
            exclude_lan: match file.exclude_lan {
                ExcludeLan::Always => true,
                ExcludeLan::Never => false,
                ExcludeLan::Auto => file.is_full_tunnel(),
            },
            name_servers: file.dns_servers.iter().map(NameServer::address).collect(),
            ..made
        };
    }
    let Some(spec) = ledger.as_ref().map(|ledger| &ledger.spec) else { return made };
    let forwarding = &spec.forwarding;
    let is_gateway = forwarding.gateway != Gateway::Off;
    Protection {
        gateway_table: gateway_table(is_gateway || forwarding.isolated || !forwarding.restrictions.is_empty()),
        is_gateway,
        isolated: forwarding.isolated,
        replies_only: forwarding.inbound == Inbound::Replies,
        masquerade: [forwarding.masquerade.ipv4, forwarding.masquerade.ipv6],
        kill_switch: spec.kill_switch.then(switch),
        excluded: spec.excluded.clone(),
        exclude_lan: spec.exclude_lan,
        name_servers: spec.dns.servers.iter().map(NameServer::address).collect(),
        ..made
    }
}

/// Returns the tunnel's firewall tables: those with a kill switch, and the others.
fn tables(ledger: &Ledger) -> (Vec<String>, Vec<String>) {
    let mut made: Vec<&Firewall> = Vec::new();
    for step in &ledger.steps {
        match step {
            Step::AddFirewall(table) => {
                made.retain(|before| before.nft_name() != table.nft_name());
                made.push(table);
            }
            Step::DeleteFirewall(table) => made.retain(|before| before.nft_name() != table.nft_name()),
            _ => {}
        }
    }
    let (switches, others): (Vec<&Firewall>, Vec<&Firewall>) =
        made.into_iter().partition(|table| table.kill_switch.is_some());
    let names = |tables: Vec<&Firewall>| tables.into_iter().map(Firewall::nft_name).collect();
    (names(switches), names(others))
}

/// Returns routes that the kernel prefers to those of a full tunnel, except for those to endpoints and to next hops.
pub(super) fn routes_past(tunnel: &Tunnel, state: &HostState) -> Vec<RoutePast> {
    if !tunnel.peers.iter().flat_map(|peer| &peer.allowed_ips).any(|net| net.prefix_len() <= 1) {
        return Vec::new();
    }
    let name = &tunnel.name;
    let mut needed: BTreeSet<IpNet> = state.routes.iter().filter_map(|route| route.via).map(IpNet::from).collect();
    needed.extend(tunnel.peers.iter().filter_map(|peer| Some(IpNet::from(peer.endpoint?.ip()))));
    let is_beside = |device: &str| {
        state.link(device).is_some_and(|link| !link.wireguard && !link.tun) && device != name && device != "lo"
    };
    let own = own_addresses(state);
    let routes = state.routes.iter().filter(|route| {
        let device = route.device.as_deref().is_some_and(is_beside);
        device && route.table == MAIN && route.to.prefix_len() > 0 && !needed.contains(&route.to)
    });
    let past = |route: &Route| {
        let device = route.device.clone()?;
        // Several routes may match: ask the kernel which one it uses.
        let address = inside(&route.to, &own, state, &device)?;
        let past = RoutePast { to: route.to, device, via: route.via, protocol: route.protocol };
        (network::way(address, 0) == Way::Device(past.device.clone())).then_some(past)
    };
    routes.take(LOOKED_UP).filter_map(past).collect()
}

/// Returns the addresses of cloud metadata services, with the route to each.
pub(super) fn metadata() -> Vec<(IpAddr, Way)> {
    let single = MACHINE_SERVICES.iter().filter(|net| net.prefix_len() == net.max_prefix_len()).map(IpNet::addr);
    [MOST_USED].into_iter().chain(single).map(|to| (to, network::way(to, 0))).collect()
}

/// The address of the metadata service of AWS, Azure, Google and most other clouds.
const MOST_USED: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
