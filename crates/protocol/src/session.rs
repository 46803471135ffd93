//! A session: two transport keys and the limits of their use (paper sections 5.4.5 and 6).
//!
//! `handshake` creates it and shares it with the data path. The keys never change; the other state is
//! atomic. The engine keeps a replay window next to each session, under a lock.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linerate_aead::Key;

use crate::constants::{
    REJECT_AFTER_MESSAGES, REJECT_AFTER_TIME, REKEY_AFTER_MESSAGES, REKEY_AFTER_TIME, REKEY_ON_RECEIVE_TIME,
};
use crate::noise::TransportKeys;
use crate::{Boottime, DropReason, PeerId};

/// Keys and counters of one session with one peer. The keys are wiped on drop.
pub struct Session {
    /// The peer.
    pub peer: PeerId,
    /// Our index, the receiver in the peer's messages.
    pub local: u32,
    /// The peer's index, the receiver in our messages.
    pub remote: u32,
    /// When the keys were made.
    pub created_at: Boottime,
    /// Whether we sent the initiation.
    pub initiator: bool,
    /// Seals packets to the peer.
    pub sealing: Key,
    /// Opens packets from the peer.
    pub opening: Key,
    /// The next counter to seal with; none is left from [`REJECT_AFTER_MESSAGES`] on.
    counter: AtomicU64,
    confirmed: AtomicBool,
    rekeyed_on_receive: AtomicBool,
}

/// The peer of a session, the indices of both ends, and which end initiated it.
pub(crate) struct SessionIndices {
    pub(crate) peer: PeerId,
    pub(crate) local: u32,
    pub(crate) remote: u32,
    pub(crate) initiator: bool,
}

impl Session {
    pub(crate) fn new(indices: SessionIndices, created_at: Boottime, keys: &TransportKeys) -> Self {
        Self {
            peer: indices.peer,
            local: indices.local,
            remote: indices.remote,
            created_at,
            initiator: indices.initiator,
            sealing: Key::new(&keys.sealing),
            opening: Key::new(&keys.opening),
            counter: AtomicU64::new(0),
            // The response proved to the initiator that the peer has the keys.
            confirmed: AtomicBool::new(indices.initiator),
            rekeyed_on_receive: AtomicBool::new(false),
        }
    }

