//! The state of a host, as far as it matters to a tunnel.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::step::{AddressFamily, DnsManager, Route, Rule};

/// What the planner knows about the host. As JSON it is a test case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// The links, in the kernel's order.
    pub links: Vec<Link>,
    /// The routes of all tables but `local`, in the kernel's order.
    pub routes: Vec<Route>,
    /// The rules of both families.
    pub rules: Vec<Rule>,
    /// Address families that are disabled (`ipv6.disable=1`, `disable_ipv6` for all or for new links).
    pub disabled_families: Vec<AddressFamily>,
    /// The sysctls that a plan may set, by their dotted name; unreadable ones are absent.
    pub sysctls: BTreeMap<String, String>,
    /// The service that manages name servers.
    pub dns: DnsManager,
    /// The kernel has nf_tables.
    pub nftables: bool,
    /// The firewall tables, each as `nft list tables` has it: its family and its name (`ip6 wg-quick-wg0`).
    pub firewall_tables: Vec<String>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Bytes.
    pub mtu: u32,
    /// It is up.
    pub up: bool,
    /// It is a tunnel of the kernel module.
    pub wireguard: bool,
    /// Its addresses with their prefixes, host bits kept.
    pub addresses: Vec<IpNet>,
}

impl HostState {
    /// The link of that name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }
}
