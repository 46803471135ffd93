//! From the TUN device to the wire, one file per step: [`read_tun`], [`route`], [`split`],
//! [`seal`], [`send_udp`]; [`batch`] is what they fill and empty.
//!
//! One worker carries a packet through all of them. What lies ready in the device is gathered
//! into one batch without waiting for more, so that a single packet leaves at once and many
//! leave together. Where several workers serve the device, [`crate::sequencer`] keeps their
//! batches in order.

mod batch;
mod read_tun;
pub(crate) mod route;
mod seal;
mod send_udp;
mod split;

use std::io;
use std::sync::Arc;

use linerate_aead::BATCH_MAX;
use linerate_packet::{ip, virtio};
use linerate_protocol::Boottime;
use linerate_protocol::Session;

use crate::backend::Backend;
use crate::counters::EngineDiscard;
use crate::sequencer::{Sequencer, Ticket};
use crate::shared::Shared;
use crate::tables::Peer;
use batch::Batch;
pub use batch::OVERHEAD;
use read_tun::Packet;
use route::Unreachable;
use send_udp::OnBusy;
use split::Split;

/// What one step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There was something to do, and there may be more.
    Progress,
    /// There was nothing to do: wait.
    Idle,
    /// Another worker is reading from this source.
    Locked,
}

/// The TUN device's side of the engine.
pub struct Outbound<B: Backend> {
    sender: Sender<B>,
    packet: Packet,
    unreachable: Unreachable,
}

impl<B: Backend> Outbound<B> {
    /// Sets up the memory of the outbound path: all that it will ever use.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self { sender: Sender::new(shared), packet: Packet::default(), unreachable: Unreachable::default() }
    }

    /// Sends what lies ready in the TUN device's queue `queue`, at most about one batch, in the order
    /// that the queue's `sequencer` gives.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn step(&mut self, queue: usize, sequencer: &Sequencer) -> io::Result<Step> {
        let Some(mut read_lock) = sequencer.try_read_lock() else { return Ok(Step::Locked) };
        if !self.packet.read(&self.sender.shared, queue)? {
            return Ok(Step::Idle);
        }
        self.sender.queue = queue;
        let now = self.sender.shared.backend.boottime();
        let ticket = read_lock.ticket();
        // Counted, because a packet that is dropped or staged does not fill the batch.
        let mut reads = 1;
        while !self.sender.batch.is_full_with(self.packet.len()) {
            self.carry(&ticket, now);
            reads += 1;
            if reads > BATCH_MAX || self.sender.batch.is_full() || !self.packet.read(&self.sender.shared, queue)? {
                self.packet.clear();
                break;
            }
        }
        // What was read last, most often a whole super-packet, is cut while another worker reads.
        drop(read_lock);
        self.carry(&ticket, now);
        self.sender.finish(ticket, now);
        Ok(Step::Progress)
    }

    /// Takes the packet that was read, if there is one, into the batch or to where it has to wait.
    fn carry(&mut self, ticket: &Ticket<'_>, now: Boottime) {
        if self.packet.is_empty() {
            return;
        }
        let shared = &self.sender.shared;
        let Some((header, packet)) = self.packet.parts() else {
            return shared.counters.discard(EngineDiscard::SuperPacketMalformed);
        };
        let Ok(inner) = ip::parse(packet) else {
            return shared.counters.discard(EngineDiscard::InnerMalformed);
        };
        let peer = match route::peer_for(shared, &inner, packet) {
            Ok(peer) => peer,
            Err(reason) => {
                shared.counters.discard(reason);
                return self.unreachable.answer(shared, self.sender.queue, reason, packet, now);
            }
        };
        let Ok(split) = Split::new(&header, packet, &inner, shared.mtu.towards(inner.destination)) else {
            return shared.counters.discard(EngineDiscard::SuperPacketMalformed);
        };
        let sending = peer.sending();
        match sending.as_ref().filter(|session| session.may_seal(now)) {
            Some(session) => self.sender.push(&peer, session, &split, ticket, now),
            None => self.sender.stage(&peer, &split, ticket, now),
        }
    }
}

/// Gathers packets, seals and sends them. The slow path has one of its own for staged packets
/// and keepalives.
pub struct Sender<B: Backend> {
    pub(crate) shared: Arc<Shared<B>>,
    batch: Batch,
    /// The TUN device's queue that the batch was read from; the slow path's counts as the first's.
    queue: usize,
}

