//! Laws that the simulation has to obey whatever the costs are.

use crate::costs::{Cost, Costs, measured};
use crate::lab;
use crate::sim::{Arrivals, Ns, Outcome, Setup, Softirq, run};

const SECOND: Ns = 1_000_000_000;

/// All setups, roughly: few and many of everything.
fn setups() -> impl Iterator<Item = Setup> {
    let tcp = |streams, window| Arrivals::Tcp { streams, window };
    let arrivals = [tcp(1, 1), tcp(1, 32), tcp(4, 8), tcp(40, 4), Arrivals::Paced { every: 20_000 }];
    let cores = [(1, 1), (2, 1), (4, 1), (4, 3), (16, 5)];
    cores.into_iter().flat_map(move |(cores, peers)| {
        arrivals.into_iter().enumerate().map(move |(index, arrivals)| {
            let softirq = if index % 2 == 0 { Softirq::Inline } else { Softirq::Core };
            Setup { arrivals, softirq, room: 40, early: peers > 1, ..lab(cores, peers, 1) }
        })
    })
}

/// Costs without chance, and without anything between cores.
fn plain() -> Costs {
    let free = Cost(0.0, 0.0);
    Costs {
        make: free,
        take: free,
        read: free,
        split: free,
        counters: 0,
        seal: free,
        send: free,
        softirq: free,
        recv: free,
        open: free,
        write: free,
        write_ack: 0,
        packet: 0,
        probe: 100,
        wait: 100,
        wake: 0,
        kick: 0,
        switch: 0,
        hand_over: 0,
        foreign: 0,
        spread: 0.0,
        contention: vec![1.0],
    }
}

fn assert_near(what: f64, expected: f64, share: f64) {
    assert!((what - expected).abs() <= share * expected, "{what}, not {expected}");
}

#[test]
fn every_packet_is_taken_lost_or_under_way_and_none_overtakes_another() {
    for setup in setups() {
        let Outcome { made, taken, dropped, queued, reordered, .. } = run(&measured(), setup, SECOND / 20, 1);
        assert_eq!(made, taken + dropped + queued, "{setup:?}");
        assert!(taken > 0, "{setup:?}");
        assert_eq!(reordered, 0, "{setup:?}");
    }
}

#[test]
fn no_more_is_done_than_there_is_time() {
    for setup in setups() {
        let outcome = run(&measured(), setup, SECOND / 20, 2);
        let busy: f64 = outcome.busy.iter().sum();
        assert!(busy > 0.0 && busy <= setup.cores as f64 * 1.001, "{busy} of {setup:?}");
        assert!(outcome.busiest.iter().all(|&share| share <= 1.001), "a thread has one core: {setup:?}");
        let held = outcome.serial.iter().flatten();
        assert!(held.copied().all(|share| share <= 1.01), "one at a time: {:?} of {setup:?}", outcome.serial);
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    for setup in setups() {
        let once = run(&measured(), setup, SECOND / 50, 3);
        assert_eq!(once, run(&measured(), setup, SECOND / 50, 3));
    }
    assert_ne!(run(&measured(), lab(2, 1, 1), SECOND / 50, 3), run(&measured(), lab(2, 1, 1), SECOND / 50, 4));
}

#[test]
fn one_core_takes_the_sum_of_all_costs() {
    let costs = Costs { contention: vec![1.0], ..measured() };
    let outcome = run(&costs, lab(1, 1, 1), SECOND, 5);
    let used: f64 = outcome.busy.iter().sum();
    assert_near(used, 1.0, 0.01);
    // Of data alone: what acknowledgements and waits take comes on top.
    let (size, calls) = (0.7, 1.0);
    let stages = [costs.make, costs.take, costs.read, costs.split, costs.seal, costs.send, costs.softirq];
    let stages = stages.into_iter().chain([costs.recv, costs.open, costs.write]);
    let data: f64 = stages.map(|Cost(call, bytes)| call * calls + bytes * size).sum();
    let each = 1e9 * size / outcome.rate;
    assert!(each > data && each < 1.25 * data, "{each} ns for each packet, of which {data} are for data");
}

/// A queue with one server and constant times: packets come each 10 us and take 8 of the engine, one after the other.
#[test]
fn a_paced_source_keeps_a_server_busy_for_its_share_of_the_time() {
    let costs = Costs { seal: Cost(0.0, 8_000.0), ..plain() };
    let setup = Setup { arrivals: Arrivals::Paced { every: 10_000 }, size: 1.0, ..lab(16, 1, 1) };
    let outcome = run(&costs, setup, SECOND / 10, 1);
    assert_eq!(outcome.dropped, 0);
    assert_near(outcome.rate, 100_000.0, 0.01);
    // The polls of empty queues and the waits between packets come on top.
    assert!(outcome.busy[1] >= 0.8 && outcome.busy[1] < 0.9, "{:?}", outcome.busy);
}

#[test]
fn an_overloaded_server_takes_what_it_can_and_loses_the_rest() {
    let costs = Costs { read: Cost(0.0, 20_000.0), ..plain() };
    let setup = Setup { arrivals: Arrivals::Paced { every: 10_000 }, size: 1.0, room: 10, ..lab(16, 1, 1) };
    let outcome = run(&costs, setup, SECOND / 10, 1);
    assert_near(outcome.rate, 50_000.0, 0.03);
    assert!(outcome.queued <= 15);
    assert_near(outcome.dropped as f64, outcome.made as f64 / 2.0, 0.05);
}

#[test]
fn an_infinitely_fast_parallel_part_is_bounded_by_the_phase_in_order() {
    for (costs, phase) in [
        (Costs { read: Cost(10_000.0, 0.0), ..plain() }, 10_000.0),
        (Costs { send: Cost(15_000.0, 0.0), ..plain() }, 15_000.0),
        (Costs { write: Cost(12_000.0, 0.0), ..plain() }, 12_000.0),
    ] {
        let outcome = run(&costs, Setup { size: 1.0, machine: 1024, ..lab(16, 1, 4) }, SECOND / 5, 1);
        assert!(outcome.rate <= 1e9 / phase * 1.01, "{} for {phase} ns in order", outcome.rate);
        assert_near(outcome.rate, 1e9 / phase, 0.1);
    }
}

#[test]
fn a_window_of_one_packet_carries_one_in_a_round_trip() {
    let costs = Costs { seal: Cost(0.0, 30_000.0), open: Cost(0.0, 20_000.0), wake: 10_000, ..plain() };
    let setup = Setup { arrivals: Arrivals::Tcp { streams: 1, window: 1 }, size: 1.0, acks: 1.0, ..lab(16, 1, 1) };
    let outcome = run(&costs, setup, SECOND / 10, 1);
    // Each engine's worker is woken once: who delivers picks up the answer itself.
    assert_near(1e9 / outcome.rate, 50_000.0 + 2.0 * 10_000.0, 0.02);
}

#[test]
fn more_cores_are_never_slower_than_one() {
    let one = run(&measured(), lab(1, 1, 4), SECOND / 4, 1).rate;
    for cores in [2, 4, 8, 16] {
        let more = run(&measured(), Setup { machine: cores, ..lab(cores, 1, 4) }, SECOND / 4, 1).rate;
        assert!(more > 1.2 * one, "{more} on {cores} cores, {one} on one");
    }
}

#[test]
fn helpers_come_only_where_a_core_is_idle_or_more_than_two_are_there() {
    assert_eq!(run(&measured(), lab(1, 1, 4), SECOND / 4, 1).unparked, 0);
    assert!(run(&measured(), lab(4, 1, 4), SECOND / 4, 1).unparked > 0);
}
