//! The AVX2 kernel: eight blocks of ChaCha20 side by side, Poly1305 of four packets side by side.
//!
//! **ChaCha20.** Register `i` holds word `i` of eight blocks, so a quarter round needs no shuffle of words.
//! Rotations by whole bytes are one byte shuffle, others two shifts.
//!
//! For small batches each vector holds a row of two blocks' states: fewer independent operations, but fewer
//! instructions, each dependent on the one before.
//!
//! **Poly1305.** Lane `i` of every vector belongs to packet `i`. A number is five limbs of 26 bits.
//! Four blocks are folded at a time, `h = (h + m0) r^4 + m1 r^3 + m2 r^2 + m3 r`, so that one carry
//! serves 64 bytes of each packet. Packets are aligned at their ends: a shorter one begins with
//! blocks of zeros, which leave `h = 0` unchanged.
//!
//! Control flow depends on public lengths only. `crate::batch` decides which blocks and packets share a call;
//! `crate::choose` creates the token.

use core::arch::asm;
use core::arch::x86_64::*;
use core::hint::black_box;

use crate::choose::HaveAvx2;
use crate::portable::{chacha20::SIGMA, poly1305};
use crate::vector_kernel::{
    Blocks, KeyWords, Keystream, OneTimeKey, PASS, SIDE_BY_SIDE, SmallKeystream, VectorKernel, packets,
};
use crate::{BLOCK_LEN, Slot, TAG_LEN};

/// Blocks of ChaCha20 side by side.
const LANES: usize = 8;

/// Packets of Poly1305 side by side.
const PACKETS: usize = 4;

impl VectorKernel for HaveAvx2 {
    const MIN_PACKETS: usize = 4;

    // 64 bytes of text take 0.88 times as long as with ring; 65 to 192 bytes 1.0 to 1.05 times as long as with
    // aws-lc-rs.
    const MAX_SINGLE_PACKET_BLOCKS: usize = 2;

    fn keystream(self, key: &KeyWords, blocks: &Blocks, count: usize, out: &mut Keystream) {
        // SAFETY: the token exists only if CPUID and XCR0 say that AVX2 may be used (`choose::HaveAvx2::detect`).
        unsafe { keystream(key, blocks, count, out) }
    }

    fn apply(self, text: &mut [u8], keystream: &[u8]) {
        // SAFETY: as in `keystream`.
        unsafe { apply(text, keystream) }
    }

    fn tags(
        self,
        keys: &[OneTimeKey; SIDE_BY_SIDE],
        texts: [&[u8]; SIDE_BY_SIDE],
        count: usize,
    ) -> [[u8; TAG_LEN]; SIDE_BY_SIDE] {
        let mut all = [[0; TAG_LEN]; SIDE_BY_SIDE];
        let sets = all.as_chunks_mut().0.iter_mut().zip(keys.as_chunks().0).zip(texts.as_chunks().0);
        for ((set, keys), texts) in sets.take(count.div_ceil(PACKETS)) {
            // SAFETY: as in `keystream`.
            *set = unsafe { tags(keys, texts) };
        }
        all
    }

    fn keystream_small(self, key: &KeyWords, batch: &[Slot], count: usize, out: &mut SmallKeystream) {
        // SAFETY: as in `keystream`.
        unsafe {
            match count {
                0..=2 => rounds_by_row::<1>(key, batch, out),
                3..=4 => rounds_by_row::<2>(key, batch, out),
                5..=6 => rounds_by_row::<3>(key, batch, out),
                _ => rounds_by_row::<4>(key, batch, out),
            }
        }
    }

    fn clear_registers(self) {
        // SAFETY: the token proves that AVX may be used; every written register is declared as clobbered.
        unsafe { asm!("vzeroall", clobber_abi("C"), options(nomem, nostack, preserves_flags)) }
    }
}

#[target_feature(enable = "avx2")]
fn keystream(key: &KeyWords, blocks: &Blocks, count: usize, out: &mut Keystream) {
    let (pairs, _) = out.0.as_chunks_mut::<{ 2 * LANES }>();
    for (out, pair) in pairs.iter_mut().zip(0..count.div_ceil(2 * LANES)) {
        if count > 2 * LANES * pair + LANES {
            rounds::<2>(key, blocks, 2 * pair, out);
        } else {
            rounds::<1>(key, blocks, 2 * pair, out);
        }
    }
}

