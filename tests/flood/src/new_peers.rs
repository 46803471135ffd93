//! Handshakes of peers that a daemon has not heard from since it started, while others flood it: what its users
//! notice of a flood first.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_control::keys::PublicKey;
use linerate_lab::Result;
use linerate_lab::hosts::Host;
use linerate_lab::stats::Summary;
use linerate_lab::subject::KeyPair;
use linerate_protocol::MessageKind;

use super::initiators::Initiators;
use super::spoofed_sources::{Part, SpoofedSources};

/// How long each waits for its response. A peer repeats its initiation after 5 s, with a cookie if it was sent
/// one: a peer without an answer by then was turned away.
const TIMEOUT: Duration = Duration::from_secs(2);

/// In the first second of a flood its senders are new to the daemon, too.
const SETTLE: Duration = Duration::from_secs(1);

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(50);

/// What became of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewPeersReport {
    /// Peers that sent an initiation, each one.
    pub tried: u32,
    /// Seconds until the right response came, of those that got one.
    pub seconds: Vec<f64>,
}

impl NewPeersReport {
    /// The share of them that got a response; not a number if none tried.
    #[must_use]
    pub fn answered(&self) -> f64 {
        self.seconds.len() as f64 / f64::from(self.tried)
    }

    /// The median of the seconds.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        Summary::of(self.seconds.iter().copied()).map(|summary| summary.median)
    }
}

/// Lets `peers`, which the daemon on `far` at `to` knows, begin a handshake from `near`, its neighbour, one after
/// the other, a second after the call, until `time` is over or all have had their turn.
///
/// # Errors
///
/// [`Error::Refused`](linerate_lab::Error::Refused) for keys with which there is no handshake; otherwise why no socket
/// could be opened.
pub fn new_peers(
    near: &Host,
    far: &Host,
    to: SocketAddr,
    responder: PublicKey,
    peers: &[KeyPair],
    time: Duration,
) -> Result<NewPeersReport> {
    let sources = SpoofedSources::set_up(near, far, to, Part::Handshakes)?;
    let mut initiators = Initiators::new(responder, peers)?;
    let mut report = NewPeersReport::default();
    let start = Instant::now();
    if !peers.is_empty() {
        std::thread::sleep(SETTLE);
    }
    for number in 0..peers.len() {
        if start.elapsed() >= time {
            break;
        }
        let Some(initiation) = initiators.begin_one(number) else { continue };
        report.tried += 1;
        let sent = Instant::now();
        sources.send(&[(number as u32, &initiation)])?;
        while sent.elapsed() < TIMEOUT {
            let answer = sources.wait()?.filter(|answer| answer.kind == MessageKind::Response);
            let seconds = sent.elapsed().as_secs_f64();
            if answer.is_some_and(|answer| initiators.handle_answer(number, answer.bytes())) {
                report.seconds.push(seconds);
                break;
            }
        }
        std::thread::sleep(PAUSE);
    }
    Ok(report)
}
