//! Simulated devices, links and time.
//!
//! A [`Host`] is a minimal engine that follows the protocol's rules: it seals, opens, stages and writes
//! timestamps like a real data path. A [`Net`] carries datagrams between nodes with delay, loss,
//! reordering and duplication, and advances the clock from event to event.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use linerate_aead::{Slot, TAG_LEN};
use linerate_protocol::constants::{
    INITIATION_LEN, LOAD_PERIOD, REJECT_AFTER_MESSAGES, UNDER_LOAD_BACKLOG, UNSEEN_SOURCES_MAX,
};
use linerate_protocol::{
    Boottime, DATA_HEADER, DataHeader, Device, DropReason, Effects, Entropy, HandshakeFilter, MessageKind, Now, PeerId,
    PresharedKey, PrivateKey, PublicKey, ReplayWindow, Session, TrafficTimestamps, Wake, classify,
};

/// A random generator with the same numbers in every run of a seed.
pub struct Seeded(fastrand::Rng);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.0.u64(..limit) }
    }
}

impl Entropy for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// Properties of a link. Probabilities are in percent.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub delay: Duration,
    /// Additional random delay up to this, which reorders datagrams.
    pub jitter: Duration,
    pub loss: u64,
    pub duplication: u64,
}

impl Link {
    /// 20 ms each way, no loss.
    pub const GOOD: Self = Self { delay: Duration::from_millis(20), jitter: Duration::ZERO, loss: 0, duplication: 0 };
    /// Total loss.
    pub const DEAD: Self = Self { loss: 100, ..Self::GOOD };
}

/// A message that a host sent, and when.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Boottime,
    pub kind: MessageKind,
    pub bytes: Vec<u8>,
}

/// A minimal engine.
#[derive(Default)]
pub struct Host {
    now: Boottime,
    pub endpoints: BTreeMap<PeerId, SocketAddr>,
    pub traffic: BTreeMap<PeerId, Arc<TrafficTimestamps>>,
    /// Sessions by our index, each with its replay window.
    pub sessions: BTreeMap<u32, (Arc<Session>, ReplayWindow)>,
    pub sending: BTreeMap<PeerId, Arc<Session>>,
    pub staged: BTreeMap<PeerId, VecDeque<Vec<u8>>>,
    /// The source of the datagram being handled.
    source: Option<SocketAddr>,
    outbox: Vec<(SocketAddr, Vec<u8>)>,
    woken: Vec<PeerId>,

    /// Everything sent.
    pub sent: Vec<Sent>,
    /// Inner packets received, including empty ones.
    pub received: Vec<(Boottime, PeerId, Vec<u8>)>,
    pub drops: Vec<DropReason>,
    pub handshakes: Vec<(PeerId, Duration)>,
    pub wakes: usize,
    pub forgotten_sources: usize,
    pub abandoned: usize,
}

impl Effects for Host {
    fn send(&mut self, peer: PeerId, message: &[u8]) {
        if let Some(&to) = self.endpoints.get(&peer) {
            self.post(to, message.to_vec());
        }
    }

    fn reply(&mut self, message: &[u8]) {
        let to = self.source.expect("a reply answers a datagram");
        self.post(to, message.to_vec());
    }

    fn roam(&mut self, peer: PeerId) {
        let source = self.source.expect("a peer roams by a datagram");
        self.endpoints.insert(peer, source);
    }

    fn session_added(&mut self, session: &Arc<Session>) {
        let old = self.sessions.insert(session.local, (Arc::clone(session), ReplayWindow::default()));
        assert!(old.is_none(), "two live sessions have the index {}", session.local);
    }

    fn session_removed(&mut self, session: &Arc<Session>) {
        let (old, _) = self.sessions.remove(&session.local).expect("a session is removed once");
        assert!(Arc::ptr_eq(&old, session));
        let sealing = self.sending.get(&session.peer);
        assert!(!sealing.is_some_and(|s| Arc::ptr_eq(s, session)), "a removed session still seals");
    }

