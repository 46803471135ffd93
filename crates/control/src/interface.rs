//! Validated names of network interfaces, safe as part of a path and in requests to the kernel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::printable::printable;

/// The longest name in bytes: IFNAMSIZ (linux/if.h) without its final NUL.
const LONGEST: usize = 15;

/// An interface name that the kernel accepts and that is safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

/// The text is not an interface name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an interface name: use 1 to 15 letters, digits, `_`, `=`, `+`, `.` or `-`")]
pub struct InvalidInterfaceName(String);

impl InterfaceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The words of a command line that mean the interface `name`: `--` comes before one that would be an option.
pub fn operands(name: &str) -> impl Iterator<Item = &str> {
    name.starts_with('-').then_some("--").into_iter().chain([name])
}

impl FromStr for InterfaceName {
    type Err = InvalidInterfaceName;

    // The kernel (dev_valid_name, net/core/dev.c) allows more, but expands `%d` in the name of a new TUN device, and
    // wg-quick allows only these.
    fn from_str(text: &str) -> Result<Self, InvalidInterfaceName> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_=+.-".contains(c);
        let dots = text == "." || text == "..";
        if text.is_empty() || text.len() > LONGEST || dots || !text.chars().all(allowed) {
            return Err(InvalidInterfaceName(printable(text).into_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = InvalidInterfaceName;

    fn try_from(text: String) -> Result<Self, InvalidInterfaceName> {
        text.parse()
    }
}

impl From<InterfaceName> for String {
    fn from(name: InterfaceName) -> Self {
        name.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::InterfaceName;

    #[test]
    fn a_name_of_up_to_fifteen_plain_characters_is_accepted() {
        for name in ["w", "wg0", "wg_=+.-", "123456789012345", "..."] {
            assert_eq!(name.parse::<InterfaceName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_name_that_could_leave_the_directory_or_name_another_interface_is_refused() {
        for name in ["", ".", "..", "a/b", "wg%d", "wg 0", "wg:0", "wg\n", "wé", "1234567890123456"] {
            assert!(name.parse::<InterfaceName>().is_err(), "{name}");
        }
    }
}
