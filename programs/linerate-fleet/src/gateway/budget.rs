//! What forged datagrams may cost: initiations toward sources that nobody has verified.
//!
//! An index can be made up, and so can a source address. So such initiations are few in all and few for each address, and
//! no address is sent more bytes than came from it. What is kept of sources is bounded: if there are more, they wait.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// An initiation on the wire.
pub const INITIATION: u32 = 148;
/// Initiations in a second, toward all sources and because of them.
pub const PER_SECOND: u32 = 200;
/// Those of one source: an IPv4 address, 64 bits of an IPv6 address.
pub const PER_SOURCE: u32 = 10;
/// Sources and addresses that are remembered.
pub const SOURCES_MAX: usize = 4096;

const SECOND: Duration = Duration::from_secs(1);
/// What an address has sent counts for this long.
const CREDIT_LASTS: Duration = Duration::from_secs(10);
/// What an address may have saved up.
const CREDIT_MAX: u32 = 10 * INITIATION;

/// The budget of a gateway.
#[derive(Default)]
pub struct Budget {
    /// The second that `spent` and `sources` are of.
    second: Duration,
    spent: u32,
    sources: HashMap<IpAddr, u32>,
    credits: HashMap<IpAddr, Credit>,
    swept: Duration,
}

struct Credit {
    bytes: u32,
    last: Duration,
}

impl Budget {
    /// Notes what came from an address.
    pub fn received(&mut self, now: Duration, source: IpAddr, bytes: usize) {
        if self.credits.len() >= SOURCES_MAX && !self.credits.contains_key(&source) {
            if now < self.swept + SECOND {
                return;
            }
            self.swept = now;
            self.credits.retain(|_, credit| now < credit.last + CREDIT_LASTS);
            if self.credits.len() >= SOURCES_MAX {
                return;
            }
        }
        let credit = self.credits.entry(source).or_insert(Credit { bytes: 0, last: now });
        if now >= credit.last + CREDIT_LASTS {
            credit.bytes = 0;
        }
        credit.last = now;
        credit.bytes = credit.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX)).min(CREDIT_MAX);
    }

    /// Takes an initiation toward `source` out of the budget; false if there is none left.
    pub fn spend_toward(&mut self, now: Duration, source: IpAddr) -> bool {
        let enough = self.credits.get(&source).is_some_and(|credit| credit.bytes >= INITIATION);
        if !enough || !self.spend_because_of(now, source) {
            return false;
        }
        if let Some(credit) = self.credits.get_mut(&source) {
            credit.bytes -= INITIATION;
        }
        true
    }

    /// Takes an initiation out of the budget that goes to where the peer is known to be, though this source asked for it.
    pub fn spend_because_of(&mut self, now: Duration, source: IpAddr) -> bool {
        if now >= self.second + SECOND {
            self.second = now;
            self.spent = 0;
            self.sources.clear();
        }
        if self.spent >= PER_SECOND {
            return false;
        }
        // At most PER_SECOND entries, as each has spent one.
        let of_source = self.sources.entry(network(source)).or_default();
        if *of_source >= PER_SOURCE {
            return false;
        }
        *of_source += 1;
        self.spent += 1;
        true
    }
}

/// What one sender can have any number of addresses in.
fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_is_never_sent_more_than_came_from_it() {
        let (mut budget, source) = (Budget::default(), "192.0.2.1".parse().unwrap());
        budget.received(Duration::ZERO, source, 147);
        assert!(!budget.spend_toward(Duration::ZERO, source));
        budget.received(Duration::ZERO, source, 1);
        assert!(budget.spend_toward(Duration::ZERO, source));
        assert!(!budget.spend_toward(Duration::ZERO, source));
    }

    #[test]
    fn addresses_of_one_network_share_a_budget() {
        let mut budget = Budget::default();
        let spent =
            (0..100u128).filter(|n| budget.spend_because_of(Duration::ZERO, IpAddr::V6(Ipv6Addr::from_bits(*n))));
        assert_eq!(spent.count(), PER_SOURCE as usize);
    }

    proptest! {
        #[test]
        fn any_flood_costs_no_more_than_the_budget(
            flood in prop::collection::vec((any::<u32>(), 0u16..1500, 0u64..3), 0..3000),
        ) {
            let (mut budget, mut now, mut spent, mut second) = (Budget::default(), Duration::ZERO, 0, Duration::ZERO);
            let mut balance: HashMap<IpAddr, i64> = HashMap::new();
            for (source, bytes, later) in flood {
                now += Duration::from_millis(later);
                let source = IpAddr::V4((source % 10_000).into());
                budget.received(now, source, bytes.into());
                *balance.entry(source).or_default() += i64::from(bytes);
                if now >= second + SECOND {
                    (second, spent) = (now, 0);
                }
                if budget.spend_toward(now, source) {
                    spent += 1;
                    *balance.entry(source).or_default() -= i64::from(INITIATION);
                    prop_assert!(balance[&source] >= 0);
                }
                // Two windows may touch.
                prop_assert!(spent <= 2 * PER_SECOND);
                prop_assert!(budget.credits.len() <= SOURCES_MAX && budget.sources.len() <= PER_SECOND as usize);
            }
        }
    }
}
