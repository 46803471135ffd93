//! Tells data from handshake messages and from what is neither, by length and type, and drops what the handshake filter refuses.

use std::net::SocketAddr;

use linerate_aead::TAG_LEN;
use linerate_protocol::{Boottime, DATA_HEADER, DataHeader, DropReason, MessageKind};

use super::recv_udp::ReceiveBuffer;
use crate::backend::Backend;
use crate::shared::Shared;

/// Where one datagram lies in the receive buffer.
pub struct Datagram {
    /// The message that brought it.
    pub message: usize,
    /// Its first byte.
    pub offset: usize,
    /// Its length.
    pub len: usize,
}

/// A data message, as yet unauthenticated.
pub struct DataMessage {
    /// The session that it names.
    pub receiver: u32,
    /// Its counter.
    pub counter: u64,
    /// The first byte of its ciphertext in the receive buffer.
    pub offset: usize,
    /// Bytes of ciphertext without the tag.
    pub len: usize,
}

/// The data message in `datagram`. A handshake message goes to the slow path, the rest nowhere.
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
                Err(reason) => refuse(shared, from.source, reason, now),
            }
            None
        }
        Err(reason) => {
            shared.counters.discard_protocol(reason);
            None
        }
    }
}

/// Most of a flood ends here, so that few are named even in a log that is to have everything.
fn refuse<B: Backend>(shared: &Shared<B>, source: SocketAddr, reason: DropReason, now: Boottime) {
    shared.counters.discard_protocol(reason);
    if tracing::enabled!(tracing::Level::DEBUG)
        && shared.refused.lock().expect("no thread panics while it counts").take(now)
    {
        tracing::debug!("handshake message from {source} dropped: {}", reason.name());
    }
}
