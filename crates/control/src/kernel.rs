//! The tunnels of the kernel's own module, over generic netlink (include/uapi/linux/wireguard.h).
//!
//! The messages come from netlink-packet-wireguard; here is the conversation. Keys pass through its
//! plain arrays, so every message is overwritten after use, as are the buffers. That is not all of
//! them: its parser leaves copies in lists that grow while it reads, and when it gives up half-way.
//! Needs CAP_NET_ADMIN, but for the list of names.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{
    DecodeError, Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlasIterator,
};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAllowedIpFlags, WireguardAttribute,
    WireguardCmd, WireguardDeviceFlags, WireguardMessage, WireguardPeer, WireguardPeerAttribute, WireguardPeerFlags,
};
use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use zeroize::{Zeroize, Zeroizing};

use crate::keys::{PublicKey, SecretKey};
use crate::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use crate::uapi::response::{DeviceState, PeerState};

/// The family's name, and the kind of its links.
const WIREGUARD: &str = "wireguard";

/// The longest name of an interface: IFNAMSIZ (linux/if.h) without its NUL.
const NAME_MAX: usize = 15;

/// Bytes of one receive. The kernel fills at most 32 KiB at a time.
const RECEIVE: usize = 64 << 10;

/// Bytes of peers in one request. All of them are one attribute, and the length of that has 16 bits.
const PEERS_MAX: usize = 32 << 10;
/// Allowed IPs in one attribute, at most 48 bytes each, so that a peer with its first ones fits.
const ALLOWED_IPS_MAX: usize = 256;
const _: () = assert!(ALLOWED_IPS_MAX * 48 + 512 < PEERS_MAX);

/// How often a state that changed while it was read is read again.
const DUMP_ATTEMPTS: u32 = 10;

/// A conversation with the kernel's module about one of its tunnels.
pub struct Kernel {
    socket: Socket,
    family: u16,
    name: String,
}

impl Kernel {
    /// Finds the module, which the kernel loads if it can. Whether there is a tunnel `name` shows later.
    ///
    /// # Errors
    /// EPROTONOSUPPORT if there is no module, ENAMETOOLONG if no interface can have that name.
    pub fn open(name: &str) -> io::Result<Self> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut socket = Socket::open(Some(GENERIC))?;
        let question =
            GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(WIREGUARD.into())] };
        let mut family = None;
        let asked = socket.ask(GenlMessage::from_payload(question), 0, |Family(id)| family = family.or(id));
        match asked {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Err(Errno::PROTONOSUPPORT.into()),
            Err(error) => Err(error),
            Ok(()) => Ok(Self { socket, family: family.ok_or(Errno::PROTONOSUPPORT)?, name: name.to_owned() }),
        }
    }

    /// The whole state of the tunnel.
    ///
    /// # Errors
    /// ENODEV if there is no such interface, EOPNOTSUPP if it is no tunnel, EPERM without the right to ask.
    pub fn get(&mut self) -> io::Result<DeviceState> {
        let mut attempt = 1;
        loop {
            let mut state = DeviceState::default();
            let mut valid = true;
            let question = self.message(WireguardCmd::GetDevice, vec![]);
            let asked = self.socket.ask(question, NLM_F_DUMP, |mut answer: GenlMessage<WireguardMessage>| {
                valid &= tell(&answer.payload, &mut state).is_some();
                wipe(&mut answer.payload);
            });
            match asked {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) && attempt < DUMP_ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
                Ok(()) if valid => return Ok(state),
                Ok(()) => return Err(Errno::PROTO.into()),
            }
        }
    }

    /// Changes the tunnel. A change that is larger than a message is several, so that the earlier ones
    /// stay if a later one is refused.
    ///
    /// # Errors
    /// As [`Kernel::get`], and EINVAL for what the module does not know, such as taking away one allowed
    /// IP before Linux 6.16.
    pub fn set(&mut self, update: &DeviceUpdate) -> io::Result<()> {
        let mut done = Ok(());
        for attributes in messages(update) {
            let mut change = self.message(WireguardCmd::SetDevice, attributes);
            match done {
                Ok(()) => done = self.socket.ask(change, 0, |_: GenlMessage<WireguardMessage>| ()),
                // What is not sent any more holds keys, too.
                Err(_) => change.wipe(),
            }
        }
        done
    }

    fn message(&self, cmd: WireguardCmd, mut attributes: Vec<WireguardAttribute>) -> GenlMessage<WireguardMessage> {
        attributes.push(WireguardAttribute::IfName(self.name.clone()));
        let mut message = GenlMessage::from_payload(WireguardMessage { cmd, attributes });
        message.set_resolved_family_id(self.family);
        message
    }
}

