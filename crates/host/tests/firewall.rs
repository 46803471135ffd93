//! Rules of `nft` as they are read from the kernel, and the verdict on one packet.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use linerate_host::linux::Host;
use linerate_host::state::{Change, ForeignChain};
use linerate_host::step::AddressFamily;
use linerate_host::verdict::{ESTABLISHED, NEW, Packet, Sample, TCP, UDP, Verdict};

#[path = "../../../tests/in_namespaces.rs"]
mod in_namespaces;
use in_namespaces::in_namespaces;

/// IPPROTO_ICMP.
const ICMP: u8 = 1;

/// What a verdict says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Passes,
    MayPass,
    Dropped,
}
use Said::{Dropped, MayPass, Passes};

/// The chains of a ruleset.
fn chains(rules: &str) -> Vec<ForeignChain> {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    write!(nft.stdin.take().unwrap(), "flush ruleset\n{rules}").unwrap();
    assert!(nft.wait().unwrap().success(), "{rules}");
    Host::open().unwrap().firewall().unwrap().unwrap()
}

/// A table with sets, a chain `back`, and a chain for what comes in.
fn input(policy: &str, rules: &str) -> Vec<ForeignChain> {
    let sets = "set ports { type inet_service; flags interval; elements = { 22, 100-200, 51820 }; }
        set clients { type ipv4_addr; flags interval; elements = { 10.9.0.0/24 }; }
        set banned { type ipv4_addr; flags timeout; elements = { 10.9.0.2 timeout 1h }; }
        map verdicts { type inet_service : verdict; elements = { 53 : drop, 51820 : accept }; }
        map empty { type inet_service : verdict; }";
    chains(&format!(
        "table inet t {{ {sets}
        chain back {{ udp dport 1 return; meta skuid 7 return; udp dport 2 drop; }}
        chain c {{ type filter hook input priority 0; policy {policy}; {rules}
}}
}}"
    ))
}

fn said(chains: &[ForeignChain], packet: &Packet<'_>, mark: Option<u32>) -> Said {
    let [chain] = chains else { panic!("{} chains", chains.len()) };
    match chain.verdict_and_mark(packet, &mut mark.clone()) {
        Verdict::Accepts => Passes,
        Verdict::MayDrop { .. } => MayPass,
        Verdict::Drops(_) => Dropped,
    }
}

/// A new datagram to a port.
fn to_port(port: u16) -> Packet<'static> {
    Packet {
        from: "eth0",
        to: None,
        family: AddressFamily::V4,
        source: one("10.9.0.2"),
        destination: one("192.0.2.9"),
        state: NEW,
        protocol: UDP,
        port: Some(port),
        sample: Some(Sample { source_port: Some(68), source_route: None }),
    }
}

fn one(address: &str) -> Option<Vec<ipnet::IpNet>> {
    Some(vec![address.parse::<IpAddr>().unwrap().into()])
}

