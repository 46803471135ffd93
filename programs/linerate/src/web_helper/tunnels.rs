//! The tunnels of this host and their peers, for somebody who looks: what runs is asked at most once a second, and
//! after the first look only for the peers that have changed; a tunnel's file is read again when it has changed.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use linerate_control::client::{self, TunnelClient};
use linerate_control::document::SectionKind;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::printable::printable;
use linerate_control::tunnel_file::{Peer as FilePeer, QuotaReset};
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::limits::Suspension;
use linerate_control::uapi::response::PeerState;
use linerate_control::uapi::socket;
use linerate_page::{Client, MOST_PEERS, Peer, Reply, Sort, State, Tunnel};
use linerate_server::Roster;
use linerate_tunnel::{ConfigFile, System};

/// What was read so recently is not read again.
const FRESH: Duration = Duration::from_secs(1);

/// Rates over a longer time are none that somebody would call the rate now.
const LATELY: Duration = Duration::from_secs(30);

/// For how long a session lasts after its handshake.
const SESSION: u64 = 180;

/// The tunnels that somebody has looked at.
#[derive(Default)]
pub(super) struct Tunnels(HashMap<String, Known>);

/// Which peers are shown.
pub(super) struct Order<'a> {
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) filter: &'a str,
    pub(super) offset: usize,
    pub(super) count: usize,
}

/// What is known of a tunnel.
#[derive(Default)]
struct Known {
    file: File,
    running: Option<Running>,
    failure: Option<String>,
    looked: Option<Instant>,
}

/// What a tunnel's file says, without its secrets.
#[derive(Default)]
struct File {
    path: Option<PathBuf>,
    stamp: Option<[i64; 4]>,
    addresses: Vec<String>,
    is_server: bool,
    peers: HashMap<PublicKey, Named>,
}

/// A peer in the file.
struct Named {
    /// In the order of the file.
    line: usize,
    name: Option<String>,
    /// To compare without regard to case.
    folded: String,
    addresses: Vec<IpNet>,
    client: Option<Client>,
    quota: Option<u64>,
    expires: Option<Timestamp>,
    is_expired: bool,
    is_disabled: bool,
}

/// What runs.
struct Running {
    at: Instant,
    listen_port: u16,
    /// For the daemon's next `activity`; none if it has none.
    activity: Option<(u64, u64)>,
    peers: HashMap<PublicKey, Live>,
}

/// A peer that runs.
#[derive(Clone, Default)]
struct Live {
    addresses: Vec<IpNet>,
    endpoint: Option<SocketAddr>,
    handshake: u64,
    received: u64,
    sent: u64,
    quota: Option<u64>,
    used: u64,
    suspended: Option<Suspension>,
    rates: Option<(f64, f64)>,
}

/// A peer in the file, as a running one, or both.
struct Row<'a> {
    key: &'a PublicKey,
    named: Option<&'a Named>,
    live: Option<&'a Live>,
    state: State,
}

impl Tunnels {
    /// All tunnels.
    pub(super) fn all(&mut self, now: Instant, write: bool) -> Reply {
        let mut names = match client::names(Path::new(socket::DIRECTORY)) {
            Ok(names) => names,
            Err(error) => return Reply::Refused { message: format!("cannot list the tunnels: {error}") },
        };
        names.sort();
        names.dedup();
        self.0.retain(|name, _| names.contains(name));
        let tunnels = names.iter().map(|name| {
            let known = self.look(name, now);
            known.summary(name, &known.rows(Timestamp::now()))
        });
        Reply::Tunnels { tunnels: tunnels.collect(), write }
    }

    /// Some peers of a tunnel.
    pub(super) fn peers(&mut self, tunnel: &str, order: &Order<'_>, now: Instant, write: bool) -> Reply {
        let known = match self.existing(tunnel, now) {
            Ok(known) => known,
            Err(message) => return Reply::Unknown { message },
        };
        let wall = Timestamp::now();
        let mut rows = known.rows(wall);
        let summary = known.summary(tunnel, &rows);
        let filter = order.filter.to_ascii_lowercase();
        rows.retain(|row| row.has(&filter));
        rows.sort_by(|a, b| {
            let sorted = a.compare(b, order.sort);
            if order.reverse { sorted.reverse() } else { sorted }.then_with(|| a.line().cmp(&b.line()))
        });
        let found = rows.len();
        let shown = rows.iter().skip(order.offset).take(order.count.min(MOST_PEERS));
        Reply::Peers { tunnel: summary, peers: shown.map(|row| row.peer(wall)).collect(), found, write }
    }

