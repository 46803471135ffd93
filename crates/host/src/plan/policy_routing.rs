//! The routes that cannot be in the main table, because the tunnel's own datagrams, or what is excluded, would take
//! them: they are in a table of the tunnel's own, which rules lead to.
//!
//! Such are a default route (a full tunnel), a route that contains an endpoint, and one that contains an excluded
//! prefix. The datagrams carry a mark and what has the mark does not look into the table, so that they take the way
//! that they would take without the tunnel, wherever the endpoint roams to and whatever network the host moves to; a
//! host route to the endpoint would be wrong after either. Whether a route is such follows from the file alone.
//!
//! The rules keep the law of routing that the longest prefix wins, over the main table and the tunnel's together. For
//! each length L of the tunnel's prefixes, the longest first, there are two: main's routes longer than L, then the
//! tunnel's that are at least as long as L, for what has no mark. A full tunnel is the case L = 0, and its two rules
//! are those of wg-quick(8). Excluded prefixes come before all of them, and lead to the main table.
//!
//! Two full tunnels of wg-quick's take each other's datagrams, as either's rule sees the other's mark as none of its
//! own. `linerate` therefore leads what has the mark to the main table before the rules of any tunnel.

use ipnet::IpNet;

use crate::state::HostState;
use crate::step::{Family, MAIN, Rule};
use crate::wanted::{Compat, Wanted};

/// Who made a rule (rtnetlink.h, `RTPROT_UNSPEC`): `ip rule` does not say, and neither do we.
const PROTOCOL: u8 = 0;

/// Where wg-quick begins to look for a table, which is the mark too: the usual port.
const FIRST_TABLE_WG_QUICK: u32 = 51_820;

/// Where `linerate` begins: far from wg-quick's, and without the bits 0x4000 and 0x8000, in which Kubernetes marks
/// what is to be masqueraded or dropped, and those of 0xff0000, which are Tailscale's.
const FIRST_TABLE: u32 = 11_820;

/// The priorities among which `linerate` has its rules: after those of VRFs (1000) and of Tailscale (5210 to 5270),
/// before 32766 (main) and those that `ip rule` puts just before it.
const PRIORITIES: std::ops::RangeInclusive<u32> = 18_000..=19_999;

/// Where `linerate` has one rule of each tunnel before those of all: what has its mark looks into the main table.
/// Two full tunnels would else take each other's datagrams, round and round.
const DIRECT_PRIORITY: u32 = *PRIORITIES.start() - 1;

/// The numbers that a tunnel goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The mark of its datagrams, and its table.
    pub mark: u32,
    /// The priority of its last rule for IPv4; the others come before.
    pub last_v4: u32,
    /// The same for IPv6.
    pub last_v6: u32,
    /// The priority of the rule that leads its datagrams to the main table, whoever else has rules.
    pub direct: Option<u32>,
}

impl Numbers {
    /// The ones that a new tunnel takes.
    pub(super) fn free(wanted: &Wanted, state: &HostState, compat: Compat) -> Self {
        let last = |family| match compat {
            Compat::WgQuick => kernel_priority(state, family),
            Compat::Native => own_priority(state, family),
        };
        Self {
            mark: mark_of(wanted).unwrap_or_else(|| free_table(state, compat)),
            last_v4: last(Family::V4),
            last_v6: last(Family::V6),
            direct: direct_priority(compat),
        }
    }

    fn last(&self, family: Family) -> u32 {
        match family {
            Family::V4 => self.last_v4,
            Family::V6 => self.last_v6,
        }
    }
}

/// wg-quick has no such rule.
pub(super) fn direct_priority(compat: Compat) -> Option<u32> {
    (compat == Compat::Native).then_some(DIRECT_PRIORITY)
}

/// The mark that the file gives; 0 is none.
pub(super) fn mark_of(wanted: &Wanted) -> Option<u32> {
    wanted.fwmark.filter(|mark| *mark != 0)
}

/// The rules of a family in the order in which they are added, the last to be looked at first. `own` are the prefixes
/// in the tunnel's table.
pub(super) fn rules(family: Family, own: &[IpNet], excluded: &[IpNet], numbers: &Numbers) -> Vec<Rule> {
    let own: Vec<IpNet> = own.iter().copied().filter(|net| Family::of_net(net) == family).collect();
    let mut lengths: Vec<u8> = own.iter().map(IpNet::prefix_len).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let Some(&shortest) = lengths.first() else { return Vec::new() };

    let mut priority = numbers.last(family);
    let direct =
        numbers.direct.map(|priority| Rule { priority, fwmark: Some(numbers.mark), ..to_main(family, None, None) });
    let mut rules: Vec<Rule> = direct.into_iter().collect();
    let mut add = |rule: Rule, priority: &mut u32| {
        rules.push(Rule { priority: *priority, ..rule });
        *priority = priority.saturating_sub(1);
    };
    let longer_than = |length: u8| Some(u32::from(length));
    for length in lengths {
        let at_least = if length == shortest { None } else { longer_than(length - 1) };
        add(to_own_table(family, numbers.mark, at_least), &mut priority);
        if length < own[0].max_prefix_len() {
            add(to_main(family, None, longer_than(length)), &mut priority);
        }
    }
    let is_inside = |net: &&IpNet| own.iter().any(|own| own.contains(*net));
    rules.extend(excluded.iter().filter(is_inside).map(|net| Rule { priority, ..to_main(family, Some(*net), None) }));
    rules
}

fn to_own_table(family: Family, mark: u32, suppress_prefixlength: Option<u32>) -> Rule {
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

fn to_main(family: Family, to: Option<IpNet>, suppress_prefixlength: Option<u32>) -> Rule {
    Rule { family, priority: 0, not: false, fwmark: None, to, table: MAIN, suppress_prefixlength, protocol: PROTOCOL }
}

/// The priority that the kernel gives a rule that comes without: one less than the second rule has, as the first is
/// that of the table `local` (fib_default_rule_pref in net/core/fib_rules.c).
fn kernel_priority(state: &HostState, family: Family) -> u32 {
    let mut priorities: Vec<u32> = priorities(state, family).collect();
    priorities.sort_unstable();
    priorities.get(1).map_or(0, |second| second.saturating_sub(1))
}

fn own_priority(state: &HostState, family: Family) -> u32 {
    let taken = priorities(state, family).filter(|priority| PRIORITIES.contains(priority)).min();
    taken.map_or(*PRIORITIES.end(), |lowest| lowest.saturating_sub(1))
}

fn priorities(state: &HostState, family: Family) -> impl Iterator<Item = u32> + '_ {
    state.rules.iter().filter(move |rule| rule.family == family).map(|rule| rule.priority)
}

/// The first table from which nobody has routes; `linerate` also leaves those alone that rules speak of.
fn free_table(state: &HostState, compat: Compat) -> u32 {
    let has_routes = |table: u32| state.routes.iter().any(|route| route.table == table);
    let has_rules = |table: u32| state.rules.iter().any(|rule| rule.table == table || rule.fwmark == Some(table));
    match compat {
        Compat::WgQuick => (FIRST_TABLE_WG_QUICK..).find(|table| !has_routes(*table)),
        Compat::Native => (FIRST_TABLE..).find(|table| !has_routes(*table) && !has_rules(*table)),
    }
    .unwrap_or(u32::MAX)
}
