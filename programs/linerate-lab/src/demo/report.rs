//! What the demo measured: for machines (serde) and a table for people (`Display`).

use std::fmt;

use linerate_control::printable::printable;
use serde::Serialize;

use crate::load::tcp;
use crate::ping;
use crate::record::Machine;
use crate::stats::Summary;

/// Raised when a field of the record changes its meaning.
pub const SCHEMA: u32 = 1;

/// A whole measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`] of this record.
    pub schema: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How it was measured.
    pub method: Method,
    /// One row per subject, in the order of measurement.
    pub rows: Vec<Row>,
    /// How the other tunnels compare to the baseline.
    pub ratios: Vec<Ratio>,
}

/// How it was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Method {
    /// Rounds; in each, every subject was brought up, measured and taken down, one after the other.
    pub rounds: u32,
    /// Seconds of each throughput measurement, after `warm_up`.
    pub seconds: f64,
    /// Seconds before them that do not count.
    pub warm_up: f64,
    /// TCP streams of the measurement with many.
    pub many_streams: u16,
    /// Probes of each latency measurement.
    pub probes: u16,
    /// How latency was probed.
    pub probe: &'static str,
    /// The tunnels' MTU.
    pub mtu: u32,
}

/// One subject.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// Its command; none for no tunnel.
    pub command: Option<Vec<String>>,
    /// What it says its version is.
    pub version: Option<String>,
    /// Why it could not be measured, or not in every round.
    pub failure: Option<String>,
    /// What was measured, round by round.
    pub rounds: Vec<Round>,
    /// The same, summed up.
    pub summary: RowSummary,
}

/// One subject in one round.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// From the first packet to its answer, handshake included, in milliseconds.
    pub first_answer_ms: Option<f64>,
    /// One TCP stream.
    pub one: Throughput,
    /// Many TCP streams at once.
    pub many: Throughput,
    /// Round trips at rest.
    pub ping: ping::Report,
    /// The most memory that either daemon ever had resident, in bytes.
    pub peak_resident: Option<u64>,
    /// Context switches per second of both daemons at rest, where asked for.
    pub idle_switches: Option<f64>,
}

/// One throughput measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Throughput {
    /// What was moved.
    #[serde(flatten)]
    pub load: tcp::Report,
    /// Processor seconds of both daemons per 10^9 bytes of TCP payload, warm-up included.
    pub cpu_per_gb: Option<f64>,
    /// The user-space part of them.
    pub user_per_gb: Option<f64>,
    /// Context switches of both daemons per 10^9 bytes.
    pub switches_per_gb: Option<f64>,
}

/// A subject's rounds, summed up.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RowSummary {
    /// Gigabits per second of one TCP stream.
    pub one_gbit: Option<Summary>,
    /// Gigabits per second of many TCP streams.
    pub many_gbit: Option<Summary>,
    /// Mean round trip in milliseconds.
    pub ping_mean_ms: Option<Summary>,
    /// The 99th percentile of round trips in milliseconds.
    pub ping_p99_ms: Option<Summary>,
    /// Processor seconds per 10^9 bytes, both daemons, one stream.
    pub cpu_per_gb: Option<Summary>,
    /// Peak memory of the larger daemon in bytes.
    pub peak_resident: Option<Summary>,
    /// Context switches per second of both daemons at rest.
    pub idle_switches: Option<Summary>,
}

/// A subject against the baseline: the ratio in each round, so that drift of the machine hits both.
#[derive(Debug, Clone, Serialize)]
pub struct Ratio {
    /// The subject.
    pub name: String,
    /// What it is compared to.
    pub baseline: String,
    /// Throughput of one TCP stream, more is better.
    pub one_gbit: Option<Summary>,
    /// Throughput of many TCP streams, more is better.
    pub many_gbit: Option<Summary>,
    /// Mean round trip at rest, less is better.
    pub ping_mean: Option<Summary>,
    /// Processor seconds per byte, one stream, less is better.
    pub cpu_per_gb: Option<Summary>,
    /// Peak memory, less is better.
    pub peak_resident: Option<Summary>,
}

/// What a column shows of a round.
type Measure = fn(&Round) -> Option<f64>;

const ONE_GBIT: Measure = |round| Some(round.one.load.gbit_per_second);
const MANY_GBIT: Measure = |round| Some(round.many.load.gbit_per_second);
const PING_MEAN: Measure = |round| round.ping.latency.map(|latency| latency.mean_ms);
const PING_P99: Measure = |round| round.ping.latency.map(|latency| latency.p99_ms);
const CPU_PER_GB: Measure = |round| round.one.cpu_per_gb;
const PEAK_RESIDENT: Measure = |round| round.peak_resident.map(|bytes| bytes as f64);
const IDLE_SWITCHES: Measure = |round| round.idle_switches;

