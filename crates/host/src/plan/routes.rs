//! Routes to the allowed IPs, what becomes of those that exist already, and with them the mark, the rules, the
//! variable and the firewall that a table of the tunnel's own needs ([`super::policy_routing`]).

use std::cmp::Reverse;
use std::collections::HashSet;

use ipnet::IpNet;

use super::conflicts::{ConflictingRoutes, Resolved};
use super::policy_routing::{self, Numbers};
use super::{Plan, PlanError, addresses, firewall, model};
use crate::state::HostState;
use crate::step::{Family, MAIN, Route, Step};
use crate::wanted::{Compat, Table, Wanted};

/// With it the reverse path filter of IPv4 sees the mark of a packet (Documentation/networking/ip-sysctl.rst).
pub(super) const SRC_VALID_MARK: &str = "net.ipv4.conf.all.src_valid_mark";

/// Who makes routes with `ip route` (rtnetlink.h, `RTPROT_BOOT`); ours look alike.
const PROTOCOL: u8 = 3;

/// What IPv6 routes have where no metric is said (include/net/ip6_route.h, `IP6_RT_PRIO_USER`).
const IPV6_METRIC: u32 = 1024;

/// Routes between hosts of a link (rtnetlink.h, `RT_SCOPE_LINK`). Those of IPv6 have no scope, but are the kernel's or
/// of router advertisements (`RTPROT_RA`).
const SCOPE_LINK: u8 = 253;
const PROTOCOL_RA: u8 = 9;

/// A route as it is to be made.
pub(super) struct Placed {
    route: Route,
    /// ConflictingRoutes that give way first.
    replaced: Vec<Route>,
    /// It is in the tunnel's own table.
    own: bool,
}

impl Placed {
    /// Where each of the allowed IPs gets its route. `connected` are the networks of the interface itself.
    pub(super) fn all(
        wanted: &Wanted,
        state: &HostState,
        without: &[(Family, String)],
        connected: &[IpNet],
        numbers: &Numbers,
        plan: &mut Plan,
    ) -> Result<Vec<Self>, PlanError> {
        let excluded = excluded(wanted, state);
        let mut prefixes = sorted(wanted);
        prefixes.retain(|net| !addresses::is_without(without, net));
        if wanted.table == Table::Auto {
            warn_of_own_networks(wanted, connected, plan);
        } else if !wanted.excluded.is_empty() && wanted.table != Table::Off {
            plan.warn("ExcludedIPs is left out: it needs rules of the tunnel's own, and Table is a number".to_owned());
        }

        let rivals = ConflictingRoutes::of(wanted, state);
        let kept_out = containing(&prefixes, wanted);
        let mut placed = Vec::new();
        for to in prefixes {
            let is_connected = connected.iter().any(|net| net.contains(&to));
            let (table, is_default) = match wanted.table {
                Table::Off => continue,
                // The kernel makes that very route with the address; IPv6's has another metric.
                Table::Number(MAIN) if connected.contains(&to) && to.addr().is_ipv4() => continue,
                Table::Number(table) => (table, false),
                Table::Auto if excluded.iter().any(|net| net.contains(&to)) => {
                    plan.warn(format!("there is no route to {to}: it is excluded from the tunnel"));
                    continue;
                }
                Table::Auto if to.prefix_len() == 0 => (numbers.mark, true),
                Table::Auto if is_connected => continue,
                Table::Auto => (MAIN, false),
            };
            let mut resolved = rivals.resolve(wanted, route(wanted, to, table), plan)?;
            let is_moved = wanted.table == Table::Auto && kept_out.contains(&to) && !resolved.is_beaten;
            if is_moved && table == MAIN {
                // A mark of the file's may be that of a table which others use.
                let Resolved { replaced, .. } = resolved;
                resolved = rivals.resolve(wanted, route(wanted, to, numbers.mark), plan)?;
                resolved.replaced.splice(0..0, replaced);
            }
            let Resolved { replaced, route, .. } = resolved;
            placed.extend(route.map(|route| Placed { route, replaced, own: is_default || is_moved }));
        }
        Ok(placed)
    }
}

