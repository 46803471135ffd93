//! The measurement, step by step.

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_cli::standard_error;
use linerate_doctor::bottleneck::Bottleneck;
use linerate_probe::speed::{Arrived, Client, Echoed, TcpCounts, Trouble, Watching};
use linerate_probe::watch::{Seen, Watch};
use linerate_probe::{Echo, largest};
use linerate_tunnel::status::Status;
use serde::Serialize;

use super::{iperf3, verdict};
use crate::cli::CliError;
use crate::doctor::daemon;
use crate::target::Target;

/// Round trips at rest: as many, and so far apart.
const AT_REST: usize = 50;
const FEW: usize = 3;
const INTERVAL: Duration = Duration::from_millis(10);

/// Beside a load they are further apart, and an answer is waited for as long as this.
const LOADED_INTERVAL: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(1);

/// A load's queues take so long to fill.
const FILLING: Duration = Duration::from_millis(300);

/// The first request may have to wait for a handshake, which is tried again after 5 s.
const HANDSHAKE: Duration = Duration::from_millis(5500);

/// The datagrams that are counted: their bytes, how far apart at least, for how long.
const DATAGRAM: usize = 500;
const DATAGRAM_INTERVAL: Duration = Duration::from_micros(500);
const DATAGRAMS: Duration = Duration::from_secs(1);

/// What was measured.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Speed {
    pub(super) tunnel: String,
    pub(super) peer: String,
    /// For people, with the address.
    #[serde(skip)]
    pub(super) label: String,
    pub(super) address: String,
    pub(super) by: By,
    pub(super) mtu: Mtu,
    pub(super) at_rest: RoundTrips,
    pub(super) send: Way,
    pub(super) receive: Way,
    pub(super) verdict: String,
}

/// Who answers at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    Linerate,
    Iperf3,
}

/// Sizes of packets, IP header included.
#[derive(Serialize)]
pub(super) struct Mtu {
    pub(super) interface: u32,
    /// The largest that passes; unknown where nobody answers echo requests.
    pub(super) passes: Option<u32>,
}

/// Round trips, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct RoundTrips {
    pub(super) requests: usize,
    pub(super) answers: usize,
    pub(super) least: Option<f64>,
    /// What a tenth of them took at most.
    pub(super) tenth: Option<f64>,
    pub(super) median: Option<f64>,
    pub(super) most: Option<f64>,
}

/// Before the load.
pub(super) struct Rest {
    pub(super) trips: RoundTrips,
    pub(super) here: Seen,
    pub(super) there: Option<Seen>,
}

/// A load one way.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Way {
    pub(super) megabits_per_second: f64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) segments: Option<u32>,
    pub(super) retransmitted: Option<u32>,
    #[serde(skip)]
    pub(super) tcp: Option<TcpCounts>,
    /// Share of the datagrams, which were counted when nothing else went.
    pub(super) lost: Option<f64>,
    pub(super) under_load: RoundTrips,
    pub(super) here: Seen,
    pub(super) there: Option<Seen>,
    pub(super) bottleneck: Option<Bottleneck>,
}

/// Which way a load goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Send,
    Receive,
}

/// A load as its client saw it.
pub(super) struct Load {
    pub(super) arrived: Arrived,
    pub(super) there: Option<Seen>,
}

/// The other end.
enum Answerer {
    Linerate { client: Client, allowed: u64 },
    Iperf3 { segment: Option<u32> },
}

impl Answerer {
    fn limit_segments(&mut self, bytes: Option<u32>) {
        match (self, bytes) {
            (Self::Linerate { client, .. }, Some(bytes)) => client.limit_segments(bytes),
            (Self::Iperf3 { segment }, _) => *segment = bytes,
            _ => {}
        }
    }
}

/// Bytes of the headers of IP and TCP, without options.
fn headers(address: IpAddr) -> u32 {
    if address.is_ipv4() { 40 } else { 60 }
}

