//! The addresses of clients: the lowest free ones of a pool, from a bitmap for each family. As long as there is an index
//! that is free in both, both have it, so that 10.71.8.37 goes with fd12:3456:789a::25.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use jiff::Timestamp;

/// For how many seconds a released address is not given to another client: what still knows the old one forgets it.
const COOLING: i64 = 24 * 60 * 60;

/// The most addresses of a family: its bitmap has 2 MB.
const LARGEST: u32 = 1 << 24;

/// The networks that addresses come from, and which are taken.
#[derive(Clone, Debug)]
pub struct Pool {
    /// One of each family at most, IPv4 first; at least one.
    families: Vec<Family>,
    /// No word before this one has a bit that is free in all families.
    first: usize,
}

/// A network and its addresses, by their index in it.
#[derive(Clone, Debug)]
struct Family {
    network: IpNet,
    /// How many indices there are.
    size: u32,
    /// A bit for each index that no client gets.
    taken: Vec<u64>,
    /// How many of them are addresses of clients or others, rather than reserved by the family.
    used: u32,
    /// How many indices a client could have.
    usable: u32,
    /// Released addresses that are free only if nothing else is, in the order in which they became so.
    cooling: Vec<(Timestamp, u32)>,
    /// No word before this one has a free bit.
    first: usize,
}

/// The prefixes cannot be a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPool {
    /// There is none.
    #[error(
        "there is no network that clients' addresses could come from, because Address has no length, or 31 or 127 at least: \
         `linerate server set --pool NETWORK` makes one, which has to contain the server's own address"
    )]
    Empty,
    /// Two of a family.
    #[error("a pool has at most one prefix of each family, and {0} and {1} are both of one")]
    TwoOfAFamily(IpNet, IpNet),
}

/// All addresses are taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pool {pool} is full: its {usable} addresses are taken; widen it with `linerate server set --pool {wider}`"
)]
pub struct PoolFull {
    /// The network that has no free address.
    pool: IpNet,
    /// How many addresses clients can have in it.
    usable: u32,
    /// A network that contains it and is twice as large.
    wider: IpNet,
}

impl Pool {
    /// A pool of `networks`, of which nothing is taken but what no host can have.
    ///
    /// # Errors
    /// There is no network, or two of a family.
    pub fn new(networks: &[IpNet]) -> Result<Self, InvalidPool> {
        let mut families: Vec<Family> = Vec::new();
        for net in networks {
            if let Some(before) = families.iter().find(|family| family.has(net)) {
                return Err(InvalidPool::TwoOfAFamily(before.network, *net));
            }
            families.push(Family::new(net.trunc()));
        }
        if families.is_empty() {
            return Err(InvalidPool::Empty);
        }
        families.sort_by_key(|family| family.network);
        Ok(Self { families, first: 0 })
    }

    /// Takes what the prefix has in common with the pool. A default route takes nothing: it is for what is nowhere
    /// else.
    pub fn take(&mut self, net: &IpNet) {
        if net.prefix_len() > 0 {
            self.families.iter_mut().for_each(|family| family.take(net));
        }
    }

    /// Takes an address that was released at `time`, unless a day has passed by `now`.
    pub fn cool(&mut self, address: IpAddr, time: Timestamp, now: Timestamp) {
        if is_cooling(time, now) {
            self.families.iter_mut().for_each(|family| family.cool(address, time));
        }
    }

    /// The addresses for a new client, with the full length: the lowest of which the index is free in all families, or
    /// else the lowest that are free in each, or else those that were released first.
    ///
    /// # Errors
    /// A family has none.
    pub fn allocate(&mut self) -> Result<Vec<IpNet>, PoolFull> {
        let common = self.common();
        if let Some(full) = self.families.iter_mut().find_map(|family| family.is_full().then(|| family.full())) {
            return Err(full);
        }
        Ok(self.families.iter_mut().filter_map(|family| family.give(common)).collect())
    }

