//! The other end of the UAPI socket: asks a running daemon, ours or another's.
//!
//! Blocking, with a patience of ten seconds without a byte. Never removes a socket file: a stale
//! one is the next daemon's to replace.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::interface::InterfaceName;
use crate::uapi::request::DeviceUpdate;
use crate::uapi::response::{self, Activity, DeviceState, ReplyError};
use crate::uapi::socket;
use crate::zeroizing::Buffer;

/// How long a daemon may be silent in the middle of a conversation.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest reply taken, in bytes: 2^20 peers of 500 bytes.
const REPLY_MAX: usize = 512 << 20;

/// Why a question to a daemon has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket could not be reached, or broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The daemon refused, or does not speak the protocol.
    #[error("{0}")]
    Reply(#[from] ReplyError),
}

impl ClientError {
    /// Why a `get` failed, as `wg` says it: the daemon's error number as it is.
    #[must_use]
    pub fn reason_of_get(&self) -> String {
        match self {
            Self::Io(error) => error.to_string(),
            Self::Reply(ReplyError::Refused(number @ 1..)) => message_of(*number),
            Self::Reply(_) => Errno::PROTO.to_string(),
        }
    }

    /// Why a `set` failed, as `wg` says it: the daemon's error number negated.
    #[must_use]
    pub fn reason_of_set(&self) -> String {
        match self {
            Self::Io(error) => error.to_string(),
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

/// An open conversation with the daemon of one interface.
pub struct DaemonClient(UnixStream);

impl DaemonClient {
    /// Connects to the daemon of `interface`, with its socket in `directory`
    /// (ordinarily [`socket::DIRECTORY`]).
    ///
    /// # Errors
    /// NotFound without a socket, ConnectionRefused if its daemon is gone, PermissionDenied if the
    /// socket belongs to someone else, TimedOut if the daemon takes no connection.
    pub fn connect(directory: &Path, interface: &InterfaceName) -> io::Result<Self> {
        let address = SocketAddrUnix::new(socket::path(directory, interface))?;
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&stream, Timeout::Recv, Some(PATIENCE))?;
        // This one is also that of connecting, which waits while others fill the daemon's backlog.
        set_socket_timeout(&stream, Timeout::Send, Some(PATIENCE))?;
        connect(&stream, &address).map_err(|errno| patient(errno.into()))?;
        Ok(Self(stream.into()))
    }

    /// The whole state of the device.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get(&mut self) -> Result<DeviceState, ClientError> {
        let reply = self.ask(b"get=1\n\n")?;
        Ok(response::parse(&reply)?)
    }

    /// Changes the device, whole or not at all.
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
        let reply = self.ask(request)?;
        Ok(response::parse_set(&reply)?)
    }

    /// The daemon's counters by name; only linerated has them, others close the connection.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn stats(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        let reply = self.ask(b"stats=1\n\n")?;
        Ok(response::parse_stats(&reply)?)
    }

    /// What happened with the peers that were active since a moment that an earlier reply named, or with all since 0;
    /// only linerated tells, others close the connection.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn activity(&mut self, since: u64) -> Result<Activity, ClientError> {
        let reply = self.ask(format!("activity={since}\n\n").as_bytes())?;
        Ok(response::parse_activity(&reply)?)
    }

    fn ask(&mut self, request: &[u8]) -> Result<Buffer, ClientError> {
        self.0.write_all(request).map_err(patient)?;
        let mut reply = Buffer::new();
        let mut piece = zeroize::Zeroizing::new(vec![0u8; 64 << 10]);
        // No value is empty, so the first two ends of line in a row are the end.
        while !reply.ends_with(b"\n\n") {
            let length = self.0.read(&mut piece).map_err(patient)?;
            if length == 0 || reply.len() > REPLY_MAX {
                return Err(ReplyError::Truncated.into());
            }
            reply.extend(&piece[..length]);
        }
        Ok(reply)
    }
}

/// Readable when the daemon ends, or closes the conversation.
impl AsFd for DaemonClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn patient(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let sentence = format!("the daemon did not answer within {} seconds", PATIENCE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, sentence)
}
