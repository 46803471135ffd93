//! What to change on the device of a tunnel: everything that its file sets at first, only the differences later.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::group::{self, Group};
use super::{ByteCount, ClientSettings, Endpoint, Peer, QuotaReset, TunnelFile};
use crate::keys::{PublicKey, SecretKey};
use crate::rate::Rate;
use crate::uapi::limits::{LimitState, LimitUpdate, Suspension};
use crate::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use crate::uapi::response::{DeviceState, PeerState};

/// Changes of a device, and what to resolve before the rest can be sent.
#[derive(Default, PartialEq, Eq)]
pub struct DeviceChanges {
    /// The part that can be sent at once.
    pub update: DeviceUpdate,
    /// Peers whose endpoint is a name.
    pub unresolved: Vec<(PublicKey, Endpoint)>,
}

/// How to remove prefixes from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedIpRemoval {
    /// One by one (`allowed_ip=-`), which does not affect the others.
    OneByOne,
    /// By replacing the whole list: for daemons and kernels that do not know `-`.
    Replace,
}

impl TunnelFile {
    /// The changes that configure a new device. What the file does not set is left alone, because a hook may have set
    /// it.
    pub fn initial_changes(&self) -> DeviceChanges {
        let mut changes = DeviceChanges::default();
        changes.update.private_key = self.private_key.clone();
        changes.update.listen_port = self.listen_port;
        changes.update.fwmark = self.fwmark;
        self.peers.iter().for_each(|peer| changes.set_peer(peer, None, None));
        changes
    }
}

/// The changes that take a device from the file `previous` to the file `now`. What did not change in the file is left
/// alone, so settings made by other means and roamed endpoints stay.
///
/// Secrets from key files are compared as loaded.
pub fn changes(
    previous: &TunnelFile,
    now: &TunnelFile,
    running: &DeviceState,
    lists: AllowedIpRemoval,
) -> DeviceChanges {
    let (previous, now) = (&with_running_keys(previous, running), &with_running_keys(now, running));
    let running = &*group::spread(previous, now, running);
    let mut changes = DeviceChanges::default();
    changes.update.private_key = now.private_key.clone().filter(|_| now.private_key != previous.private_key);
    changes.update.listen_port = now.listen_port.filter(|_| now.listen_port != previous.listen_port);
    changes.update.fwmark = now.fwmark.filter(|_| now.fwmark != previous.fwmark);

    // Peers that stay as they are take nothing from others, and nothing is taken from them.
    let (old_peers, new_peers) = differing(&previous.peers, &now.peers);
    let before: HashMap<PublicKey, &Peer> = old_peers.iter().map(|peer| (peer.public_key, &**peer)).collect();
    let present: HashMap<PublicKey, &PeerState> = running.peers.iter().map(|peer| (peer.public_key, peer)).collect();
    // Removals come first, so that no prefix has two owners.
    let keys = |peer: &Arc<Peer>| [Some(peer.public_key), peer.client.next_public_key].into_iter().flatten();
    let mut gone: Vec<PublicKey> = old_peers.iter().flat_map(keys).filter(|key| present.contains_key(key)).collect();
    // Most edits change no key that was there: then nobody asks for all that are left.
    if !gone.is_empty() {
        let left: HashSet<PublicKey> = now.peers.iter().flat_map(keys).collect();
        gone.retain(|key| !left.contains(key));
    }
    // A client that has another key at once keeps what it has used.
    let identity = |peer: &Peer| Some((peer.name.clone()?, peer.client.created?));
    let had: HashMap<_, PublicKey> = gone.iter().filter_map(|key| Some((identity(before.get(key)?)?, *key))).collect();
    let gone_keys: HashSet<PublicKey> = gone.iter().copied().collect();
    changes.update.peers.extend(gone.into_iter().map(|key| PeerUpdate { remove: true, ..PeerUpdate::new(key) }));

    let owned_before = old_peers.iter().flat_map(|peer| peer.allowed_ips.iter().map(|net| (peer.public_key, *net)));
    let owned_before: HashSet<(PublicKey, IpNet)> = owned_before.collect();
    let prefixes: HashSet<IpNet> = new_peers.iter().flat_map(|peer| peer.allowed_ips.iter().copied()).collect();
    let left: HashSet<&str> = old_peers
        .iter()
        .filter(|peer| gone_keys.contains(&peer.public_key))
        .filter_map(|peer| peer.group_name())
        .collect();
    if !left.is_empty() {
        // To a daemon that knows no groups, the one that is gone may have had the prefixes.
        for peer in now.peers.iter().filter(|peer| peer.group_name().is_some_and(|name| left.contains(name))) {
            let allowed_ips = peer.allowed_ips.iter().map(|net| allowed_ip(true, *net)).collect();
            changes.update.peers.push(PeerUpdate {
                update_only: true,
                allowed_ips,
                ..PeerUpdate::new(peer.public_key)
            });
        }
    }
    for peer in new_peers {
        match (before.get(&peer.public_key), present.get(&peer.public_key)) {
            (Some(old), _) if same(old, peer) => {}
            (Some(old), Some(state)) => changes.update_peer(old, peer, state, lists, &owned_before, &prefixes),
            (_, state) => {
                let old_key = identity(peer).and_then(|client| had.get(&client)).copied();
                changes.set_peer(peer, state.copied(), old_key);
            }
        }
    }
    changes
}

