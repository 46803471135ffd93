//! The second step: addresses for the endpoints that are names, as far as they are known within a moment, and the keys
//! that are in files of their own. Both are what the daemon will be told.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{Endpoint, Peer, Settings};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;

use crate::error::Error;
use crate::read::ConfigFile;
use crate::resolver::process;

/// A peer whose endpoint is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Which peer.
    pub(crate) peer: PublicKey,
    /// The host.
    pub(crate) host: String,
    /// The port, or the name of a service.
    pub(crate) service: String,
}

/// As the file has it.
impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.service)
    }
}

/// How long a command waits for answers. A resolver that has the name in its cache answers in time.
const TIMEOUT: Duration = Duration::from_millis(800);

/// A file whose endpoints have been looked up, and whose keys have been read.
pub(crate) struct Resolved<'a> {
    pub(crate) file: &'a ConfigFile,
    /// What the daemon is told.
    pub(crate) device: DeviceUpdate,
    pub(crate) names: Names,
}

impl<'a> Resolved<'a> {
    /// Looks the names up, and reads the keys.
    ///
    /// # Errors
    /// A key file cannot be read.
    pub(crate) fn new(file: &'a ConfigFile) -> Result<Self, Error> {
        let names = Names::resolve(file);
        let mut settings = file.loaded()?.settings();
        names.fill_in(&mut settings);
        Ok(Self { file, device: settings.update, names })
    }
}

/// The names of a file with their addresses; none where there is no answer yet.
pub(crate) struct Names(Vec<(Named, Vec<SocketAddr>)>);

impl Names {
    /// Looks up the names of `file`.
    pub(crate) fn resolve(file: &ConfigFile) -> Self {
        let names = file.names();
        let found = process::look_up(&names, TIMEOUT);
        Self(names.into_iter().zip(found).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `endpoint` is an address of the peer's name.
    pub(crate) fn has(&self, peer: &PublicKey, endpoint: SocketAddr) -> bool {
        self.0.iter().any(|(named, addresses)| named.peer == *peer && addresses.contains(&endpoint))
    }

    /// The names without an address.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &Named> {
        self.0.iter().filter(|(_, addresses)| addresses.is_empty()).map(|(named, _)| named)
    }

    /// Gives peers whose endpoints are names their first address.
    pub(crate) fn fill_in(&self, settings: &mut Settings) {
        for (named, addresses) in &self.0 {
            let wanted = settings.unresolved.iter().any(|(peer, _)| *peer == named.peer);
            let peer = settings.update.peers.iter_mut().rfind(|peer| peer.public_key == named.peer && !peer.remove);
            if let (true, Some(peer), Some(address)) = (wanted, peer, addresses.first()) {
                peer.endpoint = Some(*address);
            }
        }
    }
}

impl ConfigFile {
    /// The peers whose endpoints are names.
    pub(crate) fn names(&self) -> Vec<Named> {
        let named = |peer: &Peer| match &peer.endpoint {
            Some(Endpoint::Name { host, service }) => {
                Some(Named { peer: peer.public_key, host: host.clone(), service: service.clone() })
            }
            _ => None,
        };
        self.contents.peers.iter().filter_map(named).collect()
    }

    /// What a new device is told, without looking names up.
    ///
    /// # Errors
    /// A key file cannot be read.
    pub(crate) fn device(&self) -> Result<DeviceUpdate, Error> {
        Ok(self.loaded()?.settings().update)
    }

    /// As [`ConfigFile::device`], for a tunnel that runs and is about to get `update`: names stand for the addresses that
    /// its peers will have.
    ///
    /// # Errors
    /// A key file cannot be read.
    pub(crate) fn device_after(&self, update: &DeviceUpdate, running: &DeviceState) -> Result<DeviceUpdate, Error> {
        let mut device = self.device()?;
        for peer in device.peers.iter_mut().filter(|peer| peer.endpoint.is_none()) {
            let told = update.peers.iter().rfind(|told| told.public_key == peer.public_key);
            let state = running.peers.iter().find(|state| state.public_key == peer.public_key);
            peer.endpoint = told.and_then(|told| told.endpoint).or_else(|| state?.endpoint);
        }
        Ok(device)
    }
}
