//! A measurement between the two ends of a tunnel: what a [`Client`] asks of a [`responder`], and how.
//!
//! A connection asks for one thing, in one line of JSON, and is answered in lines of JSON. Between two of them may be
//! a stream of [`FILLER`]. Everything is bounded: lines, connections, their time, the throughput.

mod client;
mod pace;
pub mod responder;

use serde::{Deserialize, Serialize};

pub use client::{Arrived, Client, Echoed, Trouble, Watching};

use crate::watch::Seen;

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
    },
    /// The end of `receive`: what the sender's TCP counted.
    Sent(TcpCounts),
    /// The end of `watch`.
    Seen(Seen),
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
    /// Of the connection `socket`; zeros where the kernel does not tell.
    pub(crate) fn of(socket: &std::net::TcpStream) -> Self {
        let info = linerate_netio::tcp::TcpInfo::of(socket).unwrap_or_default();
        let share = |time: std::time::Duration| time.as_secs_f64() / info.busy.as_secs_f64().max(1e-6);
        Self {
            segments: info.segments,
            retransmitted: info.retransmitted,
            window_full: share(info.window_full).min(1.0),
            buffer_full: share(info.buffer_full).min(1.0),
        }
    }
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
        };
        let seen = Seen { threads: vec![thread; crate::watch::MOST_THREADS], ..Seen::default() };
        assert!(line(&Reply::Seen(seen)).len() < LONGEST_REPLY - 512);
        assert_ne!(FILLER, b'\n');
    }

    #[test]
    fn times_out_of_range_are_refused() {
        for milliseconds in ["0", "10001", "4294967296", "-1", "1e3", "\"1\""] {
            let text = format!(r#"{{"version":1,"ask":"send","milliseconds":{milliseconds}}}"#);
            assert!(Request::parse(text.as_bytes()).is_err(), "{milliseconds}");
        }
    }
}
