//! The loads and the counters against the real thing: two hosts on one wire.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_lab::Error;
use linerate_lab::counters::{Counter, Energy, KernelCounters};
use linerate_lab::hosts::Host;
use linerate_lab::load::{self, Arrived, IMIX, Traffic};
use linerate_lab::ping::{self, Probes};
use linerate_lab::sandbox::Sandbox;
use linerate_probe::machine::Machine;
use linerate_probe::usage;

mod checks;

type Check = (&'static str, fn(&Wire) -> Result<(), Error>);

const CHECKS: [Check; 14] = [
    ("TCP arrives by one stream, by many, and in reverse", tcp),
    ("UDP arrives one by one", datagrams),
    ("UDP arrives in GSO batches", batches),
    ("a mix of sizes arrives", mix),
    ("GSO batches larger than the MTU are refused", large_batches),
    ("nobody at the far end is an error", nobody),
    ("datagrams into nothing are lost, all of them", black_hole),
    ("iperf3 into nothing is an error", black_hole_for_iperf3),
    ("a wire that is cut during a load is an error", cut_wire),
    ("66,000 probes are answered, each by its own number", many_probes),
    ("the kernel counts fragments and closed ports", kernel_counters),
    ("perf counts every system call", perf),
    ("strace counts every system call", strace),
    ("the machine's time and a process's switches are counted", times),
];

fn main() -> ExitCode {
    checks::run(&CHECKS, |inside, check| Wire::create(inside).and_then(|wire| check(&wire)))
}

fn tcp(wire: &Wire) -> Result<(), Error> {
    for to in wire.far() {
        for (streams, reverse) in [(1, false), (4, true), (105, false)] {
            let arrived = wire.load(to, Traffic::Tcp { streams, reverse })?;
            expect("bytes arrived", arrived.bytes > 0 && arrived.all_bytes >= arrived.bytes)?;
            // What iperf3 reports every tenth of a second, later on a busy machine: some more or less.
            expect("the time is what was asked for", (SECONDS - 0.25..2.0 * SECONDS).contains(&arrived.seconds))?;
            expect("it is no UDP", arrived.datagrams.is_none() && arrived.retransmits.is_some())?;
        }
    }
    Ok(())
}

fn datagrams(wire: &Wire) -> Result<(), Error> {
    for to in wire.far() {
        for payload in [64, 1372] {
            let arrived = wire.load(to, Traffic::Datagrams { payload, segmented: false })?;
            expect("datagrams arrived", arrived.datagrams > Some(0) && arrived.lost.is_some())?;
        }
    }
    Ok(())
}

fn batches(wire: &Wire) -> Result<(), Error> {
    for to in wire.far() {
        for payload in [64, 1372] {
            let before = KernelCounters::of(&wire.right)?;
            let arrived = wire.load(to, Traffic::Datagrams { payload, segmented: true })?;
            let moved = KernelCounters::of(&wire.right)?.since(&before);
            println!("  far end: {moved:?}");
            expect("datagrams arrived", arrived.datagrams > Some(0))?;
            expect("whole datagrams arrived", arrived.all_bytes % u64::from(payload) == 0)?;
        }
    }
    Ok(())
}

fn mix(wire: &Wire) -> Result<(), Error> {
    for to in wire.far() {
        let arrived = wire.load(to, Traffic::Mix)?;
        let datagrams = arrived.datagrams.unwrap_or(0);
        expect("datagrams arrived", datagrams > 0)?;
        let (small, large) = (u64::from(IMIX[0]), u64::from(IMIX[6]));
        expect("they have different sizes", (small * datagrams..large * datagrams).contains(&arrived.bytes))?;
    }
    Ok(())
}

fn large_batches(wire: &Wire) -> Result<(), Error> {
    for to in wire.far() {
        let refused = wire.load(to, Traffic::Datagrams { payload: 1473, segmented: true });
        expect("it is refused", matches!(&refused, Err(Error::Refused(why)) if why.contains("1473-byte")))?;
    }
    Ok(())
}

fn nobody(wire: &Wire) -> Result<(), Error> {
    let elsewhere = wire.load(addr("192.0.2.77"), ONE_STREAM);
    expect("there is no such address", matches!(elsewhere, Err(Error::System { .. })))
}

fn black_hole(wire: &Wire) -> Result<(), Error> {
    wire.cut()?;
    let arrived = wire.load(addr(FAR), Traffic::Datagrams { payload: 1000, segmented: true })?;
    expect("nothing arrived", arrived.all_bytes == 0 && arrived.datagrams == Some(0))?;
    expect("what was sent is lost", arrived.lost > Some(0))
}

fn black_hole_for_iperf3(wire: &Wire) -> Result<(), Error> {
    wire.cut()?;
    let error = wire.load(addr(FAR), ONE_STREAM).expect_err("nothing gets through");
    println!("  {error}");
    expect("iperf3 says why", matches!(&error, Error::Command { said, .. } if said.contains("unable to connect")))
}

fn cut_wire(wire: &Wire) -> Result<(), Error> {
    let before = KernelCounters::of(&wire.left)?;
    let outcome = thread::scope(|scope| {
        let load = scope.spawn(|| wire.load(addr(FAR), ONE_STREAM));
        let sent = || Ok::<_, Error>(KernelCounters::of(&wire.left)?.since(&before).get("TcpOutSegs").copied());
        // More than the connections begin with, and long before the end.
        while sent()? < Some(1000) && !load.is_finished() {
            thread::yield_now();
        }
        wire.cut()?;
        load.join().expect("no panic")
    });
    let error = outcome.expect_err("its end gets nowhere");
    println!("  {error}");
    expect("the time-out is named", matches!(&error, Error::Command { said, .. } if said.contains("11 s")))
}

fn many_probes(wire: &Wire) -> Result<(), Error> {
    // More than ICMP has numbers.
    let probes = Probes { count: 66_000, pause: Duration::ZERO, timeout: PATIENCE };
    let report = wire.left.inside(|| ping::run(addr(FAR), &probes))?;
    println!("  {:?}", report.latency);
    expect("all are answered", report.sent == 66_000 && report.answered == 66_000)?;
    expect("all are kept", report.round_trips_ms.len() == 66_000)
}

fn kernel_counters(wire: &Wire) -> Result<(), Error> {
    let before = [KernelCounters::of(&wire.left)?, KernelCounters::of(&wire.right)?];
    wire.left.inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let to = SocketAddr::new(addr(FAR), 9);
        // The third one goes in three fragments.
        for payload in [10, 10, 3000] {
            socket.send_to(&vec![0; payload], to).expect("the wire takes it");
        }
        Ok(())
    })?;
    // The far end may get round to them later.
    let begin = Instant::now();
    let right = loop {
        let right = KernelCounters::of(&wire.right)?.since(&before[1]);
        if right.get("UdpNoPorts") >= Some(&3) || begin.elapsed() > PATIENCE {
            break right;
        }
    };
    let left = KernelCounters::of(&wire.left)?.since(&before[0]);
    println!("  near end: {left:?}\n  far end: {right:?}");
    expect("three fragments were made", left.get("IpFragCreates") == Some(&3))?;
    expect("three fragments came", right.get("IpReasmReqds") == Some(&3))?;
    expect("nobody took three datagrams", right.get("UdpNoPorts") == Some(&3))
}

