//! Records as one HTML page: who was ahead, plots, every figure, how it was measured. The page holds all that it
//! needs; it fetches nothing and runs no script.
//!
//! The plots are drawn here because no library draws these. plotters has no titles for marks and writes
//! colours into every element; kuva cannot set the ticks of a logarithmic axis; charming needs a script. maud would save
//! a twelfth of the lines, for two procedural macros.
//!
//! [`svg`] is the base of the plots [`bars`], [`latency`], [`cost`] and [`scaling`]; [`marks`] gives a subject the
//! same look in all of them.

mod axis;
mod bars;
mod cost;
mod html;
mod latency;
mod lines;
mod marks;
mod scaling;
mod svg;

use html::{element, escape, list};
use marks::Marks;

use crate::figures::{
    Comparisons, about_brackets, cell, factor, main_measure, measures, number, ratio_to_baseline, summary,
};
use crate::measure::{Better, Measure};
use crate::record::{Record, Row};
use crate::scenario::references;
use crate::sentences;

const STYLE: &str = include_str!("style.css");

/// The page of `records`, one after the other, with the same look for a subject in all of them.
#[must_use]
pub fn page(records: &[Record]) -> String {
    let marks = Marks::of(records);
    let articles: String = records.iter().enumerate().map(|(i, record)| article(record, i, &marks)).collect();
    format!(
        "<!DOCTYPE html>\n\
         <html lang=\"en\">\n\
         <head>\n\
         <meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>WireGuard, side by side</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <style>\n{STYLE}</style>\n\
         </head>\n\
         <body>\n\
         <main>\n\
         <h1>WireGuard, side by side</h1>\n\
         {articles}</main>\n\
         </body>\n\
         </html>\n"
    )
}

/// One record, from what it says to how it was made. `i` makes its anchors unique on the page.
fn article(record: &Record, i: usize, marks: &Marks) -> String {
    let busy = sentences::busy(&record.machine).map(|care| format!("<p class=\"care\">{}</p>\n", escape(&care)));
    let sections: String = record
        .scenarios()
        .into_iter()
        .enumerate()
        .map(|(j, scenario)| scenario_section(record, scenario, &address(i, j), marks))
        .collect();
    [
        "<article>\n".into(),
        element("h2", &format!("{}, Linux {}", record.machine.processor, sentences::kernel(&record.machine))),
        format!("<p class=\"soft\">{}. {}.</p>\n", escape(&record.begun), escape(&sentences::method(&record.method))),
        busy.unwrap_or_default(),
        summary_section(record, i),
        scaling_section(record, marks),
        element("h3", "Scenarios"),
        reading(record),
        sections,
        method_section(record),
        subjects_section(record),
        raw_section(record),
        "</article>\n".into(),
    ]
    .concat()
}

/// The anchor of a scenario's section.
fn address(record: usize, scenario: usize) -> String {
    format!("r{}s{}", record + 1, scenario + 1)
}

/// Who was ahead, in words, and the main figure of every scenario.
fn summary_section(record: &Record, i: usize) -> String {
    let mut seen = Vec::new();
    let mut firsts = Vec::new();
    for scenario in record.scenarios() {
        let Some(measure) = main_measure(record, scenario).filter(|measure| !seen.contains(measure)) else { continue };
        seen.push(measure);
        firsts.extend(sentences::winner(record, scenario).map(|sentence| format!("{scenario}: {sentence}")));
    }
    let brackets = about_brackets(record).map(|brackets| format!("<p class=\"soft\">{}.</p>\n", escape(&brackets)));
    let versions = sentences::versions(record).map(|versions| format!("<p class=\"soft\">{}</p>\n", escape(&versions)));
    [
        element("h3", "Summary"),
        list(&firsts),
        list(&sentences::standings(record)),
        brackets.unwrap_or_default(),
        versions.unwrap_or_default(),
        glance(record, i),
    ]
    .concat()
}

