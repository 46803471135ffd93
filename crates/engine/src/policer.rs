//! Holds a peer to its rate: a policer for each direction. It delays nothing, so it has no queue and no timer; a packet
//! over the rate is dropped, and an ECN-capable packet is marked before that.
//!
//! A policer is a virtual queue that drains at the rate. Two things are on top of a plain token bucket, because one TCP
//! connection over a long path gets only nine tenths of a plain bucket's rate:
//!
//! - After a loss, TCP sends less than the rate for seconds. What it left unused is a credit of up to [`CREDIT`]. A peer
//!   that was at rest has none.
//! - Credit is spent at the peak rate, [`PEAK`] of the rate, so that it never becomes a burst.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use linerate_protocol::Boottime;

use crate::config::{RATE_MAX, RATE_MIN};
use crate::sync::lock;

/// Parts of a nanosecond in which times are kept here: a short packet takes 5 ns at the greatest rate.
const TICKS: u64 = 16;

/// The virtual queue's length as its time at the rate, 20 ms: what a peer may send at once.
const QUEUE: u64 = 20_000_000 * TICKS;

/// The queue holds at least this many bytes: two TCP connections begin with ten packets each.
const QUEUE_MIN: u64 = 30_000;

/// The time at the rate that a peer may catch up on, 0.5 s.
const CREDIT: u64 = 500_000_000 * TICKS;

/// Tenths of the rate at which it does: CUBIC falls to 0.7 of its peak, and averages 0.925 of it.
const PEAK: u64 = 12;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Pass,
    /// It passes, and its sender is to learn of congestion.
    Mark,
    /// It is dropped.
    Drop,
}

/// One direction of a peer. Several workers may carry its packets at once, so the state is locked, for a few
/// instructions and only where there is a rate.
#[derive(Default)]
pub struct Policer {
    /// Bits per second; 0 for none.
    rate: AtomicU64,
    state: Mutex<State>,
}

/// Ticks since boot.
#[derive(Default)]
struct State {
    /// When the virtual queue is empty that drains at the rate.
    average: u64,
    /// The same at the peak rate.
    peak: u64,
    /// When the last packet came.
    last: u64,
}

impl Policer {
    /// Bits per second of inner packets.
    pub fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// Sets that, within the bounds. At another rate the virtual queue begins empty: a full one of a low rate would take
    /// seconds to drain, and no packet would pass meanwhile.
    pub fn set_rate(&self, rate: Option<u64>) {
        let rate = rate.map_or(0, |rate| rate.clamp(RATE_MIN, RATE_MAX));
        if self.rate.swap(rate, Ordering::Relaxed) != rate {
            *lock(&self.state) = State::default();
        }
    }

    /// Decides about an inner packet of `len` bytes with these ECN bits, which is there at `now`.
    #[inline]
    pub fn admit(&self, len: usize, ecn: u8, now: Boottime) -> Verdict {
        match self.rate.load(Ordering::Relaxed) {
            0 => Verdict::Pass,
            rate => lock(&self.state).admit(rate, len, ecn, now),
        }
    }
}

impl State {
    #[cold]
    fn admit(&mut self, rate: u64, len: usize, ecn: u8, now: Boottime) -> Verdict {
        // Another worker's batch may have begun later.
        let now = (now.0 * TICKS).max(self.last);
        let credit = if now - self.last < CREDIT { CREDIT } else { 0 };
        self.last = now;
        self.average = self.average.max(now.saturating_sub(credit));
        self.peak = self.peak.max(now);
        let queue = QUEUE.max(ticks(QUEUE_MIN, rate));
        // The packet's own length does not count, so that one longer than the queue can pass.
        let waiting = self.average.max(self.peak) - now;
        if waiting > queue {
            return Verdict::Drop;
        }
        let time = ticks(len as u64, rate);
        self.average += time;
        self.peak += (time * 10).div_ceil(PEAK);
        if ecn != 0 && waiting > queue / 2 { Verdict::Mark } else { Verdict::Pass }
    }
}

