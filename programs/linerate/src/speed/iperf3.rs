//! The measurement with iperf3 at the other end, and here. What the machine there does stays unknown.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use linerate_probe::speed::{Arrived, TcpCounts};
use serde_json::Value;

use super::measure::{Direction, Load};

/// Whether an iperf3 server answers; if not, why.
pub(super) fn answers(address: IpAddr) -> Result<(), String> {
    // The shortest of all measurements; a server that ends after one measurement is of no use.
    run(address, &["-n", "1K"]).map(drop)
}

/// A TCP stream one way.
pub(super) fn load(
    address: IpAddr,
    direction: Direction,
    time: Duration,
    segment: Option<u32>,
) -> Result<Load, String> {
    let (seconds, segment) = (time.as_secs().max(1).to_string(), segment.map(|bytes| bytes.to_string()));
    let limit = segment.as_ref().map(|bytes| ["-M", bytes.as_str()]);
    let end = run(
        address,
        &[&["-t", &seconds][..], way(direction), limit.as_ref().map_or(&[], |limit| &limit[..])].concat(),
    )?;
    let number = |sum: &str, name: &str| end.get(sum)?.get(name)?.as_f64();
    let (bytes, seconds) =
        number("sum_received", "bytes").zip(number("sum_received", "seconds")).ok_or_else(strange)?;
    // It counts bytes that were sent, not segments.
    let retransmitted = number("sum_sent", "retransmits");
    let tcp = retransmitted.zip(number("sum_sent", "bytes")).map(|(retransmitted, sent)| TcpCounts {
        segments: (sent / SEGMENT) as u32,
        retransmitted: retransmitted as u32,
        ..TcpCounts::default()
    });
    Ok(Load { arrived: Arrived { bytes: bytes as u64, seconds, tcp }, there: None })
}

/// The share of datagrams that is lost one way.
pub(super) fn lost(
    address: IpAddr,
    direction: Direction,
    length: usize,
    megabits: f64,
    time: Duration,
) -> Result<f64, String> {
    let (length, seconds) = (length.to_string(), time.as_secs().max(1).to_string());
    let rate = format!("{}", (megabits.clamp(0.05, 16.0) * 1e6) as u64);
    let end = run(address, &[&["-u", "-l", &length, "-b", &rate, "-t", &seconds][..], way(direction)].concat())?;
    let percent = end.get("sum").and_then(|sum| sum.get("lost_percent")?.as_f64()).ok_or_else(strange)?;
    Ok(percent / 100.0)
}

/// Bytes in a segment through a tunnel of the usual MTU.
const SEGMENT: f64 = 1368.0;

fn way(direction: Direction) -> &'static [&'static str] {
    match direction {
        Direction::Send => &[],
        Direction::Receive => &["-R"],
    }
}

/// Runs iperf3, and returns the part `end` of what it prints.
fn run(address: IpAddr, arguments: &[&str]) -> Result<Value, String> {
    let output = Command::new("iperf3")
        .args(["-c", &address.to_string(), "-J", "--connect-timeout", "3000"])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "which is not installed here either".to_owned(),
        _ => format!("which cannot be run here: {error}"),
    })?;
    let mut printed: Value = serde_json::from_slice(&output.stdout).map_err(|_| strange())?;
    match printed.get("error").and_then(Value::as_str) {
        Some(error) => Err(format!("iperf3: {error}")),
        None => Ok(printed["end"].take()),
    }
}

fn strange() -> String {
    "iperf3 printed something else than its JSON".to_owned()
}
