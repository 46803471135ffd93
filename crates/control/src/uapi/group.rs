//! Groups of peers (docs/fleet.md, "Many identities"): linerated's own lines of `set`. Without the feature `fleet` they are
//! unknown keys.

use std::net::IpAddr;

/// The longest name of a group in bytes: shorter than a key, so that a misplaced one is none.
pub const NAME_MAX: usize = 23;

/// The changes of a `set` to a peer's group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupUpdate {
    /// `group`: the group's name; empty: in none.
    pub name: Option<String>,
    /// `group_check`: from which of the device's own addresses, and at which address, the peer is asked whether it is there.
    pub check: Option<(IpAddr, IpAddr)>,
}

/// Whether a group may have this name: letters, digits, `-`, `_` and `.`.
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_allowed)
}

#[cfg(feature = "fleet")]
mod text {
    use std::fmt::Write as _;
    use std::net::IpAddr;

    use super::{GroupUpdate, is_name};
    use crate::uapi::request::LineError;
    use crate::zeroizing::Buffer;

    const NAME: LineError = LineError::Expected("up to 23 letters, digits, `-`, `_` and `.`, or nothing");
    const CHECK: LineError = LineError::Expected("two addresses of one family, by a comma");

    impl GroupUpdate {
        /// Reads a line; false if it is none of these.
        pub(in crate::uapi) fn line(&mut self, key: &[u8], value: &[u8]) -> Result<bool, LineError> {
            match key {
                b"group" => {
                    let name = std::str::from_utf8(value).ok().filter(|name| name.is_empty() || is_name(name));
                    self.name = Some(name.ok_or(NAME)?.to_owned());
                }
                b"group_check" => self.check = Some(check(value).ok_or(CHECK)?),
                _ => return Ok(false),
            }
            Ok(true)
        }

        pub(in crate::uapi) fn write(&self, text: &mut Buffer) -> std::fmt::Result {
            if let Some(name) = &self.name {
                writeln!(text, "group={name}")?;
            }
            if let Some((source, target)) = self.check {
                writeln!(text, "group_check={source},{target}")?;
            }
            Ok(())
        }
    }

    fn check(value: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let (source, target) = std::str::from_utf8(value).ok()?.split_once(',')?;
        let (source, target): (IpAddr, IpAddr) = (source.parse().ok()?, target.parse().ok()?);
        (source.is_ipv4() == target.is_ipv4()).then_some((source, target))
    }
}
