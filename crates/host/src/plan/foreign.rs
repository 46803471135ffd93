//! Firewalls of others: what they drop of a gateway's packets, and what makes way.
//!
//! What one table accepts another may still drop, so nothing that the tunnel's own table says helps. The rules of each
//! base chain are followed for the packets in question. A rule that is for some of them decides nothing, so none looks
//! open because of a rule that is for others. Where a rule has conditions that are not read and could let them pass, or
//! drops all but some that are not read, the answer is that it is not known.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::gateway::Uplinks;
use super::opening::{by_hand, firewalld_names};
use crate::spec::{AddressRange, HostSpec, Inbound};
use crate::state::{
    Exception, FirewallTool, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict, HostState, NamePattern,
};
use crate::step::{AddressFamily, ForeignFirewall, MAIN, Opening, Step, Way};

/// What foreign chains leave closed: as steps that open it, if the file says so, or else as warnings.
pub(super) fn plan(spec: &HostSpec, state: &HostState, devices: &[String], plan: &mut super::Plan) {
    let mut steps = Vec::new();
    let mut sentences = Vec::new();
    for chain in &state.foreign_chains {
        let closed = closed(spec, state, chain, devices);
        if spec.forwarding.fixes_firewall {
            steps.extend(closed.into_iter().map(|(way, _)| Step::Open(way)));
        } else {
            sentences.extend(sentence(spec, chain, &closed));
        }
    }
    // Tables for both families of one tool need the same.
    let mut seen = std::collections::HashSet::new();
    steps.retain(|step| seen.insert(step.clone()));
    plan.steps.extend(steps);
    sentences.sort();
    sentences.dedup();
    sentences.into_iter().for_each(|sentence| plan.warn(sentence));
}

/// The ways through all foreign chains that the tunnel needs, and that are closed or were opened for it.
pub(super) fn needed(spec: &HostSpec, state: &HostState, devices: &[String]) -> Vec<Opening> {
    let closed = state.foreign_chains.iter().flat_map(|chain| closed(spec, state, chain, devices));
    closed.map(|(way, _)| way).collect()
}

/// The ways through a chain that the tunnel needs, and that may be closed or were opened for it.
fn closed(spec: &HostSpec, state: &HostState, chain: &ForeignChain, devices: &[String]) -> Vec<(Opening, Passage)> {
    let opening = |way| Opening { interface: spec.interface.clone(), firewall: firewall(spec, chain), way };
    let ways = match chain.hook {
        ForeignHook::Forward if devices.is_empty() || !sees_packets(spec, chain) => Vec::new(),
        ForeignHook::Forward => forward_ways(spec, chain, devices),
        ForeignHook::Input if !sees_datagrams(state, chain) => Vec::new(),
        ForeignHook::Input => input_way(spec, state, chain, devices).into_iter().collect(),
        ForeignHook::Output => Vec::new(),
    };
    let ways = ways.into_iter().map(|(way, passage)| (opening(way), passage));
    // What is open because of us is ours to close.
    let is_needed =
        |(way, passage): &(Opening, Passage)| *passage != Passage::Open || state.openings.contains(&way.id());
    let mut needed: Vec<(Opening, Passage)> = ways.filter(is_needed).collect();
    needed.dedup();
    needed
}

/// The ways of what is forwarded, with whether they are open.
fn forward_ways(spec: &HostSpec, chain: &ForeignChain, devices: &[String]) -> Vec<(Way, Passage)> {
    let tunnel = &spec.interface;
    let answers = spec.forwarding.inbound == Inbound::Replies;
    let families = [AddressFamily::V4, AddressFamily::V6]
        .into_iter()
        .filter(|met| sees_packets_of(spec, *met) && family(chain).is_none_or(|family| family == *met));
    let peers: Vec<(AddressFamily, Vec<IpNet>)> = families.map(|family| (family, addresses(spec, family))).collect();
    let mut ways = Vec::new();
    let mut add = |from: &String, to: &String, answers| {
        let of_family = |(family, peers): &(AddressFamily, Vec<IpNet>)| {
            let ends = |end: &String| if end == tunnel { Some(peers.clone()) } else { None };
            let state = if answers { ESTABLISHED } else { NEW };
            let (source, destination) = (ends(from), ends(to));
            passes(chain, &Packet { from, to: Some(to), family: *family, source, destination, state, port: None })
        };
        let passage = peers.iter().map(of_family).max().unwrap_or(Passage::Open);
        ways.push((Way::Forward { from: from.clone(), to: to.clone(), answers }, passage));
    };
    for device in devices {
        add(tunnel, device, false);
        add(device, tunnel, answers);
    }
    if !spec.forwarding.isolated {
        add(tunnel, tunnel, false);
    }
    match chain.tool {
        FirewallTool::Firewalld => {
            let passage = ways.iter().map(|(_, passage)| *passage).max().unwrap_or(Passage::Open);
            vec![(Way::Tunnel { inbound: !answers }, passage)]
        }
        _ => ways,
    }
}

