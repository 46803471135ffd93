//! Starts and ends an engine, and which thread runs what.
//!
//! | thread | waits for | runs |
//! |---|---|---|
//! | `worker` | the primary for the TUN device's queues and the sockets, parked helpers to be unparked | [`crate::worker`]: [`crate::outbound`] and [`crate::inbound`] |
//! | `control` | the slow path's queue, the timer, netlink, commands | [`crate::control_thread`], with [`crate::slow_path`] |
//!
//! Each runs until there is nothing to do and then waits without a time-out: under load nothing polls, at rest
//! nothing wakes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_netio::cores::Cores;
use linerate_netio::tun::{self, Tun};
use linerate_netio::udp::{self, BoundSockets, Socket};
use linerate_protocol::Boottime;
use tracing::dispatcher;

use crate::backend::{Backend, KernelBackend};
use crate::config::{ActivityReport, ConfigError, DeviceChange, DeviceReport, UsageReport};
use crate::control_thread::{Command, ControlThread};
use crate::device::Device;
use crate::embedder::{Embedder, Network};
use crate::link::Link;
use crate::mtu::MTU_DEFAULT;
use crate::runtime::Runtime;
use crate::rx_queue::RxQueue;
use crate::shared::Shared;
use crate::sync::WORKERS_MAX;
use crate::worker::Worker;
use crate::worker_pool::{self, Next, WorkerPool};

/// Why an engine could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The interface could not be prepared.
    #[error("cannot prepare the interface {name}: {error}")]
    Interface {
        /// Its name.
        name: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The system has no threads, descriptors or memory left.
    #[error(
        "cannot start: {0}. It needs a few threads, some dozens of descriptors (`ulimit -n', LimitNOFILE=), and memory."
    )]
    System(#[from] io::Error),
}

/// How to run.
#[derive(Clone)]
pub struct Options {
    /// The MTU to give the interface; `None` keeps its own. For a device that was handed over, the one that it has.
    pub mtu: Option<u32>,
    /// When helpers join the primary worker.
    pub helpers: Helpers,
    /// The kernel offloads that the sockets may use. The TUN device has its own.
    pub udp_offloads: udp::UdpOffloads,
    /// For how long at most a worker looks for packets before it sleeps; zero: it sleeps at once.
    pub spin: Duration,
    /// The program that it runs inside of, if that is not the daemon.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Nobody but this process sees the device: it is in the process, or in a network of its own. It is up already, and
    /// its link stays as it is. Once the engine runs it only listens to what the kernel tells of the host's network, so
    /// the process may give up the rights to ask.
    pub is_private: bool,
}

/// When helpers join the primary worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helpers {
    /// When it has been busy for a while and another would get a core.
    OnDemand,
    /// At every batch, as if there were four cores: to test that packets stay in order.
    Always,
}

impl Helpers {
    /// Nanoseconds for which a worker has to be busy before it unparks a helper.
    fn scale_up_delay(self) -> u64 {
        match self {
            Helpers::OnDemand => worker_pool::SCALE_UP_DELAY_MIN,
            Helpers::Always => 0,
        }
    }

    fn cores(self) -> Cores {
        match self {
            Helpers::OnDemand => Cores::new(),
            Helpers::Always => Cores::simulated(4),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mtu: Some(MTU_DEFAULT),
            helpers: Helpers::OnDemand,
            udp_offloads: udp::UdpOffloads::ALL,
            spin: Duration::ZERO,
            embedder: None,
            is_private: false,
        }
    }
}

impl Options {
    /// How many queues the TUN device should have, and how many sockets each address family will have: one for two
    /// cores, so that both directions of many peers find a core each; one below four cores.
    pub fn queues(&self) -> usize {
        (self.helpers.cores().count() / 2).clamp(1, tun::QUEUES_MAX)
    }
}

