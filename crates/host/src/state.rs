//! The state of a host, as far as it matters to a tunnel.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::BitOrAssign;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::spec::AddressRange;
use crate::step::{AddressFamily, DnsManager, Route, Rule};

/// What the planner knows about the host. As JSON it is a test case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// The links, in the kernel's order.
    pub links: Vec<Link>,
    /// The routes of all tables but `local`, in the kernel's order.
    pub routes: Vec<Route>,
    /// The devices of all next hops of default routes in the main table that have several; such a route is in
    /// [`HostState::routes`] with the first.
    #[serde(default)]
    pub multipath_defaults: Vec<String>,
    /// The rules of both families.
    pub rules: Vec<Rule>,
    /// Address families that are disabled (`ipv6.disable=1`, `disable_ipv6` for all or for new links).
    pub disabled_families: Vec<AddressFamily>,
    /// The sysctls that a plan may set, by their dotted name; unreadable ones are absent.
    pub sysctls: BTreeMap<String, String>,
    /// There is one routing table and no rule but one for each family that selects it, as on FreeBSD.
    #[serde(default)]
    pub one_table: bool,
    /// The service that manages name servers.
    pub dns: DnsManager,
    /// The interfaces that it has name servers of; `None` where that cannot be told.
    #[serde(default)]
    pub interfaces_with_dns: Option<Vec<String>>,
    /// The kernel has nf_tables.
    pub nftables: bool,
    /// The firewall tables, each as `nft list tables` has it: its family and its name (`ip6 wg-quick-wg0`).
    pub firewall_tables: Vec<String>,
    /// Tables of the tunnel that have lost some or all of their rules.
    #[serde(default)]
    pub emptied_tables: Vec<String>,
    /// The sysctls that tunnels hold ([`Step::HoldSysctl`](crate::step::Step::HoldSysctl)), by their dotted name.
    #[serde(default)]
    pub held_sysctls: BTreeMap<String, HeldSysctl>,
    /// Firewalls of others that may drop what a gateway forwards; read only if there is a gateway.
    #[serde(default)]
    pub foreign_chains: Vec<ForeignChain>,
    /// What tunnels have opened in them ([`Opening::id`](crate::step::Opening::id)).
    #[serde(default)]
    pub openings: BTreeSet<String>,
}

/// What has changed of a host, or may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostChanges {
    pub default_routes: bool,
    /// A link is new or was renamed; default routes may use it.
    pub names: bool,
    /// What a tunnel has set: its interface, addresses, routes, rules or firewall tables.
    pub tunnel: bool,
}

impl BitOrAssign for HostChanges {
    fn bitor_assign(&mut self, other: Self) {
        self.default_routes |= other.default_routes;
        self.names |= other.names;
        self.tunnel |= other.tunnel;
    }
}

/// What is there of firewalls of others.
#[derive(Default)]
pub struct Foreign {
    /// Their base chains.
    pub chains: Vec<ForeignChain>,
    /// What tunnels have opened in them ([`Opening::id`](crate::step::Opening::id)).
    pub openings: BTreeSet<String>,
}

/// A base chain of somebody else's firewall, with the chains that packets meet from it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignChain {
    /// Its table, as `nft list tables` has it: `ip`, `ip6` or `inet`, and its name.
    pub table: String,
    /// Its name.
    pub chain: String,
    /// Which packets it sees.
    pub hook: ForeignHook,
    /// Whose it is.
    pub tool: FirewallTool,
    /// The program that keeps the table, if that is an iptables.
    pub iptables: Option<String>,
    /// The rules are those of the older kind of iptables, beside nf_tables.
    #[serde(default)]
    pub is_legacy: bool,
    /// Whether it drops what no rule decides.
    pub drops: bool,
    /// The rules of the table's chains.
    pub rules: BTreeMap<String, Vec<ForeignRule>>,
}

/// Where a foreign chain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignHook {
    /// What the host forwards.
    Forward,
    /// What is for the host.
    Input,
    /// What the host sends.
    Output,
    /// Whatever comes in, whether it is for the host or forwarded.
    Prerouting,
    /// Whatever leaves, whether the host sends or forwards it.
    Postrouting,
}