    /// One peer.
    pub(super) fn peer(&mut self, tunnel: &str, key: &str, now: Instant, write: bool) -> Reply {
        let known = match self.existing(tunnel, now) {
            Ok(known) => known,
            Err(message) => return Reply::Unknown { message },
        };
        let wall = Timestamp::now();
        let rows = known.rows(wall);
        let key = PublicKey::from_base64(key.as_bytes());
        match rows.iter().find(|row| Some(*row.key) == key) {
            Some(row) => Reply::Peer { tunnel: known.summary(tunnel, &rows), peer: Box::new(row.peer(wall)), write },
            None => Reply::Unknown { message: format!("{} has no such peer", printable(tunnel)) },
        }
    }

    /// Has the tunnel looked at again: it was changed.
    pub(super) fn forget(&mut self, tunnel: &str) {
        if let Some(known) = self.0.get_mut(tunnel) {
            known.looked = None;
        }
    }

    fn existing(&mut self, tunnel: &str, now: Instant) -> Result<&Known, String> {
        let unknown = || format!("there is no tunnel {}", printable(tunnel));
        if tunnel.parse::<InterfaceName>().is_err() {
            return Err(unknown());
        }
        self.look(tunnel, now);
        if self.0.get(tunnel).is_none_or(|known| known.running.is_none()) {
            self.0.remove(tunnel);
            return Err(unknown());
        }
        Ok(&self.0[tunnel])
    }

    fn look(&mut self, name: &str, now: Instant) -> &Known {
        let known = self.0.entry(name.to_owned()).or_default();
        if known.looked.is_none_or(|then| now.duration_since(then) >= FRESH) {
            known.look(name, now);
        }
        known
    }
}

impl Known {
    fn look(&mut self, name: &str, now: Instant) {
        self.file.read(name);
        let earlier = self.running.take();
        match Running::read(name, earlier, now) {
            Ok(running) => (self.running, self.failure) = (Some(running), None),
            Err(error) => self.failure = Some(error.to_string()),
        }
        self.looked = Some(now);
    }

    /// All peers, those of the file first, in its order.
    fn rows(&self, wall: Timestamp) -> Vec<Row<'_>> {
        let live = self.running.as_ref().map(|running| &running.peers);
        let in_file = self.file.peers.iter().map(|(key, named)| {
            let live = live.and_then(|peers| peers.get(key));
            Row { key, named: Some(named), live, state: state(Some(named), live, wall) }
        });
        let others = live.into_iter().flatten().filter(|(key, _)| !self.file.peers.contains_key(key));
        let others =
            others.map(|(key, live)| Row { key, named: None, live: Some(live), state: state(None, Some(live), wall) });
        in_file.chain(others).collect()
    }

    fn summary(&self, name: &str, rows: &[Row<'_>]) -> Tunnel {
        Tunnel {
            name: name.to_owned(),
            addresses: self.file.addresses.clone(),
            listen_port: self.running.as_ref().map_or(0, |running| running.listen_port),
            peers: rows.len(),
            online: rows.iter().filter(|row| row.state == State::Online).count(),
            is_server: self.file.is_server,
            failure: self.failure.clone(),
        }
    }
}

impl File {
    /// Reads the file of the tunnel again if it has changed. One that cannot be read names nobody.
    fn read(&mut self, name: &str) {
        // As it was before it is read: a change meanwhile is seen at the next look.
        let stamp = self.path.as_deref().and_then(stamp);
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        let Ok(file) = ConfigFile::open(name) else {
            *self = Self::default();
            return;
        };
        let roster = Roster::read(file.document.clone(), &file.interface, &System, Timestamp::now());
        let Ok(roster) = roster else {
            *self = Self { path: Some(file.path), stamp, ..Self::default() };
            return;
        };
        let contents = roster.file();
        let peers = contents.peers.iter().map(|peer| {
            let is_disabled = roster.document().sections()[peer.section].kind() == SectionKind::DisabledPeer;
            (peer.public_key, Named::new(peer, is_disabled))
        });
        *self = Self {
            path: Some(file.path),
            stamp,
            addresses: contents.addresses.iter().map(IpNet::to_string).collect(),
            is_server: contents.public_endpoint.is_some(),
            peers: peers.collect(),
        };
    }
}

