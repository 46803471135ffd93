//! A device that the kernel reports in any number of messages parses correctly; any bytes parse as an answer of the
//! kernel attribute by attribute, in order, into a state that round-trips through the UAPI and through requests.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use linerate_netlink::{Message, Reply};
use netlink_packet_core::Emitable;

use super::bytes::Bytes;
use super::reply;
use super::request;
use crate::keys::{PublicKey, SecretKey};
use crate::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use crate::uapi::response::{DeviceState, PeerState, parse};

pub fn check(input: &[u8]) {
    any_reply(input);
    let mut bytes = Bytes(input);
    let damage = bytes.take(12);
    link(&mut bytes);
    let telling = Telling::decide(&mut bytes);
    let tunnel = tunnel(&mut bytes);
    let mut datagrams = telling.datagrams(&tunnel);
    let (state, end) = get(&datagrams, SEQUENCE);
    assert_eq!(end.map(errno), Some(telling.errno));
    assert!(state.as_ref() == Some(&tunnel), "the state that is read equals the tunnel");
    as_text(tunnel);

    for edit in damage.chunks_exact(3) {
        let offset = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
        let datagram = datagrams.iter_mut().find(|datagram| offset < datagram.len());
        datagram.into_iter().for_each(|datagram| datagram[offset] = edit[2]);
    }
    datagrams.iter().for_each(|datagram| any_reply(datagram));
}

/// Any datagram.
fn any_reply(datagram: &[u8]) {
    // The first message is made an answer, so that there is one.
    let sequence = datagram.get(8..12).map_or(0, |number| u32::from_ne_bytes(number.try_into().expect("four bytes")));
    let payloads = payloads(datagram, sequence);
    for cut in [datagram.len() / 2, datagram.len().saturating_sub(1)] {
        assert!(payloads.starts_with(&self::payloads(&datagram[..cut], sequence)), "only cut-off messages are missing");
    }
    for payload in &payloads {
        let mut state = DeviceState::default();
        let whole = reply::device(payload, &mut state).map(|()| state);
        assert!(whole == one_by_one(payload), "attributes are independent");
        let name = reply::tunnel(payload);
        assert!(name.is_none_or(|name| name.len() < payload.len()));
        let _ = reply::family(payload);
    }
    if let (Some(state), _) = get(&[datagram.to_vec()], sequence) {
        // A peer takes at least a nest and a key, an allowed IP a nest, an address and a length.
        let allowed_ips: usize = state.peers.iter().map(|peer| peer.allowed_ips.len()).sum();
        assert!(state.peers.len() * 40 + allowed_ips * 17 <= datagram.len(), "no item is shorter than its encoding");
        as_change(&state);
        as_text(state);
    }
}

/// The content of the consecutive messages of a datagram.
fn payloads(datagram: &[u8], sequence: u32) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut before = datagram.as_ptr_range();
    before.end = before.start;
    let _ = Reply::to(sequence).take(datagram, |message| {
        let payload = message.payload;
        let range = payload.as_ptr_range();
        assert!(before.end.addr() + HEADER <= range.start.addr() && range.end <= datagram.as_ptr_range().end);
        before = range;
        payloads.push(payload.to_vec());
    });
    payloads
}

/// The attributes of a message, each parsed alone; `None` if one is invalid.
fn one_by_one(payload: &[u8]) -> Option<DeviceState> {
    let (header, mut rest) = payload.split_at_checked(4)?;
    let mut state = DeviceState::default();
    while !rest.is_empty() {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?)).max(1);
        let (attribute, others) = rest.split_at(length.next_multiple_of(4).min(rest.len()));
        reply::device(&[header, attribute].concat(), &mut state)?;
        rest = others;
    }
    Some(state)
}

