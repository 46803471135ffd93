//! What an instruction set implements ([`VectorKernel`] and one of [`SideBySideKernel`], [`InterleavedKernel`]), and
//! the types that it shares with its callers, `crate::small_batch`, `crate::side_by_side` and `crate::interleaved`.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::poly1305::Poly1305;
use crate::{BLOCK_LEN, KEY_LEN, Slot, TAG_LEN, side_by_side};

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
pub(crate) struct Blocks<const LANES: usize> {
    pub(crate) counter: [u32; LANES],
    pub(crate) nonce_low: [u32; LANES],
    pub(crate) nonce_high: [u32; LANES],
}

impl<const LANES: usize> Blocks<LANES> {
    pub(crate) fn new() -> Self {
        Self { counter: [0; LANES], nonce_low: [0; LANES], nonce_high: [0; LANES] }
    }

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
pub(crate) struct Keystream<const LANES: usize>(pub(crate) [[u8; BLOCK_LEN]; LANES]);

/// The keystream of a small batch.
pub(crate) type SmallKeystream = [[u8; BLOCK_LEN]; SMALL_BLOCKS];

/// Implemented by the token that proves that this CPU has the instruction set.
pub(crate) trait VectorKernel: Copy {
    /// The smallest batch for which the kernel is faster than the library, as measured with `benches/table.rs`, if its
    /// longest text has so many bytes.
    fn min_packets(longest: usize) -> usize;

    /// The most blocks of a packet that is alone in its batch, including the one for its key, for which
    /// [`crate::small_batch`] is faster than the library, as measured with `benches/table.rs`.
    const MAX_SINGLE_PACKET_BLOCKS: usize;

    /// Writes the keystream of a batch of `count` (0..=SMALL_BLOCKS) blocks, in the order of [`packets`], in less time
    /// than a pass takes; may write the blocks after them, too.
    fn keystream_small(self, key: &KeyWords, batch: &[Slot], count: usize, out: &mut SmallKeystream);

    /// Clears the vector registers.
    fn clear_registers(self);

    /// `text ^= keystream`; the keystream is at least as long.
    fn apply(self, text: &mut [u8], keystream: &[u8]);
}

/// A kernel that computes Poly1305 with the vector units, as ChaCha20: one after the other. For `crate::side_by_side`.
pub(crate) trait SideBySideKernel: VectorKernel {
    /// Writes the first `count` (1..=LANES) blocks of keystream; may write those after them, too.
    fn keystream(
        self,
        key: &KeyWords,
        blocks: &Blocks<{ side_by_side::LANES }>,
        count: usize,
        out: &mut Keystream<{ side_by_side::LANES }>,
    );

    /// The Poly1305 tags of packets without associated data. Only the first `count` are needed; the texts after them
    /// repeat one of those.
    fn tags(
        self,
        keys: &[OneTimeKey; side_by_side::PACKETS],
        texts: [&[u8]; side_by_side::PACKETS],
        count: usize,
    ) -> [[u8; TAG_LEN]; side_by_side::PACKETS];
}

/// A kernel that leaves Poly1305 to the scalar units. For `crate::interleaved`.
pub(crate) trait InterleavedKernel<const LANES: usize>: VectorKernel {
    /// Whether it takes less time to fold two packets side by side, as measured.
    const PAIRS: bool;

    /// Writes a pass of keystream, and does some of the work after each half round.
    fn keystream(self, key: &KeyWords, blocks: &Blocks<LANES>, out: &mut Keystream<LANES>, work: impl ScalarWork);

    /// Folds a block into a tag, as [`Poly1305::fold`].
    fn fold(self, poly: &mut Poly1305, block: &[u8; 16]);

    /// Folds two blocks, in less time than one after the other.
    fn fold_two(self, poly: &mut Poly1305, blocks: &[[u8; 16]; 2]);

    /// Folds a block of each of two packets.
    fn fold_each(self, polys: &mut [Poly1305; 2], blocks: [&[u8; 16]; 2]);

    /// Folds two blocks of each of two packets, in less time than those of one and then those of the other.
    fn fold_two_of_each(self, polys: &mut [Poly1305; 2], blocks: [&[[u8; 16]; 2]; 2]);
}

/// Work for the scalar units, to be done between vector instructions.
pub(crate) trait ScalarWork {
    /// Does a little of it. Must be inlined: a call would save and restore all vectors.
    fn some(&mut self);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::choose::{Choice, Implementation};

    proptest! {
        #[test]
        fn every_kernel_applies_its_keystream_to_the_text_and_to_nothing_else(
            len in 0..300usize, keystream in prop::collection::vec(any::<u8>(), 300),
        ) {
            for choice in Choice::available() {
                let mut buf = vec![0x55; len + 10];
                match choice.0 {
                    Implementation::Avx2(kernel) => kernel.apply(&mut buf[..len], &keystream),
                    Implementation::Avx512F(kernel) => kernel.apply(&mut buf[..len], &keystream),
                    Implementation::Avx512(kernel) => kernel.apply(&mut buf[..len], &keystream),
                    _ => continue,
                }
                prop_assert!(buf.iter().zip(&keystream).take(len).all(|(byte, key)| byte ^ key == 0x55));
                prop_assert_eq!(&buf[len..], [0x55; 10]);
            }
        }
    }
}
