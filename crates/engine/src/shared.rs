//! What the threads of one engine share, and how the data path tells the slow path something.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use std::collections::VecDeque;
use std::net::SocketAddr;

use arc_swap::{ArcSwap, ArcSwapOption};
use linerate_netio::udp::PacketInfo;
use linerate_netio::wait::Event;
use linerate_protocol::constants::{HANDSHAKE_BACKLOG, INITIATION_LEN};
use linerate_protocol::{Boottime, HandshakeFilter, Session, Wake};

use crate::backend::{Backend, Sockets};
use crate::config::{Activity, PeerActivity};
use crate::counters::{Counters, EngineDiscard};
use crate::inbound::RejectedMerges;
use crate::staged::Budget;
use crate::tables::{Peer, Tables};
use crate::tokens::Tokens;

const _: () = assert!(size_of::<PendingHandshake>() * HANDSHAKE_BACKLOG <= 1 << 20);

/// A batch has the time of its beginning: what it brought may be counted so much later, and is told once more.
const ACTIVITY_OVERLAP: Duration = Duration::from_secs(1);

/// Peers that are looked at while the slow path may have to wait for it.
const PEERS_AT_ONCE: usize = 1024;

/// What the threads share.
pub struct Shared<B: Backend> {
    /// The doors to the world.
    pub backend: B,
    /// The sockets, while the link is up.
    pub sockets: ArcSwapOption<Sockets<B::Socket>>,
    /// Signalled when the sockets were replaced.
    pub sockets_changed: Event,
    /// Peers, prefixes, sessions.
    pub tables: Tables,
    /// What happened.
    pub counters: Counters,
    /// The bytes of all staged packets.
    pub staged: Budget,
    /// From the data path to the slow path.
    pub slow_path_queue: SlowPathQueue,
    /// What handshake messages are refused by before they become notices.
    pub handshake_filter: Arc<HandshakeFilter>,
    /// The tunnel's MTUs.
    pub mtu: Mtu,
    /// Grows whenever a route or an address of the host changes.
    pub routing_epoch: AtomicU64,
    /// A source address could not be asked about; it is in another epoch.
    pub source_check_failed: AtomicBool,
    /// How often the device was configured, or an endpoint followed its interface to another index.
    pub configured: AtomicU64,
    /// The firewall mark of outer datagrams.
    pub mark: AtomicU32,
    /// How many senders of packets that lead nowhere may be told so.
    pub unreachable: Mutex<Tokens>,
    /// How many handshake messages that were refused unseen may be named in the log.
    pub refused: Mutex<Tokens>,
    /// The kinds of merged packets that the TUN device refused.
    pub merged_refused: RejectedMerges,
}

impl<B: Backend> Shared<B> {
    /// The state of an engine whose link is down.
    pub fn new(backend: B, mtu: u32) -> std::io::Result<Self> {
        Ok(Self {
            backend,
            sockets: ArcSwapOption::empty(),
            sockets_changed: Event::new()?,
            tables: Tables::default(),
            counters: Counters::default(),
            staged: Budget::default(),
            slow_path_queue: SlowPathQueue::new()?,
            handshake_filter: Arc::default(),
            mtu: Mtu::new(mtu),
            routing_epoch: AtomicU64::new(0),
            source_check_failed: AtomicBool::new(false),
            configured: AtomicU64::new(0),
            mark: AtomicU32::new(0),
            unreachable: Mutex::default(),
            refused: Mutex::default(),
            merged_refused: RejectedMerges::default(),
        })
    }

    /// Passes on what the peer's stamps said.
    pub fn wake(&self, peer: &Arc<Peer>, wake: Wake) {
        if wake == Wake::SlowPath {
            self.slow_path_queue.wake_for(peer);
        }
    }

    /// What happened with the peers that were active since a moment. Asks the tables alone, so it may be called by any
    /// thread; a change of the tables may have to wait for it, shortly.
    pub fn activity(&self, since: Boottime) -> Activity {
        let (now, configured) = (self.backend.boottime(), self.configured.load(Ordering::SeqCst));
        let since = since.0.saturating_sub(ACTIVITY_OVERLAP.as_nanos() as u64);
        let (mut peers, mut at) = (Vec::new(), 0);
        loop {
            let routes = self.tables.routes();
            let Some(part) = routes.some_peers(at..at + PEERS_AT_ONCE) else { break };
            peers.extend(part.filter(|peer| peer.activity.last().0 >= since).cloned());
            at += PEERS_AT_ONCE;
        }
        peers.sort_by_key(|peer| peer.serial);
        Activity { now, configured, peers: peers.iter().map(|peer| PeerActivity::of(peer)).collect() }
    }

    /// The count of changes of the host's routes and addresses.
    pub fn routing_epoch(&self) -> u64 {
        self.routing_epoch.load(Ordering::Relaxed)
    }
}

/// A handshake message and where it came from, copied out of a receive buffer.
#[derive(Clone, Copy)]
pub struct PendingHandshake {
    /// Who sent it.
    pub source: SocketAddr,
    /// Where it came to.
    pub local: Option<PacketInfo>,
    len: u8,
    bytes: [u8; INITIATION_LEN],
}

