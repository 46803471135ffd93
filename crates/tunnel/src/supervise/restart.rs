//! Restarts a daemon that has died, and restores the tunnel as it last was.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{AllowedIpRemoval, changes};
use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::zeroizing::Buffer;
use linerate_host::plan;
use linerate_host::step::Step;
use linerate_host::transaction::{execute_best_effort, is_there};

use super::{PAUSE, Supervisor};
use crate::daemon::StartOptions;
use crate::error::Error;
use crate::execute::step_executor::{StepExecutor, check_port};
use crate::identity::{self, Place, Purpose, Unrecorded};
use crate::ledger::{Ledger, LedgerError, LockedLedger};
use crate::lock;
use crate::read::ConfigFile;
use crate::snapshot::{self, Snapshot};

/// Limits how often the daemon is restarted. Holds the times of its recent deaths.
#[derive(Default)]
pub(super) struct RestartLimit(Vec<Instant>);

impl RestartLimit {
    const MAX_PER_INTERVAL: usize = 5;
    const INTERVAL: Duration = Duration::from_secs(30);

    fn count(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        self.0.retain(|death| now.duration_since(*death) < Self::INTERVAL);
        self.0.push(now);
        if self.0.len() > Self::MAX_PER_INTERVAL {
            let seconds = Self::INTERVAL.as_secs();
            return Err(Error::State(format!("the daemon died {} times within {seconds} seconds", self.0.len())));
        }
        Ok(())
    }
}

/// The state to restore.
pub(super) struct LastState {
    pub(super) device: DeviceState,
    /// The ledger's copy of the file at that time.
    pub(super) copy: Arc<Buffer>,
}

impl LastState {
    /// Applies to `configuration`, which restores this state, what edits have changed in peers since.
    fn apply_edits(&self, now: &ConfigFile, configuration: &mut DeviceUpdate) -> Result<(), Error> {
        if **self.copy == *now.text() {
            return Ok(());
        }
        let before = ConfigFile::of(now.path.clone(), now.interface.clone(), Arc::clone(&self.copy));
        let edits = changes(&*before.loaded()?, &*now.loaded()?, &self.device, AllowedIpRemoval::Replace).update.peers;
        let (gone, edits): (Vec<_>, Vec<_>) = edits.into_iter().partition(|peer| peer.remove);
        let gone: HashSet<PublicKey> = gone.iter().map(|peer| peer.public_key).collect();
        configuration.peers.retain(|peer| !gone.contains(&peer.public_key));
        configuration.peers.extend(edits);
        Ok(())
    }
}

