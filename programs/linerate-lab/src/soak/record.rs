//! The files of a soak: tables whose columns are between tabs, with a line of heads.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, str};

use crate::error::Doing;
use crate::{Error, Result};

/// All that was written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The day, the processor, the kernel and the seed of the choices.
    pub about: String,
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// In the order of time.
    pub events: Vec<Event>,
}

/// What one process held and had counted at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// `wg1`, or `keeper of wg1`.
    pub process: String,
    /// Its number: a process that was started again is another.
    pub pid: u32,
    /// Resident memory, KB (`VmRSS` of proc_pid_status(5)).
    pub rss: f64,
    /// The part of it that is no file's, KB (`RssAnon`).
    pub anonymous: f64,
    /// Open file descriptors.
    pub descriptors: f64,
    /// Threads.
    pub threads: f64,
    /// CPU seconds used since it was started.
    pub cpu: f64,
    /// Bytes received from all peers.
    pub received: u64,
    /// Bytes sent to all peers.
    pub sent: u64,
    /// When the latest handshake was completed, in seconds since the start; none for a keeper.
    pub handshake: Option<f64>,
    /// The counters of errors that are not zero, by name.
    pub errors: BTreeMap<String, u64>,
}

/// Something that happened to the tunnels, or a check at the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Seconds since the start.
    pub begun: f64,
    /// When the fault was over, in seconds since the start.
    pub over: f64,
    /// When every way through the tunnels had answered, in seconds since the start.
    pub back: f64,
    /// The most seconds that this may take.
    pub limit: f64,
    /// Which event.
    pub kind: String,
    /// What it chose.
    pub detail: String,
    /// `ok`, or what was wrong.
    pub verdict: String,
}

impl Record {
    /// Reads `samples.tsv` and `events.tsv` of a folder.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read, or a line is not what `tests/soak/run` writes; the sentence names it.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = |name: &str| {
            let file = folder.join(name);
            fs::read_to_string(&file).doing(|| format!("reading {}", file.display()))
        };
        Self::parse(&text("samples.tsv")?, &text("events.tsv")?)
    }

    /// Reads the text of both files.
    ///
    /// # Errors
    ///
    /// As [`Record::read`].
    pub fn parse(samples: &str, events: &str) -> Result<Self> {
        let about = samples.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned();
        Ok(Self { about, samples: rows(samples, "samples", sample)?, events: rows(events, "events", event)? })
    }
}

/// Reads every line but comments and the heads.
fn rows<T, const N: usize>(text: &str, name: &str, read: fn([&str; N]) -> Option<T>) -> Result<Vec<T>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')).skip(1);
    lines
        .map(|(i, line)| {
            let cells: Vec<&str> = line.split('\t').collect();
            let row = <[&str; N]>::try_from(cells).ok().and_then(read);
            row.ok_or_else(|| Error::Refused(format!("{name}.tsv, line {}: no line of a soak: {line}", i + 1)))
        })
        .collect()
}

fn sample(cells: [&str; 12]) -> Option<Sample> {
    let [at, process, pid, rss, anonymous, descriptors, threads, cpu, received, sent, handshake, errors] = cells;
    Some(Sample {
        at: number(at)?,
        process: process.into(),
        pid: pid.parse().ok()?,
        rss: number(rss)?,
        anonymous: number(anonymous)?,
        descriptors: number(descriptors)?,
        threads: number(threads)?,
        cpu: number(cpu)?,
        received: received.parse().ok()?,
        sent: sent.parse().ok()?,
        handshake: if handshake == "-" { None } else { Some(number(handshake)?) },
        errors: errors.split_terminator(' ').map(counter).collect::<Option<_>>()?,
    })
}

fn event(cells: [&str; 7]) -> Option<Event> {
    let [begun, over, back, limit, kind, detail, verdict] = cells;
    Some(Event {
        begun: number(begun)?,
        over: number(over)?,
        back: number(back)?,
        limit: number(limit)?,
        kind: kind.into(),
        detail: detail.into(),
        verdict: verdict.into(),
    })
}

/// A finite number: others could not be put in order.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

fn counter(text: &str) -> Option<(String, u64)> {
    let (name, count) = text.split_once('=')?;
    Some((name.into(), count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &str = "# a day\nheads\n10\twg1\t7\t6000\t1500\t18\t4\t0.5\t1000\t2000\t-3\tmac1=2 no_peer=1\n\
                           10\tkeeper of wg1\t5\t2500\t1000\t5\t1\t0\t0\t0\t-\t\n";
    const EVENTS: &str = "heads\n1\t2.5\t2.75\t2\troam port\twg1\tok\n";

    #[test]
    fn what_was_written_is_read() {
        let record = Record::parse(SAMPLES, EVENTS).unwrap();
        assert_eq!(record.about, "a day");
        let [daemon, keeper] = &record.samples[..] else { panic!("two samples") };
        assert_eq!((daemon.at, daemon.pid, daemon.rss, daemon.sent), (10.0, 7, 6000.0, 2000));
        assert_eq!((daemon.handshake, daemon.errors["mac1"], daemon.errors.len()), (Some(-3.0), 2, 2));
        assert_eq!((keeper.handshake, keeper.errors.len()), (None, 0));
        let [event] = &record.events[..] else { panic!("one event") };
        assert_eq!((event.over, event.back, &event.kind[..], &event.verdict[..]), (2.5, 2.75, "roam port", "ok"));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for wrong in ["10\twg1", "10\twg1\tx\t1\t1\t1\t1\t1\t1\t1\t-\t", "NaN\twg1\t7\t1\t1\t1\t1\t1\t1\t1\t-\t", ""] {
            let error = Record::parse(&format!("{SAMPLES}{wrong}\n"), EVENTS).unwrap_err().to_string();
            assert!(error.starts_with("samples.tsv, line 5:"), "{wrong}: {error}");
        }
        for wrong in ["1\t2\t3", "1\t2\t3\t4\tkind\tdetail", "1\t2\tx\t4\tkind\tdetail\tok"] {
            let error = Record::parse(SAMPLES, &format!("{EVENTS}{wrong}\n")).unwrap_err().to_string();
            assert!(error.starts_with("events.tsv, line 3:"), "{wrong}: {error}");
        }
    }
}
