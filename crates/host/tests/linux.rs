//! The Linux host against the kernel and against what iproute2, nft and the original wg-quick make of it.
//!
//! Each test runs itself again in network, mount and process namespaces of its own, so that it meets nothing of the
//! machine's and leaves nothing behind. The whole is ended after a minute.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, UdpSocket};
use std::process::Output;
use std::time::Instant;

use ipnet::IpNet;
use linerate_host::linux::Host;
use linerate_host::plan::gateway::restrictions;
use linerate_host::plan::nft_commands;
use linerate_host::spec::Inbound;
use linerate_host::state::{HeldSysctl, HostState, Link};
use linerate_host::step::{
    AddressFamily, Firewall, FirewallFamily, GatewayTable, Implementation, MAIN, OpenGateway, Phase, Route, Rule, Step,
};
use linerate_host::transaction::{ApplyError, Executor, StepError, execute_best_effort};
use rustix::io::Errno;
use serde_json::Value;

#[path = "../../../tests/in_namespaces.rs"]
mod in_namespaces;
use in_namespaces::{command, in_namespaces, missing, skipped};

/// The tunnel's interface.
const LINK: &str = "wg0";

#[test]
fn every_step_is_undone_by_its_inverse() {
    in_namespaces(|| {
        set_up_link();
        run("ip address add 192.0.2.1/24 dev wg0");
        run("ip address add 2001:db8::1/64 dev wg0 nodad");
        let mut host = Host::open().unwrap();
        for step in every_step() {
            let before = observed(&mut host);
            host.apply(std::slice::from_ref(&step)).unwrap_or_else(|error| panic!("{step:?}: {error}"));
            assert_ne!(observed(&mut host), before, "{step:?} does nothing");
            let undo = step.undo().unwrap();
            host.apply(&[undo]).unwrap_or_else(|error| panic!("undo of {step:?}: {error}"));
            assert_eq!(observed(&mut host), before, "{step:?} leaves something behind");
        }
    });
}

#[test]
fn steps_leave_what_iproute2_leaves() {
    in_namespaces(|| {
        let steps = [
            Step::AddAddress { interface: LINK.into(), address: net("10.1.2.3/24") },
            Step::AddAddress { interface: LINK.into(), address: net("10.1.2.4/24") },
            Step::AddAddress { interface: LINK.into(), address: net("10.9.9.9/32") },
            Step::AddAddress { interface: LINK.into(), address: net("127.5.5.5/32") },
            Step::AddAddress { interface: LINK.into(), address: net("fd00::3/64") },
            Step::AddAddress { interface: LINK.into(), address: net("fd01::3/128") },
            Step::SetMtu { interface: LINK.into(), mtu: 1420, before: 0 },
            Step::LinkUp { interface: LINK.into() },
            Step::AddRoute(route("10.20.0.0/16", MAIN)),
            Step::AddRoute(route("0.0.0.0/0", 51820)),
            Step::AddRoute(Route { metric: 77, ..route("10.21.0.0/16", 200) }),
            Step::AddRoute(Route { via: Some(ip("10.1.2.9")), scope: 0, ..route("10.22.0.0/16", MAIN) }),
            Step::AddRoute(Route { via: Some(ip("10.8.8.8")), scope: 0, onlink: true, ..route("10.23.0.0/16", MAIN) }),
            Step::AddRoute(Route { via: Some(ip("fd00::9")), scope: 0, ..route("10.24.0.0/16", MAIN) }),
            Step::AddRoute(Route { device: None, scope: 0, ..route("10.25.0.0/16", MAIN) }),
            Step::AddRoute(Route { source: Some(ip("10.9.9.9")), mtu: 1300, ..route("10.26.0.0/16", MAIN) }),
            Step::AddRoute(route("fd20::/16", MAIN)),
            Step::AddRoute(route("::/0", 51820)),
            Step::AddRoute(Route { via: Some(ip("fd00::9")), ..route("fd22::/16", MAIN) }),
            Step::AddRoute(Route { device: None, ..route("fd25::/16", MAIN) }),
            Step::AddRule(rule(AddressFamily::V4, 32765)),
            Step::AddRule(suppressing(AddressFamily::V4, 32764)),
            Step::AddRule(Rule { to: Some(net("10.30.0.0/16")), ..suppressing(AddressFamily::V4, 500) }),
            Step::AddRule(rule(AddressFamily::V6, 32765)),
            Step::AddRule(suppressing(AddressFamily::V6, 32764)),
        ];
        add_link();
        Host::open().unwrap().apply(&steps).unwrap();
        let ours = said_by_ip();

        run("ip link delete wg0");
        for family in ["-4", "-6"] {
            run(&format!("ip {family} rule flush"));
            run(&format!("ip {family} rule add from all lookup main pref 32766 protocol kernel"));
            run(&format!("ip {family} route flush table all type unreachable"));
        }
        run("ip -4 rule add from all lookup default pref 32767 protocol kernel");
        add_link();
        for command in "
            -4 address add 10.1.2.3/24 dev wg0
            -4 address add 10.1.2.4/24 dev wg0
            -4 address add 10.9.9.9 dev wg0
            -4 address add 127.5.5.5/32 dev wg0
            -6 address add fd00::3/64 dev wg0
            -6 address add fd01::3 dev wg0
            link set mtu 1420 up dev wg0
            -4 route add 10.20.0.0/16 dev wg0
            -4 route add 0.0.0.0/0 dev wg0 table 51820
            -4 route add 10.21.0.0/16 dev wg0 table 200 metric 77
            -4 route add 10.22.0.0/16 via 10.1.2.9 dev wg0
            -4 route add 10.23.0.0/16 via 10.8.8.8 dev wg0 onlink
            -4 route add 10.24.0.0/16 via inet6 fd00::9 dev wg0
            -4 route add unreachable 10.25.0.0/16
            -4 route add 10.26.0.0/16 dev wg0 src 10.9.9.9 mtu 1300
            -6 route add fd20::/16 dev wg0
            -6 route add ::/0 dev wg0 table 51820
            -6 route add fd22::/16 via fd00::9 dev wg0
            -6 route add unreachable fd25::/16
            -4 rule add not fwmark 51820 table 51820
            -4 rule add table main suppress_prefixlength 0
            -4 rule add to 10.30.0.0/16 table main suppress_prefixlength 0 pref 500
            -6 rule add not fwmark 51820 table 51820
            -6 rule add table main suppress_prefixlength 0"
            .lines()
            .skip(1)
        {
            run(&format!("ip {command}"));
        }
        let theirs = said_by_ip();
        for (what, said) in &theirs {
            assert_eq!(ours[what], *said, "{what}");
        }
    });
}

