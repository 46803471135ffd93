//! `reload`: applies a changed file to a running tunnel without dropping a session. Compares the old file, the new file
//! and the running state, and changes only what differs between the files.

use std::fs::File;
use std::sync::Arc;

use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::{AllowedIpRemoval, TunnelFile, changes};
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::plan::gateway::restrictions_of_both;
use linerate_host::plan::{self, Plan, ResumedReload, Rollback, Warning};
use linerate_host::spec::{Gateway, HostSpec, Restriction};
use linerate_host::step::{GatewayTable, Step};
use linerate_host::system::Host;
use linerate_host::transaction::{execute, execute_best_effort};

use crate::context::Context;
use crate::edit::host_spec;
use crate::error::Error;
use crate::execute::step_executor::{StepExecutor, check_port};
use crate::identity::{self, Place, Purpose};
use crate::ledger::{self, Ledger, LockedLedger, last_gateway_table};
use crate::read::{ConfigFile, DefaultRoutes};
use crate::resolve::NamedEndpoints;
use crate::snapshot::{self, Snapshot};
use crate::status::is_absence;
use crate::{Options, background, limits, lock, running};

/// What a reload did.
pub struct Reloaded {
    /// How many peers were changed, added or removed.
    pub peers: usize,
    /// How many steps were taken on the host.
    pub steps: usize,
    /// What else was changed on the device, as messages without keys.
    pub messages: Vec<String>,
    /// The file needs a supervisor, and none runs.
    pub(crate) needs_supervisor: bool,
}

/// Applies the file.
///
/// # Errors
/// The tunnel is not up, has no ledger, or was brought up from another file; or a step failed: what this reload did to
/// the host is undone.
pub fn reload(file: &ConfigFile, options: &Options, context: Context<'_>) -> Result<Reloaded, Error> {
    let locked = lock::lock(&file.interface, context)?;
    let changed = file.changed()?;
    let file = changed.as_ref().unwrap_or(file);
    let done = reload_locked(file, options, context, &locked)?;
    drop(locked);
    if done.needs_supervisor {
        background::start(file, context);
    }
    Ok(done)
}

