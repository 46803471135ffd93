//! Five field reports that people published, measured again here: each with the report's own figures beside
//! ours, and marked as what they are, figures of other hardware.

use std::fmt;

use crate::measure::Measure;
use crate::record::{Record, Row};
use crate::stats::Summary;
use linerate_control::printable::printable;

/// A field report.
#[derive(Debug, Clone, Copy)]
pub struct Story {
    /// 1 to 5.
    pub number: u8,
    /// Its title, with the year.
    pub title: &'static str,
    /// What it found.
    pub found: &'static str,
    /// The hardware of its figures.
    pub hardware: &'static str,
    /// What is measured to tell it again: patterns of scenario names.
    pub scenarios: &'static [&'static str],
    tell: fn(&Record) -> Table,
}

/// A story told again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// One title per column.
    pub header: Vec<String>,
    /// One cell per column.
    pub rows: Vec<Vec<String>>,
    /// What one has to know to compare.
    pub notes: Vec<String>,
}

/// What a row of somebody else's figures is marked with.
const PUBLISHED: &str = "published: ";

/// All of them.
pub const STORIES: [Story; 5] = [
    Story {
        number: 1,
        title: "Which WireGuard on FreeBSD 13.1? (2022)",
        found: "wireguard-go needed 14 times the system calls of the kernel's module and was slower: \"the number of \
                system calls is why we want WireGuard in the kernel\".",
        hardware: "two machines on one gigabit switch, iperf3 with one TCP stream for 10 s, vmstat every half second",
        scenarios: &["pair/tcp-1"],
        tell: tell_system_calls,
    },
    Story {
        number: 2,
        title: "Patches to the FreeBSD driver (2022)",
        found: "The driver woke a task on every processor for every packet, and six of seven wake-ups found nothing; \
                a patch doubled the throughput.",
        hardware: "8 processor threads, counters of the driver",
        scenarios: &["pair/tcp-1", "pair/tcp-4", "pair/tcp-105", "pair/udp-large"],
        tell: tell_wake_ups,
    },
    Story {
        number: 3,
        title: "Kernel or user space on Android (2023)",
        found: "User space had the slightly better latency, the kernel clearly the better throughput and power draw \
                (the report gives its figures as plots).",
        hardware: "a Raspberry Pi 4 and a NUC, power measured at the plug",
        scenarios: &["pair/ping", "pair/tcp-1", "pair/idle"],
        tell: tell_overheads,
    },
    Story {
        number: 4,
        title: "Firewall throughput: OPNsense, APU4d4, OpenWrt (2021)",
        found: "One stream is much slower than four, IPv6 slower than IPv4, and IPsec policies that match nothing cost \
                up to a third.",
        hardware: "a Turris Omnia, an APU4d4 and a VM between two VLANs, iperf3 over TCP, 20 repetitions",
        scenarios: &["firewall", "firewall-policies", "routed"],
        tell: tell_firewalls,
    },
    Story {
        number: 5,
        title: "WireGuard: really unlimited? (2022)",
        found: "A third of the wire's speed with no processor saturated: the report blames the protocol, but one peer \
                was serialised on one core.",
        hardware: "10 Gbit/s LAN, a 32-core server in a VM, a 12-core client, iperf3 -R -P 105",
        scenarios: &["pair/tcp-105-reverse", "pair/ping"],
        tell: tell_limits,
    },
];

impl Story {
    /// The story told by the record of its scenarios.
    #[must_use]
    pub fn tell(&self, record: &Record) -> Table {
        (self.tell)(record)
    }
}

fn tell_system_calls(record: &Record) -> Table {
    let published = [
        ["no tunnel", "933", "0", "97596", "40992", "1", "12", "87"],
        ["wireguard-go", "554", "423", "210358", "85010", "17", "16", "67"],
        ["kernel module", "659", "138", "14908", "41894", "1", "27", "72"],
        ["no tunnel, Linux", "935", "0", "", "", "", "", ""],
        ["kernel module, Linux", "600", "78", "", "", "", "", ""],
    ];
    let mut rows = as_published(published);
    rows.extend(record.scenario("pair/tcp-1").map(|row| {
        vec![
            row.subject.clone(),
            cell(row, Measure::Throughput, 1e-6, 0),
            cell(row, Measure::Retransmits, 1.0, 0),
            calls_per_half_second(row).map_or_else(String::new, |calls| format!("{calls:.0}")),
            cell(row, Measure::SwitchRate, 0.5, 0),
            cell(row, Measure::MachineUser, 100.0, 0),
            cell(row, Measure::MachineSystem, 100.0, 0),
            cell(row, Measure::MachineIdle, 100.0, 0),
        ]
    }));
    Table {
        header: titles(["", "Mbit/s", "retransmits", "calls/0.5s", "switches/0.5s", "us %", "sy %", "id %"]),
        rows,
        notes: vec![
            "System calls and context switches: the report counts the whole machine's, we the two daemons'.".into(),
            "The report's Mbit/s are means of two ends' figures.".into(),
        ],
    }
}

