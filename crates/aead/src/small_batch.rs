//! Batches of few blocks: a packet or two of interactive traffic, acknowledgements, keepalives.
//!
//! One call of a kernel computes all blocks of the batch, including those for the one-time keys, in little more time
//! than a single block takes; then each packet is authenticated by itself. Laying out passes would take longer than
//! these packets take in all.

use core::hint::black_box;

use crate::vector_kernel::{KeyWords, OneTimeKey, SMALL_BLOCKS, SmallKeystream, VectorKernel, blocks_of, packets};
use crate::{AuthMask, BLOCK_LEN, Slot, is_authentic, poly1305, text_and_tag};

/// Whether to handle a batch here. Two or more packets gain from it whenever their blocks fit.
pub(crate) fn fits<K: VectorKernel>(batch: &[Slot]) -> bool {
    let most = if batch.len() == 1 { K::MAX_SINGLE_PACKET_BLOCKS } else { SMALL_BLOCKS };
    batch.len() <= SMALL_BLOCKS && blocks(batch) <= most
}

/// Blocks of a batch, including those for its one-time keys.
fn blocks(batch: &[Slot]) -> usize {
    batch.iter().map(blocks_of).sum()
}

/// See [`crate::Key::seal`]; the slots have been checked, and take at most [`SMALL_BLOCKS`] blocks.
pub(crate) fn seal<K: VectorKernel>(kernel: K, key: &KeyWords, buf: &mut [u8], batch: &[Slot]) {
    let mut small = SmallBatch { kernel, blocks: [[0; BLOCK_LEN]; SMALL_BLOCKS] };
    small.compute(key, batch);
    for (first, slot) in packets(batch) {
        let (text, tag) = text_and_tag(buf, slot);
        kernel.apply(text, small.keystream(first));
        *tag = poly1305::tag(small.one_time_key(first), text);
    }
}

/// See [`crate::Key::open`]; the slots have been checked, and take at most [`SMALL_BLOCKS`] blocks.
pub(crate) fn open<K: VectorKernel>(kernel: K, key: &KeyWords, buf: &mut [u8], batch: &[Slot]) -> AuthMask {
    let mut small = SmallBatch { kernel, blocks: [[0; BLOCK_LEN]; SMALL_BLOCKS] };
    small.compute(key, batch);
    let mut authentic = AuthMask::default();
    for (i, (first, slot)) in packets(batch).enumerate() {
        let tag = poly1305::tag(small.one_time_key(first), text_and_tag(buf, slot).0);
        if is_authentic(&tag, buf, slot) {
            authentic.set(i);
            kernel.apply(text_and_tag(buf, slot).0, small.keystream(first));
        }
    }
    authentic
}

/// The keystream of a batch.
struct SmallBatch<K: VectorKernel> {
    kernel: K,
    blocks: SmallKeystream,
}

impl<K: VectorKernel> SmallBatch<K> {
    /// In place, so that no other copy of the keystream is left behind.
    fn compute(&mut self, key: &KeyWords, batch: &[Slot]) {
        self.kernel.keystream_small(key, batch, blocks(batch), &mut self.blocks);
    }

    /// The one-time key of the packet whose first block is `first`.
    fn one_time_key(&self, first: usize) -> &OneTimeKey {
        self.blocks[first].first_chunk().expect("half a block")
    }

    /// The keystream for the text of the packet whose first block is `first`, and what follows it.
    fn keystream(&self, first: usize) -> &[u8] {
        self.blocks[first + 1..].as_flattened()
    }
}

impl<K: VectorKernel> Drop for SmallBatch<K> {
    fn drop(&mut self) {
        self.blocks.as_flattened_mut().fill(0);
        // black_box keeps the compiler from omitting the wiping.
        black_box(&self.blocks);
        scrub_stack();
        self.kernel.clear_registers();
    }
}

