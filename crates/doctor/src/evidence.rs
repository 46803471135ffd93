//! What was read of a tunnel and of its host. Whatever could not be read is absent, and no rule relies on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use linerate_host::plan::foreign::Obstacle;

use crate::firewall::Ruleset;

/// All that the rules know.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub tunnel: Tunnel,
    /// The other tunnels of this host.
    pub others: Vec<OtherTunnel>,
    /// The host's network.
    pub host: Host,
    /// The host's processors.
    pub machine: Machine,
}

/// Counters by name, at the beginning and at the end of the examination.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// At the beginning.
    pub before: BTreeMap<String, u64>,
    /// At the end.
    pub after: BTreeMap<String, u64>,
}

impl Counters {
    /// The last value; 0 if there is no such counter.
    #[must_use]
    pub fn total(&self, name: &str) -> u64 {
        self.after.get(name).copied().unwrap_or(0)
    }

    /// By how much it grew.
    #[must_use]
    pub fn growth(&self, name: &str) -> u64 {
        self.total(name).saturating_sub(self.before.get(name).copied().unwrap_or(0))
    }

    /// Whether a counter says no: it is there, and 0.
    #[must_use]
    pub fn denies(&self, name: &str) -> bool {
        self.after.get(name) == Some(&0)
    }
}

/// A tunnel.
#[derive(Clone, Debug, Default)]
pub struct Tunnel {
    /// Its interface.
    pub name: String,
    /// Its daemon has died.
    pub is_dead: bool,
    /// The interface is set down.
    pub link_down: bool,
    /// It has peers and no private key.
    pub no_private_key: bool,
    /// Its port is in use by somebody else.
    pub not_listening: bool,
    /// The process that has the port.
    pub port_holder: Option<String>,
    pub hook_failed: bool,
    /// The UDP port that it listens on, or wants to.
    pub listen_port: u16,
    pub mtu: u32,
    /// The mark of its own datagrams.
    pub fwmark: u32,
    /// The addresses of the interface.
    pub addresses: Vec<IpNet>,
    /// The file it came from.
    pub file: Option<String>,
    /// The file says `Table = off` or names a table, so the routes are somebody else's.
    pub table_off: bool,
    /// The interfaces between which and the tunnel the host forwards, by the file.
    pub gateway: Vec<String>,
    /// The file says `Gateway = auto`.
    pub gateway_is_auto: bool,
    /// What the host's firewall has to enforce for it.
    pub protection: Protection,
    /// Allowed IPs that the file gives to more than one peer.
    pub allowed_ips_twice: Vec<IpNet>,
    pub public_key: Option<String>,
    pub peers: Vec<Peer>,
    /// The daemon's counters; empty for the kernel's tunnels and for daemons without them.
    pub counters: Counters,
    /// How long the examination took.
    pub window: Duration,
}

/// The settings of the tunnel's file that the host's firewall has to enforce.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    /// linerate brought the tunnel up, so `linerate reload` restores its tables.
    pub is_ours: bool,
    /// Its tables, such as `inet linerate-wg0`, except for those of its kill switch and its gateway.
    pub tables: Vec<String>,
    /// The gateway's table, if the file needs one.
    pub gateway_table: Option<String>,
    /// The sysctls that linerate set for it, with `/` for a dot in the name of an interface.
    pub sysctls: BTreeSet<String>,
    /// `Gateway`.
    pub is_gateway: bool,
    /// `ClientIsolation`.
    pub isolated: bool,
    /// `Inbound = replies`.
    pub replies_only: bool,
    /// `Masquerade`, for IPv4 and for IPv6.
    pub masquerade: [bool; 2],
    /// The table of the kill switch, if the file sets `KillSwitch`.
    pub kill_switch: Option<String>,
    /// `ExcludedIPs`.
    pub excluded: Vec<IpNet>,
    /// `ExcludeLAN`.
    pub exclude_lan: bool,
    /// The servers that `DNS` names.
    pub name_servers: Vec<IpAddr>,
}

/// A peer.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its name, or its public key.
    pub label: String,
    pub public_key: String,
    pub endpoint: Option<SocketAddr>,
    /// The name of the endpoint, if the file has one.
    pub endpoint_name: Option<String>,
    /// The addresses of that name as of now, or why there are none; absent if it was not looked up.
    pub resolved: Option<Result<Vec<IpAddr>, String>>,
    /// It should answer: its endpoint is configured, and it is not suspended.
    pub is_expected: bool,
    /// It has expired, or its quota is reached.
    pub is_suspended: bool,
    /// The time since the last handshake, at the end of the examination.
    pub handshake_age: Option<Duration>,
    /// That age at the beginning, before anything was sent to the peer.
    pub handshake_age_before: Option<Duration>,
    /// Seconds between keepalives; 0 for none.
    pub keepalive: u16,
    pub has_preshared_key: bool,
    /// Bytes sent to it that it need not have answered yet: those before the examination, and the most recent ones.
    pub sent_before: u64,
    /// Bytes sent to it.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
    pub allowed_ips: Vec<IpNet>,
    /// `Destinations`: the only prefixes that it may reach; empty: it may reach all.
    pub destinations: Vec<IpNet>,
    /// Where datagrams to the endpoint go.
    pub endpoint_way: Option<Way>,
    /// What drops its answers to this host.
    pub answers_obstacle: Option<Obstacle>,
    /// Where packets to some of its allowed IPs go.
    pub ways: Vec<(IpNet, Way)>,
    /// What became of echo requests through the tunnel.
    pub probe: Option<Probe>,
}

