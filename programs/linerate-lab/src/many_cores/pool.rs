//! The pool of workers, played event by event.
//!
//! A source (a TUN device, a socket) has a lock. A worker takes it, reads a batch, takes a ticket, gives the lock
//! back, works, and delivers when its ticket's turn has come. Nothing else is shared, and whoever is free reads
//! wherever there is something to read: what is modelled has always more to read.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use super::costs::Cost;
use crate::dice::Dice;

/// What becomes of one batch, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    /// Under the source's lock: one worker at a time.
    pub read: Vec<Cost>,
    /// In the worker's own cache: as many at once as there are workers.
    pub work: Vec<Cost>,
    /// In the order of the tickets: one worker at a time.
    pub deliver: Vec<Cost>,
}

/// What a worker does with a batch whose turn has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// Waits beside it.
    Stay,
    /// Leaves it to whoever delivers the one before, and is free.
    Leave,
}

/// How the pool is set up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Workers, each with a core of its own; at least one.
    pub cores: usize,
    /// Sources that have nothing to do with each other; at least one.
    pub sources: usize,
    /// The most batches of one source between lock and delivery; at least one.
    pub tickets: u64,
    /// What happens to what is ready too early.
    pub early: Early,
    /// What a lock or a turn costs that comes from another core, in microseconds.
    pub hand_over: f64,
    /// What delivering costs more for a batch that another core has worked on, in microseconds.
    pub foreign: f64,
}

/// What the pool came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Batches delivered in a microsecond.
    pub rate: f64,
    /// Share of the cores' time that went into batches.
    pub busy: f64,
    /// Share that went into waiting for a turn.
    pub waiting: f64,
}

/// What the dice start from.
const SEED: u64 = 1;

/// Batches of a run, and those of them in the beginning that do not count.
const BATCHES: u64 = 8_000;
const WARM_UP: u64 = 800;

/// Plays a pool for some thousand batches.
#[must_use]
pub fn run(stages: &Stages, setting: Setting) -> Outcome {
    let mut pool = Pool::new(stages, setting);
    while pool.delivered < WARM_UP {
        pool.step();
    }
    let (begun, first) = (pool.now, pool.delivered);
    while pool.delivered < BATCHES {
        pool.step();
    }
    let time = pool.now * setting.cores as f64;
    Outcome {
        rate: (pool.delivered - first) as f64 / (pool.now - begun),
        busy: pool.busy / time,
        waiting: pool.waiting / time,
    }
}

/// A pool at one moment.
struct Pool<'a> {
    stages: &'a Stages,
    setting: Setting,
    dice: Dice,
    /// Microseconds since the beginning.
    now: f64,
    events: BinaryHeap<Event>,
    sources: Vec<Source>,
    /// The workers that have nothing to do; the one that became free last is the first to be asked, as its caches
    /// are warm.
    free: Vec<usize>,
    /// Which source is looked at first.
    next: usize,
    delivered: u64,
    /// Microseconds of all workers together, of what has ended.
    busy: f64,
    waiting: f64,
}

#[derive(Default)]
struct Source {
    /// Whether a worker holds the lock, and who held it last.
    locked: bool,
    last_reader: Option<usize>,
    /// The ticket that the next batch gets.
    next_ticket: u64,
    /// The ticket whose turn it is.
    turn: u64,
    delivering: bool,
    last_deliverer: Option<usize>,
    /// Batches that are ready, by ticket.
    ready: BTreeMap<u64, Ready>,
}

/// A batch that waits for its turn.
struct Ready {
    worker: usize,
    since: f64,
}

/// The end of what a worker does.
struct Event {
    at: f64,
    /// How long it took, in microseconds.
    takes: f64,
    worker: usize,
    source: usize,
    done: Done,
}

#[derive(PartialEq)]
enum Done {
    Read,
    Work { ticket: u64 },
    Delivery,
}

impl<'a> Pool<'a> {
    fn new(stages: &'a Stages, setting: Setting) -> Self {
        let mut pool = Self {
            stages,
            setting,
            dice: Dice::new(SEED),
            now: 0.0,
            events: BinaryHeap::new(),
            sources: (0..setting.sources).map(|_| Source::default()).collect(),
            free: (0..setting.cores).rev().collect(),
            next: 0,
            delivered: 0,
            busy: 0.0,
            waiting: 0.0,
        };
        pool.put_to_work();
        pool
    }

    /// Goes on to the next event. There always is one: some batch is always under way.
    fn step(&mut self) {
        let Some(Event { at, takes, worker, source, done }) = self.events.pop() else { return };
        self.now = at;
        self.busy += takes;
        match done {
            Done::Read => self.work(worker, source),
            Done::Work { ticket } => self.finish(worker, source, ticket),
            Done::Delivery => self.pass_the_turn(worker, source),
        }
        self.put_to_work();
    }

