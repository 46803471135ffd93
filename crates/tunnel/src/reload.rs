//! `reload`: applies a changed file to a tunnel that is up, without dropping a session. Only what the file changed is
//! changed: three-way between the file as it was, the file as it is, and what runs.

use crate::execute::transaction::{execute, execute_best_effort};
use crate::record::ledger::{self, Entry, Ledger};
use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::{AllowedIpRemoval, TunnelFile, changes};
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::linux::Host;
use linerate_host::plan::{self, ResumedReload, Rollback};
use linerate_host::step::Step;
use linerate_host::wanted::Wanted;

use crate::execute::step_executor::{Hands, is_free};
use crate::interruption::Interruption;
use crate::read::{Pending, Source};
use crate::resolve as names;
use crate::supervise as keep;
use crate::{Failed, Options, host, ledgers, lock, look, running, step_failed, warn};
use linerate_program::complain;

/// What a reload did.
pub struct Reloaded {
    /// How many peers were changed, added or removed.
    pub peers: usize,
    /// How many steps the host took.
    pub steps: usize,
    /// What else has changed of the device, a sentence each. They hold no key.
    pub sentences: Vec<String>,
    /// Endpoints are names, and nobody looks them up yet.
    pub needs_keeper: bool,
}

/// Applies the file.
///
/// # Errors
/// The tunnel is not up, has no ledger, or is another file's; or a step failed: what this reload did to the host is
/// undone.
pub fn reload(source: &Source, options: &Options, interruption: &Interruption) -> Result<Reloaded, Failed> {
    let entry = lock(&source.interface, interruption)?;
    let no_ledger = || {
        let name = &source.interface;
        format!(
            "{name} was not brought up by linerate, so the changes of its file are unknown: take it down, then run `linerate up {name}`"
        )
    };
    let (mut ledger, text) = (entry.read()?.ok_or_else(no_ledger)?, entry.read_file()?.ok_or_else(no_ledger)?);
    can_reload(&ledger, source)?;
    let then = Source::of(ledger.file.clone(), source.interface.clone(), &text);
    ledger.file.clone_from(&source.path);
    ledger.called = Some(source.called.clone());
    let text = source.text();
    let next = entry.read_next_file()?;
    let may_be_applied = next.as_ref().is_some_and(|next| **next == *text);
    if let Some(next) = next.filter(|_| !may_be_applied) {
        // The reload before was ended when it was about to apply another file, or had done so.
        give_back(&Source::of(ledger.file.clone(), source.interface.clone(), &next), &then)?;
    }
    let running = state_of(source)?;

    let resolved = names::at_hand(&source.names());
    let then = with_running_keys(then.file, &running);
    let mut settings = changes(&then, &source.loaded()?, &running, lists(&source.interface));
    source.resolve(&mut settings, &resolved);
    let update = settings.update;
    let wanted = source.wanted(&source.device_beside(&update, &running)?, Pending::Held);
    if options.hooks && source.hooks() != ledger.hooks {
        let name = &source.interface;
        complain(&format!("Warning: hooks changed; `down` will still run those recorded when {name} was brought up"));
    }
    if source.file.user != then.user {
        complain(&format!(
            "Warning: User takes effect when the daemon starts: take {} down and up again",
            source.interface
        ));
    }
    entry.write_next_file(&text)?;
    let given_up = |failed: Failed| {
        // Unless the reload before may have applied it. One that stays does no harm: what was not applied is given back
        // for nothing.
        if !may_be_applied {
            let _ = entry.forget_next_file();
        }
        failed
    };
    let change = Change::begin(&entry, ledger, wanted, interruption, options.echo).map_err(given_up)?;
    match set(source, &update) {
        Ok(()) => {}
        Err(error @ ClientError::Reply(_)) => {
            return Err(given_up(change.take_back(refused(&error, &update, &running), interruption)));
        }
        // Whether it was applied is not known.
        Err(error) => return Err(change.take_back(refused(&error, &update, &running), interruption)),
    }
    entry.adopt_next_file()?;
    let (ledger, steps) = change.end()?;
    let names = source.names();
    for (named, _) in names.iter().zip(&resolved).filter(|(_, addresses)| addresses.is_empty()) {
        let known = running.peers.iter().any(|peer| peer.public_key == named.peer && peer.endpoint.is_some());
        if !known {
            complain(&format!("{named}: no address yet; {}", source.what_pends(named)));
        }
    }
    // A keeper that has given up its privileges ends when default routes are held back: it could not set name servers.
    let is_missing = || source.holds_back(&ledger.wanted) || keep::is_missing(&source.interface);
    let needs_keeper = !names.is_empty() && !ledger.supervised && is_missing();
    Ok(Reloaded { peers: update.peers.len(), steps, sentences: sentences(&update, &running), needs_keeper })
}

