//! The demonstration: two hosts on this machine, a tunnel between them by linerated, its handshake, then
//! a small table against no tunnel and against wireguard-go. Its load is its own, so that it needs nothing
//! installed.

mod report;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_control::interface::InterfaceName;
use linerate_control::uapi::response::DeviceState;
use linerate_probe::usage::Usage;

use crate::error::Doing;
use crate::hosts;
use crate::load::tcp::{self, Load, Receiver};
use crate::ping::{self, Probes};
use crate::progress::Progress;
use crate::record::Machine;
use crate::sandbox::{self, Process, Sandbox};
use crate::subject::{self, KeyPair, Kind, Subject};
use crate::topology::{AddressFamily, Testbed, Topology};
use crate::tunnel::Tunnel;
use crate::{Error, Result};
use report::{Method, Ratio, Report, Round, Row, RowSummary, SCHEMA, Throughput};

/// TCP streams of the measurement with many, the number of a public field report.
const MANY_STREAMS: u16 = 105;

/// Seconds in which TCP finds its speed.
const WARM_UP: f64 = 0.2;

/// Probes of each latency measurement; more where there is time.
const PROBES: u16 = 300;
const PROBES_IN_FULL: u16 = 1000;

/// A daemon is at rest only when its timers have run out: WireGuard answers received data by a keepalive
/// after 10 s, and misses an answer after 15 s.
const SETTLE: Duration = Duration::from_secs(20);

/// Time at rest in which context switches are counted.
const REST: Duration = Duration::from_secs(10);

/// What the random numbers of an impaired network start from; this network is a good one.
const SEED: u64 = 0;

/// What to show.
#[derive(Clone)]
pub struct Options {
    /// Our daemon's file.
    pub linerated: PathBuf,
    /// Keys for the two ends, made for this run.
    pub keys: [KeyPair; 2],
    /// Further daemons to measure. One named `wireguard-go` replaces the one that would be looked for.
    pub subjects: Vec<Subject>,
    /// Rounds; in each, every subject is measured once.
    pub rounds: u32,
    /// Seconds of each throughput measurement.
    pub seconds: f64,
    /// Also measure at rest, with more probes, and boringtun where it is there: minutes, not seconds.
    pub full: bool,
    /// Print the record instead of the handshake and the table.
    pub json: bool,
}

impl Options {
    /// Rounds that, with [`Options::QUICK_SECONDS`], keep everything within half a minute.
    pub const QUICK_ROUNDS: u32 = 3;
    /// Seconds of each throughput measurement within that half minute.
    pub const QUICK_SECONDS: f64 = 0.8;
}

