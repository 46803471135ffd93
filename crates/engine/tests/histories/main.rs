//! Random histories of two or three engines and what lies between them, against what the protocol
//! promises.
//!
//! The network loses, doubles, delays and damages; hosts restart, sleep, move, and have their clocks, keys
//! and tables changed; somebody replays and forges. Whatever happens: no packet is delivered twice, altered,
//! to another than its destination's peer or from an address that is not its sender's; nothing is sealed
//! with an old key, an unconfirmed one, or twice with one counter; no initiation is answered twice, no
//! handshake started within 5 s of another; nobody is led astray by a stranger. And when all is well again,
//! everybody is heard again within the protocol's own times.
//!
//! Histories depend on nothing but their seed. Every run tries the same ones, so that a change is judged by what it
//! changed; `HISTORIES_SEED` takes another seed to begin with (that of a history that failed, or `random`), and
//! `HISTORIES` says how many to try.

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

const HISTORIES: u64 = 10_000;

#[test]
fn whatever_happens_the_protocol_keeps_its_promises() {
    let given = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let first = match env::var("HISTORIES_SEED").as_deref() {
        Ok("random") => RandomState::new().hash_one(0),
        _ => given("HISTORIES_SEED").unwrap_or(1),
    };
    let histories = given("HISTORIES").unwrap_or(HISTORIES);
    println!("{histories} histories from HISTORIES_SEED={first}");
    let shown = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let failed = (0..histories).find_map(|i| {
        let history = History::new(first.wrapping_add(i));
        failure(&history).map(|_| shrunk(history))
    });
    panic::set_hook(shown);
    if let Some(history) = failed {
        let reason = failure(&history);
        panic!("HISTORIES_SEED={}: {}\n{history:#?}", history.seed, reason.unwrap_or_default());
    }
}

/// How the history breaks a promise, if it does.
fn failure(history: &History) -> Option<String> {
    let lived = panic::catch_unwind(AssertUnwindSafe(|| world::live(history)));
    lived.err().map(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The history without the events that its failure does not need.
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
