//! The last step: the supervisor of a tunnel. It looks up endpoints that are names, again when a peer has gone silent, and,
//! as a service ([`Options::supervised`]), starts the daemon again when it dies.
//!
//! In the background it is a process of its own, `PROGRAM keep IFACE`, where PROGRAM is the one that this library is in.
//! It follows the ledger: `reload` changes what it looks after, and without a ledger it ends. It never sets an endpoint of
//! a peer that answers, so that it cannot undo a roam.

mod endpoint_retry;
mod notify;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{DeviceState, PeerState, ReplyError};
use linerate_control::uapi::socket;
use linerate_host::plan;
use linerate_host::step::Step;
use linerate_privileges::{give_up_as_keeper, lock_memory};
use rustix::fs::inotify;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::context::Context;
use crate::error::Error;
use crate::execute::step_executor::{StepExecutor, check_port};
use crate::execute::transaction::{execute_best_effort, is_there};
use crate::read::{ConfigFile, DefaultRoutes};
use crate::record::ledger::{self, LedgerError};
use crate::record::ledgers;
use crate::resolve::Named;
use crate::resolver::process;
use crate::snapshot::{self, Snapshot};
use crate::status::is_absence;
use crate::{Options, down, record, reload};
use endpoint_retry::EndpointRetry;

/// Starts the supervisor of the tunnel of `file` in the background, if there are names to look up.
pub(crate) fn start(file: &ConfigFile, context: Context<'_>) {
    if file.names().is_empty() {
        return;
    }
    spawn(&file.interface).unwrap_or_else(|error| {
        context.warn(format_args!("endpoint names will not be resolved again: {error}"));
    });
}

