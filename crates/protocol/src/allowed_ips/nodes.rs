//! The nodes of one family by key: a hash table in which most lookups read one cache line, and which grows
//! incrementally.
//!
//! Its shards are hash tables of some hundred nodes each. When they fill up, one of them is split in two
//! (linear hashing, Litwin 1980), so no insertion moves more nodes than a shard has: a table that doubled all
//! at once would stop the traffic while it copies. Prefixes come from the user, not from the network, so the
//! hash needs no secret key.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::owners::Owner;

/// Mean number of nodes per shard.
const SHARD_MEAN: usize = 512;

/// Nodes per bucket, which is one or two cache lines.
const BUCKET_NODES: usize = 4;

/// An address as a number.
pub trait Bits: Copy + Eq + Default {
    /// The first `cidr` bits of the address.
    fn masked(self, cidr: u8) -> Self;
    /// The first `cidr` bits of the address followed by a one, which is unique per prefix. `cidr` is less than the
    /// width.
    fn key(self, cidr: u8) -> Self;
    /// The four bits after the first `cidr`, padded with zeros.
    fn four(self, cidr: u8) -> u32;
    /// A hash in which every bit depends on all bits of the address.
    fn hash(self) -> u64;
}

macro_rules! bits {
    ($int:ty, |$bits:ident| $hash:expr) => {
        impl Bits for $int {
            fn masked(self, cidr: u8) -> Self {
                let host = Self::MAX.checked_shr(cidr.into()).unwrap_or(0);
                self & !host
            }

            fn key(self, cidr: u8) -> Self {
                let end = 1 << (Self::BITS - 1 - u32::from(cidr));
                (self | end) & Self::wrapping_neg(end)
            }

            fn four(self, cidr: u8) -> u32 {
                (self << cidr >> (Self::BITS - 4)) as u32
            }

            fn hash(self) -> u64 {
                let $bits = self;
                $hash
            }
        }
    };
}

bits!(u32, |bits| mix(bits.into()));
bits!(u128, |bits| mix(bits as u64 ^ mix((bits >> 64) as u64)));

fn mix(bits: u64) -> u64 {
    // The fraction of the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
    const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let bits = bits.wrapping_mul(RATIO);
    (bits ^ bits >> 32).wrapping_mul(RATIO)
}

/// Up to five prefix lengths below one point of the address space.
#[derive(Clone, Copy)]
pub struct Node<B> {
    /// The point; zero: no node.
    key: B,
    /// The prefixes that have an owner, by position.
    pub prefixes: u32,
    /// The owner of the only prefix, or the block of the owners of several.
    pub owners: Owner,
}

impl<B: Bits> Node<B> {
    fn new(key: B) -> Self {
        Self { key, prefixes: 0, owners: Owner::NOBODY }
    }

    fn is_vacant(&self) -> bool {
        self.key == B::default()
    }
}

/// Nodes by key.
pub struct Nodes<B> {
    shards: Vec<Shard<B>>,
    len: usize,
}

impl<B> Default for Nodes<B> {
    fn default() -> Self {
        Self { shards: Vec::new(), len: 0 }
    }
}

impl<B: Bits> Nodes<B> {
    /// The node with this key.
    pub fn get(&self, key: B) -> Option<&Node<B>> {
        // One bucket is enough for most tunnels: it needs no hash, and its few branches are predictable.
        if let [shard] = &self.shards[..]
            && let [bucket] = &shard.buckets[..]
        {
            return bucket.0.iter().find(|node| node.key == key);
        }
        let hash = key.hash();
        self.shards.get(shard_of(hash, self.shards.len()))?.get(key, hash)
    }

    /// The same node, mutable.
    pub fn get_mut(&mut self, key: B) -> Option<&mut Node<B>> {
        let hash = key.hash();
        let shard = shard_of(hash, self.shards.len());
        self.shards.get_mut(shard)?.get_mut(key, hash)
    }

    /// Adds a node without prefixes. The key must be new.
    pub fn add(&mut self, key: B) {
        if self.len >= self.shards.len() * SHARD_MEAN {
            self.split();
        }
        let shard = shard_of(key.hash(), self.shards.len());
        self.shards[shard].add(Node::new(key));
        self.len += 1;
    }

    /// Removes the node with this key, if there is one.
    pub fn remove(&mut self, key: B) {
        let hash = key.hash();
        let shard = shard_of(hash, self.shards.len());
        let removed = self.shards.get_mut(shard).is_some_and(|shard| shard.remove(key, hash));
        self.len -= usize::from(removed);
    }

    /// Adds a shard and moves nodes of the next shard to split into it.
    fn split(&mut self) {
        let added = self.shards.len();
        let Some(split) = added.checked_ilog2().map(|bits| added ^ 1 << bits) else {
            return self.shards.push(Shard::with_room(0));
        };
        let goes = |node: &&Node<B>| shard_of(node.key.hash(), added + 1) == added;
        let old = &self.shards[split];
        let going = old.nodes().filter(goes).count();
        let mut stay = Shard::with_room(old.taken - going);
        let mut go = Shard::with_room(going);
        old.nodes().for_each(|node| if goes(&node) { go.put(*node) } else { stay.put(*node) });
        self.shards[split] = stay;
        self.shards.push(go);
    }
}

/// The shard, of `shards`, that has the node with this hash. Shards not yet split in this round also hold the nodes
/// of their other half.
fn shard_of(hash: u64, shards: usize) -> usize {
    let round = shards.next_power_of_two();
    let at = hash as usize & (round - 1);
    if at < shards { at } else { at - round / 2 }
}

/// A hash table with linear probing, bucket by bucket.
struct Shard<B> {
    /// Never all full, so that every search ends.
    buckets: Box<[Bucket<B>]>,
    taken: usize,
}

