//! Handshakes, timers and configuration: everything that is not one packet's business.
//!
//! One thread owns it all, so nothing here locks against itself. It publishes sessions, peers
//! and endpoints through [`crate::tables`]; the data path answers with stamps and notices. A
//! flood of handshakes can fill the backlog and keep this thread busy, never the data path.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linerate_netio::udp::PacketInfo;
use linerate_protocol::{AddPeerError, Device, Effects};
use linerate_protocol::{Boottime, Entropy, Now, PeerId, constants};
use linerate_protocol::{Prefix, Session};

use crate::backend::{Backend, Sockets};
use crate::config::{ConfigError, PeerState, PeerUpdate, State, Update};
use crate::counters::EngineDiscard;
use crate::outbound::Sender;
use crate::shared::{PendingHandshake, RouteMtu, Shared};
use crate::tables::{Peer, Routes};
use crate::zones::Zones;

/// Handshake messages, and peers, that are worked off before the others have their turn again.
const EVENTS_PER_PASS: usize = 32;

/// How long handshake messages gather after useless ones. At 200,000 a second that is 200 of them, far
/// from [`constants::HANDSHAKE_BACKLOG`]; a handshake, or a timer, may be so much late.
const BATCH_DELAY: Duration = Duration::from_millis(1);

/// Changes of peers and prefixes that are made before handshakes and timers have their turn: some 50 microseconds.
const CHANGES_PER_SLICE: usize = 64;

/// Peers, or prefixes, that are told before handshakes and timers have their turn: below a millisecond.
const ENTRIES_PER_SLICE: usize = 256;

/// Answers about source addresses that are remembered until the next change of routes: 400 KB.
const SOURCE_ADDRS_MAX: usize = 4096;

/// A suspend that is shorter than this is not told from the jitter of two clocks.
const SUSPEND_MIN: Duration = Duration::from_millis(100);

/// The owner of the protocol's state.
pub struct SlowPath<B: Backend> {
    shared: Arc<Shared<B>>,
    device: Device,
    effects: EffectHandler<B>,
    /// Handshake messages that are being handled; the memory stays.
    handshakes: Vec<PendingHandshake>,
    /// How many peers were ever added.
    added: u64,
    /// What a long command has done since handshakes and timers had their turn.
    done: usize,
    /// Whether the next look has time.
    throttle_next: bool,
    /// The interfaces of peers with link-local addresses.
    zones: Zones,
    /// The port that the user asked for, for when the link comes up.
    listen_port: u16,
    /// How long the machine had been suspended when it was looked at last.
    suspended: Duration,
}

