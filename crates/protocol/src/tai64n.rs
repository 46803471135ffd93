//! The handshake's timestamp: TAI64N, whitened (paper section 5.1).
//!
//! A responder accepts only strictly increasing timestamps, so ours must increase even if the wall clock
//! steps back: [`TimestampGenerator`] remembers the greatest it issued, and each peer its own latest.

use core::time::Duration;

use crate::constants::{TAI64_EPOCH, TIMESTAMP_STEP};

/// A timestamp in wire order: comparing the bytes compares the times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) [u8; 12]);

impl Timestamp {
    /// The whitened time of the wall clock.
    #[cfg(feature = "fleet")]
    pub(crate) fn at(wall: Duration) -> Self {
        Self::new(wall.as_secs(), wall.subsec_nanos())
    }

    fn new(secs: u64, nanos: u32) -> Self {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&TAI64_EPOCH.wrapping_add(secs).to_be_bytes());
        bytes[8..].copy_from_slice(&(nanos & !(TIMESTAMP_STEP - 1)).to_be_bytes());
        Self(bytes)
    }

    /// The next whitened timestamp.
    fn successor(self) -> Self {
        let label = u64::from_be_bytes(self.0[..8].try_into().expect("eight bytes were cut"));
        let nanos = u32::from_be_bytes(self.0[8..].try_into().expect("four bytes were cut"));
        let secs = label.wrapping_sub(TAI64_EPOCH);
        let next = nanos.saturating_add(TIMESTAMP_STEP);
        if next < 1_000_000_000 { Self::new(secs, next) } else { Self::new(secs.wrapping_add(1), 0) }
    }
}

/// Issues timestamps that never go back.
///
/// They increase strictly per peer only, because a peer compares its own: if every timestamp of the device were greater
/// than all others, 10,000 peers that start together would run minutes ahead of the clock.
#[derive(Default)]
pub(crate) struct TimestampGenerator {
    greatest: Timestamp,
}

impl TimestampGenerator {
    /// Issues a timestamp to a peer whose latest was `last` (the default if none): greater than that, and not
    /// below any issued before.
    pub(crate) fn issue(&mut self, wall: Duration, last: Timestamp) -> Timestamp {
        let mut timestamp = Timestamp::new(wall.as_secs(), wall.subsec_nanos()).max(self.greatest);
        if timestamp <= last {
            timestamp = last.successor();
        }
        self.greatest = timestamp.max(self.greatest);
        timestamp
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
    fn timestamps_do_not_go_back_with_the_clock() {
        let mut generator = TimestampGenerator::default();
        let first = generator.issue(Duration::from_secs(1_700_000_000), Timestamp::default());
        let second = generator.issue(Duration::from_secs(5), first);
        let other_peer = generator.issue(Duration::from_secs(5), Timestamp::default());
        assert!(second > first);
        assert_eq!(other_peer, second);
    }

    proptest! {
        #[test]
        fn timestamps_of_a_peer_increase_whatever_the_clock_does(walls in proptest::collection::vec((0u64..1 << 40, 0u32..1_000_000_000), 1..50)) {
            let mut generator = TimestampGenerator::default();
            let mut last = Timestamp::default();
            for (secs, nanos) in walls {
                let timestamp = generator.issue(Duration::new(secs, nanos), last);
                prop_assert!(timestamp > last);
                prop_assert_eq!(&timestamp.0[9..], &[0; 3]);
                last = timestamp;
            }
        }
    }
}
