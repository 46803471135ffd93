//! The engine's [`sequencer`] and [`worker_pool`], the very files, built on loom's locks and atomics instead of std's.
//! The tests of this crate run them under all interleavings up to a number of preemptions.
//!
//! This is a crate of its own because a feature would choose between loom and std for the whole workspace at once.

#![forbid(unsafe_code)]

#[path = "../../src/sequencer.rs"]
pub mod sequencer;
#[path = "../../src/worker_pool.rs"]
pub mod worker_pool;

/// The engine's module of the same name, over loom.
mod sync {
    pub use loom::hint::spin_loop as spin;
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};

    /// One check before a waiter sleeps: that is where a race would be.
    pub const SPINS: u32 = 1;

    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("a thread panicked while it held the lock")
    }
}
