//! The conversation with every UAPI client, on the one thread that calls [`Server::run`].
//!
//! Clients are non-blocking and take turns: one that reads slowly, writes half a request or never
//! stops asking costs the others nothing. Clients and the bytes held for them are bounded. At rest
//! there is no timeout, so nothing wakes. Never looks into a request beyond its frame: whole
//! requests go through [`request::parse`] to the [`Handler`], on this thread, one at a time.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use zeroize::{Zeroize, Zeroizing};

use crate::uapi::request::{self, DeviceUpdate, Frame, Request};
use crate::uapi::response::{self, Activity, DeviceState};
use crate::uapi::socket::Listener;
use crate::uapi::{RequestError, errno};
use crate::zeroizing::Buffer;

/// What answers the requests.
pub trait Handler {
    /// The whole state, or an error number of [`errno`](crate::uapi::errno).
    fn get(&mut self) -> Result<DeviceState, i32>;
    /// Applies all of `update` or none of it, and then answers with an error number.
    fn set(&mut self, update: DeviceUpdate) -> Result<(), i32>;
    /// Counters by name, in the order they are to be shown.
    fn stats(&mut self) -> Vec<(String, u64)>;
    /// What happened with the peers that were active since that moment.
    fn activity(&mut self, since: u64) -> Activity;
    /// A request was refused before it came this far: for the log.
    fn refused(&mut self, refusal: &RequestError) {
        let _ = refusal;
    }
}

/// Why [`Server::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The stop descriptor at this place in the list became readable.
    Requested(usize),
    /// The socket's file was deleted, moved or replaced.
    SocketGone,
}

struct Limits {
    /// Clients at once. A process may have 1,024 descriptors unless told otherwise (RLIMIT_NOFILE).
    clients: usize,
    /// Bytes of requests and replies at once: two of the largest requests, or four replies with
    /// 130,000 allowed IPs. One reply more can be under way.
    bytes: usize,
    /// How long a client that holds bytes may be still once others wait for room.
    patience: Duration,
}

const LIMITS: Limits = Limits { clients: 512, bytes: 2 * request::REQUEST_MAX, patience: Duration::from_secs(5) };

/// Bytes of a request that any client may send, however little room is left.
const FREE_BYTES: usize = 4 << 10;

// Whoever waits for room waits for someone who holds more than his free bytes.
const _: () = assert!(LIMITS.clients * FREE_BYTES < LIMITS.bytes);

const PIECE: usize = 64 << 10;

/// Bytes read from or written to one client before the next has its turn.
const TURN: usize = 4 * PIECE;

/// How long to leave the listener alone when there is no descriptor for another client, and all when there is no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves one interface's socket.
pub struct Server {
    listener: Listener,
    watch: Option<OwnedFd>,
    clients: Vec<Client>,
    accept_at: Option<Instant>,
    piece: Zeroizing<Vec<u8>>,
    limits: Limits,
}

impl Server {
    /// A server on `listener`. Without inotify it cannot see its file being deleted, but serves.
    pub fn new(listener: Listener) -> Self {
        let watch = watch(&listener).ok();
        let piece = Zeroizing::new(vec![0; PIECE]);
        Self { listener, watch, clients: Vec::new(), accept_at: None, piece, limits: LIMITS }
    }

    /// Whether deleting the socket's file will be noticed.
    pub fn sees_its_file(&self) -> bool {
        self.watch.is_some()
    }

