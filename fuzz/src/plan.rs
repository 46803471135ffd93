//! A tunnel comes up on any host, and undoing the steps restores the host.
//!
//! An input is the host and the tunnel, with few distinct addresses and prefixes, so that they conflict. The tests
//! `properties` of the crate take theirs from here, too.

use std::net::SocketAddr;

use ipnet::IpNet;
use linerate_host::plan::forwarding_guard::ForwardingGuard;
use linerate_host::plan::gateway::restrictions;
use linerate_host::plan::{Hooks, Plan, down, messages, reload, undo, up};
use linerate_host::spec::{Compat, Dns, Forwarding, Gateway, HostSpec, Inbound, Masquerade, RouteConflict, Table};
use linerate_host::state::HostState;
use linerate_host::step::{AddressFamily, Implementation, MAIN, Route, Rule, Step};

use crate::bytes::Bytes;

pub fn check(input: &[u8]) {
    let mut input = Bytes(input);
    let compat = *input.pick(&[Compat::WgQuick, Compat::Native]);
    let (host, spec) = (host(&mut input), tunnel(&mut input));
    let Ok(plan) = up(&spec, &Hooks::default(), Implementation::Daemon, &host, compat) else { return };
    assert!(plan.steps.iter().all(|step| !messages::describe(step).is_empty()));

    let mut there = host.clone();
    for done in 0..=plan.steps.len() {
        let mut after = there.clone();
        execute(&mut after, &undo(&plan.steps[..done], &Hooks::default()));
        assert_eq!(comparable(&after), comparable(&host), "after {done} steps of {:?}", plan.steps);
        execute(&mut there, plan.steps.get(done..=done).unwrap_or_default());
    }
    assert_eq!(reload(&spec, &spec, &there, &plan.steps, compat), Ok(Plan::default()), "nothing has changed");
    if spec.route_conflict != RouteConflict::Replace {
        let mut after = there.clone();
        let steps = down(&spec, &Hooks::default(), &after, compat).steps;
        execute(&mut after, &steps);
        assert_eq!(without_sysctls(&after), without_sysctls(&host), "without a ledger, by {steps:?}");
    }

    let now = tunnel(&mut input);
    let Ok(changes) = reload(&spec, &now, &there, &plan.steps, compat) else { return };
    execute(&mut there, &changes.steps);
    let all = [plan.steps, changes.steps].concat();
    execute(&mut there, &undo(&all, &Hooks::default()));
    assert_eq!(comparable(&there), comparable(&host), "undone {all:?}");
}

fn execute(host: &mut HostState, steps: &[Step]) {
    for step in steps {
        assert_eq!(host.apply(step), Ok(()), "{step:?} of {steps:?}");
    }
}

/// What is comparable of a host on which no ledger says what sysctls were.
pub fn without_sysctls(host: &HostState) -> HostState {
    let mut host = comparable(host);
    host.sysctls.clear();
    host.held_sysctls.clear();
    // The guard's table exists only while a sysctl is held.
    host.firewall_tables.retain(|table| table != ForwardingGuard::NFT_NAME);
    host
}

/// Ignores order, the variable that stays, and which address of a network came first.
pub fn comparable(host: &HostState) -> HostState {
    let mut host = host.clone();
    host.sysctls.remove("net.ipv4.conf.all.src_valid_mark");
    host.routes.iter_mut().filter(|route| route.protocol == 2).for_each(|route| route.source = None);
    host.routes.sort_by_key(|route| format!("{route:?}"));
    host.rules.sort_by_key(|rule| format!("{rule:?}"));
    host.links.iter_mut().for_each(|link| link.addresses.sort());
    host.firewall_tables.sort();
    host
}

pub const ADDRESSES: [&str; 9] = [
    "198.51.100.1",
    "192.168.1.7",
    "192.168.9.9",
    "10.0.0.1",
    "10.9.0.1",
    "10.9.1.1",
    "2001:db8:1::7",
    "fd00::1",
    "fd00:9::1",
];

