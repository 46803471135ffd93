//! Runs a schedule with real engines and checks what they deliver.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use linerate_engine::config::{DeviceChange, LimitChange, PeerChange, PeerReport};
use linerate_netio::memory::{Fate, MemoryNet, MemorySocket, lock};
use linerate_netio::udp::{Socket, Transmit};
use linerate_packet::gso;
use linerate_protocol::{PeerId, PresharedKey, PrivateKey, PublicKey};

use crate::event::{Ending, Event, Schedule};
use crate::hosts::{Clock, Host, PORT, udp};
use crate::rng::Rng;
use crate::table::{Table, prefix};
use crate::wire::{InFlight, Wire};

const SECOND: Duration = Duration::from_secs(1);

/// Seconds within which hosts that both send receive from each other once the impairments end: 15 s and jitter until
/// silence is noticed, 5 s between handshake messages, and a retry after 5 s and jitter for initiations that cross.
const RECOVERED_WITHIN: u32 = 26;

/// The latency once the impairments have ended.
const LATENCY: Duration = Duration::from_millis(10);

/// Consecutive seconds that count as recovered; a key that could not be renewed in time may still expire after them.
const STABLE_FOR: u32 = 3;

/// Traffic both ways renews a key after 120 s; the hosts send every second.
const RENEWED_WITHIN: Duration = Duration::from_secs(123);

/// Keys are kept for 540 s; an unanswered handshake lasts for 20 tries of up to 5 1/3 s before.
const SILENCE: Duration = Duration::from_secs(540 + 107 + 180);

/// The most packets that are staged for one peer.
const STAGED_MAX: usize = 128;

/// Sessions of one peer: the next, the current and the previous.
const SESSIONS_MAX: usize = 3;

/// A place to which no event moves a host.
const FRESH_PLACE: u8 = 100;

/// The attacker's address, which no host ever has.
const ATTACKER: ([u8; 4], u16) = ([203, 0, 113, 66], 666);

pub struct World {
    now: u64,
    rng: Rng,
    wire: Arc<Mutex<Wire>>,
    /// Delivers datagrams; their source address is set from `arriving`.
    carrier: MemorySocket,
    arriving: Arc<Mutex<Option<InFlight>>>,
    net: MemoryNet,
    ends: Vec<End>,
    sent: Vec<Packet>,
    /// How many packets were delivered.
    delivered: usize,
    asleep: Option<usize>,
}

/// A host and its configuration.
struct End {
    host: Host,
    clock: Clock,
    secret: [u8; 32],
    peers: Vec<Known>,
    table: Table,
    /// The latest wall-clock time that it ever had.
    latest: Duration,
    /// The latest wall-clock time before its last restart: peers have seen timestamps up to this.
    forgotten: Duration,
}

/// One host's configuration of a peer.
#[derive(Clone)]
struct Known {
    who: usize,
    present: bool,
    key: PublicKey,
    psk: [u8; 32],
    keepalive: u16,
    endpoint: SocketAddr,
    /// It is suspended, and these are the bytes received and sent.
    suspended: Option<(u64, u64)>,
}

/// A packet that was given to a tunnel.
struct Packet {
    bytes: Vec<u8>,
    from: usize,
    /// The owner of the destination when it was sent.
    to: Option<usize>,
    arrived: bool,
}

/// Runs a schedule to its end.
///
/// # Panics
/// When a guarantee is broken.
pub fn run(schedule: &Schedule) {
    let mut world = World::new(schedule);
    for event in &schedule.events {
        world.apply(*event);
        world.settle();
        world.check_bounds();
    }
    world.end_impairments();
    world.recover();
    match schedule.ending {
        Ending::AtOnce => {}
        Ending::Traffic => {
            world.keep_sending();
            world.move_spokes();
        }
        Ending::Silence => world.stay_silent(),
    }
    world.check_bounds();
}

fn inner(host: usize) -> [u8; 4] {
    [10, 0, 0, host as u8 + 1]
}

