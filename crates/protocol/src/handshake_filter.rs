//! What handshake messages are refused by before they reach the [`Device`](crate::Device): data-path threads ask the
//! filter, so that most of a flood costs them what it costs to receive it, and the slow path nothing.
//!
//! It refuses nothing that the device would accept, but for messages under load ([`SourceBloom`]), and keeps
//! nothing of what it sees. All of it is atomics: whoever asks while the device changes may be told of a mixture,
//! which is worth one message.

use alloc::boxed::Box;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::atomic_key::AtomicKey;
use crate::cookie::CookieChecker;
use crate::load_state::SourceBloom;
use crate::messages::{cookie_reply, field, response};
use crate::{Boottime, DropReason, MessageKind, cookie};

/// Places for the indices of a device, which has up to four a peer: of 1000 peers they leave one in 17 others in a place
/// that is taken. With 100,000 peers nearly all are, and the device has to tell.
const PLACES: usize = 1 << 16;

/// The filter of one device.
pub struct HandshakeFilter {
    /// What the first MAC of whoever talks to the device is made with; not while it has no key.
    mac1_key: AtomicKey,
    is_keyed: AtomicBool,
    /// How many indices of the device there are in each place. They are random, so their low bits say where.
    indices: Box<[AtomicU16]>,
    /// Who was met under load.
    pub(crate) sources: SourceBloom,
    /// Who was given a cookie is let through all the same.
    pub(crate) cookies: CookieChecker,
}

impl HandshakeFilter {
    /// Decides about a handshake message of that `kind` from `source`, as [`classify`](crate::classify) has told it.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn check(
        &self,
        now: Boottime,
        source: SocketAddr,
        kind: MessageKind,
        message: &[u8],
    ) -> Result<(), DropReason> {
        match kind {
            MessageKind::Data => Ok(()),
            MessageKind::Cookie => self.check_index(u32::from_le_bytes(field(message, cookie_reply::RECEIVER))),
            MessageKind::Response => {
                self.check_index(u32::from_le_bytes(field(message, response::RECEIVER)))?;
                self.check_mac1(message)
            }
            MessageKind::Initiation => {
                // A bit costs less than a hash, and one hash less than those of a cookie.
                if self.sources.refuses_overdrawn(now, source.ip()) {
                    return Err(DropReason::RateLimited);
                }
                let has_cookie = || self.cookies.mac2_is_valid(now, source, message);
                if self.sources.knows(now, source.ip()) && !has_cookie() && self.sources.refuses_repeated() {
                    return Err(DropReason::UnderLoad);
                }
                self.check_mac1(message)
            }
        }
    }

    fn check_mac1(&self, message: &[u8]) -> Result<(), DropReason> {
        if !self.is_keyed.load(Ordering::Relaxed) {
            return Err(DropReason::NoPrivateKey);
        }
        cookie::mac1_is_valid(&self.mac1_key.load(), message).then_some(()).ok_or(DropReason::Mac1)
    }

    fn check_index(&self, index: u32) -> Result<(), DropReason> {
        (self.place(index).load(Ordering::Relaxed) > 0).then_some(()).ok_or(DropReason::UnknownIndex)
    }

    /// The device has another key, or none.
    pub(crate) fn set_mac1_key(&self, key: Option<&[u8; 32]>) {
        self.mac1_key.store(key.unwrap_or(&[0; 32]));
        self.is_keyed.store(key.is_some(), Ordering::Relaxed);
    }

    /// The device has one more index. Called before any message that tells it.
    pub(crate) fn add_index(&self, index: u32) {
        self.place(index).fetch_add(1, Ordering::Relaxed);
    }

    /// The device has that index no more.
    pub(crate) fn remove_index(&self, index: u32) {
        self.place(index).fetch_sub(1, Ordering::Relaxed);
    }

    fn place(&self, index: u32) -> &AtomicU16 {
        &self.indices[index as usize % PLACES]
    }
}

impl Default for HandshakeFilter {
    fn default() -> Self {
        Self {
            mac1_key: AtomicKey::default(),
            is_keyed: AtomicBool::new(false),
            indices: (0..PLACES).map(|_| AtomicU16::new(0)).collect(),
            sources: SourceBloom::default(),
            cookies: CookieChecker::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entropy;
    use crate::constants::{COOKIE_LEN, COOKIE_SECRET_TIME, INITIATION_LEN, RESPONSE_LEN, UNDER_LOAD_BACKLOG};
    use crate::load_state::LoadState;
    use alloc::sync::Arc;
    use core::net::{Ipv4Addr, SocketAddrV4};

    const NOW: Boottime = Boottime::from_secs(1);
    const SOMEWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7));

    fn check(filter: &HandshakeFilter, kind: MessageKind, message: &[u8]) -> Result<(), DropReason> {
        filter.check(NOW, SOMEWHERE, kind, message)
    }

