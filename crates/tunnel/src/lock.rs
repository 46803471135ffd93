//! The lock of a tunnel: commands for one interface run one after the other.

use std::time::Duration;

use linerate_control::interface::InterfaceName;

use crate::context::Context;
use crate::error::Error;
use crate::ledger::{self, LedgerError, LockedLedger};

/// Locks the ledger of an interface for this call. While another command holds it, reports that and
/// waits. A hook of that command would wait for ever, and is refused.
pub(crate) fn lock(interface: &InterfaceName, context: Context<'_>) -> Result<LockedLedger, Error> {
    lock_unless_hook(interface, context)?.ok_or_else(|| Error::OwnHook(interface.clone()))
}

/// As [`lock`], but `None` if the command that holds the lock runs us as its hook.
pub(crate) fn lock_unless_hook(interface: &InterfaceName, context: Context<'_>) -> Result<Option<LockedLedger>, Error> {
    let mut reported = false;
    loop {
        match LockedLedger::open(ledger::directory(), interface) {
            Err(LedgerError::Busy { .. }) if is_hook_of_holder(interface) => return Ok(None),
            Err(busy @ LedgerError::Busy { .. }) => {
                if !std::mem::replace(&mut reported, true) {
                    context.message(format_args!("{busy}; waiting for it"));
                }
                context.interruption.pause(&[], Some(PAUSE)).map_err(Error::system("cannot wait"))?;
                if context.interruption.came() {
                    return Err(Error::Interrupted);
                }
            }
            locked => return Ok(Some(locked.map_err(Error::of_ledger)?)),
        }
    }
}

const PAUSE: Duration = Duration::from_millis(50);

/// Whether the command that holds the lock started us as a hook. A process that a hook left behind still has the
/// variable, but later holders sign the lock differently.
fn is_hook_of_holder(interface: &InterfaceName) -> bool {
    std::env::var_os(ledger::LOCKED)
        .is_some_and(|signature| signature == *ledger::signature(ledger::directory(), interface))
}
