//! The keeper of a tunnel: looks up endpoints that are names, again when a peer has gone silent, and, as a service
//! ([`Keeper::supervise`]), starts the daemon again when it dies.
//!
//! It follows the ledger: `reload` changes what it looks after, and without a ledger it ends. It never sets an endpoint
//! of a peer that answers, so that it cannot undo a roam.

mod endpoint_retry;
mod notify;

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::execute::transaction::{execute_best_effort, is_there};
use crate::record::ledger::{self, LedgerError};
use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{DeviceState, PeerState, ReplyError};
use linerate_control::uapi::socket;
use linerate_host::plan;
use linerate_host::step::Step;
use rustix::fs::inotify;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use self::endpoint_retry::Silence;
use crate::execute::step_executor::{Hands, is_free};
use crate::interruption::Interruption;
use crate::read::{Pending, Source};
use crate::resolve::{self as names, Named};
use crate::status::is_absence;
use crate::{Failed, host, ledgers, lock, look, reload, step_failed};
use linerate_privileges::{give_up_as_keeper, lock_memory};
use linerate_program::complain;

/// Starts the keeper of `interface` in the background.
///
/// # Errors
/// It cannot be started.
pub fn start(interface: &InterfaceName) -> std::io::Result<()> {
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

/// What the only keeper has; none if there is another that stays. The one of the tunnel before may still be looking up a
/// name, and then notices that its tunnel is gone.
fn alone(interface: &InterfaceName, interruption: &Interruption) -> Result<Option<File>, Failed> {
    let begun = Instant::now();
    while begun.elapsed() < PREDECESSOR && !interruption.came() {
        if let Some(lock) = ledger::lock_supervisor(ledgers(), interface)? {
            return Ok(Some(lock));
        }
        interruption.pause(&[], Some(PAUSE)).map_err(|error| format!("cannot wait: {error}"))?;
    }
    Ok(None)
}

/// How long the keeper of a tunnel that was taken down may take to end.
const PREDECESSOR: Duration = Duration::from_secs(15);

/// Whether nobody keeps `interface`, as far as that can be told.
pub fn is_missing(interface: &InterfaceName) -> bool {
    ledger::lock_supervisor(ledgers(), interface).is_ok_and(|lock| lock.is_some())
}

/// Keeps a tunnel until it is taken down, or its interface is gone.
///
/// # Errors
/// The ledger is of no form that this version knows, or cannot be watched.
pub fn keep(interface: &InterfaceName, interruption: &Interruption) -> Result<(), Failed> {
    let Some(alone) = alone(interface, interruption)? else { return Ok(()) };
    let mut keeper = Keeper::new(interface, interruption)?;
    keeper.alone = Some(alone);
    loop {
        let goes_on = match keeper.observe()? {
            // `reload` has started another one, which can set name servers.
            Observed::Running(_) if keeper.held && keeper.confined => return Ok(()),
            Observed::Running(device) => {
                if !keeper.held && !std::mem::replace(&mut keeper.confined, true) {
                    give_up_as_keeper();
                }
                let pause = keeper.look_after(&device);
                keeper.pause(pause)?
            }
            Observed::Unknown(reason) => keeper.wait_for_answer(&reason)?,
            Observed::Dead | Observed::TakenDown => return Ok(()),
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// As [`keep`], as a service: without a daemon the tunnel is started again as it last was. Returns when the tunnel was
/// taken down by others (true), or is to be by the caller (false).
///
/// # Errors
/// The daemon does not stay alive, or the ledger cannot be used.
pub fn supervise(interface: &InterfaceName, interruption: &Interruption) -> Result<bool, Failed> {
    let mut keeper = Keeper::new(interface, interruption)?;
    let mut last: Option<DeviceState> = None;
    let mut deaths = Deaths::default();
    notify::tell("READY=1");
    loop {
        if keeper.alone.is_none() {
            // The keeper of the tunnel before may still have it.
            keeper.alone = ledger::lock_supervisor(ledgers(), interface).ok().flatten();
        }
        let goes_on = match keeper.observe()? {
            Observed::Running(device) => {
                let pause = keeper.look_after(&device).unwrap_or(Duration::MAX);
                let snapshot = snapshot_interval(device.peers.len());
                keeper.tells_key |= device.private_key.is_some();
                last = Some(device);
                keeper.pause(Some(pause.min(snapshot)))?
            }
            Observed::Unknown(reason) => keeper.wait_for_answer(&reason)?,
            Observed::Dead => match keeper.revive(last.as_ref(), &mut deaths) {
                // The service is to end; the caller takes the tunnel down.
                Err(_) if interruption.came() => false,
                Err(failed) => return Err(failed),
                Ok(true) => !interruption.came(),
                Ok(false) => keeper.wait_for_answer("its interface exists, but its socket does not respond")?,
            },
            Observed::TakenDown => return Ok(true),
        };
        if !goes_on {
            notify::tell("STOPPING=1");
            return Ok(false);
        }
    }
}

/// What a look at the tunnel found.
enum Observed {
    /// The daemon, or the kernel, has told its state.
    Running(DeviceState),
    /// Nobody runs the tunnel any more.
    Dead,
    /// The ledger is gone: `down` has ended the tunnel.
    TakenDown,
    /// Something failed, for this reason; the tunnel may run all the same. A daemon may be frozen, say.
    Unknown(String),
}

/// Too many of these in a row are no accident.
#[derive(Default)]
struct Deaths(Vec<Instant>);

impl Deaths {
    const MOST: usize = 5;
    const WITHIN: Duration = Duration::from_secs(30);

    fn count(&mut self) -> Result<(), Failed> {
        let now = Instant::now();
        self.0.retain(|death| now.duration_since(*death) < Self::WITHIN);
        self.0.push(now);
        if self.0.len() > Self::MOST {
            let seconds = Self::WITHIN.as_secs();
            return Err(Failed::new(format!("the daemon died {} times within {seconds} seconds", self.0.len())));
        }
        Ok(())
    }
}

struct Keeper<'a> {
    interface: &'a InterfaceName,
    interruption: &'a Interruption,
    folder: Watch,
    /// The keeper's lock, by which `doctor` finds this process.
    alone: Option<File>,
    /// When the tunnel was brought up that this one keeps: the next of the same name has a keeper of its own.
    since: Option<u128>,
    /// Whether the ledger may have changed since it was read.
    stale: bool,
    /// The file that the tunnel was brought up from.
    file: PathBuf,
    /// How many allowed IPs the host has routes for, where default routes may wait for the address of a name.
    routed: Option<usize>,
    /// Whether default routes wait for an address.
    held: bool,
    /// Only what the keeper of a tunnel needs is left whose routes are all there ([`give_up_as_keeper`]).
    confined: bool,
    /// An open conversation with the daemon, which ends when the daemon does.
    tunnel: Option<TunnelClient>,
    /// The daemon ends conversations by itself, as boringtun does after each reply: that one ends says nothing.
    hangs_up: bool,
    /// The daemon has told a private key, so that it has none when it tells none. Not every daemon tells it.
    tells_key: bool,
    /// Since when it could not be told whether the tunnel runs, and whether that was said.
    unknown: Option<(Instant, bool)>,
    /// The peers whose endpoints are names, with what was tried.
    silences: Vec<(Named, Silence)>,
}

impl<'a> Keeper<'a> {
    fn new(interface: &'a InterfaceName, interruption: &'a Interruption) -> Result<Self, Failed> {
        // It holds the tunnel's keys for as long as that is up. Programs that it starts may dump core as they like.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|error| format!("cannot turn core dumps off: {error}"))?;
        if let Err(reason) = lock_memory() {
            complain(&format!("Warning: {interface}: keys in this process's memory may reach swap: {reason}"));
        }
        Ok(Self {
            interface,
            interruption,
            folder: Watch::new()?,
            alone: None,
            since: None,
            stale: true,
            file: PathBuf::new(),
            routed: None,
            held: false,
            confined: false,
            tunnel: None,
            hangs_up: false,
            tells_key: false,
            unknown: None,
            silences: Vec::new(),
        })
    }

    /// Looks whether the tunnel is up, and runs.
    ///
    /// # Errors
    /// The ledger is of no form that this version knows.
    fn observe(&mut self) -> Result<Observed, Failed> {
        let begun = Instant::now();
        let observed = match self.follow_ledger() {
            Ok(true) => match self.ask(TunnelClient::get) {
                Ok(device) => Observed::Running(device),
                Err(error) if is_absence(&error) => Observed::Dead,
                Err(error) => Observed::Unknown(error.to_string()),
            },
            Ok(false) => Observed::TakenDown,
            // It is written whole or not at all, so that reading it again would not help.
            Err(error @ LedgerError::Format { .. }) => return Err(error.into()),
            Err(error) => Observed::Unknown(error.to_string()),
        };
        match observed {
            Observed::Unknown(_) => drop(self.unknown.get_or_insert((begun, false))),
            Observed::Running(_) => {
                if let Some((_, true)) = self.unknown.take() {
                    complain(&format!("{}: the daemon responds again", self.interface));
                }
            }
            Observed::Dead | Observed::TakenDown => {}
        }
        Ok(observed)
    }

    /// Reads the ledger, and the file as it is applied, again if either may have changed. False when the tunnel was taken
    /// down.
    ///
    /// # Errors
    /// They cannot be read.
    fn follow_ledger(&mut self) -> Result<bool, LedgerError> {
        // Before it is read: what changes after that is there the next time.
        self.stale |= self.folder.clear();
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
        let source = Source::of(self.file.clone(), self.interface.clone(), &text.unwrap_or_default());
        self.routed = source.may_hold_back().then_some(ledger.wanted.allowed_ips.len());
        self.held = source.holds_back(&ledger.wanted);
        self.follow(source.names());
        Ok(true)
    }

    /// Asks the tunnel over the conversation that is open; over a new one if that has ended. What changes something is
    /// perhaps done twice.
    ///
    /// # Errors
    /// See [`TunnelClient::get`]. A daemon that does not answer in time is not asked twice.
    fn ask<T>(&mut self, question: impl Fn(&mut TunnelClient) -> Result<T, ClientError>) -> Result<T, ClientError> {
        if let Some(tunnel) = self.tunnel.take() {
            let answer = self.ask_over(tunnel, &question);
            // linerated ends a conversation for others' sake, boringtun each one after its reply.
            self.hangs_up = answer.as_ref().is_err_and(has_ended);
            if !self.hangs_up {
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
        // After any other failure, the rest of a late answer may still come.
        if matches!(answer, Ok(_) | Err(ClientError::Reply(ReplyError::Refused(_)))) {
            self.tunnel = Some(tunnel);
        }
        answer
    }

    /// Gives addresses to peers that need one, and says how long nothing has to be looked at.
    fn look_after(&mut self, device: &DeviceState) -> Option<Duration> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Instant::now();
        let peer = |named: &Named| device.peers.iter().find(|peer| peer.public_key == named.peer);
        let mut in_need = Vec::new();
        for (index, (named, silence)) in self.silences.iter_mut().enumerate() {
            if peer(named).is_some_and(|peer| silence.asks_in_vain(peer, wall, now)) {
                in_need.push(index);
            }
        }
        let questions: Vec<Named> = in_need.iter().map(|&index| self.silences[index].0.clone()).collect();
        let answers = names::resolve(&questions, Duration::from_secs(5));
        // One may have answered while its name was looked up.
        let since = if in_need.is_empty() { None } else { self.ask(TunnelClient::get).ok() };
        let mut given = false;
        for ((&index, named), found) in in_need.iter().zip(&questions).zip(answers) {
            let Some(peer) = peer(named) else { continue };
            let now = since.iter().flat_map(|state| &state.peers).find(|now| now.public_key == peer.public_key);
            if now.is_some_and(|now| now.rx_bytes != peer.rx_bytes) {
                continue;
            }
            if let Some(address) = self.silences[index].1.choose(&found, peer, Instant::now()) {
                complain(&format!("{}: {named} now resolves to {address}", self.interface));
                let update = PeerUpdate { update_only: true, endpoint: Some(address), ..PeerUpdate::new(named.peer) };
                let update = DeviceUpdate { peers: vec![update], ..DeviceUpdate::default() };
                match self.ask(|tunnel| tunnel.set(&update)) {
                    Err(error) => complain(&format!("{}: {named}: {error}", self.interface)),
                    Ok(()) => given = true,
                }
            }
        }
        // Once confined, it holds no default routes back any more: they go with name servers.
        let waits_in_vain = self.waits_in_vain(device);
        if (if self.confined { given && !waits_in_vain } else { given || waits_in_vain })
            && let Err(failed) = reload::follow_endpoints(self.interface, self.interruption)
        {
            complain(&format!("{}: {}", self.interface, failed.complaint));
            // Its own attempt, which would have it try again at once.
            self.stale |= self.folder.clear();
        }
        self.silences.iter().map(|(_, silence)| silence.pause()).min()
    }

    /// Whether default routes are held back for want of an address that there is now: the peer has told it itself, say.
    fn waits_in_vain(&self, device: &DeviceState) -> bool {
        let Some(routed) = self.routed else { return false };
        let Ok(Some(text)) = ledger::read_file(ledgers(), self.interface) else { return false };
        let source = Source::of(self.file.clone(), self.interface.clone(), &text);
        let beside = source.device_beside(&DeviceUpdate::default(), device);
        beside.is_ok_and(|device| source.wanted(&device, Pending::Held).allowed_ips.len() != routed)
    }

    /// Takes over the names that the file has, by a reload perhaps; what was tried for those that stay is kept.
    fn follow(&mut self, names: Vec<Named>) {
        let mut before = std::mem::take(&mut self.silences);
        for named in names {
            let known = before.iter().position(|(known, _)| *known == named);
            let silence = known.map(|index| before.swap_remove(index).1).unwrap_or_default();
            self.silences.push((named, silence));
        }
    }

    /// Waits until there may be something to do: the ledger or the daemon is another, or `patience` is over. False when
    /// a signal has come.
    fn pause(&self, patience: Option<Duration>) -> Result<bool, Failed> {
        let daemon = self.tunnel.as_ref().filter(|_| !self.hangs_up).and_then(TunnelClient::closed);
        let descriptors: Vec<BorrowedFd<'_>> = daemon.into_iter().chain([self.folder.0.as_fd()]).collect();
        self.interruption.pause(&descriptors, patience).map_err(|error| format!("cannot wait: {error}"))?;
        Ok(!self.interruption.came())
    }

    /// Waits before it looks again, since it could not be told whether the tunnel runs: a daemon that is only frozen must
    /// not be started a second time, and its keeper is needed when it thaws. False when a signal has come.
    fn wait_for_answer(&mut self, reason: &str) -> Result<bool, Failed> {
        let (since, said) = self.unknown.get_or_insert((Instant::now(), false));
        let lasted = since.elapsed();
        // A daemon that ends may hang up before it gives up its socket.
        if !*said && lasted >= SILENT {
            *said = true;
            complain(&format!("{}: state of the tunnel unknown: {reason}; retrying", self.interface));
        }
        self.pause(Some(lasted.clamp(PAUSE, SILENT)))
    }

    /// Starts the daemon again and puts back what went with it. The rules and the firewall have stayed; commands of the
    /// file are not run again. False when nothing was done because the interface is still there, and with it the daemon:
    /// its socket may have been moved away.
    fn revive(&mut self, last: Option<&DeviceState>, deaths: &mut Deaths) -> Result<bool, Failed> {
        (self.tunnel, self.hangs_up) = (None, false);
        let entry = lock(self.interface, self.interruption)?;
        // It may have ended because somebody takes the tunnel down.
        let Some(mut ledger) = entry.read()? else { return Ok(true) };
        let text = entry.read_file()?;
        let filed = || match &text {
            Some(text) => Ok(Source::of(ledger.file.clone(), self.interface.clone(), text).device(&[])?),
            None => Err(Failed::new("the copy of the file is gone")),
        };
        let configuration = match last {
            // Not every daemon tells its private key; boringtun does not.
            Some(device) if device.private_key.is_none() && !self.tells_key => {
                DeviceUpdate { private_key: filed()?.private_key, ..restored(device) }
            }
            Some(device) => restored(device),
            None => filed()?,
        };
        let mut host = host()?;
        let mut state = look(&mut host, self.interface)?;
        // The kernel takes the old interface and the old sockets away when it is done with the old process.
        let port = configuration.listen_port.unwrap_or(0);
        for _ in 0..LINK_LOOKS {
            if state.link(self.interface.as_str()).is_none() && is_free(port).is_ok() {
                break;
            }
            self.interruption.pause(&[], Some(PAUSE)).map_err(|error| format!("cannot wait: {error}"))?;
            state = look(&mut host, self.interface)?;
        }
        if state.link(self.interface.as_str()).is_some() {
            return Ok(false);
        }
        deaths.count()?;
        complain(&format!("{}: the daemon has exited; restarting it", self.interface));
        // What others were told of the mark is in the state; without one, the mark is as it was planned.
        let is_to_be_done = |step: &Step| match step {
            Step::Hook { .. } | Step::SetSysctl { .. } => false,
            Step::SetFwmark { .. } => last.is_none(),
            _ => true,
        };
        let steps: Vec<Step> = plan::cancel_inverses(&ledger.steps).into_iter().filter(is_to_be_done).collect();
        let mut hands = Hands::new(&mut host, self.interface, &ledger.file, self.interruption);
        (hands.daemon, hands.configuration) = (ledger.daemon.clone(), Some(configuration));
        hands.user = ledger.user.clone();
        hands.forgive_hooks = true;
        execute_best_effort(&steps, &mut hands, &mut |step, stumble| {
            if !is_there(&stumble.error) {
                step_failed(step, stumble);
            }
        });
        if !ledger.pending.is_empty() {
            // A reload was ended in the middle. What of it the old interface had is gone, but for the mark.
            let state = look(hands.host, self.interface)?;
            let back = plan::roll_back(&std::mem::take(&mut ledger.pending), &ledger.steps, &state);
            execute_best_effort(&back.steps, &mut hands, &mut step_failed);
            ledger.steps.extend(back.not_undone);
            ledger.complete = true;
        }
        ledger.index = hands.host.index(self.interface.as_str());
        // Without it `down` goes by the tunnel's file. The tunnel runs, and to end it for that would be worse.
        if let Err(error) = entry.write(&ledger) {
            complain(&format!("Warning: {}: {error}", self.interface));
        }
        self.unknown = None;
        Ok(true)
    }
}

/// Whether an error means that a conversation is over, and a new one may succeed.
fn has_ended(error: &ClientError) -> bool {
    match error {
        ClientError::Io(error) => !matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted),
        ClientError::Reply(reply) => *reply == ReplyError::Truncated,
    }
}

/// How old the snapshot may get from which a tunnel is started again: what others have set and where peers have roamed.
/// A peer takes some 2.5 µs of both processes together, so that snapshots of many take half a per cent of a core.
fn snapshot_interval(peers: usize) -> Duration {
    let long_enough = Duration::from_micros(u64::try_from(peers).unwrap_or(u64::MAX).saturating_mul(500));
    long_enough.clamp(Duration::from_secs(10), Duration::from_mins(1))
}

const LINK_LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// How long a tunnel may give no answer before somebody is told, and the longest pause before it is asked again.
const SILENT: Duration = Duration::from_secs(1);

/// The change that makes a new device what `device` was.
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

/// Changes in the folder of ledgers.
struct Watch(OwnedFd);

impl Watch {
    fn new() -> Result<Self, Failed> {
        let open = || {
            let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            let what = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::DELETE;
            inotify::add_watch(&fd, ledger::DIRECTORY, what)?;
            Ok(fd)
        };
        let watched: rustix::io::Result<OwnedFd> = open();
        watched.map(Self).map_err(|errno| Failed::new(format!("cannot watch {}: {errno}", ledger::DIRECTORY)))
    }

    /// Whether anything has changed since the last call. What, does not matter: all of it is read again.
    fn clear(&self) -> bool {
        let mut events = [0u8; 4096];
        let mut changed = false;
        while rustix::io::read(&self.0, &mut events).is_ok_and(|length| length > 0) {
            changed = true;
        }
        changed
    }
}
