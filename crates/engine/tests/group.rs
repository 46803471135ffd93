//! Groups: gateways with different keys, of which one has the traffic and another takes over. Whole engines.
#![cfg(feature = "fleet")]

mod hosts;

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hosts::{Clock, Host, settle, udp};
use linerate_engine::config::{ConfigError, DeviceChange, GroupChange, PeerChange};
use linerate_netio::memory::MemoryNet;
use linerate_protocol::{Prefix, PublicKey};
use proptest::prelude::*;

const STEP: Duration = Duration::from_millis(10);
const LATENCY: Duration = Duration::from_millis(1);
/// The least patience with a silent member, and a few packets.
const BOUND: Duration = Duration::from_millis(330);

/// The address behind the gateways, which each of them has.
const SERVICE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));

/// A client with a group of gateways.
struct World {
    clock: Clock,
    client: Host,
    gates: Vec<Gate>,
}

struct Gate {
    host: Host,
    /// It runs. Otherwise what comes is read once it does again.
    runs: bool,
    /// It answers echo requests, and datagrams if the client waits for answers.
    answers: bool,
    /// Datagrams that arrived, and when the last one did.
    arrived: usize,
}

/// What the client's programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    None,
    /// 100 datagrams a second, none answered.
    Upload,
    /// The same, all answered.
    Echo,
}

impl World {
    fn new(gates: u8) -> Self {
        let (net, clock) = (MemoryNet::new(1000), Clock::new());
        let mut client = Host::new(&net, &clock, 1);
        let gates: Vec<Gate> = (2..2 + gates)
            .map(|seed| {
                let mut host = Host::new(&net, &clock, seed);
                host.add_peer(&client);
                Gate { host, runs: true, answers: true, arrived: 0 }
            })
            .collect();
        for gate in &gates {
            client.set_peer(member(&gate.host, &client, "berlin"));
        }
        Self { clock, client, gates }
    }

    /// Lets time pass; returns the longest time in which no datagram arrived anywhere.
    fn run(&mut self, time: Duration, traffic: Traffic) -> Duration {
        let (mut longest, mut silent) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.clock.advance(STEP - 2 * LATENCY);
            if traffic != Traffic::None {
                self.client.send(&udp(self.client.inner, SERVICE, b"datagram"));
            }
            let before = self.arrived();
            self.settle(traffic);
            silent = if self.arrived() > before { Duration::ZERO } else { silent + STEP };
            longest = longest.max(silent);
        }
        longest
    }

    /// The client's packets reach the gateways, and theirs reach the client.
    fn settle(&mut self, traffic: Traffic) {
        settle(&mut [&mut self.client]);
        self.clock.advance(LATENCY);
        for gate in self.gates.iter_mut().filter(|gate| gate.runs) {
            settle(&mut [&mut gate.host]);
            gate.serve(traffic);
            settle(&mut [&mut gate.host]);
        }
        self.clock.advance(LATENCY);
        settle(&mut [&mut self.client]);
        while self.client.receive().is_some() {}
    }

    fn arrived(&self) -> usize {
        self.gates.iter().map(|gate| gate.arrived).sum()
    }

    fn counter(&self, name: &str) -> u64 {
        let list = self.client.shared.counters.list();
        list.iter().find(|(counter, _)| counter == name).unwrap().1
    }

    fn moves(&self) -> u64 {
        self.counter("group_moves")
    }

    /// The datagrams that the client has sent to anybody.
    fn sends(&self) -> u64 {
        let sockets = self.client.shared.sockets.load();
        sockets.as_ref().unwrap().v4[0].1.writes.load(Ordering::Relaxed)
    }

    /// The gateways that have allowed IPs at the client.
    fn active(&mut self) -> Vec<usize> {
        let report = self.client.slow_path.get();
        let has = |gate: &Gate| {
            report.peers.iter().any(|peer| peer.public_key == gate.host.public_key && !peer.allowed_ips.is_empty())
        };
        self.gates.iter().enumerate().filter(|(_, gate)| has(gate)).map(|(index, _)| index).collect()
    }

    fn key(&self, gate: usize) -> PublicKey {
        self.gates[gate].host.public_key
    }
}

