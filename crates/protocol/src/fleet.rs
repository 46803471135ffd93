//! The device's part in a fleet: gateways with one private key and one set of peers, of which any takes over what
//! another has lost (docs/fleet.md). A device that belongs to none has nothing of this.
//!
//! Receiver indices name gateway and peer, for the fleet alone: they are permuted with its key. Hints of the other
//! gateways say where a peer is, and bound the timestamps of its handshakes from below (floors).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::constants::{MAX_TIMER_HANDSHAKES, PEERS_MAX};
use crate::cookie::mac;
use crate::effects::CallContext;
use crate::keys::on_heap;
use crate::peer::{HandshakeAction, Peer};
use crate::scrub::scrubbed;
use crate::tai64n::Timestamp;
use crate::{Boottime, Device, Effects, Entropy, Now, PeerId};

/// Gateways of a fleet.
pub const GATEWAYS_MAX: u8 = 64;

/// The most that a floor may be ahead of our clock. A peer that has seen a timestamp in the far future refuses all
/// gateways for as long as it runs; a gateway with such a floor refuses the peer.
pub const FLOOR_AHEAD_MAX: Duration = Duration::from_secs(10);

/// Rounds of the permutation; four make it as good as random to an outsider (Luby and Rackoff).
const ROUNDS: u8 = 4;
/// Bits of an index that tell a peer's own apart.
const OWN_BITS: u32 = 6;
const NUMBER_BITS: u32 = PEERS_MAX.trailing_zeros();

const _: () = assert!(GATEWAYS_MAX.trailing_zeros() + NUMBER_BITS + OWN_BITS == u32::BITS);

/// The key of a fleet's receiver indices. Wiped on drop, and without `Debug`.
pub struct IndexKey(Box<[u8; 32]>);

impl IndexKey {
    /// Takes 32 bytes. The caller wipes its own copy.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(on_heap(bytes))
    }

    fn permute(&self, plain: u32) -> u32 {
        let halves = ((plain >> 16) as u16, plain as u16);
        join((0..ROUNDS).fold(halves, |(left, right), round| (right, left ^ self.round(round, right))))
    }

    fn invert(&self, index: u32) -> u32 {
        let halves = ((index >> 16) as u16, index as u16);
        join((0..ROUNDS).rev().fold(halves, |(left, right), round| (right ^ self.round(round, left), left)))
    }

    fn round(&self, round: u8, half: u16) -> u16 {
        let [low, high] = half.to_le_bytes();
        let mac = scrubbed(|| mac(&self.0[..], &[round, low, high]));
        u16::from_le_bytes([mac[0], mac[1]])
    }
}

fn join((left, right): (u16, u16)) -> u32 {
    u32::from(left) << 16 | u32::from(right)
}

impl Drop for IndexKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for IndexKey {}

/// What a receiver index says: whose session it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOwner {
    /// The gateway that has the session.
    pub gateway: u8,
    /// The peer's number in the fleet.
    pub number: u32,
}

/// Reads receiver indices of the fleet, from any thread.
#[derive(Clone)]
pub struct IndexReader {
    /// The number of the gateway that reads.
    pub gateway: u8,
    key: Arc<IndexKey>,
}

impl IndexReader {
    /// Whose session an index names, if it was made with the fleet's key. Anybody can make an index up: it proves
    /// nothing.
    pub fn owner(&self, index: u32) -> IndexOwner {
        let plain = self.key.invert(index);
        let number = plain >> OWN_BITS & ((1 << NUMBER_BITS) - 1);
        IndexOwner { gateway: (plain >> (NUMBER_BITS + OWN_BITS)) as u8, number }
    }
}

/// What another gateway knows of a peer. Times are those of handshake messages, as they are on the wire.
#[derive(Clone, Copy, Default)]
pub struct Hint {
    /// Where the peer is.
    pub endpoint: Option<SocketAddr>,
    /// The greatest timestamp that a gateway sent to it.
    pub sent: Option<[u8; 12]>,
    /// The greatest timestamp that a gateway accepted from it; all zero: none ever did.
    pub received: Option<[u8; 12]>,
}

/// A device's place in its fleet.
pub(crate) struct Fleet {
    reader: IndexReader,
    /// What is known of the fleet's peers is too old: no handshake begins or is answered.
    pub(crate) is_stale: bool,
    peers: BTreeMap<u32, PeerId>,
    numbers: BTreeMap<PeerId, u32>,
    hinted: BTreeMap<PeerId, SocketAddr>,
    /// Peers whose last handshake, as far as known, was one of another gateway, which knows better where they are; and whether
    /// we have been told to begin with them since.
    elsewhere: BTreeMap<PeerId, bool>,
}

