//! Restores settings of the tunnel that other programs have removed from the host. Without its rules or routes a full
//! tunnel leaks: its traffic leaves in the clear.

use std::time::{Duration, Instant};

use linerate_host::plan;
use linerate_host::plan::messages::describe;
use linerate_host::state::HostChanges;
use linerate_host::step::Step;
use linerate_host::system::HostWatch;

use super::Supervisor;
use super::troubles::Task;
use crate::error::Error;
use crate::identity::{self, Place};
use crate::ledger;
use crate::snapshot::Snapshot;

impl Supervisor<'_> {
    /// Starts to watch the host. If that fails, `status` reports it.
    pub(super) fn watch_host(&mut self) {
        let watch = HostWatch::new();
        let trouble = watch.as_ref().err().map(|error| format!("the host's routes and rules are not watched: {error}"));
        if let Some(trouble) = &trouble {
            self.context.warn(format_args!("{}: {trouble}", self.interface));
        }
        self.note(Task::Watch, trouble);
        self.watch = watch.ok();
        // Checks once for changes before the watch began.
        self.changed.tunnel = self.watch.is_some();
    }

    /// Adapts the tunnel to changes of the host; called after each wait. Changes during the call are handled after the next
    /// wait ([`Supervisor::host_interval`]): a neighbour can advertise routes without end, and must not hold up other tasks.
    pub(super) fn follow_host(&mut self) -> Result<(), Error> {
        self.notice_changes();
        self.follow_default_routes()?;
        self.restore()
    }

    /// Adds the changes of the host since the last call to those to be handled.
    pub(super) fn notice_changes(&mut self) {
        let interface = self.interface.as_str();
        self.changed |= self.watch.as_mut().map_or_else(HostChanges::default, |watch| watch.clear(interface));
    }

    /// Restores lost settings, at most [`Restorations::MAX_PER_INTERVAL`] times a minute: another program may remove them again
    /// and again. At the limit, `status` reports it.
    fn restore(&mut self) -> Result<(), Error> {
        if !self.changed.tunnel || !self.restorations.is_due(Instant::now()) {
            return Ok(());
        }
        // A restart of a service removes many things, one after the other.
        self.context.interruption.pause(&[], Some(SETTLE)).map_err(Error::system("cannot wait"))?;
        self.notice_changes();
        let Some(lost) = self.lost() else {
            // An `up`, a `reload` or a `down` is running, or the host cannot be read: tries again after the next change.
            return Ok(());
        };
        self.changed.tunnel = false;
        let Some(first) = lost.first() else {
            self.note(Task::Restore, None);
            return Ok(());
        };
        let what = match lost.len() {
            1 => describe(first),
            count => format!("{} and {} more", describe(first), count - 1),
        };
        let interface = self.interface;
        let restored = self.reload_host();
        let is_last = self.restorations.count(Instant::now());
        let trouble = match &restored {
            Ok(()) if !is_last => None,
            Ok(()) => Some(format!("another program removes this again and again: {what}{}", suspect())),
            Err(error) => Some(format!("this was removed and cannot be restored: {what}: {error}")),
        };
        match (&trouble, restored) {
            (Some(trouble), _) => self.context.message(format_args!("{interface}: {trouble}")),
            (None, _) => {
                self.context.message(format_args!("{interface}: another program removed this, restored: {what}"))
            }
        }
        self.changed.tunnel |= trouble.is_some();
        self.note(Task::Restore, trouble);
        Ok(())
    }

    /// Returns the steps whose effects the host has lost; `None` while that is unknown.
    fn lost(&self) -> Option<Vec<Step>> {
        let ledger = ledger::read(ledger::directory(), self.interface).ok().flatten();
        let ledger = ledger.filter(|ledger| ledger.complete && ledger.pending.is_empty())?;
        let state = Snapshot::take(self.interface).ok()?.state.without_dns();
        if identity::place(&ledger, &state.links) != Place::Here {
            // Nothing can be restored in another place; `status` reports the place.
            return Some(Vec::new());
        }
        Some(plan::lost(&ledger.in_force(), &state).into_iter().cloned().collect())
    }

    /// Returns the maximum wait until the next check of the host. It is zero if default routes changed during a restoration,
    /// because no further message will wake the supervisor.
    pub(super) fn host_interval(&self) -> Option<Duration> {
        let changed = (self.follows_default_routes && self.changed.default_routes).then_some(Duration::ZERO);
        let put_off = self.restorations.pause(Instant::now()).filter(|_| self.changed.tunnel);
        [changed, put_off, self.follow_interval()].into_iter().flatten().min()
    }
}

/// Time for another program to finish its removals.
const SETTLE: Duration = Duration::from_millis(200);

/// Names a program on this host that is known to remove other programs' settings.
fn suspect() -> &'static str {
    if std::path::Path::new("/run/systemd/netif/links").is_dir() {
        "; systemd-networkd does so unless networkd.conf has ManageForeignRoutes=no and ManageForeignRoutingPolicyRules=no"
    } else {
        ""
    }
}

/// The times of recent restorations.
#[derive(Default)]
pub(super) struct Restorations(Vec<Instant>);

impl Restorations {
    /// Maximum number of restorations within [`INTERVAL`](Self::INTERVAL).
    const MAX_PER_INTERVAL: usize = 5;
    const INTERVAL: Duration = Duration::from_mins(1);

    /// Counts a restoration; returns whether the limit is reached.
    fn count(&mut self, now: Instant) -> bool {
        self.0.retain(|earlier| now.duration_since(*earlier) < Self::INTERVAL);
        self.0.push(now);
        self.0.len() >= Self::MAX_PER_INTERVAL
    }

    fn is_due(&self, now: Instant) -> bool {
        self.pause(now).is_none()
    }

    /// Returns the time until the next restoration is allowed; `None` if it is now.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let last = self.0.len().checked_sub(Self::MAX_PER_INTERVAL)?;
        Self::INTERVAL.checked_sub(now.duration_since(self.0[last])).filter(|pause| !pause.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_restored_five_times_a_minute_at_most() {
        let (mut restorations, begin) = (Restorations::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let counted: Vec<bool> = (0..5).map(|second| restorations.count(at(second))).collect();
        assert_eq!(counted, [false, false, false, false, true]);
        assert!(!restorations.is_due(at(5)));
        assert_eq!(restorations.pause(at(20)), Some(Duration::from_secs(40)));
        assert!(restorations.is_due(at(60)));
        assert!(restorations.count(at(60)), "four others were within the minute");
        assert!(!restorations.is_due(at(60)));
        assert!(!restorations.count(at(200)));
        assert!(restorations.is_due(at(200)));
    }
}
