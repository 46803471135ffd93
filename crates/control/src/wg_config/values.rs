//! The values of the file and of the command line of `wg set`. Error messages are those of `wg`.

use std::net::{IpAddr, SocketAddr};

use super::{Resolver, ValueError};
use crate::keys::{BASE64_LENGTH, PublicKey, SecretKey};
use crate::number::decimal;
use crate::uapi::request::{AllowedIp, PeerUpdate};

/// White space of the C locale.
pub fn is_space(byte: u8) -> bool {
    // Rust's definition lacks the vertical tab. As a range it is tested for many bytes at a time.
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// A public key in base64.
///
/// # Errors
/// It is not valid.
pub fn public_key(text: &str) -> Result<PublicKey, ValueError> {
    PublicKey::from_base64(text.as_bytes()).ok_or_else(|| not_a_key(text))
}

/// A private or preshared key in base64.
///
/// # Errors
/// It is not valid.
pub fn secret_key(text: &str) -> Result<SecretKey, ValueError> {
    SecretKey::from_base64(text.as_bytes()).ok_or_else(|| not_a_key(text))
}

fn not_a_key(text: &str) -> ValueError {
    ValueError::Value(format!("Key is not the correct length or format: `{text}'"))
}

/// The key in a key file, which may end in white space; an empty file is the all-zero key, which removes a key.
///
/// # Errors
/// It is not valid.
pub fn key_file(content: &[u8]) -> Result<SecretKey, ValueError> {
    if content.is_empty() {
        return Ok(SecretKey::ZERO);
    }
    let wrong_length = || ValueError::Value("Invalid length key in key file".into());
    let (key, rest) = content.split_at_checked(BASE64_LENGTH).ok_or_else(wrong_length)?;
    if let Some(&other) = rest.iter().find(|&&byte| !is_space(byte)) {
        let other = char::from(other);
        return Err(ValueError::Value(format!("Found trailing character in key file: `{other}'")));
    }
    SecretKey::from_base64(key).ok_or_else(|| not_a_key(&String::from_utf8_lossy(key)))
}

/// A UDP port, by number or service name.
///
/// # Errors
/// It is not valid.
pub fn listen_port(text: &str, resolver: &mut dyn Resolver) -> Result<u16, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Value("Unable to parse empty port".into()));
    }
    resolver.port(text)
}

/// A mark: `off`, a decimal number, or a hexadecimal one after `0x`.
///
/// # Errors
/// It is none, or does not fit in 32 bits.
pub fn fwmark(text: &str) -> Result<u32, ValueError> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(0);
    }
    let mark = match text.strip_prefix("0x") {
        // from_str_radix would accept a sign.
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => decimal(text.as_bytes(), u32::MAX.into()).and_then(|mark| u32::try_from(mark).ok()),
    };
    mark.ok_or_else(|| ValueError::Value(format!("Fwmark is neither 0/off nor 0-0xffffffff: `{text}'")))
}

/// Seconds between keepalives; `off` is 0.
///
/// # Errors
/// It is not valid.
pub fn persistent_keepalive(text: &str) -> Result<u16, ValueError> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(0);
    }
    let seconds = decimal(text.as_bytes(), u16::MAX.into()).and_then(|seconds| u16::try_from(seconds).ok());
    seconds.ok_or_else(|| {
        ValueError::Value(format!("Persistent keepalive interval is neither 0/off nor 1-65535: `{text}'"))
    })
}

/// `host:port` or `[host]:port`. Without brackets, the last colon separates them.
///
/// # Errors
/// It has another form, or the host has no address.
pub fn endpoint(text: &str, resolver: &mut dyn Resolver) -> Result<SocketAddr, ValueError> {
    let (host, service) = host_and_service(text)?;
    resolver.resolve(text, host, service)
}

/// The two parts of an endpoint; the host may be empty.
///
/// # Errors
/// It has another form.
pub(crate) fn host_and_service(text: &str) -> Result<(&str, &str), ValueError> {
    let missing = |what: &str| ValueError::Value(format!("Unable to find {what} of endpoint: `{text}'"));
    if text.is_empty() {
        return Err(ValueError::Value("Unable to parse empty endpoint".into()));
    }
    let (host, service) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(|| missing("matching brace"))?;
            (host, rest.strip_prefix(':'))
        }
        None => text.rsplit_once(':').map_or((text, None), |(host, service)| (host, Some(service))),
    };
    let service = service.filter(|service| !service.is_empty()).ok_or_else(|| missing("port"))?;
    Ok((host, service))
}

/// Parses a comma-separated list of prefixes into `peer`. It replaces the current list, unless any of them has a sign:
/// then `-` removes one, and `+` or no sign adds one. An empty list removes all.
///
/// # Errors
/// One of them is not a prefix; `peer` then has those before it.
pub fn allowed_ips(text: &str, peer: &mut PeerUpdate, resolver: &mut dyn Resolver) -> Result<(), ValueError> {
    peer.replace_allowed_ips = true;
    if text.is_empty() {
        return Ok(());
    }
    for entry in text.split(',') {
        let unsigned = entry.strip_prefix(['+', '-']);
        if unsigned.is_some() {
            peer.replace_allowed_ips = false;
        }
        let (addr, cidr) = prefix(unsigned.unwrap_or(entry), resolver)?;
        peer.allowed_ips.push(AllowedIp { add: !entry.starts_with('-'), addr, cidr });
    }
    Ok(())
}

fn prefix(text: &str, resolver: &mut dyn Resolver) -> Result<(IpAddr, u8), ValueError> {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let addr: IpAddr =
        address.parse().map_err(|_| ValueError::Value(format!("Unable to parse IP address: `{address}'")))?;
    let longest = if addr.is_ipv4() { 32 } else { 128 };
    let Some(digits) = length else { return Ok((addr, longest)) };
    let cidr = decimal(digits.as_bytes(), longest.into()).and_then(|length| u8::try_from(length).ok());
    let cidr = cidr.ok_or_else(|| ValueError::Value(format!("AllowedIP is not in the correct format: `{text}'")))?;
    if has_host_part(addr, cidr) {
        resolver.warn(&format!("Warning: AllowedIP has nonzero host part: {address}/{digits}"));
    }
    Ok((addr, cidr))
}

fn has_host_part(addr: IpAddr, cidr: u8) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.to_bits().checked_shl(cidr.into()).unwrap_or(0) != 0,
        IpAddr::V6(v6) => v6.to_bits().checked_shl(cidr.into()).unwrap_or(0) != 0,
    }
}
