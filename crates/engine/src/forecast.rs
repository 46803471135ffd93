//! Whether a read is likely to find something, judged by the last ones: where it has been in vain twice in a row, only
//! one in [`RETRY`] is still made. Whoever leaves one out must not depend on it: the wait that follows is
//! level-triggered.

/// Reads in vain after which most are left out.
const MISSES_MAX: u8 = 2;

/// One in so many is made all the same, to notice that the traffic has changed.
pub const RETRY: u8 = 8;

/// A forecast for one kind of read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forecast {
    misses: u8,
    left_out: u8,
}

impl Forecast {
    /// Whether to make the next read.
    pub fn is_worth_a_read(&mut self) -> bool {
        if self.misses < MISSES_MAX {
            return true;
        }
        self.left_out = (self.left_out + 1) % RETRY;
        self.left_out == 0
    }

    /// Records whether a read found something.
    pub fn record(&mut self, found: bool) {
        self.misses = if found { 0 } else { MISSES_MAX.min(self.misses + 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_vain_become_rare_until_one_finds_something() {
        let mut forecast = Forecast::default();
        for _ in 0..MISSES_MAX {
            assert!(forecast.is_worth_a_read());
            forecast.record(false);
        }
        for _ in 0..3 {
            let made = (0..RETRY).filter(|_| forecast.is_worth_a_read()).count();
            assert_eq!(made, 1);
            forecast.record(false);
        }
        forecast.record(true);
        assert!(forecast.is_worth_a_read());
    }
}
