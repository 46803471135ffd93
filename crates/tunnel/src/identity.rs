//! Finds the tunnel of a ledger. Its name is not enough: several network namespaces may share one /run, an interface may
//! be renamed or moved, and another daemon may take over the socket of a dead one. A command that went by the name alone
//! would change another tunnel, or forget a running one.
//!
//! A ledger stores the tunnel's [`Identity`]; [`place`] compares it with the host. Each command calls it before it changes
//! anything.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use linerate_control::client;
use linerate_control::interface::InterfaceName;
use linerate_control::kernel::KernelClient;
use linerate_control::tunnel_file::TunnelFile;
use linerate_control::uapi::client::DaemonClient;
use linerate_control::uapi::socket;
use linerate_host::state::Link;
use linerate_host::step::{Implementation, Step};
use linerate_netio::link::index_of;
use linerate_netio::namespace::NetworkNamespace;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::ledger::{self, Ledger, LedgerHead};
use crate::read::ConfigFile;
use crate::{foreign, running, snapshot};

/// Distinguishes a tunnel from others of its name. Ledgers of earlier versions have neither field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The inode of the network namespace in which the tunnel was brought up.
    network: Option<u64>,
    /// The daemon's socket file.
    socket: Option<SocketId>,
}

/// Identifies a socket file; each daemon creates a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SocketId {
    inode: u64,
    /// Creation time in nanoseconds since 1970, where the file system records it: some reuse an inode's number at once.
    made: Option<u64>,
}

impl Identity {
    /// Returns the identity of a tunnel that this process is about to bring up.
    pub(crate) fn of_new() -> Self {
        Self { network: own_network(), socket: None }
    }

    /// Returns this identity with the socket of the daemon that answers for `interface`.
    pub(crate) fn with_daemon(&self, interface: &InterfaceName) -> Self {
        Self { network: self.network, socket: answering(interface) }
    }

    /// Whether the tunnel was brought up in another network namespace than `own`.
    fn is_elsewhere(&self, own: Option<u64>) -> bool {
        differ(self.network, own)
    }

    /// Whether the tunnel was brought up in another network namespace than this process's.
    pub(crate) fn is_of_other_network(&self) -> bool {
        self.is_elsewhere(own_network())
    }

    /// Formats the name of the tunnel's network namespace as ` (NAME)`; empty if no name is known.
    fn at(&self) -> String {
        self.network.and_then(find).map_or_else(String::new, |network| format!(" ({network})"))
    }

    /// Returns the prefix that runs a command in the tunnel's network namespace.
    fn way(&self) -> String {
        self.network.and_then(find).map_or_else(|| "nsenter --net=...".to_owned(), |network| network.way())
    }

    /// Whether the file at the socket's path is known to be another daemon's.
    pub(crate) fn is_socket_of_other(&self, interface: &InterfaceName) -> bool {
        differ(self.socket, socket_file(interface))
    }

    /// Whether the file at the socket's path is known to be the tunnel's daemon's.
    pub(crate) fn has_socket(&self, interface: &InterfaceName) -> bool {
        self.socket.is_some() && self.socket == socket_file(interface)
    }
}

/// The index and identity of a restarted daemon that could not be written into the ledger, as on a full disk.
#[derive(Clone)]
pub(crate) struct Unrecorded {
    pub(crate) index: Option<u32>,
    pub(crate) identity: Identity,
}

impl Unrecorded {
    pub(crate) fn enter(self, ledger: &mut Ledger) {
        (ledger.index, ledger.identity) = (self.index, self.identity);
    }
}

/// The place of a ledger's tunnel, seen from this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The interface is in this network namespace, under the tunnel's name.
    Here,
    /// The interface and the daemon are gone.
    Gone,
    /// The network namespace in which the tunnel was brought up is gone.
    NetworkGone,
    /// The tunnel was brought up in another network namespace, which exists.
    OtherNetwork,
    /// The interface was renamed to this name.
    Renamed(String),
    /// The tunnel runs; its interface is in another network namespace.
    Moved,
    /// Another daemon or another interface has the tunnel's name.
    Replaced,
}

