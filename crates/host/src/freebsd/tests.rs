//! FreeBSD's part on a host that is played: links, addresses and routes in memory, behind the command lines, printed as
//! the programs print them.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::plan::{Hooks, PlanError, reload, undo, up};
use crate::spec::{Compat, HostSpec, RouteConflict, Table};
use crate::step::{Implementation, Route};
use crate::transaction::{Executor, StepError, execute, execute_best_effort};

/// As ifconfig of FreeBSD 14 prints it.
const IFCONFIG: &str = "\
em0: flags=1008843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST,LOWER_UP> metric 0 mtu 1500
\toptions=48505bb<RXCSUM,TXCSUM,VLAN_MTU,VLAN_HWTAGGING,JUMBO_MTU,VLAN_HWCSUM,TSO4,LRO,VLAN_HWFILTER,HWSTATS>
\tether 52:54:00:12:34:56
\tinet 192.0.2.10 netmask 0xffffff00 broadcast 192.0.2.255
\tinet6 fe80::5054:ff:fe12:3456%em0 prefixlen 64 scopeid 0x1
\tinet6 2001:db8::10 prefixlen 64 autoconf pltime 14400 vltime 86400
\tmedia: Ethernet autoselect (1000baseT <full-duplex>)
\tstatus: active
\tnd6 options=23<PERFORMNUD,ACCEPT_RTADV,AUTO_LINKLOCAL>
lo0: flags=1008049<UP,LOOPBACK,RUNNING,MULTICAST,LOWER_UP> metric 0 mtu 16384
\tinet 127.0.0.1 netmask 0xff000000
\tinet6 ::1 prefixlen 128
\tgroups: lo
tun5: flags=8011<UP,POINTOPOINT,MULTICAST> metric 0 mtu 1400
\tinet 10.8.0.1 --> 10.8.0.2 netmask 0xffffffff
\tgroups: tun vpn
\tOpened by PID 1234
wg7: flags=80c1<UP,RUNNING,NOARP,MULTICAST> metric 0 mtu 1420
\tgroups: wg
gif0: flags=8010<POINTOPOINT,MULTICAST> metric 0 mtu 1280
";

const NETSTAT: &str = r#"{"statistics": {"__version": "2", "route-information": {"route-table": {"rt-family": [{"address-family":
"Internet", "rt-entry": [
{"destination":"default","gateway":"192.0.2.1","flags":"UGS","flags_pretty":["up","gateway","static"],"nhop":5,"mtu":1492,"interface-name":"em0"},
{"destination":"127.0.0.1","gateway":"link#2","flags":"UH","nhop":1,"mtu":16384,"interface-name":"lo0"},
{"destination":"192.0.2.0/24","gateway":"link#1","flags":"U","nhop":2,"mtu":1500,"interface-name":"em0"},
{"destination":"(28) 7f00","gateway":"???","flags":"U","interface-name":"em0"}
]}]}}}}"#;

const NETSTAT6: &str = r#"{"statistics": {"route-information": {"route-table": {"rt-family": [{"address-family": "Internet6", "rt-entry": [
{"destination":"default","gateway":"fe80::1%em0","flags":"UG","mtu":1500,"interface-name":"em0"},
{"destination":"2001:db8::/64","gateway":"link#1","flags":"U","mtu":1500,"interface-name":"em0"},
{"destination":"fe80::%em0/64","gateway":"link#1","flags":"U","mtu":1500,"interface-name":"em0"}
]}]}}}}"#;

#[test]
fn links_are_read_as_ifconfig_prints_them() {
    let links = read::links(IFCONFIG);
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["em0", "lo0", "tun5", "wg7", "gif0"]);
    assert_eq!(links[0].addresses, nets(&["192.0.2.10/24", "fe80::5054:ff:fe12:3456/64", "2001:db8::10/64"]));
    assert_eq!((links[0].mtu, links[0].up, links[0].tun), (1500, true, false));
    assert_eq!(links[2].addresses, nets(&["10.8.0.1/32"]));
    assert_eq!((links[2].tun, links[3].wireguard, links[4].up), (true, true, false));
}

