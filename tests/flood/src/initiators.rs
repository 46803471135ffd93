//! Peers whose private keys we have: they begin handshakes and check the responses, by the protocol's own
//! state machine, with nothing behind it.

use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_control::keys::PublicKey;
use linerate_lab::subject::KeyPair;
use linerate_lab::{Error, Result, peers};
use linerate_protocol::constants::INITIATION_LEN;
use linerate_protocol::{
    Boottime, Device, Effects, Entropy, HandshakeFilter, Now, PeerId, PrivateKey, PublicKey as ProtocolKey, Session,
    TrafficTimestamps,
};
use rustix::time::{ClockId, clock_gettime};

/// A handshake initiation.
pub(super) type Initiation = [u8; INITIATION_LEN];

/// Where the first MAC of an initiation begins; two of 16 bytes each are its end (paper section 5.4.2).
pub(super) const MAC1: usize = INITIATION_LEN - 32;

/// Where the second one begins, which is zero without a cookie.
pub(super) const MAC2: usize = INITIATION_LEN - 16;

/// Simulated peers of a daemon.
pub(super) struct Initiators(Vec<Initiator>);

impl Initiators {
    /// Initiators with these keys towards the daemon with the public key `responder`.
    pub(super) fn new(responder: PublicKey, keys: &[KeyPair]) -> Result<Self> {
        let refused = || Error::Refused("these keys allow no handshake; take ones from `wg genkey`".into());
        // Shared because each takes 200 KB; initiators do not use it.
        let filter = Arc::default();
        let make = |pair| Initiator::new(&filter, responder, pair).ok_or_else(refused);
        let mut all: Vec<_> = keys.iter().map(make).collect::<Result<_>>()?;
        // A public key of low order fails for every initiator.
        match all.first_mut().map(Initiator::begin) {
            Some(None) => Err(refused()),
            _ => Ok(Self(all)),
        }
    }

    /// Makes `rounds` initiations of each, in each round one of all, on all processors.
    pub(super) fn begin(&mut self, rounds: u32) -> Vec<Initiation> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let share = self.0.len().div_ceil(processors).max(1);
        let round = |_| {
            thread::scope(|scope| {
                let parts = self
                    .0
                    .chunks_mut(share)
                    .map(|part| scope.spawn(|| part.iter_mut().filter_map(Initiator::begin).collect::<Vec<_>>()));
                // All of them are started before the first is waited for.
                let parts: Vec<_> = parts.collect();
                let made = parts.into_iter().map(|part| part.join());
                made.flat_map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect::<Vec<_>>()
            })
        };
        (0..rounds).flat_map(round).collect()
    }

    /// Makes the next initiation of one initiator.
    pub(super) fn begin_one(&mut self, number: usize) -> Option<Initiation> {
        self.0.get_mut(number)?.begin()
    }

    /// Gives an answer to the initiator it is for. False when it does not prove the daemon's key, or does not
    /// belong to this initiator's latest initiation.
    pub(super) fn handle_answer(&mut self, number: usize, answer: &[u8]) -> bool {
        self.0.get_mut(number).is_some_and(|initiator| initiator.handle_answer(answer))
    }
}

struct Initiator {
    device: Device,
    responder: PeerId,
    traffic: Arc<TrafficTimestamps>,
}

impl Initiator {
    /// None if one of the keys is no key, or they are one device's.
    fn new(filter: &Arc<HandshakeFilter>, responder: PublicKey, keys: &KeyPair) -> Option<Self> {
        let mut device = Device::with_filter(Arc::clone(filter));
        let secret = PrivateKey::new(keys.private.as_bytes())?;
        device.set_private_key(now(), &mut Kernel, Some(secret), &mut Outbox::default());
        let traffic = Arc::new(TrafficTimestamps::new());
        let responder = device.add_peer(ProtocolKey(responder.0), Arc::clone(&traffic)).ok()?;
        Some(Self { device, responder, traffic })
    }

