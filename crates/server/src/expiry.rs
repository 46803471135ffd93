//! Until when a client is let in, as people say it.

use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use linerate_control::printable::printable;

/// The text names no time for a client to expire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExpiry {
    /// It is neither a time nor a span.
    #[error(
        "`{0}` is neither a time nor a span of time: write 30d, 2030-01-31 (the end of that day), 2030-01-31T18:00, \
             2030-01-31T18:00:00Z or never"
    )]
    Unknown(String),
    /// It has passed.
    #[error("`{0}` has passed: it is {1}")]
    Past(String, Timestamp),
}

/// The instant that `text` names, or none for `never`. A date means the end of that day in `zone`, a time without an
/// offset is one in `zone`, and a span begins at `now`.
///
/// # Errors
/// It names no instant that is to come.
pub fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Option<Timestamp>, InvalidExpiry> {
    if text.eq_ignore_ascii_case("never") {
        return Ok(None);
    }
    let unknown = || InvalidExpiry::Unknown(printable(text).into_owned());
    let time = whole_seconds(instant(text, now, zone).ok_or_else(unknown)?);
    match time > now {
        true => Ok(Some(time)),
        false => Err(InvalidExpiry::Past(printable(text).into_owned(), time)),
    }
}

/// `time` without the fraction of its second, for a file.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn instant(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let is_date = text.len() == 10 && text.as_bytes()[4] == b'-';
    if is_date {
        let next = Date::from_str(text).ok()?.tomorrow().ok()?.to_zoned(zone.clone()).ok()?;
        return next.timestamp().checked_sub(jiff::SignedDuration::from_secs(1)).ok();
    }
    if let Ok(time) = Timestamp::from_str(text) {
        return Some(time);
    }
    let is_time = text.len() > 10 && text.as_bytes()[4] == b'-';
    if is_time {
        return Some(DateTime::from_str(text).ok()?.to_zoned(zone.clone()).ok()?.timestamp());
    }
    let span = Span::from_str(text).ok().filter(|span| span.is_positive())?;
    Some(Zoned::new(now, zone.clone()).checked_add(span).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::Offset;
    use proptest::prelude::*;

    const NOW: i64 = 1_900_000_000; // 2030-03-17T17:46:40Z

    fn read(text: &str) -> Result<Option<String>, InvalidExpiry> {
        // Berlin's rules, written out (POSIX): tests need no database of zones.
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now = Timestamp::from_second(NOW).unwrap();
        parse(text, now, &zone).map(|time| time.map(|time| time.to_string()))
    }

    #[test]
    fn a_date_is_the_end_of_that_day_where_the_host_is() {
        assert_eq!(read("2030-12-31").unwrap().unwrap(), "2030-12-31T22:59:59Z");
        assert_eq!(read("2030-06-30").unwrap().unwrap(), "2030-06-30T21:59:59Z");
    }

    #[test]
    fn a_span_begins_now_and_days_are_those_of_the_calendar() {
        assert_eq!(read("12h").unwrap().unwrap(), "2030-03-18T05:46:40Z");
        // Summer time begins on March 31.
        assert_eq!(read("30d").unwrap().unwrap(), "2030-04-16T16:46:40Z");
        assert_eq!(read("1y").unwrap().unwrap(), "2031-03-17T17:46:40Z");
        assert_eq!(read("2w 1d").unwrap().unwrap(), "2030-04-01T16:46:40Z");
    }

    #[test]
    fn a_time_may_have_an_offset_and_else_is_where_the_host_is() {
        for text in ["2030-12-31T18:00:00Z", "2030-12-31T20:00:00+02:00", "2030-12-31T19:00"] {
            assert_eq!(read(text).unwrap().unwrap(), "2030-12-31T18:00:00Z", "{text}");
        }
        assert_eq!(read("never"), Ok(None));
    }

    #[test]
    fn what_has_passed_or_is_no_time_is_refused() {
        for text in ["2029-12-31", "2030-03-17T17:46:40Z", "2030-03-17T18:46"] {
            assert!(matches!(read(text), Err(InvalidExpiry::Past(..))), "{text}");
        }
        for text in ["", "soon", "30", "-30d", "30d ago", "0d", "2030-02-30", "2030-13-01", "99999999y", "é-------aa"]
        {
            assert!(matches!(read(text), Err(InvalidExpiry::Unknown(_))), "{text}: {:?}", read(text));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_what_it_gives_is_to_come(text in any::<String>(), now in -10_000_000_000i64..100_000_000_000) {
            let now = Timestamp::from_second(now).unwrap();
            let zone = TimeZone::fixed(Offset::UTC);
            if let Ok(Some(time)) = parse(&text, now, &zone) {
                prop_assert!(time > now);
            }
        }

        #[test]
        fn an_instant_is_read_as_it_is_written(second in NOW + 1..NOW * 2) {
            let text = Timestamp::from_second(second).unwrap().to_string();
            prop_assert_eq!(read(&text), Ok(Some(text)));
        }
    }
}
