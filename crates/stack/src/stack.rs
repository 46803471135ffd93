//! The stack as a whole: its shards, and who drives them.

use std::future;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use linerate_netio::wait::Event;
use linerate_sockets::{Datagrams, Listener, Pending, Sockets, Stream};
use smoltcp::time::Instant;

use crate::common::Common;
use crate::counters::DropReason;
use crate::datagrams::UdpSocket;
use crate::echo::Pinging;
use crate::shard::Shard;
use crate::tcp::{Connecting, TcpListener};
use crate::tun::StackTun;
use crate::{Environment, Report, Settings};

/// How many ports are tried where one is to be chosen.
const PORTS_TRIED: usize = 256;

/// No deadline.
const NEVER: i64 = i64::MAX;

/// A part of the connections, and what tells the engine that there are packets of it.
pub(crate) struct Part {
    pub(crate) shard: Mutex<Shard>,
    pub(crate) readable: Event,
}

/// What is to be done once the lock of a shard is released.
struct Due {
    signal: bool,
    wakers: Vec<Waker>,
    deadline: Option<Instant>,
}

/// The stack.
pub(crate) struct Inner {
    pub(crate) common: Arc<Common>,
    pub(crate) parts: Vec<Part>,
    driver: Mutex<Option<Waker>>,
    /// What the driver was told, in microseconds.
    told: AtomicI64,
}

impl Inner {
    /// Does something with a shard, and then all that is to be done without its lock.
    pub(crate) fn with<R>(&self, index: usize, f: impl FnOnce(&mut Shard, Instant) -> R) -> R {
        let (result, due) = self.locked(index, f);
        self.follow_up(index, due);
        result
    }

    /// Does something with a shard, and says what is to be done without its lock.
    fn locked<R>(&self, index: usize, f: impl FnOnce(&mut Shard, Instant) -> R) -> (R, Due) {
        let mut shard = self.parts[index].shard.lock().expect("a panic aborts the process");
        // Inside of the lock, so that time does not run backwards for the shard.
        let result = f(&mut shard, self.common.now());
        let signal = shard.is_readable() && !mem::replace(&mut shard.signalled, true);
        (result, Due { signal, wakers: mem::take(&mut shard.wakers), deadline: shard.deadline() })
    }

    fn follow_up(&self, index: usize, due: Due) {
        if due.signal {
            self.parts[index].readable.signal();
        }
        due.wakers.into_iter().for_each(Waker::wake);
        if due.deadline.is_some_and(|at| at.total_micros() < self.told.load(Ordering::SeqCst)) {
            self.wake_driver();
        }
    }

    /// Reads a packet of a shard.
    pub(crate) fn read(&self, index: usize, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.with(index, |shard, now| {
            let len = shard.emit(now, buf);
            // With the last packet, because the engine may not ask for another one. Who is to raise the flag may not
            // have come to it: then it is to be lowered the next time.
            if shard.signalled && !shard.is_readable() {
                shard.signalled = !self.parts[index].readable.drain();
            }
            len
        });
        len.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn wake_driver(&self) {
        let waker = self.driver.lock().expect("a panic aborts the process").take();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A TCP/IP stack inside of a tunnel. Clones are the same stack.
#[derive(Clone)]
pub struct Stack(Arc<Inner>);

impl Stack {
    /// A stack with these settings.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    ///
    /// # Panics
    /// If the settings are none: the MTU is below 1,280 or above 65,535, there are no shards or more than a TUN device
    /// has queues.
    pub fn new(settings: &Settings, environment: Box<dyn Environment>) -> io::Result<Self> {
        settings.check();
        let common = Arc::new(Common::new(settings, environment));
        let part = |_| -> io::Result<Part> {
            let shard = Mutex::new(Shard::new(common.clone(), common.now()));
            Ok(Part { shard, readable: Event::new()? })
        };
        let parts = (0..settings.shards).map(part).collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Inner { common, parts, driver: Mutex::default(), told: AtomicI64::new(NEVER) })))
    }

    /// The TUN device whose other side this is.
    pub fn tun(&self) -> StackTun {
        StackTun::new(self.0.clone())
    }

