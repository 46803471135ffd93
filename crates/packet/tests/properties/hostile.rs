//! For any bytes: no panic, no read or write out of bounds, and merging stays correct.

use crate::merge::merge;
use crate::packets::{At, Flow, flow, noise, plain_at};
use crate::split::write_all;
use linerate_packet::gro::Caps;
use linerate_packet::gso::Split;
use linerate_packet::virtio::{self, Header};
use linerate_packet::{icmp, ip};
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes that often start like an IP packet, to pass the first check.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![Just(0x45), Just(0x46), Just(0x60), any::<u8>()];
    (first, vec(any::<u8>(), 0..200)).prop_map(|(first, mut bytes)| {
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        bytes
    })
}

/// A valid packet with a few bytes changed, possibly truncated.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = vec((0..80usize, any::<u8>()), 0..4);
    let cut = prop_oneof![4 => Just(0usize), 1 => 0..100usize];
    (flow(), plain_at(), 0..300usize, damage, cut).prop_map(|(flow, at, len, damage, cut)| {
        let mut packet = flow.partial(at, &noise(len, 1));
        for (at, byte) in damage {
            let len = packet.len();
            packet[at % len] = byte;
        }
        packet.truncate(packet.len() - cut.min(packet.len()));
        packet
    })
}

/// A virtio header of random bytes, or with plausible fields.
fn header() -> impl Strategy<Value = [u8; virtio::LEN]> {
    let gso_type = prop_oneof![Just(0u8), Just(1), Just(4), Just(5), Just(0x81), any::<u8>()];
    let start = prop_oneof![Just(20u16), Just(40), Just(24), Just(48), 0..100u16, any::<u16>()];
    let offset = prop_oneof![Just(6u16), Just(16), 0..40u16, any::<u16>()];
    let size = prop_oneof![0..300u16, any::<u16>()];
    let plausible = (0..4u8, gso_type, any::<u16>(), size, start, offset).prop_map(
        |(flags, gso_type, hdr_len, gso_size, csum_start, csum_offset)| {
            let words = [hdr_len, gso_size, csum_start, csum_offset].map(u16::to_ne_bytes);
            let mut bytes = [0; virtio::LEN];
            bytes[..2].copy_from_slice(&[flags, gso_type]);
            bytes[2..].copy_from_slice(words.as_flattened());
            bytes
        },
    );
    prop_oneof![any::<[u8; virtio::LEN]>(), plausible]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_the_parsers_panic(packet in prop_oneof![bytes(), damaged()]) {
        let parsed = ip::parse(&packet);
        if let Ok(ip) = parsed {
            prop_assert!(ip.total_len <= packet.len() && ip.transport <= ip.total_len);
            prop_assert_eq!(ip::source(&packet), Some(ip.source));
            prop_assert_eq!(ip::destination(&packet), Some(ip.destination));
            prop_assert_eq!(ip::ecn(&packet), ip.ecn);
        }
        ip::set_ce(&mut packet.clone());
        let mut out = [0; icmp::LONGEST];
        if let Some(len) = icmp::unreachable(&packet, &mut out) {
            prop_assert!(parsed.is_ok() && ip::parse(&out[..len]).is_ok());
        }
    }

    #[test]
    fn no_virtio_header_makes_split_read_outside_the_packet(
        header in header(),
        packet in prop_oneof![bytes(), damaged()],
    ) {
        let Ok(header) = Header::decode(&header) else { return Ok(()) };
        let Ok(split) = Split::new(&header, &packet) else { return Ok(()) };
        let packets = write_all(&split);
        prop_assert_eq!(packets.len(), split.count());
        for segment in &packets {
            prop_assert!(ip::parse(segment).is_ok_and(|ip| ip.total_len == segment.len()));
        }
    }

    #[test]
    fn no_packets_make_the_merger_panic(
        packets in vec(prop_oneof![1 => bytes(), 3 => damaged(), 6 => good()], 0..24),
        caps in [any::<bool>(); 3],
    ) {
        let [tcp4, tcp6, udp] = caps;
        merge(&packets, Caps { tcp4, tcp6, udp });
    }
}

/// One of few packets that merge, so that damaged ones hit growing groups.
fn good() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), any::<bool>(), 0..4u16, 1..30usize).prop_map(|(v6, tcp, i, len)| {
        let flow = if tcp { Flow::tcp(v6) } else { Flow::udp(v6) };
        let at = At { id: i, sequence: u32::from(i) * 20, flags: 0x10 };
        flow.packet(at, &noise(len.min(20), 1))
    })
}

#[test]
fn a_header_of_all_ones_is_refused() {
    assert!(Header::decode(&[0xff; virtio::LEN]).is_err());
}
