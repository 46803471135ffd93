//! Routes to the allowed IPs, and the mark, rules, sysctl and firewall that a routing table of the tunnel's own needs
//! ([`super::policy_routing`]).

use std::cmp::Reverse;
use std::collections::HashSet;

use ipnet::IpNet;

use super::conflicts::{ConflictOutcome, ConflictingRoutes};
use super::policy_routing::{self, RoutingIds};
use super::{Plan, PlanError, addresses, firewall, leaks, model, one_table};
use crate::ranges;
use crate::spec::{Compat, HostSpec, Table};
use crate::state::HostState;
use crate::step::{AddressFamily, MAIN, Route, Step};

/// Makes the IPv4 reverse path filter consider packet marks (Documentation/networking/ip-sysctl.rst).
pub(super) const SRC_VALID_MARK: &str = "net.ipv4.conf.all.src_valid_mark";

/// The protocol of routes added with `ip route` (rtnetlink.h, `RTPROT_BOOT`); ours use the same.
pub(super) const PROTOCOL: u8 = 3;

/// The default metric of IPv6 routes (include/net/ip6_route.h, `IP6_RT_PRIO_USER`).
pub(super) const IPV6_METRIC: u32 = 1024;

/// The scope of routes to hosts on a link (rtnetlink.h, `RT_SCOPE_LINK`). IPv6 routes have no scope; the kernel or
/// router advertisements (`RTPROT_RA`) add them.
pub(super) const SCOPE_LINK: u8 = 253;
pub(super) const PROTOCOL_RA: u8 = 9;

/// A route to add.
pub(super) struct PlannedRoute {
    pub(super) route: Route,
    /// Existing routes that are removed first.
    pub(super) replaced: Vec<Route>,
    /// It goes into the tunnel's own table.
    pub(super) own: bool,
}

impl PlannedRoute {
    /// The table and route for each allowed IP. `connected` are the networks of the interface itself.
    pub(super) fn all(
        spec: &HostSpec,
        state: &HostState,
        disabled: &[(AddressFamily, String)],
        connected: &[IpNet],
        ids: &RoutingIds,
        plan: &mut Plan,
    ) -> Result<Vec<Self>, PlanError> {
        if state.one_table {
            return one_table::all(spec, state, disabled, connected, plan);
        }
        let mut prefixes = sorted(spec);
        prefixes.retain(|net| !addresses::is_disabled(disabled, net));
        if spec.table == Table::Auto {
            warn_of_own_networks(spec, connected, plan);
        } else if !spec.excluded.is_empty() && spec.table != Table::Off {
            plan.warn(
                "ExcludedIPs is ignored: it needs policy routing, which a Table with a number does not use".to_owned(),
            );
        }

        let conflicts = ConflictingRoutes::of(spec, state);
        let kept_out = containing(&prefixes, spec);
        let mut placed = Vec::new();
        for to in prefixes {
            let is_connected = connected.iter().any(|net| net.contains(&to));
            let (table, is_default) = match spec.table {
                Table::Off => continue,
                // The kernel adds this route with the address; for IPv6 it has another metric.
                Table::Number(MAIN) if connected.contains(&to) && to.addr().is_ipv4() => continue,
                Table::Number(table) => (table, false),
                Table::Auto if spec.excluded.iter().any(|net| net.contains(&to)) => {
                    plan.warn(format!("no route to {to}: it is excluded from the tunnel"));
                    continue;
                }
                Table::Auto if to.prefix_len() == 0 => (ids.mark, true),
                Table::Auto if is_connected => continue,
                Table::Auto => (MAIN, false),
            };
            let mut resolved = conflicts.resolve(spec, route(spec, to, table), plan)?;
            let is_moved = spec.table == Table::Auto && kept_out.contains(&to) && !resolved.is_shadowed;
            if is_moved && table == MAIN {
                // Others may use the table with the number of the file's mark.
                let ConflictOutcome { replaced, .. } = resolved;
                resolved = conflicts.resolve(spec, route(spec, to, ids.mark), plan)?;
                resolved.replaced.splice(0..0, replaced);
            }
            let ConflictOutcome { replaced, route, .. } = resolved;
            placed.extend(route.map(|route| PlannedRoute { route, replaced, own: is_default || is_moved }));
        }
        Ok(placed)
    }
}