    /// Reserves `n` consecutive counters and returns the first. `None` if fewer than `n` are left below
    /// [`REJECT_AFTER_MESSAGES`], or if sealing was stopped.
    pub fn reserve(&self, n: u64) -> Option<u64> {
        // Relaxed: counters only have to be unique; the sender orders the packets.
        self.counter
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |first| {
                let end = first.checked_add(n)?;
                (end <= REJECT_AFTER_MESSAGES).then_some(end)
            })
            .ok()
    }

    /// Whether the session is too old to seal or open with.
    pub fn expired(&self, now: Boottime) -> bool {
        now.since(self.created_at) >= REJECT_AFTER_TIME
    }

    /// Whether a packet with this counter may be opened at all. The replay window is checked separately,
    /// after the tag.
    pub fn may_open(&self, now: Boottime, counter: u64) -> Result<(), DropReason> {
        if self.expired(now) {
            return Err(DropReason::KeyExpired);
        }
        if counter >= REJECT_AFTER_MESSAGES {
            return Err(DropReason::CounterExpired);
        }
        Ok(())
    }

    /// Whether sending with this session should start a new handshake: the initiator's key is
    /// 120 s old, or either side's counter has passed 2^60 (paper section 6.2).
    pub fn needs_rekey_on_send(&self, now: Boottime) -> bool {
        self.counter.load(Ordering::Relaxed) > REKEY_AFTER_MESSAGES
            || self.initiator && now.since(self.created_at) >= REKEY_AFTER_TIME
    }

    /// Whether receiving with this session should start a new handshake: the initiator's key is
    /// 165 s old (paper section 6.2). True once per session.
    pub fn needs_rekey_on_receive(&self, now: Boottime) -> bool {
        self.initiator
            && now.since(self.created_at) >= REKEY_ON_RECEIVE_TIME
            && !self.rekeyed_on_receive.load(Ordering::Relaxed)
            && !self.rekeyed_on_receive.swap(true, Ordering::Relaxed)
    }

    /// Notes that an authentic packet was received. True exactly once, and only for a session that the peer
    /// started: the slow path must then call `Device::confirmed`.
    pub fn confirm(&self) -> bool {
        // Load first, so that the cache line stays shared after the first packet.
        !self.confirmed.load(Ordering::Relaxed) && !self.confirmed.swap(true, Ordering::Relaxed)
    }

    /// Whether the peer has proved that it has the keys.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::Relaxed)
    }

    /// Ends sealing; packets in flight can still be opened.
    pub(crate) fn stop_sealing(&self) {
        self.counter.store(u64::MAX, Ordering::Relaxed);
    }

    /// Whether a packet could be sealed: the session has not expired, has counters left and sealing was not
    /// stopped.
    pub fn may_seal(&self, now: Boottime) -> bool {
        !self.expired(now) && self.counter.load(Ordering::Relaxed) < REJECT_AFTER_MESSAGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    const CREATED_AT: Boottime = Boottime::from_secs(50);

    fn session(initiator: bool) -> Session {
        let indices = SessionIndices { peer: PeerId(1), local: 2, remote: 3, initiator };
        Session::new(indices, CREATED_AT, &TransportKeys { sealing: [1; 32], opening: [2; 32] })
    }

    fn age(secs: u64) -> Boottime {
        CREATED_AT.after(Duration::from_secs(secs))
    }

    proptest! {
        #[test]
        fn reservations_are_consecutive_and_stop_at_the_limit(start in prop_oneof![Just(0u64), Just(REJECT_AFTER_MESSAGES - 200)], sizes in proptest::collection::vec(0u64..64, 1..40)) {
            let session = session(true);
            session.counter.store(start, Ordering::Relaxed);
            let mut next = start;
            for n in sizes {
                match session.reserve(n) {
                    Some(first) => {
                        prop_assert_eq!(first, next);
                        next += n;
                        prop_assert!(next <= REJECT_AFTER_MESSAGES);
                    }
                    None => prop_assert!(next + n > REJECT_AFTER_MESSAGES),
                }
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn dropping_a_session_wipes_its_keys() {
        extern crate std;
        use alloc::sync::Arc;
        use std::os::unix::fs::FileExt;

        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let (sealing, opening) = (core::array::from_fn(|i| 100 + i as u8), core::array::from_fn(|i| 200 + i as u8));
        let indices = SessionIndices { peer: PeerId(1), local: 2, remote: 3, initiator: true };
        let session = Arc::new(Session::new(indices, CREATED_AT, &TransportKeys { sealing, opening }));
        let addr = Arc::as_ptr(&session).addr() as u64;
        // Word by word, because the allocator or the memory's next user may have overwritten some of it.
        let words_left = || {
            let mut bytes = [0; size_of::<Session>()];
            memory.read_exact_at(&mut bytes, addr).unwrap();
            let keys = [sealing, opening];
            let words = keys.iter().flat_map(|key| key.chunks_exact(8));
            words.filter(|word| bytes.windows(8).any(|window| window == *word)).count()
        };
        assert_eq!(words_left(), 8, "the keys are there");
        drop(session);
        assert_eq!(words_left(), 0);
    }

    #[test]
    fn a_reservation_never_wraps() {
        let session = session(true);
        assert_eq!(session.reserve(u64::MAX), None);
        assert_eq!(session.reserve(REJECT_AFTER_MESSAGES), Some(0));
        assert_eq!(session.reserve(1), None);
        assert!(!session.may_seal(CREATED_AT));
    }

    #[test]
    fn nothing_is_sealed_after_sealing_was_stopped() {
        let session = session(true);
        session.stop_sealing();
        assert_eq!(session.reserve(1), None);
        assert!(!session.may_seal(CREATED_AT));
        assert_eq!(session.may_open(CREATED_AT, 0), Ok(()));
    }

    #[test]
    fn a_session_opens_until_180_s_and_the_last_counter() {
        let session = session(false);
        assert_eq!(session.may_open(age(179), REJECT_AFTER_MESSAGES - 1), Ok(()));
        assert_eq!(session.may_open(age(179), REJECT_AFTER_MESSAGES), Err(DropReason::CounterExpired));
        assert_eq!(session.may_open(age(180), 0), Err(DropReason::KeyExpired));
    }

    #[test]
    fn only_the_initiator_rekeys_by_age_and_both_rekey_by_messages() {
        for initiator in [true, false] {
            let session = session(initiator);
            assert!(!session.needs_rekey_on_send(age(119)));
            assert_eq!(session.needs_rekey_on_send(age(120)), initiator);
            session.counter.store(REKEY_AFTER_MESSAGES, Ordering::Relaxed);
            assert!(!session.needs_rekey_on_send(age(0)));
            session.counter.store(REKEY_AFTER_MESSAGES + 1, Ordering::Relaxed);
            assert!(session.needs_rekey_on_send(age(0)));
        }
    }

    #[test]
    fn the_initiator_rekeys_on_receive_once_at_165_s() {
        assert!(!session(false).needs_rekey_on_receive(age(179)));
        let session = session(true);
        assert!(!session.needs_rekey_on_receive(age(164)));
        assert!(session.needs_rekey_on_receive(age(165)));
        assert!(!session.needs_rekey_on_receive(age(170)));
    }

    #[test]
    fn only_a_responders_session_is_confirmed_and_only_once() {
        assert!(session(true).is_confirmed() && !session(true).confirm());
        let session = session(false);
        assert!(!session.is_confirmed());
        assert!(session.confirm());
        assert!(!session.confirm() && session.is_confirmed());
    }
}