fn state_of(source: &Source) -> Result<DeviceState, Failed> {
    let state = open(source).and_then(|mut tunnel| tunnel.get());
    state.map_err(|error| format!("{} does not respond: {error}", source.interface).into())
}

fn set(source: &Source, update: &DeviceUpdate) -> Result<(), ClientError> {
    open(source)?.set(update)
}

/// A conversation for one question: boringtun closes it after its reply.
fn open(source: &Source) -> Result<TunnelClient, ClientError> {
    Ok(TunnelClient::open(socket::DIRECTORY.as_ref(), source.interface.as_str())?)
}

/// Has a device that may run with `next` run with `then`. What neither of them says stays.
fn give_back(next: &Source, then: &Source) -> Result<(), Failed> {
    let running = state_of(then)?;
    let [from, to] = [next, then].map(|source| with_running_keys(source.file.clone(), &running));
    let update = changes(&from, &to, &running, AllowedIpRemoval::Replace).update;
    set(then, &update).map_err(|error| refused(&error, &update, &running))
}

/// Whether the ledger is that of a tunnel which is up, and which `source` describes.
fn can_reload(ledger: &Ledger, source: &Source) -> Result<(), Failed> {
    let name = &source.interface;
    if is_cut_short(ledger) {
        return Err(Failed::new(format!(
            "{name} is only partly up: an earlier up or down was interrupted; `linerate down {name}` cleans up"
        )));
    }
    if !source.is_file_of(ledger) {
        let (own, other) = (ledger.file.display(), source.path.display());
        return Err(Failed::new(format!(
            "{name} was brought up from {own}, and this is {other}: `linerate reload {own}` applies its own file; to change to the other, take it down and bring it up from there"
        )));
    }
    Ok(())
}

/// Whether an `up` or `down` was ended before it had done all.
fn is_cut_short(ledger: &Ledger) -> bool {
    !ledger.complete && ledger.pending.is_empty()
}

/// Has the host follow endpoints that became known when the tunnel was up: default routes that waited for them, and
/// routes that would now lead the tunnel's datagrams into itself.
///
/// # Errors
/// As [`reload`].
pub(crate) fn follow_endpoints(interface: &InterfaceName, interruption: &Interruption) -> Result<(), Failed> {
    let entry = lock(interface, interruption)?;
    let (Some(ledger), Some(text)) = (entry.read()?, entry.read_file()?) else { return Ok(()) };
    if is_cut_short(&ledger) {
        return Ok(());
    }
    let source = Source::of(ledger.file.clone(), interface.clone(), &text);
    let Some(running) = running(interface) else { return Ok(()) };
    let wanted = source.wanted(&source.device_beside(&DeviceUpdate::default(), &running)?, Pending::Held);
    Change::begin(&entry, ledger, wanted, interruption, false)?.end()?;
    Ok(())
}

/// A change of the host whose steps are done. Until it [ends](Change::end) or is taken back, the ledger tells of it as
/// under way, so that a reload that is ended in the middle is done over by the next one, and undone by `down`.
struct Change<'a> {
    entry: &'a Entry,
    host: Host,
    echo: bool,
    /// The ledger that tells of the change; `steps`, `wanted` and the text of the file are from before it.
    ledger: Ledger,
    /// How many steps were taken.
    count: usize,
    /// The steps that make of what `ledger.steps` left what is wanted.
    lasting: Vec<Step>,
    wanted: Wanted,
}

impl<'a> Change<'a> {
    /// Makes of a host that has what `ledger` tells one that has what is `wanted`.
    ///
    /// # Errors
    /// A step failed or the user has interrupted: what was done is undone.
    fn begin(
        entry: &'a Entry,
        mut ledger: Ledger,
        wanted: Wanted,
        interruption: &Interruption,
        echo: bool,
    ) -> Result<Self, Failed> {
        let mut host = host()?;
        let numbers = ledger::lock_allocation(ledgers())?;
        let state = look(&mut host, entry.interface())?;
        let Ledger { wanted: then, steps: done, pending, compat, .. } = &ledger;
        let ResumedReload { rollback: back, plan } = plan::resume(then, &wanted, &state, done, pending, *compat)?;
        warn(&plan.warnings);
        let steps: Vec<Step> = back.steps.iter().chain(&plan.steps).cloned().collect();
        let before = ledger.pending.len();
        ledger.pending.extend_from_slice(&steps);
        if !steps.is_empty() {
            // The ledger first: whatever happens in between, `down` undoes what was done.
            ledger.complete = false;
            entry.write(&ledger)?;
        }
        drop(numbers);
        let lasting = [back.not_undone, plan.steps].concat();
        let mut change = Self { entry, host, echo, ledger, count: steps.len(), lasting, wanted };
        let Err(failure) = execute(&steps, &mut change.hands(interruption)) else { return Ok(change) };
        // Name servers that were being set may be there.
        let half_done = usize::from(matches!(failure.step.as_deref(), Some(Step::SetDns { .. })));
        change.ledger.pending.truncate(before + failure.done.len() + half_done);
        let step =
            failure.step.as_ref().map_or_else(String::new, |step| format!("{}: ", plan::messages::describe(step)));
        let failed = Failed { complaint: format!("{step}{}", failure.error), code: failure.exit_code };
        Err(change.take_back(failed, interruption))
    }

