//! `Group` and `Check`: peers that take over from each other (docs/fleet.md, "Many identities").

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::{Peer, TunnelFile};
use crate::keys::PublicKey;
use crate::uapi::group::GroupUpdate;
use crate::uapi::request::DeviceUpdate;
use crate::uapi::response::DeviceState;

/// The group of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `Group`; without it the peer is in none.
    pub name: Option<String>,
    /// `Check`.
    pub check: Option<IpAddr>,
    /// The interface's first address of that family, from which it is asked.
    pub source: Option<IpAddr>,
}

/// What is wrong with the group of a peer, and what to do.
pub(super) struct InvalidGroup {
    /// The line of the peer's header.
    pub(super) line: usize,
    pub(super) message: String,
    pub(super) hint: String,
}

impl Group {
    /// As the daemon is told.
    pub(super) fn update(group: Option<&Self>) -> GroupUpdate {
        let name = group.and_then(|group| group.name.clone());
        GroupUpdate {
            name: Some(name.unwrap_or_default()),
            check: group.and_then(|group| group.source.zip(group.check)),
        }
    }
}

impl Peer {
    /// The name of its group.
    pub fn group_name(&self) -> Option<&str> {
        self.group.as_ref()?.name.as_deref()
    }
}

/// Fills in from which address each peer is asked, and returns what is wrong.
pub(super) fn complete(file: &mut TunnelFile) -> Vec<InvalidGroup> {
    let mut invalid = Vec::new();
    let mut first: BTreeMap<String, Arc<Peer>> = BTreeMap::new();
    let TunnelFile { addresses, peers, .. } = file;
    for peer in peers.iter_mut().filter(|peer| peer.group.is_some()) {
        if let Some(group) = &mut Arc::make_mut(peer).group {
            let is_of_family = |net: &&IpNet| group.check.is_some_and(|check| net.addr().is_ipv4() == check.is_ipv4());
            group.source = addresses.iter().find(is_of_family).map(IpNet::addr);
        }
        if let Err((message, hint)) = check(peer, &mut first) {
            invalid.push(InvalidGroup { line: peer.line, message, hint });
        }
    }
    invalid
}

/// Checks the group of a peer. `first` are the first peers of the groups so far.
///
/// # Errors
/// What is wrong, and what to do.
fn check(peer: &Arc<Peer>, first: &mut BTreeMap<String, Arc<Peer>>) -> Result<(), (String, String)> {
    let Some(group) = &peer.group else { return Ok(()) };
    let Some(name) = &group.name else {
        return Err(("Check is for the peers of a group".into(), "add `#! Group = NAME`, or remove Check".into()));
    };
    let Some(check) = group.check else {
        let hint = "add `#! Check = ADDRESS`, an address in the tunnel at which the peer answers pings";
        return Err((format!("this peer of the group {name} has no Check"), hint.into()));
    };
    if group.source.is_none() {
        let family = if check.is_ipv4() { "IPv4" } else { "IPv6" };
        let message = format!("Check is {check}, and the interface has no {family} address to ask from");
        return Err((message, format!("use an address of the other family, or add an {family} address to Address")));
    }
    let of_first = first.entry(name.clone()).or_insert_with(|| Arc::clone(peer));
    let list = |peer: &Peer| peer.allowed_ips.iter().copied().collect::<HashSet<IpNet>>();
    if list(of_first) != list(peer) {
        let (title, line) = (of_first.title(), of_first.line);
        let message =
            format!("the peers of the group {name} have not all the same AllowedIPs: {title} (line {line}) has others");
        return Err((message, "repeat the same AllowedIPs in each".into()));
    }
    if !peer.allowed_ips.iter().any(|net| net.contains(&check)) {
        let message = format!("Check is {check}, which is not in the AllowedIPs of the group {name}");
        return Err((message, format!("add {check} to the AllowedIPs of each of its peers")));
    }
    Ok(())
}

/// The running tunnel as a file has it: with the allowed IPs of a group, which the active peer has, at each of its peers.
/// It was brought up from the file `previous`.
pub(super) fn spread<'a>(previous: &TunnelFile, file: &TunnelFile, running: &'a DeviceState) -> Cow<'a, DeviceState> {
    let groups = groups_of(file);
    if groups.is_empty() {
        return Cow::Borrowed(running);
    }
    // The active one may not be in the file any more.
    let before = groups_of(previous);
    let mut lists: HashMap<&str, Vec<(IpAddr, u8)>> = HashMap::new();
    for peer in &running.peers {
        if let Some(name) = before.get(&peer.public_key) {
            lists.entry(name).or_default().extend(&peer.allowed_ips);
        }
    }
    let mut running = running.clone();
    for peer in &mut running.peers {
        if let Some(list) = groups.get(&peer.public_key).and_then(|name| lists.get(name)) {
            peer.allowed_ips.clone_from(list);
        }
    }
    Cow::Owned(running)
}

fn groups_of(file: &TunnelFile) -> HashMap<PublicKey, &str> {
    file.peers.iter().filter_map(|peer| Some((peer.public_key, peer.group_name()?))).collect()
}

impl TunnelFile {
    /// Tells a new device, which is to go on as another one was, the groups of its peers.
    pub fn set_groups(&self, update: &mut DeviceUpdate) {
        let groups: HashMap<PublicKey, &Peer> =
            self.peers.iter().filter(|peer| peer.group.is_some()).map(|peer| (peer.public_key, &**peer)).collect();
        // The first that joins is the active one.
        let mut first: HashMap<&str, usize> = HashMap::new();
        for index in 0..update.peers.len() {
            let peer = &mut update.peers[index];
            let Some(member) = groups.get(&peer.public_key) else { continue };
            peer.group = Group::update(member.group.as_deref());
            let is_active = !peer.allowed_ips.is_empty();
            let Some(name) = member.group_name() else { continue };
            let first = *first.entry(name).or_insert(index);
            if is_active && update.peers[first].allowed_ips.is_empty() {
                update.peers.swap(first, index);
            }
        }
    }
}
