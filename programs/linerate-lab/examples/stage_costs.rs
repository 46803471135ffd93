//! Measures what each stage of the data path costs for one full train, and prints it as the file that the example
//! `many_cores` reads. Needs root or user namespaces; takes about ten seconds.
//!
//! Two hosts in network namespaces, a TUN device and a UDP socket on each, one TCP stream from one to the other. In
//! between stand the engine's own parts (`netio`, `packet`, `aead`, `protocol`), called in the engine's order with a
//! look at the thread's CPU time between any two. Only trains of full size count. On a pair of namespaces the
//! sender's `sendmsg` also runs the receiver's side of the kernel, so sending is measured a second time, alone, to a
//! device that drops what it is given. In the same way `write` also runs TCP's receiving side, so it is measured a
//! second time with a super-packet that IP drops.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Instant, SystemTime};

use linerate_aead::{BATCH_MAX, Key, Slot, TAG_LEN};
use linerate_lab::enclosure::{self, Enclosure, Entry};
use linerate_lab::hosts::{self, Host};
use linerate_lab::load::tcp;
use linerate_lab::record::Machine;
use linerate_lab::{Error, Result};
use linerate_netio::tun::{self, Tun};
use linerate_netio::udp::{self, Received, Socket, Transmit, UdpSocket};
use linerate_netio::wait::{Event, wait};
use linerate_packet::gro::{Caps, Merger, PacketRange};
use linerate_packet::{gso, ip, virtio};
use linerate_protocol::{AllowedIps, DATA_HEADER, DataHeader, PeerId, Prefix, ReplayWindow};
use rustix::time::{ClockId, clock_gettime};

/// Inner packets in a full train: what an MTU of 1420 leaves room for in one `UDP_SEGMENT` send.
const SEGMENTS: usize = 45;
const MTU: usize = 1420;
/// IPv4, TCP and its timestamps.
const HEADERS: usize = 52;
const PORT: u16 = 51820;
const WARM_UP: f64 = 1.0;
const SECONDS: f64 = 4.0;
/// Trains that are sent, and super-packets written, to be dropped.
const ALONE: usize = 20_000;
/// Times that a cache line, or a train, changes cores.
const CHANGES: usize = 20_000;

const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const OUTSIDE: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