    fn set_sending_session(&mut self, peer: PeerId, session: Option<&Arc<Session>>) {
        match session {
            Some(session) => {
                assert!(session.is_confirmed(), "an unconfirmed session seals");
                assert!(self.sessions.contains_key(&session.local), "an unknown session seals");
                self.sending.insert(peer, Arc::clone(session));
            }
            None => {
                self.sending.remove(&peer);
            }
        }
    }

    fn send_keepalive(&mut self, peer: PeerId) {
        if self.staged.get(&peer).is_none_or(VecDeque::is_empty) {
            self.staged.entry(peer).or_default().push_back(Vec::new());
        }
        self.send_staged(peer);
    }

    fn send_staged(&mut self, peer: PeerId) {
        let mut data = false;
        let mut any = false;
        while let Some(packet) = self.staged.get_mut(&peer).and_then(VecDeque::pop_front) {
            if self.seal(peer, &packet) {
                any = true;
                data |= !packet.is_empty();
            } else {
                self.staged.entry(peer).or_default().push_front(packet);
                let wake = self.traffic(peer).request_handshake();
                self.wake(peer, wake);
                break;
            }
        }
        if !any {
            return;
        }
        let wake = self.traffic(peer).sent(self.now, data);
        self.wake(peer, wake);
        if self.sending.get(&peer).is_some_and(|session| session.needs_rekey_on_send(self.now)) {
            let wake = self.traffic(peer).request_handshake();
            self.wake(peer, wake);
        }
    }

    fn drop_staged(&mut self, peer: PeerId) {
        self.abandoned += self.staged.remove(&peer).map_or(0, |staged| staged.len());
    }

    fn forget_source_addr(&mut self, _peer: PeerId) {
        self.forgotten_sources += 1;
    }

    fn handshake_done(&mut self, peer: PeerId, wall: Duration) {
        self.handshakes.push((peer, wall));
    }

    fn has_endpoint(&self, peer: PeerId) -> bool {
        self.endpoints.contains_key(&peer)
    }
}

impl Host {
    pub fn traffic(&self, peer: PeerId) -> Arc<TrafficTimestamps> {
        Arc::clone(&self.traffic[&peer])
    }

    fn wake(&mut self, peer: PeerId, wake: Wake) {
        if wake == Wake::SlowPath {
            self.wakes += 1;
            self.woken.push(peer);
        }
    }

    fn post(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        let kind = classify(&bytes).expect("a device sends only messages");
        self.sent.push(Sent { at: self.now, kind, bytes: bytes.clone() });
        self.outbox.push((to, bytes));
    }

    fn seal(&mut self, peer: PeerId, packet: &[u8]) -> bool {
        let Some(session) = self.sending.get(&peer).filter(|session| !session.expired(self.now)) else { return false };
        let Some(counter) = session.reserve(1) else { return false };
        let mut datagram = vec![0; DATA_HEADER];
        DataHeader { receiver: session.remote, counter }.encode(&mut datagram);
        datagram.extend_from_slice(packet);
        datagram.resize(DATA_HEADER + packet.len() + TAG_LEN, 0);
        session.sealing.seal(&mut datagram, &[Slot { offset: DATA_HEADER, len: packet.len(), counter }]);
        let to = self.endpoints[&peer];
        self.post(to, datagram);
        true
    }

    /// Opens a data message; returns the session if it was just confirmed.
    fn open(&mut self, source: SocketAddr, mut datagram: Vec<u8>) -> Result<Option<Arc<Session>>, DropReason> {
        let DataHeader { receiver, counter } = DataHeader::decode(&datagram);
        let (session, window) = self.sessions.get_mut(&receiver).ok_or(DropReason::UnknownIndex)?;
        session.may_open(self.now, counter)?;
        let len = datagram.len() - DATA_HEADER - TAG_LEN;
        let authentic = session.opening.open(&mut datagram, &[Slot { offset: DATA_HEADER, len, counter }]);
        if !authentic.authentic(0) {
            return Err(DropReason::Undecryptable);
        }
        if !window.accept(counter) {
            return Err(DropReason::CounterReplayed);
        }
        let session = Arc::clone(session);
        let peer = session.peer;
        self.endpoints.insert(peer, source);
        let packet = datagram[DATA_HEADER..][..len].to_vec();
        let wake = self.traffic(peer).received(self.now, !packet.is_empty());
        self.wake(peer, wake);
        if session.needs_rekey_on_receive(self.now) {
            let wake = self.traffic(peer).request_handshake();
            self.wake(peer, wake);
        }
        self.received.push((self.now, peer, packet));
        Ok(session.confirm().then_some(session))
    }
}

