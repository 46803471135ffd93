//! The prefixes of IPv4 or of IPv6, for the longest match.
//!
//! A node holds the prefixes of five consecutive lengths that agree in the bits of the shortest:
//! a bitmap of 31 positions, numbered as in a heap, the shortest first. Nodes are found by a hash
//! of those bits, a level for every fifth length, and a look-up asks the levels that have any
//! node, the deepest first. No step waits for the one before it, as in a tree, so that the
//! processor fetches the nodes of all levels at once and a large table costs about as much as one
//! access to memory, whatever it holds: at most 7 levels for IPv4, 26 for IPv6.

use super::nodes::{Node, Nodes};
use super::owners::{Blocks, Owner};
use crate::PeerId;

/// Lengths in a node.
const STRIDE: u8 = 5;

/// The levels of IPv6, which has more: 0, 5, ..., 125.
const LEVELS: usize = 26;

/// An address as a number.
pub trait Bits: Copy + Eq + Default {
    /// The address with only its first `cidr` bits.
    fn masked(self, cidr: u8) -> Self;
    /// The address's first `cidr` bits and a one behind them, so that no two prefixes have the
    /// same. `cidr` is less than the width.
    fn key(self, cidr: u8) -> Self;
    /// The four bits behind the first `cidr`, zeros behind the last.
    fn four(self, cidr: u8) -> u32;
    /// A number whose bits all depend on all bits of this one.
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

/// Which prefix of one family belongs to whom.
#[derive(Default)]
pub struct Family<B> {
    nodes: Nodes<B>,
    blocks: Blocks,
    /// A bit for each level that has a node.
    levels: u32,
    /// How many nodes each level has.
    counts: [u32; LEVELS],
}

impl<B: Bits> Family<B> {
    /// Who owns the longest prefix that has the address in it.
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

    /// The owner of the prefix of that bit in a node.
    fn owner(&self, node: &Node<B>, bit: u32) -> Owner {
        // Most nodes have only the one, and counting bits takes long without an instruction for it.
        if node.prefixes == bit {
            return node.held;
        }
        self.blocks.get(node.held, node.prefixes.count_ones() as usize, rank(node.prefixes, bit))
    }

    /// The owner of exactly this prefix; nobody, to be replaced, if it is new.
    pub fn place(&mut self, bits: B, cidr: u8) -> &mut Owner {
        let at = Position::new(bits, cidr);
        if self.nodes.get(at.key).is_none() {
            self.nodes.add(at.key);
            self.levels |= 1 << at.level;
            self.counts[at.level] += 1;
        }
        let node = self.nodes.get_mut(at.key).expect("it was added just so");
        let rank = rank(node.prefixes, at.bit);
        if node.prefixes & at.bit == 0 {
            node.held = self.blocks.insert(node.held, node.prefixes.count_ones() as usize, rank);
            node.prefixes |= at.bit;
        }
        self.blocks.get_mut(&mut node.held, node.prefixes.count_ones() as usize, rank)
    }

    /// Takes the prefix's owner away, if it is `peer`, and returns its entry.
    pub fn clear(&mut self, bits: B, cidr: u8, peer: PeerId) -> Option<u32> {
        let at = Position::new(bits, cidr);
        let node = self.nodes.get_mut(at.key).filter(|node| node.prefixes & at.bit != 0)?;
        let (count, rank) = (node.prefixes.count_ones() as usize, rank(node.prefixes, at.bit));
        let owner = self.blocks.get(node.held, count, rank);
        if owner.peer != peer.0 {
            return None;
        }
        node.held = self.blocks.remove(node.held, count, rank);
        node.prefixes ^= at.bit;
        if node.prefixes == 0 {
            self.nodes.remove(at.key);
            self.counts[at.level] -= 1;
            self.levels ^= u32::from(self.counts[at.level] == 0) << at.level;
        }
        Some(owner.entry)
    }
}

/// Where a prefix is.
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

/// How many of a node's prefixes come before that of `bit`.
fn rank(prefixes: u32, bit: u32) -> usize {
    (prefixes & (bit - 1)).count_ones() as usize
}

/// The prefixes of a node that may hold an address, by the four bits behind the node's: a path
/// through the heap from its root.
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
impl<B: Bits> Family<B> {
    /// How many nodes there are, and the levels that have any.
    pub fn nodes(&self) -> (usize, u32) {
        (self.nodes.places().0, self.levels)
    }

    /// How many owners the blocks have room for, and for how many of them in blocks that no node has.
    pub fn owners(&self) -> (usize, usize) {
        self.blocks.owners()
    }
}