#[test]
fn routes_are_read_as_netstat_prints_them() {
    let routes = read::routes(NETSTAT).unwrap();
    let said: Vec<_> =
        routes.iter().map(|route| (route.to.to_string(), route.via, route.mtu, route.protocol)).collect();
    let gateway: IpAddr = [192, 0, 2, 1].into();
    assert_eq!(
        said,
        [
            ("0.0.0.0/0".into(), Some(gateway), 1492, 3),
            ("127.0.0.1/32".into(), None, 16384, 2),
            ("192.0.2.0/24".into(), None, 1500, 2)
        ]
    );
    let routes = read::routes(NETSTAT6).unwrap();
    assert_eq!(routes[0].to, net("::/0"));
    assert_eq!(routes[0].via, Some("fe80::1".parse().unwrap()));
    assert_eq!(routes[2].to, net("fe80::/64"));
    assert!(routes.iter().all(|route| route.device.as_deref() == Some("em0")));
}

#[test]
fn other_words_are_refused_or_left_out() {
    assert_eq!(read::routes(" \n").unwrap(), []);
    let refused = read::routes("Routing tables\n").unwrap_err().to_string();
    assert!(refused.starts_with("netstat prints something else"), "{refused}");
    for hostile in ["", "\tinet 1.2.3.4", "em0: flags=", "em0: flags=x<", "em0: flags=0<> mtu", "\tgroups:"] {
        assert!(read::links(hostile).iter().all(|link| link.addresses.is_empty() && link.mtu == 0), "{hostile}");
    }
    for line in [
        "inet",
        "inet x netmask 0xff",
        "inet 1.2.3.4 netmask ff",
        "inet 1.2.3.4 netmask 0xff00ff00",
        "inet6 ::1 prefixlen 129",
    ] {
        let links = read::links(&format!("em0: flags=1<UP> metric 0 mtu 1500\n\t{line}\n"));
        assert_eq!(links[0].addresses, [], "{line}");
    }
}

#[test]
fn a_plan_takes_the_command_lines_of_wg_quick() {
    let (mut host, played) = played();
    let spec = tunnel(&["10.0.0.2/24", "fd00::2/64"], &["10.0.0.0/16", "fd01::/64"]);
    bring_up(&mut host, &spec);
    assert_eq!(
        played.borrow().changes,
        [
            "ifconfig wg0 inet 10.0.0.2/24 alias",
            "ifconfig wg0 inet6 fd00::2/64 alias",
            "ifconfig wg0 mtu 1412",
            "ifconfig wg0 up",
            "route -q -n add -inet6 fd01::/64 -interface wg0",
            "route -q -n add -inet 10.0.0.0/16 -interface wg0",
        ]
    );
}

#[test]
fn a_full_tunnel_is_halves_and_the_endpoints_stay_outside() {
    let (mut host, played) = played();
    let mut spec = tunnel(&["10.0.0.2/32"], &["0.0.0.0/0", "::/0"]);
    spec.endpoints.push("[2001:db8:1::1]:51820".parse().unwrap());
    // On the link: its route is longer than a half.
    spec.endpoints.push("192.0.2.77:51820".parse().unwrap());
    spec.excluded = nets(&["203.0.113.0/24"]);
    let plan = bring_up(&mut host, &spec);
    let routes: Vec<String> =
        played.borrow().changes.iter().filter(|line| line.starts_with("route")).cloned().collect();
    assert_eq!(
        routes,
        [
            "route -q -n add -inet 198.51.100.1/32 -gateway 192.0.2.1",
            "route -q -n add -inet6 2001:db8:1::1/128 -gateway fe80::1%em0",
            "route -q -n add -inet 203.0.113.0/24 -gateway 192.0.2.1",
            "route -q -n add -inet6 ::/1 -interface wg0",
            "route -q -n add -inet6 8000::/1 -interface wg0",
            "route -q -n add -inet 0.0.0.0/1 -interface wg0",
            "route -q -n add -inet 128.0.0.0/1 -interface wg0",
        ]
    );
    assert!(plan.iter().all(|step| commands::of(step).is_ok() || is_daemons(step)), "{plan:?}");
}