const PREFIXES: [&str; 18] = [
    "0.0.0.0/0",
    "128.0.0.0/1",
    "192.168.0.0/16",
    "192.168.1.0/24",
    "192.168.1.7/32",
    "198.51.100.0/24",
    "198.51.100.1/32",
    "10.0.0.0/8",
    "10.0.0.0/24",
    "10.9.0.0/16",
    "10.9.1.0/24",
    "::/0",
    "2001:db8::/32",
    "2001:db8:1::/64",
    "fd00::/16",
    "fd00::/64",
    "fd00:9::/64",
    "fd00:9::1/128",
];

const INTERFACE_ADDRESSES: [&str; 8] = [
    "10.0.0.2/24",
    "10.0.0.3/24",
    "10.0.0.2/32",
    "10.9.0.2/16",
    "10.7.0.2/32",
    "fd00::2/64",
    "fd00::2/128",
    "fd00:7::2/128",
];

pub fn tunnel(input: &mut Bytes<'_>) -> HostSpec {
    let policies = [RouteConflict::Skip, RouteConflict::Metric, RouteConflict::Replace, RouteConflict::Fail];
    let kill_switch = input.flag();
    let excluded = nets(input, &PREFIXES, 2);
    let endpoints = (0..input.below(3)).map(|_| SocketAddr::new(parsed(input.pick::<&str>(&ADDRESSES)), 51820));
    let endpoints = endpoints.collect();
    let servers = if input.flag() { vec![parsed("10.0.0.1")] } else { Vec::new() };
    let forwarding = forwarding(input);
    HostSpec {
        forwarding,
        interface: "wg0".to_owned(),
        addresses: nets(input, &INTERFACE_ADDRESSES, 3),
        dns: Dns { servers, search: Vec::new() },
        mtu: *input.pick(&[None, None, Some(1400), Some(1200)]),
        table: *input.pick(&[Table::Auto, Table::Auto, Table::Auto, Table::Auto, Table::Off, Table::Number(123)]),
        fwmark: *input.pick(&[None, None, Some(5182), Some(51820)]),
        allowed_ips: nets(input, &PREFIXES, 5),
        endpoints,
        route_conflict: *input.pick(&policies),
        kill_switch,
        excluded: if kill_switch { Vec::new() } else { excluded },
        exclude_lan: input.flag(),
    }
}

/// The prefixes of peers, each of one peer only, and their destinations.
pub fn peers(input: &mut Bytes<'_>, number: usize) -> Vec<(Vec<IpNet>, Vec<IpNet>)> {
    let mut taken = Vec::new();
    let mut peer = |_| {
        let mut allowed = nets(input, &PREFIXES, 2);
        allowed.retain(|net| !taken.contains(net));
        taken.extend_from_slice(&allowed);
        (allowed, nets(input, &PREFIXES, 2))
    };
    (0..number).map(&mut peer).collect()
}

fn forwarding(input: &mut Bytes<'_>) -> Forwarding {
    let named = |names: &[&str]| Gateway::Interfaces(names.iter().map(|name| parsed(name)).collect());
    let gateways =
        [Gateway::Off, Gateway::Off, Gateway::Auto, named(&["eth0"]), named(&["eth1", "eth0"]), named(&["eth7"])];
    let peers = peers(input, 2);
    Forwarding {
        gateway: input.pick(&gateways).clone(),
        masquerade: Masquerade { ipv4: input.flag(), ipv6: input.flag() },
        isolated: input.flag(),
        inbound: *input.pick(&[Inbound::Replies, Inbound::All]),
        listen_port: Some(51820),
        fixes_firewall: input.flag(),
        restrictions: restrictions(peers.iter().map(|(allowed, to)| (&**allowed, &**to))),
    }
}

