//! What a fleet knows, as changes of the device.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use linerate_protocol::PeerId;
use linerate_protocol::fleet::IndexKey;

use super::SlowPath;
use crate::backend::Backend;
use crate::config::{ConfigError, DeviceChange, Initiate, PeerChange};
use crate::shared::Shared;
use crate::slow_path_queue::PendingHandshake;

impl<B: Backend> SlowPath<B> {
    /// Refuses numbers of peers without a fleet.
    pub(super) fn check_fleet(&self, change: &DeviceChange) -> Result<(), ConfigError> {
        let joined = change.fleet.as_ref().map_or(self.device.in_fleet(), Option::is_some);
        let numbered = change.peers.iter().any(|peer| peer.fleet.number.is_some());
        let forwards = matches!(change.fleet_forward, Some(Some(_)));
        let addressed = matches!(change.fleet_address, Some(Some(_)));
        (joined || !(numbered || forwards || addressed)).then_some(()).ok_or(ConfigError::NoFleet)
    }

    /// Joins or leaves the fleet, and takes what else concerns the whole device.
    pub(super) fn set_fleet_of_device(
        &mut self,
        place: Option<Option<(u8, IndexKey)>>,
        address: Option<Option<IpAddr>>,
        forward: Option<Option<SocketAddrV4>>,
        is_stale: Option<bool>,
    ) {
        let is_same = place.is_none() && forward.is_none();
        match place {
            None => {}
            Some(None) => {
                self.device.leave_fleet();
                self.shared.fleet.forget_numbers();
                self.shared.fleet.set_address(None);
            }
            Some(Some((gateway, key))) => drop(self.device.join_fleet(gateway, key)),
        }
        if let Some(address) = address {
            self.shared.fleet.set_address(address);
        }
        if let Some(is_stale) = is_stale {
            self.device.set_stale(is_stale);
        }
        if !is_same {
            let to = forward.unwrap_or_else(|| self.shared.fleet.forwards_to());
            self.shared.fleet.forward_to(self.device.index_reader().zip(to));
        }
    }

    /// Takes number and hint of a peer. Returns the endpoint to set: the configured one, or the hinted one unless a session
    /// here knows better. Where a peer is only suspected to be, no session's data is sent: somebody may have made it up.
    pub(super) fn set_fleet(&mut self, id: PeerId, change: &PeerChange) -> Option<SocketAddr> {
        let now = self.shared.backend.now();
        if let Some(number) = change.fleet.number {
            self.set_number(id, number);
        }
        let Some(hint) = &change.fleet.hint else { return change.endpoint };
        if !self.device.set_hint(now.wall, id, hint) {
            // Not for the log of every day: one gateway whose clock is wrong says so of all peers.
            tracing::debug!("peer {:?}: a time that is far ahead of the clock here is left out", change.public_key);
        }
        let is_suspected = change.fleet.initiate == Initiate::Once;
        let believes = match is_suspected {
            true => !self.device.has_session(now.boot, id),
            false => self.device.believes_hints(now.boot, id),
        };
        change.endpoint.or(hint.endpoint.filter(|_| believes))
    }

    fn set_number(&mut self, id: PeerId, number: u32) {
        self.forget_number(id);
        if self.device.set_fleet_number(id, number) {
            self.shared.fleet.set_number(number, Some(id));
        }
    }

    /// The peer's number leads to it no longer.
    pub(super) fn forget_number(&self, id: PeerId) {
        if let Some(number) = self.device.fleet_number(id) {
            self.shared.fleet.set_number(number, None);
        }
    }
}

/// Forwards a response or a cookie reply that answers another gateway; false if it does not.
pub(super) fn forward<B: Backend>(shared: &Shared<B>, handshake: &PendingHandshake) -> bool {
    let index = linerate_protocol::receiver_index(handshake.message());
    index.is_some_and(|index| crate::fleet::forward(shared, index, handshake.source, handshake.message()))
}
