//! Reads all tunnels of a host, again and again.
//!
//! A connection to each daemon stays open: it ends when the daemon does, so one that was replaced between two polls is
//! noticed. At first, and whenever the daemon says that its configuration has changed, the whole state is read;
//! otherwise only the peers that were active. Other implementations do not know that request, and are read whole each
//! time.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::printable::for_people;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::limits::LimitState;
use linerate_control::uapi::response::{Activity, PeerState};
use linerate_protocol::PrivateKey;
use linerate_tunnel::status::{self, RunBy, Whereabouts};

use crate::host::{Connection, Found, Host, Now, Stamp, System};
use crate::view::Heard;
use crate::{Counter, Daemon, Peer, Rates, Settings, Time, Tunnel, View};

/// What a keepalive is long, in bytes of UDP payload.
const KEEPALIVE: u64 = 32;

/// What is read beside tunnels and peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The daemons' counters.
    pub counters: bool,
    /// Their processor time.
    pub processes: bool,
}

/// Why the tunnels cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list tunnels: {0}{hint}", hint = hint(.0))]
pub struct WatchError(#[from] ClientError);

fn hint(error: &ClientError) -> &'static str {
    match error.as_io() {
        Some(error) if error.kind() == io::ErrorKind::PermissionDenied => "; try again as root (sudo)",
        _ => "",
    }
}

/// Reads the tunnels of a host.
pub struct Watcher<H: Host = System> {
    host: H,
    /// The interface that is wanted; `None`: all.
    only: Option<String>,
    tunnels: BTreeMap<String, Watched<H::Connection>>,
    instances: u64,
}

impl Watcher {
    /// Of this host, all tunnels or only one; nothing is read yet.
    pub fn new(only: Option<&str>) -> Self {
        Self::of(System, only)
    }
}

impl<H: Host> Watcher<H> {
    /// Of any host.
    pub fn of(host: H, only: Option<&str>) -> Self {
        Self { host, only: only.map(str::to_owned), tunnels: BTreeMap::new(), instances: 0 }
    }

    pub(crate) fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// Reads what has changed, and returns everything.
    ///
    /// # Errors
    /// The tunnels cannot be listed. One that cannot be read is in the view, with its problem.
    pub fn poll(&mut self, ask: Ask) -> Result<View, WatchError> {
        let mut found = self.host.tunnels()?;
        found.retain(|found| self.only.as_ref().is_none_or(|only| *only == found.interface));
        self.tunnels.retain(|name, _| found.iter().any(|found| found.interface == *name));
        for Found { interface, recorded } in found {
            let tunnel = self.tunnels.entry(interface.clone()).or_insert_with(|| Watched::new(interface.clone()));
            if !tunnel.poll(&mut self.host, ask, &mut self.instances) && !recorded {
                self.tunnels.remove(&interface);
            }
        }
        let tunnels = self.tunnels.values().map(|watched| watched.tunnel.clone()).collect();
        Ok(View { time: self.host.now().wall, tunnels })
    }
}

/// A tunnel, and what is known for the next poll.
struct Watched<C> {
    tunnel: Tunnel,
    connection: Option<C>,
    /// Where each peer is.
    index: HashMap<PublicKey, usize>,
    /// The peers whose rates are not zero.
    moving: Vec<usize>,
    delta: Delta,
    /// When the peers were read last, by the clock that is never set.
    read_at: Option<Duration>,
    names: HashMap<PublicKey, String>,
    stamp: Option<Stamp>,
    whereabouts: Whereabouts,
}

/// How the next poll reads the peers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delta {
    /// Everything, and then it is known whether this daemon can do better.
    Unknown,
    /// Everything, always.
    Unsupported,
    /// Those that were active since this time, if the device was configured this often.
    Since { now: u64, configured: u64 },
}

