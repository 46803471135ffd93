//! The kernel's TCP/IP behind [`linerate_sockets`]: outside, where the proxy's clients are, and in a tunnel whose network
//! namespace hands out sockets.
//!
//! A socket belongs to the namespace in which it was made, and stays there: whoever holds its descriptor connects, binds
//! and listens in that namespace. So all that [`SocketSource`] has to do in there is to make sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use linerate_sockets::{Datagrams, Listener, Pending, Sockets, Stream};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, socket_with, sockopt};
use rustix::pipe::{SpliceFlags, splice};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use crate::server::locked;

/// So many connections wait to be taken in.
const BACKLOG: u32 = 1024;

/// After how long of silence the kernel asks whether the other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// So much waits in the kernel for its turn to be sent. Without this bound it would grow with what the network might take,
/// also where a reader takes nothing.
const MOST_UNSENT: u32 = 64 << 10;

/// The kinds of sockets that a stack needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
    /// ICMP echo, or ICMPv6 echo (`SOCK_DGRAM` with `IPPROTO_ICMP`, icmp(7)): in a namespace of its own,
    /// net.ipv4.ping_group_range has to allow it.
    Echo,
}

/// Makes sockets in a network namespace.
pub trait SocketSource: Send + Sync + 'static {
    /// A new socket, neither bound nor connected, closed on exec and non-blocking. It is called between other work, so
    /// it takes microseconds.
    fn socket(&self, is_ipv6: bool, kind: SocketKind) -> io::Result<OwnedFd>;
}

/// Makes sockets on a thread that lives in a network namespace.
pub struct SocketThread(Mutex<Asking>);

struct Asking {
    questions: SyncSender<(bool, SocketKind)>,
    answers: Receiver<io::Result<OwnedFd>>,
}

impl SocketThread {
    /// Starts the thread, which enters the namespace by `enter`.
    ///
    /// # Errors
    /// Those of `enter`, or there is no thread.
    pub fn start(enter: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (questions, asked) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let (entered, has_entered) = sync_channel(1);
        thread::Builder::new().name("sockets".into()).spawn(move || {
            let outcome = enter();
            let is_inside = outcome.is_ok();
            if entered.send(outcome).is_err() || !is_inside {
                return;
            }
            while let Ok((is_ipv6, kind)) = asked.recv() {
                if answer.send(socket(is_ipv6, kind)).is_err() {
                    return;
                }
            }
        })?;
        has_entered.recv().map_err(io::Error::other)??;
        Ok(Self(Mutex::new(Asking { questions, answers })))
    }
}

impl SocketSource for SocketThread {
    fn socket(&self, is_ipv6: bool, kind: SocketKind) -> io::Result<OwnedFd> {
        let asking = locked(&self.0);
        asking.questions.send((is_ipv6, kind)).map_err(io::Error::other)?;
        asking.answers.recv().map_err(io::Error::other)?
    }
}

/// A socket of the namespace that this thread is in.
fn socket(is_ipv6: bool, kind: SocketKind) -> io::Result<OwnedFd> {
    let family = if is_ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let (kind, protocol) = match (kind, is_ipv6) {
        (SocketKind::Stream, _) => (SocketType::STREAM, None),
        (SocketKind::Datagram, _) => (SocketType::DGRAM, None),
        (SocketKind::Echo, false) => (SocketType::DGRAM, Some(ipproto::ICMP)),
        (SocketKind::Echo, true) => (SocketType::DGRAM, Some(ipproto::ICMPV6)),
    };
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, protocol)?)
}

/// The kernel's stack in the namespace of a source.
pub struct Kernel<S>(S);

impl<S: SocketSource> Kernel<S> {
    /// The stack whose sockets are made by `source`.
    pub fn new(source: S) -> Self {
        Self(source)
    }

    fn tcp(&self, is_ipv6: bool) -> io::Result<TcpSocket> {
        let socket = self.0.socket(is_ipv6, SocketKind::Stream)?;
        Ok(TcpSocket::from_std_stream(std::net::TcpStream::from(socket)))
    }

    fn udp(&self, is_ipv6: bool, kind: SocketKind) -> io::Result<UdpSocket> {
        UdpSocket::from_std(std::net::UdpSocket::from(self.0.socket(is_ipv6, kind)?))
    }
}

impl<S: SocketSource> Sockets for Kernel<S> {
    fn connect(&self, to: SocketAddr) -> Pending<Box<dyn Stream>> {
        let socket = self.tcp(to.is_ipv6());
        Box::pin(async move {
            let stream = socket?.connect(to).await?;
            Ok(Box::new(Connection::new(stream)?) as Box<dyn Stream>)
        })
    }

    fn listen(&self, local: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let socket = self.tcp(local.is_ipv6())?;
        socket.set_reuseaddr(true)?;
        if local.is_ipv6() {
            sockopt::set_ipv6_v6only(socket.as_fd(), true)?;
        }
        socket.bind(local)?;
        Ok(Box::new(Listening::new(socket.listen(BACKLOG)?)?))
    }

    fn bind(&self, local: SocketAddr) -> io::Result<Box<dyn Datagrams>> {
        let socket = self.udp(local.is_ipv6(), SocketKind::Datagram)?;
        if local.is_ipv6() {
            sockopt::set_ipv6_v6only(socket.as_fd(), true)?;
        }
        rustix::net::bind(socket.as_fd(), &local)?;
        Ok(Box::new(Udp::new(socket)?))
    }

