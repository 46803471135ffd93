//! From the wire to the TUN device, one file per step: [`recv_udp`], [`classify`], [`open`],
//! [`replay`], [`check_source_ip`], [`merge`], [`write_tun`].
//!
//! One worker carries a batch through all of them, without a handover; only handshake messages go from [`classify`]
//! to the slow path. Where several workers serve a socket, [`crate::sequencer`] keeps their batches in order.

mod check_source_ip;
mod classify;
mod merge;
mod open;
mod recv_udp;
mod replay;
mod write_tun;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linerate_aead::TAG_LEN;
use linerate_packet::ip;
use linerate_protocol::{Boottime, DATA_HEADER, DropReason};

use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::policer::Verdict;
use crate::rx_queue::PollOutcome;
use crate::sequencer::{Sequencer, Ticket};
use crate::shared::Shared;
use crate::tables::Receiver;
use check_source_ip::Inner;
use classify::DataMessage;
use merge::Delivery;
use open::OpenBatch;
use recv_udp::{Datagram, ReceiveBuffer};

/// A worker's memory for the inbound path.
pub struct Inbound<B: Backend> {
    shared: Arc<Shared<B>>,
    received: ReceiveBuffer,
    batch: OpenBatch,
    delivery: Delivery,
    /// The TUN device's queue to write to.
    queue: usize,
}

