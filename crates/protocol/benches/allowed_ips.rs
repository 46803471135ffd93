//! Prints the time of lookups and changes of the allowed IPs, by kind and number of prefixes.
//!
//! `cargo bench -p linerate-protocol` prints the table; `-- --quick` leaves out the largest sizes.
//!
//! `hot` looks up few addresses; `cold` and `chained` look up addresses spread over the whole table, so that
//! a large one is read from memory. Consecutive `cold` lookups may overlap, as for packets of many peers in
//! one batch; `chained` ones may not. As machines are noisy, the figure of a lookup is the median of
//! [`ROUNDS`]; that of a change is the mean of up to [`CHANGES`], and `worst` is the longest of them. `bytes`
//! is the memory per prefix that the process got from the system.

use std::env;
use std::fs;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fastrand::Rng;
use linerate_protocol::{AllowedIps, PeerId, Prefix};

const SIZES: [usize; 5] = [1, 100, 10_000, 100_000, 1_000_000];
const ROUNDS: usize = 9;

/// Lookups in a round.
const LOOKUPS: usize = 1 << 20;

/// Addresses that stay in any cache.
const HOT: usize = 64;

/// Prefixes removed and inserted again at most.
const CHANGES: usize = 20_000;

/// How prefixes are drawn.
struct Draw {
    name: &'static str,
    draw: fn(&mut Rng) -> Prefix,
}

impl Draw {
    /// The same prefixes in every run.
    fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        let mut random = Rng::with_seed(1);
        std::iter::repeat_with(move || (self.draw)(&mut random))
    }
}

const KINDS: [Draw; 5] = [
    Draw { name: "10.0.0.0/8, /32", draw: |random| v4(10 << 24 | random.u64(..1 << 21) as u32, 32) },
    Draw { name: "IPv4, /32", draw: |random| v4(random.u32(..), 32) },
    Draw { name: "IPv4, /16-/32", draw: |random| v4(random.u32(..), 16 + random.u64(..17)) },
    Draw { name: "fd00::/64, /128", draw: |random| v6(0xfd00 << 112 | u128::from(random.u64(..)), 128) },
    Draw { name: "IPv6, /48-/64", draw: |random| v6(registered(random), 48 + random.u64(..17)) },
];

fn main() {
    let quick = env::args().any(|arg| arg == "--quick");
    println!(
        "{:16} {:>8} {:>7} {:>7} {:>7}   {:>6} {:>6} {:>7} {:>6}",
        "", "", "ns per", "look-up", "", "ns per", "change", "", ""
    );
    println!(
        "{:16} {:>8} {:>7} {:>7} {:>7}   {:>6} {:>6} {:>7} {:>6}",
        "prefixes", "number", "hot", "cold", "chained", "remove", "insert", "worst", "bytes"
    );
    let sizes = SIZES.into_iter().filter(|&size| !quick || size <= 10_000);
    let rows = KINDS.iter().flat_map(|kind| sizes.clone().map(move |size| (kind, size)));
    // All tables are built before any is measured, so that none reuses the memory of another.
    let tables: Vec<_> = rows.map(|(kind, size)| (kind, size, fill(kind, size))).collect();
    for (kind, size, (table, bytes)) in tables {
        print_row(kind, size, table, bytes);
    }
}

/// The table of a row, each prefix with its own peer, and the bytes that it takes.
fn fill(kind: &Draw, size: usize) -> (AllowedIps, usize) {
    let before = resident();
    let mut table = AllowedIps::new();
    for (prefix, peer) in kind.prefixes().take(size).zip(0..) {
        table.insert(prefix, PeerId(peer));
    }
    (table, resident().saturating_sub(before))
}

