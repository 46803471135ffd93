//! Reads and changes the configuration. Long requests are carried out in slices; handshakes and timers are processed in
//! between.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use linerate_protocol::{AddPeerError, PeerId, Prefix, constants};

use super::SlowPath;
use super::effects::BackendRng;
use crate::backend::Backend;
#[cfg(feature = "fleet")]
use crate::config::Initiate;
use crate::config::{ConfigError, DeviceChange, DeviceReport, PeerChange, PeerReport, RateChange};
use crate::counters::EngineDropReason;
use crate::sync::lock;
use crate::tables::{Peer, Routes};

/// Changes of peers and prefixes in a slice: some 50 microseconds.
const CHANGES_PER_SLICE: usize = 64;

/// Peers, or prefixes, that are read in a slice: below a millisecond.
const ENTRIES_PER_SLICE: usize = 256;

impl<B: Backend> SlowPath<B> {
    /// The state of the device.
    pub fn get(&mut self) -> DeviceReport {
        let ids: Vec<PeerId> = self.device.peers().collect();
        let mut peers = Vec::with_capacity(ids.len());
        for id in ids {
            peers.extend(self.get_peer(id));
            self.count_done(1, ENTRIES_PER_SLICE);
        }
        DeviceReport {
            private_key: self.device.private_key().cloned(),
            listen_port: self.listen_port,
            fwmark: self.shared.mark.load(Ordering::Relaxed),
            peers,
        }
    }

    fn get_peer(&mut self, id: PeerId) -> Option<PeerReport> {
        let peer = self.shared.tables.routes().peer(id).cloned()?;
        let (rx_bytes, tx_bytes) = peer.transfer();
        Some(PeerReport {
            public_key: peer.key,
            preshared_key: self.device.preshared_key(id).clone(),
            endpoint: peer.endpoint().as_ref().map(|endpoint| endpoint.addr),
            last_handshake: peer.last_handshake(),
            rx_bytes,
            tx_bytes,
            persistent_keepalive: self.device.persistent_keepalive(id),
            allowed_ips: self.allowed_ips(id),
            limits: self.limits_of(&peer),
            rate_tx: peer.tx_policer.rate(),
            rate_rx: peer.rx_policer.rate(),
        })
    }

    pub(super) fn allowed_ips(&mut self, id: PeerId) -> Vec<Prefix> {
        let mut all: Vec<_> = self.shared.tables.routes().allowed.prefixes(id).take(ENTRIES_PER_SLICE).collect();
        let mut read = 0;
        loop {
            let more = all.len() - read;
            read = all.len();
            self.count_done(more, ENTRIES_PER_SLICE);
            if more < ENTRIES_PER_SLICE {
                return all;
            }
            let last = all[read - 1];
            all.extend(self.shared.tables.routes().allowed.prefixes_after(last, id).take(ENTRIES_PER_SLICE));
        }
    }

    /// Counts the work of a long request; after each `slice` of it, processes handshakes and timers.
    fn count_done(&mut self, count: usize, slice: usize) {
        self.done += count;
        if self.done >= slice {
            self.done = 0;
            self.process_events();
        }
    }

