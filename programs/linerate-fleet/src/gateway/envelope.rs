//! The envelope of a message between gateways: it proves who sent it, to whom, and that it is new.
//!
//! ```text
//! 2 | sender | receiver | life 8 | challenge 8 | answer 8 | sequence 8 | the message | MAC 32
//! ```
//!
//! The sender's address is not enough: another user of a gateway's host may hold its port. The MAC covers everything
//! before it, under a key that only gateways have. A receiver allocates and stores nothing until it has verified the
//! MAC.
//!
//! The life is a random number that the sender's service draws when it starts. The answer repeats the latest challenge
//! that the receiver sent to the sender. A receiver accepts a message only if it answers the current challenge. The
//! challenge changes when the receiver's service restarts and when the sender begins a new life, so messages recorded
//! before a restart of either are refused after it. Between restarts, the sequence number admits each message once.
//! Clocks are not used, as they may be wrong. A gateway that has just started has no answer yet: its first message only
//! carries its challenge.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_protocol::ReplayWindow;

use super::members::DEAD_AFTER;
use crate::seal::{MAC, MessageKey};

const VERSION: u8 = 2;
const HEADER: usize = 35;
/// Bytes that an envelope adds to its message.
pub const ENVELOPE: usize = HEADER + MAC;

/// Seals messages to other gateways and opens theirs. It holds a key, so it has no `Debug`.
pub struct Envelopes {
    me: u8,
    life: u64,
    key: MessageKey,
    links: BTreeMap<u8, Link>,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is too short, or of another version.
    Version,
    /// Its MAC is wrong.
    Mac,
    /// It names a different sender or receiver.
    Direction,
    /// It has been received before.
    Replayed,
}

impl Refusal {
    /// Returns the reason as a sentence for the log.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Version => "it is not a message of this version of linerate-fleet",
            Self::Mac => "its MAC was not made with the fleet's key",
            Self::Direction => "it names a different sender or receiver",
            Self::Replayed => "it has been received before",
        }
    }
}

/// The state of the link to one other gateway.
#[derive(Default)]
struct Link {
    /// Its current life; 0: no message has been accepted yet. `window` has the sequence numbers received in it.
    life: u64,
    window: ReplayWindow,
    heard: Option<Duration>,
    /// How often it has begun a new life. Our life plus this count is our challenge to it.
    lives: u64,
    /// Its latest challenge to us; 0: not known.
    answer: u64,
    sent: u64,
}

impl Envelopes {
    /// Makes the envelopes of gateway `me`, whose service has drawn `life`.
    pub fn new(me: u8, life: u64, key: MessageKey) -> Self {
        Self { me, life: life.max(1), key, links: BTreeMap::new() }
    }

    /// Seals a message to gateway `to`.
    pub fn seal(&mut self, to: u8, message: &[u8]) -> Vec<u8> {
        let link = self.links.entry(to).or_default();
        link.sent += 1;
        let mut bytes = Vec::with_capacity(ENVELOPE + message.len());
        bytes.extend([VERSION, self.me, to]);
        let challenge = self.life.wrapping_add(link.lives);
        bytes.extend([self.life, challenge, link.answer, link.sent].map(u64::to_le_bytes).as_flattened());
        bytes.extend(message);
        let mac = self.key.mac(&bytes);
        bytes.extend(mac);
        bytes
    }

    /// Opens bytes from the address of gateway `from`. `None`: the message is authentic, but does not answer the
    /// current challenge, so it may be an old one.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn open<'a>(&mut self, now: Duration, from: u8, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, Refusal> {
        let (text, mac) = bytes.split_last_chunk::<MAC>().ok_or(Refusal::Version)?;
        let (header, message) = text.split_first_chunk::<HEADER>().ok_or(Refusal::Version)?;
        let [version, sender, receiver, numbers @ ..] = header;
        if *version != VERSION {
            return Err(Refusal::Version);
        }
        if (*sender, *receiver) != (from, self.me) || from == self.me {
            return Err(Refusal::Direction);
        }
        if !self.key.has_mac(text, mac) {
            return Err(Refusal::Mac);
        }
        let (numbers, _) = numbers.as_chunks::<8>();
        let number = |at: usize| numbers.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let [life, challenge, answer, sequence] = [0, 1, 2, 3].map(number);
        let link = self.links.entry(from).or_default();
        if answer != self.life.wrapping_add(link.lives) {
            link.greet(now, challenge);
            return Ok(None);
        }
        link.take(life, sequence)?;
        (link.heard, link.answer) = (Some(now), challenge);
        Ok(Some(message))
    }
}

