//! The receive queues, which workers poll: the queues of the TUN device, the IPv4 sockets, the IPv6 sockets.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use linerate_netio::tun::QUEUES_MAX;
use linerate_netio::udp::{BoundSockets, UdpSocket};
use linerate_netio::wait::DESCRIPTORS_MAX;

use crate::device::Device;

/// While others have packets, a receive queue found empty is probed once in so many batches, and once in
/// [`PROBE_INTERVAL_MAX`] when it was found empty again: a probe is a system call, a batch takes some 50 microseconds.
/// Where there are more queues than that, once in as many batches: queues of different numbers are probed after
/// different batches, so there are at most three probes to a batch. Batches and not passes, because a pass through many
/// busy queues takes milliseconds.
const PROBE_INTERVAL: usize = 4;
const PROBE_INTERVAL_MAX: usize = 8;

/// The most receive queues of one engine.
pub const RX_QUEUES_MAX: usize = 3 * QUEUES_MAX;

// One more descriptor says that the sockets were replaced.
const _: () = assert!(RX_QUEUES_MAX < DESCRIPTORS_MAX);

/// The result of polling a receive queue once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// Packets were processed; there may be more.
    Progress,
    /// Packets were processed, and more are unlikely: the receive queue was found empty, or was always empty after
    /// one packet.
    Drained,
    /// The receive queue was empty.
    Idle,
    /// Another worker is reading from the receive queue.
    Locked,
}

impl PollOutcome {
    /// Whether packets were processed.
    pub fn is_progress(self) -> bool {
        matches!(self, PollOutcome::Progress | PollOutcome::Drained)
    }
}

/// A receive queue; those of each kind are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxQueue {
    /// A queue of the TUN device.
    Tun(usize),
    /// An IPv4 socket.
    V4(usize),
    /// An IPv6 socket.
    V6(usize),
}

impl RxQueue {
    /// All receive queues of an engine, in the order of a pass. Those of the TUN device come first, so their index is
    /// their number.
    pub fn all(queues: usize, sockets: usize) -> Vec<RxQueue> {
        let tun = (0..queues).map(RxQueue::Tun);
        tun.chain((0..sockets).map(RxQueue::V4)).chain((0..sockets).map(RxQueue::V6)).collect()
    }

    /// The number of the TUN queue or socket.
    pub fn number(self) -> usize {
        let (RxQueue::Tun(number) | RxQueue::V4(number) | RxQueue::V6(number)) = self;
        number
    }

    /// Whether to poll the receive queue, one of `queues` of its kind, that was found empty `misses` times in a row:
    /// `since` are the batches from its last poll on, counted as all its worker's are.
    pub fn is_due(self, queues: usize, since: Range<usize>, misses: u8) -> bool {
        let interval = match misses {
            0 => return true,
            1 => PROBE_INTERVAL.max(queues),
            _ => PROBE_INTERVAL_MAX.max(queues),
        };
        // Each interval has one batch from which on the queue is due.
        let intervals = |batches: usize| batches.saturating_sub(self.number()) / interval;
        intervals(since.end) > intervals(since.start)
    }

    /// The socket; `None` for a queue of the TUN device, and while there is no such socket.
    pub fn socket<S>(self, sockets: Option<&BoundSockets<S>>) -> Option<&S> {
        match self {
            RxQueue::Tun(_) => None,
            RxQueue::V4(number) => sockets?.v4.get(number),
            RxQueue::V6(number) => sockets?.v6.get(number),
        }
    }

    /// The descriptor to wait for; `None` while there is no such socket.
    pub fn fd<'a>(self, tun: &'a Device, sockets: Option<&'a BoundSockets<UdpSocket>>) -> Option<BorrowedFd<'a>> {
        match self {
            RxQueue::Tun(queue) => Some(tun.queue_fd(queue)),
            RxQueue::V4(_) | RxQueue::V6(_) => self.socket(sockets).map(UdpSocket::as_fd),
        }
    }
}

/// A worker's view of one receive queue.
#[derive(Clone, Copy, Default)]
pub struct RxQueueState {
    /// How many times in a row it was found empty.
    pub misses: u8,
    /// It woke the worker, which has not polled it since.
    pub woke: bool,
    /// It was not asked whether it is empty: its last batch or the last reply seemed to be all.
    pub unasked: bool,
    /// It is polled for the reply to what was delivered.
    pub reply: bool,
    /// The number of the worker's batches at the last poll.
    pub polled: usize,
}

impl RxQueueState {
    /// The state after a poll that was not refused.
    pub fn after(self, outcome: PollOutcome) -> Self {
        let misses = match outcome {
            PollOutcome::Progress | PollOutcome::Locked => 0,
            PollOutcome::Drained => 1,
            PollOutcome::Idle => self.misses.saturating_add(1),
        };
        Self { misses, unasked: outcome == PollOutcome::Drained, woke: false, reply: false, ..self }
    }
}

