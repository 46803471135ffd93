//! Laws of what is made from a record: the page, the Markdown, the table, the comparison, and the record's schema.

#[path = "data/sample.rs"]
mod sample;

use std::fs;
use std::path::Path;

use linerate_lab::compare::{Finding, compare};
use linerate_lab::markdown;
use linerate_lab::measure::Measure;
use linerate_lab::page::page;
use linerate_lab::record::Record;
use linerate_lab::table::Table;

use sample::{AWKWARD, record};

/// Where `tests/browser/page.sh` looks for a page and its record when it is given none.
const PAGE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/lab-page.html");
const RECORD: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/lab-record.json");

#[test]
fn a_page_names_every_subject_and_every_scenario() {
    let record = record();
    let page = page(std::slice::from_ref(&record));
    fs::write(PAGE, &page).unwrap();
    fs::write(RECORD, serde_json::to_string(&record).unwrap()).unwrap();
    for name in record.scenarios().into_iter().chain(record.subjects.iter().map(|subject| subject.name.as_str())) {
        assert!(page.contains(&escaped(name)), "{name}");
    }
    for row in &record.rows {
        for sentence in
            row.failure.iter().chain(&row.notes).chain(row.bottleneck.iter().map(|bottleneck| &bottleneck.says))
        {
            assert!(page.contains(&escaped(sentence)), "{sentence}");
        }
    }
    assert!(page.contains("missing: not on PATH: cargo install gotatun-cli"));
    assert!(page.contains("13 % busy with something else"));
}

#[test]
fn the_summary_says_who_was_ahead_by_how_much_and_at_what_cost() {
    let text = markdown::write(&record());
    assert!(
        text.contains(
            "linerate carries most: 8.56 Gbit/s, 2.59 times that of wireguard-go (2.26 to 2.68), at 1.32 s/GB"
        )
    );
    assert!(
        text.contains("kernel WireGuard answers soonest: 0.066 ms, 0.41 times that of wireguard-go (0.39 to 0.45).")
    );
    assert!(text.contains("No clear difference between boringtun and wireguard-go"));
    assert!(text.contains("- linerate against wireguard-go in 11 scenarios: ahead in 10, not clearly different in 1."));
    for leads in ["carries", "delivers", "answers"] {
        assert!(!text.contains(&format!("no tunnel {leads}")), "the bare wire competes with nobody");
    }
}

#[test]
fn a_subject_that_is_slowed_down_falls_behind() {
    let mut record = record();
    for row in record.rows.iter_mut().filter(|row| row.subject == "linerate" && row.scenario == "pair/tcp-1") {
        for sample in &mut row.samples {
            *sample.values.get_mut(&Measure::Throughput).unwrap() *= 0.3;
        }
    }
    let text = markdown::write(&record);
    assert!(text.contains("ahead in 9, behind in 1, not clearly different in 1."));
    assert!(
        text.contains("No clear difference between kernel WireGuard and wireguard-go: 3.51 Gbit/s and 3.40 Gbit/s")
    );
}

#[test]
fn what_comes_through_a_gateway_is_compared_with_what_does_not_and_ipv6_with_ipv4() {
    let mut record = record();
    for (scenario, share) in [("routed-nat/tcp-1", 0.5), ("routed-nat/tcp-1-ipv6", 0.25)] {
        let mut rows: Vec<_> = record.scenario("pair/tcp-1").cloned().collect();
        for row in &mut rows {
            row.scenario = scenario.into();
            for sample in &mut row.samples {
                *sample.values.get_mut(&Measure::Throughput).unwrap() *= share;
            }
        }
        record.rows.extend(rows);
    }
    let text = markdown::write(&record);
    let (_, routed) = text.split_once("### routed-nat/tcp-1\n").unwrap();
    let (over_ipv4, over_ipv6) = routed.split_once("### routed-nat/tcp-1-ipv6\n").unwrap();
    let heads = "| | throughput, Gbit/s | to wireguard-go | to unrouted |";
    assert!(over_ipv4.contains(heads) && over_ipv4.contains("| 0.50x \\[0.50, 0.50\\] |"), "{over_ipv4}");
    // The sample has no `pair/tcp-1-ipv6`, so there is nothing to compare with.
    assert!(over_ipv6.contains("| to wireguard-go | to IPv4 |") && !over_ipv6.contains("unrouted"), "{over_ipv6}");
    let table = Table(&record).to_string();
    assert!(table.contains("unrouted") && table.lines().all(|line| line.chars().count() <= 120), "{table}");
    let page = page(&[record]);
    assert!(page.contains("<small>to unrouted</small>"));
    assert_eq!(page.matches("<strong>Throughput relative to unrouted</strong>").count(), 1);
    assert_eq!(page.matches("<strong>Throughput relative to IPv4</strong>").count(), 1);
}

