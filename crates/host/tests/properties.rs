//! Properties of plans, on random hosts and tunnels, with the host in memory.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use linerate_host::plan::forwarding_guard::ForwardingGuard;
use linerate_host::plan::{Hooks, Plan, down, gateway, possibly_applied, reload, resume, roll_back, undo, up};
use linerate_host::spec::{AddressRange, Compat, HostSpec, RouteConflict, Table};
use linerate_host::state::HostState;
use linerate_host::step::{AddressFamily, GatewayTable, Implementation, MAIN, Route, Rule, Step};
use proptest::prelude::*;
use proptest::sample::select;

#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/plan.rs"]
#[allow(dead_code, reason = "what the fuzz target checks is not used here")]
mod plan;
use bytes::Bytes;
use plan::{ADDRESSES, comparable, standard_rules, without_sysctls};

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 1_000_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn undoing_what_was_done_restores_the_host(host in hosts(), spec in tunnels("wg0"), compat in compats()) {
        let Some(plan) = planned(&spec, &host, compat) else { return Ok(()) };
        for done in 0..=plan.steps.len() {
            let mut after = host.clone();
            execute(&mut after, &plan.steps[..done])?;
            execute(&mut after, &undo(&plan.steps[..done], &Hooks::default()))?;
            prop_assert_eq!(comparable(&after), comparable(&host), "after {} steps of {:?}", done, &plan.steps);
        }
    }

    #[test]
    fn down_without_a_ledger_removes_all_that_up_added(host in hosts(), spec in tunnels("wg0"), compat in compats()) {
        prop_assume!(spec.route_conflict != RouteConflict::Replace);
        let Some(plan) = planned(&spec, &host, compat) else { return Ok(()) };
        let mut after = host.clone();
        execute(&mut after, &plan.steps)?;
        let steps = down(&spec, &Hooks::default(), &after, compat).steps;
        execute(&mut after, &steps)?;
        prop_assert_eq!(without_sysctls(&after), without_sysctls(&host));
    }

    #[test]
    fn two_tunnels_leave_each_other_alone(
        host in hosts(),
        one in tunnels("wg0"),
        other in tunnels("wg1"),
        compats in (compats(), compats()),
        has_ledger: bool,
    ) {
        let keeps = |spec: &HostSpec| spec.route_conflict != RouteConflict::Replace;
        prop_assume!(keeps(&one) && keeps(&other));
        // Without a ledger two tunnels with the same mark cannot be told apart.
        let other = HostSpec { fwmark: other.fwmark.filter(|_| has_ledger), ..other };
        let Some(first) = planned(&one, &host, compats.0) else { return Ok(()) };
        let mut both = host.clone();
        execute(&mut both, &first.steps)?;
        let Some(second) = planned(&other, &both, compats.1) else { return Ok(()) };
        execute(&mut both, &second.steps)?;

        let mut left = both.clone();
        let steps = if has_ledger {
            undo(&first.steps, &Hooks::default())
        } else {
            down(&one, &Hooks::default(), &left, compats.0).steps
        };
        execute(&mut left, &steps)?;
        for step in &second.steps {
            match step {
                Step::AddRule(rule) => prop_assert!(left.rules.contains(rule), "{:?} is gone with the other", rule),
                Step::AddRoute(route) => prop_assert!(left.routes.contains(route), "{:?} is gone with the other", route),
                Step::HoldSysctl { name, value, .. } => {
                    prop_assert_eq!(left.sysctls.get(name), Some(value), "{} is back with the other", name);
                }
                step => {
                    let table = step.created_table();
                    prop_assert!(table.is_none_or(|table| left.firewall_tables.contains(&table)), "{:?}", step);
                }
            }
        }
        execute(&mut left, &undo(&second.steps, &Hooks::default()))?;
        match has_ledger {
            true => prop_assert_eq!(comparable(&left), comparable(&host)),
            false => prop_assert_eq!(without_sysctls(&left), without_sysctls(&host)),
        }
    }

    #[test]
    fn a_reload_restores_what_the_host_has_lost(
        host in hosts(),
        spec in tunnels("wg0"),
        compat in compats(),
        loses in prop::collection::vec(any::<bool>(), 64),
        goes_down: bool,
        loses_tables: bool,
    ) {
        let Some(plan) = planned(&spec, &host, compat) else { return Ok(()) };
        let mut up = host;
        execute(&mut up, &plan.steps)?;
        prop_assert_eq!(reload(&spec, &spec, &up, &plan.steps, compat), Ok(Plan::default()));

        let mut less = up.clone();
        if goes_down {
            set_down(&mut less, "wg0");
        }
        for (step, _) in plan.steps.iter().zip(loses.iter().cycle()).filter(|(_, is_lost)| **is_lost) {
            match step {
                Step::AddAddress { .. } | Step::AddRoute(_) | Step::AddRule(_) => {
                    // What is gone with an address or the link cannot be removed again.
                    let _ = step.undo().map(|undo| less.apply(&undo));
                }
                Step::SetMtu { interface, mtu, .. } => {
                    let other = Step::SetMtu { interface: interface.clone(), mtu: mtu - 1, before: *mtu };
                    execute(&mut less, &[other])?;
                }
                Step::HoldSysctl { name, before, .. } => drop(less.sysctls.insert(name.clone(), before.clone())),
                _ => {}
            }
        }
        if loses_tables {
            less.firewall_tables.clear();
            let is_ours = |table: &String| {
                table == ForwardingGuard::NFT_NAME
                    || plan.steps.iter().any(|step| step.created_table().as_ref() == Some(table))
            };
            up.firewall_tables.retain(is_ours);
        }
        let restored = reload(&spec, &spec, &less, &plan.steps, compat).expect("what comes up can be reloaded");
        execute(&mut less, &restored.steps)?;
        prop_assert_eq!(comparable(&less), comparable(&up), "by {:?}", restored.steps);

        let all: Vec<Step> = plan.steps.iter().chain(&restored.steps).cloned().collect();
        prop_assert_eq!(reload(&spec, &spec, &less, &all, compat), Ok(Plan::default()));
    }

    #[test]
    fn a_reload_equals_a_fresh_up(
        host in hosts(),
        then in tunnels("wg0"),
        now in tunnels("wg0"),
        compat in compats(),
        has_ledger: bool,
    ) {
        prop_assume!(has_ledger || then.route_conflict != RouteConflict::Replace);
        let (Some(was), Some(is)) = (planned(&then, &host, compat), planned(&now, &host, compat)) else { return Ok(()) };
        let mut fresh = host.clone();
        execute(&mut fresh, &is.steps)?;

        let mut reloaded = host.clone();
        execute(&mut reloaded, &was.steps)?;
        let done: &[Step] = if has_ledger { &was.steps } else { &[] };
        let plan = reload(&then, &now, &reloaded, done, compat).expect("what comes up can be reloaded");
        execute(&mut reloaded, &plan.steps)?;
        let same = if has_ledger { comparable } else { without_sysctls };
        prop_assert_eq!(same(&reloaded), same(&fresh), "by {:?}", &plan.steps);
        prop_assert_eq!(mark_after(&then, &[&was.steps, &plan.steps]), mark_after(&now, &[&is.steps]));

        let all: Vec<Step> = was.steps.iter().chain(&plan.steps).cloned().collect();
        execute(&mut reloaded, &undo(&all, &Hooks::default()))?;
        prop_assert_eq!(same(&reloaded), same(&host), "undone {:?}", all);
    }

    #[test]
    fn a_reload_interrupted_anywhere_is_rolled_back(
        host in hosts(),
        then in tunnels("wg0"),
        now in tunnels("wg0"),
        compat in compats(),
        at in 0.0..=1.0,
    ) {
        let Some(Broken { was, up, plan, half }) = broken(&host, &then, &now, compat, at)? else { return Ok(()) };
        let mut after = half;
        let back = roll_back(&plan.steps, &was.steps, &after);
        execute(&mut after, &back.steps)?;
        // A route of others' does not come back beside one of the kernel's, as it may have been before.
        let mut up = up;
        execute(&mut up, &back.not_undone)?;
        prop_assert!(back.not_undone.is_empty() || now.route_conflict == RouteConflict::Replace);
        prop_assert_eq!(comparable(&after), comparable(&up), "{} of {:?}", at, &plan.steps);

        let all = [was.steps, back.not_undone].concat();
        execute(&mut after, &undo(&all, &Hooks::default()))?;
        prop_assert_eq!(comparable(&after), comparable(&host), "undone {:?}", all);
    }

    #[test]
    fn down_undoes_a_reload_interrupted_anywhere(
        host in hosts(),
        then in tunnels("wg0"),
        now in tunnels("wg0"),
        compat in compats(),
        at in 0.0..=1.0,
    ) {
        let Some(Broken { was, plan, half, .. }) = broken(&host, &then, &now, compat, at)? else { return Ok(()) };
        let mut after = half;
        let steps = undo(&possibly_applied(&was.steps, &plan.steps), &Hooks::default());
        for step in &steps {
            // What is gone, or back, already.
            let _ = after.apply(step);
        }
        prop_assert_eq!(comparable(&after), comparable(&host), "{} of {:?}", at, &plan.steps);
    }

    #[test]
    fn down_undoes_two_reloads_interrupted_anywhere(
        host in hosts(),
        then in tunnels("wg0"),
        now in tunnels("wg0"),
        compat in compats(),
        at in 0.0..=1.0,
        at_again in 0.0..=1.0,
    ) {
        let Some(Broken { was, plan, half, .. }) = broken(&host, &then, &now, compat, at)? else { return Ok(()) };
        let Ok(again) = resume(&then, &then, &half, &was.steps, &plan.steps, compat) else { return Ok(()) };
        let steps = [again.rollback.steps, again.plan.steps].concat();
        let mut after = half;
        execute(&mut after, &steps[..(at_again * steps.len() as f64) as usize])?;
        let pending = [plan.steps, steps].concat();
        for step in &undo(&possibly_applied(&was.steps, &pending), &Hooks::default()) {
            // What is gone, or back, already.
            let _ = after.apply(step);
        }
        prop_assert_eq!(comparable(&after), comparable(&host), "{} and {} of {:?}", at, at_again, pending);
    }

    #[test]
    fn a_reload_after_an_interrupted_one_equals_a_fresh_up(
        host in hosts(),
        then in tunnels("wg0"),
        now in tunnels("wg0"),
        another in tunnels("wg0"),
        compat in compats(),
        at in 0.0..=1.0,
        at_again in 0.0..=1.0,
        is_changed: bool,
    ) {
        let Some(Broken { was, plan, half, .. }) = broken(&host, &then, &now, compat, at)? else { return Ok(()) };
        let next = if is_changed { &another } else { &now };
        let Some(is) = planned(next, &host, compat) else { return Ok(()) };
        let mut fresh = host.clone();
        execute(&mut fresh, &is.steps)?;

        // The second one may end in the middle, too.
        let mut after = half;
        let mut pending = plan.steps;
        let again = resume(&then, next, &after, &was.steps, &pending, compat).expect("what comes up can be reloaded");
        let again = [again.rollback.steps, again.plan.steps].concat();
        execute(&mut after, &again[..part(&again, at_again)])?;
        pending.extend(again);
        let last = resume(&then, next, &after, &was.steps, &pending, compat).expect("what comes up can be reloaded");
        execute(&mut after, &last.rollback.steps)?;
        execute(&mut after, &last.plan.steps)?;
        prop_assert_eq!(comparable(&after), comparable(&fresh), "{} and {} of {:?}, then {:?}", at, at_again, pending, last);

        let all = [was.steps, last.rollback.not_undone, last.plan.steps].concat();
        execute(&mut after, &undo(&all, &Hooks::default()))?;
        prop_assert_eq!(comparable(&after), comparable(&host), "undone {:?}", all);
    }

    #[test]
    fn no_foreign_route_is_deleted_unless_it_is_to_be_replaced(
        host in hosts(),
        then in tunnels("wg0"),
        now in tunnels("wg0"),
        compat in compats(),
    ) {
        let replaces = |spec: &HostSpec| spec.route_conflict == RouteConflict::Replace;
        prop_assume!(!replaces(&then) && !replaces(&now));
        let Some(was) = planned(&then, &host, compat) else { return Ok(()) };
        let mut up = host.clone();
        execute(&mut up, &was.steps)?;
        let reloaded = reload(&then, &now, &up, &was.steps, compat).map(|plan| plan.steps).unwrap_or_default();
        let downed = down(&then, &Hooks::default(), &up, compat).steps;
        for step in was.steps.iter().chain(&reloaded).chain(&downed) {
            if let Step::DeleteRoute(route) = step {
                prop_assert_eq!(route.device.as_deref(), Some("wg0"));
            }
        }
    }

    #[test]
    fn the_packets_of_a_tunnel_never_go_into_it(host in hosts(), spec in tunnels("wg0"), compat in compats()) {
        let spec = HostSpec { table: Table::Auto, ..spec };
        let host = without_policies(host);
        let Some(plan) = planned(&spec, &host, compat) else { return Ok(()) };
        let mut after = host.clone();
        execute(&mut after, &plan.steps)?;
        let mark = mark_after(&spec, &[&plan.steps]);
        let own_networks: Vec<IpNet> = spec.addresses.iter().map(IpNet::trunc).collect();
        for endpoint in spec.endpoints.iter().map(SocketAddr::ip) {
            if !own_networks.iter().any(|net| net.contains(&endpoint)) {
                let device = lookup(&after, &endpoint, mark).and_then(|route| route.device);
                prop_assert_ne!(device.as_deref(), Some("wg0"), "{} with {:?}", endpoint, &plan.steps);
            }
        }
    }

    #[test]
    fn two_full_tunnels_do_not_route_each_others_packets(host in hosts(), one in tunnels("wg0"), other in tunnels("wg1")) {
        let host = HostState { disabled_families: Vec::new(), ..without_policies(host) };
        let full = |spec| HostSpec {
            table: Table::Auto,
            fwmark: None,
            mtu: Some(1400),
            allowed_ips: vec!["0.0.0.0/0".parse().expect("it is a prefix"), "::/0".parse().expect("it is a prefix")],
            addresses: Vec::new(),
            excluded: Vec::new(),
            ..spec
        };
        let (one, other) = (full(one), full(other));
        let Some(first) = planned(&one, &host, Compat::Native) else { return Ok(()) };
        let mut both = host.clone();
        execute(&mut both, &first.steps)?;
        let Some(second) = planned(&other, &both, Compat::Native) else { return Ok(()) };
        execute(&mut both, &second.steps)?;
        for (spec, steps) in [(&one, &first.steps), (&other, &second.steps)] {
            for endpoint in spec.endpoints.iter().map(SocketAddr::ip) {
                let direct = lookup(&host, &endpoint, 0);
                if direct.is_some() {
                    prop_assert_eq!(lookup(&both, &endpoint, mark_after(spec, &[steps])), direct, "{}", endpoint);
                }
            }
        }
    }

    #[test]
    fn the_longest_prefix_wins_across_the_tunnel_and_the_host(
        host in hosts(),
        spec in tunnels("wg0"),
        compat in compats(),
        to in select(ADDRESSES.to_vec()),
    ) {
        let spec = HostSpec { table: Table::Auto, route_conflict: RouteConflict::Skip, ..spec };
        let to: IpAddr = to.parse().expect("it is an address");
        let host = without_policies(host);
        prop_assume!(!host.disabled_families.contains(&AddressFamily::of(&to)));
        let Some(plan) = planned(&spec, &host, compat) else { return Ok(()) };
        let mut after = host.clone();
        execute(&mut after, &plan.steps)?;

        let addresses = plan.steps.iter().filter_map(|step| match step {
            Step::AddAddress { address, .. } => Some(*address),
            _ => None,
        });
        let taken = spec.allowed_ips.iter().copied().chain(addresses).map(|net| net.trunc());
        let ours = taken.filter(|net| net.contains(&to)).map(|net| net.prefix_len()).max();
        let before = lookup(&host, &to, 0);
        let theirs = before.as_ref().map(|route| route.to.prefix_len());
        let device = lookup(&after, &to, 0).and_then(|route| route.device);
        let is_excluded = spec.excluded.iter().any(|net| net.contains(&to));
        let is_on_lan = host.routes.iter().any(|route| spec.exclude_lan && route.via.is_none() && route.to.contains(&to));
        if is_excluded || is_on_lan || ours == theirs || spec.mtu.is_some_and(|mtu| mtu < 1280) {
            return Ok(());
        }
        let expected = if ours > theirs { Some("wg0".to_owned()) } else { before.and_then(|route| route.device) };
        prop_assert_eq!(device, expected, "{} with {:?}", to, &plan.steps);
    }

    #[test]
    fn excluded_prefixes_are_routed_as_without_the_tunnel(
        host in hosts(),
        spec in tunnels("wg0"),
        compat in compats(),
        to in select(ADDRESSES.to_vec()),
    ) {
        let to: IpAddr = to.parse().expect("it is an address");
        let spec = HostSpec { table: Table::Auto, route_conflict: RouteConflict::Skip, ..spec };
        prop_assume!(spec.excluded.iter().any(|net| net.contains(&to)));
        prop_assume!(!spec.addresses.iter().any(|net| net.trunc().contains(&to)));
        let host = without_policies(host);
        let before = lookup(&host, &to, 0);
        prop_assume!(before.is_some());
        let Some(plan) = planned(&spec, &host, compat) else { return Ok(()) };
        let mut after = host.clone();
        execute(&mut after, &plan.steps)?;
        prop_assert_eq!(lookup(&after, &to, 0), before, "{} with {:?}", to, &plan.steps);
    }

    #[test]
    fn nothing_is_forwarded_before_the_table_of_the_gateway(
        host in hosts(),
        then in tunnels("wg0"),
        now in tunnels("wg0"),
        compat in compats(),
    ) {
        let Some(was) = planned(&then, &host, compat) else { return Ok(()) };
        let mut up = host.clone();
        execute(&mut up, &was.steps)?;
        let Ok(changes) = reload(&then, &now, &up, &was.steps, compat) else { return Ok(()) };
        for (mut on, steps) in [(host, was.steps), (up, changes.steps)] {
            for (index, step) in steps.iter().enumerate() {
                prop_assert_eq!(on.apply(step), Ok(()));
                if step.is_firewall() && steps.get(index + 1).is_some_and(Step::is_firewall) {
                    // In the middle of a transaction.
                    continue;
                }
                let holds = on.held_sysctls.values().any(|held| held.holders.contains("wg0"));
                let table = on.firewall_tables.contains(&"inet linerate_gateway-wg0".to_owned());
                prop_assert!(!holds || table, "after {:?} of {:?}", step, steps);
            }
        }
    }

    #[test]
    fn a_restricted_address_belongs_to_the_peer_with_the_longest_prefix(
        bytes in any::<[u8; 64]>(),
        from in select(ADDRESSES.to_vec()),
    ) {
        let from: IpAddr = from.parse().expect("it is an address");
        let peers = plan::peers(&mut Bytes(&bytes), 4);
        let longest = |(allowed, _): &&(Vec<IpNet>, Vec<IpNet>)| {
            allowed.iter().filter(|net| net.contains(&from)).map(IpNet::prefix_len).max()
        };
        let owner = peers.iter().filter(|peer| longest(peer).is_some()).max_by_key(longest);
        let restrictions = gateway::restrictions(peers.iter().map(|(allowed, to)| (&**allowed, &**to)));
        let has = |range: &AddressRange| from.is_ipv4() == range.first.is_ipv4() && (range.first..=range.last).contains(&from);
        let found: Vec<_> = restrictions.iter().filter(|restriction| restriction.sources.iter().any(has)).collect();
        match owner.filter(|(_, destinations)| !destinations.is_empty()) {
            None => prop_assert!(found.is_empty(), "{:?} of {:?}", found, peers),
            Some((_, destinations)) => {
                prop_assert_eq!(found.len(), 1, "{:?}", &peers);
                prop_assert_eq!(&found[0].destinations, &IpNet::aggregate(destinations), "{:?}", &peers);
            }
        }
        let distinct: HashSet<&Vec<IpNet>> = restrictions.iter().map(|restriction| &restriction.destinations).collect();
        prop_assert_eq!(distinct.len(), restrictions.len());
        let mut sources: Vec<&AddressRange> = restrictions.iter().flat_map(|restriction| &restriction.sources).collect();
        sources.sort();
        prop_assert!(sources.windows(2).all(|pair| pair[0].last < pair[1].first || pair[0].last.is_ipv4() != pair[1].first.is_ipv4()));
    }

    #[test]
    fn every_plan_has_messages_and_survives_json(host in hosts(), spec in tunnels("wg0"), compat in compats()) {
        let Some(plan) = planned(&spec, &host, compat) else { return Ok(()) };
        let lines = linerate_host::plan::messages::as_commands(&plan.steps);
        let gateway = plan.steps.iter().find_map(|step| match step {
            Step::AddGateway(table) => Some(linerate_host::plan::nft_commands(table).len()),
            _ => None,
        });
        prop_assert!(lines.len() < plan.steps.len() + gateway.unwrap_or(0) || plan.steps.is_empty());
        let json = serde_json::to_string(&plan).expect("a plan is JSON");
        prop_assert_eq!(&serde_json::from_str::<Plan>(&json).expect("it reads back"), &plan);
        prop_assert!(plan.steps.iter().map(linerate_host::plan::messages::describe).all(|sentence| !sentence.is_empty()));
    }
}

