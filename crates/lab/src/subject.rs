//! A subject of measurement: a WireGuard daemon known by its command, or no tunnel at all; and the tunnel
//! that it makes between the two hosts.
//!
//! A daemon follows wireguard-go's conventions: `COMMAND -f IFACE` stays in the foreground, answers on
//! `/var/run/wireguard/IFACE.sock`, and ends on SIGTERM, taking its interface along.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_control::client::{AskError, Client};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;

use crate::error::Doing;
use crate::hosts::{Host, Pair};
use crate::ping::{self, Probes};
use crate::usage::Usage;
use crate::{Error, Result};

/// The MTU of every tunnel: what wg-quick gives one over Ethernet.
pub const MTU: u32 = 1420;

/// The UDP port of both daemons.
pub const LISTEN_PORT: u16 = 51820;

/// Where a command wants the interface's name, when it is not last.
const INTERFACE: &str = "{iface}";

/// How long a daemon may take to start, to open its port, to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a handshake may take, with one initiation lost.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(12);

/// Time between two looks at something that should happen soon.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A host's keys, made for one run and known to both hosts. Of no worth outside the lab.
#[derive(Clone)]
pub struct KeyPair {
    /// The private key.
    pub private: SecretKey,
    /// The public key that belongs to it.
    pub public: PublicKey,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// What it is called in the tables.
    pub name: String,
    /// The daemon's command without the interface; none for no tunnel.
    pub command: Option<Vec<String>>,
}

impl Subject {
    /// No tunnel: the bare wire.
    #[must_use]
    pub fn wire() -> Self {
        Self { name: "no tunnel".into(), command: None }
    }

    /// A daemon by its command, words separated by blanks. The interface goes where `{iface}` stands; without
    /// that, `-f IFACE` is added.
    #[must_use]
    pub fn daemon(name: &str, command: &str) -> Self {
        Self { name: name.into(), command: Some(command.split_whitespace().map(str::to_owned).collect()) }
    }

    /// The daemon in a file.
    #[must_use]
    pub fn file(name: &str, file: &Path) -> Self {
        Self { name: name.into(), command: Some(vec![file.to_string_lossy().into_owned()]) }
    }

    /// The newest wireguard-go on PATH or in `~/go/bin`, where `go install` puts it under the name
    /// `wireguard`.
    #[must_use]
    pub fn wireguard_go() -> Option<Self> {
        let found = places().flat_map(|place| ["wireguard-go", "wireguard"].map(|name| place.join(name)));
        let versions = found.filter_map(|file| {
            let version = version(&file)?;
            // Versions are v0.0.DATE: the greatest text is the newest.
            version.starts_with("wireguard-go ").then_some((version, file))
        });
        versions.max().map(|(_, file)| Self::file("wireguard-go", &file))
    }

    /// boringtun-cli on PATH or in `~/.cargo/bin`.
    #[must_use]
    pub fn boringtun() -> Option<Self> {
        let file = places().map(|place| place.join("boringtun-cli")).find(|file| file.is_file())?;
        // As root it would give up the right to its own interface.
        Some(Self::daemon("boringtun", &format!("{} --disable-drop-privileges", file.display())))
    }

    /// The first line that the daemon prints for `--version`.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        version(Path::new(self.command.as_ref()?.first()?))
    }

    /// The command line for `interface`, or none for no tunnel.
    fn command_line(&self, interface: &str) -> Option<Vec<String>> {
        let words = self.command.as_ref()?;
        let mut line: Vec<_> = words.iter().map(|word| word.replace(INTERFACE, interface)).collect();
        if line == *words {
            line.extend(["-f".into(), interface.into()]);
        }
        Some(line)
    }
}

/// A host's addresses, one of either family.
type Addresses = (Ipv4Addr, Ipv6Addr);

/// The way from the left host to the right one: a tunnel, or the wire.
#[derive(Debug)]
pub struct Way<'a> {
    hosts: &'a Pair,
    daemons: Vec<Daemon<'a>>,
    /// From the first packet into the tunnel to its answer, handshake included; none without a tunnel.
    pub first_answer: Option<Duration>,
}

