//! `lab run` and `lab list`: from arguments to a record.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use linerate_aead::choose::{self, Choice};
use linerate_control::printable::printable;
use linerate_lab::hosts;
use linerate_lab::peers;
use linerate_lab::run::{self, Journal, Options, Plan};
use linerate_lab::sandbox::{self, Process};
use linerate_lab::scenario::{self, Scenario};
use linerate_lab::subject::{self, Found, Kind, Subject};
use linerate_lab::table::{Table, duration};

use super::{check_writable, linerated_beside_us, seconds, write_file};
use linerate_cli::{eprint_line, print};

/// What the others are compared to unless one says otherwise; without it there are no ratios.
const DEFAULT_BASELINE: &str = "wireguard-go";

/// The variable of linerated that switches offloads of the kernel off, and what it may switch off.
const OFFLOADS_VARIABLE: &str = "LINERATE_OFFLOADS";
const OFFLOADS: [&str; 5] = ["-vnet_hdr", "-tso", "-uso", "-udp_gro", "-udp_gso"];

/// Which subjects are measured.
#[derive(clap::Args)]
pub(super) struct SubjectArguments {
    /// Add a daemon; {iface} is replaced by the interface's name, otherwise `-f IFACE` is appended. A known NAME
    /// replaces that subject
    #[arg(long = "subject", value_name = "NAME=COMMAND", value_parser = super::subject)]
    subjects: Vec<Subject>,

    /// Add a tunnel of any kind, described by a file; for examples see /usr/share/doc/linerate-lab/examples
    #[arg(long = "subject-file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Measure only these subjects
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// Leave these subjects out
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "only")]
    without: Vec<String>,

    /// The linerated to measure [default: the one beside this program, or else in PATH]
    #[arg(long, value_name = "FILE")]
    linerated: Option<PathBuf>,

    /// Also measure linerate without each kernel offload, one at a time, and with each slower cipher
    #[arg(long)]
    degraded: bool,
}

/// How long and how often.
#[derive(clap::Args)]
struct MethodArguments {
    /// Measure fewer scenarios for a shorter time: minutes instead of an hour
    #[arg(long)]
    quick: bool,

    /// How often everything is measured [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Duration of each throughput measurement [default: 3, or 1 with --quick]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,

    /// Latency probes at rest [default: 10000, or 1000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    probes: Option<u32>,

    /// Congestion control of the TCP streams [default: the machine's, which the record names]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// Seed of the random delays and losses of impaired links
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The subject to compare the others with
    #[arg(long, value_name = "NAME", default_value = DEFAULT_BASELINE)]
    baseline: String,

