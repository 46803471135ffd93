//! Removing a tunnel: by its ledger or, without one, by the file and the state of the host.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use super::policy_routing::RoutingIds;
use super::{Hooks, Plan, dns, firewall, gateway, policy_routing, routes};
use crate::spec::{Compat, HostSpec};
use crate::state::HostState;
use crate::step::{AddressFamily, Firewall, FirewallFamily, Phase, Route, Rule, Step};

/// The plan that removes an interface without a ledger: wg-quick brought it up, or /run was wiped. Rules are removed if
/// they are exactly those of the file: same table, same mark, side by side.
pub fn down(spec: &HostSpec, hooks: &Hooks, state: &HostState, compat: Compat) -> Plan {
    let interface = &spec.interface;
    let mut steps: Vec<Step> = hooks.of(Phase::PreDown).collect();
    steps.extend(rules_there(spec, state, compat).into_iter().map(Step::DeleteRule));
    if state.link(interface).is_some() {
        steps.push(Step::DeleteLink { interface: interface.clone() });
    }
    steps.extend(dns::unset(interface, &spec.dns, state));
    steps.extend(firewalls_there(spec, state).into_iter().map(Step::DeleteFirewall));
    let table = gateway::bare_table(&spec.interface);
    steps.extend(state.firewall_tables.contains(&table.nft_name()).then_some(Step::DeleteGateway(table)));
    steps.extend(gateway::openings_there(spec, state).into_iter().map(Step::Close));
    steps.extend(hooks.of(Phase::PostDown));
    Plan { steps, warnings: Vec::new() }
}

/// The steps that undo `done`: those of a ledger, or the part of a plan that was executed. Deleting the interface
/// removes its addresses and routes; if `done` did not create the interface, they are removed one by one. The order
/// is that of wg-quick: rules, interface, routes that were replaced, name servers, firewall. Sysctls that are not held
/// stay: other tunnels need them.
///
/// A step that is refused may succeed after the others: an address to be removed may have added a route in the place of
/// one to be restored.
///
/// `hooks` are the commands to run: all of the file for a tunnel that was up, [`Hooks::undoing`] for one that did not get up.
pub fn undo(done: &[Step], hooks: &Hooks) -> Vec<Step> {
    let made: Vec<&str> = done.iter().filter_map(made_link).collect();
    let mut undone: Vec<Step> = if made.is_empty() {
        done.iter().rev().filter_map(Step::undo).collect()
    } else {
        cancel_inverses(done).iter().rev().filter(|step| !goes_with_link(step, &made)).filter_map(Step::undo).collect()
    };
    undone.retain(|step| !matches!(step, Step::SetSysctl { .. }));
    if !made.is_empty() {
        undone.sort_by_key(place_in_undo);
    }
    let mut steps: Vec<Step> = hooks.of(Phase::PreDown).collect();
    steps.extend(undone);
    steps.extend(hooks.of(Phase::PostDown));
    steps
}

/// The steps without pairs that cancel each other, and without those that were done again (name servers that changed).
pub fn cancel_inverses(done: &[Step]) -> Vec<Step> {
    let mut left: Vec<Option<&Step>> = Vec::new();
    let mut canceled_by: HashMap<Step, usize> = HashMap::new();
    for step in done {
        if let Some(earlier) = canceled_by.remove(step) {
            left[earlier] = None;
            continue;
        }
        let replaced = step.undo().and_then(|undo| canceled_by.insert(undo, left.len()));
        replaced.into_iter().for_each(|earlier| left[earlier] = None);
        left.push(Some(step));
    }
    left.into_iter().flatten().cloned().collect()
}

/// The steps whose effect may exist if some of `pending` were done after all of `done`. What `pending` was to remove
/// counts as existing: removing what does not exist is harmless.
pub fn possibly_applied(done: &[Step], pending: &[Step]) -> Vec<Step> {
    let mut perhaps = done.to_vec();
    let mut taken_back: HashSet<Step> = cancel_inverses(done).iter().filter_map(Step::undo).collect();
    for step in pending {
        // A reload after an interrupted one undoes what that one may have done.
        if !taken_back.contains(step) {
            taken_back.extend(step.undo());
            perhaps.push(step.clone());
        }
    }
    perhaps
}

