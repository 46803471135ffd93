//! Anything written to the TUN device is refused or becomes complete packets with all of the payload and valid
//! checksums.
//!
//! An input is a virtio header, a two-byte length, and the beginning of a packet that is padded to that length.

use linerate_packet::gso::Split;
use linerate_packet::icmp;
use linerate_packet::ip::{self, Ip, Version};
use linerate_packet::virtio::{self, Gso, Header};
use linerate_packet::{TCP, UDP};

use crate::bytes::Bytes;
use crate::checksum::{add, fold, is_zero, pseudo_header};

/// Of more segments only the first and the last ones are checked.
const LOOKED_AT: usize = 32;

pub fn check(input: &[u8]) {
    let mut input = Bytes(input);
    let header = input.array::<{ virtio::LEN }>();
    let length = usize::from(input.short());
    let mut packet = input.0.to_vec();
    packet.extend((packet.len()..length).map(|index| (index * 7) as u8));
    is_answered(&packet);
    let Ok(header) = Header::decode(&header) else { return };
    assert_eq!(Header::decode(&header.encode()), Ok(header));
    let Ok(split) = Split::new(&header, &packet) else { return };

    let ip = ip::parse(&packet).expect("only IP packets are split");
    let whole = &packet[..ip.total_len];
    assert_eq!(split.len(0), split.len(0));
    match header.gso {
        Gso::None if header.needs_checksum() => is_completed(&header, whole, &only(&split)),
        Gso::None => assert_eq!(only(&split), whole, "a complete packet is unchanged"),
        _ => is_cut(&header, &ip, whole, &split),
    }
}

fn only(split: &Split<'_>) -> Vec<u8> {
    assert_eq!(split.count(), 1);
    written(split, 0)
}

fn written(split: &Split<'_>, i: usize) -> Vec<u8> {
    let mut segment = vec![0xaa; split.len(i) + 3];
    let length = split.write(i, &mut segment);
    assert_eq!((length, &segment[length..]), (split.len(i), &[0xaa; 3][..]), "nothing is written after the segment");
    segment.truncate(length);
    segment
}

/// Only the checksum has changed, and it is valid.
fn is_completed(header: &Header, whole: &[u8], packet: &[u8]) {
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    let field = start + offset;
    assert_eq!((&packet[..field], &packet[field + 2..]), (&whole[..field], &whole[field + 2..]));
    if offset % 2 == 0 {
        // The field contained the sum of the pseudo-header.
        let pseudo = fold(&whole[field..field + 2]);
        assert!(is_zero(add(fold(&packet[start..]), pseudo)));
    }
    assert!(offset != 6 || packet[field..field + 2] != [0, 0], "a UDP checksum is never zero (RFC 768)");
}

fn is_cut(header: &Header, ip: &Ip, whole: &[u8], split: &Split<'_>) {
    let (count, size) = (split.count(), usize::from(header.gso_size));
    let lengths: usize = (0..count).map(|i| split.len(i)).sum();
    // All segments have the same headers.
    let headers = if count == 1 { whole.len().min(split.len(0)) } else { (lengths - whole.len()) / (count - 1) };
    assert_eq!(lengths, whole.len() + (count - 1) * headers, "nothing is lost");
    assert!((0..count).all(|i| split.len(i) <= headers + size || count == 1));
    for i in (0..count).filter(|i| *i < LOOKED_AT || count - i <= LOOKED_AT) {
        let segment = written(split, i);
        let found = ip::parse(&segment).expect("a segment is an IP packet");
        assert_eq!(found, Ip { total_len: segment.len(), ..*ip });
        if count > 1 {
            assert!(segment.len() - headers == size || i + 1 == count, "only the last one is shorter");
            assert_eq!(segment[headers..], whole[headers + i * size..][..segment.len() - headers]);
        }
        if ip.version == Version::V4 {
            assert_eq!(fold(&segment[..ip.transport]), 0xffff);
            let id = |packet: &[u8]| u16::from_be_bytes([packet[4], packet[5]]);
            assert_eq!(id(&segment), id(whole).wrapping_add(i as u16));
        }
        is_right_transport(header, ip, whole, &segment, [i, count]);
    }
}

fn is_right_transport(header: &Header, ip: &Ip, whole: &[u8], segment: &[u8], [i, count]: [usize; 2]) {
    let (protocol, field) = if header.gso == Gso::UdpL4 { (UDP, 6) } else { (TCP, 16) };
    // After extension headers it equals csum_start; without that this property does not determine it.
    let at = match header.needs_checksum() {
        true => usize::from(header.csum_start),
        false if ip.protocol == protocol => ip.transport,
        false => return,
    };
    let pseudo = if header.needs_checksum() {
        let (partial, length) = (fold(&whole[at + field..][..2]), (whole.len() - at) as u16);
        add(add(partial, !length), (segment.len() - at) as u16)
    } else {
        pseudo_header(segment, protocol, segment.len() - at)
    };
    let (whole, segment) = (&whole[at..], &segment[at..]);
    assert!(is_zero(add(fold(segment), pseudo)), "the checksum is correct");
    assert_eq!(segment[..4], whole[..4], "the ports are unchanged");
    if protocol == UDP {
        assert_eq!(segment[4..6], (segment.len() as u16).to_be_bytes());
        assert_ne!(segment[6..8], [0, 0]);
        return;
    }
    let sequence = |header: &[u8]| u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let from = i * usize::from(header.gso_size);
    assert_eq!(sequence(segment), sequence(whole).wrapping_add(from as u32));
    let flags = (u8::from(i > 0) * 0x80) | (u8::from(i + 1 < count) * 0x09);
    assert_eq!(segment[13], whole[13] & !flags, "CWR belongs to the first, FIN and PSH to the last");
    assert_eq!((&segment[8..13], &segment[14..16]), (&whole[8..13], &whole[14..16]));
}

/// An ICMP answer is a complete packet to the sender that quotes the original.
fn is_answered(original: &[u8]) {
    let mut out = [0xaa; icmp::LONGEST];
    let Some(length) = icmp::unreachable(original, &mut out) else { return };
    let (answer, was) = (ip::parse(&out[..length]).expect("an answer is an IP packet"), ip::parse(original));
    assert_eq!((answer.total_len, Ok(answer.destination)), (length, was.map(|ip| ip.source)));
    let body = &out[answer.transport..length];
    let pseudo = match answer.version {
        Version::V4 => 0,
        Version::V6 => pseudo_header(&out, answer.protocol, body.len()),
    };
    assert_eq!(add(fold(body), pseudo), 0xffff);
    assert!(original.starts_with(&body[8..]), "it quotes the original");
}
