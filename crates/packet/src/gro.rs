//! GRO: merges the packets of one receive batch into few writes to a TUN device with `IFF_VNET_HDR`.
//!
//! [`Merger::plan`] decides which packets form a GRO packet and rewrites the headers of the first one in
//! place; `writev` gathers the payloads from where they are. The rules are those of the kernel's GRO
//! (`tcp_gro_receive`, `udp_gro_receive_segment`, `inet_gro_receive`), so [`crate::gso`] or the kernel
//! can split a GRO packet into the same packets again.
//!
//! Packets of one flow never change their order. Merging never repairs a wrong checksum: such a packet is
//! passed on alone and unchanged, for the receiving host to drop. Only packets about to be merged are
//! summed.

use core::ops::Range;

use crate::checksum::{self, Sum};
use crate::gso::{PSH, TCP_CHECKSUM, TCP_FLAGS, TCP_HEADER, UDP_CHECKSUM, UDP_HEADER};
use crate::ip::{self, DONT_FRAGMENT, Ip, V4_HEADER, V6_HEADER, Version, be16, be32, put16};
use crate::virtio::{self, Gso, Header};
use crate::{TCP, UDP};

/// Packets of one batch at most. One receive with `UDP_GRO` returns at most 64 datagrams on most
/// kernels and 128 since 6.9 (`UDP_MAX_SEGMENTS`).
pub const MAX_PACKETS: usize = 128;

/// Flows that can grow at the same time. A sender's GSO packets arrive in one piece, so few are enough, and
/// scanning them is cheaper than hashing into a larger table.
const OPEN_FLOWS: usize = 8;

/// Datagrams in a UDP GRO packet at most, as in the kernel (`UDP_GRO_CNT_MAX`).
const UDP_SEGMENTS: usize = 64;

/// The greatest IPv4 total length, also used for IPv6.
const MAX_TOTAL_LEN: usize = 65_535;

const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// The position of a packet in the batch's buffer, cut to its IP total length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketRange {
    /// Bytes from the start of the buffer.
    pub offset: usize,
    /// Bytes of the packet.
    pub len: usize,
}

/// The GRO packets that the TUN device accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// TCP over IPv4.
    pub tcp4: bool,
    /// TCP over IPv6.
    pub tcp6: bool,
    /// UDP over either (`VIRTIO_NET_HDR_GSO_UDP_L4`, since Linux 6.2).
    pub udp: bool,
}

/// Plans the writes of one batch at a time. About 10 KB; a batch allocates nothing.
#[derive(Clone, Debug)]
pub struct Merger {
    plans: [Plan; MAX_PACKETS],
    count: usize,
    segments: [Segment; MAX_PACKETS],
    open: Open,
}

// Part of the engine's memory bound.
const _: () = assert!(size_of::<Merger>() <= 16 * 1024);

/// One write: the virtio header, the first packet, and the payloads of the others.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The virtio header to write first.
    pub header: [u8; virtio::LEN],
    /// The complete first packet in the batch's buffer; its headers are those of the GRO packet.
    pub first: Range<usize>,
    /// Packets in this write.
    pub packets: usize,
    /// Bytes of this write without the virtio header.
    pub bytes: usize,
    segments: &'a [Segment; MAX_PACKETS],
    head: u8,
}

/// A group while it grows and after.
#[derive(Clone, Copy, Debug)]
struct Plan {
    header: [u8; virtio::LEN],
    /// Indices, in the batch, of the first packet and of the one that joined last.
    head: u8,
    tail: u8,
    packets: u8,
    /// `None` for a packet that is written alone.
    kind: Option<GroupKind>,
    offset: usize,
    /// Bytes of the first packet.
    len: usize,
    /// Bytes of the write: the headers once, and every payload.
    bytes: usize,
    /// Payload bytes of the first packet, which no other exceeds.
    size: usize,
    next_sequence: u32,
    /// All packets have the same IPv4 identification, which is allowed with DF (RFC 6864).
    fixed_id: bool,
    /// A packet with PSH joined.
    push: bool,
    /// The checksums of the first packet were verified.
    verified: bool,
}

