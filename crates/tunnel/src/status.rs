//! `status`: the tunnels of this host, the names of their peers, and whether they work.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use linerate_control::client::{self, TunnelClient};
use linerate_control::endpoint;
use linerate_control::interface::InterfaceName;
use linerate_control::kernel;
use linerate_control::keys::PublicKey;
use linerate_control::printable::for_people;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::limits::Suspension;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::uapi::{NOT_LISTENING, socket};
use linerate_host::state::HostState;
use linerate_host::step::Step;
use linerate_host::{dns, plan};
use rustix::io::Errno;
use serde::Serialize;

use crate::error::Error;
pub use crate::identity::Whereabouts;
use crate::identity::{self, Place, Purpose};
use crate::ledger::{self, Ledger, LedgerError};
use crate::read::{self, ConfigFile};
use crate::snapshot;

/// After this long without a handshake no session is left (REJECT_AFTER_TIME).
const SESSION: Duration = Duration::from_secs(180);

/// The state of a tunnel, as in the output of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub interface: String,
    /// What runs it.
    pub implementation: RunBy,
    /// Why the implementation is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The file that it was brought up from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The UDP port; 0 without one.
    pub listen_port: u16,
    /// The MTU; 0 without an interface.
    pub mtu: u32,
    /// The addresses of the interface.
    pub addresses: Vec<IpNet>,
    /// The interfaces between which and the tunnel the host forwards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateway: Vec<String>,
    /// A hook failed when the tunnel was brought up.
    pub hook_failed: bool,
    /// The interface is set down.
    pub link_down: bool,
    /// It has peers and no private key.
    pub no_private_key: bool,
    /// The interface is up, and its port is in use by another program.
    pub not_listening: bool,
    /// The tunnel's place, as the end of a sentence; `None` if the interface is here under its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Why the tunnel cannot be examined here, and what to do.
    #[serde(skip)]
    pub unexamined: Option<String>,
    /// The interface was renamed, another program has its name, or it was moved and its settings on this host have no effect.
    #[serde(skip)]
    pub misplaced: bool,
    /// What the tunnel has set on this host and is not there any more, each as the command that sets it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// Routing rules of other programs that lead packets for the tunnel's allowed IPs past it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bypassed: Vec<String>,
    /// What its supervisor cannot do at present.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supervisor: Vec<String>,
    /// The peers, the most recent handshake first.
    pub peers: Vec<PeerStatus>,
}

/// What runs a tunnel, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunBy {
    Daemon,
    /// The kernel's module.
    Kernel,
    /// None: the daemon has died.
    Gone,
    /// The tunnel cannot be queried.
    Unknown,
}

/// A peer of a tunnel.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// Its name in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub public_key: String,
    /// Its endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The endpoint as the file has it, where that is a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_name: Option<String>,
    /// Whether it has a session.
    pub health: Health,
    /// How long ago the last handshake was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_since_handshake: Option<u64>,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    pub allowed_ips: Vec<String>,
    /// When it expires, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// How many bytes it may send and receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// How many of them it has used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_used: Option<u64>,
    /// The group of peers that take over from each other, in which it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether it is the one of its group that has the allowed IPs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// Why it is not let in: `expired` or `quota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended: Option<&'static str>,
}

/// Whether a peer has a session.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It has a session.
    Alive,
    /// Its session has expired: there is no traffic, or the peer does not answer.
    Silent,
    /// It has never had a session.
    Never,
}

