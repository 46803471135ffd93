//! A value whose readers never wait for its writer (left-right, Ramalhete and Correia 2015).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use super::UNPOISONED;
use crate::sync::lock;

/// Two copies of a value: readers use the one that is not being changed. The writer waits for the readers that are
/// still using the copy that it is about to change; no new ones join them.
#[derive(Default)]
pub struct LeftRight<T> {
    copies: [Aligned<T>; 2],
    /// The index of the copy that readers use.
    current: AtomicUsize,
    /// One writer at a time.
    writer: Mutex<()>,
}

/// A copy on cache lines of its own: readers of one do not slow down the writer of the other.
#[derive(Default)]
#[repr(align(64))]
struct Aligned<T>(RwLock<T>);

impl<T> LeftRight<T> {
    /// Reads the current copy.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        loop {
            let current = self.current.load(Ordering::SeqCst);
            if let Ok(guard) = self.copies[current].0.try_read() {
                return guard;
            }
            // The writer locked it after our load, and before that made the other copy current.
            assert!(!self.copies[current].0.is_poisoned(), "{UNPOISONED}");
            std::hint::spin_loop();
        }
    }

    /// Makes the same change to both copies, so `change` must have the same result on both. Once it returns, every
    /// reader sees the change.
    pub fn write<R>(&self, mut change: impl FnMut(&mut T) -> R) -> R {
        let _writer = lock(&self.writer);
        let current = self.current.load(Ordering::SeqCst);
        change(&mut self.copies[1 - current].0.write().expect(UNPOISONED));
        self.current.store(1 - current, Ordering::SeqCst);
        change(&mut self.copies[current].0.write().expect(UNPOISONED))
    }
}