/// What all packets of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupKind {
    version: Version,
    protocol: u8,
    /// Bytes of all headers: at most 40 of IP and 60 of TCP.
    headers: u8,
}

/// The payload of a packet that joined a group, and the index of the next packet.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: usize,
    len: usize,
    next: u8,
}

/// Groups that may still grow, oldest first.
#[derive(Clone, Copy, Debug)]
struct Open {
    entries: [OpenFlow; OPEN_FLOWS],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct OpenFlow {
    flow: Flow,
    plan: u8,
}

/// Fingerprints of a flow. Flows with equal fingerprints merge less, but never wrongly, because the header bytes
/// decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    /// Of the two addresses.
    hosts: u32,
    /// Of addresses, protocol and ports.
    ports: u32,
}

/// The flows that a packet may belong to.
enum FlowMatch {
    /// It belongs to this flow.
    Flow(Flow),
    /// It is written alone, and may belong to any flow between these hosts: a fragment, or extension headers.
    Hosts(u32),
    /// It belongs to no flow that can be merged.
    Unmergeable,
}

/// What to do with a merge candidate.
enum Admission {
    /// Add it to this group.
    Join(u8),
    /// Start a group with it.
    New,
    /// Write it alone: its checksum is wrong.
    Alone,
}

/// A packet that may be merged, as its headers describe it.
#[derive(Clone, Copy)]
struct Candidate {
    flow: Flow,
    version: Version,
    protocol: u8,
    /// Offset of the transport header.
    transport: usize,
    /// Offset of the payload.
    headers: usize,
    /// Bytes of payload, at least one.
    payload: usize,
}

impl Merger {
    /// An empty plan.
    pub const fn new() -> Merger {
        Merger {
            plans: [Plan::EMPTY; MAX_PACKETS],
            count: 0,
            segments: [Segment::EMPTY; MAX_PACKETS],
            open: Open::EMPTY,
        }
    }

    /// Plans the writes of one batch: `packets` are in `buf`, in the order of arrival. Rewrites the headers
    /// of every packet that starts a group of two or more, and nothing else.
    ///
    /// # Panics
    ///
    /// If there are more than [`MAX_PACKETS`] packets, or one is outside `buf`.
    pub fn plan(&mut self, buf: &mut [u8], packets: &[PacketRange], caps: Caps) {
        assert!(packets.len() <= MAX_PACKETS, "a batch has at most MAX_PACKETS packets");
        self.count = 0;
        self.open.count = 0;
        for (index, packet) in packets.iter().enumerate() {
            self.add(buf, *packet, index as u8, caps);
        }
        for plan in &mut self.plans[..self.count] {
            plan.finish(buf);
        }
    }

