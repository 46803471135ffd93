//! Reload: applies what changed in the file, and nothing else.
//!
//! Two plans are compared, for the old file (`old`) and the new one (`new`), both on this host without the tunnel.
//! Steps in both plans are skipped unless the host has [`lost`](super::lost()) their effect, which is then restored: after
//! a reload the host is what the file says. All steps are applied to the [`model`] first, so that a step that is already
//! done, or undone, is left out.

use std::collections::HashSet;

use ipnet::IpNet;

use super::policy_routing::{RoutingIds, mark_of};
use super::{Hooks, Plan, PlanError, cancel_inverses, dns, down, effects, effects_of_up, lost, model, mtu, one_table};
use crate::spec::{Compat, HostSpec};
use crate::state::HostState;
use crate::step::{AddressFamily, Phase, Route, Rule, Step};

/// The plan that turns the host of a tunnel that `old` brought up into what `new` would have made of it. `done` are the
/// steps in its ledger since the interface was created; without a ledger it is empty, and the file and the host decide.
/// Keys and peers are not part of it.
///
/// # Errors
/// The interface does not exist, or a policy of `new` forbids it.
pub fn reload(
    old: &HostSpec,
    new: &HostSpec,
    state: &HostState,
    done: &[Step],
    compat: Compat,
) -> Result<Plan, PlanError> {
    let interface = &new.interface;
    let Some(link) = state.link(interface) else {
        return Err(PlanError(format!("`{interface}' is not up: bring it up first")));
    };
    let bare = without_tunnel(old, state, done, compat);
    let [old_ids, new_ids] = ids(old, new, state, &bare, done, compat);
    let mut before = effects_of_up(old, &bare, compat, &old_ids)?;
    if state.one_table && !done.is_empty() {
        before.steps = one_table::with_ways_done(before.steps, interface, done);
    } else if old == new {
        let mut simulation = HostSimulation::on(state);
        simulation.take_all(to_restore(&before.steps, state, done).cloned());
        return Ok(Plan { steps: simulation.steps, warnings: Vec::new() });
    }
    // The policy did not refuse it when it came up.
    let planned = if old == new { effects_of_up } else { effects };
    let after = planned(new, &bare, compat, &new_ids)?;
    let Difference { removed, mut added } =
        Difference::of(&[not_restored(done, &before.steps), before.steps.clone()].concat(), &after.steps);
    let kept: HashSet<&Step> = before.steps.iter().collect();
    let restored: Vec<Step> =
        lost(&after.steps, state).into_iter().filter(|step| kept.contains(step)).cloned().collect();
    let sets_dns = dns_in(&restored).is_some() || dns_in(&before.steps) != dns_in(&after.steps);
    added.extend(restored);

    let mut simulation = HostSimulation::on(state);
    simulation.take_all(added.iter().filter(|step| matches!(step, Step::LinkUp { .. })).cloned());
    // Replaced routes are restored before an address adds a route like them, which would conflict.
    let undone: Vec<Step> = removed.iter().rev().filter(|step| is_routing(step)).filter_map(Step::undo).collect();
    simulation.take_all(exchanges(&undone));
    simulation.try_all(added.iter().filter(|step| is_address(step)));
    let new_mtu = mtu::of(new, &bare);
    if new_mtu != link.mtu {
        simulation.take(Step::SetMtu { interface: interface.clone(), mtu: new_mtu, before: link.mtu });
    }
    // There is a mark for as long as rules use it: otherwise the tunnel's own packets would go into the tunnel.
    let (old_mark, new_mark) = (mark_in(old, &before.steps), mark_in(new, &after.steps));
    if new_mark != 0 {
        simulation.set_mark(interface, old_mark, new_mark);
    }
    simulation.try_all(added.iter().filter(|step| is_routing(step)));
    simulation.try_all(undone.iter().filter(|step| !matches!(step, Step::SetSysctl { .. })));
    if new_mark == 0 {
        simulation.set_mark(interface, old_mark, new_mark);
    }
    for address in removed.iter().filter_map(address_of) {
        simulation.delete_address(interface, &address, &removed);
    }
    simulation.try_refused_again();
    // Where nothing is forwarded any more, that ends before the firewall goes, and the other way round.
    simulation.take_all(removed.iter().rev().filter(|step| lets_pass(step)).filter_map(Step::undo));
    simulation.take_all(removed.iter().filter(|step| step.is_firewall()).filter_map(Step::undo));
    simulation.take_all(added.iter().filter(|step| step.is_firewall()).cloned());
    simulation.take_all(added.iter().filter(|step| lets_pass(step)).cloned());
    if sets_dns {
        let unset = dns::unset(interface, &old.dns, state);
        simulation.take_all(dns_in(&after.steps).cloned().or(unset));
    }
    let mut warnings = after.warnings;
    warnings.retain(|warning| !before.warnings.contains(warning));
    Ok(Plan { steps: simulation.steps, warnings })
}

