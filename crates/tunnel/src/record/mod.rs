//! The fifth step: the plan goes to disk before anything is done, so that `down` undoes it whatever happens. [`ledger`]
//! is what is stored and how.

pub mod ledger;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_control::interface::InterfaceName;
use linerate_host::step::Backend;

use crate::Options;
use crate::context::Context;
use crate::error::Error;
use crate::execute::{daemon, hook};
use crate::plan::Planned;
use crate::remains::Remains;
use ledger::{Entry, Ledger, LedgerError, VERSION};

/// A plan that the ledger tells of.
pub(crate) struct Recorded<'a> {
    pub(crate) planned: Planned<'a>,
    pub(crate) ledger: Ledger,
    pub(crate) entry: Entry,
    pub(crate) remains: Remains,
}

impl<'a> Recorded<'a> {
    /// Writes the ledger, and the text of the file.
    ///
    /// # Errors
    /// There is no daemon to start, or the ledger cannot be written.
    pub(crate) fn write(
        mut planned: Planned<'a>,
        entry: Entry,
        remains: Remains,
        options: &Options,
    ) -> Result<Self, Error> {
        let file = planned.resolved.file;
        let ledger = Ledger {
            version: VERSION,
            index: None,
            supervised: options.supervised,
            since: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos(),
            compat: planned.compat,
            backend: planned.backend,
            daemon: match planned.backend {
                Backend::Daemon => Some(daemon::find()?),
                Backend::Kernel => None,
            },
            user: daemon::user(options.user.as_deref(), file.contents.user.as_deref()),
            file: file.path.clone(),
            called: Some(file.called.clone()),
            wanted: planned.wanted.clone(),
            hooks: planned.hooks.clone(),
            steps: remains.kill_switches().iter().chain(&planned.plan.steps).cloned().collect(),
            complete: false,
            pending: Vec::new(),
            hook_failed: false,
        };
        let written = entry.write(&ledger).and_then(|()| entry.write_file(&file.text()));
        // A reload of the dead tunnel may have left the text that it was applying.
        if let Err(error) = written.and_then(|()| entry.forget_next_file()) {
            // The disk is full, say. Nothing was done yet, and a ledger would tell of a tunnel.
            let _ = remains.record(&entry);
            return Err(error.into());
        }
        planned.snapshot.allocation = None;
        Ok(Self { planned, ledger, entry, remains })
    }
}

/// Where ledgers are.
pub(crate) fn ledgers() -> &'static Path {
    Path::new(ledger::DIRECTORY)
}

/// Locks the ledger of an interface for this call. Waits while another command holds it, and says so. A hook of that
/// command would wait for ever, and is refused.
pub(crate) fn lock(interface: &InterfaceName, context: Context<'_>) -> Result<Entry, Error> {
    lock_unless_hook(interface, context)?.ok_or_else(|| Error::OwnHook(interface.clone()))
}

/// As [`lock`], but `None` where the command that holds the lock runs us as its hook.
pub(crate) fn lock_unless_hook(interface: &InterfaceName, context: Context<'_>) -> Result<Option<Entry>, Error> {
    let mut said = false;
    loop {
        match Entry::open(ledgers(), interface) {
            Err(LedgerError::Busy { .. }) if is_hook_of_holder(interface) => return Ok(None),
            Err(busy @ LedgerError::Busy { .. }) => {
                if !std::mem::replace(&mut said, true) {
                    context.message(format_args!("{busy}; waiting for it"));
                }
                context.interruption.pause(&[], Some(LOCK_PAUSE)).map_err(Error::system("cannot wait"))?;
                if context.interruption.came() {
                    return Err(Error::Interrupted);
                }
            }
            entry => return Ok(Some(entry.map_err(Error::of_ledger)?)),
        }
    }
}

const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Whether the command that holds the lock started us as a hook. A process that a hook left behind still has the variable,
/// but no later holder signs the lock alike.
fn is_hook_of_holder(interface: &InterfaceName) -> bool {
    std::env::var_os(hook::LOCKED).is_some_and(|signature| signature == *ledger::signature(ledgers(), interface))
}
