//! Bars: a subject per line, its median as a bar from zero, every round as a dot with a line from the least to the
//! most, and the figures in digits.

use super::axis::Axis;
use super::marks::Marks;
use super::svg::{Anchor, BELOW, Frame, LINE, Svg, WIDTH, width};
use crate::figures::{factor, number, ratio_to_baseline, summary, values};
use crate::measure::Measure;
use crate::record::{Record, Row};

/// From one subject to the next.
const PITCH: f64 = 40.0;

const BAR: f64 = 12.0;

/// Draws what `measure` says of a scenario.
pub(super) fn draw(record: &Record, scenario: &str, measure: Measure, marks: &Marks) -> String {
    let rows: Vec<&Row> = record.scenario(scenario).collect();
    let description = measure.description();
    let most = rows.iter().flat_map(|row| values(row, measure)).fold(0.0, f64::max);
    let axis = Axis::linear(format!("{}, {}", description.name, description.unit), most);
    let bottom = PITCH * rows.len() as f64;
    let frame = Frame { left: 4.0, right: WIDTH - 12.0, top: 2.0, bottom };
    let mut svg = Svg::default();
    frame.draw_across(&mut svg, &axis);
    for (i, row) in rows.iter().enumerate() {
        draw_row(&mut svg, record, row, measure, marks, PITCH * i as f64, |value| {
            frame.left + axis.position(value) * (frame.right - frame.left)
        });
    }
    svg.finish(bottom + BELOW, &format!("{scenario}: {} of each subject", axis.name))
}

fn draw_row(
    svg: &mut Svg,
    record: &Record,
    row: &Row,
    measure: Measure,
    marks: &Marks,
    top: f64,
    at: impl Fn(f64) -> f64,
) {
    let mark = marks.of_subject(&row.subject);
    let base_line = top + LINE;
    svg.marker(mark, (10.0, base_line - 4.0), &row.subject);
    let Some(summary) = summary(row, measure) else {
        svg.name(Anchor::Start, (20.0, base_line), &row.subject, WIDTH - 130.0);
        svg.text("soft", Anchor::End, (WIDTH - 2.0, base_line), "not measured");
        return;
    };
    // Three columns: the name, the median, the ratio.
    let median = number(summary.median, measure);
    let ratios = WIDTH - 2.0;
    let medians = ratios - 54.0;
    svg.name(Anchor::Start, (20.0, base_line), &row.subject, medians - width(&median) * 1.1 - 28.0);
    svg.text("value", Anchor::End, (medians, base_line), &median);
    if let Some(ratio) = ratio_to_baseline(record, row, measure) {
        svg.text("soft", Anchor::End, (ratios, base_line), &format!("{}×", factor(ratio.median)));
    }

    let middle = top + LINE + 6.0 + BAR / 2.0;
    let zero = at(0.0);
    svg.bar(mark.class, (zero, middle - BAR / 2.0), at(summary.median) - zero, BAR);
    svg.line("whisker", (at(summary.least), middle), (at(summary.most), middle));
    for value in values(row, measure) {
        svg.dot("round", (at(value), middle), 2.2);
    }
}
