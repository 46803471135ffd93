//! The network, and what anybody on it may see of a host that keeps the protocol's rules.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use linerate_netio::memory::Datagram;

use crate::event::Weather;
use crate::rng::Rng;

const SECOND: u64 = 1_000_000_000;
const REJECT_AFTER_TIME: u64 = 180 * SECOND;
const REKEY_TIMEOUT: u64 = 5 * SECOND;

const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE: u8 = 3;
const DATA: u8 = 4;

/// A datagram on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub datagram: Datagram,
    pub sent: u64,
    intact: bool,
}

impl Parcel {
    fn kind(&self) -> u8 {
        self.datagram.contents.first().copied().unwrap_or(0)
    }

    /// Whether no key can be left that opens it.
    pub fn is_stale_data(&self, now: u64) -> bool {
        self.kind() == DATA && now >= self.sent + REJECT_AFTER_TIME
    }
}

pub struct Wire {
    pub now: u64,
    pub weather: Weather,
    /// Where each host is.
    pub addresses: Vec<SocketAddr>,
    /// How many datagrams the hosts sent.
    pub emitted: u64,
    held: BTreeMap<(u64, u64), Parcel>,
    record: Vec<Parcel>,
    serial: u64,
    rng: Rng,
    laws: Laws,
}

impl Wire {
    pub fn new(seed: u64, addresses: Vec<SocketAddr>) -> Self {
        let laws = Laws { spoke: vec![None; addresses.len()], ..Laws::default() };
        Self {
            now: 0,
            weather: Weather::default(),
            addresses,
            emitted: 0,
            held: BTreeMap::new(),
            record: Vec::new(),
            serial: 0,
            rng: Rng::new(!seed),
            laws,
        }
    }

    /// A host sends a datagram.
    pub fn post(&mut self, datagram: Datagram) {
        self.emitted += 1;
        let host = self.addresses.iter().position(|address| *address == datagram.source);
        self.laws.emitted(self.now, host.expect("only hosts send"), self.addresses.len(), &datagram.contents);
        let parcel = Parcel { datagram, sent: self.now, intact: true };
        self.record.push(parcel.clone());
        if self.rng.chance(self.weather.loss) {
            return;
        }
        if self.rng.chance(self.weather.duplication) {
            self.forward(parcel.clone());
        }
        self.forward(parcel);
    }

    fn forward(&mut self, mut parcel: Parcel) {
        if self.rng.chance(self.weather.corruption) {
            self.damage(&mut parcel);
        }
        let wobble = if self.rng.chance(self.weather.late) { 300_000 } else { self.weather.wobble };
        let millis = self.weather.delay + self.rng.below(wobble + 1);
        self.hold(self.now + millis * 1_000_000, parcel);
    }

    fn damage(&mut self, parcel: &mut Parcel) {
        parcel.intact = false;
        let contents = &mut parcel.datagram.contents;
        let at = self.rng.below(contents.len() as u64) as usize;
        if self.rng.chance(20) {
            contents.truncate(at);
        } else {
            contents[at] ^= 1 << self.rng.below(8);
        }
    }

    fn hold(&mut self, until: u64, parcel: Parcel) {
        self.serial += 1;
        self.held.insert((until, self.serial), parcel);
    }

    /// When the next datagram arrives.
    pub fn next_due(&self) -> Option<u64> {
        self.held.first_key_value().map(|((due, _), _)| *due)
    }

    /// What arrives now, in order.
    pub fn arrivals(&mut self) -> Vec<Parcel> {
        let later = self.held.split_off(&(self.now + 1, 0));
        let arriving: Vec<_> = std::mem::replace(&mut self.held, later).into_values().collect();
        for parcel in arriving.iter().filter(|parcel| parcel.intact) {
            self.laws.arrived(self.now, &parcel.datagram.contents);
        }
        arriving
    }

