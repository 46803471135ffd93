//! The AVX-512 kernel for CPUs with IFMA: 32 blocks of ChaCha20 a pass, Poly1305 of eight packets side by side.
//!
//! ChaCha20 is that of `avx512`. Lane `i` of every vector of Poly1305 belongs to packet `i`. A number is three limbs of
//! 44, 44 and 42 bits, multiplied with `vpmadd52`. Four blocks are folded at a time,
//! `h = (h + m0) r^4 + m1 r^3 + m2 r^2 + m3 r`, so that one carry serves 64 bytes of each packet and three
//! quarters of the products do not depend on `h`. Packets are aligned at their ends: a shorter one begins
//! with blocks of zeros, which leave `h = 0` unchanged.
//!
//! Control flow depends on public lengths only. `crate::side_by_side` decides which blocks and packets share a call;
//! `crate::choose` creates the token.

use core::arch::asm;
use core::arch::x86_64::*;

use super::avx512::{self, Blocks, Keystream, MaskedChunk, all, load, load_chunk, load_part, store};
use crate::choose::{HaveAvx512, HaveAvx512F};
use crate::side_by_side::PACKETS;
use crate::vector_kernel::{KeyWords, OneTimeKey, SideBySideKernel, SmallKeystream, VectorKernel};
use crate::{FEW, Slot, TAG_LEN};

impl VectorKernel for HaveAvx512 {
    const MAX_SINGLE_PACKET_BLOCKS: usize = HaveAvx512F::MAX_SINGLE_PACKET_BLOCKS;

    // `interleaved` has the others.
    fn min_packets(_longest: usize) -> usize {
        FEW + 1
    }

    fn apply(self, text: &mut [u8], keystream: &[u8]) {
        self.0.apply(text, keystream);
    }

    fn keystream_small(self, key: &KeyWords, batch: &[Slot], count: usize, out: &mut SmallKeystream) {
        self.0.keystream_small(key, batch, count, out);
    }

    fn clear_registers(self) {
        self.0.clear_registers();
    }
}

impl SideBySideKernel for HaveAvx512 {
    fn keystream(self, key: &KeyWords, blocks: &Blocks, count: usize, out: &mut Keystream) {
        // SAFETY: the token exists only if CPUID and XCR0 say that AVX-512 F, BW, VL, IFMA and VBMI2 may be used
        // (`choose::HaveAvx512::detect`).
        unsafe { avx512::keystream(key, blocks, count, out) }
    }

    fn tags(self, keys: &[OneTimeKey; PACKETS], texts: [&[u8]; PACKETS], _count: usize) -> [[u8; TAG_LEN]; PACKETS] {
        // SAFETY: as in `keystream`.
        unsafe { tags(keys, texts) }
    }
}

/// A number modulo 2^130 - 5 in each lane: 44, 44 and 42 bits, not fully carried.
type Number = [__m512i; 3];

/// A factor, with the limbs that wrap around 2^132 premultiplied by 20.
#[derive(Clone, Copy)]
struct Factor {
    limbs: Number,
    wrapped: [__m512i; 2],
}

/// Sums of products: the low and the high 52 bits, by weight.
struct Products {
    low: Number,
    high: Number,
}

const LIMB_44: u64 = (1 << 44) - 1;
const LIMB_42: u64 = (1 << 42) - 1;

/// Bit 128 of a block, in its top limb.
const TOP_BIT: u64 = 1 << 40;

