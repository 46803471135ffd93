//! The primitives under [`crate::sequencer`] and [`crate::worker_pool`]. Their loom model
//! (`crates/engine/model`) has a module of the same name over loom's.

use std::cell::Cell;
pub use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
pub use std::sync::{Condvar, Mutex, MutexGuard};

use linerate_netio::clock;
pub use linerate_netio::wait::Futex;

/// The most workers of one engine. A dozen saturate one receive queue (`examples/many_cores`), but there are up to sixteen
/// queues with two directions each.
pub const WORKERS_MAX: usize = 32;

/// Nanoseconds for which a waiter spins before it sleeps: about what delivering one batch takes.
pub const SPIN_MAX: u64 = 20_000;

/// How often a waiter looks before it reads the clock. A pause is 40 nanoseconds on Intel since Skylake, and a few
/// elsewhere.
const LOOKS: u32 = 16;

thread_local! {
    static SLEPT: Cell<u64> = const { Cell::new(0) };
}

/// Locks a mutex. The engine's only way to lock one: a panic aborts the daemon, so no mutex is ever poisoned.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread panicked while it held the lock")
}

/// Locks a mutex that is usually held for some microseconds: spins first.
pub fn spin_lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let (mut looks, mut locked) = (0, None);
    // Rarely, because a failed attempt takes the cache line from the owner.
    let attempt = || {
        looks += 1;
        locked = if looks % LOOKS == 0 { mutex.try_lock().ok() } else { None };
        locked.is_some()
    };
    if spin_until(attempt) {
        return locked.expect("the last attempt locked it");
    }
    timed(|| lock(mutex))
}

/// Spins until `done`; false if that takes longer than [`SPIN_MAX`].
pub fn spin_until(mut done: impl FnMut() -> bool) -> bool {
    let mut until = None;
    loop {
        for _ in 0..LOOKS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        let now = clock::boottime();
        if now >= *until.get_or_insert(now + SPIN_MAX) {
            return false;
        }
    }
}

/// Lets a little time pass without giving up the core: less than a microsecond.
pub fn pause() {
    (0..LOOKS).for_each(|_| std::hint::spin_loop());
}

/// [`Futex::sleep_on`].
pub fn sleep_on(futex: &Futex, value: u32) {
    timed(|| futex.sleep_on(value));
}

/// For how many nanoseconds this thread has slept in this module.
pub fn slept() -> u64 {
    SLEPT.get()
}

fn timed<T>(sleep: impl FnOnce() -> T) -> T {
    let began = clock::boottime();
    let slept = sleep();
    SLEPT.set(SLEPT.get() + clock::boottime().saturating_sub(began));
    slept
}
