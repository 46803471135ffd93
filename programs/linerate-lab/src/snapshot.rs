//! All counters at one time, and the difference between two such snapshots.

use std::collections::BTreeMap;
use std::time::Instant;

use linerate_doctor::bottleneck::{self, Evidence};
use linerate_probe::machine::{Machine, Shares};
use linerate_probe::usage::{self, Thread, Usage};

use crate::Result;
use crate::counters::{Energy, KernelCounters};
use crate::error::Doing;
use crate::load::{Arrived, Traffic};
use crate::topology::Testbed;
use crate::tunnel::Tunnel;

/// All counters at one time.
pub(crate) struct Snapshot {
    at: Instant,
    machine: Machine,
    usage: Vec<Usage>,
    /// Each daemon's, in the order of `usage`.
    threads: Vec<Vec<Thread>>,
    /// By host.
    kernel: BTreeMap<String, KernelCounters>,
    /// By host: what a daemon counts itself.
    daemons: BTreeMap<String, Vec<(String, u64)>>,
    socket_drops: u64,
    energy: Option<Energy>,
}

/// What passed between two moments.
pub(crate) struct Delta {
    pub(crate) seconds: f64,
    pub(crate) machine: Shares,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    /// Of each daemon, both together, the client's first.
    pub(crate) each_seconds: Vec<f64>,
    pub(crate) switches: u64,
    pub(crate) joules: Option<f64>,
    /// Kernel counters and the daemons' own that moved, as `HOST/NAME`.
    pub(crate) counters: BTreeMap<String, u64>,
    /// Of each daemon, its threads and what they used.
    threads: Vec<Vec<Thread>>,
    socket_drops: u64,
}

impl Snapshot {
    /// Reads all counters. The daemons' first: one that has died explains every other error.
    pub(crate) fn now(testbed: &Testbed, tunnel: &Tunnel<'_>) -> Result<Self> {
        let usage = tunnel.usage()?;
        let threads = tunnel.processes().into_iter().map(usage::threads_of).collect();
        let hosts = testbed.hosts();
        let mut kernel = BTreeMap::new();
        for host in &hosts {
            kernel.insert(host.name().to_owned(), KernelCounters::of(host)?);
        }
        let mut daemons = BTreeMap::new();
        for (end, host) in testbed.ends().into_iter().enumerate() {
            if let Some(counters) = tunnel.counters(end) {
                daemons.insert(host.name().to_owned(), counters);
            }
        }
        Ok(Self {
            at: Instant::now(),
            machine: Machine::now().doing(|| "reading /proc/stat".into())?,
            usage,
            threads,
            kernel,
            daemons,
            socket_drops: tunnel.socket_drops()?,
            energy: Energy::find(),
        })
    }

    /// What passed since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Delta {
        let used: Vec<Usage> = self.usage.iter().zip(&earlier.usage).map(|(now, then)| now.since(then)).collect();
        let mut counters = BTreeMap::new();
        for (host, now) in &self.kernel {
            let moved = earlier.kernel.get(host).map(|then| now.since(then)).unwrap_or_default();
            counters.extend(moved.into_iter().map(|(name, count)| (format!("{host}/{name}"), count)));
        }
        for (host, now) in &self.daemons {
            let then: BTreeMap<&str, u64> =
                earlier.daemons.get(host).into_iter().flatten().map(|(name, count)| (name.as_str(), *count)).collect();
            let moved = now.iter().map(|(name, count)| (name, count - then.get(name.as_str()).unwrap_or(&0)));
            counters
                .extend(moved.filter(|(_, count)| *count > 0).map(|(name, count)| (format!("{host}/{name}"), count)));
        }
        Delta {
            seconds: (self.at - earlier.at).as_secs_f64(),
            machine: self.machine.since(&earlier.machine),
            user_seconds: used.iter().map(|usage| usage.user_seconds).sum(),
            system_seconds: used.iter().map(|usage| usage.system_seconds).sum(),
            each_seconds: used.iter().map(Usage::seconds).collect(),
            switches: used.iter().map(Usage::switches).sum(),
            joules: self.energy.as_ref().zip(earlier.energy.as_ref()).map(|(now, then)| now.since(then)),
            counters,
            threads: self.threads.iter().zip(&earlier.threads).map(|(now, then)| usage::busiest(now, then)).collect(),
            socket_drops: self.socket_drops.saturating_sub(earlier.socket_drops),
        }
    }
}

