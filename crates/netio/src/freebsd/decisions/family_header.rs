//! The four bytes before each packet of tun(4) with TUNSIFHEAD: its address family in network order
//! (sys/net/if_tuntap.c, tunread and tunwrite_l3).

use std::io::IoSlice;

/// Its length in bytes.
pub(crate) const LEN: usize = 4;

const INET: [u8; LEN] = 2u32.to_be_bytes();
const INET6: [u8; LEN] = 28u32.to_be_bytes();

/// The header for a packet in pieces, by its IP version; `None` if it has none.
pub(crate) fn of(packet: &[IoSlice<'_>]) -> Option<[u8; LEN]> {
    let first = packet.iter().find_map(|piece| piece.first())?;
    match first >> 4 {
        4 => Some(INET),
        6 => Some(INET6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_is_that_of_the_version_in_the_first_byte_that_there_is() {
        assert_eq!(of(&[IoSlice::new(&[0x45, 0]), IoSlice::new(&[0x60])]), Some([0, 0, 0, 2]));
        assert_eq!(of(&[IoSlice::new(&[]), IoSlice::new(&[0x60])]), Some([0, 0, 0, 28]));
        assert_eq!(of(&[IoSlice::new(&[0x50])]), None);
        assert_eq!(of(&[]), None);
    }
}