#[test]
fn two_rounds_name_a_winner_with_doubt() {
    let mut record = record();
    record.rows.iter_mut().for_each(|row| row.samples.truncate(2));
    let text = markdown::write(&record);
    assert!(text.contains("linerate carries most: ") && text.contains("; too few rounds to be sure."));
    assert!(text.contains("linerate against wireguard-go in 11 scenarios: too few rounds to tell in 11."));
}

#[test]
fn all_that_tie_with_the_best_tunnel_are_in_bold() {
    let mut record = record();
    let bold = |record: &Record| {
        let page = page(std::slice::from_ref(record));
        page.split("<tr>")
            .filter(|line| line.contains(">pair/tcp-1</a>"))
            .map(|line| line.matches("\"best\"").count())
            .sum::<usize>()
    };
    assert_eq!(bold(&record), 1);
    let best = record.row("pair/tcp-1", "linerate").unwrap().samples.clone();
    record.rows.iter_mut().find(|row| row.scenario == "pair/tcp-1" && row.subject == "boringtun").unwrap().samples =
        best;
    assert_eq!(bold(&record), 2);
}

#[test]
fn a_page_holds_all_that_it_needs() {
    let page = page(&[record()]);
    for fetched in ["http:", "https:", "//", "src=", "@import", "url(", "<script"] {
        assert!(!page.contains(fetched), "{fetched}");
    }
}

#[test]
fn what_comes_from_a_record_stays_text() {
    let hostile = "</pre></style><script>alert(1)</script>\"'&";
    let mut record = record();
    for subject in record.subjects.iter_mut().filter(|subject| subject.name == AWKWARD) {
        (subject.name, subject.version, subject.command) = (hostile.into(), Some(hostile.into()), vec![hostile.into()]);
    }
    for row in &mut record.rows {
        row.failure = Some(hostile.into());
        row.notes.push(hostile.into());
        row.scenario.push_str(hostile);
        if row.subject == AWKWARD {
            row.subject = hostile.into();
        }
    }
    record.machine.processor = hostile.into();
    record.machine.governor = Some(hostile.into());
    record.arguments.push(hostile.into());
    record.baseline = hostile.into();
    record.method.load = hostile.into();
    let page = page(&[record]);
    assert!(!page.contains("<script") && !page.contains("</script"));
    assert_eq!(page.matches("</style>").count(), 1);
    assert_eq!(page.matches("<pre>").count(), page.matches("</pre>").count());
    assert_eq!(page.matches('"').count() % 2, 0);
}

#[test]
fn everything_that_is_drawn_is_inside_its_drawing() {
    for (svg, width, height) in drawings(&page(&[record()])) {
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        for (attribute, most) in [
            ("x", width),
            ("y", height),
            ("x1", width),
            ("x2", width),
            ("y1", height),
            ("y2", height),
            ("cx", width),
            ("cy", height),
            ("width", width),
            ("height", height),
        ] {
            for value in numbers(&svg, attribute) {
                assert!((0.0..=most).contains(&value), "{attribute}={value} of {most}");
            }
        }
        for point in attributes(&svg, "points").flat_map(|points| points.split(' ')) {
            let (x, y) = point.split_once(',').expect("a pair");
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((0.0..=width).contains(&x) && (0.0..=height).contains(&y), "{point}");
        }
    }
}

#[test]
fn values_that_are_no_numbers_are_not_drawn() {
    let mut record = record();
    let wrong = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0];
    for (row, wrong) in record.rows.iter_mut().zip(wrong.into_iter().cycle()) {
        for sample in row.samples.iter_mut().take(3) {
            sample.values.values_mut().for_each(|value| *value = wrong);
            sample.round_trips_ms.fill(wrong);
        }
    }
    let page = page(std::slice::from_ref(&record));
    assert!(drawings(&page).iter().all(|(svg, ..)| !svg.contains("NaN") && !svg.contains("inf")));
    for (svg, width, _) in drawings(&page) {
        assert!(numbers(&svg, "x1").chain(numbers(&svg, "x2")).all(|x| (0.0..=width).contains(&x)), "{svg}");
        assert!(numbers(&svg, "width").all(|x| (0.0..=width).contains(&x)), "{svg}");
    }
    for text in [markdown::write(&record), Table(&record).to_string()] {
        assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
    }
}

