//! A tunnel between the two ends of a [`Testbed`], or its absence: brings a subject up, waits for its first answer,
//! takes it down again.
//!
//! Whatever the subject, the addresses, the MTU and the routes are the lab's, the same for all.

mod kinds;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::DeviceState;
use linerate_probe::sockets;
use linerate_probe::usage::Usage;

use crate::daemon::Daemon;
use crate::hosts::Host;
use crate::ping::{self, Probes};
use crate::subject::{KeyPair, Kind, LISTEN_PORT, MTU, Subject};
use crate::topology::{AddressFamily, Addresses, Network, Testbed, flag, prefix_length};
use crate::{Error, Result};
use kinds::{Folder, configure_kernel};

/// How long the first answer may take: some initiations may be lost, and some subjects take seconds to agree.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How the first answer is waited for.
const FIRST: Probes = Probes { count: 1, pause: Duration::ZERO, timeout: Duration::from_millis(200) };

/// A network's address and the length of its prefix.
type Prefix = (IpAddr, u8);

/// The path from the client to the server: a tunnel, or the cable.
#[derive(Debug)]
pub struct Tunnel<'a> {
    testbed: &'a Testbed,
    subject: Subject,
    /// The server's addresses on this path.
    to: Addresses,
    // Dropped in this order: the daemons, the changes of the hosts, their files.
    daemons: Vec<Daemon<'a>>,
    undo: Vec<Undo<'a>>,
    folder: Option<Folder>,
    /// From starting a daemon to an interface that takes settings, the slower end's; none where nothing starts.
    pub start_time: Option<Duration>,
    /// From the first packet into the tunnel to its answer, handshake included; none without a tunnel.
    pub first_answer: Option<Duration>,
}

impl<'a> Tunnel<'a> {
    /// The addresses of the two ends inside a tunnel.
    pub const INSIDE: [Addresses; 2] = [Network::TUNNEL.host(1), Network::TUNNEL.host(2)];

    /// Brings `subject` up between the ends of `testbed`, its own datagrams by the family `outside`, and waits for
    /// its first answer. The keys are the ends'.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when this network is not for the subject, or the kernel lacks IPv6;
    /// [`Error::Subject`] when a daemon does not start, refuses its settings or never answers, with the last
    /// line that it wrote.
    pub fn up(subject: &Subject, testbed: &'a Testbed, keys: &[KeyPair; 2], outside: AddressFamily) -> Result<Self> {
        if let Some(reason) = testbed.refuses(subject) {
            return Err(Error::Refused(reason));
        }
        if outside == AddressFamily::V6 && !testbed.has_ipv6() {
            return Err(Error::Refused("this kernel has no IPv6".into()));
        }
        let mut tunnel = Self {
            testbed,
            subject: subject.clone(),
            to: if testbed.behind().is_some() || subject.kind == Kind::Wire {
                testbed.servers()
            } else {
                Self::INSIDE[1]
            },
            daemons: Vec::new(),
            undo: Vec::new(),
            folder: None,
            start_time: None,
            first_answer: None,
        };
        match &subject.kind {
            Kind::Wire => {
                tunnel.use_cable()?;
                return Ok(tunnel);
            }
            Kind::Daemon { .. } => tunnel.start_daemons(subject, keys, outside)?,
            Kind::KernelWireGuard => tunnel.make_wireguard(keys, outside)?,
            Kind::Esp(suite) => tunnel.make_esp(*suite, outside)?,
            Kind::Commands(commands) => tunnel.run_commands(commands, outside)?,
        }
        tunnel.first_answer = Some(tunnel.await_answer()?);
        Ok(tunnel)
    }

    /// The server's address on this path.
    #[must_use]
    pub fn to(&self, inside: AddressFamily) -> IpAddr {
        self.to.of(inside)
    }

    /// What the daemons have used so far, the client's end first; nothing where the kernel does the work.
    ///
    /// # Errors
    ///
    /// When one of them has died, with the last line that it wrote.
    pub fn usage(&self) -> Result<Vec<Usage>> {
        self.daemons.iter().map(Daemon::usage).collect()
    }

