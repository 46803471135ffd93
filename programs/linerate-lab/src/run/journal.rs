//! What is measured, kept as it comes: a line for each slice, in a file beside the one that the record will be. A run
//! that was stopped goes on from there, if it is the same run: the same plan with the same programs on the same
//! machine.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::{Options, empty_record};
use crate::compare;
use crate::record::{Record, Sample};
use crate::subject::Found;
use crate::{Error, Result};
use linerate_doctor::bottleneck::Bottleneck;

/// Raised when a line of the file changes its meaning.
const FORMAT: u32 = 2;

/// A run that is under way or was stopped.
#[derive(Debug)]
pub struct Journal {
    plan: Plan,
    /// The slices that earlier runs have measured.
    pub(super) slices: Vec<Outcome>,
    /// Where it is kept; nowhere for a record that is only printed.
    place: Option<PathBuf>,
    /// Open from the first slice on that is kept, and this run's alone.
    file: Option<File>,
    /// Bytes of whole lines in the file.
    length: u64,
    /// Whether nothing more can be kept.
    is_closed: bool,
}

/// What must be the same for a run to go on, and the record to begin with.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`FORMAT`] of this file.
    journal: u32,
    /// The record without a sample.
    pub(super) record: Record,
    /// What the lab does in each scenario, in its own words.
    scenarios: Vec<String>,
    /// How it brings each subject up.
    subjects: Vec<String>,
    /// The size and time of the files of the lab and of the subjects' commands: a program that was built anew may say
    /// the same version.
    programs: BTreeMap<PathBuf, (u64, u128)>,
}

/// The result of one subject's slice: one scenario in one round.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outcome {
    pub(super) scenario: String,
    pub(super) subject: String,
    pub(super) round: u32,
    pub(super) sample: Option<Sample>,
    pub(super) bottleneck: Option<Bottleneck>,
    pub(super) failure: Option<String>,
    pub(super) notes: Vec<String>,
}

impl Plan {
    /// The plan for this machine as it is now.
    ///
    /// # Errors
    ///
    /// When the machine cannot be described.
    pub fn new(options: &Options) -> Result<Self> {
        let commands = options.subjects.iter().flat_map(|found| match found {
            Found::Here(subject) => subject.command(),
            Found::Missing { .. } => Vec::new(),
        });
        let words = commands.map(PathBuf::from).chain(std::env::current_exe());
        Ok(Self {
            journal: FORMAT,
            record: empty_record(options)?,
            scenarios: options.scenarios.iter().map(|scenario| format!("{scenario:?}")).collect(),
            subjects: options.subjects.iter().map(|found| format!("{found:?}")).collect(),
            programs: words.filter_map(|word| program(&word)).collect(),
        })
    }

    /// What of a run by the plan `other` would not be the same in one by this plan, as sentences.
    fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = compare::circumstances(&self.record, &other.record);
        let mut differ = |what: &str, is_same: bool| {
            if !is_same {
                found.push(format!("{what} changed."));
            }
        };
        let rows = |record: &Record| -> Vec<_> {
            record.rows.iter().map(|row| (row.scenario.clone(), row.subject.clone())).collect()
        };
        let is_same = self.scenarios == other.scenarios && rows(&self.record) == rows(&other.record);
        differ("The scenarios", is_same);
        differ("The subjects", self.subjects == other.subjects && self.record.subjects == other.record.subjects);
        differ("The baseline", self.record.baseline == other.record.baseline);
        for (program, made) in &self.programs {
            differ(&format!("The file {}", program.display()), other.programs.get(program) == Some(made));
        }
        found
    }
}

/// The file that a word of a command names, with its size and time.
fn program(word: &Path) -> Option<(PathBuf, (u64, u128))> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&paths).filter(|_| word.components().count() == 1);
    let places = folders.map(|folder| folder.join(word)).chain([word.to_owned()]);
    let made = |metadata: &Metadata| metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    places.into_iter().find_map(|place| {
        let metadata = fs::metadata(&place).ok().filter(Metadata::is_file)?;
        let since = made(&metadata)?.as_nanos();
        Some((place, (metadata.len(), since)))
    })
}

impl Journal {
    /// A run from its beginning. Its file is made when there is something to keep.
    #[must_use]
    pub fn new(plan: Plan, place: Option<PathBuf>) -> Self {
        Self { plan, slices: Vec::new(), place, file: None, length: 0, is_closed: false }
    }

