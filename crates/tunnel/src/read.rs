//! The first step: the file of a tunnel, where it is, what is in it, and what that asks of the host and of the daemon.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use linerate_control::atomic_file;
use linerate_control::characters::decoded;
use linerate_control::document::{Document, Section, SectionKind};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{
    Diagnostic, Endpoint, ExcludeLan, KeyDirectories, KeyFile, Names, OnHookError, Peer, Severity, TunnelFile,
};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::zeroizing::Buffer;
use linerate_host::plan::Hooks;
use linerate_host::plan::gateway::restrictions;
use linerate_host::spec::{Dns, Forwarding, HostSpec, Restriction};
use linerate_protocol::PrivateKey;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::identity;
use crate::ledger::{self, Ledger, LedgerHead};
use crate::places;
use crate::resolver::NamedEndpoint;

/// The directory of files that are named by their interface (wg-quick(8)).
pub(crate) const DIRECTORY: &str = places::CONFIGURATION;

/// The file of a tunnel.
pub struct ConfigFile {
    /// Its path, links followed.
    pub path: PathBuf,
    /// Its path as the user gave it.
    pub called: PathBuf,
    /// The interface that it is named after.
    pub interface: InterfaceName,
    /// Its lines.
    pub document: Document,
    /// Its text, which the lines share if they were read from it.
    text: Arc<Buffer>,
    /// Its settings.
    pub contents: TunnelFile,
    /// Its errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// Whether default routes are deferred until the endpoint is resolved. Otherwise the DNS lookup itself would go into
/// the tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultRoutes {
    /// Deferred, like the tunnel's name servers.
    OnceResolved,
    /// Not deferred: a tunnel that is taken down may have them.
    Always,
}

/// The interface that `operand` names for `down`, and its file if that can be read: a running tunnel is found even if
/// its file was deleted.
///
/// # Errors
/// There is neither a file nor a tunnel.
pub fn find(operand: &str) -> Result<(InterfaceName, Option<ConfigFile>), Error> {
    let error = match ConfigFile::open(operand) {
        Ok(file) => return Ok((file.interface.clone(), Some(file))),
        Err(error) => error,
    };
    let name = Path::new(operand).file_name().and_then(|name| name.to_str()).unwrap_or(operand);
    let name: Option<InterfaceName> = name.strip_suffix(".conf").unwrap_or(name).parse().ok();
    match name.filter(|name| ledger::read(ledger::directory(), name).is_ok_and(|ledger| ledger.is_some())) {
        Some(interface) => Ok((interface, None)),
        None => Err(error),
    }
}

/// What the user may have meant by `wg0.conf`, as the end of a sentence: without a slash it names an interface.
fn meant(operand: &str) -> String {
    let Some(name) = operand.strip_suffix(".conf").filter(|_| operand.parse::<InterfaceName>().is_ok()) else {
        return String::new();
    };
    if Path::new(operand).exists() {
        format!("; did you mean `./{operand}'?")
    } else if named(name).exists() {
        format!("; did you mean `{name}'?")
    } else {
        format!(
            "; for {DIRECTORY}/{operand} use `{name}', for another file give its path, such as `/path/to/{operand}'"
        )
    }
}

pub(crate) fn named(operand: &str) -> PathBuf {
    match operand.parse::<InterfaceName>() {
        Ok(name) => Path::new(DIRECTORY).join(format!("{name}.conf")),
        Err(_) => PathBuf::from(operand),
    }
}

/// Where systemd puts the credentials of a service (systemd.exec(5)).
fn credentials() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// Whether the modes of a file and its folder let every user read it.
fn is_world_accessible(path: &Path) -> bool {
    let mode = |path: &Path| fs::metadata(path).map_or(0, |data| data.permissions().mode());
    mode(path) & path.parent().map_or(0, mode) & 0o007 != 0
}