impl World {
    fn new(schedule: &Schedule) -> Self {
        let net = MemoryNet::new(10_000);
        let mut rng = Rng::new(schedule.seed.rotate_left(32));
        let clocks: Vec<_> = (0..schedule.hosts).map(|_| Clock::new()).collect();
        let hosts: Vec<_> = (1..).zip(&clocks).map(|(seed, clock)| new_host(&net, clock, seed, &mut rng)).collect();
        let mut wire = Wire::new(schedule.seed, hosts.iter().map(|host| host.outer).collect());
        wire.now = clocks[0].boot().0;
        let wire = Arc::new(Mutex::new(wire));
        let arriving = Arc::new(Mutex::new(None::<InFlight>));
        let (network, brought) = (wire.clone(), arriving.clone());
        net.set_fate(move |datagram| match lock(&brought).take() {
            Some(in_flight) => {
                *datagram = in_flight.datagram;
                Fate::Deliver
            }
            None => {
                lock(&network).send(datagram.clone());
                Fate::Lose
            }
        });
        let public: Vec<_> = hosts.iter().map(|host| (host.public_key, host.outer)).collect();
        let end = |(index, (host, clock)): (usize, (Host, Clock))| {
            let peers = peers_of(index, schedule.hosts).map(|who| Known {
                who,
                present: true,
                key: public[who].0,
                psk: [0; 32],
                keepalive: 0,
                endpoint: public[who].1,
                suspended: None,
            });
            End {
                secret: [index as u8 + 1; 32],
                peers: peers.collect(),
                table: standard_table(index, schedule.hosts),
                latest: clock.wall(),
                forgotten: Duration::ZERO,
                host,
                clock,
            }
        };
        let ends: Vec<_> = hosts.into_iter().zip(clocks).enumerate().map(end).collect();
        let carrier = net.socket(([198, 51, 100, 99], 9).into()).expect("the address is free");
        let now = ends[0].clock.boot().0;
        let (sent, delivered, asleep) = (Vec::new(), 0, None);
        let mut world = Self { now, rng, wire, carrier, arriving, net, ends, sent, delivered, asleep };
        (0..world.ends.len()).for_each(|host| world.configure(host));
        world
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Send { from, packets } => (0..packets).for_each(|_| self.send_any(from)),
            Event::Pause { millis } => self.pass(Duration::from_millis(millis)),
            Event::Impairments(impairments) => self.wire().impairments = impairments,
            Event::Restart { host } => self.restart(host),
            Event::Bounce { host } => self.bounce(host),
            Event::Suspend { host, secs } => self.suspend(host, secs),
            Event::SetClock { host, secs } => self.set_clock(host, secs),
            Event::Move { host, place } => self.move_to(host, place),
            Event::NewKey { host, sync_peers } => self.new_key(host, sync_peers),
            Event::NewPresharedKey { host, peer, sync_peers } => self.new_preshared_key(host, peer, sync_peers),
            Event::Allow { host, peer, prefix } => self.set_allowed_ip(host, peer, prefix, true),
            Event::Forbid { host, peer, prefix } => self.set_allowed_ip(host, peer, prefix, false),
            Event::Keepalive { host, peer, secs } => self.set_keepalive(host, peer, secs),
            Event::Limit { host, peer, expires, quota } => {
                let expires = expires.map(|secs| self.ends[host].clock.wall() + Duration::from_secs(secs));
                self.set_limits(host, peer, expires, quota);
            }
            Event::RemovePeer { host, peer, again } => {
                self.remove_peer(host, peer);
                if again {
                    self.add_peer(host, peer);
                }
            }
            Event::Replay { datagrams } => self.wire().replay(datagrams),
            Event::Forge { datagrams } => self.wire().forge(ATTACKER.into(), datagrams),
        }
    }
}

/// Packets.
impl World {
    /// Sends a packet, sometimes from a foreign address or to an unknown one.
    fn send_any(&mut self, from: usize) {
        let peer = self.rng.pick(&peers_of(from, self.ends.len()).collect::<Vec<_>>());
        let other = [10, 0, 1, 1 + self.rng.below(4) as u8];
        let source = if self.rng.chance(70) { inner(from) } else { self.rng.pick(&[other, inner(peer), inner(2)]) };
        let destination = if self.rng.chance(70) { inner(peer) } else { other };
        self.send(from, source, destination);
    }

