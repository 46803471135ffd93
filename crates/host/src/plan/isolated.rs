//! The plan for a tunnel that is alone in a network namespace, while its daemon's sockets are outside: no marks, no rules, no
//! firewall. There is no other way out, and nobody else to consider.

use super::{Plan, addresses, mtu, routes};
use crate::spec::HostSpec;
use crate::state::HostState;
use crate::step::{MAIN, Step};

/// The steps in the namespace, which is new and has the interface already. `inside` is its state; `outside` is that of the
/// network of the sockets, whose paths to the endpoints give the MTU.
pub fn isolated(spec: &HostSpec, inside: &HostState, outside: &HostState) -> Plan {
    let link_up = |interface: &str| Step::LinkUp { interface: interface.to_owned() };
    let mut plan = Plan { steps: vec![link_up("lo")], ..Plan::default() };
    let mtu = mtu::of(spec, outside);
    let disabled = addresses::disabled_families(inside, mtu);
    let connected = addresses::plan(spec, &disabled, &mut plan);
    mtu::plan(spec, outside, mtu, &mut plan);
    plan.steps.push(link_up(&spec.interface));
    let mut prefixes = routes::sorted(spec);
    prefixes.retain(|to| !addresses::is_disabled(&disabled, to) && !connected.iter().any(|net| net.contains(to)));
    plan.steps.extend(prefixes.into_iter().map(|to| Step::AddRoute(routes::route(spec, to, MAIN))));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::messages::as_commands;
    use crate::spec::Table;
    use crate::step::AddressFamily;

    fn spec() -> HostSpec {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        HostSpec {
            interface: "wg0".into(),
            addresses: nets(&["10.0.0.2/24", "fd00::2/64"]),
            allowed_ips: nets(&["0.0.0.0/0", "::/0", "10.0.0.0/25", "192.0.2.0/24"]),
            ..HostSpec::default()
        }
    }

    #[test]
    fn all_goes_through_the_tunnel_by_plain_routes() {
        let plan = isolated(&spec(), &HostState::default(), &HostState::default());
        let commands = as_commands(&plan.steps).join("\n");
        assert_eq!(plan.warnings, []);
        for wanted in [
            "ip -4 address add 10.0.0.2/24 dev wg0",
            "ip -6 address add fd00::2/64 dev wg0",
            "ip -4 route add 192.0.2.0/24 dev wg0",
            "ip -4 route add 0.0.0.0/0 dev wg0",
            "ip -6 route add ::/0 dev wg0",
        ] {
            assert!(commands.lines().any(|line| line == wanted), "{wanted}:\n{commands}");
        }
        assert!(!commands.contains("10.0.0.0/25"), "the kernel adds the route of the address: {commands}");
        assert!(!commands.contains("rule") && !commands.contains("table"), "{commands}");
    }

    #[test]
    fn a_file_without_routes_for_the_host_has_them_where_nothing_else_is() {
        let of = |table| isolated(&HostSpec { table, ..spec() }, &HostState::default(), &HostState::default());
        assert_eq!(of(Table::Off), of(Table::Auto));
        assert_eq!(of(Table::Number(7)), of(Table::Auto));
    }

    #[test]
    fn a_family_that_is_off_is_left_out_with_a_warning() {
        let inside = HostState { disabled_families: vec![AddressFamily::V6], ..HostState::default() };
        let plan = isolated(&spec(), &inside, &HostState::default());
        assert!(!as_commands(&plan.steps).join(" ").contains("fd00"));
        assert_eq!(plan.warnings.len(), 1);
    }
}
