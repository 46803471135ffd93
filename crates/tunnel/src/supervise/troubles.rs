//! What a supervisor cannot do at present. Nobody reads the log of one in the background, so `status` shows it.

use std::fs::File;

use super::Supervisor;
use crate::ledger;

/// What may fail, and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// To write into the file what became of clients.
    Outcomes,
    /// To hear of changes of the host.
    Watch,
    /// To restore what others have removed.
    Restore,
    /// To have the gateway follow them.
    Follow,
}

impl Supervisor<'_> {
    /// Holds the supervisor's lock from now on, if this is it.
    pub(super) fn hold(&mut self, lock: Option<File>) {
        self.lock = lock;
        self.tell_troubles();
    }

    /// Notes how a task went.
    pub(super) fn note(&mut self, task: Task, trouble: Option<String>) {
        let before = match &trouble {
            Some(trouble) => self.troubles.insert(task, trouble.clone()),
            None => self.troubles.remove(&task),
        };
        if before != trouble {
            self.tell_troubles();
        }
    }

    fn tell_troubles(&self) {
        // They are in the log, too.
        let _ = self.lock.as_ref().map(|lock| ledger::write_troubles(lock, self.troubles.values()));
    }
}
