//! A hash table by receiver index that many threads read and one grows, without long pauses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::RwLock;

use linerate_protocol::constants;

use super::UNPOISONED;

/// Shards that the receiver indices are spread over. A hash table moves all its entries when it grows, under its
/// lock. With a full device's sessions, three per peer, a shard is small enough to do so in 0.1 ms; a single table
/// would take 15 ms.
const SHARDS: usize = 256;

/// The most entries that one more session may move, but for an uneven spread.
const MOVED_MAX: usize = 1 << 14;

const _: () = assert!(3 * constants::PEERS_MAX / SHARDS <= MOVED_MAX * 7 / 8);

type Shard<V> = RwLock<HashMap<u32, V, BuildHasherDefault<IndexHasher>>>;

/// Values by receiver index.
pub struct Receivers<V>(Box<[Shard<V>]>);

impl<V> Default for Receivers<V> {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl<V: Clone> Receivers<V> {
    fn shard(&self, index: u32) -> &Shard<V> {
        // The middle bits: within a shard the lowest and the highest bits tell entries apart.
        &self.0[(index >> 16) as usize % SHARDS]
    }

    /// The value of an index.
    pub fn get(&self, index: u32) -> Option<V> {
        self.shard(index).read().expect(UNPOISONED).get(&index).cloned()
    }

    /// Adds a value.
    pub fn insert(&self, index: u32, value: V) {
        self.shard(index).write().expect(UNPOISONED).insert(index, value);
    }

    /// Removes a value, and returns it so that it is dropped outside the lock.
    pub fn remove(&self, index: u32) -> Option<V> {
        self.shard(index).write().expect(UNPOISONED).remove(&index)
    }
}

/// Hashes a receiver index to itself: they are random numbers that we chose.
#[derive(Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u32 keys are hashed")
    }

    fn write_u32(&mut self, index: u32) {
        // The table takes its bucket from the low bits and its tag from the high ones.
        self.0 = u64::from(index) << 32 | u64::from(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_session_moves_few_of_the_others() {
        let receivers = Receivers::<()>::default();
        let (mut rng, mut most) = (fastrand::Rng::with_seed(1), 0);
        for _ in 0..500_000 {
            let index = rng.u32(..);
            let state =
                || (receivers.shard(index).read().unwrap().capacity(), receivers.shard(index).read().unwrap().len());
            let (capacity, len) = state();
            receivers.insert(index, ());
            most = if state().0 > capacity { most.max(len) } else { most };
        }
        assert!((1..=MOVED_MAX).contains(&most), "{most} moved at once");
        assert!(most <= 2 * 500_000 / SHARDS, "{most} moved at once: the indices are not spread evenly");
    }
}