/// Byte shuffles that rotate words left by 16 and by 8 bits.
static BY_16: [u8; 32] = turning(2);
static BY_8: [u8; 32] = turning(3);

const fn turning(by: usize) -> [u8; 32] {
    let mut order = [0; 32];
    let mut at = 0;
    while at < 32 {
        order[at] = (at % 16 / 4 * 4 + (at + by) % 4) as u8;
        at += 1;
    }
    order
}

/// A quarter of four quarter rounds of every set, step by step, so that adjacent instructions are independent. A
/// macro, because only inlining keeps the state in registers, and nothing else guarantees it.
macro_rules! step {
    ($x:ident, $to:tt += $from:tt, $turned:tt, $turn:expr) => {
        for x in &mut $x {
            for i in 0..4 {
                x[$to[i]] = _mm256_add_epi32(x[$to[i]], x[$from[i]]);
            }
            for i in 0..4 {
                x[$turned[i]] = _mm256_xor_si256(x[$turned[i]], x[$to[i]]);
            }
            for i in 0..4 {
                x[$turned[i]] = $turn(x[$turned[i]]);
            }
        }
    };
}

/// Four quarter rounds of every set, whose first words are words 0 to 3.
macro_rules! quarter_rounds {
    ($x:ident, $by_16:ident, $by_8:ident, $b:tt, $c:tt, $d:tt) => {
        step!($x, [0, 1, 2, 3] += $b, $d, |x| _mm256_shuffle_epi8(x, $by_16));
        step!($x, $c += $d, $b, |x| _mm256_or_si256(_mm256_slli_epi32::<12>(x), _mm256_srli_epi32::<20>(x)));
        step!($x, [0, 1, 2, 3] += $b, $d, |x| _mm256_shuffle_epi8(x, $by_8));
        step!($x, $c += $d, $b, |x| _mm256_or_si256(_mm256_slli_epi32::<7>(x), _mm256_srli_epi32::<25>(x)));
    };
}

/// The block function on `SETS` times eight blocks. Two sets do not fit into the registers, but spilling costs less than
/// waiting for the results of a single set.
#[target_feature(enable = "avx2")]
fn rounds<const SETS: usize>(key: &KeyWords, blocks: &Blocks, first: usize, out: &mut [[u8; BLOCK_LEN]; 2 * LANES]) {
    // If the compiler knew these constants, it would turn one shuffle into two.
    let (by_16, by_8) = (load(black_box(&BY_16)), load(black_box(&BY_8)));
    let mut x = [[_mm256_setzero_si256(); 16]; SETS];
    for (x, set) in x.iter_mut().zip(first..) {
        *x = initial(key, blocks, set);
    }
    for _ in 0..10 {
        quarter_rounds!(x, by_16, by_8, [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]);
        quarter_rounds!(x, by_16, by_8, [5, 6, 7, 4], [10, 11, 8, 9], [15, 12, 13, 14]);
    }
    for (set, x) in x.iter_mut().enumerate() {
        for (word, start) in x.iter_mut().zip(initial(key, blocks, first + set)) {
            *word = _mm256_add_epi32(*word, start);
        }
        let out = &mut out.as_chunks_mut::<LANES>().0[set];
        for (half, words) in x.as_chunks().0.iter().enumerate() {
            for (row, out) in transpose_words(words).into_iter().zip(out.iter_mut()) {
                store(&mut out.as_chunks_mut().0[half], row);
            }
        }
    }
}

/// The state before the first round: word `i` of eight blocks in vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
fn initial(key: &KeyWords, blocks: &Blocks, set: usize) -> [__m256i; 16] {
    let mut x = [_mm256_setzero_si256(); 16];
    for (x, word) in x.iter_mut().zip(SIGMA.into_iter().chain(key.0)) {
        *x = _mm256_set1_epi32(word as i32);
    }
    x[12] = load_words(&blocks.counter.as_chunks().0[set]);
    x[14] = load_words(&blocks.nonce_low.as_chunks().0[set]);
    x[15] = load_words(&blocks.nonce_high.as_chunks().0[set]);
    x
}

