//! What a gateway knows of the peers: who has each one's session, where it is, and the floors of its timestamps.
//!
//! Who has a session is who claimed it last, by the greater of two claims; so all agree, in whatever order hints come.
//! Floors only rise. Only peers of the fleet are kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::message::{PeerHint, Stamp};

/// The most that a floor may be ahead of our clock. With a floor in the far future, a peer would refuse all gateways,
/// and a gateway would refuse the peer. The daemon has the same limit.
pub const AHEAD_MAX: Duration = Duration::from_secs(10);
/// TAI64 of 1970.
const TAI64_EPOCH: u64 = 0x4000_0000_0000_000a;
/// A session ends 180 s after its handshake: a peer not seen for longer has none to lose.
pub const SESSION_LASTS: Duration = Duration::from_secs(190);

/// A peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The claim and who made it; none if the claim is zero.
    claim: (u64, u8),
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) sent: Option<Stamp>,
    pub(super) sent_by: u8,
    pub(super) received: Option<Stamp>,
    /// The greatest timestamp that other gateways report as accepted and that is too far ahead of our clock for a
    /// floor.
    ahead: Option<Stamp>,
    pub(super) seen: u32,
    /// When our daemon completed its last handshake with it; zero: never since it runs.
    pub(super) seen_here: u64,
    /// When we last had it initiated to, anywhere, and to where it is known to be, if nobody has its session since.
    pub(super) initiated: Option<Duration>,
    pub(super) initiated_there: Option<Duration>,
    /// When we last gave it away.
    pub(super) given: Option<Duration>,
}

/// What the daemon says of a peer that has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The peer.
    pub number: u32,
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// The greatest timestamp sent to it.
    pub sent: Option<Stamp>,
    /// The greatest timestamp accepted from it.
    pub received: Option<Stamp>,
    /// The Unix time of the last handshake with it that was completed here; zero: none.
    pub seen: u64,
}

impl Known {
    /// Who has its session.
    pub(super) fn owner(&self) -> Option<u8> {
        (self.claim.0 != 0).then_some(self.claim.1)
    }

    pub(super) fn hint(&self, number: u32) -> PeerHint {
        let (claim, owner) = self.claim;
        let Self { endpoint, sent, received, seen, .. } = *self;
        PeerHint { number, owner, claim, endpoint, sent, received, seen }
    }

    /// The greatest timestamp accepted from the peer, to be told to the daemon. If it is too far ahead of the clock,
    /// the daemon treats the peer as one without a floor, so a recorded initiation changes nothing until a data message
    /// confirms it.
    pub(super) fn floor(&self) -> Option<Stamp> {
        self.received.max(self.ahead)
    }

    /// Whether a timestamp is too far ahead of the clock for a floor.
    pub(super) fn is_ahead(wall: Duration, stamp: Option<Stamp>) -> bool {
        stamp > Some(latest(wall))
    }

    /// Takes what a gateway tells. False if it is nothing new.
    pub(super) fn merge(&mut self, wall: Duration, teller: u8, hint: &PeerHint) -> bool {
        let is_ahead = Self::is_ahead(wall, hint.received);
        let mut is_new = self.raise_floors(wall, teller, hint.sent, hint.received.filter(|_| !is_ahead));
        if is_ahead && hint.received > self.ahead {
            (self.ahead, is_new) = (hint.received, true);
        }
        if (hint.claim, hint.owner) > self.claim && hint.claim != 0 {
            self.claim = (hint.claim, hint.owner);
            (self.endpoint, self.seen) = (hint.endpoint, hint.seen);
            // What we tried before has come to its end.
            self.initiated_there = None;
            is_new = true;
        }
        is_new
    }

    fn raise_floors(&mut self, wall: Duration, teller: u8, sent: Option<Stamp>, received: Option<Stamp>) -> bool {
        let mut is_new = false;
        if sent > self.sent && sent <= Some(latest(wall)) {
            (self.sent, self.sent_by, is_new) = (sent, teller, true);
        }
        if received > self.received {
            (self.received, is_new) = (received, true);
        }
        is_new
    }

