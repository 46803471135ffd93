//! Packets that wait for a session or an endpoint.
//!
//! Bounded twice: 128 packets per peer, of which the oldest are dropped before a batch is added, so that a batch is not
//! split (kernel: device.c, MAX_STAGED_PACKETS), and [`BYTES_MAX`] over all peers, so that ten thousand peers that do
//! not answer cannot fill the memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most packets that are staged for one peer.
pub const PACKETS_MAX: usize = 128;

/// The most bytes that are staged for all peers of a device together.
const BYTES_MAX: usize = 4 << 20;

/// The bytes that all of a device's staged packets take.
#[derive(Default)]
pub struct Budget(AtomicUsize);

impl Budget {
    /// Whether no packet is staged.
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self, bytes: usize) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                held.checked_add(bytes).filter(|held| *held <= BYTES_MAX)
            })
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One peer's staged packets, oldest first.
#[derive(Default)]
pub struct Staged {
    packets: VecDeque<Box<[u8]>>,
    /// The peer was removed: accepts nothing, since nothing would return it to the budget.
    closed: bool,
}

impl Staged {
    /// The number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Makes room for a batch of `packets`; returns how many old ones were dropped.
    pub fn make_room(&mut self, packets: usize, budget: &Budget) -> usize {
        let over = (self.packets.len() + packets).saturating_sub(PACKETS_MAX).min(self.packets.len());
        (0..over).for_each(|_| self.drop_oldest(budget));
        over
    }

    /// Adds a packet of `len` bytes that `write` fills in; returns how many packets were dropped to stay within the
    /// bounds, including the new one if nothing else helps.
    pub fn push(&mut self, len: usize, budget: &Budget, write: impl FnOnce(&mut [u8])) -> usize {
        if self.closed {
            return 1;
        }
        let mut dropped = self.make_room(1, budget);
        while !budget.take(len) {
            dropped += 1;
            if self.packets.is_empty() {
                return dropped;
            }
            self.drop_oldest(budget);
        }
        let mut packet = vec![0; len].into_boxed_slice();
        write(&mut packet);
        self.packets.push_back(packet);
        dropped
    }

    /// Removes the oldest packet.
    pub fn pop(&mut self, budget: &Budget) -> Option<Box<[u8]>> {
        let packet = self.packets.pop_front()?;
        budget.give_back(packet.len());
        if self.packets.is_empty() {
            self.packets = VecDeque::new();
        }
        Some(packet)
    }

    /// Drops all packets; returns how many.
    pub fn clear(&mut self, budget: &Budget) -> usize {
        let packets = self.packets.len();
        (0..packets).for_each(|_| self.drop_oldest(budget));
        packets
    }

    /// Drops all packets, and all later ones; returns how many were dropped now.
    pub fn close(&mut self, budget: &Budget) -> usize {
        self.closed = true;
        self.clear(budget)
    }

    fn drop_oldest(&mut self, budget: &Budget) {
        let _ = self.pop(budget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(staged: &mut Staged, budget: &Budget, byte: u8, len: usize) -> usize {
        staged.push(len, budget, |packet| packet.fill(byte))
    }

    #[test]
    fn the_oldest_packet_is_dropped_when_a_peer_reaches_its_limit() {
        let (mut staged, budget) = (Staged::default(), Budget::default());
        for byte in 0..PACKETS_MAX {
            assert_eq!(push(&mut staged, &budget, byte as u8, 10), 0);
        }
        assert_eq!(push(&mut staged, &budget, 200, 10), 1);
        assert_eq!(staged.pop(&budget).unwrap()[0], 1);
    }

    #[test]
    fn room_for_a_batch_is_made_before_it_is_added() {
        let (mut staged, budget) = (Staged::default(), Budget::default());
        (0..100).for_each(|byte| assert_eq!(push(&mut staged, &budget, byte, 10), 0));
        assert_eq!(staged.make_room(45, &budget), 17);
        assert_eq!(staged.make_room(45, &budget), 0);
        assert_eq!(staged.pop(&budget).unwrap()[0], 17);
    }

    #[test]
    fn all_peers_together_stay_within_the_budget_and_return_it() {
        let budget = Budget::default();
        let mut first = Staged::default();
        for _ in 0..64 {
            assert_eq!(push(&mut first, &budget, 1, 65_536), 0);
        }
        let mut second = Staged::default();
        assert_eq!(push(&mut second, &budget, 2, 1), 1, "refused: nothing of its own to drop");
        assert!(second.is_empty());
        assert_eq!(push(&mut first, &budget, 3, 100), 1, "its own oldest makes room");
        assert_eq!(first.clear(&budget), 64);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
        assert_eq!(push(&mut second, &budget, 2, 1), 0);
    }

    #[test]
    fn late_packets_of_a_removed_peer_use_no_budget() {
        let (mut staged, budget) = (Staged::default(), Budget::default());
        push(&mut staged, &budget, 1, 1000);
        assert_eq!(staged.close(&budget), 1);
        assert_eq!(push(&mut staged, &budget, 2, 1000), 1);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
