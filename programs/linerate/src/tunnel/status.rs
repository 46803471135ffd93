//! `status`: the tunnels of this host with the names of their peers, and whether they work.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use linerate_control::client::{self, TunnelClient};
use linerate_control::endpoint;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::printable::printable;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::uapi::socket;
use linerate_engine::counters::NOT_LISTENING;
use linerate_host::ledger::{self, Ledger, LedgerError};
use linerate_host::state::HostState;
use rustix::io::Errno;
use serde::Serialize;

use super::source::{Source, locate};
use super::{Failed, host, ledgers};
use crate::show::human::amount;

/// After this long without a handshake no session is left (REJECT_AFTER_TIME).
const SESSION: Duration = Duration::from_secs(180);

/// A tunnel, for programs as it is, for people by [`render`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    interface: String,
    /// What runs it: a daemon, the kernel, or nobody any more.
    engine: Engine,
    /// Why that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    listen_port: u16,
    mtu: u32,
    addresses: Vec<IpNet>,
    /// A command of the file failed when the tunnel was brought up.
    hook_failed: bool,
    /// The interface is set down.
    link_down: bool,
    /// It has peers and no private key.
    no_private_key: bool,
    /// The interface is up, and the port is another program's.
    deaf: bool,
    peers: Vec<PeerStatus>,
}

/// What runs a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Daemon,
    Kernel,
    Gone,
    /// It could not be asked.
    Unknown,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PeerStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    public_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// The endpoint as the file has it, where that is a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_name: Option<String>,
    health: Health,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_since_handshake: Option<u64>,
    received: u64,
    sent: u64,
    allowed_ips: Vec<String>,
}

/// Whether a peer answers.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    /// There is a session.
    Alive,
    /// There was one, and nothing needs it, or nobody answers.
    Silent,
    /// There has never been one.
    Never,
}

