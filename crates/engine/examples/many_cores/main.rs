//! A model of the engine on more cores than the machine at hand, as a simulation: prints what it makes of the
//! configurations that were measured, and of machines with 16 and 64 cores. It is within 9 % of what was measured on one,
//! two and four cores under Reno, where throughput is bound by the processors. Under BBR it predicts up to 1.36 times too
//! much, because pacing is not modelled. docs/perf/limits.md quotes its figures.
//!
//!     cargo run --release -p linerate-engine --example many_cores
//!
//! It looks at no clock and draws its random numbers from a fixed seed: the same figures everywhere.

mod costs;
#[path = "../../src/scaling.rs"]
mod scaling;
mod sim;
#[path = "../../src/sync.rs"]
#[expect(dead_code, unused_imports, reason = "its constants")]
mod sync;
#[cfg(test)]
mod tests;
#[path = "../../src/worker_pool.rs"]
#[expect(dead_code, reason = "its constants and its timer; the pool itself blocks threads")]
mod worker_pool;

use costs::{Costs, FULL_GSO_BYTES, measured};
use linerate_netio::tun::QUEUES_MAX;
use sim::{Arrivals, Outcome, Setup, Softirq, run};
use sync::{SPIN_MAX, WORKERS_MAX};

/// Simulated time of a run, of which a fifth is the warm-up.
const DURATION: sim::Ns = 2_500_000_000;

/// Runs of each setup, of which the median is printed.
const SEEDS: u64 = 3;

/// A measurement: cores, streams, and the median throughput in Gbit/s with its range.
const MEASURED: [(usize, usize, f64, [f64; 2]); 5] = [
    (1, 1, 5.31, [3.86, 5.34]),
    (2, 1, 7.58, [7.43, 7.87]),
    (2, 4, 7.75, [6.04, 8.57]),
    (4, 1, 8.47, [7.22, 9.10]),
    (4, 4, 9.71, [8.46, 10.51]),
];

fn main() {
    let costs = measured();
    println!("Gbit/s, both ends on one machine, streams to one peer    measured   predicted  ratio");
    for (cores, streams, rate, [least, most]) in MEASURED {
        let outcome = median(&costs, lab(cores, 1, streams));
        let predicted = gbits(&outcome);
        println!(
            "{cores:2} cores, {streams} streams: {rate:38.2} [{least:.2}, {most:.2}] {predicted:8.2} {:6.2}  {}",
            predicted / rate,
            bound(&outcome)
        );
    }
    println!("\nMore cores of the same kind");
    for (cores, peers, streams) in
        [(4, 1, 4), (8, 1, 4), (16, 1, 1), (16, 1, 4), (64, 1, 1), (64, 1, 4), (16, 16, 1), (64, 16, 1), (64, 32, 1)]
    {
        let setup = Setup { machine: cores, ..lab(cores, peers, streams) };
        report(&costs, "", setup);
        if (cores, peers, streams) == (16, 1, 4) {
            report(&costs, "outer flows have cores of their own", Setup { softirq: Softirq::Core, ..setup });
            report(&costs, "the next in order is woken early", Setup { early: true, ..setup });
            report(&costs, "spinning for 100 us", Setup { spin: 100_000, ..setup });
            let quick = Costs { wake: 5_000, kick: 1_000, ..costs.clone() };
            report(&quick, "waking takes 5 us", setup);
        }
    }
    println!("\nDatagrams of 1372 bytes, one by one, at a pace that asks for nothing");
    for (cores, every) in [(2, 4_000), (4, 2_000), (16, 2_000)] {
        let size = 1_372.0 / FULL_GSO_BYTES;
        let setup = Setup { machine: cores, arrivals: Arrivals::Paced { every }, size, ..lab(cores, 1, 1) };
        let Outcome { made, taken, dropped, .. } = median(&costs, setup);
        println!("{cores:2} cores, one each {every} ns: {made} made, {taken} taken, {dropped} lost");
    }
    println!("\n64 cores, 32 peers, by the limits of workers and queues");
    for limits in [(8, 4), (16, 8), (32, 16), (64, 32)] {
        let setup = Setup { machine: 64, limits, ..lab(64, 32, 1) };
        report(&costs, "", setup);
    }
}

/// The lab's pair of hosts: both engines and the load on the same cores.
fn lab(cores: usize, peers: usize, streams: usize) -> Setup {
    Setup {
        cores,
        machine: 4,
        peers,
        arrivals: Arrivals::Tcp { streams, window: 32 },
        size: 0.7,
        acks: 0.64,
        softirq: Softirq::Inline,
        limits: (WORKERS_MAX, QUEUES_MAX),
        room: 4_096,
        spin: SPIN_MAX,
        early: false,
    }
}

fn median(costs: &Costs, setup: Setup) -> Outcome {
    let mut outcomes: Vec<Outcome> = (1..=SEEDS).map(|seed| run(costs, setup, DURATION, seed)).collect();
    outcomes.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    outcomes.swap_remove(SEEDS as usize / 2)
}

fn streams(arrivals: Arrivals) -> usize {
    match arrivals {
        Arrivals::Tcp { streams, .. } => streams,
        Arrivals::Paced { .. } => 0,
    }
}

fn gbits(outcome: &Outcome) -> f64 {
    outcome.rate * FULL_GSO_BYTES * 8.0 / 1e9
}

fn report(costs: &Costs, but: &str, setup: Setup) {
    let outcome = median(costs, setup);
    let (workers, queues) = setup.limits;
    println!(
        "{:2} cores, {:2} peers, {} streams, limits {workers:2} and {queues:2}: {:6.1} Gbit/s; {}{but}",
        setup.cores,
        setup.peers,
        streams(setup.arrivals),
        gbits(&outcome),
        if but.is_empty() { bound(&outcome) } else { String::new() },
    );
}

/// How busy everything is that may be the bottleneck.
fn bound(outcome: &Outcome) -> String {
    let percent = |share: f64| (100.0 * share).round();
    let [sender, _, _, receiver, softirq] = outcome.busiest.map(percent);
    let [[read, _, send], [receive, _, write]] = outcome.serial.map(|engine| engine.map(percent));
    let [_, a, b, _, _] = outcome.busy;
    format!(
        "busy {:.1} cores (engines {a:.1}, {b:.1}), ready without a core {:.1}; %: sender {sender}, read {read}, \
         send {send}, receive {receive}, write {write}, receiver {receiver}, softirq {softirq}",
        outcome.busy.iter().sum::<f64>(),
        outcome.waiting,
    )
}