pub(super) fn measure(tunnel: &Status, target: &Target<'_>, seconds: u8, port: u16) -> Result<Speed, CliError> {
    let time = Duration::from_secs(seconds.into());
    let echo = Echo::open(target.address, Some(target.tunnel)).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => "speed needs a raw socket; try again as root (sudo)".to_owned(),
        _ => format!("cannot send to {} through {}: {error}", target.address, target.tunnel),
    })?;
    let progress = Progress::new();
    progress.step("round trips at rest");
    // A first one makes a handshake, if there is none.
    let _ = echo.round_trip(u16::MAX, HANDSHAKE);
    let mut answerer = answerer(target, port)?;
    let watched = (daemon(target.tunnel), tunnel.listen_port);
    let rest = at_rest(&answerer, target, &echo, watched)?;
    progress.step("packet sizes");
    let patience = Duration::from_secs_f64(rest.trips.median.unwrap_or(100.0) * 3e-3).clamp(INTERVAL * 4, PATIENCE);
    let passes = match rest.trips.answers {
        0 => None,
        _ => largest(&echo, target.address.is_ipv6(), tunnel.mtu, patience).ok().flatten(),
    };
    // A path that swallows larger ones is said to do so, and measured with what passes.
    let narrow =
        passes.filter(|passes| *passes < tunnel.mtu).map(|passes| passes.saturating_sub(headers(target.address)));
    answerer.limit_segments(narrow);
    progress.step(&format!("sending for {seconds} s"));
    let mut send = one_way(&answerer, target, Direction::Send, time, &echo, watched)?;
    progress.step(&format!("receiving for {seconds} s"));
    let mut receive = one_way(&answerer, target, Direction::Receive, time, &echo, watched)?;
    progress.step("lost datagrams");
    [send.lost, receive.lost] = lost(&answerer, target, send.megabits_per_second.min(receive.megabits_per_second))?;
    drop(progress);

    let (by, allowed) = match &answerer {
        Answerer::Linerate { allowed, .. } => (By::Linerate, Some(*allowed)),
        Answerer::Iperf3 { .. } => (By::Iperf3, None),
    };
    for (direction, way) in [(Direction::Send, &mut send), (Direction::Receive, &mut receive)] {
        way.bottleneck = Some(verdict::find(direction, way, &rest, tunnel.mtu, allowed));
    }
    let address = target.address.to_string();
    Ok(Speed {
        tunnel: target.tunnel.to_owned(),
        peer: target.name().to_owned(),
        label: target.to_string(),
        verdict: verdict::sentence(target.peer.name.as_deref().unwrap_or(&address), &send, &receive),
        address,
        by,
        mtu: Mtu { interface: tunnel.mtu, passes },
        at_rest: rest.trips,
        send,
        receive,
    })
}

/// Who answers there: our responder, or else iperf3.
fn answerer(target: &Target<'_>, port: u16) -> Result<Answerer, CliError> {
    let client = Client::new(SocketAddr::new(target.address, port), target.tunnel);
    let trouble = match client.allowed() {
        Ok(allowed) => return Ok(Answerer::Linerate { client, allowed }),
        Err(trouble @ (Trouble::Nobody | Trouble::Unreachable(_))) => trouble,
        Err(trouble) => return Err(trouble_with(target, &trouble)),
    };
    let Err(why) = iperf3::answers(target.address) else { return Ok(Answerer::Iperf3 { segment: None }) };
    let firewall = match trouble {
        Trouble::Unreachable(_) => format!("; a firewall may drop it, too: `linerate doctor {}`", target.tunnel),
        _ => String::new(),
    };
    Err(format!(
        "nobody answers at {target}: no responder on port {port} ({trouble}), and no iperf3 ({why}); at the other end run \
         `sudo linerate speed --listen IFACE`, with that tunnel's interface, or `iperf3 -s -B {}`, then this \
         again{firewall}",
        target.address
    )
    .into())
}

fn trouble_with(target: &Target<'_>, trouble: &Trouble) -> CliError {
    format!("cannot measure {target}: {trouble}").into()
}

/// What there is without a load.
fn at_rest(
    answerer: &Answerer,
    target: &Target<'_>,
    echo: &Echo,
    (daemon, port): (Option<u32>, u16),
) -> Result<Rest, CliError> {
    let watching = match answerer {
        Answerer::Linerate { client, .. } => Some(client.watch().map_err(|trouble| trouble_with(target, &trouble))?),
        Answerer::Iperf3 { .. } => None,
    };
    let watch = Watch::begin(daemon, port);
    let trips = round_trips(&resting_trips(echo));
    let here = watch.end();
    let there = watching.map(Watching::end).transpose().map_err(|trouble| trouble_with(target, &trouble))?;
    Ok(Rest { trips, here, there })
}

/// Loads the tunnel one way, and looks at both machines and at round trips meanwhile.
fn one_way(
    answerer: &Answerer,
    target: &Target<'_>,
    direction: Direction,
    time: Duration,
    echo: &Echo,
    (daemon, port): (Option<u32>, u16),
) -> Result<Way, CliError> {
    let ended = AtomicBool::new(false);
    let watch = Watch::begin(daemon, port);
    let (load, trips, here) = thread::scope(|scope| {
        let pings = scope.spawn(|| loaded_trips(echo, &ended));
        let load = match answerer {
            Answerer::Linerate { client, .. } => {
                ours(client, direction, time).map_err(|trouble| trouble_with(target, &trouble))
            }
            Answerer::Iperf3 { segment } => {
                iperf3::load(target.address, direction, time, *segment).map_err(CliError::from)
            }
        };
        let here = watch.end();
        ended.store(true, Ordering::Relaxed);
        (load, pings.join().unwrap_or_default(), here)
    });
    let Load { arrived: Arrived { bytes, seconds, tcp }, there } = load?;
    Ok(Way {
        megabits_per_second: if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 },
        bytes,
        seconds,
        segments: tcp.map(|tcp| tcp.segments),
        retransmitted: tcp.map(|tcp| tcp.retransmitted),
        tcp,
        lost: None,
        under_load: round_trips(&trips),
        here,
        there,
        bottleneck: None,
    })
}

