//! Random schedules of two or three engines and the network between them, checked against the protocol's guarantees.
//!
//! The network loses, duplicates, delays and damages datagrams; hosts restart, sleep, move, and have their clocks, keys
//! and tables changed; an attacker replays and forges. Throughout: no packet is delivered twice, altered, to the wrong
//! peer or from an address that is not its sender's; nothing is sealed with an expired or unconfirmed key, or twice
//! with one counter; no initiation is answered twice, no handshake is started within 5 s of another; no endpoint
//! becomes the attacker's; with a peer that is suspended not a byte is exchanged, whatever happens to the clock, until its
//! limits are changed. Once all is well again, packets get through again within the protocol's own times.
//!
//! A schedule depends only on its seed. Every run tries the same ones, so that a failure is due to the change under
//! test; `RANDOM_SCHEDULES_SEED` is the first seed (that of a schedule that failed, or `random`), `RANDOM_SCHEDULES`
//! their number.

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

use event::Schedule;

/// The default; the full tier sets `RANDOM_SCHEDULES=10000`.
const RANDOM_SCHEDULES: u64 = 1_000;

#[test]
fn the_protocols_guarantees_hold_in_every_schedule() {
    let given = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let first = match env::var("RANDOM_SCHEDULES_SEED").as_deref() {
        Ok("random") => RandomState::new().hash_one(0),
        _ => given("RANDOM_SCHEDULES_SEED").unwrap_or(1),
    };
    let schedules = given("RANDOM_SCHEDULES").unwrap_or(RANDOM_SCHEDULES);
    println!("{schedules} schedules from RANDOM_SCHEDULES_SEED={first}");
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let failed = (0..schedules).find_map(|i| {
        let schedule = Schedule::new(first.wrapping_add(i));
        failure(&schedule).map(|_| shrunk(schedule))
    });
    panic::set_hook(hook);
    if let Some(schedule) = failed {
        let reason = failure(&schedule);
        panic!("RANDOM_SCHEDULES_SEED={}: {}\n{schedule:#?}", schedule.seed, reason.unwrap_or_default());
    }
}

/// The guarantee that the schedule breaks, if it does.
fn failure(schedule: &Schedule) -> Option<String> {
    let result = panic::catch_unwind(AssertUnwindSafe(|| world::run(schedule)));
    result.err().map(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The schedule without the events that are not needed for its failure.
fn shrunk(mut schedule: Schedule) -> Schedule {
    for index in (0..schedule.events.len()).rev() {
        let mut shorter = schedule.clone();
        shorter.events.remove(index);
        if failure(&shorter).is_some() {
            schedule = shorter;
        }
    }
    schedule
}
