//! Asks a responder at the other end of a tunnel.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::responder::{UNSENT, wait_for};
use super::{Ask, FILLER, LONGEST_MILLISECONDS, LONGEST_REPLY, Reply, Request, TcpCounts, line};
use crate::watch::Seen;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);

/// How long an answer may take beyond the time of the connection.
const GRACE: Duration = Duration::from_secs(2);

/// The responder ends a connection then: until then what is on its way may arrive.
const LONGEST: Duration = Duration::from_millis(LONGEST_MILLISECONDS as u64);

/// How many bytes are read or written at once.
const PIECE: usize = 128 * 1024;

/// What a sender tells at the end of a stream is shorter.
const LONGEST_END: usize = 512;

/// A responder.
#[derive(Clone, Debug)]
pub struct Client {
    address: SocketAddr,
    device: String,
    segment: Option<u32>,
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

impl Client {
    /// The responder at `address`, through the interface `device`, whatever the routes say.
    #[must_use]
    pub fn new(address: SocketAddr, device: &str) -> Self {
        Self { address, device: device.to_owned(), segment: None }
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

    /// Sends a stream for `time`.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn send(&self, time: Duration) -> Result<Arrived, Trouble> {
        let mut connection = self.ask(Ask::Send, time)?;
        let (begin, buffer) = (Instant::now(), [FILLER; PIECE]);
        connection.stream.set_write_timeout(Some(LONGEST))?;
        SockRef::from(&connection.stream).set_tcp_notsent_lowat(UNSENT)?;
        while begin.elapsed() < time {
            connection.stream.write_all(&buffer)?;
        }
        connection.stream.shutdown(Shutdown::Write)?;
        let reply = connection.reply(LONGEST + GRACE)?;
        let tcp = Some(TcpCounts::of(&connection.stream));
        match reply {
            Reply::Arrived { bytes, seconds } => Ok(Arrived { bytes, seconds, tcp }),
            other => Err(unexpected(other)),
        }
    }

    /// Receives a stream for `time`.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn receive(&self, time: Duration) -> Result<Arrived, Trouble> {
        let mut connection = self.ask(Ask::Receive, time)?;
        let mut buffer = vec![0; PIECE];
        let mut bytes = connection.rest.len() as u64;
        let (begin, mut last) = (Instant::now(), Instant::now());
        let until = begin + time + GRACE;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            connection.stream.set_read_timeout(Some(left))?;
            let length = match (&connection.stream).read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // What the sender counted stays unknown.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            // After the load comes a line, which is shorter than this: most of the load is not looked at.
            let tail = length.saturating_sub(LONGEST_END);
            if let Some(end) = buffer[tail..length].iter().position(|byte| *byte == b'\n') {
                let end = tail + end;
                bytes += end as u64;
                connection.rest = buffer[end + 1..length].to_vec();
                let reply = connection.reply(left);
                let tcp = match reply {
                    Ok(Reply::Sent(tcp)) => Some(tcp),
                    _ => None,
                };
                return Ok(Arrived { bytes, seconds: last.duration_since(begin).as_secs_f64(), tcp });
            }
            bytes += length as u64;
            last = Instant::now();
        }
        Ok(Arrived { bytes, seconds: last.duration_since(begin).as_secs_f64(), tcp: None })
    }

    /// Sends datagrams of `length` bytes, `interval` apart for `time`, and counts those that come back.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn echo(&self, length: usize, interval: Duration, time: Duration) -> Result<Echoed, Trouble> {
        let mut connection = self.ask(Ask::Echo, time + GRACE)?;
        let socket = Socket::new(Domain::for_address(self.address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind_device(Some(self.device.as_bytes()))?;
        socket.connect(&self.address.into())?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from(socket);
        let datagram = vec![FILLER; length];
        let mut echoed = Echoed { sent: 0, arrived: 0, returned: 0 };
        let begin = Instant::now();
        let end = begin + time;
        let mut next = begin;
        // After the last one, answers are waited for as long as a slow path takes.
        let until = end + Duration::from_millis(500);
        let mut buffer = [0; 2048];
        while Instant::now() < until && (Instant::now() < end || echoed.returned < echoed.sent) {
            while next <= Instant::now() && next < end {
                // One that finds no room is lost, as on any way.
                let _ = socket.send(&datagram);
                echoed.sent += 1;
                next += interval;
            }
            let wake = if next < end { next } else { until };
            wait_for(&mut [PollFd::new(&socket, PollFlags::IN)], wake.saturating_duration_since(Instant::now()))?;
            while socket.recv(&mut buffer).is_ok() {
                echoed.returned += 1;
            }
        }
        connection.stream.shutdown(Shutdown::Write)?;
        match connection.reply(GRACE)? {
            Reply::Echoed { arrived } => {
                echoed.arrived = arrived.min(echoed.sent);
                echoed.returned = echoed.returned.min(echoed.arrived);
                Ok(echoed)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Connects, and asks; it has begun when this returns.
    fn ask(&self, ask: Ask, time: Duration) -> Result<Connection, Trouble> {
        let stream = self.connect().map_err(|error| match error.kind() {
            ErrorKind::ConnectionRefused => Trouble::Nobody,
            _ => Trouble::Unreachable(error),
        })?;
        let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).clamp(1, LONGEST_MILLISECONDS);
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(CONNECT))?;
        (&stream).write_all(&line(&Request::new(ask, milliseconds)))?;
        let mut connection = Connection { stream, rest: Vec::new(), rate: 0 };
        match connection.reply(CONNECT)? {
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
        socket.connect_timeout(&self.address.into(), CONNECT)?;
        socket.set_nonblocking(false)?;
        Ok(socket.into())
    }
}

impl Watching {
    /// What the other end has seen until now.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn end(mut self) -> Result<Seen, Trouble> {
        // Its answer is there already if the load took longer than a connection may.
        let _ = self.connection.stream.shutdown(Shutdown::Write);
        match self.connection.reply(GRACE)? {
            Reply::Seen(seen) => Ok(seen),
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
}

impl Connection {
    /// The next line, within `time`.
    fn reply(&mut self, time: Duration) -> Result<Reply, Trouble> {
        let until = Instant::now() + time;
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let reply = serde_json::from_slice(&self.rest[..end]).map_err(|_| no_responder())?;
                self.rest.drain(..=end);
                return Ok(reply);
            }
            if self.rest.len() > LONGEST_REPLY {
                return Err(no_responder().into());
            }
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
            self.stream.set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut).map_err(io::Error::from)?))?;
            let mut buffer = [0; 1024];
            match (&self.stream).read(&mut buffer) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(length) => self.rest.extend_from_slice(&buffer[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error.into()),
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
