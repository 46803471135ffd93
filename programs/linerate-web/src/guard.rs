//! Limits wrong tokens: each failure doubles the wait of its source, and all sources together are limited, too. A right
//! token is never delayed. Log lines about guesses are limited as well, so that guesses cannot fill the journal.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The wait of a source after its first failure, and the maximum.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(300);

/// The wait that each failure, and each log line about one, adds for all sources together, and its maximum.
const TOTAL_WAIT: Duration = Duration::from_secs(1);
const MAX_TOTAL_WAIT: Duration = Duration::from_secs(20);

/// Maximum number of stored sources. Beyond it, sources whose wait is over are removed, or all if there are none.
const MAX_SOURCES: usize = 4096;

/// Failures of late.
#[derive(Default)]
pub(crate) struct Guard {
    sources: HashMap<Option<IpAddr>, Failures>,
    total: Option<Instant>,
    lines: Option<Instant>,
    /// Refusals without a line since the last one.
    unsaid: u64,
}

struct Failures {
    count: u32,
    until: Instant,
}

impl Guard {
    /// Whether `source` may try at `now`; if not, how long it has to wait.
    pub(crate) fn admit(&self, source: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let failures = self.sources.get(&source.map(network));
        match failures.map_or(Duration::ZERO, |failures| failures.until.duration_since(now)) {
            Duration::ZERO => Ok(()),
            wait => Err(wait),
        }
    }

    /// Whether there were so few failures of late that one more is answered; if not, how long all have to wait.
    pub(crate) fn admit_failure(&self, now: Instant) -> Result<(), Duration> {
        match outstanding(self.total, now).saturating_sub(MAX_TOTAL_WAIT) {
            Duration::ZERO => Ok(()),
            wait => Err(wait),
        }
    }

    /// Whether a refusal is worth a line in the journal, and how many since the last line were not.
    pub(crate) fn line(&mut self, now: Instant) -> Option<u64> {
        let outstanding = outstanding(self.lines, now);
        if outstanding >= MAX_TOTAL_WAIT {
            self.unsaid += 1;
            return None;
        }
        self.lines = Some(now + outstanding + TOTAL_WAIT);
        Some(std::mem::take(&mut self.unsaid))
    }

    /// `source` tried with what is no token.
    pub(crate) fn failed(&mut self, source: Option<IpAddr>, now: Instant) {
        if self.sources.len() >= MAX_SOURCES {
            self.sources.retain(|_, failures| failures.until > now);
            if self.sources.len() >= MAX_SOURCES {
                self.sources.clear();
            }
        }
        let failures = self.sources.entry(source.map(network)).or_insert(Failures { count: 0, until: now });
        // One who was quiet for long starts anew.
        if now.duration_since(failures.until) > MAX_WAIT {
            failures.count = 0;
        }
        failures.until = now + FIRST_WAIT.saturating_mul(1 << failures.count.min(16)).min(MAX_WAIT);
        failures.count += 1;
        self.total = Some(now + outstanding(self.total, now) + TOTAL_WAIT);
    }

    /// `source` is in.
    pub(crate) fn succeeded(&mut self, source: Option<IpAddr>) {
        self.sources.remove(&source.map(network));
    }
}

fn outstanding(until: Option<Instant>, now: Instant) -> Duration {
    until.map_or(Duration::ZERO, |until| until.duration_since(now))
}

/// Somebody has a whole /64 of IPv6.
pub(crate) fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    #[test]
    fn each_failure_of_a_source_doubles_its_wait_and_others_do_not_wait() {
        let (mut guard, now) = (Guard::default(), Instant::now());
        for seconds in [1, 2, 4, 8] {
            guard.failed(source(1), now);
            assert_eq!(guard.admit(source(1), now), Err(Duration::from_secs(seconds)));
        }
        assert_eq!(guard.admit(source(2), now), Ok(()));
        assert_eq!(guard.admit(source(1), now + Duration::from_secs(8)), Ok(()));
        (0..40).for_each(|_| guard.failed(source(1), now));
        assert_eq!(guard.admit(source(1), now), Err(MAX_WAIT));
        guard.succeeded(source(1));
        assert_eq!(guard.admit(source(1), now + Duration::from_secs(60)), Ok(()));
    }

    #[test]
    fn many_sources_are_slowed_down_together_and_forgotten() {
        let (mut guard, now) = (Guard::default(), Instant::now());
        (0..30).for_each(|number| guard.failed(source(number), now));
        assert_eq!(guard.admit_failure(now), Err(Duration::from_secs(10)));
        assert_eq!(guard.admit_failure(now + Duration::from_secs(10)), Ok(()));
        assert_eq!(guard.admit(source(99), now), Ok(()), "who has a token");
        (0..100_000).for_each(|number| guard.failed(source(number), now));
        assert!(guard.sources.len() <= MAX_SOURCES);
    }

    #[test]
    fn guesses_do_not_fill_the_journal() {
        let (mut guard, now) = (Guard::default(), Instant::now());
        let lines = (0..10_000).filter_map(|_| guard.line(now)).count();
        assert_eq!(lines, 20);
        assert_eq!(guard.line(now + TOTAL_WAIT), Some(10_000 - 20));
        assert_eq!(guard.line(now + TOTAL_WAIT), None);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_source() {
        let (mut guard, now) = (Guard::default(), Instant::now());
        guard.failed("2001:db8::1".parse().ok(), now);
        assert!(guard.admit("2001:db8::ffff:2".parse().ok(), now).is_err());
        assert!(guard.admit("2001:db8:0:1::1".parse().ok(), now).is_ok());
    }
}
