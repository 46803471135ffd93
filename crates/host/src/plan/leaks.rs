//! Warnings about traffic that bypasses the tunnel or could, and about name servers that the kill switch blocks.

use ipnet::IpNet;

use super::routes::LinkNetworks;
use super::{Plan, family_name};
use crate::ranges::is_local;
use crate::spec::{Compat, HostSpec};
use crate::state::HostState;
use crate::step::{AddressFamily, MAIN, Route};

/// Warns of traffic that leaves, or may leave, outside the tunnel. `routed` are the prefixes with a route into it.
pub(super) fn warn(spec: &HostSpec, state: &HostState, compat: Compat, routed: &[IpNet], plan: &mut Plan) {
    warn_of_link_networks(spec, state, plan);
    if spec.kill_switch {
        warn_of_names(spec, state, plan);
    } else if compat == Compat::Native {
        // wg-quick has neither this warning nor a kill switch to recommend. Two halves of a default route make a full
        // tunnel, too.
        let whole = IpNet::aggregate(&routed.to_vec()).into_iter().filter(|net| net.prefix_len() == 0);
        let full: Vec<AddressFamily> = whole.map(|net| AddressFamily::of_net(&net)).collect();
        warn_of_nearer_routes(spec, state, &full, plan);
    }
}

fn warn_of_link_networks(spec: &HostSpec, state: &HostState, plan: &mut Plan) {
    let LinkNetworks { public, inside, .. } = LinkNetworks::of(spec, state);
    for (net, device) in public {
        plan.warn(format!(
            "ExcludeLAN: {net} on {device} has public addresses and stays in the tunnel, because any neighbour there can \
             announce such a network. If it is yours, set `ExcludedIPs = {net}`"
        ));
    }
    for (net, device) in inside {
        plan.warn(format!(
            "ExcludeLAN: {net} on {device} is a network of the tunnel, too, and stays in it. To reach hosts on {device} \
             instead, set `ExcludedIPs = {net}`"
        ));
    }
}

/// Warns that the kill switch blocks the name servers of the local network, unless the file names a server.
fn warn_of_names(spec: &HostSpec, state: &HostState, plan: &mut Plan) {
    let excluded = super::routes::excluded(spec, state);
    let names_server = !spec.dns.servers.is_empty() || spec.excluded.iter().any(is_single);
    if excluded.iter().any(|net| is_local(net) && !is_single(net)) && !names_server {
        plan.warn(
            "KillSwitch: the name servers of the local network are blocked, because DNS queries would leave in the \
             clear. Set `DNS` to a name server behind the tunnel, or to the one of the local network if you trust it"
                .to_owned(),
        );
    }
}

fn is_single(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

/// Warns that the local network can add more specific routes by DHCP (option 121) or advertisements (RFC 4191): the
/// longest prefix wins (TunnelVision, CVE-2024-3661).
fn warn_of_nearer_routes(spec: &HostSpec, state: &HostState, full: &[AddressFamily], plan: &mut Plan) {
    if full.is_empty() {
        return;
    }
    let nearer: Vec<String> =
        state.routes.iter().filter(|route| leads_past(spec, full, route)).map(described).collect();
    let now = match &nearer[..] {
        [] => String::new(),
        [first @ .., last] if nearer.len() <= SHOWN => {
            let all: Vec<&str> = first.iter().chain([last]).map(String::as_str).collect();
            format!(" (now: {})", all.join(", "))
        }
        more => format!(" (now: {} and {} more)", more[..SHOWN].join(", "), more.len() - SHOWN),
    };
    let families: Vec<&str> = full.iter().map(|family| family_name(*family)).collect();
    plan.warn(format!(
        "the local network can divert {} past {} by routes that are more specific than its default route{now}. \
         `#! KillSwitch = true` prevents this",
        families.join(" and "),
        spec.interface
    ));
}

/// The most routes that the warning names.
const SHOWN: usize = 4;

fn leads_past(spec: &HostSpec, full: &[AddressFamily], route: &Route) -> bool {
    let is_elsewhere = route.device.as_deref().is_some_and(|device| device != spec.interface && device != "lo");
    // A link's own network with private addresses is expected to stay outside of the tunnel.
    let is_plain_link = route.via.is_none() && is_local(&route.to);
    let is_named = |net: &IpNet| net.contains(&route.to);
    route.table == MAIN
        && route.to.prefix_len() > 0
        && full.contains(&AddressFamily::of_net(&route.to))
        && is_elsewhere
        && !is_plain_link
        && !spec.excluded.iter().any(is_named)
}

fn described(route: &Route) -> String {
    format!("{} on {}", route.to, route.device.as_deref().unwrap_or_default())
}