/// What changes with a file.
fn stamp(path: &Path) -> Option<[i64; 4]> {
    let at = std::fs::metadata(path).ok()?;
    Some([at.ino() as i64, at.size() as i64, at.mtime(), at.mtime_nsec()])
}

impl Named {
    fn new(peer: &FilePeer, is_disabled: bool) -> Self {
        let settings = &peer.client;
        let name = peer.name.as_deref().map(|name| printable(name).into_owned());
        let client = settings.created.map(|created| Client {
            created: Some(created.to_string()),
            expires: settings.expires.map(|time| time.to_string()),
            monthly: settings.quota_reset == QuotaReset::Monthly,
            note: settings.note.as_deref().map(|note| printable(note).into_owned()),
            key_kept: settings.private_key.is_some(),
        });
        Self {
            line: peer.line,
            folded: name.as_deref().unwrap_or_default().to_lowercase(),
            name,
            addresses: peer.allowed_ips.clone(),
            client,
            quota: settings.quota.map(|quota| quota.bytes()),
            expires: settings.expires,
            is_expired: settings.expired.is_some(),
            is_disabled,
        }
    }
}

impl Running {
    /// What runs at `now`, where it is known what ran `earlier`.
    fn read(name: &str, earlier: Option<Self>, now: Instant) -> Result<Self, ClientError> {
        let directory = Path::new(socket::DIRECTORY);
        let mut tunnel = TunnelClient::open(directory, name)?;
        let mut earlier = earlier;
        let mut activity = None;
        if let TunnelClient::Daemon(daemon) = &mut tunnel {
            let before = earlier.as_ref().and_then(|running| running.activity);
            match daemon.activity(before.map_or(0, |(since, _)| since)) {
                Ok(reply) => {
                    let is_same = before.is_some_and(|(_, configured)| configured == reply.configured);
                    activity = Some((reply.now, reply.configured));
                    if let Some(running) = earlier.take_if(|_| is_same) {
                        return Ok(running.updated(&reply.peers, activity, now));
                    }
                }
                // Other daemons close the connection.
                Err(_) => tunnel = TunnelClient::open(directory, name)?,
            }
        }
        let state = tunnel.get()?;
        let peers = state.peers.iter().map(|peer| {
            let live = Live { addresses: networks(peer), ..Live::default() };
            let before = earlier.as_ref().and_then(|running| Some((running.at, running.peers.get(&peer.public_key)?)));
            (peer.public_key, live.with(peer, before, now))
        });
        Ok(Self { at: now, listen_port: state.listen_port, activity, peers: peers.collect() })
    }

    /// As it is now that `active` peers have changed, and no others.
    fn updated(mut self, active: &[PeerState], activity: Option<(u64, u64)>, now: Instant) -> Self {
        let is_lately = now.duration_since(self.at) <= LATELY;
        for live in self.peers.values_mut() {
            live.rates = is_lately.then_some((0.0, 0.0));
        }
        for peer in active {
            if let Some(live) = self.peers.get_mut(&peer.public_key) {
                *live = live.clone().with(peer, Some((self.at, live)), now);
            }
        }
        Self { at: now, activity, ..self }
    }
}

fn networks(peer: &PeerState) -> Vec<IpNet> {
    peer.allowed_ips.iter().filter_map(|(address, length)| IpNet::new(*address, *length).ok()).collect()
}

