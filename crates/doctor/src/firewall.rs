//! The firewall, read from `nft -j list ruleset`, and what becomes of a packet in it: for what protects a tunnel, and for
//! what the host sends. What other programs' firewalls drop of the tunnel's datagrams and of what a gateway forwards,
//! [`linerate_host::verdict`] says, as it does when the tunnel is brought up.
//!
//! A condition that is not understood here (a match of iptables) may hold or fail. A packet counts as dropped only if
//! it is dropped either way, and as passing only if it passes either way.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use linerate_host::spec::AddressRange;
use linerate_host::state::{Exception, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict};
use linerate_host::step::AddressFamily;
use serde_json::Value;

/// All tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruleset {
    chains: Vec<Chain>,
}

#[derive(Clone, Debug, PartialEq)]
struct Chain {
    /// The iptables that keeps it, if that is one of the older kind.
    program: Option<String>,
    family: String,
    table: String,
    name: String,
    base: Option<Base>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq)]
struct Base {
    hook: String,
    priority: i64,
    drops: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    conditions: Vec<Condition>,
    verdict: Verdict,
    packets: Option<u64>,
    is_masquerade: bool,
    sets_segment_size: bool,
    /// The mark that the rule sets; `Some(None)` if its value is not known.
    sets_mark: Option<Option<u32>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Incoming(bool, Vec<String>),
    Outgoing(bool, Vec<String>),
    Protocol(bool, Vec<String>),
    /// The type of an echo request or its answer.
    Echo(bool, Vec<String>),
    Family(bool, Vec<String>),
    SourcePort(bool, Vec<(u16, u16)>),
    Port(bool, Vec<(u16, u16)>),
    Source(bool, Vec<IpNet>),
    Destination(bool, Vec<IpNet>),
    State(bool, Vec<String>),
    Mark(bool, Vec<u32>),
    /// NAT translates an address of its connection (`ct status`).
    Translated(bool),
    /// The route to its source leads over one of these interfaces (`fib saddr oif`).
    SourceRoute(bool, Vec<String>),
    /// The route to its source does not lead over the interface that it came in by (`fib saddr . iif oif missing`).
    Backwards(bool),
    /// It matches all fields of one of these elements (a concatenation).
    AnyOf(bool, Vec<Vec<Condition>>),
    /// A match of iptables, whose values `nft` does not show.
    Match,
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Continue,
    Accept,
    Drop,
    Jump(String),
    Goto(String),
    Return,
    /// It depends on something that is not read here.
    Unknown,
}

/// A packet, as far as rules look at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packet<'a> {
    /// `input`, `output` or `forward`.
    pub hook: &'a str,
    /// The interface that it came in by; empty for none, [`ANY_INTERFACE`] for one that is not known.
    pub incoming: &'a str,
    /// The interface that it leaves by; empty for none.
    pub outgoing: &'a str,
    /// `udp`, `tcp`, `icmp` or `icmpv6`.
    pub protocol: &'a str,
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

/// Some interface other than `lo`. No interface can have this name.
pub const ANY_INTERFACE: &str = "/";

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

/// What is known of a condition or of a packet's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    Yes,
    No,
    Perhaps,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
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

/// What one chain may do to a packet. Several are possible where a condition is not understood.
#[derive(Default)]
struct Outcomes {
    /// The chain ends without a verdict.
    goes_on: bool,
    accepted: bool,
    dropped: Option<Drop>,
}

impl Ruleset {
    /// The tables in the output of `nft -j list ruleset`. Whatever is not understood is left out, or a condition that
    /// may hold.
    #[must_use]
    pub fn parse(json: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(json).ok()?;
        let all = all.get("nftables")?.as_array()?;
        let mut ruleset = Self { chains: all.iter().filter_map(|object| chain(object.get("chain")?)).collect() };
        let mut sets = Sets::new();
        for object in all.iter().filter_map(|object| object.get("set").or_else(|| object.get("map"))) {
            if let Some((family, table, name)) = place(object, "name") {
                let elements = object.get("elem").and_then(Value::as_array);
                sets.insert((family, table, name), elements.map_or(&[], Vec::as_slice));
            }
        }
        for rule in all.iter().filter_map(|object| object.get("rule")) {
            let Some(of) = place(rule, "chain") else { continue };
            if let Some(chain) = ruleset.chains.iter_mut().find(|chain| chain.place() == of) {
                chain.rules.extend(read_rule(rule, &|name| sets.get(&(of.0, of.1, name)).copied()));
            }
        }
        Some(ruleset)
    }

