//! The instruction sets with kernels of their own: the only place with `unsafe`.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
