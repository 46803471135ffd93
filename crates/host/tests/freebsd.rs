//! What tunnels become on FreeBSD, on hosts whose state was written down (`freebsd/*.json`, as `ifconfig` and
//! `netstat -rn` show it; a route's table is its FIB).

use std::path::Path;

use linerate_host::plan::freebsd::{Command, Plan, undo, up};
use linerate_host::plan::{Hooks, Refusal};
use linerate_host::state::HostState;
use linerate_host::step::{Backend, Phase};
use linerate_host::wanted::{Dns, RouteConflict, Table, Wanted};

#[test]
fn the_laptop_at_home_keeps_its_network_and_gets_its_tunnel() {
    let wanted = tunnel(&["10.0.0.2/32"], &["192.168.1.0/24", "10.0.0.0/24"], &["198.51.100.1:51820"]);
    let plan = planned(&wanted, "laptop");
    assert_eq!(
        lines(&plan.commands),
        [
            "ifconfig wg create name wg0",
            "wg setconf wg0 /dev/stdin",
            "ifconfig wg0 inet 10.0.0.2/32 alias",
            "ifconfig wg0 mtu 1420",
            "ifconfig wg0 up",
            "route -q -n add -inet 10.0.0.0/24 -interface wg0",
        ]
    );
    assert_eq!(
        sentences(&plan),
        ["192.168.1.0/24 stays on em0: hosts of that network are not reached through the tunnel"]
    );
}

#[test]
fn a_rival_is_replaced_and_comes_back_when_the_tunnel_is_gone() {
    let wanted = Wanted {
        route_conflict: RouteConflict::Replace,
        ..tunnel(&["10.0.0.2/32"], &["192.168.1.0/24"], &["198.51.100.1:51820"])
    };
    let plan = planned(&wanted, "laptop");
    let lines_of_plan = lines(&plan.commands);
    let routes: Vec<_> = lines_of_plan.iter().filter(|line| line.starts_with("route ")).collect();
    assert_eq!(
        routes,
        ["route -q -n delete -inet 192.168.1.0/24", "route -q -n add -inet 192.168.1.0/24 -interface wg0"]
    );
    assert_eq!(
        lines(&undo(&plan.commands, &Hooks::default())),
        ["ifconfig wg0 destroy", "route -q -n add -inet 192.168.1.0/24 -interface em0"]
    );
}

#[test]
fn a_policy_to_fail_refuses_and_one_by_metric_is_said_to_be_skip() {
    let wanted = |route_conflict| Wanted { route_conflict, ..tunnel(&[], &["192.168.1.0/24"], &[]) };
    let refusal = up(&wanted(RouteConflict::Fail), &Hooks::default(), Backend::Kernel, &host("laptop"));
    assert!(refusal.is_err_and(|Refusal(sentence)| sentence.starts_with("192.168.1.0/24 has a route already, on em0")));
    let plan = planned(&wanted(RouteConflict::Metric), "laptop");
    assert_eq!(sentences(&plan).len(), 2);
    assert!(!lines(&plan.commands).iter().any(|line| line.starts_with("route ")));
}

#[test]
fn a_full_tunnel_is_half_routes_and_its_endpoints_stay_outside() {
    let endpoints = ["198.51.100.1:51820", "203.0.113.77:51820", "[2001:db8:9::1]:51820"];
    let wanted = Wanted {
        dns: Dns {
            servers: vec!["10.0.0.1".parse().expect("it is an address")],
            search: vec!["example.org".to_owned()],
        },
        ..tunnel(&["10.0.0.2/32", "fd00::2/128"], &["0.0.0.0/0", "::/0"], &endpoints)
    };
    let plan = planned(&wanted, "server");
    assert_eq!(plan.warnings, []);
    // The endpoint on the link's own network has a route that is longer than a half.
    assert_eq!(
        lines(&plan.commands)[4..],
        [
            "ifconfig wg0 mtu 1320",
            "ifconfig wg0 up",
            "resolvconf -a wg0 -x",
            "route -q -n add -inet 198.51.100.1 -gateway 203.0.113.1",
            "route -q -n add -inet6 2001:db8:9::1 -gateway 2001:db8:5::1",
            "route -q -n add -inet6 ::/1 -interface wg0",
            "route -q -n add -inet6 8000::/1 -interface wg0",
            "route -q -n add -inet 0.0.0.0/1 -interface wg0",
            "route -q -n add -inet 128.0.0.0/1 -interface wg0",
        ]
    );
    assert_eq!(
        lines(&undo(&plan.commands, &Hooks::default())),
        [
            "route -q -n delete -inet6 2001:db8:9::1",
            "route -q -n delete -inet 198.51.100.1",
            "resolvconf -d wg0",
            "ifconfig wg0 destroy",
        ]
    );
    let input = plan.commands.iter().find_map(|command| match command {
        Command::Run { input, .. } => input.clone(),
        _ => None,
    });
    assert_eq!(input.as_deref(), Some("nameserver 10.0.0.1\nsearch example.org\n"));
}

#[test]
fn an_endpoint_without_any_way_goes_nowhere_and_not_into_its_own_tunnel() {
    let plan = planned(&tunnel(&["10.0.0.2/32"], &["0.0.0.0/0"], &["198.51.100.1:51820"]), "jail");
    assert!(lines(&plan.commands).contains(&"route -q -n add -inet 198.51.100.1 127.0.0.1 -blackhole".to_owned()));
}

