//! The UAPI server: serves all clients of one socket on the thread that calls [`Server::run`].
//!
//! Connections are non-blocking and served in turn: a client that reads slowly, sends half a request or never stops
//! asking does not delay the others. The number of connections and the memory they hold are bounded. An idle server
//! waits without a timeout, so it never wakes up. It only finds where a request ends: [`request::parse`] reads the
//! whole request, and the [`Handler`] answers it on this thread, one at a time.

mod connection;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use linerate_netio::files::FileWatch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zeroize::Zeroizing;

use self::connection::{CHUNK, Connection};
use crate::uapi::RequestError;
use crate::uapi::request::{self, DeviceUpdate};
use crate::uapi::response::{Activity, DeviceState};
use crate::uapi::socket::Listener;

/// Answers the requests.
pub trait Handler {
    /// The whole state, or an error number of [`errno`](crate::uapi::errno).
    fn get(&mut self) -> Result<DeviceState, i32>;
    /// Applies all of `update`, or none of it and returns an error number.
    fn set(&mut self, update: DeviceUpdate) -> Result<(), i32>;
    /// Counters by name, in the order in which to show them.
    fn stats(&mut self) -> Vec<(String, u64)>;
    /// The peers that were active since that time.
    fn activity(&mut self, since: u64) -> Activity;
    /// What other gateways of a fleet have to know, since the reply of that number.
    #[cfg(feature = "fleet")]
    fn fleet_changes(&mut self, since: u64) -> crate::uapi::fleet::FleetChanges {
        let _ = since;
        Default::default()
    }
    /// A request was rejected before it reached the handler: for the log.
    fn rejected(&mut self, error: &RequestError) {
        let _ = error;
    }
}

/// Why [`Server::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The stop descriptor at this index became readable.
    Requested(usize),
    /// The socket's file was deleted, moved or replaced.
    SocketGone,
}

struct Limits {
    /// Connections at once. A process has 1,024 descriptors by default (RLIMIT_NOFILE).
    connections: usize,
    /// Bytes of requests and replies held at once: two of the largest requests, or four replies with 130,000 allowed
    /// IPs. The reply being made may exceed it.
    bytes: usize,
    /// How long a connection that holds memory may make no progress while others wait for memory.
    stall_timeout: Duration,
}

const LIMITS: Limits =
    Limits { connections: 512, bytes: 2 * request::REQUEST_MAX, stall_timeout: Duration::from_secs(5) };

/// Bytes of a request that every connection may hold, however little memory is left.
const RESERVED_BYTES: usize = 4 << 10;

// A connection that waits for memory waits for one that holds more than its reserve.
const _: () = assert!(LIMITS.connections * RESERVED_BYTES < LIMITS.bytes);

/// The pause before accepting again when descriptors run out, and before polling again when memory runs out.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves one interface's socket.
pub struct Server {
    listener: Listener,
    watch: Option<FileWatch>,
    connections: Vec<Connection>,
    accept_at: Option<Instant>,
    chunk: Zeroizing<Vec<u8>>,
    limits: Limits,
}

impl Server {
    /// A server on `listener`. If no watch is left it serves, but does not notice that its file is deleted.
    pub fn new(listener: Listener) -> Self {
        let watch = listener.watch().ok();
        let chunk = Zeroizing::new(vec![0; CHUNK]);
        Self { listener, watch, connections: Vec::new(), accept_at: None, chunk, limits: LIMITS }
    }

    /// Whether it notices when the socket's file is deleted.
    pub fn watches_its_file(&self) -> bool {
        self.watch.is_some()
    }