/// The addresses of a family that are behind the tunnel; those of its networks while it has no peers.
fn addresses(spec: &HostSpec, family: AddressFamily) -> Vec<IpNet> {
    let of = |nets: &[IpNet]| -> Vec<IpNet> {
        nets.iter().filter(|net| AddressFamily::of_net(net) == family).map(IpNet::trunc).collect()
    };
    Some(of(&spec.allowed_ips)).filter(|nets| !nets.is_empty()).unwrap_or_else(|| of(&spec.addresses))
}

/// The way of the peers' datagrams, with whether it is open. They come from where the host's routes lead.
fn input_way(spec: &HostSpec, state: &HostState, chain: &ForeignChain, devices: &[String]) -> Option<(Way, Passage)> {
    let port = spec.forwarding.listen_port?;
    let uplinks = Uplinks::of(&spec.interface, state, None).devices;
    let outside = if uplinks.is_empty() { devices } else { &uplinks };
    let families = [AddressFamily::V4, AddressFamily::V6].into_iter();
    let families = families.filter(|met| receives(state, *met) && family(chain).is_none_or(|family| family == *met));
    let ways = families.flat_map(|family| outside.iter().map(move |from| (family, from)));
    let passage = ways.map(|(family, from)| {
        let (source, destination) = (None, None);
        passes(chain, &Packet { from, to: None, family, source, destination, state: NEW, port: Some(port) })
    });
    Some((Way::Port { port }, passage.min().unwrap_or(Passage::Closed)))
}

/// Whether packets of the tunnel's families meet the chain.
fn sees_packets(spec: &HostSpec, chain: &ForeignChain) -> bool {
    family(chain).is_none_or(|family| sees_packets_of(spec, family))
}

fn sees_packets_of(spec: &HostSpec, family: AddressFamily) -> bool {
    spec.addresses.iter().chain(&spec.allowed_ips).any(|net| AddressFamily::of_net(net) == family)
}

/// Whether datagrams of peers meet the chain.
fn sees_datagrams(state: &HostState, chain: &ForeignChain) -> bool {
    family(chain).is_none_or(|family| receives(state, family))
}

/// Whether datagrams of peers may be of a family: one in which the host has a way out, if it has any.
fn receives(state: &HostState, family: AddressFamily) -> bool {
    let mut defaults = state.routes.iter().filter(|route| route.table == MAIN && route.to.prefix_len() == 0).peekable();
    let is_known = state.multipath_defaults.is_empty() && defaults.peek().is_some();
    !is_known || defaults.any(|route| AddressFamily::of_net(&route.to) == family)
}

fn family(chain: &ForeignChain) -> Option<AddressFamily> {
    match chain.table.split_once(' ') {
        Some(("ip", _)) => Some(AddressFamily::V4),
        Some(("ip6", _)) => Some(AddressFamily::V6),
        _ => None,
    }
}

/// Where a way through this chain is opened.
fn firewall(spec: &HostSpec, chain: &ForeignChain) -> ForeignFirewall {
    match (&chain.iptables, chain.tool) {
        (_, FirewallTool::Ufw) => ForeignFirewall::Ufw,
        (_, FirewallTool::Firewalld) => ForeignFirewall::Firewalld { zone: zone_of(spec, chain) },
        (Some(program), FirewallTool::Docker) if chain.hook == ForeignHook::Forward => {
            ForeignFirewall::Iptables { program: program.clone(), chain: "DOCKER-USER".to_owned() }
        }
        (Some(program), _) => ForeignFirewall::Iptables { program: program.clone(), chain: chain.chain.clone() },
        (None, FirewallTool::Docker) if chain.hook == ForeignHook::Forward => {
            ForeignFirewall::Nftables { table: chain.table.clone(), chain: "DOCKER-USER".to_owned() }
        }
        _ => ForeignFirewall::Nftables { table: chain.table.clone(), chain: chain.chain.clone() },
    }
}

