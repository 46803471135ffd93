//! Control messages (cmsg(3)) of datagrams, built and read as bytes.
//!
//! [`SendControl`]: source address, TOS and segment size. [`RecvControl`]: local address, TOS and GRO segment size.
//! Which entries there are and how they are laid out, each system's `control` says. A control buffer with wrong lengths
//! yields fewer entries, never a panic and never a byte from outside it.

use std::marker::PhantomData;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::system::control::{Format, RECV_ROOM, SEND_ROOM};
use crate::datagram::{PacketInfo, Transmit};

/// How a system lays out its entries, and which they are.
pub(super) trait Layout {
    /// The bytes of the length, which is first; level and type follow, of four bytes each. Where it is shorter than a
    /// word, the machine is little-endian.
    const LENGTH: usize;
    /// Data and entries begin at multiples of it.
    const ALIGN: usize;

    /// Adds (level, type, data) for what `message` asks for.
    fn describe(message: &Transmit<'_>, add: impl FnMut(i32, i32, &[u8]));
    /// Takes over what an entry of a received datagram says.
    fn note(control: &mut ControlData, level: i32, kind: i32, data: &[u8]);
}

/// The control buffer of a datagram to send.
#[repr(C, align(8))]
pub(super) struct SendControl {
    bytes: [u8; SEND_ROOM],
    len: usize,
}

impl SendControl {
    /// The entries that `message` needs; none for a plain one.
    pub(super) fn new(message: &Transmit<'_>) -> Self {
        Self::laid_out::<Format>(message)
    }

    fn laid_out<L: Layout>(message: &Transmit<'_>) -> Self {
        let mut control = Self { bytes: [0; SEND_ROOM], len: 0 };
        L::describe(message, |level, kind, data| control.push::<L>(level, kind, data));
        control
    }