/// The length of an initiation: a peer that sent less has not even begun.
pub const INITIATION: u64 = 148;

/// After this long without a handshake there is no session.
pub const SESSION: Duration = Duration::from_secs(180);

impl Peer {
    /// Whether it has a session at the end. Whoever answers has one, even if the clock was set meanwhile.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let answers = self.probe.as_ref().is_some_and(|probe| probe.answered);
        answers || self.handshake_age.is_some_and(|age| age < SESSION)
    }

    /// Whether it should have one and has not. While nothing is sent to it, that is no fault.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.is_expected && !self.is_suspended && !self.is_alive()
    }

    /// Whether it should have one, was sent something, and has not answered.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        let unanswered = self.probe.as_ref().is_some_and(|probe| probe.refused.is_none());
        let never = self.handshake_age.is_none() && self.received == 0 && self.sent >= 3 * INITIATION;
        self.is_missing() && (self.sent > self.sent_before || unanswered || never)
    }
}

/// Where the kernel sends packets to some address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over this interface.
    Device(String),
    /// Nowhere; the kernel's words.
    None(String),
}

/// What became of echo requests through the tunnel to an address of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The address.
    pub to: IpAddr,
    /// A small request was answered.
    pub answered: bool,
    /// The kernel refused to send with this error.
    pub refused: Option<String>,
    /// The largest packet that came back, and the smallest that did not in several attempts.
    pub sizes: Option<(u32, u32)>,
}

/// Another tunnel.
#[derive(Clone, Debug, Default)]
pub struct OtherTunnel {
    /// Its interface.
    pub name: String,
    pub listen_port: u16,
    /// The allowed IPs of its peers.
    pub allowed_ips: Vec<IpNet>,
}

/// The host's network.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub links: Vec<Link>,
    /// The routes over the tunnel, but for those that come with its addresses.
    pub tunnel_routes: Vec<IpNet>,
    /// The interface of the default route.
    pub uplink: Option<String>,
    /// There is a default route for IPv6.
    pub reaches_ipv6: bool,
    /// Sysctls by their dotted names.
    pub sysctls: BTreeMap<String, String>,
    /// What drops datagrams of new peers to the tunnel's port.
    pub port_obstacles: Vec<Obstacle>,
    /// What drops packets between the tunnel and the gateway's interfaces, or the uplink.
    pub forward_obstacles: Vec<Obstacle>,
    /// The firewall.
    pub ruleset: Option<Ruleset>,
    /// There are tables of the older iptables as well, of which only those that filter are read.
    pub has_legacy_rules: bool,
    /// The tables of the firewall, such as `inet filter`; `None` if they cannot be read.
    pub tables: Option<Vec<String>>,
    /// Routes of the main table that bypass a full tunnel.
    pub routes_past: Vec<RoutePast>,
    /// Addresses of cloud metadata services, and the route to each.
    pub metadata: Vec<(IpAddr, Way)>,
    /// The kernel's counters (/proc/net/snmp and netstat, such as `Udp.RcvbufErrors`).
    pub counters: Counters,
    /// Datagrams that the tunnel's sockets dropped because their buffers were full.
    pub socket_drops: Counters,
    pub name_servers: Vec<(IpAddr, Option<Way>)>,
    /// How far the clock is behind something that exists already: which, and by how much.
    pub clock_behind: Option<(String, Duration)>,
}

impl Host {
    /// The link of that name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The sysctl's value.
    #[must_use]
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(String::as_str)
    }
}

/// A route that bypasses the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePast {
    /// Its prefix.
    pub to: IpNet,
    /// The interface that the kernel chooses for addresses in it.
    pub device: String,
    /// The next hop.
    pub via: Option<IpAddr>,
    /// What added it (rtnetlink.h, `RTPROT_*`).
    pub protocol: u8,
}

/// A link.
#[derive(Clone, Debug, Default)]
pub struct Link {
    pub name: String,
    pub mtu: u32,
    pub up: bool,
    /// Whether it is a tunnel, of WireGuard or of another program.
    pub is_tunnel: bool,
    pub addresses: Vec<IpNet>,
    /// How many receive queues it has.
    pub receive_queues: usize,
    /// Packets are spread over processors in software (RPS).
    pub spreads: bool,
    /// The processors that its interrupts go to.
    pub interrupt_cores: Vec<usize>,
}

/// The host's processors.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// How many there are.
    pub processors: usize,
    /// Each processor's use during the examination.
    pub cores: Vec<CoreUse>,
    /// Each of the daemon's threads and its share of one processor.
    pub threads: Vec<(String, f64)>,
    /// The implementation of the cipher, as the daemon names it.
    pub cipher: Option<String>,
    /// The best that this CPU can run.
    pub best_cipher: Option<String>,
    /// How many processors the daemon's control group may use, and how often it was throttled before and after.
    pub limit: Option<CpuLimit>,
    /// The governor and the driver of the CPU's frequency.
    pub governor: Option<(String, String)>,
}

/// A processor's time, as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreUse {
    /// Of how many ticks they are shares: a hundredth of a second each.
    pub ticks: u64,
    /// At rest.
    pub idle: f64,
    /// In the kernel's network code and other soft interrupts.
    pub softirq: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

/// A limit of a control group.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuLimit {
    /// The group's path.
    pub group: String,
    /// So many processors' worth of time.
    pub processors: f64,
    /// How often the group was throttled.
    pub throttled: u64,
}
