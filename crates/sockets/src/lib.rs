//! What `linerate-proxy` asks of the TCP/IP stack whose packets travel through the tunnel: connections, listeners, UDP
//! sockets, echo requests. Nothing else of a stack is visible to the protocols that are spoken to the proxy's clients.
//!
//! There is no runtime in here: waiting is by [`Context`] alone, so that a stack needs no async runtime of anybody's. A
//! call that returns [`Poll::Pending`] has stored the waker of its context and wakes it once it would get on. Reading
//! and writing store a waker each; a later call of the same kind replaces the earlier one's.
//!
//! **Back-pressure** is part of the contract. What a stack has received and nobody has read closes the window that it
//! tells its peer, and never waits in memory that grows; what it cannot send yet it does not accept
//! ([`Stream::poll_write`] is pending). Datagrams are the exception: where there is no room for one, it is dropped.
//!
//! **Errors** are those of the operating system, by [`io::ErrorKind`], because the protocols tell them apart:
//!
//! | kind | what happened |
//! |---|---|
//! | `ConnectionRefused` | the target answered that nobody listens (RST, or ICMP port unreachable) |
//! | `HostUnreachable`, `NetworkUnreachable` | ICMP said so, no peer has this address among its allowed IPs, or the tunnel has no address of this family |
//! | `TimedOut` | nobody answered |
//! | `ConnectionReset` | the other end reset the connection |
//! | `AddrInUse`, `AddrNotAvailable` | of a local address or port |
//! | `QuotaExceeded` | the stack's own bound on connections or memory is reached |

#![forbid(unsafe_code)]

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

/// What is waited for. Dropping it gives up: a connection that is being made is not.
pub type Pending<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// A TCP/IP stack inside of a tunnel.
pub trait Sockets: Send + Sync {
    /// Connects, from a local address of the tunnel and a port that strangers cannot predict. The caller bounds the
    /// time; the stack need not.
    fn connect(&self, to: SocketAddr) -> Pending<Box<dyn Stream>>;

    /// Listens. An unspecified address is all the tunnel's addresses of that family, and no other family.
    fn listen(&self, local: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// A UDP socket that sends to anybody and receives from anybody. Port 0 is one that strangers cannot predict.
    fn bind(&self, local: SocketAddr) -> io::Result<Box<dyn Datagrams>>;

    /// Sends one echo request and waits for its reply. The caller bounds the time.
    fn ping(&self, to: IpAddr) -> Pending<()>;
}

/// A TCP connection, which who made it may recognize ([`Any`]). Each half ends on its own: the peer's by a read of nothing, ours by [`poll_finish`].
///
/// Dropping a connection of which both halves have ended closes it in order, in the background. Dropping any other one
/// is [`reset`].
///
/// [`poll_finish`]: Stream::poll_finish
/// [`reset`]: Stream::reset
pub trait Stream: Any + Send {
    /// Reads what has come, at most as much as `into` holds. 0 is the end of the peer's half, and stays so.
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Takes as much of `from` as there is room for, at least a byte. `from` is not empty.
    ///
    /// It fails once the connection has been reset, also when nobody reads.
    fn poll_write(&mut self, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends our half (FIN) behind all that was written. It need not wait until that has arrived. Reading goes on.
    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends both halves at once (RST); what was written and not sent is lost.
    fn reset(&mut self);

    /// Whether the connection was reset or given up, also while what came before that was not read. It may be said once.
    fn has_failed(&mut self) -> bool;

    /// The address and port of the other end.
    fn peer(&self) -> SocketAddr;

    /// The local address and port.
    fn local(&self) -> SocketAddr;
}

/// Takes in TCP connections. Its backlog is bounded; whoever comes while it is full waits or is refused.
pub trait Listener: Send {
    /// The next connection.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Stream>>>;

    /// The local address and port, which was chosen if 0 was asked for.
    fn local(&self) -> SocketAddr;
}

/// A UDP socket, with a bounded queue.
pub trait Datagrams: Send {
    /// The next datagram, and whose it is. What does not fit into `into` is lost, so that has room for 65,535 bytes.
    ///
    /// An ICMP error for a datagram that was sent may be an error here; the socket goes on.
    fn poll_receive(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>>;

    /// Sends a datagram as a whole.
    fn poll_send(&mut self, context: &mut Context<'_>, from: &[u8], to: SocketAddr) -> Poll<io::Result<()>>;

    /// The local address and port, which was chosen if 0 was asked for.
    fn local(&self) -> SocketAddr;
}
