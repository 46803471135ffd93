//! The control thread: runs the slow path, carries out commands and follows the link.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use linerate_netio::clock::{ClockChange, Timer};
use linerate_netio::link;
use linerate_protocol::Boottime;

use crate::backend::{Backend, KernelBackend};
use crate::config::{ConfigError, DeviceChange, DeviceReport, UsageReport};
use crate::embedder::{Event, Network};
use crate::link::Link;
use crate::runtime::{self, Runtime};
use crate::shared::Shared;
use crate::slow_path::SlowPath;

/// The time after which reading the link and opening the sockets are retried. There is no event to wait for: nobody
/// tells that a descriptor or a port has become free.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request of a [`crate::Handle`].
pub enum Command {
    Get(mpsc::SyncSender<DeviceReport>),
    Set(Box<DeviceChange>, mpsc::SyncSender<Result<(), ConfigError>>),
    Usage(mpsc::SyncSender<UsageReport>),
    Network(Network),
}

/// The owner of the slow path and of the link.
pub struct ControlThread {
    slow_path: SlowPath<KernelBackend>,
    shared: Arc<Shared<KernelBackend>>,
    runtime: Arc<Runtime>,
    commands: mpsc::Receiver<Command>,
    link: Link,
    /// The MTU for which the size of GSO packets was limited.
    gso_mtu: Option<u32>,
    /// Why the sockets are not open although the link is up.
    bind_error: Option<String>,
    /// Why the link could not be read.
    link_error: Option<String>,
    link_read_at: Boottime,
    retry_at: Option<Boottime>,
    /// There is no network; see [`Network::Lost`].
    network_lost: bool,
    timer: Timer,
    /// Wakes the thread after a suspend. Without one, the slow path notices a suspend at its next wake-up; an app does not
    /// care for it ([`Backend::suspended`]).
    clock_change: Option<ClockChange>,
}

