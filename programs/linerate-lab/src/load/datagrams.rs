//! UDP that iperf3 cannot make. With sender GSO: the sender hands the kernel GSO batches, one system call each
//! (`UDP_SEGMENT`, Linux 4.18), the receiver takes them as they come (`UDP_GRO`, Linux 5.0). Or a mix of sizes: one
//! system call for each datagram at both ends, as iperf3 does it with a single size.
//!
//! Every datagram carries its number, from 0 on, so loss is known exactly: of the numbers from the end of the
//! warm-up to the last one sent, those that did not arrive. A datagram that arrives twice counts twice.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::{Arrived, LARGEST_PAYLOAD, Window};
use crate::error::Doing;
use crate::hosts::Host;
use crate::{Error, Result};

/// Datagrams in a GSO batch, at most: the kernel's `UDP_MAX_SEGMENTS` before Linux 6.9 (include/linux/udp.h).
const BATCH_MAX: usize = 64;

/// Bytes of the receiver's buffer, as far as `net.core.rmem_max` grants them: enough to be off the processor for
/// some milliseconds.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Without a datagram for so long after the last was sent, none is under way any more.
const QUIET: Duration = Duration::from_millis(100);

/// When to stop waiting for that.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a datagram's number.
const NUMBER: usize = size_of::<u64>();

/// What is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sizes<'a> {
    /// GSO batches of datagrams with so much payload.
    Batches(u16),
    /// One by one, with these sizes in turn.
    InTurn(&'a [u16]),
}

impl Sizes<'_> {
    /// Bytes of payload of the datagram with this number.
    fn of(self, number: u64) -> usize {
        match self {
            Self::Batches(payload) => payload.into(),
            Self::InTurn(sizes) => sizes[(number % sizes.len() as u64) as usize].into(),
        }
    }

    /// Datagrams of one system call.
    fn at_once(self) -> usize {
        match self {
            Self::Batches(payload) => usize::from(LARGEST_PAYLOAD / payload).min(BATCH_MAX),
            Self::InTurn(_) => 1,
        }
    }
}

pub(super) fn run(from: &Host, to_host: &Host, to: IpAddr, sizes: Sizes<'_>, window: Window) -> Result<Arrived> {
    let receiver = to_host.inside(|| open_receiver(to, sizes))?;
    let at = receiver.local_addr().doing(|| "asking a socket for its address".into())?;
    let sender = from.inside(|| open_sender(at, sizes))?;
    let progress = Progress::default();
    // Sockets belong to the host that they were opened in, whichever thread uses them.
    let (sent, count) = thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, sizes, &progress));
        let sent = send(&sender, sizes, window, &progress);
        progress.is_sent.store(true, Ordering::SeqCst);
        (sent, receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    Ok(arrived(&sent?, &count?))
}

/// How far the sender is; the receiver reads it.
struct Progress {
    /// The number of the first datagram that counts, once it is known.
    first: AtomicU64,
    is_sent: AtomicBool,
}

impl Default for Progress {
    fn default() -> Self {
        Self { first: AtomicU64::new(u64::MAX), is_sent: AtomicBool::new(false) }
    }
}

/// What was sent after the warm-up.
#[derive(Debug)]
struct Sent {
    datagrams: u64,
    time: Duration,
}

/// What arrived.
#[derive(Debug, Default)]
struct Count {
    /// Datagrams sent after the warm-up.
    datagrams: u64,
    /// Their payload in bytes.
    bytes: u64,
    /// When the first and the last of them came.
    span: Option<(Instant, Instant)>,
    /// Bytes of payload in all.
    all_bytes: u64,
}

impl Count {
    /// Takes in what one receive brought: one datagram, or a GSO batch.
    fn take(&mut self, batch: &[u8], sizes: Sizes<'_>, first: u64, now: Instant) {
        let (mut rest, before) = (batch, self.datagrams);
        while let Some(number) = rest.first_chunk() {
            let number = u64::from_be_bytes(*number);
            let size = sizes.of(number);
            let Some((_, after)) = rest.split_at_checked(size) else { break };
            rest = after;
            self.all_bytes += size as u64;
            if number >= first {
                self.datagrams += 1;
                self.bytes += size as u64;
            }
        }
        if self.datagrams > before {
            let (begin, _) = self.span.unwrap_or((now, now));
            self.span = Some((begin, now));
        }
    }
}