/// Overwrites the stack that the kernel and Poly1305 used.
#[inline(never)]
fn scrub_stack() {
    let mut frames = [0u8; 1 << 10];
    black_box(&mut frames);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::{Choice, Implementation};
    use crate::{BATCH_MAX, Key, TAG_LEN, portable};

    const KEY: [u8; 32] = *b"for a few blocks, in tests alone";

    #[test]
    fn a_single_packet_equals_the_portable_code_at_every_length_and_alignment() {
        for choice in Choice::available() {
            match choice.0 {
                Implementation::Avx2(kernel) => alone(kernel, choice),
                Implementation::Avx512F(kernel) => alone(kernel, choice),
                Implementation::Avx512(kernel) => alone(kernel, choice),
                _ => {}
            }
        }
    }

    fn alone<K: VectorKernel>(kernel: K, choice: Choice) {
        let (key, words) = (Key::with(choice, &KEY), KeyWords::new(&KEY));
        for len in 0..=600 {
            for offset in 0..16 {
                let batch = [Slot { offset, len, counter: (len << 40 | offset) as u64 }];
                same_as_portable(&batch, |buf| key.seal(buf, &batch), |buf| key.open(buf, &batch));
                // Also where the library would be faster.
                if blocks(&batch) <= SMALL_BLOCKS {
                    let seal = |buf: &mut [u8]| seal(kernel, &words, buf, &batch);
                    same_as_portable(&batch, seal, |buf| open(kernel, &words, buf, &batch));
                }
            }
        }
    }

    #[test]
    fn a_few_packets_share_blocks_in_any_combination_without_mixing() {
        let lens = [0, 1, 16, 63, 64, 65, 128, 129, 192, 193, 256, 320, 384];
        let mut batches = vec![vec![], vec![0; SMALL_BLOCKS]];
        for a in lens {
            for b in lens {
                batches.extend([vec![a, b], vec![a, b, 0], vec![a, b, 64, 10], vec![0, a, 0, b, 0]]);
            }
        }
        for choice in Choice::available() {
            for lens in &batches {
                let starts = lens.iter().scan(3, |next, len| Some(std::mem::replace(next, *next + len + TAG_LEN)));
                let slots = lens.iter().zip(starts).zip((0..=u64::MAX).rev());
                let batch = Vec::from_iter(slots.map(|((&len, offset), counter)| Slot { offset, len, counter }));
                match choice.0 {
                    Implementation::Avx2(kernel) => together(kernel, &batch),
                    Implementation::Avx512F(kernel) => together(kernel, &batch),
                    Implementation::Avx512(kernel) => together(kernel, &batch),
                    _ => {}
                }
            }
        }
    }

    fn together<K: VectorKernel>(kernel: K, batch: &[Slot]) {
        let words = KeyWords::new(&KEY);
        if blocks(batch) <= SMALL_BLOCKS {
            let seal = |buf: &mut [u8]| seal(kernel, &words, buf, batch);
            same_as_portable(batch, seal, |buf| open(kernel, &words, buf, batch));
        }
    }

    #[test]
    fn the_longest_batch_of_empty_packets_is_not_small() {
        let empty = Slot { offset: 0, len: 0, counter: 0 };
        for choice in Choice::available() {
            let fits = match choice.0 {
                Implementation::Avx2(_) => fits::<crate::choose::HaveAvx2>,
                Implementation::Avx512F(_) => fits::<crate::choose::HaveAvx512F>,
                Implementation::Avx512(_) => fits::<crate::choose::HaveAvx512>,
                _ => continue,
            };
            assert!(fits(&[empty; SMALL_BLOCKS]) && !fits(&[empty; SMALL_BLOCKS + 1]) && !fits(&[empty; BATCH_MAX]));
        }
    }

    /// Seals and opens, and compares with the portable code: only the packets change, and one with a wrong tag is
    /// wiped.
    fn same_as_portable(batch: &[Slot], seal: impl Fn(&mut [u8]), open: impl Fn(&mut [u8]) -> AuthMask) {
        let end = batch.iter().map(|slot| slot.offset + slot.len + TAG_LEN).max().unwrap_or(0);
        let plain = Vec::from_iter((0..end + 20).map(|at| (at * 31 + at / 255) as u8));
        let mut expected = plain.clone();
        portable::seal_batch(&KEY, &mut expected, batch);
        let mut buf = plain.clone();
        seal(&mut buf);
        assert!(buf == expected, "sealing {batch:?}");

        for forged in 0..batch.len() {
            let mut buf = expected.clone();
            let mut opened = expected.clone();
            for buf in [&mut buf, &mut opened] {
                buf[batch[forged].offset + batch[forged].len / 2] ^= 0x10;
            }
            let authentic = portable::open_batch(&KEY, &mut opened, batch);
            assert_eq!(open(&mut buf), authentic, "opening {batch:?}, {forged} forged");
            assert!(buf == opened, "opening {batch:?}, {forged} forged");
        }
        let authentic = portable::open_batch(&KEY, &mut expected, batch);
        assert_eq!(open(&mut buf), authentic, "opening {batch:?}");
        assert!(buf == expected && authentic.count() == batch.len(), "opening {batch:?}");
    }
}
