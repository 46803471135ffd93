//! Two records side by side: what became faster or slower, what the rounds do not tell, and what else differs
//! between them and may be the cause.

use std::fmt;

use serde::Serialize;

use crate::figures::{factor, number, summary, values};
use crate::measure::{Better, Measure};
use crate::record::{Machine, Method, Record, Row};
use crate::sentences::{busy, cut};
use crate::stats::Summary;
use linerate_control::printable::printable;

/// What is compared where both records have it.
const COMPARED: [Measure; 9] = [
    Measure::Throughput,
    Measure::PacketRate,
    Measure::LatencyMean,
    Measure::LatencyP99,
    Measure::SetUpTime,
    Measure::IdleSwitchRate,
    Measure::StartTime,
    Measure::CpuPerGb,
    Measure::PeakMemory,
];

/// The significance level: how often ranges of equal subjects may lie apart by chance.
const CHANCE: f64 = 0.1;

/// Two records side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// When the first record was begun.
    pub a: String,
    /// When the second one was begun.
    pub b: String,
    /// What both measured, in the order of the first.
    pub changes: Vec<Change>,
    /// Rows that only the first has, as `scenario, subject`.
    pub only_a: Vec<String>,
    /// Rows that only the second has.
    pub only_b: Vec<String>,
    /// What differs in machine, versions and method, as sentences.
    pub differences: Vec<String>,
}

/// A measure of a subject in a scenario, in both records.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The scenario.
    pub scenario: String,
    /// The subject.
    pub subject: String,
    /// The measure.
    pub measure: Measure,
    /// The first record's rounds, in the unit in which the measure is shown.
    pub a: Summary,
    /// The second record's rounds, in the same unit.
    pub b: Summary,
    /// The second median divided by the first; none where that is zero.
    pub ratio: Option<f64>,
    /// Whether a sample of one lies within the range of the other's.
    pub overlap: bool,
    /// The conclusion.
    pub finding: Finding,
}

/// What two sets of rounds say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The second record is better.
    Better,
    /// The second record is worse.
    Worse,
    /// The ranges overlap, or the rounds are too few to tell.
    NoClearDifference,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoClearDifference => "no clear difference",
        })
    }
}

/// Compares `b` to `a`.
#[must_use]
pub fn compare(a: &Record, b: &Record) -> Comparison {
    let mut changes = Vec::new();
    for row in &a.rows {
        if let Some(other) = b.row(&row.scenario, &row.subject) {
            changes.extend(COMPARED.into_iter().filter_map(|measure| Change::of(row, other, measure)));
        }
    }
    Comparison {
        a: a.begun.clone(),
        b: b.begun.clone(),
        changes,
        only_a: only(a, b),
        only_b: only(b, a),
        differences: differences(a, b),
    }
}

impl Change {
    fn of(row: &Row, other: &Row, measure: Measure) -> Option<Self> {
        let (a, b) = (summary(row, measure)?, summary(other, measure)?);
        let overlap = a.least <= b.most && b.least <= a.most;
        let (more, less) = match measure.description().better {
            Better::More => (Finding::Better, Finding::Worse),
            Better::Less => (Finding::Worse, Finding::Better),
            Better::Neither => (Finding::NoClearDifference, Finding::NoClearDifference),
        };
        let rounds = |row| values(row, measure).count();
        let finding = if overlap || chance(rounds(row), rounds(other)) > CHANCE {
            Finding::NoClearDifference
        } else if b.median > a.median {
            more
        } else {
            less
        };
        let ratio = Some(b.median / a.median).filter(|ratio| ratio.is_finite());
        let (scenario, subject) = (row.scenario.clone(), row.subject.clone());
        Some(Self { scenario, subject, measure, a, b, ratio, overlap, finding })
    }
}

/// The probability that two equal subjects with `n` and `m` rounds show ranges that lie apart: two of the C(n + m, n)
/// orders of the rounds, which are equally likely (the permutation test; E. S. Edgington, Randomization Tests).
fn chance(n: usize, m: usize) -> f64 {
    let orders: f64 = (1..=n).map(|i| (m + i) as f64 / i as f64).product();
    2.0 / orders
}

fn only(a: &Record, b: &Record) -> Vec<String> {
    let missing = a.rows.iter().filter(|row| b.row(&row.scenario, &row.subject).is_none());
    missing.map(|row| format!("{}, {}", row.scenario, row.subject)).collect()
}