    fn ping(&self, to: IpAddr) -> Pending<()> {
        let socket = self.udp(to.is_ipv6(), SocketKind::Echo);
        Box::pin(async move {
            let socket = socket?;
            socket.connect(SocketAddr::new(to, 0)).await?;
            // The kernel fills in identifier and checksum, and passes on replies of this identifier alone.
            let (kind, reply) = if to.is_ipv6() { (128, 129) } else { (8, 0) };
            socket.send(&[kind, 0, 0, 0, 0, 0, 0, 1]).await?;
            let mut buffer = [0; 64];
            while !matches!(socket.recv(&mut buffer).await?, 8.. if buffer[0] == reply) {}
            Ok(())
        })
    }
}

/// Listens on this host, outside of the tunnel.
///
/// # Errors
/// As for binding and listening.
pub fn listen(local: SocketAddr) -> io::Result<Listening> {
    let socket = if local.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_reuseaddr(true)?;
    if local.is_ipv6() {
        sockopt::set_ipv6_v6only(socket.as_fd(), true)?;
    }
    socket.bind(local)?;
    Listening::new(socket.listen(BACKLOG)?)
}

/// A TCP connection of the kernel's.
pub struct Connection {
    /// None once it was reset.
    stream: Option<TcpStream>,
    has_read_end: bool,
    is_finished: bool,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Connection {
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// If it is none any more.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        let (local, peer) = (canonical(stream.local_addr()?), canonical(stream.peer_addr()?));
        // The other half of a proxy has done what Nagle's algorithm does.
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
        SockRef::from(&stream).set_tcp_notsent_lowat(MOST_UNSENT)?;
        Ok(Self { stream: Some(stream), has_read_end: false, is_finished: false, local, peer })
    }

    /// Moves at most `most` bytes of what has come into `pipe`, which is empty. 0 is the end of the peer's half.
    pub(crate) fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        pipe: &OwnedFd,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?.get_mut();
        let moved = loop {
            ready!(stream.poll_read_ready(context))?;
            let moved = stream.try_io(Interest::READABLE, || moved(&*stream, pipe, most));
            if !is_too_early(&moved) {
                break moved?;
            }
        };
        self.has_read_end |= moved == 0;
        Poll::Ready(Ok(moved))
    }

    /// Takes as much of the `count` bytes in `pipe` as there is room for, at least one.
    pub(crate) fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        pipe: &OwnedFd,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?.get_mut();
        loop {
            ready!(stream.poll_write_ready(context))?;
            let moved = stream.try_io(Interest::WRITABLE, || moved(pipe, &*stream, count));
            if !is_too_early(&moved) {
                return Poll::Ready(moved);
            }
        }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }
}

/// Moves bytes between a connection and a pipe.
fn moved(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
    Ok(splice(from, None, to, None, most, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)?)
}

fn is_too_early(outcome: &io::Result<usize>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

impl Stream for Connection {
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        ready!(self.stream()?.poll_read(context, &mut buffer))?;
        let count = buffer.filled().len();
        self.has_read_end |= count == 0 && buffer.capacity() > 0;
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(context, from)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream()?.poll_shutdown(context))?;
        self.is_finished = true;
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self) {
        if let Some(stream) = self.stream.take() {
            // Closing it is then a reset.
            let _ = stream.set_zero_linger();
        }
    }

    fn has_failed(&mut self) -> bool {
        self.stream.as_ref().is_none_or(|stream| !matches!(stream.take_error(), Ok(None)))
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.has_read_end || !self.is_finished {
            self.reset();
        }
    }
}

/// A listening socket of the kernel's.
pub struct Listening {
    listener: TcpListener,
    local: SocketAddr,
}

impl Listening {
    fn new(listener: TcpListener) -> io::Result<Self> {
        let local = listener.local_addr()?;
        Ok(Self { listener, local })
    }
}

impl Listener for Listening {
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Stream>>> {
        loop {
            let (stream, _) = ready!(self.listener.poll_accept(context))?;
            // One that is gone already is none.
            if let Ok(connection) = Connection::new(stream) {
                return Poll::Ready(Ok(Box::new(connection)));
            }
        }
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

/// A UDP socket of the kernel's.
pub struct Udp {
    socket: UdpSocket,
    local: SocketAddr,
}

impl Udp {
    /// Takes over a bound socket.
    ///
    /// # Errors
    /// If it has no address.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let local = socket.local_addr()?;
        Ok(Self { socket, local })
    }

    /// Binds on this host, outside of the tunnel.
    ///
    /// # Errors
    /// As for binding.
    pub fn bind(local: SocketAddr) -> io::Result<Self> {
        let socket = socket(local.is_ipv6(), SocketKind::Datagram)?;
        if local.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        rustix::net::bind(&socket, &local)?;
        Self::new(UdpSocket::from_std(std::net::UdpSocket::from(socket))?)
    }
}

impl Datagrams for Udp {
    fn poll_receive(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(into);
        let from = ready!(self.socket.poll_recv_from(context, &mut buffer))?;
        Poll::Ready(Ok((buffer.filled().len(), from)))
    }

    fn poll_send(&mut self, context: &mut Context<'_>, from: &[u8], to: SocketAddr) -> Poll<io::Result<()>> {
        // Tried before it is waited for: the runtime learns only in its next turn that a new socket takes datagrams.
        match rustix::net::sendto(&self.socket, from, SendFlags::empty(), &to) {
            Err(Errno::AGAIN) => self.socket.poll_send_to(context, from, to).map_ok(|_| ()),
            sent => Poll::Ready(Ok(sent.map(|_| ())?)),
        }
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

/// An address without the prefix that marks one of IPv4 in an IPv6 socket.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// All addresses of a family.
pub fn unspecified(is_ipv6: bool, port: u16) -> SocketAddr {
    let all = if is_ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    SocketAddr::new(all, port)
}