impl<B: Backend> Sender<B> {
    /// Sets up the memory of one batch.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self { shared, batch: Batch::default(), queue: 0 }
    }

    /// Adds the peer's staged packets, then all segments of `split`.
    fn push(
        &mut self,
        peer: &Arc<Peer>,
        session: &Arc<Session>,
        split: &Split<'_>,
        ticket: &Ticket<'_>,
        now: Boottime,
    ) {
        if !self.batch.continues(session) {
            self.push_staged(peer, session, Some(ticket), now);
        }
        for segment in 0..split.count() {
            if !self.batch.has_room(split.padded_len(segment)) {
                self.flush(Some(ticket), now);
            }
            let plaintext = self.batch.add(peer, session, split.padded_len(segment), split.ecn(), true);
            split.write(segment, plaintext);
        }
    }

    /// Keeps all segments of `split` until the peer has a session, and asks for one.
    fn stage(&mut self, peer: &Arc<Peer>, split: &Split<'_>, ticket: &Ticket<'_>, now: Boottime) {
        // Those who read before us stage before us.
        ticket.wait_to_number();
        let budget = &self.shared.staged;
        let mut staged = peer.staged.lock().expect("no thread panics while it stages");
        let mut dropped = staged.make_room(split.count(), budget);
        for segment in 0..split.count() {
            dropped += staged.push(split.len(segment), budget, |packet| split.write(segment, packet));
        }
        drop(staged);
        self.shared.counters.discard_many(EngineDiscard::StagedOverflow, dropped as u64);
        // A session may have come while we staged, and the slow path may have sent what was staged
        // before. It sets the session before it looks, we stage before we look: one of us sees.
        if !self.send_waiting(peer, Some(ticket), now) {
            self.shared.wake(peer, peer.activity.request_handshake());
        }
    }

    fn push_staged(
        &mut self,
        peer: &Arc<Peer>,
        session: &Arc<Session>,
        ticket: Option<&Ticket<'_>>,
        now: Boottime,
    ) -> bool {
        let waiting = peer.staged.lock().expect("no thread panics while it stages").len();
        if let Some(ticket) = ticket.filter(|_| waiting > 0) {
            // What those who read before us staged goes before what we read.
            ticket.wait_to_number();
        }
        // Counted, because the session may end meanwhile, and then they come back to wait again.
        for _ in 0..waiting {
            let packet = {
                let mut staged = peer.staged.lock().expect("no thread panics while it stages");
                staged.pop(&self.shared.staged)
            };
            let Some(packet) = packet else { break };
            let Ok(inner) = ip::parse(&packet) else { continue };
            let mtu = self.shared.mtu.towards(inner.destination);
            let Ok(split) = Split::new(&virtio::Header::default(), &packet, &inner, mtu) else { continue };
            if !self.batch.has_room(split.padded_len(0)) {
                self.flush(ticket, now);
            }
            split.write(0, self.batch.add(peer, session, split.padded_len(0), split.ecn(), true));
        }
        waiting > 0
    }

    /// Sends the packets that waited for a session, if the peer has one now; true if there
    /// were any.
    pub fn send_staged(&mut self, peer: &Arc<Peer>, now: Boottime) -> bool {
        self.send_waiting(peer, None, now)
    }

    fn send_waiting(&mut self, peer: &Arc<Peer>, ticket: Option<&Ticket<'_>>, now: Boottime) -> bool {
        let sending = peer.sending();
        let Some(session) = sending.as_ref().filter(|session| session.may_seal(now)) else {
            return false;
        };
        let pushed = self.push_staged(peer, session, ticket, now);
        self.flush(ticket, now);
        pushed
    }

    /// Sends the packets that waited, or an empty one if none did (paper section 6.5).
    pub fn send_keepalive(&mut self, peer: &Arc<Peer>, now: Boottime) {
        if self.send_staged(peer, now) {
            return;
        }
        let sending = peer.sending();
        if let Some(session) = sending.as_ref().filter(|session| session.may_seal(now)) {
            self.batch.add(peer, session, 0, 0, false);
            self.flush(None, now);
        } else {
            self.shared.wake(peer, peer.activity.request_handshake());
        }
    }

    /// Sends one handshake message to the peer, with its DSCP (AF41, kernel: messages.h,
    /// HANDSHAKE_DSCP).
    pub fn send_message(&self, peer: &Arc<Peer>, message: &[u8], now: Boottime) {
        send_udp::message(&self.shared, peer, message, now);
    }

    /// Answers a sender that is no peer yet, from the address that it wrote to.
    pub fn reply(&self, message: &[u8], to: std::net::SocketAddr, from: Option<std::net::IpAddr>) {
        send_udp::reply(&self.shared, message, to, from);
    }

    /// Seals and sends what was gathered; more may follow under the same ticket. The slow path has
    /// none: what it sends has no place in the order of any source.
    fn flush(&mut self, ticket: Option<&Ticket<'_>>, now: Boottime) {
        if self.batch.is_empty() {
            return;
        }
        if let Some(ticket) = ticket {
            ticket.wait_to_number();
        }
        seal::number(&self.shared, &mut self.batch);
        self.seal_and_send(ticket, now);
    }

    /// Seals and sends the last of what was read under `ticket`.
    fn finish(&mut self, mut ticket: Ticket<'_>, now: Boottime) {
        ticket.wait_to_number();
        seal::number(&self.shared, &mut self.batch);
        ticket.finish_numbering();
        self.seal_and_send(Some(&ticket), now);
    }

    fn seal_and_send(&mut self, ticket: Option<&Ticket<'_>>, now: Boottime) {
        seal::seal(&self.shared, &mut self.batch, now);
        let on_busy = match ticket {
            Some(ticket) => {
                ticket.wait_to_deliver();
                OnBusy::Drop
            }
            None => OnBusy::WaitOnce,
        };
        send_udp::send(&self.shared, &self.batch, self.queue, on_busy, now);
        self.batch.clear();
    }
}
