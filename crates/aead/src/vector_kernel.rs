//! What an instruction set implements ([`VectorKernel`]), and the types that it shares with its callers,
//! `crate::batch` and `crate::small_batch`.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{BLOCK_LEN, KEY_LEN, Slot, TAG_LEN};

/// Blocks of keystream that a kernel computes in one call at most.
pub(crate) const PASS: usize = 32;

/// Packets whose tags are computed in one call.
pub(crate) const SIDE_BY_SIDE: usize = 8;

/// Blocks of a small batch at most, including those for its one-time keys.
pub(crate) const SMALL_BLOCKS: usize = 8;

/// A ChaCha20 key as the words of its state.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct KeyWords(pub(crate) [u32; 8]);

impl KeyWords {
    pub(crate) fn new(key: &[u8; KEY_LEN]) -> Self {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self(words)
    }
}

/// A packet's Poly1305 key: `r` (not yet clamped), then `s`.
pub(crate) type OneTimeKey = [u8; 32];

/// What differs between the blocks of a pass: the last four words of their states, of which the second is zero.
#[repr(align(64))]
pub(crate) struct Blocks {
    pub(crate) counter: [u32; PASS],
    pub(crate) nonce_low: [u32; PASS],
    pub(crate) nonce_high: [u32; PASS],
}

impl Blocks {
    /// Assigns `count` blocks of one packet, from `block` on, to the blocks of the pass from `lane` on.
    #[inline]
    pub(crate) fn assign(&mut self, lane: usize, count: usize, nonce: u64, block: u32) {
        for i in 0..count {
            self.counter[lane + i] = block + i as u32;
            self.nonce_low[lane + i] = nonce as u32;
            self.nonce_high[lane + i] = (nonce >> 32) as u32;
        }
    }
}

/// The keystream of a pass.
#[repr(align(64))]
pub(crate) struct Keystream(pub(crate) [[u8; BLOCK_LEN]; PASS]);

/// The keystream of a small batch.
pub(crate) type SmallKeystream = [[u8; BLOCK_LEN]; SMALL_BLOCKS];

/// Implemented by the token that proves that this CPU has the instruction set.
pub(crate) trait VectorKernel: Copy {
    /// The smallest batch for which the kernel is faster than the library, as measured: fewer packets leave too
    /// many lanes idle.
    const MIN_PACKETS: usize;

    /// The most blocks of a packet that is alone in its batch, including the one for its key, for which
    /// [`crate::small_batch`] is faster than the library, as measured with `benches/table.rs`.
    const MAX_SINGLE_PACKET_BLOCKS: usize;

    /// Writes the first `count` (1..=PASS) blocks of keystream; may write those after them, too.
    fn keystream(self, key: &KeyWords, blocks: &Blocks, count: usize, out: &mut Keystream);

    /// Writes the keystream of a batch of `count` (0..=SMALL_BLOCKS) blocks, in the order of [`packets`], in less time
    /// than a pass takes; may write the blocks after them, too.
    fn keystream_small(self, key: &KeyWords, batch: &[Slot], count: usize, out: &mut SmallKeystream);

    /// Clears the vector registers.
    fn clear_registers(self);

    /// `text ^= keystream`; the keystream is at least as long.
    fn apply(self, text: &mut [u8], keystream: &[u8]);

    /// The Poly1305 tags of packets without associated data. Only the first `count` are needed; the texts after them
    /// repeat one of those.
    fn tags(
        self,
        keys: &[OneTimeKey; SIDE_BY_SIDE],
        texts: [&[u8]; SIDE_BY_SIDE],
        count: usize,
    ) -> [[u8; TAG_LEN]; SIDE_BY_SIDE];
}

/// The packets of a small batch, each with the index of its first block: that block yields its one-time key, the blocks
/// after it encrypt its text.
#[inline]
pub(crate) fn packets(batch: &[Slot]) -> impl Iterator<Item = (usize, &Slot)> {
    batch.iter().scan(0, |next, slot| {
        let first = *next;
        *next += blocks_of(slot);
        Some((first, slot))
    })
}

/// Blocks of a packet, including the one for its one-time key.
pub(crate) fn blocks_of(slot: &Slot) -> usize {
    1 + slot.len.div_ceil(BLOCK_LEN)
}
