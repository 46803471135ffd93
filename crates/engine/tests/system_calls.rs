//! How many system calls packets take: the worker's round of the receive queues on the memory backend, where each call
//! of a device or socket would be one, and so would each wait.

mod hosts;

use std::sync::atomic::Ordering;

use hosts::{Clock, Host, pair, settle, tcp_gso, udp};
use linerate_engine::backend::Backend;
use linerate_engine::forecast::RETRY;
use linerate_engine::poller::{PassOutcome, Poller};
use linerate_engine::rx_queue::RxQueue;
use linerate_engine::sequencer::Sequencer;
use linerate_netio::memory::MemoryNet;

/// Exchanges after which the workers know the traffic; as many follow and are counted.
const ROUNDS: u64 = 5 * RETRY as u64;

/// The only worker of a host: it waits for the receive queues and processes what they have.
struct Worker {
    poller: Poller<hosts::Memory>,
    sequencers: Vec<Sequencer>,
}

/// System calls of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls {
    waits: u64,
    tun_reads: u64,
    tun_writes: u64,
    receives: u64,
    sends: u64,
}

impl Calls {
    fn sum(self) -> u64 {
        self.waits + self.tun_reads + self.tun_writes + self.receives + self.sends
    }
}

struct Counted {
    host: Host,
    worker: Worker,
    waits: u64,
    /// The worker has found everything that was ready.
    waiting: bool,
}

impl Counted {
    fn new(host: Host) -> Self {
        let rx_queues = RxQueue::all(1, 1);
        let sequencers = rx_queues.iter().map(|_| Sequencer::default()).collect();
        let poller = Poller::new(host.shared.clone(), rx_queues);
        Self { host, worker: Worker { poller, sequencers }, waits: 0, waiting: true }
    }

    /// What one wake-up causes; false if nothing is ready, so that the worker goes on sleeping.
    fn wake(&mut self) -> bool {
        let sockets = self.host.shared.sockets.load_full().unwrap();
        let tun = self.host.shared.backend.tun().0.is_readable();
        let ready = u64::from(tun) | u64::from(sockets.v4[0].0.is_readable()) << 1;
        if ready != 0 {
            self.waits += 1;
            self.worker.poller.woken_by(ready, !self.waiting);
            while self.worker.poller.pass(&self.worker.sequencers).unwrap() == PassOutcome::Progress {}
        }
        self.waiting = ready == 0;
        ready != 0
    }

    fn calls(&self) -> Calls {
        let sockets = self.host.shared.sockets.load_full().unwrap();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (tun, socket) = (&self.host.shared.backend.tun().1, &sockets.v4[0].1);
        Calls {
            waits: self.waits,
            tun_reads: load(&tun.reads),
            tun_writes: load(&tun.writes),
            receives: load(&socket.reads),
            sends: load(&socket.writes),
        }
    }

    fn delivered(&self) -> usize {
        std::iter::from_fn(|| self.host.receive()).count()
    }
}

fn counted_pair() -> [Counted; 2] {
    let (mut one, mut two) = pair(&MemoryNet::new(4096), &Clock::new());
    one.send(&udp(one.inner, two.inner, b"makes the session"));
    settle(&mut [&mut one, &mut two]);
    let hosts = [one, two].map(Counted::new);
    hosts[1].delivered();
    hosts
}

/// The system calls of both hosts in [`ROUNDS`] repetitions of `round`, after as many that are not counted.
fn counted(hosts: &mut [Counted; 2], mut round: impl FnMut(&mut [Counted; 2])) -> [Calls; 2] {
    (0..ROUNDS).for_each(|_| round(hosts));
    let before = [0, 1].map(|i| hosts[i].calls());
    (0..ROUNDS).for_each(|_| round(hosts));
    [0, 1].map(|i| {
        let (after, before) = (hosts[i].calls(), before[i]);
        Calls {
            waits: after.waits - before.waits,
            tun_reads: after.tun_reads - before.tun_reads,
            tun_writes: after.tun_writes - before.tun_writes,
            receives: after.receives - before.receives,
            sends: after.sends - before.sends,
        }
    })
}

#[test]
fn a_lone_packet_takes_a_wait_a_read_and_a_send_and_at_the_other_end_as_many() {
    let mut hosts = counted_pair();
    let calls = counted(&mut hosts, |[one, two]| {
        one.host.send(&udp(one.host.inner, two.host.inner, b"an acknowledgement"));
        assert!(one.wake() && !one.wake());
        assert!(two.wake() && !two.wake());
        assert_eq!(two.delivered(), 1);
    });
    let retries = ROUNDS / u64::from(RETRY);
    let sender = Calls { waits: ROUNDS, tun_reads: ROUNDS + retries, sends: ROUNDS, ..Calls::default() };
    let receiver =
        Calls { waits: ROUNDS, receives: ROUNDS, tun_writes: ROUNDS, tun_reads: retries, ..Calls::default() };
    assert_eq!(calls, [sender, receiver]);
}

