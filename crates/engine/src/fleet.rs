//! What other gateways of a fleet have to know (docs/fleet.md): datagrams of their sessions that come here, and what this
//! device has sent to its peers and accepted from them.
//!
//! The data path comes here only with a datagram that it would drop. Nothing in it is authenticated: an index can be made
//! up, so whoever receives it must not trust it.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use linerate_netio::udp::{GSO_BATCH_MAX, Socket, Transmit};
use linerate_protocol::PeerId;
use linerate_protocol::fleet::{IndexOwner, IndexReader};

use crate::backend::Backend;
use crate::config::{FleetChanges, FleetPeer};
use crate::shared::Shared;
use crate::sync::lock;
use crate::tables::Peer;

/// The first byte of what is forwarded.
pub const FORWARD_VERSION: u8 = 1;

/// Bytes before the datagram in what is forwarded: version, gateway, source port (big endian), peer number (little endian),
/// source address (IPv6, or IPv4-mapped), four of zero.
pub const FORWARD_HEADER: usize = 28;

/// Peers that are visited under one read lock of the routes.
const PEERS_PER_LOCK: usize = 1024;

/// The part in a fleet that the threads share; without a fleet all of it is empty.
#[derive(Default)]
pub struct Fleet {
    forwarding: RwLock<Option<Forwarding>>,
    /// The address that clients know.
    address: RwLock<Option<IpAddr>>,
    /// Whether there is one: all that the data path of a device without a fleet looks at.
    has_address: AtomicBool,
    /// The peer of each number.
    numbers: RwLock<Vec<Option<PeerId>>>,
    /// Counts changes of peers.
    changes: Mutex<u64>,
    forwarded: AtomicU64,
}

struct Forwarding {
    reader: IndexReader,
    to: SocketAddrV4,
    /// What is being sent; datagrams come one by one, and rarely.
    message: Mutex<Box<[u8]>>,
}

/// What a peer's gateways tell of it; in the tables, so that no question for it involves the slow path.
#[derive(Default)]
pub struct FleetMark {
    /// The number of the last change; 0: none.
    changed: AtomicU64,
    timestamps: Mutex<[[u8; 12]; 2]>,
}

impl Fleet {
    /// Forwards datagrams of other gateways' sessions to `to` from now on, or no longer.
    pub fn forward_to(&self, forwarding: Option<(IndexReader, SocketAddrV4)>) {
        let message = || Mutex::new(vec![0; GSO_BATCH_MAX].into_boxed_slice());
        let forwarding = forwarding.map(|(reader, to)| Forwarding { reader, to, message: message() });
        *self.forwarding.write().expect("a panic aborts the process") = forwarding;
    }

    /// Where they are forwarded to.
    pub fn forwards_to(&self) -> Option<SocketAddrV4> {
        self.forwarding.read().expect("a panic aborts the process").as_ref().map(|forwarding| forwarding.to)
    }

    /// Clients know the gateways by this address, or by none.
    pub fn set_address(&self, address: Option<IpAddr>) {
        *self.address.write().expect("a panic aborts the process") = address;
        self.has_address.store(address.is_some(), Ordering::Relaxed);
    }

    /// The address to send from to a peer that has not yet written to one of ours: it knows the fleet's alone.
    pub fn source_addr(&self, to: IpAddr) -> Option<IpAddr> {
        if !self.has_address.load(Ordering::Relaxed) {
            return None;
        }
        let address = *self.address.read().expect("a panic aborts the process");
        address.filter(|address| address.is_ipv4() == to.is_ipv4())
    }

    /// The peer with this number is `peer`, or there is none.
    pub fn set_number(&self, number: u32, peer: Option<PeerId>) {
        let mut numbers = self.numbers.write().expect("a panic aborts the process");
        let at = number as usize;
        if numbers.len() <= at && peer.is_some() {
            numbers.resize(at + 1, None);
        }
        if let Some(entry) = numbers.get_mut(at) {
            *entry = peer;
        }
    }

    /// No number leads to a peer any more.
    pub fn forget_numbers(&self) {
        self.numbers.write().expect("a panic aborts the process").clear();
    }

