//! A record as a run on a small machine could leave it: plausible figures, one failure, one missing subject, a busy
//! machine and a subject with an awkward name.

use std::collections::BTreeMap;

use linerate_doctor::bottleneck::Bottleneck;
use linerate_lab::measure::Measure;
use linerate_lab::record::{Machine, Method, Record, Row, SCHEMA, Sample, SubjectRecord};

pub const ROUNDS: u32 = 5;

/// A name that HTML, Markdown and a narrow plot all have to cope with.
pub const AWKWARD: &str = "wireguard-go <b>fork</b> & friends, build of 2026-09";

/// A subject: its name, gigabits per second of one stream, processor seconds per gigabyte, median round trip in
/// milliseconds, megabytes of memory.
type Subject = (&'static str, f64, f64, f64, f64);

const SUBJECTS: [Subject; 6] = [
    ("no tunnel", 20.3, 0.0, 0.010, 0.0),
    ("linerate", 8.40, 1.32, 0.092, 5.3),
    ("wireguard-go", 3.45, 4.13, 0.147, 355.0),
    (AWKWARD, 2.71, 2.93, 0.151, 33.0),
    ("kernel WireGuard", 3.40, 2.60, 0.060, 0.0),
    ("boringtun", 0.52, 16.4, 0.077, 4.3),
];

/// The whole of it.
pub fn record() -> Record {
    let mut rows = Vec::new();
    let mut rng = Rng(fastrand::Rng::with_seed(7));
    for (scenario, sample) in SCENARIOS {
        for subject in SUBJECTS {
            rows.extend(row(scenario, *sample, subject, &mut rng));
        }
    }
    Record {
        schema: SCHEMA,
        begun: "2026-11-21T17:00:00Z".into(),
        lab: "0.1.0".into(),
        arguments: vec!["lab".into(), "run".into(), "pair".into()],
        machine: Machine {
            kernel: "6.12.43+deb12-amd64".into(),
            processor: "AMD EPYC 9B45".into(),
            processors: 2,
            memory: 25_186_000_000,
            governor: Some("performance".into()),
            powercap: None,
            busy: 0.13,
        },
        method: Method {
            rounds: ROUNDS,
            seconds: 5.0,
            warm_up: 1.0,
            probes: 1000,
            mtu: 1420,
            seed: 1,
            congestion: Some("cubic".into()),
            load: "iperf3 3.12".into(),
        },
        subjects: subjects(),
        baseline: "wireguard-go".into(),
        rows,
    }
}

fn subjects() -> Vec<SubjectRecord> {
    let here = SUBJECTS.iter().map(|(name, ..)| SubjectRecord {
        name: (*name).into(),
        command: match *name {
            "no tunnel" | "kernel WireGuard" => Vec::new(),
            name => vec![name.replace(' ', "-"), "--foreground".into()],
        },
        version: (*name != "no tunnel").then(|| "0.0.20250522".into()),
        missing: None,
    });
    let missing = SubjectRecord {
        name: "gotatun".into(),
        command: Vec::new(),
        version: None,
        missing: Some("not on PATH: cargo install gotatun-cli".into()),
    };
    here.chain([missing]).collect()
}

/// What a subject measures in one round: the subject, the round's rng.
type Measured = fn(Subject, &mut Rng) -> Vec<(Measure, f64)>;

const SCENARIOS: &[(&str, Measured)] = &[
    ("pair/tcp-1", |subject, rng| tcp(subject, 1.0, rng)),
    ("pair/tcp-4", |subject, rng| tcp(subject, 1.25, rng)),
    ("pair/tcp-105", |subject, rng| tcp(subject, 0.92, rng)),
    ("pair/udp-64", udp),
    ("pair/ping", |subject, rng| ping(subject, 1.0, rng)),
    ("pair/ping-loaded", |subject, rng| ping(subject, 18.0, rng)),
    ("pair/peers-1", |subject, rng| peers(subject, 1.0, rng)),
    ("pair/peers-100", |subject, rng| peers(subject, 100.0, rng)),
    ("pair/peers-10000", |subject, rng| peers(subject, 10_000.0, rng)),
    ("pair/peers-100000", |subject, rng| peers(subject, 100_000.0, rng)),
    ("pair/start", start),
];

fn tcp((_, gigabits, cpu, _, megabytes): Subject, factor: f64, rng: &mut Rng) -> Vec<(Measure, f64)> {
    let mut values = vec![
        (Measure::Throughput, rng.about(gigabits * factor * 1e9, 0.08)),
        (Measure::Retransmits, rng.about(40.0, 0.9).floor()),
        (Measure::MachineUser, 0.41),
        (Measure::MachineSystem, 0.52),
        (Measure::MachineIdle, 0.07),
    ];
    if cpu > 0.0 {
        let spent = rng.about(cpu / factor.sqrt(), 0.05);
        values.extend([
            (Measure::CpuPerGb, spent),
            (Measure::UserPerGb, spent * 0.6),
            (Measure::SystemPerGb, spent * 0.4),
            (Measure::SwitchesPerGb, rng.about(9000.0 * cpu, 0.2)),
        ]);
    }
    if megabytes > 0.0 {
        values.push((Measure::PeakMemory, rng.about(megabytes * 1e6, 0.05)));
    }
    values
}

fn udp((_, gigabits, cpu, ..): Subject, rng: &mut Rng) -> Vec<(Measure, f64)> {
    vec![
        (Measure::PacketRate, rng.about(gigabits * 4e4, 0.05)),
        (Measure::Loss, rng.about(0.02 * cpu, 0.5)),
        (Measure::CpuPerGb, rng.about(20.0 * cpu, 0.05)),
    ]
}

fn ping((_, _, _, milliseconds, _): Subject, load: f64, rng: &mut Rng) -> Vec<(Measure, f64)> {
    let median = rng.about(milliseconds * load, 0.05);
    vec![
        (Measure::Loss, 0.0),
        (Measure::LatencyMean, median * 1.1),
        (Measure::LatencyMedian, median),
        (Measure::LatencyP99, median * 2.0),
        (Measure::LatencyMax, median * 30.0),
    ]
}

fn peers(subject: Subject, count: f64, rng: &mut Rng) -> Vec<(Measure, f64)> {
    let (name, gigabits, _, _, megabytes) = subject;
    if megabytes == 0.0 {
        return Vec::new();
    }
    let per_peer = if name == "linerate" { 1900.0 } else { 21_000.0 };
    vec![
        (Measure::Throughput, rng.about(gigabits * 1e9 * (1.0 - 0.05 * count.log10()), 0.05)),
        (Measure::PeakMemory, megabytes * 1e6 + per_peer * count),
        (Measure::MemoryPerPeer, rng.about(per_peer, 0.02)),
        (Measure::SetUpTime, rng.about(0.004 + count * per_peer * 1e-9, 0.1)),
    ]
}

fn start((name, ..): Subject, rng: &mut Rng) -> Vec<(Measure, f64)> {
    if name == "no tunnel" {
        return Vec::new();
    }
    vec![(Measure::StartTime, rng.about(0.012, 0.4)), (Measure::FirstAnswer, rng.about(0.005, 0.4))]
}

/// A row, unless the subject has no part in the scenario.
fn row(scenario: &str, measured: Measured, subject: Subject, rng: &mut Rng) -> Option<Row> {
    let name = subject.0;
    let fails = name == "boringtun" && scenario == "pair/tcp-105";
    let rounds = if fails { 1..=2 } else { 1..=ROUNDS };
    let samples: Vec<Sample> = rounds
        .map(|round| {
            let values: BTreeMap<Measure, f64> = measured(subject, rng).into_iter().collect();
            let round_trips_ms = values.get(&Measure::LatencyMedian).map(|median| rng.round_trips(*median, 200));
            Sample { round, values, round_trips_ms: round_trips_ms.unwrap_or_default(), counters: BTreeMap::new() }
        })
        .collect();
    let bottleneck = (name == "wireguard-go" && scenario.contains("tcp")).then(|| Bottleneck {
        says: "bound by the receiving daemon: one thread uses a whole core".into(),
        because: "thread wg-right-udp used 0.97 of a core".into(),
    });
    let notes = if scenario.ends_with("loaded") { vec!["one TCP stream at the same time".into()] } else { Vec::new() };
    let failure = fails.then(|| "boringtun-cli ended during round 3: signal 11".into());
    let has_part = samples.iter().any(|sample| !sample.values.is_empty());
    has_part.then(|| Row { scenario: scenario.into(), subject: name.into(), samples, failure, notes, bottleneck })
}

/// Numbers that look like a measurement's and are the same every time.
struct Rng(fastrand::Rng);

impl Rng {
    /// `value`, off by at most `share` of it.
    fn about(&mut self, value: f64, share: f64) -> f64 {
        value * (1.0 + share * (2.0 * self.0.f64() - 1.0))
    }

    /// Round trips with the long tail that they have.
    fn round_trips(&mut self, median: f64, count: usize) -> Vec<f64> {
        (0..count).map(|_| median * (0.85 + 0.1 / (1.0 - 0.998 * self.0.f64()).powf(0.7))).collect()
    }
}
