//! Loads: traffic from one host to another as fast as it goes, and what of it arrived.
//!
//! [`run`] is one call for every kind of [`Traffic`]: iperf3 makes TCP and plain UDP, because its figures are
//! those that users compare, and `datagrams.rs` makes the UDP that iperf3 cannot: whole GSO batches per system
//! call, and a mix of sizes. [`tcp`] is a generator of our own for `linerate demo`, which needs nothing installed.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};

use crate::hosts::Host;
use crate::{Error, Result};
use datagrams::Sizes;

pub mod tcp;

mod datagrams;
mod iperf3;

const DAY: Duration = Duration::from_secs(86_400);

/// The most that one UDP datagram over IPv4 carries, in bytes.
const LARGEST_PAYLOAD: u16 = 65_507;

/// The least that a datagram of a load carries: what iperf3 numbers its datagrams with, and more than we need.
const SMALLEST_PAYLOAD: u16 = 16;

/// The payloads of one turn of the simple IMIX: seven, four and one datagrams that make IPv4 packets of 40, 576 and
/// 1500 bytes, the last of them as long as the tunnel's MTU allows in one piece (the size `z` of RFC 6985), 1420. The
/// order spreads each size evenly.
pub const IMIX: [u16; 12] = {
    const S: u16 = 40 - HEADERS;
    const M: u16 = 576 - HEADERS;
    const L: u16 = 1420 - HEADERS;
    [S, M, S, S, M, S, L, S, M, S, S, M]
};

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u16 = 28;

/// What to send, as fast as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Bulk TCP by iperf3.
    Tcp {
        /// Connections at once, 1 to 128.
        streams: u16,
        /// Data flows from the far host to the near one, which still opens the connections (iperf3's `-R`).
        reverse: bool,
    },
    /// UDP from a single sender.
    Datagrams {
        /// Bytes in each, headers not counted, 16 to 65,507.
        payload: u16,
        /// The sender hands the kernel GSO batches of them (`UDP_SEGMENT`, up to 64 in one call), as QUIC servers
        /// do; otherwise one call sends one, by iperf3.
        segmented: bool,
    },
    /// UDP from a single sender, a call for each datagram, of the sizes of [`IMIX`] in turn.
    Mix,
}

/// What of a load arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrived {
    /// Bytes of payload in the measured part, by the receiver.
    pub bytes: u64,
    /// Seconds in which they arrived.
    pub seconds: f64,
    /// Bytes of payload from the first to the last, warm-up included: what to divide by for figures per GB that
    /// cover the whole call of [`run`].
    pub all_bytes: u64,
    /// TCP segments that the sender sent again in the measured part; none for UDP.
    pub retransmits: Option<u64>,
    /// Datagrams that arrived in the measured part; none for TCP.
    pub datagrams: Option<u64>,
    /// Datagrams of the measured part that did not arrive; none for TCP.
    pub lost: Option<u64>,
}

impl Arrived {
    /// Bits per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }
}

/// Sends `traffic` from one host to another's address `to` and tells what arrived there in `seconds`, which begin
/// `warm_up` seconds after the start.
///
/// iperf3 runs for whole seconds, so its loads last up to a second longer than asked for; what is beyond is in
/// [`Arrived::all_bytes`] only.
///
/// # Errors
///
/// [`Error::Refused`] when iperf3 is missing, for a load that cannot be, or when the kernel takes no GSO batches of
/// this size; otherwise why the load did not get through.
pub fn run(from: &Host, to_host: &Host, to: IpAddr, traffic: &Traffic, warm_up: f64, seconds: f64) -> Result<Arrived> {
    traffic.check()?;
    let window = Window { warm_up: lasting(warm_up)?, time: lasting(seconds)? };
    match *traffic {
        Traffic::Datagrams { payload, segmented: true } => {
            datagrams::run(from, to_host, to, Sizes::Batches(payload), window)
        }
        Traffic::Mix => datagrams::run(from, to_host, to, Sizes::InTurn(&IMIX), window),
        Traffic::Tcp { .. } | Traffic::Datagrams { .. } => iperf3::run(from, to_host, to, traffic, window),
    }
}

/// What iperf3 says its version is: `iperf 3.12 (cJSON 1.7.15)`.
///
/// # Errors
///
/// [`Error::Refused`] with the line that installs it.
pub fn version() -> Result<String> {
    iperf3::version()
}

impl Traffic {
    fn check(&self) -> Result<()> {
        let why = match *self {
            Self::Tcp { streams: 1..=iperf3::MOST_STREAMS, .. } => return Ok(()),
            Self::Datagrams { payload: SMALLEST_PAYLOAD..=LARGEST_PAYLOAD, .. } | Self::Mix => return Ok(()),
            Self::Tcp { streams, .. } => {
                format!("a load cannot have {streams} TCP streams; iperf3 takes 1 to {}", iperf3::MOST_STREAMS)
            }
            Self::Datagrams { payload, .. } => format!(
                "a load cannot have datagrams of {payload} bytes; {SMALLEST_PAYLOAD} to {LARGEST_PAYLOAD} are possible"
            ),
        };
        Err(Error::Refused(why))
    }
}

/// The part of a load that counts.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// Time before it.
    warm_up: Duration,
    /// How long it is.
    time: Duration,
}

/// A time that a load can last.
fn lasting(seconds: f64) -> Result<Duration> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= DAY);
    time.ok_or_else(|| Error::Refused(format!("a load cannot last {seconds} seconds; the most is a day")))
}

/// Polls until one of `fds` is ready or `time` is over. Returns how many are ready.
pub(crate) fn wait(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<usize> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(fds, Some(&time)) {
        Err(rustix::io::Errno::INTR) => {
            // Nothing was looked at, so nothing may look ready.
            fds.iter_mut().for_each(PollFd::clear_revents);
            Ok(0)
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_of_nothing_or_too_much_is_refused() {
        let refused = |traffic: Traffic| matches!(traffic.check(), Err(Error::Refused(_)));
        for streams in [0, 129, u16::MAX] {
            assert!(refused(Traffic::Tcp { streams, reverse: false }));
        }
        for payload in [0, 15, 65_508] {
            assert!(refused(Traffic::Datagrams { payload, segmented: true }));
        }
        assert!(!refused(Traffic::Tcp { streams: 128, reverse: true }));
        assert!(!refused(Traffic::Datagrams { payload: 65_507, segmented: false }));
    }
}