    /// Makes the host what it was before, since the change `failed`, and says why. What cannot be taken back stays in the
    /// ledger, for `down`.
    fn take_back(self, failed: Failed, interruption: &Interruption) -> Failed {
        interruption.clear();
        match self.undo(interruption) {
            Ok(()) => failed,
            Err(error) => Failed { complaint: format!("{}; and {}", failed.complaint, error.complaint), ..failed },
        }
    }

    fn undo(mut self, interruption: &Interruption) -> Result<(), Failed> {
        let state = look(&mut self.host, self.entry.interface())?;
        let pending = std::mem::take(&mut self.ledger.pending);
        let Rollback { steps, not_undone } = plan::roll_back(&pending, &self.ledger.steps, &state);
        let left = execute_best_effort(&steps, &mut self.hands(interruption), &mut step_failed);
        let is_left = |step: &Step| step.undo().is_some_and(|undo| left.contains(&undo));
        self.ledger.steps.extend(pending.into_iter().filter(is_left).chain(not_undone));
        self.ledger.complete = true;
        Ok(self.entry.write(&self.ledger)?)
    }

    /// Has the ledger tell that all is done; gives it back, with the number of steps.
    fn end(mut self) -> Result<(Ledger, usize), Failed> {
        self.ledger.steps.append(&mut self.lasting);
        self.ledger.pending.clear();
        (self.ledger.wanted, self.ledger.complete) = (self.wanted, true);
        self.entry.write(&self.ledger)?;
        Ok((self.ledger, self.count))
    }

    fn hands<'b>(&'b mut self, interruption: &'b Interruption) -> Hands<'b> {
        let mut hands = Hands::new(&mut self.host, self.entry.interface(), &self.ledger.file, interruption);
        hands.echo = self.echo;
        hands
    }
}

/// Why a device did not take `update`: it takes all of a change or nothing, and may not have come to say which.
fn refused(error: &ClientError, update: &DeviceUpdate, running: &DeviceState) -> Failed {
    let reason = error.reason_of_set();
    if !matches!(error, ClientError::Reply(_)) {
        return Failed::new(format!(
            "{reason}; the host is as it was, but the tunnel may have the change: reload again"
        ));
    }
    let port = new_port(update, running).unwrap_or(0);
    let reason = is_free(port).map_or_else(|taken| taken.to_string(), |()| reason);
    Failed::new(format!("{reason}; the host is as it was"))
}

fn new_port(update: &DeviceUpdate, running: &DeviceState) -> Option<u16> {
    update.listen_port.filter(|port| *port != running.listen_port)
}

/// What an update changes of a device beside its peers.
fn sentences(update: &DeviceUpdate, running: &DeviceState) -> Vec<String> {
    let is_other_key = update.private_key.is_some() && update.private_key != running.private_key;
    let key = is_other_key.then(|| "it has another private key".to_owned());
    let port = new_port(update, running).map(|port| format!("it listens on port {port}"));
    let mark = update.fwmark.filter(|mark| *mark != running.fwmark).map(|mark| match mark {
        0 => "its datagrams have no mark any more".to_owned(),
        mark => format!("it marks its datagrams with {mark:#x}"),
    });
    [key, port, mark].into_iter().flatten().collect()
}

/// Only linerated, which is known by its counters, certainly takes single prefixes away; the kernel does from Linux 6.16
/// on, and wireguard-go since 2025.
fn lists(interface: &InterfaceName) -> AllowedIpRemoval {
    // A conversation of its own: other daemons end it at a question that they do not know.
    let told =
        TunnelClient::open(socket::DIRECTORY.as_ref(), interface.as_str()).map(|mut tunnel| tunnel.stats().is_ok());
    if told.unwrap_or(false) { AllowedIpRemoval::OneByOne } else { AllowedIpRemoval::Replace }
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