#[test]
fn a_record_without_rows_is_still_a_page_a_table_and_markdown() {
    let mut record = record();
    record.rows.clear();
    assert!(page(std::slice::from_ref(&record)).contains("gotatun"));
    assert!(markdown::write(&record).contains("gotatun"));
    assert!(Table(&record).to_string().contains("gotatun is missing: not on PATH: cargo install gotatun-cli."));
}

#[test]
fn a_subject_looks_the_same_in_every_record_of_a_page() {
    let (first, mut second) = (record(), record());
    second.subjects.reverse();
    second.rows.reverse();
    let looks = |page: &str| -> Vec<String> {
        let markers = page.split("<path class=\"").skip(1).filter_map(|rest| rest.split_once("</path>"));
        let ours = markers.filter(|(marker, _)| marker.contains("<title>linerate</title>"));
        let mut classes: Vec<String> = ours.filter_map(|(marker, _)| Some(marker.split_once('"')?.0.into())).collect();
        classes.dedup();
        classes
    };
    assert_eq!(looks(&page(&[first, second])), ["c0"]);
}

#[test]
fn the_table_is_aligned_and_fits_120_columns() {
    let text = Table(&record()).to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 120 && !line.ends_with(' ')), "{text}");
    for block in text.split("\n\n").filter(|block| block.starts_with("pair/")) {
        let lines: Vec<&str> = block.lines().collect();
        let end = lines[1].trim_end().chars().count().max(lines[2].chars().count());
        let rows = lines[3..].iter().filter(|line| !line.starts_with("  "));
        assert!(rows.clone().count() >= 3, "{block}");
        for row in rows {
            assert_eq!(row.chars().count(), end, "{block}");
        }
    }
    for said in [
        "boringtun was measured in 2 rounds only: boringtun-cli ended during round 3: signal 11.",
        "wireguard-go: bound by the receiving daemon: one thread uses a whole core (thread wg-right-udp used 0.97 of a",
        "Note: one TCP stream at the same time.",
        "gotatun is missing: not on PATH: cargo install gotatun-cli.",
        "5 s of load after 1 s of warm-up by iperf3 3.12",
        "Linux 6.12.43, governor performance",
        "treat the figures with caution",
    ] {
        assert!(text.contains(said), "{said}");
    }
}

