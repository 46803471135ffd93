//! "Destination unreachable" goes to the sender, quotes its packet, and never answers what must not be answered.

use crate::packets::{ACK, At, Flow, at, flow, naive_fold, noise};
use linerate_packet::icmp::{LONGEST, echo_request, unreachable};
use linerate_packet::{ICMP, ICMPV6, ip};
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_answer_is_a_valid_packet_that_quotes_the_original(
        flow in flow(),
        at in at(),
        len in 0..3000usize,
    ) {
        let original = flow.packet(at, &noise(len, 1));
        let mut out = [0xaa; LONGEST];
        let len = unreachable(&original, &mut out).unwrap();
        let answer = &out[..len];
        let (network, longest) = if flow.v6 { (40, 1280) } else { (20, 576) };

        let original_ip = ip::parse(&original).unwrap();
        let ip = ip::parse(answer).unwrap();
        prop_assert_eq!(ip.total_len, answer.len());
        prop_assert_eq!((ip.source, ip.destination), (original_ip.destination, original_ip.source));
        let quote = &answer[network + 8..];
        prop_assert_eq!(answer.len(), longest.min(network + 8 + original.len()));
        prop_assert_eq!(quote, &original[..quote.len()]);

        let mut covered = Vec::new();
        if flow.v6 {
            prop_assert_eq!((ip.protocol, &answer[40..42]), (ICMPV6, &[1, 3][..]));
            covered.extend_from_slice(&answer[8..40]);
            covered.extend_from_slice(&((answer.len() - 40) as u32).to_be_bytes());
            covered.extend_from_slice(&[0, 0, 0, ICMPV6]);
        } else {
            prop_assert_eq!((ip.protocol, &answer[20..22]), (ICMP, &[3, 1][..]));
            prop_assert_eq!(naive_fold(&answer[..20]), 0xffff);
        }
        covered.extend_from_slice(&answer[network..]);
        prop_assert_eq!(naive_fold(&covered), 0xffff);
    }

    #[test]
    fn an_answer_is_never_answered(flow in flow(), at in at()) {
        let original = flow.packet(at, b"payload");
        let mut out = [0; LONGEST];
        let len = unreachable(&original, &mut out).unwrap();
        prop_assert_eq!(answer_len(&out[..len]), None);
    }
}

#[test]
fn echo_requests_are_answered_and_errors_are_not() {
    for kind in 0..=255u8 {
        let v4 = with_icmp(false, kind);
        assert_eq!(answer_len(&v4).is_some(), ![3, 4, 5, 11, 12].contains(&kind));
        let v6 = with_icmp(true, kind);
        assert_eq!(answer_len(&v6).is_some(), kind >= 128 && kind != 137);
    }
}

#[test]
fn an_icmp_error_after_an_extension_header_is_still_an_error() {
    let mut packet = with_icmp(true, 1);
    packet.splice(40..40, [ICMPV6, 0, 1, 4, 0, 0, 0, 0]);
    packet[6] = 60;
    packet[5] += 8;
    assert_eq!(answer_len(&packet), None);
    packet[48] = 128;
    assert!(answer_len(&packet).is_some());
}

#[test]
fn only_first_fragments_are_answered() {
    let mut packet = Flow::udp(false).packet(AT, b"payload");
    packet[6..8].copy_from_slice(&[0x20, 0]);
    assert!(answer_len(&packet).is_some());
    packet[6..8].copy_from_slice(&[0, 1]);
    assert_eq!(answer_len(&packet), None);

    let mut packet = Flow::udp(true).packet(AT, b"payload");
    packet.splice(40..40, [17, 0, 0, 1, 0, 0, 0, 0]);
    packet[6] = 44;
    packet[5] += 8;
    assert!(answer_len(&packet).is_some());
    packet[43] = 8;
    assert_eq!(answer_len(&packet), None);
}

#[test]
fn addresses_that_do_not_name_one_host_are_not_answered() {
    for address in [[0; 4], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4]] {
        for field in [12, 16] {
            let mut packet = Flow::udp(false).packet(AT, b"payload");
            packet[field..field + 4].copy_from_slice(&address);
            assert_eq!(answer_len(&packet), None);
        }
    }
    let multicast = [0xff; 16];
    let mut loopback = [0; 16];
    loopback[15] = 1;
    for address in [[0; 16], loopback, multicast] {
        for field in [8, 24] {
            let mut packet = Flow::udp(true).packet(AT, b"payload");
            packet[field..field + 16].copy_from_slice(&address);
            assert_eq!(answer_len(&packet), None);
        }
    }
}

#[test]
fn an_answer_that_does_not_fit_is_not_written() {
    let packet = Flow::udp(false).packet(AT, b"payload");
    let whole = 28 + packet.len();
    let mut out = [0xaa; LONGEST];
    assert_eq!(unreachable(&packet, &mut out[..whole - 1]), None);
    assert_eq!(out, [0xaa; LONGEST]);
    assert_eq!(unreachable(&packet, &mut out[..whole]), Some(whole));
}

fn answer_len(packet: &[u8]) -> Option<usize> {
    unreachable(packet, &mut [0; LONGEST])
}

fn with_icmp(v6: bool, kind: u8) -> Vec<u8> {
    let flow = Flow { protocol: if v6 { ICMPV6 } else { ICMP }, ..Flow::udp(v6) };
    let mut packet = flow.packet(AT, b"payload");
    packet[flow.transport()] = kind;
    packet
}

const AT: At = At { id: 1, sequence: 1, flags: ACK };

#[test]
fn an_echo_request_is_a_valid_packet() {
    for (source, target, kind) in [("10.9.0.2", "10.9.0.1", 8), ("fd09::2", "fd09::1", 128)] {
        let (source, target) = (source.parse().unwrap(), target.parse().unwrap());
        let mut out = [0xaa; 64];
        let len = echo_request(source, target, 0x1234, 7, &mut out).unwrap();
        let (packet, network) = (&out[..len], if kind == 8 { 20 } else { 40 });
        let ip = ip::parse(packet).unwrap();
        assert_eq!((ip.source, ip.destination, ip.total_len), (source, target, len));
        assert_eq!((packet[network], &packet[network + 4..network + 8]), (kind, &[0x12, 0x34, 0, 7][..]));
        let mut covered = packet[network..].to_vec();
        if kind == 128 {
            covered.extend_from_slice(&packet[8..40]);
            covered.extend_from_slice(&[0, 0, 0, (len - 40) as u8, 0, 0, 0, ICMPV6]);
        } else {
            assert_eq!(naive_fold(&packet[..20]), 0xffff);
        }
        assert_eq!(naive_fold(&covered), 0xffff);
        assert_eq!(echo_request(source, target, 0, 0, &mut out[..47]), None);
    }
    assert_eq!(echo_request("10.9.0.2".parse().unwrap(), "fd09::1".parse().unwrap(), 0, 0, &mut [0; 64]), None);
}