/// The state of the tunnel of `interface`, or of all tunnels.
///
/// # Errors
/// There is no such tunnel, or the host cannot be read.
pub fn status(interface: Option<&str>) -> Result<Vec<Status>, Error> {
    let cannot_list = |error: ClientError| match error.as_io() {
        Some(error) if is_denied(error) => not_allowed(socket::DIRECTORY),
        _ => Error::CannotQuery(format!("cannot list tunnels: {error}")),
    };
    let daemons = client::daemon_interfaces(socket::DIRECTORY.as_ref()).map_err(cannot_list)?;
    let mut names = kernel::interfaces().map_err(|error| cannot_list(error.into()))?;
    let ledgers = ledger::interfaces(ledger::directory());
    // Users other than root see the daemons only.
    let is_hidden = matches!(&ledgers, Err(LedgerError::Io { error, .. }) if is_denied(error));
    let ledgers =
        if is_hidden { Ok(Vec::new()) } else { ledgers.map_err(|error| Error::CannotQuery(error.to_string())) }?;
    names.extend(ledgers.iter().map(InterfaceName::to_string));
    // A tunnel that was brought up has the name of its ledger, which is that of its socket, whatever its interface is called.
    let has_ledger = |name: &str| names.iter().any(|known| known == name);
    let others: Vec<String> =
        daemons.into_iter().filter(|(socket, _)| !has_ledger(socket)).map(|(_, now)| now).collect();
    names.extend(others);
    names.sort();
    names.dedup();
    names.retain(|name| interface.is_none_or(|interface| name == interface));
    match interface {
        _ if names.is_empty() && is_hidden => return Err(not_allowed(ledger::DIRECTORY)),
        Some(argument) if names.is_empty() => {
            let name = argument.strip_suffix(".conf").and_then(|path| path.rsplit('/').next());
            if let Some(refusal) = argument.parse().ok().and_then(|name| identity::renamed_from(&name)) {
                return Err(refusal);
            }
            let hint = match name {
                Some(name) => format!("this command takes the name of an interface, such as {name}, not of a file"),
                None => format!("`linerate up {argument}` brings it up"),
            };
            return Err(Error::State(format!("there is no tunnel {argument}; {hint}")));
        }
        _ => {}
    }
    let cannot_query = |error: Error| Error::CannotQuery(error.to_string());
    let mut host = snapshot::open().map_err(cannot_query)?;
    let mut state = host.state().map_err(Error::Snapshot).map_err(cannot_query)?;
    if !ledgers.is_empty() {
        state.dns = dns::detect();
        state.interfaces_with_dns = dns::interfaces_with_dns(&state.dns, &state.links);
    }
    for name in ledgers.iter().filter(|name| names.iter().any(|asked| *asked == name.as_str())) {
        let ledger = ledger::read(ledger::directory(), name).ok().flatten();
        state.emptied_tables.extend(ledger.map_or_else(Vec::new, |ledger| host.emptied_tables(&ledger.in_force())));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(side_by_side(&names, |name| of(name, &state, now)))
}

/// Asks for several tunnels at the same time: a daemon that does not respond holds up none of the others.
fn side_by_side<T: Send>(names: &[String], ask: impl Fn(&str) -> T + Sync) -> Vec<T> {
    let ask = &ask;
    names
        .chunks(AT_ONCE)
        .flat_map(|names| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = names.iter().map(|name| scope.spawn(move || ask(name))).collect();
                // A panic of a thread is one of this function.
                let join = |thread: std::thread::ScopedJoinHandle<'_, T>| match thread.join() {
                    Ok(status) => status,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                threads.into_iter().map(join).collect::<Vec<_>>()
            })
        })
        .collect()
}

/// So many tunnels are asked at the same time.
const AT_ONCE: usize = 32;

fn not_allowed(directory: &str) -> Error {
    Error::CannotQuery(format!("permission denied for {directory}; try again as root (sudo)"))
}

