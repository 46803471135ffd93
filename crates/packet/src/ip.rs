//! The IP header: addresses, length, protocol and ECN bits.
//!
//! Reads nothing after the IP header except IPv6 extension headers, and changes nothing but the ECN bits.
//! The engine's outbound routing and inbound admission use the addresses; [`crate::gso`], [`crate::gro`]
//! and [`crate::icmp`] build on [`parse`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum;

pub use crate::Malformed;

/// Bytes of an IPv4 header without options.
pub const V4_HEADER: usize = 20;
/// Bytes of an IPv6 header without extension headers.
pub const V6_HEADER: usize = 40;

/// IPv4 flags and offset: don't fragment.
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4 flags and offset: more fragments follow, or this is not the first.
const FRAGMENTED: u16 = 0x3fff;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// Both ECN bits: "congestion experienced" (RFC 3168 section 5).
pub const CE: u8 = 0b11;

/// The version of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A parsed IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// IPv4 or IPv6.
    pub version: Version,
    /// The address of the sender.
    pub source: IpAddr,
    /// The address of the receiver.
    pub destination: IpAddr,
    /// Bytes of the packet, including the header; bytes after them are padding.
    pub total_len: usize,
    /// The upper-layer protocol. For IPv6 the next header, which is an extension header if there is one.
    pub protocol: u8,
    /// Offset of the first byte after the IP header: after the options of IPv4, before the extension
    /// headers of IPv6.
    pub transport: usize,
    /// The two ECN bits.
    pub ecn: u8,
    /// Whether this is a fragment. For IPv6 only a fragment header directly after the IP header counts.
    pub fragment: bool,
}

/// Parses and checks the IP header of `packet`.
///
/// The rules are those of the kernel module's receive path (`receive.c`, `wg_packet_consume_data_done`): the
/// claimed length must cover the header and be within the packet, and bytes after it are padding.
///
/// # Errors
///
/// [`Malformed::Version`], [`Malformed::Truncated`] or [`Malformed::Length`].
#[inline]
pub fn parse(packet: &[u8]) -> Result<Ip, Malformed> {
    match version(packet) {
        Some(Version::V4) => parse_v4(packet),
        Some(Version::V6) => parse_v6(packet),
        None if packet.is_empty() => Err(Malformed::Truncated),
        None => Err(Malformed::Version),
    }
}

/// The IP version, if it is 4 or 6.
#[inline]
pub fn version(packet: &[u8]) -> Option<Version> {
    match packet.first()? >> 4 {
        4 => Some(Version::V4),
        6 => Some(Version::V6),
        _ => None,
    }
}

/// The destination address; checks only that it is within the packet.
#[inline]
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match version(packet)? {
        Version::V4 => v4_header(packet).map(|header| v4_address(header, 16)),
        Version::V6 => v6_header(packet).map(|header| v6_address(header, 24)),
    }
}

/// The source address; checks only that it is within the packet.
#[inline]
pub fn source(packet: &[u8]) -> Option<IpAddr> {
    match version(packet)? {
        Version::V4 => v4_header(packet).map(|header| v4_address(header, 12)),
        Version::V6 => v6_header(packet).map(|header| v6_address(header, 8)),
    }
}

/// The two ECN bits; zero (not ECN-capable) if it is not an IP packet.
#[inline]
pub fn ecn(packet: &[u8]) -> u8 {
    match (version(packet), packet) {
        (Some(Version::V4), [_, tos, ..]) => tos & CE,
        (Some(Version::V6), [_, second, ..]) => (second >> 4) & CE,
        _ => 0,
    }
}

/// Marks an ECN-capable packet as "congestion experienced" and updates its IPv4 header checksum.
///
/// A packet that is not ECN-capable is left unchanged even if the outer header had CE, as the kernel's
/// `IP_ECN_set_ce` does; RFC 6040 section 4.2 would drop it.
#[inline]
pub fn set_ce(packet: &mut [u8]) {
    if ecn(packet) == 0 {
        return;
    }
    match version(packet) {
        Some(Version::V4) => set_ce_v4(packet),
        Some(Version::V6) => packet[1] |= CE << 4,
        None => {}
    }
}

fn set_ce_v4(packet: &mut [u8]) {
    if packet.len() < V4_HEADER {
        return;
    }
    let old = be16(packet, 0);
    let new = old | u16::from(CE);
    let checksum = checksum::after_change(be16(packet, 10), old, new);
    put16(packet, 0, new);
    put16(packet, 10, checksum);
}

fn parse_v4(packet: &[u8]) -> Result<Ip, Malformed> {
    let header = v4_header(packet).ok_or(Malformed::Truncated)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(be16(header, 2));
    if header_len < V4_HEADER || total_len < header_len || total_len > packet.len() {
        return Err(Malformed::Length);
    }
    Ok(Ip {
        version: Version::V4,
        source: v4_address(header, 12),
        destination: v4_address(header, 16),
        total_len,
        protocol: header[9],
        transport: header_len,
        ecn: header[1] & CE,
        fragment: be16(header, 6) & FRAGMENTED != 0,
    })
}

