//! Vector kernels for x86-64, one file per instruction set.

pub(crate) mod avx2;
pub(crate) mod avx512;
#[cfg(test)]
pub(crate) mod memcheck;
