//! Sends a batch: equal-sized neighbours for one peer as one train, and what the system refuses
//! as a train one by one.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linerate_aead::Slot;
use linerate_netio::udp::{SEGMENTS_MAX, SendError, Socket, TRAIN_MAX, Transmit, send_error};
use linerate_protocol::{Boottime, Wake};

use super::batch::{Batch, datagram};
use crate::backend::{Backend, Sockets};
use crate::counters::Discard;
use crate::shared::Shared;
use crate::tables::{Endpoint, Peer};

/// DSCP AF41 of the initiation and the response (kernel: messages.h, HANDSHAKE_DSCP).
const HANDSHAKE_TOS: u8 = 0x88;

/// The most messages in one system call.
const CALL_MAX: usize = 32;

/// Where what is no queue's leaves, such as handshake messages: as what is read from the first queue.
const NO_QUEUE: usize = 0;

/// Sends every run of the batch that has its numbers, by the sockets of the TUN device's queue `queue`.
pub fn send<B: Backend>(shared: &Shared<B>, batch: &Batch, queue: usize, now: Boottime) {
    let sockets = shared.sockets.load();
    let full = Cell::new(false);
    let mut start = 0;
    for run in &batch.runs {
        let slots = start..run.end;
        start = run.end;
        if !run.numbered {
            continue;
        }
        let endpoint = run.peer.endpoint();
        match Door::new(shared, sockets.as_deref(), queue, &run.peer, endpoint.as_deref(), &full, now) {
            Ok(door) => door.send_run(batch, slots),
            Err(reason) => shared.counters.discard_many(reason, slots.len() as u64),
        }
    }
}

/// Sends one handshake message to a peer.
pub fn message<B: Backend>(shared: &Shared<B>, peer: &Arc<Peer>, message: &[u8], now: Boottime) {
    let sockets = shared.sockets.load();
    let endpoint = peer.endpoint();
    match Door::new(shared, sockets.as_deref(), NO_QUEUE, peer, endpoint.as_deref(), &Cell::new(false), now) {
        Ok(door) => door.send_calls(std::iter::once(door.transmit(message, HANDSHAKE_TOS, None))),
        Err(reason) => shared.counters.discard(reason),
    }
}

/// Sends one message to an address that is no peer's, from the address that it wrote to.
pub fn reply<B: Backend>(shared: &Shared<B>, message: &[u8], to: SocketAddr, from: Option<IpAddr>) {
    let sockets = shared.sockets.load();
    let Some(socket) = sockets.as_deref().and_then(|sockets| sockets.towards(to, NO_QUEUE)) else {
        return shared.counters.discard(Discard::NoSocket);
    };
    let transmit = Transmit { to, from, tos: 0, segment: None, contents: message };
    if let Err(error) = socket.send(&[transmit]) {
        count_failure(shared, &error, &transmit, 1);
    }
}

/// One peer's way out.
struct Door<'a, B: Backend> {
    shared: &'a Shared<B>,
    socket: &'a B::Socket,
    peer: &'a Peer,
    endpoint: &'a Endpoint,
    /// Whether this batch has waited for room in vain.
    full: &'a Cell<bool>,
    now: Boottime,
}

impl<'a, B: Backend> Door<'a, B> {
    fn new(
        shared: &'a Shared<B>,
        sockets: Option<&'a Sockets<B::Socket>>,
        queue: usize,
        peer: &'a Arc<Peer>,
        endpoint: Option<&'a Endpoint>,
        full: &'a Cell<bool>,
        now: Boottime,
    ) -> Result<Self, Discard> {
        let endpoint = endpoint.ok_or(Discard::NoEndpoint)?;
        let socket = sockets.and_then(|sockets| sockets.towards(endpoint.addr, queue)).ok_or(Discard::NoSocket)?;
        if endpoint.is_source_in_doubt(shared.routing_epoch()) {
            // To find out takes a question to the kernel, which no packet waits for: the slow path
            // asks, and until it has, datagrams leave as they did before the change.
            shared.wake(peer, Wake::SlowPath);
        }
        Ok(Self { shared, socket, peer, endpoint, full, now })
    }

    fn send_run(&self, batch: &Batch, slots: Range<usize>) {
        if !self.socket.offloads().gso || !self.endpoint.takes_segments(self.now) {
            return self.send_whole(batch, slots);
        }
        let mut call = Call::default();
        let mut rest = slots;
        while !rest.is_empty() {
            let train = next_train(&batch.slots, &batch.ecn, rest.clone());
            rest.start = train.end;
            call.push(self.train(batch, &train), train);
            if call.is_full() || rest.is_empty() {
                self.send_call(batch, &call);
                call.len = 0;
            }
        }
    }

    /// Sends the datagrams of `slots` one by one.
    fn send_whole(&self, batch: &Batch, slots: Range<usize>) {
        self.send_calls(slots.map(|i| self.train(batch, &(i..i + 1))));
    }