impl ConfigFile {
    /// Reads the file of `operand`: an interface's name, or a path.
    ///
    /// # Errors
    /// There is none, it cannot be read, or its name is not that of an interface. What is wrong with its contents is in
    /// [`ConfigFile::diagnostics`].
    pub fn open(operand: &str) -> Result<Self, Error> {
        let called = named(operand);
        let file = Self::at(&called, operand)?;
        // Symbolic links may change later.
        Ok(Self { called: std::path::absolute(called).unwrap_or_else(|_| file.path.clone()), ..file })
    }

    /// The same file as it is now.
    ///
    /// # Errors
    /// As [`ConfigFile::open`].
    pub fn reopen(&self) -> Result<Self, Error> {
        Ok(Self { called: self.called.clone(), ..Self::at(&self.called, "")? })
    }

    /// The same file as it is now, if it has changed since it was read: what another command wrote while this one waited
    /// for the lock.
    ///
    /// # Errors
    /// It cannot be read any more, or has errors now.
    pub(crate) fn changed(&self) -> Result<Option<Self>, Error> {
        if self.is_as_read().unwrap_or(false) {
            return Ok(None);
        }
        let file = self.reopen()?;
        file.check()?;
        Ok(Some(file))
    }

    /// Whether the file still has this text. It is compared piece by piece: fresh memory for a large file takes longer
    /// than the rest.
    ///
    /// # Errors
    /// It cannot be read any more.
    pub(crate) fn is_as_read(&self) -> io::Result<bool> {
        has_text(&self.path, self.text())
    }

