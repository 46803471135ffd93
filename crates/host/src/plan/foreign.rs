//! Finds packets of a tunnel that other programs' firewalls drop, and the commands that let them pass.
//!
//! A packet that one table accepts can still be dropped by another, so the tunnel's own table cannot help. Each base
//! chain's [`Verdict`] on the tunnel's packets is computed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::gateway::Uplinks;
use super::opening::{by_hand, firewalld_names};
use crate::spec::{HostSpec, Inbound};
use crate::state::{FirewallTool, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict, HostState};
use crate::step::{AddressFamily, ForeignFirewall, MAIN, Opening, Step, Way};
use crate::verdict::{ESTABLISHED, NEW, Packet, TCP, UDP, Verdict};

/// A base chain of another program's firewall that drops, or may drop, packets that a tunnel needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The IP version of the dropped packets; `None` for both.
    pub family: Option<AddressFamily>,
    /// The base chain: `ufw's chain INPUT of the firewall table ip filter`.
    pub chain: String,
    /// Whether the chain certainly drops the packets.
    pub is_certain: bool,
    /// The chain and the rule that decide.
    pub why: String,
    /// The commands that let the packets pass, as lines for a shell.
    pub commands: Vec<String>,
    /// The firewall forgets these commands at its next start.
    pub is_forgotten: bool,
}

/// Finds chains that drop new peers' datagrams to the tunnel's port. These come in by the host's uplinks, or by any of
/// `devices` if the host has none.
pub fn before_port(spec: &HostSpec, state: &HostState, devices: &[String]) -> Vec<Obstacle> {
    obstacles(spec, state, devices, ForeignHook::Input)
}

/// Finds chains that drop packets between the tunnel and these interfaces, or from peer to peer.
pub fn between(spec: &HostSpec, state: &HostState, devices: &[String]) -> Vec<Obstacle> {
    obstacles(spec, state, devices, ForeignHook::Forward)
}

/// Finds a chain that drops a peer's answers to the tunnel's port, which conntrack knows as answers.
pub fn before_answers(spec: &HostSpec, state: &HostState, device: &str, peer: IpAddr) -> Option<Obstacle> {
    let port = spec.forwarding.listen_port?;
    let packet = Packet {
        from: device,
        to: None,
        family: AddressFamily::of_net(&peer.into()),
        source: Some(vec![peer.into()]),
        destination: None,
        state: ESTABLISHED,
        protocol: UDP,
        port: Some(port),
        sample: None,
    };
    state.foreign_chains.iter().filter(|chain| sees(chain, ForeignHook::Input)).find_map(|chain| {
        let verdict = chain.verdict(&packet);
        let way =
            Opening { interface: spec.interface.clone(), firewall: firewall(spec, chain), way: Way::Port { port } };
        (verdict != Verdict::Accepts).then(|| obstacle(spec, chain, ForeignHook::Input, &[(way, verdict)]))?
    })
}

fn obstacles(spec: &HostSpec, state: &HostState, devices: &[String], hook: ForeignHook) -> Vec<Obstacle> {
    let of_chain = |chain| {
        let mut closed = closed(spec, state, chain, hook, devices);
        // A chain that linerate has opened is no obstacle.
        closed.retain(|(_, verdict)| *verdict != Verdict::Accepts);
        obstacle(spec, chain, hook, &closed)
    };
    state.foreign_chains.iter().filter_map(of_chain).collect()
}

