//! The simulation: threads on cores, packets in queues, event by event.
//!
//! A thread does one step after the other; a step takes time on a core, then it has its effect. Threads share the
//! cores as under a fair scheduler. Who helps whom, and when a worker parks, is decided by the engine's own code
//! ([`crate::scaling`]) from the same clocks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use linerate_netio::cores::CpuLoad;

use crate::costs::Costs;
use crate::scaling::{self, Moment, TimeUse, Workers};
use crate::worker_pool::{BusyTimer, SCALE_UP_DELAY_MAX, SCALE_UP_DELAY_MIN, USEFUL_MIN};

/// Nanoseconds.
pub type Ns = u64;

/// A thread runs for so long while others wait for its core: a tick of the scheduler at 250 Hz.
const TICK: Ns = 4_000_000;

/// A core without work does not take a thread from another core's queue that ran there so recently (Linux's
/// `sched_migration_cost_ns`); at the next tick it does.
const HOT: Ns = 500_000;

/// One call takes no more than so much of a full GSO packet from the TUN device, or so many packets.
const FULL: f64 = 0.87;
const BATCH: usize = 128;

/// Messages of one receive call.
const MESSAGES: usize = 2;

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// One thread writes to TCP streams, each with at most so many GSO packets in flight; one thread reads them.
    Tcp { streams: usize, window: usize },
    /// One packet each so many nanoseconds, whatever becomes of it.
    Paced { every: Ns },
}

/// Where the outer flows' receiving half of the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Softirq {
    /// Inside the send, as between two network namespaces.
    Inline,
    /// On a core for each outer flow, as behind a network card.
    Core,
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Cores that all threads share.
    pub cores: usize,
    /// Cores of the machine: the scheduler looks at all of them.
    pub machine: usize,
    /// Peers, each with an outer flow, a sending and a receiving thread.
    pub peers: usize,
    /// Packets of each peer.
    pub arrivals: Arrivals,
    /// A packet's part of a full GSO packet.
    pub size: f64,
    /// Acknowledgements for each data packet.
    pub acks: f64,
    /// See [`Softirq`].
    pub softirq: Softirq,
    /// The most workers of an engine, and the most receive queues of a kind.
    pub limits: (usize, usize),
    /// The most packets in a receive queue.
    pub room: usize,
    /// For how long a worker spins for another before it sleeps.
    pub spin: Ns,
    /// Who delivers wakes the next one before, not after; in the engine, after.
    pub early: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Packets made, read by the receivers, lost, and still under way.
    pub made: u64,
    /// Read by the receivers.
    pub taken: u64,
    /// Found a queue full.
    pub dropped: u64,
    /// Still under way.
    pub queued: u64,
    /// A receiver got a packet after a later one.
    pub reordered: u64,
    /// Full GSO packets taken in a second, after the warm-up.
    pub rate: f64,
    /// Cores busy after the warm-up: with senders, engine A, engine B, receivers, softirqs.
    pub busy: [f64; 5],
    /// The busiest thread of each kind, in cores.
    pub busiest: [f64; 5],
    /// Share of the time that the most used read lock and phases were held, of each engine: [lock, counters, delivery].
    pub serial: [[f64; 3]; 2],
    /// Helpers unparked.
    pub unparked: u64,
    /// Threads that waited for a core, on average.
    pub waiting: f64,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    flow: usize,
    number: u64,
    size: f64,
    /// Data packets that it acknowledges; 0 is data.
    acks: u32,
}

/// What one call reads: a packet of the TUN device, or a GSO batch of the network.
struct Message {
    packets: Vec<Packet>,
    /// The core that wrote it.
    core: usize,
}

impl Message {
    fn size(&self) -> f64 {
        self.packets.iter().map(|packet| packet.size).sum()
    }
}

#[derive(Default)]
struct Phase {
    current: u64,
    last_core: Option<usize>,
    held: Ns,
}

struct Rx {
    messages: VecDeque<Message>,
    packets: usize,
    locked: bool,
    last_core: Option<usize>,
    held: Ns,
    next_ticket: u64,
    counters: Phase,
    delivery: Phase,
}

impl Rx {
    fn new() -> Self {
        Self {
            messages: VecDeque::new(),
            packets: 0,
            locked: false,
            last_core: None,
            held: 0,
            next_ticket: 0,
            counters: Phase::default(),
            delivery: Phase::default(),
        }
    }
}

/// An engine: TUN queues first, then as many sockets. The pool's rules are those of the engine's `worker_pool.rs`.
struct Engine {
    rx: Vec<Rx>,
    workers: Vec<usize>,
    active: usize,
    delay: Ns,
    next_attempt: Ns,
    last_unpark: Ns,
}

struct Flow {
    backlog: VecDeque<Packet>,
    in_flight: usize,
    unacknowledged: u32,
    /// What it is owed of an acknowledgement.
    owed: f64,
    next_number: u64,
    last_taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Sender(usize),
    Worker(usize),
    Receiver(usize),
    Softirq(usize),
}

impl Role {
    fn kind(self) -> usize {
        match self {
            Role::Sender(_) => 0,
            Role::Worker(engine) => 1 + engine,
            Role::Receiver(_) => 3,
            Role::Softirq(_) => 4,
        }
    }
}