/// A running engine. Dropping it does not stop it; [`Engine::stop`] does.
pub struct Engine {
    handle: Handle,
    runtime: Arc<Runtime>,
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Opens everything that the threads will need, so that the caller can give up privileges before
    /// [`Prepared::start`]. The link stays as it is: the engine answers at once and opens its sockets when the link
    /// is set up.
    ///
    /// # Errors
    /// When the interface cannot be prepared or the system has no descriptors or memory left.
    pub fn prepare(tun: impl Into<Device>, options: &Options) -> Result<Prepared, EngineError> {
        let tun = tun.into();
        let name = tun.name().unwrap_or_default();
        let link =
            Link::new(&tun, options.mtu, options.is_private).map_err(|error| EngineError::Interface { name, error })?;
        // An app looks after one socket of each family (wgGetSocketV4 of wireguard-android).
        let sockets = if options.embedder.is_some() { 1 } else { options.queues() };
        let queues = tun.queues();
        tracing::debug!("{queues} queues, up to {sockets} sockets for each address family");
        let shared = Arc::new(Shared::new(
            KernelBackend::new(tun, sockets, options.udp_offloads, options.embedder.clone(), options.is_private),
            MTU_DEFAULT,
        )?);
        let pool = WorkerPool::new(options.helpers.scale_up_delay());
        let runtime = Arc::new(Runtime::new(pool, RxQueue::all(queues, sockets))?);
        let (commands, receiver) = mpsc::channel();
        let control = ControlThread::new(shared.clone(), runtime.clone(), link, receiver)?;
        let engine = Self { handle: Handle { shared, commands }, runtime, threads: Vec::new() };
        Ok(Prepared { engine, control, cores: options.helpers.cores(), spin: options.spin })
    }

    fn start_threads(&mut self, control: ControlThread, cores: &Cores, spin: Duration) -> io::Result<()> {
        for index in 0..cores.count().clamp(1, WORKERS_MAX) {
            let worker = Worker::new(self.handle.shared.clone(), self.runtime.clone(), cores.clone(), spin);
            let runtime = self.runtime.clone();
            self.spawn("worker", move || worker.run(if index == 0 { Next::Wait } else { runtime.pool.park() }))?;
        }
        self.spawn("control", || control.run())
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // One process may have several engines inside of it, each with a log of its own.
        let log = self.handle.shared.backend.is_embedded().then(|| dispatcher::get_default(Clone::clone));
        let run = || match log {
            Some(log) => dispatcher::with_default(&log, run),
            None => run(),
        };
        self.threads.push(thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }

    /// A handle for commands and questions.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Readable when the engine has ended by itself, because its interface is gone.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.runtime.ended()
    }

    /// Ends the threads and waits for them. The interface goes with the last descriptor.
    pub fn stop(self) {
        self.runtime.end(&self.handle.shared);
        for thread in self.threads {
            thread.join().expect("a panic aborts the process");
        }
    }
}

/// An engine that has everything it needs except threads.
pub struct Prepared {
    engine: Engine,
    control: ControlThread,
    cores: Cores,
    spin: Duration,
}

impl Prepared {
    /// Configures the device and opens its sockets on the calling thread, before there are others.
    ///
    /// # Errors
    /// Why it cannot be configured so.
    pub fn configure(&mut self, change: DeviceChange) -> Result<(), ConfigError> {
        self.control.configure(change)
    }

    /// A handle, for when it has started.
    pub fn handle(&self) -> Handle {
        self.engine.handle()
    }

    /// Starts the threads, which inherit the calling thread's privileges.
    ///
    /// # Errors
    /// When the system has no threads left.
    pub fn start(self) -> Result<Engine, EngineError> {
        let Self { mut engine, control, cores, spin } = self;
        match engine.start_threads(control, &cores, spin) {
            Ok(()) => Ok(engine),
            Err(error) => {
                engine.stop();
                Err(error.into())
            }
        }
    }
}

/// Commands and questions to a running engine, from any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared<KernelBackend>>,
    commands: mpsc::Sender<Command>,
}

