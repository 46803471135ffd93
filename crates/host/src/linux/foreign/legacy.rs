//! iptables: which of its programs keeps which tables, and the rules of the older kind, which no netlink shows.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ipnet::IpNet;

use super::KNOWN;
use super::rule::unread;
use crate::plan::opening::id;
use crate::program::{self, WaitLimit};
use crate::spec::AddressRange;
use crate::state::{
    Exception, FirewallTool, Foreign, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict, NamePattern,
};

/// The iptables of one version of IP that keeps rules in nf_tables, if it is installed.
pub(super) fn of_nftables(family: &str) -> Option<String> {
    named(program_of(family), "nf_tables", "-nft")
}

fn program_of(family: &str) -> &'static str {
    if family == "ip6" { "ip6tables" } else { "iptables" }
}

/// `program`, or the variant that has a name of its own.
fn named(program: &str, kind: &str, suffix: &str) -> Option<String> {
    if output(&[program, "-V"]).is_some_and(|version| version.contains(kind)) {
        return Some(program.to_owned());
    }
    let variant = format!("{program}{suffix}");
    program::find(&variant).map(|_| variant)
}

/// Reads the tables `filter` that the kernel has of the older kind. Asking for them would create them.
pub(super) fn read(foreign: &mut Foreign) {
    for family in ["ip", "ip6"] {
        let names = fs::read_to_string(format!("/proc/net/{family}_tables_names")).unwrap_or_default();
        if !names.lines().any(|name| name == "filter") {
            continue;
        }
        let program = format!("{}-legacy", program_of(family));
        let program = if program::find(&program).is_some() { program } else { program_of(family).to_owned() };
        if let Some(text) = output(&[&program, "-w", "-S"]) {
            take(foreign, family, &program, &text);
        }
    }
}

fn output(command: &[&str]) -> Option<String> {
    let program = program::find(command[0])?;
    let nothing = fs::File::open("/dev/null").ok()?;
    program::output(&program, &command[1..], nothing, &WaitLimit { limit: LONGEST, stop: None }).ok()
}

/// How long reading rules may take.
const LONGEST: Duration = Duration::from_secs(10);

/// Takes the rules as `iptables -S` prints them.
fn take(foreign: &mut Foreign, family: &str, program: &str, text: &str) {
    let mut rules: BTreeMap<String, Vec<ForeignRule>> = BTreeMap::new();
    let mut dropping: Vec<String> = Vec::new();
    for line in text.lines() {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["-P", chain, policy] => {
                dropping.extend((policy == "DROP").then(|| chain.to_owned()));
                rules.entry(chain.to_owned()).or_default();
            }
            ["-N", chain] => drop(rules.entry(chain.to_owned()).or_default()),
            ["-A", chain, ref rest @ ..] => {
                let (rule, comment) = read_rule(rest);
                if let Some(mark) = comment.filter(|comment| comment.starts_with("linerate ")) {
                    foreign.openings.insert(id(&format!("legacy {family} filter {chain}"), &mark));
                }
                rules.entry(chain.to_owned()).or_default().push(rule);
            }
            _ => {}
        }
    }
    let has = |chain: &str| rules.contains_key(chain);
    let hooks = [("FORWARD", ForeignHook::Forward), ("INPUT", ForeignHook::Input), ("OUTPUT", ForeignHook::Output)];
    for (chain, hook) in hooks {
        let tool = if has("ufw-user-forward") || has("ufw6-user-forward") {
            FirewallTool::Ufw
        } else if has("DOCKER-USER") && hook == ForeignHook::Forward {
            FirewallTool::Docker
        } else {
            FirewallTool::Other
        };
        foreign.chains.push(ForeignChain {
            table: format!("{family} filter"),
            chain: chain.to_owned(),
            hook,
            tool,
            iptables: Some(program.to_owned()),
            drops: dropping.iter().any(|name| name == chain),
            rules: rules.clone(),
        });
    }
}

/// A rule after its chain, and its comment.
fn read_rule(words: &[&str]) -> (ForeignRule, Option<String>) {
    let mut rule = ForeignRule::default();
    let mut comment = None;
    let mut inverted = false;
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        if word == "!" {
            inverted = true;
            continue;
        }
        let is_not = std::mem::take(&mut inverted);
        let mut value = || words.next().unwrap_or_default();
        let name = |name: &str| NamePattern { name: name.replace('+', "*"), inverted: is_not };
        match word {
            "-i" => rule.incoming.push(name(value())),
            "-o" => rule.outgoing.push(name(value())),
            "-s" | "-d" => match addresses(value()) {
                Some(range) if !is_not => {
                    *(if word == "-s" { &mut rule.source } else { &mut rule.destination }) = Some(range);
                }
                Some(range) if word == "-s" => rule.exceptions.push(Exception::From(range)),
                Some(range) => rule.exceptions.push(Exception::To(range)),
                None => unread(&mut rule, is_not),
            },
            "-p" => match protocol(value()) {
                Some(protocol) if is_not => rule.exceptions.push(Exception::Protocol(protocol)),
                Some(protocol) => rule.protocol = Some(protocol),
                None => unread(&mut rule, is_not),
            },
            "--dport" => match range(value()) {
                Some((first, last)) if is_not => rule.exceptions.push(Exception::Ports(first, last)),
                Some(ports) => rule.ports = Some(ports),
                None => unread(&mut rule, is_not),
            },
            "-m" => {
                let name = value();
                rule.is_for_some |= name == "limit";
                rule.has_others |= !["comment", "conntrack", "limit", "state", "udp", "tcp"].contains(&name);
            }
            "--limit" | "--limit-burst" => {
                value();
            }
            "--comment" => comment = Some(value().to_owned()),
            "--ctstate" | "--state" => match states(value()) {
                Some(states) => rule.states = Some(if is_not { !states } else { states }),
                None => rule.has_others = true,
            },
            "-j" => {
                rule.verdict = match value() {
                    "ACCEPT" => ForeignVerdict::Accept,
                    "DROP" | "REJECT" => ForeignVerdict::Drop,
                    "RETURN" => ForeignVerdict::Return,
                    target if CONTINUING.contains(&target) => ForeignVerdict::Continue,
                    chain => ForeignVerdict::Jump(chain.to_owned()),
                };
                // What follows belongs to the target.
                break;
            }
            "-g" => {
                rule.verdict = ForeignVerdict::Goto(value().to_owned());
                break;
            }
            _ => rule.has_others = true,
        }
    }
    (rule, comment)
}