    /// Gives the host's tunnel a packet; returns its number.
    fn send(&mut self, from: usize, source: [u8; 4], destination: [u8; 4]) -> usize {
        let number = self.sent.len();
        let len = if self.rng.chance(90) { self.rng.below(64) } else { self.rng.below(1360) };
        let payload = [&(number as u32).to_be_bytes()[..], &vec![number as u8; len as usize]].concat();
        let bytes = udp(IpAddr::from(source), IpAddr::from(destination), &payload);
        self.ends[from].host.send(&bytes);
        let to = self.ends[from].table.owner(destination);
        self.sent.push(Packet { bytes, from, to, arrived: false });
        // Routed now, before the configuration changes.
        self.settle();
        number
    }

    /// Checks what came out of the host's tunnel.
    fn collect(&mut self, host: usize) {
        while let Some((header, packet)) = self.ends[host].host.receive() {
            let split = gso::Split::new(&header, &packet).expect("the engine writes what can be split");
            for segment in 0..split.count() {
                let mut packet = vec![0; split.len(segment)];
                split.write(segment, &mut packet);
                self.check_delivered(host, &packet);
            }
        }
    }

    /// Checks one delivered packet.
    fn check_delivered(&mut self, host: usize, packet: &[u8]) {
        const ICMP: u8 = 1;
        if packet[9] == ICMP {
            // The engine's own ICMP error.
            return;
        }
        let number = packet.get(28..32).map(|number| u32::from_be_bytes(number.try_into().unwrap()) as usize);
        let known = number.and_then(|number| self.sent.get_mut(number)).filter(|sent| sent.bytes == packet);
        let Some(sent) = known else { panic!("host {host} is given a packet that was not sent: {packet:?}") };
        assert!(!sent.arrived, "host {host} is given packet {number:?} twice");
        assert_eq!(sent.to, Some(host), "packet {number:?} comes to another host than it was for");
        let source = packet[12..16].try_into().unwrap();
        let owner = self.ends[host].table.owner(source);
        assert_eq!(owner, Some(sent.from), "packet {number:?} comes from an address that is not its sender's");
        sent.arrived = true;
        self.delivered += 1;
    }
}

/// Time.
impl World {
    fn pass(&mut self, time: Duration) {
        let end = self.now + time.as_nanos() as u64;
        let mut steps = 0;
        while self.now < end {
            let awake = (0..self.ends.len()).filter(|host| self.asleep != Some(*host));
            let deadlines = awake.filter_map(|host| self.ends[host].host.slow_path.deadline());
            let next = deadlines.map(|at| at.0).chain(self.wire().next_due()).min();
            self.advance(next.unwrap_or(end).clamp(self.now + 1, end));
            self.settle();
            steps += 1;
            assert!(steps < 20_000, "timers fire without end");
        }
    }

    fn advance(&mut self, to: u64) {
        let by = Duration::from_nanos(to - self.now);
        for (host, end) in self.ends.iter_mut().enumerate() {
            if self.asleep == Some(host) {
                end.clock.suspend(by)
            } else {
                end.clock.advance(by)
            }
            end.latest = end.latest.max(end.clock.wall());
        }
        self.now = to;
        self.wire().now = to;
    }