/// The host's side of the comparison in [`placed`].
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The network namespace of this process.
    network: Option<u64>,
    /// Whether the tunnel's own network namespace is another one, and exists.
    is_network_there: bool,
    /// The index of the interface with the tunnel's name.
    index: Option<u32>,
    /// The name of the interface with the ledger's index.
    name: Option<String>,
    /// The socket file of the tunnel's name, if a daemon answers on it.
    socket: Option<SocketId>,
    /// Whether the kernel runs the tunnel in another network namespace.
    is_elsewhere: bool,
}

/// Finds the tunnel of `ledger` on a host with these `links`.
pub(crate) fn place(ledger: &Ledger, links: &[Link]) -> Place {
    let Ok(interface) = ledger.spec.interface.parse::<InterfaceName>() else { return Place::Here };
    place_of(&interface, ledger.implementation, ledger.index, &ledger.identity, links)
}

/// As [`of`], by the head of a ledger.
///
/// # Errors
/// The host cannot be read.
pub(crate) fn of_head(interface: &InterfaceName, ledger: &LedgerHead) -> Result<Place, Error> {
    let links = snapshot::open()?.links().map_err(Error::Snapshot)?;
    Ok(place_of(interface, ledger.implementation, ledger.index, &ledger.identity, &links))
}

/// Tells where a tunnel is, again and again, at little cost: its ledger is read when that has changed, and its daemon is
/// asked for only if its interface is not here.
#[derive(Default)]
pub struct Whereabouts {
    /// The ledger's inode and the time of its last change.
    stamp: Option<(u64, i64, i64)>,
    recorded: Option<(Implementation, Option<u32>, Identity)>,
}

impl Whereabouts {
    /// Where the tunnel is, as the end of a sentence about it; `None` if it is here under its name, or nothing is known.
    pub fn of(&mut self, interface: &InterfaceName) -> Option<String> {
        let file = fs::metadata(ledger::directory().join(format!("{interface}.json"))).ok();
        let stamp = file.map(|file| (file.ino(), file.mtime(), file.mtime_nsec()));
        if stamp != self.stamp {
            let ledger = ledger::read_head(ledger::directory(), interface).ok().flatten();
            self.recorded = ledger.map(|ledger| (ledger.implementation, ledger.index, ledger.identity));
            self.stamp = stamp;
        }
        let (implementation, index, identity) = self.recorded.as_ref()?;
        let is_here = index.is_some() && *index == index_of(interface.as_str()).ok();
        if is_here && !identity.is_of_other_network() {
            return None;
        }
        let links = snapshot::open().ok()?.links().ok()?;
        place_of(interface, *implementation, *index, identity, &links).description(interface.as_str(), identity)
    }
}

fn place_of(
    interface: &InterfaceName,
    implementation: Implementation,
    index: Option<u32>,
    identity: &Identity,
    links: &[Link],
) -> Place {
    let own = own_network();
    // Only tunnels: after a restart of a container, another interface may have the index.
    let with_index = |index| links.iter().find(|link| link.index == index && (link.tun || link.wireguard));
    let mut seen = Seen {
        network: own,
        is_network_there: identity.is_elsewhere(own) && identity.network.and_then(find).is_some(),
        index: named_link(links, interface).map(|link| link.index),
        name: index.and_then(with_index).map(|link| link.name.clone()),
        socket: answering(interface),
        is_elsewhere: false,
    };
    match placed(implementation, index, identity, &seen) {
        // An `up` that was killed has not recorded which interface it made.
        Place::Here if index.is_none() && has_other_key(interface) => Place::Replaced,
        Place::Gone | Place::Replaced if implementation == Implementation::Kernel => {
            seen.is_elsewhere = kernel_tunnel_elsewhere(interface).is_some();
            placed(implementation, index, identity, &seen)
        }
        // One that was moved there and back may have another index.
        Place::Moved if named_link(links, interface).is_some_and(|link| link.tun) && is_only_here(interface) => {
            Place::Here
        }
        place => place,
    }
}

