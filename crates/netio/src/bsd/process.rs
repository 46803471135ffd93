//! Signals by kqueue(2), the peer of a unix socket. There is no filter of system calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;

use rustix::net::{AddressFamily, SocketType};

pub use super::os::is_unix_listener;
use crate::process::{Signal, TrappedCalls};
use crate::sys::{self, credentials, kqueue::Queue};

/// SIGINT and SIGTERM, read from a descriptor.
pub struct Signals(Queue);

impl Signals {
    /// Blocks both signals and opens the descriptor. Call it before any thread is started: in an existing thread they
    /// would still end the process. Child processes inherit the blocked signals.
    pub fn new() -> io::Result<Self> {
        let queue = Queue::new()?;
        queue.watch_signals(&[libc::SIGINT, libc::SIGTERM])?;
        Ok(Self(queue))
    }

    /// The next signal; `None` when there is none yet.
    pub fn take(&self) -> Option<Signal> {
        match self.0.take()? as libc::c_int {
            libc::SIGINT => Some(Signal::Interrupt),
            libc::SIGTERM => Some(Signal::Terminate),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The process at the other end of a connected unix socket; for a client, the process that called listen(2)
/// (on macOS, the one that used it last). `None` if the kernel does not tell.
///
/// # Errors
///
/// Those of getsockopt(2): ENOTSOCK, ENOTCONN.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let pid = credentials::peer(socket)?;
    Ok(u32::try_from(pid).ok().filter(|pid| *pid > 0))
}

/// The name that the TUN device of a process has now: the kernel does not tell.
pub fn tun_of(_pid: u32) -> Option<String> {
    None
}

/// A descriptor that is readable once `child`, which nobody has waited for yet, has ended.
///
/// # Errors
///
/// Those of kqueue(2): EMFILE, ENOMEM.
pub fn end_of(child: &Child) -> io::Result<OwnedFd> {
    let queue = Queue::new()?;
    queue.watch_end(child.id())?;
    Ok(queue.into())
}

/// A stream socket of the unix family, without a name and not connected. Programs do not inherit it.
pub fn unix_socket() -> io::Result<OwnedFd> {
    sys::os::socket(AddressFamily::UNIX, SocketType::STREAM)
}

/// # Errors
///
/// Always: no system call is trapped here.
pub fn refuse_trapped_calls() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// None.
pub fn trapped_calls() -> TrappedCalls {
    TrappedCalls { count: 0, last: 0 }
}

/// Makes this process one of another user and of one group alone, for good.
///
/// # Errors
///
/// EPERM unless it is root's.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    credentials::set(uid, gid)
}