    /// Runs until nothing more happens without time passing.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let arrived = self.arrivals();
            if !self.work() && !arrived {
                return;
            }
        }
        panic!("the hosts never become idle");
    }

    fn work(&mut self) -> bool {
        let mut worked = false;
        for host in (0..self.ends.len()).filter(|host| self.asleep != Some(*host)).collect::<Vec<_>>() {
            worked |= self.ends[host].host.slow_path.process();
            worked |= self.ends[host].host.carry();
            self.collect(host);
        }
        worked
    }

    fn arrivals(&mut self) -> bool {
        let datagrams = self.wire().arrivals();
        let (stale, fresh): (Vec<_>, Vec<_>) =
            datagrams.into_iter().partition(|in_flight| in_flight.is_stale_data(self.now));
        let any = !fresh.is_empty() || !stale.is_empty();
        fresh.into_iter().for_each(|in_flight| self.bring(in_flight));
        if !stale.is_empty() {
            while self.work() {}
            let before = self.delivered;
            stale.into_iter().for_each(|in_flight| self.bring(in_flight));
            while self.work() {}
            assert_eq!(self.delivered, before, "what was on its way for 180 s is delivered");
        }
        any
    }

    fn bring(&mut self, in_flight: InFlight) {
        let (to, contents) = (in_flight.datagram.to, in_flight.datagram.contents.clone());
        *lock(&self.arriving) = Some(in_flight);
        let transmit = Transmit { to, from: None, tos: 0, segment: None, contents: &contents };
        self.carrier.send(&[transmit]).expect("the memory network takes everything");
    }
}

/// Events of a host.
impl World {
    fn restart(&mut self, host: usize) {
        self.wire().end_sessions(host);
        self.wire().forget_answers(host);
        let end = &mut self.ends[host];
        end.forgotten = end.latest;
        end.host.slow_path.down();
        end.host = new_host(&self.net, &end.clock, host as u8 + 1, &mut self.rng);
        self.wire().addresses[host] = self.ends[host].host.outer;
        self.configure(host);
    }

    fn bounce(&mut self, host: usize) {
        self.wire().end_sessions(host);
        self.ends[host].host.slow_path.down();
        // The memory backend opens its sockets at the original address.
        self.wire().addresses[host] = self.ends[host].host.outer;
        self.ends[host].host.slow_path.up().expect("the port was free before");
    }

    fn suspend(&mut self, host: usize, secs: u64) {
        self.asleep = Some(host);
        self.pass(Duration::from_secs(secs));
        self.asleep = None;
        self.wire().end_sealing(host);
    }

    fn set_clock(&mut self, host: usize, secs: i64) {
        let end = &mut self.ends[host];
        let by = Duration::from_secs(secs.unsigned_abs());
        let wall = if secs < 0 { end.clock.wall() - by } else { end.clock.wall() + by };
        end.clock.set_wall(wall);
        end.latest = end.latest.max(wall);
    }

    fn move_to(&mut self, host: usize, place: u8) {
        let address = SocketAddr::from(([198, 51, 100, 4 * host as u8 + place], PORT + u16::from(place)));
        if self.wire().addresses[host] != address {
            let sockets = self.ends[host].host.shared.sockets.load_full().expect("the host is up");
            sockets.v4[0].0.move_to(address).expect("the address is free");
            self.wire().addresses[host] = address;
        }
    }
}

/// Configuration.
impl World {
    /// Configures a new host.
    fn configure(&mut self, host: usize) {
        let secret = PrivateKey::new(&self.ends[host].secret);
        self.ends[host]
            .host
            .slow_path
            .set(DeviceChange { private_key: Some(secret), ..DeviceChange::default() })
            .unwrap();
        self.ends[host].host.public_key = self.public_key(host);
        self.ends[host].peers.iter_mut().for_each(|known| known.suspended = None);
        for known in self.ends[host].peers.clone().into_iter().filter(|known| known.present) {
            self.configure_peer(host, known.who, true);
        }
    }

    fn public_key(&self, host: usize) -> PublicKey {
        PrivateKey::new(&self.ends[host].secret).expect("random keys are not zero").public_key()
    }

    fn known(&mut self, host: usize, peer: usize) -> &mut Known {
        self.ends[host].peers.iter_mut().find(|known| known.who == peer).expect("the event names a peer")
    }