/// Parses like `Kernel::get`; no state if a message is invalid.
fn get(datagrams: &[Vec<u8>], sequence: u32) -> (Option<DeviceState>, Option<io::Result<()>>) {
    let (mut state, mut valid) = (DeviceState::default(), true);
    let mut reply = Reply::to(sequence);
    let mut take = |datagram: &Vec<u8>| {
        let read = |message: &Message<'_>| valid &= reply::device(message.payload, &mut state).is_some();
        reply.take(datagram, read).map(|end| end.map_err(|refused| refused.error))
    };
    let end = datagrams.iter().find_map(&mut take);
    (valid.then_some(state), end)
}

/// A state round-trips through a UAPI reply, which has no flow labels and no IPv4-mapped addresses.
fn as_text(mut state: DeviceState) {
    for endpoint in state.peers.iter_mut().filter_map(|peer| peer.endpoint.as_mut()) {
        *endpoint = match endpoint {
            SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none() => {
                SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into()
            }
            _ => SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port()),
        };
    }
    assert!(parse(&state.render()) == Ok(state), "the UAPI can carry it");
}

/// A request that creates a state parses as the state, except for what no request can carry.
fn as_change(state: &DeviceState) {
    let peers = state.peers.iter().map(|peer| PeerUpdate {
        preshared_key: peer.preshared_key.clone(),
        endpoint: peer.endpoint,
        persistent_keepalive: Some(peer.persistent_keepalive),
        allowed_ips: peer.allowed_ips.iter().map(|&(addr, cidr)| AllowedIp { add: true, addr, cidr }).collect(),
        ..PeerUpdate::new(peer.public_key)
    });
    let change = DeviceUpdate {
        private_key: state.private_key.clone(),
        listen_port: Some(state.listen_port),
        fwmark: Some(state.fwmark),
        replace_peers: true,
        peers: peers.collect(),
        ..DeviceUpdate::default()
    };
    let mut again = DeviceState::default();
    for attributes in request::messages(&change) {
        assert!(attributes.iter().all(|attribute| attribute.buffer_len() <= usize::from(u16::MAX)));
        let mut payload = vec![0; 4 + attributes.as_slice().buffer_len()];
        attributes.as_slice().emit(&mut payload[4..]);
        reply::device(&payload, &mut again).expect("a request is a valid reply");
    }
    for (peer, was) in again.peers.iter_mut().zip(&state.peers) {
        (peer.last_handshake, peer.rx_bytes, peer.tx_bytes) = (was.last_handshake, was.rx_bytes, was.tx_bytes);
    }
    assert!(again == *state, "the change recreates the state");
}

/// Only a link of the right kind is a tunnel.
fn link(bytes: &mut Bytes<'_>) {
    let kind = *bytes.pick(&["wireguard", "wireguard2", "wire", "tun", ""]);
    let count = bytes.below(16);
    let name: Vec<u8> = bytes.take(count).iter().map(|&byte| byte.max(1)).collect();
    let info = put(1 | NESTED, &[kind.as_bytes(), &[0]].concat());
    let attributes = [put(3, &[&name[..], &[0]].concat()), put(4, &[0; 4]), put(18 | NESTED, &info)].concat();
    let name_read = reply::tunnel(&[vec![0; 16], attributes].concat());
    assert_eq!(name_read, String::from_utf8(name).ok().filter(|_| kind == "wireguard"));
}

fn tunnel(bytes: &mut Bytes<'_>) -> DeviceState {
    let private_key = secret(bytes);
    let (listen_port, fwmark) = (bytes.short(), u32::from(bytes.short()) << 8);
    let peers = (0..bytes.below(5)).map(|number| peer(number, bytes)).collect();
    DeviceState { private_key, listen_port, fwmark, peers }
}

