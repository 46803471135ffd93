//! Messages that a host receives, taken off the wire while they arrive.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use linerate_lab::hosts::Host;
use linerate_lab::{Doing, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};

use super::Message;

const UDP_HEADER: usize = 8;

/// The type of a data message, its first byte, and the three reserved ones (paper section 5.4.6).
const DATA: [u8; 4] = [4, 0, 0, 0];

/// A socket that is handed a copy of every UDP datagram over IPv4 that its host receives (raw(7)); what there is
/// no room for it loses.
pub struct Capture {
    socket: OwnedFd,
    port: u16,
}

impl Capture {
    /// Begins to take what comes to `to` on `host`.
    ///
    /// # Errors
    ///
    /// Why there is no such socket.
    pub fn begin(host: &Host, to: SocketAddr) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = host.inside(|| {
            socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::UDP))
                .doing(|| "opening a socket to capture with".into())
        })?;
        Ok(Self { socket, port: to.port() })
    }

    /// The data messages that came, those that fit into a [`Message`].
    ///
    /// # Errors
    ///
    /// Why they cannot be read.
    pub fn end(self) -> Result<Vec<Message>> {
        let mut captured = Vec::new();
        let mut packet = vec![0; 1 << 16];
        loop {
            match recv(&self.socket, &mut packet[..], RecvFlags::empty()) {
                Ok((length, _)) => captured.extend(self.data(&packet[..length])),
                Err(Errno::AGAIN) => return Ok(captured),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).doing(|| "reading what was captured".into()),
            }
        }
    }

    /// The data message in an IPv4 packet to the port.
    fn data(&self, packet: &[u8]) -> Option<Message> {
        let header = usize::from(packet.first()? & 0xf) * 4;
        let datagram = packet.get(header..)?;
        let to = u16::from_be_bytes(datagram.get(2..4)?.try_into().ok()?);
        let message = datagram.get(UDP_HEADER..)?;
        (to == self.port && message.starts_with(&DATA)).then(|| Message::new(message)).flatten()
    }
}
