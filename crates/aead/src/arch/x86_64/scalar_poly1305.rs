//! Blocks of Poly1305 in few scalar instructions, to stand between those of ChaCha20.
//!
//! Every block depends on the one before, so that the blocks of one packet take as long as their chain of
//! multiplications. Two packets have two chains, which the CPU works on at once if their instructions alternate.
//!
//! Assembly, because the compiler would pass `h` through the stack. It computes what [`Poly1305::fold`] does.

use core::arch::asm;
use core::mem::offset_of;

use crate::choose::HaveBmi2;
use crate::poly1305::{Factor, Poly1305};

/// `h = (h + block + 2^128) r`, with the block's address in `$text` and the `Poly1305` at `$poly`. h is in `$h0`, `$h1`
/// and `$h2` before, in `$h0`, `$out` and `$h2` afterwards. Where no `adc` follows, nothing carries: r's words are
/// below 2^60, and `$h2` is at most 6 with the block.
macro_rules! block {
    ($text:expr, $poly:literal, $h0:literal, $h1:literal, $h2:literal, $out:literal) => {
        concat!(
            concat!("add ", $h0, ", [", $text, "]\n"),
            concat!("adc ", $h1, ", [", $text, " + 8]\n"),
            concat!("adc ", $h2, ", 1\n"),
            concat!("mov rdx, ", $h0, "\n"),
            concat!("mulx ", $out, ", ", $h0, ", [", $poly, " + 40]\n"),
            concat!("mulx {t1}, {t0}, [", $poly, " + 48]\n"),
            concat!("mov rdx, ", $h1, "\n"),
            concat!("mulx {high}, {low}, [", $poly, " + 56]\n"),
            concat!("mulx ", $h1, ", rdx, [", $poly, " + 40]\n"),
            concat!("add ", $h0, ", {low}\n"),
            concat!("adc ", $out, ", {high}\n"),
            concat!("mov {low}, [", $poly, " + 56]\n"),
            concat!("imul {low}, ", $h2, "\n"),
            concat!("imul ", $h2, ", [", $poly, " + 40]\n"),
            "add {t0}, rdx\n",
            concat!("adc {t1}, ", $h1, "\n"),
            concat!("add ", $out, ", {low}\n"),
            concat!("add ", $out, ", {t0}\n"),
            concat!("adc ", $h2, ", {t1}\n"),
            // Bits above 2^130 wrap around, multiplied by five.
            concat!("mov {low}, ", $h2, "\n"),
            "shr {low}, 2\n",
            concat!("and ", $h2, ", 3\n"),
            "lea {low}, [{low} + 4 * {low}]\n",
            concat!("add ", $h0, ", {low}\n"),
            concat!("adc ", $out, ", 0\n"),
            concat!("adc ", $h2, ", 0\n"),
        )
    };
}

/// Blocks of one packet; `$h1` has the middle word of h in the end.
macro_rules! blocks {
    ($poly:ident, $blocks:ident, $h1:literal, $($block:expr),*) => {
        // SAFETY: reads the blocks, and the words of the `Poly1305`, whose places are asserted below; writes h. The
        // proof says that BMI2 may be used.
        unsafe {
            asm!(
                "mov {h0}, [{poly}]",
                "mov {h1}, [{poly} + 8]",
                "mov {h2}, [{poly} + 32]",
                $($block,)*
                "mov [{poly}], {h0}",
                concat!("mov [{poly} + 8], ", $h1),
                "mov [{poly} + 32], {h2}",
                poly = in(reg) $poly, blocks = in(reg) $blocks,
                h0 = out(reg) _, h1 = out(reg) _, h2 = out(reg) _, other = out(reg) _,
                t0 = out(reg) _, t1 = out(reg) _, high = out(reg) _, low = out(reg) _, out("rdx") _,
                options(nostack),
            )
        }
    };
}

