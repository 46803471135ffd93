//! Binds the sockets of both address families to one port.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Protect, UdpOffloads, UdpSocket};
use crate::system::udp::form_reuseport_group;

/// How often to look for a port that is free in both families (as the kernel module, socket.c).
const PORT_ATTEMPTS: u32 = 100;

/// Sockets for each address family that the host has, on one port.
pub struct BoundSockets<S> {
    /// The IPv4 sockets; none where the host has no IPv4.
    pub v4: Vec<S>,
    /// The IPv6 sockets; none where the host has no IPv6.
    pub v6: Vec<S>,
    /// The port that all are bound to, in host byte order.
    pub port: u16,
}

impl<S> BoundSockets<S> {
    /// The socket that sends packets of the TUN device's queue `queue` to `dst`; `None` if the host does not have that
    /// address family.
    pub fn socket_for(&self, dst: SocketAddr, queue: usize) -> Option<&S> {
        let family = match dst {
            SocketAddr::V4(_) => &self.v4,
            SocketAddr::V6(_) => &self.v6,
        };
        family.get(queue % family.len().max(1))
    }
}

/// Binds up to `sockets` sockets of each family to `port`, or for 0 to one that is free for both
/// families, with `mark` as their firewall mark and those of `wanted` that this kernel
/// supports. One family may be missing.
///
/// `protect` is called with each socket before it is bound; if it fails, so does this.
///
/// A WireGuard data message is delivered to the socket number "receiver index (read in network order) modulo the number
/// of sockets", so that one session uses one socket; everything else is delivered to the first. If the kernel cannot do
/// that, each family has one socket.
///
/// # Errors
///
/// EADDRINUSE when another program has the port in either family; the errors of `protect` and of
/// [`UdpSocket::bind`] otherwise.
pub fn bind_all(
    port: u16,
    mark: u32,
    sockets: usize,
    wanted: UdpOffloads,
    protect: Protect<'_>,
) -> io::Result<BoundSockets<UdpSocket>> {
    let mut attempt = 1;
    let (v4, v6, port) = loop {
        match bind_both(port, mark, wanted, protect) {
            // The kernel chose a port that is free for IPv4 but in use for IPv6.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port == 0 && attempt < PORT_ATTEMPTS => {
                attempt += 1;
            }
            bound => break bound?,
        }
    };
    let group = |first: Option<UdpSocket>| {
        first.map_or_else(Vec::new, |first| form_reuseport_group(first, mark, sockets, protect))
    };
    Ok(BoundSockets { v4: group(v4), v6: group(v6), port })
}

/// One socket for each family of the host, and their port.
fn bind_both(
    port: u16,
    mark: u32,
    wanted: UdpOffloads,
    protect: Protect<'_>,
) -> io::Result<(Option<UdpSocket>, Option<UdpSocket>, u16)> {
    let bound = |local: SocketAddr| separate_missing_family(UdpSocket::bind_protected(local, mark, wanted, protect));
    let v4 = bound((Ipv4Addr::UNSPECIFIED, port).into())?;
    let port = match &v4 {
        Ok(v4) => v4.local_addr()?.port(),
        Err(_) => port,
    };
    let v6 = bound((Ipv6Addr::UNSPECIFIED, port).into())?;
    let port = match &v6 {
        Ok(v6) => v6.local_addr()?.port(),
        Err(_) => port,
    };
    match (v4, v6) {
        (Err(_), Err(absent)) => Err(absent),
        (v4, v6) => Ok((v4.ok(), v6.ok(), port)),
    }
}

/// Separates "the host does not have this family" from the errors that fail a bind.
fn separate_missing_family(bound: io::Result<UdpSocket>) -> io::Result<io::Result<UdpSocket>> {
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
    fn every_queue_has_a_socket_of_each_family_of_the_host() {
        let sockets = BoundSockets { v4: vec!["first", "second"], v6: vec![], port: 51820 };
        let (v4, v6) = ("192.0.2.1:1".parse().unwrap(), "[2001:db8::1]:1".parse().unwrap());
        let chosen: Vec<_> = (0..4).map(|queue| *sockets.socket_for(v4, queue).unwrap()).collect();
        assert_eq!(chosen, ["first", "second", "first", "second"]);
        assert!((0..4).all(|queue| sockets.socket_for(v6, queue).is_none()));
    }
}