#[test]
fn a_table_that_took_the_place_of_another_is_rolled_back_to_that() {
    let table = |isolated| {
        Step::AddGateway(GatewayTable { interface: "wg0".into(), gateway: None, isolated, restrictions: Vec::new() })
    };
    let (done, pending) = ([table(true)], [table(false)]);
    let mut host = HostState { nftables: true, ..HostState::default() };
    execute(&mut host, &done).expect("there is none yet");
    // Whether it was executed or not.
    assert_eq!(roll_back(&pending, &done, &host).steps, done);
    execute(&mut host, &pending).expect("a table replaces one of its name");
    assert_eq!(roll_back(&pending, &done, &host).steps, done);
}

/// A reload that has ended after a part of its steps.
struct Broken {
    was: Plan,
    /// The host before it.
    up: HostState,
    plan: Plan,
    /// The host as it has left it.
    half: HostState,
}

fn broken(
    host: &HostState,
    then: &HostSpec,
    now: &HostSpec,
    compat: Compat,
    at: f64,
) -> Result<Option<Broken>, TestCaseError> {
    let Some(was) = planned(then, host, compat) else { return Ok(None) };
    let mut up = host.clone();
    execute(&mut up, &was.steps)?;
    let Ok(plan) = reload(then, now, &up, &was.steps, compat) else { return Ok(None) };
    let mut half = up.clone();
    execute(&mut half, &plan.steps[..part(&plan.steps, at)])?;
    Ok(Some(Broken { was, up, plan, half }))
}

