//! Endpoints that are names: looked up by the host, at the start and again whenever a peer is silent, as `linerate up` has
//! it done. A peer without an address stays without one until there is an answer.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_cli::eprint_line;
use linerate_configure::{to_device_change, to_device_state};
use linerate_control::tunnel_file::TunnelFile;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::DeviceState;
use linerate_engine::Handle;
use linerate_tunnel::resolver::{NamedEndpoint, named_endpoints};
use linerate_tunnel::supervise::endpoint_retry::EndpointRetry;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::resolver::Resolver;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The endpoints of a tunnel that are names.
pub struct Endpoints {
    resolver: Option<Resolver>,
    retries: Vec<(NamedEndpoint, EndpointRetry)>,
    /// The first address of each, if it has one.
    first: Vec<Option<SocketAddr>>,
}

impl Endpoints {
    /// Whether `file` has any.
    pub fn are_in(file: &TunnelFile) -> bool {
        !named_endpoints(file).is_empty()
    }

    /// Looks up those of `file`, once. A `resolver` is there if there are any.
    pub async fn look_up(file: &TunnelFile, resolver: Option<Resolver>) -> Self {
        let names = named_endpoints(file);
        let found = match &resolver {
            Some(resolver) => addresses(resolver, names.iter()).await,
            None => vec![Vec::new(); names.len()],
        };
        let first = found.into_iter().map(|addresses| addresses.first().copied()).collect();
        let retries = names.into_iter().map(|named| (named, EndpointRetry::default())).collect();
        Self { resolver, retries, first }
    }

    /// Those without an address.
    pub fn unanswered(&self) -> impl Iterator<Item = &NamedEndpoint> {
        let named = self.retries.iter().map(|(named, _)| named).zip(&self.first);
        named.filter(|(_, address)| address.is_none()).map(|(named, _)| named)
    }

    /// Gives peers the addresses that were found.
    pub(super) fn fill_in(&self, device: &mut DeviceUpdate) {
        for ((named, _), address) in self.retries.iter().zip(&self.first) {
            let mut peers = device.peers.iter_mut();
            if let (Some(peer), Some(_)) = (peers.rfind(|peer| peer.public_key == named.peer), address) {
                peer.endpoint = *address;
            }
        }
    }

    /// Gives peers other addresses when they need one, for as long as the engine runs.
    pub async fn keep(mut self, engine: Handle) {
        let Some(resolver) = self.resolver.take() else { return };
        while let Some(report) = engine.get() {
            self.renew(&resolver, &engine, &to_device_state(&report)).await;
            let pause = self.retries.iter().map(|(_, retry)| retry.pause()).min();
            sleep(pause.unwrap_or(PATIENCE)).await;
        }
    }

    async fn renew(&mut self, resolver: &Resolver, engine: &Handle, device: &DeviceState) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Instant::now();
        let mut in_need: Vec<_> = self
            .retries
            .iter_mut()
            .filter_map(|(named, retry)| {
                let peer = device.peers.iter().find(|peer| peer.public_key == named.peer)?;
                retry.is_lookup_due(peer, wall, now).then_some((&*named, retry, peer))
            })
            .collect();
        let found = addresses(resolver, in_need.iter().map(|(named, ..)| *named)).await;
        // A peer may have answered meanwhile.
        let later = if in_need.is_empty() { None } else { engine.get().as_ref().map(to_device_state) };
        for ((named, retry, peer), found) in in_need.iter_mut().zip(found) {
            let now = later.iter().flat_map(|state| &state.peers).find(|now| now.public_key == named.peer);
            if now.is_none_or(|now| now.rx_bytes != peer.rx_bytes) {
                continue;
            }
            let Some(address) = retry.choose(&found, peer, Instant::now()) else { continue };
            let update = PeerUpdate { update_only: true, endpoint: Some(address), ..PeerUpdate::new(named.peer) };
            let update = DeviceUpdate { peers: vec![update], ..DeviceUpdate::default() };
            match engine.set(to_device_change(&update)) {
                Ok(()) => eprint_line(&format!("linerate-proxy: {named} now resolves to {address}")),
                Err(error) => eprint_line(&format!("linerate-proxy: {named}: {error}")),
            }
        }
    }
}

/// The addresses of each, in their order; none for those without an answer in time.
async fn addresses<'a>(
    resolver: &Resolver,
    names: impl ExactSizeIterator<Item = &'a NamedEndpoint>,
) -> Vec<Vec<SocketAddr>> {
    let mut found = vec![Vec::new(); names.len()];
    let mut lookups = JoinSet::new();
    for (index, named) in names.enumerate() {
        let (resolver, named) = (resolver.clone(), named.clone());
        lookups.spawn(async move { (index, resolver.addresses(&named.host, &named.service).await) });
    }
    let all = async {
        while let Some(done) = lookups.join_next().await {
            if let Ok((index, Ok(addresses))) = done {
                found[index] = addresses;
            }
        }
    };
    let _ = timeout(PATIENCE, all).await;
    found
}
