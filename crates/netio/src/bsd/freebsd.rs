//! What FreeBSD has of its own: tun(4), and a monotonic clock that may stop in a suspend.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::net::{AddressFamily, sockopt};
use rustix::time::ClockId;

use super::clock::nanoseconds;
use crate::bsd_decisions::freebsd::interface::{self, Calls};
use crate::bsd_decisions::freebsd::suspend::SuspendEstimate;
use crate::bsd_decisions::route_message::Form;
use crate::sys::interface::{index_of, name_of};
use crate::sys::os::tun::{self, TunFile};
use crate::tun::TunError;

pub(super) const ROUTES: Form = Form::FREEBSD;

static SUSPENDS: SuspendEstimate = SuspendEstimate::new();

/// The time since boot in nanoseconds, with the suspends that [`suspended`] has noticed. Read from the shared page,
/// without a system call.
pub fn boottime() -> u64 {
    nanoseconds(ClockId::Monotonic) + SUSPENDS.total()
}

/// How long the machine has been suspended since this process started: what the wall clock has gained on the
/// monotonic clock in steps of seconds. The slow path asks at each wake-up.
pub fn suspended() -> Duration {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_nanos(SUSPENDS.observe(wall.as_nanos() as u64, nanoseconds(ClockId::Monotonic)))
}

/// Whether a descriptor is a unix socket that listens.
pub fn is_unix_listener(socket: BorrowedFd<'_>) -> bool {
    let is_unix = sockopt::socket_domain(socket).is_ok_and(|domain| domain == AddressFamily::UNIX);
    is_unix && sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// An interface that this process made.
pub(super) type Interface = interface::Interface<Kernel>;

pub(super) fn create(name: &str) -> Result<Interface, TunError> {
    Interface::create(Kernel, name)
}

/// Whether nobody is deleting this TUN interface, which waits until its device is closed.
pub(super) fn is_alive(name: &str) -> bool {
    interface::is_alive(&Kernel, name)
}

/// The calls, made.
pub(super) struct Kernel;

impl Calls for Kernel {
    type File = TunFile;

    fn open(&self) -> io::Result<TunFile> {
        TunFile::open()
    }

    fn made_name(&self, file: &TunFile) -> io::Result<String> {
        file.name()
    }

    fn make_transient(&self, file: &TunFile) -> io::Result<()> {
        file.make_transient()
    }

    fn with_family_header(&self, file: &TunFile) -> io::Result<()> {
        file.with_family_header()
    }

    fn with_broadcast(&self, file: &TunFile) -> io::Result<()> {
        file.with_broadcast()
    }

    fn own(&self, file: &TunFile) -> io::Result<()> {
        file.own()
    }

    fn without_link_local(&self, name: &str) -> io::Result<()> {
        tun::without_link_local(name)
    }

    fn rename(&self, name: &str, to: &str) -> io::Result<()> {
        tun::rename(name, to)
    }

    fn index_of(&self, name: &str) -> io::Result<u32> {
        index_of(name)
    }

    fn name_of(&self, ifindex: u32) -> io::Result<String> {
        name_of(ifindex)
    }

    fn groups(&self, name: &str, names: &mut [u8]) -> io::Result<()> {
        tun::groups(name, names)
    }

    fn destroy(&self, name: &str) -> io::Result<()> {
        tun::destroy(name)
    }
}
