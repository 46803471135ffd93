//! The measurement, step by step.

use std::cell::OnceCell;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_cli::standard_error;
use linerate_doctor::bottleneck::Bottleneck;
use linerate_probe::speed::{Arrived, Client, Echoed, TcpCounts, Trouble, Watching};
use linerate_probe::watch::{Seen, Watch};
use linerate_probe::{Echo, largest};
use linerate_tunnel::Interruption;
use linerate_tunnel::status::Status;
use serde::Serialize;

use super::{iperf3, verdict};
use crate::cli::{CliError, interruption};
use crate::doctor::daemon;
use crate::target::Target;

/// Round trips without load: at most this many, or on a slow path as many as fit into `MAX_IDLE_TIME`, but at least
/// `MIN_IDLE_TRIPS`. Ends early if the first `MAX_UNANSWERED_TRIPS` are not answered.
const MAX_IDLE_TRIPS: usize = 50;
const MIN_IDLE_TRIPS: usize = 10;
const MAX_UNANSWERED_TRIPS: usize = 3;
const IDLE_INTERVAL: Duration = Duration::from_millis(10);
const MAX_IDLE_TIME: Duration = Duration::from_secs(2);

/// Time to wait for an answer without load. The minimum allows for busy processors, however short the path is.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_ANSWER_TIMEOUT: Duration = Duration::from_millis(200);

/// Under load, requests are further apart and may be answered much later: queues may hold seconds of traffic.
const LOADED_INTERVAL: Duration = Duration::from_millis(20);
pub(super) const LATE: Duration = Duration::from_secs(3);

/// The first sequence number under load, so that a late answer to a request without load is not counted.
const FIRST_LOADED: u16 = 1000;

/// Time for a load's queues to fill: this time or this many round trips, whichever is longer.
const FILLING: Duration = Duration::from_millis(300);
const FILLING_TRIPS: f64 = 10.0;

/// Time, and number of requests, to wait for a load's queues to drain, since the next connection would wait behind them.
const SETTLED: Duration = Duration::from_secs(2);
const SETTLING: usize = 5;

/// Time to wait for the first answer: the request may need a handshake, which is retried after 5 s.
const HANDSHAKE: Duration = Duration::from_millis(5500);

/// The measurement of lost datagrams: bytes per datagram, minimum interval, and duration.
const DATAGRAM: usize = 500;
const DATAGRAM_INTERVAL: Duration = Duration::from_micros(500);
const DATAGRAMS: Duration = Duration::from_secs(1);
const LEAST_LATE: Duration = Duration::from_millis(500);

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

/// Round trips, in milliseconds. Beside a load a request without an answer is one that took as long as answers are
/// waited for, but for the longest, which is that of an answer.
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
    /// From the first byte to the last, or all of its time if it stalled.
    pub(super) seconds: f64,
    /// Nothing of it arrived in more than half of its time.
    pub(super) stalled: bool,
    pub(super) segments: Option<u32>,
    pub(super) retransmitted: Option<u32>,
    #[serde(skip)]
    pub(super) tcp: Option<TcpCounts>,
    /// Share of the time in which the responder held the stream back.
    pub(super) held: f64,
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

/// A load, and what was seen beside it.
struct Load {
    arrived: Arrived,
    trips: Vec<Option<Duration>>,
    here: Seen,
    there: Option<Seen>,
}

/// The other end.
enum Answerer {
    Linerate { client: Client, allowed: u64 },
    Iperf3 { segment: Option<u32>, interruption: Interruption },
}

impl Answerer {
    fn limit_segments(&mut self, bytes: Option<u32>) {
        match (self, bytes) {
            (Self::Linerate { client, .. }, Some(bytes)) => client.limit_segments(bytes),
            (Self::Iperf3 { segment, .. }, _) => *segment = bytes,
            _ => {}
        }
    }

    /// An error after a signal, which does not end this process while it has a child.
    fn check(&self) -> Result<(), CliError> {
        match self {
            Self::Iperf3 { interruption, .. } if interruption.came() => Err("interrupted".to_owned().into()),
            _ => Ok(()),
        }
    }
}

