//! The settings of `[Peer]`, and how sections with the same peer or prefix are merged.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use ipnet::IpNet;

use super::interface::list;
use super::{Diagnostics, Located, Span};
use crate::document::{Naming, Section, Setting};
use crate::keys::{PublicKey, SecretKey};
use crate::tunnel_file::values::{self, compact, items};
use crate::tunnel_file::{ClientSettings, Diagnostic, Endpoint, Group, KeyFile, Peer, QuotaReset, settings};
use crate::wg_config::values::is_space;

const QUOTA_RESETS: [(&str, QuotaReset); 2] = [("never", QuotaReset::Never), ("monthly", QuotaReset::Monthly)];

/// What a `[Peer]` section says: lines are counted from 0 in it. It may hold secrets, so it has no `Debug`.
#[derive(Clone)]
pub(crate) struct PeerSection {
    /// The peer of a section that is the only one of its peer, unless its key is missing or not valid.
    peer: Option<Arc<Peer>>,
    /// Whether `PublicKey` is set at all.
    has_public_key: bool,
    /// The list changes the previous one of the peer instead of replacing it.
    changes_list: bool,
    /// Prefixes to add (true) or remove.
    allowed_ips: Vec<(bool, IpNet, Span)>,
    /// The peer has the prefixes already: each is added, and only once.
    has_prefixes: bool,
    diagnostics: Diagnostics,
}

/// A `[Peer]` section while it is read.
#[derive(Default)]
struct Draft {
    /// None if it is missing or not valid.
    public_key: Option<PublicKey>,
    /// Whether `PublicKey` is set at all.
    has_public_key: bool,
    name: Option<String>,
    preshared_key: Option<SecretKey>,
    preshared_key_file: Option<KeyFile>,
    /// Where `PresharedKeyFile` is set.
    key_file: Option<Span>,
    endpoint: Option<Endpoint>,
    persistent_keepalive: Option<u16>,
    client: ClientSettings,
    /// The list changes the previous one of the peer instead of replacing it.
    changes_list: bool,
    /// Prefixes to add (true) or remove.
    allowed_ips: Vec<(bool, IpNet, Span)>,
    destinations: Vec<IpNet>,
    /// `Group` and `Check`.
    group: (Option<String>, Option<IpAddr>),
}

/// The peers so far.
pub(super) struct Peers {
    pub(super) list: Vec<Arc<Peer>>,
    /// The index of a peer in the list.
    indices: HashMap<PublicKey, usize, RandomState>,
    /// The index of the peer that has a prefix.
    owners: HashMap<IpNet, usize, RandomState>,
}

impl PeerSection {
    /// The key of its peer, if it has a valid one.
    pub(super) fn public_key(&self) -> Option<&PublicKey> {
        self.peer.as_ref().map(|peer| &peer.public_key)
    }

    /// Reads a section that is in a file in this place: the line of its header and its index.
    pub(crate) fn read(section: &Section, line: usize, index: usize) -> Self {
        let mut diagnostics = Diagnostics::default();
        let (mut draft, mut naming) = (Draft::default(), Naming::default());
        let mut seen = Vec::with_capacity(8);
        for (line, (text, kind)) in section.kinds().enumerate() {
            naming.line(&kind, line < section.header());
            if let Some((setting, at, value)) = diagnostics.line(line, text, kind, section.kind(), &mut seen) {
                draft.entry(&setting, &at, value, &mut diagnostics);
            }
        }
        draft.name = naming.name();
        if let (Some(_), Some(span)) = (&draft.preshared_key, draft.key_file) {
            diagnostics.error(span, "PresharedKey and PresharedKeyFile are both set", "keep one of them");
        }
        let Draft { has_public_key, changes_list, .. } = draft;
        let allowed_ips = std::mem::take(&mut draft.allowed_ips);
        let mut once: Vec<IpNet> = allowed_ips.iter().map(|(_, net, _)| *net).collect();
        once.sort();
        once.dedup();
        let has_prefixes = once.len() == allowed_ips.len() && allowed_ips.iter().all(|(add, ..)| *add);
        let nets = allowed_ips.iter().filter(|_| has_prefixes).map(|(_, net, _)| *net).collect();
        let peer =
            draft.public_key.map(|key| Arc::new(Peer { line, section: index, allowed_ips: nets, ..draft.peer(key) }));
        Self { peer, has_public_key, changes_list, allowed_ips, has_prefixes, diagnostics }
    }
}