/// Whether the daemon of this name has its interface under this name, and no other network namespace has one of it.
fn is_only_here(interface: &InterfaceName) -> bool {
    let daemons = client::daemon_interfaces(socket::DIRECTORY.as_ref()).unwrap_or_default();
    let has_name = |(socket, now): &(String, String)| socket == interface.as_str() && socket == now;
    daemons.iter().any(has_name) && holder_of(interface.as_str()).is_none()
}

/// Finds the tunnel of `ledger` on this host.
///
/// # Errors
/// The host cannot be read.
pub(crate) fn of(ledger: &Ledger) -> Result<Place, Error> {
    Ok(place(ledger, &snapshot::open()?.links().map_err(Error::Snapshot)?))
}

/// The decision of [`place`], as a pure function of the ledger and the host. Unknown values count as equal.
fn placed(implementation: Implementation, index: Option<u32>, identity: &Identity, seen: &Seen) -> Place {
    let is_own_socket = identity.socket.is_some() && identity.socket == seen.socket;
    if identity.is_elsewhere(seen.network) {
        return if is_own_socket || seen.is_network_there { Place::OtherNetwork } else { Place::NetworkGone };
    }
    let is_own_link = seen.index.is_some() && !differ(index, seen.index);
    let by_daemon = implementation == Implementation::Daemon;
    let renamed = || seen.name.clone().map(Place::Renamed);
    match seen.socket {
        // A daemon and the kernel may each have a tunnel of this name; commands reach the daemon's.
        Some(_) if !by_daemon || differ(identity.socket, seen.socket) => Place::Replaced,
        _ if is_own_link => Place::Here,
        Some(_) if is_own_socket => renamed().unwrap_or(Place::Moved),
        Some(_) => renamed().unwrap_or(if seen.index.is_some() { Place::Replaced } else { Place::Moved }),
        // The index may have changed: it is another namespace's.
        None if seen.is_elsewhere => Place::Moved,
        None => renamed().unwrap_or(if seen.index.is_some() { Place::Replaced } else { Place::Gone }),
    }
}

fn named_link<'a>(links: &'a [Link], interface: &InterfaceName) -> Option<&'a Link> {
    links.iter().find(|link| link.name == interface.as_str())
}

/// Whether both values are known and not equal.
fn differ<T: PartialEq>(left: Option<T>, right: Option<T>) -> bool {
    left.is_some() && right.is_some() && left != right
}

/// The purpose of a command. Its refusal names a remedy for this purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Brings up a new tunnel.
    Up,
    /// Changes the tunnel or its file, by the command of this name.
    Change(&'static str),
}

impl Place {
    /// Whether `step` changes the tunnel's own state, within reach. If the tunnel's network namespace is gone, only state
    /// outside of namespaces is left; equal state in this namespace is another tunnel's.
    pub(crate) fn has(&self, step: &Step) -> bool {
        match self {
            Self::NetworkGone => {
                matches!(step, Step::UnsetDns { .. } | Step::Close(_) | Step::Hook { .. })
            }
            Self::Replaced => !matches!(
                step,
                Step::DeleteLink { .. }
                    | Step::DeleteAddress { .. }
                    | Step::SetMtu { .. }
                    | Step::SetFwmark { .. }
                    | Step::Hook { .. }
            ),
            _ => true,
        }
    }

