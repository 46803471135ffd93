//! Handshake messages: initiations, responses and cookie replies, received and sent.
//!
//! Everything received is hostile until proved otherwise, and the checks run in order of cost: length,
//! first MAC, under load cookie and rate, then the key agreements. Nothing is stored before the sender
//! is authenticated.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;

use crate::constants::{INITIATION_SPACING, REKEY_TIMEOUT, REKEY_TIMEOUT_JITTER, WIPE_TIME};
use crate::effects::CallContext;
use crate::indices::Indices;
use crate::load_state::AdmissionDecision;
use crate::messages::{self, CookieReply, Initiation, Response, cookie_reply, field, response};
use crate::noise::{self, Remote, TransportKeys};
use crate::peer::{HandshakeAction, Peer, next_repeat};
use crate::scrub::scrubbed;
use crate::session::SessionIndices;
use crate::{
    Boottime, Device, DropReason, Effects, Entropy, MessageKind, Now, PeerId, Session, classify, cookie, draw,
};

/// Messages received.
impl Device {
    /// Handles an initiation, response or cookie reply from `source` that passed the filter, while `backlog` more
    /// datagrams wait.
    ///
    /// # Errors
    /// The reason why the message was dropped. The state is then unchanged, except for the timestamp of an authentic
    /// initiation.
    pub fn handle(
        &mut self,
        now: Now,
        rng: &mut dyn Entropy,
        source: SocketAddr,
        backlog: usize,
        datagram: &[u8],
        effects: &mut dyn Effects,
    ) -> Result<(), DropReason> {
        let kind = classify(datagram)?;
        if !self.up {
            return Err(DropReason::Down);
        }
        let cx = &mut CallContext { now, rng, effects };
        let peer = match kind {
            MessageKind::Data => return Err(DropReason::WrongKind),
            MessageKind::Cookie => return self.take_cookie(now.boot, exact(datagram)?),
            MessageKind::Initiation => {
                self.check_mac_and_load(cx, source, backlog, datagram)?;
                let message = exact(datagram)?;
                scrubbed(|| self.respond(cx, source, message))
            }
            MessageKind::Response => {
                self.check_mac_and_load(cx, source, backlog, datagram)?;
                let message = exact(datagram)?;
                scrubbed(|| self.complete(cx, message))
            }
        };
        match peer {
            Ok(peer) => self.update_timers(cx, peer),
            Err(reason) if reason.follows_diffie_hellman() => self.load.note_wasted(now.boot),
            Err(_) => {}
        }
        peer.map(drop)
    }

    /// The data path received the first authentic packet of a session that the peer started
    /// ([`Session::confirm`]): from now on we seal with it.
    pub fn confirmed(&mut self, now: Now, session: &Arc<Session>, effects: &mut dyn Effects) {
        let id = session.peer;
        let Some(peer) = self.get_mut(id) else { return };
        let Some(evicted) = peer.keyring.confirm(session) else {
            // A newer session has replaced it. The data path may have begun to seal with the replaced session.
            return self.publish_current(now.boot, id, effects);
        };
        #[cfg(feature = "fleet")]
        {
            peer.has_floor = true;
            self.report_timestamps(id, effects);
        }
        let Some(peer) = self.get_mut(id) else { return };
        // Our own initiation may have crossed the peer's. Its response is still accepted, because the peer
        // has made a session of it, but the initiation is not repeated.
        peer.handshake_timer = match peer.handshake_timer {
            Some((at, HandshakeAction::Retry)) => Some((at, HandshakeAction::Abandon)),
            _ => None,
        };
        peer.urgent = false;
        self.publish_current(now.boot, id, effects);
        self.release_evicted(evicted, effects);
        self.handshake_done(now, id, effects);
        effects.send_staged(id);
        // The timers have changed; expire() works out the new deadline.
        self.schedule(id, Some(now.boot));
    }