    fn push<L: Layout>(&mut self, level: i32, kind: i32, data: &[u8]) {
        let entry = &mut self.bytes[self.len..][..space::<L>(data.len())];
        let len = (header::<L>() + data.len()).to_ne_bytes();
        entry[..L::LENGTH].copy_from_slice(&len[..L::LENGTH]);
        entry[L::LENGTH..][..4].copy_from_slice(&level.to_ne_bytes());
        entry[L::LENGTH + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
        entry[header::<L>()..][..data.len()].copy_from_slice(data);
        self.len += space::<L>(data.len());
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// The control buffer for a datagram to receive.
#[repr(C, align(8))]
pub(super) struct RecvControl {
    bytes: [u8; RECV_ROOM],
}

impl RecvControl {
    pub(super) const fn room() -> Self {
        Self { bytes: [0; RECV_ROOM] }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(super) const fn len(&self) -> usize {
        RECV_ROOM
    }

    /// Reads what the kernel wrote, `written` bytes according to it.
    pub(super) fn read(&self, written: usize) -> ControlData {
        ControlData::read::<Format>(&self.bytes[..written.min(RECV_ROOM)])
    }
}

/// The content of the control messages of a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ControlData {
    /// Where it was received.
    pub(super) local: Option<PacketInfo>,
    /// Its TOS or traffic class octet.
    pub(super) tos: u8,
    /// The size of its segments, if it is several datagrams in one.
    pub(super) segment: Option<usize>,
}

impl ControlData {
    fn read<L: Layout>(buffer: &[u8]) -> Self {
        let mut control = Self::default();
        Entries::<L>::of(buffer).for_each(|(level, kind, data)| L::note(&mut control, level, kind, data));
        control
    }
}

/// The entries (level, type, data) of a control buffer, up to the first that does not fit.
struct Entries<'a, L>(&'a [u8], PhantomData<L>);

impl<'a, L> Entries<'a, L> {
    fn of(buffer: &'a [u8]) -> Self {
        Self(buffer, PhantomData)
    }
}

impl<'a, L: Layout> Iterator for Entries<'a, L> {
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        let mut len = [0; size_of::<usize>()];
        len[..L::LENGTH].copy_from_slice(bytes.get(..L::LENGTH)?);
        let len = usize::from_ne_bytes(len);
        let level = int(bytes.get(L::LENGTH..)?)?;
        let kind = int(bytes.get(L::LENGTH + 4..)?)?;
        let data = bytes.get(header::<L>()..len)?;
        // `len` is at most the buffer's length, so that rounding it up cannot overflow.
        self.0 = bytes.get(align(len, L::ALIGN)..).unwrap_or_default();
        Some((level, kind, data))
    }
}

/// A struct in_pktinfo for the source `from`.
#[allow(dead_code, reason = "FreeBSD has none")]
pub(super) fn pktinfo_v4(from: Ipv4Addr) -> [u8; 12] {
    let mut info = [0; 12];
    info[4..8].copy_from_slice(&from.octets());
    info
}

/// A struct in6_pktinfo for the source `from`.
pub(super) fn pktinfo_v6(from: Ipv6Addr) -> [u8; 20] {
    let mut info = [0; 20];
    info[..16].copy_from_slice(&from.octets());
    info
}

/// What a struct in_pktinfo says. A reply must come from the specific destination. It differs from the address in the
/// header for a broadcast, and is zero if the kernel did not determine it.
#[allow(dead_code, reason = "FreeBSD has none")]
pub(super) fn local_v4(info: &[u8]) -> Option<PacketInfo> {
    let ifindex = u32::from_ne_bytes(*info.first_chunk()?);
    let specific: [u8; 4] = *info.get(4..)?.first_chunk()?;
    let header: [u8; 4] = *info.get(8..)?.first_chunk()?;
    let local = if specific == [0; 4] { header } else { specific };
    Some(PacketInfo { addr: IpAddr::V4(Ipv4Addr::from(local)), ifindex })
}

/// What a struct in6_pktinfo says.
pub(super) fn local_v6(info: &[u8]) -> Option<PacketInfo> {
    let local: [u8; 16] = *info.first_chunk()?;
    let ifindex = u32::from_ne_bytes(*info.get(16..)?.first_chunk()?);
    Some(PacketInfo { addr: IpAddr::V6(Ipv6Addr::from(local)), ifindex })
}

/// The TOS in an entry of one byte.
pub(super) fn tos(data: &[u8]) -> u8 {
    data.first().copied().unwrap_or_default()
}

/// The traffic class in an entry that is an int.
pub(super) fn traffic_class(data: &[u8]) -> u8 {
    int(data).and_then(|class| u8::try_from(class).ok()).unwrap_or_default()
}

pub(super) fn int(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

const fn align(len: usize, to: usize) -> usize {
    (len + to - 1) & !(to - 1)
}

/// Where the data of an entry begins.
const fn header<L: Layout>() -> usize {
    align(L::LENGTH + 8, L::ALIGN)
}

/// What an entry with so much data takes (CMSG_SPACE).
pub(super) const fn space<L: Layout>(data: usize) -> usize {
    header::<L>() + align(data, L::ALIGN)
}

#[cfg(test)]
mod tests {
    use super::super::{freebsd_control, macos_control};
    use super::*;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    type FreeBsd = freebsd_control::Format;
    type MacOs = macos_control::Format;

    proptest! {
        #[test]
        fn no_control_buffer_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            ControlData::read::<Format>(&bytes);
            ControlData::read::<FreeBsd>(&bytes);
            ControlData::read::<MacOs>(&bytes);
        }

        /// Random bytes rarely have a length that passes; these are wrong by little.
        #[test]
        fn wrong_lengths_never_reach_past_the_buffer(
            lens in prop::collection::vec(0usize..80, 1..6),
            cut in 0usize..200,
        ) {
            fn check<L: Layout>(lens: &[usize], cut: usize) {
                let entry = |len: &usize| [&len.to_ne_bytes()[..L::LENGTH], &[0; 20]].concat();
                let mut bytes: Vec<u8> = lens.iter().flat_map(entry).collect();
                bytes.truncate(cut);
                let total: usize = Entries::<L>::of(&bytes).map(|(_, _, data)| header::<L>() + data.len()).sum();
                assert!(total <= bytes.len());
            }
            check::<Format>(&lens, cut);
            check::<FreeBsd>(&lens, cut);
            check::<MacOs>(&lens, cut);
        }

        #[test]
        fn the_source_and_the_traffic_class_read_back(ip: [u8; 16], v4: bool, tos: u8) {
            fn check<L: Layout>(message: &Transmit<'_>) {
                let control = SendControl::laid_out::<L>(message);
                let bytes = &control.bytes[..control.len];
                assert_eq!(Entries::<L>::of(bytes).count(), 1 + usize::from(message.tos != 0));
                let control = ControlData::read::<L>(bytes);
                let from = message.from.map(|addr| PacketInfo { addr, ifindex: 0 });
                // The TOS of IPv4 is received under another number or length than it is sent.
                let tos = if message.to.is_ipv4() { control.tos } else { message.tos };
                assert_eq!(control, ControlData { local: from, tos, segment: None });
            }
            let message = transmit(address(ip, v4), tos);
            check::<Format>(&message);
            check::<FreeBsd>(&message);
            check::<MacOs>(&message);
        }
    }

    #[test]
    fn a_plain_message_has_no_control_entries() {
        let message = Transmit { from: None, ..transmit([127, 0, 0, 1].into(), 0) };
        assert_eq!(SendControl::new(&message).len(), 0);
        assert_eq!(SendControl::laid_out::<FreeBsd>(&message).len(), 0);
        assert_eq!(SendControl::laid_out::<MacOs>(&message).len(), 0);
    }

    #[test]
    fn impossible_lengths_end_the_reading() {
        fn check<L: Layout>() {
            for len in [0, 1, header::<L>() - 1, usize::MAX, usize::MAX - 7, usize::MAX / 2 + 1] {
                let mut bytes = [0xff; 64];
                bytes[..L::LENGTH].copy_from_slice(&len.to_ne_bytes()[..L::LENGTH]);
                assert_eq!(Entries::<L>::of(&bytes).count(), 0, "length {len}");
            }
        }
        check::<Format>();
        check::<FreeBsd>();
        check::<MacOs>();
    }

    #[test]
    fn entries_with_too_little_data_are_ignored() {
        fn check<L: Layout>(number: i32) {
            for level in [libc::IPPROTO_IP, libc::IPPROTO_IPV6] {
                let mut control = SendControl { bytes: [0; SEND_ROOM], len: 0 };
                control.push::<L>(level, number, &[]);
                assert_eq!(ControlData::read::<L>(&control.bytes[..control.len]), ControlData::default());
            }
        }
        for number in 0..128 {
            check::<Format>(number);
            check::<FreeBsd>(number);
            check::<MacOs>(number);
        }
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

    fn sent<L: Layout>(from: &str, to: &str, tos: u8) -> Vec<u8> {
        let message = Transmit { to: to.parse().unwrap(), from: from.parse().ok(), tos, segment: None, contents: &[] };
        let control = SendControl::laid_out::<L>(&message);
        control.bytes[..control.len].to_vec()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_source_and_a_tos_are_laid_out_as_freebsd_reads_them() {
        let v4 = sent::<FreeBsd>("192.0.2.9", "192.0.2.1:1", 0x88);
        let address = u32::from_ne_bytes([192, 0, 2, 9]);
        let tos = u32::from_ne_bytes([0x88, 0, 0, 0]);
        assert_eq!(v4, words(&[20, 0, 7, 0, address, 0, 17, 0, 3, 0, tos, 0]));
        assert_eq!(sent::<FreeBsd>("2001:db8::9", "[2001:db8::1]:1", 0x88).len(), freebsd_control::SEND_ROOM);
    }

    #[test]
    fn where_freebsd_received_a_datagram_is_read_from_two_entries() {
        let link = [0, 0, 7, 0, 0, 0, 0, 0];
        let mut bytes = sent::<FreeBsd>("192.0.2.9", "192.0.2.1:1", 0);
        bytes.extend([words(&[24, 0, 20, 0]), link.to_vec()].concat());
        bytes.extend([words(&[17, 0, 68, 0]), vec![2, 0, 0, 0, 0, 0, 0, 0]].concat());
        let local = Some(PacketInfo { addr: "192.0.2.9".parse().unwrap(), ifindex: 7 });
        assert_eq!(ControlData::read::<FreeBsd>(&bytes), ControlData { local, tos: 2, segment: None });
    }

    #[test]
    fn a_source_and_a_tos_are_laid_out_as_macos_reads_them() {
        let v4 = sent::<MacOs>("192.0.2.9", "192.0.2.1:1", 0x88);
        let address = u32::from_ne_bytes([192, 0, 2, 9]);
        assert_eq!(v4, words(&[24, 0, 26, 0, address, 0, 16, 0, 3, 0x88]));
        assert_eq!(sent::<MacOs>("2001:db8::9", "[2001:db8::1]:1", 0x88).len(), macos_control::SEND_ROOM);
    }

    #[test]
    fn where_macos_received_a_datagram_and_its_tos_are_read() {
        // The specific destination is zero (ip_savecontrol), and the data of one byte is padded to four.
        let address = u32::from_ne_bytes([192, 0, 2, 9]);
        let bytes = words(&[24, 0, 26, 7, 0, address, 13, 0, 27, u32::from_ne_bytes([2, 0, 0, 0])]);
        assert!(bytes.len() <= macos_control::RECV_ROOM);
        let local = Some(PacketInfo { addr: "192.0.2.9".parse().unwrap(), ifindex: 7 });
        assert_eq!(ControlData::read::<MacOs>(&bytes), ControlData { local, tos: 2, segment: None });
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

    fn transmit(from: IpAddr, tos: u8) -> Transmit<'static> {
        let to = SocketAddr::new(from, 1);
        Transmit { to, from: Some(from), tos, segment: None, contents: &[] }
    }
}