fn main() -> ExitCode {
    let outcome = match enclosure::enter() {
        Ok(Entry::Over(code)) => return ExitCode::from(code),
        Ok(Entry::Inside(inside)) => hosts::check_tun().and_then(|()| measure(&inside)),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(costs) => {
            print!("{costs}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("stage_costs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One end of the tunnel.
struct End {
    tun: tun::TunDevice,
    socket: UdpSocket,
    other: SocketAddr,
}

/// What ends the threads of the tunnel.
struct Life {
    over: AtomicBool,
    event: Event,
}

/// What was measured, in microseconds of CPU for each full train.
#[derive(Default)]
struct Costs {
    outbound: Vec<[f64; 4]>,
    inbound: Vec<[f64; 6]>,
}

fn measure(inside: &Enclosure) -> Result<String> {
    let machine = Machine::describe()?;
    let hosts = [Host::create(inside, "left")?, Host::create(inside, "right")?];
    hosts[0].join("eth0", &hosts[1], "eth0")?;
    let ends = [open_end(&hosts[0], 0)?, open_end(&hosts[1], 1)?];
    let clock = clock_cost();
    let tunnel = carry(&hosts, &ends)?;
    let alone = [send_alone(&hosts[0], &ends[0], "")?, send_alone(&hosts[0], &ends[0], " gso_max_segs 1")?];
    let written = write_alone(&ends[1])?;
    let cores = [change_of_line(), change_of_train()];
    Ok(write(&machine, clock, &tunnel, &alone, &written, cores))
}

fn open_end(host: &Host, end: usize) -> Result<End> {
    host.ip(&format!("address add {}/24 dev eth0", OUTSIDE[end]))?;
    let (tun, socket) = host.inside(|| {
        let tun = tun::TunDevice::create("tun0", 1, tun::TunOffloads::ALL)
            .map_err(|error| failed("making a TUN device", error.into()))?;
        let pair =
            udp::bind_pair(PORT, 0, 1, udp::UdpOffloads::ALL).map_err(|error| failed("binding a socket", error))?;
        let socket = pair
            .v4
            .into_iter()
            .next()
            .ok_or_else(|| Error::Refused("this host has no IPv4; the measurement needs it".into()))?;
        Ok((tun, socket))
    })?;
    host.ip(&format!("link set tun0 mtu {MTU} gso_max_segs {SEGMENTS} txqueuelen 1000 up"))?;
    host.ip(&format!("address add {}/24 dev tun0", ADDRESSES[end]))?;
    Ok(End { tun, socket, other: SocketAddr::new(address(OUTSIDE[1 - end]), PORT) })
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("a constant of this file")
}

fn failed(doing: &str, source: io::Error) -> Error {
    Error::System { doing: doing.into(), source }
}

/// What the TCP stream over the tunnel came to.
struct Carried {
    costs: Costs,
    gbit_per_second: f64,
    /// Microseconds of CPU per train of the threads that sent and received the stream.
    sender: f64,
    receiver: f64,
    /// Microseconds of CPU per train of all threads of the tunnel, whatever they carried.
    tunnel: f64,
}

/// Carries one TCP stream from the first end to the second.
fn carry(hosts: &[Host; 2], ends: &[End; 2]) -> Result<Carried> {
    let life = Life { over: AtomicBool::new(false), event: event()? };
    // A key for each direction, as in a session; the counters begin at zero.
    let keys = [Key::new(&[1; 32]), Key::new(&[2; 32])];
    thread::scope(|scope| {
        let out = [0, 1].map(|i| {
            let (end, key, life) = (&ends[i], &keys[i], &life);
            scope.spawn(move || (outbound(end, key, life), cpu()))
        });
        let back = [0, 1].map(|i| {
            let (end, key, life) = (&ends[i], &keys[1 - i], &life);
            scope.spawn(move || (inbound(end, key, life), cpu()))
        });
        let loaded = load(hosts);
        life.over.store(true, Ordering::Release);
        life.event.signal();
        let out = out.map(|thread| thread.join().expect("a thread that panics has said why"));
        let back = back.map(|thread| thread.join().expect("a thread that panics has said why"));
        let (report, sender, receiver) = loaded?;
        let trains = report.received.all_bytes as f64 / payload() as f64;
        let tunnel = out.iter().map(|(_, cpu)| cpu).chain(back.iter().map(|(_, cpu)| cpu)).sum::<u64>();
        let [(outbound, _), _] = out;
        let [_, (inbound, _)] = back;
        Ok(Carried {
            costs: Costs { outbound, inbound },
            gbit_per_second: report.gbit_per_second,
            sender: sender / trains,
            receiver: receiver / trains,
            tunnel: micros(tunnel) / trains,
        })
    })
}

/// Sends the stream; answers with the microseconds of CPU of its sender and its receiver.
fn load(hosts: &[Host; 2]) -> Result<(tcp::Report, f64, f64)> {
    let at = SocketAddr::new(address(ADDRESSES[1]), 5001);
    let receiver = hosts[1].inside(|| tcp::Receiver::listen(at))?;
    let receiving = hosts[1].start(move || {
        let begun = cpu();
        receiver.receive().map(|_| micros(cpu() - begun))
    });
    let load = tcp::Load { streams: 1, seconds: SECONDS, warm_up: WARM_UP };
    let (report, sender) = hosts[0].inside(|| {
        let begun = cpu();
        Ok((tcp::send(at, &load)?, micros(cpu() - begun)))
    })?;
    let receiver = receiving.join().expect("a thread that panics has said why")?;
    Ok((report, sender, receiver))
}

/// TCP payload in a full train.
fn payload() -> usize {
    SEGMENTS * (MTU - HEADERS)
}

/// Read, split, seal, send; samples are in that order.
fn outbound(end: &End, key: &Key, life: &Life) -> Vec<[f64; 4]> {
    let mut samples = Vec::with_capacity(1 << 20);
    let mut packet = vec![0; virtio::LEN + 65_535];
    let mut batch = Sealed::default();
    let routes = routes();
    let mut counter = 0;
    loop {
        let begun = cpu();
        let len = match end.tun.read(0, &mut packet) {
            Ok(len) => len,
            Err(_) if life.over.load(Ordering::Acquire) => return samples,
            Err(_) => {
                rest(&[end.tun.queue_fd(0), life.event.as_fd()]);
                continue;
            }
        };
        let read = cpu();
        if batch.split(&packet[..len], &routes, &mut counter).is_none() {
            continue;
        }
        let split = cpu();
        key.seal(&mut batch.buf, &batch.slots);
        let sealed = cpu();
        let went = end.socket.send(&[batch.train(end.other)]);
        let sent = cpu();
        if went.is_err() {
            end.socket.wait_for_room();
        } else if batch.is_full_train() {
            samples.push([read - begun, split - read, sealed - split, sent - sealed].map(micros));
        }
    }
}

/// Receive, open, replay, admit, merge, write; samples are in that order.
fn inbound(end: &End, key: &Key, life: &Life) -> Vec<[f64; 6]> {
    let mut samples = Vec::with_capacity(1 << 20);
    let mut buf = vec![0; 65_536];
    let mut meta = [Received::default()];
    let (mut slots, mut packets): (Vec<Slot>, Vec<PacketRange>) =
        (Vec::with_capacity(BATCH_MAX), Vec::with_capacity(BATCH_MAX));
    let (mut window, mut merger, routes) = (ReplayWindow::default(), Merger::new(), routes());
    loop {
        let begun = cpu();
        if end.socket.recv(&mut buf, &mut meta).is_err() {
            if life.over.load(Ordering::Acquire) {
                return samples;
            }
            rest(&[end.socket.as_fd(), life.event.as_fd()]);
            continue;
        }
        let received = cpu();
        arrivals(&buf, &meta[0], &mut slots);
        let authentic = key.open(&mut buf, &slots);
        let opened = cpu();
        let mut place = 0..;
        slots.retain(|slot| place.next().is_some_and(|i| authentic.authentic(i)) && window.admit(slot.counter));
        let replayed = cpu();
        packets.clear();
        packets.extend(slots.iter().filter_map(|slot| admit(&buf, slot, &routes)));
        let admitted = cpu();
        merger.plan(&mut buf, &packets, Caps { tcp4: true, tcp6: true, udp: true });
        let merged = cpu();
        let groups = merger.groups().map(|group| write_group(end, &buf, &group)).filter(io::Result::is_ok).count();
        let written = cpu();
        if groups == 1 && packets.len() == SEGMENTS && packets.iter().all(|packet| packet.len == MTU) {
            let stages = [begun, received, opened, replayed, admitted, merged, written];
            samples.push(std::array::from_fn(|i| micros(stages[i + 1] - stages[i])));
        }
    }
}

/// A train to be sent.
struct Sealed {
    buf: Vec<u8>,
    slots: Vec<Slot>,
}

impl Default for Sealed {
    fn default() -> Self {
        Self { buf: vec![0; 2 * 65_536], slots: Vec::with_capacity(BATCH_MAX) }
    }
}

impl Sealed {
    /// Splits what was read, headers and counters included; none for what is no packet for the peer.
    fn split(&mut self, read: &[u8], routes: &AllowedIps, counter: &mut u64) -> Option<()> {
        let (header, packet) = read.split_first_chunk()?;
        let header = virtio::Header::decode(header).ok()?;
        routes.lookup(ip::parse(packet).ok()?.destination)?;
        let split = gso::Split::new(&header, packet).ok()?;
        self.slots.clear();
        let mut used = 0;
        for i in 0..split.count() {
            let slot = Slot { offset: used + DATA_HEADER, len: split.len(i), counter: *counter };
            used = slot.offset + slot.len + TAG_LEN;
            split.write(i, &mut self.buf[slot.offset..][..slot.len]);
            DataHeader { receiver: 1, counter: *counter }.encode(&mut self.buf[slot.offset - DATA_HEADER..]);
            *counter += 1;
            self.slots.push(slot);
        }
        Some(())
    }

    fn train(&self, to: SocketAddr) -> Transmit<'_> {
        let datagram = self.slots[0].len + DATA_HEADER + TAG_LEN;
        let last = self.slots[self.slots.len() - 1];
        let segment = (self.slots.len() > 1).then_some(datagram as u16);
        Transmit { to, from: None, tos: 0, segment, contents: &self.buf[..last.offset + last.len + TAG_LEN] }
    }

    fn is_full_train(&self) -> bool {
        self.slots.len() == SEGMENTS && self.slots.iter().all(|slot| slot.len == MTU)
    }
}

/// Where the datagrams of a message lie.
fn arrivals(buf: &[u8], meta: &Received, slots: &mut Vec<Slot>) {
    slots.clear();
    let segment = meta.segment.max(1);
    for start in (0..meta.len).step_by(segment) {
        let datagram = &buf[start..meta.len.min(start + segment)];
        if linerate_protocol::classify(datagram).is_ok() {
            let counter = DataHeader::decode(datagram).counter;
            let len = datagram.len() - DATA_HEADER - TAG_LEN;
            slots.push(Slot { offset: start + DATA_HEADER, len, counter });
        }
    }
}

fn admit(buf: &[u8], slot: &Slot, routes: &AllowedIps) -> Option<PacketRange> {
    let packet = ip::parse(&buf[slot.offset..][..slot.len]).ok()?;
    routes.lookup(packet.source)?;
    Some(PacketRange { offset: slot.offset, len: packet.total_len })
}

fn write_group(end: &End, buf: &[u8], group: &linerate_packet::gro::Group<'_>) -> io::Result<usize> {
    let mut pieces = [IoSlice::new(&[]); 1 + BATCH_MAX];
    pieces[0] = IoSlice::new(&group.header);
    let ranges = std::iter::once(group.first.clone()).chain(group.payloads());
    let mut count = 1;
    for range in ranges {
        pieces[count] = IoSlice::new(&buf[range]);
        count += 1;
    }
    end.tun.write(0, &pieces[..count])
}

/// One peer that has all inner addresses.
fn routes() -> AllowedIps {
    let mut routes = AllowedIps::new();
    routes.insert(Prefix::new(address("10.0.0.0"), 24).expect("24 is a length of IPv4 prefixes"), PeerId(0));
    routes
}

fn rest(fds: &[std::os::fd::BorrowedFd<'_>]) {
    // When the system cannot wait, the next read says whether there is anything.
    let _ = wait(fds);
}

/// Sends full trains to a device that drops them; `how` it is set decides who cuts them up.
fn send_alone(host: &Host, end: &End, how: &str) -> Result<Vec<[f64; 1]>> {
    host.ip("link add sink type ifb")?;
    host.ip(&format!("link set sink up{how}"))?;
    host.ip("address add 203.0.113.1/24 dev sink")?;
    let mut batch = Sealed::default();
    batch.slots.extend((0..SEGMENTS).map(|i| {
        let offset = i * (MTU + DATA_HEADER + TAG_LEN) + DATA_HEADER;
        Slot { offset, len: MTU, counter: i as u64 }
    }));
    let key = Key::new(&[3; 32]);
    let to = SocketAddr::new(address("203.0.113.2"), PORT);
    let mut samples = Vec::with_capacity(ALONE);
    for _ in 0..ALONE {
        // As it is sent in earnest: just written by this core.
        key.seal(&mut batch.buf, &batch.slots);
        let begun = cpu();
        end.socket.send(&[batch.train(to)]).map_err(|error| failed("sending to a device that drops", error))?;
        samples.push([micros(cpu() - begun)]);
    }
    host.ip("link delete sink")?;
    Ok(samples)
}

/// Writes full super-packets whose IP header has a wrong checksum, so that they go no further than IP.
fn write_alone(end: &End) -> Result<Vec<[f64; 1]>> {
    let header = virtio::Header {
        flags: virtio::NEEDS_CSUM,
        gso: virtio::Gso::TcpV4,
        ecn: false,
        hdr_len: HEADERS as u16,
        gso_size: (MTU - HEADERS) as u16,
        csum_start: ip::V4_HEADER as u16,
        csum_offset: 16,
    };
    let header = header.encode();
    let mut packet = vec![0; HEADERS + payload()];
    packet[0] = 0x45;
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[8..12].copy_from_slice(&[64, linerate_packet::TCP, 0, 0]);
    let mut samples = Vec::with_capacity(ALONE);
    for round in 0..ALONE {
        // As it is written in earnest: from this core's cache, in as many pieces as there were packets.
        packet[HEADERS..].fill(round as u8);
        let (first, rest) = packet.split_at(MTU);
        let mut pieces = vec![IoSlice::new(&header), IoSlice::new(first)];
        pieces.extend(rest.chunks(MTU - HEADERS).map(IoSlice::new));
        let begun = cpu();
        end.tun.write(0, &pieces).map_err(|error| failed("writing a super-packet that IP drops", error))?;
        samples.push([micros(cpu() - begun)]);
    }
    Ok(samples)
}

fn await_turn(turn: &AtomicU64, value: u64) {
    while turn.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}

/// Nanoseconds that a cache line takes from one core to another, there and back by halves.
fn change_of_line() -> f64 {
    let turn = AtomicU64::new(0);
    let rounds = CHANGES as u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                await_turn(&turn, 2 * round + 1);
                turn.store(2 * round + 2, Ordering::Release);
            }
        });
        let mut samples = Vec::with_capacity(CHANGES);
        for round in 0..rounds {
            let begun = Instant::now();
            turn.store(2 * round + 1, Ordering::Release);
            await_turn(&turn, 2 * round + 2);
            samples.push([begun.elapsed().as_nanos() as f64 / 2.0]);
        }
        quantile(&samples, 0, 0.5)
    })
}

