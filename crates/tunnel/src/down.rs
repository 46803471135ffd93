//! `down`: undoes the steps of the ledger, or, without a ledger, what the file describes.

use linerate_control::client;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::socket;
use linerate_host::plan::{self, Hooks};
use linerate_host::spec::Gateway;
use linerate_host::step::{Phase, Step};
use linerate_host::transaction::{StepError, execute_best_effort};

use crate::Options;
use crate::context::Context;
use crate::error::Error;
use crate::execute::step_executor::StepExecutor;
use crate::identity::{self, Place, Purpose, Unrecorded};
use crate::ledger::{Ledger, LockedLedger};
use crate::read::{ConfigFile, DefaultRoutes};
use crate::{daemon, lock, running, save, snapshot};

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
    down_started_again(interface, file, None, options, context)
}

/// As [`down`], for a tunnel whose restarted daemon is not in the ledger yet.
///
/// # Errors
/// As [`down`].
pub(crate) fn down_started_again(
    interface: &InterfaceName,
    file: Option<&ConfigFile>,
    unrecorded: Option<Unrecorded>,
    options: &Options,
    context: Context<'_>,
) -> Result<(), Error> {
    let locked = lock::lock(interface, context)?;
    let mut ledger = locked.read().unwrap_or_else(|error| {
        context.warn(error);
        None
    });
    if let (Some(ledger), Some(unrecorded)) = (&mut ledger, unrecorded) {
        unrecorded.enter(ledger);
    }
    let mut host = snapshot::open()?;
    let place = match &ledger {
        Some(ledger) => identity::place(ledger, &host.links().map_err(Error::Snapshot)?),
        None => Place::Here,
    };
    if let (Some(ledger), Place::OtherNetwork) = (&ledger, &place) {
        return place.refusal(ledger, Purpose::Change("down")).map_or(Ok(()), Err);
    }
    if place == Place::Moved && !ledger.as_ref().is_some_and(|ledger| ledger.identity.has_socket(interface)) {
        return Err(Error::State(format!(
            "a daemon answers for {interface}, but its interface is in another network namespace, and the ledger does not tell \
            whether the daemon is the tunnel's. If it is, `rm {0}` ends it; then `linerate down {interface}` cleans up",
            socket::path(socket::DIRECTORY.as_ref(), interface).display()
        )));
    }
    let (ledger, leftovers) = match ledger {
        // Another program has brought up the same file's tunnel in the meantime.
        Some(ledger) if place == Place::Replaced && runs(file) => {
            let leftovers = plan::undo(&ledger.possibly_applied(), &Hooks::default());
            (None, leftovers.into_iter().filter(|step| place.has(step)).collect())
        }
        ledger => (ledger, Vec::new()),
    };
    let hooks = hooks(ledger.as_ref(), file, options);
    let steps = match (&ledger, file) {
        (Some(ledger), _) => {
            let undo = plan::undo(&ledger.possibly_applied(), &hooks);
            undo.into_iter().filter(|step| place.has(step)).collect()
        }
        (None, Some(file)) => {
            let spec = file.host_spec(&file.device()?, DefaultRoutes::Always);
            let mut state = snapshot::read(&mut host, interface)?;
            identity::check_reachable(interface, &state.links)?;
            if spec.forwarding.gateway != Gateway::Off {
                let foreign = host.foreign().map_err(Error::Snapshot)?;
                (state.foreign_chains, state.openings) = (foreign.chains, foreign.openings);
            }
            let steps = plan::down(&spec, &hooks, &state, options.compat).steps;
            // Rules and a firewall outlive a daemon that has died.
            let outlives = |step: &Step| matches!(step, Step::DeleteRule(_) | Step::Close(_)) || step.is_firewall();
            if !is_tunnel(interface) && !steps.iter().any(outlives) {
                return Err(identity::renamed_from(interface).unwrap_or(Error::NoTunnel(interface.clone())));
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
    if let Some(ledger) = &ledger {
        (executor.index, executor.identity) = (ledger.index, ledger.identity.clone());
    }
    let outcome = undo(&steps, file, ledger.as_ref(), &place, &locked, &mut executor, context);
    executor.reports_steps = false;
    execute_best_effort(&leftovers, &mut executor, &mut |step, failure| context.step_failed(step, failure));
    outcome
}

/// Whether the running interface of this name has the private key of the file.
fn runs(file: Option<&ConfigFile>) -> bool {
    let Some(file) = file else { return false };
    let of_file = file.loaded().ok().and_then(|loaded| loaded.private_key.clone());
    of_file.is_some() && running(&file.interface).is_some_and(|device| device.private_key == of_file)
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
    place: &Place,
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
    if let Some(file) = file.filter(|file| file.contents.save_config && (ledger.is_none() || *place == Place::Here))
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
    if let (Place::Replaced, Some(ledger)) = (place, ledger) {
        return Err(Error::State(format!(
            "{0} is run by another program than the daemon that `linerate up` started; it was left running. The remains of the \
            tunnel of {1} were removed. To take {0} down as well, use the program that brought it up, or run \
             `linerate down {0}` again",
            locked.interface(),
            ledger.file.display()
        )));
    }
    // After the ledger: the supervisor reads it when the daemon closes the connection.
    daemon::wait_for_exit(locked.interface(), context);
    first.map_or(Ok(()), |exit_code| Err(Error::Incomplete { exit_code }))
}
