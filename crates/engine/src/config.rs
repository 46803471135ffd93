//! What a user configures and sees: the changes that [`crate::Handle::set`] takes and the state
//! that [`crate::Handle::get`] gives.

use std::fmt;
#[cfg(feature = "fleet")]
use std::net::IpAddr;
use std::net::SocketAddr;
#[cfg(feature = "fleet")]
use std::net::SocketAddrV4;
use std::time::Duration;

#[cfg(feature = "fleet")]
use linerate_protocol::fleet::{Hint, IndexKey};
use linerate_protocol::{Boottime, Prefix};
use linerate_protocol::{PresharedKey, PrivateKey, PublicKey};

use crate::tables::Peer;

/// A change of the device; `None` leaves a value unchanged. Applied entirely or not at all.
#[derive(Default)]
pub struct DeviceChange {
    /// The private key; `Some(None)` removes it.
    pub private_key: Option<Option<PrivateKey>>,
    /// The UDP port to listen on; 0 picks a free one.
    pub listen_port: Option<u16>,
    /// The firewall mark of outer datagrams; 0 is none.
    pub fwmark: Option<u32>,
    /// From now on it is this time since the Unix epoch or later, whatever the clock says: for what expires.
    pub earliest_time: Option<Duration>,
    /// Its number in a fleet and the fleet's key; `Some(None)` leaves the fleet.
    #[cfg(feature = "fleet")]
    pub fleet: Option<Option<(u8, IndexKey)>>,
    /// The address that clients know, from which datagrams leave to a peer that has not yet written here; `Some(None)`: the
    /// system chooses.
    #[cfg(feature = "fleet")]
    pub fleet_address: Option<Option<IpAddr>>,
    /// Where datagrams of other gateways' sessions go; `Some(None)`: they are dropped.
    #[cfg(feature = "fleet")]
    pub fleet_forward: Option<Option<SocketAddrV4>>,
    /// Whether what the fleet knows of its peers is too old for handshakes.
    #[cfg(feature = "fleet")]
    pub fleet_stale: Option<bool>,
    /// Remove all peers first.
    pub replace_peers: bool,
    /// Changes of peers, applied in order.
    pub peers: Vec<PeerChange>,
}

/// A change of one peer.
pub struct PeerChange {
    /// The public key.
    pub public_key: PublicKey,
    /// Remove it; the other fields are ignored.
    pub remove: bool,
    /// Do nothing if there is no such peer.
    pub update_only: bool,
    /// All zero removes the key.
    pub preshared_key: Option<PresharedKey>,
    /// The endpoint.
    pub endpoint: Option<SocketAddr>,
    /// Seconds; 0 is off.
    pub persistent_keepalive: Option<u16>,
    /// Remove all allowed IPs first.
    pub replace_allowed_ips: bool,
    /// Allowed IPs to add (`true`) or to remove, applied in order.
    pub allowed_ips: Vec<(bool, Prefix)>,
    /// Its limits; `None` leaves them unchanged.
    pub limits: Option<LimitChange>,
    /// Its rates.
    pub rate: RateChange,
    /// What a fleet knows of it.
    #[cfg(feature = "fleet")]
    pub fleet: FleetChange,
    /// Its group.
    #[cfg(feature = "fleet")]
    pub group: GroupChange,
}

/// A change of a peer's group: of those in it one has the allowed IPs of all, and another takes over when it falls silent.
#[cfg(feature = "fleet")]
#[derive(Clone, Default)]
pub struct GroupChange {
    /// The group's name; empty: in none.
    pub name: Option<String>,
    /// From which of our addresses, and at which address of the peer, it is asked whether it is there. It is needed to join.
    pub check: Option<(IpAddr, IpAddr)>,
}

/// Whether a handshake with a peer is started.
#[cfg(feature = "fleet")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initiate {
    /// It is not.
    #[default]
    No,
    /// By one initiation, as the peer may not be where its endpoint says.
    Once,
    /// Urgently.
    Now,
}

