//! What a fleet knows, as changes of the device.

use std::net::SocketAddr;

use linerate_protocol::PeerId;

use super::SlowPath;
use crate::backend::Backend;
use crate::config::{ConfigError, DeviceChange, PeerChange};

impl<B: Backend> SlowPath<B> {
    /// Refuses numbers of peers without a fleet.
    pub(super) fn check_fleet(&self, change: &DeviceChange) -> Result<(), ConfigError> {
        let joined = change.fleet.as_ref().map_or(self.device.in_fleet(), Option::is_some);
        let numbered = change.peers.iter().any(|peer| peer.fleet.number.is_some());
        (joined || !numbered).then_some(()).ok_or(ConfigError::NoFleet)
    }

    /// Takes number and hint of a peer. Returns the endpoint to set: the configured one, or the hinted one if the peer
    /// has no session here, which would know better.
    pub(super) fn set_fleet(&mut self, id: PeerId, change: &PeerChange) -> Option<SocketAddr> {
        let now = self.shared.backend.now();
        if let Some(number) = change.fleet.number {
            self.device.set_fleet_number(id, number);
        }
        let Some(hint) = &change.fleet.hint else { return change.endpoint };
        if !self.device.set_hint(now.wall, id, hint) {
            tracing::warn!(
                "peer {:?}: a gateway has sent a time that is far ahead of the clock here; it is left out",
                change.public_key
            );
        }
        change.endpoint.or_else(|| hint.endpoint.filter(|_| !self.device.has_session(now.boot, id)))
    }
}
