//! `down`: undoes what was done, by the ledger; for a tunnel without one, what its file says was done.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::execute::transaction::{StepError, execute_best_effort};
use crate::record::ledger::{Entry, Ledger};
use linerate_control::client;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::client::DaemonClient;
use linerate_control::uapi::socket::{self, OpenError};
use linerate_host::linux::Host;
use linerate_host::plan::{self, Hooks};
use linerate_host::step::{Phase, Step};

use crate::execute::step_executor::Hands;
use crate::interruption::Interruption;
use crate::read::{Pending, Source};
use crate::{Failed, Options, host, lock, look, save, step_failed};
use linerate_program::complain;

/// Takes a tunnel down. `source` is its file, if that is still there.
///
/// # Errors
/// There is no such tunnel, or something could not be undone: the rest is, all the same.
pub fn down(
    interface: &InterfaceName,
    source: Option<&Source>,
    options: &Options,
    interruption: &Interruption,
) -> Result<(), Failed> {
    let entry = lock(interface, interruption)?;
    let ledger = entry.read().unwrap_or_else(|error| {
        complain(&format!("Warning: {error}"));
        None
    });
    let mut host = host()?;
    let (ledger, remains) = told_apart(ledger, &host, interface);
    let hooks = hooks(ledger.as_ref(), source, options);
    let steps = match (&ledger, source) {
        (Some(ledger), _) => plan::undo(&ledger.possibly_applied(), &hooks),
        (None, Some(source)) => {
            let device = source.device(&[])?;
            let steps = plan::down(
                &source.wanted(&device, Pending::Counted),
                &hooks,
                &look(&mut host, interface)?,
                options.compat,
            )
            .steps;
            // Rules and a firewall outlive a daemon that has died.
            let remains = |step: &Step| matches!(step, Step::DeleteRule(_) | Step::DeleteFirewall(_));
            if !is_tunnel(interface) && !steps.iter().any(remains) {
                return Err(no_tunnel(interface));
            }
            steps
        }
        (None, None) if !is_tunnel(interface) => return Err(no_tunnel(interface)),
        (None, None) => {
            return Err(Failed::new(format!("{interface} was not brought up by linerate, and there is no file of it")));
        }
    };
    let file = ledger.as_ref().map(|ledger| ledger.file.clone()).or_else(|| Some(source?.path.clone()));
    let mut hands = Hands::new(&mut host, interface, &file.unwrap_or_default(), interruption);
    (hands.echo, hands.goes_on) = (options.echo, true);
    let outcome = undo(interface, &steps, source, ledger.as_ref(), &entry, &mut hands);
    hands.echo = false;
    execute_best_effort(&remains, &mut hands, &mut step_failed);
    outcome
}

/// The ledger, if it is of the interface that is there; of one that is gone, whose name another tunnel has taken since,
/// the steps that are to be undone beside it.
fn told_apart(ledger: Option<Ledger>, host: &Host, interface: &InterfaceName) -> (Option<Ledger>, Vec<Step>) {
    let Some(ledger) = ledger else { return (None, Vec::new()) };
    let there = host.index(interface.as_str());
    if there.is_none() || ledger.index.is_none() || there == ledger.index {
        return (Some(ledger), Vec::new());
    }
    let is_links = |step: &Step| {
        matches!(
            step,
            Step::DeleteLink { .. } | Step::DeleteAddress { .. } | Step::SetMtu { .. } | Step::SetFwmark { .. }
        )
    };
    let remains = plan::undo(&ledger.possibly_applied(), &Hooks::default());
    (None, remains.into_iter().filter(|step| !is_links(step)).collect())
}

/// The commands for the way down: those of the file as it was, since the way up ran those.
fn hooks(ledger: Option<&Ledger>, source: Option<&Source>, options: &Options) -> Hooks {
    match (ledger, source) {
        _ if !options.hooks => Hooks::default(),
        (Some(ledger), _) => ledger.hooks.clone(),
        (None, Some(source)) => source.hooks(),
        (None, None) => Hooks::default(),
    }
}

fn no_tunnel(interface: &InterfaceName) -> Failed {
    Failed::new(format!("`{interface}' is not a WireGuard interface"))
}

/// Whether anybody runs a tunnel of that name.
fn is_tunnel(interface: &InterfaceName) -> bool {
    client::names(socket::DIRECTORY.as_ref()).is_ok_and(|names| names.iter().any(|name| name == interface.as_str()))
}

/// Waits until the daemon, whose interface is gone, has hung up, which is the last thing it does, and removes its socket
/// if that is still there: one that was killed a moment ago answers until the kernel has closed what it had open, and
/// leaves its socket to us.
pub(crate) fn wait_for_end(interface: &InterfaceName, interruption: &Interruption) {
    let directory = socket::DIRECTORY.as_ref();
    if let Ok(daemon) = DaemonClient::connect(directory, interface)
        && let Err(error) = interruption.pause(&[daemon.as_fd()], Some(END))
    {
        complain(&format!("Warning: cannot wait for the daemon to end: {error}"));
    }
    match socket::remove_stale(directory, interface) {
        Ok(()) | Err(OpenError::InUse(..)) => {}
        Err(error) => complain(&error.to_string()),
    }
}

/// How long a daemon may take to see that its interface is gone, on a busy machine.
const END: Duration = Duration::from_secs(2);

fn undo(
    interface: &InterfaceName,
    steps: &[Step],
    source: Option<&Source>,
    ledger: Option<&Ledger>,
    entry: &Entry,
    hands: &mut Hands<'_>,
) -> Result<(), Failed> {
    let mut worst = None;
    // What the file wants saved is saved after the commands that come before everything, as wg-quick does it.
    let before = steps.iter().take_while(|step| matches!(step, Step::Hook { phase: Phase::PreDown, .. })).count();
    let (before, after) = steps.split_at(before);
    let mut complain_of = |step: &Step, stumble: &StepError| {
        step_failed(step, stumble);
        worst.get_or_insert(stumble.exit_code);
    };
    execute_best_effort(before, hands, &mut complain_of);
    if let Some(source) = source.filter(|source| source.file.save_config)
        && let Err(failed) = save::save_locked(source, hands.host, entry, hands.echo)
    {
        complain(&failed.complaint);
    }
    let left = execute_best_effort(after, hands, &mut complain_of);
    match ledger.map(|ledger| ledger.with_remaining(&left)).filter(|ledger| !ledger.steps.is_empty()) {
        // So that the next `down` can try again.
        Some(rest) => entry.write(&rest)?,
        None => entry.remove()?,
    }
    // Whoever keeps the tunnel goes by the ledger when the daemon hangs up.
    wait_for_end(interface, hands.interruption);
    match worst {
        None => Ok(()),
        Some(code) => {
            let complaint = "the tunnel is down, but some steps could not be undone; see above".to_owned();
            Err(Failed { complaint, code })
        }
    }
}
