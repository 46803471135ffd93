//! A peer, as the data path knows it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use linerate_netio::udp::PacketInfo;
use linerate_protocol::{Boottime, PeerId, PublicKey, Session, TrafficTimestamps};

use super::Endpoint;
use crate::policer::Policer;
use crate::staged::Staged;

/// The byte limit of a peer that has none.
pub const NO_LIMIT: u64 = u64::MAX;

/// A peer.
pub struct Peer {
    /// The protocol's index of it.
    pub id: PeerId,
    /// Its public key.
    pub key: PublicKey,
    /// Peers are listed in this order.
    pub serial: u64,
    /// When packets were sent and received, for the slow path's timers.
    pub traffic: Arc<TrafficTimestamps>,
    /// Packets that wait for a session or an endpoint.
    pub staged: Mutex<Staged>,
    /// Holds what is sent to it to its rate.
    pub tx_policer: Policer,
    /// The same for what it sends.
    pub rx_policer: Policer,
    sending: ArcSwapOption<Session>,
    endpoint: ArcSwapOption<Endpoint>,
    rx_bytes: AtomicU64,
    tx_bytes: AtomicU64,
    /// The sum of both at which the slow path is to look at the peer.
    byte_limit: AtomicU64,
    /// Nothing is sent to it: see `slow_path::limits`.
    suspended: AtomicBool,
    /// Nanoseconds since the Unix epoch.
    last_handshake: AtomicU64,
    /// When the initiation left that has not been answered yet, in nanoseconds since boot; 0 for none.
    initiated: AtomicU64,
    /// How many nanoseconds the last handshake took; 0 if the peer initiated it.
    handshake_time: AtomicU64,
    wakeup_queued: AtomicBool,
    source_addr_check_queued: AtomicBool,
    /// What other gateways of a fleet have to know of it.
    #[cfg(feature = "fleet")]
    pub(crate) fleet: crate::fleet::FleetMark,
}

impl Peer {
    /// A peer without session, endpoint or traffic.
    pub fn new(id: PeerId, key: PublicKey, serial: u64, traffic: Arc<TrafficTimestamps>) -> Self {
        Self {
            id,
            key,
            serial,
            traffic,
            staged: Mutex::default(),
            sending: ArcSwapOption::empty(),
            endpoint: ArcSwapOption::empty(),
            rx_bytes: AtomicU64::new(0),
            tx_bytes: AtomicU64::new(0),
            byte_limit: AtomicU64::new(NO_LIMIT),
            suspended: AtomicBool::new(false),
            tx_policer: Policer::default(),
            rx_policer: Policer::default(),
            last_handshake: AtomicU64::new(0),
            initiated: AtomicU64::new(0),
            handshake_time: AtomicU64::new(0),
            wakeup_queued: AtomicBool::new(false),
            source_addr_check_queued: AtomicBool::new(false),
            #[cfg(feature = "fleet")]
            fleet: Default::default(),
        }
    }

    /// The session to seal with; without one, packets are staged.
    pub fn sending(&self) -> Guard<Option<Arc<Session>>> {
        self.sending.load()
    }

    /// Replaces the session to seal with.
    pub fn set_sending(&self, session: Option<Arc<Session>>) {
        self.sending.store(session);
    }

    /// The current endpoint.
    pub fn endpoint(&self) -> Guard<Option<Arc<Endpoint>>> {
        self.endpoint.load()
    }

    /// Sets the endpoint that a user configured.
    pub fn set_endpoint(&self, addr: SocketAddr, routing_epoch: u64) {
        self.endpoint.store(Some(Arc::new(Endpoint::new(addr, None, routing_epoch))));
    }

    /// Sets the endpoint to the sender `addr` of an authentic packet to our address `local` (paper section 2.1); true if
    /// that is another. Allocates only then.
    pub fn set_roaming_endpoint(&self, addr: SocketAddr, local: Option<PacketInfo>, routing_epoch: u64) -> bool {
        let known = self.endpoint.load();
        let new = match known.as_ref() {
            Some(endpoint) if endpoint.is(addr, local) => return false,
            Some(endpoint) => endpoint.successor(addr, local, routing_epoch),
            None => Endpoint::new(addr, local, routing_epoch),
        };
        self.endpoint.store(Some(Arc::new(new)));
        true
    }

    /// Moves the endpoint from the zone `from` to the zone `to`, after its interface got another index. False if it is
    /// not in that zone.
    pub fn move_zone(&self, from: u32, to: u32, routing_epoch: u64) -> bool {
        let known = self.endpoint.load();
        let Some(SocketAddr::V6(mut addr)) = known.as_ref().map(|endpoint| endpoint.addr) else { return false };
        if addr.scope_id() != from {
            return false;
        }
        addr.set_scope_id(to);
        // If an authentic packet has set another endpoint meanwhile, that one is newer.
        self.endpoint.compare_and_swap(&known, Some(Arc::new(Endpoint::new(addr.into(), None, routing_epoch))));
        true
    }

    /// Adds to the bytes received; true if the limit is reached.
    #[must_use]
    pub fn count_rx(&self, bytes: usize) -> bool {
        self.rx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.has_reached_limit()
    }

