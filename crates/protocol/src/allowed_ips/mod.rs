//! Which peer owns an inner address (paper section 2: cryptokey routing).
//!
//! [`prefix_table`], one each for IPv4 and IPv6, finds the longest prefix; [`lists`] keep the prefixes of each peer
//! in the order in which they were added. Both change in place and incrementally, so that a change among a
//! million prefixes takes as long as among ten. The engine owns the only table; `Device` does not use it.

mod arena;
mod lists;
mod nodes;
mod owners;
mod prefix_table;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::PeerId;
use lists::Lists;
use nodes::Bits;
use prefix_table::PrefixTable;

/// No entry, block or peer.
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

    /// The length of the prefix in bits.
    pub fn cidr(&self) -> u8 {
        self.cidr
    }

    /// Whether the range contains `addr`. An IPv4 range contains no IPv6 address, and vice versa.
    pub fn contains(&self, addr: IpAddr) -> bool {
        Self::new(addr, self.cidr).is_some_and(|other| other == *self)
    }
}

/// Which peer owns which prefixes.
#[derive(Default)]
pub struct AllowedIps {
    v4: PrefixTable<u32>,
    v6: PrefixTable<u128>,
    lists: Lists,
}

impl AllowedIps {
    /// A table in which no address has an owner.
    pub fn new() -> Self {
        Self::default()
    }

    /// Assigns a prefix to a peer and returns its previous owner. The prefix goes to the end of the peer's list.
    pub fn insert(&mut self, prefix: Prefix, peer: PeerId) -> Option<PeerId> {
        let owner = match prefix.addr {
            IpAddr::V4(ip) => self.v4.entry(ip.to_bits(), prefix.cidr),
            IpAddr::V6(ip) => self.v6.entry(ip.to_bits(), prefix.cidr),
        };
        let previous = core::mem::replace(&mut owner.peer, peer.0);
        if previous == NONE {
            owner.entry = self.lists.push(prefix, peer);
            return None;
        }
        self.lists.reassign(owner.entry, peer);
        Some(PeerId(previous))
    }

    /// Removes a prefix from a peer; false if the peer does not have it.
    pub fn remove(&mut self, prefix: Prefix, peer: PeerId) -> bool {
        let entry = match prefix.addr {
            IpAddr::V4(ip) => self.v4.clear(ip.to_bits(), prefix.cidr, peer),
            IpAddr::V6(ip) => self.v6.clear(ip.to_bits(), prefix.cidr, peer),
        };
        entry.inspect(|&entry| self.lists.remove(entry)).is_some()
    }

    /// Removes the first prefix of a peer's list; false if it is empty.
    pub fn remove_first(&mut self, peer: PeerId) -> bool {
        self.lists.first(peer).is_some_and(|first| self.remove(first, peer))
    }

    /// Marks all prefixes of a peer as stale until they are inserted again. Only one peer at a time has stale prefixes.
    pub fn begin_replacing(&mut self, peer: PeerId) {
        self.lists.mark(peer);
    }

    /// Removes one stale prefix of `peer`; false if none is left.
    pub fn remove_stale(&mut self, peer: PeerId) -> bool {
        self.lists.is_marked(peer) && self.remove_first(peer)
    }

    /// The owner of the longest prefix that contains `addr`.
    pub fn lookup(&self, addr: IpAddr) -> Option<PeerId> {
        match addr {
            IpAddr::V4(ip) => self.v4.lookup(ip.to_bits()),
            IpAddr::V6(ip) => self.v6.lookup(ip.to_bits()),
        }
    }

