//! EVFILT_VNODE of kqueue(2), on the folder of the file: a socket cannot be opened.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::sys::kqueue::Queue;

/// Becomes readable when a file may have been deleted, moved or replaced.
pub struct FileWatch {
    queue: Queue,
    /// It is watched until it is closed.
    _folder: OwnedFd,
}

impl FileWatch {
    /// Watches the file `path` from now on.
    ///
    /// # Errors
    /// Its folder cannot be read.
    pub fn new(path: &Path) -> io::Result<Self> {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let queue = Queue::new()?;
        queue.watch_folder(folder.as_fd())?;
        Ok(Self { queue, _folder: folder })
    }

    /// Discards the events; whoever watches looks at the file.
    pub fn drain(&self) {
        self.queue.take();
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Gives a file another name, unless there is a file of that name (`AlreadyExists`). For a moment it has both.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}
