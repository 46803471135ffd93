//! `linerate-flood`: what is left of a TCP stream, and of new peers' handshakes, while a daemon is flooded.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use linerate_flood::Content;
use linerate_flood::experiment::{COLUMNS, Experiment, Figures, Handshakes};
use linerate_lab::sandbox::{self, Process, Sandbox};
use linerate_lab::stats::Summary;
use linerate_lab::subject::Subject;
use linerate_lab::{Result, hosts};

/// Measures what floods of datagrams cost a WireGuard daemon
///
/// Makes two hosts with a tunnel between them, floods one end's daemon from 10,000 spoofed addresses, and meanwhile
/// sends a TCP stream through the tunnel and lets new peers begin handshakes. Prints a row for each flood: medians of
/// the rounds, ± half of their range.
///
///   1000/s     thousands of the flood's datagrams sent in a second
///   Gbit/s     throughput of the stream during the flood
///   kept %     the same, relative to the stream without a flood
///   unread %   what the stream keeps when the flood goes to a socket that no process reads: no daemon can keep more
///   daemon %   kept, relative to unread: the daemon's own part
///   new %      new peers that were answered at their first initiation
///   after ms   how soon they were
///   memory MB  peak of the daemon
///
/// Example: linerate-flood --daemon target/release/linerated --rounds 7 forged noise
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// Which to measure [default: all]
    #[arg(value_name = "FLOOD")]
    floods: Vec<Case>,
    /// The program of the daemon, which is started as `FILE -f IFACE`
    #[arg(long, value_name = "FILE")]
    daemon: PathBuf,
    /// How often to measure each, with hosts made anew
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each measurement takes; a round of a flood has three
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seconds: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Valid initiations
    Valid,
    /// Initiations of a key that the daemon does not know
    Forged,
    /// Initiations with a wrong first MAC
    Garbage,
    /// Forged initiations with a wrong second MAC
    WrongCookie,
    /// Data messages of a peer, sent again
    Replayed,
    /// Data messages of no session
    Unknown,
    /// Cookie replies that the daemon did not ask for
    Cookies,
    /// 64 random bytes each
    Noise,
    /// No flood: how many handshakes with fresh peers the daemon completes
    Handshakes,
}

impl Case {
    /// What floods; nothing for handshakes.
    fn content(self) -> Option<Content> {
        Some(match self {
            Self::Valid => Content::Valid,
            Self::Forged => Content::Forged,
            Self::Garbage => Content::WrongMac1,
            Self::WrongCookie => Content::WrongCookie,
            Self::Replayed => Content::Replayed,
            Self::Unknown => Content::UnknownSession,
            Self::Cookies => Content::CookieReplies,
            Self::Noise => Content::Noise,
            Self::Handshakes => return None,
        })
    }

    fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match sandbox::enter().and_then(|process| run(&process, &arguments)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("linerate-flood: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(process: &Process, arguments: &Arguments) -> Result<u8> {
    match process {
        Process::Parent(code) => Ok(*code),
        Process::Child(inside) => hosts::check_tun().and_then(|()| measure(inside, arguments)).map(|()| 0),
    }
}

fn measure(inside: &Sandbox, arguments: &Arguments) -> Result<()> {
    let all: &[Case] = clap::ValueEnum::value_variants();
    let cases = if arguments.floods.is_empty() { all } else { &arguments.floods };
    let subject = Subject::file("daemon", Path::new(&arguments.daemon));
    let mut header = format!("{:<12}", "flood");
    COLUMNS.iter().for_each(|name| header += &format!("  {name:>12}"));
    println!("{header}");
    let experiment = Experiment { inside, subject: &subject, seconds: f64::from(arguments.seconds) };
    for case in cases {
        let line = match case.content() {
            Some(content) => {
                let rounds =
                    (0..arguments.rounds).map(|_| experiment.flood(content)).collect::<Result<Vec<Figures>>>()?;
                let column = |column| cell(rounds.iter().map(|round| round[column]), 2);
                (0..COLUMNS.len()).map(|i| format!("  {:>12}", column(i))).collect()
            }
            None => {
                let rounds =
                    (0..arguments.rounds).map(|_| experiment.handshakes()).collect::<Result<Vec<Handshakes>>>()?;
                format!(
                    "  {} /s, {} per core second, {} cookies",
                    cell(rounds.iter().map(|round| round.per_second), 0),
                    cell(rounds.iter().map(|round| round.per_core_second), 0),
                    cell(rounds.iter().map(|round| round.cookie_replies as f64), 0)
                )
            }
        };
        println!("{:<12}{line}", case.name());
    }
    Ok(())
}

/// The median of the rounds, ± half of their range; `-` where no round has a figure.
fn cell(rounds: impl Iterator<Item = f64>, decimals: usize) -> String {
    let rounds: Vec<f64> = rounds.filter(|figure| figure.is_finite()).collect();
    match Summary::of(rounds.iter().copied()) {
        None => "-".into(),
        Some(Summary { median, .. }) if rounds.len() == 1 => format!("{median:.decimals$}"),
        Some(Summary { median, least, most }) => format!("{median:.decimals$} ±{:.decimals$}", (most - least) / 2.0),
    }
}
