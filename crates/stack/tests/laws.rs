//! What holds between two stacks on a bad link, at every seed.

mod net;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use linerate_netio::tun::{HEADER, Tun, WaitableTun};
use linerate_netio::udp::GSO_BATCH_MAX;
use linerate_netio::wait;
use linerate_packet::{TCP, UDP, icmp, ip};
use linerate_sockets::{Sockets, Stream};
use linerate_stack::{DropReason, Environment};
use net::{Link, Net, Wakes, accept, bytes, exchange, finish, read, read_to_end, receive, send, task, write_all};
use proptest::prelude::*;

fn link() -> impl Strategy<Value = Link> {
    let millis = |range: std::ops::Range<u64>| proptest::strategy::Strategy::prop_map(range, Duration::from_millis);
    (millis(0u64..80), millis(0u64..20), 0u32..100, 0u32..50, any::<bool>()).prop_map(
        |(delay, jitter, lost, doubled, merged)| Link { delay, jitter, lost, doubled, merged, nanos_per_byte: 0 },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn bytes_arrive_complete_and_in_order_whatever_the_link_does(
        seed in any::<u64>(), link in link(), v6 in any::<bool>(),
        there in 0usize..300_000, back in 0usize..100_000, chunk in 1usize..100_000,
    ) {
        let mut net = Net::new(seed, link);
        let (mut a, mut b) = net.connect(v6);
        let (data_a, data_b) = (bytes(seed, there), bytes(!seed, back));
        let (mut got_a, mut got_b) = (Vec::new(), Vec::new());
        net.run([
            task(async { got_a = exchange(&mut *a, &data_a, chunk).await.unwrap() }),
            task(async { got_b = exchange(&mut *b, &data_b, 1 + chunk / 2).await.unwrap() }),
        ]);
        prop_assert!(got_a == data_b && got_b == data_a, "what arrived is something else");
        drop((a, b));
        net.assert_empty();
    }

    #[test]
    fn a_half_that_has_ended_leaves_the_other_one_open(
        seed in any::<u64>(), link in link(), len in 1usize..50_000, first in 0usize..2,
    ) {
        let mut net = Net::new(seed, link);
        let (a, b) = net.connect(false);
        let (mut ends, data) = ([a, b], bytes(seed, len));
        let [x, y] = &mut ends;
        let (closing, open) = if first == 0 { (x, y) } else { (y, x) };
        let mut got = Vec::new();
        net.run([
            task(async {
                finish(&mut **closing).await.unwrap();
                got = read_to_end(&mut **closing).await.unwrap();
            }),
            task(async {
                assert_eq!(read(&mut **open, &mut [0; 10]).await.unwrap(), 0);
                write_all(&mut **open, &data).await.unwrap();
                finish(&mut **open).await.unwrap();
            }),
        ]);
        prop_assert!(got == data);
        drop(ends);
        net.assert_empty();
    }

    #[test]
    fn a_reset_reaches_the_other_end(seed in any::<u64>(), len in 0usize..200_000, dropped in any::<bool>()) {
        let mut net = Net::new(seed, Link::PERFECT);
        let (a, mut b) = net.connect(seed.is_multiple_of(2));
        let mut a = Some(a);
        net.run([
            task(async {
                write_all(&mut **a.as_mut().unwrap(), &bytes(seed, len.min(60_000))).await.unwrap();
                if dropped { a = None } else { a.as_mut().unwrap().reset() }
            }),
            task(async {
                // What had arrived before may be read.
                let error = read_to_end(&mut *b).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                assert!(b.has_failed());
                let error = write_all(&mut *b, b"more").await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            }),
        ]);
        drop((a, b));
        net.assert_empty();
    }

    #[test]
    fn nothing_that_arrives_makes_it_panic(
        packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..200), any::<bool>()), 1..50),
    ) {
        let net = Net::new(1, Link::PERFECT);
        for (mut packet, v6) in packets {
            // As much as it takes to get behind the first checks.
            packet[0] = if v6 { 0x60 } else { 0x45 };
            let len = packet.len() as u16;
            if v6 && packet.len() >= 40 {
                packet[4..6].copy_from_slice(&(len - 40).to_be_bytes());
                packet[24..40].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            } else if !v6 && packet.len() >= 20 {
                packet[2..4].copy_from_slice(&len.to_be_bytes());
                packet[6..8].fill(0);
                packet[16..20].copy_from_slice(&[10, 0, 0, 1]);
            }
            let mut header = [0; HEADER];
            // The checksum need not be right.
            header[0] = 1;
            let _ = net.tuns[0].write(0, &[IoSlice::new(&header), IoSlice::new(&packet)]);
        }
    }

    #[test]
    fn a_flipped_bit_changes_nothing_and_does_not_make_it_panic_if_no_checksum_tells(
        seed in any::<u64>(), len in 1usize..30_000,
    ) {
        let mut net = Net::new(seed, Link { merged: false, ..Link::PERFECT });
        let (mut a, mut b) = net.connect(seed.is_multiple_of(2));
        let mut random = fastrand::Rng::with_seed(seed);
        // A broken copy of each packet arrives before it.
        let tuns = net.stacks.each_ref().map(linerate_stack::Stack::tun);
        let copies = Arc::new(Mutex::new(Vec::new()));
        let seen = copies.clone();
        net.watch = Some(Box::new(move |host, packet| {
            let mut packet = packet.to_vec();
            let at = random.usize(0..packet.len());
            packet[at] ^= 1 << random.u32(0..8);
            let _ = tuns[1 - host].write(0, &[IoSlice::new(&[0; HEADER]), IoSlice::new(&packet)]);
            seen.lock().unwrap().push((1 - host, packet));
        }));
        let data = bytes(seed, len);
        let mut got = Vec::new();
        net.run([
            task(async { write_all(&mut *a, &data).await.unwrap(); finish(&mut *a).await.unwrap(); }),
            task(async { got = read_to_end(&mut *b).await.unwrap(); }),
        ]);
        prop_assert!(got == data);
        for (host, packet) in copies.lock().unwrap().iter() {
            // As if it had been verified.
            let mut header = [0; HEADER];
            header[0] = 1;
            let _ = net.tuns[*host].write(0, &[IoSlice::new(&header), IoSlice::new(packet)]);
        }
    }
}

