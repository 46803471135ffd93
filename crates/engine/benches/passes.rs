//! Measures every pass of the engine over a packet, in order: outbound between `read` and `sendmsg`, inbound between
//! `recvmsg` and `write`.
//!
//! `cargo bench -p linerate-engine --bench passes` prints the table; `-- --gso-batches 8` receives that many GSO
//! batches in one call. `docs/data-path.md` compares the figures with the kernel's work.
//!
//! A round carries packets all the way, and each pass finds them where the one before left them, so that caches cost
//! what they cost in the engine; the network is a copy, which is not measured. The buffers have the engine's sizes and
//! distances. Figures are medians of many rounds; up to a tenth of a pass over small packets is the clock's own cost.

use std::env;
use std::hint::black_box;
use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use linerate_aead::{BATCH_MAX, Key, Slot, TAG_LEN, choose};
use linerate_packet::checksum::{self, Sum};
use linerate_packet::gro::{Caps, Merger, PacketRange};
use linerate_packet::gso::Split;
use linerate_packet::virtio::{self, Gso, Header};
use linerate_packet::{TCP, UDP, ip};
use linerate_protocol::{AllowedIps, DATA_HEADER, DataHeader, MessageKind, PeerId, Prefix, ReplayWindow, classify};

/// Bytes from one message to the next in the receive buffer, as in the engine.
const MESSAGE_MAX: usize = 65_536;

/// Bytes of a batch, as in the engine.
const BATCH: usize = 2 * 65_536 + BATCH_MAX * (DATA_HEADER + TAG_LEN);

/// Bytes of payload in a TCP segment that fills a packet of 1420 bytes.
const PAYLOAD: usize = 1368;

const ROUNDS: usize = 401;
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CAPS: Caps = Caps { tcp4: true, tcp6: true, udp: true };

