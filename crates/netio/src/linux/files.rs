//! inotify(7), renameat2(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Becomes readable when a file may have been deleted, moved or replaced.
pub struct FileWatch(OwnedFd);

impl FileWatch {
    /// Watches the file `path` from now on.
    ///
    /// # Errors
    /// There is no such file, or no watch is left.
    pub fn new(path: &Path) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // Deleting the name of a socket in use changes its link count (ATTRIB); DELETE_SELF comes only when it is
        // closed.
        inotify::add_watch(&watch, path, WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF)?;
        Ok(Self(watch))
    }

    /// Discards the events; whoever watches looks at the file.
    pub fn drain(&self) {
        let mut buffer = [0u8; 1024];
        while rustix::io::read(&self.0, &mut buffer).is_ok_and(|length| length > 0) {}
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives a file another name, unless there is a file of that name (`AlreadyExists`).
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}
