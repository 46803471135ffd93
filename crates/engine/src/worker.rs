//! One of the workers that carry packets, from whichever source has some: a queue of the TUN
//! device, an IPv4 socket, an IPv6 socket.
//!
//! A worker runs from batch to batch until all sources are empty. What it delivered is often
//! answered at once, and then it finds the answer itself: no other thread has to wake for it.
//! [`crate::worker_pool`] says when more than one is at work.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use linerate_netio::cores::{Cores, CpuLoad};
use linerate_netio::tun::{self, QUEUES_MAX, Tun};
use linerate_netio::udp::UdpSocket;
use linerate_netio::wait;

use crate::backend::{Backend, KernelBackend, Sockets};
use crate::counters::Wakeups;
use crate::engine::{Runtime, end};
use crate::inbound::Inbound;
use crate::outbound::{Outbound, Step};
use crate::shared::Shared;
use crate::worker_pool::{BusyTimer, Next, SCALE_UP_DELAY_MIN};

/// What a worker rests for when the kernel has no memory to let it wait.
const WAIT_FAILED_PAUSE: Duration = Duration::from_millis(100);

/// What a worker rests for after a socket reported an error instead of a datagram.
const RECEIVE_FAILED_PAUSE: Duration = Duration::from_millis(1);

/// While there is work elsewhere, a source that had none is tried once in so many passes, and once in
/// [`PROBE_INTERVAL_MAX`] when it had none again: a try is a system call, a pass some 50 microseconds.
const PROBE_INTERVAL: usize = 4;
const PROBE_INTERVAL_MAX: usize = 8;

// Sources of different numbers are tried in different passes, so that no pass has more than three
// such tries.
const _: () = assert!(QUEUES_MAX <= PROBE_INTERVAL);

/// The most sources of one engine.
const SOURCES_MAX: usize = 3 * QUEUES_MAX;

/// Where packets come from; queues and sockets are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A queue of the TUN device.
    Tun(usize),
    /// An IPv4 socket.
    V4(usize),
    /// An IPv6 socket.
    V6(usize),
}

impl Source {
    /// All sources of an engine, in the order in which they are tried; a queue's place is its number.
    pub fn all(queues: usize, sockets: usize) -> Vec<Source> {
        let tun = (0..queues).map(Source::Tun);
        tun.chain((0..sockets).map(Source::V4)).chain((0..sockets).map(Source::V6)).collect()
    }

    fn number(self) -> usize {
        let (Source::Tun(number) | Source::V4(number) | Source::V6(number)) = self;
        number
    }

    /// Whether it is to be tried in this pass though it had nothing the last `misses` times.
    fn is_due(self, pass: usize, misses: u8) -> bool {
        let period = match misses {
            0 => return true,
            1 => PROBE_INTERVAL,
            _ => PROBE_INTERVAL_MAX,
        };
        let number = self.number();
        pass > number && (pass - number).is_multiple_of(period)
    }

    fn socket(self, sockets: Option<&Sockets<UdpSocket>>) -> Option<&UdpSocket> {
        match self {
            Source::Tun(_) => None,
            Source::V4(number) => sockets?.v4.get(number),
            Source::V6(number) => sockets?.v6.get(number),
        }
    }

    /// What to wait for; none while there is no such socket.
    fn fd<'a>(self, tun: &'a tun::TunDevice, sockets: Option<&'a Sockets<UdpSocket>>) -> Option<BorrowedFd<'a>> {
        match self {
            Source::Tun(queue) => Some(tun.queue_fd(queue)),
            Source::V4(_) | Source::V6(_) => self.socket(sockets).map(UdpSocket::as_fd),
        }
    }
}

/// What a worker knows of one source.
#[derive(Clone, Copy, Default)]
struct SourceState {
    /// How often it had nothing since it had something.
    misses: u8,
    /// It woke the worker, which has not tried it since.
    woke: bool,
}

/// One thread's memory and view of the sources.
pub struct Worker {
    shared: Arc<Shared<KernelBackend>>,
    runtime: Arc<Runtime>,
    cores: Cores,
    outbound: Outbound<KernelBackend>,
    inbound: Inbound<KernelBackend>,
    /// Of each of the engine's sources, in their order.
    states: Vec<SourceState>,
    passes: usize,
    busy: BusyTimer,
    /// Another worker asked this one to help, and it has not tried yet.
    invited: bool,
}