fn open_receiver(at: IpAddr, sizes: Sizes<'_>) -> Result<UdpSocket> {
    let opening = || format!("opening a UDP socket at {at}");
    let socket = UdpSocket::bind(SocketAddr::new(at, 0)).doing(opening)?;
    set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER).doing(opening)?;
    if let Sizes::Batches(_) = sizes {
        setsockopt(&socket, sockopt::UdpGroSegment, &true).doing(opening)?;
    }
    socket.set_read_timeout(Some(QUIET)).doing(opening)?;
    Ok(socket)
}

fn open_sender(to: SocketAddr, sizes: Sizes<'_>) -> Result<UdpSocket> {
    let opening = || format!("opening a UDP socket to {to}");
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).doing(opening)?;
    socket.connect(to).doing(opening)?;
    if let Sizes::Batches(payload) = sizes {
        setsockopt(&socket, sockopt::UdpGsoSegment, &i32::from(payload)).doing(opening)?;
    }
    // So that a path that takes nothing any more cannot block the sender for ever.
    socket.set_write_timeout(Some(QUIET)).doing(opening)?;
    Ok(socket)
}

/// Sends until the window is over.
fn send(socket: &UdpSocket, sizes: Sizes<'_>, window: Window, progress: &Progress) -> Result<Sent> {
    let at_once = sizes.at_once();
    let mut batch = vec![0x5a; LARGEST_PAYLOAD.into()];
    let (mut number, mut first) = (0_u64, None);
    let start = Instant::now() + window.warm_up;
    let end = start + window.time;
    loop {
        let now = Instant::now();
        if now >= end {
            break;
        }
        if first.is_none() && now >= start {
            first = Some((number, now));
            // Before any datagram that counts is sent, so before the receiver can see one.
            progress.first.store(number, Ordering::SeqCst);
        }
        let mut length = 0;
        for number in (number..).take(at_once) {
            batch[length..][..NUMBER].copy_from_slice(&number.to_be_bytes());
            length += sizes.of(number);
        }
        match socket.send(&batch[..length]) {
            Ok(_) => number += at_once as u64,
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(refusal(error, sizes)),
        }
    }
    let (first, begin) = first.unwrap_or((number, end));
    Ok(Sent { datagrams: number - first, time: begin.elapsed() })
}

/// Whether a queue on the path is full at the moment.
fn is_full(error: &io::Error) -> bool {
    let no_buffers = rustix::io::Errno::NOBUFS.raw_os_error();
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(no_buffers)
}

/// Why the kernel took no GSO batch. It checks the size of the datagrams and the interface's abilities only when one
/// is sent (`udp_send_skb` in net/ipv4/udp.c).
fn refusal(error: io::Error, sizes: Sizes<'_>) -> Error {
    use rustix::io::Errno;
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match sizes {
        Sizes::Batches(payload) if is(Errno::INVAL) || is(Errno::MSGSIZE) => Error::Refused(format!(
            "the kernel takes no GSO batches of {payload}-byte datagrams on this way ({error}): each has to fit the \
             interface's MTU with its headers; choose a smaller payload"
        )),
        Sizes::Batches(_) if is(Errno::IO) => Error::Refused(format!(
            "the kernel takes no GSO batches of datagrams on this way ({error}): the interface does not compute checksums; \
             measure without sender GSO"
        )),
        _ => Error::system("sending datagrams", error),
    }
}

/// Counts what arrives until everything is sent and nothing more comes.
fn receive(socket: &UdpSocket, sizes: Sizes<'_>, progress: &Progress) -> Result<Count> {
    let mut count = Count::default();
    let mut buffer = vec![0; 1 << 16];
    let mut last_call = None;
    loop {
        let is_sent = progress.is_sent.load(Ordering::SeqCst);
        match socket.recv(&mut buffer) {
            Ok(length) => {
                count.take(&buffer[..length], sizes, progress.first.load(Ordering::SeqCst), Instant::now());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_sent => break,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(Error::system("receiving datagrams", error)),
        }
        if is_sent && last_call.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
            break;
        }
    }
    Ok(count)
}

