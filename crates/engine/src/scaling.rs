//! When a busy worker unparks another, and when a worker of several parks: by what it found, and by whether it had to
//! wait for a core. Pure; [`crate::worker`] reads the clocks.
//!
//! While a core is idle, a helper costs nobody anything. On a busy machine it competes, as any thread does, and up to
//! its [share](linerate_netio::cores::Cores::share) of the cores an engine may. Whether the scheduler grants a worker a
//! core shows in what it had to wait for one. How many threads the machine runs does not show it: most of them may be
//! bound to other cores.

use linerate_netio::cores::CpuLoad;

/// For how many nanoseconds a worker that found nothing looks again before it parks, while others are active: the gaps
/// in a load of a core and a half are shorter.
pub const LOOK_MAX: u64 = 200_000;

/// A worker begins to measure its time after so many nanoseconds of work: shorter bursts are not worth a system call.
const MEASURE_AFTER: u64 = 1_000_000;

/// For how long it measures before it concludes: several of the scheduler's slices (up to 3 ms), so that a worker that
/// takes turns with another thread is not judged by one of its own.
const MEASURE_FOR: u64 = 16_000_000;

/// What one of several threads waits for that a core was promised to: a quarter of its time and less.
const WAITING_LITTLE: u64 = 25;

/// From so many percent on a worker has less than a third of a core, and others wait for what it holds.
const WAITING_LONG: u64 = 67;

/// A worker that slept for other workers for so many percent of its time is one of too many at its receive queue.
const ASLEEP_LONG: u64 = 50;

/// A worker that found nothing for so many percent of its time is not needed.
const IDLE_LONG: u64 = 50;

/// A moment by three clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// The time.
    pub now: u64,
    /// For how long this thread has had a core.
    pub cpu: u64,
    /// For how long it has slept in order to wait for another worker.
    pub slept: u64,
    /// For how long it has slept for packets that were there at once.
    pub waited: u64,
}

/// How a worker spent its time, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeShares {
    /// Ready to run, without a core.
    pub waiting: u64,
    /// Asleep, until another worker had done its part.
    pub asleep: u64,
    /// Looking for packets that were not there.
    pub idle: u64,
}

/// How a worker spends its time, from one wake-up to the next.
#[derive(Default)]
pub struct TimeUse {
    due: Option<u64>,
    began: Option<Moment>,
    idle: u64,
    shares: Option<TimeShares>,
}

impl TimeUse {
    /// Whether [`TimeUse::conclude`] is due.
    pub fn is_due(&mut self, now: u64) -> bool {
        now >= *self.due.get_or_insert(now + MEASURE_AFTER)
    }

    /// Ends one measurement and begins the next.
    pub fn conclude(&mut self, at: Moment) {
        if let Some(began) = self.began.replace(at) {
            let percent = |time: u64| (time * 100).checked_div(at.now.saturating_sub(began.now)).unwrap_or(0);
            let slept = at.slept - began.slept;
            let spent = (at.cpu - began.cpu) + slept + (at.waited - began.waited);
            let waiting = at.now.saturating_sub(began.now + spent);
            self.shares =
                Some(TimeShares { waiting: percent(waiting), asleep: percent(slept), idle: percent(self.idle) });
        }
        self.idle = 0;
        self.due = Some(at.now + MEASURE_FOR);
    }

    /// The worker looked for packets in vain for so many nanoseconds.
    pub fn add_idle(&mut self, nanoseconds: u64) {
        self.idle += nanoseconds;
    }

    /// The last measurement since the worker was woken.
    pub fn shares(&self) -> Option<TimeShares> {
        self.shares
    }

    /// The worker was woken.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// The workers that are active, and how many are entitled to compete for a core.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    /// Active.
    pub active: usize,
    /// Entitled.
    pub share: usize,
}

/// Whether another worker would get a core, and find something to do there.
pub fn should_unpark(load: CpuLoad, workers: Workers, shares: Option<TimeShares>) -> bool {
    let has_cores = || shares.is_some_and(|shares| shares.waiting <= WAITING_LITTLE);
    let are_enough = shares.is_some_and(|shares| shares.asleep >= ASLEEP_LONG);
    !are_enough && (load == CpuLoad::Spare || workers.active < workers.share && has_cores())
}

/// Whether a worker of several leaves its core to others. `load` is only asked for where it matters.
pub fn should_leave(load: impl Fn() -> CpuLoad, workers: Workers, shares: Option<TimeShares>) -> bool {
    match workers.active {
        0 | 1 => false,
        active if active > workers.share => load() == CpuLoad::Overloaded,
        _ => shares.is_some_and(|shares| shares.waiting >= WAITING_LONG),
    }
}

