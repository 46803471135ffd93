//! How a subject looks: the same colour, marker and dash in every plot of a page.

use crate::record::Record;
use crate::sentences::NO_TUNNEL;

/// Colours of Okabe and Ito's palette that stand out on light and on dark ground (style.css names them).
const COLOURS: usize = 6;

/// Marker shapes: one more than colours, so that subjects differ in one of both up to 42 of them.
const SHAPES: usize = 7;

/// Dash patterns of lines; the first is solid.
const DASHES: [&str; 5] = ["", "7 3", "2 3", "8 3 2 3", "12 4"];

/// The looks of all subjects.
#[derive(Debug)]
pub(super) struct Marks<'a> {
    tunnels: Vec<&'a str>,
}

/// The look of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The class that colours it.
    pub(super) class: &'static str,
    shape: usize,
    /// Its lines' `stroke-dasharray`.
    pub(super) dash: &'static str,
}

impl<'a> Marks<'a> {
    /// Looks for the subjects of `records`, in the order in which they come.
    pub(super) fn of(records: &'a [Record]) -> Self {
        let mut tunnels = Vec::new();
        for record in records {
            let named = record.subjects.iter().map(|subject| subject.name.as_str());
            for name in named.chain(record.rows.iter().map(|row| row.subject.as_str())) {
                if name != NO_TUNNEL && !tunnels.contains(&name) {
                    tunnels.push(name);
                }
            }
        }
        Self { tunnels }
    }

    /// The look of `subject`.
    pub(super) fn of_subject(&self, subject: &str) -> Mark {
        match self.tunnels.iter().position(|name| *name == subject) {
            Some(i) => Mark::nth(i),
            None => Mark { class: "wire", shape: 0, dash: "1 2" },
        }
    }
}

impl Mark {
    /// The look of the `i`-th of several.
    pub(super) fn nth(i: usize) -> Self {
        const CLASSES: [&str; COLOURS] = ["c0", "c1", "c2", "c3", "c4", "c5"];
        Self { class: CLASSES[i % COLOURS], shape: i % SHAPES, dash: DASHES[i % DASHES.len()] }
    }

    /// The outline of its marker around a point, as the `d` of a path.
    pub(super) fn outline(self, x: f64, y: f64, radius: f64) -> String {
        let polygon = |corners: &[(f64, f64)]| {
            let corner = |(dx, dy): &(f64, f64)| format!("{:.1} {:.1}", x + dx * radius, y + dy * radius);
            format!("M{}Z", corners.iter().map(corner).collect::<Vec<_>>().join("L"))
        };
        match self.shape {
            0 => format!(
                "M{:.1} {y:.1}a{radius} {radius} 0 1 0 {} 0a{radius} {radius} 0 1 0 -{} 0Z",
                x - radius,
                2.0 * radius,
                2.0 * radius
            ),
            1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => polygon(&[(0.0, -1.1), (1.1, 0.9), (-1.1, 0.9)]),
            3 => polygon(&[(0.0, -1.3), (1.2, 0.0), (0.0, 1.3), (-1.2, 0.0)]),
            4 => polygon(&[(0.0, 1.1), (1.1, -0.9), (-1.1, -0.9)]),
            5 => polygon(&CROSS),
            _ => polygon(&PLUS),
        }
    }
}

const PLUS: [(f64, f64); 12] = [
    (-0.4, -1.2),
    (0.4, -1.2),
    (0.4, -0.4),
    (1.2, -0.4),
    (1.2, 0.4),
    (0.4, 0.4),
    (0.4, 1.2),
    (-0.4, 1.2),
    (-0.4, 0.4),
    (-1.2, 0.4),
    (-1.2, -0.4),
    (-0.4, -0.4),
];

const CROSS: [(f64, f64); 12] = [
    (-1.1, -0.6),
    (-0.6, -1.1),
    (0.0, -0.5),
    (0.6, -1.1),
    (1.1, -0.6),
    (0.5, 0.0),
    (1.1, 0.6),
    (0.6, 1.1),
    (0.0, 0.5),
    (-0.6, 1.1),
    (-1.1, 0.6),
    (-0.5, 0.0),
];