/// As [`reload()`], for a host on which a reload was interrupted: an unknown part of its steps, `pending`, was done.
/// They are rolled back, and the plan is for the host after that.
///
/// # Errors
/// As [`reload()`].
pub fn resume(
    old: &HostSpec,
    new: &HostSpec,
    state: &HostState,
    done: &[Step],
    pending: &[Step],
    compat: Compat,
) -> Result<ResumedReload, PlanError> {
    let mut simulation = HostSimulation::on(state);
    let not_undone = simulation.roll_back(pending, done);
    let plan = reload(old, new, &simulation.host, &[done, &not_undone].concat(), compat)?;
    let mut back = simulation.steps;
    // A table atomically replaces one of the same name.
    let created: HashSet<String> = plan.steps.iter().filter_map(Step::created_table).collect();
    back.retain(|step| step.deleted_table().is_none_or(|table| !created.contains(&table)));
    Ok(ResumedReload { rollback: Rollback { steps: back, not_undone }, plan })
}

/// The plan of a reload, with the rollback of an interrupted one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumedReload {
    /// Rollback of the interrupted reload; execute it first.
    pub rollback: Rollback,
    /// The plan of this reload.
    pub plan: Plan,
}

/// Steps that roll back others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollback {
    /// The steps to execute.
    pub steps: Vec<Step>,
    /// Steps that cannot be rolled back now: a route of somebody else cannot be restored while the kernel has one in
    /// its place. They must stay in the ledger: the reload that clears the place restores it, or else `down`.
    pub not_undone: Vec<Step>,
}

/// Rolls back as much of `pending` as this host has, so that it is as `done` left it.
pub fn roll_back(pending: &[Step], done: &[Step], state: &HostState) -> Rollback {
    let mut simulation = HostSimulation::on(state);
    let not_undone = simulation.roll_back(pending, done);
    Rollback { steps: simulation.steps, not_undone }
}

/// Returns those of `steps` that the host has lost, or that `up` skipped because of an obstacle that is gone. If the file
/// has hooks, only steps in `done` are restored: hooks may have removed others on purpose, and `up` leaves those out of
/// `done`.
fn to_restore<'a>(steps: &'a [Step], state: &'a HostState, done: &[Step]) -> impl Iterator<Item = &'a Step> {
    let is_hook = |step: &Step| matches!(step, Step::Hook { phase: Phase::PreUp | Phase::PostUp, .. });
    let set: Option<HashSet<Step>> = done.iter().any(is_hook).then(|| cancel_inverses(done).into_iter().collect());
    let is_ours = move |step: &&Step| set.as_ref().is_none_or(|set| set.contains(*step));
    lost(steps, state).into_iter().filter(is_ours)
}

/// Removals of foreign routes that are not among the steps `before`: an earlier reload could not restore these
/// routes, as it was interrupted or their device was gone.
fn not_restored(done: &[Step], before: &[Step]) -> Vec<Step> {
    let before: HashSet<&Step> = before.iter().collect();
    let mut removals = cancel_inverses(done);
    removals.retain(|step| matches!(step, Step::DeleteRoute(_)) && !before.contains(step));
    removals
}

/// The host without the tunnel.
fn without_tunnel(old: &HostSpec, state: &HostState, done: &[Step], compat: Compat) -> HostState {
    let taken_away = match done {
        [] => down(old, &Hooks::default(), state, compat).steps,
        done => down::undo(done, &Hooks::default()),
    };
    let mut bare = state.clone();
    // What is already gone need not be removed.
    for step in &taken_away {
        let _ = bare.apply(step);
    }
    model::forget_link(&mut bare, &old.interface);
    // What was opened in firewalls of others is still among the rules that were read.
    bare.openings.clone_from(&state.openings);
    bare
}