/// Adds the routes. The rules of each family come before its first route in the tunnel's own table: between the two,
/// traffic flows as before, and no packet leaks.
pub(super) fn plan(
    spec: &HostSpec,
    state: &HostState,
    compat: Compat,
    ids: &RoutingIds,
    placed: Vec<PlannedRoute>,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let excluded = excluded(spec, state);
    let own: Vec<IpNet> = placed.iter().filter(|placed| placed.own).map(|placed| placed.route.to).collect();
    let of_family = |family| own.iter().filter(move |net| AddressFamily::of_net(net) == family);
    let firsts = [AddressFamily::V4, AddressFamily::V6].map(|family| of_family(family).next());
    let lasts = [AddressFamily::V4, AddressFamily::V6].map(|family| of_family(family).next_back());
    let full: Vec<AddressFamily> = own.iter().filter(|net| net.prefix_len() == 0).map(AddressFamily::of_net).collect();
    check_firewall(spec, state, !own.is_empty(), plan)?;
    let routed: Vec<IpNet> = placed.iter().map(|placed| placed.route.to).collect();
    leaks::warn(spec, state, compat, &routed, plan);

    for PlannedRoute { route, replaced, own: is_own } in placed {
        let (family, to) = (AddressFamily::of_net(&route.to), route.to);
        if is_own && firsts.contains(&Some(&to)) {
            mark(spec, ids, plan);
            // Two tunnels whose files set the same mark share a rule.
            let mut rules = policy_routing::rules(family, &own, &excluded, ids);
            rules.retain(|rule| !state.rules.contains(rule));
            plan.steps.extend(rules.into_iter().map(Step::AddRule));
        }
        plan.steps.extend(replaced.into_iter().map(Step::DeleteRoute));
        plan.steps.push(Step::AddRoute(route));
        if is_own && lasts.contains(&Some(&to)) {
            consider_marks(family, state, plan);
            if compat == Compat::WgQuick && state.nftables {
                let table = firewall::of_family(spec, family, ids.mark, full.contains(&family));
                plan.steps.push(Step::AddFirewall(table));
            }
        }
    }
    if spec.kill_switch || (compat == Compat::Native && !own.is_empty() && state.nftables) {
        mark(spec, ids, plan);
        let guarded = if compat == Compat::Native { full } else { Vec::new() };
        let kept = kept_inside(spec, state);
        plan.steps.push(Step::AddFirewall(firewall::of_both(spec, &guarded, ids.mark, compat, &excluded, kept)));
    }
    Ok(())
}

/// Sets the firewall mark, once. A mark from the file is set with the keys and peers.
fn mark(spec: &HostSpec, ids: &RoutingIds, plan: &mut Plan) {
    let step = Step::SetFwmark { interface: spec.interface.clone(), fwmark: ids.mark, before: 0 };
    if policy_routing::mark_of(spec).is_none() && !plan.steps.contains(&step) {
        plan.steps.push(step);
    }
}

/// The allowed IPs in the order of wg-quick: longest prefix first, those of one length by their text in reverse.
pub(super) fn sorted(spec: &HostSpec) -> Vec<IpNet> {
    let mut prefixes: Vec<IpNet> = spec.allowed_ips.iter().map(IpNet::trunc).collect();
    prefixes.sort_by_cached_key(|net| Reverse((net.prefix_len(), net.to_string())));
    prefixes.dedup();
    prefixes
}

/// Prefixes that stay outside the tunnel: those in the file and, with `ExcludeLAN`, the networks of the host's links.
pub(super) fn excluded(spec: &HostSpec, state: &HostState) -> Vec<IpNet> {
    let mut excluded: Vec<IpNet> = Vec::new();
    let of_links = LinkNetworks::of(spec, state).excluded;
    for net in spec.excluded.iter().map(IpNet::trunc).chain(of_links) {
        if !excluded.contains(&net) {
            excluded.push(net);
        }
    }
    excluded
}

/// The networks of the host's links, as `ExcludeLAN` treats them.
///
/// Any neighbour can make any prefix the network of a link, by a router advertisement or a DHCP answer. So only
/// networks in ranges without public hosts are excluded ([`LOCAL`](crate::ranges::LOCAL)), and none that the file
/// routes into the tunnel: no network of the interface or part of one, and no allowed IP.
#[derive(Default)]
pub(super) struct LinkNetworks {
    excluded: Vec<IpNet>,
    /// Networks with public addresses, each with its link.
    pub(super) public: Vec<(IpNet, String)>,
    /// Networks that belong to the tunnel, each with its link.
    pub(super) inside: Vec<(IpNet, String)>,
}

impl LinkNetworks {
    pub(super) fn of(spec: &HostSpec, state: &HostState) -> Self {
        let mut networks = Self::default();
        if !spec.exclude_lan {
            return networks;
        }
        let is_named = |net: &IpNet| spec.excluded.iter().any(|excluded| excluded.contains(net));
        for route in state.routes.iter().filter(|route| is_of_link(spec, route) && !is_named(&route.to)) {
            let (net, device) = (route.to, route.device.clone().unwrap_or_default());
            let is_own = spec.addresses.iter().any(|own| own.trunc().contains(&net));
            if !ranges::is_local(&net) {
                networks.public.push((net, device));
            } else if is_own || spec.allowed_ips.iter().any(|allowed| allowed.trunc() == net) {
                networks.inside.push((net, device));
            } else {
                networks.excluded.push(net);
            }
        }
        networks
    }
}

