//! Two stacks on a link in memory, with a clock that jumps: what the tests of this folder run on.
//!
//! The link does what engines do on both sides: it splits what stands for several segments, and merges what it
//! delivers. It loses, duplicates, delays and reorders packets. Tasks are polled only when they are woken.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use linerate_netio::tun::{HEADER, Tun};
use linerate_packet::gro::{Caps, Merger, PacketRange};
use linerate_packet::gso::Split;
use linerate_packet::virtio::{Gso, Header};
use linerate_sockets::{Datagrams, Listener, Sockets, Stream};
use linerate_stack::{Environment, Settings, Stack, StackTun};

/// A test that takes longer, by the clock that jumps, is stuck.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// The addresses of the two hosts.
pub const ADDRESSES: [[&str; 2]; 2] = [["10.0.0.1", "fd00::1"], ["10.0.0.2", "fd00::2"]];

/// A clock that the test moves, and random numbers of a seed.
#[derive(Clone)]
pub struct Simulated {
    nanos: Arc<AtomicU64>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl Environment for Simulated {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.random.lock().unwrap().fill(bytes);
    }
}

/// What the link does to packets.
#[derive(Clone, Debug)]
pub struct Link {
    pub delay: Duration,
    /// Up to so much more, for each packet by chance.
    pub jitter: Duration,
    /// How many of a thousand.
    pub lost: u32,
    pub doubled: u32,
    /// Whether neighbours are merged when they are delivered.
    pub merged: bool,
    /// Nanoseconds that a byte takes. Packets wait for 100 ms at most, and are lost otherwise.
    pub nanos_per_byte: u64,
}

impl Link {
    pub const PERFECT: Link = Link {
        delay: Duration::from_millis(5),
        jitter: Duration::ZERO,
        lost: 0,
        doubled: 0,
        merged: true,
        nanos_per_byte: 0,
    };
}

/// How often somebody was woken.
#[derive(Default)]
pub struct Wakes(pub AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Task<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    woken: Arc<Flag>,
}

/// Is given who sent a packet, and the packet.
pub type Watch = dyn FnMut(usize, &[u8]);

/// Two hosts and what is between them.
pub struct Net {
    pub stacks: [Stack; 2],
    pub tuns: [StackTun; 2],
    pub link: Link,
    pub clock: Simulated,
    /// By the time of their arrival.
    wires: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    busy_until: [u64; 2],
    sent: u64,
    /// Packets that were put on the link, by who sent them.
    pub packets: [u64; 2],
    random: fastrand::Rng,
    drivers: [Arc<Flag>; 2],
    deadlines: [Option<Duration>; 2],
    /// Sees every packet on the link.
    pub watch: Option<Box<Watch>>,
}

impl Net {
    pub fn new(seed: u64, link: Link) -> Self {
        Self::with(seed, link, |_| {})
    }

