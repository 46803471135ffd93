//! A WireGuard interface: its identity, its peers, up and down.
//!
//! The slow path owns the only [`Device`] and reports events to it; each call carries out its effects
//! through [`Effects`], in order, before it returns. No call blocks, and none visits all peers unless
//! the whole interface changes. `handshake` handles messages, `timers` handles time.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::constants::PEERS_MAX;
use crate::effects::CallContext;
use crate::handshake_filter::HandshakeFilter;
use crate::indices::Indices;
use crate::keyring::Evicted;
use crate::load_state::LoadState;
use crate::noise::Identity;
use crate::peer::{HandshakeAction, Peer, StaticStatic};
use crate::ratelimit::RateLimiter;
use crate::tai64n::TimestampGenerator;
use crate::{Boottime, Effects, Entropy, Now, PeerId, PresharedKey, PrivateKey, PublicKey, TrafficTimestamps};

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddPeerError {
    /// The key is the device's own.
    OwnKey,
    /// The device has [`PEERS_MAX`] peers.
    TooMany,
    /// There is a peer with this key.
    Exists(PeerId),
}

/// A WireGuard interface.
pub struct Device {
    pub(crate) filter: Arc<HandshakeFilter>,
    pub(crate) identity: Option<Identity>,
    pub(crate) up: bool,
    pub(crate) peers: Vec<Option<Box<Peer>>>,
    vacant: Vec<u32>,
    by_key: BTreeMap<PublicKey, PeerId>,
    by_serial: BTreeMap<u64, PeerId>,
    /// Serial number of the next peer.
    next_serial: u64,
    pub(crate) indices: Indices,
    /// One entry for each peer with a timer: its earliest deadline.
    pub(crate) timers: BTreeSet<(Boottime, PeerId)>,
    pub(crate) limiter: RateLimiter,
    pub(crate) load: LoadState,
    pub(crate) timestamps: TimestampGenerator,
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
}

/// Identity and peers.
impl Device {
    /// A device without a key and without peers, down.
    pub fn new() -> Self {
        Self::with_filter(Arc::default())
    }

    /// A device whose data path pre-filters handshakes with `filter`.
    pub fn with_filter(filter: Arc<HandshakeFilter>) -> Self {
        Self {
            identity: None,
            up: false,
            peers: Vec::new(),
            vacant: Vec::new(),
            by_key: BTreeMap::new(),
            by_serial: BTreeMap::new(),
            next_serial: 0,
            indices: Indices::with_filter(filter.clone()),
            timers: BTreeSet::new(),
            limiter: RateLimiter::default(),
            load: LoadState::with_filter(filter.clone()),
            timestamps: TimestampGenerator::default(),
            filter,
        }
    }

    /// Sets or removes the private key. Old sessions no longer seal, and running handshakes start over
    /// at once with the new key.
    ///
    /// A peer with the new public key would be the device itself: it is removed and returned.
    pub fn set_private_key(
        &mut self,
        now: Now,
        rng: &mut dyn Entropy,
        key: Option<PrivateKey>,
        effects: &mut dyn Effects,
    ) -> Option<PeerId> {
        if self.private_key() == key.as_ref() {
            return None;
        }
        self.identity = key.map(Identity::new);
        self.filter.set_mac1_key(self.identity.as_ref().map(|identity| &identity.mac1_key));
        let own = self.public_key().and_then(|public| self.peer(public));
        if let Some(own) = own {
            self.remove_peer(own, effects);
        }
        for id in self.ids() {
            let Some(peer) = self.peers[id.0 as usize].as_deref_mut() else { continue };
            peer.static_static = StaticStatic::Unknown;
            (peer.handshake_sent, peer.urgent) = (None, false);
            peer.keyring.stop_sealing();
            if peer.keyring.current().is_some() {
                effects.set_sending_session(id, None);
            }
            // A running handshake starts over with the new key.
            peer.handshake_timer = peer.handshaking().then_some((now.boot, HandshakeAction::SendFirst));
            self.drop_initiator(id);
            self.update_timers(&mut CallContext { now, rng, effects }, id);
        }
        own
    }

    /// Our public key, if there is a private key.
    pub fn public_key(&self) -> Option<&PublicKey> {
        self.identity.as_ref().map(|identity| &identity.public)
    }

    /// Our private key.
    pub fn private_key(&self) -> Option<&PrivateKey> {
        self.identity.as_ref().map(|identity| &identity.secret)
    }

