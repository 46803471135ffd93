//! A worker: carries packets from whichever receive queue has some, all the way.
//!
//! It processes batch after batch until all receive queues are empty. A delivered packet is often answered at once; the
//! same worker then picks up the reply, without another wake-up. [`crate::scaling`] decides how many workers are
//! active.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use linerate_netio::cores::{Cores, CpuLoad};
use linerate_netio::{clock, wait};

use crate::backend::{Backend, KernelBackend};
use crate::poller::{PassOutcome, Poller};
use crate::runtime::{self, Runtime};
use crate::rx_queue::{Awaited, RxQueue};
use crate::scaling::{self, Moment, TimeUse, Workers};
use crate::shared::Shared;
use crate::spin::SpinWindow;
use crate::sync;
use crate::worker_pool::{BusyTimer, Next, SCALE_UP_DELAY_MIN};

/// A wait shorter than so many nanoseconds is no break: packets were there already, or arrived before a core could
/// have done anything else.
const BREAK_MIN: u64 = 10_000;

/// A worker that looks for packets asks once in so many nanoseconds whether another thread needs the core.
const LOAD_INTERVAL: u64 = 50_000;

/// One thread's memory and view of the receive queues.
pub struct Worker {
    shared: Arc<Shared<KernelBackend>>,
    runtime: Arc<Runtime>,
    cores: Cores,
    poller: Poller<KernelBackend>,
    busy: BusyTimer,
    spin: SpinWindow,
    /// When the next look at whether this worker should leave its core is due.
    check: BusyTimer,
    time_use: TimeUse,
    /// The first and the last moment, in nanoseconds, at which all receive queues were empty.
    idle: Option<(u64, u64)>,
    /// Nanoseconds of waits that were no breaks.
    waited: u64,
    /// Another worker unparked this one, and it has not polled a receive queue since.
    unparked: bool,
}

impl Worker {
    /// Allocates all memory that the worker will ever use. Before it sleeps it looks for packets for up to `spin`.
    pub fn new(shared: Arc<Shared<KernelBackend>>, runtime: Arc<Runtime>, cores: Cores, spin: Duration) -> Self {
        Self {
            poller: Poller::new(shared.clone(), runtime.rx_queues.clone()),
            shared,
            runtime,
            cores,
            busy: BusyTimer::default(),
            spin: SpinWindow::new(spin),
            check: BusyTimer::default(),
            time_use: TimeUse::default(),
            idle: None,
            waited: 0,
            unparked: false,
        }
    }

    /// Carries packets until the engine ends, beginning with `next`.
    pub fn run(mut self, mut next: Next) {
        loop {
            match next {
                Next::Wait => self.wait(),
                Next::Help => self.start_helping(),
                Next::End => return,
            }
            self.work();
            next = self.runtime.pool.park_unless_last(self.now());
        }
    }

    /// Waits until a receive queue has packets, the sockets are replaced or the engine ends.
    fn wait(&mut self) {
        let began = self.now();
        let sockets = self.shared.sockets.load_full();
        let fd = |rx_queue: &RxQueue| rx_queue.fd(self.shared.backend.tun(), sockets.as_deref());
        let awaited = Awaited::new(self.runtime.rx_queues.iter().map(fd), self.shared.sockets_changed.as_fd());
        let found = self.look(awaited.fds(), began);
        if self.spin.nanos() > 0 {
            self.shared.counters.looks.count(found.is_some());
        }
        let (ready, changed) = awaited.ready(found.unwrap_or_else(|| runtime::wait(awaited.fds())));
        if changed {
            // Drained before the sockets are read again: a later change wakes us again.
            self.shared.sockets_changed.drain();
        }
        let waited = self.now().saturating_sub(began);
        self.spin.record(waited);
        let at_once = waited < BREAK_MIN;
        self.poller.woken_by(ready, at_once);
        if at_once {
            self.waited += waited;
        } else {
            self.start_over();
        }
    }

