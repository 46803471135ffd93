//! The keys of `[Peer]`, and what sections that speak of the same peer or prefix make of each other.

use std::collections::HashMap;

use ipnet::IpNet;

use super::{Diagnostics, Located, Span};
use crate::document::Key;
use crate::keys::{PublicKey, SecretKey};
use crate::tunnel_file::values::{self, compact, items};
use crate::tunnel_file::{Endpoint, KeyFile, Peer, keys};
use crate::wg_config::values::is_space;

/// A section that is being read.
#[derive(Default)]
pub(super) struct Draft {
    /// None if the key is missing or not valid.
    public_key: Option<PublicKey>,
    /// Whether there is a line with the key at all.
    has_key: bool,
    name: Option<String>,
    preshared_key: Option<SecretKey>,
    preshared_key_file: Option<KeyFile>,
    /// Where `PresharedKeyFile` stands.
    key_file: Option<Span>,
    endpoint: Option<Endpoint>,
    persistent_keepalive: Option<u16>,
    /// The list changes what the peer had before, and does not take its place.
    changes_list: bool,
    /// Prefixes that are added, or taken away.
    allowed_ips: Vec<(bool, IpNet, Span)>,
}

/// The peers so far.
#[derive(Default)]
pub(super) struct Peers {
    pub(super) list: Vec<Peer>,
    /// Where a peer is in the list.
    places: HashMap<PublicKey, usize>,
    /// Where the owner of a prefix is in the list.
    owners: HashMap<IpNet, usize>,
}

impl Draft {
    /// A section in which nothing has been read yet but what its comments call the peer.
    pub(super) fn named(name: Option<String>) -> Self {
        Self { name, ..Self::default() }
    }

    pub(super) fn entry(&mut self, key: &Key, at: &Located<'_>, value: &str, diagnostics: &mut Diagnostics) {
        let place = at.value();
        match *key {
            keys::PUBLIC_KEY => {
                self.has_key = true;
                diagnostics.take(place, values::public_key(key, value).map(Some), &mut self.public_key);
            }
            keys::PRESHARED_KEY => {
                diagnostics.take(place, values::secret_key(key, value).map(Some), &mut self.preshared_key);
            }
            keys::PRESHARED_KEY_FILE => {
                diagnostics.take(place, values::key_file(value).map(Some), &mut self.preshared_key_file);
                self.key_file = Some(at.key());
            }
            keys::ENDPOINT => diagnostics.take(place, values::peer_endpoint(value).map(Some), &mut self.endpoint),
            keys::PERSISTENT_KEEPALIVE => {
                diagnostics.take(place, values::interval(value).map(Some), &mut self.persistent_keepalive);
            }
            keys::ALLOWED_IPS => self.allowed_ips(at, value, diagnostics),
            _ => {}
        }
    }

    fn allowed_ips(&mut self, at: &Located<'_>, value: &str, diagnostics: &mut Diagnostics) {
        // The last line decides whether the list is a change.
        self.changes_list = false;
        for (offset, item) in items(value, false) {
            let space = item.bytes().take_while(|&byte| is_space(byte)).count();
            let place = at.inside(offset + space);
            let item = compact(item);
            let unsigned = item.strip_prefix(['+', '-']);
            self.changes_list |= unsigned.is_some();
            let Some(net) = diagnostics.judged(place, values::prefix(unsigned.unwrap_or(&item))) else { continue };
            if net.trunc() != net {
                let what = format!("{net} has an address beyond its length");
                diagnostics.warn(place, what, format!("{} is what it stands for", net.trunc()));
            }
            self.allowed_ips.push((!item.starts_with('-'), net.trunc(), place));
        }
    }
}

impl Peers {
    /// Adds a peer, or what a second section says of one that is there.
    pub(super) fn adopt(&mut self, draft: Draft, header: Span, diagnostics: &mut Diagnostics) {
        if let (Some(_), Some(place)) = (&draft.preshared_key, draft.key_file) {
            diagnostics.error(place, "there are both PresharedKey and PresharedKeyFile", "keep one of them");
        }
        let Some(public_key) = draft.public_key else {
            if !draft.has_key {
                diagnostics.error(header, "this peer has no PublicKey", "PublicKey = … says who it is");
            }
            return;
        };
        let index = self.find(public_key, header, diagnostics);
        let peer = &mut self.list[index];
        peer.name = draft.name.or(peer.name.take());
        peer.preshared_key = draft.preshared_key.or(peer.preshared_key.take());
        peer.preshared_key_file = draft.preshared_key_file.or(peer.preshared_key_file.take());
        peer.endpoint = draft.endpoint.or(peer.endpoint.take());
        peer.persistent_keepalive = draft.persistent_keepalive.or(peer.persistent_keepalive);
        if !draft.changes_list {
            for net in peer.allowed_ips.drain(..) {
                self.owners.remove(&net);
            }
        }
        for (add, net, place) in draft.allowed_ips {
            if add {
                self.give(index, net, place, diagnostics);
            } else if self.owners.get(&net) == Some(&index) {
                self.owners.remove(&net);
                self.list[index].allowed_ips.retain(|other| *other != net);
            }
        }
    }

    fn find(&mut self, public_key: PublicKey, header: Span, diagnostics: &mut Diagnostics) -> usize {
        let next = self.list.len();
        let index = *self.places.entry(public_key).or_insert(next);
        match self.list.get(index) {
            Some(peer) => {
                let what = format!("the peer {} is there twice, first in line {}", peer.title(), peer.line);
                diagnostics.warn(header, what, "make one section of both: only the last AllowedIPs count");
            }
            None => self.list.push(Peer { line: header.line, ..Peer::new(public_key) }),
        }
        index
    }

    /// Gives a prefix to a peer; whoever had it has it no longer (allowedips.c of the kernel's module).
    fn give(&mut self, index: usize, net: IpNet, place: Span, diagnostics: &mut Diagnostics) {
        let before = self.owners.insert(net, index);
        if before == Some(index) {
            return;
        }
        if let Some(before) = before {
            self.list[before].allowed_ips.retain(|other| *other != net);
            let (loser, winner) = (&self.list[before], &self.list[index]);
            let (line, loser, winner) = (loser.line, loser.title(), winner.title());
            let what = format!("{net} belongs to two peers: {loser} in line {line} and {winner} here");
            diagnostics.warn(place, what, "only the last one gets it");
        }
        self.list[index].allowed_ips.push(net);
    }
}
