//! What is published about many cores is what the model says of the published costs.

use std::fs;

use linerate_lab::many_cores::costs::Costs;
use linerate_lab::many_cores::report::{picture, table};

fn published(ending: &str) -> String {
    fs::read_to_string(format!("{}/../../docs/perf/many-cores.{ending}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn the_published_table_and_picture_are_those_of_the_published_costs() {
    let costs = Costs::parse(&published("toml")).unwrap();
    assert!(published("md").contains(&format!("```text\n{}```\n", table(&costs))));
    assert_eq!(published("svg"), picture(&costs));
}

#[test]
fn the_table_fits_120_columns() {
    let text = table(&Costs::parse(&published("toml")).unwrap());
    assert!(text.lines().all(|line| line.chars().count() <= 120 && !line.ends_with(' ')), "{text}");
}

#[test]
fn the_picture_holds_all_that_it_needs_and_numbers_only() {
    let picture = picture(&Costs::parse(&published("toml")).unwrap());
    assert!(!picture.contains("NaN") && !picture.contains("inf"));
    let fetched = picture.replace("http://www.w3.org/2000/svg", "");
    assert!(!fetched.contains("//") && !fetched.contains("url(") && !fetched.contains("@import"));
}
