//! _umtx_op(2): sleeping on a word of this process.

use std::ptr;
use std::sync::atomic::AtomicU32;

/// Sleeps until [`wake`], unless the word is another one; may return without a reason.
pub(crate) fn sleep(word: &AtomicU32, value: u32) {
    let none = ptr::null_mut();
    // SAFETY: the word lives past the call, which only reads it; no time limit is given. An error says that a signal
    // came.
    unsafe { libc::_umtx_op(word.as_ptr().cast(), libc::UMTX_OP_WAIT_UINT_PRIVATE, value.into(), none, none) };
}

/// Wakes one thread that sleeps on the word.
pub(crate) fn wake(word: &AtomicU32) {
    let none = ptr::null_mut();
    // SAFETY: the word's address is only compared.
    unsafe { libc::_umtx_op(word.as_ptr().cast(), libc::UMTX_OP_WAKE_PRIVATE, 1, none, none) };
}
