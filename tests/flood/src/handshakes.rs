//! How many handshakes a daemon completes in a second: a closed loop with fresh peers, each from an address of
//! its own.
//!
//! What is measured is the daemon, so the initiators do as little as possible while the clock runs: the
//! initiations are made before, and the responses checked after. The packet by which an initiator proves to
//! have the keys, which is data, is not sent.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_control::keys::PublicKey;
use linerate_lab::hosts::Host;
use linerate_lab::subject::KeyPair;
use linerate_lab::{Error, Result};
use linerate_protocol::MessageKind;
use rustix::time::{ClockId, clock_gettime};

use super::initiators::{Initiation, Initiators};
use super::spoofed_sources::{Answer, Part, SpoofedSources};

/// Handshakes under way at once: enough to keep a daemon busy, and fewer than any takes for a flood
/// (wireguard-go is the first, at 128).
const OUTSTANDING: usize = 64;

/// How long a daemon may take over one; then the next peer gets its turn.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What came of the handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HandshakeReport {
    /// Handshakes with a good response.
    pub completed: u64,
    /// Seconds that they took: those asked for, or fewer when every peer had its turn before.
    pub seconds: f64,
    /// Cookie replies: the daemon was under load. Each was answered by another initiation with the cookie.
    pub cookie_replies: u64,
    /// Peers that had no answer within a second.
    pub unanswered: u64,
    /// Responses that did not hold what a response must.
    pub wrong: u64,
    /// Processor seconds of the initiators in those seconds, in user space and in the kernel, where they carry
    /// packets all the way into the daemon's socket.
    pub processor_seconds: f64,
}

impl HandshakeReport {
    /// Handshakes completed per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.completed as f64 / self.seconds } else { 0.0 }
    }
}

/// Lets every one of `peers`, which the daemon on `far` at `to` knows, shake hands with it once from `near`, its
/// neighbour, until all have had their turn or `seconds` are over. To make them ready takes up to 0.1 ms each
/// beforehand. A daemon takes a peer's second initiation only 20 ms after the first.
///
/// # Errors
///
/// [`Error::Refused`] for keys or a time with which there is no handshake; otherwise why no socket could be opened.
pub fn handshakes(
    near: &Host,
    far: &Host,
    to: SocketAddr,
    responder: PublicKey,
    peers: &[KeyPair],
    seconds: f64,
) -> Result<HandshakeReport> {
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| Error::Refused(format!("handshakes cannot be counted for {seconds} seconds")))?;
    let sources = SpoofedSources::set_up(near, far, to, Part::Handshakes)?;
    let mut initiators = Initiators::new(responder, peers)?;
    let prepared = initiators.begin(1);
    let mut exchange = Exchange::default();

    let (start, used) = (Instant::now(), processor_time());
    let mut fresh = prepared.iter().enumerate();
    while start.elapsed() < time {
        exchange.give_up(Instant::now());
        let room = OUTSTANDING - exchange.waiting.len();
        exchange.send(&sources, fresh.by_ref().take(room))?;
        if exchange.waiting.is_empty() {
            break;
        }
        let mut answer = sources.wait()?;
        while let Some(one) = answer {
            exchange.take(&sources, &mut initiators, one)?;
            answer = sources.take()?;
        }
    }
    exchange.report.seconds = start.elapsed().as_secs_f64();
    exchange.report.processor_seconds = (processor_time() - used).as_secs_f64();
    Ok(exchange.check(&mut initiators))
}

#[derive(Default)]
struct Exchange {
    /// Which initiator waits for the answer to an index.
    waiting: HashMap<u32, usize>,
    /// The indices in the order in which they were sent, those included that were answered.
    sent: VecDeque<(Instant, u32)>,
    responses: Vec<(usize, Answer)>,
    report: HandshakeReport,
}

impl Exchange {
    fn send<'a>(
        &mut self,
        sources: &SpoofedSources,
        batch: impl Iterator<Item = (usize, &'a Initiation)>,
    ) -> Result<()> {
        let now = Instant::now();
        let batch = batch.map(|(number, initiation)| {
            let index = index(initiation, SENDER);
            self.waiting.insert(index, number);
            self.sent.push_back((now, index));
            (number as u32, &initiation[..])
        });
        sources.send(&batch.collect::<Vec<_>>())
    }

    /// Gives up on the initiations that the daemon did not answer in time.
    fn give_up(&mut self, now: Instant) {
        while let Some((_, index)) = self.sent.pop_front_if(|(sent, _)| now.duration_since(*sent) > TIMEOUT) {
            self.report.unanswered += u64::from(self.waiting.remove(&index).is_some());
        }
    }

    fn take(&mut self, sources: &SpoofedSources, initiators: &mut Initiators, answer: Answer) -> Result<()> {
        let receiver = match answer.kind {
            MessageKind::Response => RESPONSE_RECEIVER,
            MessageKind::Cookie => COOKIE_RECEIVER,
            MessageKind::Initiation | MessageKind::Data => return Ok(()),
        };
        let Some(number) = self.waiting.remove(&index(answer.bytes(), receiver)) else { return Ok(()) };
        if answer.kind == MessageKind::Response {
            self.responses.push((number, answer));
            return Ok(());
        }
        self.report.cookie_replies += 1;
        if !initiators.handle_answer(number, answer.bytes()) {
            self.report.wrong += 1;
            return Ok(());
        }
        let again = initiators.begin_one(number);
        self.send(sources, again.iter().map(|initiation| (number, initiation)))
    }

    fn check(mut self, initiators: &mut Initiators) -> HandshakeReport {
        for (number, response) in &self.responses {
            if initiators.handle_answer(*number, response.bytes()) {
                self.report.completed += 1;
            } else {
                self.report.wrong += 1;
            }
        }
        self.report
    }
}

/// Where an initiation has its sender's index, and answers that of whom they are for (paper section 5.4).
const SENDER: usize = 4;
const RESPONSE_RECEIVER: usize = 8;
const COOKIE_RECEIVER: usize = 4;

/// The index at `place` of a message of full length.
fn index(message: &[u8], place: usize) -> u32 {
    message[place..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// What the calling thread has used of a processor.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
