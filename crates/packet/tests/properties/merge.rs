//! Merging loses nothing: splitting the writes again yields the received packets, in the order of each flow.

use crate::packets::{
    ACK, At, CWR, ECE, FIN, Flow, PSH, SYN, fix_header, flow, noise, payload_and_size, plain_at, tcp_flow,
};
use crate::split::write_all;
use linerate_packet::gro::{Caps, Merger, PacketRange};
use linerate_packet::gso::Split;
use linerate_packet::virtio::{self, Header};
use linerate_packet::{ICMP, ip};
use proptest::collection::vec;
use proptest::prelude::*;

const ALL: Caps = Caps { tcp4: true, tcp6: true, udp: true };

/// One write to the TUN device, as the kernel would see it.
pub struct Write {
    pub header: [u8; virtio::LEN],
    pub bytes: Vec<u8>,
    /// The packets of the batch in this write, in order.
    pub members: Vec<usize>,
}

impl Write {
    /// The packets that a host splits it into.
    pub fn split(&self) -> Vec<Vec<u8>> {
        let header = Header::decode(&self.header).unwrap();
        write_all(&Split::new(&header, &self.bytes).unwrap())
    }
}

/// Merges a batch and checks what holds for every batch: each packet is in exactly one write, a write of one packet is
/// unchanged, a write of several splits into the received packets.
pub fn merge(packets: &[Vec<u8>], caps: Caps) -> Vec<Write> {
    // Gaps around packets, as in the slots of a real batch.
    let mut buf = vec![0xee; 5];
    let mut ranges = Vec::new();
    for packet in packets {
        ranges.push(PacketRange { offset: buf.len(), len: packet.len() });
        buf.extend_from_slice(packet);
        buf.extend_from_slice(&[0xee; 32]);
    }
    let mut merger = Merger::new();
    merger.plan(&mut buf, &ranges, caps);

    let index = |at: usize| {
        let holds = |range: &PacketRange| (range.offset..range.offset + range.len).contains(&at);
        ranges.iter().position(holds)
    };
    let mut writes = Vec::new();
    for group in merger.groups() {
        let mut write = Write {
            header: group.header,
            bytes: buf[group.first.clone()].to_vec(),
            members: vec![ranges.iter().position(|range| range.offset == group.first.start).unwrap()],
        };
        for payload in group.payloads() {
            write.members.push(index(payload.start).unwrap());
            write.bytes.extend_from_slice(&buf[payload]);
        }
        assert_eq!(group.packets, write.members.len());
        assert_eq!(group.bytes, write.bytes.len());
        writes.push(write);
    }

    let mut seen: Vec<usize> = writes.iter().flat_map(|write| write.members.clone()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..packets.len()).collect::<Vec<_>>());
    for write in &writes {
        if let [only] = write.members[..] {
            assert_eq!(write.header, [0; virtio::LEN]);
            assert_eq!(write.bytes, packets[only]);
            continue;
        }
        let split = write.split();
        assert_eq!(split.len(), write.members.len());
        for (packet, member) in split.iter().zip(&write.members) {
            assert_eq!(comparable(packet), comparable(&packets[*member]));
        }
    }
    writes
}

/// Without the fields that have no meaning: the identification of an IPv4 packet that is never fragmented (RFC 6864
/// section 4.1), and the header checksum that covers it.
fn comparable(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

/// What can happen to a packet of a flow in transit.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Plain,
    Push,
    Short,
    Empty,
    Lost,
    Corrupt,
    OtherTtl,
    Flagged(u8),
    Fragment,
    Ping,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        20 => Just(Fate::Plain),
        1 => Just(Fate::Push),
        1 => Just(Fate::Short),
        1 => Just(Fate::Empty),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Corrupt),
        1 => Just(Fate::OtherTtl),
        1 => prop_oneof![Just(FIN), Just(SYN), Just(CWR), Just(ECE)].prop_map(Fate::Flagged),
        1 => Just(Fate::Fragment),
        1 => Just(Fate::Ping),
    ]
}

/// A packet of a batch and its flow.
#[derive(Clone, Debug)]
struct BatchPacket {
    packet: Vec<u8>,
    hosts: (bool, u8),
    /// `None` where ports cannot be read.
    flow: Option<(u8, [u16; 2])>,
    fragment: bool,
}

