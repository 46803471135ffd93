//! A tunnel's file: what `wg` and wg-quick read in it (man 8 wg, man 8 wg-quick), and keys of ours that they take for
//! comments. docs/man/linerate.conf.5.pod has all of them.
//!
//! [`TunnelFile::read`] makes typed fields of a [`Document`] and collects everything that is wrong with it.
//! [`strip()`] is what wg-quick hands to `wg`, [`save()`] brings the running tunnel back into the file, [`changes()`] is
//! what a new file means for a running tunnel. Nothing here resolves a name, and only [`KeyFile::read`] opens a file.

mod changes;
mod diagnostic;
mod key_file;
pub mod keys;
mod name_server;
mod read;
mod save;
mod strip;
mod values;

use std::fmt;
use std::net::SocketAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use changes::{AllowedIpRemoval, Settings, changes};
pub use diagnostic::{Diagnostic, Severity};
pub use key_file::{KeyDirectories, KeyFile};
pub use name_server::{InvalidNameServer, NameServer};
pub use save::{RunningTunnel, save};
pub use strip::{StripError, strip};

use crate::document::Document;
use crate::endpoint;
use crate::interface::InterfaceName;
use crate::keys::{PublicKey, SecretKey};

/// What a tunnel's file says. It holds keys, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct TunnelFile {
    /// The interface.
    pub interface: InterfaceName,
    /// `Address`, in the order of the file, host bits kept.
    pub addresses: Vec<IpNet>,
    /// The servers that `DNS` names.
    pub dns_servers: Vec<NameServer>,
    /// The search domains that `DNS` names.
    pub search_domains: Vec<String>,
    /// `MTU` in bytes.
    pub mtu: Option<u32>,
    /// `Table`.
    pub table: Table,
    /// The commands of the file, in its order, `%i` replaced by the interface.
    pub hooks: Vec<Hook>,
    /// `SaveConfig`.
    pub save_config: bool,
    /// The private key: of the file, or once [`Self::load_keys`] has read it, of `PrivateKeyFile`.
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
    /// `OnHookError`; none if the file does not say.
    pub on_hook_error: Option<OnHookError>,
    /// `User`: the user that the daemon becomes; none if the file does not say.
    pub user: Option<String>,
    /// The peers in the order in which they are named first.
    pub peers: Vec<Peer>,
}

/// A peer.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    /// What people call it; see [`crate::document::Section::name`].
    pub name: Option<String>,
    /// `PublicKey`.
    pub public_key: PublicKey,
    /// The preshared key: of the file, or once [`TunnelFile::load_keys`] has read it, of `PresharedKeyFile`.
    pub preshared_key: Option<SecretKey>,
    /// `PresharedKeyFile`.
    pub preshared_key_file: Option<KeyFile>,
    /// `Endpoint`.
    pub endpoint: Option<Endpoint>,
    /// `AllowedIPs` as they are once all lines are applied: without host bits, each once, and none that a later peer
    /// takes away.
    pub allowed_ips: Vec<IpNet>,
    /// `PersistentKeepalive` in seconds; 0 is off.
    pub persistent_keepalive: Option<u16>,
    /// The line of its header, from 1.
    pub line: usize,
}

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At this address.
    Address(SocketAddr),
    /// At a name that has to be resolved.
    Name {
        /// The host: a name, or a form of address that only the system's resolver reads (`127.1`).
        host: String,
        /// The port, or the name of a UDP service.
        service: String,
    },
}

/// As the file has it: `host:port`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => f.write_str(&endpoint::text(address)),
            Self::Name { host, service } if host.contains(':') => write!(f, "[{host}]:{service}"),
            Self::Name { host, service } => write!(f, "{host}:{service}"),
        }
    }
}

/// `Table`: where routes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// Into the main table; a default route into one of the tunnel's own.
    #[default]
    Auto,
    /// There are none.
    Off,
    /// All of them into this one.
    Number(u32),
}

/// A command of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// When it is run.
    pub phase: Phase,
    /// The command for the shell.
    pub command: String,
}

/// When a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Before the interface is configured.
    PreUp,
    /// When all is done.
    PostUp,
    /// Before the tunnel goes.
    PreDown,
    /// When it is gone.
    PostDown,
}

/// `RouteConflict`: what is done about a route that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteConflict {
    /// It stays, and a warning says so.
    #[default]
    Skip,
    /// Ours is added with another metric.
    Metric,
    /// Ours takes its place while the tunnel is up.
    Replace,
    /// The tunnel does not come up.
    Fail,
}

/// `ExcludeLAN`: whether the networks that the host is on stay outside of the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExcludeLan {
    /// They do.
    Always,
    /// They do not.
    #[default]
    Never,
    /// They do if the tunnel takes a default route.
    Auto,
}

/// `OnHookError`: what a command that fails means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHookError {
    /// A warning.
    Warn,
    /// The tunnel does not come up.
    Abort,
}

/// What names stand for on this system.
pub trait Names {
    /// The number of a routing table (rt_tables of iproute2).
    fn table(&self, name: &str) -> Option<u32>;

    /// The port of a UDP service (services(5)).
    fn port(&self, service: &str) -> Option<u16>;
}

/// No names but the kernel's own: the tables `main`, `default` and `local`.
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
    /// What an empty file says.
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
            peers: Vec::new(),
        }
    }

    /// Reads what the file of `interface` says, and everything that is wrong with it, in the order of its lines. What is
    /// wrong is not in the result.
    pub fn read(document: &Document, interface: &InterfaceName, names: &dyn Names) -> (Self, Vec<Diagnostic>) {
        read::read(document, interface, names)
    }

    /// Reads the files that keys stand in; [`Self::private_key`] and [`Peer::preshared_key`] then have them.
    ///
    /// # Errors
    /// Sentences, one for each file that holds no key that can be read. The other keys are there all the same.
    pub fn load_keys(&mut self, folders: KeyDirectories<'_>) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        let mut load =
            |file: &Option<KeyFile>, key: &mut Option<SecretKey>| match file.as_ref().map(|file| file.read(folders)) {
                Some(Ok(read)) => *key = Some(read),
                Some(Err(sentence)) => wrong.push(sentence),
                None => {}
            };
        load(&self.private_key_file, &mut self.private_key);
        for peer in &mut self.peers {
            load(&peer.preshared_key_file, &mut peer.preshared_key);
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// The commands of a phase.
    pub fn hooks(&self, phase: Phase) -> impl Iterator<Item = &str> {
        self.hooks.iter().filter(move |hook| hook.phase == phase).map(|hook| &*hook.command)
    }

    /// Whether a peer takes a default route.
    pub fn is_full_tunnel(&self) -> bool {
        self.peers.iter().flat_map(|peer| &peer.allowed_ips).any(|prefix| prefix.prefix_len() == 0)
    }
}

impl Peer {
    /// A peer of which only the key is known.
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            name: None,
            public_key,
            preshared_key: None,
            preshared_key_file: None,
            endpoint: None,
            allowed_ips: Vec::new(),
            persistent_keepalive: None,
            line: 0,
        }
    }

    /// What to call it in a sentence: its name, else its key.
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.public_key.to_string())
    }
}