#[test]
fn an_endpoint_without_a_way_outside_is_unreachable_and_warned_of() {
    let state = read::host_state(read::links(IFCONFIG), Vec::new(), true);
    let spec = tunnel(&["10.0.0.2/32"], &["0.0.0.0/0"]);
    let plan = up(&spec, &Hooks::default(), Implementation::Daemon, &state, Compat::Native).unwrap();
    let warnings: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].starts_with("198.51.100.1/32 has no route outside of the tunnel"), "{warnings:?}");
    let commands = as_commands(&plan.steps);
    assert!(
        commands.contains(&"route -q -n add -inet 198.51.100.1/32 127.0.0.1 -blackhole".to_owned()),
        "{commands:?}"
    );
}

#[test]
fn up_and_undo_leave_the_host_as_it_was() {
    for allowed in [&["10.0.0.0/16", "fd01::/64"][..], &["0.0.0.0/0", "::/0"]] {
        let (mut host, played) = played();
        let before = host.state().unwrap();
        let done = bring_up(&mut host, &tunnel(&["10.0.0.2/24", "fd00::2/64"], allowed));
        assert_ne!(host.state().unwrap(), before);
        let left = execute_best_effort(&undo(&done, &Hooks::default()), &mut On(&mut host), &mut |step, error| {
            panic!("{step:?}: {error}");
        });
        assert_eq!(left, []);
        assert_eq!(host.state().unwrap(), before);
        assert!(played.borrow().changes.contains(&"rm -f /var/run/wireguard/wg0.sock".to_owned()));
    }
}

#[test]
fn up_that_fails_at_any_step_and_is_undone_leaves_the_host_as_it_was() {
    let spec = tunnel(&["10.0.0.2/24", "fd00::2/64"], &["0.0.0.0/0", "fd01::/64"]);
    for failing in 0..8 {
        let (mut host, played) = played();
        let before = host.state().unwrap();
        let plan = up(&spec, &Hooks::default(), Implementation::Daemon, &before, Compat::Native).unwrap();
        played.borrow_mut().fails_at = Some(failing);
        let failure = execute(&plan.steps, &mut On(&mut host)).unwrap_err();
        played.borrow_mut().fails_at = None;
        execute_best_effort(&undo(&failure.done, &Hooks::default()), &mut On(&mut host), &mut |step, error| {
            panic!("{step:?}: {error}");
        });
        assert_eq!(host.state().unwrap(), before, "step {failing}");
    }
}

#[test]
fn a_reload_changes_what_the_file_has_changed_and_nothing_else() {
    let (mut host, played) = played();
    let old = tunnel(&["10.0.0.2/24"], &["10.1.0.0/16", "10.2.0.0/16"]);
    let done = bring_up(&mut host, &old);
    let new = tunnel(&["10.0.0.2/24"], &["10.2.0.0/16", "10.3.0.0/16"]);
    let state = host.state().unwrap();
    assert_eq!(reload(&old, &old, &state, &done, Compat::Native).unwrap().steps, []);
    let plan = reload(&old, &new, &state, &done, Compat::Native).unwrap();
    played.borrow_mut().changes.clear();
    execute(&plan.steps, &mut On(&mut host)).unwrap();
    let expected = ["route -q -n add -inet 10.3.0.0/16 -interface wg0", "route -q -n delete -inet 10.1.0.0/16"];
    assert_eq!(played.borrow().changes, expected);
    // From and to a full tunnel.
    let full = tunnel(&["10.0.0.2/24"], &["0.0.0.0/0"]);
    let done = [done, plan.steps].concat();
    let plan = reload(&new, &full, &host.state().unwrap(), &done, Compat::Native).unwrap();
    execute(&plan.steps, &mut On(&mut host)).unwrap();
    let (mut fresh, _played) = self::played();
    bring_up(&mut fresh, &full);
    let sorted = |host: &mut Host| {
        let mut routes: Vec<String> = host.state().unwrap().routes.iter().map(|route| format!("{route:?}")).collect();
        routes.sort();
        routes
    };
    assert_eq!(sorted(&mut host), sorted(&mut fresh));
}

