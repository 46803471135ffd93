//! Evidence of one fault is that finding and no other; without evidence there is none.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use linerate_doctor::evidence::{
    CoreUse, Counters, CpuLimit, Evidence, Host, Link, Machine, OtherTunnel, Peer, Probe, Protection, RoutePast,
    Tunnel, Way,
};
use linerate_doctor::firewall::Ruleset;
use linerate_doctor::{KINDS, Severity, examine, security};
use linerate_host::plan::foreign::Obstacle;
use linerate_host::state::{FirewallTool, ForeignChain, ForeignHook};
use proptest::prelude::*;

fn net<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn device(name: &str) -> Way {
    Way::Device(name.into())
}

fn counters(before: &[(&str, u64)], after: &[(&str, u64)]) -> Counters {
    let map = |list: &[(&str, u64)]| list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Counters { before: map(before), after: map(after) }
}

/// A tunnel that works: one peer, complete evidence.
fn healthy() -> Evidence {
    let peer = Peer {
        label: "server".into(),
        public_key: "key".into(),
        endpoint: Some(net("192.0.2.2:51820")),
        is_expected: true,
        handshake_age: Some(Duration::from_secs(9)),
        handshake_age_before: Some(Duration::from_secs(9)),
        sent: 50_000,
        received: 60_000,
        allowed_ips: vec![net("10.9.0.2/32")],
        endpoint_way: Some(device("eth0")),
        ways: vec![(net("10.9.0.2/32"), device("wg0"))],
        probe: Some(Probe { to: net("10.9.0.2"), answered: true, refused: None, sizes: None }),
        ..Peer::default()
    };
    let all = [
        ("offload_tun_tso", 1),
        ("offload_tun_uso", 1),
        ("offload_udp_gso", 1),
        ("offload_udp_gro", 1),
        ("wakeups_inbound_work", 7),
    ];
    let link = |name: &str, mtu, address: &str| Link {
        name: name.into(),
        mtu,
        up: true,
        is_tunnel: name == "wg0",
        addresses: vec![net(address)],
        receive_queues: 4,
        spreads: false,
        interrupt_cores: vec![0, 1, 2, 3],
    };
    let core = CoreUse { ticks: 30, idle: 0.9, softirq: 0.01, steal: 0.0 };
    Evidence {
        tunnel: Tunnel {
            name: "wg0".into(),
            listen_port: 51820,
            mtu: 1420,
            addresses: vec![net("10.9.0.1/24")],
            public_key: Some("ours".into()),
            peers: vec![peer],
            counters: counters(&all, &all),
            window: Duration::from_millis(300),
            ..Tunnel::default()
        },
        others: Vec::new(),
        host: Host {
            links: vec![link("eth0", 1500, "198.51.100.7/24"), link("wg0", 1420, "10.9.0.1/24")],
            uplink: Some("eth0".into()),
            reaches_ipv6: true,
            sysctls: sysctls(&[
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.conf.all.src_valid_mark", "0"),
                ("net.ipv4.conf.wg0.forwarding", "1"),
                ("net.ipv6.conf.wg0.disable_ipv6", "0"),
            ]),
            ruleset: Some(Ruleset::default()),
            ..Host::default()
        },
        machine: Machine {
            processors: 4,
            cores: vec![core; 4],
            threads: vec![("worker".into(), 0.02)],
            cipher: Some("avx512".into()),
            best_cipher: Some("avx512".into()),
            limit: None,
            governor: Some(("performance".into(), "acpi-cpufreq".into())),
        },
    }
}