impl<'a> Way<'a> {
    /// The left host's addresses inside a tunnel.
    pub const LEFT: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 0, 0, 1), Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 1));
    /// The right host's addresses inside a tunnel.
    pub const RIGHT: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 0, 0, 2), Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 2));

    /// Brings `subject` up between `hosts` and waits for its handshake. The keys are the left host's and the
    /// right host's.
    ///
    /// # Errors
    ///
    /// [`Error::Subject`] when the daemon does not start, refuses its configuration or never shakes hands,
    /// with its own last words.
    pub fn up(subject: &Subject, hosts: &'a Pair, keys: &[KeyPair; 2]) -> Result<Self> {
        let mut way = Self { hosts, daemons: Vec::new(), first_answer: None };
        if subject.command.is_none() {
            return Ok(way);
        }
        for host in [&hosts.left, &hosts.right] {
            way.daemons.push(Daemon::start(subject, host)?);
        }
        let [left, right] = keys;
        way.configure(0, (left, Self::LEFT), (right, Self::RIGHT, Pair::RIGHT.0))?;
        way.configure(1, (right, Self::RIGHT), (left, Self::LEFT, Pair::LEFT.0))?;
        way.first_answer = Some(way.shake_hands(&subject.name)?);
        Ok(way)
    }

    /// The right host's IPv4 address by this way.
    #[must_use]
    pub fn to(&self) -> IpAddr {
        IpAddr::V4(if self.daemons.is_empty() { Pair::RIGHT.0 } else { Self::RIGHT.0 })
    }

    /// What the daemons have used so far, left and right; nothing without a tunnel.
    ///
    /// # Errors
    ///
    /// When one of them has died.
    pub fn usage(&self) -> Result<Vec<Usage>> {
        let used = |daemon: &Daemon<'_>| {
            Usage::of(daemon.process.id()).map_err(|_| {
                let (interface, words) = (daemon.interface(), daemon.last_words());
                Error::Subject(format!("the daemon of {interface} died{words}"))
            })
        };
        self.daemons.iter().map(used).collect()
    }

    /// What the left host's daemon says about its interface; nothing without a tunnel.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn device(&self) -> Result<Option<DeviceState>> {
        self.daemons.first().map(Daemon::device).transpose()
    }

    /// Ends both daemons and checks that they and their interfaces are gone.
    ///
    /// # Errors
    ///
    /// [`Error::Subject`] when one does not end in time or leaves its interface behind.
    pub fn down(mut self) -> Result<()> {
        self.daemons.drain(..).try_for_each(Daemon::stop)
    }

    /// Gives a daemon its key and its peer, and its interface the addresses.
    fn configure(
        &self,
        daemon: usize,
        (own, (v4, v6)): (&KeyPair, Addresses),
        (peer, inside, outside): (&KeyPair, Addresses, Ipv4Addr),
    ) -> Result<()> {
        let allowed = [(IpAddr::V4(inside.0), 32), (IpAddr::V6(inside.1), 128)];
        let mut update = PeerUpdate::new(peer.public);
        update.endpoint = Some(SocketAddr::from((outside, LISTEN_PORT)));
        update.allowed_ips = allowed.map(|(addr, cidr)| AllowedIp { add: true, addr, cidr }).into();
        let daemon = &self.daemons[daemon];
        daemon.set(&DeviceUpdate {
            private_key: Some(own.private.clone()),
            listen_port: Some(LISTEN_PORT),
            peers: vec![update],
            ..DeviceUpdate::default()
        })?;
        let (host, interface) = (daemon.host, daemon.interface());
        host.ip(&format!("link set {interface} mtu {MTU} up"))?;
        host.ip(&format!("addr add {v4}/24 dev {interface}"))?;
        if self.hosts.has_ipv6 {
            host.ip(&format!("addr add {v6}/64 dev {interface} nodad"))?;
        }
        Ok(())
    }

    /// Pings until an answer comes, which takes a handshake.
    fn shake_hands(&self, name: &str) -> Result<Duration> {
        // A daemon opens its UDP port some time after its interface went up. An initiation that comes
        // before is lost, and the next one is sent only after REKEY_TIMEOUT, 5 s.
        for daemon in &self.daemons {
            daemon.await_port(name)?;
        }
        let start = Instant::now();
        let first = Probes { count: 1, pause: Duration::ZERO, patience: Duration::from_millis(200) };
        let to = self.to();
        while self.hosts.left.inside(|| ping::run(to, &first))?.answered == 0 {
            if start.elapsed() > HANDSHAKE_PATIENCE {
                let words: String = self.daemons.iter().map(Daemon::last_words).collect();
                let said = format!("{name} answered no ping within {HANDSHAKE_PATIENCE:?}{words}");
                return Err(Error::Subject(said));
            }
        }
        let time = start.elapsed();
        // The right host's daemon knows of the handshake by the first data, which the answer proves.
        for daemon in &self.daemons {
            if daemon.device()?.peers.iter().all(|peer| peer.last_handshake.is_zero()) {
                let interface = daemon.interface();
                return Err(Error::Subject(format!("{name} tells of no handshake on {interface}")));
            }
        }
        Ok(time)
    }
}

/// A running daemon. Dropping it kills it.
#[derive(Debug)]
struct Daemon<'a> {
    host: &'a Host,
    process: Child,
    log: PathBuf,
}

