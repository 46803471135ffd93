//! Edits of peers as transactions: what an administrator has changed in the tunnel's file of one gateway, for all of them.
//! Pure, but for the edit's name.
//!
//! A large edit is several transactions, as etcd takes 128 operations in one. Each is done only if the one before it was the last
//! edit of all, and leaves a valid set of peers: each peer is as it was or as it shall be, and the count and the next number are
//! right. Peers are removed first, then changed, then added, as an address may be used again. Two peers that exchange addresses
//! in one edit both have the same one between two transactions.

use std::collections::BTreeMap;

use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;

use crate::peers::{Difference, Sections, check};
use crate::seal::Seal;
use crate::store::layout::{self, Keys, NUMBERS, Next};
use crate::store::{Compare, KeyValue, OPERATIONS_MAX, Operation, Outcome, Transaction};

/// The most bytes of a transaction's keys and values: etcd takes requests of 1.5 MiB (`--max-request-bytes`).
const BYTES_MAX: usize = 1 << 20;

/// A random name of an edit, by which it is found out whether one without an answer was done.
///
/// # Errors
/// The system has no random numbers.
pub fn name() -> Result<String, String> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system has no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What there is to be known for an edit.
pub struct Edit<'a> {
    /// The keys of the fleet.
    pub keys: &'a Keys,
    /// The seal of the fleet.
    pub seal: &'a Seal,
    /// The tunnel's interface.
    pub interface: &'a InterfaceName,
    /// The edit's name.
    pub name: &'a str,
}

/// A transaction of an edit.
pub struct Part {
    changes: Vec<Change>,
    /// What `next` has after it.
    next: Next,
}

/// One operation of an edit.
struct Change {
    kind: Kind,
    peer: PublicKey,
    operation: Operation,
    /// What `next` has to say afterwards: the next number, and how many peers there are.
    number: u32,
    peers: u64,
}

/// What is done to a peer, in the order in which it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Remove,
    Change,
    Add,
}

impl Edit<'_> {
    /// The transactions from one set of peers to another, if `next` is as it was when the store had the first.
    ///
    /// # Errors
    /// A peer cannot be in a fleet.
    pub fn parts(
        &self,
        (from, to): (&Sections, &Sections),
        next: &KeyValue,
        number_of: impl Fn(&PublicKey) -> Option<u32>,
    ) -> Result<Vec<Part>, String> {
        self.parts_of((from, to), next, number_of, OPERATIONS_MAX)
    }

    fn parts_of(
        &self,
        (from, to): (&Sections, &Sections),
        next: &KeyValue,
        number_of: impl Fn(&PublicKey) -> Option<u32>,
        operations_max: usize,
    ) -> Result<Vec<Part>, String> {
        let changes = self.changes((from, to), next, number_of)?;
        let mut parts: Vec<Part> = Vec::new();
        let mut bytes = 0;
        for change in changes {
            let more = length(&change.operation);
            // One operation is on `next`.
            let is_full = |part: &Part| part.changes.len() + 1 >= operations_max || bytes + more > BYTES_MAX;
            if parts.last().is_none_or(is_full) {
                parts.push(Part { changes: Vec::new(), next: Next::default() });
                bytes = 0;
            }
            bytes += more;
            let count = parts.len();
            if let Some(part) = parts.last_mut() {
                let edit = format!("{}.{count}", self.name);
                part.next = Next { number: change.number, peers: change.peers, edit };
                part.changes.push(change);
            }
        }
        Ok(parts)
    }

    fn changes(
        &self,
        (from, to): (&Sections, &Sections),
        next: &KeyValue,
        number_of: impl Fn(&PublicKey) -> Option<u32>,
    ) -> Result<Vec<Change>, String> {
        let Difference { put, gone } = Difference::between(from, to);
        let Next { mut number, mut peers, .. } =
            layout::read(self.seal, next).map_err(|why| format!("the fleet's `next': {why}"))?;
        let kind_of_put = |key: &PublicKey| if from.contains_key(key) { Kind::Change } else { Kind::Add };
        let mut order: Vec<(Kind, PublicKey)> = gone.iter().map(|key| (Kind::Remove, *key)).collect();
        order.extend(put.iter().map(|key| (kind_of_put(key), *key)));
        order.sort_unstable();
        let mut changes = Vec::with_capacity(order.len());
        for (kind, peer) in order {
            let operation = match kind {
                Kind::Remove => Operation::Delete(self.keys.peer(&peer)),
                Kind::Change | Kind::Add => {
                    let section = &to[&peer];
                    check(&peer, section, self.interface)?;
                    let known = number_of(&peer).filter(|_| kind == Kind::Change);
                    let own = known.unwrap_or(number);
                    number += u32::from(known.is_none());
                    if own >= NUMBERS {
                        return Err(format!(
                            "the fleet has used all of its {NUMBERS} peer numbers: docs/fleet.md says how to begin anew"
                        ));
                    }
                    section.put(&peer, own, self.keys, self.seal)?
                }
            };
            peers = match kind {
                Kind::Remove => peers.saturating_sub(1),
                Kind::Change => peers,
                Kind::Add => peers + 1,
            };
            changes.push(Change { kind, peer, operation, number, peers });
        }
        Ok(changes)
    }
}

