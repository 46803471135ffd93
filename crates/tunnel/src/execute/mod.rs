//! The sixth step: executes the recorded plan. On failure or a signal, rolls back exactly the completed steps.

mod foreign;
pub(crate) mod hook;
pub(crate) mod step_executor;

use std::collections::HashSet;
use std::io;

use linerate_control::interface::InterfaceName;
use linerate_host::plan::{self, Hooks};
use linerate_host::spec::Compat;
use linerate_host::step::Step;
use linerate_host::system::Host;
use linerate_host::transaction::{self, TransactionError, execute_best_effort};

use crate::context::Context;
use crate::daemon::{self, StartOptions};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::record::Recorded;
use crate::resolve::{NamedEndpoints, Resolved};
use crate::snapshot;
use step_executor::StepExecutor;

/// A tunnel that is up.
pub(crate) struct Done {
    /// The endpoints that are names, with their addresses.
    pub(crate) names: NamedEndpoints,
}

/// Executes the recorded plan.
///
/// # Errors
/// A step failed, or a signal has come: the host is as it was.
pub(crate) fn execute(recorded: Recorded<'_>, context: Context<'_>) -> Result<Done, Error> {
    let Recorded { planned, ledger, locked, stale } = recorded;
    let Resolved { file, device, names } = planned.resolved;
    let (plan, mut host) = (planned.plan, planned.snapshot.host);
    let mut executor = StepExecutor::new(&mut host, &file.interface, &file.path, context);
    executor.daemon = ledger.daemon.clone();
    executor.start_options = StartOptions::of(&ledger);
    executor.identity = ledger.identity.clone();
    executor.configuration = Some(device);
    executor.reports_steps = true;
    executor.tolerates_hook_errors = file.tolerates_hook_errors();
    let steps = stale.replaced_by(&plan.steps);
    let done = transaction::execute(&steps, &mut executor).and_then(|()| {
        let mut set = plan.steps;
        set.retain(|step| !executor.not_done.contains(step));
        forget_removed_by_hooks(&mut set, executor.host, &file.interface);
        let complete = Ledger {
            index: executor.index,
            identity: executor.identity.clone(),
            steps: set,
            complete: true,
            hook_failed: executor.hook_failed,
            ..ledger.clone()
        };
        let failed =
            |error| TransactionError { step: None, error: io::Error::other(error), exit_code: 1, done: steps.clone() };
        locked.write(&complete).map_err(failed)
    });
    let Err(failure) = done else { return Ok(Done { names }) };

    // Roll back.
    context.interruption.clear();
    // A daemon that failed may have left its interface; a hook or a program for name servers may have been half done.
    let leaves = |step: &Step| matches!(step, Step::AddLink { .. } | Step::Hook { .. } | Step::SetDns { .. });
    // Without AddLink, a daemon of this name is another tunnel's.
    let is_ours = failure.done.iter().any(|step| matches!(step, Step::AddLink { .. }));
    let half_done = failure.step.as_deref().filter(|step| leaves(step)).cloned();
    let mut applied: Vec<Step> = failure.done.iter().cloned().chain(half_done).collect();
    applied.retain(|step| !executor.not_done.contains(step));
    let mut error = Error::from(failure);
    if let (Error::Step { error, .. }, Some(index)) = (&mut error, executor.index)
        && executor.host.index(file.interface.as_str()) != Some(index)
    {
        *error = io::Error::other(format!(
            "{error}; {} went away before it was set up: if a hook moves or renames the interface, use PostUp for it",
            file.interface
        ));
    }
    let undo = stale.restored_by(plan::undo(&applied, &hooks_after_failure(&ledger, &applied)));
    (executor.tolerates_hook_errors, executor.is_rollback) = (true, true);
    let left = execute_best_effort(&undo, &mut executor, &mut |step, failure| context.step_failed(step, failure));
    if is_ours {
        daemon::wait_for_exit(&file.interface, context);
    }
    let recorded = match left.is_empty() {
        true => stale.record(&locked),
        false => {
            let left: Vec<Step> = stale.kill_switches().iter().filter_map(Step::undo).chain(left).collect();
            locked.write(&ledger.with_remaining(&left))
        }
    };
    Err(error.and(recorded.map_err(Error::from)))
}

/// Removes steps from `steps` that a hook has undone, as a `PostUp` that replaces a rule: they must not be restored.
fn forget_removed_by_hooks(steps: &mut Vec<Step>, host: &mut Host, interface: &InterfaceName) {
    if !steps.iter().any(|step| matches!(step, Step::Hook { .. })) {
        return;
    }
    // If the host cannot be read, a later reload restores too much, which does no harm.
    let Ok(state) = snapshot::read(host, interface) else { return };
    let removed: HashSet<Step> = plan::lost(steps, &state.without_dns()).into_iter().cloned().collect();
    // Openings in other programs' firewalls were not read.
    steps.retain(|step| !removed.contains(step) || matches!(step, Step::Open(_)));
}

/// The hooks that a failed `up` runs after the steps `done`: wg-quick runs none (its `del_if`).
fn hooks_after_failure(ledger: &Ledger, done: &[Step]) -> Hooks {
    match ledger.compat {
        Compat::WgQuick => Hooks::default(),
        Compat::Native => ledger.hooks.undoing(done),
    }
}

impl From<TransactionError> for Error {
    fn from(TransactionError { step, error, exit_code, .. }: TransactionError) -> Self {
        let interrupted = error.kind() == io::ErrorKind::Interrupted;
        Self::Step { step: step.filter(|_| !interrupted), error, exit_code }
    }
}
