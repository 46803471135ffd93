//! A worker: carries packets from whichever receive queue has some, all the way.
//!
//! It processes batch after batch until all receive queues are empty. A delivered packet is often answered at once; the
//! same worker then picks up the reply, without another wake-up. [`crate::worker_pool`] decides how many workers are
//! active.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use linerate_netio::cores::{Cores, CpuLoad};
use linerate_netio::wait;

use crate::backend::{Backend, KernelBackend};
use crate::poller::{PassOutcome, Poller};
use crate::runtime::{self, Runtime};
use crate::rx_queue::{RX_QUEUES_MAX, RxQueue};
use crate::shared::Shared;
use crate::spin::SpinWindow;
use crate::worker_pool::{BusyTimer, Next, SCALE_UP_DELAY_MIN, ScaleUpState};

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
        let fd = |rx_queue: RxQueue| rx_queue.fd(self.shared.backend.tun(), sockets.as_deref());
        let rx_queues = &self.runtime.rx_queues;
        let changed = self.shared.sockets_changed.as_fd();
        let mut fds = [changed; RX_QUEUES_MAX + 1];
        let mut existing = 0;
        for (index, fd) in rx_queues.iter().map(|&rx_queue| fd(rx_queue)).enumerate() {
            fds[index] = fd.unwrap_or(changed);
            existing |= u64::from(fd.is_some()) << index;
        }
        let fds = &fds[..=rx_queues.len()];
        let ready = self.look(fds, began).unwrap_or_else(|| runtime::wait(fds));
        if ready & 1 << rx_queues.len() != 0 {
            // Drained before the sockets are read again: a later change wakes us again.
            self.shared.sockets_changed.drain();
        }
        let waited = self.now().saturating_sub(began);
        self.spin.record(waited);
        let at_once = waited < BREAK_MIN;
        self.poller.woken_by(ready & existing, at_once);
        if !at_once {
            self.busy.reset();
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
        self.busy.reset();
        self.unparked = true;
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
                PassOutcome::Idle if self.runtime.pool.scale_up_state().only_one_active => return,
                PassOutcome::Idle if self.poller.ask_again() => {}
                PassOutcome::Idle => return,
            }
        }
    }

    /// Once per delay of uninterrupted work: unparks a helper if a core is idle; true if this worker should park
    /// because more threads want to run than there are cores.
    fn should_park(&mut self) -> bool {
        let ScaleUpState { only_one_active, delay } = self.runtime.pool.scale_up_state();
        let delay = if only_one_active { delay } else { SCALE_UP_DELAY_MIN };
        if !self.busy.elapsed(self.now(), delay) {
            return false;
        }
        match self.cores.load() {
            CpuLoad::Spare => {
                self.runtime.pool.unpark(self.now());
            }
            CpuLoad::Full | CpuLoad::Overloaded if only_one_active => self.runtime.pool.back_off(),
            CpuLoad::Full => {}
            CpuLoad::Overloaded => return true,
        }
        false
    }

    fn now(&self) -> u64 {
        self.shared.backend.boottime().0
    }
}
