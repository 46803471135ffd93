//! `syncconf`: the part of a file to send to a running device.

use std::collections::{BTreeMap, BTreeSet};

use crate::keys::{PublicKey, SecretKey};
use crate::uapi::request::{DeviceUpdate, PeerUpdate};
use crate::uapi::response::DeviceState;

/// Turns `file`, which replaces all peers, into a change of `running` with the same result that keeps the sessions of
/// the peers that stay. Removals come first, so that no prefix has two owners.
///
/// If either has no peers, there is nothing to keep and `file` is not changed.
pub fn synchronize(file: &mut DeviceUpdate, running: &DeviceState) {
    if file.peers.is_empty() || running.peers.is_empty() {
        return;
    }
    file.replace_peers = false;
    let mut wanted: BTreeMap<PublicKey, &mut PeerUpdate> = BTreeMap::new();
    for peer in &mut file.peers {
        // The first section of a peer, so that resets come before the settings of later ones.
        wanted.entry(peer.public_key).or_insert(peer);
    }
    let mut gone = BTreeSet::new();
    for peer in &running.peers {
        // One that waits to replace a peer that stays is in no file of wg's.
        let waits = peer.limits.replaces.is_some_and(|replaced| wanted.contains_key(&replaced));
        let Some(update) = wanted.get_mut(&peer.public_key) else {
            if !waits {
                gone.insert(peer.public_key);
            }
            continue;
        };
        if peer.preshared_key.is_some() && update.preshared_key.is_none() {
            update.preshared_key = Some(SecretKey::ZERO);
        }
        if peer.persistent_keepalive != 0 && update.persistent_keepalive.is_none() {
            update.persistent_keepalive = Some(0);
        }
    }
    // From the last key to the first, as wg does.
    let removed = gone.into_iter().rev().map(|key| PeerUpdate { remove: true, ..PeerUpdate::new(key) });
    file.peers.splice(0..0, removed);
}
