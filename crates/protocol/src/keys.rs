//! The configured keys: public, private, preshared.
//!
//! Secrets are wiped on drop and have no `Debug`. They are on the heap, so that a move copies a pointer and not the
//! key, which nothing would wipe. `control` converts them from and to text.

use alloc::boxed::Box;
use core::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::library::AgreementKey;
use crate::scrub::scrubbed;

/// A Curve25519 public key, which identifies a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Debug for PublicKey {
    /// Writes the key in base64, its usual form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for group in self.0.chunks(3) {
            let mut bits = [0; 4];
            bits[1..=group.len()].copy_from_slice(group);
            let bits = u32::from_be_bytes(bits);
            for index in 0..4 {
                let letter = ALPHABET[(bits >> (18 - 6 * index) & 63) as usize];
                write!(f, "{}", if index <= group.len() { letter as char } else { '=' })?;
            }
        }
        Ok(())
    }
}

/// A Curve25519 private key, clamped.
#[derive(Clone)]
pub struct PrivateKey(Box<[u8; 32]>);

impl PrivateKey {
    /// Takes 32 bytes and clamps them (paper section 5.4). All zero means "no key": `None`.
    /// The caller wipes its own copy.
    pub fn new(bytes: &[u8; 32]) -> Option<Self> {
        if bool::from(bytes.ct_eq(&[0; 32])) {
            return None;
        }
        let mut secret = Self(on_heap(bytes));
        secret.0[0] &= 248;
        secret.0[31] = secret.0[31] & 127 | 64;
        Some(secret)
    }

    /// The clamped bytes, for showing the key to its owner.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The public key of this secret.
    pub fn public_key(&self) -> PublicKey {
        scrubbed(|| self.agreement().public())
    }

    /// The key in the form that the library takes.
    pub(crate) fn agreement(&self) -> AgreementKey {
        AgreementKey::new(&self.0)
    }
}

impl PartialEq for PrivateKey {
    /// In constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&*other.0).into()
    }
}

impl Eq for PrivateKey {}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for PrivateKey {}

/// A symmetric key mixed into a peer's handshakes; all zero means none (paper section 5.2).
#[derive(Clone, Default)]
pub struct PresharedKey(Option<Box<[u8; 32]>>);

impl PresharedKey {
    /// Takes 32 bytes; all zero means none. The caller wipes its own copy.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(Some(on_heap(bytes)))
    }

    /// The bytes, for the handshake and for showing the key to its owner.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_deref().unwrap_or(&[0; 32])
    }

    /// Whether a key is set.
    pub fn is_set(&self) -> bool {
        !bool::from(self.as_bytes().ct_eq(&[0; 32]))
    }
}

impl Drop for PresharedKey {
    fn drop(&mut self) {
        if let Some(key) = &mut self.0 {
            key.zeroize();
        }
    }
}

impl ZeroizeOnDrop for PresharedKey {}

/// A copy made directly on the heap. Keys are boxed because a move leaves the bytes where they were, and a destructor
/// wipes the last place alone; the move of a box copies a pointer (`tests/netns/wiped-keys.sh`).
pub(crate) fn on_heap(bytes: &[u8; 32]) -> Box<[u8; 32]> {
    let mut copy = Box::new([0; 32]);
    copy.copy_from_slice(bytes);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_public_key_prints_as_base64() {
        assert_eq!(format!("{:?}", PublicKey([0; 32])), "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        assert_eq!(format!("{:?}", PublicKey([0xff; 32])), "//////////////////////////////////////////8=");
        let counting = PublicKey(core::array::from_fn(|i| i as u8));
        assert_eq!(format!("{counting:?}"), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    }

    #[test]
    fn the_public_key_equals_the_vector_of_rfc_7748() {
        // RFC 7748 section 6.1, Alice.
        let secret = [
            0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1, 0x72, 0x51, 0xb2, 0x66, 0x45, 0xdf, 0x4c,
            0x2f, 0x87, 0xeb, 0xc0, 0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a,
        ];
        let public = [
            0x85, 0x20, 0xf0, 0x09, 0x89, 0x30, 0xa7, 0x54, 0x74, 0x8b, 0x7d, 0xdc, 0xb4, 0x3e, 0xf7, 0x5a, 0x0d, 0xbf,
            0x3a, 0x0d, 0x26, 0x38, 0x1a, 0xf4, 0xeb, 0xa4, 0xa9, 0x8e, 0xaa, 0x9b, 0x4e, 0x6a,
        ];
        assert_eq!(PrivateKey::new(&secret).unwrap().public_key(), PublicKey(public));
    }

    #[test]
    fn a_private_key_is_clamped_and_zero_means_none() {
        assert!(PrivateKey::new(&[0; 32]).is_none());
        let clamped = PrivateKey::new(&[0xff; 32]).unwrap();
        assert_eq!((clamped.as_bytes()[0], clamped.as_bytes()[31]), (0xf8, 0x7f));
        assert!(!PresharedKey::default().is_set());
        assert!(PresharedKey::new(&[1; 32]).is_set());
    }
}
