//! The values of a tunnel file that `wg`'s command line does not share, with a hint for each that is not valid.

use std::net::IpAddr;
use std::ops::Deref;

use ipnet::IpNet;
use jiff::Timestamp;
use memchr::memchr;
use zeroize::Zeroizing;

use super::{
    ByteCount, Endpoint, FleetName, Gateway, InvalidFleetName, KeyFile, Masquerade, NameServer, Names, PublicEndpoint,
    Released, SPIN_MAX, Table,
};
use crate::document::Setting;
use crate::endpoint;
use crate::interface::InterfaceName;
use crate::keys::{BASE64_LENGTH, PublicKey, SecretKey};
use crate::number::decimal;
use crate::rate::{InvalidRate, Rate};
use crate::uapi::group::is_name;
use crate::wg_config::values::{fwmark, host_and_service, is_space, persistent_keepalive};

/// What is wrong with a value and how to fix it. No `Debug`: a value may contain a secret.
pub(super) struct InvalidValue {
    pub message: String,
    pub hint: String,
}

pub(super) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> InvalidValue {
    InvalidValue { message: message.into(), hint: hint.into() }
}

/// The value as a message quotes it: hidden if any part of it may be a misplaced secret, since messages go to journals.
fn quoted(text: &str) -> String {
    if may_have_key(text) { "the value, which may contain a key,".to_owned() } else { format!("`{text}`") }
}

/// Whether it has a longer run of base64 or hexadecimal digits than addresses, numbers and most names have.
pub(super) fn may_have_key(text: &str) -> bool {
    const RUN: usize = 24;
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let text = compact(text);
    text.as_bytes().split(|byte| !is_digit(byte)).any(|run| run.len() >= RUN)
}

/// An address and its prefix length, host bits kept; without a length, the full one. IPv4 also takes a netmask after
/// the slash, as `ip address add` does.
pub(super) fn address(text: &str) -> Result<IpNet, InvalidValue> {
    address_and_mask(text).map(|(net, _)| net)
}

/// As [`address`], and whether it has a netmask.
fn address_and_mask(text: &str) -> Result<(IpNet, bool), InvalidValue> {
    if text.is_empty() {
        return Err(invalid("this list has an empty entry", "remove the comma"));
    }
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(invalid(format!("{} is not an IP address", quoted(text)), "for example 10.0.0.1/24 or fd00::1/64"));
    };
    let Some(length) = length else { return Ok((address.into(), false)) };
    let longest: u8 = if address.is_ipv4() { 32 } else { 128 };
    let decimal = decimal(length.as_bytes(), longest.into()).and_then(|length| u8::try_from(length).ok());
    if let Some(net) = decimal.and_then(|length| IpNet::new(address, length).ok()) {
        return Ok((net, false));
    }
    let mask = length.parse::<IpAddr>().ok().and_then(|mask| IpNet::with_netmask(address, mask).ok());
    let version = if address.is_ipv4() { 4 } else { 6 };
    mask.map(|net| (net, true)).ok_or_else(|| {
        invalid(
            format!("{} is not a prefix length", quoted(&format!("/{length}"))),
            format!("IPv{version} takes 0 to {longest}"),
        )
    })
}

/// A prefix of `AllowedIPs`, host bits kept. `wg` accepts no netmask.
pub(super) fn prefix(text: &str) -> Result<IpNet, InvalidValue> {
    let (net, has_mask) = address_and_mask(text)?;
    if !has_mask {
        return Ok(net);
    }
    let base = text.split_once('/').map_or(text, |(base, _)| base);
    Err(invalid(
        format!("`{text}` has a netmask instead of a prefix length"),
        format!("write {base}/{}", net.prefix_len()),
    ))
}

/// `host:port`. The host may be a name.
/// The name of a group of peers.
pub(super) fn group(text: &str) -> Result<String, InvalidValue> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(invalid(
            format!("{} is not the name of a group", quoted(text)),
            "use up to 23 letters, digits, `-`, `_` and `.`",
        )),
    }
}

/// An address of one host.
pub(super) fn host_address(setting: &Setting, text: &str) -> Result<IpAddr, InvalidValue> {
    let hint = "for example 10.0.0.1 or fd00::1";
    text.parse().map_err(|_| invalid(format!("{} must be an IP address, not {}", setting.name, quoted(text)), hint))
}

