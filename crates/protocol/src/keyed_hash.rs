//! Where the tables of fixed size that count by address keep an address.

use core::net::IpAddr;

use crate::{Entropy, draw};

/// Unknown to outsiders, so that nobody can choose addresses that share a place.
#[derive(Clone, Copy, Default)]
pub(crate) struct HashKey(pub(crate) [u64; 2]);

impl HashKey {
    pub(crate) fn draw(rng: &mut dyn Entropy) -> Self {
        Self([u64::from_le_bytes(draw(rng)), u64::from_le_bytes(draw(rng))])
    }

    /// The place of a [`network`] among 2^32.
    pub(crate) fn spread(&self, v6: bool, address: u64) -> usize {
        // Multiply-mix with secret constants: cheap, and good enough to keep outsiders from
        // predicting a place.
        let mixed = u128::from(address ^ self.0[0]) * u128::from(self.0[1] | 1) + u128::from(v6);
        (((mixed ^ mixed >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}

/// What addresses are told apart by: the family, and the address or its /64.
pub(crate) fn network(address: IpAddr) -> (bool, u64) {
    match address {
        IpAddr::V4(ip) => (false, u64::from(ip.to_bits())),
        IpAddr::V6(ip) => (true, (ip.to_bits() >> 64) as u64),
    }
}
