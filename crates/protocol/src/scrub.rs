//! Overwrites what secrets leave behind on the stack.
//!
//! A secret that wipes itself does so where it ends; whatever it was moved through, a callee's frame or a
//! register that was spilled, still holds its bytes.

use core::hint::black_box;

/// Deeper than the frames of a handshake, those of the library's curve among them.
const DEPTH: usize = 32 << 10;

/// Runs what handles secrets, then overwrites the stack that it took. Half a microsecond, beside the tens of
/// microseconds that an agreement takes.
pub(crate) fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let done = apart(work);
    scrub_stack();
    done
}

/// A frame of its own, so that nothing of `work` is in the caller's.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn scrub_stack() {
    let mut frames = [0u8; DEPTH];
    black_box(&mut frames);
}
