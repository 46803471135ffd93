//! iptables: which of its programs keeps which tables, and the rules of the older kind, which no netlink shows.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ipnet::IpNet;

use super::KNOWN;
use super::rule::{FOR_FEW, unread};
use crate::condition::Condition;
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
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
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
                let (read, comment) = read_rules(rest);
                if let Some(mark) = comment.filter(|comment| comment.starts_with("linerate ")) {
                    foreign.openings.insert(id(&format!("legacy {family} filter {chain}"), &mark));
                }
                let number = numbers.entry(chain.to_owned()).or_default();
                *number += 1;
                let name = format!("rule {number}");
                let read = read.into_iter().map(|rule| ForeignRule { name: name.clone(), ..rule });
                rules.entry(chain.to_owned()).or_default().extend(read);
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
            is_legacy: true,
            drops: dropping.iter().any(|name| name == chain),
            rules: rules.clone(),
        });
    }
}

/// A rule after its chain, once for each range of ports that it names, and its comment.
fn read_rules(words: &[&str]) -> (Vec<ForeignRule>, Option<String>) {
    let mut several = Vec::new();
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
            "-m" => match value() {
                "limit" => rule.is_limited = true,
                "icmp" | "icmp6" => rule.is_for_some = true,
                name if READ.contains(&name) => {}
                name => unread(&mut rule, !FOR_FEW.contains(&name)),
            },
            "--limit" | "--limit-burst" | "--icmp-type" | "--icmpv6-type" => {
                value();
            }
            "--sport" => match range(value()) {
                Some(ports) => rule.conditions.push(Condition::SourcePort(!is_not, vec![ports])),
                None => unread(&mut rule, is_not),
            },
            "--dports" => {
                let ranges: Option<Vec<(u16, u16)>> = value().split(',').map(range).collect();
                match ranges {
                    Some(ranges) if is_not => {
                        rule.exceptions.extend(ranges.into_iter().map(|(first, last)| Exception::Ports(first, last)));
                    }
                    Some(ranges) => several = ranges,
                    None => unread(&mut rule, is_not),
                }
            }
            "--dst-type" => match value() {
                "LOCAL" => rule.is_for_host = Some(!is_not),
                _ => unread(&mut rule, is_not),
            },
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
                    "NFQUEUE" => ForeignVerdict::Unknown,
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
            word if word.starts_with("--") => unread(&mut rule, is_not),
            // The value of an option that is not read.
            _ => {}
        }
    }
    let rules = if several.is_empty() {
        vec![rule]
    } else {
        several.into_iter().map(|ports| ForeignRule { ports: Some(ports), ..rule.clone() }).collect()
    };
    (rules, comment)
}

