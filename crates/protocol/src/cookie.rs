//! MACs and cookies, which a device checks before it computes anything expensive (paper sections 5.3,
//! 5.4.4 and 5.4.7).
//!
//! The first MAC proves that the sender knows our public key; the second, keyed by a cookie, proves
//! that it can receive at its address. [`CookieChecker`] issues cookies and checks MACs made with
//! them, [`CookieMaker`] makes the MACs of messages to one peer, with the cookie received from it.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};

use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, Update};
use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::atomic_key::AtomicKey;
use crate::constants::{COOKIE_SECRET_TIME, COOKIE_USABLE_TIME};
use crate::messages::{self, CookieReply, cookie_reply, field};
use crate::{Boottime, DropReason, Entropy, draw};

/// Bytes of each MAC and of a cookie.
pub(crate) const MAC_LEN: usize = 16;

type Mac = [u8; MAC_LEN];

/// Whether the first MAC of a handshake message is valid, in constant time.
pub(crate) fn mac1_is_valid(mac1_key: &[u8; 32], message: &[u8]) -> bool {
    let (covered, macs) = message.split_at(message.len() - 2 * MAC_LEN);
    mac(mac1_key, covered).ct_eq(&macs[..MAC_LEN]).into()
}

/// Whether a handshake message has a second MAC; without a cookie it is zero (paper section 5.4.4).
pub(crate) fn has_mac2(message: &[u8]) -> bool {
    message[message.len() - MAC_LEN..] != [0; MAC_LEN]
}

/// Issues cookies and checks them. Data-path threads check while the slow path replaces the secret.
#[derive(Default)]
pub(crate) struct CookieChecker {
    /// The key of cookies.
    secret: AtomicKey,
    /// When it was drawn; zero: never.
    created_at: AtomicU64,
}

impl CookieChecker {
    /// Whether the second MAC of a message was made with the current cookie of `source`.
    pub(crate) fn mac2_is_valid(&self, now: Boottime, source: SocketAddr, message: &[u8]) -> bool {
        // Spares most messages of a flood the hashes.
        if !has_mac2(message) || !self.is_fresh(now) {
            return false;
        }
        let (covered, mac2) = message.split_at(message.len() - MAC_LEN);
        mac(&self.cookie(source), covered).ct_eq(mac2).into()
    }

    /// Composes the cookie reply to `message` from `source`.
    pub(crate) fn reply(
        &self,
        now: Boottime,
        rng: &mut dyn Entropy,
        cookie_key: &[u8; 32],
        source: SocketAddr,
        message: &[u8],
    ) -> CookieReply {
        if !self.is_fresh(now) {
            self.draw_secret(now, rng);
        }
        let cookie = self.cookie(source);
        let nonce: [u8; 24] = draw(rng);
        let mut reply = messages::blank_cookie_reply(messages::sender(message));
        reply[cookie_reply::NONCE..][..24].copy_from_slice(&nonce);
        let (body, tag) = reply[cookie_reply::SEALED].split_at_mut(MAC_LEN);
        body.copy_from_slice(&cookie);
        let mac1 = &message[message.len() - 2 * MAC_LEN..][..MAC_LEN];
        let made = XChaCha20Poly1305::new(cookie_key.into())
            .encrypt_in_place_detached(XNonce::from_slice(&nonce), mac1, body)
            .expect("a cookie is far below the cipher's limit");
        tag.copy_from_slice(&made);
        reply
    }

    fn is_fresh(&self, now: Boottime) -> bool {
        let created_at = self.created_at.load(Ordering::Relaxed);
        created_at != 0 && now.since(Boottime(created_at)) < COOKIE_SECRET_TIME
    }

    fn draw_secret(&self, now: Boottime, rng: &mut dyn Entropy) {
        let drawn: Zeroizing<[u8; 32]> = Zeroizing::new(draw(rng));
        self.secret.store(&drawn);
        self.created_at.store(now.0.max(1), Ordering::Relaxed);
    }

