//! Timers.

use std::time::Duration;

use linerate_protocol::{Boottime, MessageKind};

use crate::simulation::{Link, Net, can_open, public};

const SECOND: Duration = Duration::from_secs(1);
const JITTER: Duration = Duration::from_millis(333);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Asserts that `time` is `delay` after `start`, plus at most the jitter.
fn assert_jittered(start: Boottime, time: Boottime, delay: Duration) {
    let passed = time.since(start);
    assert!(passed >= delay && passed <= delay + JITTER, "{passed:?} instead of {delay:?}");
}

#[test]
fn an_unanswered_initiation_is_repeated_every_5_s_and_given_up_after_20() {
    let mut net = Net::pair(1);
    net.link = Link::DEAD;
    net.send(0, b"unanswered");
    net.run_for(secs(300));
    let times = net.nodes[0].times(MessageKind::Initiation);
    assert_eq!(times.len(), 20);
    for pair in times.windows(2) {
        assert_jittered(pair[0], pair[1], secs(5));
    }
    let host = &net.nodes[0].host;
    assert_eq!((host.abandoned, host.forgotten_sources), (1, 19));
    let distinct: std::collections::BTreeSet<_> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(distinct.len() > 10, "the jitter varies");
    // Only the wipe timer is left, and after it none.
    net.run_for(secs(600));
    assert_eq!(net.nodes[0].device.deadline(), None);
}

#[test]
fn a_new_packet_after_giving_up_starts_from_zero() {
    let mut net = Net::pair(2);
    net.link = Link::DEAD;
    net.send(0, b"unanswered");
    net.run_for(secs(300));
    net.send(0, b"still unanswered");
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 21);
    net.run_for(secs(300));
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 40);
}

#[test]
fn outgoing_packets_keep_the_handshake_going_without_waking_the_slow_path() {
    let mut net = Net::pair(3);
    net.link = Link::DEAD;
    net.run_with_traffic(secs(200), Duration::from_millis(50), &[0], b"anyone?");
    let initiations = net.nodes[0].count(MessageKind::Initiation);
    assert!((38..=40).contains(&initiations), "{initiations} initiations in 200 s");
    assert_eq!(net.nodes[0].host.wakes, 1);
    assert_eq!(net.nodes[0].host.abandoned, 0);
}

#[test]
fn an_unreachable_peer_wakes_the_slow_path_once() {
    let mut net = Net::pair(4);
    let peer = net.nodes[0].peer();
    let addr = net.nodes[0].host.endpoints.remove(&peer).unwrap();
    net.run_with_traffic(secs(60), SECOND, &[0], b"where are you?");
    assert_eq!((net.nodes[0].host.wakes, net.nodes[0].host.sent.len()), (1, 0));
    assert_eq!(net.nodes[0].device.deadline(), None);

    net.nodes[0].host.endpoints.insert(peer, addr);
    net.call(0, |node, now, rng| node.device.endpoint_set(now, rng, peer, &mut node.host));
    net.run_for(SECOND);
    assert_eq!(net.nodes[1].data_received().len(), 60);
}

#[test]
fn recovery_follows_as_soon_as_the_link_does() {
    let mut net = Net::pair(5);
    net.link = Link::DEAD;
    net.send(0, b"payload");
    net.run_for(secs(42));
    net.link = Link::GOOD;
    net.run_for(secs(6));
    assert_eq!(net.nodes[1].data_received(), [b"payload"]);
}

#[test]
fn received_data_is_acknowledged_by_one_keepalive_after_10_s() {
    let mut net = Net::connected(6);
    net.send(0, b"one way");
    net.run_for(secs(60));
    let received = net.nodes[1].host.received.last().unwrap().0;
    let times = net.nodes[1].times(MessageKind::Data);
    assert_eq!(times, [received.after(secs(10))]);
    // The keepalive is not answered by a keepalive.
    assert_eq!(net.nodes[0].count(MessageKind::Data), 2);
}

