//! `up`: the pipeline. In the end the tunnel is up, or the host is as it was.

use linerate_host::dns;
use linerate_host::plan::Plan;

use crate::context::Context;
use crate::error::Error;
use crate::execute::execute;
use crate::plan::Planned;
use crate::read::ConfigFile;
use crate::record::Recorded;
use crate::resolve::Resolved;
use crate::snapshot::Snapshot;
use crate::stale_kill_switches::StaleKillSwitches;
use crate::{Options, background, identity, ledger, lock, supervise};

/// Brings the tunnel of `file` up. Endpoints whose names have no address yet are resolved in the background.
///
/// With [`Options::supervised`] it stays, supervises the tunnel, and takes it down at the end.
///
/// # Errors
/// A step failed, or a signal has come: the host is as it was. Or the tunnel did not stay up.
pub fn up(file: ConfigFile, options: &Options, context: Context<'_>) -> Result<(), Error> {
    let locked = lock::lock(&file.interface, context)?;
    let file = file.changed()?.unwrap_or(file);
    let stale = StaleKillSwitches::clean_up(&locked, &file.interface, context)?;
    // A dead tunnel's name servers may be reachable only through that tunnel.
    dns::remove_stale(ledger::directory()).unwrap_or_else(|error| context.warn(error));
    let resolved = Resolved::new(&file)?;
    let snapshot = Snapshot::for_allocation(&file.interface)?;
    let planned = Planned::new(resolved, snapshot, options)?;
    planned.plan.warnings.iter().for_each(|warning| context.warn(warning));
    let recorded = Recorded::write(planned, locked, stale, options)?;
    let done = execute(recorded, context)?;
    done.names.unanswered().for_each(|named| context.message(file.without_address(named)));
    match options.supervised {
        true => supervise::run(file, options, context),
        false => {
            if file.needs_supervisor(options.compat) {
                background::start(&file, context);
            }
            Ok(())
        }
    }
}

/// What [`up`] would do on this host. Changes nothing.
///
/// # Errors
/// The host cannot be read, a tunnel of this name is somewhere else, or the planner refuses to bring this one up.
pub fn plan(file: &ConfigFile, options: &Options) -> Result<Plan, Error> {
    let snapshot = Snapshot::take(&file.interface)?;
    // Only root can read it.
    let ledger = ledger::read(ledger::directory(), &file.interface).ok().flatten();
    identity::check_up(&file.interface, ledger.as_ref(), &snapshot.state.links)?;
    Ok(Planned::new(Resolved::new(file)?, snapshot, options)?.plan)
}
