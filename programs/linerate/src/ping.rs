//! `linerate ping`: how long a peer's handshake took, then round trips through the tunnel, each with the endpoint used.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_cli::print;
use linerate_control::client::TunnelClient;
use linerate_control::endpoint;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::printable::printable;
use linerate_control::uapi::client::{ClientError, DaemonClient};
use linerate_control::uapi::response::PeerState;
use linerate_control::uapi::socket;
use linerate_probe::Echo;
use linerate_tunnel::Interruption;
use linerate_tunnel::status::status;
use serde::Serialize;

use crate::cli::{CliError, interruption};
use crate::target::{Target, find};

#[derive(clap::Args)]
pub(crate) struct PingArguments {
    /// A peer by its name in the file or its public key, or an address behind it
    #[arg(value_name = "PEER")]
    peer: String,

    /// Tunnel of the peer (default: the one that has it)
    #[arg(long, value_name = "IFACE")]
    tunnel: Option<InterfaceName>,

    /// How many requests to send; 0: until interrupted
    #[arg(short, long, default_value_t = 5)]
    count: u16,

    /// Seconds from one request to the next
    #[arg(short, long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// Seconds to wait for an answer
    #[arg(short = 'W', long, default_value_t = 1.0, value_parser = seconds)]
    timeout: f64,

    /// Print one line of JSON per answer, and one at the end
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let range = 0.01..=3600.0;
    text.parse().ok().filter(|seconds| range.contains(seconds)).ok_or_else(|| "use 0.01 to 3600 seconds".to_owned())
}

/// Sends the requests; exits with 1 if none was answered.
pub(crate) fn main(arguments: &PingArguments) -> Result<ExitCode, CliError> {
    let all = status(arguments.tunnel.as_ref().map(InterfaceName::as_str))?;
    let target = find(&all, &arguments.peer)?;
    let interruption = interruption()?;
    let mut session = Session::open(&target)?;
    let echo = Echo::open(target.address, Some(target.tunnel)).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => "ping needs a raw socket; try again as root (sudo)".to_owned(),
        _ => format!("cannot send to {} through {}: {error}", target.address, target.tunnel),
    })?;
    let mut ping = Ping { arguments, target: &target, echo, sent: BTreeMap::new(), requests: 0, times: Vec::new() };
    ping.announce()?;
    ping.run(&mut session, &interruption)?;
    ping.sum_up(&mut session)?;
    Ok(if ping.times.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The peer's session, asked for again with each answer.
struct Session<'a> {
    target: &'a Target<'a>,
    key: PublicKey,
    /// The connection for the questions that only linerated answers, and when it was asked last.
    ours: Option<(DaemonClient, u64)>,
    state: PeerState,
    /// The last handshake before the first request.
    before: Duration,
}

impl<'a> Session<'a> {
    fn open(target: &'a Target<'a>) -> Result<Self, CliError> {
        let key = PublicKey::from_base64(target.peer.public_key.as_bytes()).ok_or("the peer has no key".to_owned())?;
        let interface: InterfaceName = target.tunnel.parse().map_err(|error| format!("{error}"))?;
        let ours = DaemonClient::connect(Path::new(socket::DIRECTORY), &interface).ok().map(|client| (client, 0));
        let mut session = Self { target, key, ours, state: PeerState::new(key), before: Duration::ZERO };
        session.refresh().map_err(|error| format!("cannot query {}: {error}", target.tunnel))?;
        if session.state.endpoint.is_none() {
            let name = printable(target.name()).into_owned();
            return Err(format!("{name} has no endpoint yet: it has to send something first").into());
        }
        session.before = session.state.last_handshake;
        Ok(session)
    }

    /// Asks for the peer's state again.
    fn refresh(&mut self) -> Result<(), ClientError> {
        let is_it = |peer: &PeerState| peer.public_key == self.key;
        if let Some((client, since)) = &mut self.ours {
            match client.activity(*since) {
                Ok(activity) => {
                    *since = activity.now;
                    if let Some(peer) = activity.peers.into_iter().find(is_it) {
                        self.state = peer;
                        return Ok(());
                    }
                    if !self.state.last_handshake.is_zero() {
                        return Ok(());
                    }
                }
                // Another implementation, which closes the connection.
                Err(_) => self.ours = None,
            }
        }
        let device = TunnelClient::open(Path::new(socket::DIRECTORY), self.target.tunnel)?.get()?;
        if let Some(peer) = device.peers.into_iter().find(|peer| peer.public_key == self.key) {
            self.state = peer;
        }
        Ok(())
    }

