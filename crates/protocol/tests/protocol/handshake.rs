//! Handshakes that succeed, and messages that must be refused.

use std::time::Duration;

use linerate_protocol::{DropReason, MessageKind};

use crate::simulation::{Link, Net, can_open, public};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn both_ends_derive_the_same_keys_within_one_round_trip() {
    let mut net = Net::pair(1);
    net.send(0, b"hello");
    net.run_for(MS(60));
    assert_eq!(net.nodes[1].data_received(), [b"hello"]);
    net.send(1, b"hello yourself");
    net.run_for(MS(20));
    assert_eq!(net.nodes[0].data_received(), [b"hello yourself"]);
    assert!(can_open(&net, 0, 1) && can_open(&net, 1, 0));
    for node in &net.nodes {
        assert_eq!(node.host.drops, []);
        assert_eq!(node.host.handshakes.len(), 1);
    }
}

#[test]
fn an_initiator_without_data_confirms_with_a_keepalive() {
    let net = Net::connected(1);
    assert_eq!(net.nodes[0].count(MessageKind::Data), 1);
    assert_eq!(net.nodes[1].host.received.len(), 1);
    assert!(net.nodes[1].data_received().is_empty());
    assert_eq!(net.nodes[1].count(MessageKind::Data), 0);
}

#[test]
fn a_responder_does_not_send_before_the_key_is_confirmed() {
    let mut net = Net::pair(2);
    net.send(0, b"first");
    // The initiation has arrived; the response is in flight.
    net.run_for(MS(21));
    net.send(1, b"too early");
    assert_eq!(net.nodes[1].count(MessageKind::Data), 0);
    net.run_for(MS(100));
    assert_eq!(net.nodes[0].data_received(), [b"too early"]);
    // Its own initiation is delayed, because the response counted towards the limit.
    assert_eq!(net.nodes[1].count(MessageKind::Initiation), 0);
}

#[test]
fn staged_packets_go_in_order_once_there_is_a_session() {
    let mut net = Net::pair(3);
    for i in 0..200u8 {
        net.send(0, &[i; 4]);
    }
    net.run_for(MS(100));
    let expected: Vec<[u8; 4]> = (72..200).map(|i| [i; 4]).collect();
    assert_eq!(net.nodes[1].data_received(), expected);
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 1);
}

#[test]
fn equal_preshared_keys_agree_and_unequal_ones_do_not() {
    for (psk, works) in [([7; 32], true), ([8; 32], false), ([0; 32], false)] {
        let mut net = Net::pair(4);
        net.set_psk(0, [7; 32]);
        net.set_psk(1, psk);
        net.send(0, b"secret");
        net.run_for(MS(100));
        assert_eq!(net.nodes[1].data_received().len(), usize::from(works));
        assert_eq!(net.nodes[0].host.drops.contains(&DropReason::Undecryptable), !works);
    }
}

#[test]
fn a_new_preshared_key_is_for_the_next_handshake() {
    let mut net = Net::connected(5);
    net.set_psk(0, [9; 32]);
    net.send(0, b"still the old session");
    net.run_for(MS(100));
    assert_eq!(net.nodes[1].data_received().len(), 1);
    net.set_psk(1, [9; 32]);
    net.run_for(Duration::from_secs(200));
    net.send(0, b"the new one");
    net.run_for(MS(100));
    assert_eq!(net.nodes[1].data_received().len(), 2);
}

#[test]
fn an_unknown_peer_is_refused() {
    let mut net = Net::new(6, 2);
    net.introduce(0, 1);
    net.send(0, b"who am I?");
    net.run_for(MS(100));
    assert_eq!(net.nodes[1].host.drops, [DropReason::UnknownPeer]);
    assert!(net.nodes[1].host.sent.is_empty());
}

#[test]
fn a_replayed_initiation_is_refused() {
    let mut net = Net::connected(7);
    let initiation = net.nodes[0].host.sent[0].bytes.clone();
    let elsewhere = "192.0.2.66:666".parse().unwrap();
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.deliver(1, elsewhere, &initiation), Err(DropReason::Replayed));
    assert_eq!(net.nodes[1].host.endpoints[&net.nodes[1].peer()], net.nodes[0].addr);
}

#[test]
fn an_older_initiation_is_refused_after_a_newer_one() {
    let mut net = Net::pair(8);
    net.link = Link::DEAD;
    net.initiate(0);
    net.run_for(Duration::from_secs(6));
    let [old, new] = &net.nodes[0].host.sent[..] else { panic!("two initiations were sent") };
    let (old, new, from) = (old.bytes.clone(), new.bytes.clone(), net.nodes[0].addr);
    assert_eq!(net.deliver(1, from, &new), Ok(()));
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.deliver(1, from, &old), Err(DropReason::Replayed));
}

