//! Clients of a fleet of gateways: each is a protocol's state machine of its own, with a socket of its own at an address of its
//! own, as a phone has. They begin a session each, send data, and note when another gateway has taken them over: when the first
//! authentic message of a session comes that it has begun.
//!
//! They never begin by themselves after that. A standard client would 15 s after its gateway's death, so who is not taken by then
//! is not counted as taken.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_aead::{Slot, TAG_LEN};
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_lab::subject::KeyPair;
use linerate_lab::{Doing, Error, Result};
use linerate_protocol::{
    DATA_HEADER, DataHeader, Device, Effects, HandshakeFilter, MessageKind, PeerId, PrivateKey,
    PublicKey as ProtocolKey, Session, TrafficTimestamps, classify,
};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::initiators::{Kernel, now};

/// The first address; the clients have those after it.
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// The port of each.
const PORT: u16 = 40000;

/// Handshakes that a thread has under way while sessions begin: no gateway takes them for a flood.
const OUTSTANDING: usize = 32;

/// After this a handshake is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A standard client would begin by itself, after a gateway's death.
const BEGINS_ITSELF: Duration = Duration::from_secs(15);

/// How often threads look for other things than datagrams.
const LOOK: Duration = Duration::from_millis(5);

/// Sockets that have something to read, at once.
const EVENTS: usize = 256;

/// Room for any handshake message and for short data.
const LONGEST: usize = 256;

/// The keys of the client of that number, the same in each run with `seed`: for tests only.
#[must_use]
pub fn keys(seed: u64, number: u32) -> KeyPair {
    let mut bytes = [0; 32];
    fastrand::Rng::with_seed(seed.wrapping_mul(1 << 20).wrapping_add(number.into())).fill(&mut bytes);
    // Not all zero, which is no key.
    bytes[31] |= 64;
    let secret = PrivateKey::new(&bytes).expect("a key with a bit set is not all zero");
    let private = SecretKey::from_bytes(secret.as_bytes());
    KeyPair { private, public: PublicKey(secret.public_key().0) }
}

/// What the clients are to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The address of the fleet.
    pub to: SocketAddr,
    /// The fleet's key.
    pub gateway: PublicKey,
    /// How many clients there are.
    pub clients: u32,
    /// What their keys are made of.
    pub seed: u64,
    /// Messages that all of them send in a second.
    pub rate: u32,
    /// Threads.
    pub threads: u32,
}

/// What came of a gateway's death.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenReport {
    /// Milliseconds from the death until each client that was taken over could send again, in order.
    pub taken_ms: Vec<f64>,
    /// Initiations that clients received.
    pub initiations: u64,
    /// Processor seconds of the clients in that time.
    pub processor_seconds: f64,
}

/// Clients that run, on threads of their own.
pub struct FleetClients {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<Result<Vec<u64>>>>,
    plan: Plan,
}

#[derive(Default)]
struct Shared {
    has_sessions: AtomicUsize,
    taken: AtomicUsize,
    initiations: AtomicU64,
    ends: AtomicBool,
}

impl FleetClients {
    /// Starts them.
    ///
    /// # Errors
    ///
    /// A key allows no handshake, or a socket cannot be opened.
    pub fn start(plan: Plan) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let filter: Arc<HandshakeFilter> = Arc::default();
        let share = plan.clients.div_ceil(plan.threads.max(1)).max(1);
        let threads = (0..plan.clients).step_by(share as usize).map(|first| {
            let (shared, filter) = (Arc::clone(&shared), Arc::clone(&filter));
            let numbers = first..plan.clients.min(first + share);
            thread::spawn(move || {
                let clients: Result<Vec<_>> = numbers.map(|number| Client::new(&filter, &plan, number)).collect();
                Part::new(clients?, &plan, &shared)?.run()
            })
        });
        let threads = threads.collect();
        Ok(Self { shared, threads, plan })
    }

    /// Waits until all have sessions, for so long. Returns how many have.
    #[must_use]
    pub fn wait_for_sessions(&self, time: Duration) -> usize {
        let until = Instant::now() + time;
        while self.sessions() < self.plan.clients as usize && Instant::now() < until && !self.has_failed() {
            thread::sleep(LOOK);
        }
        self.sessions()
    }

    fn sessions(&self) -> usize {
        self.shared.has_sessions.load(Ordering::Relaxed)
    }

    fn has_failed(&self) -> bool {
        self.threads.iter().any(thread::JoinHandle::is_finished)
    }

    /// Their gateway died at `death`, as the clock says: waits until all are taken over, or would begin by themselves.
    ///
    /// # Errors
    ///
    /// A socket has failed.
    pub fn wait_until_taken(self, death: SystemTime) -> Result<TakenReport> {
        let used = processor_time();
        let until = death + BEGINS_ITSELF;
        while self.shared.taken.load(Ordering::Relaxed) < self.plan.clients as usize
            && SystemTime::now() < until
            && !self.has_failed()
        {
            thread::sleep(LOOK);
        }
        let processor_seconds = (processor_time() - used).as_secs_f64();
        self.shared.ends.store(true, Ordering::Relaxed);
        let death = micros(death);
        let mut taken = Vec::new();
        for thread in self.threads {
            taken.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        taken.sort_unstable();
        let taken_ms = taken.iter().filter(|at| **at >= death).map(|at| (at - death) as f64 / 1e3).collect();
        let initiations = self.shared.initiations.load(Ordering::Relaxed);
        Ok(TakenReport { taken_ms, initiations, processor_seconds })
    }
}

