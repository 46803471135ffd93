//! UDP sockets with GSO and GRO, several of which may share a port.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ip_recvtos, set_ipv6_mtu_discover,
    set_ipv6_recvtclass, set_ipv6_v6only,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::system::uname;

use crate::datagram::{Received, Transmit};
use crate::send_buffer::{SEND_BUFFER_MIN, SOCKET_BUFFER, SendBufferTuner};
use crate::sys::batch::{RECEIVE_MAX, SEND_MAX, receive_many, send_many};
use crate::sys::message::{receive_one, send_one};
use crate::sys::option::IntOption;
use crate::sys::steering::steer_by_receiver;
use crate::udp::{Protect, Socket, UdpOffloads};

/// Errors of this system that mean "no route", besides POSIX's.
pub(crate) const NO_ROUTE: &[i32] = &[libc::ENONET];

/// How long a sender of a handshake message waits for room. Linux reports room only when the buffer is half empty
/// (sock_writeable), so this mostly elapses, and a few datagrams are sent meanwhile.
const ROOM_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A UDP socket of the kernel, bound to all addresses of one family.
pub struct UdpSocket {
    fd: OwnedFd,
    offloads: UdpOffloads,
    send_buffer: SendBufferTuner,
}

impl UdpSocket {
    /// As [`UdpSocket::bind`]; `protect` is called before it is bound.
    pub(crate) fn bind_protected(
        local: SocketAddr,
        mark: u32,
        wanted: UdpOffloads,
        protect: Protect<'_>,
    ) -> io::Result<Self> {
        let socket = Self::open(local, mark, wanted, protect)?;
        bind(&socket.fd, &local)?;
        Ok(socket)
    }

    /// A socket of the family of `local`, not bound yet.
    fn open(local: SocketAddr, mark: u32, wanted: UdpOffloads, protect: Protect<'_>) -> io::Result<Self> {
        let domain = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(domain, SocketType::DGRAM, flags, None)?;
        protect(fd.as_fd())?;
        if mark != 0 {
            IntOption::MARK.set(fd.as_fd(), mark.cast_signed())?;
        }
        if local.is_ipv4() {
            prepare_v4(&fd)?
        } else {
            prepare_v6(&fd)?
        }
        enlarge_buffers(&fd);
        let offloads = UdpOffloads {
            gro: wanted.gro && gro_works() && IntOption::GRO.set(fd.as_fd(), 1).is_ok(),
            gso: wanted.gso && IntOption::SEGMENT.get(fd.as_fd()).is_ok(),
        };
        Ok(Self { fd, offloads, send_buffer: SendBufferTuner::shared_by(1) })
    }

    /// It is one of `sockets` that send over the same path.
    fn share_path(&mut self, sockets: usize) {
        self.send_buffer = SendBufferTuner::shared_by(sockets);
        set_send_buffer(&self.fd, SendBufferTuner::minimum(sockets));
    }

    fn send_some(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        if let [message] = batch {
            send_one(self.fd.as_fd(), message)?;
            return Ok(1);
        }
        let mut sent = 0;
        for chunk in batch.chunks(SEND_MAX) {
            match send_many(self.fd.as_fd(), chunk) {
                Ok(count) => sent += count,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
            if sent % SEND_MAX != 0 {
                break;
            }
        }
        Ok(sent)
    }

    /// Sets the firewall mark of sent datagrams; 0 for none.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_NET_ADMIN.
    pub fn set_mark(&self, mark: u32) -> io::Result<()> {
        IntOption::MARK.set(self.fd.as_fd(), mark.cast_signed())
    }
}

impl Socket for UdpSocket {
    fn recv(&self, buf: &mut [u8], meta: &mut [Received]) -> io::Result<usize> {
        match meta {
            [] => Err(io::ErrorKind::InvalidInput.into()),
            [meta] => {
                *meta = receive_one(self.fd.as_fd(), buf)?;
                Ok(1)
            }
            meta => {
                let stride = buf.len() / meta.len();
                if stride == 0 {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let room = meta.len().min(RECEIVE_MAX);
                receive_many(self.fd.as_fd(), buf, stride, &mut meta[..room])
            }
        }
    }

    fn send(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        let sent = self.send_some(batch);
        if let Some(bytes) = self.send_buffer.resized_by(batch, &sent) {
            set_send_buffer(&self.fd, bytes);
        }
        sent
    }

    fn wait_for_room(&self) {
        // On a timeout or a signal, the next send shows whether there is room.
        let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(&ROOM_TIMEOUT));
    }