    fn endpoint(&self) -> String {
        self.state.endpoint.as_ref().map_or_else(|| "nowhere".to_owned(), endpoint::text)
    }

    /// How long the last handshake took, where that is known. What other daemons do not tell is the time from the first
    /// request, sent at `asked`, if the handshake was for that.
    fn handshake_time(&self, asked: Duration) -> Option<Duration> {
        let of_request = || (self.is_new()).then(|| self.state.last_handshake.checked_sub(asked)).flatten();
        Some(self.state.handshake_time).filter(|time| !time.is_zero()).or_else(of_request)
    }

    /// Whether there was a handshake since the first request.
    fn is_new(&self) -> bool {
        self.state.last_handshake > self.before
    }
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The requests and their answers.
struct Ping<'a> {
    arguments: &'a PingArguments,
    target: &'a Target<'a>,
    echo: Echo,
    /// Those that are not answered yet, by number. Of a number a request carries the lowest 16 bits.
    sent: BTreeMap<u64, Instant>,
    requests: u64,
    times: Vec<Duration>,
}

/// One line of `--json`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Line<'a> {
    Start { tunnel: &'a str, peer: &'a str, public_key: &'a str, address: IpAddr },
    Handshake { endpoint: &'a str, seconds_ago: u64, milliseconds: Option<f64>, is_new: bool },
    Answer { number: u64, endpoint: &'a str, endpoint_changed: bool, milliseconds: f64 },
    NoAnswer { number: u64 },
    End { requests: u64, answers: usize, least_ms: Option<f64>, median_ms: Option<f64>, most_ms: Option<f64> },
}

impl Ping<'_> {
    fn run(&mut self, session: &mut Session<'_>, interruption: &Interruption) -> Result<(), CliError> {
        let count = u64::from(self.arguments.count);
        let timeout = Duration::from_secs_f64(self.arguments.timeout);
        let interval = Duration::from_secs_f64(self.arguments.interval);
        let asked = wall();
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            if now >= next && (count == 0 || self.requests < count) {
                self.request(now)?;
                next += interval;
            }
            self.give_up(now, timeout)?;
            if interruption.came() || (self.requests == count && count > 0 && self.sent.is_empty()) {
                return Ok(());
            }
            let is_last = count > 0 && self.requests == count;
            let gives_up = self.sent.values().next().map(|sent| *sent + timeout);
            let wake = gives_up.into_iter().chain((!is_last).then_some(next)).min().unwrap_or(next);
            let pause = wake.saturating_duration_since(Instant::now());
            interruption.pause(&[self.echo.as_fd()], Some(pause)).map_err(|error| format!("cannot wait: {error}"))?;
            self.receive(session, asked)?;
        }
    }

    fn request(&mut self, now: Instant) -> Result<(), CliError> {
        let number = self.requests;
        self.requests += 1;
        self.sent.insert(number, now);
        match self.echo.send(number as u16) {
            Err(error) if self.requests == 1 => Err(format!("cannot send to {}: {error}", self.target.address).into()),
            // Of this request or an earlier one, which has no answer: that is said in time.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn receive(&mut self, session: &mut Session<'_>, asked: Duration) -> Result<(), CliError> {
        let arrived = Instant::now();
        // An error tells of a request that has no answer.
        while let Ok(Some(answered)) = self.echo.receive() {
            let waiting = self.sent.iter().rev().find(|(number, _)| **number as u16 == answered);
            let Some((number, sent)) = waiting.map(|(number, sent)| (*number, *sent)) else { continue };
            self.sent.remove(&number);
            let before = session.endpoint();
            session.refresh().map_err(|error| format!("cannot query {}: {error}", self.target.tunnel))?;
            if self.times.is_empty() {
                self.say_handshake(session, asked)?;
            }
            let time = arrived.saturating_duration_since(sent);
            self.times.push(time);
            self.say_answer(number, time, &session.endpoint(), before)?;
        }
        Ok(())
    }

    fn give_up(&mut self, now: Instant, timeout: Duration) -> Result<(), CliError> {
        while let Some((number, _)) = self.sent.first_key_value().filter(|(_, sent)| now >= **sent + timeout) {
            let number = *number;
            self.sent.remove(&number);
            let text = format!("no answer to {} within {} s\n", number + 1, self.arguments.timeout);
            self.say(&Line::NoAnswer { number: number + 1 }, &text)?;
        }
        Ok(())
    }

    fn announce(&self) -> Result<(), CliError> {
        let Target { tunnel, peer, address, is_guess } = self.target;
        let mut text = format!("ping {} through {tunnel}\n", self.target);
        if *is_guess {
            let _ = writeln!(
                text,
                "{address} is the first address of {tunnel}'s network; if it is not this peer's, give the one that is"
            );
        }
        let line = Line::Start { tunnel, peer: self.target.name(), public_key: &peer.public_key, address: *address };
        self.say(&line, &text)
    }

    fn say_handshake(&self, session: &Session<'_>, asked: Duration) -> Result<(), CliError> {
        let endpoint = session.endpoint();
        let time = session.handshake_time(asked);
        let seconds_ago = wall().saturating_sub(session.state.last_handshake).as_secs();
        let took = time.map(|time| format!("took {} ms", milliseconds(time)));
        let text = match (session.is_new(), took) {
            (true, Some(took)) => format!("handshake with {endpoint} {took}\n"),
            (true, None) => format!("handshake with {endpoint}, which began it\n"),
            (false, Some(took)) => format!("last handshake with {endpoint} {seconds_ago} s ago; it {took}\n"),
            (false, None) => format!("last handshake with {endpoint} {seconds_ago} s ago\n"),
        };
        let line = Line::Handshake {
            endpoint: &endpoint,
            seconds_ago,
            milliseconds: time.map(in_milliseconds),
            is_new: session.is_new(),
        };
        self.say(&line, &text)
    }

    fn say_answer(&self, number: u64, time: Duration, endpoint: &str, before: String) -> Result<(), CliError> {
        let changed = if before == endpoint { String::new() } else { format!("; the endpoint was {before}") };
        let text =
            format!("pong {} from {} via {endpoint} in {} ms{changed}\n", number + 1, self.target, milliseconds(time),);
        let line = Line::Answer {
            number: number + 1,
            endpoint,
            endpoint_changed: !changed.is_empty(),
            milliseconds: in_milliseconds(time),
        };
        self.say(&line, &text)
    }

    /// The last lines: the round trips, or what is known of why there are none.
    fn sum_up(&mut self, session: &mut Session<'_>) -> Result<(), CliError> {
        self.times.sort_unstable();
        let (least, most) = (self.times.first().copied(), self.times.last().copied());
        let median = self.times.get(self.times.len().saturating_sub(1) / 2).copied();
        let mut text = format!("\n{} of {} answered", self.times.len(), self.requests);
        if let (Some(least), Some(median), Some(most)) = (least, median, most) {
            let [least, median, most] = [least, median, most].map(milliseconds);
            let _ = write!(text, "; round trips of {least} ms at least, {median} ms in the median, {most} ms at most");
        }
        text.push('\n');
        if self.times.is_empty() {
            // Not worth an error of its own.
            let _ = session.refresh();
            text.push_str(&self.why(session));
        }
        let line = Line::End {
            requests: self.requests,
            answers: self.times.len(),
            least_ms: least.map(in_milliseconds),
            median_ms: median.map(in_milliseconds),
            most_ms: most.map(in_milliseconds),
        };
        self.say(&line, &text)
    }

    fn why(&self, session: &Session<'_>) -> String {
        let Target { tunnel, address, .. } = self.target;
        let age = wall().saturating_sub(session.state.last_handshake).as_secs();
        match session.state.last_handshake.is_zero() || age > 180 {
            true => format!(
                "{} does not answer handshakes; `linerate doctor {tunnel}` looks for the reason\n",
                session.endpoint()
            ),
            false => format!(
                "there was a handshake {age} s ago, so the tunnel works as far as {}: {address} does not answer, or its \
                 answers do not come back\n",
                session.endpoint()
            ),
        }
    }

    fn say(&self, line: &Line<'_>, text: &str) -> Result<(), CliError> {
        let json = || serde_json::to_string(line).map(|line| line + "\n");
        match self.arguments.json {
            true => print(json().map_err(|error| format!("cannot write JSON: {error}"))?.as_bytes())?,
            false => print(text.as_bytes())?,
        };
        Ok(())
    }
}

fn in_milliseconds(time: Duration) -> f64 {
    // A microsecond is the most that a process can tell.
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Three digits, as far as they mean something.
fn milliseconds(time: Duration) -> String {
    let value = time.as_secs_f64() * 1e3;
    match value {
        ..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
