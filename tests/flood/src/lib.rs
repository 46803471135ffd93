//! Floods of datagrams, and handshakes at full rate, against a daemon on another host.
//!
//! Both come from thousands of spoofed addresses, as they do in the field: a daemon under load allows each address only
//! a few handshakes per second, so a single one measures that limit and not the daemon. `initiators.rs` makes
//! initiations with the protocol's own state machine, `spoofed_sources.rs` sends datagrams and receives the answers,
//! `handshakes.rs` brings handshakes to their end, `fleet_clients.rs` are clients of a whole fleet, `new_peers.rs` tries
//! one now and then, `capture.rs` takes messages off the wire, this file sends without waiting for anything.
//! `experiment.rs` measures a tunnel meanwhile.
//!
//! Over IPv4 only: a raw IPv6 socket leaves the checksum of every datagram to its sender, and what a flood
//! measures is the same with both.

#![forbid(unsafe_code)]

pub mod experiment;

mod capture;
mod fleet_clients;
mod handshakes;
mod initiators;
mod new_peers;
mod spoofed_sources;
mod unread;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_control::keys::PublicKey;
use linerate_lab::hosts::Host;
use linerate_lab::subject::KeyPair;
use linerate_lab::{Error, Result, peers};
use linerate_protocol::MessageKind;
use linerate_protocol::constants::{COOKIE_LEN, INITIATION_LEN, INITIATIONS_PER_SECOND};

pub use capture::Capture;
pub use fleet_clients::{FleetClients, Plan, TakenReport, keys as client_keys};
pub use handshakes::{HandshakeReport, handshakes};
use initiators::{Initiation, Initiators};
pub use new_peers::{NewPeersReport, new_peers};
use spoofed_sources::{Part, SpoofedSources};
pub use unread::Unread;

/// Datagrams that are handed to the kernel at once.
const BATCH: u64 = 64;

/// How long a flood that is ahead of its rate rests, at least: the kernel's timers are no finer.
const REST: Duration = Duration::from_micros(250);

/// How long it rests at most, so that it stops soon and receives all answers.
const REST_MAX: Duration = Duration::from_millis(5);

/// Addresses that all but valid floods come from.
const SPOOFED_SOURCES: u32 = 10_000;

/// Different datagrams of one flood. What a daemon refuses it forgets, so they are sent over and over.
const FORGERIES: u32 = 1024;

/// Bytes of a datagram of noise.
const NOISE_LEN: usize = 64;

/// Bytes of a data message, as long as a ping's.
const DATA_LEN: usize = 128;

/// The most valid initiations in one flood: 300 MB, and a minute to make.
const VALID_MAX: f64 = 2_097_152.0;

const _: () = assert!(VALID_MAX as usize * size_of::<Message>() <= 300 << 20);

/// What a flood consists of, by what it costs the daemon to refuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Initiations that it has to answer: of peers that it knows, each valid once.
    Valid,
    /// Initiations that take an X25519: correct, but of a key that it does not know. Anyone who knows the daemon's
    /// public key can make them.
    Forged,
    /// Initiations that take a hash: the first MAC is wrong, as it is without the daemon's public key.
    WrongMac1,
    /// Initiations that take two hashes to check for a cookie: forged ones with a wrong second MAC.
    WrongCookie,
    /// Data messages that take a decryption: a peer's own, captured and sent again.
    Replayed,
    /// Data messages that take a look-up: they name a session that does not exist.
    UnknownSession,
    /// Cookie replies that take a look-up: the daemon did not ask for them.
    CookieReplies,
    /// 64 random bytes, which take a look at the first.
    Noise,
}

/// A flood of datagrams.
#[derive(Clone, Copy)]
pub struct Flood<'a> {
    /// The daemon's endpoint, an IPv4 one.
    pub to: SocketAddr,
    /// The daemon's public key.
    pub responder: PublicKey,
    /// What is sent: valid peers send each from an address of its own, everything else comes from 10,000 addresses.
    pub content: Content,
    /// What is sent once more, of [`Content::Replayed`].
    pub captured: &'a [Message],
    /// The daemon's peers that send the valid ones.
    pub peers: &'a [KeyPair],
    /// Datagrams per second; none for as many as this machine can send, which are then not valid ones.
    pub rate: Option<u32>,
    /// For how many seconds there must be valid ones. They are made before the flood starts, which takes up to
    /// 0.1 ms each, shared by all processors.
    pub seconds: f64,
}

