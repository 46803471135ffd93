//! The socket file of an interface: where it is, who may open it, when a left-over is replaced and
//! when it is taken away.
//!
//! Never touches a file that is not a dead socket of that very name.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, sockopt};

use crate::interface::InterfaceName;

/// Where `wg` looks for the sockets of user-space implementations.
pub const DIRECTORY: &str = "/var/run/wireguard";

/// The socket of `interface` in `directory`.
pub fn path(directory: &Path, interface: &InterfaceName) -> PathBuf {
    directory.join(format!("{interface}.sock"))
}

/// The interfaces that have a socket in `directory`, in the directory's order; a missing directory
/// has none. Whether a daemon still answers there shows when one connects.
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

/// A socket that a daemon may answer on, or the symbolic link to one.
pub(crate) struct SocketFile {
    path: PathBuf,
    file: FileId,
}

impl SocketFile {
    /// What is there for `interface`.
    pub(crate) fn find(directory: &Path, interface: &InterfaceName) -> Option<Self> {
        let path = path(directory, interface);
        let file = file_id(&path).ok()?;
        fs::metadata(&path).ok()?.file_type().is_socket().then_some(Self { path, file })
    }

    /// Removes it, as nobody answers; not what somebody has put into its place since it was found. Who may not remove it
    /// leaves it for the next daemon.
    pub(crate) fn remove(self) {
        if file_id(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Why the socket could not be opened, in a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process answers on the socket.
    #[error("{0} is served by another process: stop it, or delete {path} to make it end", path = .1.display())]
    InUse(InterfaceName, PathBuf),
    /// Something that is no socket has the socket's name.
    #[error("{path} is in the way and is not a socket: move it away", path = .0.display())]
    NotASocket(PathBuf),
    /// The descriptor that was handed over is of no use.
    #[error("it is no unix socket that listens: pass the descriptor of one")]
    NotListening,
    /// The operating system refused.
    #[error("cannot open {path}: {1}", path = .0.display())]
    Io(PathBuf, #[source] io::Error),
}

/// A listening socket and the file it is known by; the file goes when this does.
pub struct Listener {
    pub(super) socket: UnixListener,
    pub(super) path: PathBuf,
    file: FileId,
}

/// Which file it is, whatever its name.
type FileId = (u64, u64);

impl Listener {
    /// Makes the directory (0755) and the socket (0700), and listens. A socket that nobody answers
    /// on is replaced.
    ///
    /// Sets the process's umask for a moment: call it before there are threads that make files.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(directory: &Path, interface: &InterfaceName) -> Result<Self, OpenError> {
        let path = path(directory, interface);
        let refused = |error| OpenError::Io(path.clone(), error);
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(refused)?;
        remove_stale(directory, interface)?;
        // A socket is bound before it listens, and in between it refuses connections: `wg` takes
        // such a one for a left-over and deletes it. So it gets its name when it listens.
        let unnamed = directory.join(format!("{interface}.sock.new"));
        match fs::remove_file(&unnamed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(error)),
            _ => {}
        }
        let socket = bind_privately(&unnamed).map_err(refused)?;
        fs::rename(&unnamed, &path).map_err(refused)?;
        Self::of(socket, path.clone()).map_err(refused)
    }

    /// Takes over a listening socket (WG_UAPI_FD) whose file is already in its place.
    ///
    /// # Errors
    /// The file is not there, or the descriptor is no unix socket that listens.
    pub fn inherit(socket: OwnedFd, directory: &Path, interface: &InterfaceName) -> Result<Self, OpenError> {
        let path = path(directory, interface);
        let is_unix = sockopt::socket_domain(&socket).is_ok_and(|domain| domain == AddressFamily::UNIX);
        if !is_unix || !sockopt::socket_acceptconn(&socket).unwrap_or(false) {
            return Err(OpenError::NotListening);
        }
        Self::of(socket.into(), path.clone()).map_err(|error| OpenError::Io(path, error))
    }

    fn of(socket: UnixListener, path: PathBuf) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let file = file_id(&path)?;
        Ok(Self { socket, path, file })
    }

    /// Whether the file is still there and still ours: deleting it is how one ends a daemon.
    pub fn is_in_place(&self) -> bool {
        file_id(&self.path).is_ok_and(|file| file == self.file)
    }

    /// The socket, to be handed to another process; the file stays.
    pub fn into_socket(self) -> io::Result<OwnedFd> {
        // Dropping `self` would remove the file, so the other process gets a duplicate and the
        // destructor is told that the file is someone else's.
        let socket = self.socket.try_clone()?;
        let mut left = self;
        left.file = (0, 0);
        Ok(socket.into())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.is_in_place() {
            // Nobody is left to tell; the next daemon replaces a left-over.
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

/// Removes the socket of a daemon that has died; fine if there is none.
///
/// # Errors
/// [`OpenError::InUse`] if a daemon answers there, or the file is not a socket or cannot be removed.
pub fn remove_stale(directory: &Path, interface: &InterfaceName) -> Result<(), OpenError> {
    let path = &path(directory, interface);
    let refused = |error| OpenError::Io(path.to_owned(), error);
    let file = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(refused)?,
    };
    if !file.file_type().is_socket() {
        return Err(OpenError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(refused),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(error)),
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
    fn a_dead_socket_is_removed_and_not_the_one_that_has_taken_its_place() {
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
        assert!(path.exists(), "it is another");
        SocketFile::find(&directory, &interface).unwrap().remove();
        assert!(!path.exists() && elsewhere.exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
