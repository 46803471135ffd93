//! The tunnel file: the settings of `wg` and wg-quick (man 8 wg, man 8 wg-quick), and those of linerate, which the
//! other two read as comments. docs/man/linerate.conf.5.pod describes all of them.
//!
//! [`TunnelFile::read`] turns a [`Document`] into typed fields and diagnostics. [`strip()`] makes the file that
//! wg-quick passes to `wg`, [`save()`] merges the running tunnel into the file, and [`changes()`] compares a new file
//! with a running tunnel. Nothing here resolves a host name, and only [`KeyFile::read`] opens a file.

mod byte_count;
mod changes;
mod client;
mod diagnostic;
mod fleet_name;
mod gateway;
mod group;
mod key_file;
mod name_server;
mod public_endpoint;
mod read;
mod save;
pub mod settings;
mod strip;
mod values;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use byte_count::{ByteCount, InvalidByteCount};
pub use changes::{AllowedIpRemoval, DeviceChanges, changes, differing, has_expired, has_replaced};
pub use client::{ClientDefaults, ClientSettings, QuotaReset, Released};
pub use diagnostic::{Diagnostic, Severity, name_odd_characters};
pub use fleet_name::{FleetName, InvalidFleetName};
pub use gateway::{Gateway, Inbound, Masquerade};
pub use group::Group;
pub use key_file::{KeyDirectories, KeyFile};
pub use name_server::{InvalidNameServer, NameServer};
pub use public_endpoint::{InvalidPublicEndpoint, PublicEndpoint};
pub(crate) use read::PeerSection;
pub use save::{RunningTunnel, save};
pub use strip::{StripError, strip};

use crate::document::Document;
use crate::endpoint;
use crate::interface::InterfaceName;
use crate::keys::{PublicKey, SecretKey};

/// The most microseconds of `Spin`: longer waits are not worth a core.
pub const SPIN_MAX: u16 = 1000;

/// The content of a tunnel file. It holds secrets, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct TunnelFile {
    /// The interface.
    pub interface: InterfaceName,
    /// `Address`, in the order of the file, host bits kept.
    pub addresses: Vec<IpNet>,
    /// The servers in `DNS`.
    pub dns_servers: Vec<NameServer>,
    /// The search domains in `DNS`.
    pub search_domains: Vec<String>,
    /// `MTU` in bytes.
    pub mtu: Option<u32>,
    /// `Table`.
    pub table: Table,
    /// The hooks in the order of the file, with `%i` replaced by the interface.
    pub hooks: Vec<Hook>,
    /// `SaveConfig`.
    pub save_config: bool,
    /// `PrivateKey`, or the content of `PrivateKeyFile` after [`Self::load_keys`].
    pub private_key: Option<SecretKey>,
    /// `PrivateKeyFile`.
    pub private_key_file: Option<KeyFile>,
    /// `ListenPort`.
    pub listen_port: Option<u16>,
    /// `FwMark`.
    pub fwmark: Option<u32>,
    /// `RouteConflict`.
    pub route_conflict: RouteConflict,
    /// `KillSwitch`.
    pub kill_switch: bool,
    /// `ExcludedIPs`, without host bits.
    pub excluded_ips: Vec<IpNet>,
    /// `ExcludeLAN`.
    pub exclude_lan: ExcludeLan,
    /// `OnHookError`; none if it is not set.
    pub on_hook_error: Option<OnHookError>,
    /// `User`, which the daemon runs as; none if it is not set.
    pub user: Option<String>,
    /// `Spin`, in microseconds; none if it is not set.
    pub spin: Option<u16>,
    /// `PublicEndpoint`; a file with it is that of a server.
    pub public_endpoint: Option<PublicEndpoint>,
    /// `Gateway`.
    pub gateway: Gateway,
    /// `Masquerade`.
    pub masquerade: Masquerade,
    /// `ClientIsolation`.
    pub client_isolation: bool,
    /// `Inbound`.
    pub inbound: Inbound,
    /// `FixFirewall`.
    pub fix_firewall: bool,
    /// `Fleet`: the fleet whose peers these are; none if they are the file's own.
    pub fleet: Option<FleetName>,
    /// What is the same for all clients.
    pub clients: ClientDefaults,
    /// The peers, in the order of their first sections. A file that is read again shares those that stay as they are.
    pub peers: Vec<Arc<Peer>>,
}

