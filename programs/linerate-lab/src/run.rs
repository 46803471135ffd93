//! A run of the lab: rounds; in each, every scenario; in each, every subject's slice of time. So drift of the machine
//! affects all subjects alike, and the failure of one does not affect the others. A [`Journal`] keeps each slice as
//! it ends.

mod journal;
mod slice;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::SystemTime;

use crate::measure::Measure;
use crate::progress::Progress;
use crate::record::{Machine, Method, Record, Row, SCHEMA, Sample, SubjectRecord};
use crate::sandbox::Sandbox;
use crate::scenario::Scenario;
use crate::subject::{Found, KeyPair, MTU, Subject};
use crate::topology::Testbed;
use crate::{Result, hosts, load};
use journal::Outcome;
use linerate_control::printable::printable;
use linerate_doctor::bottleneck::Bottleneck;

pub use journal::{Journal, Plan};

/// What to measure.
pub struct Options {
    /// The scenarios, in the order of measurement.
    pub scenarios: Vec<Scenario>,
    /// The subjects, in the order of measurement; missing ones are recorded as missing.
    pub subjects: Vec<Found>,
    /// The name of the subject that the others are compared to.
    pub baseline: String,
    /// Keys for the two ends, made for this run.
    pub keys: [KeyPair; 2],
    /// Rounds.
    pub rounds: u32,
    /// Seconds of each throughput measurement.
    pub seconds: f64,
    /// Probes of each latency measurement at rest.
    pub probes: u32,
    /// What the random numbers of impaired links start from.
    pub seed: u64,
    /// The congestion control of the TCP streams; none: the machine's.
    pub congestion: Option<String>,
    /// The command line, for the record.
    pub arguments: Vec<String>,
}

/// Seconds in which TCP finds its speed.
pub const WARM_UP: f64 = 0.5;

/// Measures everything that `journal` does not have yet, and keeps it there as it comes. A row that cannot be measured
/// says why and the others go on.
///
/// # Errors
///
/// When nothing at all can be measured here, because there are no tunnel interfaces.
pub fn measure(inside: &Sandbox, options: &Options, journal: &mut Journal) -> Result<Record> {
    hosts::check_tun()?;
    let progress = Progress::new(expected_seconds(options, journal));
    let mut run =
        Run { inside, options, record: journal.empty_record(), bottlenecks: BTreeMap::new(), progress, journal };
    for outcome in run.journal.slices.clone() {
        run.enter(outcome);
    }
    Ok(run.all())
}

/// A run under way.
struct Run<'a> {
    inside: &'a Sandbox,
    options: &'a Options,
    record: Record,
    /// By row and round.
    bottlenecks: BTreeMap<(usize, u32), Bottleneck>,
    progress: Progress,
    journal: &'a mut Journal,
}

impl Run<'_> {
    fn all(mut self) -> Record {
        for (round, scenario, subject) in slices(self.options) {
            if !self.journal.has(&scenario.name, &subject.name, round) {
                self.row(scenario, subject, round);
            }
        }
        self.progress.clear();
        self.judged()
    }

    /// One subject's slice, unless it has failed before: its rounds would no longer match those of the others.
    fn row(&mut self, scenario: &Scenario, subject: &Subject, round: u32) {
        let chapter =
            format!("round {round} of {}, {}, {}", self.options.rounds, scenario.name, printable(&subject.name));
        self.progress.step(&chapter, scenario.about, slice::expected_seconds(scenario, self.options, round));
        if self.record.rows[self.index(&scenario.name, &subject.name)].failure.is_some() {
            return;
        }
        // Hosts of its own: nothing that one subject leaves on them reaches the next. In a round the impairments are
        // the same for all.
        let seed = self.options.seed.wrapping_add(u64::from(round));
        let mut outcome =
            Outcome { scenario: scenario.name.clone(), subject: subject.name.clone(), round, ..Outcome::default() };
        let congestion = self.options.congestion.as_deref();
        let built = Testbed::build(self.inside, &scenario.topology, seed).and_then(|testbed| {
            congestion.map_or(Ok(()), |name| testbed.use_congestion_control(name))?;
            Ok(testbed)
        });
        match built {
            Ok(testbed) => self.measure_slice(&testbed, scenario, subject, &mut outcome),
            Err(error) => outcome.failure = Some(error.to_string()),
        }
        if let Err(error) = self.journal.keep(&outcome) {
            self.progress.clear();
            let place = self.journal.place().unwrap_or("the file".as_ref()).display();
            let _ = writeln!(
                io::stderr(),
                "{place}: {error}; measurements from here on are lost if the run is interrupted"
            );
        }
        self.enter(outcome);
        if let Some(place) = self.journal.kept() {
            let message = format!("Measurements so far are in {}; run the same command to continue.", place.display());
            self.inside.set_interrupt_message(message);
        }
    }

    fn measure_slice(&self, testbed: &Testbed, scenario: &Scenario, subject: &Subject, outcome: &mut Outcome) {
        let refusal = testbed.refuses(subject);
        outcome.notes = refusal.iter().cloned().chain(testbed.notes()).collect();
        if refusal.is_some() {
            return;
        }
        match (slice::Slice { testbed, subject, scenario, options: self.options, round: outcome.round }).take() {
            Ok(result) => {
                outcome.notes.extend(result.notes);
                outcome.sample = Some(result.sample);
                outcome.bottleneck = result.evidence.as_ref().map(Bottleneck::find);
            }
            Err(error) => outcome.failure = Some(format!("round {}: {error}", outcome.round)),
        }
    }

    /// Puts the result of a slice into the record.
    fn enter(&mut self, outcome: Outcome) {
        let index = self.index(&outcome.scenario, &outcome.subject);
        let row = &mut self.record.rows[index];
        for note in outcome.notes {
            if !row.notes.contains(&note) {
                row.notes.push(note);
            }
        }
        row.samples.extend(outcome.sample);
        row.failure = outcome.failure.or(row.failure.take());
        self.bottlenecks.extend(outcome.bottleneck.map(|bottleneck| ((index, outcome.round), bottleneck)));
    }

    /// The index of a subject's row in a scenario.
    fn index(&self, scenario: &str, subject: &str) -> usize {
        let place = self.record.rows.iter().position(|row| row.scenario == scenario && row.subject == subject);
        place.expect("every scenario has a row for each of its participants")
    }

    /// The record, with a bottleneck for each row of traffic: that of the round with the median throughput.
    fn judged(mut self) -> Record {
        for (index, row) in self.record.rows.iter_mut().enumerate() {
            row.bottleneck = median_round(row).and_then(|round| self.bottlenecks.remove(&(index, round)));
        }
        self.record
    }
}

