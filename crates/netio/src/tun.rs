//! The TUN device, which reads and writes inner packets.
//!
//! Every packet, in both directions, follows a virtio header of [`HEADER`] bytes (`struct virtio_net_hdr`), which
//! says how to split a GSO packet and which checksum is missing. If the device has no such header, a zeroed one is
//! added or removed here, so that the engine sees one format. Nothing here looks into packets; `packet` does.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

pub use crate::system::tun::TunDevice;

/// The length in bytes of the virtio header before each packet.
pub const HEADER: usize = 10;

/// The most slices that one packet may be written from.
pub const PIECES_MAX: usize = 128;

/// The most queues of a device: one for every two of 32 workers.
pub const QUEUES_MAX: usize = 16;

/// Reads and writes inner packets, over one or more independent queues.
pub trait Tun: Send + Sync {
    /// How many queues there are, at least one; they are numbered from 0.
    fn queues(&self) -> usize;

    /// Reads one packet or GSO packet with its virtio header from a queue; returns the length
    /// of both. WouldBlock when there is none.
    fn read(&self, queue: usize, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes one packet or GRO packet from slices, the first of which starts with its virtio header; returns the
    /// total length. One queue keeps order, and the other direction of a flow is read from the queue that it was last
    /// written to (drivers/net/tun.c, tun_flow_update).
    fn write(&self, queue: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// The offloads of the device.
    fn offloads(&self) -> TunOffloads;
}

/// A device that a thread can wait for.
pub trait WaitableTun: Tun {
    /// The descriptor to wait for: readable when the queue may have a packet.
    fn queue_fd(&self, queue: usize) -> BorrowedFd<'_>;
}

/// The offloads of a TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunOffloads {
    /// Packets have a virtio header. Without it, only single packets with complete checksums may be written.
    pub vnet_hdr: bool,
    /// TCP GSO packets may be read.
    pub tso: bool,
    /// UDP GSO packets may be read (Linux 6.2).
    pub uso: bool,
}

impl TunOffloads {
    /// All offloads.
    pub const ALL: Self = Self { vnet_hdr: true, tso: true, uso: true };
}

/// Why there is no TUN device, in one sentence with what to do.
#[derive(Debug)]
pub enum TunError {
    /// It cannot be had as it was asked for: the sentence, and its kind as an error.
    Refused(io::ErrorKind, String),
    /// This step failed for an unexpected reason.
    Failed(&'static str, io::Error),
}

impl fmt::Display for TunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_, sentence) => f.write_str(sentence),
            Self::Failed(step, error) => write!(f, "the TUN device failed at {step}: {error}"),
        }
    }
}

impl std::error::Error for TunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(..) => None,
            Self::Failed(_, error) => Some(error),
        }
    }
}

impl From<TunError> for io::Error {
    fn from(refusal: TunError) -> Self {
        let kind = match &refusal {
            TunError::Refused(kind, _) => *kind,
            TunError::Failed(_, error) => error.kind(),
        };
        Self::new(kind, refusal)
    }
}

/// The pieces without the virtio header that they begin with.
pub(crate) fn without_header<'s, 'p>(
    pieces: &[IoSlice<'p>],
    stripped: &'s mut [IoSlice<'p>; PIECES_MAX],
) -> io::Result<&'s [IoSlice<'p>]> {
    let unfit = || io::Error::from(io::ErrorKind::InvalidInput);
    let stripped = stripped.get_mut(..pieces.len()).ok_or_else(unfit)?;
    stripped.copy_from_slice(pieces);
    let first = stripped.first_mut().ok_or_else(unfit)?;
    let header = first.first_chunk::<HEADER>().ok_or_else(unfit)?;
    // The first two bytes are the flags and the segmentation type: pending checksum or segmentation work, which a
    // device without the header cannot do.
    if header[..2] != [0, 0] {
        return Err(unfit());
    }
    first.advance(HEADER);
    Ok(stripped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn taking_the_header_off_leaves_the_packet(
            packet in prop::collection::vec(any::<u8>(), 0..100),
            cuts in prop::collection::vec(0usize..100, 0..5),
        ) {
            let bytes = [vec![0; HEADER], packet.clone()].concat();
            let mut cuts: Vec<usize> =
                cuts.into_iter().map(|cut| HEADER + cut.min(packet.len())).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([bytes.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let pieces: Vec<IoSlice<'_>> =
                starts.zip(ends).map(|(start, end)| IoSlice::new(&bytes[start..end])).collect();
            let mut stripped = [IoSlice::new(&[]); PIECES_MAX];
            let left = without_header(&pieces, &mut stripped).unwrap();
            let left: Vec<u8> = left.iter().flat_map(|piece| piece.to_vec()).collect();
            prop_assert_eq!(left, packet);
        }
    }

    #[test]
    fn a_refusal_is_one_sentence_and_keeps_its_kind_as_an_error() {
        let refused = TunError::Refused(io::ErrorKind::ResourceBusy, "interface wg0 is in use".to_owned());
        let failed = TunError::Failed("open", io::ErrorKind::OutOfMemory.into());
        for (error, kind, begins) in [
            (refused, io::ErrorKind::ResourceBusy, "interface wg0 is in use"),
            (failed, io::ErrorKind::OutOfMemory, "the TUN device failed at open: "),
        ] {
            let error = io::Error::from(error);
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().starts_with(begins), "{error}");
        }
    }

    #[test]
    fn a_device_without_the_header_refuses_what_it_cannot_carry() {
        let mut stripped = [IoSlice::new(&[]); PIECES_MAX];
        let refused = |pieces: &[IoSlice<'_>]| {
            let mut stripped = [IoSlice::new(&[]); PIECES_MAX];
            without_header(pieces, &mut stripped).is_err()
        };
        assert!(refused(&[]));
        assert!(refused(&[IoSlice::new(&[0; HEADER - 1])]));
        assert!(refused(&[IoSlice::new(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0])]));
        assert!(refused(&[IoSlice::new(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0])]));
        let many = [IoSlice::new(&[0; HEADER]); PIECES_MAX + 1];
        assert!(refused(&many));
        assert!(without_header(&many[1..], &mut stripped).is_ok());
    }
}
