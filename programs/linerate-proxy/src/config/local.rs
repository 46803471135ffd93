//! Local addresses to listen on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::target;

/// `ADDRESS:PORT`, `localhost:PORT` (both families), or `:PORT` and `*:PORT` (all addresses).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    host: Option<IpAddr>,
    is_everywhere: bool,
    port: u16,
}

/// The text is not a local address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLocal;

impl Local {
    /// The host's loopback addresses.
    pub fn loopback(port: u16) -> Self {
        Self { host: None, is_everywhere: false, port }
    }

    /// An address as ssh's -L has it, and its port.
    pub fn new(host: &str, port: u16) -> Result<Self, NotLocal> {
        match host {
            "" | "*" => Ok(Self { host: None, is_everywhere: true, port }),
            _ if host.eq_ignore_ascii_case("localhost") => Ok(Self::loopback(port)),
            _ => host.parse().map(|host| Self { host: Some(host), is_everywhere: false, port }).map_err(|_| NotLocal),
        }
    }

    /// Each of these has to be listened on; of `localhost` and of all addresses one is enough, because a host may be
    /// without IPv6.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let both = |six: Ipv6Addr, four: Ipv4Addr| [IpAddr::V6(six), IpAddr::V4(four)].to_vec();
        let hosts = match self.host {
            Some(host) => vec![host],
            None if self.is_everywhere => both(Ipv6Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED),
            None => both(Ipv6Addr::LOCALHOST, Ipv4Addr::LOCALHOST),
        };
        hosts.into_iter().map(|host| SocketAddr::new(host, self.port)).collect()
    }

    /// Whether one of its addresses suffices.
    pub fn may_lack_a_family(&self) -> bool {
        self.host.is_none()
    }

    /// Whether only this host reaches it.
    pub fn is_loopback(&self) -> bool {
        self.host.map_or(!self.is_everywhere, |host| host.is_loopback())
    }
}

impl FromStr for Local {
    type Err = NotLocal;

    fn from_str(text: &str) -> Result<Self, NotLocal> {
        let (host, port) = text.rsplit_once(':').ok_or(NotLocal)?;
        let host = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
            Some(inner) => inner.filter(|inner| inner.parse::<Ipv6Addr>().is_ok()).ok_or(NotLocal)?,
            None if host.contains(':') => return Err(NotLocal),
            None => host,
        };
        Self::new(host, target::port(port).ok_or(NotLocal)?)
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Some(host) => SocketAddr::new(host, self.port).fmt(f),
            None => write!(f, "{}:{}", if self.is_everywhere { "*" } else { "localhost" }, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_has_a_port_and_no_name_but_localhost() {
        for text in ["127.0.0.1:1080", "[::1]:1080", "localhost:1080", "*:1080", "0.0.0.0:443"] {
            assert_eq!(text.parse::<Local>().unwrap().to_string(), text);
        }
        assert_eq!(":53".parse::<Local>().unwrap().to_string(), "*:53");
        for text in ["", "1080", "127.0.0.1", "127.0.0.1:0", "::1:80", "[127.0.0.1]:80", "proxy.lan:80", "[::1:80"] {
            assert_eq!(text.parse::<Local>(), Err(NotLocal), "{text}");
        }
    }

    #[test]
    fn only_loopback_is_private() {
        let private = |text: &str| text.parse::<Local>().unwrap().is_loopback();
        assert!(private("127.0.0.1:1") && private("[::1]:1") && private("localhost:1"));
        assert!(!private("0.0.0.0:1") && !private(":1") && !private("192.0.2.1:1"));
    }
}
