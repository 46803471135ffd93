//! Taking a tunnel away: what was done by what a ledger tells, or, where there is none, by what file and host tell.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use super::policy_routing::Numbers;
use super::{Hooks, Plan, dns, firewall, policy_routing, routes};
use crate::state::HostState;
use crate::step::{Family, Firewall, FirewallFamily, Phase, Route, Rule, Step};
use crate::wanted::{Compat, Wanted};

/// The plan that takes away an interface that has no ledger: the original brought it up, or /run was wiped. Rules go
/// if they are exactly those that the file leads to: same table, same mark, side by side.
pub fn down(wanted: &Wanted, hooks: &Hooks, state: &HostState, compat: Compat) -> Plan {
    let interface = &wanted.interface;
    let mut steps: Vec<Step> = hooks.of(Phase::PreDown).collect();
    steps.extend(rules_there(wanted, state, compat).into_iter().map(Step::DeleteRule));
    if state.link(interface).is_some() {
        steps.push(Step::DeleteLink { interface: interface.clone() });
    }
    steps.extend(dns::unset(interface, &wanted.dns, state));
    steps.extend(firewalls_there(wanted, state).into_iter().map(Step::DeleteFirewall));
    steps.extend(hooks.of(Phase::PostDown));
    Plan { steps, warnings: Vec::new() }
}

/// The steps that take back what was done, by a ledger or by as much of a plan as was carried out. With the interface
/// go its addresses and routes; where `done` did not make the interface, they are taken away one by one. The order is
/// wg-quick's: rules, interface, the routes that had to give way for it, name servers, firewall. Variables of the
/// kernel stay as they are: other tunnels live by them too.
///
/// A step that is refused may be tried again after the others: an address that is to go may have brought a route in
/// the place of one that is to come back.
///
/// `hooks` are those to run: all of the file for a tunnel that was up, [`Hooks::undoing`] for one that did not get up.
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

/// What is left of steps when those are gone that others took back, or did again (name servers that changed).
pub fn cancel_inverses(done: &[Step]) -> Vec<Step> {
    let mut net: Vec<Option<&Step>> = Vec::new();
    let mut taken_back_by: HashMap<Step, usize> = HashMap::new();
    for step in done {
        if let Some(earlier) = taken_back_by.remove(step) {
            net[earlier] = None;
            continue;
        }
        let replaced = step.undo().and_then(|undo| taken_back_by.insert(undo, net.len()));
        replaced.into_iter().for_each(|earlier| net[earlier] = None);
        net.push(Some(step));
    }
    net.into_iter().flatten().cloned().collect()
}

/// The steps whose effect may be there when some of `pending` were done after all of `done`: what they were to take
/// back counts as there. To take away what is not there does no harm.
pub fn possibly_applied(done: &[Step], pending: &[Step]) -> Vec<Step> {
    let mut perhaps = done.to_vec();
    let mut taken_back: HashSet<Step> = cancel_inverses(done).iter().filter_map(Step::undo).collect();
    for step in pending {
        // A reload after one that was ended takes back what that one may have done.
        if !taken_back.contains(step) {
            taken_back.extend(step.undo());
            perhaps.push(step.clone());
        }
    }
    perhaps
}

/// The rules that lead to the tunnel's own table, in the order in which the original deletes them: those that the
/// routes in it need, or, if the interface is gone, the default routes of the file.
pub(super) fn rules_there(wanted: &Wanted, state: &HostState, compat: Compat) -> Vec<Rule> {
    let Some(numbers) = numbers_there(wanted, state, compat) else { return Vec::new() };
    let is_own = |route: &&Route| is_on(route, wanted) && route.table == numbers.mark;
    let mut own: Vec<IpNet> = state.routes.iter().filter(is_own).map(|route| route.to).collect();
    if own.is_empty() {
        own.extend(wanted.allowed_ips.iter().filter(|net| net.prefix_len() == 0));
    }
    let excluded = routes::excluded(wanted, state);
    let of_family = |family| policy_routing::rules(family, &own, &excluded, &numbers);
    let wanted = [Family::V4, Family::V6].into_iter().flat_map(of_family);
    wanted.filter_map(|rule| state.rules.iter().find(|other| is_same(other, &rule)).cloned()).collect()
}

/// The numbers by which a tunnel goes that is up: its mark is the table of a route on the interface that exactly the
/// rule of a tunnel leads to, or the file's, if nobody has routes there.
pub(super) fn numbers_there(wanted: &Wanted, state: &HostState, compat: Compat) -> Option<Numbers> {
    // The newest one, if somebody left one that is like it.
    let last = |mark: u32, family: Family| {
        let ours = state.rules.iter().filter(|rule| rule.family == family && leads_to_own_table(rule, mark));
        ours.map(|rule| rule.priority).min()
    };
    let is_mark = |mark: &u32| last(*mark, Family::V4).is_some() || last(*mark, Family::V6).is_some();
    let of_routes = state.routes.iter().filter(|route| is_on(route, wanted)).map(|route| route.table).find(is_mark);
    let is_of_others = |mark: &u32| state.routes.iter().any(|route| route.table == *mark);
    let mark = of_routes.or_else(|| policy_routing::mark_of(wanted).filter(|mark| !is_of_others(mark)))?;
    Some(Numbers {
        mark,
        last_v4: last(mark, Family::V4).unwrap_or(0),
        last_v6: last(mark, Family::V6).unwrap_or(0),
        direct: policy_routing::direct_priority(compat),
    })
}

fn leads_to_own_table(rule: &Rule, mark: u32) -> bool {
    let is_last = rule.to.is_none() && rule.suppress_prefixlength.is_none();
    rule.not && rule.fwmark == Some(mark) && rule.table == mark && is_last
}

/// Who made a rule is not always known, so that it does not count.
fn is_same(there: &Rule, wanted: &Rule) -> bool {
    Rule { protocol: wanted.protocol, ..there.clone() } == *wanted
}

/// The tables of the firewall that have the tunnel's name.
fn firewalls_there(wanted: &Wanted, state: &HostState) -> Vec<Firewall> {
    let of_family = |(compat, family)| Firewall {
        table: firewall::table_name(&wanted.interface, compat),
        family,
        interface: wanted.interface.clone(),
        addresses: Vec::new(),
        fwmark: None,
        kill_switch: None,
    };
    let families = [FirewallFamily::Ip, FirewallFamily::Ip6, FirewallFamily::Inet];
    let named =
        [Compat::WgQuick, Compat::Native].into_iter().flat_map(|compat| families.map(|family| (compat, family)));
    named.map(of_family).filter(|firewall| state.firewall_tables.contains(&firewall.listed())).collect()
}

fn is_on(route: &Route, wanted: &Wanted) -> bool {
    route.device.as_deref() == Some(&wanted.interface)
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
        _ => false,
    }
}

fn place_in_undo(step: &Step) -> (u8, u8, u32) {
    match step {
        // The rule that leads to the table first, then those that were looked at before it, as the original has it.
        Step::DeleteRule(rule) => (0, rule.family as u8, u32::MAX - rule.priority),
        Step::AddRule(_) => (1, 0, 0),
        Step::DeleteLink { .. } => (2, 0, 0),
        Step::AddRoute(_) | Step::DeleteRoute(_) => (3, 0, 0),
        Step::SetDns { .. } | Step::UnsetDns { .. } => (4, 0, 0),
        Step::AddFirewall(_) | Step::DeleteFirewall(_) => (5, 0, 0),
        _ => (6, 0, 0),
    }
}