fn sysctls(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A chain at a hook with one rule.
fn chain(hook: ForeignHook, drops: bool, rule: &str) -> ForeignChain {
    ForeignChain {
        table: "inet t".into(),
        chain: "c".into(),
        hook,
        tool: FirewallTool::Other,
        iptables: None,
        is_legacy: false,
        drops,
        rules: [("c".to_owned(), vec![serde_json::from_str(rule).unwrap()])].into(),
    }
}

fn ruleset(hook: ForeignHook, drops: bool, rule: &str) -> Option<Ruleset> {
    Some(Ruleset::of(vec![chain(hook, drops, rule)]))
}

const MASQUERADE: &str = r#"{"changes":["source"]}"#;
const COUNT: &str = r#"{"packets":0}"#;

fn peer(evidence: &mut Evidence) -> &mut Peer {
    &mut evidence.tunnel.peers[0]
}

fn silent(evidence: &mut Evidence) {
    let peer = peer(evidence);
    (peer.handshake_age, peer.handshake_age_before, peer.received, peer.probe) = (None, None, 0, None);
}

fn counted(evidence: &mut Evidence, name: &str, total: u64) {
    evidence.tunnel.counters.after.insert(name.into(), total);
}

/// What another program's firewall drops, or may drop.
fn obstacle(is_certain: bool) -> Obstacle {
    Obstacle {
        family: None,
        chain: "the chain INPUT of the firewall table ip filter".into(),
        is_certain,
        why: "rule 3 drops them".into(),
        commands: vec!["ufw allow 51820/udp".into()],
        is_forgotten: false,
    }
}

/// A server with a client, whose address it translates.
fn gateway(evidence: &mut Evidence) {
    peer(evidence).is_expected = false;
    evidence.tunnel.gateway = vec!["eth0".into()];
}

/// Chains as they are read: those of a gateway between wg0 and eth0 with ClientIsolation and Destinations, and those of a
/// kill switch with ExcludeLAN.
const GATEWAY: &str = include_str!("rulesets/gateway.json");
const KILL_SWITCH: &str = include_str!("rulesets/kill_switch.json");

fn chains(json: &str) -> Vec<ForeignChain> {
    serde_json::from_str(json).unwrap()
}

/// The chains without rules whose `TABLE CHAIN RULE` has one of `without`, and with a rule first in a chain.
fn changed(json: &str, without: &[&str], more: Option<(&str, &str)>) -> Option<Ruleset> {
    let mut chains = chains(json);
    for ForeignChain { table, rules, .. } in &mut chains {
        for (chain, rules) in rules {
            rules.retain(|rule| {
                let place = format!("{table} {chain} {} ", rule.name);
                !without.iter().any(|words| place.contains(words))
            });
            if let Some((_, rule)) = more.filter(|(place, _)| *place == format!("{table} {chain}")) {
                rules.insert(0, serde_json::from_str(rule).unwrap());
            }
        }
    }
    Some(Ruleset::of(chains))
}

/// A gateway whose rules are in force; the host has another network, too.
fn guarded(e: &mut Evidence) {
    gateway(e);
    peer(e).allowed_ips = vec![net("10.9.0.2/32"), net("fd09::2/128")];
    let restricted = Peer {
        allowed_ips: vec![net("10.9.0.3/32"), net("fd09::3/128")],
        destinations: vec![net("198.51.100.0/24"), net("2001:db8::/32")],
        ways: Vec::new(),
        ..e.tunnel.peers[0].clone()
    };
    e.tunnel.peers.push(restricted);
    e.tunnel.addresses.push(net("fd09::1/64"));
    e.tunnel.protection = Protection {
        is_ours: true,
        gateway_table: Some("inet linerate_gateway-wg0".into()),
        sysctls: ["net.ipv4.conf.eth0.forwarding".into(), "net.ipv6.conf.eth0.force_forwarding".into()].into(),
        is_gateway: true,
        isolated: true,
        replies_only: true,
        masquerade: [true, true],
        ..Protection::default()
    };
    e.host.links[0].addresses.push(net("2001:db8:100::7/64"));
    let lan = Link {
        name: "eth1".into(),
        addresses: vec![net("192.168.77.1/24"), net("fd77::1/64")],
        ..e.host.links[0].clone()
    };
    e.host.links.push(lan);
    for (link, value) in [("eth0", "1"), ("eth1", "0"), ("wg0", "1")] {
        e.host.sysctls.insert(format!("net.ipv4.conf.{link}.forwarding"), value.into());
        e.host.sysctls.insert(format!("net.ipv6.conf.{link}.force_forwarding"), value.into());
    }
    e.host.metadata = vec![(net("169.254.169.254"), device("eth0")), (net("fd00:ec2::254"), device("eth0"))];
    e.host.tables = Some(vec!["inet linerate_gateway-wg0".into(), "inet linerate_forwarding".into()]);
    e.host.ruleset = Some(Ruleset::of(chains(GATEWAY)));
}

/// A full tunnel.
fn full(e: &mut Evidence) {
    peer(e).allowed_ips = vec![net("0.0.0.0/0"), net("::/0")];
    peer(e).ways = vec![(net("0.0.0.0/0"), device("wg0")), (net("::/0"), device("wg0"))];
    e.tunnel.fwmark = 11820;
    let lan = Link { name: "eth1".into(), addresses: vec![net("192.168.77.1/24")], ..e.host.links[0].clone() };
    e.host.links.push(lan);
    e.tunnel.protection = Protection { is_ours: true, ..Protection::default() };
}

/// A full tunnel with a kill switch in force.
fn switched(e: &mut Evidence) {
    full(e);
    e.tunnel.protection =
        Protection { kill_switch: Some("inet linerate-wg0".into()), exclude_lan: true, ..e.tunnel.protection.clone() };
    e.host.tables = Some(vec!["inet linerate-wg0".into()]);
    e.host.ruleset = Some(Ruleset::of(chains(KILL_SWITCH)));
}

const TO_PUBLIC: &str =
    r#"{"family":"v4","destination":{"first":"203.0.113.5","last":"203.0.113.5"},"verdict":"accept"}"#;
const TO_METADATA: &str = r#"{"incoming":[{"name":"wg0","inverted":false}],"family":"v4",
    "destination":{"first":"169.254.169.254","last":"169.254.169.254"},"verdict":"accept"}"#;