/// Transposes word `i` of eight blocks in vector `i` to eight words of block `i` in vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_words(x: &[__m256i; 8]) -> [__m256i; 8] {
    let mut pairs = *x;
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    let mut quads = pairs;
    for i in 0..2 {
        quads[4 * i] = _mm256_unpacklo_epi64(pairs[4 * i], pairs[4 * i + 2]);
        quads[4 * i + 1] = _mm256_unpackhi_epi64(pairs[4 * i], pairs[4 * i + 2]);
        quads[4 * i + 2] = _mm256_unpacklo_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
        quads[4 * i + 3] = _mm256_unpackhi_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
    }
    let mut rows = quads;
    for i in 0..4 {
        rows[i] = _mm256_permute2x128_si256::<0x20>(quads[i], quads[4 + i]);
        rows[4 + i] = _mm256_permute2x128_si256::<0x31>(quads[i], quads[4 + i]);
    }
    rows
}

/// A quarter round of every pair, on four columns at once, because vectors are rows.
macro_rules! quarter_round_of_rows {
    ($x:ident, $by_16:ident, $by_8:ident) => {
        step_of_rows!($x, 0 += 1, 3, |x| _mm256_shuffle_epi8(x, $by_16));
        step_of_rows!($x, 2 += 3, 1, |x| _mm256_or_si256(_mm256_slli_epi32::<12>(x), _mm256_srli_epi32::<20>(x)));
        step_of_rows!($x, 0 += 1, 3, |x| _mm256_shuffle_epi8(x, $by_8));
        step_of_rows!($x, 2 += 3, 1, |x| _mm256_or_si256(_mm256_slli_epi32::<7>(x), _mm256_srli_epi32::<25>(x)));
    };
}

macro_rules! step_of_rows {
    ($x:ident, $to:literal += $from:literal, $turned:literal, $turn:expr) => {
        for x in &mut $x {
            x[$to] = _mm256_add_epi32(x[$to], x[$from]);
            x[$turned] = $turn(_mm256_xor_si256(x[$turned], x[$to]));
        }
    };
}

/// Rotates three rows of every pair and leaves the second, on which the next step depends.
macro_rules! turn_rows {
    ($x:ident, $first:literal, $third:literal, $fourth:literal) => {
        for x in &mut $x {
            x[0] = _mm256_shuffle_epi32::<$first>(x[0]);
            x[2] = _mm256_shuffle_epi32::<$third>(x[2]);
            x[3] = _mm256_shuffle_epi32::<$fourth>(x[3]);
        }
    };
}

/// The block function on the first `PAIRS` pairs of blocks, with a row of their states in each vector.
#[target_feature(enable = "avx2")]
fn rounds_by_row<const PAIRS: usize>(key: &KeyWords, batch: &[Slot], out: &mut SmallKeystream) {
    // If the compiler knew these constants, it would turn one shuffle into two.
    let (by_16, by_8) = (load(black_box(&BY_16)), load(black_box(&BY_8)));
    let (halves, _) = key.0.as_chunks();
    let mut start = [[load_row(&SIGMA), load_row(&halves[0]), load_row(&halves[1]), all(0)]; PAIRS];
    for (start, last) in start.iter_mut().zip(last_rows::<PAIRS>(batch)) {
        start[3] = last;
    }
    let mut x = start;
    for _ in 0..10 {
        quarter_round_of_rows!(x, by_16, by_8);
        turn_rows!(x, 0x93, 0x39, 0x4e);
        quarter_round_of_rows!(x, by_16, by_8);
        turn_rows!(x, 0x39, 0x93, 0x4e);
    }
    for ((out, x), start) in out.as_chunks_mut::<2>().0.iter_mut().zip(x).zip(start) {
        let [a, b, c, d] = core::array::from_fn(|i| _mm256_add_epi32(x[i], start[i]));
        let (halves, _) = out.as_flattened_mut().as_chunks_mut();
        store(&mut halves[0], _mm256_permute2x128_si256::<0x20>(a, b));
        store(&mut halves[1], _mm256_permute2x128_si256::<0x20>(c, d));
        store(&mut halves[2], _mm256_permute2x128_si256::<0x31>(a, b));
        store(&mut halves[3], _mm256_permute2x128_si256::<0x31>(c, d));
    }
}

