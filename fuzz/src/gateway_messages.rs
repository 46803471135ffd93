//! Any bytes as what other gateways and a daemon send to a gateway: each message has one form, and a gateway that is given
//! any number of them remembers no more than peers and members, and initiates to no peer twice within its interval.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use linerate_control::uapi::fleet::Initiate;
use linerate_fleet::gateway::machine::{Action, Machine, PEER_EVERY};
use linerate_fleet::gateway::members::Now;
use linerate_fleet::gateway::message::{Forwarded, Message};

const PEERS: u32 = 16;

/// Each step: tens of milliseconds, the sender (255: the daemon), the length in two bytes, and a message.
pub fn check(mut bytes: &[u8]) {
    let mut machine = Machine::new(0, Duration::from_millis(100));
    machine.set_members(&BTreeMap::from([(0, 1), (1, 1), (2, 3)]));
    machine.set_peers(0..PEERS);
    machine.set_serves(true);
    machine.set_store(true, false);
    let mut time = Duration::ZERO;
    let mut initiated: HashMap<u32, Duration> = HashMap::new();
    while let [later, from, low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (message, rest) = rest.split_at(length);
        bytes = rest;
        time += Duration::from_millis(u64::from(*later) * 10);
        let now = Now { monotonic: time, wall: time + Duration::from_secs(1_800_000_000) };
        let mut actions = Vec::new();
        if *from == u8::MAX {
            machine.forwarded(now, message, &mut actions);
        } else {
            machine.message(now, *from, message, &mut actions);
        }
        machine.tick(now, &mut actions);
        has_one_form(message);
        for action in actions {
            match action {
                Action::Send { bytes, .. } => assert!(Message::decode(&bytes).is_some()),
                Action::Tell(orders) => {
                    for order in orders.iter().filter(|order| order.initiate != Initiate::No) {
                        let before = initiated.insert(order.number, time);
                        assert!(before.is_none_or(|before| time >= before + PEER_EVERY));
                    }
                }
                Action::Inject { .. } => {}
            }
        }
        let [peers, members, rest @ ..] = machine.remembered();
        assert!(peers == PEERS as usize && members == 2 && rest.iter().all(|count| *count <= peers));
    }
}

fn has_one_form(bytes: &[u8]) {
    if let Some(message) = Message::decode(bytes) {
        assert_eq!(message.encode(), bytes);
    }
    if let Some(forwarded) = Forwarded::decode(bytes) {
        assert_eq!(forwarded.encode(), bytes);
    }
}