    /// Applies the configuration of a peer.
    fn configure_peer(&mut self, host: usize, peer: usize, endpoint: bool) {
        let known = self.known(host, peer).clone();
        let change = PeerChange {
            preshared_key: Some(PresharedKey::new(&known.psk)),
            endpoint: endpoint.then_some(known.endpoint),
            persistent_keepalive: Some(known.keepalive),
            replace_allowed_ips: true,
            allowed_ips: self.ends[host].table.of(peer),
            ..PeerChange::new(known.key)
        };
        self.ends[host].host.set_peer(change);
    }

    fn remove_peer(&mut self, host: usize, peer: usize) {
        let key = self.known(host, peer).key;
        self.known(host, peer).present = false;
        self.known(host, peer).suspended = None;
        self.ends[host].host.set_peer(PeerChange { remove: true, ..PeerChange::new(key) });
        self.ends[host].table.forget(peer);
        self.wire().forget_answers(host);
        if host > 0 || self.ends.len() == 2 {
            self.wire().end_sessions(host);
        }
    }

    fn add_peer(&mut self, host: usize, peer: usize) {
        self.known(host, peer).present = true;
        self.ends[host].table.allow((inner(peer), 32), peer);
        self.configure_peer(host, peer, true);
    }

    fn new_key(&mut self, host: usize, sync_peers: bool) {
        self.settle();
        self.ends[host].secret = self.rng.key();
        self.wire().end_sessions(host);
        let secret = PrivateKey::new(&self.ends[host].secret);
        self.ends[host]
            .host
            .slow_path
            .set(DeviceChange { private_key: Some(secret), ..DeviceChange::default() })
            .unwrap();
        if sync_peers {
            peers_of(host, self.ends.len()).for_each(|peer| self.learn_key(peer, host));
        }
    }

    /// Replaces the peer, because another key is another peer.
    fn learn_key(&mut self, host: usize, peer: usize) {
        let key = self.public_key(peer);
        if self.known(host, peer).key != key {
            let (present, table) = (self.known(host, peer).present, self.ends[host].table.clone());
            self.remove_peer(host, peer);
            self.known(host, peer).key = key;
            if present {
                self.ends[host].table = table;
                self.known(host, peer).present = true;
                self.configure_peer(host, peer, true);
            }
        }
    }

    fn new_preshared_key(&mut self, host: usize, peer: usize, sync_peers: bool) {
        let psk = self.rng.key();
        self.set_preshared_key(host, peer, psk);
        if sync_peers {
            self.set_preshared_key(peer, host, psk);
        }
    }

    fn set_preshared_key(&mut self, host: usize, peer: usize, psk: [u8; 32]) {
        self.known(host, peer).psk = psk;
        if self.known(host, peer).present {
            let preshared_key = Some(PresharedKey::new(&psk));
            let key = self.known(host, peer).key;
            self.ends[host].host.set_peer(PeerChange { preshared_key, ..PeerChange::new(key) });
        }
    }

    fn set_keepalive(&mut self, host: usize, peer: usize, secs: u16) {
        self.known(host, peer).keepalive = secs;
        if self.known(host, peer).present {
            let key = self.known(host, peer).key;
            let persistent_keepalive = Some(secs);
            self.ends[host].host.set_peer(PeerChange { persistent_keepalive, ..PeerChange::new(key) });
        }
    }

    fn set_limits(&mut self, host: usize, peer: usize, expires: Option<Duration>, quota: Option<u64>) {
        if self.known(host, peer).present {
            self.known(host, peer).suspended = None;
            let key = self.known(host, peer).key;
            let limits = Some(LimitChange { expires: Some(expires), quota: Some(quota), ..LimitChange::default() });
            self.ends[host].host.set_peer(PeerChange { limits, ..PeerChange::new(key) });
        }
    }

    /// Not a byte is exchanged with a suspended peer.
    fn check_suspended(&mut self, host: usize, state: &PeerReport) {
        let Some(known) = self.ends[host].peers.iter_mut().find(|known| known.key == state.public_key) else { return };
        let transfer = state.limits.suspended.map(|_| (state.rx_bytes, state.tx_bytes));
        let before = std::mem::replace(&mut known.suspended, transfer);
        assert!(
            before.is_none() || before == transfer,
            "host {host}: {before:?}, then {transfer:?} of {:?}",
            known.who
        );
    }

