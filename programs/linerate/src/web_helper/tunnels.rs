//! The tunnels of this host and their peers, for somebody who looks: what runs, as `linerate-watch` reads it, at most
//! once a second; and what a tunnel's file says, read again when it has changed.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use linerate_control::document::SectionKind;
use linerate_control::endpoint;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::printable::printable;
use linerate_control::rate::Rate;
use linerate_control::tunnel_file::{Peer as FilePeer, QuotaReset};
use linerate_control::uapi::limits::Suspension;
use linerate_page::{Client, MOST_ADDRESSES, MOST_ADDRESSES_OF_EACH, MOST_PEERS, Peer, Reply, Sort, State, Tunnel};
use linerate_server::{Roster, searchable};
use linerate_tunnel::status::RunBy;
use linerate_tunnel::{ConfigFile, System};
use linerate_watch::host::{Host, Stamp};
use linerate_watch::{self as watch, Ask, Rates, Watcher};

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

/// What is known of a tunnel. It is watched alone, so that a daemon that does not answer delays only those who look at
/// its tunnel.
struct Known {
    watcher: Watcher,
    running: Option<watch::Tunnel>,
    /// Whether its rates are those of lately.
    has_rates: bool,
    failure: Option<String>,
    looked: Option<Instant>,
    file: File,
}

/// What a tunnel's file says, without its secrets.
#[derive(Default)]
struct File {
    path: PathBuf,
    stamp: Option<Stamp>,
    addresses: Vec<String>,
    is_server: bool,
    peers: HashMap<PublicKey, Named>,
}

/// A peer in the file.
struct Named {
    /// In the order of the file.
    line: usize,
    name: Option<String>,
    /// The name in the form in which names are sorted.
    folded: String,
    /// The searchable texts, one a line.
    searched: String,
    addresses: Vec<IpNet>,
    client: Option<Client>,
    quota: Option<u64>,
    rate: Rate,
    expires: Option<Timestamp>,
    is_expired: bool,
    is_disabled: bool,
}

/// A peer in the file, as a running one, or both.
struct Row<'a> {
    key: &'a PublicKey,
    named: Option<&'a Named>,
    live: Option<&'a watch::Peer>,
    rates: Option<Rates>,
    state: State,
}

