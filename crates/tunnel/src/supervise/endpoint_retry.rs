//! When a peer needs another address, and which. Time is an argument here.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_control::uapi::response::PeerState;

/// The age from which a handshake counts as stale. Sessions live for 180 s (REJECT_AFTER_TIME) and are renewed well
/// before; contrib/reresolve-dns of wireguard-tools uses the same age.
const STALE: Duration = Duration::from_secs(135);

/// How long a new address is tried: two initiations, which come 5 s apart (REKEY_TIMEOUT).
const ADDRESS_TRIAL_TIME: Duration = Duration::from_secs(11);

/// How often a tunnel that works is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The attempts to reach a peer whose endpoint is a name.
#[derive(Default)]
pub struct EndpointRetry {
    /// Bytes sent to the peer, at the last poll.
    sent: u64,
    /// Bytes received from it, at the last poll.
    received: u64,
    /// The addresses tried since it last answered.
    tried: Vec<SocketAddr>,
    /// When it was given the last of them.
    given: Option<Instant>,
    /// How many lookups in a row had no answer.
    unanswered: u32,
    /// It needs another address.
    needs_address: bool,
    /// No lookup before this time.
    not_before: Option<Instant>,
}

impl EndpointRetry {
    /// Whether a lookup is due: packets are sent to the peer and it does not answer, or it has no address. `wall` is
    /// the time since 1970.
    pub fn is_lookup_due(&mut self, peer: &PeerState, wall: Duration, now: Instant) -> bool {
        let sends = peer.tx_bytes > self.sent;
        let answers = peer.rx_bytes > self.received;
        (self.sent, self.received) = (peer.tx_bytes, peer.rx_bytes);
        if self.given.is_none() && peer.last_handshake.is_zero() && peer.endpoint.is_some() {
            // `up` has given the first address.
            self.given = Some(now);
        }
        let fresh = wall.saturating_sub(peer.last_handshake) < STALE;
        if fresh || answers {
            (self.tried, self.given, self.unanswered, self.not_before) = (Vec::new(), None, 0, None);
            self.needs_address = false;
            return false;
        }
        let on_trial = self.given.is_some_and(|given| now.duration_since(given) < ADDRESS_TRIAL_TIME);
        // Packets sent while an address is on trial still count afterwards.
        self.needs_address |= sends || peer.endpoint.is_none();
        // This may be called before the pause is over.
        let is_backing_off = self.not_before.is_some_and(|until| now < until);
        self.needs_address && !on_trial && !is_backing_off
    }

    /// The address to try next: the first that was not tried; when all were, the first other than the peer's. `None` if
    /// the peer keeps its address.
    pub fn choose(&mut self, found: &[SocketAddr], peer: &PeerState, now: Instant) -> Option<SocketAddr> {
        self.needs_address = false;
        if found.is_empty() {
            self.unanswered += 1;
            self.not_before = Some(now + self.pause());
            self.needs_address = peer.endpoint.is_none();
            return None;
        }
        (self.unanswered, self.not_before) = (0, None);
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

    /// How long until the peer has to be polled again.
    pub fn pause(&self) -> Duration {
        match (self.given, self.unanswered) {
            // No answer yet, for example at boot: exponential backoff, 1 s up to 20 s, for ever.
            (_, 1..) => Duration::from_secs(1 << (self.unanswered - 1).min(5)).min(Duration::from_secs(20)),
            (Some(_), 0) => ADDRESS_TRIAL_TIME,
            (None, 0) => POLL_INTERVAL,
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
    fn a_peer_without_an_address_needs_one_even_without_traffic() {
        assert!(EndpointRetry::default().is_lookup_due(&peer(None, 0, 0, None), NOW, Instant::now()));
    }

    #[test]
    fn a_peer_that_answers_keeps_its_address_whatever_the_name_resolves_to() {
        let mut retry = EndpointRetry::default();
        let start = Instant::now();
        for (age, rx) in [(10, 100), (130, 200), (500, 300)] {
            assert!(!retry.is_lookup_due(&peer(Some("192.0.2.9:1"), 10 * rx, rx, Some(age)), NOW, start));
        }
    }

    #[test]
    fn an_idle_peer_keeps_its_address_even_after_an_old_handshake() {
        let mut retry = EndpointRetry::default();
        let start = Instant::now();
        let resting = || peer(Some("192.0.2.9:1"), 500, 500, Some(10_000));
        retry.is_lookup_due(&resting(), NOW, start);
        retry.given = None;
        assert!(!retry.is_lookup_due(&resting(), NOW, start));
    }

    #[test]
    fn an_unresponsive_peer_cycles_through_all_addresses() {
        let mut retry = EndpointRetry::default();
        let found = addresses(&["192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1"]);
        let mut now = Instant::now();
        let (mut endpoint, mut sent, mut given) = (None, 0, Vec::new());
        for _ in 0..6 {
            sent += 148;
            let state = peer(endpoint, sent, 0, None);
            assert!(retry.is_lookup_due(&state, NOW, now));
            let address = retry.choose(&found, &state, now).unwrap();
            assert!(!retry.is_lookup_due(&peer(endpoint, sent + 148, 0, None), NOW, now), "its trial is not over");
            sent += 148;
            given.push(address);
            endpoint = Some(
                ["192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1"][found.iter().position(|a| *a == address).unwrap()],
            );
            now += ADDRESS_TRIAL_TIME;
        }
        assert_eq!(given[..3], found[..]);
        assert!(found.iter().all(|address| given[3..].contains(address)), "{given:?}");
    }

    #[test]
    fn an_only_address_is_given_once() {
        let mut retry = EndpointRetry::default();
        let (found, now) = (addresses(&["192.0.2.1:1"]), Instant::now());
        assert_eq!(retry.choose(&found, &peer(None, 0, 0, None), now), Some(found[0]));
        assert_eq!(retry.choose(&found, &peer(Some("192.0.2.1:1"), 148, 0, None), now + ADDRESS_TRIAL_TIME), None);
    }

    #[test]
    fn failed_lookups_are_retried_for_ever_and_ever_less_often() {
        let mut retry = EndpointRetry::default();
        let mut pauses = Vec::new();
        let mut now = Instant::now();
        for _ in 0..8 {
            assert!(retry.is_lookup_due(&peer(None, 0, 0, None), NOW, now));
            assert_eq!(retry.choose(&[], &peer(None, 0, 0, None), now), None);
            assert!(!retry.is_lookup_due(&peer(None, 0, 0, None), NOW, now), "no lookup before the pause is over");
            pauses.push(retry.pause().as_secs());
            now += retry.pause();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20, 20]);
    }
}