fn peer(number: usize, bytes: &mut Bytes<'_>) -> PeerState {
    let mut public_key: [u8; 32] = bytes.array();
    public_key[0] = u8::try_from(number).expect("there are few peers");
    let preshared_key = secret(bytes);
    let endpoint = match bytes.below(3) {
        0 => None,
        1 => Some(SocketAddr::from((bytes.array::<4>(), bytes.short()))),
        _ => Some(SocketAddrV6::new(bytes.array::<16>().into(), bytes.short(), 0, bytes.byte().into()).into()),
    };
    let last_handshake = Duration::new(bytes.short().into(), u32::from(bytes.short()) * 15_000);
    let (rx_bytes, tx_bytes) = (u64::from_le_bytes(bytes.array()), bytes.short().into());
    let persistent_keepalive = bytes.short();
    // Up to more than fits into one message of a request.
    let few = bytes.below(4);
    let many = if bytes.below(8) == 1 { bytes.below(700) } else { 0 };
    let mut allowed_ips: Vec<_> = (0..few).map(|_| allowed_ip(bytes)).collect();
    allowed_ips.extend((0..many).map(|n| (IpAddr::from((n as u128).to_be_bytes()), (n % 129) as u8)));
    PeerState {
        public_key: PublicKey(public_key),
        preshared_key,
        endpoint,
        last_handshake,
        tx_bytes,
        rx_bytes,
        persistent_keepalive,
        allowed_ips,
        ..PeerState::new(PublicKey(public_key))
    }
}

fn secret(bytes: &mut Bytes<'_>) -> Option<SecretKey> {
    Some(SecretKey::from_bytes(&bytes.array())).filter(|key| !key.is_zero())
}

fn allowed_ip(bytes: &mut Bytes<'_>) -> (IpAddr, u8) {
    if bytes.flag() {
        (bytes.array::<4>().into(), bytes.below(33) as u8)
    } else {
        (bytes.array::<16>().into(), bytes.below(129) as u8)
    }
}

/// How the kernel reports a device.
struct Telling<'a> {
    /// Bytes of a message.
    room: usize,
    /// All messages in one datagram.
    together: bool,
    /// How it ends; a flag stands for EINTR.
    errno: i32,
    /// The answer to an earlier request comes first.
    late: bool,
    /// Unknown attributes, as from a later kernel.
    more: &'a [u8],
}

impl<'a> Telling<'a> {
    fn decide(bytes: &mut Bytes<'a>) -> Self {
        let count = bytes.below(9);
        Self {
            // A peer without allowed IPs beside the device, or with one allowed IP, fits into any message.
            room: 512 + bytes.below(4000),
            together: bytes.flag(),
            errno: *bytes.pick(&[0, 0, EINTR, 19, 95]),
            late: bytes.flag(),
            more: bytes.take(count),
        }
    }

