//! EVFILT_USER of kqueue(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys::kqueue::Queue;

/// A flag that wakes a [`wait`](crate::wait::wait).
pub struct Event(Queue);

impl Event {
    /// A flag that is not raised.
    pub fn new() -> io::Result<Self> {
        let queue = Queue::new()?;
        queue.watch_flag()?;
        Ok(Self(queue))
    }

    /// Raises the flag until [`drain`](Self::drain).
    pub fn signal(&self) {
        // It is there, so that nothing is allocated.
        let _ = self.0.raise();
    }

    /// Lowers the flag; returns whether it was raised.
    pub fn drain(&self) -> bool {
        self.0.take().is_some()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
