//! Which workers are active: one primary, and helpers while they are useful.
//!
//! At rest one worker waits on all receive queues and the others are parked. A worker that stays busy while a core is
//! idle unparks another; a worker that finds nothing parks, unless it is the last active one. That one waits on the
//! receive queues, so a packet always wakes exactly one worker.

use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// Nanoseconds for which a worker has to be busy before it unparks a helper: a shorter burst is over before a woken
/// worker has done anything for it.
pub const SCALE_UP_DELAY_MIN: u64 = 1_000_000;

/// The same after helpers proved useless: the search for an idle core then costs next to nothing.
const SCALE_UP_DELAY_MAX: u64 = 16 * SCALE_UP_DELAY_MIN;

/// A helper that stayed active for so many nanoseconds was worth its wake-up.
const USEFUL_MIN: u64 = 10 * SCALE_UP_DELAY_MIN;

/// The workers of one engine.
pub struct WorkerPool {
    scale_up_delay_min: u64,
    state: Mutex<PoolState>,
    unparked: Condvar,
}

struct PoolState {
    active: usize,
    parked: usize,
    /// Wake-ups that no parked worker has taken yet.
    wakeups: usize,
    /// Nanoseconds; when a worker was unparked last.
    last_unpark: u64,
    scale_up_delay: u64,
    ended: bool,
}

/// When the next helper is unparked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleUpState {
    /// Only one worker is active.
    pub only_one_active: bool,
    /// For how many nanoseconds that worker has to be busy before it unparks a helper.
    pub delay: u64,
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
        let state = PoolState { active: 1, parked: 0, wakeups: 0, last_unpark: 0, scale_up_delay, ended: false };
        Self { scale_up_delay_min: scale_up_delay, state: Mutex::new(state), unparked: Condvar::new() }
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
        state.active -= 1;
        // Time since the last wake-up approximates how long the extra worker was useful, whichever worker parks.
        state.scale_up_delay = match now.saturating_sub(state.last_unpark) {
            USEFUL_MIN.. => self.scale_up_delay_min,
            _ => SCALE_UP_DELAY_MAX.min(state.scale_up_delay * 2),
        };
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
        state.active += 1;
        Next::Help
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

    /// No core was idle: doubles the delay before the next attempt to unpark a helper.
    pub fn back_off(&self) {
        let mut state = lock(&self.state);
        state.scale_up_delay = SCALE_UP_DELAY_MAX.min(state.scale_up_delay * 2);
    }

    /// Whether only one worker is active, and the delay before the next helper is unparked.
    pub fn scale_up_state(&self) -> ScaleUpState {
        let state = lock(&self.state);
        ScaleUpState { only_one_active: state.active == 1, delay: state.scale_up_delay }
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
            pool.scale_up_state().delay
        };
        assert_eq!(delay_after(0), 2 * SCALE_UP_DELAY_MIN);
        assert_eq!(delay_after(0), 4 * SCALE_UP_DELAY_MIN);
        assert_eq!(delay_after(USEFUL_MIN), SCALE_UP_DELAY_MIN);
        (0..20).for_each(|_| pool.back_off());
        assert_eq!(pool.scale_up_state(), ScaleUpState { only_one_active: true, delay: SCALE_UP_DELAY_MAX });
    }
}