    /// How many addresses are taken, and how many clients could have, in the family that has the fewest left.
    pub fn usage(&self) -> (u32, u32) {
        let usages = self.families.iter().map(|family| (family.used, family.usable));
        usages.min_by_key(|(used, usable)| usable - used).unwrap_or_default()
    }

    /// Whether a person should widen it soon: nine of ten addresses are taken.
    pub fn is_nearly_full(&self) -> bool {
        let (used, usable) = self.usage();
        u64::from(used) * 10 >= u64::from(usable) * 9
    }

    pub fn networks(&self) -> Vec<IpNet> {
        self.families.iter().map(|family| family.network).collect()
    }

    /// The lowest index that is free in all families.
    fn common(&mut self) -> Option<u32> {
        let words = self.families.iter().map(|family| family.taken.len()).min().unwrap_or(0);
        let taken = |word: usize| self.families.iter().fold(0, |taken, family| taken | family.taken[word]);
        let free = (self.first..words).find(|&word| taken(word) != !0);
        let index = free.map(|word| word as u32 * 64 + taken(word).trailing_ones());
        self.first = free.unwrap_or(words);
        index
    }
}

impl Family {
    fn new(network: IpNet) -> Self {
        let host_bits = network.max_prefix_len() - network.prefix_len();
        let size = 1u32.checked_shl(host_bits.into()).unwrap_or(LARGEST).min(LARGEST);
        let mut taken = vec![0; size.div_ceil(64) as usize];
        // The bits behind the end are not free.
        if size % 64 != 0 {
            taken[size as usize / 64] = !0 << (size % 64);
        }
        let mut family = Self { network, size, taken, used: 0, usable: size, cooling: Vec::new(), first: 0 };
        // What is no host's address: network and broadcast of IPv4 (RFC 3021 has neither in a /31), and the routers'
        // anycast address of IPv6 (RFC 4291, section 2.6.1).
        if host_bits > 1 {
            let ends = if network.addr().is_ipv4() {
                vec![network.network(), network.broadcast()]
            } else {
                vec![network.network()]
            };
            ends.into_iter().for_each(|end| family.take(&end.into()));
            family.usable -= std::mem::take(&mut family.used);
        }
        family
    }

    fn has(&self, net: &IpNet) -> bool {
        self.network.addr().is_ipv4() == net.addr().is_ipv4()
    }

    fn take(&mut self, net: &IpNet) {
        let Some((first, last)) = self.indices(net) else { return };
        for at in first / 64..=last / 64 {
            let from = if at == first / 64 { first % 64 } else { 0 };
            let to = if at == last / 64 { last % 64 } else { 63 };
            let bits = (!0 << from) & (!0 >> (63 - to));
            let word = &mut self.taken[at as usize];
            self.used += (bits & !*word).count_ones();
            *word |= bits;
        }
    }

    fn cool(&mut self, address: IpAddr, time: Timestamp) {
        let Some((index, _)) = self.indices(&address.into()) else { return };
        if self.set(index) {
            self.cooling.push((time, index));
        }
    }

    /// Whether there is no address left, not even one that was released.
    fn is_full(&mut self) -> bool {
        self.lowest().is_none() && self.cooling.is_empty()
    }

    /// Gives an address: that of the index, if there is one; else the lowest, or the one that was released first.
    fn give(&mut self, index: Option<u32>) -> Option<IpNet> {
        let index = match index.or_else(|| self.lowest()) {
            Some(index) => index,
            None => {
                let longest = self.cooling.iter().enumerate().min_by_key(|(_, cooling)| **cooling);
                let (at, &(_, index)) = longest?;
                self.cooling.swap_remove(at);
                index
            }
        };
        self.set(index);
        self.used += 1;
        Some(self.address(index).into())
    }

    /// The lowest index that is free.
    fn lowest(&mut self) -> Option<u32> {
        let free = (self.first..self.taken.len()).find(|&word| self.taken[word] != !0);
        self.first = free.unwrap_or(self.taken.len());
        free.map(|word| word as u32 * 64 + self.taken[word].trailing_ones())
    }