#[test]
fn each_condition_is_read_and_compared() {
    in_namespaces(|| {
        let ours = to_port(51820);
        let known = Packet { state: ESTABLISHED, ..ours.clone() };
        let echo = Packet { protocol: ICMP, port: None, ..ours.clone() };
        let v6 =
            Packet { family: AddressFamily::V6, source: one("fd09::2"), destination: one("fd09::1"), ..ours.clone() };
        let accepted: [(&str, &Packet<'_>, &Packet<'_>); 21] = [
            ("udp dport 51820 accept", &ours, &to_port(51821)),
            ("udp dport 51000-52000 accept", &ours, &to_port(1)),
            ("udp dport { 22, 51820 } accept", &ours, &to_port(1)),
            ("udp dport @ports accept", &to_port(150), &to_port(201)),
            ("udp dport vmap @verdicts", &ours, &to_port(53)),
            ("udp dport vmap { 51820 : accept, * : drop }", &ours, &to_port(53)),
            ("udp dport != 53 accept", &ours, &to_port(53)),
            ("udp sport 68 accept", &ours, &echo),
            ("ct state established,related accept", &known, &ours),
            ("ct state { established, related } accept", &known, &ours),
            ("ct state vmap { invalid : drop, established : accept }", &known, &ours),
            ("icmp type echo-request accept", &echo, &Packet { state: ESTABLISHED, ..echo.clone() }),
            ("meta nfproto ipv6 accept", &v6, &ours),
            ("ip6 saddr fd09::/64 accept", &v6, &ours),
            ("ip saddr 10.9.0.0/24 accept", &ours, &v6),
            ("ip saddr 10.9.0.1-10.9.0.9 accept", &ours, &v6),
            ("ip saddr != 10.9.0.1-10.9.0.9 accept", &Packet { source: one("10.9.0.10"), ..ours.clone() }, &ours),
            ("ip saddr @clients accept", &ours, &Packet { source: one("10.9.1.2"), ..ours.clone() }),
            ("ip saddr @banned accept", &ours, &Packet { source: one("10.9.0.3"), ..ours.clone() }),
            (
                "ip saddr . ip daddr { 10.9.0.2 . 192.0.2.1-192.0.2.9 } accept",
                &ours,
                &Packet { destination: one("192.0.2.10"), ..ours.clone() },
            ),
            ("iifname \"eth*\" accept", &ours, &Packet { from: "wg0", ..ours.clone() }),
        ];
        for (rule, packet, other) in accepted {
            let rules = input("drop", rule);
            let both = [packet, other].map(|packet| said(&rules, packet, Some(0)));
            assert_eq!(both, [Passes, Dropped], "{rule}: {rules:?}");
        }
        let others = input("accept", "ip saddr . ip daddr != { 10.9.0.2 . 192.0.2.1-192.0.2.9 } drop");
        assert_eq!(said(&others, &ours, None), Passes);
        assert_eq!(said(&others, &Packet { destination: one("192.0.2.10"), ..ours.clone() }, None), Dropped);
        assert_eq!(said(&others, &v6, None), Passes);
        assert_eq!(said(&others, &Packet { source: None, ..ours.clone() }, None), MayPass);
    });
}

#[test]
fn a_condition_that_is_not_read_is_a_doubt() {
    in_namespaces(|| {
        let said = |policy, rules: &str| said(&input(policy, rules), &to_port(51820), Some(0));
        let doubts = ["meta skuid 7", "limit rate 10/second", "meta cpu 1"];
        for doubt in doubts {
            assert_eq!(said("drop", &format!("{doubt} accept")), MayPass, "{doubt}");
            assert_eq!(said("accept", &format!("{doubt} drop")), MayPass, "{doubt}");
            assert_eq!(said("drop", &format!("{doubt} drop")), Dropped, "{doubt}");
            assert_eq!(said("accept", &format!("{doubt} accept")), Passes, "{doubt}");
            assert_eq!(said("drop", &format!("{doubt} return; accept")), MayPass, "{doubt}");
            assert_eq!(said("accept", &format!("{doubt} return; drop")), MayPass, "{doubt}");
            assert_eq!(said("accept", &format!("{doubt} drop; drop")), Dropped, "{doubt}");
        }
        assert_eq!([said("drop", ""), said("accept", ""), said("drop", "return; accept")], [Dropped, Passes, Dropped]);
        assert_eq!(said("drop", "udp dport vmap @empty"), Dropped);
        assert_eq!(said("drop", "meta cpu vmap { 1 : accept }"), MayPass);
    });
}

