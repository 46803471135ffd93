//! How many system calls processes make, all their threads together, counted by perf or else by strace.
//!
//! perf counts a tracepoint and disturbs no process; it needs tracefs and the right to use it. strace stops the
//! process at every call, which makes it many times slower: calls per byte remain about right, calls per second
//! do not.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::Doing;
use crate::{Error, Result};

/// The kernel's event for every system call of whatever name.
const EVENT: &str = "raw_syscalls:sys_enter";

/// How long a counter may take to attach, and to report at the end.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Between two polls of something that should happen soon.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A program that counts system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// `perf stat`.
    Perf,
    /// `strace -c`.
    Strace,
}

impl Counter {
    /// The best one that works here, found by trying it.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when there is none, with what to install.
    pub fn find() -> Result<Self> {
        let works = |counter: &Self| {
            let mut trial = counter.command();
            let output = trial.arg("true").output();
            output.is_ok_and(|output| {
                counter.count(&String::from_utf8_lossy(&output.stderr)).is_some_and(|calls| calls > 0)
            })
        };
        [Self::Perf, Self::Strace].into_iter().find(works).ok_or_else(|| {
            Error::Refused(
                "system calls cannot be counted here: perf needs root and tracefs (mount -t tracefs tracefs \
                 /sys/kernel/tracing), strace needs the right to trace; apt-get install linux-perf strace"
                    .into(),
            )
        })
    }

    /// Whether the processes are slowed down while their calls are counted.
    #[must_use]
    pub fn distorts(self) -> bool {
        self == Self::Strace
    }

    /// Begins to count the calls of the processes `pids` with all their threads, those to come included.
    ///
    /// # Errors
    ///
    /// When the counter cannot be started or attached, with its own words.
    pub fn start(self, pids: &[u32]) -> Result<SystemCalls> {
        if pids.is_empty() {
            return Err(Error::Refused("system calls of no process cannot be counted".into()));
        }
        let mut command = self.command();
        let pids_as_words: Vec<String> = pids.iter().map(u32::to_string).collect();
        match self {
            Self::Perf => command.args(["-p", &pids_as_words.join(",")]),
            Self::Strace => command.args(pids_as_words.iter().flat_map(|pid| ["-p", pid])),
        };
        let mut child = command.spawn().doing(|| format!("starting `{}`", self.program()))?;
        let stderr = child.stderr.take();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = stderr.map(BufReader::new).into_iter().flat_map(BufRead::lines);
            // Nobody listens any more when the counter was dropped.
            lines.map_while(std::result::Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut calls = SystemCalls { counter: self, child, lines, said: String::new() };
        calls.await_attached(pids.len())?;
        Ok(calls)
    }

    fn program(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Strace => "strace",
        }
    }

    fn command(self) -> Command {
        let mut command = Command::new(self.program());
        match self {
            Self::Perf => command.args(["stat", "-x", ",", "-e", EVENT]),
            Self::Strace => command.args(["-f", "-c"]),
        };
        // Numbers and words as they are known here.
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// The count in what the program wrote.
    fn count(self, said: &str) -> Option<u64> {
        match self {
            Self::Perf => counted_by_perf(said),
            Self::Strace => counted_by_strace(said),
        }
    }
}

/// A count under way. Dropping it ends the counter and lets the processes go on.
#[derive(Debug)]
pub struct SystemCalls {
    counter: Counter,
    child: Child,
    /// What the program writes to its standard error.
    lines: Receiver<String>,
    /// What it has written so far.
    said: String,
}

impl SystemCalls {
    /// Ends the count and returns it.
    ///
    /// # Errors
    ///
    /// When the counter does not report, with its own message.
    pub fn finish(mut self) -> Result<u64> {
        let program = self.counter.program();
        if self.ended()?.is_none() {
            let pid = Pid::from_raw(self.child.id().cast_signed());
            pid.map_or(Ok(()), |pid| kill_process(pid, Signal::INT)).doing(|| format!("ending `{program}`"))?;
        }
        let end = Instant::now() + TIMEOUT;
        while self.read_line(end.saturating_duration_since(Instant::now())) {}
        self.counter.count(&self.said).ok_or_else(|| self.failed())
    }

