//! Firewalls of others: what they drop of a gateway's packets, and what makes way.
//!
//! What one table accepts another may still drop, so nothing that the tunnel's own table says helps. The rules of each
//! base chain are followed for the packets in question. A rule whose conditions are not all known is passed over, so a
//! way may look closed that is open for some; none looks open because of a rule that is for others.

use super::gateway::uplinks;
use super::opening::{by_hand, firewalld_names};
use crate::spec::{HostSpec, Inbound};
use crate::state::{FirewallTool, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict, HostState, NamePattern};
use crate::step::{AddressFamily, ForeignFirewall, MAIN, Opening, Step, Way};

/// What foreign chains leave closed: as steps that open it, if the file says so, or else as warnings.
pub(super) fn plan(spec: &HostSpec, state: &HostState, devices: &[String], plan: &mut super::Plan) {
    let mut steps = Vec::new();
    let mut sentences = Vec::new();
    for chain in &state.foreign_chains {
        let closed = closed(spec, state, chain, devices);
        let is_fixed = |way: &Opening| spec.forwarding.fixes_firewall && fixable(way);
        let (fixed, named): (Vec<_>, Vec<_>) = closed.into_iter().partition(is_fixed);
        steps.extend(fixed.into_iter().map(Step::Open));
        sentences.extend(sentence(spec, chain, &named));
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
    state.foreign_chains.iter().flat_map(|chain| closed(spec, state, chain, devices)).collect()
}

/// The ways through a chain that the tunnel needs, and that are closed or were opened for it.
fn closed(spec: &HostSpec, state: &HostState, chain: &ForeignChain, devices: &[String]) -> Vec<Opening> {
    let opening = |way| Opening { interface: spec.interface.clone(), firewall: firewall(spec, chain), way };
    let ways = match chain.hook {
        ForeignHook::Forward if devices.is_empty() || !sees_packets(spec, chain) => Vec::new(),
        ForeignHook::Forward => forward_ways(spec, chain, devices),
        ForeignHook::Input if !sees_datagrams(state, chain) => Vec::new(),
        ForeignHook::Input => input_way(spec, state, chain, devices).into_iter().collect(),
    };
    let ways = ways.into_iter().map(|(way, is_open)| (opening(way), is_open));
    // What is open because of us is ours to close.
    let is_needed = |(way, is_open): &(Opening, bool)| !is_open || state.openings.contains(&way.id());
    let mut needed: Vec<Opening> = ways.filter(is_needed).map(|(way, _)| way).collect();
    needed.dedup();
    needed
}

/// The ways of what is forwarded, with whether they are open.
fn forward_ways(spec: &HostSpec, chain: &ForeignChain, devices: &[String]) -> Vec<(Way, bool)> {
    let tunnel = &spec.interface;
    let answers = spec.forwarding.inbound == Inbound::Replies;
    let mut ways = Vec::new();
    let mut add = |from: &String, to: &String, answers| {
        let packet = Packet { from, to: Some(to), state: if answers { ESTABLISHED } else { NEW }, port: None };
        ways.push((Way::Forward { from: from.clone(), to: to.clone(), answers }, passes(chain, &packet)));
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
            let is_open = ways.iter().all(|(_, is_open)| *is_open);
            vec![(Way::Tunnel { inbound: !answers }, is_open)]
        }
        _ => ways,
    }
}

/// The way of the peers' datagrams, with whether it is open. They come from where the host's routes lead.
fn input_way(spec: &HostSpec, state: &HostState, chain: &ForeignChain, devices: &[String]) -> Option<(Way, bool)> {
    let port = spec.forwarding.listen_port?;
    let uplinks = uplinks(&spec.interface, state);
    let outside = if uplinks.is_empty() { devices } else { &uplinks };
    let accepts = |from: &String| passes(chain, &Packet { from, to: None, state: NEW, port: Some(port) });
    Some((Way::Port { port }, outside.iter().any(accepts)))
}

/// Whether packets of the tunnel's families meet the chain.
fn sees_packets(spec: &HostSpec, chain: &ForeignChain) -> bool {
    let mut nets = spec.addresses.iter().chain(&spec.allowed_ips);
    family(chain).is_none_or(|family| nets.any(|net| AddressFamily::of_net(net) == family))
}

/// Whether datagrams of peers meet the chain: those of a family in which the host has a way out, if it has any.
fn sees_datagrams(state: &HostState, chain: &ForeignChain) -> bool {
    let defaults = || state.routes.iter().filter(|route| route.table == MAIN && route.to.prefix_len() == 0);
    let is_of = |family| defaults().any(|route| AddressFamily::of_net(&route.to) == family);
    defaults().next().is_none() || family(chain).is_none_or(is_of)
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
    let names_us = |rule: &&ForeignRule| {
        rule.incoming.as_ref().is_some_and(|pattern| !pattern.inverted && pattern.name == spec.interface)
    };
    let zone = chain.rules.values().flatten().filter(names_us).find_map(|rule| match &rule.verdict {
        ForeignVerdict::Goto(chain) => chain.strip_prefix("filter_FWD_").map(str::to_owned),
        _ => None,
    });
    zone.filter(|zone| *zone != firewalld_names(&spec.interface).zone)
}

