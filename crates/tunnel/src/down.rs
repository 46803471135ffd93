//! `down`: undoes the steps of the ledger, or, without a ledger, what the file describes.

use std::borrow::Cow;

use linerate_control::client;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::socket;
use linerate_host::plan::{self, Hooks};
use linerate_host::spec::Gateway;
use linerate_host::step::{Implementation, Phase, Step};
use linerate_host::transaction::{StepError, execute_best_effort};

use crate::Options;
use crate::context::Context;
use crate::error::Error;
use crate::execute::step_executor::StepExecutor;
use crate::identity::{self, Place, Purpose, Unrecorded};
use crate::ledger::{Ledger, LockedLedger};
use crate::read::{ConfigFile, DefaultRoutes};
use crate::status::is_absence;
use crate::{daemon, foreign, lock, reload, save, snapshot};

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
    if let (Some(ledger), Place::Moved) = (&ledger, &place)
        && !ledger.identity.has_socket(interface)
    {
        return Err(out_of_reach(ledger, interface));
    }
    let (ledger, leftovers) = match ledger {
        // Another program has brought up the tunnel of this file since.
        Some(ledger) if place == Place::Replaced && file.is_some_and(|file| runs(file).is_ok_and(|runs| runs)) => {
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
            let runs = runs(file)?;
            if spec.forwarding.gateway != Gateway::Off {
                let foreign = host.foreign().map_err(Error::Snapshot)?;
                (state.foreign_chains, state.openings) = (foreign.chains, foreign.openings);
            }
            let mut steps = plan::down(&spec, &hooks, &state, options.compat).steps;
            // An interface that nobody answers for is another program's: that of a daemon goes with it.
            steps.retain(|step| runs || !matches!(step, Step::DeleteLink { .. }));
            // Rules and a firewall outlive a daemon that has died.
            let outlives = |step: &Step| matches!(step, Step::DeleteRule(_) | Step::Close(_)) || step.is_firewall();
            if !runs && !steps.iter().any(outlives) {
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

/// The error of `down` for a moved tunnel that it cannot end from here.
fn out_of_reach(ledger: &Ledger, interface: &InterfaceName) -> Error {
    let place = Place::Moved.description(interface.as_str(), &ledger.identity).unwrap_or_default();
    let ends = match identity::kernel_tunnel_elsewhere(interface) {
        Some(network) if ledger.implementation == Implementation::Kernel => {
            format!("`{} ip link delete dev {interface}` ends it", network.way())
        }
        _ => format!(
            "the ledger does not tell whether the daemon that answers is the tunnel's. If it is, `rm {}` ends it",
            socket::path(socket::DIRECTORY.as_ref(), interface).display()
        ),
    };
    Error::State(format!("{interface} {place}, and is as it was; {ends}; then `linerate down {interface}` cleans up"))
}

/// Whether the tunnel of `file` runs.
///
/// # Errors
/// Another tunnel runs under the name, or the running one does not answer.
fn runs(file: &ConfigFile) -> Result<bool, Error> {
    let name = &file.interface;
    let path = file.path.display();
    let wanted = file.loaded().unwrap_or(Cow::Borrowed(&file.contents));
    let why = match reload::open(name).and_then(|mut tunnel| tunnel.get()) {
        Ok(device) if foreign::is_of_file(&device, &wanted) => return Ok(true),
        Err(error) if is_absence(&error) => return Ok(false),
        Ok(_) => format!("has another private key than {path}, or none of its peers, so it is another one"),
        Err(error) => format!("does not respond ({error}), so nothing tells whether it is that of {path}"),
    };
    let delete = Step::DeleteLink { interface: name.to_string() };
    Err(Error::State(format!(
        "the tunnel {name} that runs {why}; it is as it was: take it down with the program that brought it up, or with `{}`",
        plan::messages::as_commands(&[delete]).concat()
    )))
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
             tunnel of {1} were removed. To take {0} down as well, use the program that brought it up",
            locked.interface(),
            ledger.file.display()
        )));
    }
    // After the ledger: the supervisor reads it when the daemon closes the connection.
    daemon::wait_for_exit(locked.interface(), context);
    first.map_or(Ok(()), |exit_code| Err(Error::Incomplete { exit_code }))
}