    /// What has to be called next, and when, as the time of [`Environment::now`]: [`Stack::expire`]. The waker is woken
    /// if that becomes earlier. Nobody else looks at the clock while nothing is sent or received.
    pub fn poll_deadline(&self, context: &mut Context<'_>) -> Option<Duration> {
        *self.0.driver.lock().expect("a panic aborts the process") = Some(context.waker().clone());
        // Before the shards are asked: whoever sets an earlier time from here on wakes us.
        self.0.told.store(NEVER, Ordering::SeqCst);
        let deadlines = self.0.parts.iter().filter_map(|part| {
            let shard = part.shard.lock().expect("a panic aborts the process");
            shard.deadline().map(|at| at.total_micros())
        });
        let next = deadlines.min()?;
        self.0.told.store(next, Ordering::SeqCst);
        Some(Duration::from_micros(next.max(0) as u64))
    }

    /// Does what is due.
    pub fn expire(&self) {
        (0..self.0.parts.len()).for_each(|index| self.0.with(index, |shard, now| shard.expire(now)));
    }

    /// What it holds, and what it has dropped.
    pub fn report(&self) -> Report {
        let common = &self.0.common;
        Report {
            connections: common.connections.load(Ordering::Relaxed),
            memory: common.memory.used(),
            drops: DropReason::ALL.map(|drop| (drop, common.counters.get(drop))),
        }
    }
}

impl Sockets for Stack {
    fn connect(&self, to: SocketAddr) -> Pending<Box<dyn Stream>> {
        match Connecting::new(&self.0, to) {
            Ok(connecting) => Box::pin(connecting),
            Err(error) => Box::pin(future::ready(Err(error))),
        }
    }

    fn listen(&self, local: SocketAddr) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(TcpListener::new(&self.0, local)?))
    }

    fn bind(&self, local: SocketAddr) -> io::Result<Box<dyn Datagrams>> {
        Ok(Box::new(UdpSocket::new(&self.0, local)?))
    }

    fn ping(&self, to: IpAddr) -> Pending<()> {
        match Pinging::new(&self.0, to) {
            Ok(pinging) => Box::pin(pinging),
            Err(error) => Box::pin(future::ready(Err(error))),
        }
    }
}

/// The address with a port that is not `taken`, if it has none.
pub(crate) fn choose_port(
    common: &Common,
    local: SocketAddr,
    taken: impl Fn(SocketAddr) -> bool,
) -> io::Result<SocketAddr> {
    if local.port() != 0 {
        return if taken(local) { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(local) };
    }
    let mut candidates = (0..PORTS_TRIED).map(|_| SocketAddr::new(local.ip(), common.random_port()));
    candidates.find(|local| !taken(*local)).ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

impl Inner {
    /// Readable while there are packets of a shard.
    pub(crate) fn readable(&self, index: usize) -> BorrowedFd<'_> {
        self.parts[index].readable.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_netio::wait;

    use super::*;

    struct Unmoved;

    impl Environment for Unmoved {
        fn now(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    fn stack() -> Stack {
        Stack::new(&Settings::new(vec!["10.0.0.1".parse().unwrap()], 1420), Box::new(Unmoved)).unwrap()
    }

    #[test]
    fn what_is_sent_comes_from_the_address_beside_its_target() {
        let addresses = ["10.9.0.1/24", "10.8.0.1/16", "10.8.0.2/24", "fd00::1/64"].map(|own| own.parse().unwrap());
        let settings = Settings { addresses: addresses.into(), ..Settings::new(Vec::new(), 1420) };
        let stack = Stack::new(&settings, Box::new(Unmoved)).unwrap();
        let source = |to: &str| stack.0.common.source(to.parse().unwrap()).unwrap().to_string();
        assert_eq!(source("10.9.0.2"), "10.9.0.1");
        assert_eq!(source("10.8.1.9"), "10.8.0.1");
        assert_eq!(source("10.8.0.9"), "10.8.0.2");
        assert_eq!(source("192.0.2.1"), "10.9.0.1");
        assert_eq!(source("2001:db8::1"), "fd00::1");
    }

    fn is_raised(stack: &Stack) -> bool {
        wait::ready(&[stack.0.readable(0)]).unwrap() != 0
    }

    #[test]
    fn a_flag_that_is_raised_after_all_was_read_is_lowered_by_the_next_read() {
        let (stack, mut buf) = (stack(), [0; 100]);
        let (queued, due) = stack.0.locked(0, |shard, _| shard.queue([1; 20].into()));
        assert!(queued && stack.0.read(0, &mut buf).is_ok());
        assert!(stack.0.read(0, &mut buf).is_err());
        stack.0.follow_up(0, due);
        // The engine is told in vain, once.
        assert!(is_raised(&stack) && stack.0.read(0, &mut buf).is_err());
        assert!(!is_raised(&stack));
        // And is told of the next packet.
        stack.0.with(0, |shard, _| assert!(shard.queue([1; 20].into())));
        assert!(is_raised(&stack));
    }
}