    /// Adds to the bytes sent; true if the limit is reached.
    #[must_use]
    pub fn count_tx(&self, bytes: usize) -> bool {
        self.tx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.has_reached_limit()
    }

    /// Whether the bytes received and sent have reached the limit. If both directions count at once, both may miss
    /// what the other adds, and the next packet tells.
    fn has_reached_limit(&self) -> bool {
        let limit = self.byte_limit.load(Ordering::Relaxed);
        limit != NO_LIMIT && self.total_bytes() >= limit
    }

    /// Sets the sum of both directions at which counting returns true, or [`NO_LIMIT`].
    pub fn set_byte_limit(&self, bytes: u64) {
        self.byte_limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes received and sent together.
    pub fn total_bytes(&self) -> u64 {
        let (rx, tx) = self.transfer();
        rx.saturating_add(tx)
    }

    /// Whether nothing is sent to it.
    pub fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Relaxed)
    }

    /// Begins or ends that.
    pub fn set_suspended(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
    }

    /// Bytes received and sent.
    pub fn transfer(&self) -> (u64, u64) {
        (self.rx_bytes.load(Ordering::Relaxed), self.tx_bytes.load(Ordering::Relaxed))
    }

    /// Records that a handshake message leaves at `now`: an initiation, or a response, which makes the peer the
    /// initiator of what completes next.
    pub fn handshake_sent(&self, is_initiation: bool, now: Boottime) {
        self.initiated.store(if is_initiation { now.0 } else { 0 }, Ordering::Relaxed);
    }

    /// Records a completed handshake at `wall`, the time since the Unix epoch, which is `now`.
    pub fn set_last_handshake(&self, wall: Duration, now: Boottime) {
        let time = match self.initiated.swap(0, Ordering::Relaxed) {
            0 => 0,
            initiated => now.0.saturating_sub(initiated),
        };
        self.handshake_time.store(time, Ordering::Relaxed);
        self.last_handshake.store(wall.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How long the last handshake took, from our initiation to the response; zero if the peer initiated it.
    pub fn handshake_time(&self) -> Duration {
        Duration::from_nanos(self.handshake_time.load(Ordering::Relaxed))
    }

    /// The time of the last completed handshake, since the Unix epoch.
    pub fn last_handshake(&self) -> Duration {
        Duration::from_nanos(self.last_handshake.load(Ordering::Relaxed))
    }

    /// Claims the peer's one slot in the queue of wake-ups; false if it is taken.
    pub(crate) fn claim_wakeup(&self) -> bool {
        // SeqCst: pairs with `release_wakeup`. The slow path releases before it reads the timestamps, so it sees one
        // that was stored before a failed claim.
        !self.wakeup_queued.swap(true, Ordering::SeqCst)
    }

    /// Call before reading the timestamps: the next wake-up may be queued.
    pub(crate) fn release_wakeup(&self) {
        self.wakeup_queued.store(false, Ordering::SeqCst);
    }

    /// Claims the peer's one slot in the queue of source-address checks; false if it is taken.
    pub(crate) fn claim_source_addr_check(&self) -> bool {
        !self.source_addr_check_queued.swap(true, Ordering::SeqCst)
    }

    /// Call before checking the source address: the next check may be queued.
    pub(crate) fn release_source_addr_check(&self) {
        self.source_addr_check_queued.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_protocol::PrivateKey;

    #[test]
    fn traffic_to_an_invalid_source_address_does_not_revalidate_it() {
        let local = PacketInfo { addr: "192.0.2.1".parse().unwrap(), ifindex: 3 };
        let peer = Peer::new(PeerId(0), PrivateKey::new(&[1; 32]).unwrap().public_key(), 0, Arc::default());
        let receive = || peer.set_roaming_endpoint("192.0.2.2:1".parse().unwrap(), Some(local), 1);
        let source_addr = || peer.endpoint().as_ref().unwrap().source_addr();
        receive();
        peer.endpoint().as_ref().unwrap().check_source_addr(2, |_| Some(false));
        receive();
        assert_eq!(source_addr(), None);
        peer.endpoint().as_ref().unwrap().forget_source_addr();
        receive();
        assert_eq!(source_addr(), Some(local.addr), "forgotten, and learnt again");
    }

    #[test]
    fn a_handshake_takes_time_only_if_it_is_ours() {
        let peer = Peer::new(PeerId(0), PrivateKey::new(&[1; 32]).unwrap().public_key(), 0, Arc::default());
        let done = |now| {
            peer.set_last_handshake(Duration::from_secs(1), Boottime(now));
            peer.handshake_time().as_nanos()
        };
        peer.handshake_sent(true, Boottime(10));
        assert_eq!(done(25), 15);
        peer.handshake_sent(false, Boottime(30));
        assert_eq!(done(40), 0, "we have responded");
        peer.handshake_sent(true, Boottime(50));
        peer.handshake_sent(false, Boottime(60));
        assert_eq!(done(70), 0, "both have begun, and theirs has won");
        peer.handshake_sent(true, Boottime(80));
        peer.handshake_sent(true, Boottime(90));
        assert_eq!(done(95), 5, "sent again");
    }
}
