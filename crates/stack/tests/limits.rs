//! What connections may take: their number, and the memory of all.

mod net;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use linerate_sockets::{Sockets, Stream};
use linerate_stack::DropReason;
use net::{Link, Net, Wakes, accept, bytes, exchange, read, task, write_all};

/// The memory that is shared beyond what is set aside: [`Net::with`] is given the sum.
const SHARED: usize = 8 << 20;
/// What is set aside for a connection.
const ASIDE: usize = 36 << 10;

/// A host with these bounds, as both are.
fn bounded(seed: u64, connections: usize) -> Net {
    Net::with(seed, Link::PERFECT, |settings| {
        settings.connections = connections;
        settings.memory = SHARED + connections * ASIDE;
    })
}

type Ends = Vec<Box<dyn Stream>>;

/// So many connections between the two hosts.
fn connect(net: &mut Net, count: usize) -> (Ends, Ends) {
    let mut listener = net.stacks[1].listen("10.0.0.2:80".parse().unwrap()).unwrap();
    let (mut made, mut accepted, stack, to) = (Vec::new(), Vec::new(), net.stacks[0].clone(), listener.local());
    net.run([
        task(async {
            for _ in 0..count {
                made.push(stack.connect(to).await.unwrap());
            }
        }),
        task(async {
            for _ in 0..count {
                accepted.push(accept(&mut *listener).await.unwrap());
            }
        }),
    ]);
    (made, accepted)
}

#[test]
fn one_connection_too_many_is_refused_on_both_sides() {
    let mut net = bounded(1, 50);
    let (made, accepted) = connect(&mut net, 50);
    let listener = net.stacks[0].listen("10.0.0.1:81".parse().unwrap()).unwrap();
    let error = Box::pin(net.stacks[1].connect(listener.local()));
    let mut kinds = Vec::new();
    net.run([task(async { kinds.push(error.await.map(drop).unwrap_err().kind()) })]);
    assert_eq!(kinds, [io::ErrorKind::QuotaExceeded]);
    drop(accepted);
    net.pass(Duration::from_secs(1));
    // The one side has room again, the other one has none: its users were told, and have not let go.
    let mut connecting = net.stacks[1].connect(listener.local());
    assert!(connecting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    net.pass(Duration::from_secs(1));
    assert!(net.stacks[0].report().drops[DropReason::TooManyConnections as usize].1 > 0);
    drop((made, connecting, listener));
    net.assert_empty();
}

#[test]
fn readers_that_do_not_read_leave_memory_below_its_bound_and_writers_waiting() {
    let mut net = bounded(2, 300);
    let (mut made, accepted) = connect(&mut net, 300);
    let (data, mut taken, mut most) = (vec![1; 100_000], vec![0; 300], 0);
    for _ in 0..60 {
        for (stream, taken) in made.iter_mut().zip(&mut taken) {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(Ok(len)) = stream.poll_write(&mut context, &data) {
                *taken += len;
            }
        }
        net.pass(Duration::from_millis(500));
        let used = net.stacks.iter().map(|stack| stack.report().memory).max().unwrap();
        assert!(used <= SHARED, "{used} bytes");
        most = most.max(used);
    }
    // It was a test: the memory was all but used up, and some had to go, while every sender had a window.
    assert!(most > SHARED / 2, "{most} bytes");
    assert!(taken.iter().all(|taken| *taken >= 16 << 10), "{:?}", taken.iter().min());
    drop((made, accepted));
    net.assert_empty();
}

#[test]
fn a_writer_that_memory_does_not_suffice_for_is_woken_when_it_can_write_and_not_before() {
    let mut net = bounded(5, 100);
    let (mut made, mut accepted) = connect(&mut net, 100);
    let wakes: Vec<Arc<Wakes>> = (0..100).map(|_| Arc::default()).collect();
    let (mut waits, mut starved) = (vec![false; 100], 0);
    for _ in 0..20 {
        for (index, stream) in made.iter_mut().enumerate() {
            let waker = Waker::from(wakes[index].clone());
            waits[index] = loop {
                wakes[index].0.store(0, Ordering::Relaxed);
                match stream.poll_write(&mut Context::from_waker(&waker), &[1; 100_000]) {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(_)) => break false,
                    Poll::Pending => break true,
                }
            };
            assert_eq!(wakes[index].0.load(Ordering::Relaxed), 0, "nothing has happened since it began to wait");
        }
        net.pass(Duration::from_millis(500));
        starved += (0..100).filter(|index| waits[*index] && wakes[*index].0.load(Ordering::Relaxed) == 0).count();
    }
    assert!(starved > 0, "memory was used up");
    for _ in 0..100 {
        for stream in &mut accepted {
            let mut buf = vec![0; 100_000];
            while let Poll::Ready(Ok(1..)) = stream.poll_read(&mut Context::from_waker(Waker::noop()), &mut buf) {}
        }
        net.pass(Duration::from_millis(500));
    }
    let woken = |index: &usize| wakes[*index].0.load(Ordering::Relaxed);
    let gets_on = (0..100).filter(|index| waits[*index]).all(|index| woken(&index) == 1);
    assert!(gets_on, "each can write once what it wrote before was read");
    drop((made, accepted));
    net.assert_empty();
}

#[test]
fn who_comes_when_memory_is_used_up_is_served_still() {
    let mut net = bounded(3, 300);
    let (mut made, accepted) = connect(&mut net, 100);
    for _ in 0..60 {
        for stream in &mut made {
            let _ = stream.poll_write(&mut Context::from_waker(Waker::noop()), &[1; 100_000]);
        }
        net.pass(Duration::from_millis(500));
    }
    let (mut a, mut b) = net.connect(true);
    let data = bytes(3, 1_000_000);
    let (mut got_a, mut got_b) = (Vec::new(), Vec::new());
    net.run([
        task(async { got_a = exchange(&mut *a, &data, 50_000).await.unwrap() }),
        task(async { got_b = exchange(&mut *b, &data, 50_000).await.unwrap() }),
    ]);
    assert!(got_a == data && got_b == data);
    drop((made, accepted, a, b));
    net.assert_empty();
}

#[test]
fn ten_thousand_connections_are_served_and_idle_ones_cost_nothing_more() {
    let mut net = Net::with(4, Link::PERFECT, |settings| settings.shards = 2);
    let (mut made, mut accepted) = connect(&mut net, 10_000);
    net.pass(Duration::from_secs(60));
    assert_eq!(net.stacks.each_ref().map(|stack| stack.report().memory), [0, 0]);
    net.run([
        task(async {
            for stream in &mut made {
                write_all(&mut **stream, b"request").await.unwrap();
                assert_eq!(read(&mut **stream, &mut [0; 100]).await.unwrap(), 8);
            }
        }),
        task(async {
            for stream in &mut accepted {
                assert_eq!(read(&mut **stream, &mut [0; 100]).await.unwrap(), 7);
                write_all(&mut **stream, b"response").await.unwrap();
            }
        }),
    ]);
    assert_eq!(net.stacks.each_ref().map(|stack| stack.report().memory), [0, 0], "the floor was enough");
    drop((made, accepted));
    net.assert_empty();
}
