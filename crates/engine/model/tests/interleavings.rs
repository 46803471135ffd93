//! What holds for every interleaving of the workers.

use std::sync::Arc as Untracked;
use std::sync::Mutex as Log;

use linerate_engine_model::crew::{Crew, Next, PATIENCE_MIN};
use linerate_engine_model::turnstile::Turnstile;
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
/// it happened. Std's locks, which the model does not see: the order has to come from the turnstile alone.
#[derive(Default)]
struct Flow {
    read: Log<Vec<usize>>,
    numbered: Log<Vec<usize>>,
    delivered: Log<Vec<usize>>,
}

/// Carries one packet if nobody else is reading; true if it did.
fn carry(turnstile: &Turnstile, flow: &Flow) -> bool {
    let Some(mut entrance) = turnstile.try_enter() else { return false };
    let packet = {
        let mut read = flow.read.lock().unwrap();
        let packet = read.len();
        read.push(packet);
        packet
    };
    let mut ticket = entrance.ticket();
    drop(entrance);
    ticket.wait_to_number();
    flow.numbered.lock().unwrap().push(packet);
    ticket.pass_numbering();
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
        let turnstile = Arc::new(Turnstile::default());
        let flow = Untracked::new(Flow::default());
        let follower = {
            let (turnstile, flow) = (turnstile.clone(), flow.clone());
            thread::spawn(move || (0..2).filter(|_| carry(&turnstile, &flow)).count())
        };
        let carried = (0..2).filter(|_| carry(&turnstile, &flow)).count() + follower.join().unwrap();
        assert_eq!(flow.read.lock().unwrap().len(), carried);
        assert_in_order(&flow);
    });
}

#[test]
fn three_workers_keep_the_order_of_a_source() {
    explore(2, || {
        let turnstile = Arc::new(Turnstile::default());
        let flow = Untracked::new(Flow::default());
        let followers: Vec<_> = (0..2)
            .map(|_| {
                let (turnstile, flow) = (turnstile.clone(), flow.clone());
                thread::spawn(move || carry(&turnstile, &flow))
            })
            .collect();
        carry(&turnstile, &flow);
        followers.into_iter().for_each(|follower| assert!(follower.join().is_ok()));
        assert_in_order(&flow);
    });
}

#[test]
fn a_ticket_that_delivers_nothing_still_passes_its_turns() {
    explore(3, || {
        let turnstile = Arc::new(Turnstile::default());
        let flow = Untracked::new(Flow::default());
        let idler = {
            let turnstile = turnstile.clone();
            thread::spawn(move || drop(turnstile.try_enter().map(|mut entrance| entrance.ticket())))
        };
        carry(&turnstile, &flow);
        idler.join().unwrap();
        turnstile.wait_for_entrance();
        assert!(carry(&turnstile, &flow), "the entrance is free and the turns go on");
        assert_in_order(&flow);
    });
}

/// Works until the engine ends; the one that is left to watch ends it. How often it watched.
fn serve(crew: &Crew, at_watch: &AtomicUsize, mut next: Next) -> usize {
    let mut watches = 0;
    loop {
        match next {
            Next::Work => {}
            Next::Watch => {
                assert_eq!(at_watch.fetch_add(1, Ordering::SeqCst), 0, "one watches, not two");
                watches += 1;
                at_watch.fetch_sub(1, Ordering::SeqCst);
                crew.end();
            }
            Next::End => return watches,
        }
        next = crew.leave(0);
    }
}

#[test]
fn somebody_is_always_left_to_watch_and_everybody_goes_home() {
    explore(3, || {
        let crew = Arc::new(Crew::new(PATIENCE_MIN));
        let at_watch = Arc::new(AtomicUsize::new(0));
        let follower = {
            let (crew, at_watch) = (crew.clone(), at_watch.clone());
            thread::spawn(move || serve(&crew, &at_watch, crew.rest()))
        };
        crew.invite(0);
        let watches = serve(&crew, &at_watch, Next::Work);
        assert!(watches + follower.join().unwrap() >= 1, "not all left while nobody watched");
    });
}
