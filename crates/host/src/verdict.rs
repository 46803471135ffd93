//! Predicts the fate of a packet in another program's firewall, for the planner and the doctor.
//!
//! The rules of a base chain are followed as in the kernel. A rule that matches only some packets of the given kind decides
//! nothing, so a chain is not taken for open because of a rule for other packets. If a rule has conditions that are not
//! read, the verdict is [`Verdict::MayDrop`], which names that rule. For a single packet ([`Sample`]) every such rule leads
//! to that verdict, even if it matches few packets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::condition::{Condition, Truth};
use crate::spec::AddressRange;
use crate::state::{Change, Exception, ForeignChain, ForeignRule, ForeignVerdict, NamePattern};
use crate::step::AddressFamily;

/// `NF_CT_STATE_BIT` of include/uapi/linux/netfilter/nf_conntrack_common.h.
pub const ESTABLISHED: u32 = 2;
/// Likewise.
pub const NEW: u32 = 8;

/// IPPROTO_TCP.
pub const TCP: u8 = 6;
/// IPPROTO_UDP.
pub const UDP: u8 = 17;

/// Maximum number of nested jumps in the kernel (`NFT_JUMP_STACK_SIZE`).
const MAX_JUMPS: usize = 16;

/// The kind of packets that a chain is checked for.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// The incoming interface.
    pub from: &'a str,
    /// The outgoing interface; `None` for packets to the host.
    pub to: Option<&'a str>,
    /// Its version of IP.
    pub family: AddressFamily,
    /// The possible source addresses; `None` for all.
    pub source: Option<Vec<IpNet>>,
    /// The possible destination addresses; `None` for all.
    pub destination: Option<Vec<IpNet>>,
    /// The state of its connection, [`NEW`] or [`ESTABLISHED`].
    pub state: u32,
    /// The protocol above IP.
    pub protocol: u8,
    /// The destination port; `None` for all.
    pub port: Option<u16>,
    /// Further properties, if the verdict is for a single packet; `None` for all packets of this kind.
    pub sample: Option<Sample<'a>>,
}

/// Properties of a single packet.
#[derive(Clone, Debug, Default)]
pub struct Sample<'a> {
    /// The source port, if known.
    pub source_port: Option<u16>,
    /// The interface of the route to the source, if known.
    pub source_route: Option<&'a str>,
}

/// The fate of packets in a chain, the best first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Accepts,
    /// The chain may drop the packets, depending on conditions that are not read.
    MayDrop {
        /// The rule or policy that drops the packets.
        by: Place,
        /// An earlier rule with such conditions that may accept the packets; if `None`, `by` itself has the conditions.
        unless: Option<Place>,
    },
    Drops(Place),
}

/// The rule or policy that decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub chain: String,
    /// The rule's [`ForeignRule::name`]; `None` for the policy of the chain.
    pub rule: Option<String>,
    /// The rule's counter ([`ForeignRule::packets`]).
    pub packets: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule.as_deref() {
            Some("") => write!(to, "a rule of chain {}", self.chain),
            Some(rule) => write!(to, "{rule} of chain {}", self.chain),
            None => write!(to, "the policy of chain {}", self.chain),
        }
    }
}

impl fmt::Display for Verdict {
    /// Says which rule decides, of packets in the plural.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drops = |by: &Place| match &by.rule {
            Some(_) => format!("{by} drops them"),
            None => format!("no rule of chain {} accepts them, and its policy is drop", by.chain),
        };
        match self {
            Self::Accepts => write!(to, "they pass"),
            Self::Drops(by) => write!(to, "{}", drops(by)),
            Self::MayDrop { by, unless: None } => {
                write!(to, "{by} may drop them: it has conditions that linerate does not know")
            }
            Self::MayDrop { by, unless: Some(rule) } => {
                write!(
                    to,
                    "{rule} may accept them: it has conditions that linerate does not know; if not, {}",
                    drops(by)
                )
            }
        }
    }
}

