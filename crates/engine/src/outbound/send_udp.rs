//! Sends a batch: equal-sized neighbours for one peer as one GSO batch, those of all peers in as few system calls as
//! possible ([`super::send_batch`]).

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use linerate_aead::Slot;
use linerate_netio::udp::{BoundSockets, GSO_BATCH_MAX, SEGMENTS_MAX, Socket, Transmit};
use linerate_protocol::Boottime;

use super::batch::{Batch, datagram};
use super::send_batch::{OnFullBuffer, SendBatch, send_single};
use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::shared::Shared;
use crate::tables::Peer;

/// DSCP AF41 of the initiation and the response (kernel: messages.h, HANDSHAKE_DSCP).
const HANDSHAKE_TOS: u8 = 0x88;

/// The queue whose socket sends what was not read from a queue, such as handshake messages.
const NO_QUEUE: usize = 0;

/// Sends every run of the batch that has its counters, by the sockets of the TUN device's queue `queue`. Runs of
/// different peers share system calls.
pub fn send<B: Backend>(shared: &Shared<B>, batch: &Batch, queue: usize, on_full_buffer: OnFullBuffer, now: Boottime) {
    let sockets = shared.sockets.load();
    let mut sends = SendBatch::new(shared, on_full_buffer, now);
    let mut start = 0;
    for run in &batch.runs {
        let slots = start..run.end;
        start = run.end;
        if !run.has_counters {
            continue;
        }
        match SendTarget::new(shared, sockets.as_deref(), queue, &run.peer, now) {
            Ok(target) => push_run(&mut sends, &target, batch, slots),
            Err(reason) => shared.counters.count_drops(reason, slots.len() as u64),
        }
    }
    sends.send();
}

/// Sends one handshake message to a peer.
pub fn message<B: Backend>(shared: &Shared<B>, peer: &Arc<Peer>, message: &[u8], now: Boottime) {
    let sockets = shared.sockets.load();
    match SendTarget::new(shared, sockets.as_deref(), NO_QUEUE, peer, now) {
        Ok(target) => {
            let mut sends = SendBatch::new(shared, OnFullBuffer::WaitOnce, now);
            sends.push(target.socket, peer, target.transmit(message, HANDSHAKE_TOS, None));
            sends.send();
        }
        Err(reason) => shared.counters.count_drop(reason),
    }
}

/// Sends one message to an address that belongs to no peer, from the address that the sender wrote to.
pub fn reply<B: Backend>(shared: &Shared<B>, message: &[u8], to: SocketAddr, from: Option<IpAddr>) {
    let sockets = shared.sockets.load();
    let Some(socket) = sockets.as_deref().and_then(|sockets| sockets.socket_for(to, NO_QUEUE)) else {
        return shared.counters.count_drop(EngineDropReason::NoSocket);
    };
    send_single(shared, socket, &Transmit { to, from, tos: 0, segment: None, contents: message });
}

/// How to reach a peer, as of now.
struct SendTarget<'a, S> {
    socket: &'a S,
    peer: &'a Arc<Peer>,
    to: SocketAddr,
    from: Option<IpAddr>,
    takes_gso: bool,
}

impl<'a, S: Socket> SendTarget<'a, S> {
    fn new<B: Backend<Socket = S>>(
        shared: &Shared<B>,
        sockets: Option<&'a BoundSockets<S>>,
        queue: usize,
        peer: &'a Arc<Peer>,
        now: Boottime,
    ) -> Result<Self, EngineDropReason> {
        let endpoint = peer.endpoint();
        let endpoint = endpoint.as_deref().ok_or(EngineDropReason::NoEndpoint)?;
        let to = endpoint.addr;
        let socket = sockets.and_then(|sockets| sockets.socket_for(to, queue)).ok_or(EngineDropReason::NoSocket)?;
        if endpoint.needs_source_addr_check(shared.routing_epoch()) {
            // The slow path queries the kernel; until it has the answer, datagrams keep their source address and none
            // waits.
            shared.slow_path_queue.request_source_addr_check(peer);
        }
        let takes_gso = socket.offloads().gso && endpoint.takes_gso(now);
        let from = endpoint.source_addr();
        #[cfg(feature = "fleet")]
        let from = from.or_else(|| shared.fleet.source_addr(to.ip()));
        Ok(Self { socket, peer, to, from, takes_gso })
    }

    fn transmit<'b>(&self, contents: &'b [u8], tos: u8, segment: Option<u16>) -> Transmit<'b> {
        Transmit { to: self.to, from: self.from, tos, segment, contents }
    }
}

/// Adds the datagrams of `slots`, as GSO batches if the target takes them.
fn push_run<'a, B: Backend>(
    sends: &mut SendBatch<'a, B>,
    target: &SendTarget<'a, B::Socket>,
    batch: &'a Batch,
    slots: Range<usize>,
) {
    let mut rest = slots;
    while !rest.is_empty() {
        let gso_batch = if target.takes_gso {
            next_gso_batch(&batch.slots, &batch.ecn, rest.clone())
        } else {
            rest.start..rest.start + 1
        };
        rest.start = gso_batch.end;
        let first = datagram(&batch.slots[gso_batch.start]);
        let last = datagram(&batch.slots[gso_batch.end - 1]);
        // A segment size on a single datagram makes some systems answer EIO.
        let segment = (gso_batch.len() > 1).then_some(first.len() as u16);
        let message = target.transmit(&batch.buf[first.start..last.end], batch.ecn[gso_batch.start], segment);
        sends.push(target.socket, target.peer, message);
    }
}

/// The longest GSO batch at the start of `slots`: all of one size except the last, which may be shorter, and all with
/// the same ECN bits.
fn next_gso_batch(slots: &[Slot], ecn: &[u8], range: Range<usize>) -> Range<usize> {
    let first = &slots[range.start];
    let size = datagram(first).len();
    let mut end = range.start + 1;
    while end < range.end && end - range.start < SEGMENTS_MAX {
        let fits = (end - range.start) * size + datagram(&slots[end]).len() <= GSO_BATCH_MAX;
        if slots[end].len > first.len || ecn[end] != ecn[range.start] || !fits {
            break;
        }
        end += 1;
        if slots[end - 1].len < first.len {
            break;
        }
    }
    range.start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gso_batches(lens: &[usize], ecn: &[u8]) -> Vec<Range<usize>> {
        let mut offset = 16;
        let mut slots = Vec::new();
        for &len in lens {
            slots.push(Slot { offset, len, counter: 0 });
            offset += len + 32;
        }
        let mut batches = Vec::new();
        let mut rest = 0..slots.len();
        while !rest.is_empty() {
            let batch = next_gso_batch(&slots, ecn, rest.clone());
            rest.start = batch.end;
            batches.push(batch);
        }
        batches
    }

    #[test]
    fn a_gso_batch_has_one_size_and_a_shorter_datagram_ends_it() {
        assert_eq!(gso_batches(&[96, 96, 32, 96], &[0; 4]), [0..3, 3..4]);
        assert_eq!(gso_batches(&[32, 96, 96], &[0; 3]), [0..1, 1..3]);
    }

    #[test]
    fn a_gso_batch_has_the_same_ecn_bits_throughout() {
        assert_eq!(gso_batches(&[96, 96, 96], &[0, 2, 2]), [0..1, 1..3]);
    }

    #[test]
    fn a_gso_batch_stays_within_the_kernels_limits() {
        assert_eq!(gso_batches(&[64; 70], &[0; 70]), [0..64, 64..70]);
        assert_eq!(gso_batches(&[1420; 47], &[0; 47]), [0..45, 45..47]);
    }
}