fn spawn(interface: &InterfaceName) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let log = if std::env::var_os("LOG_LEVEL").is_some() { Stdio::inherit() } else { Stdio::null() };
    Command::new(program)
        .arg0("linerate")
        .args([OsString::from("keep"), interface.as_str().into()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .spawn()
        .map(drop)
}

/// Takes the supervisor's lock; `None` if another supervisor keeps it. That of a tunnel that was taken down may still be
/// looking up a name, and ends after that.
fn lock(interface: &InterfaceName, context: Context<'_>) -> Result<Option<File>, Error> {
    let begun = Instant::now();
    while begun.elapsed() < PREDECESSOR && !context.interruption.came() {
        if let Some(lock) = ledger::lock_supervisor(ledgers(), interface)? {
            return Ok(Some(lock));
        }
        context.interruption.pause(&[], Some(PAUSE)).map_err(Error::system("cannot wait"))?;
    }
    Ok(None)
}

/// How long the supervisor of a tunnel that was taken down may take to end.
const PREDECESSOR: Duration = Duration::from_secs(15);

/// Whether `interface` has no supervisor, as far as that is known.
pub(crate) fn is_missing(interface: &InterfaceName) -> bool {
    ledger::lock_supervisor(ledgers(), interface).is_ok_and(|lock| lock.is_some())
}

/// Supervises a tunnel until it is taken down, or its daemon is gone: what the command `keep` does.
///
/// # Errors
/// The ledger has a format that this version does not know, or cannot be watched.
pub fn in_background(interface: &InterfaceName, context: Context<'_>) -> Result<(), Error> {
    let Some(lock) = lock(interface, context)? else { return Ok(()) };
    let mut supervisor = Supervisor::new(interface, context)?;
    supervisor.lock = Some(lock);
    loop {
        let goes_on = match supervisor.observe()? {
            // `reload` has started another supervisor, which can set name servers.
            Observed::Running(_) if supervisor.holds_routes && supervisor.confined => return Ok(()),
            Observed::Running(device) => {
                if !supervisor.holds_routes && !std::mem::replace(&mut supervisor.confined, true) {
                    give_up_as_keeper();
                }
                let pause = supervisor.look_after(&device);
                supervisor.pause(pause)?
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
    // Only over the file as it is now is anything saved: the one that was read may have changed since.
    file.contents.save_config = false;
    match ended {
        Ok(End::TakenDown) => {}
        // As `linerate down`, by the file as it is now.
        Ok(End::Signal) => {
            let now = file.reopen().unwrap_or(file);
            down(&now.interface, Some(&now), options, context)?;
        }
        // The kill switch holds without a daemon: rules and firewall stay for the next start.
        Err(_) if file.contents.kill_switch => {}
        // Goes by the file as it was read if the ledger cannot be used.
        Err(_) => down(&file.interface, Some(&file), options, context)?,
    }
    ended.map(drop)
}

/// Why a service ends.
enum End {
    /// Another command has taken the tunnel down.
    TakenDown,
    /// A signal has come: the tunnel is to be taken down.
    Signal,
}

/// As [`in_background`], as a service: when the daemon dies, the tunnel is started again as it last was.
fn serve(interface: &InterfaceName, context: Context<'_>) -> Result<End, Error> {
    let mut supervisor = Supervisor::new(interface, context)?;
    let mut last: Option<DeviceState> = None;
    let mut deaths = Deaths::default();
    notify::tell("READY=1", context);
    loop {
        if supervisor.lock.is_none() {
            // The supervisor of the tunnel before may still have it.
            supervisor.lock = ledger::lock_supervisor(ledgers(), interface).ok().flatten();
        }
        let goes_on = match supervisor.observe()? {
            Observed::Running(device) => {
                let pause = supervisor.look_after(&device).unwrap_or(Duration::MAX);
                let interval = state_interval(device.peers.len());
                supervisor.tells_key |= device.private_key.is_some();
                last = Some(device);
                supervisor.pause(Some(pause.min(interval)))?
            }
            Observed::Unknown(reason) => supervisor.wait_for_answer(&reason)?,
            Observed::Dead => match supervisor.revive(last.as_ref(), &mut deaths) {
                // The service is to end.
                Err(_) if context.interruption.came() => false,
                Err(error) => return Err(error),
                Ok(true) => !context.interruption.came(),
                Ok(false) => supervisor.wait_for_answer("its interface exists, but its socket does not respond")?,
            },
            Observed::TakenDown => return Ok(End::TakenDown),
        };
        if !goes_on {
            notify::tell("STOPPING=1", context);
            return Ok(End::Signal);
        }
    }
}

/// The state of the tunnel, as far as it can be observed.
enum Observed {
    /// The daemon, or the kernel, has answered.
    Running(DeviceState),
    /// There is no daemon any more.
    Dead,
    /// The ledger is gone: `down` has ended the tunnel.
    TakenDown,
    /// Something failed, for this reason. The tunnel may run: its daemon may be frozen, say.
    Unknown(String),
}

/// When the daemon died. If that is often, starting it again is pointless.
#[derive(Default)]
struct Deaths(Vec<Instant>);

impl Deaths {
    const MOST: usize = 5;
    const WITHIN: Duration = Duration::from_secs(30);

    fn count(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        self.0.retain(|death| now.duration_since(*death) < Self::WITHIN);
        self.0.push(now);
        if self.0.len() > Self::MOST {
            let seconds = Self::WITHIN.as_secs();
            return Err(Error::State(format!("the daemon died {} times within {seconds} seconds", self.0.len())));
        }
        Ok(())
    }
}

struct Supervisor<'a> {
    interface: &'a InterfaceName,
    context: Context<'a>,
    ledgers: Watch,
    /// The supervisor's lock, by which `doctor` finds this process.
    lock: Option<File>,
    /// When the supervised tunnel was brought up: the next tunnel of its name has a supervisor of its own.
    since: Option<u128>,
    /// Whether the ledger may have changed since it was read.
    stale: bool,
    /// The file that the tunnel was brought up from.
    file: PathBuf,
    /// How many allowed IPs the host has routes for, where default routes may wait for an address.
    routed: Option<usize>,
    /// Whether default routes wait for an address.
    holds_routes: bool,
    /// Whether this process has given up its privileges ([`give_up_as_keeper`]).
    confined: bool,
    /// An open connection to the daemon, which ends when the daemon does.
    tunnel: Option<TunnelClient>,
    /// The daemon closes connections by itself, as boringtun does after each reply: that one ends means nothing.
    closes_connections: bool,
    /// The daemon has told a private key, so that it has none when it tells none. Not every daemon tells it.
    tells_key: bool,
    /// Since when the state is unknown, and whether that was reported.
    unknown: Option<(Instant, bool)>,
    /// The peers whose endpoints are names, with what was tried.
    retries: Vec<(Named, EndpointRetry)>,
}

impl<'a> Supervisor<'a> {
    fn new(interface: &'a InterfaceName, context: Context<'a>) -> Result<Self, Error> {
        // It holds the tunnel's keys for as long as that is up. Programs that it starts may dump core as usual.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|errno| Error::System("cannot turn core dumps off".to_owned(), errno.into()))?;
        if let Err(reason) = lock_memory() {
            context.warn(format_args!("{interface}: keys in this process's memory may reach swap: {reason}"));
        }
        Ok(Self {
            interface,
            context,
            ledgers: Watch::new()?,
            lock: None,
            since: None,
            stale: true,
            file: PathBuf::new(),
            routed: None,
            holds_routes: false,
            confined: false,
            tunnel: None,
            closes_connections: false,
            tells_key: false,
            unknown: None,
            retries: Vec::new(),
        })
    }

    /// Observes the tunnel.
    ///
    /// # Errors
    /// The ledger has a format that this version does not know.
    fn observe(&mut self) -> Result<Observed, Error> {
        let begun = Instant::now();
        let observed = match self.follow_ledger() {
            Ok(true) => match self.ask(TunnelClient::get) {
                Ok(device) => Observed::Running(device),
                Err(error) if is_absence(&error) => Observed::Dead,
                Err(error) => Observed::Unknown(error.to_string()),
            },
            Ok(false) => Observed::TakenDown,
            // Ledgers are written whole: reading it again would not help.
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
        // Before reading: later changes are for the next time.
        self.stale |= self.ledgers.clear();
        if !std::mem::take(&mut self.stale) {
            return Ok(true);
        }
        let read = || Ok((ledger::read(ledgers(), self.interface)?, ledger::read_file(ledgers(), self.interface)?));
        let (ledger, text) = read().inspect_err(|_| self.stale = true)?;
        let since = self.since;
        let Some(ledger) = ledger.filter(|ledger| since.is_none_or(|since| since == ledger.since)) else {
            return Ok(false);
        };
        self.since = Some(ledger.since);
        self.file = ledger.file;
        let file = ConfigFile::of(self.file.clone(), self.interface.clone(), &text.unwrap_or_default());
        self.routed = file.may_hold_routes().then_some(ledger.wanted.allowed_ips.len());
        self.holds_routes = file.holds_routes(&ledger.wanted);
        self.follow(file.names());
        Ok(true)
    }

    /// Asks the tunnel over the open connection, or over a new one if that has been closed. A change may be made twice.
    ///
    /// # Errors
    /// See [`TunnelClient::get`]. A daemon that does not answer in time is not asked twice.
    fn ask<T>(&mut self, question: impl Fn(&mut TunnelClient) -> Result<T, ClientError>) -> Result<T, ClientError> {
        if let Some(tunnel) = self.tunnel.take() {
            let answer = self.ask_over(tunnel, &question);
            // linerated may have dropped us at its client limit; boringtun closes after each reply.
            self.closes_connections = answer.as_ref().is_err_and(has_ended);
            if !self.closes_connections {
                return answer;
            }
        }
        let tunnel = TunnelClient::open(socket::DIRECTORY.as_ref(), self.interface.as_str())?;
        self.ask_over(tunnel, &question)
    }

    fn ask_over<T>(
        &mut self,
        mut tunnel: TunnelClient,
        question: impl Fn(&mut TunnelClient) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let answer = question(&mut tunnel);
        // After any other error, the rest of a late reply may still come.
        if matches!(answer, Ok(_) | Err(ClientError::Reply(ReplyError::Refused(_)))) {
            self.tunnel = Some(tunnel);
        }
        answer
    }

    /// Gives addresses to peers that need one. Returns when to look again at the latest.
    fn look_after(&mut self, device: &DeviceState) -> Option<Duration> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Instant::now();
        let peer = |named: &Named| device.peers.iter().find(|peer| peer.public_key == named.peer);
        let mut in_need = Vec::new();
        for (index, (named, retry)) in self.retries.iter_mut().enumerate() {
            if peer(named).is_some_and(|peer| retry.needs_address(peer, wall, now)) {
                in_need.push(index);
            }
        }
        let questions: Vec<Named> = in_need.iter().map(|&index| self.retries[index].0.clone()).collect();
        let answers = process::look_up(&questions, Duration::from_secs(5));
        // A peer may have answered during the lookup.
        let since = if in_need.is_empty() { None } else { self.ask(TunnelClient::get).ok() };
        let mut given = false;
        for ((&index, named), found) in in_need.iter().zip(&questions).zip(answers) {
            let Some(peer) = peer(named) else { continue };
            let now = since.iter().flat_map(|state| &state.peers).find(|now| now.public_key == peer.public_key);
            if now.is_some_and(|now| now.rx_bytes != peer.rx_bytes) {
                continue;
            }
            if let Some(address) = self.retries[index].1.choose(&found, peer, Instant::now()) {
                self.context.message(format_args!("{}: {named} now resolves to {address}", self.interface));
                let update = PeerUpdate { update_only: true, endpoint: Some(address), ..PeerUpdate::new(named.peer) };
                let update = DeviceUpdate { peers: vec![update], ..DeviceUpdate::default() };
                match self.ask(|tunnel| tunnel.set(&update)) {
                    Err(error) => self.context.message(format_args!("{}: {named}: {error}", self.interface)),
                    Ok(()) => given = true,
                }
            }
        }
        // A confined supervisor adds no default routes: name servers come with them.
        let can_add_routes = self.can_add_routes(device);
        if (if self.confined { given && !can_add_routes } else { given || can_add_routes })
            && let Err(error) = reload::follow_endpoints(self.interface, self.context)
        {
            self.context.message(format_args!("{}: {error}", self.interface));
            // The attempt has written the ledger, which must not cause the next one.
            self.stale |= self.ledgers.clear();
        }
        self.retries.iter().map(|(_, retry)| retry.pause()).min()
    }

    /// Whether default routes wait for an address that is known by now: the peer has contacted us, say.
    fn can_add_routes(&self, device: &DeviceState) -> bool {
        let Some(routed) = self.routed else { return false };
        let Ok(Some(text)) = ledger::read_file(ledgers(), self.interface) else { return false };
        let file = ConfigFile::of(self.file.clone(), self.interface.clone(), &text);
        let device = file.device_after(&DeviceUpdate::default(), device);
        device.is_ok_and(|device| file.wanted(&device, DefaultRoutes::OnceResolved).allowed_ips.len() != routed)
    }

    /// Takes over the names of the file, which a reload may have changed. What was tried for those that stay is kept.
    fn follow(&mut self, names: Vec<Named>) {
        let mut before = std::mem::take(&mut self.retries);
        for named in names {
            let known = before.iter().position(|(known, _)| *known == named);
            let retry = known.map(|index| before.swap_remove(index).1).unwrap_or_default();
            self.retries.push((named, retry));
        }
    }

    /// Waits until the ledger changes, the daemon ends, or `timeout` is over. False when a signal has come.
    fn pause(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let daemon = self.tunnel.as_ref().filter(|_| !self.closes_connections).and_then(TunnelClient::closed);
        let descriptors: Vec<BorrowedFd<'_>> = daemon.into_iter().chain([self.ledgers.0.as_fd()]).collect();
        self.context.interruption.pause(&descriptors, timeout).map_err(Error::system("cannot wait"))?;
        Ok(!self.context.interruption.came())
    }

    /// Waits before it asks again, as the state is unknown: a frozen daemon must not be started a second time, and needs its
    /// supervisor when it thaws. False when a signal has come.
    fn wait_for_answer(&mut self, reason: &str) -> Result<bool, Error> {
        let (since, said) = self.unknown.get_or_insert((Instant::now(), false));
        let lasted = since.elapsed();
        // A daemon that ends may close the connection before its socket.
        if !*said && lasted >= SILENT {
            *said = true;
            let interface = self.interface;
            self.context.message(format_args!("{interface}: state of the tunnel unknown: {reason}; retrying"));
        }
        self.pause(Some(lasted.clamp(PAUSE, SILENT)))
    }

    /// Starts the daemon again and restores what has gone with it. Rules and firewall have stayed; hooks are not run again.
    /// False when nothing was done because the interface, and with it the daemon, is still there: its socket may have been
    /// moved away.
    fn revive(&mut self, last: Option<&DeviceState>, deaths: &mut Deaths) -> Result<bool, Error> {
        (self.tunnel, self.closes_connections) = (None, false);
        let context = self.context;
        let entry = record::lock(self.interface, context)?;
        // Without a ledger, the tunnel has been taken down.
        let Some(mut ledger) = entry.read()? else { return Ok(true) };
        let text = entry.read_file()?;
        let filed = || match &text {
            Some(text) => ConfigFile::of(ledger.file.clone(), self.interface.clone(), text).device(),
            None => Err(Error::State("the copy of the file is gone".to_owned())),
        };
        let configuration = match last {
            // boringtun, for example, does not tell its private key.
            Some(device) if device.private_key.is_none() && !self.tells_key => {
                DeviceUpdate { private_key: filed()?.private_key, ..restored(device) }
            }
            Some(device) => restored(device),
            None => filed()?,
        };
        let Snapshot { mut host, mut state, .. } = Snapshot::take(self.interface)?;
        // The kernel removes the interface and the sockets of the dead process after a moment.
        let port = configuration.listen_port.unwrap_or(0);
        for _ in 0..LINK_LOOKS {
            if state.link(self.interface.as_str()).is_none() && check_port(port).is_ok() {
                break;
            }
            context.interruption.pause(&[], Some(PAUSE)).map_err(Error::system("cannot wait"))?;
            state = snapshot::read(&mut host, self.interface)?;
        }
        if state.link(self.interface.as_str()).is_some() {
            return Ok(false);
        }
        deaths.count()?;
        context.message(format_args!("{}: the daemon has exited; restarting it", self.interface));
        // The last state has the mark, which may have been changed; without a state it is the planned one.
        let is_to_be_done = |step: &Step| match step {
            Step::Hook { .. } | Step::SetSysctl { .. } => false,
            Step::SetFwmark { .. } => last.is_none(),
            _ => true,
        };
        let steps: Vec<Step> = plan::cancel_inverses(&ledger.steps).into_iter().filter(is_to_be_done).collect();
        let mut executor = StepExecutor::new(&mut host, self.interface, &ledger.file, context);
        (executor.daemon, executor.configuration) = (ledger.daemon.clone(), Some(configuration));
        executor.user = ledger.user.clone();
        executor.tolerates_hook_errors = true;
        execute_best_effort(&steps, &mut executor, &mut |step, failure| {
            if !is_there(&failure.error) {
                context.step_failed(step, failure);
            }
        });
        if !ledger.pending.is_empty() {
            // A reload was killed half-way. What it had done to the old interface is gone, except for the mark.
            let state = snapshot::read(executor.host, self.interface)?;
            let back = plan::roll_back(&std::mem::take(&mut ledger.pending), &ledger.steps, &state);
            execute_best_effort(&back.steps, &mut executor, &mut |step, failure| context.step_failed(step, failure));
            ledger.steps.extend(back.not_undone);
            ledger.complete = true;
        }
        ledger.index = executor.host.index(self.interface.as_str());
        // The tunnel runs, which is worth more than its ledger: `down` can go by the file.
        if let Err(error) = entry.write(&ledger) {
            context.warn(format_args!("{}: {error}", self.interface));
        }
        self.unknown = None;
        Ok(true)
    }
}

/// Whether an error means that the connection was closed, and a new one may succeed.
fn has_ended(error: &ClientError) -> bool {
    match error {
        ClientError::Io(error) => !matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted),
        ClientError::Reply(reply) => *reply == ReplyError::Truncated,
    }
}

/// How often the state from which a tunnel is restarted is read: it has what others have set and where peers have roamed.
/// Reading a peer takes some 2.5 µs of both processes together, so that this takes half a per cent of a core at most.
fn state_interval(peers: usize) -> Duration {
    let long_enough = Duration::from_micros(u64::try_from(peers).unwrap_or(u64::MAX).saturating_mul(500));
    long_enough.clamp(Duration::from_secs(10), Duration::from_mins(1))
}

const LINK_LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// How long a tunnel may not answer before that is reported, and the longest pause before it is asked again.
const SILENT: Duration = Duration::from_secs(1);

/// The update that makes a new device what `device` was.
fn restored(device: &DeviceState) -> DeviceUpdate {
    let peer = |peer: &PeerState| PeerUpdate {
        preshared_key: peer.preshared_key.clone(),
        endpoint: peer.endpoint,
        persistent_keepalive: Some(peer.persistent_keepalive),
        replace_allowed_ips: true,
        allowed_ips: peer.allowed_ips.iter().map(|&(addr, cidr)| AllowedIp { add: true, addr, cidr }).collect(),
        ..PeerUpdate::new(peer.public_key)
    };
    DeviceUpdate {
        private_key: device.private_key.clone(),
        listen_port: Some(device.listen_port),
        fwmark: Some(device.fwmark),
        replace_peers: true,
        peers: device.peers.iter().map(peer).collect(),
    }
}

/// Notices changes of ledgers.
struct Watch(OwnedFd);

impl Watch {
    fn new() -> Result<Self, Error> {
        let open = || {
            let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            let what = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::DELETE;
            inotify::add_watch(&fd, ledger::DIRECTORY, what)?;
            Ok(fd)
        };
        let watched: rustix::io::Result<OwnedFd> = open();
        watched.map(Self).map_err(|errno| Error::System(format!("cannot watch {}", ledger::DIRECTORY), errno.into()))
    }

    /// Whether anything has changed since the last call.
    fn clear(&self) -> bool {
        let mut events = [0u8; 4096];
        let mut changed = false;
        while rustix::io::read(&self.0, &mut events).is_ok_and(|length| length > 0) {
            changed = true;
        }
        changed
    }
}
