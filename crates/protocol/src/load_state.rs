//! Whether the device is under load, and what strangers may cause then (paper section 5.3).
//!
//! Under load, an address that was not here a moment ago is let in without a cookie, as long as there are few
//! of these, so that a new peer need not know of the flood; any other is sent a cookie. Of the messages of an
//! address that was met in the same second most are refused at the [`HandshakeFilter`], by one bit of the [`SourceBloom`], before
//! anything is computed: data-path threads ask it, so that a flood does not even reach the slow path. Some pass,
//! because an address may be forged by somebody else than who has it, and that one has to get its cookie.
//!
//! For the same reason there are bounds for all addresses together.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::constants::{
    COOKIE_REPLIES_MAX, LOAD_PERIOD, NEWCOMERS_MAX, UNDER_LOAD_BACKLOG, UNDER_LOAD_HOLD, WASTED_MAX,
};
use crate::handshake_filter::HandshakeFilter;
use crate::keyed_hash::{HashKey, network};
use crate::{Boottime, Entropy};

/// Bits of a [`Period`]: 10,000 addresses leave one of 26 others in a place that is taken.
const PLACES: usize = 1 << 18;

/// How long after its beginning a period tells who was here a moment ago.
const REMEMBERED: core::time::Duration = LOAD_PERIOD.saturating_mul(3);

/// Messages of addresses that were met that pass in a period before any is refused: the owner of an address that somebody
/// else forges 10,000 times a second gets his cookie at four of five attempts, and has a dozen before his session ends.
const SPARED: u32 = 8192;

/// After that, one in so many passes. With what is spared it is 10,000 of 200,000 a second: what passes costs a cookie.
const SHARE: u32 = 128;

/// The addresses that were met under load. Shared with the data path, where every thread may ask.
pub(crate) struct SourceBloom {
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
    /// Messages from addresses that had been met.
    repeated: AtomicU32,
    /// Another one each time, so that whoever shares a place with an attacker does not for long.
    seed: [AtomicU64; 2],
    met: Box<[AtomicU64]>,
    /// Addresses that have had more than their share of handshakes, with cookies of their own.
    overdrawn: Box<[AtomicU64]>,
}

/// What becomes of a message without a right cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is handled as if there were no load.
    Admit,
    /// It is refused, with a cookie for the next attempt.
    Cookie,
    /// It is refused in silence.
    Refuse,
}

/// The slow path's side of the filter.
#[derive(Default)]
pub(crate) struct LoadState {
    filter: Arc<HandshakeFilter>,
    /// Addresses that may yet be let in during the period that runs.
    newcomers: usize,
    /// Responses to initiations of ours that may yet be let in.
    answers: usize,
    /// Cookies that may yet be sent.
    replies: usize,
    /// Since when useless work is counted, and how much there was.
    wasted_since: Boottime,
    wasted: u32,
    /// How many messages the filter had refused at the last sign of load.
    refused: u32,
}

impl SourceBloom {
    /// Whether the device is under load and has met `source` in this period.
    pub(crate) fn knows(&self, now: Boottime, source: IpAddr) -> bool {
        let running = self.period();
        self.is_loaded(now) && running.is_younger(now, LOAD_PERIOD) && running.has(&running.met, source)
    }

    /// Whether a message without a cookie, of an address that it [knows](SourceBloom::knows), is refused unseen: it is not
    /// one of the few that pass all the same.
    pub(crate) fn refuses_repeated(&self) -> bool {
        let refused = self.period().refuses_repeated();
        if refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }

    /// Whether a message is refused because the device is under load and `source`, which has a cookie, has asked for too
    /// much in this period: one that is sent over and over again must not fill the slow path's backlog.
    pub(crate) fn refuses_overdrawn(&self, now: Boottime, source: IpAddr) -> bool {
        let running = self.period();
        let refused =
            self.is_loaded(now) && running.is_younger(now, LOAD_PERIOD) && running.has(&running.overdrawn, source);
        if refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }

    fn period(&self) -> &Period {
        &self.periods[self.running.load(Ordering::Acquire)]
    }