fn parse_v6(packet: &[u8]) -> Result<Ip, Malformed> {
    let header = v6_header(packet).ok_or(Malformed::Truncated)?;
    // Widened before the addition: a payload of 65,535 bytes must not wrap to a tiny packet.
    let total_len = usize::from(be16(header, 4)) + V6_HEADER;
    if total_len > packet.len() {
        return Err(Malformed::Length);
    }
    Ok(Ip {
        version: Version::V6,
        source: v6_address(header, 8),
        destination: v6_address(header, 24),
        total_len,
        protocol: header[6],
        transport: V6_HEADER,
        ecn: (header[1] >> 4) & CE,
        fragment: header[6] == FRAGMENT,
    })
}

/// The end of the chain of IPv6 extension headers.
pub(crate) struct UpperLayer {
    /// The first next-header value that is not an extension header which can be skipped.
    pub protocol: u8,
    /// Its offset in the packet.
    pub offset: usize,
    /// Bytes of the original packet before this fragment; 0 for a whole packet.
    pub fragment_offset: u16,
}

/// Walks the extension headers of an IPv6 packet, cut to its total length. `None` if the chain leaves the
/// packet. Terminates because every step advances by at least 8 bytes.
pub(crate) fn upper_layer_v6(packet: &[u8]) -> Option<UpperLayer> {
    let mut protocol = *packet.get(6)?;
    let mut offset = V6_HEADER;
    let mut fragment_offset = 0;
    // In all fragments but the first the bytes are payload.
    while fragment_offset == 0 && is_extension(protocol) {
        let header: &[u8; 8] = packet.get(offset..)?.first_chunk()?;
        let units = usize::from(header[1]);
        offset += match protocol {
            FRAGMENT => 8,
            AUTHENTICATION => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        if protocol == FRAGMENT {
            fragment_offset = be16(header, 2) & 0xfff8;
        }
        protocol = header[0];
    }
    Some(UpperLayer { protocol, offset, fragment_offset })
}

/// Whether a next-header value names an extension header, which has a next header in turn.
pub(crate) const fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS)
}

/// Source and destination, adjacent as in the header. The packet must have been parsed.
#[inline]
pub(crate) fn addresses(packet: &[u8], version: Version) -> &[u8] {
    match version {
        Version::V4 => &packet[12..20],
        Version::V6 => &packet[8..40],
    }
}

/// Writes the length field of a packet of `total_len` bytes, and for IPv4 the header checksum. The packet must
/// have been parsed as `version`.
#[inline]
pub(crate) fn set_total_len(header: &mut [u8], version: Version, total_len: usize) {
    match version {
        Version::V4 => {
            put16(header, 2, total_len as u16);
            put16(header, 10, 0);
            let header_len = usize::from(header[0] & 0x0f) * 4;
            let checksum = checksum::sum(&header[..header_len], checksum::Sum::ZERO).checksum();
            put16(header, 10, checksum);
        }
        Version::V6 => put16(header, 4, (total_len - V6_HEADER) as u16),
    }
}

#[inline]
fn v4_header(packet: &[u8]) -> Option<&[u8; V4_HEADER]> {
    packet.first_chunk()
}

#[inline]
fn v6_header(packet: &[u8]) -> Option<&[u8; V6_HEADER]> {
    packet.first_chunk()
}

#[inline]
fn v4_address(header: &[u8; V4_HEADER], at: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(be32(header, at)))
}

#[inline]
fn v6_address(header: &[u8; V6_HEADER], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    IpAddr::V6(Ipv6Addr::from(octets))
}

