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

use super::family::Bits;
use super::owners::Owner;

/// Mean number of nodes per shard.
const SHARD_MEAN: usize = 512;

/// Nodes per line.
const LINE: usize = 4;

/// Up to five prefix lengths below one point of the address space.
#[derive(Clone, Copy)]
pub struct Node<B> {
    /// The point; zero: no node.
    key: B,
    /// The prefixes that have an owner, by position.
    pub prefixes: u32,
    /// The owner of the only prefix, or the block of owners.
    pub held: Owner,
}

impl<B: Bits> Node<B> {
    fn new(key: B) -> Self {
        Self { key, prefixes: 0, held: Owner::NOBODY }
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
        // One line is enough for most tunnels: it needs no hash, and its few branches are predictable.
        if let [shard] = &self.shards[..]
            && let [line] = &shard.lines[..]
        {
            return line.0.iter().find(|node| node.key == key);
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

/// A hash table with linear probing, line by line.
struct Shard<B> {
    /// Never all full, so that every search ends.
    lines: Box<[Line<B>]>,
    taken: usize,
}

/// Nodes that are fetched together; used ones come first.
#[derive(Clone)]
#[repr(align(64))]
struct Line<B>([Node<B>; LINE]);

const _: () = assert!(size_of::<Line<u32>>() == 64 && size_of::<Line<u128>>() == 128);

impl<B: Bits> Line<B> {
    /// The place of the node with this key, without a branch per comparison, which would be unpredictable.
    fn find(&self, key: B) -> Option<usize> {
        let mut at = LINE;
        for (place, node) in self.0.iter().enumerate() {
            if node.key == key {
                at = place;
            }
        }
        (at < LINE).then_some(at)
    }

    fn is_full(&self) -> bool {
        !self.0[LINE - 1].is_vacant()
    }

    fn nodes(&self) -> impl Iterator<Item = &Node<B>> {
        self.0.iter().filter(|node| !node.is_vacant())
    }
}

impl<B: Bits> Shard<B> {
    fn with_room(nodes: usize) -> Self {
        let line = Line([Node::new(B::default()); LINE]);
        Self { lines: vec![line; (nodes * 12 / 5).div_ceil(LINE).max(1)].into_boxed_slice(), taken: 0 }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node<B>> {
        self.lines.iter().flat_map(Line::nodes)
    }

    fn get(&self, key: B, hash: u64) -> Option<&Node<B>> {
        let (at, place) = self.find(key, hash)?;
        Some(&self.lines[at].0[place])
    }

    fn get_mut(&mut self, key: B, hash: u64) -> Option<&mut Node<B>> {
        let (at, place) = self.find(key, hash)?;
        Some(&mut self.lines[at].0[place])
    }

    /// The line and the place of the node with this key.
    fn find(&self, key: B, hash: u64) -> Option<(usize, usize)> {
        let mut at = self.home(hash);
        loop {
            let line = &self.lines[at];
            if let Some(place) = line.find(key) {
                return Some((at, place));
            }
            if !line.is_full() {
                return None;
            }
            at = self.next(at);
        }
    }

    /// The first line to probe.
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.lines.len() { 0 } else { at + 1 }
    }

    fn add(&mut self, node: Node<B>) {
        if (self.taken + 1) * 8 > self.lines.len() * LINE * 5 {
            self.rebuild();
        }
        self.put(node);
    }

    fn put(&mut self, node: Node<B>) {
        let mut at = self.home(node.key.hash());
        while self.lines[at].is_full() {
            at = self.next(at);
        }
        let vacant = self.lines[at].nodes().count();
        self.lines[at].0[vacant] = node;
        self.taken += 1;
    }

    /// Resizes the shard to the number of its nodes, with some room.
    fn rebuild(&mut self) {
        let mut rebuilt = Self::with_room(self.taken + 1);
        self.nodes().for_each(|node| rebuilt.put(*node));
        *self = rebuilt;
    }

    fn remove(&mut self, key: B, hash: u64) -> bool {
        let Some((mut at, place)) = self.find(key, hash) else { return false };
        let mut was_full = self.lines[at].is_full();
        self.take(at, place);
        // Nodes that overflowed from a full line may now fit into it.
        while was_full {
            at = self.next(at);
            was_full = self.lines[at].is_full();
            for place in (0..LINE).rev() {
                let node = self.lines[at].0[place];
                if !node.is_vacant() && self.home(node.key.hash()) != at {
                    self.take(at, place);
                    self.put(node);
                }
            }
        }
        if self.taken * 8 < self.lines.len() * LINE && self.lines.len() > 1 {
            self.rebuild();
        }
        true
    }

    /// Frees a place.
    fn take(&mut self, at: usize, place: usize) {
        let line = &mut self.lines[at];
        let last = line.nodes().count() - 1;
        line.0[place] = line.0[last];
        line.0[last] = Node::new(B::default());
        self.taken -= 1;
    }
}

#[cfg(test)]
impl<B: Bits> Nodes<B> {
    /// Number of nodes, and of places for them.
    pub fn places(&self) -> (usize, usize) {
        (self.len, self.shards.iter().map(|shard| shard.lines.len() * LINE).sum())
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
        assert_eq!(nodes.places(), (0, shards * LINE));
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
