//! Which figures of a record are shown, and how a figure is written: the same in every table and plot.

use crate::measure::{Description, Measure};
use crate::record::{Record, Row};
use crate::scenario;
use crate::stats::{Interval, Ratio, Summary};

/// The main measure of a scenario is the first of these that it has.
const MAIN: [Measure; 6] = [
    Measure::LatencyMean,
    Measure::Throughput,
    Measure::PacketRate,
    Measure::SetUpTime,
    Measure::IdleSwitchRate,
    Measure::StartTime,
];

/// What tables show where there is not room for everything, the most useful first.
const TELLING: [Measure; 17] = [
    Measure::Throughput,
    Measure::PacketRate,
    Measure::Loss,
    Measure::LatencyMean,
    Measure::LatencyP99,
    Measure::CpuPerGb,
    Measure::SetUpTime,
    Measure::MemoryPerPeer,
    Measure::IdleSwitchRate,
    Measure::StartTime,
    Measure::FirstAnswer,
    Measure::PeakMemory,
    Measure::Retransmits,
    Measure::EnergyPerGb,
    Measure::SyscallsPerGb,
    Measure::SwitchesPerGb,
    Measure::LatencyMax,
];

/// Whose processor time it is: most useful beside that of both daemons where one of them is a gateway.
const WHOSE_CPU: [Measure; 3] = [Measure::MachineCpuPerGb, Measure::ClientCpuPerGb, Measure::FarCpuPerGb];

/// The main measure of a scenario; nothing where nothing was measured.
pub(crate) fn main_measure(record: &Record, scenario: &str) -> Option<Measure> {
    MAIN.into_iter().chain(TELLING).chain(Measure::ALL).find(|measure| has(record, scenario, *measure))
}

/// Everything that was measured in a scenario, in the order of tables.
pub(crate) fn measures(record: &Record, scenario: &str) -> Vec<Measure> {
    Measure::ALL.into_iter().filter(|measure| has(record, scenario, *measure)).collect()
}

/// Its measures, the main one first, then by how useful they are.
pub(crate) fn telling(record: &Record, scenario: &str) -> Vec<Measure> {
    let Some(main) = main_measure(record, scenario) else { return Vec::new() };
    let cpu =
        TELLING.iter().position(|measure| *measure == Measure::CpuPerGb).filter(|_| scenario::is_routed(scenario));
    let mut order = TELLING.to_vec();
    let place = cpu.map_or(order.len(), |cpu| cpu + 1);
    order.splice(place..place, WHOSE_CPU);
    let others = order.into_iter().filter(|measure| *measure != main && has(record, scenario, *measure));
    std::iter::once(main).chain(others).collect()
}

fn has(record: &Record, scenario: &str, measure: Measure) -> bool {
    record.scenario(scenario).any(|row| values(row, measure).next().is_some())
}

/// A row's samples of `measure` in the unit in which it is shown.
pub(crate) fn values(row: &Row, measure: Measure) -> impl Iterator<Item = f64> + '_ {
    let scale = measure.description().scale;
    row.values(measure).map(move |value| value * scale).filter(|value| value.is_finite())
}

/// The same, summed up.
pub(crate) fn summary(row: &Row, measure: Measure) -> Option<Summary> {
    Summary::of(values(row, measure))
}

/// One row against another, round by round.
pub(crate) fn ratio(own: &Row, base: &Row, measure: Measure) -> Option<Ratio> {
    Ratio::of(pairs(own, base, measure))
}

/// The ratio of each round in which both were measured.
pub(crate) fn round_ratios(own: &Row, base: &Row, measure: Measure) -> impl Iterator<Item = f64> {
    pairs(own, base, measure).map(|(own, base)| own / base).filter(|ratio| ratio.is_finite())
}

/// What two rows have of the same rounds.
fn pairs(own: &Row, base: &Row, measure: Measure) -> impl Iterator<Item = (f64, f64)> {
    let of_round = move |round| {
        let sample = base.samples.iter().find(|sample| sample.round == round)?;
        sample.values.get(&measure).copied()
    };
    own.samples.iter().filter_map(move |sample| Some((*sample.values.get(&measure)?, of_round(sample.round)?)))
}

/// A row against the baseline's; nothing for the baseline itself.
pub(crate) fn ratio_to_baseline(record: &Record, row: &Row, measure: Measure) -> Option<Ratio> {
    if row.subject == record.baseline {
        return None;
    }
    ratio(row, record.row(&row.scenario, &record.baseline)?, measure)
}

