//! The keeper of a tunnel: looks up endpoints that are names, again when a peer has gone silent, and, as a service
//! ([`Keeper::supervise`]), starts the daemon again when it dies.
//!
//! It follows the ledger: `reload` changes what it looks after, and without a ledger it ends. It never sets an endpoint
//! of a peer that answers, so that it cannot undo a roam.

mod silence;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_control::interface::InterfaceName;
use linerate_control::tunnel::Tunnel;
use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::uapi::socket;
use linerate_host::ledger::{self, Ledger};
use linerate_host::plan;
use linerate_host::step::Step;
use linerate_host::transaction::{carry_out_all, is_there};
use rustix::fs::inotify;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use self::silence::Silence;
use super::hands::{Hands, is_free};
use super::interruption::Interruption;
use super::names::{self, Named};
use super::source::{Pending, Source};
use super::{Failed, host, ledgers, lock, look, notify, reload, step_failed};
use crate::complain;

/// Starts the keeper of `interface` in the background.
///
/// # Errors
/// It cannot be started.
pub(crate) fn start(interface: &InterfaceName) -> std::io::Result<()> {
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
        if let Some(lock) = ledger::lock_keeper(ledgers(), interface)? {
            return Ok(Some(lock));
        }
        interruption.pause(&[], Some(PAUSE)).map_err(|error| format!("cannot wait: {error}"))?;
    }
    Ok(None)
}

/// How long the keeper of a tunnel that was taken down may take to end.
const PREDECESSOR: Duration = Duration::from_secs(15);

/// Whether nobody keeps `interface`, as far as that can be told.
pub(super) fn is_missing(interface: &InterfaceName) -> bool {
    ledger::lock_keeper(ledgers(), interface).is_ok_and(|lock| lock.is_some())
}

/// Keeps a tunnel until it is taken down, or its interface is gone.
///
/// # Errors
/// The ledger cannot be read or watched.
pub(crate) fn keep(interface: &InterfaceName, interruption: &Interruption) -> Result<(), Failed> {
    let Some(_alone) = alone(interface, interruption)? else { return Ok(()) };
    let mut keeper = Keeper::new(interface, interruption)?;
    while let Some(ledger) = keeper.ledger()? {
        let Some(device) = keeper.look() else { return Ok(()) };
        let pause = keeper.look_after(&ledger, &device)?;
        if !keeper.pause(pause)? {
            return Ok(());
        }
    }
    Ok(())
}

/// As [`keep`], as a service: without a daemon the tunnel is started again as it last was. Returns when the tunnel was
/// taken down by others (true), or is to be by the caller (false).
///
/// # Errors
/// The daemon does not stay alive, or the ledger cannot be used.
pub(crate) fn supervise(interface: &InterfaceName, interruption: &Interruption) -> Result<bool, Failed> {
    let mut keeper = Keeper::new(interface, interruption)?;
    let mut last: Option<DeviceState> = None;
    let mut deaths = Deaths::default();
    notify::tell("READY=1");
    while let Some(ledger) = keeper.ledger()? {
        match keeper.look() {
            Some(device) => {
                let pause = keeper.look_after(&ledger, &device)?;
                last = Some(device);
                if !keeper.pause(Some(pause.unwrap_or(LOOK).min(LOOK)))? {
                    notify::tell("STOPPING=1");
                    return Ok(false);
                }
            }
            None => keeper.revive(last.as_ref(), &mut deaths)?,
        }
    }
    Ok(true)
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
    /// When the tunnel was brought up that this one keeps: the next of the same name has a keeper of its own.
    since: Option<u128>,
    /// An open conversation with the daemon, which ends when the daemon does.
    tunnel: Option<Tunnel>,
    /// The peers whose endpoints are names, with what was tried.
    silences: Vec<(Named, Silence)>,
}

impl<'a> Keeper<'a> {
    fn new(interface: &'a InterfaceName, interruption: &'a Interruption) -> Result<Self, Failed> {
        // It holds the tunnel's keys for as long as that is up. Programs that it starts may dump core as they like.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|error| format!("cannot turn core dumps off: {error}"))?;
        Ok(Self { interface, interruption, folder: Watch::new()?, since: None, tunnel: None, silences: Vec::new() })
    }

    /// The ledger of the tunnel; none when it was taken down.
    fn ledger(&mut self) -> Result<Option<Ledger>, Failed> {
        let ledger = ledger::read(ledgers(), self.interface)?;
        Ok(ledger.filter(|ledger| *self.since.get_or_insert(ledger.since) == ledger.since))
    }

    /// The state of the tunnel; none if nobody runs it.
    fn look(&mut self) -> Option<DeviceState> {
        if let Some(device) = self.tunnel.as_mut().and_then(|tunnel| tunnel.get().ok()) {
            return Some(device);
        }
        // The conversation may have been closed for others' sake.
        self.tunnel = Tunnel::open(socket::DIRECTORY.as_ref(), self.interface.as_str()).ok();
        self.tunnel.as_mut()?.get().ok()
    }