#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub(crate) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TCP, UDP};
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn parse_reads_both_families() {
        let mut packet = v4(28);
        packet[1] = 0b01;
        let ip = parse(&packet).unwrap();
        assert_eq!(ip.version, Version::V4);
        assert_eq!(ip.source, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(ip.destination, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((ip.total_len, ip.protocol, ip.transport), (28, UDP, 20));
        assert_eq!((ip.ecn, ip.fragment), (0b01, false));

        let mut packet = v6(8);
        packet[1] = 0b10 << 4;
        let ip = parse(&packet).unwrap();
        assert_eq!(ip.version, Version::V6);
        assert_eq!(ip.source, "fd00::1".parse::<IpAddr>().unwrap());
        assert_eq!(ip.destination, "fd00::2".parse::<IpAddr>().unwrap());
        assert_eq!((ip.total_len, ip.protocol, ip.transport), (48, UDP, 40));
        assert_eq!((ip.ecn, ip.fragment), (0b10, false));
        assert_eq!(source(&packet), Some(ip.source));
        assert_eq!(destination(&packet), Some(ip.destination));
    }

    #[test]
    fn parse_treats_what_follows_the_length_as_padding() {
        let mut packet = v4(28);
        packet.resize(48, 0);
        assert_eq!(parse(&packet).unwrap().total_len, 28);
        let mut packet = v6(8);
        packet.resize(64, 0);
        assert_eq!(parse(&packet).unwrap().total_len, 48);
    }

    #[test]
    fn parse_names_what_is_wrong() {
        assert_eq!(parse(&[]), Err(Malformed::Truncated));
        assert_eq!(parse(&[0xff; 60]), Err(Malformed::Version));
        assert_eq!(parse(&v4(28)[..19]), Err(Malformed::Truncated));
        assert_eq!(parse(&v6(0)[..39]), Err(Malformed::Truncated));
        assert_eq!(parse(&v4(28)[..27]), Err(Malformed::Length));
        assert_eq!(parse(&v6(8)[..47]), Err(Malformed::Length));
    }

    #[test]
    fn parse_refuses_an_ipv4_length_below_its_header() {
        let mut packet = v4(28);
        put16(&mut packet, 2, 19);
        assert_eq!(parse(&packet), Err(Malformed::Length));
        let mut packet = v4(28);
        packet[0] = 0x44;
        assert_eq!(parse(&packet), Err(Malformed::Length));
        let mut packet = v4(28);
        packet[0] = 0x4f;
        assert_eq!(parse(&packet), Err(Malformed::Length));
    }

    #[test]
    fn an_ipv6_payload_of_65535_bytes_does_not_wrap() {
        let mut packet = v6(8);
        put16(&mut packet, 4, 0xffff);
        assert_eq!(parse(&packet), Err(Malformed::Length));
        packet.resize(65_575, 0);
        assert_eq!(parse(&packet).unwrap().total_len, 65_575);
    }

    #[test]
    fn parse_sees_fragments() {
        for flags in [0x2000, 0x0001, 0x2001] {
            let mut packet = v4(28);
            put16(&mut packet, 6, flags);
            assert!(parse(&packet).unwrap().fragment);
        }
        let mut packet = v4(28);
        put16(&mut packet, 6, DONT_FRAGMENT);
        assert!(!parse(&packet).unwrap().fragment);
        let mut packet = v6(8);
        packet[6] = FRAGMENT;
        assert!(parse(&packet).unwrap().fragment);
    }

    #[test]
    fn the_walk_over_extension_headers_stays_inside_the_packet() {
        let mut packet = v6(24);
        packet[6] = HOP_BY_HOP;
        packet[40] = DESTINATION_OPTIONS;
        packet[48] = TCP;
        let upper = upper_layer_v6(&packet).unwrap();
        assert_eq!((upper.protocol, upper.offset), (TCP, 56));
        packet[49] = 255;
        let upper = upper_layer_v6(&packet).unwrap();
        assert_eq!(upper.offset, 48 + 2048);
        packet[48] = ROUTING;
        assert!(upper_layer_v6(&packet).is_none());
    }

    #[test]
    fn the_second_byte_of_a_fragment_header_is_not_a_length() {
        let mut packet = v6(24);
        packet[6] = FRAGMENT;
        packet[40] = UDP;
        packet[41] = 1;
        let upper = upper_layer_v6(&packet).unwrap();
        assert_eq!((upper.offset, upper.fragment_offset), (48, 0));
        packet[43] = 0x10;
        assert_eq!(upper_layer_v6(&packet).unwrap().fragment_offset, 16);
    }

    #[test]
    fn set_ce_leaves_packets_that_are_not_ecn_capable_unchanged() {
        for mut packet in [v4(28), v6(8)] {
            let before = packet.clone();
            set_ce(&mut packet);
            assert_eq!(packet, before);
        }
        set_ce(&mut []);
        set_ce(&mut [0x45]);
        set_ce(&mut [0x45, 0x01, 0, 0]);
        set_ce(&mut [0x60]);
    }

    #[test]
    fn set_ce_marks_ipv6() {
        let mut packet = v6(8);
        packet[1] = 0b1010_0101;
        set_ce(&mut packet);
        assert_eq!(packet[1], 0b1011_0101);
        assert_eq!(ecn(&packet), CE);
    }

    fn v4(total_len: u16) -> Vec<u8> {
        let mut packet = vec![0; usize::from(total_len)];
        packet[0] = 0x45;
        packet[9] = UDP;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        set_total_len(&mut packet, Version::V4, usize::from(total_len));
        packet
    }

    fn v6(payload: u16) -> Vec<u8> {
        let mut packet = vec![0; V6_HEADER + usize::from(payload)];
        packet[0] = 0x60;
        packet[6] = UDP;
        packet[8] = 0xfd;
        packet[23] = 1;
        packet[24] = 0xfd;
        packet[39] = 2;
        put16(&mut packet, 4, payload);
        packet
    }
}
