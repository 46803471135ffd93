//! Packets: what one that has arrived is, and what smoltcp's device is, which takes one and gives one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;

use linerate_netio::udp::{GSO_BATCH_MAX, SEGMENTS_MAX};
use linerate_packet::checksum::{self, Sum};
use linerate_packet::ip::{self, Ip, Version};
use linerate_packet::virtio::{DATA_VALID, Gso, Header, NEEDS_CSUM};
use linerate_packet::{ICMP, ICMPV6, TCP, UDP};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken};
use smoltcp::time::Instant;

use crate::counters::DropReason;

/// The longest packet, and so the longest that stands for several segments.
pub(crate) const PACKET_MAX: usize = 65_535;

/// The flags of TCP.
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

const TCP_HEADER: usize = 20;
const TCP_SEQUENCE: usize = 4;
const TCP_ACKNOWLEDGEMENT: usize = 8;
const TCP_DATA_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_WINDOW: usize = 14;
const TCP_CHECKSUM: usize = 16;
/// The option that says what has arrived behind a gap.
const SACK: u8 = 5;
const UDP_HEADER: usize = 8;
/// Those of a segment of IPv4 without options.
pub(crate) const HEADERS_V4: usize = 20 + TCP_HEADER;
/// What the tunnel adds to a packet: the header of a message and its authenticator.
const TUNNEL: usize = 32;
const ICMP_HEADER: usize = 8;

/// A connection: the addresses and ports of its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// An echo request: who was asked, and the identifier and sequence number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EchoKey {
    pub(crate) to: IpAddr,
    pub(crate) ident: u16,
    pub(crate) sequence: u16,
}

/// A segment of TCP, or several that were merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) key: Key,
    pub(crate) flags: u8,
    pub(crate) acknowledgement: u32,
    /// Bytes behind that number that have arrived as well (SACK), by what the segment says.
    pub(crate) sacked: usize,
    /// Whether the window that it tells is closed.
    pub(crate) closed: bool,
    /// Bytes of data.
    pub(crate) payload: usize,
    /// Whether it stands for several.
    pub(crate) merged: bool,
    /// Where its header begins in the packet.
    transport: usize,
}

impl Segment {
    /// Whether it says nothing but what has arrived.
    pub(crate) fn is_acknowledgement(&self) -> bool {
        self.payload == 0 && self.flags & (FIN | SYN | RST | ACK) == ACK
    }

    /// Changes the acknowledgement number in its packet, whose checksum was verified, and is wrong from here on.
    pub(crate) fn acknowledge(&self, packet: &mut [u8], number: u32) {
        let field = self.transport + TCP_ACKNOWLEDGEMENT;
        packet[field..field + 4].copy_from_slice(&number.to_be_bytes());
    }
}

/// What has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival<'a> {
    /// A segment.
    Tcp(Segment),
    /// A datagram.
    Udp { to: SocketAddr, from: SocketAddr, payload: &'a [u8] },
    /// A reply to an echo request.
    Echo(EchoKey),
    /// A packet that was sent has not arrived.
    Undelivered { what: Quoted, why: io::ErrorKind },
    /// Something that smoltcp may answer.
    Other,
}

/// The packet that an ICMP error is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Quoted {
    /// A segment, and its sequence number.
    Tcp(Key, u32),
    /// A datagram.
    Udp(Key),
    /// An echo request.
    Echo(EchoKey),
}

/// Reads a packet that follows `header`, and verifies the checksum that smoltcp will not.
pub(crate) fn parse<'a>(header: &Header, packet: &'a [u8]) -> Result<(Ip, Arrival<'a>), DropReason> {
    let ip = ip::parse(packet).map_err(|_| DropReason::Malformed)?;
    if ip.fragment {
        return Err(DropReason::Fragment);
    }
    let packet = &packet[..ip.total_len];
    let message = packet.get(ip.transport..).ok_or(DropReason::Malformed)?;
    let verified = is_verified(header);
    let arrival = match (ip.protocol, ip.version) {
        (TCP, _) => Arrival::Tcp(parse_tcp(&ip, packet, message, header)?),
        (UDP, _) => parse_udp(&ip, packet, message, verified)?,
        (ICMP, Version::V4) | (ICMPV6, Version::V6) => parse_icmp(&ip, packet, message, verified)?,
        _ => Arrival::Other,
    };
    Ok((ip, arrival))
}

