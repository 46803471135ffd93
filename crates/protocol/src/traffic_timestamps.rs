//! How the data path reports traffic to the timers, without locks and almost without wake-ups (paper
//! section 6.5).
//!
//! The data path writes timestamps. When a peer's timer fires, the slow path reads them and re-arms
//! the timer if they have moved. The data path wakes the slow path only when a timer must start that
//! was not armed. `device` decides what happens; this module reads no clock.
//!
//! # Why no timer is lost
//!
//! `armed` is the time by which the slow path will run the peer's timers. The data path first writes its
//! timestamp, then reads `armed`; if that is too late, it lowers `armed` and wakes the slow path. The
//! slow path first writes `armed`, then reads the timestamps again; if one needs an earlier time, it
//! starts over. All four accesses are `SeqCst`, so they have a single order and whichever side comes
//! second sees the other's write. `requested` and `handshake_running` follow the same protocol for handshakes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use crate::Boottime;
use crate::constants::{KEEPALIVE_TIMEOUT, NEW_HANDSHAKE_TIMEOUT, REKEY_TIMEOUT_JITTER};

/// Whether the caller must wake the slow path, which then calls `Device::woken`.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The armed timer fires early enough.
    No,
    /// Wake the slow path.
    SlowPath,
}

/// One peer's timestamps, shared between the data path and the slow path.
///
/// The data path calls one method per batch, not per packet.
pub struct TrafficTimestamps {
    /// When the slow path runs this peer's timers at the latest (see above).
    armed: AtomicU64,
    /// When data was first received since we last sent; zero: none.
    keepalive_since: AtomicU64,
    /// More data was received while a keepalive was pending.
    another_keepalive: AtomicBool,
    /// When data was first sent since we last received; zero: none.
    unanswered_since: AtomicU64,
    /// When the last authenticated packet was sent, or the persistent keepalive interval was restarted.
    last_sent: AtomicU64,
    /// When the last authenticated packet was received; zero: none.
    last_received: AtomicU64,
    /// A handshake is requested.
    requested: AtomicBool,
    /// The slow path is running a handshake and checks `requested` before it stops.
    handshake_running: AtomicBool,
}

impl Default for TrafficTimestamps {
    fn default() -> Self {
        Self {
            armed: AtomicU64::new(Boottime::NEVER.0),
            keepalive_since: AtomicU64::new(0),
            another_keepalive: AtomicBool::new(false),
            unanswered_since: AtomicU64::new(0),
            last_sent: AtomicU64::new(0),
            last_received: AtomicU64::new(0),
            requested: AtomicBool::new(false),
            handshake_running: AtomicBool::new(false),
        }
    }
}

impl TrafficTimestamps {
    /// No traffic and no request yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that authenticated packets were sent; `data` if at least one was not a keepalive.
    pub fn sent(&self, now: Boottime, data: bool) -> Wake {
        self.note_sent(now);
        if !data || !arm(&self.unanswered_since, now) {
            return Wake::No;
        }
        // The slow path chooses the jitter, so this is the latest possible deadline.
        self.arm_by(now.after(NEW_HANDSHAKE_TIMEOUT + REKEY_TIMEOUT_JITTER))
    }

    /// Notes that authenticated packets were received; `data` if at least one was not a keepalive.
    pub fn received(&self, now: Boottime, data: bool) -> Wake {
        self.note_received(now);
        if !data {
            return Wake::No;
        }
        if !arm(&self.keepalive_since, now) {
            // Load first, so that the cache line stays shared while the flag is set.
            if !self.another_keepalive.load(Ordering::Relaxed) {
                self.another_keepalive.store(true, Ordering::Relaxed);
            }
            return Wake::No;
        }
        self.arm_by(now.after(KEEPALIVE_TIMEOUT))
    }

    /// Requests a handshake: packets wait for a session, or the session needs renewal. While a request
    /// is pending, another costs one load and no wake-up.
    pub fn request_handshake(&self) -> Wake {
        if self.requested.load(Ordering::Relaxed) || self.requested.swap(true, Ordering::SeqCst) {
            return Wake::No;
        }
        if self.handshake_running.load(Ordering::SeqCst) { Wake::No } else { Wake::SlowPath }
    }

    /// Makes sure that the slow path runs this peer's timers at `deadline` at the latest.
    fn arm_by(&self, deadline: Boottime) -> Wake {
        if self.armed.load(Ordering::SeqCst) > deadline.0
            && self.armed.fetch_min(deadline.0, Ordering::SeqCst) > deadline.0
        {
            Wake::SlowPath
        } else {
            Wake::No
        }
    }
}

/// The slow path's side.
impl TrafficTimestamps {
    /// An authenticated message was sent: data or handshake.
    pub(crate) fn note_sent(&self, now: Boottime) {
        self.last_sent.store(now.0, Ordering::Relaxed);
        disarm(&self.keepalive_since);
    }