fn perf(_: &Wire) -> Result<(), Error> {
    if Counter::find()? != Counter::Perf {
        return Err(Error::Refused("perf cannot count here".into()));
    }
    counts_every_call(Counter::Perf)
}

fn strace(_: &Wire) -> Result<(), Error> {
    counts_every_call(Counter::Strace)
}

/// Two processes that read and write one byte, so often.
fn counts_every_call(counter: Counter) -> Result<(), Error> {
    const ECHOES: u64 = 500;
    const CALLS: u64 = 2 * 2 * ECHOES;
    let mut cats = [Echo::start(), Echo::start()];
    // What they do once, at their start, is done then.
    cats.iter_mut().for_each(Echo::echo);
    let calls = counter.start(&cats.each_ref().map(|cat| cat.process.id()))?;
    for _ in 0..ECHOES {
        cats.iter_mut().for_each(Echo::echo);
    }
    let counted = calls.finish()?;
    println!("  {counted} of {CALLS}");
    // strace counts what has returned, so not the last write of either when it is quick to let go; and to attach
    // and to let go can make each begin its read again.
    expect("every call is counted", (CALLS - 2..CALLS + 10).contains(&counted))?;
    cats.iter_mut().for_each(Echo::echo);
    let gone = counter.start(&[u32::MAX / 2]);
    println!("  {}", gone.as_ref().err().map(ToString::to_string).unwrap_or_default());
    expect("there is no such process", gone.is_err())
}