impl Supervisor<'_> {
    /// Restarts the daemon and restores everything that was lost with it. Rules and firewall have stayed. Hooks are not
    /// run again: what they did outside of the interface, such as a rule of NAT, would be there twice. Returns false, and
    /// does nothing, if the interface still exists and with it the daemon: its socket may have been moved away.
    pub(super) fn restart_daemon(&mut self, last: Option<&LastState>, limit: &mut RestartLimit) -> Result<bool, Error> {
        (self.tunnel, self.closes_connections) = (None, false);
        let context = self.context;
        let locked = lock::lock(self.interface, context)?;
        // Without a ledger, the tunnel has been taken down.
        let Some(mut ledger) = locked.read()? else { return Ok(true) };
        ledger.adopt_restrictions();
        // An edit that the daemon did not answer is the next file. That of a reload with steps is rolled back below.
        let is_edit = ledger.pending.iter().all(|step| matches!(step, Step::AddGateway(_)));
        let next = if is_edit { locked.read_next_file()? } else { None };
        let text = next.map_or_else(|| locked.read_file(), |next| Ok(Some(next)))?;
        let file = text.map(|text| ConfigFile::of(ledger.file.clone(), self.interface.clone(), text));
        let from_file = || match &file {
            Some(file) => file.device(),
            None => Err(Error::State("the copy of the file is gone".to_owned())),
        };
        let mut configuration = match last.map(|last| &last.device) {
            // boringtun, for example, does not report its private key.
            Some(device) if device.private_key.is_none() && !self.reports_key => {
                DeviceUpdate { private_key: from_file()?.private_key, ..restored(device) }
            }
            Some(device) => restored(device),
            None => from_file()?,
        };
        if let Some(file) = &file {
            file.contents.set_groups(&mut configuration);
        }
        if let (Some(last), Some(file)) = (last, &file) {
            last.apply_edits(file, &mut configuration)?;
        }
        let Snapshot { mut host, mut state, .. } = Snapshot::take(self.interface)?;
        // The kernel removes the interface and the sockets of the dead process after a moment.
        let port = configuration.listen_port.unwrap_or(0);
        for _ in 0..LINK_GONE_ATTEMPTS {
            if state.link(self.interface.as_str()).is_none() && check_port(port).is_ok() {
                break;
            }
            context.interruption.pause(&[], Some(PAUSE)).map_err(Error::system("cannot wait"))?;
            state = snapshot::read(&mut host, self.interface)?;
        }
        match identity::place(&ledger, &state.links) {
            Place::Gone | Place::NetworkGone => {}
            place @ Place::Replaced => {
                let refusal = place.refusal(&ledger, Purpose::Change("down"));
                return Err(refusal.unwrap_or_else(|| Error::NoTunnel(self.interface.clone())));
            }
            _ => return Ok(false),
        }
        limit.count()?;
        context.message(format_args!("{}: the daemon has exited; restarting it", self.interface));
        // The last state has the mark, which may have been changed; without a state it is the planned one.
        let is_lost = |step: &Step| match step {
            Step::Hook { .. } | Step::SetSysctl { .. } | Step::Open(_) => false,
            Step::HoldSysctl { name, .. } => plan::gateway::is_sysctl_of(name, self.interface.as_str()),
            Step::SetFwmark { .. } => last.is_none(),
            _ => true,
        };
        let steps: Vec<Step> = plan::cancel_inverses(&ledger.steps).into_iter().filter(is_lost).collect();
        let mut executor = StepExecutor::new(&mut host, self.interface, &ledger.file, context);
        (executor.daemon, executor.configuration) = (ledger.daemon.clone(), Some(configuration));
        executor.start_options = StartOptions::of(&ledger);
        executor.identity = ledger.identity.clone();
        executor.tolerates_hook_errors = true;
        execute_best_effort(&steps, &mut executor, &mut |step, failure| {
            if !is_there(&failure.error) {
                context.step_failed(step, failure);
            }
        });
        if !ledger.pending.is_empty() {
            // A reload was killed. Its changes to the old interface are gone, except for the mark.
            let state = snapshot::read(executor.host, self.interface)?;
            let back = plan::roll_back(&std::mem::take(&mut ledger.pending), &ledger.steps, &state);
            execute_best_effort(&back.steps, &mut executor, &mut |step, failure| context.step_failed(step, failure));
            ledger.steps.extend(back.not_undone);
            ledger.complete = true;
        }
        let (index, identity) = (executor.index, executor.identity);
        self.unrecorded = Some(Unrecorded { index, identity });
        // The tunnel runs, so a ledger that cannot be written is only a warning.
        if let Err(error) = self.record_daemon(&locked, ledger) {
            context.warn(format_args!("{}: {error}", self.interface));
        }
        self.unknown = None;
        Ok(true)
    }

    /// Tries again to write a restarted daemon into the ledger, if the first attempt failed.
    pub(super) fn record_daemon_again(&mut self) -> Result<(), Error> {
        if self.unrecorded.is_some() {
            let locked = lock::lock(self.interface, self.context)?;
            if let Some(ledger) = locked.read()? {
                // The first attempt has logged the error.
                let _ = self.record_daemon(&locked, ledger);
            }
        }
        Ok(())
    }

    /// Writes the restarted daemon into the ledger.
    fn record_daemon(&mut self, locked: &LockedLedger, mut ledger: Ledger) -> Result<(), LedgerError> {
        let Some(unrecorded) = self.unrecorded.clone() else { return Ok(()) };
        self.identity = unrecorded.identity.clone();
        unrecorded.enter(&mut ledger);
        locked.write(&ledger)?;
        self.unrecorded = None;
        Ok(())
    }
}

/// How often the end of the old interface is checked, with a [`PAUSE`] in between.
const LINK_GONE_ATTEMPTS: u32 = 100;

/// The update that gives a new device the state of `device`.
fn restored(device: &DeviceState) -> DeviceUpdate {
    let peer = |peer: &PeerState| PeerUpdate {
        preshared_key: peer.preshared_key.clone(),
        endpoint: peer.endpoint,
        persistent_keepalive: Some(peer.persistent_keepalive),
        limits: peer.limits.restored(),
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
        ..DeviceUpdate::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_since_the_last_state_are_in_what_is_restored() {
        let [bob, carol, dave, by_hand] = [2, 3, 4, 5].map(|byte| PublicKey([byte; 32]));
        let text = |peers: &[PublicKey]| {
            let peer = |key: &PublicKey| format!("[Peer]\nPublicKey = {key}\nAllowedIPs = 10.0.0.{}/32\n", key.0[0]);
            Buffer::from(format!("[Interface]\n{}", peers.iter().map(peer).collect::<String>()).into_bytes())
        };
        let file =
            |peers: &[PublicKey]| ConfigFile::of("/etc/wireguard/wg0.conf".into(), "wg0".parse().unwrap(), text(peers));
        let running = [bob, carol, by_hand].map(PeerState::new).into();
        let device = DeviceState { peers: running, ..DeviceState::default() };
        let last = LastState { copy: Arc::new(text(&[bob, carol])), device };
        let restored_to = |now: &ConfigFile| {
            let mut configuration = restored(&last.device);
            last.apply_edits(now, &mut configuration).unwrap();
            assert!(configuration.peers.iter().all(|peer| !peer.remove));
            configuration.peers.iter().map(|peer| peer.public_key).collect::<Vec<_>>()
        };
        assert_eq!(restored_to(&file(&[bob, carol])), [bob, carol, by_hand]);
        assert_eq!(restored_to(&file(&[carol, dave])), [carol, by_hand, dave]);
    }
}
