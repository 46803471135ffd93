//! A measurement between the two ends of a tunnel: what a [`Client`] asks of a [`responder`], and how.
//!
//! A connection asks for one thing, in one line of JSON, and is answered in lines of JSON. Between two of them may be
//! a stream of [`FILLER`]. Everything is bounded: lines, connections, their time, the throughput.
//!
//! ```text
//! → {"version":1,"ask":"send","milliseconds":3000}     send, receive, watch, echo; 1 to 10000 ms
//! ← {"ready":{"rate":1250000000}}                      bytes per second that it allows; or {"refused":{"reason":"…"}}
//! ```
//!
//! | ask | what happens | answer |
//! |---|---|---|
//! | `send` | the client sends bytes until it ends its side | `{"arrived":{"bytes":…,"seconds":…,"held":…}}`; `held` is the share of the time in which the responder waited for its rate |
//! | `receive` | bytes come for that time, then a line's end | `{"sent":{"tcp":{"segments":…,"retransmitted":…,"windowFull":…,"bufferFull":…},"held":…}}`; `tcp` is null where the kernel does not tell |
//! | `watch` | until the client ends its side, nine seconds at most | `{"seen":{…}}`: what the machine did meanwhile; then `{"waiting":[…]}`: of each thread in it, the share of the time in which it was ready to run and had no core |
//! | `echo` | UDP datagrams to the same port come back, if they are the client's, until it ends its side | `{"echoed":{"arrived":…}}` |
//!
//! A responder of another version refuses and names its own. What a responder says is cut to printable ASCII and to
//! numbers within bounds before anything is made of it.

mod client;
mod pace;
pub mod responder;

use serde::{Deserialize, Serialize};

pub use client::{Arrived, Client, Echoed, Stream, Trouble, Watching};

use crate::watch::{LONGEST_NAME, LimitUse, MOST_THREADS, Seen, ThreadShare};

/// The port of the responder, TCP and UDP.
pub const PORT: u16 = 5282;

/// The version of the questions and answers.
pub const VERSION: u32 = 1;

/// A longer request is refused.
pub const LONGEST_REQUEST: usize = 256;

/// A longer answer is not read.
pub const LONGEST_REPLY: usize = 4096;

/// No connection lasts longer.
pub const LONGEST_MILLISECONDS: u32 = 10_000;

/// What is sent as a load. It never ends a line.
pub const FILLER: u8 = b'.';

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// What is asked for.
    pub ask: Ask,
    /// For how long.
    pub milliseconds: u32,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// The client sends a stream: how much arrives?
    Send,
    /// A stream to the client.
    Receive,
    /// What the machine does, until the client ends its side.
    Watch,
    /// The client's datagrams back, until it ends its side: how many arrive?
    Echo,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Reply {
    /// It begins.
    Ready {
        /// Bytes per second that the responder allows.
        rate: u64,
    },
    /// It does not.
    Refused {
        /// Why, in words.
        reason: String,
    },
    /// The end of `send`.
    Arrived {
        /// Payload.
        bytes: u64,
        /// From the first byte to the last.
        seconds: f64,
        /// Share of the time in which the responder held it back, for its rate.
        held: f64,
    },
    /// The end of `receive`.
    Sent {
        /// What the sender's TCP counted, where its kernel tells.
        tcp: Option<TcpCounts>,
        /// As with `send`.
        held: f64,
    },
    /// The end of `watch`.
    Seen(Seen),
    /// After that: of each thread the share of the time in which it was ready to run, and had no core. Clients from before
    /// there was this line do not read it.
    Waiting(Vec<f64>),
    /// The end of `echo`.
    Echoed {
        /// How many datagrams arrived.
        arrived: u64,
    },
}

/// What a sender's TCP counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TcpCounts {
    /// Segments with payload.
    pub segments: u32,
    /// Of those, how many were sent again.
    pub retransmitted: u32,
    /// Share of the time in which it waited for the receiver's window.
    pub window_full: f64,
    /// Share of the time in which it waited for room in its own buffer.
    pub buffer_full: f64,
}

impl TcpCounts {
    /// Of the connection `socket`, on which a load was sent; none where the kernel does not tell.
    pub(crate) fn of(socket: &std::net::TcpStream) -> Option<Self> {
        let info = linerate_netio::tcp::TcpInfo::of(socket).ok()?;
        let share = |time: std::time::Duration| time.as_secs_f64() / info.busy.as_secs_f64().max(1e-6);
        let counts = Self {
            segments: info.segments,
            retransmitted: info.retransmitted,
            window_full: share(info.window_full),
            buffer_full: share(info.buffer_full),
        };
        // A kernel that is too old to count them leaves them at 0.
        (info.segments > 0).then(|| counts.sanitized())
    }

