//! The networks in which tunnels are measured: hosts, the cables between them, and what stands in the way.
//!
//! All are lines of two or three hosts. The client is at one end and the server at the other: the load runs
//! between these two. The tunnel runs between the client and either the server or the gateway before it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Doing;
use crate::hosts::Host;
use crate::relay::{self, Impairments, Relay};
use crate::sandbox::Sandbox;
use crate::subject::{Kind, LISTEN_PORT, Subject};
use crate::{Error, Result};

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order in which they came into the world.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// A network of hosts.
#[derive(Debug, Clone, PartialEq)]
pub enum Topology {
    /// Client and server on one cable.
    Pair,
    /// A gateway between the two that forwards by a firewall's rules. The tunnel runs between client and
    /// gateway.
    Routed {
        /// Whether the gateway also gives the client's packets its own address.
        nat: bool,
    },
    /// The same gateway and rules without a tunnel: what forwarding alone costs.
    Firewall {
        /// Whether the gateway also has the IPsec policies of two tunnels that carry none of the traffic.
        policies: bool,
    },
    /// Client and server with a bad network between them: by the kernel's netem where it has that, otherwise
    /// by [`relay`], which carries UDP only.
    Wan(Impairments),
    /// Client and server on one cable whose network cards do nothing but send and receive frames: no
    /// segmentation, no merging, no checksums.
    PlainNic,
}

/// A host's addresses on one network, one of either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Of IPv4.
    pub v4: Ipv4Addr,
    /// Of IPv6.
    pub v6: Ipv6Addr,
}

impl Addresses {
    /// The one of `family`.
    #[must_use]
    pub fn of(self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
    }
}

/// A network of the lab, a /24 and a /64, from the ranges for documentation and for private use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    v4: [u8; 3],
    v6: u16,
}

impl Network {
    /// The client's cable.
    pub const NEAR: Self = Self { v4: [192, 0, 2], v6: 0xfd01 };
    /// Inside the tunnel.
    pub const TUNNEL: Self = Self { v4: [10, 0, 0], v6: 0xfd02 };
    /// The server's cable, where it is not the client's.
    pub const FAR: Self = Self { v4: [198, 51, 100], v6: 0xfd03 };

    /// The addresses of the host with this number.
    #[must_use]
    pub const fn host(self, number: u8) -> Addresses {
        let [a, b, c] = self.v4;
        Addresses { v4: Ipv4Addr::new(a, b, c, number), v6: Ipv6Addr::new(self.v6, 0, 0, 0, 0, 0, 0, number as u16) }
    }

    /// The network's address and the length of its prefix.
    #[must_use]
    pub fn prefix(self, family: Family) -> (IpAddr, u8) {
        (self.host(0).of(family), prefix_length(family))
    }
}

/// The prefix length of every network of the lab.
pub(crate) fn prefix_length(family: Family) -> u8 {
    match family {
        Family::V4 => 24,
        Family::V6 => 64,
    }
}

/// The hosts of a topology, joined. They are gone when it is dropped.
#[derive(Debug)]
pub struct Testbed {
    topology: Topology,
    client: Host,
    /// Between client and server: the gateway, or the bad network.
    middle: Option<Host>,
    server: Host,
    has_ipv6: bool,
    relays: Vec<Relaying>,
}

impl Testbed {
    /// Makes the hosts and joins them. `seed` is what the relay's random numbers start from.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the machine lacks a tool or the kernel a feature that this topology needs;
    /// otherwise as [`Host::create`].
    pub fn build(inside: &Sandbox, topology: &Topology, seed: u64) -> Result<Self> {
        let middle = match topology {
            Topology::Pair | Topology::PlainNic => None,
            Topology::Routed { .. } | Topology::Firewall { .. } => Some(Host::create(inside, "gateway")?),
            Topology::Wan(_) => Some(Host::create(inside, "wan")?),
        };
        let mut testbed = Self {
            topology: topology.clone(),
            client: Host::create(inside, "client")?,
            middle,
            server: Host::create(inside, "server")?,
            has_ipv6: fs::exists("/proc/sys/net/ipv6").unwrap_or(false),
            relays: Vec::new(),
        };
        testbed.connect_hosts()?;
        match topology {
            Topology::Pair => {}
            Topology::PlainNic => [&testbed.client, &testbed.server].into_iter().try_for_each(make_plain)?,
            Topology::Routed { nat } => testbed.set_up_gateway(*nat)?,
            Topology::Firewall { policies } => {
                testbed.set_up_gateway(false)?;
                if *policies {
                    testbed.load_policies()?;
                }
            }
            Topology::Wan(impairments) => testbed.impair(impairments, seed)?,
        }
        Ok(testbed)
    }