/// `CTRL_CMD_NEWFAMILY`: the number of the family. Only that is read, since the kernel tells more from
/// version to version.
struct Family(Option<u16>);

// linux/genetlink.h
const GENLMSGHDR: usize = 4;
const CTRL_ATTR_FAMILY_ID: u16 = 1;

impl NetlinkDeserializable for Family {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let id = value_of(payload.get(GENLMSGHDR..).unwrap_or_default(), CTRL_ATTR_FAMILY_ID);
        Ok(Self(id.and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes)))
    }
}

/// Bytes before the value of an attribute.
const ATTRIBUTE_HEADER: usize = 4;

/// The names of the kernel's tunnels, in its order.
///
/// # Errors
/// The kernel does not list its links.
pub fn interfaces() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    // A list that changed while it was read is good enough, as it may change right after, too.
    match Socket::open(None)?.ask(AllLinks, NLM_F_DUMP, |Link(name)| names.extend(name)) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::INTR) => Err(error),
        _ => Ok(names),
    }
}

/// `RTM_GETLINK` for all of them.
struct AllLinks;

/// `RTM_NEWLINK`: the name of the link if it is a tunnel.
struct Link(Option<String>);

// linux/rtnetlink.h, linux/if_link.h
const RTM_GETLINK: u16 = 18;
const IFINFOMSG: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;

impl NetlinkSerializable for AllLinks {
    fn message_type(&self) -> u16 {
        RTM_GETLINK
    }

    fn buffer_len(&self) -> usize {
        IFINFOMSG
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.fill(0);
    }
}

impl NetlinkDeserializable for Link {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let attributes = payload.get(IFINFOMSG..).unwrap_or_default();
        let info = value_of(attributes, IFLA_LINKINFO).unwrap_or_default();
        let kind = value_of(&info, IFLA_INFO_KIND).unwrap_or_default();
        let name = value_of(attributes, IFLA_IFNAME).filter(|_| without_nul(&kind) == WIREGUARD.as_bytes());
        Ok(Self(name.and_then(|name| String::from_utf8(without_nul(&name).to_vec()).ok())))
    }
}

/// The value of the attribute `kind`.
fn value_of(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut attributes = NlasIterator::new(attributes).map_while(Result::ok);
    Some(attributes.find(|attribute| attribute.kind() == kind)?.value().to_vec())
}

fn without_nul(text: &[u8]) -> &[u8] {
    text.strip_suffix(&[0]).unwrap_or(text)
}

/// Adds what one message of a dump says; `None` if it says something that cannot be.
fn tell(message: &WireguardMessage, state: &mut DeviceState) -> Option<()> {
    for attribute in &message.attributes {
        match attribute {
            WireguardAttribute::PrivateKey(key) => state.private_key = given(key),
            WireguardAttribute::ListenPort(port) => state.listen_port = *port,
            WireguardAttribute::Fwmark(mark) => state.fwmark = *mark,
            WireguardAttribute::Peers(peers) => peers.iter().try_for_each(|peer| tell_peer(peer, state))?,
            _ => {}
        }
    }
    Some(())
}

