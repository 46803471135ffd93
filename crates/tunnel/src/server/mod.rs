//! A server on this host: made by [`init`](init()) or [`import`](import()), taken away by [`remove`](remove()). What it
//! is, is decided by [`linerate_server::init`], from the [`facts`](facts()) of this host; its tunnel is run by a
//! [`service`] where there is a service manager. The [`record`] says what was made, so that exactly that is taken away
//! again.

mod facts;
mod import;
mod init;
pub mod record;
mod remove;
pub mod service;

use std::fs;
use std::io;
use std::path::PathBuf;

use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::Gateway;

use crate::error::Error;
use crate::read::{self, ConfigFile};
use crate::snapshot;

pub use facts::{facts, interfaces};
pub use import::import;
pub use init::{Made, Runs, check_absent, clean_up, init, plan};
pub use remove::{Removed, remove};

/// The public half of a key; this crate has no cryptography.
pub type PublicKeyOf = fn(&SecretKey) -> PublicKey;

/// The files of all servers in /etc/wireguard, sorted by name. Files that cannot be read are left out.
///
/// # Errors
/// The folder cannot be listed.
pub fn servers() -> Result<Vec<ConfigFile>, Error> {
    let mut servers = files()?;
    servers.retain(|file| file.contents.public_endpoint.is_some());
    Ok(servers)
}

/// The file of the server of that name, or, without a name, of the only one.
///
/// # Errors
/// There is none, there are several, or its file cannot be read.
pub fn find(name: Option<&str>) -> Result<ConfigFile, Error> {
    let Some(name) = name else {
        let mut servers = servers()?;
        return match (servers.pop(), &servers[..]) {
            (Some(server), []) => Ok(server),
            (None, _) => Err(Error::State("there is no server here; `linerate server init' makes one".to_owned())),
            (Some(last), others) => {
                let names = others.iter().chain([&last]).map(|file| file.interface.to_string());
                let names = names.collect::<Vec<_>>().join(", ");
                Err(Error::State(format!("there are several servers here, {names}: name one")))
            }
        };
    };
    let file = ConfigFile::open(name)?;
    if file.contents.public_endpoint.is_none() && !file.has_errors() {
        return Err(Error::State(format!(
            "{} is not the file of a server: it has no `#! PublicEndpoint'",
            file.path.display()
        )));
    }
    Ok(file)
}

/// The interfaces that a server's file names as its gateway and that this host does not have.
///
/// # Errors
/// The kernel cannot be asked.
pub fn missing_uplinks(file: &ConfigFile) -> Result<Vec<String>, Error> {
    let Gateway::Interfaces(named) = &file.contents.gateway else { return Ok(Vec::new()) };
    let host = snapshot::open()?;
    let is_missing = |name: &&InterfaceName| host.index(name.as_str()).is_none();
    Ok(named.iter().filter(is_missing).map(InterfaceName::to_string).collect())
}

/// The files of tunnels in /etc/wireguard that can be read, sorted by name.
fn files() -> Result<Vec<ConfigFile>, Error> {
    let folder = PathBuf::from(read::DIRECTORY);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::inaccessible(&folder))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| -> Option<InterfaceName> {
        entry.ok()?.file_name().to_str()?.strip_suffix(".conf")?.parse().ok()
    };
    let mut names: Vec<InterfaceName> = entries.filter_map(name).collect();
    names.sort();
    Ok(names.iter().filter_map(|name| ConfigFile::open(name.as_str()).ok()).collect())
}
