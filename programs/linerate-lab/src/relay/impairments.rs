//! Decides what becomes of each datagram on a bad network: a pure function of the seed, the datagrams and
//! the time it is told. It never looks at a clock or a socket.

use std::collections::BinaryHeap;
use std::time::Duration;

use serde::Serialize;

/// How long a datagram is held back at most so that others overtake it, which happens from a thousand datagrams per
/// second on.
const HOLD: Duration = Duration::from_millis(5);

/// Datagrams under way in one direction. With 64 KB each this is at most 1 GB, at 1500 bytes 25 MB.
const CAPACITY: usize = 16 * 1024;

/// What a network does to datagrams. The default does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Impairments {
    /// Share of datagrams lost, 0 to 1.
    pub loss: f64,
    /// Share of datagrams delivered twice, 0 to 1.
    pub duplicate: f64,
    /// Share of datagrams held back so that later ones overtake them, 0 to 1.
    pub reorder: f64,
    /// Time under way.
    pub delay: Duration,
    /// By how much the time under way varies, up and down. Order is lost where it exceeds the distance
    /// between two datagrams.
    pub jitter: Duration,
    /// The largest IP packet that passes, in bytes, headers included; larger ones are dropped silently, as by a
    /// router whose ICMP is filtered.
    pub mtu: Option<u32>,
}

/// What became of the datagrams of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Datagrams that came in.
    pub received: u64,
    /// Datagrams that went out, copies included.
    pub delivered: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Delivered twice on purpose.
    pub duplicated: u64,
    /// Held back on purpose.
    pub reordered: u64,
    /// Larger than the path.
    pub too_big: u64,
    /// Dropped because too many were under way.
    pub overflowed: u64,
}

/// One direction of the network, with the datagrams under way.
#[derive(Debug)]
pub(super) struct Line<T> {
    impairments: Impairments,
    rng: fastrand::Rng,
    counts: Counts,
    under_way: BinaryHeap<UnderWay<T>>,
}

impl<T: Clone> Line<T> {
    pub(super) fn new(impairments: Impairments, seed: u64) -> Self {
        Self {
            impairments,
            rng: fastrand::Rng::with_seed(seed),
            counts: Counts::default(),
            under_way: BinaryHeap::new(),
        }
    }

    /// Takes in a datagram of `size` bytes, IP header included, at the time `now`.
    pub(super) fn take(&mut self, now: Duration, size: usize, datagram: T) {
        self.counts.received += 1;
        // Every datagram draws the same number of random numbers, so its fate does not depend on that of others.
        let [lost, twice, held, first, second] = std::array::from_fn(|_| self.rng.f64());
        if self.impairments.mtu.is_some_and(|mtu| size > mtu as usize) {
            self.counts.too_big += 1;
            return;
        }
        if lost < self.impairments.loss {
            self.counts.lost += 1;
            return;
        }
        let mut time = self.time_under_way(first);
        if held < self.impairments.reorder {
            self.counts.reordered += 1;
            time += HOLD.mul_f64(0.2 + 0.8 * second);
        }
        if twice < self.impairments.duplicate {
            self.counts.duplicated += 1;
            self.send(now + self.time_under_way(second), datagram.clone());
        }
        self.send(now + time, datagram);
    }

    /// The next datagram whose time has come.
    pub(super) fn deliver(&mut self, now: Duration) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        self.counts.delivered += 1;
        self.under_way.pop().map(|arrived| arrived.datagram)
    }

    /// When the next datagram arrives.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.under_way.peek().map(|next| next.due)
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    fn time_under_way(&self, roll: f64) -> Duration {
        let varied = self.impairments.delay.as_secs_f64() + self.impairments.jitter.as_secs_f64() * (2.0 * roll - 1.0);
        Duration::from_secs_f64(varied.max(0.0))
    }

    fn send(&mut self, due: Duration, datagram: T) {
        if self.under_way.len() == CAPACITY {
            self.counts.overflowed += 1;
            return;
        }
        let number = self.counts.received;
        self.under_way.push(UnderWay { due, number, datagram });
    }
}

#[derive(Debug)]
struct UnderWay<T> {
    due: Duration,
    number: u64,
    datagram: T,
}

impl<T> Ord for UnderWay<T> {
    /// The greatest is the one to arrive next; among equals the one that came first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl<T> PartialOrd for UnderWay<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for UnderWay<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for UnderWay<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DATAGRAMS: u32 = 4000;
    const SIZE: usize = 1480;

