//! iperf3 as a load: one server and one client per run, both ended with it, both reporting in JSON.
//!
//! iperf3 cuts off a warm-up (`-O`) and ends (`-t`) by whole seconds only, and `-t 0.7` never ends. So both sides
//! report every tenth of a second and what counts is cut out of that: bytes by the receiver, retransmits by the
//! sender.

use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};
use serde::Deserialize;

use super::{Arrived, Traffic, Window};
use crate::error::Doing;
use crate::hosts::Host;
use crate::{Error, Result};

/// The most connections that iperf3 makes at once (`MAX_STREAMS` in its iperf.h).
pub(super) const MOST_STREAMS: u16 = 128;

/// Seconds between two reports: as often as iperf3 makes them (`MIN_INTERVAL`).
const INTERVAL: &str = "0.1";

/// How long the client may take beyond the load's own time, and the server to start and, when the client has ended, to
/// report.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two looks at something that should happen soon.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

pub(super) fn version() -> Result<String> {
    let output = Command::new("iperf3").arg("--version").stdin(Stdio::null()).output().map_err(not_started)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| failed("`iperf3 --version` prints nothing"))
}

pub(super) fn run(from: &Host, to_host: &Host, to: IpAddr, traffic: &Traffic, window: Window) -> Result<Arrived> {
    let (_reservation, at) = to_host.inside(|| reserve_port(to))?;
    let server = Process::start(to_host, &server_arguments(at))?;
    server.await_listening(to_host, at)?;
    let duration = whole_seconds(window);
    let client = Process::start(from, &client_arguments(at, traffic, duration))?;
    let near = client.report(duration + TIMEOUT)?;
    let far = server.report(TIMEOUT)?;
    match *traffic {
        Traffic::Tcp { reverse: true, .. } => arrived(&far, &near, traffic, window),
        _ => arrived(&near, &far, traffic, window),
    }
}

/// Reserves a TCP port on the calling thread's host for a server that sets `SO_REUSEADDR`, as iperf3 does, until the
/// socket is closed.
///
/// The socket does not listen. A child that another thread starts at this moment keeps a copy of it until it executes
/// its program; [`has_listener`] would take a copy that listens for the server.
fn reserve_port(at: IpAddr) -> Result<(OwnedFd, SocketAddr)> {
    let reserving = || format!("reserving a port of {at}");
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).doing(reserving)?;
    sockopt::set_socket_reuseaddr(&socket, true).doing(reserving)?;
    bind(&socket, &SocketAddr::new(at, 0)).doing(reserving)?;
    let bound = getsockname(&socket).and_then(SocketAddr::try_from).doing(reserving)?;
    Ok((socket, bound))
}

fn server_arguments(at: SocketAddr) -> Vec<String> {
    let line = format!("--server --one-off --json --interval {INTERVAL} --bind {} --port {}", at.ip(), at.port());
    words(&line)
}

