//! Connections and listeners, as their users have them.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use linerate_sockets::{Listener, Stream};
use smoltcp::socket::tcp::State;

use crate::flow::Flow;
use crate::stack::Inner;
use crate::wire::Key;

/// The most connections of a listener that have not come about or were not accepted.
const BACKLOG_MAX: usize = 128;

/// How many ports are tried for a connection.
const PORTS_TRIED: usize = 64;

/// A connection that somebody has.
struct Handle {
    stack: Arc<Inner>,
    shard: usize,
    key: Key,
    serial: u64,
}

impl Handle {
    fn new(stack: Arc<Inner>, key: Key, serial: u64) -> Self {
        let shard = stack.common.shard_of(key);
        Self { stack, shard, key, serial }
    }

    /// Does something with the connection.
    fn with<R>(&self, f: impl FnOnce(&mut Flow, &Inner) -> R) -> R {
        self.stack.with(self.shard, |shard, now| {
            let flow = shard.flow(self.key, self.serial).expect("a connection is there as long as its handle");
            let result = f(flow, &self.stack);
            shard.settle(now, self.key);
            result
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stack.with(self.shard, |shard, now| shard.release(now, self.key, self.serial));
    }
}

/// A connection that is being made.
pub(crate) struct Connecting(Option<Handle>);

impl Connecting {
    /// Sends the first segment.
    pub(crate) fn new(stack: &Arc<Inner>, to: SocketAddr) -> io::Result<Self> {
        let common = &stack.common;
        if to.port() == 0 || to.ip().is_unspecified() || to.ip().is_multicast() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let source = common.source(to.ip()).ok_or(io::ErrorKind::NetworkUnreachable)?;
        if !common.take_connection() {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        for _ in 0..PORTS_TRIED {
            let key = Key { local: SocketAddr::new(source, common.random_port()), remote: to };
            let connect = |shard: &mut crate::shard::Shard, now| shard.is_free(key).then(|| shard.connect(now, key));
            if let Some(serial) = stack.with(common.shard_of(key), connect) {
                // An error leaves no connection behind.
                let serial = serial.inspect_err(|_| common.give_connection())?;
                return Ok(Self(Some(Handle::new(stack.clone(), key, serial))));
            }
        }
        common.give_connection();
        Err(io::ErrorKind::AddrInUse.into())
    }
}

impl Future for Connecting {
    type Output = io::Result<Box<dyn Stream>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let handle = self.0.as_ref().expect("a future is not polled after it is ready");
        let made = handle.with(|flow, _| match (flow.failure, flow.state()) {
            (Some(kind), _) => Some(Err(kind.into())),
            (None, State::SynSent | State::SynReceived) => {
                flow.writer = Some(context.waker().clone());
                None
            }
            (None, _) => Some(Ok(())),
        });
        match made {
            None => Poll::Pending,
            Some(Err(error)) => Poll::Ready(Err(error)),
            Some(Ok(())) => Poll::Ready(Ok(Box::new(TcpStream(self.0.take().expect("was there above"))))),
        }
    }
}

/// A connection.
struct TcpStream(Handle);

impl Stream for TcpStream {
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.with(|flow, _| match flow.read(into) {
            Some(result) => Poll::Ready(result),
            None => {
                flow.reader = Some(context.waker().clone());
                Poll::Pending
            }
        })
    }

    fn poll_write(&mut self, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.0.with(|flow, stack| match flow.write(from, &stack.common.memory) {
            Some(result) => Poll::Ready(result),
            None => {
                flow.writer = Some(context.waker().clone());
                Poll::Pending
            }
        })
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.with(|flow, _| flow.finish()))
    }

    fn reset(&mut self) {
        self.0.with(|flow, _| flow.fail(io::ErrorKind::ConnectionAborted));
    }

    fn has_failed(&mut self) -> bool {
        self.0.with(|flow, _| flow.failure.is_some())
    }

    fn peer(&self) -> SocketAddr {
        self.0.key.remote
    }

    fn local(&self) -> SocketAddr {
        self.0.key.local
    }
}

/// The connections of a listener that were not accepted yet. Locked while its shard is, never the other way round.
pub(crate) struct Backlog(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    half_open: HashSet<Key>,
    ready: VecDeque<(Key, u64)>,
    waker: Option<Waker>,
    closed: bool,
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("a panic aborts the process")
    }

    /// Makes room for a connection; false if there is none.
    pub(crate) fn reserve(&self, key: Key) -> bool {
        let mut waiting = self.lock();
        let room = !waiting.closed && waiting.half_open.len() + waiting.ready.len() < BACKLOG_MAX;
        room && waiting.half_open.insert(key)
    }

    /// A connection did not come about.
    pub(crate) fn forget(&self, key: Key) {
        self.lock().half_open.remove(&key);
    }

    /// A connection has come about; false if there is no listener any more.
    pub(crate) fn ready(&self, key: Key, serial: u64, wakers: &mut Vec<Waker>) -> bool {
        let mut waiting = self.lock();
        waiting.half_open.remove(&key);
        if !waiting.closed {
            waiting.ready.push_back((key, serial));
            wakers.extend(waiting.waker.take());
        }
        !waiting.closed
    }
}

/// Takes in connections.
pub(crate) struct TcpListener {
    stack: Arc<Inner>,
    local: SocketAddr,
    backlog: Arc<Backlog>,
}

impl TcpListener {
    pub(crate) fn new(stack: &Arc<Inner>, local: SocketAddr) -> io::Result<Self> {
        if !stack.common.is_local(local.ip()) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let mut backlogs = stack.common.backlogs.write().expect("a panic aborts the process");
        let local = crate::stack::choose_port(&stack.common, local, |local| backlogs.contains_key(&local))?;
        let backlog = Arc::new(Backlog(Mutex::default()));
        backlogs.insert(local, backlog.clone());
        Ok(Self { stack: stack.clone(), local, backlog })
    }
}

impl Listener for TcpListener {
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Stream>>> {
        let mut waiting = self.backlog.lock();
        match waiting.ready.pop_front() {
            Some((key, serial)) => Poll::Ready(Ok(Box::new(TcpStream(Handle::new(self.stack.clone(), key, serial))))),
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.stack.common.backlogs.write().expect("a panic aborts the process").remove(&self.local);
        let ready = {
            let mut waiting = self.backlog.lock();
            waiting.closed = true;
            mem::take(&mut waiting.ready)
        };
        // Those that have not come about are reset when they do.
        ready.into_iter().for_each(|(key, serial)| drop(Handle::new(self.stack.clone(), key, serial)));
    }
}