    /// Gives addresses to peers that need one, and says how long nothing has to be looked at.
    fn look_after(&mut self, ledger: &Ledger, device: &DeviceState) -> Result<Option<Duration>, Failed> {
        let text = ledger::read_file(ledgers(), self.interface)?.unwrap_or_default();
        let source = Source::of(ledger.file.clone(), self.interface.clone(), &text);
        self.follow(source.names());
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
        let since = if in_need.is_empty() { None } else { self.tunnel.as_mut().and_then(|tunnel| tunnel.get().ok()) };
        let mut given = false;
        for (&index, found) in in_need.iter().zip(answers) {
            let (named, silence) = &mut self.silences[index];
            let Some(peer) = device.peers.iter().find(|peer| peer.public_key == named.peer) else { continue };
            let now = since.iter().flat_map(|state| &state.peers).find(|now| now.public_key == peer.public_key);
            if now.is_some_and(|now| now.rx_bytes != peer.rx_bytes) {
                continue;
            }
            if let Some(address) = silence.choose(&found, peer, Instant::now()) {
                complain(&format!("{}: {named} is now looked for at {address}", self.interface));
                let update = PeerUpdate { update_only: true, endpoint: Some(address), ..PeerUpdate::new(named.peer) };
                let update = DeviceUpdate { peers: vec![update], ..DeviceUpdate::default() };
                match self.tunnel.as_mut().map(|tunnel| tunnel.set(&update)) {
                    Some(Err(error)) => complain(&format!("{}: {named}: {error}", self.interface)),
                    _ => given = true,
                }
            }
        }
        if (given || waits_in_vain(&source, ledger, device))
            && let Err(failed) = reload::follow_endpoints(self.interface, self.interruption)
        {
            complain(&format!("{}: {}", self.interface, failed.complaint));
            // Its own attempt, which would have it try again at once.
            self.folder.clear();
        }
        Ok(self.silences.iter().map(|(_, silence)| silence.pause()).min())
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
        let daemon = self.tunnel.as_ref().and_then(Tunnel::closed);
        let descriptors: Vec<BorrowedFd<'_>> = daemon.into_iter().chain([self.folder.0.as_fd()]).collect();
        self.interruption.pause(&descriptors, patience).map_err(|error| format!("cannot wait: {error}"))?;
        self.folder.clear();
        Ok(!self.interruption.came())
    }

    /// Starts the daemon again and puts back what went with it. The rules and the firewall have stayed; commands of the
    /// file are not run again.
    fn revive(&mut self, last: Option<&DeviceState>, deaths: &mut Deaths) -> Result<(), Failed> {
        self.tunnel = None;
        let entry = lock(self.interface, self.interruption)?;
        // It may have ended because somebody takes the tunnel down.
        let Some(mut ledger) = entry.read()? else { return Ok(()) };
        deaths.count()?;
        complain(&format!("{}: the daemon is gone; starting it again", self.interface));
        let configuration = match (last, entry.read_file()?) {
            (Some(device), _) => restored(device),
            (None, Some(text)) => Source::of(ledger.file.clone(), self.interface.clone(), &text).device(&[])?,
            (None, None) => return Err(Failed::new("the copy of the file is gone")),
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
        // What others were told of the mark is in the state; without one, the mark is as it was planned.
        let is_to_be_done = |step: &Step| match step {
            Step::Hook { .. } | Step::SetSysctl { .. } => false,
            Step::SetFwmark { .. } => last.is_none(),
            _ => true,
        };
        let steps: Vec<Step> = plan::net(&ledger.steps).into_iter().filter(is_to_be_done).collect();
        let mut hands = Hands::new(&mut host, self.interface, &ledger.file, self.interruption);
        (hands.daemon, hands.configuration) = (ledger.daemon.clone(), Some(configuration));
        hands.forgive_hooks = true;
        carry_out_all(&steps, &mut hands, &mut |step, stumble| {
            if !is_there(&stumble.error) {
                step_failed(step, stumble);
            }
        });
        if !ledger.under_way.is_empty() {
            // A reload was ended in the middle. What of it the old interface had is gone, but for the mark.
            let state = look(hands.host, self.interface)?;
            let back = plan::take_back(&std::mem::take(&mut ledger.under_way), &ledger.steps, &state);
            carry_out_all(&back.steps, &mut hands, &mut step_failed);
            ledger.steps.extend(back.lost);
            ledger.complete = true;
        }
        ledger.index = hands.host.index(self.interface.as_str());
        // Without it `down` goes by the tunnel's file. The tunnel runs, and to end it for that would be worse.
        if let Err(error) = entry.write(&ledger) {
            complain(&format!("Warning: {}: {error}", self.interface));
        }
        Ok(())
    }
}

/// Whether default routes are held back for want of an address that there is now: the peer has told it itself, say.
fn waits_in_vain(source: &Source, ledger: &Ledger, device: &DeviceState) -> bool {
    let beside = source.device_beside(&DeviceUpdate::default(), device);
    beside
        .is_ok_and(|device| source.wanted(&device, Pending::Held).allowed_ips.len() != ledger.wanted.allowed_ips.len())
}

/// How old the state may be that a dead daemon's tunnel gets back: what others have set and where peers have roamed.
const LOOK: Duration = Duration::from_secs(10);

const LINK_LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

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

    /// Whatever changed, all of it is looked at.
    fn clear(&self) {
        let mut events = [0u8; 4096];
        while rustix::io::read(&self.0, &mut events).is_ok_and(|length| length > 0) {}
    }
}
