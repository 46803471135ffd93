//! The AVX2 kernel: eight blocks of ChaCha20 side by side, and room for scalar work between their half rounds.
//!
//! Register `i` holds word `i` of eight blocks, so a quarter round needs no shuffle of words. Rotations by whole
//! bytes are one byte shuffle, others two shifts. The half rounds are assembly, because the compiler would spill more
//! than the one word for which there is no register.
//!
//! For small batches each vector holds a row of two blocks' states: fewer independent operations, but fewer
//! instructions, each dependent on the one before.
//!
//! Control flow depends on public lengths only. `crate::interleaved` decides which blocks share a call;
//! `crate::choose` creates the token.

use core::arch::asm;
use core::arch::x86_64::*;
use core::hint::black_box;

use super::scalar_poly1305;
use crate::Slot;
use crate::choose::HaveAvx2;
use crate::interleaved::HALF_ROUNDS;
use crate::poly1305::Poly1305;
use crate::portable::chacha20::SIGMA;
use crate::vector_kernel::{
    Blocks, InterleavedKernel, KeyWords, Keystream, ScalarWork, SmallKeystream, VectorKernel, packets,
};

/// Blocks of ChaCha20 side by side.
const LANES: usize = 8;

impl VectorKernel for HaveAvx2 {
    // 64 bytes of text take 0.88 times as long as with ring; 65 to 192 bytes 1.0 to 1.05 times as long as with
    // aws-lc-rs.
    const MAX_SINGLE_PACKET_BLOCKS: usize = 2;

    // On Emerald Rapids eight packets of 65 to 1024 bytes take 0.58 to 0.95 times as long as with the library, eight of
    // 1420 0.95 to 1.04 times, 16 of 2048 0.96 to 1.01 times, and of 4000 1.0 to 1.04 times.
    fn min_packets(longest: usize) -> usize {
        match longest {
            0..=1024 => 8,
            1025..=2048 => 16,
            _ => usize::MAX,
        }
    }

    fn apply(self, text: &mut [u8], keystream: &[u8]) {
        // SAFETY: the token exists only if CPUID and XCR0 say that AVX2 and BMI2 may be used
        // (`choose::HaveAvx2::detect`).
        unsafe { apply(text, keystream) }
    }