    /// Serves until one of the `stop` descriptors is readable or the file is gone. Clients are hung up on when the
    /// server is dropped, and the file is removed then if it is still there.
    ///
    /// # Errors
    /// Waiting failed, and neither time nor fewer clients would mend it.
    pub fn run(&mut self, handler: &mut impl Handler, stop: &[BorrowedFd<'_>]) -> io::Result<StopReason> {
        if !self.listener.is_in_place() {
            return Ok(StopReason::SocketGone);
        }
        loop {
            if let Some(ended) = self.step(handler, stop)? {
                return Ok(ended);
            }
        }
    }

    /// Waits once, and does what there is to do.
    fn step(&mut self, handler: &mut impl Handler, stop: &[BorrowedFd<'_>]) -> io::Result<Option<StopReason>> {
        let ready = match self.wait(stop) {
            // More clients than a limit that was lowered allows descriptors (poll(2), RLIMIT_NOFILE).
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) && self.close_one(|_| true) => {
                return Ok(None);
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOMEM) => {
                std::thread::sleep(ACCEPT_PAUSE);
                return Ok(None);
            }
            ready => ready?,
        };
        if let Some(at) = ready.stop {
            return Ok(Some(StopReason::Requested(at)));
        }
        if ready.file && !self.listener.is_in_place() {
            return Ok(Some(StopReason::SocketGone));
        }
        self.serve(handler, &ready.clients);
        // After the clients, whose places `ready` names.
        if ready.listener {
            self.accept();
        }
        Ok(None)
    }

    fn wait(&self, stop: &[BorrowedFd<'_>]) -> io::Result<Ready> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(stop.len() + 2 + self.clients.len());
        let input = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        fds.extend(stop.iter().copied().map(input));
        let paused = self.accept_at.is_some_and(|at| at > Instant::now());
        let wanted = if paused { PollFlags::empty() } else { PollFlags::IN };
        fds.push(PollFd::new(&self.listener.socket, wanted));
        fds.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, client.wanted())));
        fds.extend(self.watch.as_ref().map(|watch| input(watch.as_fd())));

        let timeout = self.timeout(paused);
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }

        let flags = |fd: &PollFd<'_>| fd.revents();
        let (stops, rest) = fds.split_at(stop.len());
        let (clients, watch) = rest[1..].split_at(self.clients.len());
        Ok(Ready {
            stop: stops.iter().position(|fd| !flags(fd).is_empty()),
            listener: !flags(&rest[0]).is_empty(),
            clients: clients.iter().map(flags).collect(),
            file: watch.first().is_some_and(|fd| !flags(fd).is_empty()) && self.drain_watch(),
        })
    }

    /// How long to wait at most; `None` at rest.
    fn timeout(&self, accept_paused: bool) -> Option<Duration> {
        if self.clients.iter().any(|client| client.has_request && client.is_answered()) {
            return Some(Duration::ZERO);
        }
        let held: usize = self.clients.iter().map(Client::held).sum();
        let starved = self.clients.iter().any(|client| client.waits_for_room);
        if starved && held < self.limits.bytes {
            return Some(Duration::ZERO);
        }
        let accept = self.accept_at.filter(|_| accept_paused);
        let blockers = self.clients.iter().filter(|client| starved && self.is_blocker(client));
        let stalled = blockers.map(|client| client.moved_at + self.limits.patience).min();
        let next = accept.into_iter().chain(stalled).min()?;
        // Rounded up by a millisecond, so that the moment has come when the wait is over.
        Some(next.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Takes what inotify has to say; always true, because the file itself is looked at next.
    fn drain_watch(&self) -> bool {
        let mut buffer = [0u8; 1024];
        while let Some(watch) = &self.watch
            && rustix::io::read(watch, &mut buffer).is_ok_and(|length| length > 0)
        {}
        true
    }

    fn accept(&mut self) {
        self.accept_at = None;
        // As many as there can be; the rest have their turn after those already here.
        for _ in 0..self.limits.clients {
            match self.listener.socket.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if self.clients.len() >= self.limits.clients {
                        self.close_one(|_| true);
                    }
                    self.clients.push(Client::new(stream));
                }
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::CONNABORTED) => {}
                    Some(Errno::AGAIN) => return,
                    // Out of descriptors or memory, and the listener stays readable.
                    _ => {
                        if !self.close_one(Client::is_idle) {
                            self.accept_at = Some(Instant::now() + ACCEPT_PAUSE);
                            return;
                        }
                    }
                },
            }
        }
    }

    /// Closes the client that has been still for longest, an idle one if there is one.
    fn close_one(&mut self, may_go: impl Fn(&Client) -> bool) -> bool {
        let may_go = self.clients.iter().enumerate().filter(|(_, client)| may_go(client));
        let longest = may_go.min_by_key(|(_, client)| (!client.is_idle(), client.moved_at));
        let longest = longest.map(|(at, _)| at);
        longest.map(|at| self.clients.remove(at)).is_some()
    }

    fn serve(&mut self, handler: &mut impl Handler, ready: &[PollFlags]) {
        let mut held: usize = self.clients.iter().map(Client::held).sum();
        let mut starved = false;
        let mut closed = Vec::new();
        for (at, client) in self.clients.iter_mut().enumerate() {
            let flags = ready.get(at).copied().unwrap_or(PollFlags::empty());
            if flags.is_empty() && !client.has_request && !client.waits_for_room {
                continue;
            }
            let before = client.held();
            let room = self.limits.bytes.saturating_sub(held);
            if client.turn(handler, flags, room, &mut self.piece).is_err() {
                closed.push(at);
                held -= before;
                continue;
            }
            held = held - before + client.held();
            starved |= client.waits_for_room;
        }
        for at in closed.into_iter().rev() {
            self.clients.swap_remove(at);
        }
        if starved {
            self.close_blocker();
        }
    }

    /// Whether `client` holds the bytes that others wait for. If all that hold bytes wait
    /// themselves, each of them does.
    fn is_blocker(&self, client: &Client) -> bool {
        let holds = |client: &Client| client.held() > FREE_BYTES;
        let all_wait = || self.clients.iter().all(|other| !holds(other) || other.waits_for_room);
        holds(client) && (!client.waits_for_room || all_wait())
    }

    /// Closes the client that has held bytes without moving any for longest, if its time is over.
    /// One at a time: it may be all that the others need.
    fn close_blocker(&mut self) {
        let blockers = self.clients.iter().enumerate().filter(|(_, client)| self.is_blocker(client));
        let longest = blockers.min_by_key(|(_, client)| client.moved_at);
        if let Some((at, client)) = longest
            && client.moved_at.elapsed() >= self.limits.patience
        {
            self.clients.swap_remove(at);
        }
    }
}

