//! Which thread runs which step.
//!
//! | thread | waits for | runs |
//! |---|---|---|
//! | `worker` | one of them the TUN device's queues and the sockets, the others an invitation | [`crate::worker`]: [`crate::outbound`] and [`crate::inbound`] |
//! | `slow` | notices, the timer, netlink, commands | [`crate::slow_path`] |
//!
//! Each runs until there is nothing to do and then waits without a time-out: under load nothing
//! polls, at rest nothing wakes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_netio::clock::{ClockChange, Timer};
use linerate_netio::cores::Cores;
use linerate_netio::link;
use linerate_netio::tun::{self, Tun};
use linerate_netio::udp;
use linerate_netio::wait::{self, Event};
use linerate_protocol::Boottime;

use crate::backend::{Backend, KernelBackend};
use crate::config::{Activity, ConfigError, State, Update};
use crate::link::Link;
use crate::sequencer::Sequencer;
use crate::shared::Shared;
use crate::slow_path::SlowPath;
use crate::worker::{Source, Worker};
use crate::worker_pool::{self, Next, WorkerPool};

/// Bytes that a datagram has around its inner packet, IPv6 and UDP headers included.
const ENCAPSULATION: u32 = 80;

/// What the MTU is set to at start: Ethernet's, less the encapsulation (kernel: device.c).
pub const MTU_DEFAULT: u32 = 1500 - ENCAPSULATION;

/// What a thread rests for when the kernel has no memory to let it wait.
const WAIT_FAILED_PAUSE: Duration = Duration::from_millis(100);

/// How long what cannot be had is left alone: the state of the interface, sockets.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The most workers: more would stand in line at the sequencers (docs/perf/many-cores.md).
const WORKERS_MAX: usize = 8;

/// Why an engine could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The interface could not be prepared.
    #[error("cannot prepare the interface {name}: {error}")]
    Interface {
        /// Its name.
        name: String,
        /// What the system said.
        error: io::Error,
    },
    /// The system has no threads, descriptors or memory left.
    #[error(
        "cannot start: {0}. It needs a few threads, some dozens of descriptors (`ulimit -n', LimitNOFILE=), and memory."
    )]
    System(#[from] io::Error),
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The MTU to give the interface; none leaves it as it is.
    pub mtu: Option<u32>,
    /// When more than one worker carries packets.
    pub helpers: Helpers,
    /// What the sockets may have of the kernel's offloads. The device's are its own.
    pub udp_offloads: udp::UdpOffloads,
}

/// When a worker that has much to do is helped by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helpers {
    /// When the sources are hot and a core is idle.
    WhenUseful,
    /// Whenever there is anything to do, on however few cores: to test that order is kept.
    Always,
}

impl Helpers {
    /// Nanoseconds for which the sources have to be hot.
    fn scale_up_delay(self) -> u64 {
        match self {
            Helpers::WhenUseful => worker_pool::SCALE_UP_DELAY_MIN,
            Helpers::Always => 0,
        }
    }

    fn cores(self) -> Cores {
        match self {
            Helpers::WhenUseful => Cores::new(),
            Helpers::Always => Cores::simulated(4),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { mtu: Some(MTU_DEFAULT), helpers: Helpers::WhenUseful, udp_offloads: udp::UdpOffloads::ALL }
    }
}

impl Options {
    /// How many queues the TUN device should have, and how many sockets each address family will:
    /// half as many as there are cores, so that both directions of many peers find a core each. On
    /// fewer than four cores it is one.
    pub fn queues(&self) -> usize {
        (self.helpers.cores().count() / 2).clamp(1, tun::QUEUES_MAX)
    }
}

/// An engine that has all it needs, and no thread yet.
pub struct Prepared {
    engine: Engine,
    control: ControlThread,
    cores: Cores,
}

impl Prepared {
    /// Starts the threads, which inherit what the calling thread may do and may not.
    ///
    /// # Errors
    /// When the system has no threads left to give.
    pub fn start(self) -> Result<Engine, Failure> {
        let Self { mut engine, control, cores } = self;
        match engine.start_threads(control, &cores) {
            Ok(()) => Ok(engine),
            Err(error) => {
                engine.stop();
                Err(error.into())
            }
        }
    }
}

/// A running engine. Dropping it does not stop it; [`Engine::stop`] does.
pub struct Engine {
    handle: Handle,
    runtime: Arc<Runtime>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads have in common: who is at work, in which order, and for how long.
pub struct Runtime {
    /// Who of the workers is at work.
    pub pool: WorkerPool,
    /// Where packets come from.
    pub sources: Vec<Source>,
    /// What keeps the order: one for each of the sources.
    pub sequencers: Vec<Sequencer>,
    over: AtomicBool,
    ended: Event,
}

impl Runtime {
    /// Whether the engine ends.
    pub fn is_stopping(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// Asks things of a running engine, from any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared<KernelBackend>>,
    commands: mpsc::Sender<Command>,
}

enum Command {
    Get(mpsc::SyncSender<State>),
    Set(Box<Update>, mpsc::SyncSender<Result<(), ConfigError>>),
}

impl Handle {
    /// The device as it is; none when the engine has ended.
    pub fn get(&self) -> Option<State> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.command(Command::Get(reply));
        answer.recv().ok()
    }