#[test]
fn a_reload_leads_around_the_tunnel_by_the_next_hop_of_now() {
    let (mut host, played) = played();
    let full = tunnel(&["10.0.0.2/24"], &["0.0.0.0/0"]);
    let done = bring_up(&mut host, &full);
    assert_eq!(reload(&full, &full, &host.state().unwrap(), &done, Compat::Native).unwrap().steps, []);
    played.borrow_mut().routes[0].via = Some([192, 0, 2, 254].into());
    played.borrow_mut().changes.clear();
    let plan = reload(&full, &full, &host.state().unwrap(), &done, Compat::Native).unwrap();
    execute(&plan.steps, &mut On(&mut host)).unwrap();
    let by_the_other =
        ["route -q -n delete -inet 198.51.100.1/32", "route -q -n add -inet 198.51.100.1/32 -gateway 192.0.2.254"];
    assert_eq!(played.borrow().changes, by_the_other);
    // A peer that has moved.
    let moved = HostSpec { endpoints: vec!["203.0.113.5:51820".parse().unwrap()], ..full.clone() };
    let done = [done, plan.steps].concat();
    let plan = reload(&full, &moved, &host.state().unwrap(), &done, Compat::Native).unwrap();
    played.borrow_mut().changes.clear();
    execute(&plan.steps, &mut On(&mut host)).unwrap();
    let to_the_other =
        ["route -q -n add -inet 203.0.113.5/32 -gateway 192.0.2.254", "route -q -n delete -inet 198.51.100.1/32"];
    assert_eq!(played.borrow().changes, to_the_other);
    let all = [done, plan.steps].concat();
    execute_best_effort(&undo(&all, &Hooks::default()), &mut On(&mut host), &mut |step, error| {
        panic!("{step:?}: {error}")
    });
    assert_eq!(played.borrow().routes.len(), self::played().1.borrow().routes.len());
}

#[test]
fn only_default_routes_are_followed() {
    let (host, played) = played();
    let mut defaults = Defaults::of(host).unwrap();
    assert!(!defaults.have_changed());
    let mut host = Host { programs: Box::new(Of(played.clone())) };
    bring_up(&mut host, &tunnel(&["10.0.0.2/24"], &["0.0.0.0/0"]));
    assert!(!defaults.have_changed(), "halves are not default routes");
    played.borrow_mut().routes[0].via = Some([192, 0, 2, 254].into());
    assert!(defaults.have_changed());
    assert!(!defaults.have_changed());
    played.borrow_mut().routes.remove(0);
    assert!(defaults.have_changed());
}

#[test]
fn without_ipv6_in_the_kernel_nothing_of_it_is_asked_or_planned() {
    let (mut host, played) = played();
    played.borrow_mut().has_ipv6 = false;
    assert!(host.state().unwrap().routes.iter().all(|route| route.to.addr().is_ipv4()));
    bring_up(&mut host, &tunnel(&["10.0.0.2/24", "fd00::2/64"], &["10.9.0.0/16", "::/0"]));
    assert!(played.borrow().changes.iter().all(|line| !line.contains("inet6")), "{:?}", played.borrow().changes);
}

#[test]
fn a_route_of_somebody_else_stays_and_metrics_are_refused() {
    let (mut host, played) = played();
    let with =
        |route_conflict| HostSpec { route_conflict, ..tunnel(&["10.0.0.2/32"], &["192.0.2.0/24", "10.9.0.0/16"]) };
    bring_up(&mut host, &with(RouteConflict::Skip));
    let routes: Vec<String> =
        played.borrow().changes.iter().filter(|line| line.starts_with("route")).cloned().collect();
    assert_eq!(routes, ["route -q -n add -inet 10.9.0.0/16 -interface wg0"]);
    let (mut host, _played) = self::played();
    let state = host.state().unwrap();
    let spec = with(RouteConflict::Metric);
    let plan = up(&spec, &Hooks::default(), Implementation::Daemon, &state, Compat::Native).unwrap();
    let failure = execute(&plan.steps, &mut On(&mut host)).unwrap_err();
    assert!(failure.error.to_string().contains("no metric"), "{}", failure.error);
}