/// The zone of firewalld that somebody has put the tunnel into.
fn zone_of(spec: &HostSpec, chain: &ForeignChain) -> Option<String> {
    let names_us =
        |rule: &&ForeignRule| rule.incoming.iter().any(|pattern| !pattern.inverted && pattern.name == spec.interface);
    let zone = chain.rules.values().flatten().filter(names_us).find_map(|rule| match &rule.verdict {
        ForeignVerdict::Goto(chain) => chain.strip_prefix("filter_FWD_").map(str::to_owned),
        _ => None,
    });
    zone.filter(|zone| *zone != firewalld_names(&spec.interface).zone)
}

fn sentence(spec: &HostSpec, chain: &ForeignChain, closed: &[(Opening, Passage)]) -> Option<String> {
    if closed.is_empty() {
        return None;
    }
    let tunnel = &spec.interface;
    let commands: Vec<String> = closed.iter().flat_map(|(way, _)| by_hand(way)).collect();
    let commands = commands.join("` and `");
    let whose = whose(chain);
    let is_known = closed.iter().any(|(_, passage)| *passage == Passage::Closed);
    let what = match chain.hook {
        ForeignHook::Input => "the datagrams of peers".to_owned(),
        ForeignHook::Output => "what this host sends".to_owned(),
        ForeignHook::Forward => {
            let others: BTreeSet<&str> = closed.iter().flat_map(|(way, _)| ends(way, tunnel)).collect();
            let others: Vec<&str> = others.into_iter().collect();
            match &others[..] {
                [] => format!("what passes from one peer of {tunnel} to another"),
                others => format!("what passes between {tunnel} and {}", others.join(", ")),
            }
        }
    };
    Some(match is_known {
        true => format!("{whose} drops {what}; this lets it pass, and so does --fix-firewall: `{commands}`"),
        false => format!(
            "{whose} may drop {what}: it has conditions that linerate does not know. If nothing gets through, this lets \
             it pass, and so does --fix-firewall: `{commands}`"
        ),
    })
}

/// The interfaces besides the tunnel that a way connects.
fn ends<'a>(opening: &'a Opening, tunnel: &str) -> Vec<&'a str> {
    match &opening.way {
        Way::Forward { from, to, .. } => [&**from, &**to].into_iter().filter(|end| *end != tunnel).collect(),
        Way::Tunnel { .. } => vec!["other interfaces"],
        Way::Port { .. } => Vec::new(),
    }
}

fn whose(chain: &ForeignChain) -> String {
    let tool = match chain.tool {
        FirewallTool::Docker => "Docker's ",
        FirewallTool::Ufw => "ufw's ",
        FirewallTool::Firewalld => "firewalld's ",
        FirewallTool::Other => "the ",
    };
    format!("{tool}chain {} of the firewall table {}", chain.chain, chain.table)
}

/// Whether packets pass a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Passage {
    /// They do.
    Open,
    /// That depends on rules whose conditions are not all read.
    Unknown,
    /// They do not.
    Closed,
}

/// What is asked of a chain: whether packets like this pass it.
struct Packet<'a> {
    from: &'a str,
    /// None if it is for the host.
    to: Option<&'a str>,
    family: AddressFamily,
    /// It may be from any of these addresses; none if it may be from any at all.
    source: Option<Vec<IpNet>>,
    destination: Option<Vec<IpNet>>,
    /// The state of its connection.
    state: u32,
    /// The UDP port that it is for; without one, packets of any protocol are meant.
    port: Option<u16>,
}

/// `NF_CT_STATE_BIT` of include/uapi/linux/netfilter/nf_conntrack_common.h.
const ESTABLISHED: u32 = 2;
const NEW: u32 = 8;

const UDP: u8 = 17;

/// The kernel follows at most 16 jumps (`NFT_JUMP_STACK_SIZE`).
const DEEPEST: usize = 16;

/// What rules would do that are not known to be for the packet.
#[derive(Default)]
struct Doubts {
    /// One would accept it.
    may_pass: bool,
    /// One would drop it that is for most.
    may_stop: bool,
}

fn passes(chain: &ForeignChain, packet: &Packet<'_>) -> Passage {
    let mut doubts = Doubts::default();
    match decided(chain, &chain.chain, packet, 0, &mut doubts).unwrap_or(!chain.drops) {
        true if doubts.may_stop => Passage::Unknown,
        true => Passage::Open,
        false if doubts.may_pass => Passage::Unknown,
        false => Passage::Closed,
    }
}

