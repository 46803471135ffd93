//! inotify(7), renameat2(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Becomes readable when what is watched of a file or of a folder may have happened.
pub struct FileWatch(OwnedFd);

impl FileWatch {
    /// Watches from now on whether the file `path` is deleted, moved or replaced.
    ///
    /// # Errors
    /// There is no such file, or no watch is left.
    pub fn new(path: &Path) -> io::Result<Self> {
        // Deleting the name of a socket in use changes its link count (ATTRIB); DELETE_SELF comes only when it is
        // closed.
        Self::watch([path], WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF)
    }

    /// Watches from now on whether files are moved into `folder`, or deleted from it.
    ///
    /// # Errors
    /// As [`FileWatch::new`].
    pub fn of_folder(folder: &Path) -> io::Result<Self> {
        Self::watch([folder], WatchFlags::MOVED_TO | WatchFlags::DELETE)
    }

    /// Watches from now on whether something is written to `files`.
    ///
    /// # Errors
    /// As [`FileWatch::new`].
    pub fn of_writes<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> io::Result<Self> {
        Self::watch(files, WatchFlags::MODIFY)
    }

    fn watch<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>, what: WatchFlags) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        for path in paths {
            inotify::add_watch(&watch, path.as_ref(), what)?;
        }
        Ok(Self(watch))
    }

    /// Discards the events; whoever watches looks at the file. Returns whether there were any.
    pub fn drain(&self) -> bool {
        let mut buffer = [0u8; 1024];
        let mut happened = false;
        while rustix::io::read(&self.0, &mut buffer).is_ok_and(|length| length > 0) {
            happened = true;
        }
        happened
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