#[test]
fn the_state_equals_what_ip_prints() {
    in_namespaces(|| {
        set_up_link();
        for command in "
            address add 10.1.2.3/24 dev wg0
            address add 10.1.2.4 peer 10.7.7.7/24 dev wg0
            address add fd00::3/64 dev wg0
            address add fd00::4 peer fd00::5/128 dev wg0
            link set lo up
            route add default via 10.1.2.1 dev wg0 metric 50 protocol dhcp src 10.1.2.3
            route add 10.20.0.0/16 nexthop via 10.1.2.8 dev wg0 nexthop via 10.1.2.9 dev wg0
            route add 10.21.0.0/16 dev wg0 table 100000 mtu 1300
            route add 10.22.0.0/16 via inet6 fd00::9 dev wg0
            route add 10.23.0.0/16 via 172.16.0.1 dev wg0 onlink
            route add blackhole 10.24.0.0/16
            route add prohibit fd24::/16 table 7
            route add fd25::/16 via fd00::9 dev wg0 metric 3
            rule add not fwmark 0x10 table 100000
            rule add to 10.0.0.0/8 table 20 pref 9 protocol static
            -6 rule add table main suppress_prefixlength 0
            -6 rule add fwmark 3 table 3"
            .lines()
            .skip(1)
        {
            run(&format!("ip {command}"));
        }
        let state = Host::open().unwrap().state().unwrap();
        assert_eq!(state.links, links_by_ip());
        assert_eq!(state.rules, rules_by_ip());
        let (read, said) = (state.routes, routes_by_ip());
        assert!(said.len() >= 11, "{said:?}");
        assert_eq!(read, said);
        assert_eq!((state.disabled_families, state.nftables, state.firewall_tables), (vec![], true, vec![]));
        assert_eq!(state.sysctls[SRC_VALID_MARK], "0");
    });
}

#[test]
fn the_state_can_be_read_without_the_permission_to_change_it() {
    in_namespaces(|| {
        if std::env::var_os(POWERLESS).is_some() {
            let mut host = Host::open().unwrap();
            let state = host.state().unwrap();
            assert_eq!(state.links, links_by_ip());
            let refused = host.apply(&[Step::AddRule(rule(AddressFamily::V4, 9))]).unwrap_err();
            assert_eq!(refused.error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
            let table = firewall(FirewallFamily::Inet, "linerate-wg0", None);
            let refused = host.apply(&[Step::AddFirewall(table)]).unwrap_err();
            assert_eq!(refused.error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
            return;
        }
        set_up_link();
        // Itself once more, as root without what makes root mighty.
        let again = command("setpriv --bounding-set=-all --inh-caps=-all")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "the_state_can_be_read_without_the_permission_to_change_it", "--nocapture"])
            .env(POWERLESS, "1")
            .status();
        assert!(again.unwrap().success());
    });
}

const POWERLESS: &str = "LINERATE_HOST_TEST_POWERLESS";

#[test]
fn a_disabled_address_family_is_reported() {
    in_namespaces(|| {
        let mut host = Host::open().unwrap();
        for variable in ["all", "default"] {
            let step = |value: &str, before: &str| Step::SetSysctl {
                name: format!("net.ipv6.conf.{variable}.disable_ipv6"),
                value: value.into(),
                before: before.into(),
            };
            host.apply(&[step("1", "0")]).unwrap();
            assert_eq!(host.state().unwrap().disabled_families, [AddressFamily::V6], "{variable}");
            host.apply(&[step("0", "1")]).unwrap();
            assert_eq!(host.state().unwrap().disabled_families, []);
        }
    });
}

#[test]
fn five_thousand_routes_are_added_and_deleted() {
    in_namespaces(|| {
        set_up_link();
        let mut host = Host::open().unwrap();
        let before = host.state().unwrap();
        let add: Vec<Step> = many_routes(5000).map(Step::AddRoute).collect();
        let delete: Vec<Step> = add.iter().rev().filter_map(Step::undo).collect();
        let mut times = Vec::new();
        let mut timed = |what: &str, run: &mut dyn FnMut()| {
            let start = Instant::now();
            run();
            times.push(format!("{what} {:.1} ms", start.elapsed().as_secs_f64() * 1e3));
        };
        timed("added in", &mut || host.apply(&add).unwrap());
        let mut state = HostState::default();
        timed("read in", &mut || state = host.state().unwrap());
        let ours = state.routes.iter().filter(|route| !before.routes.contains(route));
        assert!(ours.eq(&many_routes(5000).collect::<Vec<_>>()));
        timed("deleted in", &mut || host.apply(&delete).unwrap());
        writeln!(io::stderr(), "5000 routes {}", times.join(", ")).unwrap();
        assert_eq!(host.state().unwrap(), before);
    });
}