pub(super) fn peer_endpoint(text: &str) -> Result<Endpoint, InvalidValue> {
    let text = &*compact(text);
    let form = "for example 192.0.2.1:51820, [2001:db8::1]:51820 or vpn.example.com:51820";
    let Ok((host, service)) = host_and_service(text) else {
        return Err(invalid(format!("{} is not an endpoint: it needs a host and a port", quoted(text)), form));
    };
    // The base64 digits `+`, `/` and `=` are in no host name, but may be in the name of a zone.
    if host.is_empty() || (host.contains(['+', '/', '=']) && !host.contains('%')) {
        return Err(invalid(format!("{} does not name a host", quoted(text)), form));
    }
    let is_number = service.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && decimal(service.as_bytes(), u16::MAX.into()).is_none() {
        return Err(invalid(format!("{service} is not a port"), "use 1 to 65535"));
    }
    let numeric = if host.contains(':') { format!("[{host}]:{service}") } else { format!("{host}:{service}") };
    let named = || Endpoint::Name { host: host.to_owned(), service: service.to_owned() };
    Ok(endpoint::parse(numeric.as_bytes()).map_or_else(named, Endpoint::Address))
}

/// A private or preshared key. An invalid value is not quoted: it may be most of a secret.
pub(super) fn secret_key(setting: &Setting, text: &str) -> Result<SecretKey, InvalidValue> {
    let key = SecretKey::from_base64(text.as_bytes()).or_else(|| SecretKey::from_base64(compact(text).as_bytes()));
    key.ok_or_else(|| not_a_key(setting, text))
}

/// A public key. An invalid value is not quoted: it may be a misplaced secret.
pub(super) fn public_key(setting: &Setting, text: &str) -> Result<PublicKey, InvalidValue> {
    let key = PublicKey::from_base64(text.as_bytes()).or_else(|| PublicKey::from_base64(compact(text).as_bytes()));
    key.ok_or_else(|| not_a_key(setting, text))
}

fn not_a_key(setting: &Setting, text: &str) -> InvalidValue {
    let mut message = format!("the value of {} is not a key", setting.name);
    let length = compact(text).chars().count();
    if length != BASE64_LENGTH {
        message += &format!(": it has {length} characters");
    }
    invalid(message, "a key is 44 base64 characters and ends in `=`")
}

/// The file of a key.
pub(super) fn key_file(text: &str) -> Result<KeyFile, InvalidValue> {
    if SecretKey::from_base64(compact(text).as_bytes()).is_some() {
        return Err(invalid("this is a key, not the path of a key file", "use PrivateKey or PresharedKey for a key"));
    }
    let hint = "write credential:NAME, without slashes";
    KeyFile::parse(text).ok_or_else(|| invalid("this is not a credential name", hint))
}

/// A port, by number or service name.
pub(super) fn listen_port(text: &str, names: &dyn Names) -> Result<u16, InvalidValue> {
    let text = compact(text);
    let number = decimal(text.as_bytes(), u16::MAX.into()).and_then(|port| u16::try_from(port).ok());
    let hint = "use 0 to 65535; with 0 the system chooses one";
    // getaddrinfo would read 70000 as 4464.
    let named = || names.port(&text).filter(|_| !text.bytes().all(|byte| byte.is_ascii_digit()));
    number.or_else(named).ok_or_else(|| invalid(format!("{} is not a port", quoted(&text)), hint))
}

/// A mark, as `wg` reads it.
pub(super) fn mark(text: &str) -> Result<u32, InvalidValue> {
    let hint = "use off, a number up to 4294967295, or 0x and hexadecimal digits";
    fwmark(&compact(text)).map_err(|_| invalid(format!("{} is not a mark", quoted(text)), hint))
}

/// Seconds between keepalives, as `wg` reads them.
pub(super) fn interval(text: &str) -> Result<u16, InvalidValue> {
    let hint = "use off, or 1 to 65535 seconds";
    persistent_keepalive(&compact(text)).map_err(|_| invalid(format!("{} is not an interval", quoted(text)), hint))
}

/// The MTU in bytes.
pub(super) fn mtu(text: &str) -> Result<u32, InvalidValue> {
    // The minimum of IPv4 (RFC 791), and the longest packet.
    let mtu = decimal(text.as_bytes(), 65535).and_then(|mtu| u32::try_from(mtu).ok()).filter(|&mtu| mtu >= 68);
    mtu.ok_or_else(|| invalid(format!("{} is not an MTU", quoted(text)), "use 68 to 65535 bytes; 1420 fits Ethernet"))
}

/// The address of a name server.
pub(super) fn server(text: &str) -> Result<NameServer, InvalidValue> {
    let hint = "for example 192.0.2.53 or 2001:db8::53";
    text.parse().map_err(|_| invalid(format!("{} is not the address of a name server", quoted(text)), hint))
}