    /// The writes of the last planned batch, in an order that keeps the order of every flow.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = Group<'_>> {
        self.plans[..self.count].iter().map(|plan| Group {
            header: plan.header,
            first: plan.offset..plan.offset + plan.len,
            packets: usize::from(plan.packets),
            bytes: plan.bytes,
            segments: &self.segments,
            head: plan.head,
        })
    }

    /// Adds one packet to its flow's group or to a new group.
    fn add(&mut self, buf: &[u8], packet: PacketRange, index: u8, caps: Caps) {
        match ip::parse(packet.of(buf)) {
            Ok(ip) => match classify(packet.of(buf), &ip) {
                FlowMatch::Flow(flow) => match candidate(packet.of(buf), &ip, flow, caps) {
                    Some(candidate) => return self.add_candidate(buf, packet, index, &candidate),
                    None => self.open.close(flow),
                },
                FlowMatch::Hosts(hosts) => self.open.close_hosts(hosts),
                FlowMatch::Unmergeable => {}
            },
            // It may belong to any flow, so close all.
            Err(_) => self.open.count = 0,
        }
        self.start(Plan::alone(packet, index));
    }

    fn add_candidate(&mut self, buf: &[u8], packet: PacketRange, index: u8, candidate: &Candidate) {
        match self.admit(buf, packet, candidate) {
            Admission::Join(plan) => self.join(buf, packet, index, candidate, plan),
            Admission::New => {
                self.open.close(candidate.flow);
                let plan = self.start(Plan::first(buf, packet, index, candidate));
                if !pushes(packet.of(buf), candidate) {
                    self.open.add(candidate.flow, plan);
                }
            }
            Admission::Alone => {
                self.open.close(candidate.flow);
                self.start(Plan::alone(packet, index));
            }
        }
    }

    /// Checks headers first and sums only a packet that would join; the first one to join has the group's first
    /// packet summed, too.
    fn admit(&mut self, buf: &[u8], packet: PacketRange, candidate: &Candidate) -> Admission {
        let Some(index) = self.open.find(candidate.flow) else {
            return Admission::New;
        };
        let plan = &mut self.plans[usize::from(index)];
        if !plan.continues(buf, packet, candidate) {
            return Admission::New;
        }
        if !plan.verified {
            plan.verified = verifies(plan.first_packet().of(buf), candidate);
        }
        if !plan.verified {
            return Admission::New;
        }
        if verifies(packet.of(buf), candidate) { Admission::Join(index) } else { Admission::Alone }
    }

    fn join(&mut self, buf: &[u8], packet: PacketRange, index: u8, candidate: &Candidate, plan: u8) {
        self.segments[usize::from(index)] =
            Segment { offset: packet.offset + candidate.headers, len: candidate.payload, next: index };
        let plan = &mut self.plans[usize::from(plan)];
        self.segments[usize::from(plan.tail)].next = index;
        plan.tail = index;
        plan.packets += 1;
        plan.bytes += candidate.payload;
        plan.next_sequence = plan.next_sequence.wrapping_add(candidate.payload as u32);
        plan.push = pushes(packet.of(buf), candidate);
        if plan.push || candidate.payload < plan.size {
            self.open.close(candidate.flow);
        }
    }

    fn start(&mut self, plan: Plan) -> u8 {
        let index = self.count;
        self.plans[index] = plan;
        self.count += 1;
        index as u8
    }
}

impl Default for Merger {
    fn default() -> Merger {
        Merger::new()
    }
}

impl Group<'_> {
    /// The positions, in the batch's buffer, of the payloads of all packets but the first, in order.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        let mut at = self.head;
        (1..self.packets).map(move |_| {
            at = self.segments[usize::from(at)].next;
            let segment = self.segments[usize::from(at)];
            segment.offset..segment.offset + segment.len
        })
    }
}

impl PacketRange {
    #[inline]
    fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.offset..self.offset + self.len]
    }
}

impl Plan {
    const EMPTY: Plan = Plan {
        header: [0; virtio::LEN],
        head: 0,
        tail: 0,
        packets: 0,
        kind: None,
        offset: 0,
        len: 0,
        bytes: 0,
        size: 0,
        next_sequence: 0,
        fixed_id: false,
        push: false,
        verified: false,
    };

    /// A group that never grows.
    fn alone(packet: PacketRange, index: u8) -> Plan {
        Plan {
            head: index,
            tail: index,
            packets: 1,
            offset: packet.offset,
            len: packet.len,
            bytes: packet.len,
            ..Plan::EMPTY
        }
    }

    /// A group that others may join.
    fn first(buf: &[u8], packet: PacketRange, index: u8, candidate: &Candidate) -> Plan {
        let next_sequence = match candidate.protocol {
            TCP => be32(packet.of(buf), candidate.transport + 4).wrapping_add(candidate.payload as u32),
            _ => 0,
        };
        Plan {
            size: candidate.payload,
            next_sequence,
            kind: Some(GroupKind::of(candidate)),
            ..Plan::alone(packet, index)
        }
    }

    fn first_packet(&self) -> PacketRange {
        PacketRange { offset: self.offset, len: self.len }
    }

