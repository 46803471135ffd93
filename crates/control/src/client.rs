//! The tunnels of this machine, run by a daemon with a UAPI socket or, with the feature `kernel`, by the kernel module.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use linerate_netio::process::{peer, tun_of};

use crate::kernel::{self, KernelClient};
use crate::uapi::client::{ClientError, DaemonClient};
use crate::uapi::request::DeviceUpdate;
use crate::uapi::response::DeviceState;
use crate::uapi::socket::{self, SocketFile};

/// A client of a tunnel.
pub enum TunnelClient {
    /// A daemon runs it and answers on its socket.
    Daemon(DaemonClient),
    /// The kernel runs it, or it does not exist: the first request tells.
    Kernel(KernelClient),
}

impl TunnelClient {
    /// The tunnel `name`: the daemon's if one has its socket in `directory`, else the kernel's.
    ///
    /// A stale socket is removed, as `wg` does.
    ///
    /// # Errors
    /// The daemon's socket is not accessible, or there is none and the kernel has no module. Without `kernel` also if
    /// there is no socket.
    pub fn open(directory: &Path, name: &str) -> Result<Self, ClientError> {
        match daemon(directory, name) {
            Some(client) => Ok(Self::Daemon(client?)),
            None => Ok(Self::Kernel(KernelClient::open(name)?)),
        }
    }

    /// The tunnel whose interface has this name now. A daemon's socket keeps the name that the interface began with; that
    /// one leads to the tunnel, too, unless another's interface has it.
    ///
    /// # Errors
    /// As [`TunnelClient::open`].
    pub fn of_interface(directory: &Path, name: &str) -> Result<Self, ClientError> {
        let named = daemon(directory, name);
        let is_known = |client: &DaemonClient| interface_of(client).is_none_or(|now| now == name);
        match named {
            Some(Ok(client)) if is_known(&client) => return Ok(Self::Daemon(client)),
            _ => {}
        }
        match (renamed(directory, name), named) {
            (Some(client), _) => Ok(Self::Daemon(client)),
            (None, Some(client)) => Ok(Self::Daemon(client?)),
            (None, None) => Ok(Self::Kernel(KernelClient::open(name)?)),
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
    /// Unsupported for a tunnel of the kernel; as [`KernelClient::get`] if there is no such tunnel.
    pub fn stats(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        match self {
            Self::Daemon(client) => client.stats(),
            Self::Kernel(kernel) => {
                // Only a request tells whether it exists.
                kernel.get()?;
                Err(io::Error::new(io::ErrorKind::Unsupported, "tunnels of the kernel module have no counters").into())
            }
        }
    }

    /// A descriptor that becomes readable when the daemon exits; none for a tunnel of the kernel.
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

#[cfg(feature = "fleet")]
impl TunnelClient {
    /// What other gateways of a fleet have to know; see [`DaemonClient::fleet_changes`].
    ///
    /// # Errors
    /// Unsupported for a tunnel of the kernel.
    pub fn fleet_changes(&mut self, since: u64) -> Result<crate::uapi::fleet::FleetChanges, ClientError> {
        match self {
            Self::Daemon(client) => client.fleet_changes(since),
            Self::Kernel(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "tunnels of the kernel module belong to no fleet")
                    .into())
            }
        }
    }
}

/// The names of all tunnels: those of the kernel in its order, then those of daemons.
///
/// # Errors
/// The kernel's links or the directory cannot be listed.
pub fn names(directory: &Path) -> Result<Vec<String>, ClientError> {
    let mut names = kernel::interfaces()?;
    names.extend(daemon_names(directory)?);
    Ok(names)
}

/// The names that the interfaces of all tunnels have now: those of the kernel in its order, then those of daemons.
///
/// # Errors
/// As [`names`].
pub fn interfaces(directory: &Path) -> Result<Vec<String>, ClientError> {
    let mut names = kernel::interfaces()?;
    names.extend(daemon_interfaces(directory)?.into_iter().map(|(_, interface)| interface));
    Ok(names)
}

/// The tunnels whose daemons answer on a socket in `directory`, in the directory's order: the name of the socket, and that
/// which the interface has now.
///
/// # Errors
/// The directory cannot be listed.
pub fn daemon_interfaces(directory: &Path) -> Result<Vec<(String, String)>, ClientError> {
    let mut found = Vec::new();
    for name in socket::interfaces(directory)?.iter().map(ToString::to_string) {
        match daemon(directory, &name) {
            Some(Ok(client)) => found.push((name.clone(), interface_of(&client).unwrap_or(name))),
            Some(Err(_)) => found.push((name.clone(), name)),
            None => {}
        }
    }
    Ok(found)
}

/// The daemon whose interface has this name now, and whose socket has another one.
fn renamed(directory: &Path, name: &str) -> Option<DaemonClient> {
    let sockets = socket::interfaces(directory).ok()?;
    let others = sockets.iter().filter(|socket| socket.as_str() != name);
    // Dead daemons' sockets stay: like the original, a command for one tunnel removes only the socket of that name.
    let mut clients = others.filter_map(|socket| DaemonClient::connect(directory, socket).ok());
    clients.find(|client| interface_of(client).as_deref() == Some(name))
}

/// The name that the interface of a daemon has now, as far as this process can see that.
fn interface_of(daemon: &DaemonClient) -> Option<String> {
    tun_of(peer(daemon.as_fd()).ok()??)
}

/// The names of the tunnels whose daemons answer on a socket in `directory`, in the directory's order.
///
/// # Errors
/// The directory cannot be listed.
pub fn daemon_names(directory: &Path) -> Result<Vec<String>, ClientError> {
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