    /// Adds an allowed IP, or removes it.
    fn set_allowed_ip(&mut self, host: usize, peer: usize, net: ([u8; 4], u8), add: bool) {
        if self.known(host, peer).present {
            let table = &mut self.ends[host].table;
            if add {
                table.allow(net, peer)
            } else {
                table.forbid(net, peer)
            }
            let key = self.known(host, peer).key;
            let allowed_ips = vec![(add, prefix(net))];
            self.ends[host].host.set_peer(PeerChange { allowed_ips, ..PeerChange::new(key) });
        }
    }
}

/// Recovery.
impl World {
    /// Ends the impairments and makes the configurations agree.
    fn end_impairments(&mut self) {
        self.wire().end_impairments(LATENCY);
        // Late datagrams arrive first: they may set endpoints to addresses that hosts have left.
        self.settle();
        for spoke in 1..self.ends.len() {
            let psk = self.known(0, spoke).psk;
            self.known(spoke, 0).psk = psk;
            let hub = self.wire().addresses[0];
            self.known(spoke, 0).endpoint = hub;
            self.set_limits(0, spoke, None, None);
            self.set_limits(spoke, 0, None, None);
            self.agree(0, spoke, false);
            self.agree(spoke, 0, true);
        }
        self.settle();
        for spoke in 1..self.ends.len() {
            self.correct_clock(spoke);
        }
    }

    /// Corrects the configuration of a peer, with its endpoint or leaving that to roaming.
    fn agree(&mut self, host: usize, peer: usize, endpoint: bool) {
        self.learn_key(host, peer);
        let returns = !self.known(host, peer).present;
        self.known(host, peer).present = true;
        self.ends[host].table.forget(peer);
        self.ends[host].table.allow((inner(peer), 32), peer);
        self.configure_peer(host, peer, endpoint || returns);
    }

    /// Sets the clock of a host that restarted with a clock behind its old timestamps: its initiations would be refused
    /// until then, unless its peer starts the handshake.
    fn correct_clock(&mut self, spoke: usize) {
        let behind = |end: &End| end.clock.wall() <= end.forgotten + 2 * SECOND;
        let found = self.peer_state(0, spoke).endpoint == Some(self.wire().addresses[spoke]);
        if behind(&self.ends[spoke]) && (behind(&self.ends[0]) || !found) {
            let end = &mut self.ends[spoke];
            end.clock.set_wall(end.forgotten + 3 * SECOND);
            end.latest = end.latest.max(end.clock.wall());
        }
    }

    fn peer_state(&mut self, host: usize, peer: usize) -> PeerReport {
        let key = self.known(host, peer).key;
        let peers = self.ends[host].host.slow_path.get().peers;
        peers.into_iter().find(|state| state.public_key == key).expect("the host knows its peer")
    }

    /// All hosts send every second, until everything arrives.
    fn recover(&mut self) {
        let mut stable = 0;
        for second in 1.. {
            let lost = self.exchange();
            stable = if lost.is_empty() { stable + 1 } else { 0 };
            if stable == STABLE_FOR {
                break;
            }
            let since = second - stable;
            assert!(since < RECOVERED_WITHIN, "still lost {since} s after the impairments: {lost:?}");
        }
        for spoke in 1..self.ends.len() {
            let found = self.peer_state(0, spoke).endpoint;
            assert_eq!(found, Some(self.wire().addresses[spoke]), "the hub has the wrong endpoint");
        }
    }

    /// All send and a second passes; returns the pairs of sender and receiver whose packet was lost.
    fn exchange(&mut self) -> Vec<(usize, usize)> {
        let numbers = self.send_all();
        self.pass(SECOND);
        self.lost(&numbers)
    }

    /// All send a packet to each peer; returns their numbers.
    fn send_all(&mut self) -> Vec<usize> {
        let ways: Vec<_> = (1..self.ends.len()).flat_map(|spoke| [(0, spoke), (spoke, 0)]).collect();
        ways.into_iter().map(|(from, to)| self.send(from, inner(from), inner(to))).collect()
    }