/// Bytes of payload in a full TCP segment through a tunnel of the lab's MTU.
const SEGMENT: u64 = 1368;

/// Roughly how many packets with payload the tunnel carried.
fn packets(arrived: &Arrived) -> u64 {
    match arrived.datagrams.zip(arrived.lost) {
        // Counted in the measured part only.
        Some((datagrams, lost)) => {
            ((datagrams + lost) as f64 * arrived.all_bytes as f64 / arrived.bytes.max(1) as f64) as u64
        }
        None => arrived.all_bytes / SEGMENT,
    }
}

/// How many processors the lab may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Delta {
    pub(crate) fn has_daemons(&self) -> bool {
        !self.threads.is_empty()
    }

    pub(crate) fn switch_rate(&self) -> Option<f64> {
        self.has_daemons().then(|| self.switches as f64 / self.seconds)
    }

    /// Seconds of all processors together in which they were not at rest.
    pub(crate) fn busy_seconds(&self) -> f64 {
        (1.0 - self.machine.idle) * self.seconds * processors() as f64
    }

    /// The share of wake-ups that found work, over both daemons, where they count them.
    pub(crate) fn work_per_wake_up(&self) -> Option<f64> {
        let sum = |kind: &str| {
            let of_kind = self.counters.iter().filter(|(name, _)| name.contains("/wakeups_") && name.ends_with(kind));
            of_kind.map(|(_, count)| *count).sum::<u64>()
        };
        let (work, empty) = (sum("_work"), sum("_empty"));
        (work + empty > 0).then(|| work as f64 / (work + empty) as f64)
    }

    /// Seconds in which data moved: the generator takes some to start and to stop.
    fn active_seconds(&self, arrived: &Arrived) -> f64 {
        let active = arrived.seconds * arrived.all_bytes as f64 / arrived.bytes.max(1) as f64;
        active.min(self.seconds)
    }

    /// What the bottleneck is found from.
    pub(crate) fn evidence(&self, arrived: &Arrived, traffic: &Traffic) -> Evidence {
        let ends = match traffic {
            Traffic::Tcp { reverse: true, .. } => [bottleneck::RECEIVING, bottleneck::SENDING],
            _ => [bottleneck::SENDING, bottleneck::RECEIVING],
        };
        let active = self.active_seconds(arrived);
        let threads = self.threads.iter().zip(ends).flat_map(|(threads, of)| {
            let thread = |thread: &Thread| bottleneck::Thread {
                of,
                name: thread.name.clone(),
                share: thread.seconds / active,
                wait: thread.mean_wait(),
                waiting: thread.waited / active,
            };
            threads.iter().map(thread).collect::<Vec<_>>()
        });
        let machine = bottleneck::Machine {
            processors: processors(),
            // Around the load the machine was at rest.
            idle: (1.0 - (1.0 - self.machine.idle) * self.seconds / active).max(0.0),
            least_idle: (1.0 - (1.0 - self.machine.least_idle) * self.seconds / active).max(0.0),
            threads: threads.collect(),
            daemons: (self.user_seconds + self.system_seconds) / active,
            ..bottleneck::Machine::default()
        };
        Evidence {
            machines: vec![machine],
            packets: packets(arrived),
            socket_drops: self.socket_drops,
            // Of the ends only: a host in between may fragment the same packets again.
            fragmented: ["client/IpFragOKs", "server/IpFragOKs", "client/Ip6FragOKs", "server/Ip6FragOKs"]
                .iter()
                .filter_map(|name| self.counters.get(*name))
                .sum(),
            retransmitted: arrived
                .retransmits
                .map(|retransmits| retransmits as f64 / (arrived.bytes / SEGMENT).max(1) as f64),
            ..Evidence::default()
        }
    }
}
