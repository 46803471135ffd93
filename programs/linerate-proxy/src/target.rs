//! Where connections go to, as clients and files say it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A host: an address, or a name that is still to be looked up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name, in lower case and without the dot at its end.
    Name(String),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

/// The text is not a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotATarget;

impl Host {
    /// Reads an address (IPv6 without brackets) or a host name.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=63).contains(&label.len()) && label.bytes().all(is_part)
        };
        // What ends in a number is an address in a form that only old resolvers read (127.1), not a name.
        let ends_in_number = name.rsplit('.').next().is_some_and(|last| {
            let digits = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
            digits.map_or_else(
                || last.bytes().all(|byte| byte.is_ascii_digit()),
                |digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
            )
        });
        let is_name = name.len() <= 253 && name.split('.').all(is_label) && !ends_in_number;
        is_name.then(|| Self::Name(name.to_ascii_lowercase()))
    }
}

impl Target {
    /// Reads `HOST:PORT` as it stands in a URL: an IPv6 address has brackets, and the port may be missing if there is
    /// a default.
    pub fn parse(text: &str, default_port: Option<u16>) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                host.parse::<std::net::Ipv6Addr>().ok()?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some(port) => self::port(port)?,
            None => default_port?,
        };
        Some(Self { host: Host::parse(host)?, port })
    }
}

/// A port that can be connected to: decimal digits and not 0.
pub fn port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&port| is_number && port != 0)
}

impl FromStr for Target {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, NotATarget> {
        Self::parse(text, None).ok_or(NotATarget)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Address(address.ip().to_canonical()), port: address.port() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        for text in
            ["192.0.2.1:80", "[2001:db8::1]:443", "example.org:22", "a_b.example:1", "xn--bcher-kva.example:65535"]
        {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert_eq!("Example.ORG.:80".parse::<Target>().unwrap().to_string(), "example.org:80");
        assert_eq!("[::ffff:192.0.2.1]:80".parse::<Target>().unwrap().to_string(), "192.0.2.1:80");
        assert_eq!(Target::parse("example.org", Some(80)).unwrap().port, 80);
        assert_eq!(Target::parse("[2001:db8::1]", Some(80)).unwrap().to_string(), "[2001:db8::1]:80");
    }

    #[test]
    fn what_only_some_programs_take_for_an_address_is_refused() {
        let long = format!("{}:80", "a.".repeat(127) + "a");
        let none =
            ["", ":80", "a", "a:", "a:0", "a:65536", "a:+80", "a b:80", "a..b:80", "bücher:80", "2001:db8::1:80"];
        for text in
            none.into_iter().chain(["127.1:80", "0x7f:80", "1:80", "[a]:80", "[::1]80", "[::1", "a:80:80", &long])
        {
            assert_eq!(text.parse::<Target>(), Err(NotATarget), "{text}");
        }
    }
}