#[test]
fn another_table_is_a_fib_and_takes_no_way_outside() {
    let (mut host, played) = played();
    bring_up(
        &mut host,
        &HostSpec { table: Table::Number(3), ..tunnel(&["10.0.0.2/32"], &["10.1.0.0/16", "0.0.0.0/0"]) },
    );
    let routes: Vec<String> =
        played.borrow().changes.iter().filter(|line| line.starts_with("route")).cloned().collect();
    assert_eq!(
        routes,
        [
            "route -q -n add -inet -fib 3 10.1.0.0/16 -interface wg0",
            "route -q -n add -inet -fib 3 0.0.0.0/1 -interface wg0",
            "route -q -n add -inet -fib 3 128.0.0.0/1 -interface wg0"
        ]
    );
}

#[test]
fn what_needs_nf_tables_is_refused() {
    let (mut host, _played) = played();
    let mut gateway = tunnel(&["10.0.0.1/24"], &["10.0.0.2/32"]);
    gateway.forwarding.isolated = true;
    let kill_switch = HostSpec { kill_switch: true, ..tunnel(&["10.0.0.2/32"], &["0.0.0.0/0"]) };
    for spec in [gateway, kill_switch] {
        let state = host.state().unwrap();
        let PlanError(said) = up(&spec, &Hooks::default(), Implementation::Daemon, &state, Compat::Native).unwrap_err();
        assert!(said.contains("nf_tables"), "{said}");
    }
}

#[test]
fn a_failure_that_left_nothing_to_do_has_the_errno_of_that() {
    let (mut host, _played) = played();
    bring_up(&mut host, &tunnel(&["10.0.0.2/32"], &["10.1.0.0/16"]));
    let route = |to: &str| crate::plan::one_table::static_route(net(to), Some("wg0"), None);
    let of = |interface: &str| Step::DeleteLink { interface: interface.to_owned() };
    let address = |text: &str| Step::DeleteAddress { interface: "wg0".to_owned(), address: net(text) };
    for (step, errno) in [
        (Step::AddRoute(route("10.1.0.0/16")), Errno::EXIST),
        (Step::DeleteRoute(route("10.7.0.0/16")), Errno::SRCH),
        (address("10.0.0.9/32"), Errno::ADDRNOTAVAIL),
        (Step::LinkUp { interface: "wg9".to_owned() }, Errno::NODEV),
    ] {
        let refused = host.apply(std::slice::from_ref(&step)).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused.error), Some(errno), "{step:?}");
        assert!(refused.explanation.is_some());
    }
    // Whoever is gone is gone: no error.
    host.apply(&[of("wg9")]).unwrap();
}

#[test]
fn an_interface_that_outlives_its_socket_is_destroyed() {
    let (mut host, played) = played();
    bring_up(&mut host, &tunnel(&["10.0.0.2/32"], &[]));
    played.borrow_mut().outlives = true;
    host.apply(&[Step::DeleteLink { interface: "wg0".to_owned() }]).unwrap();
    assert_eq!(played.borrow().changes.last().unwrap(), "ifconfig wg0 destroy");
    assert_eq!(played.borrow().pauses, PAUSES);
    assert_eq!(host.state().unwrap().link("wg0"), None);
}

/// Files of all kinds for this host: with its own network, its endpoints and its default routes in the way.
fn files() -> impl Strategy<Value = HostSpec> {
    let some = |of: &'static [&'static str]| proptest::sample::subsequence(of, 0..=of.len());
    (
        some(&["10.0.0.2/24", "10.0.0.9/24", "10.7.0.1/32", "fd00::2/64"]),
        some(&[
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/16",
            "192.0.2.0/24",
            "198.51.100.0/24",
            "fd01::/64",
            "2001:db8::/32",
            "192.0.2.77/32",
            "128.0.0.0/1",
        ]),
        some(&["198.51.100.1:1", "203.0.113.5:1", "[2001:db8:1::1]:1", "192.0.2.77:1"]),
        some(&["198.51.100.0/25", "203.0.113.0/24", "192.0.2.128/25"]),
        any::<bool>(),
    )
        .prop_map(|(addresses, allowed, endpoints, excluded, replaces)| HostSpec {
            endpoints: endpoints.iter().map(|endpoint| endpoint.parse().unwrap()).collect(),
            excluded: nets(&excluded),
            // It would be that of the paths when the tunnel came up: a reload leaves it.
            mtu: Some(1380),
            route_conflict: if replaces { RouteConflict::Replace } else { RouteConflict::Skip },
            ..tunnel(&addresses, &allowed)
        })
}