    /// Changes the device, whole or not at all.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn set(&self, update: Update) -> Result<(), ConfigError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.command(Command::Set(Box::new(update), reply));
        answer.recv().unwrap_or(Err(ConfigError::Ended))
    }

    /// What happened with the peers that were active since a moment, without the slow path's thread.
    pub fn activity(&self, since: Boottime) -> Activity {
        self.shared.activity(since)
    }

    /// Every counter by name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.shared.counters.list()
    }

    fn command(&self, command: Command) {
        // When the engine has ended, the reply's sender is dropped with the command.
        let _ = self.commands.send(command);
        self.shared.slow_path_queue.signal();
    }
}

impl Engine {
    /// Opens everything that the threads will need, so that they can be started with fewer privileges than that
    /// takes. The link stays as it is: the engine answers at once and opens its sockets when the link is set up.
    ///
    /// # Errors
    /// When the interface cannot be prepared or the system has nothing left to give.
    pub fn prepare(tun: tun::TunDevice, options: &Options) -> Result<Prepared, Failure> {
        let name = tun.name().unwrap_or_default();
        let link = Link::new(&tun, options.mtu).map_err(|error| Failure::Interface { name, error })?;
        let (queues, sockets) = (tun.queues(), options.queues());
        tracing::debug!("{queues} queues, up to {sockets} sockets for each address family");
        let shared = Arc::new(Shared::new(KernelBackend::new(tun, sockets, options.udp_offloads), MTU_DEFAULT)?);
        let sources = Source::all(queues, sockets);
        let runtime = Arc::new(Runtime {
            pool: WorkerPool::new(options.helpers.scale_up_delay()),
            sequencers: sources.iter().map(|_| Sequencer::default()).collect(),
            sources,
            over: AtomicBool::new(false),
            ended: Event::new()?,
        });
        let (commands, commands_rx) = mpsc::channel();
        let control = ControlThread {
            slow: SlowPath::new(shared.clone()),
            shared: shared.clone(),
            runtime: runtime.clone(),
            link,
            gso_mtu: None,
            refused: None,
            read_error: None,
            retry_at: None,
            link_read_at: Boottime(0),
            timer: Timer::new()?,
            leap: ClockChange::new().inspect_err(|error| tracing::debug!("suspends are noticed late: {error}")).ok(),
            commands_rx,
        };
        let engine = Self { handle: Handle { shared, commands }, runtime, threads: Vec::new() };
        Ok(Prepared { engine, control, cores: options.helpers.cores() })
    }

    fn start_threads(&mut self, control: ControlThread, cores: &Cores) -> io::Result<()> {
        for place in 0..cores.count().clamp(1, WORKERS_MAX) {
            let worker = Worker::new(self.handle.shared.clone(), self.runtime.clone(), cores.clone());
            let runtime = self.runtime.clone();
            self.spawn("worker", move || {
                let next = if place == 0 { Next::Watch } else { runtime.pool.rest() };
                worker.serve(next);
            })?;
        }
        self.spawn("slow", || control.run())
    }

