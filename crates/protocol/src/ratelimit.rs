//! Limits the handshakes of an address that has proved with a cookie that it can receive, while the device
//! is under load (paper section 5.3).
//!
//! A set-associative table of token buckets, of fixed size. A full bucket equals no bucket, so refilled
//! buckets can be reused and the table needs no clean-up.

use alloc::boxed::Box;
use alloc::vec;
use core::net::IpAddr;
use core::time::Duration;

use crate::constants::{RATELIMIT_BUCKETS, RATELIMIT_BURST, RATELIMIT_PER_SECOND};
use crate::keyed_hash::{HashKey, source_prefix};
use crate::{Boottime, Entropy};

/// Buckets in a set.
const WAYS: usize = 8;
const SETS: usize = RATELIMIT_BUCKETS / WAYS;

const COST: Duration = Duration::from_millis(1000 / RATELIMIT_PER_SECOND as u64);
const ALLOWANCE: Duration = COST.saturating_mul(RATELIMIT_BURST);

const _: () = assert!(SETS.is_power_of_two());
const _: () = assert!(size_of::<[Bucket; RATELIMIT_BUCKETS]>() <= 256 << 10);

/// Counts handshakes per IPv4 address or IPv6 /64.
#[derive(Default)]
pub(crate) struct RateLimiter {
    /// Allocated on first use: most devices are never under load.
    table: Option<Table>,
}

struct Table {
    buckets: Box<[Bucket]>,
    key: HashKey,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// The address and its family.
    address: u64,
    v6: bool,
    /// When the bucket will be full again.
    full_at: Boottime,
}

impl RateLimiter {
    /// Takes a token of `address`; false if it has none left, or if its set is full of busy addresses.
    pub(crate) fn allow(&mut self, now: Boottime, rng: &mut dyn Entropy, address: IpAddr) -> bool {
        let table = self.table.get_or_insert_with(|| Table {
            buckets: vec![Bucket::default(); RATELIMIT_BUCKETS].into_boxed_slice(),
            key: HashKey::draw(rng),
        });
        let (v6, address) = source_prefix(address);
        let set = table.set(v6, address);
        let known = set.iter().position(|b| b.address == address && b.v6 == v6);
        let Some(way) = known.or_else(|| set.iter().position(|b| b.full_at <= now)) else { return false };
        // `full_at - now` is the bucket's debt; an empty or refilled bucket has none.
        let full_at = set[way].full_at.max(now).after(COST);
        if full_at > now.after(ALLOWANCE) {
            return false;
        }
        set[way] = Bucket { address, v6, full_at };
        true
    }
}

impl Table {
    fn set(&mut self, v6: bool, address: u64) -> &mut [Bucket] {
        let set = self.key.hash(v6, address) % SETS;
        &mut self.buckets[set * WAYS..][..WAYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rng::TestRng;
    use core::net::{Ipv4Addr, Ipv6Addr};

    const START: Boottime = Boottime::from_secs(100);

    fn v4(address: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(address))
    }

    #[test]
    fn an_address_has_a_burst_of_five_and_twenty_per_second() {
        let mut limiter = RateLimiter::default();
        for (ms, allowed) in [(0, 5), (49, 0), (50, 1), (99, 0), (350, 5), (10_000, 5)] {
            let now = START.after(Duration::from_millis(ms));
            let granted = (0..20).filter(|_| limiter.allow(now, &mut TestRng::default(), v4(1))).count();
            assert_eq!(granted, allowed, "at {ms} ms");
        }
        let mut granted = 0;
        for ms in 20_000..30_000 {
            granted +=
                usize::from(limiter.allow(START.after(Duration::from_millis(ms)), &mut TestRng::default(), v4(1)));
        }
        assert!((200..=205).contains(&granted), "{granted} in 10 s");
    }

    #[test]
    fn addresses_do_not_share_a_bucket_but_an_ipv6_network_does() {
        let mut limiter = RateLimiter::default();
        let mut granted = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            (0..10).filter(|_| limiter.allow(START, &mut TestRng::default(), ip)).count()
        };
        assert_eq!(granted("192.0.2.1"), 5);
        assert_eq!(granted("192.0.2.2"), 5);
        assert_eq!(granted("2001:db8::1"), 5);
        assert_eq!(granted("2001:db8:0:0:ffff::"), 0);
        assert_eq!(granted("2001:db8:0:1::"), 5);
        // The same number in the other family.
        assert_eq!(granted("::c000:201:0:0:0:0"), 5);
    }

    #[test]
    fn the_table_never_grows_and_refilled_buckets_make_room() {
        let mut limiter = RateLimiter::default();
        let first = (0..100_000).filter(|&i| limiter.allow(START, &mut TestRng::default(), v4(i))).count();
        assert!(first <= RATELIMIT_BUCKETS && first > RATELIMIT_BUCKETS * 9 / 10, "{first} addresses fit");
        let later = START.after(COST);
        let second = (100_000..200_000).filter(|&i| limiter.allow(later, &mut TestRng::default(), v4(i))).count();
        assert!(second <= RATELIMIT_BUCKETS && second > RATELIMIT_BUCKETS * 9 / 10);
        assert_eq!(limiter.table.unwrap().buckets.len(), RATELIMIT_BUCKETS);
    }

    #[test]
    fn a_few_thousand_busy_addresses_find_room() {
        let mut limiter = RateLimiter::default();
        let granted = (0..3000u128)
            .filter(|&i| {
                limiter.allow(
                    START,
                    &mut TestRng::default(),
                    IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | i << 64)),
                )
            })
            .count();
        assert!(granted >= 2950, "{granted} of 3000");
    }
}
