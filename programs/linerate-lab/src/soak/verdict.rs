//! What a soak's record says: whether memory, descriptors and threads stayed flat, whether faults explain the errors
//! that were counted, and whether traffic came back in time.

use std::collections::BTreeMap;
use std::fmt;

use super::record::{Event, Record, Sample};
use crate::stats::Summary;

/// The fewest samples of a process on which a verdict about its size is given: half an hour of them. In less time the
/// first of each event comes after the warm-up, and is no trend.
const JUDGED: usize = 180;

/// Memory is flat if the last quarter's median is at most this share above the second quarter's.
const MEMORY_GROWTH: f64 = 0.05;

/// And if the trend since the first quarter is at most this, in KB an hour.
const MEMORY_SLOPE: f64 = 1024.0;

/// Descriptors and threads are flat if their medians do not grow and the trend is below one in an hour.
const COUNT_SLOPE: f64 = 1.0;

/// For how long after traffic is back a fault still explains what is counted, in seconds: what it held up is under way.
const AFTERMATH: f64 = 5.0;

/// Which errors each event explains.
const EXPLAINED: [(&str, &[&str]); 7] = [
    // A stranger's datagrams of every type and length, and somebody's true initiation, over and over: it is not newer
    // than the one before, and after a change of keys it is nobody's.
    ("garbage", &["unknown_type", "bad_length", "mac1", "unknown_index", "unknown_peer", "replayed"]),
    // To a train from an address that has gone the kernel answers as to one that it cannot cut up (EINVAL). The second
    // try is datagram by datagram and finds out.
    ("roam address", &["segmentation_refused"]),
    // Both ends have tried again and again. When the line is back their initiations cross, and an answer to one that was
    // replaced by the next is nobody's.
    ("cut", &["unknown_index"]),
    // Between the changes of the two ends, one speaks for a key that the other does not know yet, or to one that it
    // does not have any more.
    ("change key", &["mac1", "unknown_peer", "unknown_index"]),
    // What arrives before the daemon hears of it cannot be delivered. The end that was down has no sessions, and the
    // other still uses one. While addresses come back, the kernel sends from another one of the host.
    ("link down up", &["tun_refused", "unknown_index", "source_not_allowed"]),
    // The same two, for the end that is new.
    ("kill ours", &["unknown_index", "source_not_allowed"]),
    ("kill theirs", &["unknown_index"]),
];

/// The verdict on a record.
#[derive(Debug)]
pub struct Verdict<'a> {
    record: &'a Record,
    /// Each process of ours, a restarted one twice.
    pub processes: Vec<Process<'a>>,
    /// Errors by process and counter.
    pub errors: Vec<Errors>,
    /// Each kind of event, and each check at the end.
    pub kinds: Vec<Kind<'a>>,
}

/// How large one process was over time.
#[derive(Debug)]
pub struct Process<'a> {
    /// `wg1`, or `keeper of wg1`.
    pub name: &'a str,
    /// Its number.
    pub pid: u32,
    /// How often it was looked at.
    pub samples: usize,
    /// CPU seconds that it used while it was watched.
    pub cpu: f64,
    /// Bytes that it received and sent while it was watched.
    pub bytes: (u64, u64),
    /// Handshakes that were seen: the latest was another one than ten seconds before.
    pub handshakes: usize,
    /// Resident memory, KB.
    pub rss: Trend,
    /// Anonymous memory, KB.
    pub anonymous: Trend,
    /// File descriptors.
    pub descriptors: Trend,
    /// Threads.
    pub threads: Trend,
}

/// A figure over time. The first quarter is left out: it is when every cache and every buffer is used first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// The median of the second quarter.
    pub early: f64,
    /// The median of the last quarter.
    pub late: f64,
    /// The Theil-Sen slope of all but the first quarter, an hour.
    pub slope: f64,
}

