//! Asks a responder at the other end of a tunnel.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::responder::{UNSENT, in_time, left, wait_for};
use super::{Ask, FILLER, LONGEST_MILLISECONDS, LONGEST_REPLY, Reply, Request, TcpCounts, line};
use crate::watch::Seen;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// A connection and the answer to its question: TCP tries three times again within that.
    connect: Duration,
    /// An answer, beyond the time of the connection: queues hold seconds, and what gets lost comes seconds later.
    grace: Duration,
    /// A stream of which nothing comes for so long, after its time, stands still.
    stalled: Duration,
}

const LIMITS: Limits =
    Limits { connect: Duration::from_secs(8), grace: Duration::from_secs(10), stalled: Duration::from_secs(4) };

/// The responder ends a connection then: until then what is on its way may arrive.
const LONGEST: Duration = Duration::from_millis(LONGEST_MILLISECONDS as u64);

/// How many bytes are read at once.
const PIECE: usize = 128 * 1024;

/// How many are written at once. A time-out ends a write in the middle.
const WRITTEN: usize = 64 * 1024;

/// Bytes of the buffers of a socket for datagrams, as far as the kernel grants them: what is dropped there is not lost
/// on the way.
pub(super) const DATAGRAM_BUFFER: usize = 1 << 20;

/// What a sender tells at the end of a stream is shorter.
const LONGEST_END: usize = 512;

/// A responder.
#[derive(Clone, Debug)]
pub struct Client {
    address: SocketAddr,
    device: String,
    segment: Option<u32>,
    limits: Limits,
}

/// Why a question has no answer.
#[derive(Debug)]
pub enum Trouble {
    /// Nobody listens there.
    Nobody,
    /// No connection is made.
    Unreachable(io::Error),
    /// The responder refuses, in these words.
    Refused(String),
    /// The connection broke, or this is no responder.
    Broken(io::Error),
}

/// In words that a stranger may have chosen in part.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody listens"),
            Self::Unreachable(error) => write!(f, "no connection: {error}"),
            Self::Refused(reason) => write!(f, "the responder refuses: {reason}"),
            Self::Broken(error) => write!(f, "the connection to the responder broke: {error}"),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A socket's time-out.
            ErrorKind::WouldBlock => Self::Broken(ErrorKind::TimedOut.into()),
            _ => Self::Broken(error),
        }
    }
}

/// A stream that arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived {
    /// Payload.
    pub bytes: u64,
    /// From the first byte to the last.
    pub seconds: f64,
    /// What the sender counted, if it told.
    pub tcp: Option<TcpCounts>,
    /// Share of the time in which the responder held it back, for its rate.
    pub held: f64,
}

/// Datagrams that were sent and came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echoed {
    /// How many were sent.
    pub sent: u64,
    /// How many of them arrived at the other end.
    pub arrived: u64,
    /// How many of those came back.
    pub returned: u64,
}

/// The other end, watched.
pub struct Watching {
    connection: Connection,
}

/// A stream that the responder is ready for.
pub struct Stream {
    connection: Connection,
    ask: Ask,
    time: Duration,
}

impl Client {
    /// The responder at `address`, through the interface `device`, whatever the routes say.
    #[must_use]
    pub fn new(address: SocketAddr, device: &str) -> Self {
        Self { address, device: device.to_owned(), segment: None, limits: LIMITS }
    }

    /// From now on TCP puts at most so many bytes into a segment, both ways: where larger packets are swallowed, a stream
    /// would stand still.
    pub fn limit_segments(&mut self, bytes: u32) {
        self.segment = Some(bytes);
    }

