//! Poly1305 (RFC 8439 section 2.5), a block at a time, in five limbs of 26 bits.
//!
//! No sum overflows, but all wrap explicitly, because a build with overflow checks would branch on secrets.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// The bits of a limb.
const LIMB: u32 = (1 << 26) - 1;

/// The authenticator of one message, with its one-time key. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Poly1305 {
    r: [u32; 5],
    h: [u32; 5],
    s: [u8; 16],
}

impl Poly1305 {
    /// Takes `r`, which is clamped here, and `s`.
    pub fn new(key: &[u8; 32]) -> Self {
        let (r, s) = (key.first_chunk().expect("16 of 32 bytes"), key.last_chunk().expect("16 of 32 bytes"));
        let r = u128::from_le_bytes(*r) & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        Self { r: limbs(r), h: [0; 5], s: *s }
    }

    /// Adds a part of the message, padded with zeros to whole blocks as in section 2.8.
    pub fn update_padded(&mut self, part: &[u8]) {
        for bytes in part.chunks(16) {
            let mut block = [0; 16];
            block[..bytes.len()].copy_from_slice(bytes);
            self.fold(&block, 1 << 24);
        }
    }

    /// Adds the last part of the message as in section 2.5: an incomplete block is followed by a one.
    pub fn update_last(&mut self, part: &[u8]) {
        let (whole, rest) = part.as_chunks::<16>();
        self.update_padded(whole.as_flattened());
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            block[rest.len()] = 1;
            self.fold(&block, 0);
        }
    }

    /// `h = (h + block) * r`, modulo 2^130 - 5, with limbs that may exceed 26 bits by a little.
    fn fold(&mut self, block: &[u8; 16], top_bit: u32) {
        let mut h = self.h;
        for (h, m) in h.iter_mut().zip(limbs(u128::from_le_bytes(*block))) {
            *h = h.wrapping_add(m);
        }
        h[4] = h[4].wrapping_add(top_bit);
        let mut products = [0u64; 5];
        for (i, &h) in h.iter().enumerate() {
            for (j, &r) in self.r.iter().enumerate() {
                // 2^130 is 5.
                let wrapped = if i + j < 5 { 1 } else { 5 };
                let product = u64::from(h).wrapping_mul(u64::from(r)).wrapping_mul(wrapped);
                products[(i + j) % 5] = products[(i + j) % 5].wrapping_add(product);
            }
        }
        let mut carry = 0;
        for (h, product) in self.h.iter_mut().zip(products) {
            let sum = product.wrapping_add(carry);
            *h = sum as u32 & LIMB;
            carry = sum >> 26;
        }
        let sum = u64::from(self.h[0]).wrapping_add(carry.wrapping_mul(5));
        self.h[0] = sum as u32 & LIMB;
        self.h[1] = self.h[1].wrapping_add((sum >> 26) as u32);
    }

    /// The tag.
    pub fn finish(self) -> [u8; 16] {
        finish(self.h, &self.s)
    }
}

/// The tag: `h` reduced fully, plus `s`, modulo 2^128.
pub(crate) fn finish(mut h: [u32; 5], s: &[u8; 16]) -> [u8; 16] {
    for _ in 0..2 {
        let mut carry = 0;
        for limb in &mut h {
            *limb = limb.wrapping_add(carry);
            carry = *limb >> 26;
            *limb &= LIMB;
        }
        h[0] = h[0].wrapping_add(carry.wrapping_mul(5));
    }
    // h + 5 reaches bit 130 exactly where h is not below 2^130 - 5; then its lower bits are what
    // is left.
    let mut carry = 5;
    let mut reduced = [0; 5];
    for (out, limb) in reduced.iter_mut().zip(h) {
        let sum: u32 = limb.wrapping_add(carry);
        *out = sum & LIMB;
        carry = sum >> 26;
    }
    let take = 0u32.wrapping_sub(carry);
    let mut value = 0u128;
    for i in 0..5 {
        let limb = (h[i] & !take) | (reduced[i] & take);
        value = value.wrapping_add(u128::from(limb) << (26 * i));
    }
    value.wrapping_add(u128::from_le_bytes(*s)).to_le_bytes()
}

fn limbs(value: u128) -> [u32; 5] {
    core::array::from_fn(|i| (value >> (26 * i)) as u32 & LIMB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_equals_rfc_8439_section_2_5_2() {
        let mut poly = Poly1305::new(&[
            0x85, 0xd6, 0xbe, 0x78, 0x57, 0x55, 0x6d, 0x33, 0x7f, 0x44, 0x52, 0xfe, 0x42, 0xd5, 0x06, 0xa8, 0x01, 0x03,
            0x80, 0x8a, 0xfb, 0x0d, 0xb2, 0xfd, 0x4a, 0xbf, 0xf6, 0xaf, 0x41, 0x49, 0xf5, 0x1b,
        ]);
        poly.update_last(b"Cryptographic Forum Research Group");
        let expected = [0xa8, 0x06, 0x1d, 0xc1, 0x30, 0x51, 0x36, 0xc6, 0xc2, 0x2b, 0x8b, 0xaf, 0x0c, 0x01, 0x27, 0xa9];
        assert_eq!(poly.finish(), expected);
    }
}
