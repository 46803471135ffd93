//! What a tunnel costs against what it carries: processor seconds per gigabyte over gigabits per second. Down and
//! to the right is better.

use super::axis::Axis;
use super::marks::Marks;
use super::svg::{Anchor, BELOW, Frame, LINE, Svg, WIDTH, width};
use crate::figures::{quantity, summary};
use crate::measure::Measure;
use crate::record::{Record, Row};
use crate::stats::Summary;

/// The least height of the part inside the axes.
const HEIGHT: f64 = 200.0;

/// Around a marker, and from it to its label.
const MARKER: f64 = 7.0;

/// Names are cut to this.
const NAME: f64 = 150.0;

/// Farther from its marker a label gets a line to it.
const FAR: f64 = 14.0;

/// A box that labels keep out of.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn distance(&self, (x, y): (f64, f64)) -> f64 {
        (x.clamp(self.left, self.right) - x).hypot(y.clamp(self.top, self.bottom) - y)
    }

    fn is_inside(&self, other: &Self) -> bool {
        self.left >= other.left && self.right <= other.right && self.top >= other.top && self.bottom <= other.bottom
    }
}

/// Draws the subjects of a scenario that have both figures; nothing for fewer than two.
pub(super) fn draw(record: &Record, scenario: &str, marks: &Marks) -> Option<String> {
    let both = |row| Some((row, summary(row, Measure::Throughput)?, summary(row, Measure::CpuPerGb)?));
    let points: Vec<(&Row, Summary, Summary)> = record.scenario(scenario).filter_map(both).collect();
    if points.len() < 2 {
        return None;
    }
    let across = axis("throughput, Gbit/s", points.iter().map(|(_, carried, _)| *carried));
    let up = axis("CPU, s/GB", points.iter().map(|(.., spent)| *spent));
    let height = HEIGHT.max(2.0 * LINE * points.len() as f64);
    let frame = Frame::beside(&up, WIDTH - 12.0, height);
    let mut svg = Svg::default();
    frame.draw_across(&mut svg, &across);
    frame.draw_up(&mut svg, &up);

    let at: Vec<(f64, f64)> = points.iter().map(|(_, x, y)| frame.at(&across, &up, x.median, y.median)).collect();
    let names: Vec<f64> = points.iter().map(|(row, ..)| width(&row.subject).min(NAME)).collect();
    let labels = place(&at, &names, Area { left: frame.left, right: WIDTH, top: frame.top, bottom: frame.bottom });
    for (((row, carried, spent), at), label) in points.iter().zip(&at).zip(&labels) {
        let on = |x, y| frame.at(&across, &up, x, y);
        svg.line("whisker", on(carried.least, spent.median), on(carried.most, spent.median));
        svg.line("whisker", on(carried.median, spent.least), on(carried.median, spent.most));
        if let Some(label) = label.filter(|label| label.distance(*at) > FAR) {
            svg.line("leader", *at, (at.0.clamp(label.left, label.right), at.1.clamp(label.top, label.bottom)));
        }
        let title = format!(
            "{}: {}, {} of CPU",
            row.subject,
            quantity(carried.median, Measure::Throughput),
            quantity(spent.median, Measure::CpuPerGb)
        );
        svg.marker(marks.of_subject(&row.subject), *at, &title);
    }
    for (((row, ..), at), label) in points.iter().zip(&at).zip(labels) {
        let Some(label) = label else { continue };
        // The side that is next to the marker is the one to hold, because widths are only estimated.
        let (anchor, x) = if label.right < at.0 { (Anchor::End, label.right) } else { (Anchor::Start, label.left) };
        svg.name(anchor, (x, label.bottom - 4.0), &row.subject, NAME);
    }
    Some(svg.finish(frame.bottom + BELOW, &format!("{scenario}: processor time per gigabyte over throughput")))
}

fn axis(name: &str, figures: impl Iterator<Item = Summary> + Clone) -> Axis {
    let least = figures.clone().map(|figure| figure.least).fold(f64::INFINITY, f64::min);
    let most = figures.map(|figure| figure.most).fold(0.0, f64::max);
    Axis::fitting(name.into(), least, most)
}

/// A place for each label inside `ground`, as near to its point as can be, off all markers and all other labels;
/// none where the ground is full.
fn place(points: &[(f64, f64)], widths: &[f64], ground: Area) -> Vec<Option<Area>> {
    let around =
        |(x, y): &(f64, f64)| Area { left: x - MARKER, right: x + MARKER, top: y - MARKER, bottom: y + MARKER };
    let mut occupied: Vec<Area> = points.iter().map(around).collect();
    let mut places = Vec::new();
    for (point, width) in points.iter().zip(widths) {
        let is_free = |area: &Area| area.is_inside(&ground) && !occupied.iter().any(|other| other.overlaps(area));
        let free = candidates(*point, *width, &ground).filter(is_free);
        let nearest = free.min_by(|a, b| a.distance(*point).total_cmp(&b.distance(*point)));
        occupied.extend(nearest);
        places.push(nearest);
    }
    places
}

/// Beside the point, above and below it, then everywhere: of places that are as near the first is chosen.
fn candidates((x, y): (f64, f64), width: f64, ground: &Area) -> impl Iterator<Item = Area> {
    let at = move |left: f64, top: f64| Area { left, right: left + width, top, bottom: top + LINE };
    let beside = [
        at(x + MARKER, y - LINE / 2.0),
        at(x - MARKER - width, y - LINE / 2.0),
        at(x - width / 2.0, y - MARKER - LINE),
        at(x - width / 2.0, y + MARKER),
    ];
    const STEP: f64 = 5.0;
    let (left, top) = (ground.left, ground.top);
    let columns = ((ground.right - left) / STEP) as u32;
    let rows = ((ground.bottom - top) / STEP) as u32;
    let everywhere = (0..rows).flat_map(move |row| {
        (0..columns).map(move |column| at(left + f64::from(column) * STEP, top + f64::from(row) * STEP))
    });
    beside.into_iter().chain(everywhere)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GROUND: Area = Area { left: 40.0, right: 360.0, top: 25.0, bottom: 265.0 };

    fn check(points: &[(f64, f64)]) -> Result<(), TestCaseError> {
        let places = place(points, &vec![90.0; points.len()], GROUND);
        let labels: Vec<Area> = places.into_iter().flatten().collect();
        prop_assert_eq!(labels.len(), points.len());
        for (i, label) in labels.iter().enumerate() {
            prop_assert!(label.is_inside(&GROUND));
            prop_assert!(labels[..i].iter().all(|other| !other.overlaps(label)));
        }
        Ok(())
    }

    #[test]
    fn subjects_that_measure_the_same_are_all_named() {
        check(&[(200.0, 200.0); 8]).unwrap();
        check(&[(360.0, 25.0); 8]).unwrap();
    }

    proptest! {
        #[test]
        fn labels_are_inside_and_overlap_nothing(
            points in prop::collection::vec((40.0..360.0_f64, 25.0..265.0_f64), 1..9)
        ) {
            check(&points)?;
        }
    }
}
