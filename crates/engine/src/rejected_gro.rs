//! The kinds of GRO packets that the TUN device rejected although it had offered to take them
//! (Linux 6.6.0 to 6.6.43 and their contemporaries).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linerate_packet::gro::Caps;
use linerate_packet::virtio::Gso;
use linerate_protocol::Boottime;

/// Nanoseconds for which packets of a rejected kind are not merged.
const REJECTED_FOR: u64 = 60_000_000_000;

/// By kind, until when packets are not merged.
#[derive(Default)]
pub struct RejectedGro {
    tcp4: Rejection,
    tcp6: Rejection,
    udp: Rejection,
}

#[derive(Default)]
struct Rejection {
    until: AtomicU64,
    logged: AtomicBool,
}

impl Rejection {
    fn is_over(&self, now: Boottime) -> bool {
        self.until.load(Ordering::Relaxed) <= now.0
    }
}

impl RejectedGro {
    /// The kinds that may be merged, of those that the device offers to take.
    pub fn limit(&self, offered: Caps, now: Boottime) -> Caps {
        Caps {
            tcp4: offered.tcp4 && self.tcp4.is_over(now),
            tcp6: offered.tcp6 && self.tcp6.is_over(now),
            udp: offered.udp && self.udp.is_over(now),
        }
    }

    /// Stops merging packets of this kind for a while: the device rejected a GRO packet.
    pub fn reject(&self, kind: Gso, error: &io::Error, now: Boottime) {
        let rejection = match kind {
            Gso::None => return,
            Gso::TcpV4 => &self.tcp4,
            Gso::TcpV6 => &self.tcp6,
            Gso::UdpL4 => &self.udp,
        };
        rejection.until.store(now.0 + REJECTED_FOR, Ordering::Relaxed);
        if !rejection.logged.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "the TUN device rejects {kind:?} GRO packets ({error}); writing single packets, retrying every minute"
            );
        }
    }
}