    /// How many bytes per second the responder allows.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn allowed(&self) -> Result<u64, Trouble> {
        Ok(self.ask(Ask::Watch, Duration::from_millis(1))?.rate)
    }

    /// Watches the other end's machine from now on.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn watch(&self) -> Result<Watching, Trouble> {
        Ok(Watching { connection: self.ask(Ask::Watch, LONGEST)? })
    }

    /// A stream to the responder, for `time`. It begins with [`Stream::run`].
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn send(&self, time: Duration) -> Result<Stream, Trouble> {
        Ok(Stream { connection: self.ask(Ask::Send, time)?, ask: Ask::Send, time })
    }

    /// A stream from the responder, for `time`. It has begun.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn receive(&self, time: Duration) -> Result<Stream, Trouble> {
        Ok(Stream { connection: self.ask(Ask::Receive, time)?, ask: Ask::Receive, time })
    }

    /// Sends datagrams of `length` bytes, `interval` apart for `time`, and counts those that come back, for as much
    /// longer as an answer may be `late`.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn echo(&self, length: usize, interval: Duration, time: Duration, late: Duration) -> Result<Echoed, Trouble> {
        let mut connection = self.ask(Ask::Echo, time + late + self.limits.grace)?;
        let socket = Socket::new(Domain::for_address(self.address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind_device(Some(self.device.as_bytes()))?;
        socket.connect(&self.address.into())?;
        socket.set_nonblocking(true)?;
        let _ = socket.set_send_buffer_size(DATAGRAM_BUFFER);
        let _ = socket.set_recv_buffer_size(DATAGRAM_BUFFER);
        let socket = UdpSocket::from(socket);
        let datagram = vec![FILLER; length];
        let mut echoed = Echoed { sent: 0, arrived: 0, returned: 0 };
        let begin = Instant::now();
        let end = begin + time;
        let mut next = begin;
        let until = end + late;
        let mut buffer = [0; 2048];
        while Instant::now() < until && (Instant::now() < end || echoed.returned < echoed.sent) {
            let now = Instant::now();
            if next <= now && next < end {
                // One that finds no room here never was on the way.
                echoed.sent += u64::from(socket.send(&datagram).is_ok());
                // What was missed is not made up for by a burst.
                next = (next + interval).max(now);
            }
            let wake = if next < end { next } else { until };
            wait_for(&mut [PollFd::new(&socket, PollFlags::IN)], wake.saturating_duration_since(Instant::now()))?;
            while socket.recv(&mut buffer).is_ok() {
                echoed.returned += 1;
            }
        }
        connection.stream.shutdown(Shutdown::Write)?;
        match connection.reply(self.limits.grace)? {
            Reply::Echoed { arrived } => {
                // Those that came while this process had no processor.
                while socket.recv(&mut buffer).is_ok() {
                    echoed.returned += 1;
                }
                echoed.arrived = arrived.min(echoed.sent);
                echoed.returned = echoed.returned.min(echoed.arrived);
                Ok(echoed)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Connects, and asks; it has begun when this returns.
    fn ask(&self, ask: Ask, time: Duration) -> Result<Connection, Trouble> {
        let until = Instant::now() + self.limits.connect;
        let stream = self.connect().map_err(|error| match error.kind() {
            ErrorKind::ConnectionRefused => Trouble::Nobody,
            _ => Trouble::Unreachable(error),
        })?;
        let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).clamp(1, LONGEST_MILLISECONDS);
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(self.limits.connect))?;
        (&stream).write_all(&line(&Request::new(ask, milliseconds)))?;
        let mut connection = Connection { stream, rest: Vec::new(), rate: 0, limits: self.limits };
        match connection.reply(until.saturating_duration_since(Instant::now()))? {
            Reply::Ready { rate } => Ok(Connection { rate, ..connection }),
            other => Err(unexpected(other)),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, Some(Protocol::TCP))?;
        socket.bind_device(Some(self.device.as_bytes()))?;
        if let Some(segment) = self.segment {
            socket.set_tcp_mss(segment)?;
        }
        socket.connect_timeout(&self.address.into(), self.limits.connect)?;
        socket.set_nonblocking(false)?;
        Ok(socket.into())
    }
}

impl Stream {
    /// Runs it; `ended` is called when its time is over or its last byte has come, before anything else is waited for.
    ///
    /// # Errors
    /// [`Trouble`]. A stream that stands still, or breaks, is none: what arrived of it is told.
    pub fn run(self, ended: impl FnOnce()) -> Result<Arrived, Trouble> {
        match self.ask {
            Ask::Receive => self.take(ended),
            _ => self.give(ended),
        }
    }

    fn give(mut self, ended: impl FnOnce()) -> Result<Arrived, Trouble> {
        let stream = &self.connection.stream;
        let (until, buffer) = (Instant::now() + self.time, [FILLER; WRITTEN]);
        SockRef::from(stream).set_tcp_notsent_lowat(UNSENT)?;
        let mut sent = 0;
        while let Ok(left) = left(until) {
            stream.set_write_timeout(Some(left))?;
            match in_time(|| (&self.connection.stream).write(&buffer)) {
                Ok(written) => sent += written as u64,
                // No time is left, or the other end has ended it; it tells what arrived, if anything can.
                Err(_) => break,
            }
        }
        ended();
        let _ = stream.shutdown(Shutdown::Write);
        let reply = self.connection.reply(LONGEST + self.connection.limits.grace);
        let tcp = TcpCounts::of(&self.connection.stream);
        // What the responder had no time for is not sent any more: the next load would wait behind it.
        let _ = SockRef::from(&self.connection.stream).set_linger(Some(Duration::ZERO));
        match reply {
            Ok(Reply::Arrived { bytes, seconds, held }) => Ok(Arrived { bytes: bytes.min(sent), seconds, tcp, held }),
            Ok(other) => Err(unexpected(other)),
            Err(Trouble::Broken(error)) if error.kind() != ErrorKind::InvalidData => {
                Ok(Arrived { bytes: 0, seconds: 0.0, tcp, held: 0.0 })
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn take(mut self, ended: impl FnOnce()) -> Result<Arrived, Trouble> {
        let mut buffer = vec![0; PIECE];
        // The first bytes may have come with the answer.
        let early = std::mem::take(&mut self.connection.rest);
        let mut length = early.len().min(PIECE);
        buffer[..length].copy_from_slice(&early[..length]);
        let now = Instant::now();
        let Limits { grace, stalled, .. } = self.connection.limits;
        let (time_is_over, until) = (now + self.time, now + LONGEST + grace);
        let (mut bytes, mut begin, mut last) = (0, None, now);
        let is_whole = loop {
            if length > 0 {
                last = Instant::now();
                begin.get_or_insert(last);
            }
            let end = end_of_load(&buffer[..length]);
            bytes += end.unwrap_or(length) as u64;
            if let Some(end) = end {
                self.connection.rest = buffer[end + 1..length].to_vec();
                break true;
            }
            if Instant::now() >= until {
                break false;
            }
            wait_until(&self.connection.stream, until.min(last.max(time_is_over) + stalled))?;
            match in_time(|| (&self.connection.stream).read(&mut buffer)) {
                // What the sender counted stays unknown.
                Ok(0) | Err(_) => break false,
                Ok(more) => length = more,
            }
        };
        ended();
        let (tcp, held) = match is_whole.then(|| self.connection.reply(grace)) {
            Some(Ok(Reply::Sent { tcp, held })) => (tcp, held),
            _ => (None, 0.0),
        };
        let seconds = begin.map_or(0.0, |begin| last.duration_since(begin).as_secs_f64());
        Ok(Arrived { bytes, seconds, tcp, held })
    }
}

/// Where in a piece of a load its end is. After it comes a line, which is short: most of the load is not looked at.
fn end_of_load(piece: &[u8]) -> Option<usize> {
    let tail = piece.len().saturating_sub(LONGEST_END);
    piece[tail..].iter().position(|byte| *byte == b'\n').map(|end| tail + end)
}

impl Watching {
    /// What the other end has seen until now.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn end(mut self) -> Result<Seen, Trouble> {
        // Its answer is there already if the load took longer than a connection may.
        let _ = self.connection.stream.shutdown(Shutdown::Write);
        match self.connection.reply(self.connection.limits.grace)? {
            Reply::Seen(mut seen) => {
                // A responder from before there was this line ends the connection.
                if let Ok(Reply::Waiting(shares)) = self.connection.reply(self.connection.limits.grace) {
                    seen.threads.iter_mut().zip(shares).for_each(|(thread, share)| thread.waiting = share);
                }
                Ok(seen)
            }
            other => Err(unexpected(other)),
        }
    }
}

/// A question and its answers.
struct Connection {
    stream: TcpStream,
    /// What was read beyond a line.
    rest: Vec<u8>,
    /// Bytes per second that the responder allows.
    rate: u64,
    limits: Limits,
}

/// The next read waits until then; one that comes too late still finds what has come in time.
fn wait_until(stream: &TcpStream, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))
}

impl Connection {
    /// The next line, within `time`.
    fn reply(&mut self, time: Duration) -> Result<Reply, Trouble> {
        let until = Instant::now() + time;
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let reply: Reply = serde_json::from_slice(&self.rest[..end]).map_err(|_| no_responder())?;
                self.rest.drain(..=end);
                return Ok(reply.sanitized());
            }
            if self.rest.len() > LONGEST_REPLY {
                return Err(no_responder().into());
            }
            wait_until(&self.stream, until)?;
            let mut buffer = [0; 1024];
            match in_time(|| (&self.stream).read(&mut buffer))? {
                0 => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                length => self.rest.extend_from_slice(&buffer[..length]),
            }
        }
    }
}