    /// Takes what our daemon tells. `is_first`: the first reply of the daemon, so its handshakes are not of now. False if it
    /// is nothing new.
    pub(super) fn change(&mut self, wall: Duration, me: u8, change: &Change, is_first: bool) -> bool {
        let mut is_new = self.raise_floors(wall, me, change.sent, change.received);
        let is_ours = self.owner() == Some(me) && self.seen_here != 0;
        let completed = change.seen != 0 && change.seen != self.seen_here;
        let moved = is_ours && change.endpoint.is_some() && change.endpoint != self.endpoint;
        self.seen_here = change.seen;
        if completed && is_first {
            // Another may have claimed it since.
            let hint = PeerHint {
                owner: me,
                claim: change.seen.saturating_mul(1000),
                endpoint: change.endpoint,
                seen: u32::try_from(change.seen).unwrap_or(u32::MAX),
                ..PeerHint::default()
            };
            is_new |= self.merge(wall, me, &hint);
        } else if completed || moved {
            let millis = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
            self.claim = (millis.max(self.claim.0.saturating_add(1)), me);
            self.endpoint = change.endpoint.or(self.endpoint);
            self.initiated_there = None;
            self.seen = u32::try_from(change.seen).unwrap_or(u32::MAX);
            is_new = true;
        }
        is_new
    }

    /// Whether it may have a session.
    pub(super) fn is_active(&self, wall: Duration) -> bool {
        Duration::from_secs(self.seen.into()) + SESSION_LASTS > wall
    }

    /// How long ago another gateway initiated to it, by what it told.
    pub(super) fn sent_before(&self, wall: Duration) -> Option<Duration> {
        let (seconds, nanos) = self.sent.as_ref()?.split_first_chunk::<8>()?;
        let seconds = u64::from_be_bytes(*seconds).checked_sub(TAI64_EPOCH)?;
        let nanos = nanos.try_into().map(u32::from_be_bytes).ok()?;
        let sent = Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos.into()))?;
        Some(wall.saturating_sub(sent))
    }
}

/// The greatest timestamp that may become a floor.
fn latest(wall: Duration) -> Stamp {
    stamp(wall.saturating_add(AHEAD_MAX))
}

/// The timestamp of a time.
pub fn stamp(wall: Duration) -> Stamp {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&TAI64_EPOCH.saturating_add(wall.as_secs()).to_be_bytes());
    bytes[8..].copy_from_slice(&wall.subsec_nanos().to_be_bytes());
    bytes
}

/// The peers of the fleet.
#[derive(Default)]
pub(super) struct Peers {
    pub(super) all: BTreeMap<u32, Known>,
}

