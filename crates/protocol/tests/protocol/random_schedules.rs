//! Random schedules of loss, delay, reordering, duplication, traffic and time: nothing is delivered twice or
//! altered, and over a good link both ends recover.
//!
//! The simulation asserts at every step that no two live sessions share an index, that no unconfirmed or
//! removed session seals, and that a peer has at most three sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use crate::simulation::{Link, Net, can_open};

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Wait(Duration),
    ChangeLink(Link),
    Rebind(usize, u16),
    Restart(usize),
    Suspend(usize),
    Backlog(usize, usize),
    ExhaustUnseenSources(usize),
    WallClock(i32),
}

fn link() -> impl Strategy<Value = Link> {
    (0u64..400, 0u64..800, prop_oneof![Just(0u64), 0u64..60, Just(100u64)], 0u64..50).prop_map(
        |(delay, jitter, loss, duplication)| Link {
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            loss,
            duplication,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..2).prop_map(Step::Send),
        5 => (0u64..2000).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
        2 => (0u64..200).prop_map(|secs| Step::Wait(Duration::from_secs(secs))),
        2 => link().prop_map(Step::ChangeLink),
        1 => (0usize..2, 1u16..9).prop_map(|(node, port)| Step::Rebind(node, port)),
        1 => (0usize..2).prop_map(Step::Restart),
        1 => (0usize..2).prop_map(Step::Suspend),
        1 => (0usize..2, prop_oneof![4 => Just(0), 3 => Just(600)]).prop_map(|(node, backlog)| Step::Backlog(node, backlog)),
        // Seldom, because exhausting the quota in every period is slow.
        1 => proptest::bool::weighted(0.1).prop_map(|exhaust| if exhaust { Step::ExhaustUnseenSources(1) } else { Step::Backlog(1, 0) }),
        1 => (-100_000i32..100_000).prop_map(Step::WallClock),
    ]
}

/// Runs the steps and returns the net and the number of packets sent.
fn run_steps(seed: u64, steps: &[Step]) -> (Net, u32) {
    let mut net = Net::pair(seed);
    let mut number = 0u32;
    for step in steps {
        match *step {
            Step::Send(from) => {
                net.send(from, &number.to_le_bytes());
                number += 1;
            }
            Step::Wait(time) => net.run_for(time),
            Step::ChangeLink(link) => net.link = link,
            Step::Rebind(node, port) => net.nodes[node].addr.set_port(51820 + port),
            Step::Restart(node) => net.call(node, |node, now, rng| {
                node.device.down(&mut node.host);
                node.device.up(now, rng, &mut node.host);
            }),
            Step::Suspend(node) => net.call(node, |node, now, _| node.device.resumed(now, &mut node.host)),
            Step::Backlog(node, backlog) => net.nodes[node].backlog = backlog,
            Step::ExhaustUnseenSources(node) => net.exhaust_unseen_sources(node),
            Step::WallClock(secs) => {
                let step = Duration::from_secs(secs.unsigned_abs().into());
                net.now.wall = if secs < 0 { net.now.wall - step } else { net.now.wall + step };
            }
        }
    }
    (net, number)
}

fn assert_nothing_twice_or_altered(net: &Net, numbered: u32) {
    for node in &net.nodes {
        let mut seen = BTreeSet::new();
        for packet in node.data_received() {
            let number = u32::from_le_bytes(packet.try_into().expect("packets are four bytes"));
            assert!(number < numbered, "a packet that was never sent");
            assert!(seen.insert(number), "packet {number} twice");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn after_any_faults_a_good_link_lets_both_ends_recover(seed: u64, steps in proptest::collection::vec(step(), 0..80)) {
        let (mut net, numbered) = run_steps(seed, &steps);
        // From now on the link is good, and each end sends every second. The 15 s of silence, two cookie exchanges
        // and the 5 s between attempts bound the recovery. Each end may have the other's old port.
        net.link = Link::GOOD;
        for (node, addr) in [(0, net.nodes[1].addr), (1, net.nodes[0].addr)] {
            let peer = net.nodes[node].peer();
            net.nodes[node].host.endpoints.insert(peer, addr);
            net.nodes[node].backlog = 0;
            net.call(node, |node, now, rng| node.device.endpoint_set(now, rng, peer, &mut node.host));
        }
        net.run_with_traffic(Duration::from_secs(32), Duration::from_secs(1), &[0, 1], &u32::MAX.to_le_bytes());
        for node in 0..2 {
            let before = net.nodes[node].data_received().len();
            net.send(1 - node, &u32::MAX.to_le_bytes());
            net.run_for(Duration::from_millis(21));
            prop_assert_eq!(net.nodes[node].data_received().len(), before + 1);
        }
        prop_assert!(can_open(&net, 0, 1) && can_open(&net, 1, 0));
        for node in &mut net.nodes {
            node.host.received.retain(|(_, _, packet)| *packet != u32::MAX.to_le_bytes());
        }
        assert_nothing_twice_or_altered(&net, numbered);
    }

    #[test]
    fn without_traffic_all_timers_stop(seed: u64, steps in proptest::collection::vec(step(), 0..60)) {
        let (mut net, _) = run_steps(seed, &steps);
        net.run_for(Duration::from_secs(2000));
        for node in &net.nodes {
            prop_assert_eq!(node.device.deadline(), None);
            prop_assert!(node.host.sessions.is_empty() && node.host.sending.is_empty());
        }
    }

    #[test]
    fn a_device_never_starts_handshakes_faster_than_the_limit(seed: u64, steps in proptest::collection::vec(step(), 0..80)) {
        let (net, _) = run_steps(seed, &steps);
        let restarts = steps.iter().filter(|step| matches!(step, Step::Restart(_))).count();
        for node in &net.nodes {
            let times = node.times(linerate_protocol::MessageKind::Initiation);
            let too_early = times.windows(2).filter(|pair| pair[1].since(pair[0]) < Duration::from_secs(5)).count();
            prop_assert!(too_early <= restarts);
        }
    }
}