/// A device with its host.
pub struct Node {
    pub device: Device,
    filter: Arc<HandshakeFilter>,
    pub host: Host,
    pub addr: SocketAddr,
    /// The backlog that is reported to the device.
    pub backlog: usize,
    /// When the quota of unseen sources was last used up, if the node is set to have it used up in every period.
    exhausted: Option<Boottime>,
}

impl Node {
    /// Data packets (not keepalives) received.
    pub fn data_received(&self) -> Vec<&[u8]> {
        self.host.received.iter().map(|(_, _, packet)| &packet[..]).filter(|packet| !packet.is_empty()).collect()
    }

    /// When messages of `kind` were sent.
    pub fn times(&self, kind: MessageKind) -> Vec<Boottime> {
        self.host.sent.iter().filter(|sent| sent.kind == kind).map(|sent| sent.at).collect()
    }

    /// How many messages of `kind` were sent.
    pub fn count(&self, kind: MessageKind) -> usize {
        self.times(kind).len()
    }

    /// Uses up the quota of unseen sources of the period with messages from unknown addresses, if that is not done yet.
    fn exhaust_unseen_sources(&mut self, now: Now, rng: &mut Seeded) {
        let Some(last) =
            self.exhausted.filter(|last| self.backlog >= UNDER_LOAD_BACKLOG && now.boot.since(*last) >= LOAD_PERIOD)
        else {
            return;
        };
        self.exhausted = Some(now.boot);
        let mut message = [1; INITIATION_LEN];
        message[1..4].fill(0);
        message[INITIATION_LEN - 16..].fill(0);
        sign(&mut message, self.device.public_key().expect("a node has a key"));
        for number in 0..=UNSEEN_SOURCES_MAX as u64 {
            let ip = Ipv4Addr::from_bits(0xc612_0000 | (last.0.wrapping_add(number) & 0xffff) as u32);
            let mut host = Host { source: Some(SocketAddr::from((ip, 7))), ..Host::default() };
            let refused = self.device.handle(now, rng, SocketAddr::from((ip, 7)), self.backlog, &message, &mut host);
            assert!(refused.is_err());
        }
    }

    /// The only peer.
    pub fn peer(&self) -> PeerId {
        self.device.peers().next().expect("the node has a peer")
    }
}

/// Nodes, the datagrams in flight between them, and the time.
pub struct Net {
    pub now: Now,
    pub rng: Seeded,
    pub nodes: Vec<Node>,
    pub link: Link,
    /// By time of arrival, then in order of sending: destination, source, bytes.
    in_flight: BTreeMap<(Boottime, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    posted: u64,
}

/// Writes a valid first MAC, as anyone who knows the public key can.
pub fn sign(message: &mut [u8], to: &PublicKey) {
    let key = Blake2s256::new().chain_update(b"mac1----").chain_update(to.0).finalize();
    let at = message.len() - 32;
    let mut mac = Blake2sMac::<U16>::new_from_slice(&key).unwrap();
    Update::update(&mut mac, &message[..at]);
    message[at..at + 16].copy_from_slice(&mac.finalize_fixed());
}

/// The wall clock at the start of the simulation.
pub const WALL: Duration = Duration::from_secs(1_700_000_000);

pub fn secret(seed: u64) -> PrivateKey {
    let mut bytes = [0; 32];
    Seeded::new(seed ^ 0x5eed).fill(&mut bytes);
    PrivateKey::new(&bytes).expect("a seeded key is not zero")
}

pub fn public(seed: u64) -> PublicKey {
    secret(seed).public_key()
}

impl Net {
    /// `count` nodes that are up, with the keys `secret(i)` and without peers.
    pub fn new(seed: u64, count: usize) -> Self {
        let mut net = Self {
            now: Now { boot: Boottime::from_secs(1000), wall: WALL },
            rng: Seeded::new(seed),
            nodes: Vec::new(),
            link: Link::GOOD,
            in_flight: BTreeMap::new(),
            posted: 0,
        };
        for i in 0..count {
            let addr = SocketAddr::from(([10, 0, 0, i as u8 + 1], 51820));
            let filter = Arc::default();
            net.nodes.push(Node {
                device: Device::with_filter(Arc::clone(&filter)),
                filter,
                host: Host::default(),
                addr,
                backlog: 0,
                exhausted: None,
            });
            net.call(i, |node, now, rng| {
                let removed = node.device.set_private_key(now, rng, Some(secret(i as u64)), &mut node.host);
                assert_eq!(removed, None);
                node.device.up(now, rng, &mut node.host);
            });
        }
        net
    }

