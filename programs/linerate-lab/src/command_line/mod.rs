//! The arguments of `linerate-lab`, and what it prints.

mod run;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use linerate_cli::{documents, exit, print, refuse_arguments};
use linerate_control::atomic_file;
use linerate_lab::record::Record;
use linerate_lab::subject::Subject;
use linerate_lab::table::Table;
use linerate_lab::{compare, demo, markdown, page, peers};
use serde::Serialize;

/// The arguments of `linerate-lab`.
#[derive(Parser)]
#[command(
    name = "linerate-lab",
    bin_name = "linerate lab",
    version,
    about = "Measure the WireGuard implementations on this machine: which is faster, and what limits each.",
    long_about = "Measure the WireGuard implementations on this machine: which is faster, and what limits each.\n\n\
        Puts the same loads on each in turn, and keeps all samples in a record. `linerate lab run --quick` takes some \
        minutes, `linerate demo` half a minute."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show a tunnel at work on this machine, and how fast it is
    ///
    /// Makes two hosts (network namespaces) on this machine, brings up a tunnel between them with
    /// linerated, shows the handshake, then moves data and prints a small table: no tunnel, our
    /// tunnel, and wireguard-go where it is installed. Takes about half a minute, touches nothing of
    /// the real network, and leaves nothing behind, even after Ctrl-C. Root is not needed where the
    /// system lets users make namespaces.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate demo\n\
        \x20 linerate demo --json > result.json\n\
        \x20 linerate demo --subject 'boringtun=boringtun-cli --foreground {iface}'")]
    Demo(DemoArguments),

    /// Measure the WireGuard implementations on this machine side by side
    ///
    /// Makes hosts (network namespaces) on this machine and brings up each subject between them in turn: a WireGuard
    /// implementation, or another tunnel. Moves data, prints a table, and writes a record; `lab report` makes a page of
    /// it. All subjects are measured in each round, so that a machine that slows down slows all of them. Figures are
    /// medians of the rounds; ratios are taken within a round. Touches nothing of the real network and leaves nothing
    /// behind but the record.
    ///
    /// The exit code is 0 when every row was measured, 1 when one was not: its reason is in the table.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate lab run --quick\n\
        \x20 linerate lab run pair/tcp-1 'pair/udp*' --rounds 9\n\
        \x20 linerate lab run pair/tcp-1 pair/tcp-1-ipv6 'routed*/tcp-1*'\n\
        \x20 linerate lab run pair/tcp-1 --subject 'old=/opt/wireguard-go-2023/wireguard-go'\n\
        \x20 linerate lab run --subject-file openvpn.toml --only linerate,openvpn")]
    Run(run::RunArguments),

    /// List the scenarios, and the subjects, installed or missing
    List {
        #[command(flatten)]
        subjects: run::SubjectArguments,
    },

    /// Write records as an HTML page
    ///
    /// The page is a single file that loads nothing from elsewhere.
    Report {
        /// Records that `lab run` wrote
        #[arg(required = true)]
        records: Vec<PathBuf>,
        /// The page's file [default: the first record's name, ending in .html]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Print Markdown instead, for a README
        #[arg(long, conflicts_with = "output")]
        markdown: bool,
        /// Print the table that `lab run` printed
        #[arg(long, conflicts_with_all = ["output", "markdown"])]
        table: bool,
    },

    /// Compare two records: what became faster or slower
    Compare {
        /// The record before
        before: PathBuf,
        /// The record after
        after: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man {
        /// An existing directory
        directory: PathBuf,
    },

    /// Print the completions for a shell
    #[command(hide = true)]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

#[derive(clap::Args)]
struct DemoArguments {
    /// Print the whole record as JSON instead of the handshake and the table
    #[arg(long)]
    json: bool,

    /// Also measure at rest, with more probes, and boringtun if it is installed: takes minutes
    #[arg(long)]
    full: bool,

    /// How often everything is measured; the table shows medians
    #[arg(long, value_name = "N", default_value_t = demo::Options::QUICK_ROUNDS,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Duration of each throughput measurement
    #[arg(long, value_name = "SECONDS", default_value_t = demo::Options::QUICK_SECONDS, value_parser = seconds)]
    seconds: f64,

    /// Add a daemon; {iface} is replaced by the interface's name, otherwise `-f IFACE` is appended
    #[arg(long = "subject", value_name = "NAME=COMMAND", value_parser = subject)]
    subjects: Vec<Subject>,

    /// The linerated to show [default: the one beside this program, or else in PATH]
    #[arg(long, value_name = "FILE")]
    linerated: Option<PathBuf>,
}

/// Runs the program on this process's arguments.
pub(crate) fn main() -> ExitCode {
    match Arguments::try_parse() {
        Ok(arguments) => exit("linerate-lab", run(arguments.command)),
        Err(error) => refuse_arguments(&error),
    }
}

fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Demo(arguments) => show(arguments),
        Command::Man { directory } => {
            documents::write_pages(Arguments::command(), "1", &directory).map(|()| ExitCode::SUCCESS)
        }
        Command::Completions { shell } => documents::print_completions(Arguments::command(), shell),
        Command::Run(arguments) => run::run(arguments),
        Command::List { subjects } => run::list(subjects),
        Command::Report { records, output, markdown, table } => report(&records, output, markdown, table),
        Command::Compare { before, after, json } => compare(&before, &after, json),
    }
}

