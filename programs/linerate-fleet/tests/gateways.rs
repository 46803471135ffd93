//! Laws of what gateways do with each other, in a simulated network with loss, delay, reordering and partitions, with
//! wrong clocks, and with gateways that crash, stop for a while and go on, or drain.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use linerate_control::keys::SecretKey;
use linerate_control::uapi::fleet::Initiate;
use linerate_fleet::gateway::envelope::Envelopes;
use linerate_fleet::gateway::machine::{Action, Machine, Order, PEER_EVERY, TICK};
use linerate_fleet::gateway::members::{DEAD_AFTER, Now};
use linerate_fleet::gateway::message::{Forwarded, HINTS_MAX, Heartbeat, Message, PeerHint, Stamp};
use linerate_fleet::gateway::peers::{Change, stamp};
use linerate_fleet::seal::MessageKey;
use proptest::prelude::*;

const STEP: u64 = 10;
const POLL: u64 = 100;
const SKEW_MAX: Duration = Duration::from_millis(100);
/// 1970 is far.
const EPOCH: u64 = 1_800_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    Crash(u8),
    Restart(u8),
    /// For so many milliseconds.
    Stop(u8, u16),
    Drain(u8),
    /// Its datagrams to and from others are lost, and it does not see the store.
    CutOff(u8),
    Join(u8),
    /// A client's datagrams arrive at another gateway.
    Reroute(u32, u8),
}

#[derive(Clone, Copy, Debug)]
struct Network {
    loss_percent: u8,
    delay_max: u64,
    skew_max: i64,
    store: bool,
}

#[derive(PartialEq)]
enum State {
    Runs,
    Stopped { until: u64 },
    Dead,
}

struct Gateway {
    machine: Machine,
    envelopes: Envelopes,
    state: State,
    skew: i64,
    cut_off: Option<u64>,
    died: Option<u64>,
    changes: BTreeMap<u32, Change>,
    /// The hints that the daemon was told, and what it has sent itself.
    floors: HashMap<u32, Option<Stamp>>,
    endpoints: HashMap<u32, SocketAddr>,
    completing: Vec<(u64, u32, SocketAddr)>,
    inbox: VecDeque<(u8, Vec<u8>)>,
    before: BTreeMap<u32, PeerHint>,
}

struct Client {
    endpoint: SocketAddr,
    owner: u8,
    arrives: u8,
    floor: Stamp,
}

struct Initiation {
    at: u64,
    gateway: u8,
    number: u32,
    to: SocketAddr,
}

struct World {
    now: u64,
    rng: fastrand::Rng,
    network: Network,
    gateways: Vec<Gateway>,
    clients: Vec<Client>,
    wire: Vec<(u64, u8, u8, Vec<u8>)>,
    initiations: Vec<Initiation>,
    injected: usize,
    refused_by_client: usize,
}