/// A search domain, or after `~` one that only routes queries. It becomes a command-line argument and part of a line.
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
    Err(invalid(format!("{} is not a search domain", quoted(text)), "for example corp.example or ~corp.example"))
}

/// A user name.
pub(super) fn user(text: &str) -> Result<String, InvalidValue> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    // useradd(8) allows no longer name.
    match text.len() <= 32 && text.bytes().all(is_inside) && !text.starts_with('-') {
        true => Ok(text.to_owned()),
        false => Err(invalid(format!("{} is not a user name", quoted(text)), "for example nobody, from /etc/passwd")),
    }
}

/// Where clients reach the server.
pub(super) fn public_endpoint(text: &str) -> Result<PublicEndpoint, InvalidValue> {
    let hint = "for example vpn.example.com, 192.0.2.1:51820 or [2001:db8::1]:51820";
    text.parse().map_err(|_| invalid(format!("{} is not a public endpoint", quoted(text)), hint))
}

/// An instant.
pub(super) fn instant(text: &str) -> Result<Timestamp, InvalidValue> {
    let hint = "for example 2030-01-31T22:59:59Z";
    text.parse().map_err(|_| invalid(format!("{} is not a time", quoted(text)), hint))
}

/// How many bytes a client may send and receive.
pub(super) fn quota(text: &str) -> Result<ByteCount, InvalidValue> {
    let hint = "for example 50G (decimal) or 50Gi (binary)";
    text.parse().map_err(|_| invalid(format!("{} is not a number of bytes", quoted(text)), hint))
}

/// How fast a client may receive and send.
pub(super) fn rate(text: &str) -> Result<Rate, InvalidValue> {
    text.parse().map_err(|error| match error {
        InvalidRate::Range(_) => {
            invalid(format!("{} is not a rate that can be kept", quoted(text)), "use 64k to 100G bits per second")
        }
        InvalidRate::Text(_) => {
            invalid(format!("{} is not a rate", quoted(text)), "for example 20M, or 20M/5M for 20 Mbit/s down and 5 up")
        }
        InvalidRate::Nothing(_) => invalid(format!("{} limits neither direction", quoted(text)), "remove the line"),
    })
}

/// A server or search domain for client files.
pub(super) fn dns_word(word: &str) -> Result<String, InvalidValue> {
    if looks_like_server(word) { server(word).map(|server| server.to_string()) } else { search_domain(word) }
}

/// A time, and the addresses that were released then.
pub(super) fn released(text: &str) -> Result<Released, InvalidValue> {
    let (time, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let addresses = items(rest, true).map(|(_, item)| item).filter(|item| !item.is_empty()).map(|item| {
        item.parse::<IpAddr>().map_err(|_| invalid(format!("{} is not an IP address", quoted(item)), "remove it"))
    });
    Ok(Released { time: instant(time)?, addresses: addresses.collect::<Result<_, _>>()? })
}

/// Microseconds for which the daemon looks for packets.
pub(super) fn spin(text: &str) -> Result<u16, InvalidValue> {
    let number = decimal(text.as_bytes(), SPIN_MAX.into()).map(|number| number as u16);
    number.ok_or_else(|| {
        let message = format!("{} is not a number of microseconds, 0 to {SPIN_MAX}", quoted(text));
        invalid(message, "for example 200; 0 turns it off")
    })
}

/// The name of a fleet.
pub(super) fn fleet(text: &str) -> Result<FleetName, InvalidValue> {
    if may_have_key(text) {
        return Err(invalid(format!("{} is not the name of a fleet", quoted(text)), "for example berlin"));
    }
    text.parse()
        .map_err(|error: InvalidFleetName| invalid(format!("{} is {error}", quoted(text)), "for example berlin"))
}

/// `auto`, `off`, or interfaces other than the tunnel's own, each once.
pub(super) fn gateway(text: &str, own: &InterfaceName) -> Result<Gateway, InvalidValue> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Gateway::Auto);
    }
    if text.eq_ignore_ascii_case("off") {
        return Ok(Gateway::Off);
    }
    let mut names: Vec<InterfaceName> = Vec::new();
    for (_, word) in items(text, true).filter(|(_, word)| !word.is_empty()) {
        let hint = "use auto, off, or interfaces such as eth0, separated by commas";
        let name = word.parse::<InterfaceName>().ok().filter(|_| !may_have_key(word));
        let name = name.ok_or_else(|| invalid(format!("{} is not an interface", quoted(word)), hint))?;
        if ["auto", "off"].iter().any(|alone| word.eq_ignore_ascii_case(alone)) {
            return Err(invalid(format!("{word} stands alone"), hint));
        }
        if ["lo", own.as_str()].contains(&word) {
            return Err(invalid(format!("{word} cannot be its own gateway"), hint));
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => Err(invalid("this list has no interface", "use auto, off, or interfaces such as eth0")),
        false => Ok(Gateway::Interfaces(names)),
    }
}

