//! What a gateway knows of its fleet: a mirror of the store, and from it the peers that are in force here. Pure: no I/O, no
//! clock.
//!
//! A peer of the store that is not as it should be is refused by name, and the rest goes on; if it was in force as it was
//! before, it stays so. If more than half of the peers vanish and no edit has said so, nothing follows until somebody
//! confirms it: an empty list is not an order.

use std::collections::BTreeMap;
use std::sync::Arc;

use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;

use crate::gateway::{Member, Members};
use crate::peers::{self, Difference, Peer};
use crate::seal::Seal;
use crate::store::layout::{self, Config, Key, Keys};
use crate::store::{Batch, Change, KeyValue};

/// Peers that are in force.
pub type Peers = BTreeMap<PublicKey, Arc<Peer>>;

/// Why peers do not follow the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How many peers are in force.
    pub peers: usize,
    /// How many of them the store has no more.
    pub gone: usize,
    /// The revision at which they were found to be gone.
    pub revision: i64,
}

/// A mirror of the store.
pub struct View {
    keys: Keys,
    seal: Seal,
    interface: InterfaceName,
    revision: i64,
    config: Option<Config>,
    next: layout::Next,
    confirmed: i64,
    /// Peers of the store that are as they should be, with the revisions that made them.
    known: BTreeMap<PublicKey, (i64, Arc<Peer>)>,
    /// Who has a number.
    numbers: BTreeMap<u32, PublicKey>,
    /// Peers of the store that are refused, by the ends of their keys, and why.
    refused: BTreeMap<String, String>,
    members: BTreeMap<u8, layout::Member>,
    gateways: BTreeMap<u8, layout::Gateway>,
    in_force: Peers,
    hold: Option<Hold>,
}

impl View {
    /// A mirror that has seen nothing; these peers are in force.
    pub fn new(keys: Keys, seal: Seal, interface: InterfaceName, in_force: Peers) -> Self {
        Self {
            keys,
            seal,
            interface,
            revision: 0,
            config: None,
            next: layout::Next::default(),
            confirmed: 0,
            known: BTreeMap::new(),
            numbers: BTreeMap::new(),
            refused: BTreeMap::new(),
            members: BTreeMap::new(),
            gateways: BTreeMap::new(),
            in_force,
            hold: None,
        }
    }

    /// Takes who may be a gateway from the last view, until the store tells.
    pub fn start_with(&mut self, members: BTreeMap<u8, layout::Member>) {
        self.members = members;
    }

    /// The revision of the store.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// What is the same for all gateways.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// The peers that are in force.
    pub fn peers(&self) -> &Peers {
        &self.in_force
    }

    /// Peers that are refused, and why.
    pub fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    /// Why peers do not follow the store, if so.
    pub fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Who may be a gateway.
    pub fn members(&self) -> Members {
        let member = |(number, member): (&u8, &layout::Member)| {
            let running = self.gateways.get(number);
            let mesh_key = PublicKey::from_base64(member.mesh_key.as_bytes())?;
            let member = Member {
                name: member.name.clone(),
                mesh_key,
                mesh_endpoint: member.mesh_endpoint,
                has_lease: running.is_some(),
                is_draining: member.draining,
                capacity: running.map_or(1, |running| running.capacity.clamp(1, 1000)),
            };
            Some((*number, member))
        };
        self.members.iter().filter_map(member).collect()
    }

    /// The same, as the store has it.
    pub fn stored_members(&self) -> &BTreeMap<u8, layout::Member> {
        &self.members
    }

    /// Takes all that the store has. Returns what changes of the peers in force: from and to.
    pub fn list(&mut self, revision: i64, mut all: Vec<KeyValue>) -> (Peers, Difference) {
        self.known.clear();
        self.numbers.clear();
        self.refused.clear();
        self.members.clear();
        self.gateways.clear();
        (self.config, self.next) = (None, layout::Next::default());
        // Whoever had a number first keeps it.
        all.sort_by_key(|kv| kv.created);
        all.into_iter().for_each(|kv| self.put(kv));
        self.revision = revision;
        self.follow()
    }

