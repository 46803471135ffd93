//! Plans for Linux by example: what wg-quick fails at, what it does not have, and what is said of it.

use linerate_host::plan::{Hooks, Plan, PlanError, down, gateway, messages, reload, resume, undo, up};
use linerate_host::spec::{Compat, Dns, Gateway, HostSpec, RouteConflict, Table};
use linerate_host::state::{HostState, Link};
use linerate_host::step::{AddressFamily, FirewallFamily, Implementation, MAIN, Phase, Route, Rule, Step};

#[test]
fn an_existing_route_stays_and_the_tunnel_comes_up_without_it() {
    let spec = tunnel(&["10.0.0.2/32"], &["192.168.1.0/24", "10.9.0.0/16"], &[]);
    let plan = planned(&spec, &home());
    assert_eq!(
        sentences(&plan),
        ["192.168.1.0/24 stays on wlan0: hosts in that network are not reachable through the tunnel"]
    );
    assert_eq!(routes(&plan), ["ip -4 route add 10.9.0.0/16 dev wg0"]);
}

#[test]
fn each_policy_for_existing_routes_does_what_its_name_says() {
    let with = |route_conflict| HostSpec { route_conflict, ..tunnel(&[], &["192.168.1.0/24"], &[]) };
    let plan = planned(&with(RouteConflict::Metric), &home());
    assert_eq!(routes(&plan), ["ip -4 route add 192.168.1.0/24 dev wg0 metric 1"]);
    assert!(sentences(&plan)[0].ends_with("while that route exists (its metric is 0, that of wg0 is 1)"));

    let plan = planned(&with(RouteConflict::Replace), &home());
    assert_eq!(
        routes(&plan),
        ["ip -4 route delete 192.168.1.0/24 dev wlan0", "ip -4 route add 192.168.1.0/24 dev wg0"]
    );
    assert_eq!(
        messages::as_commands(&undo(&plan.steps, &Hooks::default()))[1],
        "ip -4 route add 192.168.1.0/24 dev wlan0"
    );

    let refused = up(&with(RouteConflict::Fail), &Hooks::default(), Implementation::Daemon, &home(), Compat::Native);
    assert!(refused.is_err_and(|PlanError(sentence)| sentence.contains("on wlan0")));
}

#[test]
fn a_gateways_table_is_there_before_the_first_packet_can_come() {
    let mut spec = tunnel(&["10.0.0.1/24", "fd00::1/64"], &["10.0.0.2/32"], &[]);
    spec.forwarding.gateway = Gateway::Interfaces(vec!["wlan0".parse().expect("it is an interface")]);
    let plan = planned(&spec, &home());
    let first = |is: fn(&Step) -> bool| plan.steps.iter().position(is).expect("it is among the steps");
    let table = first(|step| matches!(step, Step::AddGateway(_)));
    let up = first(|step| matches!(step, Step::LinkUp { .. }));
    assert!(table < up, "{:?}", plan.steps);
}

#[test]
fn an_uplink_has_the_best_default_route_and_not_only_an_advertised_one() {
    let default = |to: &str, device: &str, metric, protocol| {
        let via = Some(if to == "::/0" { "fe80::1" } else { "192.168.1.1" }.parse().expect("it is an address"));
        Route { via, metric, protocol, scope: 0, ..route(to, device, MAIN) }
    };
    let (v4, v6) = ("0.0.0.0/0", "::/0");
    let of = |routes: &[Route], before: Option<&[&str]>| {
        let mut host = home();
        host.routes = routes.to_vec();
        host.links.extend(["e0", "e1"].map(|name| Link { name: name.into(), ..Link::default() }));
        let mut spec = tunnel(&["10.0.0.1/24"], &[], &[]);
        spec.forwarding.gateway = Gateway::Auto;
        let interfaces = |names: &[&str]| names.iter().map(|name| name.parse().expect("it is an interface")).collect();
        let before = before.map(|names| Gateway::Interfaces(interfaces(names)));
        let warnings = gateway::resolve(&mut spec, &host, before.as_ref());
        let Gateway::Interfaces(found) = spec.forwarding.gateway else { panic!("auto stands for interfaces") };
        (found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), warnings.len())
    };
    // The default route with the lower metric wins, in each family by itself.
    assert_eq!(of(&[default(v4, "e0", 100, 16), default(v4, "e1", 600, 16)], None), ("e0".into(), 0));
    assert_eq!(of(&[default(v4, "e0", 100, 16), default(v6, "e1", 1024, 3)], None), ("e0 e1".into(), 0));
    // An advertisement on the same link changes nothing, and one on another link is ignored.
    assert_eq!(of(&[default(v4, "e0", 100, 16), default(v6, "e0", 1024, 9)], None), ("e0".into(), 0));
    assert_eq!(of(&[default(v4, "e0", 100, 16), default(v6, "e1", 1024, 9)], None), ("e0".into(), 1));
    // Without any other default route, `up` accepts an advertised one if there is exactly one such link.
    assert_eq!(of(&[default(v6, "e0", 1024, 9)], None), ("e0".into(), 0));
    assert_eq!(of(&[default(v6, "e0", 1024, 9), default(v6, "e1", 1024, 9)], None), ("".into(), 2));
    // While the tunnel is up, advertisements add no link to those that it had.
    assert_eq!(of(&[default(v6, "e0", 1024, 9), default(v6, "e1", 1024, 9)], Some(&["e0"])), ("e0".into(), 1));
    assert_eq!(of(&[default(v6, "e1", 1024, 9)], Some(&[])), ("".into(), 1));
    assert_eq!(of(&[default(v4, "e1", 100, 16)], Some(&["e0"])), ("e1".into(), 0));
    // On a host that has no other link there is no way out but that one.
    let only = |device: &str| {
        let mut host = home();
        host.links.retain(|link| link.name == "lo");
        host.links.push(Link { name: device.into(), ..Link::default() });
        host.routes = vec![default(v6, "e1", 1024, 9)];
        let mut spec = tunnel(&["10.0.0.1/24"], &[], &[]);
        spec.forwarding.gateway = Gateway::Auto;
        gateway::resolve(&mut spec, &host, Some(&Gateway::Interfaces(Vec::new())));
        spec.forwarding.gateway
    };
    assert_eq!(only("e1"), Gateway::Interfaces(vec!["e1".parse().expect("it is an interface")]));
    assert_eq!(only("e0"), Gateway::Interfaces(Vec::new()));
    // An on-link prefix `::/0` does not make an uplink either.
    assert_eq!(of(&[default(v4, "e0", 100, 16), default(v6, "e1", 256, 2)], None), ("e0".into(), 1));
}