    /// Makes a new initiation; the one before is forgotten.
    fn begin(&mut self) -> Option<Initiation> {
        let (now, outbox) = (now(), &mut Outbox::default());
        // An interface that was down may send at once and need not wait for REKEY_TIMEOUT. Its timestamps go
        // on, and it keeps its cookie.
        self.device.down(outbox);
        self.device.up(now, &mut Kernel, outbox);
        let _ = self.traffic.request_handshake();
        self.device.woken(now, &mut Kernel, self.responder, outbox);
        outbox.0.take()?.try_into().ok()
    }

    fn handle_answer(&mut self, answer: &[u8]) -> bool {
        let outbox = &mut Outbox::default();
        // An initiator is under no load, so it does not matter where the answer came from.
        let source = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
        self.device.handle(now(), &mut Kernel, source, 0, answer, outbox).is_ok()
    }
}

/// Takes the last message; there is nothing else behind a device here.
#[derive(Default)]
struct Outbox(Option<Vec<u8>>);

impl Effects for Outbox {
    fn send(&mut self, _: PeerId, message: &[u8]) {
        self.0 = Some(message.into());
    }

    fn has_endpoint(&self, _: PeerId) -> bool {
        true
    }

    fn reply(&mut self, message: &[u8]) {
        self.0 = Some(message.into());
    }

    fn roam(&mut self, _: PeerId) {}
    fn session_added(&mut self, _: &Arc<Session>) {}
    fn session_removed(&mut self, _: &Arc<Session>) {}
    fn set_sending_session(&mut self, _: PeerId, _: Option<&Arc<Session>>) {}
    fn send_keepalive(&mut self, _: PeerId) {}
    fn send_staged(&mut self, _: PeerId) {}
    fn drop_staged(&mut self, _: PeerId) {}
    fn forget_source_addr(&mut self, _: PeerId) {}
    fn handshake_done(&mut self, _: PeerId, _: std::time::Duration) {}
}

/// The kernel's randomness.
pub(super) struct Kernel;

impl Entropy for Kernel {
    fn fill(&mut self, bytes: &mut [u8]) {
        peers::random(bytes);
    }
}

