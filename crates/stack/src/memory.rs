//! What the buffers of all connections may take together.
//!
//! The size of a connection's two buffers is chosen once, when it is made: smoltcp cannot change it later, and it is
//! what the window can grow to. So buffers are large, and cost what has been touched of them: they are zeroed memory
//! that the system provides page by page. This file counts those pages. [`FLOOR`] bytes of each buffer are set aside
//! for every connection that there may be; what is touched beyond is taken from what all share. As that fills, new
//! connections get smaller buffers, and once it is full a connection that needs more is reset, or waits with what it
//! sends.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The allocator writes before a buffer what it has to know of it, and that is on its first page: capacities are less
/// than pages by so much.
const HEAD: usize = 16;

/// What every buffer may use without asking, with its head: ten segments, as many as a sender begins with (RFC 6928).
pub(crate) const FLOOR: usize = 16 << 10;
/// A receive buffer of one of few connections: 670 Mbit/s at 50 ms. What it sends waits in a large one: how much of that can be
/// on its way is not known, and the rest delays whoever shares the connection.
const HUGE: usize = 4 << 20;
/// A buffer while there is plenty: 420 Mbit/s at 20 ms.
const LARGE: usize = 1 << 20;
/// A buffer when half of the shared memory is used, or there are a thousand connections.
const MEDIUM: usize = 256 << 10;
/// A buffer when three quarters are used, or there are four thousand.
const SMALL: usize = 64 << 10;

// What is not touched counts still where the system commits memory beforehand (vm.overcommit_memory=2), and against
// RLIMIT_AS.
const HUGE_MAX: usize = 16;
const LARGE_MAX: usize = 1 << 10;
const MEDIUM_MAX: usize = 4 << 10;
const _: () = assert!(2 * (HUGE_MAX * HUGE + LARGE_MAX * LARGE + MEDIUM_MAX * MEDIUM + 10_000 * SMALL) <= 6 << 30);

/// The system provides memory in pages of this size.
const PAGE: usize = 4096;

/// What a connection takes besides its buffers: its state, its places in maps and queues.
const STATE: usize = 4 << 10;

/// What one connection may use without asking.
pub(crate) const CONNECTION: usize = 2 * FLOOR + STATE;

const _: () = assert!(FLOOR < SMALL && SMALL < MEDIUM && MEDIUM < LARGE && LARGE < HUGE && FLOOR.is_multiple_of(PAGE));

/// What a connection's buffers can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) receive: usize,
    pub(crate) send: usize,
}

/// The memory that connections share.
pub(crate) struct Memory {
    shared: usize,
    used: AtomicUsize,
}

impl Memory {
    /// `total` bytes, of which `connections` connections have theirs for certain.
    pub(crate) fn new(total: usize, connections: usize) -> Self {
        Self { shared: total.saturating_sub(connections * CONNECTION), used: AtomicUsize::new(0) }
    }

    /// The capacity of a new connection's buffers, if there are so many connections.
    pub(crate) fn capacity(&self, connections: usize) -> Capacity {
        let used = self.used();
        // At no time have more than HUGE_MAX connections such buffers. All of them touched leave half of what there is.
        let plenty = 2 * HUGE_MAX * (HUGE + LARGE) <= self.shared && used < self.shared / 4;
        let (receive, send) = match connections {
            0..=HUGE_MAX if plenty => (HUGE, LARGE),
            0..=LARGE_MAX if used < self.shared / 2 => (LARGE, LARGE),
            0..=MEDIUM_MAX if used < self.shared / 4 * 3 => (MEDIUM, MEDIUM),
            _ if used < self.shared / 8 * 7 => (SMALL, SMALL),
            _ => (FLOOR, FLOOR),
        };
        Capacity { receive: receive - HEAD, send: send - HEAD }
    }

    /// Bytes taken from what is shared.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.shared);
        self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// The pages that were touched of one buffer, and are paid for, in bytes.
#[derive(Default)]
pub(crate) struct Touched(usize);

impl Touched {
    /// Bytes that may be touched without asking.
    pub(crate) fn room(&self) -> usize {
        self.paid() - HEAD
    }

