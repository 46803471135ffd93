//! What a tunnel's file asks of the host: everything that the daemon or the kernel module does not do.

use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
pub use linerate_control::tunnel_file::{Gateway, Inbound, Masquerade, NameServer, RouteConflict, Table};
use serde::{Deserialize, Serialize};

/// What a tunnel needs on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    pub interface: String,
    /// Addresses of the interface with their prefix, in the order of the file, host bits kept.
    pub addresses: Vec<IpNet>,
    /// What `DNS` names.
    pub dns: Dns,
    /// The MTU, if the file sets one; otherwise it follows from the paths to the endpoints.
    pub mtu: Option<u32>,
    /// Where routes go.
    pub table: Table,
    /// The firewall mark of the tunnel's own packets, if the file sets one.
    pub fwmark: Option<u32>,
    /// The allowed IPs of all peers, without their host bits, in the order of the file.
    pub allowed_ips: Vec<IpNet>,
    /// The endpoints of the peers, as far as they are known.
    pub endpoints: Vec<SocketAddr>,
    /// What to do about a route that exists already.
    pub route_conflict: RouteConflict,
    /// Only traffic through the tunnel may leave the host (`KillSwitch`).
    pub kill_switch: bool,
    /// Prefixes that stay outside the tunnel although allowed IPs contain them (`ExcludedIPs`).
    pub excluded: Vec<IpNet>,
    /// The networks of the host's links stay outside the tunnel (`ExcludeLAN`).
    pub exclude_lan: bool,
    /// What the host forwards for the tunnel.
    #[serde(default)]
    pub forwarding: Forwarding,
}

/// What a host forwards for a tunnel (`Gateway`, and the settings that go with it).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    /// The interfaces between which and the tunnel it forwards.
    pub gateway: Gateway,
    /// The families whose source addresses it translates.
    pub masquerade: Masquerade,
    /// Whether nothing goes from client to client (`ClientIsolation`).
    pub isolated: bool,
    /// What comes from the gateway's interfaces into the tunnel.
    pub inbound: Inbound,
    /// The port on which the tunnel listens, if the file sets one.
    pub listen_port: Option<u16>,
    /// Whether ways are opened in firewalls of others that drop what the tunnel needs (`FixFirewall`).
    #[serde(default)]
    pub fixes_firewall: bool,
    /// Peers whose packets go to some prefixes only (`Destinations`).
    pub restrictions: Vec<Restriction>,
}

/// The only destinations of the packets of some peers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Restriction {
    /// The addresses that these peers may send from, sorted. Those of different restrictions do not overlap.
    pub sources: Vec<AddressRange>,
    /// Where their packets may go, without overlaps. No other restriction has the same.
    pub destinations: Vec<IpNet>,
}

/// Addresses of one family, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AddressRange {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl AddressRange {
    /// The networks that it consists of.
    pub fn subnets(&self) -> Vec<IpNet> {
        match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => IpSubnets::from(Ipv4Subnets::new(first, last, 0)).collect(),
            (IpAddr::V6(first), IpAddr::V6(last)) => IpSubnets::from(Ipv6Subnets::new(first, last, 0)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Name servers and search domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of servers.
    pub servers: Vec<NameServer>,
    /// Search domains; one that starts with `~` only routes queries.
    pub search: Vec<String>,
}

impl Dns {
    /// Whether there is nothing to set.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty()
    }
}

/// Naming and numbering conventions for objects that are visible on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compat {
    /// `wg-quick`: rules at the priorities that the kernel chooses, a firewall table `wg-quick-IFACE` for each family.
    WgQuick,
    /// `linerate`: priorities of our own, and a table `linerate-IFACE`.
    #[serde(rename = "linerate")]
    Native,
}