/// Runs the whole demonstration in a private part of the machine and prints it. Call it first thing: it
/// runs this program again with the same arguments (see [`sandbox`]).
///
/// The exit code is 0 when every subject was measured, 1 when one was not, 130 after Ctrl-C.
///
/// # Errors
///
/// When this machine cannot make hosts and tunnels, or our own daemon does not start.
pub fn run(options: &Options) -> Result<ExitCode> {
    let inside = match sandbox::enter()? {
        Process::Parent(code) => return Ok(ExitCode::from(code)),
        Process::Child(inside) => inside,
    };
    let writing = || "writing to standard output".into();
    let mut out = io::stdout();
    let report = if options.json {
        let report = measure(&inside, options, &mut io::sink())?;
        serde_json::to_writer_pretty(&mut out, &report).doing(writing)?;
        writeln!(out).doing(writing)?;
        report
    } else {
        let report = measure(&inside, options, &mut out)?;
        write!(out, "{report}").doing(writing)?;
        report
    };
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes the hosts, shows our handshake on `show`, measures every subject.
///
/// # Errors
///
/// As [`run`]. A subject that fails later has its reason in its row.
pub fn measure(inside: &Sandbox, options: &Options, show: &mut dyn Write) -> Result<Report> {
    hosts::check_tun()?;
    let testbed = Testbed::build(inside, &Topology::Pair, SEED)?;
    show_handshake(&testbed, options, show)?;

    let subjects = subjects(options);
    let mut rows: Vec<Row> = subjects.iter().map(empty_row).collect();
    let method = method(options);
    let machine = Machine::describe()?;
    let mut progress = Progress::new(expected_seconds(&method, rows.len(), options.full));
    for round in 1..=options.rounds {
        for (subject, row) in subjects.iter().zip(&mut rows) {
            let slice = Slice { testbed: &testbed, subject, options, method: &method, round };
            if let Err(error) = slice.take(row, &mut progress) {
                // A subject that failed once is skipped: its rounds would no longer match those of the others.
                row.failure.get_or_insert_with(|| format!("round {round}: {error}"));
            }
        }
    }
    progress.clear();
    for row in &mut rows {
        row.summary = RowSummary::of(&row.rounds);
    }
    let ratios = ratios(&rows);
    Ok(Report { schema: SCHEMA, machine, method, rows, ratios })
}

/// Who is measured, in this order.
fn subjects(options: &Options) -> Vec<Subject> {
    let mut subjects = vec![Subject::wire(), ours(options)];
    let given = |name| options.subjects.iter().any(|subject| subject.name == name);
    if !given(BASELINE) {
        subjects.extend(Subject::wireguard_go());
    }
    if options.full && !given("boringtun") {
        subjects.extend(Subject::boringtun());
    }
    subjects.extend(options.subjects.iter().cloned());
    subjects
}

/// What the others are compared to.
const BASELINE: &str = Subject::WIREGUARD_GO;

fn ours(options: &Options) -> Subject {
    Subject::file(Subject::OURS, &options.linerated)
}

fn empty_row(subject: &Subject) -> Row {
    let command = Some(subject.command()).filter(|command| !command.is_empty());
    Row {
        name: subject.name.clone(),
        command,
        version: subject.version(),
        failure: None,
        rounds: Vec::new(),
        summary: RowSummary::default(),
    }
}

fn method(options: &Options) -> Method {
    Method {
        rounds: options.rounds,
        seconds: options.seconds,
        warm_up: WARM_UP,
        many_streams: MANY_STREAMS,
        probes: if options.full { PROBES_IN_FULL } else { PROBES },
        probe: "ICMP echo, answered by the other host's kernel",
        mtu: subject::MTU,
    }
}

/// Seconds that all slices should take.
fn expected_seconds(method: &Method, subjects: usize, full: bool) -> f64 {
    let slice = 2.0 * (WARM_UP + method.seconds) + ping_seconds(method);
    // The wire is not measured at rest.
    let rest = if full { (SETTLE + REST).as_secs_f64() * (subjects - 1) as f64 } else { 0.0 };
    slice * subjects as f64 * f64::from(method.rounds) + rest
}

fn ping_seconds(method: &Method) -> f64 {
    f64::from(method.probes) * 1.3e-3
}

/// Brings our tunnel up once, shows what a user would see by `wg show`, takes it down.
fn show_handshake(testbed: &Testbed, options: &Options, show: &mut dyn Write) -> Result<()> {
    let tunnel = Tunnel::up(&ours(options), testbed, &options.keys, AddressFamily::V4)?;
    let (interface, device) = (testbed.client().interface(), tunnel.device(0)?.unwrap_or_default());
    let text = describe(interface, &options.keys, &device, tunnel.first_answer.unwrap_or_default());
    let [client, server] = [0, 1].map(|end| testbed.outside(end).v4);
    writeln!(show, "Two hosts on one wire, {client} and {server}, and a tunnel between them by linerated:\n\n{text}")
        .and_then(|()| show.flush())
        .doing(|| "writing to standard output".into())?;
    tunnel.down()
}

/// The interface in the words of `wg show`.
fn describe(interface: &InterfaceName, keys: &[KeyPair; 2], device: &DeviceState, first_answer: Duration) -> String {
    let (own, port) = (keys[0].public, device.listen_port);
    let mut text =
        format!("interface: {interface}\n  public key: {own}\n  private key: (hidden)\n  listening port: {port}\n");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for peer in &device.peers {
        let endpoint = peer.endpoint.map_or_else(|| "(none)".into(), |endpoint| endpoint.to_string());
        let allowed: Vec<String> = peer.allowed_ips.iter().map(|(addr, cidr)| format!("{addr}/{cidr}")).collect();
        let ago = now.saturating_sub(peer.last_handshake).as_secs_f64() * 1e3;
        text.push_str(&format!(
            "\npeer: {}\n  endpoint: {endpoint}\n  allowed ips: {}\n  latest handshake: {ago:.1} ms ago\n  \
             transfer: {} B received, {} B sent\n",
            peer.public_key,
            allowed.join(", "),
            peer.rx_bytes,
            peer.tx_bytes
        ));
    }
    let time = first_answer.as_secs_f64() * 1e3;
    text.push_str(&format!("\nThe first ping, handshake included, was answered after {time:.1} ms.\n"));
    text
}

/// One subject in one round.
struct Slice<'a> {
    testbed: &'a Testbed,
    subject: &'a Subject,
    options: &'a Options,
    method: &'a Method,
    round: u32,
}

