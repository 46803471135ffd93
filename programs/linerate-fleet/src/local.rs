//! What this host has of its fleet: where the store is and which gateway this is (`/etc/linerate/fleet`), the last view
//! (`/var/lib/linerate/fleet`), and what the running service says of itself (`/run/linerate/fleet`).

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use linerate_control::atomic_file;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::FleetName;
use linerate_protocol::PrivateKey;
use linerate_tunnel::ConfigFile;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::seal::Seal;
use crate::store::layout::{self, Keys};
use crate::store::{Access, Client};

const CONFIGURATION: &str = "/etc/linerate/fleet";
const STATE: &str = "/var/lib/linerate/fleet";
const RUN: &str = "/run/linerate/fleet";

/// The public half of a private key.
///
/// # Errors
/// It is all zero.
pub fn public_key(private: &SecretKey) -> Result<PublicKey, String> {
    let key = PrivateKey::new(private.as_bytes()).ok_or("a private key is all zero")?;
    Ok(PublicKey(key.public_key().0))
}

/// A new private key.
///
/// # Errors
/// The system has no random numbers.
pub fn new_key() -> Result<SecretKey, String> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes).map_err(|error| format!("the system has no random numbers: {error}"))?;
    (bytes[0], bytes[31]) = (bytes[0] & 248, bytes[31] & 127 | 64);
    Ok(SecretKey::from_bytes(&bytes))
}

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct StoreArguments {
    /// The members of etcd, such as https://store1:2379,https://store2:2379
    #[arg(long = "store", required = true, value_delimiter = ',', value_name = "URL[,URL]...")]
    pub stores: Vec<String>,

    /// The authority of their certificates, in PEM, for https
    #[arg(long = "store-ca", value_name = "FILE")]
    pub authority: Option<PathBuf>,

    /// The certificate of this host, in PEM, if the store asks for one
    #[arg(long = "store-cert", value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long = "store-key", value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,

    /// The user of etcd, if it has users
    #[arg(long = "store-user", value_name = "NAME", requires = "password")]
    pub user: Option<String>,

    /// A file with the user's password
    #[arg(long = "store-password", value_name = "FILE", requires = "user")]
    pub password: Option<PathBuf>,
}

impl StoreArguments {
    /// A client, which has not connected yet.
    ///
    /// # Errors
    /// A URL is none, or a file cannot be used.
    pub fn client(&self) -> Result<Client, String> {
        let endpoints = self.stores.iter().map(|url| url.parse()).collect::<Result<_, String>>()?;
        let login = match (&self.user, &self.password) {
            (Some(user), Some(path)) => Some((user.clone(), password(path)?)),
            _ => None,
        };
        let certificate = self.certificate.clone().zip(self.key.clone());
        Client::new(Access { endpoints, authority: self.authority.clone(), certificate, login })
    }

    /// With absolute paths, for a service that starts somewhere else.
    #[must_use]
    pub fn absolute(&self) -> Self {
        let absolute =
            |path: &Option<PathBuf>| path.as_ref().map(|path| std::path::absolute(path).unwrap_or(path.clone()));
        Self {
            authority: absolute(&self.authority),
            certificate: absolute(&self.certificate),
            key: absolute(&self.key),
            password: absolute(&self.password),
            ..self.clone()
        }
    }
}

fn password(path: &Path) -> Result<Zeroizing<String>, String> {
    let text = fs::read_to_string(path).map(Zeroizing::new);
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// This host as a gateway of a fleet, as `init` and `join` have left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// The tunnel's file.
    pub file: PathBuf,
    /// The number of this gateway.
    pub gateway: u8,
    /// Where the store is.
    pub store: StoreArguments,
    /// Where the other gateways reach this one.
    pub mesh_endpoint: SocketAddr,
    /// The kernel's table for routes to the peers that are here, which a routing daemon tells others of; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_table: Option<u32>,
}

/// The last view of the store that the tunnel's file has: for a start without the store, and for edits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The revision of the store.
    pub revision: i64,
    /// The digest of the peers in the file.
    pub digest: String,
    /// What is the same for all gateways.
    pub config: layout::Config,
    /// Who may be a gateway.
    pub members: BTreeMap<u8, layout::Member>,
    /// The peers' numbers, by their keys in hexadecimal.
    pub numbers: BTreeMap<String, u32>,
}

impl Saved {
    /// The number of a peer.
    pub fn number(&self, key: &PublicKey) -> Option<u32> {
        self.numbers.get(&key.to_hex()).copied()
    }
}

/// A fleet that this host belongs to.
pub struct Fleet {
    /// Its name.
    pub name: FleetName,
    /// Its keys in the store.
    pub keys: Keys,
    /// What this host has of it.
    pub local: Local,
    /// A client of its store.
    pub client: Client,
}

impl Fleet {
    /// The fleet of that name, or the only one.
    ///
    /// # Errors
    /// This host belongs to none, to several, or its files cannot be used.
    pub fn open(name: Option<&FleetName>) -> Result<Self, String> {
        let name = match name {
            Some(name) => name.clone(),
            None => only()?,
        };
        let local: Local = read_json(&configuration(&name))?.ok_or_else(|| not_here(&name))?;
        let client = local.store.client()?;
        Ok(Self { keys: Keys::of(&name), name, local, client })
    }

    /// The file of its tunnel, and the shared private key.
    ///
    /// # Errors
    /// It cannot be read, or has none.
    pub fn tunnel(&self) -> Result<(ConfigFile, SecretKey), String> {
        tunnel(&self.local.file.to_string_lossy())
    }

