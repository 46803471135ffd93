//! Import: turns what another tool has left into a server with its clients.
//!
//! The input is a set of files that the caller has read, and of database tables that it has printed as JSON. Nothing
//! here opens a file or runs a command, and nothing is sourced: shell files are parsed. [`recognise`] tells the kind of
//! the input, [`read`] makes an [`Import`] of it, [`Import::to_bytes`] makes the tunnel's file. Keys and addresses stay
//! as they are, so the clients' files stay valid. The old tool's NAT and forwarding are recognised ([`hooks`]) and
//! become settings of ours; [`leftovers`] finds what of it remains on the host.

mod amnezia;
mod angristan;
mod conf;
pub mod hooks;
mod hwdsl2;
mod ini;
pub mod leftovers;
mod names;
mod network_manager;
mod networkd;
mod pivpn;
mod role;
mod shell;
mod text;
mod value;
mod wg_easy_14;
mod wg_easy_15;
mod wg_quick;
mod wgdashboard;
mod wireguard_ui;
mod write;

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::zeroizing::Buffer;

pub use value::{Client, Import, Remark, Remarks};
pub use write::Options;

use self::conf::Conf;

/// A file that the caller has read.
pub struct InputFile {
    /// Its path, for messages and because tools tell their files by name.
    pub path: String,
    /// Its content, which may hold secrets.
    pub bytes: Buffer,
}

/// A table of an SQLite database.
pub struct InputTable {
    /// The path of the database.
    pub database: String,
    pub name: String,
    /// Its rows as `sqlite3 -json` prints them: an array of objects, or nothing if there is no row.
    pub rows: Buffer,
}

/// What is to be imported.
#[derive(Default)]
pub struct Input {
    /// The files, in the order in which they were named.
    pub files: Vec<InputFile>,
    /// The tables of the databases among them.
    pub tables: Vec<InputTable>,
}

/// What the caller knows and an old tool's files may not.
pub struct Context<'a> {
    /// Makes the public key of a private one.
    pub public_key: &'a dyn Fn(&SecretKey) -> PublicKey,
    /// Whether packets to the host itself are dropped unless a rule accepts them: then rules that open the port stay.
    pub input_is_closed: bool,
    /// Whether packets that the host forwards are dropped unless a rule accepts them.
    pub forward_is_closed: bool,
    /// The interfaces of the host's default routes.
    pub uplinks: &'a [String],
    /// The host's other interfaces with addresses, such as its LAN's or a bridge of containers.
    pub networks: &'a [String],
}

/// The tool that the input is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// angristan/wireguard-install.
    Angristan,
    /// hwdsl2/wireguard-install, and Nyr's, which it is made from.
    Hwdsl2,
    Pivpn,
    /// wg-easy up to 14.
    WgEasy14,
    /// wg-easy from 15.
    WgEasy15,
    /// ngoduykhanh/wireguard-ui.
    WireguardUi,
    /// WGDashboard.
    WgDashboard,
    /// A file of wg-quick.
    WgQuick,
    /// systemd-networkd.
    Networkd,
    /// NetworkManager.
    NetworkManager,
}

/// Why something cannot be imported: where, what, and what to do. It never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The file and the line or field, if it is about one.
    pub place: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }

    fn at(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: Some(place.into()), message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.as_ref().map_or(Ok(()), |place| write!(f, "{place}: "))?;
        f.write_str(&self.message)
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Angristan,
        Self::Hwdsl2,
        Self::Pivpn,
        Self::WgEasy14,
        Self::WgEasy15,
        Self::WireguardUi,
        Self::WgDashboard,
        Self::WgQuick,
        Self::Networkd,
        Self::NetworkManager,
    ];

    /// The word for it on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Angristan => "angristan",
            Self::Hwdsl2 => "hwdsl2",
            Self::Pivpn => "pivpn",
            Self::WgEasy14 => "wg-easy-14",
            Self::WgEasy15 => "wg-easy-15",
            Self::WireguardUi => "wireguard-ui",
            Self::WgDashboard => "wgdashboard",
            Self::WgQuick => "wg-quick",
            Self::Networkd => "networkd",
            Self::NetworkManager => "networkmanager",
        }
    }

    /// What it is, in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::Angristan => "angristan/wireguard-install",
            Self::Hwdsl2 => "hwdsl2/wireguard-install",
            Self::Pivpn => "PiVPN",
            Self::WgEasy14 => "wg-easy 14",
            Self::WgEasy15 => "wg-easy 15",
            Self::WireguardUi => "wireguard-ui",
            Self::WgDashboard => "WGDashboard",
            Self::WgQuick => "wg-quick",
            Self::Networkd => "systemd-networkd",
            Self::NetworkManager => "NetworkManager",
        }
    }

    /// Whether the tool runs in a container, where its hooks and interfaces are not those of the host.
    pub fn is_in_container(self) -> bool {
        matches!(self, Self::WgEasy14 | Self::WgEasy15)
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let kind = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        kind.ok_or_else(|| Error::new(format!("the kinds are {}", Self::ALL.map(Self::as_str).join(", "))))
    }
}

