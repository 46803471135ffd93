//! Tells data messages, handshake messages and anything else apart, by length and type, and drops handshake messages
//! that the handshake filter refuses.

use std::net::SocketAddr;

use linerate_aead::TAG_LEN;
use linerate_protocol::{Boottime, DATA_HEADER, DataHeader, DropReason, MessageKind};

use super::recv_udp::{Datagram, ReceiveBuffer};
use crate::backend::Backend;
use crate::shared::Shared;
use crate::sync::lock;

/// A data message, not yet authenticated.
pub struct DataMessage {
    /// Its receiver index.
    pub receiver: u32,
    /// Its counter.
    pub counter: u64,
    /// The first byte of its ciphertext in the receive buffer.
    pub offset: usize,
    /// Bytes of ciphertext without the tag.
    pub len: usize,
}

/// The data message in a datagram. A handshake message goes to the slow path; anything else is dropped.
pub fn classify<B: Backend>(
    shared: &Shared<B>,
    received: &ReceiveBuffer,
    at: &Datagram,
    now: Boottime,
) -> Option<DataMessage> {
    let datagram = received.bytes(at);
    match linerate_protocol::classify(datagram) {
        Ok(MessageKind::Data) => {
            let header = DataHeader::decode(datagram);
            Some(DataMessage {
                receiver: header.receiver,
                counter: header.counter,
                offset: at.offset + DATA_HEADER,
                len: at.len - DATA_HEADER - TAG_LEN,
            })
        }
        Ok(kind) => {
            let from = received.meta(at.message);
            match shared.handshake_filter.check(now, from.source, kind, datagram) {
                Ok(()) => shared.slow_path_queue.push_handshake(datagram, from.source, from.local, &shared.counters),
                // The answer to another gateway.
                Err(DropReason::UnknownIndex) if super::forward(shared, received, at) => {}
                Err(reason) => refuse(shared, from.source, reason, now),
            }
            None
        }
        Err(reason) => {
            shared.counters.count_protocol_drop(reason);
            None
        }
    }
}

/// Counts a refused handshake message. Most of a flood ends here, so even a debug log names only a few.
fn refuse<B: Backend>(shared: &Shared<B>, source: SocketAddr, reason: DropReason, now: Boottime) {
    shared.counters.count_protocol_drop(reason);
    if tracing::enabled!(tracing::Level::DEBUG) && lock(&shared.filter_log).take(now) {
        tracing::debug!("handshake message from {source} dropped: {}", reason.name());
    }
}
