//! Which source addresses have sent handshake messages under load, in the running second and in the one before.
//!
//! A Bloom filter with one hash: one bit per address, in a table of fixed size. Data-path threads test it for every
//! initiation, so everything is atomic; the slow path adds addresses and rotates the periods. A test that races a
//! rotation may see a mixture of two periods; at worst, one message is misclassified.

use alloc::boxed::Box;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use crate::Boottime;
use crate::constants::{LOAD_PERIOD, UNDER_LOAD_HOLD};
use crate::keyed_hash::{HashKey, source_prefix};

/// Bits of one set: with 10,000 addresses in it, one in 26 others is a false positive.
const BITS: usize = 1 << 18;

/// How long after its start a period still shows which addresses were seen recently.
const MEMORY_TIME: Duration = LOAD_PERIOD.saturating_mul(3);

/// Repeated messages admitted per period before any is refused. The owner of an address that an attacker forges 10,000
/// times a second gets a cookie at four of five attempts, and makes a dozen attempts before its session ends.
pub(crate) const FREE_QUOTA: u32 = 8192;

/// After the quota, one repeated message in this many is admitted: with the quota, 10,000 of 200,000 a second. Each
/// admitted message costs a cookie reply.
pub(crate) const SAMPLE_RATE: u32 = 128;

/// The addresses seen under load, and until when the device is under load.
pub(crate) struct SourceBloom {
    loaded_until: AtomicU64,
    /// Messages refused so far.
    refused: AtomicU32,
    /// Index of the running period; the other one is the previous.
    running: AtomicUsize,
    periods: [Period; 2],
}

/// What was seen since the period began.
pub(crate) struct Period {
    /// Zero: never.
    began: AtomicU64,
    /// Messages from addresses seen before.
    repeated: AtomicU32,
    /// Drawn anew for each period, so that an address that collides with an attacker's does not stay so.
    key: [AtomicU64; 2],
    seen: Box<[AtomicU64]>,
    /// Addresses with a valid cookie that exceeded their handshake rate.
    rate_exceeded: Box<[AtomicU64]>,
}

/// For data-path threads.
impl SourceBloom {
    /// Whether the device is under load and has seen `source` in the running period.
    pub(crate) fn contains(&self, now: Boottime, source: IpAddr) -> bool {
        let running = self.acquire_running();
        self.is_loaded(now) && running.is_younger(now, LOAD_PERIOD) && running.has(&running.seen, source)
    }

    /// Whether to refuse a repeated message, one without a cookie from an address that the bloom
    /// [contains](Self::contains): all but the free quota and one in [`SAMPLE_RATE`].
    pub(crate) fn refuses_repeat(&self) -> bool {
        self.count_refused(self.acquire_running().refuses_repeat())
    }

    /// Whether to refuse every message from `source`: the device is under load, and the address exceeded its rate in
    /// this period, with a valid cookie. A replayed message must not fill the slow path's backlog.
    pub(crate) fn refuses_rate_exceeded(&self, now: Boottime, source: IpAddr) -> bool {
        let running = self.acquire_running();
        let exceeded =
            self.is_loaded(now) && running.is_younger(now, LOAD_PERIOD) && running.has(&running.rate_exceeded, source);
        self.count_refused(exceeded)
    }

    fn acquire_running(&self) -> &Period {
        &self.periods[self.running.load(Ordering::Acquire)]
    }

    fn count_refused(&self, refused: bool) -> bool {
        if refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }
}

/// For the slow path, the only writer.
impl SourceBloom {
    pub(crate) fn is_loaded(&self, now: Boottime) -> bool {
        now.0 < self.loaded_until.load(Ordering::Relaxed)
    }

    /// The device is under load from `now` on, for [`UNDER_LOAD_HOLD`].
    pub(crate) fn set_loaded(&self, now: Boottime) {
        self.loaded_until.store(now.after(UNDER_LOAD_HOLD).0, Ordering::Relaxed);
    }

