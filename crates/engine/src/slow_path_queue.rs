//! Work queued by the data path for the slow path. Bounded: one wake-up and one source-address check per peer, one
//! confirmation per session, [`HANDSHAKE_BACKLOG`] handshake messages.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use linerate_netio::udp::PacketInfo;
use linerate_netio::wait::Event;
use linerate_protocol::Session;
use linerate_protocol::constants::{HANDSHAKE_BACKLOG, INITIATION_LEN};

use crate::counters::{Counters, EngineDropReason};
use crate::sync::lock;
use crate::tables::Peer;

const _: () = assert!(size_of::<PendingHandshake>() * HANDSHAKE_BACKLOG <= 1 << 20);

/// A handshake message and where it came from, copied out of a receive buffer.
#[derive(Clone, Copy)]
pub struct PendingHandshake {
    /// The sender's address.
    pub source: SocketAddr,
    /// The address of ours that it was sent to.
    pub local: Option<PacketInfo>,
    len: u8,
    bytes: [u8; INITIATION_LEN],
}

impl PendingHandshake {
    /// The message.
    pub fn message(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The queue.
pub struct SlowPathQueue {
    event: Event,
    /// The event is signalled, and the slow path has not begun a pass since.
    signalled: AtomicBool,
    woken: Mutex<VecDeque<Arc<Peer>>>,
    source_addr_checks: Mutex<VecDeque<Arc<Peer>>>,
    confirmed: Mutex<Vec<Arc<Session>>>,
    backlog: Mutex<VecDeque<PendingHandshake>>,
}

impl SlowPathQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: Event::new()?,
            signalled: AtomicBool::new(false),
            woken: Mutex::default(),
            source_addr_checks: Mutex::default(),
            confirmed: Mutex::default(),
            backlog: Mutex::new(VecDeque::with_capacity(HANDSHAKE_BACKLOG)),
        })
    }

    /// Readable when there is something to process.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Begins a pass of the slow path: what is queued from here on signals again.
    pub fn begin_pass(&self) {
        self.event.drain();
        // A swap, not a store: it synchronises with the signaller whose swap it follows.
        self.signalled.swap(false, Ordering::SeqCst);
    }

    /// The peer that has waited longest for a timer update: first in, first out, so a busy peer does not starve the
    /// others.
    pub fn next_woken(&self) -> Option<Arc<Peer>> {
        let peer = lock(&self.woken).pop_front()?;
        peer.release_wakeup();
        Some(peer)
    }

    /// The peer that has waited longest for a check of its source address.
    pub fn next_source_addr_check(&self) -> Option<Arc<Peer>> {
        let peer = lock(&self.source_addr_checks).pop_front()?;
        peer.release_source_addr_check();
        Some(peer)
    }

    /// A session that its peer has confirmed.
    pub fn next_confirmed(&self) -> Option<Arc<Session>> {
        lock(&self.confirmed).pop()
    }

    /// Fills `batch` up to its capacity with the oldest handshake messages; returns how many were waiting, those
    /// included.
    pub fn take_handshakes(&self, batch: &mut Vec<PendingHandshake>) -> usize {
        let mut backlog = lock(&self.backlog);
        let waiting = backlog.len();
        let taken = waiting.min(batch.capacity() - batch.len());
        batch.extend(backlog.drain(..taken));
        waiting
    }

    /// Queues the peer for a timer update.
    pub fn wake(&self, peer: &Arc<Peer>) {
        if peer.claim_wakeup() {
            lock(&self.woken).push_back(peer.clone());
            self.signal();
        }
    }

    /// Queues a session that its initiator has confirmed, with its first authentic packet.
    pub fn confirm(&self, session: &Arc<Session>) {
        lock(&self.confirmed).push(session.clone());
        self.signal();
    }

    /// Queues a source-address check: the address may have become invalid. After a change of routes all active peers
    /// need one, so the checks have a queue of their own, and nothing waits for them.
    pub fn request_source_addr_check(&self, peer: &Arc<Peer>) {
        if peer.claim_source_addr_check() {
            lock(&self.source_addr_checks).push_back(peer.clone());
            self.signal();
        }
    }

    /// Queues a handshake message, whose length `classify` has checked.
    pub fn push_handshake(&self, message: &[u8], source: SocketAddr, local: Option<PacketInfo>, counters: &Counters) {
        let mut backlog = lock(&self.backlog);
        if backlog.len() == HANDSHAKE_BACKLOG {
            return counters.count_drop(EngineDropReason::BacklogFull);
        }
        let mut handshake = PendingHandshake { source, local, len: message.len() as u8, bytes: [0; INITIATION_LEN] };
        handshake.bytes[..message.len()].copy_from_slice(message);
        backlog.push_back(handshake);
        drop(backlog);
        self.signal();
    }

    /// Wakes the control thread, as for a command.
    pub fn signal(&self) {
        if !self.signalled.swap(true, Ordering::SeqCst) {
            self.event.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_protocol::{PeerId, PublicKey};

    #[test]
    fn peers_are_processed_in_the_order_in_which_they_were_woken() {
        let queue = SlowPathQueue::new().unwrap();
        let peers = [1, 2, 3].map(|n| Arc::new(Peer::new(PeerId(n), PublicKey([n as u8; 32]), 0, Arc::default())));
        peers.iter().for_each(|peer| queue.wake(peer));
        assert_eq!(queue.next_woken().unwrap().id, PeerId(1));
        queue.wake(&peers[0]);
        queue.wake(&peers[0]);
        let rest: Vec<u32> = std::iter::from_fn(|| queue.next_woken()).map(|peer| peer.id.0).collect();
        assert_eq!(rest, [2, 3, 1]);
    }
}