fn no_responder() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "what answers there is no responder of this version")
}

fn unexpected(reply: Reply) -> Trouble {
    match reply {
        Reply::Refused { reason } => Trouble::Refused(reason),
        _ => no_responder().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::watch::ThreadShare;

    /// A client, and a responder that serves one connection so.
    fn with(serve: impl FnOnce(TcpStream) + Send + 'static) -> (Client, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limits = Limits { connect: LONG, grace: LONG, stalled: LONG };
        let client = Client { limits, ..Client::new(listener.local_addr().unwrap(), "lo") };
        let serve = move || {
            let (stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\n") {
                let mut byte = [0];
                (&stream).read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            serve(stream);
        };
        (client, thread::spawn(serve))
    }

    fn say(mut stream: &TcpStream, reply: &Reply) {
        stream.write_all(&line(reply)).unwrap();
    }

    const READY: Reply = Reply::Ready { rate: 1 };
    const SHORT: Duration = Duration::from_millis(1);
    /// Of a test that fails.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_end_of_a_stream_that_is_sent_is_told_before_its_answer_comes() {
        let (ended, has_ended) = mpsc::channel();
        let (client, responder) = with(move |stream| {
            say(&stream, &READY);
            let bytes = io::copy(&mut &stream, &mut io::sink()).unwrap();
            has_ended.recv_timeout(LONG).unwrap();
            say(&stream, &Reply::Arrived { bytes, seconds: 0.5, held: 0.25 });
        });
        let arrived = client.send(SHORT).unwrap().run(|| ended.send(()).unwrap()).unwrap();
        assert_eq!((arrived.seconds, arrived.held), (0.5, 0.25));
        responder.join().unwrap();
    }

    #[test]
    fn the_end_of_a_stream_that_comes_is_told_before_what_the_sender_counted() {
        let (ended, has_ended) = mpsc::channel();
        let (client, responder) = with(move |stream| {
            (&stream).write_all(&[&line(&READY)[..], b"...."].concat()).unwrap();
            (&stream).write_all(b"......\n").unwrap();
            has_ended.recv_timeout(LONG).unwrap();
            say(&stream, &Reply::Sent { tcp: None, held: 0.75 });
        });
        let arrived = client.receive(LONG).unwrap().run(|| ended.send(()).unwrap()).unwrap();
        assert_eq!((arrived.bytes, arrived.tcp, arrived.held), (10, None, 0.75));
        responder.join().unwrap();
    }

    /// Waits until so many bytes after the first answer have come.
    fn await_bytes(connection: &Connection, bytes: usize) {
        let early = connection.rest.len();
        while early < bytes && early + connection.stream.peek(&mut [0; 4096]).unwrap() < bytes {
            thread::yield_now();
        }
    }

    #[test]
    fn what_has_come_counts_however_late_it_is_read() {
        let sent = [&b"..........\n"[..], &line(&Reply::Sent { tcp: None, held: 0.5 })[..]].concat();
        let length = sent.len();
        let (client, responder) = with(move |stream| {
            say(&stream, &READY);
            (&stream).write_all(&sent).unwrap();
        });
        let mut stream = client.receive(SHORT).unwrap();
        await_bytes(&stream.connection, length);
        stream.connection.limits.stalled = Duration::ZERO;
        let arrived = stream.run(|| ()).unwrap();
        assert_eq!((arrived.bytes, arrived.held), (10, 0.5));
        responder.join().unwrap();
    }

    #[test]
    fn how_long_threads_waited_is_told_by_newer_responders_alone() {
        for (told, expected) in
            [(Some(vec![0.25, 7.0, 0.5]), [0.25, 1.0]), (Some(vec![0.25]), [0.25, 0.0]), (None, [0.0; 2])]
        {
            let (client, responder) = with(move |stream| {
                say(&stream, &READY);
                let thread = ThreadShare { name: "worker".into(), share: 0.5, wait_milliseconds: 2.0, waiting: 0.75 };
                say(&stream, &Reply::Seen(Seen { threads: vec![thread; 2], ..Seen::default() }));
                told.into_iter().for_each(|shares| say(&stream, &Reply::Waiting(shares)));
            });
            let seen = client.watch().unwrap().end().unwrap();
            assert_eq!(seen.threads.iter().map(|thread| thread.waiting).collect::<Vec<_>>(), expected);
            responder.join().unwrap();
        }
    }

    #[test]
    fn an_answer_that_has_come_is_read_after_its_time() {
        let (client, responder) = with(|stream| {
            say(&stream, &READY);
            say(&stream, &Reply::Seen(Seen::default()));
        });
        let mut watching = client.watch().unwrap();
        await_bytes(&watching.connection, line(&Reply::Seen(Seen::default())).len());
        let reply = watching.connection.reply(Duration::ZERO).unwrap();
        assert_eq!(reply, Reply::Seen(Seen::default()));
        responder.join().unwrap();
    }

    #[test]
    fn a_stream_that_the_other_end_breaks_is_no_error() {
        let (client, responder) = with(|stream| {
            say(&stream, &READY);
            (&stream).read_exact(&mut [0; 1000]).unwrap();
        });
        let arrived = client.send(LONG).unwrap().run(|| ()).unwrap();
        assert_eq!((arrived.bytes, arrived.seconds), (0, 0.0));
        responder.join().unwrap();
    }

    #[test]
    fn a_stream_that_nobody_reads_ends_with_its_time() {
        let (ended, has_ended) = mpsc::channel();
        let (client, responder) = with(move |stream| {
            say(&stream, &READY);
            has_ended.recv_timeout(LONG).unwrap();
            say(&stream, &Reply::Arrived { bytes: u64::MAX, seconds: 0.5, held: 0.0 });
            // The client does not send the rest.
            let _ = io::copy(&mut &stream, &mut io::sink());
        });
        let arrived = client.send(Duration::from_millis(100)).unwrap().run(|| ended.send(()).unwrap()).unwrap();
        assert!(arrived.bytes < 1 << 30, "no more than was sent: {arrived:?}");
        responder.join().unwrap();
    }

    #[test]
    fn the_end_of_a_load_is_found_near_the_end_of_a_piece() {
        assert_eq!(end_of_load(b""), None);
        assert_eq!(end_of_load(&[FILLER; 2000]), None);
        let mut piece = [FILLER; 2000];
        piece[1700] = b'\n';
        assert_eq!(end_of_load(&piece), Some(1700));
        assert_eq!(end_of_load(b"\n{}"), Some(0));
    }
}
