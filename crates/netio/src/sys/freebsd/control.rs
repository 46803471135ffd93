//! Control messages of datagrams, built and read as bytes: source or local address, TOS. Tested on every system, so
//! that its constants are its own; on FreeBSD they are compared with libc's.
//!
//! A control buffer with wrong lengths yields fewer entries, never a panic and never a byte from outside it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::datagram::{PacketInfo, Transmit};

const IPPROTO_IP: i32 = 0;
const IPPROTO_IPV6: i32 = 41;
const IP_TOS: i32 = 3;
/// IP_RECVDSTADDR, and IP_SENDSRCADDR to send: an in_addr.
const IP_ADDRESS: i32 = 7;
/// A sockaddr_dl, whose index is at 2.
const IP_RECVIF: i32 = 20;
/// The TOS of a received datagram has the option's number for its type (sys/netinet/ip_input.c, ip_savecontrol).
const IP_RECVTOS: i32 = 68;
const IPV6_PKTINFO: i32 = 46;
const IPV6_TCLASS: i32 = 61;

/// sizeof(struct cmsghdr): length (u32), level, type; the data begins at the next multiple of 8, and so does the next
/// entry (_ALIGN of amd64 and arm64).
const HEADER: usize = 12;
const DATA: usize = align(HEADER);

#[cfg(target_os = "freebsd")]
const _: () = {
    assert!(libc::IP_TOS == IP_TOS && libc::IP_RECVDSTADDR == IP_ADDRESS && libc::IP_SENDSRCADDR == IP_ADDRESS);
    assert!(libc::IP_RECVIF == IP_RECVIF && libc::IP_RECVTOS == IP_RECVTOS);
    assert!(libc::IPV6_PKTINFO == IPV6_PKTINFO && libc::IPV6_TCLASS == IPV6_TCLASS);
    assert!(libc::IPPROTO_IP == IPPROTO_IP && libc::IPPROTO_IPV6 == IPPROTO_IPV6);
    assert!(std::mem::size_of::<libc::cmsghdr>() == HEADER);
    assert!(std::mem::size_of::<libc::in6_pktinfo>() == 20);
    assert!(std::mem::size_of::<libc::sockaddr_dl>() == SOCKADDR_DL);
};

const SOCKADDR_DL: usize = 54;
/// The most that the kernel writes of an interface: with a long name or link-layer address it is longer than the
/// structure (sys/netinet/ip_input.c, ip_savecontrol, sdlbuf).
const SOCKADDR_DL_MAX: usize = SOCKADDR_DL + 32;
/// The largest set to send: IPv6 source and traffic class.
const SEND_ROOM: usize = space(20) + space(4);
/// The largest set that is received: IPv4 destination, interface and TOS.
const RECV_ROOM: usize = space(4) + space(SOCKADDR_DL_MAX) + space(1);

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
            Some(IpAddr::V4(from)) => control.push(IPPROTO_IP, IP_ADDRESS, &from.octets()),
            Some(IpAddr::V6(from)) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&from.octets());
                control.push(IPPROTO_IPV6, IPV6_PKTINFO, &info);
            }
            None => {}
        }
        match message.tos {
            0 => {}
            // One byte: another length is EINVAL (sys/netinet/udp_usrreq.c, udp_send).
            tos if message.to.is_ipv4() => control.push(IPPROTO_IP, IP_TOS, &[tos]),
            tos => control.push(IPPROTO_IPV6, IPV6_TCLASS, &i32::from(tos).to_ne_bytes()),
        }
        control
    }

    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let entry = &mut self.bytes[self.len..][..space(data.len())];
        // CMSG_LEN: at most DATA + 54.
        entry[..4].copy_from_slice(&((DATA + data.len()) as u32).to_ne_bytes());
        entry[4..8].copy_from_slice(&level.to_ne_bytes());
        entry[8..12].copy_from_slice(&kind.to_ne_bytes());
        entry[DATA..][..data.len()].copy_from_slice(data);
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
    /// Never: there is no GRO.
    pub(in crate::sys) segment: Option<usize>,
}