    /// Adds a peer without preshared key and persistent keepalive.
    pub fn add_peer(&mut self, key: PublicKey, traffic: Arc<TrafficTimestamps>) -> Result<PeerId, AddPeerError> {
        if self.public_key() == Some(&key) {
            return Err(AddPeerError::OwnKey);
        }
        if let Some(peer) = self.peer(&key) {
            return Err(AddPeerError::Exists(peer));
        }
        if self.by_key.len() >= PEERS_MAX {
            return Err(AddPeerError::TooMany);
        }
        let id = match self.vacant.pop() {
            Some(index) => PeerId(index),
            None => {
                self.peers.push(None);
                PeerId(u32::try_from(self.peers.len() - 1).expect("there are at most 2^20 peers"))
            }
        };
        self.peers[id.0 as usize] = Some(Box::new(Peer::new(key, self.next_serial, traffic)));
        self.by_key.insert(key, id);
        self.by_serial.insert(self.next_serial, id);
        self.next_serial += 1;
        Ok(id)
    }

    /// Removes a peer and everything it has; does nothing if there is no such peer.
    pub fn remove_peer(&mut self, id: PeerId, effects: &mut dyn Effects) {
        self.forget_keys(id, effects);
        let Some(peer) = self.peers.get_mut(id.0 as usize).and_then(Option::take) else { return };
        if let Some(armed) = peer.armed {
            self.timers.remove(&(armed, id));
        }
        #[cfg(feature = "fleet")]
        if let Some(fleet) = &mut self.indices.fleet {
            fleet.forget(id);
        }
        self.by_key.remove(&peer.public);
        self.by_serial.remove(&peer.serial);
        self.vacant.push(id.0);
    }

    /// The peer with this key.
    pub fn peer(&self, key: &PublicKey) -> Option<PeerId> {
        self.by_key.get(key).copied()
    }

    /// All peers, oldest first.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = PeerId> + '_ {
        self.by_serial.values().copied()
    }

    /// A peer's public key.
    ///
    /// # Panics
    /// If there is no such peer, as the other getters do.
    pub fn peer_public_key(&self, peer: PeerId) -> PublicKey {
        self.existing(peer).public
    }

    /// A peer's preshared key.
    pub fn preshared_key(&self, peer: PeerId) -> &PresharedKey {
        &self.existing(peer).psk
    }

    /// A peer's persistent keepalive interval in seconds; zero: off.
    pub fn persistent_keepalive(&self, peer: PeerId) -> u16 {
        self.existing(peer).persistent_keepalive
    }

    /// Sets a peer's preshared key for future handshakes. The current session stays.
    pub fn set_preshared_key(&mut self, id: PeerId, psk: PresharedKey) {
        if let Some(peer) = self.get_mut(id) {
            peer.psk = psk;
        }
    }

    /// Sets a peer's persistent keepalive interval in seconds; zero: off. If the device is up and it was
    /// off, [`Device::expire`] sends one at once.
    pub fn set_persistent_keepalive(
        &mut self,
        now: Now,
        rng: &mut dyn Entropy,
        id: PeerId,
        secs: u16,
        effects: &mut dyn Effects,
    ) {
        let up = self.up;
        let Some(peer) = self.get_mut(id) else { return };
        let switched_on = peer.persistent_keepalive == 0 && secs > 0;
        peer.persistent_keepalive = secs;
        let cx = &mut CallContext { now, rng, effects };
        if switched_on && up {
            peer.traffic.touch(now.boot);
            return self.keepalive_soon(cx, id);
        }
        self.update_timers(cx, id);
    }

    /// Suspends a peer: what it has, except its configuration, is dropped, and its handshakes are refused.
    pub fn suspend(&mut self, id: PeerId, effects: &mut dyn Effects) {
        let Some(peer) = self.get_mut(id) else { return };
        peer.suspended = true;
        self.silence(id, effects);
    }

    /// Ends a suspension: the peer is as one that was just added.
    pub fn resume(&mut self, now: Now, rng: &mut dyn Entropy, id: PeerId, effects: &mut dyn Effects) {
        let up = self.up;
        let Some(peer) = self.get_mut(id) else { return };
        peer.suspended = false;
        // Workers may have reported traffic, or staged packets, after the suspension began.
        self.silence(id, effects);
        let Some(peer) = self.get_mut(id).filter(|peer| up && peer.persistent_keepalive > 0) else { return };
        peer.traffic.touch(now.boot);
        self.keepalive_soon(&mut CallContext { now, rng, effects }, id);
    }

    /// Sends what waited for an endpoint: the peer has got one.
    pub fn endpoint_set(&mut self, now: Now, rng: &mut dyn Entropy, id: PeerId, effects: &mut dyn Effects) {
        let Some(peer) = self.get(id).filter(|_| self.up) else { return };
        let cx = &mut CallContext { now, rng, effects };
        cx.effects.send_staged(id);
        if peer.persistent_keepalive > 0 && !peer.may_seal(now.boot) {
            return self.keepalive_soon(cx, id);
        }
        self.update_timers(cx, id);
    }
}

