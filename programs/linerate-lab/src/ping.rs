//! Round trips by ICMP echo, one probe after the other: the next one is sent only when the last was answered or given
//! up. It needs a raw socket: root may open one, also a user who is root only in the lab's hosts.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use linerate_probe::Echo;
use serde::Serialize;

use crate::error::Doing;
use crate::stats::Latency;
use crate::{Error, Result};

/// How to probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probes {
    /// How many.
    pub count: u32,
    /// Time from an answer to the next probe.
    pub pause: Duration,
    /// How long to wait for an answer.
    pub timeout: Duration,
}

impl Default for Probes {
    /// A thousand probes, a millisecond apart, each waited for up to a second.
    fn default() -> Self {
        Self { count: 1000, pause: Duration::from_millis(1), timeout: Duration::from_secs(1) }
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Probes sent.
    pub sent: u32,
    /// Probes answered in time.
    pub answered: u32,
    /// The round trips, summed up; none without an answer.
    #[serde(flatten)]
    pub latency: Option<Latency>,
    /// Every round trip in milliseconds, in the order of sending.
    #[serde(skip)]
    pub round_trips_ms: Vec<f64>,
}

/// Sends `probes` to `to` from the host of the calling thread.
///
/// # Errors
///
/// [`Error::Refused`] without the right to a raw socket; otherwise why a probe could not be sent.
pub fn run(to: IpAddr, probes: &Probes) -> Result<Report> {
    let echo = match Echo::open(to, None) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(Error::Refused("probing needs a raw socket; run this as root".into()));
        }
        opened => opened.doing(|| format!("finding a way to {to}"))?,
    };
    let mut round_trips_ms = Vec::new();
    for number in 0..probes.count {
        // ICMP's sequence numbers wrap at 16 bits; by then the answer to the same number is long given up.
        let time = echo.round_trip(number as u16, probes.timeout).doing(|| format!("probing {to}"))?;
        if let Some(time) = time {
            round_trips_ms.push(time.as_secs_f64() * 1e3);
        }
        if number + 1 < probes.count {
            thread::sleep(probes.pause);
        }
    }
    Ok(Report {
        sent: probes.count,
        answered: round_trips_ms.len() as u32,
        latency: Latency::of(round_trips_ms.iter().copied()),
        round_trips_ms,
    })
}