    /// Sets the bit of an index; returns whether it was free.
    fn set(&mut self, index: u32) -> bool {
        let word = &mut self.taken[index as usize / 64];
        let bit = 1 << (index % 64);
        let was_free = *word & bit == 0;
        *word |= bit;
        was_free
    }

    /// The first and the last index that a prefix covers, if it covers any.
    fn indices(&self, net: &IpNet) -> Option<(u32, u32)> {
        let (start, first, last) = (number(self.network.network()), number(net.network()), number(net.broadcast()));
        if !self.has(net) || last < start {
            return None;
        }
        let index = |number: u128| u32::try_from(number.saturating_sub(start)).unwrap_or(u32::MAX);
        let (first, last) = (index(first), index(last).min(self.size - 1));
        (first <= last).then_some((first, last))
    }

    fn address(&self, index: u32) -> IpAddr {
        match self.network {
            IpNet::V4(net) => Ipv4Addr::from(u32::from(net.network()) + index).into(),
            IpNet::V6(net) => Ipv6Addr::from(u128::from(net.network()) + u128::from(index)).into(),
        }
    }

    fn full(&self) -> PoolFull {
        let pool = self.network;
        PoolFull { pool, usable: self.usable, wider: pool.supernet().unwrap_or(pool) }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Whether an address that was released at `time` is still cooling. One of the future is: the clock was set back.
pub(crate) fn is_cooling(time: Timestamp, now: Timestamp) -> bool {
    now.as_second() - time.as_second() < COOLING
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn both_families_have_the_same_index_and_the_lowest_free_one() {
        let mut pool = Pool::new(&nets(&["10.71.8.0/24", "fd12::/64"])).unwrap();
        nets(&["10.71.8.1/32", "fd12::1/128", "10.71.8.2/31", "fd12::4/128"]).iter().for_each(|net| pool.take(net));
        assert_eq!(pool.allocate().unwrap(), nets(&["10.71.8.5/32", "fd12::5/128"]));
        assert_eq!(pool.allocate().unwrap(), nets(&["10.71.8.6/32", "fd12::6/128"]));
        assert_eq!(pool.usage(), (5, 254));
    }

    #[test]
    fn a_full_pool_says_which_it_is_and_how_to_widen_it() {
        let mut pool = Pool::new(&nets(&["10.0.0.0/30"])).unwrap();
        pool.take(&"10.0.0.1/32".parse().unwrap());
        assert!(!pool.is_nearly_full());
        pool.allocate().unwrap();
        assert!(pool.is_nearly_full());
        let error = pool.allocate().unwrap_err().to_string();
        let expected = "the pool 10.0.0.0/30 is full: its 2 addresses are taken; widen it with \
                        `linerate server set --pool 10.0.0.0/29`";
        assert_eq!(error, expected);
        let mut pool = Pool::new(&nets(&["10.0.0.0/24", "fd00::/127"])).unwrap();
        while pool.allocate().is_ok() {}
        assert!(pool.allocate().unwrap_err().to_string().contains("fd00::/127"));
    }

    #[test]
    fn a_released_address_is_given_again_after_a_day_or_when_nothing_else_is_free() {
        let released = |second: &[(i64, &str)], now| {
            let mut pool = Pool::new(&nets(&["10.0.0.0/29"])).unwrap();
            second.iter().for_each(|(second, address)| pool.cool(address.parse().unwrap(), at(*second), at(now)));
            std::iter::from_fn(move || Some(pool.allocate().ok()?[0].addr().to_string())).collect::<Vec<_>>()
        };
        let both = [(2000, "10.0.0.1"), (1000, "10.0.0.2")];
        let late = ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.1"];
        assert_eq!(released(&both, 3000), late);
        // A clock that was set back releases nothing.
        assert_eq!(released(&both, 0), late);
        assert_eq!(released(&both, 1000 + COOLING)[0], "10.0.0.2");
    }

    #[test]
    fn a_pool_that_was_widened_downwards_has_room_again() {
        let mut pool = Pool::new(&nets(&["10.0.8.0/23", "fd00::/64"])).unwrap();
        // All clients of 10.0.9.0/24, whose indices are other ones in the wider network.
        for host in 1..=254 {
            nets(&[&format!("10.0.9.{host}/32"), &format!("fd00::{host:x}/128")]).iter().for_each(|net| pool.take(net));
        }
        assert_eq!(pool.usage(), (254, 510));
        assert_eq!(pool.allocate().unwrap(), nets(&["10.0.8.255/32", "fd00::ff/128"]));
        assert_eq!(pool.allocate().unwrap(), nets(&["10.0.9.0/32", "fd00::100/128"]));
        assert_eq!(std::iter::from_fn(|| pool.allocate().ok()).count(), 254);
        assert_eq!(pool.usage(), (510, 510));
    }

    #[test]
    fn what_is_no_pool_is_refused() {
        assert_eq!(Pool::new(&[]).unwrap_err(), InvalidPool::Empty);
        assert!(matches!(Pool::new(&nets(&["10.0.0.0/24", "10.1.0.0/24"])), Err(InvalidPool::TwoOfAFamily(..))));
    }

    #[test]
    fn a_default_route_takes_nothing_and_a_network_around_the_pool_takes_all() {
        let mut pool = Pool::new(&nets(&["10.0.0.0/24"])).unwrap();
        pool.take(&"0.0.0.0/0".parse().unwrap());
        assert_eq!(pool.usage().0, 0);
        pool.take(&"10.0.0.0/8".parse().unwrap());
        assert_eq!(pool.usage(), (254, 254));
        pool.allocate().unwrap_err();
    }

    proptest! {
        #[test]
        fn no_address_is_given_twice_or_taken_or_no_hosts(
            length in 20u8..=32, length6 in 112u8..=128,
            taken in prop::collection::vec((0u32..5000, 24u8..=32), 0..20),
            cooling in prop::collection::vec(0u32..5000, 0..5),
        ) {
            let own = Ipv4Net::new(Ipv4Addr::new(10, 1, 0, 0), length).unwrap();
            let own6: Ipv6Net = format!("fd00::/{length6}").parse().unwrap();
            let mut pool = Pool::new(&[own.into(), own6.into()]).unwrap();
            let base = u32::from(own.network());
            let taken: Vec<IpNet> = taken
                .iter()
                .map(|&(offset, length)| Ipv4Net::new((base + offset).into(), length).unwrap().trunc().into())
                .collect();
            taken.iter().for_each(|net| pool.take(net));
            for offset in &cooling {
                pool.cool(IpAddr::V4((base + offset).into()), at(0), at(1));
            }
            let (mut seen, mut seen6) = (BTreeSet::new(), BTreeSet::new());
            while let Ok(addresses) = pool.allocate() {
                let [IpNet::V4(v4), IpNet::V6(v6)] = addresses[..] else { panic!("both families") };
                prop_assert!(own.contains(&v4) && own6.contains(&v6));
                prop_assert!(length > 30 || (v4.addr() != own.network() && v4.addr() != own.broadcast()));
                prop_assert!(!taken.iter().any(|net| net.contains(&IpAddr::V4(v4.addr()))), "{v4} was taken");
                prop_assert!(length6 > 126 || v6.addr() != own6.network());
                prop_assert!(seen.insert(v4) && seen6.insert(v6));
            }
            let reserved = |address: &Ipv4Addr| length <= 30 && (*address == own.network() || *address == own.broadcast());
            let is_free = |address: &Ipv4Addr| {
                !reserved(address) && !taken.iter().any(|net| net.contains(&IpAddr::V4(*address)))
            };
            let free = (0..1 << (32 - length)).map(|index| Ipv4Addr::from(base + index)).filter(is_free).count();
            let free6 = (1usize << (128 - length6)) - usize::from(length6 <= 126);
            prop_assert_eq!(seen.len(), free.min(free6));
        }
    }
}