/// A peer.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name; see [`crate::document::Section::name`].
    pub name: Option<String>,
    /// `PublicKey`.
    pub public_key: PublicKey,
    /// `PresharedKey`, or the content of `PresharedKeyFile` after [`TunnelFile::load_keys`].
    pub preshared_key: Option<SecretKey>,
    /// `PresharedKeyFile`.
    pub preshared_key_file: Option<KeyFile>,
    /// `Endpoint`.
    pub endpoint: Option<Endpoint>,
    /// `AllowedIPs` after all lines are applied: without host bits or duplicates, and without those that a later peer
    /// takes over. Peers of one group all have those of the group.
    pub allowed_ips: Vec<IpNet>,
    /// `PersistentKeepalive` in seconds; 0 is off.
    pub persistent_keepalive: Option<u16>,
    /// `Destinations`, without host bits; all if there are none.
    pub destinations: Vec<IpNet>,
    /// What it has if it is a client.
    pub client: ClientSettings,
    /// `Group` and `Check`.
    pub group: Option<Box<Group>>,
    /// The line of its header, from 1.
    pub line: usize,
    /// The index of its section in the document.
    pub section: usize,
}

/// The endpoint of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An address.
    Address(SocketAddr),
    /// A name, still to be resolved.
    Name {
        /// A host name, or an address in a form that only the system's resolver reads (`127.1`).
        host: String,
        /// A port or the name of a UDP service.
        service: String,
    },
}

/// As in the file: `host:port`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => f.write_str(&endpoint::text(address)),
            Self::Name { host, service } if host.contains(':') => write!(f, "[{host}]:{service}"),
            Self::Name { host, service } => write!(f, "{host}:{service}"),
        }
    }
}

/// `Table`: the routing table for the routes of the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// The main table, but a table of its own for a default route.
    #[default]
    Auto,
    /// No routes.
    Off,
    /// This table.
    Number(u32),
}

/// A command in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// When to run it.
    pub phase: Phase,
    /// The shell command.
    pub command: String,
}

/// When to run a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Before the interface is configured.
    PreUp,
    /// After the tunnel is up.
    PostUp,
    /// Before the tunnel goes down.
    PreDown,
    /// After the tunnel is down.
    PostDown,
}

/// `RouteConflict`: what to do when a route exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteConflict {
    /// Keep the existing route and warn.
    #[default]
    Skip,
    /// Add ours with another metric.
    Metric,
    /// Replace it while the tunnel is up.
    Replace,
    /// Do not bring the tunnel up.
    Fail,
}

/// `ExcludeLAN`: whether traffic to the host's own networks bypasses the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExcludeLan {
    /// Always.
    Always,
    /// Never.
    #[default]
    Never,
    /// If the tunnel has a default route.
    Auto,
}

/// `OnHookError`: what to do when a hook fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHookError {
    /// Warn.
    Warn,
    /// Do not bring the tunnel up.
    Abort,
}

/// Looks up names in the databases of this system.
pub trait Names {
    /// The number of a routing table (rt_tables of iproute2).
    fn table(&self, name: &str) -> Option<u32>;

    /// The port of a UDP service (services(5)).
    fn port(&self, service: &str) -> Option<u16>;
}

/// Knows no names; the kernel's own tables `main`, `default` and `local` need none.
pub struct NoNames;

impl Names for NoNames {
    fn table(&self, _: &str) -> Option<u32> {
        None
    }

    fn port(&self, _: &str) -> Option<u16> {
        None
    }
}

impl TunnelFile {
    /// Whether it has a private key, or says which file does.
    pub fn has_private_key(&self) -> bool {
        self.private_key.is_some() || self.private_key_file.is_some()
    }

    /// The content of an empty file.
    pub fn empty(interface: &InterfaceName) -> Self {
        Self {
            interface: interface.clone(),
            addresses: Vec::new(),
            dns_servers: Vec::new(),
            search_domains: Vec::new(),
            mtu: None,
            table: Table::Auto,
            hooks: Vec::new(),
            save_config: false,
            private_key: None,
            private_key_file: None,
            listen_port: None,
            fwmark: None,
            route_conflict: RouteConflict::Skip,
            kill_switch: false,
            excluded_ips: Vec::new(),
            exclude_lan: ExcludeLan::Never,
            on_hook_error: None,
            user: None,
            spin: None,
            clients: ClientDefaults::default(),
            public_endpoint: None,
            gateway: Gateway::Off,
            masquerade: Masquerade::default(),
            client_isolation: false,
            inbound: Inbound::Replies,
            fix_firewall: false,
            fleet: None,
            peers: Vec::new(),
        }
    }

    /// Reads the file of `interface`. The diagnostics are in the order of its lines; invalid values are not in the
    /// result.
    pub fn read(document: &Document, interface: &InterfaceName, names: &dyn Names) -> (Self, Vec<Diagnostic>) {
        read::read(document, interface, names, false, None)
    }