    /// Adds what `nft` does not show of other programs' firewalls: the tables of the older iptables, and the rules of
    /// chains with matches of iptables, which `nft` names without their values.
    pub fn add_foreign(&mut self, bases: &[ForeignChain]) {
        for base in bases {
            let program = base.iptables.clone().filter(|_| base.is_legacy);
            let (family, table) = base.table.split_once(' ').unwrap_or_default();
            for (name, rules) in &base.rules {
                let is_it = |chain: &Chain| chain.program == program && chain.place() == (family, table, name);
                let rules = || rules.iter().map(foreign_rule).collect();
                let at = match self.chains.iter().position(is_it) {
                    Some(at)
                        if self.chains[at].rules.iter().any(|rule| rule.conditions.contains(&Condition::Match)) =>
                    {
                        self.chains[at].rules = rules();
                        at
                    }
                    Some(at) => at,
                    // Without `nft`, its chains are here alone.
                    None => {
                        self.chains.push(Chain {
                            program: program.clone(),
                            family: family.into(),
                            table: table.into(),
                            name: name.clone(),
                            base: None,
                            rules: rules(),
                        });
                        self.chains.len() - 1
                    }
                };
                if *name == base.chain && self.chains[at].base.is_none() {
                    let hook = match base.hook {
                        ForeignHook::Forward => "forward",
                        ForeignHook::Input => "input",
                        ForeignHook::Output => "output",
                        ForeignHook::Prerouting => "prerouting",
                    };
                    self.chains[at].base = Some(Base { hook: hook.into(), priority: 0, drops: base.drops });
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

    /// Evaluates all base chains on the packet's path. Each has to let it pass: the next may drop what one accepts.
    #[must_use]
    pub fn fate(&self, packet: &Packet<'_>) -> Fate {
        let hooks: &[&str] = match packet.hook {
            "input" => &["prerouting", "input"],
            "output" => &["output", "postrouting"],
            _ => &["prerouting", "forward", "postrouting"],
        };
        let sees = |chain: &Chain| match chain.family.as_str() {
            "inet" => true,
            "ip" => !packet.is_v6,
            "ip6" => packet.is_v6,
            _ => false,
        };
        let order = |chain: &&Chain| {
            let base = chain.base.as_ref().filter(|_| sees(chain))?;
            Some((hooks.iter().position(|hook| *hook == base.hook)?, base.priority))
        };
        let mut bases: Vec<&Chain> = self.chains.iter().filter(|chain| order(chain).is_some()).collect();
        bases.sort_by_key(order);
        let mut mark = Some(packet.mark);
        let mut perhaps = None;
        for chain in bases {
            let drops = chain.base.as_ref().is_some_and(|base| base.drops);
            let Outcomes { goes_on, accepted, dropped } = self.walk(chain, packet, &mut mark, 0);
            let by_policy = (goes_on && drops).then(|| chain.drop(None, true));
            let Some(drop) = by_policy.or(dropped) else { continue };
            if !accepted && (drops || !goes_on) {
                return Fate::Dropped(drop);
            }
            perhaps.get_or_insert(drop);
        }
        perhaps.map_or(Fate::Passes, Fate::MayPass)
    }

    /// Whether a table, given as `inet filter`, has any rule.
    #[must_use]
    pub fn has_rules(&self, table: &str) -> bool {
        self.chains.iter().any(|chain| chain.table_name() == table && !chain.rules.is_empty())
    }

    /// Returns variants of `packet` that the accept rules of a table accept. Rules about the other version of IP and
    /// about neighbour discovery accept none.
    #[must_use]
    pub fn accepted_by<'a>(&'a self, table: &str, packet: &Packet<'a>) -> Vec<Packet<'a>> {
        let chains = self.chains.iter().filter(|chain| chain.table_name() == table);
        let rules = chains.flat_map(|chain| &chain.rules).filter(|rule| rule.verdict == Verdict::Accept);
        let mut packets = Vec::new();
        for rule in rules {
            let fits = rule.conditions.iter().try_fold(vec![packet.clone()], |packets, condition| {
                let fitting: Vec<Packet<'a>> = packets.iter().flat_map(|packet| condition.fitting(packet)).collect();
                (!fitting.is_empty()).then_some(fitting)
            });
            packets.extend(fits.unwrap_or_default());
        }
        packets
    }

    /// Whether some rule gives packets from this network another source address.
    #[must_use]
    pub fn translates(&self, net: &IpNet) -> bool {
        let is_for = |condition: &Condition| match condition {
            Condition::Source(true, nets) => nets.iter().any(|from| from.contains(net) || net.contains(from)),
            Condition::Source(false, nets) => !nets.iter().any(|from| from.contains(net)),
            _ => true,
        };
        let mut rules = self.rules_for(net.addr().is_ipv6());
        rules.any(|rule| rule.is_masquerade && rule.conditions.iter().all(is_for))
    }

    /// Whether some rule limits the size of TCP segments.
    #[must_use]
    pub fn limits_segments(&self) -> bool {
        self.rules_for(false).chain(self.rules_for(true)).any(|rule| rule.sets_segment_size)
    }

    fn rules_for(&self, is_v6: bool) -> impl Iterator<Item = &Rule> {
        let other = if is_v6 { "ip" } else { "ip6" };
        let chains = self.chains.iter().filter(move |chain| chain.family != other);
        let other = if is_v6 { "ipv4" } else { "ipv6" };
        chains.flat_map(|chain| &chain.rules).filter(move |rule| {
            let is_other = |condition: &Condition| match condition {
                Condition::Family(holds, names) => *holds && names.iter().all(|name| name == other),
                Condition::Source(true, nets) | Condition::Destination(true, nets) => {
                    nets.iter().all(|net| net.addr().is_ipv6() != is_v6)
                }
                _ => false,
            };
            !rule.conditions.iter().any(is_other)
        })
    }

    /// Evaluates one chain for the packet. `mark` is the packet's mark, which rules may set; `None` if not known.
    fn walk(&self, chain: &Chain, packet: &Packet<'_>, mark: &mut Option<u32>, depth: usize) -> Outcomes {
        let mut all = Outcomes::default();
        for rule in &chain.rules {
            let holds = rule.conditions.iter().map(|condition| condition.holds(packet, *mark)).fold(Truth::Yes, and);
            if holds == Truth::No {
                continue;
            }
            let mark_before = *mark;
            *mark = rule.sets_mark.unwrap_or(mark_before);
            let anything =
                || Outcomes { goes_on: true, accepted: true, dropped: Some(chain.drop(rule.packets, false)) };
            let (outcomes, returns) = match &rule.verdict {
                Verdict::Continue => (Outcomes { goes_on: true, ..Outcomes::default() }, true),
                Verdict::Accept => (Outcomes { accepted: true, ..Outcomes::default() }, false),
                Verdict::Drop => {
                    (Outcomes { dropped: Some(chain.drop(rule.packets, false)), ..Outcomes::default() }, false)
                }
                Verdict::Unknown => (anything(), true),
                Verdict::Return => (Outcomes { goes_on: true, ..Outcomes::default() }, false),
                Verdict::Jump(target) | Verdict::Goto(target) => {
                    let target = self.find(chain, target).filter(|_| depth < DEPTH_MAX);
                    let outcomes = target.map_or_else(anything, |target| self.walk(target, packet, mark, depth + 1));
                    (outcomes, matches!(rule.verdict, Verdict::Jump(_)))
                }
            };
            if holds == Truth::Perhaps && *mark != mark_before {
                *mark = None;
            }
            all.goes_on |= outcomes.goes_on && !returns;
            all.accepted |= outcomes.accepted;
            all.dropped = all.dropped.or(outcomes.dropped);
            if holds == Truth::Yes && !(returns && outcomes.goes_on) {
                return all;
            }
        }
        all.goes_on = true;
        all
    }

    fn find(&self, from: &Chain, name: &str) -> Option<&Chain> {
        let place = (&*from.family, &*from.table, name);
        self.chains.iter().find(|chain| chain.program == from.program && chain.place() == place)
    }
}

/// As deep as the kernel lets chains call each other (NFT_JUMP_STACK_SIZE).
const DEPTH_MAX: usize = 16;

fn or(one: Truth, other: Truth) -> Truth {
    match (one, other) {
        (Truth::Yes, _) | (_, Truth::Yes) => Truth::Yes,
        (Truth::No, Truth::No) => Truth::No,
        _ => Truth::Perhaps,
    }
}

fn and(one: Truth, other: Truth) -> Truth {
    match (one, other) {
        (Truth::No, _) | (_, Truth::No) => Truth::No,
        (Truth::Yes, Truth::Yes) => Truth::Yes,
        _ => Truth::Perhaps,
    }
}

impl Chain {
    fn place(&self) -> (&str, &str, &str) {
        (&self.family, &self.table, &self.name)
    }

    fn table_name(&self) -> String {
        format!("{} {}", self.family, self.table)
    }

    fn drop(&self, packets: Option<u64>, by_policy: bool) -> Drop {
        Drop { program: self.program.clone(), table: self.table_name(), chain: self.name.clone(), packets, by_policy }
    }
}

impl Condition {
    fn holds(&self, packet: &Packet<'_>, mark: Option<u32>) -> Truth {
        let name = |names: &[String], value: &str| {
            let fits = |name: &String| match name.strip_suffix('*') {
                Some(start) => value.starts_with(start),
                None => name == value,
            };
            Truth::from(names.iter().any(fits))
        };
        let port = |ranges: &[(u16, u16)], port: Option<u16>| match port {
            Some(port) => Truth::from(ranges.iter().any(|(first, last)| (*first..=*last).contains(&port))),
            None => Truth::Perhaps,
        };
        let net = |nets: &[IpNet], address: Option<IpAddr>| match address {
            Some(address) => Truth::from(nets.iter().any(|net| net.contains(&address))),
            None => Truth::Perhaps,
        };
        let (expected, truth) = match self {
            Self::Incoming(expected, names) if packet.incoming == ANY_INTERFACE => {
                (expected, if names.iter().all(|name| name == "lo") { Truth::No } else { Truth::Perhaps })
            }
            Self::Incoming(expected, names) => (expected, name(names, packet.incoming)),
            Self::Outgoing(expected, names) => (expected, name(names, packet.outgoing)),
            Self::Protocol(expected, names) => {
                (expected, Truth::from(names.iter().any(|name| protocol_name(name) == packet.protocol)))
            }
            Self::Echo(expected, names) => {
                let kind = if packet.is_known { "echo-reply" } else { "echo-request" };
                (expected, Truth::from(names.iter().any(|name| name == kind)))
            }
            Self::Family(expected, names) => (expected, name(names, if packet.is_v6 { "ipv6" } else { "ipv4" })),
            Self::SourcePort(expected, ranges) => (expected, port(ranges, packet.source_port)),
            Self::Port(expected, ranges) => (expected, port(ranges, packet.port)),
            Self::Source(expected, nets) => (expected, net(nets, packet.source)),
            Self::Destination(expected, nets) => (expected, net(nets, packet.destination)),
            Self::State(expected, names) => {
                let state = if packet.is_known { "established" } else { "new" };
                (expected, Truth::from(names.iter().any(|name| name == state)))
            }
            Self::Mark(expected, marks) => {
                (expected, mark.map_or(Truth::Perhaps, |mark| Truth::from(marks.contains(&mark))))
            }
            Self::Translated(expected) => (expected, if packet.is_known { Truth::Perhaps } else { Truth::No }),
            Self::SourceRoute(expected, names) => {
                (expected, packet.source_route.map_or(Truth::Perhaps, |route| name(names, route)))
            }
            Self::Backwards(expected) => {
                (expected, packet.source_route.map_or(Truth::Perhaps, |route| (route != packet.incoming).into()))
            }
            Self::AnyOf(expected, elements) => {
                let fits =
                    |element: &Vec<Self>| element.iter().map(|field| field.holds(packet, mark)).fold(Truth::Yes, and);
                (expected, elements.iter().map(fits).fold(Truth::No, or))
            }
            Self::Match | Self::Unknown => return Truth::Perhaps,
        };
        match (truth, expected) {
            (truth, true) => truth,
            (Truth::Yes, false) => Truth::No,
            (Truth::No, false) => Truth::Yes,
            (Truth::Perhaps, false) => Truth::Perhaps,
        }
    }
}

impl Condition {
    /// Returns variants of the packet for which the condition holds or may hold; none if it cannot hold.
    fn fitting<'a>(&'a self, packet: &Packet<'a>) -> Vec<Packet<'a>> {
        let like = || packet.clone();
        if self.holds(packet, Some(packet.mark)) == Truth::Yes {
            return vec![like()];
        }
        let of_family = |net: &&IpNet| net.addr().is_ipv6() == packet.is_v6;
        match self {
            Self::Incoming(true, names) => {
                names.iter().map(|name| Packet { incoming: name.trim_end_matches('*'), ..like() }).collect()
            }
            Self::Outgoing(true, names) => {
                names.iter().map(|name| Packet { outgoing: name.trim_end_matches('*'), ..like() }).collect()
            }
            Self::Protocol(true, names) => {
                names.iter().map(|name| Packet { protocol: protocol_name(name), ..like() }).collect()
            }
            Self::Echo(true, names) if names.iter().all(|name| NEIGHBOURS.contains(&&**name)) => Vec::new(),
            Self::SourcePort(true, ranges) => {
                ranges.iter().map(|(first, _)| Packet { source_port: Some(*first), ..like() }).collect()
            }
            Self::Port(true, ranges) => {
                ranges.iter().map(|(first, _)| Packet { port: Some(*first), ..like() }).collect()
            }
            Self::Source(true, nets) => {
                nets.iter().filter(of_family).map(|net| Packet { source: Some(net.network()), ..like() }).collect()
            }
            Self::Destination(true, nets) => {
                let to = |net: &IpNet| Packet {
                    destination: packet.destination.filter(|to| net.contains(to)).or(Some(net.network())),
                    ..like()
                };
                nets.iter().filter(of_family).map(to).collect()
            }
            Self::State(true, names) => {
                vec![Packet { is_known: !names.iter().any(|name| name == "new"), ..like() }]
            }
            Self::Mark(true, marks) => marks.iter().map(|mark| Packet { mark: *mark, ..like() }).collect(),
            Self::AnyOf(true, elements) => {
                let of = |element: &'a Vec<Self>| {
                    element.iter().fold(vec![like()], |packets, field| {
                        packets.iter().flat_map(|packet| field.fitting(packet)).collect()
                    })
                };
                elements.iter().flat_map(of).collect()
            }
            _ if self.holds(packet, Some(packet.mark)) == Truth::No => Vec::new(),
            _ => vec![like()],
        }
    }
}

/// The ICMPv6 types of neighbour discovery.
const NEIGHBOURS: [&str; 5] =
    ["nd-router-solicit", "nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert", "nd-redirect"];

/// Returns the protocol's name as [`Packet`] has it.
fn protocol_name(name: &str) -> &str {
    match name {
        "1" => "icmp",
        "6" => "tcp",
        "17" => "udp",
        "58" | "ipv6-icmp" => "icmpv6",
        name => name,
    }
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

/// The family, the table, and the name under which the chain is in `object`.
fn place<'a>(object: &'a Value, chain: &str) -> Option<(&'a str, &'a str, &'a str)> {
    Some((text(object, "family")?, text(object, "table")?, text(object, chain)?))
}

fn chain(object: &Value) -> Option<Chain> {
    let (family, table, name) = place(object, "name")?;
    let base = text(object, "hook").map(|hook| Base {
        hook: hook.to_owned(),
        priority: object.get("prio").and_then(Value::as_i64).unwrap_or(0),
        drops: text(object, "policy") == Some("drop"),
    });
    Some(Chain {
        program: None,
        family: family.into(),
        table: table.into(),
        name: name.into(),
        base,
        rules: Vec::new(),
    })
}

/// A rule as linerate reads it from the kernel or from iptables.
fn foreign_rule(rule: &ForeignRule) -> Rule {
    let mut conditions = Vec::new();
    conditions.extend(rule.incoming.iter().map(|it| Condition::Incoming(!it.inverted, vec![it.name.clone()])));
    conditions.extend(rule.outgoing.iter().map(|it| Condition::Outgoing(!it.inverted, vec![it.name.clone()])));
    conditions.extend(rule.source.map(|range| Condition::Source(true, subnets(&range))));
    conditions.extend(rule.destination.map(|range| Condition::Destination(true, subnets(&range))));
    conditions.extend(rule.protocol.map(|number| Condition::Protocol(true, vec![number.to_string()])));
    conditions.extend(rule.ports.map(|ports| Condition::Port(true, vec![ports])));
    conditions.extend(rule.states.map(|states| {
        let names = STATES.iter().filter(|(bit, _)| states & bit != 0);
        Condition::State(true, names.map(|(_, name)| (*name).to_owned()).collect())
    }));
    conditions.extend(rule.exceptions.iter().map(|exception| match exception {
        Exception::From(range) => Condition::Source(false, subnets(range)),
        Exception::To(range) => Condition::Destination(false, subnets(range)),
        Exception::Protocol(number) => Condition::Protocol(false, vec![number.to_string()]),
        Exception::Ports(first, last) => Condition::Port(false, vec![(*first, *last)]),
        Exception::Unread => Condition::Unknown,
    }));
    conditions.extend(rule.family.map(|family| {
        Condition::Family(true, vec![if family == AddressFamily::V6 { "ipv6" } else { "ipv4" }.to_owned()])
    }));
    let is_doubtful = rule.is_for_some || rule.has_others || rule.is_limited || rule.is_for_host.is_some();
    conditions.extend(is_doubtful.then_some(Condition::Unknown));
    let verdict = match &rule.verdict {
        ForeignVerdict::Continue => Verdict::Continue,
        ForeignVerdict::Accept => Verdict::Accept,
        ForeignVerdict::Drop => Verdict::Drop,
        ForeignVerdict::Return => Verdict::Return,
        ForeignVerdict::Jump(chain) => Verdict::Jump(chain.clone()),
        ForeignVerdict::Goto(chain) => Verdict::Goto(chain.clone()),
    };
    Rule { conditions, verdict, packets: None, is_masquerade: false, sets_segment_size: false, sets_mark: None }
}

/// `NF_CT_STATE_BIT` of what packets that are asked about can be.
const STATES: [(u32, &str); 2] = [(2, "established"), (8, "new")];

fn subnets(range: &AddressRange) -> Vec<IpNet> {
    match (range.first, range.last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => IpSubnets::from(Ipv4Subnets::new(first, last, 0)).collect(),
        (IpAddr::V6(first), IpAddr::V6(last)) => IpSubnets::from(Ipv6Subnets::new(first, last, 0)).collect(),
        _ => Vec::new(),
    }
}

/// The elements of sets and maps that have names, by family, table and name.
type Sets<'a> = HashMap<(&'a str, &'a str, &'a str), &'a [Value]>;

/// Those of a table, by name.
type Named<'a> = dyn Fn(&str) -> Option<&'a [Value]> + 'a;

/// The rule; one with a verdict map is a rule for each of the map's elements.
fn read_rule<'a>(object: &'a Value, named: &Named<'a>) -> Vec<Rule> {
    let mut cases = Vec::new();
    let mut rule = Rule {
        conditions: Vec::new(),
        verdict: Verdict::Continue,
        packets: None,
        is_masquerade: false,
        sets_segment_size: false,
        sets_mark: None,
    };
    for statement in object.get("expr").and_then(Value::as_array).into_iter().flatten() {
        let Some((name, value)) = statement.as_object().and_then(|object| object.iter().next()) else { continue };
        match name.as_str() {
            "match" => rule.conditions.extend(conditions(value, named)),
            "vmap" => match map(value, named) {
                Some(elements) => cases = elements,
                None => rule.verdict = Verdict::Unknown,
            },
            "counter" => rule.packets = value.get("packets").and_then(Value::as_u64),
            "accept" | "drop" | "reject" | "jump" | "goto" | "return" => rule.verdict = verdict(name, value),
            "masquerade" | "snat" => rule.is_masquerade = true,
            "dnat" | "redirect" => rule.verdict = Verdict::Accept,
            "mangle" => {
                if value.get("key").and_then(|key| text(key.get("meta")?, "key")) == Some("mark") {
                    let mark = value.get("value").and_then(Value::as_u64);
                    rule.sets_mark = Some(mark.and_then(|mark| mark.try_into().ok()));
                }
                let option = value.get("key").and_then(|key| key.get("tcp option"));
                rule.sets_segment_size |= option.and_then(|option| text(option, "name")) == Some("maxseg");
            }
            "xt" => match text(value, "name") {
                Some("REJECT" | "DROP") => rule.verdict = Verdict::Drop,
                Some("MASQUERADE" | "SNAT") => rule.is_masquerade = true,
                Some("TCPMSS") => rule.sets_segment_size = true,
                Some("MARK" | "CONNMARK") => rule.sets_mark = Some(None),
                Some("comment") => {}
                _ if text(value, "type") == Some("match") => rule.conditions.push(Condition::Match),
                _ => {}
            },
            "log" | "comment" | "notrack" | "flow" | "last" => {}
            // What is added to a set may have a limit of its own, and the set may be full.
            "limit" | "quota" | "set" => rule.conditions.push(Condition::Unknown),
            // It may also be a condition of what follows.
            _ => {
                rule.conditions.push(Condition::Unknown);
                rule.verdict = Verdict::Unknown;
            }
        }
    }
    if cases.is_empty() {
        return vec![rule];
    }
    let case = |(more, verdict): (Vec<Condition>, Verdict)| {
        let conditions = rule.conditions.iter().cloned().chain(more).collect();
        Rule { conditions, verdict, ..rule.clone() }
    };
    cases.into_iter().map(case).collect()
}

fn verdict(name: &str, value: &Value) -> Verdict {
    let target = || text(value, "target").unwrap_or_default().to_owned();
    match name {
        "accept" => Verdict::Accept,
        "drop" | "reject" => Verdict::Drop,
        "jump" => Verdict::Jump(target()),
        "goto" => Verdict::Goto(target()),
        "return" => Verdict::Return,
        "continue" => Verdict::Continue,
        _ => Verdict::Unknown,
    }
}

/// What a verdict map does, element by element. Which of them a packet is, excludes the others.
fn map<'a>(value: &'a Value, named: &Named<'a>) -> Option<Vec<(Vec<Condition>, Verdict)>> {
    let (key, data) = (value.get("key")?, value.get("data")?);
    let elements = match data.as_str() {
        Some(name) => named(name.strip_prefix('@')?)?,
        None => data.get("set")?.as_array()?,
    };
    let of = |element: &'a Value| Some(element_value(element.as_array()?.first()?)).filter(|of| !is_rest(of));
    let all: Vec<&Value> = elements.iter().filter_map(of).collect();
    let case = |element: &'a Value| {
        let [of, then] = element.as_array()?.as_slice() else { return None };
        let (name, value) = then.as_object()?.iter().next()?;
        let of = element_value(of);
        // What has come back from an element is not for the rest.
        let known = if is_rest(of) { condition(false, key, &all) } else { condition(true, key, &[of]) };
        let conditions = implied(key).into_iter().chain([known.unwrap_or(Condition::Unknown)]).collect();
        Some((conditions, verdict(name, value)))
    };
    // One without elements does nothing.
    let nothing = || vec![(Vec::new(), Verdict::Continue)];
    elements.iter().map(case).collect::<Option<Vec<_>>>().map(|cases| if cases.is_empty() { nothing() } else { cases })
}

