//! The socket file of an interface: its path and permissions, and when a stale one is replaced or removed.
//!
//! Never touches a file that is not a dead socket of that name.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use linerate_netio::files::FileWatch;
use linerate_netio::process::is_unix_listener;
use rustix::fs::Mode;

use crate::interface::InterfaceName;

/// Where `wg` looks for the sockets of user-space implementations.
pub const DIRECTORY: &str = "/var/run/wireguard";

/// The socket of `interface` in `directory`.
pub fn path(directory: &Path, interface: &InterfaceName) -> PathBuf {
    directory.join(format!("{interface}.sock"))
}

/// The interfaces that have a socket in `directory`, in the directory's order; none if it does not exist. A daemon may
/// no longer answer there.
///
/// # Errors
/// The directory cannot be read.
pub fn interfaces(directory: &Path) -> io::Result<Vec<InterfaceName>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let file = entry.file_name();
        let name = file.to_str().and_then(|file| file.strip_suffix(".sock"));
        let name = name.and_then(|name| name.parse().ok());
        names.extend(name.filter(|name| SocketFile::find(directory, name).is_some()));
    }
    Ok(names)
}

/// A socket on which a daemon may answer, or a symbolic link to one.
pub(crate) struct SocketFile {
    path: PathBuf,
    file: FileId,
}

impl SocketFile {
    /// The socket of `interface`, if there is one.
    pub(crate) fn find(directory: &Path, interface: &InterfaceName) -> Option<Self> {
        let path = path(directory, interface);
        let file = file_id(&path).ok()?;
        fs::metadata(&path).ok()?.file_type().is_socket().then_some(Self { path, file })
    }