/// Bytes of an operation's key and value.
fn length(operation: &Operation) -> usize {
    match operation {
        Operation::Put(key, value) | Operation::PutLeased(key, value, _) => key.len() + value.len(),
        Operation::Delete(key) | Operation::DeleteAll(key) => key.len(),
    }
}

/// How far an edit has come.
pub struct Progress<'a> {
    keys: &'a Keys,
    seal: Seal,
    parts: Vec<Part>,
    done: usize,
    modified: i64,
}

impl<'a> Progress<'a> {
    /// The parts of an edit, none of which is done; the first is if `next` is still as it is here.
    pub fn new(keys: &'a Keys, seal: &Seal, parts: Vec<Part>, next: &KeyValue) -> Self {
        Self { keys, seal: seal.clone(), parts, done: 0, modified: next.modified }
    }

    /// What is to be done next; none if all is done.
    pub fn transaction(&self) -> Option<Transaction> {
        let part = self.parts.get(self.done)?;
        let mut operations: Vec<Operation> = part.changes.iter().map(|change| change.operation.clone()).collect();
        operations.push(layout::put(&self.seal, self.keys.next(), &part.next));
        Some(Transaction { compares: vec![Compare::Unchanged(self.keys.next(), self.modified)], operations })
    }

    /// Takes what became of it. False if somebody else has changed peers.
    pub fn takes(&mut self, outcome: &Outcome) -> bool {
        if outcome.is_done {
            (self.modified, self.done) = (outcome.revision, self.done + 1);
        }
        // It was done when it was sent to another member of the store that did not answer.
        outcome.is_done || outcome.found.iter().any(|kv| self.takes_found(kv))
    }

    /// Takes `next` as it was found after no answer came. False if the transaction was not done.
    pub fn takes_found(&mut self, next: &KeyValue) -> bool {
        let Some(part) = self.parts.get(self.done) else { return false };
        let is_mine = layout::read::<Next>(&self.seal, next).is_ok_and(|value| value.edit == part.next.edit);
        if is_mine {
            (self.modified, self.done) = (next.modified, self.done + 1);
        }
        is_mine
    }

    /// The revision of the last part that is done.
    pub fn revision(&self) -> i64 {
        self.modified
    }

    /// Whether a part is done.
    pub fn has_begun(&self) -> bool {
        self.done > 0
    }

    /// What is in the store and what is not, for people.
    pub fn told(&self) -> String {
        let (done, rest) = self.parts.split_at(self.done);
        let sum =
            |parts: &[Part], kind| parts.iter().flat_map(|part| &part.changes).filter(|one| one.kind == kind).count();
        let of = |parts: &[Part]| [Kind::Remove, Kind::Change, Kind::Add].map(|kind| sum(parts, kind));
        let ([removed, changed, added], [remove, change, add]) = (of(done), of(rest));
        let count = |parts: &[Part]| parts.iter().map(|part| part.changes.len()).sum::<usize>();
        let first = rest.iter().flat_map(|part| &part.changes).next();
        let first = first.map_or_else(String::new, |change| format!(", the first is {}", change.peer));
        format!(
            "{} of {} changes of peers are done for the whole fleet (removed {removed}, changed {changed}, added {added}); still \
             to remove {remove}, to change {change}, to add {add}{first}",
            count(done),
            count(&self.parts),
        )
    }
}

