//! docs/doctor.md lists the findings that there are, each with a scenario that makes it.

use std::path::Path;

use linerate_doctor::KINDS;

#[test]
fn every_finding_has_a_row_with_its_severity_and_a_scenario_that_names_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/doctor.md")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| row.split('|').map(str::trim).collect())
        .collect();
    let documented: Vec<(&str, &str)> = rows.iter().map(|row| (row[0].trim_end_matches('`'), row[1])).collect();
    let known: Vec<(&str, &str)> = KINDS.iter().map(|kind| (kind.id, kind.severity.name())).collect();
    assert_eq!(documented, known);
    let mut with_scenario = 0;
    for ((id, _), row) in documented.iter().zip(&rows) {
        assert!(!row[2].is_empty(), "{id}");
        let Some((_, file)) = row[3].split_once("](../") else {
            assert_eq!(row[3], "-", "{id}");
            continue;
        };
        let scenario = std::fs::read_to_string(root.join(file.trim_end_matches(')'))).unwrap();
        let words = scenario.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        assert!(*id == "confinement-weak" || words.into_iter().any(|word| word == *id), "{id} in {file}");
        with_scenario += 1;
    }
    assert!(with_scenario > 40);
}
