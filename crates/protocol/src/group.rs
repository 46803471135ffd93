//! What a device does for groups: peers of which one carries the traffic and another takes over when that one falls silent
//! (docs/fleet.md, "Many identities"). The engine decides which; here are the means.

use core::time::Duration;

use crate::constants::REKEY_TIMEOUT;
use crate::effects::CallContext;
use crate::peer::HandshakeAction;
use crate::{Boottime, Device, Effects, Entropy, Now, PeerId};

impl Device {
    /// Whether the data path wakes the slow path with the first data that it sends to the peer, even if a timer of the peer
    /// is armed that would come earlier. For a peer at rest whose next silence must not be missed; while it is in use, the
    /// caller looks at it by itself, and no packet wakes anybody.
    pub fn watch(&mut self, now: Now, rng: &mut dyn Entropy, id: PeerId, watched: bool, effects: &mut dyn Effects) {
        let Some(peer) = self.get_mut(id).filter(|peer| peer.watched != watched) else { return };
        peer.watched = watched;
        self.update_timers(&mut CallContext { now, rng, effects }, id);
    }

    /// Sends one initiation, even if the peer has a session, and does not repeat it. False if none can leave now: at most
    /// one does in 5 s. True as well while a handshake is running.
    pub fn initiate_once(&mut self, now: Now, rng: &mut dyn Entropy, id: PeerId, effects: &mut dyn Effects) -> bool {
        let cx = &mut CallContext { now, rng, effects };
        if !self.can_initiate(id, cx.effects) {
            return false;
        }
        let Some(peer) = self.get(id) else { return false };
        if peer.handshaking() {
            return true;
        }
        if peer.handshake_sent.is_some_and(|sent| now.boot < sent.after(REKEY_TIMEOUT)) {
            return false;
        }
        self.initiate(cx, id);
        self.stop_retrying(id);
        self.update_timers(cx, id);
        true
    }

    /// The peer is not waited for any more: what was sent to it, and a handshake that is running, are not repeated. Its
    /// sessions stay, and a response to the last initiation is still accepted.
    pub fn give_up(&mut self, now: Now, rng: &mut dyn Entropy, id: PeerId, effects: &mut dyn Effects) {
        let Some(peer) = self.get_mut(id) else { return };
        peer.traffic.take_request();
        peer.traffic.forget_unanswered();
        self.stop_retrying(id);
        self.update_timers(&mut CallContext { now, rng, effects }, id);
    }

    /// How old the session is that packets to the peer are sealed with; `None` if they cannot be.
    pub fn session_age(&self, now: Boottime, id: PeerId) -> Option<Duration> {
        let session = self.get(id)?.keyring.current().filter(|session| session.may_seal(now))?;
        Some(now.since(session.created_at))
    }

    fn stop_retrying(&mut self, id: PeerId) {
        let Some(peer) = self.get_mut(id) else { return };
        (peer.attempts, peer.urgent) = (0, false);
        peer.handshake_timer = match peer.handshake_timer {
            Some((at, HandshakeAction::Retry | HandshakeAction::Abandon)) => Some((at, HandshakeAction::Abandon)),
            Some((_, HandshakeAction::SendFirst | HandshakeAction::Confirm)) | None => None,
        };
    }
}