    fn at(path: &Path, operand: &str) -> Result<Self, Error> {
        if !path.try_exists().map_err(Error::inaccessible(path))? {
            let renamed = operand.parse().ok().and_then(|name| identity::renamed_from(&name));
            return Err(renamed.unwrap_or_else(|| Error::NoFile { path: path.to_owned(), hint: meant(operand) }));
        }
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".conf")?.parse().ok());
        let name = name.ok_or_else(|| Error::FileName(path.to_owned()))?;
        let path = fs::canonicalize(path).map_err(Error::inaccessible(path))?;
        let text = Arc::new(read_text(&path)?);
        let document = Document::of(Arc::clone(&text));
        // A person waits for it, and this process has not given up the right to have threads.
        document.read_ahead();
        Ok(Self::parsed(path, name, document, text))
    }

    /// Reads the file at `path`, which has no links, for `interface`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(path: PathBuf, interface: InterfaceName) -> Result<Self, Error> {
        let text = read_text(&path)?;
        Ok(Self::of(path, interface, text))
    }

    /// Whether the tunnel of `ledger` was brought up from this file: from the same path, from the same path as the user
    /// gave it (its links may have changed), or from a file that has since been moved.
    pub(crate) fn is_file_of(&self, ledger: &Ledger) -> bool {
        self.is_at(&ledger.file, ledger.called.as_deref())
    }

    /// As [`ConfigFile::is_file_of`].
    pub(crate) fn is_file_of_head(&self, ledger: &LedgerHead) -> bool {
        self.is_at(&ledger.file, ledger.called.as_deref())
    }

    fn is_at(&self, path: &Path, called: Option<&Path>) -> bool {
        path == self.path || called == Some(&self.called) || !path.exists()
    }

    /// As [`ConfigFile::read`], from its text: that of the ledger's copy, say.
    pub(crate) fn of(path: PathBuf, interface: InterfaceName, text: impl Into<Arc<Buffer>>) -> Self {
        let text = text.into();
        Self::parsed(path, interface, Document::of(Arc::clone(&text)), text)
    }

    fn parsed(path: PathBuf, interface: InterfaceName, document: Document, text: Arc<Buffer>) -> Self {
        let (contents, diagnostics) = contents(&document, &interface, &path);
        Self { called: path.clone(), path, interface, document, text, contents, diagnostics }
    }

    /// The file with another text.
    pub(crate) fn with(&self, document: Document) -> Self {
        let (contents, diagnostics) = contents(&document, &self.interface, &self.path);
        let Self { path, called, interface, .. } = self;
        let (path, called, interface) = (path.clone(), called.clone(), interface.clone());
        Self { path, called, interface, text: Arc::new(document.to_bytes()), document, contents, diagnostics }
    }

    /// The settings and diagnostics as if disabled peers were in force.
    pub fn with_disabled(&self) -> (TunnelFile, Vec<Diagnostic>) {
        let is_disabled = |section: &Section| section.kind() == SectionKind::DisabledPeer;
        match self.document.sections().iter().any(is_disabled) {
            true => TunnelFile::read_with_disabled(&self.document, &self.interface, &System),
            false => (self.contents.clone(), self.diagnostics.clone()),
        }
    }

    /// The text, as it is in the file.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The warnings, a line each.
    ///
    /// # Errors
    /// There are errors; warnings come along.
    pub fn check(&self) -> Result<Vec<String>, Error> {
        let lines = self.diagnostics.iter().map(|diagnostic| format!("{}:{diagnostic}", self.path.display()));
        let lines: Vec<String> = lines.collect();
        match self.has_errors() {
            true => Err(Error::File(lines.join("\n"))),
            false => Ok(lines),
        }
    }

    /// Whether the file has errors.
    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// The settings, with the keys that are in files of their own.
    ///
    /// # Errors
    /// A file that holds a key cannot be read.
    pub fn loaded(&self) -> Result<Cow<'_, TunnelFile>, Error> {
        if !self.contents.has_key_files() {
            return Ok(Cow::Borrowed(&self.contents));
        }
        let mut file = self.contents.clone();
        let credentials = credentials();
        file.load_keys(self.folders(credentials.as_deref())).map_err(|sentences| Error::File(sentences.join("\n")))?;
        Ok(Cow::Owned(file))
    }

    fn folders<'a>(&'a self, credentials: Option<&'a Path>) -> KeyDirectories<'a> {
        folders(&self.path, credentials)
    }

    /// The paths of this file and of its key files, as far as every user may read them.
    pub fn world_accessible(&self) -> Vec<PathBuf> {
        let credentials = credentials();
        let folders = self.folders(credentials.as_deref());
        let of_peers = self.contents.peers.iter().filter_map(|peer| peer.preshared_key_file.as_ref());
        let key_files =
            self.contents.private_key_file.iter().chain(of_peers).filter_map(|file| file.path(folders).ok());
        let mut paths: Vec<PathBuf> = [self.path.clone()].into_iter().chain(key_files).collect();
        paths.retain(|path| is_world_accessible(path));
        paths
    }

    /// Whether default routes may have to be deferred.
    pub(crate) fn may_defer_routes(&self) -> bool {
        self.contents.peers.iter().any(|peer| self.may_defer_routes_to(peer))
    }

    /// Whether `spec` lacks default routes of the file because they are deferred.
    pub(crate) fn has_deferred_routes(&self, spec: &HostSpec) -> bool {
        let all = self.host_spec(&DeviceUpdate::default(), DefaultRoutes::Always);
        self.may_defer_routes() && all.allowed_ips.len() != spec.allowed_ips.len()
    }

    /// Whether default routes to the peer are deferred, because it has no endpoint in `device`.
    fn defers_routes_to(&self, peer: &Peer, device: &DeviceUpdate) -> bool {
        let is_known =
            || device.peers.iter().any(|known| known.public_key == peer.public_key && known.endpoint.is_some());
        self.may_defer_routes_to(peer) && !is_known()
    }

    fn may_defer_routes_to(&self, peer: &Peer) -> bool {
        matches!(peer.endpoint, Some(Endpoint::Name { .. })) && has_default_route(peer) && !self.contents.kill_switch
    }

    /// The message about an endpoint without an address.
    pub(crate) fn without_address(&self, named: &NamedEndpoint) -> String {
        let peer = self.contents.peers.iter().find(|peer| peer.public_key == named.peer);
        let consequence = match peer.is_some_and(|peer| has_default_route(peer)) {
            true if self.contents.kill_switch => {
                "KillSwitch blocks the DNS lookup of this endpoint; use an IP address or /etc/hosts"
            }
            true => "retrying in the background; until then only traffic to its own networks goes through this tunnel",
            false => "retrying in the background",
        };
        format!("{named}: no address yet; {consequence}")
    }

    /// What the file asks of the host. Endpoints are those of `device`.
    pub(crate) fn host_spec(&self, device: &DeviceUpdate, default_routes: DefaultRoutes) -> HostSpec {
        self.host_spec_of(&self.contents.peers, device, default_routes)
    }

    /// As [`ConfigFile::host_spec`], if these were its peers.
    pub(crate) fn host_spec_of(
        &self,
        peers: &[Arc<Peer>],
        device: &DeviceUpdate,
        default_routes: DefaultRoutes,
    ) -> HostSpec {
        let file = &self.contents;
        let deferred: Vec<&Arc<Peer>> = match default_routes {
            DefaultRoutes::OnceResolved => peers.iter().filter(|peer| self.defers_routes_to(peer, device)).collect(),
            DefaultRoutes::Always => Vec::new(),
        };
        let is_deferred = |peer: &Peer, net: &IpNet| {
            net.prefix_len() == 0 && deferred.iter().any(|deferred| deferred.public_key == peer.public_key)
        };
        let allowed_ips = |peer: &Arc<Peer>| -> Vec<IpNet> {
            peer.allowed_ips.iter().copied().filter(|net| !is_deferred(peer, net)).collect()
        };
        let mut routed: Vec<IpNet> = peers.iter().flat_map(allowed_ips).collect();
        if file.has_groups() {
            // Those of a group are in each of its peers.
            let mut seen = HashSet::new();
            routed.retain(|net| seen.insert(*net));
        }
        HostSpec {
            interface: self.interface.to_string(),
            addresses: file.addresses.clone(),
            // Name servers may be behind the tunnel.
            dns: match deferred.is_empty() {
                true => Dns { servers: file.dns_servers.clone(), search: file.search_domains.clone() },
                false => Dns::default(),
            },
            mtu: file.mtu,
            table: file.table,
            fwmark: file.fwmark.filter(|mark| *mark != 0),
            allowed_ips: routed,
            endpoints: device.peers.iter().filter_map(|peer| peer.endpoint).collect(),
            route_conflict: file.route_conflict,
            kill_switch: file.kill_switch,
            excluded: file.excluded_ips.clone(),
            exclude_lan: match file.exclude_lan {
                ExcludeLan::Always => true,
                ExcludeLan::Never => false,
                ExcludeLan::Auto => file.is_full_tunnel(),
            },
            forwarding: Forwarding {
                gateway: file.gateway.clone(),
                masquerade: file.masquerade,
                isolated: file.client_isolation,
                inbound: file.inbound,
                listen_port: file.listen_port.filter(|port| *port != 0),
                fixes_firewall: file.fix_firewall,
                restrictions: restrictions_of(peers),
            },
        }
    }

    /// The commands of the file.
    pub(crate) fn hooks(&self) -> Hooks {
        Hooks { commands: self.contents.hooks.iter().map(|hook| (hook.phase, hook.command.clone())).collect() }
    }

    /// Whether a failing hook is only reported.
    pub(crate) fn tolerates_hook_errors(&self) -> bool {
        self.contents.on_hook_error == Some(OnHookError::Warn)
    }
}