/// Clients of one thread.
struct Part {
    clients: Vec<Client>,
    readable: std::os::fd::OwnedFd,
    rate: f64,
    shared: Arc<Shared>,
    /// The next to begin, and those under way.
    fresh: usize,
    begun: Vec<(Instant, usize)>,
    sent_by: usize,
    owed: f64,
    looked: Instant,
}

impl Part {
    fn new(clients: Vec<Client>, plan: &Plan, shared: &Arc<Shared>) -> Result<Self> {
        let waiting = || "waiting for many sockets".into();
        let readable = epoll::create(epoll::CreateFlags::CLOEXEC).doing(waiting)?;
        for (number, client) in clients.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&readable, &client.socket, data, epoll::EventFlags::IN).doing(waiting)?;
        }
        let rate = f64::from(plan.rate) * clients.len() as f64 / f64::from(plan.clients.max(1));
        let (shared, looked) = (Arc::clone(shared), Instant::now());
        Ok(Self { clients, readable, rate, shared, fresh: 0, begun: Vec::new(), sent_by: 0, owed: 0.0, looked })
    }

    /// Works until the clients are to end. Returns when each was taken over.
    fn run(mut self) -> Result<Vec<u64>> {
        let mut events = Vec::with_capacity(EVENTS);
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        while !self.shared.ends.load(Ordering::Relaxed) {
            events.clear();
            match epoll::wait(&self.readable, rustix::buffer::spare_capacity(&mut events), Some(&look)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(std::io::Error::from(error)).doing(|| "waiting for datagrams".into()),
            }
            for event in &events {
                self.read(event.data.u64() as usize);
            }
            if self.looked.elapsed() >= LOOK {
                self.begin_sessions();
                self.send_data(self.looked.elapsed());
                self.looked = Instant::now();
            }
        }
        Ok(self.clients.iter().filter_map(|client| client.taken).collect())
    }

    fn read(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let mut buffer = [0; LONGEST];
        // What was refused for a moment while no gateway had the address is an error of the socket, and no datagram.
        let Ok(length) = client.socket.recv(&mut buffer) else { return };
        let (had_session, was_taken) = (client.sending.is_some(), client.taken.is_some());
        let kind = client.handle(&mut buffer[..length]);
        let shared = &self.shared;
        shared.initiations.fetch_add(u64::from(kind == Some(MessageKind::Initiation)), Ordering::Relaxed);
        shared.has_sessions.fetch_add(usize::from(!had_session && client.sending.is_some()), Ordering::Relaxed);
        shared.taken.fetch_add(usize::from(!was_taken && client.taken.is_some()), Ordering::Relaxed);
        if kind == Some(MessageKind::Cookie) && client.sending.is_none() {
            client.begin();
        }
    }

    fn begin_sessions(&mut self) {
        if self.fresh == self.clients.len() && self.begun.is_empty() {
            return;
        }
        let clients = &mut self.clients;
        self.begun.retain_mut(|(begun, number)| {
            if clients[*number].sending.is_none() && begun.elapsed() >= AGAIN {
                clients[*number].begin();
                *begun = Instant::now();
            }
            clients[*number].sending.is_none()
        });
        while self.begun.len() < OUTSTANDING && self.fresh < clients.len() {
            clients[self.fresh].begin();
            self.begun.push((Instant::now(), self.fresh));
            self.fresh += 1;
        }
    }

    /// Lets clients send in turn.
    fn send_data(&mut self, time: Duration) {
        self.owed = (self.owed + self.rate * time.as_secs_f64()).min(self.clients.len() as f64);
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            self.clients[self.sent_by].send();
            self.sent_by = (self.sent_by + 1) % self.clients.len();
        }
    }
}

struct Client {
    device: Device,
    gateway: PeerId,
    traffic: Arc<TrafficTimestamps>,
    socket: UdpSocket,
    sessions: Vec<Arc<Session>>,
    sending: Option<Arc<Session>>,
    /// When another gateway's session could be used, since 1970 in microseconds.
    taken: Option<u64>,
}