impl<C: Connection> Watched<C> {
    fn new(interface: String) -> Self {
        Self {
            tunnel: Tunnel { implementation: RunBy::Gone, ..Tunnel::unread(&interface) },
            connection: None,
            index: HashMap::new(),
            moving: Vec::new(),
            delta: Delta::Unknown,
            read_at: None,
            names: HashMap::new(),
            stamp: None,
            whereabouts: Whereabouts::default(),
        }
    }

    /// Reads it; false if there is no such tunnel.
    fn poll(&mut self, host: &mut impl Host<Connection = C>, ask: Ask, instances: &mut u64) -> bool {
        self.tunnel.place = host.place(&self.tunnel.interface, &mut self.whereabouts);
        let was_connected = self.connection.is_some();
        let mut read = self.read(host, ask, instances);
        if was_connected && read.is_err() {
            // The daemon may have been replaced.
            read = self.read(host, ask, instances);
        }
        let Err(error) = read else {
            self.tunnel.problem = None;
            return true;
        };
        let is_absent = status::is_absence(&error);
        self.tunnel.implementation = if is_absent { RunBy::Gone } else { RunBy::Unknown };
        self.tunnel.problem = (!is_absent).then(|| problem(&error));
        if is_absent {
            self.forget();
        }
        !is_absent
    }

    fn forget(&mut self) {
        self.tunnel.peers.clear();
        self.tunnel.counters.clear();
        self.tunnel.daemon = None;
        self.index.clear();
        self.moving.clear();
        self.read_at = None;
    }

