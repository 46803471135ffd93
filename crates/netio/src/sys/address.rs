//! Internet socket addresses as the kernel lays them out, built and read as bytes.

use std::mem::{align_of, offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::system::{address_family, address_head};

const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();
const V4: u16 = libc::AF_INET as u16;
const V6: u16 = libc::AF_INET6 as u16;

/// Room for a `sockaddr_in` or a `sockaddr_in6`, and how much of it is used.
#[repr(C, align(4))]
pub(super) struct Address {
    bytes: [u8; V6_LEN],
    len: usize,
}

const _: () = {
    assert!(V4_LEN == 16 && V6_LEN == 28);
    assert!(align_of::<Address>() >= align_of::<libc::sockaddr_in6>());
    assert!(offset_of!(Address, bytes) == 0);
    assert!(offset_of!(libc::sockaddr_in, sin_port) == 2);
    assert!(offset_of!(libc::sockaddr_in, sin_addr) == 4);
    assert!(offset_of!(libc::sockaddr_in6, sin6_port) == 2);
    assert!(offset_of!(libc::sockaddr_in6, sin6_flowinfo) == 4);
    assert!(offset_of!(libc::sockaddr_in6, sin6_addr) == 8);
    assert!(offset_of!(libc::sockaddr_in6, sin6_scope_id) == 24);
};

impl Address {
    /// Room for the kernel to write an address into.
    pub(super) const fn room() -> Self {
        Self { bytes: [0; V6_LEN], len: V6_LEN }
    }

    /// The destination of a datagram.
    pub(super) fn new(to: SocketAddr) -> Self {
        let mut bytes = [0; V6_LEN];
        bytes[2..4].copy_from_slice(&to.port().to_be_bytes());
        let len = match to {
            SocketAddr::V4(to) => {
                bytes[..2].copy_from_slice(&address_head(V4_LEN, V4));
                bytes[4..8].copy_from_slice(&to.ip().octets());
                V4_LEN
            }
            SocketAddr::V6(to) => {
                bytes[..2].copy_from_slice(&address_head(V6_LEN, V6));
                bytes[4..8].copy_from_slice(&to.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&to.ip().octets());
                bytes[24..28].copy_from_slice(&to.scope_id().to_ne_bytes());
                V6_LEN
            }
        };
        Self { bytes, len }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        // At most 28.
        self.len as libc::socklen_t
    }

    /// The address that the kernel wrote, `written` bytes according to it; `None` if it is neither IPv4 nor IPv6 or
    /// incomplete.
    pub(super) fn read(&self, written: libc::socklen_t) -> Option<SocketAddr> {
        let written = usize::try_from(written).ok()?;
        decode(self.bytes.get(..written)?)
    }
}

fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = address_family(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match family {
        V4 if bytes.len() >= V4_LEN => {
            let ip: [u8; 4] = *bytes[4..].first_chunk()?;
            Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port))
        }
        V6 if bytes.len() >= V6_LEN => {
            let flow = u32::from_be_bytes(*bytes[4..].first_chunk()?);
            let ip: [u8; 16] = *bytes[8..].first_chunk()?;
            let scope = u32::from_ne_bytes(*bytes[24..].first_chunk()?);
            Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_ipv4_address_survives_its_layout(ip: [u8; 4], port: u16) {
            let to = SocketAddr::new(Ipv4Addr::from(ip).into(), port);
            let address = Address::new(to);
            prop_assert_eq!(address.read(address.len()), Some(to));
        }

        #[test]
        fn an_ipv6_address_survives_its_layout(ip: [u8; 16], port: u16, flow: u32, scope: u32) {
            let to = SocketAddr::V6(SocketAddrV6::new(ip.into(), port, flow, scope));
            let address = Address::new(to);
            prop_assert_eq!(address.read(address.len()), Some(to));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn an_address_that_is_one_byte_short_is_no_address() {
        for to in ["192.0.2.1:1", "[2001:db8::1]:1"] {
            let address = Address::new(to.parse().unwrap());
            assert_eq!(address.read(address.len() - 1), None);
        }
    }

    #[test]
    fn a_length_beyond_the_room_is_no_address() {
        assert_eq!(Address::room().read(V6_LEN as libc::socklen_t + 1), None);
        assert_eq!(Address::room().read(libc::socklen_t::MAX), None);
    }
}