/// The rules that select the tunnel's own table, in the order in which wg-quick deletes them: those that the routes
/// in it need or, if the interface is gone, the default routes of the file.
pub(super) fn rules_there(spec: &HostSpec, state: &HostState, compat: Compat) -> Vec<Rule> {
    let Some(ids) = ids_there(spec, state, compat) else { return Vec::new() };
    let is_own = |route: &&Route| is_on(route, spec) && route.table == ids.mark;
    let mut own: Vec<IpNet> = state.routes.iter().filter(is_own).map(|route| route.to).collect();
    if own.is_empty() {
        own.extend(spec.allowed_ips.iter().filter(|net| net.prefix_len() == 0));
    }
    let excluded = routes::excluded(spec, state);
    let of_family = |family| policy_routing::rules(family, &own, &excluded, &ids);
    let rules = [AddressFamily::V4, AddressFamily::V6].into_iter().flat_map(of_family);
    rules.filter_map(|rule| state.rules.iter().find(|other| is_same(other, &rule)).cloned()).collect()
}

/// The routing ids of a running tunnel. The mark equals the number of its table: one which holds routes over
/// the interface and which a tunnel-style rule selects; otherwise the mark in the file, if nobody has routes in that
/// table.
pub(super) fn ids_there(spec: &HostSpec, state: &HostState, compat: Compat) -> Option<RoutingIds> {
    // The newest rule, if an older tunnel left one like it.
    let last = |mark: u32, family: AddressFamily| {
        let ours = state.rules.iter().filter(|rule| rule.family == family && leads_to_own_table(rule, mark));
        ours.map(|rule| rule.priority).min()
    };
    let is_mark = |mark: &u32| last(*mark, AddressFamily::V4).is_some() || last(*mark, AddressFamily::V6).is_some();
    let of_routes = state.routes.iter().filter(|route| is_on(route, spec)).map(|route| route.table).find(is_mark);
    let is_of_others = |mark: &u32| state.routes.iter().any(|route| route.table == *mark);
    let mark = of_routes.or_else(|| policy_routing::mark_of(spec).filter(|mark| !is_of_others(mark)))?;
    Some(RoutingIds {
        mark,
        last_v4: last(mark, AddressFamily::V4).unwrap_or(0),
        last_v6: last(mark, AddressFamily::V6).unwrap_or(0),
        direct: policy_routing::direct_priority(compat),
    })
}

fn leads_to_own_table(rule: &Rule, mark: u32) -> bool {
    let is_last = rule.to.is_none() && rule.suppress_prefixlength.is_none();
    rule.not && rule.fwmark == Some(mark) && rule.table == mark && is_last
}

/// Compares rules without their protocol, which is not always known.
fn is_same(there: &Rule, planned: &Rule) -> bool {
    Rule { protocol: planned.protocol, ..there.clone() } == *planned
}

/// The firewall tables with the tunnel's name.
fn firewalls_there(spec: &HostSpec, state: &HostState) -> Vec<Firewall> {
    let of_family = |(compat, family)| Firewall {
        table: firewall::table_name(&spec.interface, compat),
        family,
        interface: spec.interface.clone(),
        addresses: Vec::new(),
        fwmark: None,
        kill_switch: None,
        kept_inside: Vec::new(),
        name_servers: Vec::new(),
    };
    let families = [FirewallFamily::Ip, FirewallFamily::Ip6, FirewallFamily::Inet];
    let named =
        [Compat::WgQuick, Compat::Native].into_iter().flat_map(|compat| families.map(|family| (compat, family)));
    named.map(of_family).filter(|firewall| state.firewall_tables.contains(&firewall.nft_name())).collect()
}

fn is_on(route: &Route, spec: &HostSpec) -> bool {
    route.device.as_deref() == Some(&spec.interface)
}

fn made_link(step: &Step) -> Option<&str> {
    match step {
        Step::AddLink { interface, .. } => Some(interface),
        _ => None,
    }
}

fn goes_with_link(step: &Step, made: &[&str]) -> bool {
    match step {
        Step::AddAddress { interface, .. }
        | Step::DeleteAddress { interface, .. }
        | Step::SetMtu { interface, .. }
        | Step::SetFwmark { interface, .. } => made.contains(&interface.as_str()),
        Step::AddRoute(route) | Step::DeleteRoute(route) => {
            route.device.as_deref().is_some_and(|device| made.contains(&device))
        }
        Step::HoldSysctl { name, .. } | Step::ReleaseSysctl { name, .. } => {
            made.iter().any(|interface| gateway::is_sysctl_of(name, interface))
        }
        _ => false,
    }
}

fn place_in_undo(step: &Step) -> (u8, u8, u32) {
    match step {
        // The rule that selects the table first, then those before it, as in wg-quick.
        Step::DeleteRule(rule) => (0, rule.family as u8, u32::MAX - rule.priority),
        Step::AddRule(_) => (1, 0, 0),
        Step::DeleteLink { .. } => (2, 0, 0),
        Step::AddRoute(_) | Step::DeleteRoute(_) => (3, 0, 0),
        Step::SetDns { .. } | Step::UnsetDns { .. } => (4, 0, 0),
        step if step.is_firewall() => (5, 0, 0),
        _ => (6, 0, 0),
    }
}
