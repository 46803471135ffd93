//! The firewall, read from `nft -j list ruleset`, and what becomes of a packet in it: for what protects a tunnel, and for
//! what the host sends. [`linerate_host::verdict`] follows the chains, as it does when the tunnel is brought up.
//!
//! A condition that is not understood here (a match of iptables) may hold or fail. A packet counts as dropped only if
//! it is dropped either way, and as passing only if it passes either way.

mod protocol;
mod read;
#[cfg(test)]
mod tests;
mod variants;

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_host::condition::Condition;
use linerate_host::state::{Change, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict};
use linerate_host::step::AddressFamily;
use linerate_host::verdict::{self, ESTABLISHED, NEW, Place, Sample, UDP, Verdict};

pub(crate) use self::protocol::{ICMP, ICMPV6};

/// All base chains, in the order in which packets meet those of a hook.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruleset {
    chains: Vec<ForeignChain>,
}

/// A packet, as far as rules look at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packet<'a> {
    /// `input`, `output` or `forward`.
    pub hook: &'a str,
    /// The interface that it came in by; empty for none.
    pub incoming: &'a str,
    /// The interface that it leaves by; empty for none.
    pub outgoing: &'a str,
    /// The protocol above IP.
    pub protocol: u8,
    /// Its source.
    pub source: Option<IpAddr>,
    /// Its destination.
    pub destination: Option<IpAddr>,
    /// Its source port; none if it has none, or any.
    pub source_port: Option<u16>,
    /// Its destination port.
    pub port: Option<u16>,
    /// It belongs to a connection that exists.
    pub is_known: bool,
    /// The interface that the route to its source leads over; `None` if not known.
    pub source_route: Option<&'a str>,
    /// Its mark.
    pub mark: u32,
    /// IPv6.
    pub is_v6: bool,
}

impl Packet<'_> {
    /// As chains are asked about it.
    fn asked(&self) -> verdict::Packet<'_> {
        let one = |address: Option<IpAddr>| address.map(|address| vec![IpNet::from(address)]);
        verdict::Packet {
            from: self.incoming,
            to: Some(self.outgoing).filter(|name| !name.is_empty()),
            family: family(self.is_v6),
            source: one(self.source),
            destination: one(self.destination),
            state: if self.is_known { ESTABLISHED } else { NEW },
            protocol: self.protocol,
            port: self.port,
            sample: Some(Sample { source_port: self.source_port, source_route: self.source_route }),
        }
    }

    /// The name of its protocol.
    pub(crate) fn protocol_name(&self) -> String {
        protocol::name(self.protocol)
    }
}

fn family(is_v6: bool) -> AddressFamily {
    if is_v6 { AddressFamily::V6 } else { AddressFamily::V4 }
}

/// Where a packet is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drop {
    /// The iptables that keeps the table, if that is one of the older kind.
    program: Option<String>,
    /// `inet filter`.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// How many packets the rule has dropped, if it counts; none for a policy.
    pub packets: Option<u64>,
    /// No rule accepts it, and the policy is to drop.
    pub by_policy: bool,
}

impl Drop {
    fn of(base: &ForeignChain, place: Place) -> Self {
        Self {
            program: base.iptables.clone().filter(|_| base.is_legacy),
            table: base.table.clone(),
            chain: place.chain,
            packets: place.packets,
            by_policy: place.rule.is_none(),
        }
    }

    /// `the policy of the chain input of the table inet filter`.
    #[must_use]
    pub fn place(&self) -> String {
        let counted = self.packets.map_or_else(String::new, |packets| format!(" ({packets} packets so far)"));
        let of = self.program.as_ref().map_or_else(String::new, |program| format!(" of {program}"));
        if self.by_policy {
            format!("no rule of table {}{of}, chain {} accepts them, and its policy is drop", self.table, self.chain)
        } else {
            format!("a rule of table {}{of}, chain {} drops them{counted}", self.table, self.chain)
        }
    }

    /// The command that shows the chain.
    #[must_use]
    pub fn show(&self) -> String {
        match &self.program {
            Some(program) => format!("{program} -nvL {}", self.chain),
            None => format!("nft -a list chain {} {}", self.table, self.chain),
        }
    }
}

/// What all chains together do to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No rule and no policy drops it.
    Passes,
    /// Conditions that are not understood decide whether this drop applies.
    MayPass(Drop),
    /// It is dropped whatever those conditions are.
    Dropped(Drop),
}

