//! When a peer needs another address, and which. Time is an argument here.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_control::uapi::response::PeerState;

/// A handshake that is older has outlived every session (REJECT_AFTER_TIME, 180 s) but for the time that a rekey is
/// tried for; contrib/reresolve-dns of wireguard-tools looks at the same age.
const STALE: Duration = Duration::from_secs(135);

/// How long an address that was given is tried: two initiations, which come 5 s apart (REKEY_TIMEOUT).
const TRIAL: Duration = Duration::from_secs(11);

/// How often a tunnel is looked at that is well.
const CALM: Duration = Duration::from_secs(30);

/// What is known of a peer whose endpoint is a name.
#[derive(Default)]
pub(crate) struct Silence {
    /// What the peer had been sent when it was last looked at.
    sent: u64,
    /// What had come from it.
    received: u64,
    /// The addresses that were given since it was last heard of.
    tried: Vec<SocketAddr>,
    /// When the last of them was.
    given: Option<Instant>,
    /// How many questions in a row had no answer.
    unanswered: u32,
    /// It is being looked for.
    wanting: bool,
    /// Until when nobody is asked again.
    rests: Option<Instant>,
}

impl Silence {
    /// Whether the peer is sent packets and does not answer, or has no address at all. `wall` is the time since 1970.
    pub(crate) fn asks_in_vain(&mut self, peer: &PeerState, wall: Duration, now: Instant) -> bool {
        let asks = peer.tx_bytes > self.sent;
        let answers = peer.rx_bytes > self.received;
        (self.sent, self.received) = (peer.tx_bytes, peer.rx_bytes);
        if self.given.is_none() && peer.last_handshake.is_zero() && peer.endpoint.is_some() {
            // `up` has given the first address.
            self.given = Some(now);
        }
        let fresh = wall.saturating_sub(peer.last_handshake) < STALE;
        if fresh || answers {
            (self.tried, self.given, self.unanswered, self.rests) = (Vec::new(), None, 0, None);
            self.wanting = false;
            return false;
        }
        let on_trial = self.given.is_some_and(|given| now.duration_since(given) < TRIAL);
        // While an address is on trial, the questions that went there still count afterwards.
        self.wanting |= asks || peer.endpoint.is_none();
        // Others wake us, too.
        let rests = self.rests.is_some_and(|until| now < until);
        self.wanting && !on_trial && !rests
    }

    /// The address to try next of those that the name has: one that was not tried, in their order; when all were, the
    /// first that is not the one the peer has. None if there is nothing to change.
    pub(crate) fn choose(&mut self, found: &[SocketAddr], peer: &PeerState, now: Instant) -> Option<SocketAddr> {
        self.wanting = false;
        if found.is_empty() {
            self.unanswered += 1;
            self.rests = Some(now + self.pause());
            self.wanting = peer.endpoint.is_none();
            return None;
        }
        (self.unanswered, self.rests) = (0, None);
        if let Some(current) = peer.endpoint
            && !self.tried.contains(&current)
        {
            self.tried.push(current);
        }
        let untried = found.iter().find(|address| !self.tried.contains(address));
        let address = untried.or_else(|| {
            self.tried.clear();
            found.iter().find(|address| Some(**address) != peer.endpoint)
        });
        self.given = Some(now);
        let address = *address?;
        self.tried.push(address);
        Some(address)
    }

    /// How long the peer need not be looked at.
    pub(crate) fn pause(&self) -> Duration {
        match (self.given, self.unanswered) {
            // Nobody knows the name yet: at boot, say. 1, 2, 4, … seconds, at most 20, for ever.
            (_, 1..) => Duration::from_secs(1 << (self.unanswered - 1).min(5)).min(Duration::from_secs(20)),
            (Some(_), 0) => TRIAL,
            (None, 0) => CALM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_control::keys::PublicKey;

    const NOW: Duration = Duration::from_secs(1_000_000);

    fn peer(endpoint: Option<&str>, tx_bytes: u64, rx_bytes: u64, handshake_age: Option<u64>) -> PeerState {
        PeerState {
            endpoint: endpoint.map(|endpoint| endpoint.parse().unwrap()),
            tx_bytes,
            rx_bytes,
            last_handshake: handshake_age.map_or(Duration::ZERO, |age| NOW - Duration::from_secs(age)),
            ..PeerState::new(PublicKey([7; 32]))
        }
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_peer_without_an_address_needs_one_though_nobody_sends() {
        assert!(Silence::default().asks_in_vain(&peer(None, 0, 0, None), NOW, Instant::now()));
    }

    #[test]
    fn a_peer_that_answers_keeps_its_address_whatever_the_name_says() {
        let mut silence = Silence::default();
        let start = Instant::now();
        for (age, rx) in [(10, 100), (130, 200), (500, 300)] {
            assert!(!silence.asks_in_vain(&peer(Some("192.0.2.9:1"), 10 * rx, rx, Some(age)), NOW, start));
        }
    }

    #[test]
    fn a_peer_at_rest_keeps_its_address_though_its_handshake_is_old() {
        let mut silence = Silence::default();
        let start = Instant::now();
        let resting = || peer(Some("192.0.2.9:1"), 500, 500, Some(10_000));
        silence.asks_in_vain(&resting(), NOW, start);
        silence.given = None;
        assert!(!silence.asks_in_vain(&resting(), NOW, start));
    }

    #[test]
    fn a_peer_that_is_asked_in_vain_goes_through_all_addresses_of_both_families_and_begins_anew() {
        let mut silence = Silence::default();
        let found = addresses(&["192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1"]);
        let mut now = Instant::now();
        let (mut endpoint, mut sent, mut given) = (None, 0, Vec::new());
        for _ in 0..6 {
            sent += 148;
            let state = peer(endpoint, sent, 0, None);
            assert!(silence.asks_in_vain(&state, NOW, now));
            let address = silence.choose(&found, &state, now).unwrap();
            assert!(!silence.asks_in_vain(&peer(endpoint, sent + 148, 0, None), NOW, now), "its trial is not over");
            sent += 148;
            given.push(address);
            endpoint = Some(
                ["192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1"][found.iter().position(|a| *a == address).unwrap()],
            );
            now += TRIAL;
        }
        assert_eq!(given[..3], found[..]);
        assert!(found.iter().all(|address| given[3..].contains(address)), "{given:?}");
    }

    #[test]
    fn the_only_address_is_given_once() {
        let mut silence = Silence::default();
        let (found, now) = (addresses(&["192.0.2.1:1"]), Instant::now());
        assert_eq!(silence.choose(&found, &peer(None, 0, 0, None), now), Some(found[0]));
        assert_eq!(silence.choose(&found, &peer(Some("192.0.2.1:1"), 148, 0, None), now + TRIAL), None);
    }

    #[test]
    fn a_name_without_an_answer_is_asked_for_ever_and_ever_less_often() {
        let mut silence = Silence::default();
        let mut pauses = Vec::new();
        let mut now = Instant::now();
        for _ in 0..8 {
            assert!(silence.asks_in_vain(&peer(None, 0, 0, None), NOW, now));
            assert_eq!(silence.choose(&[], &peer(None, 0, 0, None), now), None);
            assert!(
                !silence.asks_in_vain(&peer(None, 0, 0, None), NOW, now),
                "nobody is asked before the pause is over"
            );
            pauses.push(silence.pause().as_secs());
            now += silence.pause();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20, 20]);
    }
}