    /// Serves until one of the `stop` descriptors is readable or the file is gone. Dropping the server closes all
    /// connections and removes the file if it is still there.
    ///
    /// # Errors
    /// Polling failed for a reason that neither time nor fewer connections can fix.
    pub fn run(&mut self, handler: &mut impl Handler, stop: &[BorrowedFd<'_>]) -> io::Result<StopReason> {
        if !self.listener.is_in_place() {
            return Ok(StopReason::SocketGone);
        }
        loop {
            if let Some(reason) = self.step(handler, stop)? {
                return Ok(reason);
            }
        }
    }

    /// Waits once and handles every event.
    fn step(&mut self, handler: &mut impl Handler, stop: &[BorrowedFd<'_>]) -> io::Result<Option<StopReason>> {
        let events = match self.wait(stop) {
            // RLIMIT_NOFILE was lowered below the number of polled descriptors (poll(2)).
            Err(error)
                if Errno::from_io_error(&error) == Some(Errno::INVAL) && self.close_longest_inactive(|_| true) =>
            {
                return Ok(None);
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOMEM) => {
                std::thread::sleep(RETRY_DELAY);
                return Ok(None);
            }
            events => events?,
        };
        if let Some(index) = events.stop {
            return Ok(Some(StopReason::Requested(index)));
        }
        if events.file && !self.listener.is_in_place() {
            return Ok(Some(StopReason::SocketGone));
        }
        self.serve(handler, &events.connections);
        // Only now, because accepting changes the indices that `events` uses.
        if events.listener {
            self.accept();
        }
        Ok(None)
    }

    fn wait(&self, stop: &[BorrowedFd<'_>]) -> io::Result<Events> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(stop.len() + 2 + self.connections.len());
        let input = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        fds.extend(stop.iter().copied().map(input));
        let paused = self.accept_at.is_some_and(|at| at > Instant::now());
        let flags = if paused { PollFlags::empty() } else { PollFlags::IN };
        fds.push(PollFd::new(&self.listener.socket, flags));
        fds.extend(self.connections.iter().map(|connection| PollFd::new(&connection.stream, connection.poll_flags())));
        fds.extend(self.watch.as_ref().map(|watch| input(watch.as_fd())));

        let timeout = self.timeout(paused);
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Events::default()),
            Err(error) => return Err(error.into()),
        }

        let flags = |fd: &PollFd<'_>| fd.revents();
        let (stops, rest) = fds.split_at(stop.len());
        let (connections, watch) = rest[1..].split_at(self.connections.len());
        let events = Events {
            stop: stops.iter().position(|fd| !flags(fd).is_empty()),
            listener: !flags(&rest[0]).is_empty(),
            connections: connections.iter().map(flags).collect(),
            file: watch.first().is_some_and(|fd| !flags(fd).is_empty()),
        };
        if let Some(watch) = self.watch.as_ref().filter(|_| events.file) {
            watch.drain();
        }
        Ok(events)
    }

    /// How long to wait at most; `None` when idle.
    fn timeout(&self, accept_paused: bool) -> Option<Duration> {
        if self.connections.iter().any(|connection| connection.may_have_request && connection.can_answer()) {
            return Some(Duration::ZERO);
        }
        let starved = self.connections.iter().any(|connection| connection.waits_for_memory);
        if starved && self.held() < self.limits.bytes {
            return Some(Duration::ZERO);
        }
        let accept = self.accept_at.filter(|_| accept_paused);
        let blockers = self.connections.iter().filter(|connection| starved && self.is_blocker(connection));
        let stalled = blockers.map(|connection| connection.last_progress + self.limits.stall_timeout).min();
        let next = accept.into_iter().chain(stalled).min()?;
        // Round up, so that the deadline has passed when poll returns.
        Some(next.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Bytes that all connections hold.
    fn held(&self) -> usize {
        self.connections.iter().map(Connection::held).sum()
    }

    fn accept(&mut self) {
        self.accept_at = None;
        // At most as many as the limit, so that the connections already open are served in between.
        for _ in 0..self.limits.connections {
            match self.listener.socket.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if self.connections.len() >= self.limits.connections {
                        self.close_longest_inactive(|_| true);
                    }
                    self.connections.push(Connection::new(stream));
                }
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::CONNABORTED) => {}
                    Some(Errno::AGAIN) => return,
                    // Out of descriptors or memory, and the listener stays readable.
                    _ => {
                        if !self.close_longest_inactive(Connection::is_idle) {
                            self.accept_at = Some(Instant::now() + RETRY_DELAY);
                            return;
                        }
                    }
                },
            }
        }
    }

    /// Closes the connection that has made no progress for longest, preferably an idle one. Returns whether there was
    /// one.
    fn close_longest_inactive(&mut self, may_close: impl Fn(&Connection) -> bool) -> bool {
        let candidates = self.connections.iter().enumerate().filter(|(_, connection)| may_close(connection));
        let longest = candidates.min_by_key(|(_, connection)| (!connection.is_idle(), connection.last_progress));
        let longest = longest.map(|(index, _)| index);
        longest.map(|index| self.connections.remove(index)).is_some()
    }

    fn serve(&mut self, handler: &mut impl Handler, events: &[PollFlags]) {
        let mut held = self.held();
        let mut starved = false;
        let mut closed = Vec::new();
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let flags = events.get(index).copied().unwrap_or(PollFlags::empty());
            if flags.is_empty() && !connection.may_have_request && !connection.waits_for_memory {
                continue;
            }
            let before = connection.held();
            let budget = self.limits.bytes.saturating_sub(held);
            if connection.serve(handler, flags, budget, &mut self.chunk).is_err() {
                closed.push(index);
                held -= before;
                continue;
            }
            held = held - before + connection.held();
            starved |= connection.waits_for_memory;
        }
        for index in closed.into_iter().rev() {
            self.connections.swap_remove(index);
        }
        if starved {
            self.close_stalled_blocker();
        }
    }

    /// Whether `connection` holds memory that others wait for. If all that hold memory wait themselves, each is a
    /// blocker.
    fn is_blocker(&self, connection: &Connection) -> bool {
        let holds = |connection: &Connection| connection.held() > RESERVED_BYTES;
        let all_wait = || self.connections.iter().all(|other| !holds(other) || other.waits_for_memory);
        holds(connection) && (!connection.waits_for_memory || all_wait())
    }

    /// Closes the blocker that has made no progress for longest, once it exceeds the stall timeout. Only one at a
    /// time: its memory may be enough for the others.
    fn close_stalled_blocker(&mut self) {
        let blockers = self.connections.iter().enumerate().filter(|(_, connection)| self.is_blocker(connection));
        let longest = blockers.min_by_key(|(_, connection)| connection.last_progress);
        if let Some((index, connection)) = longest
            && connection.last_progress.elapsed() >= self.limits.stall_timeout
        {
            self.connections.swap_remove(index);
        }
    }
}

/// The events of one poll(2).
#[derive(Default)]
struct Events {
    stop: Option<usize>,
    listener: bool,
    file: bool,
    connections: Vec<PollFlags>,
}

#[cfg(test)]
mod tests;