    /// All hosts, in the order of the way from client to server.
    #[must_use]
    pub fn hosts(&self) -> Vec<&Host> {
        std::iter::once(&self.client).chain(&self.middle).chain([&self.server]).collect()
    }

    /// Where the load starts.
    #[must_use]
    pub fn client(&self) -> &Host {
        &self.client
    }

    /// Where the load ends.
    #[must_use]
    pub fn server(&self) -> &Host {
        &self.server
    }

    /// The hosts between which a tunnel runs: the client, then the gateway if there is one, or else the server.
    #[must_use]
    pub fn ends(&self) -> [&Host; 2] {
        [&self.client, self.gateway().unwrap_or(&self.server)]
    }

    /// Where that end of a tunnel sends its datagrams.
    #[must_use]
    pub fn endpoint(&self, end: usize, family: Family) -> SocketAddr {
        // A relay's door is at the next hop.
        let to = if self.relays.is_empty() { self.outside(1 - end) } else { self.next_hop(end) };
        SocketAddr::new(to.of(family), LISTEN_PORT)
    }

    /// What a reader of its figures has to know.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.relays.is_empty() {
            notes.push("delay and loss by the lab's relay: this kernel has no netem".into());
        }
        if !self.has_ipv6 {
            notes.push("this kernel has no IPv6".into());
        }
        notes
    }

    /// Whether the kernel has IPv6.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// Why `subject` cannot be measured in this network, if it cannot.
    #[must_use]
    pub fn refuses(&self, subject: &Subject) -> Option<String> {
        let is_wire = subject.kind == Kind::Wire;
        if matches!(self.topology, Topology::Firewall { .. }) && !is_wire {
            return Some("there is no tunnel in this network: it shows what the gateway alone does".into());
        }
        if self.relays.is_empty() {
            return None;
        }
        match &subject.kind {
            Kind::Wire => {
                Some("the relay carries UDP only: there is no bare wire in this network without netem".into())
            }
            Kind::Esp(_) => Some("the relay carries UDP only: no ESP in this network without netem".into()),
            Kind::Daemon { .. } | Kind::KernelWireGuard | Kind::Commands(_) => None,
        }
    }

    /// The addresses of that end of a tunnel on its own cable.
    #[must_use]
    pub fn outside(&self, end: usize) -> Addresses {
        match (end, &self.topology) {
            (0, _) => Network::NEAR.host(1),
            (_, Topology::Wan(_)) => Network::FAR.host(2),
            _ => Network::NEAR.host(2),
        }
    }

    /// The server's addresses on its own cable.
    #[must_use]
    pub fn servers(&self) -> Addresses {
        match self.middle {
            Some(_) => Network::FAR.host(2),
            None => Network::NEAR.host(2),
        }
    }

    /// The network behind the tunnel's far end, if the tunnel does not end at the server.
    #[must_use]
    pub fn behind(&self) -> Option<Network> {
        self.gateway().map(|_| Network::FAR)
    }

    /// Which neighbour that end of a tunnel sends to in order to reach the other end.
    pub(crate) fn next_hop(&self, end: usize) -> Addresses {
        match (end, &self.topology) {
            (0, _) => Network::NEAR.host(2),
            (_, Topology::Wan(_)) => Network::FAR.host(1),
            _ => Network::NEAR.host(1),
        }
    }

    /// The families of addresses that this kernel has.
    pub(crate) fn families(&self) -> &'static [Family] {
        if self.has_ipv6 { &Family::BOTH } else { &[Family::V4] }
    }

    fn gateway(&self) -> Option<&Host> {
        match self.topology {
            Topology::Routed { .. } | Topology::Firewall { .. } => self.middle.as_ref(),
            Topology::Pair | Topology::Wan(_) | Topology::PlainNic => None,
        }
    }

    /// `eth0` of the client to `eth0` of the host in the middle, `eth1` of that to `eth0` of the server.
    fn connect_hosts(&self) -> Result<()> {
        let Some(middle) = &self.middle else {
            self.client.join("eth0", &self.server, "eth0")?;
            self.address(&self.client, "eth0", Network::NEAR.host(1))?;
            return self.address(&self.server, "eth0", Network::NEAR.host(2));
        };
        self.client.join("eth0", middle, "eth0")?;
        middle.join("eth1", &self.server, "eth0")?;
        self.address(&self.client, "eth0", Network::NEAR.host(1))?;
        self.address(middle, "eth0", Network::NEAR.host(2))?;
        self.address(middle, "eth1", Network::FAR.host(1))?;
        self.address(&self.server, "eth0", Network::FAR.host(2))
    }

    fn address(&self, host: &Host, device: &str, addresses: Addresses) -> Result<()> {
        self.families().iter().try_for_each(|&family| {
            // Nobody else can have the address: no need to wait until the kernel has asked around.
            let nodad = if family == Family::V6 { "nodad" } else { "" };
            let (address, length) = (addresses.of(family), prefix_length(family));
            host.ip(&format!("addr add {address}/{length} dev {device} {nodad}"))
        })
    }

    /// Sends what `host` has no other route for to its neighbour.
    fn route(&self, host: &Host, neighbour: Addresses) -> Result<()> {
        self.families().iter().try_for_each(|&family| {
            host.ip(&format!("{} route add default via {}", flag(family), neighbour.of(family)))
        })
    }

    /// The gateway forwards by its rules, and the server's answers go by it. What the client sends through it
    /// is for the tunnel, or its absence, to say.
    fn set_up_gateway(&self, nat: bool) -> Result<()> {
        let Some(gateway) = self.gateway() else { return Ok(()) };
        gateway.forward()?;
        load_rules(gateway, &rules(gateway.interface().as_str(), nat))?;
        self.route(&self.server, Network::FAR.host(1))
    }

    /// Loads the policies of two tunnels between networks that no packet here comes from or goes to.
    fn load_policies(&self) -> Result<()> {
        let Some(gateway) = self.gateway() else { return Ok(()) };
        for line in policies() {
            gateway.ip(&line).map_err(|error| {
                Error::Refused(format!(
                    "the gateway takes no IPsec policies ({error}): they need a kernel with CONFIG_XFRM_USER"
                ))
            })?;
        }
        Ok(())
    }

    fn impair(&mut self, impairments: &Impairments, seed: u64) -> Result<()> {
        let Some(middle) = &self.middle else { return Ok(()) };
        if let Some(mtu) = impairments.mtu {
            self.narrow(middle, mtu)?;
        }
        // The cables see to it from here: the hosts cut up what is larger, as routers do.
        let impairments = &Impairments { mtu: None, ..*impairments };
        if has_netem(middle)? {
            self.set_up_netem(middle, impairments)
        } else {
            self.relays = start_relays(self, middle, impairments, seed)?;
            Ok(())
        }
    }

    fn set_up_netem(&self, middle: &Host, impairments: &Impairments) -> Result<()> {
        middle.forward()?;
        self.route(&self.client, self.next_hop(0))?;
        self.route(&self.server, self.next_hop(1))?;
        for host in [&self.client, &self.server] {
            // Otherwise netem would lose and delay whole GSO batches of segments as if they were one packet.
            host.ip("link set eth0 gso_max_segs 1")?;
        }
        for device in ["eth0", "eth1"] {
            middle
                .run(Command::new("tc").args(["qdisc", "replace", "dev", device, "root"]).args(netem(impairments)))?;
        }
        Ok(())
    }

    /// Lets no larger packet onto the cables.
    fn narrow(&self, middle: &Host, mtu: u32) -> Result<()> {
        let ends = [(&self.client, "eth0"), (middle, "eth0"), (middle, "eth1"), (&self.server, "eth0")];
        ends.into_iter().try_for_each(|(host, device)| host.ip(&format!("link set {device} mtu {mtu}")))
    }
}

