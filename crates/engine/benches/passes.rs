//! One table: every pass of the engine over a packet, in the order in which the packet meets them,
//! outbound between `read` and `sendmsg`, inbound between `recvmsg` and `write`.
//!
//! `cargo bench -p linerate-engine --bench passes` prints it; `-- --trains 8` receives so many
//! trains in one call. `docs/data-path.md` sets the figures beside what the kernel does.
//!
//! A turn carries packets all the way, and each pass finds them where the one before left them, so
//! that a pass pays for the caches as it does in the engine; the network is a copy, which is not
//! measured. The buffers are as large as the engine's and lie as far apart. Figures are medians of
//! many turns, and a pass over small packets holds up to a tenth of the clock's own cost.

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

/// As in the engine: bytes from one message to the next in the receive buffer.
const MESSAGE_MAX: usize = 65_536;

/// As in the engine: what is gathered before it is sealed.
const BATCH: usize = 2 * 65_536 + BATCH_MAX * (DATA_HEADER + TAG_LEN);

/// Bytes of payload in a TCP segment that fills a packet of 1420 bytes.
const PAYLOAD: usize = 1368;

const TURNS: usize = 401;
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CAPS: Caps = Caps { tcp4: true, tcp6: true, udp: true };

/// A pass, and how often it reads and writes each byte of the packets (0: headers alone).
struct Pass(&'static str, u8, u8);

const OUTBOUND: [Pass; 4] = [
    Pass("route: the peer by address", 0, 0),
    // Once to copy, once more to sum; to encrypt, and once more for the tag. Each second time the
    // bytes are in the nearest cache.
    Pass("split: copy, then sum", 2, 1),
    Pass("head: counters and headers", 0, 0),
    Pass("seal, in place", 2, 1),
];

const INBOUND: [Pass; 6] = [
    Pass("classify", 0, 0),
    Pass("open, in place", 2, 1),
    Pass("replay", 0, 0),
    Pass("admit", 0, 0),
    Pass("merge: verify checksums", 1, 0),
    Pass("gather for writev", 0, 0),
];

fn main() {
    let args: Vec<String> = env::args().collect();
    let value = |flag: &str| args.get(args.iter().position(|arg| arg == flag)? + 1);
    let trains = value("--trains").and_then(|trains| trains.parse().ok()).unwrap_or(2);
    println!("AEAD: {}; {trains} trains in a receive call", choose::current().name());
    for load in [Load::tcp_stream(), Load::small_datagrams()] {
        let mut tunnel = Tunnel::new(trains);
        let mut turns = [const { Vec::new() }; OUTBOUND.len() + INBOUND.len()];
        // The first turn only warms up.
        for turn in 0..=TURNS {
            let times = tunnel.carry(&load);
            if turn > 0 {
                turns.iter_mut().zip(times).for_each(|(turns, time)| turns.push(time));
            }
        }
        let packets = tunnel.opened.len() as f64;
        let ns = turns.map(|times| median(times).as_nanos() as f64 / packets);
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

/// What the parts of split and merge cost alone, on text in the second-level cache.
fn print_parts() {
    let text = vec![0x5a; MESSAGE_MAX];
    let mut room = vec![0; MESSAGE_MAX];
    let mut each = |part: &dyn Fn(&[u8], &mut [u8])| {
        let mut turn = || {
            for (text, room) in text.chunks(PAYLOAD).zip(room.chunks_mut(PAYLOAD)) {
                part(black_box(text), black_box(room));
            }
        };
        let times = (0..TURNS).map(|_| timed(&mut turn)).collect();
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

/// What is carried in one turn: what the TUN device's reads give for one train.
struct Load {
    name: &'static str,
    /// Bytes of an inner packet.
    packet_len: usize,
    reads: Vec<(Header, Vec<u8>)>,
}

impl Load {
    /// A TCP stream: super-packets of one train each.
    fn tcp_stream() -> Self {
        let mut transport = [0; 32];
        // Sequence numbers that no segment wraps, eight words of header (timestamps), ACK.
        transport[12..14].copy_from_slice(&[0x80, 0x10]);
        transport[20..24].copy_from_slice(&[1, 1, 8, 10]);
        let packet = packet(TCP, &transport, 45 * PAYLOAD, 16);
        let header = Header { gso: Gso::TcpV4, gso_size: PAYLOAD as u16, csum_offset: 16, ..owing() };
        Self { name: "TCP, 45 packets of 1420 bytes a train", packet_len: 1420, reads: vec![(header, packet)] }
    }

    /// Datagrams that come one by one.
    fn small_datagrams() -> Self {
        let transport = [0x12, 0x34, 0x56, 0x78, 0, 72, 0, 0];
        let packet = packet(UDP, &transport, 64, 6);
        let header = Header { csum_offset: 6, ..owing() };
        Self { name: "UDP, 64 packets of 92 bytes a train", packet_len: 92, reads: vec![(header, packet); 64] }
    }
}

/// A virtio header as the host's stack writes it for IPv4: the checksum is still owed.
fn owing() -> Header {
    Header { flags: virtio::NEEDS_CSUM, csum_start: 20, ..Header::default() }
}

/// An IPv4 packet whose transport checksum is still owed.
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

/// Both ends of a tunnel, and what they keep from turn to turn.
struct Tunnel {
    trains: usize,
    sealing: Key,
    opening: Key,
    allowed: AllowedIps,
    window: ReplayWindow,
    merger: Box<Merger>,
    counter: u64,
    /// What is sealed, and what lies in it.
    batch: Vec<u8>,
    slots: Vec<Slot>,
    /// What was received: bytes, and where the datagrams begin and end.
    arrivals: Vec<u8>,
    datagrams: Vec<(usize, usize)>,
    opened: Vec<Slot>,
    packets: Vec<PacketRange>,
}

impl Tunnel {
    fn new(trains: usize) -> Self {
        let key = b"for measuring only, never to use";
        let mut allowed = AllowedIps::new();
        for (i, addr) in [SOURCE, DESTINATION].into_iter().enumerate() {
            let prefix = Prefix::new(addr.into(), 32).expect("an IPv4 prefix ends at 32");
            allowed.insert(prefix, PeerId(i as u32));
        }
        Self {
            trains,
            sealing: Key::new(key),
            opening: Key::new(key),
            allowed,
            window: ReplayWindow::default(),
            merger: Box::default(),
            counter: 0,
            batch: vec![0; BATCH],
            slots: Vec::new(),
            arrivals: vec![0; trains * MESSAGE_MAX],
            datagrams: Vec::new(),
            opened: Vec::new(),
            packets: Vec::new(),
        }
    }

    /// Carries a receive call's trains from one end to the other; answers what each pass took.
    fn carry(&mut self, load: &Load) -> [Duration; OUTBOUND.len() + INBOUND.len()] {
        self.datagrams.clear();
        let mut outbound = [Duration::ZERO; OUTBOUND.len()];
        for train in 0..self.trains {
            let times = self.send(load);
            outbound.iter_mut().zip(times).for_each(|(all, time)| *all += time);
            self.cross(train);
        }
        let inbound = self.receive();
        let mut all = [outbound[0]; OUTBOUND.len() + INBOUND.len()];
        all[..OUTBOUND.len()].copy_from_slice(&outbound);
        all[OUTBOUND.len()..].copy_from_slice(&inbound);
        all
    }

    fn send(&mut self, load: &Load) -> [Duration; OUTBOUND.len()] {
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

    /// The network: what was sent lies in the receive buffer.
    fn cross(&mut self, train: usize) {
        let base = train * MESSAGE_MAX;
        let end = self.slots.last().map_or(0, |slot| slot.offset + slot.len + TAG_LEN);
        self.arrivals[base..base + end].copy_from_slice(&self.batch[..end]);
        let whole = |slot: &Slot| (base + slot.offset - DATA_HEADER, slot.len + DATA_HEADER + TAG_LEN);
        self.datagrams.extend(self.slots.iter().map(whole));
    }

    fn receive(&mut self) -> [Duration; INBOUND.len()] {
        self.opened.clear();
        let mut times = [Duration::ZERO; INBOUND.len()];
        times[0] = timed(|| {
            for &(offset, len) in &self.datagrams {
                let datagram = &self.arrivals[offset..offset + len];
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
        let Self { opened, arrivals, opening, window, allowed, packets, merger, .. } = self;
        let run = &opened[first..opened.len().min(first + BATCH_MAX)];
        packets.clear();
        let open = timed(|| assert_eq!(opening.open(arrivals, run).count(), run.len()));
        let replay = timed(|| assert!(run.iter().all(|slot| window.admit(slot.counter))));
        let admit = timed(|| {
            for slot in run {
                let inner = ip::parse(&arrivals[slot.offset..][..slot.len]).expect("the packet is well-formed");
                assert_eq!(allowed.lookup(inner.source), Some(PeerId(0)));
                packets.push(PacketRange { offset: slot.offset, len: inner.total_len });
            }
        });
        let merge = timed(|| merger.plan(arrivals, packets, CAPS));
        let gather = timed(|| {
            for group in merger.groups() {
                let mut pieces = [IoSlice::new(&[]); 1 + BATCH_MAX];
                pieces[0] = IoSlice::new(&group.header);
                pieces[1] = IoSlice::new(&arrivals[group.first.clone()]);
                for (piece, payload) in pieces[2..].iter_mut().zip(group.payloads()) {
                    *piece = IoSlice::new(&arrivals[payload]);
                }
                black_box(&pieces);
            }
        });
        [open, replay, admit, merge, gather]
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