    /// As [`Self::read`], without the peer that has the interface's `own` public key: no device has it, and it takes no
    /// prefix from another.
    pub fn read_without(
        document: &Document,
        interface: &InterfaceName,
        names: &dyn Names,
        own: &PublicKey,
    ) -> (Self, Vec<Diagnostic>) {
        read::read(document, interface, names, false, Some(own))
    }

    /// As [`Self::read`], and disabled peers are read as if they were in force.
    pub fn read_with_disabled(
        document: &Document,
        interface: &InterfaceName,
        names: &dyn Names,
    ) -> (Self, Vec<Diagnostic>) {
        read::read(document, interface, names, true, None)
    }

    /// Whether keys are in files of their own.
    pub fn has_key_files(&self) -> bool {
        self.private_key_file.is_some() || self.peers.iter().any(|peer| peer.preshared_key_file.is_some())
    }

    /// Reads the key files into [`Self::private_key`] and [`Peer::preshared_key`].
    ///
    /// # Errors
    /// A sentence for each file that cannot be read or contains no key. The other keys are loaded.
    pub fn load_keys(&mut self, directories: KeyDirectories<'_>) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        let mut load = |file: &Option<KeyFile>, key: &mut Option<SecretKey>| match file
            .as_ref()
            .map(|file| file.read(directories))
        {
            Some(Ok(read)) => *key = Some(read),
            Some(Err(sentence)) => errors.push(sentence),
            None => {}
        };
        load(&self.private_key_file, &mut self.private_key);
        for peer in self.peers.iter_mut().filter(|peer| peer.preshared_key_file.is_some()) {
            let Peer { preshared_key_file, preshared_key, .. } = Arc::make_mut(peer);
            load(preshared_key_file, preshared_key);
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The hooks of a phase.
    pub fn hooks(&self, phase: Phase) -> impl Iterator<Item = &str> {
        self.hooks.iter().filter(move |hook| hook.phase == phase).map(|hook| &*hook.command)
    }

    /// Whether peers have limits, or may get some while the tunnel runs: whether it is that of a server.
    pub fn may_have_limits(&self) -> bool {
        let is_client = |client: &ClientSettings| client.created.is_some() || client.has_end();
        self.public_endpoint.is_some() || self.peers.iter().any(|peer| is_client(&peer.client))
    }

    /// Whether peers are in groups.
    pub fn has_groups(&self) -> bool {
        self.peers.iter().any(|peer| peer.group.is_some())
    }

    /// Whether a peer has a default route.
    pub fn is_full_tunnel(&self) -> bool {
        self.peers.iter().flat_map(|peer| &peer.allowed_ips).any(|prefix| prefix.prefix_len() == 0)
    }
}

impl TunnelFile {
    /// What to do where the private key is missing: wg-quick(8) has a command set it.
    pub fn missing_key(&self) -> String {
        let is_set = |hook: &&Hook| hook.command.split_whitespace().any(|word| word == "private-key");
        let Some(hook) = self.hooks.iter().find(is_set) else {
            return "add `PrivateKey = KEY`, or `#! PrivateKeyFile = PATH` with the path of a file that has the key"
                .to_owned();
        };
        match self.file_of_command(&hook.command, "private-key") {
            Some(path) => format!("{:?} sets it from {path}: add `#! PrivateKeyFile = {path}`", hook.phase),
            None => format!(
                "{:?} sets it by a command that is not run for this: write the key to a file that only root can read, and \
                 add `#! PrivateKeyFile = PATH`",
                hook.phase
            ),
        }
    }

    /// The file that a command of `wg set` names after `word`, if it is a plain path.
    fn file_of_command(&self, command: &str, word: &str) -> Option<String> {
        let path = command.split_whitespace().skip_while(|other| *other != word).nth(1)?;
        let path = path.trim_end_matches(';').trim_matches(['"', '\'']).replace("%i", self.interface.as_str());
        let is_plain = path.starts_with('/') && !path.starts_with("/dev/") && !path.contains(['$', '`', '<', '(', '*']);
        is_plain.then_some(path)
    }
}

impl Peer {
    /// A peer with only its public key.
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            name: None,
            public_key,
            preshared_key: None,
            preshared_key_file: None,
            endpoint: None,
            allowed_ips: Vec::new(),
            persistent_keepalive: None,
            destinations: Vec::new(),
            client: ClientSettings::default(),
            group: None,
            line: 0,
            section: 0,
        }
    }

    /// Its name, else its key, for messages.
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.public_key.to_string())
    }
}
