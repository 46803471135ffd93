//! What a daemon has used so far: processor time, memory, context switches. All from `/proc/PID`, over
//! all its threads and the processes that it started.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde::Serialize;

/// What a process has used since its start.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Usage {
    /// Processor seconds in user space.
    pub user_seconds: f64,
    /// Processor seconds in the kernel, without softirqs.
    pub system_seconds: f64,
    /// Memory resident at present, in bytes.
    pub resident: u64,
    /// The most memory that was ever resident, in bytes.
    pub peak_resident: u64,
    /// How often its threads went to sleep.
    pub voluntary_switches: u64,
    /// How often its threads were taken off the processor.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Reads what the process `pid`, its threads and its descendants have used so far.
    ///
    /// # Errors
    ///
    /// When there is no such process any more.
    pub fn of(pid: u32) -> io::Result<Self> {
        let place = format!("/proc/{pid}");
        let read = |name: &str| fs::read_to_string(Path::new(&place).join(name));
        let unreadable = |name: &str| {
            io::Error::new(ErrorKind::InvalidData, format!("{place}/{name} is not as proc(5) describes it"))
        };
        let ticks = rustix::param::clock_ticks_per_second();
        let [user, system, children_user, children_system] =
            processor_ticks(&read("stat")?).ok_or_else(|| unreadable("stat"))?;
        let status = read("status")?;
        let mut usage = Self {
            user_seconds: (user + children_user) as f64 / ticks as f64,
            system_seconds: (system + children_system) as f64 / ticks as f64,
            resident: kibibytes(&status, "VmRSS").ok_or_else(|| unreadable("status"))? * 1024,
            peak_resident: kibibytes(&status, "VmHWM").ok_or_else(|| unreadable("status"))? * 1024,
            ..Self::default()
        };
        for thread in threads(&place) {
            // The switches of a thread that has just ended are lost.
            let Ok(status) = fs::read_to_string(thread.join("status")) else {
                continue;
            };
            usage.voluntary_switches += number(&status, "voluntary_ctxt_switches").unwrap_or(0);
            usage.involuntary_switches += number(&status, "nonvoluntary_ctxt_switches").unwrap_or(0);
            let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                usage = usage.with(Self::of(child).unwrap_or_default());
            }
        }
        Ok(usage)
    }

    /// What was used between `earlier` and this. Memory is that of this moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_seconds: self.user_seconds - earlier.user_seconds,
            system_seconds: self.system_seconds - earlier.system_seconds,
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
            ..*self
        }
    }

    /// Processor seconds, user and system.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// Context switches of both kinds.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }

    fn with(self, other: Self) -> Self {
        Self {
            user_seconds: self.user_seconds + other.user_seconds,
            system_seconds: self.system_seconds + other.system_seconds,
            resident: self.resident + other.resident,
            peak_resident: self.peak_resident + other.peak_resident,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }
}

/// Context switches per second of the processes `pids` over `time`, of all of them together. For a daemon at rest:
/// wake-ups. Returns after that time.
///
/// # Errors
///
/// When one of the processes ends meanwhile.
pub fn switch_rate(pids: &[u32], time: Duration) -> io::Result<f64> {
    let switches = || pids.iter().try_fold(0, |sum, &pid| io::Result::Ok(sum + Usage::of(pid)?.switches()));
    let (before, start) = (switches()?, Instant::now());
    thread::sleep(time);
    let after: u64 = switches()?;
    Ok(after.saturating_sub(before) as f64 / start.elapsed().as_secs_f64())
}

/// A thread and what it has used.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// The kernel's number of it.
    pub id: u32,
    /// Its name, at most 15 bytes; several threads may have the same.
    pub name: String,
    /// Processor seconds since its start, user and system; to a clock tick (mostly 0.01 s) on kernels that do not count
    /// nanoseconds.
    pub seconds: f64,
    /// Seconds in which it was ready to run, and had no processor.
    pub waited: f64,
    /// How often it ran.
    pub runs: u64,
}

impl Thread {
    /// How long it waited for a processor each time it was ready to run, on average, in milliseconds.
    #[must_use]
    pub fn mean_wait(&self) -> f64 {
        self.waited * 1e3 / self.runs.max(1) as f64
    }
}

/// The threads of the process `pid` and of its descendants; none when it has ended.
#[must_use]
pub fn threads_of(pid: u32) -> Vec<Thread> {
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut all = Vec::new();
    for thread in threads(&format!("/proc/{pid}")) {
        let read = |name: &str| fs::read_to_string(thread.join(name)).unwrap_or_default();
        let stat = read("stat");
        // One that has just ended is left out.
        let Some((id, name)) = id_and_name(&stat) else { continue };
        let Some([user, system, ..]) = processor_ticks(&stat) else { continue };
        let ticks = (user + system) as f64 / ticks_per_second;
        let (seconds, waited, runs) = scheduled(&read("schedstat")).unwrap_or((ticks, 0.0, 0));
        all.push(Thread { id, name: name.into(), seconds, waited, runs });
        all.extend(read("children").split_whitespace().filter_map(|child| child.parse().ok()).flat_map(threads_of));
    }
    all
}

/// What each of the threads in `later` used since `earlier`, the busiest first. New ones began at nothing.
#[must_use]
pub fn busiest(later: &[Thread], earlier: &[Thread]) -> Vec<Thread> {
    let since = |thread: &Thread| {
        let before = earlier.iter().find(|before| before.id == thread.id);
        before.map_or_else(
            || thread.clone(),
            |before| Thread {
                seconds: thread.seconds - before.seconds,
                waited: thread.waited - before.waited,
                runs: thread.runs.saturating_sub(before.runs),
                ..thread.clone()
            },
        )
    };
    let mut used: Vec<Thread> = later.iter().map(since).collect();
    used.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    used
}

