//! The record of a server: what `server init` or `server import` made, for `server remove`, and how far they have come. It
//! outlives a boot and contains no secret.
//!
//! | file in /var/lib/linerate | content |
//! |---|---|
//! | IFACE.server.json | the record |
//! | local-prefix | this host's prefix of unique local addresses (RFC 4193), as long as there is a server |

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ipnet::Ipv6Net;
use linerate_control::atomic_file;
use linerate_control::interface::InterfaceName;
use linerate_control::zeroizing::Buffer;
use serde::{Deserialize, Serialize};

use super::PublicKeyOf;
use super::service::Service;
use crate::error::Error;
use crate::read::ConfigFile;

/// Where records are.
pub const DIRECTORY: &str = "/var/lib/linerate";

/// The format version that this program writes and reads.
const VERSION: u32 = 1;

/// What was made for a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    version: u32,
    pub interface: String,
    pub file: PathBuf,
    /// What wrote the file.
    #[serde(default)]
    pub origin: Origin,
    /// The public key in the file, once that is there or about to be: another file is somebody else's.
    #[serde(default)]
    pub(super) public_key: Option<String>,
    /// The old tool's file, which an import has replaced and kept here.
    #[serde(default)]
    pub replaced: Option<PathBuf>,
    /// Copies of the server's own file, which later imports have replaced.
    #[serde(default)]
    pub(super) copies: Vec<PathBuf>,
    /// How far it has come.
    pub state: State,
    /// The service that runs it, where there is a service manager.
    pub service: Option<Service>,
    /// The folders that were made for it, outermost first.
    pub folders: Vec<PathBuf>,
}

/// What made a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// `server init`.
    #[default]
    Init,
    /// `server import`.
    Import,
}

/// What is at the path of a server's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum There {
    Nothing,
    /// The server's file.
    Own,
    /// Somebody else's: another tool's, or that of another server.
    Foreign,
}

/// How far a server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being made, or `server init` was killed: nothing depends on it yet.
    Making,
    /// It is complete.
    Made,
    /// It is being removed, or `server remove` was killed.
    Removing,
}

impl Record {
    /// The record of a server that is about to be made.
    pub(super) fn new(interface: &InterfaceName, file: &Path, service: Option<Service>) -> Self {
        let (interface, file) = (interface.to_string(), file.to_owned());
        let state = State::Making;
        Self {
            version: VERSION,
            interface,
            file,
            origin: Origin::Init,
            public_key: None,
            replaced: None,
            copies: Vec::new(),
            state,
            service,
            folders: Vec::new(),
        }
    }

    /// The record of a server, if `server init` or `server import` made it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(interface: &InterfaceName) -> Result<Option<Self>, Error> {
        let path = path(interface.as_str());
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(Error::inaccessible(&path))?,
        };
        let invalid = |why: String| Error::State(format!("cannot read the record {}: {why}", path.display()));
        let record: Self = serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        match record.version {
            VERSION => Ok(Some(record)),
            version => Err(invalid(format!("its version is {version}"))),
        }
    }

    /// What is at the path of its file. Nobody else has its key but the tool that it was imported from, whose file says
    /// nothing of an endpoint.
    pub(super) fn there(&self, public_key: PublicKeyOf) -> Result<There, Error> {
        let interface: InterfaceName = self.interface.parse().map_err(|error| Error::State(format!("{error}")))?;
        let text = match fs::read(&self.file).map(Buffer::from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
            text => text.map_err(Error::inaccessible(&self.file))?,
        };
        let file = ConfigFile::of(self.file.clone(), interface, text);
        let is_server = self.origin == Origin::Init || file.contents.public_endpoint.is_some();
        let key = file.loaded().ok().and_then(|contents| Some(public_key(contents.private_key.as_ref()?).to_string()));
        Ok(if is_server && key.is_some() && key == self.public_key { There::Own } else { There::Foreign })
    }

    /// Writes it, whole or not at all.
    pub(super) fn write(&self) -> Result<(), Error> {
        let path = path(&self.interface);
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        let written = text.and_then(|text| {
            atomic_file::replace(&path, format!("{}.server.new", self.interface), &text, Some(0o600), None)
        });
        written.map_err(Error::inaccessible(&path))
    }

    /// Makes a folder for it, with those above, and notes which ones.
    pub(super) fn make_folder(&mut self, folder: &Path, mode: u32) -> Result<(), Error> {
        let mut missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
        missing.reverse();
        DirBuilder::new().recursive(true).mode(mode).create(folder).map_err(Error::inaccessible(folder))?;
        self.folders.extend(missing.into_iter().map(Path::to_owned));
        Ok(())
    }

    /// Forgets the server: its record, with the last one the host's prefix, and the folders that nothing is in.
    pub(super) fn forget(&self) -> Result<(), Error> {
        let own = path(&self.interface);
        if names(DIRECTORY.as_ref())?.iter().all(|name| own.ends_with(name)) {
            remove_file(&local_prefix_path())?;
        }
        // A folder that others use meanwhile stays.
        let remove_folders = || self.folders.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
        remove_folders();
        // Last, so that a later call goes on; its own folder is empty only then.
        remove_file(&own)?;
        // Also if a kill kept it out of the record: nobody else makes it.
        drop(fs::remove_dir(DIRECTORY));
        remove_folders();
        Ok(())
    }
}