fn past(to: &str, via: Option<IpAddr>, protocol: u8) -> RoutePast {
    RoutePast { to: net(to), device: "eth0".into(), via, protocol }
}

type Fault = (&'static str, fn(&mut Evidence));

const FAULTS: &[Fault] = &[
    ("daemon-dead", |e| e.tunnel.is_dead = true),
    ("interface-down", |e| e.tunnel.link_down = true),
    ("no-private-key", |e| e.tunnel.no_private_key = true),
    ("port-in-use", |e| e.tunnel.not_listening = true),
    ("two-tunnels-one-port", |e| {
        e.tunnel.not_listening = true;
        e.others = vec![OtherTunnel { name: "wg1".into(), listen_port: 51820, allowed_ips: vec![] }];
    }),
    ("hook-failed", |e| e.tunnel.hook_failed = true),
    ("endpoint-name-unresolved", |e| {
        silent(e);
        peer(e).endpoint = None;
        (peer(e).endpoint_name, peer(e).resolved) = (Some("a.example:1".into()), Some(Err("unknown".into())));
    }),
    ("endpoint-name-through-tunnel", |e| {
        silent(e);
        (peer(e).endpoint_name, peer(e).resolved) = (Some("a.example:1".into()), Some(Err("unknown".into())));
        e.host.name_servers = vec![(net("10.9.0.2"), Some(device("wg0")))];
    }),
    ("endpoint-name-stale", |e| {
        silent(e);
        (peer(e).endpoint_name, peer(e).resolved) = (Some("a.example:1".into()), Some(Ok(vec![net("192.0.2.3")])));
    }),
    ("endpoint-through-tunnel", |e| {
        silent(e);
        peer(e).endpoint_way = Some(device("wg0"));
    }),
    ("endpoint-no-route", |e| {
        silent(e);
        peer(e).endpoint_way = Some(Way::None("Network is unreachable".into()));
    }),
    ("firewall-drops-sent", |e| {
        silent(e);
        e.host.ruleset = ruleset(ForeignHook::Output, true, COUNT);
    }),
    ("firewall-drops-port", |e| {
        silent(e);
        peer(e).is_expected = false;
        e.host.port_obstacles = vec![obstacle(true)];
    }),
    ("handshake-for-another-key", |e| {
        silent(e);
        counted(e, "drop_mac1", 3);
    }),
    ("handshake-from-unknown-key", |e| {
        silent(e);
        counted(e, "drop_unknown_peer", 3);
    }),
    ("handshake-replayed", |e| {
        silent(e);
        counted(e, "drop_replayed", 3);
    }),
    ("handshake-not-confirmed", |e| {
        silent(e);
        peer(e).received = 444;
        counted(e, "handshake_responses_sent", 3);
    }),
    ("preshared-key-differs", |e| {
        silent(e);
        counted(e, "drop_undecryptable", 1);
    }),
    ("clock-behind", |e| {
        silent(e);
        e.host.clock_behind = Some(("a file".into(), Duration::from_secs(9000)));
    }),
    ("no-handshake-nothing-arrives", silent),
    ("no-handshake-no-answer", |e| {
        silent(e);
        counted(e, "wakeups_inbound_work", 9);
    }),
    ("nat-without-keepalive", |e| {
        e.host.links[0].addresses = vec![net("192.168.1.2/24")];
        peer(e).handshake_age_before = Some(Duration::from_secs(400));
    }),
    ("keepalive-too-long", |e| {
        e.host.links[0].addresses = vec![net("192.168.1.2/24")];
        peer(e).keepalive = 120;
    }),
    ("route-missing", |e| peer(e).ways[0].1 = Way::None("Network is unreachable".into())),
    ("route-elsewhere", |e| peer(e).ways[0].1 = device("eth0")),
    ("route-without-peer", |e| e.host.tunnel_routes = vec![net("10.30.0.0/16")]),
    ("source-not-allowed", |e| counted(e, "drop_source_not_allowed", 3)),
    ("traffic-unanswered", |e| {
        (peer(e).received, peer(e).probe) =
            (124, Some(Probe { to: net("10.9.0.2"), answered: false, refused: None, sizes: None }));
    }),
    ("reverse-path-filter", |e| {
        silent(e);
        e.host.sysctls.insert("net.ipv4.conf.eth0.rp_filter".into(), "1".into());
        e.host.counters = counters(&[], &[("TcpExt.IPReversePathFilter", 3)]);
    }),
    ("forwarding-off", |e| {
        gateway(e);
        e.host.ruleset = None;
        e.host.sysctls.insert("net.ipv4.conf.wg0.forwarding".into(), "0".into());
    }),
    ("gateway-interface-missing", |e| {
        gateway(e);
        e.tunnel.gateway = vec!["eth7".into()];
        e.host.uplink = None;
    }),
    ("gateway-without-interface", |e| {
        gateway(e);
        (e.tunnel.gateway, e.tunnel.gateway_is_auto) = (Vec::new(), true);
        e.host.uplink = Some("eth0".into());
    }),
    ("firewall-drops-forwarded", |e| {
        gateway(e);
        e.host.links[0].mtu = 1480;
        e.tunnel.mtu = 1420;
        e.host.uplink = None;
        e.host.forward_obstacles = vec![obstacle(true)];
    }),
    ("firewall-drops-tunnel", |e| {
        peer(e).probe = Some(Probe { to: net("10.9.0.2"), answered: false, refused: None, sizes: None });
        e.host.ruleset = ruleset(ForeignHook::Input, true, COUNT);
    }),
    ("mtu-black-hole", |e| {
        peer(e).probe = Some(Probe { to: net("10.9.0.2"), answered: true, refused: None, sizes: Some((1000, 1008)) });
    }),
    ("mtu-too-large", |e| e.host.links[0].mtu = 1400),
    ("mss-not-limited", gateway),
    ("address-conflict", |e| e.host.links[0].addresses.push(net("10.9.0.1/32"))),
    ("allowed-ips-in-two-tunnels", |e| {
        e.others = vec![OtherTunnel { name: "wg1".into(), listen_port: 1, allowed_ips: vec![net("10.9.0.2/32")] }];
    }),
    ("allowed-ips-in-two-peers", |e| e.tunnel.allowed_ips_twice = vec![net("10.9.0.2/32")]),
    ("ipv6-disabled", |e| {
        peer(e).allowed_ips.push(net("fd09::2/128"));
        e.host.sysctls.insert("net.ipv6.conf.wg0.disable_ipv6".into(), "1".into());
    }),
    ("ipv6-hardly-used", |e| {
        e.tunnel.addresses.push(net("fd09::1/64"));
        peer(e).allowed_ips = vec![net("0.0.0.0/0"), net("::/0")];
    }),
    ("ipv6-without-nat", |e| {
        gateway(e);
        e.host.uplink = None;
        e.tunnel.addresses.push(net("fd09::1/64"));
    }),
    ("offload-tun-missing", |e| counted(e, "offload_tun_tso", 0)),
    ("offload-udp-missing", |e| counted(e, "offload_udp_gso", 0)),
    ("offload-refused", |e| counted(e, "segmentation_refused", 1)),
    ("cipher-slow", |e| e.machine.cipher = Some("portable".into())),
    ("socket-buffer-drops", |e| e.host.socket_drops = counters(&[("drops", 1)], &[("drops", 9)])),
    ("receive-on-one-core", |e| {
        e.machine.cores[2] = CoreUse { ticks: 30, idle: 0.1, softirq: 0.9, steal: 0.0 };
        e.host.links[0].receive_queues = 1;
    }),
    ("cpu-limited", |e| {
        e.machine.limit = Some(CpuLimit { group: "/a".into(), processors: 0.5, throttled: 4 });
    }),
    ("cpu-stolen", |e| e.machine.cores.iter_mut().for_each(|core| core.steal = 0.2)),
    ("one-thread-full", |e| e.machine.threads = vec![("worker".into(), 0.97)]),
    ("cpu-governor", |e| e.machine.governor = Some(("powersave".into(), "acpi-cpufreq".into()))),
    ("kill-switch-hole", |e| {
        switched(e);
        e.host.ruleset = changed(KILL_SWITCH, &[], Some(("inet linerate-wg0 output", TO_PUBLIC)));
    }),
    ("protection-missing", |e| {
        guarded(e);
        e.host.tables = Some(Vec::new());
    }),
    ("forwards-between-others", |e| {
        guarded(e);
        e.tunnel.addresses.pop();
        e.host.ruleset = changed(GATEWAY, &["linerate_forwarding"], None);
    }),
    ("pool-spoofable", |e| {
        guarded(e);
        e.host.ruleset = changed(GATEWAY, &["sources rule 3 "], None);
    }),
    ("metadata-reachable", |e| {
        guarded(e);
        e.host.ruleset = changed(GATEWAY, &[], Some(("inet linerate_gateway-wg0 forward", TO_METADATA)));
    }),
    ("names-in-the-clear", |e| {
        full(e);
        e.host.name_servers = vec![(net("192.168.77.2"), Some(device("eth1")))];
    }),
    ("names-blocked", |e| {
        switched(e);
        e.host.name_servers = vec![(net("192.168.77.2"), Some(device("eth1")))];
    }),
    ("routes-past-the-tunnel", |e| {
        full(e);
        e.host.routes_past = vec![past("203.0.113.0/24", Some(net("198.51.100.9")), 16)];
    }),
];

fn found(evidence: &Evidence) -> Vec<&'static str> {
    examine(evidence).iter().map(|finding| finding.id).collect()
}

