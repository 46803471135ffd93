//! One peer: its keys, sessions, handshake and timers, and the decisions that depend on them alone.
//! `handshake` and `timers` send.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use crate::constants::{URGENT_REPEATS, URGENT_SPACING};
use crate::cookie::CookieMaker;
use crate::keyring::Keyring;
use crate::noise::{Identity, Initiator, Secret};
use crate::tai64n::Timestamp;
use crate::{Boottime, PresharedKey, PublicKey, TrafficTimestamps};

/// A peer's number in its device: small, and reused after the peer is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

pub(crate) struct Peer {
    pub(crate) public: PublicKey,
    pub(crate) psk: PresharedKey,
    /// Seconds between persistent keepalives; zero: off.
    pub(crate) persistent_keepalive: u16,
    /// Nothing is sent to it, and its handshakes are refused ([`Device::suspend`](crate::Device::suspend)).
    pub(crate) suspended: bool,
    /// Peers are listed in this order.
    pub(crate) serial: u64,
    pub(crate) traffic: Arc<TrafficTimestamps>,
    pub(crate) static_static: StaticStatic,

    pub(crate) keyring: Keyring,
    /// Our initiation that waits for its response. Independent of the peer's initiations, so that crossing
    /// initiations both complete.
    pub(crate) initiator: Option<Box<Initiator>>,
    pub(crate) cookie_maker: CookieMaker,
    /// Timestamp of our latest initiation.
    pub(crate) timestamp_sent: Timestamp,
    /// Greatest timestamp of the peer's initiations.
    pub(crate) timestamp_seen: Timestamp,
    /// Whether that bounds what may be replayed: here, or by what other gateways say, it was the peer's latest. Without
    /// it the peer may have sent greater ones elsewhere.
    #[cfg(feature = "fleet")]
    pub(crate) has_floor: bool,
    /// See `Device::watch`.
    #[cfg(feature = "fleet")]
    pub(crate) watched: bool,
    /// When the peer's latest initiation was consumed.
    pub(crate) initiation_seen: Option<Boottime>,
    /// When we last sent an initiation or a response; of an urgent handshake, its first initiation.
    pub(crate) handshake_sent: Option<Boottime>,

    /// When the handshake timer fires, and what happens then.
    pub(crate) handshake_timer: Option<(Boottime, HandshakeAction)>,
    /// The running handshake is repeated sooner than others ([`URGENT_REPEATS`]).
    pub(crate) urgent: bool,
    /// Retries of the current handshake.
    pub(crate) attempts: u8,
    pub(crate) wipe_at: Option<Boottime>,
    /// Jitter of the timer that starts a new handshake when the peer does not answer.
    pub(crate) new_handshake_jitter: Duration,
    /// The peer's entry in the device's timers.
    pub(crate) armed: Option<Boottime>,
}

/// What happens when the handshake timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeAction {
    /// Send the first initiation, which the limit of one per 5 s delayed.
    SendFirst,
    /// No response came: send another initiation, or give up.
    Retry,
    /// Drop the initiation: the peer's own has made a session meanwhile, so ours is not repeated, and the time for
    /// its response is over.
    Abandon,
    /// An urgent handshake was completed: repeat the keepalive without which the peer may not use the session, unless
    /// the peer was heard since.
    Confirm,
}

/// When what was urgent at `since` is repeated next.
pub(crate) fn next_repeat(since: Boottime, now: Boottime) -> Option<Boottime> {
    URGENT_REPEATS.iter().map(|time| since.after(*time)).find(|at| *at >= now.after(URGENT_SPACING))
}

/// The Diffie-Hellman result of both static keys, computed on first use: configuring 10,000 peers must
/// not take 10,000 multiplications.
pub(crate) enum StaticStatic {
    Unknown,
    Known(Secret),
    /// The peer's key is of low order: it can be configured, but never receives a packet.
    LowOrder,
}