/// Whether it stands for whatever is in no other element.
fn is_rest(element: &Value) -> bool {
    element.as_str() == Some("*")
}

/// An element without what belongs to it, such as its counter.
fn element_value(element: &Value) -> &Value {
    element.get("elem").and_then(|inner| inner.get("val")).unwrap_or(element)
}

fn conditions<'a>(value: &'a Value, named: &Named<'a>) -> Vec<Condition> {
    let compare = || {
        let expected = match text(value, "op")? {
            "==" | "in" => true,
            "!=" => false,
            _ => return None,
        };
        condition(expected, value.get("left")?, &items(value.get("right")?, named)?)
    };
    let known = compare().unwrap_or(Condition::Unknown);
    value.get("left").and_then(implied).into_iter().chain([known]).collect()
}

/// The condition that comes with looking at a header, which packets of other protocols do not have.
fn implied(left: &Value) -> Option<Condition> {
    if let Some(parts) = left.get("concat").and_then(Value::as_array) {
        return parts.iter().find_map(implied);
    }
    let of_bits = || left.get("&")?.as_array()?.first()?.get("payload");
    match text(left.get("payload").or_else(of_bits)?, "protocol")? {
        "ip" => Some(Condition::Family(true, vec!["ipv4".into()])),
        "ip6" => Some(Condition::Family(true, vec!["ipv6".into()])),
        protocol @ ("udp" | "tcp" | "icmp" | "icmpv6" | "sctp" | "dccp" | "udplite" | "esp" | "ah") => {
            Some(Condition::Protocol(true, vec![protocol.into()]))
        }
        _ => None,
    }
}

