//! Time since boot, the wall clock, and a timer on the former.
//!
//! All ages of the protocol are measured on CLOCK_BOOTTIME, which runs on during suspend: a key
//! must not outlive its 180 s in a sleeping laptop. Never CLOCK_MONOTONIC, which stops there.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use crate::system::clock::{ClockChange, Timer, boottime, suspended, thread_cpu_time};

/// The time since boot in nanoseconds, and the wall clock's as time since the Unix epoch (zero
/// if the clock is before it).
pub fn now() -> (u64, Duration) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (boottime(), wall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait;
    use std::os::fd::AsFd;

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
    fn the_furthest_time_is_accepted() {
        Timer::new().unwrap().set(Some(u64::MAX)).unwrap();
    }
}