/// What `ip` wants to hear before the word `route`.
pub(crate) fn flag(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

/// The arguments of `ethtool -K eth0` that make a simple network card of a veth.
const PLAIN: &str = "tx off rx off sg off tso off gso off gro off tx-udp-segmentation off";

/// What must be off then, by the names of `ethtool -k`.
const OFFLOADS: [&str; 7] = [
    "tx-checksumming",
    "rx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "tx-udp-segmentation",
    "generic-segmentation-offload",
    "generic-receive-offload",
];

/// Turns the offloads of `eth0` off and looks whether they are.
fn make_plain(host: &Host) -> Result<()> {
    host.run(Command::new("ethtool").args(["-K", "eth0"]).args(PLAIN.split(' ')))?;
    let features = host.run(Command::new("ethtool").args(["-k", "eth0"]))?;
    match still_on(&features) {
        None => Ok(()),
        Some(name) => Err(Error::Refused(format!("this kernel does not turn off a veth's {name}"))),
    }
}

/// The first offload that is on by the output of `ethtool -k`.
fn still_on(features: &str) -> Option<&'static str> {
    let is_on = |name: &str| {
        let state = features.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        state.is_some_and(|state| state.starts_with("on"))
    };
    OFFLOADS.into_iter().find(|name| is_on(name))
}

