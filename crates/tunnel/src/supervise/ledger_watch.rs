//! Notices changes of ledgers, with inotify(7).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify;

use crate::error::Error;
use crate::ledger;

/// A watch on the directory of ledgers.
pub(super) struct LedgerWatch(OwnedFd);

impl AsFd for LedgerWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl LedgerWatch {
    pub(super) fn new() -> Result<Self, Error> {
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
    pub(super) fn clear(&self) -> bool {
        let mut events = [0u8; 4096];
        let mut changed = false;
        while rustix::io::read(&self.0, &mut events).is_ok_and(|length| length > 0) {
            changed = true;
        }
        changed
    }
}