impl Client {
    fn new(filter: &Arc<HandshakeFilter>, plan: &Plan, number: u32) -> Result<Self> {
        let refused = || Error::Refused("this key of a gateway allows no handshake".into());
        let mut device = Device::with_filter(Arc::clone(filter));
        let secret = PrivateKey::new(keys(plan.seed, number).private.as_bytes()).ok_or_else(refused)?;
        device.set_private_key(now(), &mut Kernel, Some(secret), &mut Effect::default());
        let traffic = Arc::new(TrafficTimestamps::new());
        let gateway = device.add_peer(ProtocolKey(plan.gateway.0), Arc::clone(&traffic)).map_err(|_| refused())?;
        device.up(now(), &mut Kernel, &mut Effect::default());
        let address = Ipv4Addr::from_bits(FIRST.to_bits() + 1 + number);
        let socket = UdpSocket::bind((address, PORT)).and_then(|socket| socket.connect(plan.to).map(|()| socket));
        let socket = socket.doing(|| format!("opening a socket at {address}"))?;
        socket.set_nonblocking(true).doing(|| format!("opening a socket at {address}"))?;
        Ok(Self { device, gateway, traffic, socket, sessions: Vec::new(), sending: None, taken: None })
    }

    /// Begins a session, again if one was begun.
    fn begin(&mut self) {
        let effect = &mut Effect::default();
        // An interface that was down may send at once, and keeps its cookie.
        self.device.down(effect);
        self.device.up(now(), &mut Kernel, effect);
        let _ = self.traffic.request_handshake();
        self.device.woken(now(), &mut Kernel, self.gateway, effect);
        self.carry_out(std::mem::take(effect));
    }

    /// Takes a datagram. Returns what it was, if it was good.
    fn handle(&mut self, datagram: &mut [u8]) -> Option<MessageKind> {
        let kind = classify(datagram).ok()?;
        let effect = &mut Effect::default();
        if kind == MessageKind::Data {
            let session = self.open(datagram)?;
            if !session.initiator && self.taken.is_none() {
                self.taken = Some(micros(SystemTime::now()));
            }
            if session.confirm() {
                self.device.confirmed(now(), &session, effect);
            }
        } else {
            let source = (Ipv4Addr::UNSPECIFIED, 0).into();
            self.device.handle(now(), &mut Kernel, source, 0, datagram, effect).ok()?;
        }
        self.carry_out(std::mem::take(effect));
        Some(kind)
    }

    fn carry_out(&mut self, effect: Effect) {
        for message in &effect.messages {
            let _ = self.socket.send(message);
        }
        self.sessions.retain(|session| !effect.gone.contains(&session.local));
        self.sessions.extend(effect.new);
        if let Some(sending) = effect.sending {
            self.sending = sending;
        }
        if effect.sends {
            self.send();
        }
    }

    /// Sends a keepalive.
    fn send(&self) {
        let Some(session) = &self.sending else { return };
        let Some(counter) = session.reserve(1) else { return };
        let mut datagram = [0; DATA_HEADER + TAG_LEN];
        DataHeader { receiver: session.remote, counter }.encode(&mut datagram);
        session.sealing.seal(&mut datagram, &[Slot { offset: DATA_HEADER, len: 0, counter }]);
        // The network may have no way for a moment.
        let _ = self.socket.send(&datagram);
    }

    fn open(&self, datagram: &mut [u8]) -> Option<Arc<Session>> {
        let DataHeader { receiver, counter } = DataHeader::decode(datagram);
        let session = self.sessions.iter().find(|session| session.local == receiver)?;
        let len = datagram.len().checked_sub(DATA_HEADER + TAG_LEN)?;
        let opened = session.opening.open(datagram, &[Slot { offset: DATA_HEADER, len, counter }]);
        opened.authentic(0).then(|| Arc::clone(session))
    }
}

/// What a client is to do.
#[derive(Default)]
struct Effect {
    messages: Vec<Vec<u8>>,
    new: Vec<Arc<Session>>,
    gone: Vec<u32>,
    sending: Option<Option<Arc<Session>>>,
    sends: bool,
}

impl Effects for Effect {
    fn send(&mut self, _: PeerId, message: &[u8]) {
        self.messages.push(message.into());
    }

    fn reply(&mut self, message: &[u8]) {
        self.messages.push(message.into());
    }

    fn session_added(&mut self, session: &Arc<Session>) {
        self.new.push(Arc::clone(session));
    }

    fn session_removed(&mut self, session: &Arc<Session>) {
        self.gone.push(session.local);
    }

    fn set_sending_session(&mut self, _: PeerId, session: Option<&Arc<Session>>) {
        self.sending = Some(session.cloned());
    }

    fn send_keepalive(&mut self, _: PeerId) {
        self.sends = true;
    }

    fn has_endpoint(&self, _: PeerId) -> bool {
        true
    }

    fn roam(&mut self, _: PeerId) {}
    fn send_staged(&mut self, _: PeerId) {}
    fn drop_staged(&mut self, _: PeerId) {}
    fn forget_source_addr(&mut self, _: PeerId) {}
    fn handshake_done(&mut self, _: PeerId, _: Duration) {}
}

fn micros(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// What this process has used of the processors.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_keys_of_their_own_and_the_same_in_each_run() {
        let public = |seed, number| keys(seed, number).public;
        assert_eq!(public(1, 2), public(1, 2));
        assert!(public(1, 2) != public(1, 3) && public(1, 2) != public(2, 2));
    }
}
