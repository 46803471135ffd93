//! Which peer owns an inner address (paper section 2: cryptokey routing).
//!
//! A path-compressed binary trie per family for the longest prefix, and a list per peer for what
//! a peer has, in the order in which it was given. Nodes live in vectors and name each other by
//! `u32`, so that a million prefixes are a few allocations and no pointer. The engine owns the
//! one table; `Device` knows nothing of it.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::PeerId;

/// No node, entry or peer.
const NONE: u32 = u32::MAX;

/// An address range with its host bits masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    addr: IpAddr,
    cidr: u8,
}

impl Prefix {
    /// Masks the host bits of `addr`. `None` if `cidr` is greater than 32 for IPv4 or 128 for IPv6.
    pub fn new(addr: IpAddr, cidr: u8) -> Option<Self> {
        let addr = match addr {
            IpAddr::V4(ip) if cidr <= 32 => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits().masked(cidr))),
            IpAddr::V6(ip) if cidr <= 128 => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits().masked(cidr))),
            _ => return None,
        };
        Some(Self { addr, cidr })
    }

    /// The first address of the range.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// How many leading bits are fixed.
    pub fn cidr(&self) -> u8 {
        self.cidr
    }

    /// Whether the range has `addr` in it. An IPv4 range has no IPv6 address, nor the reverse.
    pub fn contains(&self, addr: IpAddr) -> bool {
        Self::new(addr, self.cidr).is_some_and(|other| other == *self)
    }
}

/// Which peer owns which prefixes.
#[derive(Default)]
pub struct AllowedIps {
    v4: Trie<u32>,
    v6: Trie<u128>,
    entries: Vec<Entry>,
    free_entries: Vec<u32>,
    /// First and last entry of each peer, by its id.
    lists: Vec<List>,
}

/// A prefix in its peer's list.
struct Entry {
    prefix: Prefix,
    peer: PeerId,
    before: u32,
    after: u32,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl AllowedIps {
    /// A table in which no address has an owner.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a prefix to a peer and returns whom it was taken from, if it belonged to anyone. The
    /// prefix goes to the end of the peer's list.
    pub fn insert(&mut self, prefix: Prefix, peer: PeerId) -> Option<PeerId> {
        let owner = match prefix.addr {
            IpAddr::V4(ip) => self.v4.place(ip.to_bits(), prefix.cidr),
            IpAddr::V6(ip) => self.v6.place(ip.to_bits(), prefix.cidr),
        };
        let previous = core::mem::replace(&mut owner.peer, peer.0);
        if previous == NONE {
            owner.entry = match self.free_entries.last() {
                Some(&free) => free,
                None => u32::try_from(self.entries.len()).expect("memory ends before 2^32 prefixes"),
            };
            let entry = owner.entry;
            self.append(entry, prefix, peer);
            return None;
        }
        let entry = owner.entry;
        self.unlink(entry);
        self.append(entry, prefix, peer);
        Some(PeerId(previous))
    }

    /// Takes a prefix away from a peer; false if it was not the peer's.
    pub fn remove(&mut self, prefix: Prefix, peer: PeerId) -> bool {
        let Some(entry) = self.clear(prefix, peer) else { return false };
        self.unlink(entry);
        true
    }

    /// Takes everything away from a peer, in time proportional to what it has.
    pub fn remove_peer(&mut self, peer: PeerId) {
        while let Some(first) = self.lists.get(peer.0 as usize).map(|list| list.first).filter(|&e| e != NONE) {
            let prefix = self.entries[first as usize].prefix;
            self.clear(prefix, peer);
            self.unlink(first);
        }
    }

    /// The owner of the longest prefix that has `addr` in it.
    pub fn lookup(&self, addr: IpAddr) -> Option<PeerId> {
        match addr {
            IpAddr::V4(ip) => self.v4.lookup(ip.to_bits()),
            IpAddr::V6(ip) => self.v6.lookup(ip.to_bits()),
        }
    }

    /// What a peer has, in the order in which it was given.
    pub fn prefixes(&self, peer: PeerId) -> impl Iterator<Item = Prefix> + '_ {
        let first = self.lists.get(peer.0 as usize).map_or(NONE, |list| list.first);
        core::iter::successors(self.entries.get(first as usize), |entry| self.entries.get(entry.after as usize))
            .map(|entry| entry.prefix)
    }

    /// Takes a prefix out of its trie and returns its entry, if it is the peer's.
    fn clear(&mut self, prefix: Prefix, peer: PeerId) -> Option<u32> {
        match prefix.addr {
            IpAddr::V4(ip) => self.v4.clear(ip.to_bits(), prefix.cidr, peer),
            IpAddr::V6(ip) => self.v6.clear(ip.to_bits(), prefix.cidr, peer),
        }
    }

