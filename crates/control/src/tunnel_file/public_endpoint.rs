//! Where clients reach a server: a name or an address, and a port if it is another than the one that it listens on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::number::decimal;
use crate::printable::printable;

/// `PublicEndpoint`: `host`, `host:port`, `[IPv6 address]` or `[IPv6 address]:port`. Safe in a line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicEndpoint {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
}

/// The text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a public endpoint: write vpn.example.com, 192.0.2.1:51820 or [2001:db8::1]:51820")]
pub struct InvalidPublicEndpoint(String);

impl PublicEndpoint {
    /// The address, if it is not a name.
    pub fn address(&self) -> Option<IpAddr> {
        match self.host {
            Host::Address(address) => Some(address),
            Host::Name(_) => None,
        }
    }

    /// The port that clients send to, if it differs from the one that the server listens on.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The `Endpoint` of client files, for a server that listens on `listen_port`.
    pub fn with_port(&self, listen_port: u16) -> String {
        Self { port: Some(self.port.unwrap_or(listen_port)), host: self.host.clone() }.to_string()
    }

    /// The same for a server that listens on `to` and no longer on `from`: a port that says the same follows, and one that
    /// a router forwards stays.
    #[must_use]
    pub fn moved(&self, from: u16, to: u16) -> Self {
        let port = self.port.map(|port| if port == from { to } else { port });
        Self { port, host: self.host.clone() }
    }
}

/// An address, and the port that the server listens on.
impl From<IpAddr> for PublicEndpoint {
    fn from(address: IpAddr) -> Self {
        Self { host: Host::Address(address), port: None }
    }
}

impl FromStr for PublicEndpoint {
    type Err = InvalidPublicEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidPublicEndpoint> {
        parse(text).ok_or_else(|| InvalidPublicEndpoint(printable(text).into_owned()))
    }
}

/// As in the file.
impl fmt::Display for PublicEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            Host::Address(address) => write!(f, "{address}")?,
            Host::Name(name) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn parse(text: &str) -> Option<PublicEndpoint> {
    let with_port = |host, port: Option<&str>| {
        let port = port.map(|port| decimal(port.as_bytes(), u16::MAX.into()).filter(|&port| port != 0));
        let port = match port {
            Some(port) => Some(u16::try_from(port?).ok()?),
            None => None,
        };
        Some(PublicEndpoint { host, port })
    };
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return with_port(usable(address.into())?, None);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
        return with_port(usable(address.parse::<Ipv6Addr>().ok()?.into())?, port);
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let host = match host.parse::<Ipv4Addr>() {
        Ok(address) => usable(address.into())?,
        Err(_) => Host::Name(host_name(host)?.to_owned()),
    };
    with_port(host, port)
}

/// An address that a datagram can be sent to. A mapped IPv4 address is one of IPv4.
fn usable(address: IpAddr) -> Option<Host> {
    let address = address.to_canonical();
    (!address.is_unspecified() && !address.is_multicast()).then_some(Host::Address(address))
}

/// A host name. One whose last label is a number would be read as an address (RFC 3696, section 2).
fn host_name(text: &str) -> Option<&str> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label =
        |label: &str| !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && label.bytes().all(is_inside);
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_number = name.rsplit('.').next()?.bytes().all(|byte| byte.is_ascii_digit());
    (name.len() <= 253 && !is_number && name.split('.').all(is_label)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_written_as_it_is_read() {
        let names = ["vpn.example.com", "vpn.example.com:443", "vpn.example.com.", "a", "xn--bcher-kva.example:1"];
        let addresses = ["192.0.2.1", "192.0.2.1:65535", "[2001:db8::1]", "[2001:db8::1]:51820"];
        for text in names.into_iter().chain(addresses) {
            assert_eq!(text.parse::<PublicEndpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_address_of_ipv6_needs_no_brackets_without_a_port() {
        let endpoint: PublicEndpoint = "2001:db8::1".parse().unwrap();
        assert_eq!(endpoint.to_string(), "[2001:db8::1]");
        assert_eq!(endpoint.address(), Some("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn clients_send_to_the_port_that_is_named_or_else_to_the_one_that_is_listened_on() {
        let client = |text: &str| text.parse::<PublicEndpoint>().unwrap().with_port(51820);
        assert_eq!(client("vpn.example.com"), "vpn.example.com:51820");
        assert_eq!(client("vpn.example.com:443"), "vpn.example.com:443");
        assert_eq!(client("2001:db8::1"), "[2001:db8::1]:51820");
    }

    #[test]
    fn what_a_client_could_not_send_to_is_refused() {
        let hosts =
            ["", "a b", "a..b", "-a", "a/b", "a#b", "a\nb", "é.example", "999.999.999.", "127.1", "0.0.0.0", "::"];
        let ports = ["a:", "a:0", "a:65536", "a:http", "a:1:2", "[::1", "[::1]1", "[::1]:", "[a]:1", "[]:1", "ff02::1"];
        for text in hosts.into_iter().chain(ports).chain(["fe80::1%eth0", "224.0.0.1", ":51820"]) {
            assert!(text.parse::<PublicEndpoint>().is_err(), "{text:?}");
        }
        assert!(format!("{}.example", "a".repeat(64)).parse::<PublicEndpoint>().is_err());
    }
}