/// Adds the routes, each family's rules before its first route in the tunnel's own table: between a rule and its
/// route traffic goes on as before, and none leaves by a way that nobody asked for.
pub(super) fn plan(
    wanted: &Wanted,
    state: &HostState,
    compat: Compat,
    numbers: &Numbers,
    placed: Vec<Placed>,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let excluded = excluded(wanted, state);
    let own: Vec<IpNet> = placed.iter().filter(|placed| placed.own).map(|placed| placed.route.to).collect();
    let of_family = |family| own.iter().filter(move |net| Family::of_net(net) == family);
    let firsts = [Family::V4, Family::V6].map(|family| of_family(family).next());
    let lasts = [Family::V4, Family::V6].map(|family| of_family(family).next_back());
    let full: Vec<Family> = own.iter().filter(|net| net.prefix_len() == 0).map(Family::of_net).collect();
    check_firewall(wanted, state, !own.is_empty(), plan)?;

    for Placed { route, replaced, own: is_own } in placed {
        let (family, to) = (Family::of_net(&route.to), route.to);
        if is_own && firsts.contains(&Some(&to)) {
            mark(wanted, numbers, plan);
            // Two tunnels to which the file gives the same mark have a rule in common.
            let mut rules = policy_routing::rules(family, &own, &excluded, numbers);
            rules.retain(|rule| !state.rules.contains(rule));
            plan.steps.extend(rules.into_iter().map(Step::AddRule));
        }
        plan.steps.extend(replaced.into_iter().map(Step::DeleteRoute));
        plan.steps.push(Step::AddRoute(route));
        if is_own && lasts.contains(&Some(&to)) {
            see_marks(family, state, plan);
            if compat == Compat::WgQuick && state.nftables {
                let table = firewall::of_family(wanted, family, numbers.mark, full.contains(&family));
                plan.steps.push(Step::AddFirewall(table));
            }
        }
    }
    if wanted.kill_switch || (compat == Compat::Native && !own.is_empty() && state.nftables) {
        mark(wanted, numbers, plan);
        let guarded = if compat == Compat::Native { full } else { Vec::new() };
        plan.steps.push(Step::AddFirewall(firewall::of_both(wanted, &guarded, numbers.mark, compat, &excluded)));
    }
    Ok(())
}

/// Has the tunnel's datagrams marked, once; a mark of the file's is set with the keys and peers.
fn mark(wanted: &Wanted, numbers: &Numbers, plan: &mut Plan) {
    let step = Step::SetFwmark { interface: wanted.interface.clone(), fwmark: numbers.mark, before: 0 };
    if policy_routing::mark_of(wanted).is_none() && !plan.steps.contains(&step) {
        plan.steps.push(step);
    }
}

/// The allowed IPs in the order of wg-quick: the longest prefix first, those of one length by their text, backwards.
pub(super) fn sorted(wanted: &Wanted) -> Vec<IpNet> {
    let mut prefixes: Vec<IpNet> = wanted.allowed_ips.iter().map(IpNet::trunc).collect();
    prefixes.sort_by_cached_key(|net| Reverse((net.prefix_len(), net.to_string())));
    prefixes.dedup();
    prefixes
}

/// What stays outside of the tunnel: the file's, and the networks of the host's links if it says so.
pub(super) fn excluded(wanted: &Wanted, state: &HostState) -> Vec<IpNet> {
    let mut excluded: Vec<IpNet> = Vec::new();
    let of_links = state.routes.iter().filter(|route| wanted.exclude_lan && is_of_link(wanted, route));
    for net in wanted.excluded.iter().map(IpNet::trunc).chain(of_links.map(|route| route.to)) {
        if !excluded.contains(&net) {
            excluded.push(net);
        }
    }
    excluded
}

