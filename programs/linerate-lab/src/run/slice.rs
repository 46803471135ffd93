//! One subject in one scenario in one round: bring it up, load it, take it down, and what was measured meanwhile.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use linerate_doctor::bottleneck::Evidence;
use linerate_probe::usage;

use super::{Options, WARM_UP};
use crate::counters::Counter;
use crate::error::Doing;
use crate::load::{self, Arrived, Traffic};
use crate::measure::Measure;
use crate::peers;
use crate::ping::{self, Probes};
use crate::record::Sample;
use crate::scenario::{Load, Scenario};
use crate::snapshot::{Delta, Snapshot};
use crate::stats::Latency;
use crate::subject::Subject;
use crate::topology::{Testbed, Topology};
use crate::tunnel::Tunnel;
use crate::{Error, Result};

/// A daemon is at rest only when its timers have run out: WireGuard answers received data by a keepalive
/// after 10 s, and misses an answer after 15 s.
const SETTLE: Duration = Duration::from_secs(20);

/// Between a probe's answer and the next probe during traffic.
const PAUSE_UNDER_LOAD: Duration = Duration::from_millis(5);

/// Seconds in which system calls are counted.
const COUNTED: f64 = 1.0;

/// One subject in one scenario in one round.
pub(super) struct Slice<'a> {
    pub(super) testbed: &'a Testbed,
    pub(super) subject: &'a Subject,
    pub(super) scenario: &'a Scenario,
    pub(super) options: &'a Options,
    pub(super) round: u32,
}

/// What a slice leaves.
#[derive(Default)]
pub(super) struct SliceResult {
    pub(super) sample: Sample,
    pub(super) evidence: Option<Evidence>,
    pub(super) notes: Vec<String>,
}

