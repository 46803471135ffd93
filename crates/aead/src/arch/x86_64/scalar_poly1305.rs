//! Blocks of Poly1305 in few scalar instructions, to stand between those of ChaCha20.
//!
//! Assembly, because every block depends on the one before: the compiler would pass `h` through the stack. It
//! computes what [`Poly1305::fold`] does.

use core::arch::asm;
use core::mem::offset_of;

use crate::choose::HaveBmi2;
use crate::poly1305::{Factor, Poly1305};

/// `h = (h + block + 2^128) r`, with h in `h0`, `$h1` and `h2` before and in `h0`, `$out` and `h2` afterwards.
/// Where no `adc` follows, nothing carries: r's words are below 2^60, and `h2` is at most 6 with the block.
macro_rules! block {
    ($at:literal, $h1:literal, $out:literal) => {
        concat!(
            "add {h0}, [{blocks} + ",
            $at,
            "]\n",
            "adc ",
            $h1,
            ", [{blocks} + ",
            $at,
            " + 8]\n",
            "adc {h2}, 1\n",
            "mov rdx, {h0}\n",
            "mulx ",
            $out,
            ", {h0}, [{poly} + 40]\n",
            "mulx {t1}, {t0}, [{poly} + 48]\n",
            "mov rdx, ",
            $h1,
            "\n",
            "mulx {high}, {low}, [{poly} + 56]\n",
            "mulx ",
            $h1,
            ", rdx, [{poly} + 40]\n",
            "add {h0}, {low}\n",
            "adc ",
            $out,
            ", {high}\n",
            "mov {low}, [{poly} + 56]\n",
            "imul {low}, {h2}\n",
            "imul {h2}, [{poly} + 40]\n",
            "add {t0}, rdx\n",
            "adc {t1}, ",
            $h1,
            "\n",
            "add ",
            $out,
            ", {low}\n",
            "add ",
            $out,
            ", {t0}\n",
            "adc {h2}, {t1}\n",
            // Bits above 2^130 wrap around, multiplied by five.
            "mov {low}, {h2}\n",
            "shr {low}, 2\n",
            "and {h2}, 3\n",
            "lea {low}, [{low} + 4 * {low}]\n",
            "add {h0}, {low}\n",
            "adc ",
            $out,
            ", 0\n",
            "adc {h2}, 0\n",
        )
    };
}

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
                h0 = out(reg) _, h1 = out(reg) _, h2 = out(reg) _,
                t0 = out(reg) _, t1 = out(reg) _, other = out(reg) _,
                high = out(reg) _, low = out(reg) _, out("rdx") _,
                options(nostack),
            )
        }
    };
}

/// Folds one block.
#[inline(always)]
pub(crate) fn fold(_proof: impl HaveBmi2, poly: &mut Poly1305, block: &[u8; 16]) {
    blocks!(poly, block, "{other}", block!("0", "{h1}", "{other}"));
}

/// Folds two blocks, in less time than one after the other.
#[inline(always)]
pub(crate) fn fold_two(_proof: impl HaveBmi2, poly: &mut Poly1305, blocks: &[[u8; 16]; 2]) {
    blocks!(poly, blocks, "{h1}", block!("0", "{h1}", "{other}"), block!("16", "{other}", "{h1}"));
}

const _: () = assert!(size_of::<Poly1305>() == 64);
const _: () = assert!(offset_of!(Poly1305, low) == 0 && offset_of!(Poly1305, high) == 32);
const _: () = assert!(offset_of!(Poly1305, r) == 40 && offset_of!(Factor, low) == 0);
const _: () = assert!(offset_of!(Factor, high) == 8 && offset_of!(Factor, wrapped) == 16);
