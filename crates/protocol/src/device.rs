//! A WireGuard interface: its identity, its peers, up and down.
//!
//! The slow path owns the one [`Device`] and calls it with what happened; it answers through
//! [`Effects`], in order and before it returns. It never waits, and never looks at all peers
//! except where the whole interface changes. What handshake messages do is in `handshake`, what
//! time does is in `timers`.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::constants::PEERS_MAX;
use crate::handshake_filter::HandshakeFilter;
use crate::indices::Indices;
use crate::keyring::Evicted;
use crate::load_state::LoadState;
use crate::noise::Identity;
use crate::peer::{Attempt, Peer, StaticStatic};
use crate::ratelimit::RateLimiter;
use crate::tai64n::TimestampGenerator;
use crate::{Activity, Boottime, Entropy, Now, PeerId, PresharedKey, PublicKey, Session, StaticSecret};

/// What the engine does for the protocol.
pub trait Effects {
    /// Sends an initiation or response to the peer's current endpoint, marked AF41. Without an
    /// endpoint it is dropped.
    fn send(&mut self, peer: PeerId, message: &[u8]);
    /// Sends a cookie reply to where the datagram being handled came from, unmarked.
    fn reply(&mut self, message: &[u8]);
    /// The datagram being handled is authentic: where it came from is the peer's endpoint.
    fn roam(&mut self, peer: PeerId);
    /// Packets may be opened with this session from here on.
    fn session_added(&mut self, session: &Arc<Session>);
    /// The session is gone.
    fn session_removed(&mut self, session: &Arc<Session>);
    /// What outbound packets are sealed with from here on; without a session they are staged.
    fn sending(&mut self, peer: PeerId, session: Option<&Arc<Session>>);
    /// Sends the staged packets, or one empty packet if there are none. The data path reports what
    /// it sent through [`Activity::sent`], as always.
    fn send_keepalive(&mut self, peer: PeerId);
    /// Sends the staged packets, and nothing if there are none. If they cannot be sealed, the data
    /// path asks for a handshake, as always.
    fn send_staged(&mut self, peer: PeerId);
    /// Drops the staged packets: the peer does not answer, or the device goes down.
    fn drop_staged(&mut self, peer: PeerId);
    /// Forgets the cached source address: it may be why the peer does not answer.
    fn forget_source(&mut self, peer: PeerId);
    /// A handshake is complete, at this time of the wall clock.
    fn handshake_done(&mut self, peer: PeerId, wall: Duration);
    /// Whether it is known where the peer is. Without that no handshake starts.
    fn has_endpoint(&self, peer: PeerId) -> bool;
}

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddPeerError {
    /// It is the device's own key.
    OwnKey,
    /// The device has as many peers as it can.
    TooMany,
    /// There is such a peer.
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
    /// The serial of the next peer.
    serial: u64,
    pub(crate) indices: Indices,
    /// One entry per peer that waits for something: its earliest moment.
    pub(crate) timers: BTreeSet<(Boottime, PeerId)>,
    pub(crate) limiter: RateLimiter,
    pub(crate) load: LoadState,
    pub(crate) stamps: TimestampGenerator,
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
}

/// The arguments of one call.
pub(crate) struct Context<'a> {
    pub(crate) now: Now,
    pub(crate) rng: &'a mut dyn Entropy,
    pub(crate) effects: &'a mut dyn Effects,
}

/// Identity and peers.
impl Device {
    /// A device without a key and without peers, down.
    pub fn new() -> Self {
        Self::with_filter(Arc::default())
    }

    /// Such a device, of whose handshake messages data-path threads refuse some at `filter`.
    pub fn with_filter(filter: Arc<HandshakeFilter>) -> Self {
        Self {
            identity: None,
            up: false,
            peers: Vec::new(),
            vacant: Vec::new(),
            by_key: BTreeMap::new(),
            by_serial: BTreeMap::new(),
            serial: 0,
            indices: Indices::with_filter(filter.clone()),
            timers: BTreeSet::new(),
            limiter: RateLimiter::default(),
            load: LoadState::with_filter(filter.clone()),
            stamps: TimestampGenerator::default(),
            filter,
        }
    }