    /// Checks the first MAC, and under load cookie and rate (paper section 5.3).
    fn check_mac_and_load(
        &mut self,
        cx: &mut CallContext<'_>,
        source: SocketAddr,
        backlog: usize,
        message: &[u8],
    ) -> Result<(), DropReason> {
        let now = cx.now.boot;
        let identity = self.identity.as_ref().ok_or(DropReason::NoPrivateKey)?;
        let loaded = self.load.is_under_load(now, backlog);
        if !cookie::mac1_is_valid(&identity.mac1_key, message) {
            return Err(DropReason::Mac1);
        }
        if !loaded {
            return Ok(());
        }
        if self.filter.cookies.mac2_is_valid(now, source, message) {
            if self.limiter.allow(now, cx.rng, source.ip()) {
                return Ok(());
            }
            self.load.note_rate_exceeded(now, cx.rng, source.ip());
            return Err(DropReason::RateLimited);
        }
        let decision = match classify(message)? {
            MessageKind::Response => {
                // The receiver index is random: only who received or observed our initiation knows it.
                let waiting = awaiting(&mut self.peers, &self.indices, exact(message)?);
                let waiting = waiting.ok_or(DropReason::UnknownIndex)?;
                // One for each of our initiations costs no more than these did: a burst of our own is no flood.
                match core::mem::replace(&mut waiting.was_answered, true) {
                    false => AdmissionDecision::Admit,
                    true => self.load.decide_response(now, cx.rng),
                }
            }
            _ => self.load.decide_initiation(now, cx.rng, source.ip()),
        };
        match decision {
            AdmissionDecision::Admit => return Ok(()),
            AdmissionDecision::Cookie => {
                let reply = self.filter.cookies.reply(now, cx.rng, &identity.cookie_key, source, message);
                cx.effects.reply(&reply);
            }
            AdmissionDecision::Drop => {}
        }
        Err(DropReason::UnderLoad)
    }

    /// Consumes an initiation and sends the response.
    fn respond(
        &mut self,
        cx: &mut CallContext<'_>,
        source: SocketAddr,
        message: &Initiation,
    ) -> Result<PeerId, DropReason> {
        let now = cx.now.boot;
        let identity = self.identity.as_ref().ok_or(DropReason::NoPrivateKey)?;
        if is_stale(&self.indices) {
            return Err(DropReason::Stale);
        }
        let unverified = noise::open_static(identity, message)?;
        let id = self.peer(&unverified.sender).ok_or(DropReason::UnknownPeer)?;
        let peer = self.peers[id.0 as usize].as_deref_mut().ok_or(DropReason::UnknownPeer)?;
        if peer.suspended {
            return Err(DropReason::Suspended);
        }
        let static_static = peer.static_static(identity).ok_or(DropReason::LowOrder)?;
        let (verified, timestamp) = unverified.open_timestamp(static_static, message)?;
        if timestamp <= peer.timestamp_seen {
            return Err(DropReason::Replayed);
        }
        if peer.initiation_seen.is_some_and(|seen| now.since(seen) < INITIATION_SPACING) {
            return Err(DropReason::Flood);
        }
        let provisional = is_provisional(&self.indices, peer);
        if provisional
            && !is_hinted(&self.indices, id, source)
            && !self.filter.cookies.mac2_is_valid(now, source, message)
        {
            let reply = self.filter.cookies.reply(now, cx.rng, &identity.cookie_key, source, message);
            cx.effects.reply(&reply);
            return Err(DropReason::UnderLoad);
        }
        peer.timestamp_seen = timestamp;
        peer.initiation_seen = Some(now);

        let local = self.indices.take(cx.rng, id);
        let remote = verified.index();
        let (mut response, keys) = match verified.respond(&peer.psk, cx.rng, local) {
            Ok(made) => made,
            Err(reason) => {
                self.indices.release(local);
                return Err(reason);
            }
        };
        peer.cookie_maker.sign(now, &noise::mac1_key(&peer.public), &mut response);
        if !provisional {
            // The response counts towards the limit of one handshake message per 5 s.
            peer.handshake_sent = Some(now);
            peer.urgent = false;
            peer.traffic.note_received(now);
            peer.traffic.note_sent(now);
        }
        let session = peer.new_session(cx, SessionIndices { peer: id, local, remote, initiator: false }, &keys);
        let evicted = peer.keyring.install_responded(Arc::clone(&session));

        if !provisional {
            cx.effects.roam(id);
            #[cfg(feature = "fleet")]
            self.note_here(id);
        }
        cx.effects.session_added(&session);
        self.release_evicted(evicted, cx.effects);
        if provisional {
            // The initiation may be an old one, sent by anybody; a data message will tell where the peer is.
            cx.effects.reply(&response);
        } else {
            #[cfg(feature = "fleet")]
            self.report_timestamps(id, cx.effects);
            cx.effects.send(id, &response);
        }
        Ok(id)
    }

