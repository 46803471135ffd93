//! A vector in chunks of bounded size: it never moves its items, so no push takes long, however many items
//! there are.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut, Range};

/// Items in a chunk. A power of two, so that aligned runs of up to this length are in one chunk.
const CHUNK: usize = 1024;

/// Items, numbered in the order in which they were pushed.
pub struct Arena<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Arena<T> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Adds an item and returns its number.
    pub fn push(&mut self, item: T) -> u32 {
        let number = u32::try_from(self.len()).expect("memory ends before 2^32 items");
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(item),
            _ => self.chunks.push(Vec::from([item])),
        }
        number
    }

    /// The item with this number, if there is one.
    pub fn get(&self, at: u32) -> Option<&T> {
        self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)
    }

    /// `len` items from number `at` on; `len` is a power of two, and `at` a multiple of it.
    pub fn run(&self, at: u32, len: usize) -> &[T] {
        &self.chunks[at as usize / CHUNK][offsets(at, len)]
    }

    /// The same items, mutable.
    pub fn run_mut(&mut self, at: u32, len: usize) -> &mut [T] {
        &mut self.chunks[at as usize / CHUNK][offsets(at, len)]
    }
}

fn offsets(at: u32, len: usize) -> Range<usize> {
    let start = at as usize % CHUNK;
    start..start + len
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_numbers_across_chunks() {
        let mut arena = Arena::default();
        for item in 0..3 * CHUNK as u32 {
            assert_eq!(arena.push(item), item);
        }
        assert_eq!(arena.len(), 3 * CHUNK);
        assert!((0..3 * CHUNK as u32).all(|at| arena[at] == at));
        assert_eq!(arena.get(3 * CHUNK as u32), None);
        arena.run_mut(CHUNK as u32 - 4, 4).fill(7);
        assert_eq!(arena.run(CHUNK as u32 - 4, 4), [7; 4]);
        assert_eq!(arena[CHUNK as u32], CHUNK as u32);
    }
}