    /// An authenticated message was received: data or handshake.
    pub(crate) fn note_received(&self, now: Boottime) {
        self.last_received.store(now.0, Ordering::Relaxed);
        disarm(&self.unanswered_since);
    }

    /// Publishes when the slow path runs the peer's timers next, and whether it is running a handshake. It must read
    /// the timestamps again afterwards.
    pub(crate) fn publish(&self, armed: Boottime, handshake_running: bool) {
        self.armed.store(armed.0, Ordering::SeqCst);
        self.handshake_running.store(handshake_running, Ordering::SeqCst);
    }

    /// Whether a handshake is requested.
    pub(crate) fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// Takes the request for a handshake; a later one is a new request.
    pub(crate) fn take_request(&self) -> bool {
        self.requested.swap(false, Ordering::SeqCst)
    }

    /// When a passive keepalive is due.
    pub(crate) fn keepalive_due(&self) -> Option<Boottime> {
        due(&self.keepalive_since, KEEPALIVE_TIMEOUT)
    }

    /// Takes a due passive keepalive; false if a packet was sent in the meantime.
    pub(crate) fn take_keepalive(&self, now: Boottime) -> bool {
        take(&self.keepalive_since, now, KEEPALIVE_TIMEOUT)
    }

    /// After a passive keepalive: schedules another if more data was received before it.
    pub(crate) fn repeat_keepalive(&self, now: Boottime) {
        if self.another_keepalive.swap(false, Ordering::Relaxed) {
            arm(&self.keepalive_since, now);
        }
    }

    /// Cancels the passive keepalive until data is received again.
    pub(crate) fn drop_keepalive(&self) {
        disarm(&self.keepalive_since);
    }

    /// When a new handshake is due because the peer has not answered data.
    pub(crate) fn new_handshake_due(&self, jitter: Duration) -> Option<Boottime> {
        due(&self.unanswered_since, NEW_HANDSHAKE_TIMEOUT + jitter)
    }

    /// Takes a due new handshake; false if something was received in the meantime.
    pub(crate) fn take_new_handshake(&self, now: Boottime, jitter: Duration) -> bool {
        take(&self.unanswered_since, now, NEW_HANDSHAKE_TIMEOUT + jitter)
    }

    /// When the last authenticated packet was sent or received.
    pub fn last(&self) -> Boottime {
        Boottime(self.last_sent.load(Ordering::Relaxed)).max(self.last_received())
    }

    /// When the last authenticated packet was received; zero: never.
    pub fn last_received(&self) -> Boottime {
        Boottime(self.last_received.load(Ordering::Relaxed))
    }

    /// Restarts the persistent keepalive interval.
    pub(crate) fn touch(&self, now: Boottime) {
        self.last_sent.store(now.0, Ordering::Relaxed);
    }

    /// When the last authenticated packet was sent; zero: never.
    pub fn last_sent(&self) -> Boottime {
        Boottime(self.last_sent.load(Ordering::Relaxed))
    }

    /// When data was first sent since something was last received; `None` if nothing was.
    pub fn unanswered_since(&self) -> Option<Boottime> {
        // SeqCst: pairs with `sent`, as in `publish`.
        Some(Boottime(self.unanswered_since.load(Ordering::SeqCst))).filter(|since| since.0 != 0)
    }

    /// Nothing is waited for until data is sent again.
    #[cfg(feature = "fleet")]
    pub(crate) fn forget_unanswered(&self) {
        disarm(&self.unanswered_since);
    }

    /// Cancels everything that is due or requested.
    pub(crate) fn reset(&self) {
        disarm(&self.keepalive_since);
        disarm(&self.unanswered_since);
        self.another_keepalive.store(false, Ordering::Relaxed);
        self.requested.store(false, Ordering::SeqCst);
        self.publish(Boottime::NEVER, false);
    }
}