/// The peers of two files, without those that both begin and those that both end with: after an edit these are most.
pub fn differing<'a>(previous: &'a [Arc<Peer>], now: &'a [Arc<Peer>]) -> (&'a [Arc<Peer>], &'a [Arc<Peer>]) {
    let stays = |(previous, now): &(&Arc<Peer>, &Arc<Peer>)| {
        let is_equal = || ***previous == Peer { line: previous.line, section: previous.section, ..Peer::clone(now) };
        Arc::ptr_eq(previous, now) || previous.public_key == now.public_key && is_equal()
    };
    let start = previous.iter().zip(now).take_while(stays).count();
    let (previous, now) = (&previous[start..], &now[start..]);
    let end = previous.iter().rev().zip(now.iter().rev()).take_while(stays).count();
    (&previous[..previous.len() - end], &now[..now.len() - end])
}

/// Whether two peers are the same, apart from their names and lines.
fn same(previous: &Peer, now: &Peer) -> bool {
    let list = |peer: &Peer| peer.allowed_ips.iter().copied().collect::<HashSet<IpNet>>();
    previous.preshared_key == now.preshared_key
        && previous.endpoint == now.endpoint
        && previous.persistent_keepalive.unwrap_or(0) == now.persistent_keepalive.unwrap_or(0)
        && (previous.allowed_ips == now.allowed_ips || list(previous) == list(now))
        && limits(previous) == limits(now)
        && previous.client.rate == now.client.rate
        && previous.group == now.group
        && previous.client.next_public_key == now.client.next_public_key
}

/// The file with the keys that have taken the place of others, where it does not tell yet.
fn with_running_keys<'a>(file: &'a TunnelFile, running: &DeviceState) -> Cow<'a, TunnelFile> {
    let mut file = Cow::Borrowed(file);
    for index in 0..file.peers.len() {
        let peer = &file.peers[index];
        if let Some(next) = peer.client.next_public_key.filter(|next| has_replaced(running, &peer.public_key, next)) {
            let peer = Arc::make_mut(&mut file.to_mut().peers[index]);
            (peer.public_key, peer.client.next_public_key) = (next, None);
        }
    }
    file
}

/// Whether a key has taken the place of another in a running tunnel.
pub fn has_replaced(running: &DeviceState, old: &PublicKey, next: &PublicKey) -> bool {
    let is_next = |peer: &PeerState| peer.public_key == *next && peer.limits.replaces.is_none();
    running.peers.iter().any(is_next) && !running.peers.iter().any(|peer| peer.public_key == *old)
}

/// Whether a peer is not let in because it has reached the end that the file gives it, and not another one: that of
/// a file that was edited since, say.
pub fn has_expired(peer: &Peer, state: &PeerState) -> bool {
    let (limits, expires) = (&state.limits, peer.client.expires.map(end));
    limits.suspended == Some(Suspension::Expired) && limits.expires == expires
}

impl ClientSettings {
    /// Whether the daemon is to cut the client off, or to replace its key.
    pub fn has_end(&self) -> bool {
        self.expires.is_some() || self.quota.is_some() || self.next_public_key.is_some()
    }
}

/// An end as the daemon knows it, since 1970.
fn end(expires: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(expires.as_second()).unwrap_or(0).max(1))
}

/// All limits of a peer, those that it has not as zero; unless it has none.
fn limits(peer: &Peer) -> Option<LimitUpdate> {
    let client = &peer.client;
    let day_of = |created: Timestamp| u8::try_from(created.to_zoned(TimeZone::system()).day()).unwrap_or(1);
    let day = match client.quota_reset {
        QuotaReset::Monthly => client.created.map_or(1, day_of),
        QuotaReset::Never => 0,
    };
    let limits = LimitUpdate {
        expires: Some(client.expires.map_or(Duration::ZERO, end)),
        quota: Some(client.quota.map_or(0, ByteCount::bytes)),
        quota_day: Some(day),
        ..LimitUpdate::NONE
    };
    (client.expires.is_some() || client.quota.is_some()).then_some(limits)
}

