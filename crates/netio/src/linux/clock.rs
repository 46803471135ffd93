//! CLOCK_BOOTTIME and timerfd(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

const NANOSECONDS: u64 = 1_000_000_000;

/// The time since boot in nanoseconds, suspend included. Read from the vDSO, without a system
/// call.
pub fn boottime() -> u64 {
    nanoseconds(ClockId::Boottime)
}

/// For how many nanoseconds the calling thread has had a core. A system call.
pub fn thread_cpu_time() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// How long the machine has been suspended since boot, in total. Less if this thread is delayed between reading the two
/// clocks, never more.
pub fn suspended() -> Duration {
    let all = boottime();
    Duration::from_nanos(all.saturating_sub(nanoseconds(ClockId::Monotonic)))
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // The kernel keeps tv_nsec below a second and these clocks never negative.
    time.tv_sec as u64 * NANOSECONDS + time.tv_nsec as u64
}

/// Wakes a [`wait`](crate::wait::wait) at a time since boot, even when the machine slept past it.
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Boottime, flags)? })
    }

    /// Fires once at `at` nanoseconds since boot, at once if that has passed; `None` disarms.
    /// Forgets a firing that was not drained.
    pub fn set(&self, at: Option<u64>) -> io::Result<()> {
        // A zero it_value means "disarm" to the kernel (timerfd_settime(2)).
        let nanoseconds = at.map_or(0, |at| at.max(1));
        let value = Itimerspec { it_interval: timespec(0), it_value: timespec(nanoseconds) };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &value)?;
        Ok(())
    }

    /// Clears an expiration: the descriptor is no longer readable.
    pub fn drain(&self) {
        // WouldBlock means that it had not fired.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

/// Readable once the wall clock has been set, which also happens when the machine resumes from suspend. A timer on
/// the boot clock does not fire on resume unless its time has passed.
pub struct ClockChange {
    fd: OwnedFd,
}

impl ClockChange {
    /// Starts to watch.
    pub fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // The timer never expires. The kernel makes it readable when the clock is set, and a resume sets it
        // (fs/timerfd.c, timerfd_resume); it keeps watching after that.
        let value = Itimerspec { it_interval: timespec(0), it_value: timespec(u64::MAX) };
        timerfd_settime(&fd, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &value)?;
        Ok(Self { fd })
    }

    /// Clears the event: the descriptor is not readable until the clock is set again.
    pub fn drain(&self) {
        // ECANCELED if the clock was set, WouldBlock if not.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

impl AsFd for ClockChange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn timespec(nanoseconds: u64) -> Timespec {
    // A u64 of nanoseconds holds at most 1.8e10 seconds and the rest is below a second: both fit.
    Timespec { tv_sec: (nanoseconds / NANOSECONDS) as _, tv_nsec: (nanoseconds % NANOSECONDS) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait;

    #[test]
    fn nothing_is_readable_unless_the_wall_clock_is_set() {
        let (change, timer) = (ClockChange::new().unwrap(), Timer::new().unwrap());
        timer.set(Some(boottime() + 1_000_000)).unwrap();
        assert_eq!(wait(&[change.as_fd(), timer.as_fd()]).unwrap(), 0b10);
        change.drain();
    }
}