/// What a worker waits for: the receive queues that exist, and one more event. Nothing stands for those that do not
/// exist, because poll(2) refuses more descriptors than a process may have open.
pub struct Awaited<'a> {
    fds: [BorrowedFd<'a>; RX_QUEUES_MAX + 1],
    /// For each of the descriptors but the last, the index of its receive queue.
    indices: [usize; RX_QUEUES_MAX],
    len: usize,
}

impl<'a> Awaited<'a> {
    /// The descriptors of all receive queues, in their order, and that of the event.
    pub fn new(rx_queues: impl Iterator<Item = Option<BorrowedFd<'a>>>, event: BorrowedFd<'a>) -> Self {
        let mut awaited = Self { fds: [event; RX_QUEUES_MAX + 1], indices: [0; RX_QUEUES_MAX], len: 0 };
        for (index, fd) in rx_queues.enumerate().filter_map(|(index, fd)| Some((index, fd?))) {
            awaited.fds[awaited.len] = fd;
            awaited.indices[awaited.len] = index;
            awaited.len += 1;
        }
        awaited
    }

    /// The descriptors to wait for.
    pub fn fds(&self) -> &[BorrowedFd<'a>] {
        &self.fds[..=self.len]
    }

    /// A bit for each receive queue that is ready, and whether the event is, by a bit for each descriptor that is.
    pub fn ready(&self, fds: u64) -> (u64, bool) {
        let ready = (0..self.len).filter(|bit| fds & 1 << bit != 0);
        (ready.fold(0, |bits, bit| bits | 1 << self.indices[bit]), fds & 1 << self.len != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn an_empty_receive_queue_is_probed_once_per_interval_and_few_share_a_pass() {
        for queues in 1..=QUEUES_MAX {
            let rx_queues = RxQueue::all(queues, queues);
            let intervals = [(1, PROBE_INTERVAL), (2, PROBE_INTERVAL_MAX), (u8::MAX, PROBE_INTERVAL_MAX)];
            for rx_queue in &rx_queues {
                assert!(rx_queue.is_due(queues, 0..0, 0), "{rx_queue:?} had packets");
                for (misses, interval) in intervals.map(|(misses, interval)| (misses, interval.max(queues))) {
                    assert!(!rx_queue.is_due(queues, 0..rx_queue.number(), misses), "{rx_queue:?} is not probed first");
                    for start in 2 * interval..4 * interval {
                        let batches = start..start + interval;
                        let due = batches.filter(|&batch| rx_queue.is_due(queues, batch - 1..batch, misses)).count();
                        assert_eq!(due, 1, "{rx_queue:?} of {queues} from batch {start} on, after {misses} misses");
                    }
                }
            }
            for batch in 1..4 * QUEUES_MAX {
                let due = rx_queues.iter().filter(|rx_queue| rx_queue.is_due(queues, batch - 1..batch, 1)).count();
                assert!(due <= 3, "batch {batch} of {queues} queues");
            }
        }
        assert_eq!(RxQueue::all(QUEUES_MAX, QUEUES_MAX).len(), RX_QUEUES_MAX);
    }

    #[test]
    fn many_busy_receive_queues_do_not_keep_a_worker_from_an_empty_one() {
        let queues = QUEUES_MAX;
        for rx_queue in RxQueue::all(queues, queues) {
            // All others have packets in every pass.
            let per_pass = RX_QUEUES_MAX - 1;
            let passes = (0..).find(|pass| rx_queue.is_due(queues, 0..pass * per_pass, u8::MAX));
            assert_eq!(passes, Some(1), "{rx_queue:?}");
        }
    }

    #[test]
    fn a_worker_waits_only_for_receive_queues_that_exist() {
        let (queue, socket, event) = (io::stdin(), io::stdout(), io::stderr());
        // No IPv6, and of the sockets for IPv4 the second is missing.
        let rx_queues = [Some(queue.as_fd()), Some(queue.as_fd()), Some(socket.as_fd()), None, None, None];
        let awaited = Awaited::new(rx_queues.into_iter(), event.as_fd());
        let fds: Vec<_> = awaited.fds().iter().map(AsRawFd::as_raw_fd).collect();
        assert_eq!(fds, [0, 0, 1, 2]);
        let rx_queues = [Some(queue.as_fd()), None, None, Some(socket.as_fd())];
        let awaited = Awaited::new(rx_queues.into_iter(), event.as_fd());
        assert_eq!(awaited.ready(0b001), (0b0001, false));
        assert_eq!(awaited.ready(0b010), (0b1000, false));
        assert_eq!(awaited.ready(0b100), (0, true));
        assert_eq!(awaited.ready(u64::MAX), (0b1001, true), "the wait failed");
    }

    #[test]
    fn the_index_of_a_tun_queue_is_its_number() {
        for queues in 1..=QUEUES_MAX {
            let rx_queues = RxQueue::all(queues, 2);
            assert!((0..queues).all(|queue| rx_queues[queue] == RxQueue::Tun(queue)));
        }
    }
}