    /// The message that carries the datagrams of `slots`, which are a train.
    fn train<'b>(&self, batch: &'b Batch, slots: &Range<usize>) -> Transmit<'b> {
        let first = datagram(&batch.slots[slots.start]);
        let last = datagram(&batch.slots[slots.end - 1]);
        // A segment size on a single datagram makes some systems answer EIO.
        let segment = (slots.len() > 1).then_some(first.len() as u16);
        self.transmit(&batch.buf[first.start..last.end], batch.ecn[slots.start], segment)
    }

    fn transmit<'b>(&self, contents: &'b [u8], tos: u8, segment: Option<u16>) -> Transmit<'b> {
        Transmit { to: self.endpoint.addr, from: self.endpoint.source(), tos, segment, contents }
    }

    /// Sends a call's messages; what cannot go as a train goes as datagrams.
    fn send_call<'b>(&self, batch: &'b Batch, call: &Call<'b>) {
        let mut done = 0;
        while done < call.len {
            let Err(error) = self.send_some(&call.messages[done..call.len], &mut done) else { continue };
            let (message, train) = (&call.messages[done], call.trains[done].clone());
            done += 1;
            match send_error(&error, message.segment.is_some(), message.from.is_some()) {
                SendError::SegmentationRefused => {
                    self.refuse_segments(&error);
                    self.send_whole(batch, train);
                }
                _ => count_failure(self.shared, &error, message, train.len() as u64),
            }
        }
    }

    /// Sends single datagrams, a few in each call.
    fn send_calls<'b>(&self, mut messages: impl Iterator<Item = Transmit<'b>>) {
        let mut call = Call::default();
        loop {
            call.len = 0;
            while !call.is_full() {
                let Some(message) = messages.next() else { break };
                call.push(message, 0..1);
            }
            if call.len == 0 {
                return;
            }
            let mut done = 0;
            while done < call.len {
                if let Err(error) = self.send_some(&call.messages[done..call.len], &mut done) {
                    count_failure(self.shared, &error, &call.messages[done], 1);
                    done += 1;
                }
            }
        }
    }

    /// Makes one call, adds to `done` how many messages went and counts their bytes; an error is
    /// the first message's, after what a second try can cure has been tried.
    fn send_some(&self, messages: &[Transmit<'_>], done: &mut usize) -> io::Result<()> {
        let first = &messages[0];
        let sent = self.socket.send(messages).or_else(|error| {
            match send_error(&error, first.segment.is_some(), first.from.is_some()) {
                // What an earlier datagram met was reported to this one, which was not tried.
                SendError::Unreachable => self.socket.send(&messages[..1]),
                // Once a batch: who waits here serves nobody else meanwhile.
                SendError::Busy if !self.full.get() => {
                    self.socket.wait_for_room();
                    let sent = self.socket.send(messages);
                    self.full.set(sent.is_err());
                    sent
                }
                SendError::SourceGone => {
                    self.endpoint.forget_source();
                    self.socket.send(&[Transmit { from: None, ..*first }])
                }
                _ => Err(error),
            }
        })?;
        let sent = sent.max(1);
        self.peer.count_tx(messages[..sent].iter().map(|message| message.contents.len()).sum());
        *done += sent;
        Ok(())
    }

    fn refuse_segments(&self, error: &io::Error) {
        self.endpoint.refuse_segments(self.now);
        if self.shared.counters.segmentation_refused.fetch_add(1, Ordering::Relaxed) == 0 {
            let to = self.endpoint.addr;
            tracing::info!("{to} does not take segmented sends ({error}); sending datagrams one by one");
        }
    }
}

/// The messages of one system call, each with the slots that it carries.
struct Call<'a> {
    messages: [Transmit<'a>; CALL_MAX],
    trains: [Range<usize>; CALL_MAX],
    len: usize,
}

impl Default for Call<'_> {
    fn default() -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
        Self {
            messages: [Transmit { to: nowhere, from: None, tos: 0, segment: None, contents: &[] }; CALL_MAX],
            trains: [const { 0..0 }; CALL_MAX],
            len: 0,
        }
    }
}

impl<'a> Call<'a> {
    fn push(&mut self, message: Transmit<'a>, train: Range<usize>) {
        self.messages[self.len] = message;
        self.trains[self.len] = train;
        self.len += 1;
    }

    fn is_full(&self) -> bool {
        self.len == CALL_MAX
    }
}

/// The longest train at the start of `slots`: all of one size but the last, which may be
/// shorter, and all with the same ECN bits.
fn next_train(slots: &[Slot], ecn: &[u8], range: Range<usize>) -> Range<usize> {
    let first = &slots[range.start];
    let size = datagram(first).len();
    let mut end = range.start + 1;
    while end < range.end && end - range.start < SEGMENTS_MAX {
        let fits = (end - range.start) * size + datagram(&slots[end]).len() <= TRAIN_MAX;
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

fn count_failure<B: Backend>(shared: &Shared<B>, error: &io::Error, message: &Transmit<'_>, datagrams: u64) {
    let reason = match send_error(error, message.segment.is_some(), message.from.is_some()) {
        SendError::Busy => Discard::SendBusy,
        SendError::Denied => Discard::SendDenied,
        SendError::Unreachable => Discard::SendUnreachable,
        SendError::TooBig => Discard::SendTooBig,
        _ => Discard::SendFailed,
    };
    shared.counters.discard_many(reason, datagrams);
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
            let train = next_train(&slots, ecn, rest.clone());
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
