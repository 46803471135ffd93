//! Who is where: peers, the prefixes that lead to them, and the sessions that packets name.
//!
//! The slow path writes, the data path reads once per batch and never waits for the slow path: a
//! request may have 100,000 changes, and the thread that makes them may lose its processor at any of
//! them. So there are two copies of the routes ([`LeftRight`]), and both change in place: one new copy
//! for each change would make the change of one peer among 100,000 cost a walk over all.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use linerate_netio::udp::PacketInfo;
use linerate_protocol::Activity;
use linerate_protocol::AllowedIps;
use linerate_protocol::PublicKey;
use linerate_protocol::ReplayWindow;
use linerate_protocol::Session;
use linerate_protocol::{Boottime, PeerId, constants};

use crate::staged::Staged;

/// Nanoseconds for which a destination whose route refused segmentation gets whole datagrams.
const WHOLE_FOR: u64 = 60_000_000_000;

/// Where a peer is, as the data path sends to it. Immutable but for what is learnt by sending.
pub struct Endpoint {
    /// The peer's address and port.
    pub addr: SocketAddr,
    /// Where the peer's last packet came to: answers leave from that address.
    source: Option<PacketInfo>,
    source_gone: AtomicBool,
    /// The routing epoch in which `source` was looked at last, and what was found.
    source_checked: AtomicU64,
    source_addr_is_valid: AtomicBool,
    whole_until: AtomicU64,
}

impl Endpoint {
    /// An endpoint that a user or a packet gave; `source` where the packet came to.
    pub fn new(addr: SocketAddr, source: Option<PacketInfo>, routing_epoch: u64) -> Self {
        Self {
            addr,
            source,
            source_gone: AtomicBool::new(false),
            source_checked: AtomicU64::new(routing_epoch),
            source_addr_is_valid: AtomicBool::new(true),
            whole_until: AtomicU64::new(0),
        }
    }

    /// The source address to send from; none leaves the choice to the kernel.
    pub fn source(&self) -> Option<IpAddr> {
        let source = self.known_source()?;
        self.source_addr_is_valid.load(Ordering::Relaxed).then_some(source.addr)
    }

    /// Whether routes or addresses have changed since the source address was looked at.
    pub fn needs_source_check(&self, routing_epoch: u64) -> bool {
        self.known_source().is_some() && self.source_checked.load(Ordering::Relaxed) != routing_epoch
    }

    /// Looks at a source address that is in doubt: `holds` says whether it is good, or does not know. What still comes
    /// to one that is not makes it no better; another change may. False if nothing could be found out: the address is
    /// taken for what it was, and should be asked about in another epoch.
    pub fn check_source(&self, routing_epoch: u64, holds: impl FnOnce(PacketInfo) -> Option<bool>) -> bool {
        let Some(source) = self.known_source() else { return true };
        if self.source_checked.swap(routing_epoch, Ordering::Relaxed) == routing_epoch {
            return true;
        }
        let holds = holds(source);
        if let Some(holds) = holds {
            self.source_addr_is_valid.store(holds, Ordering::Relaxed);
        }
        holds.is_some()
    }

    /// Leaves the choice of the source address to the kernel until the peer is heard again.
    pub fn forget_source(&self) {
        self.source_gone.store(true, Ordering::Relaxed);
    }

    /// Whether trains may be sent to it.
    pub fn takes_segments(&self, now: Boottime) -> bool {
        self.whole_until.load(Ordering::Relaxed) <= now.0
    }

    /// Sends whole datagrams for a while, then tries trains again.
    pub fn refuse_segments(&self, now: Boottime) {
        self.whole_until.store(now.0 + WHOLE_FOR, Ordering::Relaxed);
    }

    fn known_source(&self) -> Option<PacketInfo> {
        self.source.filter(|_| !self.source_gone.load(Ordering::Relaxed))
    }

    fn is(&self, addr: SocketAddr, source: Option<PacketInfo>) -> bool {
        self.addr == addr && self.source == source && !self.source_gone.load(Ordering::Relaxed)
    }
}

/// A peer, as the data path knows it.
pub struct Peer {
    /// Its index with the protocol.
    pub id: PeerId,
    /// Who it is.
    pub key: PublicKey,
    /// Peers are listed in this order.
    pub serial: u64,
    /// Stamps of what was sent and received, for the slow path's timers.
    pub activity: Arc<Activity>,
    /// Packets that wait for a session or an endpoint.
    pub staged: Mutex<Staged>,
    sending: ArcSwapOption<Session>,
    endpoint: ArcSwapOption<Endpoint>,
    rx_bytes: AtomicU64,
    tx_bytes: AtomicU64,
    /// Nanoseconds since the Unix epoch.
    last_handshake: AtomicU64,
    wakeup_queued: AtomicBool,
    source_check_queued: AtomicBool,
}

