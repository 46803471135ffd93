//! UDP sockets, which send and receive outer datagrams.
//!
//! A GSO batch (equal-sized datagrams contiguous in memory, the last possibly shorter) is sent with one call
//! (UDP_SEGMENT) and may be received as one message (UDP_GRO). Nothing here looks into datagrams, retries, or waits; the
//! engine decides what an error means for a peer, with [`send_error`]. How large the send buffer is, `send_buffer`
//! decides.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ip_recvtos, set_ipv6_mtu_discover,
    set_ipv6_recvtclass, set_ipv6_v6only,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use rustix::system::uname;

use crate::clock;
use crate::send_buffer::{SEND_BUFFER_MIN, SendBuffer};
use crate::sys::message::{RECEIVE_MAX, SEND_MAX, receive_many, receive_one, send_many, send_one};
use crate::sys::option::IntOption;
use crate::sys::steering::steer_by_receiver;

/// The most datagrams in a GSO batch (UDP_MAX_SEGMENTS; 128 from Linux 6.10).
pub const SEGMENTS_MAX: usize = 64;

/// The most bytes in a GSO batch: the payload of an IPv4 packet of 65,535 bytes.
pub const GSO_BATCH_MAX: usize = 65507;

/// The receive buffer that we request, in bytes. At 10 Gbit/s it holds 13 ms: the longest that a thread on a busy machine
/// should be kept from its socket. Half of it cost 105 TCP streams over one tunnel a tenth of their throughput in
/// retransmissions; twice as much gained nothing. It is kernel memory, used only while datagrams wait; the kernel
/// doubles it for its own bookkeeping (socket(7)).
pub const SOCKET_BUFFER: usize = 16 << 20;

/// How long a sender of a handshake message waits for room. Linux reports room only when the buffer is half empty
/// (sock_writeable), so this mostly elapses, and a few datagrams are sent meanwhile.
pub const ROOM_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// How often to look for a port that is free in both families (as the kernel module, socket.c).
const PORT_ATTEMPTS: u32 = 100;

/// Sends and receives outer datagrams.
pub trait Socket: Send + Sync {
    /// Receives up to `meta.len()` messages; message i lies at `buf[i * stride..][..meta[i].len]`
    /// with stride = `buf.len() / meta.len()`. Returns how many there were, at least one;
    /// WouldBlock when there is none. May leave messages for the next call even if there was room.
    ///
    /// A message that did not fit in its stride is reported with `len` 0.
    fn recv(&self, buf: &mut [u8], meta: &mut [Received]) -> io::Result<usize>;

    /// Sends messages in order; returns how many were sent. Fails only if the first one failed; after a
    /// short count, sending the rest returns the error. WouldBlock when there is no room.
    fn send(&self, batch: &[Transmit<'_>]) -> io::Result<usize>;

    /// Waits until there may be room for a send, at most [`ROOM_TIMEOUT`].
    fn wait_for_room(&self);

    /// The offloads of the socket.
    fn offloads(&self) -> UdpOffloads;
}

/// Where a datagram was received: the source for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketInfo {
    /// Our address.
    pub addr: IpAddr,
    /// The index of the interface that received it.
    pub ifindex: u32,
}

/// What was received: one datagram, or several of one flow in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The length in bytes of all of it; 0 for an empty datagram and for one that was cut off, both
    /// of which are to be discarded.
    pub len: usize,
    /// The length in bytes of each datagram in it, of which the last may be shorter; `len` when
    /// there is one.
    pub segment: usize,
    /// The sender.
    pub source: SocketAddr,
    /// Which of our addresses it was sent to, and the interface that received it.
    pub local: Option<PacketInfo>,
    /// The TOS (IPv4) or traffic class (IPv6) octet: DSCP and, in the low two bits, ECN.
    pub tos: u8,
}

impl Default for Received {
    fn default() -> Self {
        let source = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self { len: 0, segment: 0, source, local: None, tos: 0 }
    }
}

