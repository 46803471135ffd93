//! A socket that nobody reads. A flood of it costs what any flood costs the machine before a daemon hears of it:
//! sending it, carrying it, and finding the socket it is for.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::net::sockopt;

use crate::Result;
use crate::error::Doing;
use crate::hosts::Host;

/// Bytes of its queue: the kernel makes the least of it that it allows (socket(7)), which is full after a few
/// datagrams.
const QUEUE: usize = 1;

/// The socket, for as long as it is kept.
#[derive(Debug)]
pub struct Unread {
    socket: UdpSocket,
}

impl Unread {
    /// Opens a socket on `host` at `address`, on a port of its own.
    ///
    /// # Errors
    ///
    /// Why it could not be opened.
    pub fn open(host: &Host, address: IpAddr) -> Result<Self> {
        let opening = || format!("opening a socket that nobody reads at {address}");
        host.inside(|| {
            let socket = UdpSocket::bind((address, 0)).doing(opening)?;
            sockopt::set_socket_recv_buffer_size(&socket, QUEUE).doing(opening)?;
            Ok(Self { socket })
        })
    }

    /// Where it is.
    ///
    /// # Errors
    ///
    /// Why the kernel does not tell.
    pub fn endpoint(&self) -> Result<SocketAddr> {
        self.socket.local_addr().doing(|| "asking where a socket is".into())
    }
}
