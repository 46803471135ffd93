//! A socket that nobody reads. Flooding it shows what a flood costs the machine before a daemon is involved:
//! to send it, to carry it, and to find its socket.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use linerate_lab::hosts::Host;
use linerate_lab::{Doing, Result};
use rustix::net::sockopt;

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
