//! eventfd(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A flag that wakes a [`wait`](crate::wait::wait).
pub struct Event {
    fd: OwnedFd,
}

impl Event {
    /// A flag that is not raised.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self { fd: eventfd(0, flags)? })
    }

    /// Raises the flag until [`drain`](Self::drain).
    pub fn signal(&self) {
        // WouldBlock means that the counter is full: the flag is raised.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Lowers the flag; returns whether it was raised.
    pub fn drain(&self) -> bool {
        rustix::io::read(&self.fd, &mut [0u8; 8]).is_ok()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