impl Worker {
    /// Sets up the memory of one worker: all that it will ever use.
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
            invited: false,
        }
    }

    /// Carries packets until the engine ends, beginning with `next`.
    pub fn serve(mut self, mut next: Next) {
        loop {
            match next {
                Next::Watch => self.watch(),
                Next::Work => self.join(),
                Next::End => return,
            }
            self.work();
            next = self.runtime.pool.leave(self.now());
        }
    }

    /// Waits until a source has something, or until the sockets are replaced or the engine ends.
    fn watch(&mut self) {
        self.busy.reset();
        let sockets = self.shared.sockets.load_full();
        let fd = |source: Source| source.fd(self.shared.backend.tun(), sockets.as_deref());
        let sources = &self.runtime.sources;
        let changed = self.shared.sockets_changed.as_fd();
        let mut fds = [changed; SOURCES_MAX + 1];
        for (place, &source) in sources.iter().enumerate() {
            fds[place] = fd(source).unwrap_or(changed);
        }
        let ready = wait::wait(&fds[..=sources.len()]).unwrap_or_else(|error| {
            tracing::error!("waiting failed: {error}");
            thread::sleep(WAIT_FAILED_PAUSE);
            u64::MAX
        });
        if ready & 1 << sources.len() != 0 {
            // What was signalled is looked at after this: what is signalled from here on wakes us.
            self.shared.sockets_changed.drain();
        }
        for (place, &source) in sources.iter().enumerate() {
            let woke = fd(source).is_some() && ready & 1 << place != 0;
            self.states[place] = SourceState { misses: u8::from(!woke), woke };
        }
        // The sources that did not wake us are not tried first.
        self.passes = 0;
    }

    /// Another worker asked this one to help.
    fn join(&mut self) {
        self.states.fill(SourceState::default());
        self.busy.reset();
        self.invited = true;
    }

    /// Carries packets until the sources have none, or until others need the core more.
    fn work(&mut self) {
        while !self.runtime.is_stopping() {
            let (step, taken) = self.pass();
            if step != Step::Locked && std::mem::take(&mut self.invited) {
                self.shared.counters.helpers.count(step == Step::Progress);
            }
            match step {
                Step::Progress if self.is_in_the_way() => return,
                Step::Progress => {}
                Step::Locked => self.runtime.sequencers[taken].wait_for_read_lock(),
                Step::Idle => return,
            }
        }
    }

    /// Tries the sources in turn. Taken, and the place of which source, if the only ones that may have
    /// something are being read by other workers.
    fn pass(&mut self) -> (Step, usize) {
        self.passes += 1;
        let (mut found, mut taken) = (Step::Idle, 0);
        for place in 0..self.states.len() {
            let (source, state) = (self.runtime.sources[place], self.states[place]);
            if !source.is_due(self.passes, state.misses) {
                continue;
            }
            let step = self.step(place);
            if state.woke && step != Step::Locked {
                self.wakeups(source).count(step == Step::Progress);
            }
            match step {
                Step::Progress => {
                    found = Step::Progress;
                    self.states[place] = SourceState::default();
                    // What is delivered is often answered at once.
                    let queue = self.queue_for(source);
                    self.states[queue].misses = 0;
                }
                Step::Locked if found == Step::Idle => (found, taken) = (step, place),
                Step::Locked => {}
                Step::Idle => self.states[place] = SourceState { misses: state.misses.saturating_add(1), woke: false },
            }
        }
        (found, taken)
    }

    /// The queue that `source` is, or that what comes by this socket is written to: always the same
    /// for one session, so that its packets stay in order, and the kernel has their answers come by it.
    fn queue_for(&self, source: Source) -> usize {
        source.number() % self.shared.backend.tun().queues()
    }

    fn step(&mut self, place: usize) -> Step {
        let (source, sequencer) = (self.runtime.sources[place], &self.runtime.sequencers[place]);
        let queue = self.queue_for(source);
        if matches!(source, Source::Tun(_)) {
            return self.outbound.step(queue, sequencer).unwrap_or_else(|error| {
                tracing::info!("the interface is gone ({error})");
                end(&self.runtime, &self.shared);
                Step::Idle
            });
        }
        let sockets = self.shared.sockets.load_full();
        let Some(socket) = source.socket(sockets.as_deref()) else { return Step::Idle };
        self.inbound.step(socket, queue, sequencer).unwrap_or_else(|error| {
            // What an ICMP message said about a datagram of ours: the call took it off the
            // socket, nothing else is to be done. Should it not go away, that must not cost a core.
            tracing::debug!("receive: {error}");
            thread::sleep(RECEIVE_FAILED_PAUSE);
            Step::Idle
        })
    }

    /// Thinks, once in a while under load, of more or of fewer workers; true if this one should go.
    fn is_in_the_way(&mut self) -> bool {
        let (alone, scale_up_delay) = self.runtime.pool.status();
        let span = if alone { scale_up_delay } else { SCALE_UP_DELAY_MIN };
        if !self.busy.elapsed(self.now(), span) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_source_is_due_once_in_so_many_rounds_and_few_are_in_the_same() {
        let sources = Source::all(QUEUES_MAX, QUEUES_MAX);
        assert_eq!(sources.len(), SOURCES_MAX);
        for source in &sources {
            assert!(source.is_due(1, 0), "{source:?} has something");
            for (misses, period) in [(1, PROBE_INTERVAL), (2, PROBE_INTERVAL_MAX), (u8::MAX, PROBE_INTERVAL_MAX)] {
                assert!((0..PROBE_INTERVAL).all(|pass| !source.is_due(pass, misses)), "{source:?} is not tried first");
                for start in 2 * period..4 * period {
                    let due = (start..start + period).filter(|&pass| source.is_due(pass, misses)).count();
                    assert_eq!(due, 1, "{source:?} from pass {start} on, after {misses} misses");
                }
            }
        }
        for pass in 0..4 * PROBE_INTERVAL {
            assert!(sources.iter().filter(|source| source.is_due(pass, 1)).count() <= 3, "pass {pass}");
        }
    }

    #[test]
    fn a_queues_place_is_its_number() {
        for queues in 1..=QUEUES_MAX {
            let sources = Source::all(queues, 2);
            assert!((0..queues).all(|queue| sources[queue] == Source::Tun(queue)));
        }
    }
}