/// What a row is compared with, and how: the baseline's in the same scenario, then its own in the scenarios that differ
/// in one thing.
pub(crate) struct Comparisons<'a> {
    record: &'a Record,
    measure: Measure,
    /// Labels and scenarios; the first is the baseline's, without a scenario.
    columns: Vec<(String, Option<String>)>,
}

impl<'a> Comparisons<'a> {
    /// Those of a scenario's main measure for which the record has figures.
    pub(crate) fn of(record: &'a Record, scenario: &str, measure: Measure) -> Self {
        let references = scenario::references(scenario).into_iter().map(|(label, name)| (label.to_owned(), Some(name)));
        let mut all = Self {
            record,
            measure,
            columns: std::iter::once((record.baseline.clone(), None)).chain(references).collect(),
        };
        let columns = std::mem::take(&mut all.columns);
        all.columns = columns
            .into_iter()
            .filter(|(_, other)| record.scenario(scenario).any(|row| all.ratio(row, other.as_deref()).is_some()))
            .collect();
        all
    }

    /// What the ratios are to.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(label, _)| label.as_str())
    }

    /// A row's cells, in the order of the labels.
    pub(crate) fn cells(&self, row: &Row) -> Vec<String> {
        let cell = |(_, other): &(String, Option<String>)| self.ratio(row, other.as_deref()).as_ref().map(ratio_cell);
        self.columns.iter().map(|column| cell(column).unwrap_or_default()).collect()
    }

    fn ratio(&self, row: &Row, other: Option<&str>) -> Option<Ratio> {
        match other {
            None => ratio_to_baseline(self.record, row, self.measure),
            Some(scenario) => ratio(row, self.record.row(scenario, &row.subject)?, self.measure),
        }
    }
}

/// A value in the unit in which it is shown: `5.12`.
pub(crate) fn number(value: f64, measure: Measure) -> String {
    let Description { decimals, .. } = measure.description();
    format!("{value:.decimals$}")
}

/// A value with its unit, for sentences: `5.12 Gbit/s`, `344.6 thousand/s`.
pub(crate) fn quantity(value: f64, measure: Measure) -> String {
    format!("{} {}", number(value, measure), measure.description().unit.replace("1000/", "thousand/"))
}

/// The median and half of the spread: `5.12 ±0.08`; of a single round the value alone.
pub(crate) fn cell(row: &Row, measure: Measure) -> Option<String> {
    let Summary { median, least, most } = summary(row, measure)?;
    let median = number(median, measure);
    if row.values(measure).count() < 2 {
        return Some(median);
    }
    Some(format!("{median} ±{}", number((most - least) / 2.0, measure)))
}

/// A factor with two or three significant digits: `0.034`, `0.60`, `2.31`, `12.3`, `310`.
pub(crate) fn factor(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 || size == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A ratio and where it lies: `2.31x [2.20, 2.45]`.
pub(crate) fn ratio_cell(ratio: &Ratio) -> String {
    let median = factor(ratio.median);
    match ratio.interval {
        Some(Interval { low, high, .. }) => format!("{median}x [{}, {}]", factor(low), factor(high)),
        None => format!("{median}x"),
    }
}

/// What the figures in brackets after a ratio mean, with the coverage that this record's rounds allow.
pub(crate) fn about_brackets(record: &Record) -> Option<String> {
    let of = |row: &Row| ratio_to_baseline(record, row, main_measure(record, &row.scenario)?)?.interval;
    let coverage = record.rows.iter().filter_map(of).map(|interval| interval.coverage).reduce(f64::max)?;
    Some(format!(
        "Brackets: {:.0} % confidence interval of the ratio (order statistics of the rounds' ratios); less than {0:.0} % where \
         rounds are missing",
        100.0 * coverage
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_the_digits_they_deserve() {
        let written: Vec<String> = [0.0, 0.034, 0.6, 2.314, 9.999, 12.34, 309.6].into_iter().map(factor).collect();
        assert_eq!(written, ["0.00", "0.034", "0.60", "2.31", "10.0", "12.3", "310"]);
    }

    #[test]
    fn every_measure_a_scenario_can_be_about_is_a_telling_one() {
        assert!(MAIN.iter().all(|measure| TELLING.contains(measure)));
    }
}
