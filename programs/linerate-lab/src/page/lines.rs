//! Lines over two axes, each named at its right end.

use super::axis::Axis;
use super::marks::Mark;
use super::svg::{Anchor, BELOW, Frame, LINE, Svg, WIDTH, spread, width};

/// One subject's line.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) mark: Mark,
    /// Pairs of values from left to right.
    pub(super) points: Vec<(f64, f64)>,
    /// Those of them that get a marker, with its tooltip.
    pub(super) marked: Vec<((f64, f64), String)>,
    /// Ranges above and below a point: where, from, to.
    pub(super) ranges: Vec<(f64, f64, f64)>,
}

/// The least height of the part inside the axes.
const HEIGHT: f64 = 190.0;

/// The widest that names at the right may be.
const NAMES: f64 = 132.0;

/// From the frame to a label's marker, and on to its text.
const TO_MARKER: f64 = 20.0;
const TO_NAME: f64 = TO_MARKER + 9.0;

/// Draws `lines`; `label` describes them to screen readers.
pub(super) fn draw(across: &Axis, up: &Axis, lines: &[Line], label: &str) -> String {
    let height = HEIGHT.max(LINE * lines.len() as f64);
    let names = lines.iter().map(|line| width(line.name)).fold(0.0, f64::max).min(NAMES);
    let frame = Frame::beside(up, WIDTH - names - TO_NAME - 2.0, height);
    let mut svg = Svg::default();
    frame.draw_across(&mut svg, across);
    frame.draw_up(&mut svg, up);
    let ends: Vec<(f64, f64)> = lines
        .iter()
        .map(|line| line.points.last().map_or((frame.right, frame.bottom), |(x, y)| frame.at(across, up, *x, *y)))
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let labels = spread(&wanted, LINE, frame.top, frame.bottom);
    for ((line, end), y) in lines.iter().zip(&ends).zip(labels) {
        draw_line(&mut svg, &frame, across, up, line);
        svg.line("leader", (end.0 + 6.0, end.1), (frame.right + TO_MARKER - 7.0, y));
        svg.marker(line.mark, (frame.right + TO_MARKER, y), line.name);
        svg.name(Anchor::Start, (frame.right + TO_NAME, y + 4.0), line.name, names);
    }
    svg.finish(frame.bottom + BELOW, label)
}

fn draw_line(svg: &mut Svg, frame: &Frame, across: &Axis, up: &Axis, line: &Line) {
    for (x, from, to) in &line.ranges {
        svg.line("whisker", frame.at(across, up, *x, *from), frame.at(across, up, *x, *to));
    }
    let points: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| frame.at(across, up, *x, *y)).collect();
    svg.curve(line.mark, &points);
    for ((x, y), title) in &line.marked {
        svg.marker(line.mark, frame.at(across, up, *x, *y), title);
    }
}
