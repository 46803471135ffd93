//! A tunnel's traffic as a plot. All positions are shares of the plot, which is as wide as its place: text keeps its
//! size at every width, and colours are the style sheet's.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};

use crate::history::{Series, Window};
use crate::units::rate;

/// Where the greatest value of the axis and nothing are, in hundredths of the height: labels stand above and below.
const TOP: f64 = 9.0;
const BOTTOM: f64 = 86.0;

/// The inner picture's own measure.
const SIDE: f64 = 1000.0;

/// Draws `series`; `name` tells whose it is.
pub(crate) fn plot(name: &str, series: &Series, zone: &TimeZone) -> Markup {
    let most = series.points.iter().flatten().map(|(received, sent)| received.max(*sent)).fold(0.0, f64::max);
    let values = ticks(most * 8.0);
    let high = values.last().copied().unwrap_or(1.0);
    let up = |value: f64| BOTTOM - (BOTTOM - TOP) * value / high;
    let received = outlines(series, high, |(received, _)| received);
    let sent = outlines(series, high, |(_, sent)| sent);
    html! {
        svg.plot role="img" aria-label=(label(name, series)) {
            @for value in &values {
                @let y = format!("{:.2}%", up(*value));
                line.grid x1="0" x2="100%" y1=(y) y2=(y) {}
            }
            svg x="0" y="0" width="100%" height="100%" viewBox={ "0 0 " (SIDE) " " (SIDE) } preserveAspectRatio="none" {
                @for (area, line) in &received { path.area.c0 d=(area) {} path.line.c0 d=(line) {} }
                @for (_, line) in &sent { path.line.c1 d=(line) {} }
            }
            @for value in &values {
                text x="0" y={ (format!("{:.2}", up(*value))) "%" } dy="-0.4em" { (rate(value / 8.0)) }
            }
            @if series.points.iter().all(Option::is_none) {
                text x="50%" y="50%" text-anchor="middle" { "Nothing was recorded yet" }
            }
            @for (at, text) in times(series, zone) {
                @let x = format!("{:.2}%", 100.0 * at);
                line.tick x1=(x) x2=(x) y1={ (BOTTOM) "%" } y2={ (BOTTOM + 2.0) "%" } {}
                @let anchor = if at > 0.94 { "end" } else if at < 0.06 { "start" } else { "middle" };
                text.time x=(x) y="98%" text-anchor=(anchor) { (text) }
            }
        }
    }
}

/// The plot in words.
fn label(name: &str, series: &Series) -> String {
    let window = match series.window {
        Window::Minutes => "10 minutes",
        window => window.word(),
    };
    let known: Vec<&(f64, f64)> = series.points.iter().flatten().collect();
    if known.is_empty() {
        return format!("Traffic of {name} in the last {window}: nothing was recorded");
    }
    let most = |value: fn(&(f64, f64)) -> f64| rate(known.iter().map(|point| value(point)).fold(0.0, f64::max));
    let mean = |value: fn(&(f64, f64)) -> f64| rate(known.iter().map(|p| value(p)).sum::<f64>() / known.len() as f64);
    format!(
        "Traffic of {name} in the last {window}: received {} on average and {} at most, sent {} and {}",
        mean(|(received, _)| *received),
        most(|(received, _)| *received),
        mean(|(_, sent)| *sent),
        most(|(_, sent)| *sent),
    )
}

