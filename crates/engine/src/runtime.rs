//! What the threads of one engine need besides its state: the pool, the receive queues, and the way to end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linerate_netio::wait::{self, Event};

use crate::backend::KernelBackend;
use crate::rx_queue::RxQueue;
use crate::sequencer::Sequencer;
use crate::shared::Shared;
use crate::worker_pool::WorkerPool;

/// The pause after the kernel did not let a thread wait: it has no memory, or RLIMIT_NOFILE was lowered below the number
/// of descriptors (poll(2)).
const WAIT_FAILED_PAUSE: Duration = Duration::from_millis(100);

/// The threads' view of each other.
pub struct Runtime {
    /// Which workers are active.
    pub pool: WorkerPool,
    /// Where packets come from.
    pub rx_queues: Vec<RxQueue>,
    /// One for each receive queue.
    pub sequencers: Vec<Sequencer>,
    ending: AtomicBool,
    ended: Event,
}

impl Runtime {
    /// A runtime in which no thread runs yet.
    pub fn new(pool: WorkerPool, rx_queues: Vec<RxQueue>) -> io::Result<Self> {
        let sequencers = rx_queues.iter().map(|_| Sequencer::default()).collect();
        Ok(Self { pool, rx_queues, sequencers, ending: AtomicBool::new(false), ended: Event::new()? })
    }

    /// Tells all threads to end.
    pub fn end(&self, shared: &Shared<KernelBackend>) {
        self.ending.store(true, Ordering::Release);
        // Set before signalling: a woken worker checks once.
        self.pool.end();
        shared.sockets.store(None);
        shared.sockets_changed.signal();
        shared.slow_path_queue.signal();
        self.ended.signal();
    }

    /// Whether the threads have been told to end.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Readable once the threads have been told to end.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}

/// Waits for one of the descriptors; a bit for each that is ready, all bits if the wait failed.
pub fn wait(fds: &[BorrowedFd<'_>]) -> u64 {
    wait::wait(fds).unwrap_or_else(|error| {
        let few =
            if error.kind() == io::ErrorKind::InvalidInput { "; is its limit of open files too low?" } else { "" };
        tracing::error!("cannot wait for {} descriptors: {error}{few}", fds.len());
        thread::sleep(WAIT_FAILED_PAUSE);
        u64::MAX
    })
}