    /// Returns the error of a command that must not change the tunnel: the tunnel's place, and what to do.
    pub(crate) fn refusal(&self, ledger: &Ledger, purpose: Purpose) -> Option<Error> {
        let name = &ledger.spec.interface;
        let said = self.description(name, &ledger.identity)?;
        let back_up = format!(
            "`linerate down {name}` takes it down, and `linerate up {name}` then brings it up as its file says, hooks included"
        );
        let remedy = match (self, purpose) {
            (Self::OtherNetwork, Purpose::Up) => format!(
                "nothing was changed. `{} linerate down {name}` takes that tunnel down; to run both, give this one another \
                name, as two tunnels of one name need a /run each",
                ledger.identity.way()
            ),
            (Self::OtherNetwork, Purpose::Change(verb)) => {
                format!("nothing was changed. Run `{} linerate {verb} {name}`", ledger.identity.way())
            }
            (Self::Renamed(new), _) => format!(
                "`ip link set dev {new} name {name}` gives the name back (set {new} down first); `linerate down {name}` takes \
                the tunnel down"
            ),
            (Self::Moved, _) => back_up,
            (Self::Replaced, _) => {
                format!(
                    "it is as it was: `linerate down {name}` removes what is left of the other one, and this one only if it \
                     has the private key of the file"
                )
            }
            _ => return None,
        };
        Some(Error::State(format!("{name} {said}; {remedy}")))
    }

    /// Where the tunnel is, as the end of a sentence about it; `None` if it is here, or gone.
    pub(crate) fn description(&self, interface: &str, identity: &Identity) -> Option<String> {
        match self {
            Self::Here | Self::Gone | Self::NetworkGone => None,
            Self::OtherNetwork => Some(format!("belongs to another network namespace{}", identity.at())),
            Self::Renamed(new) => Some(format!("runs, and its interface is called {new}")),
            Self::Moved => {
                let at = holder_of(interface).map_or_else(String::new, |name| format!(" ({name})"));
                Some(format!("runs, and its interface was moved to another network namespace{at}"))
            }
            Self::Replaced => Some("is run by another program than the daemon that `linerate up` started".to_owned()),
        }
    }
}

/// How a network namespace can be reached.
pub(crate) enum Network {
    /// `ip netns` has a name for it.
    Named(String),
    /// By a process in it.
    Process(u32),
}

impl Network {
    /// The beginning of a command in it.
    pub(crate) fn way(&self) -> String {
        match self {
            Self::Named(name) => format!("ip netns exec {name}"),
            Self::Process(pid) => format!("nsenter --net=/proc/{pid}/ns/net"),
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(name) => formatter.write_str(name),
            Self::Process(pid) => write!(formatter, "that of process {pid}"),
        }
    }
}

/// The folder in which `ip netns` keeps named namespaces.
const NAMED: &str = "/run/netns";

fn own_network() -> Option<u64> {
    inode(Path::new("/proc/self/ns/net"))
}

fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|file| file.ino())
}

/// Finds the network namespace of this inode among the named ones and those of the visible processes.
fn find(network: u64) -> Option<Network> {
    let is_it = |path: &Path| inode(path) == Some(network);
    let by_name = named().into_iter().find(|(_, path)| is_it(path)).map(|(network, _)| network);
    by_name.or_else(|| of_processes().find(|(_, path)| is_it(path)).map(|(network, _)| network))
}

/// The namespaces that have names, with the file of each.
fn named() -> Vec<(Network, PathBuf)> {
    let entries = fs::read_dir(NAMED).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((Network::Named(entry.file_name().to_str()?.to_owned()), entry.path()))).collect()
}

/// The namespaces of all processes, the oldest process first.
fn of_processes() -> impl Iterator<Item = (Network, PathBuf)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids.into_iter().map(|pid| (Network::Process(pid), format!("/proc/{pid}/ns/net").into()))
}

/// The network namespace, other than that of this process, in which `is_it` is true.
fn elsewhere(is_it: impl Fn() -> bool + Sync) -> Option<Network> {
    let mut seen: HashSet<u64> = own_network().into_iter().collect();
    let all = named().into_iter().chain(of_processes());
    let mut others = all.filter(|(_, path)| inode(path).is_some_and(|network| seen.insert(network)));
    let is_there = |path: &Path| {
        let network = File::open(path).and_then(|file| NetworkNamespace::from_fd(file.into()));
        network.and_then(|network| network.inside(|| Ok(is_it()))).is_ok_and(|is_there| is_there)
    };
    others.find(|(_, path)| is_there(path)).map(|(network, _)| network)
}

