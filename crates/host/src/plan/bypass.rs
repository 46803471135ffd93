//! Rules of others that come before a tunnel's own, and lead packets for its allowed IPs elsewhere: a table of a second
//! uplink, of a VPN or of a router daemon. The tunnel would be up, and its traffic would leave in the clear.

use ipnet::IpNet;

use crate::state::HostState;
use crate::step::{AddressFamily, MAIN, Route, Rule, Step};

/// A rule that leads packets past a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// The rule. It may have conditions that are not read here: a source, an interface, users.
    pub rule: Rule,
    /// The allowed IPs that it concerns.
    pub to: IpNet,
    /// Where they go.
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

/// The rules on this host that lead packets past the routes and rules in `steps`, one for each rule and route.
///
/// Only a route that takes all of an allowed IP counts, or half of a default route: more specific ones, as another VPN has
/// for its own addresses, are meant. A rule for a mark concerns only packets that a program marks.
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

/// The priority of the first rule by which packets take a route of the tunnel; none where nothing is known to lead there.
fn priority_of(route: &Route, family: AddressFamily, own: &[&Rule], state: &HostState) -> Option<u32> {
    let selects = |rule: &&Rule| {
        rule.family == family
            && rule.table == route.table
            && is_for_any_mark(rule)
            && rule.to.is_none()
            && shows(rule, route)
    };
    // Of the others only the host's own rule for its main table is known to have no condition: it is the last of these.
    let of_host = || state.rules.iter().filter(selects).map(|rule| rule.priority).max();
    let ours = own.iter().copied().filter(selects).map(|rule| rule.priority).min();
    ours.or_else(|| of_host().filter(|_| route.table == MAIN))
}

/// Whether a rule has the route among those that it selects.
fn shows(rule: &Rule, route: &Route) -> bool {
    rule.suppress_prefixlength.is_none_or(|length| u32::from(route.to.prefix_len()) > length)
}

fn is_for_any_mark(rule: &Rule) -> bool {
    rule.fwmark.is_none() || rule.not
}

fn is_own(rule: &Rule, own: &[&Rule]) -> bool {
    own.iter().any(|own| Rule { protocol: own.protocol, ..rule.clone() } == **own)
}

/// Whether `route`, by `rule`, takes what the tunnel's route is for.
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
