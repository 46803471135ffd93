//! Both ends start a handshake at once. Both complete, because our initiation and the peer's have separate state; with
//! shared state both ends would wait for a retry.

use std::time::Duration;

use linerate_protocol::MessageKind;

use crate::simulation::{Link, Net, can_open};

#[test]
fn crossing_initiations_both_complete_within_one_round_trip() {
    let mut net = Net::pair(1);
    net.send(0, b"from 0");
    net.send(1, b"from 1");
    net.run_for(Duration::from_millis(60));
    assert_eq!(net.nodes[0].data_received(), [b"from 1"]);
    assert_eq!(net.nodes[1].data_received(), [b"from 0"]);
    assert!(can_open(&net, 0, 1) && can_open(&net, 1, 0));
    net.run_for(Duration::from_secs(9));
    for node in &net.nodes {
        assert_eq!((node.count(MessageKind::Initiation), node.count(MessageKind::Response)), (1, 1));
        assert_eq!(node.host.drops, []);
    }
}

#[test]
fn crossing_initiations_survive_any_skew() {
    for skew in 0..50 {
        let mut net = Net::pair(skew);
        net.link = Link { jitter: Duration::from_millis(10), ..Link::GOOD };
        net.send(0, b"from 0");
        net.run_for(Duration::from_millis(skew));
        net.send(1, b"from 1");
        net.run_for(Duration::from_millis(120));
        assert_eq!(net.nodes[0].data_received(), [b"from 1"], "skew {skew} ms");
        assert_eq!(net.nodes[1].data_received(), [b"from 0"], "skew {skew} ms");
        net.send(0, b"and");
        net.send(1, b"on");
        net.run_for(Duration::from_millis(40));
        assert_eq!(net.nodes[0].data_received().last().unwrap(), b"on");
        assert_eq!(net.nodes[1].data_received().last().unwrap(), b"and");
    }
}

#[test]
fn a_crossing_with_one_lost_response_still_makes_a_session_at_once() {
    let mut net = Net::pair(2);
    net.send(0, b"from 0");
    net.send(1, b"from 1");
    net.run_for(Duration::from_millis(20));
    // Both responses are in flight; one is lost.
    net.drop_in_flight();
    let (response, from) = (net.nodes[1].host.sent.last().unwrap().clone(), net.nodes[1].addr);
    assert_eq!(response.kind, MessageKind::Response);
    assert_eq!(net.deliver(0, from, &response.bytes), Ok(()));
    net.run_for(Duration::from_millis(60));
    assert_eq!(net.nodes[1].data_received(), [b"from 0"]);
    assert_eq!(net.nodes[0].data_received(), [b"from 1"]);
}

#[test]
fn an_initiation_overtaken_by_the_peers_is_not_repeated() {
    let mut net = Net::pair(3);
    // Ours is lost; the peer's arrives while ours waits.
    net.link = Link::DEAD;
    net.initiate(0);
    net.link = Link::GOOD;
    net.run_for(Duration::from_secs(1));
    net.initiate(1);
    net.run_for(Duration::from_secs(9));
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 1);
    assert_eq!(net.nodes[0].host.handshakes.len(), 1);
    assert!(can_open(&net, 0, 1) && can_open(&net, 1, 0));
}

#[test]
fn a_request_delayed_by_our_own_response_is_not_forgotten() {
    let mut net = Net::pair(4);
    net.initiate(0);
    net.run_for(Duration::from_millis(21));
    // Node 1 has responded, so it may not start a handshake for 5 s; the initiator goes away.
    net.drop_in_flight();
    net.call(0, |node, _, _| node.device.down(&mut node.host));
    net.send(1, b"anyone?");
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.nodes[1].count(MessageKind::Initiation), 0);
    net.call(0, |node, now, rng| node.device.up(now, rng, &mut node.host));
    net.run_for(Duration::from_secs(5));
    assert_eq!(net.nodes[1].count(MessageKind::Initiation), 1);
    assert_eq!(net.nodes[0].data_received(), [b"anyone?"]);
}

#[test]
fn renewing_sessions_of_crossed_initiations_loses_no_packet() {
    for (first, second) in [(0, 1), (1, 0)] {
        let mut net = Net::pair(5);
        net.send(0, b"both");
        net.send(1, b"at once");
        net.run_for(Duration::from_secs(119));
        // Each end seals with the session that it started. One rekeys, and the other does not know of it yet.
        for (node, more) in [(0, 900), (1, 200)] {
            net.send(node, b"on the old one");
            net.run_for(Duration::from_millis(more));
        }
        net.send(first, b"renewed");
        net.run_for(Duration::from_millis(21));
        net.send(second, b"not yet");
        net.run_for(Duration::from_millis(21));
        assert_eq!(net.nodes[first].data_received().last(), Some(&&b"not yet"[..]));
        assert_eq!(net.nodes[second].data_received().last(), Some(&&b"renewed"[..]));
    }
}