#[test]
fn a_refusal_in_the_middle_of_a_batch_keeps_only_the_steps_before_it() {
    in_namespaces(|| {
        set_up_link();
        run("ip address add 192.0.2.1/24 dev wg0");
        let mut host = Host::open().unwrap();
        // In the first batch, at its edges, and in a later one.
        for refused in [0, 1, 60, 126, 127, 128, 129, 300, 599] {
            let before = observed(&mut host);
            let mut steps: Vec<Step> = many_routes(600).map(Step::AddRoute).collect();
            let conflicting = "10.0.0.0/8".parse().unwrap();
            steps.insert(0, Step::AddRoute(Route { to: conflicting, ..route("10.0.0.0/8", MAIN) }));
            steps[refused + 1] = steps[0].clone();
            steps.insert(refused + 2, Step::AddRule(rule(AddressFamily::V4, 100)));
            steps.insert(refused + 3, Step::AddAddress { interface: LINK.into(), address: net("10.1.1.1/32") });
            let error = host.apply(&steps).unwrap_err();
            assert_eq!(error.index, refused + 1, "{error}");
            assert_eq!(error.error.raw_os_error(), Some(Errno::EXIST.raw_os_error()));
            let done = &steps[..=refused];
            let there = host.state().unwrap().routes;
            for (place, step) in steps.iter().enumerate() {
                let Step::AddRoute(route) = step else { continue };
                assert_eq!(there.contains(route), done.contains(step), "{place} of {refused}");
            }
            let undo: Vec<_> = done.iter().rev().filter_map(Step::undo).collect();
            host.apply(&undo).unwrap();
            assert_eq!(observed(&mut host), before, "{refused}");
        }
    });
}

#[test]
fn a_deletion_after_a_refusal_is_rolled_back() {
    in_namespaces(|| {
        set_up_link();
        let mut host = Host::open().unwrap();
        let kept = Step::AddRoute(Route { metric: 5, mtu: 1280, ..route("10.5.0.0/16", 77) });
        let rule = Step::AddRule(rule(AddressFamily::V6, 99));
        host.apply(&[kept.clone(), rule.clone()]).unwrap();
        let before = observed(&mut host);
        let error = host.apply(&[kept.clone(), kept.undo().unwrap(), rule.undo().unwrap()]).unwrap_err();
        assert_eq!(error.index, 0);
        assert_eq!(observed(&mut host), before);
    });
}

#[test]
fn deleting_an_address_keeps_the_others() {
    in_namespaces(|| {
        set_up_link();
        let mut host = Host::open().unwrap();
        for promoted in ["0", "1"] {
            std::fs::write("/proc/sys/net/ipv4/conf/wg0/promote_secondaries", promoted).unwrap();
            let all = ["10.1.2.3/24", "10.1.2.4/24", "10.1.2.5/24", "10.1.2.3/32", "fd00::1/64"];
            let step = |address: &str| Step::AddAddress { interface: LINK.into(), address: net(address) };
            host.apply(&all.map(step)).unwrap();
            for (gone, place) in all.iter().zip(1..) {
                host.apply(&[step(gone).undo().unwrap()]).unwrap();
                let mut there = host.state().unwrap().link(LINK).unwrap().addresses.clone();
                let mut left = nets(&all[place..]);
                there.sort();
                left.sort();
                assert_eq!(there, left, "without {gone}");
            }
        }
    });
}

#[test]
fn a_step_about_a_missing_object_is_refused_with_its_errno() {
    in_namespaces(|| {
        set_up_link();
        let mut host = Host::open().unwrap();
        let before = observed(&mut host);
        let gone = |error: Errno, step: Step, host: &mut Host| {
            let there = Step::AddRoute(route("10.5.0.0/16", 77));
            let refused = host.apply(&[there.clone(), step.clone()]).unwrap_err();
            assert_eq!(refused.index, 1, "{step:?}: {refused}");
            assert_eq!(refused.error.raw_os_error(), Some(error.raw_os_error()), "{step:?}: {refused}");
            host.apply(&[there.undo().unwrap()]).unwrap();
            assert_eq!(observed(host), before, "{step:?}");
        };
        let elsewhere = Route { device: Some("wg7".into()), ..route("10.6.0.0/16", 77) };
        let table = firewall(FirewallFamily::Inet, "linerate-wg0", None);
        gone(Errno::NODEV, Step::AddRoute(elsewhere), &mut host);
        gone(Errno::NODEV, Step::LinkUp { interface: "a-name-that-is-too-long-for-a-link".repeat(3000) }, &mut host);
        gone(Errno::NODEV, Step::DeleteLink { interface: "wg7".into() }, &mut host);
        gone(Errno::SRCH, Step::DeleteRoute(route("10.6.0.0/16", 77)), &mut host);
        gone(
            Errno::ADDRNOTAVAIL,
            Step::DeleteAddress { interface: LINK.into(), address: net("10.6.6.6/32") },
            &mut host,
        );
        gone(Errno::NOENT, Step::DeleteRule(rule(AddressFamily::V4, 9)), &mut host);
        gone(Errno::NOENT, Step::DeleteFirewall(table.clone()), &mut host);
        gone(Errno::NAMETOOLONG, Step::AddFirewall(Firewall { table: "t".repeat(70_000), ..table }), &mut host);
        let interface = "w".repeat(70_000);
        gone(Errno::NAMETOOLONG, Step::AddLink { interface, implementation: Implementation::Kernel }, &mut host);
        let sysctl = |name: &str| Step::SetSysctl { name: name.into(), value: "1".into(), before: "0".into() };
        gone(Errno::NOENT, sysctl("net.ipv4.no_such_thing"), &mut host);
    });
}

#[test]
fn steps_that_are_not_the_kernels_are_refused() {
    in_namespaces(|| {
        let mut host = Host::open().unwrap();
        for step in [
            Step::Hook { phase: Phase::PreUp, command: "true".into() },
            Step::Configure { interface: LINK.into() },
            Step::AddLink { interface: LINK.into(), implementation: Implementation::Daemon },
            Step::SetFwmark { interface: LINK.into(), fwmark: 1, before: 0 },
        ] {
            let refused = host.apply(&[step]).unwrap_err();
            assert_eq!((refused.index, refused.error.kind()), (0, io::ErrorKind::Unsupported));
        }
    });
}

#[test]
fn a_kernel_without_the_module_refuses_the_link() {
    in_namespaces(|| {
        let add = Step::AddLink { interface: LINK.into(), implementation: Implementation::Kernel };
        let mut host = Host::open().unwrap();
        match host.apply(std::slice::from_ref(&add)) {
            Ok(()) => {
                let state = host.state().unwrap();
                assert!(state.link(LINK).unwrap().wireguard);
                host.apply(&[add.undo().unwrap()]).unwrap();
                assert_eq!(host.state().unwrap().link(LINK), None);
            }
            Err(refused) => {
                assert_eq!(refused.error.raw_os_error(), Some(Errno::OPNOTSUPP.raw_os_error()));
                assert_eq!(refused.explanation.as_deref(), Some("Unknown device type"));
                assert!(refused.to_string().ends_with(": Unknown device type"), "{refused}");
            }
        }
    });
}

