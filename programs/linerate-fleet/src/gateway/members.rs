//! The gateways as one of them sees them: who is alive, whose clock is right, who takes what others have lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::message::Heartbeat;

/// Between two heartbeats.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(100);
/// Three heartbeats were lost, and the next is late by half of an interval.
pub const DEAD_AFTER: Duration = Duration::from_millis(350);
/// A gateway takes over once it and the others have had time to see each other in the same state.
pub const SETTLED_AFTER: Duration = Duration::from_millis(500);

/// Heartbeats whose clocks are compared. The delay only ever makes the other's clock look late, so the greatest counts.
const CLOCKS: usize = 10;
/// From fewer a clock is not judged: the mesh's own handshake may have delayed them.
const CLOCKS_MIN: usize = 3;
/// How long a clock counts as right after most agreed with it, if then as many disagree as agree: one of those who agreed
/// has died, say. No clock drifts by [`super::Config::skew_max`] in that time.
const AGREED_LASTS: Duration = Duration::from_secs(600);
/// Places of a gateway in the choice of who takes a peer, at most.
const CAPACITY_MAX: u32 = 16;

/// Times are arguments: `monotonic` never goes back, `wall` is the time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Runs while the process is stopped.
    pub monotonic: Duration,
    /// May be wrong.
    pub wall: Duration,
}

/// Another gateway.
#[derive(Debug, Default)]
pub(super) struct Other {
    capacity: u32,
    heard: Option<Duration>,
    last: Heartbeat,
    clocks: VecDeque<i64>,
    takes_since: Option<Duration>,
    /// When it last said that it takes no peers any more.
    took_until: Option<Duration>,
    /// Whether it was alive when that was last looked at.
    pub(super) was_alive: bool,
    /// Data for it came to a living gateway since it died: the routes have moved.
    pub(super) has_moved: bool,
    /// Whether it has sent all that it knew since it came (back).
    pub(super) table_is_here: bool,
    /// The next number of the table that it asked for.
    pub(super) table_at: Option<u32>,
    pub(super) table_sent: Option<Duration>,
}

impl Other {
    pub(super) fn is_alive(&self, now: Now) -> bool {
        self.heard.is_some_and(|heard| now.monotonic < heard + DEAD_AFTER)
    }

    pub(super) fn last(&self) -> &Heartbeat {
        &self.last
    }

    /// How far its clock is ahead of ours, in nanoseconds.
    pub(super) fn skew(&self) -> Option<i64> {
        self.clocks.iter().copied().max()
    }

    fn judged_skew(&self) -> Option<i64> {
        self.skew().filter(|_| self.clocks.len() >= CLOCKS_MIN)
    }
}

/// All gateways.
#[derive(Debug, Default)]
pub(super) struct Members {
    me: u8,
    includes_me: bool,
    capacity: u32,
    takes_since: Option<Duration>,
    /// When most of several last agreed with this clock, and what it then showed.
    agreed: Option<Now>,
    pub(super) others: BTreeMap<u8, Other>,
}

/// Why a gateway does not initiate for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its daemon does not answer.
    Daemon,
    /// The mesh is down, or its socket is not open.
    Deaf,
    /// It is not a member.
    NotMember,
    /// It sees neither the store nor most members.
    Alone,
    /// Its view of the peers is too old.
    Stale,
    /// Its clock is not that of the majority.
    Clock,
    /// It gives its clients away.
    Draining,
}

impl Reason {
    /// For people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Daemon => "the daemon does not answer",
            Self::Deaf => "it does not hear the other gateways",
            Self::NotMember => "the store does not list this gateway as a member",
            Self::Alone => "neither the store nor most of the members can be reached",
            Self::Stale => "the store has not answered for longer than max_stale",
            Self::Clock => "the clock is too far from those of the other gateways",
            Self::Draining => "it is draining",
        }
    }
}

impl Members {
    pub(super) fn new(me: u8) -> Self {
        Self { me, ..Self::default() }
    }

