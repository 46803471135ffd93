//! Answers a client at the other end of a tunnel. What comes is a stranger's: whoever reaches the sockets may ask for
//! anything, but gets no more than [`Bounds`] say.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::client::DATAGRAM_BUFFER;
use super::pace::{LONGEST_PIECE, Pace};
use super::{Ask, FILLER, LONGEST_MILLISECONDS, LONGEST_REQUEST, Reply, Request, TcpCounts, line};
use crate::watch::Watch;

/// More connections at a time are refused.
pub const MOST_CONNECTIONS: usize = 8;

/// Of one peer no more: a client has two, and two more while those before them end.
pub const MOST_OF_ONE: usize = 4;

/// A peer's connections are served so far apart, but some after a pause at once.
const APART: Duration = Duration::from_millis(100);
const AT_ONCE: u32 = 10;

/// So many wait at most to be accepted: one peer's do not keep others from connecting.
const BACKLOG: u16 = 64;

/// How often it is looked whether the interface is there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Datagrams in a second: clients send 2,000.
const MOST_DATAGRAMS: u64 = 4000;

/// No more datagrams wait in a socket's buffer.
const MOST_WAITING: usize = 4096;

/// A request has to be there by then.
const PATIENCE: Duration = Duration::from_secs(4);

/// The last part of a connection's time is for telling what was seen or counted.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What waits in a socket to be sent beyond what is on its way, so that an end is soon there.
pub(super) const UNSENT: u32 = 128 * 1024;

/// At a lower rate, in bytes per second, large buffers hold the data of seconds.
const SLOW: u64 = 12_500_000;

/// A datagram has at most so many bytes.
const LONGEST_DATAGRAM: usize = 2048;

/// The sockets of one of the tunnel's addresses.
pub struct Sockets {
    listener: TcpListener,
    /// Datagrams are one client's at a time.
    datagrams: Mutex<UdpSocket>,
}

/// What all clients together get.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes per second.
    pub rate: u64,
    /// Until when.
    pub until: Instant,
}

/// Why it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its time is over.
    Time,
    /// It was told to.
    Stopped,
    /// The interface has gone.
    Gone,
}

impl Sockets {
    /// Binds sockets to `address` and to the interface `device`: nothing arrives that did not come through it.
    ///
    /// # Errors
    /// Those of bind(2) and of SO_BINDTODEVICE (socket(7)).
    pub fn bind(address: SocketAddr, device: &str) -> io::Result<Self> {
        let socket = |kind, protocol| {
            let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
            socket.bind_device(Some(device.as_bytes()))?;
            socket.set_reuse_address(kind == Type::STREAM)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            io::Result::Ok(socket)
        };
        let stream = socket(Type::STREAM, Protocol::TCP)?;
        stream.listen(BACKLOG.into())?;
        let datagrams = socket(Type::DGRAM, Protocol::UDP)?;
        // What the kernel does not grant is missing when datagrams come in bursts, and nowhere else.
        let _ = datagrams.set_recv_buffer_size(DATAGRAM_BUFFER);
        let _ = datagrams.set_send_buffer_size(DATAGRAM_BUFFER);
        Ok(Self { listener: stream.into(), datagrams: Mutex::new(datagrams.into()) })
    }
}

/// What the connections share.
struct Responder<'a> {
    pace: Pace,
    /// Of datagrams, of the client whose they are.
    datagrams: Pace,
    until: Instant,
    daemon: Option<u32>,
    port: u16,
    /// At most [`MOST_CONNECTIONS`].
    connections: Mutex<Vec<(Peer, Arc<TcpStream>)>>,
    tunnel: &'a dyn Tunnel,
}

/// The tunnel of a responder.
pub trait Tunnel: Sync {
    /// Whether its interface is there, with its addresses. Asked every second.
    fn is_there(&self) -> bool;

    /// The number of the peer that has an address. Addresses without a number count as those of one peer.
    fn peer(&self, address: IpAddr) -> Option<usize>;
}

/// Whose a connection is.
type Peer = Option<usize>;