#[test]
fn firewall_tables_equal_those_of_wg_quick() {
    if let Some(reason) = missing(&["wg-quick", "wireguard-go", "wg"]) {
        return skipped("firewall_tables_equal_those_of_wg_quick", &reason);
    }
    in_namespaces(|| {
        run("mount -t tmpfs tmpfs /run");
        run("mount -t tmpfs tmpfs /tmp");
        let key = String::from_utf8(run("wg genkey").stdout).unwrap();
        let file = format!(
            "[Interface]\nPrivateKey = {key}Address = 10.77.0.1/24, 10.78.0.1/32, fd77::1/64\n\
             [Peer]\nPublicKey = {key}AllowedIPs = 0.0.0.0/0, ::/0\n"
        );
        std::fs::write("/tmp/wg0.conf", file).unwrap();
        run("chmod 600 /tmp/wg0.conf");
        run("wg-quick up /tmp/wg0.conf");
        let theirs = ruleset();
        assert!(theirs.len() > 10, "{theirs:?}");

        let mut host = Host::open().unwrap();
        let state = host.state().unwrap();
        let tables: BTreeSet<&str> = state.firewall_tables.iter().map(String::as_str).collect();
        assert_eq!(tables, BTreeSet::from(["ip wg-quick-wg0", "ip6 wg-quick-wg0"]));
        let addresses: Vec<IpAddr> = state.link(LINK).unwrap().addresses.iter().map(IpNet::addr).collect();
        run("nft flush ruleset");
        assert_eq!(ruleset().len(), 1);
        // In the original's order: that of the allowed IPs, sorted backwards.
        let tables = [FirewallFamily::Ip6, FirewallFamily::Ip]
            .map(|family| Firewall { addresses: addresses.clone(), ..firewall(family, "wg-quick-wg0", None) });
        host.apply(&tables.clone().map(Step::AddFirewall)).unwrap();
        assert_eq!(ruleset(), theirs);
        host.apply(&tables.map(Step::DeleteFirewall)).unwrap();
        assert_eq!(host.state().unwrap().firewall_tables, [""; 0]);
    });
}

#[test]
fn the_table_of_a_gateway_equals_the_commands_that_the_plan_shows() {
    in_namespaces(|| {
        let full = gateway_table();
        let open = full.gateway.clone().unwrap();
        let all = OpenGateway { inbound: Inbound::All, masqueraded: nets(&["0.0.0.0/1"]), mtu: 1200, ..open.clone() };
        let none =
            || OpenGateway { clients: Vec::new(), behind_peers: Vec::new(), masqueraded: Vec::new(), ..open.clone() };
        let routed = OpenGateway { devices: Vec::new(), ..none() };
        for table in [
            GatewayTable { isolated: false, gateway: Some(all), restrictions: Vec::new(), ..full.clone() },
            GatewayTable { gateway: Some(routed), ..full.clone() },
            GatewayTable { gateway: None, ..full.clone() },
            full,
        ] {
            let step = Step::AddGateway(table.clone());
            let mut host = Host::open().unwrap();
            host.apply(std::slice::from_ref(&step)).unwrap();
            let listed = || String::from_utf8(run("nft -s list ruleset").stdout).unwrap();
            let made = listed();
            assert!(made.contains("hook forward") && made.contains("counter drop"), "{made}");
            // Again, in its own place.
            host.apply(std::slice::from_ref(&step)).unwrap();
            assert_eq!(listed(), made);
            run("nft flush ruleset");
            for line in nft_commands(&table) {
                let typed = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
                assert!(typed.status.success(), "{line}: {}", String::from_utf8_lossy(&typed.stderr));
            }
            assert_eq!(made, listed());
            host.apply(&[step.undo().unwrap()]).unwrap();
            assert_eq!(listed(), "");
        }
    });
}

#[test]
fn the_guard_of_forwarding_equals_the_rules_that_nft_makes_and_goes_with_the_last_sysctl() {
    in_namespaces(|| {
        let held = |names: &[&str]| -> BTreeMap<String, HeldSysctl> {
            let held = HeldSysctl { before: "0".into(), holders: ["wg0".to_owned(), "wg1".to_owned()].into() };
            names.iter().map(|name| ((*name).to_owned(), held.clone())).collect()
        };
        let mut host = Host::open().unwrap();
        run("ip tuntap add dev eth1.7 mode tun");
        run("sysctl -w net.ipv4.conf.eth1/7.forwarding=1 net.ipv6.conf.all.forwarding=0");
        // A sysctl that is held but not in force adds nothing to the guard.
        let off = "net.ipv4.conf.lo.forwarding";
        let (one, all) = ("net.ipv4.conf.eth1/7.forwarding", "net.ipv6.conf.all.forwarding");
        for (names, about_to, dropped) in [
            (vec![one, off], None, "meta nfproto ipv4 iifname @opened4 counter drop"),
            (
                vec![one, off, all],
                Some(all),
                "meta nfproto ipv4 iifname @opened4 counter drop\n meta nfproto ipv6 counter drop",
            ),
        ] {
            host.guard_forwarding(held(&names), about_to).unwrap();
            // Replacing it by itself changes nothing.
            host.guard_forwarding(held(&names), about_to).unwrap();
            let listed = || String::from_utf8(run("nft -s list ruleset").stdout).unwrap();
            let made = listed();
            run("nft flush ruleset");
            run("mount -t tmpfs tmpfs /tmp");
            std::fs::write("/tmp/guard.nft", FORWARDING_GUARD.replace("DROPPED", dropped)).unwrap();
            run("nft -f /tmp/guard.nft");
            assert_eq!(made, listed());
        }
        host.guard_forwarding(held(&[off]), None).unwrap();
        assert_eq!(host.state().unwrap().firewall_tables, [""; 0]);
        host.guard_forwarding(held(&[off]), None).unwrap();
    });
}