/// Splits two halves of 16 bytes into limbs.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi2")]
fn split(low: __m512i, high: __m512i) -> Number {
    let middle = _mm512_shrdi_epi64::<44>(low, high);
    [_mm512_and_si512(low, all(LIMB_44)), _mm512_and_si512(middle, all(LIMB_44)), _mm512_srli_epi64::<24>(high)]
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn factor(limbs: Number) -> Factor {
    let [_, mut s1, mut s2] = limbs;
    for s in [&mut s1, &mut s2] {
        *s = _mm512_madd52lo_epu64(all(0), *s, all(20));
    }
    Factor { limbs, wrapped: [s1, s2] }
}

impl Products {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn none() -> Self {
        Self { low: [_mm512_setzero_si512(); 3], high: [_mm512_setzero_si512(); 3] }
    }

    /// Adds `x * by`. Up to four products fit: each adds less than 3 * 2^52 to a sum.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn add(&mut self, x: Number, by: &Factor) {
        let [r0, r1, r2] = by.limbs;
        let [s1, s2] = by.wrapped;
        let [x0, x1, x2] = x;
        self.add_limb(x1, [s2, r0, r1]);
        self.add_limb(x2, [s1, s2, r0]);
        self.add_limb(x0, [r0, r1, r2]);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn add_limb(&mut self, x: __m512i, by: Number) {
        self.low[0] = _mm512_madd52lo_epu64(self.low[0], x, by[0]);
        self.low[1] = _mm512_madd52lo_epu64(self.low[1], x, by[1]);
        self.low[2] = _mm512_madd52lo_epu64(self.low[2], x, by[2]);
        self.high[0] = _mm512_madd52hi_epu64(self.high[0], x, by[0]);
        self.high[1] = _mm512_madd52hi_epu64(self.high[1], x, by[1]);
        self.high[2] = _mm512_madd52hi_epu64(self.high[2], x, by[2]);
    }

    /// Carries the sums into limbs. The high halves weigh 2^52, which is 2^8 of the next limb (2^10 above the top
    /// limb); the carry out of the top limb is added to the lowest times five, as 2^130 = 5.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn carried(self) -> Number {
        let [a, b, c] = self.low;
        let carry = _mm512_add_epi64(_mm512_srli_epi64::<44>(a), _mm512_slli_epi64::<8>(self.high[0]));
        let a = _mm512_and_si512(a, all(LIMB_44));
        let b = _mm512_add_epi64(b, carry);
        let carry = _mm512_add_epi64(_mm512_srli_epi64::<44>(b), _mm512_slli_epi64::<8>(self.high[1]));
        let b = _mm512_and_si512(b, all(LIMB_44));
        let c = _mm512_add_epi64(c, carry);
        let carry = _mm512_add_epi64(_mm512_srli_epi64::<42>(c), _mm512_slli_epi64::<10>(self.high[2]));
        let c = _mm512_and_si512(c, all(LIMB_42));
        let a = _mm512_add_epi64(a, _mm512_add_epi64(carry, _mm512_slli_epi64::<2>(carry)));
        let b = _mm512_add_epi64(b, _mm512_srli_epi64::<44>(a));
        [_mm512_and_si512(a, all(LIMB_44)), b, c]
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn multiply(x: Number, by: &Factor) -> Number {
    let mut products = Products::none();
    products.add(x, by);
    products.carried()
}

/// The powers of one r per lane, in the order in which blocks need them: `[r^4, r^3, r^2, r]`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn powers(r: Number) -> [Factor; 4] {
    let one = factor(r);
    let square = multiply(r, &one);
    let two = factor(square);
    [factor(multiply(square, &two)), factor(multiply(square, &one)), two, one]
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512ifma,avx512vbmi2")]
fn tags(keys: &[OneTimeKey; PACKETS], texts: [&[u8]; PACKETS]) -> [[u8; TAG_LEN]; PACKETS] {
    let mut rows = [all(0); PACKETS];
    for (row, key) in rows.iter_mut().zip(keys) {
        *row = load_part(key);
    }
    let [[r_low, r_high], [s_low, s_high], ..] = blocks_of(transposed(rows));
    let r_low = _mm512_and_si512(r_low, all(0x0fff_fffc_0fff_ffff));
    let r_high = _mm512_and_si512(r_high, all(0x0fff_fffc_0fff_fffc));
    let powers = powers(split(r_low, r_high));

    let lens = texts.map(<[u8]>::len);
    let (mut shortest, mut longest) = (lens[0], lens[0]);
    for len in lens {
        (shortest, longest) = (shortest.min(len), longest.max(len));
    }
    let chunks = blocks(longest).div_ceil(4);
    let whole = blocks(shortest) / 4;
    // The chunks that are four complete blocks of text in every packet.
    let mut bodies = [&[] as &[[u8; 64]]; PACKETS];
    for (body, text) in bodies.iter_mut().zip(texts) {
        *body = text.get(start(text.len(), whole) as usize..).unwrap_or_default().as_chunks().0;
    }
    let mut lengths = [0; PACKETS];
    for (length, len) in lengths.iter_mut().zip(lens) {
        *length = len as u64;
    }
    let lens = load_lanes(&lengths);
    let blocks = _mm512_add_epi64(_mm512_srli_epi64::<4>(_mm512_add_epi64(lens, all(15))), all(1));

    let mut top_bits = [all(TOP_BIT); 4];
    let mut x = transposed(edge(&texts, chunks));
    top_bits_of(blocks, chunks, &mut top_bits);
    let mut h = [all(0); 3];
    for from_end in (1..=chunks).rev() {
        let mut next = [all(0); PACKETS];
        if from_end == 1 {
            // The last block: the lengths, of no associated data and of the text.
            x[LAST_HALF] = lens;
        } else if from_end > 2 && from_end <= whole + 1 {
            for (row, body) in next.iter_mut().zip(bodies) {
                *row = load(&body[whole + 1 - from_end]);
            }
        } else {
            next = edge(&texts, from_end - 1);
        }
        h = fold(h, &powers, x, &top_bits, &mut next);
        if from_end > whole {
            top_bits_of(blocks, from_end - 1, &mut top_bits);
        }
        x = next;
    }
    finish(h, s_low, s_high)
}

/// Number of blocks to authenticate: those of the text, padded with zeros, and the lengths.
#[inline]
fn blocks(len: usize) -> usize {
    len.div_ceil(16) + 1
}

/// The offset in the text of the 64-byte chunk that begins `4 * from_end` blocks before the packet's end; it may be
/// negative.
#[inline]
fn start(len: usize, from_end: usize) -> isize {
    16 * (blocks(len) as isize - 4 * from_end as isize)
}

/// The chunks that begin `4 * from_end` blocks before the ends of the packets, without the lengths; zeros before the
/// beginning of a packet.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn edge(texts: &[&[u8]; PACKETS], from_end: usize) -> [__m512i; PACKETS] {
    let mut rows = [all(0); PACKETS];
    let mut chunk = MaskedChunk::new(texts[0].len(), start(texts[0].len(), from_end));
    for (row, text) in rows.iter_mut().zip(texts) {
        // Adjacent packets mostly have the same length.
        if text.len() != chunk.len {
            chunk = MaskedChunk::new(text.len(), start(text.len(), from_end));
        }
        *row = load_chunk(text, &chunk);
    }
    rows
}

/// Bit 128 of the blocks in such chunks; zero before the beginning of a packet.
#[inline]
#[target_feature(enable = "avx512f")]
fn top_bits_of(blocks: __m512i, from_end: usize, top_bits: &mut [__m512i; 4]) {
    for (at, top_bits) in top_bits.iter_mut().enumerate() {
        let there = _mm512_cmpge_epu64_mask(blocks, all((4 * from_end).wrapping_sub(at) as u64));
        *top_bits = _mm512_maskz_set1_epi64(there, TOP_BIT as i64);
    }
}

/// Folds a transposed chunk of each packet into `h`, and transposes the next chunk meanwhile.
///
/// Many CPUs assign an instruction to a port when it enters the queue, long before it runs: they are fast only if
/// instructions for a single port, like shuffles, are finely interleaved with those for several.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512vbmi2")]
fn fold(
    h: Number,
    powers: &[Factor; 4],
    chunk: [__m512i; PACKETS],
    top_bits: &[__m512i; 4],
    next: &mut [__m512i; PACKETS],
) -> Number {
    let [first, second, third, fourth] = blocks_of(chunk);
    let mut products = Products::none();
    add_and_exchange::<0>(&mut products, block(fourth, top_bits[3]), &powers[3], next);
    add_and_exchange::<1>(&mut products, block(third, top_bits[2]), &powers[2], next);
    add_and_exchange::<2>(&mut products, block(second, top_bits[1]), &powers[1], next);
    let [a, b, c] = block(first, top_bits[0]);
    let first = [_mm512_add_epi64(a, h[0]), _mm512_add_epi64(b, h[1]), _mm512_add_epi64(c, h[2])];
    add_and_exchange::<3>(&mut products, first, &powers[0], next);
    products.carried()
}

#[inline]
#[target_feature(enable = "avx512f,avx512vbmi2")]
fn block([low, high]: [__m512i; 2], top_bit: __m512i) -> Number {
    let [a, b, c] = split(low, high);
    [a, b, _mm512_or_si512(c, top_bit)]
}

/// Adds `x * by`, and does a quarter of a transposition.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_and_exchange<const QUARTER: usize>(
    products: &mut Products,
    x: Number,
    by: &Factor,
    next: &mut [__m512i; PACKETS],
) {
    let [r0, r1, r2] = by.limbs;
    let [s1, s2] = by.wrapped;
    products.add_limb(x[1], [s2, r0, r1]);
    exchange::<QUARTER, 0>(next);
    keep_order::<QUARTER, 0>(next, products);
    products.add_limb(x[2], [s1, s2, r0]);
    exchange::<QUARTER, 1>(next);
    keep_order::<QUARTER, 1>(next, products);
    products.add_limb(x[0], [r0, r1, r2]);
    exchange::<QUARTER, 2>(next);
    keep_order::<QUARTER, 2>(next, products);
}