pub(super) fn now() -> Now {
    let boot = clock_gettime(ClockId::Boottime);
    Now {
        // The kernel keeps tv_nsec below a second and a boot clock never negative.
        boot: Boottime(boot.tv_sec as u64 * 1_000_000_000 + boot.tv_nsec as u64),
        wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, Flood, Pool};
    use linerate_protocol::constants::UNSEEN_SOURCES_MAX;
    use std::net::{Ipv4Addr, SocketAddr};

    const SOMEWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    /// A daemon that knows some peers; its clock stands still.
    struct Daemon(Device, Now);

    impl Daemon {
        fn new(own: &KeyPair, peers: &[KeyPair]) -> Self {
            let (mut device, outbox) = (Device::new(), &mut Outbox::default());
            device.set_private_key(now(), &mut Kernel, PrivateKey::new(own.private.as_bytes()), outbox);
            for peer in peers {
                device.add_peer(ProtocolKey(peer.public.0), Arc::default()).unwrap();
            }
            device.up(now(), &mut Kernel, outbox);
            Self(device, now())
        }

        /// Its answer `later` than this moment, or none; with `backlog` more datagrams behind this one.
        fn answer(&mut self, message: &[u8], later: std::time::Duration, backlog: usize) -> Option<Vec<u8>> {
            self.receive(SOMEWHERE, message, later, backlog)
        }

        /// Has received initiations from more unseen addresses under load than it admits without a cookie: some share
        /// a bit of its bloom filter, and only the first of them counts.
        fn under_load(mut self, own: &KeyPair) -> Self {
            let forged = forgery(own, Content::Forged);
            for number in 0..2 * UNSEEN_SOURCES_MAX as u32 {
                let source = SocketAddr::from((Ipv4Addr::from_bits(0xc612_0000 + number), 7));
                self.receive(source, &forged, std::time::Duration::ZERO, 10_000);
            }
            self
        }

        fn receive(
            &mut self,
            source: SocketAddr,
            message: &[u8],
            later: std::time::Duration,
            backlog: usize,
        ) -> Option<Vec<u8>> {
            let mut outbox = Outbox::default();
            let now = Now { boot: self.1.boot.after(later), ..self.1 };
            let _ = self.0.handle(now, &mut Kernel, source, backlog, message, &mut outbox);
            outbox.0
        }
    }

    /// The first datagram of such a flood.
    fn forgery(own: &KeyPair, content: Content) -> Vec<u8> {
        let responder = own.public;
        let flood = Flood { to: SOMEWHERE, responder, content, captured: &[], peers: &[], rate: None, seconds: 0.0 };
        Pool::fill(&flood).unwrap().message(0).unwrap().1.to_vec()
    }

    fn keys<const N: usize>() -> [KeyPair; N] {
        peers::fresh(N).try_into().ok().unwrap()
    }

    #[test]
    fn every_initiation_made_ahead_is_accepted_in_its_order() {
        let ([own], known) = (keys(), keys::<3>());
        let mut daemon = Daemon::new(&own, &known);
        let made = Initiators::new(own.public, &known).unwrap().begin(4);
        assert_eq!(made.len(), 12);
        for (number, message) in (0u32..).zip(&made) {
            // A peer's initiations must be 20 ms apart.
            let later = std::time::Duration::from_millis(20) * (number / 3);
            let answer = daemon.answer(message, later, 0).unwrap();
            assert_eq!(linerate_protocol::classify(&answer), Ok(linerate_protocol::MessageKind::Response));
        }
        assert!(daemon.answer(&made[11], std::time::Duration::from_secs(1), 0).is_none(), "good once");
    }

    #[test]
    fn a_response_completes_the_handshake_it_is_for_and_no_other() {
        let ([own], known) = (keys(), keys::<2>());
        let mut daemon = Daemon::new(&own, &known);
        let mut initiators = Initiators::new(own.public, &known).unwrap();
        let made = initiators.begin(1);
        let answer = daemon.answer(&made[0], std::time::Duration::ZERO, 0).unwrap();
        assert!(!initiators.handle_answer(1, &answer));
        assert!(!initiators.handle_answer(2, &answer));
        let mut forged = answer.clone();
        forged[50] ^= 1;
        assert!(!initiators.handle_answer(0, &forged));
        assert!(initiators.handle_answer(0, &answer));
    }

    #[test]
    fn a_cookie_gets_an_initiator_past_a_daemon_under_load() {
        let ([own], known) = (keys(), keys::<1>());
        let mut daemon = Daemon::new(&own, &known).under_load(&own);
        let mut initiators = Initiators::new(own.public, &known).unwrap();
        let first = initiators.begin_one(0).unwrap();
        let cookie = daemon.answer(&first, std::time::Duration::ZERO, 10_000).unwrap();
        assert_eq!(linerate_protocol::classify(&cookie), Ok(linerate_protocol::MessageKind::Cookie));
        assert!(initiators.handle_answer(0, &cookie));
        let second = initiators.begin_one(0).unwrap();
        let response = daemon.answer(&second, std::time::Duration::ZERO, 10_000).unwrap();
        assert!(initiators.handle_answer(0, &response));
    }

    #[test]
    fn a_forgery_gets_a_cookie_at_most_and_one_with_a_wrong_mac1_nothing() {
        let [own] = keys();
        let mut daemon = Daemon::new(&own, &[]).under_load(&own);
        let (forged, wrong) = (forgery(&own, Content::Forged), forgery(&own, Content::WrongMac1));
        let cookie = daemon.answer(&forged, std::time::Duration::ZERO, 10_000).unwrap();
        assert_eq!(linerate_protocol::classify(&cookie), Ok(linerate_protocol::MessageKind::Cookie));
        assert!(daemon.answer(&wrong, std::time::Duration::ZERO, 10_000).is_none());
    }

    #[test]
    fn a_public_key_of_low_order_is_refused() {
        assert!(Initiators::new(PublicKey([0; 32]), &keys::<1>()).is_err());
    }
}