fn is_of_link(wanted: &Wanted, route: &Route) -> bool {
    let device = route.device.as_deref();
    let is_direct = route.table == MAIN && route.via.is_none() && route.to.prefix_len() > 0;
    let is_elsewhere = device.is_some_and(|device| device != wanted.interface && device != "lo");
    let is_link = match Family::of_net(&route.to) {
        Family::V4 => route.scope == SCOPE_LINK,
        Family::V6 => [model::PROTOCOL_KERNEL, PROTOCOL_RA].contains(&route.protocol),
    };
    is_direct && is_elsewhere && is_link
}

/// Those of the prefixes, sorted by length, that contain an endpoint or an excluded prefix. Both may be thousands, so
/// that each endpoint is looked up with every length that occurs.
fn containing(prefixes: &[IpNet], wanted: &Wanted) -> HashSet<IpNet> {
    let mut lengths: Vec<u8> = prefixes.iter().map(IpNet::prefix_len).collect();
    lengths.dedup();
    let endpoints = wanted.endpoints.iter().map(|endpoint| IpNet::from(endpoint.ip()));
    let inside: Vec<IpNet> = endpoints.chain(wanted.excluded.iter().copied()).collect();
    let of_length = |net: &IpNet, length: u8| {
        let is_longer = length <= net.prefix_len();
        is_longer.then(|| IpNet::new(net.addr(), length).ok()).flatten().map(|net| net.trunc())
    };
    let prefixes: HashSet<IpNet> = prefixes.iter().copied().collect();
    let around = inside.iter().flat_map(|net| lengths.iter().filter_map(|length| of_length(net, *length)));
    around.filter(|net| prefixes.contains(net)).collect()
}

fn route(wanted: &Wanted, to: IpNet, table: u32) -> Route {
    let (metric, scope) = match Family::of_net(&to) {
        Family::V4 => (0, SCOPE_LINK),
        Family::V6 => (IPV6_METRIC, 0),
    };
    Route {
        to,
        device: Some(wanted.interface.clone()),
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

/// The kernel's routes for the addresses are in the main table, where no mark is looked at.
fn warn_of_own_networks(wanted: &Wanted, connected: &[IpNet], plan: &mut Plan) {
    let interface = &wanted.interface;
    for net in connected {
        for endpoint in wanted.endpoints.iter().filter(|endpoint| net.contains(&endpoint.ip())) {
            plan.warn(format!(
                "the endpoint {endpoint} lies in {net}, the network of {interface} itself: its datagrams would go \
                 into their own tunnel. Give {interface} an Address with a longer prefix"
            ));
        }
        for inside in wanted.excluded.iter().filter(|excluded| net.contains(*excluded)) {
            plan.warn(format!("{inside} is not excluded: it lies in {net}, the network of {interface} itself"));
        }
    }
}

fn check_firewall(wanted: &Wanted, state: &HostState, has_own_table: bool, plan: &mut Plan) -> Result<(), PlanError> {
    if state.nftables {
        return Ok(());
    }
    if wanted.kill_switch {
        let sentence = "KillSwitch needs nf_tables, which this kernel does not have: load the module nf_tables, or take \
                        KillSwitch out of the file";
        return Err(PlanError(sentence.to_owned()));
    }
    if has_own_table {
        plan.warn(format!(
            "this kernel has no nf_tables: nothing keeps other links from the addresses of {}, and a strict reverse \
             path filter (net.ipv4.conf.*.rp_filter = 1) drops the answers to its datagrams",
            wanted.interface
        ));
    }
    Ok(())
}

/// Has the reverse path filter of IPv4 see marks. The variable is never set back: other tunnels live by it too.
fn see_marks(family: Family, state: &HostState, plan: &mut Plan) {
    if family == Family::V6 {
        return;
    }
    match state.sysctls.get(SRC_VALID_MARK).map(String::as_str) {
        Some("1") => {}
        Some(before) => plan.steps.push(Step::SetSysctl {
            name: SRC_VALID_MARK.to_owned(),
            value: "1".to_owned(),
            before: before.to_owned(),
        }),
        None => plan.warn(format!("{SRC_VALID_MARK} cannot be read here, so that it stays as it is")),
    }
}
