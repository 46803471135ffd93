//! Links and their addresses (include/uapi/linux/if_link.h, if_addr.h; net/core/rtnetlink.c, net/ipv4/devinet.c,
//! net/ipv6/addrconf.c).
//!
//! Requests contain what iproute2's `ip link` and `ip address` send, no more.

use std::net::IpAddr;

use ipnet::IpNet;
use rustix::io::Errno;

use super::prefix::{family_of, prefix_of};
use crate::state::Link;
use linerate_netlink::rtnetlink::*;
use linerate_netlink::{
    Attributes, Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Request, attribute, attributes, text_of,
    u32_at, u32_of,
};

/// The longest name of an interface: IFNAMSIZ (linux/if.h) without its NUL.
pub(super) const NAME_MAX: usize = 15;

/// The type of a link that has no header of its own (linux/if_arp.h).
const ARPHRD_NONE: u16 = 0xFFFE;

/// The link kind of the kernel module.
const WIREGUARD: &str = "wireguard";

/// `ip link add dev NAME type wireguard`.
///
/// # Errors
/// ENAMETOOLONG if the name is too long for an interface.
pub(super) fn add(name: &str) -> Result<Request, Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let info = Attributes::default().with_text(IFLA_INFO_KIND, WIREGUARD);
    let attributes = Attributes::default().with_text(IFLA_IFNAME, name).with_nest(IFLA_LINKINFO, info);
    Ok(Request::new(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &ifinfomsg(0, 0), attributes))
}

/// `ip link delete dev NAME`.
pub(super) fn delete(index: u32) -> Request {
    Request::new(RTM_DELLINK, NLM_F_ACK, &ifinfomsg(index, 0), Attributes::default())
}

/// `ip link set dev NAME mtu BYTES`.
pub(super) fn set_mtu(index: u32, mtu: u32) -> Request {
    let attributes = Attributes::default().with_u32(IFLA_MTU, mtu);
    Request::new(RTM_NEWLINK, NLM_F_ACK, &ifinfomsg(index, 0), attributes)
}

/// `ip link set dev NAME up`.
pub(super) fn set_up(index: u32) -> Request {
    Request::new(RTM_NEWLINK, NLM_F_ACK, &ifinfomsg(index, IFF_UP), Attributes::default())
}

/// `ip address add ADDRESS dev NAME`.
pub(super) fn add_address(index: u32, address: &IpNet) -> Request {
    address_message(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, index, address)
}

/// `ip address delete ADDRESS dev NAME`.
pub(super) fn delete_address(index: u32, address: &IpNet) -> Request {
    address_message(RTM_DELADDR, NLM_F_ACK, index, address)
}

fn address_message(kind: u16, flags: u16, index: u32, address: &IpNet) -> Request {
    // For IPv6 the kernel determines the scope.
    let scope = match address.addr() {
        IpAddr::V4(address) if address.is_loopback() => RT_SCOPE_HOST,
        _ => RT_SCOPE_UNIVERSE,
    };
    let mut ifaddrmsg = vec![family_of(address.addr()), address.prefix_len(), 0, scope];
    ifaddrmsg.extend(index.to_ne_bytes());
    let attributes =
        Attributes::default().with_address(IFA_LOCAL, address.addr()).with_address(IFA_ADDRESS, address.addr());
    Request::new(kind, flags, &ifaddrmsg, attributes)
}

/// Requests all links.
pub(super) fn list() -> Request {
    let attributes = Attributes::default().with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    Request::new(RTM_GETLINK, NLM_F_DUMP, &ifinfomsg(0, 0), attributes)
}

/// The link in a message of the list, without its addresses.
pub(super) fn read(message: &Message<'_>) -> Option<Link> {
    let body = message.payload.get(IFINFOMSG..).filter(|_| message.kind == RTM_NEWLINK)?;
    let kind = attribute(body, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND)).and_then(text_of);
    Some(Link {
        name: text_of(attribute(body, IFLA_IFNAME)?)?,
        index: u32_at(message.payload, 4)?,
        mtu: attribute(body, IFLA_MTU).and_then(u32_of)?,
        up: u32_at(message.payload, 8)? & IFF_UP != 0,
        wireguard: kind.as_deref() == Some(WIREGUARD),
        // One for frames of Ethernet has the same kind.
        tun: kind.as_deref() == Some("tun") && message.payload.get(2..4) == Some(&ARPHRD_NONE.to_ne_bytes()),
        addresses: Vec::new(),
    })
}

/// Requests all addresses.
pub(super) fn list_addresses() -> Request {
    Request::new(RTM_GETADDR, NLM_F_DUMP, &[0; IFADDRMSG], Attributes::default())
}

/// The address in a message of the list, with the index of its link.
pub(super) fn read_address(message: &Message<'_>) -> Option<(u32, IpNet)> {
    let body = message.payload.get(IFADDRMSG..).filter(|_| message.kind == RTM_NEWADDR)?;
    let (&family, &length) = (message.payload.first()?, message.payload.get(1)?);
    // With a peer address, IFA_ADDRESS is the peer's; for IPv6 IFA_LOCAL exists only then.
    let own = attributes(body).find(|(kind, _)| *kind == IFA_LOCAL);
    let own = own.or_else(|| attributes(body).find(|(kind, _)| *kind == IFA_ADDRESS));
    Some((u32_at(message.payload, 4)?, prefix_of(family, Some(own?.1), length)?))
}

fn ifinfomsg(index: u32, flags: u32) -> [u8; IFINFOMSG] {
    let mut bytes = [0; IFINFOMSG];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hostile::{hostile_attributes, read_back};
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_added() {
        for address in ["10.1.2.3/24", "127.0.0.1/8", "fd00::3/64", "0.0.0.0/0"] {
            let address = address.parse().unwrap();
            read_back(add_address(5, &address), |message| assert_eq!(read_address(message), Some((5, address))));
        }
    }

    #[test]
    fn a_tunnel_of_the_module_is_told_from_other_links() {
        read_back(add("wg0").unwrap(), |message| {
            let mtu = Attributes::default().with_u32(IFLA_MTU, 1420);
            let link = Link { name: "wg0".into(), mtu: 1420, wireguard: true, ..Link::default() };
            read_back(Request::new(RTM_NEWLINK, 0, message.payload, mtu), |message| {
                assert_eq!(read(message), Some(link))
            });
        });
        assert!(add("a-name-too-long-").is_err() && add("a-name-that-fit").is_ok());
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(fixed in prop::collection::vec(any::<u8>(), 0..=IFINFOMSG), odd in hostile_attributes()) {
            let payload = [fixed, odd].concat();
            let _ = read(&Message { kind: RTM_NEWLINK, flags: 0, sequence: 0, payload: &payload });
            let _ = read_address(&Message { kind: RTM_NEWADDR, flags: 0, sequence: 0, payload: &payload });
        }
    }
}
