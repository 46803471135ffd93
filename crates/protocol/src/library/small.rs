//! By small crates in Rust alone. They wipe what they keep of keys, but not what they leave of them on the stack, which
//! callers do ([`crate::scrub`]).

use alloc::boxed::Box;

use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, Tag};
use linerate_aead::TAG_LEN;
use x25519_dalek::StaticSecret;

use crate::PublicKey;
use crate::noise::Secret;

/// A private key of X25519, on the heap, so that a move copies no key.
pub(crate) struct AgreementKey(Box<StaticSecret>);

impl AgreementKey {
    /// The library clamps the bytes where it uses them.
    pub(crate) fn new(bytes: &[u8; 32]) -> Self {
        Self(Box::new(StaticSecret::from(*bytes)))
    }

    pub(crate) fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::PublicKey::from(&*self.0).to_bytes())
    }

    /// What both ends compute. `None` may stand for a result of zero.
    pub(crate) fn agree(&self, public: &[u8; 32]) -> Option<Secret> {
        let shared = self.0.diffie_hellman(&x25519_dalek::PublicKey::from(*public));
        Some(Secret::new(*shared.as_bytes()))
    }
}

/// Seals `text` in place, and gives the tag. Every field has its own key, so the counter is always zero (paper section
/// 5.4.2).
pub(crate) fn seal(key: &Secret, associated: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
    cipher(key)
        .encrypt_in_place_detached(&Nonce::default(), associated, text)
        .expect("a handshake field is far below the cipher's limit")
        .into()
}

/// Opens `sealed`, which ends with its tag, in place; gives the text.
pub(crate) fn open<'a>(key: &Secret, associated: &[u8], sealed: &'a mut [u8]) -> Option<&'a [u8]> {
    let (text, tag) = sealed.split_at_mut(sealed.len().checked_sub(TAG_LEN)?);
    cipher(key).decrypt_in_place_detached(&Nonce::default(), associated, text, Tag::from_slice(tag)).ok()?;
    Some(text)
}

fn cipher(key: &Secret) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new((&**key).into())
}