#[test]
fn the_pool_of_a_gateway_is_what_nobody_outside_may_send_from() {
    let pool = |addresses: &[&str], allowed: &[&str], endpoints: &[&str]| {
        let mut spec = tunnel(addresses, allowed, endpoints);
        spec.forwarding.gateway = Gateway::Interfaces(vec!["wlan0".parse().expect("it is an interface")]);
        let table = planned(&spec, &home()).steps.into_iter().find_map(|step| match step {
            Step::AddGateway(table) => table.gateway,
            _ => None,
        });
        let open = table.expect("it has a gateway");
        let texts = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        (texts(&open.clients), texts(&open.behind_peers))
    };
    let none = String::new;
    assert_eq!(pool(&["10.0.0.1/24", "fd00::1/64"], &["10.0.0.2/32"], &[]), ("10.0.0.0/24 fd00::/64".into(), none()));
    assert_eq!(
        pool(&["10.0.0.1/32"], &["10.0.0.2/32", "192.168.9.0/24"], &[]),
        ("10.0.0.1/32 10.0.0.2/32".into(), "192.168.9.0/24".into())
    );
    // A network that the tunnel shares with a link is not the tunnel's alone.
    assert_eq!(
        pool(&["192.168.1.200/24"], &["192.168.1.201/32"], &[]),
        ("192.168.1.201/32".into(), "192.168.1.0/24".into())
    );
    // The tunnel's own datagrams come from endpoints, and link-local addresses are everywhere.
    let inside = pool(&["10.0.0.1/24", "fe80::1/64"], &["203.0.113.0/24", "203.0.114.0/24"], &["203.0.113.5:51820"]);
    assert_eq!(inside, ("10.0.0.0/24".into(), "203.0.114.0/24".into()));
    // Almost everything is behind a provider's peer.
    let wide = ["0.0.0.0/5", "8.0.0.0/7", "11.0.0.0/8", "172.16.0.0/12"];
    assert_eq!(pool(&["10.0.0.1/24"], &wide, &[]), ("10.0.0.0/24".into(), "172.16.0.0/12".into()));
    assert_eq!(pool(&["10.0.0.1/24"], &["0.0.0.0/0", "203.0.113.7/32"], &[]), ("10.0.0.0/24".into(), none()));
}