impl Slice<'_> {
    /// Brings the subject up, measures it, takes it down.
    pub(super) fn take(&self) -> Result<SliceResult> {
        let mut result =
            SliceResult { sample: Sample { round: self.round, ..Sample::default() }, ..SliceResult::default() };
        let mut tunnel = Tunnel::up(self.subject, self.testbed, &self.options.keys, self.scenario.outside)?;
        tunnel.await_answer_over(self.scenario.inside)?;
        match &self.scenario.load {
            Load::Traffic(traffic) => self.traffic(&tunnel, traffic, &mut result)?,
            Load::Ping => self.ping(&tunnel, &mut result)?,
            Load::PingUnder(traffic) => self.ping_under(&tunnel, traffic, &mut result)?,
            Load::Peers(count) => self.peers(&tunnel, *count, &mut result)?,
            Load::Start => {
                result.put_time(Measure::StartTime, tunnel.start_time);
                result.put_time(Measure::FirstAnswer, tunnel.first_answer);
            }
            Load::Idle(time) => result.put(Measure::IdleSwitchRate, at_rest(&tunnel, *time)?),
        }
        let peak = tunnel.usage()?.iter().map(|usage| usage.peak_resident).max();
        result.put_some(Measure::PeakMemory, peak.map(|bytes| bytes as f64));
        tunnel.down()?;
        Ok(result)
    }

    fn traffic(&self, tunnel: &Tunnel<'_>, traffic: &Traffic, result: &mut SliceResult) -> Result<()> {
        let (arrived, delta) = self.load(tunnel, traffic)?;
        result.put_traffic(&arrived, &delta);
        result.evidence = Some(delta.evidence(&arrived, traffic));
        result.sample.counters = delta.counters;
        if self.round == 1 && !tunnel.processes().is_empty() {
            self.count_system_calls(tunnel, traffic, result);
        }
        Ok(())
    }

    /// Moves data, and says what passed meanwhile.
    fn load(&self, tunnel: &Tunnel<'_>, traffic: &Traffic) -> Result<(Arrived, Delta)> {
        let (client, server) = (self.testbed.client(), self.testbed.server());
        let before = Snapshot::now(self.testbed, tunnel)?;
        let to = tunnel.to(self.scenario.inside);
        let arrived = load::run(client, server, to, traffic, WARM_UP, self.options.seconds);
        // Checked first: a daemon that died explains every other error.
        let delta = Snapshot::now(self.testbed, tunnel)?.since(&before);
        Ok((arrived?, delta))
    }

    /// Counts system calls in a load of its own, because counting may slow the daemons down. Without a way to
    /// count, the row has no such figure and says why.
    fn count_system_calls(&self, tunnel: &Tunnel<'_>, traffic: &Traffic, result: &mut SliceResult) {
        let counted = Counter::find().and_then(|counter| {
            let calls = counter.start(&tunnel.processes())?;
            let (client, server) = (self.testbed.client(), self.testbed.server());
            let arrived = load::run(client, server, tunnel.to(self.scenario.inside), traffic, 0.0, COUNTED);
            let count = calls.finish()?;
            Ok((count, arrived?, counter))
        });
        match counted {
            // A parent whose children do the work.
            Ok((0, ..)) => result.notes.push("system calls not counted: the daemons' own processes make none".into()),
            Ok((count, arrived, counter)) => {
                result.put(Measure::SyscallRate, count as f64 / arrived.seconds);
                result.put_some(Measure::SyscallsPerGb, per_gb(count as f64, &arrived));
                if counter.distorts() {
                    result.notes.push(
                        "system calls: counted by strace in a load of its own, which slows the daemons down".into(),
                    );
                }
            }
            Err(error) => result.notes.push(format!("system calls not counted: {error}")),
        }
    }

    fn ping(&self, tunnel: &Tunnel<'_>, result: &mut SliceResult) -> Result<()> {
        let probes = Probes { count: probes(self.scenario, self.options), ..Probes::default() };
        let before = Snapshot::now(self.testbed, tunnel)?;
        let to = tunnel.to(self.scenario.inside);
        let report = self.testbed.client().inside(|| ping::run(to, &probes))?;
        let delta = Snapshot::now(self.testbed, tunnel)?.since(&before);
        result.put_some(Measure::SwitchRate, delta.switch_rate());
        result.put_machine(&delta);
        result.put_pings(report);
        Ok(())
    }

    fn ping_under(&self, tunnel: &Tunnel<'_>, traffic: &Traffic, result: &mut SliceResult) -> Result<()> {
        let probes = Probes { count: 1, ..Probes::default() };
        let to = tunnel.to(self.scenario.inside);
        let client = self.testbed.client();
        let (loaded, pinged) = thread::scope(|scope| {
            let load = scope.spawn(|| self.load(tunnel, traffic));
            thread::sleep(Duration::from_secs_f64(WARM_UP));
            let end = Instant::now() + Duration::from_secs_f64(self.options.seconds);
            let pinged = client.inside(|| ping_until(end, to, &probes));
            (load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), pinged)
        });
        let (arrived, delta) = loaded?;
        result.put_traffic(&arrived, &delta);
        result.put_pings(pinged?);
        Ok(())
    }

    fn peers(&self, tunnel: &Tunnel<'_>, count: u32, result: &mut SliceResult) -> Result<()> {
        let Some(end) = tunnel.processes().get(1).copied() else {
            return Err(Error::Refused(format!("{} has no daemon to give peers to", self.subject.name)));
        };
        // One of them is the client, which is there already.
        let report = peers::set_up(tunnel, 1, end, count - 1)?;
        if count > 1 {
            result.put(Measure::SetUpTime, report.seconds);
            result.put(Measure::MemoryPerPeer, report.bytes_per_peer);
        }
        let (arrived, delta) = self.load(tunnel, &Traffic::Tcp { streams: 1, reverse: false })?;
        result.put_traffic(&arrived, &delta);
        Ok(())
    }
}

/// Probes one after the other for as long as there is traffic, so that none queues behind another.
fn ping_until(end: Instant, to: IpAddr, probes: &Probes) -> Result<ping::Report> {
    let mut all = ping::Report { sent: 0, answered: 0, latency: None, round_trips_ms: Vec::new() };
    while Instant::now() < end {
        let one = ping::run(to, probes)?;
        all.sent += one.sent;
        all.answered += one.answered;
        all.round_trips_ms.extend(one.round_trips_ms);
        thread::sleep(PAUSE_UNDER_LOAD);
    }
    Ok(all)
}

/// Seconds that a slice should take in a round.
pub(super) fn expected_seconds(scenario: &Scenario, options: &Options, round: u32) -> f64 {
    // Bringing a tunnel up and down.
    const AROUND: f64 = 0.6;
    // Counting system calls, in a load of its own.
    const COUNTING: f64 = COUNTED + 1.0;
    let traffic = traffic_seconds(options);
    AROUND
        + match scenario.load {
            Load::Traffic(_) if round == 1 => traffic + COUNTING,
            Load::Traffic(_) | Load::PingUnder(_) => traffic,
            Load::Ping => f64::from(probes(scenario, options)) * (1.3e-3 + 2.0 * delay(scenario)),
            Load::Peers(count) => traffic + f64::from(count) * 3e-5,
            Load::Start => 0.0,
            Load::Idle(time) => (SETTLE + time).as_secs_f64(),
        }
}

