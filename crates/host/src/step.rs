//! Steps: one change of the host each, and what takes it back.

use std::net::IpAddr;

use ipnet::IpNet;
pub use linerate_control::tunnel_file::Phase;
use serde::{Deserialize, Serialize};

use crate::wanted::Dns;

/// Version of the Internet Protocol, for what exists once for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
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
    /// What it is for, without host bits.
    pub to: IpNet,
    /// The interface, if it is not a route that refuses.
    pub device: Option<String>,
    /// The next hop.
    pub via: Option<IpAddr>,
    /// The table: 254 is main.
    pub table: u32,
    /// Lower is preferred. IPv6 routes have 1024 where none is said.
    pub metric: u32,
    /// Who made it (rtnetlink.h, `RTPROT_*`): 2 is the kernel, 3 boot, 4 static, 16 a DHCP client.
    pub protocol: u8,
    /// Its scope (rtnetlink.h, `RT_SCOPE_*`): 0 is universe, 253 link.
    pub scope: u8,
    /// The source address it prefers.
    pub source: Option<IpAddr>,
    /// The MTU it sets, 0 for none.
    pub mtu: u32,
    /// The next hop is reached over the interface although none of its networks has it (rtnetlink.h,
    /// `RTNH_F_ONLINK`), as at hosters that give out single addresses.
    #[serde(default)]
    pub onlink: bool,
}

/// The main table.
pub const MAIN: u32 = 254;

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// IPv4 and IPv6 have rules of their own.
    pub family: Family,
    /// Lower comes first.
    pub priority: u32,
    /// It holds for what does not match.
    pub not: bool,
    /// Matches this mark.
    pub fwmark: Option<u32>,
    /// Matches destinations.
    pub to: Option<IpNet>,
    /// The table it leads to.
    pub table: u32,
    /// Routes of prefixes this long or shorter do not count.
    pub suppress_prefixlength: Option<u32>,
    /// Who made it (rtnetlink.h, `RTPROT_*`), 0 where nobody says.
    pub protocol: u8,
}

/// What the packet filter is told for a tunnel; each is one table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Firewall {
    /// The table.
    pub table: String,
    /// `ip`, `ip6`, or both in one (`inet`).
    pub family: FirewallFamily,
    /// The interface.
    pub interface: String,
    /// Addresses of the interface: what comes to them by other ways is dropped.
    pub addresses: Vec<IpAddr>,
    /// The mark that answers to the tunnel's datagrams keep, for reverse path filters.
    pub fwmark: Option<u32>,
    /// Nothing leaves but through the tunnel, with this mark, to these prefixes, and what a host needs to stay on its
    /// network (`lo`, DHCP, neighbour discovery).
    pub kill_switch: Option<Vec<IpNet>>,
}

impl Firewall {
    /// The table as `nft list tables` has it: its family and its name.
    pub fn listed(&self) -> String {
        let family = match self.family {
            FirewallFamily::Ip => "ip",
            FirewallFamily::Ip6 => "ip6",
            FirewallFamily::Inet => "inet",
        };
        format!("{family} {}", self.table)
    }
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

/// What runs the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// A daemon in user space.
    Daemon,
    /// The kernel's own module.
    Kernel,
}

/// One change of the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// Makes the interface.
    AddLink {
        /// Its name.
        interface: String,
        /// What runs it.
        backend: Backend,
    },
    /// Deletes the interface and all that the kernel hangs on it: addresses and routes.
    DeleteLink {
        /// Its name.
        interface: String,
    },
    /// Runs a command of the file's with the shell.
    Hook {
        /// When.
        phase: Phase,
        /// The command, `%i` replaced.
        command: String,
    },
    /// Gives the keys, the port and the peers to whatever runs the tunnel. They stay out of plans and ledgers.
    Configure {
        /// The interface.
        interface: String,
    },
    /// Sets the mark of the tunnel's own datagrams.
    SetFwmark {
        /// The interface.
        interface: String,
        /// The mark, 0 for none.
        fwmark: u32,
        /// What it was.
        before: u32,
    },
    /// Adds an address.
    AddAddress {
        /// The interface.
        interface: String,
        /// The address and its prefix.
        address: IpNet,
    },
    /// Takes an address away.
    DeleteAddress {
        /// The interface.
        interface: String,
        /// The address and its prefix.
        address: IpNet,
    },
    /// Sets the MTU.
    SetMtu {
        /// The interface.
        interface: String,
        /// Bytes.
        mtu: u32,
        /// What it was, 0 if the interface is new.
        before: u32,
    },
    /// Sets the interface up.
    LinkUp {
        /// The interface.
        interface: String,
    },
    /// Sets the name servers.
    SetDns {
        /// The interface.
        interface: String,
        /// The servers and domains.
        dns: Dns,
        /// By whom: see [`crate::state::DnsManager`].
        manager: crate::state::DnsManager,
        /// All questions go to them, those of other interfaces' domains too.
        exclusive: bool,
    },
    /// Takes the name servers back.
    UnsetDns {
        /// The interface.
        interface: String,
        /// By whom.
        manager: crate::state::DnsManager,
    },
    /// Adds a route.
    AddRoute(Route),
    /// Takes a route away.
    DeleteRoute(Route),
    /// Adds a rule.
    AddRule(Rule),
    /// Takes a rule away.
    DeleteRule(Rule),
    /// Sets a variable of the kernel's.
    SetSysctl {
        /// Its name with dots, as `sysctl` has it.
        name: String,
        /// The value.
        value: String,
        /// What it was.
        before: String,
    },
    /// Makes a firewall table.
    AddFirewall(Firewall),
    /// Deletes a firewall table.
    DeleteFirewall(Firewall),
}

impl Step {
    /// Whether the kernel does it, over netlink or /proc/sys: steps that can be handed over together.
    pub fn is_kernel_step(&self) -> bool {
        match self {
            Self::AddLink { backend, .. } => *backend == Backend::Kernel,
            Self::Hook { .. }
            | Self::Configure { .. }
            | Self::SetFwmark { .. }
            | Self::SetDns { .. }
            | Self::UnsetDns { .. } => false,
            _ => true,
        }
    }

    /// The step that takes this one back; none for what needs no taking back (a hook, or what goes with the link).
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
