//! The numeric text of an endpoint, `1.2.3.4:5` or `[fe80::1%eth0]:5`, as getaddrinfo and getnameinfo
//! read and write it: a zone by its interface's name.

use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::uapi::decimal;

/// The endpoint that `value` spells; a zone may also be the interface's index.
pub(crate) fn parse(value: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(value).ok()?;
    if let Ok(endpoint) = text.parse::<SocketAddr>() {
        // An IPv4 address in IPv6 clothes can only be sent to over IPv4: the IPv6 socket is v6only.
        return Some(SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port()))
            .filter(SocketAddr::is_ipv4)
            .or(Some(endpoint));
    }
    let (address, port) = text.strip_prefix('[')?.rsplit_once("]:")?;
    let (address, zone) = address.split_once('%')?;
    let port = decimal(port.as_bytes(), u16::MAX.into()).and_then(|port| u16::try_from(port).ok())?;
    let index = netdevice::name_to_index(any_socket()?, zone).ok()?;
    Some(SocketAddrV6::new(address.parse().ok()?, port, 0, index).into())
}

/// The text of `endpoint`; the zone is its index if no interface has that.
pub fn text(endpoint: &SocketAddr) -> String {
    match endpoint {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            let index = v6.scope_id();
            let name = any_socket().and_then(|any| netdevice::index_to_name(any, index).ok());
            let zone = name.unwrap_or_else(|| index.to_string());
            format!("[{}%{zone}]:{}", v6.ip(), v6.port())
        }
        _ => endpoint.to_string(),
    }
}

/// What the requests about names of interfaces (SIOCGIFINDEX, SIOCGIFNAME) are made on: any socket.
fn any_socket() -> Option<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_written_as_the_name_it_was_read_as() {
        for spelled in ["192.0.2.1:0", "[2001:db8::1]:51820", "[fe80::1%lo]:65535"] {
            assert_eq!(text(&parse(spelled.as_bytes()).unwrap()), spelled);
        }
        assert_eq!(text(&SocketAddrV6::new([0; 8].into(), 1, 0, u32::MAX).into()), "[::%4294967295]:1");
    }
}