/// System calls are counted in a load of their own, which may be slower: what counts is how many a byte takes.
fn calls_per_half_second(row: &Row) -> Option<f64> {
    Some(median(row, Measure::SyscallsPerGb)? * median(row, Measure::Throughput)? / 8e9 / 2.0)
}

fn tell_wake_ups(record: &Record) -> Table {
    let published = [
        ["encrypt, before the patch", "992858", "6274830", "13.7"],
        ["decrypt, before the patch", "1114235", "7064707", "13.6"],
        ["encrypt, after it", "1486616", "783377", "65.5"],
        ["decrypt, after it", "1880567", "657807", "74.1"],
    ];
    let mut rows = as_published(published);
    for row in record.rows.iter().filter(|row| row.scenario.starts_with("pair/")) {
        let load = row.scenario.trim_start_matches("pair/");
        for (work, host, thread) in [("encrypt", "client", "outbound"), ("decrypt", "server", "inbound")] {
            let Some((found, empty)) = wake_ups(row, host, thread) else { continue };
            let share = 100.0 * found as f64 / (found + empty).max(1) as f64;
            rows.push(vec![
                format!("{work}, {}, {load}", row.subject),
                found.to_string(),
                empty.to_string(),
                format!("{share:.1}"),
            ]);
        }
    }
    Table {
        header: titles(["", "work", "empty", "efficiency %"]),
        rows,
        notes: vec!["Of the subjects here only linerate counts its wake-ups.".into()],
    }
}

/// The wake-ups of a host's threads of one direction, over all rounds: with work, and empty.
fn wake_ups(row: &Row, host: &str, direction: &str) -> Option<(u64, u64)> {
    let sum = |kind: &str| {
        let counters = row.samples.iter().flat_map(|sample| &sample.counters);
        let of_kind = counters.filter(|(name, _)| {
            name.strip_prefix(host)
                .and_then(|name| name.strip_prefix("/wakeups_"))
                .is_some_and(|name| name.starts_with(direction) && name.ends_with(kind))
        });
        of_kind.map(|(_, count)| count).sum::<u64>()
    };
    let (found, empty) = (sum("_work"), sum("_empty"));
    (found + empty > 0).then_some((found, empty))
}

fn tell_overheads(record: &Record) -> Table {
    let baseline = "no tunnel";
    let subjects = record.subjects.iter().filter(|subject| subject.missing.is_none());
    let over = |scenario: &str, subject: &str, measure: Measure| {
        let of = |name: &str| median(record.row(scenario, name)?, measure);
        Some((of(subject)? / of(baseline)? - 1.0) * 100.0)
    };
    let of = |scenario: &str, subject: &str, measure: Measure, decimals: usize| {
        record.row(scenario, subject).map_or_else(String::new, |row| cell(row, measure, 1.0, decimals))
    };
    let rows = subjects.map(|subject| {
        let name = subject.name.as_str();
        vec![
            name.to_owned(),
            of("pair/ping", name, Measure::LatencyMean, 3),
            percent(over("pair/ping", name, Measure::LatencyMean)),
            percent(over("pair/tcp-1", name, Measure::Throughput)),
            of("pair/tcp-1", name, Measure::CpuPerGb, 2),
            of("pair/tcp-1", name, Measure::EnergyPerGb, 1),
            of("pair/idle", name, Measure::IdleSwitchRate, 2),
        ]
    });
    let mut notes = vec!["Overheads are relative to no tunnel, as in the report.".to_owned()];
    notes.push(match &record.machine.powercap {
        Some(zone) => format!("Energy is what {zone} counts, not what the plug delivers."),
        None => "This machine has no energy counters; processor seconds and wake-ups stand in for power.".into(),
    });
    Table {
        header: titles(["", "ping ms", "latency", "throughput", "CPU s/GB", "J/GB", "wake-ups/s at rest"]),
        rows: rows.collect(),
        notes,
    }
}