    /// Like wg_get_device_dump and get_peer (drivers/net/wireguard/netlink.c).
    fn datagrams(&self, tunnel: &DeviceState) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        if self.late {
            messages.push(message(SEQUENCE - 1, 0x1c, 0, &[&[0; 4][..], &put(6, &[7; 2])].concat()));
        }
        // The next peer, and its next allowed IP if the rest of the peer was sent.
        let mut next = (0, None);
        while next.0 < tunnel.peers.len() || messages.len() == usize::from(self.late) {
            // Until the first peer is complete, the device is repeated.
            let mut payload = [0, 1, 0, 0].to_vec();
            if next.0 == 0 {
                payload.extend(self.device(tunnel));
            }
            let peers = self.peers(tunnel, &mut next, self.room - payload.len());
            if !peers.is_empty() {
                payload.extend(put(8 | NESTED, &peers));
            }
            let flags = if self.errno == EINTR { 0x12 } else { 0x02 };
            messages.push(message(SEQUENCE, 0x1c, flags, &payload));
        }
        let errno = if self.errno == EINTR { 0 } else { -self.errno };
        messages.push(message(SEQUENCE, 3, 2, &errno.to_ne_bytes()));
        if self.together { vec![messages.concat()] } else { messages }
    }

    fn device(&self, tunnel: &DeviceState) -> Vec<u8> {
        let key = |key: &SecretKey| [put(3, key.as_bytes()), put(4, &[9; 32])].concat();
        let facts = [
            put(6, &tunnel.listen_port.to_ne_bytes()),
            put(7, &tunnel.fwmark.to_ne_bytes()),
            put(1, &7u32.to_ne_bytes()),
            put(2, b"wg0\0"),
            tunnel.private_key.as_ref().map(key).unwrap_or_default(),
        ];
        [facts.concat(), self.more()].concat()
    }

    fn peers(&self, tunnel: &DeviceState, next: &mut (usize, Option<usize>), room: usize) -> Vec<u8> {
        let mut encoded = Vec::new();
        while let Some(peer) = tunnel.peers.get(next.0) {
            let mut facts = put(1, &peer.public_key.0);
            if next.1.is_none() {
                facts.extend(self.facts(peer));
            }
            // The nests of all peers, of this peer, and of its allowed IPs.
            let mut left = match room.checked_sub(encoded.len() + facts.len() + 12) {
                Some(left) => left,
                None => break,
            };
            let mut allowed_ips = Vec::new();
            let left_over = &peer.allowed_ips[next.1.unwrap_or(0)..];
            let fits = |ip: &&(IpAddr, u8)| {
                let bytes = self.allowed_ip(ip);
                let fits = bytes.len() <= left;
                if fits {
                    left -= bytes.len();
                    allowed_ips.extend(bytes);
                }
                fits
            };
            let count = left_over.iter().take_while(fits).count();
            if !left_over.is_empty() {
                facts.extend(put(9 | NESTED, &allowed_ips));
            }
            encoded.extend(put(NESTED, &facts));
            if count < left_over.len() {
                next.1 = Some(next.1.unwrap_or(0) + count);
                break;
            }
            *next = (next.0 + 1, None);
        }
        encoded
    }

    fn facts(&self, peer: &PeerState) -> Vec<u8> {
        let key = peer.preshared_key.as_ref().map_or([0; 32], |key| *key.as_bytes());
        let time = [peer.last_handshake.as_secs(), peer.last_handshake.subsec_nanos().into()];
        let facts = [
            put(2, &key),
            put(6, &time.map(u64::to_ne_bytes).concat()),
            put(5, &peer.persistent_keepalive.to_ne_bytes()),
            // Pads to a multiple of eight (nla_align_64bit).
            put(0, &[]),
            put(8, &peer.tx_bytes.to_ne_bytes()),
            put(7, &peer.rx_bytes.to_ne_bytes()),
            put(10, &1u32.to_ne_bytes()),
            peer.endpoint.map(|endpoint| put(4, &socket(endpoint))).unwrap_or_default(),
        ];
        [facts.concat(), self.more()].concat()
    }

    fn allowed_ip(&self, (address, length): &(IpAddr, u8)) -> Vec<u8> {
        let (family, octets) = match address {
            IpAddr::V4(address) => (2u16, address.octets().to_vec()),
            IpAddr::V6(address) => (10, address.octets().to_vec()),
        };
        put(NESTED, &[put(3, &[*length]), put(1, &family.to_ne_bytes()), put(2, &octets), self.more()].concat())
    }

    fn more(&self) -> Vec<u8> {
        put(29, self.more)
    }
}

fn socket(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address {
        SocketAddr::V4(v4) => [&2u16.to_ne_bytes()[..], &port, &v4.ip().octets(), &[0; 8]].concat(),
        SocketAddr::V6(v6) => {
            [&10u16.to_ne_bytes()[..], &port, &[0; 4], &v6.ip().octets(), &v6.scope_id().to_ne_bytes()].concat()
        }
    }
}

/// The sequence number of the request.
const SEQUENCE: u32 = 7;
const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
const EINTR: i32 = 4;

fn message(sequence: u32, kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + payload.len()).expect("messages are short");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend([kind, flags].map(u16::to_ne_bytes).concat());
    bytes.extend([sequence, 0].map(u32::to_ne_bytes).concat());
    bytes.extend(payload);
    bytes
}

fn put(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("an attribute is shorter than a message");
    let mut bytes = [length, kind].map(u16::to_ne_bytes).concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn errno(end: io::Result<()>) -> i32 {
    end.map_or_else(|error| error.raw_os_error().expect("the kernel's own"), |()| 0)
}
