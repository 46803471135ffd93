//! A key that the slow path changes while data-path threads read it.

use core::sync::atomic::{AtomicU64, Ordering};

use zeroize::Zeroizing;

use crate::messages::field;

/// 32 bytes, wiped on drop. A load that races a store may return a mixture of two keys; at worst, one message is
/// misclassified.
#[derive(Default)]
pub(crate) struct AtomicKey([AtomicU64; 4]);

impl AtomicKey {
    pub(crate) fn load(&self) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        for (bytes, word) in key.chunks_exact_mut(8).zip(&self.0) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        key
    }

    pub(crate) fn store(&self, key: &[u8; 32]) {
        for (word, bytes) in self.0.iter().zip(key.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(field(bytes, 0)), Ordering::Relaxed);
        }
    }
}

impl Drop for AtomicKey {
    fn drop(&mut self) {
        self.store(&[0; 32]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_returns_the_key_stored_last() {
        let key = AtomicKey::default();
        assert_eq!(*key.load(), [0; 32]);
        for first in [1, 100] {
            let bytes = core::array::from_fn(|i| first + i as u8);
            key.store(&bytes);
            assert_eq!(*key.load(), bytes);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn dropping_a_key_wipes_its_memory() {
        extern crate std;
        use alloc::boxed::Box;
        use std::os::unix::fs::FileExt;

        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let bytes: [u8; 32] = core::array::from_fn(|i| 100 + i as u8);
        // In the middle of an allocation: the allocator may overwrite its ends after it is freed.
        let key = Box::new(([0u8; 64], AtomicKey::default(), [0u8; 64]));
        key.1.store(&bytes);
        let addr = (&raw const key.1).addr() as u64;
        let words_left = || {
            let mut there = [0; 32];
            memory.read_exact_at(&mut there, addr).unwrap();
            there.chunks_exact(8).filter(|word| bytes.chunks_exact(8).any(|part| part == *word)).count()
        };
        assert_eq!(words_left(), 4, "the key is there");
        drop(key);
        assert_eq!(words_left(), 0);
    }
}