impl Fleet {
    /// An index for `peer`, if it has a number.
    pub(crate) fn index(&self, peer: PeerId, random: u32) -> Option<u32> {
        let number = self.numbers.get(&peer)?;
        let own = random & ((1 << OWN_BITS) - 1);
        let IndexReader { gateway, key } = &self.reader;
        Some(key.permute(u32::from(*gateway) << (NUMBER_BITS + OWN_BITS) | number << OWN_BITS | own))
    }

    /// Whether another gateway says that the peer is there.
    pub(crate) fn is_hinted(&self, peer: PeerId, source: SocketAddr) -> bool {
        self.hinted.get(&peer) == Some(&source)
    }

    /// Whether another gateway has the peer: it had the last handshake, and nobody has asked us for one since.
    pub(crate) fn has_lost(&self, peer: PeerId) -> bool {
        self.elsewhere.get(&peer) == Some(&false)
    }

    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.hinted.remove(&peer);
        self.elsewhere.remove(&peer);
        if let Some(number) = self.numbers.remove(&peer) {
            self.peers.remove(&number);
        }
    }
}

impl Device {
    /// Joins a fleet as the gateway with this number, or takes another number or key in it. Sessions and their indices
    /// stay. False, without a change, if there can be no such gateway.
    pub fn join_fleet(&mut self, gateway: u8, key: IndexKey) -> bool {
        if gateway >= GATEWAYS_MAX {
            return false;
        }
        let reader = IndexReader { gateway, key: Arc::new(key) };
        match &mut self.indices.fleet {
            Some(fleet) => fleet.reader = reader,
            none => {
                let (peers, numbers, hinted, elsewhere) = Default::default();
                *none = Some(Box::new(Fleet { reader, is_stale: false, peers, numbers, hinted, elsewhere }));
            }
        }
        true
    }

    /// Leaves the fleet: its key, the peers' numbers and the hints are forgotten, except for floors.
    pub fn leave_fleet(&mut self) {
        self.indices.fleet = None;
    }

    /// Whether it belongs to a fleet.
    pub fn in_fleet(&self) -> bool {
        self.indices.fleet.is_some()
    }

    /// Whether a packet to the peer could be sealed.
    pub fn has_session(&self, now: Boottime, id: PeerId) -> bool {
        self.get(id).is_some_and(|peer| peer.may_seal(now))
    }

    /// Whether hints know better than this device where the peer is: it has no session here, or the last handshake was
    /// one of another gateway.
    pub fn believes_hints(&self, now: Boottime, id: PeerId) -> bool {
        !self.has_session(now, id) || self.indices.fleet.as_ref().is_some_and(|fleet| fleet.elsewhere.contains_key(&id))
    }

    /// Gives a peer its number in the fleet, and takes it away from another that has it. False, without a change, if
    /// the number is too large or there is no fleet.
    pub fn set_fleet_number(&mut self, id: PeerId, number: u32) -> bool {
        let known = self.get(id).is_some() && number >> NUMBER_BITS == 0;
        let Some(fleet) = self.indices.fleet.as_mut().filter(|_| known) else { return false };
        if let Some(old) = fleet.numbers.insert(id, number) {
            fleet.peers.remove(&old);
        }
        if let Some(other) = fleet.peers.insert(number, id).filter(|other| *other != id) {
            fleet.numbers.remove(&other);
        }
        true
    }

    /// A peer's number in the fleet.
    pub fn fleet_number(&self, id: PeerId) -> Option<u32> {
        self.indices.fleet.as_ref()?.numbers.get(&id).copied()
    }

    /// The peer with this number in the fleet.
    pub fn fleet_peer(&self, number: u32) -> Option<PeerId> {
        self.indices.fleet.as_ref()?.peers.get(&number).copied()
    }

    /// What reads receiver indices of the fleet, if the device belongs to one.
    pub fn index_reader(&self) -> Option<IndexReader> {
        self.indices.fleet.as_ref().map(|fleet| fleet.reader.clone())
    }

    /// Begins or ends a time in which what is known of the fleet's peers is too old to start a handshake or to answer
    /// one. Sessions stay. Does nothing without a fleet.
    pub fn set_stale(&mut self, is_stale: bool) {
        if let Some(fleet) = &mut self.indices.fleet {
            fleet.is_stale = is_stale;
        }
    }

    /// An authentic handshake message of now has told where the peer is.
    pub(crate) fn note_here(&mut self, id: PeerId) {
        if let Some(fleet) = &mut self.indices.fleet {
            fleet.elsewhere.remove(&id);
        }
    }

    /// Tells what has been sent to a peer and accepted from it.
    pub(crate) fn report_timestamps(&self, id: PeerId, effects: &mut dyn Effects) {
        if let Some(peer) = self.get(id).filter(|_| self.in_fleet()) {
            effects.timestamps_changed(id, peer.timestamp_sent.0, peer.timestamp_seen.0);
        }
    }

