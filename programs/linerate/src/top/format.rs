//! Figures in a few columns.

use linerate_watch::Time;

/// Bytes per second as bits per second in at most five characters, such as `1.23M`; `-` if it is not known yet.
pub(super) fn rate(bytes: Option<f64>) -> String {
    match bytes {
        None => "-".to_owned(),
        Some(bytes) => scaled(bytes * 8.0),
    }
}

/// A number in at most five characters, with its power of ten.
pub(super) fn scaled(number: f64) -> String {
    if number < 999.5 {
        return format!("{number:.0}");
    }
    let mut scaled = number;
    for unit in ["k", "M", "G", "T", "P"] {
        scaled /= 1000.0;
        if scaled < 999.5 {
            let decimals = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
            return format!("{scaled:.decimals$}{unit}");
        }
    }
    "many".to_owned()
}

/// How long ago, in at most four characters.
pub(super) fn age(then: Option<Time>, now: Time) -> String {
    let Some(then) = then else { return "never".to_owned() };
    match then.until(now).as_secs() {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..360_000 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// The last rates, the newest at the end, each in a character: their share of the largest.
pub(super) fn bars(rates: &[f32], utf8: bool) -> String {
    let levels: &[char] = match utf8 {
        true => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        false => &['_', '.', ':', '-', '=', '+', '*', '#'],
    };
    let most = rates.iter().copied().fold(0.0, f32::max);
    let bar = |rate: &f32| match *rate {
        rate if rate <= 0.0 || most <= 0.0 => ' ',
        rate => levels[((rate / most * levels.len() as f32).ceil() as usize).clamp(1, levels.len()) - 1],
    };
    rates.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        let bits = |bits: f64| rate(Some(bits / 8.0));
        assert_eq!([0.0, 999.0, 999.6, 12_345.0].map(bits), ["0", "999", "1.00k", "12.3k"]);
        assert_eq!([99_960.0, 999_400.0, 999_600.0, 1e10].map(bits), ["100k", "999k", "1.00M", "10.0G"]);
        assert_eq!([1e18, 1e30].map(bits), ["many", "many"]);
        assert_eq!(rate(None), "-");
        let age_of = |seconds| age(Some(Time(Duration::ZERO)), Time(Duration::from_secs(seconds)));
        assert_eq!([0, 99, 100, 5999, 6000, 359_999].map(age_of), ["0s", "99s", "1m", "99m", "1h", "99h"]);
        assert_eq!((age_of(864_000), age(None, Time::default())), ("10d".to_owned(), "never".to_owned()));
    }

    #[test]
    fn bars_are_shares_of_the_largest() {
        assert_eq!(bars(&[0.0, 1.0, 4.0, 8.0], true), " ▁▄█");
        assert_eq!(bars(&[0.0, 1.0, 4.0, 8.0], false), " _-#");
        assert_eq!(bars(&[0.0, 0.0], true), "  ");
        assert_eq!(bars(&[], true), "");
    }
}
