//! What [`crate::sequencer`] and [`crate::worker_pool`] are built of. Their model (`crates/engine/model`)
//! has a module of the same name with loom's.

pub use std::hint::spin_loop as spin;
pub use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
pub use std::sync::{Condvar, Mutex, MutexGuard};

/// How often a waiter looks whether its turn has come before it sleeps: some 20 microseconds where a
/// pause takes 140 cycles, as on Intel since Skylake, which is about what delivering one batch takes.
pub const SPINS: u32 = 400;
