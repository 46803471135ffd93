//! Turns a change into messages of netlink-packet-wireguard, and wipes their keys.
//!
//! Never talks to the kernel; `reply` parses its replies.

use netlink_packet_core::Emitable;
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAllowedIpFlags, WireguardAttribute,
    WireguardDeviceFlags, WireguardMessage, WireguardPeer, WireguardPeerAttribute, WireguardPeerFlags,
};
use zeroize::Zeroize;

use crate::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};

/// Bytes of peers in one request: they are one attribute, whose length has 16 bits.
const PEERS_MAX: usize = 32 << 10;
/// Allowed IPs in one attribute, at most 48 bytes each, so that a peer with its first ones fits.
const ALLOWED_IPS_MAX: usize = 256;
const _: () = assert!(ALLOWED_IPS_MAX * 48 + 512 < PEERS_MAX);

/// Bytes before the value of an attribute.
const ATTRIBUTE_HEADER: usize = 4;

/// Capacity for all attributes of a device or of a peer, nested ones counted as one: a list that holds a key must not
/// be reallocated, which would leave a copy of the key behind.
const ATTRIBUTES_MAX: usize = 8;

/// The change as at least one message. The first has everything about the device itself.
pub(super) fn messages(update: &DeviceUpdate) -> Vec<Vec<WireguardAttribute>> {
    let mut messages = vec![device_attributes(update)];
    let mut fitting = Vec::new();
    let mut bytes = 0;
    for peer in update.peers.iter().flat_map(peer_parts) {
        let length = ATTRIBUTE_HEADER + peer.as_slice().buffer_len();
        if bytes + length > PEERS_MAX {
            add_peers(&mut messages, std::mem::take(&mut fitting));
            messages.push(Vec::new());
            bytes = 0;
        }
        bytes += length;
        fitting.push(peer);
    }
    add_peers(&mut messages, fitting);
    messages
}

/// Adds peers to the last message.
fn add_peers(messages: &mut [Vec<WireguardAttribute>], peers: Vec<WireguardPeer>) {
    if let Some(last) = messages.last_mut().filter(|_| !peers.is_empty()) {
        last.push(WireguardAttribute::Peers(peers));
    }
}

/// The change without its peers.
fn device_attributes(update: &DeviceUpdate) -> Vec<WireguardAttribute> {
    let mut attributes = Vec::with_capacity(ATTRIBUTES_MAX);
    attributes.extend(update.private_key.as_ref().map(|key| WireguardAttribute::PrivateKey(*key.as_bytes())));
    attributes.extend(update.listen_port.map(WireguardAttribute::ListenPort));
    attributes.extend(update.fwmark.map(WireguardAttribute::Fwmark));
    if update.replace_peers {
        attributes.push(WireguardAttribute::Flags(WireguardDeviceFlags::ReplacePeers));
    }
    attributes
}

/// The change of one peer in parts of [`ALLOWED_IPS_MAX`]; the first has everything else.
fn peer_parts(update: &PeerUpdate) -> impl Iterator<Item = WireguardPeer> {
    let mut parts = update.allowed_ips.chunks(ALLOWED_IPS_MAX);
    let mut first = peer_attributes(update);
    first.extend(parts.next().map(allowed_ips));
    let rest = parts.map(|part| {
        // If the peer was removed meanwhile, do not create it again.
        let flags = WireguardPeerAttribute::Flags(WireguardPeerFlags::UpdateOnly);
        WireguardPeer(vec![WireguardPeerAttribute::PublicKey(update.public_key.0), flags, allowed_ips(part)])
    });
    std::iter::once(WireguardPeer(first)).chain(rest)
}

fn peer_attributes(update: &PeerUpdate) -> Vec<WireguardPeerAttribute> {
    let mut flags = WireguardPeerFlags::empty();
    flags.set(WireguardPeerFlags::RemoveMe, update.remove);
    flags.set(WireguardPeerFlags::UpdateOnly, update.update_only);
    flags.set(WireguardPeerFlags::ReplaceAllowedIps, update.replace_allowed_ips);
    let mut attributes = Vec::with_capacity(ATTRIBUTES_MAX);
    attributes.push(WireguardPeerAttribute::PublicKey(update.public_key.0));
    attributes.extend(update.preshared_key.as_ref().map(|key| WireguardPeerAttribute::PresharedKey(*key.as_bytes())));
    attributes.extend(update.endpoint.map(WireguardPeerAttribute::Endpoint));
    attributes.extend(update.persistent_keepalive.map(WireguardPeerAttribute::PersistentKeepalive));
    if !flags.is_empty() {
        attributes.push(WireguardPeerAttribute::Flags(flags));
    }
    attributes
}

fn allowed_ips(part: &[AllowedIp]) -> WireguardPeerAttribute {
    WireguardPeerAttribute::AllowedIps(part.iter().map(allowed_ip).collect())
}

fn allowed_ip(update: &AllowedIp) -> WireguardAllowedIp {
    let family = if update.addr.is_ipv4() { WireguardAddressFamily::Ipv4 } else { WireguardAddressFamily::Ipv6 };
    let mut attributes = vec![
        WireguardAllowedIpAttr::Family(family),
        WireguardAllowedIpAttr::IpAddr(update.addr),
        WireguardAllowedIpAttr::Cidr(update.cidr),
    ];
    if !update.add {
        attributes.push(WireguardAllowedIpAttr::Flags(WireguardAllowedIpFlags::RemoveMe));
    }
    WireguardAllowedIp(attributes)
}

