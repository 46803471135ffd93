//! Control messages (cmsg(3)) of datagrams, built and read as bytes.
//!
//! [`SendControl`]: source address, TOS and segment size. [`RecvControl`]: local address, TOS and GRO segment size. A
//! control buffer with wrong lengths yields fewer entries, never a panic and never a byte from outside it.

use std::mem::{align_of, offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::datagram::{PacketInfo, Transmit};

const WORD: usize = size_of::<usize>();
const HEADER: usize = align(size_of::<libc::cmsghdr>());

const _: () = {
    // CMSG_ALIGN of the kernel rounds to a long, and cmsg_len is a size_t (include/linux/socket.h).
    assert!(size_of::<libc::cmsghdr>() == WORD + 8);
    assert!(offset_of!(libc::cmsghdr, cmsg_len) == 0);
    assert!(offset_of!(libc::cmsghdr, cmsg_level) == WORD);
    assert!(offset_of!(libc::cmsghdr, cmsg_type) == WORD + 4);
    assert!(size_of::<libc::in_pktinfo>() == 12);
    assert!(offset_of!(libc::in_pktinfo, ipi_spec_dst) == 4);
    assert!(offset_of!(libc::in_pktinfo, ipi_addr) == 8);
    assert!(size_of::<libc::in6_pktinfo>() == 20);
    assert!(offset_of!(libc::in6_pktinfo, ipi6_addr) == 0);
    assert!(align_of::<libc::cmsghdr>() <= 8);
};

/// The size of the largest set of entries to send: IPv6 source, traffic class, segment size.
const SEND_ROOM: usize = space(20) + space(4) + space(2);
/// The size of the largest set of received entries: IPv6 destination, traffic class, segment size.
const RECV_ROOM: usize = space(20) + space(4) + space(4);

/// The control buffer of a datagram to send.
#[repr(C, align(8))]
pub(in crate::sys) struct SendControl {
    bytes: [u8; SEND_ROOM],
    len: usize,
}

impl SendControl {
    /// The entries that `message` needs; none for a plain one.
    pub(in crate::sys) fn new(message: &Transmit<'_>) -> Self {
        let mut control = Self { bytes: [0; SEND_ROOM], len: 0 };
        match message.from {
            Some(IpAddr::V4(from)) => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&from.octets());
                control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            Some(IpAddr::V6(from)) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&from.octets());
                control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            None => {}
        }
        if message.tos != 0 {
            let (level, kind) = match message.to.is_ipv4() {
                true => (libc::IPPROTO_IP, libc::IP_TOS),
                false => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            control.push(level, kind, &i32::from(message.tos).to_ne_bytes());
        }
        if let Some(segment) = message.segment {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        control
    }

    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let entry = &mut self.bytes[self.len..][..space(data.len())];
        entry[..WORD].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        entry[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        entry[WORD + 4..WORD + 8].copy_from_slice(&kind.to_ne_bytes());
        entry[HEADER..][..data.len()].copy_from_slice(data);
        self.len += space(data.len());
    }

    pub(in crate::sys) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(in crate::sys) fn len(&self) -> usize {
        self.len
    }
}

/// The control buffer for a datagram to receive.
#[repr(C, align(8))]
pub(in crate::sys) struct RecvControl {
    bytes: [u8; RECV_ROOM],
}

impl RecvControl {
    pub(in crate::sys) const fn room() -> Self {
        Self { bytes: [0; RECV_ROOM] }
    }

    pub(in crate::sys) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(in crate::sys) const fn len(&self) -> usize {
        RECV_ROOM
    }

    /// Reads what the kernel wrote, `written` bytes according to it.
    pub(in crate::sys) fn read(&self, written: usize) -> ControlData {
        ControlData::read(&self.bytes[..written.min(RECV_ROOM)])
    }
}

/// The content of the control messages of a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sys) struct ControlData {
    /// Where it was received.
    pub(in crate::sys) local: Option<PacketInfo>,
    /// Its TOS or traffic class octet.
    pub(in crate::sys) tos: u8,
    /// The size of its segments, if it is several datagrams in one.
    pub(in crate::sys) segment: Option<usize>,
}

impl ControlData {
    fn read(buffer: &[u8]) -> Self {
        let mut control = Self::default();
        for (level, kind, data) in Entries(buffer) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => control.local = local_v4(data),
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => control.local = local_v6(data),
                // One byte for IP_TOS and an int for IPV6_TCLASS (ip_cmsg_recv_tos,
                // ip6_datagram_recv_common_ctl).
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    control.tos = data.first().copied().unwrap_or_default();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    control.tos = int(data).and_then(|int| u8::try_from(int).ok()).unwrap_or(0);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    control.segment = int(data).and_then(|int| usize::try_from(int).ok());
                }
                _ => {}
            }
        }
        control
    }
}

/// The entries (level, type, data) of a control buffer, up to the first that does not fit.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        let len = usize::from_ne_bytes(*bytes.first_chunk::<WORD>()?);
        let level = i32::from_ne_bytes(*bytes.get(WORD..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*bytes.get(WORD + 4..)?.first_chunk()?);
        let data = bytes.get(HEADER..len)?;
        // `len` is at most the buffer's length, so that rounding it up cannot overflow.
        self.0 = bytes.get(align(len)..).unwrap_or_default();
        Some((level, kind, data))
    }
}