/// The rows that differ between blocks: the block's number within its packet, and the packet's nonce.
#[inline]
#[target_feature(enable = "avx2")]
fn last_rows<const PAIRS: usize>(batch: &[Slot]) -> [__m256i; PAIRS] {
    let mut rows = [all(0); PAIRS];
    // Each packet is assigned all blocks from its first on; the next packet then overwrites its own.
    for (first, slot) in packets(batch) {
        let row = _mm256_broadcastsi128_si256(_mm_set_epi64x(slot.counter as i64, -(first as i64)));
        for (rows, block) in rows.iter_mut().zip((0..).step_by(2)) {
            let blocks = _mm256_setr_epi64x(block, block, block + 1, block + 1);
            let before = _mm256_cmpgt_epi64(all(first as u64), blocks);
            *rows = _mm256_blendv_epi8(row, *rows, before);
        }
    }
    for (rows, block) in rows.iter_mut().zip((0..).step_by(2)) {
        *rows = _mm256_add_epi64(*rows, _mm256_setr_epi64x(block, 0, block + 1, 0));
    }
    rows
}

#[target_feature(enable = "avx2")]
fn apply(text: &mut [u8], keystream: &[u8]) {
    let (whole, rest) = text.as_chunks_mut::<32>();
    let (blocks, last) = keystream[..32 * whole.len() + rest.len()].as_chunks::<32>();
    for (text, block) in whole.iter_mut().zip(blocks) {
        store(text, _mm256_xor_si256(load(text), load(block)));
    }
    for (byte, key) in rest.iter_mut().zip(last) {
        *byte ^= key;
    }
}

/// A number modulo 2^130 - 5 in each lane: five limbs of 26 bits, not fully carried.
type Number = [__m256i; 5];

/// A factor, and its upper limbs times five for products that wrap around 2^130.
#[derive(Clone, Copy)]
struct Factor {
    limbs: Number,
    wrapped: Number,
}

#[inline]
#[target_feature(enable = "avx2")]
fn all(value: u64) -> __m256i {
    _mm256_set1_epi64x(value as i64)
}

const LIMB: u64 = (1 << 26) - 1;

/// Bit 128 of a block, in its top limb.
const TOP_BIT: u64 = 1 << 24;

/// Splits two halves of 16 bytes into limbs.
#[inline]
#[target_feature(enable = "avx2")]
fn split(low: __m256i, high: __m256i) -> Number {
    let middle = _mm256_or_si256(_mm256_srli_epi64::<52>(low), _mm256_slli_epi64::<12>(high));
    [
        _mm256_and_si256(low, all(LIMB)),
        _mm256_and_si256(_mm256_srli_epi64::<26>(low), all(LIMB)),
        _mm256_and_si256(middle, all(LIMB)),
        _mm256_and_si256(_mm256_srli_epi64::<14>(high), all(LIMB)),
        _mm256_srli_epi64::<40>(high),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn factor(limbs: Number) -> Factor {
    let mut wrapped = limbs;
    for limb in &mut wrapped {
        *limb = _mm256_add_epi64(*limb, _mm256_slli_epi64::<2>(*limb));
    }
    Factor { limbs, wrapped }
}

/// `sums += x * by`. Up to four products fit: each term is below 2^27 * 2^29, and a sum has twenty. The loop is over
/// factors, because they are loaded from memory and each is used up to five times.
#[inline]
#[target_feature(enable = "avx2")]
fn add_product(mut sums: Number, x: Number, by: &Factor) -> Number {
    for (shift, (limb, wrapped)) in by.limbs.into_iter().zip(by.wrapped).enumerate() {
        for (i, x) in x.into_iter().enumerate() {
            let weight = i + shift;
            let term = _mm256_mul_epu32(x, if weight < 5 { limb } else { wrapped });
            sums[weight % 5] = _mm256_add_epi64(sums[weight % 5], term);
        }
    }
    sums
}

/// Carries sums into limbs, along two chains at once. The carry out of the top limb is added to the lowest times five, as
/// 2^130 = 5. Limbs 1 and 4 may keep slightly more than 26 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn carried(sums: Number) -> Number {
    let [a, b, c, d, e] = sums;
    let b = _mm256_add_epi64(b, _mm256_srli_epi64::<26>(a));
    let e = _mm256_add_epi64(e, _mm256_srli_epi64::<26>(d));
    let (a, d) = (_mm256_and_si256(a, all(LIMB)), _mm256_and_si256(d, all(LIMB)));
    let c = _mm256_add_epi64(c, _mm256_srli_epi64::<26>(b));
    let around = _mm256_srli_epi64::<26>(e);
    let a = _mm256_add_epi64(_mm256_add_epi64(a, around), _mm256_slli_epi64::<2>(around));
    let (b, e) = (_mm256_and_si256(b, all(LIMB)), _mm256_and_si256(e, all(LIMB)));
    let d = _mm256_add_epi64(d, _mm256_srli_epi64::<26>(c));
    let b = _mm256_add_epi64(b, _mm256_srli_epi64::<26>(a));
    let (c, a) = (_mm256_and_si256(c, all(LIMB)), _mm256_and_si256(a, all(LIMB)));
    let e = _mm256_add_epi64(e, _mm256_srli_epi64::<26>(d));
    [a, b, c, _mm256_and_si256(d, all(LIMB)), e]
}

/// The powers of one r per lane, in the order in which blocks need them: `[r^4, r^3, r^2, r]`.
#[inline]
#[target_feature(enable = "avx2")]
fn powers(r: Number) -> [Factor; 4] {
    let one = factor(r);
    let square = multiply(r, &one);
    let two = factor(square);
    [factor(multiply(square, &two)), factor(multiply(square, &one)), two, one]
}

/// Not inlined, like `fold`.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn multiply(x: Number, by: &Factor) -> Number {
    carried(add_product([all(0); 5], x, by))
}