    /// Two nodes, each with the other as its peer and the other's address as endpoint.
    pub fn pair(seed: u64) -> Self {
        let mut net = Self::new(seed, 2);
        net.introduce(0, 1);
        net.introduce(1, 0);
        net
    }

    /// A pair that has completed a handshake started by node 0, without data.
    pub fn connected(seed: u64) -> Self {
        let mut net = Self::pair(seed);
        net.initiate(0);
        net.run_for(Duration::from_millis(100));
        assert!(net.nodes.iter().all(|node| node.host.handshakes.len() == 1));
        net
    }

    /// Adds node `of` as a peer of node `at`, with its endpoint.
    pub fn introduce(&mut self, at: usize, of: usize) -> PeerId {
        let peer = self.add_peer(at, public(of as u64));
        let addr = self.nodes[of].addr;
        self.nodes[at].host.endpoints.insert(peer, addr);
        peer
    }

    pub fn add_peer(&mut self, at: usize, key: PublicKey) -> PeerId {
        let traffic = Arc::new(TrafficTimestamps::new());
        let node = &mut self.nodes[at];
        let peer = node.device.add_peer(key, Arc::clone(&traffic)).expect("the peer is new");
        node.host.traffic.insert(peer, traffic);
        peer
    }

    pub fn set_psk(&mut self, at: usize, psk: [u8; 32]) {
        let peer = self.nodes[at].peer();
        self.nodes[at].device.set_preshared_key(peer, PresharedKey::new(&psk));
    }

    /// Sends a data packet from a node to its first peer, or stages it.
    pub fn send(&mut self, from: usize, packet: &[u8]) {
        let peer = self.nodes[from].peer();
        self.send_to(from, peer, packet);
    }

    pub fn send_to(&mut self, from: usize, peer: PeerId, packet: &[u8]) {
        self.call(from, |node, _, _| {
            let staged = node.host.staged.entry(peer).or_default();
            if staged.len() == 128 {
                staged.pop_front();
            }
            staged.push_back(packet.to_vec());
            node.host.send_staged(peer);
        });
    }

    /// Requests a handshake without data.
    pub fn initiate(&mut self, from: usize) {
        let peer = self.nodes[from].peer();
        self.call(from, |node, _, _| {
            let wake = node.host.traffic(peer).request_handshake();
            node.host.wake(peer, wake);
        });
    }

    /// Calls a node, then runs its slow path and sends its messages.
    pub fn call<T>(&mut self, at: usize, act: impl FnOnce(&mut Node, Now, &mut Seeded) -> T) -> T {
        let node = &mut self.nodes[at];
        node.host.now = self.now.boot;
        let result = act(node, self.now, &mut self.rng);
        loop {
            let node = &mut self.nodes[at];
            if let Some(peer) = node.host.woken.pop() {
                node.device.woken(self.now, &mut self.rng, peer, &mut node.host);
            } else if node.device.deadline().is_some_and(|due| due <= self.now.boot) {
                node.device.expire(self.now, &mut self.rng, &mut node.host);
            } else {
                break;
            }
        }
        let from = self.nodes[at].addr;
        for (to, bytes) in std::mem::take(&mut self.nodes[at].host.outbox) {
            self.carry(from, to, bytes);
        }
        result
    }

    fn carry(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let copies = if self.rng.below(100) < self.link.duplication { 2 } else { 1 };
        for _ in 0..copies {
            if self.rng.below(100) < self.link.loss {
                continue;
            }
            let jitter = Duration::from_nanos(self.rng.below(self.link.jitter.as_nanos() as u64));
            let arrival = self.now.boot.after(self.link.delay + jitter);
            self.posted += 1;
            self.in_flight.insert((arrival, self.posted), (to, from, bytes.clone()));
        }
    }