/// A line per scenario, a column per subject.
fn glance(record: &Record, i: usize) -> String {
    let subjects: Vec<&str> = record
        .subjects
        .iter()
        .map(|subject| subject.name.as_str())
        .filter(|name| record.rows.iter().any(|row| row.subject == *name))
        .collect();
    let heads: String = subjects.iter().map(|name| format!("<th scope=\"col\">{}</th>", escape(name))).collect();
    let mut lines = String::new();
    for (j, scenario) in record.scenarios().into_iter().enumerate() {
        let Some(measure) = main_measure(record, scenario) else { continue };
        let leaders = sentences::leaders(record, scenario, measure);
        let cells: String =
            subjects.iter().map(|name| glance_cell(record, record.row(scenario, name), measure, &leaders)).collect();
        let description = measure.description();
        lines.push_str(&format!(
            "<tr><th scope=\"row\"><a href=\"#{}\">{}</a><small>{}, {}</small></th>{cells}</tr>\n",
            address(i, j),
            escape(scenario),
            description.name,
            description.unit
        ));
    }
    let caption = format!(
        "Medians, and how many times the figure of {}; in bold the best tunnel and those not clearly different from it",
        record.baseline
    );
    let table = table(&caption, &format!("<th scope=\"col\">Scenario</th>{heads}"), &lines);
    format!("<p class=\"soft\">{}:</p>\n{table}", escape(&caption))
}

fn glance_cell(record: &Record, row: Option<&Row>, measure: Measure, leaders: &[&str]) -> String {
    let Some((row, summary)) = row.and_then(|row| Some((row, summary(row, measure)?))) else {
        return "<td>-</td>".into();
    };
    let class = if leaders.contains(&row.subject.as_str()) { " class=\"best\"" } else { "" };
    let ratio =
        ratio_to_baseline(record, row, measure).map(|ratio| format!("<small>{}×</small>", factor(ratio.median)));
    format!("<td{class}>{}{}</td>", number(summary.median, measure), ratio.unwrap_or_default())
}

/// A table that scrolls in its own box where it is wider than the screen. `caption` is for screen readers.
fn table(caption: &str, heads: &str, lines: &str) -> String {
    let caption = escape(caption);
    format!(
        "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\">\n<table>\n\
         <thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table>\n</div>\n"
    )
}

/// Over streams and over peers, where the record has such scenarios.
fn scaling_section(record: &Record, marks: &Marks) -> String {
    let mut out = String::new();
    for series in scaling::series(record) {
        let figures: String = series
            .measures(record)
            .map(|measure| {
                let plot = series.draw(record, measure, marks);
                figure(
                    measure.description().name,
                    &format!("{}. Medians and ranges of the rounds.", better(measure)),
                    &plot,
                )
            })
            .collect();
        if !figures.is_empty() {
            out.push_str(&element("h4", &format!("{}-…", series.name)));
            out.push_str(&format!("<div class=\"plots\">\n{figures}</div>\n"));
        }
    }
    if out.is_empty() { out } else { format!("{}{out}", element("h3", "Scaling")) }
}

/// A plot below its caption.
fn figure(title: &str, about: &str, plot: &str) -> String {
    let (title, about) = (escape(&sentence_case(title)), escape(about));
    format!("<figure>\n<figcaption><strong>{title}</strong><span>{about}</span></figcaption>\n{plot}</figure>\n")
}

fn sentence_case(title: &str) -> String {
    let mut characters = title.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

fn better(measure: Measure) -> &'static str {
    match measure.description().better {
        Better::More => "More is better",
        Better::Less => "Less is better",
        Better::Neither => "Explains others",
    }
}

/// How to read the plots, once for all scenarios.
fn reading(record: &Record) -> String {
    let text = format!(
        "Bars are medians of the rounds, dots the single rounds; × compares to {}, round by round. In tables, ± is half of \
         the spread.",
        record.baseline
    );
    format!("<p class=\"soft\">{}</p>\n", escape(&text))
}

/// Everything about one scenario.
fn scenario_section(record: &Record, scenario: &str, id: &str, marks: &Marks) -> String {
    let mut out = format!("<section id=\"{id}\">\n{}", element("h4", scenario));
    if let Some(sentence) = sentences::winner(record, scenario) {
        out.push_str(&element("p", &sentence));
    }
    let remarks = list(&sentences::remarks(record, scenario));
    match main_measure(record, scenario) {
        Some(measure) => {
            let plots = plots(record, scenario, measure, marks);
            out.push_str(&format!("<div class=\"plots\">\n{plots}{remarks}</div>\n"));
            out.push_str(&all_figures(record, scenario, measure));
        }
        None => out.push_str(&remarks),
    }
    out.push_str("</section>\n");
    out
}

