//! Timers: retries, keepalives, new handshakes with a silent peer, wiping (paper section 6).
//!
//! Each peer has one entry among the device's timers, for its earliest deadline; nothing polls. Most
//! deadlines come from the peer's `TrafficTimestamps`, which move without notice: a timer that fires
//! too early is armed again.

use crate::constants::{MAX_TIMER_HANDSHAKES, REKEY_TIMEOUT, WIPE_TIME};
use crate::effects::CallContext;
use crate::handshake::jitter;
use crate::peer::{HandshakeAction, next_repeat};
use crate::{Boottime, Device, Effects, Entropy, Now, PeerId};

/// Peers that one call of `expire` handles at most, so that messages are handled in between.
const EXPIRE_BATCH: usize = 64;

impl Device {
    /// Updates a peer's timers after its [`TrafficTimestamps`](crate::TrafficTimestamps) returned `Wake::SlowPath`.
    pub fn woken(&mut self, now: Now, rng: &mut dyn Entropy, peer: PeerId, effects: &mut dyn Effects) {
        self.update_timers(&mut CallContext { now, rng, effects }, peer);
    }

    /// When [`Device::expire`] has work next.
    pub fn deadline(&self) -> Option<Boottime> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Runs what is due for a bounded number of peers. Call again while [`Device::deadline`] is not after
    /// `now`.
    pub fn expire(&mut self, now: Now, rng: &mut dyn Entropy, effects: &mut dyn Effects) {
        let cx = &mut CallContext { now, rng, effects };
        for _ in 0..EXPIRE_BATCH {
            let Some(&(at, id)) = self.timers.first() else { return };
            if at > now.boot {
                return;
            }
            self.update_timers(cx, id);
        }
    }

    /// Starts a requested handshake, runs what is due, and arms the timer for the rest.
    pub(crate) fn update_timers(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        if !self.up || self.get(id).is_some_and(|peer| peer.suspended) {
            return self.schedule(id, None);
        }
        loop {
            self.run_request(cx, id);
            self.run_due(cx, id);
            let Some(peer) = self.get(id) else { return };
            let deadline = peer.deadline();
            peer.publish_timers(deadline);
            self.schedule(id, deadline);
            // The data path may have written a timestamp or a request before it saw what we published (see
            // `traffic_timestamps`).
            if !self.has_request(cx, id) && !self.deadline_is_earlier(id, deadline) {
                return;
            }
        }
    }

    /// Sets or removes a peer's timer.
    pub(crate) fn schedule(&mut self, id: PeerId, at: Option<Boottime>) {
        let Some(peer) = self.peers.get_mut(id.0 as usize).and_then(Option::as_deref_mut) else { return };
        if peer.armed == at {
            return;
        }
        if let Some(old) = core::mem::replace(&mut peer.armed, at) {
            self.timers.remove(&(old, id));
        }
        if let Some(at) = at {
            self.timers.insert((at, id));
        }
    }

    /// Sends the staged packets or an empty one. Without a usable session it starts a handshake, which sends
    /// them when it completes.
    pub(crate) fn keepalive(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        if self.get(id).is_some_and(|peer| peer.may_seal(cx.now.boot)) {
            cx.effects.send_keepalive(id);
        } else {
            self.start(cx, id);
        }
    }

