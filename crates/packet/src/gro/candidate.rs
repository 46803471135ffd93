//! Which packets may be merged, by their headers and checksums, and which flow they belong to.

use super::Caps;
use crate::checksum::{self, Sum};
use crate::gso::{PSH, TCP_CHECKSUM, TCP_FLAGS, TCP_HEADER, UDP_CHECKSUM, UDP_HEADER};
use crate::ip::{self, DONT_FRAGMENT, Ip, V4_HEADER, Version, be16};
use crate::{TCP, UDP};

const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// Fingerprints of a flow. Flows with equal fingerprints merge less, but never wrongly, because the header bytes
/// decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// Of the two addresses.
    pub(super) hosts: u32,
    /// Of addresses, protocol and ports.
    ports: u32,
}

impl Flow {
    pub(super) const EMPTY: Self = Self { hosts: 0, ports: 0 };
}

/// The flows that a packet may belong to.
pub(super) enum FlowMatch {
    /// It belongs to this flow.
    Flow(Flow),
    /// It is written alone, and may belong to any flow between these hosts: a fragment, or extension headers.
    Hosts(u32),
    /// It belongs to no flow that can be merged.
    Unmergeable,
}

/// A packet that may be merged, as its headers describe it.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) flow: Flow,
    pub(super) version: Version,
    pub(super) protocol: u8,
    /// Offset of the transport header.
    pub(super) transport: usize,
    /// Offset of the payload.
    pub(super) headers: usize,
    /// Bytes of payload, at least one.
    pub(super) payload: usize,
}

impl FlowMatch {
    /// Determines the flow of a packet.
    pub(super) fn of(packet: &[u8], ip: &Ip) -> Self {
        let hosts = fingerprint(ip::addresses(packet, ip.version), 0);
        let extended = ip.version == Version::V6 && ip::is_extension(ip.protocol);
        if ip.fragment || extended || ip.total_len != packet.len() {
            return Self::Hosts(hosts);
        }
        if !matches!(ip.protocol, TCP | UDP) {
            return Self::Unmergeable;
        }
        let Some(ports) = packet[ip.transport..].first_chunk::<4>() else {
            return Self::Hosts(hosts);
        };
        Self::Flow(Flow { hosts, ports: fingerprint(ports, hosts ^ u32::from(ip.protocol)) })
    }
}

impl Candidate {
    /// The packet as a merge candidate; `None` if it has to be written alone.
    #[inline]
    pub(super) fn new(packet: &[u8], ip: &Ip, flow: Flow, caps: Caps) -> Option<Self> {
        let taken = match (ip.protocol, ip.version) {
            (TCP, Version::V4) => caps.tcp4,
            (TCP, Version::V6) => caps.tcp6,
            _ => caps.udp,
        };
        // DF is the only bit of the IPv4 fragment field that a mergeable packet may have set.
        let plain = ip.version == Version::V6 || (ip.transport == V4_HEADER && be16(packet, 6) & !DONT_FRAGMENT == 0);
        if !taken || !plain {
            return None;
        }
        let transport = &packet[ip.transport..];
        let header = match ip.protocol {
            TCP => tcp_header(transport)?,
            _ => udp_header(transport)?,
        };
        let payload = transport.len() - header;
        (payload > 0).then_some(Self {
            flow,
            version: ip.version,
            protocol: ip.protocol,
            transport: ip.transport,
            headers: ip.transport + header,
            payload,
        })
    }

    /// Whether `packet`, with these headers, is a TCP segment that ends its group.
    pub(super) fn pushes(&self, packet: &[u8]) -> bool {
        self.protocol == TCP && packet[self.transport + TCP_FLAGS] & PSH != 0
    }

    /// Whether the checksums of `packet`, which has these headers, are valid and in the form in which a split computes
    /// them: TCP and IPv4 write zero as zero, not as all ones.
    pub(super) fn verifies(&self, packet: &[u8]) -> bool {
        let (network, transport) = packet.split_at(self.transport);
        if self.version == Version::V4 {
            let sum = checksum::sum(network, Sum::ZERO).fold();
            if sum != 0xffff || be16(network, 10) == 0xffff {
                return false;
            }
        }
        if self.protocol == TCP && be16(transport, TCP_CHECKSUM) == 0xffff {
            return false;
        }
        let addresses = ip::addresses(packet, self.version);
        let pseudo = checksum::pseudo_header(addresses, self.protocol, transport.len());
        checksum::sum(transport, pseudo).fold() == 0xffff
    }
}

/// Bytes of the header of a TCP segment whose flags allow merging: ACK, and PSH or ECE.
fn tcp_header(transport: &[u8]) -> Option<usize> {
    if transport.len() < TCP_HEADER {
        return None;
    }
    let len = usize::from(transport[12] >> 4) * 4;
    let flags = transport[TCP_FLAGS] & !(PSH | ECE);
    (len >= TCP_HEADER && len <= transport.len() && flags == ACK).then_some(len)
}

/// Bytes of the header of a UDP datagram that fills its packet and has a checksum.
fn udp_header(transport: &[u8]) -> Option<usize> {
    if transport.len() < UDP_HEADER {
        return None;
    }
    let whole = usize::from(be16(transport, 4)) == transport.len();
    (whole && be16(transport, UDP_CHECKSUM) != 0).then_some(UDP_HEADER)
}

/// Mixes bytes, a multiple of four, into 32 bits.
#[inline]
fn fingerprint(bytes: &[u8], seed: u32) -> u32 {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().fold(seed, |mixed, word| (mixed.rotate_left(5) ^ u32::from_ne_bytes(*word)).wrapping_mul(0x9e37_79b1))
}
