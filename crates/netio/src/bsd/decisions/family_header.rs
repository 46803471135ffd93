//! The four bytes before each packet of tun(4) with TUNSIFHEAD, and of utun: its address family in network order
//! (sys/net/if_tuntap.c, tunread and tunwrite_l3; XNU: bsd/net/if_utun.c, utun_output and utun_ctl_send).

use std::io::{self, IoSlice};

use crate::tun::{HEADER, PIECES_MAX, without_header};

const LEN: usize = 4;

const INET: i32 = 2;

/// Reads a packet behind a virtio header of zeros, by one call of `read`; returns the length of both.
pub(crate) fn read(buf: &mut [u8], read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
    // The family lies in the last bytes of the virtio header, where it is overwritten: no copy.
    const BEFORE: usize = HEADER - LEN;
    let room = buf.get_mut(BEFORE..).ok_or(io::ErrorKind::InvalidInput)?;
    let len = match read(room) {
        // The interface is not up yet.
        Err(error) if error.raw_os_error() == Some(libc::EHOSTDOWN) => return Err(io::ErrorKind::WouldBlock.into()),
        read => BEFORE + read?,
    };
    if len < HEADER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    buf[..HEADER].fill(0);
    Ok(len)
}

/// Writes a packet from pieces, which begin with a virtio header, by one call of `write`; returns the length of both.
/// `inet6` is the system's number of IPv6.
pub(crate) fn write(
    pieces: &[IoSlice<'_>],
    inet6: i32,
    write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut stripped = [IoSlice::new(&[]); PIECES_MAX];
    let packet = without_header(pieces, &mut stripped)?;
    let family = of(packet, inet6).ok_or(io::ErrorKind::InvalidInput)?;
    let mut all = [IoSlice::new(&family); PIECES_MAX + 1];
    all[1..=packet.len()].copy_from_slice(packet);
    // 0 while the interface is not up, which drops it (tunwrite): all of it was taken.
    write(&all[..=packet.len()])?;
    Ok(pieces.iter().map(|piece| piece.len()).sum())
}

/// The header for a packet in pieces, by its IP version; `None` if it has none.
fn of(packet: &[IoSlice<'_>], inet6: i32) -> Option<[u8; LEN]> {
    let first = packet.iter().find_map(|piece| piece.first())?;
    match first >> 4 {
        4 => Some(INET.to_be_bytes()),
        6 => Some(inet6.to_be_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_is_that_of_the_version_in_the_first_byte_that_there_is() {
        let of = |packet: &[&[u8]]| of(&packet.iter().map(|piece| IoSlice::new(piece)).collect::<Vec<_>>(), 28);
        assert_eq!(of(&[&[0x45, 0], &[0x60]]), Some([0, 0, 0, 2]));
        assert_eq!(of(&[&[], &[0x60]]), Some([0, 0, 0, 28]));
        assert_eq!(of(&[&[0x50]]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn the_family_of_a_packet_that_was_read_becomes_a_header_of_zeros() {
        let mut buf = [0xff; 64];
        let len = read(&mut buf, |room| {
            assert_eq!(room.len(), 64 - HEADER + LEN);
            room[..5].copy_from_slice(&[0, 0, 0, 28, 0x60]);
            Ok(5)
        });
        assert_eq!(len.unwrap(), HEADER + 1);
        assert_eq!(buf[..=HEADER + 1], [&[0; HEADER][..], &[0x60, 0xff]].concat());
    }

    #[test]
    fn nothing_to_read_is_not_an_end() {
        let read = |answer: io::Result<usize>| read(&mut [0; 64], |_| answer).unwrap_err().kind();
        // The interface is down, or its queue is empty.
        assert_eq!(read(Err(io::Error::from_raw_os_error(libc::EHOSTDOWN))), io::ErrorKind::WouldBlock);
        assert_eq!(read(Err(io::ErrorKind::WouldBlock.into())), io::ErrorKind::WouldBlock);
        assert_eq!(read(Ok(LEN - 1)), io::ErrorKind::InvalidData);
        assert_eq!(super::read(&mut [0; 3], |_| unreachable!()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_packet_is_written_at_once_behind_its_family() {
        let written = |pieces: &[&[u8]], answer| {
            let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut bytes = Vec::new();
            let result = write(&pieces, 30, |all| {
                all.iter().for_each(|piece| bytes.extend_from_slice(piece));
                answer
            });
            (result.map_err(|error| error.kind()), bytes)
        };
        let header = [0; HEADER];
        let pieces: [&[u8]; 3] = [&[&header[..], &[0x45]].concat(), &[1, 2], &[3]];
        let bytes = vec![0, 0, 0, 2, 0x45, 1, 2, 3];
        assert_eq!(written(&pieces, Ok(8)), (Ok(HEADER + 4), bytes.clone()));
        assert_eq!(written(&[&header, &[0x60]], Ok(5)), (Ok(HEADER + 1), vec![0, 0, 0, 30, 0x60]));
        assert_eq!(written(&pieces, Ok(0)), (Ok(HEADER + 4), bytes), "the interface is down");
        let unfit = (Err(io::ErrorKind::InvalidInput), Vec::new());
        assert_eq!(written(&[&header, &[0x15]], Ok(5)), unfit, "no IP packet");
        assert_eq!(written(&[&header], Ok(4)), unfit);
    }
}
