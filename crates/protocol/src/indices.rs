//! The 32-bit numbers by which peers address our handshakes and sessions (paper section 5.4.2).
//!
//! Random, so that they tell nothing; unique, so that they tell enough. A number is handed on from
//! a handshake to the session that it makes.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::handshake_filter::HandshakeFilter;
use crate::{Entropy, PeerId, draw};

/// Which peer each live index belongs to.
#[derive(Default)]
pub(crate) struct Indices {
    filter: Arc<HandshakeFilter>,
    owners: BTreeMap<u32, PeerId>,
}

impl Indices {
    /// No indices yet; `filter` is told of each.
    pub(crate) fn with_filter(filter: Arc<HandshakeFilter>) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Takes an unused index for `peer`.
    pub(crate) fn take(&mut self, rng: &mut dyn Entropy, peer: PeerId) -> u32 {
        // A peer has at most four live indices, so that the 2^20 peers of a full device leave
        // nearly all numbers free and the loop ends at once.
        loop {
            let index = u32::from_le_bytes(draw(rng));
            if let alloc::collections::btree_map::Entry::Vacant(place) = self.owners.entry(index) {
                place.insert(peer);
                self.filter.add_index(index);
                return index;
            }
        }
    }

    /// Gives an index back.
    pub(crate) fn release(&mut self, index: u32) {
        if self.owners.remove(&index).is_some() {
            self.filter.remove_index(index);
        }
    }

    /// The peer that an index belongs to.
    pub(crate) fn owner(&self, index: u32) -> Option<PeerId> {
        self.owners.get(&index).copied()
    }
}