/// The interface as a whole.
impl Device {
    /// Whether the device is up.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Brings the device up: sends staged packets, and a keepalive to every peer with a persistent keepalive.
    pub fn up(&mut self, now: Now, rng: &mut dyn Entropy, effects: &mut dyn Effects) {
        if self.up {
            return;
        }
        self.up = true;
        let cx = &mut CallContext { now, rng, effects };
        for id in self.ids() {
            cx.effects.send_staged(id);
            if let Some(peer) = self.get(id).filter(|peer| peer.persistent_keepalive > 0) {
                peer.traffic.touch(now.boot);
                self.keepalive_soon(cx, id);
            } else {
                self.update_timers(cx, id);
            }
        }
    }

    /// Takes the device down: staged packets, handshakes, sessions and timers are dropped, and
    /// handshake messages are refused until it is up again.
    pub fn down(&mut self, effects: &mut dyn Effects) {
        self.up = false;
        for id in self.ids() {
            self.silence(id, effects);
            if let Some(peer) = self.get_mut(id) {
                peer.handshake_sent = None;
            }
        }
    }

    /// The host is on another network: peers in use get a packet from the new address, or another initiation if they
    /// were waited for.
    pub fn network_changed(&mut self, now: Now, rng: &mut dyn Entropy, effects: &mut dyn Effects) {
        for id in self.ids() {
            let up = self.up;
            let Some(peer) = self.get_mut(id).filter(|peer| up && !peer.suspended) else { continue };
            if peer.handshaking() {
                (peer.attempts, peer.urgent) = (0, false);
                peer.handshake_timer = Some((now.boot, HandshakeAction::SendFirst));
                let deadline = peer.deadline();
                self.schedule(id, deadline);
            } else if peer.may_seal(now.boot) || peer.persistent_keepalive > 0 {
                self.keepalive_soon(&mut CallContext { now, rng, effects }, id);
            }
        }
    }

    /// Wipes all keys after a suspend, during which the memory may have been read; the next packet starts a
    /// handshake.
    pub fn resumed(&mut self, now: Now, effects: &mut dyn Effects) {
        for id in self.ids() {
            self.forget_keys(id, effects);
            if self.up {
                self.schedule(id, Some(now.boot));
            }
        }
    }
}

/// Shared with `handshake` and `timers`.
impl Device {
    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(id.0 as usize)?.as_deref_mut()
    }

    fn existing(&self, id: PeerId) -> &Peer {
        self.get(id).expect("the caller passes a peer of this device")
    }

    /// A copy, because the caller may change the peers.
    fn ids(&self) -> Vec<PeerId> {
        self.peers().collect()
    }

    /// Drops a peer's staged packets, handshakes, sessions and timers.
    fn silence(&mut self, id: PeerId, effects: &mut dyn Effects) {
        effects.drop_staged(id);
        self.forget_keys(id, effects);
        let Some(peer) = self.get_mut(id) else { return };
        peer.handshake_timer = None;
        (peer.attempts, peer.urgent) = (0, false);
        peer.traffic.reset();
        self.schedule(id, None);
    }

    /// Wipes a peer's handshake and sessions.
    pub(crate) fn forget_keys(&mut self, id: PeerId, effects: &mut dyn Effects) {
        self.drop_initiator(id);
        let Some(peer) = self.get_mut(id) else { return };
        peer.wipe_at = None;
        if peer.keyring.current().is_some() {
            effects.set_sending_session(id, None);
        }
        let evicted = peer.keyring.clear();
        self.release_evicted(evicted, effects);
    }

    /// Wipes the initiation that waits for its response.
    pub(crate) fn drop_initiator(&mut self, id: PeerId) {
        if let Some(initiator) = self.get_mut(id).and_then(|peer| peer.initiator.take()) {
            self.indices.release(initiator.index);
        }
    }

    /// Releases the indices of evicted sessions.
    pub(crate) fn release_evicted(&mut self, evicted: Evicted, effects: &mut dyn Effects) {
        for session in evicted.into_iter().flatten() {
            self.indices.release(session.local);
            effects.session_removed(&session);
        }
    }
}