#[test]
fn evidence_of_one_fault_is_that_finding_and_no_other() {
    for (id, make) in FAULTS {
        let mut evidence = healthy();
        make(&mut evidence);
        assert_eq!(found(&evidence), [*id]);
    }
}

#[test]
fn every_kind_has_evidence_that_makes_it() {
    // That one is made where the confinement is read.
    let kinds = KINDS.iter().map(|kind| kind.id).filter(|id| *id != "confinement-weak");
    assert_eq!(FAULTS.iter().map(|(id, _)| *id).collect::<Vec<_>>(), kinds.collect::<Vec<_>>());
}

#[test]
fn a_tunnel_that_works_has_no_finding() {
    assert_eq!(found(&healthy()), Vec::<&str>::new());
    assert_eq!(found(&Evidence::default()), Vec::<&str>::new(), "nothing is known");
}

#[test]
fn a_peer_that_need_not_answer_is_no_fault() {
    for change in [|peer: &mut Peer| peer.is_expected = false, |peer: &mut Peer| peer.is_suspended = true] {
        let mut evidence = healthy();
        silent(&mut evidence);
        change(peer(&mut evidence));
        assert_eq!(found(&evidence), Vec::<&str>::new());
    }
}

#[test]
fn a_counter_that_grew_long_ago_is_no_fault_while_all_peers_are_there() {
    for name in ["drop_mac1", "drop_unknown_peer", "drop_undecryptable", "drop_replayed", "drop_no_peer"] {
        let mut evidence = healthy();
        counted(&mut evidence, name, 1000);
        assert_eq!(found(&evidence), Vec::<&str>::new(), "{name}");
    }
}