fn path(interface: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{interface}.server.json"))
}

/// The names of the files of records in `folder`.
fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::inaccessible(folder))?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.ends_with(".server.json")).collect())
}

/// Removes a file that need not be there.
pub(super) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::inaccessible(path)(error)),
        _ => Ok(()),
    }
}

fn local_prefix_path() -> PathBuf {
    Path::new(DIRECTORY).join("local-prefix")
}

/// This host's prefix of unique local addresses, if it has one.
///
/// # Errors
/// Its file cannot be read, or contains none.
pub(super) fn local_prefix() -> Result<Option<Ipv6Net>, Error> {
    let path = local_prefix_path();
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(Error::inaccessible(&path))?,
    };
    match text.trim().parse::<Ipv6Net>() {
        Ok(prefix) if prefix.prefix_len() == 48 && prefix.addr().is_unique_local() => Ok(Some(prefix.trunc())),
        _ => {
            let path = path.display();
            Err(Error::State(format!("{path} does not contain a prefix such as fd12:3456:789a::/48; remove it")))
        }
    }
}

/// Keeps this host's prefix of unique local addresses.
pub(super) fn keep_local_prefix(prefix: Ipv6Net) -> Result<(), Error> {
    let path = local_prefix_path();
    let text = format!("{prefix}\n");
    match atomic_file::create(&path, "local-prefix.new", text.as_bytes(), 0o600) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::inaccessible(&path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_control::keys::PublicKey;

    #[test]
    fn only_the_folders_that_were_missing_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::new(&"wg0".parse().unwrap(), Path::new("/etc/wireguard/wg0.conf"), None);
        let (outer, inner) = (folder.path().join("outer"), folder.path().join("outer/inner"));
        record.make_folder(&inner, 0o700).unwrap();
        record.make_folder(&inner, 0o700).unwrap();
        assert_eq!(record.folders, [outer, inner]);
    }

    #[test]
    fn a_file_is_the_servers_by_its_key_and_one_of_the_old_tool_is_not() {
        const KEY: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
        // Any bijection does.
        let itself: PublicKeyOf = |secret| PublicKey(*secret.as_bytes());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wg0.conf");
        let mut record = Record::new(&"wg0".parse().unwrap(), &path, None);
        let there = |record: &Record, text: &str| {
            fs::write(&path, text).unwrap();
            record.there(itself).unwrap()
        };
        assert_eq!(record.there(itself).unwrap(), There::Nothing);
        let (bare, server) = (
            format!("[Interface]\nPrivateKey = {KEY}\n"),
            format!("[Interface]\nPrivateKey = {KEY}\n#! PublicEndpoint = a.example\n"),
        );
        // None was written for it yet.
        assert_eq!(there(&record, &server), There::Foreign);
        record.public_key = Some(KEY.to_owned());
        assert_eq!([there(&record, &server), there(&record, &bare)], [There::Own; 2]);
        let other = server.replace("yAnz", "zAnz");
        assert_eq!([there(&record, "[Interface]\n"), there(&record, ""), there(&record, &other)], [There::Foreign; 3]);
        record.origin = Origin::Import;
        assert_eq!([there(&record, &server), there(&record, &bare)], [There::Own, There::Foreign]);
    }
}