/// Round trips beside loads, one load after the other.
struct Pings<'a> {
    echo: &'a Echo,
    /// The number of the next request: none comes twice.
    next: u16,
    /// How long the queues take to fill; none where nobody answers at rest.
    filling: Option<Duration>,
}

impl Pings<'_> {
    /// Waits until the queues of a load have emptied.
    fn settle(&mut self) {
        // Where nobody answers at rest, nobody tells.
        for _ in 0..self.filling.map_or(0, |_| SETTLING) {
            let number = self.next;
            self.next = number.wrapping_add(1);
            if matches!(self.echo.round_trip(number, SETTLED), Ok(Some(_))) {
                return;
            }
        }
    }
}

/// Bytes of the headers of IP and TCP, without options.
fn headers(address: IpAddr) -> u32 {
    if address.is_ipv4() { 40 } else { 60 }
}

pub(super) fn measure(tunnel: &Status, target: &Target<'_>, seconds: u8, port: u16) -> Result<Speed, CliError> {
    let time = Duration::from_secs(seconds.into());
    let mut echo = Echo::open(target.address, Some(target.tunnel)).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => "speed needs a raw socket; try again as root (sudo)".to_owned(),
        _ => format!("cannot send to {} through {}: {error}", target.address, target.tunnel),
    })?;
    let progress = Progress::new();
    progress.step("round trips at rest");
    // A first one makes a handshake, if there is none.
    let _ = echo.round_trip(u16::MAX, HANDSHAKE);
    let mut answerer = answerer(target, port)?;
    if let Answerer::Iperf3 { interruption, .. } = &answerer {
        let signals = interruption.as_fd().try_clone_to_owned();
        echo.stop_at(signals.map_err(|error| format!("cannot handle signals: {error}"))?);
    }
    let watched = (daemon(target.tunnel), tunnel.listen_port);
    let rest = at_rest(&answerer, target, &echo, watched)?;
    answerer.check()?;
    progress.step("packet sizes");
    let timeout =
        Duration::from_secs_f64(rest.trips.median.unwrap_or(100.0) * 3e-3).clamp(MIN_ANSWER_TIMEOUT, ANSWER_TIMEOUT);
    let passes = match rest.trips.answers {
        0 => None,
        _ => largest(&echo, target.address.is_ipv6(), tunnel.mtu, timeout).ok().flatten(),
    };
    // A path that swallows larger ones is said to do so, and measured with what passes.
    let narrow =
        passes.filter(|passes| *passes < tunnel.mtu).map(|passes| passes.saturating_sub(headers(target.address)));
    answerer.limit_segments(narrow);
    answerer.check()?;
    let mut pings =
        Pings { echo: &echo, next: FIRST_LOADED, filling: rest.trips.median.map(|trip| filling(trip, time)) };
    progress.step(&format!("sending for {seconds} s"));
    let mut send = one_way(&answerer, target, Direction::Send, time, &mut pings, &rest, watched)?;
    pings.settle();
    progress.step(&format!("receiving for {seconds} s"));
    let mut receive = one_way(&answerer, target, Direction::Receive, time, &mut pings, &rest, watched)?;
    pings.settle();
    progress.step("lost datagrams");
    let lost = lost(&answerer, target, send.megabits_per_second.min(receive.megabits_per_second), &rest.trips);
    answerer.check()?;
    drop(progress);
    [send.lost, receive.lost] = lost.map(|share| match share {
        Ok(share) => share,
        Err(reason) => {
            linerate_cli::eprint_line(&format!("linerate: cannot measure lost datagrams: {reason}"));
            None
        }
    });

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
    let interruption = interruption()?;
    let Err(why) = iperf3::answers(target.address, &interruption) else {
        return Ok(Answerer::Iperf3 { segment: None, interruption });
    };
    if interruption.came() {
        return Err(why.into());
    }
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
    let trips = round_trips(&resting_trips(echo), None);
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
    pings: &mut Pings<'_>,
    rest: &Rest,
    watched: (Option<u32>, u16),
) -> Result<Way, CliError> {
    let Load { arrived, trips, here, there } = match answerer {
        Answerer::Linerate { client, .. } => {
            let load = ours(client, direction, time, pings, watched);
            load.map_err(|trouble| trouble_with(target, &trouble))?
        }
        Answerer::Iperf3 { segment, interruption } => {
            let (arrived, trips, here) = beside(pings, watched, |_| {
                iperf3::load(target.address, direction, time, *segment, interruption).map_err(CliError::from)
            });
            let arrived = arrived?;
            // It connects before the load, and tells its counters after it.
            Load { arrived, trips, here: here.during(arrived.seconds, Some(&rest.here)), there: None }
        }
    };
    let Arrived { bytes, seconds, tcp, held } = arrived;
    let stalled = stalls(seconds, time);
    // What came in one burst before that says nothing about a second.
    let seconds = if stalled { time.as_secs_f64() } else { seconds };
    Ok(Way {
        megabits_per_second: bytes as f64 * 8e-6 / seconds,
        bytes,
        seconds,
        stalled,
        segments: tcp.map(|tcp| tcp.segments),
        retransmitted: tcp.map(|tcp| tcp.retransmitted),
        tcp,
        held,
        lost: None,
        under_load: round_trips(&trips, Some(LATE)),
        here,
        // The other end is watched from before the load's connection until after its last answer.
        there: there.map(|seen| seen.during(seconds, rest.there.as_ref())),
        bottleneck: None,
    })
}

