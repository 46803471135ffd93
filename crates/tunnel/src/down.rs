//! `down`: undoes the steps of the ledger, or, without a ledger, what the file describes.

use linerate_control::client;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::socket;
use linerate_host::plan::{self, Hooks};
use linerate_host::spec::Gateway;
use linerate_host::step::{Phase, Step};
use linerate_host::system::Host;
use linerate_host::transaction::{StepError, execute_best_effort};

use crate::Options;
use crate::context::Context;
use crate::error::Error;
use crate::execute::step_executor::StepExecutor;
use crate::ledger::{Ledger, LockedLedger};
use crate::read::{ConfigFile, DefaultRoutes};
use crate::{daemon, lock, save, snapshot};

/// Takes a tunnel down. `file` is its file, if that is still there.
///
/// # Errors
/// There is no such tunnel, or some steps could not be undone; the others were.
pub fn down(
    interface: &InterfaceName,
    file: Option<&ConfigFile>,
    options: &Options,
    context: Context<'_>,
) -> Result<(), Error> {
    let locked = lock::lock(interface, context)?;
    let ledger = locked.read().unwrap_or_else(|error| {
        context.warn(error);
        None
    });
    let mut host = snapshot::open()?;
    let (ledger, leftovers) = split(ledger, &host, interface);
    let hooks = hooks(ledger.as_ref(), file, options);
    let steps = match (&ledger, file) {
        (Some(ledger), _) => plan::undo(&ledger.possibly_applied(), &hooks),
        (None, Some(file)) => {
            let spec = file.host_spec(&file.device()?, DefaultRoutes::Always);
            let mut state = snapshot::read(&mut host, interface)?;
            if spec.forwarding.gateway != Gateway::Off {
                let foreign = host.foreign().map_err(Error::Snapshot)?;
                (state.foreign_chains, state.openings) = (foreign.chains, foreign.openings);
            }
            let steps = plan::down(&spec, &hooks, &state, options.compat).steps;
            // Rules and a firewall outlive a daemon that has died.
            let outlives = |step: &Step| matches!(step, Step::DeleteRule(_) | Step::Close(_)) || step.is_firewall();
            if !is_tunnel(interface) && !steps.iter().any(outlives) {
                return Err(Error::NoTunnel(interface.clone()));
            }
            steps
        }
        (None, None) if !is_tunnel(interface) => return Err(Error::NoTunnel(interface.clone())),
        (None, None) => {
            return Err(Error::State(format!("{interface} was not brought up by linerate, and it has no file")));
        }
    };
    let path = ledger.as_ref().map(|ledger| ledger.file.clone()).or_else(|| Some(file?.path.clone()));
    let mut executor = StepExecutor::new(&mut host, interface, &path.unwrap_or_default(), context);
    (executor.reports_steps, executor.is_rollback) = (true, true);
    let outcome = undo(&steps, file, ledger.as_ref(), &locked, &mut executor, context);
    executor.reports_steps = false;
    execute_best_effort(&leftovers, &mut executor, &mut |step, failure| context.step_failed(step, failure));
    outcome
}

/// Returns the ledger if it belongs to the current interface. If another tunnel has taken the name since, returns the
/// steps that remain to be undone for the recorded one.
fn split(ledger: Option<Ledger>, host: &Host, interface: &InterfaceName) -> (Option<Ledger>, Vec<Step>) {
    let Some(ledger) = ledger else { return (None, Vec::new()) };
    let current = host.index(interface.as_str());
    if current.is_none() || ledger.index.is_none() || current == ledger.index {
        return (Some(ledger), Vec::new());
    }
    let belongs_to_link = |step: &Step| {
        matches!(
            step,
            Step::DeleteLink { .. } | Step::DeleteAddress { .. } | Step::SetMtu { .. } | Step::SetFwmark { .. }
        )
    };
    let leftovers = plan::undo(&ledger.possibly_applied(), &Hooks::default());
    (None, leftovers.into_iter().filter(|step| !belongs_to_link(step)).collect())
}

/// The hooks to run: those recorded at `up`, if there is a ledger.
fn hooks(ledger: Option<&Ledger>, file: Option<&ConfigFile>, options: &Options) -> Hooks {
    match (ledger, file) {
        _ if !options.hooks => Hooks::default(),
        (Some(ledger), _) => ledger.hooks.clone(),
        (None, Some(file)) => file.hooks(),
        (None, None) => Hooks::default(),
    }
}

/// Whether a tunnel of that name runs.
fn is_tunnel(interface: &InterfaceName) -> bool {
    client::names(socket::DIRECTORY.as_ref()).is_ok_and(|names| names.iter().any(|name| name == interface.as_str()))
}

fn undo(
    steps: &[Step],
    file: Option<&ConfigFile>,
    ledger: Option<&Ledger>,
    locked: &LockedLedger,
    executor: &mut StepExecutor<'_>,
    context: Context<'_>,
) -> Result<(), Error> {
    let mut first = None;
    // SaveConfig saves after the PreDown hooks, as with wg-quick.
    let before = steps.iter().take_while(|step| matches!(step, Step::Hook { phase: Phase::PreDown, .. })).count();
    let (before, after) = steps.split_at(before);
    let mut on_error = |step: &Step, failure: &StepError| {
        context.step_failed(step, failure);
        first.get_or_insert(failure.exit_code);
    };
    execute_best_effort(before, executor, &mut on_error);
    if let Some(file) = file.filter(|file| file.contents.save_config)
        && let Err(error) = save::save_locked(file, executor.host, locked, context)
    {
        context.message(error);
    }
    let left = execute_best_effort(after, executor, &mut on_error);
    match ledger.map(|ledger| ledger.with_remaining(&left)).filter(|ledger| !ledger.steps.is_empty()) {
        // The next `down` can try again.
        Some(rest) => locked.write(&rest)?,
        None => locked.remove()?,
    }
    // After the ledger: the supervisor reads it when the daemon closes the connection.
    daemon::wait_for_exit(locked.interface(), context);
    first.map_or(Ok(()), |exit_code| Err(Error::Incomplete { exit_code }))
}
