//! What one connection carries over paths of several lengths, with loss, by a clock that jumps: a property of the
//! protocol, not of the machine. And what a processor does of it, by the clock on the wall.
//!
//! ```sh
//! cargo run --release -p linerate-stack --example paths
//! ```

#[path = "../tests/net/mod.rs"]
mod net;

use std::io::IoSlice;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use linerate_netio::tun::{HEADER, Tun};
use net::{Link, Net, read, task, write_all};

/// 1 Gbit/s.
const NANOS_PER_BYTE: u64 = 8;
const LOSSES: [u32; 3] = [0, 1, 10];
const SEEDS: u64 = 3;

fn main() {
    println!("Mbit/s of one connection at 1 Gbit/s, medians of {SEEDS} seeds; 20 s each");
    println!("round trip   no loss     0.1 %       1 %");
    for millis in [1, 20, 50, 100] {
        let carried = LOSSES.map(|lost| {
            let mut carried: Vec<f64> = (0..SEEDS).map(|seed| carry(seed, millis, lost)).collect();
            carried.sort_by(f64::total_cmp);
            carried[carried.len() / 2]
        });
        println!("{millis:>7} ms {:>9.1} {:>9.1} {:>9.1}", carried[0], carried[1], carried[2]);
    }
    for v6 in [false, true] {
        let (one, other) = process(v6);
        println!(
            "from stack to stack on one core, IPv{}: {one:.1} Gbit/s, {other:.0} ns a packet",
            if v6 { 6 } else { 4 }
        );
    }
}

/// Mbit/s of 20 s.
fn carry(seed: u64, round_trip: u64, lost: u32) -> f64 {
    let link =
        Link { delay: Duration::from_micros(round_trip * 500), lost, nanos_per_byte: NANOS_PER_BYTE, ..Link::PERFECT };
    let mut net = Net::new(seed, link);
    let (mut a, mut b) = net.connect(false);
    let (began, clock, mut bytes) = (net.now(), net.clock.clone(), 0);
    let over = || linerate_stack::Environment::now(&clock) - began > Duration::from_secs(20);
    let data = vec![0; 256 << 10];
    net.run([
        task(async {
            while !over() {
                write_all(&mut *a, &data).await.unwrap();
            }
            a.reset();
        }),
        task(async {
            let mut buf = vec![0; 256 << 10];
            while let Ok(len) = read(&mut *b, &mut buf).await {
                bytes += if over() { 0 } else { len };
            }
        }),
    ]);
    bytes as f64 * 8.0 / 20e6
}

/// Gbit/s, and nanoseconds for each packet that was handed over, with nothing between the stacks.
fn process(v6: bool) -> (f64, f64) {
    let mut net = Net::new(1, Link { delay: Duration::ZERO, ..Link::PERFECT });
    let (mut a, mut b) = net.connect(v6);
    let (data, mut into, mut buf) = (vec![1; 256 << 10], vec![0; 256 << 10], vec![0; HEADER + 65_535]);
    let mut context = Context::from_waker(Waker::noop());
    let (began, mut bytes, mut packets) = (Instant::now(), 0, 0);
    while began.elapsed() < Duration::from_secs(3) {
        let _ = a.poll_write(&mut context, &data);
        for host in 0..2 {
            while let Ok(len) = net.tuns[host].read(0, &mut buf) {
                packets += 1;
                net.write(1 - host, &[IoSlice::new(&buf[..len])]);
            }
        }
        while let Poll::Ready(Ok(len)) = b.poll_read(&mut context, &mut into) {
            bytes += len;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    (bytes as f64 * 8.0 / seconds / 1e9, seconds * 1e9 / f64::from(packets))
}
