//! Cryptokey routing of inner packets (paper section 2): accepts one if it is IP, its length is right, and its source
//! address is an allowed IP of its peer.

use std::sync::Arc;

use linerate_packet::{Malformed, ip};
use linerate_protocol::DropReason;

use crate::tables::{Receiver, Routes};

/// The content of an authentic data message.
pub struct Inner<'a> {
    /// The inner packet and its padding.
    pub plaintext: &'a mut [u8],
    /// Whether the outer header was marked as having met congestion.
    pub congested: bool,
}

/// The length of the packet without its padding, or why it is dropped. Marks the packet if its datagram was marked
/// (RFC 6040; kernel: receive.c, INET_ECN_decapsulate).
pub fn check_source_ip(routes: &Routes, receiver: &Receiver, inner: Inner<'_>) -> Result<usize, DropReason> {
    let packet = ip::parse(inner.plaintext).map_err(|malformed| match malformed {
        Malformed::Version => DropReason::InnerVersion,
        _ => DropReason::InnerLength,
    })?;
    // Compares the peer itself: its index may have been given to another peer meanwhile.
    if !routes.peer_for(packet.source).is_some_and(|owner| Arc::ptr_eq(owner, &receiver.peer)) {
        return Err(DropReason::SourceNotAllowed);
    }
    if inner.congested {
        ip::set_ce(inner.plaintext);
    }
    Ok(packet.total_len)
}