/// The first rules that may match the packet, but are not known to.
#[derive(Default)]
struct Doubts {
    /// A rule that would accept the packet.
    may_pass: Option<Place>,
    /// A rule that would drop the packet, and matches most packets of its kind.
    may_stop: Option<Place>,
    /// The packet's mark after the rules so far.
    mark: Option<u32>,
}

impl Doubts {
    /// Adds the decision of rules that may not match the packet; `place` names the rule.
    fn add(&mut self, decision: Option<Decision>, place: &dyn Fn() -> Place) {
        let doubt = match decision {
            Some(Decision::Accepts) => &mut self.may_pass,
            Some(Decision::Drops(_)) => &mut self.may_stop,
            None => return,
        };
        doubt.get_or_insert_with(place);
    }
}

impl ForeignChain {
    /// Returns the IP version of the chain's packets; `None` for both.
    pub fn family(&self) -> Option<AddressFamily> {
        match self.table.split_once(' ') {
            Some(("ip", _)) => Some(AddressFamily::V4),
            Some(("ip6", _)) => Some(AddressFamily::V6),
            _ => None,
        }
    }

    /// Predicts the fate of a packet in this base chain.
    pub fn verdict(&self, packet: &Packet<'_>) -> Verdict {
        self.verdict_and_mark(packet, &mut None)
    }

    /// As [`verdict`](Self::verdict), for a packet with this mark, `None` if unknown. Updates the mark if rules set it.
    pub fn verdict_and_mark(&self, packet: &Packet<'_>, mark: &mut Option<u32>) -> Verdict {
        if self.family().is_some_and(|family| family != packet.family) {
            return Verdict::Accepts;
        }
        let mut doubts = Doubts { mark: *mark, ..Doubts::default() };
        let decision = self.decided(&self.chain, packet, 0, &mut doubts);
        *mark = doubts.mark;
        let by_policy = || self.drops.then(|| Place { chain: self.chain.clone(), rule: None, packets: None });
        let drops = match decision {
            Some(Decision::Accepts) => None,
            Some(Decision::Drops(by)) => Some(by),
            None => by_policy(),
        };
        match (drops, doubts.may_pass, doubts.may_stop) {
            (None, _, Some(by)) => Verdict::MayDrop { by, unless: None },
            (None, _, None) => Verdict::Accepts,
            (Some(by), Some(rule), _) => Verdict::MayDrop { by, unless: Some(rule) },
            (Some(by), None, _) => Verdict::Drops(by),
        }
    }

    /// Returns the decision of a chain's rules; `None` if no rule decides.
    fn decided(&self, chain: &str, packet: &Packet<'_>, depth: usize, doubts: &mut Doubts) -> Option<Decision> {
        let rules = self.rules.get(chain).filter(|_| depth <= MAX_JUMPS)?;
        self.follow((chain, &rules[..]), packet, depth, doubts)
    }

