//! The values of a tunnel's file that are not those of `wg`'s command line too, and what would be right of those that
//! are not valid.

use std::net::IpAddr;

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::{Endpoint, KeyFile, NameServer, Names, Table};
use crate::document::Key;
use crate::endpoint;
use crate::keys::{BASE64_LENGTH, PublicKey, SecretKey};
use crate::uapi::decimal;
use crate::wg_config::values::{fwmark, host_and_service, is_space, persistent_keepalive};

/// What is wrong with a value, and what would be right. Without `Debug`, as it may have named a key.
pub(super) struct InvalidValue {
    pub what: String,
    pub hint: String,
}

pub(super) fn wrong(what: impl Into<String>, hint: impl Into<String>) -> InvalidValue {
    InvalidValue { what: what.into(), hint: hint.into() }
}

/// A value as a message quotes it: not, if it may be a key that has come into the wrong place, nor if a part of it may.
/// Messages end up in journals.
fn quoted(text: &str) -> String {
    if may_have_key(text) { "the value, which may contain a key,".to_owned() } else { format!("`{text}`") }
}

/// Whether there is more of base64 or hexadecimal digits in a row than in addresses, numbers and most names.
pub(super) fn may_have_key(text: &str) -> bool {
    const ROW: usize = 24;
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let text = compact(text);
    text.as_bytes().split(|byte| !is_digit(byte)).any(|row| row.len() >= ROW)
}

/// An address with the length of its prefix, host bits kept; without a length it is that of the address alone. IPv4 also
/// takes a mask after the slash, as `ip address add` does.
pub(super) fn address(text: &str) -> Result<IpNet, InvalidValue> {
    if text.is_empty() {
        return Err(wrong("an entry of this list is empty", "remove its comma"));
    }
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(wrong(format!("{} is not an IP address", quoted(text)), "10.0.0.1/24 or fd00::1/64 is one"));
    };
    let Some(length) = length else { return Ok(address.into()) };
    let longest: u8 = if address.is_ipv4() { 32 } else { 128 };
    let decimal = decimal(length.as_bytes(), longest.into()).and_then(|length| u8::try_from(length).ok());
    if let Some(net) = decimal.and_then(|length| IpNet::new(address, length).ok()) {
        return Ok(net);
    }
    let mask = length.parse::<IpAddr>().ok().and_then(|mask| IpNet::with_netmask(address, mask).ok());
    let version = if address.is_ipv4() { 4 } else { 6 };
    mask.ok_or_else(|| {
        wrong(
            format!("{} is not the length of a prefix", quoted(&format!("/{length}"))),
            format!("those of IPv{version} are 0 to {longest}"),
        )
    })
}

/// A prefix of `AllowedIPs`, host bits kept. `wg` takes no mask.
pub(super) fn prefix(text: &str) -> Result<IpNet, InvalidValue> {
    let masked = text.split_once('/').filter(|(_, mask)| mask.contains(['.', ':']));
    let Some((base, _)) = masked else { return address(text) };
    let net = address(text)?;
    Err(wrong(format!("`{text}` has a mask where a length belongs"), format!("write {base}/{}", net.prefix_len())))
}

/// `host:port`. The host may be a name.
pub(super) fn peer_endpoint(text: &str) -> Result<Endpoint, InvalidValue> {
    let text = &**compact(text);
    let form = "192.0.2.1:51820, [2001:db8::1]:51820 or vpn.example.com:51820 is one";
    let Ok((host, service)) = host_and_service(text) else {
        return Err(wrong(format!("{} is not an endpoint: it needs a host and a port", quoted(text)), form));
    };
    // No name has a digit of base64 that is neither letter nor number; names of interfaces may.
    if host.is_empty() || (host.contains(['+', '/', '=']) && !host.contains('%')) {
        return Err(wrong(format!("{} names no host", quoted(text)), form));
    }
    let is_number = service.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && decimal(service.as_bytes(), u16::MAX.into()).is_none() {
        return Err(wrong(format!("{service} is not a port"), "ports are 1 to 65535"));
    }
    let numeric = if host.contains(':') { format!("[{host}]:{service}") } else { format!("{host}:{service}") };
    let named = || Endpoint::Name { host: host.to_owned(), service: service.to_owned() };
    Ok(endpoint::parse(numeric.as_bytes()).map_or_else(named, Endpoint::Address))
}

