//! What one address may cause while the device is under load (paper section 5.3).
//!
//! Handshakes: a table of token buckets of fixed size, asked only about addresses that have proved,
//! with a cookie, that they can receive. A full bucket is the same as none, so that refilled buckets
//! make room by themselves and the table needs no clean-up.
//!
//! Cookie replies: a set of bits that is emptied every second, asked about addresses that may be
//! forged. Without it a flood is answered message by message, which costs more than to refuse it.

use alloc::boxed::Box;
use alloc::vec;
use core::net::IpAddr;
use core::time::Duration;

use crate::constants::{
    COOKIE_REPLIES_MAX, COOKIE_REPLY_SPACING, RATELIMIT_BUCKETS, RATELIMIT_BURST, RATELIMIT_PER_SECOND,
};
use crate::{Boottime, Entropy, draw};

/// Buckets that share one place of the table.
const WAYS: usize = 8;
const SETS: usize = RATELIMIT_BUCKETS / WAYS;

const COST: Duration = Duration::from_millis(1000 / RATELIMIT_PER_SECOND as u64);
const ALLOWANCE: Duration = COST.saturating_mul(RATELIMIT_BURST);

const _: () = assert!(SETS.is_power_of_two() && COOKIE_REPLIES_MAX.is_power_of_two());
const _: () = assert!(size_of::<[Bucket; RATELIMIT_BUCKETS]>() <= 256 << 10);

/// Counts handshakes per IPv4 address or IPv6 /64.
#[derive(Default)]
pub(crate) struct Limiter {
    /// Made when it is first needed: most devices are never under load.
    table: Option<Table>,
}

struct Table {
    buckets: Box<[Bucket]>,
    seed: Seed,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// The address and its family.
    address: u64,
    v6: bool,
    /// When the bucket will be full again.
    full_at: Boottime,
}

impl Limiter {
    /// Takes a token of `address`; false if it has none left, or if its place in the table is
    /// taken by addresses that are all busy.
    pub(crate) fn allow(&mut self, now: Boottime, rng: &mut dyn Entropy, address: IpAddr) -> bool {
        let table = self.table.get_or_insert_with(|| Table {
            buckets: vec![Bucket::default(); RATELIMIT_BUCKETS].into_boxed_slice(),
            seed: Seed::draw(rng),
        });
        let (v6, address) = network(address);
        let set = table.set(v6, address);
        let known = set.iter().position(|b| b.address == address && b.v6 == v6);
        let Some(place) = known.or_else(|| set.iter().position(|b| b.full_at <= now)) else { return false };
        // An empty or refilled bucket counts from now; the stamp is the bucket's debt.
        let full_at = set[place].full_at.max(now).after(COST);
        if full_at > now.after(ALLOWANCE) {
            return false;
        }
        set[place] = Bucket { address, v6, full_at };
        true
    }
}

impl Table {
    fn set(&mut self, v6: bool, address: u64) -> &mut [Bucket] {
        let set = self.seed.spread(v6, address) % SETS;
        &mut self.buckets[set * WAYS..][..WAYS]
    }
}

/// Counts cookie replies per IPv4 address or IPv6 /64.
#[derive(Default)]
pub(crate) struct Courtesy {
    period: Option<Period>,
}

/// Who was sent a cookie reply since it began.
struct Period {
    began: Boottime,
    /// Another one each time, so that whoever shares a place with an attacker does not for long.
    seed: Seed,
    served: Box<[u64]>,
}

impl Courtesy {
    /// Whether `address` may be sent a cookie reply; false if it, or one in its place, was sent one
    /// less than [`COOKIE_REPLY_SPACING`] ago.
    pub(crate) fn allow(&mut self, now: Boottime, rng: &mut dyn Entropy, address: IpAddr) -> bool {
        let period = self.period.get_or_insert_with(|| Period::new(now, rng));
        if now.since(period.began) >= COOKIE_REPLY_SPACING {
            (period.began, period.seed) = (now, Seed::draw(rng));
            period.served.fill(0);
        }
        period.serve(address)
    }
}

impl Period {
    fn new(began: Boottime, rng: &mut dyn Entropy) -> Self {
        Self { began, seed: Seed::draw(rng), served: vec![0; COOKIE_REPLIES_MAX / 64].into_boxed_slice() }
    }