/// How many steps a part of them is: 0.0 for none, 1.0 for all.
fn part(steps: &[Step], at: f64) -> usize {
    (steps.len() as f64 * at) as usize
}

fn planned(spec: &HostSpec, host: &HostState, compat: Compat) -> Option<Plan> {
    up(spec, &Hooks::default(), Implementation::Daemon, host, compat).ok()
}

fn execute(host: &mut HostState, steps: &[Step]) -> Result<(), TestCaseError> {
    for step in steps {
        let done = host.apply(step);
        prop_assert!(done.is_ok(), "{:?}: {:?} of {:?}", done, step, steps);
    }
    Ok(())
}

/// As `ip link set IFACE down`: the kernel removes the routes over the link, and its IPv6 addresses
/// (`addrconf_ifdown` in net/ipv6/addrconf.c).
fn set_down(host: &mut HostState, interface: &str) {
    for link in host.links.iter_mut().filter(|link| link.name == interface) {
        link.up = false;
        link.addresses.retain(|address| address.addr().is_ipv4());
    }
    host.routes.retain(|route| route.device.as_deref() != Some(interface));
}

/// A host that routes by its main table alone, where it is plain which way a packet is to take.
fn without_policies(mut host: HostState) -> HostState {
    host.rules = standard_rules();
    host.routes.retain(|route| route.table == MAIN);
    host
}