    /// The record's file [default: lab-DATE.json]. During the run, measurements are saved to FILE.unfinished; the same
    /// command continues an interrupted run
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print the record as JSON instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(super) struct RunArguments {
    /// A name, a network (`pair`), or a pattern (`pair/udp*`); `lab list` has them all
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    #[command(flatten)]
    method: MethodArguments,
    #[command(flatten)]
    subjects: SubjectArguments,
}

pub(super) fn run(arguments: RunArguments) -> Result<ExitCode, String> {
    let scenarios = scenario::select(&arguments.scenarios, arguments.method.quick)
        .map_err(|pattern| format!("no scenario is called `{pattern}`; `linerate lab list` shows them"))?;
    measure(scenarios, &arguments.method, arguments.subjects)
}

/// Lists what `lab run` would measure and with whom.
pub(super) fn list(arguments: SubjectArguments) -> Result<ExitCode, String> {
    // The search for the kernel's own tunnels makes one, so it runs in the sandbox.
    let Process::Child(_) = enter()? else { return Ok(ExitCode::SUCCESS) };
    let subjects = arguments.find()?;
    let mut text = String::from("Scenarios\n");
    let all = scenario::catalogue();
    let width = all.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    for Scenario { name, about, .. } in &all {
        text.push_str(&format!("  {name:<width$}  {about}\n"));
    }
    text.push_str("\nSubjects\n");
    for found in &subjects {
        text.push_str(&match found {
            Found::Here(subject) => {
                let what = subject.version().unwrap_or_else(|| subject.command().join(" "));
                let when = if subject.name == Subject::NO_CIPHER { ", measured only where it is named" } else { "" };
                format!("  {}  {}{when}\n", printable(&subject.name), printable(&what))
            }
            Found::Missing { name, how } => format!("  {}  missing: {}\n", printable(name), printable(how)),
        });
    }
    print(text.as_bytes())
}

/// Measures, keeps the record, shows it.
fn measure(scenarios: Vec<Scenario>, method: &MethodArguments, subjects: SubjectArguments) -> Result<ExitCode, String> {
    let inside = match enter()? {
        Process::Child(inside) => inside,
        Process::Parent(code) => return Ok(ExitCode::from(code)),
    };
    if let Some(name) = &method.congestion {
        hosts::check_congestion_control(name).map_err(|error| error.to_string())?;
    }
    let subjects = subjects.taking_part(&method.baseline)?;
    if !subjects.iter().any(|found| found.name() == method.baseline) && method.baseline != DEFAULT_BASELINE {
        return Err(format!("no subject is called `{}`, so nothing can be compared to it", method.baseline));
    }
    let options = Options {
        scenarios,
        subjects,
        baseline: method.baseline.clone(),
        keys: peers::key_pairs(),
        rounds: method.rounds.unwrap_or(5),
        seconds: method.seconds.unwrap_or(if method.quick { 1.0 } else { 3.0 }),
        probes: method.probes.unwrap_or(if method.quick { 1000 } else { 10_000 }),
        seed: method.seed,
        congestion: method.congestion.clone(),
        arguments: std::env::args().skip(1).collect(),
    };
    let (file, mut journal) = method.journal(&options)?;
    eprint_line(&forecast(&options, &journal));
    let record = run::measure(&inside, &options, &mut journal).map_err(|error| error.to_string())?;
    let json = serde_json::to_vec(&record).map_err(|error| error.to_string())?;
    // A full disk or a broken pipe must not lose what was measured: the other one still gets it.
    let kept = file.map_or(Ok(()), |file| keep(&file, &json, journal));
    let shown = if method.json { print(&json) } else { print(Table(&record).to_string().as_bytes()) };
    kept?;
    shown?;
    Ok(if record.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the file has in addition to its name until the record is whole.
pub(super) const UNFINISHED: &str = ".unfinished";

impl MethodArguments {
    /// Where the record goes, and the run: one that was stopped, if it was the same, or a new one.
    fn journal(&self, options: &Options) -> Result<(Option<PathBuf>, Journal), String> {
        // Before the measurement, not after an hour of it.
        self.output.as_deref().map(check_place).transpose()?;
        let plan = Plan::new(options).map_err(|error| error.to_string())?;
        let begin = |plan, file: PathBuf| (Some(file.clone()), Journal::new(plan, Some(unfinished(&file))));
        match &self.output {
            None if self.json => Ok((None, Journal::new(plan, None))),
            Some(file) => match Journal::resume(&plan, &unfinished(file)) {
                Ok(Some(journal)) => Ok((Some(file.clone()), journal)),
                Ok(None) => Ok(begin(plan, file.clone())),
                Err(error) => Err(format!("{error} Choose another file with --output, or remove that one")),
            },
            None => {
                for place in unfinished_here() {
                    match Journal::resume(&plan, &place) {
                        Ok(Some(journal)) => return Ok((Some(place.with_extension("")), journal)),
                        Ok(None) => {}
                        Err(error) => eprint_line(&format!("{error} The file is left as it is.")),
                    }
                }
                let date = humantime::format_rfc3339_seconds(SystemTime::now());
                let file: PathBuf = format!("lab-{date}.json").replace(':', "-").into();
                check_place(&file)?;
                Ok(begin(plan, file))
            }
        }
    }
}

/// Where a run is kept whose record will be `file`.
fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// Runs in this directory that were stopped and whose records would have names by date, the latest first.
fn unfinished_here() -> Vec<PathBuf> {
    let names =
        std::fs::read_dir(".").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_ours = |name: &String| name.starts_with("lab-") && name.ends_with(&format!(".json{UNFINISHED}"));
    let mut found: Vec<PathBuf> = names.filter(is_ours).map(PathBuf::from).collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found
}

/// What is ahead: how long it takes, and what becomes of it if it is stopped.
fn forecast(options: &Options, journal: &Journal) -> String {
    let (all, time) = (run::slice_count(options), duration(run::expected_seconds(options, journal)));
    match (journal.place(), journal.slices()) {
        (None, _) => {
            format!(
                "{all} measurements, about {time}. Nothing is saved until the end; use `--output FILE` to be able to continue an interrupted run."
            )
        }
        (Some(place), 0) => format!(
            "{all} measurements, about {time}. Each is saved to {}: after an interruption, run the same command to \
             continue.",
            place.display()
        ),
        (Some(place), done) => format!(
            "Continuing {}: {done} of {all} measurements are done, about {time} left. Remove the file to start over.",
            place.display()
        ),
    }
}

/// Writes the record, and forgets the unfinished one then.
fn keep(file: &Path, json: &[u8], journal: Journal) -> Result<(), String> {
    if let Err(error) = write_file(file, json) {
        return Err(match journal.kept() {
            Some(place) => format!("{error}; the measurements are in {}", place.display()),
            None => error,
        });
    }
    let _ = writeln!(io::stderr(), "{}", where_it_is(file));
    let place = journal.place().map(Path::to_owned).unwrap_or_default();
    journal.remove().map_err(|error| format!("cannot remove {}: {error}", place.display()))
}

/// Whether a record can be kept there, as far as one can tell beforehand.
fn check_place(file: &Path) -> Result<(), String> {
    let whole = std::path::absolute(file).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    if whole.starts_with("/run") || whole.starts_with("/var/run") {
        return Err(format!("cannot write {}: the lab mounts its own /run; choose another directory", file.display()));
    }
    check_writable(file)
}

fn where_it_is(file: &Path) -> String {
    format!("The record is {0}; `linerate lab report {0}` makes a page of it.", file.display())
}

fn enter() -> Result<Process, String> {
    sandbox::enter().map_err(|error| error.to_string())
}

impl SubjectArguments {
    /// The subjects that are measured.
    fn taking_part(self, baseline: &str) -> Result<Vec<Found>, String> {
        let no_cipher = baseline == Subject::NO_CIPHER || self.names(Subject::NO_CIPHER);
        let mut found = self.find()?;
        found.retain(|found| no_cipher || found.name() != Subject::NO_CIPHER);
        Ok(found)
    }

    /// Whether one is asked for, or given, by this name.
    fn names(&self, name: &str) -> bool {
        self.only.iter().any(|only| only == name) || self.subjects.iter().any(|given| given.name == name)
    }

    /// All subjects that the arguments do not exclude.
    fn find(self) -> Result<Vec<Found>, String> {
        let linerated = self.linerated.map_or_else(linerated_beside_us, Ok)?;
        let mut given = if self.degraded { degraded(&linerated) } else { Vec::new() };
        given.extend(self.subjects);
        for file in &self.files {
            given.push(from_file(file)?);
        }
        let mut found = subject::catalogue(&linerated, &given);
        let known: Vec<String> = found.iter().map(|found| found.name().to_owned()).collect();
        if let Some(missing) = found.iter().find_map(|found| missing_one(found, &self.only)) {
            return Err(missing);
        }
        if let Some(unknown) = self.only.iter().chain(&self.without).find(|name| !known.contains(name)) {
            return Err(format!("no subject is called `{unknown}`; there are {}", known.join(", ")));
        }
        found.retain(|found| {
            let name = found.name().to_owned();
            (self.only.is_empty() || self.only.contains(&name)) && !self.without.contains(&name)
        });
        Ok(found)
    }
}

/// Our daemon on machines that offer less than this one.
fn degraded(linerated: &Path) -> Vec<Subject> {
    let offloads = OFFLOADS.map(|word| (OFFLOADS_VARIABLE, word));
    // The portable code is there to be compared with, not to be used.
    let slower = |name: &&str| *name != Choice::best().name() && *name != "portable";
    let ciphers = Choice::available().map(|choice| choice.name()).filter(slower);
    let variables = offloads.into_iter().chain(ciphers.map(|name| (choose::VARIABLE, name)));
    let subject = |(variable, value): (&str, &str)| {
        let command = ["env", &format!("{variable}={value}"), &linerated.to_string_lossy()].map(str::to_owned);
        Subject { name: format!("{} {value}", Subject::OURS), kind: Kind::Daemon { command: command.into() } }
    };
    variables.map(subject).collect()
}

/// Why a subject that was named is missing.
fn missing_one(found: &Found, only: &[String]) -> Option<String> {
    match found {
        Found::Missing { name, how } if only.contains(name) => Some(format!("{name} is missing: {how}")),
        _ => None,
    }
}

fn from_file(file: &Path) -> Result<Subject, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Subject::from_toml(&text).map_err(|error| format!("{}: {error}", file.display()))
}