fn condition(expected: bool, left: &Value, right: &[&Value]) -> Option<Condition> {
    let texts = || -> Option<Vec<String>> {
        let text = |item: &Value| item.as_str().map(str::to_owned).or_else(|| Some(item.as_u64()?.to_string()));
        right.iter().map(|item| text(item)).collect()
    };
    if let Some(key) = left.get("meta").and_then(|meta| text(meta, "key")) {
        return Some(match key {
            "iifname" | "iif" => Condition::Incoming(expected, texts()?),
            "oifname" | "oif" => Condition::Outgoing(expected, texts()?),
            "l4proto" => Condition::Protocol(expected, texts()?),
            "nfproto" => Condition::Family(expected, texts()?),
            "mark" => {
                let number = |item: &&Value| u32::try_from(item.as_u64()?).ok();
                Condition::Mark(expected, right.iter().map(number).collect::<Option<_>>()?)
            }
            _ => return None,
        });
    }
    match left.get("ct").and_then(|ct| text(ct, "key")) {
        Some("state") => return Some(Condition::State(expected, texts()?)),
        Some("status") => {
            let is_translation = |name: &String| name == "dnat" || name == "snat";
            return texts()?.iter().all(is_translation).then_some(Condition::Translated(expected));
        }
        _ => {}
    }
    if let Some(parts) = left.get("concat").and_then(Value::as_array) {
        let element = |item: &&Value| {
            let fields = item.get("concat")?.as_array()?;
            let field = |(part, value): (&Value, &Value)| condition(true, part, &[value]);
            (fields.len() == parts.len()).then(|| parts.iter().zip(fields).map(field).collect::<Option<Vec<_>>>())?
        };
        return Some(Condition::AnyOf(expected, right.iter().map(element).collect::<Option<_>>()?));
    }
    if let Some(fib) = left.get("fib") {
        let flags = fib.get("flags").and_then(Value::as_array)?;
        let has = |name: &str| flags.iter().any(|flag| flag == name);
        let is_oif = matches!(text(fib, "result"), Some("oif" | "oifname"));
        return match right {
            _ if !is_oif || !has("saddr") => None,
            [Value::Bool(is_there)] if has("iif") => Some(Condition::Backwards(expected != *is_there)),
            [Value::Bool(_)] => None,
            _ if has("iif") => None,
            _ => Some(Condition::SourceRoute(expected, texts()?)),
        };
    }
    let payload = left.get("payload")?;
    match (text(payload, "protocol")?, text(payload, "field")?) {
        ("udp" | "tcp" | "th", "dport") => Some(Condition::Port(expected, ports(right)?)),
        ("udp" | "tcp" | "th", "sport") => Some(Condition::SourcePort(expected, ports(right)?)),
        ("icmp" | "icmpv6", "type") => Some(Condition::Echo(expected, texts()?)),
        ("ip" | "ip6", "saddr") => Some(Condition::Source(expected, nets(right)?)),
        ("ip" | "ip6", "daddr") => Some(Condition::Destination(expected, nets(right)?)),
        ("ip", "protocol") | ("ip6", "nexthdr") => Some(Condition::Protocol(expected, texts()?)),
        _ => None,
    }
}