/// Nodes that are fetched together; used ones come first.
#[derive(Clone)]
#[repr(align(64))]
struct Bucket<B>([Node<B>; BUCKET_NODES]);

const _: () = assert!(size_of::<Bucket<u32>>() == 64 && size_of::<Bucket<u128>>() == 128);

impl<B: Bits> Bucket<B> {
    /// The slot of the node with this key, without a branch per comparison, which would be unpredictable.
    fn find(&self, key: B) -> Option<usize> {
        let mut at = BUCKET_NODES;
        for (slot, node) in self.0.iter().enumerate() {
            if node.key == key {
                at = slot;
            }
        }
        (at < BUCKET_NODES).then_some(at)
    }

    fn is_full(&self) -> bool {
        !self.0[BUCKET_NODES - 1].is_vacant()
    }

    fn nodes(&self) -> impl Iterator<Item = &Node<B>> {
        self.0.iter().filter(|node| !node.is_vacant())
    }
}

impl<B: Bits> Shard<B> {
    fn with_room(nodes: usize) -> Self {
        let bucket = Bucket([Node::new(B::default()); BUCKET_NODES]);
        Self { buckets: vec![bucket; (nodes * 12 / 5).div_ceil(BUCKET_NODES).max(1)].into_boxed_slice(), taken: 0 }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node<B>> {
        self.buckets.iter().flat_map(Bucket::nodes)
    }

    fn get(&self, key: B, hash: u64) -> Option<&Node<B>> {
        let (at, slot) = self.find(key, hash)?;
        Some(&self.buckets[at].0[slot])
    }

    fn get_mut(&mut self, key: B, hash: u64) -> Option<&mut Node<B>> {
        let (at, slot) = self.find(key, hash)?;
        Some(&mut self.buckets[at].0[slot])
    }

    /// The bucket and the slot of the node with this key.
    fn find(&self, key: B, hash: u64) -> Option<(usize, usize)> {
        let mut at = self.first_bucket(hash);
        loop {
            let bucket = &self.buckets[at];
            if let Some(slot) = bucket.find(key) {
                return Some((at, slot));
            }
            if !bucket.is_full() {
                return None;
            }
            at = self.next(at);
        }
    }

    /// The first bucket to probe.
    fn first_bucket(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }

    fn add(&mut self, node: Node<B>) {
        if (self.taken + 1) * 8 > self.buckets.len() * BUCKET_NODES * 5 {
            self.rebuild();
        }
        self.put(node);
    }

    fn put(&mut self, node: Node<B>) {
        let mut at = self.first_bucket(node.key.hash());
        while self.buckets[at].is_full() {
            at = self.next(at);
        }
        let vacant = self.buckets[at].nodes().count();
        self.buckets[at].0[vacant] = node;
        self.taken += 1;
    }

    /// Resizes the shard to the number of its nodes, with some room.
    fn rebuild(&mut self) {
        let mut rebuilt = Self::with_room(self.taken + 1);
        self.nodes().for_each(|node| rebuilt.put(*node));
        *self = rebuilt;
    }

    fn remove(&mut self, key: B, hash: u64) -> bool {
        let Some((mut at, slot)) = self.find(key, hash) else { return false };
        let mut was_full = self.buckets[at].is_full();
        self.take(at, slot);
        // Nodes that overflowed from a full bucket may now fit into it.
        while was_full {
            at = self.next(at);
            was_full = self.buckets[at].is_full();
            for slot in (0..BUCKET_NODES).rev() {
                let node = self.buckets[at].0[slot];
                if !node.is_vacant() && self.first_bucket(node.key.hash()) != at {
                    self.take(at, slot);
                    self.put(node);
                }
            }
        }
        if self.taken * 8 < self.buckets.len() * BUCKET_NODES && self.buckets.len() > 1 {
            self.rebuild();
        }
        true
    }

    /// Frees a slot.
    fn take(&mut self, at: usize, slot: usize) {
        let bucket = &mut self.buckets[at];
        let last = bucket.nodes().count() - 1;
        bucket.0[slot] = bucket.0[last];
        bucket.0[last] = Node::new(B::default());
        self.taken -= 1;
    }
}

#[cfg(test)]
impl<B: Bits> Nodes<B> {
    /// Number of nodes, and of slots for them.
    pub fn slots(&self) -> (usize, usize) {
        (self.len, self.shards.iter().map(|shard| shard.buckets.len() * BUCKET_NODES).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_through_all_splits_until_removed() {
        let mut nodes = Nodes::<u32>::default();
        for key in 1..20_000 {
            nodes.add(key);
            nodes.get_mut(key).unwrap().prefixes = key;
        }
        assert!(nodes.shards.len() > 32, "the table has split");
        assert!((1..20_000).all(|key| nodes.get(key).is_some_and(|node| node.prefixes == key)));
        assert!(nodes.get(20_000).is_none());
        (1..20_000).filter(|key| key % 3 > 0).for_each(|key| nodes.remove(key));
        assert!((1..20_000).all(|key| nodes.get(key).is_some() == (key % 3 == 0)));
        (1..20_000).for_each(|key| nodes.remove(key));
        let shards = nodes.shards.len();
        assert_eq!(nodes.slots(), (0, shards * BUCKET_NODES));
    }

    #[test]
    fn no_insertion_moves_more_than_a_shard() {
        let mut nodes = Nodes::<u128>::default();
        for key in 1..100_000 {
            nodes.add(key);
            let longest = nodes.shards.iter().map(|shard| shard.taken).max();
            assert!(key % 1000 > 0 || longest < Some(4 * SHARD_MEAN), "{longest:?} of {key} nodes in one shard");
        }
    }
}
