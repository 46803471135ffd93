//! An impaired network for UDP, for scenarios on kernels without netem: loses, duplicates, reorders and delays
//! datagrams.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use linerate_lab::relay::{self, Impairments};

/// Relay UDP datagrams, impaired, until SIGTERM or Ctrl-C; then print what was done, as JSON
#[derive(Parser)]
struct Arguments {
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
    /// What the random numbers start from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { listen, to, loss, duplicate, reorder, delay, jitter, mtu, seed } = Arguments::parse();
    let impairments = Impairments { loss, duplicate, reorder, delay, jitter, mtu };
    let report = relay::run(&relay::Options { listen, to, impairments, seed })?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let milliseconds: f64 = text.parse().map_err(|_| "not a number of milliseconds".to_owned())?;
    if !(0.0..=60_000.0).contains(&milliseconds) {
        return Err("not between 0 and 60000 milliseconds".into());
    }
    Ok(Duration::from_secs_f64(milliseconds / 1000.0))
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=1.0).contains(&share) {
        return Err("not between 0 and 1".into());
    }
    Ok(share)
}