    /// Returns the decision of the last rules of a chain.
    fn follow(
        &self,
        (chain, rules): (&str, &[ForeignRule]),
        packet: &Packet<'_>,
        depth: usize,
        doubts: &mut Doubts,
    ) -> Option<Decision> {
        for (index, rule) in rules.iter().enumerate() {
            let place = || Place { chain: chain.to_owned(), rule: Some(rule.name.clone()), packets: rule.packets };
            let fits = fits(rule, packet, doubts.mark);
            if fits == Fits::No {
                continue;
            }
            let mark_before = doubts.mark;
            if let Some(Change::Mark(mark)) = rule.changes.iter().find(|change| matches!(change, Change::Mark(_))) {
                doubts.mark = *mark;
            }
            // Whether the packet may have left the chain before its other rules.
            let mut may_leave = false;
            match (&rule.verdict, fits) {
                (ForeignVerdict::Accept, Fits::Yes) => return Some(Decision::Accepts),
                (ForeignVerdict::Accept, Fits::Most | Fits::Unknown) => doubts.add(Some(Decision::Accepts), &place),
                (ForeignVerdict::Drop, Fits::Yes) => return Some(Decision::Drops(place())),
                (ForeignVerdict::Drop, Fits::Most) => doubts.add(Some(Decision::Drops(place())), &place),
                (ForeignVerdict::Unknown, Fits::Yes | Fits::Most) => {
                    doubts.add(Some(Decision::Accepts), &place);
                    doubts.add(Some(Decision::Drops(place())), &place);
                }
                (ForeignVerdict::Unknown, Fits::Unknown) => doubts.add(Some(Decision::Accepts), &place),
                (ForeignVerdict::Return, Fits::Yes) => return None,
                // The return may match, so the rules after it see only some packets of this kind.
                (ForeignVerdict::Return, _) if packet.sample.is_none() && depth > 0 => return None,
                (ForeignVerdict::Return, _) => may_leave = packet.sample.is_some(),
                (ForeignVerdict::Goto(to) | ForeignVerdict::Jump(to), _)
                    if packet.sample.is_some() && !self.rules.contains_key(to) =>
                {
                    // A target of iptables may do anything.
                    doubts.add(Some(Decision::Accepts), &place);
                    doubts.add(Some(Decision::Drops(place())), &place);
                }
                (ForeignVerdict::Goto(to), Fits::Yes) => return self.decided(to, packet, depth + 1, doubts),
                (ForeignVerdict::Jump(to), Fits::Yes) => match self.decided(to, packet, depth + 1, doubts) {
                    None => {}
                    decision => return decision,
                },
                (ForeignVerdict::Goto(to) | ForeignVerdict::Jump(to), Fits::Most | Fits::Unknown) => {
                    let mut there = Doubts { mark: doubts.mark, ..Doubts::default() };
                    let decision = self.decided(to, packet, depth + 1, &mut there);
                    doubts.mark = there.mark;
                    may_leave = packet.sample.is_some()
                        && matches!(rule.verdict, ForeignVerdict::Goto(_))
                        && decision.is_none();
                    if there.may_pass.is_some() || decision == Some(Decision::Accepts) {
                        doubts.may_pass.get_or_insert_with(place);
                    }
                    let stops = match decision {
                        Some(Decision::Drops(by)) => Some(by),
                        _ => there.may_stop,
                    };
                    if let Some(by) = stops.filter(|_| fits == Fits::Most) {
                        // Of a kind of packets, the doubt is about this rule.
                        doubts.may_stop.get_or_insert_with(|| if packet.sample.is_some() { by } else { place() });
                    }
                }
                _ => {}
            }
            if fits != Fits::Yes && doubts.mark != mark_before {
                doubts.mark = None;
            }
            if may_leave {
                let decision = self.follow((chain, &rules[index + 1..]), packet, depth, doubts);
                if let Some(Decision::Drops(place)) = &decision {
                    doubts.may_stop.get_or_insert_with(|| place.clone());
                }
                doubts.add(decision, &place);
                return None;
            }
        }
        None
    }
}

#[derive(PartialEq, Eq)]
enum Decision {
    Accepts,
    Drops(Place),
}

impl ForeignRule {
    /// Whether the rule is for a packet with this mark, or may be.
    pub fn may_be_for(&self, packet: &Packet<'_>, mark: u32) -> bool {
        fits(self, packet, Some(mark)) != Fits::No
    }
}

/// How many packets of a kind a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fits {
    Yes,
    /// All but some packets, which are not known.
    Most,
    /// Unknown, because the rule has conditions that are not read.
    Unknown,
    Some,
    No,
}