/// The state of the tunnels: of `wanted`, or of all there are.
///
/// # Errors
/// There is no such tunnel, or the host cannot be looked at.
pub(crate) fn status(wanted: Option<&str>) -> Result<Vec<Status>, Failed> {
    let mut names = client::names(socket::DIRECTORY.as_ref()).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => not_allowed(socket::DIRECTORY),
        _ => Failed::new(format!("cannot list tunnels: {error}")),
    })?;
    let ledgers = ledger::interfaces(ledgers());
    // Others than root see the daemons all the same.
    let is_hidden = matches!(&ledgers, Err(LedgerError::Io { error, .. }) if is_denied(error));
    names.extend(if is_hidden { Vec::new() } else { ledgers? }.iter().map(InterfaceName::to_string));
    names.sort();
    names.dedup();
    names.retain(|name| wanted.is_none_or(|wanted| name == wanted));
    match wanted {
        _ if names.is_empty() && is_hidden => return Err(not_allowed(ledger::DIRECTORY)),
        Some(wanted) if names.is_empty() => {
            return Err(Failed::new(format!("there is no tunnel {wanted}; `linerate up {wanted}` brings it up")));
        }
        _ => {}
    }
    let state = host()?.state().map_err(|error| format!("cannot look at this host: {error}"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(names.iter().map(|name| of(name, &state, now)).collect())
}

fn not_allowed(directory: &str) -> Failed {
    Failed::new(format!("not allowed to look into {directory}. Try again as root (sudo)."))
}

fn of(name: &str, state: &HostState, now: Duration) -> Status {
    let ledger = name.parse().ok().and_then(|name| ledger::read(ledgers(), &name).ok().flatten());
    let (engine, device, reason) = match ask(name) {
        Ok((engine, device)) => (engine, device, None),
        Err(error) if is_absence(&error) => (Engine::Gone, DeviceState::default(), None),
        Err(ClientError::Io(error)) if is_denied(&error) => {
            let reason = "not allowed to ask it; try again as root (sudo)".to_owned();
            (Engine::Unknown, DeviceState::default(), Some(reason))
        }
        Err(error) => (Engine::Unknown, DeviceState::default(), Some(linerate_program::for_people(&error.to_string()))),
    };
    let filed = filed(name, ledger.as_ref());
    let link = state.link(name);
    Status {
        interface: name.to_owned(),
        engine,
        reason,
        file: ledger.as_ref().map(|ledger| ledger.file.display().to_string()),
        listen_port: device.listen_port,
        mtu: link.map_or(0, |link| link.mtu),
        addresses: link.map_or_else(Vec::new, |link| link.addresses.clone()),
        hook_failed: ledger.is_some_and(|ledger| ledger.hook_failed),
        link_down: link.is_some_and(|link| !link.up),
        no_private_key: device.private_key.is_none() && !device.peers.is_empty(),
        deaf: engine == Engine::Daemon && is_deaf(name),
        peers: peers(&device, &filed, now),
    }
}

/// The state of a tunnel, and what runs it.
fn ask(name: &str) -> Result<(Engine, DeviceState), ClientError> {
    let mut tunnel = TunnelClient::open(socket::DIRECTORY.as_ref(), name)?;
    let engine = if matches!(tunnel, TunnelClient::Kernel(_)) { Engine::Kernel } else { Engine::Daemon };
    Ok((engine, tunnel.get()?))
}

/// Whether a daemon says that it has no port. Only linerated says anything; others end a conversation at a question that
/// they do not know, so this is one of its own.
fn is_deaf(name: &str) -> bool {
    let told = TunnelClient::open(socket::DIRECTORY.as_ref(), name).ok().and_then(|mut tunnel| tunnel.stats().ok());
    told.is_some_and(|counters| counters.iter().any(|(name, value)| name == NOT_LISTENING && *value > 0))
}

/// Whether an error says that there is no tunnel: neither a socket at which somebody answers, nor one of the kernel's.
pub(super) fn is_absence(error: &ClientError) -> bool {
    let ClientError::Io(error) = error else { return false };
    let of_kernel = [Errno::NODEV, Errno::OPNOTSUPP, Errno::PROTONOSUPPORT];
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        || Errno::from_io_error(error).is_some_and(|errno| of_kernel.contains(&errno))
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// What the file says of a peer that the tunnel does not.
#[derive(Default)]
struct Filed {
    /// What it is called.
    name: Option<String>,
    /// Its endpoint, where that is a name.
    endpoint: Option<String>,
}

/// What the file says of the peers.
fn filed(name: &str, ledger: Option<&Ledger>) -> BTreeMap<PublicKey, Filed> {
    let file = match ledger {
        Some(ledger) => name.parse().ok().map(|name| (ledger.file.clone(), name)),
        None => locate(name).ok(),
    };
    let Some(source) = file.and_then(|(path, interface)| Source::read(path, interface).ok()) else {
        return BTreeMap::new();
    };
    let mut filed: BTreeMap<PublicKey, Filed> = BTreeMap::new();
    for named in source.names() {
        filed.entry(named.peer).or_default().endpoint = Some(named.to_string());
    }
    for peer in source.file.peers {
        filed.entry(peer.public_key).or_default().name = peer.name;
    }
    filed
}

fn peers(device: &DeviceState, filed: &BTreeMap<PublicKey, Filed>, now: Duration) -> Vec<PeerStatus> {
    let peer = |peer: &PeerState| {
        let age = (!peer.last_handshake.is_zero()).then(|| now.saturating_sub(peer.last_handshake));
        let filed = filed.get(&peer.public_key);
        PeerStatus {
            name: filed.and_then(|filed| filed.name.clone()),
            public_key: peer.public_key.to_string(),
            endpoint: peer.endpoint.as_ref().map(endpoint::text),
            endpoint_name: filed.and_then(|filed| filed.endpoint.clone()),
            health: match age {
                None => Health::Never,
                Some(age) if age < SESSION => Health::Alive,
                Some(_) => Health::Silent,
            },
            seconds_since_handshake: age.map(|age| age.as_secs()),
            received: peer.rx_bytes,
            sent: peer.tx_bytes,
            allowed_ips: peer.allowed_ips.iter().map(|(address, length)| format!("{address}/{length}")).collect(),
        }
    };
    let mut peers: Vec<PeerStatus> = device.peers.iter().map(peer).collect();
    // Who was heard of last comes first, as in `wg show`.
    peers.sort_by_key(|peer| peer.seconds_since_handshake.unwrap_or(u64::MAX));
    peers
}

impl Status {
    /// Whether anybody runs the tunnel, as far as that can be told.
    pub(crate) fn is_run(&self) -> bool {
        matches!(self.engine, Engine::Daemon | Engine::Kernel)
    }

    /// Whether nobody could be asked.
    pub(crate) fn is_unknown(&self) -> bool {
        self.engine == Engine::Unknown
    }

    /// Whether the tunnel is run and can work, and every peer that has an endpoint, or is to have one, has a session.
    pub(crate) fn is_well(&self) -> bool {
        let silent = |peer: &PeerStatus| {
            (peer.endpoint.is_some() || peer.endpoint_name.is_some()) && peer.health != Health::Alive
        };
        self.is_run() && self.troubles().is_empty() && !self.peers.iter().any(silent)
    }

    /// The interface.
    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// What doctor looks at: a name, what it is like, and what to do if that is not right.
    pub(crate) fn findings(&self) -> Vec<(&'static str, String, Option<Cow<'static, str>>)> {
        if !self.is_run() {
            return vec![("daemon", "has died".to_owned(), Some("run `linerate down`, then `linerate up`".into()))];
        }
        let of = |name, is_wrong: bool, [right, wrong]: [&str; 2], advice: &'static str| {
            (name, if is_wrong { wrong } else { right }.to_owned(), is_wrong.then_some(advice.into()))
        };
        let link = if self.link_down { "down" } else { "up" };
        let set_up = self.link_down.then(|| format!("run `ip link set {} up`", self.interface).into());
        let has_endpoint = |peer: &&PeerStatus| peer.endpoint.is_some() || peer.endpoint_name.is_some();
        let is_alive = |peer: &&PeerStatus| peer.health == Health::Alive;
        let silent = self.peers.iter().filter(has_endpoint).any(|peer| !is_alive(&peer));
        let peers = format!("{} of {} connected", self.peers.iter().filter(is_alive).count(), self.peers.len());
        let (key, port, hooks) =
            (["set", "missing"], ["open", "in use by another program"], ["no failure", "one failed"]);
        vec![
            ("interface", link.to_owned(), set_up),
            of("private key", self.no_private_key, key, "set PrivateKey in its file and run `linerate reload`"),
            of("UDP port", self.deaf, port, "choose another ListenPort, or stop that program"),
            of("PreUp, PostUp", self.hook_failed, hooks, "correct the command, then take the tunnel down and up"),
            of("peers", silent, [&peers, &peers], "check endpoint, keys and firewalls at both ends"),
        ]
    }

    /// What is not right with the tunnel itself, each as the end of a sentence.
    fn troubles(&self) -> Vec<&'static str> {
        let all = [
            (self.link_down, "the interface is down"),
            (self.no_private_key, "it has no private key"),
            (self.deaf, "its port is another program's, so that it hears nothing"),
            (self.hook_failed, "a command of its file failed"),
        ];
        all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, trouble)| trouble).collect()
    }
}