    /// Who may be a gateway, and how much each takes.
    pub(super) fn set(&mut self, members: &BTreeMap<u8, u32>) {
        self.includes_me = members.contains_key(&self.me);
        self.capacity = members.get(&self.me).copied().unwrap_or(1);
        self.others.retain(|gateway, _| members.contains_key(gateway));
        for (&gateway, &capacity) in members.iter().filter(|(gateway, _)| **gateway != self.me) {
            self.others.entry(gateway).or_default().capacity = capacity;
        }
    }

    /// A heartbeat of another member. False if it was overtaken by a later one.
    pub(super) fn heard(&mut self, now: Now, heartbeat: Heartbeat) -> bool {
        let Some(other) = self.others.get_mut(&heartbeat.gateway) else { return false };
        if other.last.started == heartbeat.started && heartbeat.sequence <= other.last.sequence && other.heard.is_some()
        {
            return false;
        }
        if !other.is_alive(now) || heartbeat.started != other.last.started {
            other.clocks.clear();
            other.takes_since = None;
            other.table_is_here = false;
        }
        other.heard = (!heartbeat.ends).then_some(now.monotonic);
        if other.clocks.len() == CLOCKS {
            other.clocks.pop_front();
        }
        let ours = i64::try_from(now.wall.as_nanos()).unwrap_or(i64::MAX);
        other.clocks.push_back(i64::try_from(heartbeat.wall).unwrap_or(i64::MAX).saturating_sub(ours));
        if other.takes_since.is_some() && !heartbeat.takes {
            other.took_until = Some(now.monotonic);
        }
        other.takes_since = heartbeat.takes.then(|| other.takes_since.unwrap_or(now.monotonic));
        other.last = heartbeat;
        true
    }

    /// This gateway did not run for a while: nobody is dead because of that.
    pub(super) fn was_stopped_for(&mut self, gap: Duration) {
        for other in self.others.values_mut() {
            other.heard = other.heard.map(|heard| heard + gap);
        }
        self.takes_since = None;
    }

    pub(super) fn is_alive(&self, now: Now, gateway: u8) -> bool {
        gateway == self.me || self.others.get(&gateway).is_some_and(|other| other.is_alive(now))
    }

    /// The time by a gateway's clock, as far as known: what it tells of times is by that.
    pub(super) fn wall_of(&self, now: Now, gateway: u8) -> Duration {
        let skew = self.others.get(&gateway).and_then(Other::skew).unwrap_or(0);
        let distance = Duration::from_nanos(skew.unsigned_abs());
        if skew < 0 { now.wall.saturating_sub(distance) } else { now.wall.saturating_add(distance) }
    }

    fn alive(&self, now: Now) -> impl Iterator<Item = &Other> {
        self.others.values().filter(move |other| other.is_alive(now))
    }

    /// Whether most members are alive, this one included.
    fn is_majority(&self, now: Now) -> bool {
        self.includes_me && (1 + self.alive(now).count()) * 2 > 1 + self.others.len()
    }

    /// How many of the living agree with this clock, and how many there are; this one included.
    fn agreeing(&self, now: Now, skew_max: Duration) -> (usize, usize) {
        let skew_max = i64::try_from(skew_max.as_nanos()).unwrap_or(i64::MAX);
        let skews = || self.alive(now).filter_map(Other::judged_skew);
        let agreeing = skews().filter(|skew| (-skew_max..=skew_max).contains(skew)).count();
        (1 + agreeing, 1 + skews().count())
    }

    /// Remembers when most agreed with this clock.
    pub(super) fn look_at_clock(&mut self, now: Now, skew_max: Duration) {
        let (agreeing, all) = self.agreeing(now, skew_max);
        if agreeing > 1 && agreeing * 2 > all {
            self.agreed = Some(now);
        }
    }

    /// Whether this clock is that of most of the living. If as many disagree, it is right if it just was, and was not set
    /// since.
    fn has_right_clock(&self, now: Now, skew_max: Duration) -> bool {
        let (agreeing, all) = self.agreeing(now, skew_max);
        let was_right = || {
            let agreed = self.agreed.filter(|agreed| now.monotonic < agreed.monotonic + AGREED_LASTS);
            agreed.is_some_and(|agreed| {
                let expected = agreed.wall + now.monotonic.saturating_sub(agreed.monotonic);
                now.wall.abs_diff(expected) <= skew_max
            })
        };
        agreeing * 2 > all || (agreeing * 2 == all && was_right())
    }