    /// The sky clears, and what is on the way arrives.
    pub fn clear_up(&mut self, latency: Duration) {
        self.weather = Weather { delay: latency.as_millis() as u64, ..Weather::default() };
        for (_, parcel) in std::mem::take(&mut self.held) {
            self.hold(self.now, parcel);
        }
    }

    /// Old datagrams come again, from where they came from.
    pub fn replay(&mut self, datagrams: u64) {
        for _ in 0..datagrams.min(self.record.len() as u64) {
            let old = self.rng.below(self.record.len() as u64) as usize;
            self.hold(self.now, self.record[old].clone());
        }
    }

    /// Datagrams that nobody may take for true come from `attacker`.
    pub fn forge(&mut self, attacker: SocketAddr, datagrams: u64) {
        for _ in 0..datagrams {
            let datagram = match self.rng.below(4) {
                0 => Some(self.nonsense()),
                1 => self.altered(),
                2 => self.answered(),
                _ => self.reflected(),
            };
            if let Some(datagram) = datagram {
                let parcel =
                    Parcel { datagram: Datagram { source: attacker, ..datagram }, sent: self.now, intact: false };
                self.hold(self.now, parcel);
            }
        }
    }

    fn nonsense(&mut self) -> Datagram {
        let to = self.rng.pick(&self.addresses);
        let (kind, len) =
            self.rng.pick(&[(1, 148), (2, 92), (3, 64), (4, 32), (4, 1400), (4, 31), (1, 147), (0, 0), (9, 40)]);
        let mut contents: Vec<u8> = (0..len).map(|_| self.rng.number() as u8).collect();
        let header = [kind, 0, 0, 0];
        let header_len = contents.len().min(4);
        contents[..header_len].copy_from_slice(&header[..header_len]);
        Datagram { source: to, to, tos: 0, contents }
    }

    fn altered(&mut self) -> Option<Datagram> {
        let mut parcel = self.any_recorded()?;
        // The second MAC counts only under load.
        let unproved = if parcel.kind() == DATA { 0 } else { 16 };
        let contents = &mut parcel.datagram.contents;
        let at = self.rng.below((contents.len() - unproved) as u64) as usize;
        contents[at] ^= 1 << self.rng.below(8);
        Some(parcel.datagram)
    }

    /// An initiation that its addressee has answered, and still remembers.
    fn answered(&mut self) -> Option<Datagram> {
        let mut answered = self.record.iter().filter(|parcel| {
            let to = self.addresses.iter().position(|address| *address == parcel.datagram.to);
            let index = || word(&parcel.datagram.contents, 4);
            parcel.kind() == INITIATION && to.is_some_and(|to| self.laws.answers.contains_key(&(to, index())))
        });
        answered.next_back().map(|parcel| parcel.datagram.clone())
    }

    /// A host's own datagram.
    fn reflected(&mut self) -> Option<Datagram> {
        let parcel = self.any_recorded()?;
        Some(Datagram { to: parcel.datagram.source, ..parcel.datagram })
    }

    fn any_recorded(&mut self) -> Option<Parcel> {
        let len = self.record.len() as u64;
        (len > 0).then(|| self.record[self.rng.below(len) as usize].clone())
    }

    /// The host has no session any more that it may seal with, and may start a handshake at once.
    pub fn starts_anew(&mut self, host: usize) {
        self.laws.spoke[host] = None;
        self.stops_sealing(host);
    }

    /// What the host had made before now seals nothing more.
    pub fn stops_sealing(&mut self, host: usize) {
        self.laws.sessions.retain(|(owner, _), _| *owner != host);
    }

    /// The host forgot which initiations it had answered.
    pub fn forgets_answers(&mut self, host: usize) {
        self.laws.answers.retain(|(owner, _), _| *owner != host);
    }

    /// Every receiver index that was ever agreed on.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.laws.indices.iter().copied()
    }
}

