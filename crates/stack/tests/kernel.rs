//! The stack against the kernel's TCP, over a TUN device: whatever two kernels make of a connection, a kernel and the
//! stack must make of it, whichever of them begins.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use linerate_netio::tun::{HEADER, Tun, TunDevice, TunOffloads, WaitableTun};
use linerate_sockets::{Sockets, Stream};
use linerate_stack::{Settings, Stack, System};

mod driven;
#[path = "../../../tests/in_namespaces.rs"]
mod in_namespaces;

use driven::{Driver, block_on};
use in_namespaces::{command, in_namespaces};

const OURS: [&str; 2] = ["10.0.0.1", "fd00::1"];
const THE_KERNELS: [&str; 2] = ["10.0.0.2", "fd00::2"];

/// Carries packets between the stack and the kernel's device, and tells the stack of the time, until it is told to end.
fn carry(stack: &Stack, kernel: &TunDevice, driver: &Arc<Driver>) {
    let (ours, mut buf) = (stack.tun(), vec![0; HEADER + 65_535]);
    driver.drive(stack, &[ours.queue_fd(0), kernel.queue_fd(0)], |ready| {
        if ready & 0b01 != 0 {
            while let Ok(len) = ours.read(0, &mut buf) {
                // The kernel's queue may be full.
                let _ = kernel.write(0, &[IoSlice::new(&buf[..len])]);
            }
        }
        if ready & 0b10 != 0 {
            while let Ok(len) = kernel.read(0, &mut buf) {
                // What is not for the stack, such as router solicitations, it drops.
                let _ = ours.write(0, &[IoSlice::new(&buf[..len])]);
            }
        }
    });
}

/// Runs `body` with a stack that the kernel reaches by a TUN device; `link` is what is done to that.
fn with_stack(link: &[&str], body: impl FnOnce(&Stack)) {
    let kernel = TunDevice::create("wg0", 1, TunOffloads::ALL).unwrap();
    for line in
        ["ip addr add 10.0.0.2/24 dev wg0", "ip addr add fd00::2/64 dev wg0 nodad", "ip link set wg0 mtu 1420 up"]
            .iter()
            .chain(link)
    {
        assert!(command(line).status().unwrap().success(), "{line}");
    }
    let settings = Settings::new(OURS.map(|address| address.parse::<IpAddr>().unwrap()).into(), 1420);
    let stack = Stack::new(&settings, Box::new(System)).unwrap();
    let driver = Driver::new();
    thread::scope(|scope| {
        scope.spawn(|| carry(&stack, &kernel, &driver));
        body(&stack);
        driver.end();
    });
}

/// One end of a connection, and what can be done with it.
trait End: Send {
    fn send(&mut self, data: &[u8]) -> io::Result<()>;
    fn finish(&mut self) -> io::Result<()>;
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize>;
}

impl End for TcpStream {
    fn send(&mut self, data: &[u8]) -> io::Result<()> {
        self.write_all(data)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read(into)
    }
}

impl End for Box<dyn Stream> {
    fn send(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let len = block_on(poll_fn(|context| self.poll_write(context, data)))?;
            data = &data[len..];
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        block_on(poll_fn(|context| self.poll_finish(context)))
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        block_on(poll_fn(|context| self.poll_read(context, into)))
    }
}

/// What one end does, step by step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Give(usize),
    Finish,
    /// Reads so many bytes, or up to the end.
    Take(usize),
    /// Reads until there is an end or an error, and what was read before does not count: a reset may overtake it.
    Outcome,
}

use Step::{Finish, Give, Outcome, Take};

/// What was seen: bytes and their sum, or the kind of the error.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Bytes(usize, u64),
    Done,
    Error(io::ErrorKind),
}

fn perform(mut end: Box<dyn End>, steps: &[Step]) -> Vec<Seen> {
    let mut buf = vec![0; 100_000];
    let seen = |step: &Step| {
        let done = |result: io::Result<()>| result.map_or_else(|error| Seen::Error(error.kind()), |()| Seen::Done);
        match *step {
            Give(len) => done(end.send(&(0..len).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<u8>>())),
            Finish => done(end.finish()),
            Take(_) | Outcome => {
                let most = if let Take(len) = *step { len } else { usize::MAX };
                let (mut count, mut sum) = (0, 0u64);
                while count < most {
                    let room = buf.len().min(most - count);
                    match end.receive(&mut buf[..room]) {
                        Ok(0) => break,
                        Ok(len) => {
                            let bytes = buf[..len].iter();
                            sum = bytes.fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                            count += len;
                        }
                        Err(error) => return Seen::Error(error.kind()),
                    }
                }
                if matches!(step, Outcome) { Seen::Done } else { Seen::Bytes(count, sum) }
            }
        }
    };
    steps.iter().map(seen).collect()
}

/// Who is at the two ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Kernels,
    StackBegins,
    KernelBegins,
}