    fn is_loaded(&self, now: Boottime) -> bool {
        now.0 < self.loaded_until.load(Ordering::Relaxed)
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

impl LoadState {
    /// A device that is not under load, with the filter that data-path threads ask.
    pub(crate) fn with_filter(filter: Arc<HandshakeFilter>) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Whether the device is under load, now that `backlog` messages wait. What the filter refuses does not wait
    /// any more, and is a sign of load all the same.
    pub(crate) fn is_on(&mut self, now: Boottime, backlog: usize) -> bool {
        let refused = self.filter.sources.refused.load(Ordering::Relaxed).wrapping_sub(self.refused);
        if backlog >= UNDER_LOAD_BACKLOG || refused > WASTED_MAX {
            self.begin(now);
        }
        self.filter.sources.is_loaded(now)
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
    pub(crate) fn meet(&mut self, now: Boottime, rng: &mut dyn Entropy, source: IpAddr) -> Verdict {
        self.keep_period(now, rng);
        let was_here = self.before().is_younger(now, REMEMBERED) && self.before().has(&self.before().met, source);
        let is_first = self.running().add(&self.running().met, source);
        match (is_first, was_here) {
            (true, false) if take(&mut self.newcomers) => Verdict::Admit,
            // The filter did not know it in this period. Who is owed a cookie comes again after 5 s, not after one.
            (true, true) if self.running().refuses_repeated() => Verdict::Refuse,
            _ => self.turn_away(),
        }
    }

    /// Decides about a response with a right first MAC and without a right cookie, to an initiation that waits for
    /// one: our own handshakes do not fail because others flood.
    pub(crate) fn meet_answer(&mut self, now: Boottime, rng: &mut dyn Entropy) -> Verdict {
        self.keep_period(now, rng);
        if take(&mut self.answers) { Verdict::Admit } else { self.turn_away() }
    }

    /// `source` has a right cookie and has used up what an address may cause.
    pub(crate) fn note_overdrawn(&mut self, now: Boottime, rng: &mut dyn Entropy, source: IpAddr) {
        self.keep_period(now, rng);
        self.running().add(&self.running().overdrawn, source);
    }

    fn turn_away(&mut self) -> Verdict {
        if take(&mut self.replies) { Verdict::Cookie } else { Verdict::Refuse }
    }

    fn begin(&mut self, now: Boottime) {
        self.refused = self.filter.sources.refused.load(Ordering::Relaxed);
        self.filter.sources.loaded_until.store(now.after(UNDER_LOAD_HOLD).0, Ordering::Relaxed);
    }

    /// Begins the next period if the one that runs is over.
    fn keep_period(&mut self, now: Boottime, rng: &mut dyn Entropy) {
        if self.running().is_younger(now, LOAD_PERIOD) {
            return;
        }
        self.before().restart(now, HashKey::draw(rng));
        // Whoever sees the other period running sees its bits cleared.
        self.filter.sources.running.fetch_xor(1, Ordering::Release);
        (self.newcomers, self.answers, self.replies) = (NEWCOMERS_MAX, NEWCOMERS_MAX, COOKIE_REPLIES_MAX);
    }

    fn running(&self) -> &Period {
        &self.filter.sources.periods[self.filter.sources.running.load(Ordering::Relaxed)]
    }

    fn before(&self) -> &Period {
        &self.filter.sources.periods[self.filter.sources.running.load(Ordering::Relaxed) ^ 1]
    }
}

impl Period {
    fn restart(&self, now: Boottime, seed: HashKey) {
        self.met.iter().chain(&self.overdrawn).for_each(|word| word.store(0, Ordering::Relaxed));
        self.seed.iter().zip(seed.0).for_each(|(half, drawn)| half.store(drawn, Ordering::Relaxed));
        self.repeated.store(0, Ordering::Relaxed);
        // 0 is never.
        self.began.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Whether it began, and less than `age` ago.
    fn is_younger(&self, now: Boottime, age: core::time::Duration) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        began != 0 && now.since(Boottime(began)) < age
    }

    /// Counts a message of an address that was met, and says whether it is refused.
    fn refuses_repeated(&self) -> bool {
        let repeated = self.repeated.fetch_add(1, Ordering::Relaxed);
        repeated >= SPARED && !repeated.is_multiple_of(SHARE)
    }

    fn has(&self, bits: &[AtomicU64], source: IpAddr) -> bool {
        let (word, bit) = self.place(source);
        bits[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Adds an address; false if it, or one in its place, was there.
    fn add(&self, bits: &[AtomicU64], source: IpAddr) -> bool {
        let (word, bit) = self.place(source);
        bits[word].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The word of an address, and its bit.
    fn place(&self, source: IpAddr) -> (usize, u64) {
        let seed = HashKey([self.seed[0].load(Ordering::Relaxed), self.seed[1].load(Ordering::Relaxed)]);
        let (v6, address) = network(source);
        let place = seed.spread(v6, address) % PLACES;
        (place / 64, 1 << (place % 64))
    }
}

impl Default for Period {
    fn default() -> Self {
        let bits = || (0..PLACES / 64).map(|_| AtomicU64::new(0)).collect();
        Self {
            began: AtomicU64::new(0),
            repeated: AtomicU32::new(0),
            seed: Default::default(),
            met: bits(),
            overdrawn: bits(),
        }
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

    fn v4(address: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(address))
    }

    /// A device under load for the next second, to which nobody is new.
    fn crowded(now: Boottime, rng: &mut Uneven) -> LoadState {
        let mut load = LoadState::default();
        assert!(load.is_on(now, UNDER_LOAD_BACKLOG));
        load.meet(now, rng, v4(0xffff_ffff));
        load.newcomers = 0;
        load
    }

    #[test]
    fn load_lasts_for_a_second_after_its_last_sign() {
        let mut load = LoadState::default();
        assert!(!load.is_on(START, UNDER_LOAD_BACKLOG - 1));
        assert!(load.is_on(START, UNDER_LOAD_BACKLOG));
        assert!(load.is_on(START.after(UNDER_LOAD_HOLD - Duration::from_nanos(1)), 0));
        assert!(!load.is_on(START.after(UNDER_LOAD_HOLD), 0));
    }

    #[test]
    fn useless_work_is_load_once_there_is_more_of_it_in_a_second_than_is_borne() {
        let mut load = LoadState::default();
        for second in 0..3 {
            let now = START.after(Duration::from_secs(second));
            (0..WASTED_MAX).for_each(|_| load.note_wasted(now));
            assert!(!load.is_on(now, 0));
        }
        load.note_wasted(START.after(Duration::from_millis(2999)));
        assert!(load.is_on(START.after(Duration::from_millis(2999)), 0));
    }

    /// Whether a message without a cookie is refused at the filter.
    fn refuses(load: &LoadState, now: Boottime, source: IpAddr) -> bool {
        load.filter.sources.knows(now, source) && load.filter.sources.refuses_repeated()
    }

    /// Uses up what passes the filter before it refuses.
    fn use_up(load: &LoadState, now: Boottime, source: IpAddr) {
        (0..SPARED).for_each(|_| assert!(!refuses(load, now, source)));
    }

    #[test]
    fn of_an_address_that_was_met_few_messages_pass_the_gate_until_the_next_second() {
        let rng = &mut Uneven(1);
        let mut load = crowded(START, rng);
        for second in 0..3 {
            let now = START.after(Duration::from_secs(second));
            assert!(load.is_on(now, UNDER_LOAD_BACKLOG));
            assert!(!refuses(&load, now, v4(1)), "it was not met yet");
            load.meet(now, rng, v4(1));
            use_up(&load, now, v4(1));
            let later = now.after(Duration::from_millis(999));
            let refused = (0..12_800).filter(|_| refuses(&load, later, v4(1))).count();
            assert_eq!(refused, 12_700);
        }
    }

    #[test]
    fn whoever_forges_an_address_does_not_keep_its_owner_from_a_cookie() {
        // A session whose renewal begins after 120 s lasts for another 60, which is twelve attempts.
        for (rate, most) in [(300, 1), (1_000, 1), (10_000, 2), (50_000, 12), (200_000_u32, 40)] {
            let rng = &mut Uneven(1);
            let mut load = crowded(START, rng);
            let tries = (1..1000).find(|attempt| {
                // The owner tries every five seconds, here at any moment of a second.
                let now = START.after(Duration::from_secs(5 * attempt));
                assert!(load.is_on(now, UNDER_LOAD_BACKLOG));
                load.meet(now, rng, v4(1));
                let before = rate / 1000 * (*attempt as u32 * 617 % 1000);
                for _ in 0..before {
                    refuses(&load, now, v4(1));
                }
                !refuses(&load, now, v4(1)) && load.meet(now, rng, v4(1)) == Verdict::Cookie
            });
            assert!(tries.is_some_and(|tries| tries <= most), "{rate} a second: {tries:?}");
        }
    }

    #[test]
    fn who_has_a_cookie_and_asks_for_too_much_is_known_to_the_gate_until_the_next_second() {
        let rng = &mut Uneven(1);
        let mut load = crowded(START, rng);
        let later = START.after(LOAD_PERIOD);
        assert!(load.is_on(START.after(Duration::from_millis(500)), UNDER_LOAD_BACKLOG));
        assert!(!load.filter.sources.refuses_overdrawn(START, v4(1)));
        load.note_overdrawn(START, rng, v4(1));
        assert!(load.filter.sources.refuses_overdrawn(START, v4(1)));
        assert!(!load.filter.sources.refuses_overdrawn(START, v4(2)));
        assert!(!load.filter.sources.refuses_overdrawn(later, v4(1)), "a new second, though under load");
        load.note_overdrawn(later, rng, v4(2));
        assert!(!load.filter.sources.refuses_overdrawn(later, v4(1)));
        assert!(load.filter.sources.refuses_overdrawn(later, v4(2)));
        assert!(!load.filter.sources.refuses_overdrawn(START.after(UNDER_LOAD_HOLD * 2), v4(2)), "no load any more");
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let rng = &mut Uneven(1);
        let mut load = crowded(START, rng);
        let mut known = |ip: &str| {
            let ip = ip.parse().unwrap();
            let known = load.running().has(&load.running().met, ip);
            load.meet(START, rng, ip);
            known
        };
        assert!(!known("2001:db8::1") && known("2001:db8:0:0:ffff::") && !known("2001:db8:0:1::"));
    }

    #[test]
    fn what_the_gate_refuses_keeps_the_load_on() {
        let rng = &mut Uneven(1);
        let mut load = crowded(START, rng);
        let later = |ms| START.after(Duration::from_millis(ms));
        load.meet(START, rng, v4(1));
        use_up(&load, START, v4(1));
        let refused = (0..=2 * WASTED_MAX).filter(|_| refuses(&load, later(500), v4(1))).count();
        assert!(refused > WASTED_MAX as usize);
        assert!(load.is_on(later(600), 0));
        assert!(load.is_on(later(1599), 0), "it lasts from the last sign on");
        assert!(!load.is_on(later(1600), 0));
    }

    #[test]
    fn nobody_is_refused_who_was_not_met_and_nobody_without_load() {
        let rng = &mut Uneven(1);
        let mut load = crowded(START, rng);
        load.meet(START, rng, v4(1));
        use_up(&load, START, v4(1));
        assert!(!refuses(&load, START, v4(1)), "one in so many");
        assert!(refuses(&load, START, v4(1)));
        assert!(!refuses(&load, START, v4(2)));
        assert!(!refuses(&load, START.after(UNDER_LOAD_HOLD), v4(1)));
    }

    #[test]
    fn a_newcomer_is_let_in_beside_ten_thousand_who_flood() {
        let rng = &mut Uneven(1);
        let mut load = LoadState::default();
        let flood = |load: &mut LoadState, now, rng: &mut Uneven| {
            (0..10_000).filter(|&i| load.meet(now, rng, v4(i)) == Verdict::Admit).count()
        };
        assert_eq!(flood(&mut load, START, rng), NEWCOMERS_MAX, "at first nobody is known");
        for second in 1..5 {
            let now = START.after(Duration::from_secs(second));
            let admitted = flood(&mut load, now, rng);
            assert!(admitted < NEWCOMERS_MAX, "who floods is known: {admitted}");
            let newcomers = (0..100).map(|i| (1 << 24) + second as u32 * 100 + i);
            let admitted = newcomers.filter(|&ip| load.meet(now, rng, v4(ip)) == Verdict::Admit).count();
            assert!(admitted > 80, "{admitted} of 100");
        }
    }

    #[test]
    fn addresses_that_flood_on_are_sent_few_cookies() {
        let rng = &mut Uneven(1);
        let mut load = LoadState::default();
        for second in 0..4 {
            let start = START.after(Duration::from_secs(second));
            let mut cookies = 0;
            for message in 0..200_000 {
                let now = start.after(Duration::from_micros(5 * message));
                assert!(load.is_on(now, UNDER_LOAD_BACKLOG));
                let source = v4(message as u32 % 10_000);
                let passes = !refuses(&load, now, source);
                cookies += usize::from(passes && load.meet(now, rng, source) == Verdict::Cookie);
            }
            let firsts = if second == 0 { 10_000 } else { 0 };
            let again = SPARED as usize + 200_000 / SHARE as usize;
            assert!(cookies <= firsts + again, "{cookies} in second {second}");
        }
    }

    #[test]
    fn forged_sources_cause_a_bounded_number_of_agreements_and_cookies() {
        let rng = &mut Uneven(1);
        let mut load = LoadState::default();
        for second in 0..3 {
            let now = START.after(Duration::from_secs(second));
            let addresses = (0..500_000).map(|i| v4(second as u32 * 500_000 + i));
            let (mut admitted, mut cookies) = (0, 0);
            for address in addresses {
                match load.meet(now, rng, address) {
                    Verdict::Admit => admitted += 1,
                    Verdict::Cookie => cookies += 1,
                    Verdict::Refuse => {}
                }
            }
            assert_eq!((admitted, cookies), (NEWCOMERS_MAX, COOKIE_REPLIES_MAX));
        }
    }
}