/// The families whose addresses are translated.
pub(super) fn masquerade(text: &str) -> Result<Masquerade, InvalidValue> {
    let mut families = Masquerade::default();
    for (_, word) in items(text, true).filter(|(_, word)| !word.is_empty()) {
        match &*word.to_ascii_lowercase() {
            "ipv4" => families.ipv4 = true,
            "ipv6" => families.ipv6 = true,
            "both" => families = Masquerade { ipv4: true, ipv6: true },
            "off" if compact(text).len() == word.len() => {}
            _ => {
                let message = format!("{} is not a value of Masquerade", quoted(word));
                return Err(invalid(message, "use ipv4, ipv6, both or off"));
            }
        }
    }
    Ok(families)
}

/// One of the words that a setting accepts, in upper or lower case.
pub(super) fn one_of<T: Copy>(setting: &Setting, text: &str, words: &[(&str, T)]) -> Result<T, InvalidValue> {
    if let Some((_, found)) = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
        return Ok(*found);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let message = match known[..] {
        // wg-quick's own message, so that a web search finds it.
        ["true", "false"] if !may_have_key(text) => format!("`{text}' is neither true nor false"),
        _ => format!("{} is not a value of {}", quoted(text), setting.name),
    };
    let (last, others) = known.split_last().map_or(("", &known[..]), |(last, others)| (*last, others));
    Err(invalid(message, format!("use {} or {last}", others.join(", "))))
}

/// A routing table, by number or name.
pub(super) fn table(text: &str, names: &dyn Names) -> Result<Table, InvalidValue> {
    let number = match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok(),
        _ => decimal(text.as_bytes(), u32::MAX.into()).and_then(|number| u32::try_from(number).ok()),
    };
    // The names that iproute2 gives the kernel's own tables (rtnetlink.h, RT_TABLE_*).
    let number = number.or_else(|| match text {
        "default" => Some(253),
        "main" => Some(254),
        "local" => Some(255),
        name => names.table(name),
    });
    match number {
        // RT_TABLE_UNSPEC, which the kernel reads as main.
        Some(0) => Ok(Table::Number(254)),
        Some(number) => Ok(Table::Number(number)),
        None if text.eq_ignore_ascii_case("auto") => Ok(Table::Auto),
        None if text.eq_ignore_ascii_case("off") => Ok(Table::Off),
        None => Err(invalid(
            format!("{} is not a routing table", quoted(text)),
            "use auto, off, a number, or a name from /etc/iproute2/rt_tables",
        )),
    }
}

/// Whether wg-quick reads a word of `DNS` as a server rather than a search domain.
pub(super) fn looks_like_server(word: &str) -> bool {
    word.contains(':') || word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// The items of a list with their offsets, separated by commas and, if `spaces`, also by white space.
pub(super) fn items(text: &str, spaces: bool) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = Some((0, text));
    std::iter::from_fn(move || {
        let (start, text) = rest.take()?;
        let end = match spaces {
            true => text.bytes().position(|byte| byte == b',' || is_space(byte)),
            false => memchr(b',', text.as_bytes()),
        };
        let Some(end) = end else { return Some((start, text)) };
        rest = Some((start + end + 1, &text[end + 1..]));
        Some((start, &text[..end]))
    })
}

/// The value without any white space, as `wg` reads it.
pub(super) fn compact(text: &str) -> Compact<'_> {
    let text = text.trim_matches(|c: char| c.is_ascii() && is_space(c as u8));
    // All bytes are looked at, many at a time: few values have white space.
    if !text.bytes().fold(false, |found, byte| found | is_space(byte)) {
        return Compact::Same(text);
    }
    let mut kept = Zeroizing::new(String::with_capacity(text.len()));
    kept.extend(text.chars().filter(|&c| !c.is_ascii() || !is_space(c as u8)));
    Compact::Copy(kept)
}

/// A value without white space.
pub(super) enum Compact<'a> {
    /// It had none inside.
    Same(&'a str),
    /// What is left of it, wiped when dropped.
    Copy(Zeroizing<String>),
}

impl Deref for Compact<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Same(text) => text,
            Self::Copy(text) => text,
        }
    }
}