fn threads(place: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(Path::new(place).join("task"));
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The number and the name of a process or thread from its `stat`.
fn id_and_name(stat: &str) -> Option<(u32, &str)> {
    // The name stands in parentheses and may itself hold some.
    let (rest, _) = stat.rsplit_once(')')?;
    let (id, name) = rest.split_once(" (")?;
    Some((id.parse().ok()?, name))
}

/// Clock ticks from the `stat` of a process or thread: its own in user space and in the kernel, then those of
/// children that were waited for.
fn processor_ticks(stat: &str) -> Option<[u64; 4]> {
    // The second field is the command in parentheses and may itself hold spaces and parentheses; the
    // state, field 3 of proc(5), comes after the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let times = rest.split_whitespace().skip(14 - 3).map_while(|field| field.parse().ok());
    times.take(4).collect::<Vec<u64>>().try_into().ok()
}

/// Seconds on a processor and waiting for one, and how often it ran, from the `schedstat` of a thread; none where the
/// kernel does not count them.
fn scheduled(schedstat: &str) -> Option<(f64, f64, u64)> {
    let numbers: Vec<u64> = schedstat.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let [used, waited, runs] = numbers[..] else { return None };
    (runs > 0).then_some((used as f64 / 1e9, waited as f64 / 1e9, runs))
}

/// The value of a line `NAME:  123 kB` of `/proc/PID/status`.
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    field(status, name)?.strip_suffix("kB")?.trim().parse().ok()
}

/// The value of a line `NAME:  123` of `/proc/PID/status`.
fn number(status: &str, name: &str) -> Option<u64> {
    field(status, name)?.parse().ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4242 (wire) (guard) S 1 4242 4242 0 -1 1077936448 25571 7 0 0 383 1161 5 6 20 0 9 0 71812 \
        1277276160 4096 18446744073709551615 4194304 5767349 140724523171008 0 0 0 0 0 2143420159 0 0 0 17 1 0 0 0 0 0";
    const STATUS: &str = "Name:\twireguard\nVmPeak:\t 1247340 kB\nVmHWM:\t   36012 kB\nVmRSS:\t   34984 kB\n\
        Threads:\t9\nvoluntary_ctxt_switches:\t3391\nnonvoluntary_ctxt_switches:\t12\n";

    #[test]
    fn processor_time_is_found_behind_a_command_with_parentheses() {
        assert_eq!(processor_ticks(STAT), Some([383, 1161, 5, 6]));
        assert_eq!(id_and_name(STAT), Some((4242, "wire) (guard")));
    }

    #[test]
    fn a_cut_stat_line_is_refused() {
        let end = STAT.find(" 20 0 9").unwrap();
        assert!(processor_ticks(&STAT[..end]).is_some());
        assert_eq!(processor_ticks(&STAT[..end - 2]), None);
        assert_eq!(processor_ticks(""), None);
        for stat in ["", "1", "1 (", "x (name) S", ")"] {
            assert_eq!(id_and_name(stat), None, "{stat:?}");
        }
    }

    #[test]
    fn schedstat_has_the_time_on_a_processor_and_before_it() {
        assert_eq!(scheduled("1500000000 250000000 7\n"), Some((1.5, 0.25, 7)));
        assert_eq!([scheduled(""), scheduled("0 0 0"), scheduled("1 2"), scheduled("1 x 3")], [None; 4]);
    }

    #[test]
    fn status_fields_are_found_by_their_whole_name() {
        assert_eq!(kibibytes(STATUS, "VmRSS"), Some(34_984));
        assert_eq!(kibibytes(STATUS, "VmHWM"), Some(36_012));
        assert_eq!(kibibytes(STATUS, "Vm"), None);
        assert_eq!(number(STATUS, "voluntary_ctxt_switches"), Some(3391));
        assert_eq!(number(STATUS, "nonvoluntary_ctxt_switches"), Some(12));
    }

    #[test]
    fn this_process_has_used_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident > 0 && usage.peak_resident >= usage.resident);
    }

    #[test]
    fn the_threads_of_this_process_are_found_by_name() {
        let (ready, wait) = std::sync::mpsc::channel();
        let (end, until) = std::sync::mpsc::channel::<()>();
        let named = thread::Builder::new().name("a (thread) x".into()).spawn(move || {
            ready.send(()).unwrap();
            until.recv()
        });
        wait.recv().unwrap();
        assert!(threads_of(std::process::id()).iter().any(|thread| thread.name == "a (thread) x"));
        drop(end);
        named.unwrap().join().unwrap().unwrap_err();
    }

    #[test]
    fn the_busiest_thread_comes_first_whatever_it_used_before() {
        let thread = |id, seconds| Thread { id, name: "worker".into(), seconds, waited: seconds, runs: seconds as u64 };
        let used = busiest(&[thread(1, 9.5), thread(2, 3.0), thread(3, 1.0)], &[thread(1, 9.0), thread(2, 1.0)]);
        assert_eq!(used, [thread(2, 2.0), thread(3, 1.0), thread(1, 0.5)]);
    }

    #[test]
    fn the_switches_of_a_process_that_is_gone_are_an_error() {
        assert!(switch_rate(&[0], Duration::ZERO).is_err());
    }

    #[test]
    fn a_difference_keeps_the_memory_of_the_later_moment() {
        let earlier = Usage { user_seconds: 1.0, system_seconds: 2.0, peak_resident: 7, ..Usage::default() };
        let later = Usage { user_seconds: 1.5, system_seconds: 4.0, peak_resident: 9, ..Usage::default() };
        let used = later.since(&earlier);
        assert_eq!((used.seconds(), used.peak_resident), (2.5, 9));
    }
}