pub fn host(input: &mut Bytes<'_>) -> HostState {
    let mut host = HostState { nftables: true, ..HostState::default() };
    // Kernels that forward IPv6 for single interfaces, and those that do so for all or none.
    let defaults = [
        ("net.ipv4.conf.default.forwarding", true),
        ("net.ipv6.conf.all.forwarding", true),
        ("net.ipv6.conf.default.accept_ra", true),
        ("net.ipv6.conf.default.force_forwarding", input.flag()),
    ];
    for (name, _) in defaults.iter().filter(|(_, is_there)| *is_there) {
        host.sysctls.insert((*name).to_owned(), u8::from(input.flag()).to_string());
    }
    host.disabled_families = if input.below(6) == 5 { vec![AddressFamily::V6] } else { Vec::new() };
    host.sysctls.insert("net.ipv4.conf.all.src_valid_mark".to_owned(), u8::from(input.flag()).to_string());
    // Leaves out impossible states.
    for (device, address) in [("eth0", "192.168.1.5/24"), ("eth1", "10.9.1.5/24"), ("eth0", "2001:db8:1::5/64")] {
        let interface = device.to_owned();
        let _ = host.apply(&Step::AddLink { interface: interface.clone(), implementation: Implementation::Daemon });
        let _ = host.apply(&Step::LinkUp { interface: interface.clone() });
        let _ = host.apply(&Step::AddAddress { interface, address: parsed(address) });
    }
    let _ = host.apply(&Step::AddRoute(foreign_route("0.0.0.0/0", MAIN, 100)));
    let _ = host.apply(&Step::AddRoute(foreign_route("::/0", MAIN, 1024)));
    for _ in 0..input.below(4) {
        let (to, table, metric) =
            (input.pick(&PREFIXES), *input.pick(&[MAIN, 51820, 5182, 11820, 123]), input.below(3));
        let _ = host.apply(&Step::AddRoute(foreign_route(to, table, metric as u32)));
    }
    host.rules = standard_rules();
    for _ in 0..input.below(3) {
        let rule = foreign_rule(input);
        if !host.disabled_families.contains(&rule.family) && !host.rules.contains(&rule) {
            host.rules.push(rule);
        }
    }
    host
}

/// Rules of other tunnels, and some whose numbers only look like ours.
fn foreign_rule(input: &mut Bytes<'_>) -> Rule {
    let tables = [(51820, None), (518_201, Some(518_201)), (5182, Some(51820)), (MAIN, None), (151_820, Some(1))];
    let (table, fwmark) = *input.pick(&tables);
    let (family, suppressed) =
        (*input.pick(&[AddressFamily::V4, AddressFamily::V6]), *input.pick(&[None, Some(0), Some(8)]));
    let not = input.flag() && fwmark.is_some();
    let priority = 90 + input.below(30) as u32;
    Rule { family, priority, not, fwmark, to: None, table, suppress_prefixlength: suppressed, protocol: 0 }
}

pub fn standard_rules() -> Vec<Rule> {
    let rule = |family, priority, table| Rule {
        family,
        priority,
        not: false,
        fwmark: None,
        to: None,
        table,
        suppress_prefixlength: None,
        protocol: 2,
    };
    let of_family = |family| [rule(family, 0, 255), rule(family, 32_766, MAIN)];
    [AddressFamily::V4, AddressFamily::V6]
        .into_iter()
        .flat_map(of_family)
        .chain([rule(AddressFamily::V4, 32_767, 253)])
        .collect()
}

fn foreign_route(to: &str, table: u32, metric: u32) -> Route {
    let to: IpNet = parsed(to);
    let is_v4 = AddressFamily::of_net(&to) == AddressFamily::V4;
    Route {
        to,
        device: Some("eth0".to_owned()),
        via: Some(parsed(if is_v4 { "192.168.1.1" } else { "2001:db8:1::1" })),
        table,
        metric: if is_v4 { metric } else { 1023 + metric },
        protocol: 3,
        scope: 0,
        source: None,
        mtu: 0,
        onlink: false,
    }
}

fn nets(input: &mut Bytes<'_>, of: &[&str], at_most: usize) -> Vec<IpNet> {
    let mut nets: Vec<IpNet> = Vec::new();
    for _ in 0..input.below(at_most + 1) {
        let net = parsed(input.pick::<&str>(of));
        if !nets.contains(&net) {
            nets.push(net);
        }
    }
    nets
}

fn parsed<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is in the wrong list"))
}