    pub fn with(seed: u64, link: Link, change: impl Fn(&mut Settings)) -> Self {
        let clock = Simulated {
            nanos: Arc::new(AtomicU64::new(1_000_000_000)),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
        };
        let stacks = ADDRESSES.map(|addresses| {
            let mut settings = Settings::new(addresses.map(|address| address.parse::<IpAddr>().unwrap()).into(), 1420);
            change(&mut settings);
            Stack::new(&settings, Box::new(clock.clone())).unwrap()
        });
        Self {
            tuns: [0, 1].map(|host| stacks[host].tun()),
            stacks,
            link,
            clock,
            wires: BTreeMap::new(),
            busy_until: [0; 2],
            sent: 0,
            packets: [0; 2],
            random: fastrand::Rng::with_seed(seed),
            drivers: [0; 2].map(|_| Arc::new(Flag(AtomicBool::new(true)))),
            deadlines: [None; 2],
            watch: None,
        }
    }

    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Runs until all tasks are done.
    pub fn run<'a>(&mut self, tasks: impl IntoIterator<Item = Pin<Box<dyn Future<Output = ()> + 'a>>>) {
        let woken = || Arc::new(Flag(AtomicBool::new(true)));
        let mut tasks: Vec<Task<'a>> = tasks.into_iter().map(|future| Task { future, woken: woken() }).collect();
        let began = self.now();
        loop {
            let mut polled = false;
            tasks.retain_mut(|task| {
                if !task.woken.0.swap(false, Ordering::SeqCst) {
                    return true;
                }
                polled = true;
                let waker = Waker::from(task.woken.clone());
                task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            });
            if tasks.is_empty() {
                return;
            }
            if !polled && !self.step() {
                panic!("{} tasks wait, and nothing will happen", tasks.len());
            }
            assert!(self.now() - began < LONGEST, "{} tasks do not end", tasks.len());
        }
    }

    /// Lets this much time pass.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now() + time;
        while self.next().is_some_and(|next| next <= until) {
            self.step();
        }
        self.clock.nanos.store(until.as_nanos() as u64, Ordering::Relaxed);
    }

    /// When something happens next: at once, if there is something to read.
    fn next(&mut self) -> Option<Duration> {
        self.send();
        self.ask_drivers();
        let arrival = self.wires.first_key_value().map(|((at, _), _)| Duration::from_nanos(*at));
        arrival.into_iter().chain(self.deadlines.into_iter().flatten()).min()
    }

    /// Goes on to what happens next; false if nothing does.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        let now = self.now().max(next);
        self.clock.nanos.store(now.as_nanos() as u64, Ordering::Relaxed);
        self.deliver(now);
        for host in 0..2 {
            if self.deadlines[host].is_some_and(|deadline| deadline <= now) {
                self.stacks[host].expire();
                self.drivers[host].0.store(true, Ordering::SeqCst);
            }
        }
        self.send();
        true
    }

    fn ask_drivers(&mut self) {
        for host in 0..2 {
            if self.drivers[host].0.swap(false, Ordering::SeqCst) {
                let waker = Waker::from(self.drivers[host].clone());
                self.deadlines[host] = self.stacks[host].poll_deadline(&mut Context::from_waker(&waker));
            }
        }
    }

    /// Puts all that the stacks have to send on the link.
    fn send(&mut self) {
        let mut buf = vec![0; HEADER + 65_535];
        for host in 0..2 {
            for queue in 0..self.tuns[host].queues() {
                while let Ok(len) = self.tuns[host].read(queue, &mut buf) {
                    let (header, packet) = buf[..len].split_first_chunk::<HEADER>().unwrap();
                    let split = Split::new(&Header::decode(header).unwrap(), packet).expect("a valid packet");
                    for index in 0..split.count() {
                        let mut segment = vec![0; split.len(index)];
                        split.write(index, &mut segment);
                        self.put(host, segment);
                    }
                }
            }
        }
    }

    fn put(&mut self, host: usize, packet: Vec<u8>) {
        assert!(packet.len() <= 1420, "a packet of {} bytes", packet.len());
        self.packets[host] += 1;
        if let Some(watch) = &mut self.watch {
            watch(host, &packet);
        }
        let now = self.now().as_nanos() as u64;
        let begins = self.busy_until[host].max(now);
        if begins - now > 100_000_000 {
            return;
        }
        self.busy_until[host] = begins + packet.len() as u64 * self.link.nanos_per_byte;
        if self.random.u32(0..1000) < self.link.lost {
            return;
        }
        let copies = 1 + usize::from(self.random.u32(0..1000) < self.link.doubled);
        for _ in 0..copies {
            let jitter = self.random.u64(0..=self.link.jitter.as_nanos() as u64);
            let at = self.busy_until[host] + self.link.delay.as_nanos() as u64 + jitter;
            self.sent += 1;
            self.wires.insert((at, self.sent), (1 - host, packet.clone()));
        }
    }

    /// Delivers what arrives until `now`, in batches as an engine would.
    fn deliver(&mut self, now: Duration) {
        let later = self.wires.split_off(&(now.as_nanos() as u64 + 1, 0));
        let arrived = std::mem::replace(&mut self.wires, later);
        for host in 0..2 {
            let packets: Vec<&Vec<u8>> =
                arrived.values().filter(|(to, _)| *to == host).map(|(_, packet)| packet).collect();
            for batch in packets.chunks(64) {
                if self.link.merged { self.write_merged(host, batch) } else { self.write_singly(host, batch) }
            }
        }
    }

    fn write_singly(&self, host: usize, batch: &[&Vec<u8>]) {
        for packet in batch {
            self.write(host, &[IoSlice::new(&[0; HEADER]), IoSlice::new(packet)]);
        }
    }

    fn write_merged(&self, host: usize, batch: &[&Vec<u8>]) {
        let mut buf = Vec::new();
        let ranges: Vec<PacketRange> = batch
            .iter()
            .map(|packet| {
                buf.extend_from_slice(packet);
                PacketRange { offset: buf.len() - packet.len(), len: packet.len() }
            })
            .collect();
        let mut merger = Merger::new();
        merger.plan(&mut buf, &ranges, Caps { tcp4: true, tcp6: true, udp: false });
        for group in merger.groups() {
            let ranges = std::iter::once(group.first.clone()).chain(group.payloads());
            let mut pieces = vec![IoSlice::new(&group.header)];
            pieces.extend(ranges.map(|range| IoSlice::new(&buf[range])));
            self.write(host, &pieces);
        }
    }

    pub fn write(&self, host: usize, pieces: &[IoSlice<'_>]) {
        self.tuns[host].write(0, pieces).expect("the stack takes everything");
    }

    pub fn address(&self, host: usize, v6: bool) -> IpAddr {
        ADDRESSES[host][usize::from(v6)].parse().unwrap()
    }

    /// A connected pair: the one that was made by host 0, and the one that was accepted by host 1.
    pub fn connect(&mut self, v6: bool) -> (Box<dyn Stream>, Box<dyn Stream>) {
        let mut listener = self.stacks[1].listen(SocketAddr::new(self.address(1, v6), 0)).unwrap();
        let (mut made, mut accepted) = (None, None);
        let (stack, to) = (self.stacks[0].clone(), listener.local());
        self.run([
            task(async { made = Some(stack.connect(to).await.unwrap()) }),
            task(async { accepted = Some(accept(&mut *listener).await.unwrap()) }),
        ]);
        (made.unwrap(), accepted.unwrap())
    }

    /// Whether the stacks hold nothing, after the time for which the ends of connections are remembered.
    pub fn assert_empty(&mut self) {
        self.pass(Duration::from_secs(400));
        for stack in &self.stacks {
            let report = stack.report();
            assert_eq!((report.connections, report.memory), (0, 0), "{report:?}");
        }
        assert!(self.next().is_none(), "something is still to be done");
    }
}