/// The values of a set, a list, or a single one; none for a set that is not known.
fn items<'a>(right: &'a Value, named: &Named<'a>) -> Option<Vec<&'a Value>> {
    let all = |items: &'a [Value]| items.iter().map(element_value).collect();
    match right {
        Value::String(name) if name.starts_with('@') => named(&name[1..]).map(all),
        Value::Array(items) => Some(all(items)),
        Value::Object(object) => match object.get("set") {
            Some(Value::Array(items)) => Some(all(items)),
            Some(_) => None,
            None => Some(vec![right]),
        },
        _ => Some(vec![right]),
    }
}

fn ports(items: &[&Value]) -> Option<Vec<(u16, u16)>> {
    let port = |value: &Value| u16::try_from(value.as_u64()?).ok();
    let range = |item: &&Value| match item.get("range").and_then(Value::as_array) {
        Some(ends) => Some((port(ends.first()?)?, port(ends.get(1)?)?)),
        None => port(item).map(|port| (port, port)),
    };
    items.iter().map(range).collect()
}

fn nets(items: &[&Value]) -> Option<Vec<IpNet>> {
    let address = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
    let mut nets = Vec::new();
    for item in items {
        if let Some(prefix) = item.get("prefix") {
            let length = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
            nets.push(IpNet::new(text(prefix, "addr")?.parse().ok()?, length).ok()?);
        } else if let Some(ends) = item.get("range").and_then(Value::as_array) {
            let (first, last) = (address(ends.first()?)?, address(ends.get(1)?)?);
            nets.extend(subnets(&AddressRange { first, last }));
        } else {
            nets.push(address(item)?.into());
        }
    }
    Some(nets)
}

/// A datagram to a port.
#[must_use]
pub fn to_port<'a>(hook: &'a str, port: u16, is_known: bool, is_v6: bool) -> Packet<'a> {
    Packet { hook, protocol: "udp", port: Some(port), is_known, is_v6, ..Packet::default() }
}

#[cfg(test)]
mod tests {
    use linerate_host::state::FirewallTool;
    use proptest::prelude::*;

    use super::*;

