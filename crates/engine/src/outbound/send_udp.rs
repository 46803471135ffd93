//! Sends a batch: equal-sized neighbours for one peer as one train, the trains of all peers in as
//! few system calls as they fit, and what the system refuses as a train one by one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linerate_aead::Slot;
use linerate_netio::udp::{GSO_BATCH_MAX, SEGMENTS_MAX, SendError, Socket, Transmit, send_error};
use linerate_protocol::Boottime;

use super::batch::{Batch, datagram};
use crate::backend::{Backend, Sockets};
use crate::counters::EngineDiscard;
use crate::shared::Shared;
use crate::tables::{Endpoint, Peer};

/// DSCP AF41 of the initiation and the response (kernel: messages.h, HANDSHAKE_DSCP).
const HANDSHAKE_TOS: u8 = 0x88;

/// The most messages in one system call.
const MESSAGES_MAX: usize = 32;

/// Where what is no queue's leaves, such as handshake messages: as what is read from the first queue.
const NO_QUEUE: usize = 0;

/// Whether to wait, shortly, for room in a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnBusy {
    /// Who carries packets waits for nothing: what finds no room is dropped, as by any full queue.
    Drop,
    /// Once, as the slow path does: what it sends is little, and starts what others wait for.
    WaitOnce,
}

/// Sends every run of the batch that has its numbers, by the sockets of the TUN device's queue `queue`;
/// runs of different peers share system calls.
pub fn send<B: Backend>(shared: &Shared<B>, batch: &Batch, queue: usize, on_busy: OnBusy, now: Boottime) {
    let sockets = shared.sockets.load();
    let mut call = SendBatch::new(shared, on_busy, now);
    let mut start = 0;
    for run in &batch.runs {
        let slots = start..run.end;
        start = run.end;
        if !run.numbered {
            continue;
        }
        match SendTarget::new(shared, sockets.as_deref(), queue, &run.peer, now) {
            Ok(target) => push_run(&mut call, &target, batch, slots),
            Err(reason) => shared.counters.discard_many(reason, slots.len() as u64),
        }
    }
    call.send();
}

/// Sends one handshake message to a peer.
pub fn message<B: Backend>(shared: &Shared<B>, peer: &Arc<Peer>, message: &[u8], now: Boottime) {
    let sockets = shared.sockets.load();
    match SendTarget::new(shared, sockets.as_deref(), NO_QUEUE, peer, now) {
        Ok(target) => {
            let mut call = SendBatch::new(shared, OnBusy::WaitOnce, now);
            call.push(target.socket, peer, target.transmit(message, HANDSHAKE_TOS, None));
            call.send();
        }
        Err(reason) => shared.counters.discard(reason),
    }
}

/// Sends one message to an address that is no peer's, from the address that it wrote to.
pub fn reply<B: Backend>(shared: &Shared<B>, message: &[u8], to: SocketAddr, from: Option<IpAddr>) {
    let sockets = shared.sockets.load();
    let Some(socket) = sockets.as_deref().and_then(|sockets| sockets.towards(to, NO_QUEUE)) else {
        return shared.counters.discard(EngineDiscard::NoSocket);
    };
    let transmit = Transmit { to, from, tos: 0, segment: None, contents: message };
    if let Err((error, meaning)) = attempt(socket, &[transmit]) {
        count_failure(shared, &error, meaning, &transmit);
    }
}

/// One peer's target out, as it is when the peer's run has its turn.
struct SendTarget<'a, S> {
    socket: &'a S,
    peer: &'a Peer,
    to: SocketAddr,
    from: Option<IpAddr>,
    takes_segments: bool,
}

impl<'a, S: Socket> SendTarget<'a, S> {
    fn new<B: Backend<Socket = S>>(
        shared: &Shared<B>,
        sockets: Option<&'a Sockets<S>>,
        queue: usize,
        peer: &'a Arc<Peer>,
        now: Boottime,
    ) -> Result<Self, EngineDiscard> {
        let endpoint = peer.endpoint();
        let endpoint = endpoint.as_deref().ok_or(EngineDiscard::NoEndpoint)?;
        let to = endpoint.addr;
        let socket = sockets.and_then(|sockets| sockets.towards(to, queue)).ok_or(EngineDiscard::NoSocket)?;
        if endpoint.needs_source_check(shared.routing_epoch()) {
            // To find out takes a question to the kernel, which no packet waits for: the slow path
            // asks, and until it has, datagrams leave as they did before the change.
            shared.slow_path_queue.request_source_check(peer);
        }
        let takes_segments = socket.offloads().gso && endpoint.takes_segments(now);
        Ok(Self { socket, peer, to, from: endpoint.source(), takes_segments })
    }