impl World {
    fn new(seed: u64, gateways: u8, clients: u32, network: Network) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let skews: Vec<i64> = (0..gateways).map(|_| rng.i64(-network.skew_max..=network.skew_max)).collect();
        let clients: Vec<Client> = (0..clients)
            .map(|number| {
                let gateway = rng.u8(0..gateways);
                let endpoint = SocketAddr::from(([192, 0, 2, 1], 1000 + number as u16));
                Client { endpoint, owner: gateway, arrives: gateway, floor: [0; 12] }
            })
            .collect();
        let gateways =
            skews.iter().enumerate().map(|(me, &skew)| gateway(me as u8, gateways, skew, clients.len() as u32, 0));
        let mut world = Self {
            now: 0,
            rng,
            network,
            gateways: gateways.collect(),
            clients: Vec::new(),
            wire: Vec::new(),
            initiations: Vec::new(),
            injected: 0,
            refused_by_client: 0,
        };
        for (number, client) in clients.into_iter().enumerate() {
            let now = world.at(client.owner);
            let change = Change {
                number: number as u32,
                endpoint: Some(client.endpoint),
                received: Some(stamp(now.wall)),
                seen: now.wall.as_secs(),
                sent: None,
            };
            world.gateways[usize::from(client.owner)].changes.insert(change.number, change);
            world.clients.push(client);
        }
        world.run(2000, &mut |_| {});
        world
    }

    fn at(&self, gateway: u8) -> Now {
        let wall = (EPOCH + self.now).saturating_add_signed(self.gateways[usize::from(gateway)].skew);
        Now { monotonic: Duration::from_millis(self.now), wall: Duration::from_millis(wall) }
    }

    fn runs(&self, gateway: u8) -> bool {
        self.gateways[usize::from(gateway)].state == State::Runs
    }

    fn run(&mut self, ms: u64, law: &mut dyn FnMut(&World)) {
        let until = self.now + ms;
        while self.now < until {
            self.step();
            law(self);
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        for gateway in &mut self.gateways {
            if matches!(gateway.state, State::Stopped { until } if until <= now) {
                gateway.state = State::Runs;
            }
        }
        self.deliver();
        for gateway in 0..self.gateways.len() as u8 {
            if !self.runs(gateway) {
                continue;
            }
            let (at, mut actions) = (self.at(gateway), Vec::new());
            self.complete(gateway);
            // The clocks of the gateways do not tick together.
            let phase = now + 10 * u64::from(gateway);
            let this = &mut self.gateways[usize::from(gateway)];
            while let Some((from, bytes)) = this.inbox.pop_front() {
                if let Some(message) =
                    this.envelopes.open(at.monotonic, from, &bytes).expect("the message is authentic and new")
                {
                    this.machine.message(at, from, message, &mut actions);
                }
            }
            let sees_store = self.network.store && this.cut_off.is_none();
            if phase.is_multiple_of(POLL) {
                let changes: Vec<_> = std::mem::take(&mut this.changes).into_values().collect();
                this.machine.changes(at, &changes);
            }
            if phase.is_multiple_of(TICK.as_millis() as u64) {
                this.machine.set_store(sees_store, false);
                this.machine.tick(at, &mut actions);
            }
            self.carry_out(gateway, actions);
            self.hints_never_move_backwards(gateway);
        }
        if now.is_multiple_of(50) {
            (0..self.clients.len() as u32).for_each(|number| self.client_sends(number));
        }
        // Routers notice that a gateway is gone.
        for number in 0..self.clients.len() {
            let arrives = usize::from(self.clients[number].arrives);
            if self.gateways[arrives].died.is_some_and(|died| now > died + 300) {
                let alive: Vec<u8> = (0..self.gateways.len() as u8).filter(|gateway| self.runs(*gateway)).collect();
                if let Some(gateway) = self.rng.choice(alive) {
                    self.clients[number].arrives = gateway;
                }
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.wire).into_iter().partition(|(at, ..)| *at <= now);
        self.wire = later;
        for (_, from, to, bytes) in due {
            let is_cut = |gateway: u8| self.gateways[usize::from(gateway)].cut_off.is_some();
            let is_cut = is_cut(from) || is_cut(to);
            let gateway = &mut self.gateways[usize::from(to)];
            // A socket's buffer holds so many.
            if !is_cut && gateway.state != State::Dead && gateway.inbox.len() < 250 {
                gateway.inbox.push_back((from, bytes));
            }
        }
    }

    fn client_sends(&mut self, number: u32) {
        let client = &self.clients[number as usize];
        let (arrives, owner) = (client.arrives, client.owner);
        if arrives != owner && self.runs(arrives) {
            let bytes = forwarded(owner, number, client.endpoint, 100);
            let (at, mut actions) = (self.at(arrives), Vec::new());
            self.gateways[usize::from(arrives)].machine.forwarded(at, &bytes, &mut actions);
            self.carry_out(arrives, actions);
        }
    }

    fn carry_out(&mut self, gateway: u8, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { to, bytes } => {
                    assert!(Message::decode(&bytes).is_some());
                    let bytes = self.gateways[usize::from(gateway)].envelopes.seal(to, &bytes);
                    if self.rng.u8(0..100) >= self.network.loss_percent {
                        let delay = self.rng.u64(0..=self.network.delay_max);
                        self.wire.push((self.now + delay, gateway, to, bytes));
                    }
                }
                Action::Tell(orders) => orders.iter().for_each(|order| self.daemon_is_told(gateway, order)),
                Action::Inject { .. } => self.injected += 1,
            }
        }
    }

    fn daemon_is_told(&mut self, gateway: u8, order: &Order) {
        let wall = self.at(gateway).wall;
        let this = &mut self.gateways[usize::from(gateway)];
        let floor = this.floors.entry(order.number).or_default();
        *floor = order.sent.max(*floor);
        this.endpoints.extend(order.endpoint.map(|endpoint| (order.number, endpoint)));
        let Some(to) = this.endpoints.get(&order.number).copied().filter(|_| order.initiate != Initiate::No) else {
            return;
        };
        // Our own timestamps are above the floor.
        let mut sent = stamp(wall);
        if floor.is_some_and(|floor| sent <= floor) {
            sent = floor.unwrap_or(sent);
            sent[11] += 1;
        }
        *floor = Some(sent);
        let change = this.changes.entry(order.number).or_default();
        (change.number, change.sent) = (order.number, Some(sent));
        self.initiations.push(Initiation { at: self.now, gateway, number: order.number, to });
        let client = &mut self.clients[order.number as usize];
        if to == client.endpoint {
            if sent > client.floor {
                client.floor = sent;
                this.completing.push((self.now + 20, order.number, to));
            } else {
                self.refused_by_client += 1;
            }
        }
    }

    fn complete(&mut self, gateway: u8) {
        let (now, wall) = (self.now, self.at(gateway).wall);
        let this = &mut self.gateways[usize::from(gateway)];
        let (due, later) = std::mem::take(&mut this.completing).into_iter().partition(|(at, ..)| *at <= now);
        this.completing = later;
        let due: Vec<(u64, u32, SocketAddr)> = due;
        for (_, number, endpoint) in due {
            self.clients[number as usize].owner = gateway;
            let change = this.changes.entry(number).or_default();
            (change.number, change.endpoint, change.seen) = (number, Some(endpoint), wall.as_secs());
        }
    }

    fn hints_never_move_backwards(&mut self, gateway: u8) {
        let clients = self.clients.len();
        let this = &mut self.gateways[usize::from(gateway)];
        for number in 0..clients as u32 {
            let Some(hint) = this.machine.hint_of(number) else { continue };
            if let Some(before) = this.before.insert(number, hint) {
                assert!((hint.claim, hint.owner) >= (before.claim, before.owner));
                assert!(hint.sent >= before.sent && hint.received >= before.received);
            }
        }
        let [peers, members, others, daemon, queue] = this.machine.remembered();
        assert!(peers == clients && members < 32 && others <= peers && daemon <= peers && queue <= peers);
    }

    fn apply(&mut self, event: Event) {
        let count = self.gateways.len() as u8;
        let (now, clients) = (self.now, self.clients.len() as u32);
        match event {
            Event::Crash(gateway) => {
                let this = &mut self.gateways[usize::from(gateway % count)];
                (this.state, this.died) = (State::Dead, Some(now));
                (this.inbox, this.completing) = Default::default();
            }
            Event::Restart(at) if self.gateways[usize::from(at % count)].state == State::Dead => {
                let this = &mut self.gateways[usize::from(at % count)];
                let (skew, cut_off) = (this.skew, this.cut_off);
                *this = Gateway { cut_off, ..gateway(at % count, count, skew, clients, now) };
            }
            Event::Restart(_) => {}
            Event::Stop(gateway, ms) => {
                let this = &mut self.gateways[usize::from(gateway % count)];
                if this.state == State::Runs {
                    (this.state, this.died) = (State::Stopped { until: now + u64::from(ms) }, Some(now));
                }
            }
            Event::Drain(gateway) => self.gateways[usize::from(gateway % count)].machine.set_drains(true),
            Event::CutOff(gateway) => self.gateways[usize::from(gateway % count)].cut_off = Some(now),
            Event::Join(gateway) => self.gateways[usize::from(gateway % count)].cut_off = None,
            Event::Reroute(number, gateway) => self.clients[(number % clients) as usize].arrives = gateway % count,
        }
    }
}

