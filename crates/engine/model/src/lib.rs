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
    use loom::hint::spin_loop;
    use loom::sync::atomic::AtomicU32;
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};

    /// As many as a test has; few, because loom tracks every word that one may sleep on.
    pub const WORKERS_MAX: usize = 3;

    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("a thread panicked while it held the lock")
    }

    pub fn spin_lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        lock(mutex)
    }

    /// One look before a waiter sleeps: that is where a race would be.
    pub fn spin_until(mut done: impl FnMut() -> bool) -> bool {
        let is_done = done();
        if !is_done {
            spin_loop();
        }
        is_done
    }

    pub fn sleep_on(futex: &Futex, value: u32) {
        let guard = lock(&futex.queue);
        if futex.word.load(Ordering::Relaxed) == value {
            drop(futex.wakes.wait(guard).expect("no thread panics while it sleeps"));
        }
    }

    /// As futex(2): whoever goes to sleep compares the word under the lock that a waker takes.
    #[derive(Default)]
    pub struct Futex {
        word: AtomicU32,
        queue: Mutex<()>,
        wakes: Condvar,
    }

    impl Futex {
        pub fn load(&self, order: Ordering) -> u32 {
            self.word.load(order)
        }

        pub fn store(&self, value: u32, order: Ordering) {
            self.word.store(value, order);
        }

        pub fn change(&self, old: u32, new: u32, order: Ordering) -> bool {
            self.word.compare_exchange(old, new, order, Ordering::Relaxed).is_ok()
        }

        pub fn wake(&self) {
            drop(lock(&self.queue));
            self.wakes.notify_one();
        }
    }
}