/// What the engine has merged, it has verified.
fn is_verified(header: &Header) -> bool {
    header.flags & (NEEDS_CSUM | DATA_VALID) != 0
}

fn parse_tcp(ip: &Ip, packet: &[u8], message: &[u8], header: &Header) -> Result<Segment, DropReason> {
    if message.len() < TCP_HEADER {
        return Err(DropReason::Malformed);
    }
    let headers = usize::from(message[TCP_DATA_OFFSET] >> 4) * 4;
    if headers < TCP_HEADER || headers > message.len() {
        return Err(DropReason::Malformed);
    }
    if !is_verified(header) && transport_sum(ip, packet).fold() != 0xffff {
        return Err(DropReason::Checksum);
    }
    let acknowledgement = be32(message, TCP_ACKNOWLEDGEMENT).ok_or(DropReason::Malformed)?;
    Ok(Segment {
        key: key(ip, message, true).ok_or(DropReason::Malformed)?,
        flags: message[TCP_FLAGS],
        acknowledgement,
        sacked: sacked(&message[TCP_HEADER..headers], acknowledgement),
        closed: message[TCP_WINDOW..TCP_WINDOW + 2] == [0, 0],
        payload: message.len() - headers,
        merged: header.gso != Gso::None,
        transport: ip.transport,
    })
}

/// The bytes of all blocks of SACK (RFC 2018) among the options. Those that repeat what was acknowledged are none
/// (RFC 2883).
fn sacked(mut options: &[u8], acknowledgement: u32) -> usize {
    let mut bytes: usize = 0;
    while let [kind, rest @ ..] = options {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(*rest.first().unwrap_or(&0)),
        };
        let Some((option, rest)) = options.split_at_checked(len).filter(|_| len > 0) else { break };
        for block in option.get(2..).filter(|_| *kind == SACK).unwrap_or_default().chunks_exact(8) {
            let (Some(left), Some(right)) = (be32(block, 0), be32(block, 4)) else { continue };
            if is_before(acknowledgement, left) && is_before(left, right) {
                bytes = bytes.saturating_add(right.wrapping_sub(left) as usize);
            }
        }
        options = rest;
    }
    bytes
}

/// Whether the sequence number `one` comes before `other`.
pub(crate) fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

fn parse_udp<'a>(ip: &Ip, packet: &[u8], message: &'a [u8], verified: bool) -> Result<Arrival<'a>, DropReason> {
    let len = usize::from(be16(message, 4).ok_or(DropReason::Malformed)?);
    let payload = message.get(UDP_HEADER..len).ok_or(DropReason::Malformed)?;
    // Only IPv4 may go without (RFC 8200 section 8.1).
    let has_none = ip.version == Version::V4 && be16(message, 6) == Some(0);
    if !verified && !has_none && len == message.len() && transport_sum(ip, packet).fold() != 0xffff {
        return Err(DropReason::Checksum);
    }
    let key = key(ip, message, true).ok_or(DropReason::Malformed)?;
    Ok(Arrival::Udp { to: key.local, from: key.remote, payload })
}

fn parse_icmp<'a>(ip: &Ip, packet: &[u8], message: &[u8], verified: bool) -> Result<Arrival<'a>, DropReason> {
    let quote = message.get(ICMP_HEADER..).ok_or(DropReason::Malformed)?;
    let sum = if ip.version == Version::V4 { checksum::sum(message, Sum::ZERO) } else { transport_sum(ip, packet) };
    if !verified && sum.fold() != 0xffff {
        return Err(DropReason::Checksum);
    }
    let why = match (ip.version, message[0], message[1]) {
        (Version::V4, 0, _) | (Version::V6, 129, _) => {
            let (ident, sequence) = (be16(message, 4).unwrap_or(0), be16(message, 6).unwrap_or(0));
            return Ok(Arrival::Echo(EchoKey { to: ip.source, ident, sequence }));
        }
        (Version::V4, 3, 4) | (Version::V6, 2, _) => return Err(DropReason::TooBig),
        (Version::V4, 3, 2 | 3) | (Version::V6, 1, 4) => io::ErrorKind::ConnectionRefused,
        (Version::V4, 3, 0 | 6) | (Version::V6, 1, 0) => io::ErrorKind::NetworkUnreachable,
        (Version::V4, 3, _) | (Version::V6, 1, _) => io::ErrorKind::HostUnreachable,
        _ => return Ok(Arrival::Other),
    };
    let what = parse_quote(quote).ok_or(DropReason::Malformed)?;
    Ok(Arrival::Undelivered { what, why })
}

