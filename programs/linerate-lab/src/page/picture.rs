//! Plots in a file of their own, two in a row, on a light ground: a page of documentation shows it where it has no
//! style sheet to give.

use super::axis::Axis;
use super::html::escape;
use super::lines::{Line, plot};
use super::marks::Mark;
use super::svg::{Anchor, LINE, Svg, WIDTH};

const STYLE: &str = include_str!("picture.css");

/// Plots in a row.
const COLUMNS: usize = 2;

/// Around each plot.
const MARGIN: f64 = 16.0;

/// A plot of curves over the same values.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) across: Across,
    /// What the curves show, with the unit.
    pub(crate) up: String,
    pub(crate) curves: Vec<Curve>,
}

/// What the values are that curves lie over, and how they are laid out.
pub(crate) enum Across {
    /// From zero on.
    Linear(String),
    /// Logarithmic. The values that are marked grow, and are above zero.
    Marked(String, Vec<f64>),
}

/// A curve, named at its right end.
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Pairs of values from left to right.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws `panels` from left to right and from top to bottom; `label` says what they show to those who cannot see them.
pub(crate) fn picture(panels: &[Panel], label: &str) -> String {
    let plots: Vec<(Svg, f64)> = panels.iter().map(draw).collect();
    let cell = plots.iter().map(|(_, height)| *height).fold(0.0, f64::max) + 2.0 * LINE + MARGIN;
    let mut body = String::new();
    for (i, ((svg, _), panel)) in plots.into_iter().zip(panels).enumerate() {
        let x = MARGIN + (i % COLUMNS) as f64 * (WIDTH + 2.0 * MARGIN);
        let y = MARGIN + (i / COLUMNS) as f64 * cell;
        let mut title = Svg::default();
        title.text("title", Anchor::Start, (0.0, LINE - 3.0), &panel.title);
        body.push_str(&format!("<g transform=\"translate({x:.0} {y:.0})\">\n{}", title.into_body()));
        body.push_str(&format!("<g transform=\"translate(0 {:.0})\">\n{}</g>\n</g>\n", 1.5 * LINE, svg.into_body()));
    }
    let width = COLUMNS as f64 * (WIDTH + 2.0 * MARGIN);
    let height = panels.len().div_ceil(COLUMNS) as f64 * cell + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n<style>\n{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{body}</svg>\n",
        escape(label)
    )
}

fn draw(panel: &Panel) -> (Svg, f64) {
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let (across, marked) = match &panel.across {
        Across::Linear(name) => (Axis::linear(name.clone(), most(&mut points().map(|(x, _)| *x))), &[][..]),
        Across::Marked(name, values) => (Axis::at_values(name.clone(), values), &values[..]),
    };
    let up = Axis::linear(panel.up.clone(), most(&mut points().map(|(_, y)| *y)));
    let lines: Vec<Line> = panel.curves.iter().enumerate().map(|(i, curve)| line(i, curve, marked)).collect();
    plot(&across, &up, &lines)
}

fn line<'a>(i: usize, curve: &'a Curve, marked: &[f64]) -> Line<'a> {
    let is_marked = |(x, _): &&(f64, f64)| marked.contains(x);
    let marked = curve.points.iter().filter(is_marked);
    let marked = marked.map(|(x, y)| ((*x, *y), format!("{}, {x}: {y:.1}", curve.name))).collect();
    Line { name: &curve.name, mark: Mark::nth(i), points: curve.points.clone(), marked, ranges: Vec::new() }
}
