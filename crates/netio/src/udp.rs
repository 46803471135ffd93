//! UDP sockets: where outer datagrams come from and go to.
//!
//! A train (equal-sized datagrams contiguous in memory, the last possibly shorter) leaves by one
//! send with UDP_SEGMENT and may arrive as one message by UDP_GRO. Nothing here knows what is in a
//! datagram, retries, or waits; the engine decides what an error means for its peer, with
//! [`send_error`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ip_recvtos, set_ipv6_mtu_discover,
    set_ipv6_recvtclass, set_ipv6_v6only,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use rustix::system::uname;

use crate::clock;
use crate::sys::message::{RECEIVE_MAX, SEND_MAX, receive_many, receive_one, send_many, send_one};
use crate::sys::option::IntOption;
use crate::sys::steering::steer_by_receiver;

/// The most datagrams in a train (UDP_MAX_SEGMENTS before Linux 6.10, which made it 128).
pub const SEGMENTS_MAX: usize = 64;

/// The most bytes in a train: what an IPv4 datagram of 65,535 bytes has room for.
pub const GSO_BATCH_MAX: usize = 65507;

/// What we ask the kernel to hold, in bytes, of datagrams not yet received. At 10 Gbit/s it is 13 ms: the
/// longest that a thread on a busy machine should be kept from its socket. Half of it cost 105 TCP streams
/// over one tunnel a tenth of their throughput in retransmits, twice as much gained nothing more. It is memory
/// of the kernel's, used only as far as datagrams wait; the kernel doubles it for its own bookkeeping (socket(7)).
pub const SOCKET_BUFFER: usize = 16 << 20;

/// The same of datagrams not yet gone, at first and at least, of all sockets of a family together. Doubled, it
/// holds what leaves in 42 ms at 100 Mbit/s: what waits there makes everything behind it wait.
const SEND_BUFFER_MIN: usize = 256 << 10;

/// What one of many sockets has at least: the kernel doubles it, and it has room for two trains.
const SEND_BUFFER_SHARE_MIN: usize = 64 << 10;

/// What fills its send buffer is given one that holds what the way has been seen to take in this time.
const QUEUE_TIME: Duration = Duration::from_millis(50);

/// Between two moments further apart than this, a way may have been idle: that it took little then means nothing.
const BUSY_TIME: Duration = Duration::from_millis(200);

/// How long a sender of a handshake message waits for room. Linux says that there is some only when the buffer
/// is half empty (sock_writeable), so this mostly passes, and a few datagrams leave meanwhile.
pub const ROOM_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// How often a free port for both families is looked for (as the kernel module, socket.c).
const PORT_ATTEMPTS: u32 = 100;

/// A source and sink of outer datagrams.
pub trait Socket: Send + Sync {
    /// Receives up to `meta.len()` messages; message i lies at `buf[i * stride..][..meta[i].len]`
    /// with stride = `buf.len() / meta.len()`. Answers how many there were, at least one;
    /// WouldBlock when there is none. May leave messages for the next call even if there was room.
    ///
    /// A message that did not fit in its stride is reported with `len` 0.
    fn recv(&self, buf: &mut [u8], meta: &mut [Received]) -> io::Result<usize>;

