//! Scaling: scenarios that differ only in a number at the end of their name, `pair/tcp-1` and `pair/tcp-105`, as
//! lines over that number.

use std::collections::BTreeMap;

use super::axis::Axis;
use super::lines::{Line, draw as draw_lines};
use super::marks::Marks;
use crate::figures::{quantity, summary};
use crate::measure::Measure;
use crate::record::Record;

/// What is drawn where at least two scenarios of a series have it.
const DRAWN: [Measure; 5] =
    [Measure::Throughput, Measure::CpuPerGb, Measure::SetUpTime, Measure::PeakMemory, Measure::MemoryPerPeer];

/// Scenarios that differ in a number only.
#[derive(Debug)]
pub(super) struct ScenarioSeries<'a> {
    /// What they share: `pair/tcp`.
    pub(super) name: &'a str,
    /// Their numbers with their names.
    members: BTreeMap<u32, &'a str>,
}

/// The series of a record, those of at least two scenarios, in the order of their first.
pub(super) fn series(record: &Record) -> Vec<ScenarioSeries<'_>> {
    let mut all: Vec<ScenarioSeries> = Vec::new();
    for scenario in record.scenarios() {
        let Some((name, number)) = scenario.rsplit_once('-') else { continue };
        let Some(number) = number.parse().ok().filter(|number| *number > 0) else { continue };
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.members.insert(number, scenario),
            None => {
                all.push(ScenarioSeries { name, members: BTreeMap::from([(number, scenario)]) });
                None
            }
        };
    }
    all.retain(|series| series.members.len() > 1);
    all
}

impl ScenarioSeries<'_> {
    /// What its members were measured in.
    pub(super) fn measures<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = Measure> + 'a {
        DRAWN.into_iter().filter(|measure| {
            let has = |scenario: &&&str| record.scenario(scenario).any(|row| summary(row, *measure).is_some());
            self.members.values().filter(has).count() > 1
        })
    }

    /// Draws one of them.
    pub(super) fn draw(&self, record: &Record, measure: Measure, marks: &Marks) -> String {
        let lines: Vec<Line> = record
            .subjects
            .iter()
            .map(|subject| self.line(record, &subject.name, measure, marks))
            .filter(|line| !line.points.is_empty())
            .collect();
        let values: Vec<f64> = self.members.keys().map(|number| f64::from(*number)).collect();
        let across = Axis::at_values(self.counts().into(), &values);
        let up = vertical(&lines, measure);
        draw_lines(&across, &up, &lines, &format!("{}: {} over {}", self.name, up.name, across.name))
    }

    fn line<'a>(&self, record: &'a Record, subject: &'a str, measure: Measure, marks: &Marks) -> Line<'a> {
        let mut line = Line {
            name: subject,
            mark: marks.of_subject(subject),
            points: Vec::new(),
            marked: Vec::new(),
            ranges: Vec::new(),
        };
        for (number, scenario) in &self.members {
            let Some(summary) = record.row(scenario, subject).and_then(|row| summary(row, measure)) else { continue };
            let (x, median) = (f64::from(*number), summary.median);
            line.points.push((x, median));
            line.marked.push(((x, median), format!("{subject}, {number}: {}", quantity(median, measure))));
            line.ranges.push((x, summary.least, summary.most));
        }
        line
    }

    /// What the number counts.
    fn counts(&self) -> &'static str {
        match self.name.rsplit(['/', '-']).next() {
            Some("tcp") => "TCP streams",
            Some("peers") => "peers",
            _ => "number in the scenario's name",
        }
    }
}

fn vertical(lines: &[Line], measure: Measure) -> Axis {
    let ranges = || lines.iter().flat_map(|line| &line.ranges);
    let least = ranges().map(|(_, least, _)| *least).fold(f64::INFINITY, f64::min);
    let most = ranges().map(|(_, _, most)| *most).fold(0.0, f64::max);
    let description = measure.description();
    Axis::fitting(format!("{}, {}", description.name, description.unit), least, most)
}