/// The guard as an administrator would write it for nft.
const FORWARDING_GUARD: &str = r#"
table inet linerate_forwarding {
    set tunnels { type ifname; elements = { "wg0", "wg1" }; }
    set opened4 { type ifname; elements = { "eth1.7" }; }
    chain forward {
        type filter hook forward priority filter; policy accept;
        iifname @tunnels accept
        oifname @tunnels accept
        ct state established,related accept
        ct status dnat accept
        DROPPED
    }
}
"#;

#[test]
fn a_released_sysctl_stays_if_somebody_else_has_changed_it() {
    in_namespaces(|| {
        add_link();
        let name = "net.ipv4.conf.wg0.forwarding";
        run(&format!("sysctl -w {name}=0"));
        let mut host = Host::open().unwrap();
        let value = |host: &mut Host| host.state().unwrap().sysctls[name].clone();
        host.apply(&[hold(name)]).unwrap();
        assert_eq!(value(&mut host), "1");
        let release =
            Step::ReleaseSysctl { interface: LINK.into(), name: name.into(), value: "2".into(), before: "0".into() };
        host.apply(&[release]).unwrap();
        assert_eq!(value(&mut host), "1", "it is not at the value that was held");
        host.apply(&[hold(name).undo().unwrap()]).unwrap();
        assert_eq!(value(&mut host), "0");
    });
}

#[test]
fn the_kill_switch_equals_the_rules_that_nft_makes() {
    in_namespaces(|| {
        let prefixes =
            ["192.168.0.0/16", "192.0.2.4/30", "203.0.113.5/32", "fe80::/10", "2001:db8::/29", "fd00::9/128"];
        let ours = Firewall {
            kept_inside: nets(&["192.168.7.0/24", "fe80:1::/64"]),
            name_servers: vec![ip("192.0.2.5")],
            ..firewall(FirewallFamily::Inet, "linerate-wg0", Some(prefixes.map(net).to_vec()))
        };
        let step = Step::AddFirewall(ours);
        Host::open().unwrap().apply(std::slice::from_ref(&step)).unwrap();
        let made = ruleset();
        run("nft flush ruleset");
        run("mount -t tmpfs tmpfs /tmp");
        std::fs::write("/tmp/kill-switch.nft", KILL_SWITCH).unwrap();
        run("nft -f /tmp/kill-switch.nft");
        // nft makes the chains of a table before all rules, so that handles differ.
        let without_handles = |parts: Vec<Value>| parts.into_iter().map(without_handle).collect::<Vec<_>>();
        assert_eq!(without_handles(made), without_handles(ruleset()));
    });
}

/// As someone would write it.
const KILL_SWITCH: &str = r#"
table inet linerate-wg0 {
    chain preraw {
        type filter hook prerouting priority -300; policy accept;
        iifname != "wg0" ip daddr 10.77.0.1 fib saddr type != local drop
        iifname != "wg0" ip6 daddr fd77::1 fib saddr type != local drop
    }
    chain premangle {
        type filter hook prerouting priority -150; policy accept;
        meta l4proto udp meta mark set ct mark
    }
    chain postmangle {
        type filter hook postrouting priority -150; policy accept;
        meta l4proto udp meta mark 51820 ct mark set meta mark
    }
    chain output {
        type filter hook output priority 0; policy drop;
        oifname "lo" accept
        oifname "wg0" accept
        meta mark 51820 accept
        ip daddr 192.168.7.0/24 counter drop
        ip6 daddr fe80:1::/64 counter drop
        ip daddr 192.0.2.5 udp dport 53 accept
        udp dport 53 counter drop
        ip daddr 192.0.2.5 tcp dport 53 accept
        tcp dport 53 counter drop
        ip daddr 192.0.2.5 tcp dport 853 accept
        tcp dport 853 counter drop
        ip daddr 192.0.2.5 udp dport 853 accept
        udp dport 853 counter drop
        ip daddr 192.168.0.0/16 accept
        ip daddr 192.0.2.4/30 accept
        ip daddr 203.0.113.5 accept
        ip6 daddr fe80::/10 accept
        ip6 daddr 2001:db8::/29 accept
        ip6 daddr fd00::9 accept
        meta nfproto ipv4 udp sport 68 udp dport 67 accept
        meta nfproto ipv6 udp sport 546 udp dport 547 accept
        icmpv6 type nd-router-solicit accept
        icmpv6 type nd-neighbor-solicit accept
        icmpv6 type nd-neighbor-advert accept
        counter drop
    }
    chain forward {
        type filter hook forward priority 0; policy drop;
        iifname "wg0" accept
        oifname "wg0" accept
        ip daddr 192.168.7.0/24 counter drop
        ip6 daddr fe80:1::/64 counter drop
        ip daddr 192.0.2.5 udp dport 53 accept
        udp dport 53 counter drop
        ip daddr 192.0.2.5 tcp dport 53 accept
        tcp dport 53 counter drop
        ip daddr 192.0.2.5 tcp dport 853 accept
        tcp dport 853 counter drop
        ip daddr 192.0.2.5 udp dport 853 accept
        udp dport 853 counter drop
        ip daddr 192.168.0.0/16 accept
        ip daddr 192.0.2.4/30 accept
        ip daddr 203.0.113.5 accept
        ip6 daddr fe80::/10 accept
        ip6 daddr 2001:db8::/29 accept
        ip6 daddr fd00::9 accept
        counter drop
    }
}
"#;

