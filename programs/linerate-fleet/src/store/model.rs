//! A store for tests: keys with revisions, and transactions as etcd does them.

use std::collections::BTreeMap;

use super::{Compare, KeyValue, Operation, Outcome, Transaction};

/// What a put makes of its key at a revision.
///
/// # Panics
/// It is no put.
pub fn key_value(put: Operation, revision: i64) -> KeyValue {
    let (Operation::Put(key, value) | Operation::PutLeased(key, value, _)) = put else { panic!("{put:?} is no put") };
    KeyValue { key: key.into_bytes(), value, created: revision, modified: revision }
}

/// A store in memory.
#[derive(Clone, Default)]
pub struct Model {
    /// Its revision.
    pub revision: i64,
    /// Its keys.
    pub keys: BTreeMap<String, KeyValue>,
}

impl Model {
    /// Does a transaction.
    pub fn transact(&mut self, transaction: &Transaction) -> Outcome {
        let holds = |compare: &Compare| match compare {
            Compare::Absent(key) => !self.keys.contains_key(key),
            Compare::Present(key) => self.keys.contains_key(key),
            Compare::Unchanged(key, revision) => self.keys.get(key).map_or(0, |kv| kv.modified) == *revision,
        };
        if !transaction.compares.iter().all(holds) {
            let key = |compare: &Compare| match compare {
                Compare::Absent(key) | Compare::Present(key) | Compare::Unchanged(key, _) => key.clone(),
            };
            let found = transaction.compares.iter().filter_map(|compare| self.keys.get(&key(compare)).cloned());
            return Outcome { is_done: false, revision: self.revision, found: found.collect() };
        }
        self.revision += 1;
        for operation in &transaction.operations {
            match operation {
                Operation::Put(key, _) | Operation::PutLeased(key, ..) => {
                    let created = self.keys.get(key).map_or(self.revision, |kv| kv.created);
                    let kv = key_value(operation.clone(), self.revision);
                    self.keys.insert(key.clone(), KeyValue { created, ..kv });
                }
                Operation::Delete(key) => drop(self.keys.remove(key)),
                Operation::DeleteAll(prefix) => self.keys.retain(|key, _| !key.starts_with(prefix.as_str())),
            }
        }
        Outcome { is_done: true, revision: self.revision, found: Vec::new() }
    }

    /// The keys that begin with `prefix`.
    pub fn list(&self, prefix: &str) -> Vec<KeyValue> {
        self.keys.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(_, kv)| kv.clone()).collect()
    }
}