/// A load with our responder.
fn ours(
    client: &Client,
    direction: Direction,
    time: Duration,
    pings: &mut Pings<'_>,
    watched: (Option<u32>, u16),
) -> Result<Load, Trouble> {
    let watching = client.watch()?;
    let stream = match direction {
        Direction::Send => client.send(time)?,
        Direction::Receive => client.receive(time)?,
    };
    let ((arrived, there), trips, here) = beside(pings, watched, |ended| {
        let arrived = stream.run(ended);
        // What stalls the stream may stall this, too; the stream was measured.
        (arrived, watching.end().ok())
    });
    Ok(Load { arrived: arrived?, trips, here, there })
}

/// What `load` returns, and the round trips and this machine meanwhile: from now until it calls what it is given, or
/// else until its end.
fn beside<T>(
    pings: &mut Pings<'_>,
    (daemon, port): (Option<u32>, u16),
    load: impl FnOnce(&dyn Fn()) -> T,
) -> (T, Vec<Option<Duration>>, Seen) {
    let (ended, here) = (AtomicBool::new(false), OnceCell::new());
    let watch = Watch::begin(daemon, port);
    let (outcome, trips) = thread::scope(|scope| {
        let trips = scope.spawn(|| loaded_trips(pings, &ended));
        let end = || {
            here.get_or_init(|| watch.end());
            ended.store(true, Ordering::Relaxed);
        };
        let outcome = load(&end);
        end();
        (outcome, trips.join().unwrap_or_default())
    });
    (outcome, trips, here.into_inner().unwrap_or_default())
}

/// Whether a stream of `time` that arrived in so many seconds, from its first byte to its last, stood still.
fn stalls(seconds: f64, time: Duration) -> bool {
    seconds < time.as_secs_f64() / 2.0
}

/// How long a load's queues take to fill on a way of this round trip, in milliseconds.
fn filling(at_rest: f64, time: Duration) -> Duration {
    Duration::from_secs_f64(at_rest * FILLING_TRIPS * 1e-3).max(FILLING).min(time / 2)
}

