//! Any batch from peers: each packet is in exactly one write, unchanged if alone, restored by a split if merged, and
//! nothing is merged that the kernel's GRO would not merge (net/ipv4/tcp_offload.c, udp_offload.c,
//! net/ipv4/af_inet.c).
//!
//! An input is a byte for what the device accepts, and seven bytes per packet: its flow and its defects. Checksums are
//! valid unless the input says otherwise, because no fuzzer would guess them.

use linerate_packet::gro::{Caps, MAX_PACKETS, Merger, PacketRange};
use linerate_packet::gso::Split;
use linerate_packet::virtio::{self, Header};
use linerate_packet::{TCP, UDP};

use crate::bytes::Bytes;
use crate::checksum::{add, fold, pseudo_header};

pub fn check(input: &[u8]) {
    let mut input = Bytes(input);
    let caps = input.byte();
    let caps = Caps { tcp4: caps & 1 == 0, tcp6: caps & 2 == 0, udp: caps & 4 == 0 };
    let mut flows = [Flow::new(TCP, false), Flow::new(TCP, true), Flow::new(UDP, false), Flow::new(UDP, true)];
    let mut packets = Vec::new();
    while !input.is_empty() && packets.len() < MAX_PACKETS {
        packets.push(arrive(&mut flows, &mut input));
    }

    let (mut buf, mut ranges) = (vec![0xee; 5], Vec::new());
    for packet in &packets {
        ranges.push(PacketRange { offset: buf.len(), len: packet.len() });
        buf.extend_from_slice(packet);
        buf.extend_from_slice(&[0xee; 32]);
    }
    let mut merger = Merger::new();
    merger.plan(&mut buf, &ranges, caps);

    let mut order = Vec::new();
    for group in merger.groups() {
        let holds = |at: usize| move |range: &PacketRange| (range.offset..range.offset + range.len).contains(&at);
        let index = |at: usize| ranges.iter().position(holds(at)).expect("every piece belongs to a packet");
        let mut bytes = buf[group.first.clone()].to_vec();
        let first = ranges.iter().position(|range| range.offset == group.first.start);
        let mut members = vec![first.expect("a write begins with a packet")];
        for payload in group.payloads() {
            members.push(index(payload.start));
            bytes.extend_from_slice(&buf[payload]);
        }
        assert_eq!((group.packets, group.bytes), (members.len(), bytes.len()));
        let members_of: Vec<&[u8]> = members.iter().map(|&member| &packets[member][..]).collect();
        match members_of[..] {
            [alone] => assert_eq!((group.header, &bytes[..]), ([0; virtio::LEN], alone)),
            _ => {
                assert_restored_by_split(&group.header, &bytes, &members_of);
                may_be_merged(&members_of, caps);
            }
        }
        order.extend(members);
    }
    let mut all = order.clone();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..packets.len()), "each packet is in one write");
    for one in &packets {
        let of_flow = order.iter().filter(|member| flow_of(&packets[**member]) == flow_of(one));
        assert!(flow_of(one).is_none() || of_flow.is_sorted(), "a flow keeps its order");
    }
}

struct Flow {
    protocol: u8,
    v6: bool,
    id: u16,
    sequence: u32,
}

impl Flow {
    fn new(protocol: u8, v6: bool) -> Self {
        Self { protocol, v6, id: u16::MAX - 1, sequence: u32::MAX - 1000 }
    }

    fn transport(&self) -> usize {
        if self.v6 { 40 } else { 20 }
    }

    /// A packet with `options` words of TCP options and correct lengths, without checksums.
    fn packet(&self, flags: u8, options: u8, payload: usize) -> Vec<u8> {
        let mut transport = vec![0x12, 0x34, 0x00, 0x35];
        if self.protocol == TCP {
            transport.extend(self.sequence.to_be_bytes());
            transport.extend([0, 0, 0, 1, (5 + options) << 4, flags, 2, 0, 0, 0, 0, 0]);
            transport.resize(20 + usize::from(options) * 4, 1);
        } else {
            transport.extend((8 + payload as u16).to_be_bytes());
            transport.extend([0, 0]);
        }
        transport.extend((0..payload).map(|index| (index as u32).wrapping_mul(self.sequence | 1) as u8));
        let length = transport.len() as u16;
        let mut packet = Vec::new();
        if self.v6 {
            packet.extend([0x60, 0, 0, 9]);
            packet.extend(length.to_be_bytes());
            packet.extend([self.protocol, 64]);
            packet.extend([0xfd; 32]);
        } else {
            packet.extend([0x45, 0]);
            packet.extend((20 + length).to_be_bytes());
            packet.extend(self.id.to_be_bytes());
            packet.extend([0, 0, 64, self.protocol, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1]);
        }
        packet.extend(transport);
        packet
    }
}

/// The next packet of a flow, and its defects.
fn arrive(flows: &mut [Flow; 4], input: &mut Bytes<'_>) -> Vec<u8> {
    let [which, size_low, size_high, kind, offset, change, odd] = input.array();
    let flow = &mut flows[usize::from(which % 4)];
    let size = usize::from(u16::from_le_bytes([size_low, size_high])) % 1400;
    let flags = [0x10, 0x18, 0x50, 0x90, 0x11, 0x12, 0x30, 0x14][usize::from(kind & 7)];
    let mut packet = flow.packet(flags, kind >> 3 & 3, size);
    let headers = packet.len() - size;
    // A header with a defect and nevertheless valid checksums.
    packet[usize::from(offset) % headers] ^= change;
    sum(&mut packet, flow);
    // A corrupted byte.
    if odd & 1 == 1 {
        let at = usize::from(odd >> 1) * 7 % packet.len();
        packet[at] ^= 1 << (odd >> 5);
    }
    if which & 8 == 0 {
        flow.id = flow.id.wrapping_add(1);
    }
    if which & 16 == 0 {
        flow.sequence = flow.sequence.wrapping_add(size as u32);
    }
    let cut = if which & 0xe0 == 0xe0 { usize::from(odd) } else { 0 };
    packet.truncate(packet.len().saturating_sub(cut));
    packet
}