/// Matches whose options say whether they are read, and which packets they are for.
const READ: [&str; 12] = [
    "addrtype",
    "comment",
    "connmark",
    "conntrack",
    "iprange",
    "mac",
    "mark",
    "multiport",
    "set",
    "state",
    "tcp",
    "udp",
];

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
    use proptest::prelude::*;

    use super::*;
    use crate::step::AddressFamily;
    use crate::verdict::{ESTABLISHED, NEW, Packet, TCP, UDP, Verdict};

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

    /// What `iptables -S` printed on a host where the tool had just set its rules up.
    const SAMPLES: [(&str, &str); 5] = [
        ("iptables", include_str!("samples/iptables.txt")),
        ("red-hat", include_str!("samples/red-hat.txt")),
        ("ufw", include_str!("samples/ufw.txt")),
        ("ufw-open", include_str!("samples/ufw-open.txt")),
        ("fail2ban", include_str!("samples/fail2ban.txt")),
    ];

    fn sample(name: &str) -> &'static str {
        SAMPLES.iter().find(|(other, _)| *other == name).expect("there is such a sample").1
    }

    fn chains(text: &str) -> Vec<ForeignChain> {
        let mut foreign = Foreign::default();
        take(&mut foreign, "ip", "iptables-legacy", text);
        foreign.chains
    }

    /// The verdict on a new peer's datagram to a port.
    fn arrives(text: &str, port: u16) -> Verdict {
        let (family, port) = (AddressFamily::V4, Some(port));
        let (from, to, source, destination, sample) = ("eth0", None, None, None, None);
        let (state, protocol) = (NEW, UDP);
        chains(text)[1].verdict(&Packet { from, to, family, source, destination, state, protocol, port, sample })
    }

    /// The verdict on a client's new connection, or on an answer to it.
    fn forwarded(text: &str, is_answer: bool) -> Verdict {
        let nets = Some(vec!["10.9.0.2/32".parse().unwrap()]);
        let (family, protocol, port) = (AddressFamily::V4, TCP, None);
        let there = Packet {
            from: "wg0",
            to: Some("eth0"),
            family,
            source: nets.clone(),
            destination: None,
            state: NEW,
            protocol,
            port,
            sample: None,
        };
        let back = Packet {
            from: "eth0",
            to: Some("wg0"),
            source: None,
            destination: nets,
            state: ESTABLISHED,
            ..there.clone()
        };
        chains(text)[0].verdict(if is_answer { &back } else { &there })
    }

    #[test]
    fn what_usual_rules_do_with_a_tunnel_is_certain() {
        let dropped_by = |verdict: Verdict| match verdict {
            Verdict::Accepts => "none".to_owned(),
            Verdict::Drops(place) => place.to_string(),
            Verdict::MayDrop { .. } => panic!("{verdict:?}"),
        };
        let judged = SAMPLES.map(|(name, text)| {
            let all = [arrives(text, 51820), forwarded(text, false), forwarded(text, true)];
            (name, all.map(dropped_by))
        });
        let [input, forward, none] = ["the policy of chain INPUT", "the policy of chain FORWARD", "none"];
        let expected = [
            ("iptables", [input, none, none]),
            ("red-hat", ["rule 5 of chain INPUT", "rule 1 of chain FORWARD", "rule 1 of chain FORWARD"]),
            ("ufw", [input, forward, none]),
            ("ufw-open", [none, none, none]),
            ("fail2ban", [none, none, none]),
        ];
        assert_eq!(judged, expected.map(|(name, places)| (name, places.map(str::to_owned))));
    }

    #[test]
    fn a_doubt_names_the_rule_that_is_not_read() {
        let with = |rule: &str| format!("-A INPUT {rule} -j ACCEPT\n{}", sample("iptables"));
        for rule in ["-m geoip --source-country DE", "-m set --match-set friends src", "-m mark --mark 0x7/0xff"] {
            let Verdict::MayDrop { by, unless: Some(doubtful) } = arrives(&with(rule), 51820) else { panic!("{rule}") };
            assert_eq!((by.rule, doubtful.rule.as_deref()), (None, Some("rule 1")), "{rule}");
        }
        let drops = |rule: &str| arrives(&format!("-P INPUT ACCEPT\n-A INPUT {rule} -j DROP\n"), 51820);
        for few in ["-m set --match-set bad src", "-m recent --update --seconds 60", "-m limit --limit 3/sec"] {
            assert_eq!(drops(few), Verdict::Accepts, "{few}");
        }
        for most in ["-m geoip ! --source-country DE", "-m set ! --match-set friends src"] {
            assert!(matches!(drops(most), Verdict::MayDrop { unless: None, .. }), "{most}");
        }
        let asked = "-P INPUT ACCEPT\n-A INPUT -j NFQUEUE --queue-num 0\n";
        assert!(matches!(arrives(asked, 51820), Verdict::MayDrop { unless: None, .. }));
    }

    #[test]
    fn ports_may_be_many_and_senders_have_any() {
        let accepts = |rule: &str| arrives(&format!("-P INPUT DROP\n-A INPUT {rule} -j ACCEPT\n"), 51820);
        for rule in [
            "-p udp -m multiport --dports 53,51000:52000",
            "-p udp -m udp --sport 1024:65535 --dport 51820",
            "-p udp -m multiport ! --dports 53,123",
            "-m addrtype --dst-type LOCAL -p udp",
            "-p udp -m limit --limit 10/sec",
        ] {
            assert_eq!(accepts(rule), Verdict::Accepts, "{rule}");
        }
        for rule in [
            "-p udp -m multiport --dports 53,443",
            "-p udp -m udp --sport 53",
            "-p udp -m multiport ! --dports 53,51820",
            "-m addrtype ! --dst-type LOCAL",
        ] {
            assert!(matches!(accepts(rule), Verdict::Drops(_)), "{rule}");
        }
    }

    proptest! {
        /// What is opened in front is open, whatever follows; and what is said of one port is not of another.
        #[test]
        fn the_first_rule_decides_in_all_samples(index in 0..SAMPLES.len(), port: u16, other: u16) {
            let text = SAMPLES[index].1;
            let first = |port: u16, verdict: &str| {
                let rule = format!("-A INPUT -p udp -m udp --dport {port} -j {verdict}\n");
                format!("{rule}{text}")
            };
            prop_assert_eq!(arrives(&first(port, "ACCEPT"), port), Verdict::Accepts);
            prop_assert!(matches!(arrives(&first(port, "DROP"), port), Verdict::Drops(place) if place.rule.as_deref() == Some("rule 1")));
            if port != other {
                let is_open = |verdict: Verdict| verdict == Verdict::Accepts;
                prop_assert_eq!(is_open(arrives(&first(port, "DROP"), other)), is_open(arrives(text, other)));
            }
        }

        /// A rule for other packets, anywhere, changes nothing.
        #[test]
        fn a_rule_for_others_changes_no_verdict(index in 0..SAMPLES.len(), at: usize, rule in 0usize..4, accepts: bool) {
            let text = SAMPLES[index].1;
            let matches = ["-p tcp", "-i lo", "-p udp -m udp --dport 53", "-p udp -m conntrack --ctstate INVALID"][rule];
            let verdict = if accepts { "ACCEPT" } else { "DROP" };
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = at % (lines.len() + 1);
            lines.insert(at, format!("-A INPUT {matches} -j {verdict}"));
            let before = arrives(text, 51820);
            let after = arrives(&lines.join("\n"), 51820);
            prop_assert_eq!(std::mem::discriminant(&before), std::mem::discriminant(&after));
        }
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
