//! A network namespace other than this thread's: the one that a TUN device was moved to, while the outer sockets stay
//! where they were opened.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, held open.
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Runs `work` inside the namespace, on a temporary thread. Sockets that it opens belong to the namespace and can
    /// be used from outside.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_SYS_ADMIN; those of `work`.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let enter = || move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network));
        thread::scope(|scope| {
            let worker = thread::Builder::new().name("visit".into()).spawn_scoped(scope, || {
                enter()?;
                work()
            })?;
            worker.join().map_err(|_| io::Error::other("a thread in another network namespace panicked"))?
        })
    }
}