fn tell_peer(message: &WireguardPeer, state: &mut DeviceState) -> Option<()> {
    let key = |attribute: &_| if let WireguardPeerAttribute::PublicKey(key) = attribute { Some(*key) } else { None };
    let public_key = PublicKey(message.iter().find_map(key)?);
    // A peer with many allowed IPs goes on in the next message.
    if state.peers.last().is_none_or(|last| last.public_key != public_key) {
        state.peers.push(PeerState::new(public_key));
    }
    let peer = state.peers.last_mut()?;
    for attribute in message.iter() {
        match attribute {
            WireguardPeerAttribute::PresharedKey(key) => peer.preshared_key = given(key),
            WireguardPeerAttribute::Endpoint(endpoint) => peer.endpoint = Some(*endpoint),
            WireguardPeerAttribute::PersistentKeepalive(seconds) => peer.persistent_keepalive = *seconds,
            WireguardPeerAttribute::LastHandshake(at) => {
                let (seconds, nanos) = (at.seconds.try_into().ok()?, at.nano_seconds.try_into().ok()?);
                peer.last_handshake = Duration::from_secs(seconds) + Duration::from_nanos(nanos);
            }
            WireguardPeerAttribute::RxBytes(bytes) => peer.rx_bytes = *bytes,
            WireguardPeerAttribute::TxBytes(bytes) => peer.tx_bytes = *bytes,
            WireguardPeerAttribute::AllowedIps(ips) => {
                for ip in ips {
                    peer.allowed_ips.push(prefix(ip)?);
                }
            }
            _ => {}
        }
    }
    Some(())
}

/// The key, unless it is the all-zero one, which stands for none.
fn given(key: &[u8; 32]) -> Option<SecretKey> {
    Some(SecretKey::from_bytes(key)).filter(|key| !key.is_zero())
}

fn prefix(message: &WireguardAllowedIp) -> Option<(IpAddr, u8)> {
    let (mut addr, mut cidr) = (None, None);
    for attribute in message.iter() {
        match attribute {
            WireguardAllowedIpAttr::IpAddr(ip) => addr = Some(*ip),
            WireguardAllowedIpAttr::Cidr(length) => cidr = Some(*length),
            _ => {}
        }
    }
    let longest = if addr?.is_ipv4() { 32 } else { 128 };
    Some((addr?, cidr.filter(|&cidr| cidr <= longest)?))
}

/// Room for all attributes of a device or of a peer, the nested ones counted as one each: lists that
/// hold a key must not move, which would leave a copy of it behind.
const ATTRIBUTES_MAX: usize = 8;

