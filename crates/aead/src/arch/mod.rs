//! The vector kernels, one folder per architecture: the only unsafe code of the crate.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
