//! Whether the device is under load, and what strangers may cause then (paper section 5.3).
//!
//! Under load an address without a cookie is met once a second. One that was not here a moment ago is
//! let in, as long as there are few of these, so that a new peer need not know of the flood; any other
//! is sent a cookie. The rest of its messages are refused at the [`Gate`], by one bit, before anything
//! is computed: data-path threads ask it, so that a flood does not even reach the slow path.
//!
//! Addresses may be forged, so there are bounds for all of them together, and who knows ours can have
//! an address of a new peer refused for a second. A peer that has its cookie depends on none of this.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::constants::{
    COOKIE_REPLIES_MAX, COOKIE_REPLY_SPACING, NEWCOMERS_MAX, UNDER_LOAD_BACKLOG, UNDER_LOAD_HOLD, WASTED_MAX,
};
use crate::cookie;
use crate::spread::{Seed, network};
use crate::{Boottime, Entropy};

/// Bits of a [`Period`]: 10,000 addresses leave one of 26 others in a place that is taken.
const PLACES: usize = 1 << 18;

/// How long after its beginning a period tells who was here a moment ago.
const REMEMBERED: core::time::Duration = COOKIE_REPLY_SPACING.saturating_mul(3);

/// What refuses handshake messages unseen. Shared with the data path, where every thread may ask.
pub struct Gate {
    /// Until when the device is under load.
    loaded_until: AtomicU64,
    /// How many messages it has refused.
    refused: AtomicU32,
    /// Which of the two periods runs; the other is the one before.
    running: AtomicUsize,
    periods: [Period; 2],
}

/// Which addresses were met since it began. The slow path begins periods while others ask; whoever asks
/// at that moment may be told of a mixture of two, which is worth one message.
struct Period {
    began: AtomicU64,
    /// Another one each time, so that whoever shares a place with an attacker does not for long.
    seed: [AtomicU64; 2],
    met: Box<[AtomicU64]>,
}

/// What becomes of a message without a right cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// It is handled as if there were no load.
    Admit,
    /// It is refused, with a cookie for the next attempt.
    Cookie,
    /// It is refused in silence.
    Refuse,
}

/// The slow path's side of the gate.
#[derive(Default)]
pub(crate) struct Load {
    gate: Arc<Gate>,
    /// Addresses that may yet be let in during the period that runs.
    newcomers: usize,
    /// Addresses that may yet be sent a cookie in it.
    replies: usize,
    /// Since when useless work is counted, and how much there was.
    wasted_since: Boottime,
    wasted: u32,
    /// How many messages the gate had refused at the last sign of load.
    refused: u32,
}

impl Gate {
    /// Whether `message`, an initiation or response from `source`, is refused unseen: the device is under
    /// load, the message has no cookie, and the address was met a moment ago.
    pub fn refuses(&self, now: Boottime, source: IpAddr, message: &[u8]) -> bool {
        if now.0 >= self.loaded_until.load(Ordering::Relaxed) || cookie::has_mac2(message) {
            return false;
        }
        let running = &self.periods[self.running.load(Ordering::Acquire)];
        let refused = running.is_younger(now, COOKIE_REPLY_SPACING) && running.has(source);
        if refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }

    fn is_loaded(&self, now: Boottime) -> bool {
        now.0 < self.loaded_until.load(Ordering::Relaxed)
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            loaded_until: AtomicU64::new(0),
            refused: AtomicU32::new(0),
            running: AtomicUsize::new(0),
            periods: [Period::default(), Period::default()],
        }
    }
}

impl Load {
    /// A device that is not under load, with the gate that data-path threads ask.
    pub(crate) fn behind(gate: Arc<Gate>) -> Self {
        Self { gate, ..Self::default() }
    }

    /// What data-path threads ask.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Whether the device is under load, now that `backlog` messages wait. What the gate refuses does not wait
    /// any more, and is a sign of load all the same.
    pub(crate) fn is_on(&mut self, now: Boottime, backlog: usize) -> bool {
        let refused = self.gate.refused.load(Ordering::Relaxed);
        if backlog >= UNDER_LOAD_BACKLOG || refused.wrapping_sub(self.refused) > WASTED_MAX {
            self.refused = refused;
            self.begin(now);
        }
        self.gate.is_loaded(now)
    }

    /// A message was refused only after an agreement of keys. More than a few of these in a second are a
    /// flood, even one that the slow path could keep up with: it takes the processor from the packets.
    pub(crate) fn note_wasted(&mut self, now: Boottime) {
        if now.since(self.wasted_since) >= UNDER_LOAD_HOLD {
            (self.wasted_since, self.wasted) = (now, 0);
        }
        self.wasted += 1;
        if self.wasted > WASTED_MAX {
            self.begin(now);
        }
    }