/// What matters of a host: its links, and where its routes lead.
fn ways(host: &mut Host) -> (Vec<String>, Vec<String>) {
    let state = host.state().unwrap();
    let mut links: Vec<String> = Vec::new();
    for mut link in state.links {
        link.addresses.sort();
        links.push(format!("{link:?}"));
    }
    let mut routes: Vec<String> =
        state.routes.iter().map(|route| format!("{} {:?} {:?}", route.to, route.via, route.device)).collect();
    routes.sort();
    (links, routes)
}

/// The endpoints and excluded prefixes that the longest route leads into the tunnel.
fn led_inside(host: &mut Host, spec: &HostSpec) -> Vec<IpNet> {
    let routes = host.state().unwrap().routes;
    let is_inside = |to: &IpNet| {
        let leads = routes.iter().filter(|route| route.to.contains(to)).max_by_key(|route| route.to.prefix_len());
        leads.is_some_and(|route| route.device.as_deref() == Some("wg0"))
    };
    let endpoints = spec.endpoints.iter().map(|endpoint| IpNet::from(endpoint.ip()));
    endpoints.chain(spec.excluded.iter().copied()).filter(is_inside).collect()
}

fn take_back(host: &mut Host, done: &[Step]) {
    let left = execute_best_effort(&undo(done, &Hooks::default()), &mut On(host), &mut |_, _| {});
    assert_eq!(left, []);
}

proptest! {
    #[test]
    fn up_as_far_as_it_goes_and_undo_is_nothing(spec in files(), fails_at in proptest::option::of(0usize..20)) {
        let (mut host, played) = played();
        let before = ways(&mut host);
        played.borrow_mut().fails_at = fails_at;
        let plan = up(&spec, &Hooks::default(), Implementation::Daemon, &host.state().unwrap(), Compat::Native).unwrap();
        let done = execute(&plan.steps, &mut On(&mut host)).map_or_else(|failure| failure.done, |()| plan.steps);
        played.borrow_mut().fails_at = None;
        take_back(&mut host, &done);
        prop_assert_eq!(ways(&mut host), before);
    }

    #[test]
    fn a_reload_is_a_fresh_up_and_undo_is_nothing(
        old in files(), new in files(), was_online in any::<bool>(), is_online in any::<bool>(),
    ) {
        let (mut host, played) = played();
        let all = played.borrow().routes.clone();
        let online = |played: &RefCell<Played>, online: bool| {
            let is_default = |route: &Route| route.to.prefix_len() == 0;
            played.borrow_mut().routes.retain(|route| !is_default(route));
            played.borrow_mut().routes.extend(all.iter().filter(|route| online && is_default(route)).cloned());
        };
        online(&played, was_online);
        let done = bring_up(&mut host, &old);
        prop_assert_eq!(led_inside(&mut host, &old), []);
        online(&played, is_online);
        let plan = reload(&old, &new, &host.state().unwrap(), &done, Compat::Native).unwrap();
        prop_assert!(execute(&plan.steps, &mut On(&mut host)).is_ok(), "{:?}", plan.steps);
        let (mut fresh, played) = self::played();
        online(&played, is_online);
        let before = ways(&mut fresh);
        bring_up(&mut fresh, &new);
        prop_assert_eq!(ways(&mut host), ways(&mut fresh));
        prop_assert_eq!(led_inside(&mut host, &new), []);
        take_back(&mut host, &[done, plan.steps].concat());
        prop_assert_eq!(ways(&mut host), before);
    }
}

// --- the host that is played ---------------------------------------------------------------------------------

/// The links and routes of FreeBSD, and what was asked to change them.
struct Played {
    links: Vec<(String, u32, bool, Vec<IpNet>)>,
    routes: Vec<Route>,
    changes: Vec<String>,
    /// The number of the change that fails, from 0.
    fails_at: Option<usize>,
    has_ipv6: bool,
    /// Interfaces do not go with their sockets.
    outlives: bool,
    pauses: u32,
}

