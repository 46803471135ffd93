//! The result of a run: where, how and what was measured, with every sample. Pages, tables and comparisons are made
//! from its JSON form, on any machine, at any time.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::Measure;
use linerate_doctor::bottleneck::Bottleneck;

/// Raised when a field of the record changes its meaning.
pub const SCHEMA: u32 = 3;

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`] of this record.
    pub schema: u32,
    /// When the run began, UTC, as in RFC 3339: `2026-11-21T17:00:00Z`.
    pub begun: String,
    /// The version of the lab.
    pub lab: String,
    /// The command line that made the record, without the program.
    pub arguments: Vec<String>,
    /// Where it was measured.
    pub machine: Machine,
    /// How it was measured.
    pub method: Method,
    /// The subjects, in the order of measurement, missing ones included.
    pub subjects: Vec<SubjectRecord>,
    /// The name of the subject that the others are compared to.
    pub baseline: String,
    /// One row per scenario and subject, scenarios in their order, then subjects in theirs.
    pub rows: Vec<Row>,
}

/// Where it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The kernel's release, with what its distribution or its owner added: `6.12.43+deb12-amd64`. Reports show the
    /// version alone.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Processors on line.
    pub processors: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// How the kernel chooses clock rates, where it says.
    pub governor: Option<String>,
    /// Where joules come from: the powercap zone; none where the machine has no counter.
    pub powercap: Option<String>,
    /// Share of all processors' time that others used just before the first measurement, 0 to 1.
    pub busy: f64,
}

/// How it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Rounds; in each, every subject was measured in every scenario.
    pub rounds: u32,
    /// Seconds of each throughput measurement, after the warm-up.
    pub seconds: f64,
    /// Seconds before them that do not count.
    pub warm_up: f64,
    /// Probes of each latency measurement at rest.
    pub probes: u32,
    /// The tunnels' MTU.
    pub mtu: u32,
    /// What the random numbers of impaired links start from.
    pub seed: u64,
    /// The load generator and its version.
    pub load: String,
    /// The congestion control of the TCP streams; none in records from before it was recorded, and where the kernel does
    /// not say.
    #[serde(default)]
    pub congestion: Option<String>,
}

/// One subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectRecord {
    /// What it is called.
    pub name: String,
    /// Its command, words apart; empty where the kernel itself is the subject or there is no tunnel.
    pub command: Vec<String>,
    /// What it says its version is.
    pub version: Option<String>,
    /// Why it is missing and how to get it; such a subject has no rows.
    pub missing: Option<String>,
}

/// One subject in one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The scenario: `pair/tcp-1`.
    pub scenario: String,
    /// The subject's name.
    pub subject: String,
    /// One per round that was measured.
    pub samples: Vec<Sample>,
    /// Why it was not measured in every round, as a sentence; its later rounds were left out.
    pub failure: Option<String>,
    /// What one has to know to read it: `delay and loss by the lab's relay, this kernel has no netem`.
    pub notes: Vec<String>,
    /// What the counters say about its bottleneck.
    pub bottleneck: Option<Bottleneck>,
}

/// One subject in one scenario in one round.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Rounds count from 1.
    pub round: u32,
    /// What was measured, each in the unit of its [`Measure`].
    pub values: BTreeMap<Measure, f64>,
    /// Every round trip of the latency probes in milliseconds, in the order of sending; lost ones are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub round_trips_ms: Vec<f64>,
    /// Kernel counters of either host that moved during the load, by name: `server/UdpRcvbufErrors`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

impl Row {
    /// The samples of `measure`, round by round.
    pub fn values(&self, measure: Measure) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().filter_map(move |sample| sample.values.get(&measure).copied())
    }
}

impl Record {
    /// The rows of a scenario, in the order of the subjects.
    pub fn scenario<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Row> + 'a {
        self.rows.iter().filter(move |row| row.scenario == name)
    }

    /// The scenarios' names, each once, in the order in which they were measured.
    #[must_use]
    pub fn scenarios(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for row in &self.rows {
            if names.last() != Some(&row.scenario.as_str()) && !names.contains(&row.scenario.as_str()) {
                names.push(&row.scenario);
            }
        }
        names
    }

    /// The row of a subject in a scenario.
    #[must_use]
    pub fn row(&self, scenario: &str, subject: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.scenario == scenario && row.subject == subject)
    }

    /// Whether there are rows, and none failed or was left out.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.failure.is_none() && !row.samples.is_empty())
    }
}

/// Why a record cannot be read.
#[derive(Debug)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

impl Record {
    /// Reads a record's JSON.
    ///
    /// # Errors
    ///
    /// When it is no record, or one of another schema: the sentence names what was found.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let head: Head =
            serde_json::from_str(text).map_err(|error| Unreadable(format!("not a record of the lab: {error}")))?;
        if head.schema != SCHEMA {
            let found = head.schema;
            return Err(Unreadable(format!("a record of schema {found}; this version reads schema {SCHEMA}")));
        }
        serde_json::from_str(text).map_err(|error| Unreadable(format!("a damaged record: {error}")))
    }
}