/// As [`reload`], by a command that holds the lock. Does not start a supervisor.
pub(crate) fn reload_locked(
    file: &ConfigFile,
    options: &Options,
    context: Context<'_>,
    locked: &LockedLedger,
) -> Result<Reloaded, Error> {
    let name = &file.interface;
    let no_ledger = || {
        Error::State(format!(
            "{name} was not brought up by linerate, so the changes of its file are unknown: take it down, then run `linerate up {name}`"
        ))
    };
    let (mut ledger, text) = (locked.read()?.ok_or_else(no_ledger)?, locked.read_file()?.ok_or_else(no_ledger)?);
    let place = identity::of(&ledger)?;
    check_reloadable(&ledger, file)?;
    let old = ConfigFile::of(ledger.file.clone(), name.clone(), text);
    // Of a tunnel that a hook has moved, its daemon is within reach, and what there is on the host is the hook's.
    let is_only_daemon =
        place == Place::Moved && ledger.identity.has_socket(name) && is_for_daemon(&ledger, &old, file)?;
    if !is_only_daemon && let Some(refusal) = place.refusal(&ledger, Purpose::Change("reload")) {
        return Err(refusal);
    }
    ledger.file.clone_from(&file.path);
    ledger.called = Some(file.called.clone());
    let text = file.text();
    let next = locked.read_next_file()?;
    let may_be_applied = next.as_ref().is_some_and(|next| **next == *text);
    if let Some(next) = next.filter(|_| !may_be_applied) {
        // An earlier reload of another file was killed, before or after it applied that file.
        revert(&ConfigFile::of(ledger.file.clone(), name.clone(), next), &old)?;
    } else {
        ledger.adopt_restrictions();
    }
    let mut running = state_of(name)?;
    let restored = restore_mark(name, &ledger, &mut running)?;

    let names = NamedEndpoints::resolve(file);
    // What `up --fix-firewall` asked for holds until `down`.
    let fixes = options.fix_firewall || (ledger.spec.forwarding.fixes_firewall && !old.contents.fix_firewall);
    let opened_firewalls = old.opens_firewalls(&ledger.spec);
    let old = with_running_keys(old.contents, &running);
    let mut settings = changes(&old, &*file.loaded()?, &running, removal(name));
    names.fill_in(&mut settings);
    let update = settings.update;
    let mut spec = file.host_spec(&file.device_after(&update, &running)?, DefaultRoutes::OnceResolved);
    spec.forwarding.fixes_firewall |= fixes;
    if options.hooks && file.hooks() != ledger.hooks {
        context.warn(format_args!("hooks changed; `down` will still run those recorded when {name} was brought up"));
    }
    for (setting, changed) in [("User", file.contents.user != old.user), ("Spin", file.contents.spin != old.spin)] {
        if changed {
            context.warn(format_args!("{setting} takes effect at the next `up`: take {name} down and up again"));
        }
    }
    limits::warn_of_usage(ledger.usage.is_some(), &old, &file.contents, name.as_str(), context);
    locked.write_next_file(text)?;
    let give_up = |error: Error| {
        // An earlier reload may have applied it. A leftover file is harmless: reverting it is a no-op.
        if !may_be_applied {
            let _ = locked.forget_next_file();
        }
        error
    };
    let warn = &mut |warning: &Warning| context.warn(warning);
    let pending = match is_only_daemon {
        true => {
            let restrictions = ledger.spec.forwarding.restrictions.clone();
            PendingReload::restrict(locked, ledger, restrictions, true, context)
        }
        false => PendingReload::begin(locked, ledger, spec, context, true, warn),
    };
    let pending = pending.map_err(give_up)?;
    let lost = limits::set(name.as_str(), &update);
    if let Err(error) = lost {
        let reason = refused(&error, &update, &running);
        // Otherwise the daemon may have applied it.
        return Err(match error {
            ClientError::Reply(_) => give_up(pending.roll_back(reason)),
            _ => pending.roll_back_unanswered(reason),
        });
    }
    if let Ok(lost) = lost {
        lost.warn(name.as_str(), context);
    }
    locked.adopt_next_file()?;
    let (ledger, steps) = pending.finish()?;
    for named in names.unanswered() {
        let is_known = running.peers.iter().any(|peer| peer.public_key == named.peer && peer.endpoint.is_some());
        if !is_known {
            context.message(file.without_address(named));
        }
    }
    // A confined supervisor exits when it lacks rights that it needs now: to set name servers for default routes that are
    // deferred, or to change firewalls.
    let is_confined =
        || file.has_deferred_routes(&ledger.spec) || (file.opens_firewalls(&ledger.spec) && !opened_firewalls);
    let is_missing = || is_confined() || background::is_missing(name);
    let needs_supervisor = file.needs_supervisor(ledger.compat) && !ledger.supervised && is_missing();
    let messages = restored.into_iter().chain(messages(&update, &running)).collect();
    Ok(Reloaded { peers: update.peers.len(), steps, messages, needs_supervisor })
}

/// Whether a reload has nothing to do on the host: the file asks the same of it as before, and nothing is lost there.
fn is_for_daemon(ledger: &Ledger, old: &ConfigFile, new: &ConfigFile) -> Result<bool, Error> {
    let spec = |file: &ConfigFile| host_spec(file, &file.contents.peers);
    let state = Snapshot::take(&new.interface)?.state;
    Ok(spec(old) == spec(new) && plan::lost(&ledger.in_force(), &state).is_empty())
}

fn state_of(interface: &InterfaceName) -> Result<DeviceState, Error> {
    let state = open(interface).and_then(|mut tunnel| tunnel.get());
    state.map_err(|error| match is_absence(&error) {
        true => Error::State(format!(
            "{interface} does not run, because its daemon has ended; run `linerate down {interface}`, then `linerate \
             up {interface}`"
        )),
        false => Error::State(format!("{interface} does not respond: {error}")),
    })
}

fn set(interface: &InterfaceName, update: &DeviceUpdate) -> Result<(), ClientError> {
    limits::set(interface.as_str(), update).map(drop)
}