/// What a flood did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FloodReport {
    /// Datagrams sent. Where the daemon's host has no room for them it drops them: its counters tell.
    pub sent: u64,
    /// Seconds from the first to the last of them: less than the flood was let run if no valid ones were left.
    pub seconds: f64,
    /// Handshake responses that came back.
    pub responses: u64,
    /// Cookie replies that came back: the daemon was under load.
    pub cookie_replies: u64,
}

impl FloodReport {
    /// Datagrams sent per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.sent as f64 / self.seconds } else { 0.0 }
    }
}

/// Starts to send `flood` from `near` to the daemon on `far`, which are neighbours. It uses one thread.
///
/// # Errors
///
/// [`Error::Refused`] for an impossible flood; otherwise why no socket could be opened.
pub fn start(near: &Host, far: &Host, flood: &Flood<'_>) -> Result<Running> {
    let sources = SpoofedSources::set_up(near, far, flood.to, Part::Flood)?;
    let sender = Sender { sources, pool: Pool::fill(flood)?, rate: flood.rate };
    let stop = Stop(Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop.0);
    let thread = thread::spawn(move || sender.send(&stopped));
    Ok(Running { stop, thread })
}

/// A flood on its way. Dropping it stops it.
#[must_use]
pub struct Running {
    stop: Stop,
    thread: JoinHandle<Result<FloodReport>>,
}