impl Handle {
    /// The state of the device; `None` when the engine has ended.
    pub fn get(&self) -> Option<DeviceReport> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.command(Command::Get(reply));
        answer.recv().ok()
    }

    /// Changes the device, entirely or not at all.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn set(&self, change: DeviceChange) -> Result<(), ConfigError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.command(Command::Set(Box::new(change), reply));
        answer.recv().unwrap_or(Err(ConfigError::Ended))
    }

    /// What peers with limits have used; it is to be read, and kept, whenever [`Handle::usage_changed`] is readable.
    /// When the engine has ended, what they had used by then, once, and `None` after that.
    pub fn usage(&self) -> Option<UsageReport> {
        self.shared.usage_changed.drain();
        let (reply, answer) = mpsc::sync_channel(1);
        self.command(Command::Usage(reply));
        let last = || self.shared.last_usage.lock().expect("a panic aborts the process").take();
        answer.recv().ok().or_else(last)
    }

    /// Readable when a peer was suspended, let in again or replaced, and within a minute of traffic of peers with
    /// limits.
    pub fn usage_changed(&self) -> BorrowedFd<'_> {
        self.shared.usage_changed.as_fd()
    }

    /// The traffic of the peers that were active since `since`. Does not involve the control thread.
    pub fn activity(&self, since: Boottime) -> ActivityReport {
        self.shared.activity(since)
    }

    /// What has changed of a fleet's peers since the reply with this number. Does not involve the control thread.
    #[cfg(feature = "fleet")]
    pub fn fleet_changes(&self, since: u64) -> crate::config::FleetChanges {
        crate::fleet::changes(&self.shared, since)
    }

    /// Whether packets wait for a session, or for an endpoint.
    pub fn has_staged(&self) -> bool {
        !self.shared.staged.is_empty()
    }

    /// The network of the host is lost, or is another: only who has no netlink has to tell ([`Embedder`]).
    pub fn set_network(&self, network: Network) {
        self.command(Command::Network(network));
    }

    /// Goes over to another interface, of which an app has made this descriptor. Sessions stay.
    ///
    /// # Errors
    /// When it is no such descriptor, or the device was not handed over; then nothing has changed.
    pub fn replace_tun(&self, fd: OwnedFd) -> Result<(), tun::TunError> {
        self.shared.backend.tun().replace(fd)?;
        // Whoever waits still waits for the old one.
        self.shared.sockets_changed.signal();
        Ok(())
    }

    /// The numbers of the sockets' descriptors, for IPv4 and for IPv6, if there are any now.
    pub fn socket_numbers(&self) -> [Option<RawFd>; 2] {
        let sockets = self.shared.sockets.load();
        let first = |family: fn(&BoundSockets<udp::UdpSocket>) -> &[udp::UdpSocket]| {
            sockets.as_deref().and_then(|sockets| family(sockets).first()).map(|socket| socket.as_fd().as_raw_fd())
        };
        [first(|sockets| &sockets.v4), first(|sockets| &sockets.v6)]
    }

    /// Every counter by name, and 1 for each offload that is in use, 0 for one that is not. A device that is down has no
    /// sockets, so nothing is said of theirs.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut counters = self.shared.counters.list();
        let tun = self.shared.backend.tun().offloads();
        let mut offloads = vec![("offload_tun_tso", tun.tso), ("offload_tun_uso", tun.uso)];
        let sockets = self.shared.sockets.load();
        if let Some(socket) = sockets.as_deref().and_then(|sockets| sockets.v4.first().or(sockets.v6.first())) {
            let udp = socket.offloads();
            offloads.extend([("offload_udp_gso", udp.gso), ("offload_udp_gro", udp.gro)]);
        }
        #[cfg(feature = "fleet")]
        counters.push(("fleet_forwarded".to_owned(), self.shared.fleet.forwarded()));
        counters.extend(offloads.into_iter().map(|(name, in_use)| (name.to_owned(), u64::from(in_use))));
        counters
    }

    fn command(&self, command: Command) {
        // If the engine has ended, this drops the command and with it the reply's sender.
        let _ = self.commands.send(command);
        self.shared.slow_path_queue.signal();
    }
}