/// What is on healthy hosts, and looks like a fault at first.
#[test]
fn what_is_usual_is_no_fault() {
    let usual: [Fault; 13] = [
        ("an idle tunnel that nothing was sent through", |e| {
            silent(e);
            (peer(e).sent_before, peer(e).sent) = (148, 148);
        }),
        ("an idle tunnel, and a probe that the kernel refused", |e| {
            silent(e);
            (peer(e).sent_before, peer(e).sent) = (148, 148);
            peer(e).probe =
                Some(Probe { to: net("10.9.0.2"), answered: false, refused: Some("no way".into()), sizes: None });
        }),
        ("addresses of a link on several interfaces", |e| {
            e.tunnel.addresses.push(net("fe80::1/64"));
            e.host.links[0].addresses.push(net("fe80::1/64"));
        }),
        ("one address on interfaces without a network", |e| {
            e.tunnel.addresses = vec![net("10.9.0.1/32")];
            e.host.links[0].addresses.push(net("10.9.0.1/32"));
        }),
        ("groups and addresses of a link in two tunnels, as routing daemons have them", |e| {
            let nets = ["224.0.0.5/32", "fe80::/64", "ff02::/16", "0.0.0.0/0"].map(net);
            peer(e).allowed_ips.extend(nets);
            e.others = vec![OtherTunnel { name: "wg1".into(), listen_port: 1, allowed_ips: nets.to_vec() }];
        }),
        ("routes by hand beside another tunnel", |e| {
            e.tunnel.table_off = true;
            e.others = vec![OtherTunnel { name: "wg1".into(), listen_port: 1, allowed_ips: vec![net("10.9.0.2/32")] }];
        }),
        ("a peer that answers no echo requests, and packets that another interface's filter drops", |e| {
            peer(e).probe = Some(Probe { to: net("10.9.0.2"), answered: false, refused: None, sizes: None });
            e.host.sysctls.insert("net.ipv4.conf.eth0.rp_filter".into(), "1".into());
            e.host.counters = counters(&[], &[("TcpExt.IPReversePathFilter", 30)]);
        }),
        ("a tick that was stolen", |e| {
            e.machine.cores = vec![CoreUse { ticks: 25, steal: 0.08, ..CoreUse::default() }]
        }),
        ("IPv6 that is off for other interfaces", |e| {
            peer(e).allowed_ips.push(net("fd09::2/128"));
            e.host.sysctls.insert("net.ipv6.conf.all.disable_ipv6".into(), "1".into());
        }),
        ("a gateway with old-style rules", |e| {
            gateway(e);
            e.host.has_legacy_rules = true;
        }),
        ("a firewall that may drop what comes in, beside a client that came in", |e| {
            peer(e).is_expected = false;
            e.host.port_obstacles = vec![obstacle(false)];
        }),
        ("a firewall that drops what comes in by the uplink, and clients of another network", |e| {
            peer(e).is_expected = false;
            peer(e).endpoint_way = Some(device("lan0"));
            e.host.port_obstacles = vec![obstacle(true)];
        }),
        ("a client that is off, beside one whose key was removed long ago", |e| {
            let off = Peer {
                is_expected: false,
                handshake_age: Some(Duration::from_secs(90_000)),
                ..e.tunnel.peers[0].clone()
            };
            e.tunnel.peers.push(off);
            e.tunnel.counters.before.insert("drop_unknown_peer".into(), 900);
            counted(e, "drop_unknown_peer", 900);
        }),
    ];
    for (what, change) in usual {
        let mut evidence = healthy();
        change(&mut evidence);
        assert_eq!(found(&evidence), Vec::<&str>::new(), "{what}");
    }
}