impl Running {
    /// Stops the flood.
    ///
    /// # Errors
    ///
    /// Why it could not go on.
    pub fn stop(self) -> Result<FloodReport> {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Tells the flood's thread to end when it is dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What one datagram of a flood carries: as much as an initiation at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    length: u8,
    bytes: [u8; INITIATION_LEN],
}

impl Message {
    /// None of what is longer than an initiation.
    #[must_use]
    pub fn new(content: &[u8]) -> Option<Self> {
        let mut bytes = [0; INITIATION_LEN];
        bytes.get_mut(..content.len())?.copy_from_slice(content);
        Some(Self { length: content.len() as u8, bytes })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl From<Initiation> for Message {
    fn from(bytes: Initiation) -> Self {
        Self { length: INITIATION_LEN as u8, bytes }
    }
}

/// Datagrams made ahead: an initiation takes a hundred times what sending it takes.
struct Pool {
    messages: Vec<Message>,
    repeats: bool,
    /// How many senders they are sent by, one after the other.
    senders: u32,
}

impl Pool {
    fn fill(flood: &Flood<'_>) -> Result<Self> {
        let repeated = |messages| Self { messages, repeats: true, senders: SPOOFED_SOURCES };
        let forged = || -> Result<Vec<Message>> {
            let mut unknown = Initiators::new(flood.responder, &peers::fresh(1))?;
            Ok(unknown.begin(FORGERIES).into_iter().map(Message::from).collect())
        };
        Ok(match flood.content {
            Content::Forged => repeated(forged()?),
            Content::WrongMac1 => repeated(forged()?.into_iter().map(with_wrong_mac1).collect()),
            Content::WrongCookie => repeated(forged()?.into_iter().map(with_wrong_cookie).collect()),
            Content::Replayed if flood.captured.is_empty() => {
                return Err(Error::Refused("a flood of replayed messages needs some that were captured".into()));
            }
            Content::Replayed => repeated(flood.captured.to_vec()),
            Content::UnknownSession => repeated(noise(&[4, 0, 0, 0], DATA_LEN)),
            Content::CookieReplies => repeated(noise(&[3, 0, 0, 0], COOKIE_LEN)),
            Content::Noise => repeated(noise(&[], NOISE_LEN)),
            Content::Valid => {
                let initiations = Initiators::new(flood.responder, flood.peers)?.begin(rounds(flood)?);
                let messages = initiations.into_iter().map(Message::from).collect();
                Self { messages, repeats: false, senders: flood.peers.len() as u32 }
            }
        })
    }

    /// The datagram that is sent after `sent` others, and the number of its sender; none when all were sent.
    fn message(&self, sent: u64) -> Option<(u32, &[u8])> {
        let index = usize::try_from(sent).ok()?;
        let message = self.messages.get(if self.repeats { index % self.messages.len() } else { index })?;
        Some(((sent % u64::from(self.senders)) as u32, message.bytes()))
    }

    /// How many datagrams can be sent.
    fn length(&self) -> u64 {
        if self.repeats { u64::MAX } else { self.messages.len() as u64 }
    }
}

fn with_wrong_mac1(mut message: Message) -> Message {
    message.bytes[initiators::MAC1] ^= 0xff;
    message
}

fn with_wrong_cookie(mut message: Message) -> Message {
    message.bytes[initiators::MAC2..].fill(0xff);
    message
}

/// Messages that begin with `header` and are random otherwise, of `length` bytes.
fn noise(header: &[u8], length: usize) -> Vec<Message> {
    let mut rng = fastrand::Rng::with_seed(0);
    let one = |_| {
        let mut bytes = [0; INITIATION_LEN];
        rng.fill(&mut bytes);
        bytes[..header.len()].copy_from_slice(header);
        Message { length: length as u8, bytes }
    };
    (0..FORGERIES).map(one).collect()
}

/// How often every peer has to begin a handshake in a flood of valid initiations.
fn rounds(flood: &Flood<'_>) -> Result<u32> {
    let refuse = |why: String| Err(Error::Refused(format!("a flood of valid initiations {why}")));
    let Some(rate) = flood.rate else {
        return refuse("needs a rate: they are made ahead".into());
    };
    let peers = flood.peers.len() as f64;
    let rate_max = peers * f64::from(INITIATIONS_PER_SECOND);
    if f64::from(rate) > rate_max {
        return refuse(format!(
            "by {peers} peers has at most {rate_max} a second, because a daemon takes {INITIATIONS_PER_SECOND} of each; \
             take more peers or a lower rate"
        ));
    }
    let count = f64::from(rate) * flood.seconds;
    if !(0.0..=VALID_MAX).contains(&count) {
        return refuse(format!("cannot have {count} of them; at most {VALID_MAX} are made ahead"));
    }
    // No peers have no rate.
    Ok((count / peers.max(1.0)).ceil() as u32)
}

/// What the flood's thread works with.
struct Sender {
    sources: SpoofedSources,
    pool: Pool,
    rate: Option<u32>,
}

impl Sender {
    fn send(&self, stopped: &AtomicBool) -> Result<FloodReport> {
        let rest = self.rate.map_or(REST, |rate| Duration::from_secs(1) / rate.max(1)).clamp(REST, REST_MAX);
        let mut report = FloodReport::default();
        let start = Instant::now();
        while !stopped.load(Ordering::Relaxed) {
            let due = due(start.elapsed(), report.sent, self.rate, self.pool.length());
            if due == 0 {
                thread::sleep(rest);
            } else {
                let numbers = report.sent..report.sent + due;
                self.sources.send(&numbers.filter_map(|number| self.pool.message(number)).collect::<Vec<_>>())?;
                report.sent += due;
                report.seconds = start.elapsed().as_secs_f64();
            }
            self.count_answers(&mut report)?;
        }
        Ok(report)
    }

    fn count_answers(&self, report: &mut FloodReport) -> Result<()> {
        while let Some(answer) = self.sources.take()? {
            match answer.kind {
                MessageKind::Response => report.responses += 1,
                MessageKind::Cookie => report.cookie_replies += 1,
                MessageKind::Initiation | MessageKind::Data => {}
            }
        }
        Ok(())
    }
}

/// How many of `length` initiations are to be sent at once, `elapsed` after the start.
fn due(elapsed: Duration, sent: u64, rate: Option<u32>, length: u64) -> u64 {
    let by_rate = rate.map_or(u64::MAX, |rate| (elapsed.as_secs_f64() * f64::from(rate)) as u64);
    by_rate.min(length).saturating_sub(sent).min(BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SECOND: Duration = Duration::from_secs(1);

    fn flood(content: Content, peers: &[KeyPair], rate: Option<u32>, seconds: f64) -> Flood<'_> {
        let responder = peers::fresh(1)[0].public;
        let to = "192.0.2.2:51820".parse().unwrap();
        Flood { to, responder, content, captured: &[], peers, rate, seconds }
    }

    #[test]
    fn a_flood_owes_what_its_rate_says_a_batch_at_a_time() {
        let due = |millis, sent| due(Duration::from_millis(millis), sent, Some(1000), u64::MAX);
        assert_eq!(due(0, 0), 0);
        assert_eq!(due(20, 0), 20);
        assert_eq!(due(20, 20), 0);
        assert_eq!(due(9000, 20), BATCH);
    }

    #[test]
    fn a_flood_without_a_rate_owes_a_batch_until_nothing_is_left() {
        assert_eq!(due(Duration::ZERO, u64::MAX / 2, None, u64::MAX), BATCH);
        assert_eq!(due(SECOND, 2, None, 3), 1);
        assert_eq!(due(SECOND, 3, None, 3), 0);
    }

    #[test]
    fn only_valid_initiations_are_not_repeated() {
        let sent = |repeats| {
            let pool =
                Pool { messages: [0, 1, 2].map(|first| Message::new(&[first]).unwrap()).to_vec(), repeats, senders: 2 };
            (0..5)
                .map_while(|sent| pool.message(sent).map(|(sender, message)| (sender, message[0])))
                .collect::<Vec<_>>()
        };
        assert_eq!(sent(true), [(0, 0), (1, 1), (0, 2), (1, 0), (0, 1)]);
        assert_eq!(sent(false), [(0, 0), (1, 1), (0, 2)]);
    }

    #[test]
    fn no_two_initiations_of_a_pool_are_alike() {
        let peers = peers::fresh(3);
        for kind in [Content::Forged, Content::WrongMac1, Content::WrongCookie, Content::Valid] {
            let pool = Pool::fill(&flood(kind, &peers, Some(100), 0.1)).unwrap();
            let different = pool.messages.iter().collect::<HashSet<_>>().len();
            assert_eq!(different, if kind == Content::Valid { 12 } else { FORGERIES as usize });
        }
    }

    #[test]
    fn each_flood_consists_of_what_its_name_says() {
        use linerate_protocol::{DropReason, classify};
        let captured = [Message::new(&[4; 148]).unwrap()];
        let first = |content| {
            let flood = Flood { captured: &captured, ..flood(content, &[], None, 0.0) };
            Pool::fill(&flood).unwrap().message(0).unwrap().1.to_vec()
        };
        assert_eq!(classify(&first(Content::UnknownSession)), Ok(MessageKind::Data));
        assert_eq!(classify(&first(Content::CookieReplies)), Ok(MessageKind::Cookie));
        assert_eq!(classify(&first(Content::Noise)), Err(DropReason::UnknownType));
        assert_eq!(first(Content::Noise).len(), 64);
        assert_eq!(first(Content::Replayed), [4; 148]);
        assert!(Pool::fill(&flood(Content::Replayed, &[], None, 0.0)).is_err());
        assert_eq!(Message::new(&[0; 149]), None);
    }

    #[test]
    fn a_flood_of_valid_initiations_that_cannot_be_is_refused() {
        let peers = peers::fresh(2);
        let rounds = |peers, rate, seconds| rounds(&flood(Content::Valid, peers, rate, seconds)).ok();
        assert_eq!(rounds(&peers, Some(100), 1.0), Some(50));
        assert_eq!(rounds(&peers, Some(101), 1.0), None);
        assert_eq!(rounds(&peers, None, 1.0), None);
        assert_eq!(rounds(&[], Some(1), 1.0), None);
        assert_eq!(rounds(&[], Some(0), 1.0), Some(0));
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert_eq!(rounds(&peers, Some(100), seconds), None);
        }
    }
}
