//! A record as a table for the terminal: a block per scenario that fits 120 columns.

use std::fmt;

use crate::figures::{Comparisons, about_brackets, cell, main_measure, telling};
use crate::measure::{Description, Measure};
use crate::record::{Record, Row};
use crate::sentences::{self, cut};
use linerate_control::printable::printable;

pub use crate::sentences::duration;

/// Columns of the terminal.
const WIDTH: usize = 120;

/// Between two columns.
const GAP: usize = 2;

/// Shows a record.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a>(pub &'a Record);

impl fmt::Display for Table<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(record) = self;
        for scenario in record.scenarios() {
            write_scenario(out, record, scenario)?;
        }
        for sentence in sentences::standings(record).into_iter().chain(sentences::missing(record)) {
            write_sentence(out, "", &sentence)?;
        }
        writeln!(out)?;
        write_foot(out, record)
    }
}

/// A line per subject with the most useful measures that fit, then the notes.
fn write_scenario(out: &mut fmt::Formatter<'_>, record: &Record, scenario: &str) -> fmt::Result {
    writeln!(out, "{}", printable(scenario))?;
    let rows: Vec<&Row> = record.scenario(scenario).filter(|row| !row.samples.is_empty()).collect();
    for line in lines(record, scenario, &rows) {
        writeln!(out, "{}", line.trim_end())?;
    }
    for sentence in sentences::remarks(record, scenario) {
        write_sentence(out, "  ", &sentence)?;
    }
    writeln!(out)
}

/// Two lines of heads and one per row, with as many measures as fit.
fn lines(record: &Record, scenario: &str, rows: &[&Row]) -> Vec<String> {
    let names = column(["".into(), "".into()], rows, |row| cut(&row.subject));
    let ratios = main_measure(record, scenario).map_or_else(Vec::new, |main| ratios(record, scenario, rows, main));
    let mut room = WIDTH - widest(&names) - ratios.iter().map(|cells| GAP + widest(cells)).sum::<usize>();
    let mut columns = Vec::new();
    for measure in telling(record, scenario) {
        let cells = figures(rows, measure);
        if GAP + widest(&cells) <= room {
            room -= GAP + widest(&cells);
            columns.push(cells);
        }
    }
    // The ratios stand beside the measure that they are of, which is the first.
    columns.splice(1.min(columns.len())..1.min(columns.len()), ratios);
    let width = widest(&names);
    let mut lines: Vec<String> = names.iter().map(|name| format!("{name:<width$}")).collect();
    for cells in columns {
        let width = widest(&cells) + GAP;
        for (line, cell) in lines.iter_mut().zip(cells) {
            line.push_str(&format!("{cell:>width$}"));
        }
    }
    lines
}

fn column(heads: [String; 2], rows: &[&Row], cell: impl Fn(&Row) -> String) -> Vec<String> {
    heads.into_iter().chain(rows.iter().map(|row| cell(row))).collect()
}

fn figures(rows: &[&Row], measure: Measure) -> Vec<String> {
    let Description { name, unit, .. } = measure.description();
    column([name.into(), unit.into()], rows, |row| cell(row, measure).unwrap_or_else(|| "-".into()))
}

fn ratios(record: &Record, scenario: &str, rows: &[&Row], main: Measure) -> Vec<Vec<String>> {
    let comparisons = Comparisons::of(record, scenario, main);
    let columns = comparisons.labels().enumerate();
    columns
        .map(|(i, label)| column(["to".into(), cut(label)], rows, |row| comparisons.cells(row).swap_remove(i)))
        .collect()
}

fn widest(cells: &[String]) -> usize {
    cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// Where and how it was measured.
fn write_foot(out: &mut fmt::Formatter<'_>, record: &Record) -> fmt::Result {
    write_sentence(out, "", &format!("{}; ± is half of the range.", sentences::method(&record.method)))?;
    if let Some(sentence) = about_brackets(record) {
        write_sentence(out, "", &format!("{sentence}."))?;
    }
    if let Some(sentence) = sentences::versions(record) {
        write_sentence(out, "", &sentence)?;
    }
    write_sentence(out, "", &format!("{}.", sentences::machine(&record.machine)))?;
    sentences::busy(&record.machine).map_or(Ok(()), |sentence| write_sentence(out, "", &sentence))
}

/// A sentence in lines of at most [`WIDTH`] columns, the later ones further in.
fn write_sentence(out: &mut fmt::Formatter<'_>, indent: &str, sentence: &str) -> fmt::Result {
    let mut line = indent.to_owned();
    for word in sentence.split_whitespace().map(printable) {
        let is_begun = line.trim_start() != "";
        if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line = format!("{indent}  {word}");
        } else {
            line.push_str(if is_begun { " " } else { "" });
            line.push_str(&word);
        }
    }
    writeln!(out, "{line}")
}
