//! What the peers of a tunnel have used, as linerated keeps it across restarts.
//!
//! It is in two files, which are written in turn and in place, because a confined daemon can neither open nor rename
//! one. A write that a crash cuts short spoils one of them, and its checksum tells; the other one is whole. Nothing
//! here opens a file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use blake2::{Blake2s256, Digest};

use crate::keys::PublicKey;
use crate::number::decimal;

/// The folder of the files.
pub const DIRECTORY: &str = "/var/lib/linerate";

/// The first line, with the version of the format.
const MAGIC: &[u8] = b"linerate usage 1";

/// The last second of the year 9999, in which time ends here.
const TIME_MAX: u64 = 253_402_300_799;

/// The names of the two files of an interface.
pub fn file_names(interface: &str) -> [String; 2] {
    [format!("{interface}.usage-a"), format!("{interface}.usage-b")]
}

/// What all peers have used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageRecord {
    /// Grows by one with each write: the file with the greater one is the newer.
    pub generation: u64,
    /// When it was written, in whole seconds since 1970: it is that time or later, whatever the clock says.
    pub time: Duration,
    /// The peers.
    pub peers: BTreeMap<PublicKey, Usage>,
}

/// What one peer has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The bytes received from it and sent to it.
    pub used: u64,
    /// When the period began in which it used them, in seconds since 1970; zero without periods.
    pub period: u64,
    /// When it last had limits, in seconds since 1970.
    pub last: u64,
}

impl UsageRecord {
    /// The content of a file.
    pub fn render(&self) -> Vec<u8> {
        let mut text = String::from_utf8_lossy(MAGIC).into_owned();
        let mut line = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("a String takes every write");
        line(format_args!("\ngeneration={}\ntime={}\n", self.generation, self.time.as_secs()));
        for (key, usage) in &self.peers {
            line(format_args!("{key} used={} period={} last={}\n", usage.used, usage.period, usage.last));
        }
        let checksum = checksum(text.as_bytes());
        text.push_str(&checksum);
        text.into_bytes()
    }

    /// Reads a file; `None` if it is not whole. What follows the checksum is left from an earlier, longer content.
    pub fn parse(file: &[u8]) -> Option<Self> {
        let mut record = Self::default();
        let mut lines = file.split_inclusive(|&byte| byte == b'\n');
        let mut at = 0;
        let mut next = || {
            let start = at;
            at += lines.next()?.len();
            Some((start, file[start..at].strip_suffix(b"\n")?))
        };
        next().filter(|(_, line)| *line == MAGIC)?;
        record.generation = field(next()?.1, b"generation=", u64::MAX)?;
        record.time = Duration::from_secs(field(next()?.1, b"time=", TIME_MAX)?);
        loop {
            let (start, line) = next()?;
            if line.starts_with(b"checksum=") {
                let known = checksum(&file[..start]);
                return known.as_bytes().strip_suffix(b"\n").is_some_and(|known| known == line).then_some(record);
            }
            let mut words = line.split(|&byte| byte == b' ');
            let key = PublicKey::from_base64(words.next()?)?;
            let usage = Usage {
                used: field(words.next()?, b"used=", u64::MAX)?,
                period: field(words.next()?, b"period=", TIME_MAX)?,
                last: field(words.next()?, b"last=", TIME_MAX)?,
            };
            if words.next().is_some() || record.peers.insert(key, usage).is_some() {
                return None;
            }
        }
    }

    /// The newer of the contents of both files, and which it is; if neither is whole, an empty record.
    pub fn newest(files: [&[u8]; 2]) -> (Self, usize) {
        match files.map(Self::parse) {
            [Some(first), Some(second)] if second.generation > first.generation => (second, 1),
            [Some(first), _] => (first, 0),
            [None, Some(second)] => (second, 1),
            [None, None] => (Self::default(), 1),
        }
    }
}

fn field(text: &[u8], name: &[u8], most: u64) -> Option<u64> {
    decimal(text.strip_prefix(name)?, most)
}

/// The last line.
fn checksum(text: &[u8]) -> String {
    let mut line = "checksum=".to_owned();
    for byte in Blake2s256::digest(text) {
        write!(line, "{byte:02x}").expect("a String takes every write");
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = UsageRecord> {
        let usage = (any::<u64>(), 0..=TIME_MAX, 0..=TIME_MAX);
        let peers = prop::collection::btree_map(any::<[u8; 32]>(), usage, 0..5);
        (any::<u64>(), 0..=TIME_MAX, peers).prop_map(|(generation, time, peers)| UsageRecord {
            generation,
            time: Duration::from_secs(time),
            peers: peers
                .into_iter()
                .map(|(key, (used, period, last))| (PublicKey(key), Usage { used, period, last }))
                .collect(),
        })
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written_over_anything(record in records(), before: Vec<u8>) {
            let mut file = record.render();
            file.extend(before);
            prop_assert_eq!(UsageRecord::parse(&file), Some(record));
        }

        #[test]
        fn a_write_that_was_cut_short_leaves_the_other_file(
            older in records(), newer in records(), over in records(), cut: prop::sample::Index,
        ) {
            let older = UsageRecord { generation: 7, ..older };
            let newer = UsageRecord { generation: 8, ..newer };
            let whole = newer.render();
            let cut = cut.index(whole.len());
            let mut torn = whole[..cut].to_vec();
            let over = UsageRecord { generation: 6, ..over }.render();
            torn.extend(over.get(cut..).unwrap_or_default());
            let (read, which) = UsageRecord::newest([&torn, &older.render()]);
            // The last byte is the end of the last line.
            prop_assert!((read == older && which == 1) || (read == newer && torn.starts_with(&whole)));
            prop_assert_eq!(UsageRecord::newest([&older.render(), &whole]), (newer, 1));
        }
    }

    #[test]
    fn nothing_is_read_from_files_that_are_not_whole() {
        let whole = UsageRecord { generation: 1, ..UsageRecord::default() }.render();
        for end in 0..whole.len() {
            assert_eq!(UsageRecord::parse(&whole[..end]), None, "{end}");
        }
        for index in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[index] ^= 1;
            assert_eq!(UsageRecord::parse(&damaged), None, "{index}");
        }
        assert_eq!(UsageRecord::newest([&[0; 4096], b""]), (UsageRecord::default(), 1));
    }
}
