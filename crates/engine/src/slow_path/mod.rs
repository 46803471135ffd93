//! Handshakes, timers and configuration: everything that happens per peer rather than per packet.
//!
//! One thread owns it all, so it needs no locks against itself. It publishes sessions, peers and endpoints through
//! [`crate::tables`]; the data path reports back by timestamps and through [`crate::slow_path_queue`]. A flood of
//! handshakes can fill that queue and keep this thread busy, but never the data path.

mod config;
mod effects;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "fleet")]
mod group;
mod limits;
mod sockets;
mod source_addrs;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(feature = "fleet")]
use linerate_protocol::DropReason;
use linerate_protocol::{Boottime, Device, Now};

use crate::backend::Backend;
use crate::mtu::RouteMtu;
use crate::shared::Shared;
use crate::slow_path_queue::PendingHandshake;
use crate::zones::Zones;
use effects::{BackendRng, EffectHandler};
#[cfg(feature = "fleet")]
use fleet::forward;
use limits::Limits;

/// The most handshake messages, and peers, that one pass processes; other events come in between.
const EVENTS_PER_PASS: usize = 32;

/// How long handshake messages accumulate after a useless batch. At 200,000 a second that is 200 of them, far from
/// [`linerate_protocol::constants::HANDSHAKE_BACKLOG`]; a handshake or a timer may be this late.
const BATCH_DELAY: Duration = Duration::from_millis(1);

/// A shorter suspend is indistinguishable from the jitter of two clocks.
const SUSPEND_MIN: Duration = Duration::from_millis(100);

/// The owner of the protocol's state.
pub struct SlowPath<B: Backend> {
    shared: Arc<Shared<B>>,
    device: Device,
    effects: EffectHandler<B>,
    limits: Limits,
    #[cfg(feature = "fleet")]
    groups: group::Groups,
    /// Handshake messages that are being processed; the memory is kept.
    handshakes: Vec<PendingHandshake>,
    /// How many peers were ever added.
    added: u64,
    /// The work of a long request since handshakes and timers were last processed.
    done: usize,
    /// The last batch was useless; sleep 1 ms so that more messages accumulate.
    throttle_next: bool,
    /// The interfaces of peers with link-local addresses.
    zones: Zones,
    /// The port that the link comes up with: the configured one, or the one that the system chose last. Zero: it has
    /// not chosen one yet.
    listen_port: u16,
    /// The system chooses the port.
    any_port: bool,
    /// For how long the machine had been suspended at the last pass.
    suspended: Duration,
}