/// The first peers of a fleet, numbered in the order of their keys, as transactions without `next`.
///
/// # Errors
/// A peer cannot be in a fleet.
pub fn first(
    peers: &Sections,
    keys: &Keys,
    seal: &Seal,
    interface: &InterfaceName,
) -> Result<(Vec<Transaction>, BTreeMap<String, u32>), String> {
    let mut numbers = BTreeMap::new();
    let mut operations = vec![Operation::DeleteAll(keys.peers())];
    let (mut transactions, mut bytes) = (Vec::new(), 0);
    for (number, (key, section)) in (0..).zip(peers) {
        if number >= NUMBERS {
            return Err(format!("a fleet has at most {NUMBERS} peers"));
        }
        check(key, section, interface)?;
        let put = section.put(key, number, keys, seal)?;
        let is_full = operations.len() == OPERATIONS_MAX || bytes + length(&put) > BYTES_MAX;
        // A key is in a transaction once, and what is removed first is no peer's.
        if is_full || operations.iter().any(|one| matches!(one, Operation::DeleteAll(_))) {
            transactions.push(of_no_fleet(keys, std::mem::take(&mut operations)));
            bytes = 0;
        }
        bytes += length(&put);
        operations.push(put);
        numbers.insert(key.to_hex(), number);
    }
    transactions.push(of_no_fleet(keys, operations));
    Ok((transactions, numbers))
}

