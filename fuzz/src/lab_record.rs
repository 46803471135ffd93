//! A lab record round-trips.

use linerate_lab::record::Record;

pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Record::parse(text) {
        Ok(record) => {
            let again = serde_json::to_string(&record).expect("a record is JSON");
            assert_eq!(Record::parse(&again).ok().as_ref(), Some(&record), "writing and reading round-trip");
            for name in record.scenarios() {
                assert!(record.scenario(name).next().is_some());
            }
        }
        Err(wrong) => assert!(!wrong.to_string().is_empty()),
    }
}
