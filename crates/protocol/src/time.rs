//! The two clocks, whose values the caller passes in.
//!
//! Ages and timers use the boot clock, which keeps running during suspend; only the handshake's timestamp
//! and the time of the latest handshake use the wall clock.

use core::time::Duration;

/// A time of the boot clock (`CLOCK_BOOTTIME`), in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boottime(pub u64);

impl Boottime {
    /// The greatest time: no timer is armed for it.
    pub const NEVER: Self = Self(u64::MAX);

    /// `secs` seconds after boot.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// The time `delay` later; saturates at [`Boottime::NEVER`].
    #[must_use]
    pub const fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(nanos(delay)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

const fn nanos(delay: Duration) -> u64 {
    let nanos = delay.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// The time at which a call happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The boot clock.
    pub boot: Boottime,
    /// The wall clock: time since the UNIX epoch.
    pub wall: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Boottime(5).since(Boottime(9)), Duration::ZERO);
        assert_eq!(Boottime(9).since(Boottime(5)), Duration::from_nanos(4));
        assert_eq!(Boottime(u64::MAX - 1).after(Duration::from_secs(1)), Boottime::NEVER);
        assert_eq!(Boottime(0).after(Duration::MAX), Boottime::NEVER);
        assert_eq!(Boottime::from_secs(u64::MAX), Boottime::NEVER);
    }
}