    /// Sets or removes the private key. Nothing is sealed with the old sessions any more, and
    /// running handshakes start over at once under the new key.
    ///
    /// A peer that has the new public key would be the device itself: it is removed and returned.
    pub fn set_private_key(
        &mut self,
        now: Now,
        rng: &mut dyn Entropy,
        key: Option<StaticSecret>,
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
            peer.handshake_sent = None;
            peer.keyring.stop_sealing();
            if peer.keyring.current().is_some() {
                effects.sending(id, None);
            }
            // A handshake that was running is wanted still, under the new name.
            peer.attempt = peer.handshaking().then_some((now.boot, Attempt::First));
            self.drop_initiator(id);
            self.update_timers(&mut Context { now, rng, effects }, id);
        }
        own
    }

    /// Our public key, if there is a private key.
    pub fn public_key(&self) -> Option<&PublicKey> {
        self.identity.as_ref().map(|identity| &identity.public)
    }

    /// Our private key.
    pub fn private_key(&self) -> Option<&StaticSecret> {
        self.identity.as_ref().map(|identity| &identity.secret)
    }

    /// Adds a peer with no preshared key and no persistent keepalive.
    pub fn add_peer(&mut self, key: PublicKey, activity: Arc<Activity>) -> Result<PeerId, AddPeerError> {
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
            Some(place) => PeerId(place),
            None => {
                self.peers.push(None);
                PeerId(u32::try_from(self.peers.len() - 1).expect("there are at most 2^20 peers"))
            }
        };
        self.peers[id.0 as usize] = Some(Box::new(Peer::new(key, self.serial, activity)));
        self.by_key.insert(key, id);
        self.by_serial.insert(self.serial, id);
        self.serial += 1;
        Ok(id)
    }

    /// Removes a peer and everything it has. Removing one that is not there changes nothing.
    pub fn remove_peer(&mut self, id: PeerId, effects: &mut dyn Effects) {
        self.forget_keys(id, effects);
        let Some(peer) = self.peers.get_mut(id.0 as usize).and_then(Option::take) else { return };
        if let Some(armed) = peer.armed {
            self.timers.remove(&(armed, id));
        }
        self.by_key.remove(&peer.public);
        self.by_serial.remove(&peer.serial);
        self.vacant.push(id.0);
    }

    /// The peer with this key.
    pub fn peer(&self, key: &PublicKey) -> Option<PeerId> {
        self.by_key.get(key).copied()
    }

    /// All peers, in the order in which they were added.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = PeerId> + '_ {
        self.by_serial.values().copied()
    }

    /// A peer's public key.
    ///
    /// # Panics
    /// If there is no such peer; so do the other getters.
    pub fn peer_public_key(&self, peer: PeerId) -> PublicKey {
        self.known(peer).public
    }

    /// A peer's preshared key.
    pub fn preshared_key(&self, peer: PeerId) -> &PresharedKey {
        &self.known(peer).psk
    }

    /// A peer's persistent keepalive interval in seconds; zero for none.
    pub fn persistent_keepalive(&self, peer: PeerId) -> u16 {
        self.known(peer).persistent_keepalive
    }

    /// Sets a peer's preshared key for the handshakes to come. The present session stays.
    pub fn set_preshared_key(&mut self, id: PeerId, psk: PresharedKey) {
        if let Some(peer) = self.get_mut(id) {
            peer.psk = psk;
        }
    }

    /// Sets a peer's persistent keepalive interval in seconds; zero for none. Switching it on while
    /// the device is up has one sent at once, by [`Device::expire`].
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
        let cx = &mut Context { now, rng, effects };
        if switched_on && up {
            peer.activity.touch(now.boot);
            return self.keepalive_soon(cx, id);
        }
        self.update_timers(cx, id);
    }

    /// The peer was given an endpoint: what waited for one may go.
    pub fn endpoint_set(&mut self, now: Now, rng: &mut dyn Entropy, id: PeerId, effects: &mut dyn Effects) {
        let Some(peer) = self.get(id).filter(|_| self.up) else { return };
        let cx = &mut Context { now, rng, effects };
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

    /// Brings the device up: staged packets go, and every peer with a persistent keepalive is due for one.
    pub fn up(&mut self, now: Now, rng: &mut dyn Entropy, effects: &mut dyn Effects) {
        if self.up {
            return;
        }
        self.up = true;
        let cx = &mut Context { now, rng, effects };
        for id in self.ids() {
            cx.effects.send_staged(id);
            if let Some(peer) = self.get(id).filter(|peer| peer.persistent_keepalive > 0) {
                peer.activity.touch(now.boot);
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
            effects.drop_staged(id);
            self.forget_keys(id, effects);
            let Some(peer) = self.get_mut(id) else { continue };
            peer.attempt = None;
            peer.attempts = 0;
            peer.handshake_sent = None;
            peer.activity.rest();
            self.schedule(id, None);
        }
    }

    /// The machine was suspended: whoever has seen its memory since knows the keys, so they are
    /// wiped. The next packet starts a handshake.
    pub fn resumed(&mut self, now: Now, effects: &mut dyn Effects) {
        for id in self.ids() {
            self.forget_keys(id, effects);
            if self.up {
                self.schedule(id, Some(now.boot));
            }
        }
    }
}

/// What the parts share.
impl Device {
    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(id.0 as usize)?.as_deref_mut()
    }

    fn known(&self, id: PeerId) -> &Peer {
        self.get(id).expect("the caller names a peer of this device")
    }

    /// A copy, because what follows may change the peers.
    fn ids(&self) -> Vec<PeerId> {
        self.peers().collect()
    }

    /// Wipes a peer's handshake and sessions.
    pub(crate) fn forget_keys(&mut self, id: PeerId, effects: &mut dyn Effects) {
        self.drop_initiator(id);
        let Some(peer) = self.get_mut(id) else { return };
        peer.wipe_at = None;
        if peer.keyring.current().is_some() {
            effects.sending(id, None);
        }
        let evicted = peer.keyring.clear();
        self.retire(evicted, effects);
    }

    /// Wipes the initiation that waits for its response.
    pub(crate) fn drop_initiator(&mut self, id: PeerId) {
        if let Some(initiator) = self.get_mut(id).and_then(|peer| peer.initiator.take()) {
            self.indices.release(initiator.index);
        }
    }

    /// Gives back what evicted sessions held.
    pub(crate) fn retire(&mut self, evicted: Evicted, effects: &mut dyn Effects) {
        for session in evicted.into_iter().flatten() {
            self.indices.release(session.local);
            effects.session_removed(&session);
        }
    }
}
