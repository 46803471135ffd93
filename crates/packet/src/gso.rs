//! GSO: splits one read from a TUN device with `IFF_VNET_HDR` and the offloads `TUN_F_CSUM`, `TSO4`,
//! `TSO6`, `TSO_ECN`, `USO4`, `USO6` into ordinary packets, complete with checksums.
//!
//! [`Split::new`] checks everything it uses: inconsistent headers are a [`Malformed`], never a panic or a
//! read outside the packet. Segments are written one by one directly to where they will be sealed;
//! payload is summed right after it was copied. [`crate::gro`] is the inverse.

use crate::checksum::{self, Sum};
use crate::ip::{self, Ip, V6_HEADER, Version, be16, be32, put16, put32};
use crate::virtio::{Gso, Header};
use crate::{Malformed, TCP, UDP};

/// Bytes of a TCP header without options.
pub(crate) const TCP_HEADER: usize = 20;
/// Bytes of a UDP header.
pub(crate) const UDP_HEADER: usize = 8;
/// Offset of the checksum in a TCP header.
pub(crate) const TCP_CHECKSUM: usize = 16;
/// Offset of the checksum in a UDP header.
pub(crate) const UDP_CHECKSUM: usize = 6;
/// Offset of the flags in a TCP header.
pub(crate) const TCP_FLAGS: usize = 13;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const CWR: u8 = 0x80;

/// One read, ready to be written as ordinary packets.
#[derive(Clone, Copy, Debug)]
pub struct Split<'a> {
    /// The packet, cut to its IP total length.
    packet: &'a [u8],
    operation: Operation,
    /// Segments that will be written, at least one.
    count: usize,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Write the packet as it is.
    Verbatim,
    /// Write the checksum from `start` to the end into `field`, which holds the pseudo-header sum.
    Checksum { start: usize, field: usize },
    /// Split the payload.
    Segment(Segmentation),
}

