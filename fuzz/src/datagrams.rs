//! Two devices on a network whose deliveries an attacker controls: nothing is accepted that the peer did not seal,
//! nothing twice, no peer is moved, and on a good network both recover.
//!
//! An input is a sequence of events, of a few bytes each. The attacker knows the public keys, so its messages can have
//! a valid first MAC.

use std::net::SocketAddr;
use std::time::Duration;

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use linerate_protocol::{MessageKind, PublicKey, classify};

use crate::bytes::Bytes;
use crate::simulation::{Link, Net, public};

/// Handshakes are slow, and more of them would find nothing new.
const MOST: usize = 48;

pub fn check(input: &[u8]) {
    let mut input = Bytes(input);
    let mut net = Net::pair(1);
    net.link = Link::DEAD;
    let mut sent = [Vec::new(), Vec::new()];
    for number in 0..MOST as u8 {
        if input.is_empty() {
            break;
        }
        apply_event(&mut net, &mut sent, number, &mut input);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let mut received = net.nodes[to].data_received();
        assert!(received.iter().all(|packet| sent[from].contains(&packet.to_vec())), "only packets that the peer sent");
        received.sort_unstable();
        assert!(received.windows(2).all(|pair| pair[0] != pair[1]), "nothing arrives twice");
    }
    assert_recovers(&mut net);
}

fn apply_event(net: &mut Net, sent: &mut [Vec<Vec<u8>>; 2], number: u8, input: &mut Bytes<'_>) {
    let (what, argument) = (input.byte(), input.short());
    let at = usize::from(what >> 7);
    match what % 8 {
        0 => net.initiate(at),
        1 => {
            let packet = vec![number, argument as u8 | 1, at as u8];
            net.send(at, &packet);
            sent[at].push(packet);
        }
        2 | 3 => {
            if let Some(message) = sent_by(net, 1 - at, argument) {
                let _ = net.deliver(at, source(what), &message);
            }
        }
        4 => {
            let Some(mut message) = sent_by(net, 1 - at, argument) else { return };
            let bit = usize::from(input.short()) % (message.len() * 8);
            message[bit / 8] ^= 1 << (bit % 8);
            let is_signed = input.flag() && is_handshake(&message) && bit / 8 < message.len() - 32;
            if is_signed {
                sign(&mut message, &public(at as u64));
            }
            // The sender's index is not authenticated (paper section 5.4.2), and the second MAC only under load.
            let is_free = (is_signed && (4..8).contains(&(bit / 8))) || bit / 8 >= message.len() - 16;
            is_refused(net, at, what, &message, is_free && is_handshake(&message));
        }
        5 => {
            let mut message = input.take(usize::from(argument % 256)).to_vec();
            if let Some(kind) = message.first_mut() {
                let kind = std::mem::replace(kind, 1 + *kind % 4);
                message.resize([148, 92, 64, 32 + usize::from(kind) % 64][usize::from(message[0]) - 1], kind);
                message[1..4].fill(0);
            }
            if is_handshake(&message) && input.flag() {
                sign(&mut message, &public(at as u64));
            }
            is_refused(net, at, what, &message, false);
        }
        6 => net.run_for(Duration::from_millis(u64::from(argument))),
        _ => net.nodes[at].backlog = usize::from(argument),
    }
}

/// Delivers a message that the peer did not send. It may be accepted only if the altered bytes are not authenticated.
fn is_refused(net: &mut Net, at: usize, what: u8, message: &[u8], is_free: bool) {
    let endpoints = net.nodes[at].host.endpoints.clone();
    let sessions = net.nodes[at].host.sessions.len();
    let taken = net.deliver(at, source(what), message).is_ok();
    assert!(!taken || is_free, "{:?} is taken", classify(message));
    if !taken {
        assert_eq!(net.nodes[at].host.endpoints, endpoints, "no peer is moved");
        assert_eq!(net.nodes[at].host.sessions.len(), sessions, "no session is made");
    }
}

/// Both have a session within the time that the protocol takes, after any events.
fn assert_recovers(net: &mut Net) {
    net.link = Link::GOOD;
    for at in [0, 1] {
        net.nodes[at].backlog = 0;
        let (peer, addr) = (net.nodes[at].peer(), net.nodes[1 - at].addr);
        net.nodes[at].host.endpoints.insert(peer, addr);
    }
    net.run_with_traffic(Duration::from_secs(40), Duration::from_secs(2), &[0, 1], b"after");
    for node in &net.nodes {
        assert_eq!(node.data_received().last(), Some(&&b"after"[..]));
        let last = node.host.received.last().expect("something was received").0;
        assert!(net.now.boot.since(last) < Duration::from_secs(5), "and still is");
    }
}

fn sent_by(net: &Net, node: usize, which: u16) -> Option<Vec<u8>> {
    let sent = &net.nodes[node].host.sent;
    // The latest ones matter most.
    let index = usize::from(which).checked_rem(sent.len())?;
    Some(sent[sent.len() - 1 - index].bytes.clone())
}

fn source(what: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, what >> 3 & 7], 666))
}

fn is_handshake(message: &[u8]) -> bool {
    matches!(classify(message), Ok(MessageKind::Initiation | MessageKind::Response))
}

/// Writes a valid first MAC, as anyone who knows the public key can.
fn sign(message: &mut [u8], to: &PublicKey) {
    let key = Blake2s256::new().chain_update(b"mac1----").chain_update(to.0).finalize();
    let at = message.len() - 32;
    let mut mac = Blake2sMac::<U16>::new_from_slice(&key).expect("the key has 32 bytes");
    Update::update(&mut mac, &message[..at]);
    message[at..at + 16].copy_from_slice(&mac.finalize_fixed());
}
