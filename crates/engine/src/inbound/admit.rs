//! Lets an inner packet pass if it is IP, if its length is true, and if it comes from an address
//! that its peer may use.

use linerate_packet::Malformed;
use linerate_packet::ip;
use linerate_protocol::Discard;

use crate::backend::Backend;
use crate::shared::Shared;
use crate::tables::Receiver;

/// What an authentic data message carried.
pub struct Inner<'a> {
    /// The inner packet and its padding.
    pub plaintext: &'a mut [u8],
    /// Whether the outer header said that a queue on the way was congested.
    pub congested: bool,
}

/// The length of the packet without its padding, or why it may not pass. Marks the packet when
/// its datagram was marked (RFC 6040; kernel: receive.c, INET_ECN_decapsulate).
pub fn admit<B: Backend>(shared: &Shared<B>, receiver: &Receiver, inner: Inner<'_>) -> Result<usize, Discard> {
    let packet = ip::parse(inner.plaintext).map_err(|malformed| match malformed {
        Malformed::Version => Discard::InnerVersion,
        _ => Discard::InnerLength,
    })?;
    if shared.tables.routes().allowed.lookup(packet.source) != Some(receiver.peer.id) {
        return Err(Discard::SourceNotAllowed);
    }
    if inner.congested {
        ip::set_ce(inner.plaintext);
    }
    Ok(packet.total_len)
}