/// A change of what a fleet knows of a peer.
#[cfg(feature = "fleet")]
#[derive(Clone, Copy, Default)]
pub struct FleetChange {
    /// Its number in the fleet.
    pub number: Option<u32>,
    /// What other gateways know of it. Their endpoint is taken if there is no session.
    pub hint: Option<Hint>,
    /// Start a handshake, after all other changes.
    pub initiate: Initiate,
}

/// What has changed of a fleet's peers.
#[cfg(feature = "fleet")]
pub struct FleetChanges {
    /// The `since` of the next question.
    pub now: u64,
    /// The peers.
    pub peers: Vec<FleetPeer>,
}

/// What other gateways have to know of a peer.
#[cfg(feature = "fleet")]
pub struct FleetPeer {
    /// Its public key.
    pub public_key: PublicKey,
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// The greatest timestamp sent to it, as it is in the message.
    pub sent: Option<[u8; 12]>,
    /// The greatest timestamp accepted from it.
    pub accepted: Option<[u8; 12]>,
    /// Time since the Unix epoch of the last completed handshake here; zero before the first.
    pub last_handshake: Duration,
}

/// A change of a peer's limits; `None` leaves one unchanged, `Some(None)` removes it.
#[derive(Clone, Copy, Default)]
pub struct LimitChange {
    /// When the peer expires, since the Unix epoch.
    pub expires: Option<Option<Duration>>,
    /// How many bytes it may send and receive, counted as [`PeerReport::rx_bytes`] and [`PeerReport::tx_bytes`] are.
    pub quota: Option<Option<u64>>,
    /// How many of them it has used.
    pub used: Option<u64>,
    /// The peer whose place it takes once it has confirmed a session.
    pub replaces: Option<Option<PublicKey>>,
}

/// A change of the rates of a peer's inner packets in bits per second; `None` leaves one unchanged, `Some(None)` removes
/// it.
#[derive(Clone, Copy, Default)]
pub struct RateChange {
    /// To the peer.
    pub tx: Option<Option<u64>>,
    /// From the peer.
    pub rx: Option<Option<u64>>,
}

/// The least rate, in bits per second.
pub const RATE_MIN: u64 = 64_000;

/// The greatest.
pub const RATE_MAX: u64 = 100_000_000_000;

impl PeerChange {
    /// The change that adds a peer, or leaves an existing one unchanged.
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            remove: false,
            update_only: false,
            preshared_key: None,
            endpoint: None,
            persistent_keepalive: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
            limits: None,
            rate: RateChange::default(),
            #[cfg(feature = "fleet")]
            fleet: FleetChange::default(),
            #[cfg(feature = "fleet")]
            group: GroupChange::default(),
        }
    }
}

/// The state of the device.
pub struct DeviceReport {
    /// The private key, if there is one.
    pub private_key: Option<PrivateKey>,
    /// The port that the device listens on, or will once the link is up.
    pub listen_port: u16,
    /// The firewall mark; 0 is none.
    pub fwmark: u32,
    /// The peers, in the order in which they were added.
    pub peers: Vec<PeerReport>,
}

/// The state of one peer.
pub struct PeerReport {
    /// The public key.
    pub public_key: PublicKey,
    /// All zero when there is none.
    pub preshared_key: PresharedKey,
    /// The sender of its last authentic packet, or the configured address.
    pub endpoint: Option<SocketAddr>,
    /// Time since the Unix epoch of the last completed handshake; zero before the first.
    pub last_handshake: Duration,
    /// Bytes of outer payload that were received from it.
    pub rx_bytes: u64,
    /// Bytes of outer payload that were sent to it.
    pub tx_bytes: u64,
    /// Seconds; 0 is off.
    pub persistent_keepalive: u16,
    /// Its allowed IPs.
    pub allowed_ips: Vec<Prefix>,
    /// Its limits.
    pub limits: LimitReport,
    /// How many bits of inner packets per second may be sent to it.
    pub rate_tx: Option<u64>,
    /// The same from it.
    pub rate_rx: Option<u64>,
}