    /// Sends messages in order; answers how many went. Fails only if the first one did; after a
    /// short count, sending the rest tells why. WouldBlock when there is no room.
    fn send(&self, batch: &[Transmit<'_>]) -> io::Result<usize>;

    /// Waits until there may be room for a send, at most [`ROOM_TIMEOUT`].
    fn wait_for_room(&self);

    /// What the socket takes off the engine's hands.
    fn offloads(&self) -> UdpOffloads;
}

/// Where a datagram came to: what a reply should leave from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketInfo {
    /// Our address.
    pub addr: IpAddr,
    /// The index of the interface that it came in by.
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
    /// Who sent it.
    pub source: SocketAddr,
    /// Which of our addresses it was sent to, and where it came in.
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

/// What is to be sent: one datagram or one train.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Where to; of the socket's family.
    pub to: SocketAddr,
    /// Which of our addresses it must come from; the kernel chooses for `None`. The interface is
    /// always left to the routing.
    pub from: Option<IpAddr>,
    /// The TOS (IPv4) or traffic class (IPv6) octet.
    pub tos: u8,
    /// The length in bytes of each datagram in a train. Never for a single datagram: some kernels
    /// refuse it there (firezone 8932).
    pub segment: Option<u16>,
    /// The bytes: at most [`GSO_BATCH_MAX`], and of a train at most [`SEGMENTS_MAX`] datagrams.
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

/// What a socket takes off the engine's hands, by what is wanted and what the kernel says at start.
/// UDP_SEGMENT may still be refused for a destination: see [`SendError::SegmentationRefused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOffloads {
    /// Datagrams of one flow may come as one message, so that a stride must be 64 KiB.
    pub gro: bool,
    /// Trains may be sent. To a kernel that does not know them, a train is one large datagram.
    pub gso: bool,
}

impl UdpOffloads {
    /// Everything that is known here.
    pub const ALL: Self = Self { gro: true, gso: true };
}

/// A UDP socket of the kernel, bound to all addresses of one family.
pub struct UdpSocket {
    fd: OwnedFd,
    family: Family,
    offloads: UdpOffloads,
    outflow: Outflow,
}

impl UdpSocket {
    /// Binds to `port` (0: one that is free) with `mark` as the firewall mark of what is sent
    /// (0: none). Of `wanted` it has what this kernel knows. The port is never shared: no
    /// SO_REUSEADDR, no SO_REUSEPORT.
    ///
    /// # Errors
    ///
    /// Those of socket(2) and bind(2): EADDRINUSE; EAFNOSUPPORT or EADDRNOTAVAIL for a family that
    /// the host has not; EPERM for a mark without CAP_NET_ADMIN.
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
        Ok(Self { fd, family, offloads, outflow: Outflow::shared_by(1) })
    }