impl Tunnels {
    /// All tunnels.
    pub(super) fn all(&mut self, now: Instant, write: bool) -> Reply {
        let names = match watch::host::System.tunnels() {
            Ok(found) => found.into_iter().map(|found| found.interface).collect::<Vec<_>>(),
            Err(error) => return Reply::Refused { message: format!("cannot list the tunnels: {error}") },
        };
        self.0.retain(|name, _| names.contains(name));
        let wall = Timestamp::now();
        let tunnels = names.iter().filter_map(|name| {
            let known = self.look(name, now);
            known.exists().then(|| known.summary(name, &known.rows(wall)))
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
        let filter = searchable(order.filter);
        rows.retain(|row| row.has(&filter));
        rows.sort_by(|a, b| {
            let sorted = a.compare(b, order.sort);
            if order.reverse { sorted.reverse() } else { sorted }.then_with(|| a.line().cmp(&b.line()))
        });
        let found = rows.len();
        let shown = rows.iter().skip(order.offset).take(order.count.min(MOST_PEERS));
        let peers = shown.map(|row| row.peer(wall, MOST_ADDRESSES_OF_EACH)).collect();
        Reply::Peers { tunnel: summary, peers, found, write }
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
            Some(row) => {
                let peer = Box::new(row.peer(wall, MOST_ADDRESSES));
                Reply::Peer { tunnel: known.summary(tunnel, &rows), peer, write }
            }
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
        if !self.look(tunnel, now).exists() {
            self.0.remove(tunnel);
            return Err(unknown());
        }
        Ok(&self.0[tunnel])
    }

    fn look(&mut self, name: &str, now: Instant) -> &Known {
        let known = self.0.entry(name.to_owned()).or_insert_with(|| Known::new(name));
        if known.looked.is_none_or(|then| now.duration_since(then) >= FRESH) {
            known.look(name, now);
        }
        known
    }
}

impl Known {
    fn new(name: &str) -> Self {
        Self {
            watcher: Watcher::new(Some(name)),
            running: None,
            has_rates: false,
            failure: None,
            looked: None,
            file: File::default(),
        }
    }

    fn look(&mut self, name: &str, now: Instant) {
        self.file.read(name);
        (self.running, self.failure) = match self.watcher.poll(Ask::default()) {
            Ok(view) => {
                let running = view.tunnels.into_iter().next();
                let failure = running.as_ref().and_then(failure);
                (running, failure)
            }
            Err(error) => (None, Some(error.to_string())),
        };
        self.has_rates = self.looked.is_some_and(|then| now.duration_since(then) <= LATELY);
        self.looked = Some(now);
    }

    /// Whether there is such a tunnel, even if it cannot be read.
    fn exists(&self) -> bool {
        self.running.is_some() || self.failure.is_some()
    }

    /// All peers, those of the file first.
    fn rows<'a>(&'a self, wall: Timestamp) -> Vec<Row<'a>> {
        let live = self.running.iter().flat_map(|running| &running.peers);
        let live: HashMap<&PublicKey, &watch::Peer> = live.map(|peer| (&peer.settings.public_key, peer)).collect();
        let in_file = self.file.peers.iter().map(|(key, named)| (key, Some(named), live.get(key).copied()));
        let others = live.iter().filter(|(key, _)| !self.file.peers.contains_key(*key));
        let all = in_file.chain(others.map(|(key, live)| (*key, None, Some(*live))));
        let row = |(key, named, live): (_, _, Option<&'a watch::Peer>)| {
            let rates = live.and_then(|live| live.rates).filter(|_| self.has_rates);
            Row { key, named, live, rates, state: state(named, live, wall) }
        };
        all.map(row).collect()
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

/// Why nothing is known of what runs.
fn failure(tunnel: &watch::Tunnel) -> Option<String> {
    match tunnel.implementation {
        RunBy::Gone => {
            let name = &tunnel.interface;
            Some(format!("its daemon has ended: `linerate up {name}' starts another, `linerate down {name}' clears up"))
        }
        _ => tunnel.problem.clone(),
    }
}

impl File {
    /// Reads the file of the tunnel again if it has changed. One that cannot be read names nobody.
    fn read(&mut self, name: &str) {
        // As it was before it is read: a change meanwhile is seen at the next look.
        let stamp = watch::host::System.stamp(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        let Ok(file) = ConfigFile::open(name) else {
            *self = Self::default();
            return;
        };
        let roster = Roster::read(file.document.clone(), &file.interface, &System, Timestamp::now());
        let Ok(roster) = roster else {
            *self = Self { path: file.path, stamp, ..Self::default() };
            return;
        };
        let contents = roster.file();
        let file_names = roster.clients().iter().map(|client| (client.peer.public_key, &*client.file_name));
        let file_names: HashMap<PublicKey, &str> = file_names.collect();
        let peers = contents.peers.iter().map(|peer| {
            let is_disabled = roster.document().sections()[peer.section].kind() == SectionKind::DisabledPeer;
            let file_name = file_names.get(&peer.public_key).copied().unwrap_or_default();
            (peer.public_key, Named::new(peer, file_name, is_disabled))
        });
        *self = Self {
            path: file.path,
            stamp,
            addresses: contents.addresses.iter().map(IpNet::to_string).collect(),
            is_server: contents.public_endpoint.is_some(),
            peers: peers.collect(),
        };
    }
}

impl Named {
    fn new(peer: &FilePeer, file_name: &str, is_disabled: bool) -> Self {
        let settings = &peer.client;
        let name = peer.name.as_deref().map(|name| printable(name).into_owned());
        let client = settings.created.map(|created| Client {
            created: Some(created.to_string()),
            expires: settings.expires.map(|time| time.to_string()),
            monthly: settings.quota_reset == QuotaReset::Monthly,
            note: settings.note.as_deref().map(|note| printable(note).into_owned()),
            key_kept: settings.private_key.is_some(),
            file_name: file_name.to_owned(),
        });
        let folded = searchable(name.as_deref().unwrap_or_default());
        Self {
            line: peer.line,
            searched: format!("{folded}\n{}", searchable(settings.note.as_deref().unwrap_or_default())),
            folded,
            name,
            addresses: peer.allowed_ips.clone(),
            client,
            quota: settings.quota.map(|quota| quota.bytes()),
            rate: settings.rate.unwrap_or_default(),
            expires: settings.expires,
            is_expired: settings.expired.is_some(),
            is_disabled,
        }
    }
}

/// Seconds since a handshake.
fn seen(live: &watch::Peer, wall: Timestamp) -> Option<u64> {
    let now = u64::try_from(wall.as_second()).unwrap_or(0);
    live.last_handshake.map(|at| now.saturating_sub(at.as_secs()))
}

fn state(named: Option<&Named>, live: Option<&watch::Peer>, wall: Timestamp) -> State {
    let is_expired = |named: &Named| named.is_expired || named.expires.is_some_and(|time| time <= wall);
    match (named, live) {
        (Some(named), _) if is_expired(named) => State::Expired,
        (Some(named), _) if named.is_disabled => State::Disabled,
        (_, Some(live)) => match (live.suspended, seen(live, wall)) {
            (Some(Suspension::Expired), _) => State::Expired,
            (Some(Suspension::Quota), _) => State::QuotaUsed,
            (None, Some(..=SESSION)) => State::Online,
            (None, Some(_)) => State::Silent,
            (None, None) => State::Never,
        },
        (_, None) => State::Never,
    }
}

impl Row<'_> {
    fn addresses(&self) -> impl Iterator<Item = IpNet> {
        let named = self.named.map_or(&[][..], |named| &named.addresses);
        let live = self.live.filter(|_| named.is_empty()).map_or(&[][..], |live| &live.settings.allowed_ips);
        let live = live.iter().filter_map(|(address, length)| IpNet::new(*address, *length).ok());
        named.iter().copied().chain(live)
    }

    fn endpoint(&self) -> Option<String> {
        self.live?.endpoint.as_ref().map(endpoint::text)
    }

    /// Whether the name, the note, an address or the key contains `filter`, which must be in its [`searchable`] form.
    fn has(&self, filter: &str) -> bool {
        filter.is_empty()
            || self.named.is_some_and(|named| named.searched.contains(filter))
            || self.addresses().any(|net| net.to_string().contains(filter))
            || self.endpoint().is_some_and(|endpoint| endpoint.contains(filter))
            || self.key.to_string().to_ascii_lowercase().contains(filter)
    }

    fn line(&self) -> usize {
        self.named.map_or(usize::MAX, |named| named.line)
    }

    fn compare(&self, other: &Self, by: Sort) -> Ordering {
        let address = |row: &Self| row.addresses().next();
        let handshake = |row: &Self| row.live.and_then(|live| live.last_handshake);
        let rate = |row: &Self| row.rates.map_or(0.0, |rates| rates.received + rates.sent);
        let bytes = |row: &Self| row.live.map_or(0, |live| live.received.saturating_add(live.sent));
        match by {
            Sort::Name => match (self.named, other.named) {
                (Some(a), Some(b)) => a.name.is_none().cmp(&b.name.is_none()).then_with(|| a.folded.cmp(&b.folded)),
                (a, b) => a.is_none().cmp(&b.is_none()).then_with(|| self.key.0.cmp(&other.key.0)),
            },
            Sort::Address => {
                address(self).is_none().cmp(&address(other).is_none()).then(address(self).cmp(&address(other)))
            }
            Sort::Seen => handshake(other).cmp(&handshake(self)),
            Sort::Rate => rate(other).total_cmp(&rate(self)),
            Sort::Bytes => bytes(other).cmp(&bytes(self)),
            Sort::State => self.state.cmp(&other.state),
        }
    }

    fn peer(&self, wall: Timestamp, most_addresses: usize) -> Peer {
        let live = self.live;
        // The file's first: that is what a change on the page would write.
        let rates = [self.named.map(|named| named.rate), live.map(|live| live.settings.rate)];
        let rate = rates.into_iter().flatten().find(|rate| !rate.is_none());
        Peer {
            name: self.named.and_then(|named| named.name.clone()),
            key: self.key.to_string(),
            state: self.state,
            addresses: self.addresses().take(most_addresses).map(|net| net.to_string()).collect(),
            endpoint: self.endpoint(),
            seen: live.and_then(|live| seen(live, wall)),
            received: live.map_or(0, |live| live.received),
            sent: live.map_or(0, |live| live.sent),
            receive_rate: self.rates.map(|rates| rates.received),
            send_rate: self.rates.map(|rates| rates.sent),
            quota: live.and_then(|live| live.settings.quota).or_else(|| self.named.and_then(|named| named.quota)),
            quota_used: live.map_or(0, |live| live.quota_used),
            rate: rate.map(|rate| rate.to_string()),
            client: self.named.and_then(|named| named.client.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_watch::Time;

    use super::*;

    fn named(name: &str, line: usize) -> Named {
        Named {
            line,
            name: Some(name.to_owned()),
            folded: searchable(name),
            searched: searchable(name),
            addresses: vec![format!("10.0.0.{line}/32").parse().unwrap()],
            client: None,
            quota: None,
            rate: Rate::NONE,
            expires: None,
            is_expired: false,
            is_disabled: false,
        }
    }

    fn live(number: u8) -> watch::Peer {
        watch::Peer::new(watch::Settings {
            public_key: PublicKey([number; 32]),
            name: None,
            allowed_ips: vec![([10, 0, 9, number].into(), 32)],
            persistent_keepalive: 0,
            expires: None,
            quota: None,
            rate: Rate::NONE,
        })
    }

    fn known() -> Known {
        let mut known = Known::new("wg0");
        for (number, name) in [(1, "beta"), (2, "Alpha"), (3, "gamma")] {
            known.file.peers.insert(PublicKey([number; 32]), named(name, number.into()));
        }
        known.running = Some(watch::Tunnel {
            interface: "wg0".into(),
            implementation: RunBy::Daemon,
            problem: None,
            place: None,
            is_awaited: false,
            file: PathBuf::new(),
            public_key: None,
            listen_port: 1,
            fwmark: 0,
            daemon: None,
            instance: 0,
            peers: [1, 2, 9].map(live).into(),
            counters: Vec::new(),
        });
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
        let known = known();
        assert_eq!(names(&known, Sort::Name, ""), ["alpha", "beta", "gamma", "-"]);
        assert_eq!(names(&known, Sort::Address, ""), ["beta", "alpha", "gamma", "-"]);
        assert_eq!(names(&known, Sort::Name, "a"), ["alpha", "beta", "gamma"]);
        assert_eq!(names(&known, Sort::Name, "10.0.0.2"), ["alpha"]);
        assert_eq!(names(&known, Sort::Name, "10.0.9.9"), ["-"]);
        assert_eq!(names(&known, Sort::Name, "nobody"), Vec::<String>::new());
    }

    #[test]
    fn a_page_of_peers_with_very_many_addresses_fits_into_a_reply() {
        let mut crowded = live(9);
        let settings = std::sync::Arc::make_mut(&mut crowded.settings);
        let address = |number: u128| std::net::Ipv6Addr::from(u128::MAX - number).into();
        settings.allowed_ips = (0..100_000).map(|number| (address(number), 128)).collect();
        let row = Row { key: &PublicKey([9; 32]), named: None, live: Some(&crowded), rates: None, state: State::Never };
        let length = |most| serde_json::to_string(&row.peer(Timestamp::UNIX_EPOCH, most)).unwrap().len();
        assert!(length(MOST_ADDRESSES) < linerate_page::LONGEST_REPLY / 2);
        assert!(length(MOST_ADDRESSES_OF_EACH) * MOST_PEERS < linerate_page::LONGEST_REPLY / 2);
    }

    #[test]
    fn rates_over_a_long_time_are_not_shown() {
        let mut known = known();
        known.running.as_mut().unwrap().peers[0].rates = Some(Rates { received: 1000.0, sent: 0.0 });
        let fastest = |known: &Known| {
            let mut rows = known.rows(Timestamp::UNIX_EPOCH);
            rows.sort_by(|a, b| a.compare(b, Sort::Rate));
            rows[0].peer(Timestamp::UNIX_EPOCH, 1).receive_rate
        };
        assert_eq!(fastest(&known), None);
        known.has_rates = true;
        assert_eq!(fastest(&known), Some(1000.0));
    }

    #[test]
    fn a_tunnel_without_a_daemon_says_so_and_still_has_the_peers_of_its_file() {
        let mut known = known();
        let running = known.running.as_mut().unwrap();
        (running.implementation, running.peers) = (RunBy::Gone, Vec::new());
        assert!(failure(running).unwrap().contains("linerate up wg0"));
        assert_eq!(known.rows(Timestamp::UNIX_EPOCH).len(), 3);
    }

    #[test]
    fn what_keeps_a_peer_out_comes_before_whether_it_has_a_session() {
        let wall = Timestamp::from_second(1000).unwrap();
        let since = |seconds| {
            let mut peer = live(1);
            peer.last_handshake = Some(Time(Duration::from_secs(seconds)));
            peer
        };
        let mut online = since(900);
        assert_eq!(state(None, Some(&online), wall), State::Online);
        assert_eq!(state(None, Some(&since(100)), wall), State::Silent);
        assert_eq!(state(None, Some(&live(1)), wall), State::Never);
        let disabled = Named { is_disabled: true, ..named("a", 1) };
        assert_eq!(state(Some(&disabled), None, wall), State::Disabled);
        let expired = Named { expires: Timestamp::from_second(1000).ok(), ..named("a", 1) };
        assert_eq!(state(Some(&expired), Some(&online), wall), State::Expired);
        online.suspended = Some(Suspension::Quota);
        assert_eq!(state(Some(&named("a", 1)), Some(&online), wall), State::QuotaUsed);
    }
}
