//! The random generator of the unit tests (SplitMix64).

use crate::Entropy;

#[derive(Default)]
pub(crate) struct TestRng {
    state: u64,
    /// Bytes drawn so far.
    pub(crate) drawn: usize,
}

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, drawn: 0 }
    }
}

impl Entropy for TestRng {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.drawn += bytes.len();
        for chunk in bytes.chunks_mut(8) {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ z >> 31).to_le_bytes()[..chunk.len()]);
        }
    }
}
