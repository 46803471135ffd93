//! Keeps the endpoints that are names up to date: resolves them again when a peer is silent.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_control::client::TunnelClient;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::DeviceState;

use super::{Rights, Supervisor};
use crate::ledger;
use crate::read::{ConfigFile, DefaultRoutes};
use crate::resolver::{NamedEndpoint, process};

impl Supervisor<'_> {
    /// Gives new addresses to peers that need one. Returns after how long to check again at the latest.
    pub(super) fn update_endpoints(&mut self, device: &DeviceState) -> Option<Duration> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Instant::now();
        let peer = |named: &NamedEndpoint| device.peers.iter().find(|peer| peer.public_key == named.peer);
        let mut in_need = Vec::new();
        for (index, (named, retry)) in self.retries.iter_mut().enumerate() {
            if peer(named).is_some_and(|peer| retry.is_lookup_due(peer, wall, now)) {
                in_need.push(index);
            }
        }
        let questions: Vec<NamedEndpoint> = in_need.iter().map(|&index| self.retries[index].0.clone()).collect();
        let answers = process::look_up(&questions, Duration::from_secs(5));
        // A peer may have answered during the lookup.
        let later = if in_need.is_empty() { None } else { self.ask(TunnelClient::get).ok() };
        let mut given = false;
        for ((&index, named), found) in in_need.iter().zip(&questions).zip(answers) {
            let Some(peer) = peer(named) else { continue };
            let now = later.iter().flat_map(|state| &state.peers).find(|now| now.public_key == peer.public_key);
            if now.is_some_and(|now| now.rx_bytes != peer.rx_bytes) {
                continue;
            }
            if let Some(address) = self.retries[index].1.choose(&found, peer, Instant::now()) {
                self.context.message(format_args!("{}: {named} now resolves to {address}", self.interface));
                let update = PeerUpdate { update_only: true, endpoint: Some(address), ..PeerUpdate::new(named.peer) };
                let update = DeviceUpdate { peers: vec![update], ..DeviceUpdate::default() };
                match self.ask(|tunnel| tunnel.set(&update)) {
                    Err(error) => self.context.message(format_args!("{}: {named}: {error}", self.interface)),
                    Ok(()) => given = true,
                }
            }
        }
        // A confined supervisor adds no default routes: name servers come with them.
        let can_add_routes = self.can_add_routes(device);
        if (if self.rights < Rights::All { given && !can_add_routes } else { given || can_add_routes })
            && let Err(error) = self.reload_host()
        {
            self.context.message(format_args!("{}: {error}", self.interface));
            // The attempt has written the ledger, which must not cause the next one.
            self.stale |= self.ledgers.drain();
        }
        self.retries.iter().map(|(_, retry)| retry.pause()).min()
    }

    /// Whether default routes are deferred for an address that is known by now, for example because the peer has
    /// contacted us.
    fn can_add_routes(&self, device: &DeviceState) -> bool {
        let Some(routed) = self.routed else { return false };
        let Ok(Some(text)) = ledger::read_file(ledger::directory(), self.interface) else { return false };
        let file = ConfigFile::of(self.file.clone(), self.interface.clone(), text);
        let device = file.device_after(&DeviceUpdate::default(), device);
        device.is_ok_and(|device| file.host_spec(&device, DefaultRoutes::OnceResolved).allowed_ips.len() != routed)
    }

    /// Takes over the names of the file, which a reload may have changed. Keeps the attempts for those that stay.
    pub(super) fn follow(&mut self, names: Vec<NamedEndpoint>) {
        let mut before = std::mem::take(&mut self.retries);
        for named in names {
            let known = before.iter().position(|(known, _)| *known == named);
            let retry = known.map(|index| before.swap_remove(index).1).unwrap_or_default();
            self.retries.push((named, retry));
        }
    }
}
