//! How long a worker looks for packets before it sleeps: where waits are short, waking a thread takes longer than they
//! do. Off unless asked for, because looking takes a core's time.
//!
//! As halt polling of virtual machines (Documentation/virt/kvm/halt-polling.rst), the window grows after a wait that was
//! short and shrinks after a long one, to nothing: at rest nothing looks and nothing wakes. It grows faster than it
//! shrinks, so that it stays open where requests and replies take turns with pauses.

use std::time::Duration;

/// The smallest window: less would not span one wake-up of another thread.
const WINDOW_MIN: u64 = 10_000;

/// The window after the first short wait: one long wait does not close it again.
const WINDOW_FIRST: u64 = 2 * WINDOW_MIN;

/// One worker's window.
#[derive(Debug)]
pub struct SpinWindow {
    max: u64,
    window: u64,
}

impl SpinWindow {
    /// A window of at most `max`; zero turns it off.
    pub fn new(max: Duration) -> Self {
        Self { max: max.as_nanos() as u64, window: 0 }
    }

    /// For how many nanoseconds to look in the next wait.
    pub fn nanos(&self) -> u64 {
        self.window
    }

    /// A wait, looking and sleeping together, took so many nanoseconds.
    pub fn record(&mut self, waited: u64) {
        self.window = match waited <= self.max {
            true => (4 * self.window).max(WINDOW_FIRST).min(self.max),
            false if self.window >= 2 * WINDOW_MIN => self.window / 2,
            false => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 200_000;

    fn window() -> SpinWindow {
        SpinWindow::new(Duration::from_nanos(MAX))
    }

    #[test]
    fn without_a_maximum_it_never_opens() {
        let mut off = SpinWindow::new(Duration::ZERO);
        for waited in [1, 1, 1, MAX] {
            off.record(waited);
            assert_eq!(off.nanos(), 0);
        }
    }

    #[test]
    fn it_opens_while_waits_are_short_and_closes_while_they_are_long() {
        let mut spin = window();
        assert_eq!(spin.nanos(), 0);
        let mut nanos = || {
            spin.record(MAX);
            spin.nanos()
        };
        assert_eq!([nanos(), nanos(), nanos()], [20_000, 80_000, MAX]);
        let mut looked = 0;
        while spin.nanos() > 0 {
            looked += spin.nanos();
            spin.record(MAX + 1);
        }
        assert!(looked <= 2 * MAX, "what going to rest costs");
    }

    #[test]
    fn it_stays_open_where_every_other_wait_is_short() {
        let mut spin = window();
        for _ in 0..20 {
            spin.record(MAX / 2);
            spin.record(1_000_000);
        }
        assert!(spin.nanos() >= MAX / 2, "{spin:?}");
    }
}