fn times(wire: &Wire) -> Result<(), Error> {
    let (before, threads) = (Machine::now().expect("/proc/stat is there"), usage::threads_of(std::process::id()));
    wire.load(addr(FAR), Traffic::Datagrams { payload: 64, segmented: true })?;
    let shares = Machine::now().expect("/proc/stat is there").since(&before);
    println!("  {shares:?}");
    expect("they add up to all", (shares.user + shares.system + shares.idle - 1.0).abs() < 1e-9)?;
    expect("the load used some", shares.idle < 1.0)?;
    let busiest = usage::busiest(&usage::threads_of(std::process::id()), &threads);
    println!("  {busiest:?}");
    let cat = Echo::start();
    let rate = usage::switch_rate(&[cat.process.id()], Duration::from_millis(300)).expect("cat runs");
    println!("  a process at rest switches {rate:.1} times a second; {:?}", Energy::find());
    Ok(())
}

/// How long a busy machine may take for what is awaited.
const PATIENCE: Duration = Duration::from_secs(30);

const NEAR: &str = "192.0.2.1";
const FAR: &str = "192.0.2.2";

/// Seconds of a load, and before it.
const SECONDS: f64 = 0.7;
const WARM_UP: f64 = 0.3;

const ONE_STREAM: Traffic = Traffic::Tcp { streams: 1, reverse: false };

/// Two hosts on one wire.
struct Wire {
    left: Host,
    right: Host,
    has_ipv6: bool,
}

impl Wire {
    fn create(inside: &Sandbox) -> Result<Self, Error> {
        let (left, right) = (Host::create(inside, "left")?, Host::create(inside, "right")?);
        left.join("eth0", &right, "eth0")?;
        let has_ipv6 = std::fs::exists("/proc/sys/net/ipv6").unwrap_or(false);
        for (host, v4, v6) in [(&left, NEAR, "fd01::1"), (&right, FAR, "fd01::2")] {
            host.ip(&format!("addr add {v4}/24 dev eth0"))?;
            if has_ipv6 {
                host.ip(&format!("addr add {v6}/64 dev eth0 nodad"))?;
            }
        }
        Ok(Self { left, right, has_ipv6 })
    }

    /// The far end's addresses.
    fn far(&self) -> Vec<IpAddr> {
        let v6 = self.has_ipv6.then(|| addr("fd01::2"));
        [addr(FAR)].into_iter().chain(v6).collect()
    }

    /// From now on, what is sent to the far end's IPv4 address goes to nobody.
    fn cut(&self) -> Result<(), Error> {
        self.left.ip(&format!("neigh replace {FAR} lladdr 02:00:00:00:00:99 dev eth0"))
    }

    fn load(&self, to: IpAddr, traffic: Traffic) -> Result<Arrived, Error> {
        let arrived = load::run(&self.left, &self.right, to, &traffic, WARM_UP, SECONDS)?;
        let gbit = arrived.bytes as f64 * 8.0 / arrived.seconds / 1e9;
        println!("  {traffic:?} to {to}: {gbit:.2} Gbit/s, {arrived:?}");
        Ok(arrived)
    }
}

/// A `cat`.
struct Echo {
    process: Child,
}

impl Echo {
    fn start() -> Self {
        let process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self { process: process.expect("every machine has cat") }
    }

    /// One read and one write.
    fn echo(&mut self) {
        let byte = &mut [1];
        let (stdin, stdout) = (self.process.stdin.as_mut(), self.process.stdout.as_mut());
        stdin.expect("a pipe").write_all(byte).expect("cat reads");
        stdout.expect("a pipe").read_exact(byte).expect("cat writes");
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn expect(what: &str, is_so: bool) -> Result<(), Error> {
    if is_so { Ok(()) } else { Err(Error::Subject(format!("it is not so that {what}"))) }
}