    /// Whether `packet` continues this group, by its headers. The second packet determines whether the IPv4
    /// identifications increase or stay the same.
    fn continues(&mut self, buf: &[u8], packet: PacketRange, candidate: &Candidate) -> bool {
        let (first, other) = (self.first_packet().of(buf), packet.of(buf));
        let fits = self.kind == Some(GroupKind::of(candidate))
            && candidate.payload <= self.size
            && self.bytes + candidate.payload <= MAX_TOTAL_LEN;
        fits && same_network(first, other, candidate.version)
            && match candidate.protocol {
                TCP => self.continues_tcp(first, other, candidate),
                _ => self.continues_udp(first, other, candidate),
            }
            && (candidate.version == Version::V6 || self.continues_id(first, other))
    }

    fn continues_tcp(&self, first: &[u8], other: &[u8], candidate: &Candidate) -> bool {
        let first = &first[candidate.transport..candidate.headers];
        let other = &other[candidate.transport..candidate.headers];
        // Sequence; ports; acknowledgement and header length; flags; window; urgent pointer and options.
        be32(other, 4) == self.next_sequence
            && first[..4] == other[..4]
            && first[8..13] == other[8..13]
            && first[TCP_FLAGS] == other[TCP_FLAGS] & !PSH
            && first[14..16] == other[14..16]
            && first[18..] == other[18..]
    }

    fn continues_udp(&self, first: &[u8], other: &[u8], candidate: &Candidate) -> bool {
        let ports = candidate.transport..candidate.transport + 4;
        usize::from(self.packets) < UDP_SEGMENTS && first[ports.clone()] == other[ports]
    }

    /// The kernel's rule (`inet_gro_flush`): identifications increase by one, or with DF all are equal.
    fn continues_id(&mut self, first: &[u8], other: &[u8]) -> bool {
        let distance = be16(other, 4).wrapping_sub(be16(first, 4));
        if self.packets == 1 {
            self.fixed_id = distance == 0 && be16(first, 6) & DONT_FRAGMENT != 0;
        }
        distance == if self.fixed_id { 0 } else { u16::from(self.packets) }
    }

    /// Turns the headers of the first packet into those of the GRO packet.
    fn finish(&mut self, buf: &mut [u8]) {
        let (Some(kind), 2..) = (self.kind, self.packets) else {
            return;
        };
        let first = &mut buf[self.offset..self.offset + self.len];
        let transport = kind.transport();
        let headers = self.len - self.size;
        ip::set_total_len(first, kind.version, self.bytes);

        let addresses = ip::addresses(first, kind.version);
        let sum = checksum::pseudo_header(addresses, kind.protocol, self.bytes - transport);
        let offset = match kind.protocol {
            TCP => TCP_CHECKSUM,
            _ => UDP_CHECKSUM,
        };
        match kind.protocol {
            TCP if self.push => first[transport + TCP_FLAGS] |= PSH,
            TCP => {}
            _ => put16(first, transport + 4, (self.bytes - transport) as u16),
        }
        put16(first, transport + offset, sum.fold());
        self.header = Header {
            flags: virtio::NEEDS_CSUM,
            gso: kind.gso(),
            ecn: false,
            hdr_len: headers as u16,
            gso_size: self.size as u16,
            csum_start: transport as u16,
            csum_offset: offset as u16,
        }
        .encode();
    }
}

impl GroupKind {
    fn of(candidate: &Candidate) -> GroupKind {
        GroupKind { version: candidate.version, protocol: candidate.protocol, headers: candidate.headers as u8 }
    }

    /// Only packets without options and extension headers are merged.
    fn transport(self) -> usize {
        match self.version {
            Version::V4 => V4_HEADER,
            Version::V6 => V6_HEADER,
        }
    }

    fn gso(self) -> Gso {
        match (self.protocol, self.version) {
            (TCP, Version::V4) => Gso::TcpV4,
            (TCP, Version::V6) => Gso::TcpV6,
            _ => Gso::UdpL4,
        }
    }
}

impl Segment {
    const EMPTY: Segment = Segment { offset: 0, len: 0, next: 0 };
}

impl Open {
    const EMPTY: Open =
        Open { entries: [OpenFlow { flow: Flow { hosts: 0, ports: 0 }, plan: 0 }; OPEN_FLOWS], count: 0 };

