//! WireGuard's user-space API: `key=value` lines over a unix stream socket.
//!
//! The format is that of <https://www.wireguard.com/xplatform/>; where that page says nothing, ours is
//! wireguard-go's. [`request`] and [`response`] are the text, [`socket`] the socket file, [`server`] and [`client`]
//! the two ends. Nothing here knows what a request does.

pub mod client;
pub mod fleet;
pub mod group;
pub mod limits;
pub mod request;
pub mod response;
pub mod server;
pub mod socket;

use std::net::IpAddr;

use crate::number::decimal;

/// The error numbers in `errno=` lines (include/uapi/asm-generic/errno.h).
///
/// A rejected `set` carries them negated, a rejected `get` as they are: `wg` prints anything else as an unknown error.
pub mod errno {
    /// Input/output error: the request could not be read as lines.
    pub const EIO: i32 = 5;
    /// An invalid value, or a key that is not allowed there.
    pub const EINVAL: i32 = 22;
    /// Any error without a number of its own, as in wireguard-go (ENOANO).
    pub const UNKNOWN: i32 = 55;
    /// A line that is not `key=value`, or a request that ends early.
    pub const EPROTO: i32 = 71;
    /// The listen port or the mark is not available, for a reason without a number of its own.
    pub const EADDRINUSE: i32 = 98;
}

/// The counter of linerated (`stats`) that is 1 while the interface is up and the UDP port is in use by another
/// program.
pub const NOT_LISTENING: &str = "not_listening";

/// The counter of linerated that tells how many peers are not let in now. A daemon that has it knows the lines of
/// [`limits`].
pub const PEERS_SUSPENDED: &str = "peers_suspended";

/// The counter of linerated that tells how often another peer of a group has taken over. A daemon that has it knows the
/// lines of [`group`].
pub const GROUP_MOVES: &str = "group_moves";

/// The counter of linerated that tells how many packets were marked because their peer's rate was nearly reached. A
/// daemon that has it knows the line `rate`.
pub const RATE_MARKED: &str = "rate_marked";

/// A counter of this prefix and the name of the cipher's implementation in use is 1.
pub const AEAD_IN_USE: &str = "aead_";

/// Why a request was rejected: a number for the client, and a message without secrets for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The value of the `errno=` line, with its sign.
    pub errno: i32,
    /// What was wrong and where.
    pub message: String,
}

/// Parses `IP/CIDR`; the length is mandatory, host bits are kept.
fn prefix(text: &[u8]) -> Option<(IpAddr, u8)> {
    let (address, length) = std::str::from_utf8(text).ok()?.rsplit_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    if length.len() > 1 && length.starts_with('0') {
        return None;
    }
    let length = decimal(length.as_bytes(), longest)?;
    Some((address, u8::try_from(length).ok()?))
}

/// The lines of `text` without their ends; as in Go's bufio.ScanLines, without one `\r` before the end.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    })
}