/// Another network namespace that has a tunnel's interface of this name.
fn holder_of(interface: &str) -> Option<Network> {
    let is_it = |link: &Link| link.name == interface && (link.tun || link.wireguard);
    elsewhere(|| snapshot::open().is_ok_and(|mut host| host.links().is_ok_and(|links| links.iter().any(is_it))))
}

/// Whether the tunnel that runs under this name has another private key than the one that was brought up.
fn has_other_key(interface: &InterfaceName) -> bool {
    let Some(device) = running(interface).filter(|device| device.private_key.is_some()) else { return false };
    recorded_file(interface).is_some_and(|file| !foreign::is_of_file(&device, &file))
}

/// The file that the tunnel of this name was brought up from, as it was then, with its keys.
fn recorded_file(interface: &InterfaceName) -> Option<TunnelFile> {
    let text = ledger::read_file(ledger::directory(), interface).ok().flatten()?;
    let path = ledger::read_head(ledger::directory(), interface).ok().flatten()?.file;
    let file = ConfigFile::of(path, interface.clone(), text);
    Some(file.loaded().ok()?.into_owned())
}

/// Another network namespace in which the kernel runs the tunnel of this name that was brought up here. Its private key
/// tells it from others.
pub(crate) fn kernel_tunnel_elsewhere(interface: &InterfaceName) -> Option<Network> {
    let wanted = recorded_file(interface)?;
    elsewhere(|| {
        let device = KernelClient::open(interface.as_str()).and_then(|mut tunnel| tunnel.get());
        device.is_ok_and(|device| foreign::is_of_file(&device, &wanted))
    })
}

fn socket_file(interface: &InterfaceName) -> Option<SocketId> {
    let file = fs::metadata(socket::path(socket::DIRECTORY.as_ref(), interface)).ok()?;
    let made = file.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(SocketId { inode: file.ino(), made: made.and_then(|since| u64::try_from(since.as_nanos()).ok()) })
}

/// Returns the socket file of `interface`, unless connecting shows that no daemon listens.
fn answering(interface: &InterfaceName) -> Option<SocketId> {
    let file = socket_file(interface)?;
    match DaemonClient::connect(socket::DIRECTORY.as_ref(), interface) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => None,
        _ => Some(file),
    }
}

/// Checks that an edit of the tunnel's file would reach the tunnel.
///
/// # Errors
/// The tunnel belongs to another network namespace.
pub(crate) fn check_editable(interface: &InterfaceName, identity: &Identity) -> Result<(), Error> {
    if identity.is_of_other_network() && (identity.has_socket(interface) || identity.network.and_then(find).is_some()) {
        return Err(Error::State(format!(
            "{interface} belongs to another network namespace{}; nothing was changed. To edit it, \
             begin the command with `{} linerate`",
            identity.at(),
            identity.way()
        )));
    }
    Ok(())
}

/// Returns the error for an interface that a tunnel of another name was renamed to; `None` for any other interface.
pub(crate) fn renamed_from(interface: &InterfaceName) -> Option<Error> {
    let links = snapshot::open().ok()?.links().ok()?;
    named_link(&links, interface)?;
    let tunnels = ledger::interfaces(ledger::directory()).ok()?.into_iter();
    let mut ledgers = tunnels.filter_map(|name| ledger::read(ledger::directory(), &name).ok().flatten());
    let ledger = ledgers.find(|ledger| place(ledger, &links) == Place::Renamed(interface.to_string()))?;
    let name = &ledger.spec.interface;
    Some(Error::State(format!(
        "{interface} is the interface of the tunnel {name}, which was renamed: use `{name}`, or give the name back with `ip link \
         set dev {interface} name {name}`"
    )))
}

