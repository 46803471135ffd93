//! Policy routing: a routing table of the tunnel's own, and the rules that select it.
//!
//! A default route (a full tunnel), a route that contains an endpoint and one that contains an excluded prefix cannot
//! be in the main table, because the tunnel's own packets would follow them. Those packets carry a firewall mark, and
//! marked packets skip the tunnel's table. So they are routed as they would be without the tunnel, wherever the
//! endpoint roams and whichever network the host joins; a host route to the endpoint would be wrong after either.
//! Which routes need this follows from the file alone.
//!
//! The longest prefix wins across the main table and the tunnel's, as in a single table. For each prefix length L in
//! the tunnel's table, longest first, there are two rules: the main table for routes longer than L, then the tunnel's
//! table for routes of at least L, for packets without the mark. A full tunnel is the case L = 0; its two rules are
//! those of wg-quick(8). Rules for excluded prefixes come first and select the main table.
//!
//! With wg-quick, two full tunnels route each other's packets, because each rule only knows its own mark. So `linerate`
//! sends marked packets to the main table before the rules of any tunnel.

use ipnet::IpNet;

use crate::spec::{Compat, HostSpec};
use crate::state::HostState;
use crate::step::{AddressFamily, MAIN, Rule};

/// The protocol of a rule (rtnetlink.h, `RTPROT_UNSPEC`): `ip rule` sets none, nor do we.
const PROTOCOL: u8 = 0;

/// The first table that wg-quick tries, which is the mark too: the usual port.
const FIRST_TABLE_WG_QUICK: u32 = 51_820;

/// The first table that `linerate` tries: far from wg-quick's, without the mark bits of Kubernetes (0x4000 masquerade,
/// 0x8000 drop) and of Tailscale (0xff0000).
const FIRST_TABLE: u32 = 11_820;

/// The priorities of `linerate`'s rules: after VRFs (1000) and Tailscale (5210 to 5270), before 32766 (main) and the
/// rules that `ip rule` puts just before it.
const PRIORITIES: std::ops::RangeInclusive<u32> = 18_000..=LAST_PRIORITY;
pub(super) const LAST_PRIORITY: u32 = 19_999;

/// The priority of the rule that sends a tunnel's marked packets to the main table, before the rules of all tunnels.
/// Otherwise two full tunnels would route each other's packets in a loop.
const DIRECT_PRIORITY: u32 = *PRIORITIES.start() - 1;

/// The firewall mark, the table and the rule priorities that a tunnel uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoutingIds {
    /// The firewall mark of its packets, which is also the number of its table.
    pub mark: u32,
    /// The priority of its last IPv4 rule; the others come before it.
    pub last_v4: u32,
    /// The same for IPv6.
    pub last_v6: u32,
    /// The priority of the rule that sends its own packets to the main table.
    pub direct: Option<u32>,
}

impl RoutingIds {
    /// Free ones, for a new tunnel.
    pub(super) fn free(spec: &HostSpec, state: &HostState, compat: Compat) -> Self {
        let last = |family| match compat {
            Compat::WgQuick => kernel_priority(state, family),
            Compat::Native => own_priority(state, family),
        };
        Self {
            mark: mark_of(spec).unwrap_or_else(|| free_table(state, compat)),
            last_v4: last(AddressFamily::V4),
            last_v6: last(AddressFamily::V6),
            direct: direct_priority(compat),
        }
    }

    fn last(&self, family: AddressFamily) -> u32 {
        match family {
            AddressFamily::V4 => self.last_v4,
            AddressFamily::V6 => self.last_v6,
        }
    }
}

/// wg-quick has no such rule.
pub(super) fn direct_priority(compat: Compat) -> Option<u32> {
    (compat == Compat::Native).then_some(DIRECT_PRIORITY)
}

/// The mark in the file; 0 means none.
pub(super) fn mark_of(spec: &HostSpec) -> Option<u32> {
    spec.fwmark.filter(|mark| *mark != 0)
}

/// The rules of a family in the order in which they are added, lowest precedence first. `own` are the prefixes in the
/// tunnel's table.
pub(super) fn rules(family: AddressFamily, own: &[IpNet], excluded: &[IpNet], ids: &RoutingIds) -> Vec<Rule> {
    let own: Vec<IpNet> = own.iter().copied().filter(|net| AddressFamily::of_net(net) == family).collect();
    let mut lengths: Vec<u8> = own.iter().map(IpNet::prefix_len).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let Some(&shortest) = lengths.first() else { return Vec::new() };

    let mut priority = ids.last(family);
    let direct = ids.direct.map(|priority| Rule { priority, fwmark: Some(ids.mark), ..to_main(family, None, None) });
    let mut rules: Vec<Rule> = direct.into_iter().collect();
    let mut add = |rule: Rule, priority: &mut u32| {
        rules.push(Rule { priority: *priority, ..rule });
        *priority = priority.saturating_sub(1);
    };
    let longer_than = |length: u8| Some(u32::from(length));
    for length in lengths {
        let at_least = if length == shortest { None } else { longer_than(length - 1) };
        add(to_own_table(family, ids.mark, at_least), &mut priority);
        if length < own[0].max_prefix_len() {
            add(to_main(family, None, longer_than(length)), &mut priority);
        }
    }
    let is_inside = |net: &&IpNet| own.iter().any(|own| own.contains(*net));
    rules.extend(excluded.iter().filter(is_inside).map(|net| Rule { priority, ..to_main(family, Some(*net), None) }));
    rules
}

fn to_own_table(family: AddressFamily, mark: u32, suppress_prefixlength: Option<u32>) -> Rule {
    Rule {
        family,
        priority: 0,
        not: true,
        fwmark: Some(mark),
        to: None,
        table: mark,
        suppress_prefixlength,
        protocol: PROTOCOL,
    }
}

fn to_main(family: AddressFamily, to: Option<IpNet>, suppress_prefixlength: Option<u32>) -> Rule {
    Rule { family, priority: 0, not: false, fwmark: None, to, table: MAIN, suppress_prefixlength, protocol: PROTOCOL }
}

/// The priority that the kernel gives a rule without one: one less than that of the second rule, as the first is for
/// the table `local` (fib_default_rule_pref in net/core/fib_rules.c).
fn kernel_priority(state: &HostState, family: AddressFamily) -> u32 {
    let mut priorities: Vec<u32> = priorities(state, family).collect();
    priorities.sort_unstable();
    priorities.get(1).map_or(0, |second| second.saturating_sub(1))
}

fn own_priority(state: &HostState, family: AddressFamily) -> u32 {
    let taken = priorities(state, family).filter(|priority| PRIORITIES.contains(priority)).min();
    taken.map_or(*PRIORITIES.end(), |lowest| lowest.saturating_sub(1))
}

fn priorities(state: &HostState, family: AddressFamily) -> impl Iterator<Item = u32> + '_ {
    state.rules.iter().filter(move |rule| rule.family == family).map(|rule| rule.priority)
}

/// The first table without routes; in native mode also without rules that reference it.
fn free_table(state: &HostState, compat: Compat) -> u32 {
    let has_routes = |table: u32| state.routes.iter().any(|route| route.table == table);
    let has_rules = |table: u32| state.rules.iter().any(|rule| rule.table == table || rule.fwmark == Some(table));
    match compat {
        Compat::WgQuick => (FIRST_TABLE_WG_QUICK..).find(|table| !has_routes(*table)),
        Compat::Native => (FIRST_TABLE..).find(|table| !has_routes(*table) && !has_rules(*table)),
    }
    .unwrap_or(u32::MAX)
}