fn of_no_fleet(keys: &Keys, operations: Vec<Operation>) -> Transaction {
    Transaction { compares: vec![Compare::Absent(keys.config())], operations }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::tests::{keys, seal, text, wg0};
    use crate::peers::{self, sections};
    use crate::store::model::Model;
    use linerate_control::document::Document;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(peers: &[u8]) -> Sections {
        let text: String = peers.iter().map(|byte| format!("{}\n\n", text(*byte, ""))).collect();
        sections(&Document::parse(text.as_bytes()), &wg0()).unwrap()
    }

    fn store(peers: &Sections) -> Model {
        let mut store = Model::default();
        let (transactions, numbers) = first(peers, &keys(), &seal(), &wg0()).unwrap();
        for transaction in &transactions {
            assert!(transaction.operations.len() <= OPERATIONS_MAX && store.transact(transaction).is_done);
        }
        let next = Next { number: numbers.len() as u32, peers: peers.len() as u64, edit: "init".to_owned() };
        let puts = vec![layout::put(&seal(), keys().next(), &next), Operation::Put(keys().config(), Vec::new())];
        assert!(store.transact(&Transaction { compares: Vec::new(), operations: puts }).is_done);
        store
    }

    fn stored(store: &Model) -> BTreeMap<PublicKey, peers::Peer> {
        let read = |kv: KeyValue| match keys().read(&kv.key) {
            layout::Key::Peer(key) => (key, peers::read(&key, &kv, &seal(), &wg0()).unwrap()),
            other => panic!("{other:?}"),
        };
        store.list(&keys().peers()).into_iter().map(read).collect()
    }

    /// The edit in parts of so many operations.
    fn edit<'a>(
        store: &Model,
        keys: &'a Keys,
        name: &str,
        (from, to): (&Sections, &Sections),
        most: usize,
    ) -> Progress<'a> {
        let (seal, interface) = (seal(), wg0());
        let edit = Edit { keys, seal: &seal, interface: &interface, name };
        let numbers = stored(store);
        let next = store.keys[&keys.next()].clone();
        let parts = edit.parts_of((from, to), &next, |key| Some(numbers.get(key)?.number), most).unwrap();
        Progress::new(keys, &seal, parts, &next)
    }

    fn small<'a>(store: &Model, keys: &'a Keys, name: &str, from: &[u8], to: &[u8]) -> Progress<'a> {
        edit(store, keys, name, (&of(from), &of(to)), OPERATIONS_MAX)
    }

    fn next(store: &Model) -> Next {
        layout::read(&seal(), &store.keys[&keys().next()]).unwrap()
    }

    fn sections_of(store: &Model) -> Sections {
        stored(store).into_iter().map(|(key, peer)| (key, peer.section)).collect()
    }

    #[test]
    fn of_two_edits_at_once_one_is_done_and_the_other_is_told() {
        let (mut store, keys) = (store(&of(&[1, 2])), keys());
        let mut one = small(&store, &keys, "one", &[1, 2], &[1, 2, 3]);
        let mut other = small(&store, &keys, "other", &[1, 2], &[2, 4]);
        let sent = one.transaction().unwrap();
        assert!(store.transact(&sent).is_done);
        let outcome = store.transact(&other.transaction().unwrap());
        assert!(!outcome.is_done && !other.takes(&outcome) && !other.has_begun());
        // What was sent twice and done the first time is done.
        let again = store.transact(&sent);
        assert!(!again.is_done && one.takes(&again) && one.transaction().is_none());
        assert_eq!(one.revision(), store.revision);
        let mut other = small(&store, &keys, "other", &[1, 2, 3], &[2, 3, 4]);
        assert!(other.takes(&store.transact(&other.transaction().unwrap())));
        let numbers: Vec<(u8, u32)> = stored(&store).iter().map(|(key, peer)| (key.0[0], peer.number)).collect();
        assert_eq!(numbers, [(2, 1), (3, 2), (4, 3)]);
    }

    #[test]
    fn a_large_edit_takes_no_more_operations_at_a_time_than_the_store_does() {
        let (mut store, keys) = (store(&of(&[])), keys());
        let many: Vec<u8> = (1..=255).collect();
        let mut progress = small(&store, &keys, "x", &[], &many);
        let mut sizes = Vec::new();
        while let Some(transaction) = progress.transaction() {
            sizes.push(transaction.operations.len());
            assert!(progress.takes(&store.transact(&transaction)));
        }
        assert_eq!(sizes, [128, 128, 2]);
        assert_eq!((stored(&store).len(), next(&store).peers), (255, 255));
    }

    #[test]
    fn long_peers_are_fewer_at_a_time() {
        let (mut store, keys) = (store(&of(&[])), keys());
        let note = format!("# {}\n", "x ".repeat(14_000));
        let text: String = (1..=100).map(|byte| format!("{}\n", text(byte, &note))).collect();
        let many = sections(&Document::parse(text.as_bytes()), &wg0()).unwrap();
        let mut progress = edit(&store, &keys, "x", (&Sections::new(), &many), OPERATIONS_MAX);
        let mut times = 0;
        while let Some(transaction) = progress.transaction() {
            assert!(transaction.operations.iter().map(length).sum::<usize>() <= BYTES_MAX + 200);
            assert!(progress.takes(&store.transact(&transaction)));
            times += 1;
        }
        assert!(times >= 3 && stored(&store).len() == 100);
    }

    #[test]
    fn what_is_done_and_what_is_not_is_told() {
        let (mut store, keys) = (store(&of(&[1, 2, 3])), keys());
        let mut progress = edit(&store, &keys, "x", (&of(&[1, 2, 3]), &of(&[3, 4, 5])), 4);
        assert!(progress.takes(&store.transact(&progress.transaction().unwrap())));
        let told = progress.told();
        assert!(
            told.contains("3 of 4 changes of peers are done for the whole fleet (removed 2, changed 0, added 1)"),
            "{told}"
        );
        assert!(told.contains("still to remove 0, to change 0, to add 1, the first is"), "{told}");
        assert!(told.contains(&PublicKey([5; 32]).to_string()), "{told}");
    }

    #[test]
    fn the_first_peers_take_several_transactions_and_end_if_somebody_else_makes_the_fleet() {
        let many: Vec<u8> = (1..=255).collect();
        let (transactions, numbers) = first(&of(&many), &keys(), &seal(), &wg0()).unwrap();
        assert_eq!((transactions.len(), numbers.len()), (3, 255));
        let mut store = store(&of(&many));
        assert_eq!(stored(&store).len(), 255);
        assert!(!store.transact(&transactions[0]).is_done);
    }

    proptest! {
        #[test]
        fn numbers_stay_with_their_peers_and_are_never_given_again(
            steps in prop::collection::vec(prop::collection::btree_set(1u8..9, 0..8), 1..8)
        ) {
            let mut store = store(&of(&[1, 2]));
            let (mut from, mut given) = (vec![1u8, 2], BTreeMap::new());
            for (index, to) in steps.iter().enumerate() {
                let before = stored(&store);
                let to: Vec<u8> = to.iter().copied().collect();
                let (keys, mut operations) = (keys(), 0);
                let mut progress = small(&store, &keys, &index.to_string(), &from, &to);
                while let Some(transaction) = progress.transaction() {
                    operations += transaction.operations.len();
                    prop_assert!(progress.takes(&store.transact(&transaction)));
                }
                prop_assert_eq!(operations == 0, from == to);
                let after = stored(&store);
                prop_assert_eq!(after.keys().map(|key| key.0[0]).collect::<Vec<_>>(), to.clone());
                for (key, peer) in &after {
                    match before.get(key) {
                        Some(known) => prop_assert_eq!(known.number, peer.number),
                        None => prop_assert!(given.insert(peer.number, *key).is_none()),
                    }
                }
                prop_assert_eq!(next(&store).peers, after.len() as u64);
                from = to;
            }
        }

        #[test]
        fn an_edit_that_ends_anywhere_leaves_valid_peers_and_the_rest_can_be_done_later(
            from in peers(), to in peers(), most in 2usize..5, ends_after in 0usize..8, ends in 0u8..3,
        ) {
            let (from, to) = (with_addresses(&from), with_addresses(&to));
            let (mut store, keys) = (store(&from), keys());
            let before = stored(&store);
            let mut progress = edit(&store, &keys, "first", (&from, &to), most);
            for _ in 0..ends_after {
                let Some(transaction) = progress.transaction() else { break };
                prop_assert!(transaction.operations.len() <= most);
                prop_assert!(progress.takes(&store.transact(&transaction)));
                let now = stored(&store);
                prop_assert_eq!(next(&store).peers, now.len() as u64);
                for (key, peer) in &now {
                    prop_assert!(from.get(key) == Some(&peer.section) || to.get(key) == Some(&peer.section));
                    prop_assert!(before.get(key).is_none_or(|known| known.number == peer.number));
                    prop_assert!(peer.number < next(&store).number);
                }
                // Who keeps what he has shares it with nobody: an address is free before it is given.
                let changes = from.iter().filter(|(key, section)| to.get(key).is_some_and(|other| other != *section)).count();
                let addresses: BTreeSet<String> = now.values().map(|peer| format!("{:?}", peer.contents.allowed_ips)).collect();
                prop_assert!(changes > 0 || addresses.len() == now.len());
            }
            // It ends by a crash, by an answer that was lost, or because somebody else was faster.
            let done = progress.transaction().is_none();
            if let Some(transaction) = progress.transaction() {
                match ends {
                    0 => {}
                    1 => {
                        prop_assert!(store.transact(&transaction).is_done);
                        let found = store.keys[&keys.next()].clone();
                        prop_assert!(progress.takes_found(&found) && progress.revision() == store.revision);
                    }
                    _ => {
                        let now = sections_of(&store);
                        let mut others = now.clone();
                        let of_another = sections(&Document::parse(text(99, "").as_bytes()), &wg0()).unwrap();
                        others.extend(of_another);
                        let mut other = edit(&store, &keys, "other", (&now, &others), OPERATIONS_MAX);
                        prop_assert!(other.takes(&store.transact(&other.transaction().unwrap())));
                        let was = store.revision;
                        prop_assert!(!progress.takes(&store.transact(&transaction)) && store.revision == was);
                        let found = store.keys[&keys.next()].clone();
                        prop_assert!(!progress.takes_found(&found));
                    }
                }
            }
            prop_assert!(!done || sections_of(&store) == to);
            let now = sections_of(&store);
            let mut rest = edit(&store, &keys, "rest", (&now, &to), most);
            while let Some(transaction) = rest.transaction() {
                prop_assert!(rest.takes(&store.transact(&transaction)));
            }
            prop_assert!(sections_of(&store) == to);
            let numbers: BTreeSet<u32> = stored(&store).values().map(|peer| peer.number).collect();
            prop_assert_eq!(numbers.len(), to.len());
        }
    }

    /// Peers by their keys, each with an address of which the others have none.
    fn peers() -> impl Strategy<Value = Vec<(u8, u8)>> {
        let keys = prop::collection::btree_set(1u8..12, 0..9);
        (keys, Just((100u8..120).collect::<Vec<u8>>()).prop_shuffle(), 0u8..3).prop_map(|(keys, addresses, kept)| {
            // Some have the same address before and after.
            keys.into_iter()
                .zip(addresses)
                .map(|(key, other)| (key, if key % 3 < kept { key } else { other }))
                .collect()
        })
    }

    fn with_addresses(peers: &[(u8, u8)]) -> Sections {
        let peer = |(key, address): &(u8, u8)| {
            text(*key, "").replace(&format!("10.9.0.{key}/32"), &format!("10.9.0.{address}/32")) + "\n"
        };
        let text: String = peers.iter().map(peer).collect();
        sections(&Document::parse(text.as_bytes()), &wg0()).unwrap()
    }
}