    fn find(&self, flow: Flow) -> Option<u8> {
        let entries = &self.entries[..self.count];
        entries.iter().find(|entry| entry.flow == flow).map(|entry| entry.plan)
    }

    /// Opens a group, and closes the oldest one if there is no room. The flow of a closed group starts a new group
    /// after it.
    fn add(&mut self, flow: Flow, plan: u8) {
        if self.count == OPEN_FLOWS {
            self.retain(|index, _| index > 0);
        }
        self.entries[self.count] = OpenFlow { flow, plan };
        self.count += 1;
    }

    fn close(&mut self, flow: Flow) {
        self.retain(|_, entry| entry.flow != flow);
    }

    fn close_hosts(&mut self, hosts: u32) {
        self.retain(|_, entry| entry.flow.hosts != hosts);
    }

    fn retain(&mut self, keep: impl Fn(usize, &OpenFlow) -> bool) {
        let mut kept = 0;
        for index in 0..self.count {
            let entry = self.entries[index];
            if keep(index, &entry) {
                self.entries[kept] = entry;
                kept += 1;
            }
        }
        self.count = kept;
    }
}

/// Determines the flow of a packet.
fn classify(packet: &[u8], ip: &Ip) -> FlowMatch {
    let hosts = fingerprint(ip::addresses(packet, ip.version), 0);
    let extended = ip.version == Version::V6 && ip::is_extension(ip.protocol);
    if ip.fragment || extended || ip.total_len != packet.len() {
        return FlowMatch::Hosts(hosts);
    }
    if !matches!(ip.protocol, TCP | UDP) {
        return FlowMatch::Unmergeable;
    }
    let Some(ports) = packet[ip.transport..].first_chunk::<4>() else {
        return FlowMatch::Hosts(hosts);
    };
    FlowMatch::Flow(Flow { hosts, ports: fingerprint(ports, hosts ^ u32::from(ip.protocol)) })
}

/// The packet as a merge candidate; `None` if it has to be written alone.
#[inline]
fn candidate(packet: &[u8], ip: &Ip, flow: Flow, caps: Caps) -> Option<Candidate> {
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
    (payload > 0).then_some(Candidate {
        flow,
        version: ip.version,
        protocol: ip.protocol,
        transport: ip.transport,
        headers: ip.transport + header,
        payload,
    })
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

/// Whether two packets agree in every IP header field that a split copies from the first: all except lengths,
/// identification and header checksum.
fn same_network(first: &[u8], other: &[u8], version: Version) -> bool {
    match version {
        Version::V4 => first[..2] == other[..2] && first[6..10] == other[6..10] && first[12..20] == other[12..20],
        Version::V6 => first[..4] == other[..4] && first[6..40] == other[6..40],
    }
}

/// Whether this TCP segment ends its group.
fn pushes(packet: &[u8], candidate: &Candidate) -> bool {
    candidate.protocol == TCP && packet[candidate.transport + TCP_FLAGS] & PSH != 0
}

/// Whether the checksums of `packet` are valid and in the form in which a split computes them: TCP and IPv4 write
/// zero as zero, not as all ones.
fn verifies(packet: &[u8], candidate: &Candidate) -> bool {
    let (network, transport) = packet.split_at(candidate.transport);
    if candidate.version == Version::V4 {
        let sum = checksum::sum(network, Sum::ZERO).fold();
        if sum != 0xffff || be16(network, 10) == 0xffff {
            return false;
        }
    }
    if candidate.protocol == TCP && be16(transport, TCP_CHECKSUM) == 0xffff {
        return false;
    }
    let addresses = ip::addresses(packet, candidate.version);
    let pseudo = checksum::pseudo_header(addresses, candidate.protocol, transport.len());
    checksum::sum(transport, pseudo).fold() == 0xffff
}

/// Mixes bytes, a multiple of four, into 32 bits.
#[inline]
fn fingerprint(bytes: &[u8], seed: u32) -> u32 {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().fold(seed, |mixed, word| (mixed.rotate_left(5) ^ u32::from_ne_bytes(*word)).wrapping_mul(0x9e37_79b1))
}