/// Measures the share of lost datagrams in each direction, at a quarter of this throughput at most; `None` if none was
/// sent. The caller reports an error and keeps the rest of the measurement.
fn lost(
    answerer: &Answerer,
    target: &Target<'_>,
    megabits: f64,
    at_rest: &RoundTrips,
) -> [Result<Option<f64>, String>; 2] {
    match answerer {
        Answerer::Linerate { client, .. } => {
            let apart = DATAGRAM as f64 * 8e-6 * 4.0 / megabits.max(0.01);
            let interval = Duration::from_secs_f64(apart).clamp(DATAGRAM_INTERVAL, DATAGRAMS / 4);
            let trips = Duration::from_secs_f64(at_rest.most.unwrap_or(0.0) * 2e-3);
            let echoed = client.echo(DATAGRAM, interval, DATAGRAMS, trips.clamp(LEAST_LATE, LATE));
            let Echoed { sent, arrived, returned } = match echoed {
                Ok(echoed) => echoed,
                Err(trouble) => return [Err(trouble.to_string()), Ok(None)],
            };
            let share = |of: u64, there: u64| Ok((of > 0).then(|| 1.0 - there as f64 / of as f64));
            [share(sent, arrived), share(arrived, returned)]
        }
        Answerer::Iperf3 { interruption, .. } => [Direction::Send, Direction::Receive].map(|direction| {
            // A server of this kind may end after a measurement.
            iperf3::lost(target.address, direction, DATAGRAM, megabits / 4.0, DATAGRAMS, interruption).map(Some)
        }),
    }
}

/// A round trip of the request `number`, and a pause after it. The answer, if there was one in time.
fn trip(echo: &Echo, number: u16, interval: Duration) -> Option<Duration> {
    let begin = Instant::now();
    let answer = echo.round_trip(number, ANSWER_TIMEOUT).ok().flatten();
    thread::sleep(interval.saturating_sub(begin.elapsed()));
    answer
}

fn resting_trips(echo: &Echo) -> Vec<Option<Duration>> {
    let begin = Instant::now();
    let mut trips = Vec::new();
    let has_time = |trips: usize| trips < MIN_IDLE_TRIPS || begin.elapsed() < MAX_IDLE_TIME;
    // A peer that answers no request is not sent all fifty.
    while trips.len() < MAX_IDLE_TRIPS
        && has_time(trips.len())
        && (trips.len() < MAX_UNANSWERED_TRIPS || trips.iter().any(Option::is_some))
    {
        trips.push(trip(echo, trips.len() as u16, IDLE_INTERVAL));
    }
    trips
}

/// Round trips of requests that are sent until the load has ended, whatever becomes of those before.
fn loaded_trips(pings: &mut Pings<'_>, ended: &AtomicBool) -> Vec<Option<Duration>> {
    let Some(filling) = pings.filling else { return Vec::new() };
    let mut requests = Requests { first: pings.next, sent: Vec::new() };
    let mut at = Instant::now() + filling;
    let mut until = None;
    loop {
        let now = Instant::now();
        if until.is_none() && ended.load(Ordering::Relaxed) {
            until = Some(now + LATE);
        }
        let wake = match until {
            Some(until) if now >= until || requests.are_answered() => break,
            Some(until) => until,
            None => {
                if now >= at {
                    // One that does not leave this host is none.
                    if pings.echo.send(requests.next()).is_ok() {
                        requests.send(now);
                    }
                    // What was missed is not made up for by a burst.
                    at = (at + LOADED_INTERVAL).max(now);
                }
                at
            }
        };
        // The end of the load is seen in time.
        let pause = wake.saturating_duration_since(now).min(LOADED_INTERVAL);
        if pings.echo.wait(pause).is_err() {
            break;
        }
        while let Ok(Some(number)) = pings.echo.receive() {
            requests.answer(number, Instant::now());
        }
    }
    pings.next = requests.next();
    requests.trips()
}

/// Requests with numbers that follow each other: when they were sent, and how long their answers took.
struct Requests {
    first: u16,
    sent: Vec<(Instant, Option<Duration>)>,
}

impl Requests {
    fn next(&self) -> u16 {
        self.first.wrapping_add(self.sent.len() as u16)
    }

    fn send(&mut self, now: Instant) {
        self.sent.push((now, None));
    }

