//! The numeric text of an endpoint, `1.2.3.4:5` or `[fe80::1%eth0]:5`, with a zone by its interface's name as in
//! getaddrinfo and getnameinfo.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use linerate_netio::link::{zone_index, zone_name};

use crate::number::decimal;

/// Parses an endpoint. Its zone may also be an interface index.
pub(crate) fn parse(value: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(value).ok()?;
    let bracketed = text.strip_prefix('[').and_then(|text| text.rsplit_once("]:"));
    if let Some((address, port)) = bracketed
        && let Some((address, zone)) = address.split_once('%')
    {
        return Some(canonical(SocketAddrV6::new(address.parse().ok()?, port_of(port)?, 0, index_of(zone)?).into()));
    }
    text.parse().ok().map(canonical)
}

/// An IPv4-mapped IPv6 address can only be sent to over IPv4: the IPv6 socket is v6only.
fn canonical(endpoint: SocketAddr) -> SocketAddr {
    match endpoint.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, endpoint.port()),
        IpAddr::V6(_) => endpoint,
    }
}

/// As [`parse`], for the reply of a daemon: like `wg`, it also accepts an IPv6 address without brackets, up to the last
/// colon.
pub(crate) fn parse_reply(value: &[u8]) -> Option<SocketAddr> {
    let bare = || {
        let (address, port) = std::str::from_utf8(value).ok()?.rsplit_once(':')?;
        Some(canonical(SocketAddr::new(address.parse::<Ipv6Addr>().ok()?.into(), port_of(port)?)))
    };
    parse(value).or_else(bare)
}

/// The text of `endpoint`. Its zone is the interface's name, or the index if there is no such interface.
pub fn text(endpoint: &SocketAddr) -> String {
    match endpoint {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            let index = v6.scope_id();
            let zone = zone_of(endpoint).unwrap_or_else(|| index.to_string());
            format!("[{}%{zone}]:{}", v6.ip(), v6.port())
        }
        _ => endpoint.to_string(),
    }
}

/// Whether the interface of the endpoint's zone is gone, so that its index is meaningless.
pub(crate) fn has_stale_zone(endpoint: &SocketAddr) -> bool {
    matches!(endpoint, SocketAddr::V6(v6) if v6.scope_id() != 0) && zone_of(endpoint).is_none()
}

/// The interface name of the endpoint's zone.
fn zone_of(endpoint: &SocketAddr) -> Option<String> {
    let SocketAddr::V6(v6) = endpoint else { return None };
    zone_name(v6.scope_id()).ok()
}

/// The index of the zone, given by name or index.
fn index_of(text: &str) -> Option<u32> {
    zone_index(text).ok().or_else(|| decimal(text.as_bytes(), u32::MAX.into())?.try_into().ok())
}

fn port_of(text: &str) -> Option<u16> {
    decimal(text.as_bytes(), u16::MAX.into())?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_written_by_name() {
        for spelled in ["192.0.2.1:0", "[2001:db8::1]:51820", "[fe80::1%lo]:65535"] {
            assert_eq!(text(&parse(spelled.as_bytes()).unwrap()), spelled);
        }
        assert_eq!(text(&SocketAddrV6::new([0; 8].into(), 1, 0, u32::MAX).into()), "[::%4294967295]:1");
    }

    #[test]
    fn a_zone_is_stale_when_no_interface_has_its_index() {
        let in_zone = |index| SocketAddr::from(SocketAddrV6::new([0xfe80, 0, 0, 0, 0, 0, 0, 1].into(), 1, 0, index));
        let lo = parse(b"[fe80::1%lo]:1").unwrap();
        assert_eq!([lo, in_zone(u32::MAX), in_zone(0)].map(|endpoint| has_stale_zone(&endpoint)), [false, true, false]);
    }

    #[test]
    fn a_mapped_ipv4_address_is_ipv4_however_it_is_written() {
        let plain = Some("1.2.3.4:5".parse().unwrap());
        for value in ["[::ffff:1.2.3.4]:5", "[::ffff:1.2.3.4%0]:5", "[::ffff:1.2.3.4%lo]:5", "::ffff:1.2.3.4:5"] {
            assert_eq!(parse_reply(value.as_bytes()), plain, "{value}");
        }
    }

    #[test]
    fn an_invalid_endpoint_is_rejected() {
        let none = ["", ":1", "[]:1", "[fe80::1%]:1", "[fe80::1%none]:1", "[fe80::1%lo]", "[fe80::1%lo]:", "[%lo]:1"];
        let none = none.into_iter().chain(["[fe80::1%4294967296]:1", "[fe80::1%lo]:65536", "fe80::1%lo:1", "h:1"]);
        for text in none {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
            assert_eq!(parse_reply(text.as_bytes()), None, "{text}");
        }
        assert_eq!((parse(b"fe80::1:7"), parse_reply(b"fe80::1:7")), (None, Some("[fe80::1]:7".parse().unwrap())));
    }
}