impl<'a> Daemon<'a> {
    fn start(subject: &Subject, host: &'a Host) -> Result<Self> {
        let interface = host.interface();
        let line = subject.command_line(interface.as_str()).unwrap_or_default();
        let [program, arguments @ ..] = &line[..] else {
            return Err(Error::Refused(format!("{} has no command", subject.name)));
        };
        let log = PathBuf::from(format!("/run/{interface}.log"));
        let output = || File::options().create(true).append(true).open(&log).map(Stdio::from);
        let opening = || format!("opening {}", log.display());
        let mut command = Command::new(program);
        command.args(arguments).env("WG_PROCESS_FOREGROUND", "1");
        command.stdout(output().doing(opening)?).stderr(output().doing(opening)?);
        let process = host.spawn(&mut command)?;
        let mut daemon = Self { host, process, log };
        daemon.await_socket(&subject.name)?;
        Ok(daemon)
    }

    fn interface(&self) -> &'a InterfaceName {
        self.host.interface()
    }

    fn connect(&self) -> io::Result<Client> {
        Client::connect(Path::new(socket::DIRECTORY), self.interface())
    }

    fn device(&self) -> Result<DeviceState> {
        let state = self.connect().map_err(AskError::from).and_then(|mut client| client.get());
        state.map_err(|error| Error::Subject(format!("the daemon of {} tells nothing: {error}", self.interface())))
    }

    fn set(&self, update: &DeviceUpdate) -> Result<()> {
        let done = self.connect().map_err(AskError::from).and_then(|mut client| client.set(update));
        done.map_err(|error| Error::Subject(format!("the daemon of {} takes no settings: {error}", self.interface())))
    }

    /// Waits until the daemon answers on its socket.
    fn await_socket(&mut self, name: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.connect().is_err() {
            if let Some(status) = self.ended()? {
                let words = self.last_words();
                return Err(Error::Subject(format!("{name} ended at once ({status}){words}")));
            }
            if Instant::now() > end {
                let words = self.last_words();
                return Err(Error::Subject(format!("{name} opened no socket within {PATIENCE:?}{words}")));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Waits until somebody on its host listens on [`LISTEN_PORT`].
    fn await_port(&self, name: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.host.inside(|| Ok(has_udp_port(LISTEN_PORT)))? {
            if Instant::now() > end {
                let words = self.last_words();
                return Err(Error::Subject(format!(
                    "{name} does not listen on UDP port {LISTEN_PORT} after {PATIENCE:?}{words}"
                )));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn stop(mut self) -> Result<()> {
        let interface = self.interface();
        if let Some(pid) = rustix::process::Pid::from_raw(self.process.id().cast_signed()) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .doing(|| format!("ending the daemon of {interface}"))?;
        }
        let end = Instant::now() + PATIENCE;
        while self.ended()?.is_none() {
            if Instant::now() > end {
                let words = self.last_words();
                return Err(Error::Subject(format!("it did not end within {PATIENCE:?} of SIGTERM{words}")));
            }
            thread::sleep(LOOK_AGAIN);
        }
        if self.host.ip(&format!("link show dev {interface}")).is_ok() {
            return Err(Error::Subject(format!("it ended and left {interface} behind")));
        }
        Ok(())
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let interface = self.interface();
        self.process.try_wait().doing(|| format!("looking after the daemon of {interface}"))
    }

    /// The last line that the daemon wrote, as the end of a sentence.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().map(str::trim).rfind(|line| !line.is_empty());
        last.map(|line| format!("; its last words: {line}")).unwrap_or_default()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // A killed daemon leaves its socket; the log belongs to one daemon only.
        let _ = fs::remove_file(socket::path(Path::new(socket::DIRECTORY), self.interface()));
        let _ = fs::remove_file(&self.log);
    }
}

/// Whether a UDP socket of the calling thread's host is bound to `port`.
fn has_udp_port(port: u16) -> bool {
    let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    ["udp", "udp6"].iter().any(|name| lists_port(&read(name), port))
}

/// Whether a table in the format of `/proc/net/udp` has `port` as a local port.
fn lists_port(table: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end)))
}

/// The folders in which programs are looked for.
fn places() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let own = home.into_iter().flat_map(|home| [home.join("go/bin"), home.join(".cargo/bin")]);
    std::env::split_paths(&path).collect::<Vec<_>>().into_iter().chain(own)
}

fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_goes_last_unless_the_command_says_where() {
        let line = |command| Subject::daemon("x", command).command_line("wg-left").unwrap();
        assert_eq!(line("wireguard-go"), ["wireguard-go", "-f", "wg-left"]);
        assert_eq!(line("run --dev={iface} -v"), ["run", "--dev=wg-left", "-v"]);
        assert_eq!(Subject::wire().command_line("wg-left"), None);
    }

    #[test]
    fn a_port_is_found_among_local_ports_only() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n  \
             612: 00000000:CA6C 020000C0:1F90 07 00000000:00000000 00:00000000 00000000     0\n";
        assert!(lists_port(table, 51820));
        assert!(!lists_port(table, 8080));
        assert!(!lists_port("", 51820));
    }

    #[test]
    fn a_program_that_is_not_there_has_no_version() {
        assert_eq!(Subject::daemon("x", "/nonexistent/wireguard-go").version(), None);
        assert_eq!(Subject::wire().version(), None);
    }
}
