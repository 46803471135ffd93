//! Where the page listens: on this host, or inside a tunnel; anywhere else only behind TLS, or behind a proxy that has
//! it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// HTTP or HTTPS.
    Tcp(SocketAddr),
    /// HTTP, for this program's own user.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err("the path of a socket starts with `/'".to_owned()),
            };
        }
        text.parse().map(Self::Tcp).map_err(|_| "write 127.0.0.1:7789, [::1]:7789 or unix:/PATH".to_owned())
    }
}

/// Whether passwords and keys may cross `address` as they are: nobody else is on this host's loopback or in a tunnel.
pub(crate) fn is_private(address: IpAddr, tunnels: &[IpAddr]) -> bool {
    address.is_loopback() || tunnels.contains(&address)
}

/// Whether the page may listen there.
///
/// # Errors
/// Anybody on the way could read along.
pub(crate) fn check(address: IpAddr, is_tls: bool, proxy: Option<IpAddr>, tunnels: &[IpAddr]) -> Result<(), String> {
    if is_tls || proxy.is_some() || is_private(address, tunnels) {
        return Ok(());
    }
    Err(format!(
        "{address} is neither of this host's loopback nor the address of a running tunnel: give --tls-certificate and \
         --tls-key, or --behind-proxy ADDRESS with the address of a proxy that speaks TLS"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_a_tunnel_go_without_tls() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let tunnels = [address("10.0.0.1"), address("fd00::1")];
        for own in ["127.0.0.1", "127.8.9.1", "::1", "10.0.0.1", "fd00::1"] {
            assert_eq!(check(address(own), false, None, &tunnels), Ok(()), "{own}");
        }
        for other in ["0.0.0.0", "::", "192.0.2.1", "10.0.0.2", "::ffff:127.0.0.1"] {
            assert!(check(address(other), false, None, &tunnels).is_err(), "{other}");
            assert_eq!(check(address(other), true, None, &tunnels), Ok(()), "{other}");
            assert_eq!(check(address(other), false, Some(address("192.0.2.9")), &tunnels), Ok(()), "{other}");
        }
    }

    #[test]
    fn an_address_has_a_port_and_a_socket_a_path() {
        assert_eq!("127.0.0.1:80".parse(), Ok(Listen::Tcp("127.0.0.1:80".parse().unwrap())));
        assert_eq!("unix:/run/x".parse(), Ok(Listen::Unix("/run/x".into())));
        for text in ["", "127.0.0.1", "localhost:80", "unix:x", ":80", "0:80"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