/// A batch of several flows whose packets arrive interleaved.
fn batch() -> impl Strategy<Value = Vec<BatchPacket>> {
    let flows = vec((flow(), plain_at(), 1..600usize), 1..12);
    let arrivals = vec((any::<prop::sample::Index>(), fate()), 0..128);
    (flows, arrivals).prop_map(|(mut flows, arrivals)| {
        let mut batch = Vec::new();
        for (which, fate) in arrivals {
            let which = which.index(flows.len());
            let (flow, at, size) = &mut flows[which];
            batch.extend(arrive(flow, at, *size, fate));
        }
        batch
    })
}

/// The next packet of a flow after its fate, if it arrives.
fn arrive(flow: &Flow, at: &mut At, size: usize, fate: Fate) -> Option<BatchPacket> {
    let mut flow = flow.clone();
    let mut flags = at.flags & !PSH;
    let mut size = size;
    match fate {
        Fate::Push => flags |= PSH,
        Fate::Flagged(flag) => flags |= flag,
        Fate::Short => size = size.div_ceil(2),
        Fate::Empty => size = 0,
        Fate::OtherTtl => flow.ttl ^= 1,
        Fate::Ping => flow.protocol = ICMP,
        _ => {}
    }
    let mut packet = flow.packet(At { flags, ..*at }, &noise(size, at.sequence.into()));
    let fragment = matches!(fate, Fate::Fragment);
    match fate {
        Fate::Lost => packet.clear(),
        Fate::Corrupt => *packet.last_mut().unwrap() ^= 0x10,
        Fate::Fragment if flow.v6 => packet[6] = 44,
        Fate::Fragment => {
            packet[6] |= 0x20;
            fix_header(&mut packet);
        }
        _ => {}
    }
    at.sequence = at.sequence.wrapping_add(size as u32);
    at.id = at.id.wrapping_add(1);
    let readable = !fragment && flow.protocol != ICMP;
    (!packet.is_empty()).then_some(BatchPacket {
        packet,
        hosts: (flow.v6, flow.host),
        flow: readable.then_some((flow.protocol, flow.ports)),
        fragment,
    })
}

proptest! {
    #[test]
    fn merging_what_was_split_restores_the_gso_packet(
        flow in flow(),
        at in plain_at(),
        (payload, size) in payload_and_size(),
    ) {
        let whole = flow.partial(at, &payload);
        let header = flow.header(size as u16);
        let packets = write_all(&Split::new(&header, &whole).unwrap());
        let writes = merge(&packets, ALL);
        if packets.len() == 1 {
            return Ok(());
        }
        prop_assert_eq!(writes.len(), 1);
        prop_assert_eq!(Header::decode(&writes[0].header).unwrap(), header);
        prop_assert!(writes[0].bytes == whole);
    }

    #[test]
    fn splitting_what_was_merged_restores_the_packets(
        flow in flow(),
        at in plain_at(),
        (payload, size) in payload_and_size(),
    ) {
        let packets = flow.segments(at, &payload, size);
        let mut out = Vec::new();
        for write in merge(&packets, ALL) {
            out.extend(write.split());
        }
        prop_assert!(out == packets);
    }

    #[test]
    fn the_order_of_every_flow_is_kept(batch in batch()) {
        let packets: Vec<_> = batch.iter().map(|arrival| arrival.packet.clone()).collect();
        let order: Vec<usize> = merge(&packets, ALL)
            .into_iter()
            .flat_map(|write| write.members)
            .collect();
        for one in &batch {
            let same = |i: &&usize| (batch[**i].hosts, batch[**i].flow) == (one.hosts, one.flow);
            let of_flow: Vec<_> = order.iter().filter(same).collect();
            prop_assert!(one.flow.is_none() || of_flow.is_sorted());
        }
    }

    #[test]
    fn a_fragment_stays_between_the_packets_of_its_hosts(batch in batch()) {
        let packets: Vec<_> = batch.iter().map(|arrival| arrival.packet.clone()).collect();
        let order: Vec<usize> = merge(&packets, ALL)
            .into_iter()
            .flat_map(|write| write.members)
            .collect();
        for (at, fragment) in order.iter().enumerate().filter(|(_, i)| batch[**i].fragment) {
            let of_hosts = |i: &&usize| {
                batch[**i].hosts == batch[*fragment].hosts && batch[**i].flow.is_some()
            };
            prop_assert!(order[..at].iter().filter(of_hosts).all(|i| i < fragment));
            prop_assert!(order[at..].iter().filter(of_hosts).all(|i| i > fragment));
        }
    }

    #[test]
    fn a_packet_with_a_wrong_checksum_goes_alone_and_verbatim(
        flow in flow(),
        at in plain_at(),
        (payload, size) in payload_and_size(),
        which in any::<prop::sample::Index>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut packets = flow.segments(at, &payload, size);
        let which = which.index(packets.len());
        let packet = &mut packets[which];
        let from = flow.transport() * 8;
        let bit = from + bit.index(packet.len() * 8 - from);
        packet[bit / 8] ^= 1 << (bit % 8);
        let writes = merge(&packets, ALL);
        // `merge` has compared the bytes; what matters here is that the packet is alone.
        prop_assert!(writes.iter().any(|write| write.members == [which]));
    }

    #[test]
    fn a_wrong_ipv4_header_checksum_is_not_repaired(
        flow in tcp_flow(),
        at in plain_at(),
        (payload, size) in payload_and_size(),
        which in any::<prop::sample::Index>(),
    ) {
        let flow = Flow { v6: false, ..flow };
        let mut packets = flow.segments(at, &payload, size);
        let which = which.index(packets.len());
        packets[which][10] ^= 1;
        prop_assert!(merge(&packets, ALL).iter().any(|write| write.members == [which]));
    }

    #[test]
    fn interleaved_flows_merge_each_into_one_write(
        size in 1..600usize,
        count in 2..20usize,
        flows in 2..7u8,
    ) {
        let flow = |host| Flow { host, ..Flow::tcp(host % 2 == 0) };
        let runs: Vec<_> = (0..flows)
            .map(|host| flow(host).segments(AT, &noise(size * count, host.into()), size))
            .collect();
        let packets: Vec<_> = (0..count)
            .flat_map(|i| runs.iter().map(move |segments| segments[i].clone()))
            .take(128)
            .collect();
        prop_assert_eq!(merge(&packets, ALL).len(), usize::from(flows));
    }
}

