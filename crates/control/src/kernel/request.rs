//! A change as the messages of netlink-packet-wireguard, and how their keys are overwritten.
//!
//! Never talks to the kernel; what it answers is read by `reply`.

use netlink_packet_core::Emitable;
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAllowedIpFlags, WireguardAttribute,
    WireguardDeviceFlags, WireguardMessage, WireguardPeer, WireguardPeerAttribute, WireguardPeerFlags,
};
use zeroize::Zeroize;

use crate::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};

/// Bytes of peers in one request. All of them are one attribute, and the length of that has 16 bits.
const PEERS_MAX: usize = 32 << 10;
/// Allowed IPs in one attribute, at most 48 bytes each, so that a peer with its first ones fits.
const ALLOWED_IPS_MAX: usize = 256;
const _: () = assert!(ALLOWED_IPS_MAX * 48 + 512 < PEERS_MAX);

/// Bytes before the value of an attribute.
const ATTRIBUTE_HEADER: usize = 4;

/// Room for all attributes of a device or of a peer, the nested ones counted as one each: lists that
/// hold a key must not move, which would leave a copy of it behind.
const ATTRIBUTES_MAX: usize = 8;

/// The change in as many messages as it takes, at least one. All that is about the device is in the first.
pub(super) fn messages(update: &DeviceUpdate) -> Vec<Vec<WireguardAttribute>> {
    let mut messages = vec![device_attributes(update)];
    let mut fitting = Vec::new();
    let mut bytes = 0;
    for peer in update.peers.iter().flat_map(peer_pieces) {
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

/// Completes the last message.
fn add_peers(messages: &mut [Vec<WireguardAttribute>], peers: Vec<WireguardPeer>) {
    if let Some(last) = messages.last_mut().filter(|_| !peers.is_empty()) {
        last.push(WireguardAttribute::Peers(peers));
    }
}

/// All of a change but its peers.
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

/// The change of one peer in pieces of [`ALLOWED_IPS_MAX`]; all else is in the first.
fn peer_pieces(update: &PeerUpdate) -> impl Iterator<Item = WireguardPeer> {
    let mut pieces = update.allowed_ips.chunks(ALLOWED_IPS_MAX);
    let mut first = peer_attributes(update);
    first.extend(pieces.next().map(allowed_ips));
    let rest = pieces.map(|piece| {
        // Should the peer be gone by then, its other allowed IPs are moot.
        let flags = WireguardPeerAttribute::Flags(WireguardPeerFlags::UpdateOnly);
        WireguardPeer(vec![WireguardPeerAttribute::PublicKey(update.public_key.0), flags, allowed_ips(piece)])
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

fn allowed_ips(piece: &[AllowedIp]) -> WireguardPeerAttribute {
    WireguardPeerAttribute::AllowedIps(piece.iter().map(allowed_ip).collect())
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

/// Overwrites the keys of a message.
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
    fn no_message_of_a_large_change_outgrows_an_attribute() {
        let peers = (0..2000u16).map(|n| peer(n, usize::from(n % 7) * ALLOWED_IPS_MAX / 3)).collect();
        let update = DeviceUpdate { replace_peers: true, peers, ..DeviceUpdate::default() };
        let messages = messages(&update);
        assert!(messages.len() > 10);
        for attributes in &messages {
            assert!(attributes.iter().all(|attribute| attribute.buffer_len() <= ATTRIBUTE_MAX));
        }
        let replacing =
            |attributes: &&Vec<_>| attributes.contains(&WireguardAttribute::Flags(WireguardDeviceFlags::ReplacePeers));
        assert_eq!(messages.iter().filter(replacing).count(), 1, "only the first may take all peers away");
    }

    #[test]
    fn the_keys_of_a_message_are_overwritten() {
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
        fn what_the_kernel_is_told_is_what_it_would_tell(sizes in prop::collection::vec(0usize..600, 0..5), port: u16, mark: u32) {
            let peers: Vec<_> = sizes.iter().zip(1..).map(|(&size, number)| peer(number, size)).collect();
            let update = DeviceUpdate {
                private_key: Some(SecretKey::from_bytes(&[9; 32])),
                listen_port: Some(port),
                fwmark: Some(mark),
                replace_peers: true,
                peers,
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
            for (told, asked) in state.peers.iter().zip(&update.peers) {
                prop_assert_eq!(told.public_key, asked.public_key);
                prop_assert_eq!(told.endpoint, asked.endpoint);
                prop_assert_eq!(Some(told.persistent_keepalive), asked.persistent_keepalive);
                let asked: Vec<_> = asked.allowed_ips.iter().map(|ip| (ip.addr, ip.cidr)).collect();
                prop_assert_eq!(&told.allowed_ips, &asked);
            }
        }
    }

    #[test]
    fn a_list_that_holds_a_key_has_room_for_all_of_its_attributes() {
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
        };
        let attributes = messages(&update).remove(0);
        let peers =
            |attribute: &_| if let WireguardAttribute::Peers(peers) = attribute { Some(peers[0].len()) } else { None };
        assert!(attributes.iter().find_map(peers).unwrap() <= ATTRIBUTES_MAX);
        assert!(attributes.len() < ATTRIBUTES_MAX, "the name of the interface comes on top");
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