/// Restores the device's mark to that of the tunnel's routing rules, if another program has changed it; returns a message
/// for the user. Runs before the plan is made, which relies on the mark.
fn restore_mark(
    interface: &InterfaceName,
    ledger: &Ledger,
    running: &mut DeviceState,
) -> Result<Option<String>, Error> {
    let Some(Step::SetFwmark { fwmark, .. }) = ledger.lost_mark(running.fwmark) else { return Ok(None) };
    let update = DeviceUpdate { fwmark: Some(fwmark), ..DeviceUpdate::default() };
    set(interface, &update).map_err(|error| refused(&error, &update, running))?;
    running.fwmark = fwmark;
    Ok(Some(format!("its firewall mark was changed by another program and is {fwmark:#x} again")))
}

/// Opens a connection for one request: boringtun closes it after its reply.
pub(crate) fn open(interface: &InterfaceName) -> Result<TunnelClient, ClientError> {
    TunnelClient::open(socket::DIRECTORY.as_ref(), interface.as_str())
}

/// Reverts a device from the configuration `next` to `old`, unless it has `old` already. A setting that is in neither
/// file is left alone.
fn revert(next: &ConfigFile, old: &ConfigFile) -> Result<(), Error> {
    let running = state_of(&old.interface)?;
    let [from, to] = [next, old].map(|file| with_running_keys(file.contents.clone(), &running));
    let update = changes(&from, &to, &running, AllowedIpRemoval::Replace).update;
    set(&old.interface, &update).map_err(|error| refused(&error, &update, &running))
}

/// Checks that the ledger is that of a tunnel that is up, and was brought up from `file`.
fn check_reloadable(ledger: &Ledger, file: &ConfigFile) -> Result<(), Error> {
    let name = &file.interface;
    if is_interrupted(ledger) {
        return Err(Error::State(format!(
            "{name} is only partly up: an earlier up or down was interrupted; `linerate down {name}` cleans up"
        )));
    }
    if !file.is_file_of(ledger) {
        let (own, other) = (ledger.file.display(), file.path.display());
        return Err(Error::State(format!(
            "{name} was brought up from {own}, and this is {other}: `linerate reload {own}` applies its own file; to change to the other, take it down and bring it up from there"
        )));
    }
    Ok(())
}

/// Whether an `up` or `down` was killed.
fn is_interrupted(ledger: &Ledger) -> bool {
    !ledger.complete && ledger.pending.is_empty()
}

/// The part of a reload that concerns the host, for the file that the tunnel has. After endpoints have been resolved, it
/// adds default routes that were deferred, and corrects routes that would lead the tunnel's packets into itself; after
/// default routes have changed, it forwards between the tunnel and their interfaces. `warn` gets the plan's warnings.
///
/// # Errors
/// As [`reload`].
pub(crate) fn reload_host(
    interface: &InterfaceName,
    context: Context<'_>,
    warn: &mut dyn FnMut(&Warning),
) -> Result<(), Error> {
    let locked = lock::lock(interface, context)?;
    let (Some(mut ledger), Some(text)) = (locked.read()?, locked.read_file()?) else { return Ok(()) };
    if is_interrupted(&ledger) {
        return Ok(());
    }
    if identity::of(&ledger)? != Place::Here {
        return Ok(());
    }
    ledger.adopt_restrictions();
    let file = ConfigFile::of(ledger.file.clone(), interface.clone(), text);
    let Some(running) = running(interface) else { return Ok(()) };
    let device = file.device_after(&DeviceUpdate::default(), &running)?;
    let mut spec = file.host_spec(&device, DefaultRoutes::OnceResolved);
    spec.forwarding.fixes_firewall = ledger.spec.forwarding.fixes_firewall;
    if locked.read_next_file()?.is_some() {
        // The daemon may have the peers of an edit that it has not answered.
        spec.forwarding.restrictions.clone_from(&ledger.spec.forwarding.restrictions);
    }
    let gateway = ledger.spec.forwarding.gateway.clone();
    let (ledger, _) = PendingReload::begin(&locked, ledger, spec, context, false, warn)?.finish()?;
    if ledger.spec.forwarding.gateway != gateway {
        context.message(format_args!("{interface}: it forwards to the interfaces of other default routes now"));
    }
    Ok(())
}

