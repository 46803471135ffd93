//! What handshake messages are refused by before they reach the [`Device`](crate::Device): data-path threads ask the
//! gate, so that most of a flood costs them what it costs to receive it, and the slow path nothing.
//!
//! It refuses nothing that the device would accept, but for messages under load ([`Crowd::refuses`]), and keeps
//! nothing of what it sees. All of it is atomics: whoever asks while the device changes may be told of a mixture,
//! which is worth one message.

use alloc::boxed::Box;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use crate::load::Crowd;
use crate::messages::{cookie_reply, field, response};
use crate::{Boottime, Discard, Kind, cookie};

/// Places for the indices of a device, which has up to four a peer: of 1000 peers they leave one in 17 others in a place
/// that is taken. With 100,000 peers nearly all are, and the device has to tell.
const PLACES: usize = 1 << 16;

/// The gate of one device.
pub struct Gate {
    /// What the first MAC of whoever talks to the device is made with; not while it has no key.
    mac1_key: [AtomicU64; 4],
    is_keyed: AtomicBool,
    /// How many indices of the device there are in each place. They are random, so their low bits say where.
    indices: Box<[AtomicU16]>,
    /// Who was met under load.
    pub(crate) crowd: Crowd,
}

impl Gate {
    /// Decides about a handshake message of that `kind` from `source`, as [`classify`](crate::classify) has told it.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn check(&self, now: Boottime, source: IpAddr, kind: Kind, message: &[u8]) -> Result<(), Discard> {
        match kind {
            Kind::Data => Ok(()),
            Kind::Cookie => self.check_index(u32::from_le_bytes(field(message, cookie_reply::RECEIVER))),
            Kind::Response => {
                self.check_index(u32::from_le_bytes(field(message, response::RECEIVER)))?;
                self.check_mac1(message)
            }
            // One bit costs less than a hash.
            Kind::Initiation if self.crowd.refuses(now, source, message) => Err(Discard::UnderLoad),
            Kind::Initiation => self.check_mac1(message),
        }
    }

    fn check_mac1(&self, message: &[u8]) -> Result<(), Discard> {
        if !self.is_keyed.load(Ordering::Relaxed) {
            return Err(Discard::NoPrivateKey);
        }
        let mut key = [0; 32];
        for (bytes, word) in key.chunks_exact_mut(8).zip(&self.mac1_key) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        cookie::mac1_is_right(&key, message).then_some(()).ok_or(Discard::Mac1)
    }

    fn check_index(&self, index: u32) -> Result<(), Discard> {
        (self.place(index).load(Ordering::Relaxed) > 0).then_some(()).ok_or(Discard::UnknownIndex)
    }

    /// The device has another key, or none.
    pub(crate) fn set_mac1_key(&self, key: Option<&[u8; 32]>) {
        for (word, bytes) in self.mac1_key.iter().zip(key.unwrap_or(&[0; 32]).chunks_exact(8)) {
            word.store(u64::from_ne_bytes(field(bytes, 0)), Ordering::Relaxed);
        }
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

impl Default for Gate {
    fn default() -> Self {
        Self {
            mac1_key: Default::default(),
            is_keyed: AtomicBool::new(false),
            indices: (0..PLACES).map(|_| AtomicU16::new(0)).collect(),
            crowd: Crowd::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{COOKIE_LEN, INITIATION_LEN, RESPONSE_LEN};
    use core::net::Ipv4Addr;

    const NOW: Boottime = Boottime::from_secs(1);
    const SOMEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn check(gate: &Gate, kind: Kind, message: &[u8]) -> Result<(), Discard> {
        gate.check(NOW, SOMEWHERE, kind, message)
    }

    #[test]
    fn whoever_does_not_know_the_key_does_not_pass() {
        let gate = Gate::default();
        let mut message = [7; INITIATION_LEN];
        cookie::Jar::default().sign(NOW, &[3; 32], &mut message);
        assert_eq!(check(&gate, Kind::Initiation, &message), Err(Discard::NoPrivateKey));
        gate.set_mac1_key(Some(&[3; 32]));
        assert_eq!(check(&gate, Kind::Initiation, &message), Ok(()));
        gate.set_mac1_key(Some(&[4; 32]));
        assert_eq!(check(&gate, Kind::Initiation, &message), Err(Discard::Mac1));
        gate.set_mac1_key(None);
        assert_eq!(check(&gate, Kind::Initiation, &message), Err(Discard::NoPrivateKey));
    }

    #[test]
    fn an_answer_to_nothing_does_not_pass() {
        let gate = Gate::default();
        gate.set_mac1_key(Some(&[3; 32]));
        let mut answer = [0; RESPONSE_LEN];
        answer[response::RECEIVER..][..4].copy_from_slice(&0x0102_0304_u32.to_le_bytes());
        cookie::Jar::default().sign(NOW, &[3; 32], &mut answer);
        let mut reply = [0; COOKIE_LEN];
        reply[cookie_reply::RECEIVER..][..4].copy_from_slice(&0x0102_0304_u32.to_le_bytes());
        let both = || [check(&gate, Kind::Response, &answer), check(&gate, Kind::Cookie, &reply)];

        assert_eq!(both(), [Err(Discard::UnknownIndex); 2]);
        gate.add_index(0x0102_0304);
        // Another in the same place, which goes again.
        gate.add_index(0x0506_0304);
        gate.remove_index(0x0506_0304);
        assert_eq!(both(), [Ok(()); 2]);
        gate.remove_index(0x0102_0304);
        assert_eq!(both(), [Err(Discard::UnknownIndex); 2]);
    }
}