    /// Takes what has changed since.
    pub fn change(&mut self, batch: Batch) -> (Peers, Difference) {
        for change in batch.changes {
            match change {
                Change::Put(kv) => self.put(kv),
                Change::Deleted(key) => self.delete(&key),
            }
        }
        self.revision = self.revision.max(batch.revision);
        self.follow()
    }

    fn put(&mut self, kv: KeyValue) {
        match self.keys.read(&kv.key) {
            // What cannot be read leaves what was there.
            Key::Config => self.config = layout::read(&self.seal, &kv).ok().or(self.config.take()),
            Key::Next => self.next = layout::read(&self.seal, &kv).unwrap_or_default(),
            Key::Confirmed => {
                self.confirmed =
                    layout::read(&self.seal, &kv).map_or(self.confirmed, |value: layout::Confirmed| value.revision);
            }
            Key::Member(number) => {
                if let Ok(member) = layout::read(&self.seal, &kv) {
                    self.members.insert(number, member);
                }
            }
            Key::Gateway(number) => {
                if let Ok(gateway) = layout::read(&self.seal, &kv) {
                    self.gateways.insert(number, gateway);
                }
            }
            Key::Peer(key) => self.put_peer(key, &kv),
            Key::NoPeer(name) => drop(self.refused.insert(name, "its key is not that of a peer".to_owned())),
            Key::Applied(_) | Key::Unknown => {}
        }
    }

    fn put_peer(&mut self, key: PublicKey, kv: &KeyValue) {
        let read = peers::read(&key, kv, &self.seal, &self.interface).and_then(|peer| {
            match self.numbers.get(&peer.number).filter(|other| **other != key) {
                Some(other) => Err(format!("its number {} is that of {other}", peer.number)),
                None => Ok(peer),
            }
        });
        match read {
            Ok(peer) => {
                self.forget(&key);
                self.numbers.insert(peer.number, key);
                // What stays the same is shared, and costs nothing.
                let same = self.in_force.get(&key).filter(|known| ***known == peer);
                let peer = same.map_or_else(|| Arc::new(peer), Arc::clone);
                self.known.insert(key, (kv.created, peer));
            }
            Err(why) => {
                self.refused.insert(key.to_hex(), format!("{key}: {why}"));
                // In force as it was; after a list it has to be taken from there.
                if let Some(peer) = self.in_force.get(&key).filter(|_| !self.known.contains_key(&key))
                    && !self.numbers.contains_key(&peer.number)
                {
                    self.numbers.insert(peer.number, key);
                    self.known.insert(key, (kv.created, Arc::clone(peer)));
                }
            }
        }
    }

    fn delete(&mut self, key: &[u8]) {
        match self.keys.read(key) {
            Key::Config => self.config = None,
            Key::Next => self.next = layout::Next::default(),
            Key::Member(number) => drop(self.members.remove(&number)),
            Key::Gateway(number) => drop(self.gateways.remove(&number)),
            Key::Peer(key) => self.forget(&key),
            Key::NoPeer(name) => drop(self.refused.remove(&name)),
            Key::Confirmed | Key::Applied(_) | Key::Unknown => {}
        }
    }

    fn forget(&mut self, key: &PublicKey) {
        self.refused.remove(&key.to_hex());
        if let Some((_, peer)) = self.known.remove(key) {
            self.numbers.remove(&peer.number);
        }
    }

    /// Has the peers in force follow the mirror, unless it takes a person to confirm that.
    fn follow(&mut self) -> (Peers, Difference) {
        let wanted: Peers = self.known.iter().map(|(key, (_, peer))| (*key, Arc::clone(peer))).collect();
        let difference = Difference::between(&self.in_force, &wanted);
        let gone = difference.gone.len();
        let count = self.known.len() + self.refused.keys().filter(|name| !self.is_known(name)).count();
        // Numbers are never given again: a `next` that is below one of them is an old one that somebody has put back.
        let is_current = self.in_force.values().all(|peer| peer.number < self.next.number);
        let is_said = is_current && self.next.peers == count as u64 && !self.next.edit.is_empty();
        let found = self.hold.as_ref().map_or(self.revision, |hold| hold.revision);
        if gone * 2 > self.in_force.len() && !is_said && self.confirmed < found {
            self.hold = Some(Hold { peers: self.in_force.len(), gone, revision: found });
            return (self.in_force.clone(), Difference::default());
        }
        self.hold = None;
        let before = std::mem::replace(&mut self.in_force, wanted);
        (before, difference)
    }