/// The first bytes of an SQLite database (sqlite.org/fileformat2.html).
pub const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// Whether a table of a database is of use: the others are not asked for, because they may be large or hold passwords.
pub fn is_wanted_table(name: &str) -> bool {
    let of_wg_easy = ["clients_table", "interfaces_table", "user_configs_table", "hooks_table"];
    let unwanted = ["_table", "_transfer", "_history_endpoint", "_deleted"];
    let prefixes = ["Dashboard", "sqlite_", "__", "PeerShareLinks", "JobLog"];
    of_wg_easy.contains(&name)
        || !(unwanted.iter().any(|end| name.ends_with(end)) || prefixes.iter().any(|start| name.starts_with(start)))
}

/// Whether a file found in a folder may belong to one of the tools, by its name.
pub fn is_wanted_file(name: &str) -> bool {
    let ends = [
        ".conf",
        ".json",
        ".db",
        ".db-wal",
        ".ini",
        ".env",
        ".netdev",
        ".network",
        ".nmconnection",
        ".key",
        "_priv",
        "_pub",
        "_psk",
    ];
    ["params", "clients.txt"].contains(&name) || shell::is_compose(name) || ends.iter().any(|end| name.ends_with(end))
}

/// Which tool the input is from.
///
/// # Errors
/// None that is known, or a file is damaged.
pub fn recognise(input: &Input) -> Result<Kind, Error> {
    whole(input, true)?;
    let named = |name: &str| input.named(name).next().is_some();
    let ending = |end: &str| input.files.iter().any(|file| file.path.ends_with(end));
    let table = |name: &str| input.tables.iter().any(|table| table.name == name);
    let line = |starts: &[&str]| {
        let mut confs = input.files.iter().filter(|file| file.path.ends_with(".conf"));
        confs.any(|file| {
            text::lines(&file.bytes).any(|(_, line)| starts.iter().any(|start| line.starts_with(start.as_bytes())))
        })
    };
    let kinds = [
        (named("wg-dashboard.ini") || table("ConfigurationsInfo") || table("PeerJobs"), Kind::WgDashboard),
        (table("clients_table") || table("interfaces_table"), Kind::WgEasy15),
        (wireguard_ui::is_its(input) || line(&["# This file was generated using wireguard-ui"]), Kind::WireguardUi),
        (wg_easy_14::is_its(input) || line(&["# Note: Do not edit this file directly."]), Kind::WgEasy14),
        (ending(".netdev"), Kind::Networkd),
        (ending(".nmconnection"), Kind::NetworkManager),
        (named("setupVars.conf") || named("clients.txt") || line(&["### begin ", "#[disabled] "]), Kind::Pivpn),
        (named("params") || line(&["### Client "]), Kind::Angristan),
        (line(&["# ENDPOINT ", "# BEGIN_PEER "]), Kind::Hwdsl2),
        (line(&["[Interface]"]), Kind::WgQuick),
    ];
    let found = kinds.iter().find(|(is, _)| *is).map(|(_, kind)| *kind);
    found.ok_or_else(|| {
        Error::new(
            "this is not from a tool that is known: name the folder or the files that it keeps its clients in, \
             see `linerate server import --help`",
        )
    })
}

/// Reads the input as that of `kind`.
///
/// # Errors
/// What is missing or wrong, with its place.
pub fn read(kind: Kind, input: &Input, context: &Context<'_>) -> Result<Import, Error> {
    whole(input, kind != Kind::WgQuick)?;
    amnezia::refuse(kind, input)?;
    let mut import = match kind {
        Kind::Angristan => angristan::read(input, context),
        Kind::Hwdsl2 => hwdsl2::read(input, context),
        Kind::Pivpn => pivpn::read(input, context),
        Kind::WgEasy14 => wg_easy_14::read(input),
        Kind::WgEasy15 => wg_easy_15::read(input),
        Kind::WireguardUi => wireguard_ui::read(input),
        Kind::WgDashboard => wgdashboard::read(input, context),
        Kind::WgQuick => wg_quick::read(input, context),
        Kind::Networkd => networkd::read(input),
        Kind::NetworkManager => network_manager::read(input),
    }?;
    refuse_own(input, &import.interface)?;
    import.take_client_files(input, context);
    import.find_pool();
    import.replace_hooks(context);
    import.say_who_resolves();
    import.settle_names();
    import.check(context)?;
    import.say_what_was_taken();
    Ok(import)
}

/// A server that was imported already may have changed since.
fn refuse_own(input: &Input, interface: &str) -> Result<(), Error> {
    let ours = |line: &[u8]| line.starts_with(b"#! PublicEndpoint");
    for file in input.files.iter().filter(|file| file.path.ends_with(".conf") && file.stem() == interface) {
        if let Some((number, _)) = text::lines(&file.bytes).find(|(_, line)| ours(line)) {
            return Err(Error::at(
                format!("{}:{number}", file.path),
                "this is a server of linerate already; `linerate server show` shows it",
            ));
        }
    }
    Ok(())
}

