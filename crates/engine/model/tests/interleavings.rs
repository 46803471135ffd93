//! What holds for every interleaving of the workers.

use std::sync::Arc as Untracked;
use std::sync::Mutex as Log;

use linerate_engine_model::sequencer::Sequencer;
use linerate_engine_model::worker_pool::{Next, SCALE_UP_DELAY_MIN, WorkerPool};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// Explores all interleavings with at most `preemptions` switches away from a thread that could go on: what
/// more would find takes weeks, and hardly any fault needs more than three.
fn explore(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

/// A source with packets 0, 1, 2...: what was read of it, numbered and delivered, each in the order in which
/// it happened. Std's locks, which the model does not see: the order has to come from the sequencer alone.
#[derive(Default)]
struct Flow {
    read: Log<Vec<usize>>,
    numbered: Log<Vec<usize>>,
    delivered: Log<Vec<usize>>,
}

/// Carries one packet if nobody else is reading; true if it did.
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
    ticket.wait_to_number();
    flow.numbered.lock().unwrap().push(packet);
    ticket.finish_numbering();
    ticket.wait_to_deliver();
    flow.delivered.lock().unwrap().push(packet);
    true
}

fn assert_in_order(flow: &Flow) {
    let read = flow.read.lock().unwrap();
    assert_eq!(*flow.numbered.lock().unwrap(), *read, "numbers rise in the order of reading");
    assert_eq!(*flow.delivered.lock().unwrap(), *read, "packets are delivered in the order of reading");
}

#[test]
fn two_workers_keep_the_order_of_a_source() {
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
fn three_workers_keep_the_order_of_a_source() {
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
fn a_ticket_that_delivers_nothing_still_passes_its_turns() {
    explore(3, || {
        let sequencer = Arc::new(Sequencer::default());
        let flow = Untracked::new(Flow::default());
        let idler = {
            let sequencer = sequencer.clone();
            thread::spawn(move || drop(sequencer.try_read_lock().map(|mut read_lock| read_lock.ticket())))
        };
        carry(&sequencer, &flow);
        idler.join().unwrap();
        sequencer.wait_for_read_lock();
        assert!(carry(&sequencer, &flow), "the read_lock is free and the turns go on");
        assert_in_order(&flow);
    });
}

/// Works until the engine ends; the one that is left to watch ends it. How often it watched.
fn serve(pool: &WorkerPool, at_watch: &AtomicUsize, mut next: Next) -> usize {
    let mut watches = 0;
    loop {
        match next {
            Next::Work => {}
            Next::Watch => {
                assert_eq!(at_watch.fetch_add(1, Ordering::SeqCst), 0, "one watches, not two");
                watches += 1;
                at_watch.fetch_sub(1, Ordering::SeqCst);
                pool.end();
            }
            Next::End => return watches,
        }
        next = pool.leave(0);
    }
}

#[test]
fn somebody_is_always_left_to_watch_and_everybody_goes_home() {
    explore(3, || {
        let pool = Arc::new(WorkerPool::new(SCALE_UP_DELAY_MIN));
        let at_watch = Arc::new(AtomicUsize::new(0));
        let helper = {
            let (pool, at_watch) = (pool.clone(), at_watch.clone());
            thread::spawn(move || serve(&pool, &at_watch, pool.rest()))
        };
        pool.unpark(0);
        let watches = serve(&pool, &at_watch, Next::Work);
        assert!(watches + helper.join().unwrap() >= 1, "not all left while nobody watched");
    });
}