    fn serve(&mut self, address: IpAddr) -> bool {
        let (v6, address) = network(address);
        let place = self.seed.spread(v6, address) % COOKIE_REPLIES_MAX;
        let (word, bit) = (&mut self.served[place / 64], 1 << (place % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

/// Unknown to outsiders, so that nobody can choose addresses that share a place.
struct Seed([u64; 2]);

impl Seed {
    fn draw(rng: &mut dyn Entropy) -> Self {
        Self([u64::from_le_bytes(draw(rng)), u64::from_le_bytes(draw(rng))])
    }

    /// The place of an address among 2^32.
    fn spread(&self, v6: bool, address: u64) -> usize {
        // Multiply-mix with secret constants: cheap, and good enough to keep outsiders from
        // predicting a place.
        let mixed = u128::from(address ^ self.0[0]) * u128::from(self.0[1] | 1) + u128::from(v6);
        (((mixed ^ mixed >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}

/// What addresses are told apart by: the family, and the address or its /64.
fn network(address: IpAddr) -> (bool, u64) {
    match address {
        IpAddr::V4(ip) => (false, u64::from(ip.to_bits())),
        IpAddr::V6(ip) => (true, (ip.to_bits() >> 64) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    struct Fixed;

    impl Entropy for Fixed {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(0xa7);
        }
    }

    /// No two of its bytes in a row are alike, as in a seed that spreads well.
    struct Uneven(u8);

    impl Entropy for Uneven {
        fn fill(&mut self, bytes: &mut [u8]) {
            for byte in bytes {
                self.0 = self.0.wrapping_mul(77).wrapping_add(41);
                *byte = self.0;
            }
        }
    }

    const START: Boottime = Boottime::from_secs(100);

    fn v4(address: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(address))
    }

    #[test]
    fn an_address_has_a_burst_of_five_and_twenty_per_second() {
        let mut limiter = Limiter::default();
        for (ms, allowed) in [(0, 5), (49, 0), (50, 1), (99, 0), (350, 5), (10_000, 5)] {
            let now = START.after(Duration::from_millis(ms));
            let granted = (0..20).filter(|_| limiter.allow(now, &mut Fixed, v4(1))).count();
            assert_eq!(granted, allowed, "at {ms} ms");
        }
        let mut granted = 0;
        for ms in 20_000..30_000 {
            granted += usize::from(limiter.allow(START.after(Duration::from_millis(ms)), &mut Fixed, v4(1)));
        }
        assert!((200..=205).contains(&granted), "{granted} in 10 s");
    }

    #[test]
    fn addresses_do_not_share_a_bucket_but_an_ipv6_network_does() {
        let mut limiter = Limiter::default();
        let mut granted = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            (0..10).filter(|_| limiter.allow(START, &mut Fixed, ip)).count()
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
        let mut limiter = Limiter::default();
        let first = (0..100_000).filter(|&i| limiter.allow(START, &mut Fixed, v4(i))).count();
        assert!(first <= RATELIMIT_BUCKETS && first > RATELIMIT_BUCKETS * 9 / 10, "{first} addresses fit");
        let later = START.after(COST);
        let second = (100_000..200_000).filter(|&i| limiter.allow(later, &mut Fixed, v4(i))).count();
        assert!(second <= RATELIMIT_BUCKETS && second > RATELIMIT_BUCKETS * 9 / 10);
        assert_eq!(limiter.table.unwrap().buckets.len(), RATELIMIT_BUCKETS);
    }

    #[test]
    fn a_few_thousand_busy_addresses_find_room() {
        let mut limiter = Limiter::default();
        let granted = (0..3000u128)
            .filter(|&i| limiter.allow(START, &mut Fixed, IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | i << 64))))
            .count();
        assert!(granted >= 2950, "{granted} of 3000");
    }

    #[test]
    fn an_address_has_one_cookie_reply_per_second() {
        let mut courtesy = Courtesy::default();
        for (ms, allowed) in [(0, true), (0, false), (999, false), (1000, true), (1001, false), (60_000, true)] {
            let now = START.after(Duration::from_millis(ms));
            assert_eq!(courtesy.allow(now, &mut Fixed, v4(1)), allowed, "at {ms} ms");
        }
        let now = START.after(Duration::from_secs(60));
        let mut allow = |ip: &str| courtesy.allow(now, &mut Fixed, ip.parse().unwrap());
        assert!(allow("2001:db8::1") && !allow("2001:db8:0:0:ffff::") && allow("2001:db8:0:1::"));
    }

    #[test]
    fn forged_sources_have_a_bounded_number_of_cookie_replies() {
        let mut courtesy = Courtesy::default();
        let granted = (0..1_000_000).filter(|&i| courtesy.allow(START, &mut Fixed, v4(i))).count();
        assert!(granted <= COOKIE_REPLIES_MAX && granted > COOKIE_REPLIES_MAX * 9 / 10, "{granted}");
    }

    #[test]
    fn most_addresses_have_a_cookie_reply_beside_ten_thousand_others() {
        let (mut courtesy, rng) = (Courtesy::default(), &mut Uneven(1));
        let others = (0..10_000).filter(|&i| courtesy.allow(START, rng, v4(i))).count();
        assert!(others > 8000, "{others}");
        let granted = (10_000..11_000).filter(|&i| courtesy.allow(START, rng, v4(i))).count();
        assert!(granted > 600, "{granted} of 1000");
    }
}