    /// Decides about a message from `source` with a right first MAC and without a right cookie.
    pub(crate) fn meet(&mut self, now: Boottime, rng: &mut dyn Entropy, source: IpAddr) -> Meeting {
        if !self.running().is_younger(now, COOKIE_REPLY_SPACING) {
            self.begin_period(now, rng);
        }
        let was_here = self.before().is_younger(now, REMEMBERED) && self.before().has(source);
        if !self.running().add(source) {
            Meeting::Refuse
        } else if !was_here && take(&mut self.newcomers) {
            Meeting::Admit
        } else if take(&mut self.replies) {
            Meeting::Cookie
        } else {
            Meeting::Refuse
        }
    }

    fn begin(&self, now: Boottime) {
        self.gate.loaded_until.store(now.after(UNDER_LOAD_HOLD).0, Ordering::Relaxed);
    }

    fn begin_period(&mut self, now: Boottime, rng: &mut dyn Entropy) {
        self.before().restart(now, Seed::draw(rng));
        // Whoever sees the other period running sees its bits cleared.
        self.gate.running.fetch_xor(1, Ordering::Release);
        (self.newcomers, self.replies) = (NEWCOMERS_MAX, COOKIE_REPLIES_MAX);
    }

    fn running(&self) -> &Period {
        &self.gate.periods[self.gate.running.load(Ordering::Relaxed)]
    }

    fn before(&self) -> &Period {
        &self.gate.periods[self.gate.running.load(Ordering::Relaxed) ^ 1]
    }
}

impl Period {
    fn restart(&self, now: Boottime, seed: Seed) {
        self.met.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.seed.iter().zip(seed.0).for_each(|(half, drawn)| half.store(drawn, Ordering::Relaxed));
        self.began.store(now.0, Ordering::Relaxed);
    }

