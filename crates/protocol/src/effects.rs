//! What the caller of the [`Device`](crate::Device) provides: time, randomness, and the effects that it may cause.

use alloc::sync::Arc;
use core::time::Duration;

use crate::{Entropy, Now, PeerId, Session};

/// The effects of the protocol, which the engine carries out.
pub trait Effects {
    /// Sends an initiation or response to the peer's current endpoint, marked AF41. Without an
    /// endpoint it is dropped.
    fn send(&mut self, peer: PeerId, message: &[u8]);
    /// Sends a cookie reply, unmarked, to the source of the datagram being handled.
    fn reply(&mut self, message: &[u8]);
    /// The datagram being handled is authentic: its source is the peer's endpoint.
    fn roam(&mut self, peer: PeerId);
    /// Packets may be opened with this session from now on.
    fn session_added(&mut self, session: &Arc<Session>);
    /// The session is gone.
    fn session_removed(&mut self, session: &Arc<Session>);
    /// Outbound packets are sealed with this session from now on; `None`: they are staged.
    fn set_sending_session(&mut self, peer: PeerId, session: Option<&Arc<Session>>);
    /// Sends the staged packets, or one empty packet if there are none. The data path reports them
    /// through [`TrafficTimestamps::sent`](crate::TrafficTimestamps::sent), as always.
    fn send_keepalive(&mut self, peer: PeerId);
    /// Sends the staged packets, if there are any. If they cannot be sealed, the data path requests a
    /// handshake, as always.
    fn send_staged(&mut self, peer: PeerId);
    /// Drops the staged packets: the peer does not answer, or the device goes down.
    fn drop_staged(&mut self, peer: PeerId);
    /// The peer does not answer. Clears the cached source address, which may be the reason.
    fn forget_source_addr(&mut self, peer: PeerId);
    /// A handshake completed, at this time of the wall clock.
    fn handshake_done(&mut self, peer: PeerId, wall: Duration);
    /// The greatest timestamp sent to a peer of a fleet, or accepted from it, has changed: those of both.
    #[cfg(feature = "fleet")]
    fn timestamps_changed(&mut self, peer: PeerId, sent: [u8; 12], accepted: [u8; 12]) {
        let _ = (peer, sent, accepted);
    }
    /// Whether the peer has an endpoint. Without one no handshake starts.
    fn has_endpoint(&self, peer: PeerId) -> bool;
}

/// The arguments of one call.
pub(crate) struct CallContext<'a> {
    pub(crate) now: Now,
    pub(crate) rng: &'a mut dyn Entropy,
    pub(crate) effects: &'a mut dyn Effects,
}
