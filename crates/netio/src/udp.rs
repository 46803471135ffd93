//! UDP sockets, which send and receive outer datagrams.
//!
//! A GSO batch (equal-sized datagrams contiguous in memory, the last possibly shorter) is sent with one call
//! (UDP_SEGMENT) and may be received as one message (UDP_GRO). Nothing here looks into datagrams, retries, or waits;
//! the engine decides what an error means for a peer, with [`send_error()`]. `send_buffer` decides how large the send
//! buffer is.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::net::getsockname;

pub use crate::datagram::{GSO_BATCH_MAX, PacketInfo, Received, SEGMENTS_MAX, Transmit};
pub use crate::system::udp::UdpSocket;

mod bind;
mod send_error;

pub use self::bind::{BoundSockets, bind_all};
pub use self::send_error::{SendError, send_error};

/// Sends and receives outer datagrams.
pub trait Socket: Send + Sync {
    /// Receives up to `meta.len()` messages; message i lies at `buf[i * stride..][..meta[i].len]`
    /// with stride = `buf.len() / meta.len()`. Returns how many there were, at least one;
    /// WouldBlock when there is none. Fewer than there was room for means that no more were ready, or that an error
    /// is: the next call returns it.
    ///
    /// A message that did not fit in its stride is reported with `len` 0.
    fn recv(&self, buf: &mut [u8], meta: &mut [Received]) -> io::Result<usize>;

    /// Sends messages in order; returns how many were sent. Fails only if the first one failed; after a
    /// short count, sending the rest returns the error. WouldBlock when there is no room.
    fn send(&self, batch: &[Transmit<'_>]) -> io::Result<usize>;

    /// Waits until there may be room for a send, at most a millisecond.
    fn wait_for_room(&self);

    /// The offloads of the socket.
    fn offloads(&self) -> UdpOffloads;
}

impl UdpSocket {
    /// Binds to `local`, an unspecified address with a port (0: a free one), and sends with the mark `mark` (0: none).
    /// It has those of the offloads `wanted` that this kernel supports. The port is never shared: no SO_REUSEADDR, no
    /// SO_REUSEPORT.
    ///
    /// # Errors
    ///
    /// Those of socket(2) and bind(2): EADDRINUSE; EAFNOSUPPORT or EADDRNOTAVAIL for a family that the host does not
    /// have. Those of [`UdpSocket::set_mark`] for a mark.
    pub fn bind(local: SocketAddr, mark: u32, wanted: UdpOffloads) -> io::Result<Self> {
        Self::bind_protected(local, mark, wanted, UNPROTECTED)
    }

    /// The address and the port that it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(getsockname(self)?)?)
    }
}

/// The offloads of a socket: those that are wanted and that the kernel supports.
/// UDP_SEGMENT may still be refused for a destination: see [`SendError::SegmentationRefused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOffloads {
    /// Datagrams of one flow may come as one message, so that a stride must be 64 KiB.
    pub gro: bool,
    /// GSO batches may be sent. A kernel without UDP_SEGMENT would send one large datagram.
    pub gso: bool,
}

impl UdpOffloads {
    /// All offloads.
    pub const ALL: Self = Self { gro: true, gso: true };
}

/// What is done with each socket before it is bound, such as keeping its datagrams out of a VPN.
pub type Protect<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<()>;

/// Nothing is done with them.
pub const UNPROTECTED: Protect<'static> = &|_| Ok(());
