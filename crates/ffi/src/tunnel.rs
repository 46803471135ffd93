//! One tunnel: an engine over a descriptor that was handed over, and what it tells its host.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use linerate_configure::{to_activity, to_device_change, to_device_state, to_errno};
use linerate_control::keys::PublicKey;
use linerate_control::uapi::AEAD_IN_USE;
use linerate_control::uapi::request::{self, REQUEST_MAX, Request};
use linerate_control::zeroizing::Buffer;
use linerate_engine::config::{ConfigError, DeviceChange};
use linerate_engine::embedder::{Embedder, Event, Network};
use linerate_engine::{Engine, EngineError, Handle, Options};
use linerate_netio::tun::TunDevice;
use linerate_protocol::Boottime;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Level, dispatcher};

use crate::log::Log;

/// The program around a tunnel. All of it is called by threads of the engine, and `protect` and `log` also by those
/// that call the tunnel.
pub(crate) trait Host: Send + Sync + 'static {
    /// Keeps a socket's datagrams out of the tunnel; false if that is impossible.
    fn protect(&self, socket: RawFd) -> bool;
    /// A line of the log.
    fn log(&self, level: Level, text: &str);
    /// Something has happened, to the peer of this key or for this reason.
    fn event(&self, what: HostEvent, detail: &str);
}

/// What a host is told; the numbers are those of `include/linerate.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostEvent {
    Handshake = 1,
    SilentPeer = 2,
    Ended = 3,
}

/// What [`Tunnel::get`] returns; the numbers are those of `include/linerate.h`.
#[derive(Clone, Copy)]
pub(crate) enum What {
    Configuration = 0,
    Statistics = 1,
    Counters = 2,
}

impl What {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [Self::Configuration, Self::Statistics, Self::Counters].into_iter().find(|what| *what as u32 == number)
    }
}

/// Why a call did nothing.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Positive.
    pub(crate) errno: i32,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(errno: i32, why: impl Into<String>) -> Self {
        Self { errno, why: why.into() }
    }

    fn ended() -> Self {
        Self::new(libc::ESHUTDOWN, "the tunnel has ended: its interface is gone")
    }
}

/// How a tunnel is to run.
pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    pub(crate) tun: OwnedFd,
    /// The MTU of the interface; `None`: 1420.
    pub(crate) mtu: Option<u32>,
    pub(crate) settings: &'a [u8],
    pub(crate) host: Arc<dyn Host>,
    /// The most that its log has.
    pub(crate) log: LevelFilter,
}

/// A tunnel. It has to be stopped before it is dropped.
pub(crate) struct Tunnel {
    /// Calls hold it for reading, so that the last one has returned when the engine is stopped.
    engine: RwLock<Option<Engine>>,
    bridge: Arc<Bridge>,
    log: Dispatch,
}

impl Tunnel {
    /// Starts a tunnel; its sockets are open when this returns.
    pub(crate) fn start(start: Start<'_>) -> Result<Self, Refusal> {
        let change = parse(start.settings)?;
        let log = Dispatch::new(Log { host: start.host.clone(), most: start.log });
        let bridge = Arc::new(Bridge { host: start.host, silent: Mutex::default(), stopping: AtomicBool::new(false) });
        let options = Options { mtu: start.mtu, embedder: Some(bridge.clone()), ..Options::default() };
        let engine = dispatcher::with_default(&log, || {
            tracing::debug!("{}: packets are sealed by {}", start.name, linerate_aead::choose::current().name());
            let tun = TunDevice::handed_over(start.tun)
                .map_err(|error| Refusal::new(libc::EINVAL, format!("{}: {error}", start.name)))?;
            let mut prepared = Engine::prepare(tun, &options).map_err(engine_refusal)?;
            prepared.configure(change).map_err(config_refusal)?;
            prepared.start().map_err(engine_refusal)
        })?;
        Ok(Self { engine: RwLock::new(Some(engine)), bridge, log })
    }

    /// Changes the configuration, entirely or not at all.
    pub(crate) fn set(&self, settings: &[u8]) -> Result<(), Refusal> {
        let change = parse(settings)?;
        self.with_engine(|engine| engine.set(change).map_err(config_refusal))
    }

    /// The text of `what`, without an end.
    pub(crate) fn get(&self, what: What) -> Result<Buffer, Refusal> {
        self.with_engine(|engine| {
            let reply = match what {
                What::Configuration => to_device_state(&engine.get().ok_or_else(Refusal::ended)?).render(),
                What::Statistics => to_activity(&engine.activity(Boottime(0))).render(),
                What::Counters => return Ok(counters(&engine)),
            };
            let mut text = Buffer::with_capacity(reply.len());
            text.extend(reply.strip_suffix(b"errno=0\n\n").unwrap_or(&reply));
            Ok(text)
        })
    }