fn gateway(me: u8, count: u8, skew: i64, clients: u32, started: u64) -> Gateway {
    let key = MessageKey::new(&SecretKey::from_bytes(&[7; 32]), &"berlin".parse().unwrap(), 1);
    let mut machine = Machine::new(me, SKEW_MAX);
    machine.set_members(&(0..count).map(|gateway| (gateway, 1)).collect());
    machine.set_peers(0..clients);
    machine.set_serves(true);
    Gateway {
        machine,
        envelopes: Envelopes::new(me, (1 + started) << 8 | u64::from(me), key),
        state: State::Runs,
        skew,
        cut_off: None,
        died: None,
        changes: BTreeMap::new(),
        floors: HashMap::new(),
        endpoints: HashMap::new(),
        completing: Vec::new(),
        inbox: VecDeque::new(),
        before: BTreeMap::new(),
    }
}

fn forwarded(gateway: u8, number: u32, source: SocketAddr, length: usize) -> Vec<u8> {
    Forwarded { gateway, number, source, datagram: &vec![4; length] }.encode()
}

const CALM: Network = Network { loss_percent: 0, delay_max: 20, skew_max: 40, store: true };

fn events(count: u8) -> impl Strategy<Value = Vec<(u64, Event)>> {
    let gateway = 0..count;
    let event = prop_oneof![
        3 => gateway.clone().prop_map(Event::Crash),
        2 => gateway.clone().prop_map(Event::Restart),
        2 => (gateway.clone(), 100u16..12_000).prop_map(|(gateway, ms)| Event::Stop(gateway, ms)),
        1 => gateway.clone().prop_map(Event::Drain),
        3 => (any::<u32>(), gateway).prop_map(|(number, gateway)| Event::Reroute(number, gateway)),
    ];
    prop::collection::vec((100u64..4000, event), 0..8)
}