impl RowSummary {
    /// Sums up `rounds`.
    #[must_use]
    pub fn of(rounds: &[Round]) -> Self {
        let sum_up = |measure: Measure| Summary::of(rounds.iter().filter_map(measure));
        Self {
            one_gbit: sum_up(ONE_GBIT),
            many_gbit: sum_up(MANY_GBIT),
            ping_mean_ms: sum_up(PING_MEAN),
            ping_p99_ms: sum_up(PING_P99),
            cpu_per_gb: sum_up(CPU_PER_GB),
            peak_resident: sum_up(PEAK_RESIDENT),
            idle_switches: sum_up(IDLE_SWITCHES),
        }
    }
}

impl Ratio {
    /// Compares `row` to `baseline`, round by round.
    #[must_use]
    pub fn of(row: &Row, baseline: &Row) -> Self {
        let pairs = || row.rounds.iter().zip(&baseline.rounds);
        let compare =
            |measure: Measure| Summary::of(pairs().filter_map(|(own, base)| Some(measure(own)? / measure(base)?)));
        Self {
            name: row.name.clone(),
            baseline: baseline.name.clone(),
            one_gbit: compare(ONE_GBIT),
            many_gbit: compare(MANY_GBIT),
            ping_mean: compare(PING_MEAN),
            cpu_per_gb: compare(CPU_PER_GB),
            peak_resident: compare(PEAK_RESIDENT),
        }
    }
}

impl Report {
    /// Whether every subject was measured in every round.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.failure.is_none())
    }
}

const NAME_WIDTH: usize = 25;
const WIDTHS: [usize; 6] = [10, 13, 11, 10, 12, 9];

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = format!("{} streams", self.method.many_streams);
        line(out, "", &["1 stream", &many, "ping mean", "ping p99", "CPU per GB", "memory"].map(String::from))?;
        line(out, "", &["Gbit/s", "Gbit/s", "ms", "ms", "s", "MB"].map(String::from))?;
        for row in &self.rows {
            row.write(out, self.method.rounds > 1)?;
        }
        for ratio in &self.ratios {
            ratio.write(out)?;
        }
        self.write_idle(out)?;
        self.write_versions(out)?;
        self.write_method(out)
    }
}

impl Row {
    fn write(&self, out: &mut fmt::Formatter<'_>, with_spread: bool) -> fmt::Result {
        let summary = &self.summary;
        let cells = [
            (summary.one_gbit, 1.0, 2),
            (summary.many_gbit, 1.0, 2),
            (summary.ping_mean_ms, 1.0, 3),
            (summary.ping_p99_ms, 1.0, 3),
            (summary.cpu_per_gb, 1.0, 2),
            (summary.peak_resident, 1e-6, 1),
        ];
        if !self.rounds.is_empty() {
            line(
                out,
                &self.name,
                &cells.map(|(summary, scale, digits)| {
                    summary.map_or_else(|| "-".into(), |summary| format!("{:.digits$}", summary.median * scale))
                }),
            )?;
            if with_spread {
                line(
                    out,
                    "",
                    &cells.map(|(summary, _, _)| {
                        summary.map_or_else(String::new, |summary| format!("±{:.0}%", summary.spread() * 50.0))
                    }),
                )?;
            }
        }
        self.failure
            .as_ref()
            .map_or(Ok(()), |failure| writeln!(out, "{}: {}", printable(&self.name), printable(failure)))
    }
}

impl Ratio {
    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = [self.one_gbit, self.many_gbit, self.ping_mean, None, self.cpu_per_gb, self.peak_resident];
        let name = format!("{} / {}", self.name, self.baseline);
        line(
            out,
            &name,
            &cells.map(|summary| summary.map_or_else(String::new, |summary| format!("{:.2}x", summary.median))),
        )
    }
}

impl Report {
    fn write_idle(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            if let Some(switches) = row.summary.idle_switches {
                let (name, median) = (printable(&row.name), switches.median);
                writeln!(out, "{name} at rest: {median:.1} context switches per second, both daemons")?;
            }
        }
        Ok(())
    }

    /// A ratio to a subject of an unknown version would mislead.
    fn write_versions(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out)?;
        for row in self.rows.iter().filter(|row| row.command.is_some()) {
            let version = row.version.as_deref().unwrap_or("version unknown");
            writeln!(out, "{}: {}", printable(&row.name), printable(version))?;
        }
        Ok(())
    }

    fn write_method(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Method { rounds, seconds, probes, mtu, .. } = self.method;
        let Machine { processors, processor, kernel, busy, .. } = &self.machine;
        let medians = if rounds > 1 {
            format!("Medians of {rounds} rounds, the subjects measured in turn; ± is half of the range.")
        } else {
            "One round.".into()
        };
        writeln!(
            out,
            "\n{medians}\n\
             TCP for {seconds} s each, {probes} pings at rest (ICMP echo), tunnel MTU {mtu}. CPU is that of both daemons\n\
             during one stream, memory the peak of the larger one. Both hosts, the daemons and the load share\n\
             {processors} processors ({processor}), Linux {kernel}."
        )?;
        if *busy > 0.1 {
            writeln!(
                out,
                "This machine was {:.0}% busy with something else: treat the figures with caution.",
                busy * 100.0
            )?;
        }
        Ok(())
    }
}