    fn read(&mut self, host: &mut impl Host<Connection = C>, ask: Ask, instances: &mut u64) -> Result<(), ClientError> {
        // If anything fails it is closed, and the next poll begins anew.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect(host, instances)?,
        };
        self.read_peers(host, &mut connection)?;
        self.rename(host);
        if ask.counters {
            self.read_counters(host.now(), &mut connection)?;
        }
        let is_kernel = connection.is_kernel();
        self.tunnel.implementation = if is_kernel { RunBy::Kernel } else { RunBy::Daemon };
        if ask.processes {
            self.read_process(host);
        }
        self.read_at = Some(host.now().monotonic);
        self.connection = Some(connection);
        Ok(())
    }

    /// Connects, and forgets everything if another daemon answers.
    fn connect(&mut self, host: &mut impl Host<Connection = C>, instances: &mut u64) -> Result<C, ClientError> {
        let connection = host.connect(&self.tunnel.interface)?;
        let process = connection.pid().and_then(|pid| host.process(pid));
        let is_same = |before: &Daemon, now: &Daemon| (before.pid, before.started) == (now.pid, now.started);
        let known = self.tunnel.daemon.as_ref().zip(process.as_ref()).is_some_and(|(before, now)| is_same(before, now));
        if !known {
            *instances += 1;
            self.tunnel.instance = *instances;
            self.forget();
        }
        self.tunnel.daemon = process;
        self.delta = Delta::Unknown;
        Ok(connection)
    }

    fn read_peers(&mut self, host: &mut impl Host<Connection = C>, connection: &mut C) -> Result<(), ClientError> {
        let activity = match self.delta {
            Delta::Since { now, configured } => {
                let activity = connection.activity(now)?;
                if activity.configured == configured {
                    self.apply(host.now(), activity);
                    return Ok(());
                }
                Some(connection.activity(0)?)
            }
            Delta::Unknown if !connection.is_kernel() => match connection.activity(0) {
                Ok(activity) => Some(activity),
                Err(ClientError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => return Err(error.into()),
                // Other implementations have closed the connection.
                Err(_) => {
                    *connection = host.connect(&self.tunnel.interface)?;
                    None
                }
            },
            Delta::Unknown | Delta::Unsupported => None,
        };
        self.read_whole(host, connection, activity.as_ref())
    }

    /// Reads the whole state; `activity` is that of all peers, read before it.
    fn read_whole(
        &mut self,
        host: &mut impl Host<Connection = C>,
        connection: &mut C,
        activity: Option<&Activity>,
    ) -> Result<(), ClientError> {
        let state = connection.get()?;
        let now = host.now();
        self.tunnel.public_key = state.private_key.as_ref().and_then(public_key);
        (self.tunnel.listen_port, self.tunnel.fwmark) = (state.listen_port, state.fwmark);
        let received = |activity: &Activity| {
            let peers = activity.peers.iter().filter(|peer| peer.last_received != 0);
            peers.map(|peer| (peer.public_key, moment(now, activity.now, peer.last_received))).collect()
        };
        let received: HashMap<PublicKey, Time> = activity.map(received).unwrap_or_default();
        let passed = self.passed(now);
        let before = std::mem::take(&mut self.tunnel.peers);
        let old = |peer: &PeerState| {
            let old = self.index.get(&peer.public_key).and_then(|at| before.get(*at));
            old.filter(|old| old.received <= peer.rx_bytes && old.sent <= peer.tx_bytes).cloned()
        };
        let peer = |state: &PeerState| {
            let mut peer = old(state).unwrap_or_else(|| new_peer(state, now));
            peer.settings = Arc::new(settings(state, self.names.get(&state.public_key).cloned()));
            update(&mut peer, state, now, passed);
            if activity.is_some() {
                peer.last_received = received.get(&state.public_key).copied();
            }
            (peer.quota_used, peer.suspended) = (state.limits.used, state.limits.suspended);
            peer
        };
        self.tunnel.peers = state.peers.iter().map(peer).collect();
        self.index = state.peers.iter().enumerate().map(|(at, peer)| (peer.public_key, at)).collect();
        self.moving = (0..self.tunnel.peers.len()).collect();
        self.delta = match activity {
            Some(activity) => Delta::Since { now: activity.now, configured: activity.configured },
            None => Delta::Unsupported,
        };
        self.tunnel.file = host.file(&self.tunnel.interface);
        Ok(())
    }

    /// Takes over what was active.
    fn apply(&mut self, now: Now, activity: Activity) {
        let passed = self.passed(now);
        for at in self.moving.drain(..) {
            self.tunnel.peers[at].rates = passed.map(|_| Rates::default());
        }
        for state in &activity.peers {
            // A peer that is not known was added a moment ago: the next answer says that the configuration has changed.
            let Some(&at) = self.index.get(&state.public_key) else { continue };
            let peer = &mut self.tunnel.peers[at];
            if peer.settings.has_limits() {
                let bytes = |sent: u64, received: u64| sent.saturating_add(received);
                let more = bytes(state.tx_bytes, state.rx_bytes).saturating_sub(bytes(peer.sent, peer.received));
                peer.quota_used = peer.quota_used.saturating_add(more);
            }
            update(peer, state, now, passed);
            if state.last_received != 0 {
                peer.last_received = Some(moment(now, activity.now, state.last_received));
            }
            self.moving.push(at);
        }
        self.delta = Delta::Since { now: activity.now, configured: activity.configured };
    }

    /// The time since the last poll; `None` at the first.
    fn passed(&self, now: Now) -> Option<Duration> {
        let passed = now.monotonic.checked_sub(self.read_at?)?;
        (!passed.is_zero()).then_some(passed)
    }

    /// Reads the names again if the file has changed.
    fn rename(&mut self, host: &mut impl Host<Connection = C>) {
        let stamp = host.stamp(&self.tunnel.file);
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        self.names = match stamp {
            Some(_) => host.names(&self.tunnel.interface, &self.tunnel.file),
            None => HashMap::new(),
        };
        for peer in &mut self.tunnel.peers {
            let name = self.names.get(&peer.settings.public_key);
            if peer.settings.name.as_ref() != name {
                peer.settings = Arc::new(Settings { name: name.cloned(), ..Settings::clone(&peer.settings) });
            }
        }
    }

    fn read_counters(&mut self, now: Now, connection: &mut C) -> Result<(), ClientError> {
        if !matches!(self.delta, Delta::Since { .. }) {
            return Ok(());
        }
        let counters = connection.stats()?;
        let passed = self.passed(now);
        let before = std::mem::take(&mut self.tunnel.counters);
        let counter = |(at, (name, value)): (usize, (String, u64))| {
            let before = before.get(at).filter(|before| *before.name == *name);
            let grown = before.and_then(|before| value.checked_sub(before.value));
            Counter {
                name: before.map_or_else(|| name.into(), |before| Arc::clone(&before.name)),
                value,
                per_second: grown.zip(passed).map(|(grown, passed)| per_second(grown, passed)),
            }
        };
        self.tunnel.counters = counters.into_iter().enumerate().map(counter).collect();
        Ok(())
    }

    fn read_process(&mut self, host: &mut impl Host<Connection = C>) {
        let Some(before) = self.tunnel.daemon else { return };
        let passed = self.passed(host.now());
        self.tunnel.daemon = host.process(before.pid).filter(|daemon| daemon.started == before.started).map(|daemon| {
            let used = daemon.cpu_time.saturating_sub(before.cpu_time);
            Daemon { cpu: passed.map(|passed| used.as_secs_f64() / passed.as_secs_f64()), ..daemon }
        });
    }
}

