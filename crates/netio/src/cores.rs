//! Whether the machine has an idle core.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread;

use rustix::thread::sched_getaffinity;

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
    /// `/proc/loadavg`, opened early: it may be inaccessible later.
    Proc(Arc<File>),
    Always(CpuLoad),
}

impl Cores {
    /// The cores of this process. If `/proc` cannot be read, the load is always [`CpuLoad::Full`].
    pub fn new() -> Self {
        let source = File::open("/proc/loadavg")
            .map_or(LoadSource::Always(CpuLoad::Full), |file| LoadSource::Proc(Arc::new(file)));
        let count = thread::available_parallelism().map_or(1, usize::from);
        let allowed = sched_getaffinity(None).map_or(count, |cores| cores.count() as usize);
        Self { allowed, count, source }
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
            LoadSource::Proc(file) => read(file).map_or(CpuLoad::Full, |running| self.classify(running)),
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

/// How many threads can run, by the fourth field of proc_loadavg(5).
fn read(file: &File) -> io::Result<usize> {
    let mut text = [0u8; 64];
    let len = rustix::io::pread(file, &mut text, 0)?;
    std::str::from_utf8(&text[..len]).ok().and_then(runnable_threads).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn runnable_threads(text: &str) -> Option<usize> {
    text.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_field_says_how_many_threads_can_run() {
        assert_eq!(runnable_threads("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable_threads("0.20 0.18 0.12"), None);
        assert_eq!(runnable_threads(""), None);
        assert!(read(&File::open("/proc/loadavg").unwrap()).unwrap() >= 1, "this thread runs");
    }

    #[test]
    fn a_core_is_spare_when_fewer_threads_run_than_there_are_cores() {
        let cores = Cores { allowed: 4, count: 2, source: LoadSource::Always(CpuLoad::Full) };
        assert_eq!(cores.classify(0), CpuLoad::Full);
        assert_eq!(cores.classify(3), CpuLoad::Spare);
        assert_eq!(cores.classify(4), CpuLoad::Full);
        assert_eq!(cores.classify(5), CpuLoad::Overloaded);
    }
}