/// What to send: one datagram or one GSO batch.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The destination, of the socket's family.
    pub to: SocketAddr,
    /// The source address; the kernel chooses for `None`. Routing always chooses the interface.
    pub from: Option<IpAddr>,
    /// The TOS (IPv4) or traffic class (IPv6) octet.
    pub tos: u8,
    /// The length in bytes of each datagram in a GSO batch. Never for a single datagram: some kernels
    /// refuse that (firezone 8932).
    pub segment: Option<u16>,
    /// The bytes: at most [`GSO_BATCH_MAX`], in a GSO batch at most [`SEGMENTS_MAX`] datagrams.
    pub contents: &'a [u8],
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
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

/// A UDP socket of the kernel, bound to all addresses of one family.
pub struct UdpSocket {
    fd: OwnedFd,
    family: Family,
    offloads: UdpOffloads,
    send_buffer: SendBuffer,
}

impl UdpSocket {
    /// Binds to `port` (0: a free one) and sends with the firewall mark `mark` (0: none). It has those of the offloads
    /// `wanted` that this kernel supports. The port is never shared: no
    /// SO_REUSEADDR, no SO_REUSEPORT.
    ///
    /// # Errors
    ///
    /// Those of socket(2) and bind(2): EADDRINUSE; EAFNOSUPPORT or EADDRNOTAVAIL for a family that
    /// the host does not have; EPERM for a mark without CAP_NET_ADMIN.
    pub fn bind(family: Family, port: u16, mark: u32, wanted: UdpOffloads) -> io::Result<Self> {
        Self::open(family, mark, wanted)?.bound(port)
    }