fn arrived(sent: &Sent, count: &Count) -> Arrived {
    // What a queue held at the end came later: the rate is that of arriving, not that of sending.
    let arriving = count.span.map_or(Duration::ZERO, |(begin, end)| end - begin);
    Arrived {
        bytes: count.bytes,
        seconds: sent.time.max(arriving).as_secs_f64(),
        all_bytes: count.all_bytes,
        retransmits: None,
        datagrams: Some(count.datagrams),
        lost: Some(sent.datagrams.saturating_sub(count.datagrams)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::IMIX;

    const THOUSAND: Sizes<'_> = Sizes::Batches(1000);

    fn loopback(sizes: Sizes<'_>) -> (UdpSocket, UdpSocket) {
        let receiver = open_receiver("127.0.0.1".parse().unwrap(), sizes).unwrap();
        let sender = open_sender(receiver.local_addr().unwrap(), sizes).unwrap();
        (sender, receiver)
    }

    fn batch(numbers: &[u64], sizes: Sizes<'_>) -> Vec<u8> {
        let datagram = |number: &u64| [&number.to_be_bytes()[..], &vec![0; sizes.of(*number) - NUMBER]].concat();
        numbers.iter().flat_map(datagram).collect()
    }

    #[test]
    fn datagrams_of_the_warm_up_do_not_count() {
        let mut count = Count::default();
        let now = Instant::now();
        count.take(&batch(&[0, 1, 2], THOUSAND), THOUSAND, u64::MAX, now);
        assert_eq!((count.datagrams, count.bytes, count.all_bytes, count.span), (0, 0, 3000, None));
        count.take(&batch(&[2, 3, 4], THOUSAND), THOUSAND, 3, now);
        count.take(&batch(&[6], THOUSAND), THOUSAND, 3, now + QUIET);
        assert_eq!((count.datagrams, count.bytes, count.all_bytes), (3, 3000, 7000));
        assert_eq!(count.span, Some((now, now + QUIET)));
    }

    #[test]
    fn datagrams_of_a_mix_count_with_the_sizes_that_their_numbers_say() {
        let mix = Sizes::InTurn(&[12, 500]);
        let mut count = Count::default();
        for number in [4, 7, 9] {
            count.take(&batch(&[number], mix), mix, 5, Instant::now());
        }
        assert_eq!((count.datagrams, count.bytes, count.all_bytes), (2, 1000, 1012));
    }

    #[test]
    fn a_strangers_datagram_is_not_counted() {
        let mut count = Count::default();
        count.take(&[], THOUSAND, 0, Instant::now());
        count.take(&[0xff; 99], THOUSAND, 0, Instant::now());
        assert_eq!((count.datagrams, count.all_bytes), (0, 0));
    }

    #[test]
    fn a_train_arrives_as_its_datagrams() {
        let (sender, receiver) = loopback(THOUSAND);
        sender.send(&batch(&[5, 6, 7, 8], THOUSAND)).unwrap();
        let (mut count, mut buffer) = (Count::default(), vec![0; 1 << 16]);
        while count.all_bytes < 4000 {
            let length = receiver.recv(&mut buffer).unwrap();
            count.take(&buffer[..length], THOUSAND, 6, Instant::now());
        }
        assert_eq!((count.datagrams, count.all_bytes), (3, 4000));
    }

    #[test]
    fn what_is_sent_either_arrives_or_is_lost() {
        for sizes in [THOUSAND, Sizes::InTurn(&IMIX)] {
            let (sender, receiver) = loopback(sizes);
            let window = Window { warm_up: Duration::from_millis(5), time: Duration::from_millis(30) };
            let progress = Progress::default();
            let (sent, count) = thread::scope(|scope| {
                let receiving = scope.spawn(|| receive(&receiver, sizes, &progress));
                let sent = send(&sender, sizes, window, &progress).unwrap();
                progress.is_sent.store(true, Ordering::SeqCst);
                (sent, receiving.join().unwrap().unwrap())
            });
            let arrived = arrived(&sent, &count);
            assert_eq!(arrived.datagrams.unwrap() + arrived.lost.unwrap(), sent.datagrams);
            assert!(arrived.all_bytes >= arrived.bytes);
        }
    }

    #[test]
    fn gso_batches_that_fit_no_packet_are_refused_with_a_reason() {
        let error = refusal(io::Error::from(rustix::io::Errno::INVAL), Sizes::Batches(1400));
        assert!(matches!(&error, Error::Refused(why) if why.contains("1400-byte") && why.contains("MTU")));
        assert!(matches!(refusal(io::Error::from(rustix::io::Errno::HOSTUNREACH), THOUSAND), Error::System { .. }));
    }
}