#[test]
fn exclude_lan_takes_no_network_that_a_neighbour_can_make_up() {
    let spec = |addresses: &[&str], allowed: &[&str], excluded: &[&str]| HostSpec {
        exclude_lan: true,
        kill_switch: true,
        excluded: excluded.iter().map(|text| net(text)).collect(),
        ..tunnel(addresses, allowed, &[])
    };
    let announced = |network: &str| {
        let mut host = home();
        let protocol = if network.contains(':') { 9 } else { 2 };
        host.routes.push(Route { protocol, metric: 256, ..route(network, "wlan0", MAIN) });
        host
    };
    let switch = |spec: &HostSpec, host: &HostState| {
        let plan = up(spec, &Hooks::default(), Implementation::Daemon, host, Compat::Native).expect("it comes up");
        let [Step::AddFirewall(table)] = firewalls(&plan)[..] else { panic!("one table in {:?}", plan.steps) };
        (table.kill_switch.clone().expect("it is a kill switch"), table.kept_inside.clone(), sentences(&plan))
    };
    let full = spec(&["10.9.0.2/24"], &["0.0.0.0/0", "::/0"], &[]);
    for public in ["128.0.0.0/1", "2000::/3", "203.0.113.0/24", "f000::/4"] {
        let (excluded, _, said) = switch(&full, &announced(public));
        assert_eq!(excluded, [net("192.168.1.0/24")], "{public}");
        let named = |said: &String| said.contains(public) && said.contains("wlan0") && said.contains("ExcludedIPs");
        assert!(said.iter().any(named), "{said:?}");
    }
    for local in ["10.0.0.0/8", "172.20.0.0/16", "fd12::/64"] {
        let (excluded, ..) = switch(&spec(&[], &["0.0.0.0/0", "::/0"], &[]), &announced(local));
        assert!(excluded.contains(&net(local)), "{local}");
    }
    // Networks that the file routes into the tunnel stay inside, whatever a neighbour announces.
    let office = spec(&["10.9.0.2/24"], &["0.0.0.0/0", "10.20.0.0/16"], &[]);
    let (excluded, kept, _) = switch(&office, &announced("10.0.0.0/8"));
    assert_eq!(excluded, [net("192.168.1.0/24"), net("10.0.0.0/8")]);
    assert_eq!(kept, [net("10.9.0.0/24"), net("10.20.0.0/16")]);
    assert!(
        routes(&planned(&office, &announced("10.0.0.0/8")))
            .contains(&"ip -4 route add 10.20.0.0/16 dev wg0".to_owned())
    );
    for inside in ["10.9.0.128/25", "10.9.0.0/24", "10.20.0.0/16"] {
        let (excluded, kept, said) = switch(&office, &announced(inside));
        assert_eq!((&*excluded, &*kept), (&[net("192.168.1.0/24")][..], &[][..]), "{inside}");
        assert!(said.iter().any(|said| said.contains(inside) && said.contains("ExcludedIPs")), "{said:?}");
    }
    // The administrator may exclude such a network by name.
    let named = spec(&["10.9.0.2/24"], &["0.0.0.0/0"], &["128.0.0.0/1"]);
    assert!(switch(&named, &announced("128.0.0.0/1")).0.contains(&net("128.0.0.0/1")));
}

#[test]
fn a_full_tunnel_without_a_kill_switch_names_the_routes_past_it() {
    let said = |spec: &HostSpec, host: &HostState| {
        let plan = up(spec, &Hooks::default(), Implementation::Daemon, host, Compat::Native).expect("it comes up");
        let mut said = sentences(&plan);
        said.retain(|sentence| sentence.contains("more specific"));
        said
    };
    let full = tunnel(&["10.0.0.2/24"], &["0.0.0.0/0", "::/0"], &[]);
    let plain = said(&full, &home());
    assert!(plain[0].contains("IPv4 and IPv6 past wg0") && !plain[0].contains("now:"), "{plain:?}");
    assert!(plain[0].ends_with("`#! KillSwitch = true` prevents this"));
    let mut host = home();
    host.routes.push(Route {
        via: Some("192.168.1.1".parse().unwrap()),
        protocol: 16,
        ..route("203.0.113.0/24", "wlan0", MAIN)
    });
    assert!(said(&full, &host)[0].contains("(now: 203.0.113.0/24 on wlan0)"), "{:?}", said(&full, &host));
    let excluded = HostSpec { excluded: vec![net("203.0.112.0/23")], ..full.clone() };
    assert!(!said(&excluded, &host)[0].contains("now:"));
    let halves = tunnel(&["10.0.0.2/24"], &["0.0.0.0/1", "128.0.0.0/1"], &[]);
    assert_eq!(said(&halves, &host).len(), 1);
    assert_eq!(said(&HostSpec { kill_switch: true, ..full }, &host), [""; 0]);
    assert_eq!(said(&tunnel(&["10.0.0.2/24"], &["10.9.0.0/16"], &[]), &host), [""; 0]);
}

#[test]
fn a_conflicting_ipv6_route_that_is_preferred_is_named() {
    let mut host = home();
    execute(&mut host, &[Step::AddAddress { interface: "wlan0".to_owned(), address: net("2001:db8:1::5/64") }]);
    let plan = planned(&tunnel(&[], &["2001:db8:1::/64"], &[]), &host);
    assert_eq!(routes(&plan), ["ip -6 route add 2001:db8:1::/64 dev wg0"]);
    assert!(sentences(&plan)[0].starts_with("2001:db8:1::/64 stays on wlan0"));
}

