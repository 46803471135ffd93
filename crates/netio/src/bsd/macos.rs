//! What macOS has of its own: utun, and a clock that runs on in a sleep.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, getsockname};

use crate::bsd_decisions::macos::{Step, refuse, unit};
use crate::bsd_decisions::route_message::Form;
use crate::sys::interface::{index_of, name_of};
use crate::sys::os::nanoseconds;
use crate::sys::os::utun::TunFile;
use crate::tun::TunError;

pub(super) const ROUTES: Form = Form::MACOS;

/// The time since boot in nanoseconds, sleep included (mach_continuous_time). CLOCK_MONOTONIC is made of the wall
/// clock, which may be set.
pub fn boottime() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC_RAW)
}

/// How long the machine has been asleep since boot, in total. Less if this thread is delayed between reading the two
/// clocks, never more.
pub fn suspended() -> Duration {
    let all = boottime();
    Duration::from_nanos(all.saturating_sub(nanoseconds(libc::CLOCK_UPTIME_RAW)))
}

/// Whether a descriptor is a unix socket. Whether it listens is not told (bsd/kern/uipc_socket.c, sogetoptlock); if it
/// does not, accept(2) fails.
pub fn is_unix_listener(socket: BorrowedFd<'_>) -> bool {
    getsockname(socket).is_ok_and(|name| name.address_family() == AddressFamily::UNIX)
}

/// An interface that this process made. It goes with its socket, and nothing else deletes it.
pub(super) struct Interface {
    file: TunFile,
    ifindex: u32,
}

pub(super) fn create(name: &str) -> Result<Interface, TunError> {
    let file = TunFile::open(unit(name)?).map_err(|(step, error)| refuse(name, step, error))?;
    let made = file.name().map_err(|error| refuse(name, Step::Name, error))?;
    let ifindex = index_of(&made).map_err(|error| refuse(name, Step::Index, error))?;
    Ok(Interface { file, ifindex })
}

impl Interface {
    pub(super) fn name(&self) -> io::Result<String> {
        name_of(self.ifindex)
    }

    pub(super) fn ifindex(&self) -> u32 {
        self.ifindex
    }

    pub(super) fn file(&self) -> &TunFile {
        &self.file
    }
}

/// Unknown: an interface of utun is not deleted while its socket is open, so that there is nothing to look for.
pub(super) fn is_alive(_name: &str) -> bool {
    false
}
