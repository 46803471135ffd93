//! What each step costs, in nanoseconds, and how that was measured.

use crate::sim::Ns;

/// TCP payload of a full GSO packet.
pub const FULL_GSO_BYTES: f64 = 61_560.0;

/// What a call or a pass costs: so much each time, and so much for the bytes of a full GSO packet.
#[derive(Clone, Copy, Debug)]
pub struct Cost(pub f64, pub f64);

impl Cost {
    /// So many calls with so many full GSO packets in all.
    pub fn of(self, calls: usize, size: f64) -> Ns {
        (self.0 * calls as f64 + self.1 * size) as Ns
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Costs {
    /// A write by the thread that sends TCP, and a read by the one that receives it.
    pub make: Cost,
    pub take: Cost,
    /// From the TUN device to the wire; one `read` for each packet.
    pub read: Cost,
    pub split: Cost,
    pub counters: Ns,
    pub seal: Cost,
    pub send: Cost,
    /// The receiving half of the network.
    pub softirq: Cost,
    /// From the wire to the TUN device: a message of `recvmmsg`, and a `writev` for each packet.
    pub recv: Cost,
    pub open: Cost,
    pub write: Cost,
    pub write_ack: Ns,
    /// Cipher and bookkeeping of each packet or acknowledgement.
    pub packet: Ns,
    /// A look at a queue that is empty; a wait for packets.
    pub probe: Ns,
    pub wait: Ns,
    /// How long a woken thread takes to an idle core, and what that takes the waker; the change of threads on a core.
    pub wake: Ns,
    pub kick: Ns,
    pub switch: Ns,
    /// A lock or phase that another core held before; a full GSO packet that another core wrote.
    pub hand_over: Ns,
    pub foreign: Ns,
    /// Standard deviation of the logarithm of a step's time.
    pub spread: f64,
    /// How much longer everything takes while 1, 2, ... cores are busy; the last holds for more.
    pub contention: Vec<f64>,
}

impl Costs {
    /// See the field.
    pub fn contention(&self, busy: usize) -> f64 {
        self.contention[busy.min(self.contention.len()) - 1]
    }
}

/// Of an Emerald Rapids with four virtual processors, Linux 6.18.
///
/// - The engine's stages: their means for full GSO packets, each measured alone on 2026-11-21 by
///   `crates/lab/examples/stage_costs.rs` (commit 3f8f53b), divided into call and bytes as in docs/data-path.md. Their
///   sum is that of the daemons' processor time on one core on 2026-11-23: 40 and 41 us, of one stream with Reno.
/// - `make` and `take`: processor time of iperf3 in that run, by /proc/PID/schedstat.
/// - `wake` and `kick`: two threads on two cores that wake each other by eventfd(2), 2026-11-23: a round trip takes 63
///   to 70 us (4 on one core), the write that wakes 13 to 14.6 us of processor time (1.5 on one core).
/// - `hand_over`: ten cache lines at 118 ns each (2026-11-21).
/// - `foreign`: the only one that is fitted, to the receiver's and daemon's processor time with one stream on *two*
///   cores; copying alone takes 4.4 us, the rest is the allocator's and the socket's state.
/// - `contention`: one, two and four copies of the whole experiment, each on one core: 3.9, 3.9 and 3.7 Gbit/s.
pub fn measured() -> Costs {
    Costs {
        make: Cost(0.0, 4_900.0),
        take: Cost(0.0, 7_600.0),
        read: Cost(1_000.0, 3_300.0),
        split: Cost(0.0, 4_300.0),
        counters: 150,
        seal: Cost(500.0, 19_000.0),
        send: Cost(800.0, 2_000.0),
        softirq: Cost(3_900.0, 0.0),
        recv: Cost(1_700.0, 3_400.0),
        open: Cost(700.0, 23_900.0),
        write: Cost(5_000.0, 4_900.0),
        write_ack: 3_000,
        packet: 150,
        probe: 500,
        wait: 1_500,
        wake: 30_000,
        kick: 12_500,
        switch: 1_500,
        hand_over: 1_200,
        foreign: 10_000,
        spread: 0.25,
        contention: vec![1.0, 1.0, 1.025, 1.05],
    }
}
