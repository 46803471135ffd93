//! EVFILT_VNODE of kqueue(2), on the folder of the file: a socket cannot be opened.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::sys::kqueue::Queue;

/// Becomes readable when what is watched of a file or of a folder may have happened.
pub struct FileWatch {
    queue: Queue,
    /// It is watched until it is closed.
    _folder: OwnedFd,
}

impl FileWatch {
    /// Watches from now on whether the file `path` is deleted, moved or replaced.
    ///
    /// # Errors
    /// Its folder cannot be read.
    pub fn new(path: &Path) -> io::Result<Self> {
        Self::of_folder(path.parent().ok_or(io::ErrorKind::InvalidInput)?)
    }

    /// Watches from now on whether files are made in `folder`, renamed, or deleted from it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_folder(folder: &Path) -> io::Result<Self> {
        let folder = open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let queue = Queue::new()?;
        queue.watch_folder(folder.as_fd())?;
        Ok(Self { queue, _folder: folder })
    }

    /// # Errors
    /// Always: whoever asks looks from time to time.
    pub fn of_writes<P: AsRef<Path>>(_: impl IntoIterator<Item = P>) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Discards the events; whoever watches looks at the file. Returns whether there were any.
    pub fn drain(&self) -> bool {
        self.queue.take().is_some()
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
