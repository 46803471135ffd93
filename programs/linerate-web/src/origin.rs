//! Who a request comes from, by its headers: which names the page answers to, which pages may post to it, and what a
//! proxy says of its client.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};

/// The names that the page answers to: a name that an attacker's DNS points here is none of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    port: Option<u16>,
}

impl Hosts {
    /// `localhost` and the address that is listened on, with its port; and names with any port.
    pub(crate) fn new(listen: Option<SocketAddr>, names: &[String]) -> Self {
        let mut addresses: Vec<IpAddr> = listen.iter().map(SocketAddr::ip).collect();
        if listen.is_none_or(|address| address.ip().is_loopback()) {
            addresses.extend([IpAddr::from([127, 0, 0, 1]), "::1".parse().expect("this is an address")]);
        }
        Self {
            names: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            addresses,
            port: listen.map(|address| address.port()),
        }
    }

    /// Whether the page answers to the value of `Host`.
    pub(crate) fn have(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let (name, port) = match host.rsplit_once(':') {
            Some((name, digits)) if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                match digits.parse::<u16>() {
                    Ok(port) => (name, Some(port)),
                    Err(_) => return false,
                }
            }
            _ => (&*host, None),
        };
        if self.names.iter().any(|known| known == name) {
            return true;
        }
        let is_port = self.port.is_none_or(|own| port.unwrap_or(80) == own || port.unwrap_or(443) == own);
        let literal = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let is_loopback = self.addresses.iter().any(IpAddr::is_loopback);
        let is_own = literal.parse().is_ok_and(|address| self.addresses.contains(&address));
        is_port && (is_own || name == "localhost" && is_loopback)
    }
}

/// The value of `Host`, if there is exactly one.
pub(crate) fn host(headers: &HeaderMap) -> Option<&str> {
    only(headers, &HOST)
}

/// Whether the page itself may have sent a POST, as far as the browser says: of `Origin` and `Sec-Fetch-Site`, whatever
/// is there must not speak of another page. (A browser that is told to send no referrer says `Origin: null`; over plain
/// HTTP to another host than this it does not send the other one. The form's own secret decides then.)
pub(crate) fn is_own(headers: &HeaderMap, host: &str, is_tls: bool) -> bool {
    const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    let scheme = if is_tls { "https" } else { "http" };
    let site = match (headers.contains_key(&SITE), only(headers, &SITE)) {
        (true, value) => value == Some("same-origin"),
        (false, _) => true,
    };
    let origin = match (headers.contains_key(ORIGIN), only(headers, &ORIGIN)) {
        (false, _) | (_, Some("null")) => true,
        (_, Some(value)) => value.eq_ignore_ascii_case(&format!("{scheme}://{host}")),
        (_, None) => false,
    };
    site && origin
}

/// What is known of the client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Its address; none behind a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// Whether it speaks TLS, to us or to the proxy.
    pub(crate) is_tls: bool,
}

/// The client of a connection from `peer`: what the proxy says, if it is the proxy's, and else what we see.
pub(crate) fn source(headers: &HeaderMap, peer: Option<IpAddr>, is_tls: bool, proxy: Option<IpAddr>) -> Source {
    if proxy.is_none() || proxy != peer {
        return Source { address: peer, is_tls };
    }
    // The last one is what the proxy itself has added.
    let last = |name: &'static str| {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.next_back().and_then(|value| value.rsplit(',').next()).map(str::trim)
    };
    let address = last("x-forwarded-for").and_then(|text| text.parse().ok());
    Source { address: address.or(peer), is_tls: is_tls || last("x-forwarded-proto") == Some("https") }
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_name_that_somebody_points_here_is_not_answered() {
        let hosts = Hosts::new("127.0.0.1:7789".parse().ok(), &["vpn.example.org".to_owned()]);
        for host in [
            "127.0.0.1:7789",
            "localhost:7789",
            "LOCALHOST:7789",
            "[::1]:7789",
            "vpn.example.org",
            "VPN.example.org:8443",
        ] {
            assert!(hosts.have(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7789",
            "127.0.0.1",
            "127.0.0.1:80",
            "localhost.evil.example:7789",
            "",
            ":7789",
            "vpn.example.org.evil.example",
            "127.0.0.1:7789:7789",
            "127.0.0.1:99999",
            "0.0.0.0:7789",
            "[::1",
            "10.0.0.1:7789",
        ] {
            assert!(!hosts.have(host), "{host}");
        }
        let tunnel = Hosts::new("10.0.0.1:7789".parse().ok(), &[]);
        assert!(tunnel.have("10.0.0.1:7789"));
        assert!(!tunnel.have("localhost:7789"));
    }

    #[test]
    fn two_hosts_are_none() {
        assert_eq!(host(&headers(&[("host", "a"), ("host", "b")])), None);
        assert_eq!(host(&headers(&[("host", "a")])), Some("a"));
        assert_eq!(host(&headers(&[])), None);
    }

    #[test]
    fn another_page_cannot_post() {
        let own = |list: &[(&'static str, &'static str)]| is_own(&headers(list), "localhost:7789", false);
        assert!(own(&[("origin", "null"), ("sec-fetch-site", "same-origin")]));
        assert!(own(&[("origin", "http://localhost:7789")]));
        assert!(own(&[]));
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(!own(&[("origin", "null"), ("sec-fetch-site", site)]), "{site}");
        }
        for origin in
            ["http://evil.example", "https://localhost:7789", "http://localhost", "http://localhost:7789.evil"]
        {
            assert!(!own(&[("origin", origin)]), "{origin}");
        }
        assert!(!own(&[("origin", "null"), ("origin", "http://localhost:7789")]));
        assert!(is_own(&headers(&[("origin", "https://vpn.example.org")]), "vpn.example.org", true));
    }

    #[test]
    fn only_the_proxy_is_believed() {
        let said = headers(&[("x-forwarded-for", "198.51.100.7, 203.0.113.9"), ("x-forwarded-proto", "https")]);
        let (proxy, other): (IpAddr, IpAddr) = ([10, 0, 0, 9].into(), [10, 0, 0, 8].into());
        let client: IpAddr = [203, 0, 113, 9].into();
        assert_eq!(source(&said, Some(proxy), false, Some(proxy)), Source { address: Some(client), is_tls: true });
        assert_eq!(source(&said, Some(other), false, Some(proxy)), Source { address: Some(other), is_tls: false });
        assert_eq!(source(&said, Some(other), false, None), Source { address: Some(other), is_tls: false });
        assert_eq!(source(&said, None, false, None), Source { address: None, is_tls: false });
    }
}