    /// Why this gateway must not initiate for others, if so, by what members tell.
    pub(super) fn refuses(&self, now: Now, sees_store: bool, skew_max: Duration) -> Option<Reason> {
        if !self.includes_me {
            Some(Reason::NotMember)
        } else if !sees_store && !self.is_majority(now) {
            Some(Reason::Alone)
        } else {
            (!self.has_right_clock(now, skew_max)).then_some(Reason::Clock)
        }
    }

    /// Whether this gateway initiates for others from now on.
    pub(super) fn set_takes(&mut self, now: Now, takes: bool) {
        self.takes_since = takes.then(|| self.takes_since.unwrap_or(now.monotonic));
    }

    fn takers(&self, now: Now) -> impl Iterator<Item = (u8, u32, Duration)> {
        let me = self.takes_since.map(|since| (self.me, self.capacity, since));
        let others = self.others.iter().filter(move |(_, other)| other.is_alive(now));
        me.into_iter().chain(
            others.filter_map(|(&gateway, other)| other.takes_since.map(|since| (gateway, other.capacity, since))),
        )
    }

    /// Which living gateway takes a peer that another has lost or gives away: all that see the same gateways say the same
    /// (rendezvous hashing).
    pub(super) fn responsible(&self, now: Now, number: u32) -> Option<u8> {
        best(self.takers(now), number)
    }

    /// Living gateways that have just stopped taking: what they did last may not be known yet.
    fn former_takers(&self, now: Now) -> impl Iterator<Item = (u8, u32, Duration)> {
        let former = self.others.iter().filter(move |(_, other)| other.is_alive(now) && other.takes_since.is_none());
        former.filter_map(move |(&gateway, other)| {
            let until = other.took_until.filter(|until| now.monotonic < *until + SETTLED_AFTER);
            until.map(|until| (gateway, other.capacity, until))
        })
    }

    /// Whether this gateway takes the peer, now, before the latest ones came, and with those that have just left. So no two do
    /// while some have seen a change and others have not.
    pub(super) fn is_ours(&self, now: Now, number: u32) -> bool {
        let settled = self.takers(now).filter(|(_, _, since)| *since + SETTLED_AFTER <= now.monotonic);
        let is_me = |gateway| gateway == Some(self.me);
        is_me(best(self.takers(now).chain(self.former_takers(now)), number)) && is_me(best(settled, number))
    }

    /// Changes when the answers of [`Members::is_ours`] may.
    pub(super) fn takers_seen(&self, now: Now) -> (u64, u64) {
        let bits = |all: u64, (gateway, ..): (u8, u32, Duration)| all | 1 << gateway;
        let settled = self.takers(now).filter(|(_, _, since)| *since + SETTLED_AFTER <= now.monotonic);
        (self.takers(now).chain(self.former_takers(now)).fold(0, bits), settled.fold(0, bits))
    }
}

fn best(takers: impl Iterator<Item = (u8, u32, Duration)>, number: u32) -> Option<u8> {
    takers
        .max_by_key(|(gateway, capacity, _)| (weight(number, *gateway, *capacity), *gateway))
        .map(|(gateway, ..)| gateway)
}