    /// Consumes the response to our initiation and confirms the session.
    fn complete(&mut self, cx: &mut CallContext<'_>, message: &Response) -> Result<PeerId, DropReason> {
        let now = cx.now.boot;
        let identity = self.identity.as_ref().ok_or(DropReason::NoPrivateKey)?;
        let local = u32::from_le_bytes(field(message, response::RECEIVER));
        let id = self.indices.owner(local).ok_or(DropReason::UnknownIndex)?;
        let peer = self.peers[id.0 as usize].as_deref_mut().ok_or(DropReason::UnknownIndex)?;
        let initiator =
            peer.initiator.as_ref().filter(|waiting| waiting.index == local).ok_or(DropReason::WrongState)?;
        let keys = initiator.finish(identity, &peer.psk, message)?;

        // From now on the index names the session.
        peer.initiator = None;
        let repeat = next_repeat(now, now).filter(|_| core::mem::take(&mut peer.urgent));
        peer.handshake_timer = repeat.map(|at| (at, HandshakeAction::Confirm));
        peer.traffic.note_received(now);
        let remote = messages::sender(message);
        let session = peer.new_session(cx, SessionIndices { peer: id, local, remote, initiator: true }, &keys);
        let evicted = peer.keyring.install_initiated(Arc::clone(&session), now);

        cx.effects.roam(id);
        cx.effects.session_added(&session);
        self.publish_current(now, id, cx.effects);
        self.release_evicted(evicted, cx.effects);
        self.handshake_done(cx.now, id, cx.effects);
        // The responder may not send before it receives a packet of this session.
        cx.effects.send_keepalive(id);
        Ok(id)
    }

    /// Takes the cookie of a peer under load. The reply does not authenticate its source address, so the endpoint
    /// stays.
    fn take_cookie(&mut self, now: Boottime, reply: &CookieReply) -> Result<(), DropReason> {
        let index = u32::from_le_bytes(field(reply, cookie_reply::RECEIVER));
        let id = self.indices.owner(index).ok_or(DropReason::UnknownIndex)?;
        let peer = self.get_mut(id).ok_or(DropReason::UnknownIndex)?;
        peer.cookie_maker.accept(now, &noise::cookie_key(&peer.public), reply)
    }

    fn publish_current(&self, now: Boottime, id: PeerId, effects: &mut dyn Effects) {
        let current = self.get(id).and_then(|peer| peer.keyring.current());
        effects.set_sending_session(id, current.filter(|session| session.may_seal(now)));
    }

    fn handshake_done(&mut self, now: Now, id: PeerId, effects: &mut dyn Effects) {
        let Some(peer) = self.get_mut(id) else { return };
        peer.attempts = 0;
        #[cfg(feature = "fleet")]
        self.note_here(id);
        effects.handshake_done(id, now.wall);
    }
}

/// Initiations sent.
impl Device {
    /// Whether a handshake with the peer can be started at all. If not, a request stays pending until a key, the
    /// endpoint or the device's state changes.
    pub(crate) fn can_initiate(&mut self, id: PeerId, effects: &dyn Effects) -> bool {
        let may_begin = self.up && !is_stale(&self.indices);
        let Some(identity) = self.identity.as_ref().filter(|_| may_begin) else { return false };
        let Some(peer) = self.peers.get_mut(id.0 as usize).and_then(Option::as_deref_mut) else { return false };
        !peer.suspended && effects.has_endpoint(id) && scrubbed(|| peer.static_static(identity).is_some())
    }

    /// Starts a handshake, unless one is running. Resets the count of retries either way.
    pub(crate) fn start(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let Some(peer) = self.get_mut(id) else { return };
        peer.attempts = 0;
        if !peer.handshaking() {
            peer.urgent = false;
            self.initiate(cx, id);
        }
    }

    /// Sends an initiation, or arms the timer for when one may be sent.
    pub(crate) fn initiate(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        let can_initiate = self.can_initiate(id, cx.effects);
        let Some(peer) = self.get_mut(id) else { return };
        if !can_initiate {
            (peer.handshake_timer, peer.urgent) = (None, false);
            return;
        }
        if let Some(sent) = peer.handshake_sent
            && now < sent.after(REKEY_TIMEOUT)
            && !peer.urgent
        {
            peer.handshake_timer = Some((sent.after(REKEY_TIMEOUT), HandshakeAction::SendFirst));
            return;
        }
        self.drop_initiator(id);
        scrubbed(|| self.send_initiation(cx, id));
    }