impl PendingHandshake {
    /// The message.
    pub fn message(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What the data path wants the slow path to look at. Bounded: one notice and one doubt a peer, one notice a
/// session, [`HANDSHAKE_BACKLOG`] handshake messages.
pub struct SlowPathQueue {
    event: Event,
    pending: AtomicBool,
    woken: Mutex<VecDeque<Arc<Peer>>>,
    source_checks: Mutex<VecDeque<Arc<Peer>>>,
    confirmed: Mutex<Vec<Arc<Session>>>,
    backlog: Mutex<VecDeque<PendingHandshake>>,
}

impl SlowPathQueue {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            event: Event::new()?,
            pending: AtomicBool::new(false),
            woken: Mutex::default(),
            source_checks: Mutex::default(),
            confirmed: Mutex::default(),
            backlog: Mutex::new(VecDeque::with_capacity(HANDSHAKE_BACKLOG)),
        })
    }

    /// Readable when there is something to look at.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The slow path is about to look at everything: what comes later signals anew.
    pub fn begin(&self) {
        self.event.drain();
        // A swap, not a store: it synchronises with the signaller whose swap it follows.
        self.pending.swap(false, Ordering::SeqCst);
    }

    /// The peer whose stamps have asked for attention for the longest time: one that asks again while routes change
    /// keeps no other waiting.
    pub fn next_woken(&self) -> Option<Arc<Peer>> {
        let peer = lock(&self.woken).pop_front()?;
        peer.release_wakeup();
        Some(peer)
    }

    /// The peer whose source address has been in doubt for the longest time.
    pub fn next_source_check(&self) -> Option<Arc<Peer>> {
        let peer = lock(&self.source_checks).pop_front()?;
        peer.release_source_check();
        Some(peer)
    }

    /// The next session that its peer has proved to hold the keys of.
    pub fn next_confirmed(&self) -> Option<Arc<Session>> {
        lock(&self.confirmed).pop()
    }

    /// Fills `room` up with the oldest handshake messages; says how many were waiting with them.
    pub fn take_handshakes(&self, room: &mut Vec<PendingHandshake>) -> usize {
        let mut backlog = lock(&self.backlog);
        let waiting = backlog.len();
        let taken = waiting.min(room.capacity() - room.len());
        room.extend(backlog.drain(..taken));
        waiting
    }

    /// The peer's first authentic packet on a session that it initiated.
    pub fn confirm(&self, session: &Arc<Session>) {
        lock(&self.confirmed).push(session.clone());
        self.signal();
    }

    /// The peer's source address is in doubt. After a change of routes all active peers' are, so these wait in a queue of
    /// their own, and nothing waits for them.
    pub fn request_source_check(&self, peer: &Arc<Peer>) {
        if peer.claim_source_check() {
            lock(&self.source_checks).push_back(peer.clone());
            self.signal();
        }
    }

    /// Queues a handshake message, whose length `classify` has checked.
    pub fn push_handshake(&self, message: &[u8], source: SocketAddr, local: Option<PacketInfo>, counters: &Counters) {
        let mut backlog = lock(&self.backlog);
        if backlog.len() == HANDSHAKE_BACKLOG {
            return counters.discard(EngineDiscard::BacklogFull);
        }
        let mut handshake = PendingHandshake { source, local, len: message.len() as u8, bytes: [0; INITIATION_LEN] };
        handshake.bytes[..message.len()].copy_from_slice(message);
        backlog.push_back(handshake);
        drop(backlog);
        self.signal();
    }

    /// Has the slow path look round, as after a command.
    pub fn signal(&self) {
        if !self.pending.swap(true, Ordering::SeqCst) {
            self.event.signal();
        }
    }

    fn wake_for(&self, peer: &Arc<Peer>) {
        if peer.claim_wakeup() {
            lock(&self.woken).push_back(peer.clone());
            self.signal();
        }
    }
}

/// The tunnel's MTU, and those of the routes over it that have one of their own.
pub struct Mtu {
    link: AtomicU32,
    has_routes: AtomicBool,
    routes: ArcSwap<Vec<RouteMtu>>,
}

/// A route over the tunnel that carries its own MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteMtu {
    /// The route's destination.
    pub prefix: linerate_protocol::Prefix,
    /// Bytes of an inner packet.
    pub mtu: u32,
}

impl Mtu {
    fn new(link: u32) -> Self {
        Self { link: AtomicU32::new(link), has_routes: AtomicBool::new(false), routes: ArcSwap::default() }
    }

    /// The link's, in bytes of an inner packet.
    pub fn link(&self) -> u32 {
        self.link.load(Ordering::Relaxed)
    }

    /// The link has another MTU.
    pub fn set_link(&self, mtu: u32) {
        self.link.store(mtu, Ordering::Relaxed);
    }

    /// The routes have other MTUs.
    pub fn set_routes(&self, mut routes: Vec<RouteMtu>) {
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.cidr()));
        self.has_routes.store(!routes.is_empty(), Ordering::Relaxed);
        self.routes.store(Arc::new(routes));
    }

    /// What padding is clamped to for a packet to `destination`: the MTU of its route
    /// (kernel: send.c, calculate_skb_padding).
    pub fn towards(&self, destination: IpAddr) -> usize {
        let link = self.link() as usize;
        if !self.has_routes.load(Ordering::Relaxed) {
            return link;
        }
        let routes = self.routes.load();
        let own = routes.iter().find(|route| route.prefix.contains(destination));
        own.map_or(link, |route| link.min(route.mtu as usize))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds a queue")
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_protocol::{PeerId, PublicKey};

    #[test]
    fn who_asked_first_is_looked_at_first() {
        let notices = SlowPathQueue::new().unwrap();
        let peers = [1, 2, 3].map(|n| Arc::new(Peer::new(PeerId(n), PublicKey([n as u8; 32]), 0, Arc::default())));
        peers.iter().for_each(|peer| notices.wake_for(peer));
        assert_eq!(notices.next_woken().unwrap().id, PeerId(1));
        notices.wake_for(&peers[0]);
        notices.wake_for(&peers[0]);
        let rest: Vec<u32> = std::iter::from_fn(|| notices.next_woken()).map(|peer| peer.id.0).collect();
        assert_eq!(rest, [2, 3, 1]);
    }
}