impl Gate {
    /// Takes what has arrived, and answers.
    fn serve(&mut self, traffic: Traffic) {
        while let Some((_, packet)) = self.host.receive() {
            let is_echo_request = packet[9] == 1 && packet[20] == 8;
            if !is_echo_request {
                self.arrived += 1;
            }
            if self.answers && (is_echo_request || traffic == Traffic::Echo) {
                let mut answer = packet.clone();
                answer[12..16].copy_from_slice(&packet[16..20]);
                answer[16..20].copy_from_slice(&packet[12..16]);
                self.host.send(&answer);
            }
        }
    }
}

fn prefix() -> Prefix {
    Prefix::new([10, 9, 0, 0].into(), 16).unwrap()
}

fn member(gate: &Host, client: &Host, group: &str) -> PeerChange {
    PeerChange {
        endpoint: Some(gate.outer),
        replace_allowed_ips: true,
        allowed_ips: vec![(true, prefix())],
        group: GroupChange { name: Some(group.into()), check: Some((client.inner, SERVICE)) },
        ..PeerChange::new(gate.public_key)
    }
}

fn change(host: &mut Host, change: PeerChange) -> Result<(), ConfigError> {
    host.slow_path.set(DeviceChange { peers: vec![change], ..DeviceChange::default() })
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_dead_gateway_is_left_within_the_bound() {
    for traffic in [Traffic::Upload, Traffic::Echo] {
        for pause in 0..20 {
            let mut world = World::new(2);
            assert!(world.run(secs(2), traffic) <= STEP);
            world.run(STEP * pause, traffic);
            world.gates[0].runs = false;
            let gap = world.run(secs(2), traffic);
            assert!(gap <= BOUND, "{traffic:?}: {gap:?}");
            assert_eq!((world.active(), world.moves()), (vec![1], 1));
            assert!(world.run(secs(300), traffic) <= STEP);
            assert_eq!(world.moves(), 1);
        }
    }
}

#[test]
fn a_gateway_that_died_while_nothing_was_sent_is_left_with_the_first_data() {
    for idle in [1, 60, 170, 600] {
        let mut world = World::new(2);
        world.run(secs(2), Traffic::Upload);
        world.run(secs(idle), Traffic::None);
        world.gates[0].runs = false;
        world.run(secs(1), Traffic::None);
        // Without a session, the one in use and the other begin a handshake at the same time.
        let gap = world.run(secs(3), Traffic::Upload);
        assert!(gap <= BOUND, "after {idle} s: {gap:?}");
        assert_eq!(world.active(), [1]);
    }
}

#[test]
fn a_gateway_that_answers_is_not_left_however_one_way_the_traffic_is() {
    let mut world = World::new(2);
    assert!(world.run(secs(400), Traffic::Upload) <= STEP);
    assert_eq!((world.active(), world.moves()), (vec![0], 0));
    assert!(world.counter("group_echoes") > 0);
}

#[test]
fn a_client_that_stood_still_does_not_take_its_gateway_for_dead() {
    for pause in 0..30 {
        let mut world = World::new(2);
        world.run(secs(2) + STEP * pause, Traffic::Upload);
        // In some of the cases the client has just asked, and the answer lies in its socket; the slow path runs first.
        world.clock.advance(STEP);
        world.client.send(&udp(world.client.inner, SERVICE, b"datagram"));
        settle(&mut [&mut world.client]);
        let gate = &mut world.gates[0];
        settle(&mut [&mut gate.host]);
        gate.serve(Traffic::Upload);
        settle(&mut [&mut gate.host]);
        world.clock.advance(secs(2));
        world.client.slow_path.process();
        world.run(secs(2), Traffic::Upload);
        assert_eq!((world.active(), world.moves()), (vec![0], 0), "after {pause} steps");
    }
}

#[test]
fn traffic_both_ways_needs_no_echo_request() {
    let mut world = World::new(2);
    world.run(secs(400), Traffic::Echo);
    assert_eq!((world.moves(), world.counter("group_echoes")), (0, 0));
}

#[test]
fn another_gateway_is_ready_for_as_long_as_one_is_in_use() {
    let mut world = World::new(3);
    world.run(secs(1000), Traffic::Echo);
    // With the one in use and one more, each renewed after two minutes.
    let handshakes = world.counter("handshakes_done");
    assert!((16..=20).contains(&handshakes), "{handshakes} handshakes");
    world.gates[0].runs = false;
    assert!(world.run(secs(2), Traffic::Echo) <= BOUND);
    let taken = world.active();
    assert_eq!(taken, [1]);
    // Meanwhile the third has become the next.
    world.gates[1].runs = false;
    assert!(world.run(secs(2), Traffic::Echo) <= BOUND);
    assert_eq!(world.active(), [2]);
}

#[test]
fn a_gateway_that_comes_back_gets_nothing_until_the_other_fails() {
    let mut world = World::new(2);
    world.run(secs(2), Traffic::Echo);
    world.gates[0].runs = false;
    world.run(secs(10), Traffic::Echo);
    world.gates[0].runs = true;
    assert!(world.run(secs(300), Traffic::Echo) <= STEP);
    assert_eq!((world.active(), world.moves()), (vec![1], 1));
    world.gates[1].runs = false;
    assert!(world.run(secs(2), Traffic::Echo) <= BOUND);
    assert_eq!(world.active(), [0]);
}

#[test]
fn when_all_are_silent_the_first_that_is_back_gets_the_traffic() {
    for back in [0, 1] {
        let mut world = World::new(2);
        world.run(secs(2), Traffic::Upload);
        world.gates.iter_mut().for_each(|gate| gate.runs = false);
        world.run(secs(40), Traffic::Upload);
        assert!(world.moves() <= 1);
        world.gates[back].runs = true;
        let gap = world.run(secs(10), Traffic::Upload);
        assert!(gap <= secs(6), "{gap:?}");
        assert!(world.run(secs(60), Traffic::Upload) <= STEP);
        assert_eq!(world.active(), [back]);
    }
}

#[test]
fn gateways_that_shake_hands_and_carry_nothing_are_tried_ever_more_seldom() {
    let mut world = World::new(2);
    world.gates.iter_mut().for_each(|gate| gate.answers = false);
    world.run(secs(600), Traffic::Upload);
    let first = world.moves();
    world.run(secs(600), Traffic::Upload);
    assert!(first <= 30 && world.moves() - first <= 20, "{first}, then {}", world.moves() - first);
}

#[test]
fn a_gateway_alone_keeps_its_allowed_ips_whatever_happens() {
    let mut world = World::new(1);
    world.run(secs(2), Traffic::Upload);
    world.gates[0].runs = false;
    world.run(secs(30), Traffic::Upload);
    assert_eq!((world.active(), world.moves()), (vec![0], 0));
    world.gates[0].runs = true;
    assert!(world.run(secs(10), Traffic::Upload) <= secs(6));
}

#[test]
fn the_first_member_has_the_allowed_ips_and_a_removed_one_leaves_them_to_the_next() {
    let mut world = World::new(3);
    assert_eq!(world.active(), [0]);
    // In use or not, with a session or without.
    world.run(secs(1), Traffic::Echo);
    let key = world.key(0);
    change(&mut world.client, PeerChange { remove: true, ..PeerChange::new(key) }).unwrap();
    assert_eq!(world.active(), [1]);
    assert!(world.run(secs(1), Traffic::Echo) <= STEP);
    let key = world.key(1);
    let leave = GroupChange { name: Some(String::new()), check: None };
    change(&mut world.client, PeerChange { group: leave.clone(), ..PeerChange::new(key) }).unwrap();
    assert_eq!(world.active(), [2]);
    // The last that leaves keeps them.
    let key = world.key(2);
    change(&mut world.client, PeerChange { group: leave, ..PeerChange::new(key) }).unwrap();
    assert_eq!(world.active(), [2]);
    assert!(world.run(secs(1), Traffic::Echo) <= STEP);
}

#[test]
fn allowed_ips_of_a_member_are_those_of_the_group() {
    let mut world = World::new(2);
    let other = Prefix::new([10, 8, 0, 0].into(), 16).unwrap();
    let key = world.key(1);
    change(&mut world.client, PeerChange { allowed_ips: vec![(true, other)], ..PeerChange::new(key) }).unwrap();
    assert_eq!(world.active(), [0]);
    assert_eq!(world.client.slow_path.get().peers[0].allowed_ips.len(), 2);
    // That one which has none shall have none changes nothing.
    change(&mut world.client, PeerChange { replace_allowed_ips: true, ..PeerChange::new(key) }).unwrap();
    assert_eq!(world.client.slow_path.get().peers[0].allowed_ips.len(), 2);
    change(&mut world.client, PeerChange { allowed_ips: vec![(false, other)], ..PeerChange::new(key) }).unwrap();
    assert_eq!(world.client.slow_path.get().peers[0].allowed_ips, [prefix()]);
}

#[test]
fn a_member_of_another_group_takes_its_own_prefixes_nowhere() {
    let mut world = World::new(3);
    let away = PeerChange { allowed_ips: Vec::new(), ..member(&world.gates[0].host, &world.client, "paris") };
    change(&mut world.client, away).unwrap();
    assert_eq!(world.active(), [1]);
    let back = PeerChange { allowed_ips: Vec::new(), ..member(&world.gates[0].host, &world.client, "berlin") };
    change(&mut world.client, back).unwrap();
    assert_eq!(world.active(), [1]);
}

#[test]
fn a_member_of_which_nothing_can_be_asked_is_refused() {
    let mut world = World::new(1);
    let mut unchecked = PeerChange::new(PublicKey([9; 32]));
    unchecked.group.name = Some("berlin".into());
    assert!(matches!(change(&mut world.client, unchecked), Err(ConfigError::NoCheck)));
    // A member keeps what it has.
    let again = GroupChange { name: Some("paris".into()), check: None };
    let key = world.key(0);
    change(&mut world.client, PeerChange { group: again, ..PeerChange::new(key) }).unwrap();
    assert_eq!(world.active(), [0]);
}

#[test]
fn packets_for_a_gateway_that_never_answered_reach_another() {
    let mut world = World::new(2);
    world.gates[0].runs = false;
    world.client.send(&udp(world.client.inner, SERVICE, b"first"));
    world.run(secs(2), Traffic::None);
    assert_eq!((world.active(), world.gates[1].arrived), (vec![1], 1));
}

#[derive(Clone, Debug)]
enum Event {
    Runs(usize, bool),
    Answers(usize, bool),
    Traffic(Traffic),
    Remove(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let traffic = prop_oneof![Just(Traffic::None), Just(Traffic::Upload), Just(Traffic::Echo)];
    prop_oneof![
        4 => (0..3usize, any::<bool>()).prop_map(|(gate, runs)| Event::Runs(gate, runs)),
        2 => (0..3usize, any::<bool>()).prop_map(|(gate, answers)| Event::Answers(gate, answers)),
        3 => traffic.prop_map(Event::Traffic),
        1 => (0..3usize).prop_map(Event::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happened_one_has_the_allowed_ips_and_nothing_is_sent_while_idle(
        events in prop::collection::vec((event(), 1..200u64), 1..30),
    ) {
        let mut world = World::new(3);
        let (mut traffic, mut gone) = (Traffic::Echo, [false; 3]);
        for (event, centiseconds) in events {
            match event {
                Event::Runs(gate, runs) => world.gates[gate].runs = runs,
                Event::Answers(gate, answers) => world.gates[gate].answers = answers,
                Event::Traffic(now) => traffic = now,
                Event::Remove(gate) => {
                    gone[gate] = true;
                    let key = world.key(gate);
                    change(&mut world.client, PeerChange { remove: true, ..PeerChange::new(key) }).unwrap();
                }
            }
            world.run(STEP * centiseconds as u32 * 5, traffic);
            let active = world.active();
            prop_assert_eq!(active.len(), usize::from(gone != [true; 3]));
            prop_assert!(active.iter().all(|gate| !gone[*gate]));
        }
        // Handshakes that packets wait for are repeated for 90 s, and the last data is confirmed after 10 s.
        let idle = |world: &mut World, seconds: u64| (0..seconds).for_each(|_| {
            world.clock.advance(secs(1) - 2 * LATENCY);
            world.settle(Traffic::None);
        });
        idle(&mut world, 140);
        let sent = world.sends();
        for second in 0..700 {
            idle(&mut world, 1);
            prop_assert_eq!(world.sends(), sent, "after {} s", second);
        }
        prop_assert_eq!(world.client.slow_path.deadline(), None);
        // And one that runs and answers is found.
        world.gates.iter_mut().for_each(|gate| (gate.runs, gate.answers) = (true, true));
        if gone != [true; 3] {
            world.run(secs(8), Traffic::Upload);
            prop_assert!(world.run(secs(5), Traffic::Upload) <= STEP);
        }
    }
}