impl Peer {
    /// A peer without session, endpoint or traffic.
    pub fn new(id: PeerId, key: PublicKey, serial: u64, activity: Arc<Activity>) -> Self {
        Self {
            id,
            key,
            serial,
            activity,
            staged: Mutex::default(),
            sending: ArcSwapOption::empty(),
            endpoint: ArcSwapOption::empty(),
            rx_bytes: AtomicU64::new(0),
            tx_bytes: AtomicU64::new(0),
            last_handshake: AtomicU64::new(0),
            wakeup_queued: AtomicBool::new(false),
            source_check_queued: AtomicBool::new(false),
        }
    }

    /// The session to seal with; none: stage.
    pub fn sending(&self) -> Guard<Option<Arc<Session>>> {
        self.sending.load()
    }

    /// Replaces the session to seal with.
    pub fn set_sending(&self, session: Option<Arc<Session>>) {
        self.sending.store(session);
    }

    /// Where it is.
    pub fn endpoint(&self) -> Guard<Option<Arc<Endpoint>>> {
        self.endpoint.load()
    }

    /// A user says where it is.
    pub fn set_endpoint(&self, addr: SocketAddr, routing_epoch: u64) {
        self.endpoint.store(Some(Arc::new(Endpoint::new(addr, None, routing_epoch))));
    }

