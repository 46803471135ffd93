//! Which thread runs which step.
//!
//! | thread | waits for | runs |
//! |---|---|---|
//! | `out` | the TUN device | [`crate::outbound`] |
//! | `in4`, `in6` | its socket | [`crate::inbound`] |
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

use linerate_netio::clock::Timer;
use linerate_netio::wait::{self, Event};
use linerate_netio::{tun, udp};

use crate::backend::{Backend, Kernel, Sockets};
use crate::config::{Refusal, State, Update};
use crate::inbound::Inbound;
use crate::link::Link;
use crate::outbound::{Outbound, Step};
use crate::shared::Shared;
use crate::slow_path::SlowPath;

/// Bytes that a datagram has around its inner packet, IPv6 and UDP headers included.
const ENCAPSULATION: u32 = 80;

/// What the MTU is set to at start: Ethernet's, less the encapsulation (kernel: device.c).
pub const MTU_DEFAULT: u32 = 1500 - ENCAPSULATION;

/// What a thread rests for when the kernel has no memory to let it wait.
const WAIT_FAILED_PAUSE: Duration = Duration::from_millis(100);

/// What a thread rests for after its socket reported an error instead of a datagram.
const RECEIVE_FAILED_PAUSE: Duration = Duration::from_millis(1);

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
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The MTU to give the interface; none leaves it as it is.
    pub mtu: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { mtu: Some(MTU_DEFAULT) }
    }
}

/// A running engine. Dropping it does not stop it; [`Engine::stop`] does.
pub struct Engine {
    handle: Handle,
    life: Arc<Life>,
    threads: Vec<JoinHandle<()>>,
}

/// What tells the threads to end, and others that they have.
struct Life {
    over: AtomicBool,
    out: Event,
    ended: Event,
}

impl Life {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// Asks things of a running engine, from any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared<Kernel>>,
    commands: mpsc::Sender<Command>,
}

enum Command {
    Get(mpsc::SyncSender<State>),
    Set(Box<Update>, mpsc::SyncSender<Result<(), Refusal>>),
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
    pub fn set(&self, update: Update) -> Result<(), Refusal> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.command(Command::Set(Box::new(update), reply));
        answer.recv().unwrap_or(Err(Refusal::Ended))
    }

    /// Every counter by name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.shared.counters.list()
    }

    fn command(&self, command: Command) {
        // When the engine has ended, the reply's sender is dropped with the command.
        let _ = self.commands.send(command);
        self.shared.notices.signal();
    }
}

impl Engine {
    /// Starts the threads. The link stays as it is: the engine answers at once and opens its
    /// sockets when the link is set up.
    ///
    /// # Errors
    /// When the interface cannot be prepared or the system has nothing left to give.
    pub fn start(tun: tun::Device, options: &Options) -> Result<Self, Failure> {
        let name = tun.name().unwrap_or_default();
        let link = Link::new(&tun, options.mtu).map_err(|error| Failure::Interface { name, error })?;
        let shared = Arc::new(Shared::new(Kernel::new(tun), MTU_DEFAULT)?);
        let life = Arc::new(Life { over: AtomicBool::new(false), out: Event::new()?, ended: Event::new()? });
        let (commands, orders) = mpsc::channel();
        let keeper = Keeper {
            slow: SlowPath::new(shared.clone()),
            shared: shared.clone(),
            life: life.clone(),
            link,
            segmented_for: None,
            refused: None,
            timer: Timer::new()?,
            orders,
        };
        let mut engine = Self { handle: Handle { shared, commands }, life, threads: Vec::new() };
        match engine.start_threads(keeper) {
            Ok(()) => Ok(engine),
            Err(error) => {
                engine.stop();
                Err(error.into())
            }
        }
    }

