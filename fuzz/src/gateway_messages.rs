//! Any bytes as messages of other gateways and of a daemon, in correct and in other envelopes. Each message has one
//! encoding and is accepted once. After any number of messages, a gateway's memory is bounded by its peers and members,
//! it has initiated to no peer twice within its interval, and no floor is ahead of its clock by more than the bound.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use linerate_control::keys::SecretKey;
use linerate_control::uapi::fleet::Initiate;
use linerate_fleet::gateway::envelope::Envelopes;
use linerate_fleet::gateway::machine::{Action, Machine, PEER_EVERY};
use linerate_fleet::gateway::members::Now;
use linerate_fleet::gateway::message::{Forwarded, Message};
use linerate_fleet::gateway::peers::{AHEAD_MAX, stamp};
use linerate_fleet::seal::MessageKey;

const PEERS: u32 = 16;
/// The other members, which keep their lives throughout.
const OTHERS: [u8; 2] = [1, 2];
/// These sender numbers stand for gateways 1 and 2: for an envelope with an arbitrary header and the right MAC
/// (`OTHER_HEADERS`), and for arbitrary bytes (`OTHER_BYTES`).
const OTHER_HEADERS: std::ops::Range<u8> = 64..128;
const OTHER_BYTES: std::ops::Range<u8> = 128..255;

/// Each step: tens of milliseconds, the sender (255: the daemon), the length in two bytes, and a message.
pub fn check(mut bytes: &[u8]) {
    let mut machine = Machine::new(0, Duration::from_millis(100));
    machine.set_members(&BTreeMap::from([(0, 1), (1, 1), (2, 3)]));
    machine.set_peers(0..PEERS);
    machine.set_serves(true);
    machine.set_store(true, false);
    let mut time = Duration::ZERO;
    let (mut ours, mut others) = acquainted();
    let mut strange = Envelopes::new(0, 1, key());
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
        } else if OTHER_BYTES.contains(from) {
            assert!(!is_taken(&mut ours, time, 1 + from % 2, message), "without the key");
        } else if OTHER_HEADERS.contains(from) {
            let sealed = [message, &key().mac(message)].concat();
            is_taken(&mut strange, time, 1 + from % 2, &sealed);
            assert!(!is_taken(&mut strange, time, 1 + from % 2, &sealed), "taken twice");
        } else if let Some(other) = others.get_mut(from) {
            let sealed = other.seal(0, message);
            assert_eq!(ours.open(time, *from, &sealed), Ok(Some(message)));
            assert!(ours.open(time, *from, &sealed).is_err(), "taken twice");
            machine.message(now, *from, message, &mut actions);
        } else {
            machine.message(now, *from, message, &mut actions);
        }
        machine.tick(now, &mut actions);
        has_one_form(message);
        for action in actions {
            match action {
                Action::Send { to, bytes } => {
                    assert!(Message::decode(&bytes).is_some());
                    let sealed = ours.seal(to, &bytes);
                    let opened = others.get_mut(&to).map(|other| other.open(time, 0, &sealed));
                    assert_eq!(opened, Some(Ok(Some(&bytes[..]))));
                }
                Action::Tell(orders) => {
                    let latest = Some(stamp(now.wall + AHEAD_MAX));
                    for order in orders {
                        assert!(order.sent <= latest);
                        assert!(machine.hint_of(order.number).is_some_and(|hint| hint.received <= latest));
                        if order.initiate != Initiate::No {
                            let before = initiated.insert(order.number, time);
                            assert!(before.is_none_or(|before| time >= before + PEER_EVERY));
                        }
                    }
                }
                Action::Inject { .. } => {}
            }
        }
        let [peers, members, rest @ ..] = machine.remembered();
        assert!(peers == PEERS as usize && members == 2 && rest.iter().all(|count| *count <= peers));
    }
}

fn key() -> MessageKey {
    MessageKey::new(&SecretKey::from_bytes(&[7; 32]), &"fuzz".parse().expect("it is a name"), 1)
}

fn is_taken(envelopes: &mut Envelopes, time: Duration, from: u8, bytes: &[u8]) -> bool {
    matches!(envelopes.open(time, from, bytes), Ok(Some(_)))
}

/// Returns the envelopes of this gateway and of the others, after they have exchanged challenges.
fn acquainted() -> (Envelopes, BTreeMap<u8, Envelopes>) {
    let mut ours = Envelopes::new(0, 1, key());
    let others = OTHERS.map(|number| {
        let mut other = Envelopes::new(number, 1 + u64::from(number), key());
        assert_eq!(other.open(Duration::ZERO, 0, &ours.seal(number, b"")), Ok(None));
        assert_eq!(ours.open(Duration::ZERO, number, &other.seal(0, b"")), Ok(Some(&b""[..])));
        assert_eq!(other.open(Duration::ZERO, 0, &ours.seal(number, b"")), Ok(Some(&b""[..])));
        (number, other)
    });
    (ours, others.into())
}

fn has_one_form(bytes: &[u8]) {
    if let Some(message) = Message::decode(bytes) {
        assert_eq!(message.encode(), bytes);
    }
    if let Some(forwarded) = Forwarded::decode(bytes) {
        assert_eq!(forwarded.encode(), bytes);
    }
}
