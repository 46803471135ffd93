//! Vector kernels for x86-64, one file per instruction set, and the scalar Poly1305 that two of them interleave.

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod avx512_ifma;
#[cfg(test)]
pub(crate) mod memcheck;
pub(crate) mod scalar_poly1305;
