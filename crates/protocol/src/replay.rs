//! Replay protection: which counters of a session were seen (paper section 5.4.6; algorithm of RFC 6479).
//!
//! A ring of bits of fixed size, without keys or time. The engine consults it only after the tag was verified,
//! under the session's lock.

use crate::constants::{REJECT_AFTER_MESSAGES, REPLAY_BITS, REPLAY_USABLE};

const WORDS: usize = (REPLAY_BITS / 64) as usize;

/// A sliding window of 8192 bits, of which the 8128 below the greatest counter are usable.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// One more than the greatest accepted counter; zero: none yet.
    next: u64,
    seen: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { next: 0, seen: [0; WORDS] }
    }
}

impl ReplayWindow {
    /// Whether `counter` is greater than all accepted ones.
    pub fn is_newest(&self, counter: u64) -> bool {
        counter >= self.next
    }

    /// Accepts `counter` once: false if it was accepted before, is older than the window, or is
    /// beyond what a session may use.
    pub fn accept(&mut self, counter: u64) -> bool {
        if counter >= REJECT_AFTER_MESSAGES {
            return false;
        }
        let next = counter + 1;
        if next + REPLAY_USABLE < self.next {
            return false;
        }
        let word = next / 64;
        if next > self.next {
            // The words between the old and the new greatest belong to counters not seen yet.
            let old = self.next / 64;
            for fresh in 1..=(word - old).min(WORDS as u64) {
                self.seen[((old + fresh) % WORDS as u64) as usize] = 0;
            }
            self.next = next;
        }
        let bits = &mut self.seen[(word % WORDS as u64) as usize];
        let bit = 1 << (next % 64);
        let first = *bits & bit == 0;
        *bits |= bit;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    /// The model: all counters ever accepted, and the greatest.
    #[derive(Default)]
    struct Naive {
        greatest: Option<u64>,
        seen: BTreeSet<u64>,
    }

    impl Naive {
        fn accept(&mut self, counter: u64) -> bool {
            if counter >= REJECT_AFTER_MESSAGES || self.greatest.is_some_and(|g| counter + REPLAY_USABLE < g) {
                return false;
            }
            self.greatest = self.greatest.max(Some(counter));
            self.seen.insert(counter)
        }
    }

    /// Steps that stay near the greatest counter, cross words, jump past the window, and go back.
    fn steps() -> impl Strategy<Value = alloc::vec::Vec<i64>> {
        let step = prop_oneof![
            4 => -3i64..4,
            3 => -130i64..130,
            2 => -8200i64..8200,
            1 => Just(-8128i64),
            1 => Just(-8129i64),
            1 => 0i64..100_000,
        ];
        proptest::collection::vec(step, 0..400)
    }

    proptest! {
        #[test]
        fn the_window_equals_a_set_of_all_counters(start in prop_oneof![Just(0u64), Just(REJECT_AFTER_MESSAGES - 9000), any::<u64>()], steps in steps()) {
            let mut window = ReplayWindow::default();
            let mut naive = Naive::default();
            let mut greatest = start;
            for step in steps {
                let counter = greatest.saturating_add_signed(step);
                prop_assert_eq!(window.accept(counter), naive.accept(counter), "counter {}", counter);
                greatest = naive.greatest.unwrap_or(start);
            }
        }
    }

    #[test]
    fn the_oldest_usable_counter_is_accepted_and_older_ones_are_not() {
        let mut window = ReplayWindow::default();
        assert!(window.accept(20_000));
        assert!(window.accept(20_000 - REPLAY_USABLE));
        assert!(!window.accept(20_000 - REPLAY_USABLE));
        assert!(!window.accept(20_000 - REPLAY_USABLE - 1));
    }

    #[test]
    fn zero_is_accepted_once_and_the_limit_never() {
        let mut window = ReplayWindow::default();
        assert!(window.accept(0));
        assert!(!window.accept(0));
        for counter in [REJECT_AFTER_MESSAGES, u64::MAX] {
            assert!(!window.accept(counter));
        }
        assert!(window.accept(REJECT_AFTER_MESSAGES - 1));
        assert!(!window.accept(0));
    }
}