fn show(arguments: DemoArguments) -> Result<ExitCode, String> {
    let DemoArguments { json, full, rounds, seconds, subjects, linerated } = arguments;
    let linerated = linerated.map_or_else(linerated_beside_us, Ok)?;
    let options = demo::Options { linerated, keys: peers::key_pairs(), subjects, rounds, seconds, full, json };
    demo::run(&options).map_err(|error| error.to_string())
}

/// Makes a page, Markdown or a table of records.
fn report(files: &[PathBuf], output: Option<PathBuf>, as_markdown: bool, as_table: bool) -> Result<ExitCode, String> {
    let records = files.iter().map(|file| read_record(file)).collect::<Result<Vec<Record>, String>>()?;
    if as_markdown {
        return print(records.iter().map(markdown::write).collect::<String>().as_bytes());
    }
    if as_table {
        return print(records.iter().map(|record| Table(record).to_string()).collect::<String>().as_bytes());
    }
    let file = output.unwrap_or_else(|| files[0].with_extension("html"));
    write_file(&file, page::page(&records).as_bytes())?;
    print(format!("{}\n", file.display()).as_bytes())
}

fn compare(before: &Path, after: &Path, json: bool) -> Result<ExitCode, String> {
    let comparison = compare::compare(&read_record(before)?, &read_record(after)?);
    if json { print_json(&comparison) } else { print(comparison.to_string().as_bytes()) }
}

fn read_record(file: &Path) -> Result<Record, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if file.as_os_str().as_encoded_bytes().ends_with(run::UNFINISHED.as_bytes()) {
        return Err(format!("{}: an unfinished run; run the same command to continue it", file.display()));
    }
    Record::parse(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Writes a file whole or not at all, so that a full disk leaves what was there.
fn write_file(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let written = atomic_file::replace(file, partial_name(file), bytes, None, None);
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Whether [`write_file`] will succeed, as far as one can tell beforehand.
fn check_writable(file: &Path) -> Result<(), String> {
    let partial = file.with_file_name(partial_name(file));
    fs::write(&partial, b"")
        .and_then(|()| fs::remove_file(&partial))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// The name of a file until it is whole.
fn partial_name(file: &Path) -> OsString {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    name
}

/// The daemon beside this program, or else in PATH.
fn linerated_beside_us() -> Result<PathBuf, String> {
    let ours = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = ours.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join("linerated")).find(|file| file.is_file()).ok_or_else(|| {
        "linerated is neither beside this program nor in PATH: install the package linerate, build it with \
         `cargo build --release`, or say where it is with --linerated FILE"
            .to_owned()
    })
}

fn print_json(value: &impl Serialize) -> Result<ExitCode, String> {
    let mut text = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    text.push(b'\n');
    print(&text)
}

/// A time in seconds, with decimals, that a measurement can take.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("not between 0 and 86400 seconds".into());
    }
    Ok(seconds)
}

/// `NAME=COMMAND`, a daemon to measure.
fn subject(text: &str) -> Result<Subject, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => Ok(Subject::daemon(name, command)),
        _ => Err("not NAME=COMMAND".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_and_command_has_its_help() {
        documents::assert_documented(Arguments::command());
    }

    #[test]
    fn there_is_a_manual_page_for_each_command_that_is_not_hidden() {
        let directory = std::env::temp_dir().join(format!("linerate-lab-man-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        run(Command::Man { directory: directory.clone() }).unwrap();
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut pages: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        pages.sort();
        std::fs::remove_dir_all(&directory).unwrap();
        let commands = ["-compare", "-demo", "-list", "-report", "-run", ""];
        assert_eq!(pages, commands.map(|name| format!("linerate-lab{name}.1")));
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(seconds("0.8").is_ok() && seconds("-1").is_err() && seconds("NaN").is_err());
        assert!(subject("go=wireguard-go -f {iface}").is_ok());
        assert!(Arguments::try_parse_from(["linerate-lab", "demo", "--rounds", "0"]).is_err());
        assert!(subject("wireguard-go").is_err() && subject("=x").is_err() && subject("x= ").is_err());
    }
}
