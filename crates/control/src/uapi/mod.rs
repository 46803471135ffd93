//! WireGuard's user-space API: `key=value` lines over a unix stream socket.
//!
//! The wire format is that of <https://www.wireguard.com/xplatform/>; where that page is silent,
//! wireguard-go's behaviour is the rule. [`request`] and [`response`] are the text, [`socket`] the
//! file, [`server`] the conversation. Nothing here knows what a request does.

pub mod client;
pub mod request;
pub mod response;
pub mod server;
pub mod socket;

/// The error numbers that travel in `errno=` lines (include/uapi/asm-generic/errno.h).
///
/// A refused `set` carries them negated, a refused `get` as they are: `wg` prints anything else as
/// an unknown error.
pub mod errno {
    /// Input/output error: the request could not be read as lines.
    pub const EIO: i32 = 5;
    /// A value, or a key in that place, that is not valid.
    pub const EINVAL: i32 = 22;
    /// What wireguard-go answers for any error without a number of its own (ENOANO).
    pub const UNKNOWN: i32 = 55;
    /// A line that is not `key=value`, or a request that ends early.
    pub const EPROTO: i32 = 71;
    /// The listen port or the mark cannot be had, for a reason that has no number of its own.
    pub const EADDRINUSE: i32 = 98;
}

/// Why a request was not carried out: a number for the client, a sentence for the log.
///
/// The sentence never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// What goes into the `errno=` line, sign included.
    pub errno: i32,
    /// What was wrong and where.
    pub message: String,
}

/// The number that `digits` spell, at most `limit`: decimal only, leading zeros allowed, as
/// strconv.ParseUint(_, 10, _) reads it.
pub(crate) fn decimal(digits: &[u8], limit: u64) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        let value = value.checked_mul(10)?.checked_add(digit)?;
        (value <= limit).then_some(value)
    })
}

/// The address and prefix length of `IP/CIDR`; the length is mandatory, host bits are kept.
fn prefix(text: &[u8]) -> Option<(std::net::IpAddr, u8)> {
    let (address, length) = std::str::from_utf8(text).ok()?.rsplit_once('/')?;
    let address: std::net::IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    if length.len() > 1 && length.starts_with('0') {
        return None;
    }
    let length = decimal(length.as_bytes(), longest)?;
    Some((address, u8::try_from(length).ok()?))
}

/// The lines of `text` without their ends; as Go's bufio.ScanLines, one `\r` before the end goes too.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    })
}
