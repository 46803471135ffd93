//! The TUN device of an engine's threads: an interface of the kernel, or a stack inside of the process.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};

use linerate_netio::tun::{Tun, TunDevice, TunError, TunOffloads, WaitableTun};

/// A TUN device.
pub enum Device {
    /// An interface of the kernel.
    Kernel(TunDevice),
    /// Something in this process. The kernel knows nothing of it, so nothing is asked of the network.
    InProcess(Box<dyn WaitableTun>),
}

impl From<TunDevice> for Device {
    fn from(device: TunDevice) -> Self {
        Self::Kernel(device)
    }
}

impl Device {
    /// The index of the interface, if the kernel may be asked about it.
    pub fn ifindex(&self) -> Option<u32> {
        match self {
            Self::Kernel(device) => device.ifindex(),
            Self::InProcess(_) => None,
        }
    }

    /// The name of the interface, if it has one.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Kernel(device) => device.name().ok(),
            Self::InProcess(_) => None,
        }
    }

    /// Goes over to another interface; see [`TunDevice::replace`].
    ///
    /// # Errors
    /// Those of [`TunDevice::replace`], and if there is no interface.
    pub fn replace(&self, fd: OwnedFd) -> Result<(), TunError> {
        match self {
            Self::Kernel(device) => device.replace(fd),
            Self::InProcess(_) => Err(TunError::Refused(
                io::ErrorKind::Unsupported,
                "the device that it should replace is not the kernel's".into(),
            )),
        }
    }

    /// The descriptor to wait for: readable when the queue may have a packet.
    pub fn queue_fd(&self, queue: usize) -> BorrowedFd<'_> {
        match self {
            Self::Kernel(device) => device.queue_fd(queue),
            Self::InProcess(device) => device.queue_fd(queue),
        }
    }
}

impl Tun for Device {
    fn queues(&self) -> usize {
        match self {
            Self::Kernel(device) => device.queues(),
            Self::InProcess(device) => device.queues(),
        }
    }

    fn read(&self, queue: usize, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(device) => device.read(queue, buf),
            Self::InProcess(device) => device.read(queue, buf),
        }
    }

    fn write(&self, queue: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Kernel(device) => device.write(queue, pieces),
            Self::InProcess(device) => device.write(queue, pieces),
        }
    }

    fn offloads(&self) -> TunOffloads {
        match self {
            Self::Kernel(device) => device.offloads(),
            Self::InProcess(device) => device.offloads(),
        }
    }
}