    /// The cookie of an address *and port*, so that hosts behind one NAT address have different ones.
    fn cookie(&self, source: SocketAddr) -> Mac {
        let mut covered = [0; 18];
        let len = match source.ip() {
            IpAddr::V4(ip) => {
                covered[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                covered[..16].copy_from_slice(&ip.octets());
                16
            }
        };
        covered[len..][..2].copy_from_slice(&source.port().to_be_bytes());
        mac(&*self.secret.load(), &covered[..len + 2])
    }
}

/// One peer's cookie, and the MAC that its next cookie reply has to be bound to.
#[derive(Default)]
pub(crate) struct CookieMaker {
    /// First MAC of the last message sent, until a cookie reply has used it.
    sent: Option<Mac>,
    cookie: Option<(Mac, Boottime)>,
}

impl CookieMaker {
    /// Writes both MACs of an outgoing handshake message and remembers the first.
    pub(crate) fn sign(&mut self, now: Boottime, mac1_key: &[u8; 32], message: &mut [u8]) {
        let mac1_at = message.len() - 2 * MAC_LEN;
        let mac2_at = message.len() - MAC_LEN;
        let mac1 = mac(mac1_key, &message[..mac1_at]);
        message[mac1_at..mac2_at].copy_from_slice(&mac1);
        self.sent = Some(mac1);
        // Without a usable cookie the second MAC stays zero.
        if let Some((cookie, received)) = self.cookie
            && now.since(received) < COOKIE_USABLE_TIME
        {
            let mac2 = mac(&cookie, &message[..mac2_at]);
            message[mac2_at..].copy_from_slice(&mac2);
        }
    }

    /// Takes the cookie from a reply. Each message sent accepts one reply.
    pub(crate) fn accept(
        &mut self,
        now: Boottime,
        cookie_key: &[u8; 32],
        reply: &CookieReply,
    ) -> Result<(), DropReason> {
        let sent = self.sent.ok_or(DropReason::CookieUnexpected)?;
        let nonce: [u8; 24] = field(reply, cookie_reply::NONCE);
        let (body, tag) = reply[cookie_reply::SEALED].split_at(MAC_LEN);
        let mut cookie = [0; MAC_LEN];
        cookie.copy_from_slice(body);
        XChaCha20Poly1305::new(cookie_key.into())
            .decrypt_in_place_detached(XNonce::from_slice(&nonce), &sent, &mut cookie, Tag::from_slice(tag))
            .map_err(|_| DropReason::Undecryptable)?;
        self.cookie = Some((cookie, now));
        self.sent = None;
        Ok(())
    }
}

/// Keyed BLAKE2s with 16 bytes of output.
pub(crate) fn mac(key: &[u8], covered: &[u8]) -> Mac {
    let mut mac = Blake2sMac::<U16>::new_from_slice(key).expect("a key of 16 or 32 bytes fits BLAKE2s");
    mac.update(covered);
    mac.finalize_fixed().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::INITIATION_LEN;
    use crate::test_rng::TestRng;

    const KEY: [u8; 32] = [3; 32];

    fn source(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn mac_equals_keyed_blake2s_in_python() {
        // Python: hashlib.blake2s(bytes(range(40)), key=bytes(range(n)), digest_size=16)
        let bytes: [u8; 40] = core::array::from_fn(|i| i as u8);
        let long = [0x53, 0x70, 0x61, 0x10, 0xe9, 0x19, 0xf8, 0x4d, 0xe7, 0xf8, 0xd6, 0xc7, 0xf0, 0xe7, 0xb8, 0x31];
        let short = [0x46, 0x6b, 0x8e, 0x49, 0x17, 0x48, 0x68, 0xcb, 0x7b, 0x8b, 0x16, 0x0c, 0xd3, 0xed, 0x32, 0x5e];
        assert_eq!(mac(&bytes[..32], &bytes), long);
        assert_eq!(mac(&bytes[..16], &bytes), short);
    }

    #[test]
    fn an_accepted_cookie_makes_a_valid_second_mac_for_one_address_and_port() {
        let (checker, mut maker, rng) = (CookieChecker::default(), CookieMaker::default(), &mut TestRng::default());
        let now = Boottime::from_secs(1);
        let from = source("192.0.2.1:7");
        let mut message = [9; INITIATION_LEN];
        maker.sign(now, &KEY, &mut message);
        assert!(mac1_is_valid(&KEY, &message) && !mac1_is_valid(&[4; 32], &message));
        assert_eq!(message[132..], [9; 16], "no cookie, no second MAC");
        assert!(!checker.mac2_is_valid(now, from, &message));

        let reply = checker.reply(now, rng, &KEY, from, &message);
        assert_eq!(maker.accept(now, &[4; 32], &reply), Err(DropReason::Undecryptable));
        assert_eq!(maker.accept(now, &KEY, &reply), Ok(()));
        assert_eq!(maker.accept(now, &KEY, &reply), Err(DropReason::CookieUnexpected));

        maker.sign(now, &KEY, &mut message);
        assert!(mac1_is_valid(&KEY, &message) && checker.mac2_is_valid(now, from, &message));
        for other in ["192.0.2.1:8", "192.0.2.2:7", "[::ffff:192.0.2.1]:7"] {
            assert!(!checker.mac2_is_valid(now, source(other), &message));
        }
        let late = now.after(COOKIE_SECRET_TIME);
        assert!(!checker.mac2_is_valid(late, from, &message));
    }
}