    /// It is one of `sockets` that send to the same places.
    fn share_way(&mut self, sockets: usize) {
        self.outflow = Outflow::shared_by(sockets);
        set_send_buffer(&self.fd, Outflow::least(sockets));
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

    /// The address family it serves.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Changes the firewall mark of what is sent; 0 for none.
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
                self.outflow.add(batch[..sent].iter().map(|message| message.contents.len() as u64).sum());
                Ok(sent)
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock
                    && let Some(bytes) = self.outflow.blocked(clock::boottime())
                {
                    set_send_buffer(&self.fd, bytes);
                }
                Err(error)
            }
        }
    }

    fn wait_for_room(&self) {
        // Interrupted or not, the send that follows finds out whether there is room.
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
/// families, with `mark` as their firewall mark and what this kernel
/// knows of `wanted`. One family alone may be missing.
///
/// A WireGuard data message comes to the socket whose number is the message's receiver index, its
/// bytes read in network order, modulo the count of sockets, so that those of one session come to
/// one socket; everything else comes to the first. Where the kernel does not do that, each family
/// has one socket.
///
/// # Errors
///
/// EADDRINUSE when another program has the port in either family; the errors of
/// [`UdpSocket::bind`] otherwise.
pub fn bind_pair(port: u16, mark: u32, sockets: usize, wanted: UdpOffloads) -> io::Result<Pair> {
    let mut attempt = 1;
    let (v4, v6, port) = loop {
        match bind_both(port, mark, wanted) {
            // The kernel chose a port that is free for IPv4 and another program has for IPv6.
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
    /// The destination's route cannot take this train: send its datagrams one by one. The segment
    /// size exceeds the route's MTU, or the link cannot compute checksums.
    SegmentationRefused,
    /// The source address may no longer be ours or usable for this destination: try once without it.
    /// If that fails as well, the second error says what is wrong.
    SourceGone,
    /// There is no room in a queue: try again shortly, then drop.
    Busy,
    /// A firewall said no, possibly only to this datagram: drop it, go on with the next.
    Denied,
    /// There is no way to the destination, or an ICMP error for an earlier datagram was waiting on
    /// the socket, in which case a second try goes through: retry once, then drop. (Linux keeps
    /// ICMP errors from a socket that is not connected, as ours are; other systems do not.)
    Unreachable,
    /// The datagram is larger than can be sent at all: drop it.
    TooBig,
    /// Anything else: drop, count, and report the error itself.
    Other,
}

/// Says what a failed send means, from its error and from what the first message had: a segment
/// size, a source address. The kernel answers EINVAL both to a source that is gone and to a segment
/// size: a second try without the source tells them apart, and costs no train.
pub fn send_error(error: &io::Error, had_segment: bool, had_source: bool) -> SendError {
    let Some(errno) = error.raw_os_error() else {
        return match error.kind() {
            io::ErrorKind::WouldBlock => SendError::Busy,
            _ => SendError::Other,
        };
    };
    match errno {
        // To an IPv4 source that is not ours the kernel answers EINVAL, and on Linux 6.18
        // ENETUNREACH, as it does where there is no route: a second try without it tells.
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
    // Outer datagrams go without DF, as the kernel module sends them (socket.c, ignore_df): a
    // router with a narrower link fragments them, and so do we for a route known to be narrower.
    // The other values set DF (WANT, DO, PROBE) or take no notice of a route's MTU (OMIT).
    set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::DONT)?;
    Ok(())
}

fn prepare_v6(fd: &OwnedFd) -> io::Result<()> {
    set_ipv6_v6only(fd, true)?;
    IntOption::PKTINFO_V6.set(fd.as_fd(), 1)?;
    set_ipv6_recvtclass(fd, true)?;
    // Routers do not fragment IPv6; we do, to what the path is known to take.
    set_ipv6_mtu_discover(fd, Ipv6PathMtuDiscovery::DONT)?;
    Ok(())
}

fn enlarge_buffers(fd: &OwnedFd) {
    // The forced ones need CAP_NET_ADMIN; the plain ones are cut to net.core.[rw]mem_max. Smaller
    // buffers than asked for cost speed, never correctness.
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

/// How much leaves by a socket between two moments at which its send buffer was full: then that is what the way
/// takes, whatever it was offered meanwhile.
struct Outflow {
    /// How many sockets share the way, each with a part of its queue.
    sockets: usize,
    /// Bytes since `since`.
    sent: AtomicU64,
    /// When the buffer was full, in nanoseconds; 0 for never.
    since: AtomicU64,
    /// What the kernel was asked to hold.
    buffer: AtomicUsize,
}

// All of it is relaxed: who sends at the same time is counted a moment earlier or later.
impl Outflow {
    fn shared_by(sockets: usize) -> Self {
        let buffer = AtomicUsize::new(Self::least(sockets));
        Self { sockets, sent: AtomicU64::new(0), since: AtomicU64::new(0), buffer }
    }

    /// What each of so many sockets is asked to hold at least.
    fn least(sockets: usize) -> usize {
        (SEND_BUFFER_MIN / sockets).max(SEND_BUFFER_SHARE_MIN)
    }

    fn add(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The buffer is full at `now`, in nanoseconds. The size it should have, if that is another.
    fn blocked(&self, now: u64) -> Option<usize> {
        let span = QUEUE_TIME.as_nanos() as u64;
        let time = now.saturating_sub(self.since.load(Ordering::Relaxed));
        if time < span {
            return None;
        }
        let first = self.since.swap(now, Ordering::Relaxed) == 0;
        let sent = self.sent.swap(0, Ordering::Relaxed);
        // None: another sender was at this point a moment ago.
        if first || sent == 0 {
            return None;
        }
        let buffer = self.buffer.load(Ordering::Relaxed);
        // The kernel doubles what it is asked for.
        let takes = (u128::from(sent) * u128::from(span) / u128::from(time)) as usize / (2 * self.sockets);
        let is_slower = takes < buffer / 2 && time < BUSY_TIME.as_nanos() as u64;
        if takes < 2 * buffer && !is_slower {
            return None;
        }
        // In steps of two, so that it is never more than the queue's time.
        let wanted = (1 << takes.max(1).ilog2()).clamp(Self::least(self.sockets), SOCKET_BUFFER);
        self.buffer.store(wanted, Ordering::Relaxed);
        (wanted != buffer).then_some(wanted)
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

/// One socket for each family that the host has, and their port.
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

/// Makes a group of `sockets` sockets out of one that is bound, or leaves it alone.
///
/// It was bound without SO_REUSEPORT, so nobody else had the port; a group from the start would
/// join whatever group of the same user is there. Who of the same user joins ours later gets
/// nothing: the steering knows no more sockets than ours.
fn grow(alone: UdpSocket, port: u16, mark: u32, sockets: usize) -> Vec<UdpSocket> {
    let mut group = vec![alone];
    if sockets > 1 && join(&mut group, port, mark, sockets).is_err() {
        group.truncate(1);
        // It is as it was; should even this fail, it has the port alone all the same.
        let _ = sockopt::set_socket_reuseport(&group[0].fd, false);
    }
    let sockets = group.len();
    group.iter_mut().for_each(|socket| socket.share_way(sockets));
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

/// Sets apart the error of a family that the host has not from the errors that end a bind.
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
    fn a_send_error_is_judged_by_what_the_message_had() {
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

    /// What an outflow of `rate` bytes a second grows to when it is full every `pause` milliseconds.
    fn grows_to(rate: u64, pause: u64) -> usize {
        let outflow = Outflow::shared_by(1);
        let mut buffer = SEND_BUFFER_MIN;
        for round in 1..1000 {
            outflow.add(rate * pause / 1000);
            buffer = outflow.blocked(round * pause * 1_000_000).unwrap_or(buffer);
        }
        buffer
    }

    #[test]
    fn a_send_buffer_holds_no_more_than_leaves_in_the_time_of_a_queue_and_half_of_it_at_least() {
        let second = 1000 / QUEUE_TIME.as_millis() as usize;
        for megabits in [1, 10, 100, 150, 200, 400, 1000, 3000, 5000] {
            let rate = megabits * 125_000;
            for pause in [1, 7, 50, 90] {
                let held = 2 * grows_to(rate as u64, pause);
                let least = 2 * SEND_BUFFER_MIN;
                assert!(held == least || held * second <= rate, "{held} at {megabits} Mbit/s, full every {pause} ms");
                assert!(held * second * 2 >= rate * 99 / 100, "{held} at {megabits} Mbit/s, full every {pause} ms");
            }
        }
        assert!(2 * SEND_BUFFER_MIN * second <= 100 * 125_000, "100 Mbit/s");
        assert_eq!(grows_to(12_500_000_000, 1), SOCKET_BUFFER);
    }

    #[test]
    fn a_send_buffer_that_was_full_once_tells_nothing_of_the_way() {
        let outflow = Outflow::shared_by(1);
        outflow.add(1 << 40);
        assert_eq!(outflow.blocked(1 << 40), None);
    }

    #[test]
    fn a_send_buffer_follows_the_way_to_another_speed_and_no_pause_makes_it_smaller() {
        let outflow = Outflow::shared_by(1);
        let (mut now, mut buffer) = (1, SEND_BUFFER_MIN);
        let mut fill = |megabits: u64, milliseconds: u64| {
            now += milliseconds * 1_000_000;
            outflow.add(megabits * 125 * milliseconds);
            buffer = outflow.blocked(now).unwrap_or(buffer);
            buffer
        };
        assert_eq!([fill(1000, 60), fill(1000, 60)], [SEND_BUFFER_MIN, 2 << 20]);
        assert_eq!(fill(1, 1000), 2 << 20, "there was little to send");
        assert_eq!(fill(20, 60), SEND_BUFFER_MIN, "the way has become slow");
        assert_eq!(fill(1000, 60), 2 << 20);
    }

    #[test]
    fn sockets_that_share_a_way_share_its_queue() {
        for sockets in 1..=4 {
            let outflow = Outflow::shared_by(sockets);
            assert!(outflow.buffer.load(Ordering::Relaxed) * sockets <= SEND_BUFFER_MIN);
            for round in 1..10 {
                // The kernel has one of them send most of the time.
                outflow.add(1_000_000_000 / 20);
                outflow.blocked(round * 50_000_000);
            }
            let held = 2 * outflow.buffer.load(Ordering::Relaxed) * sockets;
            assert!(held <= 1_000_000_000 / 20, "{held} for {sockets} sockets");
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