/// Answers on `sockets` until the time is over, `stop` is readable, or the interface of `tunnel` has gone. `watched` is
/// the tunnel's daemon, if it has one, and its port.
///
/// # Errors
/// poll(2) fails.
pub fn answer(
    sockets: &[Sockets],
    bounds: Bounds,
    watched: (Option<u32>, u16),
    stop: BorrowedFd<'_>,
    tunnel: &dyn Tunnel,
) -> io::Result<End> {
    let now = Instant::now();
    let (pace, datagrams) = (Pace::new(bounds.rate, now), Pace::new(MOST_DATAGRAMS, now));
    let (daemon, port) = watched;
    let connections = Mutex::default();
    let responder = Responder { pace, datagrams, until: bounds.until, daemon, port, connections, tunnel };
    let (mut paces, mut look) = (Paces::default(), now);
    thread::scope(|scope| {
        loop {
            if let Some(end) = responder.has_ended(stop, &mut look) {
                responder.hang_up();
                return Ok(end);
            }
            for sockets in sockets {
                let Ok((stream, from)) = sockets.listener.accept() else { continue };
                let peer = tunnel.peer(from.ip());
                let Some(stream) = responder.admit(stream, peer) else { continue };
                let (responder, theirs) = (&responder, Arc::clone(&stream));
                let wait = paces.book(peer, Instant::now());
                let serve = move || {
                    // In its place: a peer's connections wait for each other, and for nobody else's.
                    thread::sleep(wait);
                    // Whoever hangs up hangs up.
                    let _ = Connection::new(responder, &theirs).serve(&sockets.datagrams, from.ip());
                    responder.dismiss(&theirs);
                };
                if thread::Builder::new().name("connection".into()).spawn_scoped(scope, serve).is_err() {
                    responder.dismiss(&stream);
                }
            }
            responder.wait(sockets, stop)?;
        }
    })
}

/// For each peer that has connected lately, when its next connection would be served, if all were [`APART`].
#[derive(Default)]
struct Paces(HashMap<Peer, Instant>);

impl Paces {
    /// How long another connection of `peer` waits.
    fn book(&mut self, peer: Peer, now: Instant) -> Duration {
        // Who has paused begins anew.
        self.0.retain(|_, next| *next > now);
        let next = self.0.entry(peer).or_insert(now);
        let wait = next.saturating_duration_since(now).saturating_sub(APART * (AT_ONCE - 1));
        *next += APART;
        wait
    }
}

impl Responder<'_> {
    /// `look` is when to look for the interface again.
    fn has_ended(&self, stop: BorrowedFd<'_>, look: &mut Instant) -> Option<End> {
        let mut ready = [PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        if matches!(poll(&mut ready, Some(&Timespec::default())), Ok(1..)) {
            return Some(End::Stopped);
        }
        let now = Instant::now();
        if now >= self.until {
            return Some(End::Time);
        }
        if now < *look {
            return None;
        }
        *look = now + LOOK_AGAIN;
        (!self.tunnel.is_there()).then_some(End::Gone)
    }

    /// The connection of `peer`, if there is room for it.
    fn admit(&self, stream: TcpStream, peer: Peer) -> Option<Arc<TcpStream>> {
        let mut connections = self.connections();
        let of_one = connections.iter().filter(|(other, _)| *other == peer).count();
        let reason = match refusal(connections.len(), of_one) {
            None => {
                let stream = Arc::new(stream);
                connections.push((peer, Arc::clone(&stream)));
                return Some(stream);
            }
            Some(reason) => reason,
        };
        drop(connections);
        // Nobody is waited for. What is not read when a connection is closed may cut off what was said.
        let _ = stream.set_nonblocking(true).map(|()| (&stream).read(&mut [0; LONGEST_REQUEST]));
        let _ = (&stream).write_all(&line(&Reply::Refused { reason }));
        None
    }

    fn dismiss(&self, stream: &Arc<TcpStream>) {
        self.connections().retain(|(_, other)| !Arc::ptr_eq(other, stream));
    }

    /// Ends what is still going on.
    fn hang_up(&self) {
        self.connections().iter().for_each(|(_, stream)| drop(stream.shutdown(Shutdown::Both)));
    }

    fn connections(&self) -> MutexGuard<'_, Vec<(Peer, Arc<TcpStream>)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until somebody connects, at most a second.
    fn wait(&self, sockets: &[Sockets], stop: BorrowedFd<'_>) -> io::Result<()> {
        let mut ready: Vec<PollFd<'_>> = sockets.iter().map(|one| PollFd::new(&one.listener, PollFlags::IN)).collect();
        ready.push(PollFd::from_borrowed_fd(stop, PollFlags::IN));
        let left = self.until.saturating_duration_since(Instant::now()).min(LOOK_AGAIN);
        wait_for(&mut ready, left)
    }
}

