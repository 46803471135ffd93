//! Threads that sleep on a word, by a mutex and a condition variable: macOS has had a call for it since 14.4 only
//! (os_sync_wait_on_address(3)).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where threads sleep. All that sleep on one word are at one place; words that share it wake each other's, too.
struct Place {
    lock: Mutex<()>,
    changed: Condvar,
}

impl Place {
    fn of(word: &AtomicU32) -> &'static Self {
        // Words are in structures of some size: the lowest bits of their addresses are alike.
        &PLACES[(word.as_ptr().addr() >> 6) % PLACES.len()]
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static PLACES: [Place; 64] = [const { Place { lock: Mutex::new(()), changed: Condvar::new() } }; 64];

/// Sleeps until [`wake`], unless the word is another one; may return without a reason.
pub(crate) fn sleep(word: &AtomicU32, value: u32) {
    let place = Place::of(word);
    let guard = place.lock();
    // Whoever changes the word locks afterwards, to wake: either that was before, and the change is seen here, or it
    // comes after this thread waits.
    if word.load(Ordering::Relaxed) == value {
        drop(place.changed.wait(guard));
    }
}

/// Wakes the threads that sleep on the word.
pub(crate) fn wake(word: &AtomicU32) {
    let place = Place::of(word);
    drop(place.lock());
    place.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_word_that_has_changed_is_not_slept_on() {
        sleep(&AtomicU32::new(1), 2);
    }

    #[test]
    fn no_wake_up_is_lost() {
        // Two threads take turns: one lost wake-up, and this never ends.
        let turn = AtomicU32::new(0);
        let play = |me: u32| {
            for _ in 0..2000 {
                while turn.load(Ordering::Relaxed) != me {
                    sleep(&turn, 1 - me);
                }
                turn.store(1 - me, Ordering::Relaxed);
                wake(&turn);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(0));
            scope.spawn(|| play(1));
        });
    }
}