/// How often a process counted one error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors {
    /// The process.
    pub process: String,
    /// The counter's name.
    pub counter: String,
    /// While an event was under way that explains it.
    pub explained: u64,
    /// At other times.
    pub unexplained: u64,
}

/// All events of one kind.
#[derive(Debug)]
pub struct Kind<'a> {
    /// Which.
    pub name: &'a str,
    /// One at least.
    pub events: Vec<&'a Event>,
}

impl<'a> Verdict<'a> {
    /// Judges a record.
    #[must_use]
    pub fn of(record: &'a Record) -> Self {
        let mut kinds: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in &record.events {
            kinds.entry(&event.kind).or_default().push(event);
        }
        Self {
            record,
            processes: series(record).into_iter().map(Process::of).collect(),
            errors: errors(record),
            kinds: kinds.into_iter().map(|(name, events)| Kind { name, events }).collect(),
        }
    }

    /// What is wrong, a sentence each; none if the soak has been passed.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let grown = self.processes.iter().flat_map(Process::failures);
        let unexplained = self.errors.iter().filter(|errors| errors.unexplained > 0);
        let unexplained = unexplained.map(|errors| {
            let Errors { process, counter, unexplained, .. } = errors;
            format!("{process} counted {counter} {unexplained} times while nothing happened that explains it")
        });
        let wrong = self.record.events.iter().filter(|event| event.verdict != "ok");
        let wrong = wrong.map(|event| {
            let Event { begun, kind, detail, verdict, .. } = event;
            let seconds = event.back - event.over;
            format!("{verdict}: {kind} ({detail}), {begun:.0} s after the start: {seconds:.1} s until all answered")
        });
        grown.chain(unexplained).chain(wrong).collect()
    }
}

/// The samples of each process, in the order in which the processes appear.
fn series(record: &Record) -> Vec<Vec<&Sample>> {
    let mut all: Vec<Vec<&Sample>> = Vec::new();
    for sample in &record.samples {
        let same = |series: &&mut Vec<&Sample>| (&series[0].process, series[0].pid) == (&sample.process, sample.pid);
        match all.iter_mut().find(same) {
            Some(series) => series.push(sample),
            None => all.push(vec![sample]),
        }
    }
    all
}

impl<'a> Process<'a> {
    /// Sums up the samples of one process, of which there is one at least.
    fn of(samples: Vec<&'a Sample>) -> Self {
        let (first, last) = (samples[0], samples[samples.len() - 1]);
        let trend = |figure: fn(&Sample) -> f64| {
            Trend::of(&samples.iter().map(|sample| (sample.at, figure(sample))).collect::<Vec<_>>())
        };
        // A peer that is removed takes its bytes along.
        let grown = |figure: fn(&Sample) -> u64| {
            samples.windows(2).map(|pair| figure(pair[1]).saturating_sub(figure(pair[0]))).sum()
        };
        Self {
            name: &first.process,
            pid: first.pid,
            samples: samples.len(),
            cpu: last.cpu - first.cpu,
            bytes: (grown(|sample| sample.received), grown(|sample| sample.sent)),
            handshakes: samples.windows(2).filter(|pair| pair[0].handshake != pair[1].handshake).count(),
            rss: trend(|sample| sample.rss),
            anonymous: trend(|sample| sample.anonymous),
            descriptors: trend(|sample| sample.descriptors),
            threads: trend(|sample| sample.threads),
        }
    }

    /// Whether it lived long enough for a verdict on its size.
    fn is_judged(&self) -> bool {
        self.samples >= JUDGED
    }