/// A private or preshared key. The value stays unsaid if it is none: it may be most of a secret.
pub(super) fn secret_key(key: &Key, text: &str) -> Result<SecretKey, InvalidValue> {
    SecretKey::from_base64(compact(text).as_bytes()).ok_or_else(|| not_a_key(key, text))
}

/// A public key. Its value stays unsaid as well: a secret may have come into its place.
pub(super) fn public_key(key: &Key, text: &str) -> Result<PublicKey, InvalidValue> {
    PublicKey::from_base64(compact(text).as_bytes()).ok_or_else(|| not_a_key(key, text))
}

fn not_a_key(key: &Key, text: &str) -> InvalidValue {
    let mut what = format!("the value of {} is not a key", key.name);
    let length = compact(text).chars().count();
    if length != BASE64_LENGTH {
        what += &format!(": it has {length} characters");
    }
    wrong(what, "a key is 44 characters of base64, the last of them `=`")
}

/// Where a key stands.
pub(super) fn key_file(text: &str) -> Result<KeyFile, InvalidValue> {
    if SecretKey::from_base64(compact(text).as_bytes()).is_some() {
        return Err(wrong("this is a key, not the file that contains it", "PrivateKey or PresharedKey takes a key"));
    }
    let hint = "credential:NAME is one, without any slash";
    KeyFile::parse(text).ok_or_else(|| wrong("this is not the name of a credential", hint))
}

/// A port by its number or by the name of its service.
pub(super) fn listen_port(text: &str, names: &dyn Names) -> Result<u16, InvalidValue> {
    let text = compact(text);
    let number = decimal(text.as_bytes(), u16::MAX.into()).and_then(|port| u16::try_from(port).ok());
    let hint = "0 to 65535 are ports; 0 is one that the system chooses";
    // The system's resolver would take 70000 for 4464.
    let named = || names.port(&text).filter(|_| !text.bytes().all(|byte| byte.is_ascii_digit()));
    number.or_else(named).ok_or_else(|| wrong(format!("{} is not a port", quoted(&text)), hint))
}

/// A mark, as `wg` reads it.
pub(super) fn mark(text: &str) -> Result<u32, InvalidValue> {
    let hint = "off, a number up to 4294967295, or 0x and digits";
    fwmark(&compact(text)).map_err(|_| wrong(format!("{} is not a mark", quoted(text)), hint))
}

/// Seconds between keepalives, as `wg` reads them.
pub(super) fn interval(text: &str) -> Result<u16, InvalidValue> {
    let hint = "off, or 1 to 65535 seconds";
    persistent_keepalive(&compact(text)).map_err(|_| wrong(format!("{} is not an interval", quoted(text)), hint))
}

/// Bytes of a packet.
pub(super) fn mtu(text: &str) -> Result<u32, InvalidValue> {
    // The least that IPv4 asks for (RFC 791), and the most that a packet can be.
    let mtu = decimal(text.as_bytes(), 65535).and_then(|mtu| u32::try_from(mtu).ok()).filter(|&mtu| mtu >= 68);
    mtu.ok_or_else(|| wrong(format!("{} is not an MTU", quoted(text)), "68 to 65535 bytes; 1420 fits into Ethernet"))
}

/// The address of a name server.
pub(super) fn server(text: &str) -> Result<NameServer, InvalidValue> {
    let hint = "192.0.2.53 or 2001:db8::53 is one";
    text.parse().map_err(|_| wrong(format!("{} is not the address of a name server", quoted(text)), hint))
}