    fn start_threads(&mut self, keeper: Keeper) -> io::Result<()> {
        self.spawn("out", serve_tun)?;
        self.spawn("in4", |shared, life| serve_socket(shared, life, Family::V4))?;
        self.spawn("in6", |shared, life| serve_socket(shared, life, Family::V6))?;
        self.spawn("slow", |_, _| keeper.keep())
    }

    fn spawn(
        &mut self,
        name: &str,
        serve: impl FnOnce(Arc<Shared<Kernel>>, Arc<Life>) + Send + 'static,
    ) -> io::Result<()> {
        let (shared, life) = (self.handle.shared.clone(), self.life.clone());
        self.threads.push(thread::Builder::new().name(name.into()).spawn(move || serve(shared, life))?);
        Ok(())
    }

    /// Something to ask things of it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Readable when the engine has ended by itself, because its interface is gone.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.life.ended.as_fd()
    }

    /// Ends the threads and waits for them. The interface goes with the last descriptor.
    pub fn stop(self) {
        end(&self.life, &self.handle.shared);
        for thread in self.threads {
            thread.join().expect("a panic has ended the process before");
        }
    }
}

fn end(life: &Life, shared: &Shared<Kernel>) {
    life.over.store(true, Ordering::Release);
    life.out.signal();
    shared.sockets.store(None);
    shared.sockets_changed.iter().for_each(Event::signal);
    shared.notices.signal();
    life.ended.signal();
}