/// The limits of one peer; see [`LimitChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are those of the change")]
pub struct LimitReport {
    pub expires: Option<Duration>,
    pub quota: Option<u64>,
    /// Zero without any limit.
    pub used: u64,
    /// Why it is not let in.
    pub suspended: Option<Suspension>,
    pub replaces: Option<PublicKey>,
}

/// Why a peer is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Its time is over.
    Expired,
    /// Its bytes are used up.
    QuotaReached,
}

impl fmt::Display for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "it has expired",
            Self::QuotaReached => "its quota is reached",
        })
    }
}

/// What must survive a restart.
pub struct UsageReport {
    /// The time since the Unix epoch that limits go by, which never goes back.
    pub time: Duration,
    /// The peers with limits.
    pub peers: Vec<PeerUsage>,
    /// The peers that have taken the place of others since the last report.
    pub replaced: Vec<Replacement>,
}

/// What one peer has used.
pub struct PeerUsage {
    /// The public key.
    pub public_key: PublicKey,
    /// The bytes of its quota, or of what would be its quota.
    pub used: u64,
    /// Why it is not let in.
    pub suspended: Option<Suspension>,
}

/// A peer has taken the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The public key that is gone.
    pub old: PublicKey,
    /// Its successor.
    pub new: PublicKey,
}

/// The traffic of the peers that were active since a given time.
pub struct ActivityReport {
    /// The `since` of the next call.
    pub now: Boottime,
    /// Grows with every configuration of the device, when a peer is suspended or let in again, and when an endpoint
    /// follows its interface to another index. If it differs from the last answer, read the whole state.
    pub configured: u64,
    /// The peers, in the order in which they were added.
    pub peers: Vec<PeerActivity>,
}

/// The traffic of one peer; see [`PeerReport`].
#[expect(missing_docs, reason = "they are those of the state")]
pub struct PeerActivity {
    pub public_key: PublicKey,
    pub endpoint: Option<SocketAddr>,
    pub last_handshake: Duration,
    /// How long that took, from our initiation to the response; zero if the peer initiated it.
    pub handshake_time: Duration,
    /// When the last authentic packet was received from it; zero: never.
    pub last_received: Boottime,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
}

impl PeerActivity {
    pub(crate) fn of(peer: &Peer) -> Self {
        let (rx_bytes, tx_bytes) = peer.transfer();
        let endpoint = peer.endpoint().as_ref().map(|endpoint| endpoint.addr);
        Self {
            public_key: peer.key,
            endpoint,
            last_handshake: peer.last_handshake(),
            handshake_time: peer.handshake_time(),
            last_received: peer.traffic.last_received(),
            rx_bytes,
            tx_bytes,
        }
    }
}

/// Why a change was refused; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The port cannot be bound.
    #[error("cannot listen on UDP port {port}: {error}")]
    Port {
        /// The requested port.
        port: u16,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The firewall mark cannot be set.
    #[error("cannot set the firewall mark: {0}; it needs CAP_NET_ADMIN")]
    Mark(std::io::Error),
    /// There would be more peers than indices for them.
    #[error("a device has at most {} peers", linerate_protocol::constants::PEERS_MAX)]
    TooManyPeers,
    /// A number in a fleet for a peer of a device that belongs to none.
    #[cfg(feature = "fleet")]
    #[error("fleet_number is for the peers of a gateway; fleet_gateway makes the device one")]
    NoFleet,
    /// A peer joins a group, and no address is known at which to ask whether it is there.
    #[cfg(feature = "fleet")]
    #[error("group needs group_check")]
    NoCheck,
    /// The groups of a device would have more members than it can watch.
    #[cfg(feature = "fleet")]
    #[error("too many peers are in groups")]
    TooManyMembers,
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}
