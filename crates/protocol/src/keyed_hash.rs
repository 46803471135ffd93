//! The keyed hash of addresses for tables of fixed size (`source_bloom`, `ratelimit`).

use core::net::IpAddr;

use crate::{Entropy, draw};

/// Secret, so that an outsider cannot choose addresses that collide.
#[derive(Clone, Copy, Default)]
pub(crate) struct HashKey(pub(crate) [u64; 2]);

impl HashKey {
    pub(crate) fn draw(rng: &mut dyn Entropy) -> Self {
        Self([u64::from_le_bytes(draw(rng)), u64::from_le_bytes(draw(rng))])
    }

    /// The 32-bit hash of a [`source_prefix`].
    pub(crate) fn hash(&self, v6: bool, address: u64) -> usize {
        // Multiply-mix with secret constants: cheap, and unpredictable enough to an outsider who never sees a result.
        let mixed = u128::from(address ^ self.0[0]) * u128::from(self.0[1] | 1) + u128::from(v6);
        (((mixed ^ mixed >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}

/// The prefix that counts as one source: an IPv4 address or an IPv6 /64. Returns whether it is IPv6, and its bits.
pub(crate) fn source_prefix(address: IpAddr) -> (bool, u64) {
    match address {
        IpAddr::V4(ip) => (false, u64::from(ip.to_bits())),
        IpAddr::V6(ip) => (true, (ip.to_bits() >> 64) as u64),
    }
}
