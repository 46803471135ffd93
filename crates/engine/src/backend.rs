//! What the engine needs of the world: a TUN device, sockets, time and randomness.
//!
//! [`Kernel`] is the real one. Tests bring their own, with a clock that they turn by hand.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use linerate_netio::{clock, link, random, tun, udp};
use linerate_protocol::{Boottime, Now};

/// A socket for each address family that the host has, on one port.
pub struct Sockets<S> {
    /// The IPv4 socket; none where the host has no IPv4.
    pub v4: Option<S>,
    /// The IPv6 socket; none where the host has no IPv6.
    pub v6: Option<S>,
    /// The port that both are bound to, in host byte order.
    pub port: u16,
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

    /// Fills `bytes` with unpredictable ones.
    fn fill(&self, bytes: &mut [u8]);

    /// Whether a datagram to `to` may still leave from the address that the peer wrote to: the
    /// address is the host's own, and the route to `to` leads out where the peer's packet came in.
    /// For the slow path only: the kernel is asked.
    fn source_holds(&self, to: IpAddr, from: udp::Local, mark: u32) -> bool;
}

/// The kernel of this host.
pub struct Kernel {
    tun: tun::Device,
    udp_offloads: udp::UdpOffloads,
}

impl Kernel {
    /// Takes the TUN device that the engine is to serve, and what its sockets are to have of the
    /// kernel's offloads.
    pub fn new(tun: tun::Device, udp_offloads: udp::UdpOffloads) -> Self {
        Self { tun, udp_offloads }
    }
}

impl Backend for Kernel {
    type Tun = tun::Device;
    type Socket = udp::UdpSocket;

    fn tun(&self) -> &tun::Device {
        &self.tun
    }

    fn bind(&self, port: u16, mark: u32) -> io::Result<Sockets<udp::UdpSocket>> {
        let pair = udp::bind_pair(port, mark, self.udp_offloads)?;
        Ok(Sockets { v4: pair.v4, v6: pair.v6, port: pair.port })
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

    fn fill(&self, bytes: &mut [u8]) {
        random::fill(bytes);
    }

    /// As the kernel module does: an IPv4 source is dropped when it is no longer ours or when
    /// its route uses another interface; an IPv6 source only when it is no longer ours (socket.c,
    /// send4 and send6).
    fn source_holds(&self, to: IpAddr, from: udp::Local, mark: u32) -> bool {
        match to {
            IpAddr::V4(_) => link::egress(to, from.addr, mark).is_ok_and(|ifindex| ifindex == from.ifindex),
            IpAddr::V6(_) => link::holds_address(from.addr).unwrap_or(false),
        }
    }
}