fn poll<T>(f: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    f(&mut Context::from_waker(Waker::noop()))
}

/// Writes until nothing more is taken; how many bytes that was.
fn fill(net: &mut Net, stream: &mut dyn Stream) -> usize {
    let (mut total, data) = (0, vec![7; 100_000]);
    loop {
        match poll(|context| stream.poll_write(context, &data)) {
            Poll::Ready(len) => total += len.unwrap(),
            Poll::Pending => {
                let before = total;
                net.pass(Duration::from_secs(2));
                if let Poll::Ready(len) = poll(|context| stream.poll_write(context, &data)) {
                    total += len.unwrap();
                }
                if total == before {
                    return total;
                }
            }
        }
    }
}

#[test]
fn a_reader_that_does_not_read_closes_the_window_and_one_that_does_opens_it() {
    let mut net = Net::new(3, Link::PERFECT);
    let (mut a, mut b) = net.connect(false);
    let written = fill(&mut net, &mut *a);
    assert!((4 << 20..=5 << 20).contains(&written), "{written} bytes were taken, of buffers of 4 and 1 MiB");
    // An hour of probes: nothing ends, nothing is lost.
    net.pass(Duration::from_secs(3600));
    let mut got = 0;
    net.run([task(async {
        let mut buf = vec![0; 10_000];
        while got < written {
            let len = read(&mut *b, &mut buf).await.unwrap();
            assert!(len > 0 && buf[..len].iter().all(|byte| *byte == 7));
            got += len;
        }
    })]);
    assert_eq!(got, written);
}

#[test]
fn a_window_that_opens_is_seen_by_the_second_to_finish() {
    let mut net = Net::new(24, Link::PERFECT);
    let (mut a, mut b) = net.connect(false);
    net.run([task(async {
        finish(&mut *a).await.unwrap();
        assert_eq!(read(&mut *b, &mut [0; 9]).await.unwrap(), 0);
    })]);
    let written = fill(&mut net, &mut *b);
    net.run([task(async { finish(&mut *b).await.unwrap() })]);
    assert!(matches!(poll(|context| b.poll_write(context, b"more")), Poll::Ready(Err(_))));
    // Probes of the closed window are a minute apart by then.
    net.pass(Duration::from_secs(200));
    let began = net.now();
    net.run([task(async { assert_eq!(read_to_end(&mut *a).await.unwrap().len(), written) })]);
    assert!(net.now() - began < Duration::from_secs(1), "{:?}", net.now() - began);
    drop((a, b));
    net.assert_empty();
}