#[test]
fn sending_anything_cancels_the_keepalive() {
    let mut net = Net::connected(7);
    net.send(0, b"question");
    net.run_for(secs(9));
    net.send(1, b"answer");
    net.run_for(secs(9));
    assert_eq!(net.nodes[1].count(MessageKind::Data), 1);
}

#[test]
fn data_received_while_a_keepalive_is_pending_schedules_another() {
    let mut net = Net::connected(8);
    // The keepalive itself goes out at 10 s; the engine of the simulation reports it as sent
    // before the timer is armed again, as a synchronous data path does.
    for _ in 0..8 {
        net.send(0, b"one way");
        net.run_for(SECOND);
    }
    net.run_for(secs(60));
    let times = net.nodes[1].times(MessageKind::Data);
    assert_eq!(times.len(), 2);
    assert_eq!(times[1], times[0].after(secs(10)));
}

#[test]
fn unanswered_data_starts_a_handshake_after_15_s() {
    let mut net = Net::connected(9);
    net.link = Link::DEAD;
    let sent = net.now.boot;
    net.send(0, b"hello?");
    net.run_for(secs(3));
    net.send(0, b"does not push the timer out");
    net.run_for(secs(17));
    let times = net.nodes[0].times(MessageKind::Initiation);
    assert_jittered(sent, times[1], secs(15));
    assert_eq!(net.nodes[0].host.forgotten_sources, 1);
}

#[test]
fn anything_received_resets_the_silence_timer() {
    let mut net = Net::connected(10);
    net.send(0, b"hello?");
    net.run_for(secs(100));
    // The peer's passive keepalive was enough.
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 1);
}

#[test]
fn keepalives_alone_start_no_handshake() {
    let mut net = Net::connected(11);
    net.link = Link::DEAD;
    net.run_for(secs(100));
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 1);
}

#[test]
fn only_the_initiator_renews_the_key_at_120_s() {
    let mut net = Net::connected(12);
    net.run_with_traffic(secs(1200), Duration::from_millis(500), &[0, 1], b"steady");
    assert_eq!(net.nodes[1].count(MessageKind::Initiation), 0);
    let times = net.nodes[0].times(MessageKind::Initiation);
    assert_eq!(times.len(), 10);
    for pair in times.windows(2) {
        let apart = pair[1].since(pair[0]);
        assert!(apart >= secs(120) && apart < secs(121), "{apart:?}");
    }
    for at in 0..2 {
        // All but the last ones, which are in flight.
        assert!(net.nodes[at].data_received().len() >= 2400 - 1);
        assert_eq!(net.nodes[at].host.drops, []);
    }
}

#[test]
fn packets_sent_during_a_rekey_start_no_second_handshake() {
    let mut net = Net::connected(25);
    net.run_for(secs(119));
    net.run_with_traffic(secs(20), Duration::from_millis(5), &[0, 1], b"dense");
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 2);
    assert_eq!(net.nodes[1].count(MessageKind::Initiation), 0);
}

#[test]
fn an_initiator_that_only_receives_renews_the_key_at_165_s_once() {
    let mut net = Net::connected(13);
    let created_at = net.nodes[0].host.sending[&net.nodes[0].peer()].created_at;
    // Its passive keepalives would count as sending, so they are lost before they are sent: the data is too
    // infrequent for another one to be due.
    let mut asked = Vec::new();
    for _ in 0..170 {
        let peer = net.nodes[0].peer();
        let session = net.nodes[0].host.sending[&peer].clone();
        if session.needs_rekey_on_receive(net.now.boot) {
            asked.push(net.now.boot);
        }
        net.run_for(SECOND);
    }
    assert_eq!(asked.len(), 1);
    assert!(asked[0].since(created_at) >= secs(165) && asked[0].since(created_at) <= secs(166));
}