#[target_feature(enable = "avx2")]
fn tags(keys: &[OneTimeKey; PACKETS], texts: &[&[u8]; PACKETS]) -> [[u8; TAG_LEN]; PACKETS] {
    let mut rows = [all(0); PACKETS];
    for (row, key) in rows.iter_mut().zip(keys) {
        *row = load(key);
    }
    let [r_low, r_high, ..] = transpose_halves(rows);
    let r_low = _mm256_and_si256(r_low, all(0x0fff_fffc_0fff_ffff));
    let r_high = _mm256_and_si256(r_high, all(0x0fff_fffc_0fff_fffc));
    let powers = powers(split(r_low, r_high));

    // Blocks to authenticate: those of the text, padded with zeros, and the lengths.
    let mut blocks = [0; PACKETS];
    for (blocks, text) in blocks.iter_mut().zip(texts) {
        *blocks = text.len().div_ceil(16) + 1;
    }
    let most = blocks.iter().fold(0, |most, &n| most.max(n)).div_ceil(4);
    let whole = blocks.iter().fold(usize::MAX, |least, &n| least.min(n)) / 4;

    // Chunks that are complete blocks of text in every packet are read in place, others from a copy.
    let mut bodies = [[].as_slice(); PACKETS];
    for i in 0..PACKETS {
        let start = 16 * blocks[i].saturating_sub(4 * whole);
        bodies[i] = texts[i].get(start..).unwrap_or_default().as_chunks::<64>().0;
    }
    let mut h = [all(0); 5];
    for from_end in (1..=most).rev() {
        let in_place = whole.wrapping_sub(from_end);
        let (edge, top_bits);
        let rows = if from_end > 1 && from_end <= whole {
            top_bits = [all(TOP_BIT); 4];
            [&bodies[0][in_place], &bodies[1][in_place], &bodies[2][in_place], &bodies[3][in_place]]
        } else {
            (edge, top_bits) = copy_edge(texts, &blocks, from_end);
            edge.each_ref()
        };
        h = fold(h, &powers, rows, top_bits);
    }
    finish(h, keys)
}

/// Folds 64 bytes of each packet into `h`. Not inlined: the compiler would hoist the masks that `mul_epu32` implies for the
/// powers out of the loop, and no longer recognize 32-bit multiplications.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn fold(h: Number, powers: &[Factor; 4], rows: [&[u8; 64]; PACKETS], top_bits: [__m256i; 4]) -> Number {
    let (mut front, mut back) = ([all(0); PACKETS], [all(0); PACKETS]);
    for (i, row) in rows.into_iter().enumerate() {
        let (halves, _) = row.as_chunks::<32>();
        (front[i], back[i]) = (load(&halves[0]), load(&halves[1]));
    }
    let [a, b, c, d] = transpose_halves(back);
    let sums = add_product([all(0); 5], with_top(split(c, d), top_bits[3]), &powers[3]);
    let sums = add_product(sums, with_top(split(a, b), top_bits[2]), &powers[2]);
    let [a, b, c, d] = transpose_halves(front);
    let sums = add_product(sums, with_top(split(c, d), top_bits[1]), &powers[1]);
    let mut first = with_top(split(a, b), top_bits[0]);
    for (limb, h) in first.iter_mut().zip(h) {
        *limb = _mm256_add_epi64(*limb, h);
    }
    carried(add_product(sums, first, &powers[0]))
}

