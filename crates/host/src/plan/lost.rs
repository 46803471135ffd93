//! Finds settings of a tunnel that other programs have removed from the host: a restart of systemd-networkd deletes rules
//! and routes, `ip link set wg0 down` deletes routes and IPv6 addresses, a DHCP client rewrites resolv.conf, and a restarted
//! firewall flushes its tables.

use std::collections::HashSet;

use super::forwarding_guard::{ForwardingGuard, needs_guard};
use crate::state::HostState;
use crate::step::{Route, Rule, Step};

/// Returns those of `steps`, in order, whose effect is gone from the host. State that cannot be read counts as present.
///
/// Hooks, keys and marks are not part of the host's state. Where there is one table ([`HostState::one_table`]), only the
/// firewall and forwarding are compared.
pub fn lost<'a>(steps: &'a [Step], state: &'a HostState) -> Vec<&'a Step> {
    let routes: HashSet<&Route> = state.routes.iter().collect();
    let is_lost = |step: &&Step| match step {
        Step::HoldSysctl { interface, name, value, .. } => {
            let is_set_otherwise = state.sysctls.get(name).is_some_and(|set| set != value);
            is_set_otherwise || (state.sysctls.contains_key(name) && is_unguarded(interface, name, state))
        }
        Step::Open(opening) => !state.openings.contains(&opening.id()),
        Step::AddFirewall(_) | Step::AddGateway(_) => {
            let is_lost = |table| !state.firewall_tables.contains(table) || state.emptied_tables.contains(table);
            step.created_table().as_ref().is_some_and(is_lost)
        }
        _ if state.one_table => false,
        Step::AddAddress { interface, address } => {
            state.link(interface).is_some_and(|link| !link.addresses.contains(address))
        }
        Step::SetMtu { interface, mtu, .. } => state.link(interface).is_some_and(|link| link.mtu != *mtu),
        Step::LinkUp { interface } => state.link(interface).is_some_and(|link| !link.up),
        Step::SetDns { interface, dns, .. } => {
            let is_forgotten = |known: &Vec<String>| !dns.servers.is_empty() && !known.contains(interface);
            state.interfaces_with_dns.as_ref().is_some_and(is_forgotten)
        }
        Step::AddRoute(route) => !routes.contains(route),
        Step::DeleteRoute(route) => routes.contains(route),
        Step::AddRule(rule) => !state.rules.iter().any(|there| is_same(there, rule)),
        Step::SetSysctl { name, value, .. } => state.sysctls.get(name).is_some_and(|set| set != value),
        _ => false,
    };
    steps.iter().filter(is_lost).collect()
}

/// Whether a sysctl lets packets pass that only the guard would drop, and the guard is gone.
fn is_unguarded(interface: &str, sysctl: &str, state: &HostState) -> bool {
    needs_guard(interface, sysctl) && !state.firewall_tables.iter().any(|table| table == ForwardingGuard::NFT_NAME)
}

/// Compares rules without their protocol: a kernel before 4.17 has none.
fn is_same(there: &Rule, rule: &Rule) -> bool {
    Rule { protocol: rule.protocol, ..there.clone() } == *rule
}
