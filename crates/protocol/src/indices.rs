//! Receiver indices: the 32-bit numbers by which peers address our handshakes and sessions (paper section
//! 5.4.2).
//!
//! They are unique, and random to everybody else; in a fleet they name gateway and peer. A session inherits the index of
//! its handshake.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::handshake_filter::HandshakeFilter;
use crate::{Entropy, PeerId, draw};

/// Which peer each live index belongs to.
#[derive(Default)]
pub(crate) struct Indices {
    filter: Arc<HandshakeFilter>,
    owners: BTreeMap<u32, PeerId>,
    #[cfg(feature = "fleet")]
    pub(crate) fleet: Option<alloc::boxed::Box<crate::fleet::Fleet>>,
}

/// Draws among the few indices that a peer has in a fleet, before one is drawn of all.
#[cfg(feature = "fleet")]
const FLEET_DRAWS: u32 = 64;

impl Indices {
    /// No indices yet; each is added to `filter`, too.
    pub(crate) fn with_filter(filter: Arc<HandshakeFilter>) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Takes an unused index for `peer`.
    pub(crate) fn take(&mut self, rng: &mut dyn Entropy, peer: PeerId) -> u32 {
        // A peer has at most four live indices, so even 2^20 peers leave nearly all numbers free: the loop
        // ends at once.
        #[cfg(feature = "fleet")]
        let mut named = self.fleet.as_ref().map_or(0, |_| FLEET_DRAWS);
        loop {
            let index = u32::from_le_bytes(draw(rng));
            #[cfg(feature = "fleet")]
            let index = match &self.fleet {
                Some(fleet) if named > 0 => {
                    named -= 1;
                    fleet.index(peer, index).unwrap_or(index)
                }
                _ => index,
            };
            if let alloc::collections::btree_map::Entry::Vacant(entry) = self.owners.entry(index) {
                entry.insert(peer);
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
