//! UDP sockets of one datagram per call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{self, set_ip_recvtos, set_ipv6_recvtclass, set_ipv6_v6only};
use rustix::net::{AddressFamily, SocketType, bind};

use crate::bsd_decisions::one_by_one;
use crate::datagram::{Received, Transmit};
use crate::send_buffer::{SEND_BUFFER_MIN, SOCKET_BUFFER, SendBufferTuner};
use crate::sys::message::{receive_one, send_one};
use crate::sys::option::IntOption;
use crate::sys::{nonblocking_socket, os};
use crate::udp::{Protect, Socket, UdpOffloads};

/// Errors of this system that mean "no route", besides POSIX's.
pub(crate) const NO_ROUTE: &[i32] = &[];

/// How long a sender of a handshake message waits for room. ENOBUFS comes from the interface's queue, while poll says
/// that the socket is writable: only time helps.
const ROOM_TIMEOUT: Duration = Duration::from_millis(1);

/// A UDP socket of the kernel, bound to all addresses of one family.
pub struct UdpSocket {
    fd: OwnedFd,
    send_buffer: SendBufferTuner,
}

impl UdpSocket {
    /// As [`UdpSocket::bind`]; `protect` is called before it is bound. There are no offloads.
    pub(crate) fn bind_protected(
        local: SocketAddr,
        mark: u32,
        _wanted: UdpOffloads,
        protect: Protect<'_>,
    ) -> io::Result<Self> {
        let domain = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = nonblocking_socket(domain, SocketType::DGRAM)?;
        protect(fd.as_fd())?;
        if mark != 0 {
            os::set_mark(fd.as_fd(), mark)?;
        }
        // DF is not set unless IP_DONTFRAG is.
        if local.is_ipv4() {
            os::DESTINATION_V4.iter().try_for_each(|option| option.set(fd.as_fd(), 1))?;
            set_ip_recvtos(&fd, true)?;
        } else {
            set_ipv6_v6only(&fd, true)?;
            IntOption::PKTINFO_V6.set(fd.as_fd(), 1)?;
            set_ipv6_recvtclass(&fd, true)?;
        }
        // Limited by kern.ipc.maxsockbuf; a smaller buffer costs speed, never correctness.
        let _ = sockopt::set_socket_recv_buffer_size(&fd, SOCKET_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&fd, SOCKET_BUFFER / 16));
        let _ = sockopt::set_socket_send_buffer_size(&fd, SEND_BUFFER_MIN);
        bind(&fd, &local)?;
        Ok(Self { fd, send_buffer: SendBufferTuner::shared_by(1) })
    }

    /// Sets the mark of sent datagrams, on FreeBSD a number that ipfw can match (SO_USER_COOKIE); 0 for none.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP for a mark on macOS, which has none.
    pub fn set_mark(&self, mark: u32) -> io::Result<()> {
        os::set_mark(self.fd.as_fd(), mark)
    }
}

impl Socket for UdpSocket {
    fn recv(&self, buf: &mut [u8], meta: &mut [Received]) -> io::Result<usize> {
        one_by_one::receive(buf, meta, |part| receive_one(self.fd.as_fd(), part))
    }

    fn send(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        let sent = one_by_one::send(batch, |message| send_one(self.fd.as_fd(), message));
        if let Some(bytes) = self.send_buffer.resized_by(batch, &sent) {
            let _ = sockopt::set_socket_send_buffer_size(&self.fd, bytes);
        }
        sent
    }

    fn wait_for_room(&self) {
        thread::sleep(ROOM_TIMEOUT);
    }

    fn offloads(&self) -> UdpOffloads {
        UdpOffloads { gro: false, gso: false }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One socket for each family: FreeBSD's SO_REUSEPORT_LB spreads by address and port, so that a peer with one endpoint
/// would still use one.
pub(crate) fn form_reuseport_group(
    first: UdpSocket,
    _mark: u32,
    _sockets: usize,
    _protect: Protect<'_>,
) -> Vec<UdpSocket> {
    vec![first]
}