    /// Like [`Device::keepalive`], but leaves a handshake to [`Device::expire`]: configuring a device, or bringing it
    /// up, may concern 100,000 peers, and no message would be answered until all initiations were sent.
    pub(crate) fn keepalive_soon(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id).filter(|peer| !peer.suspended) else { return };
        if peer.may_seal(now) {
            cx.effects.send_keepalive(id);
            return self.update_timers(cx, id);
        }
        peer.attempts = 0;
        if !peer.handshaking() {
            peer.urgent = false;
            peer.handshake_timer = Some((now, HandshakeAction::SendFirst));
        }
        let deadline = peer.deadline();
        self.schedule(id, deadline);
    }

    fn run_request(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        if !self.has_request(cx, id) {
            return;
        }
        let Some(peer) = self.get_mut(id) else { return };
        peer.traffic.take_request();
        if peer.needs_handshake(cx.now.boot) {
            self.start(cx, id);
        }
    }

    /// Whether a handshake is requested, none is running, and one can be started. A request that cannot be
    /// served stays pending, so that further packets to that peer do not wake the slow path again.
    fn has_request(&mut self, cx: &CallContext<'_>, id: PeerId) -> bool {
        let requested = self.get(id).is_some_and(|peer| peer.traffic.requested() && !peer.handshaking());
        requested && self.can_initiate(id, cx.effects)
    }

    fn deadline_is_earlier(&self, id: PeerId, armed: Option<Boottime>) -> bool {
        let deadline = self.get(id).and_then(|peer| peer.deadline());
        deadline.is_some_and(|deadline| armed.is_none_or(|armed| deadline < armed))
    }

    fn run_due(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id) else { return };
        if peer.wipe_at.is_some_and(|at| at <= now) {
            self.forget_keys(id, cx.effects);
        }
        self.run_handshake_timer(cx, id);
        self.run_keepalive(cx, id);
        self.run_new_handshake(cx, id);
        self.run_persistent_keepalive(cx, id);
    }

    fn run_handshake_timer(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let Some(peer) = self.get_mut(id) else { return };
        let Some((_, timer)) = peer.handshake_timer.take_if(|(at, _)| *at <= cx.now.boot) else { return };
        match timer {
            HandshakeAction::Abandon => self.drop_initiator(id),
            HandshakeAction::SendFirst => {
                peer.traffic.take_request();
                self.initiate(cx, id);
            }
            HandshakeAction::Retry => self.retry(cx, id),
            HandshakeAction::Confirm => self.repeat_confirmation(cx, id),
        }
    }

    fn retry(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id) else { return };
        if peer.traffic.take_request() {
            peer.attempts = 0;
        }
        if self.has_moved_away(id) {
            return self.drop_initiator(id);
        }
        let Some(peer) = self.get_mut(id) else { return };
        if peer.attempts > MAX_TIMER_HANDSHAKES {
            peer.wipe_at.get_or_insert(now.after(WIPE_TIME));
            peer.traffic.drop_keepalive();
            return cx.effects.drop_staged(id);
        }
        // Responses may wait in our own queue.
        if peer.urgent && self.load.is_under_load(now, 0) {
            return self.wait_as_usual(cx, id);
        }
        let Some(peer) = self.get_mut(id) else { return };
        peer.attempts += 1;
        cx.effects.forget_source_addr(id);
        self.initiate(cx, id);
    }

    /// Repeats an urgent handshake no sooner than others.
    fn wait_as_usual(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let Some(peer) = self.get_mut(id) else { return };
        peer.urgent = false;
        let begun = peer.handshake_sent.unwrap_or(cx.now.boot);
        peer.handshake_timer = Some((begun.after(REKEY_TIMEOUT + jitter(cx.rng)), HandshakeAction::Retry));
    }

    fn repeat_confirmation(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id) else { return };
        let Some(session) = peer.keyring.current().filter(|session| session.may_seal(now)) else { return };
        let created = session.created_at;
        if peer.traffic.last_received() > created {
            return;
        }
        peer.handshake_timer = next_repeat(created, now).map(|at| (at, HandshakeAction::Confirm));
        cx.effects.send_keepalive(id);
    }

    /// Data was received and nothing sent for 10 s.
    fn run_keepalive(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        if !self.get(id).is_some_and(|peer| peer.traffic.take_keepalive(now)) {
            return;
        }
        self.keepalive(cx, id);
        if let Some(peer) = self.get(id) {
            peer.traffic.repeat_keepalive(now);
        }
    }

    /// Data was sent and nothing received for 15 s.
    fn run_new_handshake(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id) else { return };
        if !peer.traffic.take_new_handshake(now, peer.new_handshake_jitter) {
            return;
        }
        peer.new_handshake_jitter = jitter(cx.rng);
        if !self.has_moved_away(id) {
            cx.effects.forget_source_addr(id);
            self.start(cx, id);
        }
    }

    fn run_persistent_keepalive(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get(id).filter(|peer| peer.persistent_due().is_some_and(|at| at <= now)) else {
            return;
        };
        // Sending updates this, too; but if nothing can be sent, the next attempt still has to wait.
        peer.traffic.touch(now);
        if !self.has_moved_away(id) {
            self.keepalive(cx, id);
        }
    }

    /// Whether the peer has gone to another gateway of a fleet: its silence is no reason to begin with it again, which would
    /// take it away from there.
    #[cfg(feature = "fleet")]
    fn has_moved_away(&self, id: PeerId) -> bool {
        self.indices.fleet.as_ref().is_some_and(|fleet| fleet.has_lost(id))
    }

    #[cfg(not(feature = "fleet"))]
    fn has_moved_away(&self, _: PeerId) -> bool {
        false
    }
}
