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

mod candidate;

use core::ops::Range;

use crate::TCP;
use crate::checksum;
use crate::gso::{PSH, TCP_CHECKSUM, TCP_FLAGS, UDP_CHECKSUM};
use crate::ip::{self, DONT_FRAGMENT, V4_HEADER, V6_HEADER, Version, be16, be32, put16};
use crate::virtio::{self, Gso, Header};
use candidate::{Candidate, Flow, FlowMatch};

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

/// What to do with a merge candidate.
enum MergeDecision {
    /// Add it to this group.
    Join(u8),
    /// Start a group with it.
    New,
    /// Write it alone: its checksum is wrong.
    Alone,
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
            Ok(ip) => match FlowMatch::of(packet.of(buf), &ip) {
                FlowMatch::Flow(flow) => match Candidate::new(packet.of(buf), &ip, flow, caps) {
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
        match self.decide(buf, packet, candidate) {
            MergeDecision::Join(plan) => self.join(buf, packet, index, candidate, plan),
            MergeDecision::New => {
                self.open.close(candidate.flow);
                let plan = self.start(Plan::first(buf, packet, index, candidate));
                if !candidate.pushes(packet.of(buf)) {
                    self.open.add(candidate.flow, plan);
                }
            }
            MergeDecision::Alone => {
                self.open.close(candidate.flow);
                self.start(Plan::alone(packet, index));
            }
        }
    }

    /// Checks headers first and sums only a packet that would join; the first one to join has the group's first
    /// packet summed, too.
    fn decide(&mut self, buf: &[u8], packet: PacketRange, candidate: &Candidate) -> MergeDecision {
        let Some(index) = self.open.find(candidate.flow) else {
            return MergeDecision::New;
        };
        let plan = &mut self.plans[usize::from(index)];
        if !plan.continues(buf, packet, candidate) {
            return MergeDecision::New;
        }
        if !plan.verified {
            plan.verified = candidate.verifies(plan.first_packet().of(buf));
        }
        if !plan.verified {
            return MergeDecision::New;
        }
        if candidate.verifies(packet.of(buf)) { MergeDecision::Join(index) } else { MergeDecision::Alone }
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
        plan.push = candidate.pushes(packet.of(buf));
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
        // The packets' sums were verified. NEEDS_CSUM is the one form for which the kernel does not sum them again.
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
    const EMPTY: Open = Open { entries: [OpenFlow { flow: Flow::EMPTY, plan: 0 }; OPEN_FLOWS], count: 0 };

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

/// Whether two packets agree in every IP header field that a split copies from the first: all except lengths,
/// identification and header checksum.
fn same_network(first: &[u8], other: &[u8], version: Version) -> bool {
    match version {
        Version::V4 => first[..2] == other[..2] && first[6..10] == other[6..10] && first[12..20] == other[12..20],
        Version::V6 => first[..4] == other[..4] && first[6..40] == other[6..40],
    }
}