/// Returns the folders of the key files that the file at `path` names.
fn folders<'a>(path: &'a Path, credentials: Option<&'a Path>) -> KeyDirectories<'a> {
    KeyDirectories { configuration: path.parent().unwrap_or(Path::new("/")), credentials }
}

/// Reads the settings of a file. Leaves out a peer that is the interface itself, as in a file for all hosts of a mesh.
fn contents(document: &Document, interface: &InterfaceName, path: &Path) -> (TunnelFile, Vec<Diagnostic>) {
    let (file, diagnostics) = TunnelFile::read(document, interface, &System);
    match own_key(&file, path) {
        Some(own) if file.peers.iter().any(|peer| peer.public_key == own) => {
            TunnelFile::read_without(document, interface, &System, &own)
        }
        _ => (file, diagnostics),
    }
}

/// The interface's public key, if the file has peers and its key can be read.
fn own_key(file: &TunnelFile, path: &Path) -> Option<PublicKey> {
    file.peers.first()?;
    let read = |key_file: &KeyFile| key_file.read(folders(path, credentials().as_deref())).ok();
    let secret = file.private_key.clone().or_else(|| read(file.private_key_file.as_ref()?))?;
    PrivateKey::new(secret.as_bytes()).map(|key| PublicKey(key.public_key().0))
}