    /// Sends free workers to where there is something to read.
    fn put_to_work(&mut self) {
        while !self.free.is_empty()
            && let Some(source) = self.readable()
        {
            let Some(worker) = self.free.pop() else { return };
            self.next = (source + 1) % self.sources.len();
            self.read(worker, source);
        }
    }

    /// The next source whose lock is free and that has a ticket left.
    fn readable(&self) -> Option<usize> {
        let count = self.sources.len();
        let mut all = (0..count).map(|i| (self.next + i) % count);
        all.find(|i| {
            let source = &self.sources[*i];
            !source.locked && source.next_ticket - source.turn < self.setting.tickets
        })
    }

    fn read(&mut self, worker: usize, place: usize) {
        let source = &mut self.sources[place];
        source.locked = true;
        let last = source.last_reader.replace(worker);
        let takes = self.hand_over(last, worker) + self.draw(&self.stages.read);
        self.begin(worker, place, Done::Read, takes);
    }

    /// The batch is read: the lock is free for the next.
    fn work(&mut self, worker: usize, place: usize) {
        let source = &mut self.sources[place];
        source.locked = false;
        let ticket = source.next_ticket;
        source.next_ticket += 1;
        let takes = self.draw(&self.stages.work);
        self.begin(worker, place, Done::Work { ticket }, takes);
    }

    /// The batch is ready to be delivered.
    fn finish(&mut self, worker: usize, place: usize, ticket: u64) {
        let source = &mut self.sources[place];
        source.ready.insert(ticket, Ready { worker, since: self.now });
        if source.turn == ticket && !source.delivering {
            self.deliver(worker, place);
        } else if self.setting.early == Early::Leave {
            self.free.push(worker);
        }
    }

    /// The worker delivers the batch whose turn it is.
    fn deliver(&mut self, worker: usize, place: usize) {
        let source = &mut self.sources[place];
        let Some(batch) = source.ready.remove(&source.turn) else { return };
        source.delivering = true;
        if self.setting.early == Early::Stay {
            self.waiting += self.now - batch.since;
        }
        let last = source.last_deliverer.replace(worker);
        let foreign = if batch.worker == worker { 0.0 } else { self.setting.foreign };
        let takes = self.hand_over(last, worker) + foreign + self.draw(&self.stages.deliver);
        self.begin(worker, place, Done::Delivery, takes);
    }

    fn pass_the_turn(&mut self, worker: usize, place: usize) {
        self.delivered += 1;
        let source = &mut self.sources[place];
        source.delivering = false;
        source.turn += 1;
        match (source.ready.get(&source.turn).map(|batch| batch.worker), self.setting.early) {
            (Some(waiter), Early::Stay) => {
                self.deliver(waiter, place);
                self.free.push(worker);
            }
            (Some(_), Early::Leave) => self.deliver(worker, place),
            (None, _) => self.free.push(worker),
        }
    }

    fn begin(&mut self, worker: usize, source: usize, done: Done, takes: f64) {
        self.events.push(Event { at: self.now + takes, takes, worker, source, done });
    }

    /// What it costs that a worker takes what `last` had.
    fn hand_over(&self, last: Option<usize>, worker: usize) -> f64 {
        if last.is_some_and(|last| last != worker) { self.setting.hand_over } else { 0.0 }
    }

    fn draw(&mut self, costs: &'a [Cost]) -> f64 {
        costs.iter().map(|cost| cost.draw(normal(&mut self.dice))).sum()
    }
}

