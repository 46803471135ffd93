//! Who of the workers is at work: a leader, and followers while there is use for them.
//!
//! At rest one worker watches all sources and the others are away. A worker that finds its sources
//! hot and a core idle invites another one; a worker that finds nothing leaves, unless it is the last.
//! The last one watches, so that a packet always finds somebody and never wakes two.

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Nanoseconds for which the sources have to be hot before a follower is invited: a burst shorter
/// than that is over before a woken worker has done anything for it.
pub const PATIENCE_MIN: u64 = 1_000_000;

/// The same where followers turned out to be of no use: what looking for an idle core costs is
/// lost in it.
pub const PATIENCE_MAX: u64 = 16 * PATIENCE_MIN;

/// Nanoseconds after which a follower was worth its invitation.
const WORTH: u64 = 10 * PATIENCE_MIN;

/// The workers of one engine.
pub struct Crew {
    /// Nanoseconds for which the sources have to be hot at least.
    patience_min: u64,
    roll: Mutex<Roll>,
    invited: Condvar,
}

struct Roll {
    at_work: usize,
    away: usize,
    invitations: usize,
    /// When the last invitation was made, in nanoseconds.
    invited: u64,
    patience: u64,
    over: bool,
}

/// What a worker that found nothing to do does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is the last one: it watches the sources.
    Watch,
    /// It was away and is invited to work.
    Work,
    /// The engine has ended.
    End,
}

impl Crew {
    /// A crew whose first worker is at work; the others begin with [`Crew::rest`]. `patience` is
    /// [`PATIENCE_MIN`] but for tests.
    pub fn new(patience: u64) -> Self {
        let roll = Roll { at_work: 1, away: 0, invitations: 0, invited: 0, patience, over: false };
        Self { patience_min: patience, roll: Mutex::new(roll), invited: Condvar::new() }
    }

    /// Leaves work at `now`, in nanoseconds, and sleeps until invited, unless the worker is the last
    /// one.
    pub fn leave(&self, now: u64) -> Next {
        let mut roll = self.roll();
        if roll.over {
            return Next::End;
        }
        if roll.at_work == 1 {
            return Next::Watch;
        }
        roll.at_work -= 1;
        // Whoever goes, there was work for one more since the last one was invited.
        roll.patience = match now.saturating_sub(roll.invited) {
            WORTH.. => self.patience_min,
            _ => PATIENCE_MAX.min(roll.patience * 2),
        };
        self.sleep(roll)
    }

    /// Sleeps until invited.
    pub fn rest(&self) -> Next {
        self.sleep(self.roll())
    }

    fn sleep(&self, mut roll: MutexGuard<'_, Roll>) -> Next {
        roll.away += 1;
        while roll.invitations == 0 && !roll.over {
            roll = self.invited.wait(roll).expect("no thread panics while it is away");
        }
        roll.away -= 1;
        if roll.over {
            return Next::End;
        }
        roll.invitations -= 1;
        roll.at_work += 1;
        Next::Work
    }

    /// Wakes one worker that is away, at `now`; false if all are at work or on their way.
    pub fn invite(&self, now: u64) -> bool {
        let mut roll = self.roll();
        let room = roll.away > roll.invitations;
        if room {
            roll.invitations += 1;
            roll.invited = now;
            self.invited.notify_one();
        }
        room
    }

    /// There was no core for a follower: the next one is thought of later.
    pub fn discourage(&self) {
        let mut roll = self.roll();
        roll.patience = PATIENCE_MAX.min(roll.patience * 2);
    }

    /// Whether the asking worker is the only one at work, and the nanoseconds for which its sources
    /// have to be hot.
    pub fn mood(&self) -> (bool, u64) {
        let roll = self.roll();
        (roll.at_work == 1, roll.patience)
    }

    /// Sends everybody home.
    pub fn end(&self) {
        self.roll().over = true;
        self.invited.notify_all();
    }

    fn roll(&self) -> MutexGuard<'_, Roll> {
        self.roll.lock().expect("no thread panics while it holds the roll")
    }
}

/// For how long a worker has found work without a break.
#[derive(Default)]
pub struct Heat {
    since: Option<u64>,
}

impl Heat {
    /// There was work at `now`, in nanoseconds. True once it has been hot for `patience`, and then
    /// again after as long.
    pub fn rises(&mut self, now: u64, patience: u64) -> bool {
        let since = *self.since.get_or_insert(now);
        let hot = now.saturating_sub(since) >= patience;
        if hot {
            self.since = Some(now);
        }
        hot
    }

    /// The sources ran dry.
    pub fn cools(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_hot_when_there_was_no_break_for_as_long_as_it_takes() {
        let mut heat = Heat::default();
        assert!(!heat.rises(5, 10));
        assert!(!heat.rises(14, 10));
        assert!(heat.rises(15, 10));
        assert!(!heat.rises(24, 10), "asked for once in each span");
        assert!(heat.rises(25, 10));
        heat.cools();
        assert!(!heat.rises(1000, 10));
    }

    #[test]
    fn the_last_one_watches() {
        let crew = Crew::new(PATIENCE_MIN);
        assert_eq!(crew.leave(0), Next::Watch);
        assert!(!crew.invite(0), "nobody is away");
        crew.end();
        assert_eq!(crew.leave(0), Next::End);
    }

    #[test]
    fn followers_that_are_of_no_use_are_invited_less_often() {
        let crew = Crew::new(PATIENCE_MIN);
        let lasted = |stay| {
            crew.roll().at_work += 1;
            crew.roll().invitations += 1;
            crew.roll().invited = 1_000;
            assert_eq!(crew.leave(1_000 + stay), Next::Work);
            crew.roll().at_work = 1;
            crew.mood().1
        };
        assert_eq!(lasted(0), 2 * PATIENCE_MIN);
        assert_eq!(lasted(0), 4 * PATIENCE_MIN);
        assert_eq!(lasted(WORTH), PATIENCE_MIN);
        (0..20).for_each(|_| crew.discourage());
        assert_eq!(crew.mood(), (true, PATIENCE_MAX));
    }
}
