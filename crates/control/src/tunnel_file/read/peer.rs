//! The settings of `[Peer]`, and how sections with the same peer or prefix are merged.

use std::collections::HashMap;

use ipnet::IpNet;

use super::interface::list;
use super::{Diagnostics, Located, Span};
use crate::document::Setting;
use crate::keys::{PublicKey, SecretKey};
use crate::tunnel_file::values::{self, compact, items};
use crate::tunnel_file::{ClientSettings, Endpoint, KeyFile, Peer, QuotaReset, settings};
use crate::wg_config::values::is_space;

const QUOTA_RESETS: [(&str, QuotaReset); 2] = [("never", QuotaReset::Never), ("monthly", QuotaReset::Monthly)];

/// A `[Peer]` section while it is read.
#[derive(Default)]
pub(super) struct Draft {
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
}

/// The peers so far.
#[derive(Default)]
pub(super) struct Peers {
    pub(super) list: Vec<Peer>,
    /// The index of a peer in the list.
    indices: HashMap<PublicKey, usize>,
    /// The index of the peer that has a prefix.
    owners: HashMap<IpNet, usize>,
}

impl Draft {
    /// A section of which only the name, from its comments, was read.
    pub(super) fn named(name: Option<String>) -> Self {
        Self { name, ..Self::default() }
    }

    pub(super) fn entry(&mut self, setting: &Setting, at: &Located<'_>, value: &str, diagnostics: &mut Diagnostics) {
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
            settings::CREATED => diagnostics.store(span, values::instant(value).map(Some), &mut self.client.created),
            settings::EXPIRES => diagnostics.store(span, values::instant(value).map(Some), &mut self.client.expires),
            settings::EXPIRED => diagnostics.store(span, values::instant(value).map(Some), &mut self.client.expired),
            settings::DISABLED => diagnostics.store(span, values::instant(value).map(Some), &mut self.client.disabled),
            settings::QUOTA => diagnostics.store(span, values::quota(value).map(Some), &mut self.client.quota),
            settings::QUOTA_RESET => {
                let reset = values::one_of(setting, value, &QUOTA_RESETS);
                diagnostics.store(span, reset, &mut self.client.quota_reset);
            }
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
    /// Adds a peer, or merges a second section into it.
    pub(super) fn add(&mut self, draft: Draft, section: usize, header: Span, diagnostics: &mut Diagnostics) {
        if let (Some(_), Some(span)) = (&draft.preshared_key, draft.key_file) {
            diagnostics.error(span, "PresharedKey and PresharedKeyFile are both set", "keep one of them");
        }
        let Some(public_key) = draft.public_key else {
            if !draft.has_public_key {
                diagnostics.error(header, "this peer has no PublicKey", "add `PublicKey = …`");
            }
            return;
        };
        let is_client = draft.client.created.is_some();
        let index = self.find(public_key, is_client, section, header, diagnostics);
        let peer = &mut self.list[index];
        peer.client = draft.client;
        peer.name = draft.name.or(peer.name.take());
        peer.preshared_key = draft.preshared_key.or(peer.preshared_key.take());
        peer.preshared_key_file = draft.preshared_key_file.or(peer.preshared_key_file.take());
        peer.endpoint = draft.endpoint.or(peer.endpoint.take());
        peer.persistent_keepalive = draft.persistent_keepalive.or(peer.persistent_keepalive);
        if !draft.destinations.is_empty() {
            peer.destinations = draft.destinations;
        }
        if !draft.changes_list {
            for net in peer.allowed_ips.drain(..) {
                self.owners.remove(&net);
            }
        }
        for (add, net, span) in draft.allowed_ips {
            if add {
                self.assign(index, net, span, diagnostics);
            } else if self.owners.get(&net) == Some(&index) {
                self.owners.remove(&net);
                self.list[index].allowed_ips.retain(|other| *other != net);
            }
        }
    }

    fn find(
        &mut self,
        public_key: PublicKey,
        is_client: bool,
        section: usize,
        header: Span,
        diagnostics: &mut Diagnostics,
    ) -> usize {
        let next = self.list.len();
        let index = *self.indices.entry(public_key).or_insert(next);
        match self.list.get(index) {
            Some(peer) => {
                let message = format!("peer {} is listed twice, first in line {}", peer.title(), peer.line);
                if is_client || peer.client.created.is_some() {
                    // Its end and its quota would be those of the last section alone.
                    diagnostics.error(header, message, "a client has one section: remove the other");
                } else {
                    diagnostics.warn(header, message, "merge the sections: only the last AllowedIPs count");
                }
            }
            None => self.list.push(Peer { line: header.line, section, ..Peer::new(public_key) }),
        }
        index
    }

    /// Assigns a prefix to a peer and takes it from any other, as the kernel module does (allowedips.c).
    fn assign(&mut self, index: usize, net: IpNet, span: Span, diagnostics: &mut Diagnostics) {
        let before = self.owners.insert(net, index);
        if before == Some(index) {
            return;
        }
        if let Some(before) = before {
            self.list[before].allowed_ips.retain(|other| *other != net);
            let (loser, winner) = (&self.list[before], &self.list[index]);
            let (line, loser, winner) = (loser.line, loser.title(), winner.title());
            let message = format!("{net} is in the AllowedIPs of two peers: {loser} (line {line}) and {winner}");
            diagnostics.warn(span, message, "only the last one gets it");
        }
        self.list[index].allowed_ips.push(net);
    }
}