    /// A chain `c` at a hook, with rules.
    fn ruleset(hook: &str, policy: &str, rules: &[&str]) -> Ruleset {
        let rules = rules.iter().map(|rule| {
            format!(r#",{{"rule":{{"family":"inet","table":"t","chain":"c","handle":1,"expr":[{rule}]}}}}"#)
        });
        let json = format!(
            r#"{{"nftables":[{{"metainfo":{{}}}},{{"table":{{"family":"inet","name":"t","handle":1}}}},
            {{"chain":{{"family":"inet","table":"t","name":"c","handle":1,"type":"filter","hook":"{hook}","prio":0,
            "policy":"{policy}"}}}}{}]}}"#,
            rules.collect::<String>()
        );
        Ruleset::parse(&json).unwrap()
    }

    const TO_PORT: &str =
        r#"{"match":{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":51820}}"#;
    const KNOWN: &str = r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["established","related"]}}"#;
    const SET: &str = r#"{"match":{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":"@ports"}}"#;
    const ACCEPT: &str = r#"{"accept":null}"#;
    const DROP: &str = r#"{"counter":{"packets":7,"bytes":1}},{"drop":null}"#;

    fn rule(parts: &[&str]) -> String {
        parts.join(",")
    }

    #[test]
    fn a_rule_that_drops_is_found_with_its_counter() {
        let drop = ruleset("input", "accept", &[&rule(&[TO_PORT, DROP])]).drops(&to_port("input", 51820, false, false));
        let expected =
            Drop { program: None, table: "inet t".into(), chain: "c".into(), packets: Some(7), by_policy: false };
        assert_eq!(drop, Some(expected));
        let other = ruleset("input", "accept", &[&rule(&[TO_PORT, DROP])]);
        assert_eq!(other.drops(&to_port("input", 51821, false, false)), None);
        assert_eq!(other.drops(&to_port("output", 51820, false, false)), None);
    }

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
    fn rules_of_the_older_iptables_drop_and_their_program_is_named() {
        let rule =
            |verdict| ForeignRule { protocol: Some(17), ports: Some((51820, 51820)), verdict, ..Default::default() };
        let drops = |policy, rules: Vec<ForeignRule>, packet: &Packet<'_>| {
            let mut all = ruleset("input", "accept", &[]);
            all.add_foreign(&[legacy(ForeignHook::Input, "INPUT", policy, rules)]);
            all.drops(packet)
        };
        let packet = to_port("input", 51820, false, false);
        let drop = drops(false, vec![rule(ForeignVerdict::Drop)], &packet).unwrap();
        assert_eq!(drop.place(), "a rule of table ip filter of iptables-legacy, chain INPUT drops them");
        assert_eq!(drop.show(), "iptables-legacy -nvL INPUT");
        assert!(drops(true, vec![], &packet).unwrap().by_policy);
        let known = ForeignRule { states: Some(6), verdict: ForeignVerdict::Accept, ..ForeignRule::default() };
        assert!(drops(true, vec![known.clone()], &packet).is_some());
        let ours = IpAddr::from([10, 1, 2, 3]);
        let is = |exception| ForeignRule { exceptions: vec![exception], ..rule(ForeignVerdict::Drop) };
        let range = AddressRange { first: [10, 0, 0, 0].into(), last: [10, 255, 255, 255].into() };
        let from = Packet { source: Some(ours), ..packet.clone() };
        for passes in [
            drops(true, vec![rule(ForeignVerdict::Accept)], &packet),
            drops(true, vec![known], &Packet { is_known: true, ..packet.clone() }),
            drops(false, vec![rule(ForeignVerdict::Drop)], &to_port("input", 51821, false, false)),
            drops(true, vec![], &to_port("input", 51820, false, true)),
            drops(true, vec![], &to_port("output", 51820, false, false)),
            drops(false, vec![ForeignRule { has_others: true, ..rule(ForeignVerdict::Drop) }], &packet),
            drops(false, vec![rule(ForeignVerdict::Jump("nowhere".into())), rule(ForeignVerdict::Drop)], &packet),
            drops(false, vec![is(Exception::From(range))], &from),
            drops(false, vec![is(Exception::Protocol(17))], &packet),
            drops(false, vec![is(Exception::Ports(1, 65535))], &packet),
            drops(false, vec![is(Exception::Unread)], &packet),
        ] {
            assert_eq!(passes, None);
        }
        let elsewhere = Packet { source: Some([11, 0, 0, 1].into()), ..packet };
        assert!(drops(false, vec![is(Exception::From(range))], &elsewhere).is_some());
    }

    #[test]
    fn both_kinds_of_iptables_may_have_chains_of_the_same_name() {
        let json = r#"{"nftables":[{"chain":{"family":"ip","table":"filter","name":"INPUT","type":"filter",
            "hook":"input","prio":0,"policy":"accept"}},{"chain":{"family":"ip","table":"filter","name":"ufw-x"}}]}"#;
        let mut all = Ruleset::parse(json).unwrap();
        let drop = ForeignRule { verdict: ForeignVerdict::Drop, ..ForeignRule::default() };
        let jump = ForeignRule { verdict: ForeignVerdict::Jump("ufw-x".into()), ..ForeignRule::default() };
        let mut input = legacy(ForeignHook::Input, "INPUT", false, vec![jump]);
        input.rules.insert("ufw-x".into(), vec![drop]);
        input.rules.insert("OUTPUT".into(), Vec::new());
        let output = ForeignChain { chain: "OUTPUT".into(), hook: ForeignHook::Output, drops: true, ..input.clone() };
        all.add_foreign(&[input, output]);
        let there = all.drops(&to_port("input", 1, false, false)).unwrap();
        assert_eq!(there.chain, "ufw-x");
        let sent = all.drops(&to_port("output", 1, false, false)).unwrap();
        assert!(sent.by_policy && sent.program.as_deref() == Some("iptables-legacy"));
    }

    #[test]
    fn a_policy_drops_what_no_rule_accepts() {
        let packet = to_port("input", 51820, false, true);
        assert!(ruleset("input", "drop", &[]).drops(&packet).unwrap().by_policy);
        assert!(ruleset("input", "drop", &[&rule(&[KNOWN, ACCEPT])]).drops(&packet).is_some());
        let known = Packet { is_known: true, ..packet.clone() };
        assert!(ruleset("input", "drop", &[&rule(&[KNOWN, ACCEPT])]).drops(&known).is_none());
        assert!(ruleset("input", "drop", &[&rule(&[TO_PORT, ACCEPT])]).drops(&packet).is_none());
    }

    #[test]
    fn nothing_is_said_where_a_condition_is_not_understood() {
        let packet = to_port("input", 51820, false, false);
        assert_eq!(ruleset("input", "drop", &[&rule(&[SET, ACCEPT])]).drops(&packet), None);
        assert_eq!(ruleset("input", "accept", &[&rule(&[SET, DROP])]).drops(&packet), None);
        let unknown = r#"{"vmap":{"key":{"meta":{"key":"iifname"}},"data":"@x"}}"#;
        assert_eq!(ruleset("input", "drop", &[unknown]).drops(&packet), None);
        assert_eq!(ruleset("input", "drop", &[r#"{"jump":{"target":"nowhere"}}"#]).drops(&packet), None);
    }

    #[test]
    fn a_statement_that_may_end_a_rule_is_a_condition_of_what_follows() {
        let packet = to_port("input", 51820, false, false);
        let flood = r#"{"set":{"op":"add","elem":{"payload":{"protocol":"ip","field":"saddr"}},"set":"@flood",
            "stmt":[{"limit":{"rate":100,"per":"second","inv":true}}]}}"#;
        let count = r#"{"ct count":{"val":20,"inv":true}}"#;
        for unknown in [flood, count] {
            assert_eq!(ruleset("input", "accept", &[&rule(&[unknown, DROP])]).drops(&packet), None);
            assert_eq!(ruleset("input", "drop", &[&rule(&[unknown, ACCEPT])]).drops(&packet), None);
        }
        assert!(ruleset("input", "accept", &[&rule(&[flood, DROP]), DROP]).drops(&packet).is_some());
        assert_eq!(ruleset("input", "drop", &[r#"{"queue":null}"#]).drops(&packet), None);
    }

    #[test]
    fn the_rest_of_a_map_is_what_is_in_none_of_its_elements() {
        let map = |key: &str, elements: &str, rest: &str| {
            let vmap = format!(r#"{{"vmap":{{"key":{key},"data":{{"set":[{elements},["*",{{"{rest}":null}}]]}}}}}}"#);
            let back = r#"{"chain":{"family":"inet","table":"t","name":"back"}}"#;
            Ruleset::parse(&format!(
                r#"{{"nftables":[{{"chain":{{"family":"inet","table":"t","name":"c","type":"filter","hook":"input","prio":0,
                "policy":"accept"}}}},{back},{{"rule":{{"family":"inet","table":"t","chain":"c","expr":[{vmap}]}}}}]}}"#
            ))
            .unwrap()
        };
        let drops = |key: &str, elements: &str, packet: &Packet<'_>| map(key, elements, "drop").drops(packet).is_some();
        let packet = to_port("input", 51820, false, false);
        let known = Packet { is_known: true, ..packet.clone() };
        let states = r#"["established",{"accept":null}],["related",{"accept":null}]"#;
        let state = r#"{"ct":{"key":"state"}}"#;
        assert!(drops(state, states, &packet) && !drops(state, states, &known));
        let name = r#"{"meta":{"key":"iifname"}}"#;
        let back = r#"["eth0",{"jump":{"target":"back"}}]"#;
        let [ours, other, any] = ["eth0", "eth1", ANY_INTERFACE].map(|incoming| Packet { incoming, ..packet.clone() });
        assert!(!drops(name, back, &ours) && drops(name, back, &other) && !drops(name, back, &any));
        assert!(!drops(r#"{"meta":{"key":"cpu"}}"#, r#"[1,{"accept":null}]"#, &packet));
    }

    const VMAP: &str = r#"{"vmap":{"key":{"ct":{"key":"state"}},"data":{"set":[["invalid",{"drop":null}],
        ["established",{"accept":null}],["related",{"accept":null}]]}}}"#;
    const ECHO: &str =
        r#"{"match":{"op":"==","left":{"payload":{"protocol":"icmp","field":"type"}},"right":"echo-request"}}"#;

    #[test]
    fn a_policy_drops_beside_the_usual_rules_for_states_and_echo_requests() {
        let usual = ruleset("input", "drop", &[VMAP, &rule(&[ECHO, ACCEPT])]);
        let packet = to_port("input", 51820, false, false);
        assert!(usual.drops(&packet).is_some_and(|drop| drop.by_policy));
        assert_eq!(usual.drops(&Packet { is_known: true, ..packet.clone() }), None);
        assert_eq!(usual.drops(&Packet { protocol: "icmp", port: None, ..packet.clone() }), None);
        assert!(usual.drops(&Packet { protocol: "icmpv6", port: None, is_v6: true, ..packet }).is_some());
    }

    #[test]
    fn sets_and_maps_with_names_are_looked_up() {
        let named = |kind: &str, elements: &str, expression: &str| {
            Ruleset::parse(&format!(
                r#"{{"nftables":[{{"{kind}":{{"family":"inet","table":"t","name":"s","elem":[{elements}]}}}},
                {{"chain":{{"family":"inet","table":"t","name":"c","type":"filter","hook":"input","prio":0,
                "policy":"drop"}}}},
                {{"rule":{{"family":"inet","table":"t","chain":"c","expr":[{expression}]}}}}]}}"#
            ))
            .unwrap()
        };
        let ports = SET.replace("@ports", "@s");
        let [ours, other] = [51820, 53].map(|port| to_port("input", port, false, false));
        let counted = r#"22,{"elem":{"val":51820,"counter":{"packets":1,"bytes":1}}},{"range":[100,200]}"#;
        let set = named("set", counted, &rule(&[&ports, ACCEPT]));
        assert!(set.drops(&ours).is_none() && set.drops(&other).is_some());
        let vmap = r#"{"vmap":{"key":{"payload":{"protocol":"udp","field":"dport"}},"data":"@s"}}"#;
        let map = named("map", r#"[53,{"drop":null}],[51820,{"accept":null}]"#, vmap);
        assert!(map.drops(&ours).is_none() && map.drops(&other).is_some_and(|drop| !drop.by_policy));
        assert!(named("map", "", vmap).drops(&ours).is_some_and(|drop| drop.by_policy));
        let concatenated = named("map", r#"[{"concat":["a",53]},{"accept":null}]"#, &vmap.replace("dport", "other"));
        assert_eq!(concatenated.drops(&other), None);
    }

    #[test]
    fn what_may_be_dropped_is_not_said_to_pass() {
        let packet = to_port("input", 51820, false, false);
        let fate = |policy, rules: &[&str]| ruleset("input", policy, rules).fate(&packet);
        assert_eq!(fate("accept", &[]), Fate::Passes);
        assert_eq!(fate("accept", &[&rule(&[TO_PORT, ACCEPT]), DROP]), Fate::Passes);
        assert!(matches!(fate("accept", &[&rule(&[SET, DROP])]), Fate::MayPass(_)));
        assert!(matches!(fate("drop", &[&rule(&[SET, ACCEPT])]), Fate::MayPass(drop) if drop.by_policy));
        assert!(matches!(fate("drop", &[r#"{"queue":null}"#]), Fate::MayPass(_)));
        assert!(matches!(fate("drop", &[&rule(&[SET, DROP])]), Fate::Dropped(drop) if drop.by_policy));
        let returns = r#"{"return":null}"#;
        assert!(matches!(fate("drop", &[&rule(&[SET, returns]), ACCEPT]), Fate::MayPass(_)));
        assert!(matches!(fate("drop", &[returns, ACCEPT]), Fate::Dropped(_)));
    }

    #[test]
    fn pairs_of_addresses_and_ranges_are_compared() {
        let side = |field: &str| format!(r#"{{"payload":{{"protocol":"ip","field":"{field}"}}}}"#);
        let pair = |op: &str| {
            format!(
                r#"{{"match":{{"op":"{op}","left":{{"concat":[{},{}]}},"right":{{"set":[
                {{"concat":["10.9.0.2",{{"range":["192.0.2.1","192.0.2.9"]}}]}}]}}}}}}"#,
                side("saddr"),
                side("daddr")
            )
        };
        let others = ruleset("forward", "accept", &[&rule(&[&pair("!="), DROP])]);
        let to = |last| Packet {
            hook: "forward",
            protocol: "tcp",
            source: Some([10, 9, 0, 2].into()),
            destination: Some([192, 0, 2, last].into()),
            ..Packet::default()
        };
        assert_eq!(others.drops(&to(9)), None);
        assert!(others.drops(&to(10)).is_some());
        assert_eq!(others.drops(&Packet { source: None, ..to(9) }), None);
        let v6 = Packet { source: Some("fd09::2".parse().unwrap()), destination: None, is_v6: true, ..to(9) };
        assert_eq!(others.fate(&v6), Fate::Passes);
        let them = ruleset("forward", "drop", &[&rule(&[&pair("=="), ACCEPT])]);
        let base = Packet { hook: "forward", protocol: "tcp", ..Packet::default() };
        let accepted = them.accepted_by("inet t", &base);
        assert!(!accepted.is_empty() && accepted.iter().all(|packet| them.fate(packet) == Fate::Passes));
    }

    #[test]
    fn the_route_to_a_packets_source_is_compared() {
        let fib = |flags: &str, right: &str| {
            let left = format!(r#"{{"fib":{{"result":"oif","flags":[{flags}]}}}}"#);
            rule(&[&format!(r#"{{"match":{{"op":"==","left":{left},"right":{right}}}}}"#), DROP])
        };
        let missing = fib(r#""saddr","mark","iif""#, "false");
        let of_tunnel = fib(r#""saddr""#, "\"wg0\"");
        let packet = |route| Packet { incoming: "eth0", source_route: route, ..to_port("input", 1, false, false) };
        for rule in [missing, of_tunnel] {
            let fate = |route| ruleset("input", "accept", &[&rule]).fate(&packet(route));
            assert!(matches!(fate(Some("wg0")), Fate::Dropped(_)));
            assert_eq!(fate(Some("eth0")), Fate::Passes);
            assert!(matches!(fate(None), Fate::MayPass(_)));
        }
    }

    #[test]
    fn a_mark_that_a_rule_sets_is_that_of_the_packet_from_there_on() {
        let mark = |op: &str| rule(&[r#"{"match":{"op":"==","left":{"meta":{"key":"mark"}},"right":7}}"#, op]);
        let set = |value: &str| format!(r#"{{"mangle":{{"key":{{"meta":{{"key":"mark"}}}},"value":{value}}}}}"#);
        let packet = to_port("input", 51820, false, false);
        let fate = |rules: &[&str]| ruleset("input", "drop", rules).fate(&packet);
        assert_eq!(fate(&[&set("7"), &mark(ACCEPT)]), Fate::Passes);
        assert!(matches!(fate(&[&mark(ACCEPT), &set("7")]), Fate::Dropped(_)));
        assert!(matches!(fate(&[&set(r#"{"ct":{"key":"mark"}}"#), &mark(ACCEPT)]), Fate::MayPass(_)));
        assert!(matches!(fate(&[&rule(&[SET, &set("7")]), &mark(ACCEPT)]), Fate::MayPass(_)));
        assert!(matches!(fate(&[&set("8"), &mark(ACCEPT)]), Fate::Dropped(_)));
    }

    #[test]
    fn packets_are_made_that_rules_accept() {
        let to = r#"{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"daddr"}},"right":{"prefix":{"addr":"203.0.113.0","len":24}}}}"#;
        let nd = r#"{"match":{"op":"==","left":{"payload":{"protocol":"icmpv6","field":"type"}},"right":"nd-neighbor-solicit"}}"#;
        let all = ruleset("output", "drop", &[&rule(&[to, TO_PORT, ACCEPT]), &rule(&[nd, ACCEPT]), &rule(&[to, DROP])]);
        let base = Packet { hook: "output", protocol: "tcp", ..Packet::default() };
        let found = all.accepted_by("inet t", &base);
        let destination = Some([203, 0, 113, 0].into());
        assert_eq!(found, [Packet { protocol: "udp", port: Some(51820), destination, ..base.clone() }]);
        assert_eq!(all.accepted_by("inet t", &Packet { is_v6: true, ..base.clone() }), []);
        assert_eq!(all.accepted_by("inet other", &base), []);
    }

    #[test]
    fn a_rule_about_a_header_does_not_concern_packets_without_it() {
        let differs = |protocol: &str, field: &str, value: &str| {
            let left = format!(r#"{{"payload":{{"protocol":"{protocol}","field":"{field}"}}}}"#);
            let differs = format!(r#"{{"match":{{"op":"!=","left":{left},"right":{value}}}}}"#);
            ruleset("input", "accept", &[&rule(&[&differs, DROP])])
        };
        let echo = Packet { protocol: "icmp", port: None, ..to_port("input", 1, true, false) };
        assert_eq!(differs("udp", "dport", "53").drops(&echo), None);
        assert!(differs("udp", "dport", "53").drops(&to_port("input", 1, false, false)).is_some());
        assert_eq!(differs("ip", "saddr", "\"10.0.0.1\"").drops(&to_port("input", 1, false, true)), None);
    }

    #[test]
    fn where_the_interface_or_the_mark_is_not_known_nothing_is_said() {
        let accept = |left: &str, right: &str| {
            rule(&[
                &format!(r#"{{"match":{{"op":"==","left":{{"meta":{{"key":"{left}"}}}},"right":{right}}}}}"#),
                ACCEPT,
            ])
        };
        let packet = Packet { incoming: ANY_INTERFACE, ..to_port("input", 51820, false, false) };
        let on_lan = ruleset("input", "drop", &[&accept("iifname", "\"eth0\"")]);
        assert_eq!(on_lan.drops(&packet), None);
        assert_eq!(on_lan.drops(&Packet { incoming: "eth0", ..packet.clone() }), None);
        assert!(on_lan.drops(&Packet { incoming: "eth1", ..packet.clone() }).is_some());
        assert!(ruleset("input", "drop", &[&accept("iifname", "\"lo\"")]).drops(&packet).is_some());
        let mark = r#"{"mangle":{"key":{"meta":{"key":"mark"}},"value":1}}"#;
        assert!(ruleset("input", "drop", &[&accept("mark", "1")]).drops(&packet).is_some());
        assert_eq!(ruleset("input", "drop", &[mark, &accept("mark", "1")]).drops(&packet), None);
    }

    #[test]
    fn matches_of_iptables_are_taken_from_who_can_read_them() {
        let json = r#"{"nftables":[{"chain":{"family":"ip","table":"filter","name":"INPUT","type":"filter",
            "hook":"input","prio":0,"policy":"drop"}},{"rule":{"family":"ip","table":"filter","chain":"INPUT",
            "expr":[{"xt":{"type":"match","name":"conntrack"}},{"accept":null}]}}]}"#;
        let mut all = Ruleset::parse(json).unwrap();
        let packet = to_port("input", 51820, false, false);
        assert!(matches!(all.fate(&packet), Fate::MayPass(_)));
        let known = ForeignRule { states: Some(6), verdict: ForeignVerdict::Accept, ..ForeignRule::default() };
        let input = legacy(ForeignHook::Input, "INPUT", true, vec![known]);
        all.add_foreign(&[ForeignChain { is_legacy: false, ..input }]);
        assert!(all.drops(&packet).is_some_and(|drop| drop.by_policy && drop.program.is_none()));
        assert_eq!(all.fate(&Packet { is_known: true, ..packet }), Fate::Passes);
    }

    #[test]
    fn nat_and_segment_sizes_are_found() {
        let (v4_net, v6_net) = ("10.9.0.0/24".parse().unwrap(), "fd09::/64".parse().unwrap());
        let nat = ruleset("postrouting", "accept", &[r#"{"masquerade":null}"#]);
        assert!(nat.translates(&v4_net) && nat.translates(&v6_net) && !nat.limits_segments());
        let v4 = r#"{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":{"prefix":{"addr":"10.0.0.0","len":8}}}},{"masquerade":null}"#;
        let nat = ruleset("postrouting", "accept", &[v4]);
        assert!(
            nat.translates(&v4_net) && !nat.translates(&v6_net) && !nat.translates(&"192.0.2.0/24".parse().unwrap())
        );
        let size = r#"{"mangle":{"key":{"tcp option":{"name":"maxseg","field":"size"}},"value":{"rt":{"key":"mtu"}}}}"#;
        assert!(ruleset("forward", "accept", &[size]).limits_segments());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", expression in r#"[\[\]{}":a-z0-9,@]{0,80}"#) {
            let _ = Ruleset::parse(&text);
            let rule = format!(r#"{{"nftables":[{{"chain":{{"family":"ip","table":"t","name":"c","hook":"input"}}}},
                {{"rule":{{"family":"ip","table":"t","chain":"c","expr":[{{"match":{expression}}}]}}}}]}}"#);
            if let Some(ruleset) = Ruleset::parse(&rule) {
                let _ = ruleset.drops(&to_port("input", 1, false, false));
            }
        }

        /// Rules before it can only save a packet, never have it dropped without saying so.
        #[test]
        fn a_packet_that_a_first_rule_accepts_is_never_said_to_be_dropped(known: bool, rules in prop::collection::vec(0usize..4, 0..5)) {
            let all = [rule(&[TO_PORT, DROP]), rule(&[KNOWN, DROP]), rule(&[SET, DROP]), DROP.to_owned()];
            let mut texts = vec![ACCEPT];
            texts.extend(rules.iter().map(|index| all[*index].as_str()));
            prop_assert_eq!(ruleset("input", "drop", &texts).drops(&to_port("input", 51820, known, false)), None);
        }
    }
}
