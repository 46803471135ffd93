//! Many senders on one host: datagrams from thousands of addresses through one raw socket, and one UDP
//! socket that receives what comes back to any of them.
//!
//! The addresses are those that RFC 2544 sets aside for benchmarks. They need no interface and no socket of
//! their own: the sending host takes the whole prefix for itself by one local route, the daemon's host sends
//! it back by another.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use linerate_lab::hosts::Host;
use linerate_lab::{Doing, Error, Result};
use linerate_protocol::{MessageKind, classify};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, connect, ipproto, recv,
    sendmmsg, socket_with, sockopt,
};

/// Addresses of each half; senders beyond them share.
const ADDRESSES: u32 = 1 << 16;

/// All spoofed addresses (RFC 2544, appendix C.2.2).
const PREFIX: &str = "198.18.0.0/15";

/// Bytes of the queue for answers: some 5000 cookie replies, with what the kernel adds to each.
const ANSWER_BUFFER: usize = 4 << 20;

/// How long [`SpoofedSources::wait`] waits.
const WAIT: Duration = Duration::from_millis(5);

const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const HEADERS: usize = IP_HEADER + UDP_HEADER;

/// Room for any handshake message and more, so that nothing that is cut is taken for one.
const ANSWER_MAX: usize = 256;

/// The halves of the addresses: limits that a daemon applies to one do not affect the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// For floods.
    Flood,
    /// For peers that want to get in.
    Handshakes,
}

impl Part {
    fn address(self, sender: u32) -> Ipv4Addr {
        let second = match self {
            Self::Flood => 18,
            Self::Handshakes => 19,
        };
        let [_, _, third, fourth] = (sender % ADDRESSES).to_be_bytes();
        Ipv4Addr::new(198, second, third, fourth)
    }
}

/// A message that came back.
pub(super) struct Answer {
    pub(super) kind: MessageKind,
    bytes: [u8; ANSWER_MAX],
    length: usize,
}

impl Answer {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Sends from thousands of addresses, and receives what comes back to them.
pub(super) struct SpoofedSources {
    part: Part,
    to: SocketAddrV4,
    /// Takes whole IPv4 packets.
    sending: OwnedFd,
    answers: UdpSocket,
    /// The source port of every sender.
    port: u16,
}

impl SpoofedSources {
    /// Gives the spoofed addresses to `near`, tells `far` to send there what is for them, and opens the sockets
    /// towards the daemon on `far` at `to`. The routes stay until the hosts are gone.
    pub(super) fn set_up(near: &Host, far: &Host, to: SocketAddr, part: Part) -> Result<Self> {
        let SocketAddr::V4(to) = to else {
            return Err(Error::Refused("floods and counted handshakes travel by IPv4 only".into()));
        };
        let gateway = near.inside(|| own_address(to))?;
        near.ip(&format!("route replace local {PREFIX} dev lo"))?;
        far.ip(&format!("route replace {PREFIX} via {gateway}"))?;
        near.inside(|| Self::open(to, part))
    }

    fn open(to: SocketAddrV4, part: Part) -> Result<Self> {
        let opening = || "opening sockets for spoofed senders".into();
        let sending = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW))
            .doing(opening)?;
        connect(&sending, &to).doing(opening)?;
        let answers = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing(opening)?;
        answers.set_read_timeout(Some(WAIT)).doing(opening)?;
        // As far as net.core.rmem_max allows where this user may not force it.
        sockopt::set_socket_recv_buffer_size_force(&answers, ANSWER_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&answers, ANSWER_BUFFER))
            .doing(opening)?;
        let port = answers.local_addr().doing(opening)?.port();
        Ok(Self { part, to, sending, answers, port })
    }

    /// Sends messages, each by the sender of that number.
    pub(super) fn send(&self, batch: &[(u32, &[u8])]) -> Result<()> {
        let headers: Vec<_> = batch.iter().map(|(sender, message)| self.header(*sender, message.len())).collect();
        let parts =
            headers.iter().zip(batch).map(|(header, (_, message))| [IoSlice::new(header), IoSlice::new(message)]);
        let parts: Vec<_> = parts.collect();
        let mut controls: Vec<_> = batch.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let messages = parts.iter().zip(&mut controls).map(|(part, control)| MMsgHdr::new(part, control));
        let mut messages: Vec<_> = messages.collect();
        let mut sent = 0;
        while sent < messages.len() {
            match sendmmsg(&self.sending, &mut messages[sent..], SendFlags::empty()) {
                Ok(more) => sent += more,
                // The interface's queue is full for a moment.
                Err(Errno::NOBUFS) => thread::yield_now(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).doing(|| format!("sending datagrams to {}", self.to)),
            }
        }
        Ok(())
    }

    /// The next answer, if one is there.
    pub(super) fn take(&self) -> Result<Option<Answer>> {
        self.receive(RecvFlags::DONTWAIT)
    }

    /// The next answer, or none if none comes within 5 ms.
    pub(super) fn wait(&self) -> Result<Option<Answer>> {
        self.receive(RecvFlags::empty())
    }

    fn receive(&self, flags: RecvFlags) -> Result<Option<Answer>> {
        let mut bytes = [0; ANSWER_MAX];
        loop {
            match recv(&self.answers, &mut bytes, flags) {
                Ok((length, _)) => {
                    if let Ok(kind) = classify(&bytes[..length]) {
                        return Ok(Some(Answer { kind, bytes, length }));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error)).doing(|| format!("receiving answers of {}", self.to)),
            }
        }
    }

    /// The headers (RFC 791, RFC 768) that carry a message of `length` bytes from a sender to the daemon. The
    /// kernel fills in the total length and the IPv4 header's checksum (raw(7)).
    fn header(&self, sender: u32, length: usize) -> [u8; HEADERS] {
        const DONT_FRAGMENT: u8 = 0x40;
        const HOPS: u8 = 64;
        const UDP: u8 = 17;
        // What the kernel's WireGuard marks handshakes with: AF41.
        const SERVICE: u8 = 0x88;
        let mut packet = [0; HEADERS];
        packet[..2].copy_from_slice(&[0x45, SERVICE]);
        packet[6] = DONT_FRAGMENT;
        packet[8..10].copy_from_slice(&[HOPS, UDP]);
        packet[12..16].copy_from_slice(&self.part.address(sender).octets());
        packet[16..20].copy_from_slice(&self.to.ip().octets());
        packet[20..22].copy_from_slice(&self.port.to_be_bytes());
        packet[22..24].copy_from_slice(&self.to.port().to_be_bytes());
        packet[24..26].copy_from_slice(&((UDP_HEADER + length) as u16).to_be_bytes());
        // A checksum of zero is none (RFC 768), and a veth would not look at one.
        packet
    }
}

/// The address from which the calling thread's host sends to `to`. Nothing is sent.
fn own_address(to: SocketAddrV4) -> Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
    let connected = socket.and_then(|socket| socket.connect(to).and_then(|()| socket.local_addr()));
    connected.map(|address| address.ip()).doing(|| format!("looking for a way to {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_senders_share_an_address_and_all_are_in_the_prefix() {
        let both = [Part::Flood, Part::Handshakes];
        let all = both.into_iter().flat_map(|part| (0..ADDRESSES).map(move |sender| part.address(sender)));
        let addresses: HashSet<_> = all.collect();
        assert_eq!(addresses.len(), 2 * ADDRESSES as usize);
        let prefix = Ipv4Addr::new(198, 18, 0, 0).to_bits() >> 17;
        assert!(addresses.iter().all(|address| address.to_bits() >> 17 == prefix));
    }
}
