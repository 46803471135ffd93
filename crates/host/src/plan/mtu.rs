//! The MTU of the interface if the file sets none: that of the narrowest path to an endpoint, less the overhead.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::Plan;
use crate::spec::HostSpec;
use crate::state::HostState;
use crate::step::{AddressFamily, MAIN, Route, Step};

/// What a tunnel adds to a packet at most: the headers of IPv6 (40), UDP (8) and a data message (16), and its tag (16).
const OVERHEAD: u32 = 80;

/// The MTU of Ethernet, if no path is known.
const ETHERNET: u32 = 1500;

/// The smallest MTU of a path: every host accepts packets of this size (RFC 791, section 3.1). A smaller MTU of a link is a
/// mistake or comes from a hostile DHCP server; `up` uses this one, so that it does not fail.
const MIN_PATH_MTU: u32 = 576;

/// The MTU of the interface: the file's, or, as in wg-quick since 2021, the smallest MTU of the paths to the
/// endpoints, else that of the IPv4 default route, else Ethernet's, less [`OVERHEAD`]. The MTU of a path is that of
/// its route, or of its link if the route has none. An endpoint on this host is that of a program that sends the packets on:
/// nobody knows where, so that it has no path.
pub fn of(spec: &HostSpec, state: &HostState) -> u32 {
    if let Some(mtu) = spec.mtu {
        return mtu;
    }
    let to_endpoints = endpoints(spec).filter_map(|endpoint| path_mtu(state, &endpoint.ip())).min();
    let narrowest = to_endpoints.or_else(|| default_mtu(state)).filter(|mtu| *mtu > 0).unwrap_or(ETHERNET);
    narrowest.max(MIN_PATH_MTU) - OVERHEAD
}

/// An address with a zone cannot be looked up without it; wg-quick skips it too.
fn endpoints(spec: &HostSpec) -> impl Iterator<Item = &SocketAddr> {
    spec.endpoints.iter().filter(|endpoint| !matches!(endpoint, SocketAddr::V6(v6) if v6.scope_id() != 0))
}

/// Sets it.
pub(super) fn plan(spec: &HostSpec, state: &HostState, mtu: u32, plan: &mut Plan) {
    if spec.mtu.is_none()
        && let Some(endpoint) = endpoints(spec).find(|endpoint| is_on_this_host(state, &endpoint.ip()))
    {
        plan.warn(format!(
            "the endpoint {endpoint} is on this host, so the path behind it is not known: the MTU {mtu} leaves room for the \
             headers of WireGuard alone. If the program that listens there adds its own, set MTU to as much less"
        ));
    }
    plan.steps.push(Step::SetMtu { interface: spec.interface.clone(), mtu, before: 0 });
}

fn path_mtu(state: &HostState, address: &IpAddr) -> Option<u32> {
    if is_on_this_host(state, address) {
        return None;
    }
    route_mtu(state, path(state, address)?)
}

/// The MTU of the first default route in `ip route show default`: in the main table, with the lowest metric.
fn default_mtu(state: &HostState) -> Option<u32> {
    let mut defaults: Vec<&Route> = state.routes.iter().collect();
    defaults.retain(|route| {
        route.table == MAIN && route.to.prefix_len() == 0 && AddressFamily::of_net(&route.to) == AddressFamily::V4
    });
    defaults.sort_by_key(|route| route.metric);
    route_mtu(state, defaults.first()?)
}

fn route_mtu(state: &HostState, route: &Route) -> Option<u32> {
    if route.mtu > 0 {
        return Some(route.mtu);
    }
    state.link(route.device.as_deref()?).map(|link| link.mtu)
}

/// Whether packets to an address stay on this host.
fn is_on_this_host(state: &HostState, address: &IpAddr) -> bool {
    let address = &address.to_canonical();
    let mut addresses = state.links.iter().flat_map(|link| &link.addresses);
    address.is_loopback() || address.is_unspecified() || addresses.any(|net| net.addr() == *address)
}

/// The route of a packet without a mark: the rules in order, and in each table the longest prefix with the lowest
/// metric (fib_rules_lookup in net/core/fib_rules.c).
pub(super) fn path<'a>(state: &'a HostState, address: &IpAddr) -> Option<&'a Route> {
    let family = AddressFamily::of(address);
    let mut rules: Vec<_> = state.rules.iter().filter(|rule| rule.family == family).collect();
    rules.sort_by_key(|rule| rule.priority);
    for rule in rules {
        let matches = rule.fwmark.is_none_or(|mark| mark == 0) && rule.to.is_none_or(|to| to.contains(address));
        if matches == rule.not {
            continue;
        }
        let found = longest(state, rule.table, address);
        let suppressed =
            |route: &&Route| rule.suppress_prefixlength.is_some_and(|len| u32::from(route.to.prefix_len()) <= len);
        if let Some(route) = found.filter(|route| !suppressed(route)) {
            return Some(route);
        }
    }
    None
}

/// The route in a table for an address.
fn longest<'a>(state: &'a HostState, table: u32, address: &IpAddr) -> Option<&'a Route> {
    let host = IpNet::from(*address);
    let routes = state.routes.iter().filter(|route| route.table == table && route.to.contains(&host));
    routes.min_by_key(|route| (u8::MAX - route.to.prefix_len(), route.metric))
}