fn line(out: &mut fmt::Formatter<'_>, name: &str, cells: &[String; WIDTHS.len()]) -> fmt::Result {
    let mut text = format!("{:<NAME_WIDTH$}", printable(name));
    for (cell, width) in cells.iter().zip(WIDTHS) {
        text.push_str(&format!("{cell:>width$}"));
    }
    writeln!(out, "{}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tcp::Received;
    use crate::stats::Latency;

    #[test]
    fn ratios_are_taken_within_a_round() {
        // Both are twice as fast in the second round: the machine drifted, the ratio did not.
        let (own, base) = (row("linerate", &[4.0, 8.0]), row("wireguard-go", &[2.0, 4.0]));
        let ratio = Ratio::of(&own, &base);
        assert_eq!(ratio.one_gbit, Some(Summary { median: 2.0, least: 2.0, most: 2.0 }));
        assert_eq!(ratio.cpu_per_gb, None);
    }

    #[test]
    fn the_table_is_aligned_and_names_its_units() {
        let (own, base) = (row("linerate", &[4.0]), row("wireguard-go", &[2.0]));
        let text = report(vec![own.clone(), base.clone()], vec![Ratio::of(&own, &base)]).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("Gbit/s") && lines[1].contains("ms") && lines[1].contains("MB"));
        let end = |line: &str, cell: &str| line.find(cell).map(|start| start + cell.len());
        assert_eq!(end(lines[2], "4.00"), end(lines[1], "Gbit/s"));
        assert_eq!(end(lines[3], "2.00"), end(lines[1], "Gbit/s"));
        assert_eq!(end(lines[4], "2.00x"), end(lines[1], "Gbit/s"));
        assert!(lines.iter().all(|line| line.chars().count() <= 120 && !line.ends_with(' ')));
    }

    #[test]
    fn a_subject_that_failed_says_why() {
        let mut failed = row("wireguard-go", &[]);
        failed.failure = Some("it ended at once".into());
        let report = report(vec![failed], Vec::new());
        assert!(!report.is_complete());
        assert!(report.to_string().contains("wireguard-go: it ended at once\n"));
    }

    #[test]
    fn the_record_holds_what_the_table_shows() {
        let record = serde_json::to_value(report(vec![row("linerate", &[4.0])], Vec::new())).unwrap();
        assert_eq!(record["schema"], SCHEMA);
        assert_eq!(record["rows"][0]["summary"]["one_gbit"]["median"], 4.0);
        assert_eq!(record["rows"][0]["rounds"][0]["one"]["gbit_per_second"], 4.0);
        assert_eq!(record["rows"][0]["rounds"][0]["ping"]["p99_ms"], 1.0);
    }

    fn row(name: &str, gbit: &[f64]) -> Row {
        let rounds: Vec<Round> = gbit.iter().copied().map(round).collect();
        let summary = RowSummary::of(&rounds);
        Row { name: name.into(), command: None, version: None, failure: None, rounds, summary }
    }

    fn round(gbit: f64) -> Round {
        let received = Received { bytes: 1, seconds: 1.0, all_bytes: 1 };
        let load = tcp::Report { received, gbit_per_second: gbit, retransmits: 0 };
        let throughput = Throughput { load, cpu_per_gb: None, user_per_gb: None, switches_per_gb: None };
        Round {
            first_answer_ms: None,
            one: throughput.clone(),
            many: throughput,
            ping: ping::Report { sent: 1, answered: 1, latency: Latency::of([1.0]), round_trips_ms: vec![1.0] },
            peak_resident: None,
            idle_switches: None,
        }
    }

    fn report(rows: Vec<Row>, ratios: Vec<Ratio>) -> Report {
        let method = Method {
            rounds: 1,
            seconds: 1.0,
            warm_up: 0.2,
            many_streams: 105,
            probes: 100,
            probe: "ICMP echo",
            mtu: 1420,
        };
        let machine = Machine {
            kernel: "6.1".into(),
            processor: "CPU".into(),
            processors: 2,
            memory: 1 << 30,
            governor: None,
            powercap: None,
            busy: 0.0,
        };
        Report { schema: SCHEMA, machine, method, rows, ratios }
    }
}
