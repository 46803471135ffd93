//! Numbers of bytes as people write them: `50G` is decimal, `50Gi` binary.

use std::fmt;
use std::str::FromStr;

use crate::printable::printable;

/// At least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteCount(u64);

/// The text is not a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of bytes: write 50G (decimal), 50Gi (binary) or 1.5T")]
pub struct InvalidByteCount(String);

/// The units, the largest first: both letters of a pair differ only in their base.
const UNITS: [(&str, u64); 12] = [
    ("Ei", 1 << 60),
    ("E", 1_000_000_000_000_000_000),
    ("Pi", 1 << 50),
    ("P", 1_000_000_000_000_000),
    ("Ti", 1 << 40),
    ("T", 1_000_000_000_000),
    ("Gi", 1 << 30),
    ("G", 1_000_000_000),
    ("Mi", 1 << 20),
    ("M", 1_000_000),
    ("Ki", 1 << 10),
    ("k", 1000),
];

impl ByteCount {
    /// `bytes`, unless there are none.
    pub fn new(bytes: u64) -> Option<Self> {
        (bytes > 0).then_some(Self(bytes))
    }

    /// The number.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteCount {
    type Err = InvalidByteCount;

    fn from_str(text: &str) -> Result<Self, InvalidByteCount> {
        parse(text).and_then(Self::new).ok_or_else(|| InvalidByteCount(printable(text).into_owned()))
    }
}

/// In the largest unit of which it is a multiple.
impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match UNITS.iter().find(|(_, size)| self.0.is_multiple_of(*size)) {
            Some((unit, size)) => format!("{}{unit}", self.0 / size),
            None => self.0.to_string(),
        };
        f.pad(&text)
    }
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let unit = unit.strip_suffix(['B', 'b']).unwrap_or(unit);
    let size = match unit {
        "" => 1,
        unit => UNITS.iter().find(|(known, _)| known.eq_ignore_ascii_case(unit))?.1,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // More digits than that say nothing, and would overflow.
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let (whole, fraction) = (whole.parse::<u64>().ok()?, fraction.parse::<u64>().ok()?);
    let part = u128::from(fraction) * u128::from(size);
    // Half a byte is a mistake.
    let bytes = u128::from(whole) * u128::from(size) + part.is_multiple_of(scale).then_some(part / scale)?;
    u64::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimal_and_binary_units_are_told_apart() {
        let cases = [
            ("1", 1),
            ("1500", 1500),
            ("50G", 50_000_000_000),
            ("50Gi", 50 << 30),
            ("50 GB", 50_000_000_000),
            ("50gib", 50 << 30),
            ("1.5T", 1_500_000_000_000),
            ("0.5Ki", 512),
            ("16E", 16_000_000_000_000_000_000),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse::<ByteCount>().map(ByteCount::bytes), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_number_of_bytes_is_refused() {
        let all = ["", "0", "0G", "G", "-1G", "+1", "1.2", "1.G", ".5G", "1..5G", "50X", "50GG", "1e9", "16Ei", "20E"];
        for text in
            all.into_iter().chain(["1.0005k", "5 0G", "99999999999999999999", "1\u{663}G", "1.0000000000000000000G"])
        {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_count_is_read_as_it_was_written(bytes in 1u64.., unit in 0..UNITS.len()) {
            let size = UNITS[unit].1;
            for bytes in [bytes, (bytes / size).max(1) * size] {
                let count = ByteCount(bytes);
                prop_assert_eq!(count.to_string().parse(), Ok(count));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = text.parse::<ByteCount>();
        }
    }
}
