//! What the packet filter is told: what the tables are to hold. Their rules are written by who carries the plan out.
//!
//! A tunnel whose datagrams are told apart by their mark needs the answers marked too, or reverse path filters drop
//! them. A full tunnel also has what comes to its addresses by other links dropped, which that filter would have done.

use std::net::IpAddr;

use crate::step::{Family, Firewall, FirewallFamily};
use crate::wanted::{Compat, Wanted};

/// The name of the tables of an interface.
pub(super) fn table_name(interface: &str, compat: Compat) -> String {
    match compat {
        Compat::WgQuick => format!("wg-quick-{interface}"),
        Compat::Native => format!("linerate-{interface}"),
    }
}

/// The table of one family, as the original has it. Only a full tunnel guards addresses: where other routes lead to
/// the host too, they may be reached by them.
pub(super) fn of_family(wanted: &Wanted, family: Family, mark: u32, is_full: bool) -> Firewall {
    Firewall {
        table: table_name(&wanted.interface, Compat::WgQuick),
        family: match family {
            Family::V4 => FirewallFamily::Ip,
            Family::V6 => FirewallFamily::Ip6,
        },
        interface: wanted.interface.clone(),
        addresses: if is_full { addresses_of(wanted, &[family]) } else { Vec::new() },
        fwmark: Some(mark),
        kill_switch: None,
    }
}

/// The one table for both families: `full` are those with a full tunnel.
pub(super) fn of_both(
    wanted: &Wanted,
    full: &[Family],
    mark: u32,
    compat: Compat,
    excluded: &[ipnet::IpNet],
) -> Firewall {
    Firewall {
        table: table_name(&wanted.interface, compat),
        family: FirewallFamily::Inet,
        interface: wanted.interface.clone(),
        addresses: addresses_of(wanted, full),
        fwmark: Some(mark),
        kill_switch: wanted.kill_switch.then(|| excluded.to_vec()),
    }
}

fn addresses_of(wanted: &Wanted, families: &[Family]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for net in &wanted.addresses {
        if families.contains(&Family::of_net(net)) && !addresses.contains(&net.addr()) {
            addresses.push(net.addr());
        }
    }
    addresses
}
