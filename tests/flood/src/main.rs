//! `linerate-flood`: what is left of a TCP stream, and of new peers' handshakes, while a daemon is flooded.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use linerate_flood::Content;
use linerate_flood::experiment::{COLUMNS, Experiment, Figures};
use linerate_lab::sandbox::{self, Process, Sandbox};
use linerate_lab::stats::Summary;
use linerate_lab::subject::Subject;
use linerate_lab::{Result, hosts};

/// Floods a daemon from 10,000 addresses, and counts its handshakes
///
/// Prints a row for each flood: medians of all rounds, ± half of their range. "kept" is one TCP stream's throughput
/// as a share of that without a flood, "unread" the same while the flood goes to a socket that nobody reads, "daemon"
/// the quotient of the two. "new" are the peers that the daemon answers at their first initiation, "after" how long
/// that takes.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Which floods; all, and the handshakes, without
    #[arg(value_name = "FLOOD")]
    floods: Vec<Case>,
    /// The daemon's program, which takes `-f IFACE`
    #[arg(long, value_name = "FILE")]
    daemon: PathBuf,
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seconds: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Valid initiations
    Valid,
    /// Initiations of an unknown key
    Forged,
    /// Initiations with a wrong first MAC
    Garbage,
    /// Forged initiations with a wrong second MAC
    WrongCookie,
    /// Replayed data messages
    Replayed,
    /// Data messages of no session
    Unknown,
    /// Cookie replies
    Cookies,
    /// 64 random bytes each
    Noise,
    /// No flood: handshakes of fresh peers, as fast as they complete
    Handshakes,
}

impl Case {
    /// What floods; nothing for the handshakes.
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
    for case in cases {
        let mut rounds = Vec::new();
        for _ in 0..arguments.rounds {
            let experiment = Experiment { inside, subject: &subject, seconds: f64::from(arguments.seconds) };
            match case.content() {
                Some(content) => rounds.push(experiment.flood(content)?),
                None => println!("{:<12}  {}", case.name(), experiment.handshakes()?),
            }
        }
        if !rounds.is_empty() {
            println!("{:<12}{}", case.name(), row(&rounds));
        }
    }
    Ok(())
}

/// A cell for each column; `-` where no round has a figure.
fn row(rounds: &[Figures]) -> String {
    let cells = (0..COLUMNS.len()).map(|column| {
        let figures = rounds.iter().map(|round| round[column]).filter(|figure| figure.is_finite());
        let cell = match Summary::of(figures) {
            None => "-".into(),
            Some(one) if rounds.len() == 1 => format!("{:.2}", one.median),
            Some(many) => format!("{:.2} ±{:.2}", many.median, many.spread()),
        };
        format!("  {cell:>12}")
    });
    cells.collect()
}
