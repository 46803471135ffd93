//! The measurement with iperf3 at the other end, and here. What the machine there does stays unknown.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use linerate_probe::speed::{Arrived, TcpCounts};
use linerate_tunnel::Interruption;
use serde_json::Value;

use super::measure::Direction;
use crate::other_program::ends;

/// Milliseconds for its connection: TCP tries three times again within that.
const CONNECT: &str = "8000";

/// Time that iperf3 may take beyond the measurement itself.
const EXTRA_TIME: Duration = Duration::from_secs(15);

/// The most attempts at a measurement, and the pause between them. An iperf3 server serves one client at a time, and
/// finishes a moment after its client, so it may refuse the next measurement.
const ATTEMPTS: usize = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(400);

/// It prints less.
const LONGEST_OUTPUT: u64 = 1 << 20;

/// Whether an iperf3 server answers; if not, why.
pub(super) fn answers(address: IpAddr, interruption: &Interruption) -> Result<(), String> {
    // The shortest of all measurements; a server that ends after one measurement is of no use.
    let is_busy = |error: &str| error.contains("busy");
    run(address, &["-n", "1K"], Duration::ZERO, is_busy, interruption).map(drop)
}

/// Whether the server refused at once, with a reason that iperf3 prints: it may accept the next attempt. A measurement
/// that timed out is not repeated.
fn is_refusal(error: &str) -> bool {
    error.starts_with(REFUSED)
}

/// The prefix of an error that iperf3 itself reports.
const REFUSED: &str = "iperf3: ";

/// A TCP stream one way.
pub(super) fn load(
    address: IpAddr,
    direction: Direction,
    time: Duration,
    segment: Option<u32>,
    interruption: &Interruption,
) -> Result<Arrived, String> {
    let (seconds, segment) = (time.as_secs().max(1).to_string(), segment.map(|bytes| bytes.to_string()));
    let limit = segment.as_ref().map(|bytes| ["-M", bytes.as_str()]);
    let end = run(
        address,
        &[&["-t", &seconds][..], way(direction), limit.as_ref().map_or(&[], |limit| &limit[..])].concat(),
        time,
        is_refusal,
        interruption,
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
    Ok(Arrived { bytes: bytes as u64, seconds, tcp, held: 0.0 })
}

/// The share of datagrams that is lost one way.
pub(super) fn lost(
    address: IpAddr,
    direction: Direction,
    length: usize,
    megabits: f64,
    time: Duration,
    interruption: &Interruption,
) -> Result<f64, String> {
    let (length, seconds) = (length.to_string(), time.as_secs().max(1).to_string());
    let rate = format!("{}", (megabits.clamp(0.05, 16.0) * 1e6) as u64);
    let arguments = [&["-u", "-l", &length, "-b", &rate, "-t", &seconds][..], way(direction)].concat();
    let end = run(address, &arguments, time, is_refusal, interruption)?;
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

/// Runs iperf3 for about `time`, and returns the part `end` of its output. Repeats after an error that `may_pass`.
fn run(
    address: IpAddr,
    arguments: &[&str],
    time: Duration,
    may_pass: impl Fn(&str) -> bool,
    interruption: &Interruption,
) -> Result<Value, String> {
    let mut end = once(address, arguments, time, interruption);
    for _ in 1..ATTEMPTS {
        if !end.as_ref().is_err_and(|error| may_pass(error)) {
            break;
        }
        let _ = interruption.pause(&[], Some(RETRY_PAUSE));
        end = once(address, arguments, time, interruption);
    }
    end
}

fn once(address: IpAddr, arguments: &[&str], time: Duration, interruption: &Interruption) -> Result<Value, String> {
    let child = Command::new("iperf3")
        .args(["-c", &address.to_string(), "-J", "--connect-timeout", CONNECT])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "which is not installed here either".to_owned(),
        _ => format!("which cannot be run here: {error}"),
    })?;
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut printed = Vec::new();
        let _ = stdout.map(|stdout| stdout.take(LONGEST_OUTPUT).read_to_end(&mut printed));
        printed
    });
    let in_time = ends(&mut child, time + EXTRA_TIME, interruption);
    if !in_time {
        let _ = child.kill();
    }
    let _ = child.wait();
    let printed = reader.join().unwrap_or_default();
    if interruption.came() {
        return Err("interrupted".to_owned());
    }
    if !in_time {
        return Err("iperf3 did not end in time; the way may not let its load or its own connection through".to_owned());
    }
    let mut printed: Value = serde_json::from_slice(&printed).map_err(|_| strange())?;
    match printed.get("error").and_then(Value::as_str) {
        Some(error) => Err(format!("{REFUSED}{error}")),
        None => Ok(printed["end"].take()),
    }
}

fn strange() -> String {
    "iperf3 printed something else than its JSON".to_owned()
}
