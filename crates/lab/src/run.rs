//! A run of the lab: rounds; in each, every scenario; in each, every subject's turn. So drift of the machine
//! hits all alike, and one subject's failure is its own.

mod turn;

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::enclosure::Enclosure;
use crate::measure::Measure;
use crate::progress::Progress;
use crate::record::{Machine, Method, Record, Row, SCHEMA, Sample, SubjectRecord};
use crate::scenario::Scenario;
use crate::subject::{Found, KeyPair, MTU, Subject};
use crate::topology::Site;
use crate::verdict::{Evidence, Verdict};
use crate::{Result, hosts, load};
use linerate_control::printable::printable;

/// What to measure.
pub struct Options {
    /// The scenarios, in the order of measurement.
    pub scenarios: Vec<Scenario>,
    /// Who takes part, in the order of turns; missing ones are recorded as missing.
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
    /// What the dice of impaired links start from.
    pub seed: u64,
    /// The command line, for the record.
    pub arguments: Vec<String>,
}

/// Seconds in which TCP finds its speed.
pub const WARM_UP: f64 = 0.5;

/// Measures everything. A row that cannot be measured says why and the others go on.
///
/// # Errors
///
/// When nothing at all can be measured here, because there are no tunnel interfaces.
pub fn measure(inside: &Enclosure, options: &Options) -> Result<Record> {
    hosts::check_tun()?;
    let record = empty_record(options)?;
    let progress = Progress::new(expected_seconds(options));
    let mut run = Run { options, record, evidence: BTreeMap::new(), progress };
    for round in 1..=options.rounds {
        for scenario in options.scenarios.iter().filter(|scenario| round == 1 || !scenario.load.is_done_once()) {
            for subject in in_turn(participants(options, scenario), round) {
                run.row(inside, scenario, subject, round);
            }
        }
    }
    run.progress.clear();
    Ok(run.judged())
}

/// A run under way.
struct Run<'a> {
    options: &'a Options,
    record: Record,
    /// By row and round.
    evidence: BTreeMap<(usize, u32), Evidence>,
    progress: Progress,
}

impl Run<'_> {
    /// One subject's turn, unless it has failed before: its rounds would no longer match those of the others.
    fn row(&mut self, inside: &Enclosure, scenario: &Scenario, subject: &Subject, round: u32) {
        let chapter =
            format!("round {round} of {}, {}, {}", self.options.rounds, scenario.name, printable(&subject.name));
        self.progress.step(&chapter, scenario.about, turn::expected_seconds(scenario, self.options));
        let index = self.index(scenario, subject);
        if self.record.rows[index].failure.is_some() {
            return;
        }
        // Hosts of its own: what one subject leaves on them is not the next one's, and in a round the weather is the
        // same for all.
        let seed = self.options.seed.wrapping_add(u64::from(round));
        match Site::build(inside, &scenario.topology, seed) {
            Ok(site) => self.turn(&site, scenario, subject, round),
            Err(error) => self.record.rows[index].failure = Some(error.to_string()),
        }
    }

    fn turn(&mut self, site: &Site, scenario: &Scenario, subject: &Subject, round: u32) {
        let index = self.index(scenario, subject);
        let refusal = site.refuses(subject);
        let notes = refusal.iter().cloned().chain(site.notes());
        self.note(index, notes);
        if refusal.is_some() {
            return;
        }
        match (turn::Turn { site, subject, scenario, options: self.options, round }).take() {
            Ok(taken) => {
                self.note(index, taken.notes);
                self.record.rows[index].samples.push(taken.sample);
                if let Some(evidence) = taken.evidence {
                    self.evidence.insert((index, round), evidence);
                }
            }
            Err(error) => self.record.rows[index].failure = Some(format!("round {round}: {error}")),
        }
    }

    /// Where the row of a subject in a scenario stands.
    fn index(&self, scenario: &Scenario, subject: &Subject) -> usize {
        let rows = &self.record.rows;
        let place = rows.iter().position(|row| row.scenario == scenario.name && row.subject == subject.name);
        place.expect("every scenario has a row for each of its participants")
    }

    /// Adds what the row does not say yet.
    fn note(&mut self, index: usize, notes: impl IntoIterator<Item = String>) {
        let known = &mut self.record.rows[index].notes;
        for note in notes {
            if !known.contains(&note) {
                known.push(note);
            }
        }
    }

    /// The record, with a verdict for each row of traffic: by the evidence of the round in the middle.
    fn judged(mut self) -> Record {
        for (index, row) in self.record.rows.iter_mut().enumerate() {
            row.verdict =
                round_in_the_middle(row).and_then(|round| self.evidence.get(&(index, round))).map(Verdict::on);
        }
        self.record
    }
}

/// The round with the median throughput, the lower one of two.
fn round_in_the_middle(row: &Row) -> Option<u32> {
    let throughput = |sample: &Sample| sample.values.get(&Measure::Throughput).copied();
    let mut rounds: Vec<(f64, u32)> =
        row.samples.iter().filter_map(|sample| Some((throughput(sample)?, sample.round))).collect();
    rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
    let middle = rounds.len().checked_sub(1)? / 2;
    Some(rounds[middle].1)
}

/// Who is here and has a part in this scenario.
fn participants<'a>(options: &'a Options, scenario: &'a Scenario) -> impl Iterator<Item = &'a Subject> {
    let here = options.subjects.iter().filter_map(|found| match found {
        Found::Here(subject) => Some(subject),
        Found::Missing { .. } => None,
    });
    here.filter(|subject| scenario.has_part_for(subject))
}

/// The subjects in the order of this round, each time another one first, so that nobody always follows the same.
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
            verdict: None,
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

/// Seconds that the whole run should take.
fn expected_seconds(options: &Options) -> f64 {
    let of = |scenario: &Scenario| {
        let rounds = if scenario.load.is_done_once() { 1 } else { options.rounds };
        let turns = participants(options, scenario).count() as f64 * f64::from(rounds);
        turns * turn::expected_seconds(scenario, options)
    };
    options.scenarios.iter().map(of).sum()
}
