//! Which of a peer's sessions is next, current and previous.
//!
//! `current` seals. `next` is a session that we made as responder; the initiator has not yet proved to
//! have its keys. `previous` still opens packets that were in flight when the sessions changed; so does
//! `older`, which exists only after crossing initiations. There are three sessions at most. Every change
//! returns the sessions that it evicted, which the caller removes from the index table.

use alloc::sync::Arc;

use crate::{Boottime, Session};

/// A peer's sessions.
#[derive(Default)]
pub(crate) struct Keyring {
    next: Option<Arc<Session>>,
    current: Option<Arc<Session>>,
    previous: Option<Arc<Session>>,
    /// Never together with `next`.
    older: Option<Arc<Session>>,
}

/// Sessions that a change removed.
pub(crate) type Evicted = [Option<Arc<Session>>; 3];

impl Keyring {
    /// The session to seal with, of any age.
    pub(crate) fn current(&self) -> Option<&Arc<Session>> {
        self.current.as_ref()
    }

    /// Adds a session that we started: the response has confirmed it, so it becomes current.
    ///
    /// A pending `next` becomes `previous` and evicts the old current: the peer started it and may already seal with
    /// it.
    ///
    /// The old `previous` is kept until it expires. After crossing initiations it is as young as the current session,
    /// and the peer seals with it until it learns of the new one. Otherwise it has expired by then.
    pub(crate) fn install_initiated(&mut self, session: Arc<Session>, now: Boottime) -> Evicted {
        let old = self.current.replace(session);
        match self.next.take() {
            Some(next) => [self.previous.replace(next), old, self.older.take()],
            None => {
                let previous = core::mem::replace(&mut self.previous, old);
                let (older, expired) = match previous {
                    Some(previous) if previous.expired(now) => (None, Some(previous)),
                    previous => (previous, None),
                };
                [core::mem::replace(&mut self.older, older), expired, None]
            }
        }
    }

    /// Adds a session that the peer started: it waits for the first packet, which confirms it.
    ///
    /// `previous` is kept until then. After crossing initiations each end seals with the session that it started, which
    /// is the other's `previous`: packets that the peer sends before it has our response would be lost. (The kernel
    /// module drops it here: noise.c, add_new_keypair.)
    pub(crate) fn install_responded(&mut self, session: Arc<Session>) -> Evicted {
        [self.next.replace(session), self.older.take(), None]
    }

    /// Makes `session` current if it waits for confirmation; otherwise `None`. Called when it received an authentic
    /// packet.
    pub(crate) fn confirm(&mut self, session: &Arc<Session>) -> Option<Evicted> {
        let next = self.next.take_if(|next| Arc::ptr_eq(next, session))?;
        let old = self.current.replace(next);
        Some([core::mem::replace(&mut self.previous, old), self.older.take(), None])
    }

    /// Keeps the sessions for opening packets in flight, but they no longer seal.
    pub(crate) fn stop_sealing(&self) {
        for session in [&self.next, &self.current].into_iter().flatten() {
            session.stop_sealing();
        }
    }

