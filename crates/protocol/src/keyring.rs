//! Which of a peer's sessions is next, current and previous.
//!
//! `current` is what we seal with. `next` is a session that we made as responder and whose keys
//! the initiator has not proved to have. `previous` still opens what was on the way when the
//! sessions changed, and so does `older`, which there is only after initiations that crossed. There are
//! three at most. Every change hands back the sessions that it evicted, so that nobody can
//! forget to take them out of the index table.

use alloc::sync::Arc;

use crate::{Boottime, Session};

/// A peer's sessions.
#[derive(Default)]
pub(crate) struct Keyring {
    next: Option<Arc<Session>>,
    current: Option<Arc<Session>>,
    previous: Option<Arc<Session>>,
    /// Never beside `next`.
    older: Option<Arc<Session>>,
}

/// Sessions that a change took out of the ring.
pub(crate) type Evicted = [Option<Arc<Session>>; 3];

impl Keyring {
    /// The session to seal with, however old it is.
    pub(crate) fn current(&self) -> Option<&Arc<Session>> {
        self.current.as_ref()
    }

    /// Puts in a session that we started: the response has confirmed it, so it becomes current.
    ///
    /// A pending `next` becomes previous at the expense of the old current: the peer started it,
    /// so the peer may be sealing with it already.
    ///
    /// The old previous one stays for as long as it opens anything. After initiations that crossed it is as young as the
    /// current one, and what the peer seals with until it hears of the new one. Otherwise it is too old by then.
    pub(crate) fn install_initiated(&mut self, session: Arc<Session>, now: Boottime) -> Evicted {
        let old = self.current.replace(session);
        match self.next.take() {
            Some(next) => [self.previous.replace(next), old, self.older.take()],
            None => {
                let before = core::mem::replace(&mut self.previous, old);
                let (older, expired) = match before {
                    Some(before) if before.expired(now) => (None, Some(before)),
                    before => (before, None),
                };
                [core::mem::replace(&mut self.older, older), expired, None]
            }
        }
    }

    /// Puts in a session that the peer started: it waits for the first packet that proves it.
    ///
    /// The previous one stays until then. After initiations that crossed, each end seals with the session that
    /// it started, which is the other's previous: what the peer sends until our response reaches it would be lost.
    pub(crate) fn install_responded(&mut self, session: Arc<Session>) -> Evicted {
        [self.next.replace(session), self.older.take(), None]
    }

    /// A packet of `session` was authentic. If it was waiting for that, it becomes current;
    /// otherwise `None`.
    pub(crate) fn confirm(&mut self, session: &Arc<Session>) -> Option<Evicted> {
        let next = self.next.take_if(|next| Arc::ptr_eq(next, session))?;
        let old = self.current.replace(next);
        Some([core::mem::replace(&mut self.previous, old), self.older.take(), None])
    }

    /// Keeps the sessions for opening what is on the way, but nothing is sealed with them again.
    pub(crate) fn stop_sealing(&self) {
        for session in [&self.next, &self.current].into_iter().flatten() {
            session.stop_sealing();
        }
    }

    /// Takes everything out.
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

    /// Sessions of the time in which those of before have expired.
    const LATER: Boottime = Boottime::from_secs(1000);

    fn session(local: u32, initiator: bool) -> Arc<Session> {
        let ends = SessionIndices { peer: PeerId(0), local, remote: 0, initiator };
        Arc::new(Session::new(ends, Boottime(0), &TransportKeys { sealing: [1; 32], opening: [2; 32] }))
    }

    fn indices(sessions: &[Option<Arc<Session>>]) -> Vec<u32> {
        sessions.iter().flatten().map(|session| session.local).collect()
    }

    impl Keyring {
        /// Next, current, previous.
        fn state(&self) -> [Option<u32>; 3] {
            [&self.next, &self.current, &self.previous].map(|place| place.as_ref().map(|session| session.local))
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
        assert!(ring.confirm(&session(2, false)).is_none(), "another session of that index");
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
    fn a_previous_session_that_is_young_stays_until_the_peer_has_heard_of_ours() {
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
                let places = [&ring.next, &ring.current, &ring.previous, &ring.older].map(Clone::clone);
                prop_assert!(ring.next.is_none() || ring.older.is_none());
                let mut all: Vec<_> = indices(&places).into_iter().chain(gone.iter().copied()).collect();
                all.sort_unstable();
                prop_assert_eq!(&all, &made);
            }
        }
    }
}
