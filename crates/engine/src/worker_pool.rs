//! Which workers are active: one primary, and helpers while they are useful.
//!
//! At rest one worker waits on all receive queues and the others are parked. A worker that stays busy unparks another
//! if that one would get a core; a worker that finds nothing parks, unless it is the last active one. That one waits on
//! the receive queues, so a packet always wakes exactly one worker. [`crate::scaling`] says when.

use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, lock};

/// Nanoseconds for which a worker has to be busy before it unparks a helper: a shorter burst is over before a woken
/// worker has done anything for it.
pub const SCALE_UP_DELAY_MIN: u64 = 1_000_000;

/// The same after helpers proved useless: the search for a core then costs next to nothing.
pub const SCALE_UP_DELAY_MAX: u64 = 16 * SCALE_UP_DELAY_MIN;

/// A helper that stayed active for so many nanoseconds was worth its wake-up.
pub const USEFUL_MIN: u64 = 10 * SCALE_UP_DELAY_MIN;

/// The workers of one engine.
pub struct WorkerPool {
    scale_up_delay_min: u64,
    state: Mutex<PoolState>,
    unparked: Condvar,
    hints: Hints,
}

/// What workers read in every pass, without the lock. All of it may be a moment old.
struct Hints {
    active: AtomicUsize,
    /// For how many nanoseconds a worker has to be busy before it unparks a helper. Changed under the lock.
    scale_up_delay: AtomicU64,
    /// When the next attempt to unpark a helper is due, in nanoseconds.
    next_attempt: AtomicU64,
}

struct PoolState {
    active: usize,
    parked: usize,
    /// Wake-ups that no parked worker has taken yet.
    wakeups: usize,
    /// Nanoseconds; when a worker was unparked last.
    last_unpark: u64,
    ended: bool,
}

/// What a worker does next when it has found nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait on the receive queues: no other worker is active.
    Wait,
    /// Help: it was parked, and another worker unparked it.
    Help,
    /// End: the engine has ended.
    End,
}

impl WorkerPool {
    /// A pool with one active worker; the others begin with [`WorkerPool::park`]. `scale_up_delay` is
    /// [`SCALE_UP_DELAY_MIN`] except in tests.
    pub fn new(scale_up_delay: u64) -> Self {
        let state = PoolState { active: 1, parked: 0, wakeups: 0, last_unpark: 0, ended: false };
        let hints = Hints {
            active: AtomicUsize::new(1),
            scale_up_delay: AtomicU64::new(scale_up_delay),
            next_attempt: AtomicU64::new(0),
        };
        Self { scale_up_delay_min: scale_up_delay, state: Mutex::new(state), unparked: Condvar::new(), hints }
    }

    /// Parks an active worker at `now`, in nanoseconds, until another unparks it; the last active one returns at once.
    pub fn park_unless_last(&self, now: u64) -> Next {
        let mut state = lock(&self.state);
        if state.ended {
            return Next::End;
        }
        if state.active == 1 {
            return Next::Wait;
        }
        self.set_active(&mut state, |active| active - 1);
        // Time since the last wake-up approximates how long the extra worker was useful, whichever worker parks.
        match now.saturating_sub(state.last_unpark) {
            USEFUL_MIN.. => self.hints.scale_up_delay.store(self.scale_up_delay_min, Ordering::Relaxed),
            _ => self.double_delay(&state),
        }
        self.sleep(state)
    }

    /// Parks a worker that is not active yet.
    pub fn park(&self) -> Next {
        self.sleep(lock(&self.state))
    }

    fn sleep(&self, mut state: MutexGuard<'_, PoolState>) -> Next {
        state.parked += 1;
        while state.wakeups == 0 && !state.ended {
            state = self.unparked.wait(state).expect("no thread panics while it is parked");
        }
        state.parked -= 1;
        if state.ended {
            return Next::End;
        }
        state.wakeups -= 1;
        self.set_active(&mut state, |active| active + 1);
        Next::Help
    }

    fn set_active(&self, state: &mut PoolState, change: impl Fn(usize) -> usize) {
        state.active = change(state.active);
        self.hints.active.store(state.active, Ordering::Relaxed);
    }