#[test]
fn what_may_be_meant_so_is_a_note() {
    let usual: [Fault; 4] = [
        ("nat-without-keepalive", |e| {
            e.host.links[0].addresses = vec![net("192.168.1.2/24")];
            peer(e).handshake_age_before = Some(Duration::from_secs(400));
        }),
        ("traffic-unanswered", |e| {
            (peer(e).sent, peer(e).received) = (700, 124);
            peer(e).probe = Some(Probe { to: net("10.9.0.2"), answered: false, refused: None, sizes: None });
        }),
        ("ipv6-disabled", |e| {
            peer(e).allowed_ips.push(net("::/0"));
            e.host.sysctls.insert("net.ipv6.conf.wg0.disable_ipv6".into(), "1".into());
        }),
        ("handshake-from-unknown-key", |e| {
            let never = Peer { is_expected: false, handshake_age: None, ..e.tunnel.peers[0].clone() };
            e.tunnel.peers.push(Peer { probe: None, ..never });
            e.tunnel.counters.before.insert("drop_unknown_peer".into(), 900);
            counted(e, "drop_unknown_peer", 900);
        }),
    ];
    for (id, change) in usual {
        let mut evidence = healthy();
        change(&mut evidence);
        let findings = examine(&evidence);
        let found: Vec<_> = findings.iter().map(|finding| (finding.id, finding.severity)).collect();
        assert_eq!(found, [(id, Severity::Note)]);
    }
}

/// Returns the errors, warnings and notes of `--security`.
fn judged(change: impl Fn(&mut Evidence)) -> Vec<(&'static str, Severity)> {
    let mut evidence = healthy();
    change(&mut evidence);
    security(&evidence).iter().map(|finding| (finding.id, finding.severity)).collect()
}

#[test]
fn what_is_in_force_has_no_finding() {
    assert_eq!(judged(|_| {}), []);
    assert_eq!(judged(guarded), []);
    assert_eq!(judged(switched), []);
    let open = [("routes-past-the-tunnel", Severity::Note)];
    assert_eq!(judged(full), open);
    let usual: [Fault; 9] = [
        ("a private route", |e| e.host.routes_past = vec![past("10.0.0.0/8", None, 16)]),
        ("a link's own public network", |e| e.host.routes_past = vec![past("198.51.100.0/24", None, 2)]),
        ("an excluded network", |e| {
            e.tunnel.protection.excluded = vec![net("203.0.113.0/24")];
            e.host.routes_past = vec![past("203.0.113.0/25", None, 4)];
        }),
        ("a name server behind the tunnel", |e| e.host.name_servers = vec![(net("10.9.0.1"), Some(device("wg0")))]),
        ("a name server of this host", |e| e.host.name_servers = vec![(net("127.0.0.1"), Some(device("lo")))]),
        ("a name server behind another tunnel", |e| {
            e.host.links.push(Link { name: "tun0".into(), up: true, is_tunnel: true, ..Link::default() });
            e.host.name_servers = vec![(net("10.8.0.1"), Some(device("tun0")))];
        }),
        ("a name server without a way", |e| e.host.name_servers = vec![(net("192.168.77.2"), None)]),
        ("no tables that can be read", |e| e.host.tables = None),
        ("a server, which forwards what its administrator lets pass", |e| {
            e.host.sysctls.insert("net.ipv4.conf.eth0.forwarding".into(), "1".into());
        }),
    ];
    for (what, change) in usual {
        let found = judged(|e| {
            full(e);
            change(e);
        });
        assert_eq!(found, open, "{what}");
    }
}