    fn failures(&self) -> Vec<String> {
        let memory = |trend: &Trend| trend.is_flat(MEMORY_GROWTH * trend.early, MEMORY_SLOPE);
        let count = |trend: &Trend| trend.is_flat(0.0, COUNT_SLOPE);
        let flat = [
            ("resident memory (KB)", self.rss, memory(&self.rss)),
            ("anonymous memory (KB)", self.anonymous, memory(&self.anonymous)),
            ("descriptors", self.descriptors, count(&self.descriptors)),
            ("threads", self.threads, count(&self.threads)),
        ];
        let grown = flat.into_iter().filter(|(_, _, flat)| self.is_judged() && !flat);
        grown
            .map(|(what, Trend { early, late, slope }, _)| {
                let (name, pid) = (self.name, self.pid);
                format!(
                    "{name} ({pid}): {what} grew: {early:.0} in the second quarter, {late:.0} in the last, {slope:.0}/h"
                )
            })
            .collect()
    }
}

impl Trend {
    /// The trend of a figure at moments in seconds, of which there is one at least.
    fn of(points: &[(f64, f64)]) -> Self {
        let quarter = points.len() / 4;
        let median = |points: &[(f64, f64)]| {
            Summary::of(points.iter().map(|(_, figure)| *figure)).map_or(f64::NAN, |summary| summary.median)
        };
        Self {
            early: median(&points[quarter..(2 * quarter).max(quarter + 1)]),
            late: median(&points[(3 * quarter).min(points.len() - 1)..]),
            slope: 3600.0 * theil_sen(&points[quarter..]),
        }
    }

    /// Whether the medians grow by at most `growth` and the trend is below `slope` an hour.
    fn is_flat(&self, growth: f64, slope: f64) -> bool {
        self.late - self.early <= growth && self.slope < slope
    }
}

/// The median of the slopes between all pairs of points: three in ten of those may be anywhere without moving it far.
/// P. K. Sen, Estimates of the Regression Coefficient Based on Kendall's Tau (1968). 0 for fewer than two points.
fn theil_sen(points: &[(f64, f64)]) -> f64 {
    let pairs = points.iter().enumerate().flat_map(|(i, from)| points[i + 1..].iter().map(move |to| (from, to)));
    let slopes = pairs.filter(|(from, to)| to.0 > from.0).map(|(from, to)| (to.1 - from.1) / (to.0 - from.0));
    Summary::of(slopes).map_or(0.0, |summary| summary.median)
}

/// Errors that a process counted between two samples.
#[derive(Debug)]
pub(super) struct Increment<'a> {
    pub(super) process: &'a str,
    pub(super) counter: &'a str,
    /// When they were seen, in seconds since the start.
    pub(super) at: f64,
    pub(super) count: u64,
    pub(super) is_explained: bool,
}

/// What was counted, by the time at which it was seen. What a process had counted when it was first seen is left out,
/// unless it took the place of another.
pub(super) fn increments(record: &Record) -> Vec<Increment<'_>> {
    let mut all = Vec::new();
    let mut latest: BTreeMap<&str, &Sample> = BTreeMap::new();
    for sample in &record.samples {
        let Some(before) = latest.insert(&sample.process, sample) else { continue };
        let counted_before = |counter| if before.pid == sample.pid { before.errors.get(counter) } else { None };
        for (counter, count) in &sample.errors {
            let count = count.saturating_sub(*counted_before(counter).unwrap_or(&0));
            let is_explained = record.events.iter().any(|event| explains(event, counter, before.at, sample.at));
            if count > 0 {
                all.push(Increment { process: &sample.process, counter, at: sample.at, count, is_explained });
            }
        }
    }
    all
}

/// Whether an event is why a daemon counted `counter` between two moments.
fn explains(event: &Event, counter: &str, from: f64, to: f64) -> bool {
    let overlaps = event.begun <= to && from <= event.back + AFTERMATH;
    let of_kind = EXPLAINED.iter().find(|(kind, _)| *kind == event.kind);
    overlaps && of_kind.is_some_and(|(_, counters)| counters.contains(&counter))
}

