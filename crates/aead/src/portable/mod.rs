//! ChaCha20-Poly1305, a direct transcription of RFC 8439: one packet, one block, one step at a time.
//!
//! The reference that every other implementation must equal. Unlike the rest of the crate it takes any
//! nonce and associated data, so that published vectors apply in full. No branch and no index depends on a
//! secret.

pub mod chacha20;
pub mod poly1305;

use core::hint::black_box;

use chacha20::ChaCha20;
use poly1305::Poly1305;

use crate::{AuthMask, BLOCK_LEN, KEY_LEN, Slot, TAG_LEN, nonce, tags_equal, text_and_tag};

/// Bytes of a nonce.
pub const NONCE_LEN: usize = 12;

/// Seals `text` in place and returns its tag (RFC 8439 section 2.8).
pub fn seal(key: &[u8; KEY_LEN], nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
    let cipher = ChaCha20::new(key, nonce);
    cipher.apply(1, text);
    tag(&cipher, aad, text)
}

/// Opens `text` in place and returns true if its tag is valid; otherwise leaves it unchanged.
pub fn open(
    key: &[u8; KEY_LEN],
    nonce: &[u8; NONCE_LEN],
    aad: &[u8],
    text: &mut [u8],
    received: &[u8; TAG_LEN],
) -> bool {
    let cipher = ChaCha20::new(key, nonce);
    let tag = tag(&cipher, aad, text);
    let authentic = tags_equal(&tag, received);
    if authentic {
        cipher.apply(1, text);
    }
    authentic
}

/// RFC 8439 section 2.8: both parts padded with zeros to whole blocks, then their lengths.
fn tag(cipher: &ChaCha20, aad: &[u8], text: &[u8]) -> [u8; TAG_LEN] {
    let mut block = [0; BLOCK_LEN];
    cipher.block(0, &mut block);
    let mut poly = Poly1305::new(block.first_chunk().expect("a block holds a key"));
    block.fill(0);
    black_box(&block);
    poly.update_padded(aad);
    poly.update_padded(text);
    let mut lengths = [0; 16];
    lengths[..8].copy_from_slice(&(aad.len() as u64).to_le_bytes());
    lengths[8..].copy_from_slice(&(text.len() as u64).to_le_bytes());
    poly.update_padded(&lengths);
    poly.finish()
}

/// See [`crate::Key::seal`]; the slots have been checked.
pub(crate) fn seal_batch(key: &[u8; KEY_LEN], buf: &mut [u8], batch: &[Slot]) {
    for slot in batch {
        let (text, tag) = text_and_tag(buf, slot);
        *tag = seal(key, &nonce(slot.counter), &[], text);
    }
}

/// See [`crate::Key::open`]; the slots have been checked.
pub(crate) fn open_batch(key: &[u8; KEY_LEN], buf: &mut [u8], batch: &[Slot]) -> AuthMask {
    let mut authentic = AuthMask::default();
    for (i, slot) in batch.iter().enumerate() {
        let (text, received) = text_and_tag(buf, slot);
        if open(key, &nonce(slot.counter), &[], text, received) {
            authentic.set(i);
        } else {
            text.fill(0);
            received.fill(0);
        }
    }
    authentic
}
