//! From the TUN device to the wire, one file per step: [`read_tun`], [`route`], [`split`], [`seal`], [`send_udp`].
//! [`sender`] takes a packet through the last three; [`batch`] is what it fills and empties.
//!
//! One worker carries a packet through all of them. It gathers what is ready in the device into one batch without
//! waiting for more, so a single packet leaves at once and many leave together. Where several workers serve a queue,
//! [`crate::sequencer`] keeps their batches in order.

mod batch;
mod read_tun;
mod route;
mod seal;
mod send_batch;
mod send_udp;
mod sender;
mod split;
mod unreachable;

use std::io;
use std::sync::Arc;

use linerate_aead::BATCH_MAX;
use linerate_packet::ip;
use linerate_protocol::Boottime;

use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::forecast::Forecast;
use crate::rx_queue::PollOutcome;
use crate::sequencer::{Sequencer, Ticket};
use crate::shared::Shared;
pub use batch::OVERHEAD;
use read_tun::TunPacket;
pub use sender::Sender;
use split::Split;
use unreachable::Unreachable;

/// A worker's memory for the outbound path.
pub struct Outbound<B: Backend> {
    sender: Sender<B>,
    packet: TunPacket,
    unreachable: Unreachable,
    /// Whether a packet that does not fill the batch is followed by another.
    followers: Forecast,
}

impl<B: Backend> Outbound<B> {
    /// Allocates all memory that the outbound path will ever use.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self {
            sender: Sender::new(shared),
            packet: TunPacket::default(),
            unreachable: Unreachable::default(),
            followers: Forecast::default(),
        }
    }

    /// The forecast was wrong: a packet was not the only one.
    pub fn expect_followers(&mut self) {
        self.followers.record(true);
    }

    /// Sends what is ready in the TUN device's queue `queue`, at most about one batch, in the order that its
    /// `sequencer` gives.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn poll(&mut self, queue: usize, sequencer: &Sequencer) -> io::Result<PollOutcome> {
        let Some(mut read_lock) = sequencer.try_read_lock() else { return Ok(PollOutcome::Locked) };
        if !self.packet.read(&self.sender.shared, queue)? {
            return Ok(PollOutcome::Idle);
        }
        self.sender.queue = queue;
        let now = self.sender.shared.backend.boottime();
        let ticket = read_lock.ticket();
        let mut outcome = PollOutcome::Progress;
        // Reads are limited, too: a packet that is dropped or staged does not fill the batch.
        let mut reads = 1;
        while !self.sender.batch.is_full_with(self.packet.len()) {
            if reads == 1 && !self.followers.is_worth_a_read() {
                outcome = PollOutcome::Drained;
                break;
            }
            self.process(&ticket, now);
            self.packet.clear();
            if reads == BATCH_MAX || self.sender.batch.is_full() {
                break;
            }
            let found = self.packet.read(&self.sender.shared, queue)?;
            if reads == 1 {
                self.followers.record(found);
            }
            if !found {
                outcome = PollOutcome::Drained;
                break;
            }
            reads += 1;
        }
        // The last packet, usually a whole GSO packet, is split while another worker reads.
        drop(read_lock);
        self.process(&ticket, now);
        self.sender.finish(ticket, now);
        Ok(outcome)
    }

    /// Adds the packet that was read, if there is one, to the batch; without a session it is staged.
    fn process(&mut self, ticket: &Ticket<'_>, now: Boottime) {
        if self.packet.is_empty() {
            return;
        }
        let shared = &self.sender.shared;
        let Some((header, packet)) = self.packet.parts() else {
            return shared.counters.count_drop(EngineDropReason::GsoMalformed);
        };
        let Ok(inner) = ip::parse(packet) else {
            return shared.counters.count_drop(EngineDropReason::InnerMalformed);
        };
        let peer = match route::peer_for(shared, &inner, packet) {
            Ok(peer) => peer,
            Err(reason) => {
                shared.counters.count_drop(reason);
                return self.unreachable.reply(shared, self.sender.queue, reason, packet, now);
            }
        };
        let Ok(split) = Split::new(&header, packet, &inner, shared.mtu.for_destination(inner.destination)) else {
            return shared.counters.count_drop(EngineDropReason::GsoMalformed);
        };
        let sending = peer.sending();
        match sending.as_ref().filter(|session| session.may_seal(now)) {
            Some(session) => self.sender.push(&peer, session, &split, ticket, now),
            None => self.sender.stage(&peer, &split, ticket, now),
        }
    }
}
