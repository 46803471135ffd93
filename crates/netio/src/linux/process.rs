//! signalfd(2), SO_PEERCRED, pidfd_open(2), and system calls that a seccomp filter traps.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process::{Signal, TrappedCalls};
use crate::sys::{options, signal, trap};

/// SIGINT and SIGTERM, read from a descriptor.
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks both signals and opens the descriptor. Call it before any thread is started: in an existing thread they
    /// would still end the process. Child processes inherit the blocked signals.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: signal::open(&[libc::SIGINT, libc::SIGTERM])? })
    }

    /// The next signal; `None` when there is none yet.
    pub fn take(&self) -> Option<Signal> {
        let mut record = [0u8; signal::RECORD];
        let count = rustix::io::read(&self.fd, &mut record).ok()?;
        let number = u32::from_ne_bytes(*record[..count].first_chunk()?);
        match number.cast_signed() {
            libc::SIGINT => Some(Signal::Interrupt),
            libc::SIGTERM => Some(Signal::Terminate),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The process at the other end of a connected unix socket; for a client, the process that called listen(2)
/// (SO_PEERCRED, unix(7)). `None` if our process namespace does not contain it.
///
/// # Errors
///
/// Those of getsockopt(2): ENOTSOCK, ENOTCONN.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let pid = options::peer(socket)?;
    Ok(u32::try_from(pid).ok().filter(|pid| *pid > 0))
}

/// The name that the TUN device of a process has now, if it has one; it may be in another network namespace. `None` if this
/// process may not see that, or if there are several.
pub fn tun_of(pid: u32) -> Option<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    let texts = descriptors.flatten().filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok());
    // Each queue has a descriptor (tun_chr_show_fdinfo, drivers/net/tun.c).
    let mut names: Vec<String> = texts.filter_map(|text| Some(device(&text)?.to_owned())).collect();
    names.sort_unstable();
    names.dedup();
    names.pop().filter(|_| names.is_empty())
}

/// The device of a TUN descriptor, by its text in fdinfo.
fn device(text: &str) -> Option<&str> {
    let name = text.lines().find_map(|line| line.strip_prefix("iff:")).map(str::trim);
    // That of a device that was deleted is empty.
    name.filter(|name| !name.is_empty())
}

/// A descriptor that is readable once `child`, which nobody has waited for yet, has ended.
///
/// # Errors
///
/// Those of pidfd_open(2): EMFILE, ENOMEM.
pub fn end_of(child: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}

/// A stream socket of the unix family, without a name and not connected. Programs do not inherit it.
pub fn unix_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Whether a descriptor is a unix socket that listens.
pub fn is_unix_listener(socket: BorrowedFd<'_>) -> bool {
    let is_unix = sockopt::socket_domain(socket).is_ok_and(|domain| domain == AddressFamily::UNIX);
    is_unix && sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// Makes every system call that a seccomp filter traps (SECCOMP_RET_TRAP) fail with EPERM, in all threads, and counts
/// it: see [`trapped_calls`]. A trapped call in a thread that blocks SIGSYS ends the process.
///
/// # Errors
///
/// sigaction(2) failed.
pub fn refuse_trapped_calls() -> io::Result<()> {
    trap::install_handler()
}

/// The system calls that were trapped since this process started.
pub fn trapped_calls() -> TrappedCalls {
    let (count, last) = trap::trapped();
    TrappedCalls { count, last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_in_the_text_of_its_descriptor() {
        let text = |last: &str| format!("pos:\t0\nflags:\t0104002\nmnt_id:\t25\nino:\t93\n{last}");
        assert_eq!(device(&text("iff:\twg9\n")), Some("wg9"));
        assert_eq!(device(&text("iff:\t\n")), None);
        assert_eq!(device(&text("eventfd-count: 0\n")), None);
        assert_eq!(tun_of(std::process::id()), None);
    }
}