fn sum(packet: &mut [u8], flow: &Flow) {
    let at = flow.transport();
    let field = at + if flow.protocol == TCP { 16 } else { 6 };
    packet[field..field + 2].fill(0);
    let sum = !add(fold(&packet[at..]), pseudo_header_of(packet, flow, packet.len() - at));
    let sum = if sum == 0 && flow.protocol == UDP { 0xffff } else { sum };
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    if !flow.v6 {
        packet[10..12].fill(0);
        let sum = !fold(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn pseudo_header_of(packet: &[u8], flow: &Flow, length: usize) -> u16 {
    // The version may be the defect.
    let version = if flow.v6 { 0x60 } else { 0x45 };
    let packet = [&[version], &packet[1..]].concat();
    pseudo_header(&packet, flow.protocol, length)
}

/// Addresses, protocol and ports, if they can be parsed.
fn flow_of(packet: &[u8]) -> Option<Vec<u8>> {
    let ip = linerate_packet::ip::parse(packet).ok().filter(|ip| !ip.fragment && ip.total_len == packet.len())?;
    let ports = packet.get(ip.transport..ip.transport + 4).filter(|_| matches!(ip.protocol, TCP | UDP))?;
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    Some([addresses, &[ip.protocol], ports].concat())
}

fn assert_restored_by_split(header: &[u8; virtio::LEN], bytes: &[u8], members: &[&[u8]]) {
    let header = Header::decode(header).expect("it is ours");
    let split = Split::new(&header, bytes).expect("a GRO packet can be split");
    assert_eq!(split.count(), members.len());
    for (i, member) in members.iter().enumerate() {
        let mut packet = vec![0; split.len(i)];
        split.write(i, &mut packet);
        assert_eq!(without_id(&packet), without_id(member));
    }
}

/// Without the fields that have no meaning: the identification of an IPv4 packet that is never fragmented (RFC 6864
/// section 4.1), and the header checksum that covers it.
fn without_id(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

fn may_be_merged(members: &[&[u8]], caps: Caps) {
    let first = members[0];
    let v6 = first[0] >> 4 == 6;
    let (at, protocol) = if v6 { (40, first[6]) } else { (20, first[9]) };
    assert!(match (protocol, v6) {
        (TCP, false) => caps.tcp4,
        (TCP, true) => caps.tcp6,
        (UDP, _) => caps.udp && members.len() <= 64,
        _ => false,
    });
    let headers = at + if protocol == TCP { usize::from(first[at + 12] >> 4) * 4 } else { 8 };
    let size = first.len() - headers;
    assert!(headers + members.iter().map(|member| member.len() - headers).sum::<usize>() <= 65_535);
    let id = |packet: &[u8]| u16::from_be_bytes([packet[4], packet[5]]);
    let distance = |i: usize| id(members[i]).wrapping_sub(id(first));
    for (i, member) in members.iter().enumerate() {
        let is_last = i + 1 == members.len();
        let payload = member.len() - headers;
        assert!(payload == size || (is_last && (1..size).contains(&payload)), "only the last segment is shorter");
        assert_eq!(add(fold(&member[at..]), pseudo_header(member, protocol, member.len() - at)), 0xffff);
        if v6 {
            assert_eq!((&member[..4], &member[6..40]), (&first[..4], &first[6..40]));
        } else {
            assert_eq!((member[0], fold(&member[..20])), (0x45, 0xffff), "no options, and a correct checksum");
            assert_eq!((&member[..2], &member[6..10], &member[12..20]), (&first[..2], &first[6..10], &first[12..20]));
            assert!(member[6] & 0xbf == 0 && member[7] == 0, "no fragments");
            let is_fixed = first[6] & 0x40 != 0 && distance(1) == 0;
            assert_eq!(distance(i), if is_fixed { 0 } else { i as u16 }, "identifications count up, or with DF stay");
        }
        assert_eq!(member[at..at + 4], first[at..at + 4]);
        if protocol == UDP {
            assert!(member[at + 6..at + 8] != [0, 0], "with a checksum");
            continue;
        }
        let sequence =
            |packet: &[u8]| u32::from_be_bytes([packet[at + 4], packet[at + 5], packet[at + 6], packet[at + 7]]);
        assert_eq!(sequence(member), sequence(first).wrapping_add((i * size) as u32));
        assert_eq!(
            (&member[at + 8..at + 13], &member[at + 14..at + 16]),
            (&first[at + 8..at + 13], &first[at + 14..at + 16])
        );
        assert_eq!(member[at + 18..headers], first[at + 18..headers], "urgent pointer and options");
        let flags = member[at + 13];
        assert!(flags & !0x48 == 0x10 && (flags & 8 == 0 || is_last), "PSH ends a group, and other flags are in none");
        assert_eq!(flags & !8, first[at + 13] & !8);
    }
}