    proptest! {
        #[test]
        fn the_share_lost_and_doubled_is_the_one_asked_for(loss in 0.0..1.0_f64, duplicate in 0.0..1.0_f64, seed: u64) {
            let (_, counts) = pass(Impairments { loss, duplicate, ..Impairments::default() }, seed);
            prop_assert!(is_plausible(counts.lost, u64::from(DATAGRAMS), loss));
            prop_assert!(is_plausible(counts.duplicated, u64::from(DATAGRAMS) - counts.lost, duplicate));
            prop_assert_eq!(counts.delivered, counts.received - counts.lost + counts.duplicated);
        }

        #[test]
        fn reordering_keeps_every_datagram_once(reorder in 0.1..0.9_f64, jitter in 0..20_u64, seed: u64) {
            let jitter = Duration::from_millis(jitter);
            let (mut arrived, _) = pass(Impairments { reorder, jitter, delay: jitter, ..Impairments::default() }, seed);
            let numbers = |arrived: &[(Duration, u32)]| arrived.iter().map(|(_, number)| *number).collect::<Vec<_>>();
            prop_assert!(!numbers(&arrived).is_sorted());
            arrived.sort_by_key(|(_, number)| *number);
            prop_assert_eq!(numbers(&arrived), (0..DATAGRAMS).collect::<Vec<_>>());
        }

        #[test]
        fn delay_alone_keeps_order_and_is_exact(delay in 0..100_000_u64, seed: u64) {
            let delay = Duration::from_micros(delay);
            let (arrived, _) = pass(Impairments { delay, ..Impairments::default() }, seed);
            let expected: Vec<_> = (0..DATAGRAMS).map(|number| (sent_at(number) + delay, number)).collect();
            prop_assert_eq!(arrived, expected);
        }

        #[test]
        fn jitter_stays_within_its_bounds(delay in 0..50_u64, jitter in 0..50_u64, seed: u64) {
            let (delay, jitter) = (Duration::from_millis(delay), Duration::from_millis(jitter));
            let (arrived, _) = pass(Impairments { delay, jitter, ..Impairments::default() }, seed);
            for (at, number) in arrived {
                let under_way = at - sent_at(number);
                prop_assert!(under_way >= delay.saturating_sub(jitter) && under_way <= delay + jitter);
            }
        }

        #[test]
        fn one_seed_makes_the_same_impairments(seed: u64) {
            let impairments = Impairments { loss: 0.1, duplicate: 0.1, reorder: 0.1, jitter: HOLD, ..Impairments::default() };
            prop_assert_eq!(pass(impairments, seed), pass(impairments, seed));
            prop_assert_ne!(pass(impairments, seed), pass(impairments, seed.wrapping_add(1)));
        }
    }

    #[test]
    fn a_datagram_larger_than_the_path_is_dropped() {
        let mut line = Line::new(Impairments { mtu: Some(1400), ..Impairments::default() }, 1);
        line.take(Duration::ZERO, 1400, "fits");
        line.take(Duration::ZERO, 1401, "does not");
        assert_eq!(line.deliver(Duration::ZERO), Some("fits"));
        assert_eq!(line.deliver(Duration::MAX), None);
        assert_eq!(line.counts().too_big, 1);
    }

    #[test]
    fn more_datagrams_than_the_capacity_are_dropped() {
        let mut line = Line::new(Impairments { delay: Duration::from_secs(1), ..Impairments::default() }, 1);
        (0..=CAPACITY).for_each(|number| line.take(Duration::ZERO, SIZE, number));
        assert_eq!(line.counts().overflowed, 1);
        assert_eq!(line.next_due(), Some(Duration::from_secs(1)));
    }

    /// Sends numbered datagrams through `impairments`; which arrived when, and the counts.
    fn pass(impairments: Impairments, seed: u64) -> (Vec<(Duration, u32)>, Counts) {
        let mut line = Line::new(impairments, seed);
        (0..DATAGRAMS).for_each(|number| line.take(sent_at(number), SIZE, number));
        let mut arrived = Vec::new();
        while let Some(due) = line.next_due() {
            assert_eq!(line.deliver(due.saturating_sub(Duration::from_nanos(1))).filter(|_| !due.is_zero()), None);
            if let Some(number) = line.deliver(due) {
                arrived.push((due, number));
            }
        }
        (arrived, line.counts())
    }

    fn sent_at(number: u32) -> Duration {
        Duration::from_micros(100) * (number + 1)
    }

    /// Whether `count` of `all` is within six standard deviations of the binomial law for `share`.
    fn is_plausible(count: u64, all: u64, share: f64) -> bool {
        let (expected, deviation) = (all as f64 * share, (all as f64 * share * (1.0 - share)).sqrt());
        (count as f64 - expected).abs() <= 6.0 * deviation + 1.0
    }
}
