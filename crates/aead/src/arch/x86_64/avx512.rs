//! The AVX-512F kernel: sixteen blocks of ChaCha20 side by side, and room for scalar work between their half rounds.
//!
//! Register `i` of a set of sixteen holds word `i` of sixteen blocks, so a quarter round needs no shuffle and, with
//! `vprold`, no spare register. Two sets fill the register file exactly, and eight independent quarter rounds hide each
//! other's latency: so `avx512_ifma`, which has no scalar work, computes them.
//!
//! For small batches each vector holds a row of four blocks' states: fewer independent operations, but fewer
//! instructions, each dependent on the one before.
//!
//! Control flow depends on public lengths only. `crate::interleaved` and `crate::side_by_side` decide which blocks
//! share a call; `crate::choose` creates the token.

use core::arch::asm;
use core::arch::x86_64::*;

use super::scalar_poly1305;
use crate::choose::HaveAvx512F;
use crate::interleaved::HALF_ROUNDS;
use crate::poly1305::Poly1305;
use crate::portable::chacha20::SIGMA;
use crate::side_by_side;
use crate::vector_kernel::{
    self, InterleavedKernel, KeyWords, SMALL_BLOCKS, ScalarWork, SmallKeystream, VectorKernel, packets,
};
use crate::{BLOCK_LEN, Slot};

/// Vectors of 64 bytes in a pass: one per block.
const LANES: usize = 16;

impl VectorKernel for HaveAvx512F {
    // 448 bytes of text take 0.75 to 0.83 times as long as with ring.
    const MAX_SINGLE_PACKET_BLOCKS: usize = SMALL_BLOCKS;

    // Two packets of 256 to 9000 bytes take 0.67 to 0.94 times as long as with ring.
    fn min_packets(_longest: usize) -> usize {
        2
    }

    fn apply(self, text: &mut [u8], keystream: &[u8]) {
        // SAFETY: the token exists only if CPUID and XCR0 say that AVX-512 F, BW and VL, and BMI2 may be used
        // (`choose::HaveAvx512F::detect`).
        unsafe { apply(text, keystream) }
    }

    fn keystream_small(self, key: &KeyWords, batch: &[Slot], count: usize, out: &mut SmallKeystream) {
        // SAFETY: as in `apply`.
        unsafe { if count > 4 { rounds_by_row::<2>(key, batch, out) } else { rounds_by_row::<1>(key, batch, out) } }
    }