    /// Looks for packets from `began` on for as long as the window is open, while a core is idle; the descriptors that
    /// are ready, as [`wait::wait`] returns them, `None` if it is time to sleep.
    fn look(&self, fds: &[BorrowedFd<'_>], began: u64) -> Option<u64> {
        let until = began + self.spin.nanos();
        let (mut now, mut ask_at) = (began, began);
        while now < until {
            if now >= ask_at {
                if self.cores.load() != CpuLoad::Spare {
                    return None;
                }
                ask_at = now + LOAD_INTERVAL;
            }
            match wait::ready(fds) {
                Ok(0) => std::hint::spin_loop(),
                ready => return ready.ok(),
            }
            now = self.now();
        }
        None
    }

    /// Another worker unparked this one: every receive queue may have packets.
    fn start_helping(&mut self) {
        self.poller.expect_packets();
        self.start_over();
        self.unparked = true;
    }

    /// There was a break: what was measured before it says nothing about what comes.
    fn start_over(&mut self) {
        self.busy.reset();
        self.check.reset();
        self.time_use.reset();
        self.idle = None;
    }

    /// Carries packets until all receive queues are empty, or until other threads need the core more.
    fn work(&mut self) {
        while !self.runtime.is_ending() {
            let outcome = self.poller.pass(&self.runtime.sequencers).unwrap_or_else(|error| {
                tracing::info!("the interface is gone ({error})");
                self.runtime.end(&self.shared);
                PassOutcome::Idle
            });
            if !matches!(outcome, PassOutcome::Locked(_)) && std::mem::take(&mut self.unparked) {
                self.shared.counters.helpers.count(outcome == PassOutcome::Progress);
            }
            match outcome {
                PassOutcome::Progress if self.should_park() => return,
                PassOutcome::Progress => {}
                PassOutcome::Locked(index) => self.runtime.sequencers[index].wait_for_read_lock(),
                // The last active worker waits for the receive queues, which tells as much.
                PassOutcome::Idle if self.runtime.pool.active() == 1 => return,
                PassOutcome::Idle if self.poller.ask_again() => {}
                PassOutcome::Idle if self.should_look_again() => sync::pause(),
                PassOutcome::Idle => return,
            }
        }
    }

    /// There was work: once per delay of uninterrupted work, unparks a helper if that one would get a core. True if
    /// this worker should leave its core to others.
    fn should_park(&mut self) -> bool {
        let now = self.now();
        if let Some((first, last)) = self.idle.take() {
            self.time_use.add_idle(last - first);
        }
        self.measure(now);
        let (pool, workers, shares) = (&self.runtime.pool, self.workers(), self.time_use.shares());
        if self.busy.elapsed(now, pool.scale_up_delay()) && pool.claim_attempt(now) {
            if scaling::should_unpark(self.cores.load(), workers, shares) {
                pool.unpark(now);
            } else {
                pool.back_off();
            }
        }
        self.check.elapsed(now, SCALE_UP_DELAY_MIN) && scaling::should_leave(|| self.cores.load(), workers, shares)
    }

    /// There was no work: true if this worker is one of several and should not park yet.
    fn should_look_again(&mut self) -> bool {
        let now = self.now();
        self.busy.reset();
        self.measure(now);
        let (first, _) = self.idle.unwrap_or((now, now));
        self.idle = Some((first, now));
        scaling::should_look_again(now - first, || self.cores.load(), self.workers(), self.time_use.shares())
    }

    /// Measures how this worker spends its time.
    fn measure(&mut self, now: u64) {
        if self.time_use.is_due(now) {
            let (cpu, slept) = (clock::thread_cpu_time(), sync::slept());
            self.time_use.conclude(Moment { now, cpu, slept, waited: self.waited });
        }
    }

    fn workers(&self) -> Workers {
        Workers { active: self.runtime.pool.active(), share: self.cores.share() }
    }

    fn now(&self) -> u64 {
        self.shared.backend.boottime().0
    }
}