/// What foreign chains leave closed: as steps that open it, if the file says so, or else as warnings.
pub(super) fn plan(spec: &HostSpec, state: &HostState, devices: &[String], plan: &mut super::Plan) {
    let mut steps = Vec::new();
    let mut sentences = Vec::new();
    for chain in &state.foreign_chains {
        for hook in [ForeignHook::Forward, ForeignHook::Input] {
            let closed = closed(spec, state, chain, hook, devices);
            if spec.forwarding.fixes_firewall {
                steps.extend(closed.into_iter().map(|(way, _)| Step::Open(way)));
            } else {
                sentences.extend(obstacle(spec, chain, hook, &closed).map(|obstacle| sentence(&obstacle)));
            }
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
    let hooks = [ForeignHook::Forward, ForeignHook::Input].into_iter();
    let pairs = hooks.flat_map(|hook| state.foreign_chains.iter().map(move |chain| (chain, hook)));
    pairs.flat_map(|(chain, hook)| closed(spec, state, chain, hook, devices)).map(|(way, _)| way).collect()
}

/// Whether packets of this kind (`hook`) pass through the chain. Prerouting chains are not checked for forwarded packets:
/// the outgoing interface is not known there.
fn sees(chain: &ForeignChain, hook: ForeignHook) -> bool {
    chain.hook == hook || (hook == ForeignHook::Input && chain.hook == ForeignHook::Prerouting)
}

/// The ways through a chain that the tunnel needs, and that may be closed or were opened for it: those of what is
/// forwarded, or of what is for the host.
fn closed(
    spec: &HostSpec,
    state: &HostState,
    chain: &ForeignChain,
    hook: ForeignHook,
    devices: &[String],
) -> Vec<(Opening, Verdict)> {
    let opening = |way| Opening { interface: spec.interface.clone(), firewall: firewall(spec, chain), way };
    let ways = match hook {
        _ if !sees(chain, hook) => Vec::new(),
        ForeignHook::Forward if devices.is_empty() || !sees_packets(spec, chain) => Vec::new(),
        ForeignHook::Forward => forward_ways(spec, chain, devices),
        ForeignHook::Input if !sees_datagrams(state, chain) => Vec::new(),
        ForeignHook::Input => input_way(spec, state, chain, devices).into_iter().collect(),
        ForeignHook::Output | ForeignHook::Prerouting | ForeignHook::Postrouting => Vec::new(),
    };
    let ways = ways.into_iter().map(|(way, verdict)| (opening(way), verdict));
    // What is open because of us is ours to close.
    let is_needed =
        |(way, verdict): &(Opening, Verdict)| *verdict != Verdict::Accepts || state.openings.contains(&way.id());
    let mut needed: Vec<(Opening, Verdict)> = ways.filter(is_needed).collect();
    needed.dedup();
    needed
}

/// The ways of what is forwarded, with whether they are open.
fn forward_ways(spec: &HostSpec, chain: &ForeignChain, devices: &[String]) -> Vec<(Way, Verdict)> {
    let tunnel = &spec.interface;
    let answers = spec.forwarding.inbound == Inbound::Replies;
    let families = [AddressFamily::V4, AddressFamily::V6]
        .into_iter()
        .filter(|met| sees_packets_of(spec, *met) && chain.family().is_none_or(|family| family == *met));
    let peers: Vec<(AddressFamily, Vec<IpNet>)> = families.map(|family| (family, addresses(spec, family))).collect();
    let mut ways = Vec::new();
    let mut add = |from: &String, to: &String, answers| {
        let of_family = |(family, peers): &(AddressFamily, Vec<IpNet>)| {
            let ends = |end: &String| if end == tunnel { Some(peers.clone()) } else { None };
            let state = if answers { ESTABLISHED } else { NEW };
            let (source, destination, family) = (ends(from), ends(to), *family);
            let (to, protocol, port, sample) = (Some(&**to), TCP, None, None);
            let packet = Packet { from, to, family, source, destination, state, protocol, port, sample };
            chain.verdict(&packet).max(chain.verdict(&Packet { protocol: UDP, ..packet }))
        };
        let verdict = peers.iter().map(of_family).max().unwrap_or(Verdict::Accepts);
        ways.push((Way::Forward { from: from.clone(), to: to.clone(), answers }, verdict));
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
            let verdict = ways.into_iter().map(|(_, verdict)| verdict).max().unwrap_or(Verdict::Accepts);
            vec![(Way::Tunnel { inbound: !answers }, verdict)]
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
fn input_way(spec: &HostSpec, state: &HostState, chain: &ForeignChain, devices: &[String]) -> Option<(Way, Verdict)> {
    let port = spec.forwarding.listen_port?;
    let uplinks = Uplinks::of(&spec.interface, state, None).devices;
    let outside = if uplinks.is_empty() { devices } else { &uplinks };
    let families = [AddressFamily::V4, AddressFamily::V6].into_iter();
    let families = families.filter(|met| receives(state, *met) && chain.family().is_none_or(|family| family == *met));
    let ways = families.flat_map(|family| outside.iter().map(move |from| (family, from)));
    let verdicts = ways.map(|(family, from)| {
        let (to, source, destination, sample) = (None, None, None, None);
        let (state, protocol, port) = (NEW, UDP, Some(port));
        chain.verdict(&Packet { from, to, family, source, destination, state, protocol, port, sample })
    });
    verdicts.min().map(|verdict| (Way::Port { port }, verdict))
}

/// Whether packets of the tunnel's families meet the chain.
fn sees_packets(spec: &HostSpec, chain: &ForeignChain) -> bool {
    chain.family().is_none_or(|family| sees_packets_of(spec, family))
}

fn sees_packets_of(spec: &HostSpec, family: AddressFamily) -> bool {
    spec.addresses.iter().chain(&spec.allowed_ips).any(|net| AddressFamily::of_net(net) == family)
}

/// Whether datagrams of peers meet the chain.
fn sees_datagrams(state: &HostState, chain: &ForeignChain) -> bool {
    chain.family().is_none_or(|family| receives(state, family))
}

/// Whether datagrams of peers may be of a family: one in which the host has a way out, if it has any.
fn receives(state: &HostState, family: AddressFamily) -> bool {
    let mut defaults = state.routes.iter().filter(|route| route.table == MAIN && route.to.prefix_len() == 0).peekable();
    let is_known = state.multipath_defaults.is_empty() && defaults.peek().is_some();
    !is_known || defaults.any(|route| AddressFamily::of_net(&route.to) == family)
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

/// Describes the obstacle that a chain is, from the packets that it drops.
fn obstacle(
    spec: &HostSpec,
    chain: &ForeignChain,
    hook: ForeignHook,
    closed: &[(Opening, Verdict)],
) -> Option<Obstacle> {
    let tunnel = &spec.interface;
    let (_, worst) = closed.iter().max_by_key(|(_, verdict)| verdict)?;
    let what = if hook == ForeignHook::Forward {
        let others: BTreeSet<&str> = closed.iter().flat_map(|(way, _)| ends(way, tunnel)).collect();
        let others: Vec<&str> = others.into_iter().collect();
        match &others[..] {
            [] => format!("what passes from one peer of {tunnel} to another"),
            others => format!("what passes between {tunnel} and {}", others.join(", ")),
        }
    } else {
        "the datagrams of peers".to_owned()
    };
    let is_certain = !matches!(worst, Verdict::MayDrop { .. });
    let verb = if is_certain { "drops" } else { "may drop" };
    let firewall = firewall(spec, chain);
    Some(Obstacle {
        family: chain.family(),
        why: format!("{} {verb} {what}: {worst}", whose(chain)),
        chain: whose(chain),
        is_certain,
        commands: closed.iter().flat_map(|(way, _)| by_hand(way)).collect(),
        is_forgotten: matches!(firewall, ForeignFirewall::Iptables { .. } | ForeignFirewall::Nftables { .. }),
    })
}

fn sentence(obstacle: &Obstacle) -> String {
    let commands = obstacle.commands.join("` and `");
    let doubt = if obstacle.is_certain { "" } else { "if nothing gets through, " };
    format!("{}; {doubt}this lets it pass, and so does --fix-firewall: `{commands}`", obstacle.why)
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
    let program = chain.iptables.as_ref().filter(|_| chain.is_legacy);
    let program = program.map(|program| format!(" of {program}")).unwrap_or_default();
    format!("{tool}chain {} of the firewall table {}{program}", chain.chain, chain.table)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A chain that drops but for these rules.
    fn chain(rules: Vec<ForeignRule>) -> ForeignChain {
        ForeignChain {
            table: "inet site".into(),
            chain: "c".into(),
            hook: ForeignHook::Input,
            tool: FirewallTool::Other,
            iptables: None,
            is_legacy: false,
            drops: true,
            rules: BTreeMap::from([("c".to_owned(), rules)]),
        }
    }

    #[test]
    fn a_host_with_one_family_needs_that_one() {
        use crate::step::Route;
        let verdict = ForeignVerdict::Accept;
        let input = chain(vec![ForeignRule { family: Some(AddressFamily::V6), verdict, ..ForeignRule::default() }]);
        let mut spec = HostSpec::default();
        spec.forwarding.listen_port = Some(51820);
        let is_open = |defaults: &[&str]| {
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
            input_way(&spec, &state, &input, &["eth0".to_owned()]).map(|(_, verdict)| verdict == Verdict::Accepts)
        };
        assert_eq!(is_open(&["0.0.0.0/0"]), Some(false));
        assert_eq!(is_open(&["::/0"]), Some(true));
        assert_eq!(is_open(&["0.0.0.0/0", "::/0"]), Some(true));
        assert_eq!(is_open(&[]), Some(true));
    }

    #[test]
    fn chains_of_other_families_are_not_met() {
        let spec = HostSpec { addresses: vec!["10.0.0.1/24".parse().unwrap()], ..HostSpec::default() };
        let of = |table: &str| ForeignChain { table: table.into(), ..chain(Vec::new()) };
        assert!(sees_packets(&spec, &of("ip filter")) && sees_packets(&spec, &of("inet site")));
        assert!(!sees_packets(&spec, &of("ip6 filter")));
    }
}