#[test]
fn a_request_and_its_reply_take_four_calls_and_one_wait_where_the_reply_is_made() {
    let mut hosts = counted_pair();
    let calls = counted(&mut hosts, |[one, two]| {
        one.host.send(&udp(one.host.inner, two.host.inner, b"request"));
        assert!(one.wake());
        // The kernel replies within the write.
        two.host.send(&udp(two.host.inner, one.host.inner, b"reply"));
        assert!(two.wake() && !two.wake());
        assert!(one.wake() && !one.wake());
        assert_eq!((one.delivered(), two.delivered()), (1, 1));
    });
    let retries = ROUNDS / u64::from(RETRY);
    assert!(calls[1].sum() <= 5 * ROUNDS + 2 * retries, "{:?}", calls[1]);
}

#[test]
fn a_gso_packet_takes_no_call_that_finds_nothing() {
    let mut hosts = counted_pair();
    let calls = counted(&mut hosts, |[one, two]| {
        let (header, packet) = tcp_gso(one.host.inner, two.host.inner, 45 * 1368, 1368);
        one.host.send_gso(&header, &packet);
        assert!(one.wake() && !one.wake());
        assert!(two.wake() && !two.wake());
        assert_eq!(two.delivered(), 1);
    });
    let retries = ROUNDS / u64::from(RETRY);
    // After a full batch, one read that finds nothing.
    let sender = Calls { waits: ROUNDS, tun_reads: 2 * ROUNDS, sends: ROUNDS, ..Calls::default() };
    let receiver =
        Calls { waits: ROUNDS, receives: ROUNDS, tun_writes: ROUNDS, tun_reads: retries, ..Calls::default() };
    assert_eq!(calls, [sender, receiver]);
}

#[test]
fn small_packets_that_come_together_leave_together_and_are_received_together() {
    let mut hosts = counted_pair();
    let calls = counted(&mut hosts, |[one, two]| {
        for size in 0..20 {
            one.host.send(&udp(one.host.inner, two.host.inner, &vec![7; 20 * (size % 5)]));
        }
        assert!(one.wake() && !one.wake());
        assert!(two.wake() && !two.wake());
        assert_eq!(two.delivered(), 20);
    });
    assert_eq!(calls[0].sends, ROUNDS);
    assert_eq!(calls[0].tun_reads, 21 * ROUNDS, "{:?}", calls[0]);
    // Four of different lengths at most are one message; the first call has room for two.
    assert!(calls[1].receives <= 2 * ROUNDS, "{:?}", calls[1]);
}

#[test]
fn a_busy_queue_is_read_until_it_is_empty_whatever_the_forecast() {
    let mut hosts = counted_pair();
    let calls = counted(&mut hosts, |[one, two]| {
        for _ in 0..3 {
            one.host.send(&udp(one.host.inner, two.host.inner, b"a lone packet"));
            while one.wake() | two.wake() {}
        }
        let (header, packet) = tcp_gso(one.host.inner, two.host.inner, 45 * 1368, 1368);
        one.host.send_gso(&header, &packet);
        (0..2).for_each(|_| one.host.send(&udp(one.host.inner, two.host.inner, b"behind a full batch")));
        while one.wake() | two.wake() {}
    });
    // One for each of the lone packets, and one send more for those behind the full batch.
    assert_eq!((calls[0].waits, calls[0].sends), (4 * ROUNDS, 5 * ROUNDS), "{:?}", calls[0]);
}

#[test]
fn what_a_forecast_left_out_ends_the_next_wait() {
    let [mut one, mut two] = counted_pair();
    let send = |one: &Counted, two: &Counted, packets| {
        (0..packets).for_each(|_| one.host.send(&udp(one.host.inner, two.host.inner, b"small")));
    };
    for _ in 0..ROUNDS {
        send(&one, &two, 1);
        while one.wake() | two.wake() {}
    }
    two.delivered();
    send(&one, &two, 100);
    let wakes = std::iter::from_fn(|| one.wake().then_some(())).count();
    while two.wake() {}
    assert_eq!(two.delivered(), 100);
    assert_eq!(wakes, 2, "the second wait ended at once");
}
