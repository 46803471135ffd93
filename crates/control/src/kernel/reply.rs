//! Parses the kernel's replies (include/uapi/linux/{netlink,genetlink,wireguard,if_link}.h).
//!
//! netlink-packet-wireguard's parser is not used: it leaves copies of keys behind in lists that grow, rejects a
//! message for an attribute that nobody needs, and panics on an allowed IP with an empty length. Here unknown
//! attributes are skipped; a wrong length or an impossible value is an error, never a panic. `request` builds the
//! requests, `kernel` has the socket.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use linerate_netlink::rtnetlink::{IFINFOMSG, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO};
use linerate_netlink::{address_of, attribute, strict_attributes};

use crate::keys::{PublicKey, SecretKey};
use crate::uapi::response::{DeviceState, PeerState};

/// `struct genlmsghdr`, before the attributes.
const GENLMSGHDR: usize = 4;
const CTRL_ATTR_FAMILY_ID: u16 = 1;

/// The number of the family in `CTRL_CMD_NEWFAMILY`.
pub(super) fn family(payload: &[u8]) -> Option<u16> {
    attribute(payload.get(GENLMSGHDR..)?, CTRL_ATTR_FAMILY_ID)?.try_into().ok().map(u16::from_ne_bytes)
}

/// The kind of link that tunnels are.
const WIREGUARD: &[u8] = b"wireguard";

/// The name of the link in `RTM_NEWLINK`, if it is a tunnel.
pub(super) fn tunnel(payload: &[u8]) -> Option<String> {
    let attributes = payload.get(IFINFOMSG..)?;
    let kind = attribute(attribute(attributes, IFLA_LINKINFO)?, IFLA_INFO_KIND)?;
    let name = attribute(attributes, IFLA_IFNAME).filter(|_| without_nul(kind) == WIREGUARD)?;
    String::from_utf8(without_nul(name).to_vec()).ok()
}

fn without_nul(text: &[u8]) -> &[u8] {
    text.strip_suffix(&[0]).unwrap_or(text)
}

// enum wgdevice_attribute
const WGDEVICE_A_PRIVATE_KEY: u16 = 3;
const WGDEVICE_A_LISTEN_PORT: u16 = 6;
const WGDEVICE_A_FWMARK: u16 = 7;
const WGDEVICE_A_PEERS: u16 = 8;

/// Adds the content of one message of `WG_CMD_GET_DEVICE`; `None` if it is not valid.
pub(super) fn device(payload: &[u8], state: &mut DeviceState) -> Option<()> {
    for found in strict_attributes(payload.get(GENLMSGHDR..)?) {
        let (kind, value) = found?;
        match kind {
            WGDEVICE_A_PRIVATE_KEY => state.private_key = secret(value)?,
            WGDEVICE_A_LISTEN_PORT => state.listen_port = u16::from_ne_bytes(value.try_into().ok()?),
            WGDEVICE_A_FWMARK => state.fwmark = u32::from_ne_bytes(value.try_into().ok()?),
            WGDEVICE_A_PEERS => strict_attributes(value).try_for_each(|found| peer(found?.1, state))?,
            _ => {}
        }
    }
    Some(())
}

// enum wgpeer_attribute
const WGPEER_A_PUBLIC_KEY: u16 = 1;
const WGPEER_A_PRESHARED_KEY: u16 = 2;
const WGPEER_A_ENDPOINT: u16 = 4;
const WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL: u16 = 5;
const WGPEER_A_LAST_HANDSHAKE_TIME: u16 = 6;
const WGPEER_A_RX_BYTES: u16 = 7;
const WGPEER_A_TX_BYTES: u16 = 8;
const WGPEER_A_ALLOWEDIPS: u16 = 9;

fn peer(payload: &[u8], state: &mut DeviceState) -> Option<()> {
    let public_key = PublicKey(attribute(payload, WGPEER_A_PUBLIC_KEY)?.try_into().ok()?);
    // A peer with many allowed IPs continues in the next message.
    if state.peers.last().is_none_or(|last| last.public_key != public_key) {
        state.peers.push(PeerState::new(public_key));
    }
    let peer = state.peers.last_mut()?;
    for found in strict_attributes(payload) {
        let (kind, value) = found?;
        match kind {
            WGPEER_A_PRESHARED_KEY => peer.preshared_key = secret(value)?,
            WGPEER_A_ENDPOINT => peer.endpoint = Some(endpoint(value)?),
            WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL => {
                peer.persistent_keepalive = u16::from_ne_bytes(value.try_into().ok()?);
            }
            WGPEER_A_LAST_HANDSHAKE_TIME => peer.last_handshake = time(value)?,
            WGPEER_A_RX_BYTES => peer.rx_bytes = u64::from_ne_bytes(value.try_into().ok()?),
            WGPEER_A_TX_BYTES => peer.tx_bytes = u64::from_ne_bytes(value.try_into().ok()?),
            WGPEER_A_ALLOWEDIPS => {
                for found in strict_attributes(value) {
                    peer.allowed_ips.push(allowed_ip(found?.1)?);
                }
            }
            _ => {}
        }
    }
    Some(())
}

