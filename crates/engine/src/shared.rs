//! The state that the threads of one engine share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use linerate_netio::udp::BoundSockets;
use linerate_netio::wait::Event;
use linerate_protocol::{Boottime, HandshakeFilter, Wake};

use crate::backend::Backend;
use crate::config::{ActivityReport, PeerActivity, UsageReport};
use crate::counters::Counters;
use crate::mtu::Mtu;
use crate::rejected_gro::RejectedGro;
use crate::slow_path_queue::SlowPathQueue;
use crate::staged::Budget;
use crate::tables::{Peer, Tables};
use crate::tokens::Tokens;

/// Traffic is recorded with the time at which its batch began, so it may be counted this much later. Activity is
/// reported again for as long.
const ACTIVITY_OVERLAP: Duration = Duration::from_secs(1);

/// Peers that are visited under one read lock of the routes, for which the slow path may have to wait.
const PEERS_PER_LOCK: usize = 1024;

/// The state that the threads share.
pub struct Shared<B: Backend> {
    /// The TUN device, sockets, clocks and randomness.
    pub backend: B,
    /// The sockets, while the link is up.
    pub sockets: ArcSwapOption<BoundSockets<B::Socket>>,
    /// Signalled when the sockets were replaced.
    pub sockets_changed: Event,
    /// Peers, allowed IPs, sessions.
    pub tables: Tables,
    /// Counts of packets dropped and of wake-ups.
    pub counters: Counters,
    /// The bytes of all staged packets.
    pub staged: Budget,
    /// What peers with limits have used is to be read again ([`crate::Handle::usage`]).
    pub usage_changed: Event,
    /// What they had used when the control thread ended.
    pub last_usage: Mutex<Option<UsageReport>>,
    /// From the data path to the slow path.
    pub slow_path_queue: SlowPathQueue,
    /// Drops handshake messages before they are queued.
    pub handshake_filter: Arc<HandshakeFilter>,
    /// The tunnel's MTUs.
    pub mtu: Mtu,
    /// Grows whenever a route or an address of the host changes.
    pub routing_epoch: AtomicU64,
    /// A source-address check failed temporarily; retry after the next epoch bump.
    pub source_addr_check_failed: AtomicBool,
    /// Grows with every configuration of the device, when a peer is suspended or let in again, and when an endpoint
    /// follows its interface to another index.
    pub configured: AtomicU64,
    /// The firewall mark of outer datagrams.
    pub mark: AtomicU32,
    /// Limits the ICMP errors about packets without a peer or an endpoint.
    pub icmp_errors: Mutex<Tokens>,
    /// Limits the log lines about handshake messages that the filter dropped.
    pub filter_log: Mutex<Tokens>,
    /// The kinds of GRO packets that the TUN device rejected.
    pub rejected_gro: RejectedGro,
    /// What other gateways of a fleet have to know.
    #[cfg(feature = "fleet")]
    pub fleet: crate::fleet::Fleet,
}

impl<B: Backend> Shared<B> {
    /// The state of an engine whose link is down.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn new(backend: B, mtu: u32) -> std::io::Result<Self> {
        Ok(Self {
            backend,
            sockets: ArcSwapOption::empty(),
            sockets_changed: Event::new()?,
            tables: Tables::default(),
            counters: Counters::default(),
            staged: Budget::default(),
            usage_changed: Event::new()?,
            last_usage: Mutex::default(),
            slow_path_queue: SlowPathQueue::new()?,
            handshake_filter: Arc::default(),
            mtu: Mtu::new(mtu),
            routing_epoch: AtomicU64::new(0),
            source_addr_check_failed: AtomicBool::new(false),
            configured: AtomicU64::new(0),
            mark: AtomicU32::new(0),
            icmp_errors: Mutex::default(),
            filter_log: Mutex::default(),
            rejected_gro: RejectedGro::default(),
            #[cfg(feature = "fleet")]
            fleet: crate::fleet::Fleet::default(),
        })
    }

    /// Wakes the slow path for the peer if its timestamps need that.
    pub fn wake(&self, peer: &Arc<Peer>, wake: Wake) {
        if wake == Wake::SlowPath {
            self.slow_path_queue.wake(peer);
        }
    }

    /// Counts bytes received from the peer, and wakes the slow path if they reach its limit.
    pub fn count_rx(&self, peer: &Arc<Peer>, bytes: usize) {
        if peer.count_rx(bytes) {
            self.slow_path_queue.wake(peer);
        }
    }

    /// The same for bytes sent to it.
    pub fn count_tx(&self, peer: &Arc<Peer>, bytes: usize) {
        if peer.count_tx(bytes) {
            self.slow_path_queue.wake(peer);
        }
    }

    /// The traffic of the peers that were active since `since`. Reads only the tables, so any thread may call it; a
    /// change of the tables may have to wait for it, briefly.
    pub fn activity(&self, since: Boottime) -> ActivityReport {
        let (now, configured) = (self.backend.boottime(), self.configured.load(Ordering::SeqCst));
        let since = since.0.saturating_sub(ACTIVITY_OVERLAP.as_nanos() as u64);
        let (mut peers, mut at) = (Vec::new(), 0);
        loop {
            let routes = self.tables.routes();
            let Some(part) = routes.peers(at..at + PEERS_PER_LOCK) else { break };
            peers.extend(part.filter(|peer| peer.traffic.last().0 >= since).cloned());
            at += PEERS_PER_LOCK;
        }
        peers.sort_by_key(|peer| peer.serial);
        ActivityReport { now, configured, peers: peers.iter().map(|peer| PeerActivity::of(peer)).collect() }
    }

    /// The count of changes of the host's routes and addresses.
    pub fn routing_epoch(&self) -> u64 {
        self.routing_epoch.load(Ordering::Relaxed)
    }
}