/// What a thread has just done, or waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Begin,
    Made,
    Took,
    Steered,
    Poll { at: usize, found: Found },
    Read { at: usize },
    Prepared,
    Counters,
    Counted,
    Worked,
    Delivery,
    Delivered,
    Handed,
    LockSought { at: usize },
    Looked,
    WentToWait,
    Parked,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    Nothing,
    Locked(usize),
    Work,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Asleep,
    Ready,
    Running,
}

enum Next {
    Run(Ns),
    /// Looks at a condition for as long as the setup says, then sleeps.
    Spin,
    Sleep,
    Again,
}

struct Thread {
    role: Role,
    state: State,
    status: Status,
    core: usize,
    /// Ends of steps that were planned before are void.
    plan: u64,
    spinning: bool,
    spun: bool,
    began: Ns,
    on_core_since: Ns,
    cpu: Ns,
    cpu_warm: Ns,
    slept: Ns,
    asleep_since: Ns,
    sleeps_for_others: bool,
    /// What its wake-ups of others took, to be spent with the next step.
    debt: Ns,
    waits: bool,
    ready_since: Ns,
    batch: Vec<Message>,
    rx: usize,
    ticket: u64,
    inbox: VecDeque<Message>,
    busy_timer: BusyTimer,
    check: BusyTimer,
    time_use: TimeUse,
    idle: Option<(Ns, Ns)>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End { thread: usize, plan: u64 },
    Arrival { peer: usize },
    Tick,
}

/// See the module.
pub struct Sim<'a> {
    costs: &'a Costs,
    setup: Setup,
    now: Ns,
    events: BinaryHeap<Reverse<(Ns, u64, Event)>>,
    planned: u64,
    rng: fastrand::Rng,
    threads: Vec<Thread>,
    /// Who runs on each core.
    cores: Vec<Option<usize>>,
    /// Who waits for each core.
    ready: Vec<VecDeque<usize>>,
    /// Cores busy of late.
    load: f64,
    cpu_at_tick: Ns,
    waited: Ns,
    engines: [Engine; 2],
    flows: Vec<Flow>,
    senders: Vec<usize>,
    receivers: Vec<usize>,
    softirqs: Vec<usize>,
    next_flow: Vec<usize>,
    warm: bool,
    taken_size: f64,
    outcome: Outcome,
}

/// Runs the setup for so long; the first fifth is the warm-up.
pub fn run(costs: &Costs, setup: Setup, duration: Ns, seed: u64) -> Outcome {
    let mut sim = Sim::new(costs, setup, seed);
    sim.run_until(duration / 5);
    sim.end_warm_up();
    sim.run_until(duration);
    sim.outcome(duration - duration / 5)
}

impl<'a> Sim<'a> {
    fn new(costs: &'a Costs, setup: Setup, seed: u64) -> Self {
        let queues = (setup.cores / 2).clamp(1, setup.limits.1);
        let per_peer = match setup.arrivals {
            Arrivals::Tcp { streams, .. } => streams,
            Arrivals::Paced { .. } => 1,
        };
        let mut sim = Self {
            costs,
            setup,
            now: 0,
            events: BinaryHeap::new(),
            planned: 0,
            rng: fastrand::Rng::with_seed(seed),
            threads: Vec::new(),
            cores: vec![None; setup.cores],
            ready: vec![VecDeque::new(); setup.cores],
            load: 0.0,
            cpu_at_tick: 0,
            waited: 0,
            engines: [0, 1].map(|_| Engine {
                rx: (0..2 * queues).map(|_| Rx::new()).collect(),
                workers: Vec::new(),
                active: 1,
                delay: SCALE_UP_DELAY_MIN,
                next_attempt: 0,
                last_unpark: 0,
            }),
            flows: (0..per_peer * setup.peers)
                .map(|_| Flow {
                    backlog: VecDeque::new(),
                    in_flight: 0,
                    unacknowledged: 0,
                    owed: 0.0,
                    next_number: 1,
                    last_taken: 0,
                })
                .collect(),
            senders: Vec::new(),
            receivers: Vec::new(),
            softirqs: Vec::new(),
            next_flow: vec![0; setup.peers],
            warm: false,
            taken_size: 0.0,
            outcome: Outcome::default(),
        };
        for peer in 0..setup.peers {
            let receiver = sim.spawn(Role::Receiver(peer), State::Begin);
            sim.receivers.push(receiver);
            match setup.arrivals {
                Arrivals::Tcp { .. } => {
                    let sender = sim.spawn(Role::Sender(peer), State::Begin);
                    sim.senders.push(sender);
                }
                Arrivals::Paced { every } => {
                    sim.plan(every * peer as u64 / setup.peers as u64, Event::Arrival { peer })
                }
            }
            if setup.softirq == Softirq::Core {
                for direction in 0..2 {
                    let softirq = sim.spawn(Role::Softirq(2 * peer + direction), State::Begin);
                    sim.softirqs.push(softirq);
                }
            }
        }
        for engine in 0..2 {
            for index in 0..setup.cores.min(setup.limits.0) {
                let state = if index == 0 { State::WentToWait } else { State::Parked };
                let worker = sim.spawn(Role::Worker(engine), state);
                sim.engines[engine].workers.push(worker);
            }
        }
        for sender in sim.senders.clone() {
            sim.wake(sender, None);
        }
        sim.plan(TICK, Event::Tick);
        sim
    }

