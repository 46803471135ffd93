//! The supervisor of a tunnel. It resolves endpoint names again when a peer is silent (`endpoints`), writes expired peers
//! and replaced keys into the file (`outcomes`), lets a gateway follow the default routes (`default_routes`), restores
//! settings that other programs remove from the host (`restore`) and, as a service ([`Options::supervised`]), restarts a
//! daemon that has died (`restart`).
//!
//! In the background it is a process of its own, `PROGRAM supervise IFACE`, where PROGRAM is the one that this library
//! is in. It follows the ledger: `reload` changes which names it resolves, and without a ledger it
//! ends. It never sets an endpoint of a peer that answers, so that it cannot undo a roam.

mod default_routes;
pub mod endpoint_retry;
mod endpoints;
mod notify;
mod outcomes;
mod restart;
mod restore;
mod troubles;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::response::{DeviceState, ReplyError};
use linerate_control::uapi::socket;
use linerate_control::zeroizing::Buffer;
use linerate_host::state::HostChanges;
use linerate_host::system::HostWatch;
use linerate_netio::files::FileWatch;
use linerate_privileges::{confine_supervisor, deny_tracing, lock_memory};

use crate::context::Context;
use crate::down::down_started_again;
use crate::error::Error;
use crate::identity::{Identity, Unrecorded};
use crate::ledger::{self, LedgerError};
use crate::read::ConfigFile;
use crate::resolver::NamedEndpoint;
use crate::status::is_absence;
use crate::{Options, background, down};
use default_routes::RefusedAdvertisements;
use endpoint_retry::EndpointRetry;
use restart::{LastState, RestartLimit};
use restore::Restorations;
use troubles::Task;

