//! Many workers at one source, and its packets leave in the order in which they came.
//!
//! One worker at a time enters and reads; with what it read it takes a ticket and lets the next
//! one in. Then each works in its own cache. Two things happen in the order of the tickets: outbound
//! packets are numbered, so that counters rise on the wire, and packets are delivered.
//!
//! A worker alone never waits here: entering is one uncontended lock, a turn is a load, a store and a
//! fence. The model in `crates/engine/model` runs this very file under all interleavings up to
//! a number of preemptions.

use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, SPINS, fence, spin};

/// Orders the workers at one source.
#[derive(Default)]
pub struct Sequencer {
    /// The number of the next ticket; whoever holds the lock may read from the source.
    read_lock: Mutex<u64>,
    numbering: Phase,
    delivery: Phase,
}

impl Sequencer {
    /// The right to read from the source, if no other worker has it now.
    pub fn try_read_lock(&self) -> Option<ReadLock<'_>> {
        self.read_lock.try_lock().ok().map(|next| ReadLock { sequencer: self, next })
    }

    /// Waits until no other worker reads from the source.
    pub fn wait_for_read_lock(&self) {
        drop(lock(&self.read_lock));
    }
}

/// The right to read from the source, for as long as it is held.
pub struct ReadLock<'a> {
    sequencer: &'a Sequencer,
    next: MutexGuard<'a, u64>,
}

impl<'a> ReadLock<'a> {
    /// The place in the order of whatever is read under this lock. To be taken once, and only
    /// when something was read: who holds a ticket is waited for.
    pub fn ticket(&mut self) -> Ticket<'a> {
        let number = *self.next;
        *self.next += 1;
        Ticket { sequencer: self.sequencer, number, numbered: false }
    }
}

/// A place in the order. When it is dropped, the next one's turn comes, whatever was done with it.
pub struct Ticket<'a> {
    sequencer: &'a Sequencer,
    number: u64,
    numbered: bool,
}

impl Ticket<'_> {
    /// Waits until all packets of earlier tickets have their numbers.
    pub fn wait_to_number(&self) {
        if !self.numbered {
            self.sequencer.numbering.wait_for(self.number);
        }
    }

    /// All packets of this ticket have their numbers.
    pub fn finish_numbering(&mut self) {
        self.wait_to_number();
        if !std::mem::replace(&mut self.numbered, true) {
            self.sequencer.numbering.pass(self.number);
        }
    }

    /// Waits until all packets of earlier tickets are delivered.
    pub fn wait_to_deliver(&self) {
        self.sequencer.delivery.wait_for(self.number);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.finish_numbering();
        self.wait_to_deliver();
        self.sequencer.delivery.pass(self.number);
    }
}

/// Whose turn it is.
#[derive(Default)]
struct Phase {
    current: AtomicU64,
    sleepers: AtomicUsize,
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Phase {
    /// Phase are short while every worker has a core, so a waiter spins for about as long as one
    /// takes; a worker that has lost its core may take any time, so then it sleeps.
    fn wait_for(&self, number: u64) {
        for _ in 0..SPINS {
            if self.current.load(Ordering::Acquire) == number {
                return;
            }
            spin();
        }
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Either we see the turn that is passed now, or who passes it sees a sleeper.
        fence(Ordering::SeqCst);
        let mut mutex = lock(&self.mutex);
        while self.current.load(Ordering::Acquire) != number {
            mutex = self.condvar.wait(mutex).expect("no thread panics while it waits for its turn");
        }
        drop(mutex);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn pass(&self, number: u64) {
        self.current.store(number + 1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // A sleeper between its look at the turn and its sleep holds the lock.
            drop(lock(&self.mutex));
            self.condvar.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics at a sequencer")
}