/// Whether `Gateway = auto` stands for other interfaces than those of the tunnel's plan; true without a gateway, whose
/// tunnel follows default routes in other ways.
///
/// # Errors
/// The ledger or the host cannot be read.
pub(crate) fn default_routes_differ(interface: &InterfaceName) -> Result<bool, Error> {
    let Some(ledger) = ledger::read(ledger::directory(), interface)? else { return Ok(false) };
    if ledger.spec.forwarding.gateway == Gateway::Off {
        return Ok(true);
    }
    let mut spec = ledger.spec.clone();
    spec.forwarding.gateway = Gateway::Auto;
    plan::gateway::resolve(&mut spec, &Snapshot::take(interface)?.state, Some(&ledger.spec.forwarding.gateway));
    Ok(spec != ledger.spec)
}

/// A reload whose steps on the host are done. Until it is [finished](PendingReload::finish) or rolled back, the ledger
/// has them as pending: if it is killed, the next reload starts over, and `down` undoes it.
///
/// Until the daemon has answered, whether it has the peers of before or those to come is not known. The restrictions on
/// the host are those of both meanwhile: no peer of either reaches more than the file says of it.
pub(crate) struct PendingReload<'a> {
    locked: &'a LockedLedger,
    host: Host,
    context: Context<'a>,
    reports_steps: bool,
    /// The ledger with the pending steps; `steps`, `spec` and the copy of the file are from before the reload.
    ledger: Ledger,
    /// How many steps were executed.
    count: usize,
    /// The steps from the recorded state to the desired one.
    new_steps: Vec<Step>,
    /// The state of the host, with the restrictions that it has meanwhile.
    spec: HostSpec,
    /// The restrictions once the daemon has answered.
    restrictions: Vec<Restriction>,
}

impl<'a> PendingReload<'a> {
    /// Changes a host with the steps of `ledger` to the state `spec`, but for restrictions: the pipeline's snapshot, plan,
    /// record and execute.
    ///
    /// # Errors
    /// A step failed or a signal has come: what was done is undone.
    fn begin(
        locked: &'a LockedLedger,
        mut ledger: Ledger,
        mut spec: HostSpec,
        context: Context<'a>,
        reports_steps: bool,
        warn: &mut dyn FnMut(&Warning),
    ) -> Result<Self, Error> {
        let mut snapshot = Snapshot::for_allocation(locked.interface())?;
        // Another one since the interface was in another network namespace for a while.
        ledger.index = snapshot.state.link(locked.interface().as_str()).map(|link| link.index).or(ledger.index);
        if !reports_steps {
            // A supervisor in the background may not run the programs that set name servers.
            snapshot.state = snapshot.state.without_dns();
        }
        let warnings = snapshot.resolve_gateway(&mut spec, Some(&ledger.spec))?;
        warnings.iter().for_each(&mut *warn);
        let Ledger { spec: old, steps: done, pending, compat, .. } = &ledger;
        let both = restrictions_of_both(&old.forwarding.restrictions, &spec.forwarding.restrictions);
        let restrictions = std::mem::replace(&mut spec.forwarding.restrictions, both);
        let resumed = plan::resume(old, &spec, &snapshot.state, done, pending, *compat)?;
        resumed.plan.warnings.iter().for_each(warn);
        let Snapshot { host, allocation, .. } = snapshot;
        let new_steps = Vec::new();
        let reload = Self { locked, host, context, reports_steps, ledger, count: 0, new_steps, spec, restrictions };
        reload.execute(resumed, allocation)
    }

    /// Has `restrictions` take the place of those in the tunnel's table, if it has one: there is nothing to plan, and
    /// nothing of the host to read. If the daemon `is_asked`, only what both let pass passes until it has answered.
    ///
    /// # Errors
    /// As [`PendingReload::begin`].
    pub(crate) fn restrict(
        locked: &'a LockedLedger,
        ledger: Ledger,
        restrictions: Vec<Restriction>,
        is_asked: bool,
        context: Context<'a>,
    ) -> Result<Self, Error> {
        let mut spec = ledger.spec.clone();
        let before = &ledger.spec.forwarding.restrictions;
        let meanwhile = if is_asked { restrictions_of_both(before, &restrictions) } else { restrictions.clone() };
        let table = ledger.gateway_table().filter(|_| meanwhile != *before);
        let steps = table.map(|table| with_restrictions(table, meanwhile.clone())).into_iter().collect();
        spec.forwarding.restrictions = meanwhile;
        let plan = Plan { steps, warnings: Vec::new() };
        let (host, new_steps) = (snapshot::open()?, Vec::new());
        let reload =
            Self { locked, host, context, reports_steps: false, ledger, count: 0, new_steps, spec, restrictions };
        reload.execute(ResumedReload { plan, ..ResumedReload::default() }, None)
    }