/// Reads the beginning of a packet that was sent, which may be cut off behind eight bytes of its transport header.
fn parse_quote(quote: &[u8]) -> Option<Quoted> {
    let (version, transport, protocol) = match ip::version(quote)? {
        Version::V4 => (Version::V4, usize::from(quote[0] & 0xf) * 4, *quote.get(9)?),
        Version::V6 => (Version::V6, ip::V6_HEADER, *quote.get(6)?),
    };
    let (source, destination) = (ip::source(quote)?, ip::destination(quote)?);
    let message = quote.get(transport..)?;
    let sent =
        Ip { version, source, destination, total_len: quote.len(), protocol, transport, ecn: 0, fragment: false };
    Some(match protocol {
        TCP => Quoted::Tcp(key(&sent, message, false)?, be32(message, TCP_SEQUENCE)?),
        UDP => Quoted::Udp(key(&sent, message, false)?),
        ICMP | ICMPV6 => {
            Quoted::Echo(EchoKey { to: destination, ident: be16(message, 4)?, sequence: be16(message, 6)? })
        }
        _ => return None,
    })
}

/// The two ends, by the ports at the beginning of the transport header, of a packet that was `received` or sent.
fn key(ip: &Ip, message: &[u8], received: bool) -> Option<Key> {
    let source = SocketAddr::new(ip.source, be16(message, 0)?);
    let destination = SocketAddr::new(ip.destination, be16(message, 2)?);
    Some(if received { Key { local: destination, remote: source } } else { Key { local: source, remote: destination } })
}

/// The sum of a whole transport message and its pseudo-header.
fn transport_sum(ip: &Ip, packet: &[u8]) -> Sum {
    checksum::sum(&packet[ip.transport..], pseudo_header(ip, packet))
}

fn pseudo_header(ip: &Ip, packet: &[u8]) -> Sum {
    let addresses = match ip.version {
        Version::V4 => &packet[12..20],
        Version::V6 => &packet[8..40],
    };
    checksum::pseudo_header(addresses, ip.protocol, packet.len() - ip.transport)
}

/// The sequence numbers of a segment that is to be sent.
pub(crate) struct Numbers {
    pub(crate) first: u32,
    /// Behind its last byte; its first and its last flag count as a byte each.
    pub(crate) end: u32,
    /// Whether it says what was received.
    pub(crate) acknowledges: bool,
    /// Where the first one stands in the packet.
    field: usize,
}

impl Numbers {
    /// Those of the segment in `packet`, which has no checksum yet.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let ip = ip::parse(packet).ok().filter(|ip| ip.protocol == TCP)?;
        let message = packet.get(ip.transport..)?;
        let (flags, first) = (*message.get(TCP_FLAGS)?, be32(message, TCP_SEQUENCE)?);
        let headers = usize::from(message[TCP_DATA_OFFSET] >> 4) * 4;
        let len = message.len().checked_sub(headers)? + (flags & (SYN | FIN)).count_ones() as usize;
        let end = first.wrapping_add(len as u32);
        Some(Self { first, end, acknowledges: flags & ACK != 0, field: ip.transport + TCP_SEQUENCE })
    }

    /// Changes the first one.
    pub(crate) fn renumber(&self, packet: &mut [u8], first: u32) {
        packet[self.field..self.field + 4].copy_from_slice(&first.to_be_bytes());
    }
}

/// What smoltcp gave: the length of the packet, and of the segments that it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emitted {
    pub(crate) len: usize,
    segments: Option<u16>,
}