/// Seconds that moving data takes at most: iperf3 runs for whole seconds, and takes some time to start.
fn traffic_seconds(options: &Options) -> f64 {
    (WARM_UP + options.seconds).ceil() + 0.5
}

/// Seconds that the network itself takes one way.
fn delay(scenario: &Scenario) -> f64 {
    match &scenario.topology {
        Topology::Wan(impairments) => impairments.delay.as_secs_f64(),
        _ => 0.0,
    }
}

/// Probes at rest: where each takes the time of a long way, a twentieth of them.
fn probes(scenario: &Scenario, options: &Options) -> u32 {
    if delay(scenario) > 0.0 { options.probes.div_ceil(20) } else { options.probes }
}

/// Context switches per second of all daemons with nothing to do.
fn at_rest(tunnel: &Tunnel<'_>, time: Duration) -> Result<f64> {
    thread::sleep(SETTLE);
    usage::switch_rate(&tunnel.processes(), time).doing(|| "reading what the daemons have used".into())
}

/// An amount per 10^9 bytes of payload; nothing when nothing arrived.
fn per_gb(amount: f64, arrived: &Arrived) -> Option<f64> {
    (arrived.all_bytes > 0).then(|| amount / (arrived.all_bytes as f64 / 1e9))
}

impl SliceResult {
    fn put(&mut self, measure: Measure, value: f64) {
        // A quotient by zero is not a figure.
        if value.is_finite() {
            self.sample.values.insert(measure, value);
        }
    }

    fn put_some(&mut self, measure: Measure, value: Option<f64>) {
        if let Some(value) = value {
            self.put(measure, value);
        }
    }

    fn put_time(&mut self, measure: Measure, time: Option<Duration>) {
        self.put_some(measure, time.map(|time| time.as_secs_f64()));
    }

    fn put_traffic(&mut self, arrived: &Arrived, delta: &Delta) {
        self.put(Measure::Throughput, arrived.rate());
        self.put_some(Measure::Retransmits, arrived.retransmits.map(|count| count as f64));
        if let (Some(datagrams), Some(lost)) = (arrived.datagrams, arrived.lost) {
            self.put(Measure::PacketRate, datagrams as f64 / arrived.seconds);
            self.put(Measure::Loss, lost as f64 / (datagrams + lost) as f64);
        }
        if delta.has_daemons() {
            self.put_some(Measure::UserPerGb, per_gb(delta.user_seconds, arrived));
            self.put_some(Measure::SystemPerGb, per_gb(delta.system_seconds, arrived));
            self.put_some(Measure::CpuPerGb, per_gb(delta.user_seconds + delta.system_seconds, arrived));
            for (measure, seconds) in
                [Measure::ClientCpuPerGb, Measure::FarCpuPerGb].into_iter().zip(&delta.each_seconds)
            {
                self.put_some(measure, per_gb(*seconds, arrived));
            }
            self.put_some(Measure::SwitchesPerGb, per_gb(delta.switches as f64, arrived));
            self.put_some(Measure::SwitchRate, delta.switch_rate());
        }
        self.put_some(Measure::MachineCpuPerGb, per_gb(delta.busy_seconds(), arrived));
        self.put_some(Measure::WorkPerWakeUp, delta.work_per_wake_up());
        self.put_some(Measure::EnergyPerGb, delta.joules.and_then(|joules| per_gb(joules, arrived)));
        self.put_machine(delta);
    }

    fn put_machine(&mut self, delta: &Delta) {
        self.put(Measure::MachineUser, delta.machine.user);
        self.put(Measure::MachineSystem, delta.machine.system);
        self.put(Measure::MachineIdle, delta.machine.idle);
    }

    fn put_pings(&mut self, report: ping::Report) {
        self.put(Measure::Loss, 1.0 - f64::from(report.answered) / f64::from(report.sent));
        if let Some(latency) = Latency::of(report.round_trips_ms.iter().copied()) {
            self.put(Measure::LatencyMean, latency.mean_ms);
            self.put(Measure::LatencyMedian, latency.p50_ms);
            self.put(Measure::LatencyP99, latency.p99_ms);
            self.put(Measure::LatencyMax, latency.max_ms);
        }
        self.sample.round_trips_ms = report.round_trips_ms;
    }
}
