//! Finds other programs' routing rules that come before a tunnel's own and lead packets for its allowed IPs elsewhere, as
//! for a second uplink, another VPN or a routing daemon. The tunnel's traffic would leave in the clear.

use ipnet::IpNet;

use crate::state::HostState;
use crate::step::{AddressFamily, MAIN, Route, Rule, Step};

/// A rule that leads packets past a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// The rule. It may have further conditions, which are not read: a source, an interface, users.
    pub rule: Rule,
    /// The allowed IPs whose packets the rule leads past the tunnel.
    pub to: IpNet,
    /// The interface by which those packets leave.
    pub device: String,
}

impl std::fmt::Display for Bypass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule: Rule { family, priority, table, .. }, to, device } = self;
        let version = if *family == AddressFamily::V4 { 4 } else { 6 };
        write!(
            f,
            "the rule {priority} (`ip -{version} rule show pref {priority}`) comes before those of the tunnel: packets for {to} \
             that it matches take table {table} and leave through {device}"
        )
    }
}

/// Finds rules on this host that lead packets past the routes and rules in `steps`; one result per rule and route.
///
/// Only a route that covers all of an allowed IP, or half of a default route, counts: more specific routes, as of another
/// VPN for its own addresses, are intended. A rule with a mark affects only packets that a program marks.
pub fn bypasses(steps: &[Step], state: &HostState) -> Vec<Bypass> {
    let own_rules: Vec<&Rule> = steps.iter().filter_map(rule_of).collect();
    let routes = steps.iter().filter_map(|step| match step {
        Step::AddRoute(route) => Some(route),
        _ => None,
    });
    let mut found: Vec<Bypass> = Vec::new();
    for own in routes {
        let family = AddressFamily::of_net(&own.to);
        let Some(priority) = priority_of(own, family, &own_rules, state) else { continue };
        let before = state.rules.iter().filter(|rule| {
            rule.family == family && rule.priority < priority && is_for_any_mark(rule) && !is_own(rule, &own_rules)
        });
        for rule in before {
            let elsewhere = state.routes.iter().find(|route| takes(rule, route, own));
            let Some(device) = elsewhere.and_then(|route| route.device.clone()) else { continue };
            if !found.iter().any(|bypass| bypass.rule == *rule) {
                found.push(Bypass { rule: rule.clone(), to: own.to, device });
            }
        }
    }
    found
}

/// Returns the priority of the first rule that leads packets to a route of the tunnel; `None` if no rule is known to.
fn priority_of(route: &Route, family: AddressFamily, own: &[&Rule], state: &HostState) -> Option<u32> {
    let selects = |rule: &&Rule| {
        rule.family == family
            && rule.table == route.table
            && is_for_any_mark(rule)
            && rule.to.is_none()
            && shows(rule, route)
    };
    // Among other rules, only the host's own for the main table is known to have no condition; it comes last.
    let of_host = || state.rules.iter().filter(selects).map(|rule| rule.priority).max();
    let ours = own.iter().copied().filter(selects).map(|rule| rule.priority).min();
    ours.or_else(|| of_host().filter(|_| route.table == MAIN))
}

/// Whether a rule can select the route.
fn shows(rule: &Rule, route: &Route) -> bool {
    rule.suppress_prefixlength.is_none_or(|length| u32::from(route.to.prefix_len()) > length)
}

fn is_for_any_mark(rule: &Rule) -> bool {
    rule.fwmark.is_none() || rule.not
}

fn is_own(rule: &Rule, own: &[&Rule]) -> bool {
    own.iter().any(|own| Rule { protocol: own.protocol, ..rule.clone() } == **own)
}

/// Whether `route`, selected by `rule`, takes the packets of the tunnel's route.
fn takes(rule: &Rule, route: &Route, own: &Route) -> bool {
    let is_elsewhere = route.device.is_some() && route.device != own.device;
    let covers = |net: &IpNet| net.contains(&own.to) || (own.to.prefix_len() == 0 && net.prefix_len() == 1);
    route.table == rule.table
        && AddressFamily::of_net(&route.to) == rule.family
        && is_elsewhere
        && shows(rule, route)
        && covers(&route.to)
        && rule.to.as_ref().is_none_or(covers)
}

fn rule_of(step: &Step) -> Option<&Rule> {
    match step {
        Step::AddRule(rule) => Some(rule),
        _ => None,
    }
}