    /// Changes the device: first everything that can fail, then the rest.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn set(&mut self, change: DeviceChange) -> Result<(), ConfigError> {
        self.check_peer_count(&change)?;
        #[cfg(feature = "fleet")]
        self.check_fleet(&change)?;
        #[cfg(feature = "fleet")]
        self.check_groups(&change)?;
        // First, so that a caller of `Shared::activity` during the change reads the whole state again after it.
        self.shared.configured.fetch_add(1, Ordering::SeqCst);
        self.set_port_and_mark(change.listen_port, change.fwmark)?;
        if let Some(key) = change.private_key {
            let now = self.shared.backend.now();
            let removed =
                self.device.set_private_key(now, &mut BackendRng(&self.shared.backend), key, &mut self.effects);
            removed.into_iter().for_each(|id| self.forget(id));
        }
        if let Some(time) = change.earliest_time {
            self.set_earliest_time(time);
        }
        #[cfg(feature = "fleet")]
        self.set_fleet_of_device(change.fleet, change.fleet_address, change.fleet_forward, change.fleet_stale);
        if change.replace_peers {
            let all: Vec<_> = self.device.peers().collect();
            for id in all {
                self.remove(id);
                self.count_done(1, CHANGES_PER_SLICE);
            }
        }
        for peer in change.peers {
            self.set_peer(peer);
            self.count_done(1, CHANGES_PER_SLICE);
        }
        Ok(())
    }

    fn check_peer_count(&self, change: &DeviceChange) -> Result<(), ConfigError> {
        let present = if change.replace_peers { 0 } else { self.device.peers().len() };
        let more = change.peers.iter().filter(|peer| !peer.remove && !peer.update_only).count();
        if present + more <= constants::PEERS_MAX {
            return Ok(());
        }
        let known = |peer: &&PeerChange| self.device.peer(&peer.public_key).is_some();
        let known = if change.replace_peers { 0 } else { change.peers.iter().filter(known).count() };
        (present + more - known <= constants::PEERS_MAX).then_some(()).ok_or(ConfigError::TooManyPeers)
    }

    fn set_peer(&mut self, change: PeerChange) {
        let known = self.device.peer(&change.public_key);
        if change.remove {
            return known.into_iter().for_each(|id| self.remove(id));
        }
        let Some(id) = known.or_else(|| if change.update_only { None } else { self.add(&change) }) else {
            return;
        };
        #[cfg(feature = "fleet")]
        let change = PeerChange { endpoint: self.set_fleet(id, &change), ..change };
        if let Some(key) = change.preshared_key {
            self.device.set_preshared_key(id, key);
        }
        self.set_rate(id, change.rate);
        // First, so that a peer that may not be let in never is.
        if let Some(limits) = change.limits {
            self.set_limits(id, &limits);
        }
        #[cfg(feature = "fleet")]
        self.set_group(id, &change.group);
        if let Some(owner) = self.owner_of_allowed_ips(id, !change.allowed_ips.is_empty()) {
            self.set_allowed_ips(owner, change.replace_allowed_ips, &change.allowed_ips);
        }
        let now = self.shared.backend.now();
        let rng = &mut BackendRng(&self.shared.backend);
        if let Some(addr) = change.endpoint {
            let peer = self.shared.tables.routes().peer(id).cloned();
            peer.expect("a peer of the device is in the tables").set_endpoint(addr, self.shared.routing_epoch());
            self.zones.learn(&self.shared.backend, addr);
            self.device.endpoint_set(now, rng, id, &mut self.effects);
        }
        if let Some(seconds) = change.persistent_keepalive {
            self.device.set_persistent_keepalive(now, rng, id, seconds, &mut self.effects);
        }
        #[cfg(feature = "fleet")]
        match change.fleet.initiate {
            Initiate::No => {}
            Initiate::Once => self.device.initiate_on_suspicion(now, rng, id, &mut self.effects),
            Initiate::Now => self.device.initiate_now(now, rng, id, &mut self.effects),
        }
    }

    /// Changes a peer's rates. Its packets find them on their way, so nothing else has to know.
    fn set_rate(&self, id: PeerId, change: RateChange) {
        let Some(peer) = self.shared.tables.routes().peer(id).cloned() else { return };
        if let Some(rate) = change.tx {
            peer.tx_policer.set_rate(rate);
        }
        if let Some(rate) = change.rx {
            peer.rx_policer.set_rate(rate);
        }
    }

    fn add(&mut self, change: &PeerChange) -> Option<PeerId> {
        let traffic = Arc::default();
        match self.device.add_peer(change.public_key, Arc::clone(&traffic)) {
            Ok(id) => {
                let peer = Peer::new(id, change.public_key, self.added, traffic);
                self.added += 1;
                let peer = Arc::new(peer);
                self.shared.tables.change(|routes| routes.add(peer.clone()));
                Some(id)
            }
            // A peer with our own key is ignored (kernel: netlink.c, set_peer).
            Err(AddPeerError::OwnKey | AddPeerError::TooMany) => None,
            Err(AddPeerError::Exists(id)) => Some(id),
        }
    }

    pub(super) fn remove(&mut self, id: PeerId) {
        #[cfg(feature = "fleet")]
        self.forget_number(id);
        self.device.remove_peer(id, &mut self.effects);
        self.forget(id);
    }

    /// Whose allowed IPs a change of a peer's changes.
    #[cfg(not(feature = "fleet"))]
    fn owner_of_allowed_ips(&self, id: PeerId, _: bool) -> Option<PeerId> {
        Some(id)
    }

    /// Removes a peer from the tables that the protocol has removed.
    fn forget(&mut self, id: PeerId) {
        #[cfg(feature = "fleet")]
        self.leave_group(id);
        self.forget_limits(id);
        self.change_repeatedly(|routes| routes.allowed.remove_first(id));
        if let Some(peer) = self.shared.tables.change(|routes| routes.remove(id)) {
            peer.set_sending(None);
            let dropped = lock(&peer.staged).close(&self.shared.staged);
            self.shared.counters.count_drops(EngineDropReason::StagedAbandoned, dropped as u64);
        }
    }

    /// Changes a peer's allowed IPs. Prefixes that it keeps stay its own throughout: new ones are added first, stale
    /// ones are removed last.
    pub(super) fn set_allowed_ips(&mut self, id: PeerId, replace: bool, changes: &[(bool, Prefix)]) {
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

    /// Repeats a change, in slices, until it returns false.
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