/// Whether a worker of several that has found nothing for `idle` nanoseconds looks again.
pub fn should_look_again(idle: u64, load: impl Fn() -> CpuLoad, workers: Workers, shares: Option<TimeShares>) -> bool {
    workers.active > 1
        && idle < LOOK_MAX
        && shares.is_none_or(|shares| shares.idle < IDLE_LONG && shares.waiting <= WAITING_LITTLE)
        && (workers.active <= workers.share || load() != CpuLoad::Overloaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn waiting(waiting: u64) -> Option<TimeShares> {
        Some(TimeShares { waiting, asleep: 0, idle: 0 })
    }

    fn workers(active: usize, share: usize) -> Workers {
        Workers { active, share }
    }

    #[test]
    fn time_that_is_neither_work_nor_sleep_is_waiting_for_a_core() {
        let mut time_use = TimeUse::default();
        assert!(!time_use.is_due(7 * MS));
        assert!(!time_use.is_due(8 * MS - 1));
        assert!(time_use.is_due(8 * MS));
        time_use.conclude(Moment { now: 8 * MS, cpu: 3 * MS, slept: MS, waited: MS });
        assert_eq!(time_use.shares(), None);
        time_use.add_idle(MS);
        assert!(!time_use.is_due(24 * MS - 1) && time_use.is_due(24 * MS));
        time_use.conclude(Moment { now: 18 * MS, cpu: 7 * MS, slept: 3 * MS, waited: 2 * MS });
        assert_eq!(time_use.shares(), Some(TimeShares { waiting: 30, asleep: 20, idle: 10 }));
        time_use.conclude(Moment { now: 20 * MS, cpu: 9 * MS, slept: 3 * MS, waited: 2 * MS });
        assert_eq!(time_use.shares(), waiting(0));
        time_use.reset();
        assert_eq!(time_use.shares(), None);
    }

    #[test]
    fn a_worker_that_takes_turns_with_another_thread_has_no_cores_for_a_helper_whenever_it_is_measured() {
        const SLICE: u64 = 3 * MS;
        let cpu_until = |now: u64| now / (2 * SLICE) * SLICE + (now % (2 * SLICE)).min(SLICE);
        for start in 0..2 * SLICE / 1000 {
            let mut time_use = TimeUse::default();
            for now in [start * 1000, start * 1000 + MEASURE_FOR] {
                time_use.conclude(Moment { now, cpu: cpu_until(now), slept: 0, waited: 0 });
            }
            assert!(!should_unpark(CpuLoad::Overloaded, workers(1, 2), time_use.shares()), "from {start} us on");
        }
    }

    #[test]
    fn clocks_that_do_not_agree_are_no_waiting() {
        let mut time_use = TimeUse::default();
        time_use.conclude(Moment { now: 5, cpu: 0, slept: 0, waited: 0 });
        time_use.conclude(Moment { now: 5, cpu: 1, slept: 0, waited: 0 });
        assert_eq!(time_use.shares(), waiting(0));
    }

    #[test]
    fn an_idle_core_is_worth_another_worker_unless_those_there_are_sleep_for_each_other() {
        let asleep = |asleep| Some(TimeShares { waiting: 0, asleep, idle: 0 });
        assert!(should_unpark(CpuLoad::Spare, workers(5, 2), None));
        assert!(should_unpark(CpuLoad::Spare, workers(5, 2), asleep(40)));
        assert!(!should_unpark(CpuLoad::Spare, workers(12, 16), asleep(50)), "their receive queue is the limit");
    }

    #[test]
    fn on_a_busy_machine_workers_compete_up_to_their_share_while_they_get_cores() {
        for load in [CpuLoad::Full, CpuLoad::Overloaded] {
            // Four cores and four other busy threads: a fifth gets four fifths of a core.
            assert!(should_unpark(load, workers(1, 2), waiting(20)));
            assert!(!should_unpark(load, workers(1, 2), waiting(50)), "more would share the same cores");
            assert!(!should_unpark(load, workers(1, 2), None), "nothing is known yet");
            assert!(!should_unpark(load, workers(2, 2), waiting(0)));
            assert!(!should_unpark(load, workers(1, 1), waiting(0)), "two cores: the other has the packets' owners");
        }
    }

    #[test]
    fn a_worker_leaves_when_it_gets_no_core_or_is_beyond_the_share() {
        let overloaded = || CpuLoad::Overloaded;
        assert!(!should_leave(overloaded, workers(1, 1), waiting(90)), "the last one never does");
        assert!(should_leave(overloaded, workers(2, 1), waiting(0)));
        assert!(!should_leave(|| CpuLoad::Full, workers(2, 1), waiting(90)));
        assert!(!should_leave(overloaded, workers(2, 2), waiting(50)), "six threads on four cores");
        assert!(should_leave(overloaded, workers(2, 2), waiting(67)));
    }

    #[test]
    fn a_worker_of_several_looks_again_for_a_while_if_it_was_of_use() {
        let full = || CpuLoad::Full;
        let idle = |idle| Some(TimeShares { waiting: 0, asleep: 0, idle });
        assert!(should_look_again(0, full, workers(2, 1), None));
        assert!(should_look_again(LOOK_MAX - 1, full, workers(2, 1), idle(25)), "a load of a core and a half");
        assert!(!should_look_again(LOOK_MAX, full, workers(2, 1), None));
        assert!(!should_look_again(0, full, workers(2, 1), idle(50)), "a load of one core");
        assert!(!should_look_again(0, full, workers(2, 1), waiting(40)), "others wait for this core");
        assert!(!should_look_again(0, || CpuLoad::Overloaded, workers(2, 1), None));
        assert!(!should_look_again(0, full, workers(1, 1), None), "the last one waits for descriptors");
    }
}