/// All slices, in their order.
fn slices(options: &Options) -> impl Iterator<Item = (u32, &Scenario, &Subject)> {
    (1..=options.rounds).flat_map(move |round| {
        let scenarios = options.scenarios.iter().filter(move |scenario| round == 1 || !scenario.load.is_done_once());
        scenarios.flat_map(move |scenario| {
            in_turn(participants(options, scenario), round).into_iter().map(move |subject| (round, scenario, subject))
        })
    })
}

/// The round with the median throughput, the lower one of two.
fn median_round(row: &Row) -> Option<u32> {
    let throughput = |sample: &Sample| sample.values.get(&Measure::Throughput).copied();
    let mut rounds: Vec<(f64, u32)> =
        row.samples.iter().filter_map(|sample| Some((throughput(sample)?, sample.round))).collect();
    rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
    let middle = rounds.len().checked_sub(1)? / 2;
    Some(rounds[middle].1)
}

/// The subjects that are installed and take part in this scenario.
fn participants<'a>(options: &'a Options, scenario: &'a Scenario) -> impl Iterator<Item = &'a Subject> {
    let here = options.subjects.iter().filter_map(|found| match found {
        Found::Here(subject) => Some(subject),
        Found::Missing { .. } => None,
    });
    here.filter(|subject| scenario.has_part_for(subject))
}

/// The subjects in the order of this round: another one is first each time, so that none always follows the same one.
fn in_turn<'a>(subjects: impl Iterator<Item = &'a Subject>, round: u32) -> Vec<&'a Subject> {
    let mut subjects: Vec<&Subject> = subjects.collect();
    let places = subjects.len().max(1);
    subjects.rotate_left((round as usize - 1) % places);
    subjects
}

fn empty_record(options: &Options) -> Result<Record> {
    let rows = options.scenarios.iter().flat_map(|scenario| {
        participants(options, scenario).map(|subject| Row {
            scenario: scenario.name.clone(),
            subject: subject.name.clone(),
            samples: Vec::new(),
            failure: None,
            notes: Vec::new(),
            bottleneck: None,
        })
    });
    Ok(Record {
        schema: SCHEMA,
        begun: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        lab: env!("CARGO_PKG_VERSION").into(),
        arguments: options.arguments.clone(),
        machine: Machine::describe()?,
        method: Method {
            rounds: options.rounds,
            seconds: options.seconds,
            warm_up: WARM_UP,
            probes: options.probes,
            mtu: MTU,
            seed: options.seed,
            load: load::version().unwrap_or_else(|error| error.to_string()),
            congestion: options.congestion.clone().or_else(hosts::congestion_control),
        },
        subjects: options.subjects.iter().map(describe).collect(),
        baseline: options.baseline.clone(),
        rows: rows.collect(),
    })
}

fn describe(found: &Found) -> SubjectRecord {
    match found {
        Found::Here(subject) => SubjectRecord {
            name: subject.name.clone(),
            command: subject.command().to_vec(),
            version: subject.version(),
            missing: None,
        },
        Found::Missing { name, how } => {
            SubjectRecord { name: name.clone(), command: Vec::new(), version: None, missing: Some(how.clone()) }
        }
    }
}

/// How many slices a whole run has.
#[must_use]
pub fn slice_count(options: &Options) -> usize {
    slices(options).count()
}

/// Seconds that the slices should take which `journal` does not have yet.
#[must_use]
pub fn expected_seconds(options: &Options, journal: &Journal) -> f64 {
    let left = slices(options).filter(|(round, scenario, subject)| !journal.has(&scenario.name, &subject.name, *round));
    left.map(|(round, scenario, _)| slice::expected_seconds(scenario, options, round)).sum()
}