    fn keystream_small(self, key: &KeyWords, batch: &[Slot], count: usize, out: &mut SmallKeystream) {
        // SAFETY: as in `apply`.
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

impl InterleavedKernel<LANES> for HaveAvx2 {
    // 1420 bytes in pairs take 1.05 times as long.
    const PAIRS: bool = false;

    #[inline]
    fn keystream(self, key: &KeyWords, blocks: &Blocks<LANES>, out: &mut Keystream<LANES>, work: impl ScalarWork) {
        // SAFETY: as in `apply`.
        unsafe { rounds(key, blocks, out, work) }
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

/// Byte shuffles that rotate words left by 16 and by 8 bits.
#[repr(align(32))]
struct ByteShuffles([[u8; 32]; 2]);

static BY_16_AND_8: ByteShuffles = ByteShuffles([turning(2), turning(3)]);

const fn turning(by: usize) -> [u8; 32] {
    let mut order = [0; 32];
    let mut at = 0;
    while at < 32 {
        order[at] = (at % 16 / 4 * 4 + (at + by) % 4) as u8;
        at += 1;
    }
    order
}

/// Half a round: four quarter rounds, step by step, so that adjacent instructions are independent. The fourth `c` is
/// word 11 of the state, in memory.
macro_rules! half_round {
    ($x:ident, $eleven:ident, [$($a:literal),*], [$($b:literal),*], [$($c:literal),*], [$($d:literal),*]) => {
        half_round!(@asm $x, $eleven, [$($a)*], [$($b)*], [$($c)*], [$($d)*])
    };
    (@asm $x:ident, $eleven:ident, [$a0:tt $a1:tt $a2:tt $a3:tt], [$b0:tt $b1:tt $b2:tt $b3:tt],
     [$c0:tt $c1:tt $c2:tt], [$d0:tt $d1:tt $d2:tt $d3:tt]) => {
        // SAFETY: reads the two shuffles, reads and writes word 11, all aligned to 32 bytes; AVX2 may be used.
        unsafe {
            asm!(
                add_xor_shuffle!("[{shuffles}]"),
                add_xor_rotate!("12", "20"),
                add_xor_shuffle!("[{shuffles} + 32]"),
                add_xor_rotate!("7", "25"),
                a0 = inout(ymm_reg) $x[$a0], a1 = inout(ymm_reg) $x[$a1],
                a2 = inout(ymm_reg) $x[$a2], a3 = inout(ymm_reg) $x[$a3],
                b0 = inout(ymm_reg) $x[$b0], b1 = inout(ymm_reg) $x[$b1],
                b2 = inout(ymm_reg) $x[$b2], b3 = inout(ymm_reg) $x[$b3],
                c0 = inout(ymm_reg) $x[$c0], c1 = inout(ymm_reg) $x[$c1], c2 = inout(ymm_reg) $x[$c2],
                d0 = inout(ymm_reg) $x[$d0], d1 = inout(ymm_reg) $x[$d1],
                d2 = inout(ymm_reg) $x[$d2], d3 = inout(ymm_reg) $x[$d3],
                t = out(ymm_reg) _,
                eleven = in(reg) &raw mut $eleven, shuffles = in(reg) &raw const BY_16_AND_8,
                options(nostack, preserves_flags),
            );
        }
    };
}

/// `a += b; d = (d ^ a)`, its bytes in the order of a shuffle.
macro_rules! add_xor_shuffle {
    ($shuffle:literal) => {
        concat!(
            "vpaddd {a0}, {a0}, {b0}\nvpaddd {a1}, {a1}, {b1}\nvpaddd {a2}, {a2}, {b2}\nvpaddd {a3}, {a3}, {b3}\n",
            "vpxor {d0}, {d0}, {a0}\nvpxor {d1}, {d1}, {a1}\nvpxor {d2}, {d2}, {a2}\nvpxor {d3}, {d3}, {a3}\n",
            "vpshufb {d0}, {d0}, ",
            $shuffle,
            "\nvpshufb {d1}, {d1}, ",
            $shuffle,
            "\n",
            "vpshufb {d2}, {d2}, ",
            $shuffle,
            "\nvpshufb {d3}, {d3}, ",
            $shuffle,
            "\n",
        )
    };
}

/// `c += d; b = (b ^ c)`, rotated.
macro_rules! add_xor_rotate {
    ($left:literal, $right:literal) => {
        concat!(
            "vpaddd {c0}, {c0}, {d0}\nvpaddd {c1}, {c1}, {d1}\nvpaddd {c2}, {c2}, {d2}\n",
            "vpaddd {t}, {d3}, [{eleven}]\nvmovdqa [{eleven}], {t}\n",
            "vpxor {b0}, {b0}, {c0}\nvpxor {b1}, {b1}, {c1}\nvpxor {b2}, {b2}, {c2}\nvpxor {b3}, {b3}, {t}\n",
            "vpslld {t}, {b0}, ",
            $left,
            "\nvpsrld {b0}, {b0}, ",
            $right,
            "\nvpor {b0}, {b0}, {t}\n",
            "vpslld {t}, {b1}, ",
            $left,
            "\nvpsrld {b1}, {b1}, ",
            $right,
            "\nvpor {b1}, {b1}, {t}\n",
            "vpslld {t}, {b2}, ",
            $left,
            "\nvpsrld {b2}, {b2}, ",
            $right,
            "\nvpor {b2}, {b2}, {t}\n",
            "vpslld {t}, {b3}, ",
            $left,
            "\nvpsrld {b3}, {b3}, ",
            $right,
            "\nvpor {b3}, {b3}, {t}\n",
        )
    };
}

/// The block function on eight blocks.
#[target_feature(enable = "avx2,bmi2")]
fn rounds(key: &KeyWords, blocks: &Blocks<LANES>, out: &mut Keystream<LANES>, mut work: impl ScalarWork) {
    let mut x = initial(key, blocks);
    let mut eleven = x[11];
    for _ in 0..HALF_ROUNDS / 2 {
        half_round!(x, eleven, [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10], [12, 13, 14, 15]);
        work.some();
        half_round!(x, eleven, [2, 3, 0, 1], [7, 4, 5, 6], [8, 9, 10], [13, 14, 15, 12]);
        work.some();
    }
    x[11] = eleven;
    for (word, start) in x.iter_mut().zip(initial(key, blocks)) {
        *word = _mm256_add_epi32(*word, start);
    }
    for (half, words) in x.as_chunks().0.iter().enumerate() {
        for (row, out) in transpose_words(words).into_iter().zip(&mut out.0) {
            store(&mut out.as_chunks_mut().0[half], row);
        }
    }
}

/// The state before the first round: word `i` of eight blocks in vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
fn initial(key: &KeyWords, blocks: &Blocks<LANES>) -> [__m256i; 16] {
    let mut x = [_mm256_setzero_si256(); 16];
    for (x, word) in x.iter_mut().zip(SIGMA.into_iter().chain(key.0)) {
        *x = _mm256_set1_epi32(word as i32);
    }
    x[12] = load_words(&blocks.counter);
    x[14] = load_words(&blocks.nonce_low);
    x[15] = load_words(&blocks.nonce_high);
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
    let [by_16, by_8] = &black_box(&BY_16_AND_8).0;
    let (by_16, by_8) = (load(by_16), load(by_8));
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

#[inline]
#[target_feature(enable = "avx2")]
fn all(value: u64) -> __m256i {
    _mm256_set1_epi64x(value as i64)
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
