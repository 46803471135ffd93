//! A file of wg-quick, of a server or of a client.

use linerate_control::document::{Document, SectionKind};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::{Endpoint, NameServer, NoNames, Phase, Severity, TunnelFile, settings};
use linerate_control::zeroizing::Buffer;

use super::hooks::{self, KeyFile};
use super::value::{Client, Import};
use super::{Error, Input, InputFile, Kind, text};

/// What PiVPN puts before each line of a client that is disabled.
const DISABLED: &[u8] = b"#[disabled] ";

pub(super) struct Conf {
    pub(super) path: String,
    pub(super) file: TunnelFile,
    /// The commands as they are written.
    pub(super) hooks: Vec<(Phase, String)>,
    /// `Table` and `FwMark` as they are written.
    pub(super) other: Vec<(&'static str, String)>,
    /// Clients whose lines are disabled in PiVPN's way.
    pub(super) disabled: Vec<PublicKey>,
    /// Files from which commands set keys; the rest of those commands is in `hooks`.
    pub(super) key_files: Vec<KeyFile>,
    /// Preshared keys from such files, with the public keys of their peers.
    preshared_keys: Vec<(String, SecretKey)>,
    /// What was wrong and does not matter.
    pub(super) warnings: Vec<String>,
}

/// Whether this is a file of wg-quick, and not of something else that ends in `.conf`.
pub(super) fn is_tunnel(bytes: &[u8]) -> bool {
    text::lines(bytes).any(|(_, line)| line.eq_ignore_ascii_case(b"[Interface]"))
}

impl Conf {
    pub(super) fn read(file: &InputFile) -> Result<Self, Error> {
        let whole = without_empty_values(&file.bytes);
        let enabled = read(&whole, file)?;
        let mut conf = enabled;
        if text::lines(&file.bytes).any(|(_, line)| line.starts_with(DISABLED)) {
            let known: Vec<PublicKey> = conf.file.peers.iter().map(|peer| peer.public_key).collect();
            let mut uncovered = Buffer::with_capacity(whole.len());
            for line in whole.split_inclusive(|&byte| byte == b'\n') {
                uncovered.extend(line.strip_prefix(DISABLED).unwrap_or(line));
            }
            conf = read(&uncovered, file)?;
            let keys = conf.file.peers.iter().map(|peer| peer.public_key);
            conf.disabled = keys.filter(|key| !known.contains(key)).collect();
        }
        Ok(conf)
    }

    /// Reads the keys that commands set from files.
    pub(super) fn take_keys(&mut self, input: &Input) -> Result<(), Error> {
        for key in &self.key_files {
            // A missing file matters only if its key is needed, and is reported there.
            let Some(file) = input.key_file(&key.path) else { continue };
            let secret = text::secret_key(&file.bytes, &file.path)?;
            match &key.peer {
                None => self.file.private_key = Some(secret),
                Some(peer) => self.preshared_keys.push((peer.clone(), secret)),
            }
        }
        Ok(())
    }

    /// Whether it is a client's file: its only peer is a server, which it connects to, and nobody connects to it.
    pub(super) fn is_clients(&self) -> bool {
        self.may_be_clients() && self.file.listen_port.is_none()
    }

    /// Whether it may be a client's file, or else that of one of two sites. Some tools give clients a port, too.
    pub(super) fn may_be_clients(&self) -> bool {
        matches!(&self.file.peers[..], [only] if only.endpoint.is_some())
    }

    /// `DNS` as it is written.
    pub(super) fn dns(&self) -> Vec<String> {
        let servers = self.file.dns_servers.iter().map(NameServer::to_string);
        servers.chain(self.file.search_domains.iter().cloned()).collect()
    }

    /// The host and port of its only peer.
    pub(super) fn endpoint(&self) -> Option<(String, Option<u16>)> {
        match self.file.peers.first()?.endpoint.as_ref()? {
            Endpoint::Address(address) => Some((address.ip().to_string(), Some(address.port()))),
            Endpoint::Name { host, service } => Some((host.clone(), Some(service.parse().ok()?))),
        }
    }

