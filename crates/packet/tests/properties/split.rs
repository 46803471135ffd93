//! A GSO packet splits into exactly the packets that a host without offloads would have sent.

use crate::packets::{At, Flow, at, flow, naive_fold, noise, payload_and_size};
use linerate_packet::gso::Split;
use linerate_packet::virtio::{Gso, Header};
use linerate_packet::{Malformed, TCP, UDP};
use proptest::prelude::*;

/// Writes every packet of a split.
pub fn write_all(split: &Split<'_>) -> Vec<Vec<u8>> {
    let write = |i| {
        let mut dst = vec![0xaa; split.len(i) + 3];
        let len = split.write(i, &mut dst);
        assert_eq!(len, split.len(i));
        assert_eq!(dst[len..], [0xaa; 3]);
        dst.truncate(len);
        dst
    };
    (0..split.count()).map(write).collect()
}

proptest! {
    #[test]
    fn split_gives_the_packets_of_a_host_without_offloads(
        flow in flow(),
        at in at(),
        (payload, size) in payload_and_size(),
    ) {
        let packet = flow.partial(at, &payload);
        let split = Split::new(&flow.header(size as u16), &packet).unwrap();
        let packets = write_all(&split);
        prop_assert_eq!(split.len(0), packets[0].len());
        prop_assert!(packets == flow.segments(at, &payload, size));
    }

    #[test]
    fn hdr_len_and_padding_are_ignored(
        flow in flow(),
        at in at(),
        (payload, size) in payload_and_size(),
        hdr_len in any::<u16>(),
        padding in 0..40usize,
    ) {
        let mut packet = flow.partial(at, &payload);
        packet.resize(packet.len() + padding, 0xbb);
        let header = Header { hdr_len, ..flow.header(size as u16) };
        let packets = write_all(&Split::new(&header, &packet).unwrap());
        prop_assert!(packets == flow.segments(at, &payload, size));
    }

    #[test]
    fn a_gso_packet_already_verified_splits_the_same(
        flow in flow(),
        at in at(),
        (payload, size) in payload_and_size(),
    ) {
        let packet = flow.packet(at, &payload);
        let header = Header {
            flags: linerate_packet::virtio::DATA_VALID,
            csum_start: 0,
            csum_offset: 0,
            ..flow.header(size as u16)
        };
        let packets = write_all(&Split::new(&header, &packet).unwrap());
        prop_assert!(packets == flow.segments(at, &payload, size));
    }

    #[test]
    fn a_packet_without_its_checksum_gets_it(flow in flow(), at in at(), len in 0..2000usize) {
        let payload = noise(len, 3);
        let packet = flow.partial(at, &payload);
        let packets = write_all(&Split::new(&flow.header(0), &packet).unwrap());
        prop_assert!(packets == [flow.packet(at, &payload)]);
    }

    #[test]
    fn a_complete_packet_comes_out_verbatim(flow in flow(), at in at(), len in 0..2000usize) {
        let mut packet = flow.packet(at, &noise(len, 5));
        let verbatim = packet.clone();
        packet.push(0xcc);
        let packets = write_all(&Split::new(&Header::default(), &packet).unwrap());
        prop_assert!(packets == [verbatim]);
    }
}

#[test]
fn a_gso_packet_may_have_thousands_of_segments() {
    let flow = Flow::tcp(false);
    let packet = flow.partial(AT, &noise(60_000, 1));
    let split = Split::new(&flow.header(1), &packet).unwrap();
    assert_eq!(split.count(), 60_000);
    let mut dst = [0; 64];
    assert_eq!(split.write(59_999, &mut dst), flow.headers() + 1);
}

