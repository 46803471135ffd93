//! The tunnels of this machine, whoever runs them: a daemon behind a socket, or the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::kernel::{self, KernelClient};
use crate::uapi::client::{ClientError, DaemonClient};
use crate::uapi::request::DeviceUpdate;
use crate::uapi::response::DeviceState;
use crate::uapi::socket::{self, SocketFile};

/// A tunnel, to be asked and changed.
pub enum TunnelClient {
    /// Run by a daemon that answers on its socket.
    Daemon(DaemonClient),
    /// Run by the kernel, or by nobody: which of the two shows when it is asked.
    Kernel(KernelClient),
}

impl TunnelClient {
    /// The tunnel `name`: the daemon's if one has its socket in `directory`, else the kernel's.
    ///
    /// A socket whose daemon is gone counts as none, and is removed, as `wg` does.
    ///
    /// # Errors
    /// Not allowed to reach the daemon, or it is none of a daemon's and the kernel has no module.
    pub fn open(directory: &Path, name: &str) -> io::Result<Self> {
        match daemon(directory, name) {
            Some(client) => client.map(Self::Daemon),
            None => KernelClient::open(name).map(Self::Kernel),
        }
    }

    /// The whole state.
    ///
    /// # Errors
    /// See [`DaemonClient::get`] and [`KernelClient::get`].
    pub fn get(&mut self) -> Result<DeviceState, ClientError> {
        match self {
            Self::Daemon(client) => client.get(),
            Self::Kernel(kernel) => Ok(kernel.get()?),
        }
    }

    /// The daemon's counters by name; see [`DaemonClient::stats`].
    ///
    /// # Errors
    /// Unsupported for the kernel's; as [`KernelClient::get`] if there is no such tunnel.
    pub fn stats(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        match self {
            Self::Daemon(client) => client.stats(),
            Self::Kernel(kernel) => {
                // Whether there is one shows only when it is asked.
                kernel.get()?;
                Err(io::Error::new(io::ErrorKind::Unsupported, "it is the kernel's, which tells no counters").into())
            }
        }
    }

    /// A descriptor that becomes readable when the daemon ends; none for the kernel's, which does not.
    pub fn closed(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Daemon(client) => Some(client.as_fd()),
            Self::Kernel(_) => None,
        }
    }

    /// Changes the tunnel.
    ///
    /// # Errors
    /// See [`DaemonClient::set`] and [`KernelClient::set`].
    pub fn set(&mut self, update: &DeviceUpdate) -> Result<(), ClientError> {
        match self {
            Self::Daemon(client) => client.set(update),
            Self::Kernel(kernel) => Ok(kernel.set(update)?),
        }
    }
}

/// The names of all tunnels: the kernel's in its order, then the daemons'.
///
/// # Errors
/// The kernel's links or the directory cannot be listed.
pub fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = kernel::interfaces()?;
    names.extend(daemon_names(directory)?);
    Ok(names)
}

/// The names of tunnels whose daemons have their socket in `directory`, in the directory's order.
///
/// # Errors
/// The directory cannot be listed.
pub fn daemon_names(directory: &Path) -> io::Result<Vec<String>> {
    let names = socket::interfaces(directory)?.into_iter().map(|name| name.to_string());
    Ok(names.filter(|name| daemon(directory, name).is_some()).collect())
}

/// The daemon of `name`, if there is one.
fn daemon(directory: &Path, name: &str) -> Option<io::Result<DaemonClient>> {
    let name = name.parse().ok()?;
    let socket = SocketFile::find(directory, &name)?;
    match DaemonClient::connect(directory, &name) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            socket.remove();
            None
        }
        client => Some(client),
    }
}