/// Microseconds that copying a train takes longer when another core wrote it last.
fn change_of_train() -> f64 {
    let train = Mutex::new(vec![0_u8; SEGMENTS * (MTU + DATA_HEADER + TAG_LEN)]);
    let turn = AtomicU64::new(0);
    let mut copy = train.lock().expect("nobody panicked").clone();
    let (mut near, mut far) = (Vec::with_capacity(CHANGES), Vec::with_capacity(CHANGES));
    let mut copied = |samples: &mut Vec<[f64; 1]>| {
        let train = train.lock().expect("nobody panicked");
        let begun = cpu();
        copy.copy_from_slice(&train);
        samples.push([micros(cpu() - begun)]);
    };
    let rewrite = |with: u64| train.lock().expect("nobody panicked").fill(with as u8);
    let rounds = CHANGES as u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                await_turn(&turn, 2 * round + 1);
                rewrite(round);
                turn.store(2 * round + 2, Ordering::Release);
            }
        });
        for round in 0..rounds {
            turn.store(2 * round + 1, Ordering::Release);
            await_turn(&turn, 2 * round + 2);
            copied(&mut far);
            rewrite(round);
            copied(&mut near);
        }
    });
    quantile(&far, 0, 0.5) - quantile(&near, 0, 0.5)
}

