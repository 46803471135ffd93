//! Longest-prefix match for IPv4 or IPv6.
//!
//! A node holds the prefixes of five consecutive lengths that share the bits of the shortest: a bitmap of 31
//! positions, numbered as in a heap, shortest first. Every fifth length is a level. Nodes are found by a hash
//! of their bits; a lookup probes the levels that have nodes, deepest first. Unlike in a tree, no probe depends
//! on the one before, so the CPU fetches the nodes of all levels at once, and a lookup in a large table takes
//! about one memory access: at most 7 levels for IPv4, 26 for IPv6.

use super::nodes::{Bits, Node, Nodes};
use super::owners::{Blocks, Owner};
use crate::PeerId;

/// Prefix lengths in a node.
const STRIDE: u8 = 5;

/// The levels of IPv6, which has the most: 0, 5, ..., 125.
const LEVELS: usize = 26;

/// The prefixes of one address family and their owners.
#[derive(Default)]
pub struct PrefixTable<B> {
    nodes: Nodes<B>,
    blocks: Blocks,
    /// A bit for each level that has nodes.
    levels: u32,
    /// Number of nodes of each level.
    counts: [u32; LEVELS],
}

impl<B: Bits> PrefixTable<B> {
    /// The owner of the longest prefix that contains the address.
    pub fn lookup(&self, addr: B) -> Option<PeerId> {
        let mut levels = self.levels;
        while let Some(level) = levels.checked_ilog2() {
            levels ^= 1 << level;
            let cidr = level as u8 * STRIDE;
            let Some(node) = self.nodes.get(addr.key(cidr)) else { continue };
            let holding = node.prefixes & PATHS[addr.four(cidr) as usize];
            if let Some(longest) = holding.checked_ilog2() {
                return Some(PeerId(self.owner(node, 1 << longest).peer));
            }
        }
        None
    }

    /// The owner of exactly this prefix, if it has one.
    pub fn owner_of(&self, bits: B, cidr: u8) -> Option<Owner> {
        let at = Position::new(bits, cidr);
        let node = self.nodes.get(at.key).filter(|node| node.prefixes & at.bit != 0)?;
        Some(self.owner(node, at.bit))
    }

    /// The owner of the prefix with this bit in a node.
    fn owner(&self, node: &Node<B>, bit: u32) -> Owner {
        // Most nodes have only this one, and counting bits is slow without an instruction for it.
        if node.prefixes == bit {
            return node.owners;
        }
        self.blocks.get(node.owners, node.prefixes.count_ones() as usize, rank(node.prefixes, bit))
    }

    /// The owner of exactly this prefix; [`Owner::NOBODY`], for the caller to replace, if it is new.
    pub fn entry(&mut self, bits: B, cidr: u8) -> &mut Owner {
        let at = Position::new(bits, cidr);
        if self.nodes.get(at.key).is_none() {
            self.nodes.add(at.key);
            self.levels |= 1 << at.level;
            self.counts[at.level] += 1;
        }
        let node = self.nodes.get_mut(at.key).expect("the node was just added");
        let rank = rank(node.prefixes, at.bit);
        if node.prefixes & at.bit == 0 {
            node.owners = self.blocks.insert(node.owners, node.prefixes.count_ones() as usize, rank);
            node.prefixes |= at.bit;
        }
        self.blocks.get_mut(&mut node.owners, node.prefixes.count_ones() as usize, rank)
    }

    /// Removes the prefix if `peer` owns it, and returns its list entry.
    pub fn clear(&mut self, bits: B, cidr: u8, peer: PeerId) -> Option<u32> {
        let at = Position::new(bits, cidr);
        let node = self.nodes.get_mut(at.key).filter(|node| node.prefixes & at.bit != 0)?;
        let (count, rank) = (node.prefixes.count_ones() as usize, rank(node.prefixes, at.bit));
        let owner = self.blocks.get(node.owners, count, rank);
        if owner.peer != peer.0 {
            return None;
        }
        node.owners = self.blocks.remove(node.owners, count, rank);
        node.prefixes ^= at.bit;
        if node.prefixes == 0 {
            self.nodes.remove(at.key);
            self.counts[at.level] -= 1;
            self.levels ^= u32::from(self.counts[at.level] == 0) << at.level;
        }
        Some(owner.entry)
    }
}

/// The position of a prefix.
struct Position<B> {
    level: usize,
    key: B,
    /// The prefix's bit in its node.
    bit: u32,
}

impl<B: Bits> Position<B> {
    fn new(bits: B, cidr: u8) -> Self {
        let (level, more) = (cidr / STRIDE, cidr % STRIDE);
        let start = level * STRIDE;
        Self { level: level.into(), key: bits.key(start), bit: 1 << ((16 | bits.four(start)) >> (STRIDE - 1 - more)) }
    }
}

/// Number of a node's prefixes before the one with this bit.
fn rank(prefixes: u32, bit: u32) -> usize {
    (prefixes & (bit - 1)).count_ones() as usize
}

/// The prefixes of a node that can contain an address, by the four bits after the node's: a path through the heap
/// from its root.
const PATHS: [u32; 16] = {
    let mut paths = [0; 16];
    let mut four = 0;
    while four < 16 {
        let mut at = 16 | four;
        while at > 0 {
            paths[four] |= 1 << at;
            at >>= 1;
        }
        four += 1;
    }
    paths
};

#[cfg(test)]
impl<B: Bits> PrefixTable<B> {
    /// Number of nodes, and the levels that have nodes.
    pub fn nodes(&self) -> (usize, u32) {
        (self.nodes.slots().0, self.levels)
    }

    /// The capacity of the blocks in owners, and that of the free ones among them.
    pub fn owners(&self) -> (usize, usize) {
        self.blocks.owners()
    }
}