/// Has nft load rules on `host`.
fn load_rules(host: &Host, rules: &str) -> Result<()> {
    host.run(Command::new("nft").arg(rules)).map(drop).map_err(|error| match error {
        Error::Command { said, .. } => {
            let (name, reason) = (host.name(), said.lines().next().unwrap_or_default());
            Error::Refused(format!(
                "nft did not load the rules of the {name} ({reason}): they need a kernel with CONFIG_NF_TABLES_INET, \
                 CONFIG_NFT_CT and CONFIG_NFT_MASQ"
            ))
        }
        other => other,
    })
}

// By number: nft knows the names from /etc/protocols, which small systems lack.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
const ICMPV6: u8 = 58;

/// The rules of a small gateway: what it may be asked, and what it forwards from where to where. `eth0` is
/// the client's side and `eth1` the server's.
fn rules(tunnel: &str, nat: bool) -> String {
    let postrouting = if nat {
        "chain postrouting {
                type nat hook postrouting priority srcnat;
                oifname \"eth1\" counter masquerade
            }"
    } else {
        ""
    };
    format!(
        "table inet gateway {{
            chain input {{
                type filter hook input priority filter; policy drop;
                ct state established,related counter accept
                ct state invalid counter drop
                iifname \"lo\" accept
                meta l4proto {{ {ICMP}, {ICMPV6} }} counter accept
                iifname \"eth0\" meta l4proto {ESP} counter accept
                iifname \"eth0\" meta l4proto {{ {TCP}, {UDP} }} th dport {LISTEN_PORT} counter accept
            }}
            chain forward {{
                type filter hook forward priority filter; policy drop;
                ct state invalid counter drop
                iifname \"{tunnel}\" oifname \"eth1\" ct state new,established,related counter accept
                iifname \"eth1\" oifname \"{tunnel}\" ct state established,related counter accept
                iifname \"eth0\" oifname \"eth1\" ct state new,established,related counter accept
                iifname \"eth1\" oifname \"eth0\" ct state established,related counter accept
                counter
            }}
            {postrouting}
        }}"
    )
}

/// The arguments of `ip` that load two tunnels' policies, both directions and both families.
fn policies() -> Vec<String> {
    let gateway = Network::FAR.host(1).v4;
    let mut lines = Vec::new();
    for tunnel in 1..=2 {
        let remote = format!("203.0.113.{tunnel}");
        for (here, there) in [
            (format!("10.101.{tunnel}.0/24"), format!("10.102.{tunnel}.0/24")),
            (format!("fd65:{tunnel}::/64"), format!("fd66:{tunnel}::/64")),
        ] {
            let out = format!("tmpl src {gateway} dst {remote} proto esp reqid {tunnel} mode tunnel");
            let back = format!("tmpl src {remote} dst {gateway} proto esp reqid {tunnel} mode tunnel");
            lines.push(format!("xfrm policy add src {here} dst {there} dir out {out}"));
            lines.push(format!("xfrm policy add src {there} dst {here} dir in {back}"));
            lines.push(format!("xfrm policy add src {there} dst {here} dir fwd {back}"));
        }
    }
    lines
}