    fn is_known(&self, name: &str) -> bool {
        PublicKey::from_hex(name.as_bytes()).is_some_and(|key| self.known.contains_key(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::tests::{keys, seal, text, wg0};
    use crate::peers::{Sections, sections};
    use crate::store::{Operation, model};
    use linerate_control::document::Document;
    use proptest::prelude::*;
    use serde::Serialize;

    fn view() -> View {
        View::new(keys(), seal(), wg0(), Peers::new())
    }

    fn key(byte: u8) -> PublicKey {
        PublicKey([byte; 32])
    }

    fn kv(key: String, value: Vec<u8>, revision: i64) -> KeyValue {
        model::key_value(Operation::Put(key, value), revision)
    }

    fn put(key: String, value: &impl Serialize, revision: i64) -> KeyValue {
        model::key_value(layout::put(&seal(), key, value), revision)
    }

    fn peer(byte: u8, number: u32, revision: i64) -> KeyValue {
        let all: Sections = sections(&Document::parse(text(byte, "").as_bytes()), &wg0()).unwrap();
        model::key_value(all[&key(byte)].put(&key(byte), number, &keys(), &seal()).unwrap(), revision)
    }

    fn next(peers: u64, revision: i64) -> KeyValue {
        let edit = revision.to_string();
        put(keys().next(), &layout::Next { number: 99, peers, edit }, revision)
    }

    fn batch(revision: i64, changes: Vec<Change>) -> Batch {
        Batch { revision, changes }
    }

    fn gone(byte: u8) -> Change {
        Change::Deleted(keys().peer(&key(byte)).into_bytes())
    }

    fn in_force(view: &View) -> Vec<u8> {
        view.peers().keys().map(|key| key.0[0]).collect()
    }

    fn four() -> View {
        let mut view = view();
        let mut all: Vec<KeyValue> = (1..5).map(|byte| peer(byte, byte.into(), 2)).collect();
        all.push(next(4, 2));
        let (_, difference) = view.list(2, all);
        assert_eq!((difference.put.len(), difference.gone.len()), (4, 0));
        view
    }

    #[test]
    fn a_bad_peer_is_refused_by_name_and_the_rest_goes_on() {
        let mut view = four();
        let bad = kv(keys().peer(&key(9)), b"{}".to_vec(), 3);
        let odd = kv(format!("{}zz", keys().peers()), Vec::new(), 3);
        let twice = peer(8, 1, 3);
        let changes = [bad, odd, twice, peer(7, 7, 3)].map(Change::Put).to_vec();
        let (_, difference) = view.change(batch(3, changes));
        assert_eq!(difference.put, [key(7)]);
        let refused = view.refused();
        assert_eq!(refused.len(), 3);
        assert!(refused[&key(9).to_hex()].contains(&key(9).to_string()));
        assert!(refused[&key(8).to_hex()].contains("its number 1 is that of"));
        assert!(refused.contains_key("zz"));
        view.change(batch(4, vec![gone(9), Change::Deleted(format!("{}zz", keys().peers()).into_bytes())]));
        assert_eq!(view.refused().len(), 1);
    }

    #[test]
    fn a_peer_that_becomes_bad_stays_in_force_as_it_was_also_after_a_list() {
        let mut view = four();
        let bad = kv(keys().peer(&key(1)), b"{}".to_vec(), 2);
        view.change(batch(3, vec![Change::Put(bad.clone())]));
        assert_eq!((in_force(&view), view.refused().len()), (vec![1, 2, 3, 4], 1));
        view.list(4, vec![bad, peer(2, 2, 2), peer(3, 3, 2), peer(4, 4, 2), next(4, 2)]);
        assert_eq!((in_force(&view), view.refused().len()), (vec![1, 2, 3, 4], 1));
        view.change(batch(5, vec![Change::Put(peer(1, 1, 2))]));
        assert_eq!((in_force(&view), view.refused().len()), (vec![1, 2, 3, 4], 0));
        view.change(batch(6, vec![gone(1)]));
        assert_eq!(in_force(&view), [2, 3, 4]);
    }

    #[test]
    fn an_empty_list_is_not_an_order_until_it_is_confirmed() {
        let mut view = four();
        view.list(5, Vec::new());
        assert_eq!(in_force(&view), [1, 2, 3, 4]);
        assert_eq!(view.hold(), Some(&Hold { peers: 4, gone: 4, revision: 5 }));
        let confirmed = |revision| Change::Put(put(keys().confirmed(), &layout::Confirmed { revision }, revision));
        view.change(batch(6, vec![confirmed(4)]));
        assert!(view.hold().is_some(), "what was confirmed before does not count");
        view.change(batch(7, vec![confirmed(6)]));
        assert_eq!((in_force(&view), view.hold()), (vec![], None));
    }

    #[test]
    fn peers_that_come_back_end_the_hold() {
        let mut view = four();
        view.change(batch(3, vec![gone(1), gone(2), gone(3)]));
        assert_eq!(in_force(&view), [1, 2, 3, 4]);
        assert!(view.hold().is_some());
        view.change(batch(4, vec![Change::Put(peer(1, 1, 4)), Change::Put(peer(2, 2, 4))]));
        assert_eq!((in_force(&view), view.hold()), (vec![1, 2, 4], None));
    }

    #[test]
    fn an_edit_may_remove_all_peers_and_half_of_them_may_vanish() {
        let mut view = four();
        view.change(batch(3, vec![gone(1), gone(2)]));
        assert_eq!(in_force(&view), [3, 4]);
        view.change(batch(4, vec![gone(3), gone(4), Change::Put(next(0, 4))]));
        assert_eq!((in_force(&view), view.hold()), (vec![], None));
    }

    #[test]
    fn a_next_of_long_ago_says_nothing_of_the_peers() {
        let old =
            |peers| put(keys().next(), &layout::Next { number: 4, peers, edit: "when there was one".to_owned() }, 2);
        let mut view = four();
        view.change(batch(3, vec![gone(2), gone(3), gone(4), Change::Put(old(1))]));
        assert_eq!((in_force(&view), view.hold().is_some()), (vec![1, 2, 3, 4], true));
    }

    #[test]
    fn members_that_cannot_be_read_are_none() {
        let mut view = view();
        let member = |number, mesh_key: String| {
            let mesh_endpoint = "192.0.2.1:51821".parse().unwrap();
            let member = layout::Member { name: "a".to_owned(), mesh_key, mesh_endpoint, draining: true };
            put(keys().member(number), &member, 1)
        };
        let gateway = layout::Gateway { version: "1".to_owned(), capacity: 7 };
        let moved = KeyValue { key: keys().member(3).into_bytes(), ..member(0, key(5).to_string()) };
        view.list(
            1,
            vec![
                member(0, key(5).to_string()),
                member(1, "x".to_owned()),
                kv(keys().member(2), b"x".to_vec(), 1),
                moved,
                put(keys().gateway(0), &gateway, 1),
            ],
        );
        let members = view.members();
        assert_eq!(members.keys().collect::<Vec<_>>(), [&0]);
        assert!(members[&0].is_draining && members[&0].has_lease && members[&0].capacity == 7);
        view.change(batch(2, vec![Change::Deleted(keys().gateway(0).into_bytes())]));
        assert!(!view.members()[&0].has_lease);
    }

    proptest! {
        #[test]
        fn a_watch_leads_to_what_a_list_would(steps in prop::collection::vec((1u8..7, any::<bool>()), 0..20)) {
            let (mut watched, mut keys_of_store) = (view(), BTreeMap::new());
            for (revision, (byte, is_put)) in (1..).zip(&steps) {
                let change = if *is_put {
                    let created = keys_of_store.get(byte).map_or(revision, |kv: &KeyValue| kv.created);
                    let kv = KeyValue { created, ..peer(*byte, (*byte).into(), revision) };
                    keys_of_store.insert(*byte, kv.clone());
                    Change::Put(kv)
                } else {
                    keys_of_store.remove(byte);
                    gone(*byte)
                };
                let said = Change::Put(next(keys_of_store.len() as u64, revision));
                watched.change(batch(revision, vec![change, said]));
            }
            let mut listed = view();
            listed.list(99, keys_of_store.into_values().collect());
            prop_assert!(watched.peers() == listed.peers());
        }
    }
}