fn read_text(path: &Path) -> Result<Buffer, Error> {
    atomic_file::read(path).map(decoded).map_err(Error::inaccessible(path))
}

/// Whether a file has this text.
pub(crate) fn has_text(path: &Path, text: &[u8]) -> io::Result<bool> {
    // A file in UTF-16 has this text after decoding.
    Ok(reads_as(File::open(path)?, text)? || *decoded(atomic_file::read(path)?) == *text)
}

fn reads_as(mut file: impl Read, text: &[u8]) -> io::Result<bool> {
    let mut piece = Zeroizing::new([0; 32 * 1024]);
    let mut rest = text;
    loop {
        let length = match file.read(&mut *piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            length => length?,
        };
        match rest.strip_prefix(&piece[..length]) {
            Some(after) if length > 0 => rest = after,
            Some(_) => return Ok(rest.is_empty()),
            None => return Ok(false),
        }
    }
}

/// Where the packets of peers may go, if these are all.
pub(crate) fn restrictions_of(peers: &[Arc<Peer>]) -> Vec<Restriction> {
    restrictions(peers.iter().map(|peer| (&*peer.allowed_ips, &*peer.destinations)))
}

fn has_default_route(peer: &Peer) -> bool {
    peer.allowed_ips.iter().any(|net| net.prefix_len() == 0)
}

/// The names of this system: routing tables and services.
pub struct System;

impl Names for System {
    fn table(&self, name: &str) -> Option<u32> {
        RT_TABLES.iter().find_map(|file| number_of(&fs::read_to_string(file).ok()?, name))
    }

    fn port(&self, service: &str) -> Option<u16> {
        linerate_control::resolver::port(service).ok()
    }
}

/// The names of routing tables (ip-route(8)).
const RT_TABLES: [&str; 2] = ["/etc/iproute2/rt_tables", "/usr/share/iproute2/rt_tables"];

/// The number that a line `NUMBER NAME` gives to `name`.
fn number_of(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        (words.next()? == name).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives these pieces, and is interrupted before each.
    struct Interrupted<'a>(Vec<&'a [u8]>, bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::Interrupted.into());
            }
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn a_file_is_compared_to_its_end_whatever_interrupts_that() {
        let reads =
            |pieces: &[&'static [u8]], text: &[u8]| reads_as(Interrupted(pieces.to_vec(), false), text).unwrap();
        assert!(reads(&[b"[Inter", b"face]"], b"[Interface]") && reads(&[], b""));
        assert!(!reads(&[b"[Inter"], b"[Interface]"), "it is shorter");
        assert!(!reads(&[b"[Interface]", b"x"], b"[Interface]"), "it is longer");
        assert!(!reads(&[b"[Inter", b"fake]"], b"[Interface]"), "it is another one");
    }
}