fn fits(rule: &ForeignRule, packet: &Packet<'_>, mark: Option<u32>) -> Fits {
    match matched(rule, packet, mark) {
        // Of one packet, it is a doubt whichever of them it is.
        Fits::Most | Fits::Unknown | Fits::Some if packet.sample.is_some() => Fits::Most,
        fits => fits,
    }
}

fn matched(rule: &ForeignRule, packet: &Packet<'_>, mark: Option<u32>) -> Fits {
    let is_other = |patterns: &[NamePattern], name: Option<&str>| {
        // Packets to the host have no outgoing interface.
        patterns.iter().any(|pattern| !pattern.fits(name.unwrap_or_default()))
    };
    let is_other_state = rule.states.is_some_and(|states| states & packet.state == 0);
    let is_other_family = rule.family.is_some_and(|family| family != packet.family);
    let is_in = |(first, last): (u16, u16)| packet.port.is_some_and(|port| (first..=last).contains(&port));
    let is_other_port = packet.port.is_some() && rule.ports.is_some_and(|ports| !is_in(ports));
    let is_other_place = rule.is_for_host.is_some_and(|for_host| for_host != packet.to.is_none());
    if is_other(&rule.incoming, Some(packet.from))
        || is_other(&rule.outgoing, packet.to)
        || is_other_state
        || is_other_family
        || rule.protocol.is_some_and(|protocol| protocol != packet.protocol)
        || is_other_port
        || is_other_place
    {
        return Fits::No;
    }
    let is_of_some = packet.port.is_none() && rule.ports.is_some();
    let others = if rule.has_others { Fits::Unknown } else { Fits::Yes };
    let some = if is_of_some || rule.is_for_some { Fits::Some } else { Fits::Yes };
    // A rule that accepts up to a limit usually matches all packets; one that drops above a limit matches few.
    let limited = match rule.verdict {
        _ if !rule.is_limited => Fits::Yes,
        ForeignVerdict::Accept if packet.sample.is_none() => Fits::Yes,
        ForeignVerdict::Jump(_) | ForeignVerdict::Goto(_) => Fits::Unknown,
        _ => Fits::Some,
    };
    let addresses = [(rule.source, &packet.source), (rule.destination, &packet.destination)];
    let addresses = addresses.into_iter().filter_map(|(range, nets)| Some(within(&range?, nets.as_deref())));
    let exceptions = rule.exceptions.iter().map(|exception| spared(exception, packet));
    let conditions = rule.conditions.iter().map(|condition| match condition.holds(packet, mark) {
        Truth::Yes => Fits::Yes,
        Truth::No => Fits::No,
        Truth::Perhaps if packet.sample.is_some() => Fits::Unknown,
        Truth::Perhaps => of_kind(condition),
    });
    addresses.chain(exceptions).chain(conditions).chain([others, some, limited]).max().unwrap_or(Fits::Yes)
}

/// Whether a rule with a condition that may hold is for a kind of packets.
fn of_kind(condition: &Condition) -> Fits {
    match condition {
        // From all ports but one is from most. Programs of clients have any port from 1024 on.
        Condition::SourcePort(false, _) => Fits::Yes,
        Condition::SourcePort(true, ranges) => {
            let is_for_clients = |(first, last): &(u16, u16)| *first <= 1024 && *last == u16::MAX;
            if ranges.iter().any(is_for_clients) { Fits::Yes } else { Fits::Some }
        }
        Condition::Translated(_) | Condition::SourceRoute(..) | Condition::Backwards(_) => Fits::Some,
        // A mark is mostly one that is to be set.
        Condition::Mark(false, marks) if !marks.contains(&0) => Fits::Most,
        _ => Fits::Unknown,
    }
}