/// The routing ids that the tunnel already uses; a mark in the file takes precedence.
fn ids(
    old: &HostSpec,
    new: &HostSpec,
    state: &HostState,
    bare: &HostState,
    done: &[Step],
    compat: Compat,
) -> [RoutingIds; 2] {
    let rules: Vec<Rule> = match done {
        [] => down::rules_there(old, state, compat),
        done => down::cancel_inverses(done).into_iter().filter_map(rule_of).collect(),
    };
    let set_mark = done.iter().rev().find_map(|step| match step {
        Step::SetFwmark { fwmark, .. } => Some(*fwmark).filter(|mark| *mark != 0),
        _ => None,
    });
    let kept_mark = rules.iter().find_map(|rule| rule.fwmark).or(set_mark);
    let last = |family| rules.iter().filter(|rule| rule.family == family).map(|rule| rule.priority).max();
    let kept = |spec: &HostSpec, may_keep_mark: bool| {
        let free = RoutingIds::free(spec, bare, compat);
        RoutingIds {
            mark: mark_of(spec).or(kept_mark.filter(|_| may_keep_mark)).unwrap_or(free.mark),
            last_v4: last(AddressFamily::V4).unwrap_or(free.last_v4),
            last_v6: last(AddressFamily::V6).unwrap_or(free.last_v6),
            direct: free.direct,
        }
    };
    [kept(old, true), kept(new, mark_of(old).is_none())]
}

/// The steps that only one of two plans has, in order.
struct Difference {
    removed: Vec<Step>,
    added: Vec<Step>,
}

impl Difference {
    fn of(before: &[Step], after: &[Step]) -> Self {
        let only_in = |these: &[Step], those: &[Step]| -> Vec<Step> {
            let those: HashSet<&Step> = those.iter().collect();
            these.iter().filter(|step| !those.contains(step)).cloned().collect()
        };
        Self { removed: only_in(before, after), added: only_in(after, before) }
    }
}

/// The steps planned so far, and the host after them.
struct HostSimulation {
    host: HostState,
    steps: Vec<Step>,
    /// Steps that conflict with something that is still to be removed.
    refused: Vec<Step>,
}

impl HostSimulation {
    fn on(state: &HostState) -> Self {
        Self { host: state.clone(), steps: Vec::new(), refused: Vec::new() }
    }

    /// Adds a step to the plan, unless the host would refuse it.
    fn take(&mut self, step: Step) -> bool {
        let is_done = self.host.apply(&step).is_ok();
        if is_done {
            self.steps.push(step);
        }
        is_done
    }