#[test]
fn a_one_way_flow_is_rekeyed_before_its_session_expires() {
    for sender in 0..2 {
        let mut net = Net::connected(14);
        net.run_with_traffic(secs(1000), Duration::from_millis(250), &[sender], b"one way");
        assert!(net.nodes[1 - sender].data_received().len() >= 4000 - 1);
        assert_eq!(net.nodes[1 - sender].host.drops, []);
        let handshakes = net.nodes[0].host.handshakes.len();
        assert!((7..=9).contains(&handshakes), "{handshakes} handshakes in 1000 s");
    }
}

#[test]
fn a_session_of_180_s_neither_seals_nor_opens() {
    let mut net = Net::connected(15);
    let session = net.nodes[0].host.sending[&net.nodes[0].peer()].clone();
    assert!(!session.expired(session.created_at.after(secs(180) - Duration::from_nanos(1))));
    assert!(session.expired(session.created_at.after(secs(180))));
    net.run_for(secs(181));
    net.send(0, b"late");
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 2);
    net.run_for(SECOND);
    assert_eq!(net.nodes[1].data_received(), [b"late"]);
}

#[test]
fn keys_are_wiped_540_s_after_the_last_session() {
    let mut net = Net::connected(16);
    net.run_for(secs(539));
    assert!(net.nodes.iter().all(|node| node.host.sessions.len() == 1));
    net.run_for(secs(2));
    for node in &net.nodes {
        assert!(node.host.sessions.is_empty() && node.host.sending.is_empty());
        assert_eq!(node.device.deadline(), None, "an idle peer has no timer");
    }
}

#[test]
fn a_persistent_keepalive_is_sent_at_once_and_then_in_every_idle_interval() {
    let mut net = Net::pair(17);
    let peer = net.nodes[0].peer();
    let start = net.now.boot;
    net.call(0, |node, now, rng| node.device.set_persistent_keepalive(now, rng, peer, 25, &mut node.host));
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 1);
    net.run_for(secs(110));
    let times = net.nodes[0].times(MessageKind::Data);
    // Confirmation after one round trip, then four of its own.
    assert_eq!(times.len(), 5);
    assert!(times[0].since(start) < SECOND);
    for pair in times.windows(2) {
        assert_eq!(pair[1].since(pair[0]), secs(25));
    }
    // Keepalives on an old key renew it, so a connected peer always has a session.
    net.run_for(secs(1000));
    assert!(can_open(&net, 0, 1));
}

#[test]
fn any_packet_in_either_direction_delays_the_persistent_keepalive() {
    let mut net = Net::connected(18);
    let peer = net.nodes[0].peer();
    net.call(0, |node, now, rng| node.device.set_persistent_keepalive(now, rng, peer, 25, &mut node.host));
    let at_once = net.nodes[0].count(MessageKind::Data);
    net.run_with_traffic(secs(60), secs(9), &[1], b"data for 0");
    // Node 0 sends passive keepalives, 10 s after data.
    let passive = net.nodes[0].times(MessageKind::Data).split_off(at_once);
    assert!(passive.len() <= 6);
    net.run_for(secs(24));
    net.run_for(secs(24));
    let last = *net.nodes[0].times(MessageKind::Data).last().unwrap();
    assert!(net.now.boot.since(last) < secs(25));
}

#[test]
fn a_persistent_keepalive_reconnects_to_a_peer_that_comes_back() {
    let mut net = Net::pair(19);
    let peer = net.nodes[0].peer();
    net.link = Link::DEAD;
    net.call(0, |node, now, rng| node.device.set_persistent_keepalive(now, rng, peer, 5, &mut node.host));
    net.run_for(secs(2000));
    assert!(net.nodes[0].count(MessageKind::Initiation) > 300);
    net.link = Link::GOOD;
    net.run_for(secs(11));
    assert!(can_open(&net, 0, 1));
}

