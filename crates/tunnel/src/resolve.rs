//! The second step: resolves endpoints that are names, as far as a resolver answers at once, and reads the keys that
//! are in files of their own. The result is the daemon's configuration.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::DeviceChanges;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;

use crate::error::Error;
use crate::read::ConfigFile;
use crate::resolver::{NamedEndpoint, named_endpoints, process};

/// How long a command waits for answers. A resolver with the name in its cache answers in time.
const TIMEOUT: Duration = Duration::from_millis(800);

/// A file whose endpoints have been looked up, and whose keys have been read.
pub(crate) struct Resolved<'a> {
    pub(crate) file: &'a ConfigFile,
    /// The daemon's configuration.
    pub(crate) device: DeviceUpdate,
    pub(crate) names: NamedEndpoints,
}

impl<'a> Resolved<'a> {
    /// Looks the names up, and reads the keys.
    ///
    /// # Errors
    /// A key file cannot be read.
    pub(crate) fn new(file: &'a ConfigFile) -> Result<Self, Error> {
        Self::within(TIMEOUT, file)
    }

    /// As [`Resolved::new`], with another limit for the answers.
    ///
    /// # Errors
    /// A key file cannot be read.
    pub(crate) fn within(limit: Duration, file: &'a ConfigFile) -> Result<Self, Error> {
        let names = NamedEndpoints::resolve_within(limit, file);
        let mut changes = file.loaded()?.initial_changes();
        names.fill_in(&mut changes);
        Ok(Self { file, device: changes.update, names })
    }
}

/// The endpoints of a file that are names, with their addresses: none if there is no answer yet.
pub(crate) struct NamedEndpoints(Vec<(NamedEndpoint, Vec<SocketAddr>)>);

impl NamedEndpoints {
    /// Looks up the names of `file`.
    pub(crate) fn resolve(file: &ConfigFile) -> Self {
        Self::resolve_within(TIMEOUT, file)
    }

    fn resolve_within(limit: Duration, file: &ConfigFile) -> Self {
        let names = file.named_endpoints();
        let found = process::look_up(&names, limit);
        Self(names.into_iter().zip(found).collect())
    }

    /// Whether `endpoint` is one of the addresses of the peer's name.
    pub(crate) fn has(&self, peer: &PublicKey, endpoint: SocketAddr) -> bool {
        self.0.iter().any(|(named, addresses)| named.peer == *peer && addresses.contains(&endpoint))
    }

    /// Those without an address.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &NamedEndpoint> {
        self.0.iter().filter(|(_, addresses)| addresses.is_empty()).map(|(named, _)| named)
    }

    /// Gives peers whose endpoints are names their first address.
    pub(crate) fn fill_in(&self, changes: &mut DeviceChanges) {
        for (named, addresses) in &self.0 {
            let wanted = changes.unresolved.iter().any(|(peer, _)| *peer == named.peer);
            let peer = changes.update.peers.iter_mut().rfind(|peer| peer.public_key == named.peer && !peer.remove);
            if let (true, Some(peer), Some(address)) = (wanted, peer, addresses.first()) {
                peer.endpoint = Some(*address);
            }
        }
    }
}

impl ConfigFile {
    pub(crate) fn named_endpoints(&self) -> Vec<NamedEndpoint> {
        named_endpoints(&self.contents)
    }

    /// The configuration of a new device, without resolving names.
    ///
    /// # Errors
    /// A key file cannot be read.
    pub(crate) fn device(&self) -> Result<DeviceUpdate, Error> {
        Ok(self.loaded()?.initial_changes().update)
    }

    /// As [`ConfigFile::device`], with the endpoints that the `running` tunnel will have after `update` in place of
    /// names.
    ///
    /// # Errors
    /// A key file cannot be read.
    pub(crate) fn device_after(&self, update: &DeviceUpdate, running: &DeviceState) -> Result<DeviceUpdate, Error> {
        let mut device = self.device()?;
        for peer in device.peers.iter_mut().filter(|peer| peer.endpoint.is_none()) {
            let change = update.peers.iter().rfind(|change| change.public_key == peer.public_key);
            let state = running.peers.iter().find(|state| state.public_key == peer.public_key);
            peer.endpoint = change.and_then(|change| change.endpoint).or_else(|| state?.endpoint);
        }
        Ok(device)
    }
}
