//! How large the send buffer of a UDP socket should be: enough for bursts, and no long queue in front of a slow link.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock;
use crate::datagram::Transmit;

/// The receive buffer that we request, and the largest send buffer, in bytes. At 10 Gbit/s it holds 13 ms: the longest
/// that a thread on a busy machine should be kept from its socket. Half of it cost 105 TCP streams over one tunnel a
/// tenth of their throughput in retransmissions; twice as much gained nothing. It is kernel memory, used only while
/// datagrams wait; the kernel doubles it for its own bookkeeping (socket(7)).
pub(crate) const SOCKET_BUFFER: usize = 16 << 20;

/// The initial and minimum size in bytes, for all sockets of a family together. Doubled by the kernel, it holds what a
/// link of 100 Mbit/s sends in 42 ms, which everything behind it has to wait for.
pub(crate) const SEND_BUFFER_MIN: usize = 256 << 10;

/// The minimum for one of many sockets: doubled by the kernel, it has room for two GSO batches.
const SEND_BUFFER_SHARE_MIN: usize = 64 << 10;

/// A full send buffer grows to what the path has been seen to take in this time.
const QUEUE_TIME: Duration = Duration::from_millis(50);

/// If the buffer was last full longer ago than this, the path may have been idle: a low rate then means nothing.
const BUSY_TIME: Duration = Duration::from_millis(200);

/// Estimates what the path can take from the bytes sent between two moments at which the buffer was full.
pub(crate) struct SendBufferTuner {
    /// How many sockets share the path, each with a part of the queue.
    sockets: usize,
    /// Bytes since `since`.
    sent: AtomicU64,
    /// When the buffer was last full, in nanoseconds; 0 for never.
    since: AtomicU64,
    /// The size that was requested, in bytes.
    size: AtomicUsize,
}

// Relaxed throughout: concurrent senders are counted slightly earlier or later.
impl SendBufferTuner {
    pub(crate) fn shared_by(sockets: usize) -> Self {
        let size = AtomicUsize::new(Self::minimum(sockets));
        Self { sockets, sent: AtomicU64::new(0), since: AtomicU64::new(0), size }
    }

    /// The minimum size for each of `sockets` sockets.
    pub(crate) fn minimum(sockets: usize) -> usize {
        (SEND_BUFFER_MIN / sockets).max(SEND_BUFFER_SHARE_MIN)
    }

    /// Counts what was sent of `batch`, or that there was no room. Returns the size that the buffer should have, if it
    /// should change.
    pub(crate) fn resized_by(&self, batch: &[Transmit<'_>], sent: &io::Result<usize>) -> Option<usize> {
        match sent {
            Ok(sent) => {
                self.sent(batch[..*sent].iter().map(|message| message.contents.len() as u64).sum());
                None
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.on_full(clock::boottime()),
            Err(_) => None,
        }
    }

    /// Counts bytes that were sent.
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The buffer is full at `now`, in nanoseconds. Returns the size that it should have, if it should change.
    fn on_full(&self, now: u64) -> Option<usize> {
        let span = QUEUE_TIME.as_nanos() as u64;
        let time = now.saturating_sub(self.since.load(Ordering::Relaxed));
        if time < span {
            return None;
        }
        let first = self.since.swap(now, Ordering::Relaxed) == 0;
        let sent = self.sent.swap(0, Ordering::Relaxed);
        // Zero: another sender was just here.
        if first || sent == 0 {
            return None;
        }
        let size = self.size.load(Ordering::Relaxed);
        // The kernel doubles the size that it is asked for.
        let takes = (u128::from(sent) * u128::from(span) / u128::from(time)) as usize / (2 * self.sockets);
        let is_slower = takes < size / 2 && time < BUSY_TIME.as_nanos() as u64;
        if takes < 2 * size && !is_slower {
            return None;
        }
        // A power of two, rounded down, so that it never holds more than the queue time.
        let wanted = (1 << takes.max(1).ilog2()).clamp(Self::minimum(self.sockets), SOCKET_BUFFER);
        self.size.store(wanted, Ordering::Relaxed);
        (wanted != size).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size at `rate` bytes a second if the buffer is full every `pause` milliseconds.
    fn grows_to(rate: u64, pause: u64) -> usize {
        let buffer = SendBufferTuner::shared_by(1);
        let mut size = SEND_BUFFER_MIN;
        for round in 1..1000 {
            buffer.sent(rate * pause / 1000);
            size = buffer.on_full(round * pause * 1_000_000).unwrap_or(size);
        }
        size
    }

    #[test]
    fn a_send_buffer_holds_between_half_the_queue_time_and_all_of_it() {
        let second = 1000 / QUEUE_TIME.as_millis() as usize;
        for megabits in [1, 10, 100, 150, 200, 400, 1000, 3000, 5000] {
            let rate = megabits * 125_000;
            for pause in [1, 7, 50, 90] {
                let held = 2 * grows_to(rate as u64, pause);
                let least = 2 * SEND_BUFFER_MIN;
                assert!(held == least || held * second <= rate, "{held} at {megabits} Mbit/s, full every {pause} ms");
                assert!(held * second * 2 >= rate * 99 / 100, "{held} at {megabits} Mbit/s, full every {pause} ms");
            }
        }
        assert!(2 * SEND_BUFFER_MIN * second <= 100 * 125_000, "100 Mbit/s");
        assert_eq!(grows_to(12_500_000_000, 1), SOCKET_BUFFER);
    }

    #[test]
    fn a_send_buffer_that_was_full_once_says_nothing_about_the_path() {
        let buffer = SendBufferTuner::shared_by(1);
        buffer.sent(1 << 40);
        assert_eq!(buffer.on_full(1 << 40), None);
    }

    #[test]
    fn a_send_buffer_follows_the_speed_of_the_path_and_ignores_pauses() {
        let buffer = SendBufferTuner::shared_by(1);
        let (mut now, mut size) = (1, SEND_BUFFER_MIN);
        let mut fill = |megabits: u64, milliseconds: u64| {
            now += milliseconds * 1_000_000;
            buffer.sent(megabits * 125 * milliseconds);
            size = buffer.on_full(now).unwrap_or(size);
            size
        };
        assert_eq!([fill(1000, 60), fill(1000, 60)], [SEND_BUFFER_MIN, 2 << 20]);
        assert_eq!(fill(1, 1000), 2 << 20, "there was little to send");
        assert_eq!(fill(20, 60), SEND_BUFFER_MIN, "the path has become slow");
        assert_eq!(fill(1000, 60), 2 << 20);
    }

    #[test]
    fn sockets_that_share_a_path_share_its_queue() {
        for sockets in 1..=4 {
            let buffer = SendBufferTuner::shared_by(sockets);
            assert!(buffer.size.load(Ordering::Relaxed) * sockets <= SEND_BUFFER_MIN);
            for round in 1..10 {
                // Most of the time one of them sends.
                buffer.sent(1_000_000_000 / 20);
                buffer.on_full(round * 50_000_000);
            }
            let held = 2 * buffer.size.load(Ordering::Relaxed) * sockets;
            assert!(held <= 1_000_000_000 / 20, "{held} for {sockets} sockets");
        }
    }
}
