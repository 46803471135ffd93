//! What is wanted of the host: the part of a tunnel's file that is not the daemon's or the module's.

use std::net::SocketAddr;

use ipnet::IpNet;
pub use linerate_control::tunnel_file::{NameServer, RouteConflict, Table};
use serde::{Deserialize, Serialize};

/// A tunnel as the host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The interface.
    pub interface: String,
    /// Addresses of the interface with their prefix, in the order of the file, host bits kept.
    pub addresses: Vec<IpNet>,
    /// What `DNS` names.
    pub dns: Dns,
    /// The MTU, if the file says one; else it follows from the paths to the endpoints.
    pub mtu: Option<u32>,
    /// Where routes go.
    pub table: Table,
    /// The mark of the tunnel's own datagrams, if the file says one.
    pub fwmark: Option<u32>,
    /// The allowed IPs of all peers, without their host bits, in the order of the file.
    pub allowed_ips: Vec<IpNet>,
    /// The endpoints of the peers, as far as they are known.
    pub endpoints: Vec<SocketAddr>,
    /// What is done about a route that exists already.
    pub route_conflict: RouteConflict,
    /// Nothing leaves the host but through the tunnel (`KillSwitch`).
    pub kill_switch: bool,
    /// What stays outside of the tunnel although allowed IPs contain it (`ExcludedIPs`).
    pub excluded: Vec<IpNet>,
    /// The networks that the host is on stay outside of the tunnel (`ExcludeLAN`).
    pub exclude_lan: bool,
}

/// Name servers and the domains that are theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of servers.
    pub servers: Vec<NameServer>,
    /// Search domains; one that begins with `~` only routes questions.
    pub search: Vec<String>,
}

impl Dns {
    /// Whether there is nothing to set.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty()
    }
}

/// Who has the tunnel brought up: what a tunnel leaves in places that others look at has other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compat {
    /// `wg-quick`: rules at the priorities that the kernel would choose, a firewall table `wg-quick-IFACE` for each
    /// family, all as the original leaves them.
    WgQuick,
    /// `linerate`: priorities of our own, and a table `linerate-IFACE`.
    #[serde(rename = "linerate")]
    Native,
}