impl Ruleset {
    /// Adds what `nft` does not show of other programs' firewalls: the tables of the older iptables, and the rules of
    /// chains with matches of iptables, which `nft` names without their values.
    pub fn add_foreign(&mut self, bases: &[ForeignChain]) {
        let listed: Vec<String> = self.chains.iter().map(|chain| chain.table.clone()).collect();
        for base in bases {
            if base.is_legacy || !listed.contains(&base.table) {
                self.chains.push(base.clone());
                continue;
            }
            let has_match =
                |rules: &[ForeignRule]| rules.iter().any(|rule| rule.conditions.contains(&Condition::Match));
            let same = self.chains.iter_mut().filter(|chain| !chain.is_legacy && chain.table == base.table);
            for (name, rules) in same.flat_map(|chain| &mut chain.rules).filter(|(_, rules)| has_match(rules)) {
                if let Some(read) = base.rules.get(name) {
                    rules.clone_from(read);
                }
            }
        }
    }

    /// Where the packet is certainly dropped, if it is.
    #[must_use]
    pub fn drops(&self, packet: &Packet<'_>) -> Option<Drop> {
        match self.fate(packet) {
            Fate::Dropped(drop) => Some(drop),
            Fate::Passes | Fate::MayPass(_) => None,
        }
    }

    /// Asks all base chains on the packet's path. Each has to let it pass: the next may drop what one accepts.
    #[must_use]
    pub fn fate(&self, packet: &Packet<'_>) -> Fate {
        let hooks: &[ForeignHook] = match packet.hook {
            "input" => &[ForeignHook::Prerouting, ForeignHook::Input],
            "output" => &[ForeignHook::Output, ForeignHook::Postrouting],
            _ => &[ForeignHook::Prerouting, ForeignHook::Forward, ForeignHook::Postrouting],
        };
        let asked = packet.asked();
        let mut mark = Some(packet.mark);
        let mut perhaps = None;
        for base in hooks.iter().flat_map(|hook| self.chains.iter().filter(move |chain| chain.hook == *hook)) {
            match base.verdict_and_mark(&asked, &mut mark) {
                Verdict::Accepts => {}
                Verdict::MayDrop { by, .. } => perhaps = perhaps.or_else(|| Some(Drop::of(base, by))),
                Verdict::Drops(by) => return Fate::Dropped(Drop::of(base, by)),
            }
        }
        perhaps.map_or(Fate::Passes, Fate::MayPass)
    }

    /// Whether a table, given as `inet filter`, has any rule.
    #[must_use]
    pub fn has_rules(&self, table: &str) -> bool {
        self.rules().any(|(chain, _)| chain.table == table)
    }

    /// Returns variants of `packet` that the accept rules of a table accept. Rules about the other version of IP and
    /// about neighbour discovery accept none.
    #[must_use]
    pub fn accepted_by<'a>(&'a self, table: &str, packet: &Packet<'a>) -> Vec<Packet<'a>> {
        let rules = self.rules().filter(|(chain, _)| chain.table == table).map(|(_, rule)| rule);
        rules
            .filter(|rule| rule.verdict == ForeignVerdict::Accept)
            .flat_map(|rule| variants::for_which_hold(&rule.conditions, packet))
            .collect()
    }

    /// Whether some rule gives packets from this network another source address.
    #[must_use]
    pub fn translates(&self, net: &IpNet) -> bool {
        let is_for = |condition: &Condition| match condition {
            Condition::Source(true, nets) => nets.iter().any(|from| from.contains(net) || net.contains(from)),
            Condition::Source(false, nets) => !nets.iter().any(|from| from.contains(net)),
            _ => true,
        };
        let mut rules = self.rules_for(family(net.addr().is_ipv6()));
        rules.any(|rule| rule.changes.contains(&Change::Source) && rule.conditions.iter().all(is_for))
    }

    /// Whether some rule limits the size of TCP segments.
    #[must_use]
    pub fn limits_segments(&self) -> bool {
        self.rules().any(|(_, rule)| rule.changes.contains(&Change::SegmentSize))
    }

    fn rules(&self) -> impl Iterator<Item = (&ForeignChain, &ForeignRule)> {
        self.chains.iter().flat_map(|chain| chain.rules.values().flatten().map(move |rule| (chain, rule)))
    }

    /// The rules that packets of a version of IP meet.
    fn rules_for(&self, family: AddressFamily) -> impl Iterator<Item = &ForeignRule> {
        let is_other = move |condition: &Condition| match condition {
            Condition::Family(true, families) => !families.contains(&family),
            Condition::Source(true, nets) | Condition::Destination(true, nets) => {
                nets.iter().all(|net| AddressFamily::of_net(net) != family)
            }
            _ => false,
        };
        self.rules()
            .filter(move |(chain, _)| chain.family().is_none_or(|of_chain| of_chain == family))
            .map(|(_, rule)| rule)
            .filter(move |rule| !rule.conditions.iter().any(is_other))
    }
}

/// A datagram to a port.
#[must_use]
pub fn to_port<'a>(hook: &'a str, port: u16, is_known: bool, is_v6: bool) -> Packet<'a> {
    Packet { hook, protocol: UDP, port: Some(port), is_known, is_v6, ..Packet::default() }
}