#[test]
fn removing_one_of_two_full_tunnels_keeps_the_rules_of_the_other() {
    for (compat, has_ledger) in [(Compat::WgQuick, false), (Compat::WgQuick, true), (Compat::Native, false)] {
        let mut host = home();
        let one = tunnel(&["10.0.0.2/32"], &["0.0.0.0/0"], &[]);
        let other = HostSpec { interface: "wg1".to_owned(), ..one.clone() };
        let first = up(&one, &Hooks::default(), Implementation::Daemon, &host, compat).expect("it comes up");
        execute(&mut host, &first.steps);
        let second = up(&other, &Hooks::default(), Implementation::Daemon, &host, compat).expect("it comes up");
        execute(&mut host, &second.steps);
        assert_ne!(marks(&first), marks(&second));
        let steps = if has_ledger {
            undo(&first.steps, &Hooks::default())
        } else {
            down(&one, &Hooks::default(), &host, compat).steps
        };
        execute(&mut host, &steps);
        let left = host.rules.iter().filter(|rule| ![0, 32_766, 32_767].contains(&rule.priority));
        assert_eq!(by_priority(left.cloned().collect()), by_priority(rules(&second)));
    }
}

#[test]
fn two_tunnels_with_the_same_mark_in_their_files_come_up() {
    let mut host = home();
    for (interface, allowed) in [("wg0", "0.0.0.0/0"), ("wg1", "128.0.0.0/1")] {
        let spec = HostSpec {
            interface: interface.to_owned(),
            fwmark: Some(7777),
            excluded: vec![net("203.0.113.0/24")],
            ..tunnel(&[], &[allowed], &[])
        };
        let plan = up(&spec, &Hooks::default(), Implementation::Daemon, &host, Compat::Native).expect("it comes up");
        execute(&mut host, &plan.steps);
    }
}

#[test]
fn rules_and_tables_that_look_alike_are_left_alone() {
    let mut host = home();
    let spec = HostSpec { fwmark: Some(5182), ..tunnel(&["10.0.0.2/32"], &["0.0.0.0/0"], &[]) };
    let lookalikes = [rule(Some(51820), 51820), rule(Some(5182), 51820), rule(None, 5182), rule(Some(518), 5182)];
    for (priority, rule) in (100..).zip(lookalikes) {
        execute(&mut host, &[Step::AddRule(Rule { priority, ..rule })]);
    }
    let mut before = host.clone();
    let plan = planned(&spec, &host);
    execute(&mut host, &plan.steps);
    // One that came later is before ours, and is still not ours.
    let later = Step::AddRule(Rule { priority: 50, ..rule(Some(518), 5182) });
    execute(&mut host, std::slice::from_ref(&later));
    execute(&mut before, &[later]);
    let taken_away = down(&spec, &Hooks::default(), &host, Compat::WgQuick).steps;
    execute(&mut host, &taken_away);
    assert_eq!(by_priority(host.rules), by_priority(before.rules));
}

#[test]
fn a_disabled_address_family_is_skipped_with_one_warning() {
    let host = HostState { disabled_families: vec![AddressFamily::V6], ..home() };
    let plan = planned(&tunnel(&["10.0.0.2/32", "fd00::2/64"], &["0.0.0.0/0", "::/0"], &[]), &host);
    assert_eq!(
        sentences(&plan),
        ["IPv6 is disabled on this host: wg0 gets no address fd00::2/64 and no route to ::/0"]
    );
    assert!(rules(&plan).iter().all(|rule| rule.family == AddressFamily::V4));

    let narrow = HostSpec { mtu: Some(1200), ..tunnel(&["fd00::2/64"], &["::/0"], &[]) };
    assert!(sentences(&planned(&narrow, &home()))[0].starts_with("MTU 1200 is too small for IPv6"));
}

#[test]
fn an_endpoint_within_an_allowed_ip_is_kept_out_of_its_own_tunnel() {
    let plan =
        planned(&tunnel(&["10.0.0.2/32"], &["198.51.100.0/24", "10.9.0.0/16"], &["198.51.100.1:51820"]), &home());
    assert_eq!(
        messages::as_commands(&plan.steps)[4..],
        [
            "wg set wg0 fwmark 51820",
            "ip -4 rule add not fwmark 51820 table 51820",
            "ip -4 rule add table main suppress_prefixlength 24",
            "ip -4 route add 198.51.100.0/24 dev wg0 table 51820",
            "sysctl -q net.ipv4.conf.all.src_valid_mark=1",
            "nft -f /dev/fd/63",
            "ip -4 route add 10.9.0.0/16 dev wg0",
        ]
    );
    // The tunnel is not full: its address may be reached by other links, as on any host.
    assert!(firewalls(&plan).iter().all(|step| matches!(step, Step::AddFirewall(table) if table.addresses.is_empty())));

    let inside = tunnel(&["10.0.0.2/24"], &["10.0.0.0/24"], &["10.0.0.1:51820"]);
    assert!(sentences(&planned(&inside, &home()))[0].starts_with("the endpoint 10.0.0.1:51820 is in 10.0.0.0/24"));
}

