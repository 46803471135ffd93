//! `Fleet`: the name of a fleet.

use std::fmt;
use std::str::FromStr;

/// The longest name.
const LENGTH_MAX: usize = 32;

/// The name of a fleet: part of keys in its store and of paths here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FleetName(String);

/// Why a text is no such name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a fleet: at most 32 lower-case letters, digits and hyphens, a letter first")]
pub struct InvalidFleetName;

impl FleetName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FleetName {
    type Err = InvalidFleetName;

    fn from_str(text: &str) -> Result<Self, InvalidFleetName> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        match starts && text.len() <= LENGTH_MAX && text.bytes().all(is_plain) {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidFleetName),
        }
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_path() {
        for good in ["berlin", "a", "eu-west-1", &"x".repeat(32)] {
            assert_eq!(good.parse::<FleetName>().unwrap().as_str(), good);
        }
        for bad in ["", "1a", "-a", "Berlin", "a/b", "a.b", "a b", "..", &"x".repeat(33)] {
            assert_eq!(bad.parse::<FleetName>(), Err(InvalidFleetName), "{bad}");
        }
    }
}
