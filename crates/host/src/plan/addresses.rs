//! The addresses of the interface, the networks that the kernel makes of them, and families that are switched off.

use ipnet::IpNet;

use super::{Plan, family_name};
use crate::state::HostState;
use crate::step::{Family, Step};
use crate::wanted::{Table, Wanted};

/// The smallest MTU with which the kernel speaks IPv6 on a link (RFC 8200, section 5; net/ipv6/addrconf.c takes all
/// addresses from a link that has less).
const IPV6_MIN_MTU: u32 = 1280;

/// The families that the tunnel has to do without, and why.
pub(super) fn without(state: &HostState, mtu: u32) -> Vec<(Family, String)> {
    let mut without = Vec::new();
    for &family in &state.without {
        without.push((family, format!("{} is switched off on this host", family_name(family))));
    }
    if mtu < IPV6_MIN_MTU && !state.without.contains(&Family::V6) {
        without.push((Family::V6, format!("an MTU of {mtu} is too small for IPv6, which needs {IPV6_MIN_MTU}")));
    }
    without
}

/// Whether nothing of this family can be set.
pub(super) fn is_without(without: &[(Family, String)], net: &IpNet) -> bool {
    without.iter().any(|(family, _)| *family == Family::of_net(net))
}

/// Adds the addresses, and says what of the file is left out for want of a family. Returns the networks to which the
/// kernel will have routes for them.
pub(super) fn plan(wanted: &Wanted, without: &[(Family, String)], plan: &mut Plan) -> Vec<IpNet> {
    for (family, why) in without {
        warn_of_family(wanted, *family, why, plan);
    }
    let mut added: Vec<IpNet> = Vec::new();
    for address in &wanted.addresses {
        if is_without(without, address) || added.contains(address) {
            continue;
        }
        // An IPv6 address is there once, whatever its prefix (ipv6_add_addr in net/ipv6/addrconf.c).
        if let Some(first) = added.iter().find(|first| first.addr() == address.addr() && address.addr().is_ipv6()) {
            plan.warn(format!("the address {address} is left out: {first} is the same with another prefix"));
            continue;
        }
        added.push(*address);
    }
    let steps = added.iter().map(|address| Step::AddAddress { interface: wanted.interface.clone(), address: *address });
    plan.steps.extend(steps);
    added.iter().filter_map(connected).collect()
}

/// The networks to which the kernel itself makes routes for the addresses of a link: for IPv4 those shorter than /32
/// outside of 0.0.0.0/8 (fib_add_ifaddr in net/ipv4/fib_frontend.c), for IPv6 all (net/ipv6/addrconf.c).
pub(super) fn connected(address: &IpNet) -> Option<IpNet> {
    let network = address.trunc();
    match network {
        IpNet::V4(v4) if v4.prefix_len() == 32 || v4.addr().octets()[0] == 0 => None,
        _ => Some(network),
    }
}

fn warn_of_family(wanted: &Wanted, family: Family, why: &str, plan: &mut Plan) {
    let of_family = |nets: &[IpNet]| -> Vec<String> {
        nets.iter().filter(|net| Family::of_net(net) == family).map(ToString::to_string).collect()
    };
    let addresses = of_family(&wanted.addresses);
    let routes = if wanted.table == Table::Off { Vec::new() } else { of_family(&wanted.allowed_ips) };
    let missing = match (addresses.is_empty(), routes.is_empty()) {
        (true, true) => return,
        (false, true) => format!("no address {}", addresses.join(", ")),
        (true, false) => format!("no route to {}", routes.join(", ")),
        (false, false) => format!("no address {} and no route to {}", addresses.join(", "), routes.join(", ")),
    };
    plan.warn(format!("{why}: {} gets {missing}", wanted.interface));
}
