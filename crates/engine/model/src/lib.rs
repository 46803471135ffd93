//! The engine's [`sequencer`] and [`pool`], the very files, built of loom's locks and atomics instead
//! of std's. The tests of this crate run them under all interleavings up to a number of preemptions.
//!
//! A crate of its own, because what the engine is built of would otherwise have to be chosen for the
//! whole workspace at once.

#![forbid(unsafe_code)]

#[path = "../../src/sequencer.rs"]
pub mod sequencer;
#[path = "../../src/worker_pool.rs"]
pub mod worker_pool;

/// What the two are built of here.
mod sync {
    pub use loom::hint::spin_loop as spin;
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};

    /// A waiter looks once before it sleeps: that is where something can go wrong.
    pub const SPINS: u32 = 1;
}