/// The best of as many draws as the gateway has capacity.
fn weight(number: u32, gateway: u8, capacity: u32) -> u64 {
    let draw = |place| mix(u64::from(number) << 16 | u64::from(gateway) << 8 | u64::from(place));
    (0..capacity.clamp(1, CAPACITY_MAX)).map(draw).max().unwrap_or(0)
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SKEW_MAX: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Now {
        Now { monotonic: Duration::from_millis(ms), wall: Duration::from_millis(1_000_000 + ms) }
    }

    fn members(count: u8) -> Members {
        let mut members = Members::new(0);
        members.set(&(0..count).map(|gateway| (gateway, 1)).collect());
        members
    }

    /// Heartbeats of `gateways` each 100 ms from the first until the second time; their clocks are ahead of ours.
    fn hear(members: &mut Members, from: u64, until: u64, gateways: &[u8], ahead_ms: i64) {
        for ms in (from..until).step_by(100) {
            for &gateway in gateways {
                let wall = (1_000_000 + ms).saturating_add_signed(ahead_ms) * 1_000_000;
                let heartbeat =
                    Heartbeat { gateway, takes: true, started: 1, sequence: ms + 1, wall, ..Heartbeat::default() };
                members.heard(at(ms), heartbeat);
            }
        }
    }

    #[test]
    fn three_lost_heartbeats_are_a_death_and_two_are_not() {
        let mut members = members(2);
        hear(&mut members, 0, 1000, &[1], 0);
        assert!(members.is_alive(at(900 + 299), 1));
        assert!(!members.is_alive(at(900 + 350), 1));
    }

    #[test]
    fn a_stopped_gateway_takes_nobody_for_dead() {
        let mut members = members(2);
        hear(&mut members, 0, 1000, &[1], 0);
        members.was_stopped_for(Duration::from_secs(10));
        assert!(members.is_alive(at(11_000), 1));
        assert!(!members.is_alive(at(11_400), 1));
    }

    #[test]
    fn the_end_of_a_gateway_is_known_at_once() {
        let mut members = members(2);
        hear(&mut members, 0, 1000, &[1], 0);
        let heartbeat = Heartbeat { gateway: 1, ends: true, started: 1, sequence: 2000, ..Heartbeat::default() };
        members.heard(at(1000), heartbeat);
        assert!(!members.is_alive(at(1001), 1));
    }

    #[test]
    fn a_minority_without_the_store_refuses() {
        let mut members = members(5);
        hear(&mut members, 0, 1000, &[1], 0);
        assert_eq!(members.refuses(at(1000), false, SKEW_MAX), Some(Reason::Alone));
        assert_eq!(members.refuses(at(1000), true, SKEW_MAX), None);
        hear(&mut members, 1000, 2000, &[1, 2], 0);
        assert_eq!(members.refuses(at(2000), false, SKEW_MAX), None);
    }

    #[test]
    fn whose_clock_is_not_that_of_the_majority_refuses() {
        let mut late = members(3);
        hear(&mut late, 0, 1000, &[1, 2], 3000);
        assert_eq!(late.refuses(at(1000), true, SKEW_MAX), Some(Reason::Clock));
        let mut right = members(3);
        hear(&mut right, 0, 1000, &[1], 0);
        hear(&mut right, 0, 1000, &[2], -3000);
        assert_eq!(right.refuses(at(1000), true, SKEW_MAX), None);
        // The dead have no vote.
        assert_eq!(late.refuses(at(5000), true, SKEW_MAX), None);
    }

    /// Three gateways, of which the last one's clock is 3 s ahead of ours, or ours behind those of both; then number 1 dies.
    fn one_of_three_dies(ahead_ms: [i64; 2]) -> Members {
        let mut members = members(3);
        for ms in (0..1000).step_by(100) {
            hear(&mut members, ms, ms + 100, &[1], ahead_ms[0]);
            hear(&mut members, ms, ms + 100, &[2], ahead_ms[1]);
            members.look_at_clock(at(ms), SKEW_MAX);
        }
        hear(&mut members, 1000, 2000, &[2], ahead_ms[1]);
        members.look_at_clock(at(2000), SKEW_MAX);
        members
    }

    #[test]
    fn who_was_right_stays_right_when_another_right_one_dies() {
        let right = one_of_three_dies([0, 3000]);
        assert_eq!(right.refuses(at(2000), true, SKEW_MAX), None);
        let wrong = one_of_three_dies([3000, 3000]);
        assert_eq!(wrong.refuses(at(2000), true, SKEW_MAX), Some(Reason::Clock));
    }

    #[test]
    fn of_two_that_disagree_the_one_whose_clock_was_set_is_wrong() {
        let mut members = members(2);
        hear(&mut members, 0, 1000, &[1], 0);
        members.look_at_clock(at(1000), SKEW_MAX);
        hear(&mut members, 1000, 3000, &[1], -5000);
        assert_eq!(members.refuses(at(3000), true, SKEW_MAX), None);
        let set = |ms| Now { wall: at(ms).wall + Duration::from_secs(5), ..at(ms) };
        hear(&mut members, 3000, 5000, &[1], 0);
        members.look_at_clock(at(5000), SKEW_MAX);
        let mut beat = |ms: u64| {
            let wall = at(ms).wall.as_nanos() as u64;
            members.heard(set(ms), Heartbeat { gateway: 1, started: 1, sequence: ms, wall, ..Heartbeat::default() });
        };
        (5001..7000).step_by(100).for_each(&mut beat);
        assert_eq!(members.refuses(set(7000), true, SKEW_MAX), Some(Reason::Clock));
    }

    #[test]
    fn of_two_that_have_long_disagreed_and_of_two_that_never_agreed_neither_is_right() {
        let mut members = members(2);
        hear(&mut members, 0, 1000, &[1], 0);
        members.look_at_clock(at(1000), SKEW_MAX);
        hear(&mut members, 598_000, 603_000, &[1], 3000);
        assert_eq!(members.refuses(at(600_000), true, SKEW_MAX), None);
        assert_eq!(members.refuses(at(603_000), true, SKEW_MAX), Some(Reason::Clock));
        let mut strangers = self::members(2);
        strangers.look_at_clock(at(0), SKEW_MAX);
        hear(&mut strangers, 0, 1000, &[1], 3000);
        strangers.look_at_clock(at(1000), SKEW_MAX);
        assert_eq!(strangers.refuses(at(1000), true, SKEW_MAX), Some(Reason::Clock));
    }

    #[test]
    fn delay_is_not_skew() {
        let mut members = members(2);
        hear(&mut members, 0, 500, &[1], -400);
        hear(&mut members, 500, 600, &[1], -2);
        assert_eq!(members.others[&1].skew(), Some(-2_000_000));
    }

    #[test]
    fn overtaken_heartbeats_count_for_nothing() {
        let mut members = members(2);
        hear(&mut members, 0, 1000, &[1], 0);
        let heartbeat = Heartbeat { gateway: 1, started: 1, sequence: 5, ..Heartbeat::default() };
        assert!(!members.heard(at(1200), heartbeat));
        let of_no_member = Heartbeat { gateway: 9, ..Heartbeat::default() };
        assert!(!members.heard(at(1200), of_no_member));
    }

    #[test]
    fn what_a_taker_leaves_is_taken_once_all_know_what_it_did_last() {
        let mut members = members(2);
        members.set_takes(at(0), true);
        hear(&mut members, 0, 1000, &[1], 0);
        let of_the_other = (0..).find(|number| members.responsible(at(1000), *number) == Some(1)).unwrap();
        for ms in (1000..1600).step_by(100) {
            let heartbeat = Heartbeat { gateway: 1, started: 1, sequence: ms + 1, ..Heartbeat::default() };
            members.heard(at(ms), heartbeat);
            assert_eq!(members.responsible(at(ms), of_the_other), Some(0));
            assert_eq!(members.is_ours(at(ms), of_the_other), ms >= 1500, "{ms}");
        }
    }

    #[test]
    fn peers_are_split_by_capacity() {
        let mut members = members(3);
        members.set(&BTreeMap::from([(0, 1), (1, 1), (2, 2)]));
        hear(&mut members, 0, 1000, &[1, 2], 0);
        members.set_takes(at(0), true);
        let mut shares = [0; 3];
        (0..10_000).for_each(|number| shares[usize::from(members.responsible(at(1000), number).unwrap())] += 1);
        assert!((2200..2800).contains(&shares[0]) && (2200..2800).contains(&shares[1]), "{shares:?}");
    }

    proptest! {
        #[test]
        fn a_death_moves_only_the_peers_of_the_dead(number in 0u32..1 << 20, dead in 1u8..6) {
            let mut members = members(6);
            members.set_takes(at(0), true);
            hear(&mut members, 0, 1000, &[1, 2, 3, 4, 5], 0);
            let before = members.responsible(at(1000), number);
            let living: Vec<u8> = (1..6).filter(|gateway| *gateway != dead).collect();
            hear(&mut members, 1000, 2000, &living, 0);
            let after = members.responsible(at(2000), number);
            prop_assert!(before == after || before == Some(dead));
            prop_assert!(after.is_some_and(|gateway| gateway != dead));
        }
    }
}