#[test]
fn the_kill_switch_accepts_what_it_lists() {
    in_namespaces(|| {
        set_up_link();
        run("ip link set lo up");
        run("ip tuntap add dev eth0 mode tun");
        run("ip link set eth0 up");
        for command in [
            "ip address add 10.77.0.1/24 dev wg0",
            "ip address add 192.0.2.1/24 dev eth0",
            "ip address add 198.51.100.1/24 dev eth0",
            "ip address add 2001:db8::1/64 dev eth0 nodad",
        ] {
            run(command);
        }
        let mut host = Host::open().unwrap();
        let every = ["127.0.0.1", "10.77.0.2", "192.0.2.2", "198.51.100.2", "2001:db8::2"];
        let passes = || every.map(|to| send_to(ip(to), 7));
        assert_eq!(passes(), [true; 5]);

        let on = |prefixes: &[&str]| firewall(FirewallFamily::Inet, "linerate-wg0", Some(nets(prefixes)));
        let first = Step::AddFirewall(on(&["198.51.100.0/24"]));
        host.apply(std::slice::from_ref(&first)).unwrap();
        assert_eq!(passes(), [true, true, false, true, false]);
        assert!(!send_to(ip("198.51.100.2"), 53), "no name server may be queried outside of the tunnel");
        assert!(!send_to(ip("192.0.2.2"), 67), "only the port of a DHCP client may ask a DHCP server");
        // The kernel may have had something to say, too.
        assert!(counted("output") >= 3);

        // Another takes its place within one transaction.
        let second = Step::AddFirewall(on(&["192.0.2.0/24", "2001:db8::/32"]));
        host.apply(&[first.undo().unwrap(), second.clone()]).unwrap();
        assert_eq!(passes(), [true, true, true, false, true]);

        let third = Step::AddFirewall(Firewall {
            kept_inside: nets(&["198.51.100.2/32"]),
            name_servers: vec![ip("192.0.2.2")],
            ..on(&["192.0.2.0/24", "198.51.100.0/24"])
        });
        host.apply(std::slice::from_ref(&third)).unwrap();
        assert_eq!(passes(), [true, true, true, false, false]);
        assert!(send_to(ip("192.0.2.2"), 53) && !send_to(ip("192.0.2.3"), 53), "only one name server is allowed");

        host.apply(&[third.undo().unwrap()]).unwrap();
        assert_eq!(passes(), [true; 5]);
    });
}

#[test]
fn a_firewall_transaction_is_all_or_nothing() {
    in_namespaces(|| {
        let mut host = Host::open().unwrap();
        let [old, new, absent] = ["old", "new", "absent"].map(|name| firewall(FirewallFamily::Inet, name, None));
        host.apply(&[Step::AddFirewall(old.clone())]).unwrap();
        let before = ruleset();
        let refused = [
            vec![
                Step::DeleteFirewall(old.clone()),
                Step::AddFirewall(new.clone()),
                Step::DeleteFirewall(absent.clone()),
            ],
            vec![Step::AddFirewall(new.clone()), Step::AddFirewall(old), Step::DeleteFirewall(absent)],
        ];
        for steps in refused {
            let mut steps = steps;
            steps.insert(0, Step::AddRule(rule(AddressFamily::V4, 7)));
            let error = host.apply(&steps).unwrap_err();
            assert_eq!(error.index, 1, "{error}");
            assert_eq!(ruleset(), before);
            host.apply(&[steps[0].undo().unwrap()]).unwrap();
        }
    });
}

struct Hands<'a>(&'a mut Host);