#[test]
fn a_persistent_keepalive_without_an_endpoint_sends_nothing() {
    let mut net = Net::pair(20);
    let peer = net.nodes[0].peer();
    let addr = net.nodes[0].host.endpoints.remove(&peer).unwrap();
    net.call(0, |node, now, rng| node.device.set_persistent_keepalive(now, rng, peer, 1, &mut node.host));
    net.run_for(secs(10));
    assert!(net.nodes[0].host.sent.is_empty());
    net.nodes[0].host.endpoints.insert(peer, addr);
    net.call(0, |node, now, rng| node.device.endpoint_set(now, rng, peer, &mut node.host));
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 1);
}

#[test]
fn steady_traffic_hardly_wakes_the_slow_path() {
    let mut net = Net::connected(21);
    let before = net.nodes.iter().map(|node| node.host.wakes).sum::<usize>();
    net.run_with_traffic(secs(100), Duration::from_millis(10), &[0, 1], b"steady");
    let wakes = net.nodes.iter().map(|node| node.host.wakes).sum::<usize>() - before;
    assert!(wakes <= 2 * 10 + 2, "{wakes} wakes of two hosts in 100 s");
}

#[test]
fn the_previous_session_still_opens_packets_in_flight() {
    let mut net = Net::connected(22);
    net.run_for(secs(121));
    // This packet is sealed with the old key and requests a new one.
    net.link.delay = Duration::from_millis(100);
    net.send(1, b"slow packet on the old key");
    net.link.delay = Duration::from_millis(5);
    net.send(0, b"renew");
    net.run_for(Duration::from_millis(50));
    assert_eq!(net.nodes[0].host.handshakes.len(), 2);
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[0].data_received(), [b"slow packet on the old key"]);
}

#[test]
fn no_single_call_sends_the_keepalives_of_many_peers() {
    let mut net = Net::pair(23);
    let addr = net.nodes[1].addr;
    net.call(0, |node, _, _| node.device.down(&mut node.host));
    for seed in 100..400 {
        let peer = net.add_peer(0, public(seed));
        net.nodes[0].host.endpoints.insert(peer, addr);
        net.call(0, |node, now, rng| node.device.set_persistent_keepalive(now, rng, peer, 25, &mut node.host));
    }
    let (at_up, most) = net.call(0, |node, now, rng| {
        node.device.up(now, rng, &mut node.host);
        let (at_up, mut most) = (node.count(MessageKind::Initiation), 0);
        while node.device.deadline().is_some_and(|at| at <= now.boot) {
            let before = node.count(MessageKind::Initiation);
            node.device.expire(now, rng, &mut node.host);
            most = most.max(node.count(MessageKind::Initiation) - before);
        }
        (at_up, most)
    });
    assert_eq!(at_up, 0);
    assert!((1..=64).contains(&most), "{most} in one call");
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 300);
}

#[test]
fn on_another_network_a_peer_in_use_hears_of_it_at_once_and_no_other_does() {
    let mut net = Net::connected(22);
    let (data, initiations) = (net.nodes[0].count(MessageKind::Data), net.nodes[0].count(MessageKind::Initiation));
    net.call(0, |node, now, rng| node.device.network_changed(now, rng, &mut node.host));
    assert_eq!(net.nodes[0].count(MessageKind::Data), data + 1);
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), initiations);
    let mut idle = Net::pair(23);
    idle.call(0, |node, now, rng| node.device.network_changed(now, rng, &mut node.host));
    idle.run_for(secs(100));
    assert!(idle.nodes[0].host.sent.is_empty());
}

#[test]
fn on_another_network_a_handshake_that_was_nearly_given_up_starts_over() {
    let mut net = Net::pair(24);
    net.link = Link::DEAD;
    net.send(0, b"unanswered");
    net.run_for(secs(85));
    net.call(0, |node, now, rng| node.device.network_changed(now, rng, &mut node.host));
    net.run_for(secs(80));
    assert_eq!(net.nodes[0].host.abandoned, 0);
    net.link = Link::GOOD;
    net.run_for(secs(6));
    assert!(can_open(&net, 0, 1));
}
