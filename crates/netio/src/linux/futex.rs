//! futex(2).

use std::sync::atomic::AtomicU32;

use rustix::thread::futex;

/// Sleeps until [`wake`], unless the word is another one; may return without a reason.
pub(crate) fn sleep(word: &AtomicU32, value: u32) {
    // An error says that the word is another one, or that a signal came.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
}

/// Wakes one thread that sleeps on the word.
pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}
