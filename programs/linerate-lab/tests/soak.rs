//! What is published about the soak is what its record says.

use std::fs;
use std::path::{Path, PathBuf};

use linerate_lab::soak::picture::picture;
use linerate_lab::soak::record::Record;
use linerate_lab::soak::verdict::Verdict;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn published() -> Record {
    Record::read(&docs().join("soak/2026-11-22-emerald-rapids")).unwrap()
}

#[test]
fn the_published_verdict_and_picture_are_those_of_the_published_record() {
    let record = published();
    let page = fs::read_to_string(docs().join("soak.md")).unwrap();
    let verdict = Verdict::of(&record).to_string();
    assert!(page.contains(&format!("```text\n{verdict}```\n")), "{verdict}");
    let drawn = fs::read_to_string(docs().join("soak/2026-11-22-emerald-rapids/picture.svg")).unwrap();
    assert_eq!(drawn, picture(&record));
}

#[test]
fn the_published_soak_took_an_hour_and_had_no_failure() {
    let record = published();
    assert!(record.samples.last().unwrap().at >= 3600.0);
    assert_eq!(Verdict::of(&record).failures(), [""; 0]);
}

#[test]
fn the_verdict_fits_120_columns() {
    let text = Verdict::of(&published()).to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 120 && !line.ends_with(' ')), "{text}");
}

#[test]
fn the_picture_holds_all_that_it_needs_and_numbers_only() {
    let picture = picture(&published());
    assert!(!picture.contains("NaN") && !picture.contains("inf"));
    let fetched = picture.replace("http://www.w3.org/2000/svg", "");
    assert!(!fetched.contains("//") && !fetched.contains("url(") && !fetched.contains("@import"));
}
