//! Any bytes as one of the files in which a daemon keeps what peers have used, also with the right checksum: what is
//! whole round-trips, and the newer of two whole files is read.

use std::fmt::Write as _;

use blake2::{Blake2s256, Digest};
use linerate_control::usage::UsageRecord;

pub fn check(input: &[u8]) {
    let mut line = "checksum=".to_owned();
    Blake2s256::digest(input).iter().for_each(|byte| write!(line, "{byte:02x}").expect("a String takes every write"));
    for file in [input.to_vec(), [input, line.as_bytes(), b"\n"].concat()] {
        let read = UsageRecord::parse(&file);
        if let Some(record) = &read {
            let text = record.render();
            assert!(UsageRecord::parse(&text).as_ref() == Some(record), "rendering and parsing round-trip");
            assert_eq!(UsageRecord::parse(&text[..text.len() - 1]), None, "a file that is cut short is not whole");
        }
        let other = UsageRecord { generation: 1, ..UsageRecord::default() };
        let (newest, which) = UsageRecord::newest([&other.render(), &file]);
        match read.filter(|record| record.generation > 1) {
            Some(record) => assert!(newest == record && which == 1),
            None => assert!(newest == other && which == 0),
        }
    }
}