impl<B: Backend> SlowPath<B> {
    /// A device without key, peers and sockets.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        let sender = Sender::new(shared.clone());
        let effects =
            EffectHandler { shared: shared.clone(), sender, origin: None, sources: SourceAddrCache::default() };
        let suspended = shared.backend.suspended();
        let handshakes = Vec::with_capacity(EVENTS_PER_PASS);
        let device = Device::with_filter(shared.handshake_filter.clone());
        Self {
            shared,
            device,
            effects,
            handshakes,
            added: 0,
            done: 0,
            throttle_next: false,
            zones: Zones::default(),
            listen_port: 0,
            suspended,
        }
    }

    /// When [`SlowPath::process`] has to be called even if nothing happens until then.
    pub fn deadline(&self) -> Option<Boottime> {
        self.device.deadline()
    }

    /// Looks at everything that came from the data path and at the timers; true if there was
    /// anything, in which case there may be more.
    pub fn process(&mut self) -> bool {
        // First of all, so that what is done after the look is done on what it saw.
        if std::mem::take(&mut self.throttle_next) {
            self.shared.backend.rest(BATCH_DELAY);
        }
        self.process_now()
    }

    /// A look without a rest before it, as in the middle of a long command: handshakes and timers do not wait for its
    /// end. Peers come and go, and prefixes move, by commands alone.
    fn process_now(&mut self) -> bool {
        self.shared.slow_path_queue.begin();
        let mut found = self.notice_suspend() | self.process_confirmations();
        for _ in 0..EVENTS_PER_PASS {
            let Some(peer) = self.shared.slow_path_queue.next_woken() else { break };
            found = true;
            let now = self.shared.backend.now();
            // A removed peer's notice may outlive it, and its index may be another's by now.
            if self.device.peer(&peer.key) == Some(peer.id) {
                self.device.woken(now, &mut BackendRng(&self.shared.backend), peer.id, &mut self.effects);
            }
        }
        found |= self.process_handshakes();
        // After what others wait for: packets leave as before until this is found out.
        found |= self.check_sources();
        found | self.expire()
    }

    /// Looks at source addresses that are in doubt since routes or addresses changed.
    fn check_sources(&mut self) -> bool {
        let mut found = false;
        for _ in 0..EVENTS_PER_PASS {
            let Some(peer) = self.shared.slow_path_queue.next_source_check() else { break };
            found = true;
            self.effects.check_source(&peer);
        }
        found
    }

    /// Handles the oldest handshake messages. When these were all, and none of them was of use, others may
    /// gather: a flood that is met message by message wakes this thread as often.
    fn process_handshakes(&mut self) -> bool {
        let mut handshakes = std::mem::take(&mut self.handshakes);
        let waiting = self.shared.slow_path_queue.take_handshakes(&mut handshakes);
        let now = self.shared.backend.now();
        let handled = handshakes.iter().enumerate();
        let refused = handled.filter(|(place, handshake)| !self.handle(now, handshake, waiting - place)).count();
        handshakes.clear();
        self.handshakes = handshakes;
        self.throttle_next = refused > 0 && refused == waiting;
        waiting > 0
    }

    /// Handles one handshake message; false if it was dropped.
    fn handle(&mut self, now: Now, handshake: &PendingHandshake, backlog: usize) -> bool {
        self.effects.origin = Some(*handshake);
        let handled = self.device.handle(
            now,
            &mut BackendRng(&self.shared.backend),
            handshake.source,
            backlog,
            handshake.message(),
            &mut self.effects,
        );
        self.effects.origin = None;
        if let Err(reason) = handled {
            self.shared.counters.discard_protocol(reason);
            tracing::debug!("handshake message from {} dropped: {}", handshake.source, reason.name());
        } else {
            self.zones.learn(&self.shared.backend, handshake.source);
        }
        handled.is_ok()
    }

    /// After a suspend the keys are wiped, since others may have had the machine's memory: the next
    /// packet starts a handshake (kernel: device.c, wg_pm_notification).
    fn notice_suspend(&mut self) -> bool {
        let suspended = self.shared.backend.suspended();
        let slept = suspended.saturating_sub(self.suspended) >= SUSPEND_MIN;
        self.suspended = self.suspended.max(suspended);
        if slept {
            tracing::info!("the machine was suspended: all sessions start anew");
            self.device.resumed(self.shared.backend.now(), &mut self.effects);
        }
        slept
    }

    fn expire(&mut self) -> bool {
        let now = self.shared.backend.now();
        let due = self.device.deadline().is_some_and(|deadline| deadline <= now.boot);
        if due {
            self.device.expire(now, &mut BackendRng(&self.shared.backend), &mut self.effects);
        }
        due
    }

    /// The link was set up: opens the sockets, sends what waits.
    ///
    /// # Errors
    /// When the port cannot be had; the device stays down.
    pub fn up(&mut self) -> Result<(), ConfigError> {
        if self.device.is_up() {
            return Ok(());
        }
        let sockets = self.bind(self.listen_port, self.shared.mark.load(Ordering::Relaxed))?;
        self.replace_sockets(Some(sockets));
        let now = self.shared.backend.now();
        self.device.up(now, &mut BackendRng(&self.shared.backend), &mut self.effects);
        Ok(())
    }

    /// Whether a port can be had, with that mark or the one there is; it is let go again.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn try_port(&self, port: u16, mark: Option<u32>) -> Result<(), ConfigError> {
        self.bind(port, mark.unwrap_or_else(|| self.shared.mark.load(Ordering::Relaxed))).map(drop)
    }

    /// The link was set down: closes the sockets, forgets sessions and what waits.
    pub fn down(&mut self) {
        if self.device.is_up() {
            self.device.down(&mut self.effects);
            self.replace_sockets(None);
        }
    }

    /// The link has another MTU, or the routes over it have.
    pub fn set_mtu(&mut self, link: u32, routes: Vec<RouteMtu>) {
        self.shared.mtu.set_link(link);
        self.shared.mtu.set_routes(routes);
    }

    /// The host's routes or addresses changed: cached sources are looked at again before use.
    pub fn routing_changed(&mut self) {
        self.shared.routing_epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Interfaces came, changed or went: peers whose zone has another index by now are given that.
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

    /// Takes note of the sessions whose peers have proved that they hold the keys. Whoever had an
    /// answer through the tunnel and asks for the state then finds the handshake in it.
    pub fn process_confirmations(&mut self) -> bool {
        let mut found = false;
        while let Some(session) = self.shared.slow_path_queue.next_confirmed() {
            found = true;
            self.device.confirmed(self.shared.backend.now(), &session, &mut self.effects);
        }
        found
    }

    /// The device as it is.
    pub fn get(&mut self) -> State {
        let ids: Vec<PeerId> = self.device.peers().collect();
        let mut peers = Vec::with_capacity(ids.len());
        for id in ids {
            peers.extend(self.get_peer(id));
            self.count_done(1, ENTRIES_PER_SLICE);
        }
        let sockets = self.shared.sockets.load();
        State {
            private_key: self.device.private_key().cloned(),
            listen_port: sockets.as_ref().map_or(self.listen_port, |sockets| sockets.port),
            fwmark: self.shared.mark.load(Ordering::Relaxed),
            peers,
        }
    }

    fn get_peer(&mut self, id: PeerId) -> Option<PeerState> {
        let peer = self.shared.tables.routes().peer(id).cloned()?;
        let (rx_bytes, tx_bytes) = peer.transfer();
        Some(PeerState {
            public_key: peer.key,
            preshared_key: self.device.preshared_key(id).clone(),
            endpoint: peer.endpoint().as_ref().map(|endpoint| endpoint.addr),
            last_handshake: peer.last_handshake(),
            rx_bytes,
            tx_bytes,
            persistent_keepalive: self.device.persistent_keepalive(id),
            allowed_ips: self.allowed_ips(id),
        })
    }

    fn allowed_ips(&mut self, id: PeerId) -> Vec<Prefix> {
        let mut all: Vec<_> = self.shared.tables.routes().allowed.prefixes(id).take(ENTRIES_PER_SLICE).collect();
        let mut told = 0;
        loop {
            let more = all.len() - told;
            told = all.len();
            self.count_done(more, ENTRIES_PER_SLICE);
            if more < ENTRIES_PER_SLICE {
                return all;
            }
            let last = all[told - 1];
            all.extend(self.shared.tables.routes().allowed.prefixes_after(last, id).take(ENTRIES_PER_SLICE));
        }
    }

    /// Counts what a long command does: after `at_once` of it, handshakes and timers have their turn.
    fn count_done(&mut self, count: usize, at_once: usize) {
        self.done += count;
        if self.done >= at_once {
            self.done = 0;
            self.process_now();
        }
    }

    /// Changes the device: first everything that can fail, then the rest.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn set(&mut self, update: Update) -> Result<(), ConfigError> {
        self.check_peer_count(&update)?;
        // First: who asks while this is done has to ask for all of it, and gets that afterwards.
        self.shared.configured.fetch_add(1, Ordering::SeqCst);
        self.set_port_and_mark(update.listen_port, update.fwmark)?;
        if let Some(key) = update.private_key {
            let now = self.shared.backend.now();
            let own = self.device.set_private_key(now, &mut BackendRng(&self.shared.backend), key, &mut self.effects);
            own.into_iter().for_each(|id| self.forget(id));
        }
        if update.replace_peers {
            let all: Vec<_> = self.device.peers().collect();
            for id in all {
                self.remove(id);
                self.count_done(1, CHANGES_PER_SLICE);
            }
        }
        for peer in update.peers {
            self.set_peer(peer);
            self.count_done(1, CHANGES_PER_SLICE);
        }
        Ok(())
    }

    fn check_peer_count(&self, update: &Update) -> Result<(), ConfigError> {
        let present = if update.replace_peers { 0 } else { self.device.peers().len() };
        let more = update.peers.iter().filter(|peer| !peer.remove && !peer.update_only).count();
        if present + more <= constants::PEERS_MAX {
            return Ok(());
        }
        let known = |peer: &&PeerUpdate| self.device.peer(&peer.public_key).is_some();
        let known = if update.replace_peers { 0 } else { update.peers.iter().filter(known).count() };
        (present + more - known <= constants::PEERS_MAX).then_some(()).ok_or(ConfigError::TooManyPeers)
    }

    fn set_port_and_mark(&mut self, port: Option<u16>, mark: Option<u32>) -> Result<(), ConfigError> {
        let wanted_mark = mark.unwrap_or_else(|| self.shared.mark.load(Ordering::Relaxed));
        // Not held while they are replaced: that waits for whoever holds them.
        let current = self.shared.sockets.load().as_ref().map(|sockets| sockets.port);
        let moves_to = port.filter(|port| current.is_some_and(|current| *port == 0 || *port != current));
        if let Some(port) = moves_to {
            let sockets = self.bind(port, wanted_mark)?;
            self.replace_sockets(Some(sockets));
        } else if let Some(current) = self.shared.sockets.load().as_deref().filter(|_| mark.is_some()) {
            self.shared.backend.set_mark(current, wanted_mark).map_err(ConfigError::Mark)?;
        }
        self.shared.mark.store(wanted_mark, Ordering::Relaxed);
        self.listen_port = port.unwrap_or(self.listen_port);
        if port.is_some() || mark.is_some() {
            // The kernel module does so too (socket.c, wg_socket_reinit; netlink.c, set_device).
            self.forget_sources();
        }
        Ok(())
    }

    fn bind(&self, port: u16, mark: u32) -> Result<Sockets<B::Socket>, ConfigError> {
        self.shared.backend.bind(port, mark).map_err(|error| ConfigError::Port { port, error })
    }

    /// Swaps the sockets and waits, shortly, until nobody reads from the old ones: their port
    /// is free from then on.
    fn replace_sockets(&mut self, sockets: Option<Sockets<B::Socket>>) {
        let old = self.shared.sockets.swap(sockets.map(Arc::new));
        self.shared.sockets_changed.signal();
        let Some(old) = old.map(|old| Arc::downgrade(&old)) else { return };
        for _ in 0..100 {
            if old.strong_count() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn forget_sources(&self) {
        let routes = self.shared.tables.routes();
        for peer in self.device.peers().filter_map(|id| routes.peer(id)) {
            if let Some(endpoint) = peer.endpoint().as_ref() {
                endpoint.forget_source();
            }
        }
    }

    fn set_peer(&mut self, update: PeerUpdate) {
        let known = self.device.peer(&update.public_key);
        if update.remove {
            return known.into_iter().for_each(|id| self.remove(id));
        }
        let Some(id) = known.or_else(|| if update.update_only { None } else { self.add(&update) }) else {
            return;
        };
        if let Some(key) = update.preshared_key {
            self.device.set_preshared_key(id, key);
        }
        self.set_allowed_ips(id, update.replace_allowed_ips, &update.allowed_ips);
        let now = self.shared.backend.now();
        let rng = &mut BackendRng(&self.shared.backend);
        if let Some(addr) = update.endpoint {
            let peer = self.shared.tables.routes().peer(id).cloned();
            peer.expect("a peer of the device is in the tables").set_endpoint(addr, self.shared.routing_epoch());
            self.zones.learn(&self.shared.backend, addr);
            self.device.endpoint_set(now, rng, id, &mut self.effects);
        }
        if let Some(seconds) = update.persistent_keepalive {
            self.device.set_persistent_keepalive(now, rng, id, seconds, &mut self.effects);
        }
    }

    fn add(&mut self, update: &PeerUpdate) -> Option<PeerId> {
        let activity = Arc::default();
        match self.device.add_peer(update.public_key, Arc::clone(&activity)) {
            Ok(id) => {
                let peer = Peer::new(id, update.public_key, self.added, activity);
                self.added += 1;
                let peer = Arc::new(peer);
                self.shared.tables.change(|routes| routes.add(peer.clone()));
                Some(id)
            }
            // Our own key as a peer's is ignored (kernel: netlink.c, set_peer).
            Err(AddPeerError::OwnKey | AddPeerError::TooMany) => None,
            Err(AddPeerError::Exists(id)) => Some(id),
        }
    }

    fn remove(&mut self, id: PeerId) {
        self.device.remove_peer(id, &mut self.effects);
        self.forget(id);
    }

    /// Takes a peer that the protocol has let go of out of the tables.
    fn forget(&mut self, id: PeerId) {
        self.change_repeatedly(|routes| routes.allowed.remove_first(id));
        if let Some(peer) = self.shared.tables.change(|routes| routes.remove(id)) {
            peer.set_sending(None);
            let mut staged = peer.staged.lock().expect("no thread panics while it stages");
            let dropped = staged.close(&self.shared.staged);
            self.shared.counters.discard_many(EngineDiscard::StagedAbandoned, dropped as u64);
        }
    }

    /// Changes what a peer may use. What it had and keeps is its own at every moment: first it is given what is new,
    /// then what is stale is taken away.
    fn set_allowed_ips(&mut self, id: PeerId, replace: bool, changes: &[(bool, Prefix)]) {
        if replace {
            self.shared.tables.change(|routes| routes.allowed.begin_replacing(id));
        }
        for part in changes.chunks(CHANGES_PER_SLICE) {
            self.shared.tables.change(|routes| {
                for &(add, prefix) in part {
                    if add {
                        routes.allowed.insert(prefix, id);
                    } else {
                        routes.allowed.remove(prefix, id);
                    }
                }
            });
            self.count_done(part.len(), CHANGES_PER_SLICE);
        }
        if replace {
            self.change_repeatedly(|routes| routes.allowed.remove_stale(id));
        }
    }

    /// Makes the same change until it says that there is nothing left to do.
    fn change_repeatedly(&mut self, mut change: impl FnMut(&mut Routes) -> bool) {
        loop {
            let made =
                self.shared.tables.change(|routes| (0..CHANGES_PER_SLICE).take_while(|_| change(routes)).count());
            self.count_done(made, CHANGES_PER_SLICE);
            if made < CHANGES_PER_SLICE {
                return;
            }
        }
    }
}

fn drop_staged<B: Backend>(shared: &Shared<B>, peer: &Peer) {
    let mut staged = peer.staged.lock().expect("no thread panics while it stages");
    let dropped = staged.clear(&shared.staged);
    shared.counters.discard_many(EngineDiscard::StagedAbandoned, dropped as u64);
}

/// What the kernel said of source addresses since routes, addresses or the mark changed last. After such a change every
/// active peer asks, and each question is a system call or a list of all addresses.
#[derive(Default)]
struct SourceAddrCache {
    epoch: u64,
    mark: u32,
    /// By destination, for peers behind one address.
    v4: HashMap<(IpAddr, PacketInfo), bool>,
    /// The host's own; none inside if they could not be found out.
    v6: Option<Option<HashSet<IpAddr>>>,
}

impl SourceAddrCache {
    /// As the kernel module does: an IPv4 source is dropped when it is no longer ours or when
    /// its route uses another interface; an IPv6 source only when it is no longer ours (socket.c,
    /// send4 and send6).
    fn holds<B: Backend>(&mut self, shared: &Shared<B>, epoch: u64, to: IpAddr, from: PacketInfo) -> Option<bool> {
        let mark = shared.mark.load(Ordering::Relaxed);
        if (self.epoch, self.mark) != (epoch, mark) {
            *self = Self { epoch, mark, ..Self::default() };
        }
        if to.is_ipv6() {
            let own = self.v6.get_or_insert_with(|| shared.backend.own_v6()).as_ref()?;
            return Some(own.contains(&from.addr));
        }
        if let Some(known) = self.v4.get(&(to, from)) {
            return Some(*known);
        }
        let holds = shared.backend.source_addr_is_valid(to, from, mark)?;
        if self.v4.len() < SOURCE_ADDRS_MAX {
            self.v4.insert((to, from), holds);
        }
        Some(holds)
    }
}

/// The backend's randomness, as the protocol asks for it.
struct BackendRng<'a, B>(&'a B);