/// The change in as many messages as it takes, at least one. All that is about the device is in the first.
fn messages(update: &DeviceUpdate) -> Vec<Vec<WireguardAttribute>> {
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
fn wipe(message: &mut WireguardMessage) {
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

/// What is sent to the kernel.
trait Question: NetlinkSerializable {
    /// Overwrites the keys in it, if it can have any.
    fn wipe(&mut self) {}
}

impl Question for AllLinks {}

impl Question for GenlMessage<GenlCtrl> {}

impl Question for GenlMessage<WireguardMessage> {
    fn wipe(&mut self) {
        wipe(&mut self.payload);
    }
}

/// A blocking netlink socket that asks one thing at a time.
struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// For generic netlink, or without a protocol for links (NETLINK_ROUTE is 0).
    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends `question` and gives each answer to `tell`, until the kernel says that it is done.
    ///
    /// # Errors
    /// What the kernel refuses it with, or EINTR if what it told changed meanwhile.
    fn ask<Q: Question, A: NetlinkDeserializable>(
        &mut self,
        question: Q,
        flags: u16,
        mut tell: impl FnMut(A),
    ) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.sequence;
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = Zeroizing::new(vec![0; message.buffer_len()]);
        message.serialize(&mut bytes);
        if let NetlinkPayload::InnerMessage(question) = &mut message.payload {
            question.wipe();
        }
        send(&self.fd, &bytes, SendFlags::empty())?;

        let mut consistent = true;
        let mut received = Zeroizing::new(vec![0; RECEIVE]);
        loop {
            let (length, whole) = recv(&self.fd, received.as_mut_slice(), RecvFlags::TRUNC)?;
            if whole > length {
                return Err(Errno::NOBUFS.into());
            }
            let mut rest = &received[..length];
            while !rest.is_empty() {
                let frame = NetlinkBuffer::new_checked(rest).map_err(|_| Errno::PROTO)?;
                let (length, sequence) = (frame.length() as usize, frame.sequence_number());
                consistent &= frame.flags() & NLM_F_DUMP_INTR == 0;
                if sequence == self.sequence {
                    if let Some(end) = end(&frame) {
                        return end.and(if consistent { Ok(()) } else { Err(Errno::INTR.into()) });
                    }
                    let message = NetlinkMessage::<A>::deserialize(&rest[..length]).map_err(|_| Errno::PROTO)?;
                    if let NetlinkPayload::InnerMessage(answer) = message.payload {
                        tell(answer);
                    }
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

/// How it went, if this is the last message of an answer: both kinds begin with zero or a negative
/// errno (linux/netlink.h), and the end of a dump may be empty.
///
/// Read in place, because a refusal repeats the whole request, with its keys.
fn end(frame: &NetlinkBuffer<&[u8]>) -> Option<io::Result<()>> {
    let payload = frame.payload();
    let code = match (frame.message_type(), payload.first_chunk()) {
        (NLMSG_ERROR | NLMSG_DONE, Some(code)) => i32::from_ne_bytes(*code),
        (NLMSG_DONE, None) if payload.is_empty() => 0,
        (NLMSG_ERROR | NLMSG_DONE, None) => return Some(Err(Errno::PROTO.into())),
        _ => return None,
    };
    Some(if code < 0 { Err(io::Error::from_raw_os_error(code.saturating_neg())) } else { Ok(()) })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use netlink_packet_core::ParseableParametrized;
    use proptest::prelude::*;

    use super::*;

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
                let read = WireguardMessage::parse_with_param(&bytes(&message), GenlMessage::from_payload(message.clone()).header);
                prop_assert_eq!(tell(&read.unwrap(), &mut state), Some(()));
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

        #[test]
        fn no_link_and_no_family_make_it_panic(payload in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Link::deserialize(&NetlinkHeader::default(), &payload);
            let _ = Family::deserialize(&NetlinkHeader::default(), &payload);
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

    #[test]
    fn both_kinds_of_last_message_may_refuse() {
        let refused = |kind, code: i32| end_of(kind, &code.to_ne_bytes()).unwrap().unwrap_err().raw_os_error();
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            assert_eq!(refused(kind, -Errno::NODEV.raw_os_error()), Some(Errno::NODEV.raw_os_error()));
            assert_eq!(refused(kind, i32::MIN), Some(i32::MAX));
            assert!(end_of(kind, &[0; 4]).unwrap().is_ok());
            assert!(end_of(kind, &[0; 3]).unwrap().is_err());
        }
        assert!(end_of(NLMSG_DONE, &[]).unwrap().is_ok());
        assert!(end_of(NLMSG_ERROR, &[]).unwrap().is_err());
        assert!(end_of(RTM_GETLINK, &[0xff; 4]).is_none());
    }

    fn end_of(kind: u16, payload: &[u8]) -> Option<io::Result<()>> {
        let header = NetlinkHeader::default().buffer_len();
        let mut bytes = vec![0; header];
        bytes.extend(payload);
        let mut frame = NetlinkBuffer::new(&mut bytes[..]);
        frame.set_length((header + payload.len()).try_into().unwrap());
        frame.set_message_type(kind);
        end(&NetlinkBuffer::new_checked(&bytes[..]).unwrap())
    }

    #[test]
    fn the_number_of_the_family_is_found_among_attributes_that_are_not_known() {
        let attribute = |kind: u16, value: [u8; 4]| [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat();
        let number = [&6u16.to_ne_bytes()[..], &CTRL_ATTR_FAMILY_ID.to_ne_bytes(), &0x1234u16.to_ne_bytes(), &[0; 2]];
        let told = [vec![0; GENLMSGHDR], attribute(99, [1; 4]), number.concat(), attribute(98, [2; 4])].concat();
        let family = |payload: &[u8]| Family::deserialize(&NetlinkHeader::default(), payload).unwrap().0;
        assert_eq!(family(&told), Some(0x1234));
        for length in 0..GENLMSGHDR + 8 + 6 {
            assert_eq!(family(&told[..length]), None, "of {length} bytes");
        }
    }

    #[test]
    fn a_prefix_longer_than_its_address_is_not_believed() {
        let longer = |addr: &str, cidr| {
            let ip = allowed_ip(&AllowedIp { add: true, addr: addr.parse().unwrap(), cidr });
            prefix(&ip).is_none()
        };
        assert!(longer("192.0.2.0", 33) && longer("2001:db8::", 129));
        assert!(!longer("192.0.2.0", 32) && !longer("2001:db8::", 128));
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