impl Live {
    /// With what `peer` says, and with the rates since what was known `before`.
    fn with(self, peer: &PeerState, before: Option<(Instant, &Self)>, now: Instant) -> Self {
        let rates = before.and_then(|(then, before)| {
            let passed = now.duration_since(then);
            let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / passed.as_secs_f64();
            let is_rate = !passed.is_zero() && passed <= LATELY;
            is_rate.then(|| (rate(before.received, peer.rx_bytes), rate(before.sent, peer.tx_bytes)))
        });
        Self {
            addresses: self.addresses,
            endpoint: peer.endpoint,
            handshake: peer.last_handshake.as_secs(),
            received: peer.rx_bytes,
            sent: peer.tx_bytes,
            quota: peer.limits.quota,
            used: peer.limits.used,
            suspended: peer.limits.suspended,
            rates,
        }
    }
}

/// Seconds since a handshake.
fn seen(handshake: u64, wall: Timestamp) -> Option<u64> {
    let now = u64::try_from(wall.as_second()).unwrap_or(0);
    (handshake > 0).then(|| now.saturating_sub(handshake))
}

fn state(named: Option<&Named>, live: Option<&Live>, wall: Timestamp) -> State {
    let is_expired = |named: &Named| named.is_expired || named.expires.is_some_and(|time| time <= wall);
    match (named, live) {
        (Some(named), _) if is_expired(named) => State::Expired,
        (Some(named), _) if named.is_disabled => State::Disabled,
        (_, Some(Live { suspended: Some(Suspension::Expired), .. })) => State::Expired,
        (_, Some(Live { suspended: Some(Suspension::Quota), .. })) => State::QuotaUsed,
        (_, Some(live)) => match seen(live.handshake, wall) {
            Some(..=SESSION) => State::Online,
            Some(_) => State::Silent,
            None => State::Never,
        },
        (_, None) => State::Never,
    }
}

