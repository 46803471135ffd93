//! Changes of keys, peers and the device at run time.

use std::sync::Arc;
use std::time::Duration;

use linerate_protocol::{AddPeerError, DropReason, MessageKind, PublicKey, TrafficTimestamps};

use crate::simulation::{Net, can_open, public, secret};

fn set_key(net: &mut Net, at: usize, seed: u64) -> Option<linerate_protocol::PeerId> {
    net.call(at, |node, now, rng| node.device.set_private_key(now, rng, Some(secret(seed)), &mut node.host))
}

#[test]
fn a_peer_with_our_own_key_is_refused() {
    let mut net = Net::new(1, 1);
    let device = &mut net.nodes[0].device;
    assert_eq!(device.add_peer(public(0), Arc::new(TrafficTimestamps::new())), Err(AddPeerError::OwnKey));
    let peer = device.add_peer(public(1), Arc::new(TrafficTimestamps::new())).unwrap();
    assert_eq!(device.add_peer(public(1), Arc::new(TrafficTimestamps::new())), Err(AddPeerError::Exists(peer)));
    // The device is given the key of its peer.
    assert_eq!(set_key(&mut net, 0, 1), Some(peer));
    let device = &net.nodes[0].device;
    assert_eq!(device.peers().count(), 0);
    assert_eq!((device.peer(&public(1)), device.public_key()), (None, Some(&public(1))));
}

#[test]
fn a_new_private_key_ends_sealing_and_allows_a_handshake_at_once() {
    let mut net = Net::connected(2);
    set_key(&mut net, 0, 77);
    assert!(net.nodes[0].host.sending.is_empty());
    net.add_peer(1, public(77));
    // Packets that the other end sent before it learned of the change can still be opened.
    net.send(1, b"on the way");
    net.run_for(Duration::from_millis(50));
    assert_eq!(net.nodes[0].data_received(), [b"on the way"]);
    net.send(0, b"under my new name");
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 2);
    net.run_for(Duration::from_millis(100));
    let (_, peer, packet) = net.nodes[1].host.received.last().unwrap();
    assert_eq!((net.nodes[1].device.peer_public_key(*peer), &packet[..]), (public(77), &b"under my new name"[..]));
}

#[test]
fn a_running_handshake_starts_over_when_the_key_changes() {
    let mut net = Net::pair(3);
    net.add_peer(1, public(77));
    net.send(0, b"who?");
    set_key(&mut net, 0, 77);
    assert_eq!(net.nodes[0].count(MessageKind::Initiation), 2);
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[1].data_received(), [b"who?"]);
}

#[test]
fn setting_the_same_key_again_changes_nothing() {
    let mut net = Net::connected(4);
    set_key(&mut net, 0, 0);
    assert!(can_open(&net, 0, 1));
}

#[test]
fn without_a_private_key_nothing_is_answered_or_sent() {
    let mut net = Net::connected(5);
    net.call(1, |node, now, rng| node.device.set_private_key(now, rng, None, &mut node.host));
    net.run_for(Duration::from_secs(10));
    net.send(1, b"mute");
    let initiation = net.nodes[0].host.sent[0].bytes.clone();
    let from = net.nodes[0].addr;
    assert_eq!(net.deliver(1, from, &initiation), Err(DropReason::NoPrivateKey));
    assert_eq!((net.nodes[1].count(MessageKind::Initiation), net.nodes[1].device.public_key()), (0, None));
    // The request stays pending until there is a key.
    set_key(&mut net, 1, 1);
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[0].data_received(), [b"mute"]);
}

#[test]
fn a_peer_with_a_key_of_low_order_can_be_configured_but_gets_nothing() {
    let mut order_8 = [0; 32];
    order_8.copy_from_slice(&[
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09,
        0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ]);
    let mut one = [0; 32];
    one[0] = 1;
    for low in [[0; 32], one, order_8] {
        let mut net = Net::new(6, 2);
        let peer = net.add_peer(0, PublicKey(low));
        let addr = net.nodes[1].addr;
        net.nodes[0].host.endpoints.insert(peer, addr);
        net.run_with_traffic(Duration::from_secs(20), Duration::from_secs(1), &[0], b"x");
        assert!(net.nodes[0].host.sent.is_empty());
        assert_eq!(net.nodes[0].host.wakes, 1);
        assert_eq!(net.nodes[0].device.deadline(), None);
    }
}