    fn send_initiation(&mut self, cx: &mut CallContext<'_>, id: PeerId) {
        let now = cx.now.boot;
        let Some(identity) = self.identity.as_ref() else { return };
        let Some(peer) = self.peers[id.0 as usize].as_deref_mut() else { return };
        // A repetition of an urgent handshake is no new one.
        let begun = peer.handshake_sent.filter(|sent| now < sent.after(REKEY_TIMEOUT)).unwrap_or(now);
        peer.handshake_sent = Some(begun);
        peer.timestamp_sent = self.timestamps.issue(cx.now.wall, peer.timestamp_sent);
        let (public, timestamp) = (peer.public, peer.timestamp_sent);
        let Some(static_static) = peer.static_static(identity) else { return };
        let remote = Remote { public: &public, static_static };
        let index = self.indices.take(cx.rng, id);
        let Some((initiator, mut message)) = noise::initiate(identity, &remote, cx.rng, index, timestamp) else {
            self.indices.release(index);
            return;
        };
        peer.cookie_maker.sign(now, &noise::mac1_key(&public), &mut message);
        peer.initiator = Some(Box::new(initiator));
        let repeat = next_repeat(begun, now).filter(|_| peer.urgent);
        peer.urgent = repeat.is_some();
        let usual = begun.after(REKEY_TIMEOUT + jitter(cx.rng));
        peer.handshake_timer = Some((repeat.unwrap_or(usual), HandshakeAction::Retry));
        peer.traffic.note_sent(now);
        #[cfg(feature = "fleet")]
        self.report_timestamps(id, cx.effects);
        cx.effects.send(id, &message);
    }
}

/// Our initiation that a response names, if that waits for one.
fn awaiting<'a>(
    peers: &'a mut [Option<Box<Peer>>],
    indices: &Indices,
    message: &Response,
) -> Option<&'a mut noise::Initiator> {
    let index = u32::from_le_bytes(field(message, response::RECEIVER));
    let peer = peers.get_mut(indices.owner(index)?.0 as usize)?.as_deref_mut()?;
    peer.initiator.as_deref_mut().filter(|waiting| waiting.index == index)
}

impl Peer {
    fn new_session(&mut self, cx: &mut CallContext<'_>, ends: SessionIndices, keys: &TransportKeys) -> Arc<Session> {
        self.wipe_at = Some(cx.now.boot.after(WIPE_TIME));
        self.new_handshake_jitter = jitter(cx.rng);
        Arc::new(Session::new(ends, cx.now.boot, keys))
    }
}

/// Whether an initiation of the peer may be an old one that another gateway has accepted: nothing but its session follows
/// from it until a data message confirms that.
#[cfg(feature = "fleet")]
fn is_provisional(indices: &Indices, peer: &Peer) -> bool {
    indices.fleet.is_some() && !peer.has_floor
}

#[cfg(not(feature = "fleet"))]
fn is_provisional(_: &Indices, _: &Peer) -> bool {
    false
}

/// Whether what a fleet knows of its peers is too old to let any in.
#[cfg(feature = "fleet")]
fn is_stale(indices: &Indices) -> bool {
    indices.fleet.as_ref().is_some_and(|fleet| fleet.is_stale)
}

#[cfg(not(feature = "fleet"))]
fn is_stale(_: &Indices) -> bool {
    false
}

#[cfg(feature = "fleet")]
fn is_hinted(indices: &Indices, peer: PeerId, source: SocketAddr) -> bool {
    indices.fleet.as_ref().is_some_and(|fleet| fleet.is_hinted(peer, source))
}

#[cfg(not(feature = "fleet"))]
fn is_hinted(_: &Indices, _: PeerId, _: SocketAddr) -> bool {
    false
}

/// Up to [`REKEY_TIMEOUT_JITTER`], at random, so that two peers do not start in lockstep.
pub(crate) fn jitter(rng: &mut dyn Entropy) -> Duration {
    let millis = REKEY_TIMEOUT_JITTER.as_millis() as u32 + 1;
    Duration::from_millis((u32::from_le_bytes(draw(rng)) % millis).into())
}

