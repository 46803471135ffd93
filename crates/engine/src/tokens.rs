//! A token bucket for what packets cause: ICMP errors, log lines.

use linerate_protocol::Boottime;

/// A token bucket that all workers share.
#[derive(Debug)]
pub struct Tokens {
    left: u32,
    filled: Boottime,
}

/// Tokens per second, and the largest burst.
const RATE: u32 = 100;
const FILL: u64 = 1_000_000_000 / RATE as u64;

impl Default for Tokens {
    fn default() -> Self {
        Self { left: RATE, filled: Boottime(0) }
    }
}

impl Tokens {
    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Boottime) -> bool {
        let earned = now.0.saturating_sub(self.filled.0) / FILL;
        if earned > 0 {
            self.left = RATE.min(self.left.saturating_add(earned.min(RATE.into()) as u32));
            self.filled = now;
        }
        let had = self.left > 0;
        self.left -= u32::from(had);
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_in_a_burst_and_then_at_their_rate() {
        let mut tokens = Tokens::default();
        let start = Boottime(77 * FILL);
        let burst = (0..1000).filter(|_| tokens.take(start)).count();
        assert_eq!(burst, RATE as usize);
        assert!(!tokens.take(Boottime(start.0 + FILL - 1)));
        assert!(tokens.take(Boottime(start.0 + FILL)));
        assert!(!tokens.take(Boottime(start.0 + FILL)));
    }
}