    fn lost(&self, numbers: &[usize]) -> Vec<(usize, usize)> {
        let lost = numbers.iter().map(|number| &self.sent[*number]).filter(|packet| !packet.arrived);
        lost.map(|packet| (packet.from, packet.to.expect("it has an owner"))).collect()
    }

    fn keep_sending(&mut self) {
        (0..RECOVERED_WITHIN).for_each(|_| drop(self.exchange()));
        for second in 0..270 {
            // The second packet is sent during the handshake that the first may have started.
            let before = self.send_all();
            self.pass(LATENCY / 2);
            assert_eq!(self.exchange(), [], "a packet is lost in a good network");
            assert_eq!(self.lost(&before), [], "a packet is lost in a good network");
            // By now all handshakes are younger than the last change of a clock.
            for host in (0..self.ends.len()).filter(|_| second > RENEWED_WITHIN.as_secs()) {
                let now = self.ends[host].clock.wall();
                for peer in peers_of(host, self.ends.len()) {
                    let age = now.abs_diff(self.peer_state(host, peer).last_handshake);
                    assert!(age <= RENEWED_WITHIN, "host {host} keeps its keys for {age:?}");
                }
            }
        }
    }

    /// One packet is enough for the hub to learn the new address of its sender.
    fn move_spokes(&mut self) {
        for spoke in 1..self.ends.len() {
            self.move_to(spoke, FRESH_PLACE);
            self.send(spoke, inner(spoke), inner(0));
            self.pass(SECOND);
            let found = self.peer_state(0, spoke).endpoint;
            assert_eq!(found, Some(self.wire().addresses[spoke]), "host 0 does not follow host {spoke}");
        }
        assert_eq!(self.exchange(), [], "lost after a move");
    }

    fn stay_silent(&mut self) {
        for host in 0..self.ends.len() {
            peers_of(host, self.ends.len()).for_each(|peer| self.set_keepalive(host, peer, 0));
        }
        let before = self.wire().sent_count;
        self.pass(SILENCE);
        let sent = self.wire().sent_count - before;
        assert!(sent < 20 * self.ends.len() as u64, "{sent} datagrams are sent in silence");
        for host in 0..self.ends.len() {
            assert_eq!(self.ends[host].host.slow_path.deadline(), None, "host {host} waits for something");
            assert_eq!(self.sessions(host), 0, "host {host} keeps keys");
        }
    }

    fn sessions(&self, host: usize) -> usize {
        let tables = &self.ends[host].host.shared.tables;
        self.wire().indices().filter(|index| tables.receiver(*index).is_some()).count()
    }

    fn check_bounds(&mut self) {
        for host in 0..self.ends.len() {
            let peers = self.ends[host].peers.len();
            let sessions = self.sessions(host);
            assert!(sessions <= SESSIONS_MAX * peers, "host {host} has {sessions} sessions with {peers} peers");
            for state in self.ends[host].host.slow_path.get().peers {
                assert_ne!(state.endpoint, Some(ATTACKER.into()), "host {host} took the attacker for its peer");
                self.check_suspended(host, &state);
            }
            let routes = self.ends[host].host.shared.tables.routes();
            for peer in (0..=peers as u32).filter_map(|id| routes.peer(PeerId(id))) {
                assert!(peer.staged.lock().unwrap().len() <= STAGED_MAX, "host {host} stages without bound");
            }
        }
    }
}

fn peers_of(host: usize, hosts: usize) -> std::ops::Range<usize> {
    if host == 0 { 1..hosts } else { 0..1 }
}

fn standard_table(host: usize, hosts: usize) -> Table {
    let mut table = Table::default();
    peers_of(host, hosts).for_each(|peer| table.allow((inner(peer), 32), peer));
    table
}

fn new_host(net: &MemoryNet, clock: &Clock, seed: u8, rng: &mut Rng) -> Host {
    Host::with_random(net, clock, seed, rng.number())
}