/// The steps of a transposition, in quarters: the two vectors that exchange halves.
const EXCHANGES: [[(usize, usize); 3]; 4] =
    [[(0, 1), (2, 3), (4, 5)], [(6, 7), (0, 2), (1, 3)], [(4, 6), (5, 7), (0, 4)], [(1, 5), (2, 6), (3, 7)]];

/// One step of transposing 64 bytes of packet `i` in vector `i` to half a block of eight packets in each vector.
#[inline]
#[target_feature(enable = "avx512f")]
fn exchange<const QUARTER: usize, const STEP: usize>(x: &mut [__m512i; PACKETS]) {
    let (i, j) = const { EXCHANGES[QUARTER][STEP] };
    (x[i], x[j]) = match j - i {
        1 => (_mm512_unpacklo_epi64(x[i], x[j]), _mm512_unpackhi_epi64(x[i], x[j])),
        2 => (_mm512_shuffle_i64x2::<0x44>(x[i], x[j]), _mm512_shuffle_i64x2::<0xee>(x[i], x[j])),
        _ => (_mm512_shuffle_i64x2::<0x88>(x[i], x[j]), _mm512_shuffle_i64x2::<0xdd>(x[i], x[j])),
    };
}

/// Keeps the compiler from moving this exchange before the preceding products or after the following ones; it would
/// cluster the exchanges.
#[inline]
#[target_feature(enable = "avx512f")]
fn keep_order<const QUARTER: usize, const STEP: usize>(x: &mut [__m512i; PACKETS], products: &mut Products) {
    let (i, j) = const { EXCHANGES[QUARTER][STEP] };
    let (mut u, mut v) = (x[i], x[j]);
    let Products { low: [a, b, c], high: [d, e, f] } = products;
    // SAFETY: an assembler comment, which emits no instruction.
    unsafe {
        asm!(
            "/* {} {} {} {} {} {} {} {} */",
            inout(zmm_reg) *a, inout(zmm_reg) *b, inout(zmm_reg) *c,
            inout(zmm_reg) *d, inout(zmm_reg) *e, inout(zmm_reg) *f,
            inout(zmm_reg) u, inout(zmm_reg) v,
            options(nomem, nostack, preserves_flags),
        );
    }
    (x[i], x[j]) = (u, v);
}

