//! Descriptions of datagrams that are sent and received.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The most datagrams in a GSO batch (UDP_MAX_SEGMENTS; 128 from Linux 6.10).
pub const SEGMENTS_MAX: usize = 64;

/// The most bytes in a GSO batch: the payload of an IPv4 packet of 65,535 bytes.
pub const GSO_BATCH_MAX: usize = 65507;

/// Where a datagram was received: the source for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketInfo {
    /// Our address.
    pub addr: IpAddr,
    /// The index of the interface that received it.
    pub ifindex: u32,
}

/// What was received: one datagram, or several of one flow in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The length in bytes of all of it; 0 for an empty datagram and for one that was cut off, both
    /// of which are to be discarded.
    pub len: usize,
    /// The length in bytes of each datagram in it, of which the last may be shorter; `len` when
    /// there is one.
    pub segment: usize,
    /// The sender.
    pub source: SocketAddr,
    /// Which of our addresses it was sent to, and the interface that received it.
    pub local: Option<PacketInfo>,
    /// The TOS (IPv4) or traffic class (IPv6) octet: DSCP and, in the low two bits, ECN.
    pub tos: u8,
}

impl Default for Received {
    fn default() -> Self {
        let source = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self { len: 0, segment: 0, source, local: None, tos: 0 }
    }
}

/// What to send: one datagram or one GSO batch.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The destination, of the socket's family.
    pub to: SocketAddr,
    /// The source address; the kernel chooses for `None`. Routing always chooses the interface.
    pub from: Option<IpAddr>,
    /// The TOS (IPv4) or traffic class (IPv6) octet.
    pub tos: u8,
    /// The length in bytes of each datagram in a GSO batch. Never for a single datagram: some kernels
    /// refuse that (firezone 8932).
    pub segment: Option<u16>,
    /// The bytes: at most [`GSO_BATCH_MAX`], in a GSO batch at most [`SEGMENTS_MAX`] datagrams.
    pub contents: &'a [u8],
}