    fn sanitized(self) -> Self {
        Self {
            segments: self.segments,
            retransmitted: self.retransmitted.min(self.segments),
            window_full: share(self.window_full),
            buffer_full: share(self.buffer_full),
        }
    }
}

impl Reply {
    /// What came over the wire, with everything in it bounded: text for one line of a terminal, numbers that can be
    /// reckoned with.
    fn sanitized(self) -> Self {
        match self {
            Self::Ready { .. } | Self::Echoed { .. } => self,
            Self::Refused { reason } => Self::Refused { reason: one_line(&reason, LONGEST_REASON) },
            Self::Arrived { bytes, seconds, held } => {
                Self::Arrived { bytes: bytes.min(MOST), seconds: seconds_of(seconds), held: share(held) }
            }
            Self::Sent { tcp, held } => Self::Sent { tcp: tcp.map(TcpCounts::sanitized), held: share(held) },
            Self::Seen(seen) => Self::Seen(sanitized(seen)),
            Self::Waiting(shares) => Self::Waiting(shares.into_iter().take(MOST_THREADS).map(share).collect()),
        }
    }
}

/// Letters of a reason that are shown.
const LONGEST_REASON: usize = 200;

/// No count is larger, nor any sum of a few that overflows.
const MOST: u64 = 1 << 48;

/// No machine has more processors.
const MOST_PROCESSORS: usize = 1 << 16;

fn sanitized(seen: Seen) -> Seen {
    let processors = seen.processors.min(MOST_PROCESSORS);
    let thread = |thread: ThreadShare| ThreadShare {
        name: one_line(&thread.name, LONGEST_NAME),
        share: share(thread.share),
        wait_milliseconds: within(thread.wait_milliseconds, 1e6),
        waiting: 0.0,
    };
    let limit = |limit: LimitUse| LimitUse { processors: within(limit.processors, 1e6), used_up: share(limit.used_up) };
    Seen {
        seconds: seconds_of(seen.seconds),
        processors,
        idle: share(seen.idle),
        least_idle: share(seen.least_idle),
        threads: seen.threads.into_iter().take(MOST_THREADS).map(thread).collect(),
        daemon: within(seen.daemon, processors as f64),
        limit: seen.limit.map(limit),
        socket_drops: seen.socket_drops.min(MOST),
        fragmented: seen.fragmented.min(MOST),
    }
}

/// Printable ASCII alone, at most so much of it.
fn one_line(text: &str, most: usize) -> String {
    text.chars().filter(|letter| matches!(letter, ' '..='~')).take(most).collect()
}

fn within(number: f64, most: f64) -> f64 {
    if number.is_finite() { number.clamp(0.0, most) } else { 0.0 }
}

fn share(number: f64) -> f64 {
    within(number, 1.0)
}

/// A time that can be divided by, or none.
fn seconds_of(number: f64) -> f64 {
    Some(within(number, 3600.0)).filter(|seconds| *seconds > 1e-6).unwrap_or(0.0)
}

impl Request {
    /// A question of this version.
    #[must_use]
    pub fn new(ask: Ask, milliseconds: u32) -> Self {
        Self { version: VERSION, ask, milliseconds }
    }

    /// Reads a line, without its end.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence without its subject.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        /// All that has to stay the same in other versions.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        if line.len() > LONGEST_REQUEST {
            return Err(format!("a request has at most {LONGEST_REQUEST} bytes"));
        }
        let Version { version } = serde_json::from_slice(line).map_err(|_| "this is not a request".to_owned())?;
        if version != VERSION {
            return Err(format!(
                "this responder speaks version {VERSION}, not {version}; use the same linerate at both ends"
            ));
        }
        let request: Self = serde_json::from_slice(line).map_err(|_| "this is not a request".to_owned())?;
        match request.milliseconds {
            1..=LONGEST_MILLISECONDS => Ok(request),
            _ => Err(format!("a request takes 1 to {LONGEST_MILLISECONDS} milliseconds")),
        }
    }
}