/// The message as an array; `classify` has checked its length.
fn exact<const N: usize>(datagram: &[u8]) -> Result<&[u8; N], DropReason> {
    datagram.try_into().map_err(|_| DropReason::BadLength)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::constants::{COOKIE_LEN, UNSEEN_SOURCES_MAX, WASTED_MAX};
    use crate::cookie::CookieMaker;
    use crate::noise::{Identity, mac1_key};
    use crate::tai64n::Timestamp;
    use crate::test_rng::TestRng;
    use crate::{PrivateKey, PublicKey, TrafficTimestamps};

    const NOW: Now = Now { boot: Boottime::from_secs(1000), wall: Duration::from_secs(1_000_000) };
    const BUSY: usize = crate::constants::UNDER_LOAD_BACKLOG;

    /// What a message cost the device, and what its sender could observe.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Cost {
        agreements: usize,
        drawn: usize,
        replies: usize,
        sent: usize,
    }
    const NOTHING: Cost = Cost { agreements: 0, drawn: 0, replies: 0, sent: 0 };

    #[test]
    fn a_wrong_first_mac_gets_no_answer_and_costs_no_key_agreement_for_any_claimed_sender() {
        for message in messages() {
            for backlog in [0, BUSY] {
                let mut responder = Responder::new();
                let mut message = message;
                message[116] ^= 1;
                assert_eq!(responder.handle(1, backlog, &message), (Err(DropReason::Mac1), NOTHING));
            }
        }
    }

    #[test]
    fn without_a_cookie_every_claimed_sender_is_treated_alike() {
        let mut responder = Responder::loaded();
        let one_reply = Cost { drawn: 24, replies: 1, ..NOTHING };
        for (message, source) in messages().iter().zip(2..) {
            assert_eq!(responder.handle(source, BUSY, message), (Err(DropReason::UnderLoad), one_reply));
        }
    }

    #[test]
    fn an_unseen_sender_is_answered_during_a_flood() {
        let mut responder = Responder::new();
        let (answer, cost) = responder.handle(1, BUSY, &valid_initiation());
        assert_eq!((answer, cost.agreements, cost.replies, cost.sent), (Ok(()), 4, 0, 1));
    }

    #[test]
    fn useless_key_agreements_count_as_load_with_an_empty_backlog() {
        let mut responder = Responder::new();
        for _ in 0..=WASTED_MAX {
            assert_eq!(responder.handle(1, 0, &random_initiation()).0, Err(DropReason::Undecryptable));
        }
        // The address is new once, then known.
        assert_eq!(responder.handle(1, 0, &random_initiation()).0, Err(DropReason::Undecryptable));
        assert_eq!(responder.handle(1, 0, &random_initiation()).0, Err(DropReason::UnderLoad));
    }

    #[test]
    fn a_forged_initiation_costs_one_key_agreement_for_any_claimed_sender() {
        let mut responder = Responder::new();
        let one = Cost { agreements: 1, ..NOTHING };
        assert_eq!(responder.handle(1, 0, &random_initiation()), (Err(DropReason::Undecryptable), one));
        assert_eq!(responder.handle(1, 0, &forged_as(unknown_peer().public)), (Err(DropReason::UnknownPeer), one));
        // The agreement of the static keys is computed once and kept.
        let forged = forged_as(known_peer().public);
        assert_eq!(
            responder.handle(1, 0, &forged),
            (Err(DropReason::Undecryptable), Cost { agreements: 2, ..NOTHING })
        );
        for _ in 0..3 {
            assert_eq!(responder.handle(1, 0, &forged), (Err(DropReason::Undecryptable), one));
        }
        let (answer, cost) = responder.handle(1, 0, &valid_initiation());
        assert_eq!((answer, cost.agreements, cost.sent), (Ok(()), 3, 1));
    }

    #[test]
    fn an_unsolicited_response_or_cookie_costs_no_key_agreement() {
        let mut response = messages::blank_response(1, 2);
        CookieMaker::default().sign(NOW.boot, &mac1_key(&device().public), &mut response);
        let mut cookie = [0; COOKIE_LEN];
        cookie[0] = 3;
        for message in [&response[..], &cookie] {
            assert_eq!(Responder::new().handle(1, 0, message), (Err(DropReason::UnknownIndex), NOTHING));
        }
    }

    #[test]
    fn under_load_each_of_our_initiations_has_one_answer_and_others_are_few() {
        let mut responder = Responder::loaded();
        while responder.device.load.decide_response(NOW.boot, &mut responder.rng) == AdmissionDecision::Admit {}
        let peer = responder.device.peer(&known_peer().public).unwrap();
        let mut seen = Seen::default();
        let traffic = Arc::clone(&responder.device.get(peer).unwrap().traffic);
        let _ = traffic.request_handshake();
        responder.device.woken(NOW, &mut responder.rng, peer, &mut seen);
        let index = responder.device.get(peer).unwrap().initiator.as_ref().unwrap().index;
        let forged = |index| {
            let mut response = messages::blank_response(1, index);
            CookieMaker::default().sign(NOW.boot, &mac1_key(&device().public), &mut response);
            response
        };
        let refused = Cost { drawn: 24, replies: 1, ..NOTHING };
        assert_eq!(responder.handle(1, BUSY, &forged(index ^ 1)), (Err(DropReason::UnknownIndex), NOTHING));
        let (answer, cost) = responder.handle(1, BUSY, &forged(index));
        assert!(answer.is_err_and(|reason| reason != DropReason::UnderLoad), "{answer:?}");
        assert_eq!(cost.replies, 0);
        for _ in 0..3 {
            assert_eq!(responder.handle(1, BUSY, &forged(index)), (Err(DropReason::UnderLoad), refused));
        }
    }

    /// Searches the stack of a new thread; Linux shows a process its own memory as a file.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    #[test]
    fn a_handshake_leaves_no_key_on_the_stack() {
        // Keys are kept inverted, so that the search does not find the test's own copies.
        let inverted = |key: [u8; 32]| key.map(|byte| !byte);
        let common = std::thread::spawn(move || {
            let common = device().static_static(&known_peer().public);
            inverted(*common.expect("of high order"))
        });
        let common = common.join().expect("both keys are of high order");
        let message = valid_initiation();
        let stack = std::thread::spawn(move || {
            let mut responder = Responder::new();
            assert_eq!(responder.handle(1, 0, &message).0, Ok(()));
            let keys = noise::last_split();
            (keys, own_stack())
        });
        let ([first, second], stack) = stack.join().expect("the initiation is valid");
        assert!(stack.len() > 100_000, "this is a stack");
        for (name, key) in [("static-static", common), ("sealing", second), ("opening", first)] {
            let key = inverted(key);
            assert_eq!(stack.windows(32).filter(|window| *window == key).count(), 0, "{name}");
        }
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    #[test]
    fn a_private_key_that_is_taken_leaves_none_of_it_on_the_stack() {
        let takers: [fn(PrivateKey) -> PublicKey; 2] =
            [|secret| secret.public_key(), |secret| Identity::new(secret).public];
        for take in takers {
            let stack = std::thread::spawn(move || {
                let secret = scrubbed(|| PrivateKey::new(&[0x5a; 32]).expect("not zero"));
                far_below(|| take(secret));
                own_stack()
            });
            let stack = stack.join().expect("a stack can be searched");
            // Clamping changes the first byte and the last one.
            assert_eq!(stack.windows(30).filter(|window| *window == [0x5a; 30]).count(), 0);
        }
    }

    /// Runs `work` where the search afterwards does not overwrite what it leaves.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    #[inline(never)]
    fn far_below<T>(work: impl FnOnce() -> T) -> T {
        let mut between = [0u8; 16 << 10];
        core::hint::black_box(&mut between);
        let result = work();
        core::hint::black_box(&mut between);
        result
    }

    /// All of the calling thread's stack.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    fn own_stack() -> std::vec::Vec<u8> {
        use std::os::unix::fs::FileExt;
        let local = 0u8;
        let here = core::ptr::from_ref(core::hint::black_box(&local)).addr();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
        let mapping = maps.lines().find_map(|line| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            let range = usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?;
            range.contains(&here).then_some(range)
        });
        let mapping = mapping.expect("a local variable is somewhere");
        let mut stack = std::vec![0; mapping.len()];
        let memory = std::fs::File::open("/proc/self/mem").expect("a process may read its own memory");
        memory.read_exact_at(&mut stack, mapping.start as u64).expect("a stack can be read");
        stack
    }

    fn identity(seed: u8) -> Identity {
        Identity::new(PrivateKey::new(&[seed; 32]).expect("not zero"))
    }
    fn device() -> Identity {
        identity(1)
    }
    fn known_peer() -> Identity {
        identity(2)
    }
    fn unknown_peer() -> Identity {
        identity(3)
    }

    /// An initiation with a valid first MAC that claims to be from `sender`.
    fn initiation(sender: &Identity) -> Initiation {
        let to = device().public;
        let common = sender.static_static(&to).expect("of high order");
        let remote = Remote { public: &to, static_static: &common };
        let made = noise::initiate(sender, &remote, &mut TestRng::default(), 7, Timestamp([1; 12]));
        let (_, mut message) = made.expect("of high order");
        CookieMaker::default().sign(NOW.boot, &mac1_key(&to), &mut message);
        message
    }
    fn valid_initiation() -> Initiation {
        initiation(&known_peer())
    }
    /// Forged by a sender who knows the public keys of device and peer.
    fn forged_as(public: PublicKey) -> Initiation {
        let mut forger = unknown_peer();
        forger.public = public;
        initiation(&forger)
    }
    /// Forged by a sender who knows only the device's public key.
    fn random_initiation() -> Initiation {
        let mut message = valid_initiation();
        message[40..116].fill(0x5a);
        CookieMaker::default().sign(NOW.boot, &mac1_key(&device().public), &mut message);
        message
    }
    fn messages() -> [Initiation; 4] {
        [valid_initiation(), forged_as(known_peer().public), forged_as(unknown_peer().public), random_initiation()]
    }

    /// The device with its one peer.
    struct Responder {
        device: Device,
        rng: TestRng,
    }

    impl Responder {
        fn new() -> Self {
            let (mut device, mut rng) = (Device::new(), TestRng::default());
            let secret = PrivateKey::new(&[1; 32]);
            device.set_private_key(NOW, &mut rng, secret, &mut Seen::default());
            device.add_peer(known_peer().public, Arc::new(TrafficTimestamps::new())).expect("there is room");
            device.up(NOW, &mut rng, &mut Seen::default());
            Self { device, rng }
        }

        /// Under load; its quota of unseen sources is used up and its cookie secret is drawn.
        fn loaded() -> Self {
            let mut responder = Self::new();
            for number in 0..=UNSEEN_SOURCES_MAX as u32 {
                let source = SocketAddr::from(((0xc612_0000 + number).to_be_bytes(), 51820));
                let (device, rng) = (&mut responder.device, &mut responder.rng);
                let _ = device.handle(NOW, rng, source, BUSY, &random_initiation(), &mut Seen::default());
            }
            responder
        }

        /// Handles a message from the address with this number.
        fn handle(&mut self, source: u8, backlog: usize, message: &[u8]) -> (Result<(), DropReason>, Cost) {
            let source = SocketAddr::from(([192, 0, 2, source], 51820));
            let mut seen = Seen::default();
            let (agreements, drawn) = (noise::agreements(), self.rng.drawn);
            let answer = self.device.handle(NOW, &mut self.rng, source, backlog, message, &mut seen);
            let (agreements, drawn) = (noise::agreements() - agreements, self.rng.drawn - drawn);
            (answer, Cost { agreements, drawn, replies: seen.replies, sent: seen.sent })
        }
    }

    /// What left the device.
    #[derive(Default)]
    struct Seen {
        replies: usize,
        sent: usize,
    }

    impl Effects for Seen {
        fn send(&mut self, _: PeerId, _: &[u8]) {
            self.sent += 1;
        }
        fn reply(&mut self, _: &[u8]) {
            self.replies += 1;
        }
        fn send_keepalive(&mut self, _: PeerId) {
            self.sent += 1;
        }
        fn send_staged(&mut self, _: PeerId) {}
        fn roam(&mut self, _: PeerId) {}
        fn session_added(&mut self, _: &Arc<Session>) {}
        fn session_removed(&mut self, _: &Arc<Session>) {}
        fn set_sending_session(&mut self, _: PeerId, _: Option<&Arc<Session>>) {}
        fn drop_staged(&mut self, _: PeerId) {}
        fn forget_source_addr(&mut self, _: PeerId) {}
        fn handshake_done(&mut self, _: PeerId, _: Duration) {}
        fn has_endpoint(&self, _: PeerId) -> bool {
            true
        }
    }
}