/// How many packets of the kind an exception leaves to its rule.
fn spared(exception: &Exception, packet: &Packet<'_>) -> Fits {
    match exception {
        Exception::From(range) => outside(range, packet.source.as_deref()),
        // What is for the host is for few addresses, which are perhaps these.
        Exception::To(_) if packet.to.is_none() && packet.destination.is_none() => Fits::Most,
        Exception::To(range) => outside(range, packet.destination.as_deref()),
        Exception::Ports(first, last) => match packet.port {
            Some(port) if (*first..=*last).contains(&port) => Fits::No,
            Some(_) => Fits::Yes,
            None => Fits::Some,
        },
        Exception::Protocol(protocol) if *protocol == packet.protocol => Fits::No,
        Exception::Protocol(_) => Fits::Yes,
        Exception::Unread => Fits::Most,
    }
}

/// How many of the possible addresses are outside of a range. Without a list of addresses, all count as outside.
fn outside(range: &AddressRange, nets: Option<&[IpNet]>) -> Fits {
    match within(range, nets) {
        Fits::Yes => Fits::No,
        Fits::No | Fits::Some => Fits::Yes,
        Fits::Most | Fits::Unknown => Fits::Most,
    }
}

/// How many of the possible addresses are in a range.
fn within(range: &AddressRange, nets: Option<&[IpNet]>) -> Fits {
    let has = |address: IpAddr| (range.first..=range.last).contains(&address);
    let Some(nets) = nets else {
        let is_all = range.first.is_unspecified()
            && [Ipv4Addr::BROADCAST.into(), IpAddr::from([0xff; 16])].contains(&range.last);
        return if is_all { Fits::Yes } else { Fits::Some };
    };
    let is_in = |net: &IpNet| has(net.network()) && has(net.broadcast());
    let touches = |net: &IpNet| has(net.network()) || has(net.broadcast()) || net.contains(&range.first);
    if nets.iter().all(is_in) {
        Fits::Yes
    } else if nets.iter().any(touches) {
        Fits::Unknown
    } else {
        Fits::No
    }
}

impl NamePattern {
    /// Whether an interface of this name is meant.
    pub fn fits(&self, name: &str) -> bool {
        let is_it = match self.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.name == name,
        };
        is_it != self.inverted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::state::{FirewallTool, ForeignHook};

    fn rule(verdict: ForeignVerdict) -> ForeignRule {
        ForeignRule { verdict, ..ForeignRule::default() }
    }

    fn from(name: &str, verdict: ForeignVerdict) -> ForeignRule {
        let incoming = vec![NamePattern { name: name.into(), inverted: false }];
        ForeignRule { incoming, ..rule(verdict) }
    }

    fn chain(drops: bool, rules: Vec<ForeignRule>, others: Vec<(&str, Vec<ForeignRule>)>) -> ForeignChain {
        let others = others.into_iter().map(|(name, rules)| (name.to_owned(), rules));
        ForeignChain {
            table: "inet site".into(),
            chain: "forward".into(),
            hook: ForeignHook::Forward,
            tool: FirewallTool::Other,
            iptables: None,
            is_legacy: false,
            drops,
            rules: others.chain([("forward".to_owned(), rules)]).collect::<BTreeMap<_, _>>(),
        }
    }

