//! Malicious input.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_protocol::{DropReason, MessageKind};
use proptest::prelude::*;

use crate::simulation::{Net, can_open, public, sign};

fn unknown_sender() -> SocketAddr {
    "[2001:db8::666]:666".parse().unwrap()
}

#[test]
fn a_tampered_response_with_a_valid_mac_does_not_disturb_the_handshake() {
    let mut net = Net::pair(1);
    net.send(0, b"hello");
    net.run_for(Duration::from_millis(21));
    let valid = net.nodes[1].host.sent[0].bytes.clone();
    let tamper = |at: usize, bit: u8| {
        let mut forged = valid.clone();
        forged[at] ^= bit;
        sign(&mut forged, &public(0));
        forged
    };
    assert_eq!(net.deliver(0, unknown_sender(), &tamper(8, 1)), Err(DropReason::UnknownIndex));
    assert_eq!(net.deliver(0, unknown_sender(), &tamper(12, 1)), Err(DropReason::Undecryptable));
    assert_eq!(net.deliver(0, unknown_sender(), &tamper(44, 1)), Err(DropReason::Undecryptable));
    let mut low = valid.clone();
    low[12..44].fill(0);
    sign(&mut low, &public(0));
    assert_eq!(net.deliver(0, unknown_sender(), &low), Err(DropReason::LowOrder));

    net.run_for(Duration::from_millis(60));
    assert_eq!(net.nodes[1].data_received(), [b"hello"]);
}

#[test]
fn a_tampered_initiation_with_a_valid_mac_is_refused_and_leaves_the_timestamp() {
    let mut net = Net::pair(2);
    net.initiate(0);
    let valid = net.nodes[0].host.sent[0].bytes.clone();
    net.drop_in_flight();
    for at in [8, 40, 87, 88, 115] {
        let mut forged = valid.clone();
        forged[at] ^= 1;
        sign(&mut forged, &public(1));
        assert_eq!(net.deliver(1, unknown_sender(), &forged), Err(DropReason::Undecryptable), "byte {at}");
    }
    let mut low = valid.clone();
    low[8..40].fill(0);
    sign(&mut low, &public(1));
    assert_eq!(net.deliver(1, unknown_sender(), &low), Err(DropReason::LowOrder));
    assert!(net.nodes[1].host.sent.is_empty());
    let from = net.nodes[0].addr;
    assert_eq!(net.deliver(1, from, &valid), Ok(()));
}

#[test]
fn a_data_message_is_refused_by_the_handshake() {
    let mut net = Net::connected(3);
    let keepalive = net.nodes[0].host.sent.iter().find(|sent| sent.kind == MessageKind::Data).unwrap().bytes.clone();
    let result =
        net.call(1, |node, now, rng| node.device.handle(now, rng, unknown_sender(), 0, &keepalive, &mut node.host));
    assert_eq!(result, Err(DropReason::WrongKind));
}

#[test]
fn a_replayed_data_message_is_delivered_once() {
    let mut net = Net::connected(4);
    net.send(0, b"once");
    net.run_for(Duration::from_millis(50));
    let copy = net.nodes[0].host.sent.last().unwrap().bytes.clone();
    assert_eq!(net.deliver(1, unknown_sender(), &copy), Err(DropReason::CounterReplayed));
    assert_eq!(net.nodes[1].data_received(), [b"once"]);
}

/// Bytes that often pass the first checks.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let shaped = (1u8..5, any::<[u8; 256]>(), any::<bool>()).prop_map(|(kind, random, exact)| {
        let len = [148, 92, 64, 40][usize::from(kind) - 1] + usize::from(!exact);
        let mut bytes = random[..len].to_vec();
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        bytes
    });
    prop_oneof![3 => shaped, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn no_bytes_panic_or_disturb_a_session(datagrams in proptest::collection::vec((datagram(), any::<bool>(), 0usize..1024), 1..20)) {
        let mut net = Net::connected(5);
        for (mut bytes, signed, backlog) in datagrams {
            if signed && bytes.len() >= 92 {
                sign(&mut bytes, &public(1));
            }
            net.nodes[1].backlog = backlog;
            prop_assert!(net.deliver(1, unknown_sender(), &bytes).is_err());
        }
        net.nodes[1].backlog = 0;
        prop_assert!(can_open(&net, 0, 1) && can_open(&net, 1, 0));
        let (endpoint, addr) = (net.nodes[1].host.endpoints[&net.nodes[1].peer()], net.nodes[0].addr);
        prop_assert_eq!(endpoint, addr);
    }
}
