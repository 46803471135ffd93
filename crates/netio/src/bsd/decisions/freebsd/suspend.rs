//! How long a machine was suspended, where the monotonic clock may stop meanwhile and no other runs on.

use std::sync::atomic::{AtomicU64, Ordering};

/// A step of the wall clock that is taken for a suspend. A smaller one may be the clock being set, and no session
/// outlives its time by it.
const SUSPEND_MIN: u64 = 5_000_000_000;

/// The estimate of a process. It only grows: a key that is taken for too old is replaced, one that is taken for too
/// young would be used beyond its time.
pub(crate) struct SuspendEstimate {
    /// What the wall clock was ahead of the monotonic clock; 0 before the first look.
    ahead: AtomicU64,
    total: AtomicU64,
}

impl SuspendEstimate {
    pub(crate) const fn new() -> Self {
        Self { ahead: AtomicU64::new(0), total: AtomicU64::new(0) }
    }

    /// Nanoseconds of all suspends that were noticed.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Compares the clocks, in nanoseconds.
    pub(crate) fn observe(&self, wall: u64, monotonic: u64) -> u64 {
        let ahead = wall.saturating_sub(monotonic).max(1);
        // One of several observers sees each step.
        let before = self.ahead.swap(ahead, Ordering::Relaxed);
        let step = ahead.saturating_sub(before);
        if before != 0 && step >= SUSPEND_MIN {
            self.total.fetch_add(step, Ordering::Relaxed);
        }
        self.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn only_a_large_step_forward_of_the_wall_clock_is_a_suspend() {
        let estimate = SuspendEstimate::new();
        let epoch = 1_800_000_000 * SECOND;
        assert_eq!(estimate.observe(epoch, SECOND), 0, "the first look has nothing to compare with");
        assert_eq!(estimate.observe(epoch + 100 * SECOND, 101 * SECOND), 0, "both ran");
        assert_eq!(estimate.observe(epoch + 104 * SECOND, 101 * SECOND), 0, "the clock was set by little");
        assert_eq!(estimate.observe(epoch + 1104 * SECOND, 102 * SECOND), 999 * SECOND);
        assert_eq!(estimate.observe(epoch, 103 * SECOND), 999 * SECOND, "a clock that is set back takes nothing away");
        assert_eq!(estimate.total(), 999 * SECOND);
    }
}