/// For each peer, no two gateways that both lived on have initiated within an interval, and no gateway twice.
fn one_initiates(world: &World, deaths: &[(u8, u64)]) {
    let mut last: HashMap<u32, &Initiation> = HashMap::new();
    for initiation in &world.initiations {
        if let Some(before) = last.insert(initiation.number, initiation) {
            let died = deaths.iter().any(|(gateway, at)| {
                (*gateway == before.gateway || *gateway == initiation.gateway)
                    && (before.at.saturating_sub(500)..=initiation.at).contains(at)
            });
            let apart = Duration::from_millis(initiation.at - before.at);
            assert!(
                apart >= PEER_EVERY || died,
                "{} ms apart, at {}: peer {} by {} and {}; {deaths:?}",
                apart.as_millis(),
                initiation.at,
                initiation.number,
                before.gateway,
                initiation.gateway
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn at_most_one_gateway_initiates_for_a_peer_while_heartbeats_flow(seed: u64, events in events(4)) {
        let mut world = World::new(seed, 4, 12, CALM);
        let mut deaths = Vec::new();
        for (after, event) in events {
            world.run(after, &mut |_| {});
            if let Event::Crash(gateway) | Event::Stop(gateway, _) = event {
                deaths.push((gateway, world.now));
            }
            world.apply(event);
        }
        world.run(6000, &mut |_| {});
        one_initiates(&world, &deaths);
        prop_assert_eq!(world.refused_by_client, 0);
    }

    #[test]
    fn after_a_crash_every_client_is_at_a_living_gateway_soon(seed: u64, dead in 0u8..3, loss_percent in 0u8..5) {
        let mut world = World::new(seed, 3, 40, Network { loss_percent, ..CALM });
        world.apply(Event::Crash(dead));
        world.run(if loss_percent == 0 { 1000 } else { 8000 }, &mut |_| {});
        let lost = world.clients.iter().filter(|client| client.owner == dead).count();
        prop_assert_eq!(lost, 0);
        // One initiation each was enough, and no client that had a living gateway was disturbed.
        if loss_percent == 0 {
            one_initiates(&world, &[]);
        }
    }

    #[test]
    fn a_gateway_in_a_minority_without_the_store_initiates_for_nobody(seed: u64, events in events(5), cut in 0u8..5) {
        let mut world = World::new(seed, 5, 12, Network { loss_percent: 5, delay_max: 80, ..CALM });
        world.apply(Event::CutOff(cut));
        let since = world.now + DEAD_AFTER.as_millis() as u64 + 100;
        for (after, event) in events {
            world.run(after, &mut |_| {});
            world.apply(event);
            // All that came to others now comes to it.
            (0..12).for_each(|number| world.apply(Event::Reroute(number, cut)));
        }
        world.run(3000, &mut |_| {});
        let by_it = world.initiations.iter().filter(|initiation| initiation.gateway == cut && initiation.at > since);
        prop_assert_eq!(by_it.count(), 0);
    }

    #[test]
    fn nothing_goes_wrong_in_a_bad_network(
        seed: u64, events in events(4), cuts in prop::collection::vec((0u8..4, any::<bool>()), 8),
        loss_percent in 0u8..60, delay_max in 0u64..400,
    ) {
        let store = seed.is_multiple_of(2);
        let mut world = World::new(seed, 4, 8, Network { loss_percent, delay_max, skew_max: 3000, store });
        for ((after, event), (gateway, cut)) in events.into_iter().zip(cuts) {
            world.run(after, &mut |_| {});
            world.apply(event);
            world.apply(if cut { Event::CutOff(gateway) } else { Event::Join(gateway) });
        }
        world.run(3000, &mut |_| {});
    }

    #[test]
    fn an_unverified_source_is_sent_no_more_than_came_from_it(
        seed: u64,
        forged in prop::collection::vec((0u8..4, 0u32..12, 0u8..20, 1usize..300), 0..2000),
    ) {
        let mut world = World::new(seed, 4, 12, CALM);
        world.apply(Event::Crash(0));
        let mut balance: HashMap<IpAddr, i64> = HashMap::new();
        for (gateway, number, host, length) in forged {
            let source = SocketAddr::from(([198, 51, 100, host], 9));
            let arrives = 1 + (number % 3) as u8;
            *balance.entry(source.ip()).or_default() += length as i64;
            let (at, mut actions) = (world.at(arrives), Vec::new());
            world.gateways[usize::from(arrives)].machine.forwarded(at, &forwarded(gateway, number, source, length), &mut actions);
            world.carry_out(arrives, actions);
            if world.rng.u8(0..4) == 0 {
                world.step();
            }
        }
        world.run(1000, &mut |_| {});
        for initiation in &world.initiations {
            if initiation.to != world.clients[initiation.number as usize].endpoint {
                let balance = balance.entry(initiation.to.ip()).or_default();
                *balance -= 148;
                prop_assert!(*balance >= 0);
            }
        }
        one_initiates(&world, &[]);
    }
}

#[test]
fn forged_indices_at_any_rate_cost_at_most_the_budget() {
    let clients = 5000;
    let mut machine = Machine::new(0, SKEW_MAX);
    machine.set_members(&BTreeMap::from([(0, 1), (1, 1)]));
    machine.set_peers(0..clients);
    machine.set_serves(true);
    machine.set_store(true, false);
    let at = |ms| Now { monotonic: Duration::from_millis(ms), wall: Duration::from_millis(EPOCH + ms) };
    let hints: Vec<PeerHint> = (0..clients)
        .map(|number| PeerHint { number, owner: 1, claim: 1, endpoint: Some(SEVEN), seen: 1, ..PeerHint::default() })
        .collect();
    for hints in hints.chunks(HINTS_MAX) {
        let message = Message::Hints { gateway: 1, hints: hints.to_vec() };
        machine.message(at(0), 1, &message.encode(), &mut Vec::new());
    }
    let (mut rng, mut initiated) = (fastrand::Rng::with_seed(1), 0);
    for ms in 0..4000 {
        let mut actions = Vec::new();
        if ms % 50 == 0 {
            machine.tick(at(ms), &mut actions);
        }
        // 10,000 a second, of a gateway that is not there.
        for _ in 0..10 {
            let source = SocketAddr::from(([198, 51, rng.u8(..), rng.u8(..)], 9));
            machine.forwarded(at(ms), &forwarded(1, rng.u32(0..clients), source, 200), &mut actions);
        }
        initiated += actions
            .iter()
            .filter_map(|action| if let Action::Tell(orders) = action { Some(orders) } else { None })
            .flatten()
            .filter(|order| order.initiate != Initiate::No)
            .count();
    }
    assert!((400..=4 * 200).contains(&initiated), "{initiated}");
}

#[test]
fn a_drain_moves_every_client_and_disturbs_no_other() {
    let mut world = World::new(7, 3, 40, CALM);
    let there = world.clients.iter().filter(|client| client.owner == 1).count();
    assert!(there > 0);
    world.apply(Event::Drain(1));
    world.run(3000, &mut |world| {
        // The draining gateway still serves each client that has not moved.
        assert!(world.runs(1));
    });
    assert!(world.clients.iter().all(|client| client.owner != 1));
    assert_eq!(world.initiations.len(), there);
    let at = world.at(1);
    assert!(world.gateways[1].machine.status(at).is_drained);
    // What its clients send still arrives there, and is passed on.
    assert!(world.injected > 0);
}

#[test]
fn a_route_that_moves_while_its_gateway_lives_moves_no_session() {
    let mut world = World::new(3, 3, 10, CALM);
    let owners: Vec<u8> = world.clients.iter().map(|client| client.owner).collect();
    (0..10).for_each(|number| world.apply(Event::Reroute(number, 2)));
    world.run(5000, &mut |_| {});
    assert_eq!(owners, world.clients.iter().map(|client| client.owner).collect::<Vec<_>>());
    assert!(world.initiations.is_empty() && world.injected > 100);
}

#[test]
fn a_daemon_that_was_started_again_recovers_its_own_clients() {
    let mut world = World::new(5, 3, 20, CALM);
    let owned = world.clients.iter().filter(|client| client.owner == 0).count();
    assert!(owned > 0);
    world.gateways[0].machine.daemon_started();
    world.gateways[0].changes.clear();
    world.run(2000, &mut |_| {});
    assert_eq!(world.initiations.iter().filter(|initiation| initiation.gateway == 0).count(), owned);
    assert_eq!(world.initiations.len(), owned);
}

#[test]
fn a_gateway_that_joins_is_told_everything() {
    let mut world = World::new(9, 3, 500, CALM);
    world.apply(Event::Crash(0));
    world.run(3000, &mut |_| {});
    world.apply(Event::Restart(0));
    world.run(3000, &mut |_| {});
    for number in 0..500 {
        let [a, b] = [0, 1].map(|gateway: usize| world.gateways[gateway].machine.hint_of(number).unwrap());
        assert_eq!((a.owner, a.claim, a.received), (b.owner, b.claim, b.received));
        assert!(a.claim != 0);
    }
}

#[test]
fn the_latest_seen_are_taken_over_first() {
    let mut machine = Machine::new(0, SKEW_MAX);
    machine.set_members(&BTreeMap::from([(0, 1), (1, 1)]));
    machine.set_peers(0..1000);
    machine.set_serves(true);
    machine.set_store(true, false);
    let at = |ms| Now { monotonic: Duration::from_millis(ms), wall: Duration::from_millis(EPOCH + ms) };
    let endpoint = |number: u32| SocketAddr::from(([192, 0, 2, 1], 1000 + number as u16));
    let hint = |number: u32| PeerHint {
        number,
        owner: 1,
        claim: 1,
        endpoint: Some(endpoint(number)),
        seen: (EPOCH / 1000) as u32 - number % 150,
        ..PeerHint::default()
    };
    for numbers in (0..1000).collect::<Vec<u32>>().chunks(20) {
        let hints = numbers.iter().map(|number| hint(*number)).collect();
        machine.message(at(0), 1, &Message::Hints { gateway: 1, hints }.encode(), &mut Vec::new());
    }
    let mut seen = Vec::new();
    for ms in (0..3000).step_by(50) {
        let mut actions = Vec::new();
        if ms == 1000 {
            machine.forwarded(at(ms), &forwarded(1, 149, endpoint(149), 32), &mut actions);
        }
        machine.tick(at(ms), &mut actions);
        for action in actions {
            if let Action::Tell(orders) = action {
                let initiated = orders.iter().filter(|order| order.initiate != Initiate::No).map(|order| order.number);
                seen.extend(initiated.map(|number| hint(number).seen));
            }
        }
        assert!(ms >= 1000 || seen.is_empty(), "nobody is taken over before data comes");
    }
    assert_eq!(seen.len(), 1000);
    // All but the one whose data came.
    assert!(seen[1..].is_sorted_by(|a, b| a >= b));
}

/// Two gateways, of which the other has peer 7 at 192.0.2.1:1 and beats until one second.
fn beside_another() -> Machine {
    beside_one_ahead(0)
}

/// The same; the other's clock is ahead.
fn beside_one_ahead(seconds: i64) -> Machine {
    let ahead = |time: u64, unit: i64| time.saturating_add_signed(seconds * unit);
    let mut machine = Machine::new(0, SKEW_MAX);
    machine.set_members(&BTreeMap::from([(0, 1), (1, 1)]));
    machine.set_peers(0..10);
    machine.set_serves(true);
    machine.set_store(true, false);
    let seen = ahead(EPOCH / 1000, 1) as u32;
    let hint = PeerHint { number: 7, owner: 1, claim: 1, endpoint: Some(SEVEN), seen, ..PeerHint::default() };
    for at in (0..=1000).step_by(50) {
        let wall = ahead(ms(at).wall.as_nanos() as u64, 1_000_000_000);
        let heartbeat =
            Heartbeat { gateway: 1, takes: true, sequence: at + 1, started: 1, wall, ..Heartbeat::default() };
        machine.message(ms(at), 1, &Message::Heartbeat(heartbeat).encode(), &mut Vec::new());
        machine.tick(ms(at), &mut Vec::new());
    }
    machine.message(ms(1000), 1, &Message::Hints { gateway: 1, hints: vec![hint] }.encode(), &mut Vec::new());
    machine.tick(ms(1000), &mut Vec::new());
    machine
}

const SEVEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1);

fn ms(at: u64) -> Now {
    Now { monotonic: Duration::from_millis(at), wall: Duration::from_millis(EPOCH + at) }
}

/// What comes of data of a gateway's session with peer 7: whether it is passed on, and whether the peer is initiated to.
fn data_of(machine: &mut Machine, at: u64, gateway: u8) -> (bool, bool) {
    let mut actions = Vec::new();
    machine.forwarded(ms(at), &forwarded(gateway, 7, SEVEN, 32), &mut actions);
    let is_forward = |bytes: &[u8]| matches!(Message::decode(bytes), Some(Message::Forward(_)));
    let forwards = actions.iter().any(|action| matches!(action, Action::Send { bytes, .. } if is_forward(bytes)));
    (
        forwards,
        actions.iter().any(|action| matches!(action, Action::Tell(orders) if orders[0].initiate != Initiate::No)),
    )
}

#[test]
fn data_is_passed_on_to_a_living_gateway_and_answered_for_a_dead_one() {
    let mut machine = beside_another();
    assert_eq!(data_of(&mut machine, 1000, 1), (true, false));
    (1050..1400).step_by(50).for_each(|at| machine.tick(ms(at), &mut Vec::new()));
    assert_eq!(data_of(&mut machine, 1400, 1), (false, true));
    // Once in five seconds.
    assert_eq!(data_of(&mut machine, 1450, 1), (false, false));
}

#[test]
fn of_a_dead_gateway_all_active_clients_are_taken_over_whatever_its_clock_was() {
    for ahead in [0, 3600, -3600] {
        let mut machine = beside_one_ahead(ahead);
        let wall = EPOCH.saturating_add_signed(ahead * 1000) / 1000;
        let hint = |number: u32, seen| {
            let endpoint = Some(SocketAddr::from(([192, 0, 2, 2], number as u16)));
            PeerHint { number, owner: 1, claim: 1, endpoint, seen, ..PeerHint::default() }
        };
        let hints = vec![hint(1, wall as u32), hint(2, wall as u32 - 200)];
        machine.message(ms(1000), 1, &Message::Hints { gateway: 1, hints }.encode(), &mut Vec::new());
        (1050..2500).step_by(50).for_each(|at| machine.tick(ms(at), &mut Vec::new()));
        let active = machine.status(ms(2500)).gateways[&1].peers;
        assert_eq!(data_of(&mut machine, 2500, 1), (false, true), "{ahead}");
        let mut actions = Vec::new();
        (2550..3000).step_by(50).for_each(|at| machine.tick(ms(at), &mut actions));
        let told =
            actions.iter().filter_map(|action| if let Action::Tell(orders) = action { Some(orders) } else { None });
        let initiated: Vec<u32> =
            told.flatten().filter(|order| order.initiate != Initiate::No).map(|order| order.number).collect();
        // Number 2 was last seen too long ago to have a session.
        assert_eq!((active, &initiated[..]), (2, &[1][..]), "{ahead}");
    }
}

#[test]
fn a_peer_that_had_another_gateway_meanwhile_is_taken_over_again() {
    let mut machine = beside_another();
    (1050..1400).step_by(50).for_each(|at| machine.tick(ms(at), &mut Vec::new()));
    assert_eq!(data_of(&mut machine, 1400, 1), (false, true));
    // It comes back, and has the peer and one more.
    let eight = SocketAddr::from(([192, 0, 2, 1], 8));
    let seen = (EPOCH / 1000) as u32 + 2;
    let hint = |number, endpoint| {
        let endpoint = Some(endpoint);
        PeerHint { number, owner: 1, claim: EPOCH + 2000, endpoint, seen, ..PeerHint::default() }
    };
    let mut actions = Vec::new();
    for at in (1450..=8000).step_by(50) {
        let wall = ms(at).wall.as_nanos() as u64;
        let heartbeat =
            Heartbeat { gateway: 1, takes: true, sequence: at + 1, started: 2, wall, ..Heartbeat::default() };
        machine.message(ms(at), 1, &Message::Heartbeat(heartbeat).encode(), &mut actions);
        if at == 2000 {
            let hints = vec![hint(7, SEVEN), hint(8, eight)];
            machine.message(ms(at), 1, &Message::Hints { gateway: 1, hints }.encode(), &mut actions);
        }
        machine.tick(ms(at), &mut actions);
    }
    actions.clear();
    (8050..8400).step_by(50).for_each(|at| machine.tick(ms(at), &mut actions));
    // Only the other one sends.
    machine.forwarded(ms(8400), &forwarded(1, 8, eight, 32), &mut actions);
    (8450..9000).step_by(50).for_each(|at| machine.tick(ms(at), &mut actions));
    let orders =
        actions.iter().filter_map(|action| if let Action::Tell(orders) = action { Some(orders) } else { None });
    let mut initiated: Vec<u32> =
        orders.flatten().filter(|order| order.initiate != Initiate::No).map(|order| order.number).collect();
    initiated.sort_unstable();
    assert_eq!(initiated, [7, 8]);
}

#[test]
fn an_address_that_somebody_made_up_is_looked_at_once() {
    let mut machine = beside_another();
    (1050..1400).step_by(50).for_each(|at| machine.tick(ms(at), &mut Vec::new()));
    assert_eq!(data_of(&mut machine, 1400, 1), (false, true));
    (1450..6500).step_by(50).for_each(|at| machine.tick(ms(at), &mut Vec::new()));
    let (made_up, mut actions) = (SocketAddr::from(([203, 0, 113, 9], 9)), Vec::new());
    machine.forwarded(ms(6500), &forwarded(1, 7, made_up, 200), &mut actions);
    (6550..15_000).step_by(50).for_each(|at| machine.tick(ms(at), &mut actions));
    let orders =
        actions.iter().filter_map(|action| if let Action::Tell(orders) = action { Some(orders) } else { None });
    let told: Vec<_> = orders.flatten().map(|order| (order.number, order.endpoint, order.initiate)).collect();
    let again = [(7, Some(SEVEN), Initiate::No), (7, Some(SEVEN), Initiate::Now)];
    assert_eq!((told[0], &told[1..]), ((7, Some(made_up), Initiate::Once), &again[..]));
}

#[test]
fn whom_nobody_knows_the_place_of_is_not_looked_for() {
    let mut machine = beside_another();
    (1050..2000).step_by(50).for_each(|at| machine.tick(ms(at), &mut Vec::new()));
    let (made_up, mut actions) = (SocketAddr::from(([203, 0, 113, 9], 9)), Vec::new());
    machine.forwarded(ms(2000), &forwarded(1, 8, made_up, 200), &mut actions);
    (2050..9000).step_by(50).for_each(|at| machine.tick(ms(at), &mut actions));
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Tell(orders) if orders.iter().any(|order| order.number == 8)))
    );
}

