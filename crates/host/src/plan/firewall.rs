//! What the firewall tables of a tunnel contain. `linux` writes their rules.
//!
//! Where the tunnel's packets carry a mark, replies must be marked too, or reverse path filters drop them. A full
//! tunnel also drops packets to its addresses that arrive on other links, as that filter would have done.

use std::net::IpAddr;

use ipnet::IpNet;

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
        kept_inside: Vec::new(),
        name_servers: Vec::new(),
    }
}

/// One table for both families; `full` are those with a full tunnel.
pub(super) fn of_both(
    spec: &HostSpec,
    full: &[AddressFamily],
    mark: u32,
    compat: Compat,
    excluded: &[IpNet],
    kept_inside: Vec<IpNet>,
) -> Firewall {
    // The only name servers that may be queried outside of the tunnel: those in `DNS`, and single addresses in
    // `ExcludedIPs`.
    let is_outside = |server: &IpAddr| excluded.iter().any(|net| net.contains(server));
    let of_dns = spec.dns.servers.iter().map(|server| server.address());
    let single = spec.excluded.iter().filter(|net| net.prefix_len() == net.max_prefix_len()).map(IpNet::addr);
    let mut name_servers: Vec<IpAddr> = of_dns.chain(single).filter(is_outside).collect();
    name_servers.sort();
    name_servers.dedup();
    Firewall {
        table: table_name(&spec.interface, compat),
        family: FirewallFamily::Inet,
        interface: spec.interface.clone(),
        addresses: addresses_of(spec, full),
        fwmark: Some(mark),
        kill_switch: spec.kill_switch.then(|| excluded.to_vec()),
        kept_inside: if spec.kill_switch { kept_inside } else { Vec::new() },
        name_servers: if spec.kill_switch { name_servers } else { Vec::new() },
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