impl Slice<'_> {
    /// Brings the subject up, measures it, takes it down. A row that has failed stays out.
    fn take(&self, row: &mut Row, progress: &mut Progress) -> Result<()> {
        if row.failure.is_some() {
            return Ok(());
        }
        let chapter = format!("round {} of {}, {}", self.round, self.method.rounds, row.name);
        let stream_seconds = WARM_UP + self.method.seconds;

        progress.step(&chapter, "ping", ping_seconds(self.method));
        let tunnel = Tunnel::up(self.subject, self.testbed, &self.options.keys, AddressFamily::V4)?;
        let ping = self.ping(&tunnel)?;
        // Before the load: what TCP still sends after it would count.
        let idle_switches = if self.is_rest_due() {
            progress.step(&chapter, "at rest", (SETTLE + REST).as_secs_f64());
            Some(switches_at_rest(&tunnel)?)
        } else {
            None
        };
        progress.step(&chapter, "one TCP stream", stream_seconds);
        let one = throughput(self.testbed, &tunnel, 1, self.method.seconds)?;
        progress.step(&chapter, &format!("{MANY_STREAMS} TCP streams"), stream_seconds);
        let many = throughput(self.testbed, &tunnel, MANY_STREAMS, self.method.seconds)?;
        let peak_resident = tunnel.usage()?.iter().map(|usage| usage.peak_resident).max();
        let first_answer_ms = tunnel.first_answer.map(|time| time.as_secs_f64() * 1e3);
        tunnel.down()?;
        row.rounds.push(Round { first_answer_ms, one, many, ping, peak_resident, idle_switches });
        Ok(())
    }

    fn ping(&self, tunnel: &Tunnel<'_>) -> Result<ping::Report> {
        let to = tunnel.to(AddressFamily::V4);
        let probes = Probes { count: self.method.probes.into(), ..Probes::default() };
        self.testbed.client().inside(|| ping::run(to, &probes))
    }

    /// The half minute at rest is measured in one round only, because it does not vary.
    fn is_rest_due(&self) -> bool {
        self.options.full && self.round == 1 && self.subject.kind != Kind::Wire
    }
}

fn throughput(testbed: &Testbed, tunnel: &Tunnel<'_>, streams: u16, seconds: f64) -> Result<Throughput> {
    let load = Load { streams, seconds, warm_up: WARM_UP };
    let at = SocketAddr::new(tunnel.to(AddressFamily::V4), 0);
    let receiver = testbed.server().inside(|| Receiver::listen(at))?;
    let to = receiver.address()?;
    let before = tunnel.usage()?;
    // The socket belongs to the host it was opened in, whichever thread reads it.
    let receiving = thread::spawn(move || receiver.receive());
    let sent = testbed.client().inside(|| tcp::send(to, &load));
    let received = receiving.join().map_err(|_| Error::Subject("the load's receiver panicked".into()))?;
    // Checked first: a daemon that died explains every other error.
    let after = tunnel.usage()?;
    let (load, _) = (sent?, received?);

    let used: Vec<Usage> = after.iter().zip(&before).map(|(after, before)| after.since(before)).collect();
    let gigabytes = load.received.all_bytes as f64 / 1e9;
    let per_gb =
        |measure: fn(&Usage) -> f64| (!used.is_empty()).then(|| used.iter().map(measure).sum::<f64>() / gigabytes);
    Ok(Throughput {
        load,
        cpu_per_gb: per_gb(Usage::seconds),
        user_per_gb: per_gb(|usage| usage.user_seconds),
        switches_per_gb: per_gb(|usage| usage.switches() as f64),
    })
}

fn switches_at_rest(tunnel: &Tunnel<'_>) -> Result<f64> {
    thread::sleep(SETTLE);
    let before = tunnel.usage()?;
    thread::sleep(REST);
    let switches: u64 = tunnel.usage()?.iter().zip(&before).map(|(after, before)| after.since(before).switches()).sum();
    Ok(switches as f64 / REST.as_secs_f64())
}

fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let measured = rows.iter().filter(|row| !row.rounds.is_empty());
    let Some(baseline) = measured.clone().find(|row| row.name == BASELINE) else { return Vec::new() };
    let others = measured.filter(|row| row.command.is_some() && row.name != BASELINE);
    others.map(|row| Ratio::of(row, baseline)).collect()
}

#[cfg(test)]
mod tests {
    use linerate_control::keys::{PublicKey, SecretKey};
    use linerate_control::uapi::response::PeerState;

    use super::*;

    #[test]
    fn the_handshake_is_shown_in_the_words_of_wg() {
        let keys = [1, 2]
            .map(|byte| KeyPair { private: SecretKey::from_bytes(&[byte + 7; 32]), public: PublicKey([byte; 32]) });
        let mut peer = PeerState::new(keys[1].public);
        peer.endpoint = Some("192.0.2.2:51820".parse().unwrap());
        peer.allowed_ips = vec![("10.0.0.2".parse().unwrap(), 32), ("fd02::2".parse().unwrap(), 128)];
        peer.last_handshake = Duration::from_secs(1);
        (peer.rx_bytes, peer.tx_bytes) = (124, 276);
        let device = DeviceState { listen_port: 51820, peers: vec![peer], ..DeviceState::default() };
        let text = describe(&"wg-client".parse().unwrap(), &keys, &device, Duration::from_millis(3));
        assert!(text.starts_with("interface: wg-client\n  public key: AQEB"));
        assert!(text.contains("\npeer: AgIC"));
        assert!(text.contains("  endpoint: 192.0.2.2:51820\n  allowed ips: 10.0.0.2/32, fd02::2/128\n"));
        assert!(text.contains("  transfer: 124 B received, 276 B sent\n"));
        assert!(!text.contains(keys[0].private.to_base64().as_str()), "the private key is not shown");
    }
}