/// A reply must come from the specific destination. It differs from the address in the header for a broadcast, and is
/// zero if the kernel did not determine it.
fn local_v4(info: &[u8]) -> Option<PacketInfo> {
    let ifindex = u32::from_ne_bytes(*info.first_chunk()?);
    let specific: [u8; 4] = *info.get(4..)?.first_chunk()?;
    let header: [u8; 4] = *info.get(8..)?.first_chunk()?;
    let local = if specific == [0; 4] { header } else { specific };
    Some(PacketInfo { addr: IpAddr::V4(Ipv4Addr::from(local)), ifindex })
}

fn local_v6(info: &[u8]) -> Option<PacketInfo> {
    let local: [u8; 16] = *info.first_chunk()?;
    let ifindex = u32::from_ne_bytes(*info.get(16..)?.first_chunk()?);
    Some(PacketInfo { addr: IpAddr::V6(Ipv6Addr::from(local)), ifindex })
}

fn int(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

const fn align(len: usize) -> usize {
    (len + WORD - 1) & !(WORD - 1)
}

const fn space(data: usize) -> usize {
    HEADER + align(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    proptest! {
        #[test]
        fn no_control_buffer_makes_the_reader_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            ControlData::read(&bytes);
        }

        /// Random bytes rarely have a length that passes; these are wrong by little.
        #[test]
        fn wrong_lengths_never_reach_past_the_buffer(
            lens in prop::collection::vec(0usize..80, 1..6),
            cut in 0usize..200,
        ) {
            let mut bytes = Vec::new();
            for len in lens {
                bytes.extend(len.to_ne_bytes());
                bytes.extend(libc::SOL_UDP.to_ne_bytes());
                bytes.extend(libc::UDP_GRO.to_ne_bytes());
                bytes.extend(1400i32.to_ne_bytes());
                bytes.extend([0; 4]);
            }
            bytes.truncate(cut);
            let total: usize = Entries(&bytes).map(|(_, _, data)| HEADER + data.len()).sum();
            prop_assert!(total <= bytes.len());
        }

        #[test]
        fn what_is_sent_reads_back(ip: [u8; 16], v4: bool, tos: u8, segment: Option<u16>) {
            let message = transmit(address(ip, v4), tos, segment);
            let control = SendControl::new(&message);
            let entries: Vec<_> = Entries(&control.bytes[..control.len]).collect();
            let asked = 1 + usize::from(tos != 0) + usize::from(segment.is_some());
            prop_assert_eq!(entries.len(), asked);
            let control = ControlData::read(&control.bytes[..control.len]);
            // IP_TOS goes out as an int, whose first byte is the TOS on little-endian machines.
            if cfg!(target_endian = "little") {
                prop_assert_eq!(control.tos, tos);
            }
            let from = message.from.map(|addr| PacketInfo { addr, ifindex: 0 });
            prop_assert_eq!(control.local, from);
        }
    }

    #[test]
    fn a_plain_message_has_no_control_entries() {
        let message = Transmit { from: None, ..transmit([127, 0, 0, 1].into(), 0, None) };
        assert_eq!(SendControl::new(&message).len(), 0);
    }

    #[test]
    fn the_largest_set_fills_the_outgoing_room_exactly() {
        let message = transmit(Ipv6Addr::LOCALHOST.into(), 0x88, Some(1400));
        assert_eq!(SendControl::new(&message).len(), SEND_ROOM);
    }

    #[test]
    fn impossible_lengths_end_the_reading() {
        for len in [0, 1, HEADER - 1, usize::MAX, usize::MAX - 7, 1 << 32] {
            let mut bytes = [0xff; 64];
            bytes[..WORD].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Entries(&bytes).count(), 0, "length {len}");
        }
    }

    #[test]
    fn entries_with_too_little_data_are_ignored() {
        for (level, kind) in [
            (libc::IPPROTO_IP, libc::IP_PKTINFO),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
            (libc::IPPROTO_IP, libc::IP_TOS),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            (libc::SOL_UDP, libc::UDP_GRO),
        ] {
            let mut control = SendControl { bytes: [0; SEND_ROOM], len: 0 };
            control.push(level, kind, &[]);
            assert_eq!(ControlData::read(&control.bytes[..control.len]), ControlData::default());
        }
    }

    #[test]
    fn a_segment_size_below_zero_is_none() {
        let mut control = SendControl { bytes: [0; SEND_ROOM], len: 0 };
        control.push(libc::SOL_UDP, libc::UDP_GRO, &(-1i32).to_ne_bytes());
        assert_eq!(ControlData::read(&control.bytes[..control.len]).segment, None);
    }

    #[test]
    fn a_broadcast_is_answered_from_the_specific_destination() {
        let mut info = [0; 12];
        info[..4].copy_from_slice(&7u32.to_ne_bytes());
        info[8..].copy_from_slice(&[255; 4]);
        let local = |addr: [u8; 4]| Some(PacketInfo { addr: addr.into(), ifindex: 7 });
        assert_eq!(local_v4(&info), local([255; 4]));
        info[4..8].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(local_v4(&info), local([192, 0, 2, 1]));
    }

    fn address(ip: [u8; 16], v4: bool) -> IpAddr {
        match v4 {
            true => {
                let [a, b, c, .., d] = ip;
                // An all-zero specific destination reads as the header's.
                IpAddr::V4(Ipv4Addr::new(a | 1, b, c, d))
            }
            false => IpAddr::V6(ip.into()),
        }
    }

    fn transmit(from: IpAddr, tos: u8, segment: Option<u16>) -> Transmit<'static> {
        let to = SocketAddr::new(from, 1);
        Transmit { to, from: Some(from), tos, segment, contents: &[] }
    }
}