/// Refuses files that are empty or cut off, so that a damaged state is not taken for a missing one. `all`: checks files of
/// every kind, not only wg-quick's.
fn whole(input: &Input, all: bool) -> Result<(), Error> {
    let others = |path: &str| {
        let is_one = [".json", ".ini", ".env", ".nmconnection"].iter().any(|end| path.ends_with(end));
        // A panel's log database may still be empty.
        is_one || (path.ends_with(".db") && !path.ends_with("_log.db"))
    };
    for file in &input.files {
        let path = &file.path;
        let is_drop_in = path.contains(".d/");
        let is_looked_at = (path.ends_with(".conf") && !is_drop_in) || (all && others(path));
        // A power failure during a write can leave a file full of zeros.
        if is_looked_at && file.bytes.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace()) {
            let instead = if path.ends_with(".json") || path.ends_with(".db") {
                "restore it from a backup, or take only what its file of wg-quick has: name that file alone, with \
                 --from wg-quick"
            } else {
                "restore it from a backup, or name only the files that belong to the server"
            };
            return Err(Error::at(path, format!("the file is empty: is it whole? Otherwise {instead}")));
        }
        if is_looked_at && path.ends_with(".db") {
            return Err(Error::at(path, "this is not an SQLite database: it is damaged, or another program's"));
        }
        if is_looked_at && path.ends_with(".json") {
            text::json::<serde::de::IgnoredAny>(&file.bytes, path)?;
        }
    }
    Ok(())
}

impl Input {
    /// The files with this name, in any folder.
    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a InputFile> {
        self.files.iter().filter(move |file| file.name() == name)
    }

    /// The rows of a table, if it is there.
    fn table(&self, name: &str) -> Option<&InputTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Returns the paths, possibly relative, of key files that the tunnels' commands use and the input lacks.
    pub fn missing_key_files(&self) -> Vec<String> {
        let confs = self.files.iter().filter(|file| file.path.ends_with(".conf") && conf::is_tunnel(&file.bytes));
        let all = confs.filter_map(|file| Conf::read(file).ok()).flat_map(|conf| conf.key_files);
        let paths = all.map(|key| key.path).filter(|path| self.key_file(path).is_none());
        paths.collect()
    }

    /// Finds a key file by its path, or else by its name, since the files may have been moved.
    fn key_file(&self, path: &str) -> Option<&InputFile> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_its = |file: &&InputFile| file.name() == name;
        self.files.iter().find(|file| file.path == path).or_else(|| self.files.iter().find(is_its))
    }

    /// The only file that is a server's: it has several peers, or one without an endpoint, and is not that of a client
    /// of another one, one that was removed there included.
    fn server_conf(&self, wanted: Option<&str>, context: &Context<'_>) -> Result<Conf, Error> {
        let mut servers = Vec::new();
        for file in self.files.iter().filter(|file| file.path.ends_with(".conf")) {
            if wanted.is_some_and(|wanted| file.stem() != wanted) || !conf::is_tunnel(&file.bytes) {
                continue;
            }
            let mut conf = Conf::read(file)?;
            conf.take_keys(self)?;
            if !conf.is_clients() {
                servers.push(conf);
            }
        }
        let (mut servers, rest): (Vec<Conf>, Vec<Conf>) = servers.into_iter().partition(|conf| !conf.may_be_clients());
        let own_key = |conf: &Conf| conf.file.private_key.as_ref().map(context.public_key);
        let peers_keys = |conf: &Conf| conf.file.peers.iter().map(|peer| peer.public_key).collect::<Vec<_>>();
        let own: HashSet<PublicKey> = servers.iter().filter_map(own_key).collect();
        let clients: HashSet<PublicKey> = servers.iter().flat_map(peers_keys).collect();
        let is_clients = |conf: &Conf| {
            own_key(conf).is_some_and(|key| clients.contains(&key))
                || peers_keys(conf).iter().any(|key| own.contains(key))
        };
        servers.extend(rest.into_iter().filter(|conf| !is_clients(conf)));
        let paths = servers.iter().map(|conf| conf.path.clone()).collect::<Vec<_>>().join(", ");
        let mut servers = servers.into_iter();
        match (servers.next(), servers.next(), wanted) {
            (Some(only), None, _) => Ok(only),
            (None, _, Some(wanted)) => Err(Error::new(format!("{wanted}.conf is missing: name its path, too"))),
            (None, ..) => Err(Error::new("no file of a server is among these: name the path of its wg0.conf")),
            _ => Err(Error::new(format!(
                "several servers are among these ({paths}): name the files of one of them instead of the folder"
            ))),
        }
    }
}

impl InputFile {
    /// The last part of its path.
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Its name without what follows the last dot.
    fn stem(&self) -> &str {
        self.name().rsplit_once('.').map_or(self.name(), |(stem, _)| stem)
    }
}
