//! Time since boot, the wall clock, and a timer on the former.
//!
//! All ages of the protocol are measured on CLOCK_BOOTTIME, which runs on during suspend: a key
//! must not outlive its 180 s in a sleeping laptop. Never CLOCK_MONOTONIC, which stops there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

const NANOSECONDS: u64 = 1_000_000_000;

/// The time since boot in nanoseconds, and the wall clock's as time since the Unix epoch (zero
/// if the clock is before it).
pub fn now() -> (u64, Duration) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (boottime(), wall)
}

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
    fn the_boot_clock_never_runs_backwards() {
        let times: Vec<u64> = (0..1000).map(|_| boottime()).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn a_thread_has_a_core_for_no_longer_than_it_exists() {
        let lived = std::thread::spawn(|| {
            let began = boottime();
            let cpu = thread_cpu_time();
            (thread_cpu_time() - cpu, boottime() - began)
        });
        let (cpu, lived) = lived.join().unwrap();
        assert!(cpu <= lived);
    }

    #[test]
    fn a_timer_set_in_the_past_fires_at_once_and_drain_clears_it() {
        let timer = Timer::new().unwrap();
        timer.set(Some(0)).unwrap();
        assert_eq!(wait(&[timer.as_fd()]).unwrap(), 1);
        timer.drain();
        let late = Timer::new().unwrap();
        late.set(Some(1)).unwrap();
        assert_eq!(wait(&[timer.as_fd(), late.as_fd()]).unwrap(), 0b10);
    }

    #[test]
    fn a_timer_does_not_fire_before_its_time() {
        let timer = Timer::new().unwrap();
        let at = boottime() + 2_000_000;
        timer.set(Some(at)).unwrap();
        wait(&[timer.as_fd()]).unwrap();
        assert!(boottime() >= at);
    }

    #[test]
    fn a_disarmed_timer_forgets_its_time() {
        let timer = Timer::new().unwrap();
        timer.set(Some(1)).unwrap();
        timer.set(None).unwrap();
        let other = Timer::new().unwrap();
        other.set(Some(1)).unwrap();
        assert_eq!(wait(&[timer.as_fd(), other.as_fd()]).unwrap(), 0b10);
    }

    #[test]
    fn nothing_is_readable_unless_the_wall_clock_is_set() {
        let (change, timer) = (ClockChange::new().unwrap(), Timer::new().unwrap());
        timer.set(Some(boottime() + 1_000_000)).unwrap();
        assert_eq!(wait(&[change.as_fd(), timer.as_fd()]).unwrap(), 0b10);
        change.drain();
    }

    #[test]
    fn the_furthest_time_is_accepted() {
        Timer::new().unwrap().set(Some(u64::MAX)).unwrap();
    }
}