/// The tunnels for people: a line each, and a table of its peers.
pub(crate) fn render(all: &[Status]) -> String {
    let mut text = String::new();
    for (index, status) in all.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let _ = writeln!(text, "{}", headline(status));
        let rows: Vec<[String; 6]> = status.peers.iter().map(row).collect();
        table(&mut text, &rows);
    }
    text
}

fn headline(status: &Status) -> String {
    let engine = match status.engine {
        Engine::Daemon => "run by a daemon",
        Engine::Kernel => "run by the kernel",
        Engine::Unknown => {
            let reason = status.reason.as_deref().unwrap_or("it does not answer");
            return format!("{}: who runs it cannot be told: {reason}", status.interface);
        }
        Engine::Gone => return format!("{}: nobody runs it any more; `linerate down {0}` cleans up", status.interface),
    };
    let alive = status.peers.iter().filter(|peer| peer.health == Health::Alive).count();
    let addresses: Vec<String> = status.addresses.iter().map(IpNet::to_string).collect();
    let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
    let troubles: String = status.troubles().iter().map(|trouble| format!("; {trouble}")).collect();
    format!(
        "{}: {engine}, {addresses}, port {}, MTU {}, {alive} of {} peers connected{troubles}",
        status.interface,
        status.listen_port,
        status.mtu,
        status.peers.len(),
    )
}

const HEADER: [&str; 6] = ["PEER", "ENDPOINT", "HANDSHAKE", "RECEIVED", "SENT", "ALLOWED IPS"];

fn row(peer: &PeerStatus) -> [String; 6] {
    let bytes = |count| {
        let (number, unit) = amount(count);
        format!("{number} {unit}")
    };
    [
        printable(peer.name.as_ref().unwrap_or(&peer.public_key)).into_owned(),
        match (&peer.endpoint, &peer.endpoint_name) {
            (Some(endpoint), _) => endpoint.clone(),
            (None, Some(name)) => format!("{} (no address yet)", printable(name)),
            (None, None) => "-".to_owned(),
        },
        peer.seconds_since_handshake.map_or_else(|| "never".to_owned(), age),
        bytes(peer.received),
        bytes(peer.sent),
        allowed_ips(&peer.allowed_ips),
    ]
}

