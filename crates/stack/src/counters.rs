//! What was dropped, and why.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a packet was dropped, or a connection refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It is no IP packet, or its headers contradict each other.
    Malformed,
    /// Its checksum is wrong.
    Checksum,
    /// It is a fragment: those are not put together.
    Fragment,
    /// It says that a packet was too long for the path. Segments are not made shorter: the MTU of the tunnel is to be
    /// set so that it does not happen.
    TooBig,
    /// It was sent to an address that the tunnel has not.
    Foreign,
    /// A datagram for a socket whose queue is full.
    QueueFull,
    /// A reply for which the queue of packets to be sent had no room.
    ReplyQueueFull,
    /// A connection to a listener whose backlog is full.
    BacklogFull,
    /// A connection beyond the bound on their number.
    TooManyConnections,
    /// A connection was reset because the memory of all is used up.
    OutOfMemory,
}

impl DropReason {
    /// All of them.
    pub const ALL: [DropReason; 10] = [
        DropReason::Malformed,
        DropReason::Checksum,
        DropReason::Fragment,
        DropReason::TooBig,
        DropReason::Foreign,
        DropReason::QueueFull,
        DropReason::ReplyQueueFull,
        DropReason::BacklogFull,
        DropReason::TooManyConnections,
        DropReason::OutOfMemory,
    ];
}

/// How often each has happened.
#[derive(Default)]
pub(crate) struct Counters([AtomicU64; DropReason::ALL.len()]);

impl Counters {
    pub(crate) fn count(&self, drop: DropReason) {
        self.0[drop as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, drop: DropReason) -> u64 {
        self.0[drop as usize].load(Ordering::Relaxed)
    }
}