impl<B: Backend> SlowPath<B> {
    /// A device without key, peers and sockets.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self {
            device: Device::with_filter(shared.handshake_filter.clone()),
            effects: EffectHandler::new(shared.clone()),
            limits: Limits::default(),
            #[cfg(feature = "fleet")]
            groups: group::Groups::default(),
            handshakes: Vec::with_capacity(EVENTS_PER_PASS),
            added: 0,
            done: 0,
            throttle_next: false,
            zones: Zones::default(),
            listen_port: 0,
            any_port: true,
            suspended: shared.backend.suspended(),
            shared,
        }
    }

    /// When [`SlowPath::process`] has to be called even if nothing happens until then.
    pub fn deadline(&self) -> Option<Boottime> {
        let deadlines = [self.device.deadline(), self.limits_deadline()].into_iter().flatten();
        #[cfg(feature = "fleet")]
        let deadlines = deadlines.chain(self.groups.deadline());
        deadlines.min()
    }

    /// Processes what the data path has queued and the timers that are due; true if there was anything, in which case
    /// there may be more.
    pub fn process(&mut self) -> bool {
        // Sleeps before processing, not after: the caller goes on with a fresh view.
        if std::mem::take(&mut self.throttle_next) {
            self.shared.backend.sleep(BATCH_DELAY);
        }
        let found = self.process_events() | self.finish_replacements();
        #[cfg(feature = "fleet")]
        let found = self.process_groups() | found;
        found
    }

    /// The same without a sleep, also in the middle of a long request. Adds and removes no peers and no allowed IPs.
    fn process_events(&mut self) -> bool {
        self.shared.slow_path_queue.begin_pass();
        let mut found = self.check_suspend() | self.process_confirmations();
        for _ in 0..EVENTS_PER_PASS {
            let Some(peer) = self.shared.slow_path_queue.next_woken() else { break };
            found = true;
            let now = self.shared.backend.now();
            // A removed peer may still be queued, and its index may belong to another peer.
            if self.device.peer(&peer.key) == Some(peer.id) {
                self.enforce(&peer);
                #[cfg(feature = "fleet")]
                self.group_woken(&peer);
                self.device.woken(now, &mut BackendRng(&self.shared.backend), peer.id, &mut self.effects);
                self.note_traffic();
            }
        }
        found |= self.process_limits();
        found |= self.process_handshakes();
        // Last: packets keep their source address until it is checked, so nothing waits for this.
        found |= self.check_source_addrs();
        found | self.expire()
    }

    /// Checks source addresses in use after a change of routes or addresses.
    fn check_source_addrs(&mut self) -> bool {
        let mut found = false;
        for _ in 0..EVENTS_PER_PASS {
            let Some(peer) = self.shared.slow_path_queue.next_source_addr_check() else { break };
            found = true;
            self.effects.check_source_addr(&peer);
        }
        found
    }

    /// Processes the oldest handshake messages. If these were all and all were dropped, the next batch is delayed:
    /// otherwise a flood would wake this thread for each message.
    fn process_handshakes(&mut self) -> bool {
        let mut handshakes = std::mem::take(&mut self.handshakes);
        let waiting = self.shared.slow_path_queue.take_handshakes(&mut handshakes);
        let now = self.shared.backend.now();
        let indexed = handshakes.iter().enumerate();
        let dropped =
            indexed.filter(|(index, handshake)| !self.process_handshake(now, handshake, waiting - index)).count();
        handshakes.clear();
        self.handshakes = handshakes;
        self.throttle_next = dropped > 0 && dropped == waiting;
        waiting > 0
    }

    /// Processes one handshake message; false if it was dropped.
    fn process_handshake(&mut self, now: Now, handshake: &PendingHandshake, backlog: usize) -> bool {
        self.effects.origin = Some(*handshake);
        let result = self.device.handle(
            now,
            &mut BackendRng(&self.shared.backend),
            handshake.source,
            backlog,
            handshake.message(),
            &mut self.effects,
        );
        self.effects.origin = None;
        #[cfg(feature = "fleet")]
        if result == Err(DropReason::UnknownIndex) && forward(&self.shared, handshake) {
            return true;
        }
        if let Err(reason) = result {
            self.shared.counters.count_protocol_drop(reason);
            tracing::debug!("handshake message from {} dropped: {}", handshake.source, reason.name());
        } else {
            self.zones.learn(&self.shared.backend, handshake.source);
        }
        result.is_ok()
    }

    /// Wipes the keys after a suspend, during which the machine's memory may have been read: the next packet starts a
    /// handshake (kernel: device.c, wg_pm_notification).
    fn check_suspend(&mut self) -> bool {
        let suspended = self.shared.backend.suspended();
        let slept = suspended.saturating_sub(self.suspended) >= SUSPEND_MIN;
        self.suspended = self.suspended.max(suspended);
        if slept {
            tracing::info!("the machine was suspended: all sessions are renewed");
            self.device.resumed(self.shared.backend.now(), &mut self.effects);
        }
        slept
    }

    fn expire(&mut self) -> bool {
        let now = self.shared.backend.now();
        let due = self.device.deadline().is_some_and(|deadline| deadline <= now.boot);
        if due {
            self.device.expire(now, &mut BackendRng(&self.shared.backend), &mut self.effects);
            self.note_traffic();
        }
        due
    }

    /// Sets the MTUs of the link and of the routes over it.
    pub fn set_mtu(&mut self, link: u32, routes: Vec<RouteMtu>) {
        self.shared.mtu.set_link(link);
        self.shared.mtu.set_routes(routes);
    }

    /// The host's routes or addresses changed: source addresses are checked again before use.
    pub fn routing_changed(&mut self) {
        self.shared.routing_epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// The host is on another network, as the program says that the engine runs inside of.
    pub fn network_changed(&mut self) {
        self.forget_source_addrs();
        let now = self.shared.backend.now();
        self.device.network_changed(now, &mut BackendRng(&self.shared.backend), &mut self.effects);
    }

    /// Interfaces changed: link-local endpoints follow their interface to another index.
    pub fn interfaces_changed(&mut self) {
        let epoch = self.shared.routing_epoch();
        for moved in self.zones.follow(&self.shared.backend) {
            let routes = self.shared.tables.routes();
            let peers = self.device.peers().filter_map(|id| routes.peer(id));
            let count = peers.filter(|peer| peer.move_zone(moved.from, moved.to, epoch)).count();
            tracing::info!("{} has another index; endpoints that follow it: {count}", moved.name);
            self.shared.configured.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Records which sessions their peers have confirmed, and with them the time of the last handshake.
    pub fn process_confirmations(&mut self) -> bool {
        let mut found = false;
        while let Some(session) = self.shared.slow_path_queue.next_confirmed() {
            found = true;
            self.device.confirmed(self.shared.backend.now(), &session, &mut self.effects);
        }
        found
    }
}
