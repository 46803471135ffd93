//! Invariants of the sequencer and the worker pool under every interleaving of the workers.

use std::sync::Arc as Untracked;
use std::sync::Mutex as Log;

use linerate_engine_model::sequencer::Sequencer;
use linerate_engine_model::worker_pool::{Next, SCALE_UP_DELAY_MIN, WorkerPool};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// Explores all interleavings with at most `preemptions` switches away from a thread that could go on. More would take
/// weeks, and hardly any bug needs more than three.
fn explore(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

/// The packets 0, 1, 2... of a receive queue: which were read, got a counter and were delivered, each in the order of
/// the event. The locks are std's, which loom does not see: the order has to come from the sequencer alone.
#[derive(Default)]
struct Flow {
    read: Log<Vec<usize>>,
    given_counters: Log<Vec<usize>>,
    delivered: Log<Vec<usize>>,
}

/// Carries one packet unless another worker is reading; true if it did.
fn carry(sequencer: &Sequencer, flow: &Flow) -> bool {
    let Some(mut read_lock) = sequencer.try_read_lock() else { return false };
    let packet = {
        let mut read = flow.read.lock().unwrap();
        let packet = read.len();
        read.push(packet);
        packet
    };
    let mut ticket = read_lock.ticket();
    drop(read_lock);
    ticket.wait_for_counter_phase();
    flow.given_counters.lock().unwrap().push(packet);
    ticket.finish_counter_phase();
    ticket.wait_for_delivery_phase();
    flow.delivered.lock().unwrap().push(packet);
    true
}

fn assert_in_order(flow: &Flow) {
    let read = flow.read.lock().unwrap();
    assert_eq!(*flow.given_counters.lock().unwrap(), *read, "packets get their counters in the order of reading");
    assert_eq!(*flow.delivered.lock().unwrap(), *read, "packets are delivered in the order of reading");
}

#[test]
fn two_workers_keep_the_order_of_a_receive_queue() {
    explore(3, || {
        let sequencer = Arc::new(Sequencer::default());
        let flow = Untracked::new(Flow::default());
        let helper = {
            let (sequencer, flow) = (sequencer.clone(), flow.clone());
            thread::spawn(move || (0..2).filter(|_| carry(&sequencer, &flow)).count())
        };
        let carried = (0..2).filter(|_| carry(&sequencer, &flow)).count() + helper.join().unwrap();
        assert_eq!(flow.read.lock().unwrap().len(), carried);
        assert_in_order(&flow);
    });
}

#[test]
fn three_workers_keep_the_order_of_a_receive_queue() {
    explore(2, || {
        let sequencer = Arc::new(Sequencer::default());
        let flow = Untracked::new(Flow::default());
        let helpers: Vec<_> = (0..2)
            .map(|_| {
                let (sequencer, flow) = (sequencer.clone(), flow.clone());
                thread::spawn(move || carry(&sequencer, &flow))
            })
            .collect();
        carry(&sequencer, &flow);
        helpers.into_iter().for_each(|helper| assert!(helper.join().is_ok()));
        assert_in_order(&flow);
    });
}

#[test]
fn a_ticket_that_delivers_nothing_still_finishes_its_phases() {
    explore(3, || {
        let sequencer = Arc::new(Sequencer::default());
        let flow = Untracked::new(Flow::default());
        let empty = {
            let sequencer = sequencer.clone();
            thread::spawn(move || drop(sequencer.try_read_lock().map(|mut read_lock| read_lock.ticket())))
        };
        carry(&sequencer, &flow);
        empty.join().unwrap();
        sequencer.wait_for_read_lock();
        assert!(carry(&sequencer, &flow), "the read lock is free and the phases go on");
        assert_in_order(&flow);
    });
}

/// Works until the engine ends; the last active worker ends it. Returns how often this worker was the last.
fn work(pool: &WorkerPool, waiting: &AtomicUsize, mut next: Next) -> usize {
    let mut waits = 0;
    loop {
        match next {
            Next::Help => {}
            Next::Wait => {
                assert_eq!(
                    waiting.fetch_add(1, Ordering::SeqCst),
                    0,
                    "one worker waits on the receive queues, not two"
                );
                waits += 1;
                waiting.fetch_sub(1, Ordering::SeqCst);
                pool.end();
            }
            Next::End => return waits,
        }
        next = pool.park_unless_last(0);
    }
}

#[test]
fn one_worker_always_stays_active_and_all_end() {
    explore(3, || {
        let pool = Arc::new(WorkerPool::new(SCALE_UP_DELAY_MIN));
        let waiting = Arc::new(AtomicUsize::new(0));
        let helper = {
            let (pool, waiting) = (pool.clone(), waiting.clone());
            thread::spawn(move || work(&pool, &waiting, pool.park()))
        };
        pool.unpark(0);
        let waits = work(&pool, &waiting, Next::Help);
        assert!(waits + helper.join().unwrap() >= 1, "a worker waited on the receive queues until the end");
    });
}
