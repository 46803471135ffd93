//! `up`: a transaction. The tunnel is there at its end, or the host is as it was.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::execute::transaction::{Failure, execute, execute_best_effort};
use crate::record::ledger::{self, Entry, Ledger, LedgerError, VERSION};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_host::linux::{Host, dns};
use linerate_host::plan::{self, Hooks, Plan};
use linerate_host::step::{Backend, Phase, Step};
use linerate_host::wanted::Compat;

use crate::down::wait_for_end;
use crate::execute::daemon;
use crate::execute::step_executor::Hands;
use crate::interruption::Interruption;
use crate::read::{Pending, Source};
use crate::resolve as names;
use crate::supervise as keep;
use crate::{Failed, Options, host, ledgers, lock, look, step_failed, warn};
use linerate_program::complain;

/// What `up` would do on this host as it is.
pub struct Planned {
    /// The steps and what to know of them.
    pub plan: Plan,
    /// What the daemon would be told.
    device: DeviceUpdate,
    /// Addresses of the endpoints that are names, as far as they are known.
    resolved: Vec<Vec<SocketAddr>>,
    host: Host,
}

/// Looks at the host and plans, and changes nothing. `resolved` has the addresses of the names of `source`, as far as they
/// are known.
///
/// # Errors
/// The host cannot be looked at, or the tunnel must not come up like this.
pub fn planned(source: &Source, options: &Options, resolved: Vec<Vec<SocketAddr>>) -> Result<Planned, Failed> {
    let device = source.device(&resolved)?;
    let mut host = host()?;
    let state = look(&mut host, &source.interface)?;
    let hooks = hooks_of(source, options);
    let plan = plan::up(&source.wanted(&device, Pending::Held), &hooks, options.backend, &state, options.compat)?;
    Ok(Planned { plan, device, resolved, host })
}

fn hooks_of(source: &Source, options: &Options) -> Hooks {
    if options.hooks { source.hooks() } else { Hooks::default() }
}

/// Brings the tunnel up. What cannot be known yet, addresses of names, is found out in the background.
///
/// # Errors
/// A step failed, or the user has interrupted: the host is as it was.
pub fn up(source: &Source, options: &Options, interruption: &Interruption) -> Result<(), Failed> {
    let entry = lock(&source.interface, interruption)?;
    let remains = clear_remains(&entry, source, interruption)?;
    // Else the names of the endpoints may be asked for where only the tunnel leads.
    if let Err(error) = dns::remove_stale(ledgers()) {
        complain(&format!("Warning: {error}"));
    }
    let resolved = names::at_hand(&source.names());
    let numbers = ledger::lock_allocation(ledgers())?;
    let Planned { plan, mut device, resolved, mut host } = planned(source, options, resolved)?;
    if source.file.kill_switch || options.compat == Compat::Native {
        // The first handshake may begin before the step that marks datagrams, and a kill switch that has stayed from
        // before would drop it. wg-quick's order is seen by whoever watches the daemon, so only where it matters.
        let marks = |step: &Step| if let Step::SetFwmark { fwmark, .. } = step { Some(*fwmark) } else { None };
        device.fwmark = device.fwmark.or_else(|| plan.steps.iter().find_map(marks));
    }
    warn(&plan.warnings);
    let held = remains.as_ref().map_or(&[][..], |remains| &remains.steps);
    let ledger = Ledger {
        version: VERSION,
        index: None,
        supervised: options.supervised,
        since: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos(),
        compat: options.compat,
        backend: options.backend,
        daemon: match options.backend {
            Backend::Daemon => Some(daemon::daemon().map_err(|complaint| Failed { complaint, code: 127 })?),
            Backend::Kernel => None,
        },
        user: daemon::user(options.user.as_deref(), source.file.user.as_deref()),
        file: source.path.clone(),
        called: Some(source.called.clone()),
        wanted: source.wanted(&device, Pending::Held),
        hooks: hooks_of(source, options),
        steps: held.iter().chain(&plan.steps).cloned().collect(),
        complete: false,
        pending: Vec::new(),
        hook_failed: false,
    };
    let text = source.text();
    let written = entry.write(&ledger).and_then(|()| entry.write_file(&text));
    // What a reload was about to apply to a tunnel that has died.
    if let Err(error) = written.and_then(|()| entry.forget_next_file()) {
        // A disk is full, say. Nothing was done yet, and a ledger would tell of a tunnel.
        let _ = remember(&entry, remains.as_ref());
        return Err(error.into());
    }
    drop(numbers);
    let mut hands = Hands::new(&mut host, &source.interface, &source.path, interruption);
    hands.daemon = ledger.daemon.clone();
    hands.user = ledger.user.clone();
    hands.configuration = Some(device);
    hands.echo = options.echo;
    hands.forgive_hooks = source.forgives_hooks();
    let steps = without(held, &plan.steps);
    if let Err(failure) = execute(&steps, &mut hands) {
        return Err(take_back(failure, source, &ledger, remains.as_ref(), &entry, &mut hands));
    }
    let done = Ledger {
        index: hands.host.index(source.interface.as_str()),
        steps: plan.steps,
        complete: true,
        hook_failed: hands.hook_failed,
        ..ledger.clone()
    };
    if let Err(error) = entry.write(&done) {
        let failure = Failure { step: None, error: io::Error::other(error), exit_code: 1, done: steps };
        return Err(take_back(failure, source, &ledger, remains.as_ref(), &entry, &mut hands));
    }
    let unknown = source.names().into_iter().zip(&resolved).filter(|(_, addresses)| addresses.is_empty());
    for (named, _) in unknown {
        complain(&format!("{named}: no address yet; {}", source.what_pends(&named)));
    }
    Ok(())
}

