//! A record as Markdown for a README: who was ahead, one short table per scenario, what one has to know.

use crate::figures::{Comparisons, about_brackets, cell, main_measure, telling};
use crate::measure::Measure;
use crate::record::{Record, Row};
use crate::sentences;

/// Measures of a table besides the ratios: more do not fit a README's page.
const COLUMNS: usize = 6;

/// Writes `record` as Markdown without a heading of the first or second level, so that it fits below one.
#[must_use]
pub fn write(record: &Record) -> String {
    let mut out = String::new();
    let standings = sentences::standings(record);
    list(&mut out, &standings);
    for scenario in record.scenarios() {
        write_scenario(&mut out, record, scenario);
    }
    out.push_str("### How it was measured\n\n");
    list(&mut out, &method(record));
    out.push_str("### Subjects\n\n");
    write_subjects(&mut out, record);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn write_scenario(out: &mut String, record: &Record, scenario: &str) {
    out.push_str(&format!("### {}\n\n", escape(scenario)));
    if let Some(sentence) = sentences::winner(record, scenario) {
        out.push_str(&format!("{}\n\n", escape(&sentence)));
    }
    if let Some(main) = main_measure(record, scenario) {
        write_table(out, record, scenario, main);
    }
    list(out, &sentences::remarks(record, scenario));
}

fn write_table(out: &mut String, record: &Record, scenario: &str, main: Measure) {
    let measures: Vec<Measure> = telling(record, scenario).into_iter().take(COLUMNS).collect();
    let mut heads: Vec<String> = vec!["".into()];
    heads.extend(measures.iter().map(|measure| {
        let description = measure.description();
        format!("{}, {}", description.name, description.unit)
    }));
    let comparisons = Comparisons::of(record, scenario, main);
    heads.splice(2..2, comparisons.labels().map(|label| format!("to {}", escape(label))));
    line(out, &heads);
    let rules: Vec<String> =
        heads.iter().enumerate().map(|(i, _)| if i == 0 { "---" } else { "---:" }.into()).collect();
    line(out, &rules);
    for row in record.scenario(scenario).filter(|row| !row.samples.is_empty()) {
        line(out, &cells(row, &measures, &comparisons));
    }
    out.push('\n');
}

fn cells(row: &Row, measures: &[Measure], comparisons: &Comparisons<'_>) -> Vec<String> {
    let mut cells = vec![escape(&row.subject)];
    cells.extend(measures.iter().map(|measure| cell(row, *measure).unwrap_or_default()));
    cells.splice(2..2, comparisons.cells(row).iter().map(|cell| escape(cell)));
    cells
}

fn line(out: &mut String, cells: &[String]) {
    let cell = |cell: &String| if cell.is_empty() { " |".into() } else { format!(" {cell} |") };
    out.push_str(&format!("|{}\n", cells.iter().map(cell).collect::<String>()));
}

/// Where and how, and what the brackets mean.
fn method(record: &Record) -> Vec<String> {
    let mut sentences = vec![
        format!("{}; ± is half of the range.", sentences::method(&record.method)),
        format!("{}; {}.", sentences::machine(&record.machine), record.begun),
    ];
    sentences.extend(about_brackets(record).map(|sentence| format!("{sentence}.")));
    sentences.extend(sentences::busy(&record.machine));
    sentences
}

fn write_subjects(out: &mut String, record: &Record) {
    for subject in record.subjects.iter().filter(|subject| subject.missing.is_none()) {
        let version = subject.version.as_ref().map(|version| format!(": {}", escape(version))).unwrap_or_default();
        let command = subject.command.join(" ");
        let command = if command.is_empty() { String::new() } else { format!(" ({})", code(&command)) };
        out.push_str(&format!("- {}{version}{command}\n", escape(&subject.name)));
    }
    let missing: Vec<String> = sentences::missing(record).collect();
    list(out, &missing);
}

fn list(out: &mut String, sentences: &[String]) {
    for sentence in sentences {
        out.push_str(&format!("- {}\n", escape(sentence)));
    }
    if !sentences.is_empty() {
        out.push('\n');
    }
}

/// Text that Markdown would read as its own signs, or as HTML, is shown as it is.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '<' | '>' | '&' | '~' | '#' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A command as code, inside a fence longer than any of its own.
fn code(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    if longest == 0 { format!("{fence}{text}{fence}") } else { format!("{fence} {text} {fence}") }
}