impl Peers {
    /// The peers in force. Who is added while the store is watched (`is_live`) is new to the whole fleet: no gateway ever
    /// accepted anything from it. Returns those.
    pub(super) fn set(&mut self, numbers: impl Iterator<Item = u32>, is_live: bool) -> Vec<u32> {
        let mut old = std::mem::take(&mut self.all);
        let mut added = Vec::new();
        self.all = numbers
            .map(|number| {
                let known = old.remove(&number).unwrap_or_else(|| {
                    if is_live {
                        added.push(number);
                    }
                    Known { received: is_live.then_some([0; 12]), ..Known::default() }
                });
                (number, known)
            })
            .collect();
        added
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Known> {
        self.all.get_mut(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WALL: Duration = Duration::from_secs(1_800_000_000);

    fn hints() -> impl Strategy<Value = PeerHint> {
        let stamps = prop::option::of((0u64..20).prop_map(|ahead| stamp(WALL + Duration::from_secs(ahead))));
        (0u64..5, 0u8..3, prop::option::of(1u16..9), stamps.clone(), stamps, 0u32..9).prop_map(
            |(claim, owner, port, sent, received, seen)| {
                // A claim is made once.
                let port = port.map(|_| 1 + claim as u16 * 4 + u16::from(owner));
                let endpoint = port.map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
                PeerHint {
                    number: 0,
                    owner,
                    claim,
                    endpoint: endpoint.filter(|_| seen > 0),
                    sent,
                    received,
                    seen: claim as u32,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn hints_never_move_backwards_and_their_order_does_not_matter(
            hints in prop::collection::vec(hints(), 0..20), seed: u64,
        ) {
            let mut known = Known::default();
            for hint in &hints {
                let before = known.clone();
                known.merge(WALL, 0, hint);
                prop_assert!(known.claim >= before.claim);
                prop_assert!(known.sent >= before.sent && known.received >= before.received);
                prop_assert!(known.sent.max(known.received) <= Some(stamp(WALL + AHEAD_MAX)));
            }
            let mut shuffled = hints.clone();
            shuffled.sort_by_key(|hint| seed.wrapping_mul(u64::from(hint.seen) + 1 + hint.claim * 7) % 1009);
            let mut other = Known::default();
            shuffled.iter().for_each(|hint| { other.merge(WALL, 0, hint); });
            prop_assert_eq!((known.claim, known.sent, known.received), (other.claim, other.sent, other.received));
        }
    }

    #[test]
    fn what_was_accepted_in_the_far_future_is_no_floor_and_is_told_to_nobody_but_the_daemon() {
        let mut known = Known::default();
        let hint = |received| PeerHint { received: Some(received), ..PeerHint::default() };
        assert!(known.merge(WALL, 1, &hint(stamp(WALL))));
        assert!(known.merge(WALL, 1, &hint([0xff; 12])) && !known.merge(WALL, 1, &hint([0xff; 12])));
        assert_eq!((known.hint(0).received, known.floor()), (Some(stamp(WALL)), Some([0xff; 12])));
        // Our own daemon's reports are not limited: it has accepted that timestamp itself.
        let received = Some(stamp(WALL + AHEAD_MAX * 2));
        known.change(WALL, 0, &Change { received, ..Change::default() }, false);
        assert_eq!(known.hint(0).received, received);
    }

    #[test]
    fn a_completed_handshake_is_a_claim_above_all_others() {
        let mut known = Known::default();
        // The other's clock is ahead.
        known.merge(WALL, 1, &PeerHint { owner: 1, claim: u64::MAX / 2, ..PeerHint::default() });
        known.change(WALL, 0, &Change { seen: WALL.as_secs(), ..Change::default() }, false);
        assert_eq!(known.owner(), Some(0));
    }

    #[test]
    fn an_old_handshake_of_a_daemon_is_no_claim_above_a_later_one() {
        let mut known = Known::default();
        let seen = WALL.as_secs();
        known.merge(WALL, 1, &PeerHint { owner: 1, claim: seen * 1000 + 500, ..PeerHint::default() });
        known.change(WALL, 0, &Change { seen, ..Change::default() }, true);
        assert_eq!(known.owner(), Some(1));
    }

    #[test]
    fn an_initiation_of_our_own_is_no_claim() {
        let mut known = Known::default();
        assert!(known.change(WALL, 0, &Change { sent: Some(stamp(WALL)), ..Change::default() }, false));
        assert_eq!(
            (known.owner(), known.sent_before(WALL + Duration::from_secs(2))),
            (None, Some(Duration::from_secs(2)))
        );
    }

    #[test]
    fn only_a_peer_that_is_added_while_the_store_is_watched_is_known_to_be_new() {
        let mut peers = Peers::default();
        assert_eq!(peers.set([1].into_iter(), false), Vec::<u32>::new());
        assert_eq!(peers.set([1, 2].into_iter(), true), [2]);
        assert_eq!(peers.set([1, 2, 3].into_iter(), false), Vec::<u32>::new());
        let received = peers.all.values().map(|known| known.received).collect::<Vec<_>>();
        assert_eq!(received, [None, Some([0; 12]), None]);
        peers.set([3].into_iter(), true);
        assert_eq!(peers.all.len(), 1);
    }
}