fn of(name: &str, state: &HostState, now: Duration) -> Status {
    let ledger = name.parse().ok().and_then(|name| ledger::read(ledger::directory(), &name).ok().flatten());
    let (implementation, device, reason) = match ask(name, ledger.is_some()) {
        Ok((implementation, device)) => (implementation, device, None),
        Err(error) if is_absence(&error) => (RunBy::Gone, DeviceState::default(), None),
        Err(error) if error.as_io().is_some_and(is_denied) => {
            let reason = "permission denied; try again as root (sudo)".to_owned();
            (RunBy::Unknown, DeviceState::default(), Some(reason))
        }
        Err(error) => (RunBy::Unknown, DeviceState::default(), Some(for_people(&error.to_string()))),
    };
    let place = ledger.as_ref().map_or(Place::Here, |ledger| identity::place(ledger, &state.links));
    let file_only = file_only(name, ledger.as_ref());
    let link = state.link(name);
    let here = ledger.as_ref().filter(|_| place == Place::Here);
    let answered = matches!(implementation, RunBy::Daemon | RunBy::Kernel);
    Status {
        interface: name.to_owned(),
        implementation,
        reason,
        file: ledger.as_ref().map(|ledger| ledger.file.display().to_string()),
        listen_port: device.listen_port,
        mtu: link.map_or(0, |link| link.mtu),
        addresses: link.map_or_else(Vec::new, |link| link.addresses.clone()),
        gateway: ledger.as_ref().map_or_else(Vec::new, gateway_devices),
        hook_failed: ledger.as_ref().is_some_and(|ledger| ledger.hook_failed),
        link_down: link.is_some_and(|link| !link.up),
        no_private_key: device.private_key.is_none() && !device.peers.is_empty(),
        not_listening: implementation == RunBy::Daemon && is_not_listening(name, ledger.is_some()),
        misplaced: match &place {
            Place::Renamed(_) | Place::Replaced => true,
            // If a hook moved the interface on purpose, no settings are left here.
            Place::Moved => ledger.as_ref().is_some_and(|ledger| !plan::lost(&ledger.in_force(), state).is_empty()),
            _ => false,
        },
        place: ledger.as_ref().and_then(|ledger| place.description(name, &ledger.identity)),
        unexamined: ledger.as_ref().and_then(|ledger| unexamined(ledger, &place, link.is_some())),
        lost: here.map_or_else(Vec::new, |ledger| lost(ledger, answered.then_some(&device), state)),
        bypassed: here.map_or_else(Vec::new, |ledger| bypassed(ledger, state)),
        supervisor: name.parse().map_or_else(|_| Vec::new(), |name| ledger::troubles(ledger::directory(), &name)),
        peers: peers(&device, &file_only, now),
    }
}

/// Returns why a tunnel cannot be examined here, and what to do. A tunnel that was moved into this network namespace can be
/// examined.
fn unexamined(ledger: &Ledger, place: &Place, has_link: bool) -> Option<String> {
    let name = &ledger.spec.interface;
    match place {
        Place::OtherNetwork if has_link => None,
        Place::Moved => {
            place.description(name, &ledger.identity).map(|place| format!("{name} {place}: run this command there"))
        }
        place => place.refusal(ledger, Purpose::Change("doctor")).map(|why| why.to_string()),
    }
}

/// Lists the rules that lead packets past a tunnel.
fn bypassed(ledger: &Ledger, state: &HostState) -> Vec<String> {
    plan::bypasses(&ledger.in_force(), state).iter().map(ToString::to_string).collect()
}

/// Lists the steps of a tunnel whose effects are gone from the host or the device. Returns none while the link is down:
/// [`Status::link_down`] reports that.
fn lost(ledger: &Ledger, device: Option<&DeviceState>, state: &HostState) -> Vec<String> {
    let is_up = state.link(&ledger.spec.interface).is_some_and(|link| link.up);
    if !is_up || !ledger.complete || !ledger.pending.is_empty() {
        return Vec::new();
    }
    let in_force = ledger.in_force();
    let mut lost: Vec<Step> = plan::lost(&in_force, state).into_iter().cloned().collect();
    lost.extend(device.and_then(|device| ledger.lost_mark(device.fwmark)));
    plan::messages::as_commands(&lost)
}

/// The interfaces of the gateway that the tunnel came up with, or was last reloaded to.
fn gateway_devices(ledger: &Ledger) -> Vec<String> {
    let last = ledger.steps.iter().rev().find_map(|step| match step {
        Step::AddGateway(table) => Some(table.gateway.as_ref()),
        Step::DeleteGateway(_) => Some(None),
        _ => None,
    });
    last.flatten().map_or_else(Vec::new, |open| open.devices.clone())
}

/// Opens a tunnel that has a ledger by the name of its socket, and others by that of their interfaces.
fn open(name: &str, has_ledger: bool) -> Result<TunnelClient, ClientError> {
    let directory = socket::DIRECTORY.as_ref();
    if has_ledger { TunnelClient::open(directory, name) } else { TunnelClient::of_interface(directory, name) }
}

/// The state of a tunnel, and what runs it.
fn ask(name: &str, has_ledger: bool) -> Result<(RunBy, DeviceState), ClientError> {
    let mut tunnel = open(name, has_ledger)?;
    let implementation = if matches!(tunnel, TunnelClient::Kernel(_)) { RunBy::Kernel } else { RunBy::Daemon };
    Ok((implementation, tunnel.get()?))
}

