//! The addresses of clients: the lowest free one of a pool, from a bitmap. Both families have the same index in their
//! networks, so that 10.71.8.37 goes with fd12:3456:789a::25.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use jiff::Timestamp;

/// For how many seconds a released address is not given to another client: what still knows the old one forgets it.
const COOLING: i64 = 24 * 60 * 60;

/// The most addresses of a pool: its bitmap has 2 MB.
const LARGEST: u32 = 1 << 24;

/// The networks that addresses come from, and which are taken.
#[derive(Clone, Debug)]
pub struct Pool {
    v4: Option<Ipv4Net>,
    v6: Option<Ipv6Net>,
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
        "there is no network that clients' addresses could come from: set Address, with a length below 31 or 127, or Pool"
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
        let (mut v4, mut v6) = (None, None);
        for net in networks {
            let before = match net {
                IpNet::V4(net) => v4.replace(net.trunc()).map(IpNet::V4),
                IpNet::V6(net) => v6.replace(net.trunc()).map(IpNet::V6),
            };
            if let Some(before) = before {
                return Err(InvalidPool::TwoOfAFamily(before, *net));
            }
        }
        let size4 = v4.map(|net: Ipv4Net| size(32 - net.prefix_len()));
        let size6 = v6.map(|net: Ipv6Net| size(128 - net.prefix_len()));
        let size = match (size4, size6) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).ok_or(InvalidPool::Empty)?,
        };
        let mut taken = vec![0; size.div_ceil(64) as usize];
        // The bits behind the end are not free.
        if size % 64 != 0 {
            taken[size as usize / 64] = !0 << (size % 64);
        }
        let mut pool = Self { v4, v6, size, taken, used: 0, usable: size, cooling: Vec::new(), first: 0 };
        pool.reserve_ends();
        Ok(pool)
    }

    /// Takes what the prefix has in common with the pool. A default route takes nothing: it is for what is nowhere
    /// else.
    pub fn take(&mut self, net: &IpNet) {
        if net.prefix_len() == 0 {
            return;
        }
        let Some((start, end)) = self.indices(net) else { return };
        for index in start..=end {
            self.used += u32::from(self.set(index));
        }
    }

    /// Takes an address that was released at `time`, unless a day has passed by `now`.
    pub fn cool(&mut self, address: IpAddr, time: Timestamp, now: Timestamp) {
        if !is_cooling(time, now) {
            return;
        }
        let Some((index, _)) = self.indices(&address.into()) else { return };
        if self.set(index) {
            self.cooling.push((time, index));
        }
    }

    /// The addresses for a new client, with the full length: the lowest that are free, or else those that were released
    /// first.
    ///
    /// # Errors
    /// There are none.
    pub fn allocate(&mut self) -> Result<Vec<IpNet>, PoolFull> {
        let free = (self.first..self.taken.len()).find(|&word| self.taken[word] != !0);
        let index = match free {
            Some(word) => {
                self.first = word;
                let index = word as u32 * 64 + self.taken[word].trailing_ones();
                self.set(index);
                index
            }
            None => {
                self.first = self.taken.len();
                let longest = self.cooling.iter().enumerate().min_by_key(|(_, cooling)| **cooling);
                let (at, &(_, index)) = longest.ok_or_else(|| self.full())?;
                self.cooling.swap_remove(at);
                index
            }
        };
        self.used += 1;
        Ok(self.addresses(index))
    }

    /// How many addresses are taken, and how many clients could have.
    pub fn usage(&self) -> (u32, u32) {
        (self.used, self.usable)
    }

    /// Whether a person should widen it soon: nine of ten addresses are taken.
    pub fn is_nearly_full(&self) -> bool {
        u64::from(self.used) * 10 >= u64::from(self.usable) * 9
    }

    /// Its networks.
    pub fn networks(&self) -> Vec<IpNet> {
        self.v4.map(IpNet::V4).into_iter().chain(self.v6.map(IpNet::V6)).collect()
    }

    /// Takes what is no host's address: network and broadcast of IPv4 (RFC 3021 has neither in a /31), and the routers'
    /// anycast address of IPv6 (RFC 4291, section 2.6.1).
    fn reserve_ends(&mut self) {
        let mut ends = Vec::new();
        if let Some(net) = self.v4.filter(|net| net.prefix_len() <= 30) {
            ends.extend([0, u32::from(net.broadcast()) - u32::from(net.network())]);
        }
        if self.v6.is_some_and(|net| net.prefix_len() <= 126) {
            ends.push(0);
        }
        for index in ends {
            if index < self.size && self.set(index) {
                self.usable -= 1;
            }
        }
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
        let (start, first, last) = match (net, self.v4, self.v6) {
            (IpNet::V4(net), Some(own), _) => {
                let number = |address: Ipv4Addr| u128::from(u32::from(address));
                if number(net.broadcast()) < number(own.network()) {
                    return None;
                }
                (number(own.network()), number(net.network()), number(net.broadcast()))
            }
            (IpNet::V6(net), _, Some(own)) => {
                let number = u128::from;
                if number(net.broadcast()) < number(own.network()) {
                    return None;
                }
                (number(own.network()), number(net.network()), number(net.broadcast()))
            }
            _ => return None,
        };
        let index = |number: u128| u32::try_from(number.saturating_sub(start)).unwrap_or(u32::MAX);
        let (first, last) = (index(first), index(last).min(self.size - 1));
        (first <= last).then_some((first, last))
    }

    fn addresses(&self, index: u32) -> Vec<IpNet> {
        let v4 = self.v4.map(|net| IpAddr::V4((u32::from(net.network()) + index).into()));
        let v6 = self.v6.map(|net| IpAddr::V6(Ipv6Addr::from(u128::from(net.network()) + u128::from(index))));
        v4.into_iter().chain(v6).map(IpNet::from).collect()
    }

    fn full(&self) -> PoolFull {
        let sizes = (self.v4.map(|net| size(32 - net.prefix_len())), self.v6.map(|net| size(128 - net.prefix_len())));
        let pool = match (self.v4, self.v6, sizes) {
            (Some(_), Some(v6), (Some(four), Some(six))) if six < four => IpNet::V6(v6),
            (Some(v4), ..) => IpNet::V4(v4),
            (None, Some(v6), _) => IpNet::V6(v6),
            (None, None, _) => unreachable!("`new` refuses a pool without networks"),
        };
        PoolFull { pool, usable: self.usable, wider: pool.supernet().unwrap_or(pool) }
    }
}

