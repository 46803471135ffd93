//! The engine's interface to the system: a TUN device, sockets, clocks and randomness.
//!
//! [`KernelBackend`] is the real one. Tests have one in memory, with a simulated clock.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use linerate_netio::udp::{self, BoundSockets};
use linerate_netio::{clock, link, random, tun};
use linerate_protocol::{Boottime, Now};

use crate::device::Device;
use crate::embedder::{Embedder, Event};

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

    /// How long the machine has been suspended since boot, to a fraction of a second; sessions are renewed when that
    /// grows.
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

    /// Tells the program that the engine runs inside of.
    fn notify(&self, _: Event) {}
}

/// The host's kernel.
pub struct KernelBackend {
    tun: Device,
    sockets: usize,
    udp_offloads: udp::UdpOffloads,
    embedder: Option<Arc<dyn Embedder>>,
    is_private: bool,
}

impl KernelBackend {
    /// A backend with this TUN device and up to `sockets` sockets for each address family; inside of `embedder`, if
    /// that is not the daemon. With a device that `is_private`, the kernel is asked no questions.
    pub fn new(
        tun: Device,
        sockets: usize,
        udp_offloads: udp::UdpOffloads,
        embedder: Option<Arc<dyn Embedder>>,
        is_private: bool,
    ) -> Self {
        Self { tun, sockets, udp_offloads, embedder, is_private }
    }

    /// Whether the engine runs inside of another program than the daemon.
    pub fn is_embedded(&self) -> bool {
        self.embedder.is_some()
    }

    /// Whether the kernel may not be asked about the network: whoever handed the device over tells of changes, or the
    /// process has given the right up.
    fn is_told(&self) -> bool {
        self.is_private || self.tun.ifindex().is_none()
    }
}

impl Backend for KernelBackend {
    type Tun = Device;
    type Socket = udp::UdpSocket;

    fn tun(&self) -> &Device {
        &self.tun
    }

    fn bind(&self, port: u16, mark: u32) -> io::Result<BoundSockets<udp::UdpSocket>> {
        let protect =
            |socket: BorrowedFd<'_>| self.embedder.as_ref().map_or(Ok(()), |embedder| embedder.protect(socket));
        let sockets = udp::bind_all(port, mark, self.sockets, self.udp_offloads, &protect)?;
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
        // A phone is suspended whenever it is not used; like the kernel module there (device.c, wg_pm_notification), an
        // app keeps its sessions.
        if self.embedder.is_some() { Duration::ZERO } else { clock::suspended() }
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

    fn notify(&self, event: Event) {
        self.embedder.iter().for_each(|embedder| embedder.notify(event));
    }
}