/// Targets after which the rules go on.
const CONTINUING: [&str; 6] = ["LOG", "NFLOG", "MARK", "CONNMARK", "TCPMSS", "SET"];

fn states(list: &str) -> Option<u32> {
    let bit = |state: &str| match state {
        "INVALID" => Some(1),
        "ESTABLISHED" => Some(KNOWN & 2),
        "RELATED" => Some(KNOWN & 4),
        "NEW" => Some(8),
        "UNTRACKED" => Some(64),
        _ => None,
    };
    list.split(',').map(bit).try_fold(0, |all, bit| Some(all | bit?))
}

/// The number of a protocol, which `iptables -S` prints by name or not.
fn protocol(name: &str) -> Option<u8> {
    match name {
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        "ipv6-icmp" => Some(58),
        number => number.parse().ok(),
    }
}

fn addresses(net: &str) -> Option<AddressRange> {
    let net: IpNet = net.parse().ok()?;
    Some(AddressRange { first: net.network(), last: net.broadcast() })
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The words of a line, some of them in double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut is_quoted, mut is_escaped) = (false, false);
    for character in line.chars() {
        match character {
            _ if std::mem::take(&mut is_escaped) => word.push(character),
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            character => word.push(character),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "\
-P INPUT ACCEPT
-P FORWARD DROP
-P OUTPUT DROP
-N DOCKER-USER
-A FORWARD -j DOCKER-USER
-A FORWARD -i eth0 ! -o wg+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -p udp -m udp --dport 5000:5010 -j REJECT --reject-with icmp-port-unreachable
-A DOCKER-USER -i wg0 -o eth0 -m comment --comment \"linerate wg0: from wg0 to eth0\" -j ACCEPT
-A DOCKER-USER -s 10.0.0.0/8 -j DROP
-A DOCKER-USER ! -s 10.0.0.0/8 ! -d 10.1.0.0/16 ! -p tcp -j DROP
-A DOCKER-USER -p udp -m udp ! --dport 53 -j DROP
";

    #[test]
    fn rules_are_read_as_iptables_prints_them() {
        let mut foreign = Foreign::default();
        take(&mut foreign, "ip", "iptables-legacy", RULES);
        let [forward, input, output] = &foreign.chains[..] else { panic!("{} chains", foreign.chains.len()) };
        assert_eq!([forward, input, output].map(|chain| chain.drops), [true, false, true]);
        assert_eq!(forward.tool, FirewallTool::Docker);
        let rules = &forward.rules["FORWARD"];
        assert_eq!(rules[0].verdict, ForeignVerdict::Jump("DOCKER-USER".into()));
        let wg = NamePattern { name: "wg*".into(), inverted: true };
        assert_eq!((rules[1].outgoing.first(), rules[1].states), (Some(&wg), Some(6)));
        assert_eq!((rules[2].ports, &rules[2].verdict), (Some((5000, 5010)), &ForeignVerdict::Drop));
        let [_, private, others, ports] = &forward.rules["DOCKER-USER"][..] else { panic!("{:?}", forward.rules) };
        assert_eq!((private.source, private.has_others), (addresses("10.0.0.0/8"), false));
        let [net, to] = ["10.0.0.0/8", "10.1.0.0/16"].map(|net| addresses(net).unwrap());
        assert_eq!(others.exceptions, [Exception::From(net), Exception::To(to), Exception::Protocol(6)]);
        assert_eq!((others.source, others.protocol, others.has_others), (None, None, false));
        assert_eq!((ports.protocol, &ports.exceptions[..]), (Some(17), &[Exception::Ports(53, 53)][..]));
        let ours = "legacy ip filter DOCKER-USER: linerate wg0: from wg0 to eth0";
        assert!(foreign.openings.contains(ours), "{:?}", foreign.openings);
    }

    #[test]
    fn odd_lines_are_harmless() {
        for line in
            ["", "-A", "-A X -i", "-A X -j", "-A X ! ", "-P", "-A X --dport x -m", "-A X -m comment --comment \""]
        {
            take(&mut Foreign::default(), "ip", "iptables", line);
        }
    }
}