#[test]
fn a_kill_switch_is_a_table_of_both_families_and_needs_nf_tables() {
    let spec = HostSpec {
        kill_switch: true,
        exclude_lan: true,
        excluded: vec![net("203.0.113.0/24")],
        ..tunnel(&["10.0.0.2/32"], &["10.9.0.0/16"], &[])
    };
    for compat in [Compat::WgQuick, Compat::Native] {
        let plan = up(&spec, &Hooks::default(), Implementation::Daemon, &home(), compat).expect("it comes up");
        let [Step::AddFirewall(table)] = firewalls(&plan)[..] else { panic!("one table in {:?}", plan.steps) };
        assert_eq!(table.family, FirewallFamily::Inet);
        assert_eq!(table.kill_switch, Some(vec![net("203.0.113.0/24"), net("192.168.1.0/24")]));
        assert_eq!((&table.kept_inside, &table.name_servers), (&vec![], &vec![]));
        assert!(sentences(&plan)[0].starts_with("KillSwitch: the name servers of the local network are blocked"));
        assert_eq!(table.fwmark, marks(&plan).first().copied());
    }
    let bare = HostState { nftables: false, ..home() };
    let refused = up(&spec, &Hooks::default(), Implementation::Daemon, &bare, Compat::WgQuick);
    assert!(refused.is_err_and(|PlanError(sentence)| sentence.contains("nf_tables")));
}

#[test]
fn excluded_prefixes_have_rules_before_those_of_the_tunnel() {
    let spec = HostSpec {
        excluded: vec![net("10.9.1.0/24"), net("172.16.0.0/12")],
        ..tunnel(&["10.0.0.2/32"], &["10.9.0.0/16", "172.16.5.0/24"], &[])
    };
    let plan = up(&spec, &Hooks::default(), Implementation::Daemon, &home(), Compat::Native).expect("it comes up");
    assert_eq!(sentences(&plan), ["no route to 172.16.5.0/24: it is excluded from the tunnel"]);
    let said: Vec<_> =
        by_priority(rules(&plan)).into_iter().map(|rule| messages::describe(&Step::AddRule(rule))).collect();
    assert_eq!(
        said,
        [
            "rule 17999 (IPv4): packets with mark 11820 use table main",
            "rule 19997 (IPv4): packets to 10.9.1.0/24 use table main",
            "rule 19998 (IPv4): packets use table main for prefixes longer than /16",
            "rule 19999 (IPv4): packets without mark 11820 use table 11820",
        ]
    );
}

#[test]
fn the_narrowest_path_to_an_endpoint_sets_the_mtu() {
    let mut host = home();
    for (net, mtu) in [("203.0.113.0/24", 1300), ("203.0.114.0/24", 68)] {
        execute(&mut host, &[Step::AddRoute(Route { mtu, ..route(net, "wlan0", MAIN) })]);
    }
    let mtu_of = |endpoints: &[&str]| {
        let plan = planned(&tunnel(&[], &[], endpoints), &host);
        plan.steps.iter().find_map(|step| match step {
            Step::SetMtu { mtu, .. } => Some(*mtu),
            _ => None,
        })
    };
    assert_eq!(mtu_of(&["198.51.100.1:1"]), Some(1420));
    assert_eq!(mtu_of(&["198.51.100.1:1", "203.0.113.1:1"]), Some(1220));
    assert_eq!(mtu_of(&["[2001:db8::1]:1"]), Some(1420));
    assert_eq!(mtu_of(&["203.0.114.1:1"]), Some(496), "a path has at least the MTU that every host takes");
}

#[test]
fn search_domains_alone_are_set_and_other_queries_go_elsewhere() {
    let dns = |servers: &[&str], search: &[&str]| Dns {
        servers: servers.iter().map(|text| text.parse().expect("it is an address")).collect(),
        search: search.iter().map(|text| (*text).to_owned()).collect(),
    };
    let is_exclusive = |dns: Dns, allowed: &[&str], compat| {
        let spec = HostSpec { dns, ..tunnel(&[], allowed, &[]) };
        let plan = up(&spec, &Hooks::default(), Implementation::Daemon, &home(), compat).expect("it comes up");
        plan.steps.iter().find_map(|step| match step {
            Step::SetDns { exclusive, .. } => Some(*exclusive),
            _ => None,
        })
    };
    assert_eq!(is_exclusive(dns(&[], &["example.org"]), &[], Compat::WgQuick), Some(false));
    assert_eq!(is_exclusive(dns(&["10.0.0.1"], &["example.org"]), &[], Compat::WgQuick), Some(true));
    assert_eq!(is_exclusive(dns(&["10.0.0.1"], &["example.org"]), &[], Compat::Native), Some(false));
    assert_eq!(is_exclusive(dns(&["10.0.0.1"], &["example.org"]), &["0.0.0.0/0"], Compat::Native), Some(true));
    assert_eq!(is_exclusive(Dns::default(), &[], Compat::WgQuick), None);
}

