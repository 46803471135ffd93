//! A moment, as programs write it.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// A time since 1970; as JSON and as text in UTC by RFC 3339, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl Time {
    /// The whole seconds since 1970.
    pub fn as_secs(self) -> u64 {
        self.0.as_secs()
    }

    /// The time from this moment to a later one; zero if it is not later.
    pub fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX);
        let time = Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX);
        write!(f, "{time:.3}")
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_milliseconds() {
        assert_eq!(Time(Duration::from_millis(1_700_000_000_007)).to_string(), "2023-11-14T22:13:20.007Z");
        assert_eq!(Time(Duration::MAX).to_string().len(), "9999-12-30T22:00:00.000Z".len());
    }

    #[test]
    fn no_time_passes_until_an_earlier_moment() {
        let [early, late] = [1, 3].map(|seconds| Time(Duration::from_secs(seconds)));
        assert_eq!((early.until(late), late.until(early)), (Duration::from_secs(2), Duration::ZERO));
    }
}
