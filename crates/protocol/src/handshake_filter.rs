//! Refuses handshake messages before they reach the [`Device`](crate::Device). Data-path threads run it, so that most
//! of a flood costs them little more than receiving it, and costs the slow path nothing.
//!
//! Except under load ([`SourceBloom`]) it refuses only what the device would refuse, and it keeps nothing of what it
//! sees. Everything is atomic: a thread that checks while the device changes may see a mixture of old and new state; at
//! worst, one message is misclassified.

use alloc::boxed::Box;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::atomic_key::AtomicKey;
use crate::cookie::CookieChecker;
use crate::messages::{cookie_reply, field, response};
use crate::source_bloom::SourceBloom;
use crate::{Boottime, DropReason, MessageKind, cookie};

/// Slots of the table of indices, of which a device has up to four per peer. At 1,000 peers one in 17 unknown indices
/// gets past the filter, at 100,000 nearly all do, and the device refuses them.
const INDEX_SLOTS: usize = 1 << 16;

/// The filter of one device.
pub struct HandshakeFilter {
    /// Key of the first MAC of messages to the device; valid while `has_key`.
    mac1_key: AtomicKey,
    has_key: AtomicBool,
    /// How many of the device's indices fall into each slot. They are random, so their low bits choose the slot.
    indices: Box<[AtomicU16]>,
    /// The addresses seen under load.
    pub(crate) sources: SourceBloom,
    /// Messages with a valid cookie are admitted although their address was seen.
    pub(crate) cookies: CookieChecker,
}

impl HandshakeFilter {
    /// Decides about a handshake message from `source`; `kind` is what [`classify`](crate::classify) returned for it.
    ///
    /// # Errors
    /// The reason to drop it.
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
                // Cheapest first: a bit, the two hashes of a cookie only if a bit says so, the hash of the first MAC.
                if self.sources.refuses_rate_exceeded(now, source.ip()) {
                    return Err(DropReason::RateLimited);
                }
                let has_cookie = || self.cookies.mac2_is_valid(now, source, message);
                if self.sources.contains(now, source.ip()) && !has_cookie() && self.sources.refuses_repeat() {
                    return Err(DropReason::UnderLoad);
                }
                self.check_mac1(message)
            }
        }
    }

    fn check_mac1(&self, message: &[u8]) -> Result<(), DropReason> {
        if !self.has_key.load(Ordering::Relaxed) {
            return Err(DropReason::NoPrivateKey);
        }
        cookie::mac1_is_valid(&self.mac1_key.load(), message).then_some(()).ok_or(DropReason::Mac1)
    }

    fn check_index(&self, index: u32) -> Result<(), DropReason> {
        (self.slot(index).load(Ordering::Relaxed) > 0).then_some(()).ok_or(DropReason::UnknownIndex)
    }

    /// Called when the private key is set or removed.
    pub(crate) fn set_mac1_key(&self, key: Option<&[u8; 32]>) {
        self.mac1_key.store(key.unwrap_or(&[0; 32]));
        self.has_key.store(key.is_some(), Ordering::Relaxed);
    }

    /// Adds an index of the device, before any message that carries it is sent.
    pub(crate) fn add_index(&self, index: u32) {
        self.slot(index).fetch_add(1, Ordering::Relaxed);
    }

    /// Removes an index of the device.
    pub(crate) fn remove_index(&self, index: u32) {
        self.slot(index).fetch_sub(1, Ordering::Relaxed);
    }

    fn slot(&self, index: u32) -> &AtomicU16 {
        &self.indices[index as usize % INDEX_SLOTS]
    }
}

impl Default for HandshakeFilter {
    fn default() -> Self {
        Self {
            mac1_key: AtomicKey::default(),
            has_key: AtomicBool::new(false),
            indices: (0..INDEX_SLOTS).map(|_| AtomicU16::new(0)).collect(),
            sources: SourceBloom::default(),
            cookies: CookieChecker::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{COOKIE_LEN, INITIATION_LEN, RESPONSE_LEN};
    use core::net::{Ipv4Addr, SocketAddrV4};

    const NOW: Boottime = Boottime::from_secs(1);
    const SOMEWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7));

    fn check(filter: &HandshakeFilter, kind: MessageKind, message: &[u8]) -> Result<(), DropReason> {
        filter.check(NOW, SOMEWHERE, kind, message)
    }

    #[test]
    fn messages_made_without_our_public_key_are_refused() {
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
    fn unsolicited_responses_and_cookie_replies_are_refused() {
        let filter = HandshakeFilter::default();
        filter.set_mac1_key(Some(&[3; 32]));
        let mut message = [0; RESPONSE_LEN];
        message[response::RECEIVER..][..4].copy_from_slice(&0x0102_0304_u32.to_le_bytes());
        cookie::CookieMaker::default().sign(NOW, &[3; 32], &mut message);
        let mut reply = [0; COOKIE_LEN];
        reply[cookie_reply::RECEIVER..][..4].copy_from_slice(&0x0102_0304_u32.to_le_bytes());
        let both = || [check(&filter, MessageKind::Response, &message), check(&filter, MessageKind::Cookie, &reply)];

        assert_eq!(both(), [Err(DropReason::UnknownIndex); 2]);
        filter.add_index(0x0102_0304);
        // A second index in the same slot comes and goes.
        filter.add_index(0x0506_0304);
        filter.remove_index(0x0506_0304);
        assert_eq!(both(), [Ok(()); 2]);
        filter.remove_index(0x0102_0304);
        assert_eq!(both(), [Err(DropReason::UnknownIndex); 2]);
    }
}