/// A complete transposition. (The compiler would not inline a loop.)
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(mut x: [__m512i; PACKETS]) -> [__m512i; PACKETS] {
    macro_rules! quarters {
        ($($quarter:literal)*) => {$(
            exchange::<$quarter, 0>(&mut x);
            exchange::<$quarter, 1>(&mut x);
            exchange::<$quarter, 2>(&mut x);
        )*};
    }
    quarters!(0 1 2 3);
    x
}

/// The vector with the second half of the last block after the exchanges.
const LAST_HALF: usize = 7;

/// The halves of the four blocks, which the exchanges leave in another order.
#[inline]
#[target_feature(enable = "avx512f")]
fn blocks_of(x: [__m512i; PACKETS]) -> [[__m512i; 2]; 4] {
    [[x[0], x[1]], [x[4], x[5]], [x[2], x[3]], [x[6], x[7]]]
}

/// Reduces `h` fully, adds `s` and returns the tags.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn finish(h: Number, s_low: __m512i, s_high: __m512i) -> [[u8; TAG_LEN]; PACKETS] {
    let [mut a, mut b, mut c] = h;
    for _ in 0..2 {
        c = _mm512_add_epi64(c, _mm512_srli_epi64::<44>(b));
        b = _mm512_and_si512(b, all(LIMB_44));
        let carry = _mm512_srli_epi64::<42>(c);
        c = _mm512_and_si512(c, all(LIMB_42));
        a = _mm512_add_epi64(a, _mm512_add_epi64(carry, _mm512_slli_epi64::<2>(carry)));
        b = _mm512_add_epi64(b, _mm512_srli_epi64::<44>(a));
        a = _mm512_and_si512(a, all(LIMB_44));
    }
    c = _mm512_add_epi64(c, _mm512_srli_epi64::<44>(b));
    b = _mm512_and_si512(b, all(LIMB_44));

    // Selects h - (2^130 - 5) where it is not negative, which is where h + 5 reaches bit 130.
    let low = _mm512_add_epi64(a, all(5));
    let middle = _mm512_add_epi64(b, _mm512_srli_epi64::<44>(low));
    let high = _mm512_add_epi64(c, _mm512_srli_epi64::<44>(middle));
    let reaches = _mm512_test_epi64_mask(high, all(1 << 42));
    let a = _mm512_mask_and_epi64(a, reaches, low, all(LIMB_44));
    let b = _mm512_mask_and_epi64(b, reaches, middle, all(LIMB_44));
    let c = _mm512_mask_and_epi64(c, reaches, high, all(LIMB_42));

    let low = _mm512_or_si512(a, _mm512_slli_epi64::<44>(b));
    let high = _mm512_or_si512(_mm512_srli_epi64::<20>(b), _mm512_slli_epi64::<24>(c));
    let low = _mm512_add_epi64(low, s_low);
    let overflow = _mm512_cmplt_epu64_mask(low, s_low);
    let high = _mm512_add_epi64(high, s_high);
    let high = _mm512_mask_add_epi64(high, overflow, high, all(1));

    // Packets 0, 2, 4, 6 are in the even half, 1, 3, 5, 7 in the odd one.
    let mut tags = [[0; TAG_LEN]; PACKETS];
    for (odd, half) in [_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high)].into_iter().enumerate() {
        let mut bytes = [0; 64];
        store(&mut bytes, half);
        for (i, tag) in bytes.as_chunks::<TAG_LEN>().0.iter().enumerate() {
            tags[2 * i + odd] = *tag;
        }
    }
    tags
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_lanes(lanes: &[u64; PACKETS]) -> __m512i {
    // SAFETY: the array is 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

const _: () = assert!(PACKETS == 8);