/// `Some(None)` is the all-zero key, which means no key.
fn secret(value: &[u8]) -> Option<Option<SecretKey>> {
    let key = SecretKey::from_bytes(value.try_into().ok()?);
    Some(Some(key).filter(|key| !key.is_zero()))
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn endpoint(value: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*value.get(2..)?.first_chunk()?);
    match (u16::from_ne_bytes(*value.first_chunk()?), value.len()) {
        (AF_INET, 16) => Some(SocketAddr::from((*value[4..].first_chunk::<4>()?, port))),
        (AF_INET6, 28) => {
            let flow = u32::from_ne_bytes(*value[4..].first_chunk()?);
            let scope = u32::from_ne_bytes(*value[24..].first_chunk()?);
            Some(SocketAddrV6::new((*value[8..].first_chunk::<16>()?).into(), port, flow, scope).into())
        }
        _ => None,
    }
}

/// `struct __kernel_timespec`, since 1970.
fn time(value: &[u8]) -> Option<Duration> {
    let (seconds, nanos) = value.split_first_chunk()?;
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
    let nanos = u32::try_from(i64::from_ne_bytes(nanos.try_into().ok()?)).ok()?;
    Some(Duration::new(seconds, nanos)).filter(|_| nanos < 1_000_000_000)
}

// enum wgallowedip_attribute
const WGALLOWEDIP_A_IPADDR: u16 = 2;
const WGALLOWEDIP_A_CIDR_MASK: u16 = 3;

fn allowed_ip(payload: &[u8]) -> Option<(IpAddr, u8)> {
    let (mut addr, mut cidr) = (None, None);
    for found in strict_attributes(payload) {
        let (kind, value) = found?;
        match kind {
            WGALLOWEDIP_A_IPADDR => addr = Some(address_of(value)?),
            WGALLOWEDIP_A_CIDR_MASK => cidr = Some(u8::from_ne_bytes(value.try_into().ok()?)),
            _ => {}
        }
    }
    let longest = if addr?.is_ipv4() { 32 } else { 128 };
    Some((addr?, cidr.filter(|&cidr| cidr <= longest)?))
}

#[cfg(test)]
mod tests {
    use linerate_netlink::Attributes;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_family_number_is_found_among_unknown_attributes() {
        let number = put(CTRL_ATTR_FAMILY_ID, &0x1234u16.to_ne_bytes());
        let payload = [vec![0; GENLMSGHDR], put(99, &[1; 4]), number, put(98, &[2; 4])].concat();
        assert_eq!(family(&payload), Some(0x1234));
        for length in 0..GENLMSGHDR + 8 + 6 {
            assert_eq!(family(&payload[..length]), None, "of {length} bytes");
        }
    }

    #[test]
    fn an_impossible_prefix_is_rejected() {
        let [v4, v6] = [&[192, 0, 2, 0][..], &[0xfd; 16]].map(|address| put(WGALLOWEDIP_A_IPADDR, address));
        let read = |address: &[u8], length: &[u8]| {
            allowed_ip(&[address, &put(WGALLOWEDIP_A_CIDR_MASK, length)].concat()).map(|(_, length)| length)
        };
        assert_eq!([read(&v4, &[32]), read(&v6, &[128])], [Some(32), Some(128)]);
        assert_eq!([read(&v4, &[33]), read(&v6, &[129])], [None, None]);
        assert_eq!([read(&v4, &[]), read(&v4, &[8, 0]), read(&[], &[8])], [None, None, None]);
    }

    #[test]
    fn a_time_with_a_second_or_more_of_nanoseconds_is_rejected() {
        let read = |seconds: i64, nanos: i64| time(&[seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat());
        assert_eq!(read(7, 999_999_999), Some(Duration::new(7, 999_999_999)));
        assert_eq!([read(7, 1_000_000_000), read(-1, 0), read(0, -1), read(0, i64::MAX)], [None; 4]);
        assert!(read(i64::MAX, 0).is_some() && time(&[0; 15]).is_none());
    }

    #[test]
    fn an_endpoint_has_the_length_of_its_family() {
        let socket = |family: u16, length: usize| [family.to_ne_bytes().to_vec(), vec![1; length - 2]].concat();
        assert!(endpoint(&socket(AF_INET, 16)).unwrap().is_ipv4());
        assert!(endpoint(&socket(AF_INET6, 28)).unwrap().is_ipv6());
        for (family, length) in [(AF_INET, 28), (AF_INET6, 16), (AF_INET, 15), (AF_INET6, 27), (0, 16), (AF_INET, 2)] {
            assert_eq!(endpoint(&socket(family, length)), None, "{family} {length}");
        }
        assert_eq!(endpoint(&[]), None);
    }

    proptest! {
        #[test]
        fn any_payload_is_read_without_a_panic(payload in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (tunnel(&payload), family(&payload), device(&payload, &mut DeviceState::default()));
        }
    }

    fn put(kind: u16, value: &[u8]) -> Vec<u8> {
        Attributes::default().with(kind, value).bytes().to_vec()
    }
}
