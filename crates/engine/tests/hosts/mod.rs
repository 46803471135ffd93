//! Hosts without a kernel: whole engines on the memory backend, in one thread, with a simulated clock.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, HashSet};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_engine::backend::Backend;
use linerate_engine::config::{DeviceChange, PeerChange};
use linerate_engine::inbound::Inbound;
use linerate_engine::outbound::Outbound;
use linerate_engine::sequencer::Sequencer;
use linerate_engine::shared::Shared;
use linerate_engine::slow_path::SlowPath;
use linerate_netio::memory::{MemoryNet, MemorySocket, MemoryTun};
use linerate_netio::tun::{Tun, TunOffloads};
use linerate_netio::udp::{BoundSockets, PacketInfo, Received, Socket, Transmit, UdpOffloads};
use linerate_packet::checksum as sums;
use linerate_packet::virtio::{self, Gso};
use linerate_protocol::{Boottime, Now, Prefix, PrivateKey, PublicKey};

pub const PORT: u16 = 51820;
const QUEUE: usize = 4096;

/// The only IPv6 address of every host.
pub const OWN_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// A simulated clock, which hosts may share.
#[derive(Clone)]
pub struct Clock {
    boot: Arc<AtomicU64>,
    wall: Arc<AtomicU64>,
    suspended: Arc<AtomicU64>,
}

impl Clock {
    pub fn new() -> Self {
        let boot = 1_000_000_000;
        let wall = 1_800_000_000_000_000_000 + boot;
        Self { boot: Arc::new(boot.into()), wall: Arc::new(wall.into()), suspended: Arc::default() }
    }