    /// The run that was stopped and is kept at `place`, to go on by `plan`; none if there is nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when it cannot go on: it is under way elsewhere, cannot be read, or was another run, with
    /// what differs.
    pub fn resume(plan: &Plan, place: &Path) -> Result<Option<Self>> {
        let refused = |why: String| Error::Refused(format!("{}: {}.", place.display(), why.trim_end_matches('.')));
        let file = match File::options().read(true).append(true).open(place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| refused(error.to_string()))?,
        };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(refused("another run is writing to it".into())),
            Err(TryLockError::Error(error)) => return Err(refused(error.to_string())),
            Ok(()) => {}
        }
        let mut bytes = Vec::new();
        (&file).read_to_end(&mut bytes).map_err(|error| refused(error.to_string()))?;
        // A run may have been stopped in the middle of a line, and of a character.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let text = std::str::from_utf8(&bytes[..whole]).map_err(|error| refused(error.to_string()))?;
        let mut lines = text.lines();
        let damaged = |error: serde_json::Error| refused(format!("not a run that can go on ({error})"));
        let before: Plan = serde_json::from_str(lines.next().unwrap_or_default()).map_err(damaged)?;
        let differences = before.differences(plan);
        if before.journal != FORMAT || !differences.is_empty() {
            return Err(refused(format!("it was another run. {}", differences.join(" "))));
        }
        let slices = lines.map(serde_json::from_str).collect::<serde_json::Result<Vec<Outcome>>>().map_err(damaged)?;
        let length = whole as u64;
        file.set_len(length).map_err(|error| refused(error.to_string()))?;
        Ok(Some(Self {
            plan: before,
            slices,
            place: Some(place.to_owned()),
            file: Some(file),
            length,
            is_closed: false,
        }))
    }

    /// How many slices were measured before.
    #[must_use]
    pub fn slices(&self) -> usize {
        self.slices.len()
    }

    /// Where it is kept.
    #[must_use]
    pub fn place(&self) -> Option<&Path> {
        self.place.as_deref()
    }

    /// Where slices are kept; nowhere as long as there are none.
    #[must_use]
    pub fn kept(&self) -> Option<&Path> {
        self.place().filter(|_| self.file.is_some())
    }

    /// The record without a sample.
    pub(super) fn empty_record(&self) -> Record {
        self.plan.record.clone()
    }

    /// Whether that slice was measured before.
    pub(super) fn has(&self, scenario: &str, subject: &str, round: u32) -> bool {
        let is_it = |slice: &Outcome| (&*slice.scenario, &*slice.subject, slice.round) == (scenario, subject, round);
        self.slices.iter().any(is_it)
    }

    /// Keeps the result of a slice. After a failure nothing more is kept; what was stays.
    pub(super) fn keep(&mut self, outcome: &Outcome) -> io::Result<()> {
        let Some(place) = self.place.clone().filter(|_| !self.is_closed) else { return Ok(()) };
        let kept = self.write(&place, outcome);
        if kept.is_err() {
            self.is_closed = true;
            // Half a line is of no use.
            if let Some(file) = self.file.take_if(|_| self.length == 0) {
                drop(file);
                let _ = fs::remove_file(&place);
            } else if let Some(file) = &self.file {
                let _ = file.set_len(self.length);
            }
        }
        kept
    }

    fn write(&mut self, place: &Path, outcome: &Outcome) -> io::Result<()> {
        let mut lines = Vec::new();
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                // Not over what another run has begun to keep meanwhile.
                let file = File::options().append(true).create_new(true).open(place)?;
                file.try_lock()?;
                serde_json::to_writer(&mut lines, &self.plan)?;
                lines.push(b'\n');
                none.insert(file)
            }
        };
        serde_json::to_writer(&mut lines, outcome)?;
        lines.push(b'\n');
        file.write_all(&lines)?;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Forgets the run, when its record is in a safe place.
    ///
    /// # Errors
    ///
    /// When its file cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        match (self.file, self.place) {
            (Some(_), Some(place)) => fs::remove_file(place),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Machine, Method, Row, SCHEMA};

    #[test]
    fn a_run_goes_on_from_the_last_whole_line() {
        let place = Place::new("whole");
        let mut journal = Journal::new(plan(), Some(place.0.clone()));
        assert_eq!(journal.kept(), None);
        for round in 1..=3 {
            journal.keep(&outcome(round)).unwrap();
        }
        assert_eq!(journal.kept(), Some(&*place.0));
        drop(journal);
        let text = fs::read(&place.0).unwrap();
        // In the middle of a character.
        fs::write(&place.0, [&text[..text.len() - 7], &"µ".as_bytes()[..1]].concat()).unwrap();

        let mut journal = Journal::resume(&plan(), &place.0).unwrap().unwrap();
        assert_eq!(journal.slices, [outcome(1), outcome(2)]);
        assert!(journal.has("pair/ping", "x", 2) && !journal.has("pair/ping", "x", 3));
        journal.keep(&outcome(3)).unwrap();
        drop(journal);
        assert_eq!(fs::read(&place.0).unwrap(), text);
        Journal::resume(&plan(), &place.0).unwrap().unwrap().remove().unwrap();
        assert!(Journal::resume(&plan(), &place.0).unwrap().is_none());
    }

    #[test]
    fn what_was_measured_under_other_circumstances_is_refused_and_kept() {
        let place = Place::new("other");
        Journal::new(plan(), Some(place.0.clone())).keep(&outcome(1)).unwrap();
        let before = fs::read(&place.0).unwrap();
        let refused = |change: fn(&mut Plan), what: &str| {
            let mut plan = plan();
            change(&mut plan);
            let said = Journal::resume(&plan, &place.0).unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
            assert_eq!(fs::read(&place.0).unwrap(), before);
        };
        refused(|plan| plan.record.machine.kernel = "7".into(), "Kernel: 6, then 7.");
        refused(|plan| plan.record.method.seconds = 1.0, "Seconds of load: 3, then 1.");
        refused(|plan| plan.subjects.clear(), "The subjects changed.");
        refused(|plan| plan.scenarios.clear(), "The scenarios changed.");
        refused(|plan| plan.record.rows.clear(), "The scenarios changed.");
        refused(|plan| plan.programs = [("/bin/x".into(), (5, 8))].into(), "The file /bin/x changed.");
        refused(|plan| plan.record.baseline = "y".into(), "The baseline changed.");
        // When it was begun and how busy others were is the run's own.
        let mut later = plan();
        later.record.begun = "later".into();
        later.record.machine.busy = 1.0;
        assert_eq!(Journal::resume(&later, &place.0).unwrap().unwrap().empty_record(), plan().record);
    }

    #[test]
    fn one_run_at_a_time_goes_on() {
        let place = Place::new("once");
        let mut journal = Journal::new(plan(), Some(place.0.clone()));
        journal.keep(&outcome(1)).unwrap();
        let said = Journal::resume(&plan(), &place.0).unwrap_err().to_string();
        assert!(said.contains("another run is writing to it"), "{said}");
        assert!(Journal::new(plan(), Some(place.0.clone())).keep(&outcome(1)).is_err());
        journal.keep(&outcome(2)).unwrap();
        drop(journal);
        assert_eq!(Journal::resume(&plan(), &place.0).unwrap().unwrap().slices(), 2);
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let place = Place::new("none");
        let line = serde_json::to_string(&plan()).unwrap();
        let first = serde_json::to_string(&outcome(1)).unwrap();
        for text in ["", "\n", "{}\n", "\u{0}\n", &line, &format!("{line}\n{{}}\n"), &format!("{line}\n\n{first}\n")] {
            fs::write(&place.0, text).unwrap();
            assert!(Journal::resume(&plan(), &place.0).is_err(), "{text:?}");
            assert_eq!(fs::read_to_string(&place.0).unwrap(), text);
        }
    }

    /// A file that goes with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("linerate-journal-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn outcome(round: u32) -> Outcome {
        let sample = Sample { round, round_trips_ms: vec![0.1, 1.0 / 3.0], ..Sample::default() };
        Outcome {
            scenario: "pair/ping".into(),
            subject: "x".into(),
            round,
            sample: Some(sample),
            notes: vec!["a note\nof two lines".into()],
            ..Outcome::default()
        }
    }

    fn plan() -> Plan {
        let machine = Machine {
            kernel: "6".into(),
            processor: "p".into(),
            processors: 2,
            memory: 1,
            governor: None,
            powercap: None,
            busy: 0.0,
        };
        let method = Method {
            rounds: 3,
            seconds: 3.0,
            warm_up: 0.5,
            probes: 10,
            mtu: 1420,
            seed: 1,
            load: "iperf 3".into(),
            congestion: None,
        };
        let row = Row {
            scenario: "pair/ping".into(),
            subject: "x".into(),
            samples: Vec::new(),
            failure: None,
            notes: Vec::new(),
            bottleneck: None,
        };
        let record = Record {
            schema: SCHEMA,
            begun: "now".into(),
            lab: "1".into(),
            arguments: Vec::new(),
            machine,
            method,
            subjects: Vec::new(),
            baseline: "x".into(),
            rows: vec![row],
        };
        Plan {
            journal: FORMAT,
            record,
            scenarios: vec!["ping".into()],
            subjects: vec!["x".into()],
            programs: [("/bin/x".into(), (5, 7))].into(),
        }
    }
}
