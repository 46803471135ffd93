//! A sender that is no peer gets no answer and no memory, whatever it sends and however often.
//!
//! Counts what the data path and the slow path allocate on this thread, without what the memory backend allocates.

mod hosts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allocation_counter::AllocationInfo;
use hosts::{Clock, Host, udp};
use linerate_netio::memory::{Datagram, Fate, MemoryNet};

/// Changes a valid initiation by a host that is no peer, before it arrives.
type Forgery = fn(&mut Datagram);

/// Messages of senders that do not know the device's public key, each with the reason for which it is dropped.
const FORGERIES: [(&str, Forgery); 7] = [
    ("mac1", |datagram| datagram.contents[120] ^= 1),
    ("too_short", |datagram| datagram.contents.truncate(3)),
    ("bad_length", |datagram| datagram.contents.push(0)),
    ("unknown_type", |datagram| datagram.contents[0] = 5),
    ("unknown_type", |datagram| datagram.contents[3] = 1),
    ("unknown_index", |datagram| datagram.contents[0] = 4),
    ("unknown_index", |datagram| {
        datagram.contents[0] = 3;
        datagram.contents.truncate(64);
    }),
];

#[test]
fn an_unknown_sender_gets_no_answer_and_costs_no_memory() {
    for (reason, forge) in FORGERIES {
        for allocated in refuse(reason, forge) {
            assert_eq!(allocated.count_total, 0, "{reason}");
        }
    }
}

#[test]
fn a_sender_that_knows_the_public_key_but_is_no_peer_gets_no_answer_and_nothing_is_kept() {
    for allocated in refuse("unknown_peer", |_| ()) {
        // Scratch memory of the key agreement.
        assert!(allocated.count_max <= 2, "{} at once", allocated.count_max);
        assert_eq!(allocated.count_current, 0);
    }
}

/// Sends forged initiations to a host; returns what it allocated for each but the first, which also allocates what is
/// kept for all.
fn refuse(reason: &str, forge: Forgery) -> Vec<AllocationInfo> {
    let (net, clock) = (MemoryNet::new(4096), Clock::new());
    let (mut host, mut sender) = (Host::new(&net, &clock, 1), Host::new(&net, &clock, 2));
    sender.add_peer(&host);
    let answers = Arc::new(AtomicUsize::new(0));
    net.set_fate(fate(host.outer, forge, Arc::clone(&answers)));
    let attempts = (0..10).map(|_| {
        // It may try again.
        clock.advance(Duration::from_secs(6));
        sender.send(&udp(sender.inner, host.inner, b"let me in"));
        while sender.carry() | sender.slow_path.process() {}
        allocation_counter::measure(|| while host.carry() | host.slow_path.process() {})
    });
    let allocated = attempts.skip(1).collect();
    assert!(host.drops(reason) >= 10, "{reason}: refused {} times", host.drops(reason));
    assert_eq!(answers.load(Ordering::Relaxed), 0, "{reason}: answers");
    allocated
}

/// Forges what is on its way to the host, and counts what the host sends.
fn fate(host: SocketAddr, forge: Forgery, answers: Arc<AtomicUsize>) -> impl FnMut(&mut Datagram) -> Fate + Send {
    move |datagram| {
        if datagram.source == host {
            answers.fetch_add(1, Ordering::Relaxed);
        } else {
            forge(datagram);
        }
        Fate::Deliver
    }
}
