//! Poly1305 (RFC 8439 section 2.5) of one text at a time, with the scalar units: for batches too small to fill vectors
//! with blocks of several packets, and for kernels that use the vector units for ChaCha20 alone.
//!
//! A number is two 64-bit words and a few bits above them, which takes few multiplications and carries: each
//! block depends on those of the block before. No sum overflows, but all wrap explicitly, because a build
//! with overflow checks would branch on secrets. Callers wipe what this leaves on the stack;
//! `crate::portable::poly1305` is the reference.

use crate::TAG_LEN;
use crate::vector_kernel::OneTimeKey;

/// The tag of a packet without associated data (section 2.8): over its text, padded with zeros to whole
/// blocks, and the lengths.
#[inline(never)]
pub(crate) fn tag(key: &OneTimeKey, text: &[u8]) -> [u8; TAG_LEN] {
    let mut poly = Poly1305::new(key);
    let (whole, rest) = text.as_chunks();
    for block in whole {
        poly.fold(u128::from_le_bytes(*block));
    }
    if !rest.is_empty() {
        let mut block = [0; 16];
        block[..rest.len()].copy_from_slice(rest);
        poly.fold(u128::from_le_bytes(block));
    }
    // The lengths: no associated data, and the text.
    poly.fold((text.len() as u128) << 64);
    poly.tag()
}

/// A tag in progress: `h` modulo 2^130 - 5, not fully reduced. The layout is known to `arch`.
#[repr(C)]
pub(crate) struct Poly1305 {
    /// The lower 128 bits of h.
    pub(crate) low: u128,
    /// What is added at the end.
    s: u128,
    /// The bits of h from 128 on: at most 4 between blocks.
    pub(crate) high: u64,
    pub(crate) r: Factor,
}

impl Poly1305 {
    /// No packet's.
    pub(crate) const EMPTY: Self = Self { low: 0, s: 0, high: 0, r: Factor { low: 0, high: 0, wrapped: 0 } };

    #[inline]
    pub(crate) fn new(key: &OneTimeKey) -> Self {
        let [r, s] = [0, 16].map(|at| u128::from_le_bytes(*key[at..].first_chunk().expect("two halves of 32 bytes")));
        Self { low: 0, s, high: 0, r: Factor::clamped(r) }
    }

    /// `h = (h + block + 2^128) r`. Both words of `r` are below 2^60 and `high` is at most 6, so no sum overflows.
    #[inline(always)]
    pub(crate) fn fold(&mut self, block: u128) {
        let (low, carry) = self.low.overflowing_add(block);
        let (a, b) = (low as u64, (low >> 64) as u64);
        let c = self.high.wrapping_add(1).wrapping_add(u64::from(carry));
        let r = &self.r;
        let first = product(a, r.low).wrapping_add(product(b, r.wrapped));
        let second = product(a, r.high)
            .wrapping_add(product(b, r.low))
            .wrapping_add(u128::from(c.wrapping_mul(r.wrapped)))
            .wrapping_add(first >> 64);
        let third = c.wrapping_mul(r.low).wrapping_add((second >> 64) as u64);
        // Bits above 2^130 wrap around, multiplied by five.
        let around = (third >> 2).wrapping_add(third & !3);
        let (low, carry) = (second << 64 | u128::from(first as u64)).overflowing_add(u128::from(around));
        (self.low, self.high) = (low, (third & 3).wrapping_add(u64::from(carry)));
    }

    /// The tag of what was folded.
    #[inline]
    pub(crate) fn tag(&self) -> [u8; TAG_LEN] {
        // h + 5 reaches bit 130 exactly if h >= 2^130 - 5; its lower bits are then the result. `high` is 4 only if
        // `low` wrapped, so h is below twice the modulus.
        let (less, carry) = self.low.overflowing_add(5);
        let reaches = self.high.wrapping_add(u64::from(carry)) >> 2;
        let take = 0u128.wrapping_sub(u128::from(reaches));
        ((self.low & !take) | (less & take)).wrapping_add(self.s).to_le_bytes()
    }
}

/// A factor of a multiplication.
#[repr(C)]
pub(crate) struct Factor {
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// The high word's weight in products that reach 2^128. As 2^130 = 5 and its lowest two bits are clear,
    /// that is a quarter of it times five.
    pub(crate) wrapped: u64,
}

impl Factor {
    /// Clears the bits that section 2.5 says, including the lowest two of the high word.
    fn clamped(r: u128) -> Self {
        let r = r & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        let high = (r >> 64) as u64;
        Self { low: r as u64, high, wrapped: high.wrapping_add(high >> 2) }
    }
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a).wrapping_mul(u128::from(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::portable::poly1305::Poly1305;

    proptest! {
        #[test]
        fn the_tag_equals_the_portable_codes_for_extreme_numbers(
            r in edge(), s in edge(), blocks in prop::collection::vec(edge(), 0..40), cut in 0..16usize,
        ) {
            let mut text = Vec::from_iter(blocks.into_iter().flat_map(u128::to_le_bytes));
            text.truncate(text.len().saturating_sub(cut));
            let key = key(r, s);
            prop_assert_eq!(tag(&key, &text), portable(&key, &text));
        }
    }

    /// With r = 1 the sum of the blocks is reduced. Each block and the lengths add 2^128, and the first block
    /// almost as much again: with two blocks in all the sum is about the modulus, with six about twice.
    #[test]
    fn the_tag_equals_the_portable_codes_on_both_sides_of_the_modulus() {
        for blocks in 1..=8 {
            let lengths = (16 * blocks as u128) << 64;
            for from_modulus in 0..80 {
                let first = 0u128.wrapping_sub(lengths + 45).wrapping_add(from_modulus);
                let mut text = vec![0; 16 * blocks];
                text[..16].copy_from_slice(&first.to_le_bytes());
                let key = key(1, 0);
                assert_eq!(tag(&key, &text), portable(&key, &text), "{blocks} blocks, {from_modulus}");
            }
        }
    }

    /// Extreme values, single bits, or random.
    fn edge() -> impl Strategy<Value = u128> {
        prop_oneof![
            0..6u128,
            (0..6u128).prop_map(|by| u128::MAX - by),
            (0..128u32).prop_map(|bit| 1 << bit),
            any::<u128>()
        ]
    }

    fn key(r: u128, s: u128) -> OneTimeKey {
        [r.to_le_bytes(), s.to_le_bytes()].concat().try_into().expect("two halves of 32 bytes")
    }

    fn portable(key: &OneTimeKey, text: &[u8]) -> [u8; TAG_LEN] {
        let mut poly = Poly1305::new(key);
        poly.update_padded(text);
        poly.update_padded(&((text.len() as u128) << 64).to_le_bytes());
        poly.finish()
    }
}