/// From now on nothing but what comes from `client` is in this socket.
fn take_from(datagrams: &UdpSocket, client: IpAddr) {
    // Connected to no port, a socket takes what comes from all ports of that address: which one the client has, only its
    // datagrams tell. To another client it is connected anew; without one in between, as that would undo its binding to
    // the interface (__udp_disconnect). Where this is not possible, senders are compared.
    let _ = datagrams.connect(SocketAddr::new(client, 0));
    // What came for somebody else, or too late. An error may be one that an earlier datagram has met.
    let mut buffer = [0; 1];
    for _ in 0..MOST_WAITING {
        if datagrams.recv(&mut buffer).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            break;
        }
    }
}

/// Why another connection is refused, beside so many, and so many of the same peer.
fn refusal(all: usize, of_one: usize) -> Option<String> {
    if all >= MOST_CONNECTIONS {
        Some(format!("it serves {MOST_CONNECTIONS} connections already; try again in 10 seconds"))
    } else if of_one >= MOST_OF_ONE {
        Some(format!("it serves {MOST_OF_ONE} connections of this peer already; try again in 10 seconds"))
    } else {
        None
    }
}

/// poll(2) with a time-out; a signal ends it, too.
pub(super) fn wait_for(ready: &mut [PollFd<'_>], time: Duration) -> io::Result<()> {
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    match poll(ready, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A client's connection.
struct Connection<'a> {
    responder: &'a Responder<'a>,
    stream: &'a TcpStream,
    /// Whatever it does ends then; it is closed [`LAST_WORD`] later.
    until: Instant,
}

impl<'a> Connection<'a> {
    fn new(responder: &'a Responder<'a>, stream: &'a TcpStream) -> Self {
        let longest = Duration::from_millis(LONGEST_MILLISECONDS.into()) - LAST_WORD;
        Self { responder, stream, until: responder.until.min(Instant::now() + longest) }
    }

    fn serve(&self, datagrams: &Mutex<UdpSocket>, from: IpAddr) -> io::Result<()> {
        // A listener's sockets inherit that on some systems, not on Linux.
        self.stream.set_nonblocking(false)?;
        let request = match self.request()? {
            Ok(request) => request,
            Err(reason) => {
                self.reply(&Reply::Refused { reason })?;
                // What is not read when a connection is closed cuts off what was said last.
                return self.end_of_input(self.until.min(Instant::now() + PATIENCE));
            }
        };
        let time = Duration::from_millis(request.milliseconds.into());
        let until = self.until.min(Instant::now() + time);
        match request.ask {
            Ask::Send => self.take(),
            Ask::Receive => {
                // It keeps its place until the client has it all, and what the client has not taken by then goes: the
                // kernel would keep megabytes for minutes, of any number of connections.
                let given = self.give(until).and_then(|()| self.end_of_input(self.until + LAST_WORD));
                SockRef::from(self.stream).set_linger(Some(Duration::ZERO))?;
                given
            }
            Ask::Watch => self.watch(),
            Ask::Echo => self.echo(datagrams, from),
        }
    }

    /// The first line; what is wrong with it.
    fn request(&self) -> io::Result<Result<Request, String>> {
        let until = self.until.min(Instant::now() + PATIENCE);
        let mut bytes = [0; LONGEST_REQUEST + 1];
        let mut length = 0;
        loop {
            if let Some(end) = bytes[..length].iter().position(|byte| *byte == b'\n') {
                return Ok(Request::parse(&bytes[..end]));
            }
            let room = &mut bytes[length..];
            if room.is_empty() {
                return Ok(Err(format!("a request has at most {LONGEST_REQUEST} bytes")));
            }
            match self.read(room, until)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                more => length += more,
            }
        }
    }

    /// Reads a stream until the client ends it, or the time is over.
    fn take(&self) -> io::Result<()> {
        let pace = &self.responder.pace;
        // What waits to be read at a low rate has to be read in time, too.
        if pace.rate() < SLOW {
            SockRef::from(self.stream).set_recv_buffer_size(LONGEST_PIECE)?;
        }
        self.ready()?;
        let mut buffer = vec![0; LONGEST_PIECE];
        let (mut bytes, mut begin, mut last, mut held) = (0, None, Instant::now(), Duration::ZERO);
        let has_ended = loop {
            match self.read(&mut buffer[..pace.piece()], self.until) {
                Ok(0) => break true,
                Ok(more) => {
                    bytes += more as u64;
                    last = Instant::now();
                    begin.get_or_insert(last);
                    held += pace.pass(more);
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => break false,
                Err(error) => return Err(error),
            }
        };
        let seconds = begin.map_or(0.0, |begin| last.duration_since(begin).as_secs_f64());
        self.reply(&Reply::Arrived { bytes, seconds, held: share(held, seconds) })?;
        // What is not read when a connection is closed cuts off what was said last.
        if has_ended { Ok(()) } else { self.end_of_input(self.until + LAST_WORD) }
    }

    /// Sends a stream.
    fn give(&self, until: Instant) -> io::Result<()> {
        SockRef::from(self.stream).set_tcp_notsent_lowat(UNSENT)?;
        self.ready()?;
        let buffer = [FILLER; LONGEST_PIECE];
        let piece = self.responder.pace.piece();
        let (begin, mut held) = (Instant::now(), Duration::ZERO);
        while Instant::now() < until {
            self.write(&buffer[..piece])?;
            held += self.responder.pace.pass(piece);
        }
        let held = share(held, begin.elapsed().as_secs_f64());
        self.write(b"\n")?;
        self.reply(&Reply::Sent { tcp: TcpCounts::of(self.stream), held })
    }

    /// Watches this machine until the client ends its side.
    fn watch(&self) -> io::Result<()> {
        let watch = Watch::begin(self.responder.daemon, self.responder.port);
        self.ready()?;
        self.end_of_input(self.until)?;
        let seen = watch.end();
        let waiting = seen.threads.iter().map(|thread| thread.waiting).collect();
        self.write(&line(&Reply::Seen(seen)))?;
        self.reply(&Reply::Waiting(waiting))
    }

    /// Sends a client's datagrams back until it ends its side.
    fn echo(&self, datagrams: &Mutex<UdpSocket>, from: IpAddr) -> io::Result<()> {
        let Ok(datagrams) = datagrams.try_lock() else {
            return self.reply(&Reply::Refused { reason: "it counts another client's datagrams".into() });
        };
        take_from(&datagrams, from);
        let mut buffer = [0; LONGEST_DATAGRAM];
        self.ready()?;
        let mut arrived = 0;
        while Instant::now() < self.until {
            let mut ready = [PollFd::new(&*datagrams, PollFlags::IN), PollFd::new(self.stream, PollFlags::IN)];
            wait_for(&mut ready, self.until.saturating_duration_since(Instant::now()))?;
            let has_ended = !ready[1].revents().is_empty();
            // No more at a time than fit into a socket's buffer: somebody else's flood must not hold it here.
            for _ in 0..64 {
                if Instant::now() >= self.until {
                    break;
                }
                let Ok((length, sender)) = datagrams.recv_from(&mut buffer) else { break };
                self.responder.datagrams.pass(1);
                if sender.ip() == from && length < buffer.len() {
                    arrived += 1;
                    self.responder.pace.pass(length);
                    // One that finds no room is lost, as on any way.
                    let _ = datagrams.send_to(&buffer[..length], sender);
                }
            }
            if has_ended {
                break;
            }
        }
        self.reply(&Reply::Echoed { arrived })
    }

    fn ready(&self) -> io::Result<()> {
        self.reply(&Reply::Ready { rate: self.responder.pace.rate() })
    }

    fn reply(&self, reply: &Reply) -> io::Result<()> {
        self.write(&line(reply))?;
        match reply {
            Reply::Ready { .. } => Ok(()),
            _ => self.stream.shutdown(Shutdown::Write),
        }
    }

    /// Waits until the client has ended its side, or the time is over; what it sends until then is not looked at.
    fn end_of_input(&self, until: Instant) -> io::Result<()> {
        let mut buffer = [0; 1024];
        // A client that trickles bytes has as long as any other, and one that pours them no more than its share.
        loop {
            match self.read(&mut buffer, until) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    self.responder.pace.pass(length);
                }
                // Its time is over: what was seen is told all the same.
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&self, buffer: &mut [u8], until: Instant) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(until)?))?;
        in_time(|| (&*self.stream).read(buffer))
    }

    /// Writes all of `bytes`, if that is possible in time.
    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(left(self.until + LAST_WORD)?))?;
            match in_time(|| (&*self.stream).write(bytes))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }
}

