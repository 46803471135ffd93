//! Tells when a file, in practice the daemon's UAPI socket, is deleted or replaced.
//!
//! Deleting the socket is how a user ends a user-space WireGuard (`wg-quick down` does so). Never
//! polls: the kernel wakes the one who waits on the descriptor.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

/// A watch on the file that a path named when the watch was made.
pub struct FileWatch {
    fd: OwnedFd,
    path: PathBuf,
    identity: (u64, u64),
}

impl FileWatch {
    /// Watches what `path` names; a symbolic link at the end is itself the file.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        // A listening socket keeps its inode, so that DELETE_SELF comes only once the socket is
        // closed; its link count falling to zero is what ATTRIB tells.
        let events = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::DONT_FOLLOW;
        add_watch(&fd, &path, events)?;
        let identity = identity(&path)?;
        Ok(Self { fd, path, identity })
    }

    /// Whether the path no longer names that file. To be asked when the descriptor is readable,
    /// which it also becomes when, say, only the file's mode was changed.
    pub fn gone(&self) -> bool {
        let mut events = [0u8; 4096];
        while rustix::io::read(&self.fd, &mut events).is_ok_and(|count| count > 0) {}
        !identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn deleting_a_listening_socket_wakes_and_is_gone() {
        let (folder, path, _listener) = listening("delete");
        let watch = FileWatch::new(&path).unwrap();
        assert!(!watch.gone());
        fs::remove_file(&path).unwrap();
        wait(&[watch.as_fd()]).unwrap();
        assert!(watch.gone());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn replacing_a_listening_socket_wakes_and_is_gone() {
        let (folder, path, _listener) = listening("replace");
        let watch = FileWatch::new(&path).unwrap();
        let other = folder.join("other");
        let _usurper = UnixListener::bind(&other).unwrap();
        fs::rename(&other, &path).unwrap();
        wait(&[watch.as_fd()]).unwrap();
        assert!(watch.gone());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_change_of_mode_wakes_but_is_not_gone() {
        let (folder, path, _listener) = listening("mode");
        let watch = FileWatch::new(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        wait(&[watch.as_fd()]).unwrap();
        assert!(!watch.gone());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_is_refused() {
        let error = FileWatch::new("/nonexistent/socket").err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    fn listening(name: &str) -> (PathBuf, PathBuf, UnixListener) {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("linerate-netio-{id}-{name}"));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        (folder, path, listener)
    }
}