    /// The prefixes of a peer, in the order in which they were added.
    pub fn prefixes(&self, peer: PeerId) -> impl Iterator<Item = Prefix> + '_ {
        self.lists.of(peer)
    }

    /// The prefixes of a peer after `prefix`, so that a long list can be read in parts. Empty if `prefix` was removed
    /// meanwhile.
    pub fn prefixes_after(&self, prefix: Prefix, peer: PeerId) -> impl Iterator<Item = Prefix> + '_ {
        let owner = match prefix.addr {
            IpAddr::V4(ip) => self.v4.owner_of(ip.to_bits(), prefix.cidr),
            IpAddr::V6(ip) => self.v6.owner_of(ip.to_bits(), prefix.cidr),
        };
        owner.filter(|owner| owner.peer == peer.0).into_iter().flat_map(|owner| self.lists.after(owner.entry))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    /// The model: a list in the order of insertion.
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
        Replace(PeerId, Vec<(bool, Prefix)>),
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
            1 => (peer(), proptest::collection::vec((any::<bool>(), prefix()), 0..8))
                .prop_map(|(peer, changes)| Step::Replace(peer, changes)),
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
                        // Half of the time one that is in the table.
                        let (p, peer) = naive.0.get(usize::from(p.cidr()) * 2).copied().unwrap_or((p, peer));
                        prop_assert_eq!(table.remove(p, peer), naive.remove(p, peer));
                    }
                    Step::RemovePeer(peer) => {
                        while table.remove_first(peer) {}
                        naive.0.retain(|&(_, owner)| owner != peer);
                    }
                    Step::Replace(peer, changes) => {
                        let before = naive.prefixes(peer);
                        naive.0.retain(|&(_, owner)| owner != peer);
                        table.begin_replacing(peer);
                        for (index, (add, p)) in changes.into_iter().enumerate() {
                            // Often one that is in the table.
                            let p = before.get(usize::from(p.cidr())).copied().filter(|_| index % 2 == 0).unwrap_or(p);
                            if add {
                                table.insert(p, peer);
                                naive.insert(p, peer);
                            } else {
                                table.remove(p, peer);
                                naive.remove(p, peer);
                            }
                            for (p, owner) in naive.0.iter().filter(|(_, owner)| *owner == peer) {
                                prop_assert_eq!(table.lookup(p.addr()).is_some(), true, "{:?} of {:?}", p, owner);
                            }
                        }
                        while table.remove_stale(peer) {}
                    }
                    Step::Lookup(addr) => prop_assert_eq!(table.lookup(addr), naive.lookup(addr)),
                }
                for (p, _) in &naive.0 {
                    prop_assert_eq!(table.lookup(p.addr()), naive.lookup(p.addr()));
                }
                for peer in 0..4 {
                    let all = naive.prefixes(PeerId(peer));
                    prop_assert_eq!(&table.prefixes(PeerId(peer)).collect::<Vec<_>>(), &all);
                    for (index, p) in all.iter().enumerate() {
                        let rest: Vec<_> = table.prefixes_after(*p, PeerId(peer)).collect();
                        prop_assert_eq!(&rest, &all[index + 1..]);
                    }
                }
            }
            // No unused node is left.
            for peer in 0..4 {
                while table.remove_first(PeerId(peer)) {}
            }
            prop_assert_eq!((table.v4.nodes(), table.v6.nodes()), ((0, 0), (0, 0)));
            for (made, vacant) in [table.v4.owners(), table.v6.owners(), table.lists.entries()] {
                prop_assert_eq!(made, vacant);
            }
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
        assert!(!table.remove(net("10.0.0.0", 8), b), "b no longer has it");
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
    fn moving_prefixes_again_and_again_takes_no_more_memory() {
        let mut table = AllowedIps::new();
        let prefix = |i: u32| Prefix::new(IpAddr::V4(Ipv4Addr::from_bits(i)), 32).unwrap();
        for round in 0..1000 {
            for i in 0..10 {
                table.insert(prefix(i), PeerId(round % 3));
            }
            table.remove(prefix(round % 10), PeerId(round % 3));
        }
        assert!(table.lists.entries().0 <= 10 && table.v4.nodes().0 <= 4);
    }
}
