//! The reader of `nft`, and what becomes of packets in what it has read.

use linerate_host::spec::AddressRange;
use linerate_host::state::{Exception, FirewallTool};
use linerate_host::verdict::TCP;
use proptest::prelude::*;

use super::*;

/// A chain `c` at a hook, with rules.
fn ruleset(hook: &str, policy: &str, rules: &[&str]) -> Ruleset {
    let rules = rules
        .iter()
        .map(|rule| format!(r#",{{"rule":{{"family":"inet","table":"t","chain":"c","handle":1,"expr":[{rule}]}}}}"#));
    let json = format!(
        r#"{{"nftables":[{{"metainfo":{{}}}},{{"table":{{"family":"inet","name":"t","handle":1}}}},
        {{"chain":{{"family":"inet","table":"t","name":"c","handle":1,"type":"filter","hook":"{hook}","prio":0,
        "policy":"{policy}"}}}}{}]}}"#,
        rules.collect::<String>()
    );
    Ruleset::parse(&json).unwrap()
}

const TO_PORT: &str = r#"{"match":{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":51820}}"#;
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
    let rule = |verdict| ForeignRule { protocol: Some(17), ports: Some((51820, 51820)), verdict, ..Default::default() };
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
    let [ours, other] = ["eth0", "eth1"].map(|incoming| Packet { incoming, ..packet.clone() });
    assert!(!drops(name, back, &ours) && drops(name, back, &other));
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
    assert_eq!(usual.drops(&Packet { protocol: ICMP, port: None, ..packet.clone() }), None);
    assert!(usual.drops(&Packet { protocol: ICMPV6, port: None, is_v6: true, ..packet }).is_some());
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
        protocol: TCP,
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
    let base = Packet { hook: "forward", protocol: TCP, ..Packet::default() };
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
    let base = Packet { hook: "output", protocol: TCP, ..Packet::default() };
    let found = all.accepted_by("inet t", &base);
    let destination = Some([203, 0, 113, 0].into());
    assert_eq!(found, [Packet { protocol: UDP, port: Some(51820), destination, ..base.clone() }]);
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
    let echo = Packet { protocol: ICMP, port: None, ..to_port("input", 1, true, false) };
    assert_eq!(differs("udp", "dport", "53").drops(&echo), None);
    assert!(differs("udp", "dport", "53").drops(&to_port("input", 1, false, false)).is_some());
    assert_eq!(differs("ip", "saddr", "\"10.0.0.1\"").drops(&to_port("input", 1, false, true)), None);
}

#[test]
fn where_the_mark_is_not_known_nothing_is_said() {
    let accept = rule(&[r#"{"match":{"op":"==","left":{"meta":{"key":"mark"}},"right":1}}"#, ACCEPT]);
    let packet = to_port("input", 51820, false, false);
    let mark = r#"{"mangle":{"key":{"meta":{"key":"mark"}},"value":{"ct":{"key":"mark"}}}}"#;
    assert!(ruleset("input", "drop", &[&accept]).drops(&packet).is_some());
    assert_eq!(ruleset("input", "drop", &[mark, &accept]).drops(&packet), None);
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
    assert!(nat.translates(&v4_net) && !nat.translates(&v6_net) && !nat.translates(&"192.0.2.0/24".parse().unwrap()));
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