/// What the wire has seen, as far as it is needed to judge what comes.
#[derive(Default)]
struct Laws {
    /// The distinct initiations of each sender index.
    initiations: HashMap<u32, HashSet<Vec<u8>>>,
    /// How many initiations of an index each host answered.
    answers: HashMap<(usize, u32), usize>,
    /// When a host sent a handshake message last.
    spoke: Vec<Option<u64>>,
    /// What each host may seal with, by its peer's index.
    sessions: HashMap<(usize, u32), Sealing>,
    /// Sessions that proved to be alive: data that names them arrived.
    heard: HashSet<u32>,
    indices: HashSet<u32>,
}

struct Sealing {
    born: u64,
    next_counter: u64,
    /// Our own index, if nothing may be sealed before data for it has come.
    unconfirmed: Option<u32>,
}

impl Laws {
    fn emitted(&mut self, now: u64, host: usize, hosts: usize, message: &[u8]) {
        match message[0] {
            INITIATION => self.initiation(now, host, hosts, message),
            RESPONSE => self.response(now, host, hosts, message),
            DATA => self.data(now, host, message),
            // A host that slept finds more initiations waiting than it can answer.
            COOKIE => {}
            kind => panic!("host {host} sent a message of type {kind}"),
        }
    }

    fn initiation(&mut self, now: u64, host: usize, hosts: usize, message: &[u8]) {
        // Only a host with one peer: the wire cannot tell whom an initiation is for.
        if let Some(last) = self.spoke[host].filter(|_| host > 0 || hosts == 2) {
            assert!(now >= last + REKEY_TIMEOUT, "host {host} starts handshakes less than 5 s apart");
        }
        self.spoke[host] = Some(now);
        self.initiations.entry(word(message, 4)).or_default().insert(message.to_vec());
    }

    fn response(&mut self, now: u64, host: usize, hosts: usize, message: &[u8]) {
        let (own, peers) = (word(message, 4), word(message, 8));
        let answers = self.answers.entry((host, peers)).or_default();
        *answers += 1;
        let distinct = self.initiations.get(&peers).map_or(0, HashSet::len);
        assert!(*answers <= distinct, "host {host} answers an initiation again");
        self.spoke[host] = Some(now);
        self.heard.remove(&own);
        self.indices.extend([own, peers]);
        self.sessions.insert((host, peers), Sealing { born: now, next_counter: 0, unconfirmed: Some(own) });
        for other in (0..hosts).filter(|other| *other != host) {
            self.sessions.insert((other, own), Sealing { born: now, next_counter: 0, unconfirmed: None });
        }
    }

    fn data(&mut self, now: u64, host: usize, message: &[u8]) {
        let (index, counter) = (word(message, 4), u64::from_le_bytes(message[8..16].try_into().unwrap()));
        let session = self.sessions.get_mut(&(host, index));
        let session = session.unwrap_or_else(|| panic!("host {host} seals with a session that it cannot have"));
        assert!(now < session.born + REJECT_AFTER_TIME, "host {host} seals with a key of 180 s");
        assert!(counter >= session.next_counter, "host {host} seals twice with counter {counter}");
        session.next_counter = counter + 1;
        let confirmed = session.unconfirmed.is_none_or(|own| self.heard.contains(&own));
        assert!(confirmed, "host {host} seals with a session that its peer has not confirmed");
    }

    fn arrived(&mut self, now: u64, message: &[u8]) {
        match message[0] {
            RESPONSE => {
                // Its addressee makes the session now.
                let own = word(message, 4);
                let unused = |session: &&mut Sealing| session.next_counter == 0 && session.unconfirmed.is_none();
                let made = self.sessions.iter_mut().filter(|((_, index), _)| *index == own);
                made.map(|(_, session)| session).filter(unused).for_each(|session| session.born = now);
            }
            DATA => {
                self.heard.insert(word(message, 4));
            }
            _ => {}
        }
    }
}

fn word(message: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes were cut"))
}
