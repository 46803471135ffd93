//! A short description of this machine, and how busy other processes keep it.

use std::time::Duration;
use std::{fs, thread};

use linerate_probe::machine::Machine as Times;

use crate::Result;
use crate::counters::Energy;
use crate::error::Doing;
use crate::record::Machine;

/// For how long the load of other processes is measured beforehand.
const WATCHED: Duration = Duration::from_millis(300);

impl Machine {
    /// This machine as it is now. Takes a third of a second, to measure what other processes use.
    ///
    /// # Errors
    ///
    /// When `/proc/stat` does not tell.
    pub fn describe() -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let meminfo = read("/proc/meminfo").unwrap_or_default();
        let kibibytes = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
        Ok(Self {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            processor: model.map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.trim().into()),
            processors: thread::available_parallelism().map_or(1, usize::from),
            memory: kibibytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024,
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            powercap: Energy::find().map(|energy| energy.zone().to_owned()),
            busy: busy()?,
        })
    }
}

/// Share of all processors' time that is used while we do nothing.
fn busy() -> Result<f64> {
    let before = Times::now().doing(|| "reading /proc/stat".into())?;
    thread::sleep(WATCHED);
    Ok(1.0 - Times::now().doing(|| "reading /proc/stat".into())?.since(&before).idle)
}
