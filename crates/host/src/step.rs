//! Steps: one change of the host each, with its inverse.

use std::net::IpAddr;

use ipnet::IpNet;
pub use linerate_control::tunnel_file::Phase;
use serde::{Deserialize, Serialize};

use crate::spec::{Dns, Inbound, Restriction};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressFamily {
    /// The family of an address.
    pub fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The family of a prefix.
    pub fn of_net(net: &IpNet) -> Self {
        Self::of(&net.addr())
    }
}

/// A route in a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The destination, without host bits.
    pub to: IpNet,
    /// The interface; none for an unreachable route.
    pub device: Option<String>,
    /// The next hop.
    pub via: Option<IpAddr>,
    /// The table: 254 is main.
    pub table: u32,
    /// Lower is preferred. The default for IPv6 is 1024.
    pub metric: u32,
    /// What added it (rtnetlink.h, `RTPROT_*`): 2 is the kernel, 3 boot, 4 static, 16 a DHCP client.
    pub protocol: u8,
    /// Its scope (rtnetlink.h, `RT_SCOPE_*`): 0 is universe, 253 link.
    pub scope: u8,
    /// The source address it prefers.
    pub source: Option<IpAddr>,
    /// The MTU it sets, 0 for none.
    pub mtu: u32,
    /// The next hop is on the link although it is in none of its networks (rtnetlink.h, `RTNH_F_ONLINK`), as at hosting
    /// providers that assign single addresses.
    #[serde(default)]
    pub onlink: bool,
}

/// The main table.
pub const MAIN: u32 = 254;

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// IPv4 and IPv6 have rules of their own.
    pub family: AddressFamily,
    /// Lower comes first.
    pub priority: u32,
    /// Inverts the match.
    pub not: bool,
    /// Matches this mark.
    pub fwmark: Option<u32>,
    /// Matches destinations.
    pub to: Option<IpNet>,
    /// The table that it selects.
    pub table: u32,
    /// Ignores routes with a prefix of this length or shorter.
    pub suppress_prefixlength: Option<u32>,
    /// What added it (rtnetlink.h, `RTPROT_*`), 0 if unknown.
    pub protocol: u8,
}

/// One firewall table of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Firewall {
    pub table: String,
    /// `ip`, `ip6`, or both in one (`inet`).
    pub family: FirewallFamily,
    pub interface: String,
    /// Addresses of the interface: packets to them that arrive on other links are dropped.
    pub addresses: Vec<IpAddr>,
    /// The mark that replies to the tunnel's packets get, for reverse path filters.
    pub fwmark: Option<u32>,
    /// Kill switch: only packets through the tunnel, with this mark or to these prefixes may leave, and what a host
    /// needs to stay on its network (`lo`, DHCP, neighbour discovery).
    pub kill_switch: Option<Vec<IpNet>>,
    /// With a kill switch: parts of these prefixes that may leave only through the tunnel.
    #[serde(default)]
    pub kept_inside: Vec<IpNet>,
    /// With a kill switch: the only name servers that may be queried outside of the tunnel.
    #[serde(default)]
    pub name_servers: Vec<IpAddr>,
}

impl Firewall {
    /// The table as in `nft list tables`: its family and its name.
    pub fn nft_name(&self) -> String {
        self.family.nft_name(&self.table)
    }
}

/// The firewall table of a gateway: what passes between the tunnel and other interfaces, and under which addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GatewayTable {
    /// The tunnel's interface.
    pub interface: String,
    /// The gateway; without one the table only drops what `isolated` and `restrictions` forbid.
    pub gateway: Option<OpenGateway>,
    /// Drops packets from client to client.
    pub isolated: bool,
    /// Peers whose packets go to some prefixes only.
    pub restrictions: Vec<Restriction>,
}

/// What a gateway lets pass. All other packets from and to the tunnel are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenGateway {
    /// The interfaces between which and the tunnel packets pass.
    pub devices: Vec<String>,
    /// Which packets pass into the tunnel.
    pub inbound: Inbound,
    /// The networks whose packets leave with an address of the gateway.
    pub masqueraded: Vec<IpNet>,
    /// The addresses of clients: packets from outside the tunnel with such a source are dropped.
    #[serde(default)]
    pub clients: Vec<IpNet>,
    /// Other networks behind peers: packets from outside the tunnel with such a source are dropped if the route to it
    /// leads into the tunnel.
    #[serde(default)]
    pub behind_peers: Vec<IpNet>,
    /// The MTU of the tunnel, to which the segments of TCP connections are limited.
    pub mtu: u32,
}

