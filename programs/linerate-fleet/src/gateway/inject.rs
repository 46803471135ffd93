//! Gives our daemon a datagram that came to another gateway, as if it had come here: from the client's address, to the
//! address of the fleet. So the daemon answers the client itself.
//!
//! Packets to an address of this host do not leave it, and are not checked by rp_filter, whatever their source: they have
//! a route already when they come in (ip_rcv_finish_core; seen with 0, 1 and 2 on Linux 6.1 and later).

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// IPPROTO_RAW: packets are sent with the header that they have.
const RAW: i32 = 255;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const HOPS: u8 = 64;

/// Raw sockets, and where the daemon listens.
pub(super) struct Injector {
    socket: Socket,
    address: SocketAddr,
}

impl Injector {
    /// For the address and port of the fleet. Needs CAP_NET_RAW.
    pub(super) fn new(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::RAW, Some(Protocol::from(RAW)))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }

    /// A datagram that does not fit, or whose source is of the other family, is lost.
    pub(super) fn inject(&self, source: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let packet = packet(source, self.address, datagram).ok_or(io::ErrorKind::InvalidInput)?;
        // A raw socket has no port.
        let to = SocketAddr::new(self.address.ip(), 0);
        self.socket.send_to(&packet, &to.into()).map(drop)
    }
}

/// The packet with its headers.
fn packet(from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_HEADER + datagram.len()).ok()?;
    let mut udp = Vec::with_capacity(usize::from(length));
    udp.extend(from.port().to_be_bytes());
    udp.extend(to.port().to_be_bytes());
    udp.extend(length.to_be_bytes());
    udp.extend([0; 2]);
    udp.extend(datagram);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = 20u16.checked_add(length)?;
            let mut packet = vec![0x45, 0];
            packet.extend(total.to_be_bytes());
            // The kernel fills in the identification and the checksum; UDP needs none.
            packet.extend([0, 0, 0, 0, HOPS, UDP, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            packet.extend(udp);
            Some(packet)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let sum =
                checksum(&[&from.octets(), &to.octets(), &u32::from(length).to_be_bytes(), &[0, 0, 0, UDP], &udp]);
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend(length.to_be_bytes());
            packet.extend([UDP, HOPS]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            packet.extend(udp);
            Some(packet)
        }
        _ => None,
    }
}

/// The Internet checksum (RFC 1071) as UDP writes it: zero would mean that there is none. All parts but the last are even.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    match !((folded & 0xffff) + (folded >> 16)) as u16 {
        0 => 0xffff,
        sum => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_complete() {
        let packet4 = packet("192.0.2.1:7".parse().unwrap(), "192.0.2.9:51820".parse().unwrap(), b"abc").unwrap();
        assert_eq!(packet4[..4], [0x45, 0, 0, 31]);
        assert_eq!(packet4[12..], [192, 0, 2, 1, 192, 0, 2, 9, 0, 7, 0xca, 0x6c, 0, 11, 0, 0, b'a', b'b', b'c']);
        let packet6 = packet("[::1]:7".parse().unwrap(), "[::2]:51820".parse().unwrap(), b"abc").unwrap();
        assert_eq!((packet6.len(), packet6[4..8].to_vec()), (51, vec![0, 11, UDP, HOPS]));
        // Summed with its checksum, the packet gives all ones.
        let sum = checksum(&[&packet6[8..40], &[0, 0, 0, 11, 0, 0, 0, UDP], &packet6[40..]]);
        assert_eq!(sum, 0xffff);
    }

    #[test]
    fn what_does_not_fit_is_no_packet() {
        let (v4, v6): (SocketAddr, SocketAddr) = ("192.0.2.1:7".parse().unwrap(), "[::1]:7".parse().unwrap());
        assert_eq!(packet(v4, v6, b"abc"), None);
        assert_eq!(packet(v4, v4, &[0; 65_535]), None);
        assert_eq!(packet(v4, v4, &[0; 65_520]), None);
    }
}
