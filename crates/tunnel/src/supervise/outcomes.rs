//! Writes into the tunnel's file what became of its peers while the tunnel ran, for whoever reads the file next: a
//! client that has expired becomes a comment, and a key that has taken the place of another is in its place.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_control::keys::PublicKey;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::DeviceState;
use linerate_control::usage::file_names;
use linerate_netio::files::FileWatch;

use super::Supervisor;
use super::troubles::Task;
use crate::edit::{HostChange, check_unchanged, host_change};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::read::ConfigFile;
use crate::save::replace;
use crate::{limits, lock};

impl Supervisor<'_> {
    /// Watches the files of the daemon's usage if peers of `file` have an end or a successor.
    pub(super) fn watch_usage(&mut self, ledger: &Ledger, file: &ConfigFile) {
        self.has_outcomes = file.has_outcomes();
        if !self.has_outcomes {
            self.outcomes_failed = None;
            self.note(Task::Outcomes, None);
        }
        let directory = ledger.usage.as_deref().filter(|_| self.has_outcomes);
        // It is written at once when a peer expires or is replaced.
        let files = |directory: &Path| file_names(self.interface.as_str()).map(|name| directory.join(name));
        self.usage = directory.and_then(|directory| FileWatch::of_writes(files(directory)).ok());
    }

    /// When to look for what became of peers, where nothing tells, or to try again to write it.
    pub(super) fn outcomes_interval(&self) -> Option<Duration> {
        let is_polled = self.has_outcomes && (self.usage.is_none() || self.outcomes_failed.is_some());
        is_polled.then_some(OUTCOMES_INTERVAL)
    }

    /// Writes what became of peers. Where that fails, for example because the file is not root's, it is tried again
    /// later; it is the daemon that keeps them out.
    pub(super) fn write_outcomes(&mut self, device: &DeviceState) {
        let failed_lately = self.outcomes_failed.is_some_and(|failed| failed.elapsed() < OUTCOMES_INTERVAL);
        if !self.has_outcomes || failed_lately {
            return;
        }
        let Err(error) = self.try_write_outcomes(device) else {
            self.outcomes_failed = None;
            self.note(Task::Outcomes, None);
            return;
        };
        self.note(Task::Outcomes, Some(format!("the file does not tell yet what became of clients: {error}")));
        if self.outcomes_failed.replace(Instant::now()).is_none() {
            self.context.warn(format_args!(
                "{}: the file does not tell yet what became of clients, and is tried again each minute: {error}",
                self.interface
            ));
        }
    }

    fn try_write_outcomes(&mut self, device: &DeviceState) -> Result<(), Error> {
        let read = |path: &Path| ConfigFile::read(path.to_owned(), self.interface.clone());
        let of_copy = |_| ConfigFile::of(self.file.clone(), self.interface.clone(), Arc::clone(&self.copy));
        // A file that cannot be read does no harm until there is something to tell.
        if read(&self.file).unwrap_or_else(of_copy).with_outcomes(device)?.is_none() {
            return Ok(());
        }
        let locked = lock::lock(self.interface, self.context)?;
        let file = read(&self.file)?;
        file.check()?;
        let Some(document) = file.with_outcomes(device)? else { return Ok(()) };
        check_unchanged(&file)?;
        let new = file.with(document);
        replace(&new.path, new.text()).map_err(Error::system("cannot write the file"))?;
        let gone = removed_keys(&file, &new);
        let peers: Vec<_> = gone.into_iter().map(|key| PeerUpdate { remove: true, ..PeerUpdate::new(key) }).collect();
        let update = DeviceUpdate { peers, ..DeviceUpdate::default() };
        if let Err(error) = limits::set(self.interface.as_str(), &update) {
            self.context.message(format_args!("{}: {error}", self.interface));
        }
        // The next reload compares with the copy, which has other edits of the file only once they are applied.
        let mut concerns_host = false;
        if let (Some(ledger), Some(copy)) = (locked.read_head()?, locked.read_file()?) {
            let copy = ConfigFile::of(file.path, file.interface, copy);
            if let Some(document) = copy.with_outcomes(device)? {
                locked.write_file(&document.to_bytes())?;
                concerns_host = host_change(&copy, &copy.with(document), &ledger) != HostChange::None;
            }
        }
        drop(locked);
        self.context.message(format_args!(
            "{}: clients that have expired, or have a new key, are so in the file",
            self.interface
        ));
        // The next client with such an address is not to inherit its destinations.
        if concerns_host { self.reload_host() } else { Ok(()) }
    }
}

/// How often to look where nothing tells, and how long to wait after a failure.
const OUTCOMES_INTERVAL: Duration = Duration::from_mins(1);

/// The keys of peers that are comments now. A key that was replaced is gone already.
fn removed_keys(before: &ConfigFile, after: &ConfigFile) -> Vec<PublicKey> {
    let stays = |key: &PublicKey| after.contents.peers.iter().any(|peer| peer.public_key == *key);
    before.contents.peers.iter().map(|peer| peer.public_key).filter(|key| !stays(key)).collect()
}
