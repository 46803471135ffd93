//! Random numbers that are the same in every run of a seed.

pub struct Rng(fastrand::Rng);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())]
    }

    pub fn key(&mut self) -> [u8; 32] {
        std::array::from_fn(|_| self.0.u8(..))
    }
}