    fn transmit<'b>(&self, contents: &'b [u8], tos: u8, segment: Option<u16>) -> Transmit<'b> {
        Transmit { to: self.to, from: self.from, tos, segment, contents }
    }
}

/// Adds the datagrams of `slots` to the call: as trains, if the target takes them.
fn push_run<'a, B: Backend>(
    call: &mut SendBatch<'a, B>,
    target: &SendTarget<'a, B::Socket>,
    batch: &'a Batch,
    slots: Range<usize>,
) {
    let mut rest = slots;
    while !rest.is_empty() {
        let train = if target.takes_segments {
            next_gso_batch(&batch.slots, &batch.ecn, rest.clone())
        } else {
            rest.start..rest.start + 1
        };
        rest.start = train.end;
        let first = datagram(&batch.slots[train.start]);
        let last = datagram(&batch.slots[train.end - 1]);
        // A segment size on a single datagram makes some systems answer EIO.
        let segment = (train.len() > 1).then_some(first.len() as u16);
        let message = target.transmit(&batch.buf[first.start..last.end], batch.ecn[train.start], segment);
        call.push(target.socket, target.peer, message);
    }
}

/// The messages of one system call, all by one socket, each with the peer that it goes to.
struct SendBatch<'a, B: Backend> {
    shared: &'a Shared<B>,
    now: Boottime,
    socket: Option<&'a B::Socket>,
    on_busy: OnBusy,
    messages: [Transmit<'a>; MESSAGES_MAX],
    peers: [Option<&'a Peer>; MESSAGES_MAX],
    len: usize,
}

impl<'a, B: Backend> SendBatch<'a, B> {
    fn new(shared: &'a Shared<B>, on_busy: OnBusy, now: Boottime) -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let empty = Transmit { to: nowhere, from: None, tos: 0, segment: None, contents: &[] };
        Self {
            shared,
            now,
            socket: None,
            on_busy,
            messages: [empty; MESSAGES_MAX],
            peers: [None; MESSAGES_MAX],
            len: 0,
        }
    }

    /// Adds a message. Sends those before it first if they fill a call, or go by another socket.
    fn push(&mut self, socket: &'a B::Socket, peer: &'a Peer, message: Transmit<'a>) {
        if self.len == MESSAGES_MAX || self.socket.is_some_and(|other| !std::ptr::eq(other, socket)) {
            self.send();
        }
        self.socket = Some(socket);
        self.messages[self.len] = message;
        self.peers[self.len] = Some(peer);
        self.len += 1;
    }

    /// Sends what was added; what cannot go as a train goes as datagrams.
    fn send(&mut self) {
        let Some(socket) = self.socket else { return };
        let mut done = 0;
        while done < self.len {
            let Err((error, meaning)) = self.send_some(socket, &mut done) else { continue };
            let (message, peer) = (&self.messages[done], self.peers[done]);
            done += 1;
            match (meaning, peer) {
                (SendError::SegmentationRefused, Some(peer)) => {
                    self.refuse_segments(peer, message, &error);
                    self.send_whole(socket, peer, message);
                }
                _ => count_failure(self.shared, &error, meaning, message),
            }
        }
        self.len = 0;
    }

    /// Makes one call, adds to `done` how many messages went and counts their bytes; an error is
    /// the first message's, with its meaning, after what a second try can cure has been tried.
    fn send_some(&mut self, socket: &B::Socket, done: &mut usize) -> Result<(), (io::Error, SendError)> {
        let messages = &self.messages[*done..self.len];
        let peers = &self.peers[*done..self.len];
        let first = &messages[0];
        let sent = attempt(socket, messages).or_else(|(error, meaning)| match meaning {
            // What an earlier datagram met was reported to this one, which was not tried.
            SendError::Unreachable => attempt(socket, &messages[..1]),
            SendError::Busy if self.on_busy == OnBusy::WaitOnce => {
                self.on_busy = OnBusy::Drop;
                socket.wait_for_room();
                attempt(socket, messages)
            }
            SendError::SourceGone => {
                let sent = attempt(socket, &[Transmit { from: None, ..*first }]);
                // Where the segments are at fault, the source is not.
                if !matches!(sent, Err((_, SendError::SegmentationRefused))) {
                    peers[0].into_iter().for_each(|peer| with_endpoint(peer, first, Endpoint::forget_source));
                }
                sent
            }
            _ => Err((error, meaning)),
        })?;
        let sent = sent.max(1);
        for (message, peer) in messages.iter().zip(peers.iter().flatten()).take(sent) {
            peer.count_tx(message.contents.len());
        }
        *done += sent;
        Ok(())
    }

    fn refuse_segments(&self, peer: &Peer, train: &Transmit<'_>, error: &io::Error) {
        with_endpoint(peer, train, |endpoint| endpoint.refuse_segments(self.now));
        if self.shared.counters.segmentation_refused.fetch_add(1, Ordering::Relaxed) == 0 {
            let to = train.to;
            tracing::info!("{to} does not take segmented sends ({error}); sending datagrams one by one");
        }
    }

    /// Sends the datagrams of a train one by one, a few in each system call.
    fn send_whole(&self, socket: &'a B::Socket, peer: &'a Peer, train: &Transmit<'a>) {
        let mut call = SendBatch::new(self.shared, self.on_busy, self.now);
        let size = train.segment.map_or(train.contents.len(), usize::from);
        for contents in train.contents.chunks(size) {
            call.push(socket, peer, Transmit { segment: None, contents, ..*train });
        }
        call.send();
    }
}

/// Does something to the peer's endpoint, unless the peer is elsewhere since the message was made.
fn with_endpoint(peer: &Peer, message: &Transmit<'_>, act: impl FnOnce(&Endpoint)) {
    let endpoint = peer.endpoint();
    if let Some(endpoint) = endpoint.as_deref().filter(|endpoint| endpoint.addr == message.to) {
        act(endpoint);
    }
}

/// Sends messages; an error is that of the first, with its meaning.
fn attempt<S: Socket>(socket: &S, messages: &[Transmit<'_>]) -> Result<usize, (io::Error, SendError)> {
    socket.send(messages).map_err(|error| {
        let meaning = meaning(&error, &messages[0]);
        (error, meaning)
    })
}

fn meaning(error: &io::Error, message: &Transmit<'_>) -> SendError {
    send_error(error, message.segment.is_some(), message.from.is_some())
}

/// The longest train at the start of `slots`: all of one size but the last, which may be
/// shorter, and all with the same ECN bits.
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

fn count_failure<B: Backend>(shared: &Shared<B>, error: &io::Error, meaning: SendError, message: &Transmit<'_>) {
    let datagrams = message.segment.map_or(1, |size| message.contents.len().div_ceil(size.into()));
    let reason = match meaning {
        SendError::Busy => EngineDiscard::SendBusy,
        SendError::Denied => EngineDiscard::SendDenied,
        SendError::Unreachable => EngineDiscard::SendUnreachable,
        SendError::TooBig => EngineDiscard::SendTooBig,
        _ => EngineDiscard::SendFailed,
    };
    shared.counters.discard_many(reason, datagrams as u64);
    tracing::debug!("{datagrams} datagrams to {} not sent: {error}", message.to);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trains(lens: &[usize], ecn: &[u8]) -> Vec<Range<usize>> {
        let mut offset = 16;
        let mut slots = Vec::new();
        for &len in lens {
            slots.push(Slot { offset, len, counter: 0 });
            offset += len + 32;
        }
        let mut trains = Vec::new();
        let mut rest = 0..slots.len();
        while !rest.is_empty() {
            let train = next_gso_batch(&slots, ecn, rest.clone());
            rest.start = train.end;
            trains.push(train);
        }
        trains
    }

    #[test]
    fn a_train_is_of_one_size_and_a_shorter_datagram_ends_it() {
        assert_eq!(trains(&[96, 96, 32, 96], &[0; 4]), [0..3, 3..4]);
        assert_eq!(trains(&[32, 96, 96], &[0; 3]), [0..1, 1..3]);
    }

    #[test]
    fn a_train_has_one_kind_of_ecn_bits() {
        assert_eq!(trains(&[96, 96, 96], &[0, 2, 2]), [0..1, 1..3]);
    }

    #[test]
    fn a_train_keeps_within_the_systems_limits() {
        assert_eq!(trains(&[64; 70], &[0; 70]), [0..64, 64..70]);
        assert_eq!(trains(&[1420; 47], &[0; 47]), [0..45, 45..47]);
    }
}