    /// Puts an entry, the free one of that number or a new one, at the end of a peer's list.
    fn append(&mut self, at: u32, prefix: Prefix, peer: PeerId) {
        if self.lists.len() <= peer.0 as usize {
            self.lists.resize(peer.0 as usize + 1, List { first: NONE, last: NONE });
        }
        let list = &mut self.lists[peer.0 as usize];
        let entry = Entry { prefix, peer, before: list.last, after: NONE };
        match core::mem::replace(&mut list.last, at) {
            NONE => list.first = at,
            last => self.entries[last as usize].after = at,
        }
        if at as usize == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.entries[at as usize] = entry;
            self.free_entries.pop_if(|free| *free == at);
        }
    }

    /// Takes an entry out of its peer's list. Its place becomes the first to be used again.
    fn unlink(&mut self, at: u32) {
        let Entry { peer, before, after, .. } = self.entries[at as usize];
        let list = &mut self.lists[peer.0 as usize];
        match before {
            NONE => list.first = after,
            before => self.entries[before as usize].after = after,
        }
        match after {
            NONE => list.last = before,
            after => self.entries[after as usize].before = before,
        }
        self.free_entries.push(at);
    }
}

/// An address as a number.
trait Bits: Copy + Eq + Default {
    const WIDTH: u8;
    /// How many leading bits two addresses share.
    fn shared(self, other: Self) -> u8;
    /// The bit behind the first `cidr`.
    fn side(self, cidr: u8) -> usize;
    /// The address with only its first `cidr` bits.
    fn masked(self, cidr: u8) -> Self;
}

macro_rules! bits {
    ($int:ty, $width:literal) => {
        impl Bits for $int {
            const WIDTH: u8 = $width;
            fn shared(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }
            fn side(self, cidr: u8) -> usize {
                (self >> (Self::WIDTH - 1 - cidr) & 1) as usize
            }
            fn masked(self, cidr: u8) -> Self {
                let host = Self::MAX.checked_shr(cidr.into()).unwrap_or(0);
                self & !host
            }
        }
    };
}

bits!(u32, 32);
bits!(u128, 128);

struct Trie<B> {
    nodes: Vec<Node<B>>,
    free: Vec<u32>,
    root: u32,
}

/// A prefix that somebody owns, or the fork of two that somebody owns.
struct Node<B> {
    bits: B,
    children: [u32; 2],
    owner: Owner,
    cidr: u8,
}

/// Who owns a node's prefix; [`NONE`] twice if it is only a fork.
#[derive(Clone, Copy)]
struct Owner {
    /// Repeated from the entry so that a lookup need not leave the trie.
    peer: u32,
    entry: u32,
}

impl Owner {
    const NOBODY: Self = Self { peer: NONE, entry: NONE };
}

/// Where a node's number is written down.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Child(u32, usize),
}

impl<B> Default for Trie<B> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NONE }
    }
}

impl<B: Bits> Trie<B> {
    fn lookup(&self, addr: B) -> Option<PeerId> {
        let mut owner = NONE;
        let mut at = self.root;
        while let Some(node) = self.nodes.get(at as usize) {
            if node.bits.shared(addr) < node.cidr {
                break;
            }
            if node.owner.peer != NONE {
                owner = node.owner.peer;
            }
            if node.cidr == B::WIDTH {
                break;
            }
            at = node.children[addr.side(node.cidr)];
        }
        (owner != NONE).then_some(PeerId(owner))
    }

    /// The owner of exactly this prefix, whose node is made if need be.
    fn place(&mut self, bits: B, cidr: u8) -> &mut Owner {
        let mut link = Link::Root;
        loop {
            let at = self.follow(link);
            let Some(node) = self.nodes.get(at as usize) else {
                let leaf = self.make(bits, cidr);
                self.relink(link, leaf);
                return &mut self.nodes[leaf as usize].owner;
            };
            let (node_bits, node_cidr) = (node.bits, node.cidr);
            let shared = node_bits.shared(bits).min(cidr).min(node_cidr);
            if shared < node_cidr {
                let made = self.fork(at, node_bits, bits, cidr, shared, link);
                return &mut self.nodes[made as usize].owner;
            }
            if node_cidr == cidr {
                return &mut self.nodes[at as usize].owner;
            }
            link = Link::Child(at, bits.side(node_cidr));
        }
    }

