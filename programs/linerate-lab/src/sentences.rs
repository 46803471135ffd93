//! What a record says, in sentences: who was ahead of whom, by how much, at what cost, and what one has to know.
//! The same sentences stand in the terminal, in Markdown and on the page.

use std::cmp::Ordering;

use linerate_control::printable::printable;

use crate::figures::{factor, main_measure, quantity, ratio, ratio_to_baseline, summary};
use crate::measure::{Better, Measure};
use crate::record::{Machine, Method, Record, Row, SubjectRecord};
use crate::stats::{Interval, Ratio};

/// The bare wire: it shows what the machine can do, and is not ranked.
pub(crate) const NO_TUNNEL: &str = "no tunnel";

/// Above this load by other processes, figures are doubtful.
const BUSY: f64 = 0.1;

/// Who was best in a scenario, by how much and at what cost; nothing where no tunnel was measured.
pub(crate) fn winner(record: &Record, scenario: &str) -> Option<String> {
    let measure = main_measure(record, scenario)?;
    let ranking = ranking(record, scenario, measure);
    let ((first, figure), rest) = ranking.split_first()?;
    let figure = quantity(*figure, measure);
    let Some(((second, next), _)) = rest.split_first() else {
        return Some(format!("{}: {figure}, the only tunnel measured.", first.subject));
    };
    if is_tie(first, second, measure) {
        let next = quantity(*next, measure);
        return Some(format!(
            "No clear difference between {} and {}: {figure} and {next}{}.",
            first.subject,
            second.subject,
            cost(first, second)
        ));
    }
    let baseline = rest.iter().map(|(row, _)| *row).find(|row| row.subject == record.baseline);
    let other = baseline.unwrap_or(second);
    let times = ratio(first, other, measure).map(|ratio| format!(", {}", times(&ratio, &other.subject)));
    let doubt = if ratio(first, second, measure).is_some_and(|lead| lead.can_tell()) {
        ""
    } else {
        "; too few rounds to be sure"
    };
    Some(format!(
        "{} {}: {figure}{}{}{doubt}.",
        first.subject,
        leads(measure),
        times.unwrap_or_default(),
        cost(first, other)
    ))
}

/// Whether there are rounds enough, and they show no clear difference.
fn is_tie(first: &Row, other: &Row, measure: Measure) -> bool {
    ratio(first, other, measure).is_some_and(|ratio| ratio.can_tell() && ratio.clear().is_none())
}

/// The tunnel with the best median, and all that tie with it.
pub(crate) fn leaders<'a>(record: &'a Record, scenario: &'a str, measure: Measure) -> Vec<&'a str> {
    let ranking = ranking(record, scenario, measure);
    let leads = |row: &Row| row.subject == ranking[0].0.subject || is_tie(ranking[0].0, row, measure);
    ranking.iter().filter(|(row, _)| leads(row)).map(|(row, _)| row.subject.as_str()).collect()
}

/// The tunnels that were measured in a scenario with their medians as shown, best first.
pub(crate) fn ranking<'a>(record: &'a Record, scenario: &'a str, measure: Measure) -> Vec<(&'a Row, f64)> {
    let tunnels = record.scenario(scenario).filter(|row| row.subject != NO_TUNNEL);
    let mut ranking: Vec<_> = tunnels.filter_map(|row| Some((row, summary(row, measure)?.median))).collect();
    ranking.sort_by(|(_, a), (_, b)| match measure.description().better {
        Better::Less => a.total_cmp(b),
        Better::More | Better::Neither => b.total_cmp(a),
    });
    ranking
}

fn leads(measure: Measure) -> &'static str {
    match measure {
        Measure::Throughput => "carries most",
        Measure::PacketRate => "delivers most datagrams",
        Measure::LatencyMean => "answers soonest",
        Measure::SetUpTime => "has its peers soonest",
        Measure::IdleSwitchRate => "wakes up least at rest",
        Measure::StartTime => "starts soonest",
        _ => "leads",
    }
}

/// `2.31 times that of wireguard-go (2.20 to 2.45)`.
fn times(ratio: &Ratio, other: &str) -> String {
    let median = factor(ratio.median);
    match ratio.interval {
        Some(Interval { low, high, .. }) => {
            format!("{median} times that of {other} ({} to {})", factor(low), factor(high))
        }
        None => format!("{median} times that of {other}"),
    }
}

/// What both spend, where both are known.
fn cost(own: &Row, other: &Row) -> String {
    let spent = |row| Some(summary(row, Measure::CpuPerGb)?.median);
    match (spent(own), spent(other)) {
        (Some(own), Some(theirs)) => {
            format!(", at {} of CPU against {}", quantity(own, Measure::CpuPerGb), quantity(theirs, Measure::CpuPerGb))
        }
        _ => String::new(),
    }
}

/// How every tunnel did against the baseline over all scenarios, one sentence each.
pub(crate) fn standings(record: &Record) -> Vec<String> {
    let others = record.subjects.iter().filter(|subject| subject.name != record.baseline && subject.name != NO_TUNNEL);
    others.filter_map(|subject| standing(record, &subject.name)).collect()
}

fn standing(record: &Record, subject: &str) -> Option<String> {
    let (mut ahead, mut level, mut behind, mut open) = (0, 0, 0, 0);
    for scenario in record.scenarios() {
        let Some(measure) = main_measure(record, scenario) else { continue };
        let row = record.row(scenario, subject);
        let Some(ratio) = row.and_then(|row| ratio_to_baseline(record, row, measure)) else { continue };
        let less_is_better = measure.description().better == Better::Less;
        match ratio.clear() {
            None if !ratio.can_tell() => open += 1,
            None => level += 1,
            Some(side) if (side == Ordering::Less) == less_is_better => ahead += 1,
            Some(_) => behind += 1,
        }
    }
    let all = ahead + level + behind + open;
    let mut places = Vec::new();
    for (count, place) in
        [(ahead, "ahead"), (behind, "behind"), (level, "not clearly different"), (open, "too few rounds to tell")]
    {
        if count > 0 {
            places.push(format!("{place} in {count}"));
        }
    }
    let (places, plural, base) = (places.join(", "), if all == 1 { "" } else { "s" }, &record.baseline);
    (all > 0).then(|| format!("{subject} against {base} in {all} scenario{plural}: {places}."))
}