/// Wipes the keys of a message.
pub(super) fn wipe(message: &mut WireguardMessage) {
    for attribute in &mut message.attributes {
        match attribute {
            WireguardAttribute::PrivateKey(key) => key.zeroize(),
            WireguardAttribute::Peers(peers) => {
                for attribute in peers.iter_mut().flat_map(|peer| &mut peer.0) {
                    if let WireguardPeerAttribute::PresharedKey(key) = attribute {
                        key.zeroize();
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use netlink_packet_wireguard::WireguardCmd;
    use proptest::prelude::*;

    use super::super::reply;
    use super::*;
    use crate::keys::{PublicKey, SecretKey};
    use crate::uapi::response::DeviceState;

    /// An attribute's length has 16 bits.
    const ATTRIBUTE_MAX: usize = u16::MAX as usize;

    #[test]
    fn no_message_of_a_large_change_exceeds_the_length_of_an_attribute() {
        let peers = (0..2000u16).map(|n| peer(n, usize::from(n % 7) * ALLOWED_IPS_MAX / 3)).collect();
        let update = DeviceUpdate { replace_peers: true, peers, ..DeviceUpdate::default() };
        let messages = messages(&update);
        assert!(messages.len() > 10);
        for attributes in &messages {
            assert!(attributes.iter().all(|attribute| attribute.buffer_len() <= ATTRIBUTE_MAX));
        }
        let replacing =
            |attributes: &&Vec<_>| attributes.contains(&WireguardAttribute::Flags(WireguardDeviceFlags::ReplacePeers));
        assert_eq!(messages.iter().filter(replacing).count(), 1, "only the first may remove all peers");
    }

    #[test]
    fn the_keys_of_a_message_are_wiped() {
        let mut peer = peer(1, 0);
        peer.preshared_key = Some(SecretKey::from_bytes(&[7; 32]));
        let update = DeviceUpdate {
            private_key: Some(SecretKey::from_bytes(&[9; 32])),
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        let attributes = messages(&update).remove(0);
        let mut message = WireguardMessage { cmd: WireguardCmd::SetDevice, attributes };
        let holds = |message: &WireguardMessage, byte| bytes(message).windows(32).any(|window| window == [byte; 32]);
        assert!(holds(&message, 7) && holds(&message, 9));
        wipe(&mut message);
        assert!(!holds(&message, 7) && !holds(&message, 9));
    }

    proptest! {
        #[test]
        fn a_change_parses_as_the_resulting_state(sizes in prop::collection::vec(0usize..600, 0..5), port: u16, mark: u32) {
            let peers: Vec<_> = sizes.iter().zip(1..).map(|(&size, number)| peer(number, size)).collect();
            let update = DeviceUpdate {
                private_key: Some(SecretKey::from_bytes(&[9; 32])),
                listen_port: Some(port),
                fwmark: Some(mark),
                replace_peers: true,
                peers,
                ..DeviceUpdate::default()
            };
            let mut state = DeviceState::default();
            for attributes in messages(&update) {
                let message = WireguardMessage { cmd: WireguardCmd::SetDevice, attributes };
                let payload = [vec![0; 4], bytes(&message)].concat();
                prop_assert_eq!(reply::device(&payload, &mut state), Some(()));
            }
            prop_assert!(state.private_key == update.private_key);
            prop_assert_eq!((state.listen_port, state.fwmark), (port, mark));
            prop_assert_eq!(state.peers.len(), update.peers.len());
            for (state, update) in state.peers.iter().zip(&update.peers) {
                prop_assert_eq!(state.public_key, update.public_key);
                prop_assert_eq!(state.endpoint, update.endpoint);
                prop_assert_eq!(Some(state.persistent_keepalive), update.persistent_keepalive);
                let expected: Vec<_> = update.allowed_ips.iter().map(|ip| (ip.addr, ip.cidr)).collect();
                prop_assert_eq!(&state.allowed_ips, &expected);
            }
        }
    }

    #[test]
    fn lists_that_hold_a_key_are_never_reallocated() {
        let change = PeerUpdate {
            preshared_key: Some(SecretKey::from_bytes(&[7; 32])),
            update_only: true,
            ..peer(1, ALLOWED_IPS_MAX)
        };
        let update = DeviceUpdate {
            private_key: Some(SecretKey::from_bytes(&[9; 32])),
            listen_port: Some(1),
            fwmark: Some(1),
            replace_peers: true,
            peers: vec![change],
            ..DeviceUpdate::default()
        };
        let attributes = messages(&update).remove(0);
        let peers =
            |attribute: &_| if let WireguardAttribute::Peers(peers) = attribute { Some(peers[0].len()) } else { None };
        assert!(attributes.iter().find_map(peers).unwrap() <= ATTRIBUTES_MAX);
        assert!(attributes.len() < ATTRIBUTES_MAX, "the interface name is added later");
    }

    fn peer(number: u16, allowed_ips: usize) -> PeerUpdate {
        let [high, low] = number.to_be_bytes();
        let mut key = [1; 32];
        key[..2].copy_from_slice(&[high, low]);
        let ip = |n: usize| AllowedIp { add: true, addr: IpAddr::from((n as u128).to_be_bytes()), cidr: 128 };
        PeerUpdate {
            endpoint: Some(SocketAddr::from(([192, 0, high, low], number))),
            persistent_keepalive: Some(number),
            allowed_ips: (0..allowed_ips).map(ip).collect(),
            ..PeerUpdate::new(PublicKey(key))
        }
    }

    fn bytes(message: &WireguardMessage) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }
}