#[inline]
#[target_feature(enable = "avx2")]
fn with_top(mut block: Number, top_bit: __m256i) -> Number {
    // An addition, because the compiler would move the mask of `mul_epu32` past an `or`.
    block[4] = _mm256_add_epi64(block[4], top_bit);
    block
}

/// The four blocks that begin `4 * from_end` blocks before the ends of the packets, and their top bits. Blocks before the
/// beginning of a packet are zero without a top bit; the last block is the lengths (`from_end` is 1).
#[target_feature(enable = "avx2")]
fn copy_edge(
    texts: &[&[u8]; PACKETS],
    blocks: &[usize; PACKETS],
    from_end: usize,
) -> ([[u8; 64]; PACKETS], [__m256i; 4]) {
    let mut rows = [[0; 64]; PACKETS];
    let mut top_bits = [[0; PACKETS]; 4];
    for lane in 0..PACKETS {
        let missing = (4 * from_end).saturating_sub(blocks[lane]).min(4);
        let first = (blocks[lane] + missing).saturating_sub(4 * from_end);
        let text = texts[lane];
        if missing < 4 {
            let part = &text[16 * first..text.len().min(16 * (first + 4 - missing))];
            rows[lane][16 * missing..][..part.len()].copy_from_slice(part);
        }
        if from_end == 1 {
            rows[lane][56..].copy_from_slice(&(text.len() as u64).to_le_bytes());
        }
        for top_bits in &mut top_bits[missing..] {
            top_bits[lane] = TOP_BIT;
        }
    }
    let mut top = [all(0); 4];
    for (top, bits) in top.iter_mut().zip(&top_bits) {
        *top = load_lanes(bits);
    }
    (rows, top)
}

/// Transposes 32 bytes of packet `i` in vector `i` to half block `i` of four packets in vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_halves(rows: [__m256i; PACKETS]) -> [__m256i; 4] {
    let even = _mm256_unpacklo_epi64(rows[0], rows[1]);
    let odd = _mm256_unpackhi_epi64(rows[0], rows[1]);
    let even2 = _mm256_unpacklo_epi64(rows[2], rows[3]);
    let odd2 = _mm256_unpackhi_epi64(rows[2], rows[3]);
    [
        _mm256_permute2x128_si256::<0x20>(even, even2),
        _mm256_permute2x128_si256::<0x20>(odd, odd2),
        _mm256_permute2x128_si256::<0x31>(even, even2),
        _mm256_permute2x128_si256::<0x31>(odd, odd2),
    ]
}

/// Splits the lanes; the rest takes few instructions per packet and is shared with the portable code.
#[inline]
#[target_feature(enable = "avx2")]
fn finish(h: Number, keys: &[OneTimeKey; PACKETS]) -> [[u8; TAG_LEN]; PACKETS] {
    let mut limbs = [[0; PACKETS]; 5];
    for (limbs, h) in limbs.iter_mut().zip(h) {
        store_lanes(limbs, h);
    }
    let mut tags = [[0; TAG_LEN]; PACKETS];
    for (i, (tag, key)) in tags.iter_mut().zip(keys).enumerate() {
        let mut h = [0; 5];
        for (h, limb) in h.iter_mut().zip(&limbs) {
            *h = limb[i] as u32;
        }
        *tag = poly1305::finish(h, key.last_chunk().expect("s is the key's second half"));
    }
    tags
}

/// A row of a state, twice.
#[inline]
#[target_feature(enable = "avx2")]
fn load_row(words: &[u32; 4]) -> __m256i {
    // SAFETY: the array is 16 readable bytes; the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(words.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_words(words: &[u32; LANES]) -> __m256i {
    // SAFETY: the array is 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_lanes(lanes: &[u64; PACKETS]) -> __m256i {
    // SAFETY: the array is 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_lanes(lanes: &mut [u64; PACKETS], x: __m256i) {
    // SAFETY: the array is 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), x) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array is 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(bytes: &mut [u8; 32], x: __m256i) {
    // SAFETY: the array is 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), x) }
}

const _: () = assert!(PASS.is_multiple_of(2 * LANES) && SIDE_BY_SIDE.is_multiple_of(PACKETS));