/// A part of a test that runs beside others.
pub fn task<'a>(future: impl Future<Output = ()> + 'a) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(future)
}

pub async fn accept(listener: &mut dyn Listener) -> io::Result<Box<dyn Stream>> {
    poll_fn(|context| listener.poll_accept(context)).await
}

pub async fn read(stream: &mut dyn Stream, into: &mut [u8]) -> io::Result<usize> {
    poll_fn(|context| stream.poll_read(context, into)).await
}

pub async fn read_to_end(stream: &mut dyn Stream) -> io::Result<Vec<u8>> {
    let (mut all, mut buf) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match read(stream, &mut buf).await? {
            0 => return Ok(all),
            len => all.extend_from_slice(&buf[..len]),
        }
    }
}

pub async fn write_all(stream: &mut dyn Stream, mut from: &[u8]) -> io::Result<()> {
    while !from.is_empty() {
        let len = poll_fn(|context| stream.poll_write(context, from)).await?;
        from = &from[len..];
    }
    Ok(())
}

pub async fn finish(stream: &mut dyn Stream) -> io::Result<()> {
    poll_fn(|context| stream.poll_finish(context)).await
}

pub async fn receive(socket: &mut dyn Datagrams) -> io::Result<(Vec<u8>, SocketAddr)> {
    let mut buf = vec![0; 65_535];
    let (len, from) = poll_fn(|context| socket.poll_receive(context, &mut buf)).await?;
    buf.truncate(len);
    Ok((buf, from))
}

pub async fn send(socket: &mut dyn Datagrams, from: &[u8], to: SocketAddr) -> io::Result<()> {
    poll_fn(|context| socket.poll_send(context, from, to)).await
}

/// Reads and writes at the same time, on one stream.
pub async fn exchange(stream: &mut dyn Stream, data: &[u8], chunk: usize) -> io::Result<Vec<u8>> {
    let (mut sent, mut finished, mut ended) = (0, false, false);
    let (mut all, mut buf) = (Vec::new(), vec![0; chunk]);
    poll_fn(|context| {
        loop {
            let mut progress = false;
            if sent < data.len() {
                let end = data.len().min(sent + chunk);
                if let Poll::Ready(len) = stream.poll_write(context, &data[sent..end])? {
                    sent += len;
                    progress = true;
                }
            } else if !finished {
                finished = stream.poll_finish(context)?.is_ready();
                progress = true;
            }
            if !ended && let Poll::Ready(len) = stream.poll_read(context, &mut buf)? {
                all.extend_from_slice(&buf[..len]);
                ended = len == 0;
                progress = true;
            }
            if finished && ended {
                return Poll::Ready(Ok(()));
            }
            if !progress {
                return Poll::Pending;
            }
        }
    })
    .await
    .map(|()| all)
}

/// Bytes that differ from their neighbours and from those of other seeds.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// The kind of header that asks for nothing.
pub fn is_single(header: &[u8; HEADER]) -> bool {
    Header::decode(header).is_ok_and(|header| header.gso == Gso::None)
}
