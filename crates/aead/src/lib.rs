//! ChaCha20-Poly1305 (RFC 8439) over batches of packets of one key.
//!
//! A batch is one buffer and a list of [`Slot`]s that say where in it the packets lie; sealing and
//! opening happen in place. The nonce is WireGuard's: four zero bytes, then the packet's 64-bit
//! counter in little-endian (paper section 5.4.6). There is no associated data on this path.
//!
//! This crate never allocates per batch, never reads a clock and never sees a socket. Its
//! neighbours are `protocol` (which derives the keys) and `engine` (which fills the batches).

#![forbid(unsafe_code)]

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize;

/// Bytes of a key.
pub const KEY_LEN: usize = 32;

/// Bytes of an authentication tag, which follows the ciphertext.
pub const TAG_LEN: usize = 16;

/// The most packets that one call takes: what [`Verdicts`] can report on.
pub const BATCH_MAX: usize = 128;

/// Where one packet lies in a batch's buffer, and the counter that makes its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First byte of the plaintext or ciphertext.
    pub offset: usize,
    /// Bytes of plaintext. The tag lies in the [`TAG_LEN`] bytes behind them.
    pub len: usize,
    /// The packet's counter under this key. Never seal two packets with the same one.
    pub counter: u64,
}

/// Which packets of an opened batch were authentic; bit `i` speaks of slot `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts(u128);

impl Verdicts {
    /// Whether slot `i` carried a valid tag.
    pub fn authentic(&self, i: usize) -> bool {
        self.0 >> i & 1 == 1
    }

    /// How many slots carried a valid tag.
    pub fn count(&self) -> usize {
        self.0.count_ones() as usize
    }

    fn set(&mut self, i: usize) {
        self.0 |= 1 << i;
    }
}

/// One direction's transport key. Wiped on drop (by the library that holds its schedule).
pub struct Key(LessSafeKey);

impl Key {
    /// Takes a key; the caller's copy is the caller's to wipe.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        let unbound = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has the algorithm's length");
        Self(LessSafeKey::new(unbound))
    }

    /// Seals every slot of `batch` in place and writes the tags behind the ciphertexts.
    ///
    /// # Panics
    /// If a slot with its tag does not lie inside `buf`, or the batch is longer than [`BATCH_MAX`].
    pub fn seal(&self, buf: &mut [u8], batch: &[Slot]) {
        assert!(batch.len() <= BATCH_MAX, "a batch has at most {BATCH_MAX} packets");
        for slot in batch {
            let (text, tag_room) = packet(buf, slot);
            let tag = self
                .0
                .seal_in_place_separate_tag(nonce(slot.counter), Aad::empty(), text)
                .expect("a packet is far below the algorithm's limit of 256 GiB");
            tag_room.copy_from_slice(tag.as_ref());
        }
    }

    /// Opens every slot of `batch` in place. A packet whose tag is wrong is reported in the
    /// result by its absence and its bytes are wiped; the others are not affected.
    ///
    /// # Panics
    /// If a slot with its tag does not lie inside `buf`, or the batch is longer than [`BATCH_MAX`].
    pub fn open(&self, buf: &mut [u8], batch: &[Slot]) -> Verdicts {
        assert!(batch.len() <= BATCH_MAX, "a batch has at most {BATCH_MAX} packets");
        let mut verdicts = Verdicts::default();
        for (i, slot) in batch.iter().enumerate() {
            let sealed = &mut buf[slot.offset..][..slot.len + TAG_LEN];
            match self.0.open_in_place(nonce(slot.counter), Aad::empty(), sealed) {
                Ok(_) => verdicts.set(i),
                Err(_) => sealed.zeroize(),
            }
        }
        verdicts
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn packet<'a>(buf: &'a mut [u8], slot: &Slot) -> (&'a mut [u8], &'a mut [u8]) {
    buf[slot.offset..][..slot.len + TAG_LEN].split_at_mut(slot.len)
}
