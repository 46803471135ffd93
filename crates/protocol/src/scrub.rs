//! Wipes copies of secrets from the stack.
//!
//! A secret is wiped where it is dropped, but the frames it was moved through and spilled registers still
//! hold its bytes.

use core::hint::black_box;

/// More than the frames of a handshake take, including the library's X25519.
const DEPTH: usize = 32 << 10;

/// Runs `work`, which handles secrets, then overwrites the stack that it used. Takes half a microsecond; a key
/// agreement takes tens.
pub(crate) fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let result = in_own_frame(work);
    scrub_stack();
    result
}

/// Keeps the frame of `work` out of the caller's.
#[inline(never)]
fn in_own_frame<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn scrub_stack() {
    let mut frames = [0u8; DEPTH];
    black_box(&mut frames);
}