/// The first so many of two ends have sent, and have not heard that it arrived: the link was cut while
/// acknowledgements travelled.
fn unheard(seed: u64, data: &[u8], senders: usize) -> (Net, [Box<dyn Stream>; 2]) {
    let mut net = Net::new(seed, Link::PERFECT);
    let (a, b) = net.connect(seed.is_multiple_of(2));
    let mut ends = [a, b];
    for stream in ends.iter_mut().take(senders) {
        assert!(matches!(poll(|context| stream.poll_write(context, data)), Poll::Ready(Ok(len)) if len == data.len()));
    }
    net.pass(Duration::from_millis(1));
    net.link.lost = 1000;
    // At least one repetition is lost as well.
    net.pass(Duration::from_secs(2));
    net.link.lost = 0;
    (net, ends)
}

#[test]
fn two_that_both_missed_an_acknowledgement_go_on() {
    for seed in 0..4 {
        let data = bytes(seed, 2000);
        let (mut net, [mut a, mut b]) = unheard(seed, &data, 2);
        let (mut got, began) = ([Vec::new(), Vec::new()], net.now());
        let [got_a, got_b] = &mut got;
        net.run([
            task(async {
                finish(&mut *a).await.unwrap();
                *got_a = read_to_end(&mut *a).await.unwrap();
            }),
            task(async {
                finish(&mut *b).await.unwrap();
                *got_b = read_to_end(&mut *b).await.unwrap();
            }),
        ]);
        assert!(got.iter().all(|got| *got == data));
        assert!(net.now() - began < Duration::from_secs(10), "{:?}", net.now() - began);
        drop((a, b));
        net.assert_empty();
    }
}

#[test]
fn a_reset_is_one_whatever_has_to_be_repeated() {
    for seed in 0..4 {
        let (mut net, [mut a, mut b]) = unheard(seed, &bytes(seed, 2000), 1);
        a.reset();
        net.run([task(async {
            let error = read_to_end(&mut *b).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        })]);
        drop((a, b));
        net.assert_empty();
    }
}

#[test]
fn an_end_that_was_lost_is_repeated_though_acknowledgements_repeat_themselves() {
    let mut net = Net::new(18, Link::PERFECT);
    let (mut a, mut b) = net.connect(false);
    let last = Arc::new(Mutex::new(Vec::new()));
    let kept = last.clone();
    net.watch = Some(Box::new(move |host, packet| {
        if host == 1 {
            *kept.lock().unwrap() = packet.to_vec();
        }
    }));
    net.run([task(async { write_all(&mut *a, b"all of it").await.unwrap() })]);
    net.pass(Duration::from_secs(1));
    net.link.lost = 1000;
    net.run([task(async { finish(&mut *a).await.unwrap() })]);
    net.pass(Duration::from_millis(1));
    net.link.lost = 0;
    for _ in 0..4 {
        net.write(0, &[IoSlice::new(&[0; HEADER]), IoSlice::new(&last.lock().unwrap())]);
    }
    let began = net.now();
    net.run([task(async { assert_eq!(read_to_end(&mut *b).await.unwrap(), b"all of it") })]);
    assert!(net.now() - began < Duration::from_secs(10), "{:?}", net.now() - began);
}

#[test]
fn an_acknowledgement_outside_of_the_window_is_answered_however_much_it_is_for() {
    let mut net = Net::new(19, Link::PERFECT);
    let (mut a, _b) = net.connect(false);
    let last = Arc::new(Mutex::new(Vec::new()));
    let kept = last.clone();
    net.watch = Some(Box::new(move |host, packet| {
        if host == 1 {
            *kept.lock().unwrap() = packet.to_vec();
        }
    }));
    net.run([task(async { write_all(&mut *a, b"first").await.unwrap() })]);
    net.pass(Duration::from_secs(1));
    net.link.lost = 1000;
    net.run([task(async { write_all(&mut *a, &[0; 100_000]).await.unwrap() })]);
    net.pass(Duration::from_millis(1));
    // As if the peer had more of it than is in the window, and were far ahead itself.
    let (mut packet, before) = (last.lock().unwrap().clone(), net.packets[0]);
    for (field, more) in [(24, 0x4000_0000), (28, 90_000)] {
        let number = u32::from_be_bytes(*packet[field..].first_chunk().unwrap()).wrapping_add(more);
        packet[field..field + 4].copy_from_slice(&number.to_be_bytes());
    }
    // Its checksum was verified.
    let mut header = [0; HEADER];
    header[0] = 1;
    net.write(0, &[IoSlice::new(&header), IoSlice::new(&packet)]);
    net.pass(Duration::ZERO);
    assert_eq!(net.packets[0] - before, 1, "it was told what is expected");
}

