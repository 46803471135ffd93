//! There is no other network to follow a device to: a vnet jail is fixed when a process starts, and macOS has one.

use std::io;
use std::os::fd::OwnedFd;

/// There is none.
pub enum NetworkNamespace {}

impl NetworkNamespace {
    /// # Errors
    ///
    /// Always.
    pub fn from_fd(_fd: OwnedFd) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Runs `work` inside.
    ///
    /// # Errors
    ///
    /// It cannot be called.
    pub fn inside<T: Send>(&self, _work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match *self {}
    }
}