/// Sets the timestamp if it is zero; true if this call did.
fn arm(timestamp: &AtomicU64, now: Boottime) -> bool {
    // The load spares all batches of a burst but the first the compare-and-swap.
    timestamp.load(Ordering::Relaxed) == 0
        && timestamp.compare_exchange(0, now.0.max(1), Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

fn disarm(timestamp: &AtomicU64) {
    if timestamp.load(Ordering::Relaxed) != 0 {
        timestamp.store(0, Ordering::SeqCst);
    }
}

fn due(timestamp: &AtomicU64, delay: Duration) -> Option<Boottime> {
    match timestamp.load(Ordering::SeqCst) {
        0 => None,
        since => Some(Boottime(since).after(delay)),
    }
}

fn take(timestamp: &AtomicU64, now: Boottime, delay: Duration) -> bool {
    let since = timestamp.load(Ordering::SeqCst);
    since != 0
        && Boottime(since).after(delay) <= now
        && timestamp.compare_exchange(since, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    fn at(secs: u64) -> Boottime {
        Boottime::from_secs(1000 + secs)
    }

    #[test]
    fn only_the_batch_that_starts_a_timer_wakes() {
        let traffic = TrafficTimestamps::new();
        assert_eq!(traffic.received(at(0), true), Wake::SlowPath);
        assert_eq!(traffic.received(at(1), true), Wake::No);
        // The slow path runs the timers after 10 s anyway, early enough for any timer that starts later.
        assert_eq!(traffic.sent(at(2), true), Wake::No);
        assert_eq!(traffic.received(at(3), true), Wake::No);
        traffic.publish(Boottime::NEVER, false);
        traffic.note_received(at(4));
        assert_eq!(traffic.sent(at(5), true), Wake::SlowPath);
    }

    #[test]
    fn keepalives_start_no_timer() {
        let traffic = TrafficTimestamps::new();
        assert_eq!(traffic.received(at(0), false), Wake::No);
        assert_eq!(traffic.sent(at(0), false), Wake::No);
        assert_eq!((traffic.keepalive_due(), traffic.new_handshake_due(Duration::ZERO)), (None, None));
        assert_eq!(traffic.last(), at(0));
    }

    #[test]
    fn the_last_packet_received_is_told_from_the_last_one_sent() {
        let traffic = TrafficTimestamps::new();
        let _ = traffic.sent(at(0), true);
        assert_eq!((traffic.last(), traffic.last_received()), (at(0), Boottime::default()));
        let _ = traffic.received(at(1), true);
        let _ = traffic.sent(at(2), true);
        assert_eq!((traffic.last(), traffic.last_received()), (at(2), at(1)));
        let _ = traffic.received(at(3), false);
        assert_eq!((traffic.last(), traffic.last_received()), (at(3), at(3)));
    }

    #[test]
    fn sending_cancels_the_keepalive_and_receiving_cancels_the_new_handshake() {
        let traffic = TrafficTimestamps::new();
        let _ = traffic.received(at(0), true);
        assert_eq!(traffic.keepalive_due(), Some(at(10)));
        let _ = traffic.sent(at(1), true);
        assert_eq!((traffic.keepalive_due(), traffic.new_handshake_due(Duration::ZERO)), (None, Some(at(16))));
        let _ = traffic.received(at(2), false);
        assert_eq!(traffic.new_handshake_due(Duration::ZERO), None);
    }

    #[test]
    fn a_due_keepalive_is_taken_once_and_not_early() {
        let traffic = TrafficTimestamps::new();
        let _ = traffic.received(at(0), true);
        assert!(!traffic.take_keepalive(at(9)));
        assert!(traffic.take_keepalive(at(10)));
        assert!(!traffic.take_keepalive(at(11)));
        traffic.repeat_keepalive(at(11));
        assert_eq!(traffic.keepalive_due(), None, "no more data had been received");
        let _ = traffic.received(at(20), true);
        let _ = traffic.received(at(21), true);
        assert!(traffic.take_keepalive(at(30)));
        traffic.repeat_keepalive(at(30));
        assert_eq!(traffic.keepalive_due(), Some(at(40)));
    }

    #[test]
    fn one_request_is_pending_at_a_time() {
        let traffic = TrafficTimestamps::new();
        assert_eq!(traffic.request_handshake(), Wake::SlowPath);
        assert_eq!(traffic.request_handshake(), Wake::No);
        assert!(traffic.take_request() && !traffic.take_request());
        traffic.publish(Boottime::NEVER, true);
        assert_eq!(traffic.request_handshake(), Wake::No, "the slow path will see it");
        assert!(traffic.requested());
    }

    /// Runs the data path and the slow path against each other, many times, and checks that each timestamp
    /// has either a timer or a wake-up.
    #[test]
    fn no_timer_is_lost_in_a_race() {
        let traffic = TrafficTimestamps::new();
        let barrier = Barrier::new(2);
        let woken = AtomicUsize::new(0);
        const ROUNDS: u64 = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    barrier.wait();
                    let data = traffic.received(at(round * 100), true);
                    let request = traffic.request_handshake();
                    let wakes = [data, request].into_iter().filter(|&wake| wake == Wake::SlowPath).count();
                    woken.store(wakes, Ordering::SeqCst);
                    barrier.wait();
                }
            });
            for round in 0..ROUNDS {
                // Every other round the slow path is in a handshake.
                traffic.reset();
                traffic.publish(Boottime::NEVER, round % 2 == 1);
                barrier.wait();
                // The slow path's loop: publish, then read again.
                let mut due = traffic.keepalive_due();
                let saw_request = loop {
                    traffic.publish(due.unwrap_or(Boottime::NEVER), false);
                    let requested = traffic.requested();
                    let again = traffic.keepalive_due();
                    if again == due {
                        break requested;
                    }
                    due = again;
                };
                barrier.wait();
                let wakes = woken.load(Ordering::SeqCst);
                assert!(due == Some(at(round * 100 + 10)) || wakes > 0, "round {round}: a timer is lost");
                assert!(saw_request || wakes > 0, "round {round}: a request is lost");
            }
        });
    }
}