/// The command `supervise`: supervises a tunnel until it is taken down or its daemon is gone.
///
/// # Errors
/// The ledger has a format that this version does not know, or cannot be watched.
pub fn in_background(interface: &InterfaceName, context: Context<'_>) -> Result<(), Error> {
    let Some(lock) = background::lock(interface, context)? else { return Ok(()) };
    let mut supervisor = Supervisor::new(interface, context)?;
    supervisor.hold(Some(lock));
    loop {
        let goes_on = match supervisor.observe()? {
            // `reload` has started another supervisor, which has them.
            Observed::Running(_) if supervisor.needed_rights() > supervisor.rights => return Ok(()),
            Observed::Running(device) => {
                supervisor.confine();
                supervisor.follow_host()?;
                supervisor.write_outcomes(&device);
                let pause = supervisor.update_endpoints(&device);
                let again = [pause, supervisor.outcomes_interval(), supervisor.host_interval()];
                supervisor.pause(again.into_iter().flatten().min())?
            }
            Observed::Unknown(reason) => supervisor.wait_for_answer(&reason)?,
            Observed::Dead | Observed::TakenDown => return Ok(()),
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// Supervises the tunnel of `file`, which is up, and takes it down at the end.
///
/// # Errors
/// The daemon does not stay alive, the ledger cannot be used, or something could not be undone.
pub(crate) fn run(mut file: ConfigFile, options: &Options, context: Context<'_>) -> Result<(), Error> {
    let ended = serve(&file.interface, context);
    context.interruption.forget();
    // SaveConfig must use the current file: it may have changed since it was read.
    file.contents.save_config = false;
    match ended {
        Ok(End::TakenDown) => {}
        // As `linerate down`, with the current file.
        Ok(End::Signal(unrecorded)) => {
            let current = file.reopen().unwrap_or(file);
            down_started_again(&current.interface, Some(&current), unrecorded, options, context)?;
            return Ok(());
        }
        // The kill switch holds without a daemon: rules and firewall stay for the next start.
        Err(_) if file.contents.kill_switch => {}
        // Uses the file as it was read if the ledger is unusable.
        Err(_) => down(&file.interface, Some(&file), options, context)?,
    }
    ended.map(drop)
}

/// Why a service ends.
enum End {
    /// Another command has taken the tunnel down.
    TakenDown,
    /// A signal has come: the tunnel is taken down. Carries its restarted daemon, if the ledger does not have it yet.
    Signal(Option<Unrecorded>),
}

/// As [`in_background`], but as a service: restarts a daemon that has died, with the tunnel's last state.
fn serve(interface: &InterfaceName, context: Context<'_>) -> Result<End, Error> {
    let mut supervisor = Supervisor::new(interface, context)?;
    let mut last: Option<LastState> = None;
    let mut limit = RestartLimit::default();
    notify::send("READY=1", context);
    loop {
        if supervisor.lock.is_none() {
            // The supervisor of the previous tunnel may still hold it.
            supervisor.hold(ledger::lock_supervisor(ledger::directory(), interface).ok().flatten());
        }
        let goes_on = match supervisor.observe()? {
            Observed::Running(device) => {
                supervisor.record_daemon_again()?;
                supervisor.follow_host()?;
                supervisor.write_outcomes(&device);
                let pause = supervisor.update_endpoints(&device).unwrap_or(Duration::MAX);
                let interval = state_interval(device.peers.len());
                supervisor.reports_key |= device.private_key.is_some();
                last = Some(LastState { device, copy: supervisor.copy.clone() });
                supervisor
                    .pause([Some(pause), Some(interval), supervisor.host_interval()].into_iter().flatten().min())?
            }
            Observed::Unknown(reason) => supervisor.wait_for_answer(&reason)?,
            Observed::Dead => match supervisor.restart_daemon(last.as_ref(), &mut limit) {
                // The service is to end.
                Err(_) if context.interruption.came() => false,
                Err(error) => return Err(error),
                Ok(true) => !context.interruption.came(),
                Ok(false) => supervisor.wait_for_answer("its interface exists, but its socket does not respond")?,
            },
            Observed::TakenDown => return Ok(End::TakenDown),
        };
        if !goes_on {
            notify::send("STOPPING=1", context);
            return Ok(End::Signal(supervisor.unrecorded));
        }
    }
}

/// The state of the tunnel, as far as it can be observed.
enum Observed {
    /// The daemon, or the kernel, has answered.
    Running(DeviceState),
    /// The daemon has exited.
    Dead,
    /// The ledger is gone: the tunnel was taken down.
    TakenDown,
    /// A request failed, for this reason. The tunnel may still run: its daemon may be frozen.
    Unknown(String),
}

/// What a supervisor may do, each including what is before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rights {
    /// Ask the daemon, and change routes, rules and tables of the firewall.
    Routes,
    /// Run the programs that keep firewalls.
    Firewalls,
    /// Run any program: that which sets name servers may restart services.
    All,
}

struct Supervisor<'a> {
    interface: &'a InterfaceName,
    context: Context<'a>,
    ledgers: FileWatch,
    /// The supervisor's lock; `doctor` finds this process by it.
    lock: Option<File>,
    /// What it cannot do at present.
    troubles: BTreeMap<Task, String>,
    /// When the supervised tunnel was brought up: the next tunnel of its name has a supervisor of its own.
    since: Option<u128>,
    /// The supervised tunnel's identity.
    identity: Identity,
    /// A restarted daemon that could not be written into the ledger yet.
    unrecorded: Option<Unrecorded>,
    /// Whether the ledger may have changed since it was read.
    stale: bool,
    /// The file that the tunnel was brought up from.
    file: PathBuf,
    /// The ledger's copy of that file.
    copy: Arc<Buffer>,
    /// How many allowed IPs the host has routes for; `None` if the file never defers default routes.
    routed: Option<usize>,
    /// Whether default routes are deferred until a name is resolved.
    has_deferred_routes: bool,
    /// Whether ways in firewalls of others are opened for new default routes.
    opens_firewalls: bool,
    /// What this process may do: in the background it gives up what it does not need.
    rights: Rights,
    /// An open connection to the daemon, which is closed when the daemon exits.
    tunnel: Option<TunnelClient>,
    /// The daemon closes idle connections (boringtun: after each reply), so EOF does not mean that it exited.
    closes_connections: bool,
    /// The daemon has reported its private key, so a missing one means that none is set. boringtun never reports it.
    reports_key: bool,
    /// Since when the state is unknown, and whether that was reported.
    unknown: Option<(Instant, bool)>,
    /// The endpoints that are names, with the attempts so far.
    retries: Vec<(NamedEndpoint, EndpointRetry)>,
    /// Whether outcomes of peers may have to be written into the file.
    has_outcomes: bool,
    /// When writing outcomes last failed; `None` after a success.
    outcomes_failed: Option<Instant>,
    /// Watches the file that reports outcomes.
    usage: Option<FileWatch>,
    /// Watches the host.
    watch: Option<HostWatch>,
    /// Changes of the host that were not handled yet.
    changed: HostChanges,
    /// Times at which lost settings were restored.
    restorations: Restorations,
    /// Whether the tunnel follows default routes, as with `Gateway = auto`.
    follows_default_routes: bool,
    /// Whether the default routes may have changed between the plan and the start of the watch.
    missed_default_routes: bool,
    /// Router advertisements of default routes that the gateway ignored.
    refused_advertisements: RefusedAdvertisements,
    /// When the gateway last failed to follow them, until it succeeds.
    follow_failed: Option<Instant>,
}

impl<'a> Supervisor<'a> {
    fn new(interface: &'a InterfaceName, context: Context<'a>) -> Result<Self, Error> {
        // It holds the tunnel's keys. Programs that it starts may dump core as usual.
        deny_tracing().map_err(|reason| Error::State(format!("cannot turn core dumps off: {reason}")))?;
        if let Err(reason) = lock_memory() {
            context.warn(format_args!("{interface}: keys in this process's memory may reach swap: {reason}"));
        }
        Ok(Self {
            interface,
            context,
            ledgers: FileWatch::of_folder(ledger::directory())
                .map_err(|error| Error::System(format!("cannot watch {}", ledger::DIRECTORY), error))?,
            lock: None,
            troubles: BTreeMap::new(),
            since: None,
            identity: Identity::default(),
            unrecorded: None,
            stale: true,
            file: PathBuf::new(),
            copy: Arc::default(),
            routed: None,
            has_deferred_routes: false,
            opens_firewalls: false,
            rights: Rights::All,
            tunnel: None,
            closes_connections: false,
            reports_key: false,
            unknown: None,
            retries: Vec::new(),
            has_outcomes: false,
            outcomes_failed: None,
            usage: None,
            watch: None,
            changed: HostChanges::default(),
            restorations: Restorations::default(),
            follows_default_routes: false,
            missed_default_routes: false,
            refused_advertisements: RefusedAdvertisements::default(),
            follow_failed: None,
        })
    }

    /// Observes the tunnel.
    ///
    /// # Errors
    /// The ledger has a format that this version does not know.
    fn observe(&mut self) -> Result<Observed, Error> {
        let begun = Instant::now();
        // Before the state is read: later events count for the next time.
        self.usage.as_ref().map(FileWatch::drain);
        let observed = match self.follow_ledger() {
            Ok(true) => match self.ask(TunnelClient::get) {
                Ok(device) => Observed::Running(device),
                Err(error) if is_absence(&error) => Observed::Dead,
                Err(error) => Observed::Unknown(error.to_string()),
            },
            Ok(false) => Observed::TakenDown,
            // Ledgers are replaced atomically, so reading it again would not help.
            Err(error @ LedgerError::Format { .. }) => return Err(error.into()),
            Err(error) => Observed::Unknown(error.to_string()),
        };
        match observed {
            Observed::Unknown(_) => drop(self.unknown.get_or_insert((begun, false))),
            Observed::Running(_) => {
                if let Some((_, true)) = self.unknown.take() {
                    self.context.message(format_args!("{}: the daemon responds again", self.interface));
                }
            }
            Observed::Dead | Observed::TakenDown => {}
        }
        Ok(observed)
    }

    /// Reads the ledger and its copy of the file again, if they may have changed. False when the tunnel was taken down.
    ///
    /// # Errors
    /// They cannot be read.
    fn follow_ledger(&mut self) -> Result<bool, LedgerError> {
        // Before reading: later changes count for the next call.
        self.stale |= self.ledgers.drain();
        if !std::mem::take(&mut self.stale) {
            return Ok(true);
        }
        let read = || {
            Ok((
                ledger::read(ledger::directory(), self.interface)?,
                ledger::read_file(ledger::directory(), self.interface)?,
            ))
        };
        let (ledger, text) = read().inspect_err(|_| self.stale = true)?;
        let since = self.since;
        let Some(ledger) = ledger.filter(|ledger| since.is_none_or(|since| since == ledger.since)) else {
            return Ok(false);
        };
        self.since = Some(ledger.since);
        self.copy = Arc::new(text.unwrap_or_default());
        let file = ConfigFile::of(ledger.file.clone(), self.interface.clone(), Arc::clone(&self.copy));
        self.watch_usage(&ledger, &file);
        if self.watch.is_none() {
            self.watch_host();
        }
        self.follow_default_routes_of(&file);
        self.identity = self.unrecorded.as_ref().map_or(ledger.identity, |unrecorded| unrecorded.identity.clone());
        self.file = ledger.file;
        self.routed = file.may_defer_routes().then_some(ledger.spec.allowed_ips.len());
        self.has_deferred_routes = file.has_deferred_routes(&ledger.spec);
        self.opens_firewalls = file.opens_firewalls(&ledger.spec);
        self.follow(file.named_endpoints());
        Ok(true)
    }

    fn needed_rights(&self) -> Rights {
        match (self.has_deferred_routes, self.opens_firewalls) {
            (true, _) => Rights::All,
            (_, true) => Rights::Firewalls,
            _ => Rights::Routes,
        }
    }

    /// Gives up what this process does not need, or needs no more since a reload.
    fn confine(&mut self) {
        let needed = self.needed_rights();
        if needed < self.rights {
            confine_supervisor(needed == Rights::Firewalls);
            self.rights = needed;
        }
    }

    /// Sends a request over the open connection, or over a new one if that was closed. The request may be made twice.
    ///
    /// # Errors
    /// See [`TunnelClient::get`]. After a timeout the request is not repeated.
    fn ask<T>(&mut self, request: impl Fn(&mut TunnelClient) -> Result<T, ClientError>) -> Result<T, ClientError> {
        if let Some(tunnel) = self.tunnel.take() {
            let answer = self.ask_over(tunnel, &request);
            // linerated may have dropped us at its client limit; boringtun closes after each reply.
            self.closes_connections = answer.as_ref().is_err_and(has_ended);
            if !self.closes_connections {
                return answer;
            }
        }
        if self.identity.is_socket_of_other(self.interface) {
            // Another daemon has the socket, so the tunnel's own no longer listens.
            return Err(std::io::Error::from(ErrorKind::ConnectionRefused).into());
        }
        let tunnel = TunnelClient::open(socket::DIRECTORY.as_ref(), self.interface.as_str())?;
        self.ask_over(tunnel, &request)
    }

    fn ask_over<T>(
        &mut self,
        mut tunnel: TunnelClient,
        request: impl Fn(&mut TunnelClient) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let answer = request(&mut tunnel);
        // After any other error, the rest of a late reply may still arrive.
        if matches!(answer, Ok(_) | Err(ClientError::Reply(ReplyError::Refused(_)))) {
            self.tunnel = Some(tunnel);
        }
        answer
    }

    /// Waits until the ledger changes, the daemon ends, or `timeout` is over. False when a signal has come.
    fn pause(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let daemon = self.tunnel.as_ref().filter(|_| !self.closes_connections).and_then(TunnelClient::closed);
        let usage = self.usage.as_ref().map(AsFd::as_fd);
        let host = self.watch.iter().flat_map(HostWatch::descriptors);
        let others = usage.into_iter().chain(host);
        let descriptors: Vec<BorrowedFd<'_>> = daemon.into_iter().chain([self.ledgers.as_fd()]).chain(others).collect();
        self.context.interruption.pause(&descriptors, timeout).map_err(Error::system("cannot wait"))?;
        Ok(!self.context.interruption.came())
    }

    /// Waits before the next request while the state is unknown: a frozen daemon must not be started a second time, and
    /// still needs its supervisor when it resumes. False when a signal has come.
    fn wait_for_answer(&mut self, reason: &str) -> Result<bool, Error> {
        let (since, reported) = self.unknown.get_or_insert((Instant::now(), false));
        let elapsed = since.elapsed();
        // A daemon that exits may close the connection before its socket.
        if !*reported && elapsed >= REPORT_AFTER {
            *reported = true;
            let interface = self.interface;
            self.context.message(format_args!("{interface}: state of the tunnel unknown: {reason}; retrying"));
        }
        self.pause(Some(elapsed.clamp(PAUSE, REPORT_AFTER)))
    }
}

/// Whether an error means that the connection was closed, and a new one may succeed.
fn has_ended(error: &ClientError) -> bool {
    match error.as_io() {
        Some(error) => !matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted),
        None => matches!(error, ClientError::Reply(ReplyError::Truncated)),
    }
}

/// How often to read the state from which a tunnel would be restarted, with changes by others and roamed endpoints.
/// Reading a peer takes some 2.5 µs of both processes together, so this takes at most 0.5 % of a core.
fn state_interval(peers: usize) -> Duration {
    let interval = Duration::from_micros(u64::try_from(peers).unwrap_or(u64::MAX).saturating_mul(500));
    interval.clamp(Duration::from_secs(10), Duration::from_mins(1))
}

/// Between checks of a condition that changes soon.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a tunnel may not answer before that is reported, and the longest pause before the next request.
const REPORT_AFTER: Duration = Duration::from_secs(1);
