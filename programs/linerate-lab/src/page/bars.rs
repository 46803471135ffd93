//! Bars: a subject per line, its median as a bar from zero, every round as a dot with a line from the least to the
//! most, and the figures in digits.

use super::axis::Axis;
use super::marks::Marks;
use super::svg::{Anchor, BELOW, Frame, LINE, Svg, WIDTH, width};
use crate::figures::{factor, number, ratio_to_baseline, round_ratios, values};
use crate::measure::Measure;
use crate::record::{Record, Row};
use crate::stats::Summary;

/// From one subject to the next.
const PITCH: f64 = 40.0;

const BAR: f64 = 12.0;

/// A line of the plot.
struct Bar<'a> {
    subject: &'a str,
    /// Of the rounds; none where nothing was measured.
    values: Vec<f64>,
    /// Stands behind the median.
    note: String,
}

/// Draws what `measure` says of a scenario.
pub(super) fn draw(record: &Record, scenario: &str, measure: Measure, marks: &Marks) -> String {
    let description = measure.description();
    let bar = |row| Bar {
        values: values(row, measure).collect(),
        note: ratio_to_baseline(record, row, measure)
            .map(|ratio| format!("{}×", factor(ratio.median)))
            .unwrap_or_default(),
        subject: &row.subject,
    };
    let bars: Vec<Bar> = record.scenario(scenario).map(bar).collect();
    let name = format!("{}, {}", description.name, description.unit);
    draw_bars(scenario, name, &bars, marks, |median| number(median, measure))
}

/// Draws how many times its figure in the scenario `other` each subject has; nothing where none has both.
pub(super) fn draw_ratios(
    record: &Record,
    scenario: &str,
    other: &str,
    measure: Measure,
    marks: &Marks,
) -> Option<String> {
    let bar = |row: &'_ Row| {
        let base = record.row(other, &row.subject);
        base.map_or_else(Vec::new, |base| round_ratios(row, base, measure).collect())
    };
    let rows = record.scenario(scenario);
    let bars: Vec<Bar> = rows.map(|row| Bar { subject: &row.subject, values: bar(row), note: String::new() }).collect();
    let name = format!("{}, relative to {other}", measure.description().name);
    bars.iter().any(|bar| !bar.values.is_empty()).then(|| draw_bars(scenario, name, &bars, marks, factor))
}

fn draw_bars(scenario: &str, name: String, bars: &[Bar<'_>], marks: &Marks, digits: impl Fn(f64) -> String) -> String {
    let most = bars.iter().flat_map(|bar| &bar.values).copied().fold(0.0, f64::max);
    let axis = Axis::linear(name, most);
    let bottom = PITCH * bars.len() as f64;
    let frame = Frame { left: 4.0, right: WIDTH - 12.0, top: 2.0, bottom };
    let mut svg = Svg::default();
    frame.draw_across(&mut svg, &axis);
    for (i, bar) in bars.iter().enumerate() {
        draw_bar(&mut svg, bar, marks, PITCH * i as f64, &digits, |value| {
            frame.left + axis.position(value) * (frame.right - frame.left)
        });
    }
    svg.finish(bottom + BELOW, &format!("{scenario}: {} of each subject", axis.name))
}

fn draw_bar(
    svg: &mut Svg,
    bar: &Bar<'_>,
    marks: &Marks,
    top: f64,
    digits: impl Fn(f64) -> String,
    at: impl Fn(f64) -> f64,
) {
    let mark = marks.of_subject(bar.subject);
    let base_line = top + LINE;
    svg.marker(mark, (10.0, base_line - 4.0), bar.subject);
    let Some(summary) = Summary::of(bar.values.iter().copied()) else {
        svg.name(Anchor::Start, (20.0, base_line), bar.subject, WIDTH - 130.0);
        svg.text("soft", Anchor::End, (WIDTH - 2.0, base_line), "not measured");
        return;
    };
    // Three columns: the name, the median, the note.
    let median = digits(summary.median);
    let notes = WIDTH - 2.0;
    let medians = notes - 54.0;
    svg.name(Anchor::Start, (20.0, base_line), bar.subject, medians - width(&median) * 1.1 - 28.0);
    svg.text("value", Anchor::End, (medians, base_line), &median);
    if !bar.note.is_empty() {
        svg.text("soft", Anchor::End, (notes, base_line), &bar.note);
    }

    let middle = top + LINE + 6.0 + BAR / 2.0;
    let zero = at(0.0);
    svg.bar(mark.class, (zero, middle - BAR / 2.0), at(summary.median) - zero, BAR);
    svg.line("whisker", (at(summary.least), middle), (at(summary.most), middle));
    for value in &bar.values {
        svg.dot("round", (at(*value), middle), 2.2);
    }
}