#[test]
fn a_reload_restores_what_others_removed_and_leaves_what_they_added() {
    let then = tunnel(&["10.0.0.2/24"], &["10.8.0.0/16", "10.9.0.0/16"], &[]);
    let now = HostSpec { allowed_ips: vec![net("10.8.0.0/16"), net("10.7.0.0/16")], ..then.clone() };
    let mut host = home();
    let done = planned(&then, &host).steps;
    execute(&mut host, &done);
    let interface = || "wg0".to_owned();
    execute(
        &mut host,
        &[
            Step::SetMtu { interface: interface(), mtu: 1300, before: 1420 },
            Step::AddAddress { interface: interface(), address: net("10.0.5.5/24") },
            Step::DeleteRoute(route("10.8.0.0/16", "wg0", MAIN)),
            Step::AddRoute(route("10.66.0.0/16", "wg0", MAIN)),
        ],
    );
    let plan = reload(&then, &now, &host, &done, Compat::WgQuick).expect("it is up");
    assert_eq!(
        messages::as_commands(&plan.steps),
        [
            "ip link set mtu 1420 dev wg0",
            "ip -4 route add 10.7.0.0/16 dev wg0",
            "ip -4 route add 10.8.0.0/16 dev wg0",
            "ip -4 route delete 10.9.0.0/16 dev wg0"
        ]
    );
}

#[test]
fn a_reload_keeps_the_mark_that_was_chosen() {
    let then = tunnel(&["10.0.0.2/24"], &["0.0.0.0/0"], &[]);
    let now = HostSpec { allowed_ips: vec![net("0.0.0.0/0"), net("::/0")], ..then.clone() };
    let mut host = home();
    let other = HostSpec { interface: "wg1".to_owned(), ..then.clone() };
    let first = planned(&other, &host).steps;
    execute(&mut host, &first);
    let done = planned(&then, &host).steps;
    execute(&mut host, &done);
    execute(&mut host, &undo(&first, &Hooks::default()));
    for ledger in [&done[..], &[]] {
        let plan = reload(&then, &now, &host, ledger, Compat::WgQuick).expect("it is up");
        assert_eq!(
            messages::as_commands(&plan.steps),
            [
                "ip -6 rule add not fwmark 51821 table 51821",
                "ip -6 rule add table main suppress_prefixlength 0",
                "ip -6 route add ::/0 dev wg0 table 51821",
                "nft -f /dev/fd/63",
            ]
        );
    }
}

#[test]
fn a_route_that_an_interrupted_reload_replaced_returns_when_its_place_is_cleared() {
    let foreign = route("10.0.0.0/24", "wlan0", MAIN);
    let then = tunnel(&["10.0.0.3/24"], &[], &[]);
    let replacing = HostSpec { route_conflict: RouteConflict::Replace, ..tunnel(&[], &["10.0.0.0/24"], &[]) };
    let empty = tunnel(&[], &[], &[]);
    let mut host = home();
    execute(&mut host, &[Step::AddRoute(foreign.clone())]);
    let done = planned(&then, &host).steps;
    execute(&mut host, &done);
    let pending = reload(&then, &replacing, &host, &done, Compat::WgQuick).expect("it is up").steps;
    execute(&mut host, &pending[..2]);
    assert_eq!(
        messages::as_commands(&pending[..2]),
        ["ip -4 route delete 10.0.0.0/24 dev wlan0", "ip -4 address delete 10.0.0.3/24 dev wg0"]
    );

    // Both in one reload, and first back to the file as it was, whose address takes the route's place.
    for files in [&[&empty][..], &[&then, &empty]] {
        let (mut host, mut done, mut pending) = (host.clone(), done.clone(), pending.clone());
        let mut before = &then;
        for file in files {
            let next = resume(before, file, &host, &done, &pending, Compat::WgQuick).expect("it is up");
            execute(&mut host, &[next.rollback.steps, next.plan.steps.clone()].concat());
            done.extend([next.rollback.not_undone, next.plan.steps].concat());
            pending.clear();
            before = file;
        }
        assert!(host.routes.contains(&foreign), "after {done:?}");
        execute(&mut host, &undo(&done, &Hooks::default()));
        assert!(host.routes.contains(&foreign), "after {done:?}");
    }
}

#[test]
fn name_servers_that_were_set_twice_are_removed_once() {
    let dns = |server: &str| Dns { servers: vec![server.parse().expect("it is an address")], search: Vec::new() };
    let then = HostSpec { dns: dns("10.0.0.1"), ..tunnel(&[], &[], &[]) };
    let now = HostSpec { dns: dns("10.0.0.9"), ..then.clone() };
    let mut host = home();
    let mut done = planned(&then, &host).steps;
    execute(&mut host, &done);
    done.extend(reload(&then, &now, &host, &done, Compat::WgQuick).expect("it is up").steps);
    assert_eq!(done.iter().filter(|step| matches!(step, Step::SetDns { .. })).count(), 2);
    let undone = ["ip link delete dev wg0", "edit /etc/resolv.conf without wg0"];
    assert_eq!(messages::as_commands(&undo(&done, &Hooks::default())), undone);

    let without = HostSpec { dns: Dns::default(), ..now.clone() };
    done.extend(reload(&now, &without, &host, &done, Compat::WgQuick).expect("it is up").steps);
    assert_eq!(messages::as_commands(&undo(&done, &Hooks::default())), ["ip link delete dev wg0"]);
}