/// A search domain, or behind `~` one that only routes questions. It becomes an argument of a program and part of a line.
pub(super) fn search_domain(text: &str) -> Result<String, InvalidValue> {
    let domain = text.strip_prefix('~').unwrap_or(text);
    let is_label = |label: &str| {
        let is_inside = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && label.chars().all(is_inside)
    };
    let name = domain.strip_suffix('.').unwrap_or(domain);
    let is_root = domain == "." && text != domain;
    if is_root || (name.len() <= 253 && name.split('.').all(is_label)) {
        return Ok(text.to_owned());
    }
    Err(wrong(format!("{} is not a search domain", quoted(text)), "corp.example or ~corp.example is one"))
}

/// The name of a user of this system.
pub(super) fn user(text: &str) -> Result<String, InvalidValue> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    // useradd(8) makes none that is longer.
    match text.len() <= 32 && text.bytes().all(is_inside) && !text.starts_with('-') {
        true => Ok(text.to_owned()),
        false => Err(wrong(format!("{} is not the name of a user", quoted(text)), "nobody is one, in /etc/passwd")),
    }
}

/// One of the words that a key takes, in any case.
pub(super) fn one_of<T: Copy>(key: &Key, text: &str, words: &[(&str, T)]) -> Result<T, InvalidValue> {
    if let Some((_, found)) = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
        return Ok(*found);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let what = match known[..] {
        // wg-quick's words, so that they can be found.
        ["true", "false"] if !may_have_key(text) => format!("`{text}' is neither true nor false"),
        _ => format!("{} is no value of {}", quoted(text), key.name),
    };
    let (last, others) = known.split_last().map_or(("", &known[..]), |(last, others)| (*last, others));
    Err(wrong(what, format!("{} is {} or {last}", key.name, others.join(", "))))
}

/// A routing table by its number or its name.
pub(super) fn table(text: &str, names: &dyn Names) -> Result<Table, InvalidValue> {
    let number = match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok(),
        _ => decimal(text.as_bytes(), u32::MAX.into()).and_then(|number| u32::try_from(number).ok()),
    };
    // The kernel's own tables (rtnetlink.h, RT_TABLE_*) have these names wherever iproute2 is installed.
    let number = number.or_else(|| match text {
        "default" => Some(253),
        "main" => Some(254),
        "local" => Some(255),
        name => names.table(name),
    });
    match number {
        // RT_TABLE_UNSPEC, which the kernel takes for main.
        Some(0) => Ok(Table::Number(254)),
        Some(number) => Ok(Table::Number(number)),
        None if text.eq_ignore_ascii_case("auto") => Ok(Table::Auto),
        None if text.eq_ignore_ascii_case("off") => Ok(Table::Off),
        None => Err(wrong(
            format!("{} is not a routing table", quoted(text)),
            "auto, off, a number, or a name of /etc/iproute2/rt_tables",
        )),
    }
}

/// Whether wg-quick takes a word of `DNS` for a server; else it is a search domain.
pub(super) fn looks_like_server(word: &str) -> bool {
    word.contains(':') || word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// The items of a list with where each begins: between commas, and if `spaces` also between white space.
pub(super) fn items(text: &str, spaces: bool) -> impl Iterator<Item = (usize, &str)> {
    let separates = move |c: char| c == ',' || (spaces && c.is_ascii() && is_space(c as u8));
    let mut next = 0;
    text.split(separates).map(move |item| {
        let start = next;
        next += item.len() + 1;
        (start, item)
    })
}

/// The value without any white space, as `wg` reads it.
pub(super) fn compact(text: &str) -> Zeroizing<String> {
    let mut kept = Zeroizing::new(String::with_capacity(text.len()));
    kept.extend(text.chars().filter(|&c| !c.is_ascii() || !is_space(c as u8)));
    kept
}