/// Completes a packet: the checksum of TCP is left to the engine, which sums while it copies. Returns the header that
/// says so.
pub(crate) fn complete(packet: &mut [u8], emitted: Emitted) -> Header {
    let Ok(ip) = ip::parse(packet) else { return Header::default() };
    if ip.protocol != TCP {
        return Header::default();
    }
    let sum = pseudo_header(&ip, packet).fold();
    let field = ip.transport + TCP_CHECKSUM;
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    let gso = match (emitted.segments, ip.version) {
        (None, _) => Gso::None,
        (Some(_), Version::V4) => Gso::TcpV4,
        (Some(_), Version::V6) => Gso::TcpV6,
    };
    let headers = ip.transport + usize::from(packet[ip.transport + TCP_DATA_OFFSET] >> 4) * 4;
    Header {
        flags: NEEDS_CSUM,
        gso,
        ecn: false,
        hdr_len: headers as u16,
        gso_size: emitted.segments.unwrap_or(0),
        csum_start: ip.transport as u16,
        csum_offset: TCP_CHECKSUM as u16,
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|field| u16::from_be_bytes([field[0], field[1]]))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(be16(bytes, at)?) << 16 | u32::from(be16(bytes, at + 2)?))
}

/// The longest packet that stands for several segments of IPv4: they make one GSO batch of the engine's.
fn train(mtu: usize) -> usize {
    let segments = (GSO_BATCH_MAX / (mtu + TUNNEL)).clamp(1, SEGMENTS_MAX);
    HEADERS_V4 + segments * (mtu - HEADERS_V4)
}

/// smoltcp's device: one packet that has arrived, and room for one.
pub(crate) struct Wire<'a> {
    arrived: Option<&'a [u8]>,
    room: &'a mut [u8],
    emitted: Option<Emitted>,
    mtu: usize,
}

impl<'a> Wire<'a> {
    pub(crate) fn new(mtu: usize, arrived: Option<&'a [u8]>, room: &'a mut [u8]) -> Self {
        Self { arrived, room, emitted: None, mtu }
    }

    /// What was put into the room.
    pub(crate) fn emitted(&self) -> Option<Emitted> {
        self.emitted
    }
}

impl Device for Wire<'_> {
    type RxToken<'b>
        = Arrived<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Room<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Arrived<'_>, Room<'_>)> {
        let arrived = self.arrived.take()?;
        Some((Arrived(arrived), Room { room: &mut *self.room, emitted: &mut self.emitted, segments: None }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        let vacant = self.emitted.is_none();
        vacant.then_some(Room { room: &mut *self.room, emitted: &mut self.emitted, segments: None })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum.tcp = Checksum::None;
        // Not for IPv6: smoltcp 0.14.0 drops what is longer than the MTU there, without regard to segmentation.
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(train(self.mtu));
        capabilities
    }
}

/// The packet that has arrived.
pub(crate) struct Arrived<'a>(&'a [u8]);

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Room for a packet.
pub(crate) struct Room<'a> {
    room: &'a mut [u8],
    emitted: &'a mut Option<Emitted>,
    segments: Option<u16>,
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        match self.room.get_mut(..len) {
            Some(room) => {
                *self.emitted = Some(Emitted { len, segments: self.segments });
                f(room)
            }
            // No caller has less room than the longest packet; if one had, the packet would be lost like any other.
            None => f(&mut vec![0; len]),
        }
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segments = meta.segmentation_offload_size.map(u16::from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_behind_the_acknowledgement_are_counted_and_no_others() {
        let block = |left: u32, right: u32| [left.to_be_bytes(), right.to_be_bytes()].concat();
        let option = |blocks: &[Vec<u8>]| [&[1, 1, SACK, 2 + 8 * blocks.len() as u8], &*blocks.concat()].concat();
        let two = option(&[block(2000, 3000), block(4000, 4500)]);
        assert_eq!(sacked(&two, 1000), 1500);
        assert_eq!(sacked(&two, 2000), 500, "the first one repeats what was acknowledged");
        assert_eq!(sacked(&option(&[block(3000, 2000)]), 1000), 0);
        assert_eq!(sacked(&option(&[block(10, 20)]), u32::MAX - 5), 10);
        for options in [&[][..], &[SACK], &[SACK, 0], &[SACK, 1], &[SACK, 255], &[8, 10, 0], &[255; 40], &two[..9]] {
            assert_eq!(sacked(options, 1000), 0, "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn no_options_make_it_panic(options in prop::collection::vec(any::<u8>(), 0..=40), number in any::<u32>()) {
            sacked(&options, number);
        }
    }
}