impl Peer {
    pub(crate) fn new(public: PublicKey, serial: u64, traffic: Arc<TrafficTimestamps>) -> Self {
        Self {
            public,
            psk: PresharedKey::default(),
            persistent_keepalive: 0,
            suspended: false,
            serial,
            traffic,
            static_static: StaticStatic::Unknown,
            keyring: Keyring::default(),
            initiator: None,
            cookie_maker: CookieMaker::default(),
            timestamp_sent: Timestamp::default(),
            timestamp_seen: Timestamp::default(),
            #[cfg(feature = "fleet")]
            has_floor: false,
            #[cfg(feature = "fleet")]
            watched: false,
            initiation_seen: None,
            handshake_sent: None,
            handshake_timer: None,
            urgent: false,
            attempts: 0,
            wipe_at: None,
            new_handshake_jitter: Duration::ZERO,
            armed: None,
        }
    }

    /// The precomputed secret with this peer; `None` if its key is of low order.
    pub(crate) fn static_static(&mut self, identity: &Identity) -> Option<&Secret> {
        if let StaticStatic::Unknown = self.static_static {
            self.static_static = match identity.static_static(&self.public) {
                Some(secret) => StaticStatic::Known(secret),
                None => StaticStatic::LowOrder,
            };
        }
        match &self.static_static {
            StaticStatic::Known(secret) => Some(secret),
            StaticStatic::Unknown | StaticStatic::LowOrder => None,
        }
    }

    /// Whether an initiation was sent or is about to be.
    pub(crate) fn handshaking(&self) -> bool {
        matches!(self.handshake_timer, Some((_, HandshakeAction::SendFirst | HandshakeAction::Retry)))
    }

    /// Makes the running handshake urgent, unless it began too long ago.
    #[cfg(feature = "fleet")]
    pub(crate) fn hurry(&mut self, now: Boottime) {
        match self.handshake_timer {
            Some((_, HandshakeAction::SendFirst)) => self.urgent = true,
            Some((at, HandshakeAction::Retry)) => {
                if let Some(repeat) = self.handshake_sent.and_then(|sent| next_repeat(sent, now)) {
                    self.urgent = true;
                    self.handshake_timer = Some((at.min(repeat), HandshakeAction::Retry));
                }
            }
            Some((_, HandshakeAction::Abandon | HandshakeAction::Confirm)) | None => {}
        }
    }

    /// Whether a packet could be sealed.
    pub(crate) fn may_seal(&self, now: Boottime) -> bool {
        self.keyring.current().is_some_and(|session| session.may_seal(now))
    }

    /// Whether a requested handshake is still needed: the data path may have requested it before it saw the
    /// newest session.
    pub(crate) fn needs_handshake(&self, now: Boottime) -> bool {
        !self.may_seal(now) || self.keyring.current().is_some_and(|session| session.needs_rekey_on_send(now))
    }

    /// What the data path is told of the peer's timers: when they run next, and whether a handshake does. A watched
    /// peer's data path is told that nothing runs, so that it wakes the slow path.
    pub(crate) fn publish_timers(&self, deadline: Option<Boottime>) {
        #[cfg(feature = "fleet")]
        if self.watched {
            return self.traffic.publish(Boottime::NEVER, false);
        }
        self.traffic.publish(deadline.unwrap_or(Boottime::NEVER), self.handshaking());
    }

    /// When a persistent keepalive is due, if it is on.
    pub(crate) fn persistent_due(&self) -> Option<Boottime> {
        let interval = Duration::from_secs(self.persistent_keepalive.into());
        (!interval.is_zero()).then(|| self.traffic.last().after(interval))
    }

    /// When the first of the peer's timers is due.
    pub(crate) fn deadline(&self) -> Option<Boottime> {
        [
            self.handshake_timer.map(|(at, _)| at),
            self.wipe_at,
            self.traffic.keepalive_due(),
            self.traffic.new_handshake_due(self.new_handshake_jitter),
            self.persistent_due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

const _: () = assert!(size_of::<Peer>() + size_of::<Initiator>() + size_of::<TrafficTimestamps>() <= 700);

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::Session;

    #[test]
    fn an_idle_peer_takes_less_than_700_bytes() {
        let sizes = [size_of::<Peer>(), size_of::<Initiator>(), size_of::<TrafficTimestamps>(), size_of::<Session>()];
        std::println!("peer, initiation, timestamps, session: {sizes:?} bytes");
        assert!(sizes[..3].iter().sum::<usize>() < 700);
    }
}