    /// Of TCP packets from two peers to anywhere.
    fn out() -> Packet<'static> {
        let source = Some(vec!["10.9.0.2/32".parse().unwrap(), "10.9.0.3/32".parse().unwrap()]);
        let (to, family) = (Some("eth0"), AddressFamily::V4);
        Packet {
            from: "wg0",
            to,
            family,
            source,
            destination: None,
            state: NEW,
            protocol: TCP,
            port: None,
            sample: None,
        }
    }

    fn passage(verdict: &Verdict) -> Passage {
        match verdict {
            Verdict::Accepts => Passage::Open,
            Verdict::MayDrop { .. } => Passage::Unknown,
            Verdict::Drops(_) => Passage::Closed,
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Passage {
        Open,
        Unknown,
        Closed,
    }

    fn passage_out(chain: &ForeignChain) -> Passage {
        passage(&chain.verdict(&out()))
    }

    fn passes_out(chain: &ForeignChain) -> bool {
        passage_out(chain) == Passage::Open
    }

    fn addresses(net: &str) -> Option<AddressRange> {
        let net: IpNet = net.parse().unwrap();
        Some(AddressRange { first: net.network(), last: net.broadcast() })
    }

    /// Of datagrams to port 51820 from anywhere.
    fn passage_in(chain: &ForeignChain) -> Passage {
        let (source, destination, family, port) = (None, None, AddressFamily::V4, Some(51820));
        let (from, to, state, protocol, sample) = ("eth0", None, NEW, UDP, None);
        let packet = Packet { from, to, family, source, destination, state, protocol, port, sample };
        passage(&chain.verdict(&packet))
    }

    use ForeignVerdict::{Accept, Drop, Goto, Jump, Return};

    #[test]
    fn the_first_rule_for_the_packet_decides_and_then_the_policy() {
        assert!(passes_out(&chain(false, vec![from("wg1", Drop)], vec![])));
        assert!(!passes_out(&chain(false, vec![from("wg1", Accept), rule(Drop)], vec![])), "a last drop");
        assert!(passes_out(&chain(true, vec![from("wg*", Accept), rule(Drop)], vec![])));
        assert!(!passes_out(&chain(true, vec![from("wg1", Accept)], vec![])));
        let known = ForeignRule { states: Some(ESTABLISHED), ..rule(Accept) };
        assert!(!passes_out(&chain(true, vec![known], vec![])), "it is for answers only");
    }

    #[test]
    fn chains_are_followed_as_the_kernel_does() {
        let jump = |to: &str| rule(Jump(to.into()));
        assert!(passes_out(&chain(true, vec![jump("a")], vec![("a", vec![rule(Accept)])])));
        assert!(passes_out(&chain(true, vec![jump("a"), rule(Accept)], vec![("a", vec![rule(Return), rule(Drop)])])));
        let goes = vec![from("wg0", Goto("zone".into())), rule(Accept)];
        assert!(!passes_out(&chain(true, goes.clone(), vec![("zone", vec![])])), "there is no way back from a goto");
        assert!(passes_out(&chain(true, goes, vec![("zone", vec![rule(Accept)])])));
        let endless = vec![("a", vec![jump("b")]), ("b", vec![jump("a")])];
        assert!(!passes_out(&chain(true, vec![jump("a")], endless)));
    }

    #[test]
    fn rules_for_some_packets_decide_nothing() {
        let some = |verdict| ForeignRule { protocol: Some(1), ..rule(verdict) };
        let unread = |verdict| ForeignRule { has_others: true, ..rule(verdict) };
        assert!(!passes_out(&chain(true, vec![some(Accept), unread(Accept)], vec![])));
        assert!(passes_out(&chain(false, vec![some(Drop), unread(Drop)], vec![])));
        // As ufw-not-local: what is for this host returns, the rest is dropped.
        let not_local = vec![("a", vec![unread(Return), rule(Drop)])];
        assert!(passes_out(&chain(true, vec![rule(Jump("a".into())), rule(Accept)], not_local)));
    }

    #[test]
    fn what_may_pass_by_conditions_that_are_not_read_is_not_known() {
        let unread = |verdict| ForeignRule { has_others: true, ..rule(verdict) };
        assert_eq!(passage_out(&chain(true, vec![unread(Accept)], vec![])), Passage::Unknown);
        let jump = unread(Jump("a".into()));
        assert_eq!(passage_out(&chain(true, vec![jump.clone()], vec![("a", vec![rule(Accept)])])), Passage::Unknown);
        assert_eq!(passage_out(&chain(true, vec![jump], vec![("a", vec![from("wg1", Accept)])])), Passage::Closed);
        let some = ForeignRule { is_for_some: true, ..unread(Accept) };
        assert_eq!(
            passage_out(&chain(true, vec![some], vec![])),
            Passage::Closed,
            "it is for some, whatever else it is"
        );
    }

    #[test]
    fn a_rule_for_addresses_is_for_peers_that_have_them() {
        let of = |net| ForeignRule { source: addresses(net), ..rule(Accept) };
        let passage = |rule| passage_out(&chain(true, vec![rule], vec![]));
        assert_eq!(passage(of("10.9.0.0/24")), Passage::Open);
        assert_eq!(passage(of("10.9.0.2/32")), Passage::Unknown, "one of two peers");
        assert_eq!(passage(of("10.8.0.0/24")), Passage::Closed);
        assert_eq!(passage(of("0.0.0.0/0")), Passage::Open);
        let to = ForeignRule { destination: addresses("192.168.1.0/24"), ..rule(Accept) };
        assert_eq!(passage(to), Passage::Closed, "they go anywhere");
        let family = Some(AddressFamily::V6);
        assert_eq!(passage(ForeignRule { family, ..rule(Accept) }), Passage::Closed);
    }

    #[test]
    fn a_rule_for_all_but_some_is_for_the_others() {
        let but = |exception| ForeignRule { exceptions: vec![exception], ..rule(Drop) };
        let passage_in = |exception| passage_in(&chain(false, vec![but(exception)], vec![]));
        assert_eq!(passage_in(Exception::Ports(53, 53)), Passage::Closed);
        assert_eq!(passage_in(Exception::Ports(51000, 52000)), Passage::Open);
        assert_eq!(passage_in(Exception::Protocol(6)), Passage::Closed);
        assert_eq!(passage_in(Exception::Protocol(UDP)), Passage::Open);
        let net = |net| addresses(net).unwrap();
        assert_eq!(passage_in(Exception::From(net("192.168.1.0/24"))), Passage::Closed);
        assert_eq!(passage_in(Exception::From(net("0.0.0.0/0"))), Passage::Open);
        assert_eq!(passage_in(Exception::To(net("203.0.113.5/32"))), Passage::Unknown, "it may be the host's address");
        assert_eq!(passage_in(Exception::Unread), Passage::Unknown);
        let passage_out = |exception| passage_out(&chain(false, vec![but(exception)], vec![]));
        assert_eq!(passage_out(Exception::From(net("10.8.0.0/24"))), Passage::Closed);
        assert_eq!(passage_out(Exception::From(net("10.9.0.0/24"))), Passage::Open);
        assert_eq!(passage_out(Exception::From(net("10.9.0.2/32"))), Passage::Unknown, "one of two peers");
        assert_eq!(passage_out(Exception::Protocol(6)), Passage::Open, "TCP passes");
    }

    #[test]
    fn a_chain_for_all_but_some_that_are_not_read_may_drop() {
        let jump = |verdict| ForeignRule { exceptions: vec![Exception::Unread], ..rule(verdict) };
        let passage =
            |drops, verdict| passage_in(&chain(drops, vec![jump(Jump("a".into()))], vec![("a", vec![rule(verdict)])]));
        assert_eq!(passage(false, Drop), Passage::Unknown);
        assert_eq!(passage(true, Drop), Passage::Closed);
        assert_eq!(passage(true, Accept), Passage::Unknown);
        assert_eq!(passage(false, Return), Passage::Open);
    }

    #[test]
    fn a_port_is_open_for_datagrams_to_it() {
        let udp = |ports| ForeignRule { protocol: Some(UDP), ports: Some(ports), ..rule(Accept) };
        let reaches = |rules| passage_in(&chain(true, rules, vec![])) == Passage::Open;
        assert!(reaches(vec![udp((51820, 51820))]) && reaches(vec![udp((50000, 60000))]));
        assert!(!reaches(vec![udp((53, 53))]));
        assert!(!reaches(vec![ForeignRule { protocol: Some(6), ..udp((51820, 51820)) }]), "that is TCP");
    }
}