    /// Puts a node under load, with its quota of unseen sources used up in every period.
    pub fn exhaust_unseen_sources(&mut self, at: usize) {
        self.nodes[at].backlog = UNDER_LOAD_BACKLOG;
        self.nodes[at].exhausted = Some(Boottime::default());
    }

    /// Delivers a datagram to a node as if from `source`.
    pub fn deliver(&mut self, at: usize, source: SocketAddr, bytes: &[u8]) -> Result<(), DropReason> {
        let result = self.call(at, |node, now, rng| {
            node.host.source = Some(source);
            let confirmed = match classify(bytes)? {
                MessageKind::Data => node.host.open(source, bytes.to_vec())?,
                kind => {
                    node.exhaust_unseen_sources(now, rng);
                    let passes = node.filter.check(now.boot, source, kind, bytes);
                    let handled = node.device.handle(now, rng, source, node.backlog, bytes, &mut node.host);
                    // Load aside, the filter refuses only what the device would refuse.
                    assert!(handled.is_err() || matches!(passes, Ok(()) | Err(DropReason::UnderLoad)), "{passes:?}");
                    handled?;
                    None
                }
            };
            if let Some(session) = confirmed {
                node.device.confirmed(now, &session, &mut node.host);
            }
            Ok(())
        });
        if let Err(reason) = result {
            self.nodes[at].host.drops.push(reason);
        }
        self.check();
        result
    }

    /// Runs for a while.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now.boot.after(time);
        loop {
            let arrival = self.in_flight.first_key_value().map(|(&(at, _), _)| at);
            let timer = self.nodes.iter().filter_map(|node| node.device.deadline()).min();
            let Some(next) = [arrival, timer].into_iter().flatten().min().filter(|&next| next <= end) else { break };
            self.advance(next);
            if arrival == Some(next) {
                let (_, (to, from, bytes)) = self.in_flight.pop_first().expect("something arrives");
                if let Some(at) = self.nodes.iter().position(|node| node.addr == to) {
                    let _ = self.deliver(at, from, &bytes);
                }
            } else {
                for at in 0..self.nodes.len() {
                    self.call(at, |_, _, _| ());
                }
            }
        }
        self.advance(end);
    }

    /// Runs for a while, and sends `packet` from each of `senders` every `every`.
    pub fn run_with_traffic(&mut self, time: Duration, every: Duration, senders: &[usize], packet: &[u8]) {
        let end = self.now.boot.after(time);
        while self.now.boot < end {
            for &sender in senders {
                self.send(sender, packet);
            }
            self.run_for(every);
        }
    }

    fn advance(&mut self, to: Boottime) {
        self.now.wall += to.since(self.now.boot);
        self.now.boot = self.now.boot.max(to);
    }

    /// Drops all datagrams in flight.
    pub fn drop_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// Checks what must hold at any time.
    fn check(&self) {
        for node in &self.nodes {
            let mut live = BTreeMap::new();
            for (session, _) in node.host.sessions.values() {
                *live.entry(session.peer).or_insert(0) += 1;
                assert!(session.reserve(0).is_none_or(|next| next < REJECT_AFTER_MESSAGES));
            }
            assert!(live.values().all(|&count| count <= 3), "a peer has at most three sessions");
        }
    }
}

/// Whether node `to` can open what node `from` seals.
pub fn can_open(net: &Net, from: usize, to: usize) -> bool {
    let sender = &net.nodes[from];
    let Some(sealing) = sender.host.sending.get(&sender.peer()) else { return false };
    let Some((opening, _)) = net.nodes[to].host.sessions.get(&sealing.remote) else { return false };
    let counter = 1 << 40;
    let mut buffer = *b"same keys?......................";
    let slot = [Slot { offset: 0, len: 16, counter }];
    sealing.sealing.seal(&mut buffer, &slot);
    opening.opening.open(&mut buffer, &slot).authentic(0) && buffer[..10] == *b"same keys?"
}
