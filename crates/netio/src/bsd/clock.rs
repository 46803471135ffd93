//! The time since boot, which each system has in its own way, and a timer of kqueue(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub use super::os::{boottime, suspended};
use crate::sys::kqueue::Queue;

/// A timer that is set further ahead than this fires then; it is set again.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// For how many nanoseconds the calling thread has had a core.
pub fn thread_cpu_time() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

pub(super) fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // The kernel keeps tv_nsec below a second and these clocks never negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Wakes a [`wait`](crate::wait::wait) at a time since boot. On FreeBSD it does not run during a suspend.
pub struct Timer(Queue);

impl Timer {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        Queue::new().map(Self)
    }

    /// Fires once at `at` nanoseconds since boot, at once if that has passed; `None` disarms.
    /// Forgets a firing that was not drained.
    pub fn set(&self, at: Option<u64>) -> io::Result<()> {
        let after = at.map(|at| Duration::from_nanos(at.saturating_sub(boottime())).min(AHEAD_MAX));
        self.0.set_timer(after)
    }

    /// Clears an expiration: the descriptor is no longer readable.
    pub fn drain(&self) {
        self.0.take();
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Nothing here wakes a process when the clock is set or the machine resumes: a suspend is noticed at the next
/// wake-up.
pub enum ClockChange {}

impl ClockChange {
    /// # Errors
    ///
    /// Always.
    pub fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Clears the event.
    pub fn drain(&self) {
        match *self {}
    }
}

impl AsFd for ClockChange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}
