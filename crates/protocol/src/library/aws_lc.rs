//! By AWS-LC, which wipes its copies of keys.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use linerate_aead::TAG_LEN;

use crate::PublicKey;
use crate::noise::Secret;

/// A private key of X25519.
pub(crate) struct AgreementKey(PrivateKey);

impl AgreementKey {
    /// The library clamps the bytes itself.
    pub(crate) fn new(bytes: &[u8; 32]) -> Self {
        Self(PrivateKey::from_private_key(&X25519, bytes).expect("every 32 bytes are an X25519 private key"))
    }

    pub(crate) fn public(&self) -> PublicKey {
        let public = self.0.compute_public_key().expect("every X25519 private key has a public key");
        PublicKey(public.as_ref().try_into().expect("an X25519 public key has 32 bytes"))
    }

    /// What both ends compute. `None` may stand for a result of zero.
    pub(crate) fn agree(&self, public: &[u8; 32]) -> Option<Secret> {
        let shared = agree(&self.0, UnparsedPublicKey::new(&X25519, public), (), |shared| {
            let mut copy = Secret::default();
            copy.copy_from_slice(shared);
            Ok(copy)
        });
        shared.ok()
    }
}

/// Seals `text` in place, and gives the tag. Every field has its own key, so the counter is always zero (paper section
/// 5.4.2).
pub(crate) fn seal(key: &Secret, associated: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
    let tag = cipher(key)
        .seal_in_place_separate_tag(zero_nonce(), Aad::from(associated), text)
        .expect("a handshake field is far below the cipher's limit");
    tag.as_ref().try_into().expect("the tag has 16 bytes")
}

/// Opens `sealed`, which ends with its tag, in place; gives the text.
pub(crate) fn open<'a>(key: &Secret, associated: &[u8], sealed: &'a mut [u8]) -> Option<&'a [u8]> {
    cipher(key).open_in_place(zero_nonce(), Aad::from(associated), sealed).ok().map(|text| &*text)
}

fn cipher(key: &Secret) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &**key).expect("the key has the cipher's length"))
}

fn zero_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}