    /// Messages refused so far; wraps.
    pub(crate) fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn running(&self) -> &Period {
        &self.periods[self.running.load(Ordering::Relaxed)]
    }

    /// Whether `source` was seen in the previous period, and that is recent.
    pub(crate) fn was_seen_before(&self, now: Boottime, source: IpAddr) -> bool {
        let previous = self.previous();
        previous.is_younger(now, MEMORY_TIME) && previous.has(&previous.seen, source)
    }

    /// Starts the next period.
    pub(crate) fn rotate(&self, now: Boottime, key: HashKey) {
        self.previous().restart(now, key);
        // Release: a thread that sees the new period running also sees its bits cleared.
        self.running.fetch_xor(1, Ordering::Release);
    }

    fn previous(&self) -> &Period {
        &self.periods[self.running.load(Ordering::Relaxed) ^ 1]
    }
}

impl Period {
    /// Whether it began less than [`LOAD_PERIOD`] ago.
    pub(crate) fn is_running(&self, now: Boottime) -> bool {
        self.is_younger(now, LOAD_PERIOD)
    }

    /// Adds an address to the seen ones; false if it, or one with the same bit, was there.
    pub(crate) fn add_seen(&self, source: IpAddr) -> bool {
        self.add(&self.seen, source)
    }

    /// Adds an address to those that exceeded their rate.
    pub(crate) fn add_rate_exceeded(&self, source: IpAddr) {
        self.add(&self.rate_exceeded, source);
    }

    /// Counts a repeated message; true if it is refused.
    pub(crate) fn refuses_repeat(&self) -> bool {
        let repeated = self.repeated.fetch_add(1, Ordering::Relaxed);
        repeated >= FREE_QUOTA && !repeated.is_multiple_of(SAMPLE_RATE)
    }

    fn restart(&self, now: Boottime, key: HashKey) {
        self.seen.iter().chain(&self.rate_exceeded).for_each(|word| word.store(0, Ordering::Relaxed));
        self.key.iter().zip(key.0).for_each(|(half, drawn)| half.store(drawn, Ordering::Relaxed));
        self.repeated.store(0, Ordering::Relaxed);
        self.began.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Whether it began, and less than `age` ago.
    fn is_younger(&self, now: Boottime, age: Duration) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        began != 0 && now.since(Boottime(began)) < age
    }

    fn has(&self, bits: &[AtomicU64], source: IpAddr) -> bool {
        let (word, bit) = self.position(source);
        bits[word].load(Ordering::Relaxed) & bit != 0
    }

    fn add(&self, bits: &[AtomicU64], source: IpAddr) -> bool {
        let (word, bit) = self.position(source);
        bits[word].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The word of an address, and its bit in the word.
    fn position(&self, source: IpAddr) -> (usize, u64) {
        let key = HashKey([self.key[0].load(Ordering::Relaxed), self.key[1].load(Ordering::Relaxed)]);
        let (v6, address) = source_prefix(source);
        let position = key.hash(v6, address) % BITS;
        (position / 64, 1 << (position % 64))
    }
}

impl Default for SourceBloom {
    fn default() -> Self {
        Self {
            loaded_until: AtomicU64::new(0),
            refused: AtomicU32::new(0),
            running: AtomicUsize::new(0),
            periods: [Period::default(), Period::default()],
        }
    }
}

impl Default for Period {
    fn default() -> Self {
        let bits = || (0..BITS / 64).map(|_| AtomicU64::new(0)).collect();
        Self {
            began: AtomicU64::new(0),
            repeated: AtomicU32::new(0),
            key: Default::default(),
            seen: bits(),
            rate_exceeded: bits(),
        }
    }
}

#[cfg(test)]
impl Period {
    pub(crate) fn has_seen(&self, source: IpAddr) -> bool {
        self.has(&self.seen, source)
    }
}
