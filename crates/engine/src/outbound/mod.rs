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
use std::ops::Range;
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
use read_tun::TunPackets;
use route::{NextHop, RouteRun};
pub use sender::Sender;
use split::Split;
use unreachable::Unreachable;

/// A worker's memory for the outbound path.
pub struct Outbound<B: Backend> {
    sender: Sender<B>,
    packets: TunPackets,
    runs: Vec<RouteRun>,
    unreachable: Unreachable,
    /// Whether a packet that does not fill the batch is followed by another.
    followers: Forecast,
}

impl<B: Backend> Outbound<B> {
    /// Allocates all memory that the outbound path will ever use.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self {
            sender: Sender::new(shared),
            packets: TunPackets::default(),
            runs: Vec::with_capacity(BATCH_MAX),
            unreachable: Unreachable::default(),
            followers: Forecast::default(),
        }
    }

    /// The forecast was wrong: a packet was not the only one.
    pub fn expect_followers(&mut self) {
        self.followers.record(true);
    }

    /// Sends what is ready in the TUN device's queue `queue`, at most about one batch, in the order that its
    /// `sequencer` gives. `at_rest`: the queue was empty a moment ago, so that a lone packet is to be expected.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn poll(&mut self, queue: usize, sequencer: &Sequencer, at_rest: bool) -> io::Result<PollOutcome> {
        let Some(mut read_lock) = sequencer.try_read_lock() else { return Ok(PollOutcome::Locked) };
        let followers = at_rest.then_some(&mut self.followers);
        let outcome = self.packets.read(&self.sender.shared, queue, followers)?;
        if outcome == PollOutcome::Idle {
            return Ok(outcome);
        }
        let ticket = read_lock.ticket();
        // All the rest is done while another worker reads.
        drop(read_lock);
        self.sender.queue = queue;
        let now = self.sender.shared.backend.boottime();
        let Self { sender, packets, runs, unreachable, .. } = self;
        route::find_runs(&sender.shared, packets, runs);
        let mut start = 0;
        for run in runs.iter() {
            let indices = start..run.end;
            start = run.end;
            match &run.to {
                Ok(to) => gather(sender, to, packets, indices, &ticket, now),
                Err(reason) => refuse(sender, unreachable, *reason, packets, indices, now),
            }
        }
        runs.clear();
        sender.finish(ticket, now);
        Ok(outcome)
    }
}

/// Adds the packets of a run to the batch; without a session they are staged.
fn gather<B: Backend>(
    sender: &mut Sender<B>,
    to: &NextHop,
    packets: &TunPackets,
    indices: Range<usize>,
    ticket: &Ticket<'_>,
    now: Boottime,
) {
    let sending = to.peer.sending();
    let session = sending.as_ref().filter(|session| session.may_seal(now));
    for index in indices {
        let (header, packet) = packets.get(index);
        let shared = &sender.shared;
        let Ok(inner) = ip::parse(packet) else {
            shared.counters.count_drop(EngineDropReason::InnerMalformed);
            continue;
        };
        if to.is_loop_for(shared, &inner, packet) {
            shared.counters.count_drop(EngineDropReason::RoutingLoop);
            continue;
        }
        let Ok(split) = Split::new(header, packet, &inner, shared.mtu.for_destination(inner.destination)) else {
            shared.counters.count_drop(EngineDropReason::GsoMalformed);
            continue;
        };
        match session {
            Some(session) => sender.push(&to.peer, session, &split, ticket, now),
            None => sender.stage(&to.peer, &split, ticket, now),
        }
    }
}

/// Drops the packets of a run that goes nowhere, and tells their senders.
fn refuse<B: Backend>(
    sender: &Sender<B>,
    unreachable: &mut Unreachable,
    reason: EngineDropReason,
    packets: &TunPackets,
    indices: Range<usize>,
    now: Boottime,
) {
    let shared = &sender.shared;
    for index in indices {
        let (_, packet) = packets.get(index);
        if ip::parse(packet).is_err() {
            shared.counters.count_drop(EngineDropReason::InnerMalformed);
            continue;
        }
        shared.counters.count_drop(reason);
        unreachable.reply(shared, sender.queue, reason, packet, now);
    }
}
