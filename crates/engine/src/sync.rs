//! The primitives under [`crate::sequencer`] and [`crate::worker_pool`]. Their loom model
//! (`crates/engine/model`) has a module of the same name over loom's.

pub use std::hint::spin_loop as spin;
pub use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
pub use std::sync::{Condvar, Mutex, MutexGuard};

/// Iterations a waiter spins before it sleeps: some 20 microseconds where `pause` takes 140 cycles, as on Intel
/// since Skylake, which is about what delivering one batch takes.
pub const SPINS: u32 = 400;

/// Locks a mutex. The engine's only way to lock one: a panic aborts the daemon, so no mutex is ever poisoned.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread panicked while it held the lock")
}