/// Whether the rules of a chain accept the packet; none if they leave it undecided.
fn decided(base: &ForeignChain, chain: &str, packet: &Packet<'_>, depth: usize, doubts: &mut Doubts) -> Option<bool> {
    for rule in base.rules.get(chain).filter(|_| depth <= DEEPEST).into_iter().flatten() {
        match (&rule.verdict, fits(rule, packet)) {
            (ForeignVerdict::Accept, Fits::Yes) => return Some(true),
            (ForeignVerdict::Accept, Fits::Most | Fits::Unknown) => doubts.may_pass = true,
            (ForeignVerdict::Drop, Fits::Yes) => return Some(false),
            (ForeignVerdict::Drop, Fits::Most) => doubts.may_stop = true,
            // What comes after a return that may be for this packet is not for all of its kind.
            (ForeignVerdict::Return, Fits::Some | Fits::Unknown | Fits::Most) if depth > 0 => return None,
            (ForeignVerdict::Return, Fits::Yes) => return None,
            (ForeignVerdict::Goto(to), Fits::Yes) => return decided(base, to, packet, depth + 1, doubts),
            (ForeignVerdict::Jump(to), Fits::Yes) => match decided(base, to, packet, depth + 1, doubts) {
                None => {}
                decision => return decision,
            },
            (ForeignVerdict::Goto(to) | ForeignVerdict::Jump(to), fits @ (Fits::Most | Fits::Unknown)) => {
                let mut there = Doubts::default();
                let decision = decided(base, to, packet, depth + 1, &mut there);
                doubts.may_pass |= there.may_pass || decision == Some(true);
                doubts.may_stop |= fits == Fits::Most && (there.may_stop || decision == Some(false));
            }
            _ => {}
        }
    }
    None
}

/// Whether a rule is for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fits {
    Yes,
    /// It is for all but some, and which these are is not read.
    Most,
    /// It has conditions that are not read.
    Unknown,
    /// It is for some packets of this kind.
    Some,
    No,
}

fn fits(rule: &ForeignRule, packet: &Packet<'_>) -> Fits {
    let is_other = |patterns: &[NamePattern], name: Option<&str>| {
        // What is for the host leaves by no interface.
        patterns.iter().any(|pattern| !matches(pattern, name.unwrap_or_default()))
    };
    let is_other_state = rule.states.is_some_and(|states| states & packet.state == 0);
    let is_other_family = rule.family.is_some_and(|family| family != packet.family);
    let is_other_port = packet.port.is_some_and(|port| {
        let is_in = |(first, last): (u16, u16)| (first..=last).contains(&port);
        rule.protocol.is_some_and(|protocol| protocol != UDP) || rule.ports.is_some_and(|ports| !is_in(ports))
    });
    if is_other(&rule.incoming, Some(packet.from))
        || is_other(&rule.outgoing, packet.to)
        || is_other_state
        || is_other_family
        || is_other_port
    {
        return Fits::No;
    }
    let is_of_some = packet.port.is_none() && (rule.protocol.is_some() || rule.ports.is_some());
    let others = if rule.has_others { Fits::Unknown } else { Fits::Yes };
    let some = if is_of_some || rule.is_for_some { Fits::Some } else { Fits::Yes };
    let addresses = [(rule.source, &packet.source), (rule.destination, &packet.destination)];
    let addresses = addresses.into_iter().filter_map(|(range, nets)| Some(within(&range?, nets.as_deref())));
    let exceptions = rule.exceptions.iter().map(|exception| spared(exception, packet));
    addresses.chain(exceptions).chain([others, some]).max().unwrap_or(Fits::Yes)
}

/// Whether an exception of a rule leaves the packet to it.
fn spared(exception: &Exception, packet: &Packet<'_>) -> Fits {
    let is_none_of = |(first, last): (u16, u16)| match packet.port {
        Some(port) if (first..=last).contains(&port) => Fits::No,
        Some(_) => Fits::Yes,
        None => Fits::Some,
    };
    match exception {
        Exception::From(range) => outside(range, packet.source.as_deref()),
        // What is for the host is for few addresses, which are perhaps these.
        Exception::To(_) if packet.to.is_none() => Fits::Most,
        Exception::To(range) => outside(range, packet.destination.as_deref()),
        Exception::Ports(first, last) => is_none_of((*first, *last)),
        Exception::Protocol(protocol) if packet.port.is_none() || *protocol == UDP => is_none_of((0, u16::MAX)),
        Exception::Protocol(_) => Fits::Yes,
        Exception::Unread => Fits::Most,
    }
}