/// Checks that a tunnel without a ledger can be taken down from here.
///
/// # Errors
/// The tunnel's daemon answers, and this network namespace has no tunnel interface of this name.
pub(crate) fn check_reachable(interface: &InterfaceName, links: &[Link]) -> Result<(), Error> {
    let is_here = named_link(links, interface).is_some_and(|link| link.tun || link.wireguard);
    if is_here || answering(interface).is_none() {
        return Ok(());
    }
    let directory = socket::DIRECTORY.as_ref();
    let daemons = client::daemon_interfaces(directory).unwrap_or_default();
    let renamed = daemons.into_iter().find(|(socket, now)| socket == interface.as_str() && socket != now);
    if let Some((_, now)) = renamed {
        return Err(Error::State(format!(
            "the interface of {interface} is called {now}; the tunnel is as it was: give the name back with `ip link set dev \
             {now} name {interface}` (set it down before), then take it down"
        )));
    }
    let at = holder_of(interface.as_str()).map_or_else(String::new, |name| format!(" ({name})"));
    Err(Error::State(format!(
        "the interface of {interface} is in another network namespace{at}, or has another name; nothing was changed. Take the \
        tunnel down in that namespace, or by that name"
    )))
}

/// Checks that a tunnel of this name, which may have a `ledger`, can be brought up; returns where that one is.
///
/// # Errors
/// It runs somewhere else, or another one has its name.
pub(crate) fn check_up(interface: &InterfaceName, ledger: Option<&Ledger>, links: &[Link]) -> Result<Place, Error> {
    let Some(ledger) = ledger else { return check_free(interface, links).map(|()| Place::Gone) };
    let place = place(ledger, links);
    place.refusal(ledger, Purpose::Up).map_or(Ok(place), Err)
}

