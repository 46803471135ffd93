//! A network namespace other than this thread's: the one that a TUN device was made in or moved to, while the outer
//! sockets stay where they were opened.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, held open.
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// The one behind a descriptor that was opened elsewhere.
    ///
    /// # Errors
    ///
    /// None here; on other systems there are no namespaces.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(fd))
    }

    /// That of this thread.
    ///
    /// # Errors
    ///
    /// There is no /proc, or no descriptor is left.
    pub fn current() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// Moves this thread into the namespace.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_SYS_ADMIN; EINVAL if the descriptor is none of a network namespace.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` inside the namespace, on a temporary thread. Sockets that it opens belong to the namespace and can
    /// be used from outside.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_SYS_ADMIN; those of `work`.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let worker = thread::Builder::new().name("visit".into()).spawn_scoped(scope, || {
                self.enter()?;
                work()
            })?;
            worker.join().map_err(|_| io::Error::other("a thread in another network namespace panicked"))?
        })
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