    fn peer(&self, number: u32) -> Option<PeerId> {
        self.numbers.read().expect("a panic aborts the process").get(number as usize).copied().flatten()
    }

    /// How many datagrams were forwarded.
    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }

    /// A peer's endpoint or session is another.
    pub fn peer_changed(&self, peer: &Peer) {
        let mut changes = lock(&self.changes);
        *changes += 1;
        peer.fleet.changed.store(*changes, Ordering::Relaxed);
    }

    /// The greatest timestamps that were sent to a peer and accepted from it are others.
    pub fn timestamps_changed(&self, peer: &Peer, sent: [u8; 12], accepted: [u8; 12]) {
        *lock(&peer.fleet.timestamps) = [sent, accepted];
        self.peer_changed(peer);
    }
}

/// Forwards a datagram with the receiver index `index`, which names no session here, if it names one of another gateway, or
/// one that this gateway has lost. False if it does not.
pub fn forward<B: Backend>(shared: &Shared<B>, index: u32, source: SocketAddr, datagram: &[u8]) -> bool {
    let forwarding = shared.fleet.forwarding.read().expect("a panic aborts the process");
    let Some(Forwarding { reader, to, message }) = forwarding.as_ref() else { return false };
    let owner = reader.owner(index);
    let Some(id) = shared.fleet.peer(owner.number) else { return false };
    if owner.gateway == reader.gateway && has_session(shared, id) {
        return false;
    }
    let mut message = lock(message);
    let length = FORWARD_HEADER + datagram.len();
    let Some(contents) = message.get_mut(..length) else { return false };
    contents[..FORWARD_HEADER].copy_from_slice(&header(owner, source));
    contents[FORWARD_HEADER..].copy_from_slice(datagram);
    let sockets = shared.sockets.load();
    let Some(socket) = sockets.as_deref().and_then(|sockets| sockets.v4.first()) else { return false };
    let transmit = Transmit { to: (*to).into(), from: None, tos: 0, segment: None, contents };
    let is_sent = socket.send(&[transmit]).is_ok();
    shared.fleet.forwarded.fetch_add(is_sent.into(), Ordering::Relaxed);
    is_sent
}

fn has_session<B: Backend>(shared: &Shared<B>, id: PeerId) -> bool {
    let routes = shared.tables.routes();
    routes.peer(id).is_some_and(|peer| peer.sending().is_some())
}

fn header(owner: IndexOwner, source: SocketAddr) -> [u8; FORWARD_HEADER] {
    let address = match source.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut header = [0; FORWARD_HEADER];
    (header[0], header[1]) = (FORWARD_VERSION, owner.gateway);
    header[2..4].copy_from_slice(&source.port().to_be_bytes());
    header[4..8].copy_from_slice(&owner.number.to_le_bytes());
    header[8..24].copy_from_slice(&address.octets());
    header
}

/// The peers whose endpoint, session or timestamps have changed here since the reply `since`; 0: all that ever have.
pub fn changes<B: Backend>(shared: &Shared<B>, since: u64) -> FleetChanges {
    let now = *lock(&shared.fleet.changes);
    let (mut peers, mut at) = (Vec::new(), 0);
    if now == since {
        return FleetChanges { now, peers };
    }
    // What changes meanwhile has a greater number, and is in the next reply as well.
    loop {
        let routes = shared.tables.routes();
        let Some(part) = routes.peers(at..at + PEERS_PER_LOCK) else { break };
        peers.extend(part.filter(|peer| peer.fleet.changed.load(Ordering::Relaxed) > since).map(|peer| report(peer)));
        at += PEERS_PER_LOCK;
    }
    FleetChanges { now, peers }
}

fn report(peer: &Peer) -> FleetPeer {
    let [sent, accepted] = lock(&peer.fleet.timestamps).map(|bytes| Some(bytes).filter(|bytes| *bytes != [0; 12]));
    FleetPeer {
        public_key: peer.key,
        endpoint: peer.endpoint().as_ref().map(|endpoint| endpoint.addr),
        sent,
        accepted,
        last_handshake: peer.last_handshake(),
    }
}