impl DeviceChanges {
    /// Sets everything that the file has for a peer, and clears the rest if the device has the peer already. What its
    /// `old_key`, which is removed, has used is the peer's.
    fn set_peer(&mut self, peer: &Peer, state: Option<&PeerState>, old_key: Option<PublicKey>) {
        let present = state.is_some();
        let mut update = PeerUpdate::new(peer.public_key);
        let had_limits = state.is_some_and(|state| state.limits != LimitState::default());
        update.limits = limits(peer).or(had_limits.then_some(LimitUpdate::NONE)).unwrap_or_default();
        if old_key.is_some() && limits(peer).is_some() {
            update.limits.replaces = old_key;
        }
        let had_rate = state.is_some_and(|state| !state.rate.is_none());
        update.rate = peer.client.rate.or(had_rate.then_some(Rate::NONE));
        update.preshared_key = peer.preshared_key.clone().or(present.then_some(SecretKey::ZERO));
        update.persistent_keepalive = peer.persistent_keepalive.or(present.then_some(0));
        update.replace_allowed_ips = true;
        update.allowed_ips = peer.allowed_ips.iter().map(|net| allowed_ip(true, *net)).collect();
        if peer.group.is_some() {
            update.group = Group::update(peer.group.as_deref());
        }
        self.set_endpoint(peer, &mut update);
        self.update.peers.push(update);
        self.set_successor(peer);
    }

    /// Adds the key that replaces that of a peer at its first handshake.
    fn set_successor(&mut self, peer: &Peer) {
        let Some(next) = peer.client.next_public_key else { return };
        let limits = LimitUpdate { replaces: Some(peer.public_key), ..limits(peer).unwrap_or(LimitUpdate::NONE) };
        self.update.peers.push(PeerUpdate {
            preshared_key: peer.preshared_key.clone(),
            persistent_keepalive: peer.persistent_keepalive,
            limits,
            rate: peer.client.rate,
            ..PeerUpdate::new(next)
        });
    }

    /// Sends only what differs between two versions of a peer.
    fn update_peer(
        &mut self,
        previous: &Peer,
        now: &Peer,
        running: &PeerState,
        lists: AllowedIpRemoval,
        owned_before: &HashSet<(PublicKey, IpNet)>,
        prefixes: &HashSet<IpNet>,
    ) {
        let mut update = PeerUpdate { update_only: true, ..PeerUpdate::new(now.public_key) };
        if previous.preshared_key != now.preshared_key {
            update.preshared_key = Some(now.preshared_key.clone().unwrap_or(SecretKey::ZERO));
        }
        if previous.persistent_keepalive.unwrap_or(0) != now.persistent_keepalive.unwrap_or(0) {
            update.persistent_keepalive = Some(now.persistent_keepalive.unwrap_or(0));
        }
        if limits(previous) != limits(now) {
            update.limits = limits(now).unwrap_or(LimitUpdate::NONE);
        }
        if previous.client.rate != now.client.rate {
            update.rate = Some(now.client.rate.unwrap_or_default());
        }
        if previous.group != now.group {
            update.group = Group::update(now.group.as_deref());
        }
        if previous.endpoint != now.endpoint {
            self.set_endpoint(now, &mut update);
        }
        let kept: HashSet<IpNet> = now.allowed_ips.iter().copied().collect();
        let lost: Vec<IpNet> = previous.allowed_ips.iter().copied().filter(|net| !kept.contains(net)).collect();
        // Adding a prefix to another peer removes it here, without a gap in which no peer has it.
        let taken: Vec<IpNet> = lost.iter().copied().filter(|net| !prefixes.contains(net)).collect();
        // One that leaves a group leaves the prefixes to the others.
        let has_moved = previous.group_name() != now.group_name();
        let is_added = |net: &&IpNet| has_moved || !owned_before.contains(&(now.public_key, **net));
        let added = now.allowed_ips.iter().filter(is_added).copied();
        if lists == AllowedIpRemoval::OneByOne || taken.is_empty() {
            update.allowed_ips.extend(taken.into_iter().map(|net| allowed_ip(false, net)));
        } else {
            update.replace_allowed_ips = true;
            let lost: HashSet<IpNet> = lost.into_iter().collect();
            let state = running.allowed_ips.iter().filter_map(|&(address, length)| IpNet::new(address, length).ok());
            let stays = |net: &IpNet| !lost.contains(net) && (kept.contains(net) || !prefixes.contains(net));
            update.allowed_ips.extend(state.filter(stays).map(|net| allowed_ip(true, net)));
        }
        update.allowed_ips.extend(added.map(|net| allowed_ip(true, net)));
        if update != (PeerUpdate { update_only: true, ..PeerUpdate::new(now.public_key) }) {
            self.update.peers.push(update);
        }
        self.set_successor(now);
    }

    fn set_endpoint(&mut self, peer: &Peer, update: &mut PeerUpdate) {
        match &peer.endpoint {
            Some(Endpoint::Address(address)) => update.endpoint = Some(*address),
            Some(name) => self.unresolved.push((peer.public_key, name.clone())),
            None => {}
        }
    }
}

fn allowed_ip(add: bool, net: IpNet) -> AllowedIp {
    AllowedIp { add, addr: net.addr(), cidr: net.prefix_len() }
}