#[test]
fn a_terminal_gets_no_control_characters() {
    let mut record = record();
    for row in &mut record.rows {
        row.failure = Some("\u{1b}[2J\u{7}gone\nand a second line".into());
        row.scenario.push('\u{1b}');
    }
    let table = Table(&record).to_string();
    let compared = compare(&record, &record).to_string();
    assert!(table.chars().chain(compared.chars()).all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn markdown_has_a_table_per_scenario_and_keeps_its_columns() {
    let record = record();
    let text = markdown::write(&record);
    assert_eq!(text.matches("| --- |").count(), record.scenarios().len());
    let mut columns = None;
    for line in text.lines() {
        let bars = line.replace("\\|", "").matches('|').count();
        columns = (bars > 0).then(|| *columns.get_or_insert(bars));
        assert_eq!(columns.unwrap_or(0), bars, "{line}");
    }
    assert!(text.contains("wireguard-go \\<b\\>fork\\</b\\> \\& friends"));
}

#[test]
fn a_record_compared_to_itself_shows_no_difference() {
    let record = record();
    let comparison = compare(&record, &record);
    assert!(!comparison.changes.is_empty());
    assert!(comparison.changes.iter().all(|change| change.overlap && change.finding == Finding::NoClearDifference));
    assert!(comparison.only_a.is_empty() && comparison.only_b.is_empty());
}

#[test]
fn a_subject_that_became_slower_is_reported_as_worse() {
    let before = record();
    let mut after = before.clone();
    for row in after.rows.iter_mut().filter(|row| row.subject == "linerate" && row.scenario == "pair/tcp-1") {
        for sample in &mut row.samples {
            *sample.values.get_mut(&Measure::Throughput).unwrap() *= 0.5;
            *sample.values.get_mut(&Measure::CpuPerGb).unwrap() *= 0.5;
        }
    }
    after.rows.retain(|row| row.subject != "boringtun");
    after.machine.kernel = "6.13".into();
    let comparison = compare(&before, &after);
    let changed: Vec<_> = comparison
        .changes
        .iter()
        .filter(|change| change.finding != Finding::NoClearDifference)
        .map(|change| (change.measure, change.finding))
        .collect();
    assert_eq!(changed, [(Measure::Throughput, Finding::Worse), (Measure::CpuPerGb, Finding::Better)]);
    let text = comparison.to_string();
    assert!(text.contains("0.50x  worse") && text.contains("0.50x  better") && text.contains("no clear difference"));
    assert!(text.contains("Kernel: 6.12.43+deb12-amd64, then 6.13."));
    assert!(text.contains("Only in A: pair/tcp-1, boringtun."));
}

#[test]
fn two_rounds_are_too_few_to_tell() {
    let mut before = record();
    before.rows.iter_mut().for_each(|row| row.samples.truncate(2));
    let mut after = before.clone();
    for sample in after.rows.iter_mut().flat_map(|row| &mut row.samples) {
        sample.values.values_mut().for_each(|value| *value *= 3.0);
    }
    let comparison = compare(&before, &after);
    assert!(comparison.changes.iter().all(|change| change.finding == Finding::NoClearDifference));
}

/// Whether a record fits the schema, and otherwise why not.
fn valid(record: &serde_json::Value) -> Result<(), String> {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("record.json", schema()).unwrap();
    let index = compiler.compile("record.json", &mut schemas).unwrap();
    schemas.validate(record, index).map_err(|error| error.to_string())
}

#[test]
fn the_published_records_can_be_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/perf");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let records: Vec<_> = files.filter(|file| file.extension().is_some_and(|ending| ending == "json")).collect();
    assert!(!records.is_empty());
    for file in records {
        let text = std::fs::read_to_string(&file).unwrap();
        valid(&serde_json::from_str(&text).unwrap()).unwrap();
        let record = Record::parse(&text).unwrap();
        // Beside each lies what `lab report --markdown` makes of it.
        assert_eq!(std::fs::read_to_string(file.with_extension("md")).unwrap(), markdown::write(&record));
    }
}

#[test]
fn a_record_is_what_its_schema_says() {
    let record = serde_json::to_value(record()).unwrap();
    valid(&record).unwrap();
    for (pointer, wrong) in [
        ("/schema", serde_json::json!(1)),
        ("/begun", serde_json::json!("yesterday")),
        ("/machine/busy", serde_json::json!(1.5)),
        ("/rows/0/samples/0/values", serde_json::json!({ "speed": 1.0 })),
        ("/rows/0/samples/0/round", serde_json::json!(0)),
        ("/method", serde_json::json!({})),
    ] {
        let mut record = record.clone();
        *record.pointer_mut(pointer).unwrap() = wrong;
        assert!(valid(&record).is_err(), "{pointer}");
    }
    for pointer in ["", "/machine", "/method", "/subjects/0", "/rows/0", "/rows/0/samples/0"] {
        let mut record = record.clone();
        let object = record.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        object.insert("more".into(), serde_json::Value::Null);
        assert!(valid(&record).is_err(), "{pointer} takes a field that it does not know");
    }
}

#[test]
fn the_schema_knows_every_measure_and_no_other() {
    let schema = schema();
    let known = schema.pointer("/$defs/values/properties").unwrap().as_object().unwrap();
    let mut known: Vec<&str> = known.keys().map(String::as_str).collect();
    let keys: Vec<serde_json::Value> = Measure::ALL.iter().map(|key| serde_json::to_value(key).unwrap()).collect();
    let mut keys: Vec<&str> = keys.iter().filter_map(serde_json::Value::as_str).collect();
    known.sort_unstable();
    keys.sort_unstable();
    assert_eq!(known, keys);
}

fn schema() -> serde_json::Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab-record.schema.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Each SVG of a page with the width and the height of its view box.
fn drawings(page: &str) -> Vec<(String, f64, f64)> {
    let svgs = page.split("<svg ").skip(1).map(|rest| rest.split("</svg>").next().expect("an end").to_owned());
    let drawings: Vec<_> = svgs
        .map(|svg| {
            let (_, view) = svg.split_once("viewBox=\"0 0 ").expect("a view box");
            let (size, _) = view.split_once('"').expect("its end");
            let (width, height) = size.split_once(' ').expect("two numbers");
            let (width, height) = (width.parse().unwrap(), height.parse().unwrap());
            (svg, width, height)
        })
        .collect();
    assert!(!drawings.is_empty());
    drawings
}

fn attributes<'a>(svg: &'a str, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let start = format!(" {name}=\"");
    svg.split('<').filter_map(move |tag| tag.split_once(&start)?.1.split('"').next())
}

fn numbers(svg: &str, name: &str) -> impl Iterator<Item = f64> {
    let all: Vec<f64> = attributes(svg, name).map(|value| value.parse().expect("a number")).collect();
    all.into_iter()
}