fn plots(record: &Record, scenario: &str, measure: Measure, marks: &Marks) -> String {
    let name = measure.description().name;
    let mut figures = figure(name, &format!("{}.", better(measure)), &bars::draw(record, scenario, measure, marks));
    for (label, other) in references(scenario) {
        if let Some(plot) = bars::draw_ratios(record, scenario, &other, measure, marks) {
            figures.push_str(&figure(&format!("{name} relative to {label}"), "1 is the same.", &plot));
        }
    }
    if let Some(plot) = latency::draw(record, scenario, marks) {
        figures.push_str(&figure("round trips", "Lower is better; the right shows the slowest.", &plot));
    }
    if let Some(plot) = cost::draw(record, scenario, marks) {
        figures.push_str(&figure("cost against speed", "Down and to the right is better.", &plot));
    }
    figures
}

/// All that was measured, in a closed `<details>`.
fn all_figures(record: &Record, scenario: &str, main: Measure) -> String {
    let measures = measures(record, scenario);
    let head = |measure: &Measure| {
        let description = measure.description();
        format!("<th scope=\"col\">{}<small>{}</small></th>", description.name, description.unit)
    };
    let heads: String = measures.iter().map(head).collect();
    let comparisons = Comparisons::of(record, scenario, main);
    let name = main.description().name;
    let ratio = |label: &str| format!("<th scope=\"col\">{name}<small>to {}</small></th>", escape(label));
    let ratios: String = comparisons.labels().map(ratio).collect();
    let heads = format!("<th scope=\"col\">Subject</th>{ratios}{heads}");
    let lines: String = record.scenario(scenario).map(|row| figures_line(row, &measures, &comparisons)).collect();
    let table = table(&format!("All figures of {scenario}"), &heads, &lines);
    format!("<details>\n<summary>All figures</summary>\n{table}</details>\n")
}

fn figures_line(row: &Row, measures: &[Measure], comparisons: &Comparisons<'_>) -> String {
    let ratios: String = comparisons.cells(row).iter().map(|ratio| format!("<td>{ratio}</td>")).collect();
    let cell = |measure: &Measure| format!("<td>{}</td>", cell(row, *measure).unwrap_or_else(|| "-".into()));
    let cells: String = measures.iter().map(cell).collect();
    format!("<tr><th scope=\"row\">{}</th>{ratios}{cells}</tr>\n", escape(&row.subject))
}

/// Where and how it was measured.
fn method_section(record: &Record) -> String {
    let items = [
        ("Machine", sentences::machine(&record.machine)),
        ("Busy before", format!("{:.0} % of all processors", 100.0 * record.machine.busy)),
        ("Method", sentences::method(&record.method)),
        ("Baseline", record.baseline.clone()),
        ("Begun", record.begun.clone()),
        ("Lab", record.lab.clone()),
        ("Arguments", record.arguments.join(" ")),
    ];
    let items: String =
        items.iter().map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(text))).collect();
    format!("{}<dl>\n{items}</dl>\n", element("h3", "Method and machine"))
}

fn subjects_section(record: &Record) -> String {
    let mut items = String::new();
    for subject in &record.subjects {
        let version = subject.version.as_deref().unwrap_or("version unknown");
        let about = match &subject.missing {
            Some(why) => format!("missing: {}", escape(why)),
            None if subject.command.is_empty() => escape(version),
            None => format!("{}<br><code>{}</code>", escape(version), escape(&subject.command.join(" "))),
        };
        items.push_str(&format!("<dt>{}</dt><dd>{about}</dd>\n", escape(&subject.name)));
    }
    format!("{}<dl>\n{items}</dl>\n", element("h3", "Subjects"))
}

/// The record itself, without the single round trips: they are thousands, and the plots show them.
fn raw_section(record: &Record) -> String {
    let mut record = record.clone();
    for sample in record.rows.iter_mut().flat_map(|row| &mut row.samples) {
        sample.round_trips_ms.clear();
    }
    let json = serde_json::to_string_pretty(&record).expect("a record holds no key but strings and measures");
    format!(
        "{}<details>\n<summary>The record as JSON, without the single round trips</summary>\n<pre>{}</pre>\n</details>\n",
        element("h3", "Raw data"),
        escape(&json)
    )
}
