//! Lets several workers serve one receive queue while its packets leave in the order in which they came.
//!
//! One worker at a time holds the read lock and reads; for what it read it takes a ticket, then it releases the
//! lock. Workers then process their batches in parallel, except for two phases that run in ticket order: outbound
//! packets get their counters, so that counters rise on the wire, and packets are delivered.
//!
//! A single worker never waits here: the read lock is one uncontended lock, a phase is a load, a store and a fence.
//! The model in `crates/engine/model` runs this very file under all interleavings up to a number of preemptions.

use crate::sync::{AtomicU64, Futex, Mutex, MutexGuard, Ordering, WORKERS_MAX, fence, sleep_on, spin_lock, spin_until};

/// Orders the workers at one receive queue.
#[derive(Default)]
pub struct Sequencer {
    /// The number of the next ticket. Its lock is the read lock.
    next_ticket: Mutex<u64>,
    counter_phase: Phase,
    delivery_phase: Phase,
}

impl Sequencer {
    /// The right to read from the receive queue; `None` while another worker holds it.
    pub fn try_read_lock(&self) -> Option<ReadLock<'_>> {
        self.next_ticket.try_lock().ok().map(|next_ticket| ReadLock { sequencer: self, next_ticket })
    }

    /// Waits until no other worker reads from the receive queue.
    pub fn wait_for_read_lock(&self) {
        drop(spin_lock(&self.next_ticket));
    }
}

/// The right to read from the receive queue, until it is dropped.
pub struct ReadLock<'a> {
    sequencer: &'a Sequencer,
    next_ticket: MutexGuard<'a, u64>,
}

impl<'a> ReadLock<'a> {
    /// Issues the ticket for the packets read under this lock. Call it at most once, and only after reading something:
    /// all later tickets wait for this one.
    pub fn ticket(&mut self) -> Ticket<'a> {
        let number = *self.next_ticket;
        *self.next_ticket += 1;
        Ticket { sequencer: self.sequencer, number, counter_phase_finished: false }
    }
}

/// A position in the delivery order. Dropping it finishes both phases, whether or not a packet got a counter or was
/// delivered.
pub struct Ticket<'a> {
    sequencer: &'a Sequencer,
    number: u64,
    counter_phase_finished: bool,
}

impl Ticket<'_> {
    /// Waits until all packets of earlier tickets have their counters.
    pub fn wait_for_counter_phase(&self) {
        if !self.counter_phase_finished {
            self.sequencer.counter_phase.wait_for(self.number);
        }
    }

    /// All packets of this ticket have their counters: the next ticket may reserve its own.
    pub fn finish_counter_phase(&mut self) {
        self.wait_for_counter_phase();
        if !std::mem::replace(&mut self.counter_phase_finished, true) {
            self.sequencer.counter_phase.finish(self.number);
        }
    }

    /// Waits until all packets of earlier tickets are delivered.
    pub fn wait_for_delivery_phase(&self) {
        self.sequencer.delivery_phase.wait_for(self.number);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.finish_counter_phase();
        self.wait_for_delivery_phase();
        self.sequencer.delivery_phase.finish(self.number);
    }
}

/// A phase that tickets run one after the other.
#[derive(Default)]
struct Phase {
    /// The ticket whose turn it is.
    current: AtomicU64,
    /// Where the holder of a ticket sleeps, by the ticket's number, so that a phase that ends wakes the next one alone.
    /// The word is the ticket's while its holder sleeps. A worker holds one ticket at a time, so no two share a place.
    sleepers: [Futex; WORKERS_MAX],
}

/// The word of a place where nobody sleeps.
const NOBODY: u32 = 0;

impl Phase {
    /// Spins for about as long as a phase takes while every worker has a core, then sleeps: a worker that lost its
    /// core may take any time.
    fn wait_for(&self, ticket: u64) {
        if spin_until(|| self.current.load(Ordering::Acquire) == ticket) {
            return;
        }
        let (place, word) = self.sleeper(ticket);
        place.store(word, Ordering::Relaxed);
        // Pairs with the fence in `finish`: either we see the new current ticket, or `finish` sees that we sleep.
        fence(Ordering::SeqCst);
        while self.current.load(Ordering::Acquire) != ticket {
            sleep_on(place, word);
        }
        place.store(NOBODY, Ordering::Relaxed);
    }

    fn finish(&self, ticket: u64) {
        let next = ticket + 1;
        self.current.store(next, Ordering::Release);
        fence(Ordering::SeqCst);
        let (place, word) = self.sleeper(next);
        // Changed before waking: who is between its last look and its sleep does not fall asleep.
        if place.load(Ordering::Relaxed) == word && place.change(word, NOBODY, Ordering::Relaxed) {
            place.wake();
        }
    }

    /// The place of a ticket and its word. A late change by `finish` does not match the next ticket at this place,
    /// because its word is another one.
    fn sleeper(&self, ticket: u64) -> (&Futex, u32) {
        (&self.sleepers[ticket as usize % WORKERS_MAX], ticket as u32 | 1 << 31)
    }
}
