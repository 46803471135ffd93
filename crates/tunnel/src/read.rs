//! The file of a tunnel: where it is, what is in it, and what that means for the host and for the daemon.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::record::ledger::Ledger;
use ipnet::IpNet;
use linerate_control::document::Document;
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::{
    Diagnostic, Endpoint, ExcludeLan, KeyDirectories, Names, OnHookError, Peer, Settings, Severity, TunnelFile,
};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;
use linerate_control::zeroizing::Buffer;
use linerate_host::plan::Hooks;
use linerate_host::wanted::{Dns, Wanted};
use zeroize::Zeroizing;

use crate::inaccessible;
use crate::resolve::Named;
use linerate_program::Complaint;

/// Where names are looked for (man 8 wg-quick).
const DIRECTORY: &str = "/etc/wireguard";

/// A file that was read.
pub struct Source {
    /// Where it is, links followed.
    pub path: PathBuf,
    /// Where it is as it was called.
    pub called: PathBuf,
    /// The interface that it is named after.
    pub interface: InterfaceName,
    /// Its text.
    pub document: Document,
    /// What it says.
    pub file: TunnelFile,
    /// What is wrong with it.
    pub diagnostics: Vec<Diagnostic>,
}

/// What becomes of the default routes to a peer whose endpoint is a name without an address: the question for it would
/// go where they lead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    /// They wait until there is one, and so do the name servers of the tunnel.
    Held,
    /// They are there all the same: what is taken down may have them.
    Counted,
}

/// Where the file of `operand` is, an interface's name or a path, and which interface it is for.
///
/// # Errors
/// In the words of wg-quick: there is none, or its name is none of an interface.
pub fn locate(operand: &str) -> Result<(PathBuf, InterfaceName), Complaint> {
    let path = named(operand);
    if !path.try_exists().map_err(|error| inaccessible(&path, &error))? {
        return Err(format!("`{}' does not exist{}", path.display(), meant(operand)));
    }
    let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".conf")?.parse().ok());
    let name = name.ok_or("The config file must be a valid interface name, followed by .conf")?;
    let path = fs::canonicalize(&path).map_err(|error| inaccessible(&path, &error))?;
    Ok((path, name))
}

/// What `wg0.conf` may have been meant for, as the end of a sentence: without a slash it names an interface.
fn meant(operand: &str) -> String {
    let Some(name) = operand.strip_suffix(".conf").filter(|_| operand.parse::<InterfaceName>().is_ok()) else {
        return String::new();
    };
    if Path::new(operand).exists() {
        format!("; did you mean `./{operand}'?")
    } else if named(name).exists() {
        format!("; did you mean `{name}'?")
    } else {
        String::new()
    }
}

fn named(operand: &str) -> PathBuf {
    match operand.parse::<InterfaceName>() {
        Ok(name) => Path::new(DIRECTORY).join(format!("{name}.conf")),
        Err(_) => PathBuf::from(operand),
    }
}

/// Where systemd puts what a service is given.
fn credentials() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// Whether everybody may read the file, by its mode and that of its folder.
fn is_world_accessible(path: &Path) -> bool {
    let mode = |path: &Path| fs::metadata(path).map_or(0, |data| data.permissions().mode());
    mode(path) & path.parent().map_or(0, mode) & 0o007 != 0
}

impl Source {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read. What is wrong with what it says is in [`Source::diagnostics`].
    pub fn read(path: PathBuf, interface: InterfaceName) -> Result<Self, Complaint> {
        let text = fs::read(&path).map(Zeroizing::new).map_err(|error| inaccessible(&path, &error))?;
        Ok(Self::of(path, interface, &text))
    }

    /// The same, as the user has called it: a name or a path, whose links may lead elsewhere another day.
    pub fn called_as(mut self, operand: &str) -> Self {
        self.called = std::path::absolute(named(operand)).unwrap_or(self.called);
        self
    }

    /// Whether it is the file that a tunnel was brought up from: the same one, or one of the same name where that led to
    /// another then, or one that has taken the place of one that was moved.
    pub fn is_file_of(&self, ledger: &Ledger) -> bool {
        ledger.file == self.path || ledger.called.as_ref() == Some(&self.called) || !ledger.file.exists()
    }

