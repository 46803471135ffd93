//! Whether the device is under load, and how handshake messages without a valid cookie are handled then (paper
//! section 5.3).
//!
//! Under load, an address that was not seen recently is admitted without a cookie, a few hundred of them per second, so
//! that new peers get in during a flood; every other address is sent a cookie. Repeated messages of one address within
//! a second are mostly refused by the [`HandshakeFilter`] before anything is computed. A few are admitted, because the
//! address may be forged and its owner has to get a cookie.
//!
//! For the same reason there are limits for all addresses together.

use alloc::sync::Arc;
use core::net::IpAddr;

use crate::constants::{COOKIE_REPLIES_MAX, UNDER_LOAD_BACKLOG, UNDER_LOAD_HOLD, UNSEEN_SOURCES_MAX, WASTED_MAX};
use crate::handshake_filter::HandshakeFilter;
use crate::keyed_hash::HashKey;
use crate::{Boottime, Entropy};

/// What to do with a message without a valid cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionDecision {
    /// Handle it as if there were no load.
    Admit,
    /// Drop it and send a cookie for the next attempt.
    Cookie,
    /// Drop it silently.
    Drop,
}

/// The slow path's view of the load; the data path's is in the filter.
#[derive(Default)]
pub(crate) struct LoadState {
    filter: Arc<HandshakeFilter>,
    /// Addresses that may still be admitted in the running period.
    unseen_left: usize,
    /// Responses to our initiations that may still be admitted.
    responses_left: usize,
    /// Cookies that may still be sent.
    cookies_left: usize,
    /// Wasted key agreements since `wasted_since`.
    wasted: u32,
    wasted_since: Boottime,
    /// The filter's count of refusals when load was last detected.
    refused: u32,
}

impl LoadState {
    /// Not under load; `filter` is that of the data-path threads.
    pub(crate) fn with_filter(filter: Arc<HandshakeFilter>) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Whether the device is under load while `backlog` messages wait. Messages that the filter refused no longer wait,
    /// but are a sign of load, too.
    pub(crate) fn is_under_load(&mut self, now: Boottime, backlog: usize) -> bool {
        let refused = self.filter.sources.refused().wrapping_sub(self.refused);
        if backlog >= UNDER_LOAD_BACKLOG || refused > WASTED_MAX {
            self.set_loaded(now);
        }
        self.filter.sources.is_loaded(now)
    }

    /// Counts a message that was refused only after a key agreement. More than a few per second are a flood, even if
    /// the slow path could keep up: it takes CPU time from the packets.
    pub(crate) fn note_wasted(&mut self, now: Boottime) {
        if now.since(self.wasted_since) >= UNDER_LOAD_HOLD {
            (self.wasted_since, self.wasted) = (now, 0);
        }
        self.wasted += 1;
        if self.wasted > WASTED_MAX {
            self.set_loaded(now);
        }
    }

    /// Decides about an initiation from `source` with a valid first MAC and without a valid cookie.
    pub(crate) fn decide_initiation(
        &mut self,
        now: Boottime,
        rng: &mut dyn Entropy,
        source: IpAddr,
    ) -> AdmissionDecision {
        self.rotate_period(now, rng);
        let seen_before = self.filter.sources.was_seen_before(now, source);
        let is_first = self.filter.sources.running().add_seen(source);
        match (is_first, seen_before) {
            (true, false) if take(&mut self.unseen_left) => AdmissionDecision::Admit,
            // The filter did not know it in this period. Real peers retry after 5 s, so an address seen in two
            // consecutive periods floods.
            (true, true) if self.filter.sources.running().refuses_repeat() => AdmissionDecision::Drop,
            _ => self.cookie_or_drop(),
        }
    }

    /// Decides about a response with a valid first MAC and without a valid cookie, to an initiation of ours that waits
    /// for one, after the first: our own handshakes do not fail because others flood.
    pub(crate) fn decide_response(&mut self, now: Boottime, rng: &mut dyn Entropy) -> AdmissionDecision {
        self.rotate_period(now, rng);
        if take(&mut self.responses_left) { AdmissionDecision::Admit } else { self.cookie_or_drop() }
    }

    /// `source` has a valid cookie and has exceeded its handshake rate.
    pub(crate) fn note_rate_exceeded(&mut self, now: Boottime, rng: &mut dyn Entropy, source: IpAddr) {
        self.rotate_period(now, rng);
        self.filter.sources.running().add_rate_exceeded(source);
    }