impl Executor for Hands<'_> {
    fn apply(&mut self, steps: &[Step]) -> Result<(), StepError> {
        self.0.apply(steps).map_err(|ApplyError { index, error, explanation }| StepError {
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

#[test]
fn a_missing_table_does_not_keep_others_from_being_deleted() {
    in_namespaces(|| {
        let mut host = Host::open().unwrap();
        let [one, other, absent] = ["one", "other", "absent"].map(|name| firewall(FirewallFamily::Inet, name, None));
        for order in [[&one, &absent, &other], [&absent, &one, &other], [&one, &other, &absent]] {
            host.apply(&[&one, &other].map(|table| Step::AddFirewall(table.clone()))).unwrap();
            let left = execute_best_effort(
                &order.map(|table| Step::DeleteFirewall(table.clone())),
                &mut Hands(&mut host),
                &mut |step, _| panic!("{step:?}"),
            );
            assert_eq!((left, ruleset().len()), (vec![], 1), "{order:?}");
        }
    });
}

#[test]
fn a_table_replaces_one_of_the_same_name() {
    in_namespaces(|| {
        let mut host = Host::open().unwrap();
        let switch = |prefix: &str| firewall(FirewallFamily::Inet, "linerate-wg0", Some(vec![prefix.parse().unwrap()]));
        host.apply(&[Step::AddFirewall(switch("192.0.2.0/24"))]).unwrap();
        let alone = ruleset();
        host.apply(&[Step::AddFirewall(switch("198.51.100.0/24"))]).unwrap();
        host.apply(&[Step::AddFirewall(switch("192.0.2.0/24"))]).unwrap();
        assert_eq!(ruleset(), alone);
    });
}

#[test]
fn a_long_kill_switch_is_one_transaction() {
    in_namespaces(|| {
        let prefixes = (0..2000u32).map(|n| IpNet::new(IpAddr::from((n << 12).to_be_bytes()), 20).unwrap());
        let long = firewall(FirewallFamily::Inet, "linerate-wg0", Some(prefixes.collect()));
        Host::open().unwrap().apply(&[Step::AddFirewall(long)]).unwrap();
        let rules = ruleset().iter().filter(|part| part.get("rule").is_some()).count();
        assert!(rules > 2 * 2000, "{rules}");
    });
}

/// A step of each kind that can be undone.
fn every_step() -> Vec<Step> {
    let table = |family| Step::AddFirewall(firewall(family, "wg-quick-wg0", None));
    vec![
        Step::AddAddress { interface: LINK.into(), address: net("10.1.2.3/24") },
        Step::AddAddress { interface: LINK.into(), address: net("fd00::3/64") },
        Step::DeleteAddress { interface: LINK.into(), address: net("192.0.2.1/24") },
        Step::SetMtu { interface: LINK.into(), mtu: 1420, before: 1500 },
        Step::AddRoute(route("10.20.0.0/16", MAIN)),
        Step::AddRoute(Route { metric: 7, mtu: 1300, ..route("10.20.0.0/16", 100_000) }),
        Step::AddRoute(Route { via: Some(ip("192.0.2.9")), scope: 0, ..route("0.0.0.0/0", MAIN) }),
        Step::AddRoute(Route { device: None, scope: 0, ..route("10.20.0.0/16", MAIN) }),
        Step::AddRoute(route("fd20::/16", MAIN)),
        Step::AddRoute(Route { via: Some(ip("2001:db8::9")), metric: 9, ..route("::/0", 51820) }),
        Step::AddRoute(Route { device: None, ..route("fd20::/16", MAIN) }),
        Step::AddRule(rule(AddressFamily::V4, 32765)),
        Step::AddRule(rule(AddressFamily::V6, 32765)),
        Step::AddRule(suppressing(AddressFamily::V4, 32764)),
        Step::AddRule(suppressing(AddressFamily::V6, 32764)),
        Step::AddRule(Rule { to: Some(net("fd30::/16")), protocol: 99, ..suppressing(AddressFamily::V6, 500) }),
        Step::SetSysctl { name: SRC_VALID_MARK.into(), value: "1".into(), before: "0".into() },
        table(FirewallFamily::Ip),
        table(FirewallFamily::Ip6),
        table(FirewallFamily::Inet),
        Step::AddFirewall(firewall(FirewallFamily::Inet, "linerate-wg0", Some(nets(&["10.0.0.0/8", "fd00::/8"])))),
        Step::AddGateway(gateway_table()),
        hold(&format!("net.ipv4.conf.{LINK}.forwarding")),
    ]
}

fn hold(name: &str) -> Step {
    Step::HoldSysctl { interface: LINK.into(), name: name.into(), value: "1".into(), before: "0".into() }
}

/// A table with everything that one may have.
fn gateway_table() -> GatewayTable {
    let peer = |allowed: &[&str], to: &[&str]| (nets(allowed), nets(to));
    let peers = [
        peer(&["10.0.0.0/24", "fd00::/64"], &["192.0.2.0/24", "192.0.2.128/25", "2001:db8::/32", "10.0.0.9/32"]),
        peer(&["10.0.0.5/32", "10.0.0.6/32", "10.0.0.255/32"], &["0.0.0.0/0"]),
        peer(&["10.0.0.9/32"], &[]),
        peer(&["10.0.0.12/32"], &["169.254.169.254/32", "0.0.0.0/1"]),
        peer(&["255.255.255.254/31", "ffff::/16"], &["::/0"]),
    ];
    let open = OpenGateway {
        devices: vec!["e0".into(), "eth1.7".into()],
        inbound: Inbound::Replies,
        masqueraded: nets(&["10.0.0.0/24", "fd00::/64"]),
        clients: nets(&["10.0.0.0/24", "fd00::/64"]),
        behind_peers: nets(&["10.1.0.0/16"]),
        mtu: 1420,
    };
    GatewayTable {
        interface: LINK.into(),
        gateway: Some(open),
        isolated: true,
        restrictions: restrictions(peers.iter().map(|(allowed, to)| (&**allowed, &**to))),
    }
}

const SRC_VALID_MARK: &str = "net.ipv4.conf.all.src_valid_mark";

/// A route over the link, as the planner makes it.
fn route(to: &str, table: u32) -> Route {
    let to = net(to);
    let (metric, scope) = if to.addr().is_ipv4() { (0, 253) } else { (1024, 0) };
    let device = Some(LINK.to_owned());
    Route { to, device, via: None, table, metric, protocol: 3, scope, source: None, mtu: 0, onlink: false }
}

/// So many routes of both families in the kernel's order.
fn many_routes(count: u32) -> impl Iterator<Item = Route> {
    (0..count).map(move |n| {
        if n < count / 2 {
            route(&format!("10.{}.{}.0/24", n / 256, n % 256), MAIN)
        } else {
            route(&format!("fd{:02x}:{:02x}00::/24", (n >> 8) & 0xff, n & 0xff), MAIN)
        }
    })
}

fn rule(family: AddressFamily, priority: u32) -> Rule {
    let fwmark = Some(51820);
    Rule { family, priority, not: true, fwmark, to: None, table: 51820, suppress_prefixlength: None, protocol: 0 }
}

fn suppressing(family: AddressFamily, priority: u32) -> Rule {
    Rule { not: false, fwmark: None, table: MAIN, suppress_prefixlength: Some(0), ..rule(family, priority) }
}

fn firewall(family: FirewallFamily, table: &str, kill_switch: Option<Vec<IpNet>>) -> Firewall {
    Firewall {
        table: table.into(),
        family,
        interface: LINK.into(),
        addresses: vec![ip("10.77.0.1"), ip("fd77::1")],
        fwmark: Some(51820),
        kill_switch,
        kept_inside: Vec::new(),
        name_servers: Vec::new(),
    }
}

fn set_up_link() {
    add_link();
    run("ip link set wg0 up");
}

/// A TUN device that nobody reads from: without a carrier and an address of its own, nothing about it changes unasked.
fn add_link() {
    run("ip tuntap add dev wg0 mode tun");
    run("ip link set dev wg0 addrgenmode none");
}

/// All that a step could change: our reading of it, and the rules of the firewall.
fn observed(host: &mut Host) -> (HostState, Vec<Value>) {
    let mut parts = ruleset();
    // Tables are numbered from the beginning of the namespace.
    for part in &mut parts {
        if let Some(table) = part.get_mut("table") {
            table["handle"] = Value::Null;
        }
    }
    let mut state = host.state().unwrap();
    // The kernel lists addresses anew that were taken away and added again.
    state.links.iter_mut().for_each(|link| link.addresses.sort());
    (state, parts)
}

/// What nft says of the whole ruleset, the handles of tables left out: they count on in a namespace.
fn ruleset() -> Vec<Value> {
    let said: Value = json("nft -j list ruleset");
    let parts = said["nftables"].as_array().unwrap().iter().cloned();
    parts
        .map(|mut part| {
            if let Some(table) = part.get_mut("table") {
                table["handle"] = Value::Null;
            }
            part
        })
        .collect()
}

fn without_handle(mut part: Value) -> Value {
    for (_, inner) in part.as_object_mut().unwrap() {
        inner["handle"] = Value::Null;
    }
    part
}

/// What the last rule of a chain has counted.
fn counted(chain: &str) -> u64 {
    let parts = ruleset();
    let mut rules = parts.iter().filter_map(|part| part.get("rule")).filter(|rule| rule["chain"] == chain);
    rules.next_back().unwrap().pointer("/expr/0/counter/packets").unwrap().as_u64().unwrap()
}

/// Whether a datagram gets out: the sender of one that the firewall drops is told (EPERM).
fn send_to(address: IpAddr, port: u16) -> bool {
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    match UdpSocket::bind((any, 0)).unwrap().send_to(b"?", (address, port)) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
        Err(error) => panic!("{address}: {error}"),
    }
}

/// What `ip` says of everything.
fn said_by_ip() -> BTreeMap<&'static str, Value> {
    let questions = [
        "ip -j -d -N address show dev wg0",
        "ip -j -d -N -4 route show table all",
        "ip -j -d -N -6 route show table all",
        "ip -j -d -N -4 rule",
        "ip -j -d -N -6 rule",
    ];
    let mut said: BTreeMap<_, _> = questions.into_iter().map(|question| (question, json(question))).collect();
    for routes in &questions[1..3] {
        // Those of the table `local`, which the kernel adds some time after an address.
        said.get_mut(routes).unwrap().as_array_mut().unwrap().retain(|route| route["table"] != "255");
    }
    let link = &mut said.get_mut(questions[0]).unwrap()[0];
    link["ifindex"] = Value::Null;
    // Until the kernel gets round to finding that nobody could have the same one on such a link.
    for address in link["addr_info"].as_array_mut().unwrap() {
        address.as_object_mut().unwrap().remove("tentative");
    }
    said
}

fn links_by_ip() -> Vec<Link> {
    let said = json("ip -j -d address");
    let link = |said: &Value| Link {
        name: text(&said["ifname"]),
        index: number(&said["ifindex"]),
        mtu: number(&said["mtu"]),
        up: said["flags"].as_array().unwrap().contains(&"UP".into()),
        wireguard: said["linkinfo"]["info_kind"] == "wireguard",
        tun: said["linkinfo"]["info_kind"] == "tun" && said["link_type"] == "none",
        addresses: said["addr_info"].as_array().unwrap().iter().map(address_by_ip).collect(),
    };
    said.as_array().unwrap().iter().map(link).collect()
}

fn address_by_ip(said: &Value) -> IpNet {
    IpNet::new(ip(said["local"].as_str().unwrap()), number(&said["prefixlen"]).try_into().unwrap()).unwrap()
}

fn rules_by_ip() -> Vec<Rule> {
    let of = |family, option| {
        let said = json(&format!("ip -j -d -N {option} rule"));
        let rule = |said: &Value| Rule {
            family,
            priority: number(&said["priority"]),
            not: said.get("not").is_some(),
            fwmark: said["fwmark"].as_str().map(|mark| u32::from_str_radix(mark.trim_start_matches("0x"), 16).unwrap()),
            to: said["dst"].as_str().map(|to| prefix(family, to, said["dstlen"].as_u64())),
            table: number(&said["table"]),
            suppress_prefixlength: said.get("suppress_prefixlen").map(number),
            protocol: number(&said["protocol"]).try_into().unwrap(),
        };
        said.as_array().unwrap().iter().map(rule).collect::<Vec<_>>()
    };
    [of(AddressFamily::V4, "-4"), of(AddressFamily::V6, "-6")].concat()
}

fn routes_by_ip() -> Vec<Route> {
    let of = |family, option| {
        let said = json(&format!("ip -j -d -N {option} route show table all"));
        let routes = said.as_array().unwrap().iter().map(|said| route_by_ip(family, said));
        routes.filter(|route| route.table != 255).collect::<Vec<_>>()
    };
    [of(AddressFamily::V4, "-4"), of(AddressFamily::V6, "-6")].concat()
}

fn route_by_ip(family: AddressFamily, said: &Value) -> Route {
    let hop = said.pointer("/nexthops/0").unwrap_or(said);
    let refuses = ["6", "7", "8", "9"].contains(&said["type"].as_str().unwrap_or("1"));
    let via = hop.get("gateway").or_else(|| hop.pointer("/via/host"));
    Route {
        to: prefix(family, said["dst"].as_str().unwrap(), None),
        device: hop.get("dev").filter(|_| !refuses).map(text),
        via: via.map(|via| ip(via.as_str().unwrap())),
        table: said.get("table").map_or(MAIN, number),
        metric: said.get("metric").map_or(0, number),
        protocol: number(&said["protocol"]).try_into().unwrap(),
        scope: number(&said["scope"]).try_into().unwrap(),
        source: said.get("prefsrc").map(|source| ip(source.as_str().unwrap())),
        mtu: said.pointer("/metrics/0/mtu").map_or(0, number),
        onlink: hop["flags"].as_array().unwrap().contains(&"onlink".into()),
    }
}

/// A prefix as `ip` writes it: `default`, with its length, or with all bits.
fn prefix(family: AddressFamily, said: &str, length: Option<u64>) -> IpNet {
    match (said, family, length) {
        ("default", AddressFamily::V4, _) => net("0.0.0.0/0"),
        ("default", AddressFamily::V6, _) => net("::/0"),
        (address, _, Some(length)) => IpNet::new(ip(address), length.try_into().unwrap()).unwrap(),
        (text, ..) if text.contains('/') => net(text),
        (address, ..) => ip(address).into(),
    }
}

/// Numbers are text with `-N`, and some without.
fn number(said: &Value) -> u32 {
    let number = said.as_str().map_or_else(|| said.as_u64(), |text| text.parse().ok());
    number.and_then(|number| number.try_into().ok()).unwrap_or_else(|| panic!("{said} is no number"))
}

fn text(said: &Value) -> String {
    said.as_str().unwrap().to_owned()
}

fn json(command: &str) -> Value {
    serde_json::from_slice(&run(command).stdout).unwrap_or_else(|error| panic!("{command}: {error}"))
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| net(text)).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Runs a command of words without spaces, which must succeed.
fn run(words: &str) -> Output {
    let output = command(words).output().unwrap_or_else(|error| panic!("{words}: {error}"));
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
