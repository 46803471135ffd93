//! A growable byte buffer for text that may contain secrets: all memory is wiped before it is freed.
//!
//! `Zeroizing<Vec<u8>>` is not enough: a `Vec` that grows frees its old allocation without wiping it.

use std::fmt;

use zeroize::Zeroize;

/// Bytes that are wiped when dropped, drained or moved to a larger allocation.
#[derive(Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty buffer that does not allocate.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// An empty buffer with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Appends `bytes`.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Removes the first `count` bytes; an empty buffer frees its memory.
    pub fn drain(&mut self, count: usize) {
        if count >= self.0.len() {
            self.0.zeroize();
            self.0 = Vec::new();
            return;
        }
        let rest = self.0.len() - count;
        self.0.copy_within(count.., 0);
        self.0[rest..].zeroize();
        self.0.truncate(rest);
    }

    fn reserve(&mut self, additional: usize) {
        let needed = self.0.len() + additional;
        if needed <= self.0.capacity() {
            return;
        }
        let mut larger = Vec::with_capacity(needed.max(2 * self.0.capacity()));
        larger.extend_from_slice(&self.0);
        self.0.zeroize();
        self.0 = larger;
    }
}

/// Takes over all of the memory, which is wiped later.
impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // In bulk: a vector wipes itself byte by byte.
        self.0.as_mut_slice().zeroize();
        self.0.spare_capacity_mut().zeroize();
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_buffer_equals_a_vec_after_any_steps(
            steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), 0usize..300), 0..40)
        ) {
            let (mut buffer, mut model) = (Buffer::new(), Vec::new());
            for (bytes, drained) in steps {
                buffer.extend(&bytes);
                model.extend_from_slice(&bytes);
                buffer.drain(drained);
                model.drain(..drained.min(model.len()));
                prop_assert_eq!(&buffer[..], &model[..]);
            }
        }
    }
}