#[test]
fn what_was_received_can_be_read_long_after_both_have_finished() {
    let mut net = Net::new(4, Link::PERFECT);
    let (mut a, mut b) = net.connect(true);
    let data = bytes(4, 50_000);
    net.run([
        task(async {
            finish(&mut *a).await.unwrap();
        }),
        task(async {
            write_all(&mut *b, &data).await.unwrap();
            finish(&mut *b).await.unwrap();
        }),
    ]);
    net.pass(Duration::from_secs(600));
    let mut got = Vec::new();
    net.run([task(async { got = read_to_end(&mut *a).await.unwrap() })]);
    assert_eq!(got, data);
    drop((a, b));
    net.assert_empty();
}

#[test]
fn connections_that_are_idle_ask_once_a_minute_and_last_for_ever() {
    let mut net = Net::new(5, Link::PERFECT);
    let (mut a, mut b) = net.connect(false);
    net.run([task(async { write_all(&mut *a, b"hello").await.unwrap() })]);
    net.pass(Duration::from_secs(1));
    let packets = |net: &Net| net.packets.iter().sum::<u64>();
    let before = packets(&net);
    let minutes = 7 * 24 * 60;
    net.pass(Duration::from_secs(minutes * 60));
    let asked = packets(&net) - before;
    assert!((2 * minutes - 2..=4 * minutes).contains(&asked), "a question and an answer of each end: {asked}");
    let fds = [0, 1].map(|host| net.tuns[host].queue_fd(0));
    assert_eq!(wait::ready(&fds).unwrap(), 0);
    net.run([task(async {
        let mut buf = [0; 10];
        assert_eq!(read(&mut *b, &mut buf).await.unwrap(), 5);
        write_all(&mut *b, b"world").await.unwrap();
        assert_eq!(read(&mut *a, &mut buf).await.unwrap(), 5);
    })]);
}

