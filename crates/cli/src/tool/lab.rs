//! `demo`, and the pieces of it that tests use on their own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_lab::demo;
use linerate_lab::load::{self, Load, Receiver};
use linerate_lab::relay::{self, Weather};
use linerate_lab::subject::{KeyPair, Subject};
use serde::Serialize;

use super::{DemoArguments, keys, print};
use crate::Complaint;

#[derive(clap::Subcommand)]
pub(super) enum LabCommand {
    /// Receive one load and print what arrived, as JSON
    Receive {
        /// Where to listen
        at: SocketAddr,
    },

    /// Send TCP as fast as it goes and print what arrived, as JSON
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
        LabCommand::Receive { at } => {
            let received = Receiver::listen(at).and_then(|receiver| receiver.receive()).map_err(said)?;
            print_json(&received)
        }
        LabCommand::Send { to, streams, seconds, warm_up } => {
            let report = load::send(to, &Load { streams, seconds, warm_up }).map_err(said)?;
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
