//! aws-lc-rs, one packet at a time: for CPUs without a vector kernel, and for batches too small to fill its
//! lanes.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::{AuthMask, KEY_LEN, Slot, TAG_LEN, nonce, text_and_tag};

/// A key in the library's form, which wipes itself.
pub(crate) struct LibraryKey(LessSafeKey);

impl LibraryKey {
    pub(crate) fn new(key: &[u8; KEY_LEN]) -> Self {
        let unbound = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has the algorithm's length");
        Self(LessSafeKey::new(unbound))
    }

    /// See [`crate::Key::seal`]; the slots have been checked.
    pub(crate) fn seal(&self, buf: &mut [u8], batch: &[Slot]) {
        for slot in batch {
            let (text, tag) = text_and_tag(buf, slot);
            let nonce = Nonce::assume_unique_for_key(nonce(slot.counter));
            let computed = self
                .0
                .seal_in_place_separate_tag(nonce, Aad::empty(), text)
                .expect("a packet is far below the algorithm's limit of 256 GiB");
            tag.copy_from_slice(computed.as_ref());
        }
    }

    /// See [`crate::Key::open`]; the slots have been checked.
    pub(crate) fn open(&self, buf: &mut [u8], batch: &[Slot]) -> AuthMask {
        let mut authentic = AuthMask::default();
        for (i, slot) in batch.iter().enumerate() {
            let sealed = &mut buf[slot.offset..][..slot.len + TAG_LEN];
            let nonce = Nonce::assume_unique_for_key(nonce(slot.counter));
            match self.0.open_in_place(nonce, Aad::empty(), sealed) {
                Ok(_) => authentic.set(i),
                Err(_) => sealed.fill(0),
            }
        }
        authentic
    }
}
