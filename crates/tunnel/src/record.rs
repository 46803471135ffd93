//! The fifth step: writes the plan to disk, in the [ledger](crate::ledger), before anything is done, so that `down` can
//! undo it whatever happens.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_host::step::Implementation;

use crate::error::Error;
use crate::identity::Identity;
use crate::ledger::{Ledger, LockedLedger, VERSION};
use crate::plan::Planned;
use crate::stale_kill_switches::StaleKillSwitches;
use crate::{Options, daemon};

/// A plan that is in the ledger.
pub(crate) struct Recorded<'a> {
    pub(crate) planned: Planned<'a>,
    pub(crate) ledger: Ledger,
    pub(crate) locked: LockedLedger,
    pub(crate) stale: StaleKillSwitches,
}

impl<'a> Recorded<'a> {
    /// Writes the ledger, and the copy of the file.
    ///
    /// # Errors
    /// There is no daemon to start, or the ledger cannot be written.
    pub(crate) fn write(
        mut planned: Planned<'a>,
        locked: LockedLedger,
        stale: StaleKillSwitches,
        options: &Options,
    ) -> Result<Self, Error> {
        let file = planned.resolved.file;
        let ledger = Ledger {
            version: VERSION,
            index: None,
            identity: Identity::of_new(),
            supervised: options.supervised,
            since: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos(),
            compat: planned.compat,
            implementation: planned.implementation,
            daemon: match planned.implementation {
                Implementation::Daemon => Some(daemon::find()?),
                Implementation::Kernel => None,
            },
            user: daemon::user(options.user.as_deref(), file.contents.user.as_deref()),
            spin: daemon::spin(file.contents.spin),
            usage: daemon::usage(&file.contents),
            file: file.path.clone(),
            called: Some(file.called.clone()),
            spec: planned.spec.clone(),
            hooks: planned.hooks.clone(),
            steps: stale.kill_switches().iter().chain(&planned.plan.steps).cloned().collect(),
            complete: false,
            pending: Vec::new(),
            released: BTreeSet::new(),
            hook_failed: false,
        };
        let written = locked.write(&ledger).and_then(|()| locked.write_file(file.text()));
        // A reload of the dead tunnel may have left the file that it was applying.
        if let Err(error) = written.and_then(|()| locked.forget_next_file()) {
            // The disk may be full. Nothing was done yet, so there must be no ledger of a tunnel.
            let _ = stale.record(&locked);
            return Err(error.into());
        }
        planned.snapshot.allocation = None;
        Ok(Self { planned, ledger, locked, stale })
    }
}