impl Row<'_> {
    fn addresses(&self) -> &[IpNet] {
        match (self.named, self.live) {
            (Some(named), _) if !named.addresses.is_empty() => &named.addresses,
            (_, Some(live)) => &live.addresses,
            _ => &[],
        }
    }

    /// Whether the name, an address or the key has the text, which is in small letters.
    fn has(&self, filter: &str) -> bool {
        filter.is_empty()
            || self.named.is_some_and(|named| named.folded.contains(filter))
            || self.addresses().iter().any(|net| net.to_string().contains(filter))
            || self.live.and_then(|live| live.endpoint).is_some_and(|endpoint| endpoint.to_string().contains(filter))
            || self.key.to_string().to_ascii_lowercase().contains(filter)
    }

    fn line(&self) -> usize {
        self.named.map_or(usize::MAX, |named| named.line)
    }

    fn bytes(&self) -> u64 {
        self.live.map_or(0, |live| live.received.saturating_add(live.sent))
    }

    fn rate(&self) -> f64 {
        self.live.and_then(|live| live.rates).map_or(0.0, |(received, sent)| received + sent)
    }

    fn compare(&self, other: &Self, by: Sort) -> Ordering {
        let address = |row: &Self| row.addresses().first().copied();
        let handshake = |row: &Self| row.live.map_or(0, |live| live.handshake);
        match by {
            Sort::Name => match (self.named, other.named) {
                (Some(a), Some(b)) => a.name.is_none().cmp(&b.name.is_none()).then_with(|| a.folded.cmp(&b.folded)),
                (a, b) => a.is_none().cmp(&b.is_none()).then_with(|| self.key.0.cmp(&other.key.0)),
            },
            Sort::Address => {
                address(self).is_none().cmp(&address(other).is_none()).then(address(self).cmp(&address(other)))
            }
            Sort::Seen => handshake(other).cmp(&handshake(self)),
            Sort::Rate => other.rate().total_cmp(&self.rate()),
            Sort::Bytes => other.bytes().cmp(&self.bytes()),
            Sort::State => self.state.cmp(&other.state),
        }
    }

    fn peer(&self, wall: Timestamp) -> Peer {
        let live = self.live.cloned().unwrap_or_default();
        Peer {
            name: self.named.and_then(|named| named.name.clone()),
            key: self.key.to_string(),
            state: self.state,
            addresses: self.addresses().iter().map(IpNet::to_string).collect(),
            endpoint: live.endpoint.map(|endpoint| endpoint.to_string()),
            seen: seen(live.handshake, wall),
            received: live.received,
            sent: live.sent,
            receive_rate: live.rates.map(|(received, _)| received),
            send_rate: live.rates.map(|(_, sent)| sent),
            quota: live.quota.or_else(|| self.named.and_then(|named| named.quota)),
            quota_used: live.used,
            client: self.named.and_then(|named| named.client.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, line: usize) -> Named {
        Named {
            line,
            name: Some(name.to_owned()),
            folded: name.to_lowercase(),
            addresses: vec![format!("10.0.0.{line}/32").parse().unwrap()],
            client: None,
            quota: None,
            expires: None,
            is_expired: false,
            is_disabled: false,
        }
    }

    fn peer(number: u8, received: u64) -> PeerState {
        PeerState { rx_bytes: received, ..PeerState::new(PublicKey([number; 32])) }
    }

    fn known(now: Instant) -> Known {
        let mut known = Known::default();
        for (number, name) in [(1, "beta"), (2, "Alpha"), (3, "gamma")] {
            known.file.peers.insert(PublicKey([number; 32]), named(name, number.into()));
        }
        let live = |number| (PublicKey([number; 32]), Live::default().with(&peer(number, 100), None, now));
        let peers = [live(1), live(2), live(9)].into_iter().collect();
        known.running = Some(Running { at: now, listen_port: 1, activity: Some((1, 1)), peers });
        known
    }

    fn names(known: &Known, sort: Sort, filter: &str) -> Vec<String> {
        let mut rows = known.rows(Timestamp::UNIX_EPOCH);
        rows.retain(|row| row.has(filter));
        rows.sort_by(|a, b| a.compare(b, sort).then_with(|| a.line().cmp(&b.line())));
        rows.iter().map(|row| row.named.map_or("-".to_owned(), |named| named.folded.clone())).collect()
    }

    #[test]
    fn peers_are_sorted_and_filtered_and_those_that_do_not_run_or_have_no_name_are_there() {
        let known = known(Instant::now());
        assert_eq!(names(&known, Sort::Name, ""), ["alpha", "beta", "gamma", "-"]);
        assert_eq!(names(&known, Sort::Address, ""), ["beta", "alpha", "gamma", "-"]);
        assert_eq!(names(&known, Sort::Name, "a"), ["alpha", "beta", "gamma"]);
        assert_eq!(names(&known, Sort::Name, "10.0.0.2"), ["alpha"]);
        assert_eq!(names(&known, Sort::Name, "nobody"), Vec::<String>::new());
    }

    #[test]
    fn a_peer_that_did_nothing_has_a_rate_of_nothing_and_one_that_did_has_its_own() {
        let start = Instant::now();
        let running = known(start).running.unwrap();
        let later = running.updated(&[peer(1, 2100)], Some((2, 1)), start + Duration::from_secs(2));
        let rates = |running: &Running, number| running.peers[&PublicKey([number; 32])].rates;
        assert_eq!(rates(&later, 1), Some((1000.0, 0.0)));
        assert_eq!(rates(&later, 2), Some((0.0, 0.0)));
        let much_later = later.updated(&[peer(1, 9999)], Some((3, 1)), start + Duration::from_secs(60));
        assert_eq!(rates(&much_later, 1), None);
        assert_eq!(rates(&much_later, 2), None);
    }

    #[test]
    fn what_keeps_a_peer_out_comes_before_whether_it_has_a_session() {
        let wall = Timestamp::from_second(1000).unwrap();
        let online = Live { handshake: 900, ..Live::default() };
        assert_eq!(state(None, Some(&online), wall), State::Online);
        assert_eq!(state(None, Some(&Live { handshake: 100, ..Live::default() }), wall), State::Silent);
        let disabled = Named { is_disabled: true, ..named("a", 1) };
        assert_eq!(state(Some(&disabled), None, wall), State::Disabled);
        let expired = Named { expires: Timestamp::from_second(1000).ok(), ..named("a", 1) };
        assert_eq!(state(Some(&expired), Some(&online), wall), State::Expired);
        let over = Live { suspended: Some(Suspension::Quota), ..online };
        assert_eq!(state(Some(&named("a", 1)), Some(&over), wall), State::QuotaUsed);
    }
}