    fn answer(&mut self, number: u16, now: Instant) {
        let place = usize::from(number.wrapping_sub(self.first));
        if let Some((sent, answer)) = self.sent.get_mut(place) {
            answer.get_or_insert(now.saturating_duration_since(*sent));
        }
    }

    fn are_answered(&self) -> bool {
        self.sent.iter().all(|(_, answer)| answer.is_some())
    }

    fn trips(&self) -> Vec<Option<Duration>> {
        self.sent.iter().map(|(_, answer)| *answer).collect()
    }
}

/// Those without an answer are left out, or took as long as `unanswered`.
fn round_trips(trips: &[Option<Duration>], unanswered: Option<Duration>) -> RoundTrips {
    let mut times: Vec<Duration> = trips.iter().filter_map(|answer| answer.or(unanswered)).collect();
    times.sort_unstable();
    // A microsecond is the most that a process can tell.
    let milliseconds = |time: &Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let at = |place: usize| times.get(place).map(milliseconds);
    RoundTrips {
        requests: trips.len(),
        answers: trips.iter().flatten().count(),
        least: at(0),
        tenth: at(times.len() / 10),
        median: at(times.len().saturating_sub(1) / 2),
        most: trips.iter().flatten().max().map(milliseconds),
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
            standard_error::write(format!("\r\x1b[Kmeasuring: {what}").as_bytes(), ANSWER_TIMEOUT);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_seen {
            standard_error::write(b"\r\x1b[K", ANSWER_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_summed_up_and_lost_ones_counted() {
        let ms = Duration::from_millis;
        let trips = round_trips(&[Some(ms(3)), None, Some(ms(1)), Some(ms(2)), Some(ms(9))], None);
        assert_eq!((trips.requests, trips.answers), (5, 4));
        assert_eq!((trips.least, trips.tenth, trips.median, trips.most), (Some(1.0), Some(1.0), Some(2.0), Some(9.0)));
        assert_eq!(round_trips(&[None], None), RoundTrips { requests: 1, ..RoundTrips::default() });
    }

    #[test]
    fn beside_a_load_no_answer_is_a_late_one() {
        let ms = Duration::from_millis;
        let trips = round_trips(&[None, Some(ms(4)), None, None, Some(ms(9))], Some(LATE));
        assert_eq!((trips.requests, trips.answers), (5, 2));
        assert_eq!((trips.least, trips.median, trips.most), (Some(4.0), Some(3000.0), Some(9.0)));
        let trips = round_trips(&[None; 20], Some(LATE));
        assert_eq!((trips.answers, trips.tenth, trips.most), (0, Some(3000.0), None));
    }

    #[test]
    fn answers_belong_to_their_requests_in_any_order() {
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let mut requests = Requests { first: u16::MAX, sent: Vec::new() };
        let numbers = [0, 20, 40].map(|at| {
            let number = requests.next();
            requests.send(after(at));
            number
        });
        assert_eq!(numbers, [u16::MAX, 0, 1]);
        // One that comes twice, others', and one that nobody sent.
        for (number, at) in [(1, 2040), (0, 2050), (0, 2060), (2, 2061), (7, 2070), (u16::MAX - 1, 2080)] {
            requests.answer(number, after(at));
        }
        assert!(!requests.are_answered());
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(requests.trips(), [None, ms(2030), ms(2000)]);
        requests.answer(u16::MAX, after(2500));
        assert!(requests.are_answered() && requests.next() == 2);
    }

    #[test]
    fn a_burst_and_then_nothing_is_a_stream_that_stalls() {
        let time = Duration::from_secs(3);
        assert!([0.0, 1e-4, 1.4].iter().all(|seconds| stalls(*seconds, time)));
        assert!(![1.6, 2.98, 7.0].iter().any(|seconds| stalls(*seconds, time)));
    }

    #[test]
    fn a_long_way_has_more_time_to_fill_its_queues_but_not_all() {
        let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
        assert_eq!(filling(0.3, second * 3), FILLING);
        assert_eq!(filling(120.0, second * 3), ms(1200));
        assert_eq!(filling(120.0, second), ms(500));
    }
}