/// What a reader of a scenario's rows has to know: failures, notes and bottlenecks, as sentences.
pub(crate) fn remarks(record: &Record, scenario: &str) -> Vec<String> {
    let rows = || record.scenario(scenario);
    let mut remarks: Vec<String> = rows().filter_map(failure).collect();
    remarks.extend(rows().filter_map(|row| {
        let bottleneck = row.bottleneck.as_ref()?;
        Some(format!("{}: {} ({}).", row.subject, bottleneck.says, bottleneck.because))
    }));
    let mut notes: Vec<&String> = Vec::new();
    for note in rows().flat_map(|row| &row.notes) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    for note in notes {
        let noted: Vec<&str> = rows().filter(|row| row.notes.contains(note)).map(|row| row.subject.as_str()).collect();
        let whose = if noted.len() == rows().count() { String::new() } else { noted.join(", ") + ": " };
        remarks.push(format!("Note: {whose}{note}."));
    }
    remarks
}

fn failure(row: &Row) -> Option<String> {
    let failure = row.failure.as_ref()?;
    let failure = failure.trim_end_matches('.');
    Some(match row.samples.len() {
        0 => format!("{} was not measured: {failure}.", row.subject),
        1 => format!("{} was measured in 1 round only: {failure}.", row.subject),
        rounds => format!("{} was measured in {rounds} rounds only: {failure}.", row.subject),
    })
}

/// Those that were not here, and how to get them.
pub(crate) fn missing(record: &Record) -> impl Iterator<Item = String> + '_ {
    let missing = |name: &str, why: &String| format!("{name} is missing: {}.", why.trim_end_matches('.'));
    record.subjects.iter().filter_map(move |subject| Some(missing(&subject.name, subject.missing.as_ref()?)))
}

/// The version of each subject that was measured: a ratio to one of an unknown version would mislead.
pub(crate) fn versions(record: &Record) -> Option<String> {
    let measured = record.subjects.iter().filter(|subject| subject.missing.is_none());
    let known = measured.filter(|subject| !subject.command.is_empty() || subject.version.is_some());
    let version = |subject: &SubjectRecord| subject.version.clone().unwrap_or_else(|| "version unknown".into());
    let versions: Vec<String> =
        known.map(|subject| format!("{}: {}", subject.name, version(subject).trim_end_matches('.'))).collect();
    (!versions.is_empty()).then(|| format!("Versions: {}.", versions.join("; ")))
}

/// The kernel's version: `6.12.43` of the release `6.12.43+deb12-amd64`.
pub(crate) fn kernel(machine: &Machine) -> &str {
    let release = &machine.kernel;
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    if end > 0 { &release[..end] } else { release }
}

/// The machine: `2 processors (AMD EPYC 9B45), 8.2 GB of memory, Linux 6.12.0, governor performance, no energy counter`.
pub(crate) fn machine(machine: &Machine) -> String {
    let Machine { processor, processors, memory, governor, powercap, .. } = machine;
    let governor = governor.as_ref().map_or("no frequency governor".into(), |governor| format!("governor {governor}"));
    let energy = powercap.as_ref().map_or("no energy counter".into(), |zone| format!("energy by {zone}"));
    let plural = if *processors == 1 { "" } else { "s" };
    format!(
        "{processors} processor{plural} ({processor}), {:.1} GB of memory, Linux {}, {governor}, {energy}",
        *memory as f64 / 1e9,
        kernel(machine)
    )
}

/// How it was measured.
pub(crate) fn method(method: &Method) -> String {
    let Method { rounds, seconds, warm_up, probes, mtu, seed, load, congestion } = method;
    let rounds =
        if *rounds == 1 { "One round".into() } else { format!("Medians of {rounds} rounds, subjects in turn") };
    let congestion = congestion.as_ref().map_or(String::new(), |name| format!(", TCP with {name}"));
    format!(
        "{rounds}; {seconds} s of load after {warm_up} s of warm-up by {load}{congestion}; {probes} probes at rest; \
         tunnel MTU {mtu}; seed {seed}"
    )
}

/// What a busy machine means.
pub(crate) fn busy(machine: &Machine) -> Option<String> {
    (machine.busy > BUSY).then(|| {
        format!(
            "This machine was {:.0} % busy with something else: treat the figures with caution.",
            100.0 * machine.busy
        )
    })
}

/// A time that need not be exact: `40 s`, `12 min`, `1 h 5 min`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round().max(0.0) as u64;
    match (minutes / 60, minutes % 60) {
        _ if seconds < 90.0 => format!("{:.0} s", seconds.max(0.0)),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// The most columns of a subject's name in the terminal.
const NAME: usize = 28;

/// A subject's name for a column of the terminal.
pub(crate) fn cut(name: &str) -> String {
    let name = printable(name);
    if name.chars().count() <= NAME { name.into_owned() } else { name.chars().take(NAME - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_said_as_people_say_it() {
        let said = [-1.0, 0.4, 89.4, 90.0, 3599.0, 3900.0, 36_000.0].map(duration);
        assert_eq!(said, ["0 s", "0 s", "89 s", "2 min", "1 h 0 min", "1 h 5 min", "10 h 0 min"]);
    }
}