impl ControlThread {
    /// A thread that has not started.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn new(
        shared: Arc<Shared<KernelBackend>>,
        runtime: Arc<Runtime>,
        link: Link,
        commands: mpsc::Receiver<Command>,
    ) -> io::Result<Self> {
        let unavailable = |error: &io::Error| tracing::debug!("suspends are noticed late: {error}");
        let clock_change = (!shared.backend.is_embedded()).then(|| ClockChange::new().inspect_err(unavailable).ok());
        Ok(Self {
            slow_path: SlowPath::new(shared.clone()),
            shared,
            runtime,
            commands,
            link,
            gso_mtu: None,
            bind_error: None,
            link_error: None,
            link_read_at: Boottime(0),
            retry_at: None,
            network_lost: false,
            timer: Timer::new()?,
            clock_change: clock_change.flatten(),
        })
    }

    /// Configures the device, and opens its sockets if its link is up, before there are threads.
    ///
    /// # Errors
    /// Why nothing was changed, or why the sockets cannot be opened.
    pub fn configure(&mut self, change: DeviceChange) -> Result<(), ConfigError> {
        self.slow_path.set(change)?;
        if self.link.state().is_ok_and(|(up, _)| up) { self.slow_path.up() } else { Ok(()) }
    }

    /// Runs until the engine ends.
    pub fn run(mut self) {
        // Discard events queued before the initial read: the read is newer.
        let _ = self.link.events(self.shared.backend.tun());
        self.read_link();
        let mut woken = false;
        while !self.runtime.is_ending() {
            let found = self.slow_path.process()
                | self.handle_command()
                | self.handle_netlink()
                | self.retry()
                | self.runtime.is_ending();
            if self.shared.source_addr_check_failed.swap(false, Ordering::Relaxed) {
                self.retry_soon();
            }
            if std::mem::take(&mut woken) {
                self.shared.counters.control.count(found);
            }
            if found {
                continue;
            }
            if let Err(error) = self.timer.set(self.deadline().map(|deadline| deadline.0)) {
                tracing::error!("cannot set the timer, so handshakes and keepalives are late: {error}");
            }
            let timer = self.timer.as_fd();
            let [here, remote] = self.link.descriptors().unwrap_or([timer; 2]);
            let clock_change = self.clock_change.as_ref().map_or(timer, ClockChange::as_fd);
            runtime::wait(&[self.shared.slow_path_queue.event().as_fd(), timer, clock_change, here, remote]);
            self.timer.drain();
            self.clock_change.iter().for_each(ClockChange::drain);
            woken = true;
        }
        self.slow_path.down();
        self.shared.backend.notify(Event::Ended);
        // Before the commands' receiver is dropped: whoever asks now finds it.
        *self.shared.last_usage.lock().expect("a panic aborts the process") = Some(self.slow_path.usage());
    }

    fn deadline(&self) -> Option<Boottime> {
        if self.network_lost {
            return None;
        }
        [self.slow_path.deadline(), self.retry_at].into_iter().flatten().min()
    }

    /// Carries out one command; handshakes, timers and netlink are processed in between.
    fn handle_command(&mut self) -> bool {
        let Ok(command) = self.commands.try_recv() else { return false };
        // A failed reply means that the caller is gone.
        let _ = match command {
            Command::Get(reply) => {
                // Sessions confirmed since the last pass, but before the caller asked.
                self.slow_path.process_confirmations();
                reply.send(self.slow_path.get()).is_ok()
            }
            Command::Set(change, reply) => reply.send(self.set(*change)).is_ok(),
            Command::Usage(reply) => reply.send(self.slow_path.usage()).is_ok(),
            Command::Network(network) => self.set_network(network),
        };
        true
    }

    fn set(&mut self, change: DeviceChange) -> Result<(), ConfigError> {
        if let Some(port) = change.listen_port.filter(|_| self.bind_error.is_some()) {
            // The link is up and waits for a port: refuse one that is in use, too.
            self.slow_path.try_port(port, change.fwmark)?;
        }
        self.slow_path.set(change)?;
        if self.bind_error.is_some() {
            self.bring_up();
        }
        Ok(())
    }

    fn set_network(&mut self, network: Network) -> bool {
        self.network_lost = network == Network::Lost;
        if !self.network_lost {
            self.slow_path.network_changed();
            if self.bind_error.is_some() {
                self.bring_up();
            }
        }
        true
    }

    fn handle_netlink(&mut self) -> bool {
        let Some(events) = self.link.events(self.shared.backend.tun()) else { return false };
        if events.deleted {
            tracing::info!("the interface was deleted");
            self.runtime.end(&self.shared);
            return true;
        }
        if events.routing {
            self.slow_path.routing_changed();
        }
        if events.other_interfaces {
            self.slow_path.interfaces_changed();
        }
        if events.down {
            // Sessions end when the link goes down, even if it is up again by now.
            self.slow_path.down();
        }
        let now = self.shared.backend.boottime();
        match () {
            () if events.link => self.read_link(),
            // Rate-limited: while many routes change this is seldom about the link, and reading it makes the kernel
            // walk all routes.
            () if events.maybe_link && now.since(self.link_read_at) >= RETRY_AFTER => self.read_link(),
            () if events.maybe_link => self.retry_soon(),
            () => {}
        }
        true
    }

    /// Retries within [`RETRY_AFTER`].
    fn retry_soon(&mut self) {
        let at = self.shared.backend.boottime().after(RETRY_AFTER);
        self.retry_at = Some(self.retry_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Retries what failed, if it is time to; true if it was.
    fn retry(&mut self) -> bool {
        let due = self.retry_at.is_some_and(|at| at <= self.shared.backend.boottime());
        if due {
            self.retry_at = None;
            // For source addresses that could not be checked.
            self.slow_path.routing_changed();
            self.read_link();
        }
        due
    }

    fn read_link(&mut self) {
        self.link_read_at = self.shared.backend.boottime();
        let (up, mtu) = match self.find_link() {
            Ok(Some(state)) => state,
            Ok(None) => return self.runtime.end(&self.shared),
            Err(error) => return self.report_link_error(&error),
        };
        if self.link_error.take().is_some() {
            tracing::info!("the state of the interface can be read again");
        }
        self.slow_path.set_mtu(mtu, self.link.route_mtus());
        if self.gso_mtu.replace(mtu) != Some(mtu) {
            self.link.limit_gso_segments(mtu);
        }
        if up {
            self.bring_up();
        } else {
            self.bind_error = None;
            self.update_not_listening();
            self.slow_path.down();
        }
    }

    /// Whether the link is up, and its MTU, in whichever namespace it is; `None` if it was deleted.
    fn find_link(&mut self) -> io::Result<Option<(bool, u32)>> {
        match self.link.state() {
            // Deleted or moved; the event about that has not arrived yet, or was lost.
            Err(error) if link::is_gone(&error) => {
                let exists = self.link.follow(self.shared.backend.tun())?;
                exists.then(|| self.link.state()).transpose()
            }
            state => state.map(Some),
        }
    }

    /// Logs, once, why the link cannot be read, and schedules a retry: no further event may come.
    fn report_link_error(&mut self, error: &io::Error) {
        let error = error.to_string();
        if self.link_error.as_ref() != Some(&error) {
            tracing::error!("cannot read the state of the interface: {error}; retrying every second");
        }
        self.link_error = Some(error);
        self.retry_at = Some(self.shared.backend.boottime().after(RETRY_AFTER));
    }

    /// Opens the sockets; logs, once, why they cannot be opened, and schedules a retry.
    fn bring_up(&mut self) {
        let bind_error = self.slow_path.up().err().map(|error| error.to_string());
        if let Some(error) = bind_error.as_ref().filter(|_| bind_error != self.bind_error) {
            tracing::error!("{error}; retrying every second");
        }
        if bind_error.is_some() {
            self.retry_at = Some(self.shared.backend.boottime().after(RETRY_AFTER));
        }
        self.bind_error = bind_error;
        self.update_not_listening();
    }

    fn update_not_listening(&self) {
        self.shared.counters.not_listening.store(self.bind_error.is_some(), Ordering::Relaxed);
    }
}
