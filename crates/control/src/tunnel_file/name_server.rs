//! The address of a name server, with a zone if it is link-local (RFC 4007).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::interface::InterfaceName;

/// A name server, as resolv.conf(5) and resolvectl(1) accept it. The interface of its zone need not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NameServer {
    address: IpAddr,
    zone: Option<InterfaceName>,
}

/// The text is not the address of a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the address of a name server")]
pub struct InvalidNameServer;

impl FromStr for NameServer {
    type Err = InvalidNameServer;

    fn from_str(text: &str) -> Result<Self, InvalidNameServer> {
        let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
        let address: IpAddr = address.parse().map_err(|_| InvalidNameServer)?;
        let zone = zone.map(|zone| zone.parse().map_err(|_| InvalidNameServer)).transpose()?;
        if zone.is_some() && address.is_ipv4() {
            return Err(InvalidNameServer);
        }
        Ok(Self { address, zone })
    }
}

impl fmt::Display for NameServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            Some(zone) => write!(f, "{}%{zone}", self.address),
            None => self.address.fmt(f),
        }
    }
}

impl NameServer {
    /// The address, without a zone.
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

impl From<IpAddr> for NameServer {
    fn from(address: IpAddr) -> Self {
        Self { address, zone: None }
    }
}

impl TryFrom<String> for NameServer {
    type Error = InvalidNameServer;

    fn try_from(text: String) -> Result<Self, InvalidNameServer> {
        text.parse()
    }
}

impl From<NameServer> for String {
    fn from(server: NameServer) -> Self {
        server.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_is_an_address_with_an_optional_zone() {
        for text in ["192.0.2.53", "2001:db8::53", "fe80::1%eth0", "fe80::1%2", "fe80::1%wg_=+.-"] {
            assert_eq!(text.parse::<NameServer>().unwrap().to_string(), text);
        }
        let none = ["", "1.2.3", "1.2.3.4:53", "[::1]:53", "1.2.3.4%eth0", "fe80::1%", "fe80::1%a b", "fe80::1%a%b"];
        for text in none.into_iter().chain(["--help", "fe80::1%-\n", "1.1.1.1#one", "%eth0"]) {
            assert!(text.parse::<NameServer>().is_err(), "{text}");
        }
    }
}
