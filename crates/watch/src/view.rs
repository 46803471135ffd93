//! What a poll found.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linerate_control::endpoint;
use linerate_control::keys::PublicKey;
use linerate_control::rate::Rate;
use linerate_control::uapi::limits::Suspension;
use linerate_tunnel::status::RunBy;
use serde::{Serialize, Serializer};

use crate::Time;

/// A peer that has not answered for this long is silent. A peer that works answers within ten seconds
/// (KEEPALIVE_TIMEOUT), and after five more a new handshake is tried (REKEY_TIMEOUT).
const SILENT: Duration = Duration::from_secs(20);

/// All tunnels of this host at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// When they were read.
    pub time: Time,
    /// The tunnels, by name.
    pub tunnels: Vec<Tunnel>,
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tunnel {
    pub interface: String,
    /// What runs it.
    pub implementation: RunBy,
    /// Why it could not be read; the rest is then what was read last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Where it is, if it is not here under its name, as the end of a sentence about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Its first answer is due: nothing is known of it.
    #[serde(skip)]
    pub is_awaited: bool,
    /// The file that it was brought up from, or would be. It may not exist.
    pub file: PathBuf,
    /// Its own public key.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_key")]
    pub public_key: Option<PublicKey>,
    /// The UDP port; 0 without one.
    pub listen_port: u16,
    /// The mark on outgoing datagrams; 0 for none.
    pub fwmark: u32,
    /// The daemon's process, as far as this process can see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<Daemon>,
    /// Which daemon runs the tunnel: it grows when another one does.
    #[serde(skip)]
    pub instance: u64,
    /// The peers, in the order in which they were added.
    pub peers: Vec<Peer>,
    /// The daemon's counters, in its order (only linerated has them, and only if they were asked for).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<Counter>,
}

/// The process of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Daemon {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the machine did: tells processes of the same number apart.
    #[serde(skip)]
    pub started: u64,
    /// The processor time that it has used, in seconds.
    #[serde(serialize_with = "seconds")]
    pub cpu_time: Duration,
    /// The share of one core that it has used since the last poll; absent at the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
}

/// A counter of a daemon.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counter {
    /// Its name, as in `linerate show --stats --json`.
    pub name: Arc<str>,
    pub value: u64,
    /// By how much it grew per second since the last poll; absent at the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// What is configured.
    #[serde(flatten)]
    pub settings: Arc<Settings>,
    /// Its last known address.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_endpoint")]
    pub endpoint: Option<SocketAddr>,
    /// When the last handshake completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handshake: Option<Time>,
    /// When the last authentic packet came from it. linerated knows; for other implementations, when a poll first saw
    /// that bytes had come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_received: Option<Time>,
    /// Since when it has not answered: something other than keepalives was sent to it, and nothing has come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered_since: Option<Time>,
    /// Bytes received from it.
    pub received: u64,
    /// Bytes sent to it.
    pub sent: u64,
    /// What of it there was since the last poll; absent at the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// How many bytes of its quota it has used, where it has limits.
    pub quota_used: u64,
    /// Why it is not let in.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_suspension")]
    pub suspended: Option<Suspension>,
    #[serde(skip)]
    pub(crate) heard: Heard,
}

/// When bytes last came from a peer, or it was first seen, and how many had been sent to it by then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Heard {
    pub(crate) at: Time,
    pub(crate) sent: u64,
}

/// What is configured of a peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Its public key.
    #[serde(serialize_with = "key")]
    pub public_key: PublicKey,
    /// The name that the tunnel's file gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its allowed IPs.
    #[serde(serialize_with = "prefixes")]
    pub allowed_ips: Vec<(IpAddr, u8)>,
    /// Seconds between keepalives; 0 if they are off.
    pub persistent_keepalive: u16,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// How many bytes it may send and receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// How many bits per second it may receive and send.
    #[serde(skip_serializing_if = "has_no_rate", serialize_with = "rate")]
    pub rate: Rate,
}

/// Bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rates {
    pub received: f64,
    pub sent: f64,
}

impl View {
    /// The tunnel of an interface.
    pub fn tunnel(&self, interface: &str) -> Option<&Tunnel> {
        let found = self.tunnels.binary_search_by(|tunnel| tunnel.interface.as_str().cmp(interface));
        found.ok().map(|index| &self.tunnels[index])
    }
}

impl Tunnel {
    /// One of which nothing is known yet.
    pub(crate) fn unread(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            implementation: RunBy::Unknown,
            problem: None,
            place: None,
            is_awaited: false,
            file: PathBuf::new(),
            public_key: None,
            listen_port: 0,
            fwmark: 0,
            daemon: None,
            instance: 0,
            peers: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// Whether it is known to run.
    pub fn is_running(&self) -> bool {
        matches!(self.implementation, RunBy::Daemon | RunBy::Kernel)
    }

    /// The value of a counter.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|counter| &*counter.name == name).map(|counter| counter.value)
    }

    /// The dropped packets by their reasons.
    pub fn drops(&self) -> impl Iterator<Item = (&str, &Counter)> {
        self.counters.iter().filter_map(|counter| Some((counter.name.strip_prefix("drop_")?, counter)))
    }

    /// What all peers together receive and send; `None` at the first poll.
    pub fn rates(&self) -> Option<Rates> {
        self.peers
            .iter()
            .filter_map(|peer| peer.rates)
            .reduce(|sum, rates| Rates { received: sum.received + rates.received, sent: sum.sent + rates.sent })
    }
}

impl Settings {
    /// Whether the peer may use only so many bytes, or is let in until some time.
    pub(crate) fn has_limits(&self) -> bool {
        self.expires.is_some() || self.quota.is_some()
    }
}

impl Peer {
    /// A peer of which nothing has been seen yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            endpoint: None,
            last_handshake: None,
            last_received: None,
            unanswered_since: None,
            received: 0,
            sent: 0,
            rates: None,
            quota_used: 0,
            suspended: None,
            heard: Heard::default(),
        }
    }

    /// Its name, or else its public key.
    pub fn label(&self) -> String {
        self.settings.name.clone().unwrap_or_else(|| self.settings.public_key.to_string())
    }

    /// Whether it does not answer what is sent to it. One that is not let in is sent nothing.
    pub fn is_silent(&self, now: Time) -> bool {
        let is_over = |since: Time| since.until(now) >= SILENT;
        self.suspended.is_none() && self.unanswered_since.is_some_and(is_over)
    }

    /// Without what depends on the polls before: rates, and since when it has not answered.
    #[must_use]
    pub fn without_history(self) -> Self {
        Self { rates: None, unanswered_since: None, heard: Heard::default(), ..self }
    }
}

fn key<S: Serializer>(key: &PublicKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

fn optional_key<S: Serializer>(key: &Option<PublicKey>, serializer: S) -> Result<S::Ok, S::Error> {
    key.map(|key| key.to_string()).serialize(serializer)
}

fn optional_endpoint<S: Serializer>(address: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    address.as_ref().map(endpoint::text).serialize(serializer)
}

fn optional_suspension<S: Serializer>(reason: &Option<Suspension>, serializer: S) -> Result<S::Ok, S::Error> {
    reason.map(Suspension::name).serialize(serializer)
}

fn has_no_rate(rate: &Rate) -> bool {
    rate.is_none()
}

/// Both directions in bits per second; one without a rate is left out.
fn rate<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([("down", rate.down), ("up", rate.up)].into_iter().filter(|(_, bits)| *bits > 0))
}

fn prefixes<S: Serializer>(prefixes: &[(IpAddr, u8)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(prefixes.iter().map(|(address, length)| format!("{address}/{length}")))
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
