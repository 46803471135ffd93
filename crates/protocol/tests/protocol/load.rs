//! Cookies and the rate limit, under load.

use std::time::Duration;

use linerate_protocol::{DropReason, MessageKind};

use crate::simulation::{Link, Net, can_open};

#[test]
fn a_device_under_load_asks_for_a_cookie_and_then_answers() {
    let mut net = Net::pair(1);
    net.exhaust_unseen_sources(1);
    net.send(0, b"hello");
    net.run_for(Duration::from_secs(4));
    assert_eq!((net.nodes[1].count(MessageKind::Cookie), net.nodes[1].count(MessageKind::Response)), (1, 0));
    assert_eq!(net.nodes[1].host.drops, [DropReason::UnderLoad]);
    // The retry carries the cookie.
    net.run_for(Duration::from_secs(2));
    assert_eq!((net.nodes[1].count(MessageKind::Cookie), net.nodes[1].count(MessageKind::Response)), (1, 1));
    assert_eq!(net.nodes[1].data_received(), [b"hello"]);
}

#[test]
fn a_peer_not_seen_recently_is_answered_at_once_under_load() {
    let mut net = Net::pair(9);
    net.nodes[1].backlog = 512;
    net.send(0, b"hello");
    net.run_for(Duration::from_secs(1));
    assert_eq!((net.nodes[1].count(MessageKind::Cookie), net.nodes[1].count(MessageKind::Response)), (0, 1));
    assert_eq!(net.nodes[1].data_received(), [b"hello"]);
}

#[test]
fn an_initiator_under_load_accepts_the_response_it_waits_for() {
    let mut net = Net::pair(10);
    net.exhaust_unseen_sources(0);
    net.send(0, b"hello");
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.nodes[0].count(MessageKind::Cookie), 0);
    assert_eq!(net.nodes[1].data_received(), [b"hello"]);
}

#[test]
fn both_ends_under_load_still_find_each_other() {
    let mut net = Net::pair(2);
    net.exhaust_unseen_sources(0);
    net.exhaust_unseen_sources(1);
    net.send(0, b"hello");
    // The first attempt gets the responder's cookie, the second the initiator's, the third succeeds.
    net.run_for(Duration::from_secs(17));
    assert_eq!(net.nodes[1].data_received(), [b"hello"]);
    assert!(can_open(&net, 0, 1));
}

#[test]
fn load_is_held_for_one_second() {
    let mut net = Net::pair(3);
    net.exhaust_unseen_sources(1);
    net.initiate(0);
    net.run_for(Duration::from_millis(21));
    net.nodes[1].backlog = 511;
    let initiation = net.nodes[0].host.sent[0].bytes.clone();
    let from = net.nodes[0].addr;
    net.link = Link::DEAD;
    net.run_for(Duration::from_millis(900));
    assert_eq!(net.deliver(1, from, &initiation), Err(DropReason::UnderLoad));
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.deliver(1, from, &initiation), Ok(()));
}

#[test]
fn a_cookie_is_for_one_address_and_port() {
    let (mut net, signed) = initiation_with_a_cookie(14);
    assert_ne!(signed[132..], [0; 16]);
    let mut other_port = net.nodes[0].addr;
    other_port.set_port(51821);
    assert_eq!(net.deliver(1, other_port, &signed), Err(DropReason::UnderLoad));
    let from = net.nodes[0].addr;
    assert_eq!(net.deliver(1, from, &signed), Ok(()));
}

#[test]
fn a_cookie_is_used_for_less_than_115_s() {
    let mut net = Net::pair(5);
    net.exhaust_unseen_sources(1);
    net.initiate(0);
    net.run_for(Duration::from_millis(50));
    let received = net.now.boot;
    net.link = Link::DEAD;
    net.run_with_traffic(Duration::from_secs(140), Duration::from_secs(1), &[0], b"x");
    for sent in net.nodes[0].host.sent.iter().skip(1) {
        let young = sent.at.since(received) < Duration::from_millis(115_000 - 10);
        assert_eq!(sent.bytes[132..] != [0; 16], young, "{:?}", sent.at.since(received));
    }
}

#[test]
fn the_cookie_secret_changes_after_120_s() {
    let (mut net, signed) = initiation_with_a_cookie(6);
    let from = net.nodes[0].addr;
    net.run_for(Duration::from_secs(120));
    assert_eq!(net.deliver(1, from, &signed), Err(DropReason::UnderLoad));
}

#[test]
fn unsolicited_cookies_are_refused() {
    let mut net = Net::pair(7);
    net.exhaust_unseen_sources(1);
    net.initiate(0);
    net.run_for(Duration::from_millis(50));
    let cookie = net.nodes[1].host.sent[0].bytes.clone();
    let from = net.nodes[1].addr;
    assert_eq!(net.deliver(0, from, &cookie), Err(DropReason::CookieUnexpected));
    let mut strange = cookie.clone();
    strange[4] ^= 1;
    assert_eq!(net.deliver(0, from, &strange), Err(DropReason::UnknownIndex));

    net.link = Link::DEAD;
    net.run_for(Duration::from_secs(6));
    let index = net.nodes[0].host.sent.last().unwrap().bytes[4..8].to_vec();
    let mut outdated = cookie;
    outdated[4..8].copy_from_slice(&index);
    // It is bound to the first MAC of another message.
    assert_eq!(net.deliver(0, from, &outdated), Err(DropReason::Undecryptable));
}

#[test]
fn an_address_with_a_cookie_is_still_limited() {
    let (mut net, signed) = initiation_with_a_cookie(8);
    let from = net.nodes[0].addr;
    assert_eq!(net.deliver(1, from, &signed), Ok(()));
    for _ in 0..4 {
        assert_eq!(net.deliver(1, from, &signed), Err(DropReason::Replayed));
    }
    assert_eq!(net.deliver(1, from, &signed), Err(DropReason::RateLimited));
    net.run_for(Duration::from_millis(50));
    assert_eq!(net.deliver(1, from, &signed), Err(DropReason::Replayed));
}

/// Under load the second node has sent the first one a cookie; with it, that has made another initiation, which was lost.
fn initiation_with_a_cookie(seed: u64) -> (Net, Vec<u8>) {
    let mut net = Net::pair(seed);
    net.exhaust_unseen_sources(1);
    net.initiate(0);
    net.run_for(Duration::from_secs(1));
    net.link = Link::DEAD;
    net.run_for(Duration::from_secs(5));
    let signed = net.nodes[0].host.sent.last().unwrap().bytes.clone();
    (net, signed)
}