struct Of(Rc<RefCell<Played>>);

impl Programs for Of {
    fn run(&mut self, words: &[String]) -> io::Result<String> {
        let mut played = self.0.borrow_mut();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["ifconfig", "-a"] => return Ok(played.ifconfig()),
            ["netstat", "--libxo", "json", "-rnW", "-f", family] => return Ok(played.netstat(family == "inet6")),
            ["sysctl", "-in", "kern.features.inet6"] => return Ok(if played.has_ipv6 { "1\n" } else { "" }.to_owned()),
            ["ifconfig", name] => return played.link(name).map(|_| String::new()),
            ["linerated", name] => {
                played.links.push((name.to_owned(), 1420, false, Vec::new()));
                return Ok(String::new());
            }
            _ => {}
        }
        let number = played.changes.len();
        played.changes.push(words.join(" "));
        if played.fails_at == Some(number) {
            return Err(io::Error::other("this one fails"));
        }
        played.change(&words).map(|()| String::new())
    }

    fn pause(&mut self) {
        self.0.borrow_mut().pauses += 1;
    }
}

impl Played {
    fn link(&mut self, name: &str) -> io::Result<&mut (String, u32, bool, Vec<IpNet>)> {
        let link = self.links.iter_mut().find(|link| link.0 == name);
        link.ok_or_else(|| io::Error::other(format!("ifconfig: interface {name} does not exist")))
    }

    fn change(&mut self, words: &[&str]) -> io::Result<()> {
        let failed = || io::Error::other("route ended with 1");
        match *words {
            ["ifconfig", name, "inet" | "inet6", address, "alias"] => self.link(name)?.3.push(net(address)),
            ["ifconfig", name, "inet" | "inet6", address, "-alias"] => {
                let address: IpAddr = address.parse().unwrap();
                let addresses = &mut self.link(name)?.3;
                let at = addresses.iter().position(|net| net.addr() == address);
                addresses.remove(at.ok_or_else(|| io::Error::other("Can't assign requested address"))?);
            }
            ["ifconfig", name, "mtu", mtu] => self.link(name)?.1 = mtu.parse().unwrap(),
            ["ifconfig", name, "up"] => self.link(name)?.2 = true,
            ["ifconfig", name, "destroy"] => self.forget(name),
            ["rm", "-f", socket] => {
                let name = socket.strip_prefix("/var/run/wireguard/").unwrap().strip_suffix(".sock").unwrap();
                if !self.outlives {
                    self.forget(name);
                }
            }
            ["route", "-q", "-n", "add", _, "-fib", _, ..] => {}
            ["route", "-q", "-n", "add", _, to, kind @ ("-interface" | "-gateway"), way] => {
                let to = net(to);
                if self.routes.iter().any(|route| route.to == to) {
                    return Err(failed());
                }
                let (via, device) = match kind {
                    "-interface" => (None, way),
                    _ => (way.split('%').next().unwrap().parse().ok(), "em0"),
                };
                self.routes.push(crate::plan::one_table::static_route(to, Some(device), via));
            }
            ["route", "-q", "-n", "add", _, to, "127.0.0.1" | "::1", "-blackhole"] => {
                self.routes.push(crate::plan::one_table::static_route(net(to), None, None));
            }
            ["route", "-q", "-n", "delete", _, to] => {
                let at = self.routes.iter().position(|route| route.to == net(to)).ok_or_else(failed)?;
                self.routes.remove(at);
            }
            _ => panic!("no program knows {words:?}"),
        }
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        self.links.retain(|link| link.0 != name);
        self.routes.retain(|route| route.device.as_deref() != Some(name));
    }

    fn ifconfig(&self) -> String {
        let mut text = IFCONFIG.to_owned();
        for (name, mtu, up, addresses) in &self.links {
            let up = if *up { "UP," } else { "" };
            text += &format!("{name}: flags=8002<{up}BROADCAST,MULTICAST> metric 0 mtu {mtu}\n");
            for address in addresses {
                text += &match address {
                    IpNet::V4(v4) => format!("\tinet {} netmask {:#010x}\n", v4.addr(), v4.netmask().to_bits()),
                    IpNet::V6(v6) => format!("\tinet6 {} prefixlen {}\n", v6.addr(), v6.prefix_len()),
                };
            }
            text += "\tgroups: tun\n";
        }
        text
    }

