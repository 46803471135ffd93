//! The engine's interface to the system: a TUN device, sockets, clocks and randomness.
//!
//! [`KernelBackend`] is the real one. Tests have one in memory, with a simulated clock.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use linerate_netio::udp::{self, BoundSockets};
use linerate_netio::{clock, link, random, tun};
use linerate_protocol::{Boottime, Now};

/// The system interface of the engine.
pub trait Backend: Send + Sync + 'static {
    /// The TUN device.
    type Tun: tun::Tun;
    /// A UDP socket.
    type Socket: udp::Socket;

    /// The TUN device.
    fn tun(&self) -> &Self::Tun;

    /// Binds sockets of both families to `port` (0 picks a free one) with the firewall mark `mark`. One of the families
    /// may be missing.
    fn bind(&self, port: u16, mark: u32) -> io::Result<BoundSockets<Self::Socket>>;

    /// Changes the firewall mark of bound sockets.
    fn set_mark(&self, sockets: &BoundSockets<Self::Socket>, mark: u32) -> io::Result<()>;

    /// The time since boot, including suspends, and the wall-clock time.
    fn now(&self) -> Now;

    /// The time since boot alone; called once per batch.
    fn boottime(&self) -> Boottime;

    /// How long the machine has been suspended since boot, to a fraction of a second.
    fn suspended(&self) -> Duration;

    /// Suspends the calling thread.
    fn sleep(&self, time: Duration);

    /// Fills `bytes` with random ones.
    fn fill(&self, bytes: &mut [u8]);

    /// Whether datagrams to `to`, an IPv4 address, may still be sent from the address that the peer wrote to: it
    /// belongs to the host, and the route to `to` uses the interface that the peer's packet came in by. `None` if that
    /// cannot be found out now. For the slow path only: it queries the kernel.
    fn source_addr_is_valid(&self, to: IpAddr, from: udp::PacketInfo, mark: u32) -> Option<bool>;

    /// The name of the interface with this index, in the namespace of the sockets; `None` if there is none, or that
    /// cannot be found out now. For the slow path only.
    fn interface_name(&self, ifindex: u32) -> Option<String>;

    /// The index of the interface with this name; see [`Backend::interface_name`].
    fn interface_index(&self, name: &str) -> Option<u32>;

    /// The host's IPv6 addresses; `None` if they cannot be listed now. For the slow path only: it queries the kernel.
    fn ipv6_addresses(&self) -> Option<HashSet<IpAddr>>;
}

/// The host's kernel.
pub struct KernelBackend {
    tun: tun::TunDevice,
    sockets: usize,
    udp_offloads: udp::UdpOffloads,
}

impl KernelBackend {
    /// A backend with this TUN device and up to `sockets` sockets for each address family.
    pub fn new(tun: tun::TunDevice, sockets: usize, udp_offloads: udp::UdpOffloads) -> Self {
        Self { tun, sockets, udp_offloads }
    }

    /// Whether the kernel may not be asked about the network: whoever handed the device over tells of changes.
    fn is_told(&self) -> bool {
        self.tun.ifindex().is_none()
    }
}

impl Backend for KernelBackend {
    type Tun = tun::TunDevice;
    type Socket = udp::UdpSocket;

    fn tun(&self) -> &tun::TunDevice {
        &self.tun
    }

    fn bind(&self, port: u16, mark: u32) -> io::Result<BoundSockets<udp::UdpSocket>> {
        let sockets = udp::bind_all(port, mark, self.sockets, self.udp_offloads)?;
        if [&sockets.v4, &sockets.v6].into_iter().any(|family| (1..self.sockets).contains(&family.len())) {
            tracing::info!("port {}: the system does not allow several sockets; using one", sockets.port);
        }
        Ok(sockets)
    }

    fn set_mark(&self, sockets: &BoundSockets<udp::UdpSocket>, mark: u32) -> io::Result<()> {
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

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }

    fn fill(&self, bytes: &mut [u8]) {
        random::fill(bytes);
    }

    fn source_addr_is_valid(&self, to: IpAddr, from: udp::PacketInfo, mark: u32) -> Option<bool> {
        if self.is_told() {
            // The network has changed: let the kernel choose anew.
            return Some(false);
        }
        match link::egress(to, from.addr, mark) {
            Err(error) if link::is_transient(&error) => None,
            // No route, or the address is not ours.
            egress => Some(egress.is_ok_and(|ifindex| ifindex == from.ifindex)),
        }
    }

    fn ipv6_addresses(&self) -> Option<HashSet<IpAddr>> {
        if self.is_told() {
            return Some(HashSet::new());
        }
        match link::addresses_v6() {
            Err(error) if link::is_transient(&error) => None,
            // A kernel without IPv6 has none.
            addresses => Some(addresses.unwrap_or_default()),
        }
    }

    fn interface_name(&self, ifindex: u32) -> Option<String> {
        (!self.is_told()).then(|| link::name_of(ifindex).ok())?
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        (!self.is_told()).then(|| link::index_of(name).ok())?
    }
}
