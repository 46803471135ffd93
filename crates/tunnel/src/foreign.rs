//! Applies edits to a tunnel that another program brought up: wg-quick with linerated, another daemon or the kernel
//! module. There is no ledger, so only the peers are changed, over the tunnel's control interface. Settings that were not
//! applied are reported: an administrator who disabled a client must know whether the client can still connect.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use linerate_control::document::SectionKind;
use linerate_control::keys::PublicKey;
use linerate_control::printable::printable;
use linerate_control::tunnel_file::{Peer, TunnelFile, changes, differing};
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::DeviceState;

use crate::context::Context;
use crate::edit::{Applied, host_spec};
use crate::error::Error;
use crate::ledger::LedgerHead;
use crate::limits;
use crate::read::ConfigFile;
use crate::reload;
use crate::status::is_absence;

/// Applies the changes of peers from `old` to `new` to the running tunnel. `ledger` is that of a tunnel that linerate
/// brought up from another file. Returns what was applied, and the settings that the tunnel does not follow.
///
/// # Errors
/// The tunnel refuses the peers; nothing was changed.
pub(crate) fn apply(
    old: &ConfigFile,
    new: &ConfigFile,
    ledger: Option<&LedgerHead>,
    context: Context<'_>,
) -> Result<(Applied, Vec<String>), Error> {
    let name = &new.interface;
    let untouched = |why: String| Ok((Applied::NotRunning, vec![why]));
    let device = match state(new) {
        Ok(device) => device,
        Err(error) if is_absence(&error) => return Ok((Applied::NotRunning, Vec::new())),
        Err(error) => {
            return untouched(format!(
                "{name} does not respond: {error}; the change is in the file only, and the running tunnel may be as it was"
            ));
        }
    };
    if let Some(ledger) = ledger {
        return untouched(format!(
            "the tunnel {name} that runs was brought up from {0} and is as it was: `--server {0}' changes that one",
            ledger.file.display()
        ));
    }
    let (from, to) = (old.loaded()?, new.loaded()?);
    if !is_of_file(&device, &from) && !is_of_file(&device, &to) {
        return untouched(format!(
            "the tunnel {name} that runs has another private key than {}, or none of its peers, so it is another one, and \
             is as it was: take it down with the program that brought it up, then `linerate up {name}`",
            new.path.display()
        ));
    }
    let is_same = old.text() == new.text();
    let update = DeviceUpdate { peers: peers(&from, new, &to, &device, is_same), ..DeviceUpdate::default() };
    let mut unmet = unmet_on_host(old, new, is_same);
    if update.peers.is_empty() {
        return Ok((Applied::NotRunning, unmet));
    }
    match limits::set(name.as_str(), &update) {
        Ok(lost) => {
            unmet.extend(lost.sentences(name.as_str()));
            unmet.extend(unmet_by_device(new, &update.peers, lost.is_none()));
        }
        Err(ClientError::Reply(_)) => return Err(Error::State("the running tunnel refuses the change".to_owned())),
        Err(error) => unmet.push(format!(
            "{name} does not respond: {error}; the change is in the file only, and the running tunnel may be as it was"
        )),
    }
    if new.contents.save_config {
        context.warn(format_args!(
            "{} has SaveConfig: if wg-quick takes {name} down, it writes what runs over the file, without names and \
             without clients that are disabled. Remove this line",
            new.path.display()
        ));
    }
    Ok((Applied::Peers(update.peers.len()), unmet))
}

/// Whether a tunnel that runs is that of `file`: they have the same private key or, where one of them does not tell its
/// key (a hook loads it, boringtun does not report it), a peer in common.
pub(crate) fn is_of_file(device: &DeviceState, file: &TunnelFile) -> bool {
    if let (Some(running), Some(key)) = (&device.private_key, &file.private_key) {
        return running == key;
    }
    let running: HashSet<PublicKey> = device.peers.iter().map(|peer| peer.public_key).collect();
    let is_bare = file.private_key.is_none() && file.peers.is_empty();
    is_bare && running.is_empty() || file.peers.iter().any(|peer| running.contains(&peer.public_key))
}

fn state(file: &ConfigFile) -> Result<DeviceState, ClientError> {
    reload::open(&file.interface)?.get()
}

/// Returns the changes of peers. The tunnel may have missed earlier edits, so all disabled peers are removed, and an edit
/// that changes nothing adds all missing peers.
fn peers(from: &TunnelFile, new: &ConfigFile, to: &TunnelFile, device: &DeviceState, is_same: bool) -> Vec<PeerUpdate> {
    let running: HashSet<PublicKey> = device.peers.iter().map(|peer| peer.public_key).collect();
    let runs = |peer: &Arc<Peer>| running.contains(&peer.public_key);
    let mut before = from.clone();
    before.peers.retain(|peer| !is_same || runs(peer));
    let sections = new.document.sections();
    let is_disabled = |peer: &Arc<Peer>| sections[peer.section].kind() == SectionKind::DisabledPeer;
    before.peers.extend(new.with_disabled().0.peers.into_iter().filter(is_disabled).filter(runs));
    changes(&before, to, device, reload::removal(&new.interface)).update.peers
}

