//! Lets an inner packet pass if it is IP, if its length is true, and if it comes from an address
//! that its peer may use.

use linerate_packet::Malformed;
use std::sync::Arc;

use linerate_packet::ip;
use linerate_protocol::DropReason;

use crate::tables::{Receiver, Routes};

/// What an authentic data message carried.
pub struct Inner<'a> {
    /// The inner packet and its padding.
    pub plaintext: &'a mut [u8],
    /// Whether the outer header said that a queue on the way was congested.
    pub congested: bool,
}

/// The length of the packet without its padding, or why it may not pass. Marks the packet when
/// its datagram was marked (RFC 6040; kernel: receive.c, INET_ECN_decapsulate).
pub fn admit(routes: &Routes, receiver: &Receiver, inner: Inner<'_>) -> Result<usize, DropReason> {
    let packet = ip::parse(inner.plaintext).map_err(|malformed| match malformed {
        Malformed::Version => DropReason::InnerVersion,
        _ => DropReason::InnerLength,
    })?;
    // The peer itself and not its index, which another may have been given meanwhile.
    if !routes.peer_for(packet.source).is_some_and(|owner| Arc::ptr_eq(owner, &receiver.peer)) {
        return Err(DropReason::SourceNotAllowed);
    }
    if inner.congested {
        ip::set_ce(inner.plaintext);
    }
    Ok(packet.total_len)
}