/// What a tunnel of this name left behind whose daemon has died, rules and a firewall say, goes first. The commands of
/// its file are not run: nobody knows what of theirs is left. A kill switch goes on holding until the new tunnel is there:
/// it is given back, as the ledger that stays.
fn clear_remains(entry: &Entry, source: &Source, interruption: &Interruption) -> Result<Option<Ledger>, Failed> {
    let Some(ledger) = entry.read()? else { return Ok(None) };
    let mut host = host()?;
    let state = look(&mut host, &source.interface)?;
    if state.link(source.interface.as_str()).is_some() {
        return Ok(None);
    }
    let is_switch = |step: &Step| matches!(step, Step::DeleteFirewall(firewall) if firewall.kill_switch.is_some());
    let (mut switches, remains): (Vec<Step>, Vec<Step>) =
        plan::undo(&ledger.possibly_applied(), &Hooks::default()).into_iter().partition(is_switch);
    let mut hands = Hands::new(&mut host, &source.interface, &ledger.file, interruption);
    execute_best_effort(&remains, &mut hands, &mut step_failed);
    // Of two of one name, which an `up` leaves that was killed, the later one was to take the other's place.
    let mut seen = HashSet::new();
    let mut is_last = |table: String| state.firewall_tables.contains(&table) && seen.insert(table);
    switches.retain(|step| table(step).is_some_and(&mut is_last));
    let held = (!switches.is_empty()).then(|| ledger.with_remaining(&switches));
    remember(entry, held.as_ref())?;
    Ok(held)
}

/// The firewall table that a step makes or deletes.
fn table(step: &Step) -> Option<String> {
    match step {
        Step::AddFirewall(firewall) | Step::DeleteFirewall(firewall) => Some(firewall.listed()),
        _ => None,
    }
}

/// Leaves the ledger of what remains, if anything does.
fn remember(entry: &Entry, remains: Option<&Ledger>) -> Result<(), LedgerError> {
    match remains {
        Some(ledger) => entry.write(ledger),
        None => entry.remove(),
    }
}

/// `steps` with the old kill switches `held` taken away that none of them replaces: as late as can be, but before the
/// commands to which the tunnel is up.
fn without(held: &[Step], steps: &[Step]) -> Vec<Step> {
    let is_replaced = |switch: &&Step| steps.iter().any(|step| table(step) == table(switch));
    let gone = held.iter().filter(|switch| !is_replaced(switch)).filter_map(Step::undo);
    let is_post_up = |step: &Step| matches!(step, Step::Hook { phase: Phase::PostUp, .. });
    let (before, after) = steps.split_at(steps.iter().position(is_post_up).unwrap_or(steps.len()));
    before.iter().cloned().chain(gone).chain(after.iter().cloned()).collect()
}

/// Undoes what was done, and says why. The kill switches of `remains` hold again.
fn take_back(
    failure: Failure,
    source: &Source,
    ledger: &Ledger,
    remains: Option<&Ledger>,
    entry: &Entry,
    hands: &mut Hands<'_>,
) -> Failed {
    hands.interruption.clear();
    let complaint = match &failure.step {
        _ if failure.error.kind() == io::ErrorKind::Interrupted => failure.error.to_string(),
        Some(step) => format!("{}: {}", plan::messages::describe(step), failure.error),
        None => failure.error.to_string(),
    };
    // Where no daemon was started, another's may be there.
    let is_ours = failure.done.iter().any(|step| matches!(step, Step::AddLink { .. }));
    // A daemon that failed half-way may have left its interface. The same goes for a command, and for name servers.
    let leaves = |step: &Step| matches!(step, Step::AddLink { .. } | Step::Hook { .. } | Step::SetDns { .. });
    let half_done = failure.step.map(|step| *step).filter(leaves);
    let done: Vec<Step> = failure.done.into_iter().chain(half_done).collect();
    let held = remains.map_or(&[][..], |remains| &remains.steps);
    let mut undo = plan::undo(&done, &hooks_after_failure(ledger, &done));
    // One that is made takes the place of what has its name.
    let is_held = |step: &Step| table(step).is_some() && held.iter().any(|switch| table(switch) == table(step));
    undo.retain(|step| !is_held(step));
    undo.extend_from_slice(held);
    (hands.forgive_hooks, hands.goes_on) = (true, true);
    let left = execute_best_effort(&undo, hands, &mut step_failed);
    if is_ours {
        wait_for_end(&source.interface, hands.interruption);
    }
    let remembered = match left.is_empty() {
        true => remember(entry, remains),
        false => {
            let left: Vec<Step> = held.iter().filter_map(Step::undo).chain(left).collect();
            entry.write(&ledger.with_remaining(&left))
        }
    };
    match remembered {
        Ok(()) => Failed { complaint, code: failure.exit_code },
        Err(error) => Failed { complaint: format!("{complaint}; and {error}"), code: failure.exit_code },
    }
}

/// The commands that a failed `up` runs when it has done `done`: wg-quick runs none (its `del_if`).
fn hooks_after_failure(ledger: &Ledger, done: &[Step]) -> Hooks {
    match ledger.compat {
        Compat::WgQuick => Hooks::default(),
        Compat::Native => ledger.hooks.undoing(done),
    }
}

/// Starts what looks after a tunnel in the background, where there is something to look after.
pub fn leave_keeper(source: &Source) {
    if source.names().is_empty() {
        return;
    }
    if let Err(error) = keep::start(&source.interface) {
        complain(&format!("Warning: endpoint names will not be resolved again: {error}"));
    }
}