    /// The server that this file is of.
    pub(super) fn into_import(self, kind: Kind) -> Result<Import, Error> {
        let own_file = self.key_files.iter().find(|key| key.peer.is_none()).map(|key| key.path.clone());
        let Some(private_key) = self.file.private_key.clone() else {
            let is_set = self.file.hooks.iter().any(|hook| hook.command.contains("private-key"));
            let remedy = match (&own_file, is_set) {
                (Some(path), _) => format!(": a command sets it from {}, which cannot be read", text::one_line(path)),
                (None, true) => {
                    ": a command sets it; for the import, replace that command by `PrivateKey = KEY`".to_owned()
                }
                (None, false) => String::new(),
            };
            return Err(Error::at(self.path, format!("the server's PrivateKey is missing{remedy}")));
        };
        let mut import = Import::new(kind, self.file.interface.as_str(), private_key);
        if let Some(path) = own_file {
            import.remarks.changed(format!("its key stays in {}, as PrivateKeyFile", text::one_line(&path)));
            import.private_key_file = Some(path);
        }
        if self.key_files.iter().any(|key| key.peer.is_some()) {
            import.remarks.changed("preshared keys that commands set from files are in the tunnel's file");
        }
        for warning in self.warnings {
            import.remarks.changed(warning);
        }
        import.addresses = self.file.addresses;
        let is_link_local =
            |net: &ipnet::IpNet| matches!(net, ipnet::IpNet::V6(net) if net.addr().is_unicast_link_local());
        // `wg-quick save` writes the one that the interface had by itself.
        if import.addresses.iter().any(is_link_local) {
            import.addresses.retain(|net| !is_link_local(net));
            import.remarks.dropped("its link-local address, which an interface gets by itself");
        }
        import.listen_port = self.file.listen_port;
        import.mtu = self.file.mtu;
        import.other = self.other;
        import.hooks = self.hooks;
        if !self.file.dns_servers.is_empty() || !self.file.search_domains.is_empty() {
            import.remarks.dropped("DNS: it changed the server's own name servers while the tunnel was up");
        }
        if self.file.save_config {
            import.endpoints_are_saved = true;
            import.remarks.dropped("SaveConfig: commands change the file and the running tunnel together");
        }
        for peer in self.file.peers {
            let mut client = Client::new(peer.name.as_deref().unwrap_or_default(), peer.public_key);
            client.enabled = !self.disabled.contains(&peer.public_key);
            let key = peer.public_key.to_string();
            let of_file = self.preshared_keys.iter().find(|(peer, _)| *peer == key).map(|(_, secret)| secret.clone());
            client.preshared_key = of_file.or_else(|| peer.preshared_key.clone()).filter(|key| !key.is_zero());
            client.allowed_ips = peer.allowed_ips.clone();
            client.endpoint = peer.endpoint.as_ref().map(|endpoint| endpoint.to_string());
            client.keepalive = peer.persistent_keepalive;
            client.settle_role(&import.addresses, import.endpoints_are_saved);
            import.clients.push(client);
        }
        Ok(import)
    }
}

fn read(bytes: &[u8], file: &InputFile) -> Result<Conf, Error> {
    let document = Document::parse(bytes);
    let stem = file.stem();
    // A client's file may have any name.
    let interface: InterfaceName =
        stem.parse().or_else(|_| "wg0".parse()).map_err(|_| Error::at(&file.path, "a bad name"))?;
    let (tunnel, diagnostics) = TunnelFile::read(&document, &interface, &NoNames);
    if let Some(error) = diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error) {
        let hint = error.hint.as_ref().map_or(String::new(), |hint| format!(" ({hint})"));
        let place = format!("{}:{}:{}", file.path, error.line, error.column);
        return Err(Error::at(place, format!("{}{hint}", error.message)));
    }
    let warnings = diagnostics.iter().map(|diagnostic| format!("{}:{diagnostic}", file.path)).collect();
    let (mut hooks, mut key_files) = (Vec::new(), Vec::new());
    let mut other = Vec::new();
    for entry in document
        .sections()
        .iter()
        .filter(|section| section.kind() == SectionKind::Interface)
        .flat_map(|section| section.entries())
    {
        let known = [
            (&settings::PRE_UP, Phase::PreUp),
            (&settings::POST_UP, Phase::PostUp),
            (&settings::PRE_DOWN, Phase::PreDown),
            (&settings::POST_DOWN, Phase::PostDown),
        ];
        if let Some((_, phase)) = known.iter().find(|(setting, _)| entry.is(setting)) {
            let command = text::utf8(entry.whole_value(), &file.path)?;
            let (files, kept) = hooks::key_files(command, interface.as_str());
            key_files.extend(files);
            hooks.extend(kept.map(|kept| (*phase, kept)));
        }
        for setting in [&settings::TABLE, &settings::FWMARK] {
            let value = String::from_utf8_lossy(entry.value()).into_owned();
            // Table = auto is the default.
            if entry.is(setting) && value != "auto" {
                other.push((setting.name, value));
            }
        }
    }
    Ok(Conf {
        path: file.path.clone(),
        file: tunnel,
        hooks,
        other,
        disabled: Vec::new(),
        key_files,
        preshared_keys: Vec::new(),
        warnings,
    })
}

/// The file with lines `NAME =` left blank: panels write them for what is not set, and wg-quick reads past most of
/// them.
fn without_empty_values(bytes: &[u8]) -> Buffer {
    let mut kept = Buffer::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let body = line.trim_ascii();
        let is_empty = !body.starts_with(b"#")
            && body.strip_suffix(b"=").is_some_and(|name| name.trim_ascii().iter().all(u8::is_ascii_alphanumeric));
        kept.extend(if is_empty { b"\n" } else { line });
    }
    kept
}
