//! The clients in a tunnel's file, and every change of them: an edit of their sections, and of nothing else.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use ipnet::IpNet;
use jiff::Timestamp;
use linerate_control::document::{Document, InvalidValue, SectionKind, Setting};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::printable::printable;
use linerate_control::rate::Rate;
use linerate_control::tunnel_file::{
    ByteCount, Diagnostic, Names, Peer, QuotaReset, Released, Severity, TunnelFile, settings,
};
use zeroize::Zeroizing;

use crate::init::list;
use crate::name::{ClientName, folded, searchable};
use crate::pool::{InvalidPool, Pool, PoolFull, is_cooling};

/// A tunnel's file and its clients.
pub struct Roster {
    document: Document,
    file: TunnelFile,
    clients: Vec<Client>,
    /// The index of a client by [`ClientName::key`], and by the name of its file in lower case.
    names: HashMap<String, usize, RandomState>,
    pool: Option<Pool>,
    /// The keys of all peers, once one was asked for.
    keys: Option<HashSet<PublicKey, RandomState>>,
}

/// A client: a peer with `Created`. It may hold secrets, so it has no `Debug`.
#[derive(Clone)]
pub struct Client {
    pub name: ClientName,
    /// The name of the client's file without `.conf`, which commands accept as well. It is unique, and safe in a shell, as
    /// part of a path and as the name of an interface.
    pub file_name: String,
    /// Whether it is let in.
    pub state: State,
    /// What its section says.
    pub peer: Arc<Peer>,
}

impl Client {
    /// Its own addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpNet> {
        self.peer.allowed_ips.iter().copied().filter(is_single)
    }

    /// Why it is not let in again: only renewing helps.
    fn expired(&self) -> Refusal {
        let times = &self.peer.client;
        let file_name = self.file_name.clone();
        Refusal::Expired {
            name: self.name.clone(),
            file_name,
            time: times.expired.or(times.expires).unwrap_or_default(),
        }
    }

    /// Whether the name, an address or the note contains `part`, which must be in its [`searchable`] form.
    pub fn has(&self, part: &str) -> bool {
        let has = |text: &str| searchable(text).contains(part);
        part.is_empty()
            || has(self.name.as_str())
            || has(&self.file_name)
            || self.peer.client.note.as_deref().is_some_and(has)
            || self.peer.allowed_ips.iter().any(|net| net.to_string().contains(part))
    }

    /// The networks behind it.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> {
        self.peer.allowed_ips.iter().copied().filter(|net| !is_single(net))
    }
}

fn is_single(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

/// Whether a client is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is.
    Enabled,
    /// A person disabled it.
    Disabled,
    /// Its time has come, whatever else it is.
    Expired,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Expired => "expired",
        }
    }
}

/// A client to be added.
pub struct NewClient {
    pub name: ClientName,
    pub public_key: PublicKey,
    /// An additional secret.
    pub preshared_key: Option<SecretKey>,
    /// What else its section says.
    pub properties: Properties,
}

/// What may be said of a client, and changed later: each is left alone if it is `None`, and removed if it is
/// `Some(None)` or empty.
#[derive(Clone, Default)]
pub struct Properties {
    /// `Expires`.
    pub expires: Option<Option<Timestamp>>,
    /// `Quota`.
    pub quota: Option<Option<ByteCount>>,
    /// `QuotaReset`.
    pub quota_reset: Option<QuotaReset>,
    /// `Rate`.
    pub rate: Option<Option<Rate>>,
    /// `ClientAllowedIPs`.
    pub allowed_ips: Option<Vec<IpNet>>,
    /// `ClientPrivateKey`.
    pub private_key: Option<Option<SecretKey>>,
    /// `Note`.
    pub note: Option<String>,
    /// Other settings of its section with their values.
    pub others: Vec<(Setting, String)>,
}

/// Settings to be changed, and their values; those without one are to be removed.
type Values = Vec<(Setting, Option<Zeroizing<String>>)>;