    /// The seal of the fleet.
    ///
    /// # Errors
    /// The shared private key cannot be read.
    pub fn seal(&self) -> Result<Seal, String> {
        self.tunnel().map(|(_, key)| Seal::new(&key, &self.name))
    }

    /// The private key of this gateway in the mesh.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn mesh_key(&self) -> Result<SecretKey, String> {
        let path = mesh_key(&self.name);
        let text =
            fs::read(&path).map(Zeroizing::new).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        SecretKey::from_base64(text.trim_ascii()).ok_or_else(|| format!("{} has no key", path.display()))
    }

    /// The last view.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn saved(&self) -> Result<Option<Saved>, String> {
        read_json(&saved(&self.name))
    }
}

/// The tunnel's file, without errors, and its private key.
///
/// # Errors
/// It cannot be read, has errors, or has no key.
pub fn tunnel(operand: &str) -> Result<(ConfigFile, SecretKey), String> {
    let file = ConfigFile::open(operand).map_err(|error| error.to_string())?;
    file.check().map_err(|error| error.to_string())?;
    let key = file.loaded().map_err(|error| error.to_string())?.private_key.clone();
    let missing = || {
        let path = file.path.display();
        format!("{path} has no private key, which all gateways share: write PrivateKey or `#! PrivateKeyFile' into it")
    };
    let key = key.filter(|key| !key.is_zero()).ok_or_else(missing)?;
    Ok((file, key))
}

/// Writes down that this host is a gateway.
///
/// # Errors
/// A file cannot be written.
pub fn save(name: &FleetName, local: &Local, key: &SecretKey) -> Result<(), String> {
    let text = Zeroizing::new(format!("{}\n", &**key.to_base64()));
    write(&mesh_key(name), text.as_bytes())?;
    write_json(&configuration(name), local)
}

/// Writes the last view down.
///
/// # Errors
/// It cannot be written.
pub fn save_view(name: &FleetName, view: &Saved) -> Result<(), String> {
    write_json(&saved(name), view)
}

/// An edit that was made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Committed {
    /// The revision of the store that has all of it.
    revision: i64,
    /// When that was, since 1970 in seconds.
    time: u64,
}

/// For so long the service is expected to hear of an edit that was made here, in seconds. A store that was restored may never
/// come to its revision.
const HEARS_WITHIN: u64 = 10;

/// Notes that the file is about to be what the store has from this revision on.
///
/// # Errors
/// It cannot be written.
pub fn save_committed(name: &FleetName, revision: i64) -> Result<(), String> {
    write_json(&committed(name), &Committed { revision, time: crate::feed::now() })
}

/// Whether the file has an edit of this host that a view of this revision has not.
pub fn is_behind(name: &FleetName, revision: i64) -> bool {
    let last: Option<Committed> = read_json(&committed(name)).ok().flatten();
    last.is_some_and(|last| revision < last.revision && crate::feed::now().abs_diff(last.time) < HEARS_WITHIN)
}

/// Forgets that this host is a gateway.
pub fn forget(name: &FleetName) {
    for path in [configuration(name), mesh_key(name), saved(name), status(name), committed(name)] {
        let _ = fs::remove_file(path);
    }
}

/// Whether this host belongs to the fleet.
pub fn is_here(name: &FleetName) -> bool {
    configuration(name).exists()
}

/// The only fleet of this host.
fn only() -> Result<FleetName, String> {
    let names: Vec<FleetName> = match fs::read_dir(CONFIGURATION) {
        Ok(entries) => {
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.parse().ok()).collect()
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(format!("cannot read {CONFIGURATION}: {error}; run as root (sudo)")),
    };
    match &names[..] {
        [name] => Ok(name.clone()),
        [] => Err("this host belongs to no fleet: `linerate fleet init' makes one, `linerate fleet join' joins one"
            .to_owned()),
        several => {
            let names: Vec<&str> = several.iter().map(FleetName::as_str).collect();
            Err(format!("this host belongs to several fleets ({}): name one with --fleet", names.join(", ")))
        }
    }
}

fn not_here(name: &FleetName) -> String {
    format!(
        "this host does not belong to the fleet {name}: `linerate fleet join {name} IFACE --store URL' makes it a gateway"
    )
}

fn configuration(name: &FleetName) -> PathBuf {
    Path::new(CONFIGURATION).join(format!("{name}.json"))
}

fn mesh_key(name: &FleetName) -> PathBuf {
    Path::new(CONFIGURATION).join(format!("{name}.key"))
}

fn saved(name: &FleetName) -> PathBuf {
    Path::new(STATE).join(format!("{name}.json"))
}

/// Where the service says what it sees.
pub fn status(name: &FleetName) -> PathBuf {
    Path::new(RUN).join(name.as_str()).join("status.json")
}

/// Where edits of this host are noted until the service has heard of them.
fn committed(name: &FleetName) -> PathBuf {
    Path::new(RUN).join(name.as_str()).join("committed.json")
}

/// Reads a file of JSON; none if there is no such file.
///
/// # Errors
/// It cannot be read.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| format!("{} is not as it should be: {error}", path.display()))
}

/// Writes a file of JSON, which root alone may read.
///
/// # Errors
/// It cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), String> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| error.to_string())?;
    text.push(b'\n');
    write(path, &text)
}

fn write(path: &Path, text: &[u8]) -> Result<(), String> {
    let written = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        atomic_file::replace(path, format!(".{name}.new"), text, Some(0o600), None)
    };
    written().map_err(|error| format!("cannot write {}: {error}", path.display()))
}