/// A pass, and how often it reads and writes each byte of the packets (0: only headers).
struct Pass(&'static str, u8, u8);

const OUTBOUND: [Pass; 4] = [
    Pass("route: the peer by address", 0, 0),
    // Reads once to copy and once to sum; once to encrypt and once for the tag. The second time the bytes are in the
    // nearest cache.
    Pass("split: copy, then sum", 2, 1),
    Pass("head: counters and headers", 0, 0),
    Pass("seal, in place", 2, 1),
];

const INBOUND: [Pass; 6] = [
    Pass("classify", 0, 0),
    Pass("open, in place", 2, 1),
    Pass("replay", 0, 0),
    Pass("check source IP", 0, 0),
    Pass("merge: verify checksums", 1, 0),
    Pass("gather for writev", 0, 0),
];

fn main() {
    let args: Vec<String> = env::args().collect();
    let value = |flag: &str| args.get(args.iter().position(|arg| arg == flag)? + 1);
    let gso_batches = value("--gso-batches").and_then(|count| count.parse().ok()).unwrap_or(2);
    println!("AEAD: {}; {gso_batches} GSO batches in a receive call", choose::current().name());
    for load in [Workload::tcp_stream(), Workload::small_datagrams()] {
        let mut tunnel = Tunnel::new(gso_batches);
        let mut rounds = [const { Vec::new() }; OUTBOUND.len() + INBOUND.len()];
        // The first round only warms up.
        for round in 0..=ROUNDS {
            let times = tunnel.carry(&load);
            if round > 0 {
                rounds.iter_mut().zip(times).for_each(|(rounds, time)| rounds.push(time));
            }
        }
        let packets = tunnel.opened.len() as f64;
        let ns = rounds.map(|times| median(times).as_nanos() as f64 / packets);
        let (outbound, inbound) = ns.split_at(OUTBOUND.len());
        print_table(&format!("outbound, {}", load.name), load.packet_len, &OUTBOUND, outbound);
        print_table(&format!("inbound, {}", load.name), load.packet_len, &INBOUND, inbound);
    }
    print_parts();
}

fn print_table(title: &str, packet_len: usize, passes: &[Pass], ns: &[f64]) {
    println!("\n{title:44} {:>5} {:>6} {:>9} {:>7} {:>6}", "reads", "writes", "ns/packet", "ns/KB", "share");
    let all: f64 = ns.iter().sum();
    let per_kb = 1000.0 / packet_len as f64;
    for (Pass(name, reads, writes), ns) in passes.iter().zip(ns) {
        let (kb, share) = (ns * per_kb, 100.0 * ns / all);
        println!("{name:44} {reads:>5} {writes:>6} {ns:>9.1} {kb:>7.1} {share:>4.0} %");
    }
    println!("{:44} {:>5} {:>6} {all:>9.1} {:>7.1}", "all", "", "", all * per_kb);
}

/// The cost of the parts of split and merge alone, on data in the second-level cache.
fn print_parts() {
    let text = vec![0x5a; MESSAGE_MAX];
    let mut room = vec![0; MESSAGE_MAX];
    let mut each = |part: &dyn Fn(&[u8], &mut [u8])| {
        let mut round = || {
            for (text, room) in text.chunks(PAYLOAD).zip(room.chunks_mut(PAYLOAD)) {
                part(black_box(text), black_box(room));
            }
        };
        let times = (0..ROUNDS).map(|_| timed(&mut round)).collect();
        median(times).as_nanos() as f64
    };
    let copy = each(&|text, room| room.copy_from_slice(text));
    let sum = each(&|text, _| _ = black_box(checksum::sum(text, Sum::ZERO)));
    let both = each(&|text, room| _ = black_box(checksum::copy_and_sum(text, room, Sum::ZERO)));
    println!("\n{:59} {:>9} {:>7} {:>6}", format!("parts, {PAYLOAD} bytes each"), "ns/packet", "ns/KB", "GB/s");
    for (name, ns) in [("copy", copy), ("sum", sum), ("copy, then sum", both)] {
        let (packet, rate) = (ns * PAYLOAD as f64 / MESSAGE_MAX as f64, MESSAGE_MAX as f64 / ns);
        println!("{name:59} {packet:>9.1} {:>7.1} {rate:>6.1}", 1000.0 / rate);
    }
}

/// What the TUN device's reads give for one GSO batch.
struct Workload {
    name: &'static str,
    /// Bytes of an inner packet.
    packet_len: usize,
    reads: Vec<(Header, Vec<u8>)>,
}

impl Workload {
    /// A TCP stream: GSO packets of one GSO batch each.
    fn tcp_stream() -> Self {
        let mut transport = [0; 32];
        // Sequence numbers that do not wrap, eight words of header (timestamps), ACK.
        transport[12..14].copy_from_slice(&[0x80, 0x10]);
        transport[20..24].copy_from_slice(&[1, 1, 8, 10]);
        let packet = packet(TCP, &transport, 45 * PAYLOAD, 16);
        let header = Header { gso: Gso::TcpV4, gso_size: PAYLOAD as u16, csum_offset: 16, ..needs_checksum() };
        Self { name: "TCP, 45 packets of 1420 bytes a GSO batch", packet_len: 1420, reads: vec![(header, packet)] }
    }

    /// Datagrams that come one by one.
    fn small_datagrams() -> Self {
        let transport = [0x12, 0x34, 0x56, 0x78, 0, 72, 0, 0];
        let packet = packet(UDP, &transport, 64, 6);
        let header = Header { csum_offset: 6, ..needs_checksum() };
        Self { name: "UDP, 64 packets of 92 bytes a GSO batch", packet_len: 92, reads: vec![(header, packet); 64] }
    }
}

/// A virtio header as the host's stack writes it for IPv4, with the checksum left to the device.
fn needs_checksum() -> Header {
    Header { flags: virtio::NEEDS_CSUM, csum_start: 20, ..Header::default() }
}

/// An IPv4 packet whose transport checksum is left to the device.
fn packet(protocol: u8, transport: &[u8], payload: usize, checksum_at: usize) -> Vec<u8> {
    let total = 20 + transport.len() + payload;
    let mut packet = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 7, 0x40, 0, 64, protocol, 0, 0];
    packet.extend(SOURCE.octets());
    packet.extend(DESTINATION.octets());
    let sum = checksum::sum(&packet, Sum::ZERO).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(transport);
    packet.extend((0..payload).map(|i| (i * 7 + i / 251) as u8));
    let pseudo = checksum::pseudo_header(&packet[12..20], protocol, total - 20).fold();
    packet[20 + checksum_at..][..2].copy_from_slice(&pseudo.to_be_bytes());
    packet
}

/// Both ends of a tunnel, and their state between rounds.
struct Tunnel {
    gso_batches: usize,
    sealing: Key,
    opening: Key,
    allowed: AllowedIps,
    window: ReplayWindow,
    merger: Box<Merger>,
    counter: u64,
    /// The batch to seal, and its slots.
    batch: Vec<u8>,
    slots: Vec<Slot>,
    /// The receive buffer, and offset and length of each datagram.
    received: Vec<u8>,
    datagrams: Vec<(usize, usize)>,
    opened: Vec<Slot>,
    packets: Vec<PacketRange>,
}

impl Tunnel {
    fn new(gso_batches: usize) -> Self {
        let key = b"for measuring only, never to use";
        let mut allowed = AllowedIps::new();
        for (i, addr) in [SOURCE, DESTINATION].into_iter().enumerate() {
            let prefix = Prefix::new(addr.into(), 32).expect("an IPv4 prefix ends at 32");
            allowed.insert(prefix, PeerId(i as u32));
        }
        Self {
            gso_batches,
            sealing: Key::new(key),
            opening: Key::new(key),
            allowed,
            window: ReplayWindow::default(),
            merger: Box::default(),
            counter: 0,
            batch: vec![0; BATCH],
            slots: Vec::new(),
            received: vec![0; gso_batches * MESSAGE_MAX],
            datagrams: Vec::new(),
            opened: Vec::new(),
            packets: Vec::new(),
        }
    }