/// A number that is distributed normally, with mean 0 and variance 1 (Box and Muller).
fn normal(dice: &mut Dice) -> f64 {
    let (radius, angle) = (1.0 - dice.roll(), dice.roll());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// The earliest event is the greatest; of two at once that of the lower worker, who has no other.
impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.worker.cmp(&self.worker))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steady() -> impl Strategy<Value = Stages> {
        let cost = || (0.5..30.0_f64).prop_map(|micros| vec![Cost::steady(micros)]);
        (cost(), cost(), cost()).prop_map(|(read, work, deliver)| Stages { read, work, deliver })
    }

    fn varying() -> impl Strategy<Value = Stages> {
        let cost = || (0.5..30.0_f64, 1.0..2.0_f64).prop_map(|(median, by)| vec![Cost { median, p90: median * by }]);
        (cost(), cost(), cost()).prop_map(|(read, work, deliver)| Stages { read, work, deliver })
    }

    prop_compose! {
        fn setting()(
            cores in 1..20_usize,
            sources in 1..5_usize,
            tickets in 1..20_u64,
            leave: bool,
            hand_over in 0.0..3.0_f64,
            foreign in 0.0..3.0_f64,
        ) -> Setting {
            let early = if leave { Early::Leave } else { Early::Stay };
            Setting { cores, sources, tickets, early, hand_over, foreign }
        }
    }

    fn mean(costs: &[Cost]) -> f64 {
        costs.iter().map(Cost::mean).sum()
    }

    fn all(stages: &Stages) -> f64 {
        mean(&stages.read) + mean(&stages.work) + mean(&stages.deliver)
    }

    fn assert_near(left: f64, right: f64, share: f64) {
        assert!((left - right).abs() <= share * right, "{left} and {right}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn one_core_takes_the_sum_of_all_stages(stages in steady(), setting in setting()) {
            let outcome = run(&stages, Setting { cores: 1, ..setting });
            assert_near(outcome.rate, 1.0 / all(&stages), 1e-6);
            assert_near(outcome.busy, 1.0, 1e-6);
            prop_assert_eq!(outcome.waiting, 0.0);
        }

        #[test]
        fn cores_do_not_work_longer_than_there_is_time(stages in varying(), setting in setting()) {
            let Outcome { busy, waiting, .. } = run(&stages, setting);
            prop_assert!(busy > 0.0 && waiting >= 0.0 && busy + waiting <= 1.0 + 1e-6);
        }

        #[test]
        fn one_core_takes_the_mean_of_what_varies(stages in varying()) {
            let setting = Setting { cores: 1, sources: 1, tickets: 1, early: Early::Stay, hand_over: 1.0, foreign: 1.0 };
            assert_near(run(&stages, setting).rate, 1.0 / all(&stages), 0.05);
        }

        #[test]
        fn a_source_carries_no_more_than_its_serial_stages_let(stages in steady(), setting in setting()) {
            let serial = mean(&stages.read).max(mean(&stages.deliver));
            let most = (setting.sources as f64 / serial).min(setting.cores as f64 / all(&stages));
            prop_assert!(run(&stages, setting).rate <= most * 1.001);
        }

        #[test]
        fn enough_cores_and_tickets_reach_what_the_serial_stages_let(stages in steady(), leave: bool) {
            let early = if leave { Early::Leave } else { Early::Stay };
            let setting = Setting { cores: 200, sources: 1, tickets: 200, early, hand_over: 0.0, foreign: 0.0 };
            assert_near(run(&stages, setting).rate, 1.0 / mean(&stages.read).max(mean(&stages.deliver)), 1e-3);
        }

        #[test]
        fn more_cores_never_carry_less(stages in steady(), cores in 1..20_usize, leave: bool) {
            let early = if leave { Early::Leave } else { Early::Stay };
            let at = |cores| {
                run(&stages, Setting { cores, sources: 1, tickets: 20, early, hand_over: 0.0, foreign: 0.0 }).rate
            };
            prop_assert!(at(cores + 1) >= at(cores) * 0.999);
        }

        #[test]
        fn a_source_gains_nothing_from_another_beyond_their_cores(stages in steady(), setting in setting()) {
            let apart = run(&stages, Setting { sources: 1, ..setting }).rate * setting.sources as f64;
            prop_assert!(run(&stages, setting).rate <= apart * 1.01);
        }

        /// Also: each ticket once, no more of them than there are, nobody free where there is something to read,
        /// and each worker in one place.
        #[test]
        fn batches_are_delivered_in_the_order_of_their_tickets(stages in varying(), setting in setting()) {
            let mut pool = Pool::new(&stages, setting);
            let mut turns = vec![0; setting.sources];
            for _ in 0..2_000 {
                pool.step();
                for (source, turn) in pool.sources.iter().zip(&mut turns) {
                    prop_assert!(source.turn == *turn || source.turn == *turn + 1);
                    *turn = source.turn;
                    prop_assert!(source.next_ticket - source.turn <= setting.tickets);
                    prop_assert!(source.ready.keys().all(|ticket| (source.turn..source.next_ticket).contains(ticket)));
                }
                prop_assert_eq!(turns.iter().sum::<u64>(), pool.delivered);
                prop_assert!(pool.free.is_empty() || pool.readable().is_none());
                let waiting: usize = match setting.early {
                    Early::Stay => pool.sources.iter().map(|source| source.ready.len()).sum(),
                    Early::Leave => 0,
                };
                prop_assert_eq!(pool.free.len() + pool.events.len() + waiting, setting.cores);
            }
        }

        #[test]
        fn the_same_costs_give_the_same_outcome(stages in varying(), setting in setting()) {
            prop_assert_eq!(run(&stages, setting), run(&stages, setting));
        }
    }

    #[test]
    fn a_hand_over_is_paid_where_the_core_changes_only() {
        let stages =
            Stages { read: vec![Cost::steady(1.0)], work: vec![Cost::steady(1.0)], deliver: vec![Cost::steady(10.0)] };
        let at = |cores| {
            let setting = Setting { cores, sources: 1, tickets: 8, early: Early::Stay, hand_over: 2.0, foreign: 0.0 };
            run(&stages, setting).rate
        };
        assert_near(at(1), 1.0 / 12.0, 1e-6);
        assert_near(at(8), 1.0 / 12.0, 1e-3);
    }
}