fn event() -> Result<Event> {
    Event::new().map_err(|error| failed("making an event", error))
}

/// This thread's CPU time in nanoseconds: what others do on this core meanwhile does not count.
fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// What one look at the clock adds to a stage.
fn clock_cost() -> f64 {
    let mut samples = Vec::with_capacity(CHANGES);
    for _ in 0..CHANGES {
        let begun = cpu();
        samples.push([micros(cpu() - begun)]);
    }
    quantile(&samples, 0, 0.5)
}

fn quantile<const N: usize>(samples: &[[f64; N]], stage: usize, share: f64) -> f64 {
    let mut sorted: Vec<f64> = samples.iter().map(|sample| sample[stage]).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(((sorted.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(f64::NAN)
}

/// Writes the file of costs.
fn write(
    machine: &Machine,
    clock: f64,
    carried: &Carried,
    alone: &[Vec<[f64; 1]>; 2],
    written: &[[f64; 1]],
    [line, train]: [f64; 2],
) -> String {
    let Costs { outbound, inbound } = &carried.costs;
    let day = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let mut out = format!(
        "# What each stage of the data path costs for one full train, in microseconds of CPU: the median and the\n\
         # 90th percentile. Written by `cargo run --release -p linerate-lab --example stage_costs`.\n\
         #\n\
         # {} and {} full trains of one TCP stream at {:.2} Gbit/s, and {ALONE} for each stage that is measured alone.\n\
         # {:.3} us for a look at the clock are taken off each stage. All threads of the tunnel together took\n\
         # {:.1} us per train, whatever they carried.\n\n\
         processor = \"{}\"\nprocessors = {}\nkernel = \"{}\"\nmeasured = \"{}\"\n\n\
         # Inner packets of a train, and the TCP payload in it in bytes.\nsegments = {SEGMENTS}\npayload = {}\n",
        outbound.len(),
        inbound.len(),
        carried.gbit_per_second,
        clock,
        carried.tunnel,
        machine.processor,
        machine.processors,
        machine.kernel,
        &day[..10],
        payload(),
    );
    out.push_str("\n[outbound]\n");
    for (i, name) in ["read", "split", "seal"].into_iter().enumerate() {
        out.push_str(&stage(name, outbound, i, clock));
    }
    out.push_str("# To a device that takes whole trains (ifb) and drops them: the sender's share alone.\n");
    out.push_str(&stage("send", &alone[0], 0, clock));
    out.push_str("\n[inbound]\n");
    for (i, name) in ["receive", "open", "replay", "admit", "merge"].into_iter().enumerate() {
        out.push_str(&stage(name, inbound, i, clock));
    }
    out.push_str("# With all that TCP on this host does before the call returns.\n");
    out.push_str(&stage("write", inbound, 5, clock));
    out.push_str("\n# What is not the engine's but around it.\n[around]\n");
    out.push_str("# The same send to a device that takes single datagrams only: the kernel cuts the train up.\n");
    out.push_str(&stage("send_cut_up", &alone[1], 0, clock));
    out.push_str("# The send between two namespaces, which runs the receiver's side of the kernel, too.\n");
    out.push_str(&stage("send_veth", outbound, 3, clock));
    out.push_str("# The write of a super-packet that IP drops: without TCP.\n");
    out.push_str(&stage("write_alone", written, 0, clock));
    out.push_str("# The threads that send and receive the TCP stream, system calls included; means.\n");
    for (name, mean) in [("tcp_sender", carried.sender), ("tcp_receiver", carried.receiver)] {
        out.push_str(&format!("{name} = {mean:.1}\n"));
    }
    out.push_str(&format!(
        "\n[cores]\n# Nanoseconds that a cache line takes from one core to another.\nline_ns = {line:.0}\n\
         # Microseconds that copying a train takes longer when another core wrote it.\ntrain = {train:.1}\n"
    ));
    out
}

fn stage<const N: usize>(name: &str, samples: &[[f64; N]], stage: usize, clock: f64) -> String {
    let at = |share| (quantile(samples, stage, share) - clock).max(0.0);
    format!("{name} = {{ median = {:.2}, p90 = {:.2} }}\n", at(0.5), at(0.9))
}
