//! Gathers packets of all peers in a batch, seals and sends it; stages packets that have no session yet.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linerate_packet::{ip, virtio};
use linerate_protocol::{Boottime, Session};

use super::batch::Batch;
use super::send_batch::OnFullBuffer;
use super::split::Split;
use super::{seal, send_udp};
use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::policer::Verdict;
use crate::sequencer::Ticket;
use crate::shared::Shared;
use crate::sync::lock;
use crate::tables::Peer;

/// A send batch and its buffers. Each worker has one; the slow path has one for staged packets and keepalives.
pub struct Sender<B: Backend> {
    pub(super) shared: Arc<Shared<B>>,
    pub(super) batch: Batch,
    /// The TUN device's queue that the batch was read from; 0 on the slow path.
    pub(super) queue: usize,
}

impl<B: Backend> Sender<B> {
    /// Allocates the memory of one batch.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self { shared, batch: Batch::default(), queue: 0 }
    }

    /// Adds the peer's staged packets, then all segments of `split`.
    pub(super) fn push(
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
            self.add(peer, session, split, segment, Some(ticket), now);
        }
    }

    /// Adds one segment, if the peer's rate lets it pass.
    fn add(
        &mut self,
        peer: &Arc<Peer>,
        session: &Arc<Session>,
        split: &Split<'_>,
        segment: usize,
        ticket: Option<&Ticket<'_>>,
        now: Boottime,
    ) {
        let verdict = peer.tx_policer.admit(split.len(segment), split.inner_ecn(), now);
        if verdict == Verdict::Drop {
            return self.shared.counters.count_drop(EngineDropReason::OverRate);
        }
        if !self.batch.has_room(split.padded_len(segment)) {
            self.flush(ticket, now);
        }
        let plaintext = self.batch.add(peer, session, split.padded_len(segment), split.ecn(), true);
        split.write(segment, plaintext);
        if verdict == Verdict::Mark {
            ip::set_ce(plaintext);
            self.shared.counters.rate_marked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps all segments of `split` until the peer has a session, and requests one.
    pub(super) fn stage(&mut self, peer: &Arc<Peer>, split: &Split<'_>, ticket: &Ticket<'_>, now: Boottime) {
        // Workers with earlier tickets stage first.
        ticket.wait_for_counter_phase();
        let budget = &self.shared.staged;
        let mut staged = lock(&peer.staged);
        let mut dropped = staged.make_room(split.count(), budget);
        for segment in 0..split.count() {
            dropped += staged.push(split.len(segment), budget, |packet| split.write(segment, packet));
        }
        drop(staged);
        self.shared.counters.count_drops(EngineDropReason::StagedOverflow, dropped as u64);
        // A session may have been established meanwhile. The slow path sets the session before it looks for staged
        // packets, we stage before we look for a session: at least one of us sees both.
        if !self.send_staged_under(peer, Some(ticket), now) {
            self.shared.wake(peer, peer.traffic.request_handshake());
        }
    }

    fn push_staged(
        &mut self,
        peer: &Arc<Peer>,
        session: &Arc<Session>,
        ticket: Option<&Ticket<'_>>,
        now: Boottime,
    ) -> bool {
        let waiting = lock(&peer.staged).len();
        if let Some(ticket) = ticket.filter(|_| waiting > 0) {
            // Packets that workers with earlier tickets staged go before ours.
            ticket.wait_for_counter_phase();
        }
        // Limited, because packets are staged again if the session ends meanwhile.
        for _ in 0..waiting {
            let packet = lock(&peer.staged).pop(&self.shared.staged);
            let Some(packet) = packet else { break };
            let Ok(inner) = ip::parse(&packet) else { continue };
            let mtu = self.shared.mtu.for_destination(inner.destination);
            let Ok(split) = Split::new(&virtio::Header::default(), &packet, &inner, mtu) else { continue };
            self.add(peer, session, &split, 0, ticket, now);
        }
        waiting > 0
    }

    /// Sends the peer's staged packets if it has a session; true if there were any.
    pub fn send_staged(&mut self, peer: &Arc<Peer>, now: Boottime) -> bool {
        self.send_staged_under(peer, None, now)
    }

    fn send_staged_under(&mut self, peer: &Arc<Peer>, ticket: Option<&Ticket<'_>>, now: Boottime) -> bool {
        let sending = peer.sending();
        let Some(session) = sending.as_ref().filter(|session| session.may_seal(now)) else {
            return false;
        };
        let pushed = self.push_staged(peer, session, ticket, now);
        self.flush(ticket, now);
        pushed
    }

    /// Sends the staged packets, or an empty packet if there are none (paper section 6.5).
    pub fn send_keepalive(&mut self, peer: &Arc<Peer>, now: Boottime) {
        if self.send_staged(peer, now) {
            return;
        }
        let sending = peer.sending();
        if let Some(session) = sending.as_ref().filter(|session| session.may_seal(now)) {
            self.batch.add(peer, session, 0, 0, false);
            self.flush(None, now);
        } else {
            self.shared.wake(peer, peer.traffic.request_handshake());
        }
    }

    /// Sends one handshake message to the peer.
    pub fn send_message(&self, peer: &Arc<Peer>, message: &[u8], now: Boottime) {
        send_udp::message(&self.shared, peer, message, now);
    }

    /// Replies to a handshake message: to its sender, from the address that it was sent to.
    pub fn reply(&self, message: &[u8], to: SocketAddr, from: Option<IpAddr>) {
        send_udp::reply(&self.shared, message, to, from);
    }

    /// Seals and sends the gathered packets; more may follow under the same ticket. The slow path has no ticket: its
    /// packets are not ordered with those of any receive queue.
    fn flush(&mut self, ticket: Option<&Ticket<'_>>, now: Boottime) {
        if self.batch.is_empty() {
            return;
        }
        if let Some(ticket) = ticket {
            ticket.wait_for_counter_phase();
        }
        seal::reserve_counters(&self.shared, &mut self.batch);
        self.seal_and_send(ticket, now);
    }

    /// Seals and sends the last of what was read under `ticket`.
    pub(super) fn finish(&mut self, mut ticket: Ticket<'_>, now: Boottime) {
        ticket.wait_for_counter_phase();
        seal::reserve_counters(&self.shared, &mut self.batch);
        ticket.finish_counter_phase();
        self.seal_and_send(Some(&ticket), now);
    }

    fn seal_and_send(&mut self, ticket: Option<&Ticket<'_>>, now: Boottime) {
        seal::seal(&self.shared, &mut self.batch, now);
        let on_full_buffer = match ticket {
            Some(ticket) => {
                ticket.wait_for_delivery_phase();
                OnFullBuffer::Drop
            }
            None => OnFullBuffer::WaitOnce,
        };
        send_udp::send(&self.shared, &self.batch, self.queue, on_full_buffer, now);
        self.batch.clear();
    }
}
