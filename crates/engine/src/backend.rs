//! What the engine needs of the world: a TUN device, sockets, time and randomness.
//!
//! [`KernelBackend`] is the real one. Tests bring their own, with a clock that they turn by hand.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use linerate_netio::{clock, link, random, tun, udp};
use linerate_protocol::{Boottime, Now};

/// Sockets for each address family that the host has, on one port.
pub struct Sockets<S> {
    /// The IPv4 sockets; none where the host has no IPv4.
    pub v4: Vec<S>,
    /// The IPv6 sockets; none where the host has no IPv6.
    pub v6: Vec<S>,
    /// The port that all are bound to, in host byte order.
    pub port: u16,
}

impl<S> Sockets<S> {
    /// The socket by which packets of the TUN device's queue `queue` leave for `to`; none where the
    /// host has not that family.
    pub fn towards(&self, to: SocketAddr, queue: usize) -> Option<&S> {
        let family = match to {
            SocketAddr::V4(_) => &self.v4,
            SocketAddr::V6(_) => &self.v6,
        };
        family.get(queue % family.len().max(1))
    }
}

/// The engine's doors to the world.
pub trait Backend: Send + Sync + 'static {
    /// The device that inner packets come from and go to.
    type Tun: tun::Tun;
    /// What outer datagrams come from and go to.
    type Socket: udp::Socket;

    /// The TUN device.
    fn tun(&self) -> &Self::Tun;

    /// Binds sockets of both families to `port` (0: one that is free) with `mark` as their
    /// firewall mark. One family alone may be missing.
    fn bind(&self, port: u16, mark: u32) -> io::Result<Sockets<Self::Socket>>;

    /// Changes the firewall mark of bound sockets.
    fn set_mark(&self, sockets: &Sockets<Self::Socket>, mark: u32) -> io::Result<()>;

    /// The time since boot, suspend included, and the wall clock's.
    fn now(&self) -> Now;

    /// The time since boot alone; called once per batch.
    fn boottime(&self) -> Boottime;

    /// How long the machine has been suspended since boot, to a fraction of a second.
    fn suspended(&self) -> Duration;

    /// Lets time pass on the calling thread.
    fn rest(&self, time: Duration);

    /// Fills `bytes` with unpredictable ones.
    fn fill(&self, bytes: &mut [u8]);

    /// Whether a datagram to `to`, an IPv4 address, may still leave from the address that the peer wrote to: the
    /// address is the host's own, and the route to `to` leads out where the peer's packet came in.
    /// None if that cannot be found out now. For the slow path only: the kernel is asked.
    fn source_addr_is_valid(&self, to: IpAddr, from: udp::PacketInfo, mark: u32) -> Option<bool>;

    /// The name of the interface with this index, where the sockets are; none if there is none, or that cannot be found
    /// out now. For the slow path only.
    fn interface_name(&self, ifindex: u32) -> Option<String>;

    /// The index of the interface of this name, as [`Backend::interface_name`].
    fn interface_index(&self, name: &str) -> Option<u32>;

    /// The host's own IPv6 addresses; none if they cannot be found out now. For the slow path only: the kernel is asked.
    fn own_v6(&self) -> Option<HashSet<IpAddr>>;
}

/// The kernel of this host.
pub struct KernelBackend {
    tun: tun::TunDevice,
    sockets: usize,
    udp_offloads: udp::UdpOffloads,
}

impl KernelBackend {
    /// Takes the TUN device that the engine is to serve; each address family is to have up to
    /// `sockets` sockets, with these of the kernel's offloads.
    pub fn new(tun: tun::TunDevice, sockets: usize, udp_offloads: udp::UdpOffloads) -> Self {
        Self { tun, sockets, udp_offloads }
    }
}

impl Backend for KernelBackend {
    type Tun = tun::TunDevice;
    type Socket = udp::UdpSocket;

    fn tun(&self) -> &tun::TunDevice {
        &self.tun
    }

    fn bind(&self, port: u16, mark: u32) -> io::Result<Sockets<udp::UdpSocket>> {
        let pair = udp::bind_pair(port, mark, self.sockets, self.udp_offloads)?;
        let sockets = Sockets { v4: pair.v4, v6: pair.v6, port: pair.port };
        if [&sockets.v4, &sockets.v6].into_iter().any(|family| (1..self.sockets).contains(&family.len())) {
            tracing::info!("port {}: the system does not give it several sockets; going on with one", sockets.port);
        }
        Ok(sockets)
    }

    fn set_mark(&self, sockets: &Sockets<udp::UdpSocket>, mark: u32) -> io::Result<()> {
        sockets.v4.iter().chain(&sockets.v6).try_for_each(|socket| socket.set_mark(mark))
    }

    fn now(&self) -> Now {
        let (boot, wall) = clock::now();
        Now { boot: Boottime(boot), wall }
    }

    fn boottime(&self) -> Boottime {
        Boottime(clock::boottime())
    }

    fn suspended(&self) -> Duration {
        clock::suspended()
    }

    fn rest(&self, time: Duration) {
        thread::sleep(time);
    }

    fn fill(&self, bytes: &mut [u8]) {
        random::fill(bytes);
    }

    fn source_addr_is_valid(&self, to: IpAddr, from: udp::PacketInfo, mark: u32) -> Option<bool> {
        match link::egress(to, from.addr, mark) {
            Err(error) if link::is_unanswered(&error) => None,
            // There is no route, or the address is not ours.
            egress => Some(egress.is_ok_and(|ifindex| ifindex == from.ifindex)),
        }
    }

    fn own_v6(&self) -> Option<HashSet<IpAddr>> {
        match link::addresses_v6() {
            Err(error) if link::is_unanswered(&error) => None,
            // A kernel without IPv6 has none.
            addresses => Some(addresses.unwrap_or_default()),
        }
    }

    fn interface_name(&self, ifindex: u32) -> Option<String> {
        link::name_of(ifindex).ok()
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        link::index_of(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_a_socket_of_each_family_that_there_is() {
        let sockets = Sockets { v4: vec!["first", "second"], v6: vec![], port: 51820 };
        let (v4, v6) = ("192.0.2.1:1".parse().unwrap(), "[2001:db8::1]:1".parse().unwrap());
        let chosen: Vec<_> = (0..4).map(|queue| *sockets.towards(v4, queue).unwrap()).collect();
        assert_eq!(chosen, ["first", "second", "first", "second"]);
        assert!((0..4).all(|queue| sockets.towards(v6, queue).is_none()));
    }
}
