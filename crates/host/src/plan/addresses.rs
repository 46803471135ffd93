//! The addresses of the interface, the routes that the kernel adds for them, and address families that are disabled.

use ipnet::IpNet;

use super::{Plan, family_name};
use crate::spec::{HostSpec, Table};
use crate::state::HostState;
use crate::step::{AddressFamily, Step};

/// The smallest MTU for IPv6 (RFC 8200, section 5; net/ipv6/addrconf.c removes all addresses from a link with less).
const IPV6_MIN_MTU: u32 = 1280;

/// The address families that the tunnel cannot use, and why.
pub(super) fn disabled_families(state: &HostState, mtu: u32) -> Vec<(AddressFamily, String)> {
    let mut disabled = Vec::new();
    for &family in &state.disabled_families {
        disabled.push((family, format!("{} is disabled on this host", family_name(family))));
    }
    if mtu < IPV6_MIN_MTU && !state.disabled_families.contains(&AddressFamily::V6) {
        disabled.push((AddressFamily::V6, format!("MTU {mtu} is too small for IPv6, which needs {IPV6_MIN_MTU}")));
    }
    disabled
}

/// Whether the family of `net` cannot be used.
pub(super) fn is_disabled(disabled: &[(AddressFamily, String)], net: &IpNet) -> bool {
    disabled.iter().any(|(family, _)| *family == AddressFamily::of_net(net))
}

/// Adds the addresses, with a warning for what a disabled family leaves out. Returns the networks that the kernel adds
/// routes for.
pub(super) fn plan(spec: &HostSpec, disabled: &[(AddressFamily, String)], plan: &mut Plan) -> Vec<IpNet> {
    for (family, why) in disabled {
        warn_of_family(spec, *family, why, plan);
    }
    let mut added: Vec<IpNet> = Vec::new();
    for address in &spec.addresses {
        if is_disabled(disabled, address) || added.contains(address) {
            continue;
        }
        // An IPv6 address exists once, whatever its prefix (ipv6_add_addr in net/ipv6/addrconf.c).
        if let Some(first) = added.iter().find(|first| first.addr() == address.addr() && address.addr().is_ipv6()) {
            plan.warn(format!("the address {address} is ignored: {first} is the same address with another prefix"));
            continue;
        }
        added.push(*address);
    }
    let steps = added.iter().map(|address| Step::AddAddress { interface: spec.interface.clone(), address: *address });
    plan.steps.extend(steps);
    added.iter().filter_map(connected).collect()
}

/// The network that the kernel adds a route for when a link gets this address: for IPv4 prefixes shorter than /32
/// outside 0.0.0.0/8 (fib_add_ifaddr in net/ipv4/fib_frontend.c), for IPv6 all (net/ipv6/addrconf.c).
pub(super) fn connected(address: &IpNet) -> Option<IpNet> {
    let network = address.trunc();
    match network {
        IpNet::V4(v4) if v4.prefix_len() == 32 || v4.addr().octets()[0] == 0 => None,
        _ => Some(network),
    }
}

fn warn_of_family(spec: &HostSpec, family: AddressFamily, why: &str, plan: &mut Plan) {
    let of_family = |nets: &[IpNet]| -> Vec<String> {
        nets.iter().filter(|net| AddressFamily::of_net(net) == family).map(ToString::to_string).collect()
    };
    let addresses = of_family(&spec.addresses);
    let routes = if spec.table == Table::Off { Vec::new() } else { of_family(&spec.allowed_ips) };
    let missing = match (addresses.is_empty(), routes.is_empty()) {
        (true, true) => return,
        (false, true) => format!("no address {}", addresses.join(", ")),
        (true, false) => format!("no route to {}", routes.join(", ")),
        (false, false) => format!("no address {} and no route to {}", addresses.join(", "), routes.join(", ")),
    };
    plan.warn(format!("{why}: {} gets {missing}", spec.interface));
}