    /// Waits until the counter is attached to `processes` processes.
    fn await_attached(&mut self, processes: usize) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        while !self.is_attached(processes) {
            if self.ended()?.is_some() {
                while self.read_line(TIMEOUT) {}
                return Err(self.failed());
            }
            if Instant::now() > end {
                return Err(self.failed());
            }
            self.read_line(POLL_INTERVAL);
        }
        Ok(())
    }

    fn is_attached(&self, processes: usize) -> bool {
        match self.counter {
            // It prints nothing, but opens an event for each process, enables them, and then sleeps until it is ended.
            Counter::Perf => {
                let files = fs::read_dir(format!("/proc/{}/fd", self.child.id())).into_iter().flatten().flatten();
                let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
                let events = targets.filter(|target| target.to_string_lossy().contains("[perf_event]")).count();
                events >= processes && self.sleeps()
            }
            Counter::Strace => self.said.lines().filter(|line| line.contains(" attached")).count() >= processes,
        }
    }

    /// Whether the counter's program is in an interruptible sleep (proc_pid_stat(5)).
    fn sleeps(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('S'))
    }

    /// Reads a line of the counter's output; false when none came in time or there is no more.
    fn read_line(&mut self, timeout: Duration) -> bool {
        let line = self.lines.recv_timeout(timeout);
        line.map(|line| self.said.extend([line.as_str(), "\n"])).is_ok()
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let program = self.counter.program();
        self.child.try_wait().doing(|| format!("looking after `{program}`"))
    }

    /// The first line is the reason; perf goes on with its whole usage.
    fn failed(&self) -> Error {
        let mut lines = self.said.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty() && !line.contains(" attached"));
        let said = first.map_or_else(|| format!("it does not report within {TIMEOUT:?}"), str::to_owned);
        Error::Command { command: self.counter.program().into(), said }
    }
}

impl Drop for SystemCalls {
    fn drop(&mut self) {
        // Both do nothing to a child that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first field of the event's line of `perf stat -x,`.
fn counted_by_perf(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.split(',').any(|field| field == EVENT))?;
    match line.split(',').next()? {
        // The event was there, but the process never had the processor.
        "<not counted>" => Some(0),
        count => count.parse().ok(),
    }
}

/// The sum of the calls in the table of `strace -c`, which stands between two rulers.
fn counted_by_strace(said: &str) -> Option<u64> {
    let is_ruler = |line: &&str| line.starts_with("------ ");
    let mut lines = said.lines().skip_while(|line| !is_ruler(line));
    lines.next()?;
    // % time, seconds, usecs/call, calls, perhaps errors, name.
    let mut sum = 0;
    for line in lines.by_ref().take_while(|line| !is_ruler(line)) {
        sum += line.split_whitespace().nth(3)?.parse::<u64>().ok()?;
    }
    // Without its last line, the table was cut off.
    lines.next().filter(|line| line.trim_end().ends_with("total"))?;
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `perf stat -x, -e raw_syscalls:sys_enter -p PID,PID`, perf 6.1.
    const PERF: &str = include_str!("../../tests/data/perf-stat.txt");
    /// `strace -f -c -p PID` on a process with four threads, strace 6.1.
    const STRACE: &str = include_str!("../../tests/data/strace.txt");

    #[test]
    fn perfs_count_is_the_first_field() {
        assert_eq!(counted_by_perf(PERF), Some(1_154_838));
        assert_eq!(counted_by_perf("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"), Some(0));
        assert_eq!(counted_by_perf("<not supported>,,raw_syscalls:sys_enter,0,100.00,,\n"), None);
        assert_eq!(counted_by_perf("event syntax error: 'raw_syscalls:sys_enter'\n"), None);
        assert_eq!(counted_by_perf(""), None);
    }

    #[test]
    fn straces_rows_add_up_to_its_total() {
        assert_eq!(counted_by_strace(STRACE), Some(25_928));
    }

    #[test]
    fn a_table_that_is_cut_off_is_no_count() {
        let whole = STRACE.trim_end();
        assert!(counted_by_strace(whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(counted_by_strace(&whole[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn a_process_that_made_no_call_has_an_empty_table_or_none() {
        let ruler = "------ ----------- ----------- --------- --------- ----------------\n";
        let empty = format!("{ruler}{ruler}  0.00    0.000000           0         0           total\n");
        assert_eq!(counted_by_strace(&empty), Some(0));
    }

    #[test]
    fn no_processes_are_refused() {
        assert!(matches!(Counter::Perf.start(&[]), Err(Error::Refused(_))));
    }
}
