//! How fast bytes may pass, all connections together.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What was not used for so long is lost: nobody saves up for a burst.
const BURST: Duration = Duration::from_millis(100);

/// The longest piece that passes at once.
pub(super) const LONGEST_PIECE: usize = 64 * 1024;

/// Lets so many bytes pass in a second.
pub(super) struct Pace {
    rate: u64,
    /// When the next piece may pass.
    next: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        Self { rate: rate.max(1), next: Mutex::new(now) }
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Pieces of this size pass at least 50 times a second.
    pub(super) fn piece(&self) -> usize {
        usize::try_from(self.rate / 50).unwrap_or(LONGEST_PIECE).clamp(1024, LONGEST_PIECE)
    }

    /// Waits until the `bytes` that come now, or have come, may pass: for how long.
    pub(super) fn pass(&self, bytes: usize) -> Duration {
        let now = Instant::now();
        let held = self.book(bytes, now).saturating_duration_since(now);
        if held.is_zero() {
            return held;
        }
        thread::sleep(held);
        // A sleep is longer than asked for; on a busy machine, much.
        now.elapsed()
    }

    /// When they may.
    fn book(&self, bytes: usize, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (*next).max(now.checked_sub(BURST).unwrap_or(now));
        *next = at + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_a_second_no_more_passes_than_the_rate_and_a_burst() {
        let now = Instant::now();
        for rate in [125_000, 12_500_000, 1_250_000_000] {
            let pace = Pace::new(rate, now);
            let mut passed = 0;
            while pace.book(pace.piece(), now) < now + Duration::from_secs(1) {
                passed += pace.piece() as u64;
            }
            let most = rate + rate / 10 + pace.piece() as u64;
            assert!((rate..=most).contains(&passed), "{passed} of {rate}");
        }
    }

    #[test]
    fn two_that_share_a_rate_both_wait_for_it() {
        let now = Instant::now();
        let pace = Pace::new(1_000_000, now);
        let half = Duration::from_millis(500);
        let [one, other] = [(); 2].map(|()| (0..5).map(|_| pace.book(100_000, now)).collect::<Vec<_>>());
        assert!(one.iter().all(|at| *at < now + half) && other.iter().all(|at| *at >= now + half - BURST));
        assert_eq!(pace.book(1, now), now + Duration::from_secs(1));
    }
}
