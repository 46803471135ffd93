//! The handshake's timestamp: TAI64N, whitened (paper section 5.1).
//!
//! A responder accepts only strictly growing stamps, so ours must grow even if the wall clock
//! steps back: [`TimestampGenerator`] remembers the greatest it gave out to anyone, and each peer its own.

use core::time::Duration;

use crate::constants::{TAI64_EPOCH, TIMESTAMP_STEP};

/// A timestamp in wire order: comparing the bytes compares the times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) [u8; 12]);

impl Timestamp {
    fn new(secs: u64, nanos: u32) -> Self {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&TAI64_EPOCH.wrapping_add(secs).to_be_bytes());
        bytes[8..].copy_from_slice(&(nanos & !(TIMESTAMP_STEP - 1)).to_be_bytes());
        Self(bytes)
    }

    /// The next whitened stamp.
    fn successor(self) -> Self {
        let label = u64::from_be_bytes(self.0[..8].try_into().expect("eight bytes were cut"));
        let nanos = u32::from_be_bytes(self.0[8..].try_into().expect("four bytes were cut"));
        let secs = label.wrapping_sub(TAI64_EPOCH);
        let next = nanos.saturating_add(TIMESTAMP_STEP);
        if next < 1_000_000_000 { Self::new(secs, next) } else { Self::new(secs.wrapping_add(1), 0) }
    }
}

/// Gives out timestamps that never fall back.
///
/// Strictness is per peer, because only a peer compares: making every stamp of the device greater
/// than all others would let 10,000 peers that start together run minutes ahead of the clock.
#[derive(Default)]
pub(crate) struct TimestampGenerator {
    greatest: Timestamp,
}

impl TimestampGenerator {
    /// A stamp for a peer whose latest one was `last` (the default if none): strictly greater
    /// than that, and not below any given out before.
    pub(crate) fn issue(&mut self, wall: Duration, last: Timestamp) -> Timestamp {
        let mut stamp = Timestamp::new(wall.as_secs(), wall.subsec_nanos()).max(self.greatest);
        if stamp <= last {
            stamp = last.successor();
        }
        self.greatest = stamp.max(self.greatest);
        stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_epoch_has_the_label_of_1970_with_ten_leap_seconds() {
        let stamp = TimestampGenerator::default().issue(Duration::new(1, 0x0234_5678), Timestamp::default());
        assert_eq!(stamp.0, [0x40, 0, 0, 0, 0, 0, 0, 0x0b, 0x02, 0, 0, 0]);
    }

    #[test]
    fn a_clock_that_steps_back_does_not_take_the_stamps_along() {
        let mut stamps = TimestampGenerator::default();
        let first = stamps.issue(Duration::from_secs(1_700_000_000), Timestamp::default());
        let second = stamps.issue(Duration::from_secs(5), first);
        let stranger = stamps.issue(Duration::from_secs(5), Timestamp::default());
        assert!(second > first);
        assert_eq!(stranger, second);
    }

    proptest! {
        #[test]
        fn stamps_of_a_peer_grow_whatever_the_clock_does(walls in proptest::collection::vec((0u64..1 << 40, 0u32..1_000_000_000), 1..50)) {
            let mut stamps = TimestampGenerator::default();
            let mut last = Timestamp::default();
            for (secs, nanos) in walls {
                let stamp = stamps.issue(Duration::new(secs, nanos), last);
                prop_assert!(stamp > last);
                prop_assert_eq!(&stamp.0[9..], &[0; 3]);
                last = stamp;
            }
        }
    }
}
