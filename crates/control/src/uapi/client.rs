//! The UAPI client: sends requests to a running daemon, ours or another implementation's.
//!
//! Blocking, with a timeout of ten seconds without a byte. Never removes a socket file: the next daemon replaces a
//! stale one.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use linerate_netio::process::unix_socket;
use linerate_netlink::NetlinkError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketAddrUnix, connect};

use crate::interface::InterfaceName;
use crate::uapi::request::DeviceUpdate;
use crate::uapi::response::{self, Activity, DeviceState, ReplyError};
use crate::uapi::socket;
use crate::zeroizing::Buffer;

/// How long a daemon may take to send or accept the next byte.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The largest reply taken, in bytes: 2^20 peers of 500 bytes.
const REPLY_MAX: usize = 512 << 20;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Connecting, reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The daemon refused, or does not speak the protocol.
    #[error("{0}")]
    Reply(#[from] ReplyError),
    /// The kernel refused, or querying it failed.
    #[error("{0}")]
    Kernel(#[from] NetlinkError),
}

impl ClientError {
    /// The error of the operating system, if it is one.
    #[must_use]
    pub fn as_io(&self) -> Option<&io::Error> {
        match self {
            Self::Io(error) | Self::Kernel(NetlinkError { error, .. }) => Some(error),
            Self::Reply(_) => None,
        }
    }

    /// The message of `wg` about a failed `get`, which takes the error number of the daemon as it is.
    #[must_use]
    pub fn reason_of_get(&self) -> String {
        match self {
            Self::Io(_) | Self::Kernel(_) => self.to_string(),
            Self::Reply(ReplyError::Refused(number @ 1..)) => message_of(*number),
            Self::Reply(_) => Errno::PROTO.to_string(),
        }
    }

    /// The message of `wg` about a failed `set`, which negates the error number of the daemon.
    #[must_use]
    pub fn reason_of_set(&self) -> String {
        match self {
            Self::Io(_) | Self::Kernel(_) => self.to_string(),
            Self::Reply(ReplyError::Refused(number)) => message_of(number.saturating_neg()),
            Self::Reply(_) => Errno::PROTO.to_string(),
        }
    }
}

fn message_of(number: i64) -> String {
    match i32::try_from(number) {
        Ok(number) => io::Error::from_raw_os_error(number).to_string(),
        Err(_) => Errno::PROTO.to_string(),
    }
}

/// A connection to the daemon of one interface.
pub struct DaemonClient(UnixStream);

impl DaemonClient {
    /// Connects to the daemon of `interface` through its socket in `directory`, usually [`socket::DIRECTORY`].
    ///
    /// # Errors
    /// NotFound without a socket, ConnectionRefused if its daemon has died, PermissionDenied if the socket belongs to
    /// another user, TimedOut if the daemon does not accept the connection.
    pub fn connect(directory: &Path, interface: &InterfaceName) -> io::Result<Self> {
        let address = SocketAddrUnix::new(socket::path(directory, interface))?;
        let stream = unix_socket()?;
        set_socket_timeout(&stream, Timeout::Recv, Some(TIMEOUT))?;
        // Also limits connect, which waits while the daemon's backlog is full.
        set_socket_timeout(&stream, Timeout::Send, Some(TIMEOUT))?;
        connect(&stream, &address).map_err(|errno| timeout_error(errno.into()))?;
        Ok(Self(stream.into()))
    }

    /// The whole state of the device.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get(&mut self) -> Result<DeviceState, ClientError> {
        let reply = self.request(b"get=1\n\n")?;
        Ok(response::parse(&reply)?)
    }

    /// Changes the device. A change is applied completely or not at all.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set(&mut self, update: &DeviceUpdate) -> Result<(), ClientError> {
        self.set_text(&update.render())
    }

    /// As [`DaemonClient::set`], with a request in text, from `set=1` to its blank line.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set_text(&mut self, request: &[u8]) -> Result<(), ClientError> {
        let reply = self.request(request)?;
        Ok(response::parse_set(&reply)?)
    }

    /// The daemon's counters by name. Only linerated has them; other daemons close the connection.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn stats(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        let reply = self.request(b"stats=1\n\n")?;
        Ok(response::parse_stats(&reply)?)
    }

    /// The peers that were active since a time from an earlier reply, or all peers for 0. Only linerated has them;
    /// other daemons close the connection.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn activity(&mut self, since: u64) -> Result<Activity, ClientError> {
        let reply = self.request(format!("activity={since}\n\n").as_bytes())?;
        Ok(response::parse_activity(&reply)?)
    }

    /// What other gateways of a fleet have to know of the peers that changed since the reply with this number; 0: of all
    /// that ever changed.
    ///
    /// # Errors
    /// See [`ClientError`].
    #[cfg(feature = "fleet")]
    pub fn fleet_changes(&mut self, since: u64) -> Result<crate::uapi::fleet::FleetChanges, ClientError> {
        let reply = self.request(format!("fleet_changes={since}\n\n").as_bytes())?;
        Ok(crate::uapi::fleet::parse_changes(&reply)?)
    }

    /// Whether the daemon has closed the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let mut ready = [PollFd::new(&self.0, PollFlags::IN)];
        let closed = PollFlags::HUP | PollFlags::ERR;
        poll(&mut ready, Some(&Timespec::default())).is_ok() && ready[0].revents().intersects(closed)
    }

    fn request(&mut self, request: &[u8]) -> Result<Buffer, ClientError> {
        self.0.write_all(request).map_err(timeout_error)?;
        let mut reply = Buffer::new();
        let mut chunk = zeroize::Zeroizing::new(vec![0u8; 64 << 10]);
        // Every line has a value, so the first empty line is the end.
        while !reply.ends_with(b"\n\n") {
            let length = self.read(&mut chunk).map_err(timeout_error)?;
            if length == 0 || reply.len() > REPLY_MAX {
                return Err(ReplyError::Truncated.into());
            }
            reply.extend(&chunk[..length]);
        }
        Ok(reply)
    }

    /// A signal, such as that of a child that has ended, interrupts a read with a timeout, whatever its handler says.
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            match self.0.read(chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && began.elapsed() < TIMEOUT => {}
                outcome => return outcome,
            }
        }
    }
}

/// Readable when the daemon exits or closes the connection.
impl AsFd for DaemonClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Explains a socket timeout, which the kernel reports as EAGAIN.
fn timeout_error(error: io::Error) -> io::Error {
    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
        return error;
    }
    let sentence = format!("the daemon did not respond within {} seconds", TIMEOUT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, sentence)
}