    fn cookie_or_drop(&mut self) -> AdmissionDecision {
        if take(&mut self.cookies_left) { AdmissionDecision::Cookie } else { AdmissionDecision::Drop }
    }

    fn set_loaded(&mut self, now: Boottime) {
        self.refused = self.filter.sources.refused();
        self.filter.sources.set_loaded(now);
    }

    /// Starts the next period if the running one is over.
    fn rotate_period(&mut self, now: Boottime, rng: &mut dyn Entropy) {
        if self.filter.sources.running().is_running(now) {
            return;
        }
        self.filter.sources.rotate(now, HashKey::draw(rng));
        self.unseen_left = UNSEEN_SOURCES_MAX;
        self.responses_left = UNSEEN_SOURCES_MAX;
        self.cookies_left = COOKIE_REPLIES_MAX;
    }
}

/// Takes one of `left`, if there is one.
fn take(left: &mut usize) -> bool {
    let some = *left > 0;
    *left -= usize::from(some);
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{COOKIE_SECRET_TIME, INITIATION_LEN, LOAD_PERIOD};
    use crate::source_bloom::{FREE_QUOTA, SAMPLE_RATE};
    use crate::test_rng::TestRng;
    use crate::{DropReason, MessageKind, cookie};
    use core::net::{Ipv4Addr, SocketAddr};
    use core::time::Duration;

    const START: Boottime = Boottime::from_secs(100);
    const SOMEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

    fn v4(address: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(address))
    }

    /// Under load for the next second, with the quota of unseen sources used up.
    fn loaded(now: Boottime, rng: &mut TestRng) -> LoadState {
        let mut load = LoadState::default();
        assert!(load.is_under_load(now, UNDER_LOAD_BACKLOG));
        load.decide_initiation(now, rng, v4(0xffff_ffff));
        load.unseen_left = 0;
        load
    }

    #[test]
    fn load_lasts_for_a_second_after_its_last_sign() {
        let mut load = LoadState::default();
        assert!(!load.is_under_load(START, UNDER_LOAD_BACKLOG - 1));
        assert!(load.is_under_load(START, UNDER_LOAD_BACKLOG));
        assert!(load.is_under_load(START.after(UNDER_LOAD_HOLD - Duration::from_nanos(1)), 0));
        assert!(!load.is_under_load(START.after(UNDER_LOAD_HOLD), 0));
    }

    #[test]
    fn more_useless_work_in_a_second_than_the_limit_is_load() {
        let mut load = LoadState::default();
        for second in 0..3 {
            let now = START.after(Duration::from_secs(second));
            (0..WASTED_MAX).for_each(|_| load.note_wasted(now));
            assert!(!load.is_under_load(now, 0));
        }
        load.note_wasted(START.after(Duration::from_millis(2999)));
        assert!(load.is_under_load(START.after(Duration::from_millis(2999)), 0));
    }

    /// Whether a message without a cookie is refused at the filter.
    fn refuses(load: &LoadState, now: Boottime, source: IpAddr) -> bool {
        load.filter.sources.contains(now, source) && load.filter.sources.refuses_repeat()
    }

    /// Uses up what passes the filter before it refuses.
    fn use_up(load: &LoadState, now: Boottime, source: IpAddr) {
        (0..FREE_QUOTA).for_each(|_| assert!(!refuses(load, now, source)));
    }

    #[test]
    fn few_messages_of_a_known_address_pass_the_filter_until_the_next_second() {
        let rng = &mut TestRng::new(1);
        let mut load = loaded(START, rng);
        for second in 0..3 {
            let now = START.after(Duration::from_secs(second));
            assert!(load.is_under_load(now, UNDER_LOAD_BACKLOG));
            assert!(!refuses(&load, now, v4(1)), "not seen yet");
            load.decide_initiation(now, rng, v4(1));
            use_up(&load, now, v4(1));
            let later = now.after(Duration::from_millis(999));
            let refused = (0..12_800).filter(|_| refuses(&load, later, v4(1))).count();
            assert_eq!(refused, 12_700);
        }
    }

    #[test]
    fn a_forged_address_does_not_prevent_its_owner_from_getting_a_cookie() {
        // A session whose renewal begins after 120 s lasts for another 60, which is twelve attempts.
        for (rate, most) in [(300, 1), (1_000, 1), (10_000, 2), (50_000, 12), (200_000_u32, 40)] {
            let rng = &mut TestRng::new(1);
            let mut load = loaded(START, rng);
            let tries = (1..1000).find(|attempt| {
                // The owner tries every five seconds, at varying times within a second.
                let now = START.after(Duration::from_secs(5 * attempt));
                assert!(load.is_under_load(now, UNDER_LOAD_BACKLOG));
                load.decide_initiation(now, rng, v4(1));
                let before = rate / 1000 * (*attempt as u32 * 617 % 1000);
                for _ in 0..before {
                    refuses(&load, now, v4(1));
                }
                !refuses(&load, now, v4(1)) && load.decide_initiation(now, rng, v4(1)) == AdmissionDecision::Cookie
            });
            assert!(tries.is_some_and(|tries| tries <= most), "{rate} a second: {tries:?}");
        }
    }

    #[test]
    fn an_address_that_exceeds_its_rate_is_refused_by_the_filter_until_the_next_second() {
        let rng = &mut TestRng::new(1);
        let mut load = loaded(START, rng);
        let later = START.after(LOAD_PERIOD);
        assert!(load.is_under_load(START.after(Duration::from_millis(500)), UNDER_LOAD_BACKLOG));
        assert!(!load.filter.sources.refuses_rate_exceeded(START, v4(1)));
        load.note_rate_exceeded(START, rng, v4(1));
        assert!(load.filter.sources.refuses_rate_exceeded(START, v4(1)));
        assert!(!load.filter.sources.refuses_rate_exceeded(START, v4(2)));
        assert!(!load.filter.sources.refuses_rate_exceeded(later, v4(1)), "a new second, though under load");
        load.note_rate_exceeded(later, rng, v4(2));
        assert!(!load.filter.sources.refuses_rate_exceeded(later, v4(1)));
        assert!(load.filter.sources.refuses_rate_exceeded(later, v4(2)));
        assert!(
            !load.filter.sources.refuses_rate_exceeded(START.after(UNDER_LOAD_HOLD * 2), v4(2)),
            "no load any more"
        );
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let rng = &mut TestRng::new(1);
        let mut load = loaded(START, rng);
        let mut known = |ip: &str| {
            let ip = ip.parse().unwrap();
            let known = load.filter.sources.running().has_seen(ip);
            load.decide_initiation(START, rng, ip);
            known
        };
        assert!(!known("2001:db8::1") && known("2001:db8:0:0:ffff::") && !known("2001:db8:0:1::"));
    }

    #[test]
    fn messages_refused_by_the_filter_prolong_the_load() {
        let rng = &mut TestRng::new(1);
        let mut load = loaded(START, rng);
        let later = |ms| START.after(Duration::from_millis(ms));
        load.decide_initiation(START, rng, v4(1));
        use_up(&load, START, v4(1));
        let refused = (0..=2 * WASTED_MAX).filter(|_| refuses(&load, later(500), v4(1))).count();
        assert!(refused > WASTED_MAX as usize);
        assert!(load.is_under_load(later(600), 0));
        assert!(load.is_under_load(later(1599), 0), "it lasts from the last sign on");
        assert!(!load.is_under_load(later(1600), 0));
    }

    #[test]
    fn unknown_addresses_pass_and_without_load_all_pass() {
        let rng = &mut TestRng::new(1);
        let mut load = loaded(START, rng);
        load.decide_initiation(START, rng, v4(1));
        use_up(&load, START, v4(1));
        assert!(!refuses(&load, START, v4(1)), "sampled");
        assert!(refuses(&load, START, v4(1)));
        assert!(!refuses(&load, START, v4(2)));
        assert!(!refuses(&load, START.after(UNDER_LOAD_HOLD), v4(1)));
    }

    #[test]
    fn an_unseen_address_is_admitted_beside_ten_thousand_flooding_ones() {
        let rng = &mut TestRng::new(1);
        let mut load = LoadState::default();
        let flood = |load: &mut LoadState, now, rng: &mut TestRng| {
            (0..10_000).filter(|&i| load.decide_initiation(now, rng, v4(i)) == AdmissionDecision::Admit).count()
        };
        assert_eq!(flood(&mut load, START, rng), UNSEEN_SOURCES_MAX, "no address has been seen");
        for second in 1..5 {
            let now = START.after(Duration::from_secs(second));
            let admitted = flood(&mut load, now, rng);
            assert!(admitted < UNSEEN_SOURCES_MAX, "flooding addresses are known: {admitted}");
            let unseen = (0..100).map(|i| (1 << 24) + second as u32 * 100 + i);
            let admitted =
                unseen.filter(|&ip| load.decide_initiation(now, rng, v4(ip)) == AdmissionDecision::Admit).count();
            assert!(admitted > 80, "{admitted} of 100");
        }
    }

    #[test]
    fn addresses_that_keep_flooding_are_sent_few_cookies() {
        let rng = &mut TestRng::new(1);
        let mut load = LoadState::default();
        for second in 0..4 {
            let start = START.after(Duration::from_secs(second));
            let mut cookies = 0;
            for message in 0..200_000 {
                let now = start.after(Duration::from_micros(5 * message));
                assert!(load.is_under_load(now, UNDER_LOAD_BACKLOG));
                let source = v4(message as u32 % 10_000);
                let passes = !refuses(&load, now, source);
                cookies += usize::from(passes && load.decide_initiation(now, rng, source) == AdmissionDecision::Cookie);
            }
            let firsts = if second == 0 { 10_000 } else { 0 };
            let again = FREE_QUOTA as usize + 200_000 / SAMPLE_RATE as usize;
            assert!(cookies <= firsts + again, "{cookies} in second {second}");
        }
    }

    #[test]
    fn forged_sources_cause_a_bounded_number_of_key_agreements_and_cookies() {
        let rng = &mut TestRng::new(1);
        let mut load = LoadState::default();
        for second in 0..3 {
            let now = START.after(Duration::from_secs(second));
            let addresses = (0..500_000).map(|i| v4(second as u32 * 500_000 + i));
            let (mut admitted, mut cookies) = (0, 0);
            for address in addresses {
                match load.decide_initiation(now, rng, address) {
                    AdmissionDecision::Admit => admitted += 1,
                    AdmissionDecision::Cookie => cookies += 1,
                    AdmissionDecision::Drop => {}
                }
            }
            assert_eq!((admitted, cookies), (UNSEEN_SOURCES_MAX, COOKIE_REPLIES_MAX));
        }
    }

    #[test]
    fn under_load_an_address_seen_before_passes_only_with_its_own_cookie() {
        let rng = &mut TestRng::new(1);
        let filter = Arc::new(HandshakeFilter::default());
        filter.set_mac1_key(Some(&[3; 32]));
        let mut load = LoadState::with_filter(Arc::clone(&filter));
        assert!(load.is_under_load(START, UNDER_LOAD_BACKLOG));
        load.decide_initiation(START, rng, SOMEWHERE.ip());
        let mut maker = cookie::CookieMaker::default();
        let mut message = [7; INITIATION_LEN];
        maker.sign(START, &[3; 32], &mut message);
        message[INITIATION_LEN - cookie::MAC_LEN..].fill(0);
        let reply = filter.cookies.reply(START, rng, &[5; 32], SOMEWHERE, &message);
        maker.accept(START, &[5; 32], &reply).unwrap();
        let mut signed = message;
        maker.sign(START, &[3; 32], &mut signed);
        let mut wrong_mac = signed;
        wrong_mac[INITIATION_LEN - 1] ^= 1;

        let check = |now, source, message: &[u8]| filter.check(now, source, MessageKind::Initiation, message);
        let passing = |message: &[u8]| (0..12_800).filter(|_| check(START, SOMEWHERE, message).is_ok()).count();
        assert!(passing(&message) < 10_000);
        assert_eq!(passing(&message), 100, "one in 128");
        assert_eq!(passing(&wrong_mac), 100);
        assert_eq!(passing(&signed), 12_800);
        let elsewhere = SocketAddr::new(SOMEWHERE.ip(), 8);
        let other_port = (0..12_800).filter(|_| check(START, elsewhere, &signed).is_ok()).count();
        assert_eq!(other_port, 100, "a cookie is for one port");
        let late = START.after(COOKIE_SECRET_TIME);
        load.is_under_load(late, UNDER_LOAD_BACKLOG);
        load.decide_initiation(late, rng, SOMEWHERE.ip());
        let check = |now, source, message: &[u8]| filter.check(now, source, MessageKind::Initiation, message);
        let passing = (0..12_800).filter(|_| check(late, SOMEWHERE, &signed).is_ok()).count();
        assert!(passing < 10_000, "the cookie is too old: {passing}");
        load.note_rate_exceeded(late, rng, SOMEWHERE.ip());
        let refused = check(late, SOMEWHERE, &signed);
        assert_eq!(refused, Err(DropReason::RateLimited), "with or without a cookie");
    }
}