/// Whether addresses, all of which may be meant, are not in a range. What may be from anywhere is from elsewhere.
fn outside(range: &AddressRange, nets: Option<&[IpNet]>) -> Fits {
    match within(range, nets) {
        Fits::Yes => Fits::No,
        Fits::No | Fits::Some => Fits::Yes,
        Fits::Most | Fits::Unknown => Fits::Most,
    }
}

/// Whether addresses, all of which may be meant, are in a range.
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

fn matches(pattern: &NamePattern, name: &str) -> bool {
    let is_it = match pattern.name.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern.name == name,
    };
    is_it != pattern.inverted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

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
            drops,
            rules: others.chain([("forward".to_owned(), rules)]).collect::<BTreeMap<_, _>>(),
        }
    }

    fn passage_out(chain: &ForeignChain) -> Passage {
        let family = AddressFamily::V4;
        let source = Some(vec!["10.9.0.2/32".parse().unwrap(), "10.9.0.3/32".parse().unwrap()]);
        let to = Some("eth0");
        passes(chain, &Packet { from: "wg0", to, family, source, destination: None, state: NEW, port: None })
    }

    fn passes_out(chain: &ForeignChain) -> bool {
        passage_out(chain) == Passage::Open
    }

    fn addresses(net: &str) -> Option<AddressRange> {
        let net: IpNet = net.parse().unwrap();
        Some(AddressRange { first: net.network(), last: net.broadcast() })
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

    /// Of datagrams to port 51820 from anywhere.
    fn passage_in(chain: &ForeignChain) -> Passage {
        let (source, destination) = (None, None);
        let family = AddressFamily::V4;
        passes(chain, &Packet { from: "eth0", to: None, family, source, destination, state: NEW, port: Some(51820) })
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
    fn a_host_with_one_family_needs_that_one() {
        use crate::step::Route;
        let accept = ForeignRule { family: Some(AddressFamily::V6), ..rule(Accept) };
        let input = ForeignChain { hook: ForeignHook::Input, ..chain(true, vec![accept], vec![]) };
        let mut spec = HostSpec::default();
        spec.forwarding.listen_port = Some(51820);
        let passage = |defaults: &[&str]| {
            let route = |to: &&str| Route {
                to: to.parse().unwrap(),
                device: Some("eth0".into()),
                via: None,
                table: MAIN,
                metric: 0,
                protocol: 3,
                scope: 0,
                source: None,
                mtu: 0,
                onlink: false,
            };
            let state = HostState { routes: defaults.iter().map(route).collect(), ..HostState::default() };
            input_way(&spec, &state, &input, &["eth0".to_owned()]).map(|(_, passage)| passage)
        };
        assert_eq!(passage(&["0.0.0.0/0"]), Some(Passage::Closed));
        assert_eq!(passage(&["::/0"]), Some(Passage::Open));
        assert_eq!(passage(&["0.0.0.0/0", "::/0"]), Some(Passage::Open));
        assert_eq!(passage(&[]), Some(Passage::Open));
    }

    #[test]
    fn a_port_is_open_for_datagrams_to_it() {
        let udp = |ports| ForeignRule { protocol: Some(UDP), ports: Some(ports), ..rule(Accept) };
        let reaches = |rules| passage_in(&chain(true, rules, vec![])) == Passage::Open;
        assert!(reaches(vec![udp((51820, 51820))]) && reaches(vec![udp((50000, 60000))]));
        assert!(!reaches(vec![udp((53, 53))]));
        assert!(!reaches(vec![ForeignRule { protocol: Some(6), ..udp((51820, 51820)) }]), "that is TCP");
    }

    #[test]
    fn chains_of_other_families_are_not_met() {
        let spec = HostSpec { addresses: vec!["10.0.0.1/24".parse().unwrap()], ..HostSpec::default() };
        let of = |table: &str| ForeignChain { table: table.into(), ..chain(true, vec![], vec![]) };
        assert!(sees_packets(&spec, &of("ip filter")) && sees_packets(&spec, &of("inet site")));
        assert!(!sees_packets(&spec, &of("ip6 filter")));
    }
}
