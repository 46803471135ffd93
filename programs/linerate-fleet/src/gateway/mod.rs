//! What a gateway does for the others: heartbeats, hints, take-over, drain. It is told by channels what the store and the
//! daemon say, and tells by one what it sees.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::seal::MessageKey;

mod budget;
mod daemon;
pub mod envelope;
mod inject;
pub mod machine;
pub mod members;
mod mesh;
pub mod message;
pub mod peers;
mod refusals;
mod routes;
mod service;
mod socket;

pub use service::run;

/// The most gateways of a fleet.
pub const GATEWAYS_MAX: u8 = 64;

/// What stays the same while the service runs. It holds secrets, so it has no `Debug`.
#[derive(Clone)]
pub struct Config {
    /// The fleet's name.
    pub fleet: String,
    /// The tunnel's interface, whose daemon is asked by UAPI.
    pub interface: InterfaceName,
    /// This gateway.
    pub number: u8,
    /// The key of receiver indices, which the daemon has been told too.
    pub index_key: SecretKey,
    /// The key of the MACs of messages between gateways.
    pub message_key: MessageKey,
    /// The one address and port at which clients reach all gateways.
    pub address: SocketAddr,
    /// The mesh's network; a gateway's address in it is [`Config::mesh_address`].
    pub mesh_prefix: Ipv6Net,
    /// This gateway's key in the mesh.
    pub mesh_key: SecretKey,
    /// Where the other gateways reach this one: the address and port on which its mesh listens.
    pub mesh_endpoint: SocketAddr,
    /// The clock's distance from the majority at which a gateway leaves.
    pub skew_max: Duration,
    /// The kernel's table that gets a route for each address of a peer whose session is here, for a routing daemon to tell
    /// others of; none: there are no such routes.
    pub route_table: Option<u32>,
}

impl Config {
    /// The inner address of a gateway in the mesh: number + 1 in the prefix.
    pub fn mesh_address(&self, gateway: u8) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.mesh_prefix.network().to_bits() | (u128::from(gateway) + 1))
    }
}

/// Who may be a gateway, by number, this one included. Empty until the store was first read (or the last view on disk).
pub type Members = BTreeMap<u8, Member>;

/// A gateway, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The host's name.
    pub name: String,
    /// Its key in the mesh.
    pub mesh_key: PublicKey,
    /// Where its mesh listens.
    pub mesh_endpoint: SocketAddr,
    /// Whether its lease in the store is alive: seconds late. Heartbeats say who is alive.
    pub has_lease: bool,
    /// What it says of itself in the store.
    pub is_draining: bool,
    /// How many peers it takes, compared with the others; from the store, 1 if it does not say.
    pub capacity: u32,
}

/// The peers in force by their numbers in the fleet. Each is shared with the last view: most stay.
pub type Peers = Arc<BTreeMap<u32, Arc<Peer>>>;

/// What a gateway needs of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its key.
    pub public_key: PublicKey,
    /// What is routed to it.
    pub allowed_ips: Vec<IpNet>,
}

/// What this gateway sees of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// Whether it answers: false as soon as a request fails, or nothing was heard on the watch for some seconds.
    pub is_seen: bool,
    /// Whether it has not answered for longer than max_stale: no new handshakes, for anybody.
    pub is_stale: bool,
}

/// What a gateway is told while it runs.
#[derive(Clone)]
pub struct Inputs {
    /// Who may be a gateway.
    pub members: watch::Receiver<Members>,
    /// The peers in force. The daemon has them, with their numbers, before they are here.
    pub peers: watch::Receiver<Peers>,
    /// What is seen of the store.
    pub store: watch::Receiver<Store>,
    /// Whether this gateway is to give its clients away (`linerate fleet drain`).
    pub drain: watch::Receiver<bool>,
    /// The daemon: a number for each start of it, once it has been told its gateway number, index key and peer numbers;
    /// none while there is none. Whatever else it has to be told (`fleet_forward=`, hints) has to be told again when this
    /// changes.
    pub daemon: watch::Receiver<Option<u64>>,
    /// Becomes true when the service ends.
    pub shutdown: watch::Receiver<bool>,
}

/// What a gateway tells, for `linerate fleet status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayStatus {
    /// Whether it initiates for others.
    pub initiates: bool,
    /// Why it does not, for people.
    pub reason: Option<String>,
    /// Why it does not hear the other gateways, as a sentence.
    pub trouble: Option<String>,
    /// Whether a drain is done: no client is left here that another gateway could have.
    pub is_drained: bool,
    /// What it sees of each gateway, by number, itself included.
    pub gateways: BTreeMap<u8, Seen>,
    /// Counters by name, such as `forwarded`.
    pub counters: BTreeMap<String, u64>,
}

/// What one gateway sees of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Whether its heartbeats come.
    pub is_alive: bool,
    /// How far its clock is ahead of ours, in milliseconds.
    pub skew_ms: Option<i64>,
    /// How many peers have their sessions there, as far as known.
    pub peers: u32,
    /// What it says of itself: it gives its clients away.
    pub is_draining: bool,
}