    fn clear_registers(self) {
        // SAFETY: the token proves that AVX-512 may be used; every written register is declared as clobbered.
        // (`vzeroall` clears only the first sixteen.)
        unsafe {
            asm!(
                "vzeroall",
                "vpxord zmm16, zmm16, zmm16",
                "vpxord zmm17, zmm17, zmm17",
                "vpxord zmm18, zmm18, zmm18",
                "vpxord zmm19, zmm19, zmm19",
                "vpxord zmm20, zmm20, zmm20",
                "vpxord zmm21, zmm21, zmm21",
                "vpxord zmm22, zmm22, zmm22",
                "vpxord zmm23, zmm23, zmm23",
                "vpxord zmm24, zmm24, zmm24",
                "vpxord zmm25, zmm25, zmm25",
                "vpxord zmm26, zmm26, zmm26",
                "vpxord zmm27, zmm27, zmm27",
                "vpxord zmm28, zmm28, zmm28",
                "vpxord zmm29, zmm29, zmm29",
                "vpxord zmm30, zmm30, zmm30",
                "vpxord zmm31, zmm31, zmm31",
                clobber_abi("C"),
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

impl InterleavedKernel<LANES> for HaveAvx512F {
    // 1420 bytes one by one take 1.26 times as long.
    const PAIRS: bool = true;

    #[inline]
    fn keystream(
        self,
        key: &KeyWords,
        blocks: &vector_kernel::Blocks<LANES>,
        out: &mut vector_kernel::Keystream<LANES>,
        work: impl ScalarWork,
    ) {
        // SAFETY: as in `apply`.
        unsafe { rounds_with_work(key, blocks, out, work) }
    }

    #[inline(always)]
    fn fold(self, poly: &mut Poly1305, block: &[u8; 16]) {
        scalar_poly1305::fold(self, poly, block);
    }

    #[inline(always)]
    fn fold_two(self, poly: &mut Poly1305, blocks: &[[u8; 16]; 2]) {
        scalar_poly1305::fold_two(self, poly, blocks);
    }

    #[inline(always)]
    fn fold_each(self, polys: &mut [Poly1305; 2], blocks: [&[u8; 16]; 2]) {
        scalar_poly1305::fold_each(self, polys, blocks);
    }

    #[inline(always)]
    fn fold_two_of_each(self, polys: &mut [Poly1305; 2], blocks: [&[[u8; 16]; 2]; 2]) {
        scalar_poly1305::fold_two_of_each(self, polys, blocks);
    }
}

/// What a pass of two sets takes and yields.
pub(super) type Blocks = vector_kernel::Blocks<{ side_by_side::LANES }>;
pub(super) type Keystream = vector_kernel::Keystream<{ side_by_side::LANES }>;

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn keystream(key: &KeyWords, blocks: &Blocks, count: usize, out: &mut Keystream) {
    if count > LANES { rounds::<2>(key, blocks, out) } else { rounds::<1>(key, blocks, out) }
}

/// A quarter of a quarter round: an addition, then a rotation of the XOR of the sum and a third word.
macro_rules! step {
    ($x:ident, $to:tt += $from:tt, $turned:tt <<<= $by:literal) => {
        for x in &mut $x {
            for i in 0..4 {
                x[$to[i]] = _mm512_add_epi32(x[$to[i]], x[$from[i]]);
            }
            for i in 0..4 {
                x[$turned[i]] = _mm512_xor_si512(x[$turned[i]], x[$to[i]]);
            }
            for i in 0..4 {
                x[$turned[i]] = _mm512_rol_epi32::<$by>(x[$turned[i]]);
            }
        }
    };
}

/// Four quarter rounds of every set, step by step, so that adjacent instructions are independent. A macro, because only
/// inlining keeps the state in registers, and nothing else guarantees it.
macro_rules! quarter_rounds {
    ($x:ident, $b:tt, $c:tt, $d:tt) => {
        step!($x, [0, 1, 2, 3] += $b, $d <<<= 16);
        step!($x, $c += $d, $b <<<= 12);
        step!($x, [0, 1, 2, 3] += $b, $d <<<= 8);
        step!($x, $c += $d, $b <<<= 7);
    };
}

/// The block function on sixteen blocks, with other work between.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2")]
fn rounds_with_work(
    key: &KeyWords,
    blocks: &vector_kernel::Blocks<LANES>,
    out: &mut vector_kernel::Keystream<LANES>,
    mut work: impl ScalarWork,
) {
    let mut x = [initial(key, blocks, 0)];
    for _ in 0..HALF_ROUNDS / 2 {
        quarter_rounds!(x, [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]);
        work.some();
        quarter_rounds!(x, [5, 6, 7, 4], [10, 11, 8, 9], [15, 12, 13, 14]);
        work.some();
    }
    let [mut x] = x;
    for (word, start) in x.iter_mut().zip(initial(key, blocks, 0)) {
        *word = _mm512_add_epi32(*word, start);
    }
    for (row, out) in transpose_words(&x).into_iter().zip(&mut out.0) {
        store(out, row);
    }
}

/// The block function on `SETS` times sixteen blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn rounds<const SETS: usize>(key: &KeyWords, blocks: &Blocks, out: &mut Keystream) {
    let mut x = [[_mm512_setzero_si512(); 16]; SETS];
    for (set, x) in x.iter_mut().enumerate() {
        *x = initial(key, blocks, set);
    }
    for _ in 0..10 {
        quarter_rounds!(x, [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]);
        quarter_rounds!(x, [5, 6, 7, 4], [10, 11, 8, 9], [15, 12, 13, 14]);
    }
    let (out, _) = out.0.as_chunks_mut::<LANES>();
    for (set, x) in x.iter_mut().enumerate() {
        for (word, start) in x.iter_mut().zip(initial(key, blocks, set)) {
            *word = _mm512_add_epi32(*word, start);
        }
        for (row, out) in transpose_words(x).into_iter().zip(&mut out[set]) {
            store(out, row);
        }
    }
}

/// The state before the first round: word `i` of sixteen blocks in vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn initial<const ALL: usize>(key: &KeyWords, blocks: &vector_kernel::Blocks<ALL>, set: usize) -> [__m512i; 16] {
    let mut x = [_mm512_setzero_si512(); 16];
    for i in 0..4 {
        x[i] = _mm512_set1_epi32(SIGMA[i] as i32);
    }
    for i in 0..8 {
        x[4 + i] = _mm512_set1_epi32(key.0[i] as i32);
    }
    x[12] = load_words(&blocks.counter.as_chunks::<LANES>().0[set]);
    x[14] = load_words(&blocks.nonce_low.as_chunks::<LANES>().0[set]);
    x[15] = load_words(&blocks.nonce_high.as_chunks::<LANES>().0[set]);
    x
}

/// Transposes word `i` of sixteen blocks in vector `i` to block `i` in vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn transpose_words(x: &[__m512i; 16]) -> [__m512i; 16] {
    let mut pairs = *x;
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    let mut quads = pairs;
    for i in 0..4 {
        quads[4 * i] = _mm512_unpacklo_epi64(pairs[4 * i], pairs[4 * i + 2]);
        quads[4 * i + 1] = _mm512_unpackhi_epi64(pairs[4 * i], pairs[4 * i + 2]);
        quads[4 * i + 2] = _mm512_unpacklo_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
        quads[4 * i + 3] = _mm512_unpackhi_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
    }
    let mut rows = quads;
    for i in 0..4 {
        let low = _mm512_shuffle_i32x4::<0x44>(quads[i], quads[4 + i]);
        let high = _mm512_shuffle_i32x4::<0xee>(quads[i], quads[4 + i]);
        let low2 = _mm512_shuffle_i32x4::<0x44>(quads[8 + i], quads[12 + i]);
        let high2 = _mm512_shuffle_i32x4::<0xee>(quads[8 + i], quads[12 + i]);
        rows[i] = _mm512_shuffle_i32x4::<0x88>(low, low2);
        rows[4 + i] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
        rows[8 + i] = _mm512_shuffle_i32x4::<0x88>(high, high2);
        rows[12 + i] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
    }
    rows
}

/// A quarter round of every set, on four columns at once, because vectors are rows.
macro_rules! quarter_round_of_rows {
    ($x:ident) => {
        step_of_rows!($x, 0 += 1, 3 <<<= 16);
        step_of_rows!($x, 2 += 3, 1 <<<= 12);
        step_of_rows!($x, 0 += 1, 3 <<<= 8);
        step_of_rows!($x, 2 += 3, 1 <<<= 7);
    };
}

macro_rules! step_of_rows {
    ($x:ident, $to:literal += $from:literal, $turned:literal <<<= $by:literal) => {
        for x in &mut $x {
            x[$to] = _mm512_add_epi32(x[$to], x[$from]);
            x[$turned] = _mm512_rol_epi32::<$by>(_mm512_xor_si512(x[$turned], x[$to]));
        }
    };
}

/// Rotates three rows of every set and leaves the second, on which the next step depends.
macro_rules! turn_rows {
    ($x:ident, $first:literal, $third:literal, $fourth:literal) => {
        for x in &mut $x {
            x[0] = _mm512_shuffle_epi32::<$first>(x[0]);
            x[2] = _mm512_shuffle_epi32::<$third>(x[2]);
            x[3] = _mm512_shuffle_epi32::<$fourth>(x[3]);
        }
    };
}

/// The block function on the first `SETS` times four blocks, with a row of their states in each vector.
#[target_feature(enable = "avx512f")]
fn rounds_by_row<const SETS: usize>(key: &KeyWords, batch: &[Slot], out: &mut SmallKeystream) {
    let (halves, _) = key.0.as_chunks();
    let mut start = [[load_row(&SIGMA), load_row(&halves[0]), load_row(&halves[1]), all(0)]; SETS];
    for (start, last) in start.iter_mut().zip(last_rows::<SETS>(batch)) {
        start[3] = last;
    }
    let mut x = start;
    for _ in 0..10 {
        quarter_round_of_rows!(x);
        turn_rows!(x, 0x93, 0x39, 0x4e);
        quarter_round_of_rows!(x);
        turn_rows!(x, 0x39, 0x93, 0x4e);
    }
    for ((out, x), start) in out.as_chunks_mut::<4>().0.iter_mut().zip(x).zip(start) {
        let [a, b, c, d] = core::array::from_fn(|i| _mm512_add_epi32(x[i], start[i]));
        let (low, low2) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        let (high, high2) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
        store(&mut out[0], _mm512_shuffle_i32x4::<0x88>(low, low2));
        store(&mut out[1], _mm512_shuffle_i32x4::<0xdd>(low, low2));
        store(&mut out[2], _mm512_shuffle_i32x4::<0x88>(high, high2));
        store(&mut out[3], _mm512_shuffle_i32x4::<0xdd>(high, high2));
    }
}

/// The rows that differ between blocks: the block's number within its packet, and the packet's nonce.
#[inline]
#[target_feature(enable = "avx512f")]
fn last_rows<const SETS: usize>(batch: &[Slot]) -> [__m512i; SETS] {
    let mut rows = [all(0); SETS];
    // Each packet is assigned all blocks from its first on; the next packet then overwrites its own.
    for (first, slot) in packets(batch) {
        let row = _mm512_broadcast_i32x4(_mm_set_epi64x(slot.counter as i64, -(first as i64)));
        let from = u16::MAX << (2 * first);
        for (set, rows) in rows.iter_mut().enumerate() {
            *rows = _mm512_mask_mov_epi64(*rows, (from >> (8 * set)) as u8, row);
        }
    }
    for (rows, first) in rows.iter_mut().zip((0..).step_by(4)) {
        *rows = _mm512_add_epi64(*rows, _mm512_setr_epi64(first, 0, first + 1, 0, first + 2, 0, first + 3, 0));
    }
    rows
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn apply(text: &mut [u8], keystream: &[u8]) {
    let (whole, rest) = text.as_chunks_mut::<BLOCK_LEN>();
    let (blocks, last) = keystream.as_chunks::<BLOCK_LEN>();
    for (block, text) in blocks.iter().zip(whole.iter_mut()) {
        store(text, _mm512_xor_si512(load(text), load(block)));
    }
    if !rest.is_empty() {
        let block = blocks.get(whole.len()).map_or(last, |block| block.as_slice());
        let text = _mm512_xor_si512(load_part(rest), load_part(&block[..rest.len()]));
        store_part(rest, text);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn all(value: u64) -> __m512i {
    _mm512_set1_epi64(value as i64)
}

/// A row of a state, four times.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_row(words: &[u32; 4]) -> __m512i {
    // SAFETY: the array is 16 readable bytes; the load needs no alignment.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(words.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_words(words: &[u32; LANES]) -> __m512i {
    // SAFETY: the array is 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store(bytes: &mut [u8; 64], x: __m512i) {
    // SAFETY: the array is 64 writable bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), x) }
}

/// 64 bytes that overlap a slice of `len` bytes, or are outside of it.
pub(super) struct MaskedChunk {
    pub(super) len: usize,
    at: isize,
    inside: __mmask64,
}

impl MaskedChunk {
    #[inline]
    pub(super) fn new(len: usize, at: isize) -> Self {
        let start = (-at).clamp(0, 64) as u32;
        let end = (len as isize - at).clamp(0, 64) as u32;
        Self { len, at, inside: u64::MAX.unbounded_shl(start) & !u64::MAX.unbounded_shl(end) }
    }
}

/// The bytes of the slice in the chunk, and zeros outside of the slice.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn load_chunk(bytes: &[u8], chunk: &MaskedChunk) -> __m512i {
    assert!(bytes.len() == chunk.len, "a chunk is computed for the length of its slice");
    // SAFETY: the mask selects only bytes of the slice, and a masked load accesses no others, so the pointer may be
    // outside of it.
    unsafe { _mm512_maskz_loadu_epi8(chunk.inside, bytes.as_ptr().wrapping_offset(chunk.at).cast()) }
}

/// Loads up to 64 bytes, followed by zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn load_part(bytes: &[u8]) -> __m512i {
    load_chunk(bytes, &MaskedChunk::new(bytes.len(), 0))
}

/// Stores as many bytes of the vector as the slice has.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_part(bytes: &mut [u8], x: __m512i) {
    let mask = !u64::MAX.unbounded_shl(bytes.len() as u32);
    assert!(bytes.len() <= 64, "a slice of at most 64 bytes");
    // SAFETY: the mask selects exactly the bytes of the slice, and a masked store accesses no others.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, x) }
}

const _: () = assert!(side_by_side::LANES == 2 * LANES);