impl<B: Backend> Inbound<B> {
    /// Allocates all memory that the inbound path will ever use.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self {
            shared,
            received: ReceiveBuffer::default(),
            batch: OpenBatch::default(),
            delivery: Delivery::default(),
            queue: 0,
        }
    }

    /// Delivers the packets of one receive call on the socket, to the TUN device's queue `queue`, in the order that the
    /// socket's `sequencer` gives.
    ///
    /// # Errors
    /// The socket's, except `WouldBlock`.
    pub fn poll(&mut self, socket: &B::Socket, queue: usize, sequencer: &Sequencer) -> io::Result<PollOutcome> {
        let Some(mut read_lock) = sequencer.try_read_lock() else { return Ok(PollOutcome::Locked) };
        self.queue = queue;
        let (messages, outcome) = self.received.receive(socket)?;
        if messages == 0 {
            return Ok(PollOutcome::Idle);
        }
        let ticket = read_lock.ticket();
        drop(read_lock);
        let now = self.shared.backend.boottime();
        for message in 0..messages {
            for datagram in self.received.datagrams(message) {
                match classify::classify(&self.shared, &self.received, &datagram, now) {
                    Some(data) => self.gather(datagram, data, &ticket, now),
                    None => continue,
                }
            }
        }
        self.finish_batch(&ticket, now);
        self.deliver(&ticket, now);
        Ok(outcome)
    }

    /// Adds a data message to the batch of its session; finishes the batch before it if that is of another session.
    fn gather(&mut self, datagram: Datagram, data: DataMessage, ticket: &Ticket<'_>, now: Boottime) {
        if !self.batch.takes(data.receiver) {
            self.finish_batch(ticket, now);
        }
        self.batch.push(data, datagram.message);
    }

    /// Opens the gathered batch and passes its packets to the delivery.
    fn finish_batch(&mut self, ticket: &Ticket<'_>, now: Boottime) {
        let Some(receiver) = self.batch.receiver(&self.shared) else { return self.drop_unknown() };
        let buf = self.received.bytes_mut();
        self.batch.open(&self.shared, &receiver, buf, now);
        let is_newest = self.batch.drop_replayed(&self.shared, &receiver);
        // Roam only on the newest counter: an older packet may carry the peer's former address.
        if let Some(newest) = self.batch.newest_message().filter(|_| is_newest) {
            let from = self.received.meta(newest);
            let has_moved = receiver.peer.set_roaming_endpoint(from.source, from.local, self.shared.routing_epoch());
            self.report_move(&receiver, has_moved);
        }
        if !self.batch.is_empty() {
            self.batch.record_traffic(&self.shared, &receiver, now);
            self.check_source_ips(&receiver, ticket, now);
        }
        self.batch.clear();
    }

    /// Drops the gathered batch, whose receiver index is unknown, unless it is another gateway's.
    fn drop_unknown(&mut self) {
        for index in 0..self.batch.len() {
            let (slot, message) = self.batch.packet(index);
            let datagram =
                Datagram { message, offset: slot.offset - DATA_HEADER, len: DATA_HEADER + slot.len + TAG_LEN };
            if !forward(&self.shared, &self.received, &datagram) {
                self.shared.counters.count_protocol_drop(DropReason::UnknownIndex);
            }
        }
        self.batch.clear();
    }

    /// Tells the fleet of a peer that is at another address.
    #[cfg(feature = "fleet")]
    fn report_move(&self, receiver: &Receiver, has_moved: bool) {
        if has_moved {
            self.shared.fleet.peer_changed(&receiver.peer);
        }
    }

    #[cfg(not(feature = "fleet"))]
    fn report_move(&self, _: &Receiver, _: bool) {}

    /// Adds the inner packets that may be delivered to the delivery; counts their bytes, and the keepalives', as
    /// received.
    fn check_source_ips(&mut self, receiver: &Receiver, ticket: &Ticket<'_>, now: Boottime) {
        if self.delivery.room() < self.batch.len() {
            self.deliver(ticket, now);
        }
        let routes = self.shared.tables.routes();
        let mut bytes = 0;
        for index in 0..self.batch.len() {
            let (slot, message) = self.batch.packet(index);
            if slot.len == 0 {
                bytes += DATA_HEADER + TAG_LEN;
                continue;
            }
            let congested = self.received.meta(message).tos & ip::CE == ip::CE;
            let plaintext = &mut self.received.bytes_mut()[slot.offset..][..slot.len];
            let inner = Inner { plaintext, congested };
            let len = match check_source_ip::check_source_ip(&routes, receiver, inner) {
                Ok(len) => len,
                Err(reason) => {
                    self.shared.counters.count_protocol_drop(reason);
                    continue;
                }
            };
            match receiver.peer.rx_policer.admit(len, ip::ecn(plaintext), now) {
                Verdict::Pass => {}
                Verdict::Mark => {
                    ip::set_ce(plaintext);
                    self.shared.counters.rate_marked.fetch_add(1, Ordering::Relaxed);
                }
                Verdict::Drop => {
                    self.shared.counters.count_drop(EngineDropReason::OverRate);
                    continue;
                }
            }
            bytes += slot.len + DATA_HEADER + TAG_LEN;
            self.delivery.push(slot.offset, len);
        }
        self.shared.count_rx(&receiver.peer, bytes);
    }

    /// Writes the delivery to the TUN device once the earlier tickets are delivered.
    fn deliver(&mut self, ticket: &Ticket<'_>, now: Boottime) {
        if !self.delivery.is_empty() {
            let buf = self.received.bytes_mut();
            self.delivery.merge(buf, write_tun::caps(&self.shared, now));
            ticket.wait_for_delivery_phase();
            write_tun::write(&self.shared, self.queue, buf, &self.delivery, now);
            self.delivery.clear();
        }
    }
}

/// Forwards a datagram whose receiver index is unknown to the gateway of the fleet that it names; false if it names none.
#[cfg(feature = "fleet")]
fn forward<B: Backend>(shared: &Shared<B>, received: &ReceiveBuffer, datagram: &Datagram) -> bool {
    let bytes = received.bytes(datagram);
    let index = linerate_protocol::receiver_index(bytes);
    index.is_some_and(|index| crate::fleet::forward(shared, index, received.meta(datagram.message).source, bytes))
}

#[cfg(not(feature = "fleet"))]
fn forward<B: Backend>(_: &Shared<B>, _: &ReceiveBuffer, _: &Datagram) -> bool {
    false
}
