//! Whether the machine has an idle core.

use std::thread;

use crate::system::cores::{Runnable, allowed};

/// The load of the machine, as seen by a running thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuLoad {
    /// Fewer threads are runnable on this machine than there are cores that this process may use.
    Spare,
    /// As many threads as such cores, or unknown.
    Full,
    /// More threads than such cores.
    Overloaded,
}

/// The cores that this process may use.
#[derive(Clone)]
pub struct Cores {
    /// Those that the scheduler allows; the load is compared with this number.
    allowed: usize,
    /// How many of them the quota of the control group allows to be busy.
    count: usize,
    source: LoadSource,
}

#[derive(Clone)]
enum LoadSource {
    Kernel(Runnable),
    Always(CpuLoad),
}

impl Cores {
    /// The cores of this process. If the kernel does not say what runs, the load is always [`CpuLoad::Full`].
    pub fn new() -> Self {
        let source = Runnable::new().map_or(LoadSource::Always(CpuLoad::Full), LoadSource::Kernel);
        let count = thread::available_parallelism().map_or(1, usize::from);
        Self { allowed: allowed().unwrap_or(count), count, source }
    }

    /// For tests of many cores on a machine with few: `count` cores, one of them always idle.
    pub fn simulated(count: usize) -> Self {
        Self { allowed: count, count, source: LoadSource::Always(CpuLoad::Spare) }
    }

    /// How many can be kept busy.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many of them this process keeps busy while other threads want them, too: half, because the other half makes
    /// the packets that it carries, or takes them.
    pub fn share(&self) -> usize {
        (self.count / 2).max(1)
    }

    /// How busy they are. One system call of about two microseconds.
    pub fn load(&self) -> CpuLoad {
        match &self.source {
            LoadSource::Always(load) => *load,
            LoadSource::Kernel(runnable) => runnable.count().map_or(CpuLoad::Full, |running| self.classify(running)),
        }
    }

    fn classify(&self, running: usize) -> CpuLoad {
        match running {
            // This thread runs, so zero is wrong (some sandboxes report it).
            0 => CpuLoad::Full,
            running if running < self.allowed => CpuLoad::Spare,
            running if running == self.allowed => CpuLoad::Full,
            _ => CpuLoad::Overloaded,
        }
    }
}

impl Default for Cores {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_spare_when_fewer_threads_run_than_there_are_cores() {
        let cores = Cores { allowed: 4, count: 2, source: LoadSource::Always(CpuLoad::Full) };
        assert_eq!(cores.classify(0), CpuLoad::Full);
        assert_eq!(cores.classify(3), CpuLoad::Spare);
        assert_eq!(cores.classify(4), CpuLoad::Full);
        assert_eq!(cores.classify(5), CpuLoad::Overloaded);
    }
}