fn errors(record: &Record) -> Vec<Errors> {
    let mut all: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for Increment { process, counter, count, is_explained, .. } in increments(record) {
        let (explained, unexplained) = all.entry((process, counter)).or_default();
        *if is_explained { explained } else { unexplained } += count;
    }
    let errors = |((process, counter), (explained, unexplained)): ((&str, &str), _)| Errors {
        process: process.into(),
        counter: counter.into(),
        explained,
        unexplained,
    };
    all.into_iter().map(errors).collect()
}

impl fmt::Display for Verdict<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}\n", self.record.about)?;
        self.write_processes(out)?;
        self.write_errors(out)?;
        self.write_kinds(out)?;
        let failures = self.failures();
        for failure in &failures {
            writeln!(out, "FAILURE: {failure}")?;
        }
        let end = self.record.samples.last().map_or(0.0, |sample| sample.at / 60.0);
        writeln!(out, "{end:.1} minutes, {} failures", failures.len())
    }
}

impl Verdict<'_> {
    fn write_processes(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["KB resident", "KB anonymous", "descriptors", "threads"];
        write!(out, "{:<14}{:>8}{:>7}{:>9}{:>11}", "process", "samples", "CPU s", "MB", "handshakes")?;
        writeln!(out, "{:>19}{:>19}{:>13}{:>9}  flat", heads[0], heads[1], heads[2], heads[3])?;
        for process in &self.processes {
            let Process { name, samples, cpu, bytes: (received, sent), handshakes, .. } = process;
            let megabytes = (received + sent) as f64 / 1e6;
            write!(out, "{name:<14}{samples:>8}{cpu:>7.1}{megabytes:>9.0}{handshakes:>11}")?;
            let count = |Trend { early, late, .. }: Trend| format!("{early:.0} {late:.0}");
            let memory = |trend: Trend| {
                let slope = if process.is_judged() { format!(" {:+.0}/h", trend.slope) } else { String::new() };
                format!("{}{slope}", count(trend))
            };
            let flat = match (process.is_judged(), process.failures().is_empty()) {
                (false, _) => "too short",
                (true, true) => "yes",
                (true, false) => "NO",
            };
            let (rss, anonymous) = (memory(process.rss), memory(process.anonymous));
            let (descriptors, threads) = (count(process.descriptors), count(process.threads));
            writeln!(out, "{rss:>19}{anonymous:>19}{descriptors:>13}{threads:>9}  {flat}")?;
        }
        writeln!(out)
    }

    fn write_errors(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:<14}{:<22}{:>12}{:>16}", "process", "error", "explained", "not explained")?;
        for Errors { process, counter, explained, unexplained } in &self.errors {
            writeln!(out, "{process:<14}{counter:<22}{explained:>12}{unexplained:>16}")?;
        }
        writeln!(out)
    }

    fn write_kinds(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:<14}{:>8}{:>12}{:>10}{:>10}", "traffic after", "times", "median ms", "most ms", "limit ms")?;
        let (events, checks): (Vec<&Kind>, Vec<&Kind>) = self.kinds.iter().partition(|kind| kind.events[0].limit > 0.0);
        for Kind { name, events } in events {
            let (times, limit) = (events.len(), 1e3 * events[0].limit);
            if let Some(took) = Summary::of(events.iter().map(|event| 1e3 * (event.back - event.over))) {
                writeln!(out, "{name:<14}{times:>8}{:>12.0}{:>10.0}{limit:>10.0}", took.median, took.most)?;
            }
        }
        for Kind { name, events } in checks {
            writeln!(out, "at the end, {name}: {}", events[0].verdict)?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: f64 = 3600.0;

    /// Samples of wg1 every ten seconds, with these errors.
    fn samples(count: u32, errors: &str) -> String {
        let mut text = "# a day\nheads\n".to_owned();
        for i in 0..count {
            text.push_str(&format!("{}\twg1\t7\t6000\t1500\t18\t4\t0\t0\t0\t0\t", 10 * i));
            text.push_str(if i > 0 { errors } else { "" });
            text.push('\n');
        }
        text
    }

    fn failures(samples: &str, events: &str) -> Vec<String> {
        Verdict::of(&Record::parse(samples, &format!("heads\n{events}")).unwrap()).failures()
    }

    fn trend(figure: impl Fn(f64) -> f64) -> Trend {
        let points: Vec<(f64, f64)> = (0..360).map(|i| 10.0 * f64::from(i)).map(|at| (at, figure(at))).collect();
        Trend::of(&points)
    }

    #[test]
    fn what_stays_is_flat_and_what_warmed_up_is_too() {
        assert!(failures(&samples(360, ""), "").is_empty());
        let warmed = trend(|at| if at < 800.0 { 5000.0 + at } else { 6000.0 });
        assert_eq!(warmed, Trend { early: 6000.0, late: 6000.0, slope: 0.0 });
    }

    #[test]
    fn what_grows_steadily_is_not_flat() {
        let leak = trend(|at| 6000.0 + 1100.0 * at / HOUR);
        assert!((leak.slope - 1100.0).abs() < 1e-6 && !leak.is_flat(1e9, MEMORY_SLOPE) && !leak.is_flat(500.0, 1e9));
        let mut leaking = samples(360, "");
        for i in (100..360).rev() {
            // One descriptor every fifty minutes.
            leaking = leaking.replace(
                &format!("\n{}\twg1\t7\t6000\t1500\t18", 10 * i),
                &format!("\n{}\twg1\t7\t6000\t1500\t{}", 10 * i, 18 + i / 300),
            );
        }
        let failures = failures(&leaking, "");
        assert!(
            failures.len() == 1 && failures[0].contains("descriptors grew: 18 in the second quarter, 19"),
            "{failures:?}"
        );
    }

    #[test]
    fn a_step_is_not_flat_though_its_slopes_are_mostly_none() {
        let step = trend(|at| if at < 3000.0 { 6000.0 } else { 6400.0 });
        assert!(!step.is_flat(MEMORY_GROWTH * step.early, f64::INFINITY));
    }

    #[test]
    fn an_error_without_an_event_is_a_failure_and_one_with_its_event_is_not() {
        let garbage = "3\t5\t5.1\t2\tgarbage\t2 s\tok\n";
        let late = "13\t15\t15.1\t2\tgarbage\t2 s\tok\n";
        assert!(failures(&samples(3, "mac1=2"), garbage).is_empty());
        let unexplained = ["wg1 counted mac1 2 times while nothing happened that explains it"];
        assert_eq!(failures(&samples(3, "mac1=2"), ""), unexplained);
        assert_eq!(failures(&samples(3, "mac1=2"), late), unexplained);
        assert_eq!(failures(&samples(3, "mac1=2"), &garbage.replace("garbage", "crowd")), unexplained);
    }

    #[test]
    fn a_process_that_took_anothers_place_counts_from_zero() {
        let samples = format!("{}30\twg1\t8\t6000\t1500\t18\t4\t0\t0\t0\t0\tmac1=1\n", samples(3, ""));
        assert_eq!(failures(&samples, "").len(), 1);
    }

    #[test]
    fn an_event_whose_traffic_is_late_is_a_failure() {
        let failures = failures(&samples(3, ""), "3\t5\t9.5\t2\troam port\twg1\tlate\n");
        assert_eq!(failures, ["late: roam port (wg1), 3 s after the start: 4.5 s until all answered"]);
    }

    proptest! {
        #[test]
        fn a_fifth_of_wild_samples_does_not_move_the_slope_of_a_line(
            slope in -10.0..10.0_f64,
            wild in prop::collection::vec(-1e9..1e9_f64, 20),
        ) {
            let mut points: Vec<(f64, f64)> = (0..100).map(|i| (f64::from(i), slope * f64::from(i))).collect();
            for (i, wild) in wild.into_iter().enumerate() {
                points[5 * i].1 = wild;
            }
            prop_assert!((theil_sen(&points) - slope).abs() < 1e-9);
        }
    }
}