#[test]
fn the_hooks_that_ran_decide_which_hooks_undo_them() {
    let command = |phase| (phase, format!("{phase:?}"));
    let hooks =
        Hooks { commands: [Phase::PreUp, Phase::PostUp, Phase::PreDown, Phase::PostDown].map(command).to_vec() };
    let plan =
        up(&tunnel(&[], &[], &[]), &hooks, Implementation::Daemon, &home(), Compat::WgQuick).expect("it comes up");
    let commands = |done: &[Step]| messages::as_commands(&undo(done, &hooks.undoing(done)));
    assert_eq!(commands(&plan.steps), ["PreDown", "ip link delete dev wg0", "PostDown"]);
    assert_eq!(commands(&plan.steps[..2]), ["ip link delete dev wg0", "PostDown"]);
    assert_eq!(commands(&plan.steps[..1]), ["ip link delete dev wg0"]);
    assert!(commands(&[]).is_empty());
}

#[test]
fn twenty_thousand_routes_are_planned_and_undone_by_one_step() {
    let allowed: Vec<String> =
        (0..20_000).map(|n| format!("10.{}.{}.{}/32", n / 65_536, n / 256 % 256, n % 256)).collect();
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    let spec = tunnel(&["10.255.0.2/32"], &allowed, &["198.51.100.1:1", "203.0.113.1:1"]);
    let mut host = home();
    for n in 0..20_000 {
        host.routes.push(Route {
            table: 7,
            ..route(&format!("172.{}.{}.{}/32", n / 65_536, n / 256 % 256, n % 256), "wlan0", 7)
        });
    }
    // Pairs of routes are nowhere compared with each other, which would be 400 million comparisons each time.
    let plan = planned(&spec, &host);
    assert_eq!(plan.steps.len(), 20_005);
    assert_eq!(undo(&plan.steps, &Hooks::default()).len(), 1);
}

#[test]
fn an_interface_that_exists_is_not_taken_over() {
    let exists = HostSpec { interface: "wlan0".to_owned(), ..tunnel(&[], &[], &[]) };
    let refused = up(&exists, &Hooks::default(), Implementation::Daemon, &home(), Compat::WgQuick);
    assert_eq!(refused, Err(PlanError("`wlan0' already exists".to_owned())));
    let refused = reload(&tunnel(&[], &[], &[]), &exists, &HostState::default(), &[], Compat::WgQuick);
    assert!(refused.is_err());
}

#[test]
fn a_table_given_in_the_file_gets_routes_and_no_rules() {
    let spec = HostSpec {
        table: Table::Number(7),
        ..tunnel(&["10.0.0.2/24"], &["0.0.0.0/0", "10.0.0.0/24", "198.51.100.0/24"], &["198.51.100.1:1"])
    };
    let plan = planned(&spec, &home());
    assert_eq!(
        routes(&plan),
        [
            "ip -4 route add 198.51.100.0/24 dev wg0 table 7",
            "ip -4 route add 10.0.0.0/24 dev wg0 table 7",
            "ip -4 route add 0.0.0.0/0 dev wg0 table 7"
        ]
    );
    assert!(rules(&plan).is_empty() && marks(&plan).is_empty());
}

/// A laptop in its wireless network.
fn home() -> HostState {
    let rules = [(0, 255), (32_766, MAIN), (32_767, 253)];
    let of_family = |family| rules.map(|(priority, table)| Rule { family, priority, ..rule(None, table) });
    let mut host = HostState {
        nftables: true,
        rules: [AddressFamily::V4, AddressFamily::V6].into_iter().flat_map(of_family).collect(),
        ..HostState::default()
    };
    host.sysctls.insert("net.ipv4.conf.all.src_valid_mark".to_owned(), "0".to_owned());
    let wlan0 = || "wlan0".to_owned();
    let gateway = Some("192.168.1.1".parse().expect("it is an address"));
    execute(
        &mut host,
        &[
            Step::AddLink { interface: wlan0(), implementation: Implementation::Daemon },
            Step::SetMtu { interface: wlan0(), mtu: 1500, before: 0 },
            Step::LinkUp { interface: wlan0() },
            Step::AddAddress { interface: wlan0(), address: net("192.168.1.23/24") },
            Step::AddRoute(Route { via: gateway, scope: 0, metric: 600, ..route("0.0.0.0/0", "wlan0", MAIN) }),
        ],
    );
    host
}

fn tunnel(addresses: &[&str], allowed_ips: &[&str], endpoints: &[&str]) -> HostSpec {
    HostSpec {
        interface: "wg0".to_owned(),
        addresses: addresses.iter().copied().map(net).collect(),
        allowed_ips: allowed_ips.iter().copied().map(net).collect(),
        endpoints: endpoints.iter().map(|text| text.parse().expect("it is an endpoint")).collect(),
        ..HostSpec::default()
    }
}

