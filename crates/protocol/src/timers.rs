//! What time does to peers: retries, keepalives, silence, wiping (paper section 6).
//!
//! Each peer has one entry among the device's timers, for the earliest of the moments it waits
//! for; nobody polls. Most of those moments are read from the peer's `Activity` stamps, which move
//! on without telling: a timer that fires too early just arms itself again.

use crate::constants::{MAX_TIMER_HANDSHAKES, WIPE_TIME};
use crate::device::Context;
use crate::handshake::jitter;
use crate::peer::Attempt;
use crate::{Boottime, Device, Effects, Entropy, Now, PeerId};

/// Peers that one call of `expire` looks at, so that messages get their turn in between.
const EXPIRE_BATCH: usize = 64;

impl Device {
    /// Looks at a peer after its `Activity` said `Wake::SlowPath`.
    pub fn woken(&mut self, now: Now, rng: &mut dyn Entropy, peer: PeerId, effects: &mut dyn Effects) {
        self.update_timers(&mut Context { now, rng, effects }, peer);
    }

    /// The earliest moment at which [`Device::expire`] has work.
    pub fn deadline(&self) -> Option<Boottime> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Runs what is due, at most a bounded amount: call again while [`Device::deadline`] is not
    /// after `now`.
    pub fn expire(&mut self, now: Now, rng: &mut dyn Entropy, effects: &mut dyn Effects) {
        let cx = &mut Context { now, rng, effects };
        for _ in 0..EXPIRE_BATCH {
            let Some(&(at, id)) = self.timers.first() else { return };
            if at > now.boot {
                return;
            }
            self.update_timers(cx, id);
        }
    }

    /// Answers a peer's request, runs what is due, and arms the rest.
    pub(crate) fn update_timers(&mut self, cx: &mut Context<'_>, id: PeerId) {
        if !self.up {
            return self.schedule(id, None);
        }
        loop {
            self.answer_request(cx, id);
            self.run_due(cx, id);
            let Some(peer) = self.get(id) else { return };
            let deadline = peer.deadline();
            peer.activity.publish(deadline.unwrap_or(Boottime::NEVER), peer.handshaking());
            self.schedule(id, deadline);
            // The data path may have asked between our reading and our publishing: see activity.
            if !self.request_waits(cx, id) && !self.moved_ahead(id, deadline) {
                return;
            }
        }
    }

    /// Puts a peer's entry among the timers.
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

    /// Sends what is staged or an empty packet; without a usable session it starts a handshake,
    /// whose completion sends the same.
    pub(crate) fn keepalive(&mut self, cx: &mut Context<'_>, id: PeerId) {
        if self.get(id).is_some_and(|peer| peer.may_seal(cx.now.boot)) {
            cx.effects.send_keepalive(id);
        } else {
            self.start(cx, id);
        }
    }

    /// As [`Device::keepalive`], but a handshake is left to [`Device::expire`]: whoever configures a device, or brings it
    /// up, may do so for 100,000 peers, and no message would be answered until each had its initiation.
    pub(crate) fn keepalive_soon(&mut self, cx: &mut Context<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id) else { return };
        if peer.may_seal(now) {
            cx.effects.send_keepalive(id);
            return self.update_timers(cx, id);
        }
        peer.attempts = 0;
        if !peer.handshaking() {
            peer.attempt = Some((now, Attempt::First));
        }
        let deadline = peer.deadline();
        self.schedule(id, deadline);
    }

    fn answer_request(&mut self, cx: &mut Context<'_>, id: PeerId) {
        if !self.request_waits(cx, id) {
            return;
        }
        let Some(peer) = self.get_mut(id) else { return };
        peer.activity.take_request();
        if peer.needs_handshake(cx.now.boot) {
            self.start(cx, id);
        }
    }

    /// Whether there is a request that can be answered and that no running handshake answers. One
    /// that cannot be answered stays pending, so that its peer's traffic wakes nobody again.
    fn request_waits(&mut self, cx: &Context<'_>, id: PeerId) -> bool {
        let waits = self.get(id).is_some_and(|peer| peer.activity.requested() && !peer.handshaking());
        waits && self.can_initiate(id, cx.effects)
    }

    fn moved_ahead(&self, id: PeerId, armed: Option<Boottime>) -> bool {
        let deadline = self.get(id).and_then(|peer| peer.deadline());
        deadline.is_some_and(|deadline| armed.is_none_or(|armed| deadline < armed))
    }

    fn run_due(&mut self, cx: &mut Context<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id) else { return };
        if peer.wipe_at.is_some_and(|at| at <= now) {
            self.forget_keys(id, cx.effects);
        }
        self.run_attempt(cx, id);
        self.run_keepalive(cx, id);
        self.run_silence(cx, id);
        self.run_persistent_keepalive(cx, id);
    }

    /// The handshake timer.
    fn run_attempt(&mut self, cx: &mut Context<'_>, id: PeerId) {
        let Some(peer) = self.get_mut(id) else { return };
        let Some((_, attempt)) = peer.attempt.take_if(|(at, _)| *at <= cx.now.boot) else { return };
        match attempt {
            Attempt::Settle => self.drop_initiator(id),
            Attempt::First => {
                peer.activity.take_request();
                self.initiate(cx, id);
            }
            Attempt::Retry => self.retry(cx, id),
        }
    }

    fn retry(&mut self, cx: &mut Context<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id) else { return };
        if peer.activity.take_request() {
            peer.attempts = 0;
        }
        if peer.attempts > MAX_TIMER_HANDSHAKES {
            peer.wipe_at.get_or_insert(now.after(WIPE_TIME));
            peer.activity.drop_keepalive();
            return cx.effects.drop_staged(id);
        }
        peer.attempts += 1;
        cx.effects.forget_source(id);
        self.initiate(cx, id);
    }

    /// Data was received and nothing sent for 10 s.
    fn run_keepalive(&mut self, cx: &mut Context<'_>, id: PeerId) {
        let now = cx.now.boot;
        if !self.get(id).is_some_and(|peer| peer.activity.take_keepalive(now)) {
            return;
        }
        self.keepalive(cx, id);
        if let Some(peer) = self.get(id) {
            peer.activity.repeat_keepalive(now);
        }
    }

    /// Data was sent and nothing received for 15 s.
    fn run_silence(&mut self, cx: &mut Context<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get_mut(id) else { return };
        if !peer.activity.take_silence(now, peer.silence_jitter) {
            return;
        }
        peer.silence_jitter = jitter(cx.rng);
        cx.effects.forget_source(id);
        self.start(cx, id);
    }

    fn run_persistent_keepalive(&mut self, cx: &mut Context<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(peer) = self.get(id).filter(|peer| peer.persistent_due().is_some_and(|at| at <= now)) else {
            return;
        };
        // What is sent stamps this as well; but if nothing can be sent, the next try still waits.
        peer.activity.touch(now);
        self.keepalive(cx, id);
    }
}