    fn offloads(&self) -> UdpOffloads {
        self.offloads
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Turns a bound socket into a group of `sockets` sockets, or leaves it as it is.
///
/// It was bound without SO_REUSEPORT, so nobody else has the port; binding a group from the start could
/// join an existing group of the same user. A socket of the same user that joins ours later receives
/// nothing: the steering only selects our sockets.
pub(crate) fn form_reuseport_group(
    first: UdpSocket,
    mark: u32,
    sockets: usize,
    protect: Protect<'_>,
) -> Vec<UdpSocket> {
    let mut group = vec![first];
    if sockets > 1 && join(&mut group, mark, sockets, protect).is_err() {
        group.truncate(1);
        // Even if this fails, it is the only socket on the port.
        let _ = sockopt::set_socket_reuseport(&group[0].fd, false);
    }
    let sockets = group.len();
    group.iter_mut().for_each(|socket| socket.share_path(sockets));
    group
}

fn join(group: &mut Vec<UdpSocket>, mark: u32, sockets: usize, protect: Protect<'_>) -> io::Result<()> {
    let local = group[0].local_addr()?;
    sockopt::set_socket_reuseport(&group[0].fd, true)?;
    while group.len() < sockets {
        let another = UdpSocket::open(local, mark, group[0].offloads, protect)?;
        sockopt::set_socket_reuseport(&another.fd, true)?;
        bind(&another.fd, &local)?;
        group.push(another);
    }
    steer_by_receiver(group[0].fd.as_fd(), sockets as u32)
}

fn prepare_v4(fd: &OwnedFd) -> io::Result<()> {
    IntOption::PKTINFO_V4.set(fd.as_fd(), 1)?;
    set_ip_recvtos(fd, true)?;
    // Outer datagrams are sent without DF, as by the kernel module (socket.c, ignore_df): a
    // router with a narrower link fragments them, and so do we for a route with a smaller MTU.
    // The other values set DF (WANT, DO, PROBE) or ignore the MTU of the route (OMIT).
    set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::DONT)?;
    Ok(())
}

fn prepare_v6(fd: &OwnedFd) -> io::Result<()> {
    set_ipv6_v6only(fd, true)?;
    IntOption::PKTINFO_V6.set(fd.as_fd(), 1)?;
    set_ipv6_recvtclass(fd, true)?;
    // Routers do not fragment IPv6; we do, to the path MTU.
    set_ipv6_mtu_discover(fd, Ipv6PathMtuDiscovery::DONT)?;
    Ok(())
}

fn enlarge_buffers(fd: &OwnedFd) {
    // The forced options need CAP_NET_ADMIN; the plain ones are limited to net.core.[rw]mem_max. A smaller
    // buffer costs speed, never correctness.
    if sockopt::set_socket_recv_buffer_size_force(fd, SOCKET_BUFFER).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(fd, SOCKET_BUFFER);
    }
    set_send_buffer(fd, SEND_BUFFER_MIN);
}

fn set_send_buffer(fd: &OwnedFd, bytes: usize) {
    if sockopt::set_socket_send_buffer_size_force(fd, bytes).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(fd, bytes);
    }
}

/// UDP_GRO delivers wrong lengths and checksums in some cases before Linux 5.12 (the gate of
/// wireguard-go, controlfns_linux.go).
fn gro_works() -> bool {
    uname().release().to_str().ok().and_then(version).is_some_and(|version| version >= (5, 12))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_read() {
        assert_eq!(version("6.18.44-generic"), Some((6, 18)));
        assert_eq!(version("5.4.0"), Some((5, 4)));
        assert_eq!(version("6.2-rc1+"), Some((6, 2)));
        assert_eq!(version("junk"), None);
    }
}