fn tell_firewalls(record: &Record) -> Table {
    let published = [
        ("IPv4, 1 stream", "tcp-1", false, ["695", "493", "1090", "4470"]),
        ("IPv6, 1 stream", "tcp-1-ipv6", false, ["422", "341", "714", "4250"]),
        ("IPv4, 4 streams", "tcp-4", false, ["732", "736", "1140", "4450"]),
        ("IPv6, 4 streams", "tcp-4-ipv6", false, ["415", "629", "793", "4480"]),
        ("IPv4, 4 streams, idle policies", "tcp-4", true, ["689", "551", "869", ""]),
        ("IPv6, 4 streams, idle policies", "tcp-4-ipv6", true, ["405", "413", "799", ""]),
    ];
    let megabits = |network: &str, load: &str, subject: &str| {
        let row = record.row(&format!("{network}/{load}"), subject);
        row.map_or_else(String::new, |row| cell(row, Measure::Throughput, 1e-6, 0))
    };
    let tunnels: Vec<&str> = record.subjects.iter().map(|subject| subject.name.as_str()).collect();
    let through: Vec<&str> =
        tunnels.into_iter().filter(|name| *name != "no tunnel" && record.row("routed/tcp-1", name).is_some()).collect();
    let rows = published.map(|(case, load, policies, figures)| {
        let mut row = vec![case.to_owned()];
        row.extend(figures.map(str::to_owned));
        row.push(megabits(if policies { "firewall-policies" } else { "firewall" }, load, "no tunnel"));
        row.extend(through.iter().map(|subject| {
            // Where the tunnel itself ends at the gateway, policies were not part of the report.
            if policies { String::new() } else { megabits("routed", load, subject) }
        }));
        row
    });
    let mut header = vec![String::new()];
    header.extend(["Turris", "APU4d4", "VM", "no firewall"].map(|name| format!("{name}*")));
    header.push("this machine".into());
    header.extend(through.iter().map(|subject| format!("by {subject}")));
    Table {
        header,
        rows: rows.into(),
        notes: vec![
            "Mbit/s. * published: the report's figures, other hardware.".into(),
            "This machine: forwarded and filtered without a tunnel. By …: through a tunnel that ends at the gateway."
                .into(),
        ],
    }
}

fn tell_limits(record: &Record) -> Table {
    let mut rows = as_published([["no tunnel", "9.40", "0.353", ""], ["kernel module", "3.10", "0.500", ""]]);
    rows.extend(record.scenario("pair/tcp-105-reverse").map(|row| {
        let ping = record.row("pair/ping", &row.subject);
        vec![
            row.subject.clone(),
            cell(row, Measure::Throughput, 1e-9, 2),
            ping.map_or_else(String::new, |ping| cell(ping, Measure::LatencyMean, 1.0, 3)),
            cell(row, Measure::MachineIdle, 100.0, 0),
        ]
    }));
    let verdicts = record.scenario("pair/tcp-105-reverse").filter_map(|row| {
        let verdict = row.verdict.as_ref()?;
        Some(format!("{}: {} ({}).", row.subject, verdict.says, verdict.because))
    });
    Table { header: titles(["", "Gbit/s", "ping ms", "id %"]), rows, notes: verdicts.collect() }
}

fn titles<const COLUMNS: usize>(titles: [&str; COLUMNS]) -> Vec<String> {
    titles.map(str::to_owned).into()
}

fn as_published<const ROWS: usize, const COLUMNS: usize>(figures: [[&str; COLUMNS]; ROWS]) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = figures.map(|row| row.map(str::to_owned).into()).into();
    for row in &mut rows {
        row[0].insert_str(0, PUBLISHED);
    }
    rows
}

fn median(row: &Row, measure: Measure) -> Option<f64> {
    Summary::of(row.values(measure)).map(|summary| summary.median)
}

fn cell(row: &Row, measure: Measure, scale: f64, decimals: usize) -> String {
    median(row, measure).map_or_else(String::new, |median| format!("{:.decimals$}", median * scale))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{share:+.0} %"))
}

impl fmt::Display for Table {
    /// Aligned columns, the first to the left and figures to the right; then the notes.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = |line: &Vec<String>| line.iter().map(|cell| printable(cell).into_owned()).collect();
        let printed: Vec<Vec<String>> = std::iter::once(&self.header).chain(&self.rows).map(cells).collect();
        let lines = || printed.iter();
        let width = |column: usize| lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.header.len()).map(|column| width(column).unwrap_or(0)).collect();
        for line in lines() {
            let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            });
            writeln!(out, "{}", cells.collect::<String>().trim_end())?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "{}", printable(note)))
    }
}