/// How to split a GSO packet.
///
/// The two sums cover what all segments have in common, so that no header is summed per segment, which would
/// also stall on reading back bytes just written.
#[derive(Clone, Copy, Debug)]
struct Segmentation {
    version: Version,
    protocol: Protocol,
    /// Offset of the transport header.
    transport: usize,
    /// Bytes of all headers, which is the offset of the payload.
    headers: usize,
    /// Payload bytes of every segment but the last.
    size: usize,
    /// The IPv4 header without total length, identification and checksum.
    network_sum: Sum,
    /// The pseudo-header and transport header without the length and the fields that [`write_tcp`] or
    /// [`write_udp`] writes.
    transport_sum: Sum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

impl<'a> Split<'a> {
    /// Checks `packet` against its virtio `header` and decides how to split it.
    ///
    /// Ignores `hdr_len`: for a forwarded packet it covers the whole linear area
    /// (`virtio_net_hdr_from_skb` reports `skb_headlen`), so the headers are measured here.
    /// Leaves out bytes after the IP total length.
    ///
    /// # Errors
    ///
    /// Why the packet is malformed.
    pub fn new(header: &Header, packet: &'a [u8]) -> Result<Split<'a>, Malformed> {
        let ip = ip::parse(packet)?;
        let packet = &packet[..ip.total_len];
        let protocol = match header.gso {
            Gso::None if header.needs_checksum() => return Self::checksum(header, &ip, packet),
            Gso::None => return Ok(Self::single(packet, Operation::Verbatim)),
            Gso::TcpV4 if ip.version == Version::V4 => Protocol::Tcp,
            Gso::TcpV6 if ip.version == Version::V6 => Protocol::Tcp,
            Gso::UdpL4 => Protocol::Udp,
            Gso::TcpV4 | Gso::TcpV6 => return Err(Malformed::Offload),
        };
        Self::segment(header, &ip, packet, protocol)
    }

    /// Number of packets: at least one, with no bound but the size of the GSO packet.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of packet `i`.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`Split::count`].
    #[inline]
    pub fn len(&self, i: usize) -> usize {
        assert!(i < self.count, "the caller stops at count()");
        match self.operation {
            Operation::Verbatim | Operation::Checksum { .. } => self.packet.len(),
            Operation::Segment(segmentation) => {
                let rest = self.packet.len() - segmentation.headers - i * segmentation.size;
                segmentation.headers + rest.min(segmentation.size)
            }
        }
    }

    /// Always false: there is at least one packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes packet `i` to the start of `dst` and returns its length.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`Split::count`], or `dst` is shorter than [`Split::len`].
    #[inline]
    pub fn write(&self, i: usize, dst: &mut [u8]) -> usize {
        let len = self.len(i);
        let dst = &mut dst[..len];
        match self.operation {
            Operation::Verbatim => dst.copy_from_slice(self.packet),
            Operation::Checksum { start, field } => self.write_checksum(start, field, dst),
            Operation::Segment(segmentation) => self.write_segment(&segmentation, i, dst),
        }
        len
    }

    fn single(packet: &'a [u8], operation: Operation) -> Split<'a> {
        Split { packet, operation, count: 1 }
    }

    /// A packet that needs only its checksum, of any transport protocol.
    fn checksum(header: &Header, ip: &Ip, packet: &'a [u8]) -> Result<Split<'a>, Malformed> {
        let start = usize::from(header.csum_start);
        let field = start + usize::from(header.csum_offset);
        if start < ip.transport || field + 2 > packet.len() {
            return Err(Malformed::Checksum);
        }
        Ok(Self::single(packet, Operation::Checksum { start, field }))
    }

    fn segment(header: &Header, ip: &Ip, packet: &'a [u8], protocol: Protocol) -> Result<Split<'a>, Malformed> {
        if header.gso_size == 0 {
            return Err(Malformed::Segment);
        }
        let transport = transport_offset(header, ip, packet, protocol)?;
        let headers = transport + transport_len(&packet[transport..], protocol)?;
        let size = usize::from(header.gso_size);
        let pseudo = pseudo(header, ip, packet, transport, protocol);
        let segmentation = Segmentation {
            version: ip.version,
            protocol,
            transport,
            headers,
            size,
            network_sum: network_sum(&packet[..ip.transport], ip.version),
            transport_sum: pseudo.join(transport_sum(&packet[transport..headers], protocol)),
        };
        Ok(Split {
            packet,
            operation: Operation::Segment(segmentation),
            count: (packet.len() - headers).div_ceil(size).max(1),
        })
    }

    fn write_checksum(&self, start: usize, field: usize, dst: &mut [u8]) {
        dst[..start].copy_from_slice(&self.packet[..start]);
        let sum = checksum::copy_and_sum(&self.packet[start..], &mut dst[start..], Sum::ZERO);
        let checksum = match field - start {
            UDP_CHECKSUM => sum.udp_checksum(),
            _ => sum.checksum(),
        };
        put16(dst, field, checksum);
    }

    fn write_segment(&self, segmentation: &Segmentation, i: usize, dst: &mut [u8]) {
        let from = i * segmentation.size;
        let (headers, payload) = dst.split_at_mut(segmentation.headers);
        let source = &self.packet[segmentation.headers + from..][..payload.len()];
        let payload_sum = checksum::copy_and_sum(source, payload, Sum::ZERO);

        headers.copy_from_slice(&self.packet[..segmentation.headers]);
        let (network, transport) = headers.split_at_mut(segmentation.transport);
        segmentation.write_network(network, i, segmentation.headers + payload.len());
        let len = transport.len() + payload.len();
        let sum = segmentation.transport_sum.join(payload_sum).long(len as u32);
        match segmentation.protocol {
            Protocol::Tcp => write_tcp(transport, from, i + 1 == self.count, sum),
            Protocol::Udp => write_udp(transport, len, sum),
        }
    }
}

impl Segmentation {
    /// Each segment gets the next identification, with and without DF, as in the kernel's `inet_gso_segment`.
    #[inline]
    fn write_network(&self, header: &mut [u8], i: usize, total_len: usize) {
        match self.version {
            Version::V4 => {
                let total_len = total_len as u16;
                let id = be16(header, 4).wrapping_add(i as u16);
                put16(header, 2, total_len);
                put16(header, 4, id);
                let sum = self.network_sum.word(total_len).word(id);
                put16(header, 10, sum.checksum());
            }
            Version::V6 => put16(header, 4, (total_len - V6_HEADER) as u16),
        }
    }
}

/// Turns a copy of the GSO packet's TCP header into that of the segment whose payload is at offset `from`: FIN and
/// PSH belong to the last one, CWR to the first.
#[inline]
fn write_tcp(header: &mut [u8], from: usize, last: bool, sum: Sum) {
    let sequence = be32(header, 4).wrapping_add(from as u32);
    let mut flags = be16(header, TCP_FLAGS - 1);
    if from > 0 {
        flags &= !u16::from(CWR);
    }
    if !last {
        flags &= !u16::from(FIN | PSH);
    }
    put32(header, 4, sequence);
    put16(header, TCP_FLAGS - 1, flags);
    put16(header, TCP_CHECKSUM, sum.long(sequence).word(flags).checksum());
}

/// Turns a copy of the GSO packet's UDP header into that of a datagram of `len` bytes, including the header.
#[inline]
fn write_udp(header: &mut [u8], len: usize, sum: Sum) {
    let len = len as u16;
    put16(header, 4, len);
    put16(header, UDP_CHECKSUM, sum.word(len).udp_checksum());
}

/// The sum of the fields that [`Segmentation::write_network`] does not change.
fn network_sum(header: &[u8], version: Version) -> Sum {
    match version {
        Version::V4 => {
            checksum::sum(header, Sum::ZERO).without(be16(header, 2)).without(be16(header, 4)).without(be16(header, 10))
        }
        Version::V6 => Sum::ZERO,
    }
}

/// The sum of the fields that [`write_tcp`] or [`write_udp`] does not change.
fn transport_sum(header: &[u8], protocol: Protocol) -> Sum {
    let sum = checksum::sum(header, Sum::ZERO).without(be16(header, protocol.checksum()));
    match protocol {
        Protocol::Tcp => sum.without(be16(header, 4)).without(be16(header, 6)).without(be16(header, TCP_FLAGS - 1)),
        Protocol::Udp => sum.without(be16(header, 4)),
    }
}

/// The offset of the transport header of a GSO packet.
///
/// With `NEEDS_CSUM` it equals `csum_start`, which must agree with the IP header: directly after it, or at the
/// end of the chain of IPv6 extension headers. A GSO packet without `NEEDS_CSUM` was verified by a network
/// card (`DATA_VALID`) and forwarded; then only the IP header determines it.
fn transport_offset(header: &Header, ip: &Ip, packet: &[u8], protocol: Protocol) -> Result<usize, Malformed> {
    if ip.fragment {
        return Err(Malformed::Offload);
    }
    let (upper, offset) = match ip.version {
        Version::V6 if ip::is_extension(ip.protocol) => {
            let upper = ip::upper_layer_v6(packet).ok_or(Malformed::Truncated)?;
            (upper.protocol, upper.offset)
        }
        _ => (ip.protocol, ip.transport),
    };
    if upper != protocol.number() {
        return Err(Malformed::Offload);
    }
    if offset > packet.len() {
        return Err(Malformed::Truncated);
    }
    let claimed = (usize::from(header.csum_start), usize::from(header.csum_offset));
    if header.needs_checksum() && claimed != (offset, protocol.checksum()) {
        return Err(Malformed::Checksum);
    }
    Ok(offset)
}

/// Bytes of the transport header at the start of `transport`.
fn transport_len(transport: &[u8], protocol: Protocol) -> Result<usize, Malformed> {
    let (least, len) = match protocol {
        Protocol::Tcp if transport.len() < TCP_HEADER => return Err(Malformed::Truncated),
        Protocol::Tcp => (TCP_HEADER, usize::from(transport[12] >> 4) * 4),
        Protocol::Udp => (UDP_HEADER, UDP_HEADER),
    };
    if len < least {
        return Err(Malformed::Length);
    }
    if len > transport.len() {
        return Err(Malformed::Truncated);
    }
    Ok(len)
}

/// The pseudo-header sum without its length.
///
/// With `NEEDS_CSUM` the checksum field contains it, including the length of the GSO packet. That value is also
/// correct after a routing header, where the final destination is not the one in the IP header (RFC 8200
/// section 8.1).
fn pseudo(header: &Header, ip: &Ip, packet: &[u8], transport: usize, protocol: Protocol) -> Sum {
    if !header.needs_checksum() {
        let addresses = ip::addresses(packet, ip.version);
        return checksum::pseudo_header(addresses, protocol.number(), 0);
    }
    let len = (packet.len() - transport) as u16;
    Sum::ZERO.word(be16(packet, transport + protocol.checksum())).without(len)
}

impl Protocol {
    const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => TCP,
            Protocol::Udp => UDP,
        }
    }

    const fn checksum(self) -> usize {
        match self {
            Protocol::Tcp => TCP_CHECKSUM,
            Protocol::Udp => UDP_CHECKSUM,
        }
    }
}
