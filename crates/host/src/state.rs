//! The state of a host, as far as a tunnel has to do with it.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::step::{Family, Route, Rule};

/// What the planner knows of the host. Recorded as JSON it is a test case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// The links, in the kernel's order.
    pub links: Vec<Link>,
    /// The routes of all tables but `local`, in the kernel's order.
    pub routes: Vec<Route>,
    /// The rules of both families.
    pub rules: Vec<Rule>,
    /// Families that the kernel has switched off (`ipv6.disable=1`, `disable_ipv6` for all or for new links).
    pub without: Vec<Family>,
    /// The values of the variables that a plan may set, by their name with dots; those that cannot be read are absent.
    pub sysctls: BTreeMap<String, String>,
    /// Who manages name servers here.
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
    /// It is set up.
    pub up: bool,
    /// It is a tunnel of the kernel's module.
    pub wireguard: bool,
    /// Its addresses with their prefixes, host bits kept.
    pub addresses: Vec<IpNet>,
}

/// Who manages name servers on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DnsManager {
    /// systemd-resolved, which keeps servers for each link (`resolvectl`).
    Resolved,
    /// A `resolvconf` (openresolv's or Debian's) that collects servers of links.
    Resolvconf {
        /// What the name of the interface gets in front, so that its servers come first (`tun.`, or nothing).
        prefix: String,
    },
    /// Nobody: /etc/resolv.conf is a file, which is kept and written anew.
    #[default]
    File,
}

impl HostState {
    /// The link of that name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }
}
