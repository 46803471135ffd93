//! A firewall table for the host: it restricts the forwarding that tunnels have switched on to packets of tunnels.
//!
//! `net.ipv4.conf.IFACE.forwarding` and its IPv6 counterparts decide by the interface on which a packet comes in, not
//! by the one on which it leaves. Without this table the neighbours of an uplink could reach every network of the host.
//! The table is computed from the sysctls that tunnels hold ([`HostState::held_sysctls`](crate::state::HostState)). It
//! is created before the first of them is set and deleted after the last one is restored. It does not restrict
//! forwarding that the administrator had switched on before.

use std::collections::{BTreeMap, BTreeSet};

use super::gateway::is_sysctl_of;
use crate::state::HeldSysctl;

/// The packets that the table drops: they come in by an opened interface, neither come from a tunnel nor go into one,
/// and belong neither to an existing connection nor to one with a translated destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingGuard {
    /// The tunnels that have opened interfaces.
    pub tunnels: Vec<String>,
    /// The interfaces on which the kernel forwards IPv4.
    pub opened_v4: Opened,
    /// The interfaces on which the kernel forwards IPv6.
    pub opened_v6: Opened,
}

/// The interfaces whose incoming packets the kernel forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// All interfaces of the host.
    All,
    /// These interfaces.
    Interfaces(Vec<String>),
}

impl ForwardingGuard {
    /// The name of its table, in the family `inet`.
    pub const TABLE: &str = "linerate_forwarding";

    /// The table as `nft list tables` shows it.
    pub const NFT_NAME: &str = "inet linerate_forwarding";

    /// Computes the guard while tunnels hold these sysctls; `None` if each tunnel has opened only its own interface.
    pub fn of(held: &BTreeMap<String, HeldSysctl>) -> Option<Self> {
        let mut tunnels = BTreeSet::new();
        let (mut opened_v4, mut opened_v6) = (Vec::new(), Vec::new());
        for (name, HeldSysctl { holders, .. }) in held {
            let Some(interface) = opened(name) else { continue };
            // A tunnel's own table filters packets from its own interface.
            if holders.is_empty() || holders.iter().any(|tunnel| is_sysctl_of(name, tunnel)) {
                continue;
            }
            tunnels.extend(holders.iter().cloned());
            let opened = if name.starts_with("net.ipv4.") { &mut opened_v4 } else { &mut opened_v6 };
            opened.push(interface);
        }
        let where_opened = |interfaces: Vec<String>| match interfaces.iter().any(|interface| interface == "all") {
            true => Opened::All,
            false => Opened::Interfaces(interfaces),
        };
        (!tunnels.is_empty()).then(|| Self {
            tunnels: tunnels.into_iter().collect(),
            opened_v4: where_opened(opened_v4),
            opened_v6: where_opened(opened_v6),
        })
    }
}

/// Whether a sysctl that a tunnel holds opens an interface other than its own.
pub(crate) fn needs_guard(tunnel: &str, name: &str) -> bool {
    opened(name).is_some() && !is_sysctl_of(name, tunnel)
}

/// Returns the interface whose forwarding a sysctl switches on; `all` means all of them.
fn opened(name: &str) -> Option<String> {
    let (interface, variable) = name.split_once(".conf.")?.1.rsplit_once('.')?;
    ["forwarding", "force_forwarding"].contains(&variable).then(|| interface.replace('/', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(names: &[(&str, &[&str])]) -> BTreeMap<String, HeldSysctl> {
        let held = |holders: &[&str]| HeldSysctl {
            before: "0".into(),
            holders: holders.iter().map(|holder| (*holder).to_owned()).collect(),
        };
        names.iter().map(|(name, holders)| ((*name).to_owned(), held(holders))).collect()
    }

    #[test]
    fn the_guard_is_for_the_interfaces_that_tunnels_have_opened_beside_their_own() {
        let own: [(&str, &[&str]); 2] =
            [("net.ipv4.conf.wg0.forwarding", &["wg0"]), ("net.ipv6.conf.wg0.force_forwarding", &["wg0"])];
        assert_eq!(ForwardingGuard::of(&held(&own)), None);
        let uplink: (&str, &[&str]) = ("net.ipv4.conf.eth0/5.forwarding", &["wg0", "wg1"]);
        let guard = ForwardingGuard::of(&held(&[own[0], own[1], uplink])).unwrap();
        assert_eq!(guard.tunnels, ["wg0", "wg1"]);
        assert_eq!(guard.opened_v4, Opened::Interfaces(vec!["eth0.5".into()]));
        assert_eq!(guard.opened_v6, Opened::Interfaces(vec![]));
        let everywhere: [(&str, &[&str]); 2] =
            [("net.ipv6.conf.all.forwarding", &["wg0"]), ("net.ipv6.conf.eth0.accept_ra", &["wg0"])];
        assert_eq!(ForwardingGuard::of(&held(&everywhere)).unwrap().opened_v6, Opened::All);
        assert_eq!(ForwardingGuard::of(&held(&everywhere[1..])), None);
    }
}