#[test]
fn nothing_is_merged_that_the_device_does_not_accept() {
    let runs = [Flow::tcp(false), Flow::tcp(true), Flow::udp(false), Flow::udp(true)]
        .map(|flow| flow.segments(AT, &noise(3000, 1), 1000));
    let writes = |caps| runs.each_ref().map(|segments| merge(segments, caps).len());
    assert_eq!(writes(Caps::default()), [3, 3, 3, 3]);
    assert_eq!(writes(Caps { tcp4: true, ..Caps::default() }), [1, 3, 3, 3]);
    assert_eq!(writes(Caps { tcp6: true, ..Caps::default() }), [3, 1, 3, 3]);
    assert_eq!(writes(Caps { udp: true, ..Caps::default() }), [3, 3, 1, 1]);
}

#[test]
fn push_and_a_short_segment_end_a_group() {
    let flow = Flow::tcp(false);
    let mut packets = flow.segments(At { flags: ACK | PSH, ..AT }, &noise(3000, 1), 1000);
    packets.extend(flow.segments(after(3000, 3), &noise(2500, 2), 1000));
    packets.extend(flow.segments(after(5500, 6), &noise(2000, 3), 1000));
    assert_eq!(members(&packets), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
    assert_eq!(merge(&packets, ALL)[0].bytes[33], ACK | PSH);
    assert_eq!(merge(&packets, ALL)[1].bytes[33], ACK);
}

#[test]
fn a_larger_segment_starts_a_group() {
    let flow = Flow::udp(true);
    let sizes = [500, 500, 600, 600, 400, 400];
    let packets: Vec<_> = sizes.iter().map(|size| flow.packet(AT, &noise(*size, 1))).collect();
    assert_eq!(members(&packets), [vec![0, 1], vec![2, 3, 4], vec![5]]);
}

#[test]
fn pure_acknowledgements_stay_alone() {
    let flow = Flow::tcp(true);
    let packets = vec![flow.packet(AT, b""); 4];
    assert_eq!(merge(&packets, ALL).len(), 4);
}

#[test]
fn a_gap_in_the_sequence_ends_a_group() {
    let mut packets = Flow::tcp(true).segments(AT, &noise(5000, 1), 1000);
    packets.remove(2);
    assert_eq!(members(&packets), [[0, 1], [2, 3]]);
}

#[test]
fn segments_that_end_a_connection_or_signal_congestion_stay_alone() {
    for flag in [FIN, SYN, 0x04, 0x20, CWR] {
        let flow = Flow::tcp(false);
        let mut packets = flow.segments(AT, &noise(3000, 1), 1000);
        packets.push(flow.packet(At { flags: ACK | flag, ..after(3000, 3) }, &noise(1000, 1)));
        packets.extend(flow.segments(after(4000, 4), &noise(2000, 1), 1000));
        assert_eq!(members(&packets), [vec![0, 1, 2], vec![3], vec![4, 5]]);
    }
}

#[test]
fn a_change_in_any_constant_header_field_ends_a_group() {
    let base = Flow::tcp(false);
    let changed = [
        Flow { tos: 3, ..base.clone() },
        Flow { ttl: 63, ..base.clone() },
        Flow { dont_fragment: false, ..base.clone() },
        Flow { ack: 8, ..base.clone() },
        Flow { window: 513, ..base.clone() },
        Flow { options: vec![1; 12], ..base.clone() },
        Flow { options: vec![], ..base.clone() },
        Flow { host: 9, ..base.clone() },
        Flow { ports: [1, 443], ..base.clone() },
    ];
    for other in changed {
        let packets = [base.packet(AT, &noise(1000, 1)), other.packet(after(1000, 1), &noise(1000, 2))];
        assert_eq!(merge(&packets, ALL).len(), 2, "{other:?}");
    }
    let packets =
        [base.packet(AT, &noise(1000, 1)), base.packet(At { flags: ACK | ECE, ..after(1000, 1) }, &noise(1000, 2))];
    assert_eq!(merge(&packets, ALL).len(), 2);
}

#[test]
fn ipv4_identifications_increase_or_stay_the_same_with_dont_fragment() {
    let of = |dont_fragment, ids: [u16; 3]| {
        let flow = Flow { dont_fragment, ..Flow::tcp(false) };
        let packet = |(i, id): (u32, &u16)| flow.packet(At { id: *id, ..after(i * 1000, 0) }, &noise(1000, 1));
        let packets: Vec<_> = (0..).zip(&ids).map(packet).collect();
        merge(&packets, ALL).len()
    };
    for dont_fragment in [true, false] {
        assert_eq!(of(dont_fragment, [u16::MAX, 0, 1]), 1);
        assert_eq!(of(dont_fragment, [5, 7, 9]), 3);
        assert_eq!(of(dont_fragment, [5, 6, 6]), 2);
    }
    assert_eq!(of(true, [7, 7, 7]), 1);
    assert_eq!(of(true, [7, 7, 8]), 2);
    assert_eq!(of(false, [7, 7, 7]), 3);
}

#[test]
fn a_udp_gro_packet_has_at_most_64_datagrams() {
    let packets = Flow::udp(true).segments(AT, &noise(1000, 1), 10);
    let counts: Vec<_> = merge(&packets, ALL).iter().map(|write| write.members.len()).collect();
    assert_eq!(counts, [64, 36]);
}

#[test]
fn udp_without_a_checksum_stays_alone() {
    let mut packets = Flow::udp(false).segments(AT, &noise(3000, 1), 1000);
    for packet in &mut packets {
        packet[26..28].fill(0);
    }
    assert_eq!(merge(&packets, ALL).len(), 3);
}

#[test]
fn a_gro_packet_never_exceeds_65535_bytes() {
    for flow in [Flow::tcp(false), Flow::tcp(true), Flow::udp(false), Flow::udp(true)] {
        // Two runs of contiguous segments, more than one GRO packet can hold.
        let mut packets = flow.segments(AT, &noise(60_000, 1), 1500);
        packets.extend(flow.segments(after(60_000, 40), &noise(60_000, 2), 1500));
        let writes = merge(&packets, ALL);
        assert_eq!(writes.len(), 2);
        for write in writes {
            assert!((59_000..=65_535).contains(&write.bytes.len()) || write.members.last() == Some(&79));
        }
    }
}

#[test]
fn an_all_ones_tcp_checksum_is_passed_on_unchanged() {
    let flow = Flow::tcp(true);
    let mut packets = flow.segments(AT, &noise(3000, 1), 1000);
    // A payload word chosen so that the checksum is zero; its other form is all ones.
    let at = flow.transport() + 16;
    let checksum = u16::from_be_bytes([packets[1][at], packets[1][at + 1]]);
    let word = u16::from_be_bytes([packets[1][100], packets[1][101]]);
    let sum = u32::from(word) + u32::from(checksum);
    let word = ((sum & 0xffff) + (sum >> 16)) as u16;
    packets[1][100..102].copy_from_slice(&word.to_be_bytes());
    packets[1][at..at + 2].fill(0);
    assert_eq!(merge(&packets, ALL).len(), 1);
    packets[1][at..at + 2].fill(0xff);
    assert_eq!(members(&packets), [[0], [1], [2]]);
}

#[test]
fn an_all_ones_ipv4_header_checksum_is_passed_on_unchanged() {
    let flow = Flow { dont_fragment: false, ..Flow::tcp(false) };
    let segments = |id| flow.segments(At { id, ..AT }, &noise(3000, 1), 1000);
    let zero = |packets: &Vec<Vec<u8>>| packets[1][10..12] == [0, 0];
    let mut packets = (0..=u16::MAX).map(segments).find(zero).unwrap();
    assert_eq!(merge(&packets, ALL).len(), 1);
    packets[1][10..12].fill(0xff);
    assert_eq!(members(&packets), [[0], [1], [2]]);
}

#[test]
fn when_many_flows_interleave_the_oldest_is_closed() {
    let runs: Vec<_> =
        (1..=9).map(|host| Flow { host, ..Flow::tcp(true) }.segments(AT, &noise(2000, 1), 1000)).collect();
    let mut packets: Vec<_> = runs.iter().map(|segments| segments[0].clone()).collect();
    packets.extend(runs[1..].iter().map(|segments| segments[1].clone()));
    packets.push(runs[0][1].clone());
    let lone: Vec<_> = members(&packets).into_iter().filter(|one| one.len() == 1).collect();
    assert_eq!(lone, [[0], [17]]);
}

#[test]
fn lengths_that_disagree_keep_packets_alone() {
    // The checksum is valid for the actual bytes; only the lengths disagree.
    let mut shortened = Flow::tcp(true).segments(AT, &noise(2000, 1), 1000);
    shortened.iter_mut().for_each(|packet| packet[5] -= 4);
    assert_eq!(merge(&shortened, ALL).len(), 2);

    let mut datagrams = Flow::udp(true).segments(AT, &noise(2000, 1), 1000);
    for packet in &mut datagrams {
        packet[45] -= 4;
        let checksum = u16::from_be_bytes([packet[46], packet[47]]);
        let (sum, carry) = checksum.overflowing_add(4);
        packet[46..48].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    }
    assert_eq!(merge(&datagrams, ALL).len(), 2);
}

#[test]
fn a_reserved_ipv4_flag_keeps_packets_alone() {
    let mut packets = Flow::tcp(false).segments(AT, &noise(2000, 1), 1000);
    for packet in &mut packets {
        packet[6] |= 0x80;
        fix_header(packet);
    }
    assert_eq!(merge(&packets, ALL).len(), 2);
}

#[test]
fn packets_with_padding_options_or_extension_headers_stay_alone() {
    let segments = |flow: &Flow| flow.segments(AT, &noise(2000, 1), 1000);
    let mut padded = segments(&Flow::tcp(true));
    padded.iter_mut().for_each(|packet| packet.push(0));
    assert_eq!(merge(&padded, ALL).len(), 2);

    let mut extended = segments(&Flow::tcp(true));
    for packet in &mut extended {
        packet.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
        packet[6] = 60;
        let length = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
    }
    assert!(ip::parse(&extended[0]).is_ok());
    assert_eq!(merge(&extended, ALL).len(), 2);
}

fn members(packets: &[Vec<u8>]) -> Vec<Vec<usize>> {
    merge(packets, ALL).into_iter().map(|write| write.members).collect()
}

/// The fields of a packet that is `bytes` and `packets` after [`AT`].
fn after(bytes: u32, packets: u16) -> At {
    At { id: AT.id + packets, sequence: AT.sequence.wrapping_add(bytes), flags: ACK }
}

const AT: At = At { id: 100, sequence: u32::MAX - 1500, flags: ACK };