impl Properties {
    fn values(&self) -> Result<Values, Refusal> {
        let mut values = Vec::new();
        let mut put = |setting: Setting, value: Option<Zeroizing<String>>| {
            values.push((setting, value.filter(|value| !value.is_empty())));
        };
        if let Some(expires) = self.expires {
            put(settings::EXPIRES, expires.map(|time| time.to_string().into()));
        }
        if let Some(quota) = self.quota {
            put(settings::QUOTA, quota.map(|bytes| bytes.to_string().into()));
        }
        if let Some(reset) = self.quota_reset {
            put(settings::QUOTA_RESET, (reset != QuotaReset::Never).then(|| reset.to_string().into()));
        }
        if let Some(rate) = self.rate {
            put(settings::RATE, rate.map(|rate| rate.to_string().into()));
        }
        if let Some(allowed) = &self.allowed_ips {
            put(settings::OWN_ALLOWED_IPS, Some(list(allowed).into()));
        }
        if let Some(key) = &self.private_key {
            put(settings::CLIENT_PRIVATE_KEY, key.as_ref().map(SecretKey::to_base64));
        }
        if let Some(note) = &self.note {
            if note.contains(char::is_control) {
                return Err(Refusal::Value(settings::NOTE.name, InvalidValue));
            }
            put(settings::NOTE, Some(note.trim().to_owned().into()));
        }
        self.others.iter().for_each(|(setting, value)| put(*setting, Some(value.clone().into())));
        Ok(values)
    }
}