fn connect(stack: &Stack, ends: Ends, v6: bool) -> (Box<dyn End>, Box<dyn End>) {
    let v6 = usize::from(v6);
    let address = |of: [&str; 2]| SocketAddr::new(of[v6].parse().unwrap(), 0);
    match ends {
        Ends::Kernels | Ends::StackBegins => {
            let listener = TcpListener::bind(address(THE_KERNELS)).unwrap();
            let to = listener.local_addr().unwrap();
            let begins: Box<dyn End> = match ends {
                Ends::Kernels => Box::new(TcpStream::connect(to).unwrap()),
                _ => Box::new(block_on(stack.connect(to)).unwrap()),
            };
            (begins, Box::new(listener.accept().unwrap().0))
        }
        Ends::KernelBegins => {
            let mut listener = stack.listen(address(OURS)).unwrap();
            let begins = TcpStream::connect(listener.local()).unwrap();
            (Box::new(begins), Box::new(block_on(poll_fn(|context| listener.poll_accept(context))).unwrap()))
        }
    }
}

fn outcome(stack: &Stack, ends: Ends, v6: bool, steps: [&[Step]; 2]) -> [Vec<Seen>; 2] {
    let (a, b) = connect(stack, ends, v6);
    thread::scope(|scope| {
        let a = scope.spawn(|| perform(a, steps[0]));
        let b = scope.spawn(|| perform(b, steps[1]));
        [a.join().unwrap(), b.join().unwrap()]
    })
}

/// What the two ends do. Each ends with a drop, which is a reset where something was not read or not finished.
const CONVERSATIONS: [[&[Step]; 2]; 9] = [
    [&[Finish, Take(9)], &[Finish, Take(9)]],
    [&[Give(1), Take(1), Finish, Take(1)], &[Take(1), Give(1), Take(1), Finish]],
    [&[Give(3_000_000), Finish, Take(9)], &[Take(4_000_000), Finish]],
    [&[Take(4_000_000), Finish], &[Give(3_000_000), Finish, Take(9)]],
    [&[Give(700_000), Finish, Take(900_000)], &[Take(900_000), Give(700_001), Finish]],
    // One half is open long after the other one has ended.
    [&[Finish, Take(1_000_000)], &[Take(1), Give(500_000), Give(1), Finish]],
    // What has come and is not read: the drop is a reset.
    [&[Give(1000), Outcome], &[Take(10)]],
    [&[Take(10)], &[Give(1000), Outcome]],
    // Requests and answers.
    [
        &[Give(100), Take(2000), Give(100), Take(2000), Give(100), Take(2000), Finish, Take(1)],
        &[Take(100), Give(2000), Take(100), Give(2000), Take(100), Give(2000), Take(1), Finish],
    ],
];

/// Holds every conversation with each pair of ends; with data of a part of the length, if they are slow.
fn compare(stack: &Stack, part: usize) {
    let scaled = |step: &Step| match *step {
        Give(len) => Give(len.div_ceil(part)),
        Take(len) => Take(len.div_ceil(part)),
        other => other,
    };
    for v6 in [false, true] {
        for steps in CONVERSATIONS {
            let steps = steps.map(|steps| steps.iter().map(scaled).collect::<Vec<_>>());
            let steps = [&steps[0][..], &steps[1][..]];
            let expected = outcome(stack, Ends::Kernels, v6, steps);
            for ends in [Ends::StackBegins, Ends::KernelBegins] {
                assert_eq!(outcome(stack, ends, v6, steps), expected, "{ends:?}, IPv6: {v6}, {steps:?}");
            }
        }
    }
}

#[test]
fn the_stack_and_a_kernel_do_what_two_kernels_do() {
    in_namespaces(|| with_stack(&[], |stack| compare(stack, 1)));
}

#[test]
fn loss_and_reordering_change_nothing_but_the_time() {
    in_namespaces(|| {
        let link = "tc qdisc add dev wg0 root netem delay 3ms 2ms loss 1% duplicate 1%";
        // Not every kernel has it.
        let probe = "tc qdisc add dev lo root netem delay 0ms";
        if !command(probe).output().is_ok_and(|output| output.status.success()) {
            return in_namespaces::skipped("loss_and_reordering_change_nothing_but_the_time", "no netem");
        }
        assert!(command("tc qdisc del dev lo root").status().unwrap().success());
        with_stack(&[link], |stack| compare(stack, 5));
    });
}

#[test]
fn nobody_listening_is_a_refusal_on_both_sides() {
    in_namespaces(|| {
        with_stack(&[], |stack| {
            for (ours, the_kernels) in OURS.iter().zip(THE_KERNELS) {
                let to = SocketAddr::new(the_kernels.parse().unwrap(), 9);
                let error = block_on(stack.connect(to)).map(drop).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{to}");
                let to = SocketAddr::new(ours.parse().unwrap(), 9);
                assert_eq!(TcpStream::connect(to).unwrap_err().kind(), io::ErrorKind::ConnectionRefused, "{to}");
                block_on(stack.ping(the_kernels.parse().unwrap())).unwrap();
            }
        });
    });
}