#[test]
fn down_forgets_everything_and_up_starts_anew() {
    let mut net = Net::connected(7);
    let peer = net.nodes[0].peer();
    net.call(0, |node, now, rng| {
        node.device.set_persistent_keepalive(now, rng, peer, 10, &mut node.host);
        node.device.down(&mut node.host);
    });
    let node = &net.nodes[0];
    assert!(!node.device.is_up() && node.host.sessions.is_empty() && node.host.sending.is_empty());
    assert_eq!(node.device.deadline(), None);
    let before = node.host.sent.len();

    // The keepalive in flight would reset the silence timer.
    net.run_for(Duration::from_secs(1));
    net.send(1, b"into the void");
    net.run_for(Duration::from_secs(20));
    assert_eq!(net.nodes[0].host.sent.len(), before);
    assert!(net.nodes[0].host.drops.contains(&DropReason::Down));

    net.call(0, |node, now, rng| node.device.up(now, rng, &mut node.host));
    assert_eq!(net.nodes[0].host.sent.len(), before + 1, "the persistent keepalive starts a handshake");
    net.run_for(Duration::from_secs(1));
    assert!(can_open(&net, 0, 1));
}

#[test]
fn suspend_wipes_keys_and_the_next_packet_starts_a_handshake() {
    let mut net = Net::connected(8);
    net.call(0, |node, now, _| node.device.resumed(now, &mut node.host));
    assert!(net.nodes[0].host.sessions.is_empty());
    net.run_for(Duration::from_secs(5));
    net.send(0, b"good morning");
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[1].data_received(), [b"good morning"]);
}

#[test]
fn a_removed_peer_leaves_nothing_behind() {
    let mut net = Net::connected(9);
    let peer = net.nodes[0].peer();
    net.call(0, |node, _, _| {
        node.device.remove_peer(peer, &mut node.host);
        node.device.remove_peer(peer, &mut node.host);
    });
    let node = &net.nodes[0];
    assert!(node.host.sessions.is_empty() && node.host.sending.is_empty());
    assert_eq!((node.device.deadline(), node.device.peers().count()), (None, 0));
    // The id is reused, and the new peer inherits nothing.
    let again = net.introduce(0, 1);
    assert_eq!(again, peer);
    net.run_for(Duration::from_secs(6));
    net.send(0, b"nice to meet you");
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[1].data_received(), [b"nice to meet you"]);
}

#[test]
fn peers_are_listed_in_the_order_in_which_they_were_added() {
    let mut net = Net::new(10, 1);
    let first: Vec<_> = (1..6).map(|i| net.add_peer(0, public(i))).collect();
    net.call(0, |node, _, _| node.device.remove_peer(first[1], &mut node.host));
    let late = net.add_peer(0, public(9));
    assert_eq!(late, first[1]);
    let listed: Vec<_> = net.nodes[0].device.peers().collect();
    assert_eq!(listed, [first[0], first[2], first[3], first[4], late]);
}

#[test]
fn adding_ten_thousand_peers_computes_no_key_agreement() {
    let time = || {
        let mut net = Net::new(11, 1);
        let begin = std::time::Instant::now();
        for i in 0..10_000u32 {
            let mut key = [1; 32];
            key[..4].copy_from_slice(&i.to_le_bytes());
            net.add_peer(0, PublicKey(key));
        }
        set_key(&mut net, 0, 5);
        let took = begin.elapsed();
        assert_eq!(net.nodes[0].device.deadline(), None);
        took
    };
    // With a margin of two orders of magnitude: one multiplication per peer would take longer on any machine. A machine
    // with other work to do may stop one of the attempts, but hardly all.
    let times: Vec<_> = (0..10).map(|_| time()).take_while(|took| *took >= Duration::from_millis(500)).collect();
    assert!(times.len() < 10, "{times:?}");
}