/// The ticks that bytes take at a rate. Rounded up: never faster than the rate.
fn ticks(bytes: u64, rate: u64) -> u64 {
    (bytes * 8_000_000_000 * TICKS).div_ceil(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const LONGEST: u64 = 65_535;

    fn policer(rate: u64) -> Policer {
        let policer = Policer::default();
        policer.set_rate(Some(rate));
        policer
    }

    fn passes(policer: &Policer, len: usize, at: u64) -> bool {
        policer.admit(len, 0, Boottime(at)) != Verdict::Drop
    }

    /// Bytes that pass when a packet of this length comes as often as it would at `offered` bits per second.
    fn carried(policer: &Policer, offered: u64, len: usize, from: u64, nanoseconds: u64) -> u64 {
        let step = (ticks(len as u64, offered) / TICKS).max(1);
        (0..nanoseconds / step).map(|i| if passes(policer, len, from + i * step) { len as u64 } else { 0 }).sum()
    }

    /// What a rate may carry in this time besides what it can at once.
    fn share(rate: u64, nanoseconds: u64) -> u64 {
        (u128::from(rate) * u128::from(nanoseconds) / 8_000_000_000) as u64
    }

    /// What may pass at once.
    fn queue(rate: u64) -> u64 {
        share(rate, QUEUE / TICKS).max(QUEUE_MIN)
    }

    #[test]
    fn without_a_rate_everything_passes_and_nothing_is_kept() {
        let policer = Policer::default();
        assert!((0..1000).all(|_| policer.admit(1500, 2, Boottime(5)) == Verdict::Pass));
        assert_eq!(lock(&policer.state).last, 0);
    }

    #[test]
    fn too_much_becomes_the_rate_at_every_rate() {
        for rate in [RATE_MIN, 1_000_000, 20_000_000, 1_000_000_000, RATE_MAX] {
            let policer = policer(rate);
            // The queue fills first.
            let begin = if rate > 1_000_000 { SECOND / 10 } else { 4 * SECOND };
            carried(&policer, 3 * rate, 1420, SECOND, begin);
            let seconds = if rate > 1_000_000_000 { 1 } else { 20 };
            let bytes = carried(&policer, 3 * rate, 1420, SECOND + begin, seconds * SECOND);
            let share = share(rate, seconds * SECOND);
            assert!(bytes <= share + 1420 && bytes + share / 500 + 1420 >= share, "{rate}: {bytes} of {share}");
        }
    }

    #[test]
    fn less_than_the_rate_loses_nothing() {
        for rate in [RATE_MIN, 1_000_000, 1_000_000_000] {
            let policer = policer(rate);
            let step = ticks(1420, rate) / TICKS + 1;
            assert!((0..1000).all(|i| policer.admit(1420, 2, Boottime(SECOND + i * step)) == Verdict::Pass), "{rate}");
        }
    }

    #[test]
    fn what_was_left_unused_in_a_stream_is_caught_up_and_a_rest_is_not() {
        let rate = 100_000_000;
        let policer = policer(rate);
        carried(&policer, 2 * rate, 1420, SECOND, SECOND);
        carried(&policer, rate * 7 / 10, 1420, 2 * SECOND, SECOND);
        let after_less = carried(&policer, 2 * rate, 1420, 3 * SECOND, SECOND);
        assert!(after_less > share(rate, SECOND) * 109 / 100, "{after_less}");
        let after_rest = carried(&policer, 2 * rate, 1420, 10 * SECOND, SECOND);
        assert!(after_rest <= share(rate, SECOND) + queue(rate) + LONGEST, "{after_rest}");
    }

    #[test]
    fn packets_that_can_be_marked_are_marked_before_any_is_dropped() {
        let policer = policer(20_000_000);
        let verdicts: Vec<_> = (0..100).map(|_| policer.admit(1420, 2, Boottime(SECOND))).collect();
        let count = |verdict| verdicts.iter().filter(|seen| **seen == verdict).count();
        assert!(verdicts.is_sorted_by_key(|verdict| *verdict as usize));
        assert!(count(Verdict::Mark) >= count(Verdict::Pass) / 2 && count(Verdict::Drop) > 0, "{verdicts:?}");
    }

    #[test]
    fn a_packet_longer_than_the_queue_passes() {
        assert!(passes(&policer(RATE_MIN), LONGEST as usize, SECOND));
    }

    #[test]
    fn a_rate_that_changes_is_the_rate_at_once() {
        let policer = policer(1_000_000);
        carried(&policer, 100_000_000, 1420, SECOND, SECOND);
        policer.set_rate(Some(100_000_000));
        let bytes = carried(&policer, 200_000_000, 1420, 2 * SECOND, SECOND);
        assert!(bytes >= share(100_000_000, SECOND), "{bytes}");
        policer.set_rate(None);
        assert!((0..1000).all(|_| passes(&policer, 1420, 4 * SECOND)));
        policer.set_rate(Some(1_000_000));
        let bytes = carried(&policer, 200_000_000, 1420, 5 * SECOND, SECOND);
        assert!(bytes <= share(1_000_000, SECOND) + queue(1_000_000) + LONGEST, "{bytes}");
    }

    #[test]
    fn several_workers_share_one_rate() {
        let rate = 50_000_000;
        let policer = policer(rate);
        let worker = |_| carried(&policer, 3 * rate, 1420, SECOND, SECOND);
        let bytes: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|number| scope.spawn(move || worker(number))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!(bytes <= share(rate, SECOND) + queue(rate) + LONGEST, "{bytes}");
    }

    proptest! {
        /// Over any stretch of any sequence: no more than the rate and the credit, and no more than the peak rate, each
        /// with what may pass at once. Times may go back, as batches of several workers overlap.
        #[test]
        fn no_stretch_carries_more_than_the_rate_and_a_burst(
            rate in prop_oneof![RATE_MIN..1_000_000, RATE_MIN..=RATE_MAX],
            packets in proptest::collection::vec(
                (prop_oneof![0..1000u64, 0..20_000_000u64, 0..2_000_000_000u64], 0..100_000u64, 0..=LONGEST, 0..4u8),
                1..300,
            ),
        ) {
            let policer = policer(rate);
            let (mut time, mut latest) = (SECOND, 0);
            let mut passed = Vec::new();
            for (step, back, len, ecn) in packets {
                time += step;
                let at = time - back.min(time - SECOND);
                latest = at.max(latest);
                let verdict = policer.admit(len as usize, ecn, Boottime(at));
                prop_assert!(verdict != Verdict::Mark || ecn != 0);
                passed.push((latest, if verdict == Verdict::Drop { 0 } else { len }));
            }
            for start in 0..passed.len() {
                let mut bytes = 0;
                for &(end, len) in &passed[start..] {
                    bytes += len;
                    let at_once = queue(rate) + LONGEST + 1;
                    let nanoseconds = end - passed[start].0;
                    prop_assert!(bytes <= share(rate, nanoseconds + CREDIT / TICKS) + at_once);
                    prop_assert!(bytes <= (share(rate, nanoseconds) + at_once) * PEAK / 10 + 1);
                }
            }
        }
    }
}