    #[test]
    fn whoever_does_not_know_the_key_does_not_pass() {
        let filter = HandshakeFilter::default();
        let mut message = [7; INITIATION_LEN];
        cookie::CookieMaker::default().sign(NOW, &[3; 32], &mut message);
        assert_eq!(check(&filter, MessageKind::Initiation, &message), Err(DropReason::NoPrivateKey));
        filter.set_mac1_key(Some(&[3; 32]));
        assert_eq!(check(&filter, MessageKind::Initiation, &message), Ok(()));
        filter.set_mac1_key(Some(&[4; 32]));
        assert_eq!(check(&filter, MessageKind::Initiation, &message), Err(DropReason::Mac1));
        filter.set_mac1_key(None);
        assert_eq!(check(&filter, MessageKind::Initiation, &message), Err(DropReason::NoPrivateKey));
    }

    #[test]
    fn an_answer_to_nothing_does_not_pass() {
        let filter = HandshakeFilter::default();
        filter.set_mac1_key(Some(&[3; 32]));
        let mut answer = [0; RESPONSE_LEN];
        answer[response::RECEIVER..][..4].copy_from_slice(&0x0102_0304_u32.to_le_bytes());
        cookie::CookieMaker::default().sign(NOW, &[3; 32], &mut answer);
        let mut reply = [0; COOKIE_LEN];
        reply[cookie_reply::RECEIVER..][..4].copy_from_slice(&0x0102_0304_u32.to_le_bytes());
        let both = || [check(&filter, MessageKind::Response, &answer), check(&filter, MessageKind::Cookie, &reply)];

        assert_eq!(both(), [Err(DropReason::UnknownIndex); 2]);
        filter.add_index(0x0102_0304);
        // Another in the same place, which goes again.
        filter.add_index(0x0506_0304);
        filter.remove_index(0x0506_0304);
        assert_eq!(both(), [Ok(()); 2]);
        filter.remove_index(0x0102_0304);
        assert_eq!(both(), [Err(DropReason::UnknownIndex); 2]);
    }

    #[test]
    fn under_load_whoever_was_met_passes_with_the_cookie_that_he_was_given_and_with_no_other() {
        struct Counter(u8);
        impl Entropy for Counter {
            fn fill(&mut self, bytes: &mut [u8]) {
                bytes.iter_mut().for_each(|byte| {
                    self.0 = self.0.wrapping_mul(77).wrapping_add(41);
                    *byte = self.0;
                });
            }
        }
        let rng = &mut Counter(1);
        let filter = Arc::new(HandshakeFilter::default());
        filter.set_mac1_key(Some(&[3; 32]));
        let mut load = LoadState::with_filter(Arc::clone(&filter));
        assert!(load.is_on(NOW, UNDER_LOAD_BACKLOG));
        load.meet(NOW, rng, SOMEWHERE.ip());
        let mut cookie_maker = cookie::CookieMaker::default();
        let mut message = [7; INITIATION_LEN];
        cookie_maker.sign(NOW, &[3; 32], &mut message);
        message[INITIATION_LEN - cookie::MAC_LEN..].fill(0);
        let reply = filter.cookies.reply(NOW, rng, &[5; 32], SOMEWHERE, &message);
        cookie_maker.accept(NOW, &[5; 32], &reply).unwrap();
        let mut signed = message;
        cookie_maker.sign(NOW, &[3; 32], &mut signed);
        let mut noise = signed;
        noise[INITIATION_LEN - 1] ^= 1;

        let passing =
            |message: &[u8]| (0..12_800).filter(|_| check(&filter, MessageKind::Initiation, message).is_ok()).count();
        assert!(passing(&message) < 10_000);
        assert_eq!(passing(&message), 100, "one in 128");
        assert_eq!(passing(&noise), 100);
        assert_eq!(passing(&signed), 12_800);
        let elsewhere = SocketAddr::new(SOMEWHERE.ip(), 8);
        let strange =
            (0..12_800).filter(|_| filter.check(NOW, elsewhere, MessageKind::Initiation, &signed).is_ok()).count();
        assert_eq!(strange, 100, "it is for one port");
        let late = NOW.after(COOKIE_SECRET_TIME);
        load.is_on(late, UNDER_LOAD_BACKLOG);
        load.meet(late, rng, SOMEWHERE.ip());
        let passing =
            (0..12_800).filter(|_| filter.check(late, SOMEWHERE, MessageKind::Initiation, &signed).is_ok()).count();
        assert!(passing < 10_000, "it is too old: {passing}");
        load.note_overdrawn(late, rng, SOMEWHERE.ip());
        let check = filter.check(late, SOMEWHERE, MessageKind::Initiation, &signed);
        assert_eq!(check, Err(DropReason::RateLimited), "whatever it has");
    }
}
