//! The sockets of a gateway: one to the others, in the mesh, and one that its daemon sends to.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use ipnet::Ipv6Net;
use linerate_control::interface::InterfaceName;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::envelope::ENVELOPE;
use super::message::{DATAGRAM_MAX, FORWARD_HEADER};

/// The port of gateways in the mesh. It is privileged, so no unprivileged user of the host can bind it first. IANA has
/// not assigned it, and it is below the range in which RPC programs pick ports.
pub(super) const PORT: u16 = 341;
/// Bytes of the longest message in its envelope.
pub(super) const LONGEST: usize = ENVELOPE + 1 + FORWARD_HEADER + DATAGRAM_MAX;
/// Bytes of the receive buffer: whole tables of hints come in bursts.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A socket in the mesh. It is bound to the interface: nobody outside of the mesh reaches it, whatever he claims to be.
pub(super) fn mesh(interface: &InterfaceName, address: Ipv6Addr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.bind_device(Some(interface.to_string().as_bytes()))?;
    bound(socket, SocketAddrV6::new(address, PORT, 0, 0).into())
}

/// A socket for what the daemon hands over, and its address.
pub(super) fn from_daemon() -> io::Result<(UdpSocket, SocketAddrV4)> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    let socket = bound(socket, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
    match socket.local_addr()? {
        SocketAddr::V4(address) => Ok((socket, address)),
        SocketAddr::V6(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

fn bound(socket: Socket, address: SocketAddr) -> io::Result<UdpSocket> {
    // As much as the system allows.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

/// Returns the gateway that has this address in the mesh. The envelope of its messages must name the same one.
pub(super) fn gateway_at(prefix: &Ipv6Net, address: SocketAddr) -> Option<u8> {
    let SocketAddr::V6(address) = address else { return None };
    let place = address.ip().to_bits().checked_sub(prefix.network().to_bits())?;
    (address.port() == PORT).then(|| u8::try_from(place.checked_sub(1)?).ok())?.filter(|at| *at < super::GATEWAYS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_known_by_its_address() {
        let prefix: Ipv6Net = "fd00:1::/64".parse().unwrap();
        let at = |address: &str| gateway_at(&prefix, address.parse().unwrap());
        assert_eq!(at("[fd00:1::1]:341"), Some(0));
        assert_eq!(at("[fd00:1::40]:341"), Some(63));
        for other in ["[fd00:1::41]:341", "[fd00:1::]:341", "[fd00:1::1]:1", "[fd00::1]:341", "192.0.2.1:341"] {
            assert_eq!(at(other), None, "{other}");
        }
    }
}