    /// The host's network has changed.
    pub(crate) fn set_network(&self, network: Network) -> Result<(), Refusal> {
        self.with_engine(|engine| {
            engine.set_network(network);
            Ok(())
        })
    }

    /// Goes over to another interface.
    pub(crate) fn replace_tun(&self, tun: OwnedFd) -> Result<(), Refusal> {
        self.with_engine(|engine| {
            engine.replace_tun(tun).map_err(|error| Refusal::new(libc::EINVAL, error.to_string()))
        })
    }

    /// The numbers of the sockets' descriptors, for IPv4 and for IPv6.
    pub(crate) fn sockets(&self) -> Result<[Option<RawFd>; 2], Refusal> {
        self.with_engine(|engine| Ok(engine.socket_numbers()))
    }

    /// Ends the tunnel; no thread, no descriptor and no callback remains. Another call finds nothing to do.
    pub(crate) fn stop(&self) {
        self.bridge.stopping.store(true, Ordering::Release);
        let engine = self.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        dispatcher::with_default(&self.log, || engine.into_iter().for_each(Engine::stop));
    }

    fn with_engine<T>(&self, call: impl FnOnce(Handle) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        let handle = engine.as_ref().map(Engine::handle).ok_or_else(unknown)?;
        dispatcher::with_default(&self.log, || call(handle))
    }
}

/// There is no such tunnel.
pub(crate) fn unknown() -> Refusal {
    Refusal::new(libc::EBADF, "there is no such tunnel: it was stopped, or never started")
}

/// Between an engine and the host.
struct Bridge {
    host: Arc<dyn Host>,
    /// The peers that the host knows to be silent.
    silent: Mutex<HashSet<[u8; 32]>>,
    stopping: AtomicBool,
}

impl Embedder for Bridge {
    fn protect(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let _in_callback = CallbackGuard::enter();
        if self.host.protect(socket.as_raw_fd()) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the app could not protect the socket"))
    }

    fn notify(&self, event: Event) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let (what, detail) = match event {
            Event::Handshake(key) => {
                silent.remove(&key.0);
                (HostEvent::Handshake, PublicKey(key.0).to_hex())
            }
            Event::Unanswered(key) if silent.insert(key.0) => (HostEvent::SilentPeer, PublicKey(key.0).to_hex()),
            Event::Ended if !self.stopping.load(Ordering::Acquire) => {
                (HostEvent::Ended, "its interface is gone".to_owned())
            }
            Event::Unanswered(_) | Event::Ended => return,
        };
        drop(silent);
        let _in_callback = CallbackGuard::enter();
        self.host.event(what, &detail);
    }
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread is in a callback, where a call of a tunnel could wait for itself.
pub(crate) struct CallbackGuard {
    before: bool,
}

impl CallbackGuard {
    pub(crate) fn enter() -> Self {
        Self { before: IN_CALLBACK.replace(true) }
    }

    /// Refuses a call of a tunnel that a callback makes.
    pub(crate) fn refuse() -> Result<(), Refusal> {
        let why = "not from a callback: it would wait for itself; call from another thread";
        if IN_CALLBACK.get() { Err(Refusal::new(libc::EDEADLK, why)) } else { Ok(()) }
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        IN_CALLBACK.set(self.before);
    }
}

/// The change that the lines of a `set` ask for.
fn parse(settings: &[u8]) -> Result<DeviceChange, Refusal> {
    if settings.len() > REQUEST_MAX {
        return Err(Refusal::new(libc::EINVAL, format!("the settings are longer than {REQUEST_MAX} bytes")));
    }
    let mut text = Buffer::with_capacity(settings.len() + 8);
    text.extend(b"set=1\n");
    text.extend(settings);
    text.extend(if settings.is_empty() || settings.ends_with(b"\n") { b"\n" } else { b"\n\n" });
    match request::parse(&text) {
        Ok(Request::Set(update)) => Ok(to_device_change(&update)),
        Ok(_) => Err(Refusal::new(libc::EINVAL, "the settings are no lines of a UAPI set")),
        // Its first line is ours.
        Err(error) => Err(Refusal::new(libc::EINVAL, format!("the settings, counted from `set=1`: {error}"))),
    }
}

fn config_refusal(error: ConfigError) -> Refusal {
    Refusal::new(to_errno(&error), error.to_string())
}

fn engine_refusal(error: EngineError) -> Refusal {
    let errno = match &error {
        EngineError::Interface { error, .. } | EngineError::System(error) => error.raw_os_error(),
    };
    Refusal::new(errno.unwrap_or(libc::EIO), error.to_string())
}

fn counters(engine: &Handle) -> Buffer {
    let mut text = Buffer::new();
    for (name, count) in engine.counters() {
        writeln!(text, "{name}={count}").expect("a Buffer takes every write");
    }
    writeln!(text, "{AEAD_IN_USE}{}=1", linerate_aead::choose::current().name()).expect("a Buffer takes every write");
    text
}