/// For each stretch without a gap the area below its line, and the line.
fn outlines(series: &Series, high: f64, value: fn((f64, f64)) -> f64) -> Vec<(String, String)> {
    let step = SIDE / series.points.len().max(1) as f64;
    let scale = SIDE / 100.0;
    let floor = BOTTOM * scale;
    let mut outlines = Vec::new();
    let mut index = 0;
    for stretch in series.points.split(Option::is_none) {
        let first = index;
        index += stretch.len() + 1;
        if stretch.is_empty() {
            continue;
        }
        let mut line = String::new();
        for (at, point) in stretch.iter().flatten().enumerate() {
            let bits = value(*point) * 8.0;
            let y = scale * (BOTTOM - (BOTTOM - TOP) * bits / high);
            let x = step * (first + at) as f64;
            let _ = write!(line, "{}{x:.1} {y:.1}H{:.1}", if at == 0 { 'M' } else { 'L' }, x + step);
        }
        let (left, right) = (step * first as f64, step * (first + stretch.len()) as f64);
        outlines.push((format!("{line}V{floor:.1}H{left:.1}Z"), if right > left { line } else { String::new() }));
    }
    outlines
}

/// Round numbers of bits in a second, from nothing to at least `most`.
fn ticks(most: f64) -> Vec<f64> {
    let most = most.max(1000.0);
    let magnitude = 10f64.powf((most / 2.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * magnitude);
    let step = steps.into_iter().find(|step| most / step <= 3.0).unwrap_or(10.0 * magnitude);
    let count = (most / step).ceil().max(1.0) as usize;
    (0..=count).map(|tick| step * tick as f64).collect()
}

/// Times with their positions from 0 to 1.
fn times(series: &Series, zone: &TimeZone) -> Vec<(f64, String)> {
    let (step, format) = match series.window {
        Window::Minutes => (120, "%H:%M"),
        Window::Hour => (900, "%H:%M"),
        Window::Day => (6 * 3600, "%H:%M"),
        Window::Month => (7 * 86_400, "%b %-d"),
    };
    let (Ok(start), Ok(end)) = (i64::try_from(series.start), i64::try_from(series.end)) else { return Vec::new() };
    let shift = |time: i64| Timestamp::from_second(time).map_or(0, |at| zone.to_offset(at).seconds());
    // Full hours and days are those of the clock on the wall.
    let first = start + (-(start + i64::from(shift(start)))).rem_euclid(step);
    let at = (first..=end).step_by(step as usize).filter_map(|time| {
        let text = Timestamp::from_second(time).ok()?.to_zoned(zone.clone()).strftime(format).to_string();
        Some(((time - start) as f64 / (end - start).max(1) as f64, text))
    });
    at.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn series(points: Vec<Option<(f64, f64)>>) -> Series {
        Series { window: Window::Hour, start: 1_795_435_200, end: 1_795_438_800, points }
    }

    #[test]
    fn times_are_those_of_the_clock_on_the_wall() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let times = times(&series(vec![]), &zone);
        let texts: Vec<&str> = times.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["14:00", "14:15", "14:30", "14:45", "15:00"]);
        assert_eq!((times[0].0, times[4].0), (0.0, 1.0));
    }

    #[test]
    fn a_gap_is_a_gap() {
        let lines =
            outlines(&series(vec![Some((1.0, 0.0)), None, None, Some((1.0, 0.0))]), 8.0, |(received, _)| received);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].1.starts_with("M0.0 90.0H250.0"), "{lines:?}");
        assert!(lines[1].1.starts_with("M750.0 90.0H1000.0"), "{lines:?}");
    }

    #[test]
    fn a_plot_speaks() {
        let all = series(vec![Some((125_000.0, 0.0)), Some((0.0, 0.0))]);
        let expected = "Traffic of wg0 in the last hour: received 500 kbit/s on average and 1 Mbit/s at most, \
                        sent 0 bit/s and 0 bit/s";
        assert_eq!(label("wg0", &all), expected);
        assert!(plot("<x>", &all, &TimeZone::UTC).into_string().contains("&lt;x&gt;"));
        assert!(plot("x", &series(vec![None; 3]), &TimeZone::UTC).into_string().contains("Nothing was recorded yet"));
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_hold_every_value(most in 0.0..1e13_f64) {
            let ticks = ticks(most);
            prop_assert!((2..=5).contains(&ticks.len()), "{ticks:?}");
            prop_assert!(*ticks.last().unwrap() >= most);
        }
    }
}