#[test]
fn each_hole_of_a_kill_switch_is_found() {
    let port = r#"{"protocol":17,"ports":[123,123],"verdict":"accept"}"#;
    let known = r#"{"states":2,"verdict":"accept"}"#;
    let mark = r#"{"conditions":[{"mark":[true,[7]]}],"verdict":"accept"}"#;
    let user = r#"{"has_others":true,"verdict":"accept"}"#;
    let local = r#"{"family":"v4","destination":{"first":"192.168.9.0","last":"192.168.9.255"},"verdict":"accept"}"#;
    let holes = |chain: &str, rule: &str| {
        judged(|e| {
            switched(e);
            e.host.sysctls.insert("net.ipv4.conf.eth1.forwarding".into(), "1".into());
            e.host.ruleset = changed(KILL_SWITCH, &[], Some((&format!("inet linerate-wg0 {chain}"), rule)));
        })
    };
    let hole = [("kill-switch-hole", Severity::Error)];
    for rule in [TO_PUBLIC, port, known, mark] {
        assert!(holes("output", rule).starts_with(&hole), "{rule}");
        assert!(holes("forward", rule).starts_with(&hole), "{rule}");
    }
    assert_eq!(holes("output", user)[0], ("kill-switch-hole", Severity::Warning), "an unknown condition");
    assert_eq!(holes("output", local), [], "ExcludeLAN");
    let in_force = |change: fn(&mut Evidence)| {
        judged(|e| {
            switched(e);
            change(e);
        })
    };
    assert_eq!(in_force(|e| e.host.tables = Some(vec!["inet other".into()])), hole);
    assert_eq!(in_force(|e| e.host.ruleset = changed(KILL_SWITCH, &["linerate-wg0"], None)), hole, "without rules");
    let accepts = in_force(|e| {
        e.host.ruleset = Some(Ruleset::of(chains(&KILL_SWITCH.replace("true,\"rules", "false,\"rules"))));
    });
    assert_eq!(accepts, hole);
    let excluded = in_force(|e| {
        e.tunnel.protection.excluded = vec![net("203.0.113.0/24")];
        e.host.ruleset = changed(KILL_SWITCH, &[], Some(("inet linerate-wg0 output", TO_PUBLIC)));
    });
    assert_eq!(excluded, []);
    let other = in_force(|e| {
        let all = [vec![chain(ForeignHook::Output, false, r#"{"verdict":"accept"}"#)], chains(KILL_SWITCH)];
        e.host.ruleset = Some(Ruleset::of(all.concat()));
    });
    assert_eq!(other, [], "what another table accepts, this one drops");
}

#[test]
fn what_a_gateways_file_forbids_is_found_where_it_passes() {
    let without = |words: &[&str]| {
        judged(|e| {
            guarded(e);
            e.host.ruleset = changed(GATEWAY, words, None);
        })
    };
    let missing = ("protection-missing", Severity::Error);
    assert_eq!(without(&["forward rule 1 "]), [missing]);
    assert_eq!(without(&["nat rule 2 "]), [missing]);
    assert_eq!(without(&["wg0 forward rule 5 ", "wg0 forward rule 8 "]).first(), Some(&missing));
    assert_eq!(without(&["linerate_gateway-wg0"]), [missing], "without rules");
    // Without forwarding nothing passes, so nothing is missing.
    let off = judged(|e| {
        guarded(e);
        e.host.sysctls.values_mut().for_each(|value| *value = "0".into());
        e.host.ruleset = changed(GATEWAY, &["linerate_gateway-wg0 forward", "linerate_forwarding"], None);
    });
    assert_eq!(off, []);
}

#[test]
fn what_others_have_a_host_forward_is_a_note() {
    let open = |e: &mut Evidence| {
        guarded(e);
        e.host.ruleset = changed(GATEWAY, &["linerate_forwarding"], None);
    };
    let found = |severity| [("forwards-between-others", severity); 2];
    assert_eq!(judged(open), found(Severity::Error));
    let by_others = |e: &mut Evidence| {
        open(e);
        e.tunnel.protection.sysctls.clear();
    };
    assert_eq!(judged(by_others), found(Severity::Note));
    let doubtful = |e: &mut Evidence| {
        open(e);
        let mut all = chains(GATEWAY);
        all.retain(|chain| chain.table != "inet linerate_forwarding");
        all.push(chain(ForeignHook::Forward, true, r#"{"has_others":true,"verdict":"accept"}"#));
        e.host.ruleset = Some(Ruleset::of(all));
    };
    assert_eq!(judged(doubtful), found(Severity::Warning), "they may pass");
    let by_hand = |e: &mut Evidence| {
        gateway(e);
        e.host.uplink = None;
        e.host.sysctls.insert("net.ipv4.conf.eth0.forwarding".into(), "1".into());
        e.host.metadata = vec![(net("169.254.169.254"), device("eth0"))];
    };
    assert_eq!(judged(by_hand), [("pool-spoofable", Severity::Note), ("metadata-reachable", Severity::Note)]);
}

#[test]
fn a_strict_reverse_path_filter_drops_pretended_clients() {
    let found = judged(|e| {
        guarded(e);
        e.host.ruleset = changed(GATEWAY, &["sources rule 3 "], None);
        e.host.sysctls.insert("net.ipv4.conf.all.rp_filter".into(), "1".into());
    });
    assert_eq!(found, []);
}

#[test]
fn routes_that_a_network_may_have_set_are_listed() {
    for (to, via, protocol) in [
        ("203.0.113.0/24", Some("198.51.100.9"), 16),
        ("128.0.0.0/1", None, 2),
        ("2000::/3", None, 2),
        ("2001:db8:9::/64", None, 9),
        ("8.8.8.8/32", Some("192.168.77.2"), 3),
    ] {
        let found = judged(|e| {
            full(e);
            e.host.routes_past = vec![past(to, via.map(net), protocol)];
        });
        assert_eq!(found[0], ("routes-past-the-tunnel", Severity::Warning), "{to}");
    }
    let mut evidence = healthy();
    full(&mut evidence);
    evidence.host.routes_past = vec![past("2000::/3", None, 9)];
    assert_eq!(security(&evidence)[0].why, "2000::/3 over eth0 (proto ra)");
}

#[test]
fn a_link_local_address_makes_no_ipv6_gateway() {
    let mut evidence = healthy();
    gateway(&mut evidence);
    evidence.host.uplink = None;
    evidence.tunnel.addresses.push(net("fe80::1/64"));
    evidence.host.sysctls.insert("net.ipv6.conf.all.forwarding".into(), "0".into());
    assert_eq!(found(&evidence), Vec::<&str>::new());
}

#[test]
fn the_interface_in_a_command_may_have_a_dot() {
    let mut evidence = healthy();
    silent(&mut evidence);
    peer(&mut evidence).endpoint_way = Some(device("eth0.7"));
    evidence.host.sysctls.insert("net.ipv4.conf.eth0.7.rp_filter".into(), "1".into());
    evidence.host.counters = counters(&[], &[("TcpExt.IPReversePathFilter", 3)]);
    let findings = examine(&evidence);
    assert_eq!(findings[0].remedy, "`sysctl -w net.ipv4.conf.eth0/7.rp_filter=2` (loose)");
}

#[test]
fn an_old_counter_does_not_explain_one_peer_of_several() {
    let mut evidence = healthy();
    silent(&mut evidence);
    evidence.tunnel.peers.push(healthy().tunnel.peers[0].clone());
    evidence.tunnel.counters.before.insert("drop_unknown_peer".into(), 900);
    counted(&mut evidence, "drop_unknown_peer", 900);
    assert_eq!(found(&evidence), ["no-handshake-nothing-arrives", "handshake-from-unknown-key"]);
    counted(&mut evidence, "drop_unknown_peer", 901);
    assert_eq!(found(&evidence), ["handshake-from-unknown-key"], "somebody tries at this moment");
}

#[test]
fn of_many_peers_with_one_fault_only_some_are_listed() {
    let mut evidence = healthy();
    silent(&mut evidence);
    let one = evidence.tunnel.peers[0].clone();
    evidence.tunnel.peers = (0..1000).map(|number| Peer { label: format!("p{number}"), ..one.clone() }).collect();
    let findings = examine(&evidence);
    assert_eq!(findings.len(), 9);
    assert_eq!((findings[7].peer.as_deref(), findings[8].peer.as_deref()), (Some("p7"), None));
    assert!(findings[8].what.contains("992 more") && findings[8].why.starts_with("p8, p9, "), "{:?}", findings[8]);
}

#[test]
fn translation_for_other_networks_makes_no_gateway() {
    let mut evidence = healthy();
    peer(&mut evidence).is_expected = false;
    let of_others = r#"{"family":"v4","source":{"first":"172.17.0.0","last":"172.17.255.255"},"changes":["source"]}"#;
    evidence.host.ruleset = ruleset(ForeignHook::Postrouting, false, of_others);
    evidence.host.sysctls.insert("net.ipv4.conf.wg0.forwarding".into(), "0".into());
    assert_eq!(found(&evidence), Vec::<&str>::new());
    evidence.host.ruleset = ruleset(ForeignHook::Postrouting, false, MASQUERADE);
    assert_eq!(found(&evidence), ["forwarding-off", "mss-not-limited"]);
}

proptest! {
    /// Whatever is wrong at once: nothing panics, each finding is of a known kind and says something.
    #[test]
    fn any_faults_together_are_told_in_order(chosen in prop::collection::vec(0..FAULTS.len(), 0..6), bytes: u64, address: u32) {
        let mut evidence = healthy();
        chosen.iter().for_each(|index| FAULTS[*index].1(&mut evidence));
        peer(&mut evidence).received = bytes;
        peer(&mut evidence).allowed_ips.push(IpAddr::from(address.to_be_bytes()).into());
        let findings = examine(&evidence);
        prop_assert!(findings.is_sorted_by_key(|finding| finding.severity));
        for finding in findings {
            prop_assert!(KINDS.iter().any(|kind| kind.id == finding.id));
            prop_assert!(!finding.what.is_empty() && !finding.why.is_empty() && !finding.remedy.is_empty());
        }
    }
}
