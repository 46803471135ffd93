//! Edits of peers as transactions: what an administrator has changed in the tunnel's file of one gateway, for all of them.
//! Pure, but for the edit's name.

use std::collections::BTreeMap;

use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;

use crate::peers::{Difference, Sections, check};
use crate::seal::Seal;
use crate::store::layout::{self, Keys, NUMBERS, Next};
use crate::store::{Compare, KeyValue, OPERATIONS_MAX, Operation, Outcome, Transaction};

/// The most peers that one edit changes: it is one transaction, and one of its operations is on `next`.
pub const PEERS_MAX: usize = OPERATIONS_MAX - 1;

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

impl Edit<'_> {
    /// The transaction from one set of peers to another, if `next` is still as it was when the store had the first.
    ///
    /// # Errors
    /// A peer cannot be in a fleet, or it is too much for one transaction.
    pub fn transaction(
        &self,
        (from, to): (&Sections, &Sections),
        next: &KeyValue,
        number_of: impl Fn(&PublicKey) -> Option<u32>,
    ) -> Result<Transaction, String> {
        let Difference { put, gone } = Difference::between(from, to);
        if put.len() + gone.len() > PEERS_MAX {
            return Err(format!(
                "a fleet takes changes of at most {PEERS_MAX} peers at once, and these are {}: make it several commands",
                put.len() + gone.len()
            ));
        }
        let Next { number, peers, .. } =
            layout::read(self.seal, next).map_err(|why| format!("the fleet's `next': {why}"))?;
        let mut number = number;
        let mut operations = Vec::with_capacity(put.len() + gone.len() + 1);
        let mut peers = peers.saturating_sub(gone.len() as u64);
        for key in &put {
            let section = &to[key];
            check(key, section, self.interface)?;
            let known = number_of(key).filter(|_| from.contains_key(key));
            peers += u64::from(!from.contains_key(key));
            let own = known.unwrap_or(number);
            number += u32::from(known.is_none());
            if own >= NUMBERS {
                return Err(format!(
                    "the fleet has used all of its {NUMBERS} peer numbers: docs/fleet.md says how to begin anew"
                ));
            }
            operations.push(section.put(key, own, self.keys, self.seal)?);
        }
        operations.extend(gone.iter().map(|key| Operation::Delete(self.keys.peer(key))));
        let next_is = Next { number, peers, edit: self.name.to_owned() };
        operations.push(layout::put(self.seal, self.keys.next(), &next_is));
        Ok(Transaction { compares: vec![Compare::Unchanged(self.keys.next(), next.modified)], operations })
    }

    /// Whether the transaction was done: now, or when it was sent to another member of the store that did not answer.
    pub fn is_done(&self, outcome: &Outcome) -> bool {
        outcome.is_done || outcome.found.iter().any(|kv| self.is_mine(kv))
    }

    /// Whether `next` was put by this edit.
    pub fn is_mine(&self, next: &KeyValue) -> bool {
        layout::read::<Next>(self.seal, next).is_ok_and(|value| value.edit == self.name)
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
    let mut transactions = Vec::new();
    for (number, (key, section)) in (0..).zip(peers) {
        if number >= NUMBERS {
            return Err(format!("a fleet has at most {NUMBERS} peers"));
        }
        check(key, section, interface)?;
        // A key is in a transaction once, and what is removed first is no peer's.
        if operations.len() == OPERATIONS_MAX || operations.iter().any(|one| matches!(one, Operation::DeleteAll(_))) {
            transactions.push(of_no_fleet(keys, std::mem::take(&mut operations)));
        }
        operations.push(section.put(key, number, keys, seal)?);
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

    fn edit(store: &Model, name: &str, from: &[u8], to: &[u8]) -> Transaction {
        let (keys, seal, interface) = (keys(), seal(), wg0());
        let edit = Edit { keys: &keys, seal: &seal, interface: &interface, name };
        let numbers = stored(store);
        let next = store.keys[&keys.next()].clone();
        edit.transaction((&of(from), &of(to)), &next, |key| Some(numbers.get(key)?.number)).unwrap()
    }

    #[test]
    fn of_two_edits_at_once_one_is_done_and_the_other_is_told() {
        let mut store = store(&of(&[1, 2]));
        let (one, other) = (edit(&store, "one", &[1, 2], &[1, 2, 3]), edit(&store, "other", &[1, 2], &[2, 4]));
        assert!(store.transact(&one).is_done);
        let outcome = store.transact(&other);
        let (keys, seal, interface) = (keys(), seal(), wg0());
        let named = |name| Edit { keys: &keys, seal: &seal, interface: &interface, name };
        assert!(!outcome.is_done && !named("other").is_done(&outcome));
        // What was sent twice and done the first time is done.
        let again = store.transact(&one);
        assert!(!again.is_done && named("one").is_done(&again));
        let other = edit(&store, "other", &[1, 2, 3], &[2, 3, 4]);
        assert!(store.transact(&other).is_done);
        let numbers: Vec<(u8, u32)> = stored(&store).iter().map(|(key, peer)| (key.0[0], peer.number)).collect();
        assert_eq!(numbers, [(2, 1), (3, 2), (4, 3)]);
    }

    #[test]
    fn more_peers_than_a_transaction_takes_are_refused() {
        let store = store(&of(&[]));
        let many: Vec<u8> = (1..=128).collect();
        let (keys, seal, interface) = (keys(), seal(), wg0());
        let edit = Edit { keys: &keys, seal: &seal, interface: &interface, name: "x" };
        let refused = edit.transaction((&of(&[]), &of(&many)), &store.keys[&keys.next()], |_| None);
        assert!(refused.is_err_and(|said| said.contains("at most 127")));
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
                if from != to {
                    let transaction = edit(&store, &index.to_string(), &from, &to);
                    prop_assert!(store.transact(&transaction).is_done);
                }
                let after = stored(&store);
                prop_assert_eq!(after.keys().map(|key| key.0[0]).collect::<Vec<_>>(), to.clone());
                for (key, peer) in &after {
                    match before.get(key) {
                        Some(known) => prop_assert_eq!(known.number, peer.number),
                        None => prop_assert!(given.insert(peer.number, *key).is_none()),
                    }
                }
                let next: Next = layout::read(&seal(), &store.keys[&keys().next()]).unwrap();
                prop_assert_eq!(next.peers, after.len() as u64);
                from = to;
            }
        }
    }
}
