//! A worker: carries packets from whichever receive queue has some, all the way.
//!
//! It processes batch after batch until all receive queues are empty. A delivered packet is often answered at once; the
//! same worker then picks up the reply, without another wake-up. [`crate::worker_pool`] decides how many workers are
//! active.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use linerate_netio::cores::{Cores, CpuLoad};
use linerate_netio::tun::Tun;

use crate::backend::{Backend, KernelBackend};
use crate::counters::Wakeups;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::runtime::{self, Runtime};
use crate::rx_queue::{PollOutcome, RX_QUEUES_MAX, RxQueue, RxQueueState};
use crate::shared::Shared;
use crate::worker_pool::{BusyTimer, Next, SCALE_UP_DELAY_MIN, ScaleUpState};

/// The pause after a socket reported an error instead of a datagram.
const RECEIVE_FAILED_PAUSE: Duration = Duration::from_millis(1);

/// One thread's memory and view of the receive queues.
pub struct Worker {
    shared: Arc<Shared<KernelBackend>>,
    runtime: Arc<Runtime>,
    cores: Cores,
    outbound: Outbound<KernelBackend>,
    inbound: Inbound<KernelBackend>,
    /// One for each receive queue, in their order.
    states: Vec<RxQueueState>,
    passes: usize,
    busy: BusyTimer,
    /// Another worker unparked this one, and it has not polled a receive queue since.
    unparked: bool,
}

impl Worker {
    /// Allocates all memory that the worker will ever use.
    pub fn new(shared: Arc<Shared<KernelBackend>>, runtime: Arc<Runtime>, cores: Cores) -> Self {
        Self {
            outbound: Outbound::new(shared.clone()),
            inbound: Inbound::new(shared.clone()),
            shared,
            states: vec![RxQueueState::default(); runtime.rx_queues.len()],
            runtime,
            cores,
            passes: 0,
            busy: BusyTimer::default(),
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
        self.busy.reset();
        let sockets = self.shared.sockets.load_full();
        let fd = |rx_queue: RxQueue| rx_queue.fd(self.shared.backend.tun(), sockets.as_deref());
        let rx_queues = &self.runtime.rx_queues;
        let changed = self.shared.sockets_changed.as_fd();
        let mut fds = [changed; RX_QUEUES_MAX + 1];
        for (index, &rx_queue) in rx_queues.iter().enumerate() {
            fds[index] = fd(rx_queue).unwrap_or(changed);
        }
        let ready = runtime::wait(&fds[..=rx_queues.len()]);
        if ready & 1 << rx_queues.len() != 0 {
            // Drained before the sockets are read again: a later change wakes us again.
            self.shared.sockets_changed.drain();
        }
        for (index, &rx_queue) in rx_queues.iter().enumerate() {
            let woke = fd(rx_queue).is_some() && ready & 1 << index != 0;
            self.states[index] = RxQueueState { misses: u8::from(!woke), woke };
        }
        // The first pass polls only the receive queues that woke us.
        self.passes = 0;
    }

    /// Another worker unparked this one: every receive queue may have packets.
    fn start_helping(&mut self) {
        self.states.fill(RxQueueState::default());
        self.busy.reset();
        self.unparked = true;
    }

    /// Carries packets until all receive queues are empty, or until other threads need the core more.
    fn work(&mut self) {
        while !self.runtime.is_ending() {
            let (outcome, locked) = self.pass();
            if outcome != PollOutcome::Locked && std::mem::take(&mut self.unparked) {
                self.shared.counters.helpers.count(outcome == PollOutcome::Progress);
            }
            match outcome {
                PollOutcome::Progress if self.should_park() => return,
                PollOutcome::Progress => {}
                PollOutcome::Locked => self.runtime.sequencers[locked].wait_for_read_lock(),
                PollOutcome::Idle => return,
            }
        }
    }

    /// Polls each receive queue that is due, once. `Locked`, with the index of one of them, if the only ones that may
    /// have packets are being read by other workers.
    fn pass(&mut self) -> (PollOutcome, usize) {
        self.passes += 1;
        let (mut result, mut locked) = (PollOutcome::Idle, 0);
        for index in 0..self.states.len() {
            let (rx_queue, state) = (self.runtime.rx_queues[index], self.states[index]);
            if !rx_queue.is_due(self.passes, state.misses) {
                continue;
            }
            let outcome = self.poll(index);
            if state.woke && outcome != PollOutcome::Locked {
                self.wakeups(rx_queue).count(outcome == PollOutcome::Progress);
            }
            match outcome {
                PollOutcome::Progress => {
                    result = PollOutcome::Progress;
                    self.states[index] = RxQueueState::default();
                    // The reply to what was delivered may be there already.
                    let queue = self.tun_queue_for(rx_queue);
                    self.states[queue].misses = 0;
                }
                PollOutcome::Locked if result == PollOutcome::Idle => (result, locked) = (outcome, index),
                PollOutcome::Locked => {}
                PollOutcome::Idle => {
                    self.states[index] = RxQueueState { misses: state.misses.saturating_add(1), woke: false };
                }
            }
        }
        (result, locked)
    }

    /// The TUN queue that `rx_queue` is, or that packets from this socket are written to. It is always the same for one
    /// session, so that its packets stay in order, and the kernel sends the answers to them back through it.
    fn tun_queue_for(&self, rx_queue: RxQueue) -> usize {
        rx_queue.number() % self.shared.backend.tun().queues()
    }

    fn poll(&mut self, index: usize) -> PollOutcome {
        let (rx_queue, sequencer) = (self.runtime.rx_queues[index], &self.runtime.sequencers[index]);
        let queue = self.tun_queue_for(rx_queue);
        if matches!(rx_queue, RxQueue::Tun(_)) {
            return self.outbound.poll(queue, sequencer).unwrap_or_else(|error| {
                tracing::info!("the interface is gone ({error})");
                self.runtime.end(&self.shared);
                PollOutcome::Idle
            });
        }
        let sockets = self.shared.sockets.load_full();
        let Some(socket) = rx_queue.socket(sockets.as_deref()) else { return PollOutcome::Idle };
        self.inbound.poll(socket, queue, sequencer).unwrap_or_else(|error| {
            // An ICMP error about one of our datagrams; receiving it has cleared it. The pause keeps an error that
            // persists from taking a whole core.
            tracing::debug!("receive: {error}");
            thread::sleep(RECEIVE_FAILED_PAUSE);
            PollOutcome::Idle
        })
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

    fn wakeups(&self, rx_queue: RxQueue) -> &Wakeups {
        match rx_queue {
            RxQueue::Tun(_) => &self.shared.counters.outbound,
            RxQueue::V4(_) | RxQueue::V6(_) => &self.shared.counters.inbound,
        }
    }

    fn now(&self) -> u64 {
        self.shared.backend.boottime().0
    }
}
