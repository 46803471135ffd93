//! The rate of a peer as people write it, `20M/5M`, and as linerated's own line of `set` and `get`.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use crate::number::decimal;
use crate::printable::printable;
use crate::tunnel_file::ByteCount;
use crate::zeroizing::Buffer;

/// How many bits of inner packets per second may pass between a peer and this host; 0 in one direction: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// To the peer: what it calls its download.
    pub down: u64,
    /// From the peer.
    pub up: u64,
}

/// The text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRate {
    /// A part is not a number of bits.
    #[error("`{0}` is not a rate: write 20M for 20 Mbit/s in each direction, 20M/5M for 20 down and 5 up")]
    Text(String),
    /// A part is a number that is too small or too large.
    #[error("`{0}` is not a rate that can be kept: use 64k to 100G bits per second")]
    Range(String),
    /// Neither direction has a rate.
    #[error("`{0}` limits neither direction: leave the rate out, or give one direction a rate")]
    Nothing(String),
}

impl Rate {
    /// The least rate of a direction, in bits per second.
    pub const MIN: u64 = 64_000;
    /// The greatest.
    pub const MAX: u64 = 100_000_000_000;
    /// Any number of bits in both directions.
    pub const NONE: Self = Self { down: 0, up: 0 };

    /// Whether neither direction has a rate.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Reads the value of the UAPI's line.
    pub(crate) fn from_line(value: &[u8]) -> Option<Self> {
        let slash = value.iter().position(|&byte| byte == b'/')?;
        let bits = |value| decimal(value, Self::MAX).filter(|bits| *bits == 0 || *bits >= Self::MIN);
        Some(Self { down: bits(&value[..slash])?, up: bits(&value[slash + 1..])? })
    }

    /// Writes the UAPI's line.
    pub(crate) fn write_line(self, text: &mut Buffer) -> fmt::Result {
        writeln!(text, "rate={}/{}", self.down, self.up)
    }
}

/// One value is for both directions; `none` in one of two leaves that direction alone.
impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (down, up) = text.split_once('/').unwrap_or((text, text));
        let rate = Self { down: bits(down.trim(), text)?, up: bits(up.trim(), text)? };
        if rate.is_none() { Err(InvalidRate::Nothing(printable(text).into_owned())) } else { Ok(rate) }
    }
}

fn bits(part: &str, text: &str) -> Result<u64, InvalidRate> {
    if part.eq_ignore_ascii_case("none") {
        return Ok(0);
    }
    let printed = || printable(text).into_owned();
    // A `B` would be bytes, and `Mi` is a unit of memory.
    if part.contains(['b', 'B', 'i', 'I']) {
        return Err(InvalidRate::Text(printed()));
    }
    let number = part.trim_end_matches(char::is_alphabetic);
    let is_zero = !number.is_empty() && number.bytes().all(|byte| b"0.".contains(&byte));
    if is_zero {
        return Err(InvalidRate::Range(printed()));
    }
    let bits = part.parse::<ByteCount>().map_err(|_| InvalidRate::Text(printed()))?.bytes();
    (Rate::MIN..=Rate::MAX).contains(&bits).then_some(bits).ok_or_else(|| InvalidRate::Range(printed()))
}

/// As it is read.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.down == self.up {
            direction(self.down)
        } else {
            format!("{}/{}", direction(self.down), direction(self.up))
        };
        f.pad(&text)
    }
}

/// In the largest decimal unit of which it is a multiple.
fn direction(bits: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000)];
    match UNITS.iter().find(|(_, size)| bits.is_multiple_of(*size)) {
        _ if bits == 0 => "none".to_owned(),
        Some((unit, size)) => format!("{}{unit}", bits / size),
        None => bits.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_value_is_for_both_directions_and_two_are_down_and_up() {
        let rate = |down, up| Ok(Rate { down, up });
        let cases = [
            ("20M", rate(20_000_000, 20_000_000)),
            ("20M/5M", rate(20_000_000, 5_000_000)),
            ("2.5m / 512K", rate(2_500_000, 512_000)),
            ("none/1G", rate(0, 1_000_000_000)),
            ("64k/None", rate(64_000, 0)),
            ("64000/100G", rate(64_000, 100_000_000_000)),
        ];
        for (text, rate) in cases {
            assert_eq!(text.parse(), rate, "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_by_its_kind() {
        for text in ["0", "0/5M", "5M/0", "0M", "1", "63k", "101G", "64", "0.0M", "1000T", "20M/63999"] {
            assert!(matches!(text.parse::<Rate>(), Err(InvalidRate::Range(_))), "{text}");
        }
        for text in ["", "/", "20M/", "/5M", "M", "-5M", "20MB", "20Mbit", "20Mi", "5M/5M/5M", "x", "off", "1e6"] {
            assert!(matches!(text.parse::<Rate>(), Err(InvalidRate::Text(_))), "{text}");
        }
        for text in ["none", "none/none"] {
            assert!(matches!(text.parse::<Rate>(), Err(InvalidRate::Nothing(_))), "{text}");
        }
    }

    #[test]
    fn a_line_with_a_rate_out_of_bounds_is_none() {
        for value in
            ["", "1", "0", "64000", "64000/", "/64000", "63999/0", "0/100000000001", "+64000/0", "0/0/0", "0/0 "]
        {
            assert_eq!(Rate::from_line(value.as_bytes()), None, "{value}");
        }
        assert_eq!(Rate::from_line(b"0/64000"), Some(Rate { down: 0, up: 64_000 }));
    }

    fn direction() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Rate::MIN..=Rate::MAX, (1..=100u64).prop_map(|count| count * 1_000_000)]
    }

    proptest! {
        #[test]
        fn a_rate_is_read_as_it_was_written(down in direction(), up in direction()) {
            let rate = Rate { down, up };
            let mut line = Buffer::new();
            rate.write_line(&mut line).unwrap();
            let value = line.strip_prefix(b"rate=").and_then(|line| line.strip_suffix(b"\n"));
            prop_assert_eq!(Rate::from_line(value.unwrap()), Some(rate));
            if !rate.is_none() {
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = (text.parse::<Rate>(), Rate::from_line(text.as_bytes()));
        }
    }
}
