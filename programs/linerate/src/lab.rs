//! `demo` and `lab`: what measures.

mod run;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_lab::load::tcp::{self, Load, Receiver};
use linerate_lab::record::Record;
use linerate_lab::relay::{self, Weather};
use linerate_lab::subject::{KeyPair, Subject};
use linerate_lab::table::Table;
use linerate_lab::{compare, demo, markdown, page};
use serde::Serialize;

use crate::keys;
use crate::tool::DemoArguments;
use linerate_program::Complaint;
use linerate_program::print;

#[derive(clap::Subcommand)]
pub(super) enum LabCommand {
    /// Measure every WireGuard on this machine, side by side
    ///
    /// Makes hosts (network namespaces) on this machine, brings each subject up between them in turn, moves data,
    /// and prints a table; writes a record that `lab report` makes a page of. Subjects take turns round by round, so
    /// that a machine that slows down slows all of them; the figures are medians, the ratios are taken within
    /// rounds. Touches nothing of the real network and leaves nothing behind but the record.
    ///
    /// The exit code is 0 when every row was measured, 1 when one was not: its reason is in the table.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate lab run --quick\n\
        \x20 linerate lab run pair/tcp-1 'pair/udp*' routed --rounds 9\n\
        \x20 linerate lab run pair/tcp-1 --subject 'old=/opt/wireguard-go-2023/wireguard-go'\n\
        \x20 linerate lab run --subject-file docs/subjects/openvpn.toml --only linerate,openvpn")]
    Run(run::RunArguments),

    /// List the scenarios, and the subjects that are here or missing
    List {
        #[command(flatten)]
        subjects: run::SubjectArguments,
    },

    /// Measure a published field report again, beside its own figures
    Story(run::StoryArguments),

    /// Make a page of records
    ///
    /// One file without anything to load from elsewhere: send it, keep it, open it years from now.
    Report {
        /// What `lab run` wrote
        #[arg(required = true)]
        records: Vec<PathBuf>,
        /// Where the page goes [default: beside the first record, ending in .html]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Print Markdown instead, for a README
        #[arg(long, conflicts_with = "output")]
        markdown: bool,
        /// Print the table that `lab run` printed
        #[arg(long, conflicts_with_all = ["output", "markdown"])]
        table: bool,
    },