#[test]
fn times_far_ahead_of_the_clock_are_refused() {
    let before = beside_another().hint_of(7);
    let ones = [0xff; 12];
    let now = PeerHint { number: 7, owner: 1, claim: 2, endpoint: Some(SEVEN), seen: 1, ..PeerHint::default() };
    let hints = [
        PeerHint { claim: u64::MAX, ..now },
        PeerHint { claim: EPOCH + 12_000, ..now },
        PeerHint { seen: u32::MAX, ..now },
        PeerHint { claim: 0, sent: Some(ones), ..now },
        PeerHint { claim: 0, received: Some(ones), ..now },
        PeerHint { claim: u64::MAX, sent: Some(ones), received: Some(ones), seen: u32::MAX, ..now },
    ];
    for hint in hints {
        let mut machine = beside_another();
        machine.message(ms(1000), 1, &Message::Hints { gateway: 1, hints: vec![hint] }.encode(), &mut Vec::new());
        assert_eq!(machine.hint_of(7), before, "{hint:?}");
        assert!(machine.counters.refused_times > 0, "{hint:?}");
    }
    let mut machine = beside_another();
    let latest = PeerHint { claim: EPOCH + 11_000, received: Some(stamp(ms(11_000).wall)), ..now };
    machine.message(ms(1000), 1, &Message::Hints { gateway: 1, hints: vec![latest] }.encode(), &mut Vec::new());
    assert_eq!((machine.hint_of(7), machine.counters.refused_times), (Some(latest), 0));
}