/// Returns networks of the interface and allowed IPs that lie within a link's excluded network; they stay in the
/// tunnel.
pub(super) fn kept_inside(spec: &HostSpec, state: &HostState) -> Vec<IpNet> {
    let of_links = LinkNetworks::of(spec, state).excluded;
    let own = spec.addresses.iter().chain(&spec.allowed_ips).map(IpNet::trunc);
    let is_within = |net: &IpNet| of_links.iter().any(|link| link.contains(net));
    let is_named = |net: &IpNet| spec.excluded.iter().any(|excluded| excluded.contains(net));
    let mut kept: Vec<IpNet> = own.filter(|net| is_within(net) && !is_named(net)).collect();
    kept.sort();
    kept.dedup();
    kept
}

fn is_of_link(spec: &HostSpec, route: &Route) -> bool {
    let device = route.device.as_deref();
    let is_direct = route.table == MAIN && route.via.is_none() && route.to.prefix_len() > 0;
    let is_elsewhere = device.is_some_and(|device| device != spec.interface && device != "lo");
    let is_link = match AddressFamily::of_net(&route.to) {
        AddressFamily::V4 => route.scope == SCOPE_LINK,
        AddressFamily::V6 => [model::PROTOCOL_KERNEL, PROTOCOL_RA].contains(&route.protocol),
    };
    is_direct && is_elsewhere && is_link
}

/// The prefixes (sorted by length) that contain an endpoint or an excluded prefix. There may be thousands of both, so
/// each endpoint is looked up with every prefix length in use.
fn containing(prefixes: &[IpNet], spec: &HostSpec) -> HashSet<IpNet> {
    let mut lengths: Vec<u8> = prefixes.iter().map(IpNet::prefix_len).collect();
    lengths.dedup();
    let endpoints = spec.endpoints.iter().map(|endpoint| IpNet::from(endpoint.ip()));
    let inside: Vec<IpNet> = endpoints.chain(spec.excluded.iter().copied()).collect();
    let of_length = |net: &IpNet, length: u8| {
        let is_longer = length <= net.prefix_len();
        is_longer.then(|| IpNet::new(net.addr(), length).ok()).flatten().map(|net| net.trunc())
    };
    let prefixes: HashSet<IpNet> = prefixes.iter().copied().collect();
    let around = inside.iter().flat_map(|net| lengths.iter().filter_map(|length| of_length(net, *length)));
    around.filter(|net| prefixes.contains(net)).collect()
}

pub(super) fn route(spec: &HostSpec, to: IpNet, table: u32) -> Route {
    let (metric, scope) = match AddressFamily::of_net(&to) {
        AddressFamily::V4 => (0, SCOPE_LINK),
        AddressFamily::V6 => (IPV6_METRIC, 0),
    };
    Route {
        to,
        device: Some(spec.interface.clone()),
        via: None,
        table,
        metric,
        protocol: PROTOCOL,
        scope,
        source: None,
        mtu: 0,
        onlink: false,
    }
}

/// The kernel's routes for the addresses are in the main table, where marks do not matter.
fn warn_of_own_networks(spec: &HostSpec, connected: &[IpNet], plan: &mut Plan) {
    let interface = &spec.interface;
    for net in connected {
        for endpoint in spec.endpoints.iter().filter(|endpoint| net.contains(&endpoint.ip())) {
            plan.warn(format!(
                "the endpoint {endpoint} is in {net}, the network of {interface} itself: packets to it would loop into \
                 the tunnel. Give {interface} an Address with a longer prefix"
            ));
        }
        for inside in spec.excluded.iter().filter(|excluded| net.contains(*excluded)) {
            plan.warn(format!("{inside} is not excluded: it is in {net}, the network of {interface} itself"));
        }
    }
}

fn check_firewall(spec: &HostSpec, state: &HostState, has_own_table: bool, plan: &mut Plan) -> Result<(), PlanError> {
    if state.nftables {
        return Ok(());
    }
    if spec.kill_switch {
        let sentence = "KillSwitch needs nf_tables, which this kernel does not have: load the module nf_tables, or remove \
                        KillSwitch from the file";
        return Err(PlanError(sentence.to_owned()));
    }
    if has_own_table {
        plan.warn(format!(
            "this kernel has no nf_tables: the addresses of {} are reachable over other links, and a strict reverse path \
             filter (net.ipv4.conf.*.rp_filter = 1) drops replies to the tunnel's packets",
            spec.interface
        ));
    }
    Ok(())
}

/// Makes the IPv4 reverse path filter consider marks. The sysctl is never reset: other tunnels need it too.
fn consider_marks(family: AddressFamily, state: &HostState, plan: &mut Plan) {
    if family == AddressFamily::V6 {
        return;
    }
    match state.sysctls.get(SRC_VALID_MARK).map(String::as_str) {
        Some("1") => {}
        Some(before) => plan.steps.push(Step::SetSysctl {
            name: SRC_VALID_MARK.to_owned(),
            value: "1".to_owned(),
            before: before.to_owned(),
        }),
        None => plan.warn(format!("{SRC_VALID_MARK} cannot be read and is left unchanged")),
    }
}