    /// Puts the prefix above node `at`, with which it shares fewer bits than `at` has.
    fn fork(&mut self, at: u32, at_bits: B, bits: B, cidr: u8, shared: u8, link: Link) -> u32 {
        let made = self.make(bits, cidr);
        let mut top = made;
        if shared < cidr {
            top = self.make(bits.masked(shared), shared);
            self.nodes[top as usize].children[bits.side(shared)] = made;
        }
        self.nodes[top as usize].children[at_bits.side(shared)] = at;
        self.relink(link, top);
        made
    }

    /// Takes the prefix's owner away, if it is `peer`, and returns its entry.
    fn clear(&mut self, bits: B, cidr: u8, peer: PeerId) -> Option<u32> {
        let mut above = Link::Root;
        let mut link = Link::Root;
        loop {
            let at = self.follow(link);
            let node = self.nodes.get_mut(at as usize)?;
            if node.cidr > cidr || node.bits.shared(bits) < node.cidr {
                return None;
            }
            if node.cidr < cidr {
                above = link;
                link = Link::Child(at, bits.side(node.cidr));
                continue;
            }
            if node.owner.peer != peer.0 {
                return None;
            }
            let Owner { entry, .. } = core::mem::replace(&mut node.owner, Owner::NOBODY);
            self.prune(link);
            if let Link::Child(..) = link {
                self.prune(above);
            }
            return Some(entry);
        }
    }

    /// Removes a node that neither has an owner nor forks.
    fn prune(&mut self, link: Link) {
        let at = self.follow(link);
        let node = &self.nodes[at as usize];
        let below = match node.children {
            _ if node.owner.entry != NONE => return,
            [NONE, only] | [only, NONE] => only,
            _ => return,
        };
        self.relink(link, below);
        self.free.push(at);
    }

    fn follow(&self, link: Link) -> u32 {
        match link {
            Link::Root => self.root,
            Link::Child(node, side) => self.nodes[node as usize].children[side],
        }
    }

    fn relink(&mut self, link: Link, to: u32) {
        match link {
            Link::Root => self.root = to,
            Link::Child(node, side) => self.nodes[node as usize].children[side] = to,
        }
    }