/// Blocks of two packets in turn; `$g1` and `$h1` have the middle words of their h in the end.
macro_rules! blocks_of_two {
    ($polys:ident, $blocks:ident, $g1:literal, $h1:literal, $($a:expr, $b:expr),*) => {
        // SAFETY: reads the addresses of the blocks, the blocks, and the words of two adjacent `Poly1305`, whose size
        // and places are asserted below; writes their h. The proof says that BMI2 may be used.
        unsafe {
            asm!(
                "mov {g0}, [{polys}]",
                "mov {g1}, [{polys} + 8]",
                "mov {g2}, [{polys} + 32]",
                "mov {h0}, [{polys} + 64]",
                "mov {h1}, [{polys} + 72]",
                "mov {h2}, [{polys} + 96]",
                $(
                    "mov {low}, [{blocks}]",
                    $a,
                    "mov {low}, [{blocks} + 8]",
                    $b,
                )*
                "mov [{polys}], {g0}",
                concat!("mov [{polys} + 8], ", $g1),
                "mov [{polys} + 32], {g2}",
                "mov [{polys} + 64], {h0}",
                concat!("mov [{polys} + 72], ", $h1),
                "mov [{polys} + 96], {h2}",
                polys = in(reg) $polys, blocks = in(reg) &raw const $blocks,
                g0 = out(reg) _, g1 = out(reg) _, g2 = out(reg) _, other = out(reg) _,
                h0 = out(reg) _, h1 = out(reg) _, h2 = out(reg) _,
                t0 = out(reg) _, t1 = out(reg) _, high = out(reg) _, low = out(reg) _, out("rdx") _,
                options(nostack),
            )
        }
    };
}

/// Folds one block.
#[inline(always)]
pub(crate) fn fold(_proof: impl HaveBmi2, poly: &mut Poly1305, block: &[u8; 16]) {
    blocks!(poly, block, "{other}", block!("{blocks}", "{poly}", "{h0}", "{h1}", "{h2}", "{other}"));
}

/// Folds two blocks, in less time than one after the other.
#[inline(always)]
pub(crate) fn fold_two(_proof: impl HaveBmi2, poly: &mut Poly1305, blocks: &[[u8; 16]; 2]) {
    blocks!(
        poly,
        blocks,
        "{h1}",
        block!("{blocks}", "{poly}", "{h0}", "{h1}", "{h2}", "{other}"),
        block!("{blocks} + 16", "{poly}", "{h0}", "{other}", "{h2}", "{h1}")
    );
}

/// Folds a block of each of two packets.
#[inline(always)]
pub(crate) fn fold_each(_proof: impl HaveBmi2, polys: &mut [Poly1305; 2], blocks: [&[u8; 16]; 2]) {
    blocks_of_two!(
        polys,
        blocks,
        "{other}",
        "{g1}",
        block!("{low}", "{polys}", "{g0}", "{g1}", "{g2}", "{other}"),
        block!("{low}", "{polys} + 64", "{h0}", "{h1}", "{h2}", "{g1}")
    );
}

/// Folds two blocks of each of two packets.
#[inline(always)]
pub(crate) fn fold_two_of_each(_proof: impl HaveBmi2, polys: &mut [Poly1305; 2], blocks: [&[[u8; 16]; 2]; 2]) {
    blocks_of_two!(
        polys,
        blocks,
        "{h1}",
        "{other}",
        block!("{low}", "{polys}", "{g0}", "{g1}", "{g2}", "{other}"),
        block!("{low}", "{polys} + 64", "{h0}", "{h1}", "{h2}", "{g1}"),
        block!("{low} + 16", "{polys}", "{g0}", "{other}", "{g2}", "{h1}"),
        block!("{low} + 16", "{polys} + 64", "{h0}", "{g1}", "{h2}", "{other}")
    );
}

const _: () = assert!(size_of::<Poly1305>() == 64);
const _: () = assert!(offset_of!(Poly1305, low) == 0 && offset_of!(Poly1305, high) == 32);
const _: () = assert!(offset_of!(Poly1305, r) == 40 && offset_of!(Factor, low) == 0);
const _: () = assert!(offset_of!(Factor, high) == 8 && offset_of!(Factor, wrapped) == 16);
