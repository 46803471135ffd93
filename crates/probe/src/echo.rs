//! Round trips by ICMP echo (RFC 792, RFC 4443): the other host's kernel answers, so no process of ours is in the way.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Protocol, Socket, Type};

const HEADER: usize = 8;

/// The payload of ping(8).
const PAYLOAD: usize = 56;

/// A raw socket that sends echo requests to one address and receives its answers. Needs CAP_NET_RAW.
pub struct Echo {
    socket: Socket,
    to: IpAddr,
    /// Tells our answers from those to other processes of this host.
    identifier: u16,
    /// Readable when answers are waited for no more.
    stop: Option<OwnedFd>,
}

/// Readable when an answer, or anybody else's ICMP message, has come.
impl AsFd for Echo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Echo {
    /// Opens a socket for requests to `to`, which leave through the interface `device` if one is given, whatever the
    /// routes say.
    ///
    /// # Errors
    /// Those of socket(2), of SO_BINDTODEVICE (socket(7)) and of connect(2): EPERM, ENODEV, ENETUNREACH.
    pub fn open(to: IpAddr, device: Option<&str>) -> io::Result<Self> {
        let (domain, protocol) = match to {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        if let Some(device) = device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        socket.connect(&SocketAddr::new(to, 0).into())?;
        Ok(Self { socket, to, identifier: std::process::id() as u16, stop: None })
    }

    /// From now on nothing is waited for once `stop` is readable.
    pub fn stop_at(&mut self, stop: OwnedFd) {
        self.stop = Some(stop);
    }

    /// Waits until an answer, or anybody else's ICMP message, has come, or a signal, or the time is over.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`] once it is told to stop; those of poll(2).
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        let time = Timespec::try_from(time).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let mut ready = vec![PollFd::new(&self.socket, PollFlags::IN)];
        ready.extend(self.stop.iter().map(|stop| PollFd::new(stop, PollFlags::IN)));
        match poll(&mut ready, Some(&time)) {
            Ok(_) if ready.get(1).is_some_and(|stop| !stop.revents().is_empty()) => Err(ErrorKind::Interrupted.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends the request `number`.
    ///
    /// # Errors
    /// Those of send(2). EHOSTUNREACH and the like may tell of an earlier request.
    pub fn send(&self, number: u16) -> io::Result<()> {
        self.send_sized(number, PAYLOAD)
    }

    fn send_sized(&self, number: u16, payload: usize) -> io::Result<()> {
        rustix::net::send(&self.socket, &request(self.to, self.identifier, number, payload), SendFlags::empty())?;
        Ok(())
    }

    /// From now on requests that do not fit are not cut up: the kernel refuses what the interface, or a router that has
    /// told it so, cannot take (EMSGSIZE).
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn never_fragment(&self) -> io::Result<()> {
        match self.to {
            IpAddr::V4(_) => sockopt::set_ip_mtu_discover(&self.socket, Ipv4PathMtuDiscovery::DO)?,
            IpAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&self.socket, Ipv6PathMtuDiscovery::DO)?,
        }
        Ok(())
    }

    /// The number of the request that the next message answers; `None` when no message is left. Others' are skipped.
    ///
    /// # Errors
    /// Those of recv(2), as for [`Echo::send`].
    pub fn receive(&self) -> io::Result<Option<u16>> {
        let mut message = [0; 1500];
        loop {
            match rustix::net::recv(&self.socket, &mut message[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    let number = answered(self.to, self.identifier, &message[..length]);
                    if number.is_some() {
                        return Ok(number);
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends the request `number` and waits for its answer: how long that took, or nothing if none came in time.
    ///
    /// # Errors
    /// As for [`Echo::send`] and [`Echo::receive`].
    pub fn round_trip(&self, number: u16, timeout: Duration) -> io::Result<Option<Duration>> {
        self.round_trip_sized(number, PAYLOAD, timeout)
    }

    /// As [`Echo::round_trip`], with a packet of so many bytes, IP header included.
    ///
    /// # Errors
    /// As for [`Echo::round_trip`].
    pub fn round_trip_of(&self, number: u16, bytes: u32, timeout: Duration) -> io::Result<Option<Duration>> {
        let header = if self.to.is_ipv4() { 20 } else { 40 };
        self.round_trip_sized(number, (bytes as usize).saturating_sub(header + HEADER), timeout)
    }

    fn round_trip_sized(&self, number: u16, payload: usize, timeout: Duration) -> io::Result<Option<Duration>> {
        let sent = Instant::now();
        self.send_sized(number, payload)?;
        while let Some(left) = timeout.checked_sub(sent.elapsed()) {
            self.wait(left)?;
            let took = sent.elapsed();
            while let Some(answered) = self.receive()? {
                if answered == number {
                    return Ok(Some(took));
                }
            }
        }
        Ok(None)
    }
}

/// An echo request (RFC 792, RFC 4443 section 4.1).
fn request(to: IpAddr, identifier: u16, number: u16, payload: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; HEADER + payload];
    packet[..4].copy_from_slice(&[if to.is_ipv4() { 8 } else { 128 }, 0, 0, 0]);
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&number.to_be_bytes());
    // The kernel fills in the checksum of ICMPv6 (RFC 3542 section 3.1), not that of ICMP.
    if to.is_ipv4() {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// The number of our request that `packet` answers. A raw IPv4 socket delivers the IP header, too.
fn answered(to: IpAddr, identifier: u16, packet: &[u8]) -> Option<u16> {
    let (header, reply) = match to {
        IpAddr::V4(_) => (usize::from(packet.first()? & 15) * 4, 0),
        IpAddr::V6(_) => (0, 129),
    };
    let &[kind, code, _, _, i0, i1, n0, n1] = packet.get(header..)?.first_chunk()?;
    let is_ours = kind == reply && code == 0 && u16::from_be_bytes([i0, i1]) == identifier;
    is_ours.then_some(u16::from_be_bytes([n0, n1]))
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::os::unix::net::UnixStream;

    use super::*;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn told_to_stop_it_waits_no_more() {
        let (stop, signal) = UnixStream::pair().unwrap();
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
        // A raw socket is root's.
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.connect(&nobody.local_addr().unwrap().into()).unwrap();
        let mut echo = Echo { socket, to: V4, identifier: 7, stop: None };
        echo.stop_at(stop.into());
        assert_eq!(echo.round_trip(1, Duration::from_millis(1)).unwrap(), None);
        (&signal).write_all(b"x").unwrap();
        let stopped = echo.round_trip(2, Duration::from_secs(600));
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
    }

    #[test]
    fn a_request_sums_up_to_nothing() {
        assert!([0, 1, 56, 1365].into_iter().all(|payload| checksum(&request(V4, 0x1234, 7, payload)) == 0));
    }

    #[test]
    fn an_answer_has_the_number_of_its_request() {
        let mut packet = vec![0x45; 20];
        packet.extend(request(V4, 0x1234, 7, PAYLOAD));
        assert_eq!(answered(V4, 0x1234, &packet), None, "a request is no answer");
        packet[20] = 0;
        assert_eq!(answered(V4, 0x1234, &packet), Some(7));
        assert_eq!(answered(V4, 0x1235, &packet), None, "somebody else's");
        let mut packet = request(V6, 1, 2, PAYLOAD);
        packet[0] = 129;
        assert_eq!(answered(V6, 1, &packet), Some(2));
    }

    #[test]
    fn a_hostile_answer_is_no_answer() {
        for packet in [&[][..], &[0x4f], &[0xff; 27], &[0x45; 27]] {
            assert_eq!(answered(V4, 0, packet), None);
            assert_eq!(answered(V6, 0, packet), None);
        }
    }
}