/// What made a firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirewallTool {
    /// Docker, with a chain of rules for the administrator.
    Docker,
    /// ufw.
    Ufw,
    /// firewalld.
    Firewalld,
    /// Somebody.
    Other,
}

/// A foreign rule, as far as interfaces, addresses, states of connections, protocols and ports go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForeignRule {
    /// How to find it among those of its chain: `rule 4`, or `rule 4 (handle 12)` where it has one.
    pub name: String,
    /// It is for packets from an interface that fits all of these.
    pub incoming: Vec<NamePattern>,
    /// It is for packets to an interface that fits all of these.
    pub outgoing: Vec<NamePattern>,
    /// It is for this version of IP.
    pub family: Option<AddressFamily>,
    /// It is for packets from these addresses.
    pub source: Option<AddressRange>,
    /// It is for packets to these addresses.
    pub destination: Option<AddressRange>,
    /// It is for packets of connections in these states (`NF_CT_STATE_BIT` of the kernel).
    pub states: Option<u32>,
    /// It is for this protocol above IP.
    pub protocol: Option<u8>,
    /// It is for packets to these ports, from the first to the last.
    pub ports: Option<(u16, u16)>,
    /// It is for packets that are none of these.
    pub exceptions: Vec<Exception>,
    /// It is for packets to the host, or for those that are not.
    pub is_for_host: Option<bool>,
    /// It is for packets up to a limit.
    pub is_limited: bool,
    /// It has conditions that hold for some packets of every kind.
    pub is_for_some: bool,
    /// It has conditions that are not read.
    pub has_others: bool,
    /// It is for packets for which all of these hold.
    pub conditions: Vec<Condition>,
    /// What it does to packets besides deciding about them.
    pub changes: Vec<Change>,
    /// How many packets it was for, if it counts them and that is read.
    pub packets: Option<u64>,
    /// What it decides.
    pub verdict: ForeignVerdict,
}

/// What a foreign rule does to packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It sets their mark; none if the value is not known.
    Mark(Option<u32>),
    /// It translates their source address.
    Source,
    /// It limits the size of TCP segments.
    SegmentSize,
}

/// Packets that a foreign rule is not for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exception {
    /// Those from these addresses.
    From(AddressRange),
    /// Those to these addresses.
    To(AddressRange),
    /// Those of this protocol above IP.
    Protocol(u8),
    /// Those to these ports, from the first to the last.
    Ports(u16, u16),
    /// Those that are said by something that is not read.
    Unread,
}

/// Names of interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamePattern {
    /// A name; a `*` at the end stands for anything.
    pub name: String,
    /// All others are meant.
    pub inverted: bool,
}

/// What a foreign rule decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignVerdict {
    /// Nothing: it counts, logs, or marks.
    #[default]
    Continue,
    /// The packet passes this base chain.
    Accept,
    /// It does not, with or without an answer.
    Drop,
    /// Back to the chain that led here.
    Return,
    /// On with this chain, and back.
    Jump(String),
    /// On with this chain, and not back.
    Goto(String),
    /// Anything: another program decides, or it is not read.
    Unknown,
}

/// A sysctl that tunnels hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSysctl {
    /// Its value before the first of them.
    pub before: String,
    /// The interfaces of those that hold it.
    pub holders: BTreeSet<String>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub name: String,
    pub index: u32,
    /// Bytes.
    pub mtu: u32,
    pub up: bool,
    /// It is a tunnel of the kernel module.
    pub wireguard: bool,
    /// It is the tunnel of a program: a TUN device for packets of IP.
    #[serde(default)]
    pub tun: bool,
    /// Its addresses with their prefixes, host bits kept.
    pub addresses: Vec<IpNet>,
}

impl HostState {
    /// The link of that name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The state as it is read by a process that cannot change name servers.
    #[must_use]
    pub fn without_dns(self) -> Self {
        Self { interfaces_with_dns: None, ..self }
    }
}