#[test]
fn segments_after_extension_headers_have_valid_checksums() {
    for protocol in [TCP, UDP] {
        let flow = match protocol {
            TCP => Flow::tcp(true),
            _ => Flow::udp(true),
        };
        let plain = flow.partial(AT, &noise(3000, 9));
        let mut packet = plain[..40].to_vec();
        packet.extend_from_slice(&[protocol, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend_from_slice(&plain[40..]);
        packet[6] = 60;
        let length = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        let header = Header { csum_start: 48, ..flow.header(1000) };
        let packets = write_all(&Split::new(&header, &packet).unwrap());
        assert_eq!(packets.len(), 3);
        for segment in &packets {
            assert_eq!(segment[..4], packet[..4]);
            assert_eq!(segment[40..48], packet[40..48]);
            let mut covered = segment[8..40].to_vec();
            covered.extend_from_slice(&((segment.len() - 48) as u32).to_be_bytes());
            covered.extend_from_slice(&[0, 0, 0, protocol]);
            covered.extend_from_slice(&segment[48..]);
            assert_eq!(naive_fold(&covered), 0xffff);
        }
    }
}

#[test]
fn ipv4_options_are_in_every_segment() {
    let flow = Flow::tcp(false);
    let plain = flow.partial(AT, &noise(2000, 9));
    let mut packet = plain[..20].to_vec();
    packet.extend_from_slice(&[1, 1, 1, 0]);
    packet.extend_from_slice(&plain[20..]);
    packet[0] = 0x46;
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    let header = Header { csum_start: 24, ..flow.header(1000) };
    for segment in write_all(&Split::new(&header, &packet).unwrap()) {
        assert_eq!(segment[20..24], [1, 1, 1, 0]);
        assert_eq!(naive_fold(&segment[..24]), 0xffff);
    }
}

#[test]
fn split_names_what_is_wrong() {
    let flow = Flow::tcp(false);
    let packet = flow.partial(AT, &noise(3000, 1));
    let good = flow.header(1000);
    let refused = |header: &Header, packet: &[u8]| Split::new(header, packet).unwrap_err();

    let zero = Header { gso_size: 0, ..good };
    assert_eq!(refused(&zero, &packet), Malformed::Segment);
    let other_family = Header { gso: Gso::TcpV6, ..good };
    assert_eq!(refused(&other_family, &packet), Malformed::Offload);
    let other_protocol = Header { gso: Gso::UdpL4, ..good };
    assert_eq!(refused(&other_protocol, &packet), Malformed::Offload);
    for csum_start in [0, 19, 21, 24, u16::MAX] {
        let lying = Header { csum_start, ..good };
        assert_eq!(refused(&lying, &packet), Malformed::Checksum);
    }
    for csum_offset in [0, 6, 15, u16::MAX] {
        let lying = Header { csum_offset, ..good };
        assert_eq!(refused(&lying, &packet), Malformed::Checksum);
    }
    assert_eq!(refused(&good, &packet[..packet.len() - 1]), Malformed::Length);
    assert_eq!(refused(&good, &[]), Malformed::Truncated);

    let mut fragment = packet.clone();
    fragment[6] = 0x20;
    assert_eq!(refused(&good, &fragment), Malformed::Offload);
    let mut short_offset = packet.clone();
    short_offset[32] = 0x40;
    assert_eq!(refused(&good, &short_offset), Malformed::Length);
    let mut truncated = packet[..39].to_vec();
    truncated[2..4].copy_from_slice(&[0, 39]);
    assert_eq!(refused(&good, &truncated), Malformed::Truncated);
    let mut long_offset = packet[..45].to_vec();
    long_offset[2..4].copy_from_slice(&[0, 45]);
    assert_eq!(refused(&good, &long_offset), Malformed::Truncated);
}

#[test]
fn a_checksum_outside_the_packet_is_refused() {
    let flow = Flow::udp(false);
    let packet = flow.partial(AT, b"");
    let good = flow.header(0);
    for (csum_start, csum_offset) in [(0, 6), (19, 6), (20, 7), (27, 0), (u16::MAX, u16::MAX)] {
        let lying = Header { csum_start, csum_offset, ..good };
        assert_eq!(Split::new(&lying, &packet).unwrap_err(), Malformed::Checksum);
    }
}

const AT: At = At { id: 0xfffe, sequence: u32::MAX - 100, flags: 0x18 };