    fn netstat(&self, ipv6: bool) -> String {
        let entry = |route: &Route| {
            let device = route.device.as_deref().unwrap_or("lo0");
            let of_link = match route.via {
                Some(IpAddr::V6(via)) if via.is_unicast_link_local() => format!("{via}%{device}"),
                Some(via) => via.to_string(),
                None if route.device.is_none() => "::1".to_owned(),
                None => "link#9".to_owned(),
            };
            let unreachable = if route.device.is_none() { "GB" } else { "" };
            let flags = [
                "U",
                unreachable,
                if route.via.is_some() { "G" } else { "" },
                if route.protocol == 3 { "S" } else { "" },
            ];
            let mtu = self.links.iter().find(|link| link.0 == device).map_or(1500, |link| link.1);
            let mtu = if route.mtu > 0 { route.mtu } else { mtu };
            let is_host = route.to.prefix_len() == route.to.max_prefix_len();
            let to = if is_host { route.to.addr().to_string() } else { route.to.to_string() };
            let to = if route.to.prefix_len() == 0 { "default".to_owned() } else { to };
            format!(
                r#"{{"destination":"{to}","gateway":"{of_link}","flags":"{}","mtu":{mtu},"interface-name":"{device}"}}"#,
                flags.concat()
            )
        };
        let of_family = self.routes.iter().filter(|route| route.to.addr().is_ipv6() == ipv6).map(entry);
        let (family, entries) = (if ipv6 { "Internet6" } else { "Internet" }, of_family.collect::<Vec<_>>().join(","));
        format!(
            r#"{{"statistics":{{"route-information":{{"route-table":{{"rt-family":[{{"address-family":"{family}","rt-entry":[{entries}]}}]}}}}}}}}"#
        )
    }
}

fn played() -> (Host, Rc<RefCell<Played>>) {
    let played = Played {
        links: Vec::new(),
        routes: [NETSTAT, NETSTAT6].iter().flat_map(|text| read::routes(text).unwrap()).collect(),
        changes: Vec::new(),
        fails_at: None,
        has_ipv6: true,
        outlives: false,
        pauses: 0,
    };
    let played = Rc::new(RefCell::new(played));
    (Host { programs: Box::new(Of(played.clone())) }, played)
}

/// Executes steps on the host that is played, whose daemon starts when it is asked to.
struct On<'a>(&'a mut Host);

impl Executor for On<'_> {
    fn apply(&mut self, steps: &[Step]) -> Result<(), StepError> {
        if let [step] = steps
            && is_daemons(step)
        {
            return match step {
                Step::AddLink { interface, .. } => self
                    .0
                    .run(&format!("linerated {interface}"))
                    .map(drop)
                    .map_err(|error| StepError { index: 0, error, explanation: None, exit_code: 1 }),
                _ => Ok(()),
            };
        }
        let refused = self.0.apply(steps);
        refused.map_err(|ApplyError { index, error, explanation }| StepError {
            index,
            error,
            explanation,
            exit_code: 2,
        })
    }

    fn interrupted(&self) -> bool {
        false
    }
}

fn is_daemons(step: &Step) -> bool {
    matches!(step, Step::AddLink { .. } | Step::Configure { .. })
}

fn bring_up(host: &mut Host, spec: &HostSpec) -> Vec<Step> {
    let state = host.state().unwrap();
    let plan = up(spec, &Hooks::default(), Implementation::Daemon, &state, Compat::Native).unwrap();
    execute(&plan.steps, &mut On(host)).unwrap();
    plan.steps
}

/// Its endpoint is behind the default route.
fn tunnel(addresses: &[&str], allowed: &[&str]) -> HostSpec {
    HostSpec {
        interface: "wg0".to_owned(),
        addresses: nets(addresses),
        allowed_ips: nets(allowed),
        endpoints: vec!["198.51.100.1:51820".parse().unwrap()],
        ..HostSpec::default()
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| net(text)).collect()
}