/// Returns warnings about settings of the host that are new in the file.
fn unmet_on_host(old: &ConfigFile, new: &ConfigFile, is_same: bool) -> Vec<String> {
    let (old_peers, new_peers) = match is_same {
        // An earlier edit may have added settings that the host still lacks.
        true => (&[][..], &*new.contents.peers),
        false => differing(&old.contents.peers, &new.contents.peers),
    };
    let name = &new.interface;
    let before: HashMap<PublicKey, &Peer> = old_peers.iter().map(|peer| (peer.public_key, &**peer)).collect();
    let is_wider = |peer: &&Arc<Peer>| {
        let had = before.get(&peer.public_key).map(|old| &old.destinations);
        !peer.destinations.is_empty() && had != Some(&peer.destinations)
    };
    let mut unmet = Vec::new();
    let restricted: Vec<String> =
        new_peers.iter().filter(is_wider).map(|peer| printable(&peer.title()).into_owned()).collect();
    if !restricted.is_empty() {
        unmet.push(format!(
            "only linerate keeps Destinations: until {name} is taken down and brought up with `linerate up {name}`, they \
             do not hold for {}",
            restricted.join(", ")
        ));
    }
    let spec = |file: &ConfigFile, peers: &[Arc<Peer>]| {
        let mut spec = host_spec(file, peers);
        spec.forwarding.restrictions.clear();
        spec
    };
    let (mut from, to) = (spec(old, old_peers), spec(new, new_peers));
    // A route without a peer behind it does no harm.
    let has_new_routes = !is_same && to.allowed_ips.iter().any(|net| !from.allowed_ips.contains(net));
    from.allowed_ips.clone_from(&to.allowed_ips);
    let device = |file: &TunnelFile| (file.listen_port, file.fwmark, file.private_key.clone(), file.user.clone());
    if has_new_routes || from != to || device(&old.contents) != device(&new.contents) {
        unmet.push(format!(
            "another program brought {name} up, so only its peers have followed: take it down with that program, then \
             `linerate up {name}`, for its port, addresses, routes and rules"
        ));
    }
    unmet
}

/// Returns a warning about peers that the update did not remove or, if the tunnel `takes_all`, did not add.
fn unmet_by_device(new: &ConfigFile, updates: &[PeerUpdate], takes_all: bool) -> Option<String> {
    let name = &new.interface;
    let Ok(device) = state(new) else {
        return Some(format!("{name} does not respond: whether the running tunnel has followed is not known"));
    };
    let has = |key: &PublicKey| device.peers.iter().any(|peer| peer.public_key == *key);
    let differs = |update: &&PeerUpdate| {
        if update.remove { has(&update.public_key) } else { takes_all && !has(&update.public_key) }
    };
    let title = |update: &PeerUpdate| {
        let key = update.public_key;
        if update.remove { format!("{key} is still let in") } else { format!("{key} is not let in") }
    };
    let different: Vec<String> = updates.iter().filter(differs).map(title).collect();
    (!different.is_empty()).then(|| {
        format!(
            "{name} did not follow: {}; take it down with the program that brought it up, then `linerate up {name}`",
            different.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use linerate_control::keys::SecretKey;
    use linerate_control::uapi::response::PeerState;

    use super::*;

    /// A tunnel that runs, and a file, with these private keys and peers.
    fn is_same(running: (Option<u8>, &[u8]), file: (Option<u8>, &[u8])) -> bool {
        let key = |byte: u8| PublicKey([byte; 32]);
        let device = DeviceState {
            private_key: running.0.map(|byte| SecretKey::from_bytes(&[byte; 32])),
            peers: running.1.iter().map(|byte| PeerState::new(key(*byte))).collect(),
            ..DeviceState::default()
        };
        let peers = file.1.iter().map(|byte| format!("[Peer]\nPublicKey = {}\n", key(*byte))).collect::<String>();
        let own = file.0.map(|byte| format!("PrivateKey = {}\n", key(byte))).unwrap_or_default();
        let text = format!("[Interface]\n{own}{peers}").into_bytes();
        let file =
            ConfigFile::of("/wg0.conf".into(), "wg0".parse().unwrap(), linerate_control::zeroizing::Buffer::from(text));
        is_of_file(&device, &file.contents)
    }

    #[test]
    fn a_tunnel_is_that_of_a_file_by_its_key_or_else_by_a_peer() {
        assert!(is_same((Some(64), &[]), (Some(64), &[2])));
        assert!(!is_same((Some(72), &[2]), (Some(64), &[2])), "another key");
        // A hook loads the key, or the daemon does not report it.
        assert!(is_same((Some(64), &[2, 3]), (None, &[3, 4])));
        assert!(is_same((None, &[3]), (Some(64), &[3])));
        assert!(!is_same((Some(64), &[2]), (None, &[3])));
        assert!(!is_same((None, &[]), (Some(64), &[3])), "nobody has configured it");
        assert!(!is_same((None, &[]), (Some(64), &[])));
        assert!(is_same((Some(64), &[]), (None, &[])), "the file says nothing that differs");
        assert!(!is_same((None, &[2]), (None, &[])));
    }
}