impl ControlData {
    fn read(buffer: &[u8]) -> Self {
        let (mut control, mut v4, mut v4_interface) = (Self::default(), None, 0);
        for (level, kind, data) in Entries(buffer) {
            match (level, kind) {
                (IPPROTO_IP, IP_ADDRESS) => v4 = data.first_chunk::<4>().map(|&ip| Ipv4Addr::from(ip)),
                (IPPROTO_IP, IP_RECVIF) => {
                    v4_interface =
                        data.get(2..).and_then(|data| data.first_chunk()).map_or(0, |at| u16::from_ne_bytes(*at));
                }
                (IPPROTO_IPV6, IPV6_PKTINFO) => control.local = local_v6(data),
                (IPPROTO_IP, IP_RECVTOS) => control.tos = data.first().copied().unwrap_or_default(),
                (IPPROTO_IPV6, IPV6_TCLASS) => {
                    let class = data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
                    control.tos = class.and_then(|class| u8::try_from(class).ok()).unwrap_or_default();
                }
                _ => {}
            }
        }
        if let Some(addr) = v4 {
            control.local = Some(PacketInfo { addr: addr.into(), ifindex: v4_interface.into() });
        }
        control
    }
}

fn local_v6(info: &[u8]) -> Option<PacketInfo> {
    let local: [u8; 16] = *info.first_chunk()?;
    let ifindex = u32::from_ne_bytes(*info.get(16..)?.first_chunk()?);
    Some(PacketInfo { addr: IpAddr::V6(Ipv6Addr::from(local)), ifindex })
}

/// The entries (level, type, data) of a control buffer, up to the first that does not fit.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        let word = |at: usize| Some(*bytes.get(at..)?.first_chunk::<4>()?);
        let len = usize::try_from(u32::from_ne_bytes(word(0)?)).ok()?;
        let (level, kind) = (i32::from_ne_bytes(word(4)?), i32::from_ne_bytes(word(8)?));
        let data = bytes.get(DATA..len)?;
        // `len` is at most the buffer's length, so that rounding it up cannot overflow.
        self.0 = bytes.get(align(len)..).unwrap_or_default();
        Some((level, kind, data))
    }
}

const fn align(len: usize) -> usize {
    (len + 7) & !7
}

const fn space(data: usize) -> usize {
    DATA + align(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_control_buffer_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            ControlData::read(&bytes);
        }

        #[test]
        fn wrong_lengths_never_reach_past_the_buffer(
            lens in prop::collection::vec(0u32..80, 1..6),
            cut in 0usize..200,
        ) {
            let mut bytes: Vec<u8> = lens.iter().flat_map(|len| [&len.to_ne_bytes()[..], &[0; 20]].concat()).collect();
            bytes.truncate(cut);
            let total: usize = Entries(&bytes).map(|(_, _, data)| DATA + data.len()).sum();
            prop_assert!(total <= bytes.len());
        }
    }

    fn sent(from: Option<&str>, to: &str, tos: u8) -> Vec<u8> {
        let from = from.map(|from| from.parse().unwrap());
        let message = Transmit { to: to.parse().unwrap(), from, tos, segment: None, contents: &[] };
        let control = SendControl::new(&message);
        control.bytes[..control.len].to_vec()
    }

    #[test]
    fn a_source_and_a_tos_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(sent(None, "192.0.2.1:1", 0), []);
        let v4 = sent(Some("192.0.2.9"), "192.0.2.1:1", 0x88);
        let mut expected = [20u32, 0, 7, 0].map(u32::to_ne_bytes).concat();
        expected.extend([192, 0, 2, 9, 0, 0, 0, 0]);
        expected.extend([17u32, 0, 3, 0].map(u32::to_ne_bytes).concat());
        expected.extend([0x88, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(v4, expected);
        assert_eq!(sent(Some("2001:db8::9"), "[2001:db8::1]:1", 0x88).len(), SEND_ROOM);
    }

    #[test]
    fn where_a_datagram_was_received_is_read_from_all_entries() {
        let mut bytes = sent(Some("192.0.2.9"), "192.0.2.1:1", 0);
        let mut link = [0; SOCKADDR_DL_MAX];
        link[2..4].copy_from_slice(&7u16.to_ne_bytes());
        for (kind, data) in [(IP_RECVIF, &link[..]), (IP_RECVTOS, &[0x2])] {
            bytes.extend(((DATA + data.len()) as u32).to_ne_bytes());
            bytes.extend([IPPROTO_IP, kind, 0].map(i32::to_ne_bytes).concat());
            bytes.extend(data);
            bytes.resize(align(bytes.len()), 0);
        }
        assert_eq!(bytes.len(), RECV_ROOM);
        let local = Some(PacketInfo { addr: "192.0.2.9".parse().unwrap(), ifindex: 7 });
        assert_eq!(ControlData::read(&bytes), ControlData { local, tos: 2, segment: None });
        let v6 = ControlData::read(&sent(Some("2001:db8::9"), "[2001:db8::1]:1", 3));
        assert_eq!(v6.local, Some(PacketInfo { addr: "2001:db8::9".parse().unwrap(), ifindex: 0 }));
        assert_eq!(v6.tos, 3);
    }
}
