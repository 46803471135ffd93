//! Latency distributions: what share of the round trips took at most how long, up to the slowest.

use super::axis::Axis;
use super::lines::{Line, draw as draw_lines};
use super::marks::Marks;
use crate::record::{Record, Row};

/// Shares that get a marker.
const MARKED: [f64; 3] = [0.5, 0.9, 0.99];

/// The fewest round trips that make a distribution.
const FEWEST: usize = 10;

/// Draws the round trips of a scenario, all rounds together; nothing where none were recorded.
pub(super) fn draw(record: &Record, scenario: &str, marks: &Marks) -> Option<String> {
    let distributions: Vec<(&Row, Vec<f64>)> = record
        .scenario(scenario)
        .map(|row| (row, round_trips(row)))
        .filter(|(_, round_trips)| round_trips.len() >= FEWEST)
        .collect();
    let all = || distributions.iter().flat_map(|(_, round_trips)| round_trips);
    let (least, most) = (all().copied().reduce(f64::min)?, all().copied().reduce(f64::max)?);
    let longest = distributions.iter().map(|(_, round_trips)| round_trips.len()).max()?;
    let across = Axis::shares("share of round trips, %".into(), share(longest, longest));
    let up = Axis::log("took at most, ms (log)".into(), least, most);
    let lines: Vec<Line> = distributions
        .iter()
        .map(|(row, round_trips)| Line {
            name: &row.subject,
            mark: marks.of_subject(&row.subject),
            points: curve(&across, round_trips),
            marked: marked(round_trips),
            ranges: Vec::new(),
        })
        .collect();
    Some(draw_lines(&across, &up, &lines, &format!("{scenario}: distribution of round trips of each subject")))
}

/// Sorted, in milliseconds; a logarithm needs them above zero.
fn round_trips(row: &Row) -> Vec<f64> {
    let all = row.samples.iter().flat_map(|sample| &sample.round_trips_ms).copied();
    let mut round_trips: Vec<f64> = all.filter(|ms| ms.is_finite() && *ms > 0.0).collect();
    round_trips.sort_by(f64::total_cmp);
    round_trips
}

/// The share of round trips that the one of `rank` (from 1) of `n` stands for: below 1 for the last, too, because a
/// slower one was possible.
fn share(rank: usize, n: usize) -> f64 {
    rank as f64 / (n + 1) as f64
}

/// The ranks that can be told apart in a plot.
fn curve(across: &Axis, sorted: &[f64]) -> Vec<(f64, f64)> {
    let n = sorted.len();
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (i, round_trip) in sorted.iter().enumerate() {
        let share = share(i + 1, n);
        let step = points.last().map_or(1.0, |(last, _)| across.position(share) - across.position(*last));
        if step > 0.005 || i + 1 == n {
            points.push((share, *round_trip));
        }
    }
    points
}

fn marked(sorted: &[f64]) -> Vec<((f64, f64), String)> {
    let n = sorted.len();
    let rank = |marked: f64| ((marked * n as f64).ceil() as usize).clamp(1, n);
    let point = |marked| {
        let round_trip = sorted[rank(marked) - 1];
        ((share(rank(marked), n), round_trip), format!("{} % within {round_trip:.3} ms", marked * 100.0))
    };
    MARKED.into_iter().filter(|marked| *marked <= share(n, n)).map(point).collect()
}
