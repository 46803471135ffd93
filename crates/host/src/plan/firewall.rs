//! What the firewall tables of a tunnel contain. `linux` writes their rules.
//!
//! Where the tunnel's packets carry a mark, replies must be marked too, or reverse path filters drop them. A full
//! tunnel also drops packets to its addresses that arrive on other links, as that filter would have done.

use std::net::IpAddr;

use crate::spec::{Compat, HostSpec};
use crate::step::{AddressFamily, Firewall, FirewallFamily};

/// The name of the tables of an interface.
pub(super) fn table_name(interface: &str, compat: Compat) -> String {
    match compat {
        Compat::WgQuick => format!("wg-quick-{interface}"),
        Compat::Native => format!("linerate-{interface}"),
    }
}

/// The table of one family, as wg-quick has it. Only a full tunnel protects its addresses: otherwise they may be
/// reachable over other routes.
pub(super) fn of_family(spec: &HostSpec, family: AddressFamily, mark: u32, is_full: bool) -> Firewall {
    Firewall {
        table: table_name(&spec.interface, Compat::WgQuick),
        family: match family {
            AddressFamily::V4 => FirewallFamily::Ip,
            AddressFamily::V6 => FirewallFamily::Ip6,
        },
        interface: spec.interface.clone(),
        addresses: if is_full { addresses_of(spec, &[family]) } else { Vec::new() },
        fwmark: Some(mark),
        kill_switch: None,
    }
}

/// One table for both families; `full` are those with a full tunnel.
pub(super) fn of_both(
    spec: &HostSpec,
    full: &[AddressFamily],
    mark: u32,
    compat: Compat,
    excluded: &[ipnet::IpNet],
) -> Firewall {
    Firewall {
        table: table_name(&spec.interface, compat),
        family: FirewallFamily::Inet,
        interface: spec.interface.clone(),
        addresses: addresses_of(spec, full),
        fwmark: Some(mark),
        kill_switch: spec.kill_switch.then(|| excluded.to_vec()),
    }
}

fn addresses_of(spec: &HostSpec, families: &[AddressFamily]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for net in &spec.addresses {
        if families.contains(&AddressFamily::of_net(net)) && !addresses.contains(&net.addr()) {
            addresses.push(net.addr());
        }
    }
    addresses
}