impl Draft {
    /// The peer with this key, without its prefixes.
    fn peer(self, public_key: PublicKey) -> Peer {
        Peer {
            name: self.name,
            preshared_key: self.preshared_key,
            preshared_key_file: self.preshared_key_file,
            endpoint: self.endpoint,
            persistent_keepalive: self.persistent_keepalive,
            client: self.client,
            destinations: self.destinations,
            group: match self.group {
                (None, None) => None,
                (name, check) => Some(Box::new(Group { name, check, source: None })),
            },
            ..Peer::new(public_key)
        }
    }

    fn entry(&mut self, setting: &Setting, at: &Located<'_>, value: &str, diagnostics: &mut Diagnostics) {
        let span = at.value();
        match *setting {
            settings::PUBLIC_KEY => {
                self.has_public_key = true;
                diagnostics.store(span, values::public_key(setting, value).map(Some), &mut self.public_key);
            }
            settings::PRESHARED_KEY => {
                diagnostics.store(span, values::secret_key(setting, value).map(Some), &mut self.preshared_key);
            }
            settings::PRESHARED_KEY_FILE => {
                diagnostics.store(span, values::key_file(value).map(Some), &mut self.preshared_key_file);
                self.key_file = Some(at.name());
            }
            settings::ENDPOINT => diagnostics.store(span, values::peer_endpoint(value).map(Some), &mut self.endpoint),
            settings::PERSISTENT_KEEPALIVE => {
                diagnostics.store(span, values::interval(value).map(Some), &mut self.persistent_keepalive);
            }
            settings::ALLOWED_IPS => self.allowed_ips(at, value, diagnostics),
            settings::DESTINATIONS => {
                self.destinations.extend(list(at, value, values::prefix, diagnostics).iter().map(IpNet::trunc));
            }
            settings::GROUP => diagnostics.store(span, values::group(value).map(Some), &mut self.group.0),
            settings::CHECK => {
                diagnostics.store(span, values::host_address(setting, value).map(Some), &mut self.group.1)
            }
            settings::CREATED => diagnostics.store(span, values::instant(value).map(Some), &mut self.client.created),
            settings::EXPIRES => diagnostics.store(span, values::instant(value).map(Some), &mut self.client.expires),
            settings::EXPIRED => diagnostics.store(span, values::instant(value).map(Some), &mut self.client.expired),
            settings::DISABLED => diagnostics.store(span, values::instant(value).map(Some), &mut self.client.disabled),
            settings::QUOTA => diagnostics.store(span, values::quota(value).map(Some), &mut self.client.quota),
            settings::QUOTA_RESET => {
                let reset = values::one_of(setting, value, &QUOTA_RESETS);
                diagnostics.store(span, reset, &mut self.client.quota_reset);
            }
            settings::RATE => diagnostics.store(span, values::rate(value).map(Some), &mut self.client.rate),
            settings::NEXT_PUBLIC_KEY => {
                let key = values::public_key(setting, value);
                diagnostics.store(span, key.map(Some), &mut self.client.next_public_key);
            }
            settings::CLIENT_PRIVATE_KEY => {
                diagnostics.store(span, values::secret_key(setting, value).map(Some), &mut self.client.private_key);
            }
            settings::OWN_ALLOWED_IPS => {
                self.client.allowed_ips.extend(list(at, value, values::prefix, diagnostics).iter().map(IpNet::trunc));
            }
            settings::NOTE => self.client.note = Some(value.to_owned()),
            _ => {}
        }
    }

    fn allowed_ips(&mut self, at: &Located<'_>, value: &str, diagnostics: &mut Diagnostics) {
        // As in wg, the last line alone decides whether the list is a change.
        self.changes_list = false;
        for (offset, item) in items(value, false) {
            let space = item.bytes().take_while(|&byte| is_space(byte)).count();
            let span = at.inside(offset + space);
            let item = compact(item);
            let unsigned = item.strip_prefix(['+', '-']);
            self.changes_list |= unsigned.is_some();
            let Some(net) = diagnostics.check(span, values::prefix(unsigned.unwrap_or(&item))) else { continue };
            if net.trunc() != net {
                let message = format!("{net} has host bits set");
                diagnostics.warn(span, message, format!("it is read as {}", net.trunc()));
            }
            self.allowed_ips.push((!item.starts_with('-'), net.trunc(), span));
        }
    }
}

impl Peers {
    /// No peers yet, with room for those of so many sections.
    pub(super) fn for_sections(sections: usize) -> Self {
        Self {
            list: Vec::with_capacity(sections),
            indices: HashMap::with_capacity_and_hasher(sections, RandomState::default()),
            owners: HashMap::with_capacity_and_hasher(2 * sections, RandomState::default()),
        }
    }