#[test]
fn a_gateway_that_does_not_hear_the_others_takes_over_from_nobody() {
    let mut machine = beside_another();
    machine.set_hears(false);
    (1050..1400).step_by(50).for_each(|at| machine.tick(ms(at), &mut Vec::new()));
    assert_eq!(data_of(&mut machine, 1400, 1), (false, false));
    assert!(!machine.status(ms(1400)).initiates);
    assert_eq!(machine.counters.initiated, 0);
    machine.set_hears(true);
    (1450..2500).step_by(50).for_each(|at| machine.tick(ms(at), &mut Vec::new()));
    assert_eq!(machine.counters.initiated, 1);
}

#[test]
fn a_gateway_that_was_stopped_takes_nobody_for_dead_when_it_goes_on() {
    let mut machine = beside_another();
    assert_eq!(data_of(&mut machine, 11_000, 1), (true, false));
}

#[test]
fn a_session_that_our_own_daemon_has_lost_is_made_anew() {
    let mut machine = beside_another();
    machine.changes(ms(1000), &[]);
    let (endpoint, seen) = (Some(SEVEN), EPOCH / 1000 + 1);
    machine.changes(ms(1010), &[Change { number: 7, endpoint, seen, ..Change::default() }]);
    assert!(machine.is_here(7));
    // Of an earlier session of a peer that has one.
    assert_eq!(data_of(&mut machine, 1020, 0), (false, false));
    machine.daemon_started();
    machine.changes(ms(1030), &[]);
    // Not before all is known that the others have taken over.
    assert_eq!(data_of(&mut machine, 1040, 0), (false, false));
    machine.message(ms(1050), 1, &Message::TableEnd { gateway: 1 }.encode(), &mut Vec::new());
    assert_eq!(data_of(&mut machine, 1060, 0), (false, true));
}

#[test]
fn of_a_peer_that_is_added_while_the_store_is_watched_the_daemon_is_told_that_it_is_new() {
    let mut machine = beside_another();
    machine.set_peers(0..11);
    assert_eq!(machine.hint_of(10).and_then(|hint| hint.received), None, "it may have been there before");
    let mut actions = Vec::new();
    (1050..5000).step_by(50).for_each(|at| machine.tick(ms(at), &mut actions));
    machine.set_peers(0..12);
    actions.clear();
    machine.tick(ms(5000), &mut actions);
    let order = Order { number: 11, endpoint: None, sent: None, received: Some([0; 12]), initiate: Initiate::No };
    assert!(actions.contains(&Action::Tell(vec![order])), "{actions:?}");
}

#[test]
fn an_order_of_long_ago_is_not_carried_out() {
    let take = |machine: &mut Machine, at| {
        let hint = machine.hint_of(7).unwrap();
        let mut actions = Vec::new();
        machine.message(ms(at), 1, &Message::Take { gateway: 1, hints: vec![hint] }.encode(), &mut actions);
        !actions.is_empty()
    };
    let mut stopped = beside_another();
    assert!(!take(&mut stopped, 11_000));
    assert!(take(&mut beside_another(), 1000));
}