    /// Records and executes the steps. Once they are recorded, other tunnels may allocate again.
    fn execute(mut self, resumed: ResumedReload, allocation: Option<File>) -> Result<Self, Error> {
        let ResumedReload { rollback, plan } = resumed;
        let steps: Vec<Step> = rollback.steps.iter().chain(&plan.steps).cloned().collect();
        let before = self.ledger.pending.len();
        self.ledger.pending.extend_from_slice(&steps);
        if !steps.is_empty() {
            // Recorded first, so that `down` can undo it whatever happens.
            self.ledger.complete = false;
            self.locked.write(&self.ledger)?;
        }
        drop(allocation);
        (self.new_steps, self.count) = ([rollback.not_undone, plan.steps].concat(), steps.len());
        let mut executor = self.executor();
        let executed = execute(&steps, &mut executor);
        // What could not be done is not ours to undo.
        let not_done = std::mem::take(&mut executor.not_done);
        self.new_steps.retain(|step| !not_done.contains(step));
        let Err(failure) = executed else { return Ok(self) };
        // A program that sets name servers may have set them before it failed.
        let half_done = usize::from(matches!(failure.step.as_deref(), Some(Step::SetDns { .. })));
        self.ledger.pending.truncate(before + failure.done.len() + half_done);
        let done = self.ledger.pending.split_off(before);
        self.ledger.pending.extend(done.into_iter().filter(|step| !not_done.contains(step)));
        Err(self.roll_back(failure.into()))
    }

    /// Rolls the host back because of `error`, and returns that. Steps that cannot be undone stay in the ledger for
    /// `down`.
    pub(crate) fn roll_back(self, error: Error) -> Error {
        self.context.interruption.clear();
        error.and(self.undo())
    }

    /// As [`PendingReload::roll_back`], where the daemon may have its peers: the restrictions stay.
    fn roll_back_unanswered(self, error: Error) -> Error {
        let Self { locked, context, reports_steps, ledger, .. } = &self;
        if self.spec.forwarding.restrictions == ledger.spec.forwarding.restrictions {
            return self.roll_back(error);
        }
        context.interruption.clear();
        let mut spec = ledger.spec.clone();
        spec.forwarding.restrictions.clone_from(&self.spec.forwarding.restrictions);
        let warn = &mut |warning: &Warning| context.warn(warning);
        let back = Self::begin(locked, ledger.clone(), spec, *context, *reports_steps, warn).and_then(Self::finish);
        error.and(back.map(drop))
    }

    fn undo(mut self) -> Result<(), Error> {
        let state = snapshot::read(&mut self.host, self.locked.interface())?;
        let pending = std::mem::take(&mut self.ledger.pending);
        let Rollback { steps, not_undone } = plan::roll_back(&pending, &self.ledger.steps, &state);
        let context = self.context;
        let mut on_error = |step: &Step, failure: &_| context.step_failed(step, failure);
        let left = execute_best_effort(&steps, &mut self.executor(), &mut on_error);
        let is_left = |step: &Step| step.undo().is_some_and(|undo| left.contains(&undo));
        self.ledger.steps.extend(pending.into_iter().filter(is_left).chain(not_undone));
        self.ledger.complete = true;
        Ok(self.locked.write(&self.ledger)?)
    }

    /// Records that all steps are done, and that the daemon may have its peers, or those before.
    pub(crate) fn finish_unanswered(mut self) -> Result<(), Error> {
        self.restrictions.clone_from(&self.spec.forwarding.restrictions);
        self.finish().map(drop)
    }

    /// Has the restrictions hold that are to come, and records that all steps are done; returns the ledger and the number
    /// of steps.
    pub(crate) fn finish(mut self) -> Result<(Ledger, usize), Error> {
        self.settle()?;
        self.ledger.steps.append(&mut self.new_steps);
        self.ledger.forget_replaced_gateways();
        self.ledger.pending.clear();
        (self.ledger.spec, self.ledger.complete) = (self.spec, true);
        self.locked.write(&self.ledger)?;
        Ok((self.ledger, self.count))
    }