    fn take_all(&mut self, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            self.take(step);
        }
    }

    fn try_all<'a>(&mut self, steps: impl Iterator<Item = &'a Step>) {
        for step in steps {
            if !self.take(step.clone()) {
                self.refused.push(step.clone());
            }
        }
    }

    fn try_refused_again(&mut self) {
        let refused = std::mem::take(&mut self.refused);
        self.take_all(refused);
    }

    /// Rolls back those of `pending` that were done after `done`. Returns those that cannot be rolled back.
    fn roll_back(&mut self, pending: &[Step], done: &[Step]) -> Vec<Step> {
        let before = cancel_inverses(done);
        let servers = before.iter().rfind(|step| matches!(step, Step::SetDns { .. })).cloned();
        let replaced = |step: &Step| {
            let is_same =
                |before: &&Step| before.created_table().is_some_and(|table| step.created_table() == Some(table));
            before.iter().rfind(is_same).cloned()
        };
        for (index, step) in pending.iter().enumerate().rev() {
            // What was added before it was removed is not restored.
            self.refused.retain(|refused| refused != step);
            match step {
                // Other tunnels need it too.
                Step::SetSysctl { .. } => {}
                // Its inverse does not say what was set.
                Step::SetDns { .. } | Step::UnsetDns { .. } => self.take_all(servers.clone().or_else(|| step.undo())),
                Step::AddAddress { interface, address } if self.has_address(interface, address) => {
                    self.delete_address(interface, address, &[]);
                }
                // The table that it replaced is restored in its place.
                step if step.created_table().is_some_and(|table| deletes_table(&pending[..index], &table)) => {}
                // It took the place of that table without deleting it.
                step if replaced(step).is_some() => self.take_all(replaced(step)),
                // A conflicting route may disappear only with a later address.
                Step::DeleteAddress { .. } | Step::DeleteRoute(_) | Step::DeleteRule(_) => {
                    self.try_all(step.undo().iter());
                }
                step => self.take_all(step.undo()),
            }
        }
        self.try_refused_again();
        let routes = pending.iter().filter_map(|step| match step {
            Step::AddRoute(route) | Step::DeleteRoute(route) => Some((step, route)),
            _ => None,
        });
        // The first step about a route says whether it existed.
        let mut seen = HashSet::new();
        let first = routes.filter(|(_, route)| seen.insert(*route));
        let is_lost =
            |step: &Step, route: &Route| matches!(step, Step::DeleteRoute(_)) && !self.host.routes.contains(route);
        first.filter(|(step, route)| is_lost(step, route)).map(|(step, _)| step.clone()).collect()
    }

    fn set_mark(&mut self, interface: &str, before: u32, fwmark: u32) {
        if fwmark != before {
            self.take(Step::SetFwmark { interface: interface.to_owned(), fwmark, before });
        }
    }

    fn has_address(&self, interface: &str, address: &IpNet) -> bool {
        self.host.link(interface).is_some_and(|link| link.addresses.contains(address))
    }

    /// Deletes an address and nothing else. With the first address of a network the kernel deletes the others,
    /// depending on a sysctl (`promote_secondaries`), and with the last IPv4 address all IPv4 routes of the link:
    /// both are removed before and added again after.
    fn delete_address(&mut self, interface: &str, address: &IpNet, removed: &[Step]) {
        let is_v4 = |net: &IpNet| AddressFamily::of_net(net) == AddressFamily::V4;
        let mut others = self.host.link(interface).map(|link| link.addresses.clone()).unwrap_or_default();
        others.retain(|other| is_v4(address) && is_v4(other));
        let is_of_network = |other: &IpNet| other.trunc() == address.trunc();
        let empties = others.iter().all(is_of_network);
        let is_first = others.iter().find(|other| is_of_network(other)) == Some(address);
        others.retain(|other| is_first && is_of_network(other) && other != address);
        let on_link =
            |route: &&Route| route.device.as_deref() == Some(interface) && route.protocol != model::PROTOCOL_KERNEL;
        let routes =
            self.host.routes.iter().filter(on_link).filter(|route| is_v4(address) && empties && is_v4(&route.to));

        let interface = || interface.to_owned();
        let routes: Vec<Step> = routes.cloned().map(Step::AddRoute).collect();
        let mut addresses: Vec<Step> =
            others.iter().map(|other| Step::AddAddress { interface: interface(), address: *other }).collect();
        self.take_all(routes.iter().chain(&addresses).filter_map(Step::undo));
        self.take(Step::DeleteAddress { interface: interface(), address: *address });
        addresses.retain(|other| !removed.contains(other));
        self.take_all(addresses.into_iter().chain(routes));
    }
}

/// The mark of the tunnel's packets after these steps.
fn mark_in(spec: &HostSpec, steps: &[Step]) -> u32 {
    let set = steps.iter().find_map(|step| match step {
        Step::SetFwmark { fwmark, .. } => Some(*fwmark),
        _ => None,
    });
    mark_of(spec).or(set).unwrap_or(0)
}

fn dns_in(steps: &[Step]) -> Option<&Step> {
    steps.iter().find(|step| matches!(step, Step::SetDns { .. }))
}

fn is_address(step: &Step) -> bool {
    matches!(step, Step::AddAddress { .. })
}

fn address_of(step: &Step) -> Option<IpNet> {
    match step {
        Step::AddAddress { address, .. } => Some(*address),
        _ => None,
    }
}

fn rule_of(step: Step) -> Option<Rule> {
    match step {
        Step::AddRule(rule) => Some(rule),
        _ => None,
    }
}

/// Steps that decide how traffic is routed.
fn is_routing(step: &Step) -> bool {
    matches!(step, Step::AddRoute(_) | Step::DeleteRoute(_) | Step::AddRule(_) | Step::SetSysctl { .. })
}

/// The steps that restore routes, and those that make room for them.
fn exchanges(undone: &[Step]) -> Vec<Step> {
    let back = undone.iter().filter_map(|step| match step {
        Step::AddRoute(route) => Some((route.to, route.table)),
        _ => None,
    });
    let back: HashSet<_> = back.collect();
    let is_exchange = |step: &&Step| match step {
        Step::AddRoute(_) => true,
        Step::DeleteRoute(route) => back.contains(&(route.to, route.table)),
        _ => false,
    };
    undone.iter().filter(is_exchange).cloned().collect()
}

fn deletes_table(steps: &[Step], table: &str) -> bool {
    steps.iter().any(|step| step.deleted_table().is_some_and(|deleted| deleted == table))
}

/// The steps that have packets forwarded, beside the tunnel's own table.
fn lets_pass(step: &Step) -> bool {
    matches!(step, Step::HoldSysctl { .. } | Step::Open(_))
}