/// The share of a stream's time in which it was held back.
fn share(held: Duration, seconds: f64) -> f64 {
    if seconds > 0.0 { (held.as_secs_f64() / seconds).min(1.0) } else { 0.0 }
}

/// How much time is left, at least a millisecond: zero means "for ever" to a socket.
pub(super) fn left(until: Instant) -> io::Result<Duration> {
    let left = until.checked_duration_since(Instant::now()).ok_or(ErrorKind::TimedOut)?;
    Ok(left.max(Duration::from_millis(1)))
}

/// A time-out under its own name, and signals in between ignored.
pub(super) fn in_time(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_leaves_room_for_a_client_of_another() {
        assert_eq!([refusal(0, 0), refusal(2, 2), refusal(MOST_OF_ONE, 0), refusal(7, 1)], [const { None }; 4]);
        assert!(refusal(MOST_OF_ONE, MOST_OF_ONE).unwrap().contains("of this peer"));
        assert!(refusal(MOST_CONNECTIONS, 0).unwrap().starts_with("it serves 8 connections already"));
        const { assert!(MOST_CONNECTIONS >= MOST_OF_ONE + 2) };
    }

    #[test]
    fn ten_connections_of_a_peer_are_served_in_a_second_whatever_others_do() {
        let begin = Instant::now();
        let (mut paces, mut now, mut served) = (Paces::default(), begin, 0);
        while now < begin + Duration::from_secs(10) {
            now += paces.book(Some(0), now);
            served += 1;
        }
        assert!((100..=111).contains(&served), "{served}");
        assert_eq!([paces.book(Some(1), now), paces.book(None, now)], [Duration::ZERO; 2]);
        let later = now + Duration::from_secs(60);
        assert!((0..AT_ONCE).all(|_| paces.book(Some(0), later).is_zero()));
        assert_eq!(paces.book(Some(0), later), APART, "a pause is not saved up");
        assert_eq!(paces.0.len(), 1, "who has paused is forgotten");
    }

    #[test]
    fn what_strangers_send_does_not_reach_a_socket_that_counts_a_clients_datagrams() {
        let sockets = Sockets::bind("127.0.0.1:0".parse().unwrap(), "lo").unwrap();
        let datagrams = sockets.datagrams.into_inner().unwrap();
        let address = datagrams.local_addr().unwrap();
        let at = |address: &str| UdpSocket::bind((address, 0)).unwrap();
        let (one, other) = (at("127.0.0.2"), at("127.0.0.3"));
        for (client, stranger) in [(&one, &other), (&other, &one)] {
            let of_client = client.local_addr().unwrap();
            let send = |from: &UdpSocket| from.send_to(b"x", address).map(drop);
            send(stranger).unwrap();
            take_from(&datagrams, of_client.ip());
            send(stranger).unwrap();
            send(client).unwrap();
            send(&at(&of_client.ip().to_string())).unwrap();
            let sender = || {
                wait_for(&mut [PollFd::new(&datagrams, PollFlags::IN)], Duration::from_secs(60)).unwrap();
                datagrams.recv_from(&mut [0; 9]).unwrap().1
            };
            assert_eq!(sender(), of_client);
            assert_eq!(sender().ip(), of_client.ip(), "another port of it");
            datagrams.send_to(b"y", of_client).unwrap();
            assert_eq!(client.recv(&mut [0; 9]).unwrap(), 1);
            assert_eq!(SockRef::from(&datagrams).device().unwrap().as_deref(), Some(&b"lo"[..]));
        }
    }

    struct Nowhere;

    impl Tunnel for Nowhere {
        fn is_there(&self) -> bool {
            false
        }

        fn peer(&self, _: IpAddr) -> Option<usize> {
            None
        }
    }

    #[test]
    fn a_peer_that_has_its_places_does_not_take_those_of_others() {
        let now = Instant::now();
        let responder = Responder {
            pace: Pace::new(1, now),
            datagrams: Pace::new(1, now),
            until: now,
            daemon: None,
            port: 9,
            connections: Mutex::default(),
            tunnel: &Nowhere,
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let admit = |peer| responder.admit(TcpStream::connect(address).unwrap(), peer);
        let kept: Vec<_> = (0..MOST_OF_ONE).map(|_| admit(Some(1)).unwrap()).collect();
        assert!(admit(Some(1)).is_none());
        assert!(admit(Some(2)).is_some() && admit(None).is_some());
        responder.dismiss(&kept[0]);
        assert!(admit(Some(1)).is_some());
    }
}