impl<B: Backend> Entropy for BackendRng<'_, B> {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// Does what the protocol decides.
struct EffectHandler<B: Backend> {
    shared: Arc<Shared<B>>,
    sender: Sender<B>,
    /// The handshake message that is being handled.
    origin: Option<PendingHandshake>,
    sources: SourceAddrCache,
}

impl<B: Backend> EffectHandler<B> {
    fn peer(&self, id: PeerId) -> Option<Arc<Peer>> {
        self.shared.tables.routes().peer(id).cloned()
    }

    /// The peer, about to be sent to.
    fn addressee(&mut self, id: PeerId) -> Option<Arc<Peer>> {
        let peer = self.peer(id)?;
        self.check_source(&peer);
        Some(peer)
    }

    /// Looks at the peer's source address if routes or addresses changed since that was done last.
    fn check_source(&mut self, peer: &Peer) {
        if let Some(endpoint) = peer.endpoint().as_ref() {
            let epoch = self.shared.routing_epoch();
            let holds = |from| self.sources.holds(&self.shared, epoch, endpoint.addr.ip(), from);
            if !endpoint.check_source(epoch, holds) {
                self.shared.source_check_failed.store(true, Ordering::Relaxed);
            }
        }
    }

    fn now(&self) -> Boottime {
        self.shared.backend.boottime()
    }