    /// Has the restrictions to come take the place of those that the host has meanwhile. Where that fails, those stay:
    /// they let less pass, and the next reload tries again.
    fn settle(&mut self) -> Result<(), Error> {
        let table = last_gateway_table(&self.new_steps).or(self.ledger.gateway_table());
        let Some(table) = table.filter(|_| self.spec.forwarding.restrictions != self.restrictions) else {
            return Ok(());
        };
        let step = with_restrictions(table, self.restrictions.clone());
        self.ledger.pending.push(step.clone());
        self.ledger.complete = false;
        self.locked.write(&self.ledger)?;
        let context = self.context;
        let mut on_error = |step: &Step, failure: &_| context.step_failed(step, failure);
        if execute_best_effort(std::slice::from_ref(&step), &mut self.executor(), &mut on_error).is_empty() {
            self.spec.forwarding.restrictions.clone_from(&self.restrictions);
            self.new_steps.push(step);
            self.count += 1;
        }
        Ok(())
    }

    fn executor(&mut self) -> StepExecutor<'_> {
        let Self { locked, host, context, ledger, .. } = self;
        let mut executor = StepExecutor::new(host, locked.interface(), &ledger.file, *context);
        executor.reports_steps = self.reports_steps;
        executor
    }
}

/// The step that has a table with other restrictions take the place of `table`, or none.
fn with_restrictions(table: &GatewayTable, restrictions: Vec<Restriction>) -> Step {
    let new = GatewayTable { restrictions, ..table.clone() };
    if new.is_empty() { Step::DeleteGateway(table.clone()) } else { Step::AddGateway(new) }
}

/// Why a device did not take `update`. A daemon applies it completely or not at all.
fn refused(error: &ClientError, update: &DeviceUpdate, running: &DeviceState) -> Error {
    let reason = error.reason_of_set();
    if !matches!(error, ClientError::Reply(_)) {
        // The host may have the restrictions of both.
        return Error::State(format!("{reason}; the tunnel may have the change: reload again"));
    }
    let port = new_port(update, running).unwrap_or(0);
    let reason = check_port(port).map_or_else(|in_use| in_use.to_string(), |()| reason);
    Error::State(format!("{reason}; the host is as it was"))
}

fn new_port(update: &DeviceUpdate, running: &DeviceState) -> Option<u16> {
    update.listen_port.filter(|port| *port != running.listen_port)
}

/// Describes what an update changes on a device besides its peers.
fn messages(update: &DeviceUpdate, running: &DeviceState) -> Vec<String> {
    let is_other_key = update.private_key.is_some() && update.private_key != running.private_key;
    let key = is_other_key.then(|| "it has another private key".to_owned());
    let port = new_port(update, running).map(|port| format!("it listens on port {port}"));
    let mark = update.fwmark.filter(|mark| *mark != running.fwmark).map(|mark| match mark {
        0 => "it no longer marks its datagrams".to_owned(),
        mark => format!("it marks its datagrams with {mark:#x}"),
    });
    [key, port, mark].into_iter().flatten().collect()
}

/// How to remove allowed IPs. Only linerated, which is recognized by its counters, is known to remove single prefixes;
/// the kernel does from Linux 6.16 on, wireguard-go since 2025.
pub(crate) fn removal(interface: &InterfaceName) -> AllowedIpRemoval {
    // A separate connection: other daemons close it after an unknown request.
    let counters =
        TunnelClient::open(socket::DIRECTORY.as_ref(), interface.as_str()).map(|mut tunnel| tunnel.stats().is_ok());
    if counters.unwrap_or(false) { AllowedIpRemoval::OneByOne } else { AllowedIpRemoval::Replace }
}

/// The file with the running keys in place of those from key files, whose previous contents are not known.
fn with_running_keys(mut file: TunnelFile, running: &DeviceState) -> TunnelFile {
    if file.private_key_file.is_some() {
        file.private_key = running.private_key.clone();
    }
    for peer in file.peers.iter_mut().filter(|peer| peer.preshared_key_file.is_some()) {
        let state = running.peers.iter().find(|state| state.public_key == peer.public_key);
        Arc::make_mut(peer).preshared_key = state.and_then(|state| state.preshared_key.clone());
    }
    file
}
