//! The processors: what they and the daemon's threads did meanwhile, and what limits them.

use std::fs;
use std::time::Instant;

use linerate_doctor::evidence::{CoreUse, CpuLimit, Machine};
use linerate_probe::limit;
use linerate_probe::machine::{Machine as Processors, Processor};
use linerate_probe::usage::{self, Thread};

/// The times of the processors and of the threads of a daemon, at one moment.
pub(super) struct Times {
    at: Instant,
    processors: Option<Processors>,
    threads: Vec<Thread>,
}

impl Times {
    /// As of now; of the threads of the daemon `pid`, if there is one.
    pub(super) fn read(pid: Option<u32>) -> Self {
        let threads = pid.map(usage::threads_of).unwrap_or_default();
        Self { at: Instant::now(), processors: Processors::whole().ok(), threads }
    }
}

/// What happened from `before` until `after`.
pub(super) fn machine(before: &Times, after: &Times, pid: Option<u32>, cipher: Option<String>) -> Machine {
    let elapsed = after.at.duration_since(before.at).as_secs_f64();
    let cores =
        after.processors.as_ref().zip(before.processors.as_ref()).map(|(after, before)| after.each_since(before));
    let threads = usage::busiest(&after.threads, &before.threads);
    let limit = pid.and_then(limit::of);
    Machine {
        // Not those that this process may use, which are as limited as the daemon's.
        processors: match &after.processors {
            None => std::thread::available_parallelism().map_or(1, usize::from),
            Some(all) => all.processors(),
        },
        cores: cores.into_iter().flatten().map(core_use).collect(),
        threads: threads.into_iter().map(|thread| (thread.name, thread.seconds / elapsed)).collect(),
        cipher,
        best_cipher: Some(linerate_aead::choose::Choice::best().name().to_owned()),
        limit: limit.map(|limit| CpuLimit {
            group: limit.group,
            processors: limit.processors,
            throttled: limit.throttled,
        }),
        governor: governor(),
    }
}

fn core_use(Processor { ticks, idle, interrupts, steal }: Processor) -> CoreUse {
    CoreUse { ticks, idle, softirq: interrupts, steal }
}

fn governor() -> Option<(String, String)> {
    let read = |name: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cpufreq/{name}")).ok();
    Some((read("scaling_governor")?.trim().to_owned(), read("scaling_driver")?.trim().to_owned()))
}
