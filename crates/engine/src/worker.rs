//! A worker: carries packets from whichever source has some, all the way.
//!
//! It processes batch after batch until all sources are empty. What it delivered is often answered at once, and then
//! it finds the answer itself: no other thread has to wake up for it. [`crate::worker_pool`] decides how many workers
//! are active.

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
use crate::shared::Shared;
use crate::source::{SOURCES_MAX, Source, SourceState, Step};
use crate::worker_pool::{BusyTimer, Next, SCALE_UP_DELAY_MIN};

/// The pause after a socket reported an error instead of a datagram.
const RECEIVE_FAILED_PAUSE: Duration = Duration::from_millis(1);

/// One thread's memory and view of the sources.
pub struct Worker {
    shared: Arc<Shared<KernelBackend>>,
    runtime: Arc<Runtime>,
    cores: Cores,
    outbound: Outbound<KernelBackend>,
    inbound: Inbound<KernelBackend>,
    /// One for each source, in their order.
    states: Vec<SourceState>,
    passes: usize,
    busy: BusyTimer,
    /// Another worker unparked this one, and it has not served a source since.
    unparked: bool,
}

impl Worker {
    /// Allocates all memory that the worker will ever use.
    pub fn new(shared: Arc<Shared<KernelBackend>>, runtime: Arc<Runtime>, cores: Cores) -> Self {
        Self {
            outbound: Outbound::new(shared.clone()),
            inbound: Inbound::new(shared.clone()),
            shared,
            states: vec![SourceState::default(); runtime.sources.len()],
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

    /// Waits until a source has packets, the sockets are replaced or the engine ends.
    fn wait(&mut self) {
        self.busy.reset();
        let sockets = self.shared.sockets.load_full();
        let fd = |source: Source| source.fd(self.shared.backend.tun(), sockets.as_deref());
        let sources = &self.runtime.sources;
        let changed = self.shared.sockets_changed.as_fd();
        let mut fds = [changed; SOURCES_MAX + 1];
        for (place, &source) in sources.iter().enumerate() {
            fds[place] = fd(source).unwrap_or(changed);
        }
        let ready = runtime::wait(&fds[..=sources.len()]);
        if ready & 1 << sources.len() != 0 {
            // Drained before the sockets are read again: a later change wakes us again.
            self.shared.sockets_changed.drain();
        }
        for (place, &source) in sources.iter().enumerate() {
            let woke = fd(source).is_some() && ready & 1 << place != 0;
            self.states[place] = SourceState { misses: u8::from(!woke), woke };
        }
        // The first pass serves only the sources that woke us.
        self.passes = 0;
    }

    /// Another worker unparked this one: every source may have packets.
    fn start_helping(&mut self) {
        self.states.fill(SourceState::default());
        self.busy.reset();
        self.unparked = true;
    }

    /// Carries packets until all sources are empty, or until other threads need the core more.
    fn work(&mut self) {
        while !self.runtime.is_ending() {
            let (step, locked) = self.pass();
            if step != Step::Locked && std::mem::take(&mut self.unparked) {
                self.shared.counters.helpers.count(step == Step::Progress);
            }
            match step {
                Step::Progress if self.should_park() => return,
                Step::Progress => {}
                Step::Locked => self.runtime.sequencers[locked].wait_for_read_lock(),
                Step::Idle => return,
            }
        }
    }

    /// Serves each source that is due, once. `Locked`, with the place of one such source, if the only sources that may
    /// have packets are being read by other workers.
    fn pass(&mut self) -> (Step, usize) {
        self.passes += 1;
        let (mut result, mut locked) = (Step::Idle, 0);
        for place in 0..self.states.len() {
            let (source, state) = (self.runtime.sources[place], self.states[place]);
            if !source.is_due(self.passes, state.misses) {
                continue;
            }
            let step = self.serve(place);
            if state.woke && step != Step::Locked {
                self.wakeups(source).count(step == Step::Progress);
            }
            match step {
                Step::Progress => {
                    result = Step::Progress;
                    self.states[place] = SourceState::default();
                    // What is delivered is often answered at once.
                    let queue = self.queue_for(source);
                    self.states[queue].misses = 0;
                }
                Step::Locked if result == Step::Idle => (result, locked) = (step, place),
                Step::Locked => {}
                Step::Idle => {
                    self.states[place] = SourceState { misses: state.misses.saturating_add(1), woke: false };
                }
            }
        }
        (result, locked)
    }

    /// The queue that `source` is, or that packets from this socket are written to. It is always the same for one
    /// session, so that its packets stay in order, and the kernel sends the answers to them back through it.
    fn queue_for(&self, source: Source) -> usize {
        source.number() % self.shared.backend.tun().queues()
    }

    fn serve(&mut self, place: usize) -> Step {
        let (source, sequencer) = (self.runtime.sources[place], &self.runtime.sequencers[place]);
        let queue = self.queue_for(source);
        if matches!(source, Source::Tun(_)) {
            return self.outbound.step(queue, sequencer).unwrap_or_else(|error| {
                tracing::info!("the interface is gone ({error})");
                self.runtime.end(&self.shared);
                Step::Idle
            });
        }
        let sockets = self.shared.sockets.load_full();
        let Some(socket) = source.socket(sockets.as_deref()) else { return Step::Idle };
        self.inbound.step(socket, queue, sequencer).unwrap_or_else(|error| {
            // An ICMP error about one of our datagrams; receiving it has cleared it. The pause keeps an error that
            // persists from taking a whole core.
            tracing::debug!("receive: {error}");
            thread::sleep(RECEIVE_FAILED_PAUSE);
            Step::Idle
        })
    }

    /// Once per delay of uninterrupted work: unparks a helper if a core is idle; true if this worker should park
    /// because more threads want to run than there are cores.
    fn should_park(&mut self) -> bool {
        let (alone, scale_up_delay) = self.runtime.pool.status();
        let delay = if alone { scale_up_delay } else { SCALE_UP_DELAY_MIN };
        if !self.busy.elapsed(self.now(), delay) {
            return false;
        }
        match self.cores.load() {
            CpuLoad::Spare => {
                self.runtime.pool.unpark(self.now());
            }
            CpuLoad::Full | CpuLoad::Overloaded if alone => self.runtime.pool.back_off(),
            CpuLoad::Full => {}
            CpuLoad::Overloaded => return true,
        }
        false
    }

    fn wakeups(&self, source: Source) -> &Wakeups {
        match source {
            Source::Tun(_) => &self.shared.counters.outbound,
            Source::V4(_) | Source::V6(_) => &self.shared.counters.inbound,
        }
    }

    fn now(&self) -> u64 {
        self.shared.backend.boottime().0
    }
}
