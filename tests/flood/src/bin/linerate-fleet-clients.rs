//! `linerate-fleet-clients`: thousands of clients of a fleet whose gateway dies (docs/fleet.md).

#![forbid(unsafe_code)]

use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::Parser;
use linerate_control::keys::PublicKey;
use linerate_flood::{FleetClients, Plan, client_keys};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long all may take to get their first sessions.
const SESSIONS_TIME: Duration = Duration::from_secs(180);

/// Thousands of clients of a fleet, each with a key and an address of its own (198.18.0.1 and so on), port 40000
///
/// With --sections it prints the clients as [Peer] sections for a tunnel's file. Without, each client makes a session with the
/// gateway that has the fleet's address; the line `ready N' tells that N have one, and all send data in turn. Then it waits for
/// a line with the time at which that gateway was killed, in microseconds since 1970, and for the first message of each
/// client's new gateway. It prints one line of JSON: how long after the kill clients could send again.
///
/// The host needs the addresses, and a way for 10,000 of them: `ip route add local 198.18.0.0/15 dev lo'.
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    clients: u32,
    /// What their keys are made of
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the sections of the clients, and do nothing else
    #[arg(long)]
    sections: bool,
    /// The fleet's address
    #[arg(long, value_name = "IP:PORT", required_unless_present = "sections")]
    to: Option<SocketAddr>,
    /// The fleet's public key
    #[arg(long, value_name = "KEY", value_parser = key, required_unless_present = "sections")]
    gateway: Option<PublicKey>,
    /// Messages that all of them send in a second
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rate: u32,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
}

fn key(text: &str) -> Result<PublicKey, String> {
    PublicKey::from_base64(text.as_bytes()).ok_or_else(|| "it is no key in base64".to_owned())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("linerate-fleet-clients: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let said = |error: io::Error| format!("cannot print: {error}");
    let mut out = io::BufWriter::new(io::stdout().lock());
    if arguments.sections {
        for number in 0..arguments.clients {
            write!(out, "{}", section(arguments.seed, number)).map_err(said)?;
        }
        return out.flush().map_err(said);
    }
    allow_sockets()?;
    let missing = || "--to and --gateway are needed".to_owned();
    let plan = Plan {
        to: arguments.to.ok_or_else(missing)?,
        gateway: arguments.gateway.ok_or_else(missing)?,
        clients: arguments.clients,
        seed: arguments.seed,
        rate: arguments.rate,
        threads: arguments.threads,
    };
    let clients = FleetClients::start(plan).map_err(|error| error.to_string())?;
    writeln!(out, "ready {}", clients.wait_for_sessions(SESSIONS_TIME)).and_then(|()| out.flush()).map_err(said)?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| format!("cannot read the time of the kill: {error}"))?;
    let death: u64 = line.trim().parse().map_err(|_| "standard input is not a time in microseconds".to_owned())?;
    let report =
        clients.wait_until_taken(UNIX_EPOCH + Duration::from_micros(death)).map_err(|error| error.to_string())?;
    let taken = &report.taken_ms;
    let at = |part: f64| {
        taken.get(((taken.len() as f64 * part).ceil() as usize).saturating_sub(1)).copied().unwrap_or(f64::NAN)
    };
    writeln!(
        out,
        "{{\"clients\":{},\"taken\":{},\"first_ms\":{:.1},\"median_ms\":{:.1},\"p99_ms\":{:.1},\"last_ms\":{:.1},\"initiations\":{},\
         \"clients_processor_s\":{:.2}}}",
        arguments.clients,
        taken.len(),
        at(0.0),
        at(0.5),
        at(0.99),
        at(1.0),
        report.initiations,
        report.processor_seconds
    )
    .and_then(|()| out.flush())
    .map_err(said)
}

/// The client as a section, with an address in 10.64.0.0/10.
fn section(seed: u64, number: u32) -> String {
    let [_, second, third, fourth] = (number + 2).to_be_bytes();
    let key = client_keys(seed, number).public;
    format!("\n[Peer]\n# Name = many{number}\nPublicKey = {key}\nAllowedIPs = 10.{}.{third}.{fourth}/32\n", 64 + second)
}

/// A socket for each client.
fn allow_sockets() -> Result<(), String> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|error| format!("cannot open many sockets: {error}"))
}
