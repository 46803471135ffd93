//! Who of the workers is at work: a leader, and helpers while there is use for them.
//!
//! At rest one worker watches all sources and the others are away. A worker that finds its sources
//! hot and a core idle invites another one; a worker that finds nothing leaves, unless it is the last.
//! The last one watches, so that a packet always finds somebody and never wakes two.

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Nanoseconds for which the sources have to be hot before a helper is invited: a burst shorter
/// than that is over before a woken worker has done anything for it.
pub const SCALE_UP_DELAY_MIN: u64 = 1_000_000;

/// The same where helpers turned out to be of no use: what looking for an idle core costs is
/// lost in it.
pub const SCALE_UP_DELAY_MAX: u64 = 16 * SCALE_UP_DELAY_MIN;

/// Nanoseconds after which a helper was worth its invitation.
const WORTH: u64 = 10 * SCALE_UP_DELAY_MIN;

/// The workers of one engine.
pub struct WorkerPool {
    /// Nanoseconds for which the sources have to be hot at least.
    scale_up_delay_min: u64,
    state: Mutex<PoolState>,
    invited: Condvar,
}

struct PoolState {
    active: usize,
    away: usize,
    unparks: usize,
    /// When the last invitation was made, in nanoseconds.
    invited: u64,
    scale_up_delay: u64,
    over: bool,
}

/// What a worker that found nothing to do does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is the last one: it watches the sources.
    Watch,
    /// It was away and is invited to work.
    Work,
    /// The engine has ended.
    End,
}

impl WorkerPool {
    /// A pool whose first worker is at work; the others begin with [`WorkerPool::rest`]. `scale_up_delay` is
    /// [`SCALE_UP_DELAY_MIN`] but for tests.
    pub fn new(scale_up_delay: u64) -> Self {
        let state = PoolState { active: 1, away: 0, unparks: 0, invited: 0, scale_up_delay, over: false };
        Self { scale_up_delay_min: scale_up_delay, state: Mutex::new(state), invited: Condvar::new() }
    }

    /// Leaves work at `now`, in nanoseconds, and sleeps until invited, unless the worker is the last
    /// one.
    pub fn leave(&self, now: u64) -> Next {
        let mut state = self.state();
        if state.over {
            return Next::End;
        }
        if state.active == 1 {
            return Next::Watch;
        }
        state.active -= 1;
        // Whoever goes, there was work for one more since the last one was invited.
        state.scale_up_delay = match now.saturating_sub(state.invited) {
            WORTH.. => self.scale_up_delay_min,
            _ => SCALE_UP_DELAY_MAX.min(state.scale_up_delay * 2),
        };
        self.sleep(state)
    }

    /// Sleeps until invited.
    pub fn rest(&self) -> Next {
        self.sleep(self.state())
    }

    fn sleep(&self, mut state: MutexGuard<'_, PoolState>) -> Next {
        state.away += 1;
        while state.unparks == 0 && !state.over {
            state = self.invited.wait(state).expect("no thread panics while it is away");
        }
        state.away -= 1;
        if state.over {
            return Next::End;
        }
        state.unparks -= 1;
        state.active += 1;
        Next::Work
    }

    /// Wakes one worker that is away, at `now`; false if all are at work or on their way.
    pub fn unpark(&self, now: u64) -> bool {
        let mut state = self.state();
        let room = state.away > state.unparks;
        if room {
            state.unparks += 1;
            state.invited = now;
            self.invited.notify_one();
        }
        room
    }

    /// There was no core for a helper: the next one is thought of later.
    pub fn back_off(&self) {
        let mut state = self.state();
        state.scale_up_delay = SCALE_UP_DELAY_MAX.min(state.scale_up_delay * 2);
    }

    /// Whether the asking worker is the only one at work, and the nanoseconds for which its sources
    /// have to be hot.
    pub fn status(&self) -> (bool, u64) {
        let state = self.state();
        (state.active == 1, state.scale_up_delay)
    }

    /// Sends everybody home.
    pub fn end(&self) {
        self.state().over = true;
        self.invited.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().expect("no thread panics while it holds the state")
    }
}

/// For how long a worker has found work without a break.
#[derive(Default)]
pub struct BusyTimer {
    since: Option<u64>,
}

impl BusyTimer {
    /// There was work at `now`, in nanoseconds. True once it has been hot for `scale_up_delay`, and then
    /// again after as long.
    pub fn elapsed(&mut self, now: u64, scale_up_delay: u64) -> bool {
        let since = *self.since.get_or_insert(now);
        let hot = now.saturating_sub(since) >= scale_up_delay;
        if hot {
            self.since = Some(now);
        }
        hot
    }

    /// The sources ran dry.
    pub fn reset(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_hot_when_there_was_no_break_for_as_long_as_it_takes() {
        let mut busy = BusyTimer::default();
        assert!(!busy.elapsed(5, 10));
        assert!(!busy.elapsed(14, 10));
        assert!(busy.elapsed(15, 10));
        assert!(!busy.elapsed(24, 10), "asked for once in each span");
        assert!(busy.elapsed(25, 10));
        busy.reset();
        assert!(!busy.elapsed(1000, 10));
    }

    #[test]
    fn the_last_one_watches() {
        let pool = WorkerPool::new(SCALE_UP_DELAY_MIN);
        assert_eq!(pool.leave(0), Next::Watch);
        assert!(!pool.unpark(0), "nobody is away");
        pool.end();
        assert_eq!(pool.leave(0), Next::End);
    }

    #[test]
    fn followers_that_are_of_no_use_are_invited_less_often() {
        let pool = WorkerPool::new(SCALE_UP_DELAY_MIN);
        let lasted = |stay| {
            pool.state().active += 1;
            pool.state().unparks += 1;
            pool.state().invited = 1_000;
            assert_eq!(pool.leave(1_000 + stay), Next::Work);
            pool.state().active = 1;
            pool.status().1
        };
        assert_eq!(lasted(0), 2 * SCALE_UP_DELAY_MIN);
        assert_eq!(lasted(0), 4 * SCALE_UP_DELAY_MIN);
        assert_eq!(lasted(WORTH), SCALE_UP_DELAY_MIN);
        (0..20).for_each(|_| pool.back_off());
        assert_eq!(pool.status(), (true, SCALE_UP_DELAY_MAX));
    }
}