/// What a wait found.
#[derive(Default)]
struct Ready {
    stop: Option<usize>,
    listener: bool,
    file: bool,
    clients: Vec<PollFlags>,
}

fn watch(listener: &Listener) -> rustix::io::Result<OwnedFd> {
    use inotify::{CreateFlags, WatchFlags};
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    // A socket in use keeps its inode when its name is deleted, so what shows is ATTRIB (the link
    // count) rather than DELETE_SELF.
    let events = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    inotify::add_watch(&watch, &listener.path, events)?;
    Ok(watch)
}

/// The client is to be closed: it is done, broken, or does not speak the protocol.
struct Done;

struct Client {
    stream: UnixStream,
    input: Buffer,
    /// How much of `input` the frame search has behind it.
    seen: usize,
    output: Buffer,
    written: usize,
    /// The client will send no more.
    input_ended: bool,
    /// Close once `output` is written.
    closing: bool,
    /// `input` may hold a whole request that has not had its turn.
    has_request: bool,
    /// Reading on or answering has to wait until others hold less.
    waits_for_room: bool,
    /// When the last byte moved.
    moved_at: Instant,
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: Buffer::new(),
            seen: 0,
            output: Buffer::new(),
            written: 0,
            input_ended: false,
            closing: false,
            has_request: false,
            waits_for_room: false,
            moved_at: Instant::now(),
        }
    }

    fn held(&self) -> usize {
        self.input.len() + self.output.len()
    }

    fn is_idle(&self) -> bool {
        self.held() == 0
    }

    /// Whether the last reply is on its way, so that the next request may have its turn.
    fn is_answered(&self) -> bool {
        self.output.is_empty() && !self.waits_for_room
    }

    fn wanted(&self) -> PollFlags {
        if !self.output.is_empty() {
            PollFlags::OUT
        } else if self.input_ended || self.waits_for_room {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// Moves what can be moved without blocking and answers at most one request.
    fn turn(
        &mut self,
        handler: &mut impl Handler,
        flags: PollFlags,
        room: usize,
        piece: &mut [u8],
    ) -> Result<(), Done> {
        // Nobody is left to answer, and a hang-up would be reported again at once.
        if self.waits_for_room && flags.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(Done);
        }
        self.write()?;
        if !self.output.is_empty() {
            return Ok(());
        }
        self.waits_for_room = false;
        if !self.has_request {
            self.read(room, piece)?;
        }
        self.answer(handler, room)?;
        self.write()
    }

    fn read(&mut self, room: usize, piece: &mut [u8]) -> Result<(), Done> {
        let before = self.input.len();
        while !self.input_ended && self.input.len() - before < TURN {
            if self.input.len() >= FREE_BYTES && self.input.len() - before >= room {
                self.waits_for_room = true;
                return Ok(());
            }
            match self.stream.read(piece) {
                Ok(0) => self.input_ended = true,
                Ok(length) => {
                    self.input.extend(&piece[..length]);
                    piece[..length].zeroize();
                    self.moved_at = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Done),
            }
        }
        Ok(())
    }

    fn answer(&mut self, handler: &mut impl Handler, room: usize) -> Result<(), Done> {
        self.has_request = false;
        match request::frame(&self.input, &mut self.seen) {
            Frame::Whole(length) => {
                let asked = request::parse(&self.input[..length]);
                if matches!(asked, Ok(Request::Get | Request::Activity(_))) && room == 0 {
                    self.waits_for_room = true;
                    self.has_request = true;
                    return Ok(());
                }
                self.input.drain(length);
                self.seen = 0;
                self.output = reply(handler, asked);
                self.has_request = !self.input.is_empty() || self.input_ended;
                self.moved_at = Instant::now();
            }
            Frame::Partial if !self.input_ended => {}
            // The beginning of a `set` whose end will not come.
            Frame::Partial if self.input.starts_with(b"set=1\n") => {
                let asked = request::parse(&self.input);
                self.output = reply(handler, asked);
                self.finish();
            }
            Frame::TooLong => {
                let message = format!(
                    "the request has a line over {} bytes or is over {} bytes",
                    request::LINE_MAX,
                    request::REQUEST_MAX
                );
                self.output = reply(handler, Err(RequestError { errno: -errno::EIO, message }));
                self.finish();
            }
            Frame::Partial | Frame::Unknown => return Err(Done),
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.input.drain(usize::MAX);
        self.input_ended = true;
        self.closing = true;
    }

    fn write(&mut self) -> Result<(), Done> {
        let end = self.output.len().min(self.written + 4 * TURN);
        while self.written < end {
            match self.stream.write(&self.output[self.written..end]) {
                Ok(length) => {
                    self.written += length;
                    self.moved_at = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Done),
            }
        }
        if self.written == self.output.len() {
            self.output.drain(self.written);
            self.written = 0;
            if self.closing {
                return Err(Done);
            }
        }
        Ok(())
    }
}

fn reply(handler: &mut impl Handler, asked: Result<Request, RequestError>) -> Buffer {
    let refused = |number: i32| {
        let mut text = Buffer::new();
        text.extend(format!("errno={number}\n\n").as_bytes());
        text
    };
    match asked {
        Ok(Request::Get) => match handler.get() {
            Ok(state) => state.render(),
            Err(number) => refused(number.saturating_abs()),
        },
        Ok(Request::Stats) => response::render_stats(&handler.stats()),
        Ok(Request::Activity(since)) => handler.activity(since).render(),
        Ok(Request::Set(update)) => match handler.set(update) {
            Ok(()) => refused(0),
            // A zero would tell the client that all is well.
            Err(0) => refused(-errno::UNKNOWN),
            Err(number) => refused(-number.saturating_abs()),
        },
        Err(refusal) => {
            handler.refused(&refusal);
            refused(refusal.errno)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Shutdown;
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread::{self, JoinHandle};

    use super::*;
    use crate::interface::InterfaceName;
    use crate::keys::PublicKey;
    use crate::uapi::response::PeerState;
    use crate::uapi::socket;

    #[test]
    fn requests_written_at_once_are_answered_in_order() {
        let daemon = Daemon::start(Device::default(), LIMITS);
        let mut client = daemon.connect();
        client.write_all(b"set=1\nlisten_port=7\n\nget=1\n\nstats=1\n\nget=1\nXset=1\nfwmark=x\n\nget=1\n\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let state = "listen_port=7\nerrno=0\n\n";
        let expected = format!("errno=0\n\n{state}sets=1\nerrno=0\n\nerrno=-22\n\nerrno=-22\n\n{state}");
        assert_eq!(rest(&mut client), expected);
    }

    #[test]
    fn a_request_may_come_byte_by_byte() {
        let daemon = Daemon::start(Device::default(), LIMITS);
        let mut client = daemon.connect();
        for byte in b"set=1\nlisten_port=9\n\n" {
            client.write_all(&[*byte]).unwrap();
        }
        assert_eq!(reply(&mut client), "errno=0\n\n");
        client.write_all(b"get=1\n").unwrap();
        client.write_all(b"\n").unwrap();
        assert_eq!(reply(&mut client), "listen_port=9\nerrno=0\n\n");
    }

    #[test]
    fn an_unknown_operation_closes_the_connection_after_the_replies_due() {
        let daemon = Daemon::start(Device::default(), LIMITS);
        for unknown in ["set=1\r\nlisten_port=1\n\n", "hello\n", "get=2\n\n"] {
            let mut client = daemon.connect();
            client.write_all(format!("get=1\n\n{unknown}").as_bytes()).unwrap();
            assert_eq!(reply(&mut client), "errno=0\n\n", "{unknown}");
            assert_eq!(rest(&mut client), "", "{unknown}");
        }
    }

    #[test]
    fn a_set_that_is_cut_off_changes_nothing() {
        let daemon = Daemon::start(Device::default(), LIMITS);
        let mut client = daemon.connect();
        client.write_all(b"set=1\nlisten_port=9\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut client), "errno=-71\n\n");
        assert_eq!(daemon.ask("get=1\n\n"), "errno=0\n\n");
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let daemon = Daemon::start(Device::default(), LIMITS);
        let mut client = daemon.connect();
        client.write_all(b"set=1\n").unwrap();
        client.write_all(&vec![b'x'; request::LINE_MAX + 1]).unwrap();
        assert_eq!(rest(&mut client), "errno=-5\n\n");
    }

    #[test]
    fn the_handlers_numbers_have_the_sign_that_wg_wants() {
        let daemon = Daemon::start(Device { fails: Some(errno::EADDRINUSE), ..Device::default() }, LIMITS);
        assert_eq!(daemon.ask("set=1\n\n"), "errno=-98\n\n");
        assert_eq!(daemon.ask("get=1\n\n"), "errno=98\n\n");
        let daemon = Daemon::start(Device { fails: Some(-errno::EIO), ..Device::default() }, LIMITS);
        assert_eq!(daemon.ask("set=1\n\n"), "errno=-5\n\n");
        assert_eq!(daemon.ask("get=1\n\n"), "errno=5\n\n");
    }

    #[test]
    fn two_hundred_clients_are_served_while_all_stay() {
        let daemon = Daemon::start(Device::default(), LIMITS);
        let mut clients: Vec<_> = (0..200).map(|_| daemon.connect()).collect();
        for _ in 0..2 {
            for client in &mut clients {
                client.write_all(b"get=1\n\n").unwrap();
            }
            for client in &mut clients {
                assert_eq!(reply(client), "errno=0\n\n");
            }
        }
    }

    #[test]
    fn a_stalled_client_blocks_nobody_and_gets_its_eight_megabytes_in_the_end() {
        let device = Device { allowed_ips: 160_000, ..Device::default() };
        let expected = device.state().render().to_vec();
        assert!(expected.len() > 8 << 20);
        let daemon = Daemon::start(device, LIMITS);
        let mut slow = daemon.connect();
        slow.write_all(b"get=1\n\n").unwrap();
        let mut half = daemon.connect();
        half.write_all(b"set=1\nlisten_p").unwrap();
        // Both are in the middle of something for as long as these take.
        for _ in 0..10 {
            assert_eq!(daemon.ask("set=1\n\n"), "errno=0\n\n");
        }
        let mut read = vec![0; expected.len()];
        for piece in read.chunks_mut(1000) {
            slow.read_exact(piece).unwrap();
        }
        assert!(read == expected);
        half.write_all(b"ort=5\n\n").unwrap();
        assert_eq!(reply(&mut half), "errno=0\n\n");
    }

    #[test]
    fn a_client_that_asks_and_leaves_is_forgotten() {
        let device = Device { allowed_ips: 10_000, ..Device::default() };
        let daemon = Daemon::start(device, LIMITS);
        for _ in 0..50 {
            daemon.connect().write_all(b"get=1\n\nget=1\n\nget=1\n\n").unwrap();
        }
        assert_eq!(daemon.ask("set=1\n\n"), "errno=0\n\n");
        assert!(daemon.stop().clients <= 1);
    }

    #[test]
    fn a_request_is_carried_out_though_its_client_has_gone() {
        let daemon = Daemon::start(Device::default(), LIMITS);
        daemon.connect().write_all(b"set=1\nlisten_port=6\n\n").unwrap();
        // The listener's queue is in order, so that client had its turn first.
        assert_eq!(daemon.ask("get=1\n\n"), "listen_port=6\nerrno=0\n\n");
    }

    #[test]
    fn when_the_house_is_full_the_client_that_was_idle_longest_goes() {
        let daemon = Daemon::start(Device::default(), Limits { clients: 3, ..LIMITS });
        let mut first = daemon.connect();
        let mut busy = daemon.connect();
        busy.write_all(b"set=1\nlist").unwrap();
        assert_eq!(ask(&mut first, "get=1\n\n"), "errno=0\n\n");
        let mut others: Vec<_> = (0..3).map(|_| daemon.connect()).collect();
        assert_eq!(rest(&mut first), "");
        assert_eq!(rest(&mut others[0]), "");
        busy.write_all(b"en_port=3\n\n").unwrap();
        assert_eq!(reply(&mut busy), "errno=0\n\n");
        assert_eq!(ask(&mut others[2], "get=1\n\n"), "listen_port=3\nerrno=0\n\n");
    }

    #[test]
    fn a_client_that_holds_the_room_others_need_goes_when_its_time_is_over() {
        let device = Device { allowed_ips: 20_000, ..Device::default() };
        let limits = Limits { bytes: 100_000, patience: Duration::ZERO, ..LIMITS };
        let daemon = Daemon::start(device, limits);
        let mut stalled = daemon.connect();
        stalled.write_all(b"get=1\n\n").unwrap();
        // The first part of its reply shows that the rest is held for it.
        stalled.read_exact(&mut [0; 1000]).unwrap();
        let expected = daemon.device_text.clone();
        assert_eq!(daemon.ask("get=1\n\n"), expected);
        assert!(rest(&mut stalled).len() < expected.len() - 1000, "cut off");
    }

    #[test]
    fn at_rest_there_is_no_timeout() {
        let directory = Directory::new();
        let mut server = Server::new(directory.listen());
        assert_eq!(server.timeout(false), None);
        let (_client, stream) = UnixStream::pair().unwrap();
        server.clients.push(Client::new(stream));
        assert_eq!(server.timeout(false), None);
    }

    #[test]
    fn deleting_or_replacing_the_socket_ends_the_server_and_leaves_the_new_file() {
        let daemon = Daemon::start(Device::default(), LIMITS);
        fs::remove_file(daemon.path()).unwrap();
        assert_eq!(daemon.ended().ended, StopReason::SocketGone);

        let daemon = Daemon::start(Device::default(), LIMITS);
        let path = daemon.path();
        let other = path.with_extension("new");
        let _other = UnixListener::bind(&other).unwrap();
        fs::rename(&other, &path).unwrap();
        let report = daemon.ended();
        assert_eq!(report.ended, StopReason::SocketGone);
        assert!(report.directory.0.join("wg0.sock").exists());
    }

    #[test]
    fn the_socket_is_private_and_goes_with_the_server() {
        use std::os::unix::fs::PermissionsExt;
        let daemon = Daemon::start(Device::default(), LIMITS);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&daemon.path()), 0o700);
        let report = daemon.stop();
        assert_eq!(report.ended, StopReason::Requested(1), "the second of two descriptors");
        assert!(!report.directory.0.join("wg0.sock").exists());
    }

    #[test]
    fn a_left_over_socket_is_replaced_and_a_live_one_is_not() {
        let directory = Directory::new();
        let path = directory.0.join("wg0.sock");
        drop(UnixListener::bind(&path).unwrap());
        let live = directory.listen();
        let Err(refused) = socket::Listener::open(&directory.0, &name()) else { panic!("two daemons") };
        assert!(refused.to_string().starts_with("wg0 is served by another process"), "{refused}");
        drop(live);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        let Err(refused) = socket::Listener::open(&directory.0, &name()) else { panic!("not a socket") };
        assert!(refused.to_string().contains("is in the way"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_socket_handed_over_is_served_and_stays_until_the_server_ends() {
        let directory = Directory::new();
        let socket = directory.listen().into_socket().unwrap();
        assert!(directory.0.join("wg0.sock").exists());
        let inherited = socket::Listener::inherit(socket, &directory.0, &name()).unwrap();
        assert!(inherited.is_in_place());
        assert_eq!(socket::interfaces(&directory.0).unwrap(), [name()]);
        drop(inherited);
        assert!(!directory.0.join("wg0.sock").exists());
    }

    #[derive(Default)]
    struct Device {
        listen_port: u16,
        allowed_ips: u32,
        fails: Option<i32>,
        sets: u64,
    }

    impl Device {
        fn state(&self) -> DeviceState {
            let mut state = DeviceState { listen_port: self.listen_port, ..DeviceState::default() };
            if self.allowed_ips > 0 {
                let mut peer = PeerState::new(PublicKey([9; 32]));
                let wide = |n: u32| (u128::MAX - u128::from(n)).to_be_bytes().into();
                peer.allowed_ips = (0..self.allowed_ips).map(|n| (wide(n), 128)).collect();
                state.peers.push(peer);
            }
            state
        }
    }

    impl Handler for Device {
        fn get(&mut self) -> Result<DeviceState, i32> {
            self.fails.map_or_else(|| Ok(self.state()), Err)
        }

        fn set(&mut self, update: DeviceUpdate) -> Result<(), i32> {
            self.sets += 1;
            self.listen_port = update.listen_port.unwrap_or(self.listen_port);
            self.fails.map_or(Ok(()), Err)
        }

        fn stats(&mut self) -> Vec<(String, u64)> {
            vec![("sets".into(), self.sets)]
        }

        fn activity(&mut self, since: u64) -> Activity {
            Activity { now: since + 1, configured: self.sets, peers: self.state().peers }
        }
    }

    /// A server on its own thread, ended by dropping `stop`.
    struct Daemon {
        directory: Directory,
        device_text: String,
        stop: UnixStream,
        thread: JoinHandle<StopReason>,
        clients: mpsc::Receiver<usize>,
    }

    struct Report {
        ended: StopReason,
        clients: usize,
        directory: Directory,
    }

    impl Daemon {
        fn start(mut device: Device, limits: Limits) -> Self {
            let directory = Directory::new();
            let mut server = Server::new(directory.listen());
            server.limits = limits;
            let device_text = String::from_utf8(device.state().render().to_vec()).unwrap();
            let (stop, stopped) = UnixStream::pair().unwrap();
            let (count, clients) = mpsc::channel();
            let thread = thread::spawn(move || {
                let (_quiet, never) = UnixStream::pair().unwrap();
                loop {
                    let stop = [never.as_fd(), stopped.as_fd()];
                    if let Some(ended) = server.step(&mut device, &stop).unwrap() {
                        let _ = count.send(server.clients.len());
                        return ended;
                    }
                }
            });
            Self { directory, device_text, stop, thread, clients }
        }

        fn path(&self) -> PathBuf {
            self.directory.0.join("wg0.sock")
        }

        fn connect(&self) -> UnixStream {
            UnixStream::connect(self.path()).unwrap()
        }

        fn ask(&self, request: &str) -> String {
            ask(&mut self.connect(), request)
        }

        fn stop(self) -> Report {
            drop(self.stop);
            let ended = self.thread.join().unwrap();
            Report { ended, clients: self.clients.recv().unwrap_or(0), directory: self.directory }
        }

        fn ended(self) -> Report {
            let ended = self.thread.join().unwrap();
            Report { ended, clients: 0, directory: self.directory }
        }
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::SeqCst);
            let name = format!("linerate-control-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn listen(&self) -> Listener {
            Listener::open(&self.0, &name()).unwrap()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn name() -> InterfaceName {
        "wg0".parse().unwrap()
    }

    fn ask(client: &mut UnixStream, request: &str) -> String {
        client.write_all(request.as_bytes()).unwrap();
        reply(client)
    }

    fn reply(client: &mut UnixStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\n\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap()
    }

    /// Everything until the server closes; a reset is how it looks when we had more to say.
    fn rest(client: &mut UnixStream) -> String {
        let mut text = Vec::new();
        let _ = client.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }
}