/// A load with our responder.
fn ours(client: &Client, direction: Direction, time: Duration) -> Result<Load, Trouble> {
    let watching = client.watch()?;
    let arrived = match direction {
        Direction::Send => client.send(time)?,
        Direction::Receive => client.receive(time)?,
    };
    Ok(Load { arrived, there: Some(watching.end()?) })
}

/// The shares of datagrams that are lost, each way, at a quarter of this throughput at most.
fn lost(answerer: &Answerer, target: &Target<'_>, megabits: f64) -> Result<[Option<f64>; 2], CliError> {
    match answerer {
        Answerer::Linerate { client, .. } => {
            let apart = DATAGRAM as f64 * 8e-6 * 4.0 / megabits.max(0.01);
            let interval = Duration::from_secs_f64(apart).clamp(DATAGRAM_INTERVAL, DATAGRAMS / 4);
            let Echoed { sent, arrived, returned } = match client.echo(DATAGRAM, interval, DATAGRAMS) {
                Ok(echoed) => echoed,
                // Another client's are being counted; all else was measured.
                Err(Trouble::Refused(_)) => return Ok([None, None]),
                Err(trouble) => return Err(trouble_with(target, &trouble)),
            };
            let share = |of: u64, there: u64| (of > 0).then(|| 1.0 - there as f64 / of as f64);
            Ok([share(sent, arrived), share(arrived, returned)])
        }
        Answerer::Iperf3 { .. } => Ok([Direction::Send, Direction::Receive].map(|direction| {
            // A server of this kind may end after a measurement.
            iperf3::lost(target.address, direction, DATAGRAM, megabits / 4.0, DATAGRAMS).ok()
        })),
    }
}

/// A round trip of the request `number`, and a pause after it. The answer, if there was one in time.
fn trip(echo: &Echo, number: u16, interval: Duration) -> Option<Duration> {
    let begin = Instant::now();
    let answer = echo.round_trip(number, PATIENCE).ok().flatten();
    thread::sleep(interval.saturating_sub(begin.elapsed()));
    answer
}

fn resting_trips(echo: &Echo) -> Vec<Option<Duration>> {
    let mut trips = Vec::new();
    // Who does not answer at all is not asked fifty times.
    while trips.len() < AT_REST && (trips.len() < FEW || trips.iter().any(Option::is_some)) {
        trips.push(trip(echo, trips.len() as u16, INTERVAL));
    }
    trips
}

fn loaded_trips(echo: &Echo, ended: &AtomicBool) -> Vec<Option<Duration>> {
    thread::sleep(FILLING);
    let mut trips = Vec::new();
    // Others than at rest: a late answer is not taken for one of these.
    let mut number = 1000_u16;
    while !ended.load(Ordering::Relaxed) {
        let answer = trip(echo, number, LOADED_INTERVAL);
        // One that the end of the load overtook is not beside it.
        if !ended.load(Ordering::Relaxed) {
            trips.push(answer);
        }
        number = number.wrapping_add(1);
    }
    trips
}

fn round_trips(trips: &[Option<Duration>]) -> RoundTrips {
    let mut answers: Vec<Duration> = trips.iter().flatten().copied().collect();
    answers.sort_unstable();
    // A microsecond is the most that a process can tell.
    let at = |place: usize| answers.get(place).map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
    RoundTrips {
        requests: trips.len(),
        answers: answers.len(),
        least: at(0),
        tenth: at(answers.len() / 10),
        median: at(answers.len().saturating_sub(1) / 2),
        most: at(answers.len().wrapping_sub(1)),
    }
}

/// A line on the terminal that says what is being measured; it goes when this does.
struct Progress {
    is_seen: bool,
}

impl Progress {
    fn new() -> Self {
        Self { is_seen: std::io::stderr().is_terminal() }
    }

    fn step(&self, what: &str) {
        if self.is_seen {
            standard_error::write(format!("\r\x1b[Kmeasuring: {what}").as_bytes(), PATIENCE);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_seen {
            standard_error::write(b"\r\x1b[K", PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_summed_up_and_lost_ones_counted() {
        let ms = Duration::from_millis;
        let trips = round_trips(&[Some(ms(3)), None, Some(ms(1)), Some(ms(2)), Some(ms(9))]);
        assert_eq!((trips.requests, trips.answers), (5, 4));
        assert_eq!((trips.least, trips.tenth, trips.median, trips.most), (Some(1.0), Some(1.0), Some(2.0), Some(9.0)));
        assert_eq!(round_trips(&[None]), RoundTrips { requests: 1, ..RoundTrips::default() });
    }
}