    pub fn advance(&self, by: Duration) {
        self.boot.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
        self.wall.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The time since 1970, as far as the hosts know.
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.wall.load(Ordering::Relaxed))
    }

    /// Sets the wall clock.
    pub fn set_wall(&self, wall: Duration) {
        self.wall.store(wall.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Suspends the hosts.
    pub fn suspend(&self, by: Duration) {
        self.advance(by);
        self.suspended.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn boot(&self) -> Boottime {
        Boottime(self.boot.load(Ordering::Relaxed))
    }
}

/// A device or socket of the memory backend: its allocations are not counted as the engine's, the engine's calls are.
pub struct Uncounted<T>(pub T, pub Calls);

/// How often the engine called a device or socket; each would be a system call.
#[derive(Default)]
pub struct Calls {
    /// Reads or receive calls.
    pub reads: AtomicU64,
    /// Writes or sends.
    pub writes: AtomicU64,
}

impl Calls {
    fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tun for Uncounted<MemoryTun> {
    fn queues(&self) -> usize {
        self.0.queues()
    }

    fn read(&self, queue: usize, buf: &mut [u8]) -> io::Result<usize> {
        self.1.read();
        uncounted(|| self.0.read(queue, buf))
    }

    fn write(&self, queue: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.1.write();
        uncounted(|| self.0.write(queue, pieces))
    }

    fn offloads(&self) -> TunOffloads {
        self.0.offloads()
    }
}

impl Socket for Uncounted<MemorySocket> {
    fn offloads(&self) -> UdpOffloads {
        self.0.offloads()
    }

    fn recv(&self, buf: &mut [u8], meta: &mut [Received]) -> io::Result<usize> {
        self.1.read();
        uncounted(|| self.0.recv(buf, meta))
    }

    fn send(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        self.1.write();
        uncounted(|| self.0.send(batch))
    }

    fn wait_for_room(&self) {
        self.0.wait_for_room();
    }
}

fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let mut done = None;
    allocation_counter::opt_out(|| done = Some(work()));
    done.expect("opt_out runs what it is given")
}

pub struct Memory {
    tun: Uncounted<MemoryTun>,
    net: MemoryNet,
    address: IpAddr,
    clock: Clock,
    random: Mutex<fastrand::Rng>,
    /// How often the engine queried source addresses.
    pub queries: AtomicU64,
    /// The interfaces by which a peer with a link-local address may be reached.
    pub interfaces: Mutex<BTreeMap<u32, String>>,
}

impl Backend for Memory {
    type Tun = Uncounted<MemoryTun>;
    type Socket = Uncounted<MemorySocket>;

    fn tun(&self) -> &Uncounted<MemoryTun> {
        &self.tun
    }

    fn bind(&self, port: u16, _mark: u32) -> io::Result<BoundSockets<Uncounted<MemorySocket>>> {
        let mut ports = if port == 0 { PORT..=u16::MAX } else { port..=port };
        let open = |port| Some((self.net.socket(SocketAddr::new(self.address, port)).ok()?, port));
        let (socket, port) = ports.find_map(open).ok_or(io::ErrorKind::AddrInUse)?;
        let socket = Uncounted(socket, Calls::default());
        Ok(match self.address {
            IpAddr::V4(_) => BoundSockets { v4: vec![socket], v6: Vec::new(), port },
            IpAddr::V6(_) => BoundSockets { v4: Vec::new(), v6: vec![socket], port },
        })
    }

    fn set_mark(&self, _: &BoundSockets<Uncounted<MemorySocket>>, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn now(&self) -> Now {
        Now { boot: self.clock.boot(), wall: self.clock.wall() }
    }

    fn boottime(&self) -> Boottime {
        self.clock.boot()
    }

    fn suspended(&self) -> Duration {
        Duration::from_nanos(self.clock.suspended.load(Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) {}

    fn fill(&self, bytes: &mut [u8]) {
        self.random.lock().unwrap().fill(bytes);
    }

    fn source_addr_is_valid(&self, _: IpAddr, from: PacketInfo, _: u32) -> Option<bool> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        Some(from.addr == self.address)
    }

    fn interface_name(&self, ifindex: u32) -> Option<String> {
        self.interfaces.lock().unwrap().get(&ifindex).cloned()
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        self.interfaces.lock().unwrap().iter().find(|(_, other)| *other == name).map(|(&ifindex, _)| ifindex)
    }

    fn ipv6_addresses(&self) -> Option<HashSet<IpAddr>> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        Some(HashSet::from([OWN_V6]))
    }
}

/// A host with a tunnel.
pub struct Host {
    pub shared: Arc<Shared<Memory>>,
    pub slow_path: SlowPath<Memory>,
    pub outbound: Outbound<Memory>,
    pub inbound: Inbound<Memory>,
    pub public_key: PublicKey,
    /// Its inner address.
    pub inner: IpAddr,
    /// Its outer address.
    pub outer: SocketAddr,
}

impl Host {
    /// A host whose link is up, with a key and no peers; `seed` also makes its addresses.
    pub fn new(net: &MemoryNet, clock: &Clock, seed: u8) -> Self {
        Self::with_random(net, clock, seed, u64::from(seed))
    }

    /// The same with other randomness: what a host that starts again must not repeat.
    pub fn with_random(net: &MemoryNet, clock: &Clock, seed: u8, random: u64) -> Self {
        let address = IpAddr::from([192, 0, 2, seed]);
        let backend = Memory {
            tun: Uncounted(MemoryTun::new(QUEUE), Calls::default()),
            net: net.clone(),
            address,
            clock: clock.clone(),
            random: Mutex::new(fastrand::Rng::with_seed(random)),
            queries: AtomicU64::new(0),
            interfaces: Mutex::default(),
        };
        let shared = Arc::new(Shared::new(backend, 1420).unwrap());
        let secret = PrivateKey::new(&[seed; 32]).unwrap();
        let public_key = secret.public_key();
        let mut host = Self {
            slow_path: SlowPath::new(shared.clone()),
            outbound: Outbound::new(shared.clone()),
            inbound: Inbound::new(shared.clone()),
            shared,
            public_key,
            inner: IpAddr::from([10, 0, 0, seed]),
            outer: SocketAddr::new(address, PORT),
        };
        host.slow_path.up().unwrap();
        host.slow_path.set(DeviceChange { private_key: Some(Some(secret)), ..DeviceChange::default() }).unwrap();
        host
    }

    /// Makes `other` a peer that may use its inner address, and is found at its outer one.
    pub fn add_peer(&mut self, other: &Host) {
        let allowed = Prefix::new(other.inner, 32).unwrap();
        let peer = PeerChange {
            endpoint: Some(other.outer),
            allowed_ips: vec![(true, allowed)],
            ..PeerChange::new(other.public_key)
        };
        self.set_peer(peer);
    }

    pub fn set_peer(&mut self, peer: PeerChange) {
        self.slow_path.set(DeviceChange { peers: vec![peer], ..DeviceChange::default() }).unwrap();
    }

    /// Gives the host's tunnel a packet to send.
    pub fn send(&self, packet: &[u8]) {
        self.send_gso(&virtio::Header::default(), packet);
    }

    /// Gives the host's tunnel a GSO packet to send.
    pub fn send_gso(&self, header: &virtio::Header, packet: &[u8]) {
        assert!(
            self.shared.backend.tun().0.push(&[&header.encode()[..], packet].concat()),
            "the test's queue has room"
        );
    }

    /// Makes the host's device refuse the next `packets` GRO packets.
    pub fn refuse_gro(&self, packets: usize) {
        self.shared.backend.tun.0.refuse_gro(packets);
    }

    /// Takes the next packet that the host's tunnel received, with its virtio header.
    pub fn receive(&self) -> Option<(virtio::Header, Vec<u8>)> {
        let packet = self.shared.backend.tun().0.take()?;
        let (header, packet) = packet.split_first_chunk().unwrap();
        Some((virtio::Header::decode(header).unwrap(), packet.to_vec()))
    }

    /// How often a packet was dropped for the reason of this name.
    pub fn drops(&self, reason: &str) -> u64 {
        let name = format!("drop_{reason}");
        let list = self.shared.counters.list();
        list.iter().find(|(counter, _)| *counter == name).expect("there is such a counter").1
    }

    /// One step of the data path each way; true if there was something to do.
    pub fn carry(&mut self) -> bool {
        let sockets = self.shared.sockets.load();
        let socket = sockets.as_ref().and_then(|sockets| sockets.v4.first());
        let received =
            socket.is_some_and(|socket| self.inbound.poll(socket, 0, &Sequencer::default()).unwrap().is_progress());
        // No time passes between the packets of a test, so they are read together.
        self.outbound.expect_followers();
        received | self.outbound.poll(0, &Sequencer::default(), true).unwrap().is_progress()
    }

    fn work(&mut self) -> bool {
        self.carry() | self.slow_path.process()
    }
}

/// Lets all hosts work until none has anything to do.
pub fn settle(hosts: &mut [&mut Host]) {
    for _ in 0..10_000 {
        if !hosts.iter_mut().fold(false, |worked, host| host.work() | worked) {
            return;
        }
    }
    panic!("the hosts never come to rest");
}

/// Two hosts that know each other.
pub fn pair(net: &MemoryNet, clock: &Clock) -> (Host, Host) {
    let (mut one, mut two) = (Host::new(net, clock, 1), Host::new(net, clock, 2));
    one.add_peer(&two);
    two.add_peer(&one);
    (one, two)
}

/// A UDP datagram over IPv4 with a right checksum.
pub fn udp(from: IpAddr, to: IpAddr, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { panic!("IPv4 only") };
    let total = 28 + payload.len();
    let mut packet = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    let header = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&header);
    let length = (8 + payload.len() as u16).to_be_bytes();
    let mut transport = [&[0x12, 0x34, 0x56, 0x78], &length[..], &[0, 0], payload].concat();
    let pseudo = [&from.octets()[..], &to.octets(), &[0, 17], &length].concat();
    let sum = checksum(&[&pseudo, &transport]);
    transport[6..8].copy_from_slice(&sum);
    [packet, transport].concat()
}

/// A TCP GSO packet over IPv4 and the virtio header that a kernel puts before it.
pub fn tcp_gso(from: IpAddr, to: IpAddr, payload: usize, mss: u16) -> (virtio::Header, Vec<u8>) {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { panic!("IPv4 only") };
    let total = 40 + payload;
    let mut packet = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 7, 0x40, 0, 64, 6, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    let header = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&header);
    packet.extend([0x1f, 0x90, 0x1f, 0x91, 0, 0, 0, 9, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..payload).map(|i| (i * 7 + i / 251) as u8));
    let pseudo = sums::pseudo_header(&packet[12..20], 6, total - 20);
    packet[36..38].copy_from_slice(&pseudo.fold().to_be_bytes());
    let header = virtio::Header {
        flags: virtio::NEEDS_CSUM,
        gso: if payload > usize::from(mss) { Gso::TcpV4 } else { Gso::None },
        gso_size: mss,
        hdr_len: 40,
        csum_start: 20,
        csum_offset: 16,
        ..virtio::Header::default()
    };
    (header, packet)
}

/// The internet checksum over even-length parts, the slow way (RFC 1071).
pub fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum = 0u32;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