/// Whether an address that was released at `time` is still cooling. One of the future is: the clock was set back.
pub(crate) fn is_cooling(time: Timestamp, now: Timestamp) -> bool {
    now.as_second() - time.as_second() < COOLING
}

fn size(host_bits: u8) -> u32 {
    1u32.checked_shl(host_bits.into()).unwrap_or(LARGEST).min(LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(pool.usage(), (6, 254));
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
            let mut seen = BTreeSet::new();
            while let Ok(addresses) = pool.allocate() {
                let [IpNet::V4(v4), IpNet::V6(v6)] = addresses[..] else { panic!("both families") };
                prop_assert!(own.contains(&v4) && own6.contains(&v6));
                prop_assert_eq!(u128::from(u32::from(v4.addr()) - base), u128::from(v6.addr()) - u128::from(own6.network()));
                prop_assert!(length > 30 || (v4.addr() != own.network() && v4.addr() != own.broadcast()));
                prop_assert!(!taken.iter().any(|net| net.contains(&IpAddr::V4(v4.addr()))), "{v4} was taken");
                prop_assert!(seen.insert(v4));
            }
            let all = (0..size(32 - length).min(size(128 - length6))).map(|index| Ipv4Addr::from(base + index));
            let reserved = |address: &Ipv4Addr| {
                (length <= 30 && (*address == own.network() || *address == own.broadcast()))
                    || (length6 <= 126 && *address == own.network())
            };
            let free = all.filter(|address| {
                !reserved(address) && !taken.iter().any(|net| net.contains(&IpAddr::V4(*address)))
            });
            prop_assert_eq!(seen.len(), free.count());
        }
    }
}