fn client_arguments(to: SocketAddr, traffic: &Traffic, duration: Duration) -> Vec<String> {
    let (addr, port, seconds) = (to.ip(), to.port(), duration.as_secs());
    let line =
        format!("--client {addr} --port {port} --connect-timeout 5000 --json --interval {INTERVAL} --time {seconds}");
    let load = match *traffic {
        Traffic::Tcp { streams, reverse } => {
            format!("--parallel {streams}{}", if reverse { " --reverse" } else { "" })
        }
        Traffic::Datagrams { payload, .. } => format!("--udp --bitrate 0 --length {payload}"),
        Traffic::Mix => unreachable!("iperf3 sends datagrams of one size"),
    };
    [words(&line), words(&load)].concat()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The window and its warm-up, rounded up to what iperf3 understands.
fn whole_seconds(window: Window) -> Duration {
    // Tenths of seconds do not add up to whole ones exactly.
    let seconds = (window.warm_up + window.time).as_secs_f64() - 1e-6;
    Duration::from_secs(seconds.ceil().max(1.0) as u64)
}

/// An iperf3 at work, whose output is read as it comes. Dropping it kills it.
struct Process {
    child: Child,
    output: mpsc::Receiver<io::Result<Output>>,
}

struct Output {
    json: String,
    /// What it wrote to its standard error.
    said: String,
}

impl Process {
    fn start(host: &Host, arguments: &[String]) -> Result<Self> {
        let mut command = Command::new("iperf3");
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = host.spawn(&mut command).map_err(|error| match error {
            Error::System { source, .. } => not_started(source),
            other => other,
        })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, output) = mpsc::channel();
        // iperf3 says next to nothing on its standard error, so that one can wait until the other is read.
        thread::spawn(move || sender.send(read(stdout).and_then(|json| Ok(Output { json, said: read(stderr)? }))));
        Ok(Self { child, output })
    }

    /// Waits until this server listens, on the host that it was started in.
    fn await_listening(&self, host: &Host, at: SocketAddr) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        while !host.inside(|| Ok(has_listener(at)))? {
            // One that has ended has said why.
            if let Ok(output) = self.output.try_recv() {
                let output = output.doing(|| "reading from iperf3".into())?;
                Report::parse(&output)?;
                return Err(failed("the server ended before its client came"));
            }
            if Instant::now() > end {
                return Err(failed(format!("the server does not listen on {at} after {TIMEOUT:?}")));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Waits for the end and reads the report.
    fn report(mut self, timeout: Duration) -> Result<Report> {
        let output = match self.output.recv_timeout(timeout) {
            Ok(output) => output.doing(|| "reading from iperf3".into())?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(failed(format!(
                    "it did not end within {} s; the way does not let its load or its own \
                     connection through",
                    timeout.as_secs()
                )));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(failed("its output cannot be read")),
        };
        self.child.wait().doing(|| "waiting for iperf3".into())?;
        Report::parse(&output)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both do nothing to one that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(pipe: Option<impl Read>) -> io::Result<String> {
    let mut bytes = Vec::new();
    pipe.map(|mut pipe| pipe.read_to_end(&mut bytes)).transpose()?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether somebody on the calling thread's host listens on the port.
fn has_listener(at: SocketAddr) -> bool {
    let name = if at.is_ipv4() { "tcp" } else { "tcp6" };
    let table = fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    table.is_ok_and(|table| lists_listener(&table, at.port()))
}

/// Whether a table in the format of `/proc/net/tcp` has a listener on `port`.
fn lists_listener(table: &str, port: u16) -> bool {
    // The number of TCP_LISTEN (include/net/tcp_states.h).
    const LISTENS: &str = "0A";
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _remote, state) = (fields.next(), fields.next(), fields.next());
        local.is_some_and(|local| local.ends_with(&end)) && state == Some(LISTENS)
    })
}

fn not_started(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return Error::Refused("iperf3 is not installed: apt-get install iperf3".into());
    }
    Error::system("starting `iperf3`", error)
}

fn failed(said: impl Into<String>) -> Error {
    Error::Command { command: "iperf3".into(), said: said.into() }
}

/// One side's report.
#[derive(Debug, Deserialize)]
struct Report {
    /// iperf3 exits with 0 even so.
    error: Option<String>,
    #[serde(default)]
    intervals: Vec<Interval>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    /// Of all streams.
    sum: Sum,
}

#[derive(Debug, Deserialize)]
struct Sum {
    /// Seconds since the start of the load.
    start: f64,
    /// Likewise.
    end: f64,
    /// The time between.
    seconds: f64,
    /// Payload sent or received, depending on the side.
    bytes: u64,
    /// On the sender's side, with TCP.
    #[serde(default)]
    retransmits: u64,
    /// With UDP: datagrams sent, or those that should have been received by their numbers.
    #[serde(default)]
    packets: u64,
    /// On the receiver's side, with UDP. Less than none when those that were missed came late after all.
    #[serde(default)]
    lost_packets: i64,
}

impl Report {
    fn parse(output: &Output) -> Result<Self> {
        let said = output.said.trim();
        if output.json.trim().is_empty() {
            return Err(failed(if said.is_empty() { "it ended without a word" } else { said }));
        }
        let report: Self = serde_json::from_str(&output.json)
            .map_err(|error| failed(format!("its report is not as iperf3 3.x writes it: {error}")))?;
        match report.error {
            Some(error) => Err(failed(error)),
            None => Ok(report),
        }
    }

    /// The sums of the intervals that lie in the window, by their middles.
    fn inside(&self, window: Window) -> impl Iterator<Item = &Sum> {
        let begin = window.warm_up.as_secs_f64();
        let counts = begin..begin + window.time.as_secs_f64();
        let sums = self.intervals.iter().map(|interval| &interval.sum);
        sums.filter(move |sum| counts.contains(&f64::midpoint(sum.start, sum.end)))
    }
}

/// What arrived, by the reports of both sides.
fn arrived(sender: &Report, receiver: &Report, traffic: &Traffic, window: Window) -> Result<Arrived> {
    let counted = || receiver.inside(window);
    let seconds: f64 = counted().map(|sum| sum.seconds).sum();
    if seconds <= 0.0 {
        return Err(failed(format!("it reports nothing about the {:?} after the warm-up", window.time)));
    }
    let bytes = counted().map(|sum| sum.bytes).sum();
    let mut arrived = Arrived {
        bytes,
        seconds,
        all_bytes: receiver.intervals.iter().map(|interval| interval.sum.bytes).sum(),
        retransmits: None,
        datagrams: None,
        lost: None,
    };
    match *traffic {
        Traffic::Tcp { .. } => {
            arrived.retransmits = Some(sender.inside(window).map(|sum| sum.retransmits).sum());
        }
        Traffic::Datagrams { payload, .. } => {
            let lost: i64 = counted().map(|sum| sum.lost_packets).sum();
            // The receiver knows of a gap only when something comes after it.
            let nothing_came = || sender.inside(window).map(|sum| sum.packets).sum();
            arrived.datagrams = Some(bytes / u64::from(payload));
            arrived.lost = Some(if bytes == 0 { nothing_came() } else { lost.max(0).unsigned_abs() });
        }
        Traffic::Mix => unreachable!("iperf3 sends datagrams of one size"),
    }
    Ok(arrived)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What iperf3 3.12 wrote between two hosts on one wire, `--interval 0.1 --time 1`.
    macro_rules! recorded {
        ($name:literal) => {
            include_str!(concat!("../../tests/data/iperf3-", $name, ".json"))
        };
    }

    const TCP: Traffic = Traffic::Tcp { streams: 1, reverse: false };
    const UDP: Traffic = Traffic::Datagrams { payload: 64, segmented: false };

    fn parse(json: &str) -> Result<Report> {
        Report::parse(&Output { json: json.into(), said: String::new() })
    }

    fn window(warm_up_ms: u64, time_ms: u64) -> Window {
        Window { warm_up: Duration::from_millis(warm_up_ms), time: Duration::from_millis(time_ms) }
    }

    #[test]
    fn bytes_are_the_receivers_and_retransmits_the_senders() {
        let (client, server) = (parse(recorded!("tcp-1-client")).unwrap(), parse(recorded!("tcp-1-server")).unwrap());
        let all = arrived(&client, &server, &TCP, window(0, 10_000)).unwrap();
        // As both ends of the recorded reports sum up.
        assert_eq!((all.bytes, all.all_bytes), (5_454_692_352, 5_454_692_352));
        assert_eq!(all.retransmits, Some(1872));
        assert!((all.seconds - 1.000334).abs() < 1e-5);
        assert_eq!((all.datagrams, all.lost), (None, None));
    }

    #[test]
    fn the_warm_up_and_the_rest_of_the_last_second_do_not_count() {
        let (client, server) = (parse(recorded!("tcp-1-client")).unwrap(), parse(recorded!("tcp-1-server")).unwrap());
        let part = arrived(&client, &server, &TCP, window(200, 500)).unwrap();
        let counted = &server.intervals[2..7];
        assert_eq!(part.bytes, counted.iter().map(|interval| interval.sum.bytes).sum::<u64>());
        assert!((part.seconds - 0.5).abs() < 0.01);
        assert_eq!(part.all_bytes, 5_454_692_352);
        assert!(part.retransmits.unwrap() < 1872);
    }

    #[test]
    fn parts_of_a_load_add_up_to_all_of_it() {
        let (client, server) = (parse(recorded!("udp-client")).unwrap(), parse(recorded!("udp-server")).unwrap());
        let part = |from, to| arrived(&client, &server, &UDP, window(from, to - from)).unwrap();
        let (all, early, late) = (part(0, 2000), part(0, 300), part(300, 2000));
        assert_eq!(early.bytes + late.bytes, all.bytes);
        assert_eq!(early.datagrams.unwrap() + late.datagrams.unwrap(), all.datagrams.unwrap());
        assert_eq!(early.lost.unwrap() + late.lost.unwrap(), all.lost.unwrap());
        assert!((early.seconds + late.seconds - all.seconds).abs() < 1e-9);
    }

    #[test]
    fn the_sum_of_many_streams_is_read() {
        let server = parse(recorded!("tcp-105-server")).unwrap();
        let client = parse(recorded!("tcp-105-client")).unwrap();
        let all = arrived(&client, &server, &TCP, window(0, 10_000)).unwrap();
        assert_eq!(all.bytes, 6_468_403_200);
        assert_eq!(all.retransmits, Some(0));
    }

    #[test]
    fn in_reverse_the_client_receives() {
        let (client, server) =
            (parse(recorded!("tcp-4-reverse-client")).unwrap(), parse(recorded!("tcp-4-reverse-server")).unwrap());
        let traffic = Traffic::Tcp { streams: 4, reverse: true };
        let all = arrived(&server, &client, &traffic, window(0, 10_000)).unwrap();
        assert_eq!(all.bytes, 5_177_344_000);
        assert_eq!(all.retransmits, Some(0));
    }

    #[test]
    fn datagrams_that_did_not_arrive_are_lost() {
        let (client, server) = (parse(recorded!("udp-client")).unwrap(), parse(recorded!("udp-server")).unwrap());
        let all = arrived(&client, &server, &UDP, window(0, 10_000)).unwrap();
        assert_eq!((all.datagrams, all.lost), (Some(584_390 - 9902), Some(9902)));
        assert_eq!(all.retransmits, None);
    }

    #[test]
    fn when_nothing_arrives_all_that_was_sent_is_lost() {
        let silent =
            r#"{"intervals":[{"sum":{"start":0,"end":1,"seconds":1,"bytes":0,"packets":0,"lost_packets":0}}]}"#;
        let sent = r#"{"intervals":[{"sum":{"start":0,"end":1,"seconds":1,"bytes":640,"packets":10}}]}"#;
        let all = arrived(&parse(sent).unwrap(), &parse(silent).unwrap(), &UDP, window(0, 1000)).unwrap();
        assert_eq!((all.datagrams, all.lost), (Some(0), Some(10)));
    }

    #[test]
    fn an_error_is_iperf3s_own_sentence() {
        let said = |json| parse(json).unwrap_err().to_string();
        assert_eq!(said(recorded!("nobody")), "`iperf3` failed: unable to connect to server: Connection refused");
        assert!(said(recorded!("bad-address")).ends_with("Cannot assign requested address"));
    }

    #[test]
    fn a_report_that_is_cut_off_is_refused_wherever_it_is_cut() {
        let whole = recorded!("tcp-1-server").trim_end();
        for end in (0..whole.len()).step_by(7) {
            assert!(parse(&whole[..end]).is_err(), "cut at {end}");
        }
        assert!(parse("{}").is_ok_and(|report| report.intervals.is_empty()));
        assert!(parse("[1, 2]").is_err() && parse(r#"{"intervals":[{"sum":{"start":0}}]}"#).is_err());
    }

    #[test]
    fn one_that_says_nothing_fails_with_what_it_complained() {
        let output = |said: &str| Output { json: "\n".into(), said: said.into() };
        let why = Report::parse(&output("iperf3: parameter error - bad\n")).unwrap_err().to_string();
        assert_eq!(why, "`iperf3` failed: iperf3: parameter error - bad");
        assert!(Report::parse(&output("")).unwrap_err().to_string().contains("without a word"));
    }

    #[test]
    fn a_window_without_a_report_is_an_error() {
        let server = parse(recorded!("tcp-1-server")).unwrap();
        assert!(arrived(&server, &server, &TCP, window(5000, 1000)).is_err());
    }

    #[test]
    fn a_copy_of_a_reserved_port_is_no_listener_and_leaves_the_port_to_the_server() {
        for at in ["127.0.0.1", "::1"].map(|address| address.parse().unwrap()) {
            let (reservation, at) = reserve_port(at).unwrap();
            // As a child has it that was started meanwhile.
            let copy = reservation.try_clone().unwrap();
            assert!(!has_listener(at));
            let server = std::net::TcpListener::bind(at).unwrap();
            assert!(has_listener(at));
            drop((reservation, copy, server));
        }
    }

    #[test]
    fn iperf3_is_asked_for_whole_seconds() {
        let seconds = |warm_up, time| whole_seconds(window(warm_up, time)).as_secs();
        assert_eq!((seconds(200, 800), seconds(500, 2000), seconds(0, 50)), (1, 3, 1));
        let tenths = Window { warm_up: Duration::from_secs_f64(0.1), time: Duration::from_secs_f64(2.9) };
        assert_eq!(whole_seconds(tenths).as_secs(), 3);
    }

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st tx_queue\n   \
             0: 020000C0:1451 00000000:0000 0A 00000000:00000000\n   \
             1: 020000C0:1452 010000C0:8F3A 01 00000000:00000000\n";
        assert!(lists_listener(table, 0x1451));
        assert!(!lists_listener(table, 0x1452) && !lists_listener(table, 0x8F3A) && !lists_listener("", 0x1451));
    }
}