/// What may be the cause of a change other than the subjects themselves.
fn differences(a: &Record, b: &Record) -> Vec<String> {
    let mut found = circumstances(a, b);
    for (record, which) in [(a, "first"), (b, "second")] {
        let sentence = busy(&record.machine);
        found.extend(sentence.map(|sentence| format!("The {which} record says: {sentence}")));
    }
    found
}

/// What differs in machine, method and versions.
pub(crate) fn circumstances(a: &Record, b: &Record) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            found.push(format!("{what}: {a}, then {b}."));
        }
    };
    let unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let Machine { kernel, processor, processors, memory, governor, powercap, busy: _ } = &a.machine;
    differ("Kernel", kernel.clone(), b.machine.kernel.clone());
    differ("Processor", processor.clone(), b.machine.processor.clone());
    differ("Processors", processors.to_string(), b.machine.processors.to_string());
    let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    differ("Memory", gigabytes(*memory), gigabytes(b.machine.memory));
    differ("Governor", unknown(governor), unknown(&b.machine.governor));
    differ("Energy counter", unknown(powercap), unknown(&b.machine.powercap));
    let Method { rounds, seconds, warm_up, probes, mtu, seed, load, congestion } = &a.method;
    differ("Rounds", rounds.to_string(), b.method.rounds.to_string());
    differ("Seconds of load", seconds.to_string(), b.method.seconds.to_string());
    differ("Seconds of warm-up", warm_up.to_string(), b.method.warm_up.to_string());
    differ("Probes", probes.to_string(), b.method.probes.to_string());
    differ("Tunnel MTU", mtu.to_string(), b.method.mtu.to_string());
    differ("Seed", seed.to_string(), b.method.seed.to_string());
    differ("Load generator", load.clone(), b.method.load.clone());
    differ("Congestion control", unknown(congestion), unknown(&b.method.congestion));
    differ("Version of the lab", a.lab.clone(), b.lab.clone());
    for subject in &a.subjects {
        if let Some(other) = b.subjects.iter().find(|other| other.name == subject.name) {
            differ(&format!("Version of {}", subject.name), unknown(&subject.version), unknown(&other.version));
            differ(&format!("Command of {}", subject.name), subject.command.join(" "), other.command.join(" "));
        }
    }
    found
}

impl fmt::Display for Comparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "A is the record of {}, B that of {}; medians, and B / A.", self.a, self.b)?;
        let names = |change: &Change| (cut(&change.subject).chars().count(), label(change.measure).chars().count());
        let (subject, measure) =
            self.changes.iter().map(names).fold((0, 0), |(a, b), (subject, measure)| (a.max(subject), b.max(measure)));
        let mut scenario = "";
        for change in &self.changes {
            if change.scenario != scenario {
                scenario = &change.scenario;
                writeln!(out, "\n{}", printable(scenario))?;
            }
            change.write(out, subject, measure)?;
        }
        if !self.changes.is_empty() {
            writeln!(out)?;
        }
        for (rows, which) in [(&self.only_a, "A"), (&self.only_b, "B")] {
            for row in rows {
                writeln!(out, "Only in {which}: {}.", printable(row))?;
            }
        }
        if self.differences.is_empty() {
            return writeln!(out, "Same machine, method and versions.");
        }
        writeln!(out, "What else differs:")?;
        self.differences.iter().try_for_each(|sentence| writeln!(out, "  {}", printable(sentence)))
    }
}

impl Change {
    fn write(&self, out: &mut fmt::Formatter<'_>, subject: usize, measure: usize) -> fmt::Result {
        let value = |summary: Summary| number(summary.median, self.measure);
        let ratio = self.ratio.map_or_else(|| "-".into(), |ratio| format!("{}x", factor(ratio)));
        writeln!(
            out,
            "  {:<subject$}  {:<measure$}  {:>10}  {:>10}  {ratio:>7}  {}",
            cut(&self.subject),
            label(self.measure),
            value(self.a),
            value(self.b),
            self.finding
        )
    }
}

/// The measure with its unit: `throughput, Gbit/s`.
fn label(measure: Measure) -> String {
    let description = measure.description();
    format!("{}, {}", description.name, description.unit)
}