/// Whether this kernel has netem, by trying.
fn has_netem(host: &Host) -> Result<bool> {
    match host.run(Command::new("tc").args("qdisc add dev lo root netem".split(' '))) {
        Ok(_) => Ok(true),
        Err(Error::Command { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The impairments in the words of tc-netem(8).
fn netem(impairments: &Impairments) -> Vec<String> {
    // As many packets under way as the relay takes.
    let mut words = vec!["netem".to_owned(), "limit".into(), "16384".into()];
    // To netem, reordered packets are those that are not delayed: there is no order to lose without a delay.
    let least = if impairments.reorder > 0.0 { Duration::from_millis(1) } else { Duration::ZERO };
    let microseconds = |time: Duration| format!("{}us", time.as_micros());
    words.extend(["delay".into(), microseconds(impairments.delay.max(least)), microseconds(impairments.jitter)]);
    for (name, share) in
        [("loss", impairments.loss), ("duplicate", impairments.duplicate), ("reorder", impairments.reorder)]
    {
        if share > 0.0 {
            words.extend([name.into(), format!("{}%", share * 100.0)]);
        }
    }
    words
}

/// A relay at work on a thread of its own. Dropping it ends it.
#[derive(Debug)]
struct Relaying {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<relay::Report>>>,
}

/// One relay for each end and family: each end has a door to the other, so that either may begin.
fn start_relays(testbed: &Testbed, middle: &Host, impairments: &Impairments, seed: u64) -> Result<Vec<Relaying>> {
    let mut relays = Vec::new();
    for end in 0..2 {
        for &family in testbed.families() {
            let listen = SocketAddr::new(testbed.next_hop(end).of(family), LISTEN_PORT);
            let to = SocketAddr::new(testbed.outside(1 - end).of(family), LISTEN_PORT);
            let options = relay::Options { listen, to, impairments: *impairments, seed };
            relays.push(Relaying::start(middle, &options)?);
        }
    }
    Ok(relays)
}

impl Relaying {
    fn start(host: &Host, options: &relay::Options) -> Result<Self> {
        let (stop, stopped) = UnixStream::pair().doing(|| "preparing a relay to be stopped".into())?;
        let relay = host.inside(|| Relay::open(options))?;
        let thread = host.start(move || relay.serve(&stopped));
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Relaying {
    fn drop(&mut self) {
        // It ends when its line is closed.
        self.stop.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURES: &str = "Features for eth0:\nrx-checksumming: off [fixed]\ntx-checksumming: off\n\
        \ttx-checksum-ip-generic: off\nscatter-gather: off\ntcp-segmentation-offload: off\n\
        generic-segmentation-offload: off\ngeneric-receive-offload: off\n\ttx-udp-segmentation: off [requested on]\n";

    #[test]
    fn an_offload_that_stayed_on_is_named() {
        assert_eq!(still_on(FEATURES), None);
        let stayed = FEATURES.replace("scatter-gather: off", "scatter-gather: on [fixed]");
        assert_eq!(still_on(&stayed), Some("scatter-gather"));
        let stayed = FEATURES.replace("tx-udp-segmentation: off", "tx-udp-segmentation: on");
        assert_eq!(still_on(&stayed), Some("tx-udp-segmentation"));
    }

    #[test]
    fn impairments_become_netems_options() {
        let country = Impairments {
            loss: 0.001,
            reorder: 0.25,
            delay: Duration::from_millis(20),
            jitter: Duration::from_micros(1500),
            ..Impairments::default()
        };
        assert_eq!(netem(&country).join(" "), "netem limit 16384 delay 20000us 1500us loss 0.1% reorder 25%");
        let only_reordering = Impairments { reorder: 0.5, ..Impairments::default() };
        assert_eq!(netem(&only_reordering).join(" "), "netem limit 16384 delay 1000us 0us reorder 50%");
    }

    #[test]
    fn idle_policies_match_no_network_of_the_lab() {
        let lines = policies();
        assert_eq!(lines.len(), 2 * 2 * 3);
        for network in [Network::NEAR, Network::TUNNEL, Network::FAR] {
            for (address, length) in Family::BOTH.map(|family| network.prefix(family)) {
                assert!(!lines.iter().any(|line| line.contains(&format!(" {address}/{length} "))));
            }
        }
    }

    #[test]
    fn forwarding_rules_name_both_interfaces() {
        let text = rules("wg-gateway", true);
        let forward = text.split("chain forward").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
        let accepting = forward.lines().filter(|line| line.contains("accept")).collect::<Vec<_>>();
        assert_eq!(accepting.len(), 4);
        assert!(accepting.iter().all(|line| line.contains("iifname \"") && line.contains("oifname \"")));
        assert!(text.contains("masquerade") && !rules("wg-gateway", false).contains("masquerade"));
    }
}