/// Whether the tool has a way to open it. firewalld limits the length of names, and their characters.
fn fixable(opening: &Opening) -> bool {
    let name = &opening.interface;
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_firewalld = matches!(opening.firewall, ForeignFirewall::Firewalld { .. });
    !is_firewalld || (name.len() <= LONGEST_IN_FIREWALLD && name.bytes().all(is_named))
}

/// The names of policies have at most 18 characters, of which `lr-` and `-udp` are seven.
const LONGEST_IN_FIREWALLD: usize = 11;

fn sentence(spec: &HostSpec, chain: &ForeignChain, closed: &[Opening]) -> Option<String> {
    if closed.is_empty() {
        return None;
    }
    let tunnel = &spec.interface;
    let commands: Vec<String> = closed.iter().flat_map(by_hand).collect();
    let commands = commands.join("` and `");
    let whose = whose(chain);
    Some(match chain.hook {
        ForeignHook::Input => {
            format!("{whose} drops the datagrams of peers; this lets them in, and so does --fix-firewall: `{commands}`")
        }
        ForeignHook::Forward => {
            let others: std::collections::BTreeSet<&str> = closed.iter().flat_map(|way| ends(way, tunnel)).collect();
            let others: Vec<&str> = others.into_iter().collect();
            let between = match &others[..] {
                [] => format!("from one peer of {tunnel} to another"),
                others => format!("between {tunnel} and {}", others.join(", ")),
            };
            format!("{whose} drops what passes {between}; this lets it pass, and so does --fix-firewall: `{commands}`")
        }
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

/// What is asked of a chain: whether packets like this pass it.
struct Packet<'a> {
    from: &'a str,
    /// None if it is for the host.
    to: Option<&'a str>,
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

fn passes(chain: &ForeignChain, packet: &Packet<'_>) -> bool {
    decided(chain, &chain.chain, packet, 0).unwrap_or(!chain.drops)
}

/// Whether the rules of a chain accept the packet; none if they leave it undecided.
fn decided(base: &ForeignChain, chain: &str, packet: &Packet<'_>, depth: usize) -> Option<bool> {
    for rule in base.rules.get(chain).filter(|_| depth <= DEEPEST).into_iter().flatten() {
        match (&rule.verdict, fits(rule, packet)) {
            (ForeignVerdict::Accept, Fits::Yes) => return Some(true),
            (ForeignVerdict::Drop, Fits::Yes) => return Some(false),
            // What comes after a return that may be for this packet is not for all of its kind.
            (ForeignVerdict::Return, Fits::Perhaps) if depth > 0 => return None,
            (ForeignVerdict::Return, Fits::Yes) => return None,
            (ForeignVerdict::Goto(to), Fits::Yes) => return decided(base, to, packet, depth + 1),
            (ForeignVerdict::Jump(to), Fits::Yes) => match decided(base, to, packet, depth + 1) {
                None => {}
                decision => return decision,
            },
            _ => {}
        }
    }
    None
}

/// Whether a rule is for a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fits {
    Yes,
    No,
    /// It is for some packets of this kind, or has conditions that are not read.
    Perhaps,
}

fn fits(rule: &ForeignRule, packet: &Packet<'_>) -> Fits {
    let names = [(&rule.incoming, Some(packet.from)), (&rule.outgoing, packet.to)];
    let is_other_name = |(pattern, name): &(&Option<NamePattern>, Option<&str>)| {
        pattern.as_ref().zip(*name).is_some_and(|(pattern, name)| !matches(pattern, name))
    };
    let is_other_state = rule.states.is_some_and(|states| states & packet.state == 0);
    let is_other_port = packet.port.is_some_and(|port| {
        let is_in = |(first, last): (u16, u16)| (first..=last).contains(&port);
        rule.protocol.is_some_and(|protocol| protocol != UDP) || rule.ports.is_some_and(|ports| !is_in(ports))
    });
    let is_of_some = packet.port.is_none() && (rule.protocol.is_some() || rule.ports.is_some());
    if names.iter().any(is_other_name) || is_other_state || is_other_port {
        Fits::No
    } else if rule.has_others || is_of_some || (packet.to.is_none() && rule.outgoing.is_some()) {
        Fits::Perhaps
    } else {
        Fits::Yes
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
        let incoming = Some(NamePattern { name: name.into(), inverted: false });
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

    fn passes_out(chain: &ForeignChain) -> bool {
        passes(chain, &Packet { from: "wg0", to: Some("eth0"), state: NEW, port: None })
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
    fn a_port_is_open_for_datagrams_to_it() {
        let udp = |ports| ForeignRule { protocol: Some(UDP), ports: Some(ports), ..rule(Accept) };
        let reaches = |rules| {
            let packet = Packet { from: "eth0", to: None, state: NEW, port: Some(51820) };
            passes(&chain(true, rules, vec![]), &packet)
        };
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