#[test]
fn initiations_faster_than_fifty_per_second_are_refused() {
    let mut net = Net::pair(9);
    net.link = Link::DEAD;
    net.initiate(0);
    net.run_for(Duration::from_secs(20));
    let from = net.nodes[0].addr;
    let initiations: Vec<_> = net.nodes[0].host.sent.iter().map(|sent| sent.bytes.clone()).collect();
    assert_eq!(net.deliver(1, from, &initiations[0]), Ok(()));
    net.run_for(MS(19));
    assert_eq!(net.deliver(1, from, &initiations[1]), Err(DropReason::Flood));
    net.run_for(MS(1));
    assert_eq!(net.deliver(1, from, &initiations[2]), Ok(()));
}

#[test]
fn a_replayed_response_is_refused() {
    let mut net = Net::connected(10);
    let response = net.nodes[1].host.sent[0].bytes.clone();
    let from = net.nodes[1].addr;
    assert_eq!(net.deliver(0, from, &response), Err(DropReason::WrongState));
}

#[test]
fn a_late_response_to_an_abandoned_initiation_is_refused() {
    let mut net = Net::pair(11);
    net.link.delay = Duration::from_secs(3);
    net.initiate(0);
    net.run_for(Duration::from_secs(7));
    // The retry has replaced the initiation that this response answers.
    assert_eq!(net.nodes[0].host.drops, [DropReason::UnknownIndex]);
}

#[test]
fn a_forged_response_does_not_disturb_the_handshake() {
    let mut net = Net::pair(12);
    net.send(0, b"hello");
    net.run_for(MS(21));
    let mut forged = net.nodes[1].host.sent[0].bytes.clone();
    let from = net.nodes[1].addr;
    // Change the sealed empty field, then write a valid first MAC.
    forged[50] ^= 1;
    assert_eq!(net.deliver(0, from, &forged), Err(DropReason::Mac1));
    net.run_for(MS(100));
    assert_eq!(net.nodes[1].data_received(), [b"hello"]);
}

#[test]
fn the_first_mac_detects_any_flipped_bit_that_it_covers() {
    let mut net = Net::pair(13);
    net.initiate(0);
    let initiation = net.nodes[0].host.sent[0].bytes.clone();
    let from = net.nodes[0].addr;
    for bit in 4 * 8..132 * 8 {
        let mut forged = initiation.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(net.deliver(1, from, &forged), Err(DropReason::Mac1), "bit {bit}");
    }
    // Without load the second MAC is not checked.
    let mut unneeded = initiation;
    unneeded[140] ^= 1;
    assert_eq!(net.deliver(1, from, &unneeded), Ok(()));
}

#[test]
fn a_wall_clock_that_steps_back_does_not_stop_handshakes() {
    let mut net = Net::connected(14);
    net.now.wall -= Duration::from_secs(86_400);
    net.run_for(Duration::from_secs(200));
    net.send(0, b"what day is it?");
    net.run_for(MS(100));
    assert_eq!(net.nodes[1].data_received(), [b"what day is it?"]);
    assert_eq!(net.nodes[1].host.drops, []);
}

#[test]
fn the_endpoint_follows_handshakes_and_data_but_not_cookies() {
    let mut net = Net::connected(15);
    let peer = net.nodes[1].peer();
    net.nodes[0].addr = "10.9.9.9:1234".parse().unwrap();
    net.send(0, b"moved");
    net.run_for(MS(100));
    assert_eq!(net.nodes[1].host.endpoints[&peer], net.nodes[0].addr);

    net.exhaust_unseen_sources(1);
    net.nodes[0].addr = "10.8.8.8:1234".parse().unwrap();
    net.run_for(Duration::from_secs(200));
    net.initiate(0);
    let forger = "10.6.6.6:666".parse().unwrap();
    net.run_for(MS(21));
    let cookie = net.nodes[1].host.sent.last().unwrap().clone();
    assert_eq!(cookie.kind, MessageKind::Cookie);
    let before = net.nodes[0].host.endpoints.clone();
    assert_eq!(net.deliver(0, forger, &cookie.bytes), Ok(()));
    assert_eq!(net.nodes[0].host.endpoints, before);
}

#[test]
fn three_devices_keep_their_peers_apart() {
    let mut net = Net::new(16, 3);
    for (at, of) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        net.introduce(at, of);
    }
    for from in 0..3usize {
        for peer in net.nodes[from].device.peers().collect::<Vec<_>>() {
            net.send_to(from, peer, &[from as u8]);
        }
    }
    net.run_for(Duration::from_secs(12));
    for at in 0..3u8 {
        let node = &net.nodes[usize::from(at)];
        let mut from: Vec<_> = node
            .host
            .received
            .iter()
            .filter(|(_, _, packet)| !packet.is_empty())
            .map(|(_, peer, packet)| {
                assert_eq!(node.device.peer_public_key(*peer), public(packet[0].into()));
                packet[0]
            })
            .collect();
        from.sort_unstable();
        assert_eq!(from, (0..3).filter(|&i| i != at).collect::<Vec<_>>());
    }
}
