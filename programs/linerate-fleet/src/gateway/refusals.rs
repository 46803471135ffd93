//! Counts refused messages on a gateway's sockets, and limits the log lines about them.

use std::time::Duration;

/// Time between two log lines: a sender of such messages must not be able to fill the log.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Refused messages.
#[derive(Default)]
pub(super) struct Refusals {
    pub(super) count: u64,
    said: Option<Duration>,
}

impl Refusals {
    /// Counts one. True if a log line about it is due.
    pub(super) fn note(&mut self, now: Duration) -> bool {
        self.count += 1;
        let is_due = self.said.is_none_or(|said| now >= said + SAID_EVERY);
        if is_due {
            self.said = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_refusals_is_one_line_a_minute() {
        let mut refusals = Refusals::default();
        let lines = (0..120_000).filter(|ms| refusals.note(Duration::from_millis(*ms))).count();
        assert_eq!((lines, refusals.count), (2, 120_000));
        assert!(refusals.note(Duration::from_secs(120)));
    }
}