/// Why clients cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The file has errors.
    #[error("{}", .0.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n"))]
    File(Vec<Diagnostic>),
    /// A section is not that of a client.
    #[error("{line}:1: {message}")]
    Section {
        /// The line of its header.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// There is no such client.
    #[error("there is no client `{0}'{1}")]
    Unknown(String, String),
    /// There is one already.
    #[error("there is a client `{0}' already; {1}")]
    NameTaken(ClientName, &'static str),
    /// Another peer has the key.
    #[error("{0} has this public key already")]
    KeyTaken(String),
    /// Only renewing helps.
    #[error("{name} expired at {time}; `linerate client renew {file_name}` lets it in again")]
    Expired {
        /// Who.
        name: ClientName,
        /// The client's name in commands.
        file_name: String,
        /// When.
        time: Timestamp,
    },
    /// A value cannot be written.
    #[error("{0}: {1}")]
    Value(&'static str, InvalidValue),
    /// There are no addresses to give.
    #[error(transparent)]
    InvalidPool(#[from] InvalidPool),
    /// There are no addresses left.
    #[error(transparent)]
    PoolFull(#[from] PoolFull),
}

impl Roster {
    /// Reads the clients in the file of `interface`, as they are at `now`.
    ///
    /// # Errors
    /// The file has errors, or clients without a name of their own.
    pub fn read(
        document: Document,
        interface: &InterfaceName,
        names: &dyn Names,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let read = TunnelFile::read_with_disabled(&document, interface, names);
        Self::of(document, read, now)
    }

    /// As [`Roster::read`], from what [`TunnelFile::read_with_disabled`] returned for the document.
    ///
    /// # Errors
    /// As [`Roster::read`].
    pub fn of(
        document: Document,
        (file, diagnostics): (TunnelFile, Vec<Diagnostic>),
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let errors: Vec<Diagnostic> =
            diagnostics.into_iter().filter(|diagnostic| diagnostic.severity == Severity::Error).collect();
        if !errors.is_empty() {
            return Err(Refusal::File(errors));
        }
        let clients = Vec::with_capacity(file.peers.len());
        let names = HashMap::with_capacity_and_hasher(file.peers.len(), RandomState::default());
        let mut roster = Self { document, file, clients, names, pool: None, keys: None };
        for peer in roster.file.peers.iter().filter(|peer| peer.client.created.is_some()) {
            let wrong = |message: String| Refusal::Section { line: peer.line, message };
            let name = peer.name.as_deref().ok_or_else(|| wrong("this client has no name: add `# Name = …`".into()))?;
            let name: ClientName = name.parse().map_err(|error| wrong(format!("{error}")))?;
            let index = roster.clients.len();
            if let Some(other) = roster.names.insert(name.key(), index) {
                let line = roster.clients[other].peer.line;
                return Err(wrong(format!("a client of this name, {name}, is in line {line} already")));
            }
            let in_force = roster.document.sections()[peer.section].kind() == SectionKind::Peer;
            let state = match &peer.client {
                client if client.expired.is_some() || client.expires.is_some_and(|time| time <= now) => State::Expired,
                _ if in_force => State::Enabled,
                _ => State::Disabled,
            };
            roster.clients.push(Client { name, file_name: String::new(), state, peer: Arc::clone(peer) });
        }
        // Plain names, which are already registered, are also the names of their files. Made names must differ from them.
        for index in 0..roster.clients.len() {
            let name = &roster.clients[index].name;
            let file_name = roster.file_name(name);
            if !name.is_plain() {
                roster.names.insert(file_name.to_ascii_lowercase(), index);
            }
            roster.clients[index].file_name = file_name;
        }
        Ok(roster)
    }

    /// The clients, in the order of the file.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// What the file says, disabled peers included.
    pub fn file(&self) -> &TunnelFile {
        &self.file
    }

    /// The file with all changes.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// The file with all changes, without the clients.
    pub fn into_document(self) -> Document {
        self.document
    }

    /// Finds a client by its name or its file's name, in upper or lower case.
    ///
    /// # Errors
    /// There is none.
    pub fn client(&self, name: &str) -> Result<&Client, Refusal> {
        let index = self.names.get(&folded(name));
        index.map(|&index| &self.clients[index]).ok_or_else(|| self.unknown(name))
    }

    /// The networks that addresses of clients come from.
    pub fn networks(&self) -> Vec<IpNet> {
        if !self.file.clients.pool.is_empty() {
            return self.file.clients.pool.clone();
        }
        let mut networks: Vec<IpNet> = Vec::new();
        for net in &self.file.addresses {
            let is_network = net.prefix_len() + 1 < net.max_prefix_len();
            let has_family = |other: &IpNet| other.addr().is_ipv4() == net.addr().is_ipv4();
            let is_link_local = matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local());
            if is_network && !is_link_local && !networks.iter().any(has_family) {
                networks.push(net.trunc());
            }
        }
        networks
    }

    /// The addresses that are taken and those that are free, at `now`.
    ///
    /// # Errors
    /// The file names no pool.
    pub fn pool(&mut self, now: Timestamp) -> Result<&mut Pool, InvalidPool> {
        if self.pool.is_none() {
            let mut pool = Pool::new(&self.networks())?;
            for address in &self.file.addresses {
                pool.take(&address.addr().into());
            }
            self.file.peers.iter().flat_map(|peer| &peer.allowed_ips).for_each(|net| pool.take(net));
            for released in &self.file.clients.released {
                released.addresses.iter().for_each(|address| pool.cool(*address, released.time, now));
            }
            self.pool = Some(pool);
        }
        Ok(self.pool.as_mut().expect("it was just set"))
    }

    /// Adds a client, with addresses of the pool.
    ///
    /// # Errors
    /// Its name or key is taken, the pool is full, or a value cannot be written.
    pub fn add(&mut self, new: &NewClient, now: Timestamp) -> Result<&Client, Refusal> {
        self.check_name(&new.name, None)?;
        self.check_key(&new.public_key)?;
        let addresses = self.pool(now)?.allocate()?;
        let written = |text: String| Some(text.into());
        let lines = [
            (settings::CREATED, written(now.to_string())),
            (settings::PUBLIC_KEY, written(new.public_key.to_string())),
            (settings::PRESHARED_KEY, new.preshared_key.as_ref().map(SecretKey::to_base64)),
            (settings::ALLOWED_IPS, written(list(&addresses))),
        ];
        let lines = lines.into_iter().chain(new.properties.values()?);
        let lines: Vec<_> = lines.filter_map(|(setting, value)| Some((setting, value?))).collect();
        let added = self.document.add_peer_with(new.name.as_str(), &lines);
        let section = added.map_err(|(setting, error)| Refusal::Value(setting, error))?;
        let mut peer = Peer::new(new.public_key);
        peer.name = Some(new.name.to_string());
        peer.preshared_key.clone_from(&new.preshared_key);
        peer.allowed_ips = addresses;
        peer.section = section;
        peer.client.created = Some(now);
        let properties = &new.properties;
        let destinations = properties.others.iter().filter(|(setting, _)| setting.name == settings::DESTINATIONS.name);
        peer.destinations =
            destinations.flat_map(|(_, nets)| nets.split(", ").filter_map(|net| net.parse().ok())).collect();
        peer.client.expires = properties.expires.flatten();
        peer.client.quota = properties.quota.flatten();
        peer.client.quota_reset = properties.quota_reset.unwrap_or_default();
        peer.client.rate = properties.rate.flatten();
        peer.client.allowed_ips = properties.allowed_ips.clone().unwrap_or_default();
        peer.client.private_key = properties.private_key.clone().flatten();
        peer.client.note.clone_from(&properties.note);
        let peer = Arc::new(peer);
        self.keys.as_mut().map(|keys| keys.insert(new.public_key));
        let (name, index) = (new.name.clone(), self.clients.len());
        let file_name = self.name_file(&name, index);
        self.clients.push(Client { name, file_name, state: State::Enabled, peer: Arc::clone(&peer) });
        self.file.peers.push(peer);
        Ok(&self.clients[self.clients.len() - 1])
    }

    /// Has a client no longer let in, until it is enabled again.
    ///
    /// # Errors
    /// There is no such client.
    pub fn disable(&mut self, name: &str, now: Timestamp) -> Result<(), Refusal> {
        let client = self.client(name)?;
        let (section, is_disabled) = (client.peer.section, client.peer.client.disabled.is_some());
        if !is_disabled {
            self.mark(section, &settings::DISABLED, now)?;
        }
        Ok(())
    }

    /// Lets a disabled client in again.
    ///
    /// # Errors
    /// There is no such client, or it has expired.
    pub fn enable(&mut self, name: &str) -> Result<(), Refusal> {
        let client = self.client(name)?;
        let section = client.peer.section;
        if client.state == State::Expired {
            return Err(client.expired());
        }
        self.document.enable(section);
        self.document.unset(section, &settings::DISABLED);
        Ok(())
    }

    /// Gives a client another time to expire, or none, and lets it in again if it had expired.
    ///
    /// # Errors
    /// There is no such client.
    pub fn renew(&mut self, name: &str, expires: Option<Timestamp>) -> Result<(), Refusal> {
        let client = self.client(name)?;
        let (section, is_disabled) = (client.peer.section, client.peer.client.disabled.is_some());
        self.edit(section, |roster| {
            roster.document.unset(section, &settings::EXPIRED);
            roster.put(section, &settings::EXPIRES, expires.map(|time| time.to_string()).as_deref())
        })?;
        if !is_disabled {
            self.document.enable(section);
        }
        Ok(())
    }

    /// Marks the clients whose time has come, as no longer let in whatever the clock says later. Returns their names.
    ///
    /// # Errors
    /// Their sections cannot be edited.
    pub fn expire(&mut self, now: Timestamp) -> Result<Vec<ClientName>, Refusal> {
        let is_due = |client: &&Client| {
            client.peer.client.expired.is_none() && client.peer.client.expires.is_some_and(|time| time <= now)
        };
        let due: Vec<(ClientName, usize)> =
            self.clients.iter().filter(is_due).map(|client| (client.name.clone(), client.peer.section)).collect();
        for (_, section) in &due {
            self.mark(*section, &settings::EXPIRED, now)?;
        }
        Ok(due.into_iter().map(|(name, _)| name).collect())
    }

    /// Gives a client another key, which takes the place of its own at its first handshake, or `at_once` with another
    /// preshared key. The private key in the file, if there is one, becomes `private_key`.
    ///
    /// # Errors
    /// There is no such client, or the key is taken.
    pub fn rekey(
        &mut self,
        name: &str,
        public_key: PublicKey,
        private_key: Option<SecretKey>,
        at_once: Option<SecretKey>,
    ) -> Result<(), Refusal> {
        let section = self.client(name)?.peer.section;
        self.check_key(&public_key)?;
        self.edit(section, |roster| {
            let key = public_key.to_string();
            match at_once {
                Some(preshared) => {
                    roster.put(section, &settings::PUBLIC_KEY, Some(&key))?;
                    roster.put(section, &settings::PRESHARED_KEY, Some(&preshared.to_base64()))?;
                    roster.put(section, &settings::NEXT_PUBLIC_KEY, None)?;
                }
                None => roster.put(section, &settings::NEXT_PUBLIC_KEY, Some(&key))?,
            }
            let private = private_key.as_ref().map(SecretKey::to_base64);
            roster.put(section, &settings::CLIENT_PRIVATE_KEY, private.as_ref().map(|key| &***key))
        })
    }

    /// Gives a client another name.
    ///
    /// # Errors
    /// There is no such client, or the name is taken.
    pub fn rename(&mut self, name: &str, new: &ClientName) -> Result<(), Refusal> {
        let index = self.names.get(&folded(name)).copied().ok_or_else(|| self.unknown(name))?;
        self.check_name(new, Some(index))?;
        let section = self.clients[index].peer.section;
        self.edit(section, |roster| {
            roster.document.set_name(section, new.as_str()).map_err(|error| Refusal::Value("Name", error))
        })?;
        self.names.retain(|_, of| *of != index);
        self.clients[index].file_name = self.name_file(new, index);
        self.clients[index].name = new.clone();
        Ok(())
    }

    /// Changes what is said of a client.
    ///
    /// # Errors
    /// There is no such client, it has expired and is to expire at another time, or a value cannot be written.
    pub fn set(&mut self, name: &str, properties: &Properties) -> Result<(), Refusal> {
        let client = self.client(name)?;
        let section = client.peer.section;
        if client.state == State::Expired && properties.expires.is_some() {
            return Err(client.expired());
        }
        self.edit(section, |roster| roster.put_properties(section, properties))
    }

    /// Removes clients. Their addresses are kept back for a day.
    ///
    /// # Errors
    /// There is no such client. Nothing is removed then.
    pub fn remove(&mut self, names: &[String], now: Timestamp) -> Result<(), Refusal> {
        let mut gone = Vec::new();
        for name in names {
            let client = self.client(name)?;
            gone.push((client.peer.section, client.addresses().map(|net| net.addr()).collect::<Vec<IpAddr>>()));
        }
        gone.sort_by_key(|(section, _)| std::cmp::Reverse(*section));
        gone.dedup_by_key(|(section, _)| *section);
        let addresses = gone.iter().rev().flat_map(|(_, addresses)| addresses).copied();
        let released = Released { time: now, addresses: addresses.collect() };
        gone.iter().for_each(|(section, _)| self.document.remove_section(*section));
        self.forget_released(now);
        if !released.addresses.is_empty() {
            let interface = self.document.interface();
            let line = self.document.insert(interface, &settings::RELEASED, &released.to_string());
            line.map_err(|error| Refusal::Value(settings::RELEASED.name, error))?;
        }
        Ok(())
    }

    /// Removes the lines about addresses that may be given again.
    fn forget_released(&mut self, now: Timestamp) {
        for section in 0..self.document.sections().len() {
            let section_lines = &self.document.sections()[section];
            if section_lines.kind() != SectionKind::Interface {
                continue;
            }
            let is_over = |value: &[u8]| {
                let time = value.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
                let time = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
                time.is_some_and(|time| !is_cooling(time, now))
            };
            let released = section_lines.entries().filter(|entry| entry.is(&settings::RELEASED));
            let over: Vec<usize> = released.filter(|entry| is_over(entry.value())).map(|entry| entry.index).collect();
            self.document.remove_all(section, &over);
        }
    }

    /// Turns a section into comments, and says in it since when.
    fn mark(&mut self, section: usize, setting: &Setting, now: Timestamp) -> Result<(), Refusal> {
        self.document.enable(section);
        let marked = self.document.insert_first(section, setting, &now.to_string());
        self.document.disable(section);
        marked.map_err(|error| Refusal::Value(setting.name, error))
    }

    /// Edits a section as if it were in force.
    fn edit(&mut self, section: usize, change: impl FnOnce(&mut Self) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let is_disabled = self.document.sections()[section].kind() == SectionKind::DisabledPeer;
        self.document.enable(section);
        let changed = change(self);
        if is_disabled {
            self.document.disable(section);
        }
        changed
    }

    fn put_properties(&mut self, section: usize, properties: &Properties) -> Result<(), Refusal> {
        for (setting, value) in properties.values()? {
            self.put(section, &setting, value.as_ref().map(|value| value.as_str()))?;
        }
        Ok(())
    }

    /// Sets the only line of a setting, or removes all of them.
    fn put(&mut self, section: usize, setting: &Setting, value: Option<&str>) -> Result<(), Refusal> {
        let Some(value) = value else {
            self.document.unset(section, setting);
            return Ok(());
        };
        let lines: Vec<usize> = self.document.sections()[section]
            .entries()
            .filter(|entry| entry.is(setting))
            .map(|entry| entry.index)
            .collect();
        let extra = lines.split_last().map_or(&[][..], |(_, others)| others);
        self.document.remove_all(section, extra);
        self.document.set(section, setting, value).map_err(|error| Refusal::Value(setting.name, error))
    }

    /// Registers the client's name and its file's name for this index; returns the latter.
    fn name_file(&mut self, name: &ClientName, index: usize) -> String {
        self.names.insert(name.key(), index);
        let file_name = self.file_name(name);
        self.names.insert(file_name.to_ascii_lowercase(), index);
        file_name
    }

    /// Returns a name for the client's file that no other client has.
    fn file_name(&self, name: &ClientName) -> String {
        if name.is_plain() {
            return name.to_string();
        }
        let mut names = (0..).map(|attempt| name.file_name(attempt));
        let free = names.find(|file_name| !self.names.contains_key(&file_name.to_ascii_lowercase()));
        free.expect("there are more digests than clients")
    }

    /// Checks that no client other than that with this index has the name.
    fn check_name(&self, name: &ClientName, index: Option<usize>) -> Result<(), Refusal> {
        match self.names.get(&name.key()) {
            Some(&other) if Some(other) != index => {
                let taken = &self.clients[other].name;
                let is_same = taken.key() == name.key();
                let why = if is_same { "names must differ in more than case" } else { "its file has this name" };
                Err(Refusal::NameTaken(taken.clone(), why))
            }
            _ => Ok(()),
        }
    }

    fn check_key(&mut self, key: &PublicKey) -> Result<(), Refusal> {
        let keys = |peer: &Arc<Peer>| [Some(peer.public_key), peer.client.next_public_key].into_iter().flatten();
        let peers = &self.file.peers;
        if !self.keys.get_or_insert_with(|| peers.iter().flat_map(keys).collect()).contains(key) {
            return Ok(());
        }
        let owner = peers.iter().find(|peer| keys(peer).any(|its| its == *key));
        Err(Refusal::KeyTaken(owner.map_or_else(|| key.to_string(), |peer| printable(&peer.title()).into_owned())))
    }

    fn unknown(&self, name: &str) -> Refusal {
        let key = folded(name);
        let is_peer = |peer: &Arc<Peer>| peer.name.as_deref().is_some_and(|other| folded(other) == key);
        let part = searchable(name);
        let similar =
            self.clients.iter().filter(|client| !part.is_empty() && searchable(client.name.as_str()).contains(&part));
        let similar: Vec<String> = similar.take(MAX_SUGGESTIONS).map(|client| format!("`{}'", client.name)).collect();
        let hint = if self.file.peers.iter().any(is_peer) {
            ": the peer of this name was not made by `linerate client add`, so it is not changed".to_owned()
        } else if self.clients.is_empty() {
            "; `linerate client add NAME` adds one".to_owned()
        } else if similar.is_empty() {
            "; `linerate client list` shows all".to_owned()
        } else {
            format!(", but {}; `linerate client list` shows all", similar.join(", "))
        };
        Refusal::Unknown(printable(name).into_owned(), hint)
    }
}

/// The number of similar names that the error for an unknown name lists.
const MAX_SUGGESTIONS: usize = 3;
