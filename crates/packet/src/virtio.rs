//! `struct virtio_net_hdr` (`linux/virtio_net.h`): the ten bytes before every packet of a TUN device with
//! `IFF_VNET_HDR`, in the machine's byte order, as we never set `TUNSETVNETLE` or `TUNSETVNETBE`.
//!
//! Only decodes and encodes; [`crate::gso`] checks the header against its packet.

use crate::Malformed;

/// Bytes of the header.
pub const LEN: usize = 10;

/// Flag: the checksum field holds the pseudo-header sum; the rest still has to be summed.
pub const NEEDS_CSUM: u8 = 1;
/// Flag: the kernel has verified the checksum.
pub const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// How a GSO packet is to be split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gso {
    /// Not a GSO packet.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either, every datagram with its own header (not the fragmenting UFO).
    UdpL4,
}

/// The header, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// [`NEEDS_CSUM`], [`DATA_VALID`], and unknown bits, which are kept.
    pub flags: u8,
    /// How to split the packet.
    pub gso: Gso,
    /// The TCP header has CWR set, which belongs to the first segment only.
    pub ecn: bool,
    /// Bytes of all headers as the kernel estimates them: a hint, not to be trusted.
    pub hdr_len: u16,
    /// Payload bytes of each segment but the last.
    pub gso_size: u16,
    /// The offset at which summing starts: that of the transport header.
    pub csum_start: u16,
    /// The offset of the checksum from `csum_start`.
    pub csum_offset: u16,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// [`Malformed::Offload`] for an unknown GSO type; the caller drops the packet and continues.
    pub const fn decode(bytes: &[u8; LEN]) -> Result<Header, Malformed> {
        let gso = match bytes[1] & !GSO_ECN {
            GSO_NONE => Gso::None,
            GSO_TCPV4 => Gso::TcpV4,
            GSO_TCPV6 => Gso::TcpV6,
            GSO_UDP_L4 => Gso::UdpL4,
            _ => return Err(Malformed::Offload),
        };
        Ok(Header {
            flags: bytes[0],
            gso,
            ecn: bytes[1] & GSO_ECN != 0,
            hdr_len: u16::from_ne_bytes([bytes[2], bytes[3]]),
            gso_size: u16::from_ne_bytes([bytes[4], bytes[5]]),
            csum_start: u16::from_ne_bytes([bytes[6], bytes[7]]),
            csum_offset: u16::from_ne_bytes([bytes[8], bytes[9]]),
        })
    }

    /// Writes the header.
    pub const fn encode(&self) -> [u8; LEN] {
        let gso = match self.gso {
            Gso::None => GSO_NONE,
            Gso::TcpV4 => GSO_TCPV4,
            Gso::TcpV6 => GSO_TCPV6,
            Gso::UdpL4 => GSO_UDP_L4,
        };
        let ecn = if self.ecn { GSO_ECN } else { 0 };
        let hdr_len = self.hdr_len.to_ne_bytes();
        let gso_size = self.gso_size.to_ne_bytes();
        let csum_start = self.csum_start.to_ne_bytes();
        let csum_offset = self.csum_offset.to_ne_bytes();
        [
            self.flags,
            gso | ecn,
            hdr_len[0],
            hdr_len[1],
            gso_size[0],
            gso_size[1],
            csum_start[0],
            csum_start[1],
            csum_offset[0],
            csum_offset[1],
        ]
    }

    /// Whether the transport checksum still has to be completed.
    #[inline]
    pub const fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_struct_virtio_net_hdr() {
        // struct virtio_net_hdr { u8 flags, gso_type; u16 hdr_len, gso_size, csum_start, csum_offset; }
        #[repr(C)]
        struct VirtioNetHdr {
            flags: u8,
            gso_type: u8,
            hdr_len: u16,
            gso_size: u16,
            csum_start: u16,
            csum_offset: u16,
        }
        assert_eq!(size_of::<VirtioNetHdr>(), LEN);
        let header = Header {
            flags: NEEDS_CSUM,
            gso: Gso::TcpV6,
            ecn: true,
            hdr_len: 0x0102,
            gso_size: 0x0304,
            csum_start: 0x0506,
            csum_offset: 0x0708,
        };
        let bytes = header.encode();
        let at = |offset: usize| u16::from_ne_bytes([bytes[offset], bytes[offset + 1]]);
        assert_eq!(bytes[core::mem::offset_of!(VirtioNetHdr, flags)], 1);
        assert_eq!(bytes[core::mem::offset_of!(VirtioNetHdr, gso_type)], 0x84);
        assert_eq!(at(core::mem::offset_of!(VirtioNetHdr, hdr_len)), 0x0102);
        assert_eq!(at(core::mem::offset_of!(VirtioNetHdr, gso_size)), 0x0304);
        assert_eq!(at(core::mem::offset_of!(VirtioNetHdr, csum_start)), 0x0506);
        assert_eq!(at(core::mem::offset_of!(VirtioNetHdr, csum_offset)), 0x0708);
    }

    #[test]
    fn every_byte_pattern_round_trips_or_is_refused() {
        for gso_type in 0..=u8::MAX {
            let bytes = [0xff, gso_type, 1, 2, 3, 4, 5, 6, 7, 8];
            match Header::decode(&bytes) {
                Ok(header) => assert_eq!(header.encode(), bytes),
                Err(reason) => {
                    assert_eq!(reason, Malformed::Offload);
                    assert!(!matches!(gso_type & 0x7f, 0 | 1 | 4 | 5));
                }
            }
        }
    }
}