    /// Removes all sessions.
    pub(crate) fn clear(&mut self) -> Evicted {
        [self.next.take().or_else(|| self.older.take()), self.current.take(), self.previous.take()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::TransportKeys;
    use crate::session::SessionIndices;
    use crate::{Boottime, PeerId};
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// When sessions made at time zero have expired.
    const LATER: Boottime = Boottime::from_secs(1000);

    fn session(local: u32, initiator: bool) -> Arc<Session> {
        let indices = SessionIndices { peer: PeerId(0), local, remote: 0, initiator };
        Arc::new(Session::new(indices, Boottime(0), &TransportKeys { sealing: [1; 32], opening: [2; 32] }))
    }

    fn indices(sessions: &[Option<Arc<Session>>]) -> Vec<u32> {
        sessions.iter().flatten().map(|session| session.local).collect()
    }

    impl Keyring {
        /// Next, current, previous.
        fn state(&self) -> [Option<u32>; 3] {
            [&self.next, &self.current, &self.previous].map(|session| session.as_ref().map(|session| session.local))
        }
    }

    #[test]
    fn an_initiated_session_becomes_current_and_the_old_one_previous() {
        let mut ring = Keyring::default();
        assert!(indices(&ring.install_initiated(session(1, true), LATER)).is_empty());
        assert!(indices(&ring.install_initiated(session(2, true), LATER)).is_empty());
        assert_eq!(indices(&ring.install_initiated(session(3, true), LATER)), [1]);
        assert_eq!(ring.state(), [None, Some(3), Some(2)]);
    }

    #[test]
    fn a_responded_session_waits_and_evicts_only_another_that_waits() {
        let mut ring = Keyring::default();
        ring.install_initiated(session(1, true), LATER);
        ring.install_initiated(session(2, true), LATER);
        assert_eq!(indices(&ring.install_responded(session(3, false))), []);
        assert_eq!(ring.state(), [Some(3), Some(2), Some(1)]);
        assert_eq!(indices(&ring.install_responded(session(4, false))), [3]);
        assert_eq!(ring.state(), [Some(4), Some(2), Some(1)]);
    }

    #[test]
    fn confirmation_moves_every_session_on_by_one() {
        let mut ring = Keyring::default();
        ring.install_initiated(session(1, true), LATER);
        let next = session(2, false);
        ring.install_responded(Arc::clone(&next));
        assert!(ring.confirm(&session(2, false)).is_none(), "another session with that index");
        assert_eq!(indices(&ring.confirm(&next).unwrap()), []);
        assert_eq!(ring.state(), [None, Some(2), Some(1)]);
        assert!(ring.confirm(&next).is_none(), "confirmed already");
    }

    #[test]
    fn a_pending_session_becomes_previous_when_ours_completes_first() {
        let mut ring = Keyring::default();
        ring.install_initiated(session(1, true), LATER);
        ring.install_initiated(session(2, true), LATER);
        ring.install_responded(session(3, false));
        assert_eq!(indices(&ring.install_initiated(session(4, true), LATER)), [1, 2]);
        assert_eq!(ring.state(), [None, Some(4), Some(3)]);
    }

    #[test]
    fn a_previous_session_that_has_not_expired_is_kept_until_the_next_one_is_added() {
        let mut ring = Keyring::default();
        ring.install_initiated(session(1, true), Boottime(0));
        let crossing = session(2, false);
        ring.install_responded(Arc::clone(&crossing));
        ring.confirm(&crossing);
        assert_eq!(ring.state(), [None, Some(2), Some(1)]);
        assert_eq!(indices(&ring.install_initiated(session(3, true), Boottime(0))), []);
        assert_eq!((ring.state(), indices(&[ring.older.clone()])), ([None, Some(3), Some(2)], vec![1]));
        assert_eq!(indices(&ring.install_responded(session(4, false))), [1]);
        assert_eq!(indices(&ring.clear()), [4, 3, 2]);
    }

    proptest! {
        #[test]
        fn no_session_is_lost_or_evicted_twice(steps in proptest::collection::vec(0u8..4, 0..60)) {
            let mut ring = Keyring::default();
            let mut made = Vec::new();
            let mut gone = Vec::new();
            for (i, step) in (0u32..).zip(steps) {
                let evicted = match step {
                    0 | 1 => {
                        let new = session(i, step == 0);
                        made.push(i);
                        if step == 0 { ring.install_initiated(new, if i % 3 == 0 { LATER } else { Boottime(0) }) } else { ring.install_responded(new) }
                    }
                    2 => match ring.next.clone() {
                        Some(next) => ring.confirm(&next).unwrap(),
                        None => continue,
                    },
                    _ => ring.clear(),
                };
                gone.extend(indices(&evicted));
                let kept = [&ring.next, &ring.current, &ring.previous, &ring.older].map(Clone::clone);
                prop_assert!(ring.next.is_none() || ring.older.is_none());
                let mut all: Vec<_> = indices(&kept).into_iter().chain(gone.iter().copied()).collect();
                all.sort_unstable();
                prop_assert_eq!(&all, &made);
            }
        }
    }
}
