//! Opens consecutive data messages of one session together.

use std::sync::Arc;

use linerate_aead::{BATCH_MAX, Slot};
use linerate_protocol::Boottime;
use linerate_protocol::DropReason;

use super::classify::DataMessage;
use crate::backend::Backend;
use crate::shared::Shared;
use crate::tables::Receiver;

/// Consecutive data messages with one receiver index, each with the index of the received message that carried it.
pub struct OpenBatch {
    index: u32,
    slots: Vec<Slot>,
    messages: Vec<usize>,
}

impl Default for OpenBatch {
    fn default() -> Self {
        Self { index: 0, slots: Vec::with_capacity(BATCH_MAX), messages: Vec::with_capacity(BATCH_MAX) }
    }
}

impl OpenBatch {
    /// Whether a data message with receiver index `index` belongs to the batch.
    pub fn takes(&self, index: u32) -> bool {
        self.slots.is_empty() || self.index == index && self.slots.len() < BATCH_MAX
    }

    /// Adds a data message.
    pub fn push(&mut self, data: DataMessage, message: usize) {
        self.index = data.receiver;
        self.slots.push(Slot { offset: data.offset, len: data.len, counter: data.counter });
        self.messages.push(message);
    }

    /// The session with the receiver index.
    pub fn receiver<B: Backend>(&self, shared: &Shared<B>) -> Option<Arc<Receiver>> {
        if self.slots.is_empty() { None } else { shared.tables.receiver(self.index) }
    }

    /// Opens the messages in place, and keeps those that are authentic.
    pub fn open<B: Backend>(&mut self, shared: &Shared<B>, receiver: &Receiver, buf: &mut [u8], now: Boottime) {
        let session = &receiver.session;
        self.keep(shared, |_, slot| session.may_open(now, slot.counter));
        let authentic = session.opening.open(buf, &self.slots);
        self.keep(shared, |index, _| authentic.authentic(index).then_some(()).ok_or(DropReason::Undecryptable));
    }

    /// Updates the peer's timers, and the session if this confirms it.
    pub fn record_traffic<B: Backend>(&self, shared: &Shared<B>, receiver: &Receiver, now: Boottime) {
        let Receiver { session, peer, .. } = receiver;
        if session.confirm() {
            // At once, so that the answer to this very packet is sealed with keys that the peer has. The slow path may
            // know of a newer session and decides in the end.
            peer.set_sending(Some(session.clone()));
            shared.slow_path_queue.confirm(session);
        }
        let data = self.slots.iter().any(|slot| slot.len > 0);
        shared.wake(peer, peer.traffic.received(now, data));
        if session.needs_rekey_on_receive(now) {
            shared.wake(peer, peer.traffic.request_handshake());
        }
    }

    /// The number of packets.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// A packet, and the index of the received message that carried it.
    pub fn packet(&self, index: usize) -> (Slot, usize) {
        (self.slots[index], self.messages[index])
    }

    /// Whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The index of the received message that carried the packet with the highest counter.
    pub fn newest_message(&self) -> Option<usize> {
        let newest = self.slots.iter().zip(&self.messages).max_by_key(|(slot, _)| slot.counter);
        newest.map(|(_, message)| *message)
    }

    /// Keeps the packets that `check` accepts, in order, and counts the others.
    pub fn keep<B: Backend>(
        &mut self,
        shared: &Shared<B>,
        mut check: impl FnMut(usize, &Slot) -> Result<(), DropReason>,
    ) {
        let mut kept = 0;
        for index in 0..self.slots.len() {
            match check(index, &self.slots[index]) {
                Ok(()) => {
                    self.slots[kept] = self.slots[index];
                    self.messages[kept] = self.messages[index];
                    kept += 1;
                }
                Err(reason) => shared.counters.count_protocol_drop(reason),
            }
        }
        self.slots.truncate(kept);
        self.messages.truncate(kept);
    }

    /// Removes everything; the memory is kept.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.messages.clear();
    }
}