    /// An authentic packet came from `addr` to our address `source`: that is where it is
    /// (paper section 2.1). Allocates only when that is news.
    pub fn heard_from(&self, addr: SocketAddr, source: Option<PacketInfo>, routing_epoch: u64) {
        let known = self.endpoint.load();
        if known.as_ref().is_none_or(|endpoint| !endpoint.is(addr, source)) {
            let news = Endpoint::new(addr, source, routing_epoch);
            if let Some(known) = known.as_ref().filter(|known| known.addr == addr) {
                // What was learnt about the way there still holds.
                news.whole_until.store(known.whole_until.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.endpoint.store(Some(Arc::new(news)));
        }
    }

    /// The interface that was the zone `from` has the index `to`: a peer who was reached by it still is. False for
    /// another peer.
    pub fn move_zone(&self, from: u32, to: u32, routing_epoch: u64) -> bool {
        let known = self.endpoint.load();
        let Some(SocketAddr::V6(mut addr)) = known.as_ref().map(|endpoint| endpoint.addr) else { return false };
        if addr.scope_id() != from {
            return false;
        }
        addr.set_scope_id(to);
        // Where an authentic packet has come from meanwhile is newer.
        self.endpoint.compare_and_swap(&known, Some(Arc::new(Endpoint::new(addr.into(), None, routing_epoch))));
        true
    }

    /// Adds to the bytes received.
    pub fn count_rx(&self, bytes: usize) {
        self.rx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds to the bytes sent.
    pub fn count_tx(&self, bytes: usize) {
        self.tx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes received and sent.
    pub fn transfer(&self) -> (u64, u64) {
        (self.rx_bytes.load(Ordering::Relaxed), self.tx_bytes.load(Ordering::Relaxed))
    }

    /// Stamps a completed handshake with the time since the Unix epoch.
    pub fn set_last_handshake(&self, wall: Duration) {
        self.last_handshake.store(wall.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Time since the Unix epoch of the last completed handshake.
    pub fn last_handshake(&self) -> Duration {
        Duration::from_nanos(self.last_handshake.load(Ordering::Relaxed))
    }

    /// Claims the one notice about this peer that may be under way; false if it is.
    pub(crate) fn claim_wakeup(&self) -> bool {
        // SeqCst: pairs with `release_wakeup`, so that a stamp stored before a failed claim is
        // seen by the slow path, which releases before it reads the stamps.
        !self.wakeup_queued.swap(true, Ordering::SeqCst)
    }

    /// The slow path is about to look at the peer: the next notice may come.
    pub(crate) fn release_wakeup(&self) {
        self.wakeup_queued.store(false, Ordering::SeqCst);
    }

    /// Claims the one doubt about this peer's source address that may be under way; false if it is.
    pub(crate) fn claim_source_check(&self) -> bool {
        !self.source_check_queued.swap(true, Ordering::SeqCst)
    }

    /// The slow path is about to look at the source address: the next doubt may come.
    pub(crate) fn release_source_check(&self) {
        self.source_check_queued.store(false, Ordering::SeqCst);
    }
}

/// What a receiver index leads to.
pub struct Receiver {
    /// The keys.
    pub session: Arc<Session>,
    /// Whose they are.
    pub peer: Arc<Peer>,
    /// The counters that were received. Taken once per batch, by every worker that opens for
    /// this session.
    pub window: Mutex<ReplayWindow>,
}

/// Prefixes and peers.
#[derive(Default)]
pub struct Routes {
    /// Which peer each prefix belongs to.
    pub allowed: AllowedIps,
    peers: Vec<Option<Arc<Peer>>>,
}

impl Routes {
    /// The peer that packets to `addr` go to, and the only one they may come from.
    pub fn peer_for(&self, addr: IpAddr) -> Option<&Arc<Peer>> {
        self.peer(self.allowed.lookup(addr)?)
    }

    /// A peer by its index.
    pub fn peer(&self, id: PeerId) -> Option<&Arc<Peer>> {
        self.peers.get(id.0 as usize)?.as_ref()
    }

    /// The peers with indices in that range; none if there are none from there on.
    pub fn some_peers(&self, ids: Range<usize>) -> Option<impl Iterator<Item = &Arc<Peer>>> {
        let ids = ids.start..ids.end.min(self.peers.len());
        (!ids.is_empty()).then(|| self.peers[ids].iter().flatten())
    }

    /// Adds a peer under its index.
    pub fn add(&mut self, peer: Arc<Peer>) {
        let place = peer.id.0 as usize;
        if place >= self.peers.len() {
            self.peers.resize(place + 1, None);
        }
        self.peers[place] = Some(peer);
    }

    /// Removes a peer, whose prefixes were taken away before.
    pub fn remove(&mut self, id: PeerId) -> Option<Arc<Peer>> {
        self.peers.get_mut(id.0 as usize)?.take()
    }
}

/// Two copies of a value, of which readers take the one that is not being changed (left-right, Ramalhete and Correia
/// 2015). A reader never waits. A writer waits for the readers that are still at the copy that it is about to change;
/// nobody joins them there.
#[derive(Default)]
struct LeftRight<T> {
    copies: [Aligned<T>; 2],
    /// The copy that readers take: its place.
    current: AtomicUsize,
    /// One writer at a time.
    writer: Mutex<()>,
}

/// A copy on cache lines of its own: readers of one do not slow the writer of the other down.
#[derive(Default)]
#[repr(align(64))]
struct Aligned<T>(RwLock<T>);

impl<T> LeftRight<T> {
    fn read(&self) -> RwLockReadGuard<'_, T> {
        loop {
            let current = self.current.load(Ordering::SeqCst);
            if let Ok(guard) = self.copies[current].0.try_read() {
                return guard;
            }
            // The writer has locked it since, and before that made the other one current.
            assert!(!self.copies[current].0.is_poisoned(), "{UNPOISONED}");
            std::hint::spin_loop();
        }
    }

    /// Makes one change to both copies, so it has to come to the same in both. When it returns, there is no reader left
    /// that does not see the change.
    fn write<R>(&self, mut change: impl FnMut(&mut T) -> R) -> R {
        let _alone = self.writer.lock().expect(UNPOISONED);
        let current = self.current.load(Ordering::SeqCst);
        change(&mut self.copies[1 - current].0.write().expect(UNPOISONED));
        self.current.store(1 - current, Ordering::SeqCst);
        change(&mut self.copies[current].0.write().expect(UNPOISONED))
    }
}

/// Receiver indices are random numbers of our own: they hash to themselves.
#[derive(Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u32 keys are hashed")
    }

    fn write_u32(&mut self, index: u32) {
        // The table takes its bucket from the low bits and its tag from the high ones.
        self.0 = u64::from(index) << 32 | u64::from(index);
    }
}

/// Tables that the receiver indices are spread over. A hash table moves all its entries when it grows, under its lock:
/// of a full device's sessions, three for each peer, a shard has so few that this takes 0.1 ms. One table of all would
/// take 15 ms.
const SHARDS: usize = 256;

/// The most entries that one more session may move, but for the luck of the draw.
const MOVED_MAX: usize = 1 << 14;

const _: () = assert!(3 * constants::PEERS_MAX / SHARDS <= MOVED_MAX * 7 / 8);

type Shard<V> = RwLock<HashMap<u32, V, BuildHasherDefault<IndexHasher>>>;

/// Values by receiver index.
struct Receivers<V>(Box<[Shard<V>]>);

impl<V> Default for Receivers<V> {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl<V: Clone> Receivers<V> {
    fn shard(&self, index: u32) -> &Shard<V> {
        // Bits of the middle: within a shard the lowest and the highest tell entries apart.
        &self.0[(index >> 16) as usize % SHARDS]
    }

    fn get(&self, index: u32) -> Option<V> {
        self.shard(index).read().expect(UNPOISONED).get(&index).cloned()
    }

    fn insert(&self, index: u32, value: V) {
        self.shard(index).write().expect(UNPOISONED).insert(index, value);
    }

    /// The value is for the caller to drop, when the lock is free again.
    fn remove(&self, index: u32) -> Option<V> {
        self.shard(index).write().expect(UNPOISONED).remove(&index)
    }
}

const UNPOISONED: &str = "no thread panics while it holds the tables";

/// Everything that is looked up per batch.
#[derive(Default)]
pub struct Tables {
    routes: LeftRight<Routes>,
    receivers: Receivers<Arc<Receiver>>,
}

impl Tables {
    /// For look-ups.
    pub fn routes(&self) -> RwLockReadGuard<'_, Routes> {
        self.routes.read()
    }

    /// Changes the routes. `change` is called twice, for one copy of them after the other.
    pub fn change<R>(&self, change: impl FnMut(&mut Routes) -> R) -> R {
        self.routes.write(change)
    }

    /// The session that a datagram names.
    pub fn receiver(&self, index: u32) -> Option<Arc<Receiver>> {
        self.receivers.get(index)
    }

    /// Packets that name the session's index may come from this moment on.
    pub fn add_receiver(&self, session: &Arc<Session>, peer: Arc<Peer>) {
        let receiver = Receiver { session: session.clone(), peer, window: Mutex::default() };
        self.receivers.insert(session.local, Arc::new(receiver));
    }

    /// Packets that name the session's index are handshakes from this moment on.
    pub fn remove_receiver(&self, session: &Session) {
        self.receivers.remove(session.local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_protocol::StaticSecret;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_look_up_does_not_wait_for_a_change() {
        let tables = Tables::default();
        let prefix = |n: u8| linerate_protocol::Prefix::new([10, 0, 0, n].into(), 32).unwrap();
        let known = |n: u8| tables.routes().allowed.lookup([10, 0, 0, n].into());
        tables.change(|routes| routes.allowed.insert(prefix(1), PeerId(1)));
        let mut copies = 0;
        tables.change(|routes| {
            routes.allowed.insert(prefix(2), PeerId(2));
            // The writer is in the middle of it, on this very thread: whoever waited would wait for ever.
            assert_eq!(known(1), Some(PeerId(1)));
            // Who reads sees all of a change or nothing.
            assert_eq!(known(2), (copies > 0).then_some(PeerId(2)));
            copies += 1;
        });
        assert_eq!((copies, known(1), known(2)), (2, Some(PeerId(1)), Some(PeerId(2))));
    }

    #[test]
    fn both_copies_of_the_routes_have_every_change() {
        let tables = Tables::default();
        let prefix = |n: u32| linerate_protocol::Prefix::new(n.to_be_bytes().into(), 24).unwrap();
        for n in 0..10_000u32 {
            let (spot, peer) = (n.wrapping_mul(0x9e37_79b9) & 0xff00, PeerId(n % 7));
            tables.change(|routes| match n % 3 {
                0 => routes.allowed.remove(prefix(spot), peer),
                _ => routes.allowed.insert(prefix(spot), peer).is_some(),
            });
        }
        let seen = || {
            let routes = tables.routes();
            (0..7).map(|peer| routes.allowed.prefixes(PeerId(peer)).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let one = seen();
        // No change, but the other copy is read from here on.
        tables.change(|_| ());
        assert_eq!(one, seen());
    }

    #[test]
    fn readers_and_a_writer_get_on_beside_each_other() {
        let tables = Tables::default();
        let prefix = linerate_protocol::Prefix::new([10, 0, 0, 0].into(), 8).unwrap();
        let (addr, over) = (IpAddr::from([10, 1, 1, 1]), AtomicBool::new(false));
        tables.change(|routes| routes.allowed.insert(prefix, PeerId(0)));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Ordering::Relaxed) {
                        let PeerId(seen) = tables.routes().allowed.lookup(addr).expect("it always has an owner");
                        assert!(seen >= last, "a change is never taken back");
                        last = seen;
                    }
                });
            }
            for n in 1..20_000 {
                tables.change(|routes| routes.allowed.insert(prefix, PeerId(n)));
                assert_eq!(tables.routes().allowed.lookup(addr), Some(PeerId(n)));
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn one_more_session_moves_few_of_the_others() {
        let receivers = Receivers::<()>::default();
        let (mut index, mut most) = (1u32, 0);
        for _ in 0..500_000 {
            // The multiplier and increment of Numerical Recipes' generator; its high bits are the better ones.
            index = index.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let index = index.rotate_left(16);
            let state =
                || (receivers.shard(index).read().unwrap().capacity(), receivers.shard(index).read().unwrap().len());
            let (capacity, len) = state();
            receivers.insert(index, ());
            most = if state().0 > capacity { most.max(len) } else { most };
        }
        assert!((1..=MOVED_MAX).contains(&most), "{most} moved at once");
        assert!(most <= 2 * 500_000 / SHARDS, "{most} moved at once: the indices are not spread evenly");
    }

    #[test]
    fn a_source_is_asked_about_once_for_each_change_of_routing() {
        let source = PacketInfo { addr: "192.0.2.1".parse().unwrap(), ifindex: 3 };
        let endpoint = Endpoint::new(addr("192.0.2.2:1"), Some(source), 1);
        endpoint.check_source(1, |_| panic!("nothing changed"));
        assert!(endpoint.needs_source_check(2));
        assert!(endpoint.check_source(2, |local| Some(local.ifindex == 3)));
        assert!(!endpoint.needs_source_check(2));
        endpoint.check_source(2, |_| panic!("asked already"));
        assert_eq!(endpoint.source(), Some(source.addr));
        endpoint.check_source(3, |_| Some(false));
        assert_eq!(endpoint.source(), None);
        endpoint.check_source(4, |_| Some(true));
        assert_eq!(endpoint.source(), Some(source.addr));
        endpoint.forget_source();
        endpoint.check_source(5, |_| panic!("it is forgotten"));
        assert_eq!(endpoint.source(), None);
    }

    #[test]
    fn a_source_that_could_not_be_asked_about_is_what_it_was() {
        let source = PacketInfo { addr: "192.0.2.1".parse().unwrap(), ifindex: 3 };
        let endpoint = Endpoint::new(addr("192.0.2.2:1"), Some(source), 1);
        for (first, holds) in [(2, true), (4, false)] {
            assert!(endpoint.check_source(first, |_| Some(holds)));
            assert!(!endpoint.check_source(first + 1, |_| None));
            assert_eq!(endpoint.source().is_some(), holds);
        }
        assert!(endpoint.check_source(6, |_| Some(true)), "it is asked about again");
        assert_eq!(endpoint.source(), Some(source.addr));
    }

    #[test]
    fn what_comes_to_a_source_that_does_not_hold_makes_it_no_better() {
        let source = PacketInfo { addr: "192.0.2.1".parse().unwrap(), ifindex: 3 };
        let peer = Peer::new(PeerId(0), StaticSecret::new(&[1; 32]).unwrap().public_key(), 0, Arc::default());
        let hear = || peer.heard_from(addr("192.0.2.2:1"), Some(source), 2);
        let sent_from = || peer.endpoint().as_ref().unwrap().source();
        peer.endpoint.store(Some(Arc::new(Endpoint::new(addr("192.0.2.2:1"), Some(source), 1))));
        peer.endpoint().as_ref().unwrap().check_source(2, |_| Some(false));
        hear();
        assert_eq!(sent_from(), None);
        peer.endpoint().as_ref().unwrap().forget_source();
        hear();
        assert_eq!(sent_from(), Some(source.addr), "nothing was known of it");
    }

    #[test]
    fn a_destination_that_refused_segments_gets_them_again_after_a_while() {
        let endpoint = Endpoint::new(addr("192.0.2.2:1"), None, 0);
        assert!(endpoint.takes_segments(Boottime(5)));
        endpoint.refuse_segments(Boottime(5));
        assert!(!endpoint.takes_segments(Boottime(5 + WHOLE_FOR - 1)));
        assert!(endpoint.takes_segments(Boottime(5 + WHOLE_FOR)));
    }
}
