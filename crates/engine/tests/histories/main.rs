//! Random histories of two or three engines and the network between them, checked against the protocol's guarantees.
//!
//! The network loses, duplicates, delays and damages datagrams; hosts restart, sleep, move, and have their clocks, keys
//! and tables changed; an attacker replays and forges. Throughout: no packet is delivered twice, altered, to the wrong
//! peer or from an address that is not its sender's; nothing is sealed with an expired or unconfirmed key, or twice with
//! one counter; no initiation is answered twice, no handshake is started within 5 s of another; no endpoint becomes the
//! attacker's. Once all is well again, packets get through again within the protocol's own times.
//!
//! A history depends only on its seed. Every run tries the same ones, so that a failure is due to the change under
//! test; `HISTORIES_SEED` is the first seed (that of a history that failed, or `random`), `HISTORIES` their number.

#[path = "../hosts/mod.rs"]
mod hosts;

mod event;
mod rng;
mod table;
mod wire;
mod world;

use std::any::Any;
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::panic::{self, AssertUnwindSafe};

use event::History;

/// The default; the full tier sets `HISTORIES=10000`.
const HISTORIES: u64 = 1_000;

#[test]
fn the_protocols_guarantees_hold_in_every_history() {
    let given = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let first = match env::var("HISTORIES_SEED").as_deref() {
        Ok("random") => RandomState::new().hash_one(0),
        _ => given("HISTORIES_SEED").unwrap_or(1),
    };
    let histories = given("HISTORIES").unwrap_or(HISTORIES);
    println!("{histories} histories from HISTORIES_SEED={first}");
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let failed = (0..histories).find_map(|i| {
        let history = History::new(first.wrapping_add(i));
        failure(&history).map(|_| shrunk(history))
    });
    panic::set_hook(hook);
    if let Some(history) = failed {
        let reason = failure(&history);
        panic!("HISTORIES_SEED={}: {}\n{history:#?}", history.seed, reason.unwrap_or_default());
    }
}

/// The guarantee that the history breaks, if it does.
fn failure(history: &History) -> Option<String> {
    let result = panic::catch_unwind(AssertUnwindSafe(|| world::run(history)));
    result.err().map(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The history without the events that are not needed for its failure.
fn shrunk(mut history: History) -> History {
    for place in (0..history.events.len()).rev() {
        let mut shorter = history.clone();
        shorter.events.remove(place);
        if failure(&shorter).is_some() {
            history = shorter;
        }
    }
    history
}