/// A value as a line.
fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_line_that_reads_back() {
        for ask in [Ask::Send, Ask::Receive, Ask::Watch, Ask::Echo] {
            let request = Request::new(ask, 3000);
            let line = line(&request);
            assert!(line.len() <= LONGEST_REQUEST && line.ends_with(b"}\n"));
            assert_eq!(Request::parse(&line[..line.len() - 1]), Ok(request));
        }
        assert_eq!(line(&Request::new(Ask::Send, 1)), b"{\"version\":1,\"ask\":\"send\",\"milliseconds\":1}\n");
    }

    #[test]
    fn another_version_is_told_whatever_else_it_asks() {
        let refused = Request::parse(br#"{"version":2,"ask":"dance","steps":[1]}"#).unwrap_err();
        assert!(refused.contains("speaks version 1, not 2"), "{refused}");
    }

    #[test]
    fn the_longest_answer_fits_and_no_load_ends_a_line() {
        let thread = crate::watch::ThreadShare {
            name: "\u{1}".repeat(crate::watch::LONGEST_NAME),
            share: 0.123_456_789_012,
            wait_milliseconds: 123.456_789_012,
            waiting: 0.0,
        };
        let seen = Seen { threads: vec![thread; crate::watch::MOST_THREADS], ..Seen::default() };
        assert!(line(&Reply::Seen(seen)).len() < LONGEST_REPLY - 512);
        assert_ne!(FILLER, b'\n');
    }

    #[test]
    fn whatever_a_responder_says_is_one_line_and_within_bounds() {
        let thread = ThreadShare {
            name: "\u{1b}[2Jevil\n\u{202e}name-that-is-long".into(),
            share: -3.0,
            wait_milliseconds: 1e300,
            waiting: f64::NAN,
        };
        let seen = Seen {
            seconds: -1.0,
            processors: usize::MAX,
            idle: 7.0,
            least_idle: f64::NAN,
            threads: vec![thread; 100],
            daemon: f64::INFINITY,
            limit: Some(LimitUse { processors: -1.0, used_up: 2.0 }),
            socket_drops: u64::MAX,
            fragmented: u64::MAX,
        };
        let Reply::Seen(seen) = Reply::Seen(seen).sanitized() else { panic!("another reply") };
        assert_eq!((seen.seconds, seen.idle, seen.least_idle, seen.daemon), (0.0, 1.0, 0.0, 0.0));
        assert_eq!(seen.threads.len(), MOST_THREADS);
        let thread = ThreadShare { name: "[2Jevilname-tha".into(), share: 0.0, wait_milliseconds: 1e6, waiting: 0.0 };
        assert_eq!(seen.threads[0], thread);
        assert_eq!(seen.limit, Some(LimitUse { processors: 0.0, used_up: 1.0 }));
        assert!(seen.socket_drops.checked_add(seen.fragmented).is_some() && seen.processors <= MOST_PROCESSORS);

        let waiting = Reply::Waiting(vec![f64::NAN, 2.0, -1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]).sanitized();
        assert_eq!(waiting, Reply::Waiting(vec![0.0, 1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0]));

        let reason = "\u{7}no\r\n".to_owned() + &"x".repeat(4000);
        let Reply::Refused { reason } = (Reply::Refused { reason }).sanitized() else { panic!("another reply") };
        assert!(reason.len() == LONGEST_REASON && reason.starts_with("nox"), "{reason}");
        let arrived = Reply::Arrived { bytes: u64::MAX, seconds: 1e-300, held: -0.5 }.sanitized();
        assert_eq!(arrived, Reply::Arrived { bytes: MOST, seconds: 0.0, held: 0.0 });
        let tcp = Some(TcpCounts { segments: 3, retransmitted: 9, window_full: f64::NAN, buffer_full: 1.5 });
        let sane = Some(TcpCounts { segments: 3, retransmitted: 3, window_full: 0.0, buffer_full: 1.0 });
        assert_eq!(Reply::Sent { tcp, held: 9.0 }.sanitized(), Reply::Sent { tcp: sane, held: 1.0 });
    }

    proptest::proptest! {
        #[test]
        fn what_a_responder_of_ours_says_stays_as_it_is(
            shares in proptest::collection::vec(0.0..=1.0_f64, 4),
            seconds in 0.001..10.0_f64,
            bytes in 0..MOST,
            name in "[ -~]{0,15}",
        ) {
            let thread = ThreadShare { name, share: shares[0], wait_milliseconds: seconds, waiting: 0.0 };
            let threads = vec![thread; 3];
            let limit = Some(LimitUse { processors: 0.5, used_up: shares[1] });
            let [idle, least_idle] = [shares[2], shares[3]];
            let seen = Reply::Seen(Seen {
                seconds,
                processors: 4,
                idle,
                least_idle,
                threads,
                daemon: shares[0],
                limit,
                socket_drops: bytes,
                fragmented: 1,
            });
            proptest::prop_assert_eq!(seen.clone().sanitized(), seen);
            let waiting = Reply::Waiting(shares.clone());
            proptest::prop_assert_eq!(waiting.clone().sanitized(), waiting);
            let arrived = Reply::Arrived { bytes, seconds, held: shares[0] };
            proptest::prop_assert_eq!(arrived.clone().sanitized(), arrived);
        }
    }

    #[test]
    fn times_out_of_range_are_refused() {
        for milliseconds in ["0", "10001", "4294967296", "-1", "1e3", "\"1\""] {
            let text = format!(r#"{{"version":1,"ask":"send","milliseconds":{milliseconds}}}"#);
            assert!(Request::parse(text.as_bytes()).is_err(), "{milliseconds}");
        }
    }
}
