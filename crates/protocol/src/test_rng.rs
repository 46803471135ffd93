//! The random generator of the unit tests: the same numbers in every run of a seed.

use crate::Entropy;

pub(crate) struct TestRng {
    rng: fastrand::Rng,
    /// Bytes drawn so far.
    pub(crate) drawn: usize,
}

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), drawn: 0 }
    }
}

impl Default for TestRng {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Entropy for TestRng {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.drawn += bytes.len();
        self.rng.fill(bytes);
    }
}