/// Whether a daemon reports that it has no port. Only linerated does. Others close the connection after an unknown
/// request, so this uses a separate one.
fn is_not_listening(name: &str, has_ledger: bool) -> bool {
    let counters = open(name, has_ledger).ok().and_then(|mut tunnel| tunnel.stats().ok());
    counters.is_some_and(|counters| counters.iter().any(|(name, value)| name == NOT_LISTENING && *value > 0))
}

/// Whether an error means that there is no tunnel: no daemon listens, and the kernel module has none.
pub fn is_absence(error: &ClientError) -> bool {
    let Some(error) = error.as_io() else { return false };
    let of_kernel = [Errno::NODEV, Errno::OPNOTSUPP, Errno::PROTONOSUPPORT];
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        || Errno::from_io_error(error).is_some_and(|errno| of_kernel.contains(&errno))
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The settings of a peer that only the file has.
#[derive(Default)]
struct FileOnly {
    /// The peer's name.
    name: Option<String>,
    /// Its endpoint, where that is a name.
    endpoint: Option<String>,
    group: Option<String>,
}

/// The settings of peers that only the file has.
fn file_only(name: &str, ledger: Option<&Ledger>) -> BTreeMap<PublicKey, FileOnly> {
    let file = match ledger {
        Some(ledger) => name.parse().ok().and_then(|name| ConfigFile::read(ledger.file.clone(), name).ok()),
        None => ConfigFile::open(name).ok(),
    };
    let Some(file) = file else { return BTreeMap::new() };
    let mut file_only: BTreeMap<PublicKey, FileOnly> = BTreeMap::new();
    for named in file.named_endpoints() {
        file_only.entry(named.peer).or_default().endpoint = Some(named.to_string());
    }
    for peer in file.contents.peers {
        let only = file_only.entry(peer.public_key).or_default();
        only.name.clone_from(&peer.name);
        only.group = peer.group_name().map(str::to_owned);
    }
    file_only
}

/// The names that the file of a tunnel gives its peers; none if it cannot be read.
pub fn names(file: &Path, interface: &InterfaceName) -> HashMap<PublicKey, String> {
    let file = ConfigFile::read(file.to_owned(), interface.clone());
    let peers = file.map(|file| file.contents.peers).unwrap_or_default();
    peers.into_iter().filter_map(|peer| Some((peer.public_key, peer.name.clone()?))).collect()
}

/// The file that a tunnel was brought up from, or the one that is named after it. It may not exist.
pub fn file(interface: &InterfaceName) -> PathBuf {
    let ledger = ledger::read(ledger::directory(), interface).ok().flatten();
    ledger.map_or_else(|| read::named(interface.as_str()), |ledger| ledger.file)
}

fn peers(device: &DeviceState, file_only: &BTreeMap<PublicKey, FileOnly>, now: Duration) -> Vec<PeerStatus> {
    let peer = |peer: &PeerState| {
        let age = (!peer.last_handshake.is_zero()).then(|| now.saturating_sub(peer.last_handshake));
        let file_only = file_only.get(&peer.public_key);
        PeerStatus {
            name: file_only.and_then(|file_only| file_only.name.clone()),
            public_key: peer.public_key.to_string(),
            endpoint: peer.endpoint.as_ref().map(endpoint::text),
            endpoint_name: file_only.and_then(|file_only| file_only.endpoint.clone()),
            health: match age {
                None => Health::Never,
                Some(age) if age < SESSION => Health::Alive,
                Some(_) => Health::Silent,
            },
            seconds_since_handshake: age.map(|age| age.as_secs()),
            received: peer.rx_bytes,
            sent: peer.tx_bytes,
            allowed_ips: peer.allowed_ips.iter().map(|(address, length)| format!("{address}/{length}")).collect(),
            expires: peer.limits.expires.map(|expires| expires.as_secs()),
            quota: peer.limits.quota,
            group: file_only.and_then(|file_only| file_only.group.clone()),
            active: file_only.and_then(|file_only| file_only.group.as_ref()).map(|_| !peer.allowed_ips.is_empty()),
            quota_used: peer.limits.quota.map(|_| peer.limits.used),
            suspended: peer.limits.suspended.map(Suspension::name),
        }
    };
    let mut peers: Vec<PeerStatus> = device.peers.iter().map(peer).collect();
    // As in `wg show`.
    peers.sort_by_key(|peer| peer.seconds_since_handshake.unwrap_or(u64::MAX));
    peers
}

impl Status {
    /// Whether the tunnel is known to run.
    pub fn is_running(&self) -> bool {
        matches!(self.implementation, RunBy::Daemon | RunBy::Kernel)
    }

    /// Whether its state could not be read.
    pub fn is_unknown(&self) -> bool {
        self.implementation == RunBy::Unknown
    }

    /// Whether the tunnel works, and every peer that has an endpoint, or will have one, has a session; of a group, the one
    /// in use.
    pub fn is_healthy(&self) -> bool {
        let silent = |peer: &PeerStatus| {
            let answers = peer.health == Health::Alive || peer.suspended.is_some() || peer.active == Some(false);
            (peer.endpoint.is_some() || peer.endpoint_name.is_some()) && !answers
        };
        self.is_running() && !self.has_problem() && !self.peers.iter().any(silent)
    }

    /// Whether there is a problem with the tunnel itself rather than with a peer.
    fn has_problem(&self) -> bool {
        let flags = [self.misplaced, self.link_down, self.no_private_key, self.not_listening, self.hook_failed];
        let found = [&self.lost, &self.bypassed, &self.supervisor];
        flags.contains(&true) || found.iter().any(|found| !found.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(key: u8, age: Option<u64>, endpoint: bool) -> PeerState {
        let now = Duration::from_secs(10_000);
        PeerState {
            last_handshake: age.map_or(Duration::ZERO, |age| now - Duration::from_secs(age)),
            endpoint: endpoint.then(|| "192.0.2.1:51820".parse().unwrap()),
            rx_bytes: 1 << 21,
            allowed_ips: (0..5).map(|index| ([10, 0, 0, index].into(), 32)).collect(),
            ..PeerState::new(PublicKey([key; 32]))
        }
    }

    fn example(implementation: RunBy, states: Vec<PeerState>) -> Status {
        let device = DeviceState { listen_port: 51820, peers: states, ..DeviceState::default() };
        let laptop = FileOnly { name: Some("laptop".into()), ..FileOnly::default() };
        let phone = FileOnly {
            name: Some("phone".into()),
            endpoint: Some("phone.example:51820".into()),
            ..FileOnly::default()
        };
        let file_only = BTreeMap::from([(PublicKey([1; 32]), laptop), (PublicKey([3; 32]), phone)]);
        Status {
            interface: "wg0".into(),
            implementation,
            reason: None,
            file: None,
            listen_port: 51820,
            mtu: 1420,
            addresses: vec!["10.0.0.1/24".parse().unwrap()],
            gateway: Vec::new(),
            hook_failed: false,
            link_down: false,
            no_private_key: false,
            not_listening: false,
            place: None,
            unexamined: None,
            misplaced: false,
            lost: Vec::new(),
            bypassed: Vec::new(),
            supervisor: Vec::new(),
            peers: peers(&device, &file_only, Duration::from_secs(10_000)),
        }
    }

    #[test]
    fn a_tunnel_is_healthy_while_every_peer_with_an_endpoint_has_a_session() {
        let is_healthy = |implementation, states| example(implementation, states).is_healthy();
        assert!(is_healthy(RunBy::Daemon, vec![peer(1, Some(179), true), peer(2, None, false)]));
        assert!(!is_healthy(RunBy::Daemon, vec![peer(1, Some(180), true)]));
        assert!(!is_healthy(RunBy::Daemon, vec![peer(1, None, true)]));
        assert!(!is_healthy(RunBy::Gone, vec![]));
        assert!(!is_healthy(RunBy::Unknown, vec![]));
    }

    #[test]
    fn only_a_missing_daemon_counts_as_gone() {
        let io = |errno: Errno| ClientError::Io(errno.into());
        for errno in [Errno::NOENT, Errno::CONNREFUSED, Errno::NODEV, Errno::OPNOTSUPP, Errno::PROTONOSUPPORT] {
            assert!(is_absence(&io(errno)), "{errno}");
        }
        for errno in [Errno::ACCESS, Errno::PERM, Errno::MFILE, Errno::TIMEDOUT, Errno::CONNRESET] {
            assert!(!is_absence(&io(errno)), "{errno}");
        }
    }
}
