//! Cuts the blocks of a batch into passes, which a vector kernel computes in one call each.
//!
//! The blocks form one stream, which is cut regardless of packet borders: first block 0 of every packet, which
//! yields its Poly1305 key, then the blocks that encrypt its text.

use core::ops::Range;

use crate::vector_kernel::Blocks;
use crate::{BATCH_MAX, BLOCK_LEN, Slot};

/// The slots in the order in which they came.
pub(crate) static UNSORTED: [u8; BATCH_MAX] = {
    let mut order = [0; BATCH_MAX];
    let mut place = 0;
    while place < BATCH_MAX {
        order[place] = place as u8;
        place += 1;
    }
    order
};

/// Consecutive blocks of one packet's text in a pass.
#[derive(Clone, Copy, Default)]
pub(crate) struct Span {
    /// The first block, within the text.
    first: u32,
    /// The packet's place in the order.
    place: u8,
    /// The keystream block of the pass for the first block.
    lane: u8,
    /// Number of blocks.
    count: u8,
}

impl Span {
    pub(crate) fn place(&self) -> usize {
        usize::from(self.place)
    }

    /// The bytes of the packet's text, whose length is `len`.
    pub(crate) fn text(&self, len: usize) -> Range<usize> {
        let start = self.first as usize * BLOCK_LEN;
        start..len.min(start + usize::from(self.count) * BLOCK_LEN)
    }

    /// The first byte of the pass's keystream for this text.
    pub(crate) fn keystream(&self) -> usize {
        usize::from(self.lane) * BLOCK_LEN
    }
}

/// A batch that is cut into passes of `LANES` blocks.
pub(crate) struct Passes<'a, const LANES: usize> {
    batch: &'a [Slot],
    /// The indices of the slots, by place.
    order: &'a [u8],
    /// Number of packets whose keys are in this pass or an earlier one.
    keyed: usize,
    /// The end of the pass in the stream: a packet's place, and the next block of its text.
    place: usize,
    block: usize,
    /// The texts that the pass covers.
    spans: [Span; LANES],
    span_count: usize,
}

impl<'a, const LANES: usize> Passes<'a, LANES> {
    /// Before the first pass. `order` has an index for each slot, and may have more.
    pub(crate) fn new(batch: &'a [Slot], order: &'a [u8]) -> Self {
        let spans = [Span::default(); LANES];
        Self { batch, order: &order[..batch.len()], keyed: 0, place: 0, block: 0, spans, span_count: 0 }
    }

    pub(crate) fn batch(&self) -> &'a [Slot] {
        self.batch
    }

    /// The index of the slot at a place.
    pub(crate) fn index(&self, place: usize) -> usize {
        usize::from(self.order[place])
    }

    pub(crate) fn slot(&self, place: usize) -> &'a Slot {
        &self.batch[self.index(place)]
    }

    /// Number of packets, by place, that have their one-time keys after this pass.
    pub(crate) fn keyed(&self) -> usize {
        self.keyed
    }

    /// Number of packets, by place, that the passes up to this one cover, and of bytes of the next packet's text.
    pub(crate) fn covered(&self) -> (usize, usize) {
        if self.keyed < self.batch.len() { (0, 0) } else { (self.place, self.block * BLOCK_LEN) }
    }

    /// The texts of this pass.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + use<LANES> {
        self.spans.into_iter().take(self.span_count)
    }

    /// Goes on to the next pass and writes its blocks: number of one-time keys, which come first, and number of blocks.
    /// No blocks are left after the last pass.
    pub(crate) fn next(&mut self, blocks: &mut Blocks<LANES>) -> (usize, usize) {
        let keys = (self.batch.len() - self.keyed).min(LANES);
        for lane in 0..keys {
            blocks.assign(lane, 1, self.slot(self.keyed + lane).counter, 0);
        }
        self.keyed += keys;
        self.span_count = 0;
        let mut lane = keys;
        while lane < LANES && self.place < self.batch.len() {
            let slot = self.slot(self.place);
            let left = slot.len.div_ceil(BLOCK_LEN) - self.block;
            let count = left.min(LANES - lane);
            if count > 0 {
                // The text's first block is the packet's block 1.
                blocks.assign(lane, count, slot.counter, self.block as u32 + 1);
                self.spans[self.span_count] =
                    Span { first: self.block as u32, place: self.place as u8, lane: lane as u8, count: count as u8 };
                self.span_count += 1;
            }
            lane += count;
            (self.place, self.block) =
                if count == left { (self.place + 1, 0) } else { (self.place, self.block + count) };
        }
        (keys, lane)
    }
}