impl Link {
    /// Stores the challenge of a gateway that has just started, or that has not received a message of ours yet. While
    /// the link works this must be a replayed message, and to answer its challenge would cut the link.
    fn greet(&mut self, now: Duration, challenge: u64) {
        if self.heard.is_none_or(|heard| now >= heard + DEAD_AFTER) {
            self.answer = challenge;
        }
    }

    /// Accepts a message that answers the challenge, once.
    fn take(&mut self, life: u64, sequence: u64) -> Result<(), Refusal> {
        if life != self.life {
            // A new life gets a new challenge, so messages of the earlier life no longer answer the current one.
            self.lives += u64::from(self.life != 0);
            (self.life, self.window) = (life, ReplayWindow::default());
        }
        self.window.accept(sequence).then_some(()).ok_or(Refusal::Replayed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_control::keys::SecretKey;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(1);

    fn key(byte: u8) -> MessageKey {
        MessageKey::new(&SecretKey::from_bytes(&[byte; 32]), &"berlin".parse().unwrap(), 1)
    }

    fn gateway(me: u8, life: u64) -> Envelopes {
        Envelopes::new(me, life, key(7))
    }

    /// Sends one message from `a` to `b`. False if `b` takes only its challenge.
    fn says(a: &mut Envelopes, b: &mut Envelopes, at: Duration) -> bool {
        let bytes = a.seal(b.me, b"x");
        b.open(at, a.me, &bytes).expect("no message is refused").is_some()
    }

    /// Two gateways that know each other.
    fn acquainted() -> (Envelopes, Envelopes) {
        let (mut a, mut b) = (gateway(1, 10), gateway(2, 20));
        assert!(!says(&mut a, &mut b, NOW), "b cannot tell whether a's first message is new");
        assert!(says(&mut b, &mut a, NOW) && says(&mut a, &mut b, NOW));
        (a, b)
    }

    #[test]
    fn gateways_that_greet_at_the_same_time_hear_each_other_next() {
        let (mut a, mut b) = (gateway(1, 10), gateway(2, 20));
        let (of_a, of_b) = (a.seal(2, b"x"), b.seal(1, b"x"));
        assert_eq!((a.open(NOW, 2, &of_b), b.open(NOW, 1, &of_a)), (Ok(None), Ok(None)));
        assert!(says(&mut a, &mut b, NOW) && says(&mut b, &mut a, NOW));
    }

    #[test]
    fn a_message_is_taken_once_and_in_one_direction() {
        let (mut a, mut b) = acquainted();
        let bytes = a.seal(2, b"hints");
        assert_eq!(b.open(NOW, 1, &bytes), Ok(Some(&b"hints"[..])));
        assert_eq!(b.open(NOW, 1, &bytes), Err(Refusal::Replayed));
        assert_eq!(a.open(NOW, 2, &bytes), Err(Refusal::Direction), "reflected");
        assert_eq!(b.open(NOW, 3, &bytes), Err(Refusal::Direction), "from the address of another gateway");
        assert_eq!(gateway(3, 30).open(NOW, 1, &bytes), Err(Refusal::Direction), "sent on to another gateway");
        let another = Envelopes::new(1, 10, key(8)).seal(2, b"hints");
        assert_eq!(b.open(NOW, 1, &another), Err(Refusal::Mac));
        assert_eq!(b.open(NOW, 2, &b.key.mac(b"")), Err(Refusal::Version));
    }

    #[test]
    fn what_was_recorded_before_a_restart_of_either_gateway_is_not_taken_after_it() {
        let (mut a, mut b) = acquainted();
        let old = [a.seal(2, b"1"), a.seal(2, b"2")];
        // The receiver restarts.
        let mut new_b = gateway(2, 21);
        assert!(old.iter().all(|bytes| new_b.open(NOW, 1, bytes) == Ok(None)));
        // The sender restarts, and the receiver does not.
        let later = NOW + DEAD_AFTER;
        let mut new_a = gateway(1, 11);
        assert!(!says(&mut new_a, &mut b, later) && says(&mut b, &mut new_a, later) && says(&mut new_a, &mut b, later));
        assert!(old.iter().all(|bytes| b.open(later, 1, bytes) == Ok(None)));
        assert!(says(&mut b, &mut new_a, later) && says(&mut new_a, &mut b, later));
        // Old messages do not cut the link after a long silence either.
        assert!(old.iter().all(|bytes| b.open(later * 100, 1, bytes) == Ok(None)));
        for _ in 0..2 {
            says(&mut new_a, &mut b, later * 100);
            says(&mut b, &mut new_a, later * 100);
        }
        assert!(says(&mut new_a, &mut b, later * 100));
    }

    #[test]
    fn an_old_greeting_does_not_cut_a_link_that_is_alive() {
        let (mut a, mut b) = (gateway(1, 10), gateway(2, 20));
        let greeting = gateway(1, 9).seal(2, b"x");
        says(&mut a, &mut b, NOW);
        assert!(says(&mut b, &mut a, NOW) && says(&mut a, &mut b, NOW));
        assert_eq!(b.open(NOW, 1, &greeting), Ok(None));
        assert!(says(&mut b, &mut a, NOW));
        // On a silent link, an old greeting delays the next message by one.
        let later = NOW + DEAD_AFTER;
        assert_eq!(b.open(later, 1, &greeting), Ok(None));
        assert!(!says(&mut b, &mut a, later) && says(&mut a, &mut b, later) && says(&mut b, &mut a, later));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let mut a = gateway(1, 10);
        for length in [0, 1, MAC, HEADER, ENVELOPE - 1, ENVELOPE, ENVELOPE + 1, 1500, 9100] {
            assert_eq!(a.open(NOW, 2, &vec![0xff; length]), Err(Refusal::Version), "{length}");
        }
        let bytes = gateway(2, 20).seal(1, b"");
        assert_eq!(a.open(NOW, 2, &bytes[1..]), Err(Refusal::Version));
        assert_eq!(a.open(NOW, 2, &bytes), Ok(None));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send(bool),
        /// Delivers any message that was ever sent, again or for the first time.
        Deliver(prop::sample::Index),
        Restart(bool),
        Later(u16),
    }

    proptest! {
        #[test]
        fn every_message_is_taken_at_most_once_in_the_lives_it_was_meant_for(
            steps in prop::collection::vec(prop_oneof![
                3 => any::<bool>().prop_map(Step::Send),
                5 => any::<prop::sample::Index>().prop_map(Step::Deliver),
                1 => any::<bool>().prop_map(Step::Restart),
                1 => (0u16..500).prop_map(Step::Later),
            ], 0..200),
        ) {
            let (mut both, mut lives, mut now) = ([gateway(0, 1), gateway(1, 2)], 2, NOW);
            let mut sent: Vec<(u8, Vec<u8>, u64, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Send(which) => {
                        let (from, to) = (u8::from(which), u8::from(!which));
                        let bytes = both[usize::from(from)].seal(to, b"x");
                        sent.push((from, bytes, both[usize::from(to)].life, 0));
                    }
                    Step::Deliver(at) if !sent.is_empty() => {
                        let count = sent.len();
                        let (from, bytes, life, taken) = &mut sent[at.index(count)];
                        let receiver = &mut both[usize::from(1 - *from)];
                        if matches!(receiver.open(now, *from, bytes), Ok(Some(_))) {
                            *taken += 1;
                            prop_assert_eq!(*life, receiver.life, "it was sent in an earlier life of its receiver");
                            prop_assert_eq!(*taken, 1);
                        }
                    }
                    Step::Deliver(_) => {}
                    Step::Restart(which) => {
                        lives += 1;
                        both[usize::from(which)] = gateway(which.into(), lives);
                    }
                    Step::Later(ms) => now += Duration::from_millis(ms.into()),
                }
            }
            // After any replays, both accept each other's messages again soon.
            now += DEAD_AFTER;
            let [a, b] = &mut both;
            for _ in 0..2 {
                says(a, b, now);
                says(b, a, now);
            }
            prop_assert!(says(a, b, now) && says(b, a, now));
        }
    }
}