    /// Adds a peer, or merges a second section into it. `section` is its index, `first_line` where it begins.
    pub(super) fn add(
        &mut self,
        read: &PeerSection,
        section: usize,
        first_line: usize,
        header: usize,
        diagnostics: &mut Diagnostics,
    ) {
        let moved = |found: &Diagnostic| Diagnostic { line: found.line + first_line, ..found.clone() };
        diagnostics.0.extend(read.diagnostics.0.iter().map(moved));
        let header = Span { line: header, column: 1 };
        let Some(peer) = &read.peer else {
            if !read.has_public_key {
                diagnostics.error(header, "this peer has no PublicKey", "add `PublicKey = …`");
            }
            return;
        };
        let next = self.list.len();
        let index = *self.indices.entry(peer.public_key).or_insert(next);
        let is_first = index == next;
        if is_first {
            self.list.push(at(peer, header.line, section));
        } else {
            self.merge(index, peer, read.changes_list, header, diagnostics);
        }
        let is_listed = is_first && read.has_prefixes;
        for &(add, net, span) in &read.allowed_ips {
            if add {
                self.assign(index, net, is_listed, span.below(first_line), diagnostics);
            } else if self.owners.get(&net).is_some_and(|&owner| owner == index || self.are_of_one_group(owner, index))
            {
                self.owners.remove(&net);
                drop_net(&mut self.list[index], &net);
            }
        }
    }

    /// Merges another section into a peer, except for the prefixes.
    fn merge(&mut self, index: usize, new: &Peer, changes_list: bool, header: Span, diagnostics: &mut Diagnostics) {
        let peer = Arc::make_mut(&mut self.list[index]);
        let message = format!("peer {} is listed twice, first in line {}", peer.title(), peer.line);
        if new.client.created.is_some() || peer.client.created.is_some() {
            // Its end and its quota would be those of the last section alone.
            diagnostics.error(header, message, "a client has one section: remove the other");
        } else {
            diagnostics.warn(header, message, "merge the sections: only the last AllowedIPs count");
        }
        let new = new.clone();
        peer.client = new.client;
        peer.name = new.name.or(peer.name.take());
        peer.preshared_key = new.preshared_key.or(peer.preshared_key.take());
        peer.preshared_key_file = new.preshared_key_file.or(peer.preshared_key_file.take());
        peer.endpoint = new.endpoint.or(peer.endpoint.take());
        peer.persistent_keepalive = new.persistent_keepalive.or(peer.persistent_keepalive);
        peer.group = new.group.or(peer.group.take());
        if !new.destinations.is_empty() {
            peer.destinations = new.destinations;
        }
        if !changes_list {
            for net in peer.allowed_ips.drain(..) {
                self.owners.remove(&net);
            }
        }
    }

    /// Whether two peers are of a group, whose allowed IPs both have.
    fn are_of_one_group(&self, one: usize, other: usize) -> bool {
        let name = self.list[one].group_name();
        name.is_some() && name == self.list[other].group_name()
    }

    /// Assigns a prefix to a peer, whose list may have it already, and takes it from any other, as the kernel module does
    /// (allowedips.c).
    fn assign(&mut self, index: usize, net: IpNet, is_listed: bool, span: Span, diagnostics: &mut Diagnostics) {
        let before = self.owners.insert(net, index);
        if before == Some(index) {
            return;
        }
        if let Some(before) = before.filter(|&before| !self.are_of_one_group(before, index)) {
            for index in 0..self.list.len() {
                if self.are_of_one_group(before, index) {
                    drop_net(&mut self.list[index], &net);
                }
            }
            drop_net(&mut self.list[before], &net);
            let (loser, winner) = (&self.list[before], &self.list[index]);
            let (line, loser, winner) = (loser.line, loser.title(), winner.title());
            let message = format!("{net} is in the AllowedIPs of two peers: {loser} (line {line}) and {winner}");
            diagnostics.warn(span, message, "only the last one gets it");
        }
        if !is_listed {
            Arc::make_mut(&mut self.list[index]).allowed_ips.push(net);
        }
    }
}

/// The peer in this place of a file, which is shared if it has not moved.
fn at(peer: &Arc<Peer>, line: usize, section: usize) -> Arc<Peer> {
    let mut peer = Arc::clone(peer);
    if (peer.line, peer.section) != (line, section) {
        let moved = Arc::make_mut(&mut peer);
        (moved.line, moved.section) = (line, section);
    }
    peer
}

fn drop_net(peer: &mut Arc<Peer>, net: &IpNet) {
    Arc::make_mut(peer).allowed_ips.retain(|other| other != net);
}
