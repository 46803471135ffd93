//! Links and their addresses (include/uapi/linux/if_link.h, if_addr.h; net/core/rtnetlink.c, net/ipv4/devinet.c,
//! net/ipv6/addrconf.c).
//!
//! Requests say what iproute2's `ip link` and `ip address` say, no more.

use std::net::IpAddr;

use ipnet::IpNet;
use rustix::io::Errno;

use super::message::{
    Attributes, Frame, Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, attribute, attributes, family_of,
    prefix_of, text_of, u32_at, u32_of,
};
use crate::state::Link;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_INFO_KIND: u16 = 1;
/// Statistics are most of what a link has to say.
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
const IFF_UP: u32 = 1;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_HOST: u8 = 254;

/// The longest name of an interface: IFNAMSIZ (linux/if.h) without its NUL.
pub(super) const NAME_MAX: usize = 15;

/// The kind of the links of the kernel's own module.
const WIREGUARD: &str = "wireguard";

/// `ip link add dev NAME type wireguard`.
///
/// # Errors
/// ENAMETOOLONG if no interface can have that name.
pub(super) fn add(name: &str) -> Result<Message, Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let info = Attributes::default().with_text(IFLA_INFO_KIND, WIREGUARD);
    let attributes = Attributes::default().with_text(IFLA_IFNAME, name).with_nest(IFLA_LINKINFO, info);
    Ok(Message::new(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &ifinfomsg(0, 0), attributes))
}

/// `ip link delete dev NAME`.
pub(super) fn delete(index: u32) -> Message {
    Message::new(RTM_DELLINK, NLM_F_ACK, &ifinfomsg(index, 0), Attributes::default())
}

/// `ip link set dev NAME mtu BYTES`.
pub(super) fn set_mtu(index: u32, mtu: u32) -> Message {
    let attributes = Attributes::default().with_u32(IFLA_MTU, mtu);
    Message::new(RTM_NEWLINK, NLM_F_ACK, &ifinfomsg(index, 0), attributes)
}

/// `ip link set dev NAME up`.
pub(super) fn set_up(index: u32) -> Message {
    Message::new(RTM_NEWLINK, NLM_F_ACK, &ifinfomsg(index, IFF_UP), Attributes::default())
}

/// `ip address add ADDRESS dev NAME`.
pub(super) fn add_address(index: u32, address: &IpNet) -> Message {
    address_message(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, index, address)
}

/// `ip address delete ADDRESS dev NAME`.
pub(super) fn delete_address(index: u32, address: &IpNet) -> Message {
    address_message(RTM_DELADDR, NLM_F_ACK, index, address)
}

fn address_message(kind: u16, flags: u16, index: u32, address: &IpNet) -> Message {
    // IPv6 finds the scope by itself.
    let scope = match address.addr() {
        IpAddr::V4(address) if address.is_loopback() => RT_SCOPE_HOST,
        _ => RT_SCOPE_UNIVERSE,
    };
    let mut ifaddrmsg = vec![family_of(address.addr()), address.prefix_len(), 0, scope];
    ifaddrmsg.extend(index.to_ne_bytes());
    let attributes =
        Attributes::default().with_address(IFA_LOCAL, address.addr()).with_address(IFA_ADDRESS, address.addr());
    Message::new(kind, flags, &ifaddrmsg, attributes)
}

/// Asks for all links.
pub(super) fn list() -> Message {
    let attributes = Attributes::default().with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    Message::new(RTM_GETLINK, NLM_F_DUMP, &ifinfomsg(0, 0), attributes)
}

/// The link that a message of the list tells of, without its addresses.
pub(super) fn read(frame: &Frame<'_>) -> Option<Link> {
    let body = frame.payload.get(IFINFOMSG..).filter(|_| frame.kind == RTM_NEWLINK)?;
    let kind = attribute(body, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND)).and_then(text_of);
    Some(Link {
        name: text_of(attribute(body, IFLA_IFNAME)?)?,
        index: u32_at(frame.payload, 4)?,
        mtu: attribute(body, IFLA_MTU).and_then(u32_of)?,
        up: u32_at(frame.payload, 8)? & IFF_UP != 0,
        wireguard: kind.as_deref() == Some(WIREGUARD),
        addresses: Vec::new(),
    })
}

/// Asks for all addresses.
pub(super) fn list_addresses() -> Message {
    Message::new(RTM_GETADDR, NLM_F_DUMP, &[0; IFADDRMSG], Attributes::default())
}

/// The address that a message of the list tells of, with the index of its link.
pub(super) fn read_address(frame: &Frame<'_>) -> Option<(u32, IpNet)> {
    let body = frame.payload.get(IFADDRMSG..).filter(|_| frame.kind == RTM_NEWADDR)?;
    let (&family, &length) = (frame.payload.first()?, frame.payload.get(1)?);
    // With a peer, IFA_ADDRESS is the peer's; IPv6 has IFA_LOCAL only then.
    let own = attributes(body).find(|(kind, _)| *kind == IFA_LOCAL);
    let own = own.or_else(|| attributes(body).find(|(kind, _)| *kind == IFA_ADDRESS));
    Some((u32_at(frame.payload, 4)?, prefix_of(family, Some(own?.1), length)?))
}

/// `struct ifinfomsg`: family, type, index, flags, and which of them are meant.
const IFINFOMSG: usize = 16;
/// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
const IFADDRMSG: usize = 8;

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

    use super::super::message::tests::{odd_attributes, told};
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_added() {
        for address in ["10.1.2.3/24", "127.0.0.1/8", "fd00::3/64", "0.0.0.0/0"] {
            let address = address.parse().unwrap();
            told(add_address(5, &address), |frame| assert_eq!(read_address(frame), Some((5, address))));
        }
    }

    #[test]
    fn a_tunnel_of_the_module_is_told_from_other_links() {
        told(add("wg0").unwrap(), |frame| {
            let mtu = Attributes::default().with_u32(IFLA_MTU, 1420);
            let link = Link { name: "wg0".into(), mtu: 1420, wireguard: true, ..Link::default() };
            told(Message::new(RTM_NEWLINK, 0, frame.payload, mtu), |frame| assert_eq!(read(frame), Some(link)));
        });
        assert!(add("a-name-too-long-").is_err() && add("a-name-that-fit").is_ok());
    }

    proptest! {
        #[test]
        fn nothing_that_is_told_makes_it_panic(fixed in prop::collection::vec(any::<u8>(), 0..=IFINFOMSG), odd in odd_attributes()) {
            let payload = [fixed, odd].concat();
            let _ = read(&Frame { kind: RTM_NEWLINK, flags: 0, sequence: 0, payload: &payload });
            let _ = read_address(&Frame { kind: RTM_NEWADDR, flags: 0, sequence: 0, payload: &payload });
        }
    }
}