    fn make(&mut self, bits: B, cidr: u8) -> u32 {
        let node = Node { bits, children: [NONE; 2], owner: Owner::NOBODY, cidr };
        match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("memory ends before 2^32 nodes")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;

    /// What the table must equal: a list in order of giving.
    #[derive(Default)]
    struct Naive(Vec<(Prefix, PeerId)>);

    impl Naive {
        fn insert(&mut self, prefix: Prefix, peer: PeerId) -> Option<PeerId> {
            let previous = self.0.iter().position(|&(p, _)| p == prefix).map(|at| self.0.remove(at).1);
            self.0.push((prefix, peer));
            previous
        }

        fn remove(&mut self, prefix: Prefix, peer: PeerId) -> bool {
            let before = self.0.len();
            self.0.retain(|&entry| entry != (prefix, peer));
            self.0.len() < before
        }

        fn lookup(&self, addr: IpAddr) -> Option<PeerId> {
            self.0.iter().filter(|(p, _)| p.contains(addr)).max_by_key(|(p, _)| p.cidr()).map(|&(_, peer)| peer)
        }

        fn prefixes(&self, peer: PeerId) -> Vec<Prefix> {
            self.0.iter().filter(|&&(_, owner)| owner == peer).map(|&(p, _)| p).collect()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Prefix, PeerId),
        Remove(Prefix, PeerId),
        RemovePeer(PeerId),
        Lookup(IpAddr),
    }

    /// Few distinct bits, so that prefixes nest, collide and fork at every depth.
    fn addr() -> impl Strategy<Value = IpAddr> {
        let bit = 0u32..32;
        let v4 = (0u32..8, bit.clone(), bit)
            .prop_map(|(low, a, b)| IpAddr::V4(Ipv4Addr::from_bits(low.rotate_right(a) ^ 1u32.rotate_left(b))));
        let v6 = (0u128..8, 0u32..128, 0u32..128)
            .prop_map(|(low, a, b)| IpAddr::V6(Ipv6Addr::from_bits(low.rotate_right(a) ^ 1u128.rotate_left(b))));
        prop_oneof![v4, v6]
    }

    fn prefix() -> impl Strategy<Value = Prefix> {
        (addr(), prop_oneof![0u8..=32, 0u8..=128])
            .prop_map(|(addr, cidr)| Prefix::new(addr, cidr).unwrap_or_else(|| Prefix::new(addr, 32).unwrap()))
    }

    fn step() -> impl Strategy<Value = Step> {
        let peer = || (0u32..4).prop_map(PeerId);
        prop_oneof![
            6 => (prefix(), peer()).prop_map(|(p, peer)| Step::Insert(p, peer)),
            3 => (prefix(), peer()).prop_map(|(p, peer)| Step::Remove(p, peer)),
            1 => peer().prop_map(Step::RemovePeer),
            4 => addr().prop_map(Step::Lookup),
        ]
    }

    proptest! {
        #[test]
        fn the_table_equals_a_list(steps in proptest::collection::vec(step(), 0..200)) {
            let mut table = AllowedIps::new();
            let mut naive = Naive::default();
            for step in steps {
                match step {
                    Step::Insert(p, peer) => prop_assert_eq!(table.insert(p, peer), naive.insert(p, peer)),
                    Step::Remove(p, peer) => {
                        // Half of the time something that is there.
                        let (p, peer) = naive.0.get(usize::from(p.cidr()) * 2).copied().unwrap_or((p, peer));
                        prop_assert_eq!(table.remove(p, peer), naive.remove(p, peer));
                    }
                    Step::RemovePeer(peer) => {
                        table.remove_peer(peer);
                        naive.0.retain(|&(_, owner)| owner != peer);
                    }
                    Step::Lookup(addr) => prop_assert_eq!(table.lookup(addr), naive.lookup(addr)),
                }
                for (p, _) in &naive.0 {
                    prop_assert_eq!(table.lookup(p.addr()), naive.lookup(p.addr()));
                }
                for peer in 0..4 {
                    prop_assert_eq!(table.prefixes(PeerId(peer)).collect::<Vec<_>>(), naive.prefixes(PeerId(peer)));
                }
            }
            // No node is left that nobody needs.
            for peer in 0..4 {
                table.remove_peer(PeerId(peer));
            }
            prop_assert_eq!((table.v4.root, table.v6.root), (NONE, NONE));
            prop_assert_eq!(table.v4.free.len(), table.v4.nodes.len());
            prop_assert_eq!(table.v6.free.len(), table.v6.nodes.len());
            prop_assert_eq!(table.free_entries.len(), table.entries.len());
        }
    }

    #[test]
    fn the_longest_prefix_wins_and_moves_to_the_newer_peer() {
        let mut table = AllowedIps::new();
        let net = |text: &str, cidr| Prefix::new(text.parse().unwrap(), cidr).unwrap();
        let (a, b) = (PeerId(1), PeerId(2));
        assert_eq!(table.insert(net("0.0.0.0", 0), a), None);
        assert_eq!(table.insert(net("10.1.2.3", 8), b), None);
        assert_eq!(table.lookup("10.200.0.1".parse().unwrap()), Some(b));
        assert_eq!(table.lookup("11.0.0.1".parse().unwrap()), Some(a));
        assert_eq!(table.lookup("::1".parse().unwrap()), None);
        assert_eq!(table.insert(net("10.0.0.0", 8), a), Some(b));
        assert_eq!(table.prefixes(b).count(), 0);
        assert!(!table.remove(net("10.0.0.0", 8), b), "not b's any more");
        assert!(table.remove(net("0.0.0.0", 0), a));
        assert_eq!(table.lookup("11.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn a_prefix_masks_host_bits_and_refuses_long_ones() {
        let prefix = Prefix::new("192.0.2.77".parse().unwrap(), 26).unwrap();
        assert_eq!((prefix.addr(), prefix.cidr()), ("192.0.2.64".parse().unwrap(), 26));
        assert!(Prefix::new("192.0.2.1".parse().unwrap(), 33).is_none());
        assert!(Prefix::new("::".parse().unwrap(), 129).is_none());
        assert_eq!(Prefix::new("ffff::ffff".parse().unwrap(), 0).unwrap().addr(), "::".parse::<IpAddr>().unwrap());
        assert!(Prefix::new("::1".parse().unwrap(), 128).unwrap().contains("::1".parse().unwrap()));
    }

    #[test]
    fn prefixes_that_are_moved_for_ever_take_no_more_memory() {
        let mut table = AllowedIps::new();
        let prefix = |i: u32| Prefix::new(IpAddr::V4(Ipv4Addr::from_bits(i)), 32).unwrap();
        for round in 0..1000 {
            for i in 0..10 {
                table.insert(prefix(i), PeerId(round % 3));
            }
            table.remove(prefix(round % 10), PeerId(round % 3));
        }
        assert!(table.entries.len() <= 10 && table.v4.nodes.len() <= 20);
    }
}