#[test]
fn chains_are_followed_for_one_packet() {
    in_namespaces(|| {
        let said = |rules: &str, port| said(&input("accept", rules), &to_port(port), Some(0));
        for (rules, expected) in [
            ("jump back; drop", [Dropped, Dropped, Dropped]),
            ("jump back", [Passes, MayPass, Passes]),
            ("goto back; drop", [Passes, MayPass, Passes]),
            ("meta skuid 8 jump back; accept", [Passes, MayPass, Passes]),
            ("meta skuid 8 goto back; drop", [MayPass, MayPass, MayPass]),
            ("iifname vmap { \"eth0\" : jump back, * : drop }", [Passes, MayPass, Passes]),
            ("iifname vmap { \"eth1\" : jump back, * : drop }", [Dropped, Dropped, Dropped]),
        ] {
            assert_eq!([1, 2, 3].map(|port| said(rules, port)), expected, "{rules}");
        }
    });
}

#[test]
fn marks_and_routes_to_the_source_are_compared() {
    in_namespaces(|| {
        let packet = to_port(51820);
        for (rules, of_none, of_seven) in [
            ("meta mark 7 accept", Dropped, Passes),
            ("meta mark { 7, 8 } accept", Dropped, Passes),
            ("meta mark != 7 accept", Passes, Dropped),
            ("meta mark set 7; meta mark 7 accept", Passes, Passes),
            ("meta mark 7 accept; meta mark set 7", Dropped, Passes),
            ("meta mark set 8; meta mark 7 accept", Dropped, Dropped),
            ("meta mark set ct mark; meta mark 7 accept", MayPass, MayPass),
            ("meta skuid 7 meta mark set 7; meta mark 7 accept", MayPass, Passes),
        ] {
            let chains = input("drop", rules);
            let both = [0, 7].map(|mark| said(&chains, &packet, Some(mark)));
            assert_eq!(both, [of_none, of_seven], "{rules}");
        }
        for rule in ["fib saddr . iif oif missing drop", "fib saddr oif \"lo\" drop", "fib saddr oifname \"lo\" drop"] {
            let chains = input("accept", rule);
            let by = |source_route| {
                let sample = Some(Sample { source_port: None, source_route });
                said(&chains, &Packet { sample, ..packet.clone() }, None)
            };
            assert_eq!([by(Some("lo")), by(Some("eth0")), by(None)], [Dropped, Passes, MayPass], "{rule}");
        }
        let translated = input("drop", "ct status dnat accept");
        assert_eq!(said(&translated, &packet, None), Dropped);
        assert_eq!(said(&translated, &Packet { state: ESTABLISHED, ..packet }, None), MayPass);
    });
}

#[test]
fn counters_and_changes_are_read() {
    in_namespaces(|| {
        let counted = input("accept", "counter packets 7 bytes 1 drop");
        let Verdict::Drops(place) = counted[0].verdict(&to_port(1)) else { panic!("{counted:?}") };
        assert_eq!(place.packets, Some(7));
        let all = chains(
            "table inet n { chain post { type nat hook postrouting priority 100; ip saddr 10.9.0.0/24 masquerade; }
            chain to { type nat hook postrouting priority 101; snat ip to 192.0.2.1; }
            chain from { type nat hook prerouting priority 0; dnat ip to 192.0.2.1; }
            chain sizes { type filter hook forward priority 0; tcp flags syn tcp option maxseg size set rt mtu; }
            }
            table inet linerate-wg0 { chain output { type filter hook output priority 0; policy drop; }
            }",
        );
        let of = |name: &str| all.iter().find(|chain| chain.chain == name).unwrap();
        let changes =
            |name: &str| of(name).rules[name].iter().flat_map(|rule| rule.changes.clone()).collect::<Vec<_>>();
        assert_eq!([changes("post"), changes("to")], [vec![Change::Source], vec![Change::Source]]);
        assert_eq!([changes("from"), changes("sizes")], [vec![], vec![Change::SegmentSize]]);
        let sent = Packet { protocol: TCP, to: Some("eth0"), ..to_port(80) };
        assert!(matches!(of("output").verdict(&sent), Verdict::Drops(place) if place.rule.is_none()));
    });
}