    /// Carries the GSO batches of one receive call from end to end; returns the time of each pass.
    fn carry(&mut self, load: &Workload) -> [Duration; OUTBOUND.len() + INBOUND.len()] {
        self.datagrams.clear();
        let mut outbound = [Duration::ZERO; OUTBOUND.len()];
        for index in 0..self.gso_batches {
            let times = self.send(load);
            outbound.iter_mut().zip(times).for_each(|(all, time)| *all += time);
            self.cross(index);
        }
        let inbound = self.receive();
        let mut all = [outbound[0]; OUTBOUND.len() + INBOUND.len()];
        all[..OUTBOUND.len()].copy_from_slice(&outbound);
        all[OUTBOUND.len()..].copy_from_slice(&inbound);
        all
    }

    fn send(&mut self, load: &Workload) -> [Duration; OUTBOUND.len()] {
        let Self { allowed, batch, slots, counter, sealing, .. } = self;
        slots.clear();
        let route = timed(|| {
            for (_, packet) in &load.reads {
                let inner = ip::parse(packet).expect("the packet is well-formed");
                black_box(allowed.lookup(inner.destination));
            }
        });
        let split = timed(|| {
            let mut end = 0;
            for (header, packet) in &load.reads {
                let split = Split::new(header, packet).expect("the packet is well-formed");
                for segment in 0..split.count() {
                    let (offset, len) = (end + DATA_HEADER, split.len(segment));
                    let padded = len.next_multiple_of(16).min(1420);
                    let (room, padding) = batch[offset..offset + padded].split_at_mut(len);
                    split.write(segment, room);
                    padding.fill(0);
                    slots.push(Slot { offset, len: padded, counter: 0 });
                    end = offset + padded + TAG_LEN;
                }
            }
        });
        let head = timed(|| {
            for slot in &mut *slots {
                slot.counter = *counter;
                *counter += 1;
                let header = DataHeader { receiver: 7, counter: slot.counter };
                header.encode(&mut batch[slot.offset - DATA_HEADER..]);
            }
        });
        let seal = timed(|| sealing.seal(batch, slots));
        [route, split, head, seal]
    }

    /// The network: copies what was sent to the receive buffer.
    fn cross(&mut self, index: usize) {
        let base = index * MESSAGE_MAX;
        let end = self.slots.last().map_or(0, |slot| slot.offset + slot.len + TAG_LEN);
        self.received[base..base + end].copy_from_slice(&self.batch[..end]);
        let whole = |slot: &Slot| (base + slot.offset - DATA_HEADER, slot.len + DATA_HEADER + TAG_LEN);
        self.datagrams.extend(self.slots.iter().map(whole));
    }

    fn receive(&mut self) -> [Duration; INBOUND.len()] {
        self.opened.clear();
        let mut times = [Duration::ZERO; INBOUND.len()];
        times[0] = timed(|| {
            for &(offset, len) in &self.datagrams {
                let datagram = &self.received[offset..offset + len];
                assert!(matches!(classify(datagram), Ok(MessageKind::Data)));
                let counter = DataHeader::decode(datagram).counter;
                let slot = Slot { offset: offset + DATA_HEADER, len: len - DATA_HEADER - TAG_LEN, counter };
                self.opened.push(slot);
            }
        });
        for run in 0..self.opened.len().div_ceil(BATCH_MAX) {
            let passes = self.receive_run(run * BATCH_MAX);
            times[1..].iter_mut().zip(passes).for_each(|(all, time)| *all += time);
        }
        times
    }

    fn receive_run(&mut self, first: usize) -> [Duration; INBOUND.len() - 1] {
        let Self { opened, received, opening, window, allowed, packets, merger, .. } = self;
        let run = &opened[first..opened.len().min(first + BATCH_MAX)];
        packets.clear();
        let open = timed(|| assert_eq!(opening.open(received, run).count(), run.len()));
        let replay = timed(|| assert!(run.iter().all(|slot| window.accept(slot.counter))));
        let check_source_ip = timed(|| {
            for slot in run {
                let inner = ip::parse(&received[slot.offset..][..slot.len]).expect("the packet is well-formed");
                assert_eq!(allowed.lookup(inner.source), Some(PeerId(0)));
                packets.push(PacketRange { offset: slot.offset, len: inner.total_len });
            }
        });
        let merge = timed(|| merger.plan(received, packets, CAPS));
        let gather = timed(|| {
            for group in merger.groups() {
                let mut pieces = [IoSlice::new(&[]); 1 + BATCH_MAX];
                pieces[0] = IoSlice::new(&group.header);
                pieces[1] = IoSlice::new(&received[group.first.clone()]);
                for (piece, payload) in pieces[2..].iter_mut().zip(group.payloads()) {
                    *piece = IoSlice::new(&received[payload]);
                }
                black_box(&pieces);
            }
        });
        [open, replay, check_source_ip, merge, gather]
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