#[test]
fn an_endpoint_within_a_route_that_is_not_full_stays_outside_too() {
    let plan = planned(&tunnel(&[], &["198.51.100.0/24"], &["198.51.100.1:51820"]), "laptop");
    let lines = lines(&plan.commands);
    let at = |line: &str| lines.iter().position(|other| other == line).unwrap_or_else(|| panic!("{line} in {lines:?}"));
    let pinned = at("route -q -n add -inet 198.51.100.1 -gateway 192.168.1.1");
    assert!(pinned < at("route -q -n add -inet 198.51.100.0/24 -interface wg0"));
}

#[test]
fn what_is_excluded_has_routes_of_its_own() {
    let excluded = ["10.20.5.0/24", "172.16.0.0/12"].map(|net| net.parse().expect("it is a prefix")).to_vec();
    let wanted = Wanted { excluded, ..tunnel(&[], &["10.0.0.0/8", "172.16.9.0/24"], &[]) };
    let plan = planned(&wanted, "server");
    let lines = lines(&plan.commands);
    let routes: Vec<_> = lines.iter().filter(|line| line.starts_with("route ")).collect();
    // 10.20.5.0/24 has a route that is longer than ours.
    assert_eq!(routes, ["route -q -n add -inet 10.0.0.0/8 -interface wg0"]);
    assert_eq!(sentences(&plan), ["there is no route to 172.16.9.0/24: it is excluded from the tunnel"]);
}

#[test]
fn a_table_with_a_number_is_a_fib() {
    let wanted =
        Wanted { table: Table::Number(1), ..tunnel(&[], &["0.0.0.0/0", "10.9.0.0/16"], &["198.51.100.1:51820"]) };
    let plan = planned(&wanted, "server");
    let lines = lines(&plan.commands);
    let routes: Vec<_> = lines.iter().filter(|line| line.starts_with("route ")).collect();
    assert_eq!(routes, ["route -q -n add -inet -fib 1 10.9.0.0/16 -interface wg0"]);
    assert_eq!(
        sentences(&plan),
        ["0.0.0.0/0 stays on vtnet0: hosts of that network are not reached through the tunnel"]
    );
}

#[test]
fn a_family_that_is_switched_off_is_left_out_once() {
    let plan = planned(&tunnel(&["10.0.0.2/32", "fd00::2/128"], &["::/0", "10.9.0.0/16"], &[]), "jail");
    assert_eq!(
        sentences(&plan),
        ["IPv6 is switched off on this host: wg0 gets no address fd00::2/128 and no route to ::/0"]
    );
    assert!(!lines(&plan.commands).iter().any(|line| line.contains("inet6")));
}

#[test]
fn hooks_and_the_daemon_have_their_places() {
    let hooks = Hooks {
        commands: [Phase::PostDown, Phase::PreUp, Phase::PreDown, Phase::PostUp]
            .map(|phase| (phase, format!("echo {phase:?}")))
            .to_vec(),
    };
    let wanted = tunnel(&[], &[], &[]);
    let plan = up(&wanted, &hooks, Backend::Daemon, &host("laptop")).expect("it comes up");
    assert_eq!(
        lines(&plan.commands),
        [
            "linerated wg0",
            "echo PreUp",
            "wg setconf wg0 /dev/stdin",
            "ifconfig wg0 mtu 1420",
            "ifconfig wg0 up",
            "echo PostUp"
        ]
    );
    assert_eq!(
        lines(&undo(&plan.commands, &hooks)),
        ["echo PreDown", "rm -f /var/run/wireguard/wg0.sock", "echo PostDown"]
    );
}

#[test]
fn what_freebsd_has_not_is_refused_in_words() {
    let wanted = Wanted { kill_switch: true, ..tunnel(&[], &[], &[]) };
    let refusal = up(&wanted, &Hooks::default(), Backend::Kernel, &host("laptop"));
    assert!(refusal.is_err_and(|Refusal(sentence)| sentence.contains("pf.conf")));
    let exists = Wanted { interface: "em0".to_owned(), ..tunnel(&[], &[], &[]) };
    let refusal = up(&exists, &Hooks::default(), Backend::Kernel, &host("laptop"));
    assert_eq!(refusal, Err(Refusal("`em0' already exists".to_owned())));
}

fn planned(wanted: &Wanted, name: &str) -> Plan {
    up(wanted, &Hooks::default(), Backend::Kernel, &host(name)).expect("it comes up")
}

fn lines(commands: &[Command]) -> Vec<String> {
    commands.iter().map(Command::line).collect()
}

fn sentences(plan: &Plan) -> Vec<String> {
    plan.warnings.iter().map(ToString::to_string).collect()
}

fn host(name: &str) -> HostState {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/freebsd/{name}.json"));
    let text = std::fs::read_to_string(file).expect("the file is readable");
    serde_json::from_str(&text).expect("the file is a state")
}

fn tunnel(addresses: &[&str], allowed_ips: &[&str], endpoints: &[&str]) -> Wanted {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("it is a prefix")).collect();
    Wanted {
        interface: "wg0".to_owned(),
        addresses: nets(addresses),
        allowed_ips: nets(allowed_ips),
        endpoints: endpoints.iter().map(|text| text.parse().expect("it is an endpoint")).collect(),
        ..Wanted::default()
    }
}