fn mark_after(spec: &HostSpec, plans: &[&[Step]]) -> u32 {
    let steps = plans.iter().flat_map(|steps| *steps);
    let mut set = steps.filter_map(|step| match step {
        Step::SetFwmark { fwmark, .. } => Some(*fwmark),
        _ => None,
    });
    set.next_back().or(spec.fwmark).unwrap_or(0)
}

/// The route that a packet takes: rules by priority, in each table the longest prefix with the lowest metric.
fn lookup(host: &HostState, to: &IpAddr, mark: u32) -> Option<Route> {
    let mut rules: Vec<&Rule> = host.rules.iter().filter(|rule| rule.family == AddressFamily::of(to)).collect();
    rules.sort_by_key(|rule| rule.priority);
    rules.into_iter().find_map(|rule| {
        let has_mark = rule.fwmark.is_none_or(|wanted| wanted == mark);
        let matches = has_mark && rule.to.is_none_or(|net| net.contains(to));
        let routes = host.routes.iter().filter(|route| route.table == rule.table && route.to.contains(to));
        let best = routes.max_by_key(|route| (route.to.prefix_len(), std::cmp::Reverse(route.metric)))?;
        let is_suppressed = rule.suppress_prefixlength.is_some_and(|len| u32::from(best.to.prefix_len()) <= len);
        (matches != rule.not && !is_suppressed).then(|| best.clone())
    })
}

fn compats() -> impl Strategy<Value = Compat> {
    select(vec![Compat::WgQuick, Compat::Native])
}

// 64 bytes decide everything that the generators ask for.

fn tunnels(interface: &'static str) -> impl Strategy<Value = HostSpec> {
    let tunnel = |bytes: [u8; 64]| plan::tunnel(&mut Bytes(&bytes));
    any::<[u8; 64]>().prop_map(move |bytes| HostSpec { interface: interface.to_owned(), ..tunnel(bytes) })
}

fn hosts() -> impl Strategy<Value = HostState> {
    any::<[u8; 64]>().prop_map(|bytes| plan::host(&mut Bytes(&bytes)))
}
