//! Routes where there is one routing table and no rule (FreeBSD). What [`super::policy_routing`] does by marks is done by
//! longer prefixes: a default route is two halves, which leave the host's own in its place, and what has to stay outside of
//! the tunnel although allowed IPs contain it, the endpoints and `ExcludedIPs`, gets a route of its own, the way that it went
//! before. wg-quick does the same there.
//!
//! Those ways are of the moment. A reload makes them anew, and so does the supervisor when a name has another address, or the
//! host another default route; of a peer that has moved nothing tells.

use std::net::IpAddr;

use ipnet::IpNet;

use super::conflicts::ConflictingRoutes;
use super::routes::{self, PlannedRoute};
use super::{Plan, PlanError, addresses, cancel_inverses, mtu};
use crate::spec::{HostSpec, Table};
use crate::state::HostState;
use crate::step::{AddressFamily, MAIN, Route, Step};

/// The routes in the order in which they are added: first those that stay outside, so that no packet of the tunnel's own
/// goes into it.
pub(super) fn all(
    spec: &HostSpec,
    state: &HostState,
    disabled: &[(AddressFamily, String)],
    connected: &[IpNet],
    plan: &mut Plan,
) -> Result<Vec<PlannedRoute>, PlanError> {
    let table = match spec.table {
        Table::Off => return Ok(Vec::new()),
        Table::Auto => MAIN,
        Table::Number(number) => number,
    };
    let excluded = routes::excluded(spec, state);
    let conflicts = ConflictingRoutes::of(spec, state);
    let mut inside = Vec::new();
    let mut prefixes: Vec<IpNet> = Vec::new();
    for to in routes::sorted(spec).into_iter().flat_map(halves) {
        // A file may have the halves, too, which are sorted before.
        let has_it = to.prefix_len() == 1 && prefixes.contains(&to);
        prefixes.extend((!has_it).then_some(to));
    }
    for to in prefixes {
        let is_connected = connected.iter().any(|net| net.contains(&to));
        if addresses::is_disabled(disabled, &to) || (table == MAIN && is_connected) {
            continue;
        }
        if spec.excluded.iter().any(|net| net.contains(&to)) {
            plan.warn(format!("no route to {to}: it is excluded from the tunnel"));
            continue;
        }
        if table == MAIN && endpoints(spec).any(|endpoint| endpoint == to) {
            plan.warn(format!(
                "no route to {to}: it is the endpoint of a peer, which this host reaches outside of the tunnel"
            ));
            continue;
        }
        let resolved =
            conflicts.resolve(spec, Route { table, ..static_route(to, Some(&spec.interface), None) }, plan)?;
        inside.extend(resolved.route.map(|route| PlannedRoute { route, replaced: resolved.replaced, own: false }));
    }
    // What is in another table does not take the tunnel's own packets.
    let mut planned = if table == MAIN { outside(spec, state, &excluded, &inside, plan) } else { Vec::new() };
    planned.extend(inside);
    Ok(planned)
}

/// The routes of what stays outside of `inside`. Where there is no way it is unreachable: into the tunnel its packets would
/// come back to the daemon, which drops them without a word to whoever sent them.
fn outside(
    spec: &HostSpec,
    state: &HostState,
    excluded: &[IpNet],
    inside: &[PlannedRoute],
    plan: &mut Plan,
) -> Vec<PlannedRoute> {
    let mut planned: Vec<PlannedRoute> = Vec::new();
    for to in endpoints(spec).chain(excluded.iter().copied()) {
        let longest = inside.iter().map(|planned| planned.route.to).filter(|net| net.contains(&to));
        let Some(longest) = longest.map(|net| net.prefix_len()).max() else { continue };
        let path = mtu::path(state, &to.addr());
        // A longer route goes on leading there.
        if path.is_some_and(|path| path.to.prefix_len() > longest) || planned.iter().any(|other| other.route.to == to) {
            continue;
        }
        let device = path.and_then(|path| path.device.as_deref());
        if device.is_none() {
            plan.warn(format!(
                "{to} has no route outside of the tunnel: it is unreachable until the host has a default route"
            ));
        }
        let via = path.and_then(|path| path.via);
        planned.push(PlannedRoute { route: static_route(to, device, via), replaced: Vec::new(), own: false });
    }
    planned
}

fn endpoints(spec: &HostSpec) -> impl Iterator<Item = IpNet> + '_ {
    spec.endpoints.iter().map(|endpoint| IpNet::from(endpoint.ip()))
}

/// The `steps` that a tunnel which is up would get now, with the ways outside that it has got when they were `done`.
pub(super) fn with_ways_done(steps: Vec<Step>, interface: &str, done: &[Step]) -> Vec<Step> {
    let is_outside = |step: &Step| matches!(step, Step::AddRoute(route) if route.device.as_deref() != Some(interface));
    let ways = cancel_inverses(done).into_iter().filter(is_outside);
    ways.chain(steps.into_iter().filter(|step| !is_outside(step))).collect()
}

/// The two halves of a default route.
fn halves(net: IpNet) -> Vec<IpNet> {
    if net.prefix_len() > 0 {
        return vec![net];
    }
    let subnets = match net {
        IpNet::V4(v4) => v4.subnets(1).map(|halves| halves.map(IpNet::V4).collect()),
        IpNet::V6(v6) => v6.subnets(1).map(|halves| halves.map(IpNet::V6).collect()),
    };
    subnets.unwrap_or_default()
}

/// A route of the main table that somebody has added; without a device `to` is unreachable.
pub(crate) fn static_route(to: IpNet, device: Option<&str>, via: Option<IpAddr>) -> Route {
    Route {
        to,
        device: device.map(str::to_owned),
        via,
        table: MAIN,
        metric: metric(&to),
        protocol: routes::PROTOCOL,
        scope: if to.addr().is_ipv4() && device.is_some() && via.is_none() { routes::SCOPE_LINK } else { 0 },
        source: None,
        mtu: 0,
        onlink: false,
    }
}

/// That of a route to `to`, where routes have none.
pub(crate) fn metric(to: &IpNet) -> u32 {
    if to.addr().is_ipv4() { 0 } else { routes::IPV6_METRIC }
}