    /// Merges a hint of another gateway about a peer. Floors only rise. False if a timestamp is too far ahead of our
    /// clock and was ignored. If another gateway has accepted that timestamp, the peer counts as one without a floor.
    pub fn set_hint(&mut self, wall: Duration, id: PeerId, hint: &Hint) -> bool {
        let limit = Timestamp::at(wall.saturating_add(FLOOR_AHEAD_MAX));
        let Some(peer) = self.get_mut(id) else { return true };
        let [sent, received] = [hint.sent, hint.received].map(|stamp| stamp.map(Timestamp));
        let known = (peer.timestamp_sent, peer.timestamp_seen);
        if let Some(sent) = sent.filter(|sent| *sent <= limit) {
            peer.timestamp_sent = peer.timestamp_sent.max(sent);
        }
        if let Some(received) = received {
            // A timestamp that we have accepted ourselves is a floor, however far ahead it is.
            peer.has_floor = received <= limit.max(peer.timestamp_seen);
            if peer.has_floor {
                peer.timestamp_seen = peer.timestamp_seen.max(received);
            }
        }
        // An accepted timestamp that is too far ahead still proves a later handshake with another gateway.
        let is_later = known != (peer.timestamp_sent, peer.timestamp_seen) || (received.is_some() && !peer.has_floor);
        if let Some(fleet) = &mut self.indices.fleet {
            hint.endpoint.map(|endpoint| fleet.hinted.insert(id, endpoint));
            if is_later {
                fleet.elsewhere.insert(id, false);
            }
        }
        sent.max(received).is_none_or(|stamp| stamp <= limit)
    }

    /// Starts a handshake even if the peer has a session, though never two within 5 s. A keepalive follows the response,
    /// so that the peer may use the session at once. It is urgent: initiation and keepalive are repeated sooner than others
    /// ([`URGENT_REPEATS`](crate::constants::URGENT_REPEATS)), so the peer has to be known to be where its endpoint says.
    pub fn initiate_now(&mut self, now: Now, rng: &mut dyn Entropy, id: PeerId, effects: &mut dyn Effects) {
        let cx = &mut CallContext { now, rng, effects };
        self.start_as_told(cx, id);
        if let Some(peer) = self.get_mut(id) {
            peer.hurry(now.boot);
        }
        self.update_timers(cx, id);
    }

    /// As [`Device::initiate_now`], for a peer that may not be where its endpoint says: one initiation follows, after one of
    /// less than 5 s ago a little later, and is not repeated by itself.
    pub fn initiate_on_suspicion(&mut self, now: Now, rng: &mut dyn Entropy, id: PeerId, effects: &mut dyn Effects) {
        let cx = &mut CallContext { now, rng, effects };
        let was_running = self.get(id).is_some_and(Peer::handshaking);
        self.start_as_told(cx, id);
        if let Some(peer) = self.get_mut(id) {
            peer.urgent = false;
            // The retry of one that runs is the one that follows.
            peer.attempts = match peer.handshake_timer {
                Some((_, HandshakeAction::Retry)) if was_running => MAX_TIMER_HANDSHAKES,
                _ => MAX_TIMER_HANDSHAKES + 1,
            };
        }
        self.update_timers(cx, id);
    }

    fn start_as_told(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        if let Some(is_asked) = self.indices.fleet.as_mut().and_then(|fleet| fleet.elsewhere.get_mut(&id)) {
            *is_asked = true;
        }
        self.start(cx, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_permutation_equals_the_one_in_python() {
        // Python: four times l, r = r, l ^ int.from_bytes(hashlib.blake2s(bytes([i]) + r.to_bytes(2, "little"),
        // key=bytes(range(32)), digest_size=16).digest()[:2], "little"), for i in range(4)
        let key = IndexKey::new(&core::array::from_fn(|i| i as u8));
        assert_eq!([0, 1, 0x1234_5678].map(|plain| key.permute(plain)), [0x437c_fc11, 0x8fac_3feb, 0xac6e_0b85]);
    }

    #[test]
    fn indices_of_one_gateway_are_spread_over_sockets() {
        let key = IndexKey::new(&[7; 32]);
        let mut sockets = [0; 16];
        (0..4096).for_each(|number: u32| sockets[(key.permute(number << OWN_BITS).swap_bytes() % 16) as usize] += 1);
        assert!(sockets.iter().all(|count| (192..320).contains(count)), "{sockets:?}");
    }

    proptest! {
        #[test]
        fn every_index_inverts(key: [u8; 32], plain: u32) {
            let key = IndexKey::new(&key);
            prop_assert_eq!(key.invert(key.permute(plain)), plain);
            prop_assert_eq!(key.permute(key.invert(plain)), plain);
        }
    }
}
