//! A tunnel between the two ends of a [`Testbed`], or its absence: brings a subject up, waits for its first answer,
//! takes it down again.
//!
//! Whatever the subject, the addresses, the MTU and the routes are the lab's, the same for all.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::DeviceState;

use crate::commands::{self, CommandSet};
use crate::daemon::{self, Daemon};
use crate::error::Doing;
use crate::hosts::Host;
use crate::kernel;
use crate::ping::{self, Probes};
use crate::subject::{EspSuite, KeyPair, Kind, LISTEN_PORT, MTU, Subject};
use crate::topology::{Addresses, Family, Network, Testbed, flag, prefix_length};
use crate::usage::Usage;
use crate::{Error, Result};

/// How long the first answer may take: some initiations may be lost, and some subjects take seconds to agree.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How the first answer is waited for.
const FIRST: Probes = Probes { count: 1, pause: Duration::ZERO, timeout: Duration::from_millis(200) };

/// A network's address and the length of its prefix.
type Prefix = (IpAddr, u8);

/// The way from the client to the server: a tunnel, or the cable.
#[derive(Debug)]
pub struct Tunnel<'a> {
    testbed: &'a Testbed,
    subject: Subject,
    /// The server's addresses by this way.
    to: Addresses,
    // The order of these three is that in which they go: the daemons, what they stood on, their files.
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
    /// [`Error::Subject`] when a daemon does not start, refuses its settings or never answers, with its own last
    /// words.
    pub fn up(subject: &Subject, testbed: &'a Testbed, keys: &[KeyPair; 2], outside: Family) -> Result<Self> {
        if let Some(reason) = testbed.refuses(subject) {
            return Err(Error::Refused(reason));
        }
        if outside == Family::V6 && !testbed.has_ipv6() {
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

    /// The server's address by this way.
    #[must_use]
    pub fn to(&self, inside: Family) -> IpAddr {
        self.to.of(inside)
    }

    /// What the daemons have used so far, the client's end first; nothing where the kernel does the work.
    ///
    /// # Errors
    ///
    /// When one of them has died, with its last words.
    pub fn usage(&self) -> Result<Vec<Usage>> {
        self.daemons.iter().map(Daemon::usage).collect()
    }

    /// The daemons' processes, the client's end first; none where the kernel does the work.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.daemons.iter().map(Daemon::pid).collect()
    }

    /// What the daemon at that end says about its interface; nothing from subjects without a configuration
    /// socket.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn device(&self, end: usize) -> Result<Option<DeviceState>> {
        self.speaker(end).map(Daemon::device).transpose()
    }

    /// What the daemon at that end counts itself; nothing from daemons other than linerated.
    #[must_use]
    pub fn counters(&self, end: usize) -> Option<Vec<(String, u64)>> {
        self.speaker(end)?.counters()
    }

    /// Datagrams so far that the tunnel's own sockets at both ends had no room for.
    ///
    /// # Errors
    ///
    /// When a host cannot be entered.
    pub fn socket_drops(&self) -> Result<u64> {
        let drops = |host: &Host| host.inside(|| Ok(daemon::drops_at_port(LISTEN_PORT)));
        self.testbed.ends().into_iter().map(drops).sum()
    }

    /// Gives that end further settings, such as more peers. The kernel's WireGuard takes additions only.
    ///
    /// # Errors
    ///
    /// When it takes none.
    pub fn add_peers(&self, end: usize, update: &DeviceUpdate) -> Result<()> {
        match (&self.subject.kind, self.speaker(end)) {
            (Kind::KernelWireGuard, _) => give_wireguard("addconf", self.testbed.ends()[end], update),
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

    /// Where the client has no route to the server by itself.
    fn use_cable(&mut self) -> Result<()> {
        for &family in self.testbed.families() {
            if let Some(network) = self.testbed.behind() {
                let (address, length) = network.prefix(family);
                self.add_route(0, family, &format!("{address}/{length} via {}", self.testbed.next_hop(0).of(family)))?;
            }
        }
        Ok(())
    }

    fn start_daemons(&mut self, subject: &Subject, keys: &[KeyPair; 2], outside: Family) -> Result<()> {
        for host in self.testbed.ends() {
            let line = subject.command_line(host.interface().as_str()).unwrap_or_default();
            let [program, arguments @ ..] = &line[..] else {
                return Err(Error::Refused(format!("{} has no command", subject.name)));
            };
            let mut command = Command::new(program);
            // Debian's wireguard-go would go to the background for want of it.
            command.args(arguments).env("WG_PROCESS_FOREGROUND", "1");
            let mut daemon = Daemon::start(&subject.name, host, &mut command)?;
            let time = daemon.await_socket()?;
            self.start_time = self.start_time.max(Some(time));
            self.daemons.push(daemon);
        }
        for end in 0..2 {
            self.daemons[end].set(&self.settings(end, keys, outside))?;
            self.give_addresses(end)?;
        }
        // A daemon opens its UDP port some time after its interface went up. An initiation that comes before is
        // lost, and the next one is sent only after REKEY_TIMEOUT, 5 s.
        for daemon in &mut self.daemons {
            daemon.await_port(LISTEN_PORT)?;
        }
        Ok(())
    }

    fn make_wireguard(&mut self, keys: &[KeyPair; 2], outside: Family) -> Result<()> {
        for (end, host) in self.testbed.ends().into_iter().enumerate() {
            let interface = host.interface();
            self.apply(host, &format!("link add {interface} type wireguard"), &format!("link del {interface}"))?;
            give_wireguard("setconf", host, &self.settings(end, keys, outside))?;
            self.give_addresses(end)?;
        }
        Ok(())
    }

    fn make_esp(&mut self, suite: EspSuite, outside: Family) -> Result<()> {
        let ends = [0, 1].map(|end| self.testbed.outside(end).of(outside));
        let keys = [kernel::esp_key()?, kernel::esp_key()?];
        for end in 0..2 {
            let host = self.testbed.ends()[end];
            // Pushed first: what follows may fail half-way.
            self.undo.push(Undo { host, command: "xfrm state flush".into() });
            self.undo.push(Undo { host, command: "xfrm policy flush".into() });
            for from in 0..2 {
                let (spi, key) = (0x1000 + from as u32, &keys[from]);
                host.ip(&kernel::add_state(ends[from], ends[1 - from], spi, suite, key))?;
            }
            self.give_addresses_without_interface(end)?;
            for (own, other) in self.selectors(end) {
                host.ip(&kernel::add_policy("out", [own, other], [ends[end], ends[1 - end]]))?;
                for direction in ["in", "fwd"] {
                    host.ip(&kernel::add_policy(direction, [other, own], [ends[1 - end], ends[end]]))?;
                }
            }
        }
        Ok(())
    }

    fn run_commands(&mut self, commands: &CommandSet, outside: Family) -> Result<()> {
        let folder = Folder::make()?;
        let common = self.common_values(&folder, outside);
        self.folder = Some(folder);
        if let Some(prepare) = &commands.prepare {
            let done = self.testbed.client().run(&mut shell(prepare, &common));
            done.map_err(|error| match error {
                Error::Command { said, .. } => {
                    let last = said.lines().last().unwrap_or_default();
                    Error::Subject(format!("{}: its preparation failed: {last}", self.subject.name))
                }
                other => other,
            })?;
        }
        // The server first, so that the client finds it.
        for end in [1, 0] {
            let mut values = common.clone();
            values.extend(self.values(end, outside));
            let mut command = shell(&commands.ends[end], &values);
            self.daemons.insert(0, Daemon::start(&self.subject.name, self.testbed.ends()[end], &mut command)?);
        }
        for end in 0..2 {
            let time = self.daemons[end].await_interface()?;
            self.start_time = self.start_time.max(Some(time));
            self.give_addresses(end)?;
        }
        Ok(())
    }

    /// What a file's commands may ask for at either end.
    fn common_values(&self, folder: &Folder, outside: Family) -> Vec<(&'static str, String)> {
        let family = if outside == Family::V4 { "4" } else { "6" };
        vec![
            ("dir", folder.0.display().to_string()),
            ("port", LISTEN_PORT.to_string()),
            ("mtu", MTU.to_string()),
            ("family", family.into()),
        ]
    }

    /// What they may ask for at one end.
    fn values(&self, end: usize, outside: Family) -> Vec<(&'static str, String)> {
        let [own, peer] = [Self::INSIDE[end], Self::INSIDE[1 - end]];
        vec![
            ("iface", self.testbed.ends()[end].interface().to_string()),
            ("end", ["client", "server"][end].into()),
            ("own_outside", self.testbed.outside(end).of(outside).to_string()),
            ("peer_outside", self.testbed.endpoint(end, outside).ip().to_string()),
            ("own_inside4", own.v4.to_string()),
            ("peer_inside4", peer.v4.to_string()),
            ("own_inside6", own.v6.to_string()),
            ("peer_inside6", peer.v6.to_string()),
        ]
    }

    /// A WireGuard end's key and its peer.
    fn settings(&self, end: usize, keys: &[KeyPair; 2], outside: Family) -> DeviceUpdate {
        let mut peer = PeerUpdate::new(keys[1 - end].public);
        peer.endpoint = Some(self.testbed.endpoint(end, outside));
        let reachable = Family::BOTH.into_iter().flat_map(|family| self.reachable(end, family));
        peer.allowed_ips = reachable.map(|(addr, cidr)| AllowedIp { add: true, addr, cidr }).collect();
        DeviceUpdate {
            private_key: Some(keys[end].private.clone()),
            listen_port: Some(LISTEN_PORT),
            peers: vec![peer],
            ..DeviceUpdate::default()
        }
    }

    /// What that end reaches through the tunnel: the other end, and the network behind it if it is the gateway.
    fn reachable(&self, end: usize, family: Family) -> Vec<Prefix> {
        let mut reachable = vec![single(Self::INSIDE[1 - end].of(family))];
        if end == 0 {
            reachable.extend(self.testbed.behind().map(|network| network.prefix(family)));
        }
        reachable
    }

    /// What ESP connects at that end: each prefix on its side with each on the other.
    fn selectors(&self, end: usize) -> Vec<(Prefix, Prefix)> {
        let mut selectors = Vec::new();
        for &family in self.testbed.families() {
            let others = self.reachable(end, family);
            for own in self.reachable(1 - end, family) {
                selectors.extend(others.iter().map(|&other| (own, other)));
            }
        }
        selectors
    }

    /// Gives the tunnel's interface at that end its addresses, MTU and routes. They go with the interface.
    fn give_addresses(&self, end: usize) -> Result<()> {
        let host = self.testbed.ends()[end];
        let interface = host.interface();
        host.ip(&format!("link set {interface} mtu {MTU} up"))?;
        for &family in self.testbed.families() {
            let (own, length) = (Self::INSIDE[end].of(family), prefix_length(family));
            let nodad = if family == Family::V6 { "nodad" } else { "" };
            host.ip(&format!("addr add {own}/{length} dev {interface} {nodad}"))?;
            for (address, length) in self.reachable(end, family).iter().skip(1) {
                host.ip(&format!("{} route add {address}/{length} dev {interface}", flag(family)))?;
            }
        }
        Ok(())
    }

    /// The same where the tunnel has no interface: the addresses are the host's own, the routes say what is sent
    /// from them, and the policies take it from there.
    fn give_addresses_without_interface(&mut self, end: usize) -> Result<()> {
        let host = self.testbed.ends()[end];
        for &family in self.testbed.families() {
            let own = Self::INSIDE[end].of(family);
            let (address, length) = single(own);
            self.apply(
                host,
                &format!("addr add {address}/{length} dev lo"),
                &format!("addr del {own}/{length} dev lo"),
            )?;
            let neighbour = self.testbed.next_hop(end).of(family);
            for (address, length) in self.reachable(end, family) {
                self.add_route(end, family, &format!("{address}/{length} via {neighbour} src {own} mtu {MTU}"))?;
            }
        }
        Ok(())
    }

    fn add_route(&mut self, end: usize, family: Family, route: &str) -> Result<()> {
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
    fn speaker(&self, end: usize) -> Option<&Daemon<'a>> {
        let speaks = matches!(self.subject.kind, Kind::Daemon { .. });
        self.daemons.get(end).filter(|_| speaks)
    }

    /// Pings the server until an answer comes, which takes a handshake.
    fn await_answer(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let to = self.to(Family::V4);
        while self.testbed.client().inside(|| ping::run(to, &FIRST))?.answered == 0 {
            self.daemons.iter_mut().try_for_each(Daemon::check_alive)?;
            if start.elapsed() > TIMEOUT {
                let words: String = self.daemons.iter().map(Daemon::last_words).collect();
                let said = format!("{} answered no ping within {TIMEOUT:?}{words}", self.subject.name);
                return Err(Error::Subject(said));
            }
        }
        let time = start.elapsed();
        if matches!(self.subject.kind, Kind::Esp(_)) {
            self.check_esp()?;
        }
        // The far end knows of the handshake by the first data, which the answer proves.
        for end in 0..2 {
            let Some(device) = self.device(end)? else { continue };
            if device.peers.iter().all(|peer| peer.last_handshake.is_zero()) {
                let interface = self.testbed.ends()[end].interface();
                return Err(Error::Subject(format!("{} tells of no handshake on {interface}", self.subject.name)));
            }
        }
        Ok(time)
    }

    /// Without its policies everything would go by the cable, unencrypted and answered all the same.
    fn check_esp(&self) -> Result<()> {
        for host in self.testbed.ends() {
            let states = host.run(Command::new("ip").args(["-s", "xfrm", "state"]))?;
            if !kernel::has_carried(&states) {
                let (subject, host) = (&self.subject.name, host.name());
                return Err(Error::Subject(format!(
                    "{subject} carried nothing on the {host}: the answer came without it"
                )));
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

/// A folder that only this user can read. Dropping it removes it.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self> {
        // In the sandbox's own /run: one tunnel has it at a time, and nobody else sees it.
        let place = Path::new("/run/lab-subject");
        fs::DirBuilder::new().mode(0o700).create(place).doing(|| format!("making {}", place.display()))?;
        Ok(Self(place.into()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An address as a prefix of its own.
fn single(address: IpAddr) -> Prefix {
    (address, if address.is_ipv4() { 32 } else { 128 })
}

/// A line for `sh` with the values put in.
fn shell(line: &str, values: &[(&str, String)]) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(commands::fill_in(line, values));
    command
}

/// Has `wg` give the kernel's interface on `host` its settings.
fn give_wireguard(verb: &str, host: &Host, update: &DeviceUpdate) -> Result<()> {
    let interface = host.interface();
    let file = format!("/run/{interface}.conf");
    kernel::write_private(&file, &kernel::configuration(update))?;
    let done = host.run(Command::new("wg").args([verb, interface.as_str(), &file]));
    fs::remove_file(&file).doing(|| format!("removing {file}"))?;
    done.map(drop)
}
