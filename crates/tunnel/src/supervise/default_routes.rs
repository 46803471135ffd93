//! Has a gateway follow the default routes of the host (`Gateway = auto`): there may be none yet when a host has just
//! started, and later they may be those of other interfaces. Where there is one routing table, so do the ways to endpoints.

use std::time::{Duration, Instant};

use super::Supervisor;
use super::troubles::Task;
use crate::error::Error;
use crate::read::ConfigFile;
use crate::reload;
use linerate_host::plan::Warning;

impl Supervisor<'_> {
    /// Starts to follow default routes if the tunnel of `file` follows them.
    pub(super) fn follow_default_routes_of(&mut self, file: &ConfigFile) {
        let followed = std::mem::replace(&mut self.follows_default_routes, file.follows_default_routes());
        if !self.follows_default_routes {
            self.followed(None);
        } else if !followed {
            self.missed_default_routes = true;
        }
    }

    /// Lets the tunnel follow default routes that have changed. Where that fails, it is tried again later.
    pub(super) fn follow_default_routes(&mut self) -> Result<(), Error> {
        let changed = std::mem::take(&mut self.changed.default_routes);
        let renamed = std::mem::take(&mut self.changed.names);
        // A gateway's link that was plugged in again does not forward until its sysctls are restored.
        self.changed.tunnel |= renamed;
        if !self.follows_default_routes || self.watch.is_none() {
            return Ok(());
        }
        let is_due = self.follow_failed.is_some_and(|failed| failed.elapsed() >= FOLLOW_AGAIN);
        let missed = std::mem::take(&mut self.missed_default_routes) | renamed;
        let differ = || reload::default_routes_differ(self.interface).unwrap_or(true);
        if !has_to_follow(changed, is_due, missed, differ) {
            return Ok(());
        }
        // One is removed and another added, of both families: all of that is one change.
        self.context.interruption.pause(&[], Some(SETTLE)).map_err(Error::system("cannot wait"))?;
        self.notice_changes();
        self.changed.tunnel |= std::mem::take(&mut self.changed.names);
        self.changed.default_routes = false;
        let error = self.reload_host().err();
        if let Some(error) = &error {
            self.context.message(format_args!("{}: {error}", self.interface));
        }
        self.followed(error);
        Ok(())
    }

    /// Reloads the tunnel's settings on the host. Logs at most one ignored router advertisement a minute.
    ///
    /// # Errors
    /// As [`reload::reload`].
    pub(super) fn reload_host(&mut self) -> Result<(), Error> {
        let (interface, context, refused) = (self.interface, self.context, &mut self.refused_advertisements);
        reload::reload_host(interface, context, &mut |warning| match warning {
            Warning::Advertisement { .. } => {
                if let Some(count) = refused.count(Instant::now()) {
                    context.message(format_args!("{interface}: {warning} (ignored so far: {count})"));
                }
            }
            warning => context.warn(warning),
        })
    }

    fn followed(&mut self, error: Option<Error>) {
        self.follow_failed = error.is_some().then(Instant::now);
        self.note(Task::Follow, error.map(|error| format!("the host's default routes are not followed yet: {error}")));
    }

    /// When to try again what has failed.
    pub(super) fn follow_interval(&self) -> Option<Duration> {
        self.follow_failed.map(|_| FOLLOW_AGAIN)
    }
}

/// Ignored router advertisements. Any neighbour can send many, so the log gets at most one line a minute.
#[derive(Default)]
pub(super) struct RefusedAdvertisements {
    count: u64,
    logged: Option<Instant>,
}

impl RefusedAdvertisements {
    /// Counts one; returns the total if a log line is due.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let is_due = self.logged.is_none_or(|logged| now.duration_since(logged) >= LOG_INTERVAL);
        is_due.then(|| {
            self.logged = Some(now);
            self.count
        })
    }
}

const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Whether to follow the default routes. Follows them
/// - after a report that they `changed`, even if they are equal: an interface of the same name may be a new one, which does
///   not forward;
/// - some time after an attempt `failed`: its steps may have been undone although the routes are those of the plan;
/// - if a change may have been `missed` or a link was renamed, and the routes `differ` from the plan.
fn has_to_follow(changed: bool, failed: bool, missed: bool, differ: impl FnOnce() -> bool) -> bool {
    changed || failed || (missed && differ())
}

/// How long to wait after a failure.
const FOLLOW_AGAIN: Duration = Duration::from_mins(1);

/// How long routes may take to be complete.
const SETTLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_advertisements_are_counted_and_logged_once_a_minute() {
        let (mut refused, begin) = (RefusedAdvertisements::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let said: Vec<_> = [0, 1, 59, 60, 61, 121].map(|second| refused.count(at(second))).into();
        assert_eq!(said, [Some(1), None, None, Some(4), None, Some(6)]);
    }

    #[test]
    fn a_failure_is_tried_again_though_the_routes_are_those_of_the_plan() {
        let follows = |changed, failed, missed| has_to_follow(changed, failed, missed, || false);
        assert!(follows(true, false, false));
        assert!(follows(false, true, false), "a failure");
        assert!(!follows(false, false, true), "what was missed has changed nothing");
        assert!(has_to_follow(false, false, true, || true));
        assert!(!has_to_follow(false, false, false, || true));
    }
}
