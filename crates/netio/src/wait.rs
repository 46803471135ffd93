//! Waits until a descriptor is ready or a word changes, and wakes a waiting thread from another one.
//!
//! A wait has no timeout: an idle daemon never wakes up. For a deadline, a [`Timer`](crate::clock::Timer) is among the
//! descriptors.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use crate::system::event::Event;
use crate::system::futex;

/// The most descriptors for one [`wait`]: one for each bit of its result.
pub const DESCRIPTORS_MAX: usize = 64;

/// Waits until at least one of `fds` is readable, closed by its other end or in error. Bit `i` of the result is set for
/// each such `fds[i]`.
///
/// # Errors
///
/// InvalidInput for no descriptors (the wait would never end) or more than [`DESCRIPTORS_MAX`].
pub fn wait(fds: &[BorrowedFd<'_>]) -> io::Result<u64> {
    poll_all(fds, None)
}

/// The same without waiting: 0 if none is ready.
///
/// # Errors
///
/// As [`wait`].
pub fn ready(fds: &[BorrowedFd<'_>]) -> io::Result<u64> {
    poll_all(fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
}

fn poll_all(fds: &[BorrowedFd<'_>], timeout: Option<&Timespec>) -> io::Result<u64> {
    if fds.is_empty() || fds.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let last = fds.len() - 1;
    let mut set: [PollFd<'_>; DESCRIPTORS_MAX] =
        std::array::from_fn(|i| PollFd::from_borrowed_fd(fds[i.min(last)], PollFlags::IN));
    let set = &mut set[..fds.len()];
    loop {
        match poll(set, timeout) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let ready = set.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
    Ok(ready.fold(0, |bits, (i, _)| bits | 1 << i))
}

/// A word that a thread can sleep on until another thread changes it.
#[derive(Default)]
pub struct Futex(AtomicU32);

impl Futex {
    /// The word.
    pub fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    /// Changes the word, without waking anybody.
    pub fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }

    /// Changes the word from `old` to `new`; false if it was not `old`.
    pub fn change(&self, old: u32, new: u32, order: Ordering) -> bool {
        self.0.compare_exchange(old, new, order, Ordering::Relaxed).is_ok()
    }

    /// Sleeps until another thread calls [`Futex::wake`]; returns at once if the word is not `value`. May return
    /// without a reason.
    pub fn sleep_on(&self, value: u32) {
        futex::sleep(&self.0, value);
    }

    /// Wakes one thread that sleeps on the word.
    pub fn wake(&self) {
        futex::wake(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_thread_sleeps_on_a_word_until_it_changes() {
        let futex = Futex::default();
        futex.sleep_on(1);
        futex.store(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(futex.change(1, 2, Ordering::Relaxed) && !futex.change(1, 3, Ordering::Relaxed));
                futex.wake();
            });
            while futex.load(Ordering::Relaxed) == 1 {
                futex.sleep_on(1);
            }
        });
    }

    #[test]
    fn wait_returns_the_signalled_events_and_no_others() {
        let events: Vec<Event> = (0..DESCRIPTORS_MAX).map(|_| Event::new().unwrap()).collect();
        for i in [0, 5, 63] {
            events[i].signal();
        }
        let fds: Vec<BorrowedFd<'_>> = events.iter().map(Event::as_fd).collect();
        assert_eq!(wait(&fds).unwrap(), 1 | 1 << 5 | 1 << 63);
    }

    #[test]
    fn ready_returns_at_once_whether_or_not_an_event_is_signalled() {
        let event = Event::new().unwrap();
        assert_eq!(ready(&[event.as_fd()]).unwrap(), 0);
        event.signal();
        assert_eq!(ready(&[event.as_fd()]).unwrap(), 1);
    }

    #[test]
    fn many_signals_are_one_event_until_drained() {
        let event = Event::new().unwrap();
        event.signal();
        event.signal();
        assert!(event.drain());
        assert!(!event.drain());
    }

    #[test]
    fn a_hung_up_pipe_is_ready() {
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert_eq!(wait(&[reader.as_fd()]).unwrap(), 1);
    }

    #[test]
    fn a_signal_from_another_thread_ends_the_wait() {
        let event = Event::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| event.signal());
            assert_eq!(wait(&[event.as_fd()]).unwrap(), 1);
        });
    }

    #[test]
    fn a_wait_that_could_never_end_is_refused() {
        assert_eq!(wait(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let event = Event::new().unwrap();
        let many = [event.as_fd(); DESCRIPTORS_MAX + 1];
        assert_eq!(wait(&many).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