    /// The file as it was when the tunnel was brought up.
    pub fn of(path: PathBuf, interface: InterfaceName, text: &[u8]) -> Self {
        let document = Document::parse(text);
        let (file, diagnostics) = TunnelFile::read(&document, &interface, &System);
        Self { called: path.clone(), path, interface, document, file, diagnostics }
    }

    /// The text, as it is in the file.
    pub fn text(&self) -> Buffer {
        self.document.to_bytes()
    }

    /// What is wrong with the file, a line each; with errors, what is no error comes along.
    ///
    /// # Errors
    /// There is something that the tunnel cannot do without.
    pub fn check(&self) -> Result<Vec<String>, Complaint> {
        let lines = self.diagnostics.iter().map(|diagnostic| format!("{}:{diagnostic}", self.path.display()));
        let lines: Vec<String> = lines.collect();
        match self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
            true => Err(lines.join("\n")),
            false => Ok(lines),
        }
    }

    /// What the file says, with the keys that stand in files of their own.
    ///
    /// # Errors
    /// A file that holds a key cannot be read.
    pub fn loaded(&self) -> Result<TunnelFile, Complaint> {
        let mut file = self.file.clone();
        let credentials = credentials();
        file.load_keys(self.folders(credentials.as_deref())).map_err(|sentences| sentences.join("\n"))?;
        Ok(file)
    }

    fn folders<'a>(&'a self, credentials: Option<&'a Path>) -> KeyDirectories<'a> {
        KeyDirectories { configuration: self.path.parent().unwrap_or(Path::new("/")), credentials }
    }

    /// Its own path and those of the files that hold its keys, as far as everybody may read them.
    pub fn world_accessible(&self) -> Vec<PathBuf> {
        let credentials = credentials();
        let folders = self.folders(credentials.as_deref());
        let of_peers = self.file.peers.iter().filter_map(|peer| peer.preshared_key_file.as_ref());
        let key_files = self.file.private_key_file.iter().chain(of_peers).filter_map(|file| file.path(folders).ok());
        let mut paths: Vec<PathBuf> = [self.path.clone()].into_iter().chain(key_files).collect();
        paths.retain(|path| is_world_accessible(path));
        paths
    }

    /// The peers whose endpoints are names.
    pub fn names(&self) -> Vec<Named> {
        let named = |peer: &Peer| match &peer.endpoint {
            Some(Endpoint::Name { host, service }) => {
                Some(Named { peer: peer.public_key, host: host.clone(), service: service.clone() })
            }
            _ => None,
        };
        self.file.peers.iter().filter_map(named).collect()
    }

    /// What a new device is told: the file's literal endpoints, and of those that are names the first address of
    /// `resolved`, which is in the order of [`Source::names`].
    ///
    /// # Errors
    /// A file that holds a key cannot be read.
    pub fn device(&self, resolved: &[Vec<SocketAddr>]) -> Result<DeviceUpdate, Complaint> {
        let mut settings = self.loaded()?.settings();
        self.resolve(&mut settings, resolved);
        Ok(settings.update)
    }

    /// Gives those peers their addresses whose endpoints are names, as far as they are known.
    pub fn resolve(&self, settings: &mut Settings, resolved: &[Vec<SocketAddr>]) {
        for (named, addresses) in self.names().iter().zip(resolved) {
            let wanted = settings.unresolved.iter().any(|(peer, _)| *peer == named.peer);
            let peer = settings.update.peers.iter_mut().rfind(|peer| peer.public_key == named.peer && !peer.remove);
            if let (true, Some(peer), Some(address)) = (wanted, peer, addresses.first()) {
                peer.endpoint = Some(*address);
            }
        }
    }

    /// As [`Source::device`], for a tunnel that runs and is about to get `update`: names stand for the addresses that its
    /// peers then have.
    ///
    /// # Errors
    /// A file that holds a key cannot be read.
    pub fn device_beside(&self, update: &DeviceUpdate, running: &DeviceState) -> Result<DeviceUpdate, Complaint> {
        let mut device = self.device(&[])?;
        for peer in device.peers.iter_mut().filter(|peer| peer.endpoint.is_none()) {
            let told = update.peers.iter().rfind(|told| told.public_key == peer.public_key);
            let state = running.peers.iter().find(|state| state.public_key == peer.public_key);
            peer.endpoint = told.and_then(|told| told.endpoint).or_else(|| state?.endpoint);
        }
        Ok(device)
    }

    /// Whether default routes may have to wait for the address of a name.
    pub fn may_hold_back(&self) -> bool {
        self.file.peers.iter().any(|peer| self.may_pend(peer))
    }

    /// Whether default routes of the file are held back on a host that was made what is `wanted`.
    pub fn holds_back(&self, wanted: &Wanted) -> bool {
        let all = self.wanted(&DeviceUpdate::default(), Pending::Counted);
        self.may_hold_back() && all.allowed_ips.len() != wanted.allowed_ips.len()
    }

    /// Whether a peer takes everything, and where it is can only be asked for while it does not.
    fn pends(&self, peer: &Peer, device: &DeviceUpdate) -> bool {
        let is_known =
            || device.peers.iter().any(|known| known.public_key == peer.public_key && known.endpoint.is_some());
        self.may_pend(peer) && !is_known()
    }

    fn may_pend(&self, peer: &Peer) -> bool {
        let takes_all = peer.allowed_ips.iter().any(|net| net.prefix_len() == 0);
        matches!(peer.endpoint, Some(Endpoint::Name { .. })) && takes_all && !self.file.kill_switch
    }

    /// What it means that a name has no address yet, as the end of a sentence.
    pub fn what_pends(&self, named: &Named) -> &'static str {
        let peer = self.file.peers.iter().find(|peer| peer.public_key == named.peer);
        match peer.is_some_and(|peer| peer.allowed_ips.iter().any(|net| net.prefix_len() == 0)) {
            true if self.file.kill_switch => {
                "KillSwitch blocks the DNS lookup of this endpoint; use an IP address or /etc/hosts"
            }
            true => "retrying in the background; until then only traffic to its own networks goes through this tunnel",
            false => "retrying in the background",
        }
    }

    /// What is wanted of the host. Endpoints are those of `device`.
    pub fn wanted(&self, device: &DeviceUpdate, pending: Pending) -> Wanted {
        let file = &self.file;
        let held: Vec<&Peer> = match pending {
            Pending::Held => file.peers.iter().filter(|peer| self.pends(peer, device)).collect(),
            Pending::Counted => Vec::new(),
        };
        let is_held = |peer: &Peer, net: &IpNet| {
            net.prefix_len() == 0 && held.iter().any(|held| held.public_key == peer.public_key)
        };
        let allowed_ips = |peer: &Peer| -> Vec<IpNet> {
            peer.allowed_ips.iter().copied().filter(|net| !is_held(peer, net)).collect()
        };
        Wanted {
            interface: self.interface.to_string(),
            addresses: file.addresses.clone(),
            // Its servers may be behind the tunnel.
            dns: match held.is_empty() {
                true => Dns { servers: file.dns_servers.clone(), search: file.search_domains.clone() },
                false => Dns::default(),
            },
            mtu: file.mtu,
            table: file.table,
            fwmark: file.fwmark.filter(|mark| *mark != 0),
            allowed_ips: file.peers.iter().flat_map(allowed_ips).collect(),
            endpoints: device.peers.iter().filter_map(|peer| peer.endpoint).collect(),
            route_conflict: file.route_conflict,
            kill_switch: file.kill_switch,
            excluded: file.excluded_ips.clone(),
            exclude_lan: match file.exclude_lan {
                ExcludeLan::Always => true,
                ExcludeLan::Never => false,
                ExcludeLan::Auto => file.is_full_tunnel(),
            },
        }
    }

    /// The commands.
    pub fn hooks(&self) -> Hooks {
        Hooks { commands: self.file.hooks.iter().map(|hook| (hook.phase, hook.command.clone())).collect() }
    }

    /// Whether a command that fails is only told.
    pub fn forgives_hooks(&self) -> bool {
        self.file.on_hook_error == Some(OnHookError::Warn)
    }
}

/// The names of this system: routing tables and services.
struct System;

impl Names for System {
    fn table(&self, name: &str) -> Option<u32> {
        RT_TABLES.iter().find_map(|file| number_of(&fs::read_to_string(file).ok()?, name))
    }

    fn port(&self, service: &str) -> Option<u16> {
        crate::resolver::port(service).ok()
    }
}

/// Where iproute2 has the names of tables.
const RT_TABLES: [&str; 2] = ["/etc/iproute2/rt_tables", "/usr/share/iproute2/rt_tables"];

/// The number that a line `NUMBER NAME` gives to `name`.
fn number_of(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        (words.next()? == name).then_some(number)
    })
}