    /// Removes it, unless another file has taken its place since it was found. Without the permission it stays for the
    /// next daemon to replace.
    pub(crate) fn remove(self) {
        if file_id(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Why the socket could not be opened, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process answers on the socket.
    #[error("{0} is already served by another process: stop it, or delete {path} to make it exit", path = .1.display())]
    InUse(InterfaceName, PathBuf),
    /// A file that is not a socket has the socket's name.
    #[error("{path} exists and is not a socket: move it away", path = .0.display())]
    NotASocket(PathBuf),
    /// The inherited descriptor is not a listening Unix socket.
    #[error("not a listening Unix socket: pass the descriptor of one")]
    NotListening,
    /// The operating system refused.
    #[error("cannot open {path}: {1}", path = .0.display())]
    Io(PathBuf, #[source] io::Error),
}

/// A listening socket and its file, which is removed on drop.
pub struct Listener {
    pub(super) socket: UnixListener,
    pub(super) path: PathBuf,
    file: FileId,
}

/// Device and inode.
type FileId = (u64, u64);

impl Listener {
    /// Creates the directory (0755) and the socket (0700), and listens. Replaces a socket on which nobody answers.
    ///
    /// Changes the umask of the process for a moment: call it before any thread creates files.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(directory: &Path, interface: &InterfaceName) -> Result<Self, OpenError> {
        let path = path(directory, interface);
        let failed = |error| OpenError::Io(path.clone(), error);
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
        remove_stale(directory, interface)?;
        // Between bind and listen a socket refuses connections, and `wg` would delete it as stale. So it gets its final
        // name once it listens.
        let unnamed = unnamed(directory, interface);
        let socket = bind_privately(&unnamed).map_err(failed)?;
        fs::rename(&unnamed, &path).map_err(failed)?;
        Self::of(socket, path.clone()).map_err(failed)
    }

    /// Takes over a listening socket (WG_UAPI_FD) whose file exists already.
    ///
    /// # Errors
    /// The file does not exist, or the descriptor is not a listening Unix socket.
    pub fn inherit(socket: OwnedFd, directory: &Path, interface: &InterfaceName) -> Result<Self, OpenError> {
        let path = path(directory, interface);
        if !is_unix_listener(socket.as_fd()) {
            return Err(OpenError::NotListening);
        }
        Self::of(socket.into(), path.clone()).map_err(|error| OpenError::Io(path, error))
    }

    fn of(socket: UnixListener, path: PathBuf) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let file = file_id(&path)?;
        Ok(Self { socket, path, file })
    }

    /// Whether the file is still there and still ours: deleting it is how to stop a daemon.
    pub fn is_in_place(&self) -> bool {
        file_id(&self.path).is_ok_and(|file| file == self.file)
    }

    /// Watches the file: [`Listener::is_in_place`] tells what happened.
    pub(super) fn watch(&self) -> io::Result<FileWatch> {
        FileWatch::new(&self.path)
    }

    /// The socket, to pass to another process; the file stays.
    #[cfg(test)]
    pub(super) fn into_socket(mut self) -> io::Result<OwnedFd> {
        let socket = self.socket.try_clone()?;
        // Dropping `self` leaves a file alone that it does not recognize.
        self.file = (0, 0);
        Ok(socket.into())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.is_in_place() {
            // The next daemon replaces a file that stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind_privately(path: &Path) -> io::Result<UnixListener> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o077));
    let socket = UnixListener::bind(path);
    rustix::process::umask(before);
    socket
}

/// Removes the socket of a daemon that has died, if there is one.
///
/// # Errors
/// [`OpenError::InUse`] if a daemon answers there; the file is not a socket or cannot be removed.
pub fn remove_stale(directory: &Path, interface: &InterfaceName) -> Result<(), OpenError> {
    let path = &path(directory, interface);
    let failed = |error| OpenError::Io(path.to_owned(), error);
    remove_stale_file(path, interface)?;
    // A daemon that was killed before it gave its socket the final name has left this one.
    match fs::remove_file(unnamed(directory, interface)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

/// The path of a socket until it listens.
fn unnamed(directory: &Path, interface: &InterfaceName) -> PathBuf {
    directory.join(format!("{interface}.sock.new"))
}

fn remove_stale_file(path: &Path, interface: &InterfaceName) -> Result<(), OpenError> {
    let failed = |error| OpenError::Io(path.to_owned(), error);
    let file = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(failed)?,
    };
    if !file.file_type().is_socket() {
        return Err(OpenError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(_) => Err(OpenError::InUse(interface.clone(), path.to_owned())),
    }
}

fn file_id(path: &Path) -> io::Result<FileId> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_daemon_leaves_that_was_killed_while_it_opened_its_socket_is_removed() {
        let interface: InterfaceName = "wg0".parse().unwrap();
        let directory = tempfile::tempdir().unwrap();
        for left in [path(directory.path(), &interface), unnamed(directory.path(), &interface)] {
            drop(UnixListener::bind(&left).unwrap());
            remove_stale(directory.path(), &interface).unwrap();
            assert!(!left.exists(), "{}", left.display());
        }
    }

    #[test]
    fn a_descriptor_that_does_not_listen_is_refused() {
        let interface: InterfaceName = "wg0".parse().unwrap();
        let (talks, _other) = UnixStream::pair().unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for fd in [OwnedFd::from(talks), null.into(), udp.into()] {
            let refused = Listener::inherit(fd, Path::new("/nonexistent"), &interface);
            assert!(matches!(refused, Err(OpenError::NotListening)));
        }
    }

    #[test]
    fn a_dead_socket_is_removed_but_not_one_that_has_replaced_it() {
        let directory = std::env::temp_dir().join(format!("linerate-dead-{}", std::process::id()));
        let interface: InterfaceName = "wg0".parse().unwrap();
        fs::create_dir_all(&directory).unwrap();
        let path = path(&directory, &interface);
        let dead = || drop(UnixListener::bind(&path).unwrap());
        dead();
        let found = SocketFile::find(&directory, &interface).unwrap();
        let elsewhere = directory.join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        dead();
        found.remove();
        assert!(path.exists(), "another socket");
        SocketFile::find(&directory, &interface).unwrap().remove();
        assert!(!path.exists() && elsewhere.exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