    /// A socket that is not bound yet.
    fn open(family: Family, mark: u32, wanted: UdpOffloads) -> io::Result<Self> {
        let domain = match family {
            Family::V4 => AddressFamily::INET,
            Family::V6 => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(domain, SocketType::DGRAM, flags, None)?;
        if mark != 0 {
            IntOption::MARK.set(fd.as_fd(), mark.cast_signed())?;
        }
        match family {
            Family::V4 => prepare_v4(&fd)?,
            Family::V6 => prepare_v6(&fd)?,
        }
        enlarge_buffers(&fd);
        let offloads = UdpOffloads {
            gro: wanted.gro && gro_works() && IntOption::GRO.set(fd.as_fd(), 1).is_ok(),
            gso: wanted.gso && IntOption::SEGMENT.get(fd.as_fd()).is_ok(),
        };
        Ok(Self { fd, family, offloads, send_buffer: SendBuffer::shared_by(1) })
    }

    /// It is one of `sockets` that send over the same path.
    fn share_path(&mut self, sockets: usize) {
        self.send_buffer = SendBuffer::shared_by(sockets);
        set_send_buffer(&self.fd, SendBuffer::least(sockets));
    }

    fn bound(self, port: u16) -> io::Result<Self> {
        let any: IpAddr = match self.family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        bind(&self.fd, &SocketAddr::new(any, port))?;
        Ok(self)
    }

    /// The port it is bound to, in host byte order.
    pub fn local_port(&self) -> io::Result<u16> {
        let local = SocketAddr::try_from(getsockname(&self.fd)?)?;
        Ok(local.port())
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

    /// Its address family.
    pub fn family(&self) -> Family {
        self.family
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
        match self.send_some(batch) {
            Ok(sent) => {
                self.send_buffer.sent(batch[..sent].iter().map(|message| message.contents.len() as u64).sum());
                Ok(sent)
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock
                    && let Some(bytes) = self.send_buffer.full_at(clock::boottime())
                {
                    set_send_buffer(&self.fd, bytes);
                }
                Err(error)
            }
        }
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

/// Sockets for each address family that the host has, on one port.
pub struct Pair {
    /// The IPv4 sockets; none where the host has no IPv4.
    pub v4: Vec<UdpSocket>,
    /// The IPv6 sockets; none where the host has no IPv6.
    pub v6: Vec<UdpSocket>,
    /// The port that all are bound to, in host byte order.
    pub port: u16,
}

/// Binds up to `sockets` sockets of each family to `port`, or for 0 to one that is free for both
/// families, with `mark` as their firewall mark and those of `wanted` that this kernel
/// supports. One family may be missing.
///
/// A WireGuard data message is delivered to the socket number "receiver index (read in network order) modulo the number
/// of sockets", so that one session uses one socket; everything else is delivered to the first. If the kernel cannot do
/// that, each family has one socket.
///
/// # Errors
///
/// EADDRINUSE when another program has the port in either family; the errors of
/// [`UdpSocket::bind`] otherwise.
pub fn bind_pair(port: u16, mark: u32, sockets: usize, wanted: UdpOffloads) -> io::Result<Pair> {
    let mut attempt = 1;
    let (v4, v6, port) = loop {
        match bind_both(port, mark, wanted) {
            // The kernel chose a port that is free for IPv4 but in use for IPv6.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port == 0 && attempt < PORT_ATTEMPTS => {
                attempt += 1;
            }
            bound => break bound?,
        }
    };
    let grown = |alone: Option<UdpSocket>| alone.map_or_else(Vec::new, |alone| grow(alone, port, mark, sockets));
    Ok(Pair { v4: grown(v4), v6: grown(v6), port })
}

/// What a failed send means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The route cannot take this GSO batch: send its datagrams one by one. The segment
    /// size exceeds the route's MTU, or the link cannot compute checksums.
    SegmentationRefused,
    /// The source address may no longer be ours, or not usable for this destination: retry once without it.
    /// If that fails too, the second error says what is wrong.
    SourceGone,
    /// A queue is full: retry shortly, then drop.
    Busy,
    /// A firewall refused it, possibly only this datagram: drop it, continue with the next.
    Denied,
    /// There is no route to the destination, or an ICMP error for an earlier datagram was waiting on
    /// the socket, in which case a second try goes through: retry once, then drop. (Linux keeps
    /// ICMP errors from a socket that is not connected, as ours are; other systems do not.)
    Unreachable,
    /// The datagram is too large to be sent at all: drop it.
    TooBig,
    /// Anything else: drop, count, and report the error itself.
    Other,
}

/// Classifies a failed send by its error and by whether the first message had a segment size or a source address. EINVAL
/// may mean either: a retry without the source tells them apart, and keeps the GSO batch.
pub fn send_error(error: &io::Error, had_segment: bool, had_source: bool) -> SendError {
    let Some(errno) = error.raw_os_error() else {
        return match error.kind() {
            io::ErrorKind::WouldBlock => SendError::Busy,
            _ => SendError::Other,
        };
    };
    match errno {
        // For an IPv4 source that is not ours the kernel returns EINVAL, or on Linux 6.18
        // ENETUNREACH, as without a route: a retry without the source tells them apart.
        libc::EINVAL | libc::ENETUNREACH | libc::EADDRNOTAVAIL | libc::ENODEV if had_source => SendError::SourceGone,
        // EIO: no checksum offload on the way out, or a transform. EINVAL until Linux 6.13 and
        // EMSGSIZE from 6.14 (235174b): the segment size exceeds the route's MTU.
        libc::EIO | libc::EINVAL | libc::EMSGSIZE if had_segment => SendError::SegmentationRefused,
        libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => SendError::Busy,
        libc::EPERM | libc::EACCES => SendError::Denied,
        libc::EMSGSIZE => SendError::TooBig,
        libc::ECONNREFUSED
        | libc::EHOSTUNREACH
        | libc::EHOSTDOWN
        | libc::ENETUNREACH
        | libc::ENETDOWN
        | libc::ENONET
        | libc::ENOPROTOOPT
        | libc::EOPNOTSUPP
        | libc::EPROTO
        | libc::EADDRNOTAVAIL
        | libc::EAFNOSUPPORT
        | libc::ENODEV => SendError::Unreachable,
        _ => SendError::Other,
    }
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

/// One socket for each family of the host, and their port.
fn bind_both(port: u16, mark: u32, wanted: UdpOffloads) -> io::Result<(Option<UdpSocket>, Option<UdpSocket>, u16)> {
    let v4 = set_absent_apart(UdpSocket::bind(Family::V4, port, mark, wanted))?;
    let port = match &v4 {
        Ok(v4) => v4.local_port()?,
        Err(_) => port,
    };
    let v6 = set_absent_apart(UdpSocket::bind(Family::V6, port, mark, wanted))?;
    let port = match &v6 {
        Ok(v6) => v6.local_port()?,
        Err(_) => port,
    };
    match (v4, v6) {
        (Err(_), Err(absent)) => Err(absent),
        (v4, v6) => Ok((v4.ok(), v6.ok(), port)),
    }
}

/// Turns a bound socket into a group of `sockets` sockets, or leaves it as it is.
///
/// It was bound without SO_REUSEPORT, so nobody else has the port; binding a group from the start could
/// join an existing group of the same user. A socket of the same user that joins ours later receives
/// nothing: the steering only selects our sockets.
fn grow(alone: UdpSocket, port: u16, mark: u32, sockets: usize) -> Vec<UdpSocket> {
    let mut group = vec![alone];
    if sockets > 1 && join(&mut group, port, mark, sockets).is_err() {
        group.truncate(1);
        // Even if this fails, it is the only socket on the port.
        let _ = sockopt::set_socket_reuseport(&group[0].fd, false);
    }
    let sockets = group.len();
    group.iter_mut().for_each(|socket| socket.share_path(sockets));
    group
}

fn join(group: &mut Vec<UdpSocket>, port: u16, mark: u32, sockets: usize) -> io::Result<()> {
    let family = group[0].family;
    sockopt::set_socket_reuseport(&group[0].fd, true)?;
    while group.len() < sockets {
        let another = UdpSocket::open(family, mark, group[0].offloads)?;
        sockopt::set_socket_reuseport(&another.fd, true)?;
        group.push(another.bound(port)?);
    }
    steer_by_receiver(group[0].fd.as_fd(), sockets as u32)
}

/// Separates "the host does not have this family" from the errors that fail a bind.
fn set_absent_apart(bound: io::Result<UdpSocket>) -> io::Result<io::Result<UdpSocket>> {
    match bound {
        Err(error) => match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => Ok(Err(error)),
            _ => Err(error),
        },
        bound => Ok(bound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_error_is_classified_by_segment_size_and_source() {
        use SendError::*;
        for (errno, had_segment, had_source, meaning) in [
            (libc::EIO, true, false, SegmentationRefused),
            (libc::EINVAL, true, true, SourceGone),
            (libc::EINVAL, true, false, SegmentationRefused),
            (libc::EIO, true, true, SegmentationRefused),
            (libc::EMSGSIZE, true, false, SegmentationRefused),
            (libc::EIO, false, false, Other),
            (libc::EINVAL, false, true, SourceGone),
            (libc::EADDRNOTAVAIL, true, true, SourceGone),
            (libc::EADDRNOTAVAIL, false, false, Unreachable),
            (libc::EINVAL, false, false, Other),
            (libc::EMSGSIZE, false, true, TooBig),
            (libc::EAGAIN, true, true, Busy),
            (libc::ENOBUFS, false, false, Busy),
            (libc::EPERM, true, true, Denied),
            (libc::ECONNREFUSED, true, true, Unreachable),
            (libc::EHOSTUNREACH, false, false, Unreachable),
            (libc::ENETUNREACH, false, true, SourceGone),
            (libc::ENETUNREACH, true, false, Unreachable),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(send_error(&error, had_segment, had_source), meaning, "{error}");
        }
    }

    #[test]
    fn kernel_releases_are_read() {
        assert_eq!(version("6.18.44-generic"), Some((6, 18)));
        assert_eq!(version("5.4.0"), Some((5, 4)));
        assert_eq!(version("6.2-rc1+"), Some((6, 2)));
        assert_eq!(version("junk"), None);
    }
}