#[test]
fn the_engine_is_told_that_there_are_packets() {
    let mut net = Net::new(6, Link::PERFECT);
    let (mut a, _b) = net.connect(false);
    net.pass(Duration::from_secs(1));
    assert_eq!(wait::ready(&[net.tuns[0].queue_fd(0)]).unwrap(), 0);
    assert!(poll(|context| a.poll_write(context, b"hello")).is_ready());
    assert_eq!(wait::ready(&[net.tuns[0].queue_fd(0)]).unwrap(), 1);
    let mut buf = vec![0; HEADER + 65_535];
    assert!(net.tuns[0].read(0, &mut buf).is_ok());
    assert_eq!(wait::ready(&[net.tuns[0].queue_fd(0)]).unwrap(), 0, "there is no other one");
    assert_eq!(net.tuns[0].read(0, &mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(wait::ready(&[net.tuns[0].queue_fd(0)]).unwrap(), 0);
}

#[test]
fn errors_say_what_happened() {
    let mut net = Net::new(7, Link::PERFECT);
    let kind = |net: &mut Net, to: &str| {
        let (stack, to, mut kind) = (net.stacks[0].clone(), to.parse().unwrap(), None);
        net.run([task(async { kind = Some(stack.connect(to).await.map(drop).unwrap_err().kind()) })]);
        kind.unwrap()
    };
    for closed in ["10.0.0.2:9", "[fd00::2]:9"] {
        assert_eq!(kind(&mut net, closed), io::ErrorKind::ConnectionRefused, "{closed}");
    }
    assert_eq!(kind(&mut net, "0.0.0.0:9"), io::ErrorKind::AddrNotAvailable);
    let busy = net.stacks[1].listen("10.0.0.2:80".parse().unwrap()).unwrap();
    let again = net.stacks[1].listen(busy.local()).map(drop).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    let foreign = net.stacks[1].bind("10.9.9.9:80".parse().unwrap()).map(drop).unwrap_err();
    assert_eq!(foreign.kind(), io::ErrorKind::AddrNotAvailable);
    net.assert_empty();
}

#[test]
fn what_the_engine_cannot_deliver_ends_the_attempt_at_once() {
    for to in ["10.0.0.9:80", "[fd00::9]:80"] {
        let net = Net::new(8, Link::PERFECT);
        let to: SocketAddr = to.parse().unwrap();
        let mut connecting = net.stacks[0].connect(to);
        let mut pinging = net.stacks[0].ping(to.ip());
        let mut socket = net.stacks[0].bind(SocketAddr::new(net.address(0, to.is_ipv6()), 0)).unwrap();
        assert!(poll(|context| connecting.as_mut().poll(context)).is_pending());
        assert!(poll(|context| pinging.as_mut().poll(context)).is_pending());
        assert!(poll(|context| socket.poll_send(context, b"x", to)).is_ready());
        let (mut buf, mut error) = (vec![0; HEADER + 65_535], [0; icmp::LONGEST]);
        while let Ok(len) = net.tuns[0].read(0, &mut buf) {
            let len = icmp::unreachable(&buf[HEADER..len], &mut error).unwrap();
            net.write(0, &[IoSlice::new(&[0; HEADER]), IoSlice::new(&error[..len])]);
        }
        let unreachable = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::HostUnreachable);
        let Poll::Ready(Err(error)) = poll(|context| connecting.as_mut().poll(context)) else { panic!("{to}") };
        unreachable(error);
        let Poll::Ready(Err(error)) = poll(|context| pinging.as_mut().poll(context)) else { panic!("{to}") };
        unreachable(error);
        let Poll::Ready(Err(error)) = poll(|context| socket.poll_receive(context, &mut [0; 9])) else { panic!("{to}") };
        unreachable(error);
    }
}

#[test]
fn an_attempt_that_is_given_up_leaves_nothing() {
    let mut net = Net::new(9, Link { lost: 1000, ..Link::PERFECT });
    let mut connecting = net.stacks[0].connect("10.0.0.2:80".parse().unwrap());
    assert!(poll(|context| connecting.as_mut().poll(context)).is_pending());
    net.pass(Duration::from_secs(30));
    assert!(poll(|context| connecting.as_mut().poll(context)).is_pending());
    drop(connecting);
    net.assert_empty();
}

#[test]
fn a_listener_of_all_addresses_is_one_of_its_family_alone() {
    let mut net = Net::new(10, Link::PERFECT);
    let mut listener = net.stacks[1].listen("0.0.0.0:80".parse().unwrap()).unwrap();
    let stack = net.stacks[0].clone();
    net.run([
        task(async {
            stack.connect("10.0.0.2:80".parse().unwrap()).await.unwrap();
            let v6 = stack.connect("[fd00::2]:80".parse().unwrap()).await.map(drop).unwrap_err();
            assert_eq!(v6.kind(), io::ErrorKind::ConnectionRefused);
        }),
        task(async {
            let stream = accept(&mut *listener).await.unwrap();
            assert_eq!(stream.local().to_string(), "10.0.0.2:80");
        }),
    ]);
    drop(listener);
    net.assert_empty();
}

#[test]
fn a_backlog_is_bounded_and_ends_with_its_listener() {
    let mut net = Net::new(11, Link::PERFECT);
    let listener = net.stacks[1].listen("10.0.0.2:80".parse().unwrap()).unwrap();
    let mut attempts: Vec<_> = (0..200).map(|_| net.stacks[0].connect(listener.local())).collect();
    net.pass(Duration::from_secs(1));
    let mut made = Vec::new();
    for attempt in &mut attempts {
        if let Poll::Ready(stream) = poll(|context| attempt.as_mut().poll(context)) {
            made.push(stream.unwrap());
        }
    }
    assert_eq!(made.len(), 128);
    drop(listener);
    net.run([task(async {
        for stream in &mut made {
            assert_eq!(read(&mut **stream, &mut [0; 9]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        }
    })]);
    drop((attempts, made));
    net.assert_empty();
}

#[test]
fn datagrams_and_echo_requests_travel_in_both_families() {
    let mut net = Net::new(12, Link::PERFECT);
    for v6 in [false, true] {
        let mut a = net.stacks[0].bind(SocketAddr::new(net.address(0, v6), 0)).unwrap();
        let mut b = net.stacks[1].bind(SocketAddr::new(net.address(1, v6), 53)).unwrap();
        let (to, closed) = (b.local(), SocketAddr::new(net.address(1, v6), 54));
        let ping = net.stacks[0].ping(to.ip());
        let longest = 1420 - 8 - if v6 { 40 } else { 20 };
        net.run([
            task(async {
                for len in [0, 1, 1000, longest] {
                    send(&mut *a, &bytes(1, len), to).await.unwrap();
                    assert_eq!(receive(&mut *a).await.unwrap(), (bytes(1, len), to));
                }
                let long = send(&mut *a, &bytes(1, longest + 1), to).await.unwrap_err();
                assert!(long.to_string().contains("MTU of 1420"), "{long}");
                send(&mut *a, b"nobody", closed).await.unwrap();
                assert_eq!(receive(&mut *a).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
                ping.await.unwrap();
            }),
            task(async {
                for _ in 0..4 {
                    let (data, from) = receive(&mut *b).await.unwrap();
                    send(&mut *b, &data, from).await.unwrap();
                }
            }),
        ]);
    }
}

#[test]
fn a_queue_of_datagrams_is_bounded() {
    let mut net = Net::new(13, Link::PERFECT);
    let mut a = net.stacks[0].bind("10.0.0.1:0".parse().unwrap()).unwrap();
    let mut b = net.stacks[1].bind("10.0.0.2:53".parse().unwrap()).unwrap();
    let to = b.local();
    net.run([task(async {
        for _ in 0..1000 {
            send(&mut *a, &[0; 1000], to).await.unwrap();
        }
    })]);
    net.pass(Duration::from_secs(1));
    let mut got = 0;
    while poll(|context| b.poll_receive(context, &mut [0; 2000])).is_ready() {
        got += 1;
    }
    let dropped = net.stacks[1].report().drops[DropReason::QueueFull as usize].1;
    assert!(got > 50 && got + dropped == 1000, "{got} and {dropped}");
}

#[test]
fn datagrams_leave_room_for_replies_and_wait_once() {
    let mut net = Net::new(20, Link::PERFECT);
    let (mut a, _b) = net.connect(false);
    let mut socket = net.stacks[1].bind("10.0.0.2:0".parse().unwrap()).unwrap();
    let (wakes, to) = (Arc::new(Wakes::default()), "10.0.0.1:9".parse().unwrap());
    let waker = Waker::from(wakes.clone());
    let mut send = || socket.poll_send(&mut Context::from_waker(&waker), &[0; 100], to);
    let taken = (0..1000).take_while(|_| send().is_ready()).count();
    assert!(taken >= 128 && (0..10).all(|_| send().is_pending()), "{taken} datagrams");
    // The second of two segments alone: by acknowledgements at once the sender finds out that one was lost.
    let (mut buf, mut len) = (vec![0; HEADER + 65_535], 0);
    for data in [b"first", b"other"] {
        assert!(poll(|context| a.poll_write(context, data)).is_ready());
        len = net.tuns[0].read(0, &mut buf).unwrap();
    }
    let (header, packet) = buf[..len].split_first_chunk::<HEADER>().unwrap();
    (0..10).for_each(|_| net.write(1, &[IoSlice::new(header), IoSlice::new(packet)]));
    assert_eq!(net.stacks[1].report().drops[DropReason::ReplyQueueFull as usize].1, 0);
    let mut protocols = Vec::new();
    while let Ok(len) = net.tuns[1].read(0, &mut buf) {
        protocols.push(ip::parse(&buf[HEADER..len]).unwrap().protocol);
    }
    let count = |protocol| protocols.iter().filter(|one| **one == protocol).count();
    assert_eq!(count(UDP), taken);
    assert!(count(TCP) > 0, "it was acknowledged");
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_train_of_segments_is_one_packet_for_the_engine() {
    let mut net = Net::new(14, Link::PERFECT);
    let (mut a, mut b) = net.connect(false);
    // The congestion window grows first.
    let data = bytes(14, 500_000);
    let mut got = Vec::new();
    net.run([
        task(async {
            write_all(&mut *a, &data).await.unwrap();
        }),
        task(async {
            let mut buf = vec![0; 100_000];
            while got.len() < data.len() {
                let len = read(&mut *b, &mut buf).await.unwrap();
                got.extend_from_slice(&buf[..len]);
            }
        }),
    ]);
    net.pass(Duration::from_secs(1));
    assert!(poll(|context| a.poll_write(context, &data[..100_000])).is_ready());
    let mut buf = vec![0; HEADER + 65_535];
    let len = net.tuns[0].read(0, &mut buf).unwrap() - HEADER;
    let (header, packet) = buf.split_first_chunk::<HEADER>().unwrap();
    assert!(!net::is_single(header));
    assert_eq!(ip::parse(&packet[..len]).unwrap().total_len, len);
    // As many full segments as fit a GSO batch of the engine's, and no other.
    assert_eq!(len, 40 + GSO_BATCH_MAX / (1420 + 32) * (1420 - 40));
}

/// How often nothing arrives for as long as a time-out takes, while 20 MB take their way of 50 ms there and back on
/// which one packet of a thousand is lost.
fn time_outs(seed: u64) -> usize {
    let mut net = Net::new(seed, Link { delay: Duration::from_millis(25), lost: 1, ..Link::PERFECT });
    let (mut a, mut b) = net.connect(seed.is_multiple_of(2));
    let (data, clock) = (bytes(seed, 20_000_000), net.clock.clone());
    let (mut got, mut waits) = (Vec::new(), 0);
    net.run([
        task(async { write_all(&mut *a, &data).await.unwrap() }),
        task(async {
            let mut buf = vec![0; 64 << 10];
            while got.len() < data.len() {
                let before = clock.now();
                let len = read(&mut *b, &mut buf).await.unwrap();
                waits += usize::from(clock.now() - before > Duration::from_millis(900));
                got.extend_from_slice(&buf[..len]);
            }
        }),
    ]);
    assert!(got == data);
    waits
}

#[test]
fn a_loss_among_trains_of_segments_seldom_costs_a_time_out() {
    // Of some 15 losses each; one that is repeated and lost again costs one.
    let waits: Vec<usize> = (0..8).map(time_outs).collect();
    assert!(waits.iter().sum::<usize>() < 20, "{waits:?}");
}

#[test]
fn a_connection_that_was_idle_for_a_day_closes_in_order() {
    let mut net = Net::new(15, Link::PERFECT);
    let (mut a, mut b) = net.connect(false);
    net.pass(Duration::from_secs(24 * 3600));
    net.run([
        task(async {
            finish(&mut *a).await.unwrap();
            assert_eq!(read(&mut *a, &mut [0; 9]).await.unwrap(), 0);
        }),
        task(async {
            assert_eq!(read(&mut *b, &mut [0; 9]).await.unwrap(), 0);
            finish(&mut *b).await.unwrap();
        }),
    ]);
    drop((a, b));
    net.assert_empty();
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    let mut net = Net::new(16, Link::PERFECT);
    let (mut idle, _other) = net.connect(false);
    let (mut writing, _other) = net.connect(false);
    let (mut finished, _other) = net.connect(true);
    let (mut gone, _other) = net.connect(true);
    net.link.lost = 1000;
    net.run([task(async {
        write_all(&mut *writing, b"hello").await.unwrap();
        finish(&mut *finished).await.unwrap();
        finish(&mut *gone).await.unwrap();
    })]);
    drop(gone);
    let began = net.now();
    net.run([
        task(async {
            let error = read(&mut *writing, &mut [0; 9]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }),
        task(async {
            let error = read(&mut *finished, &mut [0; 9]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }),
    ]);
    assert_eq!((net.now() - began).as_secs(), 300);
    // Of which nothing is wanted: a minute later.
    assert!(poll(|context| idle.poll_read(context, &mut [0; 9])).is_pending());
    net.run([task(async {
        let error = read(&mut *idle, &mut [0; 9]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    })]);
    // It was heard a moment before.
    assert!((359..=360).contains(&(net.now() - began).as_secs()));
    drop((idle, writing, finished));
    net.pass(Duration::from_secs(400));
    assert_eq!(net.stacks[0].report().connections, 0);
}