    fn origin(&self) -> Option<(SocketAddr, Option<IpAddr>)> {
        self.origin.as_ref().map(|handshake| (handshake.source, handshake.local.map(|local| local.addr)))
    }
}

impl<B: Backend> Effects for EffectHandler<B> {
    fn send(&mut self, peer: PeerId, message: &[u8]) {
        if let Some(peer) = self.addressee(peer) {
            self.sender.send_message(&peer, message, self.now());
        }
    }

    fn reply(&mut self, message: &[u8]) {
        if let Some((to, from)) = self.origin() {
            self.sender.reply(message, to, from);
        }
    }

    fn roam(&mut self, peer: PeerId) {
        if let (Some(peer), Some(handshake)) = (self.peer(peer), self.origin) {
            peer.heard_from(handshake.source, handshake.local, self.shared.routing_epoch());
            peer.count_rx(handshake.message().len());
        }
    }

    fn session_added(&mut self, session: &Arc<Session>) {
        if let Some(peer) = self.peer(session.peer) {
            self.shared.tables.add_receiver(session, peer);
        }
    }

    fn session_removed(&mut self, session: &Arc<Session>) {
        self.shared.tables.remove_receiver(session);
    }

    fn set_sending_session(&mut self, peer: PeerId, session: Option<&Arc<Session>>) {
        if let Some(peer) = self.peer(peer) {
            peer.set_sending(session.cloned());
        }
    }

    fn send_keepalive(&mut self, peer: PeerId) {
        if let Some(peer) = self.addressee(peer) {
            self.sender.send_keepalive(&peer, self.now());
        }
    }

    fn send_staged(&mut self, peer: PeerId) {
        if let Some(peer) = self.addressee(peer) {
            self.sender.send_staged(&peer, self.now());
        }
    }

    fn drop_staged(&mut self, peer: PeerId) {
        if let Some(peer) = self.peer(peer) {
            drop_staged(&self.shared, &peer);
        }
    }

    fn forget_source(&mut self, peer: PeerId) {
        if let Some(peer) = self.peer(peer)
            && let Some(endpoint) = peer.endpoint().as_ref()
        {
            endpoint.forget_source();
        }
    }

    fn handshake_done(&mut self, peer: PeerId, wall: Duration) {
        if let Some(peer) = self.peer(peer) {
            peer.set_last_handshake(wall);
            tracing::debug!("handshake with peer {:?} complete", peer.key);
        }
    }

    fn has_endpoint(&self, peer: PeerId) -> bool {
        self.peer(peer).is_some_and(|peer| peer.endpoint().is_some())
    }
}
