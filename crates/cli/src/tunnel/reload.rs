//! `reload`: applies a changed file to a tunnel that is up, without dropping a session. Only what the file changed is
//! changed: three-way between the file as it was, the file as it is, and what runs.

use linerate_control::client::AskError;
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel::Tunnel;
use linerate_control::tunnel_file::{Lists, TunnelFile, changes};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::ledger::{self, Entry, Ledger};
use linerate_host::plan;
use linerate_host::step::Step;
use linerate_host::transaction::{carry_out, carry_out_all};

use super::hands::Hands;
use super::interruption::Interruption;
use super::source::{Pending, Source};
use super::{Failed, Options, host, keep, ledgers, lock, look, names, running, step_failed, warn};
use crate::complain;

/// What a reload did.
pub(crate) struct Reloaded {
    /// How many peers were changed, added or removed.
    pub(crate) peers: usize,
    /// How many steps the host took.
    pub(crate) steps: usize,
    /// Endpoints are names, and nobody looks them up yet.
    pub(crate) needs_keeper: bool,
}

/// Applies the file.
///
/// # Errors
/// The tunnel is not up or has no ledger; or a step failed: what this reload did to the host is undone.
pub(crate) fn reload(source: &Source, options: &Options, interruption: &Interruption) -> Result<Reloaded, Failed> {
    let entry = lock(&source.interface, interruption)?;
    let no_ledger = || {
        let name = &source.interface;
        format!(
            "{name} was not brought up by linerate, so that nothing tells what the file has changed: take it down and bring it up with `linerate up {name}`"
        )
    };
    let (ledger, text) = (entry.read()?.ok_or_else(no_ledger)?, entry.read_file()?.ok_or_else(no_ledger)?);
    let then = Source::of(ledger.file.clone(), source.interface.clone(), &text);
    let mut tunnel = Tunnel::open(socket::DIRECTORY.as_ref(), source.interface.as_str())
        .map_err(|error| format!("{} does not answer: {error}", source.interface))?;
    let running = tunnel.get().map_err(|error| format!("{} does not answer: {error}", source.interface))?;

    let resolved = names::at_hand(&source.names());
    let then = with_running_keys(then.file, &running);
    let mut settings = changes(&then, &source.loaded()?, &running, lists(&source.interface));
    source.resolve(&mut settings, &resolved);
    let update = settings.update;
    let peers = update.peers.len();
    let wanted = source.wanted(&source.device_beside(&update, &running)?, Pending::Held);
    if options.hooks && source.hooks() != ledger.hooks {
        let name = &source.interface;
        complain(&format!(
            "Warning: the commands of the file have changed: those that brought {name} up will take it down"
        ));
    }
    let after = Ledger { wanted, file: source.path.clone(), ..ledger.clone() };
    let steps = change_host(&entry, &ledger, after, source, options.echo, interruption)?;
    tunnel.set(&update).map_err(|error: AskError| {
        format!("the host is changed, the peers are not: {}", crate::wg::reason_of_set(&error))
    })?;
    entry.write_file(&source.text())?;
    let names = source.names();
    for (named, _) in names.iter().zip(&resolved).filter(|(_, addresses)| addresses.is_empty()) {
        let known = running.peers.iter().any(|peer| peer.public_key == named.peer && peer.endpoint.is_some());
        if !known {
            complain(&format!("{named}: no address yet; {}", source.what_pends(named)));
        }
    }
    let needs_keeper = !names.is_empty() && !ledger.supervised && keep::is_missing(&source.interface);
    Ok(Reloaded { peers, steps, needs_keeper })
}

/// Has the host follow endpoints that became known when the tunnel was up: default routes that waited for them, and
/// routes that would now lead the tunnel's datagrams into itself.
///
/// # Errors
/// As [`reload`].
pub(super) fn follow_endpoints(interface: &InterfaceName, interruption: &Interruption) -> Result<(), Failed> {
    let entry = lock(interface, interruption)?;
    let (Some(ledger), Some(text)) = (entry.read()?, entry.read_file()?) else { return Ok(()) };
    let source = Source::of(ledger.file.clone(), interface.clone(), &text);
    let Some(running) = running(interface) else { return Ok(()) };
    let wanted = source.wanted(&source.device_beside(&DeviceUpdate::default(), &running)?, Pending::Held);
    let after = Ledger { wanted, ..ledger.clone() };
    change_host(&entry, &ledger, after, &source, false, interruption)?;
    Ok(())
}

/// Makes of a host that has what `before` tells one that has what `after` wants, and says how many steps that took.
fn change_host(
    entry: &Entry,
    before: &Ledger,
    after: Ledger,
    source: &Source,
    echo: bool,
    interruption: &Interruption,
) -> Result<usize, Failed> {
    let mut host = host()?;
    let numbers = ledger::lock_numbers(ledgers())?;
    let state = look(&mut host, &source.interface)?;
    let plan = plan::reload(&before.wanted, &after.wanted, &state, &before.steps, before.manner)?;
    warn(&plan.warnings);
    // The ledger first: whatever happens in between, `down` undoes what was done.
    let steps = before.steps.iter().chain(&plan.steps).cloned().collect();
    entry.write(&Ledger { steps, ..after })?;
    drop(numbers);
    let mut hands = Hands::new(&mut host, &source.interface, &source.path, interruption);
    hands.echo = echo;
    let Err(failure) = carry_out(&plan.steps, &mut hands) else { return Ok(plan.steps.len()) };
    interruption.clear();
    let undo: Vec<Step> = failure.done.iter().rev().filter_map(Step::undo).collect();
    carry_out_all(&undo, &mut hands, &mut step_failed);
    entry.write(before)?;
    let step = failure.step.as_ref().map_or_else(String::new, |step| format!("{}: ", plan::words::sentence(step)));
    Err(Failed { complaint: format!("{step}{}", failure.error), code: failure.exit_code })
}

/// Only linerated, which is known by its counters, certainly takes single prefixes away; the kernel does from Linux 6.16
/// on, and wireguard-go since 2025.
fn lists(interface: &InterfaceName) -> Lists {
    // A conversation of its own: other daemons end it at a question that they do not know.
    let told = Tunnel::open(socket::DIRECTORY.as_ref(), interface.as_str()).map(|mut tunnel| tunnel.stats().is_ok());
    if told.unwrap_or(false) { Lists::Change } else { Lists::Replace }
}

/// Keys that stand in files of their own are compared with those that run: nothing else tells what the files held.
fn with_running_keys(mut file: TunnelFile, running: &DeviceState) -> TunnelFile {
    if file.private_key_file.is_some() {
        file.private_key = running.private_key.clone();
    }
    for peer in file.peers.iter_mut().filter(|peer| peer.preshared_key_file.is_some()) {
        let state = running.peers.iter().find(|state| state.public_key == peer.public_key);
        peer.preshared_key = state.and_then(|state| state.preshared_key.clone());
    }
    file
}