impl GatewayTable {
    /// Its name. No kill switch has it: theirs begin with `linerate-` or `wg-quick-`.
    pub fn name(&self) -> String {
        format!("linerate_gateway-{}", self.interface)
    }

    /// The table as in `nft list tables`.
    pub fn nft_name(&self) -> String {
        format!("inet {}", self.name())
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.gateway.is_none() && !self.isolated && self.restrictions.is_empty()
    }
}

/// A way that somebody else's firewall leaves to a tunnel, opened for it (`FixFirewall`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Opening {
    /// The tunnel's interface.
    pub interface: String,
    /// Where it is opened.
    pub firewall: ForeignFirewall,
    /// What passes.
    pub way: Way,
}

/// Where a way is opened, and with which tool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForeignFirewall {
    /// A chain of the table `filter` of an iptables.
    Iptables {
        /// `iptables` or `ip6tables`, or one of their variants by its name.
        program: String,
        chain: String,
    },
    /// A chain of nf_tables that no tool is known to keep.
    Nftables {
        /// The table, as `nft list tables` has it.
        table: String,
        chain: String,
    },
    /// The rules of ufw.
    Ufw,
    /// The zones and policies of firewalld.
    Firewalld {
        /// The zone that the tunnel is in already; without one it gets its own.
        zone: Option<String>,
    },
}

/// What passes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Packets from one interface to another.
    Forward {
        /// From this one.
        from: String,
        /// To this one.
        to: String,
        /// Only those of connections that exist.
        answers: bool,
    },
    /// Packets from the tunnel to wherever its own table lets them, and answers.
    Tunnel {
        /// And new connections into the tunnel.
        inbound: bool,
    },
    /// Datagrams to a UDP port of the host.
    Port { port: u16 },
}

/// The kinds of tables (linux/netfilter.h, `NFPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirewallFamily {
    /// IPv4 alone.
    Ip,
    /// IPv6 alone.
    Ip6,
    /// Both.
    Inet,
}

impl FirewallFamily {
    /// A table of this family as in `nft list tables`.
    pub fn nft_name(self, table: &str) -> String {
        let family = match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
        };
        format!("{family} {table}")
    }
}

/// The service that manages name servers on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DnsManager {
    /// systemd-resolved, which keeps servers for each link (`resolvectl`).
    Resolved,
    /// A `resolvconf` (openresolv's or Debian's) that collects servers of links.
    Resolvconf {
        /// The prefix of the record's name that puts its servers first (`tun.`, or nothing).
        prefix: String,
    },
    /// None: we edit /etc/resolv.conf.
    #[default]
    File,
}

/// The implementation that runs the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    /// A daemon in user space.
    Daemon,
    /// The kernel module.
    Kernel,
}

/// One change of the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// Creates the interface.
    AddLink {
        /// Its name.
        interface: String,
        implementation: Implementation,
    },
    /// Deletes the interface with its addresses and routes.
    DeleteLink {
        /// Its name.
        interface: String,
    },
    /// Runs a command from the file with the shell.
    Hook {
        phase: Phase,
        /// The command, `%i` replaced.
        command: String,
    },
    /// Sets the keys, the port and the peers. Plans and ledgers do not contain them.
    Configure {
        interface: String,
    },
    /// Sets the firewall mark of the tunnel's own packets.
    SetFwmark {
        interface: String,
        /// The mark, 0 for none.
        fwmark: u32,
        /// The previous mark.
        before: u32,
    },
    AddAddress {
        interface: String,
        /// The address and its prefix.
        address: IpNet,
    },
    /// Removes an address.
    DeleteAddress {
        interface: String,
        /// The address and its prefix.
        address: IpNet,
    },
    SetMtu {
        interface: String,
        /// Bytes.
        mtu: u32,
        /// The previous MTU, 0 if the interface is new.
        before: u32,
    },
    /// Brings the interface up.
    LinkUp {
        interface: String,
    },
    /// Sets the name servers.
    SetDns {
        interface: String,
        /// The servers and domains.
        dns: Dns,
        /// The service that manages them.
        manager: DnsManager,
        /// All queries go to them, also those in the domains of other interfaces.
        exclusive: bool,
    },
    /// Removes the name servers.
    UnsetDns {
        interface: String,
        /// The service that manages them.
        manager: DnsManager,
    },
    AddRoute(Route),
    /// Removes a route.
    DeleteRoute(Route),
    AddRule(Rule),
    /// Removes a rule.
    DeleteRule(Rule),
    SetSysctl {
        /// Its dotted name, as in `sysctl`.
        name: String,
        value: String,
        /// The previous value.
        before: String,
    },
    /// Sets a sysctl that several tunnels may need: they hold it until the last of them lets go.
    HoldSysctl {
        /// The tunnel.
        interface: String,
        /// Its dotted name, with `/` for a dot in the name of an interface, as in `sysctl`.
        name: String,
        value: String,
        /// The value before the first of them.
        before: String,
    },
    /// Lets go of a sysctl. The last holder sets it back, unless somebody else has changed it since.
    ReleaseSysctl {
        /// The tunnel.
        interface: String,
        /// Its dotted name.
        name: String,
        /// The value that it was held at.
        value: String,
        /// The value before.
        before: String,
    },
    /// Creates a firewall table.
    AddFirewall(Firewall),
    /// Deletes a firewall table.
    DeleteFirewall(Firewall),
    /// Creates the firewall table of a gateway.
    AddGateway(GatewayTable),
    /// Deletes the firewall table of a gateway.
    DeleteGateway(GatewayTable),
    /// Opens a way in somebody else's firewall.
    Open(Opening),
    /// Closes it again.
    Close(Opening),
}

