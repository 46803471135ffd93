//! What all services share: the tunnel, the bounds, the counters; and how clients are taken in.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_cli::eprint_line;
use linerate_sockets::{Listener, Stream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::config::Local;
use crate::dial::Dialer;
use crate::failure::Failure;
use crate::kernel::{self, Listening};
use crate::relay::{Memory, relay};
use crate::target::Target;
use crate::wait;

/// So many connections from this host's side are served at a time; others wait to be taken in.
pub const MOST_CONNECTIONS: usize = 16_384;

/// So many come from the tunnel: who is there and who is here do not take each other's places.
pub const MOST_FROM_TUNNEL: usize = 4096;

/// So many of them pass HTTP requests on: hyper has up to 64 KiB on each side for these, 128 MiB in all.
pub const MOST_BUFFERED: usize = 1024;

/// After an error that lasts, such as too few descriptors, the next connection is taken in after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of the proxy.
pub struct Server {
    /// Connects.
    pub dialer: Dialer,
    /// What is kept for slow readers, and how much was passed on.
    pub memory: Arc<Memory>,
    /// Events by name.
    pub counters: Counters,
    /// Places for connections that pass HTTP requests on.
    pub buffered: Arc<Semaphore>,
    /// Places for connections from this host's side.
    pub connections: Arc<Semaphore>,
    /// Places for connections from the tunnel.
    pub from_tunnel: Arc<Semaphore>,
}

/// What has happened.
#[derive(Default)]
pub struct Counters {
    /// Connections that are open.
    pub open: AtomicUsize,
    /// Connections that were taken in.
    pub accepted: AtomicU64,
    /// Datagrams that were dropped because nobody took them in time.
    pub datagrams_dropped: AtomicU64,
    /// Somebody did not answer in time.
    pub(crate) unanswered: Notify,
    failures: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    /// How often connections could not be made, by reason.
    pub fn failures(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.failures).clone()
    }
}

impl Server {
    /// A server that connects by `dialer`.
    pub fn new(dialer: Dialer) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            dialer,
            memory: Arc::default(),
            counters: Counters::default(),
            buffered: places(MOST_BUFFERED),
            connections: places(MOST_CONNECTIONS),
            from_tunnel: places(MOST_FROM_TUNNEL),
        }
    }

    /// Takes in clients for ever, as many at a time as there are places, each served by a task of its own.
    pub async fn accept<S, F>(self: Arc<Self>, mut listener: Box<dyn Listener>, places: Arc<Semaphore>, serve: S)
    where
        S: Fn(Arc<Self>, Box<dyn Stream>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let permit = places.clone().acquire_owned().await.expect("nobody closes it");
            let Ok(stream) = wait::accept(&mut *listener).await else {
                sleep(PAUSE).await;
                continue;
            };
            let open = Open::new(&self, permit);
            let served = serve(self.clone(), stream);
            tokio::spawn(async move {
                served.await;
                drop(open);
            });
        }
    }

    /// A connection into the tunnel; a failure is counted.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self, target: &Target) -> Result<Box<dyn Stream>, Failure> {
        // What it takes ends with it, not with the connection.
        self.counted(Box::pin(self.dialer.connect(target)).await)
    }

    /// Counts a failure.
    pub fn counted<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &outcome {
            *locked(&self.counters.failures).entry(failure.label()).or_default() += 1;
            if matches!(failure, Failure::TimedOut | Failure::NoAnswer(_)) {
                self.counters.unanswered.notify_one();
            }
        }
        outcome
    }

    /// `[TCPClientTunnel]`: passes a client outside on to a target in the tunnel.
    pub async fn forward_out(self: Arc<Self>, mut client: Box<dyn Stream>, target: Arc<Target>) {
        match self.connect(&target).await {
            Ok(inside) => drop(relay(client, Vec::new(), inside, &self.memory).await),
            Err(failure) => {
                complain(&format!("forward to {target}"), &failure);
                client.reset();
            }
        }
    }

    /// `[TCPServerTunnel]`: passes a client in the tunnel on to a target outside.
    pub async fn forward_in(self: Arc<Self>, mut client: Box<dyn Stream>, target: Arc<Target>) {
        match self.counted(Box::pin(self.dialer.connect_outside(&target)).await) {
            Ok(outside) => drop(relay(outside, Vec::new(), client, &self.memory).await),
            Err(failure) => {
                complain(&format!("forward to {target} outside of the tunnel"), &failure);
                client.reset();
            }
        }
    }
}