fn new_peer(state: &PeerState, now: Now) -> Peer {
    Peer {
        received: state.rx_bytes,
        sent: state.tx_bytes,
        heard: Heard { at: now.wall, sent: state.tx_bytes },
        ..Peer::new(settings(state, None))
    }
}

/// Takes over what changes by itself.
fn update(peer: &mut Peer, state: &PeerState, now: Now, passed: Option<Duration>) {
    let received = state.rx_bytes.saturating_sub(peer.received);
    let sent = state.tx_bytes.saturating_sub(peer.sent);
    peer.rates = passed.map(|passed| Rates { received: per_second(received, passed), sent: per_second(sent, passed) });
    if received > 0 {
        peer.heard = Heard { at: now.wall, sent: state.tx_bytes };
        peer.unanswered_since = None;
        peer.last_received = Some(now.wall);
    } else if sent > 0 && state.tx_bytes.saturating_sub(peer.heard.sent) > keepalives(peer, now) {
        peer.unanswered_since.get_or_insert(now.wall);
    }
    (peer.received, peer.sent) = (state.rx_bytes, state.tx_bytes);
    peer.endpoint = state.endpoint;
    peer.last_handshake = Some(Time(state.last_handshake)).filter(|time| !time.0.is_zero());
}

/// The bytes that may have been sent to the peer, since it was heard, without an answer being due: keepalives.
fn keepalives(peer: &Peer, now: Now) -> u64 {
    let silence = peer.heard.at.until(now.wall).as_secs();
    let persistent = silence.checked_div(peer.settings.persistent_keepalive.into()).map_or(0, |count| count + 1);
    KEEPALIVE * (1 + persistent)
}

fn settings(state: &PeerState, name: Option<String>) -> Settings {
    let LimitState { expires, quota, .. } = state.limits;
    Settings {
        public_key: state.public_key,
        name,
        allowed_ips: state.allowed_ips.clone(),
        persistent_keepalive: state.persistent_keepalive,
        expires: expires.map(Time),
        quota,
        rate: state.rate,
    }
}

fn public_key(secret: &SecretKey) -> Option<PublicKey> {
    PrivateKey::new(secret.as_bytes()).map(|key| PublicKey(key.public_key().0))
}

/// A time of the daemon's clock by that of the wall.
fn moment(now: Now, clock: u64, time: u64) -> Time {
    Time(now.wall.0.saturating_sub(Duration::from_nanos(clock.saturating_sub(time))))
}

fn per_second(count: u64, passed: Duration) -> f64 {
    count as f64 / passed.as_secs_f64()
}

fn problem(error: &ClientError) -> String {
    match error.as_io() {
        Some(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "permission denied; try again as root (sudo)".to_owned()
        }
        _ => for_people(&error.to_string()),
    }
}
