//! One of the workers that carry packets, from whichever source has some: the TUN device, the IPv4
//! socket, the IPv6 socket.
//!
//! A worker runs from batch to batch until all sources are empty. What it delivered is often
//! answered at once, and then it finds the answer itself: no other thread has to wake for it.
//! [`crate::crew`] says when more than one is at work.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use linerate_netio::cores::{Cores, Load};
use linerate_netio::udp::UdpSocket;
use linerate_netio::wait;

use crate::backend::{Backend, Kernel, Sockets};
use crate::counters::Wakeups;
use crate::crew::{Heat, Next, PATIENCE_MIN};
use crate::inbound::Inbound;
use crate::outbound::{Outbound, Step};
use crate::shared::Shared;
use crate::topology::{Life, end};

/// What a worker rests for when the kernel has no memory to let it wait.
const WAIT_FAILED_PAUSE: Duration = Duration::from_millis(100);

/// What a worker rests for after a socket reported an error instead of a datagram.
const RECEIVE_FAILED_PAUSE: Duration = Duration::from_millis(1);

/// While there is work elsewhere, a source that had none is tried once in so many rounds: a try
/// is a system call, a round some 50 microseconds.
const COLD_ROUNDS: usize = 4;

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Tun,
    V4,
    V6,
}

const SOURCES: [Source; 3] = [Source::Tun, Source::V4, Source::V6];

impl Source {
    fn socket(self, sockets: &Sockets<UdpSocket>) -> Option<&UdpSocket> {
        match self {
            Source::Tun => None,
            Source::V4 => sockets.v4.as_ref(),
            Source::V6 => sockets.v6.as_ref(),
        }
    }
}

/// What a worker knows of one source.
#[derive(Clone, Copy, Default)]
struct Sight {
    /// It had nothing when it was tried last.
    cold: bool,
    /// It woke the worker, which has not tried it since.
    woke: bool,
}

/// One thread's memory and view of the sources.
pub struct Worker {
    shared: Arc<Shared<Kernel>>,
    life: Arc<Life>,
    cores: Cores,
    outbound: Outbound<Kernel>,
    inbound: Inbound<Kernel>,
    sight: [Sight; SOURCES.len()],
    rounds: usize,
    heat: Heat,
    /// Another worker asked this one to help, and it has not tried yet.
    invited: bool,
}

impl Worker {
    /// Sets up the memory of one worker: all that it will ever use.
    pub fn new(shared: Arc<Shared<Kernel>>, life: Arc<Life>, cores: Cores) -> Self {
        Self {
            outbound: Outbound::new(shared.clone()),
            inbound: Inbound::new(shared.clone()),
            shared,
            life,
            cores,
            sight: Default::default(),
            rounds: 0,
            heat: Heat::default(),
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
            next = self.life.crew.leave(self.now());
        }
    }

    /// Waits until a source has something, or until the sockets are replaced or the engine ends.
    fn watch(&mut self) {
        self.heat.cools();
        // Drained before anything is looked at: what is signalled from here on wakes us.
        self.shared.sockets_changed.drain();
        if self.life.is_over() {
            return;
        }
        let sockets = self.shared.sockets.load_full();
        let sockets = sockets.as_deref();
        let here = self.shared.backend.tun().as_fd();
        let mut fds = [here; SOURCES.len() + 1];
        fds[SOURCES.len()] = self.shared.sockets_changed.as_fd();
        for source in SOURCES {
            if let Some(socket) = sockets.and_then(|sockets| source.socket(sockets)) {
                fds[source as usize] = socket.as_fd();
            }
        }
        let ready = wait::wait(&fds).unwrap_or_else(|error| {
            tracing::error!("waiting failed: {error}");
            thread::sleep(WAIT_FAILED_PAUSE);
            0
        });
        for source in SOURCES {
            let there = source == Source::Tun || sockets.is_some_and(|sockets| source.socket(sockets).is_some());
            let woke = there && ready & 1 << source as usize != 0;
            self.sight[source as usize] = Sight { cold: !woke, woke };
        }
        // The sources that did not wake us are not tried first.
        self.rounds = 0;
    }

    /// Another worker asked this one to help.
    fn join(&mut self) {
        self.sight = Default::default();
        self.heat.cools();
        self.invited = true;
    }

    /// Carries packets until the sources have none, or until others need the core more.
    fn work(&mut self) {
        while !self.life.is_over() {
            let (step, taken) = self.round();
            if std::mem::take(&mut self.invited) {
                self.shared.counters.followers.count(step != Step::Idle);
            }
            match step {
                Step::Work if self.is_in_the_way() => return,
                Step::Work => {}
                Step::Taken => self.life.turnstiles[taken as usize].wait_for_entrance(),
                Step::Idle => return,
            }
        }
    }

    /// Tries the sources in turn. Taken, and by which source, if the only ones that may have something
    /// are being read by other workers.
    fn round(&mut self) -> (Step, Source) {
        self.rounds += 1;
        let everything = self.rounds.is_multiple_of(COLD_ROUNDS);
        let (mut found, mut taken) = (Step::Idle, Source::Tun);
        for source in SOURCES {
            let sight = self.sight[source as usize];
            if sight.cold && !everything {
                continue;
            }
            let step = self.step(source);
            if sight.woke {
                self.wakeups(source).count(step == Step::Work);
            }
            self.sight[source as usize] = Sight { cold: step == Step::Idle, woke: false };
            match step {
                Step::Work => {
                    found = Step::Work;
                    // What is delivered is often answered at once.
                    self.sight[Source::Tun as usize].cold = false;
                }
                Step::Taken if found == Step::Idle => (found, taken) = (step, source),
                Step::Taken | Step::Idle => {}
            }
        }
        (found, taken)
    }

    fn step(&mut self, source: Source) -> Step {
        let turnstile = &self.life.turnstiles[source as usize];
        if source == Source::Tun {
            return self.outbound.step(turnstile).unwrap_or_else(|error| {
                tracing::info!("the interface is gone ({error})");
                end(&self.life, &self.shared);
                Step::Idle
            });
        }
        let sockets = self.shared.sockets.load_full();
        let Some(socket) = sockets.as_ref().and_then(|sockets| source.socket(sockets)) else { return Step::Idle };
        self.inbound.step(socket, turnstile).unwrap_or_else(|error| {
            // What an ICMP message said about a datagram of ours: the call took it off the
            // socket, nothing else is to be done. Should it not go away, that must not cost a core.
            tracing::debug!("receive: {error}");
            thread::sleep(RECEIVE_FAILED_PAUSE);
            Step::Idle
        })
    }

    /// Thinks, once in a while under load, of more or of fewer workers; true if this one should go.
    fn is_in_the_way(&mut self) -> bool {
        let alone = self.life.crew.is_alone();
        let span = if alone { self.life.crew.patience() } else { PATIENCE_MIN };
        if !self.heat.rises(self.now(), span) {
            return false;
        }
        match self.cores.load() {
            Load::Spare => {
                self.life.crew.invite(self.now());
            }
            Load::Full | Load::Crowded if alone => self.life.crew.discourage(),
            Load::Full => {}
            Load::Crowded => return true,
        }
        false
    }

    fn wakeups(&self, source: Source) -> &Wakeups {
        match source {
            Source::Tun => &self.shared.counters.outbound,
            Source::V4 | Source::V6 => &self.shared.counters.inbound,
        }
    }

    fn now(&self) -> u64 {
        self.shared.backend.boottime().0
    }
}