fn print_row(kind: &Draw, size: usize, mut table: AllowedIps, bytes: usize) {
    let prefixes: Vec<Prefix> = kind.prefixes().take(size).collect();
    let random = &mut Rng::with_seed(1);
    let cold: Vec<IpAddr> = (0..LOOKUPS).map(|_| host(prefixes[random.u64(..size as u64) as usize], random)).collect();
    let hot: Vec<IpAddr> = cold[..HOT].repeat(LOOKUPS / HOT);
    let per_lookup = |work: &dyn Fn()| median(|| timed(work)).as_nanos() as f64 / LOOKUPS as f64;
    let hot = per_lookup(&|| independent(&table, &hot));
    let independent = per_lookup(&|| independent(&table, &cold));
    let chained = per_lookup(&|| chained(&table, &cold));
    let (remove, insert, worst) = change(&mut table, &prefixes);
    // The memory of a few prefixes is less than a page.
    let bytes = if size < 10_000 { "-".into() } else { (bytes / size).to_string() };
    println!(
        "{:16} {size:>8} {hot:>7.1} {independent:>7.1} {chained:>7.1}   {remove:>6} {insert:>6} {worst:>7} {bytes:>6}",
        kind.name
    );
}

fn independent(table: &AllowedIps, addrs: &[IpAddr]) {
    for &addr in addrs {
        black_box(table.lookup(addr));
    }
}

fn chained(table: &AllowedIps, addrs: &[IpAddr]) {
    let mut at = 0;
    for _ in 0..addrs.len() {
        let peer = table.lookup(addrs[at]).expect("the address is in a prefix");
        at = (at + 1 + (peer.0 & 1) as usize) % addrs.len();
    }
    black_box(at);
}

/// Nanoseconds of removing one prefix, of inserting it again, and of the longest change.
fn change(table: &mut AllowedIps, prefixes: &[Prefix]) -> (u128, u128, u128) {
    let step = prefixes.len().div_ceil(CHANGES);
    let (mut remove, mut insert) = (Vec::new(), Vec::new());
    for (&prefix, peer) in prefixes.iter().zip(0..).step_by(step) {
        let mut removed = false;
        let time = timed(|| removed = table.remove(prefix, PeerId(peer)));
        // Another peer may have the same prefix.
        if removed {
            remove.push(time);
            insert.push(timed(|| _ = black_box(table.insert(prefix, PeerId(peer)))));
        }
    }
    let mean = |times: &[Duration]| times.iter().sum::<Duration>().as_nanos() / times.len() as u128;
    let worst = remove.iter().chain(&insert).max().map_or(0, Duration::as_nanos);
    (mean(&remove), mean(&insert), worst)
}

fn median(mut measure: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| measure()).collect();
    times.sort_unstable();
    times[ROUNDS / 2]
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn v4(bits: u32, cidr: u64) -> Prefix {
    Prefix::new(IpAddr::from(bits.to_be_bytes()), cidr as u8).expect("the length fits")
}

fn v6(bits: u128, cidr: u64) -> Prefix {
    Prefix::new(IpAddr::from(bits.to_be_bytes()), cidr as u8).expect("the length fits")
}

/// An address of one of 4096 providers with a /32 each.
fn registered(random: &mut Rng) -> u128 {
    let provider = 0x2a00_0000 | random.u64(..4096) << 8;
    u128::from(provider) << 96 | u128::from(random.u64(..)) << 32
}

/// Any address of the prefix.
fn host(prefix: Prefix, random: &mut Rng) -> IpAddr {
    let any = u128::from(random.u64(..)) << 64 | u128::from(random.u64(..));
    match prefix.addr() {
        IpAddr::V4(ip) => {
            let host = u32::MAX.checked_shr(prefix.cidr().into()).unwrap_or(0);
            IpAddr::from((ip.to_bits() | any as u32 & host).to_be_bytes())
        }
        IpAddr::V6(ip) => {
            let host = u128::MAX.checked_shr(prefix.cidr().into()).unwrap_or(0);
            IpAddr::from((ip.to_bits() | any & host).to_be_bytes())
        }
    }
}

/// Bytes that the process got from the system; 0 if unknown.
fn resident() -> usize {
    const PAGE: usize = 4096;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0) * PAGE
}
