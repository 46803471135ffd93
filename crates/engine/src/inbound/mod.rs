//! From the wire to the TUN device, one file per step: [`recv_udp`], [`classify`], [`open`],
//! [`replay`], [`admit`], [`merge`], [`write_tun`].
//!
//! One worker carries a batch through all of them; nothing is handed over on the way. Handshake
//! messages alone leave the way at [`classify`], for the slow path. Where several workers serve a
//! socket, [`crate::sequencer`] has their batches written in order.

mod admit;
mod classify;
mod merge;
mod open;
mod recv_udp;
mod replay;
mod write_tun;

use std::io;
use std::sync::Arc;

use linerate_aead::TAG_LEN;
use linerate_packet::ip;
use linerate_protocol::{Boottime, DATA_HEADER};

use crate::backend::Backend;
use crate::outbound::Step;
use crate::sequencer::{Sequencer, Ticket};
use crate::shared::Shared;
use crate::tables::Receiver;
use admit::Inner;
use classify::{DataMessage, Datagram};
use merge::Delivery;
use open::OpenBatch;
use recv_udp::ReceiveBuffer;
pub use write_tun::RejectedMerges;

/// One socket's side of the engine.
pub struct Inbound<B: Backend> {
    shared: Arc<Shared<B>>,
    received: ReceiveBuffer,
    run: OpenBatch,
    delivery: Delivery,
    /// The TUN device's queue to deliver by.
    queue: usize,
}

impl<B: Backend> Inbound<B> {
    /// Sets up the memory of the inbound path: all that it will ever use.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self {
            shared,
            received: ReceiveBuffer::default(),
            run: OpenBatch::default(),
            delivery: Delivery::default(),
            queue: 0,
        }
    }

    /// Delivers what lies ready in the socket, at most one receive call's worth, in the order that
    /// the socket's `sequencer` gives, by the TUN device's queue `queue`.
    ///
    /// # Errors
    /// What the socket said, but for "nothing there".
    pub fn step(&mut self, socket: &B::Socket, queue: usize, sequencer: &Sequencer) -> io::Result<Step> {
        let Some(mut read_lock) = sequencer.try_read_lock() else { return Ok(Step::Locked) };
        self.queue = queue;
        let messages = self.received.receive(socket)?;
        if messages == 0 {
            return Ok(Step::Idle);
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
        self.finish_run(&ticket, now);
        self.deliver(&ticket, now);
        Ok(Step::Progress)
    }

    /// Adds a data message to the run of its session, after the run before it has been worked
    /// off if that is another's.
    fn gather(&mut self, datagram: Datagram, data: DataMessage, ticket: &Ticket<'_>, now: Boottime) {
        if !self.run.takes(data.receiver) {
            self.finish_run(ticket, now);
        }
        self.run.push(data, datagram.message);
    }

    /// Opens the gathered run and passes what it held to the delivery.
    fn finish_run(&mut self, ticket: &Ticket<'_>, now: Boottime) {
        let Some(receiver) = self.run.receiver(&self.shared) else { return };
        let buf = self.received.bytes_mut();
        self.run.open(&self.shared, &receiver, buf, now);
        let news = self.run.drop_replayed(&self.shared, &receiver);
        // A packet that was overtaken, on the way or by another worker, says where its sender was, and not
        // where it is.
        if let Some(newest) = self.run.newest_message().filter(|_| news) {
            let from = self.received.meta(newest);
            receiver.peer.heard_from(from.source, from.local, self.shared.routing_epoch());
        }
        if !self.run.is_empty() {
            self.run.stamp(&self.shared, &receiver, now);
            self.admit(&receiver, ticket, now);
        }
        self.run.clear();
    }

    /// Keeps the inner packets that may be delivered, and counts them with the keepalives as
    /// received.
    fn admit(&mut self, receiver: &Receiver, ticket: &Ticket<'_>, now: Boottime) {
        if self.delivery.room() < self.run.len() {
            self.deliver(ticket, now);
        }
        let routes = self.shared.tables.routes();
        let mut bytes = 0;
        for place in 0..self.run.len() {
            let (slot, message) = self.run.packet(place);
            if slot.len == 0 {
                bytes += DATA_HEADER + TAG_LEN;
                continue;
            }
            let congested = self.received.meta(message).tos & ip::CE == ip::CE;
            let plaintext = &mut self.received.bytes_mut()[slot.offset..][..slot.len];
            let inner = Inner { plaintext, congested };
            match admit::admit(&routes, receiver, inner) {
                Ok(len) => {
                    bytes += slot.len + DATA_HEADER + TAG_LEN;
                    self.delivery.push(slot.offset, len);
                }
                Err(reason) => self.shared.counters.discard_protocol(reason),
            }
        }
        receiver.peer.count_rx(bytes);
    }

    /// Writes what was admitted to the TUN device, when its turn has come.
    fn deliver(&mut self, ticket: &Ticket<'_>, now: Boottime) {
        if !self.delivery.is_empty() {
            let buf = self.received.bytes_mut();
            self.delivery.merge(buf, write_tun::takes(&self.shared, now));
            ticket.wait_to_deliver();
            write_tun::write(&self.shared, self.queue, buf, &self.delivery, now);
            self.delivery.clear();
        }
    }
}