    fn spawn(&mut self, role: Role, state: State) -> usize {
        let thread = self.threads.len();
        self.threads.push(Thread {
            role,
            state,
            status: Status::Asleep,
            core: thread % self.setup.cores,
            plan: 0,
            spinning: false,
            spun: false,
            began: 0,
            on_core_since: 0,
            cpu: 0,
            cpu_warm: 0,
            slept: 0,
            asleep_since: 0,
            sleeps_for_others: false,
            debt: 0,
            waits: false,
            ready_since: 0,
            batch: Vec::new(),
            rx: 0,
            ticket: 0,
            inbox: VecDeque::new(),
            busy_timer: BusyTimer::default(),
            check: BusyTimer::default(),
            time_use: TimeUse::default(),
            idle: None,
        });
        thread
    }

    // --- time and cores ---

    fn plan(&mut self, at: Ns, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((at, self.planned, event)));
    }

    fn run_until(&mut self, end: Ns) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= end)
            && let Some(Reverse((at, _, event))) = self.events.pop()
        {
            self.now = at;
            match event {
                Event::End { thread, plan } if self.threads[thread].plan == plan => self.end_step(thread),
                Event::End { .. } => {}
                Event::Arrival { peer } => self.arrive(peer),
                Event::Tick => self.tick(),
            }
        }
        self.now = end;
    }

    /// The time of a step: lognormal around its mean, and longer the more cores are busy.
    fn drawn(&mut self, mean: Ns) -> Ns {
        let busy = self.cores.iter().flatten().count().max(1);
        let normal = (0..4).map(|_| self.rng.f64()).sum::<f64>() - 2.0;
        let spread = self.costs.spread * normal * 3f64.sqrt();
        let mean = mean as f64 * (spread - self.costs.spread * self.costs.spread / 2.0).exp();
        (mean * self.costs.contention(busy)) as Ns
    }

    fn begin(&mut self, thread: usize, takes: Ns) {
        let at = self.now + takes;
        let it = &mut self.threads[thread];
        it.plan += 1;
        it.began = self.now;
        let plan = it.plan;
        self.plan(at, Event::End { thread, plan });
    }

    fn account(&mut self, thread: usize) {
        let it = &mut self.threads[thread];
        it.cpu += self.now.saturating_sub(it.began);
        it.began = self.now;
    }

    fn end_step(&mut self, thread: usize) {
        self.account(thread);
        self.threads[thread].spinning = false;
        let since = self.threads[thread].on_core_since;
        let it = &self.threads[thread];
        if self.now - since >= TICK && !self.ready[it.core].is_empty() {
            let core = it.core;
            self.ready[core].push_back(thread);
            return self.release(thread, Status::Ready);
        }
        self.advance(thread);
    }

    /// Does what is next, until something takes time.
    fn advance(&mut self, thread: usize) {
        loop {
            match self.step(thread) {
                Next::Again => {}
                Next::Run(mean) => {
                    let takes = self.drawn(mean) + std::mem::take(&mut self.threads[thread].debt);
                    return self.begin(thread, takes);
                }
                Next::Spin if !self.threads[thread].spun => {
                    self.threads[thread].spun = true;
                    self.threads[thread].spinning = true;
                    return self.begin(thread, self.setup.spin);
                }
                Next::Spin => {
                    self.threads[thread].sleeps_for_others = true;
                    return self.release(thread, Status::Asleep);
                }
                Next::Sleep => return self.release(thread, Status::Asleep),
            }
        }
    }

    /// Gives up the core, and gives it to the one that has waited longest.
    fn release(&mut self, thread: usize, status: Status) {
        let it = &mut self.threads[thread];
        it.status = status;
        it.plan += 1;
        it.asleep_since = self.now;
        (it.waits, it.ready_since) = (status == Status::Ready, self.now);
        let core = it.core;
        self.cores[core] = None;
        if let Some(next) = self.ready[core].pop_front() {
            self.start(next, core, self.costs.switch);
        } else {
            self.steal(core, HOT);
        }
    }

    /// An idle core takes a thread that waits for another and has not run for so long.
    fn steal(&mut self, core: usize, for_at_least: Ns) {
        for other in 0..self.cores.len() {
            let waits = |&thread: &usize| self.now - self.threads[thread].asleep_since >= for_at_least;
            if let Some(at) = self.ready[other].iter().position(waits)
                && let Some(thread) = self.ready[other].remove(at)
            {
                return self.start(thread, core, self.costs.wake);
            }
        }
    }

    /// The scheduler balances.
    fn tick(&mut self) {
        for core in 0..self.cores.len() {
            if self.cores[core].is_none() {
                self.steal(core, HOT);
            }
        }
        let busy: Ns = self.threads.iter().map(|thread| thread.cpu).sum();
        let since = std::mem::replace(&mut self.cpu_at_tick, busy);
        // An average with a half-life of eight ticks, as the scheduler's.
        self.load += ((busy - since) as f64 / TICK as f64 - self.load) * 0.083;
        self.plan(self.now + TICK, Event::Tick);
    }

    fn start(&mut self, thread: usize, core: usize, delay: Ns) {
        let it = &mut self.threads[thread];
        it.status = Status::Running;
        it.core = core;
        self.cores[core] = Some(thread);
        let at = self.now + delay;
        let it = &mut self.threads[thread];
        if self.warm && it.waits {
            self.waited += self.now - it.ready_since;
        }
        it.waits = false;
        it.on_core_since = at;
        it.plan += 1;
        // What the way to the core takes is nobody's time.
        it.began = at;
        let plan = it.plan;
        self.plan(at, Event::End { thread, plan });
    }

    /// Wakes a thread, or ends its spinning; nothing if it runs. It gets an idle core; where there is none, it waits
    /// for the waker's if nobody does, or else for the one that it had.
    fn wake(&mut self, thread: usize, waker: Option<usize>) {
        let it = &mut self.threads[thread];
        match it.status {
            Status::Asleep => {
                if std::mem::take(&mut it.sleeps_for_others) {
                    it.slept += self.now - it.asleep_since;
                }
                let last = it.core;
                match self.place(last, waker) {
                    Ok(core) => {
                        if let Some(waker) = waker.and_then(|core| *self.cores.get(core)?) {
                            self.threads[waker].debt += self.costs.kick;
                        }
                        self.start(thread, core, self.costs.wake);
                    }
                    Err(core) => {
                        let it = &mut self.threads[thread];
                        (it.status, it.waits, it.ready_since) = (Status::Ready, true, self.now);
                        self.ready[core].push_back(thread);
                    }
                }
            }
            Status::Running if it.spinning => {
                self.account(thread);
                self.threads[thread].spinning = false;
                self.begin(thread, 0);
            }
            Status::Running | Status::Ready => {}
        }
    }

    /// An idle core for a thread that wakes, or the one to wait for, as Linux chooses (`select_task_rq_fair`): its
    /// waker's if nobody waits there, as that one is about to sleep, or else its own; then some of those after it, the
    /// fewer the busier they all are.
    fn place(&self, last: usize, waker: Option<usize>) -> Result<usize, usize> {
        let alone = waker.filter(|&core| core < self.cores.len() && self.ready[core].is_empty());
        let target = alone.unwrap_or(last);
        let machine = self.setup.machine.max(self.cores.len());
        let load = self.load / machine as f64;
        let scans = ((1.0 - 1.37 * load * load).max(0.0) * machine as f64) as usize;
        let after = (1..self.cores.len().min(scans + 1)).map(|step| (target + step) % self.cores.len());
        [target, last].into_iter().chain(after).find(|&core| self.cores[core].is_none()).ok_or(target)
    }

    fn load(&self) -> CpuLoad {
        match self.threads.iter().filter(|thread| thread.status != Status::Asleep).count() {
            running if running < self.setup.cores => CpuLoad::Spare,
            running if running == self.setup.cores => CpuLoad::Full,
            _ => CpuLoad::Overloaded,
        }
    }

    // --- threads ---

    fn step(&mut self, thread: usize) -> Next {
        match self.threads[thread].role {
            Role::Sender(peer) => self.send(thread, peer),
            Role::Receiver(_) => self.receive(thread),
            Role::Softirq(flow) => self.steer(thread, flow),
            Role::Worker(engine) => self.work(thread, engine),
        }
    }

    /// The sender writes to whichever of its streams has room.
    fn send(&mut self, thread: usize, peer: usize) -> Next {
        let Arrivals::Tcp { streams, window } = self.setup.arrivals else { return Next::Sleep };
        if self.threads[thread].state == State::Made {
            let flow = peer * streams + self.next_flow[peer];
            let packet = self.packet(flow);
            self.flows[flow].backlog.push_back(packet);
            self.transmit(flow, self.threads[thread].core);
        }
        self.threads[thread].state = State::Begin;
        for _ in 0..streams {
            self.next_flow[peer] = (self.next_flow[peer] + 1) % streams;
            let flow = &self.flows[peer * streams + self.next_flow[peer]];
            if flow.backlog.len() + flow.in_flight < 2 * window {
                self.threads[thread].state = State::Made;
                return Next::Run(self.costs.make.of(1, self.setup.size));
            }
        }
        Next::Sleep
    }

    fn packet(&mut self, flow: usize) -> Packet {
        self.outcome.made += 1;
        let number = self.flows[flow].next_number;
        self.flows[flow].next_number += 1;
        Packet { flow, number, size: self.setup.size, acks: 0 }
    }

    fn arrive(&mut self, peer: usize) {
        let Arrivals::Paced { every } = self.setup.arrivals else { return };
        let packet = self.packet(peer);
        self.flows[peer].in_flight += 1;
        self.enqueue(0, self.queue(0, peer, false), Message { packets: vec![packet], core: usize::MAX });
        self.plan(self.now + every, Event::Arrival { peer });
    }

    /// Hands the TUN device what the window allows.
    fn transmit(&mut self, flow: usize, core: usize) {
        let Arrivals::Tcp { streams, window } = self.setup.arrivals else { return };
        while self.flows[flow].in_flight < window
            && let Some(packet) = self.flows[flow].backlog.pop_front()
        {
            self.flows[flow].in_flight += 1;
            self.enqueue(0, self.queue(0, flow / streams, false), Message { packets: vec![packet], core });
        }
        let peer = flow / streams;
        let it = &self.flows[flow];
        // The kernel wakes a writer when a third of its buffer is free.
        if self.threads[self.senders[peer]].status == Status::Asleep
            && 3 * (it.backlog.len() + it.in_flight) <= 4 * window
        {
            self.wake(self.senders[peer], Some(core));
        }
    }

    /// Where a peer's packets wait in an engine.
    fn queue(&self, engine: usize, peer: usize, socket: bool) -> usize {
        let queues = self.engines[engine].rx.len() / 2;
        peer % queues + if socket { queues } else { 0 }
    }

    fn enqueue(&mut self, engine: usize, at: usize, message: Message) {
        let rx = &mut self.engines[engine].rx[at];
        if rx.packets + message.packets.len() > self.setup.room {
            self.lose(&message);
            return;
        }
        rx.packets += message.packets.len();
        let core = message.core;
        rx.messages.push_back(message);
        // The last active worker waits for all queues.
        for index in 0..self.engines[engine].workers.len() {
            let worker = self.engines[engine].workers[index];
            if self.threads[worker].status == Status::Asleep && self.threads[worker].state == State::WentToWait {
                self.wake(worker, Some(core));
            }
        }
    }

    fn lose(&mut self, message: &Message) {
        for packet in &message.packets {
            if packet.acks == 0 {
                self.outcome.dropped += 1;
                self.flows[packet.flow].in_flight -= 1;
            }
        }
    }

    fn receive(&mut self, thread: usize) -> Next {
        if self.threads[thread].state == State::Took
            && let Some(message) = self.threads[thread].inbox.pop_front()
        {
            for packet in message.packets {
                self.outcome.taken += 1;
                let flow = &mut self.flows[packet.flow];
                self.outcome.reordered += u64::from(packet.number <= flow.last_taken);
                flow.last_taken = packet.number;
                if self.warm {
                    self.taken_size += packet.size;
                }
            }
        }
        let Some(message) = self.threads[thread].inbox.front() else {
            self.threads[thread].state = State::Begin;
            return Next::Sleep;
        };
        let size = message.size();
        let takes = self.costs.take.of(1, size) + self.foreign(message.core, self.threads[thread].core, size);
        self.threads[thread].state = State::Took;
        Next::Run(takes)
    }

    /// The kernel's receiving half of an outer flow.
    fn steer(&mut self, thread: usize, flow: usize) -> Next {
        if self.threads[thread].state == State::Steered
            && let Some(mut message) = self.threads[thread].inbox.pop_front()
        {
            let (peer, engine) = (flow / 2, 1 - flow % 2);
            message.core = self.threads[thread].core;
            self.enqueue(engine, self.queue(engine, peer, true), message);
        }
        let Some(message) = self.threads[thread].inbox.front() else {
            self.threads[thread].state = State::Begin;
            return Next::Sleep;
        };
        let takes = self.costs.softirq.of(1, message.size());
        self.threads[thread].state = State::Steered;
        Next::Run(takes)
    }

    /// What it costs more to copy what another core has written.
    fn foreign(&self, from: usize, to: usize, size: f64) -> Ns {
        if from == to || from == usize::MAX { 0 } else { (self.costs.foreign as f64 * size) as Ns }
    }

    fn hand_over(&self, last: Option<usize>, core: usize) -> Ns {
        if last.is_some_and(|last| last != core) { self.costs.hand_over } else { 0 }
    }

    /// A worker, as the engine's `worker.rs` and `poller.rs`.
    fn work(&mut self, thread: usize, engine: usize) -> Next {
        match self.threads[thread].state {
            State::Begin => {
                let it = &mut self.threads[thread];
                it.state = State::Poll { at: 0, found: Found::Nothing };
                Next::Again
            }
            State::Poll { at, found } if at == self.engines[engine].rx.len() => self.end_pass(thread, engine, found),
            State::Poll { at, found } => self.poll(thread, engine, at, found),
            State::Read { at } => self.end_read(thread, engine, at),
            State::Prepared => {
                self.threads[thread].state = State::Counters;
                self.threads[thread].spun = false;
                Next::Again
            }
            State::Counters => {
                let (it, core) = (&self.threads[thread], self.threads[thread].core);
                let phase = &mut self.engines[engine].rx[it.rx].counters;
                if phase.current != it.ticket {
                    return Next::Spin;
                }
                let takes = self.costs.counters + if phase.last_core == Some(core) { 0 } else { self.costs.hand_over };
                phase.last_core = Some(core);
                phase.held += takes;
                self.threads[thread].state = State::Counted;
                Next::Run(takes)
            }
            State::Counted => {
                let (rx, ticket) = (self.threads[thread].rx, self.threads[thread].ticket);
                self.engines[engine].rx[rx].counters.current += 1;
                let core = self.threads[thread].core;
                self.wake_holder(engine, rx, ticket + 1, State::Counters, core);
                self.threads[thread].state = State::Worked;
                self.seal(thread)
            }
            State::Worked => {
                self.threads[thread].state = State::Delivery;
                self.threads[thread].spun = false;
                Next::Again
            }
            State::Delivery => self.deliver(thread, engine),
            State::Delivered => self.hand_over_batch(thread, engine),
            State::Handed => self.end_delivery(thread, engine),
            State::LockSought { at } => {
                if self.engines[engine].rx[at].locked {
                    return Next::Spin;
                }
                self.threads[thread].state = State::Begin;
                Next::Again
            }
            State::Looked => {
                self.threads[thread].state = State::Begin;
                Next::Again
            }
            State::WentToWait => {
                if self.engines[engine].rx.iter().all(|rx| rx.messages.is_empty()) {
                    return Next::Sleep;
                }
                self.start_over(thread);
                self.threads[thread].state = State::Begin;
                Next::Run(self.costs.wait)
            }
            State::Parked => {
                self.start_over(thread);
                self.threads[thread].state = State::Begin;
                Next::Again
            }
            State::Made | State::Took | State::Steered => unreachable!("no state of a worker"),
        }
    }

    fn start_over(&mut self, thread: usize) {
        let it = &mut self.threads[thread];
        it.busy_timer.reset();
        it.check.reset();
        it.time_use.reset();
        it.idle = None;
    }

    fn size(&self, thread: usize) -> f64 {
        self.threads[thread].batch.iter().map(Message::size).sum()
    }

    fn seal(&self, thread: usize) -> Next {
        Next::Run(self.costs.seal.of(1, self.size(thread)) + self.costs.packet * self.packets(thread) as Ns)
    }

    fn packets(&self, thread: usize) -> usize {
        self.threads[thread].batch.iter().map(|message| message.packets.len()).sum()
    }

    fn poll(&mut self, thread: usize, engine: usize, at: usize, found: Found) -> Next {
        let core = self.threads[thread].core;
        let queues = self.engines[engine].rx.len() / 2;
        let hand_over = self.hand_over(self.engines[engine].rx[at].last_core, core);
        let rx = &mut self.engines[engine].rx[at];
        if rx.locked {
            let found = if found == Found::Nothing { Found::Locked(at) } else { found };
            self.threads[thread].state = State::Poll { at: at + 1, found };
            return Next::Again;
        }
        if rx.messages.is_empty() {
            self.threads[thread].state = State::Poll { at: at + 1, found };
            // Most queues that are empty are known to be; see `rx_queue.rs`.
            return if self.rng.usize(..queues.max(4)) == 0 { Next::Run(self.costs.probe) } else { Next::Again };
        }
        rx.locked = true;
        rx.last_core = Some(core);
        let (mut batch, mut size) = (Vec::new(), 0.0);
        let most = if at < queues { BATCH } else { MESSAGES };
        while batch.len() < most
            && (at >= queues || size < FULL)
            && let Some(message) = rx.messages.pop_front()
        {
            rx.packets -= message.packets.len();
            size += message.size();
            batch.push(message);
        }
        let cost = if at < queues { self.costs.read } else { self.costs.recv }.of(batch.len(), size);
        let foreign: Ns = batch.iter().map(|message| self.foreign(message.core, core, message.size())).sum();
        let it = &mut self.threads[thread];
        it.batch = batch;
        it.rx = at;
        it.state = State::Read { at };
        let takes = cost + foreign + hand_over;
        self.engines[engine].rx[at].held += takes;
        Next::Run(takes)
    }

    fn end_read(&mut self, thread: usize, engine: usize, at: usize) -> Next {
        let queues = self.engines[engine].rx.len() / 2;
        let rx = &mut self.engines[engine].rx[at];
        let ticket = rx.next_ticket;
        rx.next_ticket += 1;
        rx.locked = false;
        let core = self.threads[thread].core;
        self.wake_lock(engine, at, core);
        self.threads[thread].ticket = ticket;
        let (size, packets) = (self.size(thread), self.packets(thread));
        if at < queues {
            self.threads[thread].state = State::Prepared;
            Next::Run(self.costs.split.of(1, size))
        } else {
            self.threads[thread].state = State::Worked;
            Next::Run(self.costs.open.of(1, size) + self.costs.packet * packets as Ns)
        }
    }

    fn deliver(&mut self, thread: usize, engine: usize) -> Next {
        let (rx, ticket, core) = {
            let it = &self.threads[thread];
            (it.rx, it.ticket, it.core)
        };
        let queues = self.engines[engine].rx.len() / 2;
        let (size, packets) = (self.size(thread), self.packets(thread));
        let acks = self.threads[thread].batch.iter().flat_map(|message| &message.packets);
        let acks = acks.filter(|packet| packet.acks > 0).count();
        let phase = &mut self.engines[engine].rx[rx].delivery;
        if phase.current != ticket {
            return Next::Spin;
        }
        let mut takes = if rx < queues {
            let inline = if self.setup.softirq == Softirq::Inline { self.costs.softirq.of(1, size) } else { 0 };
            self.costs.send.of(1, size) + inline
        } else {
            self.costs.write.of(packets - acks, size) + self.costs.write_ack * acks as Ns
        };
        if phase.last_core.is_some_and(|last| last != core) {
            takes += self.costs.hand_over;
        }
        phase.last_core = Some(core);
        phase.held += takes;
        self.threads[thread].state = State::Delivered;
        if self.setup.early
            && let Some(next) = self.holder(engine, rx, ticket + 1, State::Delivery)
        {
            self.threads[next].spun = false;
            self.wake(next, Some(core));
        }
        Next::Run(takes)
    }

    /// The call ends: what it delivered is there, and whoever waited for it is woken, still in the delivery phase.
    fn hand_over_batch(&mut self, thread: usize, engine: usize) -> Next {
        let (rx, core) = (self.threads[thread].rx, self.threads[thread].core);
        let queues = self.engines[engine].rx.len() / 2;
        let batch = std::mem::take(&mut self.threads[thread].batch);
        if rx < queues {
            self.send_out(engine, batch, core);
        } else {
            for message in batch {
                self.hand_in(engine, message, core);
            }
        }
        self.engines[engine].rx[rx].delivery.held += self.threads[thread].debt;
        self.threads[thread].state = State::Handed;
        Next::Run(0)
    }

    fn end_delivery(&mut self, thread: usize, engine: usize) -> Next {
        let (rx, ticket, core) = {
            let it = &self.threads[thread];
            (it.rx, it.ticket, it.core)
        };
        self.engines[engine].rx[rx].delivery.current += 1;
        self.wake_holder(engine, rx, ticket + 1, State::Delivery, core);
        self.threads[thread].state = State::Poll { at: rx + 1, found: Found::Work };
        Next::Again
    }

    /// To the other engine's socket; the packets of one peer are a GSO batch.
    fn send_out(&mut self, engine: usize, batch: Vec<Message>, core: usize) {
        let mut packets: Vec<Packet> = batch.into_iter().flat_map(|message| message.packets).collect();
        while let Some(first) = packets.first() {
            let peer = self.peer(first.flow);
            let end = packets.iter().position(|packet| self.peer(packet.flow) != peer).unwrap_or(packets.len());
            let rest = packets.split_off(end);
            let message = Message { packets: std::mem::replace(&mut packets, rest), core };
            match self.setup.softirq {
                Softirq::Inline => self.enqueue(1 - engine, self.queue(1 - engine, peer, true), message),
                Softirq::Core => {
                    let softirq = self.softirqs[2 * peer + engine];
                    self.threads[softirq].inbox.push_back(message);
                    self.wake(softirq, Some(core));
                }
            }
        }
    }

    fn peer(&self, flow: usize) -> usize {
        flow / (self.flows.len() / self.setup.peers)
    }

    /// To the hosts: data to the receiver, which TCP acknowledges; acknowledgements to the sender's TCP.
    fn hand_in(&mut self, engine: usize, message: Message, core: usize) {
        let mut data = Vec::new();
        for packet in message.packets {
            let flow = packet.flow;
            if packet.acks > 0 {
                self.flows[flow].in_flight -= packet.acks as usize;
                self.transmit(flow, core);
                continue;
            }
            data.push(packet);
            let it = &mut self.flows[flow];
            if matches!(self.setup.arrivals, Arrivals::Paced { .. }) {
                it.in_flight -= 1;
                continue;
            }
            it.unacknowledged += 1;
            it.owed += self.setup.acks;
            if it.owed >= 1.0 || it.unacknowledged as usize >= it.in_flight {
                it.owed = (it.owed - 1.0).max(0.0);
                let acks = std::mem::take(&mut it.unacknowledged);
                let at = self.queue(engine, self.peer(flow), false);
                let packets = vec![Packet { flow, number: 0, size: 0.0, acks }];
                self.enqueue(engine, at, Message { packets, core });
            }
        }
        if let Some(first) = data.first() {
            let receiver = self.receivers[self.peer(first.flow)];
            self.threads[receiver].inbox.push_back(Message { packets: data, core });
            self.wake(receiver, Some(core));
        }
    }

    fn wake_holder(&mut self, engine: usize, rx: usize, ticket: u64, state: State, core: usize) {
        if let Some(holder) = self.holder(engine, rx, ticket, state) {
            self.wake(holder, Some(core));
        }
    }

    /// Who has come to a phase with this ticket.
    fn holder(&self, engine: usize, rx: usize, ticket: u64, state: State) -> Option<usize> {
        self.engines[engine].workers.iter().copied().find(|&worker| {
            let it = &self.threads[worker];
            it.state == state && it.rx == rx && it.ticket == ticket
        })
    }

    fn wake_lock(&mut self, engine: usize, at: usize, core: usize) {
        for index in 0..self.engines[engine].workers.len() {
            let worker = self.engines[engine].workers[index];
            if self.threads[worker].state == (State::LockSought { at }) {
                self.wake(worker, Some(core));
            }
        }
    }

    fn end_pass(&mut self, thread: usize, engine: usize, found: Found) -> Next {
        let active = self.engines[engine].active;
        match found {
            Found::Work if self.should_park(thread, engine) => self.park(thread, engine),
            Found::Work => {
                self.threads[thread].state = State::Begin;
                Next::Again
            }
            Found::Locked(at) => {
                self.threads[thread].spun = false;
                self.threads[thread].state = State::LockSought { at };
                Next::Again
            }
            Found::Nothing if active > 1 && self.should_look_again(thread, engine) => {
                self.threads[thread].state = State::Looked;
                Next::Run(self.costs.probe)
            }
            Found::Nothing => self.park(thread, engine),
        }
    }

    fn workers(&self, engine: usize) -> Workers {
        Workers { active: self.engines[engine].active, share: (self.setup.cores / 2).max(1) }
    }

    fn measure(&mut self, thread: usize) {
        let (now, it) = (self.now, &mut self.threads[thread]);
        if it.time_use.is_due(now) {
            it.time_use.conclude(Moment { now, cpu: it.cpu, slept: it.slept, waited: 0 });
        }
    }

    fn should_park(&mut self, thread: usize, engine: usize) -> bool {
        let now = self.now;
        if let Some((first, last)) = self.threads[thread].idle.take() {
            self.threads[thread].time_use.add_idle(last - first);
        }
        self.measure(thread);
        let (workers, shares) = (self.workers(engine), self.threads[thread].time_use.shares());
        let delay = self.engines[engine].delay;
        if self.threads[thread].busy_timer.elapsed(now, delay) && now >= self.engines[engine].next_attempt {
            self.engines[engine].next_attempt = now + delay;
            if scaling::should_unpark(self.load(), workers, shares) {
                self.unpark(engine, self.threads[thread].core);
            } else {
                self.back_off(engine);
            }
        }
        let due = self.threads[thread].check.elapsed(now, SCALE_UP_DELAY_MIN);
        due && scaling::should_leave(|| self.load(), workers, shares)
    }

    fn should_look_again(&mut self, thread: usize, engine: usize) -> bool {
        let now = self.now;
        self.threads[thread].busy_timer.reset();
        self.measure(thread);
        let (first, _) = self.threads[thread].idle.unwrap_or((now, now));
        self.threads[thread].idle = Some((first, now));
        let shares = self.threads[thread].time_use.shares();
        scaling::should_look_again(now - first, || self.load(), self.workers(engine), shares)
    }

    fn unpark(&mut self, engine: usize, core: usize) {
        let parked = |&worker: &usize| {
            self.threads[worker].state == State::Parked && self.threads[worker].status == Status::Asleep
        };
        let Some(worker) = self.engines[engine].workers.iter().copied().find(parked) else { return };
        self.engines[engine].last_unpark = self.now;
        self.engines[engine].active += 1;
        self.outcome.unparked += 1;
        self.wake(worker, Some(core));
    }

    fn back_off(&mut self, engine: usize) {
        self.engines[engine].delay = SCALE_UP_DELAY_MAX.min(2 * self.engines[engine].delay);
    }

    fn park(&mut self, thread: usize, engine: usize) -> Next {
        if self.engines[engine].active == 1 {
            self.threads[thread].state = State::WentToWait;
            return Next::Run(self.costs.wait);
        }
        self.engines[engine].active -= 1;
        match self.now - self.engines[engine].last_unpark {
            USEFUL_MIN.. => self.engines[engine].delay = SCALE_UP_DELAY_MIN,
            _ => self.back_off(engine),
        }
        self.threads[thread].state = State::Parked;
        Next::Sleep
    }

    // --- results ---

    fn end_warm_up(&mut self) {
        self.warm = true;
        for thread in 0..self.threads.len() {
            if self.threads[thread].status == Status::Running && self.threads[thread].began < self.now {
                self.account(thread);
            }
            self.threads[thread].cpu_warm = self.threads[thread].cpu;
        }
        for rx in self.engines.iter_mut().flat_map(|engine| &mut engine.rx) {
            (rx.held, rx.counters.held, rx.delivery.held) = (0, 0, 0);
        }
    }

    fn outcome(mut self, measured: Ns) -> Outcome {
        for thread in 0..self.threads.len() {
            if self.threads[thread].status == Status::Running && self.threads[thread].began < self.now {
                self.account(thread);
            }
            let it = &self.threads[thread];
            let busy = (it.cpu - it.cpu_warm) as f64 / measured as f64;
            let kind = it.role.kind();
            self.outcome.busy[kind] += busy;
            self.outcome.busiest[kind] = self.outcome.busiest[kind].max(busy);
        }
        for (engine, serial) in self.engines.iter().zip(&mut self.outcome.serial) {
            for rx in &engine.rx {
                for (most, held) in serial.iter_mut().zip([rx.held, rx.counters.held, rx.delivery.held]) {
                    *most = most.max(held as f64 / measured as f64);
                }
            }
        }
        let data = |messages: &mut dyn Iterator<Item = &Message>| {
            messages.flat_map(|message| &message.packets).filter(|packet| packet.acks == 0).count() as u64
        };
        let queued = self.engines.iter().flat_map(|engine| &engine.rx).map(|rx| data(&mut rx.messages.iter()));
        let held = self.threads.iter().map(|thread| data(&mut thread.batch.iter().chain(&thread.inbox)));
        let backlog = self.flows.iter().map(|flow| flow.backlog.len() as u64);
        self.outcome.waiting = self.waited as f64 / measured as f64;
        self.outcome.queued = queued.chain(held).chain(backlog).sum();
        self.outcome.rate = self.taken_size * 1e9 / measured as f64;
        self.outcome
    }
}