    /// Compare two records: what became faster, what slower
    Compare {
        /// The record before
        before: PathBuf,
        /// The record after
        after: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Receive one load and print what arrived, as JSON
    #[command(hide = true)]
    Receive {
        /// Where to listen
        at: SocketAddr,
    },

    /// Send TCP as fast as it goes and print what arrived, as JSON
    #[command(hide = true)]
    Send {
        /// Where `lab receive` listens
        to: SocketAddr,
        /// TCP connections at once
        #[arg(long, default_value_t = 1)]
        streams: u16,
        /// Seconds that count
        #[arg(long, default_value = "5", value_parser = seconds)]
        seconds: f64,
        /// Seconds before them that do not
        #[arg(long, default_value = "0.2", value_parser = seconds)]
        warm_up: f64,
    },

    /// Be a bad network for UDP until SIGTERM or Ctrl-C, then print what was done, as JSON
    #[command(hide = true)]
    Relay(RelayArguments),
}

#[derive(clap::Args)]
pub(super) struct RelayArguments {
    /// Where clients send to
    listen: SocketAddr,
    /// Where their datagrams go
    to: SocketAddr,
    /// Share of datagrams lost, 0 to 1
    #[arg(long, default_value = "0", value_parser = share)]
    loss: f64,
    /// Share of datagrams delivered twice, 0 to 1
    #[arg(long, default_value = "0", value_parser = share)]
    duplicate: f64,
    /// Share of datagrams overtaken by later ones, 0 to 1
    #[arg(long, default_value = "0", value_parser = share)]
    reorder: f64,
    /// Milliseconds under way
    #[arg(long, default_value = "0", value_parser = milliseconds)]
    delay: Duration,
    /// Milliseconds by which the delay varies, up and down
    #[arg(long, default_value = "0", value_parser = milliseconds)]
    jitter: Duration,
    /// Bytes of the largest IP packet that passes
    #[arg(long)]
    mtu: Option<u32>,
    /// What the dice start from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(command: LabCommand) -> Result<ExitCode, Complaint> {
    let said = |error: linerate_lab::Error| error.to_string();
    match command {
        LabCommand::Run(arguments) => run::run(arguments),
        LabCommand::List { subjects } => run::list(subjects),
        LabCommand::Story(arguments) => run::story(arguments),
        LabCommand::Report { records, output, markdown, table } => report(&records, output, markdown, table),
        LabCommand::Compare { before, after, json } => compare(&before, &after, json),
        LabCommand::Receive { at } => {
            let received = Receiver::listen(at).and_then(|receiver| receiver.receive()).map_err(said)?;
            print_json(&received)
        }
        LabCommand::Send { to, streams, seconds, warm_up } => {
            let report = tcp::send(to, &Load { streams, seconds, warm_up }).map_err(said)?;
            print_json(&report)
        }
        LabCommand::Relay(options) => {
            let RelayArguments { listen, to, loss, duplicate, reorder, delay, jitter, mtu, seed } = options;
            let weather = Weather { loss, duplicate, reorder, delay, jitter, mtu };
            let report = relay::run(&relay::Options { listen, to, weather, seed }).map_err(said)?;
            print_json(&report)
        }
    }
}

pub(super) fn demo(options: DemoArguments) -> Result<ExitCode, Complaint> {
    let DemoArguments { json, full, rounds, seconds, subjects, linerated } = options;
    let linerated = linerated.map_or_else(linerated_beside_us, Ok)?;
    let keys = [key_pair(), key_pair()];
    let options = demo::Options { linerated, keys, subjects, rounds, seconds, full, json };
    demo::run(&options).map_err(|error| error.to_string())
}

/// Makes a page, Markdown or a table of records.
fn report(
    files: &[PathBuf],
    output: Option<PathBuf>,
    as_markdown: bool,
    as_table: bool,
) -> Result<ExitCode, Complaint> {
    let records = files.iter().map(|file| read_record(file)).collect::<Result<Vec<Record>, Complaint>>()?;
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

fn compare(before: &Path, after: &Path, json: bool) -> Result<ExitCode, Complaint> {
    let comparison = compare::compare(&read_record(before)?, &read_record(after)?);
    if json { print_json(&comparison) } else { print(comparison.to_string().as_bytes()) }
}

fn read_record(file: &Path) -> Result<Record, Complaint> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if file.as_os_str().as_encoded_bytes().ends_with(run::UNFINISHED.as_bytes()) {
        return Err(format!("{}: the run was stopped; the same command goes on with it", file.display()));
    }
    Record::parse(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Writes a file whole or not at all, so that a full disk leaves what was there.
fn write_file(file: &Path, bytes: &[u8]) -> Result<(), Complaint> {
    let half = half_of(file);
    fs::write(&half, bytes).and_then(|()| fs::rename(&half, file)).map_err(|error| {
        let _ = fs::remove_file(&half);
        format!("cannot write {}: {error}", file.display())
    })
}

/// Whether [`write_file`] will find a place, as far as one can tell beforehand.
fn check_writable(file: &Path) -> Result<(), Complaint> {
    let half = half_of(file);
    fs::write(&half, b"")
        .and_then(|()| fs::remove_file(&half))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Where a file is until it is whole.
fn half_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn linerated_beside_us() -> Result<PathBuf, Complaint> {
    let ours = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let daemon = ours.with_file_name("linerated");
    if !daemon.is_file() {
        let place = daemon.display();
        return Err(format!(
            "there is no {place}: build it with `cargo build --release`, or say where it is with --linerated FILE"
        ));
    }
    Ok(daemon)
}

fn key_pair() -> KeyPair {
    let private = keys::private_key();
    KeyPair { private: SecretKey::from_bytes(private.as_bytes()), public: PublicKey(private.public_key().0) }
}

fn print_json(value: &impl Serialize) -> Result<ExitCode, Complaint> {
    let mut text = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    text.push(b'\n');
    print(&text)
}

/// A time in seconds, with decimals, that a measurement can take.
pub(super) fn seconds(text: &str) -> Result<f64, Complaint> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("not between 0 and 86400 seconds".into());
    }
    Ok(seconds)
}

fn milliseconds(text: &str) -> Result<Duration, Complaint> {
    let milliseconds: f64 = text.parse().map_err(|_| "not a number of milliseconds".to_owned())?;
    if !(0.0..=60_000.0).contains(&milliseconds) {
        return Err("not between 0 and 60000 milliseconds".into());
    }
    Ok(Duration::from_secs_f64(milliseconds / 1000.0))
}

fn share(text: &str) -> Result<f64, Complaint> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=1.0).contains(&share) {
        return Err("not between 0 and 1".into());
    }
    Ok(share)
}

/// `NAME=COMMAND`, a daemon to measure.
pub(super) fn subject(text: &str) -> Result<Subject, Complaint> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => Ok(Subject::daemon(name, command)),
        _ => Err("not NAME=COMMAND".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(seconds("0.8").is_ok() && seconds("-1").is_err() && seconds("NaN").is_err());
        assert!(share("0.01").is_ok() && share("1.1").is_err() && share("NaN").is_err());
        assert_eq!(milliseconds("2.5"), Ok(Duration::from_micros(2500)));
        assert!(milliseconds("inf").is_err());
        assert!(subject("go=wireguard-go -f {iface}").is_ok());
        assert!(subject("wireguard-go").is_err() && subject("=x").is_err() && subject("x= ").is_err());
    }
}
