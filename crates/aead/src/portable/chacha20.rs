//! ChaCha20 (RFC 8439 sections 2.1 to 2.4), a block at a time.

use core::hint::black_box;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{BLOCK_LEN, KEY_LEN};

/// The first four words of every state: "expand 32-byte k".
pub(crate) const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The cipher under one key and nonce. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct ChaCha20([u32; 16]);

impl ChaCha20 {
    /// The state of section 2.3, with block counter 0.
    pub fn new(key: &[u8; KEY_LEN], nonce: &[u8; 12]) -> Self {
        let mut state = [0; 16];
        state[..4].copy_from_slice(&SIGMA);
        let words = key.as_chunks::<4>().0;
        for (word, bytes) in state[4..12].iter_mut().zip(words) {
            *word = u32::from_le_bytes(*bytes);
        }
        for (word, bytes) in state[13..].iter_mut().zip(nonce.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self(state)
    }

    /// One block of keystream.
    pub fn block(&self, counter: u32, out: &mut [u8; BLOCK_LEN]) {
        let mut start = self.0;
        start[12] = counter;
        let mut x = start;
        for _ in 0..10 {
            quarter_round(&mut x, 0, 4, 8, 12);
            quarter_round(&mut x, 1, 5, 9, 13);
            quarter_round(&mut x, 2, 6, 10, 14);
            quarter_round(&mut x, 3, 7, 11, 15);
            quarter_round(&mut x, 0, 5, 10, 15);
            quarter_round(&mut x, 1, 6, 11, 12);
            quarter_round(&mut x, 2, 7, 8, 13);
            quarter_round(&mut x, 3, 4, 9, 14);
        }
        for ((bytes, word), start) in out.as_chunks_mut::<4>().0.iter_mut().zip(x).zip(start) {
            *bytes = word.wrapping_add(start).to_le_bytes();
        }
        start.fill(0);
        x.fill(0);
        black_box((&start, &x));
    }

    /// `text ^= keystream`, starting with block `first` of the keystream.
    pub fn apply(&self, first: u32, text: &mut [u8]) {
        let mut keystream = [0; BLOCK_LEN];
        for (counter, part) in (first..).zip(text.chunks_mut(BLOCK_LEN)) {
            self.block(counter, &mut keystream);
            for (byte, key) in part.iter_mut().zip(keystream) {
                *byte ^= key;
            }
        }
        keystream.fill(0);
        black_box(&keystream);
    }
}

/// RFC 8439 section 2.1.
fn quarter_round(x: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(16);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(12);
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(8);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(7);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quarter_round_equals_rfc_8439_section_2_1_1() {
        let mut x = [0; 16];
        x[..4].copy_from_slice(&[0x11111111, 0x01020304, 0x9b8d6f43, 0x01234567]);
        quarter_round(&mut x, 0, 1, 2, 3);
        assert_eq!(x[..4], [0xea2a92f4, 0xcb1cf8ce, 0x4581472e, 0x5881c4bb]);
    }

    #[test]
    fn the_quarter_round_equals_rfc_8439_section_2_2_1() {
        let mut x = [
            0x879531e0, 0xc5ecf37d, 0x516461b1, 0xc9a62f8a, 0x44c20ef3, 0x3390af7f, 0xd9fc690b, 0x2a5f714c, 0x53372767,
            0xb00a5631, 0x974c541a, 0x359e9963, 0x5c971061, 0x3d631689, 0x2098d9d6, 0x91dbd320,
        ];
        quarter_round(&mut x, 2, 7, 8, 13);
        assert_eq!([x[2], x[7], x[8], x[13]], [0xbdb886dc, 0xcfacafd2, 0xe46bea80, 0xccc07c79]);
    }

    #[test]
    fn the_block_equals_rfc_8439_section_2_3_2() {
        let key = core::array::from_fn(|i| i as u8);
        let mut block = [0; 64];
        ChaCha20::new(&key, &[0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0]).block(1, &mut block);
        let words = block.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let expected = [
            0xe4e7f110u32,
            0x15593bd1,
            0x1fdd0f50,
            0xc47120a3,
            0xc7f4d1c7,
            0x0368c033,
            0x9aaa2204,
            0x4e6cd4c3,
            0x466482d2,
            0x09aa9f07,
            0x05d7c214,
            0xa2028bd9,
            0xd19c12b5,
            0xb94e16de,
            0xe883d0cb,
            0x4e3c50a2,
        ];
        assert!(words.eq(expected));
    }
}
