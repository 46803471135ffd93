//! Round trips by ICMP echo: the other host's kernel answers, so no process of ours is in the way.
//!
//! The packets are those of ping(8): 56 bytes of payload, one probe after the other, the next one sent only when the
//! last was answered or given up. It needs a raw socket: root may open one, also a user who is root only in the lab's
//! hosts.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use serde::Serialize;

use crate::error::Doing;
use crate::load::wait;
use crate::stats::Latency;
use crate::{Error, Result};

const ECHO_HEADER: usize = 8;
const PAYLOAD: usize = 56;

/// How to probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probes {
    /// How many.
    pub count: u32,
    /// Time from an answer to the next probe.
    pub pause: Duration,
    /// How long to wait for an answer.
    pub timeout: Duration,
}

impl Default for Probes {
    /// A thousand probes, a millisecond apart, each waited for up to a second.
    fn default() -> Self {
        Self { count: 1000, pause: Duration::from_millis(1), timeout: Duration::from_secs(1) }
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Probes sent.
    pub sent: u32,
    /// Probes answered in time.
    pub answered: u32,
    /// The round trips, summed up; none without an answer.
    #[serde(flatten)]
    pub latency: Option<Latency>,
    /// Every round trip in milliseconds, in the order of sending.
    #[serde(skip)]
    pub round_trips_ms: Vec<f64>,
}

/// Sends `probes` to `to` from the host of the calling thread.
///
/// # Errors
///
/// [`Error::Refused`] without the right to a raw socket; otherwise why a probe could not be sent.
pub fn run(to: IpAddr, probes: &Probes) -> Result<Report> {
    let prober = Prober::open(to)?;
    let mut round_trips_ms = Vec::new();
    for number in 0..probes.count {
        // ICMP's sequence numbers wrap at 16 bits; by then the answer to the same number is long given up.
        if let Some(time) = prober.probe(number as u16, probes.timeout)? {
            round_trips_ms.push(time.as_secs_f64() * 1e3);
        }
        if number + 1 < probes.count {
            thread::sleep(probes.pause);
        }
    }
    Ok(Report {
        sent: probes.count,
        answered: round_trips_ms.len() as u32,
        latency: Latency::of(round_trips_ms.iter().copied()),
        round_trips_ms,
    })
}

struct Prober {
    socket: OwnedFd,
    to: IpAddr,
    /// Tells our answers from those to others on this host.
    identifier: u16,
}

impl Prober {
    fn open(to: IpAddr) -> Result<Self> {
        let (family, protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let socket = match rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol)) {
            Ok(socket) => socket,
            Err(rustix::io::Errno::PERM) => {
                return Err(Error::Refused("probing needs a raw socket; run this as root".into()));
            }
            Err(error) => return Err(Error::system("opening a raw socket", error)),
        };
        rustix::net::connect(&socket, &SocketAddr::new(to, 0)).doing(|| format!("finding a way to {to}"))?;
        Ok(Self { socket, to, identifier: std::process::id() as u16 })
    }

    /// Sends one probe; the time until its answer, or nothing when none came.
    fn probe(&self, number: u16, timeout: Duration) -> Result<Option<Duration>> {
        let probing = || format!("probing {}", self.to);
        let packet = request(self.to, self.identifier, number);
        let sent = Instant::now();
        rustix::net::send(&self.socket, &packet, SendFlags::empty()).doing(probing)?;
        let mut answer = [0; 1500];
        loop {
            let Some(left) = timeout.checked_sub(sent.elapsed()) else {
                return Ok(None);
            };
            if wait(&mut [PollFd::new(&self.socket, PollFlags::IN)], left).doing(probing)? == 0 {
                continue;
            }
            let (length, _) = match rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::DONTWAIT) {
                Ok(received) => received,
                Err(rustix::io::Errno::AGAIN) => continue,
                Err(error) => return Err(Error::system(probing(), error)),
            };
            let time = sent.elapsed();
            if is_answer(self.to, self.identifier, number, &answer[..length]) {
                return Ok(Some(time));
            }
        }
    }
}

/// An ICMP echo request (RFC 792, RFC 4443 section 4.1).
fn request(to: IpAddr, identifier: u16, number: u16) -> [u8; ECHO_HEADER + PAYLOAD] {
    let mut packet = [0x5a; ECHO_HEADER + PAYLOAD];
    packet[..4].copy_from_slice(&[if to.is_ipv4() { 8 } else { 128 }, 0, 0, 0]);
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&number.to_be_bytes());
    // The kernel fills in the checksum of ICMPv6 (RFC 3542 section 3.1), not that of ICMP.
    if to.is_ipv4() {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Whether `packet` is the answer to that request. A raw IPv4 socket delivers the IP header too.
fn is_answer(to: IpAddr, identifier: u16, number: u16, packet: &[u8]) -> bool {
    let (header, reply) = match to {
        IpAddr::V4(_) => (packet.first().map_or(0, |first| usize::from(first & 15) * 4), 0),
        IpAddr::V6(_) => (0, 129),
    };
    let Some(&[kind, code, _, _, i0, i1, n0, n1]) = packet.get(header..).and_then(<[u8]>::first_chunk) else {
        return false;
    };
    kind == reply && code == 0 && u16::from_be_bytes([i0, i1]) == identifier && u16::from_be_bytes([n0, n1]) == number
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn a_request_sums_up_to_nothing() {
        assert_eq!(checksum(&request(V4, 0x1234, 7)), 0);
    }

    #[test]
    fn an_answer_is_known_by_its_identifier_and_number() {
        let mut packet = vec![0x45; 20];
        packet.extend(request(V4, 0x1234, 7));
        assert!(!is_answer(V4, 0x1234, 7, &packet), "a request is no answer");
        packet[20] = 0;
        assert!(is_answer(V4, 0x1234, 7, &packet));
        assert!(!is_answer(V4, 0x1234, 8, &packet));
        assert!(!is_answer(V4, 0x1235, 7, &packet));
        let mut packet = request(V6, 1, 2);
        packet[0] = 129;
        assert!(is_answer(V6, 1, 2, &packet));
    }

    #[test]
    fn a_hostile_answer_is_no_answer() {
        for packet in [&[][..], &[0x4f], &[0xff; 27], &[0x45; 27]] {
            assert!(!is_answer(V4, 0, 0, packet));
            assert!(!is_answer(V6, 0, 0, packet));
        }
    }
}