/// Refuses to bring up a tunnel without a ledger whose name a daemon has that is not of this network namespace: its socket
/// is in the way.
///
/// # Errors
/// There is such a daemon.
fn check_free(interface: &InterfaceName, links: &[Link]) -> Result<(), Error> {
    if named_link(links, interface).is_some() {
        return renamed_from(interface).map_or(Ok(()), Err);
    }
    if answering(interface).is_none() {
        return Ok(());
    }
    let path = socket::path(socket::DIRECTORY.as_ref(), interface);
    let at = holder_of(interface.as_str()).map_or_else(String::new, |name| format!(" ({name})"));
    Err(Error::State(format!(
        "a daemon answers for {interface} on {}, but its interface is not in this network namespace{at}; take that tunnel down, \
        or give this one another name, as two tunnels of one name need a /run each",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: SocketId = SocketId { inode: 7, made: Some(1) };
    const ANOTHER: SocketId = SocketId { inode: 7, made: Some(2) };

    fn identity() -> Identity {
        Identity { network: Some(1), socket: Some(OURS) }
    }

    fn of_daemon(seen: &Seen) -> Place {
        placed(Implementation::Daemon, Some(4), &identity(), seen)
    }

    #[test]
    fn a_tunnel_is_found_wherever_it_went() {
        let here = Seen {
            network: Some(1),
            is_network_there: true,
            index: Some(4),
            name: Some("wg0".to_owned()),
            socket: Some(OURS),
            is_elsewhere: false,
        };
        assert_eq!(of_daemon(&here), Place::Here);
        let frozen_or_out_of_reach = Seen { socket: None, ..here.clone() };
        assert_eq!(of_daemon(&frozen_or_out_of_reach), Place::Here);
        let renamed = Seen { index: None, name: Some("wg9".to_owned()), ..here.clone() };
        assert_eq!(of_daemon(&renamed), Place::Renamed("wg9".to_owned()));
        let moved = Seen { index: None, name: None, ..here.clone() };
        assert_eq!(of_daemon(&moved), Place::Moved);
        let moved_and_name_reused = Seen { index: Some(9), name: None, ..here.clone() };
        assert_eq!(of_daemon(&moved_and_name_reused), Place::Moved);
        let gone = Seen { index: None, name: None, socket: None, ..here.clone() };
        assert_eq!(of_daemon(&gone), Place::Gone);
        let of_another_daemon = Seen { index: Some(9), name: None, socket: Some(ANOTHER), ..here.clone() };
        assert_eq!(of_daemon(&of_another_daemon), Place::Replaced);
        let another_link = Seen { index: Some(9), name: None, socket: None, ..here.clone() };
        assert_eq!(of_daemon(&another_link), Place::Replaced);
        let from_outside = Seen { network: Some(2), ..gone.clone() };
        assert_eq!(of_daemon(&from_outside), Place::OtherNetwork);
        let container_started_again = Seen { network: Some(2), is_network_there: false, ..gone };
        assert_eq!(of_daemon(&container_started_again), Place::NetworkGone);
    }

    #[test]
    fn a_tunnel_of_the_kernel_is_found_in_another_network_namespace() {
        let of_kernel =
            |seen: &Seen| placed(Implementation::Kernel, Some(4), &Identity { network: Some(1), socket: None }, seen);
        let gone = Seen { network: Some(1), is_network_there: true, ..Seen::default() };
        assert_eq!(of_kernel(&gone), Place::Gone);
        let moved = Seen { is_elsewhere: true, ..gone.clone() };
        assert_eq!(of_kernel(&moved), Place::Moved);
        let moved_and_name_reused = Seen { index: Some(9), ..moved.clone() };
        assert_eq!(of_kernel(&moved_and_name_reused), Place::Moved);
        let moved_and_index_reused = Seen { name: Some("wg9".to_owned()), ..moved.clone() };
        assert_eq!(of_kernel(&moved_and_index_reused), Place::Moved);
        let a_daemon_has_its_name = Seen { socket: Some(OURS), ..moved };
        assert_eq!(of_kernel(&a_daemon_has_its_name), Place::Replaced);
        let here = Seen { index: Some(4), name: Some("wg0".to_owned()), ..gone };
        assert_eq!(of_kernel(&here), Place::Here);
    }

    proptest! {
        #[test]
        fn a_tunnel_that_runs_is_never_taken_for_one_that_is_gone(
            network in 1..3u64,
            is_network_there: bool,
            index in proptest::option::of(3..6u32),
            name in proptest::option::of("wg[0-9]"),
        ) {
            let seen = Seen { network: Some(network), is_network_there, index, name, socket: Some(OURS), ..Seen::default() };
            prop_assert!(!matches!(of_daemon(&seen), Place::Gone | Place::NetworkGone | Place::Replaced));
        }

        #[test]
        fn what_another_daemon_runs_is_never_taken_for_the_tunnel(
            is_network_there: bool,
            index in proptest::option::of(3..6u32),
            name in proptest::option::of("wg[0-9]"),
        ) {
            let seen = Seen { network: Some(1), is_network_there, index, name, socket: Some(ANOTHER), ..Seen::default() };
            prop_assert_eq!(of_daemon(&seen), Place::Replaced);
        }

        #[test]
        fn a_ledger_of_an_earlier_version_is_judged_by_its_index_alone(
            index in proptest::option::of(3..6u32),
            socket in proptest::option::of(Just(OURS)),
        ) {
            let name = index.filter(|index| *index == 4).map(|_| "wg0".to_owned());
            let seen = Seen { network: Some(1), is_network_there: true, index, name, socket, ..Seen::default() };
            let place = placed(Implementation::Daemon, Some(4), &Identity::default(), &seen);
            let expected = match (index, socket) {
                (Some(4), _) => Place::Here,
                (Some(_), _) => Place::Replaced,
                (None, Some(_)) => Place::Moved,
                (None, None) => Place::Gone,
            };
            prop_assert_eq!(place, expected);
        }
    }
}