    fn paid(&self) -> usize {
        self.0.max(FLOOR)
    }

    /// Pays for the first `bytes` of the buffer; false if there is not enough.
    pub(crate) fn grow(&mut self, bytes: usize, memory: &Memory) -> bool {
        let wanted = (HEAD + bytes).next_multiple_of(PAGE);
        if wanted > self.paid() {
            if !memory.take(wanted - self.paid()) {
                return false;
            }
            self.0 = wanted;
        }
        true
    }

    /// The buffer is no more.
    pub(crate) fn release(&mut self, memory: &Memory) {
        memory.used.fetch_sub(self.paid() - FLOOR, Ordering::Relaxed);
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buffers_never_take_more_than_there_is_and_give_all_of_it_back(
            grows in prop::collection::vec((0usize..20, 0usize..=LARGE - HEAD), 1..200),
        ) {
            let memory = Memory::new(20 * CONNECTION + 4 * LARGE, 20);
            let mut buffers: Vec<Touched> = (0..20).map(|_| Touched::default()).collect();
            for (buffer, bytes) in grows {
                let paid = buffers[buffer].paid();
                let grown = buffers[buffer].grow(bytes, &memory);
                let right = if grown { buffers[buffer].room() >= bytes } else { buffers[buffer].paid() == paid };
                prop_assert!(right);
                let taken: usize = buffers.iter().map(|buffer| buffer.paid() - FLOOR).sum();
                prop_assert_eq!(taken, memory.used());
                prop_assert!(taken <= 4 * LARGE);
            }
            buffers.iter_mut().for_each(|buffer| buffer.release(&memory));
            prop_assert_eq!(memory.used(), 0);
        }
    }

    fn capacity(receive: usize, send: usize) -> Capacity {
        Capacity { receive: receive - HEAD, send: send - HEAD }
    }

    #[test]
    fn few_connections_get_huge_buffers_and_leave_half() {
        let enough = 2 * HUGE_MAX * (HUGE + LARGE);
        let memory = Memory::new(enough, 0);
        let capacities = [1, HUGE_MAX, HUGE_MAX + 1].map(|connections| memory.capacity(connections));
        assert_eq!(capacities, [capacity(HUGE, LARGE), capacity(HUGE, LARGE), capacity(LARGE, LARGE)]);
        // As many as there can be at a time, all of them touched.
        let mut all: Vec<_> = (0..HUGE_MAX).map(|_| (Touched::default(), Touched::default())).collect();
        for (receive, send) in &mut all {
            assert!(receive.grow(HUGE - HEAD, &memory) && send.grow(LARGE - HEAD, &memory));
        }
        assert!(memory.used() < enough / 2 && memory.capacity(HUGE_MAX) == capacity(LARGE, LARGE));
        assert_eq!(Memory::new(enough - 1, 0).capacity(1), capacity(LARGE, LARGE));
    }

    #[test]
    fn buffers_get_smaller_as_memory_fills_up() {
        let memory = Memory::new(8 * LARGE, 0);
        let mut all = Vec::new();
        let mut capacities = vec![memory.capacity(1).receive];
        for _ in 0..8 {
            let mut buffer = Touched::default();
            assert!(buffer.grow(LARGE - HEAD, &memory));
            all.push(buffer);
            capacities.push(memory.capacity(1).receive);
        }
        assert!(capacities.is_sorted_by(|a, b| a >= b));
        assert_eq!((capacities[0], capacities[8]), (LARGE - HEAD, FLOOR - HEAD));
        let unused = Memory::new(8 * LARGE, 0);
        assert_eq!(
            [1, 2000, 5000].map(|connections| unused.capacity(connections)),
            [LARGE, MEDIUM, SMALL].map(|pages| capacity(pages, pages))
        );
        assert!(!Touched::default().grow(2 * FLOOR + LARGE, &memory));
        assert!(Touched::default().grow(FLOOR - HEAD, &memory), "the floor is set aside");
    }
}