    /// Once per delay, for one of the workers: it may try to unpark a helper.
    pub fn claim_attempt(&self, now: u64) -> bool {
        let due = self.hints.next_attempt.load(Ordering::Relaxed);
        let next = now.saturating_add(self.scale_up_delay());
        // Relaxed: it protects nothing.
        now >= due && self.hints.next_attempt.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Unparks one worker at `now`; false if all are active or waking up.
    pub fn unpark(&self, now: u64) -> bool {
        let mut state = lock(&self.state);
        let available = state.parked > state.wakeups;
        if available {
            state.wakeups += 1;
            state.last_unpark = now;
            self.unparked.notify_one();
        }
        available
    }

    /// There was no core for a helper: doubles the delay before the next attempt to unpark one.
    pub fn back_off(&self) {
        self.double_delay(&lock(&self.state));
    }

    fn double_delay(&self, _state: &PoolState) {
        let delay = SCALE_UP_DELAY_MAX.min(self.scale_up_delay() * 2);
        self.hints.scale_up_delay.store(delay, Ordering::Relaxed);
    }

    /// For how many nanoseconds a worker has to be busy before it unparks a helper.
    pub fn scale_up_delay(&self) -> u64 {
        self.hints.scale_up_delay.load(Ordering::Relaxed)
    }

    /// How many workers are active.
    pub fn active(&self) -> usize {
        self.hints.active.load(Ordering::Relaxed)
    }

    /// Ends all workers.
    pub fn end(&self) {
        lock(&self.state).ended = true;
        self.unparked.notify_all();
    }
}

/// For how long a worker has found work without a break.
#[derive(Default)]
pub struct BusyTimer {
    since: Option<u64>,
}

impl BusyTimer {
    /// There was work at `now`, in nanoseconds. True once the worker has been busy for `delay`, and again after each
    /// further `delay`.
    pub fn elapsed(&mut self, now: u64, delay: u64) -> bool {
        let since = *self.since.get_or_insert(now);
        let elapsed = now.saturating_sub(since) >= delay;
        if elapsed {
            self.since = Some(now);
        }
        elapsed
    }

    /// There was no work.
    pub fn reset(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_timer_elapses_after_a_delay_without_a_break() {
        let mut busy = BusyTimer::default();
        assert!(!busy.elapsed(5, 10));
        assert!(!busy.elapsed(14, 10));
        assert!(busy.elapsed(15, 10));
        assert!(!busy.elapsed(24, 10), "once per delay");
        assert!(busy.elapsed(25, 10));
        busy.reset();
        assert!(!busy.elapsed(1000, 10));
    }

    #[test]
    fn the_last_active_worker_waits_on_the_receive_queues() {
        let pool = WorkerPool::new(SCALE_UP_DELAY_MIN);
        assert_eq!(pool.park_unless_last(0), Next::Wait);
        assert!(!pool.unpark(0), "no worker is parked");
        pool.end();
        assert_eq!(pool.park_unless_last(0), Next::End);
    }

    #[test]
    fn the_delay_grows_while_helpers_are_useless() {
        let pool = WorkerPool::new(SCALE_UP_DELAY_MIN);
        let delay_after = |active_for| {
            lock(&pool.state).active += 1;
            lock(&pool.state).wakeups += 1;
            lock(&pool.state).last_unpark = 1_000;
            assert_eq!(pool.park_unless_last(1_000 + active_for), Next::Help);
            lock(&pool.state).active = 1;
            pool.scale_up_delay()
        };
        assert_eq!(delay_after(0), 2 * SCALE_UP_DELAY_MIN);
        assert_eq!(delay_after(0), 4 * SCALE_UP_DELAY_MIN);
        assert_eq!(delay_after(USEFUL_MIN), SCALE_UP_DELAY_MIN);
        (0..20).for_each(|_| pool.back_off());
        assert_eq!(pool.scale_up_delay(), SCALE_UP_DELAY_MAX);
    }

    #[test]
    fn one_attempt_per_delay_is_claimed_whoever_is_busy() {
        let pool = WorkerPool::new(SCALE_UP_DELAY_MIN);
        let start = 5 * SCALE_UP_DELAY_MIN;
        assert!(pool.claim_attempt(start));
        assert!(!pool.claim_attempt(start + SCALE_UP_DELAY_MIN - 1));
        pool.back_off();
        assert!(pool.claim_attempt(start + SCALE_UP_DELAY_MIN), "the delay that was in force");
        assert!(!pool.claim_attempt(start + 3 * SCALE_UP_DELAY_MIN - 1));
        assert!(pool.claim_attempt(start + 3 * SCALE_UP_DELAY_MIN));
    }
}