fn planned(spec: &HostSpec, host: &HostState) -> Plan {
    up(spec, &Hooks::default(), Implementation::Daemon, host, Compat::WgQuick).expect("it comes up")
}

fn execute(host: &mut HostState, steps: &[Step]) {
    for step in steps {
        host.apply(step).unwrap_or_else(|refused| panic!("{refused}: {step:?}"));
    }
}

fn net(text: &str) -> ipnet::IpNet {
    text.parse().expect("it is a prefix")
}

fn route(to: &str, device: &str, table: u32) -> Route {
    Route {
        to: net(to),
        device: Some(device.to_owned()),
        via: None,
        table,
        metric: 0,
        protocol: 3,
        scope: 253,
        source: None,
        mtu: 0,
        onlink: false,
    }
}

fn rule(not_marked: Option<u32>, table: u32) -> Rule {
    Rule {
        family: AddressFamily::V4,
        priority: 0,
        not: not_marked.is_some(),
        fwmark: not_marked,
        to: None,
        table,
        suppress_prefixlength: None,
        protocol: 0,
    }
}

fn sentences(plan: &Plan) -> Vec<String> {
    plan.warnings.iter().map(ToString::to_string).collect()
}

fn routes(plan: &Plan) -> Vec<String> {
    messages::as_commands(&plan.steps).into_iter().filter(|line| line.contains(" route ")).collect()
}

fn rules(plan: &Plan) -> Vec<Rule> {
    let rules = plan.steps.iter().filter_map(|step| match step {
        Step::AddRule(rule) => Some(rule.clone()),
        _ => None,
    });
    rules.collect()
}

fn by_priority(mut rules: Vec<Rule>) -> Vec<Rule> {
    rules.sort_by_key(|rule| (rule.family, rule.priority));
    rules
}

fn marks(plan: &Plan) -> Vec<u32> {
    let marks = plan.steps.iter().filter_map(|step| match step {
        Step::SetFwmark { fwmark, .. } => Some(*fwmark),
        _ => None,
    });
    marks.collect()
}

fn firewalls(plan: &Plan) -> Vec<&Step> {
    plan.steps.iter().filter(|step| matches!(step, Step::AddFirewall(_))).collect()
}

#[test]
fn a_rule_before_those_of_the_tunnel_is_told() {
    let full = tunnel(&["10.0.0.2/24"], &["0.0.0.0/0", "192.168.7.0/24"], &["192.0.2.1:51820"]);
    let of_isp = |priority| Rule {
        family: AddressFamily::V4,
        priority,
        not: false,
        fwmark: None,
        to: None,
        table: 100,
        suppress_prefixlength: None,
        protocol: 0,
    };
    let default = |table| Route { device: Some("eth0".into()), ..route("0.0.0.0/0", "eth0", table) };
    let warned = |spec: &HostSpec, rule: Rule, routes: &[Route], compat| {
        let mut host = home();
        host.rules.push(rule);
        host.routes.extend_from_slice(routes);
        let plan = up(spec, &Hooks::default(), Implementation::Daemon, &host, compat).expect("it can come up");
        plan.warnings.iter().filter(|warning| warning.to_string().contains("comes before those of the tunnel")).count()
    };
    let native = |rule, routes: &[Route]| warned(&full, rule, routes, Compat::Native);
    assert_eq!(native(of_isp(1000), &[default(100)]), 1);
    assert_eq!(native(Rule { not: true, fwmark: Some(5), ..of_isp(1000) }, &[default(100)]), 1, "another tunnel's");
    assert_eq!(native(Rule { table: MAIN, ..of_isp(5000) }, &[]), 1, "its default route is as wide");
    assert_eq!(native(of_isp(20_000), &[default(100)]), 0, "it comes after");
    assert_eq!(native(Rule { fwmark: Some(5), ..of_isp(1000) }, &[default(100)]), 0, "for marked packets only");
    assert_eq!(native(of_isp(1000), &[]), 0, "an empty table");
    let of_vpn = route("100.64.0.0/10", "tailscale0", 100);
    assert_eq!(native(of_isp(5270), &[of_vpn]), 0, "its own addresses");
    let halves = [Route { to: net("0.0.0.0/1"), ..default(100) }, Route { to: net("128.0.0.0/1"), ..default(100) }];
    assert_eq!(native(of_isp(1000), &halves), 1);
    assert_eq!(native(Rule { suppress_prefixlength: Some(0), ..of_isp(1000) }, &[default(100)]), 0, "no default route");
    assert_eq!(warned(&full, of_isp(1000), &[default(100)], Compat::WgQuick), 0, "its rules come first");
    let split = tunnel(&["10.0.0.2/24"], &["192.168.7.0/24"], &["192.0.2.1:51820"]);
    assert_eq!(warned(&split, of_isp(1000), &[default(100)], Compat::Native), 1, "rules before main concern all");
}
