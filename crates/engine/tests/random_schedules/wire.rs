//! The network, and the protocol's invariants that can be checked by watching it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use linerate_netio::memory::Datagram;

use crate::event::Impairments;
use crate::rng::Rng;

const SECOND: u64 = 1_000_000_000;
const REJECT_AFTER_TIME: u64 = 180 * SECOND;
const REKEY_TIMEOUT: u64 = 5 * SECOND;

const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE: u8 = 3;
const DATA: u8 = 4;

/// A datagram in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    pub datagram: Datagram,
    pub sent: u64,
    intact: bool,
}

impl InFlight {
    fn kind(&self) -> u8 {
        self.datagram.contents.first().copied().unwrap_or(0)
    }

    /// Whether every key that opens it has expired.
    pub fn is_stale_data(&self, now: u64) -> bool {
        self.kind() == DATA && now >= self.sent + REJECT_AFTER_TIME
    }
}

pub struct Wire {
    pub now: u64,
    pub impairments: Impairments,
    /// The address of each host.
    pub addresses: Vec<SocketAddr>,
    /// How many datagrams the hosts sent.
    pub sent_count: u64,
    held: BTreeMap<(u64, u64), InFlight>,
    record: Vec<InFlight>,
    serial: u64,
    rng: Rng,
    invariants: Invariants,
}

impl Wire {
    pub fn new(seed: u64, addresses: Vec<SocketAddr>) -> Self {
        let invariants = Invariants { last_handshake: vec![None; addresses.len()], ..Invariants::default() };
        Self {
            now: 0,
            impairments: Impairments::default(),
            addresses,
            sent_count: 0,
            held: BTreeMap::new(),
            record: Vec::new(),
            serial: 0,
            rng: Rng::new(!seed),
            invariants,
        }
    }

    /// A host sends a datagram.
    pub fn send(&mut self, datagram: Datagram) {
        self.sent_count += 1;
        let host = self.addresses.iter().position(|address| *address == datagram.source);
        self.invariants.sent(self.now, host.expect("only hosts send"), self.addresses.len(), &datagram.contents);
        let in_flight = InFlight { datagram, sent: self.now, intact: true };
        self.record.push(in_flight.clone());
        if self.rng.chance(self.impairments.loss) {
            return;
        }
        if self.rng.chance(self.impairments.duplication) {
            self.forward(in_flight.clone());
        }
        self.forward(in_flight);
    }

    fn forward(&mut self, mut in_flight: InFlight) {
        if self.rng.chance(self.impairments.corruption) {
            self.damage(&mut in_flight);
        }
        let jitter = if self.rng.chance(self.impairments.late) { 300_000 } else { self.impairments.jitter };
        let millis = self.impairments.delay + self.rng.below(jitter + 1);
        self.hold(self.now + millis * 1_000_000, in_flight);
    }

    fn damage(&mut self, in_flight: &mut InFlight) {
        in_flight.intact = false;
        let contents = &mut in_flight.datagram.contents;
        let at = self.rng.below(contents.len() as u64) as usize;
        if self.rng.chance(20) {
            contents.truncate(at);
        } else {
            contents[at] ^= 1 << self.rng.below(8);
        }
    }

    fn hold(&mut self, until: u64, in_flight: InFlight) {
        self.serial += 1;
        self.held.insert((until, self.serial), in_flight);
    }

    /// When the next datagram arrives.
    pub fn next_due(&self) -> Option<u64> {
        self.held.first_key_value().map(|((due, _), _)| *due)
    }

    /// The datagrams that arrive now, in order.
    pub fn arrivals(&mut self) -> Vec<InFlight> {
        let later = self.held.split_off(&(self.now + 1, 0));
        let arriving: Vec<_> = std::mem::replace(&mut self.held, later).into_values().collect();
        for in_flight in arriving.iter().filter(|in_flight| in_flight.intact) {
            self.invariants.arrived(self.now, &in_flight.datagram.contents);
        }
        arriving
    }

    /// Ends the impairments; what is in flight arrives at once.
    pub fn end_impairments(&mut self, latency: Duration) {
        self.impairments = Impairments { delay: latency.as_millis() as u64, ..Impairments::default() };
        for (_, in_flight) in std::mem::take(&mut self.held) {
            self.hold(self.now, in_flight);
        }
    }

    /// Delivers old datagrams again, from their original source.
    pub fn replay(&mut self, datagrams: u64) {
        for _ in 0..datagrams.min(self.record.len() as u64) {
            let old = self.rng.below(self.record.len() as u64) as usize;
            self.hold(self.now, self.record[old].clone());
        }
    }

    /// Sends forged datagrams from `attacker`.
    pub fn forge(&mut self, attacker: SocketAddr, datagrams: u64) {
        for _ in 0..datagrams {
            let datagram = match self.rng.below(4) {
                0 => Some(self.garbage()),
                1 => self.altered(),
                2 => self.answered(),
                _ => self.reflected(),
            };
            if let Some(datagram) = datagram {
                let in_flight =
                    InFlight { datagram: Datagram { source: attacker, ..datagram }, sent: self.now, intact: false };
                self.hold(self.now, in_flight);
            }
        }
    }

    fn garbage(&mut self) -> Datagram {
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
        let mut in_flight = self.any_recorded()?;
        // The second MAC is checked only under load, so altering it need not be noticed.
        let unproved = if in_flight.kind() == DATA { 0 } else { 16 };
        let contents = &mut in_flight.datagram.contents;
        let at = self.rng.below((contents.len() - unproved) as u64) as usize;
        contents[at] ^= 1 << self.rng.below(8);
        Some(in_flight.datagram)
    }