impl Step {
    /// Whether the kernel does it, over netlink or /proc/sys: such steps can be applied together.
    pub fn is_kernel_step(&self) -> bool {
        match self {
            // Whether it is set back depends on other tunnels, and a container may not be allowed to set it.
            Self::SetSysctl { .. } | Self::HoldSysctl { .. } | Self::ReleaseSysctl { .. } => false,
            Self::AddLink { implementation, .. } => *implementation == Implementation::Kernel,
            Self::Hook { .. }
            | Self::Configure { .. }
            | Self::SetFwmark { .. }
            | Self::SetDns { .. }
            | Self::UnsetDns { .. }
            | Self::Open(_)
            | Self::Close(_) => false,
            _ => true,
        }
    }

    /// Whether it changes a firewall table: consecutive ones are one transaction.
    pub fn is_firewall(&self) -> bool {
        matches!(self, Self::AddFirewall(_) | Self::DeleteFirewall(_) | Self::AddGateway(_) | Self::DeleteGateway(_))
    }

    /// The table that it creates, as in `nft list tables`.
    pub fn created_table(&self) -> Option<String> {
        match self {
            Self::AddFirewall(firewall) => Some(firewall.nft_name()),
            Self::AddGateway(table) => Some(table.nft_name()),
            _ => None,
        }
    }

    /// The table that it deletes, as in `nft list tables`.
    pub fn deleted_table(&self) -> Option<String> {
        match self {
            Self::DeleteFirewall(firewall) => Some(firewall.nft_name()),
            Self::DeleteGateway(table) => Some(table.nft_name()),
            _ => None,
        }
    }

    /// The inverse of this step; `None` for hooks and for objects that are deleted with the link.
    pub fn undo(&self) -> Option<Self> {
        Some(match self.clone() {
            Self::AddLink { interface, .. } => Self::DeleteLink { interface },
            Self::SetFwmark { interface, fwmark, before } => {
                Self::SetFwmark { interface, fwmark: before, before: fwmark }
            }
            Self::AddAddress { interface, address } => Self::DeleteAddress { interface, address },
            Self::DeleteAddress { interface, address } => Self::AddAddress { interface, address },
            Self::SetMtu { before: 0, .. } => return None,
            Self::SetMtu { interface, mtu, before } => Self::SetMtu { interface, mtu: before, before: mtu },
            Self::SetDns { interface, manager, .. } => Self::UnsetDns { interface, manager },
            Self::AddRoute(route) => Self::DeleteRoute(route),
            Self::DeleteRoute(route) => Self::AddRoute(route),
            Self::AddRule(rule) => Self::DeleteRule(rule),
            Self::DeleteRule(rule) => Self::AddRule(rule),
            Self::SetSysctl { name, value, before } => Self::SetSysctl { name, value: before, before: value },
            Self::HoldSysctl { interface, name, value, before } => {
                Self::ReleaseSysctl { interface, name, value, before }
            }
            Self::ReleaseSysctl { interface, name, value, before } => {
                Self::HoldSysctl { interface, name, value, before }
            }
            Self::AddGateway(table) => Self::DeleteGateway(table),
            Self::DeleteGateway(table) => Self::AddGateway(table),
            Self::Open(opening) => Self::Close(opening),
            Self::Close(opening) => Self::Open(opening),
            Self::AddFirewall(firewall) => Self::DeleteFirewall(firewall),
            Self::DeleteFirewall(firewall) => Self::AddFirewall(firewall),
            Self::DeleteLink { .. }
            | Self::Hook { .. }
            | Self::Configure { .. }
            | Self::LinkUp { .. }
            | Self::UnsetDns { .. } => return None,
        })
    }
}
