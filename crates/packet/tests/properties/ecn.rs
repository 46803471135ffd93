//! Marking congestion changes two bits, and a valid header checksum stays valid, a wrong one wrong.

use crate::packets::{Flow, at, flow, naive_fold};
use linerate_packet::ip;
use proptest::prelude::*;

proptest! {
    #[test]
    fn set_ce_marks_ecn_capable_packets_and_no_others(flow in flow(), at in at()) {
        let before = flow.packet(at, b"payload");
        let mut after = before.clone();
        ip::set_ce(&mut after);
        let expected = if flow.tos & 3 == 0 { 0 } else { ip::CE };
        prop_assert_eq!(ip::ecn(&before), flow.tos & 3);
        prop_assert_eq!(ip::ecn(&after), expected);
        let tos = if expected == 0 { flow.tos } else { flow.tos | 3 };
        let marked = Flow { tos, ..flow };
        prop_assert_eq!(after, marked.packet(at, b"payload"));
    }

    #[test]
    fn set_ce_never_repairs_a_header(flow in flow(), at in at(), wrong in 1..0xffffu16) {
        let flow = Flow { v6: false, ..flow };
        let mut packet = flow.packet(at, b"payload");
        let checksum = u16::from_be_bytes([packet[10], packet[11]]).wrapping_add(wrong);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        let before = naive_fold(&packet[..20]);
        prop_assume!(before != 0xffff);
        ip::set_ce(&mut packet);
        prop_assert_eq!(naive_fold(&packet[..20]), before);
    }
}
