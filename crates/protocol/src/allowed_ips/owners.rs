//! The owners of a node's prefixes. Most nodes have one prefix, whose owner is in the node; the owners of several
//! are adjacent in a block.

use super::NONE;
use super::arena::Arena;

/// Prefixes of a node at most.
const MAX_PREFIXES: usize = 31;

/// The owner of a prefix; in a node with several prefixes, the block of their owners, whose number is in `peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub peer: u32,
    /// The prefix's entry in its peer's list.
    pub entry: u32,
}

impl Owner {
    pub const NOBODY: Self = Self { peer: NONE, entry: NONE };
}

/// The blocks of all nodes of a table, by size: 2, 4, 8, 16 and 32.
#[derive(Default)]
pub struct Blocks {
    sizes: [Size; 5],
}

/// The blocks of one size.
struct Size {
    owners: Arena<Owner>,
    /// The first free block; the `entry` of its first owner links the others.
    vacant: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { owners: Arena::default(), vacant: NONE }
    }
}

impl Blocks {
    /// The owner with this rank among the `count` owners of a node.
    pub fn get(&self, slot: Owner, count: usize, rank: usize) -> Owner {
        if count == 1 {
            return slot;
        }
        self.sizes[size_of_block(count)].owners[slot.peer + rank as u32]
    }

    /// The same owner, mutable.
    pub fn get_mut<'a>(&'a mut self, slot: &'a mut Owner, count: usize, rank: usize) -> &'a mut Owner {
        if count == 1 {
            return slot;
        }
        &mut self.sizes[size_of_block(count)].owners[slot.peer + rank as u32]
    }

    /// Inserts an owner at this rank and returns the node's new value.
    pub fn insert(&mut self, slot: Owner, count: usize, rank: usize) -> Owner {
        let mut owners = self.take(slot, count);
        owners.copy_within(rank..count, rank + 1);
        owners[rank] = Owner::NOBODY;
        self.store(&owners[..count + 1])
    }

    /// Removes the owner at this rank and returns the node's new value.
    pub fn remove(&mut self, slot: Owner, count: usize, rank: usize) -> Owner {
        let mut owners = self.take(slot, count);
        owners.copy_within(rank + 1..count, rank);
        self.store(&owners[..count - 1])
    }

    fn take(&mut self, slot: Owner, count: usize) -> [Owner; MAX_PREFIXES] {
        let mut owners = [Owner::NOBODY; MAX_PREFIXES];
        if count <= 1 {
            owners[0] = slot;
            return owners;
        }
        let size = &mut self.sizes[size_of_block(count)];
        owners[..count].copy_from_slice(&size.owners.run(slot.peer, count.next_power_of_two())[..count]);
        size.owners[slot.peer].entry = core::mem::replace(&mut size.vacant, slot.peer);
        owners
    }

    fn store(&mut self, owners: &[Owner]) -> Owner {
        let len = owners.len().next_power_of_two();
        if len == 1 {
            return owners.first().copied().unwrap_or(Owner::NOBODY);
        }
        let size = &mut self.sizes[size_of_block(len)];
        let block = match size.vacant {
            NONE => size.allocate(len),
            block => {
                size.vacant = size.owners[block].entry;
                block
            }
        };
        size.owners.run_mut(block, len)[..owners.len()].copy_from_slice(owners);
        Owner { peer: block, entry: NONE }
    }
}

impl Size {
    fn allocate(&mut self, len: usize) -> u32 {
        let first = self.owners.push(Owner::NOBODY);
        (1..len).for_each(|_| _ = self.owners.push(Owner::NOBODY));
        first
    }
}

/// The index in [`Blocks::sizes`] of the blocks for `count` owners, at least two.
fn size_of_block(count: usize) -> usize {
    count.next_power_of_two().ilog2() as usize - 1
}

#[cfg(test)]
impl Blocks {
    /// The capacity of the blocks in owners, and that of the free ones among them.
    pub fn owners(&self) -> (usize, usize) {
        let vacant = self.sizes.iter().enumerate().map(|(at, size)| {
            let chain = core::iter::successors(size.owners.get(size.vacant), |first| size.owners.get(first.entry));
            chain.count() << (at + 1)
        });
        (self.sizes.iter().map(|size| size.owners.len()).sum(), vacant.sum())
    }
}
