//! The firewall, and what becomes of a packet in it: for what protects a tunnel, and for what the host sends.
//! [`linerate_host::verdict`] follows the chains, as it does when the tunnel is brought up.
//!
//! A condition that is not read may hold or fail. A packet counts as dropped only if it is dropped either way, and as
//! passing only if it passes either way.

mod variants;

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_host::condition::Condition;
use linerate_host::plan::opening::line;
use linerate_host::state::{Change, Exception, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict};
use linerate_host::step::AddressFamily;
use linerate_host::verdict::{self, ESTABLISHED, NEW, Place, Sample, TCP, UDP, Verdict};

/// IPPROTO_ICMP.
pub(crate) const ICMP: u8 = 1;
/// IPPROTO_ICMPV6.
pub(crate) const ICMPV6: u8 = 58;

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
        let known = match self.protocol {
            ICMP => "icmp",
            TCP => "tcp",
            UDP => "udp",
            ICMPV6 => "icmpv6",
            number => return format!("protocol {number}"),
        };
        known.to_owned()
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

    /// The command that accepts packets there first of all: those with these options of iptables, or this match of nft.
    #[must_use]
    pub fn accept(&self, options: &[&str], matched: &str) -> String {
        let words: Vec<String> = match &self.program {
            Some(program) => [&[&**program, "-w", "-I", &self.chain], options, &["-j", "ACCEPT"]]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            None => vec!["nft".to_owned(), format!("insert rule {} {} {matched} accept", self.table, self.chain)],
        };
        line(&words)
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
    /// These base chains, in the order in which packets meet those of a hook.
    #[must_use]
    pub fn of(chains: Vec<ForeignChain>) -> Self {
        Self { chains }
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
            .flat_map(|rule| variants::of(rule, packet))
            .collect()
    }

    /// Whether some rule gives packets from this network another source address.
    #[must_use]
    pub fn translates(&self, net: &IpNet) -> bool {
        let are_for = |nets: &[IpNet]| nets.iter().any(|from| from.contains(net) || net.contains(from));
        let is_for = |condition: &Condition| match condition {
            Condition::Source(true, nets) => are_for(nets),
            Condition::Source(false, nets) => !nets.iter().any(|from| from.contains(net)),
            _ => true,
        };
        let is_excepted = |exception: &Exception| match exception {
            Exception::From(range) => range.subnets().iter().any(|from| from.contains(net)),
            _ => false,
        };
        let mut rules = self.rules_for(family(net.addr().is_ipv6()));
        rules.any(|rule| {
            rule.changes.contains(&Change::Source)
                && rule.source.is_none_or(|range| are_for(&range.subnets()))
                && rule.conditions.iter().all(is_for)
                && !rule.exceptions.iter().any(is_excepted)
        })
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
            .filter(move |rule| rule.family.is_none_or(|of_rule| of_rule == family))
            .filter(move |rule| !rule.conditions.iter().any(is_other))
    }
}

/// A datagram to a port.
#[must_use]
pub fn to_port<'a>(hook: &'a str, port: u16, is_known: bool, is_v6: bool) -> Packet<'a> {
    Packet { hook, protocol: UDP, port: Some(port), is_known, is_v6, ..Packet::default() }
}

#[cfg(test)]
mod tests {
    use linerate_host::spec::AddressRange;
    use linerate_host::state::FirewallTool;

    use super::*;

    fn legacy(hook: ForeignHook, chain: &str, drops: bool, rules: Vec<ForeignRule>) -> ForeignChain {
        ForeignChain {
            table: "ip filter".into(),
            chain: chain.into(),
            hook,
            tool: FirewallTool::Other,
            iptables: Some("iptables-legacy".into()),
            is_legacy: true,
            drops,
            rules: [(chain.to_owned(), rules)].into(),
        }
    }

    #[test]
    fn what_drops_a_packet_is_named_with_its_counter_and_program() {
        let packet = to_port("input", 51820, false, false);
        let (verdict, packets) = (ForeignVerdict::Drop, Some(7));
        let rule = ForeignRule { protocol: Some(UDP), verdict, packets, ..ForeignRule::default() };
        let by_rule = legacy(ForeignHook::Input, "INPUT", false, vec![rule]);
        let of_nft = ForeignChain { is_legacy: false, ..by_rule.clone() };
        let by_policy = legacy(ForeignHook::Output, "OUTPUT", true, Vec::new());
        let all = Ruleset::of(vec![by_rule, by_policy]);
        let drop = all.drops(&packet).unwrap();
        let place = "a rule of table ip filter of iptables-legacy, chain INPUT drops them (7 packets so far)";
        assert_eq!((&*drop.place(), &*drop.show()), (place, "iptables-legacy -nvL INPUT"));
        assert_eq!(Ruleset::of(vec![of_nft]).drops(&packet).unwrap().show(), "nft -a list chain ip filter INPUT");
        let sent = all.drops(&Packet { hook: "output", ..packet.clone() }).unwrap();
        assert!(sent.by_policy && sent.chain == "OUTPUT");
        assert_eq!(all.drops(&Packet { is_v6: true, ..packet.clone() }), None);
        assert_eq!(all.fate(&Packet { protocol: TCP, ..packet }), Fate::Passes);
    }

    #[test]
    fn packets_are_made_that_rules_accept() {
        let rule = |verdict| {
            let to = AddressRange { first: [203, 0, 113, 0].into(), last: [203, 0, 113, 255].into() };
            let (family, protocol, ports) = (Some(AddressFamily::V4), Some(UDP), Some((67, 67)));
            let conditions = vec![Condition::SourcePort(true, vec![(68, 68)])];
            let destination = Some(to);
            ForeignRule { family, destination, protocol, ports, conditions, verdict, ..ForeignRule::default() }
        };
        let discovery = ForeignRule {
            protocol: Some(ICMPV6),
            conditions: vec![Condition::Icmp(true, vec![135])],
            verdict: ForeignVerdict::Accept,
            ..ForeignRule::default()
        };
        let rules = vec![rule(ForeignVerdict::Accept), rule(ForeignVerdict::Drop), discovery];
        let all = Ruleset::of(vec![legacy(ForeignHook::Output, "OUTPUT", true, rules)]);
        let base = Packet { hook: "output", protocol: TCP, ..Packet::default() };
        let destination = Some([203, 0, 113, 0].into());
        let (protocol, source_port, port) = (UDP, Some(68), Some(67));
        let expected = Packet { protocol, source_port, port, destination, ..base.clone() };
        assert_eq!(all.accepted_by("ip filter", &base), [expected]);
        assert_eq!(all.accepted_by("ip filter", &Packet { is_v6: true, ..base.clone() }), []);
        assert_eq!(all.accepted_by("inet other", &base), []);
    }
}