/// An open connection, which counts.
struct Open {
    server: Arc<Server>,
    _permit: OwnedSemaphorePermit,
}

impl Open {
    fn new(server: &Arc<Server>, permit: OwnedSemaphorePermit) -> Self {
        server.counters.accepted.fetch_add(1, Ordering::Relaxed);
        server.counters.open.fetch_add(1, Ordering::Relaxed);
        Self { server: server.clone(), _permit: permit }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.server.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Listens on all addresses of `local`.
///
/// # Errors
/// A sentence that says where and why not.
pub fn listen(local: &Local) -> Result<Vec<Listening>, String> {
    each_address(local, kernel::listen)
}

/// Does something with each address of `local`; where one suffices, others may fail for want of a family.
///
/// # Errors
/// A sentence that says where and why not.
pub fn each_address<T>(local: &Local, open: impl Fn(SocketAddr) -> io::Result<T>) -> Result<Vec<T>, String> {
    let mut opened = Vec::new();
    let mut lacking = None;
    for address in local.addresses() {
        match open(address) {
            Ok(listening) => opened.push(listening),
            Err(error) if local.may_lack_a_family() && is_no_family(&error) => lacking = Some(error),
            Err(error) => return Err(format!("cannot listen on {address}: {error}{}", advice(address, &error))),
        }
    }
    match lacking {
        Some(error) if opened.is_empty() => Err(format!("cannot listen on {local}: {error}")),
        _ => Ok(opened),
    }
}

fn advice(address: SocketAddr, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; choose another port, or end the program that has it",
        io::ErrorKind::AddrNotAvailable => "; this host has no such address",
        io::ErrorKind::PermissionDenied if address.port() < 1024 => "; ports below 1024 are root's: choose another",
        _ => "",
    }
}

/// Whether the host has no address of this family.
fn is_no_family(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    code == Some(rustix::io::Errno::AFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}

/// Says what went wrong. Names and addresses are those of the file; what clients ask for is not logged, and whoever
/// connects again and again fills no log.
pub(crate) fn complain(what: &str, failure: &dyn fmt::Display) {
    static COMPLAINTS: Mutex<Complaints> = Mutex::new(Complaints { since: None, said: 0, unsaid: 0 });
    let Some(unsaid) = locked(&COMPLAINTS).admit(Instant::now()) else { return };
    let unsaid = if unsaid > 0 { format!(" (and {unsaid} that were not logged)") } else { String::new() };
    eprint_line(&format!("linerate-proxy: {what}: {failure}{unsaid}"));
}

/// So many lines are written in so much time.
const MOST_COMPLAINTS: u32 = 20;
const COMPLAINTS_TIME: Duration = Duration::from_secs(10);

struct Complaints {
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Complaints {
    /// How many were left out since the last one, if there may be another.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.duration_since(since) >= COMPLAINTS_TIME) {
            (self.since, self.said) = (Some(now), 0);
        }
        if self.said == MOST_COMPLAINTS {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of what a task keeps while it serves.
    fn size<A, B, F>(_: impl Fn(A, B, Box<dyn Stream>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_keeps_nothing_of_how_it_was_made() {
        use crate::{http::Http, sni, socks::Socks};
        let forwards = [
            size(|server: Arc<Server>, target: Arc<Target>, client| server.forward_out(client, target)),
            size(|server: Arc<Server>, target: Arc<Target>, client| server.forward_in(client, target)),
        ];
        let proxies = [size(Socks::serve), size(Http::serve), size(|server, (), client| sni::serve(server, client))];
        let sizes = [&forwards[..], &proxies].concat();
        assert!(sizes.iter().all(|&size| size <= 1024), "{sizes:?}");
    }

    #[test]
    fn who_fails_again_and_again_fills_no_log() {
        let mut complaints = Complaints { since: None, said: 0, unsaid: 0 };
        let now = Instant::now();
        let said = (0..100).filter(|_| complaints.admit(now).is_some()).count();
        assert_eq!(said, 20);
        assert_eq!(complaints.admit(now + COMPLAINTS_TIME), Some(80));
        assert_eq!(complaints.admit(now + COMPLAINTS_TIME), Some(0));
    }
}