    /// The daemons' processes, the client's end first; none where the kernel does the work.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.daemons.iter().map(Daemon::pid).collect()
    }

    /// What the daemon at that end reports about its interface; nothing from subjects without a configuration
    /// socket.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn device(&self, end: usize) -> Result<Option<DeviceState>> {
        self.uapi_daemon(end).map(Daemon::device).transpose()
    }

    /// The counters of the daemon at that end; nothing from daemons other than linerated.
    #[must_use]
    pub fn counters(&self, end: usize) -> Option<Vec<(String, u64)>> {
        self.uapi_daemon(end)?.counters()
    }

    /// Datagrams so far that the tunnel's own sockets at both ends had no room for.
    ///
    /// # Errors
    ///
    /// When a host cannot be entered.
    pub fn socket_drops(&self) -> Result<u64> {
        let drops = |host: &Host| host.inside(|| Ok(sockets::drops(LISTEN_PORT)));
        self.testbed.ends().into_iter().map(drops).sum()
    }

    /// Gives that end further settings, such as more peers. The kernel's WireGuard takes additions only.
    ///
    /// # Errors
    ///
    /// When it takes none.
    pub fn add_peers(&self, end: usize, update: &DeviceUpdate) -> Result<()> {
        match (&self.subject.kind, self.uapi_daemon(end)) {
            (Kind::KernelWireGuard, _) => configure_kernel("addconf", self.testbed.ends()[end], update),
            (_, Some(daemon)) => daemon.set(update),
            (_, None) => Err(Error::Refused(format!("{} is no WireGuard: it has no peers", self.subject.name))),
        }
    }

    /// Takes it down and checks that the daemons and their interfaces are gone.
    ///
    /// # Errors
    ///
    /// [`Error::Subject`] when a daemon does not end in time or leaves its interface behind.
    pub fn down(mut self) -> Result<()> {
        self.daemons.drain(..).try_for_each(Daemon::stop)?;
        // In reverse: routes before the addresses that they name.
        self.undo.drain(..).rev().try_for_each(Undo::run)
    }

    /// A WireGuard end's key and its peer.
    fn settings(&self, end: usize, keys: &[KeyPair; 2], outside: AddressFamily) -> DeviceUpdate {
        let mut peer = PeerUpdate::new(keys[1 - end].public);
        peer.endpoint = Some(self.testbed.endpoint(end, outside));
        let reachable = AddressFamily::BOTH.into_iter().flat_map(|family| self.reachable(end, family));
        peer.allowed_ips = reachable.map(|(addr, cidr)| AllowedIp { add: true, addr, cidr }).collect();
        DeviceUpdate {
            private_key: Some(keys[end].private.clone()),
            listen_port: Some(LISTEN_PORT),
            peers: vec![peer],
            ..DeviceUpdate::default()
        }
    }

    /// What that end reaches through the tunnel: the other end, and the network behind it if it is the gateway.
    fn reachable(&self, end: usize, family: AddressFamily) -> Vec<Prefix> {
        let mut reachable = vec![single(Self::INSIDE[1 - end].of(family))];
        if end == 0 {
            reachable.extend(self.testbed.behind().map(|network| network.prefix(family)));
        }
        reachable
    }

    /// Gives the tunnel's interface at that end its addresses, MTU and routes. They go with the interface.
    fn give_addresses(&self, end: usize) -> Result<()> {
        let host = self.testbed.ends()[end];
        let interface = host.interface();
        host.ip(&format!("link set {interface} mtu {MTU} up"))?;
        for &family in self.testbed.families() {
            let (own, length) = (Self::INSIDE[end].of(family), prefix_length(family));
            let nodad = if family == AddressFamily::V6 { "nodad" } else { "" };
            host.ip(&format!("addr add {own}/{length} dev {interface} {nodad}"))?;
            for (address, length) in self.reachable(end, family).iter().skip(1) {
                host.ip(&format!("{} route add {address}/{length} dev {interface}", flag(family)))?;
            }
        }
        Ok(())
    }

    fn add_route(&mut self, end: usize, family: AddressFamily, route: &str) -> Result<()> {
        let flag = flag(family);
        self.apply(self.testbed.ends()[end], &format!("{flag} route add {route}"), &format!("{flag} route del {route}"))
    }

    /// Runs `ip` with the words of `line`, and with those of `undo` when the tunnel goes.
    fn apply(&mut self, host: &'a Host, line: &str, undo: &str) -> Result<()> {
        host.ip(line)?;
        self.undo.push(Undo { host, command: undo.into() });
        Ok(())
    }

    /// The daemon at that end, if it has a configuration socket.
    fn uapi_daemon(&self, end: usize) -> Option<&Daemon<'a>> {
        let has_uapi = matches!(self.subject.kind, Kind::Daemon { .. });
        self.daemons.get(end).filter(|_| has_uapi)
    }

    /// Pings the server until an answer comes, which takes a handshake.
    fn await_answer(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.await_answer_over(AddressFamily::V4)?;
        let time = start.elapsed();
        if matches!(self.subject.kind, Kind::Esp(_)) {
            self.check_esp()?;
        }
        // The far end confirms the handshake by the first data, which the answer proves.
        for end in 0..2 {
            let Some(device) = self.device(end)? else { continue };
            if device.peers.iter().all(|peer| peer.last_handshake.is_zero()) {
                let interface = self.testbed.ends()[end].interface();
                return Err(Error::Subject(format!("{} tells of no handshake on {interface}", self.subject.name)));
            }
        }
        Ok(time)
    }

    /// Pings the server over a family until an answer comes: the kernel may take its time with the routes of IPv6 addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Subject`] when none comes.
    pub fn await_answer_over(&mut self, inside: AddressFamily) -> Result<()> {
        let (start, to) = (Instant::now(), self.to(inside));
        while self.testbed.client().inside(|| ping::run(to, &FIRST))?.answered == 0 {
            self.daemons.iter_mut().try_for_each(Daemon::check_alive)?;
            if start.elapsed() > TIMEOUT {
                let words: String = self.daemons.iter().map(Daemon::last_stderr_line).collect();
                let said = format!("{} answered no ping within {TIMEOUT:?}{words}", self.subject.name);
                return Err(Error::Subject(said));
            }
        }
        Ok(())
    }
}

/// A command that reverts a change of a host's kernel. Dropping it runs it.
#[derive(Debug)]
struct Undo<'a> {
    host: &'a Host,
    /// The arguments of `ip`; empty once they were run.
    command: String,
}

impl Undo<'_> {
    fn run(mut self) -> Result<()> {
        self.host.ip(&std::mem::take(&mut self.command))
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.command.is_empty() {
            let _ = self.host.ip(&self.command);
        }
    }
}

/// An address as a prefix of its own.
fn single(address: IpAddr) -> Prefix {
    (address, if address.is_ipv4() { 32 } else { 128 })
}
