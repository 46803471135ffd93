//! The networks in which tunnels are measured: hosts, the cables between them, and what stands in the way.
//!
//! All are lines of two or three hosts. The client is at one end and the server at the other: the load runs
//! between these two. The tunnel runs between the client and either the server or the gateway before it.

mod addresses;
mod gateway;
mod impairments;

use std::fs;
use std::net::SocketAddr;

use crate::Result;
use crate::hosts::Host;
use crate::relay::Impairments;
use crate::sandbox::Sandbox;
use crate::subject::{Kind, LISTEN_PORT, Subject};
pub use addresses::{AddressFamily, Addresses, Network};
pub(crate) use addresses::{flag, prefix_length};
pub(crate) use gateway::UPLINK;
use impairments::{Relaying, make_plain};

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
        /// What else it has to look through.
        beside: Beside,
    },
    /// Client and server with a bad network between them: by the kernel's netem where it has that, otherwise
    /// by [the relay](crate::relay), which carries UDP only.
    Wan(Impairments),
    /// Client and server on one cable whose network cards do nothing but send and receive frames: no
    /// segmentation, no merging, no checksums.
    PlainNic,
}

/// What a gateway has that is not the tunnel's, and that matches none of its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// A thousand rules of another firewall for what is forwarded.
    Rules,
    /// The IPsec policies of two tunnels.
    Policies,
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
            Topology::Routed { .. } => Some(Host::create(inside, "gateway")?),
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
            Topology::Routed { beside, .. } => testbed.set_up_gateway(*beside)?,
            Topology::Wan(impairments) => testbed.impair(impairments, seed)?,
        }
        Ok(testbed)
    }

    /// Lets the TCP streams between client and server use this congestion control.
    ///
    /// # Errors
    ///
    /// As [`Host::use_congestion_control`].
    pub fn use_congestion_control(&self, name: &str) -> Result<()> {
        [&self.client, &self.server].into_iter().try_for_each(|host| host.use_congestion_control(name))
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
    pub fn endpoint(&self, end: usize, family: AddressFamily) -> SocketAddr {
        // A relay listens at the next hop.
        let to = if self.relays.is_empty() { self.outside(1 - end) } else { self.next_hop(end) };
        SocketAddr::new(to.of(family), LISTEN_PORT)
    }

    /// Notes for readers of its figures.
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
    pub(crate) fn families(&self) -> &'static [AddressFamily] {
        if self.has_ipv6 { &AddressFamily::BOTH } else { &[AddressFamily::V4] }
    }

    fn gateway(&self) -> Option<&Host> {
        match self.topology {
            Topology::Routed { .. } => self.middle.as_ref(),
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
            // No other host can have the address: do not wait for duplicate address detection.
            let nodad = if family == AddressFamily::V6 { "nodad" } else { "" };
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
}