    /// Whether it began, and less than `age` ago.
    fn is_younger(&self, now: Boottime, age: core::time::Duration) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        began != 0 && now.since(Boottime(began)) < age
    }

    fn has(&self, source: IpAddr) -> bool {
        let (word, bit) = self.place(source);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Adds an address; false if it, or one in its place, was there.
    fn add(&self, source: IpAddr) -> bool {
        let (word, bit) = self.place(source);
        word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    fn place(&self, source: IpAddr) -> (&AtomicU64, u64) {
        let seed = Seed([self.seed[0].load(Ordering::Relaxed), self.seed[1].load(Ordering::Relaxed)]);
        let (v6, address) = network(source);
        let place = seed.spread(v6, address) % PLACES;
        (&self.met[place / 64], 1 << (place % 64))
    }
}

impl Default for Period {
    fn default() -> Self {
        let met = (0..PLACES / 64).map(|_| AtomicU64::new(0)).collect();
        Self { began: AtomicU64::new(0), seed: Default::default(), met }
    }
}

/// Takes one of what is left.
fn take(left: &mut usize) -> bool {
    let some = *left > 0;
    *left -= usize::from(some);
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::INITIATION_LEN;
    use core::net::Ipv4Addr;
    use core::time::Duration;

    /// No two of its bytes in a row are alike, as in a seed that spreads well.
    struct Uneven(u8);

    impl Entropy for Uneven {
        fn fill(&mut self, bytes: &mut [u8]) {
            for byte in bytes {
                self.0 = self.0.wrapping_mul(77).wrapping_add(41);
                *byte = self.0;
            }
        }
    }

    const START: Boottime = Boottime::from_secs(100);
    const MESSAGE: [u8; INITIATION_LEN] = [0; INITIATION_LEN];

    fn v4(address: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(address))
    }

    /// A device under load for the next second, to which nobody is new.
    fn crowded(now: Boottime, rng: &mut Uneven) -> Load {
        let mut load = Load::default();
        assert!(load.is_on(now, UNDER_LOAD_BACKLOG));
        load.meet(now, rng, v4(0xffff_ffff));
        load.newcomers = 0;
        load
    }

    #[test]
    fn load_lasts_for_a_second_after_its_last_sign() {
        let mut load = Load::default();
        assert!(!load.is_on(START, UNDER_LOAD_BACKLOG - 1));
        assert!(load.is_on(START, UNDER_LOAD_BACKLOG));
        assert!(load.is_on(START.after(UNDER_LOAD_HOLD - Duration::from_nanos(1)), 0));
        assert!(!load.is_on(START.after(UNDER_LOAD_HOLD), 0));
    }

    #[test]
    fn useless_work_is_load_once_there_is_more_of_it_in_a_second_than_is_borne() {
        let mut load = Load::default();
        for second in 0..3 {
            let now = START.after(Duration::from_secs(second));
            (0..WASTED_MAX).for_each(|_| load.note_wasted(now));
            assert!(!load.is_on(now, 0));
        }
        load.note_wasted(START.after(Duration::from_millis(2999)));
        assert!(load.is_on(START.after(Duration::from_millis(2999)), 0));
    }

    #[test]
    fn an_address_is_met_once_a_second_and_refused_at_the_gate_between() {
        let rng = &mut Uneven(1);
        let mut load = crowded(START, rng);
        for (ms, met) in [(0, true), (0, false), (999, false), (1000, true), (1001, false), (60_000, true)] {
            let now = START.after(Duration::from_millis(ms));
            assert!(load.is_on(now, UNDER_LOAD_BACKLOG));
            assert_eq!(load.gate().refuses(now, v4(1), &MESSAGE), !met, "at {ms} ms");
            assert_eq!(load.meet(now, rng, v4(1)) != Meeting::Refuse, met, "at {ms} ms");
        }
        let now = START.after(Duration::from_secs(60));
        let mut met = |ip: &str| load.meet(now, rng, ip.parse().unwrap()) != Meeting::Refuse;
        assert!(met("2001:db8::1") && !met("2001:db8:0:0:ffff::") && met("2001:db8:0:1::"));
    }

    #[test]
    fn what_the_gate_refuses_keeps_the_load_on() {
        let rng = &mut Uneven(1);
        let mut load = crowded(START, rng);
        let later = |ms| START.after(Duration::from_millis(ms));
        load.meet(START, rng, v4(1));
        (0..=WASTED_MAX).for_each(|_| assert!(load.gate().refuses(later(500), v4(1), &MESSAGE)));
        assert!(load.is_on(later(600), 0));
        assert!(load.is_on(later(1599), 0), "it lasts from the last sign on");
        assert!(!load.is_on(later(1600), 0));
    }

    #[test]
    fn the_gate_refuses_nobody_with_a_cookie_and_nobody_without_load() {
        let rng = &mut Uneven(1);
        let mut load = crowded(START, rng);
        load.meet(START, rng, v4(1));
        let mut with_cookie = MESSAGE;
        with_cookie[INITIATION_LEN - 1] = 1;
        assert!(load.gate().refuses(START, v4(1), &MESSAGE));
        assert!(!load.gate().refuses(START, v4(1), &with_cookie));
        assert!(!load.gate().refuses(START, v4(2), &MESSAGE));
        assert!(!load.gate().refuses(START.after(UNDER_LOAD_HOLD), v4(1), &MESSAGE));
    }

    #[test]
    fn a_newcomer_is_let_in_beside_ten_thousand_who_flood() {
        let rng = &mut Uneven(1);
        let mut load = Load::default();
        let flood = |load: &mut Load, now, rng: &mut Uneven| {
            (0..10_000).filter(|&i| load.meet(now, rng, v4(i)) == Meeting::Admit).count()
        };
        assert_eq!(flood(&mut load, START, rng), NEWCOMERS_MAX, "at first nobody is known");
        for second in 1..5 {
            let now = START.after(Duration::from_secs(second));
            let admitted = flood(&mut load, now, rng);
            assert!(admitted < NEWCOMERS_MAX, "who floods is known: {admitted}");
            let newcomers = (0..100).map(|i| (1 << 24) + second as u32 * 100 + i);
            let admitted = newcomers.filter(|&ip| load.meet(now, rng, v4(ip)) == Meeting::Admit).count();
            assert!(admitted > 80, "{admitted} of 100");
        }
    }

    #[test]
    fn forged_sources_cause_a_bounded_number_of_agreements_and_cookies() {
        let rng = &mut Uneven(1);
        let mut load = Load::default();
        for second in 0..3 {
            let now = START.after(Duration::from_secs(second));
            let addresses = (0..500_000).map(|i| v4(second as u32 * 500_000 + i));
            let (mut admitted, mut cookies) = (0, 0);
            for address in addresses {
                match load.meet(now, rng, address) {
                    Meeting::Admit => admitted += 1,
                    Meeting::Cookie => cookies += 1,
                    Meeting::Refuse => {}
                }
            }
            assert_eq!((admitted, cookies), (NEWCOMERS_MAX, COOKIE_REPLIES_MAX));
        }
    }
}
