//! Peers that a daemon has not heard of since it started, who want to get in while others flood it: what its
//! users notice of a flood first.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_control::keys::PublicKey;
use linerate_protocol::MessageKind;

use super::initiators::Initiators;
use super::spoofed_sources::{Part, SpoofedSources};
use crate::Result;
use crate::hosts::Host;
use crate::subject::KeyPair;

/// How long each waits for its response. A peer repeats its initiation after 5 s, with a cookie if it was sent
/// one: who is not answered within this has been turned away.
const TIMEOUT: Duration = Duration::from_secs(2);

/// In the first second of a flood all who flood are newcomers as well.
const SETTLE: Duration = Duration::from_secs(1);

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(50);

/// What became of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewcomerReport {
    /// Peers that sent an initiation, each one.
    pub tried: u32,
    /// Seconds until the right response came, of those to whom one did.
    pub seconds: Vec<f64>,
}

/// Lets `peers`, which the daemon on `far` at `to` knows, begin a handshake from `near`, its neighbour, one after
/// the other, a second after the call, until `time` is over or all have had their turn.
///
/// # Errors
///
/// [`Error::Refused`](crate::Error::Refused) for keys with which there is no handshake; otherwise why no socket
/// could be opened.
pub fn newcomers(
    near: &Host,
    far: &Host,
    to: SocketAddr,
    responder: PublicKey,
    peers: &[KeyPair],
    time: Duration,
) -> Result<NewcomerReport> {
    let sources = SpoofedSources::set_up(near, far, to, Part::Handshakes)?;
    let mut initiators = Initiators::new(responder, peers)?;
    let mut report = NewcomerReport::default();
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
            if answer.is_some_and(|answer| initiators.hear(number, answer.bytes())) {
                report.seconds.push(seconds);
                break;
            }
        }
        std::thread::sleep(PAUSE);
    }
    Ok(report)
}