    fn spawn(&mut self, name: &str, serve: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name.into()).spawn(serve)?);
        Ok(())
    }

    /// Something to ask things of it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Readable when the engine has ended by itself, because its interface is gone.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.runtime.ended.as_fd()
    }

    /// Ends the threads and waits for them. The interface goes with the last descriptor.
    pub fn stop(self) {
        end(&self.runtime, &self.handle.shared);
        for thread in self.threads {
            thread.join().expect("a panic has ended the process before");
        }
    }
}

/// Has all threads end.
pub fn end(runtime: &Runtime, shared: &Shared<KernelBackend>) {
    runtime.over.store(true, Ordering::Release);
    // Before the signal: who is woken by that looks no second time.
    runtime.pool.end();
    shared.sockets.store(None);
    shared.sockets_changed.signal();
    shared.slow_path_queue.signal();
    runtime.ended.signal();
}

/// Waits for one of the descriptors.
fn wait(fds: &[BorrowedFd<'_>]) {
    if let Err(error) = wait::wait(fds) {
        tracing::error!("waiting failed: {error}");
        thread::sleep(WAIT_FAILED_PAUSE);
    }
}

/// The thread of the slow path: what it waits for, and what that means.
struct ControlThread {
    slow: SlowPath<KernelBackend>,
    shared: Arc<Shared<KernelBackend>>,
    runtime: Arc<Runtime>,
    link: Link,
    /// The MTU that super-packets were limited for.
    gso_mtu: Option<u32>,
    /// Why the link is up and the sockets are not open.
    refused: Option<String>,
    /// Why the link could not be read.
    read_error: Option<String>,
    /// When what failed is tried again.
    retry_at: Option<Boottime>,
    /// When the link was read last.
    link_read_at: Boottime,
    timer: Timer,
    /// Wakes after a suspend, of which the slow path then takes note; without one it does so when it wakes for something
    /// else.
    leap: Option<ClockChange>,
    commands_rx: mpsc::Receiver<Command>,
}

impl ControlThread {
    fn run(mut self) {
        // What was heard before the first look is older than what that finds: the link may have come up since.
        let _ = self.link.news(self.shared.backend.tun());
        self.read_link();
        let mut woken = false;
        while !self.runtime.is_stopping() {
            let found = self.slow.process()
                | self.handle_command()
                | self.handle_netlink()
                | self.retry()
                | self.runtime.is_stopping();
            if self.shared.source_check_failed.swap(false, Ordering::Relaxed) {
                self.retry_within_a_second();
            }
            if std::mem::take(&mut woken) {
                self.shared.counters.slow_path.count(found);
            }
            if found {
                continue;
            }
            if let Err(error) = self.timer.set(self.deadline().map(|deadline| deadline.0)) {
                tracing::error!("timers stand still: {error}");
            }
            let [here, there] = self.link.descriptors();
            let timer = self.timer.as_fd();
            let leap = self.leap.as_ref().map_or(timer, ClockChange::as_fd);
            wait(&[self.shared.slow_path_queue.event().as_fd(), timer, leap, here, there]);
            self.timer.drain();
            self.leap.iter().for_each(ClockChange::drain);
            woken = true;
        }
        self.slow.down();
    }

    fn deadline(&self) -> Option<Boottime> {
        [self.slow.deadline(), self.retry_at].into_iter().flatten().min()
    }

    /// Carries out one command: what else there is to do has its turn before the next.
    fn handle_command(&mut self) -> bool {
        let Ok(command) = self.commands_rx.try_recv() else { return false };
        // Who asked may have gone away meanwhile.
        let _ = match command {
            Command::Get(reply) => {
                // What happened before the question was asked, but after the last look.
                self.slow.process_confirmations();
                reply.send(self.slow.get()).is_ok()
            }
            Command::Set(update, reply) => reply.send(self.set(*update)).is_ok(),
        };
        true
    }

    fn set(&mut self, update: Update) -> Result<(), ConfigError> {
        if let Some(port) = update.listen_port.filter(|_| self.refused.is_some()) {
            // The link waits for one that can be had.
            self.slow.try_port(port, update.fwmark)?;
        }
        self.slow.set(update)?;
        if self.refused.is_some() {
            self.bring_up();
        }
        Ok(())
    }

    fn handle_netlink(&mut self) -> bool {
        let Some(news) = self.link.news(self.shared.backend.tun()) else { return false };
        if news.gone {
            tracing::info!("the interface was deleted");
            end(&self.runtime, &self.shared);
            return true;
        }
        if news.routing {
            self.slow.routing_changed();
        }
        if news.others {
            self.slow.interfaces_changed();
        }
        if news.down {
            // Sessions end with it, however soon it was up again.
            self.slow.down();
        }
        let now = self.shared.backend.boottime();
        match () {
            () if news.link => self.read_link(),
            // Where many routes change this is seldom about the link, and a look takes the kernel a walk over them all.
            () if news.unsure && now.since(self.link_read_at) >= RETRY_AFTER => self.read_link(),
            () if news.unsure => self.retry_within_a_second(),
            () => {}
        }
        true
    }

    fn retry_within_a_second(&mut self) {
        let at = self.shared.backend.boottime().after(RETRY_AFTER);
        self.retry_at = Some(self.retry_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn read_link(&mut self) {
        self.link_read_at = self.shared.backend.boottime();
        let (up, mtu) = match self.find_link() {
            Ok(Some(state)) => state,
            Ok(None) => return end(&self.runtime, &self.shared),
            Err(error) => return self.retry_later(&error),
        };
        if self.read_error.take().is_some() {
            tracing::info!("the state of the interface can be read again");
        }
        self.slow.set_mtu(mtu, self.link.route_mtus());
        if self.gso_mtu.replace(mtu) != Some(mtu) {
            // One super-packet of full segments is then one train; with more it would take two.
            let datagram = mtu as usize + crate::outbound::OVERHEAD;
            self.link.set_segments((udp::GSO_BATCH_MAX / datagram).clamp(1, udp::SEGMENTS_MAX));
        }
        if up {
            self.bring_up();
        } else {
            self.refused = None;
            self.update_not_listening();
            self.slow.down();
        }
    }

    /// Whether the link is up, and its MTU, wherever it is; none if it exists no more.
    fn find_link(&mut self) -> io::Result<Option<(bool, u32)>> {
        match self.link.state() {
            // Deleted, or moved, and the news of that on its way or lost.
            Err(error) if link::is_gone(&error) => {
                let exists = self.link.follow(self.shared.backend.tun())?;
                exists.then(|| self.link.state()).transpose()
            }
            state => state.map(Some),
        }
    }

    /// Leaves all as it is, because the link cannot be read; tells once why. There may be no news to wait for:
    /// what has changed is in those that could not be followed up.
    fn retry_later(&mut self, error: &io::Error) {
        let why = error.to_string();
        if self.read_error.as_ref() != Some(&why) {
            tracing::error!("the state of the interface cannot be read: {why}. It is tried again every second.");
        }
        self.read_error = Some(why);
        self.retry_at = Some(self.shared.backend.boottime().after(RETRY_AFTER));
    }

    /// Tries once more what failed, if the time for that has come; true if it has.
    fn retry(&mut self) -> bool {
        let due = self.retry_at.is_some_and(|at| at <= self.shared.backend.boottime());
        if due {
            self.retry_at = None;
            // Sources that could not be asked about, too.
            self.slow.routing_changed();
            self.read_link();
        }
        due
    }

    /// Opens the sockets; tells once why they cannot be had.
    fn bring_up(&mut self) {
        let refused = self.slow.up().err().map(|refusal| refusal.to_string());
        if let Some(refusal) = refused.as_ref().filter(|_| refused != self.refused) {
            tracing::error!("{refusal}. The tunnel does not listen until it is free; retrying every second.");
        }
        if refused.is_some() {
            self.retry_at = Some(self.shared.backend.boottime().after(RETRY_AFTER));
        }
        self.refused = refused;
        self.update_not_listening();
    }

    fn update_not_listening(&self) {
        self.shared.counters.not_listening.store(self.refused.is_some(), Ordering::Relaxed);
    }
}