/// Waits for one of the descriptors; bit `i` of the answer is the one at place `i`.
fn wait(fds: &[BorrowedFd<'_>]) -> u64 {
    wait::wait(fds).unwrap_or_else(|error| {
        tracing::error!("waiting failed: {error}");
        thread::sleep(WAIT_FAILED_PAUSE);
        0
    })
}

/// Carries what the TUN device has until the engine ends or the device is gone.
fn serve_tun(shared: Arc<Shared<Kernel>>, life: Arc<Life>) {
    let mut outbound = Outbound::new(shared.clone());
    let mut woken = false;
    while !life.is_over() {
        match outbound.step() {
            Ok(step) => {
                if std::mem::take(&mut woken) {
                    shared.counters.outbound.count(step == Step::Work);
                }
                if step == Step::Idle {
                    wait(&[shared.backend.tun().as_fd(), life.out.as_fd()]);
                    woken = true;
                }
            }
            Err(error) => {
                tracing::info!("the interface is gone ({error})");
                end(&life, &shared);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn socket(self, sockets: &Sockets<udp::UdpSocket>) -> Option<&udp::UdpSocket> {
        match self {
            Family::V4 => sockets.v4.as_ref(),
            Family::V6 => sockets.v6.as_ref(),
        }
    }
}

/// Carries what the socket of one family has, whichever socket that is.
fn serve_socket(shared: Arc<Shared<Kernel>>, life: Arc<Life>, family: Family) {
    let mut inbound = Inbound::new(shared.clone());
    let changed = &shared.sockets_changed[family as usize];
    loop {
        // Drained before anything is looked at: what is signalled from here on wakes us.
        changed.drain();
        if life.is_over() {
            return;
        }
        let sockets = shared.sockets.load_full();
        match sockets.as_ref().and_then(|own| Some((own, family.socket(own)?))) {
            Some((own, socket)) => {
                let replaced = || !shared.sockets.load().as_ref().is_some_and(|now| Arc::ptr_eq(now, own));
                serve_until(&shared, &mut inbound, socket, changed, replaced);
            }
            None => {
                wait(&[changed.as_fd()]);
            }
        }
    }
}

/// Carries what one socket has until it is replaced or the engine ends, which both signal
/// `changed`.
fn serve_until(
    shared: &Shared<Kernel>,
    inbound: &mut Inbound<Kernel>,
    socket: &udp::UdpSocket,
    changed: &Event,
    replaced: impl Fn() -> bool,
) {
    let mut woken = false;
    while !replaced() {
        match inbound.step(socket) {
            Ok(step) => {
                if std::mem::take(&mut woken) {
                    shared.counters.inbound.count(step == Step::Work);
                }
                if step == Step::Work {
                    continue;
                }
            }
            // What an ICMP message said about a datagram of ours: the call took it off the
            // socket, nothing else is to be done. Should it not go away, that must not cost a core.
            Err(error) => {
                tracing::debug!("receive: {error}");
                thread::sleep(RECEIVE_FAILED_PAUSE);
            }
        }
        if wait(&[socket.as_fd(), changed.as_fd()]) & 0b10 != 0 {
            return;
        }
        woken = true;
    }
}

/// The thread of the slow path: what it waits for, and what that means.
struct Keeper {
    slow: SlowPath<Kernel>,
    shared: Arc<Shared<Kernel>>,
    life: Arc<Life>,
    link: Link,
    /// The MTU that super-packets were limited for.
    segmented_for: Option<u32>,
    /// Why the link is up and the sockets are not open.
    refused: Option<String>,
    timer: Timer,
    orders: mpsc::Receiver<Command>,
}

impl Keeper {
    fn keep(mut self) {
        self.read_link();
        let mut woken = false;
        while !self.life.is_over() {
            let found = self.slow.look() | self.obey() | self.observe() | self.life.is_over();
            if std::mem::take(&mut woken) {
                self.shared.counters.slow_path.count(found);
            }
            if found {
                continue;
            }
            if let Err(error) = self.timer.set(self.slow.deadline().map(|deadline| deadline.0)) {
                tracing::error!("timers stand still: {error}");
            }
            let [here, there] = self.link.descriptors();
            wait(&[self.shared.notices.event().as_fd(), self.timer.as_fd(), here, there]);
            self.timer.drain();
            woken = true;
        }
        self.slow.down();
    }

    fn obey(&mut self) -> bool {
        let mut obeyed = false;
        while let Ok(command) = self.orders.try_recv() {
            obeyed = true;
            // Who asked may have gone away meanwhile.
            let _ = match command {
                Command::Get(reply) => reply.send(self.slow.get()).is_ok(),
                Command::Set(update, reply) => {
                    let set = self.slow.set(*update);
                    if set.is_ok() && self.refused.is_some() {
                        // Another port, perhaps, and this one can be had.
                        self.bring_up();
                    }
                    reply.send(set).is_ok()
                }
            };
        }
        obeyed
    }

    fn observe(&mut self) -> bool {
        let Some(news) = self.link.news(self.shared.backend.tun()) else { return false };
        if news.gone {
            tracing::info!("the interface was deleted");
            end(&self.life, &self.shared);
            return true;
        }
        if news.routing {
            self.slow.routing_changed();
        }
        if news.link {
            self.read_link();
        }
        true
    }

    fn read_link(&mut self) {
        let (up, mtu) = match self.link.state() {
            Ok(state) => state,
            // Deleted, or moved, and the news of that on its way or lost.
            Err(error) if self.link.follow(self.shared.backend.tun()) => {
                return tracing::debug!("the link cannot be read: {error}");
            }
            Err(_) => return end(&self.life, &self.shared),
        };
        self.slow.set_mtu(mtu, self.link.route_mtus());
        if self.segmented_for.replace(mtu) != Some(mtu) {
            // One super-packet of full segments is then one train; with more it would take two.
            let datagram = mtu as usize + crate::outbound::OVERHEAD;
            self.link.set_segments((udp::TRAIN_MAX / datagram).clamp(1, udp::SEGMENTS_MAX));
        }
        if up {
            self.bring_up();
        } else {
            self.refused = None;
            self.slow.down();
        }
    }

    /// Opens the sockets; tells once why they cannot be had.
    fn bring_up(&mut self) {
        let refused = self.slow.up().err().map(|refusal| refusal.to_string());
        if let Some(refusal) = refused.as_ref().filter(|_| refused != self.refused) {
            tracing::error!("{refusal}");
        }
        self.refused = refused;
    }
}