/// The first few: a peer may have thousands.
fn allowed_ips(all: &[String]) -> String {
    const SHOWN: usize = 3;
    match all {
        [] => "none".to_owned(),
        few if few.len() <= SHOWN => few.join(", "),
        many => format!("{}, and {} more", many[..SHOWN].join(", "), many.len() - SHOWN),
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn table(text: &mut String, rows: &[[String; 6]]) {
    if rows.is_empty() {
        return;
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADER[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let header = HEADER.map(str::to_owned);
    for row in std::iter::once(&header).chain(rows) {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            // Amounts are compared by their ends.
            3 | 4 => format!("{cell:>width$}"),
            _ => format!("{cell:width$}"),
        });
        let line: Vec<String> = cells.collect();
        let _ = writeln!(text, "  {}", line.join("  ").trim_end());
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

    fn example(engine: Engine, states: Vec<PeerState>) -> Status {
        let device = DeviceState { listen_port: 51820, peers: states, ..DeviceState::default() };
        let laptop = Filed { name: Some("laptop".into()), endpoint: None };
        let phone = Filed { name: Some("phone".into()), endpoint: Some("phone.example:51820".into()) };
        let filed = BTreeMap::from([(PublicKey([1; 32]), laptop), (PublicKey([3; 32]), phone)]);
        Status {
            interface: "wg0".into(),
            engine,
            reason: None,
            file: None,
            listen_port: 51820,
            mtu: 1420,
            addresses: vec!["10.0.0.1/24".parse().unwrap()],
            hook_failed: false,
            link_down: false,
            no_private_key: false,
            deaf: false,
            peers: peers(&device, &filed, Duration::from_secs(10_000)),
        }
    }

    #[test]
    fn people_see_names_and_who_was_heard_of_last_comes_first() {
        let status = example(Engine::Daemon, vec![peer(2, None, false), peer(1, Some(7), true)]);
        let text = render(&[status]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "wg0: run by a daemon, 10.0.0.1/24, port 51820, MTU 1420, 1 of 2 peers connected");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words[..5], ["laptop", "192.0.2.1:51820", "7", "s", "ago"]);
        assert!(lines[2].ends_with("10.0.0.0/32, 10.0.0.1/32, 10.0.0.2/32, and 2 more"), "{}", lines[2]);
        assert!(lines[3].contains("never"), "{}", lines[3]);
        assert_eq!(lines[1].find("ENDPOINT"), lines[2].find("192.0.2.1"), "columns stand below their heads");
    }

    #[test]
    fn a_tunnel_is_well_while_every_peer_with_an_endpoint_has_a_session() {
        let well = |engine, states| example(engine, states).is_well();
        assert!(well(Engine::Daemon, vec![peer(1, Some(179), true), peer(2, None, false)]));
        assert!(!well(Engine::Daemon, vec![peer(1, Some(180), true)]));
        assert!(!well(Engine::Daemon, vec![peer(1, None, true)]));
        assert!(!well(Engine::Gone, vec![]));
        assert!(!well(Engine::Unknown, vec![]));
    }

    #[test]
    fn a_peer_whose_endpoint_is_a_name_without_address_is_shown_with_it_and_is_not_well() {
        let status = example(Engine::Daemon, vec![peer(3, None, false)]);
        let text = render(std::slice::from_ref(&status));
        assert!(text.contains("phone  phone.example:51820 (no address yet)  never"), "{text}");
        assert!(!status.is_well());
        assert!(example(Engine::Daemon, vec![peer(3, Some(1), false)]).is_well(), "it has told where it is");
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        let mut status = example(Engine::Daemon, vec![peer(1, Some(7), true), peer(3, None, false)]);
        status.peers[0].name = Some("\x1b]0;x\x07".into());
        status.peers[1].endpoint_name = Some("\u{202e}host:1".into());
        let text = render(&[status]);
        assert!(text.contains(r"\u{1b}]0;x\u{7}") && text.contains(r"\u{202e}host:1"), "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
    }

    #[test]
    fn a_tunnel_that_is_down_or_has_no_key_is_not_well_and_its_line_says_so() {
        let well = || example(Engine::Daemon, vec![peer(1, Some(1), true)]);
        let down = Status { link_down: true, ..well() };
        let keyless = Status { no_private_key: true, ..well() };
        let deaf = Status { deaf: true, ..well() };
        let deaf_words = "; its port is another program's, so that it hears nothing";
        for (status, words) in
            [(down, "; the interface is down"), (keyless, "; it has no private key"), (deaf, deaf_words)]
        {
            assert!(!status.is_well());
            assert!(headline(&status).ends_with(words), "{}", headline(&status));
        }
    }

    #[test]
    fn only_who_is_absent_is_gone() {
        let io = |errno: Errno| ClientError::Io(errno.into());
        for errno in [Errno::NOENT, Errno::CONNREFUSED, Errno::NODEV, Errno::OPNOTSUPP, Errno::PROTONOSUPPORT] {
            assert!(is_absence(&io(errno)), "{errno}");
        }
        for errno in [Errno::ACCESS, Errno::PERM, Errno::MFILE, Errno::TIMEDOUT, Errno::CONNRESET] {
            assert!(!is_absence(&io(errno)), "{errno}");
        }
        let reason = Some("not allowed to ask it; try again as root (sudo)".to_owned());
        let line = headline(&Status { reason, ..example(Engine::Unknown, vec![]) });
        assert_eq!(line, "wg0: who runs it cannot be told: not allowed to ask it; try again as root (sudo)");
    }
}