    /// An initiation that its receiver has answered since it started.
    fn answered(&mut self) -> Option<Datagram> {
        let mut answered = self.record.iter().filter(|in_flight| {
            let to = self.addresses.iter().position(|address| *address == in_flight.datagram.to);
            let index = || word(&in_flight.datagram.contents, 4);
            in_flight.kind() == INITIATION && to.is_some_and(|to| self.invariants.answers.contains_key(&(to, index())))
        });
        answered.next_back().map(|in_flight| in_flight.datagram.clone())
    }

    /// A host's own datagram, sent back to it.
    fn reflected(&mut self) -> Option<Datagram> {
        let in_flight = self.any_recorded()?;
        Some(Datagram { to: in_flight.datagram.source, ..in_flight.datagram })
    }

    fn any_recorded(&mut self) -> Option<InFlight> {
        let len = self.record.len() as u64;
        (len > 0).then(|| self.record[self.rng.below(len) as usize].clone())
    }

    /// Expects the host to have no sessions; it may start a handshake at once.
    pub fn end_sessions(&mut self, host: usize) {
        self.invariants.last_handshake[host] = None;
        self.end_sealing(host);
    }

    /// Forbids the host to seal with its present sessions.
    pub fn end_sealing(&mut self, host: usize) {
        self.invariants.sessions.retain(|(owner, _), _| *owner != host);
    }

    /// Lets the host answer initiations again that it answered before.
    pub fn forget_answers(&mut self, host: usize) {
        self.invariants.answers.retain(|(owner, _), _| *owner != host);
    }

    /// Every receiver index that a handshake has agreed on.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.invariants.indices.iter().copied()
    }
}

/// The messages on the wire, as far as the invariants need them.
#[derive(Default)]
struct Invariants {
    /// The distinct initiations by sender index.
    initiations: HashMap<u32, HashSet<Vec<u8>>>,
    /// How many initiations with a sender index each host has answered.
    answers: HashMap<(usize, u32), usize>,
    /// When each host last sent a handshake message.
    last_handshake: Vec<Option<u64>>,
    /// The sessions that each host may seal with, by the peer's receiver index.
    sessions: HashMap<(usize, u32), Sealing>,
    /// Receiver indices for which data has arrived.
    received: HashSet<u32>,
    indices: HashSet<u32>,
}

struct Sealing {
    created_at: u64,
    next_counter: u64,
    /// Our own index, if sealing has to wait for data with it.
    unconfirmed: Option<u32>,
}

impl Invariants {
    fn sent(&mut self, now: u64, host: usize, hosts: usize, message: &[u8]) {
        match message[0] {
            INITIATION => self.initiation(now, host, hosts, message),
            RESPONSE => self.response(now, host, hosts, message),
            DATA => self.data(now, host, message),
            // After a suspend, a host may find more initiations waiting than it answers without cookies.
            COOKIE => {}
            kind => panic!("host {host} sent a message of type {kind}"),
        }
    }

    fn initiation(&mut self, now: u64, host: usize, hosts: usize, message: &[u8]) {
        // Only hosts with one peer: the receiver of an initiation is not visible on the wire.
        if let Some(last) = self.last_handshake[host].filter(|_| host > 0 || hosts == 2) {
            assert!(now >= last + REKEY_TIMEOUT, "host {host} starts handshakes less than 5 s apart");
        }
        self.last_handshake[host] = Some(now);
        self.initiations.entry(word(message, 4)).or_default().insert(message.to_vec());
    }

    fn response(&mut self, now: u64, host: usize, hosts: usize, message: &[u8]) {
        let (own, peers) = (word(message, 4), word(message, 8));
        let answers = self.answers.entry((host, peers)).or_default();
        *answers += 1;
        let distinct = self.initiations.get(&peers).map_or(0, HashSet::len);
        assert!(*answers <= distinct, "host {host} answers an initiation again");
        self.last_handshake[host] = Some(now);
        self.received.remove(&own);
        self.indices.extend([own, peers]);
        self.sessions.insert((host, peers), Sealing { created_at: now, next_counter: 0, unconfirmed: Some(own) });
        for other in (0..hosts).filter(|other| *other != host) {
            self.sessions.insert((other, own), Sealing { created_at: now, next_counter: 0, unconfirmed: None });
        }
    }

    fn data(&mut self, now: u64, host: usize, message: &[u8]) {
        let (index, counter) = (word(message, 4), u64::from_le_bytes(message[8..16].try_into().unwrap()));
        let session = self.sessions.get_mut(&(host, index));
        let session = session.unwrap_or_else(|| panic!("host {host} seals with a session that it cannot have"));
        assert!(now < session.created_at + REJECT_AFTER_TIME, "host {host} seals with a key of 180 s");
        assert!(counter >= session.next_counter, "host {host} seals twice with counter {counter}");
        session.next_counter = counter + 1;
        let confirmed = session.unconfirmed.is_none_or(|own| self.received.contains(&own));
        assert!(confirmed, "host {host} seals with a session that its peer has not confirmed");
    }

    fn arrived(&mut self, now: u64, message: &[u8]) {
        match message[0] {
            RESPONSE => {
                // Its receiver establishes the session now.
                let own = word(message, 4);
                let unused = |session: &&mut Sealing| session.next_counter == 0 && session.unconfirmed.is_none();
                let made = self.sessions.iter_mut().filter(|((_, index), _)| *index == own);
                made.map(|(_, session)| session).filter(unused).for_each(|session| session.created_at = now);
            }
            DATA => {
                self.received.insert(word(message, 4));
            }
            _ => {}
        }
    }
}

fn word(message: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes were cut"))
}
